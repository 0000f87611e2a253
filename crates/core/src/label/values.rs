//! The values of a label's keys: how they are read, and how they are written.

use std::ops::RangeInclusive;

use super::LabelError;
use super::grammar::{Pair, is_digits, list};
use crate::id::layout::{EPOCH_MAX, Layout, TICK_MAX};
use crate::id::{Millis, UnixMillis};
use crate::label::duration::{UNITS, as_set, instant_text};
use crate::label::policy::{OnExhausted, OnRollback, SequenceStart};

/// A number below this is no epoch in milliseconds (1973-03-03), but most likely one in
/// seconds, or a year.
const EPOCH_NUMBER_MIN: UnixMillis = UnixMillis::new(100_000_000_000);

pub const ON_ROLLBACK: [(&str, OnRollback); 5] = [
    ("continue", OnRollback::Continue),
    ("wait", OnRollback::Wait),
    ("error", OnRollback::Error),
    ("next_clock", OnRollback::NextClock),
    ("next_worker", OnRollback::NextWorker),
];

pub const ON_EXHAUSTED: [(&str, OnExhausted); 3] = [
    ("wait", OnExhausted::Wait),
    ("error", OnExhausted::Error),
    ("next_clock", OnExhausted::NextClock),
];

/// Reads one of several words.
pub fn choice<T: Copy>(pair: &Pair<'_>, choices: &[(&str, T)]) -> Result<T, LabelError> {
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == pair.value) {
        return Ok(*value);
    }
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    pair.invalid(&format!("It can be {}.", list(&names, "or")))
}

