//! What sessions ask of the keeper's state: whether there is a worker ID, and why not.

use super::error::{self, Error};
use super::lease_state::LeaseState;
use super::shmem::{self, Shared, SlotKey};
use super::tenants::Tenant;
use super::{compat, guc, os_clock};
use snowflake_core::generator::Generator;
use snowflake_core::host::Refused;
use snowflake_core::id::{Millis, Nanos};

/// How long calls wait for a worker ID when the server has started to ask for one.
const GRANT_WAIT: Millis = Millis::new(5000);

/// Waits until the server, or a generator that leases worker IDs of its own, has one from
/// the registry, but not longer than [`GRANT_WAIT`] after it has begun to ask. Returns
/// whether it has one; false at once without a registry. A cancelled query ends the wait.
#[cold]
pub fn await_worker_id(shared: &Shared, tenant: Option<&Tenant>) -> bool {
    let from = os_clock::boot();
    let is_granted = loop {
        let generation = tenant.map_or_else(|| shared.generation(), Tenant::generation);
        if generation.worker().is_some() {
            break true;
        }
        let waits = match tenant {
            Some(tenant) => shared.with_held(tenant, |_, held| {
                Some(held.state.shown.waits_since.unwrap_or(from))
            }),
            None => shared.with_keeper(|beliefs, state| {
                let is_registered = beliefs.identity.bound.is_some();
                is_registered.then(|| state.shown.waits_since.unwrap_or(from))
            }),
        };
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

/// The error that this server has no worker ID. The generator holds those from 0 to `max`.
#[cold]
pub fn no_worker_id(max: u64) -> Error {
    let found = shmem::shared().ok().and_then(|shared| {
        let shown = shared.with_keeper(|beliefs, state| {
            let is_registered = beliefs.identity.bound.is_some();
            is_registered.then(|| state.shown.clone())
        });
        shown.map(|shown| (shown, shared.has_keeper()))
    });
    found.map_or_else(
        || error::no_worker_id(max),
        |(shown, has_keeper)| error::keeper::no_lease(&shown, has_keeper),
    )
}

/// Whether the registry has given nothing for so long that no caller waits for it.
pub fn has_long_trouble(shared: &Shared, tenant: Option<&Tenant>) -> bool {
    let now = os_clock::boot();
    let is_long = |state: &LeaseState| {
        let trouble = state.shown.trouble.as_ref();
        trouble.is_some_and(|obstacle| now.since(obstacle.began) >= GRANT_WAIT.nanos())
    };
    match tenant {
        Some(tenant) => shared.with_held(tenant, |_, held| is_long(&held.state)),
        None => shared.with_keeper(|_, state| is_long(state)),
    }
}

/// What is in the way of a later bound, for a caller: a sentence, or several.
fn obstacle() -> Option<String> {
    let shared = shmem::shared().ok()?;
    if !shared.has_keeper() {
        return Some(error::keeper::NOT_RUNNING.to_string());
    }
    let obstacle = shared.with_keeper(|_, state| state.shown.trouble.clone())?;
    Some(error::keeper::trouble(&obstacle))
}

/// As [`no_worker_id`], of a generator that leases worker IDs of its own, whose name is given.
#[cold]
pub fn no_worker_id_of(tenant: &Tenant, name: &str) -> Error {
    shmem::shared().map_or_else(
        |error| error,
        |shared| {
            let shown = shared.with_held(tenant, |_, held| held.state.shown.clone());
            error::tenants::no_worker_id(name, &shown, shared.has_keeper())
        },
    )
}

/// The pool from which the server, or a generator with worker IDs of its own, has its
/// worker ID, and the last worker ID of the pool.
pub fn pool_end(shared: &Shared, key: SlotKey, generator: &Generator) -> Option<(String, i64)> {
    let end = |state: &LeaseState| {
        let terms = state.link.as_ref()?.node.terms()?;
        Some((state.shown.pool, terms.ids.end - 1))
    };
    let found = if generator.takes_turns() {
        shared.with_held(shared.tenant(key)?, |_, held| end(&held.state))
    } else {
        shared.with_keeper(|_, state| end(state))
    };
    found.map(|(pool, last)| (pool.get(), last))
}

/// The generator of this name refuses what was asked, as its users are told.
#[cold]
pub fn refused(name: &str, generator: &Generator, why: Refused) -> Error {
    if error::no_worker_yet(why) {
        return no_worker_id(generator.layout.max_worker());
    }
    let server = error::ServerFacts {
        now: os_clock::wall().millis(),
        max_observe: guc::max_observe(),
        obstacle: obstacle(),
    };
    error::refused(name, generator, why, &server)
}
