//! Threads that issue from one word while clocks are set back, bounds are raised and
//! bursts take further clocks: no ID twice. On the machine's own memory model, or on
//! that of Miri, which shows less than loom but takes whole calls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use super::account::Account;
use super::clock::{BootNanos, Reading, UnixNanos};
use super::generator::{Bounds, Generator, Step, Word};
use super::id::{Position, SnowflakeId, Tick, UnixMillis, WorkerId};
use super::layout::{Layout, Role};
use super::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use super::reservation::{Refusal, Situation};
use super::shuffle::Shuffle;
use super::watch::Watch;

const MS: i64 = 1_000_000;
const THREADS: u64 = 4;
const IDS: usize = if cfg!(miri) { 60 } else { 5_000 };

struct Live {
    generator: Generator,
    word: Word,
    bounds: Bounds,
    watch: Watch,
    /// In milliseconds.
    wall: AtomicI64,
    /// Readings of the clocks so far.
    readings: AtomicI64,
    mark: AtomicI64,
    /// The reservation lock, and what it guards.
    slot: Mutex<Slot>,
}

struct Slot {
    account: Account,
    window: i64,
    switches: u32,
    widened: u32,
}

impl Live {
    /// The wall clock: it moves on now and then, and is set back seldom.
    fn wall(&self) -> UnixNanos {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        if reading % 97 == 96 {
            self.wall.fetch_sub(reading % 5, Ordering::AcqRel);
        } else if reading % 8 == 7 {
            self.wall.fetch_add(1, Ordering::AcqRel);
        }
        UnixNanos::new(self.wall.load(Ordering::Acquire) * MS)
    }

    fn reserve(&self, through: Option<Tick>, widens: bool) -> Result<(), Refusal> {
        let (generator, layout) = (self.generator, self.generator.layout);
        let mut slot = self.slot.lock().unwrap();
        if widens {
            if let Some(account) = generator.widen(&self.word, &self.bounds, slot.account) {
                slot.account = account;
                slot.widened += 1;
            }
            return Ok(());
        }
        let reserved = self.bounds.reserved();
        if let Some(through) = through {
            let clock = layout.clock_of(self.word.position());
            let needed = layout.in_clock(clock, layout.position_of(through));
            if layout.clock_of(reserved) == clock && reserved > needed {
                return Ok(());
            }
        }
        let wall = self.wall();
        let plan = generator.plan(&Situation {
            reading: Reading {
                boot: BootNanos::new(0),
                wall,
            },
            generator_now: wall,
            trusted_offset: wall.get(),
            max_clock_jump_millis: 1000,
            max_lead_millis: 1000,
            word: self.word.position(),
            reserved,
            stored: Some(UnixMillis::new(self.mark.load(Ordering::Acquire))),
            failover: None,
            floor: None,
            account: slot.account,
            behind: if through.is_none() {
                self.watch.behind(wall)
            } else {
                None
            },
            through: through.unwrap_or(Tick::new(0)),
            full_window_millis: 20,
            last_window_millis: slot.window,
        })?;
        self.mark.store(plan.mark.get(), Ordering::Release);
        slot.account = generator.move_word(&self.word, &self.bounds, &plan);
        slot.switches += u32::from(plan.switches);
        if through.is_none() {
            self.watch.believe(wall);
        }
        slot.window = plan.window_millis;
        self.bounds.publish(plan.reserved, plan.early);
        Ok(())
    }

    /// As many IDs as are wanted, in the order in which they came.
    fn issue(&self, wanted: usize, count: u64) -> Vec<SnowflakeId> {
        let (generator, layout) = (&self.generator, self.generator.layout);
        let stamp = layout.stamp(WorkerId::new(1).unwrap()).unwrap();
        let shuffle = Shuffle::new((1, 2), 3);
        let shuffle = (generator.policy.sequence_start == SequenceStart::Random).then_some(shuffle);
        let mut ids = vec![];
        while ids.len() < wanted {
            let step = if generator.policy.on_rollback.watches() {
                self.word.issue_watching(
                    generator,
                    &self.bounds,
                    &self.watch,
                    count,
                    || self.wall(),
                    || BootNanos::new(0),
                )
            } else {
                self.word.issue(generator, &self.bounds, count, || {
                    layout.tick_number(self.wall().millis())
                })
            };
            match step {
                Step::Issue { start, end, .. } => {
                    let mark = UnixMillis::new(self.mark.load(Ordering::Acquire));
                    let last = Position::new(end.get() - 1);
                    assert!(layout.instant_of(layout.tick_of(last)) < mark);
                    let position = Position::new;
                    ids.extend(
                        (start.get()..end.get())
                            .map(|at| layout.compose_in(position(at), stamp, shuffle.as_ref())),
                    );
                }
                Step::Reserve { through } => self.reserve(Some(through), false).unwrap(),
                Step::Widen => self.reserve(None, true).unwrap(),
                Step::RolledBack { .. } if generator.changes_clocks() => {
                    match self.reserve(None, false) {
                        Ok(()) | Err(Refusal::NoClockFree { .. }) => {}
                        Err(refusal) => panic!("{refusal:?}"),
                    }
                }
                Step::Wait { .. } | Step::RolledBack { .. } => std::thread::yield_now(),
                Step::TimeUsedUp => panic!("there is time enough"),
            }
        }
        ids
    }
}

fn threads(
    on_rollback: OnRollback,
    on_exhausted: OnExhausted,
    sequence_start: SequenceStart,
) -> Slot {
    let fields = [
        (Role::Time, 30),
        (Role::Clock, 4),
        (Role::Worker, 2),
        (Role::Sequence, 2),
    ];
    let layout = Layout::new(0, 1, &fields).unwrap();
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
        word: Word::default(),
        bounds: Bounds::default(),
        watch: Watch::default(),
        wall: AtomicI64::new(1000),
        readings: AtomicI64::new(0),
        mark: AtomicI64::new(0),
        slot: Mutex::new(Slot {
            account: Account::FRESH,
            window: 0,
            switches: 0,
            widened: 0,
        }),
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let live = &live;
                scope.spawn(move || {
                    let ids = live.issue(IDS, thread + 1);
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
    live.slot.into_inner().unwrap()
}

const ZERO: SequenceStart = SequenceStart::Masked(0);

#[test]
fn who_waits_for_a_clock_that_was_set_back() {
    threads(OnRollback::Wait, OnExhausted::Wait, ZERO);
    threads(OnRollback::Wait, OnExhausted::NextClock, ZERO);
    threads(OnRollback::Wait, OnExhausted::Wait, SequenceStart::Random);
}

#[test]
fn who_goes_on_in_the_next_clock() {
    let slot = threads(OnRollback::NextClock, OnExhausted::Wait, ZERO);
    assert!(slot.switches > 1);
    threads(
        OnRollback::NextClock,
        OnExhausted::Wait,
        SequenceStart::Random,
    );
}

#[test]
fn who_takes_clocks_for_rollbacks_and_for_bursts() {
    let slot = threads(OnRollback::NextClock, OnExhausted::NextClock, ZERO);
    assert!(slot.switches > 0 && slot.widened > 1);
    threads(
        OnRollback::NextClock,
        OnExhausted::NextClock,
        SequenceStart::Random,
    );
}
