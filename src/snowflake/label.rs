//! Labels: layout and policy of a generator as text, the way people write it
//! down and a dump carries it.
//!
//! ```text
//! layout='time:41 worker:10 sequence:12' epoch='2016-11-01 00:00:00+00' on_rollback=wait
//! preset=ztesoft epoch='2025-01-01 00:00:00+00' resource_type=200
//! ```
//!
//! `key=value` pairs, separated by white space; a value with white space in it is
//! quoted, and a quote in it doubled. `preset` comes first and stands for a stock
//! text ([`super::presets`]), the pairs behind it override it. The layout names
//! the fields from high to low. `time` (or `time_reversed`, `time_by_mode`),
//! `sequence` and `clock` mean what they say; all others are parts of the worker
//! ID, high parts first, except those that have a value: they are the same in all
//! IDs of the generator.
//!
//! Printing gives every key, so that it means the same whatever becomes of the
//! defaults; parsing what was printed gives the label that was printed.

use std::fmt;

use super::account::CLOCK_BITS_MAX;
use super::duration::{UNITS, duration_text};
use super::generator::Generator;
use super::id::{SnowflakeId, Tick, UnixMillis};
use super::layout::{
    self, EPOCH_MAX, Fields, Layout, LayoutError, Misfit, POSITION_BITS_MAX, Role, TICK_MILLIS_MAX,
};
use super::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use super::presets;

/// A label that was understood. Always valid: only [`Label::parse`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    fields: Vec<Field>,
    layout: Layout,
    policy: Policy,
    max_borrow_millis: i64,
}

/// One field of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// As the label calls it.
    pub name: String,
    /// What it is for, with its value if that is fixed.
    pub role: Role,
    /// Its width.
    pub bits: u32,
    /// How many bits are below it.
    pub shift: u32,
}

/// What is wrong with a label, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelError {
    /// Offset in bytes into the text; its length if something is missing.
    pub at: usize,
    /// What is there, lower case, without a full stop.
    pub problem: String,
    /// What may be there, in sentences.
    pub allowed: String,
}

/// An ID, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// What every layout has.
    pub fields: Fields,
    /// All fields by name, from high to low; the time as a tick.
    pub named: Vec<(&'a str, u64)>,
}

/// What a time field may be called.
const TIMES: [&str; 3] = ["time", "time_reversed", "time_by_mode"];
/// If there is none: problem, and what helps.
const NO_TIME: (&str, &str) = ("the layout has no time field", "Add one, such as time:41.");

/// Most bytes of a label: more than one with 64 fields needs, and few enough to be
/// read at once.
pub const TEXT_MAX: usize = 16_384;

/// Most characters of a field's name, as of a name in PostgreSQL.
const NAME_MAX: usize = 63;
/// Most of `max_rollback`: 10 years.
const MAX_ROLLBACK_MAX: i64 = 3650 * DAY;
const MAX_ROLLBACK_MIN: i64 = 1000;
const MAX_WAIT_MAX: i64 = 60_000;
const MAX_WAIT_DEFAULT: i64 = 10;
const MAX_BORROW_DEFAULT: i64 = 100;
const DAY: i64 = 86_400_000;
/// Numbers below are no epoch in milliseconds (1973-03-03), but most likely one
/// in seconds, or a year.
const EPOCH_NUMBER_MIN: i64 = 100_000_000_000;

const KEYS: [&str; 10] = [
    "preset",
    "layout",
    "epoch",
    "tick",
    "on_rollback",
    "max_rollback",
    "max_wait",
    "max_borrow",
    "on_exhausted",
    "sequence_start",
];
const ON_ROLLBACK: [(&str, OnRollback); 5] = [
    ("continue", OnRollback::Continue),
    ("wait", OnRollback::Wait),
    ("error", OnRollback::Error),
    ("next_clock", OnRollback::NextClock),
    ("next_worker", OnRollback::NextWorker),
];
const ON_EXHAUSTED: [(&str, OnExhausted); 3] = [
    ("wait", OnExhausted::Wait),
    ("error", OnExhausted::Error),
    ("next_clock", OnExhausted::NextClock),
];

fn error<T>(
    at: usize,
    problem: impl Into<String>,
    allowed: impl Into<String>,
) -> Result<T, LabelError> {
    Err(LabelError {
        at,
        problem: problem.into(),
        allowed: allowed.into(),
    })
}

