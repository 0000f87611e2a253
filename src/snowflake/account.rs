//! The account of clocks: which of a layout's clocks have been used at an
//! instant, so that a rollback can go on in one that has not.
//!
//! Clocks are taken one after the other and around. The account knows
//!
//! - the clock **in force**, and the `together - 1` after it in which a tick that
//!   is used up goes on;
//! - how many clocks, those included, have been **used** since `known_from`. At
//!   ticks before that, any clock may have been;
//! - `others_before`: at ticks from there on, no clock but those in force has
//!   been used. Time has passed the others.
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
//! 2. the tick is not before `others_before`: there, all others are free. From
//!    then on `known_from` is that tick, for what was used before it is forgotten.
//!
//! Otherwise no clock is known to be free. That is one tick more than "time
//! beyond the highest tick frees all clocks" would need: freed like that, a
//! rollback further back than that tick would meet the clocks that were used
//! there.
//!
//! # What the mark keeps of it
//!
//! The mark of a generator that changes clocks has, above the 46 bits of its
//! instant: 5 bits of how long before the mark `known_from` is, rounded down to a
//! power of two; 6 bits of the clock in force; 6 bits of how many others have been
//! used. All zero, as in a mark that a person sets: nothing is known. On reading
//! it back, others may have been used up to the mark.

use super::layout::{Layout, Tick, UnixMillis};

/// Most bits of the clock field of a generator that changes clocks: what the mark
/// has room for.
pub const CLOCK_BITS_MAX: u32 = 6;

/// Bits of the instant: until the year 4199.
const INSTANT_BITS: u32 = 46;
const SPAN_BITS: u32 = 5;
/// Shorter spans than 2^6 ms are not worth knowing.
const SPAN_LEAST: u32 = 6;

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    clock: u64,
    together: u64,
    used: u64,
    known_from: Tick,
    others_before: Tick,
}

impl Account {
    /// Of a generator that has issued nothing.
    pub const FRESH: Self = Self::unknown(0, Tick::new(0));

    /// Nothing is known of ticks before this one, and nothing has been issued
    /// from there on.
    #[must_use]
    pub const fn unknown(clock: u64, before: Tick) -> Self {
        Self {
            clock,
            together: 1,
            used: 1,
            known_from: before,
            others_before: before,
        }
    }

    /// From its stored parts, in the order of [`Self::parts`].
    #[must_use]
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

    /// To be stored. No clock number is above 64.
    #[must_use]
    pub const fn parts(self) -> [u64; 3] {
        [
            self.clock | self.together << 8 | self.used << 16,
            self.known_from.get(),
            self.others_before.get(),
        ]
    }

    /// The clock in force.
    #[must_use]
    pub const fn clock(self) -> u64 {
        self.clock
    }

    /// In how many clocks a tick may be used, the one in force included.
    #[must_use]
    pub const fn together(self) -> u64 {
        self.together
    }

    /// How many of `clocks` a rollback to a tick finds free, one after the other.
    #[must_use]
    pub fn free(self, to: Tick, clocks: u64) -> u64 {
        if to >= self.others_before {
            clocks.saturating_sub(self.together)
        } else if to >= self.known_from {
            clocks.saturating_sub(self.used)
        } else {
            0
        }
    }

    /// From which tick on a rollback finds a clock; `None` if from none.
    #[must_use]
    pub fn free_from(self, clocks: u64) -> Option<Tick> {
        if self.used < clocks {
            Some(self.known_from)
        } else if self.together < clocks {
            Some(self.others_before)
        } else {
            None
        }
    }

    /// Goes on in the next clock at tick `to`. The clocks in force have been used
    /// at ticks before `reached`. `None` if no clock is known to be free.
    #[must_use]
    pub fn switch(self, to: Tick, reached: Tick, clocks: u64) -> Option<Self> {
        if self.free(to, clocks) == 0 {
            return None;
        }
        let mut next = Self {
            clock: (self.clock + self.together) % clocks,
            together: 1,
            used: self.used + 1,
            others_before: self.others_before.max(reached),
            ..self
        };
        // The first way as long as it goes: it knows more of earlier ticks.
        if to < self.known_from || self.used == clocks {
            next.used = self.together + 1;
            next.known_from = self.others_before;
        }
        Some(next)
    }

