//! The history of clock sequences: which of a layout's clocks have been used at an
//! instant, so that IDs can resume in an unused clock after a rollback.
//!
//! Clocks are taken in order, and the first follows the last. The clock history knows
//!
//! - the clock **in force**, and the `together - 1` clocks after it, in which an
//!   exhausted tick continues;
//! - how many clocks, those included, have been **used** since `known_from`. At ticks
//!   before that, any clock may have been used;
//! - `others_before`: at ticks from this one on, only the clocks in force have been
//!   used. Time has passed the others.
//!
//! ```text
//!   clock 1        ------------------              others_before
//!   clock 2                    -------------      v
//!   clock 3, in force                   --------------->
//!               ^ known_from   used = 3       tick ->
//! ```
//!
//! A rollback to a tick takes the next clock if
//!
//! 1. the tick is not before `known_from` and not all clocks are used; or
//! 2. the tick is not before `others_before`: there, all other clocks are free. From
//!    then on `known_from` is that tick, because all earlier use is forgotten.
//!
//! Otherwise no clock is known to be free. The rule "time beyond the highest tick frees
//! all clocks" would need one tick less. But clocks freed by that rule would be met,
//! where they were used, by a rollback further back than that tick.
//!
//! # What the mark keeps of it
//!
//! The mark of a generator that changes clocks has three fields above the 46 bits of
//! its instant. 5 bits say how long before the mark `known_from` is, rounded down to a
//! power of two; 6 bits are the clock in force; 6 bits say how many others have been
//! used. If all are zero, as in a mark that a person sets, nothing is known. A reader
//! of the mark assumes that the others have been used up to the mark.

use crate::id::layout::Layout;
use crate::id::{Tick, UnixMillis};
use crate::label::policy::CLOCK_BITS_MAX;

/// Bits of the instant: until the year 4199.
const INSTANT_BITS: u32 = 46;
const SPAN_BITS: u32 = 5;
/// Spans shorter than 2^6 ms are not worth storing.
const SPAN_LEAST: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ClockSeqHistory {
    pub(crate) clock: u64,
    /// How many clocks a tick may use, the one in force included.
    pub(crate) together: u64,
    used: u64,
    known_from: Tick,
    others_before: Tick,
}

impl ClockSeqHistory {
    /// The clock history of a generator that has issued nothing.
    pub const FRESH: Self = Self::unknown(0, Tick::new(0));

    /// Nothing is known of ticks before this one, and nothing has been issued
    /// from there on.
    pub const fn unknown(clock: u64, before: Tick) -> Self {
        Self {
            clock,
            together: 1,
            used: 1,
            known_from: before,
            others_before: before,
        }
    }

    /// Makes a clock history from its stored parts, in the order of [`Self::parts`].
    pub const fn from_parts(parts: [u64; 3]) -> Self {
        let [clocks, known_from, others_before] = parts;
        Self {
            clock: clocks & 0xff,
            together: clocks >> 8 & 0xff,
            used: clocks >> 16 & 0xff,
            known_from: Tick::new(known_from),
            others_before: Tick::new(others_before),
        }
    }

    /// The parts to be stored. No clock sequence is above 64.
    pub const fn parts(self) -> [u64; 3] {
        [
            self.clock | self.together << 8 | self.used << 16,
            self.known_from.get(),
            self.others_before.get(),
        ]
    }

    /// How many of `clocks` are free, one after the other, for a rollback to a tick.
    pub fn free(self, to: Tick, clocks: u64) -> u64 {
        if to >= self.others_before {
            clocks.saturating_sub(self.together)
        } else if to >= self.known_from {
            clocks.saturating_sub(self.used)
        } else {
            0
        }
    }

    /// The first tick from which on a rollback finds a free clock; `None` if none.
    pub fn free_from(self, clocks: u64) -> Option<Tick> {
        if self.used < clocks {
            return Some(self.known_from);
        }
        (self.together < clocks).then_some(self.others_before)
    }

    /// Switches to the next clock at tick `to`. The clocks in force have been used at
    /// ticks before `reached`. `None` if no clock is known to be free.
    #[must_use]
    pub fn switch(self, to: Tick, reached: Tick, clocks: u64) -> Option<Self> {
        if self.free(to, clocks) == 0 {
            return None;
        }
        let mut next = self.others_reached(reached);
        next.clock = (self.clock + self.together) % clocks;
        next.together = 1;
        next.used += 1;
        // The first rule has precedence: it keeps more knowledge of earlier ticks.
        if to < self.known_from || self.used == clocks {
            next.used = self.together + 1;
            next.known_from = self.others_before;
        }
        Some(next)
    }

