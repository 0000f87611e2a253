//! Policies that watch the wall clock: `on_rollback` is `wait`, `error`,
//! `next_clock` or `next_worker`.
//!
//! Their generators read the wall clock for each ID, and what it shows is the time
//! of the ID. A **rollback** is a reading in an earlier millisecond than one before;
//! it is never told from the word, which may be ahead for other reasons. Only a
//! start (at the mark, or after a failover gap) may be ahead of the wall clock: such
//! a generator follows a line that runs at half speed until the wall clock meets it,
//! as with `continue`.
//!
//! # Shared fields
//!
//! | field | holds | rule |
//! |---|---|---|
//! | `latest` | the latest reading by which an ID was issued (Unix milliseconds) | raised by issuers after they have moved the word, by compare-and-swap from the value they had loaded first: if somebody else has changed it, theirs is dropped. Set back when a rollback has been dealt with, under the reservation lock or by a superuser who accepts it. A raise that comes late finds another value and is dropped, too |
//! | `lead` | boot clock / 2 plus this is the line above (nanoseconds); `i64::MIN`: there is none | raised by an atomic maximum; removed by compare-and-swap once the wall clock has met it, by whoever issues an ID then: a rollback after that does not bring it back |
//! | `counted` | the value of `latest` from which a rollback was counted last | a hint for statistics |
//!
//! `latest` is loaded (Acquire) before the wall clock is read, for the reason given
//! in [`super::generator`]: the other way round, another core's later reading would
//! look like a rollback. Nothing about uniqueness hangs on these fields: only the
//! word, the bound and the account do that.

use super::clock::{BootNanos, UnixNanos};
use super::generator::{Bounds, Clocks, Generator, Step, Word};
use super::layout::{Position, Tick, UnixMillis};
use super::policy::Policy;
use super::sync::{AtomicI64, Ordering};

/// What a generator that watches the wall clock knows of it.
#[derive(Debug)]
#[repr(C)]
pub struct Watch {
    latest: AtomicI64,
    lead: AtomicI64,
    counted: AtomicI64,
}

const NEVER: i64 = i64::MIN;

/// A lead, and what it shows.
#[derive(Clone, Copy)]
struct Line {
    lead: i64,
    at: UnixNanos,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            latest: AtomicI64::new(NEVER),
            lead: AtomicI64::new(NEVER),
            counted: AtomicI64::new(NEVER),
        }
    }
}

impl Watch {
    /// Forgets everything. Only where nobody issues.
    pub fn reset(&self) {
        self.latest.store(NEVER, Ordering::Relaxed);
        self.lead.store(NEVER, Ordering::Relaxed);
        self.counted.store(NEVER, Ordering::Relaxed);
    }

    /// The latest reading by which an ID was issued.
    #[must_use]
    pub fn latest(&self) -> UnixMillis {
        UnixMillis::new(self.latest.load(Ordering::Acquire))
    }

    /// The generator's clock. `boot` is read only if it leads.
    #[must_use]
    pub fn now(&self, wall: UnixNanos, boot: impl FnOnce() -> BootNanos) -> UnixNanos {
        self.line(boot).map_or(wall, |line| line.at.max(wall))
    }

    fn line(&self, boot: impl FnOnce() -> BootNanos) -> Option<Line> {
        let lead = self.lead.load(Ordering::Relaxed);
        (lead != NEVER).then(|| Line {
            lead,
            at: UnixNanos::new((boot().get() >> 1).saturating_add(lead)),
        })
    }

    /// By how many nanoseconds the wall clock is behind an earlier reading.
    #[must_use]
    pub fn behind(&self, wall: UnixNanos) -> Option<i64> {
        let latest = self.latest();
        if wall.millis() >= latest {
            return None;
        }
        Some(
            UnixNanos::from_millis(latest)
                .get()
                .saturating_sub(wall.get()),
        )
    }

    /// A rollback has been dealt with: what was read before does not count any
    /// more. Holders of the reservation lock only.
    pub fn believe(&self, wall: UnixNanos) {
        self.latest.store(wall.millis().get(), Ordering::Release);
    }

    /// Shows at least `at` from now on, at half speed.
    pub fn lead_to(&self, boot: BootNanos, at: UnixNanos) {
        let lead = at.get().saturating_sub(boot.get() >> 1);
        self.lead.fetch_max(lead, Ordering::AcqRel);
    }

