//! One step of the cursor, taken by hand; and how long a call may wait.

use std::cell::Cell;

use proptest::prelude::*;

use super::scripted::{NAP, ScriptError, Server};
use crate::id::layout::{FieldRole, Layout};
use crate::id::{
    BootNanos, Millis, NANOS_PER_MILLI, Nanos, Offset, Position, Tick, UnixMillis, UnixNanos,
};
use crate::label::generator::Generator;
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::protocol::clock::Reading;
use crate::protocol::cursor::{Bounds, ClockSeqSpan, Clocks, IssuedRange, Live, Step};
use crate::protocol::host::{Host, Need};
use crate::protocol::tenure::Generation;
use crate::protocol::wait::Waits;
use crate::sync::{AtomicU64, Ordering};

const MS: i64 = NANOS_PER_MILLI;

/// Clocks that show the results of two functions.
struct Shown<W, B>(W, B);

impl<W: Fn() -> UnixNanos, B: Fn() -> BootNanos> Clocks for Shown<W, B> {
    fn wall(&self) -> UnixNanos {
        self.0()
    }
    fn boot(&self) -> BootNanos {
        self.1()
    }
    fn read(&self) -> Reading {
        Reading {
            boot: self.1(),
            wall: self.0(),
        }
    }
}

fn zero() -> Reading {
    Reading {
        boot: BootNanos::new(0),
        wall: UnixNanos::new(0),
    }
}

/// Publishes another bound, and from where on somebody reserves ahead of need.
fn publish(bounds: &Bounds, reserved: u64, early: u64) {
    let (reserved, early) = (Position::new(reserved), Position::new(early));
    let before = bounds.reserved();
    assert!(bounds.publish(before, Generation::NONE, reserved, early));
}

/// A generator in the middle of its life: a cursor, and bounds far away.
fn live(cursor: u64, reserved: u64) -> Live {
    let live = Live::new(zero());
    live.cursor().raise(Position::new(cursor));
    publish(live.bounds(), reserved, u64::MAX);
    live
}

/// 4 bits of time, 2 of worker, 2 of sequence; borrows 2 ticks; starts at
/// `tick % 2`.
fn tiny() -> Generator {
    Generator {
        layout: Layout::new(
            UnixMillis::new(0),
            Millis::new(1),
            &[
                (FieldRole::Time, 4),
                (FieldRole::Worker, 2),
                (FieldRole::Sequence, 2),
            ],
        )
        .unwrap(),
        policy: Policy {
            max_borrow_ticks: 2,
            max_rollback: Millis::new(8),
            sequence_start: SequenceStart::vibrate(1),
            ..Policy::DEFAULT
        },
    }
}

fn plain(cursor: u64, reserved: u64, now: i64, count: u64) -> Step {
    tiny().step::<false>(
        Position::new(cursor),
        Position::new(reserved),
        ClockSeqSpan::ONE,
        now,
        count,
    )
}

fn issue(start: u64, end: u64) -> Step {
    borrow(start, end, 0)
}

fn borrow(start: u64, end: u64, borrowed: u64) -> Step {
    Step::Issue(IssuedRange {
        start: Position::new(start),
        end: Position::new(end),
        borrowed,
        waited: false,
    })
}

#[test]
fn a_fresh_tick_starts_where_its_parity_says() {
    assert_eq!(plain(0, 64, 4, 1), issue(16, 17));
    assert_eq!(plain(0, 64, 5, 1), issue(21, 22));
}

#[test]
fn the_cursor_wins_over_the_clock() {
    assert_eq!(plain(18, 64, 4, 1), issue(18, 19));
    // An exhausted tick runs into the next ones.
    assert_eq!(plain(20, 64, 4, 1), borrow(20, 21, 1));
    assert_eq!(plain(27, 64, 4, 1), borrow(27, 28, 1));
    assert_eq!(plain(18, 64, 4, 4), borrow(18, 22, 2));
    // A clock behind the cursor changes nothing but the borrowing.
    assert_eq!(plain(27, 64, 5, 1), borrow(27, 28, 1));
    assert_eq!(plain(27, 64, 6, 1), issue(27, 28));
}

#[test]
fn waits_past_the_borrow_window() {
    assert_eq!(plain(28, 64, 4, 1), Step::Wait { ticks: 1 });
    // As many as there is room for.
    assert_eq!(plain(26, 64, 4, 3), borrow(26, 28, 2));
    assert_eq!(plain(26, 64, 4, 1), borrow(26, 27, 1));
}

