//! The durable mark: the row of the generator's sequence, and who wrote it.
//!
//! The mark is an instant in Unix milliseconds; no ID of a tick that begins at or after
//! the mark has been issued. `snowflake_core::protocol` decides when the mark is raised, and
//! to where. This file reads, writes and flushes the mark.
//!
//! # The stamp
//!
//! Only this file writes a stamp, into `log_cnt`: a tag, who the server is, and its timeline.
//! Everybody else leaves 0 there, or up to 32 and CACHE. So a row says by itself who wrote it,
//! whatever has happened to the server, its WAL and this library since.
//!
//! | the row | who leaves it | a generator that starts | one that runs |
//! |---|---|---|---|
//! | an instant, stamp of this server and timeline | [`write()`] | starts there | goes on |
//! | ... of an earlier timeline | [`write()`], before a promotion or a recovery to a point in time | leaves a gap for each promotion since | |
//! | ... of a timeline whose history file is missing | the same | leaves one gap, and the log names the file | |
//! | ... of another server | [`write()`], before `pg_resetwal`, `pg_createsubscriber`, `pg_upgrade`, or the start of a base backup as it is | leaves one gap | writes its mark back |
//! | an instant without a stamp | `setval()` by a person, a tool or a dump; ALTER SEQUENCE without this library; PostgreSQL 19's replication of sequences | leaves one gap, unless the instant is too far ahead | writes its mark back, up or down |
//! | [`UNUSED`], with or without a stamp | [`write_none`]: CREATE EXTENSION, the first label, a restart of an unused generator; a dump of one | as with an instant, but from the clock | writes its mark back |
//! | `is_called` is false | a restart without this library, or TRUNCATE by a subscription | is refused: nobody knows how far it was | writes its mark back |
//! | another number | `setval()` to max(id) | is refused | writes its mark back |
//!
//! A stamp survives what copies the row as it is: a crash, replication, a template database, a new
//! tablespace. DDL of this server keeps it: see [`crate::hooks::commands`].
//!
//! Who the server is: its system identifier, and the `backup_label.old` with which it was started,
//! if it has had no timeline of its own since. That is a copy of the past of another server, or of
//! its own, on the same timeline.
//!
//! # Why not `setval()`
//!
//! It leaves 0 in `log_cnt`, and changes what `currval()` and `lastval()` return in the session
//! that raises the mark. A resource manager of our own would replay only where the library is
//! loaded. A generic WAL record holds the whole page, and the server's own code replays it:
//! 176 bytes with the commit, for 144.
//!
//! # The reservation lock
//!
//! A session that raises the mark holds the generator's reservation lock. This is a
//! heavyweight lock, so that an error or the end of the session releases it. It is not a lock
//! on the relation: an idle transaction with such a lock (COMMENT, SECURITY LABEL) would stop
//! all reservations.
//!
//! The lock is held over our own code only: reading the mark, writing it, and the flush of
//! WAL. No command takes it until the end of its transaction, and its holder waits for no
//! heavyweight lock: it has locked the relation before. So no deadlock goes through it, and a
//! wait for it is a wait for somebody else's flush. `lock_timeout` does not count for that, as
//! it does not for flushes elsewhere. So a session does not queue for the lock: it tries, and
//! sleeps until a holder tells that it has released one (`Shared::mark_raised`). Then it looks
//! first whether there is anything left to do, as XLogFlush() does. A query that is cancelled
//! ends the sleep. An error releases the lock without telling: sleepers look by themselves
//! now and then. The price is that all who sleep are woken, for whichever generator.

use std::cell::Cell;
use std::fs;
use std::io::Read;

use pgrx::pg_sys;

use crate::postgres::compat::{self, SequenceData};
use crate::postgres::{catalog, time};
use crate::server::{os_clock, shmem::Shared};
use crate::session::error::{self, Error};
use crate::session::note;
use snowflake_core::id::UnixMillis;
use snowflake_core::label::generator::Generator;
use snowflake_core::protocol::host::OnDisk;
use snowflake_core::protocol::plan::Author;
use snowflake_core::protocol::slot::Reserving;

/// The reservation lock is an object lock on the sequence with a sub-id that nothing in
/// PostgreSQL takes: it locks relations by other means.
const LOCK_SUB_ID: u16 = 0xF1AE;