    /// Nothing is known of ticks before this one any more.
    #[must_use]
    pub fn forget_before(self, at: Tick) -> Self {
        Self {
            known_from: self.known_from.max(at),
            others_before: self.others_before.max(at),
            ..self
        }
    }

    /// Of the clocks that are not in force any more: they have been used at ticks
    /// before this one.
    #[must_use]
    pub fn others_reached(self, before: Tick) -> Self {
        Self {
            others_before: self.others_before.max(before),
            ..self
        }
    }

    /// In how many clocks a tick could be used, from `at` on, where those in force
    /// are.
    #[must_use]
    pub fn widest(self, at: Tick, clocks: u64) -> u64 {
        self.together + self.free(at, clocks)
    }

    /// Twice as many clocks for a tick, or as many as there are, from `at` on.
    #[must_use]
    pub fn widen(self, at: Tick, clocks: u64) -> Self {
        let wider = self.widest(at, clocks).min(2 * self.together);
        let more = wider - self.together;
        if self.used + more > clocks || at < self.known_from && more > 0 {
            return Self {
                together: wider,
                used: wider,
                known_from: self.others_before,
                ..self
            };
        }
        Self {
            together: wider,
            used: self.used + more,
            ..self
        }
    }

    /// One clock for a tick again, from `at` on, where those in force have issued
    /// nothing yet.
    #[must_use]
    pub fn narrow(self, at: Tick) -> Self {
        if at >= self.others_before {
            return Self::unknown(self.clock, at);
        }
        // The others in force have been used before `at` only; those before them,
        // further on.
        Self {
            known_from: self.known_from.max(at),
            together: 1,
            used: self.used + 1 - self.together,
            ..self
        }
    }

    /// Where all clocks have been used since `known_from`, it tells nothing of times
    /// after that any more: then from where on time has passed the others. Not of an
    /// account that has just switched: the others may have issued since.
    #[must_use]
    pub fn renewed(self, clocks: u64) -> Self {
        if self.used < clocks {
            return self;
        }
        Self {
            used: self.together,
            known_from: self.others_before,
            ..self
        }
    }

    /// What the mark has above its instant: see the head of the file. `None` if
    /// the instant leaves no room. Of a generator whose ticks go on in further
    /// clocks it says nothing but the clock: how many is not worth a flush.
    #[must_use]
    pub fn with_mark(self, mark: UnixMillis, layout: Layout) -> Option<i64> {
        let at = u64::try_from(mark.get()).ok()?;
        if at >> INSTANT_BITS != 0 {
            return None;
        }
        let span = mark
            .get()
            .saturating_sub(layout.instant_of(self.known_from).get());
        let exact = layout.within_bits() == layout.sequence_bits();
        let known = match u64::try_from(span) {
            Ok(span) if exact && span >> SPAN_LEAST != 0 => {
                u64::from(span.ilog2() - SPAN_LEAST + 1).min((1 << SPAN_BITS) - 1)
            }
            _ => 0,
        };
        let others = if known == 0 { 0 } else { self.used - 1 };
        let above = known | self.clock << SPAN_BITS | others << (SPAN_BITS + CLOCK_BITS_MAX);
        Some((at | above << INSTANT_BITS).cast_signed())
    }

