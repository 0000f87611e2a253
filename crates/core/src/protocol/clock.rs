//! The generator's clock: it never moves back, and does not stay ahead.
//!
//! Two clocks of the operating system go in. The **wall clock** is what people
//! mean by time, and may be stepped by anyone. The **boot clock** counts
//! nanoseconds since boot, suspended time included; nobody can step it.
//!
//! ```text
//!   true line    boot     + offset      where the wall clock was last seen
//!   slewed line  boot / 2 + line        half speed, from where this clock was
//! ```
//!
//! With `on_rollback=continue` the clock is the later of the two lines, and the
//! wall clock is read by reservations only. A forward step moves the true line up,
//! and with it the clock, at once. A backward step by L moves the true line down;
//! the slewed line then carries the clock on from where it was at half speed, until
//! 2 L later the true line has caught up. A start ahead of the wall clock (a stored
//! mark, the gap after a promotion) is the same picture.
//!
//! The other policies **watch** the wall clock: they read it for each ID, and the
//! clock is the later of the wall clock and the slewed line. For them only a start
//! is ahead, so that the slewed line ends once the wall clock has met it. A
//! **rollback** is a reading in an earlier millisecond than `latest`, a reading by
//! which an ID was issued. It is never told from the cursor, which may be ahead for
//! other reasons.
//!
//! # Shared fields
//!
//! | field | holds | rule |
//! |---|---|---|
//! | `offset` | wall minus boot clock (nanoseconds) when the wall clock was last seen; for `continue` | written by one process at a time, which holds the clock lock; stored with Release after `line` was raised |
//! | `line` | the slewed line (nanoseconds); `i64::MIN`: there is none | raised by an atomic maximum. For a watching policy also removed, by compare-and-swap, once the wall clock has met it: a later rollback does not bring it back |
//! | `latest` | the latest reading by which an ID was issued, or a start was made, or the line was met (Unix milliseconds); for watching policies | raised by issuers after they have moved the cursor, by compare-and-swap from the value that they loaded before: if it has changed, their raise is dropped. Raised under the reservation lock for the other two reasons. Set back under the reservation lock when a rollback has been dealt with, or by a superuser who accepts it |
//! | `counted` | the value of `latest` from which a rollback was counted last | a hint for statistics, Relaxed |
//!
//! Readers load `offset` (Acquire) before `line`. So a reader that sees a lowered
//! true line also sees the slewed line that was raised for it, and reads no time
//! before one that was read earlier. The other mix, an old true line with a new
//! slewed one, gives at most the time that the clock showed before the change.
//! `latest` is loaded (Acquire) before the wall clock is read: the other way round,
//! another core's later reading would look like a rollback. Nothing about uniqueness
//! hangs on these fields: the cursor, the bound and the clock history see to that.

use crate::id::{BootNanos, Millis, NANOS_PER_MILLI, Nanos, UnixMillis, UnixNanos};
use crate::sync::AtomicI64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Both clocks, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Reading {
    pub boot: BootNanos,
    pub wall: UnixNanos,
}

impl Reading {
    /// Wall clock minus boot clock: constant except for steps.
    pub const fn offset(self) -> Nanos {
        Nanos::new(self.wall.get().saturating_sub(self.boot.get()))
    }

    /// How far the wall clock was stepped since an earlier reading: negative for a
    /// rollback, zero if it just ran on, or was corrected too gently to matter.
    pub fn stepped_since(self, earlier: Self) -> Millis {
        let stepped = self.offset().get().saturating_sub(earlier.offset().get());
        let drift = self.boot.since(earlier.boot).get() / DRIFT;
        if stepped.saturating_abs() < drift.max(STEP_NANOS_MIN) {
            return Millis::ZERO;
        }
        Nanos::new(stepped).millis()
    }

    /// How far the wall clock has jumped since this offset was trusted: negative for a
    /// rollback.
    pub const fn jumped_from(self, trusted: Nanos) -> Millis {
        Nanos::new(self.offset().get().saturating_sub(trusted.get())).millis()
    }
}

/// Differences below this are the noise of two clock readings and the small corrections
/// of time synchronization.
const STEP_NANOS_MIN: i64 = 10 * NANOS_PER_MILLI;

