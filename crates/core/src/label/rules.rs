//! The rules of labels: the defaults for keys that are not given, and the
//! contradictions between those that are.

use std::ops::RangeInclusive;

use super::grammar::{self, FIELD_FORM, FieldText, KEYS, Pair, Text, list};
use super::values::{
    ON_EXHAUSTED, ON_ROLLBACK, choice, duration, epoch, on_rollback_text, start, tick,
};
use super::{Field, Label, LabelError, TEXT_MAX};
use crate::id::layout::{FieldRole, FieldsError, Layout, POSITION_BITS_MAX, WORKER_BITS_MAX};
use crate::id::{Millis, UnixMillis};
use crate::label::duration::as_set;
use crate::label::generator::Generator;
use crate::label::policy::CLOCK_BITS_MAX;
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::label::presets;

/// The ranges of durations. The longest rollback is 10 years.
const MAX_ROLLBACK: RangeInclusive<Millis> = Millis::new(1000)..=Millis::new(3650 * 86_400_000);
const MAX_WAIT: RangeInclusive<Millis> = Millis::ZERO..=Millis::new(60_000);
const MAX_BORROW: RangeInclusive<Millis> = Millis::ZERO..=MAX_ROLLBACK.end().half();

impl Label {
    /// Understands a label. Fails with a [`LabelError`] for the first thing that is
    /// wrong.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        if text.len() > TEXT_MAX {
            let at = text.len();
            return Text { text, at }.error(
                &format!("it has {at} bytes"),
                &format!("It can have up to {TEXT_MAX}."),
            );
        }
        let mut pairs = grammar::pairs(text)?;
        if let Some(first) = pairs.first().filter(|first| first.key.text == "preset") {
            let name = first.text();
            let Some(preset) = presets::find(name.text) else {
                return name.error(
                    &format!("unknown preset {name}"),
                    "View snowflake_presets shows the presets.",
                );
            };
            let mut stock = grammar::pairs(preset.text)?;
            for pair in &mut stock {
                (pair.key.at, pair.at, pair.is_preset) = (name.at, name.at, true);
            }
            pairs.splice(..0, stock);
        }
        let mut draft = LabelDraft {
            pairs: &pairs,
            end: text.len(),
            layout: None,
            epoch: None,
            tick: (Layout::DEFAULT.tick(), 1),
            policy: Policy::DEFAULT,
            max_borrow: None,
        };
        for pair in &pairs {
            draft.read(pair)?;
        }
        draft.finish()
    }
}

/// The contents of a label. The pairs of a preset come first, and later ones override
/// them.
struct LabelDraft<'a> {
    pairs: &'a [Pair<'a>],
    /// How long the text is.
    end: usize,
    layout: Option<Vec<FieldText<'a>>>,
    epoch: Option<UnixMillis>,
    /// The tick, and its divisor.
    tick: (Millis, u64),
    policy: Policy,
    max_borrow: Option<Millis>,
}

impl<'a> LabelDraft<'a> {
    /// The pair that is valid among those with this key.
    fn given(&self, key: &str) -> Option<&'a Pair<'a>> {
        self.pairs.iter().rfind(|pair| pair.key.text == key)
    }

