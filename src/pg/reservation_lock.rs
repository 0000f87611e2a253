//! The reservation lock of a generator: who may change its bound.
//!
//! A heavyweight lock, so that waiting for it can be cancelled and is seen by
//! the deadlock detector. Not a lock on the relation: an idle transaction that
//! holds one (COMMENT, SECURITY LABEL) would stop all reservations.

use pgrx::pg_sys;

use crate::snowflake::slot::Reserving;

/// Sub-id of an object lock on the sequence that nothing in PostgreSQL takes:
/// it locks relations by other means.
const SUB_ID: u16 = 0xF1AE;

/// Runs `f` as the only one in this database for this sequence. If `f` raises
/// an error, aborting the transaction releases the lock.
pub fn with<T>(relation: pg_sys::Oid, f: impl FnOnce(&Reserving) -> T) -> T {
    #[allow(clippy::cast_possible_wrap)]
    let mode = pg_sys::ExclusiveLock as i32;
    // SAFETY: in a transaction.
    unsafe { pg_sys::LockDatabaseObject(pg_sys::RelationRelationId, relation, SUB_ID, mode) };
    let result = f(&Reserving::the_lock_is_held());
    // SAFETY: taken above.
    unsafe { pg_sys::UnlockDatabaseObject(pg_sys::RelationRelationId, relation, SUB_ID, mode) };
    result
}
