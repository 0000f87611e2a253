//! The worker ID that a registry gives, or does not give: errors, and what the log says.

use pgrx::PgSqlErrorCode::*;
use pgrx::pg_sys;
use pgrx::spi::quote_literal;

use super::super::compat;
use super::super::lease_state::{Shown, ShownFailure};
use super::super::time::display;
use super::{Code, Error, invalid, joined, not_ready, not_supported};
use snowflake_core::id::{Millis, UnixMillis, WorkerId};
use snowflake_core::label::duration::rounded;
use snowflake_core::lease::node::{FLOOR_LIMIT, HeldLease, LeaseError, LeaseFailure};
use snowflake_core::lease::{
    Cause, Fence, FloorCause, Named, RegistryError, RegistryMillis, Terms,
};

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
pub fn no_worker_id(shown: &Shown, has_keeper: bool) -> Error {
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
pub fn no_other_worker(error: Error, shown: &Shown, has_keeper: bool) -> Error {
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

/// What is in the way, for a caller: the address of the registry is for those who see it
/// in the view.
pub fn seen_by_caller(obstacle: &ShownFailure) -> String {
    // SAFETY: in a transaction.
    let sees_all =
        unsafe { pg_sys::has_privs_of_role(compat::user(), pg_sys::ROLE_PG_READ_ALL_STATS.into()) };
    match obstacle {
        _ if sees_all => return with_host(obstacle),
        ShownFailure {
            is_unreachable: false,
            ..
        } => return obstacle.text.get(),
        _ => {}
    }
    "The registry cannot be asked; members of pg_monitor see why in view snowflake_worker."
        .to_string()
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

/// A lease, in what the log says of it.
#[derive(Clone)]
pub struct LeaseTexts {
    /// The registry without secrets.
    pub registry: String,
    /// Which of several hosts has replied last, and what others have said: a sentence, or several.
    pub from: String,
    pub pool: String,
}

impl LeaseTexts {
    /// The registry, and which host has replied.
    fn asked(&self) -> String {
        joined(&format!("The registry is {}.", self.registry), &self.from)
    }

    /// A worker ID was granted. `before` is the one of before. To lead the clock by more than a
    /// failover or a new pool can is worth a warning.
    pub fn log_acquired(
        &self,
        right: &HeldLease,
        terms: Option<&Terms>,
        (before, cause): (Option<WorkerId>, FloorCause),
        now: UnixMillis,
    ) {
        let mut detail = self.asked();
        if let Some(before) = before.filter(|before| *before != right.worker) {
            detail += &format!(" Before, it was worker ID {}.", before.get());
        }
        let lead = right.floor.since(now);
        if lead > Millis::ZERO {
            detail += &format!(
                " IDs under it start at {}, {} ahead of the clock of this server, since {}. The \
                 lead shrinks by itself.",
                display(right.floor),
                rounded(lead),
                because(cause)
            );
        }
        let (worker, pool) = (right.worker.get(), &self.pool);
        let what = format!("acquired worker ID {worker} from pool \"{pool}\"");
        let usual = terms.map(|it| it.patience.plus(it.hold).plus(it.max_ahead));
        if usual.is_some_and(|usual| lead > usual) {
            let ahead = rounded(lead);
            return warned(format!("{what}, {ahead} ahead of the clock"))
                .detail(detail)
                .hint(
                    "IDs are unique and in order. Look at the clocks of the servers and of the \
                     registry: snowflake_check_cluster() compares them.",
                )
                .warning();
        }
        told(what).detail(detail).log("");
    }

    /// The registry answers again.
    pub fn resumed(
        &self,
        right: Option<&HeldLease>,
        failure: &LeaseFailure,
        now: UnixMillis,
    ) -> Error {
        let outage = rounded(now.since(failure.since));
        let what = right.map_or_else(
            || "the registry answers again".to_string(),
            |right| format!("renewed worker ID {} again", right.worker.get()),
        );
        told(format!("{what} after {outage}")).detail(joined(&reason(&failure.why), &self.from))
    }

    /// The worker ID was lost. `goes_on`: the server does not stop, so another one is asked for.
    pub fn lost(&self, right: &HeldLease, failure: &LeaseFailure, goes_on: bool) -> Error {
        let mut detail = joined(&reason(&failure.why), &self.from);
        if goes_on {
            detail += &format!(
                " IDs of times before {} are issued under it still, since nobody else issues these. \
                 The server asks for a worker ID again.",
                display(right.bound)
            );
        }
        warned(format!("lost worker ID {}", right.worker.get())).detail(detail)
    }

    /// The registry refuses, or cannot be reached. `right` is what remains, and `holds` says
    /// that it is not lost. `unclaimed` is the fixed worker ID under which the server
    /// continues to issue meanwhile. The log has this line at the first failure, and says how
    /// much time there is.
    pub fn troubled(
        &self,
        (right, holds): (Option<&HeldLease>, bool),
        fixed: Option<WorkerId>,
        unclaimed: Option<WorkerId>,
        failure: &LeaseFailure,
        now: UnixMillis,
    ) -> Error {
        let pool = &self.pool;
        let what = match (right.filter(|_| holds), fixed) {
            (Some(right), _) => format!("could not renew worker ID {}", right.worker.get()),
            (None, Some(fixed)) => {
                let fixed = fixed.get();
                format!("could not claim worker ID {fixed} in pool \"{pool}\"")
            }
            (None, None) => format!("could not acquire a worker ID from pool \"{pool}\""),
        };
        let lasts = match (right, unclaimed) {
            (Some(right), _) if right.bound > now => format!(
                " IDs continue until {}, which is in {}; those of a generator that leads the \
                 clock stop sooner.",
                display(right.bound),
                rounded(right.bound.since(now))
            ),
            (None, Some(worker)) => format!(
                " IDs are issued under worker ID {} as without a registry; from the next restart \
                 on, none are issued until that is solved.",
                worker.get(),
            ),
            _ => " No IDs are issued until that is solved.".to_string(),
        };
        warned(what)
            .detail(format!("{} {}{lasts}", self.asked(), reason(&failure.why)))
            .hint(remedy(&failure.why))
    }

    /// The bound was reached while the registry gave nothing.
    pub fn ended(&self, right: &HeldLease, failure: &LeaseFailure) -> Error {
        let (worker, end) = (right.worker.get(), display(right.bound));
        warned(format!(
            "no IDs are issued any more under worker ID {worker}: its lease ended at {end}"
        ))
        .detail(joined(&reason(&failure.why), &self.from))
        .hint(remedy(&failure.why))
    }

    /// The lease was ended.
    pub fn returned(&self, worker: WorkerId, end: UnixMillis) -> Error {
        let (worker, pool) = (worker.get(), &self.pool);
        told(format!("returned worker ID {worker} to pool \"{pool}\""))
            .detail(format!("No ID under it is of {} or later.", display(end)))
    }

    /// The lease could not be ended.
    pub fn not_returned(&self, worker: WorkerId, why: &str) -> Error {
        let (worker, pool) = (worker.get(), &self.pool);
        warned(format!(
            "could not return worker ID {worker} to pool \"{pool}\""
        ))
        .detail(format!(
            "{why} The worker ID is free when its lease and the hold of the pool have ended."
        ))
    }

    /// The server stops, and the registry with it.
    pub fn kept(&self, worker: WorkerId) -> Error {
        let (worker, pool) = (worker.get(), &self.pool);
        told(format!(
            "did not return worker ID {worker} to pool \"{pool}\""
        ))
        .detail(
            "The registry is on this server, which stops. The server gets the worker ID again at \
             its next start, if the machine is not booted in between.",
        )
    }

    /// Somebody has copied the running server.
    pub fn copied(&self) -> Error {
        warned("this server, or its machine, was copied while it ran".to_string()).detail(
            "The registry has heard from the copy. IDs under the worker ID that both have stop \
             here; the server asks for a worker ID again.",
        )
            .hint("Find the copy and keep it apart. Look for IDs that both have issued since it was made.")
    }
}

/// The registry was taken away by a reload.
pub fn no_registry() -> Error {
    told("the worker ID comes from the settings, without a registry".to_string())
}

/// Etcd takes no writes, or soon will not, for this reason.
pub fn etcd_grown(why: &str) -> Error {
    warned("the etcd of the registry takes no writes, or soon will not".to_string())
        .detail(why)
        .hint(
            "Compact and defragment etcd, and then disarm its alarm. Start its members with \
             --auto-compaction-retention=1h.",
        )
}

pub fn told(message: String) -> Error {
    ERRCODE_SUCCESSFUL_COMPLETION.error(message)
}

fn warned(message: String) -> Error {
    ERRCODE_WARNING.error(format!("snowflake_id: {message}"))
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
fn named(holder: &Named) -> String {
    let address = match holder.address.as_str() {
        "" => String::new(),
        address => format!(" ({address})"),
    };
    format!(
        "the server on host \"{}\"{address}, port {}, data directory \"{}\"",
        holder.host, holder.port, holder.data_directory
    )
}