    /// The value of a key in its place, or the end of the text if the key is not given.
    fn at(&self, key: &str) -> Text<'a> {
        let (text, at) = ("", self.end);
        self.given(key).map_or(Text { text, at }, Pair::text)
    }

    fn read(&mut self, pair: &'a Pair<'a>) -> Result<(), LabelError> {
        let policy = &mut self.policy;
        match pair.key.text {
            "layout" => self.layout = Some(grammar::fields(pair.text())?),
            "epoch" => self.epoch = Some(epoch(pair)?),
            "tick" => self.tick = tick(pair)?,
            "on_rollback" => policy.on_rollback = choice(pair, &ON_ROLLBACK)?,
            "max_rollback" => policy.max_rollback = duration(pair, MAX_ROLLBACK)?,
            "max_wait" => policy.max_wait = duration(pair, MAX_WAIT)?,
            "max_borrow" => self.max_borrow = Some(duration(pair, MAX_BORROW)?),
            "max_observe" => policy.max_observe = Some(duration(pair, MAX_BORROW)?),
            "on_exhausted" => policy.on_exhausted = choice(pair, &ON_EXHAUSTED)?,
            "sequence_start" => policy.sequence_start = start(pair)?,
            // The name of a preset, and values of fields: they are not numbers yet,
            // because the name may be a mistyped key.
            _ => {}
        }
        Ok(())
    }

    /// Makes the label, if nothing is missing and nothing contradicts.
    fn finish(mut self) -> Result<Label, LabelError> {
        let others = self.pairs.iter();
        let mut others = others.filter(|pair| !KEYS.contains(&pair.key.text));
        let Some(mut fields) = self.layout.take() else {
            // More likely a misspelled "layout" than a value for an unknown field.
            return match others.next() {
                Some(pair) => unknown_key(pair.key, &[]),
                None => self.at("layout").error(
                    "neither \"layout\" nor \"preset\" is given",
                    "Name a preset, or describe the fields, as in layout='time:41 worker:10 \
                     sequence:12'.",
                ),
            };
        };
        for pair in others {
            let mut named = fields.iter_mut();
            match named.find(|field| field.name.text == pair.key.text) {
                Some(field) => field.set(pair.key, pair.text())?,
                None => return unknown_key(pair.key, &fields),
            }
        }
        let Some(epoch) = self.epoch else {
            let problem = match self.given("preset").map(Pair::text) {
                Some(name) => &format!("preset {name} needs an epoch, and none is given"),
                None => "no epoch is given",
            };
            let allowed = "Give the epoch, from which the time counts: 2025-01-01Z, for example, \
                           or Unix milliseconds.";
            return self.at("epoch").error(problem, allowed);
        };
        // A field is a mode only beside a time that it governs.
        if fields
            .iter()
            .any(|field| field.role == FieldRole::TimeByMode)
        {
            for field in fields.iter_mut().filter(|field| field.name.text == "mode") {
                field.role = match field.role {
                    FieldRole::Fixed(value) => FieldRole::Mode(Some(value)),
                    FieldRole::Caller => {
                        let (text, at) = ("", field.value_at);
                        return Text { text, at }.error(
                            "field \"mode\" cannot be left to the caller",
                            "It says how the generator writes the time: give it 0 or 1.",
                        );
                    }
                    _ => FieldRole::Mode(None),
                };
            }
        }
        let bits = |field: &FieldText<'_>| u32::try_from(field.bits).unwrap_or(u32::MAX);
        let roles = fields.iter().map(|field| (field.role, bits(field)));
        let roles: Vec<_> = roles.collect();
        let (tick, divisor) = self.tick;
        let layout = match Layout::new(epoch, tick, &roles) {
            Ok(layout) => layout.divided(divisor),
            Err(misfit) => return refuse(misfit, &fields, self.at("layout")),
        };
        let positions = self.check_clocks(layout)?;
        let max_borrow = self.complete_policy(&layout)?;
        let mut shift = layout.width();
        let fields = fields.iter().zip(roles).map(|(field, (role, bits))| {
            shift -= bits;
            Field {
                name: field.name.text.to_string(),
                role,
                bits,
                shift,
            }
        });
        Ok(Label {
            fields: fields.collect(),
            layout,
            generator: Generator {
                layout: positions,
                policy: self.policy,
            },
            max_borrow,
        })
    }

    /// Checks that the layout has the clocks in which the policy continues. Returns the
    /// layout with the positions that go through these clocks.
    fn check_clocks(&self, layout: Layout) -> Result<Layout, LabelError> {
        let bits = layout.clock_bits();
        let rollback = self.policy.on_rollback == OnRollback::NextClock;
        let exhausted = self.policy.on_exhausted == OnExhausted::NextClock;
        for (key, needs_clock) in [("on_rollback", rollback), ("on_exhausted", exhausted)] {
            if needs_clock && bits == 0 {
                return self.at(key).error(
                    &format!("{key}=next_clock needs a clock field, and the layout has none"),
                    &format!("Add one, such as clock:4, or set {key} to something else."),
                );
            }
        }
        if self.policy.on_rollback == OnRollback::NextWorker && !layout.has_worker() {
            return self.at("on_rollback").error(
                "on_rollback=next_worker needs a worker field, and the layout has none",
                "Add one, such as worker:10, or set on_rollback to something else.",
            );
        }
        if rollback && bits > CLOCK_BITS_MAX {
            return self.at("on_rollback").error(
                &format!(
                    "on_rollback=next_clock needs a clock field of at most {CLOCK_BITS_MAX} bits, \
                     and the layout has one of {bits}"
                ),
                "The mark keeps which clocks have been used, and has no room for more.",
            );
        }
        if !exhausted {
            return Ok(layout);
        }
        let Some(through) = layout.through_clocks() else {
            return self.at("on_exhausted").error(
                "on_exhausted=next_clock does not fit the layout",
                &format!(
                    "The bits of time and sequence, and twice those of the clock, can be \
                     {POSITION_BITS_MAX} together."
                ),
            );
        };
        Ok(through)
    }

    /// Sets the values that depend on others or on the layout. Returns `max_borrow`.
    fn complete_policy(&mut self, layout: &Layout) -> Result<Millis, LabelError> {
        let mut policy = self.policy;
        if !policy.on_rollback.waits() {
            if let Some(own) = self.given("max_wait").filter(|pair| !pair.is_preset) {
                let rule = on_rollback_text(policy.on_rollback);
                return own.key.error(
                    &format!("max_wait has no meaning with on_rollback={rule}"),
                    "It is for on_rollback=wait, next_clock and next_worker. \
                     snowflake_alter_generator() removes what is given as ''.",
                );
            }
            policy.max_wait = Policy::DEFAULT.max_wait;
        }

        let (most, tick) = (policy.max_advance(), layout.tick());
        let usual = Layout::DEFAULT.lasting(policy.max_borrow_ticks);
        let mut borrow = self.max_borrow.unwrap_or(usual.min(most));
        let text = as_set(borrow);
        if borrow > most {
            let (rollback, most) = (as_set(policy.max_rollback), as_set(most));
            return self.at("max_borrow").error(
                &format!("max_borrow \"{text}\" is more than half of max_rollback \"{rollback}\""),
                &format!("It can be 0 to {most}: with more, a restart could be refused."),
            );
        }
        // Less than a tick counts as nothing. That is an error only if the label itself
        // asks for it.
        if borrow < tick {
            if borrow > Millis::ZERO && self.given("max_borrow").is_some_and(|pair| !pair.is_preset)
            {
                return self.at("max_borrow").error(
                    &format!("max_borrow \"{text}\" is less than a tick"),
                    &format!("It can be 0, or from {} on.", as_set(tick)),
                );
            }
            borrow = Millis::ZERO;
        }
        policy.max_borrow_ticks = (borrow.get() / tick.get()).unsigned_abs() * layout.divisor();
        if let Some(observe) = policy.max_observe.filter(|observe| *observe > borrow) {
            let (observe, borrow) = (as_set(observe), as_set(borrow));
            return self.at("max_observe").error(
                &format!("max_observe \"{observe}\" is more than max_borrow \"{borrow}\""),
                &format!("It can be 0 to {borrow}: max_borrow limits observed IDs too."),
            );
        }

        if self.given("sequence_start").is_none() {
            policy.sequence_start = SequenceStart::usual(layout.sequence_bits());
        }
        let (last, max) = (policy.sequence_start.last(), layout.max_sequence());
        if last > max {
            return self.at("sequence_start").error(
                &format!("sequence_start {last} is past the end of the sequence field"),
                &format!("The field holds 0 to {max}."),
            );
        }
        self.policy = policy;
        Ok(borrow)
    }
}

