//! Why `snowflake_set_default()` refuses a table or a column. Names of tables, roles and
//! generators are quoted where they need it; `named` is a column with its table, as in:
//! column "id" of table public.t.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use super::{Code, Error, not_ready, not_supported, wrong_kind};
use crate::pg::time::display;
use crate::snowflake::id::UnixMillis;

pub fn null_table() -> Error {
    ERRCODE_NULL_VALUE_NOT_ALLOWED.error("table must not be null")
}

pub fn no_nextval_function() -> Error {
    ERRCODE_UNDEFINED_FUNCTION.error("extension snowflake_id has no function snowflake_nextval")
}

pub fn view(table: &str) -> Error {
    wrong_kind(format!("{table} is not a table"))
        .detail("A view keeps no rows.")
        .hint("Name the table that keeps its rows.")
}

pub fn foreign(table: &str) -> Error {
    wrong_kind(format!("{table} is a foreign table"))
        .detail(
            "Rows that are inserted where they are kept would not get a default that is set here.",
        )
        .hint("Set the default where its rows are kept.")
}

pub fn no_table(relation: &str) -> Error {
    wrong_kind(format!("{relation} is not a table")).hint("Name a table, partitioned or not.")
}

pub fn system_catalog(table: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE.error(format!("permission denied: {table} is a system catalog"))
}

pub fn not_owner(table: &str, owner: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!("must be owner of table {table}"))
        .hint(format!(
            "Role {owner} owns it: that role and its members can do this."
        ))
}

pub fn other_session(table: &str) -> Error {
    not_supported(format!("{table} is a temporary table of another session"))
}

/// `column` is the caller's argument.
pub fn partition(table: &str, root: &str, column: Option<&str>) -> Error {
    let column = column.map(|column| format!(", {}", quote_literal(column)));
    let arguments = quote_literal(root) + &column.unwrap_or_default();
    wrong_kind(format!(
        "cannot set the default of partition {table} apart from table {root}"
    ))
    .detail(
        "Rows that are inserted through a partitioned table get the default of that table, not of \
         the partition.",
    )
    .hint(format!(
        "Set it on table {root}, which reaches all partitions: snowflake_set_default({arguments})"
    ))
}

/// `example` is a column that the user may mean.
pub fn no_primary_key(table: &str, example: Option<&str>) -> Error {
    ERRCODE_UNDEFINED_OBJECT
        .error(format!("table {table} has no primary key"))
        .hint(name_the_column(table, example))
}

/// `example` as above.
pub fn composite_key(table: &str, columns: &str, example: Option<&str>) -> Error {
    ERRCODE_AMBIGUOUS_COLUMN
        .error(format!(
            "primary key of table {table} has more than one column"
        ))
        .detail(format!("Its columns are: {columns}."))
        .hint(name_the_column(table, example))
}

fn name_the_column(table: &str, example: Option<&str>) -> String {
    match example {
        Some(column) => format!(
            "Name the column, as in snowflake_set_default({}, {})",
            quote_literal(table),
            quote_literal(column)
        ),
        None => {
            "Name the column that the IDs are for, which needs to be of type bigint.".to_string()
        }
    }
}

pub fn missing(named: &str) -> Error {
    ERRCODE_UNDEFINED_COLUMN
        .error(format!("{named} does not exist"))
        .hint(
            "Give the name as it is stored: without quotes, and in lower case unless it was \
             created in quotes.",
        )
}

pub fn system_column(named: &str) -> Error {
    not_supported(format!("{named} is a system column"))
}

/// `alter` begins a statement that changes the column; `None` if the column cannot
/// become a plain one.
pub fn generated(named: &str, alter: Option<&str>) -> Error {
    let hint = alter.map_or_else(add_a_column, |alter| {
        format!("To make it a plain column that keeps its values: {alter} DROP EXPRESSION")
    });
    ERRCODE_GENERATED_ALWAYS
        .error(format!("{named} is a generated column"))
        .detail("Its values are computed from other columns: it has no default.")
        .hint(hint)
}

