//! ALTER SEQUENCE and TRUNCATE ... RESTART IDENTITY keep the mark of a generator.
//!
//! To restart a plain sequence is to ask for its numbers again. To restart a
//! generator cannot be that: IDs go by time, and what is taken away is only the
//! knowledge of how far they are. While the server runs, the word still knows;
//! before the first ID after a start nothing does. So the mark is read before
//! such a command and written back after it, into the sequence's new file: in
//! the same transaction, undone with it.
//!
//! In this order, without a lock that the command itself would take later:
//!
//! 1. which generators may it restart? Their slots are pinned, so that what is
//!    reserved from now on is remembered there (`Slot::highest`);
//! 2. read their marks;
//! 3. the command, which locks what it restarts until the transaction ends;
//! 4. where the file is another one now, write the latest mark known.
//!
//! CREATE DATABASE comes through here as well. Its OID may be that of a database
//! that was dropped, and then its sequences can have the OIDs and the files of
//! that one's. Slots go by these, and what was reserved in the old database has
//! no mark in the new one: such slots are given up, before anybody can connect.

use std::ffi::c_char;

use pgrx::pg_sys;

use super::entry::{self, Entry};
use super::error::Error;
use super::{compat, mark, shmem, spi};
use crate::snowflake::layout::UnixMillis;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

/// Hooks into the commands. Only in the postmaster, while it preloads: without
/// shared memory no mark is ever raised.
pub fn register() {
    // SAFETY: the postmaster has one thread; hooks are chained as PostgreSQL
    // documents it.
    unsafe {
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(on_utility);
    }
}

/// Every command that is no query comes through here. Not guarded as other
/// callbacks are: errors pass through this frame, which has nothing to clean up,
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
    // SAFETY: PostgreSQL's arguments, passed on as they are.
    unsafe {
        let run = || {
            let next = match PREVIOUS {
                Some(previous) => previous,
                None => compat::standard_utility(),
            };
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
        };
        match duty(statement) {
            None => run(),
            // As #[pg_guard] does it for a whole function.
            Some(Duty::Keep(kind)) => pg_sys::panic::pgrx_extern_c_guard(|| keeping(kind, run)),
            Some(Duty::ForgetDatabase(name)) => {
                pg_sys::panic::pgrx_extern_c_guard(|| {
                    pg_sys::ffi::pg_guard_ffi_boundary(run);
                    forget_database(name);
                });
            }
        }
    }
}

/// A command that may restart a sequence.
#[derive(Clone, Copy)]
enum Kind {
    Alter(*mut pg_sys::RangeVar),
    Truncate,
}

/// What this module has to do with a command.
enum Duty {
    Keep(Kind),
    /// Of this name.
    ForgetDatabase(*const c_char),
}

/// # Safety
/// A statement from PostgreSQL.
unsafe fn duty(statement: *const pg_sys::PlannedStmt) -> Option<Duty> {
    // SAFETY: the caller's; a node's tag says what it is.
    unsafe {
        let node = (*statement).utilityStmt;
        if node.is_null() {
            return None;
        }
        match (*node).type_ {
            pg_sys::NodeTag::T_AlterSeqStmt => {
                let sequence = (*node.cast::<pg_sys::AlterSeqStmt>()).sequence;
                Some(Duty::Keep(Kind::Alter(sequence)))
            }
            pg_sys::NodeTag::T_TruncateStmt
                if (*node.cast::<pg_sys::TruncateStmt>()).restart_seqs =>
            {
                Some(Duty::Keep(Kind::Truncate))
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let name = (*node.cast::<pg_sys::CreatedbStmt>()).dbname;
                Some(Duty::ForgetDatabase(name))
            }
            _ => None,
        }
    }
}

/// Runs a command between the two halves of keeping marks.
fn keeping(kind: Kind, run: impl FnOnce()) {
    let kept = match keep(kind) {
        Ok(kept) => kept,
        Err(error) => error.raise(),
    };
    // SAFETY: what runs is PostgreSQL's; its errors are caught at this boundary.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(run) };
    for kept in kept {
        if let Err(error) = kept.put_back(kind) {
            error.raise();
        }
    }
}

