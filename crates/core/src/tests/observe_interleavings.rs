//! Every interleaving of a session that observes an ID with issuers, a reserver and the one that
//! closes the slot, explored by loom on the production steps: [`Live::exceeds`],
//! [`Live::raise_past`], [`Live::issue`], and [`NewPlan`] to published.

use std::collections::BTreeSet;

use loom::sync::Arc;

use super::scaffold::{self, MS, carry_out, first, plan, second, settled, spawn};
use crate::id::{BootNanos, Position, SnowflakeId, Tick, UnixMillis, UnixNanos, WorkerId};
use crate::label::generator::Generator;
use crate::label::policy::{OnRollback, Policy, SequenceStart};
use crate::protocol::clock::Reading;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{Clocks, IssuedRange, Step};
use crate::protocol::plan::Plan;
use crate::protocol::slot::{Reserving, Slot};
use crate::protocol::tenure::{Generation, Tenure};
use crate::sync::{AtomicI64, AtomicU64, Ordering};

/// The first position of a tick, of which each has four.
const fn at(tick: u64) -> u64 {
    tick << 2
}

struct Shared {
    generator: Generator,
    slot: Slot,
    /// The durable mark, as a position.
    mark: AtomicU64,
    /// In milliseconds. The boot clock agrees.
    wall: AtomicI64,
    /// The greatest ID that was observed.
    seen: AtomicI64,
}

impl Clocks for &Shared {
    fn wall(&self) -> UnixNanos {
        UnixNanos::new(self.wall.load(Ordering::Acquire) * MS)
    }
    fn boot(&self) -> BootNanos {
        BootNanos::new(self.wall().get())
    }
    fn read(&self) -> Reading {
        Reading {
            boot: self.boot(),
            wall: self.wall(),
        }
    }
}

impl Shared {
    /// The cursor is at a position, and the bound at a tick, for a tenure. Borrows two ticks.
    fn new(on_rollback: OnRollback, tenure: Tenure, cursor: u64, to: u64, wall: i64) -> Arc<Self> {
        let policy = Policy {
            on_rollback,
            max_borrow_ticks: 2,
            sequence_start: SequenceStart::vibrate(1),
            ..Policy::DEFAULT
        };
        let generator = scaffold::generator(2, policy);
        let shared = Self {
            generator,
            slot: settled(&generator),
            mark: AtomicU64::new(0),
            wall: AtomicI64::new(wall),
            seen: AtomicI64::new(-1),
        };
        if to > 0 {
            assert!(shared.reserve(tenure, Some(cursor), to));
        }
        Arc::new(shared)
    }

    fn reserve(&self, tenure: Tenure, cursor_from: Option<u64>, to: u64) -> bool {
        let (live, reserved) = (self.slot.live(), Position::new(at(to)));
        let (from, before) = (cursor_from.map(Position::new), live.bounds().reserved());
        let plan = Plan {
            mark: UnixMillis::new(to.cast_signed()),
            tenure,
            ..plan(from, before, reserved, reserved, ClockSeqHistory::FRESH)
        };
        let write = |plan: &Plan| {
            let value = plan.value.cast_unsigned();
            self.mark.store(value, Ordering::Release);
            let token = Reserving::the_lock_is_held();
            self.slot.set_highest(&token, plan.mark);
        };
        carry_out(&plan, &self.generator, live, write, || {}).1
    }

    /// The ID of a server with this worker ID.
    fn id(&self, tick: u64, worker: i64, sequence: i64) -> SnowflakeId {
        let layout = self.generator.layout;
        layout.encode(Tick::new(tick), worker, sequence).unwrap()
    }

    fn step(&self, mine: Generation) -> Step {
        let live = self.slot.live();
        match self.generator.policy.on_rollback.watches() {
            true => live.issue::<true>(&self.generator, mine, 1, &self),
            false => live.issue::<false>(&self.generator, mine, 1, &self),
        }
    }

