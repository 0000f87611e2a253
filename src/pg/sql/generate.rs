//! Generating IDs.

use pgrx::iter::SetOfIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{pg_extern, pg_guard, pg_sys};

use super::super::catalog;
use super::super::entry::{self, Entry};
use super::super::error::{self, Error};
use super::super::issue::{self, Chunk};
use crate::snowflake::id::SnowflakeId;

/// The largest batch.
const BATCH_MAX: i32 = 100_000;

// snowflake_nextval is written without #[pg_extern]: it uses fn_extra, and the
// conversions around a generated wrapper would be a good part of its cost.

/// The V1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_nextval() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}

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
    let cached = unsafe {
        match (*fcinfo).flinfo.as_ref() {
            Some(flinfo) => flinfo.fn_extra.cast::<Entry>().as_ref(),
            None => None,
        }
    };
    if let Some(entry) = cached
        // SAFETY: as above.
        && unsafe { argument(fcinfo) }.is_none_or(|relation| relation == entry.relation())
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
#[inline]
unsafe fn argument(fcinfo: pg_sys::FunctionCallInfo) -> Option<pg_sys::Oid> {
    // SAFETY: the caller's; `nargs` tells how many there are.
    unsafe {
        if (*fcinfo).nargs == 0 {
            return None;
        }
        let value = (*(*fcinfo).args.as_ptr()).value.value();
        // An OID datum is 32 bits in a wider word.
        #[allow(clippy::cast_possible_truncation)]
        Some(pg_sys::Oid::from(value as u32))
    }
}

/// # Safety
/// As [`snowflake_nextval`].
#[cold]
unsafe fn nextval_slow(fcinfo: pg_sys::FunctionCallInfo) -> Result<i64, Error> {
    // Before any look-up: this is what a new user meets first.
    super::super::shmem::shared()?;
    // SAFETY: the caller's.
    let relation = match unsafe { argument(fcinfo) } {
        Some(relation) => relation,
        None => entry::default_relation()?,
    };
    let entry = entry::of_sequence(relation);
    // SAFETY: fn_extra is ours to use, and an entry lives as long as the process.
    unsafe {
        if let Some(flinfo) = (*fcinfo).flinfo.as_mut() {
            flinfo.fn_extra = std::ptr::from_ref(entry).cast_mut().cast();
        }
    }
    issue::next(entry).map(|id| id.get())
}

/// `snowflake_nextval_batch(count) -> setof bigint`.
#[pg_extern(sql = false)]
fn snowflake_nextval_batch(count: i32) -> Result<SetOfIterator<'static, i64>, ErrorReport> {
    super::super::shmem::shared()?;
    batch(entry::of_sequence(entry::default_relation()?), count)
}

/// `snowflake_nextval_batch(count, generator) -> setof bigint`.
#[pg_extern(sql = false)]
fn snowflake_nextval_batch_of(
    count: i32,
    generator: pg_sys::Oid,
) -> Result<SetOfIterator<'static, i64>, ErrorReport> {
    super::super::shmem::shared()?;
    batch(entry::of_sequence(generator), count)
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

fn batch(entry: &'static Entry, count: i32) -> Result<SetOfIterator<'static, i64>, ErrorReport> {
    if !(1..=BATCH_MAX).contains(&count) {
        return Err(error::batch_count(count, BATCH_MAX).into());
    }
    // The layout must be known before its chunk size is.
    let right = match entry.right() {
        Some(right) => right,
        None => entry.fill()?,
    };
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

/// `snowflake_currval() -> bigint`.
#[pg_extern(sql = false)]
fn snowflake_currval() -> Result<i64, ErrorReport> {
    currval(entry::of_sequence(entry::default_relation()?))
}

/// `snowflake_currval(generator) -> bigint`.
#[pg_extern(sql = false)]
fn snowflake_currval_of(generator: pg_sys::Oid) -> Result<i64, ErrorReport> {
    currval(entry::of_sequence(generator))
}

fn currval(entry: &Entry) -> Result<i64, ErrorReport> {
    entry.lock();
    entry.learn()?;
    catalog::check_privilege(entry.relation(), pg_sys::ACL_SELECT | pg_sys::ACL_USAGE)?;
    match entry.last_id() {
        Some(id) => Ok(id.get()),
        None => Err(error::no_currval(&entry.name()).into()),
    }
}
