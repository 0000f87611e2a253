//! What differs between PostgreSQL versions, and the few declarations that
//! pgrx does not bind.

use std::ffi::{CStr, c_char, c_void};

use pgrx::{PgList, pg_sys};

use crate::postgres::encoding::to_server;

/// The number of this backend's transaction; the next transaction has another one.
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

/// The place of this process among those that run SQL, from 0; below MaxBackends.
pub fn process_index() -> usize {
    // SAFETY: set in every process that runs SQL.
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    let index = unsafe { (*pg_sys::MyProc).pgprocno };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: a variable of this process.
    let index = unsafe { pg_sys::MyProcNumber };
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// A `char` of C as a byte. It has a sign on some processors, and none on others.
pub const fn byte(character: c_char) -> u8 {
    u8::from_ne_bytes(character.to_ne_bytes())
}

/// A byte as a `char` of C.
pub const fn character(byte: u8) -> c_char {
    c_char::from_ne_bytes([byte])
}

/// The number of a cache of the catalogs; pgrx has it as unsigned until 18.
pub const fn cache(number: pg_sys::SysCacheIdentifier::Type) -> i32 {
    #[cfg(not(feature = "pg19"))]
    return number.cast_signed();
    #[cfg(feature = "pg19")]
    number
}

// How a buffer is locked: a number until 18, and an enumeration since.
#[cfg(not(feature = "pg19"))]
pub type BufferLock = i32;
#[cfg(not(feature = "pg19"))]
pub const SHARE: BufferLock = pg_sys::BUFFER_LOCK_SHARE.cast_signed();
#[cfg(not(feature = "pg19"))]
pub const EXCLUSIVE: BufferLock = pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed();
#[cfg(feature = "pg19")]
pub use pg_sys::BufferLockMode::{
    BUFFER_LOCK_EXCLUSIVE as EXCLUSIVE, BUFFER_LOCK_SHARE as SHARE, Type as BufferLock,
};

pub struct File {
    /// The number changes when the relation is rewritten.
    pub number: u32,
    /// The subtransaction of this transaction that created the relation, 0 if none: a
    /// rollback of it removes the content.
    pub created_in: pg_sys::SubTransactionId,
    /// The subtransaction of this transaction that rewrote the relation, 0 if none: a
    /// rollback of it removes the content.
    pub rewritten_in: pg_sys::SubTransactionId,
}

pub fn file(relation: &pg_sys::RelationData) -> File {
    File {
        #[cfg(feature = "pg15")]
        number: relation.rd_node.relNode.to_u32(),
        #[cfg(not(feature = "pg15"))]
        number: relation.rd_locator.relNumber.to_u32(),
        created_in: relation.rd_createSubid,
        #[cfg(feature = "pg15")]
        rewritten_in: relation.rd_firstRelfilenodeSubid,
        #[cfg(not(feature = "pg15"))]
        rewritten_in: relation.rd_firstRelfilelocatorSubid,
    }
}

// These functions are declared again because pgrx wraps every function that might raise
// an error in a `sigsetjmp`, which takes longer than issuing an ID. The functions only
// return variables.
pub use unguarded::{GetUserId as user, IsInParallelMode as in_parallel_mode};

/// Runs commands if no other extension has a hook; not wrapped either.
pub const STANDARD_UTILITY: pg_sys::ProcessUtility_hook_type =
    Some(unguarded::standard_ProcessUtility);

/// Checks, before a relation is locked, that the user owns it. Only PostgreSQL calls
/// this function, hence it is not wrapped.
pub const OWNS_RELATION: pg_sys::RangeVarGetRelidCallback =
    Some(unguarded::RangeVarCallbackOwnsRelation);

/// Tells why a setting's check refuses its value; PostgreSQL shows it as the detail. Its own
/// message would quote the value, which may have a password, and would be logged.
pub fn explain_refused_setting(name: &CStr, why: &str) {
    let message = format!("invalid value for parameter \"{}\"", name.to_string_lossy());
    // SAFETY: variables of this process; PostgreSQL copies the texts before the memory of
    // this command is freed.
    unsafe {
        pg_sys::GUC_check_errmsg_string = to_server(&message);
        pg_sys::GUC_check_errdetail_string = to_server(why);
    }
}

/// Memory for what belongs to a setting's value, which PostgreSQL frees; NULL if there is none.
pub fn guc_malloc(size: usize) -> *mut c_void {
    // SAFETY: allocates.
    unsafe {
        #[cfg(feature = "pg15")]
        return libc::malloc(size);
        #[cfg(not(feature = "pg15"))]
        return pg_sys::guc_malloc(pg_sys::LOG.cast_signed(), size);
    }
}

/// Whether this session has a lock in exactly this mode.
pub fn has_lock(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) -> bool {
    // SAFETY: looks into this process's own table.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::LockHeldByMe(tag, mode);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::LockHeldByMe(tag, mode, false);
    }
}

