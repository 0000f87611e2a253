//! The locks by which transactions hold generators, see [`crate::horizon`]: a list of them in
//! shared memory.
//!
//! PostgreSQL tells nobody that such a lock was freed: any session may end a prepared transaction.
//! And to go through PostgreSQL's table of locks takes as long as there are locks, and stops all
//! who lock meanwhile. To ask it for one lock is short. So a session that has taken a lock lists
//! it. A reader asks for those in the list that concern it, the earliest first, until it finds one.
//! Those that it does not find leave the list.
//!
//! The list lacks locks after a start, of transactions that were prepared before, and while it is
//! full. Then a reader goes through the table of locks, and lists what it finds there. Locks that
//! nobody asks for stay in the list until then.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | [`LockList`] | under a lock of its own, which is held for no other work |
//! | [`LockFlag`] | false: the list lacks nothing and is empty. Stored with Release under that lock, loaded with Acquire by readers without it |
//!
//! # Why no lock is missed
//!
//! A session lists its lock when it has it, and before what relies on that. A reader that must find
//! the lock sees the [`LockFlag`] of that moment, or a later one, and then the list. If the lock is
//! neither in the list nor one that the list lacks, a reader has not found it in the table of locks,
//! and has taken it out: it was freed. What is taken out is the entry that the reader has seen, by
//! its number: another lock may have the same generator and instant, and be listed since.
//!
//! Locks are numbered as they are listed, or found to have no room. A search that began after
//! number n finds all locks up to n that were not freed. So it replaces the entries up to n, and
//! the list lacks nothing if no lock after n had no room.

use crate::horizon::BEGINNING;
use crate::id::UnixMillis;
use crate::sync::AtomicBool;
use crate::sync::Ordering::{Acquire, Release};

/// How many locks the list has room for: 24 kB. With more of them, each reader goes through the
/// table of locks, which has room for some thousands by default.
const LENGTH: usize = if cfg!(loom) { 2 } else { 1024 };

/// A lock that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LockEntry {
    at: UnixMillis,
    key: u64,
    /// Found by a search: how many were noted when it began.
    number: u64,
}

const NONE: LockEntry = LockEntry {
    at: BEGINNING,
    key: 0,
    number: 0,
};

#[derive(Debug)]
pub struct LockList {
    listed: [LockEntry; LENGTH],
    count: usize,
    /// The number of the last lock.
    last: u64,
    /// The number of the last lock that had no room.
    unlisted: u64,
    /// The list lacks no lock up to this number.
    searched: u64,
}

/// As after a start.
impl Default for LockList {
    fn default() -> Self {
        Self {
            listed: [NONE; LENGTH],
            count: 0,
            last: 1,
            unlisted: 1,
            searched: 0,
        }
    }
}

impl LockList {
    const fn is_complete(&self) -> bool {
        self.unlisted <= self.searched
    }

    const fn may_have_any(&self) -> bool {
        self.count > 0 || !self.is_complete()
    }

    fn push(&mut self, lock: LockEntry) -> bool {
        let free = self.listed.get_mut(self.count);
        let has_room = free.is_some();
        if let Some(free) = free {
            *free = lock;
            self.count += 1;
        }
        has_room
    }

    fn note(&mut self, key: u64, at: UnixMillis) {
        self.last += 1;
        let number = self.last;
        if !self.push(LockEntry { at, key, number }) {
            self.unlisted = number;
        }
    }

    fn listed(&self) -> &[LockEntry] {
        self.listed.get(..self.count).unwrap_or(&self.listed)
    }

    fn retain(&mut self, keeps: impl Fn(&LockEntry) -> bool) {
        let kept: Vec<_> = self.listed().iter().copied().filter(keeps).collect();
        self.count = 0;
        for lock in kept {
            self.push(lock);
        }
    }