    /// One attempt. What is issued lies below the mark on disk, and sorts after all that had been
    /// observed before.
    fn issue(&self, mine: Generation) -> Option<u64> {
        let seen = self.seen.load(Ordering::Acquire);
        let Step::Issue(IssuedRange { start, end, .. }) = self.step(mine) else {
            return None;
        };
        let mark = self.mark.load(Ordering::Acquire);
        assert!(end.get() <= mark, "past the mark");
        let layout = self.generator.layout;
        let id = layout.compose(start, layout.stamp(mine.worker().unwrap()).unwrap());
        assert!(id.get() > seen, "{id:?} after {seen}");
        Some(start.get())
    }

    /// One attempt: to where the cursor was raised, or nowhere; or what must happen first. It is
    /// never raised past the mark, or the borrow window.
    fn observe(&self, mine: Generation, id: SnowflakeId) -> Result<Option<u64>, Step> {
        let (live, generator) = (self.slot.live(), &self.generator);
        let tick = generator.layout.tick_of_id(id);
        let now = self.wall.load(Ordering::Acquire).cast_unsigned();
        let raised = if live.exceeds(generator, mine, (id, tick), &self) {
            None
        } else if generator.policy.on_rollback.watches() {
            Some(live.raise_past::<true>(generator, tick, &self)?.get())
        } else {
            Some(live.raise_past::<false>(generator, tick, &self)?.get())
        };
        let mark = self.mark.load(Ordering::Acquire);
        assert!(
            at(tick.get() + 1).max(raised.unwrap_or(0)) <= mark,
            "past the mark"
        );
        assert!(raised <= Some(at(now + 3) + 1), "past the borrow window");
        self.seen.store(id.get(), Ordering::Release);
        Ok(raised)
    }
}

fn explore<T: Ord + Send + 'static>(f: impl Fn() -> T + Sync + Send + 'static) -> BTreeSet<T> {
    scaffold::explore(2, f)
}

/// One adds to the cursor, the other finds a fresh tick, or both add; the observer then takes
/// an ID itself.
#[test]
fn two_issuers_and_one_who_observes() {
    for (cursor, now) in [(at(5) + 3, 5_i64), (at(5) + 3, 6), (at(6) + 1, 5)] {
        for ahead in [0, 1, 2] {
            let tick = now.cast_unsigned() + ahead;
            let seen = explore(move || {
                let s = Shared::new(OnRollback::Continue, first(), cursor, 20, now);
                let mine = first().generation;
                let issuers = [(); 2].map(|()| spawn(&s, move |s| s.issue(mine)));
                let raised = s.observe(mine, s.id(tick, 3, 0)).unwrap();
                let its = s.issue(mine);
                let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
                let issued = [one, other, its];
                let ids: BTreeSet<_> = issued.iter().flatten().collect();
                assert_eq!(ids.len(), issued.iter().flatten().count(), "{issued:?}");
                // There is room but at the end of the borrow window.
                assert!(ahead == 2 || its.is_some());
                (one.is_some(), other.is_some(), raised.is_none())
            });
            assert!(seen.len() > 1 || ahead < 2, "{seen:?}");
        }
    }
}

