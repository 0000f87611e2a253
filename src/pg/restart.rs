//! ALTER SEQUENCE and TRUNCATE ... RESTART IDENTITY keep the mark of a generator.
//!
//! To restart a plain sequence is to ask for its numbers again. To restart a
//! generator cannot be that: IDs go by time, and what is taken away is only the
//! knowledge of how far they are. While the server runs, the word still knows;
//! before the first ID after a start nothing does. So the mark is read before
//! such a command and written back after it, into the sequence's new file: in
//! the same transaction, undone with it.
//!
//! In this order:
//!
//! 1. which generators may it restart? Only those of the user: whoever may not
//!    restart one neither waits for it nor takes its slot. Slots are pinned, so
//!    that what is reserved from now on is remembered there (`Slot::highest`);
//! 2. read their marks;
//! 3. the command, which locks what it restarts until the transaction ends;
//! 4. where the file is another one now, write the latest mark known.
//!
//! ALTER SEQUENCE locks its sequence before all else, and so do we, with the same
//! lock. TRUNCATE locks tables first, which is left to it: its sequences are
//! looked at under a lock that is given back.
//!
//! A TRUNCATE that a subscription applies is no command: it does not come through
//! here, and what has no slot then goes on from the clock.
//!
//! CREATE DATABASE comes through here as well. Its OID may be that of a database
//! that was dropped, and then its sequences can have the OIDs and the files of
//! that one's. Slots go by these, and what was reserved in the old database has
//! no mark in the new one: such slots are given up, before anybody can connect.

use std::ffi::c_char;

use pgrx::{PgList, pg_sys};

use super::entry::{self, Entry};
use super::error::Error;
use super::notice;
use super::{catalog, compat, label, mark, shmem, spi};
use crate::snowflake::generator::Generator;
use crate::snowflake::id::UnixMillis;

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
    /// Of these tables, a list of RangeVar.
    Truncate(*mut pg_sys::List),
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
                let tables = (*node.cast::<pg_sys::TruncateStmt>()).relations;
                Some(Duty::Keep(Kind::Truncate(tables)))
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
        // Others may need the slot before this transaction ends.
        if !kept.was_pinned {
            kept.entry.unpin_unused();
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
    was_pinned: bool,
    file_number: u32,
    mark: Option<UnixMillis>,
}

fn keep(kind: Kind) -> Result<Vec<Kept>, Error> {
    // SAFETY: shared memory and variables of this process; where nothing may be
    // written the command itself will fail.
    let may_write = unsafe {
        !pg_sys::RecoveryInProgress() && pg_sys::IsTransactionState() && !pg_sys::XactReadOnly
    };
    if !may_write {
        return Ok(Vec::new());
    }
    let candidates = match kind {
        // SAFETY: a name from PostgreSQL's parser.
        Kind::Alter(name) => unsafe { locked_as_owner(name) }.into_iter().collect(),
        Kind::Truncate(tables) => {
            // SAFETY: a list of names from PostgreSQL's parser.
            let names = unsafe { PgList::<pg_sys::RangeVar>::from_pg(tables) };
            // SAFETY: as above.
            let tables = names.iter_ptr().filter_map(|name| unsafe { named(name) });
            owned(tables.collect())?
        }
    };
    let mut kept = Vec::new();
    for relation in candidates {
        // Entries are for ever: not for every serial column that is made.
        if is_generator(relation) {
            let entry = entry::of_sequence(relation);
            kept.extend(entry.with_share_lock(|| look(entry)));
        }
    }
    Ok(kept)
}

/// The default one or a labelled one, be it by a text that cannot be read.
fn is_generator(relation: pg_sys::Oid) -> bool {
    label::text_of(relation).is_some()
        || entry::default_relation().is_ok_and(|default| default == relation)
}

/// The sequence that ALTER SEQUENCE means, if it is there: checked to be the
/// user's, and locked as the command will lock it.
///
/// # Safety
/// A name from PostgreSQL's parser.
unsafe fn locked_as_owner(name: *mut pg_sys::RangeVar) -> Option<pg_sys::Oid> {
    // SAFETY: the caller's; the callback is that of ALTER SEQUENCE.
    let relation = unsafe {
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::RangeVarGetRelidExtended(
            name,
            pg_sys::ShareRowExclusiveLock as i32,
            pg_sys::RVROption::RVR_MISSING_OK,
            Some(compat::owns_relation()),
            std::ptr::null_mut(),
        )
    };
    (relation != pg_sys::InvalidOid).then_some(relation)
}

