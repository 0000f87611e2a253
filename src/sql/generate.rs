//! Generating IDs.

use pgrx::iter::SetOfIterator;
use pgrx::pg_sys;

use crate::server::shmem;
use crate::session::generator::{self, Purpose, SessionGenerator};
use crate::session::issue::{self, Chunk};
use crate::sql::call::{Call, c_function};
use crate::sql::error::{self, Error};
use snowflake_core::id::SnowflakeId;

/// The largest batch.
const BATCH_MAX: i32 = 100_000;

// `snowflake_nextval([generator]) -> bigint`.
c_function!(snowflake_nextval, |call| {
    let named = call.generator(0);
    let kept = call.kept();
    // SAFETY: null, or as `nextval_slow` sets it: an entry, which is never freed.
    let cached = kept.and_then(|kept| unsafe { kept.get().cast::<SessionGenerator>().as_ref() });
    let cached = cached.filter(|entry| named.is_none_or(|relation| relation == entry.relation()));
    match cached.and_then(issue::next_fast) {
        Some(id) => Ok(id.get()),
        None => nextval_slow(call),
    }
});

#[cold]
fn nextval_slow(call: &Call) -> Result<i64, Error> {
    // Checked before any look-up: this is the first error that a new user meets.
    shmem::shared()?;
    let entry = call.entry(0)?;
    if let Some(kept) = call.kept() {
        kept.set(std::ptr::from_ref(entry).cast_mut().cast());
    }
    issue::next(entry, None).map(|id| id.get())
}

// `snowflake_nextval(generator, fields) -> bigint`.
c_function!(snowflake_nextval_with, |call| {
    shmem::shared()?;
    let entry = call.entry(0)?;
    let given = issue::given(entry, &call.fields(1)?)?;
    issue::next(entry, Some(given)).map(|id| id.get())
});

// `snowflake_nextval_batch(count [, generator]) -> setof bigint`.
c_function!(snowflake_nextval_batch, |call| if call.is_in_from() {
    store_batch(call)
} else {
    call.set(|| batch(call))
});

/// The generator of a batch, how many IDs are left to issue, and the largest chunk.
fn begin_batch(call: &Call) -> Result<(&'static SessionGenerator, u64, u64), Error> {
    shmem::shared()?;
    let entry = call.entry(1)?;
    let count = call.get(0).unwrap_or(0);
    if !(1..=BATCH_MAX).contains(&count) {
        return Err(error::batch_count(count, BATCH_MAX));
    }
    // The layout must be known before its chunk size is.
    let context = entry.context_or_fill(Purpose::Issue)?;
    issue::check_bare(entry, &context)?;
    entry.pending().count_batch();
    let count = u64::from(count.unsigned_abs());
    Ok((entry, count, context.generator.max_chunk()))
}

/// In FROM, PostgreSQL takes all rows before it does anything else, and puts them into a store.
/// To put them there here saves 200 of 1,240 instructions for each row.
fn store_batch(call: &Call) -> Result<pg_sys::Datum, Error> {
    let (entry, mut left, max_chunk) = begin_batch(call)?;
    let rows = call.numbers_store();
    while left > 0 {
        let chunk = issue::next_chunk(entry, left.min(max_chunk))?;
        let mut last = None;
        rows.put(chunk.map(|id| {
            left -= 1;
            last = Some(id);
            id.get()
        }));
        last.into_iter().for_each(|id| entry.set_last_id(id));
    }
    Ok(pg_sys::Datum::from(0))
}

/// Issues IDs chunk by chunk, each chunk when the one before is used up.
///
/// Between two rows of a batch the session may do anything: get IDs elsewhere,
/// change its role, roll back to a savepoint. Then the rest of the chunk is
/// dropped, and further IDs come one at a time.
fn batch(call: &Call) -> Result<SetOfIterator<'static, i64>, Error> {
    let (entry, mut left, mut max_chunk) = begin_batch(call)?;
    let mut chunk = None;
    let mut last = None;
    Ok(SetOfIterator::new(std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        if last.is_some() && (entry.last_id() != last || entry.context().is_none()) {
            max_chunk = 1;
            chunk = None;
        }
        let id = loop {
            if let Some(id) = chunk.as_mut().and_then(Chunk::next) {
                break id;
            }
            match issue::next_chunk(entry, left.min(max_chunk)) {
                Ok(next) => chunk = Some(next),
                Err(error) => error.raise(),
            }
        };
        last = Some(id);
        left -= 1;
        entry.set_last_id(id);
        Some(id.get())
    })))
}

// `snowflake_nextval_block(count [, generator]) -> bigint`.
c_function!(snowflake_nextval_block, |call| {
    let count = call.get::<i32>(0).unwrap_or_default();
    shmem::shared()?;
    let entry = call.entry(1)?;
    let context = entry.context_or_fill(Purpose::Issue)?;
    let max = context.generator.max_block();
    let max = max.ok_or_else(|| error::no_blocks(&entry.name(), context.generator))?;
    match u64::try_from(count) {
        Ok(count) if (1..=max).contains(&count) => {
            issue::next_block(entry, count).map(|id| id.get())
        }
        _ => Err(error::block_count(count, max, &entry.name())),
    }
});

// `snowflake_observe(id [, generator])`.
c_function!(snowflake_observe, |call| {
    shmem::shared()?;
    let entry = call.entry(1)?;
    generator::prevent_where_nextval_is(c"snowflake_observe()");
    issue::observe(entry, SnowflakeId::new(call.number(0)))
});

// `snowflake_currval([generator]) -> bigint`.
c_function!(snowflake_currval, |call| {
    let entry = call.entry(0)?;
    entry.lock_for(pg_sys::ACL_SELECT | pg_sys::ACL_USAGE)?;
    entry.learn()?;
    match entry.last_id() {
        Some(id) => Ok(id.get()),
        None => Err(error::no_currval(&entry.name())),
    }
});
