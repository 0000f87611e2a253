//! Taking IDs apart and putting them together.
//!
//! Each comes in three forms. Of the default generator, whose layout never
//! changes: IMMUTABLE (indexes, generated columns, partition pruning). Of a
//! generator, whose label may change: STABLE. By a label text (`_as`), which
//! says all: IMMUTABLE. All are STRICT (NULL gives NULL) and PARALLEL SAFE (they
//! read nothing but their arguments and the catalog), and work without
//! preloading and on standbys.

use std::ffi::CStr;

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{AnyElement, IntoDatum, JsonB, pg_extern, pg_guard, pg_sys};

use super::super::entry;
use super::super::error::Error;
use super::super::label::{self, Described};
use super::super::spi;
use super::super::time::{self, Instant};
use crate::snowflake::id::{SnowflakeId, Tick, UnixMillis};
use crate::snowflake::label::{EncodeError, Label};
use crate::snowflake::layout::{Fields, Layout, Role};

const LAYOUT: Layout = Layout::DEFAULT;

fn fields(id: i64) -> Result<Fields, Error> {
    Ok(LAYOUT.decode(SnowflakeId::new(id))?)
}

/// What a generator's label says.
fn of(generator: pg_sys::Oid) -> Result<&'static Described, Error> {
    entry::of(generator).describe()
}

fn decoded(id: i64, label: &Label) -> Result<Fields, Error> {
    Ok(label.decode(SnowflakeId::new(id))?.fields)
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

CREATE FUNCTION snowflake_decode(
    id bigint, generator regclass,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_decode_of';
COMMENT ON FUNCTION snowflake_decode(bigint, regclass) IS
    'the parts of an ID of a generator, in one row';

CREATE FUNCTION snowflake_decode_as(
    id bigint, layout text,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_decode_as';
COMMENT ON FUNCTION snowflake_decode_as(bigint, text) IS
    'the parts of an ID, by the text of a label such as ''preset=discord'', in one row';
"#,
    name = "snowflake_decode",
    requires = ["snowflake_nextval"]
);

/// Declares a function that is written without `#[pg_extern]`.
macro_rules! version_1 {
    ($name:ident) => {
        /// The V1 calling convention.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> &'static pg_sys::Pg_finfo_record {
            const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
            &V1
        }
    };
}

version_1!(pg_finfo_snowflake_decode);
version_1!(pg_finfo_snowflake_decode_of);
version_1!(pg_finfo_snowflake_decode_as);

/// `snowflake_decode(id)`, one row.
///
/// # Safety
/// Called by PostgreSQL with one bigint that is not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_decode(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the caller's.
    unsafe { row(fcinfo, |id| decode(id, &label::of_default().label)) }
}

/// `snowflake_decode(id, generator)`, one row.
///
/// # Safety
/// Called by PostgreSQL with a bigint and a regclass that are not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_decode_of(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the caller's.
    unsafe {
        let generator = pgrx::pg_getarg::<pg_sys::Oid>(fcinfo, 1).unwrap_or(pg_sys::InvalidOid);
        row(fcinfo, |id| decode(id, &of(generator)?.label))
    }
}

/// `snowflake_decode_as(id, layout)`, one row.
///
/// # Safety
/// Called by PostgreSQL with a bigint and a text that are not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_decode_as(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the caller's.
    unsafe {
        let text = pgrx::pg_getarg::<&str>(fcinfo, 1).unwrap_or_default();
        row(fcinfo, |id| decode(id, &label::given(text)?.label))
    }
}

/// The columns of an ID, as declared above.
type Columns = [Option<pg_sys::Datum>; 5];

fn decode(id: i64, label: &Label) -> Result<Columns, Error> {
    let layout = label.layout();
    let decoded = label.decode(SnowflakeId::new(id))?;
    let fields = decoded.fields;
    let named: serde_json::Map<_, _> = decoded
        .named
        .into_iter()
        .map(|(name, value)| (name.to_string(), value.into()))
        .collect();
    let number = |value: u64| value.cast_signed().into_datum();
    Ok([
        time::to_datum(layout.instant_of(fields.tick)).into_datum(),
        number(fields.worker).filter(|_| layout.has_worker()),
        number(fields.sequence),
        i32::try_from(fields.clock)
            .ok()
            .filter(|_| layout.clock_bits() > 0)
            .and_then(IntoDatum::into_datum),
        JsonB(named.into()).into_datum(),
    ])
}