    /// Does without the boot clock again, if the wall clock has met the line.
    pub fn end_lead(&self, boot: BootNanos, wall: UnixNanos) {
        if let Some(line) = self.line(|| boot) {
            self.end(line, wall);
        }
    }

    fn end(&self, line: Line, wall: UnixNanos) {
        if line.at <= wall {
            // A failure means that it was raised meanwhile.
            let _ =
                self.lead
                    .compare_exchange(line.lead, NEVER, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether the rollback that is seen now was not seen before; from now on it
    /// was.
    pub fn is_new_rollback(&self) -> bool {
        let latest = self.latest.load(Ordering::Relaxed);
        self.counted.swap(latest, Ordering::Relaxed) != latest
    }

    fn saw(&self, before: UnixMillis, wall: UnixMillis) {
        if wall > before {
            // A failure means that another reader or a reserver was faster.
            let _ = self.latest.compare_exchange(
                before.get(),
                wall.get(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}

impl Generator {
    /// As [`Self::decide`], for the policies of this module: what is issued lies in
    /// one tick, and is fewer than `count` where that has no room for more.
    #[must_use]
    pub fn decide_watching(
        &self,
        word: Position,
        reserved: Position,
        clocks: Clocks,
        now: i64,
        count: u64,
    ) -> Step {
        let layout = self.layout;
        let last = layout.last_tick();
        let now = Tick::new(now.max(0).cast_unsigned());
        // Whether the time is used up or the clock is wrong, the reserver can tell.
        if now >= last {
            return Step::Reserve { through: last };
        }
        let clock = layout.clock_of(word);
        let size = if self.shares_clocks() {
            clocks.together << layout.sequence_bits()
        } else {
            1 << layout.within_bits()
        };
        let mut start = layout.in_clock(0, word).max(self.fresh(now));
        let begin = layout.position_of(layout.tick_of(start));
        if start.get() - begin.get() >= size {
            if self.shares_clocks() && clocks.together < clocks.widest {
                return Step::Widen;
            }
            start = layout.position_of(Tick::new(layout.tick_of(start).get() + 1));
        }
        let tick = layout.tick_of(start);
        if tick >= last {
            return Step::TimeUsedUp;
        }
        let window = now.get() + self.policy.max_borrow_ticks;
        if tick.get() > window {
            return Step::Wait {
                ticks: tick.get() - window,
            };
        }
        let full = layout.position_of(tick).get() + size;
        let end = Position::new((start.get() + count).min(full));
        if layout.clock_of(reserved) != clock || end > layout.in_clock(0, reserved) {
            return Step::Reserve { through: tick };
        }
        Step::Issue {
            start: layout.in_clock(clock, start),
            end: layout.in_clock(clock, end),
            borrowed: if tick > now {
                end.get() - start.get()
            } else {
                0
            },
        }
    }
}

impl Word {
    /// As [`Self::issue`], for the policies of this module. `wall` and `boot` read
    /// the clocks.
    pub fn issue_watching(
        &self,
        generator: &Generator,
        bounds: &Bounds,
        watch: &Watch,
        count: u64,
        mut wall: impl FnMut() -> UnixNanos,
        mut boot: impl FnMut() -> BootNanos,
    ) -> Step {
        loop {
            // Acquire keeps what follows behind this load.
            let word = self.0.load(Ordering::Acquire);
            let latest = watch.latest();
            let wall = wall();
            if wall.millis() < latest {
                let by = UnixNanos::from_millis(latest).get();
                return Step::RolledBack {
                    by: by.saturating_sub(wall.get()),
                };
            }
            let line = watch.line(&mut boot);
            let now = line.map_or(wall, |line| line.at.max(wall)).millis();
            let step = generator.decide_watching(
                Position::new(word),
                bounds.reserved(),
                bounds.clocks(),
                generator.layout.tick_number(now),
                count,
            );
            let Step::Issue { end, .. } = step else {
                return step;
            };
            // As in issue().
            if self
                .0
                .compare_exchange(word, end.get(), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                watch.saw(latest, wall.millis());
                if let Some(line) = line {
                    watch.end(line, wall);
                }
                return step;
            }
            std::hint::spin_loop();
        }
    }
}

/// How long one call has waited, and whether it may go on waiting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// Since when it waits for a clock that was set back.
    since: Option<BootNanos>,
    /// What the clock showed when it was last seen to move.
    moved: Option<(UnixNanos, BootNanos)>,
}

const NANOS_PER_MILLI: i64 = 1_000_000;

/// What two readings of two clocks may differ by, if the wait goes as expected.
const READING_NANOS: i64 = NANOS_PER_MILLI;

/// A clock that has not moved for so long stands still: a call that waits for it
/// would wait for ever.
pub const STANDSTILL_MILLIS: i64 = 1000;

impl Patience {
    /// Whether to wait for a clock that is `by` nanoseconds behind, rather than
    /// refuse: if the wait can be over within `max_wait`.
    pub fn awaits(&mut self, policy: &Policy, by: i64, boot: BootNanos) -> bool {
        let limit = policy.max_wait_millis.saturating_mul(NANOS_PER_MILLI);
        let may = match self.since {
            // Two clocks have been read more than once by now.
            Some(since) => boot.nanos_after(since).saturating_add(by) <= limit + READING_NANOS,
            None => by <= limit,
        };
        self.since.get_or_insert(boot);
        policy.on_rollback.waits() && may
    }

    /// Whether a call that waits for the next tick of this clock would wait for
    /// ever.
    pub fn stands_still(&mut self, clock: UnixNanos, boot: BootNanos) -> bool {
        match self.moved {
            // What was set back has moved, too.
            Some((before, since)) if clock == before => {
                boot.nanos_after(since) >= STANDSTILL_MILLIS * NANOS_PER_MILLI
            }
            _ => {
                self.moved = Some((clock, boot));
                false
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::snowflake::policy::OnRollback;

    const SEC: i64 = 1_000_000_000;
    const WAITS: Policy = Policy {
        on_rollback: OnRollback::Wait,
        max_wait_millis: 5000,
        ..Policy::DEFAULT
    };

    /// Seconds since the default epoch.
    fn wall(at: f64) -> UnixNanos {
        let epoch = UnixNanos::from_millis(Generator::DEFAULT.layout.epoch()).get();
        #[allow(clippy::cast_possible_truncation)]
        UnixNanos::new(epoch + (at * 1e9) as i64)
    }

    #[test]
    fn a_lead_that_was_met_does_not_come_back_with_a_rollback() {
        let generator = Generator {
            policy: Policy {
                on_rollback: OnRollback::Error,
                ..Policy::DEFAULT
            },
            ..Generator::DEFAULT
        };
        let (word, bounds, watch) = (Word::default(), Bounds::default(), Watch::default());
        let layout = generator.layout;
        bounds.publish(layout.position_of(Tick::new(9_000_000)), Position::ZERO);
        let tick = |boot: i64, at: f64| {
            let step = word.issue_watching(
                &generator,
                &bounds,
                &watch,
                1,
                || wall(at),
                || BootNanos::new(boot * SEC),
            );
            match step {
                Step::Issue { start, .. } => layout.tick_of(start).get(),
                other => panic!("{other:?}"),
            }
        };
        // It starts 10 s ahead, at half speed, and is met after 20.
        watch.lead_to(BootNanos::new(0), wall(1010.0));
        assert_eq!(tick(4, 1004.0), 1_012_000);
        assert_eq!(tick(22, 1022.0), 1_022_000);
        // The clock is set back to where it was accepted: no line is ahead of it.
        watch.believe(wall(1000.0));
        word.reset();
        assert_eq!(tick(23, 1001.0), 1_001_000);
    }

    #[test]
    fn a_clock_that_was_waited_for_does_not_stand_still() {
        let boot = |at: f64| {
            #[allow(clippy::cast_possible_truncation)]
            BootNanos::new((at * 1e9) as i64)
        };
        let mut patience = Patience::default();
        // Waits for the next tick, which is a long one.
        assert!(!patience.stands_still(wall(100.9), boot(0.0)));
        // It is set back by 3 s, and waited for: until 100.0, when the last ID was.
        assert!(patience.awaits(&WAITS, 21 * SEC / 10, boot(0.1)));
        assert!(patience.awaits(&WAITS, 1, boot(2.2)));
        // The tick has not passed yet.
        assert!(!patience.stands_still(wall(100.0), boot(2.2)));
        assert!(!patience.stands_still(wall(100.1), boot(2.3)));
        assert!(!patience.stands_still(wall(100.1), boot(3.2)));
        assert!(patience.stands_still(wall(100.1), boot(3.3)));
    }
}