impl Label {
    /// Understands a label.
    ///
    /// # Errors
    /// A [`LabelError`] for the first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        if text.len() > TEXT_MAX {
            return error(
                0,
                format!("it has {} bytes", text.len()),
                format!("It can have up to {TEXT_MAX}."),
            );
        }
        let mut draft = Draft::default();
        for pair in pairs(text)? {
            draft.take(pair)?;
        }
        draft.finish(text.len())
    }

    /// The label of the default generator, which its sequence does not carry.
    #[must_use]
    pub fn of_default() -> Self {
        let field = |name: &str, role, bits, shift| Field {
            name: name.to_string(),
            role,
            bits,
            shift,
        };
        Self {
            fields: vec![
                field("time", Role::Time, 41, 22),
                field("worker", Role::Worker, 10, 12),
                field("sequence", Role::Sequence, 12, 0),
            ],
            layout: Layout::DEFAULT,
            policy: Policy::DEFAULT,
            max_borrow_millis: MAX_BORROW_DEFAULT,
        }
    }

    /// The fields, from high to low.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Bits, epoch and tick.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What generators are made of.
    #[must_use]
    pub fn generator(&self) -> Generator {
        let layout = match self.policy.on_exhausted {
            // Not None: finish() has looked.
            OnExhausted::NextClock => self.layout.through_clocks().unwrap_or(self.layout),
            _ => self.layout,
        };
        Generator {
            layout,
            policy: self.policy,
        }
    }

    /// Why no generator can have this label, though it can decode.
    ///
    /// # Errors
    /// What is missing, and what helps.
    pub fn check_generates(&self) -> Result<(), (String, String)> {
        if self.fields.iter().any(|f| f.role == Role::Mode(None)) {
            return Err((
                "field \"mode\" has no value".to_string(),
                "Say how the generator writes the time: mode=0 (reversed, IDs spread) or mode=1 (IDs increase).".to_string(),
            ));
        }
        let tells_apart = |field: &&Field| matches!(field.role, Role::Worker | Role::Fixed(_));
        if self.fields.iter().find(tells_apart).is_none() {
            return Err((
                "no field tells the IDs of one server from those of another".to_string(),
                "Add a field for the worker ID, such as worker:10, or one with a value, such as shard:13=5.".to_string(),
            ));
        }
        Ok(())
    }

    /// The layout as the label writes it.
    #[must_use]
    pub fn layout_text(&self) -> String {
        let fields = self.fields.iter().map(|field| match field.role {
            Role::Fixed(value) | Role::Mode(Some(value)) => {
                format!("{}:{}={value}", field.name, field.bits)
            }
            _ => format!("{}:{}", field.name, field.bits),
        });
        fields.collect::<Vec<_>>().join(" ")
    }

    /// The policy as the label writes it.
    #[must_use]
    pub fn policy_text(&self) -> String {
        let policy = &self.policy;
        let mut pairs = vec![
            (
                "on_rollback",
                on_rollback_text(policy.on_rollback).to_string(),
            ),
            ("max_rollback", duration_text(policy.max_rollback_millis)),
        ];
        if policy.on_rollback.waits() {
            pairs.push(("max_wait", duration_text(policy.max_wait_millis)));
        }
        pairs.push(("max_borrow", duration_text(self.max_borrow_millis)));
        pairs.push((
            "on_exhausted",
            on_exhausted_text(policy.on_exhausted).to_string(),
        ));
        pairs.push(("sequence_start", start_text(policy.sequence_start)));
        let pairs = pairs
            .iter()
            .map(|(key, value)| format!("{key}={}", quoted(value)));
        pairs.collect::<Vec<_>>().join(" ")
    }

    /// Takes an ID apart.
    ///
    /// # Errors
    /// [`LayoutError::NotAnId`] and [`LayoutError::Fixed`] if no generator with
    /// this label can have made it.
    pub fn decode(&self, id: SnowflakeId) -> Result<Decoded<'_>, LayoutError> {
        let bits = id.get().cast_unsigned();
        let named: Vec<_> = self
            .fields
            .iter()
            .map(|field| (field.name.as_str(), field.of(bits)))
            .collect();
        let fields = self.layout.decode(id).map_err(|error| {
            // Say which field it is, if none of the bits above is to blame.
            let beyond = bits.checked_shr(self.layout.width()).unwrap_or(0) != 0;
            let other = self
                .fields
                .iter()
                .zip(&named)
                .find_map(|(field, (_, value))| match field.role {
                    Role::Fixed(fixed) if fixed != *value => Some(LayoutError::Fixed {
                        id: id.get(),
                        field: field.name.clone(),
                        value: *value,
                        fixed,
                    }),
                    _ => None,
                });
            other.filter(|_| !beyond).unwrap_or(error)
        })?;
        let named = self.fields.iter().zip(named).map(|(field, (name, value))| {
            if field.is_time() {
                ("time", fields.tick.get())
            } else {
                (name, value)
            }
        });
        Ok(Decoded {
            fields,
            named: named.collect(),
        })
    }

    /// Puts an ID together from a tick and its other fields by name. Fixed fields
    /// may be left out, and a clock is 0 then.
    ///
    /// # Errors
    /// [`EncodeError`] names the field.
    pub fn encode(&self, tick: Tick, values: &[(String, i64)]) -> Result<SnowflakeId, EncodeError> {
        let known = |name: &str| self.fields.iter().any(|f| !f.is_time() && f.name == name);
        if let Some((name, _)) = values.iter().find(|(name, _)| !known(name)) {
            return Err(EncodeError::Unknown(name.clone()));
        }
        layout::in_range(
            "time",
            tick.get().cast_signed(),
            self.layout.last_tick().get(),
        )?;
        let mut bits = 0;
        let mut mode = 0;
        for field in self.fields.iter().filter(|field| !field.is_time()) {
            let given = values.iter().find(|(name, _)| *name == field.name);
            let given = match given {
                Some((name, value)) => Some(layout::in_range(name, *value, field.max())?),
                None => None,
            };
            let value = match (field.role, given) {
                (Role::Fixed(fixed), Some(value)) if value != fixed => {
                    return Err(EncodeError::Fixed {
                        field: field.name.clone(),
                        value,
                        fixed,
                    });
                }
                (Role::Fixed(fixed), _) => fixed,
                (Role::Mode(value), None) => {
                    value.ok_or_else(|| EncodeError::Missing(field.name.clone()))?
                }
                (Role::Clock, None) => 0,
                (_, Some(value)) => value,
                (_, None) => return Err(EncodeError::Missing(field.name.clone())),
            };
            if matches!(field.role, Role::Mode(_)) {
                mode = value;
            }
            bits |= value << field.shift;
        }
        for field in self.fields.iter().filter(|field| field.is_time()) {
            let reversed = match field.role {
                Role::TimeReversed => true,
                Role::TimeByMode => mode == 0,
                _ => false,
            };
            let tick = if reversed {
                tick.get().reverse_bits() >> (64 - field.bits)
            } else {
                tick.get()
            };
            bits |= tick << field.shift;
        }
        Ok(SnowflakeId::new(bits.cast_signed()))
    }
}

