//! Generators that lease worker IDs of their own: errors.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use super::super::lease_state::{PLACES, SHARE, Shown};
use super::keeper::{failure, not_running};
use super::{Code, Error, invalid, not_ready};

/// There is no pool for such generators, or no registry at all.
pub fn no_pool(name: &str, pool: &str, lacks: Lacks) -> Error {
    let server = quote_identifier(pool);
    let other = "a different on_rollback by snowflake_alter_generator(): wait, error or continue.";
    let (lacks, hint) = match lacks {
        Lacks::Registry => (
            "\"snowflake_id.registry\" is not set".to_string(),
            format!(
                "Set \"snowflake_id.registry\" to the one that has pool \"{pool}\". Or set {other}"
            ),
        ),
        Lacks::OwnPool => (
            format!("pool \"{pool}\" is the one of this server"),
            format!(
                "Name a pool that is made for generators by snowflake_alter_generator(). Or set {other}"
            ),
        ),
        Lacks::Server => (
            format!("this database has no foreign server for pool \"{pool}\""),
            format!(
                "Set {other} Or make the pool in the registry with snowflake_create_pool(); then a \
                 superuser can run: CREATE SERVER {server} FOREIGN DATA WRAPPER snowflake_pool"
            ),
        ),
        Lacks::Superuser => (
            format!("the foreign server for pool \"{pool}\" belongs to no superuser"),
            format!(
                "Set {other} Or a superuser can run: ALTER SERVER {server} OWNER TO CURRENT_USER"
            ),
        ),
    };
    not_ready(format!("generator {name} has no queue of worker IDs"))
        .detail(format!(
            "It has on_rollback=next_worker, so it leases worker IDs of its own from a \
             registry, and {lacks}."
        ))
        .hint(hint)
}

/// What a generator lacks for worker IDs of its own.
pub enum Lacks {
    Registry,
    /// The label names the pool of the server.
    OwnPool,
    /// There is no foreign server for the pool.
    Server,
    /// A superuser must own it.
    Superuser,
}

/// The owner of the generator may not use up worker IDs.
pub fn not_allowed(name: &str, owner: &str, pool: &str) -> Error {
    let (server, role) = (quote_identifier(pool), quote_identifier(owner));
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!(
            "owner \"{owner}\" of generator {name} may not lease worker IDs of pool \"{pool}\""
        ))
        .detail(
            "It has on_rollback=next_worker, so it leases worker IDs of its own, and their \
             number is limited.",
        )
        .hint(format!(
            "A superuser can run: GRANT USAGE ON FOREIGN SERVER {server} TO {role}"
        ))
}

fn quote_identifier(name: &str) -> String {
    pgrx::spi::quote_identifier(name)
}

/// All places are taken, or those that the owner can have.
pub fn no_place(name: &str) -> Error {
    ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
        .error(format!(
            "generator {name} finds no place to lease a worker ID"
        ))
        .detail(format!(
            "Up to {PLACES} generators of this server can lease worker IDs of their own, and up to \
             {SHARE} of one role that is no superuser."
        ))
        .hint("A restart of the server makes the places of dropped generators free.")
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
        "Name a pool whose worker IDs are from 0 to {max} by snowflake_alter_generator(), or make the generator \
         with more worker bits."
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
