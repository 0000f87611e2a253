//! A server whose wall clock reads what a script says, for tests: acts on the
//! steps of the core as `crate::pg` does, with a variable for a disk.

use std::collections::VecDeque;

use super::account::Account;
use super::clock::{BootNanos, Clock, Reading, UnixNanos};
use super::generator::{Bounds, Generator, Step, Word};
use super::id::{Position, SnowflakeId, Tick, UnixMillis, WorkerId};
use super::label::Label;
use super::layout::{Fields, Stamp};
use super::policy::{OnExhausted, OnRollback, SequenceStart};
use super::reservation::{Refusal, Situation};
use super::shuffle::Shuffle;
use super::watch::{Patience, Watch};

pub const MS: i64 = 1_000_000;
const DAY_MILLIS: i64 = 86_400_000;
/// How long a nap is.
pub const NAP: i64 = 400_000;

/// Why a call got no ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The clock is this far behind, in nanoseconds.
    Behind(i64),
    TickUsedUp,
    StandsStill,
    TimeUsedUp,
    Interrupted,
    Reservation(Refusal),
}

/// What a call that fails must not change.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    word: Position,
    reserved: Position,
    latest: UnixMillis,
    mark: Option<UnixMillis>,
}

pub struct Server {
    pub generator: Generator,
    stamp: Stamp,
    shuffle: Option<Shuffle>,
    word: Word,
    bounds: Bounds,
    watch: Watch,
    clock: Clock,
    account: Account,
    mark: Option<UnixMillis>,
    window: i64,
    /// What the wall clock reads, one after the other, the last for ever, in
    /// nanoseconds; and whether time passes for it in naps.
    wall: VecDeque<i64>,
    pub runs: bool,
    /// What it read last, if that is not in the script any more.
    last: Option<i64>,
    pub boot: i64,
    trusted_offset: i64,
    /// How often calls have napped.
    pub naps: u32,
    /// The next nap is the last.
    pub interrupted: bool,
}

impl Server {
    /// At this many milliseconds after the epoch, with the first IDs reserved.
    pub fn new(label: &str, worker: i32, secret: (u64, u64), at: i64) -> Self {
        let label = Label::parse(label).unwrap_or_else(|error| panic!("{label}: {error:?}"));
        let generator = label.generator();
        let wall = (generator.layout.epoch().get() + at) * MS;
        let reading = Reading {
            boot: BootNanos::new(0),
            wall: UnixNanos::new(wall),
        };
        let random = generator.policy.sequence_start == SequenceStart::Random;
        let mut server = Self {
            generator,
            stamp: generator
                .layout
                .stamp(WorkerId::new(worker).unwrap())
                .unwrap(),
            shuffle: random.then(|| Shuffle::new(secret, 1)),
            word: Word::default(),
            bounds: Bounds::default(),
            watch: Watch::default(),
            clock: Clock::new(reading),
            account: Account::FRESH,
            mark: None,
            window: 0,
            wall: VecDeque::from([wall]),
            runs: false,
            last: None,
            boot: 0,
            trusted_offset: reading.offset(),
            naps: 0,
            interrupted: false,
        };
        server.reserve(Tick::new(0), false).unwrap();
        server
    }

    /// The next readings of the wall clock, in milliseconds after the epoch.
    pub fn reads(&mut self, millis: impl IntoIterator<Item = i64>) {
        let epoch = self.generator.layout.epoch().get();
        self.wall = millis.into_iter().map(|at| (epoch + at) * MS).collect();
        self.last = None;
    }

    /// Time passes.
    pub fn pass(&mut self, nanos: i64) {
        self.boot += nanos;
        self.step_by(nanos);
    }

    /// The wall clock is stepped.
    pub fn step_by(&mut self, nanos: i64) {
        for reading in &mut self.wall {
            *reading += nanos;
        }
    }

    pub fn state(&self) -> State {
        State {
            word: self.word.position(),
            reserved: self.bounds.reserved(),
            latest: self.watch.latest(),
            mark: self.mark,
        }
    }

    /// Whether the script is over, but for its last reading.
    pub fn has_read_all(&self) -> bool {
        self.wall.len() == 1
    }

    /// The next ID, taken apart.
    pub fn next(&mut self) -> Result<Fields, Refused> {
        let ids = self.issue(1)?;
        Ok(self.generator.layout.decode(ids[0]).unwrap())
    }

