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

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::lease_state::{LeaseState, Obstacle, Short};
use snowflake_core::clock::Reading;
use snowflake_core::id::{Millis, UnixMillis};
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
    held: UnsafeCell<TenantLease>,
}

/// What is under the clock lock.
pub struct TenantLease {
    pub identity: Identity,
    pub state: LeaseState,
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
            held: UnsafeCell::new(TenantLease {
                identity: Identity::NONE,
                state: LeaseState::default(),
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

    /// How far the generator may lead the clock, if its pool limits that.
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

    /// The keeper knows of a need up to this instant.
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

    /// What is under the clock lock.
    ///
    /// # Safety
    /// The caller has that lock.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn held(&self) -> &mut TenantLease {
        // SAFETY: the lock excludes all others who look at it.
        unsafe { &mut *self.held.get() }
    }

    /// Copies of this identity, which was changed under the clock lock, for sessions without it.
    pub fn publish(&self, identity: Identity) {
        let most = identity.max_ahead.map_or(-1, Millis::get);
        self.max_ahead.store(most, Ordering::Relaxed);
        let bits = identity.generation.bits();
        self.generation.store(bits, Ordering::Release);
    }

    /// Gives a free place to a generator, under the clock lock, which [`Self::publish`] follows.
    pub fn set_key(&self, key: u64) {
        self.key.store(key, Ordering::Release);
    }
}
