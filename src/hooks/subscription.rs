//! Generators take no part in the synchronization of sequences, which PostgreSQL 19 has.
//!
//! CREATE SUBSCRIPTION and ALTER SUBSCRIPTION list the sequences that are to get the values of
//! the publisher, and a worker sets them soon after. For a generator that value is the mark of
//! another server: it says nothing about the IDs of this one, and it may be the lower one. The
//! worker calls no hook, and what it has overwritten nobody knows after a crash. So generators
//! are taken off the list by the transaction that has put them there, and no worker sees them.
//!
//! It would not be enough to repair marks afterwards: a crash, or a session that starts the
//! generator, can come in between.
//!
//! For the same reason a plain sequence that is on the list gets no label: the worker may have
//! read the list already, and would overwrite the mark. Whichever comes first, the label or the
//! list, the other one sees it: commands that put a sequence on a list lock it until they commit,
//! and REFRESH SEQUENCES, which does not, locks its subscription. A label and a REFRESH PUBLICATION
//! of the same sequence may wait for each other: PostgreSQL ends one of them.
//!
//! A worker may have read the list when a sequence leaves it and gets a label. It looks at the list
//! again before it sets the sequence, and skips it: tests/t/failover/sequence_sync.pl shows that.

use std::ffi::{CStr, c_char};

use pgrx::{PgList, pg_sys};

use crate::hooks::error::{self, Error};
use crate::hooks::notice;
use crate::postgres::{catalog, compat, encoding};
use crate::session;

/// Called after the command, in its transaction.
///
/// # Safety
/// `name` is from PostgreSQL's parser.
pub unsafe fn leave_generators_out(name: *const c_char) {
    // SAFETY: as the caller guarantees; a list that PostgreSQL has made for this call.
    unsafe {
        pg_sys::CommandCounterIncrement();
        let subscription = pg_sys::get_subscription_oid(name, true);
        if subscription == pg_sys::InvalidOid {
            return;
        }
        let listed = pg_sys::GetSubscriptionRelations(subscription, false, true, true);
        let mut left_out = Vec::new();
        for listed in PgList::<pg_sys::SubscriptionRelState>::from_pg(listed).iter_ptr() {
            let relation = (*listed).relid;
            if !session::is_generator(relation) {
                continue;
            }
            let ready = compat::character(pg_sys::SUBREL_STATE_READY);
            pg_sys::UpdateSubscriptionRelState(subscription, relation, ready, 0, false);
            left_out.push(catalog::relation_name(relation));
        }
        if !left_out.is_empty() {
            let name = encoding::from_server(CStr::from_ptr(name));
            notice::left_out(&name, &left_out).warning();
        }
    }
}

/// Refuses a label for a sequence that a worker is still to set. The relation is locked.
pub fn check_not_listed(relation: pg_sys::Oid) -> Result<(), Error> {
    let lock = pg_sys::AccessShareLock.cast_signed();
    let index = pg_sys::Oid::from(pg_sys::SubscriptionRelSrrelidSrsubidIndexId);
    let mut key = pg_sys::ScanKeyData::default();
    let mut subscriptions = Vec::new();
    // SAFETY: in a transaction, which keeps the locks. The condition is of the column's type; rows
    // have this form, and stay until the next one is asked for. The cache of PostgreSQL would keep
    // an empty list for each sequence, also after it is dropped.
    unsafe {
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
        let (column, equal) = (
            pg_sys::Anum_pg_subscription_rel_srrelid as i16,
            pg_sys::BTEqualStrategyNumber as u16,
        );
        pg_sys::ScanKeyInit(
            &mut key,
            column,
            equal,
            pg_sys::F_OIDEQ.into(),
            relation.into(),
        );
        let list = pg_sys::table_open(pg_sys::SubscriptionRelRelationId, lock);
        let now = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(list, index, true, now, 1, &mut key);
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            let row = pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_subscription_rel>();
            subscriptions.push((*row).srsubid);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(list, lock);
        for subscription in subscriptions {
            pg_sys::LockSharedObject(pg_sys::SubscriptionRelationId, subscription, 0, lock);
            let state = pg_sys::GetSubscriptionRelState(subscription, relation, &mut 0);
            // Without a row, the state is unknown.
            if compat::byte(state) == pg_sys::SUBREL_STATE_INIT {
                let name = pg_sys::get_subscription_name(subscription, false);
                let name = encoding::from_server(CStr::from_ptr(name));
                return Err(error::to_be_synchronized(
                    &catalog::relation_name(relation),
                    &name,
                ));
            }
        }
    }
    Ok(())
}
