//! The horizon: an instant before which no ID can appear any more.
//!
//! Transactions commit in another order than they take IDs. A reader who remembers the
//! greatest ID that it has seen misses the rows of a transaction that took its IDs earlier
//! and commits later. The horizon of a generator is an instant that lies at or before every
//! ID of a transaction that has not ended, and every ID to come.
//!
//! # Holds
//!
//! A session that takes IDs holds the horizon. All instants are the beginnings of ticks, in
//! Unix milliseconds: they mean the same under every label of a generator.
//!
//! 1. Before its transaction takes the first ID of a generator, the session loads the cursor,
//!    and publishes the instant of its tick: a hold. All IDs that the transaction takes lie
//!    at or after that instant, since a cursor only grows. If the generator has not started,
//!    the session starts it first, as a reader does ([`crate::protocol::advance_to_now`]): so no
//!    hold lies before the mark, which no earlier horizon has passed.
//! 2. It takes the ID, by a read-modify-write of the cursor. Then it raises the hold to the
//!    tick of that ID, if it was the first one.
//! 3. It withdraws the hold when its transaction has ended, and other sessions see its rows.
//!    A rollback to a savepoint withdraws nothing: IDs may be used after it.
//!
//! A reader moves the cursor to the tick of now, or loads it, and looks at all holds
//! afterwards. The horizon is the least of these. It reads rows by a snapshot that it takes
//! after that.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | `Hold::at` | the instant; written by its session only. Stored with Release, before `key` |
//! | `Hold::key` | the generator that is held, 0: none. Stored with Release by its session |
//! | `PlaceCount` | how many places were ever used; raised with Release before a place is used first, and loaded with Acquire before each look at the places |
//! | `ProcessHolds::process` | the process that had the place last, for a view |
//! | `Horizon::announced` | no greater horizon was returned; raised by readers, and at a start |
//! | `Horizon::returned` | the greatest horizon that was returned; raised by readers |
//!
//! # Why no row is missed
//!
//! Let an ID lie below a horizon that a reader has returned. It lies below the position
//! that the reader has loaded, so the read-modify-write that took it comes before that load
//! in the order of the cursor's changes. All changes of the cursor are read-modify-writes, with
//! Release; the load is Acquire. So all that the session had stored before it took the ID
//! happens before the reader's look at the holds: the reader sees this hold, or a later
//! value of that place. It has not returned less than the hold. So it has seen a later
//! value: the hold was withdrawn, with Release, and the reader loads with Acquire. So the
//! transaction had ended before the reader's snapshot.
//!
//! A reader that finds the generator's key may load the instant of a later hold of that
//! session. That is stored with Release as well, after the hold before it was withdrawn: so
//! the reader has seen the end of that transaction, and only finds a horizon that is less
//! than it could be.
//!
//! # After the locks
//!
//! PostgreSQL frees the locks of a transaction before its session withdraws what it holds: see
//! `src/session/mod.rs`. In between, another session can change the label of the generator, and a third
//! one then resets the cursor ([`crate::protocol::slot::Slot::settle`]) while the hold still stands. A hold
//! that stands longer only makes horizons less than they could be. But a reset also forgets which
//! horizon was returned, and none may go back: the cursor starts at the mark, which no horizon has
//! passed, so only the hold could lie before one. A reader may have passed a hold, as long as that
//! lies before the IDs that the session takes. So a session calls [`SessionHolds::close`] while it has its
//! locks: no reader passes what stands after that. (A hold by a lock cannot be raised. So a change
//! of the label between the moments at which PostgreSQL frees two locks of one transaction may take
//! the horizon back, by the time between steps 1 and 2.)
//!
//! The slot goes to another generator only if nobody has pinned it. A session that holds has
//! pinned the slot, and gives that back after it has withdrawn.
//!
//! # IDs that come from elsewhere
//!
//! An ID that was taken by another transaction than the one that inserts it is not held. A
//! session that must not let the reader miss it ([`SessionHolds::insert`]) publishes its tick as a
//! hold, and looks afterwards whether a greater horizon was announced. A reader announces
//! what it is about to return, and looks at all holds once more. Between the store and the
//! look, both have a SeqCst fence: so at least one of the two sees the other. Either the
//! reader returns no more than the hold, or the session refuses the ID. The session may be
//! the first one in its place: so the reader asks after the fence which places are used,
//! and the session has told so before it publishes.
//!
//! After a start, the announced horizon is where the generator starts: no horizon was past
//! the mark, since the cursor that readers use is not past the bound.
//!
//! # Locks
//!
//! A session has [`PLACES`] places. A generator beyond those is held by a lock of
//! PostgreSQL's, and so is each generator of a prepared transaction, see `src/session/tx_holds.rs`. Such
//! a hold is not raised, and ends with its transaction.
//!
//! A session lists the lock ([`crate::horizon::lock_list`]) when it has it, and before it takes an ID, or
//! withdraws its other hold. A reader looks at the places first, and then at the list.

