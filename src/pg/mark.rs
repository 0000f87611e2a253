//! The durable mark: the value of the generator's sequence, and where in WAL it is.
//!
//! The mark is an instant in Unix milliseconds; no ID of a tick that begins at
//! or after it has been issued. When it is raised, and to where, is decided in
//! `snowflake::server`. Here it is read, written and flushed.

use pgrx::pg_sys;

use super::compat::{self, SequenceData, TimeLineHistoryEntry};
use super::entry::{Entry, NO_MARK};
use super::error::{self, Error};
use super::os_clock;
use crate::snowflake::generator::Generator;
use crate::snowflake::id::UnixMillis;
use crate::snowflake::server::{History, OnDisk};

/// The mark on disk, if there is one, as this generator wrote it. The relation is
/// locked.
pub fn stored(entry: &Entry, generator: &Generator) -> Result<Option<UnixMillis>, Error> {
    let now = os_clock::wall().millis();
    // A value that is no mark says nothing; a start refuses it.
    Ok(read(entry)?
        .value
        .and_then(|value| generator.read_mark(value, now).ok())
        .map(|(mark, _)| mark))
}

/// Reads the one row of the sequence, and the LSN of its page. The relation is locked.
pub fn read(entry: &Entry) -> Result<OnDisk, Error> {
    // SAFETY: the relation is locked, so it exists and its file stays.
    // The buffer is pinned and share-locked while we read it; the row is the
    // first item of the first page, as in sequence.c.
    let (data, lsn) = unsafe {
        #[allow(clippy::cast_possible_wrap)]
        let no_lock = pg_sys::NoLock as i32;
        let relation = pg_sys::relation_open(entry.relation(), no_lock);
        let buffer = pg_sys::ReadBuffer(relation, 0);
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
        let page = pg_sys::BufferGetPage(buffer);
        if !is_sequence_page(page) {
            pg_sys::UnlockReleaseBuffer(buffer);
            pg_sys::relation_close(relation, no_lock);
            return Err(error::damaged_sequence(&entry.name()));
        }
        let item = pg_sys::PageGetItemId(page, 1);
        let row = pg_sys::PageGetItem(page, item).cast::<pg_sys::HeapTupleHeaderData>();
        let data = std::ptr::read(
            row.cast::<u8>()
                .add(usize::from((*row).t_hoff))
                .cast::<SequenceData>(),
        );
        let lsn = pg_sys::BufferGetLSNAtomic(buffer);
        pg_sys::UnlockReleaseBuffer(buffer);
        pg_sys::relation_close(relation, no_lock);
        (data, lsn)
    };
    if data.last_value < 1 {
        return Err(error::impossible_mark(&entry.name(), data.last_value));
    }
    // What CREATE SEQUENCE leaves, whatever START it was given, is no mark either.
    let is_mark = data.is_called && data.last_value != NO_MARK;
    Ok(OnDisk {
        value: is_mark.then_some(data.last_value),
        lsn,
    })
}

/// The magic number of sequence.c, in the special space of its page.
const SEQUENCE_MAGIC: u32 = 0x1717;

/// # Safety
/// `page` is a page in a pinned and locked buffer.
unsafe fn is_sequence_page(page: pg_sys::Page) -> bool {
    // SAFETY: the caller's; the offset is checked to lie within the page.
    unsafe {
        let special = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_special);
        if special == 0 || special + size_of::<u32>() > pg_sys::BLCKSZ as usize {
            return false;
        }
        std::ptr::read_unaligned(page.cast::<u8>().add(special).cast::<u32>()) == SEQUENCE_MAGIC
    }
}

/// Writes a mark and makes it durable: an instant, or one with what is known of
/// clocks.
///
/// As the bootstrap superuser, around this one call: users need USAGE to get
/// IDs, not UPDATE. If `setval()` raises an error, the abort puts the user back.
pub fn write(entry: &Entry, value: i64) {
    // SAFETY: in a transaction that may write; WAL is flushed up to the last
    // record of this backend, which is the one of setval().
    unsafe {
        let mut user = pg_sys::InvalidOid;
        let mut context = 0;
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::SetUserIdAndSecContext(
            pg_sys::BOOTSTRAP_SUPERUSERID.into(),
            context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32,
        );
        pg_sys::OidFunctionCall2Coll(
            pg_sys::F_SETVAL_REGCLASS_INT8.into(),
            pg_sys::InvalidOid,
            pg_sys::Datum::from(entry.relation()),
            pg_sys::Datum::from(value),
        );
        pg_sys::SetUserIdAndSecContext(user, context);
        pg_sys::XLogFlush(pg_sys::XactLastRecEnd);
    }
}

/// What has become of this server since WAL was at a location.
pub fn history(lsn: pg_sys::XLogRecPtr) -> History {
    // SAFETY: reads shared memory of the recovery that has ended.
    let (promoted, last_commit) =
        unsafe { (pg_sys::PromoteIsTriggered(), pg_sys::GetLatestXTime()) };
    History {
        switches: switches_since(lsn),
        promoted,
        last_commit: (last_commit != 0).then(|| super::time::unix_millis(last_commit)),
    }
}

/// How many timelines began at or after a WAL location. A mark written right at
/// the switch was written before it, hence "at".
fn switches_since(lsn: pg_sys::XLogRecPtr) -> i64 {
    // SAFETY: not in recovery, or PreventCommandIfReadOnly had stopped us. The
    // list holds pointers to entries, allocated in this memory context.
    unsafe {
        let current = pg_sys::GetWALInsertionTimeLine();
        if current <= 1 {
            return 0;
        }
        let list = compat::read_timeline_history(current);
        let mut switches = 0;
        let length = if list.is_null() {
            0
        } else {
            usize::try_from((*list).length).unwrap_or(0)
        };
        for index in 0..length {
            let entry = *(*(*list).elements.add(index))
                .ptr_value
                .cast::<TimeLineHistoryEntry>();
            // The oldest timeline has no beginning. A current one without is one
            // whose history file is missing: that counts as a switch.
            let begins = entry.begin != 0 || entry.tli == current;
            if begins && (entry.begin == 0 || lsn <= entry.begin) {
                switches += 1;
            }
        }
        switches
    }
}