/// # Safety
/// Called by PostgreSQL, with an ID as the first argument.
unsafe fn row(
    fcinfo: pg_sys::FunctionCallInfo,
    columns: impl FnOnce(i64) -> Result<Columns, Error>,
) -> pg_sys::Datum {
    // SAFETY: the caller's; the function's declared result has these columns.
    unsafe {
        let id = pgrx::pg_getarg::<i64>(fcinfo, 0).unwrap_or_default();
        let columns = match columns(id) {
            Ok(columns) => columns,
            Err(error) => error.raise(),
        };
        let mut values = columns.map(|column| column.unwrap_or(pg_sys::Datum::from(0)));
        let mut nulls = columns.map(|column| column.is_none());
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

/// `snowflake_timestamp(id, generator) -> timestamptz`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_timestamp(id bigint, generator regclass) RETURNS timestamptz
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_timestamp(bigint, regclass) IS
    'when an ID of a generator was made, to the tick';
"#
)]
fn snowflake_timestamp_of(
    id: i64,
    generator: pg_sys::Oid,
) -> Result<TimestampWithTimeZone, ErrorReport> {
    let described = of(generator)?;
    let (layout, fields) = (described.generator.layout, decoded(id, &described.label)?);
    Ok(time::to_datum(layout.instant_of(fields.tick)))
}

/// `snowflake_timestamp_as(id, layout) -> timestamptz`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_timestamp_as(id bigint, layout text) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_timestamp_as(bigint, text) IS
    'when an ID, by the text of a label was made, to the tick';
"#
)]
fn snowflake_timestamp_as(id: i64, layout: &str) -> Result<TimestampWithTimeZone, ErrorReport> {
    let described = label::given(layout)?;
    let (layout, fields) = (described.generator.layout, decoded(id, &described.label)?);
    Ok(time::to_datum(layout.instant_of(fields.tick)))
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

/// `snowflake_worker_id(id, generator) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_worker_id(id bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_worker_id(bigint, regclass) IS
    'worker ID of the server that made an ID of a generator; null if the layout has none';
"#
)]
fn snowflake_worker_id_of(id: i64, generator: pg_sys::Oid) -> Result<Option<i64>, ErrorReport> {
    let described = of(generator)?;
    let (layout, fields) = (described.generator.layout, decoded(id, &described.label)?);
    Ok(layout.has_worker().then_some(fields.worker.cast_signed()))
}

/// `snowflake_worker_id_as(id, layout) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_worker_id_as(id bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_worker_id_as(bigint, text) IS
    'worker ID of the server that made an ID, by the text of a label; null if the layout has none';
"#
)]
fn snowflake_worker_id_as(id: i64, layout: &str) -> Result<Option<i64>, ErrorReport> {
    let described = label::given(layout)?;
    let (layout, fields) = (described.generator.layout, decoded(id, &described.label)?);
    Ok(layout.has_worker().then_some(fields.worker.cast_signed()))
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

/// `snowflake_sequence(id, generator) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_sequence(id bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_sequence(bigint, regclass) IS
    'sequence number of an ID of a generator within its tick';
"#
)]
fn snowflake_sequence_of(id: i64, generator: pg_sys::Oid) -> Result<i64, ErrorReport> {
    let described = of(generator)?;
    let fields = decoded(id, &described.label)?;
    Ok(fields.sequence.cast_signed())
}

/// `snowflake_sequence_as(id, layout) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_sequence_as(id bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_sequence_as(bigint, text) IS
    'sequence number of an ID, by the text of a label within its tick';
"#
)]
fn snowflake_sequence_as(id: i64, layout: &str) -> Result<i64, ErrorReport> {
    let described = label::given(layout)?;
    let fields = decoded(id, &described.label)?;
    Ok(fields.sequence.cast_signed())
}

/// `snowflake_encode(created_at, worker_id, sequence) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_encode(created_at timestamptz, worker_id bigint, sequence bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_encode(timestamptz, bigint, bigint) IS
    'the ID of the default generator with these parts; it is not reserved';
"#
)]
fn snowflake_encode(
    created_at: TimestampWithTimeZone,
    worker_id: i64,
    sequence: i64,
) -> Result<i64, ErrorReport> {
    Ok(encode(
        &label::of_default().label,
        created_at,
        worker_id,
        sequence,
    )?)
}

/// `snowflake_encode(created_at, worker_id, sequence, generator) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_encode(created_at timestamptz, worker_id bigint, sequence bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_encode(timestamptz, bigint, bigint, regclass) IS
    'the ID of a generator with these parts; it is not reserved';
"#
)]
fn snowflake_encode_of(
    created_at: TimestampWithTimeZone,
    worker_id: i64,
    sequence: i64,
    generator: pg_sys::Oid,
) -> Result<i64, ErrorReport> {
    Ok(encode(
        &of(generator)?.label,
        created_at,
        worker_id,
        sequence,
    )?)
}

/// `snowflake_encode_as(created_at, worker_id, sequence, layout) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_encode_as(created_at timestamptz, worker_id bigint, sequence bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_encode_as(timestamptz, bigint, bigint, text) IS
    'the ID with these parts, by the text of a label';
"#
)]
fn snowflake_encode_as(
    created_at: TimestampWithTimeZone,
    worker_id: i64,
    sequence: i64,
    layout: &str,
) -> Result<i64, ErrorReport> {
    Ok(encode(
        &label::given(layout)?.label,
        created_at,
        worker_id,
        sequence,
    )?)
}

