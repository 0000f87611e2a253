//! Commands of PostgreSQL that concern generators, and what is done before and after each of them.
//!
//! | command | what is done |
//! |---|---|
//! | ALTER SEQUENCE, TRUNCATE ... RESTART IDENTITY | the mark and the bounds are kept: [`restart`] |
//! | ALTER SEQUENCE of a sequence that comes from a cluster's manager | it gets its label: [`adopt`] |
//! | ALTER TABLE and ALTER SEQUENCE, SET UNLOGGED | refused for generators: [`unlogged`] |
//! | CREATE DATABASE | it may reuse the OID of a dropped database, and the new sequences can have the OIDs and files of the old ones. Slots are found by these, and what was reserved in the old database has no mark in the new one. So such slots are given up before anybody can connect |
//! | CREATE TABLE, ALTER TABLE, CREATE SCHEMA | keys that they make get IDs, if a setting says so: [`new_keys`] |
//! | a drop of the extension | refused to code of another role while a call keeps it: [`own_tables::check_drop`] |
//! | DISCARD ALL, DISCARD SEQUENCES | `snowflake_currval()` has no value, like `currval()` |
//! | CREATE and ALTER SUBSCRIPTION | generators are left out: `subscription.rs` |
//!
//! No promise of uniqueness rests on these: a mark says by itself who wrote it ([`crate::session::mark`]).
//! What a server without this library does to a mark costs a gap, or is refused.
//!
//! A command goes in three parts: that before it; the command itself, whose errors are PostgreSQL's
//! own and pass through this file untouched, so that nothing here may need to be dropped; and that
//! after it. A database without the extension has no generators. There, the price is one test per
//! command.

use std::ffi::{c_char, c_int, c_void};

use pgrx::pg_sys;

use super::restart::SavedMark;
use super::{adopt, new_keys, restart, unlogged};
use crate::hooks::error::Error;
#[cfg(feature = "pg19")]
use crate::hooks::subscription;
use crate::postgres::{catalog, compat, error_report, own_tables};
use crate::server::shmem;
use crate::session;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;
static mut PREVIOUS_OBJECT: pg_sys::object_access_hook_type = None;

/// Hooks into the commands. Called only in the postmaster, while it preloads: without
/// shared memory no mark is ever raised.
pub fn register() {
    // SAFETY: the postmaster has one thread; hooks are chained as PostgreSQL
    // documents it.
    unsafe {
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(on_utility);
    }
}

/// Hooks into what happens to objects: also in a session that loads the library by itself.
pub fn watch_objects() {
    // SAFETY: one thread; hooks are chained as PostgreSQL documents it.
    unsafe {
        PREVIOUS_OBJECT = pg_sys::object_access_hook;
        pg_sys::object_access_hook = Some(on_object);
    }
}

/// Called for what happens to objects. The next hook may raise an error, which passes through this
/// frame, as in [`on_utility`].
unsafe extern "C-unwind" fn on_object(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    part: c_int,
    argument: *mut c_void,
) {
    use pg_sys::ObjectAccessType::{OAT_DROP, OAT_POST_CREATE};
    match access {
        OAT_POST_CREATE => new_keys::note(class, object, part),
        OAT_DROP if class == pg_sys::ExtensionRelationId => {
            // SAFETY: a call from PostgreSQL, with nothing to drop.
            unsafe { error_report::guard(|| own_tables::check_drop(object)) };
        }
        // SAFETY: the same.
        OAT_DROP => unsafe { error_report::guard(|| new_keys::note_drop(class, object)) },
        _ => {}
    }
    // SAFETY: PostgreSQL's arguments, passed on unchanged.
    unsafe {
        if let Some(next) = PREVIOUS_OBJECT {
            next(access, class, object, part, argument);
        }
    }
}

/// Called for every command that is no query. Unlike other callbacks, this one has no
/// guard: errors of the command pass through its frame, which has nothing to clean up,
/// and BEGIN and COMMIT should not pay for what they do not need.
#[allow(clippy::too_many_arguments)]
unsafe extern "C-unwind" fn on_utility(
    statement: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: PostgreSQL's arguments, passed on unchanged. Nothing here needs to be
    // dropped when a part fails.
    unsafe {
        let node = (*statement).utilityStmt;
        let is_noted =
            !node.is_null() && error_report::guard(|| Ok(new_keys::begin(node, context)));
        let duty = duty(statement);
        let kept = duty
            .map(|duty| error_report::guard(|| before(duty)))
            .unwrap_or_default();
        if let Some(next) = PREVIOUS.or(compat::STANDARD_UTILITY) {
            next(
                statement,
                query,
                read_only_tree,
                context,
                parameters,
                environment,
                destination,
                completion,
            );
        }
        if let Some(duty) = duty {
            error_report::guard(|| after(duty, kept));
        }
        if is_noted {
            error_report::guard(new_keys::finish);
        }
    }
}

