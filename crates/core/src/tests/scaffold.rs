//! What the tests by loom share: tenures, plans and a reserver that carries them out, threads,
//! and the exploration itself.

use std::collections::BTreeSet;

use loom::sync::Arc;
use loom::thread;

use crate::id::layout::{FieldRole, Layout};
use crate::id::{BootNanos, Millis, NANOS_PER_MILLI, Position, UnixMillis, UnixNanos, WorkerId};
use crate::label::generator::Generator;
use crate::label::policy::Policy;
use crate::protocol::clock::Reading;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{Clocks, Live};
use crate::protocol::plan::{NewPlan, Plan};
use crate::protocol::slot::{Reserving, Scale, Slot};
use crate::protocol::tenure::Tenure;

pub const MS: i64 = NANOS_PER_MILLI;

pub fn zero() -> Reading {
    Reading {
        boot: BootNanos::new(0),
        wall: UnixNanos::new(0),
    }
}

/// Clocks that show an instant, in milliseconds: of the boot clock, and of the wall clock.
pub struct At {
    pub boot: i64,
    pub wall: i64,
}

impl Clocks for At {
    fn wall(&self) -> UnixNanos {
        UnixNanos::new(self.wall * MS)
    }
    fn boot(&self) -> BootNanos {
        BootNanos::new(self.boot * MS)
    }
    fn read(&self) -> Reading {
        zero()
    }
}

/// 6 bits of time in milliseconds, 2 of worker ID.
pub fn generator(sequence_bits: u32, policy: Policy) -> Generator {
    let fields = [
        (FieldRole::Time, 6),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, sequence_bits),
    ];
    let layout = Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap();
    Generator { layout, policy }
}

pub fn first() -> Tenure {
    Tenure::NONE.unregistered(WorkerId::new(0))
}

pub fn second() -> Tenure {
    first().unregistered(WorkerId::new(1))
}

/// The slot of a generator, before its first reservation.
pub fn settled(generator: &Generator) -> Slot {
    let (slot, scale) = (Slot::new(zero(), 0), Scale::of_generator(generator));
    slot.settle(&Reserving::the_lock_is_held(), 7, scale, zero());
    slot
}

/// Makes a plan of these parts; the others make no difference here.
pub fn plan(
    cursor_from: Option<Position>,
    before: Position,
    reserved: Position,
    early: Position,
    clock_history: ClockSeqHistory,
) -> Plan {
    Plan {
        reading: zero(),
        mark: UnixMillis::new(0),
        value: reserved.get().cast_signed(),
        clock_from: UnixNanos::new(0),
        cursor_from,
        clock_history,
        believes: false,
        leaves_gap: false,
        window: Millis::new(1),
        forgiven: Millis::ZERO,
        least: None,
        before,
        tenure: Tenure::NONE,
        reserved,
        early,
        starts: false,
        lead: Millis::ZERO,
        switches: false,
    }
}

/// A reserver carries out its plan; what is done between the cursor and the bound comes last.
pub fn carry_out(
    plan: &Plan,
    generator: &Generator,
    live: &Live,
    write: impl FnOnce(&Plan),
    between: impl FnOnce(),
) -> (ClockSeqHistory, bool) {
    let written = NewPlan::new(*plan).write(|plan| {
        write(plan);
        Ok::<(), ()>(())
    });
    let moved = written.unwrap().move_cursor(generator, live);
    between();
    (moved.plan().clock_history, moved.publish(live))
}

/// A thread that shares something.
pub fn spawn<S: Send + Sync + 'static, T: Send + 'static>(
    s: &Arc<S>,
    f: impl FnOnce(&S) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let s = s.clone();
    thread::spawn(move || f(&s))
}

/// All interleavings in which threads are interrupted up to this often, or as often as
/// LOOM_MAX_PREEMPTIONS says: without a limit, three threads take hours. Returns what happened
/// in them, so that it can be seen that they differ.
pub fn explore<T: Ord + Send + 'static>(
    interruptions: usize,
    f: impl Fn() -> T + Sync + Send + 'static,
) -> BTreeSet<T> {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let mut model = loom::model::Builder::new();
    model.max_branches = 10_000;
    model.preemption_bound = model.preemption_bound.or(Some(interruptions));
    let all = seen.clone();
    model.check(move || {
        let happened = f();
        all.lock().unwrap().insert(happened);
    });
    std::mem::take(&mut *seen.lock().unwrap())
}
