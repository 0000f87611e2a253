//! Messages that are no errors: notices for the user whose statement continues.

use pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
#[cfg(feature = "pg19")]
use pgrx::PgSqlErrorCode::ERRCODE_WARNING;

use crate::error::{Code, Error};
use crate::postgres::time::display;
use snowflake_core::id::{Millis, UnixMillis};
use snowflake_core::label::duration::exact;

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
        .detail("IDs follow the time: a restart would only forget how far the IDs have come.")
}

pub fn bounds_kept(name: &str) -> Error {
    notice(format!("generator {name} keeps its bounds")).detail(
        "Its sequence holds an instant. With any other MINVALUE, MAXVALUE or START, plain \
         nextval() could move the instant.",
    )
}

pub fn made_fit(name: &str) -> Error {
    notice(format!("type and bounds of sequence {name} were changed"))
        .detail(
            "The sequence is to hold the mark of a generator: plain nextval() fails from now on.",
        )
        .hint("IDs come from snowflake_nextval().")
}

pub fn epoch_moved(name: &str, by: Millis) -> Error {
    let by = exact(by);
    notice(format!(
        "IDs that generator {name} has issued decode to {by} earlier from now on"
    ))
    .detail("Once this is committed, there is no way back to a later epoch.")
}

/// These generators are in the publications of this subscription.
#[cfg(feature = "pg19")]
pub fn left_out(subscription: &str, generators: &[String]) -> Error {
    let (first, more) = generators.split_at(generators.len().min(10));
    let more = match more.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    ERRCODE_WARNING
        .error(format!(
            "subscription \"{subscription}\" does not synchronize generators"
        ))
        .detail(format!(
            "Their marks are about the IDs of this server, and stay: {}{more}.",
            first.join(", ")
        ))
        .hint("If this server takes over the worker ID of the publisher, call snowflake_advance().")
}

fn notice(message: String) -> Error {
    ERRCODE_SUCCESSFUL_COMPLETION.error(message)
}