#[test]
fn reserves_before_the_bound() {
    assert_eq!(
        plain(17, 17, 4, 1),
        Step::Reserve {
            through: Tick::new(4)
        }
    );
    assert_eq!(
        plain(17, 18, 4, 2),
        Step::Reserve {
            through: Tick::new(4)
        }
    );
    assert_eq!(plain(17, 18, 4, 1), issue(17, 18));
}

#[test]
fn the_last_tick_is_never_issued() {
    let end = Step::Reserve {
        through: Tick::new(15),
    };
    assert_eq!(plain(59, 64, 14, 1), issue(59, 60));
    assert_eq!(plain(60, 64, 14, 1), end);
    assert_eq!(plain(58, 64, 14, 3), issue(58, 60));
    assert_eq!(plain(0, 64, 15, 1), end);
    assert_eq!(plain(0, 64, 1 << 40, 1), end);
    assert_eq!(plain(0, 64, i64::MAX, 1), end);
}

#[test]
fn a_clock_before_the_epoch_is_tick_zero() {
    assert_eq!(plain(0, 64, -5, 1), issue(0, 1));
    assert_eq!(plain(0, 64, i64::MIN, 1), issue(0, 1));
}

#[test]
fn a_batch_of_the_default_generator_is_one_step() {
    assert_eq!(Generator::DEFAULT.max_chunk(), 25 * 4096);
    assert_eq!(tiny().max_chunk(), 4);
}

#[test]
fn clocks_are_given_back_at_once_where_they_are_unused() {
    let layout = with_clocks(OnExhausted::NextClock).layout;
    let offset = |tick: u64, within: u64| {
        let offset = layout.offset_of(Tick::new(tick)).get() + within;
        layout.at(3, Offset::new(offset))
    };
    let left = |tick, within| {
        let live = live(offset(tick, within).get(), 0);
        (live.cursor().leave_clocks(layout), live.cursor().position())
    };
    assert_eq!(left(5, 0), (Tick::new(5), offset(5, 1)));
    // Only the first clock of the tick is exhausted.
    assert_eq!(left(5, 3), (Tick::new(5), offset(5, 4)));
    assert_eq!(left(5, 4), (Tick::new(5), offset(5, 5)));
    assert_eq!(left(5, 5), (Tick::new(6), offset(6, 0)));
    assert_eq!(left(5, 15), (Tick::new(6), offset(6, 0)));
    // No tick follows the last: the cursor stays in that tick and in its clock.
    assert_eq!(left(14, 9), (Tick::new(15), offset(15, 0)));
    assert_eq!(left(15, 0), (Tick::new(15), offset(15, 1)));
}

#[test]
fn one_caller_is_elected() {
    let live = live(0, 0);
    let bounds = live.bounds();
    publish(bounds, 100, 50);
    assert!(!bounds.claim_prefetch(Position::new(50)));
    assert!(bounds.claim_prefetch(Position::new(51)));
    assert!(!bounds.claim_prefetch(Position::new(52)));
    publish(bounds, 200, 150);
    assert!(bounds.claim_prefetch(Position::new(151)));
}

/// A live default generator, and clocks that show a tick of it.
fn at_tick(tick: u64) -> (Live, UnixNanos) {
    let at = Layout::DEFAULT.instant_of(Tick::new(tick)).nanos();
    let live = Live::new(Reading {
        boot: BootNanos::new(0),
        wall: UnixNanos::new(0),
    });
    publish(live.bounds(), u64::MAX, u64::MAX);
    (live, at)
}

#[test]
fn batches_that_meet_take_no_more_than_there_is_room_for() {
    // Each call finds, between its load and its swap, that another was faster.
    let (live, at) = at_tick(1 << 30);
    fn issue(live: &Live, at: UnixNanos, others: u32) -> u64 {
        let inner = Cell::new(0);
        let boot = || {
            if others > 0 && inner.get() == 0 {
                inner.set(issue(live, at, others - 1));
            }
            BootNanos::new(at.get())
        };
        let step = live.issue::<false>(
            &Generator::DEFAULT,
            Generation::NONE,
            100_000,
            &Shown(|| at, boot),
        );
        let mine = match step {
            Step::Issue(IssuedRange { start, end, .. }) => end.get() - start.get(),
            _ => 0,
        };
        inner.get() + mine
    }
    let issued = issue(&live, at, 16);
    let room = 101 << 12;
    assert!(
        (room - 64..=room).contains(&issued),
        "what the borrow window holds: {issued}"
    );
    let limit = ((1u64 << 30) + 101) << 12;
    assert!(live.cursor().position().get() <= limit);
}