/// Whether the user in force has USAGE on a schema.
pub fn may_use_schema(schema: pg_sys::Oid) -> bool {
    // 32 bits in 15, 64 since.
    #[allow(clippy::useless_conversion)]
    let mode = pg_sys::AclMode::from(pg_sys::ACL_USAGE);
    // SAFETY: looks up the catalogs, in a transaction.
    unsafe {
        #[cfg(feature = "pg15")]
        let result = pg_sys::pg_namespace_aclcheck(schema, user(), mode);
        #[cfg(not(feature = "pg15"))]
        let result = pg_sys::object_aclcheck(pg_sys::NamespaceRelationId, schema, user(), mode);
        result == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Raises an error as PostgreSQL's functions do: no Rust value on its way is dropped.
///
/// # Safety
/// `error` is valid; no frame between this one and PostgreSQL's has anything to drop.
pub unsafe fn throw(error: *mut pg_sys::ErrorData) -> ! {
    // SAFETY: as the caller guarantees.
    unsafe { unguarded::ThrowErrorData(error) };
    unreachable!("an error report does not return");
}

/// Ends this process with its callbacks. pgrx declares a function that returns, for 18.
pub fn exit(code: i32) -> ! {
    // SAFETY: nothing of Rust's has to be dropped in a process that ends.
    unsafe { unguarded::proc_exit(code) }
}

/// Prepares a function to return a set of rows. In 15 the function has the name of its
/// first release, which later versions have as well.
#[cfg(not(feature = "pg15"))]
pub use pg_sys::InitMaterializedSRF as init_rows;
#[cfg(feature = "pg15")]
pub use pg_sys::SetSingleFuncCall as init_rows;

#[allow(clashing_extern_declarations)]
mod unguarded {
    use pgrx::pg_sys;

    use super::TreeWalker;

    unsafe extern "C-unwind" {
        pub fn LockRelationOid(relation: pg_sys::Oid, mode: pg_sys::LOCKMODE);
        pub fn tuplestore_putvalues(
            store: *mut pg_sys::Tuplestorestate,
            row_type: pg_sys::TupleDesc,
            values: *mut pg_sys::Datum,
            nulls: *mut bool,
        );
        pub fn pg_class_aclcheck_ext(
            relation: pg_sys::Oid,
            role: pg_sys::Oid,
            mode: pg_sys::AclMode,
            is_missing: *mut bool,
        ) -> pg_sys::AclResult::Type;
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
        pub fn RangeVarCallbackOwnsRelation(
            name: *const pg_sys::RangeVar,
            relation: pg_sys::Oid,
            before: pg_sys::Oid,
            arg: *mut std::ffi::c_void,
        );
        pub fn readTimeLineHistory(tli: pg_sys::TimeLineID) -> *mut pg_sys::List;
        #[cfg_attr(not(feature = "pg15"), link_name = "query_tree_walker_impl")]
        pub fn query_tree_walker(
            query: *mut pg_sys::Query,
            walker: TreeWalker,
            context: *mut std::ffi::c_void,
            flags: i32,
        ) -> bool;
        #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_walker_impl")]
        pub fn expression_tree_walker(
            node: *mut pg_sys::Node,
            walker: TreeWalker,
            context: *mut std::ffi::c_void,
        ) -> bool;
        pub fn find_all_inheritors(
            parent: pg_sys::Oid,
            lock: pg_sys::LOCKMODE,
            parents: *mut *mut pg_sys::List,
        ) -> *mut pg_sys::List;
        pub fn ThrowErrorData(error: *mut pg_sys::ErrorData);
        pub fn proc_exit(code: std::ffi::c_int) -> !;
        /// The user in force.
        pub safe fn GetUserId() -> pg_sys::Oid;
        /// Whether this is a parallel worker or the leader of some.
        pub safe fn IsInParallelMode() -> bool;
    }
}

/// Sleeps for this many microseconds; a signal ends the sleep. `pg_stat_activity` shows
/// a wait event of type Extension, with a name since 17.
pub fn sleep(micros: i64) {
    // SAFETY: points to this backend's entry or, while it has none, to a variable of
    // this process; only this process writes there, as PostgreSQL's inline functions
    // do. The sleep raises no error.
    unsafe {
        pg_sys::my_wait_event_info.write_volatile(wait_event(WaitsFor::Clock));
        pg_sys::pg_usleep(micros);
        pg_sys::my_wait_event_info.write_volatile(0);
    }
}

/// Waits on the latch for this many milliseconds. Shown as [`sleep`] is.
pub fn wait_latch(millis: i64) {
    wait(None, Some(millis), WaitsFor::Clock);
}

/// Waits until a socket can be read or written, for this many milliseconds at most.
/// Returns whether it can.
pub fn wait_socket(socket: i32, read: bool, write: bool, millis: i64) -> bool {
    let read = if read { pg_sys::WL_SOCKET_READABLE } else { 0 };
    let write = if write {
        pg_sys::WL_SOCKET_WRITEABLE
    } else {
        0
    };
    wait(Some((socket, read | write)), Some(millis), WaitsFor::Server)
}

/// Waits in the keeper, until a socket can be read, and for this many milliseconds at most.
pub fn wait_keeper(socket: Option<i32>, millis: Option<i64>) {
    let socket = socket.map(|socket| (socket, pg_sys::WL_SOCKET_READABLE));
    wait(socket, millis, WaitsFor::Keeper);
}

/// Waits on the latch, and for events of a socket; returns whether such an event has come. An
/// interrupt ends the wait early, and the end of the postmaster ends the process.
fn wait(socket: Option<(i32, u32)>, millis: Option<i64>, event: WaitsFor) -> bool {
    let (socket, wanted) = socket.unwrap_or((-1, 0));
    let timeout = millis.map_or(0, |_| pg_sys::WL_TIMEOUT);
    let ends = pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH | timeout | wanted;
    // SAFETY: the latch of this process, in a backend or a background worker, and an open
    // socket if there is one.
    let ended = unsafe {
        let (latch, millis, event) = (pg_sys::MyLatch, millis.unwrap_or(-1), wait_event(event));
        let ended = pg_sys::WaitLatchOrSocket(latch, ends.cast_signed(), socket, millis, event);
        if ended.cast_unsigned() & pg_sys::WL_LATCH_SET != 0 {
            pg_sys::ResetLatch(latch);
        }
        ended
    };
    ended.cast_unsigned() & wanted != 0
}

/// Sleeps on a condition variable until somebody broadcasts it, for this many milliseconds at
/// most. An interrupt ends the sleep, and may raise an error. The first call of a loop returns
/// at once, so that what is waited for is looked at when the process can be woken. The caller
/// ends the loop by [`end_sleep`]; an error does so by itself.
///
/// # Safety
/// A condition variable in shared memory, initialised.
pub unsafe fn sleep_on(condition: *mut pg_sys::ConditionVariable, millis: i64, event: WaitsFor) {
    // SAFETY: as the caller guarantees.
    unsafe { pg_sys::ConditionVariableTimedSleep(condition, millis, wait_event(event)) };
}

/// See [`sleep_on`].
pub fn end_sleep() {
    // SAFETY: does nothing if this process is on no list of sleepers. Since 16 it tells whether
    // this process was woken, which matters to nobody: all are woken at once.
    unsafe {
        pg_sys::ConditionVariableCancelSleep();
    }
}

/// What a wait event tells, where PostgreSQL has names for those of extensions.
#[derive(Clone, Copy)]
pub enum WaitsFor {
    Clock,
    Server,
    /// What the keeper waits for.
    Keeper,
    /// The mark, which another session raises.
    Mark,
    /// A worker ID, or a later bound of it.
    Lease,
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
fn wait_event(_: WaitsFor) -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn wait_event(event: WaitsFor) -> u32 {
    let name = match event {
        WaitsFor::Clock => c"SnowflakeClock",
        WaitsFor::Server => c"SnowflakeServer",
        WaitsFor::Keeper => c"SnowflakeKeeperMain",
        WaitsFor::Mark => c"SnowflakeMark",
        WaitsFor::Lease => c"SnowflakeLease",
    };
    // SAFETY: a constant, NUL-terminated name; the server looks its number up, and gives it one
    // at the first use.
    unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) }
}

/// `TimeLineHistoryEntry` of access/timeline.h, the same from 15 to 19.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TimeLineHistoryEntry {
    pub tli: pg_sys::TimeLineID,
    /// Where this timeline begins; 0 if unknown.
    pub begin: pg_sys::XLogRecPtr,
    pub end: pg_sys::XLogRecPtr,
}

