//! The values of a label's keys: how they are read, and how they are written.

use std::ops::RangeInclusive;

use super::LabelError;
use super::grammar::{Placed, is_digits, list};
use crate::snowflake::duration::{UNITS, duration_text};
use crate::snowflake::id::UnixMillis;
use crate::snowflake::layout::EPOCH_MAX;
use crate::snowflake::policy::{OnExhausted, OnRollback, SequenceStart};

/// Numbers below are no epoch in milliseconds (1973-03-03), but most likely one
/// in seconds, or a year.
const EPOCH_NUMBER_MIN: i64 = 100_000_000_000;

/// The values of `on_rollback`.
pub const ON_ROLLBACK: [(&str, OnRollback); 5] = [
    ("continue", OnRollback::Continue),
    ("wait", OnRollback::Wait),
    ("error", OnRollback::Error),
    ("next_clock", OnRollback::NextClock),
    ("next_worker", OnRollback::NextWorker),
];

/// The values of `on_exhausted`.
pub const ON_EXHAUSTED: [(&str, OnExhausted); 3] = [
    ("wait", OnExhausted::Wait),
    ("error", OnExhausted::Error),
    ("next_clock", OnExhausted::NextClock),
];

/// Reads one of some words.
pub fn choice<T: Copy>(
    key: &str,
    text: Placed<&str>,
    choices: &[(&str, T)],
) -> Result<Placed<T>, LabelError> {
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text.value) {
        return Ok(text.with(*value));
    }
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    text.at.error(
        format!("invalid value for {key}: {text}"),
        format!("It can be {}.", list(&names, "or")),
    )
}