/// Why fields by name make no ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The layout has no field of this name.
    Unknown(String),
    /// A field has no value.
    Missing(String),
    /// A fixed field was given another value.
    Fixed {
        field: String,
        value: u64,
        fixed: u64,
    },
    /// A value is out of range.
    Layout(LayoutError),
}

impl From<LayoutError> for EncodeError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl Field {
    /// Whether it is the time, however it is written.
    #[must_use]
    pub fn is_time(&self) -> bool {
        matches!(
            self.role,
            Role::Time | Role::TimeReversed | Role::TimeByMode
        )
    }

    /// The largest value it holds.
    #[must_use]
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Its bits of an ID, as they are.
    #[must_use]
    pub fn of(&self, id: u64) -> u64 {
        id >> self.shift & self.max()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "layout='{}' epoch='{}' tick={} {}",
            self.layout_text(),
            timestamp_text(self.layout.epoch()),
            quoted(&duration_text(self.layout.tick_millis())),
            self.policy_text(),
        )
    }
}

/// As a label writes it.
#[must_use]
pub fn on_rollback_text(value: OnRollback) -> &'static str {
    ON_ROLLBACK
        .iter()
        .find(|(_, v)| *v == value)
        .map_or("", |(text, _)| text)
}

/// As a label writes it.
#[must_use]
pub fn on_exhausted_text(value: OnExhausted) -> &'static str {
    ON_EXHAUSTED
        .iter()
        .find(|(_, v)| *v == value)
        .map_or("", |(text, _)| text)
}

/// As a label writes it.
#[must_use]
pub fn start_text(value: SequenceStart) -> String {
    match value {
        SequenceStart::Random => "random".to_string(),
        SequenceStart::Masked(0) => "zero".to_string(),
        other => format!("vibrate {}", other.last()),
    }
}

/// An instant in UTC, as a label writes it. Up to the year 9999.
#[must_use]
pub fn timestamp_text(at: UnixMillis) -> String {
    let Ok(timestamp) = jiff::Timestamp::from_millisecond(at.get()) else {
        return format!("{} ms after 1970", at.get());
    };
    let digits = if at.get() % 1000 == 0 { 0 } else { 3 };
    let mut text = format!("{timestamp:.digits$}").replace('T', " ");
    text.truncate(text.len() - 1);
    text.push_str("+00");
    text
}

fn quoted(value: &str) -> String {
    if value.contains(' ') {
        format!("'{value}'")
    } else {
        value.to_string()
    }
}

/// A `key=value` in its place.
struct Pair<'a> {
    key: &'a str,
    key_at: usize,
    value: String,
    /// Where the value's first character is, behind its quote.
    value_at: usize,
}

