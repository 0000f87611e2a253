//! The rules of labels: the defaults for keys that are not given, and the
//! contradictions between those that are.

use std::ops::RangeInclusive;

use super::grammar::{
    FIELD_FORM, FieldText, KEYS, Pair, Placed, Spot, fields, list, no_value, number, pairs,
};
use super::values::{ON_EXHAUSTED, ON_ROLLBACK, choice, duration, epoch, on_rollback_text, start};
use super::{Field, Label, LabelError};
use crate::snowflake::clocks::CLOCK_BITS_MAX;
use crate::snowflake::duration::duration_text;
use crate::snowflake::layout::{
    Layout, Misfit, POSITION_BITS_MAX, Role, TICK_MILLIS_MAX, WORKER_BITS_MAX,
};
use crate::snowflake::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::snowflake::presets;

/// The ranges of durations, in milliseconds. The longest rollback is 10 years.
const TICK: RangeInclusive<i64> = 1..=TICK_MILLIS_MAX;
const MAX_ROLLBACK: RangeInclusive<i64> = 1000..=3650 * 86_400_000;
const MAX_WAIT: RangeInclusive<i64> = 0..=60_000;
const MAX_BORROW: RangeInclusive<i64> = 0..=*MAX_ROLLBACK.end() / 2;

/// Understands a label.
pub fn parse(text: &str) -> Result<Label, LabelError> {
    let mut draft = Draft::default();
    for pair in pairs(text, Spot::behind(0))? {
        draft.take(pair)?;
    }
    draft.finish(Spot::behind(text.len()))
}

/// The values that a label gives, with their places. Those of a preset come first,
/// and later ones override them.
#[derive(Default)]
struct Draft<'a> {
    preset: Option<&'static str>,
    layout: Option<Placed<Vec<FieldText>>>,
    epoch: Option<Placed<i64>>,
    tick: Option<Placed<i64>>,
    on_rollback: Option<Placed<OnRollback>>,
    max_rollback: Option<Placed<i64>>,
    /// Its place is that of its key: where the key has no meaning, the value is not
    /// to blame.
    max_wait: Option<Placed<i64>>,
    max_borrow: Option<Placed<i64>>,
    on_exhausted: Option<Placed<OnExhausted>>,
    sequence_start: Option<Placed<SequenceStart>>,
    /// Values of fields. Not numbers yet, because the name may be a mistyped key.
    others: Vec<Pair<'a>>,
}

impl<'a> Draft<'a> {
    fn take(&mut self, pair: Pair<'a>) -> Result<(), LabelError> {
        let (key, text) = (pair.key.value, pair.value.as_str());
        match key {
            "preset" => self.take_preset(text)?,
            "layout" => self.layout = Some(text.with(fields(text)?)),
            "epoch" => self.epoch = Some(epoch(text)?),
            "tick" => self.tick = Some(duration(key, text, TICK)?),
            "on_rollback" => self.on_rollback = Some(choice(key, text, &ON_ROLLBACK)?),
            "max_rollback" => self.max_rollback = Some(duration(key, text, MAX_ROLLBACK)?),
            "max_wait" => {
                let millis = duration(key, text, MAX_WAIT)?.value;
                self.max_wait = Some(pair.key.with(millis));
            }
            "max_borrow" => self.max_borrow = Some(duration(key, text, MAX_BORROW)?),
            "on_exhausted" => self.on_exhausted = Some(choice(key, text, &ON_EXHAUSTED)?),
            "sequence_start" => self.sequence_start = Some(start(text)?),
            _ => self.others.push(pair),
        }
        Ok(())
    }

    fn take_preset(&mut self, name: Placed<&str>) -> Result<(), LabelError> {
        let Some(preset) = presets::find(name.value) else {
            let names: Vec<_> = presets::ALL.iter().map(|preset| preset.name).collect();
            return name.at.error(
                format!("unknown preset {name}"),
                format!("Presets are {}.", list(&names, "and")),
            );
        };
        self.preset = Some(preset.name);
        for pair in pairs(preset.text, name.at.of_preset())? {
            self.take(pair)?;
        }
        Ok(())
    }