/// Runs `f` under the reservation lock, which one session at a time holds for a
/// sequence. If `f` raises an error, aborting the transaction releases the lock.
pub fn reserving<T>(shared: &Shared, relation: pg_sys::Oid, f: impl FnOnce(&Reserving) -> T) -> T {
    lock(shared, relation, || false);
    under_lock(shared, relation, f)
}

/// As [`reserving`]; but if this session has to wait, and finds that `is_done`, `None`.
pub fn reserving_unless<T>(
    shared: &Shared,
    relation: pg_sys::Oid,
    is_done: impl Fn() -> bool,
    f: impl FnOnce(&Reserving) -> T,
) -> Option<T> {
    lock(shared, relation, is_done).then(|| under_lock(shared, relation, f))
}

const LOCK_CLASS: pg_sys::Oid = pg_sys::RelationRelationId;
const LOCK_MODE: pg_sys::LOCKMODE = pg_sys::ExclusiveLock.cast_signed();

/// Takes the reservation lock, see the head of the file; false if that is not needed.
fn lock(shared: &Shared, relation: pg_sys::Oid, is_done: impl Fn() -> bool) -> bool {
    // SAFETY: in a transaction.
    let tried = || unsafe {
        pg_sys::ConditionalLockDatabaseObject(LOCK_CLASS, relation, LOCK_SUB_ID, LOCK_MODE)
    };
    if tried() {
        return true;
    }
    let is_locked = loop {
        // The first time, this does not sleep: from then on the holder wakes this session.
        shared.sleep_until_reserved();
        if is_done() {
            break false;
        }
        if tried() {
            break true;
        }
    };
    compat::end_sleep();
    is_locked
}

fn under_lock<T>(shared: &Shared, relation: pg_sys::Oid, f: impl FnOnce(&Reserving) -> T) -> T {
    let result = f(&Reserving::the_lock_is_held());
    // SAFETY: this session has the lock.
    unsafe { pg_sys::UnlockDatabaseObject(LOCK_CLASS, relation, LOCK_SUB_ID, LOCK_MODE) };
    shared.tell_reservers();
    result
}

/// The mark on disk, if there is one, as this generator wrote it. A value that is no mark is
/// ignored here; a start refuses it. The relation is locked.
pub fn stored(relation: pg_sys::Oid, generator: &Generator) -> Result<Option<UnixMillis>, Error> {
    Ok(row(relation)?.mark(generator))
}

/// What the row of a sequence holds, as in `pg_sequence_data`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Row {
    value: i64,
    stamp: i64,
    is_called: bool,
}

/// The value of a generator's sequence that has no mark yet. Plain `nextval()` fails behind it, and
/// monitors that divide it by MAXVALUE see an unused sequence.
const UNUSED: i64 = 1;

impl Row {
    /// What this server writes now.
    pub fn of(value: i64) -> Self {
        let (stamp, is_called) = (stamp(), true);
        Self {
            value,
            stamp,
            is_called,
        }
    }

    /// Whether it says that there is no mark yet.
    pub const fn is_unused(self) -> bool {
        self.is_called && self.value == UNUSED
    }

    pub const fn is_restarted(self) -> bool {
        !self.is_called
    }

    /// Its value, if it is a mark as this generator wrote it.
    pub fn mark(self, generator: &Generator) -> Option<UnixMillis> {
        let value = self.value().filter(|value| *value > 0)?;
        let now = os_clock::wall().millis();
        Some(generator.read_mark(value, now).ok()?.0)
    }

    fn value(self) -> Option<i64> {
        (self.is_called && self.value != UNUSED).then_some(self.value)
    }

    fn author(self) -> Author {
        // SAFETY: reads shared memory.
        let is_standby = unsafe { pg_sys::RecoveryInProgress() };
        if !self.is_called {
            return Author::Restart;
        } else if is_standby {
            // Nothing is issued, and the timeline is not known yet.
            return Author::Unknown;
        }
        let mine = stamp();
        if self.stamp == mine {
            return Author::Present;
        } else if self.stamp >> TIMELINE_BITS != mine >> TIMELINE_BITS {
            return Author::Unknown;
        }
        let promotions = promotions_since(self.stamp & TIMELINE_MASK);
        Author::Earlier { promotions }
    }
}