/// # Safety
/// The name of a database that this transaction has made.
unsafe fn forget_database(name: *const c_char) {
    // SAFETY: in a transaction; the new row is seen from the next command on.
    let database = unsafe {
        pg_sys::CommandCounterIncrement();
        pg_sys::get_database_oid(name, true)
    };
    if let Ok(shared) = shmem::shared() {
        shared.forget(database);
    }
}

/// What is known of a generator before the command.
struct Kept {
    entry: &'static Entry,
    file_number: u32,
    mark: Option<UnixMillis>,
}

fn keep(kind: Kind) -> Result<Vec<Kept>, Error> {
    // SAFETY: reads shared memory; in recovery the command itself will fail.
    let may_write = unsafe { !pg_sys::RecoveryInProgress() && pg_sys::IsTransactionState() };
    if !may_write {
        return Ok(Vec::new());
    }
    let candidates = match kind {
        Kind::Alter(name) => {
            // SAFETY: a name from PostgreSQL's parser. If it is that of another
            // sequence by the time the command locks it, that one is not kept.
            let relation = unsafe {
                pg_sys::RangeVarGetRelidExtended(
                    name,
                    0,
                    pg_sys::RVROption::RVR_MISSING_OK,
                    None,
                    std::ptr::null_mut(),
                )
            };
            if relation == pg_sys::InvalidOid {
                return Ok(Vec::new());
            }
            vec![relation]
        }
        Kind::Truncate => owned()?,
    };
    let mut kept = Vec::new();
    for relation in candidates {
        let entry = entry::of(relation);
        if let Some(found) = entry.with_share_lock(|| look(entry)) {
            kept.push(found?);
        }
    }
    Ok(kept)
}

/// Generators that belong to a column. With CASCADE a TRUNCATE can reach any.
fn owned() -> Result<Vec<pg_sys::Oid>, Error> {
    let rows = spi::read(
        "SELECT DISTINCT l.objoid FROM pg_catalog.pg_seclabel AS l
         JOIN pg_catalog.pg_depend AS d
           ON d.classid OPERATOR(pg_catalog.=) l.classoid
          AND d.objid OPERATOR(pg_catalog.=) l.objoid
          AND d.refclassid OPERATOR(pg_catalog.=) l.classoid
          AND d.refobjsubid OPERATOR(pg_catalog.<>) 0
         WHERE l.provider OPERATOR(pg_catalog.=) 'snowflake_id'
           AND l.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass",
    )?;
    Ok(rows.iter().map(|row| row.oid(0)).collect())
}

/// `None` if it is no generator that could have a mark. It is locked.
fn look(entry: &'static Entry) -> Option<Result<Kept, Error>> {
    if entry.learn_label().is_err() || !entry.is_permanent() {
        return None;
    }
    // With more generators than slots there may be none; then what is reserved
    // between now and the command's lock is not known, only what was before.
    if let Ok(shared) = shmem::shared() {
        let _ = entry.pin(shared);
    }
    Some(mark::stored(entry).map(|mark| Kept {
        entry,
        file_number: entry.current_file_number(),
        mark,
    }))
}

impl Kept {
    fn put_back(&self, kind: Kind) -> Result<(), Error> {
        // SAFETY: in a transaction that may write, as the command has.
        unsafe { pg_sys::CommandCounterIncrement() };
        if self.entry.current_file_number() == self.file_number {
            return Ok(());
        }
        let known = self.mark.max(self.entry.highest_mark());
        // Not restarted, but rewritten with its value.
        let Some(mark) = known.filter(|_| self.entry.is_permanent()) else {
            return Ok(());
        };
        if mark::stored(self.entry).ok().flatten() == Some(mark) {
            return Ok(());
        }
        self.entry.check_takes(mark)?;
        mark::write(self.entry, mark);
        if matches!(kind, Kind::Alter(_)) {
            Error::MarkKept {
                name: self.entry.name(),
            }
            .notice();
        }
        Ok(())
    }
}