fn choice_text<T: PartialEq>(value: T, choices: &[(&'static str, T)]) -> &'static str {
    let choice = choices.iter().find(|(_, other)| *other == value);
    choice.map_or("", |(text, _)| text)
}

pub fn on_rollback_text(value: OnRollback) -> &'static str {
    choice_text(value, &ON_ROLLBACK)
}

pub fn on_exhausted_text(value: OnExhausted) -> &'static str {
    choice_text(value, &ON_EXHAUSTED)
}

pub fn start(pair: &Pair<'_>) -> Result<SequenceStart, LabelError> {
    let vibrate = pair.value.strip_prefix("vibrate ").filter(|n| is_digits(n));
    match (pair.value.as_str(), vibrate.map(str::parse)) {
        ("zero", _) => Ok(SequenceStart::vibrate(0)),
        ("random", _) => Ok(SequenceStart::Random),
        // The sequence field, which bounds it, has at most 31 bits.
        (_, Some(Ok(last))) if last <= i32::MAX.unsigned_abs() => Ok(SequenceStart::vibrate(last)),
        _ => pair.invalid(
            "It can be zero, random, or 'vibrate N', where N is the largest number that a tick may start with.",
        ),
    }
}

pub fn start_text(value: SequenceStart) -> String {
    match value {
        SequenceStart::Random => "random".to_string(),
        SequenceStart::Masked(0) => "zero".to_string(),
        other => format!("vibrate {}", other.last()),
    }
}

pub fn duration(pair: &Pair<'_>, range: RangeInclusive<Millis>) -> Result<Millis, LabelError> {
    let (key, text) = (pair.key.text, pair.text());
    let (number, unit) = text.split_before(|c| !c.is_ascii_digit());
    let unit = unit.text.trim_start_matches(' ');
    let factor = UNITS.iter().find(|(name, _)| *name == unit);
    // Zero needs no unit.
    let is_zero = unit.is_empty() && number.text.bytes().all(|digit| digit == b'0');
    let problem = if number.text.is_empty() || !unit.chars().all(char::is_alphabetic) {
        format!("{text} is not a duration")
    } else if let Some((_, factor)) = factor.or(is_zero.then_some(&("", 0))) {
        // No number, if the text is too large for one.
        let number = number.text.parse().ok();
        let millis = number.and_then(|number: i64| number.checked_mul(*factor));
        match millis.map(Millis::new).filter(|time| range.contains(time)) {
            Some(time) => return Ok(time),
            None => format!("{key} {text} is out of range"),
        }
    } else if unit.is_empty() {
        format!("duration {text} has no unit")
    } else {
        format!("duration {text} has an unknown unit")
    };
    let [min, max] = [range.start(), range.end()].map(|time| as_set(*time));
    let allowed = format!("It can be {min} to {max}, as a whole number of ms, s, min, h or d.");
    text.error(&problem, &allowed)
}

/// The tick and its divisor, see [`Layout::divisor`].
pub fn tick(pair: &Pair<'_>) -> Result<(Millis, u64), LabelError> {
    let micros = pair.value.strip_suffix("us").map(str::trim_ascii_end);
    let Some(micros) = micros.filter(|number| is_digits(number)) else {
        return Ok((duration(pair, Millis::new(1)..=TICK_MAX)?, 1));
    };
    match micros.parse() {
        Ok(micros @ 1..1000) if 1000 % micros == 0 => Ok((Millis::new(1), 1000 / micros)),
        _ => pair.invalid(
            "A number of us can be 1 to 500, and must divide 1000. From 1 ms on, give ms or s.",
        ),
    }
}

pub fn tick_text(layout: Layout) -> String {
    match layout.divisor() {
        1 => as_set(layout.tick()),
        divisor => format!("{} us", 1000 / divisor),
    }
}

const EPOCH_FORM: &str = "An epoch is an instant from 1970 to 3084 with its offset from UTC, as in '2016-11-01 00:00:00+00' or 2016-11-01Z, or in Unix milliseconds, as in 1477958400000.";

pub fn epoch(pair: &Pair<'_>) -> Result<UnixMillis, LabelError> {
    let text = pair.text();
    // A date with an offset right after it means midnight at that offset.
    let midnight = match pair.value.split_at_checked(10) {
        Some((date, offset)) if offset.starts_with(['Z', '+', '-']) => {
            Some(format!("{date}T00:00:00{offset}"))
        }
        _ => None,
    };
    let epoch = midnight.as_deref().unwrap_or(&pair.value);
    let wrong = |what: &str| text.error(&format!("epoch {text} {what}"), EPOCH_FORM);
    if is_digits(epoch) {
        return match epoch.parse().map(UnixMillis::new) {
            Ok(at) if at == UnixMillis::new(0) || (EPOCH_NUMBER_MIN..=EPOCH_MAX).contains(&at) => {
                Ok(at)
            }
            Ok(small) if small < EPOCH_NUMBER_MIN => text.error(
                &format!("epoch {text} is too small for Unix milliseconds"),
                "If it is in seconds, append 000. A year is written as '2025-01-01 00:00:00+00'.",
            ),
            _ => wrong("is out of range"),
        };
    }
    // Only the forms of PostgreSQL's output and of ISO 8601 are read, not all that the
    // library knows, so that this stays the same when the library learns more.
    let bytes = epoch.as_bytes();
    let of_form = |byte: &u8| byte.is_ascii_digit() || b"-+:. TZ".contains(byte);
    let is_plain = bytes.iter().all(of_form)
        && bytes.get(4) == Some(&b'-')
        && matches!(bytes.get(10), Some(b' ' | b'T'));
    let instant = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let Some(timestamp) = instant(epoch).filter(|_| is_plain) else {
        let date = epoch.get(..10).unwrap_or_default();
        let is_date = epoch == date && instant(&format!("{date}T00:00:00Z")).is_some();
        return if is_date || is_plain && instant(&format!("{epoch}Z")).is_some() {
            text.error(
                &format!("epoch {text} has no offset from UTC"),
                &format!("Without one, it would differ from server to server. {EPOCH_FORM}"),
            )
        } else if is_plain
            && !epoch.contains(':')
            && instant(&format!("{date}T00:00:00Z")).is_some()
        {
            wrong("has no time of day")
        } else {
            text.error(&format!("{text} is not an epoch"), EPOCH_FORM)
        };
    };
    // PostgreSQL takes second 60 for the next minute, the library for second 59.
    let mut time_of_day = bytes.iter().skip(11).filter(|byte| **byte != b':').skip(4);
    let at = UnixMillis::new(timestamp.as_millisecond());
    if (time_of_day.next(), time_of_day.next()) == (Some(&b'6'), Some(&b'0')) {
        wrong("is in a leap second")
    } else if !(UnixMillis::new(0)..=EPOCH_MAX).contains(&at) {
        wrong("is out of range")
    } else if timestamp.subsec_nanosecond() % 1_000_000 != 0 {
        wrong("is not a whole number of milliseconds")
    } else {
        Ok(at)
    }
}

/// An instant in UTC, as a label writes it.
pub fn timestamp_text(at: UnixMillis) -> String {
    let text = instant_text(at);
    let text = text.trim_end_matches(" UTC").trim_end_matches(".000");
    format!("{text}+00")
}