    /// Reads a mark: its instant, and the account of a generator that has issued
    /// nothing from there on. `None` if no generator of this layout wrote it.
    #[must_use]
    pub fn of_mark(value: i64, layout: Layout) -> Option<(UnixMillis, Self)> {
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
        let account = Self::unknown(clock, end);
        if known == 0 {
            return Some((mark, account));
        }
        let span = 1i64 << (u32::try_from(known).unwrap_or(0) + SPAN_LEAST - 1);
        let from = UnixMillis::new(mark.get().saturating_sub(span));
        Some((
            mark,
            Self {
                used: others + 1,
                known_from: layout.tick_from(from),
                ..account
            },
        ))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::clock::{BootNanos, Reading, UnixNanos};
    use super::super::generator::Generator;
    use super::super::layout::{Position, Role};
    use super::super::policy::{OnRollback, Policy};
    use super::super::reservation::{Plan, Situation};
    use super::*;

    #[test]
    fn what_was_used_before_a_burst_stays_used() {
        // Clock 0 up to tick 1000, then clock 1 from 500, where a burst takes
        // clock 2 as well.
        let account = Account::FRESH
            .switch(Tick::new(500), Tick::new(1001), 3)
            .and_then(|account| {
                account
                    .widen(Tick::new(510), 3)
                    .narrow(Tick::new(511))
                    .into()
            });
        let account: Account = account.unwrap();
        assert_eq!(account.clock(), 1);
        // Clock 2 is free from 511 on; clock 0 is not before 1001.
        let next = account.switch(Tick::new(600), Tick::new(700), 3).unwrap();
        assert_eq!(next.clock(), 2);
        assert_eq!(next.switch(Tick::new(600), Tick::new(700), 3), None);
        assert_eq!(
            next.switch(Tick::new(1001), Tick::new(1100), 3)
                .map(Account::clock),
            Some(0)
        );
    }

    #[test]
    fn what_was_used_up_is_not_kept_for_ever() {
        let fields = [
            (Role::Time, 41),
            (Role::Clock, 2),
            (Role::Worker, 1),
            (Role::Sequence, 10),
        ];
        let layout = Layout::new(0, 1, &fields).unwrap();
        let generator = Generator {
            layout,
            policy: Policy {
                on_rollback: OnRollback::NextClock,
                ..Policy::DEFAULT
            },
        };
        let at = |millis: i64| Reading {
            boot: BootNanos::new(millis * 1_000_000),
            wall: UnixNanos::new(millis * 1_000_000),
        };
        // A restart at an instant, or a reservation if `running`.
        let plan = |millis: i64, stored: Option<i64>, running: Option<&Plan>| {
            let stored = stored.map(|value| Account::of_mark(value, layout).unwrap());
            let account = stored.map_or(Account::FRESH, |(_, account)| account);
            let reserved = running.map_or(Position::ZERO, |plan| plan.reserved);
            generator
                .plan(&Situation {
                    reading: at(millis),
                    generator_now: at(millis).wall,
                    trusted_offset: 0,
                    max_clock_jump_millis: 1000,
                    max_lead_millis: 86_400_000,
                    word: layout.in_clock(
                        running.map_or(0, |plan| plan.account.clock()),
                        layout.position_of(Tick::new(millis.cast_unsigned())),
                    ),
                    reserved,
                    stored: stored.map(|(mark, _)| mark),
                    failover: None,
                    floor: None,
                    account: running.map_or(account, |plan| plan.account),
                    behind: None,
                    through: Tick::new(0),
                    full_window_millis: 1000,
                    last_window_millis: i64::from(running.is_some()) * 1000,
                })
                .unwrap()
        };
        let mut last = plan(100_000, None, None);
        for restart in 1..4 {
            last = plan(100_000 + restart, Some(last.value), None);
            assert_eq!(last.account.clock(), restart.cast_unsigned());
            assert!(last.switches);
        }
        let fifth = plan(100_004, Some(last.value), None);
        assert!(!fifth.switches && fifth.lead_millis > 900, "all are used");
        // Time has passed them.
        let later = plan(110_000, Some(fifth.value), Some(&fifth));
        let restart = plan(110_500, Some(later.value), None);
        assert!(restart.switches);
        assert_eq!(restart.lead_millis, 0);
    }
}
