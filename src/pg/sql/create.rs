//! Making generators, and the presets to make them from.

use std::ffi::CStr;

use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::iter::TableIterator;
use pgrx::spi::quote_literal;
use pgrx::{name, pg_extern, pg_guard, pg_sys};

use super::super::entry::{self, Entry};
use super::super::error::Error;
use super::super::{label, os_clock, shmem, spi, time};
use crate::snowflake::label::Label;
use crate::snowflake::layout::Disorder;
use crate::snowflake::presets;

// Written without #[pg_extern]: names are in the database's encoding.
pgrx::extension_sql!(
    r#"
CREATE FUNCTION snowflake_create_generator(name text, label text) RETURNS regclass
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_create_generator';
COMMENT ON FUNCTION snowflake_create_generator(text, text) IS
    'makes a generator: a sequence of this name, in which it keeps its mark, with this label; returns it';
"#,
    name = "snowflake_create_generator",
    requires = ["snowflake_set_default"]
);

/// The V1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_create_generator() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}

/// `snowflake_create_generator(name, label) -> regclass`.
///
/// # Safety
/// Called by PostgreSQL with two texts that are not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_create_generator(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the caller's; what is made of a text is NUL-terminated.
    let (name, label) = unsafe {
        let text = |index| pgrx::pg_getarg_datum_raw(fcinfo, index).cast_mut_ptr();
        let label = pg_sys::text_to_cstring(text(1));
        (text(0), spi::from_server(CStr::from_ptr(label)))
    };
    match create(name, &label) {
        Ok(relation) => pg_sys::Datum::from(relation),
        Err(error) => error.raise(),
    }
}

fn create(name: *mut pg_sys::text, label: &str) -> Result<pg_sys::Oid, Error> {
    Entry::prevent_where_nextval_is(c"snowflake_create_generator()");
    let described = label::parse_for_generator(label)?;
    let layout = described.layout();
    // Here and not where a label is checked: a dump must restore at any time.
    let now = layout.tick_number(os_clock::read().wall.millis());
    if now >= layout.last_tick().get().cast_signed() {
        return Err(Error::LayoutIsOver {
            layout: described.layout_text(),
            last: layout.instant_of(layout.last_tick()),
        });
    }
    // SAFETY: a text; what it is taken apart into lives as long as this call.
    // CREATE SEQUENCE checks privileges on the schema.
    let (schema, relation_name, statement) = unsafe {
        let variable = pg_sys::makeRangeVarFromNameList(pg_sys::textToQualifiedNameList(name));
        let schema = pg_sys::RangeVarGetCreationNamespace(variable);
        let relation = (*variable).relname;
        let quoted =
            pg_sys::quote_qualified_identifier(pg_sys::get_namespace_name(schema), relation);
        (schema, relation, spi::from_server(CStr::from_ptr(quoted)))
    };
    let bound = entry::NO_MARK;
    spi::run(&format!(
        "CREATE SEQUENCE {statement} AS bigint INCREMENT BY {bound} MINVALUE 1 MAXVALUE {bound}
         START WITH {bound} NO CYCLE"
    ))?;
    // SAFETY: looks up the catalogs; the name is NUL-terminated.
    let relation = unsafe { pg_sys::get_relname_relid(relation_name, schema) };
    // As called: plain nextval() fails from the start.
    spi::run(&format!(
        "SELECT pg_catalog.setval({}::pg_catalog.regclass, {bound}, true)",
        relation.to_u32()
    ))?;
    spi::run(&format!(
        "SECURITY LABEL FOR snowflake_id ON SEQUENCE {statement} IS {}",
        quote_literal(label)
    ))?;
    let entry = entry::of(relation);
    entry.lock();
    // A temporary schema makes a temporary sequence.
    entry.check_is_generator()?;
    // That its policy is not there yet has been said by now.
    if let Ok(shared) = shmem::shared()
        && entry.generator().policy.is_supported()
        && let Err(error) = entry.check_can_issue(shared)
    {
        error.warning();
    }
    Ok(relation)
}

