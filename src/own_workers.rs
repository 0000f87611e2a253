//! Which generators may lease worker IDs of their own, and the place of one in shared memory.
//!
//! # Who may lease
//!
//! The worker IDs of a pool and the places are finite, and no role may stop the generators of
//! others by using them up. So the administrator names the pool
//! (`snowflake_id.generator_pool`), which should not be that of the servers, and says whose
//! generators may use it: those of superusers, and of roles with the privilege SET on that
//! setting.

use pgrx::pg_sys;

use super::error::{self, Error};
use super::lease_state::{LeaseSlot, LeaseState, Short};
use super::shmem::{Shared, SlotKey};
use super::{catalog, guc, os_clock};
use snowflake_core::id::WorkerId;

/// The place of a generator, which takes one if it may. The sequence is locked.
pub fn of_generator(
    relation: pg_sys::Oid,
    key: SlotKey,
    shared: &Shared,
) -> Result<&'static LeaseSlot, Error> {
    // A role that has lost the privilege keeps what it has until the server stops.
    if let Some(lease) = shared.lease_of(key) {
        return Ok(lease);
    }
    check(relation)?;
    let name = catalog::relation_name(relation);
    let database = catalog::database_name();
    let taken = take_place(shared, key, &format!("{name} of database \"{database}\""));
    taken.ok_or_else(|| error::own_workers::no_place(&name, guc::max_leased_generators()))
}

/// Whether a generator may lease worker IDs of its own. The sequence is locked.
pub fn check(relation: pg_sys::Oid) -> Result<(), Error> {
    let name = catalog::relation_name(relation);
    if guc::registry().is_empty() || guc::generator_pool().is_empty() {
        return Err(error::own_workers::no_pool(
            &name,
            guc::registry().is_empty(),
        ));
    }
    let owner = catalog::owner_of(relation).ok_or_else(|| error::no_such_relation(relation))?;
    if !has_privilege(owner) {
        let role = catalog::role_name(owner);
        return Err(error::own_workers::not_allowed(&name, &role));
    }
    Ok(())
}

/// The worker ID of a generator, if it has one now.
pub fn worker_of(shared: &Shared, key: SlotKey) -> Option<WorkerId> {
    shared.lease_of(key)?.generation().worker()
}

/// Whether a role may set the setting. Superusers may.
pub fn has_privilege(role: pg_sys::Oid) -> bool {
    // 32 bits in 15, 64 since.
    #[allow(clippy::useless_conversion)]
    let mode = pg_sys::AclMode::from(pg_sys::ACL_SET);
    // SAFETY: looks up the catalogs; a NUL-terminated name.
    let result =
        unsafe { pg_sys::pg_parameter_aclcheck(guc::GENERATOR_POOL_NAME.as_ptr(), role, mode) };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// Takes a place for a generator, or finds the one that it has. `None` if all are taken.
/// Places are taken in their order and stay taken, so no generator gets a second one.
fn take_place(shared: &Shared, key: SlotKey, name: &str) -> Option<&'static LeaseSlot> {
    let name = Short::new(name);
    let now = os_clock::read();
    let is_mine = |lease: &&'static LeaseSlot| {
        [0, key.bits()].contains(&lease.key())
            && shared.with_lease(lease, |_, state| {
                if lease.key() == 0 {
                    let since = Some(now.wall.millis());
                    *state = LeaseState::new(state.tenure, since);
                    state.shown.waits_since = Some(now.boot);
                    state.name = name;
                    lease.set_key(key.bits());
                }
                lease.key() == key.bits()
            })
    };
    let taken = shared.leased().iter().find(is_mine);
    shared.wake_keeper();
    taken
}