#[derive(Clone, Copy)]
enum Duty {
    /// The command may restart this sequence.
    Alter(*mut pg_sys::RangeVar),
    /// The command may restart sequences of these tables, a list of RangeVar; and, if
    /// it cascades, of the tables that refer to them.
    Truncate(*mut pg_sys::List, bool),
    /// The command makes this table or sequence unlogged.
    SetUnlogged(*mut pg_sys::RangeVar),
    ForgetDatabase(*const c_char),
    /// The command discards what `currval()` knows.
    DiscardLast,
    /// The command may list sequences of this subscription that are to be synchronized.
    #[cfg(feature = "pg19")]
    Subscribe(*const c_char),
}

/// # Safety
/// `statement` is from PostgreSQL.
unsafe fn duty(statement: *const pg_sys::PlannedStmt) -> Option<Duty> {
    // SAFETY: as the caller guarantees; a node's tag says what it is.
    unsafe {
        let node = (*statement).utilityStmt;
        if node.is_null() {
            return None;
        }
        match (*node).type_ {
            pg_sys::NodeTag::T_AlterSeqStmt => {
                let statement = node.cast::<pg_sys::AlterSeqStmt>();
                Some(Duty::Alter((*statement).sequence))
            }
            pg_sys::NodeTag::T_TruncateStmt => {
                let statement = node.cast::<pg_sys::TruncateStmt>();
                let restarts = (*statement).restart_seqs;
                let cascades = (*statement).behavior == pg_sys::DropBehavior::DROP_CASCADE;
                restarts.then_some(Duty::Truncate((*statement).relations, cascades))
            }
            pg_sys::NodeTag::T_AlterTableStmt => {
                let statement = node.cast::<pg_sys::AlterTableStmt>();
                unlogged::is_in((*statement).cmds)
                    .then_some(Duty::SetUnlogged((*statement).relation))
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let statement = node.cast::<pg_sys::CreatedbStmt>();
                Some(Duty::ForgetDatabase((*statement).dbname))
            }
            pg_sys::NodeTag::T_DiscardStmt => {
                use pg_sys::DiscardMode::{DISCARD_ALL, DISCARD_SEQUENCES};
                let target = (*node.cast::<pg_sys::DiscardStmt>()).target;
                (target == DISCARD_ALL || target == DISCARD_SEQUENCES).then_some(Duty::DiscardLast)
            }
            #[cfg(feature = "pg19")]
            pg_sys::NodeTag::T_CreateSubscriptionStmt => {
                let statement = node.cast::<pg_sys::CreateSubscriptionStmt>();
                Some(Duty::Subscribe((*statement).subname))
            }
            #[cfg(feature = "pg19")]
            pg_sys::NodeTag::T_AlterSubscriptionStmt => {
                let statement = node.cast::<pg_sys::AlterSubscriptionStmt>();
                Some(Duty::Subscribe((*statement).subname))
            }
            _ => None,
        }
    }
}

/// The part before the command: what is to be put back after it.
fn before(duty: Duty) -> Result<&'static [SavedMark], Error> {
    // SAFETY: reads shared memory and variables of this process. If nothing may be
    // written, the command itself will fail.
    let may_write = || unsafe {
        !pg_sys::RecoveryInProgress() && pg_sys::IsTransactionState() && !pg_sys::XactReadOnly
    };
    if matches!(duty, Duty::ForgetDatabase(_) | Duty::DiscardLast)
        || !may_write()
        || !session::is_extension_here()
    {
        return Ok(&[]);
    }
    // SAFETY: names from PostgreSQL's parser.
    unsafe {
        match duty {
            Duty::Alter(name) => {
                let lock = pg_sys::ShareRowExclusiveLock;
                return Ok(restart::save(catalog::find(
                    name,
                    lock,
                    compat::OWNS_RELATION,
                )));
            }
            Duty::Truncate(tables, cascades) => {
                return Ok(restart::save(restart::owned(tables, cascades)));
            }
            Duty::SetUnlogged(name) => unlogged::check(name)?,
            _ => {}
        }
        Ok(&[])
    }
}

/// The part after the command.
fn after(duty: Duty, saved: &[SavedMark]) -> Result<(), Error> {
    match duty {
        Duty::ForgetDatabase(name) => {
            // SAFETY: in a transaction, which has made the database; its row is visible
            // from the next command on.
            let database = unsafe {
                pg_sys::CommandCounterIncrement();
                pg_sys::get_database_oid(name, true)
            };
            if let Ok(shared) = shmem::shared() {
                shared.forget(database);
            }
        }
        Duty::DiscardLast => session::discard_last(),
        // SAFETY: a name from PostgreSQL's parser.
        Duty::Alter(name) if saved.is_empty() => unsafe { adopt::label(name)? },
        Duty::Alter(_) => restart::finish(saved, true)?,
        Duty::Truncate(..) => restart::finish(saved, false)?,
        Duty::SetUnlogged(_) => {}
        #[cfg(feature = "pg19")]
        Duty::Subscribe(name) if session::is_extension_here() => {
            // SAFETY: a name from PostgreSQL's parser.
            unsafe { subscription::leave_generators_out(name) };
        }
        #[cfg(feature = "pg19")]
        Duty::Subscribe(_) => {}
    }
    Ok(())
}