/// `snowflake_encode_as(created_at, fields, layout) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_encode_as(created_at timestamptz, fields jsonb, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_encode_as(timestamptz, jsonb, text) IS
    'the ID with these fields by name, as snowflake_decode_as() gives them; fixed ones may be left out';
"#
)]
fn snowflake_encode_fields_as(
    created_at: TimestampWithTimeZone,
    fields: AnyElement,
    layout: &str,
) -> Result<i64, ErrorReport> {
    // SAFETY: declared as jsonb; its text is NUL-terminated.
    let fields = spi::from_server(unsafe {
        CStr::from_ptr(pg_sys::OidOutputFunctionCall(
            pg_sys::F_JSONB_OUT.into(),
            fields.datum(),
        ))
    });
    // Not as JsonB, which takes numbers and depths that only PostgreSQL has for
    // an internal error.
    let fields = serde_json::from_str(&fields).map_err(|_| Error::FieldsNotRead)?;
    Ok(encode_fields(
        &label::given(layout)?.label,
        created_at,
        &fields,
    )?)
}

fn finite(at: TimestampWithTimeZone) -> Result<UnixMillis, Error> {
    match time::instant(at.into()) {
        Instant::At(at) => Ok(at),
        Instant::Beginning | Instant::End => Err(Error::InfiniteInstant),
    }
}

fn encode(
    label: &Label,
    created_at: TimestampWithTimeZone,
    worker_id: i64,
    sequence: i64,
) -> Result<i64, Error> {
    // Both ways of writing the time would be right.
    if let Some(mode) = label.fields().iter().find(|f| f.role == Role::Mode(None)) {
        return Err(EncodeError::Missing(mode.name.clone()).into());
    }
    let layout = label.layout();
    let tick = layout.tick_at(finite(created_at)?)?;
    Ok(layout.encode(tick, worker_id, sequence)?.get())
}

fn encode_fields(
    label: &Label,
    created_at: TimestampWithTimeZone,
    fields: &serde_json::Value,
) -> Result<i64, Error> {
    let tick = label.layout().tick_at(finite(created_at)?)?;
    let fields = fields.as_object().ok_or(Error::FieldsNotObject)?;
    let mut values = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let value = value.as_i64().ok_or_else(|| Error::FieldNotNumber {
            field: name.clone(),
        })?;
        if name != "time" {
            values.push((name.clone(), value));
        } else if value.cast_unsigned() != tick.get() {
            return Err(Error::TimeMismatch {
                time: value,
                tick: tick.get().cast_signed(),
            });
        }
    }
    Ok(label.encode(tick, &values)?.get())
}

/// `snowflake_min_id(at) -> bigint`.
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
    Ok(range(&LAYOUT, at)?.0.get())
}

/// `snowflake_min_id(at, generator) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_min_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_min_id(timestamptz, regclass) IS
    'least ID of a generator in the tick that holds an instant';
"#
)]
fn snowflake_min_id_of(
    at: TimestampWithTimeZone,
    generator: pg_sys::Oid,
) -> Result<i64, ErrorReport> {
    Ok(range(&of(generator)?.generator.layout, at)?.0.get())
}

/// `snowflake_min_id_as(at, layout) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_min_id_as(at timestamptz, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_min_id_as(timestamptz, text) IS
    'least ID in the tick that holds an instant, by the text of a label';
"#
)]
fn snowflake_min_id_as(at: TimestampWithTimeZone, layout: &str) -> Result<i64, ErrorReport> {
    Ok(range(&label::given(layout)?.generator.layout, at)?.0.get())
}

/// `snowflake_max_id(at) -> bigint`.
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
    Ok(range(&LAYOUT, at)?.1.get())
}

/// `snowflake_max_id(at, generator) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_max_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_max_id(timestamptz, regclass) IS
    'greatest ID of a generator in the tick that holds an instant';
"#
)]
fn snowflake_max_id_of(
    at: TimestampWithTimeZone,
    generator: pg_sys::Oid,
) -> Result<i64, ErrorReport> {
    Ok(range(&of(generator)?.generator.layout, at)?.1.get())
}

/// `snowflake_max_id_as(at, layout) -> bigint`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_max_id_as(at timestamptz, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_max_id_as(timestamptz, text) IS
    'greatest ID in the tick that holds an instant, by the text of a label';
"#
)]
fn snowflake_max_id_as(at: TimestampWithTimeZone, layout: &str) -> Result<i64, ErrorReport> {
    Ok(range(&label::given(layout)?.generator.layout, at)?.1.get())
}

/// Least and greatest ID of the tick that holds an instant; of the first and the
/// last tick for the infinities.
fn range(layout: &Layout, at: TimestampWithTimeZone) -> Result<(SnowflakeId, SnowflakeId), Error> {
    Ok(match time::instant(at.into()) {
        Instant::At(at) => layout.range_of(layout.tick_at(at)?)?,
        Instant::Beginning => {
            let (least, _) = layout.range_of(Tick::new(0))?;
            (least, least)
        }
        Instant::End => {
            let (_, greatest) = layout.range_of(layout.last_tick())?;
            (greatest, greatest)
        }
    })
}
