//! Conversions between PostgreSQL's `timestamptz` and Unix milliseconds.

use pgrx::pg_sys;

use crate::snowflake::id::{Millis, UnixMillis};

/// 2000-01-01, where PostgreSQL counts microseconds from.
const POSTGRES_EPOCH: UnixMillis = UnixMillis::new(946_684_800_000);

/// A finite `timestamptz`, infinity, or its negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    /// The millisecond that holds it.
    At(UnixMillis),
    /// `infinity`
    End,
    /// `-infinity`
    Beginning,
}

/// Reads a `timestamptz`.
pub fn instant(timestamptz: i64) -> Instant {
    match timestamptz {
        i64::MAX => Instant::End,
        i64::MIN => Instant::Beginning,
        _ => Instant::At(unix_millis(timestamptz)),
    }
}

/// The millisecond that holds a finite `timestamptz`.
pub fn unix_millis(timestamptz: i64) -> UnixMillis {
    POSTGRES_EPOCH.plus(Millis::new(timestamptz.div_euclid(1000)))
}

/// As a `timestamptz`; saturates far outside of what any layout holds.
pub fn timestamptz(at: UnixMillis) -> i64 {
    at.since(POSTGRES_EPOCH).get().saturating_mul(1000)
}

/// For a message, in the session's time zone.
pub fn display(at: UnixMillis) -> String {
    // SAFETY: returns a NUL-terminated string in a static buffer.
    unsafe {
        let text = pg_sys::timestamptz_to_str(timestamptz(at));
        std::ffi::CStr::from_ptr(text)
            .to_string_lossy()
            .into_owned()
    }
}

/// As a value for SQL.
pub fn to_datum(at: UnixMillis) -> pgrx::datum::TimestampWithTimeZone {
    micros_to_datum(timestamptz(at))
}

/// A `timestamptz` as a value for SQL.
pub fn micros_to_datum(timestamptz: i64) -> pgrx::datum::TimestampWithTimeZone {
    pgrx::datum::TimestampWithTimeZone::try_from(timestamptz)
        .unwrap_or_else(|_| pgrx::datum::TimestampWithTimeZone::positive_infinity())
}

/// A duration as a value for SQL.
pub fn interval(lasts: Millis) -> pgrx::datum::Interval {
    pgrx::datum::Interval::from_micros(lasts.get().saturating_mul(1000))
}
