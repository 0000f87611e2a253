//! Taking IDs apart and putting them together.
//!
//! Each comes in three forms: of the default generator, of a generator, and by
//! the text of a label (`_as`), as [`by_layout`] tells them apart. All work
//! without preloading and on standbys.

use std::ffi::CStr;

use pgrx::datum::TimestampWithTimeZone;
use pgrx::{JsonB, pg_sys};

use super::super::encoding::from_server;
use super::super::error::{self, Error};
use super::super::time;
use super::call::{Call, Whose, by_layout, columns};
use crate::snowflake::id::{SnowflakeId, Tick};
use crate::snowflake::label::Label;
use crate::snowflake::layout::{Layout, LayoutError, Role};

by_layout!(snowflake_decode, snowflake_decode_as, 1, decode);
by_layout!(snowflake_timestamp, snowflake_timestamp_as, 1, timestamp);
by_layout!(snowflake_worker_id, snowflake_worker_id_as, 1, worker_id);
by_layout!(snowflake_sequence, snowflake_sequence_as, 1, sequence);
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
        time::to_datum(layout.instant_of(fields.tick)),
        layout.has_worker().then_some(fields.worker.cast_signed()),
        fields.sequence.cast_signed(),
        clock.filter(|_| layout.clock_bits() > 0),
        JsonB(named.into()),
    ]))
}

/// `snowflake_timestamp(id [, generator])`, `snowflake_timestamp_as(id, layout)`.
fn timestamp(call: &Call, whose: &Whose) -> Result<TimestampWithTimeZone, Error> {
    whose.read(call.number(0), |layout, fields| {
        time::to_datum(layout.instant_of(fields.tick))
    })
}

/// `snowflake_worker_id(id [, generator])`, `snowflake_worker_id_as(id, layout)`.
fn worker_id(call: &Call, whose: &Whose) -> Result<Option<i64>, Error> {
    whose.read(call.number(0), |layout, fields| {
        layout.has_worker().then_some(fields.worker.cast_signed())
    })
}

/// `snowflake_sequence(id [, generator])`, `snowflake_sequence_as(id, layout)`.
fn sequence(call: &Call, whose: &Whose) -> Result<i64, Error> {
    whose.read(call.number(0), |_, fields| fields.sequence.cast_signed())
}

/// `snowflake_min_id(at [, generator])`, `snowflake_min_id_as(at, layout)`.
fn min_id(call: &Call, whose: &Whose) -> Result<i64, Error> {
    let at = call.number(0);
    whose.with_layout(|layout| Ok(range(layout, at)?.0.get()))
}

/// `snowflake_max_id(at [, generator])`, `snowflake_max_id_as(at, layout)`.
fn max_id(call: &Call, whose: &Whose) -> Result<i64, Error> {
    let at = call.number(0);
    whose.with_layout(|layout| Ok(range(layout, at)?.1.get()))
}

/// Least and greatest ID of the tick that holds an instant; of the first and the
/// last tick for the infinities.
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
        _ => layout.range_of(layout.tick_at(time::unix_millis(at))?),
    }
}

/// The tick that the first argument, a timestamptz, is in.
fn tick(call: &Call, layout: &Layout) -> Result<Tick, Error> {
    Ok(layout.tick_at(time::finite(call.number(0))?)?)
}

/// `snowflake_encode(created_at, worker_id, sequence [, generator])`,
/// `snowflake_encode_as(created_at, worker_id, sequence, layout)`, and with all
/// fields in one jsonb `snowflake_encode_as(created_at, fields, layout)`.
fn encode(call: &Call, whose: &Whose) -> Result<i64, Error> {
    let label = whose.label();
    if matches!(whose, Whose::Text(..)) && call.count() == 3 {
        return encode_fields(call, label);
    }
    // Both ways of writing the time would be right.
    if let Some(mode) = label.fields().iter().find(|f| f.role == Role::Mode(None)) {
        return Err(LayoutError::Missing(mode.name.clone()).into());
    }
    let layout = label.layout();
    let tick = tick(call, &layout)?;
    Ok(layout.encode(tick, call.number(1), call.number(2))?.get())
}

fn encode_fields(call: &Call, label: &Label) -> Result<i64, Error> {
    // The jsonb is read from its text: pgrx's `JsonB` gives an internal error for
    // numbers and depths that only PostgreSQL has.
    // SAFETY: declared as jsonb; its text is NUL-terminated.
    let text = from_server(unsafe {
        let text = pg_sys::OidOutputFunctionCall(pg_sys::F_JSONB_OUT.into(), call.datum(1));
        CStr::from_ptr(text)
    });
    let fields: serde_json::Value =
        serde_json::from_str(&text).map_err(|_| error::fields_not_read())?;
    let tick = tick(call, &label.layout())?;
    let fields = fields.as_object().ok_or_else(error::fields_not_object)?;
    let mut values = Vec::new();
    for (name, value) in fields {
        let value = value.as_i64();
        let value = value.ok_or_else(|| error::field_not_number(name))?;
        if name != "time" {
            values.push((name.clone(), value));
        } else if value.cast_unsigned() != tick.get() {
            return Err(error::time_mismatch(value, tick.get().cast_signed()));
        }
    }
    Ok(label.encode(tick, &values)?.get())
}
