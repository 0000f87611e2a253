//! What this session holds back, and what prepared transactions do.
//!
//! `snowflake_core::horizon` has the protocol. A session holds a generator from its first ID in a
//! transaction until PostgreSQL tells that the transaction has ended: see the head of
//! [`crate::session`].
//!
//! # Locks
//!
//! A transaction that is prepared has no process, survives restarts, and goes over to a
//! standby that is promoted. Its locks do so as well. So before PREPARE TRANSACTION, each
//! hold is turned into a lock. A session that uses more generators than it has places holds
//! the others by such locks from the start: so nobody holds back a generator that he has
//! not used. The lock is of type "userlock" in `pg_locks`, a type that no SQL function
//! takes (advisory locks have their own), in the class of PostgreSQL's own locks, which
//! `pg_advisory_unlock_all()` and DISCARD leave alone. Its tag is
//!
//! | field of the tag | in `pg_locks` | holds |
//! |---|---|---|
//! | 1 | `database` | the database |
//! | 2 | `classid` | the generator, 0: the default one |
//! | 3 | `objid` | the low 32 bits of the instant (Unix milliseconds) |
//! | 4 | `objsubid` | the next 16 bits |
//!
//! in mode Share, so that two transactions can hold one instant. It lasts until the end of
//! the transaction, also if a savepoint is rolled back: PostgreSQL frees it after the
//! transaction has left the list of running ones, and so do COMMIT PREPARED and ROLLBACK
//! PREPARED. A lock more for each generator that a transaction uses, which has a lock for the
//! sequence already: who uses up the table of locks so, could before.
//!
//! A session lists its lock in shared memory, and readers ask PostgreSQL for the locks in the
//! list: `snowflake_core::horizon::lock_list` has the rules. A lock that somebody has is one that
//! PostgreSQL counts a request for: all modes are Share, so nobody waits for one.

use std::cell::{Cell, RefCell};

use pgrx::pg_sys;

use crate::postgres::compat;
use crate::server::shmem::{self, Shared, SlotKey};
use crate::session::{error::Error, horizon_error};
use snowflake_core::horizon::lock_list::{self, LockFlag, LockList, Locks};
use snowflake_core::horizon::{Horizon, InsertError, ProcessHolds, Session, SessionHolds};
use snowflake_core::id::UnixMillis;

thread_local! {
    static HELD: RefCell<SessionHolds> = const { RefCell::new(SessionHolds::NOTHING) };
    static HOLDER: Cell<Option<&'static ProcessHolds>> = const { Cell::new(None) };
}

/// The place of this process.
#[inline]
fn holder(shared: &Shared) -> Result<&'static ProcessHolds, Error> {
    HOLDER.get().map_or_else(|| take_place(shared), Ok)
}

#[cold]
fn take_place(shared: &Shared) -> Result<&'static ProcessHolds, Error> {
    let holder = shared.holder(compat::process_index());
    let holder = holder.ok_or_else(horizon_error::no_place)?;
    holder.withdraw_all();
    // SAFETY: a variable of this process.
    holder.set_process(unsafe { pg_sys::MyProcPid }.cast_unsigned());
    // SAFETY: a function that lives as long as the process.
    unsafe { pg_sys::on_shmem_exit(Some(on_exit), pg_sys::Datum::from(0)) };
    HOLDER.set(Some(holder));
    Ok(holder)
}

/// Called when the process ends, after its transaction was aborted. There is nothing left to
/// withdraw then, unless that failed.
unsafe extern "C-unwind" fn on_exit(_code: std::ffi::c_int, _arg: pg_sys::Datum) {
    if let Some(holder) = HOLDER.get() {
        holder.withdraw_all();
    }
}

