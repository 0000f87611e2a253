//! Why the server has no worker ID of a registry, or no later bound: errors, and sentences of others.

use pgrx::PgSqlErrorCode::*;
use pgrx::pg_sys;
use pgrx::spi::quote_literal;

use crate::error::{Code, Error, invalid, joined, not_ready, not_supported};
use crate::postgres::{compat, time::display};
use crate::server::lease_state::{ShownFailure, ShownLease};
use snowflake_core::id::WorkerId;
use snowflake_core::label::duration::rounded;
use snowflake_core::lease::node::{FLOOR_LIMIT, LeaseError};
use snowflake_core::lease::{Cause, Fence, FloorCause, HolderName, RegistryError, RegistryMillis};

/// There is no background worker.
pub fn not_running() -> String {
    // SAFETY: reads shared memory of the server.
    let why = if unsafe { pg_sys::RecoveryInProgress() } {
        "The server is a standby. It asks the registry for a worker ID when it is promoted."
    } else {
        "The keeper is not running, the background worker that asks the registry: the log says \
         why. It takes one of \"max_worker_processes\"."
    };
    why.to_string()
}

/// The server has no worker ID from the registry.
pub fn no_worker_id(shown: &ShownLease, has_keeper: bool) -> Error {
    let detail = match &shown.failure {
        _ if !has_keeper => not_running(),
        Some(obstacle) => match obstacle.held {
            Some(worker) => return held(worker, obstacle),
            None => format!(
                "The registry has given it none from pool \"{}\". {}",
                shown.pool.get(),
                failure(obstacle)
            ),
        },
        None => "It has not got one from the registry yet.".to_string(),
    };
    not_ready("this server has no worker ID")
        .detail(detail)
        .hint("snowflake_status() says what helps. IDs are issued as soon as it has one.")
}

/// The clock was set back, and the server has got no worker ID for the time that it shows:
/// `error` says so for a generator that waits.
pub fn no_other_worker(error: Error, shown: &ShownLease, has_keeper: bool) -> Error {
    let why = match &shown.failure {
        _ if !has_keeper => not_running(),
        Some(obstacle) => failure(obstacle),
        None => "The registry has not answered yet.".to_string(),
    };
    let pool = shown.pool.get();
    let quoted = quote_literal(&pool);
    let detail = format!(
        "{} This server has got no worker ID from pool \"{pool}\" that was not used at this time. \
         {why}",
        error.detail
    );
    error.detail(detail).hint(format!(
        "Check the time synchronization of this server. IDs resume by themselves when the clock is \
         there again, or when the pool has such a worker ID: view snowflake_workers shows the \
         bounds of those WHERE pool = {quoted}. A larger pool has more."
    ))
}

/// A generator with `on_rollback=next_worker` on a server that has a number of its settings.
pub fn never_next_worker(name: &str) -> Error {
    not_supported(format!(
        "generator {name} needs a server that leases any worker ID of a registry"
    ))
    .detail(
        "It has on_rollback=next_worker: when the clock is set back, the server takes its next \
         worker ID. This server has a fixed one, by \"snowflake_id.worker_id\".",
    )
    .hint(
        "Set \"snowflake_id.registry\", and \"snowflake_id.worker_id\" to an empty text, and restart \
         the server. Or set a different on_rollback by snowflake_alter_generator(): wait, error or \
         continue.",
    )
}

/// What is in the way, for a caller, and since when.
pub fn failure(obstacle: &ShownFailure) -> String {
    let (since, why) = (display(obstacle.since), seen_by_caller(obstacle));
    let what = match obstacle.is_unreachable {
        true => "The registry has been unreachable",
        false => "There is trouble",
    };
    format!("{what} since {since}: {why}")
}

/// What is in the way, for a caller: where the registry and other servers are is for those who see
/// it in the view.
pub fn seen_by_caller(obstacle: &ShownFailure) -> String {
    // SAFETY: in a transaction.
    let sees_all =
        unsafe { pg_sys::has_privs_of_role(compat::user(), pg_sys::ROLE_PG_READ_ALL_STATS.into()) };
    let who = match obstacle {
        _ if sees_all => return with_host(obstacle),
        it if it.is_unreachable => "The registry cannot be asked",
        it if it.names_server => "It is because of another server",
        it => return it.text.get(),
    };
    format!("{who}; members of pg_monitor see more in view snowflake_worker.")
}