/// The history of a timeline: the timeline itself first, then its ancestors. Without a
/// history file, the timeline alone, with an unknown beginning. Raises an error if the
/// file cannot be read.
pub fn timeline_history(tli: pg_sys::TimeLineID) -> Vec<TimeLineHistoryEntry> {
    // SAFETY: in a transaction; errors are caught at this boundary. The list holds
    // pointers to entries, allocated in the current memory context.
    unsafe {
        let list = pg_sys::ffi::pg_guard_ffi_boundary(|| unguarded::readTimeLineHistory(tli));
        let list = PgList::<TimeLineHistoryEntry>::from_pg(list);
        list.iter_ptr().map(|entry| *entry).collect()
    }
}

/// Called for each node of a tree, or null; true ends the walk.
pub type TreeWalker =
    Option<unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut std::ffi::c_void) -> bool>;

/// Walks a tree from its root, which is the first node that `walker` gets. Returns whether
/// it has ended the walk.
///
/// # Safety
/// `root` is a node; `walker` takes each node of the tree, or null, and visits its parts by
/// [`walk_parts`].
pub unsafe fn walk(root: *mut pg_sys::Node, walker: TreeWalker) -> bool {
    let no_context = std::ptr::null_mut();
    // SAFETY: as the caller guarantees. This is the only boundary of the walk, at which
    // errors are caught: see `walk_parts`.
    unsafe {
        pg_sys::ffi::pg_guard_ffi_boundary(|| walker.is_some_and(|walk| walk(root, no_context)))
    }
}

