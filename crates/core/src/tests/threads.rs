//! Threads that issue from one cursor while clocks are set back, bounds are raised and
//! bursts take further clocks: no ID twice. On the machine's own memory model, or on
//! that of Miri, which shows less than loom but takes whole calls.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::id::layout::{FieldRole, Layout};
use crate::id::shuffle::Shuffle;
use crate::id::{
    BootNanos, Millis, NANOS_PER_MILLI, Nanos, Position, SnowflakeId, UnixMillis, UnixNanos,
    WorkerId,
};
use crate::label::generator::Generator;
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::protocol;
use crate::protocol::block::issue_block;
use crate::protocol::clock::Reading;
use crate::protocol::cursor::{Clocks, IssuedRange};
use crate::protocol::host::{Host, IssueError, Need, Note, OnDisk, TrustedClock};
use crate::protocol::plan::{Author, ReserveError, Settings};
use crate::protocol::slot::{Reserving, Scale, Slot};
use crate::protocol::tenure::{Generation, Tenure};

const THREADS: u64 = 4;
const IDS: usize = if cfg!(miri) { 60 } else { 5_000 };

/// A host that threads share.
struct Live {
    generator: Generator,
    slot: Slot,
    /// In milliseconds.
    wall: AtomicI64,
    /// Readings of the clocks so far.
    readings: AtomicI64,
    mark: AtomicI64,
    lock: Mutex<()>,
    /// With the tenure of the server as it is now.
    trusted: Mutex<(TrustedClock, Tenure)>,
    switches: AtomicU32,
    tenure: Tenure,
}

impl Clocks for &Live {
    /// The wall clock moves on now and then, and is set back seldom.
    fn wall(&self) -> UnixNanos {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        if reading % 97 == 96 {
            self.wall.fetch_sub(reading % 5, Ordering::AcqRel);
        } else if reading % 8 == 7 {
            self.wall.fetch_add(1, Ordering::AcqRel);
        }
        UnixNanos::new(self.wall.load(Ordering::Acquire) * NANOS_PER_MILLI)
    }

    /// As if the wall clock were never set back; what it shows then must not matter.
    fn boot(&self) -> BootNanos {
        BootNanos::new(self.readings.load(Ordering::Relaxed) / 8 * NANOS_PER_MILLI)
    }

    fn read(&self) -> Reading {
        Reading {
            boot: self.boot(),
            wall: self.wall(),
        }
    }
}

impl Host for &Live {
    type Error = IssueError;

    fn error(&self, why: IssueError) -> IssueError {
        why
    }

    fn enter(&self) -> Result<(&Slot, &Generator), IssueError> {
        Ok((&self.slot, &self.generator))
    }

    fn entered(&self) -> Option<(&Slot, &Generator)> {
        Some((&self.slot, &self.generator))
    }

    fn generation(&self) -> Generation {
        self.tenure.generation
    }

    // Each call is a transaction of its own, and nobody reads a horizon.
    fn has_taken(&self) -> bool {
        false
    }

    fn hold(&self, _slot: &Slot, _at: UnixMillis) -> Result<(), IssueError> {
        Ok(())
    }

    fn narrow_hold(&self, _at: UnixMillis) {}

    fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T {
        // A thread whose test has failed stops the others by that failure alone.
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        f(&Reserving::the_lock_is_held())
    }

    fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock, Tenure) -> T) -> T {
        let mut held = self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        let (trusted, tenure) = &mut *held;
        f(trusted, *tenure)
    }

    fn settings(&self) -> Settings {
        Settings {
            reserve: Millis::new(20),
            failover_gap: Millis::new(20),
            max_clock_jump: Millis::new(100_000),
        }
    }

    fn read_mark(&self) -> Result<OnDisk, IssueError> {
        let mark = self.mark.load(Ordering::Acquire);
        Ok(OnDisk {
            value: (mark != 0).then_some(mark),
            author: Author::Present,
        })
    }

    fn last_commit(&self) -> Option<UnixMillis> {
        None
    }

    fn write_durably(&self, value: i64) -> Result<(), IssueError> {
        self.mark.store(value, Ordering::Release);
        Ok(())
    }

    fn nap(&self, _nanos: Nanos) -> Result<(), IssueError> {
        std::thread::yield_now();
        Ok(())
    }

    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Self::Error> {
        protocol::reserve(self, need)
    }

    fn note(&self, note: Note) {
        if matches!(note, Note::Switched { .. }) {
            self.switches.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Live {
    /// The mark on disk is above the positions before `end`.
    fn assert_marked(&self, end: Position) {
        let (generator, layout) = (&self.generator, self.generator.layout);
        let value = self.mark.load(Ordering::Acquire);
        let (mark, _) = generator.read_mark(value, UnixMillis::new(0)).unwrap();
        let last = Position::new(end.get() - 1);
        assert!(layout.instant_of(layout.tick_of(last)) < mark);
    }

    /// As `issue`, in blocks of `count`.
    fn issue_blocks(&self, wanted: usize, count: u64) -> Vec<SnowflakeId> {
        let layout = self.generator.layout;
        let stamp = layout.stamp(WorkerId::new(1).unwrap()).unwrap();
        let mut ids = vec![];
        while ids.len() < wanted {
            match issue_block(&self, count) {
                Ok(IssuedRange { start, end, .. }) => {
                    self.assert_marked(end);
                    let first = layout.compose_in(start, stamp, None).get();
                    let number = i64::try_from(count).unwrap();
                    let last = Position::new(end.get() - 1);
                    let last = layout.compose_in(last, stamp, None).get();
                    assert_eq!(last, first + number - 1, "consecutive IDs");
                    ids.extend((first..=last).map(SnowflakeId::new));
                }
                Err(IssueError::Behind { .. } | IssueError::Interleaved { .. }) => {}
                Err(refused) => panic!("{refused:?}"),
            }
        }
        ids
    }

    /// As many IDs as are wanted, in the order in which they were issued.
    fn issue(&self, wanted: usize, count: u64) -> Vec<SnowflakeId> {
        let (generator, layout) = (&self.generator, self.generator.layout);
        let stamp = layout.stamp(WorkerId::new(1).unwrap()).unwrap();
        let shuffle = generator.is_random().then(|| Shuffle::new((1, 2), 3));
        let mut ids = vec![];
        while ids.len() < wanted {
            match protocol::issue(&self, count) {
                Ok(IssuedRange { start, end, .. }) => {
                    self.assert_marked(end);
                    let position = Position::new;
                    ids.extend(
                        (start.get()..end.get())
                            .map(|at| layout.compose_in(position(at), stamp, shuffle.as_ref())),
                    );
                }
                // The clock is set back again and again.
                Err(IssueError::Behind { .. }) => {}
                Err(refused) => panic!("{refused:?}"),
            }
        }
        ids
    }
}

/// A server that has issued nothing yet.
fn live(on_rollback: OnRollback, on_exhausted: OnExhausted, sequence_start: SequenceStart) -> Live {
    let fields = [
        (FieldRole::Time, 30),
        (FieldRole::Clock, 4),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    let layout = Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap();
    let reading = Reading {
        boot: BootNanos::new(0),
        wall: UnixMillis::new(1000).nanos(),
    };
    let tenure = Tenure::NONE.unregistered(WorkerId::new(1));
    let live = Live {
        generator: Generator {
            layout: if on_exhausted == OnExhausted::NextClock {
                layout.through_clocks().unwrap()
            } else {
                layout
            },
            policy: Policy {
                on_rollback,
                on_exhausted,
                max_borrow_ticks: 2,
                sequence_start,
                ..Policy::DEFAULT
            },
        },
        slot: Slot::new(reading, 0),
        wall: AtomicI64::new(1000),
        readings: AtomicI64::new(0),
        mark: AtomicI64::new(0),
        lock: Mutex::new(()),
        trusted: Mutex::new((TrustedClock::new(reading), tenure)),
        switches: AtomicU32::new(0),
        tenure,
    };
    let scale = Scale::of_generator(&live.generator);
    (&live).reserving(|token| live.slot.settle(token, 1, scale, reading));
    live
}

/// Runs threads; returns how often clocks were changed.
fn threads(
    on_rollback: OnRollback,
    on_exhausted: OnExhausted,
    sequence_start: SequenceStart,
) -> u32 {
    let take = |live: &Live, thread| live.issue(IDS, thread + 1);
    threads_that(take, on_rollback, on_exhausted, sequence_start)
}

/// As `threads`, for threads that each take by `take`, which is given their number.
fn threads_that(
    take: impl Fn(&Live, u64) -> Vec<SnowflakeId> + Sync,
    on_rollback: OnRollback,
    on_exhausted: OnExhausted,
    sequence_start: SequenceStart,
) -> u32 {
    let live = live(on_rollback, on_exhausted, sequence_start);
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (live, take) = (&live, &take);
                scope.spawn(move || {
                    let ids = take(live, thread);
                    let in_order =
                        !live.generator.changes_clocks() && sequence_start != SequenceStart::Random;
                    assert!(!in_order || ids.is_sorted());
                    ids
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let issued = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), issued, "twice");
    live.switches.into_inner()
}

const ZERO: SequenceStart = SequenceStart::Masked(0);

#[test]
fn threads_go_on_ahead_of_a_clock_that_was_set_back() {
    threads(OnRollback::Continue, OnExhausted::Wait, ZERO);
    threads(
        OnRollback::Continue,
        OnExhausted::NextClock,
        SequenceStart::Random,
    );
}

#[test]
fn threads_wait_for_a_clock_that_was_set_back() {
    threads(OnRollback::Wait, OnExhausted::Wait, ZERO);
    threads(OnRollback::Wait, OnExhausted::NextClock, ZERO);
    threads(OnRollback::Wait, OnExhausted::Wait, SequenceStart::Random);
}

#[test]
fn threads_go_on_in_the_next_clock() {
    let switches = threads(OnRollback::NextClock, OnExhausted::Wait, ZERO);
    assert!(switches > 1);
    threads(
        OnRollback::NextClock,
        OnExhausted::Wait,
        SequenceStart::Random,
    );
}

#[test]
fn threads_take_clocks_for_rollbacks_and_for_bursts() {
    let switches = threads(OnRollback::NextClock, OnExhausted::NextClock, ZERO);
    assert!(switches > 0);
    threads(
        OnRollback::NextClock,
        OnExhausted::NextClock,
        SequenceStart::Random,
    );
}

/// Two take single IDs and two take blocks, one of them a whole tick at a time.
#[test]
fn threads_get_blocks_beside_ids() {
    let take = |live: &Live, thread| match thread {
        0 | 1 => live.issue(IDS, thread + 1),
        2 => live.issue_blocks(IDS, 2),
        _ => live.issue_blocks(IDS, live.generator.max_block().unwrap()),
    };
    for (on_rollback, on_exhausted, start) in [
        (OnRollback::Continue, OnExhausted::Wait, ZERO),
        (
            OnRollback::Continue,
            OnExhausted::Wait,
            SequenceStart::Masked(1),
        ),
        (OnRollback::Wait, OnExhausted::NextClock, ZERO),
        (OnRollback::NextClock, OnExhausted::Wait, ZERO),
        (OnRollback::NextClock, OnExhausted::NextClock, ZERO),
    ] {
        threads_that(take, on_rollback, on_exhausted, start);
    }
}

/// A session of a server whose tenure changes.
struct Session<'a> {
    live: &'a Live,
    generation: &'a AtomicU64,
    entered: Cell<Generation>,
}

impl Session<'_> {
    fn present(&self) -> Generation {
        Generation::from_bits(self.generation.load(Ordering::Acquire))
    }
}

impl Clocks for Session<'_> {
    fn wall(&self) -> UnixNanos {
        self.live.wall()
    }

    fn boot(&self) -> BootNanos {
        self.live.boot()
    }

    fn read(&self) -> Reading {
        self.live.read()
    }
}

