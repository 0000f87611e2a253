//! ALTER SEQUENCE and TRUNCATE ... RESTART IDENTITY keep the mark of a generator, and
//! ALTER SEQUENCE its bounds.
//!
//! Restarting a plain sequence asks for its numbers again. Restarting a generator
//! cannot mean that: IDs follow the time, and a restart removes only the knowledge of
//! how far they are. So the row of the sequence is read before such a command and written after it
//! into the sequence's new file, with the stamp of who wrote it: in the same transaction, and
//! undone with it. The other options of ALTER SEQUENCE write a new file, too, and leave the
//! value without its stamp.
//!
//! A generator is its label. MINVALUE, MAXVALUE and START are of no use to it, but other
//! software sets them on every sequence that it finds in a default, to give each server a
//! range of its own, as Citus does. So these three are set back after the command. A
//! change of the type, of INCREMENT or of CYCLE says that the sequence is to be another
//! one: it stays, and the generator issues nothing until it is undone.
//!
//! Before the command, the generators that it may restart, and that the user may, are found, and
//! their rows read. A user neither waits for other generators nor takes their slots. Slots are
//! pinned, so that what other sessions reserve from now on is remembered there
//! (`Slot::highest`). After it, bounds are set back, and if the row is another one now, the one
//! before is written, or a later mark that is known here. The command holds its lock until the
//! transaction ends.
//!
//! ALTER SEQUENCE checks and locks its sequence before all else. The first part does so
//! too, with the same check and lock: when the lock is granted, the name may be another
//! sequence's. TRUNCATE locks tables first; the first part does not, and looks at
//! sequences under a lock that it releases. If a table's name is another table's by the
//! time of the TRUNCATE, the marks of that other table's sequences are not kept.

use pgrx::{PgList, pg_sys};

use crate::hooks::{error::Error, notice};
use crate::postgres::{catalog, catalog::STEP, compat};
use crate::server::shmem;
use crate::session;
use crate::session::generator::SessionGenerator;
use crate::session::mark::{self, Row};
use snowflake_core::label::generator::Generator;

/// What is known about a generator before the command.
#[derive(Clone, Copy)]
pub struct SavedMark {
    entry: &'static SessionGenerator,
    relation: pg_sys::Oid,
    was_pinned: bool,
    file_number: u32,
    row: Row,
}

/// Saves the marks of those of these sequences that are generators and may be restarted. Others,
/// such as new serial columns', get no entry.
pub fn save(sequences: impl IntoIterator<Item = pg_sys::Oid>) -> &'static [SavedMark] {
    let generators = sequences
        .into_iter()
        .filter(|it| compat::owns(*it) && session::is_generator(*it));
    let saved: Vec<SavedMark> = generators
        .filter_map(|relation| {
            let entry = session::of_sequence(relation);
            entry.with_share_lock(true, |_| look(entry))
        })
        .collect();
    if saved.is_empty() {
        return &[];
    }
    // SAFETY: room for that many values, in memory that outlives the command.
    unsafe {
        let size = size_of_val(saved.as_slice());
        let room =
            pg_sys::MemoryContextAlloc(pg_sys::TopTransactionContext, size).cast::<SavedMark>();
        room.copy_from_nonoverlapping(saved.as_ptr(), saved.len());
        std::slice::from_raw_parts(room, saved.len())
    }
}

/// Puts back what the command has changed. `alters`: it was ALTER SEQUENCE.
pub fn finish(saved: &[SavedMark], alters: bool) -> Result<(), Error> {
    if saved.is_empty() {
        return Ok(());
    }
    // SAFETY: in a transaction that may write, as the command has.
    unsafe { pg_sys::CommandCounterIncrement() };
    for saved in saved {
        if alters {
            saved.keep_bounds()?;
        }
        if saved.put_back()? && alters {
            notice::mark_kept(&saved.entry.name()).notice();
        }
        // Other sessions may need the slot before this transaction ends.
        if !saved.was_pinned {
            saved.entry.unpin_unused();
        }
    }
    Ok(())
}

/// The sequences that belong to columns of all tables that truncating these tables
/// reaches, found as TRUNCATE finds them.
///
/// # Safety
/// `tables` is a list of names from PostgreSQL's parser.
pub unsafe fn owned(tables: *mut pg_sys::List, cascades: bool) -> Vec<pg_sys::Oid> {
    // SAFETY: as the caller guarantees; lists of OIDs from PostgreSQL's own functions,
    // in the memory of the command.
    unsafe {
        let oids = |list| PgList::<pg_sys::Oid>::from_pg(list);
        let mut reached = std::ptr::null_mut();
        for name in PgList::<pg_sys::RangeVar>::from_pg(tables).iter_ptr() {
            let Some(table) = catalog::find(name, pg_sys::NoLock, None) else {
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
        row: mark::row(entry.relation()).ok()?,
    })
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
        let is_as_made = form.seqincrement == STEP && form.seqtypid == pg_sys::INT8OID;
        if !is_as_made || form.seqcycle || bounds == (1, STEP, STEP) {
            return Ok(());
        }
        catalog::make_fit(relation, false)?;
        notice::bounds_kept(&self.entry.name()).notice();
        Ok(())
    }

    /// Writes the row back, or a later mark; returns whether the sequence was restarted.
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
        let now = mark::row(relation)?;
        if now == self.row {
            return Ok(false);
        }
        // If the label cannot be read, the value is taken for an instant.
        let described = self.entry.learn_label();
        let generator = described.map_or(&Generator::DEFAULT, |(it, _)| &it.generator);
        let (before, known) = (self.row.mark(generator), self.entry.highest_mark());
        let row = match known.filter(|known| Some(*known) > before) {
            Some(known) => Row::of(known.get()),
            None if before.is_some() => self.row,
            // It has issued nothing, and stays a generator.
            None if self.row.is_unused() && catalog::check_bounds(relation).is_ok() => self.row,
            // A value that is no mark is not kept: a restart is the way to remove it.
            None => return Ok(false),
        };
        if let Some(mark) = known.max(before) {
            self.entry.check_takes(mark)?;
        }
        mark::put_back(relation, row)?;
        Ok(now.is_restarted() && !row.is_unused())
    }
}
