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

use std::ffi::{CStr, c_char};

use pgrx::{PgList, pg_sys};

use super::encoding::from_server;
use super::{catalog, error, session};

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
            let ready = pg_sys::SUBREL_STATE_READY.cast_signed();
            pg_sys::UpdateSubscriptionRelState(subscription, relation, ready, 0, false);
            left_out.push(catalog::relation_name(relation));
        }
        if !left_out.is_empty() {
            let name = from_server(CStr::from_ptr(name));
            error::notice::left_out(&name, &left_out).warning();
        }
    }
}