/// Takes a text apart. White space is that of ASCII.
fn pairs(text: &str) -> Result<Vec<Pair<'_>>, LabelError> {
    const FORM: &str = "A label is a list of key=value, separated by spaces, with none around \"=\". Values with spaces are quoted, as in layout='time:41 worker:10 sequence:12'.";
    let mut found: Vec<Pair<'_>> = Vec::new();
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        at += rest.len() - trimmed.len();
        if trimmed.is_empty() {
            return Ok(found);
        }
        let key_at = at;
        let length = trimmed
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(trimmed.len());
        let (key, rest) = trimmed.split_at(length);
        if key.is_empty() {
            return error(at, format!("unexpected {}", shown(rest)), FORM);
        }
        let Some(rest) = rest.strip_prefix('=') else {
            return error(
                at + length,
                format!("{} is not followed by \"=\"", shown(key)),
                FORM,
            );
        };
        at += length + 1;
        if rest.starts_with('"') {
            return error(at, "a value is in double quotes", FORM);
        }
        let (value, value_at, used) = if let Some(rest) = rest.strip_prefix('\'') {
            let (value, used) = match quoted_value(rest) {
                Some(found) => found,
                None => return error(at, "a quoted value is not closed", FORM),
            };
            (value, at + 1, used + 1)
        } else {
            let used = rest
                .find(|c: char| c.is_ascii_whitespace() || c == '\'')
                .unwrap_or(rest.len());
            let value = rest.get(..used).unwrap_or_default().to_string();
            (value, at, used)
        };
        at += used;
        if text.get(at..).is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with(|c: char| c.is_ascii_whitespace())
        }) {
            return error(at, "a value is not followed by a space", FORM);
        }
        if found.iter().any(|pair| pair.key == key) {
            return error(
                key_at,
                format!("{} is given twice", shown(key)),
                "Give each key once.",
            );
        }
        if key == "preset" && !found.is_empty() {
            return error(
                key_at,
                "\"preset\" is not first",
                "Put it first: what follows overrides it.",
            );
        }
        found.push(Pair {
            key,
            key_at,
            value,
            value_at,
        });
    }
}

/// A value up to its closing quote, and how many bytes it took with that.
fn quoted_value(rest: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = rest.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != '\'' {
            value.push(c);
        } else if chars.next_if(|(_, next)| *next == '\'').is_some() {
            value.push('\'');
        } else {
            return Some((value, at + 1));
        }
    }
    None
}

/// A piece of a label in an error message: quoted, and not too long.
fn shown(text: &str) -> String {
    const MOST: usize = 40;
    let word: String = text.chars().take(MOST).collect();
    if word.len() < text.len() {
        format!("\"{word}...\"")
    } else {
        format!("\"{word}\"")
    }
}

/// Words as a sentence lists them.
fn list(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_string(),
        [words @ .., word] => format!("{} {last} {word}", words.join(", ")),
    }
}

/// A field as it is read.
struct DraftField {
    name: String,
    bits: u64,
    value: Option<u64>,
    at: usize,
    value_at: usize,
}

/// A value, and where it stands; the place of the preset if it came with it.
struct Placed<T> {
    value: T,
    at: usize,
}

/// A label as far as it has been read.
#[derive(Default)]
struct Draft {
    fields: Option<Vec<DraftField>>,
    layout_at: usize,
    epoch: Option<i64>,
    epoch_at: usize,
    tick: Option<i64>,
    tick_at: usize,
    on_rollback: Option<Placed<OnRollback>>,
    max_rollback: Option<i64>,
    max_wait: Option<i64>,
    /// Only if it was given beside a preset: one that does not matter is a
    /// mistake then.
    max_wait_at: Option<usize>,
    max_borrow: Option<Placed<i64>>,
    on_exhausted: Option<Placed<OnExhausted>>,
    sequence_start: Option<Placed<SequenceStart>>,
    /// Values of fields as they are written: name, value, places of both. Not
    /// numbers yet, because the name may be a mistyped key.
    fixed: Vec<(String, String, usize, usize)>,
    preset: Option<&'static str>,
    preset_at: Option<usize>,
}

impl Draft {
    fn take(&mut self, pair: Pair<'_>) -> Result<(), LabelError> {
        let (at, value) = (pair.value_at, pair.value.as_str());
        match pair.key {
            "preset" => {
                let Some(preset) = presets::find(value) else {
                    let names: Vec<_> = presets::ALL.iter().map(|preset| preset.name).collect();
                    return error(
                        at,
                        format!("unknown preset {}", shown(value)),
                        format!("Presets are {}.", list(&names, "and")),
                    );
                };
                for stock in pairs(preset.text)? {
                    self.take(stock)?;
                }
                self.max_wait_at = None;
                self.settle(at);
                self.preset_at = Some(at);
                self.preset = Some(preset.name);
            }
            "layout" => {
                self.fields = Some(fields(value, at)?);
                self.layout_at = at;
            }
            "epoch" => {
                self.epoch = Some(epoch(value, at)?);
                self.epoch_at = at;
            }
            "tick" => {
                self.tick = Some(duration(pair.key, value, at, 1, TICK_MILLIS_MAX)?);
                self.tick_at = at;
            }
            "on_rollback" => {
                let value = choice(pair.key, value, at, &ON_ROLLBACK)?;
                self.on_rollback = Some(Placed { value, at });
            }
            "max_rollback" => {
                self.max_rollback = Some(duration(
                    pair.key,
                    value,
                    at,
                    MAX_ROLLBACK_MIN,
                    MAX_ROLLBACK_MAX,
                )?);
            }
            "max_wait" => {
                self.max_wait = Some(duration(pair.key, value, at, 0, MAX_WAIT_MAX)?);
                self.max_wait_at = Some(pair.key_at);
            }
            "max_borrow" => {
                let value = duration(pair.key, value, at, 0, MAX_ROLLBACK_MAX / 2)?;
                self.max_borrow = Some(Placed { value, at });
            }
            "on_exhausted" => {
                let value = choice(pair.key, value, at, &ON_EXHAUSTED)?;
                self.on_exhausted = Some(Placed { value, at });
            }
            "sequence_start" => {
                let value = start(value, at)?;
                self.sequence_start = Some(Placed { value, at });
            }
            name => self
                .fixed
                .push((name.to_string(), pair.value, pair.key_at, at)),
        }
        Ok(())
    }