impl Host for Session<'_> {
    type Error = IssueError;

    fn error(&self, why: IssueError) -> IssueError {
        why
    }

    fn enter(&self) -> Result<(&Slot, &Generator), IssueError> {
        while self.present().worker().is_none() {
            std::thread::yield_now();
        }
        self.entered.set(self.present());
        Ok((&self.live.slot, &self.live.generator))
    }

    fn entered(&self) -> Option<(&Slot, &Generator)> {
        let is_present = self.entered.get() == self.present();
        is_present.then_some((&self.live.slot, &self.live.generator))
    }

    fn generation(&self) -> Generation {
        self.entered.get()
    }

    fn has_taken(&self) -> bool {
        self.live.has_taken()
    }

    fn hold(&self, slot: &Slot, at: UnixMillis) -> Result<(), IssueError> {
        self.live.hold(slot, at)
    }

    fn narrow_hold(&self, at: UnixMillis) {
        self.live.narrow_hold(at);
    }

    fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T {
        self.live.reserving(f)
    }

    fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock, Tenure) -> T) -> T {
        self.live.with_trusted_clock(f)
    }

    fn settings(&self) -> Settings {
        self.live.settings()
    }

    fn read_mark(&self) -> Result<OnDisk, IssueError> {
        self.live.read_mark()
    }

    fn last_commit(&self) -> Option<UnixMillis> {
        self.live.last_commit()
    }

    fn write_durably(&self, value: i64) -> Result<(), IssueError> {
        self.live.write_durably(value)
    }

    fn nap(&self, nanos: Nanos) -> Result<(), IssueError> {
        self.live.nap(nanos)
    }

    fn more_bound(&self, _needed: UnixMillis) -> Result<bool, IssueError> {
        std::thread::yield_now();
        Ok(true)
    }

    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Self::Error> {
        protocol::reserve(self, need)
    }

    fn note(&self, _note: Note) {}
}