/// What the row of a sequence means. The relation is locked.
pub fn read(relation: pg_sys::Oid) -> Result<OnDisk, Error> {
    let row = row(relation)?;
    // With other bounds the sequence may have issued such numbers, which are no marks.
    if row.value < 1 && catalog::check_bounds(relation).is_ok() {
        return Err(error::impossible_mark(
            &catalog::relation_name(relation),
            row.value,
        ));
    }
    Ok(OnDisk {
        value: row.value().filter(|value| *value > 0),
        author: row.author(),
    })
}

/// The last value of a sequence that may not be a generator; `None` if none was
/// issued since the sequence was made or restarted. The relation is locked.
pub fn last_value(relation: pg_sys::Oid) -> Result<Option<i64>, Error> {
    let row = row(relation)?;
    let is_none_yet = row.is_unused() && row.stamp >> TAG_SHIFT == TAG;
    Ok((row.is_called && !is_none_yet).then_some(row.value))
}

/// Reads the row of a sequence. The relation is locked.
pub fn row(relation: pg_sys::Oid) -> Result<Row, Error> {
    with_page(relation, compat::SHARE, |_, _, data| {
        // SAFETY: the buffer is locked.
        let SequenceData {
            last_value: value,
            log_cnt: stamp,
            is_called,
        } = unsafe { data.read() };
        Row {
            value,
            stamp,
            is_called,
        }
    })
}

/// Runs `f` with the open relation, the buffer of its one page, locked in this mode, and its row.
/// The relation is locked, so its file stays.
fn with_page<T>(
    relation: pg_sys::Oid,
    mode: compat::BufferLock,
    f: impl FnOnce(pg_sys::Relation, pg_sys::Buffer, *mut SequenceData) -> T,
) -> Result<T, Error> {
    // SAFETY: the buffer is pinned and locked while `f` runs; an error in there ends the
    // transaction, and with it pin and lock.
    let found = catalog::with_relation(relation, |open| unsafe {
        let buffer = pg_sys::ReadBuffer(open, 0);
        pg_sys::LockBuffer(buffer, mode);
        let page = pg_sys::BufferGetPage(buffer);
        let found = is_sequence_page(page).then(|| f(open, buffer, row_in(page)));
        pg_sys::UnlockReleaseBuffer(buffer);
        found
    });
    found
        .ok_or_else(|| error::no_such_relation(relation))?
        .ok_or_else(|| error::damaged_sequence(&catalog::relation_name(relation)))
}

/// The row is the first item of the first page, as in sequence.c.
///
/// # Safety
/// `page` is that of a sequence.
unsafe fn row_in(page: pg_sys::Page) -> *mut SequenceData {
    // SAFETY: as the caller guarantees.
    unsafe {
        let item = pg_sys::PageGetItem(page, pg_sys::PageGetItemId(page, 1));
        let row = item.cast::<pg_sys::HeapTupleHeaderData>();
        row.byte_add(usize::from((*row).t_hoff)).cast()
    }
}

/// The magic number of sequence.c, in the special space of its page.
const SEQUENCE_MAGIC: u32 = 0x1717;

/// # Safety
/// `page` is a page in a pinned and locked buffer.
unsafe fn is_sequence_page(page: pg_sys::Page) -> bool {
    // SAFETY: as the caller guarantees; the offset is checked to lie within the page.
    unsafe {
        let special = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_special);
        if special == 0 || special + size_of::<u32>() > pg_sys::BLCKSZ as usize {
            return false;
        }
        std::ptr::read_unaligned(page.cast::<u8>().add(special).cast::<u32>()) == SEQUENCE_MAGIC
    }
}

/// Writes a value with this server's stamp, and makes it durable: a mark, or a mark with what is
/// known about clocks. The relation is locked, and the transaction may write.
pub fn write(relation: pg_sys::Oid, value: i64) -> Result<(), Error> {
    put_back(relation, Row::of(value))
}

/// Writes that there is no mark yet, with this server's stamp.
pub fn write_none(relation: pg_sys::Oid) -> Result<(), Error> {
    write(relation, UNUSED)
}

