//! A server whose wall clock reads what a script says, for tests: a host of the
//! protocol with a variable for a disk.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::MARKS_MAX;
use super::one_call::{OneCall, whose_calls_are_transactions};
use crate::id::layout::{Fields, Stamp};
use crate::id::shuffle::Shuffle;
use crate::id::{
    BootNanos, Millis, NANOS_PER_MILLI, Nanos, Position, SnowflakeId, Tick, UnixMillis, UnixNanos,
    WorkerId,
};
use crate::label::Label;
use crate::label::generator::Generator;
use crate::label::policy::OnRollback;
use crate::protocol;
use crate::protocol::clock::Reading;
use crate::protocol::cursor::{Clocks, IssuedRange, Step};
use crate::protocol::host::{Host, IssueError, Need, Note, OnDisk, TrustedClock};
use crate::protocol::plan::{Author, ReserveError, Settings};
use crate::protocol::slot::{Reserving, Scale, Slot};
use crate::protocol::tenure::{Generation, Tenure};

pub const MS: i64 = NANOS_PER_MILLI;
/// How long a nap is.
pub const NAP: i64 = 400_000;

/// Why a call got no ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptError {
    Why(IssueError),
    Interrupted,
}

impl ScriptError {
    /// How many milliseconds the clock is behind, if that is the reason.
    pub fn behind(self) -> Option<i64> {
        match self {
            Self::Why(IssueError::Behind {
                by, no_clock: None, ..
            }) => Some(by.get()),
            _ => None,
        }
    }
}

/// What a call that fails must not change.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    cursor: Position,
    reserved: Position,
    latest: UnixMillis,
    mark: Option<i64>,
}

pub struct Server {
    pub generator: Generator,
    stamp: Stamp,
    shuffle: Option<Shuffle>,
    pub slot: Slot,
    trusted: Cell<TrustedClock>,
    tenure: Cell<Tenure>,
    mark: Cell<Option<i64>>,
    /// How many marks were written.
    marks: Cell<u32>,
    /// The readings of the wall clock in nanoseconds, one after the other. The last one
    /// is read again and again.
    wall: RefCell<VecDeque<i64>>,
    /// Whether time passes for the clock in naps.
    pub runs: bool,
    /// The last reading, if that is no longer in the script.
    last: Cell<Option<i64>>,
    pub boot: Cell<i64>,
    /// How often calls have napped.
    pub naps: Cell<u32>,
    pub held: OneCall,
    /// How long the last nap was to be.
    pub asked: Cell<Nanos>,
    /// The next nap is the last.
    pub interrupted: bool,
}

impl Clocks for Server {
    fn wall(&self) -> UnixNanos {
        let mut wall = self.wall.borrow_mut();
        let last = if wall.len() > 1 {
            wall.pop_front()
        } else {
            None
        };
        self.last.set(last);
        UnixNanos::new(last.unwrap_or(wall[0]))
    }

    fn boot(&self) -> BootNanos {
        BootNanos::new(self.boot.get())
    }

    /// Both clocks, with the wall clock as it was read last.
    fn read(&self) -> Reading {
        Reading {
            boot: self.boot(),
            wall: UnixNanos::new(self.last.get().unwrap_or(self.wall.borrow()[0])),
        }
    }
}

impl Host for Server {
    type Error = ScriptError;

    fn error(&self, why: IssueError) -> ScriptError {
        ScriptError::Why(why)
    }

    fn enter(&self) -> Result<(&Slot, &Generator), ScriptError> {
        Ok((&self.slot, &self.generator))
    }

    whose_calls_are_transactions!();

    fn settings(&self) -> Settings {
        Settings {
            reserve: Millis::new(10_000),
            failover_gap: Millis::new(10_000),
            max_clock_jump: Millis::new(86_400_000),
        }
    }

    fn read_mark(&self) -> Result<OnDisk, ScriptError> {
        let value = self.mark.get();
        Ok(OnDisk {
            value,
            author: Author::Present,
        })
    }

    fn last_commit(&self) -> Option<UnixMillis> {
        None
    }

    fn write_durably(&self, value: i64) -> Result<(), ScriptError> {
        self.mark.set(Some(value));
        self.marks.set(self.marks.get() + 1);
        assert!(self.marks.get() < MARKS_MAX, "it reserves for ever");
        Ok(())
    }

    fn nap(&self, nanos: Nanos) -> Result<(), ScriptError> {
        self.asked.set(nanos);
        self.naps.set(self.naps.get() + 1);
        assert!(self.naps.get() < 10_000, "it waits for ever");
        if self.interrupted {
            return Err(ScriptError::Interrupted);
        }
        self.boot.set(self.boot.get() + NAP);
        if self.runs {
            self.step_by(NAP);
        }
        Ok(())
    }

    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Self::Error> {
        protocol::reserve(self, need)
    }

    fn note(&self, _note: Note) {}

