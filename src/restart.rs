//! ALTER SEQUENCE and TRUNCATE ... RESTART IDENTITY keep the mark of a generator, and
//! ALTER SEQUENCE its bounds.
//!
//! Restarting a plain sequence asks for its numbers again. Restarting a generator
//! cannot mean that: IDs follow the time, and a restart removes only the knowledge of
//! how far they are. While the server runs, the cursor still has this knowledge; after a
//! server start and before the first ID, nothing has it. So the mark is read before
//! such a command and written after it into the sequence's new file: in the same
//! transaction, and undone with it.
//!
//! A generator is its label. MINVALUE, MAXVALUE and START are of no use to it, but other
//! software sets them on every sequence that it finds in a default, to give each server a
//! range of its own, as Citus does. So these three are set back after the command. A
//! change of the type, of INCREMENT or of CYCLE says that the sequence is to be another
//! one: it stays, and the generator issues nothing until it is undone.
//!
//! Such software does not know labels, either: a sequence that looks like a generator's
//! and has no label gets the one that it has on the coordinator, by a function in
//! sql/citus.sql.
//!
//! A command goes in three parts:
//!
//! 1. Before it: the generators that the command may restart, and that the user may, are
//!    found, and their marks read. A user neither waits for other generators nor takes
//!    their slots. Slots are pinned, so that what other sessions reserve from now on is
//!    remembered there (`Slot::highest`).
//! 2. The command itself. Its errors are PostgreSQL's own and pass through this file
//!    untouched, so nothing here may need to be dropped: what the first part has found
//!    is in memory of the transaction.
//! 3. After it: bounds are set back, and if the sequence has another file now, the latest
//!    known mark is written. The command holds its lock until the transaction ends.
//!
//! ALTER SEQUENCE checks and locks its sequence before all else. The first part does so
//! too, with the same check and lock: when the lock is granted, the name may be another
//! sequence's. TRUNCATE locks tables first; the first part does not, and looks at
//! sequences under a lock that it releases. If a table's name is another table's by the
//! time of the TRUNCATE, the marks of that other table's sequences are not kept.
//!
//! A database without the extension has no generators. There, the price is one test per
//! command.
//!
//! A TRUNCATE that a subscription applies is not a command and does not come through
//! here. A generator without a slot then resumes from the clock.
//!
//! Subscriptions come through here for `subscription.rs`, and two more commands. After DISCARD ALL and DISCARD SEQUENCES,
//! `snowflake_currval()` has no value, like `currval()`. CREATE DATABASE may reuse the
//! OID of a dropped database, and the new sequences can have the OIDs and files of the
//! old ones. Slots are found by these, and what was reserved in the old database has no
//! mark in the new one. So such slots are given up before anybody can connect.

use std::ffi::c_char;

use pgrx::{PgList, pg_sys};

use super::catalog::NO_MARK;
use super::error::{self, Error};
use super::guard::{Guard, Purpose};
use super::session;
use super::session_generator::SessionGenerator;
#[cfg(feature = "pg19")]
use super::subscription;
use super::{catalog, compat, mark, report, shmem, spi};
use snowflake_core::generator::Generator;
use snowflake_core::id::UnixMillis;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

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
        let duty = duty(statement);
        let kept = duty
            .map(|duty| report::guard(|| keep(duty)))
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
            report::guard(|| finish(duty, kept));
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

/// What is known about a generator before the command.
#[derive(Clone, Copy)]
struct SavedMark {
    entry: &'static SessionGenerator,
    relation: pg_sys::Oid,
    was_pinned: bool,
    file_number: u32,
    mark: Option<UnixMillis>,
}

