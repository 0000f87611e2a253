//! Administration: raising a mark, believing a clock.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;

use crate::postgres::time;
use crate::server::shmem;
use crate::session::{self, generator, generator::Purpose, issue};
use crate::sql::call::{Call, c_function};
use crate::sql::error::Error;
use snowflake_core::id::{SnowflakeId, Tick, UnixMillis};
use snowflake_core::label::Label;
use snowflake_core::label::duration::exact;

// `snowflake_advance(generator, id) -> timestamptz`.
c_function!(snowflake_advance_past_id, |call| advance(call, |label| {
    let layout = label.layout();
    let fields = label.decode(SnowflakeId::new(call.number(1)))?.fields;
    // The next tick: the issuer of that ID may have issued more IDs in its tick.
    Ok(layout.instant_of(Tick::new(fields.tick.get() + 1)))
}));

// `snowflake_advance(generator, start) -> timestamptz`.
c_function!(snowflake_advance_to, |call| advance(call, |label| {
    let at = call.instant(1)?;
    let _ = label.layout().tick_at(at, 0)?;
    Ok(at)
}));

fn advance(
    call: &Call,
    target: impl Fn(&Label) -> Result<UnixMillis, Error>,
) -> Result<TimestampWithTimeZone, Error> {
    let entry = session::of_named(call.get(0).unwrap_or(pg_sys::InvalidOid))?;
    generator::prevent_where_nextval_is(c"snowflake_advance()");
    loop {
        // The user needs the privilege of setval(), which is checked before any other.
        entry.lock_for(pg_sys::ACL_UPDATE)?;
        let facts = entry.learn()?;
        entry.context_or_fill(Purpose::Advance)?;
        let target = target(&facts.described.label)?;
        // `None` if the sequence changed while we waited for the lock.
        if let Some(from) = issue::advance(entry, target)? {
            return Ok(time::to_datum(from));
        }
    }
}

// `snowflake_accept_clock() -> interval`.
c_function!(snowflake_accept_clock, |_| {
    let (jumped, lead) = shmem::shared()?.accept_clock();
    let (by, ahead) = (exact(jumped), exact(lead));
    pgrx::log!(
        "snowflake_id: clock accepted, after a jump of {by}; generators may be {ahead} ahead of the clock"
    );
    Ok(time::interval(jumped))
});
