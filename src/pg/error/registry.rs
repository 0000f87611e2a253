//! Errors of the registry of worker IDs.

use pgrx::PgSqlErrorCode::*;

use super::super::wire;
use super::{Code, Error, invalid, not_ready, not_supported};

pub fn no_pool(name: &str) -> Error {
    ERRCODE_UNDEFINED_OBJECT
        .error(format!("pool \"{name}\" does not exist"))
        .hint("snowflake_create_pool() makes a pool; view snowflake_pools shows the pools.")
}

pub fn no_registry() -> Error {
    not_ready("this database has no registry of worker IDs")
        .hint("snowflake_create_pool() makes one.")
}

pub fn not_in_pool(pool: &str, worker: i32) -> Error {
    invalid(format!("pool \"{pool}\" has no worker ID {worker}"))
        .hint("View snowflake_pools shows the worker IDs of each pool.")
}

pub fn never_leased(pool: &str, worker: i32) -> Error {
    not_ready(format!(
        "worker ID {worker} of pool \"{pool}\" was never leased"
    ))
    .hint("View snowflake_workers shows the worker IDs that were.")
}

pub fn needs_read_committed(function: &str) -> Error {
    ERRCODE_ACTIVE_SQL_TRANSACTION
        .error(format!(
            "{function} needs transaction isolation level READ COMMITTED"
        ))
        .detail("At a higher level it would not see what others have just committed.")
        .hint("Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.")
}

pub fn needs_own_transaction() -> Error {
    ERRCODE_ACTIVE_SQL_TRANSACTION
        .error("snowflake_lease() cannot run inside a transaction block")
        .detail("It locks the whole registry until the transaction ends.")
        .hint("Call the function in a statement of its own, without BEGIN.")
}

pub fn other_format(format: u64) -> Error {
    not_supported(format!(
        "requests of format {format} are not supported by this registry, which has format {}",
        wire::FORMAT
    ))
    .hint(
        "Install the same version of extension snowflake_id on the registry's server and on \
         those that lease worker IDs.",
    )
}

pub fn request_not_read(why: &str) -> Error {
    invalid(format!("not a request to a registry of worker IDs: {why}"))
        .hint("Servers call snowflake_lease() by themselves, if \"snowflake_id.registry\" is set.")
}

pub fn registry_not_read(why: &str) -> Error {
    ERRCODE_DATA_CORRUPTED.error(format!(
        "could not read what the registry of worker IDs has stored: {why}"
    ))
}

pub fn no_random_numbers() -> Error {
    ERRCODE_INTERNAL_ERROR.error("could not generate random numbers")
}