    /// Makes the label, if nothing is missing and there is no contradiction. `end`
    /// is the end of the text.
    fn finish(mut self, end: Spot) -> Result<Label, LabelError> {
        let Some(mut fields) = self.layout.take() else {
            // More likely a misspelled "layout" than a value for a field of none.
            if let Some(pair) = self.others.first() {
                return unknown_key(pair.key, &[]);
            }
            return end.error(
                "neither \"layout\" nor \"preset\" is given",
                "Name a preset, or describe the fields, as in layout='time:41 worker:10 sequence:12'.",
            );
        };
        for pair in &self.others {
            set(&mut fields.value, pair)?;
        }
        let Some(epoch) = self.epoch else {
            return end.error(
                match self.preset {
                    Some(name) => format!("preset \"{name}\" needs an epoch, and none is given"),
                    None => "no epoch is given".to_string(),
                },
                "Say what time counts from, as in epoch='2025-01-01 00:00:00+00', or in Unix milliseconds.",
            );
        };
        let tick = given(self.tick, Layout::DEFAULT.tick_millis());
        let mut names = fields.value.iter().map(FieldText::named_role);
        let by_mode = names.any(|role| role == Some(Role::TimeByMode));
        let roles = fields.value.iter().map(|field| {
            let bits = u32::try_from(field.bits).unwrap_or(u32::MAX);
            (field.role(by_mode), bits)
        });
        let roles: Vec<_> = roles.collect();
        let layout = match Layout::new(epoch.value, tick, &roles) {
            Ok(layout) => layout,
            Err(misfit) => return refuse(misfit, &fields),
        };
        let (policy, max_borrow_millis) = self.policy(&layout)?;

        let mut shift = layout.width();
        let fields = fields.value.into_iter().zip(roles);
        let fields = fields.map(|(field, (role, bits))| {
            shift -= bits;
            Field {
                name: field.name.value,
                role,
                bits,
                shift,
            }
        });
        Ok(Label {
            fields: fields.collect(),
            layout,
            policy,
            max_borrow_millis,
        })
    }

    /// The policy, and `max_borrow` in milliseconds.
    fn policy(&self, layout: &Layout) -> Result<(Policy, i64), LabelError> {
        let usual = Policy::DEFAULT;
        let on_rollback = given(self.on_rollback, usual.on_rollback);
        self.check_clocks(layout)?;
        if let Some(max_wait) = self.max_wait
            && !max_wait.at.is_preset()
            && !on_rollback.waits()
        {
            return max_wait.at.error(
                format!(
                    "max_wait has no meaning with on_rollback={}",
                    on_rollback_text(on_rollback)
                ),
                "It is for on_rollback=wait, next_clock and next_worker.",
            );
        }
        let max_wait = self.max_wait.filter(|_| on_rollback.waits());
        let mut policy = Policy {
            on_rollback,
            max_rollback_millis: given(self.max_rollback, usual.max_rollback_millis),
            max_wait_millis: given(max_wait, usual.max_wait_millis),
            max_borrow_ticks: 0,
            on_exhausted: given(self.on_exhausted, usual.on_exhausted),
            sequence_start: SequenceStart::usual(layout.sequence_bits()),
        };
        let max_borrow_millis = self.max_borrow_millis(layout, &policy)?;
        policy.max_borrow_ticks = (max_borrow_millis / layout.tick_millis()).unsigned_abs();
        if let Some(Placed { value, at }) = self.sequence_start {
            if value.last() > layout.max_sequence() {
                return at.error(
                    format!(
                        "sequence_start {} is past the end of the sequence field",
                        value.last()
                    ),
                    format!("The field holds 0 to {}.", layout.max_sequence()),
                );
            }
            policy.sequence_start = value;
        }
        Ok((policy, max_borrow_millis))
    }

    /// Whether the layout has the clocks that the policy goes on in.
    fn check_clocks(&self, layout: &Layout) -> Result<(), LabelError> {
        let bits = layout.clock_bits();
        let rollback = place_of(self.on_rollback, OnRollback::NextClock);
        let exhausted = place_of(self.on_exhausted, OnExhausted::NextClock);
        let rollback_key = rollback.map(|at| (at, "on_rollback"));
        let exhausted_key = exhausted.map(|at| (at, "on_exhausted"));
        if bits == 0
            && let Some((at, key)) = rollback_key.or(exhausted_key)
        {
            return at.error(
                format!("{key}=next_clock needs a clock field, and the layout has none"),
                format!("Add one, such as clock:4, or set {key} to something else."),
            );
        }
        if bits > CLOCK_BITS_MAX
            && let Some(at) = rollback
        {
            return at.error(
                format!(
                    "on_rollback=next_clock needs a clock field of at most {CLOCK_BITS_MAX} bits, and the layout has one of {bits}"
                ),
                "The mark keeps which clocks have been used, and has no room for more.",
            );
        }
        if layout.through_clocks().is_none()
            && let Some(at) = exhausted
        {
            return at.error(
                "on_exhausted=next_clock does not fit the layout",
                format!(
                    "The bits of time and sequence, and twice those of the clock, can be {POSITION_BITS_MAX} together."
                ),
            );
        }
        Ok(())
    }