/// The view `snowflake_presets`.
#[pg_extern(
    requires = ["snowflake_create_generator"],
    sql = r#"
CREATE FUNCTION snowflake_presets(
    OUT preset text, OUT layout text, OUT epoch timestamptz, OUT tick interval,
    OUT ids_per_second bigint, OUT workers bigint, OUT ends_at timestamptz,
    OUT can_be_negative boolean, OUT negative_from timestamptz,
    OUT policy text, OUT label text, OUT origin text)
    RETURNS SETOF record
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE ROWS 16
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_presets() IS
    'the rows of view snowflake_presets';
CREATE VIEW snowflake_presets AS SELECT * FROM snowflake_presets();
COMMENT ON VIEW snowflake_presets IS
    'the schemes that a label can name as preset=...';
COMMENT ON COLUMN snowflake_presets.preset IS 'its name in a label';
COMMENT ON COLUMN snowflake_presets.layout IS 'fields from high to low, with their bits, and values of those that are fixed';
COMMENT ON COLUMN snowflake_presets.epoch IS 'what the time counts from; null if a label has to say';
COMMENT ON COLUMN snowflake_presets.tick IS 'one unit of the time';
COMMENT ON COLUMN snowflake_presets.ids_per_second IS 'most IDs per second and worker ID';
COMMENT ON COLUMN snowflake_presets.workers IS 'number of worker IDs, if no field is given a value';
COMMENT ON COLUMN snowflake_presets.ends_at IS 'when the time is used up; null if a label has to give the epoch';
COMMENT ON COLUMN snowflake_presets.can_be_negative IS 'whether IDs can be negative';
COMMENT ON COLUMN snowflake_presets.negative_from IS 'from when on they are; null if never, or at any time';
COMMENT ON COLUMN snowflake_presets.policy IS 'what it does when the clock goes back, when a tick is used up, and where it starts in a tick';
COMMENT ON COLUMN snowflake_presets.label IS 'what the name stands for';
COMMENT ON COLUMN snowflake_presets.origin IS 'where it comes from';
GRANT SELECT ON snowflake_presets TO PUBLIC;
"#
)]
#[allow(clippy::type_complexity)]
fn snowflake_presets() -> TableIterator<
    'static,
    (
        name!(preset, &'static str),
        name!(layout, String),
        name!(epoch, Option<TimestampWithTimeZone>),
        name!(tick, Interval),
        name!(ids_per_second, i64),
        name!(workers, i64),
        name!(ends_at, Option<TimestampWithTimeZone>),
        name!(can_be_negative, bool),
        name!(negative_from, Option<TimestampWithTimeZone>),
        name!(policy, String),
        name!(label, &'static str),
        name!(origin, &'static str),
    ),
> {
    let rows = presets::ALL.iter().filter_map(|preset| {
        let own = Label::parse(preset.text).ok();
        // Without an epoch of its own, all else is the same with any.
        let label = own
            .clone()
            .or_else(|| Label::parse(&format!("{} epoch=0", preset.text)).ok())?;
        let layout = label.layout();
        let with_epoch = |at| own.is_some().then(|| time::to_datum(at));
        Some((
            preset.name,
            label.layout_text(),
            with_epoch(layout.epoch()),
            Interval::from_micros(layout.tick_millis().saturating_mul(1000)),
            layout.ids_per_second().cast_signed(),
            layout.max_worker().cast_signed() + 1,
            with_epoch(layout.instant_of(layout.last_tick())),
            layout.can_be_negative(),
            match layout.disorder() {
                Some(Disorder::NegativeFrom(at)) => with_epoch(at),
                _ => None,
            },
            label.policy_text(),
            preset.text,
            preset.origin,
        ))
    });
    TableIterator::new(rows)
}
