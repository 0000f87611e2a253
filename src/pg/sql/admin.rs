//! Administration: raising a mark, believing a clock.

use pgrx::datum::Interval;
use pgrx::pg_extern;
use pgrx::pg_sys::{self, panic::ErrorReport};

use super::super::entry::{self, Entry};
use super::super::error::Error;
use super::super::mark::{self, Need};
use super::super::time::{self, Instant};
use super::super::{os_clock, shmem};
use crate::snowflake::clock::UnixNanos;
use crate::snowflake::duration::measured_text;
use crate::snowflake::id::{SnowflakeId, Tick, UnixMillis};

/// `snowflake_advance(generator, id) -> timestamptz`.
#[pg_extern(sql = false)]
fn snowflake_advance_past_id(
    generator: pg_sys::Oid,
    id: i64,
) -> Result<pgrx::datum::TimestampWithTimeZone, ErrorReport> {
    let entry = entry::of(generator);
    advance(entry, |entry| {
        let label = &entry.describe()?.label;
        let layout = label.layout();
        let fields = label.decode(SnowflakeId::new(id))?.fields;
        // The next tick: whoever issued that ID may have issued more in its tick.
        Ok(layout.instant_of(Tick::new(fields.tick.get() + 1)))
    })
}

/// `snowflake_advance(generator, start) -> timestamptz`.
#[pg_extern(sql = false)]
fn snowflake_advance_to(
    generator: pg_sys::Oid,
    start: pgrx::datum::TimestampWithTimeZone,
) -> Result<pgrx::datum::TimestampWithTimeZone, ErrorReport> {
    advance(entry::of(generator), |entry| {
        match time::instant(start.into()) {
            Instant::At(at) => {
                entry.generator().layout.tick_at(at)?;
                Ok(at)
            }
            Instant::Beginning | Instant::End => Err(Error::InfiniteInstant),
        }
    })
}

fn advance(
    entry: &'static Entry,
    target: impl Fn(&Entry) -> Result<UnixMillis, Error>,
) -> Result<pgrx::datum::TimestampWithTimeZone, ErrorReport> {
    Entry::prevent_where_nextval_is(c"snowflake_advance()");
    loop {
        // The same right as setval(); before any other is asked for.
        entry.lock();
        entry.check_is_generator()?;
        entry.check_privilege(pg_sys::ACL_UPDATE)?;
        let place = match entry.place() {
            Some(place) => place,
            None => entry.fill()?,
        };
        let target = target(entry)?;
        mark::reserve(entry, place, Need::Floor(target))?;
        // Void if the sequence changed while we waited for the lock.
        if entry.place().is_some() {
            let layout = entry.generator().layout;
            let next = layout.instant_of(layout.tick_of(place.state.word().position()));
            return Ok(time::to_datum(next.max(target)));
        }
    }
}

/// `snowflake_accept_clock() -> interval`.
#[pg_extern(sql = false)]
fn snowflake_accept_clock() -> Result<Interval, ErrorReport> {
    let shared = shmem::shared()?;
    let jumped = shared.with_clocks(|believed| {
        let reading = os_clock::read();
        let offset = reading.offset();
        let before = UnixNanos::new(std::mem::replace(&mut believed.trusted_offset, offset));
        believed.seen = reading;
        UnixNanos::new(offset).millis_after(before)
    });
    // SAFETY: a variable of this process.
    let lead = shared.accept_leads(unsafe { pg_sys::MyDatabaseId });
    pgrx::log!(
        "snowflake_id: clock accepted, after a jump of {} and with generators {} ahead of it",
        measured_text(jumped),
        measured_text(lead)
    );
    Ok(Interval::from_micros(jumped.saturating_mul(1000)))
}
