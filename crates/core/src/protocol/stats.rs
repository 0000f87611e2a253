//! Statistics: what a generator has done since the server started.
//!
//! A session counts in [`Pending`], cells of its own that cost the path of an
//! ID two additions. It adds them to the slot's [`Stats`] when its transaction
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

use crate::id::{BootNanos, Millis, Tick};
use crate::sync::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The number of IDs after which a long statement adds up: so large that adding costs
/// nothing, and so small that a busy session is seen to move.
const FLUSH_IDS: u64 = 4096;

/// Makes the types below from the names of their counters: those of sessions, and
/// those that only the slot has.
macro_rules! counters {
    ($($own:ident)*; $($shared:ident)*) => {
        /// The counters of one generator, in its slot.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct Stats {
            $($own: AtomicU64,)*
            $($shared: AtomicU64,)*
            /// The tick of the last ID, plus one; 0 if there was none. Not reset.
            after_last_tick: AtomicU64,
            /// Microseconds, as a `timestamptz`.
            reset_at: AtomicI64,
        }

        /// The numbers of one moment. Durations are in nanoseconds unless they say so.
        #[derive(Clone, Copy, Debug)]
        pub struct Counts {
            $(pub $own: u64,)*
            $(pub $shared: u64,)*
            pub last_tick: Option<Tick>,
            pub reset_at: i64,
        }

        /// The counters of one session that are not added up yet.
        #[derive(Default)]
        pub struct Pending {
            $($own: Cell<u64>,)*
        }

        impl Stats {
            /// The counters of a generator that has done nothing. `at` is a
            /// `timestamptz`.
            pub fn new(at: i64) -> Self {
                let reset_at = AtomicI64::new(at);
                Self { reset_at, ..Self::default() }
            }

            /// Counts from zero again. What sessions add at this moment may be lost or
            /// may stay.
            pub fn reset(&self, at: i64) {
                $(self.$own.store(0, Relaxed);)*
                $(self.$shared.store(0, Relaxed);)*
                self.reset_at.store(at, Relaxed);
            }

            pub fn read(&self) -> Counts {
                let after_last_tick = self.after_last_tick.load(Relaxed);
                Counts {
                    $($own: self.$own.load(Relaxed),)*
                    $($shared: self.$shared.load(Relaxed),)*
                    last_tick: after_last_tick.checked_sub(1).map(Tick::new),
                    reset_at: self.reset_at.load(Relaxed),
                }
            }
        }

        impl Pending {
            /// Adds everything to the shared counters. `last` is the tick of the last
            /// ID of this session. The slot is pinned.
            #[cold]
            pub fn flush(&self, stats: &Stats, last: Option<Tick>) {
                for (mine, shared) in [$((&self.$own, &stats.$own)),*] {
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
    };
}

counters! {
    issued borrowed batches waits wait_nanos reservations reservation_nanos;
    rollbacks largest_rollback_millis refusals
}

impl Stats {
    /// Ticks have another meaning by now.
    pub fn forget_last_tick(&self) {
        self.after_last_tick.store(0, Relaxed);
    }

    pub fn count_rollback(&self, by: Millis) {
        self.rollbacks.fetch_add(1, Relaxed);
        let by = u64::try_from(by.get()).unwrap_or(0);
        self.largest_rollback_millis.fetch_max(by, Relaxed);
    }

    /// A call got no ID because of the clock or the end of the layout's time.
    pub fn count_refusal(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }
}

fn add(counter: &Cell<u64>, count: u64) {
    counter.update(|before| before.wrapping_add(count));
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

    pub fn count_batch(&self) {
        add(&self.batches, 1);
    }

    pub fn count_wait(&self) {
        add(&self.waits, 1);
    }

    /// Adds to the time waited, nap by nap: a cancelled call has waited, too.
    pub fn add_wait(&self, from: BootNanos, to: BootNanos) {
        add(&self.wait_nanos, nanos_between(from, to));
    }

    pub fn count_reservation(&self, from: BootNanos, to: BootNanos) {
        add(&self.reservations, 1);
        add(&self.reservation_nanos, nanos_between(from, to));
    }
}