    /// `max_borrow` in milliseconds. Less than a tick counts as nothing; only a label
    /// that asks for it itself is wrong.
    fn max_borrow_millis(&self, layout: &Layout, policy: &Policy) -> Result<i64, LabelError> {
        let (most, tick) = (policy.max_advance().get(), layout.tick_millis());
        let usual = Layout::DEFAULT
            .ticks_as_millis(Policy::DEFAULT.max_borrow_ticks)
            .get();
        let millis = given(self.max_borrow, usual.min(most));
        let text = duration_text;
        match self.max_borrow {
            Some(it) if millis > most => it.at.error(
                format!(
                    "max_borrow \"{}\" is more than half of max_rollback \"{}\"",
                    text(millis),
                    text(policy.max_rollback_millis)
                ),
                format!(
                    "It can be 0 to {}: with more, a restart could be refused.",
                    text(most)
                ),
            ),
            _ if millis == 0 || millis >= tick => Ok(millis),
            Some(it) if !it.at.is_preset() => it.at.error(
                format!("max_borrow \"{}\" is less than a tick", text(millis)),
                format!("It can be 0, or from {} on.", text(tick)),
            ),
            _ => Ok(0),
        }
    }
}

fn given<T>(placed: Option<Placed<T>>, otherwise: T) -> T {
    placed.map_or(otherwise, |it| it.value)
}

/// The place of a value, if it is this one.
fn place_of<T: PartialEq>(placed: Option<Placed<T>>, value: T) -> Option<Spot> {
    placed.filter(|it| it.value == value).map(|it| it.at)
}

/// Gives a field the value that a pair has for it.
fn set(fields: &mut [FieldText], pair: &Pair<'_>) -> Result<(), LabelError> {
    let key = pair.key;
    let mut named = fields.iter_mut();
    match named.find(|field| field.name.value == key.value) {
        Some(field) if field.named_role().is_some() => no_value(key.value, key.at),
        Some(field) => {
            field.value = Some(number(pair.value.as_str())?);
            Ok(())
        }
        None => unknown_key(key, fields),
    }
}

/// The error for a key that is neither one of labels nor one of these fields.
fn unknown_key<T>(key: Placed<&str>, fields: &[FieldText]) -> Result<T, LabelError> {
    let free = fields.iter().filter(|field| field.named_role().is_none());
    let free: Vec<_> = free.map(|field| field.name.value.as_str()).collect();
    let fields = if free.is_empty() {
        String::new()
    } else {
        format!(" Fields that can have a value: {}.", list(&free, "and"))
    };
    key.at.error(
        format!("unknown key {key}"),
        format!("Keys are {}.{fields}", list(&KEYS, "and")),
    )
}

/// The error for fields that make no layout.
fn refuse<T>(misfit: Misfit, fields: &Placed<Vec<FieldText>>) -> Result<T, LabelError> {
    let field = match misfit {
        Misfit::Bits { field, .. } | Misfit::Twice { field } | Misfit::Value { field, .. } => {
            fields.value.get(field)
        }
        _ => None,
    };
    let name = field.map_or("", |field| field.name.value.as_str());
    let at = field.map_or(fields.at, |field| field.name.at);
    let bits = field.map_or(0, |field| field.bits);
    let value = field.and_then(|field| field.value);
    match misfit {
        Misfit::Bits { max, .. } => at.error(
            format!("field \"{name}\" has {bits} bits"),
            match max {
                1 => "It has 1.".to_string(),
                _ => format!("It can have 1 to {max}."),
            },
        ),
        Misfit::Twice { .. } => at.error(
            format!("field \"{name}\" is one of two of its kind"),
            "A layout has one time, one sequence and at most one clock.",
        ),
        Misfit::Value { max, .. } => value.map_or(at, |value| value.at).error(
            format!(
                "value {} of field \"{name}\" is out of range",
                given(value, 0)
            ),
            format!("The field holds 0 to {max}."),
        ),
        Misfit::NoSequence => at.error(
            "the layout has no sequence field",
            "Add one, such as sequence:12.",
        ),
        Misfit::Mode => at.error(
            "the layout has \"time_by_mode\", but no field \"mode\"",
            "Add mode:1, or mode:1=0 for reversed time, mode:1=1 for plain.",
        ),
        Misfit::Width { bits } => at.error(
            format!("the fields have {bits} bits together"),
            "A bigint has 64; with up to 63, IDs are never negative.",
        ),
        Misfit::PositionWidth { bits } => at.error(
            format!("time, clock and sequence have {bits} bits together"),
            format!("They can have up to {POSITION_BITS_MAX}."),
        ),
        Misfit::WorkerWidth { bits } => at.error(
            format!("the fields of the worker ID have {bits} bits together"),
            format!("They can have up to {WORKER_BITS_MAX}; give some of them a value."),
        ),
        // These have been checked where they were read.
        Misfit::NoTime | Misfit::Epoch | Misfit::Tick => {
            at.error("the layout is not valid", FIELD_FORM)
        }
    }
}
