//! Draws an ID for a person.

use pgrx::pg_sys;

use super::super::encoding::DatabaseText;
use super::super::error::Error;
use super::super::time;
use super::call::{Call, Whose, by_layout};
use snowflake_core::explain;
use snowflake_core::id::SnowflakeId;

by_layout!(snowflake_explain, snowflake_explain_as, 1, explained);

/// `snowflake_explain(id [, generator])`, `snowflake_explain_as(id, layout)`.
fn explained(call: &Call, whose: &Whose) -> Result<DatabaseText<String>, Error> {
    let title = match whose {
        // This works also if only decoding is wanted, and the sequence does not exist.
        Whose::Default => "the default generator".to_string(),
        Whose::Generator(entry, _) => format!("generator {}", entry.name()),
        Whose::Text(text, _) => text.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    // SAFETY: a variable of this process.
    let now = time::unix_millis(unsafe { pg_sys::GetCurrentTransactionStartTimestamp() });
    let id = SnowflakeId::new(call.number(0));
    Ok(DatabaseText(explain::explain(
        id,
        whose.label(),
        &title,
        now,
    )?))
}
