//! A server in loom's memory model, and sessions that are hosts of the protocol: what they do
//! in a transaction is [`protocol::issue`], [`protocol::advance_to_now`] and [`SessionHolds`], as in
//! production.
//!
//! A transaction that has ended says so in a flag with no ordering of its own: a reader that
//! must see its rows has to see the flag by what the holds order. The table of locks is a
//! mutex, as in PostgreSQL.
//!
//! WAL is a counter: who writes a record takes the next number. Its changes have no ordering of
//! their own either, so that records are in the order that the holds give them.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool as Flag, AtomicI64 as Number, Ordering::SeqCst as Always};

use loom::sync::{Arc, Mutex};

use super::scaffold;
use crate::horizon::lock_list::{self, LockFlag, LockList, Locks};
use crate::horizon::{
    InsertError, PLACES, PlaceCount, ProcessHolds, Processes, Session as Holding, SessionHolds,
    least,
};
use crate::id::{BootNanos, Millis, NANOS_PER_MILLI, Nanos, Tick, UnixMillis, UnixNanos};
use crate::label::generator::Generator;
use crate::label::policy::SequenceStart;
use crate::protocol;
use crate::protocol::clock::Reading;
use crate::protocol::cursor::Clocks;
use crate::protocol::host::{Host, IssueError, Need, Note, OnDisk, TrustedClock};
use crate::protocol::plan::{Author, ReserveError, Settings};
use crate::protocol::slot::{Reserving, Scale, Slot};
use crate::protocol::tenure::{Generation, Tenure};
use crate::sync::{AtomicBool, AtomicI64, Ordering::Relaxed};

pub const G: Generator = Generator::DEFAULT;
pub const KEY: u64 = 7 << 32 | 1;

/// The beginning of a tick.
pub fn instant(tick: i64) -> UnixMillis {
    G.layout.instant_of(Tick::new(tick.cast_unsigned()))
}

fn reading(tick: i64) -> Reading {
    let nanos = (G.layout.epoch().get() + tick) * NANOS_PER_MILLI;
    Reading {
        boot: BootNanos::new(nanos),
        wall: UnixNanos::new(nanos),
    }
}

/// What sessions share.
pub struct Server {
    pub slot: Slot,
    holders: [ProcessHolds; 2],
    used: PlaceCount,
    /// The value of the sequence; under the reservation lock.
    mark: AtomicI64,
    reserving: Mutex<()>,
    trusted: Mutex<TrustedClock>,
    /// Whether the transaction of each session has ended.
    ended: [AtomicBool; 2],
    wal: AtomicI64,
    /// Where the record of each transaction's end is, for when all threads have ended.
    ends: [Number; 2],
    /// PostgreSQL's table of locks: which session has taken one, of which generator, and where.
    locks: Mutex<Vec<(usize, u64, UnixMillis)>>,
    list: Mutex<LockList>,
    noted: LockFlag,
    /// The lock on the sequence, of a session that takes IDs or changes the label.
    sequence: Mutex<()>,
}

/// The generator has started in tick 3, and its bound is far away.
pub fn server() -> Arc<Server> {
    let slot = Slot::new(reading(0), 0);
    assert!(slot.evict(KEY, reading(3), 0));
    slot.unpin();
    let token = Reserving::the_lock_is_held();
    slot.settle(&token, 1, Scale::of_generator(&G), reading(3));
    let server = Arc::new(Server {
        slot,
        holders: Default::default(),
        used: PlaceCount::default(),
        mark: AtomicI64::new(0),
        reserving: Mutex::new(()),
        trusted: Mutex::new(TrustedClock::new(reading(3))),
        ended: Default::default(),
        wal: AtomicI64::new(1),
        ends: Default::default(),
        locks: Mutex::default(),
        list: Mutex::default(),
        noted: LockFlag::default(),
        sequence: Mutex::new(()),
    });
    assert_eq!(
        protocol::advance_to_now(&session(&server, 0, 3)),
        Ok(instant(3))
    );
    server
}

impl Processes for Server {
    fn holders(&self) -> &[ProcessHolds] {
        self.used.of(&self.holders)
    }
}

impl Server {
    /// Reads the horizon, and which transactions have ended by the snapshot after it.
    pub fn read(&self, now: i64) -> (UnixMillis, [bool; 2]) {
        let reached = protocol::advance_to_now(&session(self, 0, now)).unwrap();
        let search = || lock_list::least(self, KEY);
        let horizon = self.slot.horizon().read(reached, self, KEY, search);
        (horizon, self.have_ended())
    }

    /// Reads the horizon, and then the end of WAL.
    pub fn read_with_wal(&self, now: i64) -> (UnixMillis, i64) {
        let (horizon, _) = self.read(now);
        (horizon, self.wal.fetch_add(1, Relaxed))
    }