/// What is in the way, and which of several hosts has said so.
pub fn with_host(obstacle: &ShownFailure) -> String {
    joined(&obstacle.text.get(), &obstacle.from.get())
}

/// What helps against what is in the way: a sentence, or several; empty if nothing is to be done.
pub fn remedy(why: &LeaseError) -> &'static str {
    match why {
        LeaseError::Starting => "",
        LeaseError::Unreachable(_) => {
            "Check that the registry runs (of an etcd, the majority of its members), and that \
             \"snowflake_id.registry\" has its address, and a role or a user that it accepts. If a \
             database answers others, end the session there that locks the registry: \
             pg_stat_activity shows it."
        }
        LeaseError::FloorTooFar { .. } => "Set the clocks of this server and of the others right.",
        LeaseError::Refused(refused) => match refused {
            RegistryError::Fenced { .. } => "The server asks for a worker ID again by itself.",
            RegistryError::Held { .. } => {
                "Stop that server, or give one of the two a different \"snowflake_id.worker_id\". If \
                 it is gone for good, wait: with the terms by default, the worker ID is free a minute \
                 after it was heard last."
            }
            RegistryError::NoneFree { .. } => {
                "View snowflake_workers of the registry shows which servers have them. Those of \
                 servers that are gone are free after a while: with the terms by default, a minute after \
                 they were heard last. If all servers live, use a larger pool."
            }
            RegistryError::NonePassed { .. } => {
                "Wait for that instant, or use a larger pool. If it is far ahead, the clock of a \
                 server or of the registry was wrong: view snowflake_workers shows the bounds."
            }
            RegistryError::Grace { .. } => {
                "Wait. If you know that no lease was lost, a superuser can call \
                 snowflake_end_grace_period(): in the database of the registry, or, for an etcd, \
                 on any of its servers."
            }
            RegistryError::TooFarAhead { .. } => "Set the wrong clock right.",
            RegistryError::Foreign => {
                "If it should be the registry of before, correct \"snowflake_id.registry\", or \
                 what that address leads to."
            }
            RegistryError::NotInPool { .. } => {
                "Set a \"snowflake_id.worker_id\" of the pool, or none: then the server leases any \
                 of the pool."
            }
            RegistryError::Stopped(_) => {
                "Stop the copy of the registry that must not count, and call \
                 snowflake_declare_registry() at the other one."
            }
        },
    }
}

/// Why the first IDs of a lease lead the clock: a clause.
pub const fn because(cause: FloorCause) -> &'static str {
    match cause {
        FloorCause::Own => {
            "this server, or a copy of it, had a lease of the times before and did not return it: \
             it has crashed, or its clock was ahead"
        }
        FloorCause::Used => {
            "another server had a lease of the times before, a long one or by a clock that was \
             ahead"
        }
        FloorCause::Loss => "the registry may have lost leases of the times before",
        FloorCause::NewPool => "the pool is new, and its worker IDs may have been in use before it",
    }
}

/// The fixed worker ID is another server's.
fn held(worker: WorkerId, obstacle: &ShownFailure) -> Error {
    let worker = worker.get();
    ERRCODE_OBJECT_IN_USE
        .error(format!("worker ID {worker} belongs to another server"))
        .detail(seen_by_caller(obstacle))
        .hint(format!(
            "Stop that server, or give one of the two a different \"snowflake_id.worker_id\". This \
             server gets worker ID {worker} by itself when it is free."
        ))
}

/// What a generator cannot hold of the pool.
pub fn pool_exceeds_layout(generator: &str, pool: &str, last: i64, max: u64) -> Error {
    invalid(format!(
        "generator {generator} cannot hold all worker IDs of pool \"{pool}\""
    ))
    .detail(format!(
        "The pool has worker IDs up to {last}, and the layout holds worker IDs from 0 to {max}."
    ))
    .hint(format!(
        "Make the generator with more worker bits, or let its servers lease from a pool of their \
         own, made with worker_ids => '[0,{})'. The generator issues nothing on a server that gets \
         a greater worker ID.",
        max.saturating_add(1)
    ))
}

