//! Draws an ID for a person.

use pgrx::pg_sys;

use crate::postgres::{encoding::DatabaseText, time};
use crate::sql::call::{Whose, c_function};
use snowflake_core::id::SnowflakeId;
use snowflake_core::label::explain;

// `snowflake_explain(id [, generator])`.
c_function!(snowflake_explain, |call| {
    let whose = call.whose(1)?;
    let title = match &whose {
        Whose::Generator(entry, _) => format!("generator {}", entry.name()),
        // This works also if only decoding is wanted, and the sequence does not exist.
        _ => "the default generator".to_string(),
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
});
