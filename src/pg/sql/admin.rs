//! Administration: raising a mark, believing a clock.

use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::pg_extern;
use pgrx::pg_sys::{self, panic::ErrorReport};

use super::super::entry::{self, Entry};
use super::super::error::{self, Error};
use super::super::time::{self, Instant};
use super::super::{catalog, issue, shmem};
use crate::snowflake::duration::measured_text;
use crate::snowflake::id::{SnowflakeId, Tick, UnixMillis};
use crate::snowflake::label::Label;

/// `snowflake_advance(generator, id) -> timestamptz`.
#[pg_extern(sql = false)]
fn snowflake_advance_past_id(
    generator: pg_sys::Oid,
    id: i64,
) -> Result<TimestampWithTimeZone, ErrorReport> {
    let entry = entry::of_sequence(generator);
    advance(entry, |label| {
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
    start: TimestampWithTimeZone,
) -> Result<TimestampWithTimeZone, ErrorReport> {
    advance(entry::of_sequence(generator), |label| {
        match time::instant(start.into()) {
            Instant::At(at) => {
                label.layout().tick_at(at)?;
                Ok(at)
            }
            Instant::Beginning | Instant::End => Err(error::infinite_instant()),
        }
    })
}

fn advance(
    entry: &'static Entry,
    target: impl Fn(&Label) -> Result<UnixMillis, Error>,
) -> Result<TimestampWithTimeZone, ErrorReport> {
    entry::prevent_where_nextval_is(c"snowflake_advance()");
    loop {
        // The same right as setval(); before any other is asked for.
        entry.lock();
        let facts = entry.learn()?;
        catalog::check_privilege(entry.relation(), pg_sys::ACL_UPDATE)?;
        if entry.right().is_none() {
            entry.fill()?;
        }
        let target = target(&facts.described.label)?;
        // Void if the sequence changed while we waited for the lock.
        if let Some(from) = issue::advance(entry, target)? {
            return Ok(time::to_datum(from));
        }
    }
}

/// `snowflake_accept_clock() -> interval`.
#[pg_extern(sql = false)]
fn snowflake_accept_clock() -> Result<Interval, ErrorReport> {
    let (jumped, lead) = shmem::shared()?.accept_clock();
    pgrx::log!(
        "snowflake_id: clock accepted, after a jump of {} and with generators {} ahead of it",
        measured_text(jumped.get()),
        measured_text(lead.get())
    );
    Ok(Interval::from_micros(jumped.get().saturating_mul(1000)))
}