/// Why the node does not have what it wants: a sentence.
pub fn reason(why: &LeaseError) -> String {
    match why {
        LeaseError::Starting => "The registry has not answered yet.".to_string(),
        LeaseError::Unreachable(text) => text.clone(),
        LeaseError::Refused(refused) => refusal(refused),
        LeaseError::FloorTooFar { worker, floor } => format!(
            "The registry gives worker ID {} for IDs of times from {} on only, and that is more \
             than {} after the clock of this server. The clock of this server or of another one is \
             wrong, or somebody has changed what the registry stores.",
            worker.get(),
            display(*floor),
            rounded(FLOOR_LIMIT)
        ),
    }
}

fn refusal(refused: &RegistryError) -> String {
    match refused {
        RegistryError::Fenced { why, by, since } => {
            let by = by.as_deref().map_or_else(String::new, |by| {
                let what = match why {
                    Fence::TakenOver => "It went to",
                    _ => "It belongs to",
                };
                format!(" {what} {}, since {}.", named(by), at(*since))
            });
            let why = match why {
                Fence::TakenOver => "Another server got it.",
                Fence::Released => "It was returned.",
                Fence::Revoked => "It was revoked at the registry.",
                Fence::Copied => "A copy of this server has used it.",
                Fence::Lost => "The registry does not know the lease: it has lost it.",
                Fence::Doubtful => {
                    "The lease had expired when the registry may have lost leases of others."
                }
            };
            format!("{why}{by}")
        }
        RegistryError::Held {
            worker, by, since, ..
        } => format!(
            "Worker ID {} belongs to {}, since {}.",
            worker.get(),
            named(by),
            at(*since)
        ),
        RegistryError::NoneFree { .. } => {
            "All worker IDs of the pool belong to other servers.".to_string()
        }
        RegistryError::NonePassed { latest } => format!(
            "Each other free worker ID of the pool has been used at {} or after it, or the pool was \
             made later.",
            display(*latest)
        ),
        RegistryError::Grace {
            cause: Cause::New,
            retry,
        } => format!(
            "The registry was just made by the first server that asked. In case another one was \
             deleted there, it gives no worker ID for {} more.",
            rounded(*retry)
        ),
        RegistryError::Grace { cause, retry } => format!(
            "The registry may have lost leases ({}), so it gives no worker ID for {} more.",
            match cause {
                Cause::Origin => "it was promoted, or restored from a dump",
                Cause::Recovery => "its server has crashed, or was restored from a snapshot",
                Cause::Serial => "a server has seen later changes",
                Cause::Token => "a server has a lease that it does not know",
                Cause::Foreign => "it is new, and servers have leases of another one",
                Cause::New => "a server has just made it, and one before it may have been deleted",
                Cause::Declared => "an administrator has declared it the one that counts",
            },
            rounded(*retry)
        ),
        RegistryError::TooFarAhead { asked, limit, now } => format!(
            "The clock of this server shows {}, and that of the registry {}: one of the two is \
             wrong. The registry believes no clock after {}.",
            display(*asked),
            at(*now),
            display(*limit)
        ),
        RegistryError::Foreign => {
            "The registry does not know what this server remembers of it: it is \
                             another registry than before, or was made anew."
                .to_string()
        }
        RegistryError::NotInPool { worker } => {
            format!("Worker ID {} is not in the pool.", worker.get())
        }
        RegistryError::Stopped(stopped) => format!(
            "The registry serves nobody since {}: {} has seen another one that has taken over \
             from it.",
            at(stopped.since),
            named(&stopped.by)
        ),
    }
}

fn at(at: RegistryMillis) -> String {
    display(at.as_nodes_clock())
}

/// A server for people.
fn named(holder: &HolderName) -> String {
    let address = match holder.address.as_str() {
        "" => String::new(),
        address => format!(" ({address})"),
    };
    format!(
        "the server on host \"{}\"{address}, port {}, data directory \"{}\"",
        holder.host, holder.port, holder.data_directory
    )
}
