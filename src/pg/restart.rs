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
        };
        match duty(statement) {
            None => run(),
            // As #[pg_guard] does it for a whole function.
            Some(duty) => pg_sys::panic::pgrx_extern_c_guard(|| around(duty, run)),
        }
    }
}

/// What this module has to do with a command.
#[derive(Clone, Copy)]
enum Duty {
    /// It may restart this sequence.
    Alter(*mut pg_sys::RangeVar),
    /// It may restart sequences of these tables, a list of RangeVar.
    Truncate(*mut pg_sys::List),
    /// It makes a database of this name.
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
                let statement = node.cast::<pg_sys::AlterSeqStmt>();
                Some(Duty::Alter((*statement).sequence))
            }
            pg_sys::NodeTag::T_TruncateStmt => {
                let statement = node.cast::<pg_sys::TruncateStmt>();
                let restarts = (*statement).restart_seqs;
                restarts.then_some(Duty::Truncate((*statement).relations))
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let statement = node.cast::<pg_sys::CreatedbStmt>();
                Some(Duty::ForgetDatabase((*statement).dbname))
            }
            _ => None,
        }
    }
}

/// Runs a command between the two halves of keeping marks.
fn around(duty: Duty, run: impl FnOnce()) {
    let kept = match keep(duty) {
        Ok(kept) => kept,
        Err(error) => error.raise(),
    };
    // SAFETY: what runs is PostgreSQL's; its errors are caught at this boundary.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(run) };
    for kept in kept {
        if let Err(error) = kept.put_back(matches!(duty, Duty::Alter(_))) {
            error.raise();
        }
        // Others may need the slot before this transaction ends.
        if !kept.was_pinned {
            kept.entry.unpin_unused();
        }
    }
    if let (Duty::ForgetDatabase(name), Ok(shared)) = (duty, shmem::shared()) {
        // SAFETY: in a transaction, which has made the database; its row is seen
        // from the next command on.
        let database = unsafe {
            pg_sys::CommandCounterIncrement();
            pg_sys::get_database_oid(name, true)
        };
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

fn keep(duty: Duty) -> Result<Vec<Kept>, Error> {
    // SAFETY: shared memory and variables of this process; where nothing may be
    // written the command itself will fail.
    let may_write = unsafe {
        !pg_sys::RecoveryInProgress() && pg_sys::IsTransactionState() && !pg_sys::XactReadOnly
    };
    let candidates = match duty {
        _ if !may_write => Vec::new(),
        // Checked to be the user's, and locked as the command will lock it.
        // SAFETY: a name from PostgreSQL's parser; the check is that of the command.
        Duty::Alter(name) => unsafe {
            let found = find(name, pg_sys::ShareRowExclusiveLock, compat::OWNS_RELATION);
            found.into_iter().collect()
        },
        Duty::Truncate(tables) => {
            // SAFETY: a list of names from PostgreSQL's parser.
            let names = unsafe { PgList::<pg_sys::RangeVar>::from_pg(tables) };
            // If a name is another's by the time the command locks it, that one is
            // not kept.
            // SAFETY: as above.
            let tables = names
                .iter_ptr()
                .filter_map(|name| unsafe { find(name, pg_sys::NoLock, None) });
            owned(tables.collect())?
        }
        Duty::ForgetDatabase(_) => Vec::new(),
    };
    // Entries are for ever: not for every serial column that is made.
    let generators = candidates.into_iter().filter(|it| is_generator(*it));
    let look = |relation| {
        let entry = entry::of_sequence(relation);
        entry.with_share_lock(|| look(entry))
    };
    Ok(generators.filter_map(look).collect())
}

/// The default one or a labelled one, be it by a text that cannot be read.
fn is_generator(relation: pg_sys::Oid) -> bool {
    label::text_of(relation).is_some()
        || entry::default_relation().is_ok_and(|default| default == relation)
}

/// The relation of a name, if there is one, checked and locked.
///
/// # Safety
/// A name from PostgreSQL's parser, and a check that is PostgreSQL's.
unsafe fn find(
    name: *mut pg_sys::RangeVar,
    lock: u32,
    check: pg_sys::RangeVarGetRelidCallback,
) -> Option<pg_sys::Oid> {
    let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
    let no_argument = std::ptr::null_mut();
    // SAFETY: the caller's.
    catalog::valid(unsafe {
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::RangeVarGetRelidExtended(name, lock as i32, missing_ok, check, no_argument)
    })
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
    if let (Ok(shared), Ok(_)) = (shmem::shared(), entry.learn_label()) {
        let _ = entry.pin(entry.key(), shared);
    }
    Some(Kept {
        entry,
        was_pinned,
        file_number: catalog::file_number(entry.relation()),
        // A value that is no mark is not kept: a restart is what removes it.
        mark: stored(entry),
    })
}

/// The mark, as far as it can be read: without its label, a value is taken for an
/// instant.
fn stored(entry: &Entry) -> Option<UnixMillis> {
    let described = entry.learn_label();
    let generator = described.map_or(&Generator::DEFAULT, |(it, _)| &it.generator);
    mark::stored(entry, generator).ok().flatten()
}

impl Kept {
    fn put_back(&self, is_alter: bool) -> Result<(), Error> {
        // SAFETY: in a transaction that may write, as the command has.
        unsafe { pg_sys::CommandCounterIncrement() };
        if catalog::file_number(self.entry.relation()) == self.file_number {
            return Ok(());
        }
        let Some(mark) = self.mark.max(self.entry.highest_mark()) else {
            return Ok(());
        };
        // Not restarted, but rewritten with its value.
        if stored(self.entry) == Some(mark) {
            return Ok(());
        }
        self.entry.check_takes(mark)?;
        mark::write(self.entry, mark.get());
        if is_alter {
            notice::mark_kept(&self.entry.name()).notice();
        }
        Ok(())
    }
}
