//! What this session holds back, and what prepared transactions do.
//!
//! `snowflake_core::horizon` has the protocol. A session holds a generator from its first ID in a
//! transaction until PostgreSQL tells that the transaction has ended: see the head of
//! [`super::session_generator`]'s callbacks.
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
//! A reader that may find such a lock goes through the table of locks, and so does the keeper
//! for its report. After a start either may find one; so the slot of each generator, and what
//! the server has reported, say so until a search finds none.

use std::cell::{Cell, RefCell};

use pgrx::pg_sys;

use super::compat;
use super::error::{self, Error};
use super::shmem::{self, Shared, SlotKey};
use snowflake_core::horizon::{Announced, Held, InsertError, ProcessHolds, Session};
use snowflake_core::id::UnixMillis;
use snowflake_core::slot::Slot;

thread_local! {
    static HELD: RefCell<Held> = RefCell::default();
    static HOLDER: Cell<Option<&'static ProcessHolds>> = const { Cell::new(None) };
}

/// The place of this process.
fn holder(shared: &Shared) -> Result<&'static ProcessHolds, Error> {
    if let Some(holder) = HOLDER.get() {
        return Ok(holder);
    }
    let holder = shared.holder(compat::process_index());
    let holder = holder.ok_or_else(error::no_horizon::no_place)?;
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
struct Ours(&'static ProcessHolds);

impl Session for Ours {
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
pub fn hold(shared: &Shared, key: SlotKey, slot: &Slot, at: UnixMillis) -> Result<(), Error> {
    let ours = Ours(holder(shared)?);
    HELD.with_borrow_mut(|held| held.hold(&ours, slot.horizon(), key.bits(), at))
}

/// The session, which holds the generator, has taken IDs of this tick and later.
pub fn narrow_hold(key: SlotKey, at: UnixMillis) {
    if let Some(holder) = HOLDER.get() {
        HELD.with_borrow_mut(|held| held.narrow_hold(holder, key.bits(), at));
    }
}

/// The transaction has ended, and other sessions see so.
pub fn withdraw() {
    if let Some(holder) = HOLDER.get() {
        HELD.with_borrow_mut(|held| held.withdraw(holder));
    }
}

/// The transaction is about to be prepared, see the head of the file.
pub fn prepare() {
    let held: Vec<_> = HELD.with_borrow(|held| held.iter().collect());
    for (bits, at) in held {
        let key = SlotKey::from_bits(bits);
        lock(key, at);
        if let Ok(shared) = shmem::shared() {
            // This transaction has pinned it.
            shared.with_slot(key, |slot| slot.horizon().lock());
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn lock(key: SlotKey, at: UnixMillis) {
    let at = at.get().cast_unsigned();
    let tag = pg_sys::LOCKTAG {
        locktag_field1: key.database_oid(),
        locktag_field2: key.relation().to_u32(),
        locktag_field3: at as u32,
        locktag_field4: (at >> 32) as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_USERLOCK as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    };
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
        shared.reported().locks().note();
    }
}

/// The generators that are held by locks, and where.
pub fn locked() -> Vec<(SlotKey, UnixMillis)> {
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
                found.push((SlotKey::from_bits(key), UnixMillis::new(at.cast_signed())));
            }
        }
        if count > 0 {
            pg_sys::pfree((*all).locks.cast());
        }
        pg_sys::pfree(all.cast());
    }
    found
}

/// The least instant at which locks hold a generator.
pub fn least_of(locked: &[(SlotKey, UnixMillis)], key: SlotKey) -> Option<UnixMillis> {
    let its = locked.iter().filter(|(held, _)| *held == key);
    its.map(|(_, at)| *at).min()
}

/// Holds a generator for an ID of this tick, which may come from elsewhere, see
/// [`Held::insert`].
pub fn insert(
    shared: &Shared,
    key: SlotKey,
    at: UnixMillis,
    announced: &impl Announced,
) -> Result<(), InsertError<Error>> {
    let ours = Ours(holder(shared).map_err(InsertError::Unheld)?);
    HELD.with_borrow_mut(|held| held.insert(&ours, key.bits(), at, announced))
}
