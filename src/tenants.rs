//! Generators that lease worker IDs of their own (`on_rollback=next_worker`).
//!
//! Each of them has a place in shared memory, with an identity of its own beside that of
//! the server. The session that uses the generator first takes the place; the keeper leases
//! the worker ID ([`super::keeper::queue`]). The generator keeps the place until the server
//! stops.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | `key` | the generator, as in its slot; 0: the place is free. Changed under the clock lock |
//! | `generation`, `max_ahead` | copies of the identity, for sessions that hold no lock, as those of the server in [`super::shmem`] |
//! | `needed`, `known` | as those of `Shared` |
//! | `used` | the generation whose worker ID is used up for the time that the clock shows, 0: none. Stored by sessions, taken by the keeper |
//! | `held` | the identity, and what the keeper has here; under the clock lock |
//!
//! # Who may lease
//!
//! The worker IDs of a pool and the places are finite, and nobody shall be able to stop the
//! generators of others by using them up. So the administrator names the pool
//! (`snowflake_id.queue_pool`), which should not be that of the servers, and says whose
//! generators may use it: those of superusers, and of roles with the privilege SET on that
//! setting.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pgrx::pg_sys;

use super::entry::Entry;
use super::error::{self, Error};
use super::keeper::state::{Obstacle, Short, State};
use super::shmem::{Key, Shared, is_news};
use super::{catalog, guc};
use snowflake_core::clock::Reading;
use snowflake_core::host::Beliefs;
use snowflake_core::id::{Millis, UnixMillis, WorkerId};
use snowflake_core::identity::{Generation, Identity};

/// The place of a generator.
#[repr(C)]
pub struct Tenant {
    key: AtomicU64,
    generation: AtomicU64,
    max_ahead: AtomicI64,
    needed: AtomicI64,
    known: AtomicI64,
    used: AtomicU64,
    held: UnsafeCell<Held>,
}

/// What is under the clock lock.
pub struct Held {
    pub identity: Identity,
    pub state: State,
    /// What is in the way of another worker ID, after a clock rollback.
    pub blocked: Option<Blocked>,
    /// The name of the generator and of its database, for the log.
    pub name: Short<160>,
}

/// Why a generator gets no other worker ID.
#[derive(Clone)]
pub struct Blocked {
    pub obstacle: Obstacle,
    /// Both clocks then.
    pub reading: Reading,
}

impl Blocked {
    /// Whether it holds for a clock that shows this: not if that was stepped since.
    pub fn holds(&self, now: Reading) -> bool {
        now.stepped_since(self.reading) == Millis::ZERO
    }
}

impl Tenant {
    /// A free place.
    pub fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            max_ahead: AtomicI64::new(-1),
            needed: AtomicI64::new(i64::MIN),
            known: AtomicI64::new(i64::MIN),
            used: AtomicU64::new(0),
            held: UnsafeCell::new(Held {
                identity: Identity::NONE,
                state: State::default(),
                blocked: None,
                name: Short::default(),
            }),
        }
    }

    /// The key of the generator; 0 if the place is free.
    pub fn key(&self) -> u64 {
        self.key.load(Ordering::Acquire)
    }

    /// The generation of the generator's identity, with its worker ID.
    pub fn generation(&self) -> Generation {
        Generation::from_bits(self.generation.load(Ordering::Acquire))
    }

    /// As [`Shared::max_ahead`].
    pub fn max_ahead(&self) -> Option<Millis> {
        let most = self.max_ahead.load(Ordering::Relaxed);
        (most >= 0).then_some(Millis::new(most))
    }

    /// A caller needs a bound past this instant. Returns whether the keeper has to be woken.
    #[must_use]
    pub fn need_bound(&self, instant: UnixMillis) -> bool {
        self.needed.fetch_max(instant.get(), Ordering::AcqRel);
        self.known.load(Ordering::Acquire) < instant.get()
    }

    /// As [`Shared::know_need`].
    pub fn know_need(&self, instant: Option<UnixMillis>) {
        let instant = instant.map_or(i64::MIN, UnixMillis::get);
        self.known.store(instant, Ordering::Release);
    }

    /// What callers have needed since this was asked last. Asked by the keeper.
    pub fn take_need(&self) -> Option<UnixMillis> {
        let needed = self.needed.swap(i64::MIN, Ordering::AcqRel);
        (needed != i64::MIN).then_some(UnixMillis::new(needed))
    }

    /// The worker ID of this generation is used up for the time that the clock shows. Returns
    /// whether the keeper has to be woken: not if it has not yet taken what another caller has
    /// told.
    #[must_use]
    pub fn use_up(&self, generation: Generation) -> bool {
        self.used.swap(generation.bits(), Ordering::AcqRel) != generation.bits()
    }

    /// What was told since this was asked last. Asked by the keeper.
    pub fn take_used(&self) -> Option<Generation> {
        let used = self.used.swap(0, Ordering::AcqRel);
        (used != 0).then_some(Generation::from_bits(used))
    }
}