/// The part before the command.
fn keep(duty: Duty) -> Result<&'static [SavedMark], Error> {
    // SAFETY: reads shared memory and variables of this process. If nothing may be
    // written, the command itself will fail.
    let may_write = || unsafe {
        !pg_sys::RecoveryInProgress() && pg_sys::IsTransactionState() && !pg_sys::XactReadOnly
    };
    // SAFETY: names from PostgreSQL's parser.
    let sequences = unsafe {
        match duty {
            Duty::ForgetDatabase(_) | Duty::DiscardLast => return Ok(&[]),
            #[cfg(feature = "pg19")]
            Duty::Subscribe(_) => return Ok(&[]),
            _ if !may_write() || !session::is_extension_here() => return Ok(&[]),
            Duty::Alter(name) => find(name, pg_sys::ShareRowExclusiveLock, compat::OWNS_RELATION)
                .into_iter()
                .collect(),
            Duty::Truncate(tables, cascades) => owned(tables, cascades),
        }
    };
    // Sequences that are no generators, such as new serial columns', get no entry.
    let generators = sequences
        .into_iter()
        .filter(|it| compat::owns(*it) && session::is_generator(*it));
    let kept: Vec<SavedMark> = generators
        .filter_map(|relation| {
            let entry = session::of_sequence(relation);
            entry.with_share_lock(true, |_| look(entry))
        })
        .collect();
    if kept.is_empty() {
        return Ok(&[]);
    }
    // SAFETY: room for that many values, in memory that outlives the command.
    unsafe {
        let size = size_of_val(kept.as_slice());
        let room =
            pg_sys::MemoryContextAlloc(pg_sys::TopTransactionContext, size).cast::<SavedMark>();
        room.copy_from_nonoverlapping(kept.as_ptr(), kept.len());
        Ok(std::slice::from_raw_parts(room, kept.len()))
    }
}

/// The part after the command.
fn finish(duty: Duty, kept: &[SavedMark]) -> Result<(), Error> {
    if let (Duty::ForgetDatabase(name), Ok(shared)) = (duty, shmem::shared()) {
        // SAFETY: in a transaction, which has made the database; its row is visible
        // from the next command on.
        let database = unsafe {
            pg_sys::CommandCounterIncrement();
            pg_sys::get_database_oid(name, true)
        };
        shared.forget(database);
    }
    if matches!(duty, Duty::DiscardLast) {
        session::discard_last();
    }
    #[cfg(feature = "pg19")]
    if let Duty::Subscribe(name) = duty
        && session::is_extension_here()
    {
        // SAFETY: a name from PostgreSQL's parser.
        unsafe { subscription::leave_generators_out(name) };
    }
    if !kept.is_empty() {
        // SAFETY: in a transaction that may write, as the command has.
        unsafe { pg_sys::CommandCounterIncrement() };
    } else if let Duty::Alter(name) = duty {
        // SAFETY: a name from PostgreSQL's parser.
        unsafe { adopt_label(name)? };
    }
    for kept in kept {
        if matches!(duty, Duty::Alter(_)) {
            kept.keep_bounds()?;
        }
        if kept.put_back()? && matches!(duty, Duty::Alter(_)) {
            error::notice::mark_kept(&kept.entry.name()).notice();
        }
        // Other sessions may need the slot before this transaction ends.
        if !kept.was_pinned {
            kept.entry.unpin_unused();
        }
    }
    Ok(())
}

/// Gives a sequence the label of a generator that it has elsewhere, if it looks like one
/// that came without. This server may be a node of a cluster whose manager copies
/// sequences, but no labels: SQL knows.
///
/// # Safety
/// `name` is from PostgreSQL's parser.
unsafe fn adopt_label(name: *mut pg_sys::RangeVar) -> Result<(), Error> {
    // SAFETY: reads shared memory and a variable of this process; the name is valid.
    let relation = unsafe {
        if pg_sys::RecoveryInProgress()
            || pg_sys::IsBinaryUpgrade
            || !session::is_extension_here()
            || !catalog::has_extension(c"citus")
        {
            return Ok(());
        }
        pg_sys::CommandCounterIncrement();
        find(name, pg_sys::NoLock, None)
    };
    let Some(relation) = relation else {
        return Ok(());
    };
    if catalog::kind(relation) != pg_sys::RELKIND_SEQUENCE
        || catalog::sequence_form(relation)?.seqincrement != NO_MARK
        || session::is_generator(relation)
    {
        return Ok(());
    }
    // The function is run as the user in force: it must be the extension's.
    if Guard::take(Purpose::Read)?.is_none() {
        return Ok(());
    }
    let oid = relation.to_u32().to_string();
    spi::value(
        "SELECT _snowflake.adopt_label($1::pg_catalog.oid::pg_catalog.regclass)",
        &[&oid],
    )
    .map(drop)
}