/// The places and the locks of this process.
struct ProcessSession(&'static ProcessHolds);

impl Session for ProcessSession {
    type Error = Error;

    fn holder(&self) -> &ProcessHolds {
        self.0
    }

    fn lock(&self, key: u64, at: UnixMillis) -> Result<(), Error> {
        lock(SlotKey::from_bits(key), at);
        Ok(())
    }
}

/// Holds a generator at an instant, before the session takes IDs of it. The transaction has
/// pinned the slot.
pub fn hold(shared: &Shared, key: SlotKey, at: UnixMillis) -> Result<(), Error> {
    let ours = ProcessSession(holder(shared)?);
    HELD.with_borrow_mut(|held| held.hold(&ours, key.bits(), at))
}

/// The session, which holds the generator, has taken IDs of this tick and later.
pub fn narrow_hold(key: SlotKey, at: UnixMillis) {
    if let Some(holder) = HOLDER.get() {
        HELD.with_borrow_mut(|held| held.narrow_hold(holder, key.bits(), at));
    }
}

/// The transaction has ended, and other sessions see so. It still has its locks.
pub fn close() {
    if let Some(holder) = HOLDER.get() {
        HELD.with_borrow_mut(|held| held.close(holder));
    }
}

/// The transaction has ended, and all libraries were told so.
pub fn withdraw() {
    if let Some(holder) = HOLDER.get() {
        HELD.with_borrow_mut(|held| held.withdraw(holder));
    }
}

/// The transaction is about to be prepared, see the head of the file.
pub fn prepare() {
    let held: Vec<_> = HELD.with_borrow(|held| held.iter().collect());
    for (bits, at) in held {
        lock(SlotKey::from_bits(bits), at);
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn tag_of(key: SlotKey, at: UnixMillis) -> pg_sys::LOCKTAG {
    let at = at.get().cast_unsigned();
    pg_sys::LOCKTAG {
        locktag_field1: key.database_oid(),
        locktag_field2: key.relation().to_u32(),
        locktag_field3: at as u32,
        locktag_field4: (at >> 32) as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_USERLOCK as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}

/// Takes and lists a lock.
fn lock(key: SlotKey, at: UnixMillis) {
    let tag = tag_of(key, at);
    // SAFETY: in a transaction; its resource owner is valid. If the lock is refused, aborting
    // the transaction puts the owner back.
    unsafe {
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::TopTransactionResourceOwner;
        pg_sys::LockAcquire(
            &raw const tag,
            pg_sys::ShareLock.cast_signed(),
            false,
            false,
        );
        pg_sys::CurrentResourceOwner = owner;
    }
    // Before the transaction takes an ID, or withdraws its other hold.
    if let Ok(shared) = shmem::shared() {
        lock_list::note(shared, key.bits(), at);
    }
}

/// In recovery no lock holds a generator, and those of prepared transactions are not there yet:
/// so a search then would not find what the list lacks.
fn is_in_recovery() -> bool {
    // SAFETY: reads shared memory.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The least instant at which locks hold the generator of this key.
pub fn least_locked(shared: &Shared, key: u64) -> Option<UnixMillis> {
    if is_in_recovery() {
        return None;
    }
    lock_list::least(shared, key)
}

/// All generators that are held by locks, by their keys, and where.
pub fn locked(shared: &Shared) -> Vec<(u64, UnixMillis)> {
    if is_in_recovery() {
        return Vec::new();
    }
    lock_list::all(shared)
}

impl Locks for Shared {
    fn noted(&self) -> &LockFlag {
        self.noted()
    }

    fn with_list<T>(&self, f: impl FnOnce(&mut LockList) -> T) -> T {
        self.with_lock_list(f)
    }

    fn is_taken(&self, key: u64, at: UnixMillis) -> bool {
        let tag = tag_of(SlotKey::from_bits(key), at);
        // SAFETY: looks the tag up in the table of locks.
        unsafe { pg_sys::LockWaiterCount(&raw const tag) > 0 }
    }

    fn search(&self) -> Vec<(u64, UnixMillis)> {
        search()
    }
}

/// Goes through the table of locks.
fn search() -> Vec<(u64, UnixMillis)> {
    let mut found = Vec::new();
    // SAFETY: a copy of the table of locks in this memory context, with as many elements as
    // it says; it is freed here.
    unsafe {
        let all = pg_sys::GetLockStatusData();
        let count = usize::try_from((*all).nelements).unwrap_or(0);
        for index in 0..count {
            let lock = &*(*all).locks.add(index);
            let tag = lock.locktag;
            let kind = pg_sys::LockTagType::Type::from(tag.locktag_type);
            if kind == pg_sys::LockTagType::LOCKTAG_USERLOCK
                && u32::from(tag.locktag_lockmethodid) == pg_sys::DEFAULT_LOCKMETHOD
                && lock.holdMask != 0
            {
                let (database, generator) = (tag.locktag_field1, tag.locktag_field2);
                let key = u64::from(database) << 32 | u64::from(generator);
                let at = u64::from(tag.locktag_field4) << 32 | u64::from(tag.locktag_field3);
                found.push((key, UnixMillis::new(at.cast_signed())));
            }
        }
        if count > 0 {
            pg_sys::pfree((*all).locks.cast());
        }
        pg_sys::pfree(all.cast());
    }
    found
}

/// Holds a generator for an ID of this tick, which may come from elsewhere, see
/// [`SessionHolds::insert`].
pub fn insert(
    shared: &Shared,
    key: SlotKey,
    at: UnixMillis,
    horizon: &Horizon,
) -> Result<(), InsertError<Error>> {
    let ours = ProcessSession(holder(shared).map_err(InsertError::Unheld)?);
    HELD.with_borrow_mut(|held| held.insert(&ours, key.bits(), at, horizon))
}