pub mod lock_list; // by which locks transactions hold generators

use crate::id::UnixMillis;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicI64, AtomicU32, AtomicU64, fence};

/// How many generators a transaction can hold one by one.
pub const PLACES: usize = if cfg!(loom) { 1 } else { 4 };

/// Before all instants of IDs.
pub const BEGINNING: UnixMillis = UnixMillis::new(0);

/// What the sessions of one place in the server's list of processes hold.
#[derive(Debug, Default)]
#[repr(C)]
#[cfg_attr(not(test), repr(align(128)))]
pub struct ProcessHolds {
    holds: [Hold; PLACES],
    process: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Hold {
    key: AtomicU64,
    at: AtomicI64,
}

impl Hold {
    fn publish(&self, key: u64, at: UnixMillis) {
        // Release: a reader that sees the instant sees that the hold before it was withdrawn.
        self.at.store(at.get(), Release);
        // Release: a reader that sees the key sees the instant.
        self.key.store(key, Release);
    }

    fn withdraw(&self) {
        // Release: a reader that sees this sees that the transaction has ended.
        self.key.store(0, Release);
    }

    fn at(&self) -> UnixMillis {
        UnixMillis::new(self.at.load(Acquire))
    }

    /// The instant, if the hold is of this key.
    fn of(&self, key: u64) -> Option<UnixMillis> {
        // Acquire pairs with publish() and withdraw().
        (self.key.load(Acquire) == key).then(|| self.at())
    }
}

/// One hold, as a view shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownHold {
    pub process: u32,
    pub key: u64,
    pub at: UnixMillis,
}

impl ProcessHolds {
    /// Says which process has the place.
    pub fn set_process(&self, process: u32) {
        self.process.store(process, Relaxed);
    }

    /// Withdraws whatever the place holds: its process ends.
    pub fn withdraw_all(&self) {
        self.holds.iter().for_each(Hold::withdraw);
    }

    /// The least instant at which a generator is held.
    fn least(&self, key: u64) -> Option<UnixMillis> {
        self.holds.iter().filter_map(|hold| hold.of(key)).min()
    }

    /// All that is held, for a view.
    pub fn shown(&self) -> impl Iterator<Item = ShownHold> {
        let process = self.process.load(Relaxed);
        let shown = move |hold: &Hold| {
            let key = hold.key.load(Acquire);
            let at = hold.at();
            (key != 0).then_some(ShownHold { process, key, at })
        };
        self.holds.iter().filter_map(shown)
    }
}

/// The places of the server's processes.
pub trait Processes {
    /// The places that were ever used. A reader that must see a hold asks anew, after the load or
    /// the fence by which it sees the hold: a process that holds it may have come since.
    fn holders(&self) -> &[ProcessHolds];
}

/// All of them were used, for a test.
#[cfg(test)]
impl Processes for &[ProcessHolds] {
    fn holders(&self) -> &[ProcessHolds] {
        self
    }
}

/// How many of the places were ever used: the first ones.
#[derive(Debug)]
pub struct PlaceCount(AtomicU32);

impl Default for PlaceCount {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl PlaceCount {
    /// A process uses the place of this index from now on.
    pub fn come(&self, index: u32) {
        // Release, as all that the process does after that: a reader that sees a hold that it has
        // published finds the place.
        self.0.fetch_max(index.saturating_add(1), AcqRel);
    }

    /// The places that were ever used, of all.
    pub fn of<'a>(&self, all: &'a [ProcessHolds]) -> &'a [ProcessHolds] {
        let used = usize::try_from(self.0.load(Acquire)).unwrap_or(usize::MAX);
        all.get(..used).unwrap_or(all)
    }
}

/// The least instant at which sessions hold a generator.
pub fn least(holders: &[ProcessHolds], key: u64) -> Option<UnixMillis> {
    holders.iter().filter_map(|holder| holder.least(key)).min()
}

/// Where a session publishes what it holds.
pub trait Session {
    /// Why there is no lock.
    type Error;

    /// The session's places.
    fn holder(&self) -> &ProcessHolds;

    /// Holds a generator by a lock until the transaction ends, besides the locks that it has, and
    /// lists it.
    ///
    /// # Errors
    /// There is no room for another lock.
    fn lock(&self, key: u64, at: UnixMillis) -> Result<(), Self::Error>;
}