    /// What has been taken so far is the preset's: its places are those of its
    /// name.
    fn settle(&mut self, at: usize) {
        for field in self.fields.iter_mut().flatten() {
            (field.at, field.value_at) = (at, at);
        }
        (self.layout_at, self.epoch_at, self.tick_at) = (at, at, at);
        for place in [
            self.on_rollback.as_mut().map(|it| &mut it.at),
            self.max_borrow.as_mut().map(|it| &mut it.at),
            self.on_exhausted.as_mut().map(|it| &mut it.at),
            self.sequence_start.as_mut().map(|it| &mut it.at),
        ]
        .into_iter()
        .flatten()
        {
            *place = at;
        }
    }

    fn finish(mut self, end: usize) -> Result<Label, LabelError> {
        let Some(mut fields) = self.fields.take() else {
            // More likely a misspelled "layout" than a value for a field of none.
            if let Some((name, _, at, _)) = self.fixed.first() {
                return unknown_key(name, *at, &[]);
            }
            return error(
                end,
                "neither \"layout\" nor \"preset\" is given",
                "Name a preset, or describe the fields, as in layout='time:41 worker:10 sequence:12'.",
            );
        };
        for (name, value, at, value_at) in std::mem::take(&mut self.fixed) {
            let field = fields.iter_mut().find(|field| field.name == name);
            match field {
                Some(field) if !is_reserved(&name) => {
                    field.value = Some(number(&value, value_at)?);
                    field.value_at = value_at;
                }
                Some(_) => {
                    return error(
                        at,
                        format!("field \"{name}\" cannot have a value"),
                        "Time, sequence and clock differ from ID to ID.",
                    );
                }
                None => {
                    let free: Vec<_> = fields
                        .iter()
                        .filter(|field| !is_reserved(&field.name))
                        .map(|field| field.name.as_str())
                        .collect();
                    return unknown_key(&name, at, &free);
                }
            }
        }
        let Some(epoch) = self.epoch else {
            return error(
                end,
                match self.preset {
                    Some(name) => {
                        format!("preset \"{name}\" needs an epoch, and none is given")
                    }
                    None => "no epoch is given".to_string(),
                },
                "Say what time counts from, as in epoch='2025-01-01 00:00:00+00', or in Unix milliseconds.",
            );
        };
        let by_mode = fields.iter().any(|field| field.name == "time_by_mode");
        let roles: Vec<_> = fields
            .iter()
            .map(|field| {
                let bits = u32::try_from(field.bits).unwrap_or(u32::MAX);
                (role(&field.name, field.value, by_mode), bits)
            })
            .collect();
        let tick = self.tick.unwrap_or(1);
        let layout = match Layout::new(epoch, tick, &roles) {
            Ok(layout) => layout,
            Err(misfit) => return self.misfit(misfit, &fields),
        };

        let mut shift = layout.width();
        let mut named = Vec::with_capacity(fields.len());
        for (field, (role, bits)) in fields.into_iter().zip(roles) {
            shift -= bits;
            named.push(Field {
                name: field.name,
                role,
                bits,
                shift,
            });
        }
        let (policy, max_borrow_millis) = self.policy(&layout)?;
        Ok(Label {
            fields: named,
            layout,
            policy,
            max_borrow_millis,
        })
    }

