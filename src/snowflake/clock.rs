//! The generator's clock: it never moves back, never makes anyone wait, and
//! does not stay ahead.
//!
//! Two clocks of the operating system go in. The **wall clock** is what people
//! mean by time, and may be stepped by anyone. The **boot clock** counts
//! nanoseconds since boot, suspended time included; nobody can step it. The
//! generator's clock is the larger of two lines over the boot clock:
//!
//! ```text
//!   true line    boot     + offset      where the wall clock was last seen
//!   slewed line  boot / 2 + slewed      half speed, from where this clock was
//! ```
//!
//! A forward step moves the true line up, and with it the clock, at once. A
//! backward step by L moves the true line down; the slewed line then carries
//! the clock on from where it was at half speed, until 2 L later the true line
//! has caught up. A start ahead of the wall clock (a stored mark, the gap after
//! a promotion) is the same picture.
//!
//! # Shared fields
//!
//! `offset` and `slewed` are written by one process at a time (the caller of
//! [`Clock::anchor`] and [`Clock::lead_to`] holds a lock) and read by all
//! without one. `slewed` is stored first, `offset` second with Release, and
//! readers load `offset` first with Acquire. So whoever sees a lowered true
//! line also sees the slewed line that was raised for it, and reads no time
//! before one that was read earlier. The other mix, an old true line with a new
//! slewed one, gives at most the time that clock showed before the change.
//! Nothing about uniqueness hangs on this clock: only the word does that.

use super::id::UnixMillis;
use super::sync::{AtomicI64, Ordering};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Nanoseconds since 1970-01-01 00:00:00 UTC by some clock; until 2262.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixNanos(i64);

impl UnixNanos {
    /// From nanoseconds since 1970.
    #[must_use]
    pub const fn new(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From milliseconds; past 2262 the latest instant there is.
    #[must_use]
    pub const fn from_millis(at: UnixMillis) -> Self {
        Self(at.get().saturating_mul(NANOS_PER_MILLI))
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The millisecond that holds this instant.
    #[must_use]
    #[inline]
    pub const fn millis(self) -> UnixMillis {
        UnixMillis::new(self.0.div_euclid(NANOS_PER_MILLI))
    }

    /// How far this is after `earlier`, in milliseconds, rounded towards zero;
    /// negative if before.
    #[must_use]
    pub const fn millis_after(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0) / NANOS_PER_MILLI
    }
}

/// Nanoseconds since the machine was booted, suspended time included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootNanos(i64);

impl BootNanos {
    /// From nanoseconds since boot.
    #[must_use]
    pub const fn new(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// How far this is after `earlier`, in nanoseconds.
    #[must_use]
    pub const fn nanos_after(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    const fn half(self) -> i64 {
        self.0.div_euclid(2)
    }
}

/// Both clocks, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The clock that cannot be stepped.
    pub boot: BootNanos,
    /// The clock on the wall.
    pub wall: UnixNanos,
}

impl Reading {
    /// Wall clock minus boot clock, in nanoseconds: constant but for steps.
    #[must_use]
    pub const fn offset(self) -> i64 {
        self.wall.0.saturating_sub(self.boot.0)
    }

