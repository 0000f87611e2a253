//! Every interleaving of issuers and a reserver, explored by loom on the production
//! steps: [`Live::issue`], and [`NewPlan`] to published.

use std::collections::BTreeSet;

use loom::sync::Arc;
use loom::thread;

use super::scaffold::{At, MS, carry_out, explore, plan, settled, spawn, zero};
use crate::id::layout::{FieldRole, Layout};
use crate::id::{BootNanos, Millis, Offset, Position, Tick, UnixMillis, UnixNanos};
use crate::label::generator::Generator;
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::protocol::clock::Reading;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{ClockSeqSpan, Clocks, IssuedRange, Live, Step};
use crate::protocol::plan::Plan;
use crate::protocol::slot::Slot;
use crate::protocol::tenure::{Generation, Tenure};
use crate::sync::{AtomicI64, AtomicU64, Ordering};

/// Generators that do not watch the wall clock.
pub mod plain {
    use super::*;

    struct Shared {
        live: Live,
        /// The durable mark, as a position: what the disk holds.
        mark: AtomicU64,
    }

    /// The generator's clock shows a tick.
    pub fn tick(tick: i64) -> At {
        let boot = G.layout.epoch().get() + tick;
        At { boot, wall: 0 }
    }

    pub const G: Generator = Generator::DEFAULT;
    pub const TICK: u64 = 4096;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            // The clock agrees with the boot clock.
            live: Live::new(zero()),
            mark: AtomicU64::new(0),
        })
    }

    /// One attempt; an issued position must lie below the mark on disk.
    fn issue(s: &Shared, now: i64) -> Option<u64> {
        match s.live.issue::<false>(&G, Generation::NONE, 1, &tick(now)) {
            Step::Issue(IssuedRange { start, end, .. }) => {
                assert!(
                    end.get() <= s.mark.load(Ordering::Acquire),
                    "past the durable mark"
                );
                Some(start.get())
            }
            _ => None,
        }
    }

    fn reserve(s: &Shared, from: u64, to: u64) {
        let from = (from > 0).then_some(Position::new(from));
        let (before, to) = (s.live.bounds().reserved(), Position::new(to));
        let plan = plan(from, before, to, to, ClockSeqHistory::FRESH);
        let write = |plan: &Plan| s.mark.store(plan.value.cast_unsigned(), Ordering::Release);
        assert!(carry_out(&plan, &G, &s.live, write, || {}).1);
    }

    #[test]
    fn two_issuers_and_a_reserver_that_starts_at_a_mark() {
        explore(3, || {
            let s = shared();
            // A stored mark at tick 9 while the clock says 3: no ID below tick 9 may be
            // issued.
            let start = 9 * TICK;
            let issuers = [(); 2].map(|()| spawn(&s, |s| issue(s, 3)));
            reserve(&s, start, start + TICK);
            let issued: Vec<_> = issuers
                .into_iter()
                .filter_map(|t| t.join().unwrap())
                .collect();
            assert!(
                issued.iter().all(|p| *p >= start),
                "before the mark: {issued:?}"
            );
            assert!(
                issued.len() < 2 || issued[0] != issued[1],
                "twice: {issued:?}"
            );
        });
    }

    #[test]
    fn two_issuers_and_a_reserver_that_extends() {
        explore(3, || {
            let s = shared();
            // Room for one more ID below the old bound.
            let cursor = 5 * TICK + 4095;
            reserve(&s, cursor, 6 * TICK);
            let issuers = [(); 2].map(|()| spawn(&s, |s| issue(s, 5)));
            reserve(&s, 0, 7 * TICK);
            let mut issued: Vec<_> = issuers
                .into_iter()
                .filter_map(|t| t.join().unwrap())
                .collect();
            issued.sort_unstable();
            // The issuer that found no room has skipped a position.
            let second = matches!(issued[1..], [] | [_])
                && issued[1..]
                    .iter()
                    .all(|p| (cursor + 1..=cursor + 2).contains(p));
            assert!(issued[0] == cursor && second, "{issued:?}");
        });
    }

    #[test]
    fn of_two_issuers_that_meet_the_borrow_limit_one_waits() {
        loom::model(|| {
            let s = shared();
            // Room for one more ID before the limit, far below the bound.
            let cursor = (5 + G.policy.max_borrow_ticks) * TICK + 4095;
            reserve(&s, cursor, 200 * TICK);
            let other = spawn(&s, |s| issue(s, 5));
            let mine = issue(&s, 5);
            let other = other.join().unwrap();
            assert_eq!(mine.xor(other), Some(cursor), "{mine:?} {other:?}");
            assert!(
                s.live.cursor().position().get() <= cursor + 2,
                "one skipped at most"
            );
        });
    }

    #[test]
    fn a_batch_and_an_issuer_that_meet_the_bound() {
        loom::model(|| {
            let s = shared();
            let cursor = 5 * TICK + 4093;
            reserve(&s, cursor, 6 * TICK);
            let batch = spawn(&s, |s| {
                match s.live.issue::<false>(&G, Generation::NONE, 3, &tick(5)) {
                    Step::Issue(IssuedRange { start, end, .. }) => Some((start.get(), end.get())),
                    _ => None,
                }
            });
            let mine = issue(&s, 5);
            let batch = batch.join().unwrap();
            // All three positions to the batch, or one to the caller while the others
            // are skipped.
            assert!(
                (batch, mine) == (Some((cursor, cursor + 3)), None)
                    || (batch, mine) == (None, Some(cursor)),
                "{batch:?} {mine:?}"
            );
        });
    }

    #[test]
    fn two_issuers_in_a_fresh_tick() {
        loom::model(|| {
            let s = shared();
            reserve(&s, 5 * TICK, 200 * TICK);
            let fresh = G.fresh(Tick::new(6)).get();
            let other = spawn(&s, |s| issue(s, 6));
            let mut both = [issue(&s, 6).unwrap(), other.join().unwrap().unwrap()];
            both.sort_unstable();
            assert_eq!(both, [fresh, fresh + 1]);
        });
    }

    #[test]
    fn early_is_one_callers_work() {
        loom::model(|| {
            let s = shared();
            let (zero, none) = (Position::ZERO, Generation::NONE);
            let (bound, early) = (Position::new(100), Position::new(50));
            assert!(s.live.bounds().publish(zero, none, bound, early));
            let other = spawn(&s, |s| s.live.bounds().claim_prefetch(Position::new(60)));
            let mine = s.live.bounds().claim_prefetch(Position::new(61));
            assert!(mine != other.join().unwrap());
        });
    }
}