    fn misfit(&self, misfit: Misfit, fields: &[DraftField]) -> Result<Label, LabelError> {
        let of = |index: usize| fields.get(index);
        let name = |index| of(index).map_or("", |field| field.name.as_str());
        let place = |index| of(index).map_or(self.layout_at, |field| field.at);
        match misfit {
            Misfit::Bits { field, max } => error(
                place(field),
                format!(
                    "field \"{}\" has {} bits",
                    name(field),
                    of(field).map_or(0, |f| f.bits)
                ),
                if max == 1 {
                    "It has 1.".to_string()
                } else {
                    format!("It can have 1 to {max}.")
                },
            ),
            Misfit::Twice { field } => error(
                place(field),
                format!("field \"{}\" is one of two of its kind", name(field)),
                "A layout has one time, one sequence and at most one clock.",
            ),
            Misfit::Value { field, max } => error(
                of(field).map_or(self.layout_at, |field| field.value_at),
                format!(
                    "value {} of field \"{}\" is out of range",
                    of(field).and_then(|field| field.value).unwrap_or(0),
                    name(field)
                ),
                format!("The field holds 0 to {max}."),
            ),
            Misfit::NoTime => error(self.layout_at, NO_TIME.0, NO_TIME.1),
            Misfit::NoSequence => error(
                self.layout_at,
                "the layout has no sequence field",
                "Add one, such as sequence:12.",
            ),
            Misfit::Mode => error(
                self.layout_at,
                "the layout has \"time_by_mode\", but no field \"mode\"",
                "Add mode:1, or mode:1=0 for reversed time, mode:1=1 for plain.",
            ),
            Misfit::Width { bits } => error(
                self.layout_at,
                format!("the fields have {bits} bits together"),
                "A bigint has 64; with up to 63, IDs are never negative.",
            ),
            Misfit::PositionWidth { bits } => error(
                self.layout_at,
                format!("time, clock and sequence have {bits} bits together"),
                format!("They can have up to {}.", layout::POSITION_BITS_MAX),
            ),
            Misfit::WorkerWidth { bits } => error(
                self.layout_at,
                format!("the fields of the worker ID have {bits} bits together"),
                format!(
                    "They can have up to {}; give some of them a value.",
                    layout::WORKER_BITS_MAX
                ),
            ),
            Misfit::Epoch => error(self.epoch_at, "epoch is out of range", EPOCH_FORM),
            Misfit::Tick => error(
                self.tick_at,
                "tick is out of range",
                "It can be 1 ms to 10 s.",
            ),
        }
    }

    fn policy(&self, layout: &Layout) -> Result<(Policy, i64), LabelError> {
        let on_rollback = self
            .on_rollback
            .as_ref()
            .map_or(OnRollback::Continue, |it| it.value);
        if let Some(it) = &self.on_rollback
            && it.value == OnRollback::NextClock
            && layout.clock_bits() == 0
        {
            return error(
                it.at,
                "on_rollback=next_clock needs a clock field, and the layout has none",
                "Add one, such as clock:4, or set on_rollback to something else.",
            );
        }
        if let Some(it) = &self.on_rollback
            && it.value == OnRollback::NextClock
            && layout.clock_bits() > CLOCK_BITS_MAX
        {
            return error(
                it.at,
                format!(
                    "on_rollback=next_clock needs a clock field of at most {CLOCK_BITS_MAX} bits, and the layout has one of {}",
                    layout.clock_bits()
                ),
                "The mark keeps which clocks have been used, and has no room for more.",
            );
        }
        if let Some(it) = &self.on_exhausted
            && it.value == OnExhausted::NextClock
        {
            if layout.clock_bits() == 0 {
                return error(
                    it.at,
                    "on_exhausted=next_clock needs a clock field, and the layout has none",
                    "Add one, such as clock:4, or set on_exhausted to something else.",
                );
            }
            if layout.through_clocks().is_none() {
                return error(
                    it.at,
                    "on_exhausted=next_clock does not fit the layout",
                    format!(
                        "The bits of time and sequence, and twice those of the clock, can be {POSITION_BITS_MAX} together."
                    ),
                );
            }
        }
        if let Some(at) = self.max_wait_at
            && !on_rollback.waits()
        {
            return error(
                at,
                format!(
                    "max_wait has no meaning with on_rollback={}",
                    on_rollback_text(on_rollback)
                ),
                "It is for on_rollback=wait, next_clock and next_worker.",
            );
        }
        let max_rollback_millis = self
            .max_rollback
            .unwrap_or(Policy::DEFAULT.max_rollback_millis);
        let borrow = self.max_borrow.as_ref();
        let mut max_borrow_millis = borrow
            .map_or(MAX_BORROW_DEFAULT.min(max_rollback_millis / 2), |it| {
                it.value
            });
        if max_borrow_millis > max_rollback_millis / 2 {
            return error(
                borrow.map_or(0, |it| it.at),
                format!(
                    "max_borrow \"{}\" is more than half of max_rollback \"{}\"",
                    duration_text(max_borrow_millis),
                    duration_text(max_rollback_millis)
                ),
                format!(
                    "It can be 0 to {}: with more, a restart could be refused.",
                    duration_text(max_rollback_millis / 2)
                ),
            );
        }
        if (1..layout.tick_millis()).contains(&max_borrow_millis) {
            if let Some(it) = borrow.filter(|it| Some(it.at) != self.preset_at) {
                return error(
                    it.at,
                    format!(
                        "max_borrow \"{}\" is less than a tick",
                        duration_text(max_borrow_millis)
                    ),
                    format!(
                        "It can be 0, or from {} on.",
                        duration_text(layout.tick_millis())
                    ),
                );
            }
            max_borrow_millis = 0;
        }
        let sequence_start = match &self.sequence_start {
            None => default_start(layout.sequence_bits()),
            Some(it) if it.value.last() > layout.max_sequence() => {
                return error(
                    it.at,
                    format!(
                        "sequence_start {} is past the end of the sequence field",
                        it.value.last()
                    ),
                    format!("The field holds 0 to {}.", layout.max_sequence()),
                );
            }
            Some(it) => it.value,
        };
        let policy = Policy {
            on_rollback,
            max_rollback_millis,
            max_wait_millis: if on_rollback.waits() {
                self.max_wait.unwrap_or(MAX_WAIT_DEFAULT)
            } else {
                MAX_WAIT_DEFAULT
            },
            max_borrow_ticks: (max_borrow_millis / layout.tick_millis()).unsigned_abs(),
            on_exhausted: self
                .on_exhausted
                .as_ref()
                .map_or(OnExhausted::Wait, |it| it.value),
            sequence_start,
        };
        Ok((policy, max_borrow_millis))
    }
}