/// Why an ID from elsewhere is not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError<E> {
    /// The ID lies before this, the greatest horizon that may have been returned.
    Past(UnixMillis),
    /// The ID cannot be held.
    Unheld(E),
}

/// What the transaction of a session holds.
#[derive(Debug, Default)]
pub struct SessionHolds(Vec<OwnHold>);

#[derive(Clone, Copy, Debug)]
struct OwnHold {
    key: u64,
    /// What is published: at or before all IDs that the transaction takes or inserts.
    at: UnixMillis,
    /// No horizon past this was returned, nor will be while the hold lasts; `None` before
    /// the transaction has taken or inserted an ID.
    safe: Option<UnixMillis>,
    /// The place that it has, below [`PLACES`]; without one it is held by a lock.
    place: usize,
}

impl SessionHolds {
    /// The transaction holds nothing.
    pub const NOTHING: Self = Self(Vec::new());

    /// Holds a generator at an instant at or before all IDs that the transaction will take:
    /// called before it takes one.
    ///
    /// # Errors
    /// The errors of [`Session::lock`]; then the transaction may take no ID.
    pub fn hold<S: Session>(
        &mut self,
        session: &S,
        key: u64,
        at: UnixMillis,
    ) -> Result<(), S::Error> {
        match self.own(key).copied() {
            None => {
                let own = self.fresh(key, at, None);
                own.publish(session)?;
                self.0.push(own);
            }
            // It has inserted IDs from elsewhere.
            Some(own) if at < own.at => self.set(session, OwnHold { at, ..own })?,
            Some(_) => {}
        }
        Ok(())
    }

    /// The transaction, which holds the generator, has taken IDs of this tick and later, and
    /// none before unless it has told.
    pub fn narrow_hold(&mut self, holder: &ProcessHolds, key: u64, at: UnixMillis) {
        let Some(own) = self.own(key) else {
            return;
        };
        match own.safe {
            None => {
                own.safe = Some(at);
                // A lock stays where it is.
                if let Some(hold) = holder.holds.get(own.place) {
                    own.at = at;
                    hold.publish(key, at);
                }
            }
            Some(safe) => own.safe = Some(safe.min(at)),
        }
    }

    /// The transaction inserts an ID of this tick, which may come from elsewhere. If that
    /// fails, the transaction holds what it held before, or, by a lock, more. The slot stays
    /// the generator's until the transaction ends.
    ///
    /// # Errors
    /// Why the ID may not be inserted.
    pub fn insert<S: Session>(
        &mut self,
        session: &S,
        key: u64,
        at: UnixMillis,
        horizon: &impl Announced,
    ) -> Result<(), InsertError<S::Error>> {
        let before = self.own(key).copied();
        let safe = before.and_then(|own| own.safe);
        if safe.is_some_and(|safe| safe <= at) {
            return Ok(());
        }
        let announced = horizon.announced();
        if at < announced {
            return Err(InsertError::Past(announced));
        }
        let safe = Some(at);
        let own = before.map_or_else(
            || self.fresh(key, at, safe),
            |own| OwnHold {
                at: own.at.min(at),
                safe,
                ..own
            },
        );
        let published = own.publish(session);
        published.map_err(InsertError::Unheld)?;
        // See the head of the file.
        fence(SeqCst);
        let announced = horizon.announced();
        if at >= announced {
            match self.own(key) {
                Some(known) => *known = own,
                None => self.0.push(own),
            }
            return Ok(());
        }
        if let Some(hold) = session.holder().holds.get(own.place) {
            match before {
                Some(own) => hold.publish(key, own.at),
                None => hold.withdraw(),
            }
        }
        Err(InsertError::Past(announced))
    }

    /// The transaction has taken its last ID, and PostgreSQL has not yet freed its locks. A place
    /// without an ID is withdrawn, and one that lies before its IDs is raised to them: see "After
    /// the locks" at the head of the file.
    pub fn close(&mut self, holder: &ProcessHolds) {
        for own in &mut self.0 {
            let Some(hold) = holder.holds.get(own.place) else {
                continue;
            };
            match own.safe {
                None => hold.withdraw(),
                Some(safe) if own.at < safe => {
                    own.at = safe;
                    hold.publish(own.key, safe);
                }
                Some(_) => {}
            }
        }
    }

