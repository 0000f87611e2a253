//! Durations and instants in words, in the same units everywhere.

use jiff::{Timestamp, tz::Offset};

use crate::id::{Millis, UnixMillis};

/// The units of labels and messages, in milliseconds, the largest first.
pub const UNITS: [(&str, i64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("min", 60_000),
    ("s", 1000),
    ("ms", 1),
];
/// The mean year of the calendar, which has 97 leap years in 400 years.
const YEAR: (&str, i64) = ("y", 31_556_952_000);
/// The calendar repeats itself after this many years, and milliseconds.
const CYCLE_YEARS: i64 = 400;
const CYCLE: i64 = 146_097 * 86_400_000;

/// A duration in the largest unit that gives a whole number, as a label writes it. For
/// what somebody has set, which reads as it was written.
pub fn as_set(time: Millis) -> String {
    let units = UNITS.into_iter();
    in_units(time, units.filter(|(_, unit)| time.get() % unit == 0))
}

/// A duration as "1 d 2 h 5 ms". For what was measured, which is seldom a whole number
/// of any large unit.
pub fn exact(time: Millis) -> String {
    in_units(time, UNITS.into_iter())
}

/// A duration in its two largest units, years among them; less is left out. For a person
/// who wants a rough idea.
pub fn rounded(time: Millis) -> String {
    let largest = |(_, unit): &(_, i64)| time.get().unsigned_abs() < unit.unsigned_abs();
    let units = [YEAR].into_iter().chain(UNITS);
    in_units(time, units.skip_while(largest).take(2))
}

/// A minus sign applies to the whole.
fn in_units(time: Millis, units: impl Iterator<Item = (&'static str, i64)>) -> String {
    let mut rest = time.get().unsigned_abs();
    let counted = units.map(|(name, unit)| {
        let count = rest / unit.unsigned_abs();
        rest %= unit.unsigned_abs();
        (count, name)
    });
    let counted = counted.filter(|(count, _)| *count > 0);
    let parts: Vec<_> = counted
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let sign = if time < Millis::ZERO { "-" } else { "" };
    match parts.len() {
        0 => "0".to_string(),
        _ => format!("{sign}{}", parts.join(" ")),
    }
}

/// In UTC, with milliseconds; years beyond 9999 just have more digits. jiff ends with
/// 9999, so the instant is moved by whole repetitions of the calendar.
pub fn instant_text(at: UnixMillis) -> String {
    let within = Timestamp::from_millisecond(at.get().rem_euclid(CYCLE)).unwrap_or_default();
    let civil = Offset::UTC.to_datetime(within);
    let year = at.get().div_euclid(CYCLE) * CYCLE_YEARS + i64::from(civil.year());
    format!("{year:04}-{} UTC", civil.strftime("%m-%d %H:%M:%S%.3f"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    #[test]
    fn set_by_somebody() {
        for (millis, text) in [
            (0, "0"),
            (1, "1 ms"),
            (1001, "1001 ms"),
            (90_000, "90 s"),
            (26 * DAY / 24, "26 h"),
            (3650 * DAY, "3650 d"),
            (-90_000, "-90 s"),
        ] {
            assert_eq!(as_set(Millis::new(millis)), text);
        }
    }

    #[test]
    fn measured() {
        for (millis, text) in [
            (0, "0"),
            (5, "5 ms"),
            (1001, "1 s 1 ms"),
            (90_000, "1 min 30 s"),
            (2 * DAY, "2 d"),
            (2 * DAY - 1, "1 d 23 h 59 min 59 s 999 ms"),
            (DAY + 5, "1 d 5 ms"),
            (-61_000, "-1 min 1 s"),
            (i64::MIN, "-106751991167 d 7 h 12 min 55 s 808 ms"),
        ] {
            assert_eq!(exact(Millis::new(millis)), text);
        }
    }

    #[test]
    fn two_largest_units() {
        for (millis, text) in [
            (1, "1 ms"),
            (1001, "1 s 1 ms"),
            (59_999, "59 s 999 ms"),
            (60_999, "1 min"),
            (DAY - 1, "23 h 59 min"),
            (DAY + 3_599_999, "1 d"),
            (2 * DAY + 5 * 3_600_000, "2 d 5 h"),
            (365 * DAY, "365 d"),
            (366 * DAY, "1 y"),
            (4 * 365 * DAY + DAY, "4 y"),
            (8000 * 365 * DAY + 1942 * DAY, "8000 y 2 d"),
            (i64::MAX, "292277024 y 228 d"),
        ] {
            assert_eq!(rounded(Millis::new(millis)), text);
        }
    }
}