    /// Where the record of a transaction's end is in WAL.
    pub fn end_of(&self, mine: usize) -> i64 {
        self.ends[mine].load(Always)
    }

    fn have_ended(&self) -> [bool; 2] {
        self.ended.each_ref().map(|ended| ended.load(Relaxed))
    }

    /// The transaction of this session has ended: its record is in WAL, and others see its rows.
    pub fn note_end(&self, mine: usize) {
        self.ends[mine].store(self.wal.fetch_add(1, Relaxed), Always);
        self.ended[mine].store(true, Relaxed);
    }

    /// A transaction that waits for those that take IDs changes the label; then a session starts
    /// the generator anew.
    pub fn relabel(&self) {
        let _lock = self.sequence.lock().unwrap();
        let mut other = G;
        other.policy.sequence_start = SequenceStart::Random;
        let token = Reserving::the_lock_is_held();
        let scale = Scale::of_generator(&other);
        self.slot.settle(&token, 1, scale, reading(3));
    }

    /// The slot is given to another generator once the clock has passed it and nobody uses it.
    /// Whether it was; nobody holds the generator then.
    pub fn evict(&self) -> bool {
        let is_free = self.slot.evict(KEY + 1, reading(9), 0);
        if is_free {
            assert_eq!(least(self.holders(), KEY), None, "the slot is in use");
        }
        is_free
    }

    /// The locks of a transaction end.
    pub fn unlock(&self, mine: usize) {
        let mut locks = self.locks.lock().unwrap();
        locks.retain(|(whose, ..)| *whose != mine);
    }
}

impl Locks for Server {
    fn noted(&self) -> &LockFlag {
        &self.noted
    }

    fn with_list<T>(&self, f: impl FnOnce(&mut LockList) -> T) -> T {
        f(&mut self.list.lock().unwrap())
    }

    fn is_taken(&self, key: u64, at: UnixMillis) -> bool {
        let locks = self.locks.lock().unwrap();
        locks
            .iter()
            .any(|(_, its, then)| (*its, *then) == (key, at))
    }

    fn search(&self) -> Vec<(u64, UnixMillis)> {
        let locks = self.locks.lock().unwrap();
        locks.iter().map(|(_, key, at)| (*key, *at)).collect()
    }
}

/// A session, in a transaction.
pub struct Session<'a> {
    server: &'a Server,
    mine: usize,
    now: i64,
    held: RefCell<SessionHolds>,
    has_taken: Cell<bool>,
}

/// The session of this number, whose clocks show a tick.
pub fn session(server: &Server, mine: usize, now: i64) -> Session<'_> {
    Session {
        server,
        mine,
        now,
        held: RefCell::default(),
        has_taken: Cell::new(false),
    }
}

impl Session<'_> {
    /// Takes an ID, and returns its instant.
    pub fn take(&self) -> UnixMillis {
        let issued = protocol::issue(self, 1).unwrap();
        self.has_taken.set(true);
        G.layout.instant_of(G.layout.tick_of(issued.start))
    }

    /// Inserts an ID of this tick, which may come from elsewhere.
    pub fn insert(&self, at: UnixMillis) -> Result<(), InsertError<Infallible>> {
        let horizon = self.server.slot.horizon();
        self.held
            .borrow_mut()
            .insert(&self.places(), KEY, at, horizon)
    }

    /// Holds as many other generators as there are places.
    pub fn fill_places(&self) {
        let held = &mut *self.held.borrow_mut();
        for other in 1..=PLACES as u64 {
            let Ok(()) = held.hold(&self.places(), KEY + other, instant(1));
        }
    }

    /// Turns the holds into locks, as PREPARE TRANSACTION does: the transaction needs no session
    /// from here on.
    pub fn prepare(&self) {
        let held: Vec<_> = self.held.borrow().iter().collect();
        for (key, at) in held {
            let Ok(()) = self.places().lock(key, at);
        }
        self.withdraw();
    }

    /// Holds the generator, and takes no ID: the lease has ended, for one.
    pub fn fail(&self) {
        let at = protocol::advance_to_now(self).unwrap();
        self.hold(&self.server.slot, at).unwrap();
    }

    /// The transaction ends: others see its rows.
    pub fn end(&self) {
        self.server.note_end(self.mine);
        self.withdraw();
    }

    /// As a transaction that locks the sequence and pins the slot: what it does, and its end in
    /// PostgreSQL's order.
    pub fn locked(&self, f: impl FnOnce(&Self)) {
        let server = self.server;
        let lock = server.sequence.lock().unwrap();
        if !server.slot.pin(KEY) {
            return;
        }
        f(self);
        let holder = &server.holders[self.mine];
        server.note_end(self.mine);
        self.held.borrow_mut().close(holder);
        drop(lock);
        self.withdraw();
        server.slot.unpin();
    }

    fn withdraw(&self) {
        let holder = &self.server.holders[self.mine];
        self.held.borrow_mut().withdraw(holder);
        self.has_taken.set(false);
    }

    /// As a process that comes to its place, which may be the first one there.
    fn places(&self) -> Places<'_> {
        self.server.used.come(u32::try_from(self.mine).unwrap());
        Places(self)
    }
}