    /// Forgets what is known of ticks before this one.
    pub fn forget_before(mut self, at: Tick) -> Self {
        self.known_from = self.known_from.max(at);
        self.others_reached(at)
    }

    /// Notes that the clocks no longer in force have been used at ticks before this
    /// one.
    pub fn others_reached(mut self, before: Tick) -> Self {
        self.others_before = self.others_before.max(before);
        self
    }

    /// How many clocks a tick could use, from `at` on, which is where the clocks in
    /// force are.
    pub fn widest(self, at: Tick, clocks: u64) -> u64 {
        self.together + self.free(at, clocks)
    }

    /// Lets a tick use twice as many clocks, or all that there are, from `at` on.
    pub fn widen(mut self, at: Tick, clocks: u64) -> Self {
        let wider = self.widest(at, clocks).min(2 * self.together);
        let more = wider - self.together;
        self.together = wider;
        self.used += more;
        if self.used > clocks || at < self.known_from && more > 0 {
            return self.forgotten();
        }
        self
    }

    /// Lets a tick use only one clock again, from `at` on, where the clocks in force
    /// have issued nothing yet.
    pub fn narrow(mut self, at: Tick) -> Self {
        if at >= self.others_before {
            return Self::unknown(self.clock, at);
        }
        // The other clocks in force have been used only before `at`; earlier clocks may
        // have been used further on.
        self.known_from = self.known_from.max(at);
        self.used = self.used + 1 - self.together;
        self.together = 1;
        self
    }

    /// Once all clocks have been used since `known_from`, that instant no longer
    /// says anything about later ticks. The clock history then relies on the instant from which on
    /// time has passed the other clocks. A clock history that has just switched must not be
    /// renewed: the other clocks may have issued since.
    pub fn renewed(self, clocks: u64) -> Self {
        if self.used < clocks {
            return self;
        }
        self.forgotten()
    }

    /// Forgets all clocks but those in force: time has passed the others.
    fn forgotten(mut self) -> Self {
        self.used = self.together;
        self.known_from = self.others_before;
        self
    }

    /// What the mark has above its instant: see the head of the file. `None` if the
    /// instant leaves no room. For a generator whose ticks continue in further clocks,
    /// this is only the clock: how many clocks were used is not worth a flush.
    pub fn with_mark(self, mark: UnixMillis, layout: Layout) -> Option<i64> {
        let at = u64::try_from(mark.get()).ok()?;
        if at >> INSTANT_BITS != 0 {
            return None;
        }
        let span = mark.since(layout.instant_of(self.known_from));
        let exact = layout.within_bits() == layout.sequence_bits();
        let known = match u64::try_from(span.get()) {
            Ok(span) if exact && span >> SPAN_LEAST != 0 => {
                u64::from(span.ilog2() - SPAN_LEAST + 1).min((1 << SPAN_BITS) - 1)
            }
            _ => 0,
        };
        let others = if known == 0 { 0 } else { self.used - 1 };
        let above = known | self.clock << SPAN_BITS | others << (SPAN_BITS + CLOCK_BITS_MAX);
        Some((at | above << INSTANT_BITS).cast_signed())
    }

    /// Reads a mark: its instant, and the clock history of a generator that has issued
    /// nothing from there on. `None` if no generator of this layout wrote it.
    pub fn read_mark(value: i64, layout: Layout) -> Option<(UnixMillis, Self)> {
        let value = u64::try_from(value).ok()?;
        let field = |shift: u32, bits: u32| value >> shift & ((1u64 << bits) - 1);
        let mark = UnixMillis::new(field(0, INSTANT_BITS).cast_signed());
        let known = field(INSTANT_BITS, SPAN_BITS);
        let clock = field(INSTANT_BITS + SPAN_BITS, CLOCK_BITS_MAX);
        let others = field(INSTANT_BITS + SPAN_BITS + CLOCK_BITS_MAX, CLOCK_BITS_MAX);
        if clock >= layout.clocks() || others >= layout.clocks() {
            return None;
        }
        let end = layout.tick_from(mark);
        let mut clock_history = Self::unknown(clock, end);
        if known > 0 {
            let span = 1i64 << (u32::try_from(known).unwrap_or(0) + SPAN_LEAST - 1);
            let from = UnixMillis::new(mark.get().saturating_sub(span));
            clock_history.used = others + 1;
            clock_history.known_from = layout.tick_from(from);
        }
        Some((mark, clock_history))
    }
}

