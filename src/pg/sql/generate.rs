//! Generating IDs.

use pgrx::iter::SetOfIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{pg_extern, pg_guard, pg_sys};

use super::super::entry::Entry;
use super::super::error::{self, Error};
use super::super::issue::{self, Chunk};
use super::super::{catalog, shmem};
use super::call::{Call, c_function, convention};
use crate::snowflake::id::SnowflakeId;

/// The largest batch.
const BATCH_MAX: i32 = 100_000;

// snowflake_nextval is written without #[pg_extern]: it uses fn_extra, and the
// conversions around a generated wrapper would be a good part of its cost.

convention!(snowflake_nextval);

/// `snowflake_nextval([generator regclass]) -> bigint`.
///
/// # Safety
/// Called by PostgreSQL, with no argument or one OID that is not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_nextval(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: PostgreSQL's; flinfo may be null, fn_extra is null or was set
    // below, to an entry that is never freed.
    let (named, cached) = unsafe {
        let cached = match (*fcinfo).flinfo.as_ref() {
            Some(flinfo) => flinfo.fn_extra.cast::<Entry>().as_ref(),
            None => None,
        };
        (Call::new(fcinfo).generator(0), cached)
    };
    if let Some(entry) = cached
        && named.is_none_or(|relation| relation == entry.relation())
        && let Some(id) = issue::next_fast(entry)
    {
        return pg_sys::Datum::from(id.get());
    }
    // SAFETY: as above.
    match unsafe { nextval_slow(fcinfo) } {
        Ok(id) => pg_sys::Datum::from(id),
        Err(error) => error.raise(),
    }
}

/// # Safety
/// As [`snowflake_nextval`].
#[cold]
unsafe fn nextval_slow(fcinfo: pg_sys::FunctionCallInfo) -> Result<i64, Error> {
    // Before any look-up: this is what a new user meets first.
    shmem::shared()?;
    // SAFETY: the caller's; the function is STRICT.
    let entry = unsafe { Call::new(fcinfo) }.entry(0)?;
    // SAFETY: fn_extra is ours to use, and an entry lives as long as the process.
    unsafe {
        if let Some(flinfo) = (*fcinfo).flinfo.as_mut() {
            flinfo.fn_extra = std::ptr::from_ref(entry).cast_mut().cast();
        }
    }
    issue::next(entry).map(|id| id.get())
}

/// IDs chunk by chunk, each when the one before is used up.
///
/// Between two rows of a batch the session may do anything: get IDs elsewhere,
/// change its role, roll back to a savepoint. Then the rest of the chunk is
/// dropped, and further IDs come one at a time.
struct Batch {
    entry: &'static Entry,
    left: u64,
    chunk: Chunk,
    last: Option<SnowflakeId>,
    max_chunk: u64,
}

impl Batch {
    fn next_id(&mut self) -> Result<SnowflakeId, Error> {
        let disturbed = self.last.is_some()
            && (self.entry.last_id() != self.last || self.entry.right().is_none());
        if disturbed {
            self.max_chunk = 1;
        } else if let Some(id) = self.chunk.next() {
            return Ok(id);
        }
        loop {
            self.chunk = issue::next_chunk(self.entry, self.left.min(self.max_chunk))?;
            if let Some(id) = self.chunk.next() {
                return Ok(id);
            }
        }
    }
}

impl Iterator for Batch {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        if self.left == 0 {
            return None;
        }
        let id = match self.next_id() {
            Ok(id) => id,
            Err(error) => error.raise(),
        };
        self.last = Some(id);
        self.left -= 1;
        self.entry.set_last_id(id);
        Some(id.get())
    }
}

/// `snowflake_nextval_batch(count [, generator]) -> setof bigint`.
#[pg_extern(sql = false)]
fn snowflake_nextval_batch(
    count: i32,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Result<SetOfIterator<'static, i64>, ErrorReport> {
    shmem::shared()?;
    // SAFETY: PostgreSQL's; the function is STRICT.
    let entry = unsafe { Call::new(fcinfo) }.entry(1)?;
    if !(1..=BATCH_MAX).contains(&count) {
        return Err(error::batch_count(count, BATCH_MAX).into());
    }
    // The layout must be known before its chunk size is.
    let right = entry.right().map_or_else(|| entry.fill(), Ok)?;
    entry.pending().count_batch();
    let left = u64::from(count.unsigned_abs());
    let max_chunk = right.generator.max_chunk();
    let chunk = issue::next_chunk(entry, left.min(max_chunk))?;
    Ok(SetOfIterator::new(Batch {
        entry,
        left,
        chunk,
        last: None,
        max_chunk,
    }))
}

// `snowflake_currval([generator]) -> bigint`.
c_function!(snowflake_currval, |call| {
    let entry = call.entry(0)?;
    entry.lock();
    entry.learn()?;
    catalog::check_privilege(entry.relation(), pg_sys::ACL_SELECT | pg_sys::ACL_USAGE)?;
    match entry.last_id() {
        Some(id) => Ok(id.get()),
        None => Err(error::no_currval(&entry.name())),
    }
});
