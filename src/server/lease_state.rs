//! The place of a lease in shared memory: what sessions read of it and ask of the keeper,
//! what must outlive the keeper, and what others are shown.
//!
//! The server has one, whether it leases its worker ID or not. All of it is plain data without
//! pointers.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | `generation` | a copy of the generation of the tenure, with the worker ID for which IDs are composed, for sessions that hold no lock; stored with Release under the clock lock, last |
//! | `max_ahead` | a copy of the tenure's limit (milliseconds; -1: none); stored before `generation` |
//! | `needed` | the latest instant for which a caller needs a later bound (milliseconds; the least: none); raised by callers, taken by the keeper |
//! | `known` | the latest such instant that the keeper knows of (the least: none): one that is not later does not wake it again. Stored with Release by the keeper, before it takes `needed` and after, and when a bound has met it; loaded with Acquire by callers, after they have raised `needed`. Callers that still wait tell again each second, so that none is lost if both change at once |
//! | `used` | the generation whose worker ID is used up for the time that the clock shows, 0: none. Stored by sessions of generators with `on_rollback=next_worker`, taken by the keeper |
//! | `state` | the tenure, and what the keeper has here; under the clock lock of [`crate::server::shmem`] |

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use snowflake_core::id::{BootNanos, Millis, UnixMillis, WorkerId};
use snowflake_core::lease::node::KeptNode;
use snowflake_core::lease::{FloorCause, Nonce, RegistryMillis};
use snowflake_core::protocol::clock::Reading;
use snowflake_core::protocol::tenure::{Generation, Tenure};

/// See the head of the file.
#[repr(C)]
pub struct LeaseSlot {
    generation: AtomicU64,
    max_ahead: AtomicI64,
    needed: AtomicI64,
    known: AtomicI64,
    used: AtomicU64,
    state: UnsafeCell<LeaseState>,
}

/// What is under the clock lock.
pub struct LeaseState {
    pub tenure: Tenure,
    /// The generation that the latest grant has made.
    pub granted: Generation,
    /// The node, for a keeper that takes over from one that has ended. `None` if no registry
    /// is asked.
    pub link: Option<KeptLease>,
    pub shown: ShownLease,
    /// What is in the way of another worker ID, after a clock rollback.
    pub blocked: Option<SearchObstacle>,
}

impl LeaseState {
    /// Nothing is known but the tenure, which is in force since that instant.
    pub fn new(tenure: Tenure, since: Option<UnixMillis>) -> Self {
        Self {
            tenure,
            granted: Generation::NONE,
            link: None,
            shown: ShownLease {
                since,
                ..ShownLease::default()
            },
            blocked: None,
        }
    }

    /// Whether the latest grant is in force.
    pub fn is_in_force(&self) -> bool {
        self.granted == self.tenure.generation
    }
}

/// Why the server gets no other worker ID.
#[derive(Clone)]
pub struct SearchObstacle {
    pub obstacle: ShownFailure,
    /// Both clocks then.
    pub reading: Reading,
}

impl SearchObstacle {
    /// Whether it holds for a clock that shows this: not if that was stepped since.
    pub fn holds(&self, now: Reading) -> bool {
        now.stepped_since(self.reading) == Millis::ZERO
    }
}

impl LeaseSlot {
    pub const fn new(state: LeaseState) -> Self {
        Self {
            generation: AtomicU64::new(state.tenure.generation.bits()),
            max_ahead: AtomicI64::new(-1),
            needed: AtomicI64::new(i64::MIN),
            known: AtomicI64::new(i64::MIN),
            used: AtomicU64::new(0),
            state: UnsafeCell::new(state),
        }
    }

    /// The generation of the tenure, with its worker ID.
    #[inline]
    pub fn generation(&self) -> Generation {
        Generation::from_bits(self.generation.load(Ordering::Acquire))
    }

    /// How far a generator may lead the clock, if that is limited. Read after the generation.
    pub fn max_ahead(&self) -> Option<Millis> {
        let most = self.max_ahead.load(Ordering::Relaxed);
        (most >= 0).then_some(Millis::new(most))
    }

