//! Labels: what is refused, where and in which words; what is understood; and what is
//! true of every label and of every text.

use std::collections::HashSet;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::id::layout::{
    EPOCH_MAX, FieldRole, FieldsError, Layout, LayoutError, POSITION_BITS_MAX, Stamp,
};
use crate::id::{Millis, SnowflakeId, Tick, UnixMillis};
use crate::label::duration::as_set;
use crate::label::edit::{check_field_name, edit, given, key_at};
use crate::label::generator::Generator;
use crate::label::policy::CLOCK_BITS_MAX;
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::label::presets;
use crate::label::*;

use crate::label::laws;

fn label(text: &str) -> Label {
    Label::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

const NEITHER: &str =
    "Name a preset, or describe the fields, as in layout='time:41 worker:10 sequence:12'.";
const FORM: &str = r#"A label is a list of key=value, separated by spaces, with none around "=". Values with spaces are quoted, as in layout='time:41 worker:10 sequence:12'."#;
const PRESETS: &str = "View snowflake_presets shows the presets.";
const DIGITS: &str = "Numbers are written in decimal digits.";
const VALUES: &str = "A value is a number in decimal digits, or caller if each call gives it.";
const DIFFER: &str = "Time, sequence and clock differ from ID to ID.";
const MODE: &str = "It says how the generator writes the time: give it 0 or 1.";
const NO_EPOCH: &str =
    "Give the epoch, from which the time counts: 2025-01-01Z, for example, or Unix milliseconds.";
const FIELDS: &str = "Fields are written name:bits or name:bits=value, with spaces between, from high to low, as in layout='time:41 worker:10 sequence:12'.";
const NAMES: &str =
    "Names have up to 63 lower-case letters, digits and underscores, and begin with a letter.";
const RESERVED: &str = "These names have a meaning of their own: preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start.";
const EPOCH: &str = "An epoch is an instant from 1970 to 3084 with its offset from UTC, as in '2016-11-01 00:00:00+00' or 2016-11-01Z, or in Unix milliseconds, as in 1477958400000.";
const SECONDS: &str =
    "If it is in seconds, append 000. A year is written as '2025-01-01 00:00:00+00'.";
const OFFSET: &str = "Without one, it would differ from server to server. An epoch is an instant from 1970 to 3084 with its offset from UTC, as in '2016-11-01 00:00:00+00' or 2016-11-01Z, or in Unix milliseconds, as in 1477958400000.";
const TICK: &str = "It can be 1 ms to 10 s, as a whole number of ms, s, min, h or d.";
const MICROS: &str =
    "A number of us can be 1 to 500, and must divide 1000. From 1 ms on, give ms or s.";
const ROLLBACK: &str = "It can be continue, wait, error, next_clock or next_worker.";
const ROOM: &str = "The mark keeps which clocks have been used, and has no room for more.";
const TWICE: &str =
    "The bits of time and sequence, and twice those of the clock, can be 62 together.";
const WAITS: &str = "It is for on_rollback=wait, next_clock and next_worker. snowflake_alter_generator() removes what is given as ''.";
const START: &str = "It can be zero, random, or 'vibrate N', where N is the largest number that a tick may start with.";

/// The text with a mark at the error, the problem, and what is allowed.
#[rustfmt::skip]
const ERRORS: [(&str, &str, &str); 168] = [
    ("‸", r#"neither "layout" nor "preset" is given"#, NEITHER),
    ("  ‸", r#"neither "layout" nor "preset" is given"#, NEITHER),
    ("epoch=0‸", r#"neither "layout" nor "preset" is given"#, NEITHER),
    ("‸resource_type=200", r#"unknown key "resource_type""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start."),
    ("‸layuot='time:41 sequence:12' epoch=0", r#"unknown key "layuot""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start."),
    ("layout=‸\"time:41 sequence:12\" epoch=0", "a value is in double quotes", FORM),
    ("layout='‸time:41,worker:10,sequence:12' epoch=0", r#""time:41,worker:10,sequence:12" has a comma"#, FIELDS),
    ("layout='‸timestamp:41 worker:10 sequence:12' epoch=0", "the layout has no time field", "Add one, such as time:41."),
    ("preset‸", r#""preset" is not followed by "=""#, FORM),
    ("preset‸ = discord", r#""preset" is not followed by "=""#, FORM),
    ("preset=discord epoch‸", r#""epoch" is not followed by "=""#, FORM),
    ("preset=discord ‸é=5", r#"unexpected "é=5""#, FORM),
    ("preset=discord ‸=5", r#"unexpected "=5""#, FORM),
    ("preset=discord ‸, epoch=0", r#"unexpected ", epoch=0""#, FORM),
    ("‸'preset'=discord", r#"unexpected "'preset'=discord""#, FORM),
    ("preset=discord tick='1 ms'‸epoch=0", "a value is not followed by a space", FORM),
    ("preset=discord epoch=2025‸'x'", "a value is not followed by a space", FORM),
    ("preset=discord epoch='2025'‸x", "a value is not followed by a space", FORM),
    ("preset=‸'discord", "a quoted value is not closed", FORM),
    ("layout=‸'time:41 sequence:12 epoch=0", "a quoted value is not closed", FORM),
    ("layout=‸'a''", "a quoted value is not closed", FORM),
    ("preset=discord epoch=0 ‸epoch=1", r#""epoch" is given twice"#, "Give each key once."),
    ("epoch=0 ‸preset=discord", r#""preset" is not first"#, "Put it first: what follows overrides it."),
    ("preset=discord ‸preset=leaf", r#""preset" is given twice"#, "Give each key once."),
    ("preset=‸Discord", r#"unknown preset "Discord""#, PRESETS),
    ("preset=‸", r#"unknown preset """#, PRESETS),
    ("preset='‸discord '", r#"unknown preset "discord ""#, PRESETS),
    ("preset=‸discord,", r#"unknown preset "discord,""#, PRESETS),
    ("preset=discord ‸epok=0", r#"unknown key "epok""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start. Fields that can have a value: worker and process."),
    ("preset=discord ‸Epoch=0", r#"unknown key "Epoch""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start. Fields that can have a value: worker and process."),
    ("preset=discord ‸on_rolback=continue", r#"unknown key "on_rolback""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start. Fields that can have a value: worker and process."),
    ("layout='time:41 sequence:12' ‸epok=0", r#"unknown key "epok""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start."),
    ("preset=default ‸x=1", r#"unknown key "x""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start. Fields that can have a value: worker."),
    ("layout='time:41 sequence:12' epoch=0 ‸shard=5", r#"unknown key "shard""#, "Keys are preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow, max_observe, on_exhausted and sequence_start."),
    ("preset=instagram shard=‸five", r#""five" is not a whole number"#, VALUES),
    ("preset=instagram shard=‸", r#""" is not a whole number"#, VALUES),
    ("preset=instagram shard=‸-1", r#""-1" is not a whole number"#, VALUES),
    ("preset=instagram shard=‸+1", r#""+1" is not a whole number"#, VALUES),
    ("preset=instagram shard=‸8192", r#"value 8192 of field "shard" is out of range"#, "The field holds 0 to 8191."),
    ("preset=instagram shard=‸99999999999999999999", r#"number "99999999999999999999" is out of range"#, "Numbers can be 0 to 18446744073709551615."),
    ("preset=instagram ‸time=1", r#"field "time" cannot have a value"#, DIFFER),
    ("preset=instagram ‸sequence=1", r#"field "sequence" cannot have a value"#, DIFFER),
    ("preset=uniqueid mode=‸2", r#"value 2 of field "mode" is out of range"#, "The field holds 0 to 1."),
    ("preset=multi_clock ‸clock=1", r#"field "clock" cannot have a value"#, DIFFER),
    ("preset=multi_clock ‸clock=1 epoch=0", r#"field "clock" cannot have a value"#, DIFFER),
    ("layout='time:41 sequence:12'‸", "no epoch is given", NO_EPOCH),
    ("preset=random_start‸", r#"preset "random_start" needs an epoch, and none is given"#, NO_EPOCH),
    ("layout='‸' epoch=0", "the layout is empty", FIELDS),
    ("layout=‸ epoch=0", "the layout is empty", FIELDS),
    ("layout='‸time sequence:12' epoch=0", r#""time" is not a field"#, FIELDS),
    ("layout='‸time=5 sequence:12' epoch=0", r#""time=5" is not a field"#, FIELDS),
    ("layout='time:41 ‸Worker:10 sequence:12' epoch=0", r#"field name "Worker" is not valid"#, NAMES),
    ("layout='time:41 ‸:10 sequence:12' epoch=0", r#"field name "" is not valid"#, NAMES),
    ("layout='time:41  ‸größe:10 sequence:12' epoch=0", r#"field name "größe" is not valid"#, NAMES),
    ("layout='time:41 ‸9a:10 sequence:12' epoch=0", r#"field name "9a" is not valid"#, NAMES),
    ("layout='time:41 ‸a234567890123456789012345678901234567890123456789012345678901234:1 sequence:12' epoch=0", r#"field name "a234567890123456789012345678901234567890..." is not valid"#, NAMES),
    ("layout='time:41 ‸epoch:10 sequence:12' epoch=0", r#"a field cannot be called "epoch""#, RESERVED),
    ("layout='time:41 a:3 ‸a:4 sequence:12' epoch=0", r#"field "a" is given twice"#, FIELDS),
    ("layout='time:‸x sequence:12' epoch=0", r#""x" is not a whole number"#, DIGITS),
    ("layout='time:‸ sequence:12' epoch=0", r#""" is not a whole number"#, DIGITS),
    ("layout='time:41 a:2=‸x sequence:12' epoch=0", r#""x" is not a whole number"#, VALUES),
    ("layout='time:41=‸5 sequence:12' epoch=0", r#"field "time" cannot have a value"#, DIFFER),
    ("layout='time:41 a:2=‸Caller sequence:12' epoch=0", r#""Caller" is not a whole number"#, VALUES),
    ("layout='time:41=‸caller sequence:12' epoch=0", r#"field "time" cannot have a value"#, DIFFER),
    ("preset=instagram ‸sequence=caller", r#"field "sequence" cannot have a value"#, DIFFER),
    ("layout='time:41 ‸a:64=caller sequence:12' epoch=0", r#"field "a" has 64 bits"#, "It can have 1 to 63."),
    ("preset=uniqueid mode=‸caller", r#"field "mode" cannot be left to the caller"#, MODE),
    ("layout='time_by_mode:41 mode:1=‸caller a:1 sequence:12' epoch=0", r#"field "mode" cannot be left to the caller"#, MODE),
    ("layout='time:41 a:2=‸ sequence:12' epoch=0", r#""" is not a whole number"#, VALUES),
    ("layout='‸time:64 sequence:12' epoch=0", r#"field "time" has 64 bits"#, "It can have 1 to 63."),
    ("layout='‸time:0 sequence:12' epoch=0", r#"field "time" has 0 bits"#, "It can have 1 to 63."),
    ("layout='‸time:99999999999 sequence:12' epoch=0", r#"field "time" has 99999999999 bits"#, "It can have 1 to 63."),
    ("layout='time:‸99999999999999999999 sequence:12' epoch=0", r#"number "99999999999999999999" is out of range"#, "Numbers can be 0 to 18446744073709551615."),
    ("layout='time:41 ‸sequence:32' epoch=0", r#"field "sequence" has 32 bits"#, "It can have 1 to 31."),
    ("layout='time:41 ‸clock:32 sequence:12' epoch=0", r#"field "clock" has 32 bits"#, "It can have 1 to 31."),
    ("layout='time:41 ‸a:32 sequence:12' epoch=0", r#"field "a" has 32 bits"#, "It can have 1 to 31."),
    ("layout='time:41 ‸a:64=0 sequence:12' epoch=0", r#"field "a" has 64 bits"#, "It can have 1 to 63."),
    ("layout='time_by_mode:41 ‸mode:2 sequence:12' epoch=0", r#"field "mode" has 2 bits"#, "It has 1."),
    ("layout='‸time:41 time_reversed:5 sequence:12' epoch=0", r#"field "time" is one of two of its kind"#, "A layout has one time, one sequence and at most one clock."),
    ("layout='time:41 a:2=‸4 sequence:12' epoch=0", r#"value 4 of field "a" is out of range"#, "The field holds 0 to 3."),
    ("layout='‸worker:10 sequence:12' epoch=0", "the layout has no time field", "Add one, such as time:41."),
    ("layout='‸time_by_mode:41 sequence:12' epoch=0", r#"the layout has "time_by_mode", but no field "mode""#, "Add mode:1, or mode:1=0 for reversed time, mode:1=1 for plain."),
    ("layout='‸time:41 a:20 sequence:12' epoch=0", "the fields have 73 bits together", "A bigint has 64; with up to 63, IDs are never negative."),
    ("layout='‸time:63 sequence:2' epoch=0", "the fields have 65 bits together", "A bigint has 64; with up to 63, IDs are never negative."),
    ("layout='‸time:30 a:20 b:12 sequence:2' epoch=0", "the fields of the worker ID have 32 bits together", "They can have up to 31; give some of them a value."),
    ("preset=discord layout='‸time:41 worker:20 sequence:12'", "the fields have 73 bits together", "A bigint has 64; with up to 63, IDs are never negative."),
    ("preset=discord epoch=‸", r#""" is not an epoch"#, EPOCH),
    ("preset=discord epoch=‸yesterday", r#""yesterday" is not an epoch"#, EPOCH),
    ("preset=discord epoch=‸2025", r#"epoch "2025" is too small for Unix milliseconds"#, SECONDS),
    ("preset=discord epoch=‸1477958400", r#"epoch "1477958400" is too small for Unix milliseconds"#, SECONDS),
    ("preset=discord epoch=‸99999999999", r#"epoch "99999999999" is too small for Unix milliseconds"#, SECONDS),
    ("preset=discord epoch=‸35184372088833", r#"epoch "35184372088833" is out of range"#, EPOCH),
    ("preset=discord epoch=‸99999999999999999999", r#"epoch "99999999999999999999" is out of range"#, EPOCH),
    ("preset=discord epoch=‸-1", r#""-1" is not an epoch"#, EPOCH),
    ("preset=discord epoch=‸2025-01-01", r#"epoch "2025-01-01" has no offset from UTC"#, OFFSET),
    ("preset=discord epoch='‸2025-01-01 Z'", r#"epoch "2025-01-01 Z" has no time of day"#, EPOCH),
    ("preset=discord epoch=‸2025-01-01T", r#"epoch "2025-01-01T" has no time of day"#, EPOCH),
    ("preset=discord epoch=‸2025-02-29Z", r#""2025-02-29Z" is not an epoch"#, EPOCH),
    ("preset=discord epoch=‸2025-01-01z", r#""2025-01-01z" is not an epoch"#, EPOCH),
    ("preset=discord epoch=‸2025-01-01+", r#""2025-01-01+" is not an epoch"#, EPOCH),
    ("preset=discord epoch=‸1969-12-31Z", r#"epoch "1969-12-31Z" is out of range"#, EPOCH),
    ("preset=discord epoch=‸1970-01-01+01", r#"epoch "1970-01-01+01" is out of range"#, EPOCH),
    ("preset=discord epoch='‸2025-01-01 00:00:00'", r#"epoch "2025-01-01 00:00:00" has no offset from UTC"#, OFFSET),
    ("preset=discord epoch=‸2025-01-01T00:00:00", r#"epoch "2025-01-01T00:00:00" has no offset from UTC"#, OFFSET),
    ("preset=discord epoch=‸2025-01-01t00:00:00z", r#""2025-01-01t00:00:00z" is not an epoch"#, EPOCH),
    ("preset=discord epoch='‸2025-02-30 00:00:00+00'", r#""2025-02-30 00:00:00+00" is not an epoch"#, EPOCH),
    ("preset=discord epoch='‸1969-12-31 23:59:59+00'", r#"epoch "1969-12-31 23:59:59+00" is out of range"#, EPOCH),
    ("preset=discord epoch='‸1969-12-31 23:59:59.9999+00'", r#"epoch "1969-12-31 23:59:59.9999+00" is not a whole number of milliseconds"#, EPOCH),
    ("preset=discord epoch='‸1970-01-01 00:59:59+01'", r#"epoch "1970-01-01 00:59:59+01" is out of range"#, EPOCH),
    ("preset=discord epoch='‸3084-12-12 12:41:28.833+00'", r#"epoch "3084-12-12 12:41:28.833+00" is out of range"#, EPOCH),
    ("preset=discord epoch='‸2025-01-01 00:00:00.0001+00'", r#"epoch "2025-01-01 00:00:00.0001+00" is not a whole number of milliseconds"#, EPOCH),
    ("preset=discord epoch='‸2016-12-31 23:59:60+00'", r#"epoch "2016-12-31 23:59:60+00" is in a leap second"#, EPOCH),
    ("preset=discord epoch=‸2016-12-31T235960Z", r#"epoch "2016-12-31T235960Z" is in a leap second"#, EPOCH),
    ("preset=discord epoch='‸2025-01-01 00:00:00 UTC'", r#""2025-01-01 00:00:00 UTC" is not an epoch"#, EPOCH),
    ("preset=discord epoch='‸2025-01-01 00:00:00 +00'", r#""2025-01-01 00:00:00 +00" is not an epoch"#, EPOCH),
    ("preset=discord epoch=2025-01-01 00‸:00:00+00", r#""00" is not followed by "=""#, FORM),
    ("preset=discord epoch='‸ 2025-01-01 00:00:00+00'", r#"" 2025-01-01 00:00:00+00" is not an epoch"#, EPOCH),
    ("preset=discord tick=‸ms", r#""ms" is not a duration"#, TICK),
    ("preset=discord tick=‸", r#""" is not a duration"#, TICK),
    ("preset=discord tick=‸-1", r#""-1" is not a duration"#, TICK),
    ("preset=discord tick=‸10", r#"duration "10" has no unit"#, TICK),
    ("preset=discord tick='‸1.5 s'", r#""1.5 s" is not a duration"#, TICK),
    ("preset=discord tick='‸3 us'", r#"invalid value for tick: "3 us""#, MICROS),
    ("preset=discord tick=‸0us", r#"invalid value for tick: "0us""#, MICROS),
    ("preset=discord tick='‸1000 us'", r#"invalid value for tick: "1000 us""#, MICROS),
    ("preset=discord tick='‸99999999999999999999 us'", r#"invalid value for tick: "99999999999999999999 us""#, MICROS),
    ("preset=discord tick=‸us", r#""us" is not a duration"#, TICK),
    ("preset=discord max_wait='‸10 us'", r#"duration "10 us" has an unknown unit"#, "It can be 0 to 1 min, as a whole number of ms, s, min, h or d."),
    ("preset=discord tick='‸1 S'", r#"duration "1 S" has an unknown unit"#, TICK),
    ("preset=discord tick=‸0", r#"tick "0" is out of range"#, TICK),
    ("preset=discord tick='‸0 s'", r#"tick "0 s" is out of range"#, TICK),
    ("preset=discord tick='‸11 s'", r#"tick "11 s" is out of range"#, TICK),
    ("preset=discord tick='‸10001 ms'", r#"tick "10001 ms" is out of range"#, TICK),
    ("preset=discord tick='‸99999999999999999999 d'", r#"tick "99999999999999999999 d" is out of range"#, TICK),
    ("preset=discord tick='‸9223372036854775807 d'", r#"tick "9223372036854775807 d" is out of range"#, TICK),
    ("preset=discord tick='‸8825400613783079 d'", r#"tick "8825400613783079 d" is out of range"#, TICK),
    ("preset=discord max_rollback='‸999 ms'", r#"max_rollback "999 ms" is out of range"#, "It can be 1 s to 3650 d, as a whole number of ms, s, min, h or d."),
    ("preset=discord max_rollback='‸3651 d'", r#"max_rollback "3651 d" is out of range"#, "It can be 1 s to 3650 d, as a whole number of ms, s, min, h or d."),
    ("preset=leaf max_wait='‸61 s'", r#"max_wait "61 s" is out of range"#, "It can be 0 to 1 min, as a whole number of ms, s, min, h or d."),
    ("preset=discord max_borrow='‸1826 d'", r#"max_borrow "1826 d" is out of range"#, "It can be 0 to 1825 d, as a whole number of ms, s, min, h or d."),
    ("preset=discord on_rollback=‸Wait", r#"invalid value for on_rollback: "Wait""#, ROLLBACK),
    ("preset=discord on_rollback=‸next", r#"invalid value for on_rollback: "next""#, ROLLBACK),
    ("preset=discord on_exhausted=‸fail", r#"invalid value for on_exhausted: "fail""#, "It can be wait, error or next_clock."),
    ("preset=discord sequence_start=‸one", r#"invalid value for sequence_start: "one""#, START),
    ("preset=discord sequence_start='‸vibrate'", r#"invalid value for sequence_start: "vibrate""#, START),
    ("preset=discord sequence_start='‸vibrate  1'", r#"invalid value for sequence_start: "vibrate  1""#, START),
    ("preset=discord sequence_start='‸vibrate 2147483648'", r#"invalid value for sequence_start: "vibrate 2147483648""#, START),
    ("preset=discord sequence_start='‸vibrate +1'", r#"invalid value for sequence_start: "vibrate +1""#, START),
    ("preset=discord sequence_start='‸vibrate 4096'", "sequence_start 4096 is past the end of the sequence field", "The field holds 0 to 4095."),
    ("preset=discord on_rollback=‸next_clock", "on_rollback=next_clock needs a clock field, and the layout has none", "Add one, such as clock:4, or set on_rollback to something else."),
    ("preset=discord on_exhausted=‸next_clock", "on_exhausted=next_clock needs a clock field, and the layout has none", "Add one, such as clock:4, or set on_exhausted to something else."),
    ("preset=mastodon on_rollback=‸next_worker", "on_rollback=next_worker needs a worker field, and the layout has none", "Add one, such as worker:10, or set on_rollback to something else."),
    ("layout='time:31 clock:7 a:1 sequence:5' epoch=0 on_rollback=‸next_clock", "on_rollback=next_clock needs a clock field of at most 6 bits, and the layout has one of 7", ROOM),
    ("preset=‸multi_clock layout='time:31 clock:7 a:1 sequence:5' epoch=0", "on_rollback=next_clock needs a clock field of at most 6 bits, and the layout has one of 7", ROOM),
    ("layout='time:45 clock:3 sequence:12' epoch=0 on_exhausted=‸next_clock on_rollback=next_clock", "on_exhausted=next_clock does not fit the layout", TWICE),
    ("preset=multi_clock layout='time:41 clock:6 sequence:10' epoch=0 on_exhausted=‸next_clock", "on_exhausted=next_clock does not fit the layout", TWICE),
    ("preset=leaf on_rollback=continue ‸max_wait='1 s'", "max_wait has no meaning with on_rollback=continue", WAITS),
    ("preset=leaf on_rollback=error ‸max_wait=0", "max_wait has no meaning with on_rollback=error", WAITS),
    ("preset=multi_clock epoch=0 on_rollback=error ‸max_wait='1 s'", "max_wait has no meaning with on_rollback=error", WAITS),
    ("preset=discord max_borrow='‸12 h 1'", r#""12 h 1" is not a duration"#, "It can be 0 to 1825 d, as a whole number of ms, s, min, h or d."),
    ("preset=discord max_borrow='‸13 h'", r#"max_borrow "13 h" is more than half of max_rollback "1 d""#, "It can be 0 to 12 h: with more, a restart could be refused."),
    ("preset=‸default layout='time:41 sequence:4'", "sequence_start 63 is past the end of the sequence field", "The field holds 0 to 15."),
    ("preset=‸multi_clock layout='time:41 sequence:4' epoch=0", "on_rollback=next_clock needs a clock field, and the layout has none", "Add one, such as clock:4, or set on_rollback to something else."),
    ("preset=baidu max_observe='‸101 ms'", r#"max_observe "101 ms" is more than max_borrow "0""#, "It can be 0 to 0: max_borrow limits observed IDs too."),
    ("preset=default max_observe='‸101 ms'", r#"max_observe "101 ms" is more than max_borrow "100 ms""#, "It can be 0 to 100 ms: max_borrow limits observed IDs too."),
    ("preset=baidu max_borrow='‸999 ms'", r#"max_borrow "999 ms" is less than a tick"#, "It can be 0, or from 1 s on."),
    ("preset=baidu max_rollback='1 s' max_borrow='‸501 ms'", r#"max_borrow "501 ms" is more than half of max_rollback "1 s""#, "It can be 0 to 500 ms: with more, a restart could be refused."),
    ("preset=instagram shard=‸ééééééééééééééééééééééééééééééééééééééééé", r#""éééééééééééééééééééé..." is not a whole number"#, VALUES),
];

#[test]
fn errors_say_where_and_what() {
    for (marked, problem, allowed) in ERRORS {
        let text = marked.replacen('‸', "", 1);
        let error = LabelError {
            at: marked.find('‸').unwrap(),
            problem: problem.to_string(),
            allowed: allowed.to_string(),
        };
        assert_eq!(Label::parse(&text), Err(error), "{marked}");
        laws::hold(&text);
    }
}

#[test]
fn a_label_is_no_book() {
    let fits = format!("preset=discord{}", " ".repeat(TEXT_MAX - 14));
    assert!(Label::parse(&fits).is_ok());
    let error = Label::parse(&format!("{fits} ")).unwrap_err();
    assert_eq!(error.problem, "it has 16385 bytes");
    // The longest label that means something.
    let mut fields = String::from("time:1 sequence:1");
    let mut values = String::new();
    for field in 0..62 {
        let name = format!("{:_<63}", format!("f{field}"));
        fields.push_str(&format!(" {name}:1=0"));
        values.push_str(&format!(" {name}=00000000000000000001"));
    }
    let long = format!("layout='{fields}' epoch=0{values}");
    assert!(long.len() < TEXT_MAX && Label::parse(&long).is_ok());
}

#[test]
fn errors_quote_no_more_than_a_line() {
    for text in [
        format!("preset={}", "x".repeat(5000)),
        format!("{}=1 preset=default", "x".repeat(5000)),
        format!("preset=default {}", "é".repeat(5000)),
        format!("preset=default worker={}", "1".repeat(5000)),
        format!("layout='{}:1'", "é".repeat(5000)),
    ] {
        laws::hold(&text);
        let error = Label::parse(&text).unwrap_err();
        assert!(error.problem.chars().count() < 100, "{error:?}");
    }
}

#[test]
fn defaults() {
    let bare = label("layout='time:41 worker:10 sequence:12' epoch=1735689600000");
    assert_eq!(bare, label("preset=default"));
    assert_eq!(bare, Label::of_default());
    assert_eq!(bare.generator(), Generator::DEFAULT);
    assert_eq!(bare.generator().policy, Policy::DEFAULT);
    assert_eq!(bare.layout(), Layout::DEFAULT);
    assert_eq!(
        bare.to_string(),
        "layout='time:41 worker:10 sequence:12' epoch='2025-01-01 00:00:00+00' tick='1 ms' \
         on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait \
         sequence_start='vibrate 63'"
    );
    // At most a 64th of the sequence numbers is given up.
    for (bits, last) in [
        (1, 0),
        (6, 0),
        (7, 1),
        (8, 3),
        (11, 31),
        (12, 63),
        (13, 63),
        (31, 63),
    ] {
        let narrow = label(&format!("layout='time:31 sequence:{bits}' epoch=0"));
        let start = narrow.generator().policy.sequence_start;
        assert_eq!(start, SequenceStart::vibrate(last), "{bits}");
    }
    // Half of max_rollback, if that is less than 100 ms would be.
    let policy = |text: &str| label(text).generator().policy;
    let short = policy("preset=sonyflake max_rollback='1 s'");
    assert_eq!(short.max_borrow_ticks, 10);
    // Less than a tick counts as nothing, unless the label itself asks for it.
    let coarse = label("preset=default tick='1 s'");
    assert_eq!(coarse.generator().policy.max_borrow_ticks, 0);
    let fine = label("preset=cockroachdb").generator();
    assert_eq!(fine.max_borrow(), Millis::new(100));
    assert!(coarse.to_string().contains("max_borrow=0 "), "{coarse}");
    let waits = policy("preset=sonyflake on_rollback=wait");
    assert_eq!(waits.max_wait, Millis::new(10));
}

#[test]
fn what_follows_a_preset_overrides_it() {
    let base = label("preset=leaf");
    let other = label(
        "preset=leaf epoch=1000000000000 tick='2 s' on_rollback=next_worker max_rollback='2 d' \
         max_wait='1 min' max_borrow='1 h' max_observe='1 min' on_exhausted=error sequence_start='vibrate 99'",
    );
    assert_eq!(other.fields(), base.fields());
    assert_eq!(other.layout().epoch(), UnixMillis::new(1_000_000_000_000));
    assert_eq!(other.layout().tick(), Millis::new(2000));
    assert_eq!(
        other.generator().policy,
        Policy {
            on_rollback: OnRollback::NextWorker,
            max_rollback: Millis::new(2 * 86_400_000),
            max_wait: Millis::new(60_000),
            max_borrow_ticks: 1800,
            max_observe: Some(Millis::new(60_000)),
            on_exhausted: OnExhausted::Error,
            sequence_start: SequenceStart::Modulo(100),
        }
    );
    // The preset's values on waiting belong to its own on_rollback.
    let goes_on = label("preset=leaf on_rollback=continue");
    assert!(!goes_on.to_string().contains("max_wait"), "{goes_on}");
    assert!(base.to_string().contains("max_wait='5 ms'"), "{base}");
    let other = label("preset=discord layout='time:30 sequence:5'");
    assert_eq!(other.layout_text(), "time:30 sequence:5");
    assert_eq!(
        other.layout().epoch(),
        label("preset=discord").layout().epoch()
    );
}

#[test]
fn policies_that_change_clocks() {
    let policy = |text: &str| label(text).generator().policy;
    let clocks = "preset=multi_clock epoch=0";
    // A call may have to wait for a clock to be free, so there is a max_wait.
    let own = label(clocks);
    assert_eq!(policy(clocks).max_wait, Millis::new(10));
    assert!(own.to_string().contains(" max_wait='10 ms' "), "{own}");
    let longer = format!("{clocks} max_wait='2 s'");
    assert_eq!(policy(&longer).max_wait, Millis::new(2000));
    assert!(label(&longer).to_string().contains(" max_wait='2 s' "));
    // The max_wait of a preset stays.
    let other = "preset=leaf layout='time:41 clock:4 worker:6 sequence:12' on_rollback=next_clock";
    assert_eq!(policy(other).max_wait, Millis::new(5));

    // The largest clock fields; and any width, if a rollback does not change clocks.
    let bits = |text: &str| label(text).layout().clock_bits();
    let text = "layout='time:44 clock:6 sequence:12' epoch=0 on_rollback=next_clock";
    assert_eq!(bits(text), 6);
    let text = "layout='time:44 clock:6 sequence:6' epoch=0 on_rollback=next_clock on_exhausted=next_clock";
    assert_eq!(bits(text), 6);
    let text = "layout='time:20 clock:15 sequence:12' epoch=0 on_exhausted=next_clock";
    assert_eq!(bits(text), 15);

    // A tick has as many IDs as all clocks together.
    let through = label(&format!("{clocks} on_exhausted=next_clock"));
    assert!(through.to_string().contains(" on_exhausted=next_clock "));
    let (one, all) = (own.generator().layout, through.generator().layout);
    assert_eq!(one.ids_per_second(), 1_024_000);
    assert_eq!(all.ids_per_second(), 16_384_000);
    // The layout is the same.
    assert_eq!(own.layout(), through.layout());
}

#[test]
fn each_policy_goes_with_each_other_one() {
    let layout = "layout='time:41 clock:3 worker:8 sequence:10' epoch=0";
    for on_rollback in ["continue", "wait", "error", "next_clock", "next_worker"] {
        for on_exhausted in ["wait", "error", "next_clock"] {
            for start in ["zero", "random", "'vibrate 9'"] {
                let text = format!(
                    "{layout} on_rollback={on_rollback} on_exhausted={on_exhausted} sequence_start={start}"
                );
                let label = label(&text);
                assert_eq!(label.check_generates(), Ok(()), "{text}");
                laws::hold(&text);
            }
        }
    }
}

#[test]
fn spaces_and_quotes() {
    let plain = label("preset=shardingsphere max_wait='5 ms' epoch='2016-11-01 00:00:00+00'");
    for text in [
        "preset='shardingsphere' max_wait=5ms epoch=1477958400000",
        "\t preset=shardingsphere\n\r\x0cepoch=2016-11-01T00:00:00Z   max_wait='5   ms' ",
        "preset=shardingsphere layout=' time:41\tworker:010  sequence:12\n' max_wait=0005ms",
    ] {
        assert_eq!(label(text), plain, "{text}");
    }
    // A doubled quote is one quote; nothing that has a meaning contains one.
    let error = Label::parse("preset='a''b'").unwrap_err();
    assert_eq!(error.problem, "unknown preset \"a'b\"");
}

#[test]
fn durations_in_every_unit() {
    let time = |text: &str| {
        let text = format!("preset=default max_rollback='{text}'");
        label(&text).generator().policy.max_rollback
    };
    for (text, expected, printed) in [
        ("1000 ms", 1000, "1 s"),
        ("1001ms", 1001, "1001 ms"),
        ("60 s", 60_000, "1 min"),
        ("90 s", 90_000, "90 s"),
        ("60 min", 3_600_000, "1 h"),
        ("36 h", 129_600_000, "36 h"),
        ("48 h", 172_800_000, "2 d"),
        ("3650 d", 315_360_000_000, "3650 d"),
    ] {
        let expected = Millis::new(expected);
        assert_eq!(time(text), expected, "{text}");
        assert_eq!(as_set(expected), printed);
    }
    for zero in ["0", "00", "0 ms", "0d"] {
        let label = label(&format!("preset=default max_borrow='{zero}'"));
        assert_eq!(label.generator().policy.max_borrow_ticks, 0, "{zero}");
        assert!(label.to_string().contains("max_borrow=0 "), "{label}");
    }
}

#[test]
fn epochs_in_every_form() {
    for (text, millis, printed) in [
        ("0", 0, "1970-01-01 00:00:00+00"),
        ("100000000000", 100_000_000_000, "1973-03-03 09:46:40+00"),
        (
            "35184372088832",
            EPOCH_MAX.get(),
            "3084-12-12 12:41:28.832+00",
        ),
        (
            "1288834974657",
            1_288_834_974_657,
            "2010-11-04 01:42:54.657+00",
        ),
        (
            "1970-01-01 00:00:00.001+00",
            1,
            "1970-01-01 00:00:00.001+00",
        ),
        ("1969-12-31 19:00:00-05", 0, "1970-01-01 00:00:00+00"),
        (
            "2016-11-01 00:00:00+08",
            1_477_929_600_000,
            "2016-10-31 16:00:00+00",
        ),
        (
            "2016-11-01T05:30:00+05:30",
            1_477_958_400_000,
            "2016-11-01 00:00:00+00",
        ),
        (
            "2016-10-31 14:30:00.000000-0930",
            1_477_958_400_000,
            "2016-11-01 00:00:00+00",
        ),
        ("2025-01-01Z", 1_735_689_600_000, "2025-01-01 00:00:00+00"),
        ("2016-11-01+08", 1_477_929_600_000, "2016-10-31 16:00:00+00"),
        (
            "2016-10-31-09:30",
            1_477_906_200_000,
            "2016-10-31 09:30:00+00",
        ),
        (
            "2016-11-01 00:00Z",
            1_477_958_400_000,
            "2016-11-01 00:00:00+00",
        ),
    ] {
        let label = label(&format!("preset=discord epoch='{text}'"));
        assert_eq!(label.layout().epoch().get(), millis, "{text}");
        assert_eq!(timestamp_text(UnixMillis::new(millis)), printed);
        assert!(label.to_string().contains(printed), "{label}");
    }
}

#[test]
fn fixed_fields() {
    let roles = |text: &str| -> Vec<FieldRole> {
        let label = label(text);
        label.fields().iter().map(|field| field.role).collect()
    };
    let instagram = [FieldRole::Time, FieldRole::Fixed(5), FieldRole::Sequence];
    for text in [
        "preset=instagram shard=5",
        "layout='time:41 shard:13=5 sequence:10' epoch=0",
        "layout='time:41 shard:13 sequence:10' epoch=0 shard=5",
        "layout='time:41 shard:13=7 sequence:10' epoch=0 shard=5",
    ] {
        assert_eq!(roles(text), instagram, "{text}");
        assert_eq!(label(text).layout_text(), "time:41 shard:13=5 sequence:10");
    }
    let open = label("preset=ztesoft");
    let fixed = label("preset=ztesoft resource_type=200 region=22");
    assert_eq!(
        (open.layout().max_worker(), fixed.layout().max_worker()),
        ((1 << 22) - 1, 3)
    );
    // A field is a mode only beside a time that it governs.
    assert_eq!(
        roles("preset=uniqueid mode=1").get(3),
        Some(&FieldRole::Mode(Some(1)))
    );
    assert_eq!(
        roles("preset=uniqueid").get(3),
        Some(&FieldRole::Mode(None))
    );
    assert_eq!(
        roles("layout='time:40 mode:1 sequence:1' epoch=0").get(1),
        Some(&FieldRole::Worker)
    );
    // A name that is no key may name a field.
    assert_eq!(
        roles("layout='time:40 and:2 sequence:1' and=3 epoch=0").get(1),
        Some(&FieldRole::Fixed(3))
    );
}

#[test]
fn what_cannot_generate() {
    let problem = |text: &str| label(text).check_generates().map_err(|error| error.problem);
    let nobody = "no field tells the IDs of one server from those of another";
    assert_eq!(
        problem("preset=uniqueid"),
        Err("field \"mode\" has no value".to_string())
    );
    assert_eq!(problem("preset=uniqueid mode=0"), Ok(()));
    assert_eq!(
        problem("layout='time:40 sequence:1' epoch=0"),
        Err(nobody.to_string())
    );
    assert_eq!(
        problem("layout='time_by_mode:40 mode:1=1 clock:4 sequence:1' epoch=0"),
        Err(nobody.to_string())
    );
    assert_eq!(
        problem("layout='time:41 worker:10' epoch=0"),
        Err("the layout has no sequence field".to_string())
    );
    let short = Err("ticks are shorter than 1 ms".to_string());
    assert_eq!(problem("preset=default tick='500 us'"), short);
    assert_eq!(problem("preset=cockroachdb"), short);
    assert_eq!(
        problem("preset=cockroachdb layout='time:48 node:8 sequence:7'"),
        short
    );
    let wide = |bits| format!("time, clock and sequence have {bits} bits together");
    assert_eq!(problem("preset=mastodon"), Err(wide(64)));
    assert_eq!(
        problem("layout='time:41 clock:10 worker:1 sequence:12' epoch=0"),
        Err(wide(63))
    );
    assert_eq!(
        problem("preset=mastodon layout='time:48 worker:2 sequence:14'"),
        Ok(())
    );
    assert_eq!(problem("layout='time:40 a:1=0 sequence:1' epoch=0"), Ok(()));
    assert_eq!(problem("layout='time:40 a:1 sequence:1' epoch=0"), Ok(()));
}

#[test]
fn fields_of_the_caller() {
    let one = label("layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=0");
    assert_eq!(
        one.layout_text(),
        "time:41 tenant:10=caller worker:4 sequence:8"
    );
    let same = label("layout='time:41 tenant:10 worker:4 sequence:8' tenant=caller epoch=0");
    assert_eq!(one, same);
    let fixed = label("layout='time:41 tenant:10=caller worker:4 sequence:8' tenant=5 epoch=0");
    assert_eq!(fixed.fields()[1].role, FieldRole::Fixed(5));
    let preset = label("preset=ztesoft resource_type=caller");
    let names = |label: &Label| -> Vec<String> {
        label
            .caller_fields()
            .map(|field| field.name.clone())
            .collect()
    };
    assert_eq!(names(&preset), ["resource_type"]);
    assert_eq!(names(&fixed), [""; 0]);
    assert!(preset.layout().takes_fields() && !fixed.layout().takes_fields());
    // The error says nothing of the server.
    let error = label("preset=instagram shard=caller").check_generates();
    assert_eq!(
        error.unwrap_err().problem,
        "no field tells the IDs of one server from those of another"
    );
    assert_eq!(one.check_generates(), Ok(()));
    // Exactly the fields that calls give.
    let two = label("layout='time:40 a:3=caller b:2=1 worker:4 c:1=caller sequence:8' epoch=0");
    let given = |named: &[(&str, i64)]| two.given(&values(named));
    assert_eq!(
        given(&[("c", 1), ("a", 5)]),
        Ok(Stamp::new(5 << 15 | 1 << 8))
    );
    assert_eq!(given(&[("a", 0), ("c", 0)]), Ok(Stamp::new(0)));
    let missing = |name: &str| Err(LayoutError::Missing(name.to_string()));
    assert_eq!(given(&[("a", 5)]), missing("c"));
    assert_eq!(given(&[]), missing("a"));
    for unknown in ["b", "worker", "time", "sequence", "A", ""] {
        let error = Err(LayoutError::Unknown(unknown.to_string()));
        assert_eq!(given(&[("a", 1), ("c", 1), (unknown, 1)]), error);
    }
    for value in [-1, 8, i64::MIN, i64::MAX] {
        let error = LayoutError::FieldRange {
            field: "a".to_string(),
            value,
            max: 7,
        };
        assert_eq!(given(&[("a", value), ("c", 1)]), Err(error));
    }
    assert_eq!(label("preset=default").given(&[]), Ok(Stamp::new(0)));
    // The widest field that callers can give.
    let wide = label("layout='time:1 a:62=caller sequence:1' epoch=0");
    let most = (1 << 62) - 1;
    assert_eq!(
        wide.given(&values(&[("a", most)])),
        Ok(Stamp::new(most.unsigned_abs() << 1))
    );
}

fn values(named: &[(&str, i64)]) -> Vec<(String, i64)> {
    named
        .iter()
        .map(|(name, value)| ((*name).to_string(), *value))
        .collect()
}

#[test]
fn encode_refuses_by_name() {
    let shard = label("layout='time:41 shard:13=5 clock:2 sequence:7' epoch=0");
    let encode = |tick, named: &[(&str, i64)]| shard.encode(Tick::new(tick), &values(named));
    // Worked by hand: tick 3, shard 5, clock 2, sequence 7.
    let id = SnowflakeId::new(3 << 22 | 5 << 9 | 2 << 7 | 7);
    assert_eq!(
        encode(3, &[("sequence", 7), ("clock", 2), ("shard", 5)]),
        Ok(id)
    );
    assert_eq!(encode(3, &[("clock", 2), ("sequence", 7)]), Ok(id));
    let without_clock = SnowflakeId::new(3 << 22 | 5 << 9 | 7);
    assert_eq!(encode(3, &[("sequence", 7)]), Ok(without_clock));
    assert_eq!(
        encode(3, &[]),
        Err(LayoutError::Missing("sequence".to_string()))
    );
    for unknown in ["worker", "time", "Shard", ""] {
        let error = Err(LayoutError::Unknown(unknown.to_string()));
        assert_eq!(encode(3, &[("sequence", 7), (unknown, 1)]), error);
    }
    for value in [4, 6] {
        let error = LayoutError::Given {
            field: "shard".to_string(),
            value,
            fixed: 5,
        };
        let shard = i64::try_from(value).unwrap();
        assert_eq!(encode(3, &[("sequence", 7), ("shard", shard)]), Err(error));
    }
    let range = |field: &str, value, max| {
        Err(LayoutError::FieldRange {
            field: field.to_string(),
            value,
            max,
        })
    };
    assert_eq!(encode(3, &[("sequence", 128)]), range("sequence", 128, 127));
    assert_eq!(encode(3, &[("sequence", -1)]), range("sequence", -1, 127));
    assert_eq!(
        encode(3, &[("sequence", 0), ("clock", 4)]),
        range("clock", 4, 3)
    );
    assert_eq!(
        encode(3, &[("sequence", 0), ("shard", 8192)]),
        range("shard", 8192, 8191)
    );
    assert_eq!(
        encode(1 << 41, &[("sequence", 0)]),
        range("time", 1 << 41, (1 << 41) - 1)
    );
    let mode = label("preset=uniqueid");
    let all = [
        ("sequence", 0),
        ("generator_high", 0),
        ("generator_low", 0),
        ("cluster", 0),
    ];
    let missing = Err(LayoutError::Missing("mode".to_string()));
    assert_eq!(mode.encode(Tick::new(1), &values(&all)), missing);
}

#[test]
fn decode_says_what_is_wrong() {
    let two = label("layout='flag:2=1 time:41 shard:3=5 sequence:7' epoch=0");
    let decode = |id: u64| {
        two.decode(SnowflakeId::new(id.cast_signed()))
            .map(|it| it.named)
    };
    let good = 1 << 51 | 9 << 10 | 5 << 7 | 3;
    let named = vec![("flag", 1), ("time", 9), ("shard", 5), ("sequence", 3)];
    assert_eq!(decode(good), Ok(named));
    let fixed = |id: u64, field: &str, value, fixed| {
        Err(LayoutError::Fixed {
            id: id.cast_signed(),
            field: field.to_string(),
            value,
            fixed,
        })
    };
    let other_shard = good ^ 1 << 7;
    assert_eq!(decode(other_shard), fixed(other_shard, "shard", 4, 5));
    // The highest wrong field is named.
    let both = other_shard ^ 1 << 52;
    assert_eq!(decode(both), fixed(both, "flag", 3, 1));
    // A bit above all fields belongs to no field.
    let beyond = both | 1 << 53;
    let not_an_id = LayoutError::NotAnId {
        id: beyond.cast_signed(),
        bits: 53,
    };
    assert_eq!(decode(beyond), Err(not_an_id));
    assert_eq!(
        label("preset=default").decode(SnowflakeId::new(-1)),
        Err(LayoutError::NotAnId { id: -1, bits: 63 })
    );
    // With 64 bits, no ID has a bit above the fields.
    let spread = label("preset=uniqueid_spread");
    assert_eq!(
        spread.decode(SnowflakeId::new(-1)).map(|it| it.named),
        Err(LayoutError::Fixed {
            id: -1,
            field: "mode".to_string(),
            value: 1,
            fixed: 0
        })
    );
}

/// The parts of a label, and the text that a person could have written.
#[derive(Clone, Debug)]
struct Written {
    text: String,
    epoch: i64,
    tick: i64,
    fields: Vec<(String, FieldRole, u32)>,
    policy: Policy,
    max_borrow: i64,
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][a-z0-9_]{0,8}",
        1 => "[a-z][a-z0-9_]{62}",
        1 => prop::sample::select(vec!["mode", "and", "worker", "ms", "time_", "random", "vibrate"])
            .prop_map(str::to_string),
    ]
}

/// Fields that make a layout, in any order.
fn any_fields() -> impl Strategy<Value = Vec<(String, FieldRole, u32)>> {
    let other = (any_name(), 1..=20u32, 0..3, any::<u64>()).prop_map(|(name, bits, role, any)| {
        let role = match role {
            0 => FieldRole::Worker,
            1 => FieldRole::Caller,
            _ => FieldRole::Fixed(any % (1 << bits)),
        };
        (name, role, bits)
    });
    let time = prop::sample::select(vec![
        vec![("time", FieldRole::Time)],
        vec![("time_reversed", FieldRole::TimeReversed)],
        vec![
            ("time_by_mode", FieldRole::TimeByMode),
            ("mode", FieldRole::Mode(None)),
        ],
        vec![
            ("time_by_mode", FieldRole::TimeByMode),
            ("mode", FieldRole::Mode(Some(0))),
        ],
        vec![
            ("time_by_mode", FieldRole::TimeByMode),
            ("mode", FieldRole::Mode(Some(1))),
        ],
    ]);
    let fields = (
        time,
        prop_oneof![3 => 1..=45u32, 1 => 46..=63u32],
        1..=31u32,
        prop::option::of(prop_oneof![1..=CLOCK_BITS_MAX, 1..=31u32]),
        prop::collection::vec(other, 0..5),
    );
    fields
        .prop_flat_map(|(time, time_bits, sequence, clock, mut fields)| {
            // No name is used twice, nor is a name with a meaning of its own.
            let mut taken: HashSet<String> =
                time.iter().map(|(name, _)| (*name).to_string()).collect();
            for own in ["time", "time_reversed", "time_by_mode", "sequence", "clock"] {
                taken.insert(own.to_string());
            }
            fields.retain(|(name, _, _)| taken.insert(name.clone()));
            for (name, role) in time {
                let bits = if name == "mode" { 1 } else { time_bits };
                fields.push((name.to_string(), role, bits));
            }
            fields.push(("sequence".to_string(), FieldRole::Sequence, sequence));
            fields.extend(clock.map(|bits| ("clock".to_string(), FieldRole::Clock, bits)));
            Just(fields).prop_shuffle()
        })
        .prop_filter("a layout", |fields| layout_of(0, 1, fields).is_ok())
}

fn layout_of(
    epoch: i64,
    tick: i64,
    fields: &[(String, FieldRole, u32)],
) -> Result<Layout, FieldsError> {
    let roles: Vec<_> = fields
        .iter()
        .map(|(_, role, bits)| (*role, *bits))
        .collect();
    Layout::new(UnixMillis::new(epoch), Millis::new(tick), &roles)
}

/// The width of a position, for clocks that do not continue in each other.
fn position_bits(fields: &[(String, FieldRole, u32)]) -> u32 {
    let other = |role: &FieldRole| {
        matches!(
            role,
            FieldRole::Worker | FieldRole::Fixed(_) | FieldRole::Caller | FieldRole::Mode(_)
        )
    };
    fields
        .iter()
        .filter(|(_, role, _)| !other(role))
        .map(|(_, _, bits)| bits)
        .sum()
}

/// A duration in any unit that divides it, with or without a space.
fn any_duration_text(millis: i64, unit: Index, space: bool) -> String {
    let units = [
        ("ms", 1),
        ("s", 1000),
        ("min", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    let fit: Vec<_> = units
        .iter()
        .filter(|(_, unit)| millis % unit == 0)
        .collect();
    let (name, unit) = unit.get(&fit);
    format!("{}{}{name}", millis / unit, if space { " " } else { "" })
}

/// An epoch as a number, where that is allowed, or with any offset.
fn any_epoch_text(millis: i64, offset: i64, number: bool) -> String {
    if number && (millis == 0 || millis >= 100_000_000_000) {
        return millis.to_string();
    }
    let local = timestamp_text(UnixMillis::new(millis + offset * 60_000));
    let sign = if offset < 0 { '-' } else { '+' };
    let (hours, minutes) = (offset.abs() / 60, offset.abs() % 60);
    format!(
        "{}{sign}{hours:02}:{minutes:02}",
        local.strip_suffix("+00").unwrap()
    )
}

fn any_written() -> impl Strategy<Value = Written> {
    let millis = |max: i64| prop_oneof![0..=max, (0..=max / 1000).prop_map(|s| s * 1000)];
    let rollback = prop::sample::select(vec![
        OnRollback::Continue,
        OnRollback::Wait,
        OnRollback::Error,
        OnRollback::NextClock,
        OnRollback::NextWorker,
    ]);
    let exhausted = prop::sample::select(vec![
        OnExhausted::Wait,
        OnExhausted::Error,
        OnExhausted::NextClock,
    ]);
    let policy = (
        rollback,
        millis(315_360_000_000).prop_map(|m| m.max(1000)),
        millis(60_000),
        any::<u64>(),
        exhausted,
        prop::option::of(prop_oneof![0..100u32, 0..=u32::MAX]),
        prop::option::of(any::<u64>()),
    );
    let looks = (
        any::<[Index; 5]>(),
        -25 * 60..=25 * 60i64,
        any::<[bool; 4]>(),
        Just((0..8usize).collect::<Vec<_>>()).prop_shuffle(),
    );
    let epoch = prop_oneof![Just(0), Just(EPOCH_MAX.get()), 0..=EPOCH_MAX.get()];
    (epoch, 1..=10_000i64, any_fields(), policy, looks).prop_map(
        |(epoch, tick, fields, policy, (units, offset, flags, order))| {
            let (
                mut on_rollback,
                max_rollback,
                max_wait,
                borrow,
                mut on_exhausted,
                start,
                observe,
            ) = policy;
            let layout = layout_of(epoch, tick, &fields).unwrap();
            let clocks = 1..=CLOCK_BITS_MAX;
            let lacks_clock =
                on_rollback == OnRollback::NextClock && !clocks.contains(&layout.clock_bits());
            let lacks_worker = on_rollback == OnRollback::NextWorker && !layout.has_worker();
            if lacks_clock || lacks_worker {
                on_rollback = OnRollback::Continue;
            }
            let widest = layout.clock_bits() + position_bits(&fields);
            if on_exhausted == OnExhausted::NextClock
                && (layout.clock_bits() == 0 || widest > POSITION_BITS_MAX)
            {
                on_exhausted = OnExhausted::Wait;
            }
            let max_borrow = i64::try_from(borrow % (max_rollback / 2 + 1).unsigned_abs()).unwrap();
            let max_borrow = if max_borrow < tick { 0 } else { max_borrow };
            let max_observe =
                observe.map(|it| i64::try_from(it % (max_borrow + 1).unsigned_abs()).unwrap());
            let sequence_start = match start {
                None => SequenceStart::Random,
                Some(any) => SequenceStart::vibrate(
                    u32::try_from(u64::from(any) % (layout.max_sequence() + 1)).unwrap(),
                ),
            };
            let waits = matches!(
                on_rollback,
                OnRollback::Wait | OnRollback::NextClock | OnRollback::NextWorker
            );
            let policy = Policy {
                on_rollback,
                max_rollback: Millis::new(max_rollback),
                max_wait: Millis::new(if waits { max_wait } else { 10 }),
                max_borrow_ticks: (max_borrow / tick).unsigned_abs(),
                max_observe: max_observe.map(Millis::new),
                on_exhausted,
                sequence_start,
            };
            // Values of fields stand in the layout, or after it.
            let mut pairs = vec![];
            let mut words = vec![];
            for (name, role, bits) in &fields {
                match role {
                    FieldRole::Fixed(value) | FieldRole::Mode(Some(value)) if flags[0] => {
                        pairs.push((name.as_str(), value.to_string()));
                        words.push(format!("{name}:{bits}"));
                    }
                    FieldRole::Fixed(value) | FieldRole::Mode(Some(value)) => {
                        words.push(format!("{name}:{bits}={value}"));
                    }
                    FieldRole::Caller if flags[0] => {
                        pairs.push((name.as_str(), "caller".to_string()));
                        words.push(format!("{name}:{bits}"));
                    }
                    FieldRole::Caller => words.push(format!("{name}:{bits}=caller")),
                    _ => words.push(format!("{name}:{bits}")),
                }
            }
            pairs.push(("layout", words.join(" ")));
            pairs.push(("epoch", any_epoch_text(epoch, offset, flags[1])));
            let duration = |millis, unit: usize| any_duration_text(millis, units[unit], flags[2]);
            pairs.push(("tick", duration(tick, 0)));
            pairs.push(("on_rollback", on_rollback_text(on_rollback).to_string()));
            pairs.push(("max_rollback", duration(max_rollback, 1)));
            if waits {
                pairs.push(("max_wait", duration(max_wait, 2)));
            }
            pairs.push(("max_borrow", duration(max_borrow, 3)));
            if let Some(observe) = max_observe {
                pairs.push(("max_observe", duration(observe, 4)));
            }
            pairs.push(("on_exhausted", on_exhausted_text(on_exhausted).to_string()));
            pairs.push(("sequence_start", start_text(sequence_start)));
            // In any order, and quoted where that is necessary or chosen.
            let mut ordered: Vec<_> = pairs.iter().enumerate().collect();
            ordered.sort_by_key(|(at, _)| order.get(*at).copied().unwrap_or(*at));
            let texts = ordered.iter().map(|(_, (key, value))| {
                if flags[3] || value.contains([' ', '"', '\'']) {
                    format!("{key}='{value}'")
                } else {
                    format!("{key}={value}")
                }
            });
            let text = texts.collect::<Vec<_>>().join(" ");
            Written {
                text,
                epoch,
                tick,
                fields,
                policy,
                max_borrow,
            }
        },
    )
}

#[test]
fn edits_write_each_key_once_and_in_order() {
    for (text, changes, result) in [
        ("", &[][..], "preset=default"),
        (
            "  preset=leaf  tick='5 s'",
            &[],
            "  preset=leaf  tick='5 s'",
        ),
        (
            "",
            &[("max_wait", "2 s"), ("on_rollback", "wait")],
            "preset=default on_rollback=wait max_wait='2 s'",
        ),
        (
            "",
            &[
                ("worker", "3"),
                ("epoch", "0"),
                ("layout", "time:41 worker:10 sequence:12"),
            ],
            "layout='time:41 worker:10 sequence:12' epoch=0 worker=3",
        ),
        ("  shard='5' preset=leaf", &[("tick", "1s")], ERROR),
        (
            "preset=instagram  shard='5'",
            &[("epoch", "0")],
            "preset=instagram epoch=0 shard=5",
        ),
        (
            "preset=instagram shard=5 epoch=0",
            &[("shard", "")],
            "preset=instagram epoch=0",
        ),
        (
            "preset=instagram shard=5",
            &[("preset", "")],
            "preset=default shard=5",
        ),
        (
            "preset=instagram shard=5",
            &[("preset", "discord"), ("shard", "")],
            "preset=discord",
        ),
        (
            "preset=discord",
            &[("b", "1"), ("a", "2")],
            "preset=discord a=2 b=1",
        ),
        (
            "preset=discord",
            &[("epoch", "'"), ("tick", "\"x"), ("a", "\\"), ("b", "\n")],
            "preset=discord epoch='''' tick='\"x' a=\\ b='\n'",
        ),
    ] {
        let edited = edit(text, changes);
        assert_eq!(
            edited.as_deref().unwrap_or(ERROR),
            result,
            "{text}: {changes:?}"
        );
    }
}

/// Stands for an edit that is refused.
const ERROR: &str = "error";

#[test]
fn a_place_belongs_to_a_key() {
    let text = "preset=discord epoch='2025-01-01Z' a=1";
    for (at, key) in [
        (0, "preset"),
        (14, "preset"),
        (15, "epoch"),
        (22, "epoch"),
        (35, "a"),
        (37, "a"),
    ] {
        assert_eq!(key_at(text, at).as_deref(), Some(key), "{at}");
    }
    assert_eq!(key_at(text, text.len()), None);
    assert_eq!(key_at("", 0), None);
}

#[test]
fn no_key_is_the_name_of_a_field() {
    assert_eq!(check_field_name("shard_2"), Ok(()));
    let long = "a".repeat(64);
    for name in ["", "a b", "a=1 tick", "Shard", "é", "2a", "epoch", &long] {
        assert!(check_field_name(name).is_err(), "{name}");
    }
}

/// The texts that the fuzzer found worth keeping, and all presets.
fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/labels");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut texts: Vec<_> = files
        .iter()
        .map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned())
        .collect();
    assert!(texts.len() > 20, "the corpus is not there");
    texts.extend(presets::ALL.map(|preset| preset.text.to_string()));
    texts.extend(presets::ALL.map(|preset| format!("preset={} epoch=0", preset.name)));
    texts
}

/// One change of a text, by words or by bytes.
#[derive(Clone, Debug)]
enum Edit {
    Delete(Index),
    Duplicate(Index, Index),
    Swap(Index, Index),
    Insert(Index, String),
    Splice(Index, Index, Index),
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let piece = prop_oneof![
        "[ ='\"0-9a-zé_:+-]{1,4}",
        any::<String>(),
        prop::sample::select(vec![
            "'",
            "''",
            " ",
            "=",
            ":",
            "0",
            "9",
            "time",
            "mode",
            "epoch",
            "preset",
            "tick",
            "-",
            "T",
            "99999999999999999999",
            "é",
            "\0",
            "\u{a0}",
        ])
        .prop_map(str::to_string),
    ];
    prop_oneof![
        any::<Index>().prop_map(Edit::Delete),
        any::<(Index, Index)>().prop_map(|(a, b)| Edit::Duplicate(a, b)),
        any::<(Index, Index)>().prop_map(|(a, b)| Edit::Swap(a, b)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        any::<(Index, Index, Index)>().prop_map(|(of, from, at)| Edit::Splice(of, from, at)),
    ]
}

/// The words of a text, and what stands between them.
fn words(text: &str) -> Vec<Vec<u8>> {
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words: Vec<String> = vec![];
    let mut before = false;
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if before && of_word(c) => word.push(c),
            _ => words.push(c.to_string()),
        }
        before = of_word(c);
    }
    words.into_iter().map(String::into_bytes).collect()
}

fn bytes(text: &str) -> Vec<Vec<u8>> {
    text.bytes().map(|byte| vec![byte]).collect()
}

fn edited(text: &str, edit: &Edit, by_words: bool, corpus: &[String]) -> String {
    let split = if by_words { words } else { bytes };
    let mut parts = split(text);
    let (last, len) = (parts.len(), parts.len().max(1));
    match edit {
        _ if last == 0 => {}
        Edit::Delete(at) => {
            parts.remove(at.index(len));
        }
        Edit::Duplicate(from, to) => {
            let part = parts[from.index(len)].clone();
            parts.insert(to.index(len + 1), part);
        }
        Edit::Swap(a, b) => parts.swap(a.index(len), b.index(len)),
        Edit::Insert(at, piece) => parts.insert(at.index(len + 1), piece.clone().into_bytes()),
        Edit::Splice(of, from, at) => {
            let other = split(&corpus[of.index(corpus.len())]);
            parts.truncate(at.index(len + 1));
            parts.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
    }
    String::from_utf8_lossy(&parts.concat()).into_owned()
}

#[test]
fn the_corpus_obeys_the_laws() {
    let corpus = corpus();
    let good = corpus.iter().filter(|text| Label::parse(text).is_ok());
    assert!(good.count() > 20);
    for text in corpus {
        laws::hold(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn labels_mean_what_was_written(written in any_written()) {
        let label = label(&written.text);
        prop_assert_eq!(Ok(label.layout()), layout_of(written.epoch, written.tick, &written.fields));
        prop_assert_eq!(label.generator().policy, written.policy);
        let fields: Vec<_> = label
            .fields()
            .iter()
            .map(|field| (field.name.clone(), field.role, field.bits))
            .collect();
        prop_assert_eq!(fields, written.fields);
        let borrow = format!("max_borrow={}", as_set(Millis::new(written.max_borrow)));
        prop_assert!(label.to_string().replace('\'', "").contains(&borrow));
        laws::hold(&written.text);
    }

    #[test]
    fn named_fields_encode_and_decode(written in any_written(), tick: u64, any: u64) {
        let label = label(&written.text);
        let tick = Tick::new(tick & label.layout().last_tick().get());
        let mut any = any;
        let mut named = vec![];
        for field in label.fields() {
            any = any.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let value = match field.role {
                FieldRole::Fixed(value) => value,
                _ if field.role.is_time() => tick.get(),
                _ => any & field.max(),
            };
            let name = if field.role.is_time() { "time" } else { &field.name };
            named.push((name, value));
        }
        let mut given: Vec<_> = named
            .iter()
            .filter(|(name, _)| *name != "time")
            .map(|(name, value)| ((*name).to_string(), value.cast_signed()))
            .collect();
        given.reverse();
        let id = label.encode(tick, &given).unwrap();
        let decoded = label.decode(id).unwrap();
        prop_assert_eq!(decoded.fields.tick, tick);
        prop_assert_eq!(&decoded.named, &named);
        // The layout, which knows no names, agrees.
        prop_assert_eq!(label.layout().decode(id), Ok(decoded.fields));
        // A fixed value may be left out, but cannot be changed.
        let fixed: Vec<_> = label
            .fields()
            .iter()
            .filter(|field| matches!(field.role, FieldRole::Fixed(_)))
            .collect();
        given.retain(|(name, _)| !fixed.iter().any(|field| field.name == *name));
        prop_assert_eq!(label.encode(tick, &given), Ok(id));
        for field in fixed {
            let other = SnowflakeId::new(id.get() ^ 1 << field.shift);
            let value = field.value_in(other.get().cast_unsigned());
            let fixed = value ^ 1;
            let field = field.name.clone();
            let error = LayoutError::Fixed { id: other.get(), field, value, fixed };
            prop_assert_eq!(label.decode(other), Err(error));
        }
    }

    #[test]
    fn an_edit_changes_what_it_names(written in any_written(), which: Index, value in "[ -~é\n\t]{1,12}|''") {
        let before = given(&written.text).unwrap();
        let key = which.get(&before).0.as_str();
        let mut expected = before.clone();
        expected.retain(|(other, _)| other != key);
        let changed = |value| {
            let mut pairs = given(&edit(&written.text, &[(key, value)]).unwrap()).unwrap();
            pairs.sort();
            pairs
        };
        let mut left = expected.clone();
        if key == "layout" {
            left.push(("preset".to_string(), "default".to_string()));
        }
        left.sort();
        prop_assert_eq!(changed(""), left);
        expected.push((key.to_string(), value.clone()));
        expected.sort();
        prop_assert_eq!(changed(&value), expected);
    }

    #[test]
    fn any_bigint_is_an_id_or_none(written in any_written(), id: i64) {
        let label = label(&written.text);
        laws::is_its_id_or_none(&label, id);
        laws::is_its_id_or_none(&label, laws::with_the_fixed_bits(&label, id));
    }

    #[test]
    fn any_text_obeys_the_laws(text: String, keys in "([a-z_]{1,8}|preset|layout|epoch|tick)=('[ -~é]{0,12}'?|[ -~é]{0,9})( [a-z]{1,4}='?[ -~]{0,5}){0,3}") {
        laws::hold(&text);
        laws::hold(&keys);
    }
}

#[test]
fn edited_labels_obey_the_laws() {
    let corpus = corpus();
    let edits = prop::collection::vec((any_edit(), any::<bool>()), 1..6);
    let config = ProptestConfig {
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(1500)
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(
            &(any::<Index>(), any_written(), edits),
            |(of, written, edits)| {
                for base in [of.get(&corpus), &written.text] {
                    let mut text = base.clone();
                    for (edit, by_words) in &edits {
                        text = edited(&text, edit, *by_words, &corpus);
                        laws::hold(&text);
                    }
                }
                Ok(())
            },
        )
        .unwrap();
}
