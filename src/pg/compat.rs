//! What differs between PostgreSQL versions, and the few declarations that
//! pgrx does not bind.

use pgrx::pg_sys;

/// The number of this backend's transaction: another one in the next.
#[inline]
pub fn transaction() -> u32 {
    // SAFETY: MyProc is set in every process that runs SQL, and the field is
    // written by this process only.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return (*pg_sys::MyProc).lxid;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return (*pg_sys::MyProc).vxid.lxid;
    }
}

/// The number of the file that holds a relation: another one when rewritten.
///
/// # Safety
/// `relation` is open.
pub unsafe fn file_number(relation: pg_sys::Relation) -> u32 {
    // SAFETY: the caller's.
    unsafe {
        #[cfg(feature = "pg15")]
        return (*relation).rd_node.relNode.to_u32();
        #[cfg(not(feature = "pg15"))]
        return (*relation).rd_locator.relNumber.to_u32();
    }
}

/// Whether the current transaction created or rewrote a relation, so that its
/// content goes when the transaction is rolled back.
///
/// # Safety
/// `relation` is open.
pub unsafe fn is_new_in_transaction(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller's.
    unsafe {
        #[cfg(feature = "pg15")]
        let rewritten = (*relation).rd_firstRelfilenodeSubid;
        #[cfg(not(feature = "pg15"))]
        let rewritten = (*relation).rd_firstRelfilelocatorSubid;
        // 0 is InvalidSubTransactionId.
        (*relation).rd_createSubid != 0 || rewritten != 0
    }
}

/// The subtransaction of the current transaction that created a relation; 0 if it is
/// older.
///
/// # Safety
/// `relation` is open.
pub unsafe fn created_in(relation: pg_sys::Relation) -> pg_sys::SubTransactionId {
    // SAFETY: the caller's.
    unsafe { (*relation).rd_createSubid }
}

/// Whether the current subtransaction made the relation: what it does to it
/// besides is undone together with that.
///
/// # Safety
/// `relation` is open.
pub unsafe fn is_made_here(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller's; in a transaction.
    unsafe { (*relation).rd_createSubid == pg_sys::GetCurrentSubTransactionId() }
}

/// A set of privileges: 32 bits in 15, 64 since.
#[cfg(feature = "pg15")]
pub const fn acl_mode(privileges: u32) -> pg_sys::AclMode {
    privileges
}
#[cfg(not(feature = "pg15"))]
pub const fn acl_mode(privileges: u32) -> pg_sys::AclMode {
    privileges as pg_sys::AclMode
}

/// The user in force. Declared here once more because pgrx wraps every
/// function that might raise an error in a `sigsetjmp`, which on the path of
/// each ID costs more than the ID: this one returns a variable.
#[inline]
pub fn user() -> pg_sys::Oid {
    // SAFETY: no arguments, cannot raise an error.
    unsafe { unguarded::GetUserId() }
}

/// Whether this is a parallel worker or leads some. As [`user`].
#[inline]
pub fn in_parallel_mode() -> bool {
    // SAFETY: no arguments, cannot raise an error.
    unsafe { unguarded::IsInParallelMode() }
}

/// What runs commands where no other extension has hooked in; not wrapped, as
/// [`user`].
pub const STANDARD_UTILITY: pg_sys::ProcessUtility_hook_type =
    Some(unguarded::standard_ProcessUtility);

/// Readies a function for a set of rows. The name in 15 is that of its first
/// release, which the later ones have as well.
#[cfg(not(feature = "pg15"))]
pub use pg_sys::InitMaterializedSRF as init_rows;
#[cfg(feature = "pg15")]
pub use pg_sys::SetSingleFuncCall as init_rows;

#[allow(clashing_extern_declarations)]
mod unguarded {
    use pgrx::pg_sys;

    unsafe extern "C-unwind" {
        pub fn standard_ProcessUtility(
            statement: *mut pg_sys::PlannedStmt,
            query: *const std::ffi::c_char,
            read_only_tree: bool,
            context: pg_sys::ProcessUtilityContext::Type,
            parameters: pg_sys::ParamListInfo,
            environment: *mut pg_sys::QueryEnvironment,
            destination: *mut pg_sys::DestReceiver,
            completion: *mut pg_sys::QueryCompletion,
        );
        pub fn GetUserId() -> pgrx::pg_sys::Oid;
        pub fn IsInParallelMode() -> bool;
    }
}

