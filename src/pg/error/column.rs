//! Why `snowflake_set_default()` refuses a table or a column.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use super::Text;
use crate::pg::time::display;
use crate::snowflake::id::UnixMillis;

/// What is wrong with a table.
#[derive(Debug)]
pub enum TableError {
    View,
    Foreign,
    Other,
    System,
    NotOwner {
        owner: String,
    },
    OtherSession,
    Partition {
        root: String,
        column: Option<String>,
    },
    NoPrimaryKey,
    CompositeKey {
        columns: String,
        example: String,
    },
}

/// What is wrong with a column. Identifiers are quoted where they need it.
#[derive(Debug)]
pub enum ColumnError {
    Missing,
    System,
    Generated {
        identifier: String,
        is_stored: bool,
    },
    Type {
        identifier: String,
        declared: String,
        widens: bool,
    },
    ValueAbove {
        value: i64,
        least: i64,
        generator: String,
        /// When the generator's IDs come to it; never, if no layout's ID is it.
        reached: Option<UnixMillis>,
        can_advance: bool,
    },
    NoPartition {
        id: i64,
        generator: String,
    },
    Domain {
        domain: String,
        id: i64,
        generator: String,
    },
}

impl TableError {
    pub(super) fn text(&self, table: &str) -> Text {
        match self {
            Self::View => Text::wrong_type(format!("{table} is not a table"))
                .detail("A view keeps no rows.")
                .hint("Name the table that keeps its rows."),
            Self::Foreign => Text::wrong_type(format!("{table} is a foreign table"))
                .detail(
                    "Rows that are inserted where they are kept would not get a default that is \
                     set here.",
                )
                .hint("Set the default where its rows are kept."),
            Self::Other => Text::wrong_type(format!("{table} is not a table"))
                .hint("Name a table, partitioned or not."),
            Self::System => Text::new(
                ERRCODE_INSUFFICIENT_PRIVILEGE,
                format!("permission denied: {table} is a system catalog"),
            ),
            Self::NotOwner { owner } => Text::new(
                ERRCODE_INSUFFICIENT_PRIVILEGE,
                format!("must be owner of table {table}"),
            )
            .hint(format!(
                "Role {owner} owns it: that role and its members can do this."
            )),
            Self::OtherSession => {
                Text::unsupported(format!("{table} is a temporary table of another session"))
            }
            Self::Partition { root, column } => Text::wrong_type(format!(
                "cannot set the default of partition {table} apart from table {root}"
            ))
            .detail(
                "Rows that are inserted through a partitioned table get the default of that table, \
                 not of the partition.",
            )
            .hint(format!(
                "Set it on table {root}, which reaches all partitions: snowflake_set_default({}{})",
                quote_literal(root),
                column
                    .as_ref()
                    .map_or_else(String::new, |column| format!(", {}", quote_literal(column)))
            )),
            Self::NoPrimaryKey => Text::new(
                ERRCODE_UNDEFINED_OBJECT,
                format!("table {table} has no primary key"),
            )
            .hint(format!(
                "Name the column, as in snowflake_set_default({}, 'id')",
                quote_literal(table)
            )),
            Self::CompositeKey { columns, example } => Text::new(
                ERRCODE_AMBIGUOUS_COLUMN,
                format!("primary key of table {table} has more than one column"),
            )
            .detail(format!("Its columns are: {columns}."))
            .hint(format!(
                "Name the column, as in snowflake_set_default({}, {})",
                quote_literal(table),
                quote_literal(example)
            )),
        }
    }
}

impl ColumnError {
    pub(super) fn text(&self, table: &str, column: &str) -> Text {
        let name = format!("column \"{column}\" of table {table}");
        match self {
            Self::Missing => Text::new(ERRCODE_UNDEFINED_COLUMN, format!("{name} does not exist"))
                .hint(
                    "Give the name as it is stored: without quotes, and in lower case unless it \
                     was created in quotes.",
                ),
            Self::System => Text::unsupported(format!("{name} is a system column")),
            Self::Generated {
                identifier,
                is_stored,
            } => Text::new(
                ERRCODE_GENERATED_ALWAYS,
                format!("{name} is a generated column"),
            )
            .detail("Its values are computed from other columns: it has no default.")
            .hint(if *is_stored {
                format!(
                    "To make it a plain column that keeps its values: ALTER TABLE {table} ALTER \
                     COLUMN {identifier} DROP EXPRESSION"
                )
            } else {
                "Add a bigint column for the IDs.".to_string()
            }),
            Self::Type {
                identifier,
                declared,
                widens,
            } => Text::new(
                ERRCODE_DATATYPE_MISMATCH,
                format!("{name} is of type {declared}, not bigint"),
            )
            .detail("IDs have up to 63 bits.")
            .hint(if *widens {
                format!(
                    "Change it first, and columns that refer to it too; each change rewrites its \
                     table: ALTER TABLE {table} ALTER COLUMN {identifier} TYPE bigint"
                )
            } else {
                "Add a bigint column for the IDs.".to_string()
            }),
            Self::ValueAbove {
                value,
                least,
                generator,
                reached,
                can_advance,
            } => Text::not_ready(format!(
                "{name} holds {value}, which is not below the IDs to come"
            ))
            .detail(match reached {
                Some(at) => format!(
                    "IDs of generator {generator} are at {least} now, and at that value on {}: it \
                     would come again, or sort after newer rows until then.",
                    display(*at)
                ),
                None => format!(
                    "IDs of generator {generator} are at {least} now; that value is above all of \
                     them, and would sort after newer rows for ever."
                ),
            })
            .hint(if *can_advance {
                format!(
                    "Make all further IDs greater, then call this again: SELECT \
                     snowflake_advance({}, {value})",
                    quote_literal(generator)
                )
            } else {
                "That value is further ahead than snowflake_advance() goes. Find out where it \
                 comes from: give those rows other keys, or give the IDs a column of their own."
                    .to_string()
            }),
            Self::NoPartition { id, generator } => {
                Text::not_ready(format!("no partition of table {table} takes IDs"))
                    .detail(format!(
                        "It is partitioned by column \"{column}\", and ID {id} of generator \
                         {generator} fits none of its partitions."
                    ))
                    .hint(format!(
                        "Make one first, as in: CREATE TABLE ... PARTITION OF {table} FOR VALUES \
                         FROM (snowflake_min_id('2026-01-01Z')) TO \
                         (snowflake_min_id('2027-01-01Z'))"
                    ))
            }
            Self::Domain {
                domain,
                id,
                generator,
            } => Text::new(
                ERRCODE_CHECK_VIOLATION,
                format!("{name} is of domain {domain}, which refuses IDs"),
            )
            .detail(format!(
                "ID {id} of generator {generator} violates a constraint of the domain."
            ))
            .hint("Change the constraint, or the column's type to bigint."),
        }
    }
}