fn choice_text<T: PartialEq>(value: T, choices: &[(&'static str, T)]) -> &'static str {
    let choice = choices.iter().find(|(_, other)| *other == value);
    choice.map_or("", |(text, _)| text)
}

/// A value of `on_rollback` as a label writes it.
#[must_use]
pub fn on_rollback_text(value: OnRollback) -> &'static str {
    choice_text(value, &ON_ROLLBACK)
}

/// A value of `on_exhausted` as a label writes it.
#[must_use]
pub fn on_exhausted_text(value: OnExhausted) -> &'static str {
    choice_text(value, &ON_EXHAUSTED)
}

/// Reads where a tick's sequence numbers start.
pub fn start(text: Placed<&str>) -> Result<Placed<SequenceStart>, LabelError> {
    let vibrate = text.value.strip_prefix("vibrate ").filter(|n| is_digits(n));
    let start = match (text.value, vibrate.map(str::parse)) {
        ("zero", _) => SequenceStart::vibrate(0),
        ("random", _) => SequenceStart::Random,
        // The sequence field, which bounds it, has at most 31 bits.
        (_, Some(Ok(last))) if last <= i32::MAX.unsigned_abs() => SequenceStart::vibrate(last),
        _ => {
            return text.at.error(
                format!("invalid value for sequence_start: {text}"),
                "It can be zero, random, or 'vibrate N', where N is the largest number that a tick may start with.",
            );
        }
    };
    Ok(text.with(start))
}

/// A value of `sequence_start` as a label writes it.
#[must_use]
pub fn start_text(value: SequenceStart) -> String {
    match value {
        SequenceStart::Random => "random".to_string(),
        SequenceStart::Masked(0) => "zero".to_string(),
        other => format!("vibrate {}", other.last()),
    }
}

/// Reads a duration in milliseconds.
pub fn duration(
    key: &str,
    text: Placed<&str>,
    range: RangeInclusive<i64>,
) -> Result<Placed<i64>, LabelError> {
    let unit = text.value.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.value.strip_suffix(unit).unwrap_or_default();
    let unit = unit.trim_start_matches(' ');
    let factor = UNITS.iter().find(|(name, _)| *name == unit);
    // Zero needs no unit.
    let is_zero = unit.is_empty() && number.bytes().all(|digit| digit == b'0');
    let problem = if number.is_empty() || !unit.chars().all(char::is_alphabetic) {
        format!("{text} is not a duration")
    } else if let Some((_, factor)) = factor.or(is_zero.then_some(&("", 0))) {
        // No number, if it is too large for one.
        let number = number.parse().ok();
        let millis = number.and_then(|number: i64| number.checked_mul(*factor));
        match millis.filter(|millis| range.contains(millis)) {
            Some(millis) => return Ok(text.with(millis)),
            None => format!("{key} {text} is out of range"),
        }
    } else if unit.is_empty() {
        format!("duration {text} has no unit")
    } else {
        format!("duration {text} has an unknown unit")
    };
    let (min, max) = (duration_text(*range.start()), duration_text(*range.end()));
    let allowed = format!("It can be {min} to {max}, as a whole number of ms, s, min, h or d.");
    text.at.error(problem, allowed)
}

const EPOCH_FORM: &str = "An epoch is an instant from 1970 to 3084 with its offset from UTC, as in '2016-11-01 00:00:00+00', or in Unix milliseconds, as in 1477958400000.";

/// Reads an epoch in Unix milliseconds.
pub fn epoch(text: Placed<&str>) -> Result<Placed<i64>, LabelError> {
    let wrong = |what: &str| text.at.error(format!("epoch {text} {what}"), EPOCH_FORM);
    if is_digits(text.value) {
        return match text.value.parse() {
            Ok(0) => Ok(text.with(0)),
            Ok(millis) if (EPOCH_NUMBER_MIN..=EPOCH_MAX).contains(&millis) => Ok(text.with(millis)),
            Ok(small) if small < EPOCH_NUMBER_MIN => text.at.error(
                format!("epoch {text} is too small for Unix milliseconds"),
                "If it is in seconds, append 000. A year is written as '2025-01-01 00:00:00+00'.",
            ),
            _ => wrong("is out of range"),
        };
    }
    // Only what has the form of PostgreSQL's output or of ISO 8601, not all that
    // the library knows, so that it stays the same when that learns more.
    let bytes = text.value.as_bytes();
    let is_plain = bytes
        .iter()
        .all(|byte| byte.is_ascii_digit() || b"-+:. TZ".contains(byte))
        && bytes.get(4) == Some(&b'-')
        && matches!(bytes.get(10), Some(b' ' | b'T'));
    let instant = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let timestamp = if is_plain { instant(text.value) } else { None };
    let Some(timestamp) = timestamp else {
        if is_plain && instant(&format!("{}Z", text.value)).is_some() {
            return text.at.error(
                format!("epoch {text} has no offset from UTC"),
                format!("Without one, it would differ from server to server. {EPOCH_FORM}"),
            );
        }
        let date = text.value.get(..10).unwrap_or_default();
        if instant(&format!("{date}T00:00:00Z")).is_some() && !text.value.contains(':') {
            return wrong("has no time of day");
        }
        let problem = format!("{text} is not an epoch");
        return text.at.error(problem, EPOCH_FORM);
    };
    // PostgreSQL takes second 60 for the next minute, the library for second 59.
    let mut time_of_day = bytes.iter().skip(11).filter(|byte| **byte != b':').skip(4);
    if (time_of_day.next(), time_of_day.next()) == (Some(&b'6'), Some(&b'0')) {
        return wrong("is in a leap second");
    }
    let millis = timestamp.as_millisecond();
    if !(0..=EPOCH_MAX).contains(&millis) {
        return wrong("is out of range");
    }
    if timestamp.subsec_nanosecond() % 1_000_000 != 0 {
        return wrong("is not a whole number of milliseconds");
    }
    Ok(text.with(millis))
}

/// An instant in UTC, as a label writes it. Up to the year 9999.
#[must_use]
pub fn timestamp_text(at: UnixMillis) -> String {
    let Ok(timestamp) = jiff::Timestamp::from_millisecond(at.get()) else {
        return format!("{} ms after 1970", at.get());
    };
    let digits = if at.get() % 1000 == 0 { 0 } else { 3 };
    let text = format!("{timestamp:.digits$}").replace('T', " ");
    format!("{}+00", text.trim_end_matches('Z'))
}
