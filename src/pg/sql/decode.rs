//! Taking IDs apart and putting them together, for the default layout.
//!
//! Its layout never changes, so all are IMMUTABLE (indexes, generated columns,
//! partition pruning), STRICT (NULL gives NULL) and PARALLEL SAFE (they read
//! nothing but their arguments). They work without preloading.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{IntoDatum, pg_extern, pg_guard, pg_sys};

use super::super::error::Error;
use super::super::time::{self, Instant};
use crate::snowflake::layout::{Fields, Layout, SnowflakeId};

const LAYOUT: Layout = Layout::DEFAULT;

fn fields(id: i64) -> Result<Fields, Error> {
    Ok(LAYOUT.decode(SnowflakeId::new(id))?)
}

// Written without #[pg_extern], whose composite results need a named type.
pgrx::extension_sql!(
    r#"
CREATE FUNCTION snowflake_decode(
    id bigint,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_decode';
COMMENT ON FUNCTION snowflake_decode(bigint) IS
    'the parts of an ID of the default generator, in one row';
"#,
    name = "snowflake_decode",
    requires = ["snowflake_nextval"]
);

/// The V1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_decode() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}

/// `snowflake_decode(id bigint)`, one row.
///
/// # Safety
/// Called by PostgreSQL with one bigint that is not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_decode(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the caller's.
    let id = unsafe { (*(*fcinfo).args.as_ptr()).value.value() }.cast_signed() as i64;
    let fields = match fields(id) {
        Ok(fields) => fields,
        Err(error) => error.raise(),
    };
    let named = serde_json::json!({
        "time": fields.tick.get(),
        "worker": fields.worker,
        "sequence": fields.sequence,
    });
    let columns = [
        time::to_datum(LAYOUT.instant_of(fields.tick)).into_datum(),
        fields.worker.cast_signed().into_datum(),
        fields.sequence.cast_signed().into_datum(),
        // This layout has no clock field.
        None,
        pgrx::JsonB(named).into_datum(),
    ];
    let mut values = columns.map(|column| column.unwrap_or(pg_sys::Datum::from(0)));
    let mut nulls = columns.map(|column| column.is_none());
    // SAFETY: the function's declared result has these five columns.
    unsafe {
        let mut descriptor = std::ptr::null_mut();
        pg_sys::get_call_result_type(fcinfo, std::ptr::null_mut(), &raw mut descriptor);
        let descriptor = pg_sys::BlessTupleDesc(descriptor);
        let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
    }
}

/// `snowflake_timestamp(id) -> timestamptz`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS
    'when an ID of the default generator was made, to the millisecond';
"#
)]
fn snowflake_timestamp(id: i64) -> Result<TimestampWithTimeZone, ErrorReport> {
    Ok(time::to_datum(LAYOUT.instant_of(fields(id)?.tick)))
}

/// `snowflake_worker_id(id) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_worker_id(id bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_worker_id(bigint) IS
    'worker ID of the server that made an ID of the default generator';
"#
)]
fn snowflake_worker_id(id: i64) -> Result<i64, ErrorReport> {
    Ok(fields(id)?.worker.cast_signed())
}

/// `snowflake_sequence(id) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_sequence(id bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_sequence(bigint) IS
    'sequence number of an ID of the default generator within its millisecond';
"#
)]
fn snowflake_sequence(id: i64) -> Result<i64, ErrorReport> {
    Ok(fields(id)?.sequence.cast_signed())
}

/// `snowflake_encode(created_at, worker_id, sequence) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_encode(created_at timestamptz, worker_id bigint, sequence bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_encode(timestamptz, bigint, bigint) IS
    'the ID of the default layout with these parts; it is not reserved by this';
"#
)]
fn snowflake_encode(
    created_at: TimestampWithTimeZone,
    worker_id: i64,
    sequence: i64,
) -> Result<i64, ErrorReport> {
    let Instant::At(at) = time::instant(created_at.into()) else {
        return Err(Error::InfiniteInstant.into());
    };
    let tick = LAYOUT.tick_at(at).map_err(Error::from)?;
    Ok(LAYOUT
        .encode(tick, worker_id, sequence)
        .map_err(Error::from)?
        .get())
}

/// `snowflake_min_id(timestamptz) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_min_id(at timestamptz) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_min_id(timestamptz) IS
    'least ID of the millisecond that holds an instant: id >= snowflake_min_id(a) AND id < snowflake_min_id(b)';
"#
)]
fn snowflake_min_id(at: TimestampWithTimeZone) -> Result<i64, ErrorReport> {
    bound(at, |tick| LAYOUT.min_id_of(tick))
}

/// `snowflake_max_id(timestamptz) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_max_id(at timestamptz) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_max_id(timestamptz) IS
    'greatest ID of the millisecond that holds an instant';
"#
)]
fn snowflake_max_id(at: TimestampWithTimeZone) -> Result<i64, ErrorReport> {
    bound(at, |tick| LAYOUT.max_id_of(tick))
}

fn bound(
    at: TimestampWithTimeZone,
    of: impl Fn(crate::snowflake::layout::Tick) -> SnowflakeId,
) -> Result<i64, ErrorReport> {
    Ok(match time::instant(at.into()) {
        Instant::At(at) => of(LAYOUT.tick_at(at).map_err(Error::from)?).get(),
        Instant::Beginning => 0,
        Instant::End => LAYOUT.max_id().get(),
    })
}