/// Threads that issue while a registry grants two worker IDs in turn, renews, and takes
/// them back with the end that closing the slot has returned.
fn threads_of_a_registry(on_rollback: OnRollback) {
    let live = live(on_rollback, OnExhausted::Wait, ZERO);
    let generation = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let becomes = |next: &dyn Fn(Tenure) -> Tenure| {
        let mut held = live.trusted.lock().unwrap();
        held.1 = next(held.1);
        generation.store(held.1.generation.bits(), Ordering::Release);
        held.1
    };
    let _ = becomes(&Tenure::closed);
    // The bound of each worker ID, and that with which each grant has ended.
    let (mut stored, mut ends) = ([1000; 2], HashMap::new());
    // The generations under which threads have taken IDs.
    let seen = Mutex::new(HashSet::new());
    let take = || {
        let session = Session {
            live: &live,
            generation: &generation,
            entered: Cell::new(Generation::NONE),
        };
        let mut ids = vec![];
        while !is_over.load(Ordering::Relaxed) || ids.is_empty() {
            match protocol::issue(&session, 1) {
                Ok(IssuedRange { start, .. }) => {
                    let entered = session.entered.get();
                    if ids.last().is_none_or(|&(last, _)| last != entered) {
                        seen.lock().unwrap().insert(entered);
                    }
                    ids.push((entered, start));
                }
                Err(IssueError::Behind { .. }) => {}
                Err(refused) => panic!("{refused:?}"),
            }
        }
        ids
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads = [0; 3].map(|_| scope.spawn(take));
        // A loaded machine may give the threads no processor for many rounds.
        let enough = if cfg!(miri) { 6 } else { 300 };
        for round in 0..100_000 {
            if round >= enough && seen.lock().unwrap().len() > 2 {
                break;
            }
            // Sometimes the same one again.
            let number = round / 2 % 2;
            let worker = WorkerId::new(i32::try_from(number).unwrap()).unwrap();
            let wall = live.wall.load(Ordering::Acquire);
            let now = |ahead| UnixMillis::new(stored[number].max(wall) + ahead);
            let (floor, bound) = (UnixMillis::new(stored[number]), now(5));
            let granted = becomes(&|it| it.granted(worker, floor, bound, floor, Millis::new(1000)));
            std::thread::yield_now();
            let renewed = becomes(&|it| it.renewed(now(20)));
            std::thread::sleep(std::time::Duration::from_micros(200));
            let mut end = now(20);
            if round % 3 != 0 {
                let _ = becomes(&Tenure::closed);
                end = renewed.end(live.slot.close(), UnixMillis::new(wall));
            }
            stored[number] = end.get();
            ends.insert(granted.generation, (floor, end));
        }
        let worker = WorkerId::new(2).unwrap();
        let (floor, bound) = (UnixMillis::new(0), UnixMillis::new(1 << 40));
        let last = becomes(&|it| it.granted(worker, floor, bound, floor, Millis::new(1000)));
        ends.insert(last.generation, (floor, bound));
        is_over.store(true, Ordering::Relaxed);
        let ids = threads.map(|thread| thread.join().unwrap());
        ids.into_iter().flatten().collect()
    });
    let layout = live.generator.layout;
    let mut ids = vec![];
    for (generation, position) in all {
        let (floor, end) = ends[&generation];
        let begins = layout.instant_of(layout.tick_of(position));
        assert!(
            floor <= begins && begins < end,
            "{begins:?}: {floor:?} {end:?}"
        );
        let stamp = layout.stamp(generation.worker().unwrap()).unwrap();
        ids.push(layout.compose_in(position, stamp, None));
    }
    let issued = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), issued, "twice");
    let seen = seen.into_inner().unwrap();
    assert!(seen.len() > 2, "{seen:?}");
}

#[test]
fn threads_come_to_other_worker_ids() {
    threads_of_a_registry(OnRollback::Continue);
    threads_of_a_registry(OnRollback::Wait);
}
