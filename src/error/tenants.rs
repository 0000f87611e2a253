//! Generators that lease worker IDs of their own: errors, and what the log says.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use super::super::lease_state::Shown;
use super::super::time::display;
use super::keeper::{NOT_RUNNING, reason, trouble as trouble_text};
use super::{Code, Error, invalid, not_ready};
use snowflake_core::duration::rounded;
use snowflake_core::id::{Millis, UnixMillis, WorkerId};
use snowflake_core::lease::node::{HeldLease, Trouble};

/// There is no pool for such generators, or no registry at all.
pub fn no_pool(name: &str, lacks_registry: bool) -> Error {
    let lacks = if lacks_registry {
        "\"snowflake_id.registry\" is not set"
    } else {
        "\"snowflake_id.queue_pool\" is not set"
    };
    not_ready(format!("generator {name} has no queue of worker IDs"))
        .detail(format!(
            "Its label says on_rollback=next_worker, so it leases worker IDs of its own from a \
             registry, and {lacks}."
        ))
        .hint(
            "Make a pool with snowflake_create_pool() in the registry, and set \
             \"snowflake_id.registry\" and \"snowflake_id.queue_pool\". Or set another on_rollback \
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
            "A superuser can run: GRANT SET ON PARAMETER snowflake_id.queue_pool TO {role}"
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
            "Raise \"snowflake_id.queue_places\" and restart the server. A restart alone makes the \
             places of dropped generators free.",
        )
}

/// A caller finds no worker ID.
pub fn no_worker_id(name: &str, shown: &Shown, has_keeper: bool) -> Error {
    let detail = match &shown.trouble {
        _ if !has_keeper => NOT_RUNNING.to_string(),
        Some(obstacle) => format!(
            "The registry has given it none from pool \"{}\". {}",
            shown.pool.get(),
            trouble_text(obstacle)
        ),
        None => "It has not got one from the registry yet.".to_string(),
    };
    not_ready(format!("generator {name} has no worker ID"))
        .detail(detail)
        .hint("IDs are issued as soon as it has one. View snowflake_generators shows it.")
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
        "Set \"snowflake_id.queue_pool\" to a pool whose worker IDs are from 0 to {max}, or make \
         the generator with more worker bits."
    ))
}

/// The clock was set back, and there is no worker ID for the time that it shows: `error` says
/// so for a generator that waits.
pub fn no_other_worker(error: Error, name: &str, shown: &Shown, has_keeper: bool) -> Error {
    let why = match &shown.trouble {
        _ if !has_keeper => NOT_RUNNING.to_string(),
        Some(obstacle) => trouble_text(obstacle),
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

/// A worker ID was granted. `before` is the one that was used up.
pub fn acquired(
    name: &str,
    pool: &str,
    right: &HeldLease,
    before: Option<WorkerId>,
    now: UnixMillis,
) -> Error {
    let worker = right.worker.get();
    let mut detail = before.map_or_else(String::new, |before| {
        let before = before.get();
        format!("Before, it was worker ID {before}.")
    });
    let lead = right.floor.since(now);
    if lead > Millis::ZERO {
        let space = if detail.is_empty() { "" } else { " " };
        let (floor, lead) = (display(right.floor), rounded(lead));
        detail += &format!(
            "{space}Its IDs start at {floor}, {lead} ahead of the clock, since the worker ID was in \
             use before."
        );
    }
    told(format!(
        "acquired worker ID {worker} from pool \"{pool}\" for generator {name}"
    ))
    .detail(detail)
}

/// A worker ID went back to the end of the queue.
pub fn returned(name: &str, pool: &str, worker: WorkerId, end: UnixMillis) -> Error {
    let worker = worker.get();
    told(format!(
        "returned worker ID {worker} of generator {name} to pool \"{pool}\""
    ))
    .detail(format!("It has issued no ID of {} or later.", display(end)))
}

/// A worker ID could not be returned.
pub fn not_returned(name: &str, pool: &str, worker: WorkerId) -> Error {
    let worker = worker.get();
    warned(format!(
        "could not return worker ID {worker} of generator {name} to pool \"{pool}\""
    ))
    .detail("The worker ID is free when its lease and the hold of the pool have ended.")
}

/// A worker ID was lost.
pub fn lost(name: &str, right: &HeldLease, trouble: &Trouble) -> Error {
    let worker = right.worker.get();
    warned(format!("lost worker ID {worker} of generator {name}")).detail(format!(
        "{} IDs of times before {} are issued under it still, since nobody else issues these. The \
         generator asks for a worker ID again.",
        reason(&trouble.why),
        display(right.bound)
    ))
}

/// The registry refuses, or cannot be reached.
pub fn troubled(name: &str, pool: &str, trouble: &Trouble) -> Error {
    warned(format!(
        "could not lease a worker ID from pool \"{pool}\" for generator {name}"
    ))
    .detail(reason(&trouble.why))
}

/// The registry answers again.
pub fn resumed(name: &str, right: Option<&HeldLease>, trouble: &Trouble, now: UnixMillis) -> Error {
    let outage = rounded(now.since(trouble.since));
    let what = right.map_or_else(
        || "the registry answers again".to_string(),
        |right| format!("renewed worker ID {} again", right.worker.get()),
    );
    told(format!("{what} for generator {name} after {outage}")).detail(reason(&trouble.why))
}

fn told(message: String) -> Error {
    ERRCODE_SUCCESSFUL_COMPLETION.error(message)
}

fn warned(message: String) -> Error {
    ERRCODE_WARNING.error(format!("snowflake_id: {message}"))
}