    /// A search that began after this number has found these.
    fn replace(&mut self, number: u64, found: &[(u64, UnixMillis)]) {
        let is_newer = |lock: &LockEntry| lock.number > number;
        let newer = self.listed().iter().filter(|lock| is_newer(lock)).count();
        if newer + found.len() > LENGTH {
            return;
        }
        self.retain(is_newer);
        for &(key, at) in found {
            self.push(LockEntry { at, key, number });
        }
        self.searched = self.searched.max(number);
    }
}

/// Whether there may be any lock, see the head of the file.
#[derive(Debug)]
pub struct LockFlag(AtomicBool);

/// As after a start.
impl Default for LockFlag {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

/// The list of a server, and its table of locks.
pub trait Locks {
    fn noted(&self) -> &LockFlag;

    /// Runs `f` under the lock of the list.
    fn with_list<T>(&self, f: impl FnOnce(&mut LockList) -> T) -> T;

    /// Whether anybody has this lock.
    fn is_taken(&self, key: u64, at: UnixMillis) -> bool;

    /// All locks that anybody has: by going through the table of locks.
    fn search(&self) -> Vec<(u64, UnixMillis)>;
}

fn change<L: Locks>(locks: &L, f: impl FnOnce(&mut LockList)) {
    locks.with_list(|list| {
        f(list);
        locks.noted().0.store(list.may_have_any(), Release);
    });
}

/// The caller has taken this lock. Called before what relies on the lock.
pub fn note(locks: &impl Locks, key: u64, at: UnixMillis) {
    change(locks, |list| list.note(key, at));
}

/// The least instant at which locks hold the generator of this key.
pub fn least(locks: &impl Locks, key: u64) -> Option<UnixMillis> {
    let found = find(locks, |its| its == key, true);
    found.first().map(|(_, at)| *at)
}

/// All generators that are held by locks, and where.
pub fn all(locks: &impl Locks) -> Vec<(u64, UnixMillis)> {
    find(locks, |_| true, false)
}

/// By their instants.
fn find(
    locks: &impl Locks,
    counts: impl Fn(u64) -> bool,
    only_first: bool,
) -> Vec<(u64, UnixMillis)> {
    if !locks.noted().0.load(Acquire) {
        return Vec::new();
    }
    let (number, listed) = locks.with_list(|list| {
        let counted = list.listed().iter().filter(|lock| counts(lock.key));
        let listed = counted.copied().collect::<Vec<_>>();
        (list.last, list.is_complete().then_some(listed))
    });
    let Some(mut listed) = listed else {
        let mut found = locks.search();
        change(locks, |list| list.replace(number, &found));
        found.retain(|(key, _)| counts(*key));
        found.sort_unstable_by_key(|(_, at)| *at);
        return found;
    };
    listed.sort_unstable();
    let (mut taken, mut gone) = (Vec::new(), Vec::new());
    for lock in listed {
        if locks.is_taken(lock.key, lock.at) {
            taken.push((lock.key, lock.at));
            if only_first {
                break;
            }
        } else {
            gone.push(lock);
        }
    }
    if !gone.is_empty() {
        change(locks, |list| {
            list.retain(|lock| gone.binary_search(lock).is_err());
        });
    }
    taken
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const KEY: u64 = 7 << 32 | 1;

    fn at(millis: i64) -> UnixMillis {
        UnixMillis::new(millis)
    }

    /// A server in one thread, which counts what it is asked.
    #[derive(Default)]
    struct Server {
        noted: LockFlag,
        list: RefCell<LockList>,
        table: RefCell<Vec<(u64, UnixMillis)>>,
        asked: Cell<usize>,
        /// Taken when the server has said that a lock is gone.
        next: Cell<Option<(u64, i64)>>,
        searched: Cell<usize>,
    }

    impl Locks for Server {
        fn noted(&self) -> &LockFlag {
            &self.noted
        }

        fn with_list<T>(&self, f: impl FnOnce(&mut LockList) -> T) -> T {
            f(&mut self.list.borrow_mut())
        }

        fn is_taken(&self, key: u64, at: UnixMillis) -> bool {
            self.asked.set(self.asked.get() + 1);
            let is_taken = self.table.borrow().contains(&(key, at));
            if let Some((key, millis)) = self.next.take() {
                self.take(key, millis);
            }
            is_taken
        }

        fn search(&self) -> Vec<(u64, UnixMillis)> {
            self.searched.set(self.searched.get() + 1);
            self.table.borrow().clone()
        }
    }

    impl Server {
        fn take(&self, key: u64, millis: i64) {
            self.table.borrow_mut().push((key, at(millis)));
            note(self, key, at(millis));
        }

        /// One of those that look the same.
        fn free(&self, key: u64, millis: i64) {
            let mut table = self.table.borrow_mut();
            let its = table.iter().position(|lock| *lock == (key, at(millis)));
            let _ = table.swap_remove(its.unwrap());
        }

        /// The least instant, how many locks were asked for, and how many searches there were.
        fn least(&self, key: u64) -> (Option<UnixMillis>, usize, usize) {
            let found = least(self, key);
            (found, self.asked.take(), self.searched.take())
        }
    }

    #[test]
    fn a_reader_asks_for_the_earliest_and_no_longer_for_those_that_are_gone() {
        let server = Server::default();
        server.table.borrow_mut().push((KEY, at(50)));
        assert_eq!(server.least(KEY), (Some(at(50)), 0, 1), "after a start");
        for millis in [40, 30, 60] {
            server.take(KEY, millis);
        }
        server.take(KEY + 1, 10);
        assert_eq!(server.least(KEY), (Some(at(30)), 1, 0));
        server.free(KEY, 30);
        server.free(KEY, 40);
        assert_eq!(server.least(KEY), (Some(at(50)), 3, 0));
        assert_eq!(server.least(KEY), (Some(at(50)), 1, 0));
        assert_eq!(all(&server).len(), 3);
        server.table.take();
        server.asked.take();
        assert_eq!(server.least(KEY), (None, 2, 0));
        assert_eq!(server.least(KEY + 1), (None, 1, 0));
        assert_eq!(server.least(KEY), (None, 0, 0));
        assert!(
            !server.noted.0.load(Acquire),
            "readers do not look at the list"
        );
        server.take(KEY, 70);
        assert_eq!(server.least(KEY), (Some(at(70)), 1, 0));
    }

    #[test]
    fn a_list_that_was_full_is_made_anew() {
        let server = Server::default();
        assert_eq!(server.least(KEY), (None, 0, 1));
        let length = i64::try_from(LENGTH).unwrap();
        for millis in 1..=length {
            server.take(KEY, millis);
        }
        assert_eq!(server.least(KEY), (Some(at(1)), 1, 0));
        server.take(KEY + 1, 5);
        for _ in 0..2 {
            assert_eq!(server.least(KEY + 1), (Some(at(5)), 0, 1), "no room");
        }
        server.free(KEY, 1);
        assert_eq!(server.least(KEY), (Some(at(2)), 0, 1));
        assert_eq!(server.least(KEY + 1), (Some(at(5)), 1, 0));
        assert_eq!(all(&server).len(), LENGTH);
    }

    /// Locks are taken while a reader goes through the table of locks, or asks for one.
    #[test]
    fn a_lock_that_is_listed_meanwhile_stays() {
        let server = Server::default();
        let (number, full) = (server.list.borrow().last, LENGTH);
        server.take(KEY, 10);
        server.with_list(|list| list.replace(number, &[(KEY + 1, at(20))]));
        assert_eq!(server.least(KEY), (Some(at(10)), 1, 0));
        // One that looks like the one that is gone.
        server.free(KEY, 10);
        server.next.set(Some((KEY, 10)));
        assert_eq!(server.least(KEY), (None, 1, 0));
        assert_eq!(server.least(KEY), (Some(at(10)), 1, 0));
        // One that has no room, after a search has begun.
        let number = server.list.borrow().last;
        for _ in 0..full {
            server.take(KEY + 1, 30);
        }
        server.with_list(|list| list.replace(number, &[(KEY, at(10))]));
        assert_eq!(
            server.least(KEY),
            (Some(at(10)), 0, 1),
            "it is searched for"
        );
    }
}
