//! Notices: what users are told while their statement goes on.

use pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;

use super::error::{Code, Error};
use super::time::display;
use snowflake_core::duration::exact;
use snowflake_core::id::{Millis, UnixMillis};

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

fn notice(message: String) -> Error {
    ERRCODE_SUCCESSFUL_COMPLETION.error(message)
}
