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
//! | `latest` | the latest reading by which an ID was issued, or a start was made, or the line below was met (Unix milliseconds) | raised by issuers after they have moved the word, by compare-and-swap from the value they had loaded first: if somebody else has changed it, theirs is dropped. Raised for the other two under the reservation lock. Set back when a rollback has been dealt with, under the reservation lock or by a superuser who accepts it. A raise that comes late finds another value and is dropped, too |
//! | `lead` | boot clock / 2 plus this is the line above (nanoseconds); `i64::MIN`: there is none | raised by an atomic maximum; removed by compare-and-swap once the wall clock has met it, by whoever issues an ID or reserves then: a rollback after that does not bring it back |
//! | `counted` | the value of `latest` from which a rollback was counted last | a hint for statistics |
//!
//! `latest` is loaded (Acquire) before the wall clock is read, for the reason given
//! in [`super::generator`]: the other way round, another core's later reading would
//! look like a rollback. Nothing about uniqueness hangs on these fields: only the
//! word, the bound and the account do that.

use super::clock::{BootNanos, UnixNanos};
use super::generator::{Bounds, Clocks, Generator, Step, Word};
use super::id::{Position, Tick, UnixMillis};
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

/// By how many nanoseconds the wall clock is behind the millisecond of a reading.
fn behind(latest: UnixMillis, wall: UnixNanos) -> Option<i64> {
    (wall.millis() < latest).then(|| {
        UnixNanos::from_millis(latest)
            .get()
            .saturating_sub(wall.get())
    })
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
        behind(self.latest(), wall)
    }

    /// A rollback has been dealt with, or somebody has accepted it: what was read
    /// before does not count any more.
    pub fn believe(&self, wall: UnixNanos) {
        // A swap, for the model checker: it takes a raise that comes after a plain
        // store for one that may have come before.
        let _ = self.latest.swap(wall.millis().get(), Ordering::AcqRel);
    }

    /// IDs begin to come from this reading, though none has yet. Without it a clock
    /// that is set back before the first one would have nothing to be behind of, and
    /// whoever asks would wait for it as for the next tick. Holders of the
    /// reservation lock only.
    pub fn started_by(&self, wall: UnixNanos) {
        self.latest.fetch_max(wall.millis().get(), Ordering::AcqRel);
    }

    /// Shows at least `at` from now on, at half speed.
    pub fn lead_to(&self, boot: BootNanos, at: UnixNanos) {
        let lead = at.get().saturating_sub(boot.get() >> 1);
        self.lead.fetch_max(lead, Ordering::AcqRel);
    }

    /// Does without the boot clock again, if the wall clock has met the line. Being
    /// behind this reading is a rollback from now on: the line held before. Holders
    /// of the reservation lock only.
    pub fn end_lead(&self, boot: BootNanos, wall: UnixNanos) {
        if let Some(line) = self.line(|| boot)
            && line.at <= wall
        {
            self.started_by(wall);
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

    /// All fields, to copy a model of a server.
    #[cfg(test)]
    pub fn parts(&self) -> [i64; 3] {
        [&self.latest, &self.lead, &self.counted].map(|field| field.load(Ordering::Relaxed))
    }

    /// From its fields, in the order of [`Self::parts`].
    #[cfg(test)]
    pub fn from_parts(parts: [i64; 3]) -> Self {
        let [latest, lead, counted] = parts.map(AtomicI64::new);
        Self {
            latest,
            lead,
            counted,
        }
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
        let mut tick = layout.tick_of(start);
        if start.get() - layout.position_of(tick).get() >= size {
            if self.shares_clocks() && clocks.together < clocks.widest {
                return Step::Widen;
            }
            tick = Tick::new(tick.get() + 1);
            start = layout.position_of(tick);
        }
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
            if let Some(by) = behind(latest, wall) {
                return Step::RolledBack { by };
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
    use super::super::layout::{Layout, Role};
    use super::super::policy::{OnExhausted, OnRollback, SequenceStart};
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = NANOS_PER_MILLI;

    fn wall(millis: i64) -> UnixNanos {
        UnixNanos::new(millis * MS)
    }

    fn boot(millis: i64) -> BootNanos {
        BootNanos::new(millis * MS)
    }

    /// 4 bits of time, 2 of clock, 2 of worker, 2 of sequence; borrows a tick.
    fn generator(on_exhausted: OnExhausted) -> Generator {
        let fields = [
            (Role::Time, 4),
            (Role::Clock, 2),
            (Role::Worker, 2),
            (Role::Sequence, 2),
        ];
        let layout = Layout::new(0, 1, &fields).unwrap();
        Generator {
            layout: match on_exhausted {
                OnExhausted::NextClock => layout.through_clocks().unwrap(),
                _ => layout,
            },
            policy: Policy {
                on_rollback: OnRollback::NextClock,
                on_exhausted,
                max_borrow_ticks: 1,
                sequence_start: SequenceStart::Masked(1),
                ..Policy::DEFAULT
            },
        }
    }

    const ONE: Clocks = Clocks {
        together: 1,
        widest: 1,
    };

    /// A position by its clock, tick, and number within the tick.
    fn at(generator: &Generator, clock: u64, tick: u64, within: u64) -> Position {
        let layout = generator.layout;
        let position = layout.position_of(Tick::new(tick)).get() + within;
        layout.in_clock(clock, Position::new(position))
    }

    /// What is issued, as clock, tick, number and how many; or the step.
    fn decide(
        generator: &Generator,
        word: (u64, u64, u64),
        bound: (u64, u64),
        clocks: Clocks,
        now: i64,
        count: u64,
    ) -> Result<(u64, u64, u64, u64), Step> {
        let layout = generator.layout;
        let step = generator.decide_watching(
            at(generator, word.0, word.1, word.2),
            at(generator, bound.0, bound.1, 0),
            clocks,
            now,
            count,
        );
        let Step::Issue {
            start,
            end,
            borrowed,
        } = step
        else {
            return Err(step);
        };
        let (tick, count) = (layout.tick_of(start), end.get() - start.get());
        let within = layout.within(start);
        let ahead = i64::try_from(tick.get()).unwrap() > now.max(0);
        assert_eq!(borrowed, if ahead { count } else { 0 });
        Ok((layout.clock_of(start), tick.get(), within, count))
    }

    fn reserve(tick: u64) -> Step {
        Step::Reserve {
            through: Tick::new(tick),
        }
    }

    #[test]
    fn what_is_issued_lies_in_one_tick_and_clock() {
        let g = generator(OnExhausted::Wait);
        // A fresh tick begins where its parity says.
        assert_eq!(decide(&g, (0, 0, 0), (0, 9), ONE, 4, 1), Ok((0, 4, 0, 1)));
        assert_eq!(decide(&g, (3, 0, 0), (3, 9), ONE, 5, 9), Ok((3, 5, 1, 3)));
        // The rest of a tick, then the next one as far as it may be borrowed.
        assert_eq!(decide(&g, (2, 4, 3), (2, 9), ONE, 4, 4), Ok((2, 4, 3, 1)));
        assert_eq!(decide(&g, (2, 5, 0), (2, 9), ONE, 4, 4), Ok((2, 5, 0, 4)));
        let wait = |ticks| Err(Step::Wait { ticks });
        assert_eq!(decide(&g, (2, 6, 0), (2, 9), ONE, 4, 1), wait(1));
        assert_eq!(decide(&g, (2, 9, 0), (2, 9), ONE, 4, 1), wait(4));
    }

    #[test]
    fn a_bound_allows_nothing_in_another_clock() {
        let g = generator(OnExhausted::Wait);
        for (word, bound) in [(0, 1), (1, 0), (3, 0), (0, 3)] {
            let step = decide(&g, (word, 4, 0), (bound, 9), ONE, 4, 1);
            assert_eq!(step, Err(reserve(4)), "{word} {bound}");
        }
        assert_eq!(decide(&g, (3, 4, 0), (3, 5), ONE, 4, 1), Ok((3, 4, 0, 1)));
        assert_eq!(decide(&g, (3, 4, 0), (3, 4), ONE, 4, 1), Err(reserve(4)));
        // None at all.
        let step = g.decide_watching(at(&g, 0, 4, 0), Position::ZERO, ONE, 4, 1);
        assert_eq!(step, reserve(4));
    }

    #[test]
    fn the_last_tick_is_never_issued() {
        for on_exhausted in [OnExhausted::Wait, OnExhausted::NextClock] {
            let g = generator(on_exhausted);
            for clock in 0..4 {
                let decide =
                    |tick, within, now| decide(&g, (clock, tick, within), (clock, 15), ONE, now, 9);
                assert_eq!(decide(14, 3, 14), Ok((clock, 14, 3, 1)));
                assert_eq!(decide(15, 0, 14), Err(Step::TimeUsedUp));
                assert_eq!(decide(15, 0, 13), Err(Step::TimeUsedUp));
                // Whether that is the time or a wrong clock, the reserver can tell.
                for now in [15, 16, 1 << 40, i64::MAX] {
                    assert_eq!(decide(4, 0, now), Err(reserve(15)));
                }
                assert_eq!(decide(0, 0, -1), Ok((clock, 0, 0, 4)));
                assert_eq!(decide(0, 0, i64::MIN), Ok((clock, 0, 0, 4)));
            }
        }
    }

    #[test]
    fn a_used_up_tick_goes_on_in_further_clocks() {
        let g = generator(OnExhausted::NextClock);
        let clocks = |together, widest| Clocks { together, widest };
        let decide = |within, clocks| decide(&g, (3, 4, within), (3, 9), clocks, 4, 9);
        assert_eq!(decide(3, clocks(1, 4)), Ok((3, 4, 3, 1)));
        assert_eq!(decide(4, clocks(1, 4)), Err(Step::Widen));
        // By then there is room.
        assert_eq!(decide(4, clocks(2, 4)), Ok((3, 4, 4, 4)));
        assert_eq!(decide(8, clocks(2, 4)), Err(Step::Widen));
        assert_eq!(decide(8, clocks(4, 4)), Ok((3, 4, 8, 8)));
        // No more clocks: the next tick, of which one is borrowed.
        assert_eq!(decide(4, clocks(1, 1)), Ok((3, 5, 0, 4)));
        assert_eq!(decide(8, clocks(2, 2)), Ok((3, 5, 0, 8)));
        // The word after the whole tick is the next one's already.
        assert_eq!(decide(16, clocks(4, 4)), Ok((3, 5, 0, 9)));
        // Clocks were given back, and the word stands where they were used.
        assert_eq!(decide(9, clocks(1, 1)), Ok((3, 5, 0, 4)));
        // In the last tick but one there is no next.
        let step = g.decide_watching(at(&g, 3, 14, 4), at(&g, 3, 15, 0), clocks(1, 1), 14, 1);
        assert_eq!(step, Step::TimeUsedUp);
    }

    #[test]
    fn without_an_account_of_clocks_a_tick_has_them_all() {
        let mut g = generator(OnExhausted::NextClock);
        g.policy.on_rollback = OnRollback::Wait;
        let decide = |within, count| decide(&g, (0, 4, within), (0, 9), ONE, 4, count);
        assert_eq!(decide(0, 20), Ok((0, 4, 0, 16)));
        assert_eq!(decide(15, 20), Ok((0, 4, 15, 1)));
    }

    proptest! {
        /// Whatever the word, the bound and the clock are: what is issued is neither
        /// before the word, nor past the bound, nor ahead, nor of two clocks.
        #[test]
        fn nothing_is_issued_that_may_not_be(
            shared in any::<bool>(),
            (word_clock, word_tick, within) in (0u64..4, 0u64..16, 0u64..16),
            (bound_clock, bound_tick) in (0u64..4, 0u64..16),
            (together, widest) in (1u64..=4, 1u64..=4),
            now in -2i64..18,
            count in 1u64..20,
        ) {
            let g = generator(if shared { OnExhausted::NextClock } else { OnExhausted::Wait });
            let within = if shared { within } else { within % 4 };
            let word = at(&g, word_clock, word_tick, within);
            let bound = at(&g, bound_clock, bound_tick, 0);
            let clocks = Clocks { together, widest };
            let step = g.decide_watching(word, bound, clocks, now, count);
            if let Step::Issue { start, end, .. } = step {
                let layout = g.layout;
                let last = Position::new(end.get() - 1);
                prop_assert!(start >= word && end <= bound && start < end);
                prop_assert!(end.get() - start.get() <= count);
                for position in [start, last] {
                    prop_assert_eq!(layout.clock_of(position), word_clock);
                    prop_assert_eq!(bound_clock, word_clock);
                    let tick = layout.tick_of(position);
                    prop_assert_eq!(tick, layout.tick_of(start));
                    prop_assert!(i64::try_from(tick.get()).unwrap() <= now.max(0) + 1);
                    prop_assert!(tick < layout.last_tick());
                    prop_assert!(!shared || layout.within(position) >> 2 < together);
                }
            }
        }
    }

    /// A generator in the middle of its life: a word, bounds far away, and a watch.
    fn running() -> (Generator, Word, Bounds, Watch) {
        let g = generator(OnExhausted::Wait);
        let bounds = Bounds::default();
        bounds.publish(at(&g, 0, 15, 0), Position::new(u64::MAX));
        (g, Word::default(), bounds, Watch::default())
    }

    #[test]
    fn a_rollback_is_a_reading_before_one_by_which_an_id_was_issued() {
        let (g, word, bounds, watch) = running();
        let issue = |millis: i64, nanos: i64| {
            let wall = UnixNanos::new(millis * MS + nanos);
            word.issue_watching(&g, &bounds, &watch, 1, || wall, || boot(0))
        };
        assert_eq!(watch.behind(wall(0)), None);
        assert!(matches!(issue(5, 900_000), Step::Issue { .. }));
        assert_eq!(watch.latest(), UnixMillis::new(5));
        // In the same millisecond there is none.
        assert!(matches!(issue(5, 0), Step::Issue { .. }));
        assert_eq!(issue(4, 999_999), Step::RolledBack { by: 1 });
        assert_eq!(issue(3, 0), Step::RolledBack { by: 2 * MS });
        assert_eq!(watch.behind(wall(3)), Some(2 * MS));
        assert!(watch.is_new_rollback());
        assert!(!watch.is_new_rollback());
        // The word is ahead for other reasons: no rollback.
        word.raise(at(&g, 0, 9, 0));
        assert_eq!(issue(6, 0), Step::Wait { ticks: 2 });
        watch.believe(wall(3));
        assert_eq!(watch.behind(wall(3)), None);
        assert!(watch.is_new_rollback(), "from another reading");
        watch.reset();
        assert_eq!(watch.behind(wall(0)), None);
    }

    #[test]
    fn a_clock_set_back_right_after_a_start_is_seen() {
        // Before the first ID: it would wait for the tick of the word.
        let (g, word, bounds, watch) = running();
        word.raise(at(&g, 0, 9, 0));
        watch.started_by(wall(9));
        let step = word.issue_watching(&g, &bounds, &watch, 1, || wall(5), || boot(0));
        assert_eq!(step, Step::RolledBack { by: 4 * MS });
        // A reading that is earlier takes nothing back.
        watch.started_by(wall(7));
        assert_eq!(watch.latest(), UnixMillis::new(9));
    }

    #[test]
    fn a_late_raise_is_dropped_when_a_rollback_was_dealt_with() {
        let (g, word, bounds, watch) = running();
        watch.started_by(wall(5));
        let step = word.issue_watching(
            &g,
            &bounds,
            &watch,
            1,
            || {
                // Meanwhile somebody else finds the clock set back, and believes it.
                watch.believe(wall(2));
                wall(6)
            },
            || boot(0),
        );
        assert!(matches!(step, Step::Issue { .. }));
        assert_eq!(watch.latest(), UnixMillis::new(2));
    }

    #[test]
    fn a_line_leads_at_half_speed_until_it_is_met() {
        let watch = Watch::default();
        // Nobody reads the boot clock for nothing.
        assert_eq!(watch.now(wall(7), || unreachable!()), wall(7));
        watch.lead_to(boot(100), wall(20));
        assert_eq!(watch.now(wall(10), || boot(100)), wall(20));
        assert_eq!(watch.now(wall(14), || boot(104)), wall(22));
        // Only ever further.
        watch.lead_to(boot(104), wall(15));
        assert_eq!(watch.now(wall(14), || boot(104)), wall(22));
        watch.lead_to(boot(104), wall(23));
        assert_eq!(watch.now(wall(14), || boot(104)), wall(23));
        // Not met, then met at last: 2 * 9 ms later.
        watch.end_lead(boot(121), wall(31));
        assert_eq!(watch.now(wall(0), || boot(122)), wall(32));
        assert_eq!(watch.behind(wall(0)), None);
        watch.end_lead(boot(122), wall(32));
        assert_eq!(watch.now(wall(32), || unreachable!()), wall(32));
        // From now on that reading counts, as the line did.
        assert_eq!(watch.behind(wall(31)), Some(MS));
    }

    fn policy(on_rollback: OnRollback, max_wait_millis: i64) -> Policy {
        Policy {
            on_rollback,
            max_wait_millis,
            ..Policy::DEFAULT
        }
    }

    #[test]
    fn waits_for_what_can_be_over_in_time() {
        use OnRollback::{Continue, Error, NextClock, NextWorker, Wait};
        let awaits =
            |on_rollback, by| Patience::default().awaits(&policy(on_rollback, 10), by, boot(1000));
        for on_rollback in [Wait, NextClock, NextWorker] {
            assert!(awaits(on_rollback, 1));
            assert!(awaits(on_rollback, 10 * MS));
            assert!(!awaits(on_rollback, 10 * MS + 1));
            assert!(!awaits(on_rollback, i64::MAX));
        }
        assert!(!awaits(Error, 1));
        assert!(!awaits(Continue, 1));
    }

    #[test]
    fn what_was_waited_counts() {
        let policy = policy(OnRollback::Wait, 10);
        let mut patience = Patience::default();
        assert!(patience.awaits(&policy, 9 * MS, boot(1000)));
        // The clock has not moved while 4 ms have passed.
        assert!(!patience.awaits(&policy, 9 * MS, boot(1004)));
        // It has, if not by as much: the two are not read at one moment.
        assert!(patience.awaits(&policy, 7 * MS, boot(1004)));
        assert!(!patience.awaits(&policy, 7 * MS + 1, boot(1004)));
        assert!(patience.awaits(&policy, 0, boot(1011)));
        assert!(!patience.awaits(&policy, 0, boot(1012)));
    }

    proptest! {
        /// However the wall clock moves meanwhile, a call waits no longer than that.
        #[test]
        fn no_wait_is_longer_than_allowed(
            max_wait in 0i64..50,
            naps in prop::collection::vec(
                (50_000i64..500_000, 0i64..100 * MS),
                if cfg!(miri) { 1..20 } else { 1..400 },
            ),
        ) {
            let policy = policy(OnRollback::Wait, max_wait);
            let (mut patience, mut waited) = (Patience::default(), 0);
            for (nap, by) in naps {
                if !patience.awaits(&policy, by, BootNanos::new(waited)) {
                    break;
                }
                waited += nap;
                // The last nap may be too long.
                prop_assert!(waited < (max_wait + 1) * MS + 500_000);
            }
        }
    }

    #[test]
    fn a_clock_that_stands_for_a_second_stands_still() {
        let mut patience = Patience::default();
        assert!(!patience.stands_still(wall(5), boot(0)));
        assert!(!patience.stands_still(wall(5), boot(999)));
        assert!(patience.stands_still(wall(5), boot(1000)));
        // It moves, if only a little: from then on it counts anew.
        assert!(!patience.stands_still(UnixNanos::new(5 * MS + 1), boot(1001)));
        assert!(!patience.stands_still(UnixNanos::new(5 * MS + 1), boot(2000)));
        assert!(patience.stands_still(UnixNanos::new(5 * MS + 1), boot(2001)));
        // One that goes back does not move on.
        assert!(!patience.stands_still(wall(3), boot(2002)));
        assert!(!patience.stands_still(wall(6), boot(9000)));
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
                || seconds(at),
                || BootNanos::new(boot * 1000 * MS),
            );
            match step {
                Step::Issue { start, .. } => layout.tick_of(start).get(),
                other => panic!("{other:?}"),
            }
        };
        // It starts 10 s ahead, at half speed, and is met after 20.
        watch.lead_to(BootNanos::new(0), seconds(1010.0));
        assert_eq!(tick(4, 1004.0), 1_012_000);
        assert_eq!(tick(22, 1022.0), 1_022_000);
        // The clock is set back to where it was accepted: no line is ahead of it.
        watch.believe(seconds(1000.0));
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
        assert!(!patience.stands_still(seconds(100.9), boot(0.0)));
        // It is set back by 3 s, and waited for: until 100.0, when the last ID was.
        assert!(patience.awaits(&policy(OnRollback::Wait, 5000), 2100 * MS, boot(0.1)));
        assert!(patience.awaits(&policy(OnRollback::Wait, 5000), 1, boot(2.2)));
        // The tick has not passed yet.
        assert!(!patience.stands_still(seconds(100.0), boot(2.2)));
        assert!(!patience.stands_still(seconds(100.1), boot(2.3)));
        assert!(!patience.stands_still(seconds(100.1), boot(3.2)));
        assert!(patience.stands_still(seconds(100.1), boot(3.3)));
    }

    /// Seconds since the default epoch.
    fn seconds(at: f64) -> UnixNanos {
        let epoch = UnixNanos::from_millis(Generator::DEFAULT.layout.epoch()).get();
        #[allow(clippy::cast_possible_truncation)]
        UnixNanos::new(epoch + (at * 1e9) as i64)
    }
}

/// Every interleaving of the concurrent steps, as in [`super::generator`].
#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::account::Account;
    use super::super::layout::{Layout, Role};
    use super::super::policy::{OnExhausted, OnRollback, SequenceStart};
    use super::super::reservation::Plan;
    use std::collections::BTreeSet;

    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const MS: i64 = NANOS_PER_MILLI;

    struct Shared {
        generator: Generator,
        word: Word,
        bounds: Bounds,
        watch: Watch,
        /// The wall clock, in milliseconds.
        wall: AtomicI64,
        /// What the disk holds: the bound of the durable mark, and its clock.
        disk: AtomicI64,
    }

    /// A position: clock, tick, number within the tick.
    type Place = (u64, u64, u64);

    /// 4 bits of time, 2 of clock, 2 of sequence; borrows a tick.
    fn generator(on_exhausted: OnExhausted) -> Generator {
        let fields = [
            (Role::Time, 4),
            (Role::Clock, 2),
            (Role::Worker, 2),
            (Role::Sequence, 2),
        ];
        let layout = Layout::new(0, 1, &fields).unwrap();
        Generator {
            layout: match on_exhausted {
                OnExhausted::NextClock => layout.through_clocks().unwrap(),
                _ => layout,
            },
            policy: Policy {
                on_rollback: OnRollback::NextClock,
                on_exhausted,
                max_borrow_ticks: 1,
                sequence_start: SequenceStart::Masked(0),
                ..Policy::DEFAULT
            },
        }
    }

    impl Shared {
        /// One that has just issued up to `word`, at this wall clock.
        fn new(on_exhausted: OnExhausted, word: Place, bound: u64, wall: i64) -> Self {
            let generator = generator(on_exhausted);
            let s = Self {
                generator,
                word: Word::default(),
                bounds: Bounds::default(),
                watch: Watch::default(),
                wall: AtomicI64::new(wall),
                disk: AtomicI64::new(0),
            };
            let bound = s.at((word.0, bound, 0));
            s.disk.store(bound.get().cast_signed(), Ordering::Relaxed);
            s.word.raise(s.at(word));
            s.bounds.publish(bound, Position::new(u64::MAX));
            s.watch.started_by(UnixNanos::new(wall * MS));
            s
        }

        fn at(&self, (clock, tick, within): Place) -> Position {
            let layout = self.generator.layout;
            let position = layout.position_of(Tick::new(tick)).get() + within;
            layout.in_clock(clock, Position::new(position))
        }

        fn place(&self, position: Position) -> Place {
            let layout = self.generator.layout;
            let tick = layout.tick_of(position).get();
            (layout.clock_of(position), tick, layout.within(position))
        }

        fn read_wall(&self) -> UnixNanos {
            UnixNanos::new(self.wall.load(Ordering::Acquire) * MS)
        }

        /// One attempt. What is issued lies below the mark on disk, which says that
        /// this clock is in force, or a later one.
        fn issue(&self) -> Result<Place, Step> {
            let step = self.word.issue_watching(
                &self.generator,
                &self.bounds,
                &self.watch,
                1,
                || self.read_wall(),
                || BootNanos::new(0),
            );
            let Step::Issue { start, .. } = step else {
                return Err(step);
            };
            let disk = self.disk.load(Ordering::Acquire).cast_unsigned();
            let (disk, place) = (self.place(Position::new(disk)), self.place(start));
            assert!(place.1 < disk.1 && place.0 <= disk.0, "{place:?} {disk:?}");
            Ok(place)
        }

        /// What a plan has of these; the rest makes no difference here.
        fn plan(&self, account: Account, word_from: Option<Place>, bound: u64) -> Plan {
            let reserved = self.at((account.clock(), bound, 0));
            Plan {
                mark: UnixMillis::new(0),
                clock_from: UnixNanos::new(0),
                word_from: word_from.map(|place| self.at(place)),
                reserved,
                early: Position::new(u64::MAX),
                window_millis: 1,
                starts: false,
                lead_millis: 0,
                value: reserved.get().cast_signed(),
                account,
                switches: false,
            }
        }

        /// The order of a reservation: mark, then word and account, then bound.
        fn carry_out(&self, plan: &Plan, believes: Option<UnixNanos>) -> Account {
            self.disk.store(plan.value, Ordering::Release);
            let account = self.generator.move_word(&self.word, &self.bounds, plan);
            if let Some(wall) = believes {
                self.watch.believe(wall);
            }
            self.bounds.publish(plan.reserved, plan.early);
            account
        }
    }

    /// All interleavings in which threads are interrupted up to three times: without
    /// a limit, three threads with so many steps take hours. What was issued in any
    /// of them is returned, so that it can be seen that they differ.
    fn explore<const N: usize>(
        f: impl Fn() -> [Result<Place, Step>; N] + Sync + Send + 'static,
    ) -> BTreeSet<Place> {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let mut model = loom::model::Builder::new();
        model.preemption_bound =
            Some(std::env::var("LOOM_MAX_PREEMPTIONS").map_or(3, |text| text.parse().unwrap()));
        let all = seen.clone();
        model.check(move || all.lock().unwrap().extend(f().into_iter().flatten()));
        std::mem::take(&mut *seen.lock().unwrap())
    }

    fn spawn(s: &Arc<Shared>) -> thread::JoinHandle<Result<Place, Step>> {
        let s = s.clone();
        thread::spawn(move || s.issue())
    }

    fn differ(one: Result<Place, Step>, other: Result<Place, Step>) {
        assert!(one.is_err() || one != other, "twice: {one:?}");
    }

    #[test]
    fn two_issuers_and_a_change_of_clocks() {
        let seen = explore(|| {
            // Clock 0 is at tick 5 when the wall clock goes back to 3.
            let s = Arc::new(Shared::new(OnExhausted::Wait, (0, 5, 1), 9, 5));
            let issuers = [spawn(&s), spawn(&s)];
            s.wall.store(3, Ordering::Release);
            let before = Account::FRESH;
            let (now, reached) = (Tick::new(3), Tick::new(6));
            let next = before.switch(now, reached, 4).unwrap();
            let plan = s.plan(next, Some((1, 3, 0)), 9);
            let account = s.carry_out(&plan, Some(s.read_wall()));
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            let [_, _, others_before] = account.parts();
            for (clock, tick, _) in [one, other].into_iter().flatten() {
                // The account knows how far the old clock has come.
                assert!(clock == 1 || tick < others_before, "{tick}: {account:?}");
                // One who saw the clock set back has no ID of the old one.
                assert!(tick != 3 || clock == 1);
            }
            assert_eq!(s.watch.latest(), UnixMillis::new(3));
            assert!(s.place(s.word.position()).0 == 1);
            [one, other]
        });
        assert_eq!(seen, [(0, 5, 1), (0, 5, 2), (1, 3, 0), (1, 3, 1)].into());
    }

    #[test]
    fn clocks_go_around_while_one_issues() {
        let seen = explore(|| {
            // Of two clocks that are left, back to the one that was in force when the
            // issuer came: neither an old bound nor an old word allows anything.
            let s = Arc::new(Shared::new(OnExhausted::Wait, (2, 5, 1), 9, 5));
            let issuer = spawn(&s);
            s.wall.store(3, Ordering::Release);
            let there = Account::unknown(3, Tick::new(0));
            let plan = s.plan(there, Some((3, 3, 0)), 9);
            s.carry_out(&plan, Some(s.read_wall()));
            s.wall.store(7, Ordering::Release);
            let back = Account::unknown(2, Tick::new(0));
            let plan = s.plan(back, Some((2, 7, 0)), 9);
            // For the assertion that the disk is not behind.
            let plan = Plan {
                value: s.at((3, 9, 0)).get().cast_signed(),
                ..plan
            };
            s.carry_out(&plan, Some(s.read_wall()));
            let issued = issuer.join().unwrap();
            // What is issued next is new.
            let next = s.issue();
            differ(next, issued);
            assert!(matches!(next, Ok((2, 7, 0 | 1))), "{next:?}");
            [issued]
        });
        assert_eq!(seen, [(2, 5, 1), (2, 7, 0), (3, 3, 0), (3, 7, 0)].into());
    }

    #[test]
    fn two_issuers_and_a_start_at_a_mark() {
        let seen = explore(|| {
            let s = Shared {
                word: Word::default(),
                bounds: Bounds::default(),
                watch: Watch::default(),
                disk: AtomicI64::new(0),
                ..Shared::new(OnExhausted::Wait, (0, 0, 0), 0, 3)
            };
            let s = Arc::new(s);
            let issuers = [spawn(&s), spawn(&s)];
            // The mark is at 9, in clock 1; the wall clock says 3.
            let plan = s.plan(Account::unknown(1, Tick::new(9)), Some((1, 9, 0)), 12);
            s.watch.lead_to(BootNanos::new(0), UnixNanos::new(9 * MS));
            s.watch.started_by(s.read_wall());
            s.carry_out(&plan, None);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            [one, other]
        });
        assert_eq!(seen, [(1, 9, 0), (1, 9, 1)].into());
    }

    #[test]
    fn two_issuers_and_a_reserver_that_extends() {
        let seen = explore(|| {
            // Room for one more ID below the old bound.
            let s = Arc::new(Shared::new(OnExhausted::Wait, (1, 5, 3), 6, 5));
            let issuers = [spawn(&s), spawn(&s)];
            let account = Account::unknown(1, Tick::new(0));
            s.carry_out(&s.plan(account, None, 7), None);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            assert!(one.is_ok() || other.is_ok());
            [one, other]
        });
        assert_eq!(seen, [(1, 5, 3), (1, 6, 0)].into());
    }

    #[test]
    fn two_issuers_and_one_who_takes_further_clocks() {
        let seen = explore(|| {
            let s = Shared::new(OnExhausted::NextClock, (1, 5, 4), 9, 5);
            s.bounds.set_clocks(Clocks {
                together: 1,
                widest: 4,
            });
            let s = Arc::new(s);
            let issuers = [spawn(&s), spawn(&s)];
            let account = Account::unknown(1, Tick::new(0));
            let wider = s.generator.widen(&s.word, &s.bounds, account);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            assert_eq!(wider.unwrap().together(), 2);
            for step in [one, other] {
                assert!(step.is_ok() || step == Err(Step::Widen), "{step:?}");
            }
            [one, other]
        });
        assert_eq!(seen, [(1, 5, 4), (1, 5, 5)].into());
    }

    /// Two issuers while a reserver gives clocks back, the word being at a number of
    /// a tick.
    fn narrowed(within: u64) -> BTreeSet<Place> {
        explore(move || {
            let s = Shared::new(OnExhausted::NextClock, (1, 5, within), 9, 5);
            let account = Account::unknown(1, Tick::new(0)).widen(Tick::new(4), 4);
            s.bounds.set_clocks(Clocks {
                together: 2,
                widest: 2,
            });
            let s = Arc::new(s);
            let issuers = [spawn(&s), spawn(&s)];
            let plan = s.plan(account, None, 9);
            let account = s.carry_out(&plan, None);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            // In another clock than the first of the two: not where the account says
            // that it is free.
            let [_, known_from, _] = account.parts();
            for (_, tick, within) in [one, other].into_iter().flatten() {
                assert!(
                    within < 4 || tick < known_from,
                    "{tick} {within}: {account:?}"
                );
            }
            assert_eq!(account.together(), 1);
            [one, other]
        })
    }

    #[test]
    fn two_issuers_and_one_who_gives_further_clocks_back() {
        // One in the tick that is left, or both; or they borrow the next one, where
        // the reserver may find them.
        let seen = [(1, 5, 5), (1, 5, 6), (1, 6, 0), (1, 6, 1), (1, 6, 2)];
        assert_eq!(narrowed(5), seen.into());
    }

    #[test]
    fn two_issuers_and_one_who_gives_unused_clocks_back() {
        let seen = [(1, 5, 3), (1, 5, 4), (1, 6, 0), (1, 6, 1)];
        assert_eq!(narrowed(3), seen.into());
    }

    #[test]
    fn two_issuers_and_one_who_gives_clocks_of_a_new_tick_back() {
        let seen = [(1, 5, 0), (1, 5, 1), (1, 5, 2)];
        assert_eq!(narrowed(0), seen.into());
    }

    #[test]
    fn a_raise_that_comes_late_does_not_undo_what_is_believed() {
        let seen = explore(|| {
            let s = Arc::new(Shared::new(OnExhausted::Wait, (0, 5, 1), 9, 6));
            s.watch.believe(UnixNanos::new(5 * MS));
            let issuers = [spawn(&s), spawn(&s)];
            // Set back, found, and believed.
            s.wall.store(3, Ordering::Release);
            s.watch.believe(s.read_wall());
            let issued = issuers.map(|issuer| issuer.join().unwrap());
            assert_eq!(s.watch.latest(), UnixMillis::new(3));
            issued
        });
        assert!(seen.contains(&(0, 6, 0)), "{seen:?}");
    }

    #[test]
    fn a_clock_that_goes_on_is_no_rollback() {
        let seen = explore(|| {
            let s = Arc::new(Shared::new(OnExhausted::Wait, (0, 5, 1), 9, 5));
            let issuers = [spawn(&s), spawn(&s)];
            s.wall.store(6, Ordering::Release);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
            [one, other]
        });
        assert_eq!(seen, [(0, 5, 1), (0, 5, 2), (0, 6, 0), (0, 6, 1)].into());
    }
}
