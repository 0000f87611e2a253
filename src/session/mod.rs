//! The generators that this session knows, and when PostgreSQL says that what it knows, or
//! holds, ends.
//!
//! A transaction's end is told after it has left the list of running transactions: its rows
//! are seen by each snapshot that is taken from then on. So it is in 15 to 18:
//! CommitTransaction() calls ProcArrayEndTransaction() before XACT_EVENT_COMMIT,
//! AbortTransaction() before XACT_EVENT_ABORT, and PrepareTransaction() adds the prepared
//! transaction to that list, in EndPrepare(), before XACT_EVENT_PREPARE. A process that ends
//! in a transaction aborts it first. See [`crate::session::tx_holds`] for what needs this.
//!
//! What the session holds back is withdrawn later, when PostgreSQL has freed the transaction's
//! locks, by resource owners: then all libraries have been told of the end. Citus commits on its
//! workers when it is told, so a reader on the coordinator sees all rows below its horizon. The
//! price: between the two, others can have the locks, see "After the locks" in
//! `snowflake_core::horizon`.

pub mod error; // servers, sequences and calls that lack what a generator needs
pub mod generator; // what this session knows about a generator, and until when
pub mod horizon; // the horizon of a generator
pub mod horizon_error; // what has no horizon, and where it cannot be asked for
pub mod issue; // PostgreSQL as a host of the protocol; the path of each ID
pub mod label; // reads labels of sequences
pub mod lease_wait; // what sessions ask of a lease: is there a worker ID, and why not
pub mod mark; // reads and writes the durable mark; holds the reservation lock
pub mod tx_holds; // what this session holds back, and what prepared transactions do

mod label_error; // labels that a generator cannot have
mod layout_error; // values that a layout cannot hold
mod note; // what the log says of generators
mod refusal; // why a call gets no ID

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Once;

use pgrx::pg_sys;

use crate::postgres::{catalog, compat};
use crate::session::{error::Error, generator::SessionGenerator};

thread_local! {
    static ENTRIES: RefCell<BTreeMap<u32, &'static SessionGenerator>> = const { RefCell::new(BTreeMap::new()) };
    /// Entries of generators that were dropped.
    static UNUSED: RefCell<Vec<&'static SessionGenerator>> = const { RefCell::new(Vec::new()) };
    /// The end of the transaction was told, and what it holds and pins stands.
    static ENDED: Cell<bool> = const { Cell::new(false) };
    /// At this number of entries, those of dropped generators are searched for.
    static CROWDED: Cell<usize> = const { Cell::new(CROWDED_MIN) };
}

/// With fewer entries, a search for unused ones is not worth its cost.
const CROWDED_MIN: usize = 64;

/// The caches whose changes [`on_role_change`] is told of.
const ROLE_CACHES: [i32; 3] = [
    compat::cache(pg_sys::SysCacheIdentifier::AUTHOID),
    compat::cache(pg_sys::SysCacheIdentifier::AUTHMEMROLEMEM),
    compat::cache(pg_sys::SysCacheIdentifier::DATABASEOID),
];

/// The entry of a sequence, made if there is none. A new entry knows nothing yet.
pub fn of_sequence(relation: pg_sys::Oid) -> &'static SessionGenerator {
    known(relation).unwrap_or_else(|| make(relation))
}

/// The entry of a relation that a user has named. Only a generator gets an entry.
pub fn of_named(relation: pg_sys::Oid) -> Result<&'static SessionGenerator, Error> {
    known(relation).map_or_else(|| look_and_make(relation), Ok)
}

fn known(relation: pg_sys::Oid) -> Option<&'static SessionGenerator> {
    ENTRIES.with_borrow(|entries| entries.get(&relation.to_u32()).copied())
}

#[cold]
fn look_and_make(relation: pg_sys::Oid) -> Result<&'static SessionGenerator, Error> {
    register();
    let entry = SessionGenerator::new(relation);
    let text = |relation| Ok(label::text_of(relation));
    // A session that is making the relation a generator holds a lock on it.
    let looked = entry.with_share_lock(true, |_| Some(entry.read_label(entry.is_default(), text)));
    looked.ok_or_else(|| error::no_such_relation(relation))??;
    Ok(make(relation))
}

#[cold]
fn make(relation: pg_sys::Oid) -> &'static SessionGenerator {
    register();
    if ENTRIES.with_borrow(BTreeMap::len) >= CROWDED.get() {
        find_unused();
    }
    let unused = UNUSED.with_borrow_mut(Vec::pop);
    let entry = unused.unwrap_or_else(|| Box::leak(Box::default()));
    entry.reuse(relation);
    ENTRIES.with_borrow_mut(|entries| entries.insert(relation.to_u32(), entry));
    entry
}