    fn reserved(&self, _began: BootNanos) {
        // The reservation took no time.
        if let Some(last) = self.last.take() {
            self.wall.borrow_mut().push_front(last);
        }
    }
}

impl Server {
    /// A server this many milliseconds after the epoch, with the first IDs reserved.
    pub fn new(label: &str, worker: i32, secret: (u64, u64), at: i64) -> Self {
        let label = Label::parse(label).unwrap_or_else(|error| panic!("{label}: {error:?}"));
        let generator = label.generator();
        let wall = (generator.layout.epoch().get() + at) * MS;
        let reading = Reading {
            boot: BootNanos::new(0),
            wall: UnixNanos::new(wall),
        };
        let tenure = Tenure::NONE.unregistered(WorkerId::new(worker));
        let server = Self {
            generator,
            stamp: generator
                .layout
                .stamp(WorkerId::new(worker).unwrap())
                .unwrap(),
            shuffle: generator.is_random().then(|| Shuffle::new(secret, 1)),
            slot: Slot::new(reading, 0),
            trusted: Cell::new(TrustedClock::new(reading)),
            tenure: Cell::new(tenure),
            mark: Cell::new(None),
            marks: Cell::new(0),
            wall: RefCell::new(VecDeque::from([wall])),
            runs: false,
            last: Cell::new(None),
            boot: Cell::new(0),
            naps: Cell::new(0),
            held: OneCall::default(),
            asked: Cell::new(Nanos::ZERO),
            interrupted: false,
        };
        let scale = Scale::of_generator(&generator);
        server.reserving(|token| server.slot.settle(token, 1, scale, reading));
        server.reserve_early();
        server
    }

    /// Reserves ahead of need.
    fn reserve_early(&self) {
        let bounds = self.slot.live().bounds();
        assert!(bounds.claim_prefetch(Position::new(u64::MAX)));
        protocol::demand(self, Need::Early(Tick::new(0))).unwrap();
        assert!(!bounds.early_is_claimed(), "it was refused");
    }

    /// The next readings of the wall clock, in milliseconds after the epoch.
    pub fn reads(&mut self, millis: impl IntoIterator<Item = i64>) {
        let epoch = self.generator.layout.epoch().get();
        self.wall = RefCell::new(millis.into_iter().map(|at| (epoch + at) * MS).collect());
        self.last.set(None);
    }

    /// The value on disk.
    pub fn mark(&self) -> i64 {
        self.mark.get().unwrap()
    }

    /// Time passes.
    pub fn pass(&mut self, nanos: i64) {
        self.boot.set(self.boot.get() + nanos);
        self.step_by(nanos);
    }

    /// The wall clock is stepped.
    pub fn step_by(&self, nanos: i64) {
        for reading in self.wall.borrow_mut().iter_mut() {
            *reading += nanos;
        }
    }

    pub fn state(&self) -> State {
        let live = self.slot.live();
        State {
            cursor: live.cursor().position(),
            reserved: live.bounds().reserved(),
            latest: live.clock().latest(),
            mark: self.mark.get(),
        }
    }

    /// How many readings of the script are left, with the last one.
    pub fn readings_left(&self) -> usize {
        self.wall.borrow().len()
    }

    /// Whether the script is over, except for its last reading.
    pub fn has_read_all(&self) -> bool {
        self.wall.borrow().len() == 1
    }

    /// The next ID, taken apart.
    pub fn next(&mut self) -> Result<Fields, ScriptError> {
        let ids = self.issue(1)?;
        Ok(self.generator.layout.decode(ids[0]).unwrap())
    }

    pub fn issue(&mut self, count: u64) -> Result<Vec<SnowflakeId>, ScriptError> {
        self.held.begins();
        let IssuedRange { start, end, .. } = protocol::issue(self, count)?;
        self.held.returns();
        let id = |at| self.id_of(Position::new(at));
        Ok((start.get()..end.get()).map(id).collect())
    }

    /// A call whose first step was made outside of the protocol, as sessions do on their
    /// fast path. The generator watches the clock.
    pub fn fast_then_slow(&self) -> Result<IssuedRange, ScriptError> {
        let (slot, generator) = self.enter()?;
        let first = slot
            .live()
            .issue::<true>(generator, self.generation(), 1, self);
        if let Step::Issue(issued) = first {
            return Ok(issued);
        }
        protocol::issue_after(self, first, 1)
    }

    fn id_of(&self, at: Position) -> SnowflakeId {
        let layout = self.generator.layout;
        if self.generator.is_plain() {
            layout.compose(at, self.stamp)
        } else {
            layout.compose_in(at, self.stamp, self.shuffle.as_ref())
        }
    }

    /// Reserves ahead of need: only then a generator with `on_rollback=continue`
    /// looks at the wall clock.
    pub fn look_at_the_wall(&mut self) {
        assert_eq!(self.generator.policy.on_rollback, OnRollback::Continue);
        self.reserve_early();
        let mut wall = self.wall.borrow_mut();
        if wall.len() > 1 {
            wall.pop_front();
        }
    }
}