    pub fn issue(&mut self, mut count: u64) -> Result<Vec<SnowflakeId>, Refused> {
        let (generator, policy) = (self.generator, self.generator.policy);
        let mut patience = Patience::default();
        loop {
            match self.decide(count) {
                Step::Issue { start, end, .. } => {
                    let id = |at| self.id_of(Position::new(at));
                    return Ok((start.get()..end.get()).map(id).collect());
                }
                Step::Reserve { through } => {
                    self.reserve(through, false).map_err(Refused::Reservation)?
                }
                Step::Widen => panic!("not by this server"),
                Step::TimeUsedUp => return Err(Refused::TimeUsedUp),
                Step::Wait { .. } if policy.on_exhausted == OnExhausted::Error => {
                    return Err(Refused::TickUsedUp);
                }
                Step::Wait { .. } => {
                    if patience.stands_still(self.now(), BootNanos::new(self.boot)) {
                        return Err(Refused::StandsStill);
                    }
                    self.nap()?;
                    if policy.max_borrow_ticks < 4 {
                        count = (count / 2).max(1);
                    }
                }
                Step::RolledBack { .. } if generator.changes_clocks() => {
                    self.reserve(Tick::new(0), true)
                        .map_err(Refused::Reservation)?;
                }
                Step::RolledBack { by } => {
                    if !patience.awaits(&policy, by, BootNanos::new(self.boot)) {
                        return Err(Refused::Behind(by));
                    }
                    self.nap()?;
                }
            }
        }
    }

    fn id_of(&self, at: Position) -> SnowflakeId {
        let layout = self.generator.layout;
        if self.generator.is_plain() {
            layout.compose(at, self.stamp)
        } else {
            layout.compose_in(at, self.stamp, self.shuffle.as_ref())
        }
    }

    fn decide(&mut self, count: u64) -> Step {
        let (layout, boot) = (self.generator.layout, BootNanos::new(self.boot));
        if !self.generator.policy.on_rollback.watches() {
            return self.word.issue(&self.generator, &self.bounds, count, || {
                layout.tick_number(self.clock.now(boot).millis())
            });
        }
        let (wall, last) = (&mut self.wall, &mut self.last);
        let read = || {
            *last = if wall.len() > 1 {
                wall.pop_front()
            } else {
                None
            };
            UnixNanos::new(last.unwrap_or(wall[0]))
        };
        let (bounds, watch) = (&self.bounds, &self.watch);
        self.word
            .issue_watching(&self.generator, bounds, watch, count, read, || boot)
    }

    /// Both clocks, the wall clock as it was read last.
    fn reading(&self) -> Reading {
        Reading {
            boot: BootNanos::new(self.boot),
            wall: UnixNanos::new(self.last.unwrap_or(self.wall[0])),
        }
    }

    fn now(&self) -> UnixNanos {
        let Reading { boot, wall } = self.reading();
        if self.generator.policy.on_rollback.watches() {
            self.watch.now(wall, || boot)
        } else {
            self.clock.now(boot)
        }
    }

    fn nap(&mut self) -> Result<(), Refused> {
        self.naps += 1;
        assert!(self.naps < 10_000, "it waits for ever");
        if self.interrupted {
            return Err(Refused::Interrupted);
        }
        if self.runs {
            self.pass(NAP);
        } else {
            self.boot += NAP;
        }
        Ok(())
    }

    /// Reserves ahead of need: only then a generator with `on_rollback=continue`
    /// looks at the wall clock.
    pub fn look_at_the_wall(&mut self) {
        assert_eq!(self.generator.policy.on_rollback, OnRollback::Continue);
        self.reserve(Tick::new(0), false).unwrap();
        if self.wall.len() > 1 {
            self.wall.pop_front();
        }
    }

    fn reserve(&mut self, through: Tick, rolled_back: bool) -> Result<(), Refusal> {
        let (generator, reading) = (self.generator, self.reading());
        let watches = generator.policy.on_rollback.watches();
        let plan = generator.plan(&Situation {
            reading,
            generator_now: self.now(),
            trusted_offset: self.trusted_offset,
            max_clock_jump_millis: DAY_MILLIS,
            max_lead_millis: generator.policy.max_rollback_millis,
            word: self.word.position(),
            reserved: self.bounds.reserved(),
            stored: self.mark,
            failover: None,
            floor: None,
            account: self.account,
            behind: rolled_back
                .then(|| self.watch.behind(reading.wall))
                .flatten(),
            through,
            full_window_millis: 10_000,
            last_window_millis: self.window,
        })?;
        self.trusted_offset = reading.offset();
        self.mark = Some(plan.mark);
        if !watches {
            self.clock.anchor(reading);
            self.clock.lead_to(reading.boot, plan.clock_from);
        } else if plan.clock_from > reading.wall {
            self.watch.lead_to(reading.boot, plan.clock_from);
        }
        self.account = plan.account;
        if let Some(from) = plan.word_from {
            self.word.go_to(from, generator.layout);
        }
        if rolled_back {
            self.watch.believe(reading.wall);
        }
        self.window = plan.window_millis;
        self.bounds.publish(plan.reserved, plan.early);
        // It took no time.
        if let Some(last) = self.last.take() {
            self.wall.push_front(last);
        }
        Ok(())
    }
}