/// Frees the entries of dropped generators for other generators. The next search runs
/// at twice the number of entries that are left, since each entry costs a look-up.
fn find_unused() {
    // Catalog look-ups run the callbacks below.
    let all: Vec<_> = ENTRIES.with_borrow(|entries| entries.values().copied().collect());
    for entry in all {
        let relation = entry.relation();
        if entry.is_idle() && catalog::kind(relation) == 0 {
            ENTRIES.with_borrow_mut(|entries| entries.remove(&relation.to_u32()));
            entry.clear();
            UNUSED.with_borrow_mut(|unused| unused.push(entry));
        }
    }
    let left = ENTRIES.with_borrow(BTreeMap::len);
    CROWDED.set(CROWDED_MIN.max(left.saturating_mul(2)));
}

/// Forgets the last ID of every generator.
pub fn discard_last() {
    ENTRIES.with_borrow(|entries| {
        for entry in entries.values() {
            entry.forget_last_id();
        }
    });
}

/// [`generator::changes`], from here on at the latest.
pub fn changes() -> u64 {
    register();
    generator::changes()
}

/// The default generator, looked up once per session and after each invalidation.
pub fn default_relation() -> Result<pg_sys::Oid, Error> {
    register();
    generator::default_relation()
}

/// Whether this database has the extension's default generator, by its name. If not, the answer is
/// kept until any relation changes: CREATE EXTENSION makes some relations.
pub fn is_extension_here() -> bool {
    !generator::has_no_default() && default_relation().is_ok()
}

fn register() {
    static ONCE: Once = Once::new();
    // SAFETY: functions that live as long as the process.
    ONCE.call_once(|| unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::from(0));
        // What a role may do depends on them: whether it is a superuser, of which roles it is a
        // member, and who is pg_database_owner.
        for kind in ROLE_CACHES {
            let nothing = pg_sys::Datum::from(0);
            pg_sys::CacheRegisterSyscacheCallback(kind, Some(on_role_change), nothing);
        }
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
        pg_sys::RegisterResourceReleaseCallback(Some(on_release), std::ptr::null_mut());
    });
}

/// Called when a relation has changed, or all may have changed.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    let all = relation == pg_sys::InvalidOid;
    generator::note_change();
    generator::forget_default(relation);
    let forget = SessionGenerator::forget;
    ENTRIES.with_borrow(|entries| {
        if all {
            entries.values().copied().for_each(forget);
        } else if let Some(entry) = entries.get(&relation.to_u32()) {
            forget(entry);
        }
    });
}

/// Whether a relation is the default generator or has a label, even an unreadable one.
pub fn is_generator(relation: pg_sys::Oid) -> bool {
    label::text_of(relation).is_some()
        || default_relation().is_ok_and(|default| default == relation)
}

/// Called when a role, a membership or a database has changed, or all may have.
unsafe extern "C-unwind" fn on_role_change(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    generator::note_change();
}

/// Called when the transaction ends, while its locks are still held. Each transaction calls it
/// twice at least, and most events need nothing. So there is no guard around all of it.
unsafe extern "C-unwind" fn on_transaction(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::*;
    match event {
        XACT_EVENT_COMMIT => end_transaction(true, false),
        XACT_EVENT_ABORT => end_transaction(false, true),
        XACT_EVENT_PARALLEL_ABORT | XACT_EVENT_PARALLEL_COMMIT | XACT_EVENT_PREPARE => {
            end_transaction(false, false);
        }
        // SAFETY: a call from PostgreSQL, with nothing to drop.
        XACT_EVENT_PRE_PREPARE => unsafe { before_prepare() },
        _ => {}
    }
}

/// This may raise an error, which ends the transaction.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn before_prepare() {
    tx_holds::prepare();
}

/// Called when PostgreSQL frees what an owner has, in each phase: for each portal and
/// subtransaction, and at the end of the transaction for each of its owners, from the innermost
/// one on. The first call after the locks is enough. There is a call as at the end of a
/// transaction for what a server process has outside of transactions; it finds nothing to do.
unsafe extern "C-unwind" fn on_release(
    phase: pg_sys::ResourceReleasePhase::Type,
    _is_commit: bool,
    is_top_level: bool,
    _arg: *mut std::ffi::c_void,
) {
    let is_after_locks = phase == pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS;
    if is_after_locks && is_top_level && ENDED.take() {
        withdraw();
    }
}

/// As [`end_transaction`], raises no error. Not inlined: PostgreSQL calls [`on_release`] nine times
/// in a transaction that runs one prepared statement, and eight of these calls do nothing.
#[inline(never)]
extern "C" fn withdraw() {
    // Before the pins are given back: a slot in which somebody holds the horizon stays.
    tx_holds::withdraw();
    generator::unpin();
}

/// Nothing here raises an error: a transaction that has ended could not be ended by one, and
/// PostgreSQL would stop the server. So no panic leaves this function: its calling convention
/// ends the process instead, which has no cost in each transaction.
extern "C" fn end_transaction(committed: bool, aborted: bool) {
    ENDED.set(true);
    tx_holds::close();
    generator::end_transaction(committed, aborted);
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
    match event {
        SUBXACT_EVENT_ABORT_SUB => generator::end_part(mine),
        SUBXACT_EVENT_COMMIT_SUB => generator::hand_over(mine, parent),
        _ => {}
    }
}