/// `fields` are those that the key could have been meant for.
fn unknown_key<T>(key: &str, at: usize, fields: &[&str]) -> Result<T, LabelError> {
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!(" Fields that can have a value: {}.", list(fields, "and"))
    };
    error(
        at,
        format!("unknown key {}", shown(key)),
        format!("Keys are {}.{fields}", list(&KEYS, "and")),
    )
}

/// As the default generator's: at most 64 starts, and at most a 64th of a tick
/// unused.
fn default_start(sequence_bits: u32) -> SequenceStart {
    SequenceStart::vibrate((1 << sequence_bits.saturating_sub(6).min(6)) - 1)
}

fn is_reserved(name: &str) -> bool {
    TIMES.contains(&name) || matches!(name, "sequence" | "clock")
}

fn role(name: &str, value: Option<u64>, by_mode: bool) -> Role {
    match (name, value) {
        ("time", _) => Role::Time,
        ("time_reversed", _) => Role::TimeReversed,
        ("time_by_mode", _) => Role::TimeByMode,
        ("sequence", _) => Role::Sequence,
        ("clock", _) => Role::Clock,
        ("mode", value) if by_mode => Role::Mode(value),
        (_, Some(value)) => Role::Fixed(value),
        (_, None) => Role::Worker,
    }
}

/// The fields of a layout. `at` is where the text stands in the label.
fn fields(text: &str, at: usize) -> Result<Vec<DraftField>, LabelError> {
    const FORM: &str = "Fields are written name:bits or name:bits=value, with spaces between, from high to low, as in layout='time:41 worker:10 sequence:12'.";
    let mut found: Vec<DraftField> = Vec::new();
    let mut offset = 0;
    for word in text.split(|c: char| c.is_ascii_whitespace()) {
        let here = at + offset;
        offset += word.len() + 1;
        if word.is_empty() {
            continue;
        }
        if word.contains(',') {
            return error(here, format!("{} has a comma", shown(word)), FORM);
        }
        let Some((name, rest)) = word.split_once(':') else {
            return error(here, format!("{} is not a field", shown(word)), FORM);
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && name.len() <= NAME_MAX;
        if !is_name {
            return error(
                here,
                format!("field name {} is not valid", shown(name)),
                "Names have up to 63 lower-case letters, digits and underscores, and begin with a letter.",
            );
        }
        if KEYS.contains(&name) {
            return error(
                here,
                format!("a field cannot be called \"{name}\""),
                format!(
                    "These names have a meaning of their own: {}.",
                    list(&KEYS, "and")
                ),
            );
        }
        if found.iter().any(|field| field.name == name) {
            return error(here, format!("field \"{name}\" is given twice"), FORM);
        }
        let (bits, value) = match rest.split_once('=') {
            Some((bits, value)) => (bits, Some(value)),
            None => (rest, None),
        };
        let bits_at = here + name.len() + 1;
        let value_at = bits_at + bits.len() + 1;
        let bits = number(bits, bits_at)?;
        let value = value.map(|value| number(value, value_at)).transpose()?;
        if value.is_some() && is_reserved(name) {
            return error(
                value_at,
                format!("field \"{name}\" cannot have a value"),
                "Time, sequence and clock differ from ID to ID.",
            );
        }
        found.push(DraftField {
            name: name.to_string(),
            bits,
            value,
            at: here,
            value_at,
        });
    }
    if found.is_empty() {
        return error(at, "the layout is empty", FORM);
    }
    // Before the bits of a "timestamp" or "ms" are found to be too many.
    if !found
        .iter()
        .any(|field| TIMES.contains(&field.name.as_str()))
    {
        return error(at, NO_TIME.0, NO_TIME.1);
    }
    Ok(found)
}

fn number(text: &str, at: usize) -> Result<u64, LabelError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(number),
        _ if digits => error(
            at,
            format!("number {} is out of range", shown(text)),
            format!("Numbers can be 0 to {}.", u64::MAX),
        ),
        _ => error(
            at,
            format!("{} is not a whole number", shown(text)),
            "Numbers are written in decimal digits.",
        ),
    }
}

fn choice<T: Copy>(
    key: &str,
    text: &str,
    at: usize,
    choices: &[(&str, T)],
) -> Result<T, LabelError> {
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    error(
        at,
        format!("invalid value for {key}: {}", shown(text)),
        format!("It can be {}.", list(&names, "or")),
    )
}