/// Runs `f`, a wait for the generator's clock, as what `pg_stat_activity` shows:
/// wait event type Extension, by name since 17. `f` must not raise an error.
pub fn report_wait(f: impl FnOnce()) {
    let event = wait_event();
    // SAFETY: points to this backend's entry, or to a variable of this process
    // while it has none; written by this process only, as PostgreSQL's inline
    // functions for it do.
    unsafe { pg_sys::my_wait_event_info.write_volatile(event) };
    f();
    // SAFETY: as above.
    unsafe { pg_sys::my_wait_event_info.write_volatile(0) };
}

/// Waits for so many milliseconds, on the latch: an interrupt ends the wait, and the
/// end of the postmaster ends the process. Shown as [`report_wait`] shows it.
pub fn wait_latch(millis: i64) {
    let ends = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    #[allow(clippy::cast_possible_wrap)]
    let ends = ends as i32;
    // SAFETY: the latch of this process, in a backend or a background worker.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, ends, millis, wait_event());
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
fn wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn wait_event() -> u32 {
    use std::cell::Cell;
    thread_local! {
        /// Given to the name by the server at its first use, 0 before.
        static EVENT: Cell<u32> = const { Cell::new(0) };
    }
    if EVENT.get() == 0 {
        // SAFETY: a constant, NUL-terminated name; the same number each time.
        EVENT.set(unsafe { pg_sys::WaitEventExtensionNew(c"SnowflakeClock".as_ptr()) });
    }
    EVENT.get()
}

/// `TimeLineHistoryEntry` of access/timeline.h, the same from 15 to 18.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TimeLineHistoryEntry {
    pub tli: pg_sys::TimeLineID,
    /// Where this timeline begins; 0 if unknown.
    pub begin: pg_sys::XLogRecPtr,
    pub end: pg_sys::XLogRecPtr,
}

/// The history of a timeline: itself first, its ancestors behind it. Without a
/// history file, itself alone with unknown begin. Raises an error if the file
/// cannot be read.
///
/// # Safety
/// In a transaction; the list is in the current memory context.
pub unsafe fn read_timeline_history(tli: pg_sys::TimeLineID) -> *mut pg_sys::List {
    unsafe extern "C-unwind" {
        fn readTimeLineHistory(tli: pg_sys::TimeLineID) -> *mut pg_sys::List;
    }
    // SAFETY: the caller's; errors are caught at this boundary.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| readTimeLineHistory(tli)) }
}

/// A table and all that inherit from it, as a list of OIDs. No lock is taken.
///
/// # Safety
/// In a transaction; the list is in the current memory context.
pub unsafe fn find_all_inheritors(table: pg_sys::Oid) -> *mut pg_sys::List {
    unsafe extern "C-unwind" {
        fn find_all_inheritors(
            parent: pg_sys::Oid,
            lock: pg_sys::LOCKMODE,
            parents: *mut *mut pg_sys::List,
        ) -> *mut pg_sys::List;
    }
    // SAFETY: the caller's; errors are caught at this boundary.
    unsafe {
        pg_sys::ffi::pg_guard_ffi_boundary(|| find_all_inheritors(table, 0, std::ptr::null_mut()))
    }
}

/// Whether the user in force owns a relation, or owns all.
pub fn owns(relation: pg_sys::Oid) -> bool {
    // SAFETY: looks up the catalogs.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_class_ownercheck(relation, user());
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(pg_sys::RelationRelationId, relation, user());
    }
}

/// `FormData_pg_sequence` of catalog/pg_sequence.h, the same from 15 to 18.
#[repr(C)]
pub struct SequenceForm {
    pub seqrelid: pg_sys::Oid,
    pub seqtypid: pg_sys::Oid,
    pub seqstart: i64,
    pub seqincrement: i64,
    pub seqmax: i64,
    pub seqmin: i64,
    pub seqcache: i64,
    pub seqcycle: bool,
}

/// `FormData_pg_sequence_data` of commands/sequence.h, the same from 15 to 18:
/// the one row that a sequence's file holds.
#[repr(C)]
pub struct SequenceData {
    pub last_value: i64,
    pub log_cnt: i64,
    pub is_called: bool,
}
