//! Calls of `snowflake_nextval_at()` and `snowflake_reserve_worker_id()` that are refused.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use super::super::time::display;
use super::{Code, Error, not_ready, not_supported, out_of_range};
use snowflake_core::id::UnixMillis;

pub fn not_before(generator: &str, worker: i64, before: UnixMillis) -> Error {
    let message = format!(
        "the time of an ID of generator {generator} is not before {}",
        display(before)
    );
    ERRCODE_DATETIME_FIELD_OVERFLOW
        .error(message)
        .detail(format!("At that instant, worker ID {worker} was reserved, for IDs of times before it."))
        .hint(format!(
            "Rows of now get their IDs from snowflake_nextval(). For a later time that has passed, a superuser \
             repeats the reservation: SELECT snowflake_reserve_worker_id({}, {worker})",
            quote_literal(generator)
        ))
}

pub fn full(generator: &str, tick: UnixMillis, numbers: i64) -> Error {
    let message = format!(
        "the tick of {} has no more IDs of generator {generator}",
        display(tick)
    );
    out_of_range(message)
        .detail(format!("It has {numbers} IDs."))
        .hint("Spread the rows over the ticks around it: for times that are whole days or seconds, add milliseconds to them.")
}

pub fn no_field(generator: &str, layout: &str) -> Error {
    not_supported(format!(
        "generator {generator} issues no IDs of given times"
    ))
    .detail(format!(
        "Its layout \"{layout}\" must have a worker field and a sequence field."
    ))
}

pub fn not_reserved(generator: &str) -> Error {
    not_ready(format!(
        "no worker ID is reserved for IDs of given times of generator {generator}"
    ))
    .hint(reserve(generator))
}

/// What was reserved in another life of the server, or on another server.
pub fn may_have_lost(generator: &str, worker: i64) -> Error {
    not_ready(format!(
        "generator {generator} may repeat IDs of worker ID {worker}"
    ))
    .detail(
        "Since the worker ID was reserved, this server has crashed, or was promoted, restored, \
             copied, moved or upgraded: it may have lost which IDs it has issued.",
    )
    .hint(format!(
        "{} Or, if nothing was lost, because the server has crashed and kept its disk, or was moved \
             or upgraded: \
             SELECT snowflake_reserve_worker_id({}, {worker}, nothing_lost => true)",
        reserve(generator),
        quote_literal(generator)
    ))
}

pub fn other_layout(generator: &str, worker: i64) -> Error {
    not_ready(format!(
        "worker ID {worker} is reserved for a different layout of generator {generator}"
    ))
    .hint(reserve(generator))
}

pub fn used(generator: &str, worker: i64) -> Error {
    not_ready(format!(
        "worker ID {worker} was reserved for generator {generator} before"
    ))
    .detail("IDs may have it, and this server no longer knows which ones.")
    .hint(reserve(generator))
}

pub fn own_worker(generator: &str, worker: i64) -> Error {
    not_ready(format!(
        "worker ID {worker} of generator {generator} is that of this server"
    ))
    .detail("IDs of given times could repeat those that the server issues.")
    .hint(reserve(generator))
}

pub fn can_be_leased(worker: i64, pools: &str) -> Error {
    not_ready(format!(
        "the registry can lease worker ID {worker} to a server"
    ))
    .detail(format!("It is one of pool {pools}."))
    .hint("Choose a worker ID outside of the pools that no server has had.")
}

pub fn was_leased(worker: i64) -> Error {
    not_ready(format!(
        "the registry has leased worker ID {worker} to a server before"
    ))
    .detail("View snowflake_workers, or the registry's table of leases, has the server.")
    .hint("Choose a worker ID that no server has had.")
}

pub fn two_registries() -> Error {
    not_ready("this database has pools of its own, and this server leases from a different registry")
        .hint("If no server leases from the pools of this database, drop them: SELECT snowflake_drop_pool(...)")
}

pub fn no_registry(worker: i64) -> Error {
    not_ready(format!(
        "this server cannot tell whether worker ID {worker} can be leased"
    ))
    .detail("It leases worker IDs from a registry, in which it finds no pool.")
    .hint("View snowflake_worker tells in column last_error what is wrong with the registry.")
}

/// What a superuser does about a worker ID that cannot serve.
fn reserve(generator: &str) -> String {
    format!(
        "A superuser reserves a worker ID that no server has, had or can lease: \
         SELECT snowflake_reserve_worker_id({}, ...)",
        quote_literal(generator)
    )
}
