//! ALTER SEQUENCE and TRUNCATE ... RESTART IDENTITY keep the mark of a generator.
//!
//! To restart a plain sequence is to ask for its numbers again. To restart a
//! generator cannot be that: IDs go by time, and what is taken away is only the
//! knowledge of how far they are. While the server runs, the word still knows;
//! before the first ID after a start nothing does. So the mark is read before
//! such a command and written back after it, into the sequence's new file: in
//! the same transaction, undone with it.
//!
//! A command goes in three parts:
//!
//! 1. Before it: the generators that it may restart are found, and their marks read.
//!    Only those of the user: whoever may not restart one neither waits for it nor
//!    takes its slot. Slots are pinned, so that what others reserve from now on is
//!    remembered there (`Slot::highest`).
//! 2. The command itself. Its errors are PostgreSQL's own and pass through this file
//!    untouched, so nothing here may be in need of being dropped: what the first part
//!    has found lies in memory of the transaction.
//! 3. After it: where the sequence has another file now, the latest mark known is
//!    written. The command holds its lock until the transaction ends.
//!
//! ALTER SEQUENCE checks and locks its sequence before all else, and so does the first
//! part, with the same check and the same lock: the name may be another sequence's by
//! the time the lock is there. TRUNCATE locks tables first. That is left to it: its
//! sequences are looked at under a lock that is given back, and where a table's name
//! has become another's meanwhile, that one's sequences are not kept.
//!
//! A database without the extension has no generators. There the price is one test
//! per command.
//!
//! A TRUNCATE that a subscription applies is no command: it does not come through
//! here, and what has no slot then goes on from the clock.
//!
//! Two more commands come through here. After DISCARD ALL and DISCARD SEQUENCES
//! `snowflake_currval()` knows nothing, as `currval()`. CREATE DATABASE may make one
//! with the OID of a database that was dropped, and its sequences can have the OIDs
//! and the files of that one's. Slots go by these, and what was reserved in the old
//! database has no mark in the new one: such slots are given up, before anybody can
//! connect.

use std::ffi::c_char;

use pgrx::{PgList, pg_sys};

use super::entry::{self, Entry};
use super::error::Error;
use super::notice;
use super::{catalog, compat, label, mark, report, shmem};
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

/// Every command that is no query comes through here. Not guarded as other callbacks
/// are: errors of the command pass through this frame, which has nothing to clean up.
/// BEGIN and COMMIT should not pay for what they do not need.
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
    // SAFETY: PostgreSQL's arguments, passed on as they are. Nothing here must be dropped
    // when a half fails.
    unsafe {
        let duty = duty(statement);
        let kept = duty
            .map(|duty| report::guard(|| raised(report::keeping_errors(|| keep(duty)))))
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
            report::guard(|| raised(finish(duty, kept)));
        }
    }
}

fn raised<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| error.raise())
}

/// What this module has to do with a command.
#[derive(Clone, Copy)]
enum Duty {
    /// It may restart this sequence.
    Alter(*mut pg_sys::RangeVar),
    /// It may restart sequences of these tables, a list of RangeVar; and of those
    /// that refer to them, if it cascades.
    Truncate(*mut pg_sys::List, bool),
    /// It makes a database of this name.
    ForgetDatabase(*const c_char),
    /// It forgets what `currval()` knows.
    DiscardLast,
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
                let cascades = (*statement).behavior == pg_sys::DropBehavior::DROP_CASCADE;
                restarts.then_some(Duty::Truncate((*statement).relations, cascades))
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
            _ => None,
        }
    }
}

/// What is known of a generator before the command.
#[derive(Clone, Copy)]
struct Kept {
    entry: &'static Entry,
    relation: pg_sys::Oid,
    was_pinned: bool,
    file_number: u32,
    mark: Option<UnixMillis>,
}

