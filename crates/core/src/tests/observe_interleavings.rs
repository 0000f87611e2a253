//! Every interleaving of a session that observes an ID with issuers, a reserver and the one that
//! closes the slot, explored by loom on the production steps: [`Live::pass`],
//! [`Live::issue`], and [`Planned`] to published.

use std::collections::BTreeSet;

use loom::sync::Arc;

use super::super::clock::Reading;
use super::super::clock_seq::ClockSeqHistory;
use super::super::cursor::{Clocks, Issued, Pass, Step};
use super::super::generator::Generator;
use super::super::id::{BootNanos, Position, Tick, UnixMillis, UnixNanos};
use super::super::plan::Plan;
use super::super::policy::{OnRollback, Policy, SequenceStart};
use super::super::slot::{Reserving, Slot};
use super::super::sync::{AtomicI64, AtomicU64, Ordering};
use super::super::tenure::{Generation, Tenure};
use super::scaffold::{self, MS, carry_out, first, plan, second, settled, spawn, zero};

/// Four IDs a tick; borrows two ticks. The clock agrees with the boot clock.
fn generator(on_rollback: OnRollback) -> Generator {
    let policy = Policy {
        on_rollback,
        max_borrow_ticks: 2,
        sequence_start: SequenceStart::vibrate(1),
        ..Policy::DEFAULT
    };
    scaffold::generator(2, policy)
}

/// The first position of a tick.
const fn at(tick: u64) -> u64 {
    tick << 2
}

struct Shared {
    generator: Generator,
    slot: Slot,
    /// The durable mark, as a position.
    mark: AtomicU64,
    /// In milliseconds.
    wall: AtomicI64,
    /// The first tick that may be issued, as an observer has brought about.
    from: AtomicU64,
}

impl Clocks for &Shared {
    fn wall(&self) -> UnixNanos {
        UnixNanos::new(self.wall.load(Ordering::Acquire) * MS)
    }
    fn boot(&self) -> BootNanos {
        BootNanos::new(self.wall.load(Ordering::Acquire) * MS)
    }
    fn read(&self) -> Reading {
        zero()
    }
}

impl Shared {
    /// The cursor is at a position, and the bound at a tick, for the first tenure.
    fn new(on_rollback: OnRollback, cursor: u64, bound: u64, wall: i64) -> Arc<Self> {
        let generator = generator(on_rollback);
        let shared = Self {
            generator,
            slot: settled(&generator),
            mark: AtomicU64::new(0),
            wall: AtomicI64::new(wall),
            from: AtomicU64::new(0),
        };
        if bound > 0 {
            assert!(shared.reserve(first(), Some(cursor), bound));
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

    /// One attempt. What is issued lies below the mark on disk, and after all that had been
    /// observed before.
    fn issue(&self, mine: Generation) -> Option<u64> {
        let from = self.from.load(Ordering::Acquire);
        let live = self.slot.live();
        let step = match self.generator.policy.on_rollback.watches() {
            true => live.issue::<true>(&self.generator, mine, 1, &self),
            false => live.issue::<false>(&self.generator, mine, 1, &self),
        };
        let Step::Issue(Issued { start, end, .. }) = step else {
            return None;
        };
        assert!(
            end.get() <= self.mark.load(Ordering::Acquire),
            "past the mark"
        );
        assert!(start.get() >= at(from), "{start:?}, tick {from} on");
        Some(start.get())
    }

    /// One attempt. The cursor is never raised past the mark, or the borrow window.
    fn observe(&self, tick: u64) -> Pass {
        let live = self.slot.live();
        let now = self.wall.load(Ordering::Acquire).cast_unsigned();
        let pass = match self.generator.policy.on_rollback.watches() {
            true => live.pass::<true>(&self.generator, Tick::new(tick), &self),
            false => live.pass::<false>(&self.generator, Tick::new(tick), &self),
        };
        if let Pass::Raised(to) = pass {
            assert!(
                to.get() <= self.mark.load(Ordering::Acquire),
                "past the mark"
            );
            assert!(to.get() <= at(now + 3), "past the borrow window");
        }
        if matches!(pass, Pass::Past | Pass::Raised(_)) {
            assert!(live.cursor().position().get() >= at(tick + 1));
            assert!(self.mark.load(Ordering::Acquire) >= at(tick + 1));
            self.from.store(tick + 1, Ordering::Release);
        }
        pass
    }
}

fn explore<T: Ord + Send + 'static>(f: impl Fn() -> T + Sync + Send + 'static) -> BTreeSet<T> {
    scaffold::explore(2, f)
}

fn is_done(pass: Pass) -> bool {
    matches!(pass, Pass::Past | Pass::Raised(_))
}

/// One adds to the cursor, the other finds a fresh tick, or both add; the observer then takes
/// an ID itself.
#[test]
fn two_issuers_and_one_who_observes() {
    for (cursor, now) in [(at(5) + 3, 5_i64), (at(5) + 3, 6), (at(6) + 1, 5)] {
        for ahead in [0, 1, 2] {
            let tick = now.cast_unsigned() + ahead;
            let seen = explore(move || {
                let s = Shared::new(OnRollback::Continue, cursor, 20, now);
                let mine = first().generation;
                let issuers = [(); 2].map(|()| spawn(&s, move |s| s.issue(mine)));
                let pass = s.observe(tick);
                assert!(is_done(pass), "{pass:?}");
                let its = s.issue(mine);
                let [one, other] = issuers.map(|issuer| issuer.join().unwrap());
                let issued = [one, other, its];
                let ids: BTreeSet<_> = issued.iter().flatten().collect();
                assert_eq!(ids.len(), issued.iter().flatten().count(), "{issued:?}");
                // There is room but at the end of the borrow window.
                assert!(ahead == 2 || its.is_some());
                (one.is_some(), other.is_some(), pass == Pass::Past)
            });
            assert!(seen.len() > 1 || ahead < 2, "{seen:?}");
        }
    }
}

/// The bound moves from below the next tick to past it.
#[test]
fn an_issuer_an_observer_and_a_reserver_that_extends() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Continue, at(5) + 2, 6, 5);
        let mine = first().generation;
        let issuer = spawn(&s, move |s| [s.issue(mine), s.issue(mine)]);
        let observer = spawn(&s, |s| s.observe(6));
        assert!(s.reserve(first(), None, 9));
        let ([one, other], pass) = (issuer.join().unwrap(), observer.join().unwrap());
        assert!(one.is_none() || one != other, "twice: {one:?}");
        // Later calls have to obey it. Issuers that met a limit have skipped some.
        let later = s.issue(mine);
        assert!(
            later.is_none() || later != one && later != other,
            "twice: {later:?}"
        );
        let is_waiting = pass
            == Pass::Needs(Step::Reserve {
                through: Tick::new(7),
            });
        assert!(is_waiting || pass == Pass::Raised(Position::new(at(7) + 1)));
        (is_waiting, other.is_some_and(|at| at >= 28))
    });
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// A start at a mark: nothing may be allowed by the cursor alone.
#[test]
fn an_observer_and_a_start_at_a_mark() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Continue, 0, 0, 5);
        let mine = first().generation;
        let issuer = spawn(&s, move |s| s.issue(mine));
        let observer = spawn(&s, |s| s.observe(6));
        // The cursor is raised first, and the bound published last.
        assert!(s.reserve(first(), Some(at(9)), 12));
        let (issued, pass) = (issuer.join().unwrap(), observer.join().unwrap());
        assert!(issued.is_none_or(|position| position >= at(9)));
        // It is never the observer who moves the cursor there.
        assert!(
            matches!(pass, Pass::Past | Pass::Needs(Step::Reserve { .. })),
            "{pass:?}"
        );
        is_done(pass)
    });
    assert_eq!(seen, [false, true].into());
}