    /// The transaction has ended, and other sessions see so. Locks end by themselves.
    pub fn withdraw(&mut self, holder: &ProcessHolds) {
        let used = self.0.len().min(PLACES);
        self.0.clear();
        holder.holds.iter().take(used).for_each(Hold::withdraw);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The generators that the transaction holds, and where its IDs begin.
    pub fn iter(&self) -> impl Iterator<Item = (u64, UnixMillis)> {
        let held = self.0.iter();
        held.map(|own| (own.key, own.safe.unwrap_or(own.at)))
    }

    fn own(&mut self, key: u64) -> Option<&mut OwnHold> {
        self.0.iter_mut().find(|own| own.key == key)
    }

    fn fresh(&self, key: u64, at: UnixMillis, safe: Option<UnixMillis>) -> OwnHold {
        let place = self.0.len();
        OwnHold {
            key,
            at,
            safe,
            place,
        }
    }

    fn set<S: Session>(&mut self, session: &S, own: OwnHold) -> Result<(), S::Error> {
        own.publish(session)?;
        if let Some(known) = self.own(own.key) {
            *known = own;
        }
        Ok(())
    }
}

impl OwnHold {
    fn publish<S: Session>(self, session: &S) -> Result<(), S::Error> {
        match session.holder().holds.get(self.place) {
            Some(hold) => {
                hold.publish(self.key, self.at);
                Ok(())
            }
            None => session.lock(self.key, self.at),
        }
    }
}

/// What a generator's slot knows of horizons.
#[derive(Debug)]
#[repr(C)]
pub struct Horizon {
    announced: AtomicI64,
    returned: AtomicI64,
}

impl Default for Horizon {
    fn default() -> Self {
        Self {
            announced: AtomicI64::new(BEGINNING.get()),
            returned: AtomicI64::new(BEGINNING.get()),
        }
    }
}

/// Knows a horizon that may have been returned; none that was is greater.
pub trait Announced {
    fn announced(&self) -> UnixMillis;
}

impl Announced for Horizon {
    fn announced(&self) -> UnixMillis {
        self.announced()
    }
}

/// The least of a position's instant and all holds. `search` finds the least hold by a lock.
fn least_of_all(
    reached: UnixMillis,
    processes: &impl Processes,
    key: u64,
    search: &mut impl FnMut() -> Option<UnixMillis>,
) -> UnixMillis {
    // The places first: a transaction that is prepared moves its hold.
    let held = least(processes.holders(), key);
    held.into_iter().chain(search()).fold(reached, Ord::min)
}

impl Horizon {
    /// As of a new slot. Only while the cursor is reset, and nobody else uses the generator.
    pub(crate) fn reset(&self) {
        self.announced.store(BEGINNING.get(), Relaxed);
        self.returned.store(BEGINNING.get(), Relaxed);
    }

    /// No horizon past this instant was returned before the generator got its slot. Called
    /// before the first bound of the slot is published.
    pub(crate) fn start_at(&self, at: UnixMillis) {
        // Release: a session that sees this sees the cursor that was moved there, and holds no earlier
        // instant.
        self.announced.fetch_max(at.get(), Release);
    }

    /// No horizon that was returned is greater.
    pub fn announced(&self) -> UnixMillis {
        // Acquire pairs with start_at().
        UnixMillis::new(self.announced.load(Acquire))
    }

    /// The horizon. `reached` is the instant of a position that the caller has moved the
    /// cursor to, or loaded, see [`crate::protocol::advance_to_now`]. `search` finds the least hold by
    /// a lock ([`crate::horizon::lock_list::least`]). The horizon does not go back while the generator keeps
    /// its slot.
    pub fn read(
        &self,
        reached: UnixMillis,
        processes: &impl Processes,
        key: u64,
        mut search: impl FnMut() -> Option<UnixMillis>,
    ) -> UnixMillis {
        let first = least_of_all(reached, processes, key, &mut search);
        self.announced.fetch_max(first.get(), Relaxed);
        // See the head of the file.
        fence(SeqCst);
        let second = least_of_all(first, processes, key, &mut search);
        // A horizon stays true: what lay before it has ended, and nothing is taken there.
        // Acquire: a reader that returns another reader's horizon has seen what that one has.
        let before = self.returned.fetch_max(second.get(), AcqRel);
        second.max(UnixMillis::new(before))
    }

    /// How far the horizon would be now, if nobody moved the cursor: for a view, which has
    /// found `locked` before. Changes nothing.
    pub fn peek(
        &self,
        reached: UnixMillis,
        processes: &impl Processes,
        key: u64,
        locked: Option<UnixMillis>,
    ) -> UnixMillis {
        let held = least(processes.holders(), key);
        let now = held.into_iter().chain(locked).fold(reached, Ord::min);
        now.max(UnixMillis::new(self.returned.load(Relaxed)))
    }
}

#[cfg(test)]
#[path = "../tests/copy_horizon.rs"]
mod copy;
