//! Notices: what users are told while their statement goes on.

use pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;

use super::error::{Code, Error};
use super::time::display;
use crate::snowflake::duration::exact;
use crate::snowflake::id::{Millis, UnixMillis};

/// IDs are negative from the instant `from` on; without one, some are.
pub fn can_be_negative(from: Option<UnixMillis>) -> Error {
    let are_negative = from.map_or_else(
        || "can be negative".to_string(),
        |at| format!("are negative from {} on", display(at)),
    );
    notice(format!("IDs of this layout {are_negative}"))
        .detail("Its fields have 64 bits. Negative IDs sort before all others.")
}

pub fn mark_kept(name: &str) -> Error {
    notice(format!("generator {name} keeps its mark"))
        .detail("IDs follow the time: a restart would only forget how far they are.")
}

pub fn made_fit(name: &str) -> Error {
    notice(format!("type and bounds of sequence {name} were changed"))
        .detail("It is to hold the mark of a generator: nextval() on it fails from now on.")
        .hint("IDs come from snowflake_nextval().")
}

pub fn epoch_moved(name: &str, by: Millis) -> Error {
    let by = exact(by);
    notice(format!(
        "IDs that generator {name} has issued decode to {by} earlier from now on"
    ))
    .detail("Once this is committed, there is no way back to a later epoch.")
}

pub fn is_foreign_key(column: &str, constraint: &str) -> Error {
    notice(format!(
        "{column} is a foreign key, constraint {constraint}"
    ))
    .hint(
        "An ID of its own is in no other table: rows that get it by default will violate the \
         constraint.",
    )
}

pub fn no_longer_always(column: &str) -> Error {
    notice(format!("{column} is no longer GENERATED ALWAYS"))
        .detail("A default gives way to any value that a statement gives.")
        .hint("To keep values out, GRANT INSERT and UPDATE on the other columns only.")
}

pub fn values_not_compared(column: &str, generator: &str) -> Error {
    notice(format!(
        "values of {column} were not compared with IDs to come"
    ))
    .detail(format!(
        "IDs of generator {generator} do not sort by time, so that any value of the column may be issued a second time."
    ))
    .hint("A unique constraint refuses a row whose ID is there already.")
}

pub fn owner_lacks_usage(table: &str, owner: &str, generator: &str) -> Error {
    notice(format!(
        "role {owner}, which owns table {table}, cannot get IDs of generator {generator}"
    ))
    .hint(format!(
        "Each role that inserts rows needs: GRANT USAGE ON SEQUENCE {generator} TO ..."
    ))
}

fn notice(message: String) -> Error {
    ERRCODE_SUCCESSFUL_COMPLETION.error(message)
}
