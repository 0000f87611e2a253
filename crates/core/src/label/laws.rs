//! What holds of every text that is taken for a label. The fuzzer and the
//! property tests both check it.

use crate::id::layout::{Fields, LayoutError, POSITION_BITS_MAX};
use crate::id::{Offset, SnowflakeId, Tick, WorkerId};
use crate::label::{Label, LabelError, edit};

/// # Panics
/// If one of the laws does not hold.
pub fn hold(text: &str) {
    match Label::parse(text) {
        Err(error) => says_where(text, &error),
        Ok(label) => {
            prints_as_it_parses(&label);
            survives_edits(text, &label);
            let mut seed = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            for id in [0, 1, -1, i64::MIN, i64::MAX] {
                is_its_id_or_none(&label, id);
            }
            for _ in 0..8 {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let id = (seed ^ (seed >> 29)).cast_signed();
                is_its_id_or_none(&label, id);
                is_its_id_or_none(&label, with_the_fixed_bits(&label, id));
                makes_ids_of_positions(&label, seed);
            }
        }
    }
}

/// An error points into the text and reads as PostgreSQL's do.
fn says_where(text: &str, error: &LabelError) {
    assert!(text.is_char_boundary(error.at), "{error:?}");
    let problem = &error.problem;
    assert!(
        !problem.starts_with(|c: char| c.is_uppercase()),
        "{error:?}"
    );
    assert!(!problem.is_empty() && !problem.ends_with('.'), "{error:?}");
    let allowed = &error.allowed;
    assert!(allowed.starts_with(|c: char| c.is_uppercase()), "{error:?}");
    assert!(allowed.ends_with('.'), "{error:?}");
}

/// # Panics
/// If what a label prints is another label, or another text.
pub fn prints_as_it_parses(label: &Label) {
    let printed = label.to_string();
    let again = Label::parse(&printed);
    assert_eq!(again.as_ref(), Ok(label), "{printed}");
    assert_eq!(again.map(|it| it.to_string()), Ok(printed));
}

/// A label whose keys get the values that they have is the same label, and with another start
/// of the sequence it differs in that only.
fn survives_edits(text: &str, label: &Label) {
    let given = edit::given(text).unwrap_or_default();
    let pairs = given
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let same = edit::edit(text, &pairs.collect::<Vec<_>>());
    assert_eq!(
        same.and_then(|it| Label::parse(&it)).as_ref(),
        Ok(label),
        "{text}"
    );
    let other = edit::edit(text, &[("sequence_start", "random")]);
    let other = other.and_then(|it| Label::parse(&it)).map(|it| it.values());
    let mut values = label.values();
    for (key, value) in &mut values {
        if *key == "sequence_start" {
            *value = "random".to_string();
        }
    }
    assert_eq!(other, Ok(values), "{text}");
}

/// An ID is taken apart into what it is made of again, or refused for a reason
/// that its bits show.
///
/// # Panics
/// Otherwise.
pub fn is_its_id_or_none(label: &Label, id: i64) {
    let bits = id.cast_unsigned();
    let width = label.layout().width();
    let beyond = bits.checked_shr(width).unwrap_or(0) != 0;
    match label.decode(SnowflakeId::new(id)) {
        Ok(decoded) => {
            assert!(!beyond, "{label}: {id}");
            let values: Vec<_> = decoded
                .named
                .iter()
                .filter(|(name, _)| *name != "time")
                .map(|(name, value)| ((*name).to_string(), value.cast_signed()))
                .collect();
            assert_eq!(
                label.encode(decoded.fields.tick, &values),
                Ok(SnowflakeId::new(id)),
                "{label}"
            );
        }
        Err(LayoutError::NotAnId { id: of, bits }) => {
            assert!(beyond && of == id && bits == width, "{label}: {id}");
        }
        Err(LayoutError::Fixed {
            field,
            value,
            fixed,
            ..
        }) => {
            let found = label.fields().iter().find(|it| it.name == field);
            assert_eq!(
                found.map(|it| it.value_in(bits)),
                Some(value),
                "{label}: {id}"
            );
            assert!(!beyond && value != fixed, "{label}: {id}");
        }
        Err(other) => panic!("{label}: {id}: {other:?}"),
    }
}

/// What a generator counts comes back from the ID that it makes of it, if one can
/// count in the layout.
///
/// # Panics
/// Otherwise.
pub fn makes_ids_of_positions(label: &Label, any: u64) {
    let generator = label.generator();
    let layout = generator.layout;
    if layout.position_bits() > POSITION_BITS_MAX {
        assert!(label.check_generates().is_err(), "{label}");
        return;
    }
    let worker = any.rotate_left(40) & layout.max_worker();
    let id = i32::try_from(worker).ok().and_then(WorkerId::new);
    let stamp = id.and_then(|id| layout.stamp(id).ok());
    let stamp = stamp.unwrap_or_else(|| panic!("{label}: {worker}"));
    // In this clock, and so many clocks further.
    let tick = any & layout.last_tick().get();
    let within = any.rotate_left(20) & ((1 << layout.within_bits()) - 1);
    let clock = any.rotate_left(10) & (layout.clocks() - 1);
    let further = within >> layout.sequence_bits();
    let begin = layout.offset_of(Tick::new(tick)).get();
    let at = layout.at(clock, Offset::new(begin | within));
    assert!(at.get() >> 62 == 0, "{label}: {at:?}");
    let made = layout.compose_in(at, stamp, None);
    let fields = Fields {
        tick: Tick::new(tick),
        worker,
        sequence: within & layout.max_sequence(),
        clock: (clock + further) % layout.clocks(),
    };
    assert_eq!(label.layout().decode(made), Ok(fields), "{label}: {at:?}");
    if generator.is_plain() && clock == 0 {
        assert_eq!(layout.compose(at, stamp), made, "{label}: {at:?}");
    }
}

/// An ID with these bits, as far as the label leaves them free.
#[must_use]
pub fn with_the_fixed_bits(label: &Label, id: i64) -> i64 {
    use crate::id::layout::FieldRole;
    let mut bits = 0;
    for field in label.fields() {
        let value = match field.role {
            FieldRole::Fixed(value) => value,
            _ => field.value_in(id.cast_unsigned()),
        };
        bits |= value << field.shift;
    }
    bits.cast_signed()
}