fn start(text: &str, at: usize) -> Result<SequenceStart, LabelError> {
    let vibrate = text.strip_prefix("vibrate ").map(|last| {
        let digits = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
        last.parse::<u32>().ok().filter(|_| digits)
    });
    match (text, vibrate) {
        ("zero", _) => Ok(SequenceStart::vibrate(0)),
        ("random", _) => Ok(SequenceStart::Random),
        // The sequence field, which bounds it, has at most 31 bits.
        (_, Some(Some(last))) if last <= i32::MAX.unsigned_abs() => {
            Ok(SequenceStart::vibrate(last))
        }
        _ => error(
            at,
            format!("invalid value for sequence_start: {}", shown(text)),
            "It can be zero, random, or 'vibrate N', where N is the largest number that a tick may start with.",
        ),
    }
}

/// A duration in milliseconds.
fn duration(key: &str, text: &str, at: usize, min: i64, max: i64) -> Result<i64, LabelError> {
    let allowed = format!(
        "It can be {} to {}, as a whole number of ms, s, min, h or d.",
        duration_text(min),
        duration_text(max)
    );
    let length = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(length);
    let unit = unit.trim_start_matches(' ');
    let factor = UNITS.iter().find(|(name, _)| *name == unit);
    let zero = unit.is_empty() && !number.is_empty() && number.bytes().all(|digit| digit == b'0');
    let problem = match factor {
        _ if number.is_empty() || !unit.chars().all(char::is_alphabetic) => {
            format!("{} is not a duration", shown(text))
        }
        None if unit.is_empty() && !zero => format!("duration {} has no unit", shown(text)),
        None if !zero => format!("duration {} has an unknown unit", shown(text)),
        _ => {
            let factor = factor.map_or(0, |(_, factor)| *factor);
            // No number, if it is too large for one.
            let millis = number.parse().ok().and_then(|n: i64| n.checked_mul(factor));
            match millis.filter(|millis| (min..=max).contains(millis)) {
                Some(millis) => return Ok(millis),
                None => format!("{key} {} is out of range", shown(text)),
            }
        }
    };
    error(at, problem, allowed)
}

const EPOCH_FORM: &str = "An epoch is an instant from 1970 to 3084 with its offset from UTC, as in '2016-11-01 00:00:00+00', or in Unix milliseconds, as in 1477958400000.";

/// An epoch in Unix milliseconds.
fn epoch(text: &str, at: usize) -> Result<i64, LabelError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return match text.parse() {
            Ok(0) => Ok(0),
            Ok(millis) if (EPOCH_NUMBER_MIN..=EPOCH_MAX).contains(&millis) => Ok(millis),
            Ok(small) if small < EPOCH_NUMBER_MIN => error(
                at,
                format!("epoch {} is too small for Unix milliseconds", shown(text)),
                "If it is in seconds, append 000. A year is written as '2025-01-01 00:00:00+00'.",
            ),
            _ => error(
                at,
                format!("epoch {} is out of range", shown(text)),
                EPOCH_FORM,
            ),
        };
    }
    // Only what has the form of PostgreSQL's output or of ISO 8601, not all that
    // the library knows, so that it stays the same when that learns more.
    let bytes = text.as_bytes();
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_digit() || b"-+:. TZ".contains(&b))
        && bytes.get(4) == Some(&b'-')
        && matches!(bytes.get(10), Some(b' ' | b'T'));
    let timestamp: Option<jiff::Timestamp> = if plain { text.parse().ok() } else { None };
    let Some(timestamp) = timestamp else {
        if plain && format!("{text}Z").parse::<jiff::Timestamp>().is_ok() {
            return error(
                at,
                format!("epoch {} has no offset from UTC", shown(text)),
                format!("Without one, it would differ from server to server. {EPOCH_FORM}"),
            );
        }
        let date = text.get(..10).unwrap_or_default();
        if format!("{date}T00:00:00Z")
            .parse::<jiff::Timestamp>()
            .is_ok()
            && !text.contains(':')
        {
            return error(
                at,
                format!("epoch {} has no time of day", shown(text)),
                EPOCH_FORM,
            );
        }
        return error(at, format!("{} is not an epoch", shown(text)), EPOCH_FORM);
    };
    // PostgreSQL takes second 60 for the next minute, the library for second 59.
    let of_day = text.bytes().skip(11).filter(|byte| *byte != b':');
    if of_day.skip(4).take(2).eq(*b"60") {
        return error(
            at,
            format!("epoch {} is in a leap second", shown(text)),
            EPOCH_FORM,
        );
    }
    let millis = timestamp.as_millisecond();
    if !(0..=EPOCH_MAX).contains(&millis) {
        return error(
            at,
            format!("epoch {} is out of range", shown(text)),
            EPOCH_FORM,
        );
    }
    if timestamp.subsec_nanosecond() % 1_000_000 != 0 {
        return error(
            at,
            format!(
                "epoch {} is not a whole number of milliseconds",
                shown(text)
            ),
            EPOCH_FORM,
        );
    }
    Ok(millis)
}