/// Before the command.
fn keep(duty: Duty) -> Result<&'static [Kept], Error> {
    // SAFETY: shared memory and variables of this process; where nothing may be
    // written the command itself will fail.
    let may_write = || unsafe {
        !pg_sys::RecoveryInProgress() && pg_sys::IsTransactionState() && !pg_sys::XactReadOnly
    };
    // SAFETY: names from PostgreSQL's parser.
    let sequences = unsafe {
        match duty {
            Duty::ForgetDatabase(_) | Duty::DiscardLast => return Ok(&[]),
            _ if !may_write() || !entry::is_extension_here() => return Ok(&[]),
            Duty::Alter(name) => find(name, pg_sys::ShareRowExclusiveLock, compat::OWNS_RELATION)
                .into_iter()
                .collect(),
            Duty::Truncate(tables, cascades) => owned(tables, cascades),
        }
    };
    // No entry for every serial column that is made.
    let generators = sequences
        .into_iter()
        .filter(|it| compat::owns(*it) && is_generator(*it));
    let kept: Vec<Kept> = generators
        .filter_map(|relation| {
            let entry = entry::of_sequence(relation);
            entry.with_share_lock(|| look(entry))
        })
        .collect();
    if kept.is_empty() {
        return Ok(&[]);
    }
    // SAFETY: room for so many, which lives longer than the command.
    unsafe {
        let size = size_of_val(kept.as_slice());
        let room = pg_sys::MemoryContextAlloc(pg_sys::TopTransactionContext, size).cast::<Kept>();
        room.copy_from_nonoverlapping(kept.as_ptr(), kept.len());
        Ok(std::slice::from_raw_parts(room, kept.len()))
    }
}

/// After the command.
fn finish(duty: Duty, kept: &[Kept]) -> Result<(), Error> {
    if let (Duty::ForgetDatabase(name), Ok(shared)) = (duty, shmem::shared()) {
        // SAFETY: in a transaction, which has made the database; its row is seen
        // from the next command on.
        let database = unsafe {
            pg_sys::CommandCounterIncrement();
            pg_sys::get_database_oid(name, true)
        };
        shared.forget(database);
    }
    if matches!(duty, Duty::DiscardLast) {
        entry::discard_last();
    }
    if !kept.is_empty() {
        // SAFETY: in a transaction that may write, as the command has.
        unsafe { pg_sys::CommandCounterIncrement() };
    }
    for kept in kept {
        if kept.put_back()? && matches!(duty, Duty::Alter(_)) {
            notice::mark_kept(&kept.entry.name()).notice();
        }
        // Others may need the slot before this transaction ends.
        if !kept.was_pinned {
            kept.entry.unpin_unused();
        }
    }
    Ok(())
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

/// Sequences that belong to a column of a table that truncating these reaches: as
/// TRUNCATE finds them.
///
/// # Safety
/// A list of names from PostgreSQL's parser.
unsafe fn owned(tables: *mut pg_sys::List, cascades: bool) -> Vec<pg_sys::Oid> {
    // SAFETY: the caller's; lists of OIDs from PostgreSQL's own functions, in the
    // memory of the command.
    unsafe {
        let oids = |list| PgList::<pg_sys::Oid>::from_pg(list);
        let mut reached = std::ptr::null_mut();
        for name in PgList::<pg_sys::RangeVar>::from_pg(tables).iter_ptr() {
            let Some(table) = find(name, pg_sys::NoLock, None) else {
                continue;
            };
            reached = if (*name).inh {
                pg_sys::list_concat(reached, compat::find_all_inheritors(table))
            } else {
                pg_sys::lappend_oid(reached, table)
            };
        }
        if cascades {
            // Until nothing refers to what is reached, as ExecuteTruncate() does.
            loop {
                let more = pg_sys::heap_truncate_find_FKs(reached);
                if more.is_null() {
                    break;
                }
                reached = pg_sys::list_concat(reached, more);
            }
        }
        let mut sequences: Vec<_> = oids(reached)
            .iter_oid()
            .flat_map(|table| {
                let owned = oids(pg_sys::getOwnedSequences(table));
                owned.iter_oid().collect::<Vec<_>>()
            })
            .collect();
        sequences.sort_unstable_by_key(|oid| oid.to_u32());
        sequences.dedup();
        sequences
    }
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
        relation: entry.relation(),
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
    /// Writes the mark into the new file of a sequence that was restarted; returns
    /// whether it was.
    fn put_back(&self) -> Result<bool, Error> {
        let relation = self.relation;
        // If a trigger has dropped the generator, the entry may be another one's by now.
        if self.entry.relation() != relation || catalog::file_number(relation) == self.file_number {
            return Ok(false);
        }
        // Without a wait: whoever has rewritten it holds more. Where that was somebody
        // else, it may be gone by now.
        self.entry.lock();
        if catalog::kind(relation) == 0 {
            return Ok(false);
        }
        let Some(mark) = self.mark.max(self.entry.highest_mark()) else {
            return Ok(false);
        };
        // Not restarted, but rewritten with its value.
        if stored(self.entry) == Some(mark) {
            return Ok(false);
        }
        self.entry.check_takes(mark)?;
        mark::write(self.entry, mark.get());
        Ok(true)
    }
}