/// Generators that watch the wall clock, and those that change clocks.
mod watching {
    use super::*;

    struct Shared {
        generator: Generator,
        live: Live,
        /// The wall clock, in milliseconds.
        wall: AtomicI64,
        /// What the disk holds: the bound of the durable mark, and its clock.
        disk: AtomicI64,
    }

    /// A position: clock, tick, number within the tick.
    type Offset3 = (u64, u64, u64);

    /// 4 bits of time, 2 of clock, 2 of sequence; borrows a tick.
    fn generator(on_exhausted: OnExhausted) -> Generator {
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
                sequence_start: SequenceStart::Masked(0),
                ..Policy::DEFAULT
            },
        }
    }

    impl Shared {
        /// A generator that has just issued up to `cursor`, at this wall clock.
        fn new(on_exhausted: OnExhausted, cursor: Offset3, bound: u64, wall: i64) -> Self {
            let generator = generator(on_exhausted);
            let s = Self {
                generator,
                live: Live::new(zero()),
                wall: AtomicI64::new(wall),
                disk: AtomicI64::new(0),
            };
            let bound = s.at((cursor.0, bound, 0));
            s.disk.store(bound.get().cast_signed(), Ordering::Relaxed);
            s.live.cursor().raise(s.at(cursor));
            let (zero, far) = (Position::ZERO, Position::new(u64::MAX));
            assert!(s.live.bounds().publish(zero, Generation::NONE, bound, far));
            s.live.clock().start_at(UnixNanos::new(wall * MS));
            s
        }

        fn at(&self, (clock, tick, within): Offset3) -> Position {
            let layout = self.generator.layout;
            let offset = layout.offset_of(Tick::new(tick)).get() + within;
            layout.at(clock, Offset::new(offset))
        }

        fn offset(&self, position: Position) -> Offset3 {
            let layout = self.generator.layout;
            let tick = layout.tick_of(position).get();
            (layout.clock_of(position), tick, layout.within(position))
        }

        fn read_wall(&self) -> UnixNanos {
            UnixNanos::new(self.wall.load(Ordering::Acquire) * MS)
        }

        /// One attempt. An issued position lies below the mark on disk, which says that
        /// this clock is in force, or a later one.
        fn issue(&self) -> Result<Offset3, Step> {
            let step = self
                .live
                .issue::<true>(&self.generator, Generation::NONE, 1, self);
            let Step::Issue(IssuedRange { start, .. }) = step else {
                return Err(step);
            };
            let disk = self.disk.load(Ordering::Acquire).cast_unsigned();
            let (disk, offset) = (self.offset(Position::new(disk)), self.offset(start));
            assert!(
                offset.1 < disk.1 && offset.0 <= disk.0,
                "{offset:?} {disk:?}"
            );
            Ok(offset)
        }

        fn plan(
            &self,
            clock_history: ClockSeqHistory,
            cursor_from: Option<Offset3>,
            bound: u64,
        ) -> Plan {
            let reserved = self.at((clock_history.clock, bound, 0));
            let from = cursor_from.map(|offset| self.at(offset));
            let before = self.live.bounds().reserved();
            plan(
                from,
                before,
                reserved,
                Position::new(u64::MAX),
                clock_history,
            )
        }

        fn carry_out(&self, plan: &Plan, believes: Option<UnixNanos>) -> ClockSeqHistory {
            let write = |plan: &Plan| self.disk.store(plan.value, Ordering::Release);
            let believe = || {
                if let Some(wall) = believes {
                    self.live.clock().believe(wall);
                }
            };
            let (clock_history, published) =
                carry_out(plan, &self.generator, &self.live, write, believe);
            assert!(published);
            clock_history
        }
    }

    impl Clocks for Shared {
        fn wall(&self) -> UnixNanos {
            self.read_wall()
        }
        fn boot(&self) -> BootNanos {
            BootNanos::new(0)
        }
        fn read(&self) -> Reading {
            zero()
        }
    }

    /// What was issued in any interleaving.
    fn issued<const N: usize>(
        f: impl Fn() -> [Result<Offset3, Step>; N] + Sync + Send + 'static,
    ) -> BTreeSet<Offset3> {
        issued_within(3, f)
    }

    /// As [`issued`], where threads are interrupted up to this often.
    fn issued_within<const N: usize>(
        interruptions: usize,
        f: impl Fn() -> [Result<Offset3, Step>; N] + Sync + Send + 'static,
    ) -> BTreeSet<Offset3> {
        let all = explore(interruptions, move || f().map(Result::ok));
        all.into_iter().flatten().flatten().collect()
    }

    fn issuers<const N: usize>(s: &Arc<Shared>) -> [thread::JoinHandle<Result<Offset3, Step>>; N] {
        [(); N].map(|()| spawn(s, Shared::issue))
    }

    fn differ(one: Result<Offset3, Step>, other: Result<Offset3, Step>) {
        assert!(one.is_err() || one != other, "twice: {one:?}");
    }

    #[test]
    fn two_issuers_and_a_change_of_clocks() {
        let seen = issued(|| {
            // Clock 0 is at tick 5 when the wall clock goes back to 3.
            let s = Arc::new(Shared::new(OnExhausted::Wait, (0, 5, 1), 9, 5));
            let issuers = issuers::<2>(&s);
            s.wall.store(3, Ordering::Release);
            let before = ClockSeqHistory::FRESH;
            let (now, reached) = (Tick::new(3), Tick::new(6));
            let next = before.switch(now, reached, 4).unwrap();
            let plan = s.plan(next, Some((1, 3, 0)), 9);
            let clock_history = s.carry_out(&plan, Some(s.read_wall()));
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            let [_, _, others_before] = clock_history.parts();
            for (clock, tick, _) in [one, other].into_iter().flatten() {
                // The clock history knows how far the old clock has come.
                assert!(
                    clock == 1 || tick < others_before,
                    "{tick}: {clock_history:?}"
                );
                // An issuer that saw the clock set back has no ID of the old clock.
                assert!(tick != 3 || clock == 1);
            }
            assert_eq!(s.live.clock().latest(), UnixMillis::new(3));
            assert!(s.offset(s.live.cursor().position()).0 == 1);
            [one, other]
        });
        assert_eq!(seen, [(0, 5, 1), (0, 5, 2), (1, 3, 0), (1, 3, 1)].into());
    }

    #[test]
    fn clocks_go_around_while_one_issues() {
        let seen = issued(|| {
            // With two clocks left, back to the clock that was in force when the issuer
            // came: neither an old bound nor an old cursor allows anything.
            let s = Arc::new(Shared::new(OnExhausted::Wait, (2, 5, 1), 9, 5));
            let [issuer] = issuers(&s);
            s.wall.store(3, Ordering::Release);
            let there = ClockSeqHistory::unknown(3, Tick::new(0));
            let plan = s.plan(there, Some((3, 3, 0)), 9);
            let _ = s.carry_out(&plan, Some(s.read_wall()));
            s.wall.store(7, Ordering::Release);
            let back = ClockSeqHistory::unknown(2, Tick::new(0));
            let plan = s.plan(back, Some((2, 7, 0)), 9);
            // For the assertion that the disk is not behind the bound.
            let plan = Plan {
                value: s.at((3, 9, 0)).get().cast_signed(),
                ..plan
            };
            let _ = s.carry_out(&plan, Some(s.read_wall()));
            let issued = issuer.join().unwrap();
            // The next ID is a new one.
            let next = s.issue();
            differ(next, issued);
            assert!(matches!(next, Ok((2, 7, 0 | 1))), "{next:?}");
            [issued]
        });
        assert_eq!(seen, [(2, 5, 1), (2, 7, 0), (3, 3, 0), (3, 7, 0)].into());
    }

    #[test]
    fn two_issuers_and_a_start_at_a_mark() {
        let seen = issued(|| {
            let s = Shared {
                live: Live::new(zero()),
                disk: AtomicI64::new(0),
                ..Shared::new(OnExhausted::Wait, (0, 0, 0), 0, 3)
            };
            let s = Arc::new(s);
            let issuers = issuers::<2>(&s);
            // The mark is at 9, in clock 1; the wall clock says 3.
            let plan = s.plan(
                ClockSeqHistory::unknown(1, Tick::new(9)),
                Some((1, 9, 0)),
                12,
            );
            s.live
                .clock()
                .lead_to(BootNanos::new(0), UnixNanos::new(9 * MS));
            s.live.clock().start_at(s.read_wall());
            let _ = s.carry_out(&plan, None);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            [one, other]
        });
        assert_eq!(seen, [(1, 9, 0), (1, 9, 1)].into());
    }

    #[test]
    fn two_issuers_and_a_reserver_that_extends() {
        let seen = issued(|| {
            // Room for one more ID below the old bound.
            let s = Arc::new(Shared::new(OnExhausted::Wait, (1, 5, 3), 6, 5));
            let issuers = issuers::<2>(&s);
            let clock_history = ClockSeqHistory::unknown(1, Tick::new(0));
            let _ = s.carry_out(&s.plan(clock_history, None, 7), None);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            assert!(one.is_ok() || other.is_ok());
            [one, other]
        });
        assert_eq!(seen, [(1, 5, 3), (1, 6, 0)].into());
    }

    #[test]
    fn two_issuers_and_one_who_takes_further_clocks() {
        let seen = issued(|| {
            let s = Shared::new(OnExhausted::NextClock, (1, 5, 4), 9, 5);
            s.live
                .bounds()
                .set_clock_seq_span(ClockSeqSpan { now: 1, max: 4 });
            let s = Arc::new(s);
            let issuers = issuers::<2>(&s);
            let clock_history = ClockSeqHistory::unknown(1, Tick::new(0));
            let wider = s.generator.widen(&s.live, clock_history);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            assert_eq!(wider.unwrap().together, 2);
            for step in [one, other] {
                assert!(step.is_ok() || step == Err(Step::Widen), "{step:?}");
            }
            [one, other]
        });
        assert_eq!(seen, [(1, 5, 4), (1, 5, 5)].into());
    }

    /// Two issuers while a reserver gives clocks back; the cursor is at a number of a
    /// tick.
    fn narrowed(within: u64) -> BTreeSet<Offset3> {
        // Interrupted three times, they issue the same, and take a minute longer.
        issued_within(2, move || {
            let s = Shared::new(OnExhausted::NextClock, (1, 5, within), 9, 5);
            let clock_history = ClockSeqHistory::unknown(1, Tick::new(0)).widen(Tick::new(4), 4);
            s.live
                .bounds()
                .set_clock_seq_span(ClockSeqSpan { now: 2, max: 2 });
            let s = Arc::new(s);
            let issuers = issuers::<2>(&s);
            let plan = s.plan(clock_history, None, 9);
            let clock_history = s.carry_out(&plan, None);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            // In another clock than the first of the two: not where the clock history says
            // that it is free.
            let [_, known_from, _] = clock_history.parts();
            for (_, tick, within) in [one, other].into_iter().flatten() {
                assert!(
                    within < 4 || tick < known_from,
                    "{tick} {within}: {clock_history:?}"
                );
            }
            assert_eq!(clock_history.together, 1);
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
        let seen = issued(|| {
            let s = Arc::new(Shared::new(OnExhausted::Wait, (0, 5, 1), 9, 6));
            s.live.clock().believe(UnixNanos::new(5 * MS));
            let issuers = issuers::<2>(&s);
            // Set back, found, and believed.
            s.wall.store(3, Ordering::Release);
            s.live.clock().believe(s.read_wall());
            let issued = issuers.map(|issuer| issuer.join().unwrap());
            assert_eq!(s.live.clock().latest(), UnixMillis::new(3));
            issued
        });
        assert!(seen.contains(&(0, 6, 0)), "{seen:?}");
    }

    #[test]
    fn a_clock_that_goes_on_is_no_rollback() {
        let seen = issued(|| {
            let s = Arc::new(Shared::new(OnExhausted::Wait, (0, 5, 1), 9, 5));
            let issuers = issuers::<2>(&s);
            s.wall.store(6, Ordering::Release);
            let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
            differ(one, other);
            assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
            [one, other]
        });
        assert_eq!(seen, [(0, 5, 1), (0, 5, 2), (0, 6, 0), (0, 6, 1)].into());
    }
}

/// Slots that are given from one generator to another.
mod eviction {
    use super::*;

    #[test]
    fn a_pin_and_an_eviction_exclude_each_other() {
        explore(4, || {
            let slot = Arc::new(Slot::new(zero(), 0));
            assert!(slot.evict(1, zero(), 0));
            slot.unpin();
            let pinners = [1, 2].map(|key| {
                spawn(&slot, move |slot| {
                    let pinned = slot.pin(key);
                    if pinned {
                        assert_eq!(slot.key(), key);
                        slot.unpin();
                    }
                })
            });
            let evicted = slot.evict(2, zero(), 0);
            if evicted {
                assert_eq!(slot.key(), 2);
                assert!(slot.pin(2), "a second pin of the new owner");
                slot.unpin();
                slot.unpin();
            } else {
                assert_eq!(slot.key(), 1);
            }
            for pinner in pinners {
                pinner.join().unwrap();
            }
            // It is no longer pinned.
            assert!(slot.evict(3, zero(), 0));
        });
    }
}

/// A sequence is rewritten, and a savepoint undoes that, while others issue.
mod rewrites {
    use super::plain::{G, TICK, tick};
    use super::*;
    use crate::protocol::slot::Scale;

    /// That of a slot which is [`settled`].
    const FILE: u32 = 7;

    fn issue(slot: &Slot) -> Step {
        slot.live()
            .issue::<false>(&G, Generation::NONE, 1, &tick(5))
    }

    #[test]
    fn an_undone_rewrite_leaves_no_bound_to_a_session_that_has_looked_before() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let all = seen.clone();
        loom::model(move || {
            let (slot, scale) = (Arc::new(settled(&G)), Scale::of_generator(&G));
            let bound = Position::new(9 * TICK);
            let (zero, none) = (Position::ZERO, Generation::NONE);
            assert!(slot.live().bounds().publish(zero, none, bound, bound));
            let other = spawn(&slot, move |slot| {
                slot.is_settled(FILE, scale).then(|| issue(slot))
            });
            assert!(slot.is_settled(FILE, scale));
            slot.end_rewrite(false);
            // This session has looked before, and comes to issue only now.
            let mine = issue(&slot);
            assert!(matches!(mine, Step::Reserve { .. }), "{mine:?}");
            let other = other.join().unwrap();
            all.lock().unwrap().insert(match other {
                None => "looked after it",
                Some(Step::Reserve { .. }) => "looked before it",
                Some(_) => "issued before it",
            });
        });
        let all = ["issued before it", "looked after it", "looked before it"];
        assert_eq!(*seen.lock().unwrap(), all.into());
    }
}

