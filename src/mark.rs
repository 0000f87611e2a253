//! The durable mark: the value of the generator's sequence, and where in WAL it is.
//!
//! The mark is an instant in Unix milliseconds; no ID of a tick that begins at or after
//! the mark has been issued. `snowflake_core::protocol` decides when the mark is raised, and
//! to where. This file reads, writes and flushes the mark.
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

use pgrx::pg_sys;

use super::catalog::NO_MARK;
use super::compat::{self, SequenceData};
use super::error::{self, Error};
use super::shmem::Shared;
use super::{catalog, os_clock, spi, time};
use snowflake_core::generator::Generator;
use snowflake_core::id::UnixMillis;
use snowflake_core::protocol::host::{History, OnDisk};
use snowflake_core::slot::Reserving;

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

/// The mark on disk, if there is one, as this generator wrote it. The relation is
/// locked.
pub fn stored(relation: pg_sys::Oid, generator: &Generator) -> Result<Option<UnixMillis>, Error> {
    let now = os_clock::wall().millis();
    // A value that is no mark is ignored here; a start refuses it.
    let mark = |value| Some(generator.read_mark(value, now).ok()?.0);
    Ok(read(relation)?.value.and_then(mark))
}

/// Reads the one row of the sequence, and the LSN of its page. The relation is locked.
pub fn read(relation: pg_sys::Oid) -> Result<OnDisk, Error> {
    let (data, lsn) = row(relation)?;
    // With other bounds the sequence may have issued such numbers, which are no marks.
    if data.last_value < 1 && catalog::check_bounds(relation).is_ok() {
        return Err(error::impossible_mark(
            &catalog::relation_name(relation),
            data.last_value,
        ));
    }
    let value = issued(&data).filter(|value| *value > 0);
    Ok(OnDisk { value, lsn })
}

/// The last value of the sequence, whether it is a mark or not; `None` if none was
/// issued since the sequence was made or restarted. The relation is locked.
pub fn last_value(relation: pg_sys::Oid) -> Result<Option<i64>, Error> {
    Ok(issued(&row(relation)?.0))
}

/// The value that CREATE SEQUENCE leaves, whatever START was given, was not issued.
fn issued(data: &SequenceData) -> Option<i64> {
    (data.is_called && data.last_value != NO_MARK).then_some(data.last_value)
}

fn row(relation: pg_sys::Oid) -> Result<(SequenceData, pg_sys::XLogRecPtr), Error> {
    // SAFETY: the relation is locked, so its file stays. The buffer is pinned and
    // share-locked while we read it; the row is the first item of the first page, as in
    // sequence.c.
    let read = catalog::with_relation(relation, |open| unsafe {
        let buffer = pg_sys::ReadBuffer(open, 0);
        pg_sys::LockBuffer(buffer, compat::SHARE);
        let page = pg_sys::BufferGetPage(buffer);
        let read = is_sequence_page(page).then(|| {
            let item = pg_sys::PageGetItem(page, pg_sys::PageGetItemId(page, 1));
            let row = item.cast::<pg_sys::HeapTupleHeaderData>();
            let data = row.byte_add(usize::from((*row).t_hoff));
            let lsn = pg_sys::BufferGetLSNAtomic(buffer);
            (data.cast::<SequenceData>().read(), lsn)
        });
        pg_sys::UnlockReleaseBuffer(buffer);
        read
    });
    read.ok_or_else(|| error::no_such_relation(relation))?
        .ok_or_else(|| error::damaged_sequence(&catalog::relation_name(relation)))
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

/// Writes a value and makes it durable: a mark, or a mark with what is known about
/// clocks.
///
/// Runs as the bootstrap superuser, for this one call: users need USAGE to get IDs, not
/// UPDATE.
pub fn write(relation: pg_sys::Oid, value: i64) {
    // SAFETY: in a transaction that may write.
    spi::as_user(pg_sys::BOOTSTRAP_SUPERUSERID.into(), 0, || unsafe {
        let (function, no_collation) = (pg_sys::F_SETVAL_REGCLASS_INT8, pg_sys::InvalidOid);
        let (relation, value) = (relation.into(), value.into());
        pg_sys::OidFunctionCall2Coll(function.into(), no_collation, relation, value);
    });
    // SAFETY: WAL is flushed up to the last record of this backend, that of setval().
    unsafe { pg_sys::XLogFlush(pg_sys::XactLastRecEnd) };
}

/// Writes that there is no mark yet: as a value that was issued, so that plain
/// `nextval()` fails from the start.
pub fn write_none(relation: pg_sys::Oid) {
    write(relation, NO_MARK);
}

/// What has happened to this server since WAL was at a location.
pub fn history(lsn: pg_sys::XLogRecPtr) -> History {
    // SAFETY: reads shared memory of the recovery that has ended.
    let (promoted, last_commit) =
        unsafe { (pg_sys::PromoteIsTriggered(), pg_sys::GetLatestXTime()) };
    History {
        switches: switches_since(lsn),
        promoted,
        last_commit: (last_commit != 0).then(|| time::unix_millis(last_commit)),
    }
}

/// How many timelines began at or after a WAL location. A mark written right at the
/// switch was written before the switch, hence "at".
fn switches_since(lsn: pg_sys::XLogRecPtr) -> i64 {
    // SAFETY: not in recovery, or PreventCommandIfReadOnly would have raised an error.
    let current = unsafe { pg_sys::GetWALInsertionTimeLine() };
    if current <= 1 {
        return 0;
    }
    let history = compat::timeline_history(current);
    // The oldest timeline has no beginning. If the current one has none, its history
    // file is missing: that counts as a switch.
    let switches = history.iter().filter(|entry| match entry.begin {
        0 => entry.tli == current,
        begin => lsn <= begin,
    });
    i64::try_from(switches.count()).unwrap_or(i64::MAX)
}