#[test]
fn threads_never_share_a_position() {
    let (live, at) = at_tick(1 << 30);
    let clock = AtomicU64::new(at.get().cast_unsigned());
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let run = |_| {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while mine.len() < if cfg!(miri) { 60 } else { 20_000 } {
                    let boot = || {
                        let step = MS.cast_unsigned() / 64;
                        BootNanos::new(clock.fetch_add(step, Ordering::Relaxed).cast_signed())
                    };
                    let count = mine.len() as u64 % 7 + 1;
                    let clocks = Shown(|| at, boot);
                    if let Step::Issue(IssuedRange { start, end, .. }) =
                        live.issue::<false>(&Generator::DEFAULT, Generation::NONE, count, &clocks)
                    {
                        mine.extend(start.get()..end.get());
                    }
                }
                assert!(mine.is_sorted());
                mine
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    let issued = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), issued);
}

fn wall(millis: i64) -> UnixNanos {
    UnixNanos::new(millis * MS)
}

fn boot(millis: i64) -> BootNanos {
    BootNanos::new(millis * MS)
}

/// 4 bits of time, 2 of clock, 2 of worker, 2 of sequence; borrows a tick.
fn with_clocks(on_exhausted: OnExhausted) -> Generator {
    let fields = [
        (FieldRole::Time, 4),
        (FieldRole::Clock, 2),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    let layout = Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap();
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

/// A position from its clock, tick, and sequence number within the tick.
fn at(generator: &Generator, clock: u64, tick: u64, within: u64) -> Position {
    let layout = generator.layout;
    let offset = layout.offset_of(Tick::new(tick)).get() + within;
    layout.at(clock, Offset::new(offset))
}

/// The issued IDs, as clock, tick, number and count; or the step.
fn decide(
    generator: &Generator,
    cursor: (u64, u64, u64),
    bound: (u64, u64),
    clock_seq_span: ClockSeqSpan,
    now: i64,
    count: u64,
) -> Result<(u64, u64, u64, u64), Step> {
    let layout = generator.layout;
    let step = generator.step::<true>(
        at(generator, cursor.0, cursor.1, cursor.2),
        at(generator, bound.0, bound.1, 0),
        clock_seq_span,
        now,
        count,
    );
    let Step::Issue(IssuedRange {
        start,
        end,
        borrowed,
        ..
    }) = step
    else {
        return Err(step);
    };
    let (tick, count) = (layout.tick_of(start), end.get() - start.get());
    let within = layout.within(start);
    let present = layout
        .offset_of(Tick::new(now.max(0).cast_unsigned() + 1))
        .get();
    let (start_at, end_at) = (layout.offset(start).get(), layout.offset(end).get());
    assert_eq!(borrowed, end_at.saturating_sub(start_at.max(present)));
    Ok((layout.clock_of(start), tick.get(), within, count))
}

fn reserve(tick: u64) -> Step {
    Step::Reserve {
        through: Tick::new(tick),
    }
}

#[test]
fn what_is_issued_lies_in_one_clock_and_in_the_borrow_window() {
    let g = with_clocks(OnExhausted::Wait);
    // A fresh tick begins where its parity says.
    assert_eq!(
        decide(&g, (0, 0, 0), (0, 9), ClockSeqSpan::ONE, 4, 1),
        Ok((0, 4, 0, 1))
    );
    assert_eq!(
        decide(&g, (3, 0, 0), (3, 9), ClockSeqSpan::ONE, 5, 9),
        Ok((3, 5, 1, 7))
    );
    // The rest of a tick, and the next one, which may be borrowed.
    assert_eq!(
        decide(&g, (2, 4, 3), (2, 9), ClockSeqSpan::ONE, 4, 4),
        Ok((2, 4, 3, 4))
    );
    assert_eq!(
        decide(&g, (2, 5, 0), (2, 9), ClockSeqSpan::ONE, 4, 9),
        Ok((2, 5, 0, 4))
    );
    let wait = |ticks| Err(Step::Wait { ticks });
    assert_eq!(
        decide(&g, (2, 6, 0), (2, 9), ClockSeqSpan::ONE, 4, 1),
        wait(1)
    );
    assert_eq!(
        decide(&g, (2, 9, 0), (2, 9), ClockSeqSpan::ONE, 4, 1),
        wait(4)
    );
}

#[test]
fn a_bound_allows_nothing_in_another_clock() {
    let g = with_clocks(OnExhausted::Wait);
    for (cursor, bound) in [(0, 1), (1, 0), (3, 0), (0, 3)] {
        let step = decide(&g, (cursor, 4, 0), (bound, 9), ClockSeqSpan::ONE, 4, 1);
        assert_eq!(step, Err(reserve(4)), "{cursor} {bound}");
    }
    assert_eq!(
        decide(&g, (3, 4, 0), (3, 5), ClockSeqSpan::ONE, 4, 1),
        Ok((3, 4, 0, 1))
    );
    assert_eq!(
        decide(&g, (3, 4, 0), (3, 4), ClockSeqSpan::ONE, 4, 1),
        Err(reserve(4))
    );
    // There is no room at all.
    let step = g.step::<true>(at(&g, 0, 4, 0), Position::ZERO, ClockSeqSpan::ONE, 4, 1);
    assert_eq!(step, reserve(4));
}

#[test]
fn the_last_tick_is_not_issued_in_any_clock() {
    for on_exhausted in [OnExhausted::Wait, OnExhausted::NextClock] {
        let g = with_clocks(on_exhausted);
        for clock in 0..4 {
            let decide = |tick, within, now, count| {
                let cursor = (clock, tick, within);
                decide(&g, cursor, (clock, 15), ClockSeqSpan::ONE, now, count)
            };
            assert_eq!(decide(14, 3, 14, 9), Ok((clock, 14, 3, 1)));
            // The reserver can tell whether the time has ended or the clock is wrong.
            assert_eq!(decide(15, 0, 14, 9), Err(reserve(15)));
            assert_eq!(decide(15, 0, 13, 9), Err(reserve(15)));
            for now in [15, 16, 1 << 40, i64::MAX] {
                assert_eq!(decide(4, 0, now, 9), Err(reserve(15)));
            }
            assert_eq!(decide(0, 0, -1, 4), Ok((clock, 0, 0, 4)));
            assert_eq!(decide(0, 0, i64::MIN, 4), Ok((clock, 0, 0, 4)));
        }
    }
}

#[test]
fn a_used_up_tick_goes_on_in_further_clocks() {
    let g = with_clocks(OnExhausted::NextClock);
    let clocks = |together, widest| ClockSeqSpan {
        now: together,
        max: widest,
    };
    let decide = |within, clocks| decide(&g, (3, 4, within), (3, 9), clocks, 4, 9);
    assert_eq!(decide(3, clocks(1, 4)), Ok((3, 4, 3, 1)));
    assert_eq!(decide(4, clocks(1, 4)), Err(Step::Widen));
    // By then there is room.
    assert_eq!(decide(4, clocks(2, 4)), Ok((3, 4, 4, 4)));
    assert_eq!(decide(8, clocks(2, 4)), Err(Step::Widen));
    assert_eq!(decide(8, clocks(4, 4)), Ok((3, 4, 8, 8)));
    // No more clocks are left: the next tick, of which one is borrowed.
    assert_eq!(decide(4, clocks(1, 1)), Ok((3, 5, 0, 4)));
    assert_eq!(decide(8, clocks(2, 2)), Ok((3, 5, 0, 8)));
    // After the whole tick, the cursor is already that of the next tick.
    assert_eq!(decide(16, clocks(4, 4)), Ok((3, 5, 0, 9)));
    // Clocks were given back, and the cursor stands where they were used.
    assert_eq!(decide(9, clocks(1, 1)), Ok((3, 5, 0, 4)));
    // In the last tick but one there is no next tick to use.
    let step = g.step::<true>(at(&g, 3, 14, 4), at(&g, 3, 15, 0), clocks(1, 1), 14, 1);
    assert_eq!(step, reserve(15));
}

#[test]
fn without_a_history_of_clocks_a_tick_has_them_all() {
    let mut g = with_clocks(OnExhausted::NextClock);
    g.policy.on_rollback = OnRollback::Wait;
    let decide = |within, count| decide(&g, (0, 4, within), (0, 9), ClockSeqSpan::ONE, 4, count);
    assert_eq!(decide(0, 20), Ok((0, 4, 0, 20)));
    // The last IDs of this tick, and those that may be borrowed.
    assert_eq!(decide(15, 20), Ok((0, 4, 15, 17)));
}

proptest! {
    /// Whatever the cursor, the bound and the clock are, the issued IDs are neither
    /// before the cursor, nor past the bound, nor too far ahead, nor of two clocks.
    #[test]
    fn nothing_is_issued_that_may_not_be(
        shared in any::<bool>(),
        (cursor_clock, cursor_tick, within) in (0u64..4, 0u64..16, 0u64..16),
        (bound_clock, bound_tick) in (0u64..4, 0u64..16),
        (together, widest) in (1u64..=4, 1u64..=4),
        now in -2i64..18,
        count in 1u64..20,
    ) {
        let g = with_clocks(if shared { OnExhausted::NextClock } else { OnExhausted::Wait });
        let within = if shared { within } else { within % 4 };
        let cursor = at(&g, cursor_clock, cursor_tick, within);
        let bound = at(&g, bound_clock, bound_tick, 0);
        let clocks = ClockSeqSpan { now: together, max: widest };
        let step = g.step::<true>(cursor, bound, clocks, now, count);
        if let Step::Issue(IssuedRange { start, end, .. }) = step {
            let layout = g.layout;
            let last = Position::new(end.get() - 1);
            let (first, after) = (layout.offset(start), layout.offset(end));
                prop_assert!(first >= layout.offset(cursor) && after <= layout.offset(bound));
                prop_assert!(first < after);
            prop_assert!(end.get() - start.get() <= count);
            for position in [start, last] {
                prop_assert_eq!(layout.clock_of(position), cursor_clock);
                prop_assert_eq!(bound_clock, cursor_clock);
                let tick = layout.tick_of(position);
                prop_assert!(!shared || tick == layout.tick_of(start));
                prop_assert!(i64::try_from(tick.get()).unwrap() <= now.max(0) + 1);
                prop_assert!(tick < layout.last_tick());
                prop_assert!(!shared || layout.within(position) >> 2 < together);
            }
        }
    }
}

fn issue_at(live: &Live, g: &Generator, wall: UnixNanos) -> Step {
    live.issue::<true>(g, Generation::NONE, 1, &Shown(|| wall, || boot(0)))
}

/// A generator that watches the wall clock, in the middle of its life.
fn running() -> (Generator, Live) {
    let g = with_clocks(OnExhausted::Wait);
    let bound = at(&g, 0, 15, 0).get();
    (g, live(0, bound))
}

#[test]
fn a_rollback_is_a_reading_before_one_by_which_an_id_was_issued() {
    let (g, live) = running();
    let clock = live.clock();
    let issue = |millis: i64, nanos: i64| issue_at(&live, &g, UnixNanos::new(millis * MS + nanos));
    let back = |millis: i64, nanos: i64, by: i64| Step::RolledBack {
        wall: UnixNanos::new(millis * MS + nanos),
        by: Nanos::new(by),
    };
    assert_eq!(clock.rollback(wall(0)), None);
    assert!(matches!(issue(5, 900_000), Step::Issue(_)));
    assert_eq!(clock.latest(), UnixMillis::new(5));
    // A reading in the same millisecond is no rollback.
    assert!(matches!(issue(5, 0), Step::Issue(_)));
    assert_eq!(issue(4, 999_999), back(4, 999_999, 1));
    assert_eq!(issue(3, 0), back(3, 0, 2 * MS));
    assert_eq!(clock.rollback(wall(3)), Some(Nanos::new(2 * MS)));
    assert!(clock.is_new_rollback());
    assert!(!clock.is_new_rollback());
    // The cursor is ahead for other reasons: that is no rollback.
    live.cursor().raise(at(&g, 0, 9, 0));
    assert_eq!(issue(6, 0), Step::Wait { ticks: 2 });
    clock.believe(wall(3));
    assert_eq!(clock.rollback(wall(3)), None);
    assert!(clock.is_new_rollback(), "from another reading");
    clock.reset(zero());
    assert_eq!(clock.rollback(wall(0)), None);
}

#[test]
fn a_clock_set_back_right_after_a_start_is_seen() {
    // Before the first ID, a call would wait for the tick of the cursor.
    let (g, live) = running();
    live.cursor().raise(at(&g, 0, 9, 0));
    live.clock().start_at(wall(9));
    let step = issue_at(&live, &g, wall(5));
    assert!(matches!(step, Step::RolledBack { by, .. } if by == Nanos::new(4 * MS)));
    // An earlier reading takes nothing back.
    live.clock().start_at(wall(7));
    assert_eq!(live.clock().latest(), UnixMillis::new(9));
}

#[test]
fn a_late_raise_is_dropped_when_a_rollback_was_dealt_with() {
    let (g, live) = running();
    live.clock().start_at(wall(5));
    let read = || {
        // Meanwhile somebody else finds the clock set back, and believes it.
        live.clock().believe(wall(2));
        wall(6)
    };
    let step = live.issue::<true>(&g, Generation::NONE, 1, &Shown(read, || boot(0)));
    assert!(matches!(step, Step::Issue(_)));
    assert_eq!(live.clock().latest(), UnixMillis::new(2));
}

fn policy(on_rollback: OnRollback, max_wait: i64) -> Policy {
    Policy {
        on_rollback,
        max_wait: Millis::new(max_wait),
        ..Policy::DEFAULT
    }
}

#[test]
fn waits_for_what_can_be_over_in_time() {
    use OnRollback::{Continue, Error, NextClock, NextWorker, Wait};
    let awaits = |on_rollback, by| {
        Waits::default().awaits(&policy(on_rollback, 10), Nanos::new(by), boot(1000))
    };
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
    let mut waits = Waits::default();
    assert!(waits.awaits(&policy, Nanos::new(9 * MS), boot(1000)));
    // The clock has not moved while 4 ms have passed.
    assert!(!waits.awaits(&policy, Nanos::new(9 * MS), boot(1004)));
    // The clock has moved, if not by as much: the two are not read at one moment.
    assert!(waits.awaits(&policy, Nanos::new(7 * MS), boot(1004)));
    assert!(!waits.awaits(&policy, Nanos::new(7 * MS + 1), boot(1004)));
    assert!(waits.awaits(&policy, Nanos::new(0), boot(1011)));
    assert!(!waits.awaits(&policy, Nanos::new(0), boot(1012)));
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
        let (mut waits, mut waited) = (Waits::default(), 0);
        for (nap, by) in naps {
            if !waits.awaits(&policy, Nanos::new(by), BootNanos::new(waited)) {
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
    let mut waits = Waits::default();
    assert!(!waits.stands_still(wall(5), boot(0)));
    assert!(!waits.stands_still(wall(5), boot(999)));
    assert!(waits.stands_still(wall(5), boot(1000)));
    // The clock moves, if only a little: from then on its standstill counts anew.
    assert!(!waits.stands_still(UnixNanos::new(5 * MS + 1), boot(1001)));
    assert!(!waits.stands_still(UnixNanos::new(5 * MS + 1), boot(2000)));
    assert!(waits.stands_still(UnixNanos::new(5 * MS + 1), boot(2001)));
    // A clock that goes back does not move on.
    assert!(!waits.stands_still(wall(3), boot(2002)));
    assert!(!waits.stands_still(wall(6), boot(9000)));
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
    let layout = generator.layout;
    let live = live(0, layout.offset_of(Tick::new(9_000_000)).get());
    let tick = |boot: i64, at: f64| {
        let clocks = Shown(|| seconds(at), || BootNanos::new(boot * 1000 * MS));
        match live.issue::<true>(&generator, Generation::NONE, 1, &clocks) {
            Step::Issue(IssuedRange { start, .. }) => layout.tick_of(start).get(),
            other => panic!("{other:?}"),
        }
    };
    // The clock starts 10 s ahead, at half speed, and is met after 20 s.
    live.clock().lead_to(BootNanos::new(0), seconds(1010.0));
    assert_eq!(tick(4, 1004.0), 1_012_000);
    assert_eq!(tick(22, 1022.0), 1_022_000);
    // The clock is set back to where it was accepted: no line is ahead of it.
    live.clock().believe(seconds(1000.0));
    assert_eq!(
        live.clock().watched(seconds(1001.0), || unreachable!()),
        seconds(1001.0)
    );
}

#[test]
fn a_clock_that_was_waited_for_does_not_stand_still() {
    let boot = |at: f64| {
        #[allow(clippy::cast_possible_truncation)]
        BootNanos::new((at * 1e9) as i64)
    };
    let mut waits = Waits::default();
    // The call waits for the next tick, which is a long one.
    assert!(!waits.stands_still(seconds(100.9), boot(0.0)));
    // Set back by 3 s; the call waits until 100.0, when the last ID was issued.
    assert!(waits.awaits(
        &policy(OnRollback::Wait, 5000),
        Nanos::new(2100 * MS),
        boot(0.1)
    ));
    assert!(waits.awaits(&policy(OnRollback::Wait, 5000), Nanos::new(1), boot(2.2)));
    // The tick has not passed yet.
    assert!(!waits.stands_still(seconds(100.0), boot(2.2)));
    assert!(!waits.stands_still(seconds(100.1), boot(2.3)));
    assert!(!waits.stands_still(seconds(100.1), boot(3.2)));
    assert!(waits.stands_still(seconds(100.1), boot(3.3)));
}

/// The session has a server for itself, so that each wait is its own.
#[test]
fn who_has_taken_ids_waits_until_the_lead_has_shrunk() {
    for (borrow, most) in [
        ("100 ms", 10_000_000),
        ("1 h", 10_000_000),
        ("30 ms", 3_000_000),
        ("1 ms", 100_000),
        ("0", 0),
    ] {
        let label = format!("preset=default max_borrow='{borrow}'");
        let mut server = Server::new(&label, 1, (0, 0), 1000);
        server.held.has_taken = true;
        let now = server
            .generator
            .layout
            .tick_within(server.read().wall.millis());
        let window = Tick::new(now.get() + server.generator.policy.max_borrow_ticks + 1);
        let limit = server.generator.layout.offset_of(window);
        let first_free = Position::new(limit.get() - 1);
        server.reserve(Need::Tick(window)).unwrap();
        server.slot.live().cursor().raise(first_free);
        assert_eq!(server.issue(1).unwrap().len(), 1);
        assert_eq!(server.naps.get(), 0, "the generator is not at its limit");
        // Now it is; the next tick begins in a millisecond, at most.
        server.interrupted = true;
        let mut extra = Vec::new();
        for micros in 0..400 {
            server.held.has_taken = true;
            assert_eq!(server.issue(1), Err(ScriptError::Interrupted));
            let rests = server.asked.get().get();
            // A transaction's first ID waits for the next tick only.
            server.held.has_taken = false;
            assert_eq!(server.issue(1), Err(ScriptError::Interrupted));
            assert_eq!(server.asked.get().get(), MS - micros * 1000);
            extra.push(rests - server.asked.get().get());
            server.pass(1000);
        }
        let (least, longest) = (extra.iter().min().unwrap(), extra.iter().max().unwrap());
        assert!((most / 2..=most * 51 / 100).contains(least), "{least}");
        assert!((most * 99 / 100..=most).contains(longest), "{longest}");
        // Sessions that wait from one moment on return one after the other.
        extra.sort_unstable();
        let gaps = extra.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.max().unwrap() <= most / 40);
        // Whoever finds nothing after a rest rests half as long the next time. Here a nap ends
        // early, and the tick after the third one.
        server.pass(600 * 1000);
        assert_eq!(server.issue(1).unwrap().len(), 1);
        while server.issue(1).is_ok() {}
        (server.interrupted, server.held.has_taken) = (false, true);
        let naps = server.naps.get();
        assert_eq!(server.issue(1).unwrap().len(), 1);
        assert_eq!(server.naps.get(), naps + 3);
        let third = server.asked.get().get() - (MS - 2 * NAP);
        assert!((most / 8..=most / 4).contains(&third), "{third}");
        // Once there is room, it is taken.
        server.pass(MS);
        server.held.has_taken = true;
        assert_eq!(server.issue(1).unwrap().len(), 1);
    }
}

/// Seconds since the default epoch.
fn seconds(at: f64) -> UnixNanos {
    let epoch = Generator::DEFAULT.layout.epoch().nanos().get();
    #[allow(clippy::cast_possible_truncation)]
    UnixNanos::new(epoch + (at * 1e9) as i64)
}