struct Places<'a>(&'a Session<'a>);

impl Holding for Places<'_> {
    type Error = Infallible;

    fn holder(&self) -> &ProcessHolds {
        &self.0.server.holders[self.0.mine]
    }

    fn lock(&self, key: u64, at: UnixMillis) -> Result<(), Infallible> {
        let Session { server, mine, .. } = self.0;
        server.locks.lock().unwrap().push((*mine, key, at));
        lock_list::note(*server, key, at);
        Ok(())
    }
}

impl Clocks for Session<'_> {
    fn wall(&self) -> UnixNanos {
        reading(self.now).wall
    }

    fn boot(&self) -> BootNanos {
        reading(self.now).boot
    }

    fn read(&self) -> Reading {
        reading(self.now)
    }
}

impl Host for Session<'_> {
    type Error = IssueError;

    fn error(&self, why: IssueError) -> IssueError {
        why
    }

    fn enter(&self) -> Result<(&Slot, &Generator), IssueError> {
        Ok((&self.server.slot, &G))
    }

    fn entered(&self) -> Option<(&Slot, &Generator)> {
        Some((&self.server.slot, &G))
    }

    fn generation(&self) -> Generation {
        Generation::NONE
    }

    fn has_taken(&self) -> bool {
        self.has_taken.get()
    }

    fn hold(&self, _slot: &Slot, at: UnixMillis) -> Result<(), IssueError> {
        let held = &mut *self.held.borrow_mut();
        let Ok(()) = held.hold(&self.places(), KEY, at);
        Ok(())
    }

    fn narrow_hold(&self, at: UnixMillis) {
        let holder = &self.server.holders[self.mine];
        self.held.borrow_mut().narrow_hold(holder, KEY, at);
    }

    fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T {
        let _guard = self.server.reserving.lock().unwrap();
        f(&Reserving::the_lock_is_held())
    }

    fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock, Tenure) -> T) -> T {
        f(&mut self.server.trusted.lock().unwrap(), Tenure::NONE)
    }

    fn settings(&self) -> Settings {
        Settings {
            reserve: Millis::new(1000),
            failover_gap: Millis::new(20),
            max_clock_jump: Millis::new(100_000),
        }
    }

    fn read_mark(&self) -> Result<OnDisk, IssueError> {
        let mark = self.server.mark.load(Relaxed);
        Ok(OnDisk {
            value: (mark != 0).then_some(mark),
            author: Author::Present,
        })
    }

    fn last_commit(&self) -> Option<UnixMillis> {
        None
    }

    fn write_durably(&self, value: i64) -> Result<(), IssueError> {
        self.server.mark.store(value, Relaxed);
        Ok(())
    }

    fn nap(&self, _nanos: Nanos) -> Result<(), IssueError> {
        panic!("nobody waits in these tests")
    }

    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Self::Error> {
        protocol::reserve(self, need)
    }

    fn note(&self, _note: Note) {}
}

/// Remembers which cases have been met: a test that meets one only proves nothing.
#[derive(Default)]
pub struct Met {
    seen: Flag,
    held_back: Flag,
    refused: Flag,
}

impl Met {
    /// An ID before the horizon is one of a transaction that has ended.
    pub fn check(&self, id: UnixMillis, horizon: UnixMillis, has_ended: bool) {
        if id < horizon {
            assert!(has_ended, "missed {id:?} before {horizon:?}");
            self.seen.store(true, Always);
        } else {
            self.held_back.store(true, Always);
        }
    }

    /// As [`Self::check`], of an ID from elsewhere, unless it was refused.
    pub fn check_inserted(
        &self,
        inserted: bool,
        id: UnixMillis,
        horizon: UnixMillis,
        has_ended: bool,
    ) {
        if inserted {
            self.check(id, horizon, has_ended);
        } else {
            self.refused.store(true, Always);
        }
    }
}

/// Explores all interleavings, see [`scaffold::explore`], in which an ID must be seen and must be
/// held back. Returns whether one was refused.
pub fn explore(interruptions: usize, f: impl Fn(&Met) + Sync + Send + 'static) -> bool {
    let met = std::sync::Arc::new(Met::default());
    let all = met.clone();
    scaffold::explore(interruptions, move || f(&all));
    assert!(met.seen.load(Always) && met.held_back.load(Always));
    met.refused.load(Always)
}
