//! Labels: layout and policy of a generator as text, the way people write it
//! down and a dump carries it.
//!
//! ```text
//! layout='time:41 worker:10 sequence:12' epoch='2016-11-01 00:00:00+00' on_rollback=wait
//! preset=ztesoft epoch='2025-01-01 00:00:00+00' resource_type=200
//! ```
//!
//! `key=value` pairs, separated by white space; a value with white space in it is
//! quoted, and a quote in the value is doubled. `preset` comes first and stands for a
//! stock text ([`crate::label::presets`]); the pairs after it override that text. The layout
//! names the fields from high to low. `time` (or `time_reversed`, `time_by_mode`),
//! `sequence` and `clock` have a meaning of their own; all others are parts of the
//! worker ID, high parts first, except those with a value: they are the same in all IDs
//! of the generator. The value `caller` leaves a field to the caller, ID by ID.
//!
//! A printed label gives every key that has a value, so that it keeps its meaning if the
//! defaults change; parsing a printed label gives the same label.
//!
//! `grammar` takes texts apart, [`edit`] gives keys of a text other values, `values` reads
//! and writes the values of the keys, `rules` has the defaults and finds contradictions.

use std::fmt;

use crate::id::layout::{FieldRole, Fields, Layout, LayoutError, POSITION_BITS_MAX, in_range};
use crate::id::{Millis, SnowflakeId, Stamp, Tick};
use crate::label::duration::as_set;
use crate::label::generator::Generator;

pub mod duration; // how a length of time reads as text
pub mod edit; // a label with other values
pub mod excerpt; // what a message shows of a text
pub mod explain; // an ID, for a person to read
pub mod generator; // what a generator is made of: layout and policy
mod grammar; // what is a label at all
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod laws; // what is true of every text that is taken for a label
pub mod policy; // how far a generator may go, and where a tick's sequence numbers start
pub mod presets; // the texts of the schemes that people run
mod rules; // defaults and contradictions
mod values; // the values of the keys

#[cfg(all(test, not(loom)))]
mod label_tests;

pub use grammar::KEYS;
use grammar::Text;
pub use values::{on_exhausted_text, on_rollback_text, start_text, tick_text, timestamp_text};

/// Most bytes of a label: more than a label with 64 fields needs, and few enough to be
/// read at once.
pub const TEXT_MAX: usize = 16_384;

/// A label that was understood. Always valid: only [`Label::parse`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    fields: Vec<Field>,
    layout: Layout,
    generator: Generator,
    max_borrow: Millis,
}

/// One field of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// The field's role, with its value if that is fixed.
    pub role: FieldRole,
    pub bits: u32,
    /// How many bits are below the field.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedFields<'a> {
    pub fields: Fields,
    /// All fields by name, from high to low; the time as a tick.
    pub named: Vec<(&'a str, u64)>,
}

impl Label {
    /// The label of the default generator, which its sequence does not carry.
    pub fn of_default() -> Self {
        Self::parse("preset=default").unwrap_or_else(|_| unreachable!())
    }

