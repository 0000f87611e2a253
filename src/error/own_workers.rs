//! Generators that lease worker IDs of their own: errors.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use super::super::lease_state::Shown;
use super::keeper::{failure, not_running};
use super::{Code, Error, invalid, not_ready};

/// There is no pool for such generators, or no registry at all.
pub fn no_pool(name: &str, lacks_registry: bool) -> Error {
    let lacks = if lacks_registry {
        "\"snowflake_id.registry\" is not set"
    } else {
        "\"snowflake_id.generator_pool\" is not set"
    };
    not_ready(format!("generator {name} has no queue of worker IDs"))
        .detail(format!(
            "Its label says on_rollback=next_worker, so it leases worker IDs of its own from a \
             registry, and {lacks}."
        ))
        .hint(
            "Make a pool with snowflake_create_pool() in the registry, and set \
             \"snowflake_id.registry\" and \"snowflake_id.generator_pool\". Or set another on_rollback \
             in the label: wait, error or continue.",
        )
}

/// The owner of the generator may not use up worker IDs.
pub fn not_allowed(name: &str, owner: &str) -> Error {
    let role = quote_identifier(owner);
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!(
            "owner \"{owner}\" of generator {name} may not lease worker IDs"
        ))
        .detail(
            "Its label says on_rollback=next_worker, so it leases worker IDs of its own, and their \
             number is limited.",
        )
        .hint(format!(
            "A superuser can run: GRANT SET ON PARAMETER snowflake_id.generator_pool TO {role}"
        ))
}

fn quote_identifier(name: &str) -> String {
    pgrx::spi::quote_identifier(name)
}

/// All places are taken.
pub fn no_place(name: &str, places: usize) -> Error {
    ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
        .error(format!(
            "generator {name} finds no place to lease a worker ID"
        ))
        .detail(format!(
            "Up to {places} generators of this server can lease worker IDs of their own."
        ))
        .hint(
            "Raise \"snowflake_id.max_leased_generators\" and restart the server. A restart alone makes the \
             places of dropped generators free.",
        )
}

/// A worker ID of the pool does not fit the layout.
pub fn worker_id_range(worker: u32, max: u64, name: &str, layout: &str) -> Error {
    invalid(format!(
        "worker ID {worker} is out of range for generator {name}"
    ))
    .detail(format!(
        "Layout \"{layout}\" holds worker IDs from 0 to {max}."
    ))
    .hint(format!(
        "Set \"snowflake_id.generator_pool\" to a pool whose worker IDs are from 0 to {max}, or make \
         the generator with more worker bits."
    ))
}

/// The clock was set back, and there is no worker ID for the time that it shows: `error` says
/// so for a generator that waits.
pub fn no_other_worker(error: Error, name: &str, shown: &Shown, has_keeper: bool) -> Error {
    let why = match &shown.failure {
        _ if !has_keeper => not_running(),
        Some(obstacle) => failure(obstacle),
        None => "The registry has not answered yet.".to_string(),
    };
    let pool = shown.pool.get();
    let quoted = quote_literal(&pool);
    let detail = format!(
        "{} Generator {name} gets no worker ID from pool \"{pool}\" that was not used at this \
         time. {why}",
        error.detail
    );
    error.detail(detail).hint(format!(
        "Check the time synchronization of this server. IDs resume by themselves when the clock is \
         there again, or when the pool has such a worker ID: view snowflake_workers shows the \
         bounds of those WHERE pool = {quoted}. A larger pool has more."
    ))
}
