//! Conversions between PostgreSQL's `timestamptz` and Unix milliseconds.

use std::ffi::CStr;

use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::pg_sys;

use super::error::{self, Error};
use crate::snowflake::id::UnixMillis;

/// 2000-01-01, where PostgreSQL counts microseconds from.
const POSTGRES_EPOCH_MILLIS: i64 = 946_684_800_000;

/// The `timestamptz` that stand for infinity and its negative.
pub const END: i64 = i64::MAX;
pub const BEGINNING: i64 = i64::MIN;

/// The millisecond that holds a `timestamptz`, which has to be finite.
pub fn finite(timestamptz: i64) -> Result<UnixMillis, Error> {
    match timestamptz {
        BEGINNING | END => Err(error::infinite_instant()),
        _ => Ok(unix_millis(timestamptz)),
    }
}

/// The millisecond that holds a finite `timestamptz`.
pub fn unix_millis(timestamptz: i64) -> UnixMillis {
    let millis = timestamptz.div_euclid(1000);
    UnixMillis::new(millis.saturating_add(POSTGRES_EPOCH_MILLIS))
}

/// As a `timestamptz`; saturates far outside of what any layout holds.
pub fn timestamptz(at: UnixMillis) -> i64 {
    at.get()
        .saturating_sub(POSTGRES_EPOCH_MILLIS)
        .saturating_mul(1000)
}

/// For a message, in the session's time zone.
pub fn display(at: UnixMillis) -> String {
    // SAFETY: returns a NUL-terminated string in a static buffer.
    let text = unsafe { CStr::from_ptr(pg_sys::timestamptz_to_str(timestamptz(at))) };
    text.to_string_lossy().into_owned()
}

/// As a value for SQL.
pub fn to_datum(at: UnixMillis) -> TimestampWithTimeZone {
    TimestampWithTimeZone::try_from(timestamptz(at))
        .unwrap_or_else(|_| TimestampWithTimeZone::positive_infinity())
}

/// Milliseconds as a value for SQL.
pub fn interval(millis: i64) -> Interval {
    Interval::from_micros(millis.saturating_mul(1000))
}
