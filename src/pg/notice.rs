//! What users are told that keeps nobody from going on.

use pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION as OK;

use super::error::texts;
use super::time::display;
use crate::snowflake::duration::measured_text;
use crate::snowflake::id::{Millis, UnixMillis};

texts! {
    /// From this instant on, or from some.
    can_be_negative(from: Option<UnixMillis>) => OK,
        "IDs of this layout {are_negative}",
        "Its fields have 64 bits. Negative IDs sort before all others.",
        are_negative = from.map_or_else(
            || "can be negative".to_string(),
            |at| format!("are negative from {} on", display(at)),
        );
    mark_kept(name: &str) => OK,
        "generator {name} keeps its mark",
        "IDs follow the time: a restart would only forget how far they are.";
    epoch_moved(name: &str, by: Millis) => OK,
        "IDs that generator {name} has issued decode to {by} earlier from now on",
        "Once this is committed, there is no way back to a later epoch.",
        by = measured_text(by.get());
    is_foreign_key(column: &str, constraint: &str) => OK,
        "{column} is a foreign key, constraint {constraint}",
        "",
        "An ID of its own is in no other table: rows that get it by default will violate the \
         constraint.";
    narrow_foreign_key(column: &str, declared: &str, constraint: &str) => OK,
        "{column} refers to the column, constraint {constraint}, and is of type {declared}, which \
         holds no IDs",
        "",
        "Change its type to bigint.";
    values_not_compared(column: &str, generator: &str) => OK,
        "values of {column} were not compared with IDs to come",
        "IDs of generator {generator} do not sort by time, so that any value may come again.",
        "A unique constraint refuses a row whose ID is there already.";
    owner_lacks_usage(table: &str, owner: &str, generator: &str) => OK,
        "role {owner}, which owns table {table}, cannot get IDs of generator {generator}",
        "",
        "Each role that inserts rows needs: GRANT USAGE ON SEQUENCE {generator} TO ...";
}