/// A slot that comes to another tenure of its server, or is closed, while others
/// issue.
mod tenures {
    use super::super::scaffold::{first, second};
    use super::plain::{G, TICK, tick};
    use super::*;
    use crate::protocol::slot::Reserving;

    /// The bound of the first tenure, in ticks.
    const FIRST: u64 = 6;
    const SECOND: u64 = 8;

    /// A slot of the first tenure, with IDs up to a number within tick 5.
    fn slot(within: u64) -> Slot {
        let slot = settled(&G);
        let cursor = Position::new(5 * TICK + within);
        reserve(&slot, Position::ZERO, first(), Some(cursor), FIRST);
        slot
    }

    /// A reserver that has seen the bound `before` carries out its plan.
    fn reserve(
        slot: &Slot,
        before: Position,
        tenure: Tenure,
        cursor_from: Option<Position>,
        to: u64,
    ) -> bool {
        let (token, to) = (Reserving::the_lock_is_held(), Position::new(to * TICK));
        let mark = G.layout.instant_of(G.layout.tick_of(to));
        let plan = Plan {
            mark,
            tenure,
            ..plan(cursor_from, before, to, to, ClockSeqHistory::FRESH)
        };
        let write = |plan: &Plan| slot.set_highest(&token, plan.mark);
        carry_out(&plan, &G, slot.live(), write, || {}).1
    }

