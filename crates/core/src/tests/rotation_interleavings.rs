//! A generator that goes back in time under another worker ID, explored by loom on the
//! production steps: sessions of the old worker ID and of the new one, and the reserver.

use std::collections::BTreeSet;

use loom::sync::Arc;

use super::scaffold::{self, At, MS, carry_out, explore, first, plan, second, settled, spawn};
use crate::id::{Position, Tick, UnixMillis, UnixNanos};
use crate::label::generator::Generator;
use crate::label::policy::{OnRollback, Policy, SequenceStart};
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{IssuedRange, Step};
use crate::protocol::plan::Plan;
use crate::protocol::slot::{Reserving, Slot};
use crate::protocol::tenure::{Generation, Tenure};

fn generator() -> Generator {
    let policy = Policy {
        on_rollback: OnRollback::NextWorker,
        max_borrow_ticks: 1,
        sequence_start: SequenceStart::Masked(0),
        ..Policy::DEFAULT
    };
    scaffold::generator(1, policy)
}

/// The position of a tick in a rotation.
fn at(rotation: u64, tick: u64) -> Position {
    let layout = generator().layout;
    layout.at(rotation, layout.offset_of(Tick::new(tick)))
}

/// A reserver carries out its plan: from a position, to the tick in that rotation.
fn reserve(slot: &Slot, tenure: Tenure, from: Position, to: Position, believes: bool) -> bool {
    let before = slot.live().bounds().open();
    let plan = Plan {
        mark: UnixMillis::new(8),
        value: 8,
        believes,
        tenure,
        switches: believes,
        ..plan(Some(from), before, to, to, ClockSeqHistory::FRESH)
    };
    let write = |plan: &Plan| slot.set_highest(&Reserving::the_lock_is_held(), plan.mark);
    let believe = || {
        if believes {
            slot.clock().believe(UnixNanos::new(3 * MS));
        }
    };
    carry_out(&plan, &generator(), slot.live(), write, believe).1
}

/// One attempt of a session: its worker ID, tick and number.
fn issue(slot: &Slot, mine: Generation, now: i64) -> Option<(u32, u64, u64)> {
    let g = generator();
    let at = At { boot: 0, wall: now };
    match slot.live().issue::<true>(&g, mine, 1, &at) {
        Step::Issue(IssuedRange { start, .. }) => {
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

/// A session of the old worker ID that has loaded everything is stopped, the server closes and goes
/// back with the next one, and that one comes to the same tick and number. All IDs of the old one
/// lie before the end that the server tells.
#[test]
fn no_id_twice_when_a_generator_goes_back() {
    let seen = explore(3, || {
        let (old, new) = (first().generation, second().generation);
        let slot = Arc::new(settled(&generator()));
        assert!(reserve(&slot, first(), at(0, 4), at(0, 8), false));
        // The cursor is at number 0 of tick 4.
        let stopped = spawn(&slot, move |slot| issue(slot, old, 4));
        let mut issued = vec![];
        issued.extend(issue(&slot, old, 4));
        let end = slot.close().unwrap();
        assert!(reserve(&slot, second(), at(1, 3), at(1, 8), true));
        // Up to where the cursor was.
        for now in [3, 3, 4, 4] {
            issued.extend(issue(&slot, new, now));
        }
        let theirs = stopped.join().unwrap();
        issued.extend(theirs);
        let ids: BTreeSet<_> = issued.iter().collect();
        assert_eq!(ids.len(), issued.len(), "{issued:?}");
        let layout = generator().layout;
        let is_ended = |tick| layout.instant_of(Tick::new(tick)) < end;
        assert!(
            issued
                .iter()
                .all(|(worker, tick, _)| *worker == 1 || *tick >= 4 && is_ended(*tick))
        );
        theirs
    });
    // Before the one of the other session, after it, and not at all.
    assert_eq!(seen.len(), 3, "{seen:?}");
}
