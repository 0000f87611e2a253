//! Settings and shared memory that a server lacks.

use pgrx::PgSqlErrorCode::*;

pub use crate::postgres::error::*;

pub fn not_preloaded() -> Error {
    not_ready("snowflake_id must be loaded at server start to issue IDs").hint(
        "Add snowflake_id to what \"shared_preload_libraries\" lists in postgresql.conf, as in: \
         shared_preload_libraries = 'snowflake_id', and restart the server.",
    )
}

/// About the whole server, before anybody asks it for IDs.
pub fn started_without_worker_id() -> Error {
    not_ready("snowflake_id: this server has no worker ID and will issue no IDs").hint(
        "Set \"snowflake_id.worker_id\" in postgresql.conf to a number that no other server has, \
         and restart the server. A server that only decodes IDs needs no worker ID.",
    )
}

pub fn slots_exhausted(max: usize) -> Error {
    ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
        .error("there is no shared memory for another generator")
        .detail(format!(
            "Up to {max} generators have a place, and generators that are in use or ahead of the \
             clock keep their places."
        ))
        .hint("Drop generators that are not needed, and restart the server.")
}

/// `snowflake_id.worker_id` has none of its forms.
pub fn bad_worker_id(value: &str) -> Error {
    invalid(format!(
        "invalid value for parameter \"snowflake_id.worker_id\": \"{value}\""
    ))
    .detail(format!(
        "It is a number from 0 to {}, 'hostname' or 'env NAME'.",
        i32::MAX
    ))
}

/// What `snowflake_id.worker_id` names gives no number; `what` says what it is.
pub fn no_number(value: &str, what: &str) -> Error {
    invalid(format!(
        "snowflake_id: no worker ID from \"snowflake_id.worker_id\" = '{value}'"
    ))
    .detail(format!(
        "{what}, which gives no number from 0 to {}.",
        i32::MAX
    ))
    .hint(
        "'hostname' is for host names such as shop-3, which count the servers: what ends in an \
         address, a date, or a number of more than 5 digits is taken for none. 'env NAME' is for a \
         variable of the server's environment that is a number. Or set the number itself.",
    )
}