    fn issue(slot: &Slot, mine: Tenure, now: i64) -> Option<u64> {
        match slot
            .live()
            .issue::<false>(&G, mine.generation, 1, &tick(now))
        {
            Step::Issue(IssuedRange { start, .. }) => Some(start.get()),
            _ => None,
        }
    }

    /// An issuer of each tenure, while the slot comes from the first to the second.
    /// One adds to the cursor, the other finds a fresh tick.
    #[test]
    fn each_id_is_issued_for_the_tenure_of_its_bound() {
        for now in [5, 7] {
            let seen = explore(2, move || {
                let slot = Arc::new(slot(9));
                let issuers = [first(), second()]
                    .map(|mine| spawn(&slot, move |slot| issue(slot, mine, now)));
                let before = slot.live().bounds().reserved();
                let from = Some(Position::new(FIRST * TICK));
                assert!(reserve(&slot, before, second(), from, SECOND));
                let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
                assert!(one.is_none_or(|at| at < FIRST * TICK), "{one:?}");
                let its = FIRST * TICK..SECOND * TICK;
                assert!(other.is_none_or(|at| its.contains(&at)), "{other:?}");
                (one.is_some(), other.is_some())
            });
            let both = [(false, false), (false, true), (true, false), (true, true)];
            let expected = if now == 5 { &both[..] } else { &both[..2] };
            assert_eq!(seen, expected.iter().copied().collect());
        }
    }