/// The bound moves from below the next tick to past it.
#[test]
fn an_issuer_an_observer_and_a_reserver_that_extends() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Continue, first(), at(5) + 2, 6, 5);
        let mine = first().generation;
        let issuer = spawn(&s, move |s| [s.issue(mine), s.issue(mine)]);
        let observer = spawn(&s, move |s| s.observe(mine, s.id(6, 3, 0)));
        assert!(s.reserve(first(), None, 9));
        let ([one, other], raised) = (issuer.join().unwrap(), observer.join().unwrap());
        assert!(one.is_none() || one != other, "twice: {one:?}");
        // Later calls have to obey it. Issuers that met a limit have skipped some.
        let later = s.issue(mine);
        let is_new = later != one && later != other;
        assert!(later.is_none() || is_new, "twice: {later:?}");
        let through = Tick::new(7);
        let is_waiting = raised == Err(Step::Reserve { through });
        assert!(is_waiting || raised == Ok(Some(at(7) + 1)));
        (is_waiting, other.is_some_and(|at| at >= 28))
    });
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// The slot comes to another tenure while sessions of both issue, and one of them observes: an ID
/// that lies ahead, or one that the tick at hand exceeds under one of the two worker IDs.
#[test]
fn an_observer_while_the_slot_comes_to_another_tenure() {
    let third = second().unregistered(WorkerId::new(0));
    for (before, after, observes, (tick, worker, sequence)) in [
        (first(), second(), first(), (6, 3, 0)),
        (first(), second(), second(), (5, 0, 3)),
        (second(), third, second(), (7, 0, 3)),
    ] {
        let seen = explore(move || {
            let s = Shared::new(OnRollback::Continue, before, at(5) + 1, 7, 5);
            let issuer = spawn(&s, move |s| s.issue(after.generation));
            let observer = spawn(&s, move |s| {
                let raised = s.observe(observes.generation, s.id(tick, worker, sequence));
                (raised, s.issue(before.generation))
            });
            assert!(s.reserve(after, Some(at(7)), 10));
            let (theirs, (raised, its)) = (issuer.join().unwrap(), observer.join().unwrap());
            assert!(theirs.is_none_or(|position| position >= at(7)));
            assert!(its.is_none_or(|position| position < at(7)));
            let later = s.issue(after.generation);
            assert!(later.is_none() || later != theirs, "twice: {later:?}");
            (raised.is_ok(), theirs.is_some(), its.is_some())
        });
        assert!(seen.len() > 2, "{seen:?}");
    }
}

/// Closing a slot tells where IDs end, whatever is observed at that time.
#[test]
fn an_observer_while_the_slot_is_closed() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Continue, first(), at(5) + 1, 9, 5);
        let mine = first().generation;
        let observer = spawn(&s, move |s| s.observe(mine, s.id(6, 3, 0)));
        let issuer = spawn(&s, move |s| s.issue(mine));
        let end = s.slot.close().unwrap();
        let (raised, issued) = (observer.join().unwrap(), issuer.join().unwrap());
        assert!(issued.is_none_or(|position| UnixMillis::new((position >> 2).cast_signed()) < end));
        assert_eq!(s.issue(mine), None);
        assert!(s.slot.live().cursor().position().get() >= at(9));
        (raised.is_ok(), issued.is_some())
    });
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// For a generator that watches the wall clock: one that is set back afterwards is found
/// to be behind, and no call waits for it as for the next tick.
#[test]
fn an_observer_of_a_clock_that_is_set_back() {
    for tick in [6, 10] {
        let seen = explore(move || {
            let s = Shared::new(OnRollback::Error, first(), at(5) + 1, 12, 5);
            s.slot.clock().start_at(UnixNanos::new(5 * MS));
            s.wall.store(8, Ordering::Release);
            let mine = first().generation;
            let issuer = spawn(&s, move |s| s.issue(mine));
            assert!(s.observe(mine, s.id(tick, 3, 0)).is_ok());
            s.wall.store(7, Ordering::Release);
            let step = s.step(mine);
            assert!(matches!(step, Step::RolledBack { .. }), "{step:?}");
            issuer.join().unwrap()
        });
        assert!(seen.len() > 1, "{seen:?}");
    }
}

/// For one that does not: what its clock has left behind stays behind, though a reserver finds
/// the wall clock set back.
#[test]
fn an_observer_while_a_reserver_follows_a_clock_that_is_set_back() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Continue, first(), at(5) + 1, 12, 8);
        let mine = first().generation;
        let issuer = spawn(&s, move |s| s.issue(mine));
        let observer = spawn(&s, move |s| (s.observe(mine, s.id(7, 3, 0)), s.issue(mine)));
        s.slot.clock().anchor(Reading {
            boot: BootNanos::new(8 * MS),
            wall: UnixNanos::new(3 * MS),
        });
        let (issued, (raised, its)) = (issuer.join().unwrap(), observer.join().unwrap());
        assert_eq!(raised, Ok(None));
        assert!(its.is_some() && its != issued);
        issued
    });
    assert!(seen.len() > 1, "{seen:?}");
}