    /// The fields, from high to low.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn generator(&self) -> Generator {
        self.generator
    }

    /// Why no generator can have this label, although the label can decode: what is
    /// missing, and what helps.
    pub fn check_generates(&self) -> Result<(), LabelError> {
        let label = Text { text: "", at: 0 };
        if self.fields.iter().any(|f| f.role == FieldRole::Mode(None)) {
            return label.error(
                "field \"mode\" has no value",
                "Say how the generator writes the time: mode=0 (reversed, IDs spread) or mode=1 (IDs increase).",
            );
        }
        if self.layout.divisor() > 1 {
            return label.error(
                "ticks are shorter than 1 ms",
                "Such a layout only decodes and encodes IDs: a generator has ticks of 1 ms to 10 s.",
            );
        }
        if self.layout.sequence_bits() == 0 {
            return label.error(
                "the layout has no sequence field",
                "Add one, such as sequence:12.",
            );
        }
        let bits = self.layout.position_bits();
        if bits > POSITION_BITS_MAX {
            return label.error(
                &format!("time, clock and sequence have {bits} bits together"),
                &format!(
                    "A generator counts in up to {POSITION_BITS_MAX}: give some of them to a field for the worker ID."
                ),
            );
        }
        let tells_apart =
            |field: &Field| matches!(field.role, FieldRole::Worker | FieldRole::Fixed(_));
        if !self.fields.iter().any(tells_apart) {
            return label.error(
                "no field tells the IDs of one server from those of another",
                "Add a field for the worker ID, such as worker:10, or one with a value, such as shard:13=5.",
            );
        }
        Ok(())
    }

    pub fn layout_text(&self) -> String {
        let fields = self.fields.iter().map(|field| match field.role {
            FieldRole::Fixed(value) | FieldRole::Mode(Some(value)) => {
                format!("{}:{}={value}", field.name, field.bits)
            }
            FieldRole::Caller => format!("{}:{}={}", field.name, field.bits, grammar::CALLER),
            _ => format!("{}:{}", field.name, field.bits),
        });
        fields.collect::<Vec<_>>().join(" ")
    }

    /// The values in force, by key, without those that have no meaning.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let policy = &self.generator.policy;
        let rule = policy.on_rollback;
        let values = [
            ("layout", Some(self.layout_text())),
            ("epoch", Some(timestamp_text(self.layout.epoch()))),
            ("tick", Some(tick_text(self.layout))),
            ("on_rollback", Some(on_rollback_text(rule).to_string())),
            ("max_rollback", Some(as_set(policy.max_rollback))),
            ("max_wait", rule.waits().then(|| as_set(policy.max_wait))),
            ("max_borrow", Some(as_set(self.max_borrow))),
            ("max_observe", policy.max_observe.map(as_set)),
            (
                "on_exhausted",
                Some(on_exhausted_text(policy.on_exhausted).to_string()),
            ),
            ("sequence_start", Some(start_text(policy.sequence_start))),
        ];
        let known = values.into_iter();
        known
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    /// Takes an ID apart. Fails with [`LayoutError::NotAnId`] and
    /// [`LayoutError::Fixed`] if no generator with this label can have made it.
    pub fn decode(&self, id: SnowflakeId) -> Result<DecodedFields<'_>, LayoutError> {
        let bits = id.get().cast_unsigned();
        let beyond = bits.unbounded_shr(self.layout.width()) != 0;
        // No field is to blame for bits above all fields.
        for field in self.fields.iter().filter(|_| !beyond) {
            let value = field.value_in(bits);
            if let FieldRole::Fixed(fixed) = field.role
                && fixed != value
            {
                let (id, field) = (id.get(), field.name.clone());
                return Err(LayoutError::Fixed {
                    id,
                    field,
                    value,
                    fixed,
                });
            }
        }
        let fields = self.layout.decode(id)?;
        let named = self.fields.iter().map(|field| match field.role {
            role if role.is_time() => ("time", fields.tick.get()),
            _ => (field.name.as_str(), field.value_in(bits)),
        });
        let named = named.collect();
        Ok(DecodedFields { fields, named })
    }

    pub fn caller_fields(&self) -> impl Iterator<Item = &Field> {
        let fields = self.fields.iter();
        fields.filter(|field| field.role == FieldRole::Caller)
    }

    /// The bits that IDs get from the values that a caller gives to these fields: to
    /// all fields that callers give, and to no others. Fails with a [`LayoutError`]
    /// that names the field.
    pub fn given(&self, values: &[(String, i64)]) -> Result<Stamp, LayoutError> {
        let unknown = |name: &str| self.caller_fields().all(|field| field.name != name);
        if let Some((name, _)) = values.iter().find(|(name, _)| unknown(name)) {
            return Err(LayoutError::Unknown(name.clone()));
        }
        let mut bits = 0;
        for field in self.caller_fields() {
            let name = &field.name;
            let Some((_, value)) = values.iter().find(|(given, _)| given == name) else {
                return Err(LayoutError::Missing(name.clone()));
            };
            bits |= in_range(name, *value, field.max())? << field.shift;
        }
        Ok(Stamp::new(bits))
    }

    /// Puts an ID together from a tick and its other fields by name. Fixed fields may
    /// be left out, and a clock is 0 then. Fails with a [`LayoutError`] that names the
    /// field.
    pub fn encode(&self, tick: Tick, values: &[(String, i64)]) -> Result<SnowflakeId, LayoutError> {
        let others = || self.fields.iter().filter(|field| !field.role.is_time());
        let unknown = |name: &str| others().all(|field| field.name != name);
        if let Some((name, _)) = values.iter().find(|(name, _)| unknown(name)) {
            return Err(LayoutError::Unknown(name.clone()));
        }
        let time = tick.get().cast_signed();
        in_range("time", time, self.layout.last_tick().get())?;
        let mut bits = 0;
        for field in others() {
            let given = values.iter().find(|(name, _)| *name == field.name);
            let given = given.map(|(name, value)| in_range(name, *value, field.max()));
            let value = match (field.role, given.transpose()?) {
                (FieldRole::Fixed(fixed), Some(value)) if value != fixed => {
                    let field = field.name.clone();
                    return Err(LayoutError::Given {
                        field,
                        value,
                        fixed,
                    });
                }
                (FieldRole::Fixed(value) | FieldRole::Mode(Some(value)), None)
                | (_, Some(value)) => value,
                (FieldRole::Clock, None) => 0,
                (_, None) => return Err(LayoutError::Missing(field.name.clone())),
            };
            bits |= value << field.shift;
        }
        bits |= self.layout.time_field(tick, bits);
        Ok(SnowflakeId::new(bits.cast_signed()))
    }
}

impl Field {
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The field's bits of an ID, as they are.
    pub fn value_in(&self, id: u64) -> u64 {
        id >> self.shift & self.max()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values();
        let texts = values.iter().map(|(key, value)| pair(key, value));
        f.write_str(&texts.collect::<Vec<_>>().join(" "))
    }
}

/// A pair as a label writes it.
fn pair(key: &str, value: &str) -> String {
    let is_bare = |c: char| c.is_ascii_graphic() && !"'\"".contains(c);
    match !value.is_empty() && value.chars().all(is_bare) {
        true => format!("{key}={value}"),
        false => format!("{key}='{}'", value.replace('\'', "''")),
    }
}
