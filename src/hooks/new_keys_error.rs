//! Messages about keys of new tables, for `snowflake_id.new_keys`.

use pgrx::PgSqlErrorCode::{ERRCODE_SUCCESSFUL_COMPLETION, ERRCODE_WARNING};
use pgrx::spi::quote_literal;

use crate::error::{Code, Error};

/// Why a key stays as it is. Names are as in SQL.
#[derive(Clone)]
pub enum Why {
    /// Of this type, which is not bigint.
    Type(String),
    /// The command takes the default that issued IDs, and gives it no numbers.
    Dropped,
    /// The command has not made the sequence for it.
    Apart,
    /// Its sequence has a start, an increment, bounds or a cycle of its own.
    Options,
    /// The table, or a part of it, is partitioned by ranges or lists of it.
    Partitioned,
    /// By this CHECK constraint.
    Checked(String),
    /// Its sequence is used elsewhere.
    Shared,
    /// The table may have rows, which have its numbers.
    Rows,
    /// This role, whose rights the caller has not, owns the table.
    OtherOwner(String),
    /// The setting names no generator.
    NoGenerator(String),
    /// A generator of a role whose rights the owner of the table has not.
    ForeignGenerator(String, String),
    /// This role lacks USAGE on these.
    NoPrivilege(String, Vec<String>),
}

/// A key that gets no IDs, of the default generator or of one that is named.
pub fn left(
    key: &str,
    table: &str,
    numbers_from: &str,
    generator: Option<&str>,
    why: &Why,
) -> Error {
    let generator = generator.map(|name| format!(", generator => {}", quote_literal(name)));
    let call = format!(
        "snowflake_set_default({}{})",
        quote_literal(table),
        generator.unwrap_or_default()
    );
    let (detail, hint) = match why {
        Why::Type(type_) => (
            format!("It is of type {type_}, not bigint."),
            "Declare it as bigint in the model or the migration.".to_string(),
        ),
        Why::Dropped => (
            "The command takes away its default, which issued them.".to_string(),
            format!("If that was not meant, call {call}."),
        ),
        Why::Apart => (
            "The command does not make its sequence, which may have given numbers.".to_string(),
            format!("For new rows, call {call}."),
        ),
        Why::Options => (
            "Its sequence has options of its own, such as START WITH or INCREMENT BY.".to_string(),
            format!("If they are not needed, leave them out; or call {call}."),
        ),
        Why::Partitioned => (
            "The table is partitioned by ranges or lists of it, which IDs may not fit.".to_string(),
            format!("Make partitions for IDs, and call {call}."),
        ),
        Why::Checked(constraint) => (
            format!("IDs may violate constraint {constraint}."),
            format!("If they do not, call {call}."),
        ),
        Why::Shared => (
            "Its sequence gives numbers to others, too.".to_string(),
            format!("If the key needs no such numbers, call {call}."),
        ),
        Why::Rows => (
            "The table has rows already.".to_string(),
            format!("For new rows, call {call}."),
        ),
        Why::OtherOwner(owner) => (
            format!("Role {owner} owns the table."),
            format!("Let the owner of the table call {call}."),
        ),
        Why::NoGenerator(name) => (
            format!(
                "Setting snowflake_id.new_keys is \"{name}\", which is no generator of this database."
            ),
            "Give the setting the name of a generator, with its schema.".to_string(),
        ),
        Why::ForeignGenerator(generator, owner) => (
            format!(
                "Setting snowflake_id.new_keys names generator {generator} of role {owner}, whose rights the owner \
                 of the table has not."
            ),
            format!("Let the owner of the table call {call}, with a generator that is trusted."),
        ),
        Why::NoPrivilege(role, objects) => (
            format!("Role {role} lacks USAGE on {}.", objects.join(", and on ")),
            format!("Grant what is missing, and let the owner of the table call {call}."),
        ),
    };
    let numbers = match why {
        Why::Dropped => "Each row has to give the key.".to_string(),
        _ => format!(
            "The key's numbers come from {numbers_from}: another server issues the same ones."
        ),
    };
    ERRCODE_WARNING
        .error(format!("key {key} gets no snowflake IDs"))
        .detail(format!("{detail} {numbers}"))
        .hint(hint)
}

/// A key that has got a default. Its identity is as in pg_attribute, 0 for none.
pub fn changed(key: &str, default: &str, numbers_from: &str, identity: u8) -> Error {
    let before = match identity {
        0 => numbers_from,
        _ => "an identity",
    };
    let always = match identity {
        b'a' => {
            " It is no longer GENERATED ALWAYS: a default gives way to any value that a statement \
             gives, also with OVERRIDING USER VALUE."
        }
        _ => "",
    };
    ERRCODE_SUCCESSFUL_COMPLETION
        .error(format!(
            "key {key} has default {default} in place of {before}"
        ))
        .detail(format!("Its sequence is dropped.{always}"))
}

/// A column that cannot hold the IDs of the key to which it refers.
pub fn small_reference(table: &str, column: &str, is_smallint: bool, refers_to: &str) -> Error {
    let type_ = if is_smallint { "smallint" } else { "integer" };
    ERRCODE_WARNING
        .error(format!(
            "column {table}.{column} is of type {type_}, which cannot hold IDs of key {refers_to}"
        ))
        .hint(format!(
            "ALTER TABLE {table} ALTER COLUMN {column} TYPE bigint"
        ))
}
