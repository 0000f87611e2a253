//! What `snowflake_check()` needs and SQL cannot have: decoding without an error, and
//! what labels say. The function itself is in `sql/check.sql`.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;

use crate::postgres::time;
use crate::sql::call::{Call, Whose, by_layout, columns};
use crate::sql::error::Error;
use snowflake_core::id::Millis;

by_layout!(
    snowflake_internal_instant_or_null,
    snowflake_internal_instant_or_null_as,
    1,
    instant_or_null
);

/// `snowflake_internal_instant_or_null(id [, generator])`,
/// `snowflake_internal_instant_or_null_as(id, layout)`: the instant of an ID. NULL if no
/// generator with the layout can have made the ID; `-infinity` if that is because
/// the ID is negative, as if it were of a time before the epoch.
fn instant_or_null(call: &Call, whose: &Whose) -> Result<Option<TimestampWithTimeZone>, Error> {
    let id = call.number(0);
    if id < 0 && !whose.with_layout(|layout| layout.can_be_negative()) {
        return Ok(Some(TimestampWithTimeZone::negative_infinity()));
    }
    let instant = whose.read(id, |layout, fields| {
        time::to_datum(layout.instant_of(fields.tick))
    });
    Ok(instant.ok())
}

by_layout!(
    snowflake_internal_check_limits,
    snowflake_internal_check_limits_as,
    0,
    check_limits
);

/// The bits of the numbers that a sequence may have given: those of a column of type bigint before,
/// or of type integer. A sequence has to give a million numbers a second for twelve days to reach
/// the first.
const SMALL_BITS: [u32; 2] = [40, 31];

const DAY: Millis = Millis::new(86_400_000);

/// `snowflake_internal_check_limits([generator])`,
/// `snowflake_internal_check_limits_as(layout)`: one row.
///
/// Numbers up to `greatest_small` are those of a sequence rather than IDs: those of 40 bits; of
/// 31 bits, if the layout has IDs of more than a day among the first; and none, which is -1, if it
/// has so many among these too. Such IDs may be real ones. `greatest_worker` is NULL for a layout
/// without a worker ID.
fn check_limits(call: &Call, whose: &Whose) -> Result<pg_sys::Datum, Error> {
    let generator = whose.label().generator();
    let (layout, policy) = (generator.layout, generator.policy);
    let small = SMALL_BITS
        .into_iter()
        .find(|&bits| layout.lasting(layout.ticks_below(bits)) <= DAY);
    Ok(call.row(columns![
        small.map_or(-1, |bits| (1_i64 << bits) - 1),
        time::interval(layout.lasting(policy.max_borrow_ticks)),
        time::interval(policy.max_rollback),
        layout
            .has_worker()
            .then(|| layout.max_worker().cast_signed()),
    ]))
}