impl Shared {
    /// The place of a generator, if it has one.
    pub fn tenant(&self, key: Key) -> Option<&'static Tenant> {
        let of_key = |tenant: &&Tenant| tenant.key() == key.bits();
        self.tenants().iter().find(of_key)
    }

    /// Runs `f` with the beliefs of the server, of which the identity is that of the
    /// server, and with what the place holds. `f` must not call PostgreSQL.
    pub fn with_held<T>(&self, tenant: &Tenant, f: impl FnOnce(&mut Beliefs, &mut Held) -> T) -> T {
        let (result, is_news) = self.with_beliefs(|beliefs| {
            // SAFETY: the clock lock excludes all others who look at it.
            let held = unsafe { &mut *tenant.held.get() };
            let before = held.identity;
            let result = f(beliefs, held);
            let Identity {
                generation,
                max_ahead,
                ..
            } = held.identity;
            let most = max_ahead.map_or(-1, Millis::get);
            tenant.max_ahead.store(most, Ordering::Relaxed);
            let bits = generation.bits();
            tenant.generation.store(bits, Ordering::Release);
            (result, is_news(before, held.identity))
        });
        if is_news {
            self.tell_waiters();
        }
        result
    }

    /// As [`Shared::with_beliefs`], with the identity of a generator instead of the
    /// server's.
    pub fn with_beliefs_of<T>(&self, tenant: &Tenant, f: impl FnOnce(&mut Beliefs) -> T) -> T {
        self.with_held(tenant, |beliefs, held| {
            let server = std::mem::replace(&mut beliefs.identity, held.identity);
            let result = f(beliefs);
            held.identity = std::mem::replace(&mut beliefs.identity, server);
            result
        })
    }

    /// Takes a place for a generator, or finds the one that it has. `None` if all are
    /// taken.
    fn take_place(&self, key: Key, name: &str) -> Option<&'static Tenant> {
        let name = Short::new(name);
        let now = super::os_clock::read();
        let tenants = self.tenants();
        let taken = self.with_beliefs(|_| {
            let of_key = |bits| tenants.iter().position(|tenant| tenant.key() == bits);
            let at = of_key(key.bits()).or_else(|| {
                let free = of_key(0)?;
                let tenant = tenants.get(free)?;
                // SAFETY: as in with_held().
                let held = unsafe { &mut *tenant.held.get() };
                // Generations go on: none is used twice.
                held.identity = held.identity.closed();
                held.state = State::new(now.wall.millis());
                held.state.shown.waits_since = Some(now.boot);
                held.name = name;
                let bits = held.identity.generation.bits();
                tenant.generation.store(bits, Ordering::Release);
                tenant.key.store(key.bits(), Ordering::Release);
                Some(free)
            })?;
            tenants.get(at)
        });
        self.wake_keeper();
        taken
    }
}

/// The place of a generator, which takes one if it may. The sequence is locked.
pub fn of_entry(entry: &Entry, key: Key, shared: &Shared) -> Result<&'static Tenant, Error> {
    // Whoever has lost the privilege keeps what he has until the server stops.
    if let Some(tenant) = shared.tenant(key) {
        return Ok(tenant);
    }
    check(entry)?;
    let name = entry.name();
    let database = catalog::database_name();
    let taken = shared.take_place(key, &format!("{name} of database \"{database}\""));
    taken.ok_or_else(|| error::tenants::no_place(&name, guc::queue_places()))
}

/// Whether a generator may lease worker IDs of its own. The sequence is locked.
pub fn check(entry: &Entry) -> Result<(), Error> {
    let name = entry.name();
    if guc::registry().is_empty() || guc::queue_pool().is_empty() {
        return Err(error::tenants::no_pool(&name, guc::registry().is_empty()));
    }
    let owner = catalog::owner_of(entry.relation())
        .ok_or_else(|| error::no_such_relation(entry.relation()))?;
    if !has_privilege(owner) {
        let role = catalog::role_name(owner);
        return Err(error::tenants::not_allowed(&name, &role));
    }
    Ok(())
}

/// The worker ID of a generator, if it has one now.
pub fn worker_of(shared: &Shared, key: Key) -> Option<WorkerId> {
    shared.tenant(key)?.generation().worker()
}

/// The least privilege to lease: SET on the setting that names the pool.
pub const SETTING: &std::ffi::CStr = c"snowflake_id.queue_pool";

/// Whether a role may set the setting. Superusers may.
pub fn has_privilege(role: pg_sys::Oid) -> bool {
    // 32 bits in 15, 64 since.
    #[allow(clippy::useless_conversion)]
    let mode = pg_sys::AclMode::from(pg_sys::ACL_SET);
    // SAFETY: looks up the catalogs; a NUL-terminated name.
    let result = unsafe { pg_sys::pg_parameter_aclcheck(SETTING.as_ptr(), role, mode) };
    result == pg_sys::AclResult::ACLCHECK_OK
}