/// Walks the parts of a node: of a query, its subqueries, too.
///
/// A walker calls itself by this function, as deep as a query is nested, and PostgreSQL
/// raises an error at the bottom of a query that is nested too deeply. So nothing here
/// catches errors: each level would hold a jump buffer, and would unwind. The error passes
/// all levels at once, which must have nothing to drop.
///
/// # Safety
/// Called by a walker, with its arguments, below [`walk`]; `node` is not null. No frame of
/// the walker has anything to drop.
pub unsafe fn walk_parts(
    node: *mut pg_sys::Node,
    walker: TreeWalker,
    context: *mut std::ffi::c_void,
) -> bool {
    // SAFETY: as the caller guarantees.
    unsafe {
        if (*node).type_ == pg_sys::NodeTag::T_Query {
            unguarded::query_tree_walker(node.cast(), walker, context, 0)
        } else {
            unguarded::expression_tree_walker(node, walker, context)
        }
    }
}

/// A table and all tables that inherit from it, as a list of OIDs in the current memory
/// context. No lock is taken.
pub fn find_all_inheritors(table: pg_sys::Oid) -> *mut pg_sys::List {
    let no_parents = std::ptr::null_mut();
    // SAFETY: in a transaction; errors are caught at this boundary.
    unsafe {
        let find = || unguarded::find_all_inheritors(table, 0, no_parents);
        pg_sys::ffi::pg_guard_ffi_boundary(find)
    }
}