/// The relation of a name, if there is one, checked and locked.
///
/// # Safety
/// `name` is from PostgreSQL's parser, and `check` is a check of PostgreSQL's.
unsafe fn find(
    name: *mut pg_sys::RangeVar,
    lock: u32,
    check: pg_sys::RangeVarGetRelidCallback,
) -> Option<pg_sys::Oid> {
    let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
    let no_argument = std::ptr::null_mut();
    // SAFETY: as the caller guarantees.
    catalog::valid(unsafe {
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::RangeVarGetRelidExtended(name, lock as i32, missing_ok, check, no_argument)
    })
}

/// The sequences that belong to columns of all tables that truncating these tables
/// reaches, found as TRUNCATE finds them.
///
/// # Safety
/// `tables` is a list of names from PostgreSQL's parser.
unsafe fn owned(tables: *mut pg_sys::List, cascades: bool) -> Vec<pg_sys::Oid> {
    // SAFETY: as the caller guarantees; lists of OIDs from PostgreSQL's own functions,
    // in the memory of the command.
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
            // Repeated until no further table is found, as ExecuteTruncate() does.
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

/// What is known about a locked generator; `None` if it cannot have a mark.
fn look(entry: &'static SessionGenerator) -> Option<SavedMark> {
    if entry.is_temporary() {
        return None;
    }
    let was_pinned = entry.is_pinned();
    // With more generators than slots, there may be no slot to pin; then what is
    // reserved before the command gets its lock is not known, only earlier marks. With
    // a label of a later version nothing is reserved.
    if let (Ok(shared), Ok(_)) = (shmem::shared(), entry.learn_label()) {
        let _ = entry.pin(entry.key(), shared);
    }
    Some(SavedMark {
        entry,
        relation: entry.relation(),
        was_pinned,
        file_number: catalog::file_number(entry.relation()),
        // A value that is no mark is not kept: a restart is the way to remove it.
        mark: stored(entry),
    })
}

/// The mark, as far as it can be read: if the label cannot be read, the value is taken
/// for an instant.
fn stored(entry: &SessionGenerator) -> Option<UnixMillis> {
    let described = entry.learn_label();
    let generator = described.map_or(&Generator::DEFAULT, |(it, _)| &it.generator);
    mark::stored(entry.relation(), generator).ok().flatten()
}

impl SavedMark {
    /// Sets MINVALUE, MAXVALUE and START back, if the command has changed nothing else
    /// that matters.
    fn keep_bounds(&self) -> Result<(), Error> {
        let relation = self.relation;
        if self.entry.relation() != relation || catalog::kind(relation) == 0 {
            return Ok(());
        }
        let form = catalog::sequence_form(relation)?;
        let bounds = (form.seqmin, form.seqmax, form.seqstart);
        let is_as_made = form.seqincrement == NO_MARK && form.seqtypid == pg_sys::INT8OID;
        if !is_as_made || form.seqcycle || bounds == (1, NO_MARK, NO_MARK) {
            return Ok(());
        }
        catalog::make_fit(relation, false)?;
        // The first value of the other bounds is no mark, and nextval() would return it.
        if mark::last_value(self.entry.relation())?.is_none() {
            mark::write_none(self.entry.relation());
        }
        error::notice::bounds_kept(&self.entry.name()).notice();
        Ok(())
    }

    /// Writes the mark into the new file of a sequence that was restarted; returns
    /// whether it did so.
    fn put_back(&self) -> Result<bool, Error> {
        let relation = self.relation;
        // If a trigger has dropped the generator, the entry may be another one's now.
        if self.entry.relation() != relation || catalog::file_number(relation) == self.file_number {
            return Ok(false);
        }
        // If the command has rewritten the sequence, it holds a stronger lock, and this
        // does not wait. If another session has, the sequence may be gone by now.
        self.entry.lock();
        if catalog::kind(relation) == 0 {
            return Ok(false);
        }
        let Some(mark) = self.mark.max(self.entry.highest_mark()) else {
            return Ok(false);
        };
        // The sequence was not restarted, but rewritten with its value.
        if stored(self.entry) == Some(mark) {
            return Ok(false);
        }
        self.entry.check_takes(mark)?;
        mark::write(self.entry.relation(), mark.get());
        Ok(true)
    }
}