/// A difference below a thousandth of the time that passed is drift: kernels steer a
/// clock by half of that.
const DRIFT: i64 = 1000;

/// Stands for "no line" and "no reading".
const NONE: i64 = i64::MIN;

#[derive(Debug)]
#[repr(C)]
pub struct Clock {
    offset: AtomicI64,
    line: AtomicI64,
    latest: AtomicI64,
    counted: AtomicI64,
}

/// The slewed line, and the time that it shows.
#[derive(Clone, Copy)]
pub struct ReadingLine {
    raw: i64,
    pub(crate) at: UnixNanos,
}

impl Clock {
    /// A clock that agrees with the wall clock and has seen nothing.
    pub fn new(reading: Reading) -> Self {
        let none = || AtomicI64::new(NONE);
        Self {
            offset: AtomicI64::new(reading.offset().get()),
            line: none(),
            latest: none(),
            counted: none(),
        }
    }

    /// Forgets the past and agrees with the wall clock. Only for a cursor that
    /// nobody uses.
    pub fn reset(&self, reading: Reading) {
        for field in [&self.line, &self.latest, &self.counted] {
            field.store(NONE, Relaxed);
        }
        self.offset.store(reading.offset().get(), Release);
    }

    /// The time of a generator that does not watch the wall clock.
    #[inline]
    pub fn now(&self, boot: BootNanos) -> UnixNanos {
        // Acquire pairs with the Release in anchor(), see the head of the file.
        let offset = self.offset.load(Acquire);
        let line = self.line.load(Relaxed);
        let true_line = boot.get().saturating_add(offset);
        let slewed_line = boot.half().saturating_add(line);
        UnixNanos::new(true_line.max(slewed_line))
    }

    /// The time of a generator that watches the wall clock. `boot` is read only
    /// if there is a line.
    pub fn watched(&self, wall: UnixNanos, boot: impl FnOnce() -> BootNanos) -> UnixNanos {
        self.line(boot).map_or(wall, |line| line.at.max(wall))
    }

    pub fn line(&self, boot: impl FnOnce() -> BootNanos) -> Option<ReadingLine> {
        let raw = self.line.load(Relaxed);
        (raw != NONE).then(|| ReadingLine {
            raw,
            at: UnixNanos::new(boot().half().saturating_add(raw)),
        })
    }

    /// Follows the wall clock: forward at once, backward by slewing. Holders of the
    /// clock lock only.
    pub fn anchor(&self, reading: Reading) {
        self.lead_to(reading.boot, self.now(reading.boot).max(reading.wall));
        self.offset.store(reading.offset().get(), Release);
    }

    /// Makes the clock show at least `at` from now on, and continue at half speed.
    pub fn lead_to(&self, boot: BootNanos, at: UnixNanos) {
        let line = at.get().saturating_sub(boot.half());
        self.line.fetch_max(line, AcqRel);
    }

    pub fn latest(&self) -> UnixMillis {
        UnixMillis::new(self.latest.load(Acquire))
    }

    /// How far the wall clock is behind an earlier reading.
    pub fn rollback(&self, wall: UnixNanos) -> Option<Nanos> {
        rollback(self.latest(), wall)
    }

    /// Drops all earlier readings: a rollback has been dealt with, or somebody has
    /// accepted it.
    pub fn believe(&self, wall: UnixNanos) {
        // A swap because of the model checker: it lets a raise that comes after a plain
        // store act as if it had come before.
        let _ = self.latest.swap(wall.millis().get(), AcqRel);
    }

    /// IDs are about to be issued from this reading, though none has been yet. Without
    /// this, a clock that is set back before the first ID would be behind no reading,
    /// and a caller would wait for it as for the next tick. Holders of the reservation
    /// lock only.
    pub fn start_at(&self, wall: UnixNanos) {
        self.latest.fetch_max(wall.millis().get(), AcqRel);
    }

    /// An ID was issued by a reading, and `latest` was loaded before. If another issuer
    /// or a reserver has changed `latest` since, their value stays.
    pub fn saw(&self, latest: UnixMillis, wall: UnixNanos) {
        let at = wall.millis();
        if at > latest {
            let (latest, at) = (latest.get(), at.get());
            let _ = self.latest.compare_exchange(latest, at, AcqRel, Relaxed);
        }
    }