/// Runs a parsed utility command as PostgreSQL does, with event triggers, but without the
/// hooks of extensions.
///
/// # Safety
/// In a transaction; `command` is such a command, and `text` its NUL-terminated text.
pub unsafe fn run_without_hooks(command: *mut pg_sys::Node, text: *const std::ffi::c_char) {
    use pg_sys::ProcessUtilityContext::PROCESS_UTILITY_QUERY;
    // SAFETY: as the caller guarantees; a node of its size, whose other fields are 0, is
    // what PostgreSQL makes of a command. Errors are caught at this boundary.
    unsafe {
        let statement = pg_sys::palloc0(size_of::<pg_sys::PlannedStmt>());
        let statement = statement.cast::<pg_sys::PlannedStmt>();
        (*statement).type_ = pg_sys::NodeTag::T_PlannedStmt;
        (*statement).commandType = pg_sys::CmdType::CMD_UTILITY;
        (*statement).utilityStmt = command;
        let nothing = pg_sys::CreateDestReceiver(pg_sys::CommandDest::DestNone);
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            unguarded::standard_ProcessUtility(
                statement,
                text,
                false,
                PROCESS_UTILITY_QUERY,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                nothing,
                std::ptr::null_mut(),
            );
        });
    }
}

/// Puts rows of one bigint into a store, with one guard for all of them.
///
/// # Safety
/// Both pointers are valid, of a descriptor of such rows. Nothing in `numbers` has to be dropped.
pub unsafe fn put_numbers(
    store: *mut pg_sys::Tuplestorestate,
    row_type: pg_sys::TupleDesc,
    numbers: impl Iterator<Item = i64>,
) {
    // SAFETY: as the caller guarantees; errors are caught at this boundary.
    unsafe {
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            for number in numbers {
                let (mut value, mut is_null) = (pg_sys::Datum::from(number), false);
                let (value, is_null) = (&raw mut value, &raw mut is_null);
                unguarded::tuplestore_putvalues(store, row_type, value, is_null);
            }
        });
    }
}

/// Locks a relation, which need not exist, and returns what `knows` answers then: it is given a
/// function that looks whether the user in force has one of these privileges on it. One guard
/// serves both calls, since the first ID of each transaction makes them, and a guard takes 70
/// instructions.
pub fn lock_and_check(
    relation: pg_sys::Oid,
    mode: pg_sys::LOCKMODE,
    any_of: u32,
    knows: impl FnOnce(&dyn Fn() -> bool) -> bool,
) -> bool {
    // 32 bits in 15, 64 since.
    #[allow(clippy::useless_conversion)]
    let any_of = pg_sys::AclMode::from(any_of);
    // SAFETY: in a transaction; errors are caught at this boundary.
    unsafe {
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            unguarded::LockRelationOid(relation, mode);
            knows(&|| {
                let mut is_missing = false;
                let missing = &raw mut is_missing;
                let result = unguarded::pg_class_aclcheck_ext(relation, user(), any_of, missing);
                result == pg_sys::AclResult::ACLCHECK_OK
            })
        })
    }
}

/// Whether the user in force owns a relation, or is a superuser.
pub fn owns(relation: pg_sys::Oid) -> bool {
    // SAFETY: looks up the catalogs.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_class_ownercheck(relation, user());
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(pg_sys::RelationRelationId, relation, user());
    }
}

/// `FormData_pg_sequence` of catalog/pg_sequence.h, the same from 15 to 19.
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

/// `FormData_pg_sequence_data` of commands/sequence.h, the same from 15 to 19:
/// the one row that a sequence's file holds.
#[repr(C)]
pub struct SequenceData {
    pub last_value: i64,
    pub log_cnt: i64,
    pub is_called: bool,
}