    /// Nothing is issued from the end on that closing has returned.
    #[test]
    fn nothing_is_issued_after_a_slot_was_closed() {
        for now in [4, 5] {
            // A fresh tick: compare-and-swap. In the cursor's tick: addition.
            let within = if now == 4 { 0 } else { 9 };
            let seen = explore(2, move || {
                let slot = Arc::new(slot(within));
                let issuer = spawn(&slot, move |slot| issue(slot, first(), now));
                let before = slot.live().bounds().reserved();
                let reserver = spawn(&slot, move |slot| {
                    reserve(slot, before, first(), None, SECOND)
                });
                let end = slot.close().unwrap();
                let issued = issuer.join().unwrap();
                let published = reserver.join().unwrap();
                let begins = |at| G.layout.instant_of(G.layout.tick_of(Position::new(at)));
                assert!(issued.is_none_or(|at| begins(at) < end), "{issued:?}");
                let later = issue(&slot, first(), now + 1);
                assert_eq!(later, None, "published: {published}");
                (issued.is_some(), published)
            });
            assert_eq!(seen.len(), 4, "{seen:?}");
        }
    }

    /// A bound that was voided before is in the hands of an issuer still.
    #[test]
    fn nothing_is_issued_below_a_voided_bound_after_a_slot_was_closed() {
        let seen = explore(2, || {
            let slot = Arc::new(slot(9));
            let cursor = slot.live().cursor().position();
            let issuer = spawn(&slot, move |slot| issue(slot, first(), 5));
            slot.unsettle();
            let _ = slot.close();
            // All that was issued below the bound is known by now.
            let raised = slot.live().cursor().position();
            assert!(raised.get() >= FIRST * TICK);
            let issued = issuer.join().unwrap();
            assert!(issued.is_none_or(|at| at == cursor.get()));
            assert!(slot.live().cursor().position().get() <= raised.get() + 1);
            issued.is_some()
        });
        assert_eq!(seen, [false, true].into());
    }

    /// A reserver that saw zero, which a rewrite leaves, does not open a closed slot.
    #[test]
    fn a_rewrite_leaves_a_closed_slot_closed() {
        let seen = explore(2, || {
            let slot = Arc::new(slot(9));
            slot.unsettle();
            let reserver = spawn(&slot, move |slot| {
                reserve(slot, Position::ZERO, first(), None, SECOND)
            });
            let _ = slot.close();
            slot.unsettle();
            let published = reserver.join().unwrap();
            assert_eq!(issue(&slot, first(), 6), None);
            published
        });
        assert_eq!(seen, [false, true].into());
    }
}
