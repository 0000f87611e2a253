//! An ID drawn for a person. STABLE, since it says how long ago that was.

use pgrx::pg_extern;
use pgrx::pg_sys::{self, panic::ErrorReport};

use super::super::entry::{self, Entry};
use super::super::error::Error;
use super::super::{label, time};
use crate::snowflake::explain;
use crate::snowflake::id::SnowflakeId;
use crate::snowflake::label::Label;

/// `snowflake_explain(id) -> text`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_explain(id bigint) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_explain(bigint) IS
    'an ID of the default generator drawn for a person: its bits, fields, instant, and what is left of the layout';
"#
)]
fn snowflake_explain(id: i64) -> Result<String, ErrorReport> {
    // Also where only decoding is wanted, and the sequence is not there.
    Ok(explained(
        id,
        &label::of_default().label,
        "the default generator",
    )?)
}

/// `snowflake_explain(id, generator) -> text`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_explain(id bigint, generator regclass) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_explain(bigint, regclass) IS
    'an ID of a generator drawn for a person: its bits, fields, instant, and what is left of the layout';
"#
)]
fn snowflake_explain_of(id: i64, generator: pg_sys::Oid) -> Result<String, ErrorReport> {
    let entry: &Entry = entry::of(generator);
    let described = entry.describe()?;
    let title = format!("generator {}", entry.name());
    Ok(explained(id, &described.label, &title)?)
}

/// `snowflake_explain_as(id, layout) -> text`.
#[pg_extern(
    requires = ["snowflake_nextval"],
    sql = r#"
CREATE FUNCTION snowflake_explain_as(id bigint, layout text) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_explain_as(bigint, text) IS
    'an ID drawn for a person, by the text of a label such as ''preset=discord''';
"#
)]
fn snowflake_explain_as(id: i64, layout: &str) -> Result<String, ErrorReport> {
    let described = label::given(layout)?;
    let title: String = layout.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(explained(id, &described.label, &title)?)
}

fn explained(id: i64, label: &Label, title: &str) -> Result<String, Error> {
    // SAFETY: a variable of this process.
    let now = time::unix_millis(unsafe { pg_sys::GetCurrentTransactionStartTimestamp() });
    Ok(explain::explain(SnowflakeId::new(id), label, title, now)?)
}
