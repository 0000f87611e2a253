//! A generator that goes back in time under another worker ID, explored by loom on the
//! production steps: sessions of the old worker ID and of the new one, and the reserver.

use std::collections::BTreeSet;
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::super::clock::Reading;
use super::super::clocks::Ledger;
use super::super::generator::Generator;
use super::super::id::{
    BootNanos, Millis, NANOS_PER_MILLI, Position, Tick, UnixMillis, UnixNanos, WorkerId,
};
use super::super::identity::{Generation, Identity};
use super::super::layout::{FieldRole, Layout};
use super::super::policy::{OnRollback, Policy, SequenceStart};
use super::super::reservation::{Plan, Planned};
use super::super::slot::{Reserving, Scale, Slot};
use super::super::word::{Clocks, Issued, Step};

/// Both clocks show a tick of a millisecond.
struct At(i64);

impl Clocks for At {
    fn wall(&self) -> UnixNanos {
        UnixNanos::new(self.0 * NANOS_PER_MILLI)
    }
    fn boot(&self) -> BootNanos {
        BootNanos::new(0)
    }
    fn read(&self) -> Reading {
        zero()
    }
}

fn zero() -> Reading {
    Reading {
        boot: BootNanos::new(0),
        wall: UnixNanos::new(0),
    }
}

fn generator() -> Generator {
    let fields = [
        (FieldRole::Time, 6),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 1),
    ];
    Generator {
        layout: Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap(),
        policy: Policy {
            on_rollback: OnRollback::NextWorker,
            max_borrow_ticks: 1,
            sequence_start: SequenceStart::Masked(0),
            ..Policy::DEFAULT
        },
    }
}

fn first() -> Identity {
    Identity::NONE.unregistered(WorkerId::new(0))
}

fn second() -> Identity {
    first().unregistered(WorkerId::new(1))
}

/// The position of a tick in a turn.
fn at(turn: u64, tick: u64) -> Position {
    let layout = generator().layout;
    layout.at(turn, layout.place_of(Tick::new(tick)))
}

/// A reserver carries out its plan: from a position, to the tick in that turn.
fn reserve(slot: &Slot, identity: Identity, from: Position, to: Position, believes: bool) -> bool {
    let (token, before) = (
        Reserving::the_lock_is_held(),
        slot.live().bounds().reserved(),
    );
    let g = generator();
    let plan = Plan {
        reading: At(3).read(),
        mark: UnixMillis::new(8),
        value: 8,
        clock_from: UnixNanos::new(0),
        word_from: Some(from),
        ledger: Ledger::FRESH,
        believes,
        leaves_gap: false,
        window: Millis::new(1),
        forgiven: Millis::ZERO,
        least: None,
        before,
        identity,
        reserved: to,
        early: to,
        starts: false,
        lead: Millis::ZERO,
        switches: believes,
    };
    let written = Planned::new(plan).write(|plan| {
        slot.set_highest(&token, plan.mark);
        Ok::<(), ()>(())
    });
    let moved = written.unwrap().move_word(&g, slot.live());
    if believes {
        slot.clock().believe(UnixNanos::new(3 * NANOS_PER_MILLI));
    }
    moved.publish(slot.live())
}

/// One attempt of a session: its worker ID, tick and number.
fn issue(slot: &Slot, mine: Generation, now: i64) -> Option<(u32, u64, u64)> {
    let g = generator();
    match slot.live().issue::<true>(&g, mine, 1, &At(now)) {
        Step::Issue(Issued { start, .. }) => {
            let worker = mine.worker().unwrap().get();
            Some((
                worker,
                g.layout.tick_of(start).get(),
                g.layout.within(start),
            ))
        }
        _ => None,
    }
}

/// A session of the old worker ID that has loaded everything is stopped, the generator goes
/// back with the next one, and that one comes to the same tick and number.
#[test]
fn no_id_twice_when_a_generator_goes_back() {
    let seen = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
    let all = seen.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let slot = Slot::new(zero(), 0);
        let scale = Scale::of_generator(&generator());
        slot.settle(&Reserving::the_lock_is_held(), 7, scale, zero());
        let (old, new) = (first().generation, second().generation);
        assert!(reserve(&slot, first(), at(0, 4), at(0, 8), false));
        // The word is at number 0 of tick 4.
        let slot = Arc::new(slot);
        let stopped = {
            let slot = slot.clone();
            thread::spawn(move || issue(&slot, old, 4))
        };
        let mut issued = vec![];
        issued.extend(issue(&slot, old, 4));
        assert!(reserve(&slot, second(), at(1, 3), at(1, 8), true));
        // Up to where the word was.
        for now in [3, 3, 4, 4] {
            issued.extend(issue(&slot, new, now));
        }
        let theirs = stopped.join().unwrap();
        issued.extend(theirs);
        let ids: BTreeSet<_> = issued.iter().collect();
        assert_eq!(ids.len(), issued.len(), "{issued:?}");
        assert!(
            issued
                .iter()
                .all(|(worker, tick, _)| *worker == 1 || *tick >= 4)
        );
        all.lock().unwrap().insert(theirs);
    });
    // Before the one of the other session, after it, and not at all.
    assert_eq!(seen.lock().unwrap().len(), 3, "{seen:?}");
}