/// Writes a row, whoever wrote it first. The relation is locked, and the transaction may write.
pub fn put_back(relation: pg_sys::Oid, row: Row) -> Result<(), Error> {
    let written = with_page(relation, compat::EXCLUSIVE, |open, buffer, _| {
        // SAFETY: the buffer is locked, and stays so until the record is finished. The server
        // makes the critical section, in which nothing of ours runs.
        unsafe {
            // With an XID, a COMMIT waits for synchronous standbys, as after setval().
            pg_sys::GetTopTransactionId();
            let record = pg_sys::GenericXLogStart(open);
            let whole = pg_sys::GENERIC_XLOG_FULL_IMAGE.cast_signed();
            let page = pg_sys::GenericXLogRegisterBuffer(record, buffer, whole);
            row_in(page).write(SequenceData {
                last_value: row.value,
                log_cnt: row.stamp,
                is_called: row.is_called,
            });
            pg_sys::GenericXLogFinish(record)
        }
    })?;
    // Zero: there is no record, since a crash removes the file, or the file is flushed as a whole.
    if written != 0 {
        // SAFETY: WAL up to a record of this session.
        unsafe { pg_sys::XLogFlush(written) };
    }
    Ok(())
}

// A stamp, from the high bits on: a tag, who the server is, and the low bits of its timeline.

const TAG: i64 = 0x53;
const TAG_SHIFT: u32 = 56;
const TIMELINE_BITS: u32 = 24;
const TIMELINE_MASK: i64 = (1 << TIMELINE_BITS) - 1;
const BACKUP_LABEL_MAX: u64 = 16 * 1024;

thread_local! {
    /// The stamp of this server, which is the same until it is in recovery again; 0: not known yet.
    static STAMP: Cell<i64> = const { Cell::new(0) };
}

/// The stamp of this server, which is not in recovery.
fn stamp() -> i64 {
    if STAMP.get() == 0 {
        // SAFETY: reads shared memory.
        let (timeline, system) = unsafe {
            (
                pg_sys::GetWALInsertionTimeLine(),
                pg_sys::GetSystemIdentifier(),
            )
        };
        let mut copy = Vec::new();
        if let Ok(file) = fs::File::open("backup_label.old") {
            // PostgreSQL writes some hundred bytes. What cannot be read costs a gap.
            let _ = file.take(BACKUP_LABEL_MAX).read_to_end(&mut copy);
        }
        let server = server_of(system, &copy, timeline);
        let timeline = i64::from(timeline) & TIMELINE_MASK;
        STAMP.set(TAG << TAG_SHIFT | i64::from(server) << TIMELINE_BITS | timeline);
    }
    STAMP.get()
}

/// 32 bits that tell servers apart: of the system identifier, and of the backup with which the
/// server was started, if its timeline is still that of the backup.
fn server_of(system: u64, backup_label: &[u8], timeline: pg_sys::TimeLineID) -> u32 {
    let is_of_backup = backup_label.split(|byte| *byte == b'\n').any(|line| {
        let number = line.strip_prefix(b"START TIMELINE: ");
        number.and_then(|number| str::from_utf8(number).ok()?.trim().parse().ok()) == Some(timeline)
    });
    let copy = if is_of_backup { backup_label } else { &[] };
    // FNV-1a: it must be the same with each version of this library.
    let bytes = system.to_le_bytes();
    bytes
        .iter()
        .chain(copy)
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
}

/// How many promotions have taken the server from an earlier timeline to its present one.
fn promotions_since(timeline: i64) -> i64 {
    // SAFETY: not in recovery.
    let current = unsafe { pg_sys::GetWALInsertionTimeLine() };
    // The present timeline comes first. Without a history file, it is alone.
    let history = compat::timeline_history(current);
    let at = history
        .iter()
        .position(|entry| i64::from(entry.tli) & TIMELINE_MASK == timeline);
    let promotions = at.unwrap_or_else(|| {
        note::no_timeline_history(current);
        1
    });
    i64::try_from(promotions).unwrap_or(i64::MAX)
}

/// When the last transaction had committed that this server has replayed since it started.
pub fn last_commit() -> Option<UnixMillis> {
    // SAFETY: reads shared memory of the recovery that has ended.
    let at = unsafe { pg_sys::GetLatestXTime() };
    (at != 0).then(|| time::unix_millis(at))
}
