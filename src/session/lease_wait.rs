//! What sessions ask of the keeper's state: whether there is a worker ID, and why not.

use crate::postgres::compat;
use crate::server::shmem::{self, Shared};
use crate::server::{guc, lease_error, os_clock};
use crate::session::error::{self, Error};
use snowflake_core::id::{Millis, Nanos};
use snowflake_core::label::Label;
use snowflake_core::label::generator::Generator;
use snowflake_core::protocol::host::IssueError;

/// How long calls wait for a worker ID when the server has started to ask for one.
const GRANT_WAIT: Millis = Millis::new(5000);

/// Waits until the server has a worker ID, but not longer than [`GRANT_WAIT`] after the keeper
/// has begun to ask for one. Returns whether it has one; false at once for a server without a
/// registry. A cancelled query ends the wait.
#[cold]
pub fn await_worker_id(shared: &Shared) -> bool {
    let from = os_clock::boot();
    let is_granted = loop {
        // Both under one lock: a server may leave its registry, and have its worker ID at once.
        let (worker, waits) = shared.with_lease(|_, state| {
            let is_registered = state.tenure.bound.is_some();
            let waits = is_registered.then(|| state.shown.waits_since.unwrap_or(from));
            (state.tenure.generation.worker(), waits)
        });
        if worker.is_some() {
            break true;
        }
        let Some(since) = waits else {
            break false;
        };
        let waited = os_clock::boot().since(since);
        let left = Nanos::new(GRANT_WAIT.nanos().get() - waited.get());
        if left <= Nanos::ZERO {
            break false;
        }
        pgrx::check_for_interrupts!();
        shared.sleep_until_told(left);
    };
    compat::end_sleep();
    is_granted
}

/// The error that the server has no worker ID. A layout holds those from 0 to `max`.
#[cold]
pub fn no_worker_id(max: u64) -> Error {
    let found = shmem::shared().ok().and_then(|shared| {
        let shown = shared.with_lease(|_, state| {
            let is_registered = state.tenure.bound.is_some();
            is_registered.then(|| state.shown.clone())
        });
        shown.map(|shown| (shown, shared.has_keeper()))
    });
    found.map_or_else(
        || error::no_worker_id(max),
        |(shown, has_keeper)| lease_error::no_worker_id(&shown, has_keeper),
    )
}

/// Refuses a generator for which this server would have to change its worker ID, and never does.
pub fn check_rotation(name: impl FnOnce() -> String, generator: &Generator) -> Result<(), Error> {
    match generator.rotates_worker() && guc::worker_id().is_some() {
        true => Err(lease_error::never_next_worker(&name())),
        false => Ok(()),
    }
}

/// Whether the registry has given nothing for so long that no caller waits for it.
pub fn has_long_failure(shared: &Shared) -> bool {
    let now = os_clock::boot();
    shared.with_lease(|_, state| {
        let failure = state.shown.failure.as_ref();
        failure.is_some_and(|obstacle| now.since(obstacle.began) >= GRANT_WAIT.nanos())
    })
}

/// What is in the way of a later bound, for a caller: a sentence, or several.
fn obstacle() -> Option<String> {
    let shared = shmem::shared().ok()?;
    if !shared.has_keeper() {
        return Some(lease_error::not_running());
    }
    let obstacle = shared.with_lease(|_, state| state.shown.failure.clone())?;
    Some(lease_error::failure(&obstacle))
}

/// Whether the worker field of a generator holds every worker ID that this server may get: those of
/// the pool, as soon as the registry has told them, or else the one that it has.
pub fn check_worker_field(name: &str, label: &Label) -> Result<(), Error> {
    let layout = label.layout();
    let max = layout.max_worker();
    let Some(shared) = shmem::shared().ok().filter(|_| layout.has_worker()) else {
        return Ok(());
    };
    let lease = shared.server();
    let greatest = i64::try_from(max).unwrap_or(i64::MAX);
    let told = shared.with_lease(|_, state| {
        let (terms, pool) = (state.link.as_ref()?.node.terms()?, state.shown.pool);
        Some((terms.fit(greatest), pool, terms.ids.end - 1))
    });
    match (told, lease.generation().worker()) {
        (Some((false, pool, last)), _) => {
            let pool = pool.get();
            Err(lease_error::pool_exceeds_layout(name, &pool, last, max))
        }
        (None, Some(worker)) if layout.stamp(worker).is_err() => {
            let (is_leased, text) = (guc::worker_id().is_none(), label.layout_text());
            Err(error::worker_id_range(
                worker.get(),
                max,
                is_leased,
                name,
                &text,
            ))
        }
        _ => Ok(()),
    }
}

/// The generator of this name refuses what was asked, as its users are told.
#[cold]
pub fn refused(name: &str, generator: &Generator, why: IssueError) -> Error {
    if error::no_worker_yet(why) {
        return no_worker_id(generator.layout.max_worker());
    }
    let server = error::ServerFacts {
        now: os_clock::wall().millis(),
        obstacle: obstacle(),
    };
    error::refused(name, generator, why, &server)
}