/// The error for a key that is neither a key of labels nor one of these fields.
fn unknown_key<T>(key: Text<'_>, fields: &[FieldText<'_>]) -> Result<T, LabelError> {
    let free = fields.iter().filter(|field| field.is_free());
    let free: Vec<_> = free.map(|field| field.name.text).collect();
    let mut allowed = format!("Keys are {}.", list(&KEYS, "and"));
    if !free.is_empty() {
        allowed += &format!(" Fields that can have a value: {}.", list(&free, "and"));
    }
    key.error(&format!("unknown key {key}"), &allowed)
}

/// The error for fields that make no layout.
fn refuse<T>(
    misfit: FieldsError,
    fields: &[FieldText<'_>],
    layout: Text<'_>,
) -> Result<T, LabelError> {
    let field = match misfit {
        FieldsError::Bits { field, .. }
        | FieldsError::Twice { field }
        | FieldsError::Value { field, .. } => fields.get(field),
        _ => None,
    };
    let (Text { text: name, at }, has) =
        field.map_or((layout, 0), |field| (field.name, field.bits));
    let problem = match misfit {
        FieldsError::Bits { .. } => &format!("field \"{name}\" has {has} bits"),
        FieldsError::Twice { .. } => &format!("field \"{name}\" is one of two of its kind"),
        FieldsError::Value { value, .. } => {
            &format!("value {value} of field \"{name}\" is out of range")
        }
        FieldsError::Mode => "the layout has \"time_by_mode\", but no field \"mode\"",
        FieldsError::Width { bits } => &format!("the fields have {bits} bits together"),
        FieldsError::WorkerWidth { bits } => {
            &format!("the fields of the worker ID have {bits} bits together")
        }
        // These have been checked where they were read.
        FieldsError::NoTime | FieldsError::Epoch | FieldsError::Tick => "the layout is not valid",
    };
    let allowed = match misfit {
        FieldsError::Bits { max: 1, .. } => "It has 1.",
        FieldsError::Bits { max, .. } => &format!("It can have 1 to {max}."),
        FieldsError::Twice { .. } => "A layout has one time, one sequence and at most one clock.",
        FieldsError::Value { max, .. } => &format!("The field holds 0 to {max}."),
        FieldsError::Mode => "Add mode:1, or mode:1=0 for reversed time, mode:1=1 for plain.",
        FieldsError::Width { .. } => "A bigint has 64; with up to 63, IDs are never negative.",
        FieldsError::WorkerWidth { .. } => {
            &format!("They can have up to {WORKER_BITS_MAX}; give some of them a value.")
        }
        FieldsError::NoTime | FieldsError::Epoch | FieldsError::Tick => FIELD_FORM,
    };
    let at = match (misfit, field) {
        (FieldsError::Value { .. }, Some(field)) => field.value_at,
        _ => at,
    };
    Text { at, ..layout }.error(problem, allowed)
}