/// The relation of a name, if there is one. If the name is another's by the time
/// the command locks it, that one is not kept.
///
/// # Safety
/// A name from PostgreSQL's parser.
unsafe fn named(name: *mut pg_sys::RangeVar) -> Option<pg_sys::Oid> {
    // SAFETY: the caller's.
    let relation = unsafe {
        pg_sys::RangeVarGetRelidExtended(
            name,
            0,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        )
    };
    (relation != pg_sys::InvalidOid).then_some(relation)
}

/// Sequences of the user that belong to a column of a table that truncating these
/// may reach: they, their children and, as with CASCADE, what refers to them.
fn owned(tables: Vec<pg_sys::Oid>) -> Result<Vec<pg_sys::Oid>, Error> {
    let tables: Vec<_> = tables.iter().map(|oid| oid.to_u32().to_string()).collect();
    let rows = spi::read(&format!(
        "WITH RECURSIVE reached (oid) AS (
             SELECT pg_catalog.unnest('{{{}}}'::pg_catalog.oid[])
             UNION
             SELECT next.oid FROM reached AS r, LATERAL (
                 SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i
                 WHERE i.inhparent OPERATOR(pg_catalog.=) r.oid
                 UNION ALL
                 SELECT c.conrelid FROM pg_catalog.pg_constraint AS c
                 WHERE c.confrelid OPERATOR(pg_catalog.=) r.oid
                   AND c.contype OPERATOR(pg_catalog.=) 'f') AS next (oid))
         SELECT DISTINCT s.oid AS sequence FROM reached AS r
         JOIN pg_catalog.pg_depend AS d
           ON d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
          AND d.refobjid OPERATOR(pg_catalog.=) r.oid
          AND d.refobjsubid OPERATOR(pg_catalog.<>) 0
          AND d.classid OPERATOR(pg_catalog.=) d.refclassid
         JOIN pg_catalog.pg_class AS s ON s.oid OPERATOR(pg_catalog.=) d.objid
         WHERE s.relkind OPERATOR(pg_catalog.=) 'S'
           AND pg_catalog.pg_has_role(s.relowner, 'USAGE')",
        tables.join(",")
    ))?;
    Ok(rows.iter().map(|row| row.oid("sequence")).collect())
}

/// `None` if it cannot have a mark. It is a generator, and locked.
fn look(entry: &'static Entry) -> Option<Kept> {
    if entry.is_temporary() {
        return None;
    }
    let was_pinned = entry.is_pinned();
    // With more generators than slots there may be none; then what is reserved
    // between now and the command's lock is not known, only what was before. By a
    // label of a later version nothing is reserved.
    let generator = entry.learn_label().ok().map(|(it, _)| &it.generator);
    if let Ok(shared) = shmem::shared()
        && generator.is_some()
    {
        let _ = entry.pin(entry.key(), shared);
    }
    Some(Kept {
        entry,
        was_pinned,
        file_number: catalog::file_number(entry.relation()),
        // A value that is no mark is not kept: a restart is what removes it.
        mark: stored(entry, generator),
    })
}

/// The mark, as far as it can be read: without its label, a value is taken for an
/// instant.
fn stored(entry: &Entry, generator: Option<&Generator>) -> Option<UnixMillis> {
    let generator = generator.unwrap_or(&Generator::DEFAULT);
    mark::stored(entry, generator).ok().flatten()
}

impl Kept {
    fn put_back(&self, kind: Kind) -> Result<(), Error> {
        // SAFETY: in a transaction that may write, as the command has.
        unsafe { pg_sys::CommandCounterIncrement() };
        if catalog::file_number(self.entry.relation()) == self.file_number {
            return Ok(());
        }
        let known = self.mark.max(self.entry.highest_mark());
        let Some(mark) = known else {
            return Ok(());
        };
        // Not restarted, but rewritten with its value.
        let generator = self.entry.learn_label().ok().map(|(it, _)| &it.generator);
        if stored(self.entry, generator) == Some(mark) {
            return Ok(());
        }
        self.entry.check_takes(mark)?;
        mark::write(self.entry, mark.get());
        if matches!(kind, Kind::Alter(_)) {
            notice::mark_kept(&self.entry.name()).notice();
        }
        Ok(())
    }
}
