//! Conversions between PostgreSQL's `timestamptz` and Unix milliseconds.

use std::ffi::CStr;

use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::pg_sys;

use crate::postgres::encoding::from_server;
use snowflake_core::id::{Millis, UnixMillis};

/// 2000-01-01, from which PostgreSQL counts microseconds.
const POSTGRES_EPOCH: UnixMillis = UnixMillis::new(946_684_800_000);

/// The first microsecond after the last finite `timestamptz`, in the year 294276:
/// END_TIMESTAMP in datatype/timestamp.h.
const FINITE_END: i64 = 9_223_371_331_200_000_000;

/// The values of `timestamptz` for infinity and its negative.
pub const END: i64 = i64::MAX;
pub const BEGINNING: i64 = i64::MIN;

/// The millisecond that holds a finite `timestamptz`.
pub fn unix_millis(timestamptz: i64) -> UnixMillis {
    POSTGRES_EPOCH.plus(Millis::new(timestamptz.div_euclid(1000)))
}

/// The microseconds of a finite `timestamptz` after [`unix_millis`].
pub fn micros_within(timestamptz: i64) -> u64 {
    timestamptz.rem_euclid(1000).cast_unsigned()
}

/// A finite `timestamptz` in microseconds since 1970.
pub fn unix_micros(timestamptz: i64) -> i64 {
    timestamptz.saturating_add(POSTGRES_EPOCH.get().saturating_mul(1000))
}

/// An instant as a `timestamptz`; infinity if PostgreSQL has none so late.
pub fn timestamptz(at: UnixMillis) -> i64 {
    match at.since(POSTGRES_EPOCH).get().saturating_mul(1000) {
        FINITE_END.. => END,
        micros => micros,
    }
}

/// An instant for a message, in the session's time zone.
pub fn display(at: UnixMillis) -> String {
    // SAFETY: returns a NUL-terminated string in a static buffer.
    let text = unsafe { CStr::from_ptr(pg_sys::timestamptz_to_str(timestamptz(at))) };
    from_server(text)
}

pub fn to_datum(at: UnixMillis) -> TimestampWithTimeZone {
    TimestampWithTimeZone::try_from(timestamptz(at))
        .unwrap_or_else(|_| TimestampWithTimeZone::positive_infinity())
}

/// An instant that lies so many microseconds after `at`.
pub fn to_datum_after(at: UnixMillis, micros: u64) -> TimestampWithTimeZone {
    match timestamptz(at) {
        END => to_datum(at),
        at => TimestampWithTimeZone::try_from(at.saturating_add_unsigned(micros))
            .unwrap_or_else(|_| TimestampWithTimeZone::positive_infinity()),
    }
}

pub fn interval(lasts: Millis) -> Interval {
    Interval::from_micros(lasts.get().saturating_mul(1000))
}
