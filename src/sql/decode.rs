//! Taking IDs apart and putting them together.
//!
//! Each function is for the default generator or for a named one, and some also for the
//! text of a label (`_as`); [`by_layout`] tells them apart. All work without preloading and
//! on standbys.

use pgrx::{JsonB, pg_sys};

use crate::postgres::time;
use crate::sql::call::{Call, Whose, by_layout, c_function, columns};
use crate::sql::error::{self, Error};
use snowflake_core::id::layout::{FieldRole, Layout, LayoutError};
use snowflake_core::id::{SnowflakeId, Tick};
use snowflake_core::label::{Field, Label};

by_layout!(snowflake_decode, snowflake_decode_as, 1, decode);
by_layout!(
    snowflake_internal_worker_of,
    snowflake_internal_worker_of_as,
    1,
    worker_of
);
by_layout!(snowflake_encode, snowflake_encode_as, 3, encode);
by_layout!(snowflake_min_id, snowflake_min_id_as, 1, min_id);
by_layout!(snowflake_max_id, snowflake_max_id_as, 1, max_id);

/// `snowflake_decode(id [, generator])`, `snowflake_decode_as(id, layout)`: one row.
fn decode(call: &Call, whose: &Whose) -> Result<pg_sys::Datum, Error> {
    let label = whose.label();
    let layout = label.layout();
    let decoded = label.decode(SnowflakeId::new(call.number(0)))?;
    let fields = decoded.fields;
    let named = decoded.named.into_iter();
    let named: serde_json::Map<_, _> = named.map(|(name, it)| (name.into(), it.into())).collect();
    let clock = i32::try_from(fields.clock).ok();
    Ok(call.row(columns![
        time::to_datum_after(
            layout.instant_of(fields.tick),
            layout.micros_of(fields.tick)
        ),
        layout.has_worker().then_some(fields.worker.cast_signed()),
        (layout.sequence_bits() > 0).then_some(fields.sequence.cast_signed()),
        clock.filter(|_| layout.clock_bits() > 0),
        JsonB(named.into()),
    ]))
}

// `snowflake_timestamp(id [, generator])`.
c_function!(snowflake_timestamp, |call| {
    call.whose(1)?.read(call.number(0), |layout, fields| {
        time::to_datum(layout.instant_of(fields.tick))
    })
});

/// The column `worker_id` of `snowflake_decode()` alone, for `snowflake_check()`: it takes a tenth
/// of the time.
fn worker_of(call: &Call, whose: &Whose) -> Result<Option<i64>, Error> {
    whose.read(call.number(0), |layout, fields| {
        layout.has_worker().then_some(fields.worker.cast_signed())
    })
}

fn min_id(call: &Call, whose: &Whose) -> Result<i64, Error> {
    let at = call.number(0);
    whose.with_layout(|layout| Ok(range(layout, at)?.0.get()))
}

fn max_id(call: &Call, whose: &Whose) -> Result<i64, Error> {
    let at = call.number(0);
    whose.with_layout(|layout| Ok(range(layout, at)?.1.get()))
}

/// The least and the greatest ID of the tick that holds an instant. The infinities
/// stand for the first and the last tick.
#[inline]
fn range(layout: &Layout, at: i64) -> Result<(SnowflakeId, SnowflakeId), LayoutError> {
    match at {
        time::BEGINNING => {
            let (least, _) = layout.range_of(Tick::new(0))?;
            Ok((least, least))
        }
        time::END => {
            let (_, greatest) = layout.range_of(layout.last_tick())?;
            Ok((greatest, greatest))
        }
        _ => layout.range_of(layout.tick_at(time::unix_millis(at), time::micros_within(at))?),
    }
}

/// The tick that holds the first argument, a timestamptz.
fn tick(call: &Call, layout: &Layout) -> Result<Tick, Error> {
    let micros = time::micros_within(call.number(0));
    Ok(layout.tick_at(call.instant(0)?, micros)?)
}

/// `snowflake_encode(created_at, worker_id, sequence [, generator])`,
/// `snowflake_encode_as(created_at, worker_id, sequence, layout)`, and with all
/// fields in one jsonb `snowflake_encode_as(created_at, fields, layout)`.
fn encode(call: &Call, whose: &Whose) -> Result<i64, Error> {
    let label = whose.label();
    if matches!(whose, Whose::Text(_)) && call.count() == 3 {
        return encode_fields(call, label);
    }
    // With such a field, more than one ID would be a right answer.
    let open = |field: &&Field| matches!(field.role, FieldRole::Mode(None) | FieldRole::Caller);
    if let Some(field) = label.fields().iter().find(open) {
        return Err(LayoutError::Missing(field.name.clone()).into());
    }
    let layout = label.layout();
    let tick = tick(call, &layout)?;
    Ok(layout.encode(tick, call.number(1), call.number(2))?.get())
}

fn encode_fields(call: &Call, label: &Label) -> Result<i64, Error> {
    let mut values = call.fields(1)?;
    let tick = tick(call, &label.layout())?;
    let other =
        |(name, value): &&(String, i64)| name == "time" && value.cast_unsigned() != tick.get();
    if let Some((_, time)) = values.iter().find(other) {
        return Err(error::time_mismatch(*time, tick.get().cast_signed()));
    }
    values.retain(|(name, _)| name != "time");
    Ok(label.encode(tick, &values)?.get())
}