/// `alter` as above; `None` if the type cannot be widened.
pub fn wrong_type(named: &str, declared: &str, alter: Option<&str>) -> Error {
    let hint = alter.map_or_else(add_a_column, |alter| {
        format!(
            "Change it first, and columns that refer to it too; each change rewrites its table: \
             {alter} TYPE bigint"
        )
    });
    ERRCODE_DATATYPE_MISMATCH
        .error(format!("{named} is of type {declared}, not bigint"))
        .detail("IDs have up to 63 bits.")
        .hint(hint)
}

/// `referring` has the table, the name and the type of each column that refers to it.
pub fn narrow_foreign_keys(
    named: &str,
    referring: &[[String; 3]],
    generator: &str,
    bits: u32,
) -> Error {
    let each = |f: &dyn Fn(&[String; 3]) -> String, between: &str| {
        referring.iter().map(f).collect::<Vec<_>>().join(between)
    };
    let columns = each(
        &|[table, column, declared]| format!("{table}.{column} is of type {declared}"),
        ", ",
    );
    let alter = each(
        &|[table, column, _]| format!("ALTER TABLE {table} ALTER COLUMN {column} TYPE bigint"),
        "; ",
    );
    ERRCODE_DATATYPE_MISMATCH
        .error(format!(
            "foreign keys that refer to {named} cannot hold IDs"
        ))
        .detail(format!(
            "IDs of generator {generator} have up to {bits} bits, and {columns}."
        ))
        .hint(format!(
            "Change them first; each change rewrites its table: {alter}"
        ))
}

/// The generator is at ID `least`. Its IDs reach the value at the instant `reached`, or
/// never, if no layout has an ID with this value.
pub fn value_above(
    named: &str,
    value: i64,
    least: i64,
    generator: &str,
    reached: Option<UnixMillis>,
    can_advance: bool,
) -> Error {
    not_ready(format!(
        "{named} holds {value}, which is not below the IDs to come"
    ))
    .detail(how_far(least, generator, reached))
    .hint(remedy(value, generator, can_advance))
}

pub fn no_partition(table: &str, column: &str, id: i64, generator: &str) -> Error {
    not_ready(format!("no partition of table {table} takes IDs"))
        .detail(format!(
            "It is partitioned by column \"{column}\", and ID {id} of generator {generator} fits \
             none of its partitions."
        ))
        .hint(format!(
            "Make one first, as in: CREATE TABLE ... PARTITION OF {table} FOR VALUES FROM \
             (snowflake_min_id('2026-01-01Z')) TO (snowflake_min_id('2027-01-01Z'))"
        ))
}

pub fn domain(named: &str, domain: &str, id: i64, generator: &str) -> Error {
    ERRCODE_CHECK_VIOLATION
        .error(format!("{named} is of domain {domain}, which refuses IDs"))
        .detail(format!(
            "ID {id} of generator {generator} violates a constraint of the domain."
        ))
        .hint("Change the constraint, or the column's type to bigint.")
}

pub fn default_not_set(column: &str) -> Error {
    not_ready(format!("could not set the default of {column}"))
        .detail("Another session has renamed its schema meanwhile.")
        .hint("Try again.")
}

fn add_a_column() -> String {
    "Add a bigint column for the IDs.".to_string()
}

fn how_far(least: i64, generator: &str, reached: Option<UnixMillis>) -> String {
    match reached.map(display) {
        Some(at) => format!(
            "IDs of generator {generator} are at {least} now, and reach that value on {at}. \
             Until then its row sorts after newer rows; then it may be issued a second time."
        ),
        None => format!(
            "IDs of generator {generator} are at {least} now; that value is above all of them, \
             and would sort after newer rows for ever."
        ),
    }
}

fn remedy(value: i64, generator: &str, can_advance: bool) -> String {
    if !can_advance {
        return "That value is further ahead than snowflake_advance() goes. Find out where it \
                comes from: give those rows other keys, or give the IDs a column of their own."
            .to_string();
    }
    format!(
        "Make all further IDs greater, then call this again: SELECT snowflake_advance({}, {value})",
        quote_literal(generator)
    )
}