    /// A caller needs a bound past this instant. Returns whether the keeper has to be woken.
    #[must_use]
    pub fn need_bound(&self, instant: UnixMillis) -> bool {
        self.needed.fetch_max(instant.get(), Ordering::AcqRel);
        // If the keeper has taken this before, it has said what it knew then.
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

    /// Runs `f` with what is under the clock lock, and stores the copies of the tenure for
    /// sessions without it. Returns also whether somebody may wait for what has changed.
    ///
    /// # Safety
    /// The caller has that lock.
    pub unsafe fn with<T>(&self, f: impl FnOnce(&mut LeaseState) -> T) -> (T, bool) {
        // SAFETY: the lock excludes all others who look at it.
        let state = unsafe { &mut *self.state.get() };
        let before = state.tenure;
        let result = f(state);
        let after = state.tenure;
        if before.generation != after.generation {
            let most = after.max_ahead.map_or(-1, Millis::get);
            self.max_ahead.store(most, Ordering::Relaxed);
            let bits = after.generation.bits();
            self.generation.store(bits, Ordering::Release);
        }
        let is_news = (before.generation, before.bound) != (after.generation, after.bound);
        (result, is_news)
    }
}

/// A node and its registry.
#[derive(Clone)]
pub struct KeptLease {
    /// A hash of the registry's address and the pool: another keeper takes over only if
    /// these are the same.
    pub target: u64,
    /// The incarnation began, by the boot clock.
    pub started: BootNanos,
    pub node: KeptNode,
}

/// What views and errors show.
#[derive(Clone, Default)]
pub struct ShownLease {
    /// The registry without its secrets. Empty without a registry.
    pub registry: Short<200>,
    /// The pool. Empty without a registry.
    pub pool: Short<64>,
    /// The nonce of the lease.
    pub nonce: Option<Nonce>,
    pub counter: u64,
    /// Since when it has its worker ID.
    pub since: Option<UnixMillis>,
    /// Why the floor was ahead of the clock then, if it was.
    pub because: Option<FloorCause>,
    /// When the lease ends, by the registry's clock.
    pub leased_until: Option<RegistryMillis>,
    /// The latest reply, by the server's clock.
    pub last_contact: Option<UnixMillis>,
    /// How far the server's clock was ahead of the registry's then.
    pub clock_ahead: Option<Millis>,
    /// What is in the way.
    pub failure: Option<ShownFailure>,
    /// Why etcd takes no writes, or soon will not: a sentence, or nothing.
    pub grown: Short<200>,
    /// Since when it waits for a worker ID of the registry.
    pub waits_since: Option<BootNanos>,
}

/// Why the registry does not give what is asked for.
#[derive(Clone)]
pub struct ShownFailure {
    pub since: UnixMillis,
    pub began: BootNanos,
    /// The fixed worker ID, if another server holds it.
    pub held: Option<WorkerId>,
    /// The registry cannot be asked. The text may tell its address.
    pub is_unreachable: bool,
    /// The text tells where another server is.
    pub names_server: bool,
    /// A sentence, or several.
    pub text: Short<600>,
    /// Which of several hosts has said so, for those who may see addresses: the same, or nothing.
    pub from: Short<300>,
    /// What helps: the same, or nothing.
    pub remedy: Short<300>,
}

/// A text of at most N bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Short<const N: usize> {
    length: usize,
    bytes: [u8; N],
}

impl<const N: usize> Default for Short<N> {
    fn default() -> Self {
        Self {
            length: 0,
            bytes: [0; N],
        }
    }
}

impl<const N: usize> Short<N> {
    /// The beginning of a text, as far as there is room.
    pub fn new(text: &str) -> Self {
        let mut short = Self::default();
        for char in text.chars() {
            let end = short.length + char.len_utf8();
            let Some(place) = short.bytes.get_mut(short.length..end) else {
                break;
            };
            char.encode_utf8(place);
            short.length = end;
        }
        short
    }

    pub fn get(&self) -> String {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }
}