    /// Ends a line that the wall clock has met, so that the boot clock is no longer
    /// read. A line that was raised meanwhile stays.
    pub fn end_line(&self, line: ReadingLine, wall: UnixNanos) {
        if line.at <= wall {
            let _ = self.line.compare_exchange(line.raw, NONE, AcqRel, Relaxed);
        }
    }

    /// As [`Self::end_line`], for a reserver. From then on, a clock behind this reading
    /// is a rollback; until then, the line held the clock up. Holders of the
    /// reservation lock only.
    pub fn end_met_line(&self, reading: Reading) {
        if let Some(line) = self.line(|| reading.boot)
            && line.at <= reading.wall
        {
            self.start_at(reading.wall);
            self.end_line(line, reading.wall);
        }
    }

    /// Whether the rollback that is seen now is a new one; from now on it counts as
    /// seen.
    pub fn is_new_rollback(&self) -> bool {
        let latest = self.latest.load(Relaxed);
        self.counted.swap(latest, Relaxed) != latest
    }
}

/// How far the wall clock is behind the millisecond of an earlier reading.
pub fn rollback(latest: UnixMillis, wall: UnixNanos) -> Option<Nanos> {
    (wall.millis() < latest).then(|| latest.nanos().since(wall))
}

#[cfg(test)]
#[path = "../tests/copy_clock.rs"]
mod copy;

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
        // The clock does not return to an earlier lead.
        clock.lead_to(BootNanos::new(20 * SEC), UnixNanos::new(SEC));
        assert_eq!(clock.now(BootNanos::new(21 * SEC)).get(), 21 * SEC);
    }

    #[test]
    fn a_step_is_told_from_drift() {
        let ms = NANOS_PER_MILLI;
        let hour = 3600 * SEC;
        let earlier = at(0, 100 * SEC);
        let stepped = |passed, by: i64| at(passed, 100 * SEC + passed + by).stepped_since(earlier);
        let stepped = |passed, by| stepped(passed, by).get();
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
    fn a_line_leads_at_half_speed_until_it_is_met() {
        let (wall, boot) = (
            |millis: i64| UnixNanos::new(millis * NANOS_PER_MILLI),
            |millis: i64| BootNanos::new(millis * NANOS_PER_MILLI),
        );
        let clock = Clock::new(at(0, 0));
        // The boot clock is not read without need.
        assert_eq!(clock.watched(wall(7), || unreachable!()), wall(7));
        clock.lead_to(boot(100), wall(20));
        assert_eq!(clock.watched(wall(10), || boot(100)), wall(20));
        assert_eq!(clock.watched(wall(14), || boot(104)), wall(22));
        // The line only moves forward.
        clock.lead_to(boot(104), wall(15));
        assert_eq!(clock.watched(wall(14), || boot(104)), wall(22));
        clock.lead_to(boot(104), wall(23));
        assert_eq!(clock.watched(wall(14), || boot(104)), wall(23));
        // The line is not met at first, and met 2 * 9 ms later.
        let met = |boot, wall| clock.end_met_line(Reading { boot, wall });
        met(boot(121), wall(31));
        assert_eq!(clock.watched(wall(0), || boot(122)), wall(32));
        assert_eq!(clock.rollback(wall(0)), None);
        met(boot(122), wall(32));
        assert_eq!(clock.watched(wall(32), || unreachable!()), wall(32));
        // From now on that reading counts, as the line did before.
        assert_eq!(clock.rollback(wall(31)), Some(Nanos::new(NANOS_PER_MILLI)));
    }

    #[test]
    fn before_1970_is_a_millisecond_too() {
        assert_eq!(UnixNanos::new(-1).millis().get(), -1);
        assert_eq!(UnixNanos::new(-1_000_000).millis().get(), -1);
        assert_eq!(UnixNanos::new(999_999).millis().get(), 0);
    }

    proptest! {
        /// Whatever the wall clock does, this clock never goes back, is never behind
        /// the wall clock it has seen, and loses any lead.
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
            let reader = thread::spawn(move || {
                let first = clock.now(BootNanos::new(1000));
                (first, clock.now(BootNanos::new(1000)))
            });
            let (first, second) = reader.join().unwrap();
            writer.join().unwrap();
            assert_eq!((first.get(), second.get()), (9000, 9000));
        });
    }
}