/// The slot comes to another tenure while sessions of both issue, and one of the first
/// observes.
#[test]
fn an_observer_while_the_slot_comes_to_another_tenure() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Continue, at(5) + 1, 7, 5);
        let issuer = spawn(&s, |s| s.issue(second().generation));
        let observer = spawn(&s, |s| (s.observe(6), s.issue(first().generation)));
        assert!(s.reserve(second(), Some(at(7)), 10));
        let (theirs, (pass, its)) = (issuer.join().unwrap(), observer.join().unwrap());
        assert!(theirs.is_none_or(|position| position >= at(7)));
        assert!(its.is_none_or(|position| position < at(7)));
        (is_done(pass), theirs.is_some())
    });
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// Closing a slot tells where IDs end, whatever is observed at that time.
#[test]
fn an_observer_while_the_slot_is_closed() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Continue, at(5) + 1, 9, 5);
        let observer = spawn(&s, |s| s.observe(6));
        let issuer = spawn(&s, |s| s.issue(first().generation));
        let end = s.slot.close().unwrap();
        let (pass, issued) = (observer.join().unwrap(), issuer.join().unwrap());
        assert!(issued.is_none_or(|position| UnixMillis::new((position >> 2).cast_signed()) < end));
        assert_eq!(s.issue(first().generation), None);
        assert!(s.slot.live().cursor().position().get() >= at(9));
        (is_done(pass), issued.is_some())
    });
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// For a generator that watches the wall clock: one that is set back afterwards is found
/// to be behind, and no call waits for it as for the next tick.
#[test]
fn an_observer_of_a_clock_that_is_set_back() {
    let seen = explore(|| {
        let s = Shared::new(OnRollback::Error, at(5) + 1, 12, 5);
        s.slot.clock().start_at(UnixNanos::new(5 * MS));
        s.wall.store(8, Ordering::Release);
        let mine = first().generation;
        let issuer = spawn(&s, move |s| s.issue(mine));
        let pass = s.observe(10);
        assert_eq!(pass, Pass::Raised(Position::new(at(11))));
        s.wall.store(7, Ordering::Release);
        let live = s.slot.live();
        let step = live.issue::<true>(&s.generator, mine, 1, &&*s);
        assert!(matches!(step, Step::RolledBack { .. }), "{step:?}");
        issuer.join().unwrap()
    });
    assert!(seen.len() > 1, "{seen:?}");
}