#[cfg(all(test, not(loom)))]
// Numbers are small here.
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::id::Millis;
    use crate::id::layout::FieldRole;

    /// A clock history, and what has been issued in truth.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Case {
        parts: [u64; 3],
        /// The first tick from which on each clock has not been used.
        reach: [u64; 4],
        /// Where the cursor is. All clocks in force have been used there.
        tick: u64,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Deed {
        /// This many ticks pass.
        Pass(u64),
        /// A rollback by this many ticks.
        Back(u64),
        Widen,
        /// In a tick in which all clocks in force have been used, or only the first.
        Narrow,
        NarrowAhead,
        /// Somebody advances the generator, or has set a mark.
        Forget,
        /// A start, so many ticks after the last one issued. The mark is three ticks
        /// after that one, its clock freely chosen.
        Start(u64),
    }

    /// 64 ms a tick: marks remember spans from there on.
    fn layout(clock: u32) -> Layout {
        let fields = [
            (FieldRole::Time, 6),
            (FieldRole::Clock, clock),
            (FieldRole::Worker, 2),
            (FieldRole::Sequence, 1),
        ];
        Layout::new(UnixMillis::new(0), Millis::new(64), &fields).unwrap()
    }

    impl Case {
        fn clock_history(&self) -> ClockSeqHistory {
            ClockSeqHistory::from_parts(self.parts)
        }

        /// All clocks in force are used at the tick; they must have been unused there.
        fn issue(&mut self, clock_history: ClockSeqHistory, tick: u64, clocks: u64, new: u64) {
            for further in 0..clock_history.together {
                let clock = ((clock_history.clock + further) % clocks) as usize;
                assert!(
                    further < clock_history.together - new || self.reach[clock] <= tick,
                    "clock {clock} again at {tick}: {clock_history:?}, {self:?}"
                );
                self.reach[clock] = self.reach[clock].max(tick + 1);
            }
            self.tick = tick;
            self.parts = clock_history.parts();
        }

        fn after(mut self, deed: Deed, clocks: u64, layout: Layout) -> Option<Self> {
            let clock_history = self.clock_history();
            match deed {
                Deed::Pass(ticks) => self.issue(clock_history, self.tick + ticks, clocks, 0),
                Deed::Back(ticks) => {
                    let to = self.tick.checked_sub(ticks)?;
                    let reached = Tick::new(self.tick + 1);
                    let next = clock_history.switch(Tick::new(to), reached, clocks)?;
                    self.issue(next, to, clocks, 1);
                }
                Deed::Widen => {
                    let wider = clock_history.widen(Tick::new(self.tick), clocks);
                    let more = wider.together - clock_history.together;
                    self.issue(wider, self.tick, clocks, more);
                }
                Deed::Narrow | Deed::NarrowAhead if clock_history.together == 1 => return None,
                Deed::Narrow => {
                    let at = self.tick + 1;
                    self.issue(clock_history.narrow(Tick::new(at)), at, clocks, 0);
                }
                Deed::NarrowAhead => {
                    // Time has passed in which only the first clock was needed.
                    let at = self.tick + 2;
                    self.issue(clock_history.narrow(Tick::new(at)), at, clocks, 0);
                }
                Deed::Forget => {
                    let at = self.tick + 2;
                    self.issue(clock_history.forget_before(Tick::new(at)), at, clocks, 0);
                }
                Deed::Start(after) => {
                    let mark =
                        layout.instant_of(Tick::new(self.tick.max(*self.reach.iter().max()?) + 2));
                    let value = clock_history.with_mark(mark, layout)?;
                    let (mark, read) = ClockSeqHistory::read_mark(value, layout)?;
                    let (now, end) = (Tick::new(self.tick + after), layout.tick_from(mark));
                    let (clock_history, at) = if now >= end {
                        (read, now)
                    } else if let Some(next) = read.switch(now, end, clocks) {
                        (next, now)
                    } else {
                        (read, end)
                    };
                    self.issue(clock_history, at.get(), clocks, 1);
                }
            }
            Some(self)
        }

        /// Every clock that the clock history calls free is free.
        fn check(&self, clocks: u64) {
            let clock_history = self.clock_history();
            assert!(clock_history.used <= clocks && clock_history.together <= clock_history.used);
            assert!(clock_history.known_from <= clock_history.others_before);
            for to in 0..20 {
                let free = clock_history.free(Tick::new(to), clocks);
                for further in 0..free {
                    let clock = (clock_history.clock + clock_history.together + further) % clocks;
                    assert!(
                        self.reach[clock as usize] <= to,
                        "clock {clock} is used at {to}: {self:?}, {clock_history:?}"
                    );
                }
                assert!(
                    clock_history
                        .free_from(clocks)
                        .is_some_and(|from| from.get() <= to)
                        == (free > 0)
                );
            }
        }
    }

    #[test]
    fn what_is_said_to_be_free_is_free_whatever_was_done() {
        use Deed::{Back, Forget, Narrow, NarrowAhead, Pass, Start, Widen};
        let deeds = [
            Pass(1),
            Pass(4),
            Back(1),
            Back(3),
            Back(5),
            Forget,
            Start(0),
            Start(2),
            // Only where an exhausted tick continues in further clocks.
            Widen,
            Narrow,
            NarrowAhead,
        ];
        for (bits, shared) in [(1, false), (2, false), (1, true), (2, true)] {
            let clocks = 1u64 << bits;
            let (layout, deeds) = if shared {
                (layout(bits).through_clocks().unwrap(), &deeds[..])
            } else {
                (layout(bits), &deeds[..8])
            };
            let mut first = Case {
                parts: ClockSeqHistory::FRESH.parts(),
                reach: [0; 4],
                tick: 0,
            };
            first.issue(ClockSeqHistory::FRESH, 6, clocks, 1);
            let (mut level, mut known) = (vec![first], HashSet::from([first]));
            // Miri is slow.
            for _ in 0..if cfg!(miri) { 2 } else { 6 } {
                let mut next = vec![];
                for case in level {
                    for deed in deeds {
                        let Some(after) = case.after(*deed, clocks, layout) else {
                            continue;
                        };
                        after.check(clocks);
                        if after.tick < 18 && known.insert(after) {
                            next.push(after);
                        }
                    }
                }
                level = next;
            }
            println!("{clocks} clocks, shared: {shared}: {} ledgers", known.len());
        }
    }

    #[test]
    fn what_a_mark_says_is_free_was_free() {
        // Every small clock history, written into every mark behind it and read back.
        for (tick_millis, most) in [(1, 150), (7, 30), (64, 10), (100, 10)] {
            let fields = [
                (FieldRole::Time, 20),
                (FieldRole::Clock, 2),
                (FieldRole::Worker, 2),
                (FieldRole::Sequence, 1),
            ];
            let layout =
                Layout::new(UnixMillis::new(1_000), Millis::new(tick_millis), &fields).unwrap();
            let step = if cfg!(miri) { 25 } else { 1 };
            for known_from in (0..most).step_by(step) {
                for end in (known_from..most + 70).step_by(step) {
                    let mark = layout.instant_of(Tick::new(end));
                    for (clock, used) in [(0, 1), (3, 1), (1, 2), (2, 3), (3, 4)] {
                        let clock_history = ClockSeqHistory {
                            clock,
                            together: 1,
                            used,
                            known_from: Tick::new(known_from),
                            others_before: Tick::new(end),
                        };
                        let value = clock_history.with_mark(mark, layout).unwrap();
                        let (read_mark, read) = ClockSeqHistory::read_mark(value, layout).unwrap();
                        assert_eq!((read_mark, read.clock, read.together), (mark, clock, 1));
                        assert_eq!(read.others_before, Tick::new(end));
                        for to in 0..end + 2 {
                            let to = Tick::new(to);
                            assert!(
                                read.free(to, 4) <= clock_history.free(to, 4),
                                "{clock_history:?} {read:?}"
                            );
                        }
                        // Half of what was known, if that was 64 ms or more.
                        let known = layout.lasting(end - known_from).get();
                        let kept = mark.get() - layout.instant_of(read.known_from).get();
                        assert!(if known >= 64 {
                            kept + tick_millis > known / 2
                        } else {
                            kept == 0
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn a_mark_of_shared_clocks_says_nothing_but_the_clock() {
        let layout = layout(2).through_clocks().unwrap();
        let clock_history = ClockSeqHistory::FRESH
            .switch(Tick::new(5), Tick::new(9), 4)
            .unwrap();
        let mark = layout.instant_of(Tick::new(30));
        let (_, read) =
            ClockSeqHistory::read_mark(clock_history.with_mark(mark, layout).unwrap(), layout)
                .unwrap();
        assert_eq!(read, ClockSeqHistory::unknown(1, Tick::new(30)));
    }

    #[test]
    fn marks_that_no_generator_writes() {
        let layout = layout(2);
        let of =
            |above: u64| ClockSeqHistory::read_mark((1000 | above << 46).cast_signed(), layout);
        let mark = UnixMillis::new(1000);
        // A mark that a person sets is an instant.
        assert_eq!(
            of(0),
            Some((mark, ClockSeqHistory::unknown(0, Tick::new(16))))
        );
        // The mark names the fifth clock of four, as in force or as used.
        assert_eq!(of(4 << 5), None);
        assert_eq!(of(4 << 11), None);
        assert_eq!(ClockSeqHistory::read_mark(-1, layout), None);
        // There is no room after the year 4199, nor before 1970.
        let fresh = |at| ClockSeqHistory::FRESH.with_mark(UnixMillis::new(at), layout);
        assert_eq!(fresh(1 << 46), None);
        assert_eq!(fresh(-1), None);
        assert!(fresh((1 << 46) - 1).is_some());
    }

    #[test]
    fn each_clock_once_onto_one_instant() {
        for clocks in [2, 4, 64] {
            let (at, reached) = (Tick::new(50), Tick::new(60));
            let mut clock_history = ClockSeqHistory::FRESH;
            for clock in 1..clocks {
                clock_history = clock_history.switch(at, reached, clocks).unwrap();
                assert_eq!(clock_history.clock, clock);
            }
            assert_eq!(clock_history.switch(at, reached, clocks), None);
            assert_eq!(clock_history.free_from(clocks), Some(reached));
            // Time has passed the others: all are free again.
            let clock_history = clock_history
                .switch(reached, Tick::new(70), clocks)
                .unwrap();
            assert_eq!(clock_history.clock, 0);
            assert_eq!(clock_history.free(reached, clocks), clocks - 2);
            assert_eq!(clock_history.free(at, clocks), 0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

        /// For any layout, and any numbers in the clock history.
        #[test]
        fn no_mark_says_more_than_was_known(
            epoch in 0i64..2_000_000_000_000,
            tick_millis in 1i64..=10_000,
            bits in 1u32..=6,
            clock in 0u64..64,
            others in 0u64..64,
            known_from in 0u64..1 << 30,
            since in 0u64..1 << 40,
            before in 0u64..1 << 31,
        ) {
            let fields = [
                (FieldRole::Time, 41),
                (FieldRole::Clock, bits),
                (FieldRole::Worker, 2),
                (FieldRole::Sequence, 8),
            ];
            let layout = Layout::new(UnixMillis::new(epoch), Millis::new(tick_millis), &fields).unwrap();
            let clocks = layout.clocks();
            let end = known_from + since / tick_millis.unsigned_abs();
            let clock_history = ClockSeqHistory {
                clock: clock % clocks,
                together: 1,
                used: others % clocks + 1,
                known_from: Tick::new(known_from),
                others_before: Tick::new(end),
            };
            prop_assert_eq!(ClockSeqHistory::from_parts(clock_history.parts()), clock_history);
            let mark = layout.instant_of(Tick::new(end));
            let read = ClockSeqHistory::read_mark(clock_history.with_mark(mark, layout).unwrap(), layout);
            let (read_mark, read) = read.unwrap();
            prop_assert_eq!(read_mark, mark);
            prop_assert_eq!(read.clock, clock_history.clock);
            prop_assert!(read.known_from >= clock_history.known_from);
            prop_assert_eq!(read.others_before, clock_history.others_before);
            for to in [known_from, before, end.saturating_sub(1), end] {
                let to = Tick::new(to);
                prop_assert!(read.free(to, clocks) <= clock_history.free(to, clocks));
            }
        }
    }

    #[test]
    fn what_was_used_before_a_burst_stays_used() {
        // Clock 0 up to tick 1000, then clock 1 from 500, where a burst takes
        // clock 2 as well.
        let clock_history = ClockSeqHistory::FRESH
            .switch(Tick::new(500), Tick::new(1001), 3)
            .and_then(|clock_history| {
                clock_history
                    .widen(Tick::new(510), 3)
                    .narrow(Tick::new(511))
                    .into()
            });
        let clock_history: ClockSeqHistory = clock_history.unwrap();
        assert_eq!(clock_history.clock, 1);
        // Clock 2 is free from 511 on; clock 0 is free only from 1001 on.
        let next = clock_history
            .switch(Tick::new(600), Tick::new(700), 3)
            .unwrap();
        assert_eq!(next.clock, 2);
        assert_eq!(next.switch(Tick::new(600), Tick::new(700), 3), None);
        assert_eq!(
            next.switch(Tick::new(1001), Tick::new(1100), 3)
                .map(|next| next.clock),
            Some(0)
        );
    }
}
