//! Which generators may lease worker IDs of their own, and the place of one in shared memory.
//!
//! # Who may lease
//!
//! The worker IDs of a pool and the places are finite, and no role may stop the generators of
//! others by using them up. So a superuser says who may use which pool. A right is granted on an
//! object, and for a pool this is a foreign server of its name:
//!
//! ```sql
//! CREATE SERVER generators FOREIGN DATA WRAPPER snowflake_pool;
//! GRANT USAGE ON FOREIGN SERVER generators TO shop;
//! ```
//!
//! A generator may lease from a pool if all of this holds:
//!
//! - the foreign server is there, and its wrapper is a member of the extension. Only a superuser
//!   can make a wrapper, and only a wrapper's owner can make it a member;
//! - superusers own both. So a server that a role with USAGE on the wrapper has made is none;
//! - the owner of the generator has USAGE on the server;
//! - the pool is not that of this server (`snowflake_id.pool`): generators would take the worker
//!   IDs of servers.

use pgrx::pg_sys;

use super::error::own_workers::{self as errors, Lacks};
use super::error::{self, Error};
use super::lease_state::{LeaseSlot, LeaseState, SHARE, Short};
use super::shmem::{Shared, SlotKey};
use super::{catalog, compat, encoding, guc, os_clock};
use snowflake_core::id::WorkerId;

/// The place of a generator, which takes one if it may. The sequence is locked.
pub fn of_generator(
    relation: pg_sys::Oid,
    key: SlotKey,
    pool: &str,
    shared: &Shared,
) -> Result<&'static LeaseSlot, Error> {
    let wanted = Short::new(pool);
    if let Some(lease) = shared.lease_of(key) {
        // A role that has lost the privilege keeps what it has until the server stops.
        if shared.with_lease(lease, |_, state| state.pool == wanted) {
            return Ok(lease);
        }
        // The label names another pool: the keeper moves the lease.
        check(relation, pool)?;
        shared.with_lease(lease, |_, state| state.pool = wanted);
        shared.wake_keeper();
        return Ok(lease);
    }
    check(relation, pool)?;
    let name = catalog::relation_name(relation);
    let database = catalog::database_name();
    let shown = Short::new(&format!("{name} of database \"{database}\""));
    let owner = catalog::owner_of(relation).ok_or_else(|| error::no_such_relation(relation))?;
    take_place(shared, key, owner, wanted, shown).ok_or_else(|| errors::no_place(&name))
}

/// Whether a generator may lease worker IDs of its own from a pool. The sequence is locked.
pub fn check(relation: pg_sys::Oid, pool: &str) -> Result<(), Error> {
    let name = catalog::relation_name(relation);
    if guc::registry().is_empty() {
        return Err(errors::no_pool(&name, pool, Lacks::Registry));
    }
    if guc::pool() == pool {
        return Err(errors::no_pool(&name, pool, Lacks::OwnPool));
    }
    let owner = catalog::owner_of(relation).ok_or_else(|| error::no_such_relation(relation))?;
    let server = server_of(pool).map_err(|lacks| errors::no_pool(&name, pool, lacks))?;
    if !compat::may_use_server(server, owner) {
        let role = catalog::role_name(owner);
        return Err(errors::not_allowed(&name, &role, pool));
    }
    Ok(())
}

/// The foreign server that stands for a pool. See the head of the file.
fn server_of(pool: &str) -> Result<pg_sys::Oid, Lacks> {
    let extension = catalog::extension(c"snowflake_id").ok_or(Lacks::Server)?;
    let name = encoding::to_server_exactly(pool).map_err(|_| Lacks::Server)?;
    // SAFETY: catalog look-ups, in a transaction. A server that is found has a wrapper.
    unsafe {
        let server = catalog::valid(pg_sys::get_foreign_server_oid(name, true));
        let server = server.ok_or(Lacks::Server)?;
        let found = &*pg_sys::GetForeignServer(server);
        let wrapper = &*pg_sys::GetForeignDataWrapper(found.fdwid);
        let class = pg_sys::ForeignDataWrapperRelationId;
        if pg_sys::getExtensionOfObject(class, wrapper.fdwid) != extension {
            return Err(Lacks::Server);
        }
        if !pg_sys::superuser_arg(found.owner) || !pg_sys::superuser_arg(wrapper.owner) {
            return Err(Lacks::Superuser);
        }
        Ok(server)
    }
}

/// The worker ID of a generator, if it has one now.
pub fn worker_of(shared: &Shared, key: SlotKey) -> Option<WorkerId> {
    shared.lease_of(key)?.generation().worker()
}

/// Takes a place for a generator, or finds the one that it has. `None` if all are taken, or those
/// that its owner can have.
/// Places are taken in their order and stay taken, so no generator gets a second one.
fn take_place(
    shared: &Shared,
    key: SlotKey,
    owner: pg_sys::Oid,
    pool: Short<64>,
    name: Short<160>,
) -> Option<&'static LeaseSlot> {
    let now = os_clock::read();
    // SAFETY: a catalog look-up, in a transaction.
    let has_all = unsafe { pg_sys::superuser_arg(owner) };
    let owner = owner.to_u32();
    // Of a place that is free. All places change under the lock that is held here.
    let may_take = || {
        let taken = shared.leased().iter().filter(|lease| lease.key() != 0);
        has_all || taken.filter(|lease| lease.owner() == owner).count() < SHARE
    };
    let is_mine = |lease: &&'static LeaseSlot| {
        [0, key.bits()].contains(&lease.key())
            && shared.with_lease(lease, |_, state| {
                if lease.key() == 0 && may_take() {
                    let since = Some(now.wall.millis());
                    *state = LeaseState::new(state.tenure, since);
                    state.shown.waits_since = Some(now.boot);
                    (state.name, state.pool) = (name, pool);
                    lease.give(key.bits(), owner);
                }
                lease.key() == key.bits()
            })
    };
    let taken = shared.leased().iter().find(is_mine);
    shared.wake_keeper();
    taken
}