    /// By how many milliseconds the wall clock was stepped since an earlier
    /// reading: negative for a rollback, 0 if it just went on, or was corrected
    /// so gently that nobody needs to know.
    #[must_use]
    pub const fn stepped_since(self, earlier: Self) -> i64 {
        let stepped = self.offset().saturating_sub(earlier.offset());
        let passed = self.boot.0.saturating_sub(earlier.boot.0);
        let drift = passed / DRIFT;
        let gentle = if drift > STEP_NANOS_MIN {
            drift
        } else {
            STEP_NANOS_MIN
        };
        if stepped.saturating_abs() < gentle {
            0
        } else {
            stepped / NANOS_PER_MILLI
        }
    }
}

/// Differences below this are the noise of two clock readings and the small
/// change of time synchronization.
const STEP_NANOS_MIN: i64 = 10 * NANOS_PER_MILLI;

/// Below a thousandth of the time that passed a difference is drift: kernels
/// steer a clock by half of that.
const DRIFT: i64 = 1000;

/// The clock of one word; see the head of this file for the rules.
#[derive(Debug)]
#[repr(C)]
pub struct Clock {
    offset: AtomicI64,
    slewed: AtomicI64,
}

impl Clock {
    /// A clock that agrees with the wall clock.
    #[must_use]
    pub fn new(reading: Reading) -> Self {
        let clock = Self {
            offset: AtomicI64::new(0),
            slewed: AtomicI64::new(0),
        };
        clock.set(reading);
        clock
    }

    /// Forgets the past and agrees with the wall clock. Only for a word that
    /// nobody uses.
    pub fn set(&self, reading: Reading) {
        self.store(
            reading.offset(),
            reading.wall.0.saturating_sub(reading.boot.half()),
        );
    }

    /// The time.
    #[must_use]
    #[inline]
    pub fn now(&self, boot: BootNanos) -> UnixNanos {
        // Acquire pairs with the Release in store(), see the head of the file.
        let offset = self.offset.load(Ordering::Acquire);
        let slewed = self.slewed.load(Ordering::Relaxed);
        UnixNanos(
            boot.0
                .saturating_add(offset)
                .max((boot.0 >> 1).saturating_add(slewed)),
        )
    }

    /// Follows the wall clock: forward at once, backward by slewing.
    /// One caller at a time.
    pub fn anchor(&self, reading: Reading) {
        let now = self.now(reading.boot).0.max(reading.wall.0);
        self.store(reading.offset(), now.saturating_sub(reading.boot.half()));
    }

    /// Shows at least `at` from now on. One caller at a time.
    pub fn lead_to(&self, boot: BootNanos, at: UnixNanos) {
        let slewed = at.0.saturating_sub(boot.half());
        if slewed > self.slewed.load(Ordering::Relaxed) {
            self.slewed.store(slewed, Ordering::Release);
        }
    }

    /// Both fields, to copy a model of a server.
    #[cfg(test)]
    pub fn parts(&self) -> [i64; 2] {
        [&self.offset, &self.slewed].map(|field| field.load(Ordering::Relaxed))
    }

    /// From its fields, in the order of [`Self::parts`].
    #[cfg(test)]
    pub fn from_parts(parts: [i64; 2]) -> Self {
        let [offset, slewed] = parts.map(AtomicI64::new);
        Self { offset, slewed }
    }

