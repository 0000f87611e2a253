//! Statistics: what a generator has done since the server started.
//!
//! A session counts in [`Pending`], cells of its own that cost the path of an
//! ID two additions, and adds them to the slot's [`Stats`] when its transaction
//! ends, when it has to wait or reserve anyway, and every few thousand IDs. So
//! the numbers outlive the sessions that made them, and no shared line is
//! written for each ID.
//!
//! # Shared fields
//!
//! All fields of [`Stats`] are counters or maxima, written by atomic addition or
//! maximum, by anyone, without a lock; a reset stores zeros. Relaxed throughout:
//! no other data depends on them, and a reader may see one addition of a session
//! before another. The slot's pin keeps it this generator's while it is added to.

use std::cell::Cell;

use super::id::{BootNanos, Millis, Tick};
use super::sync::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// IDs after which a long statement adds up: seldom enough to cost nothing, and
/// a busy session is seen to move.
const FLUSH_IDS: u64 = 4096;

/// The counters of one generator, in its slot.
#[derive(Debug)]
#[repr(C)]
pub struct Stats {
    issued: AtomicU64,
    borrowed: AtomicU64,
    batches: AtomicU64,
    waits: AtomicU64,
    wait_nanos: AtomicU64,
    reservations: AtomicU64,
    reservation_nanos: AtomicU64,
    rollbacks: AtomicU64,
    largest_rollback_millis: AtomicI64,
    refusals: AtomicU64,
    /// The tick of the last ID, plus one; 0 if there was none. Not reset.
    after_last_tick: AtomicU64,
    /// Microseconds, as a `timestamptz`.
    reset_at: AtomicI64,
}

/// The numbers of one moment. Durations are in nanoseconds unless they say so.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub issued: u64,
    pub borrowed: u64,
    pub batches: u64,
    pub waits: u64,
    pub wait_nanos: u64,
    pub reservations: u64,
    pub reservation_nanos: u64,
    pub rollbacks: u64,
    pub largest_rollback_millis: i64,
    pub refusals: u64,
    pub last_tick: Option<Tick>,
    pub reset_at: i64,
}

impl Stats {
    /// The counters of a generator that has done nothing. `at` is a `timestamptz`.
    pub fn new(at: i64) -> Self {
        Self {
            issued: AtomicU64::new(0),
            borrowed: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wait_nanos: AtomicU64::new(0),
            reservations: AtomicU64::new(0),
            reservation_nanos: AtomicU64::new(0),
            rollbacks: AtomicU64::new(0),
            largest_rollback_millis: AtomicI64::new(0),
            refusals: AtomicU64::new(0),
            after_last_tick: AtomicU64::new(0),
            reset_at: AtomicI64::new(at),
        }
    }

    /// Counts from zero again. What sessions add at this moment may be lost, or
    /// stay.
    pub fn reset(&self, at: i64) {
        for counter in [
            &self.issued,
            &self.borrowed,
            &self.batches,
            &self.waits,
            &self.wait_nanos,
            &self.reservations,
            &self.reservation_nanos,
            &self.rollbacks,
            &self.refusals,
        ] {
            counter.store(0, Relaxed);
        }
        self.largest_rollback_millis.store(0, Relaxed);
        self.reset_at.store(at, Relaxed);
    }

    /// For a generator that takes over the slot.
    pub fn start_over(&self, at: i64) {
        self.reset(at);
        self.forget_last_tick();
    }

    /// Ticks mean something else by now.
    pub fn forget_last_tick(&self) {
        self.after_last_tick.store(0, Relaxed);
    }

    /// The wall clock was found set back.
    pub fn count_rollback(&self, by: Millis) {
        self.rollbacks.fetch_add(1, Relaxed);
        self.largest_rollback_millis.fetch_max(by.get(), Relaxed);
    }

    /// A call got no ID because of the clock or the end of the layout's time.
    pub fn count_refusal(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }

    /// The numbers as of now.
    pub fn read(&self) -> Counts {
        Counts {
            issued: self.issued.load(Relaxed),
            borrowed: self.borrowed.load(Relaxed),
            batches: self.batches.load(Relaxed),
            waits: self.waits.load(Relaxed),
            wait_nanos: self.wait_nanos.load(Relaxed),
            reservations: self.reservations.load(Relaxed),
            reservation_nanos: self.reservation_nanos.load(Relaxed),
            rollbacks: self.rollbacks.load(Relaxed),
            largest_rollback_millis: self.largest_rollback_millis.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
            last_tick: self
                .after_last_tick
                .load(Relaxed)
                .checked_sub(1)
                .map(Tick::new),
            reset_at: self.reset_at.load(Relaxed),
        }
    }
}

/// One session's, not added up yet.
#[derive(Default)]
pub struct Pending {
    issued: Cell<u64>,
    borrowed: Cell<u64>,
    batches: Cell<u64>,
    waits: Cell<u64>,
    wait_nanos: Cell<u64>,
    reservations: Cell<u64>,
    reservation_nanos: Cell<u64>,
}

fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get().wrapping_add(count));
}

fn nanos_between(from: BootNanos, to: BootNanos) -> u64 {
    u64::try_from(to.since(from).get()).unwrap_or(0)
}

impl Pending {
    /// Counts IDs; true if it is time to add up.
    #[inline]
    pub fn count_issued(&self, count: u64, borrowed: u64) -> bool {
        add(&self.issued, count);
        add(&self.borrowed, borrowed);
        self.issued.get() >= FLUSH_IDS
    }

    /// Counts a call for many IDs.
    pub fn count_batch(&self) {
        add(&self.batches, 1);
    }

    /// Counts a call that has to wait for the clock.
    pub fn count_wait(&self) {
        add(&self.waits, 1);
    }

    /// Adds to the time waited, nap by nap: also what is cancelled has waited.
    pub fn add_wait(&self, from: BootNanos, to: BootNanos) {
        add(&self.wait_nanos, nanos_between(from, to));
    }

    /// Counts a mark that was raised.
    pub fn count_reservation(&self, from: BootNanos, to: BootNanos) {
        add(&self.reservations, 1);
        add(&self.reservation_nanos, nanos_between(from, to));
    }

    /// Adds everything to the shared counters. `last` is the tick of the last
    /// ID of this session. The slot is pinned.
    #[cold]
    pub fn flush(&self, stats: &Stats, last: Option<Tick>) {
        for (mine, shared) in [
            (&self.issued, &stats.issued),
            (&self.borrowed, &stats.borrowed),
            (&self.batches, &stats.batches),
            (&self.waits, &stats.waits),
            (&self.wait_nanos, &stats.wait_nanos),
            (&self.reservations, &stats.reservations),
            (&self.reservation_nanos, &stats.reservation_nanos),
        ] {
            let count = mine.replace(0);
            if count > 0 {
                shared.fetch_add(count, Relaxed);
            }
        }
        if let Some(last) = last {
            stats.after_last_tick.fetch_max(last.get() + 1, Relaxed);
        }
    }
}
