//! The worker ID that a registry gives, or does not give: errors, and what the log says.

use pgrx::PgSqlErrorCode::*;

use crate::postgres::time::display;
pub use crate::registry::error::*;
use crate::server::lease_error::{because, reason, remedy};
use snowflake_core::id::{Millis, UnixMillis, WorkerId};
use snowflake_core::label::duration::rounded;
use snowflake_core::lease::node::{HeldLease, LeaseFailure};
use snowflake_core::lease::{FloorCause, Terms};

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