    fn store(&self, offset: i64, slewed: i64) {
        self.slewed.store(slewed, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEC: i64 = 1_000_000_000;

    fn at(boot: i64, wall: i64) -> Reading {
        Reading {
            boot: BootNanos::new(boot),
            wall: UnixNanos::new(wall),
        }
    }

    #[test]
    fn follows_a_forward_step_at_once() {
        let clock = Clock::new(at(0, 100 * SEC));
        assert_eq!(clock.now(BootNanos::new(5 * SEC)).get(), 105 * SEC);
        clock.anchor(at(5 * SEC, 200 * SEC));
        assert_eq!(clock.now(BootNanos::new(5 * SEC)).get(), 200 * SEC);
        assert_eq!(clock.now(BootNanos::new(6 * SEC)).get(), 201 * SEC);
    }

    #[test]
    fn an_hour_back_is_an_hour_ahead_and_gone_two_hours_later() {
        let hour = 3600 * SEC;
        let clock = Clock::new(at(0, 10 * hour));
        clock.anchor(at(0, 9 * hour));
        // boot, wall, expected lead
        for (passed, lead) in [(0, hour), (hour, hour / 2), (2 * hour, 0), (3 * hour, 0)] {
            let now = clock.now(BootNanos::new(passed)).get();
            assert_eq!(now - (9 * hour + passed), lead, "after {passed} ns");
        }
    }

    #[test]
    fn starts_at_a_mark_and_lets_the_wall_clock_catch_up() {
        let clock = Clock::new(at(0, 0));
        clock.lead_to(BootNanos::new(0), UnixNanos::new(10 * SEC));
        assert_eq!(clock.now(BootNanos::new(0)).get(), 10 * SEC);
        assert_eq!(clock.now(BootNanos::new(10 * SEC)).get(), 15 * SEC);
        assert_eq!(clock.now(BootNanos::new(20 * SEC)).get(), 20 * SEC);
        // Not back to an earlier lead.
        clock.lead_to(BootNanos::new(20 * SEC), UnixNanos::new(SEC));
        assert_eq!(clock.now(BootNanos::new(21 * SEC)).get(), 21 * SEC);
    }

    #[test]
    fn a_step_is_told_from_drift() {
        let ms = NANOS_PER_MILLI;
        let hour = 3600 * SEC;
        let earlier = at(0, 100 * SEC);
        let stepped = |passed, by| at(passed, 100 * SEC + passed + by).stepped_since(earlier);
        assert_eq!(stepped(SEC, 0), 0);
        assert_eq!(stepped(SEC, 9 * ms), 0);
        assert_eq!(stepped(SEC, -9 * ms), 0);
        assert_eq!(stepped(SEC, -10 * ms), -10);
        assert_eq!(stepped(SEC, 4 * SEC), 4000);
        assert_eq!(stepped(hour, -3 * SEC), 0);
        assert_eq!(stepped(hour, -4 * SEC), -4000);
        assert_eq!(stepped(0, i64::MIN / 2), i64::MIN / 2 / ms);
    }

    #[test]
    fn before_1970_is_a_millisecond_too() {
        assert_eq!(UnixNanos::new(-1).millis().get(), -1);
        assert_eq!(UnixNanos::new(-1_000_000).millis().get(), -1);
        assert_eq!(UnixNanos::new(999_999).millis().get(), 0);
    }

    proptest! {
        /// Whatever the wall clock does, this one never goes back, is never
        /// behind the wall clock it has seen, and loses any lead.
        #[test]
        fn never_back_never_behind_never_stays_ahead(
            steps in prop::collection::vec((0..10 * SEC, -5000 * SEC..5000 * SEC, any::<bool>()), 1..40)
        ) {
            let (mut boot, mut wall, mut last) = (0i64, 1_000_000 * SEC, i64::MIN);
            let clock = Clock::new(at(boot, wall));
            for (passed, step, read) in steps {
                boot += passed;
                wall += passed;
                if read {
                    wall += step;
                    clock.anchor(at(boot, wall));
                }
                let now = clock.now(BootNanos::new(boot)).get();
                prop_assert!(now >= last);
                prop_assert!(now >= wall);
                last = now;
            }
            let lead = last - wall;
            let met = clock.now(BootNanos::new(boot + 2 * lead + 2)).get();
            prop_assert_eq!(met, wall + 2 * lead + 2);
        }
    }
}

/// Every interleaving of a writer and a reader.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn a_reader_of_a_clock_that_is_set_back_reads_no_earlier_time() {
        loom::model(|| {
            let at = |wall| Reading {
                boot: BootNanos::new(1000),
                wall: UnixNanos::new(wall),
            };
            let clock = Arc::new(Clock::new(at(9000)));
            let writer = {
                let clock = clock.clone();
                thread::spawn(move || {
                    clock.anchor(at(5000));
                    clock.anchor(at(4000));
                })
            };
            let first = clock.now(BootNanos::new(1000));
            let second = clock.now(BootNanos::new(1000));
            writer.join().unwrap();
            assert_eq!((first.get(), second.get()), (9000, 9000));
        });
    }
}
