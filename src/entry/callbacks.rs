//! When PostgreSQL says that what a session knows, or holds, ends.
//!
//! A transaction's end is told after it has left the list of running transactions: its rows
//! are seen by each snapshot that is taken from then on. So it is in 15 to 18:
//! CommitTransaction() calls ProcArrayEndTransaction() before XACT_EVENT_COMMIT,
//! AbortTransaction() before XACT_EVENT_ABORT, and PrepareTransaction() adds the prepared
//! transaction to that list, in EndPrepare(), before XACT_EVENT_PREPARE. A process that ends
//! in a transaction aborts it first. See [`super::super::horizon`] for what needs this.

use std::sync::Once;

use pgrx::pg_sys;

use super::super::{compat, horizon, label};
use super::{DEFAULT_RELATION, ENTRIES, Entry, NO_DEFAULT, PINNED};

pub(super) fn register() {
    static ONCE: Once = Once::new();
    // SAFETY: functions that live as long as the process.
    ONCE.call_once(|| unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::from(0));
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
    });
}

/// Called when a relation has changed, or all may have changed.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    let all = relation == pg_sys::InvalidOid;
    horizon::forget_triggers();
    NO_DEFAULT.set(false);
    if all || relation == DEFAULT_RELATION.get() {
        DEFAULT_RELATION.set(pg_sys::InvalidOid);
    }
    let forget = |entry: &Entry| {
        entry.changed_in.set(compat::transaction());
        entry.label.set(None);
        entry.facts.set(None);
        entry.right.set(None);
        entry.reach.set(None);
    };
    ENTRIES.with_borrow(|entries| {
        if all {
            entries.values().copied().for_each(forget);
        } else if let Some(entry) = entries.get(&relation.to_u32()) {
            forget(entry);
        }
    });
}

/// Called when the transaction ends, while its locks are still held. But for
/// XACT_EVENT_PRE_PREPARE, nothing here raises an error.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_transaction(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::*;
    let (committed, aborted) = match event {
        XACT_EVENT_COMMIT => (true, false),
        XACT_EVENT_ABORT => (false, true),
        XACT_EVENT_PARALLEL_ABORT | XACT_EVENT_PARALLEL_COMMIT | XACT_EVENT_PREPARE => {
            (false, false)
        }
        // This one may raise an error, which ends the transaction.
        XACT_EVENT_PRE_PREPARE => return horizon::prepare(),
        _ => return,
    };
    // Before the pins are given back: a slot in which somebody holds the horizon stays.
    horizon::withdraw();
    PINNED.with_borrow_mut(|pinned| {
        for entry in pinned.drain(..) {
            entry.end(committed, aborted);
        }
    });
    // No function is running, and no right is left.
    label::forget_others(|| {
        ENTRIES.with_borrow(|entries| {
            let known = entries.values().flat_map(|entry| entry.labels());
            known.map(std::ptr::from_ref).collect()
        })
    });
}

/// Called when a subtransaction ends. If it commits, its parent gets what it created.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    mine: pg_sys::SubTransactionId,
    parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::{SUBXACT_EVENT_ABORT_SUB, SUBXACT_EVENT_COMMIT_SUB};
    PINNED.with_borrow_mut(|pinned| match event {
        SUBXACT_EVENT_ABORT_SUB => {
            pinned.iter().for_each(|entry| entry.end_part(mine));
            pinned.retain(|entry| entry.is_pinned());
        }
        SUBXACT_EVENT_COMMIT_SUB => {
            for entry in pinned.iter() {
                if entry.created_in.get() == mine {
                    entry.created_in.set(parent);
                }
            }
        }
        _ => {}
    });
}
