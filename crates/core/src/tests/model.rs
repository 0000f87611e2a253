//! A whole server in miniature, for tests: a host of the protocol with one generator,
//! one slot, one disk, and clocks that tests move.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};

use super::MARKS_MAX;
use super::one_call::{OneCall, whose_calls_are_transactions};
use crate::id::shuffle::Shuffle;
use crate::id::{
    BootNanos, Millis, NANOS_PER_MILLI, Nanos, Position, SnowflakeId, Tick, UnixMillis, UnixNanos,
    WorkerId,
};
use crate::label::generator::Generator;
use crate::protocol::clock::Reading;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{ClockSeqSpan, Clocks, IssuedRange, Step};
use crate::protocol::host::{Host, IssueError, Need, Note, OnDisk, TrustedClock};
use crate::protocol::plan::{Author, PlanInput, ReserveError, Settings};
use crate::protocol::slot::{Reserving, Scale, Slot, close_all};
use crate::protocol::tenure::{Generation, Tenure};
use crate::protocol::{
    self,
    step_by_step::{self, UnderWay},
};

pub const MS: i64 = NANOS_PER_MILLI;
/// One of the four worker IDs that two bits hold.
pub const WORKER: i32 = 2;
const KEY: u64 = 7;
const OTHER_KEY: u64 = 8;

/// The value of the sequence, who wrote it, and the file that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disk {
    pub value: Option<i64>,
    pub writer: Writer,
    pub file: u32,
}

/// Who wrote the value of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    /// A server on this timeline.
    Server { timeline: i64 },
    /// A person or a tool, by `setval()`.
    Others,
    /// Somebody who has restarted the sequence.
    Restart,
}

/// A disk, and the commit time of the last transaction that is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub disk: Disk,
    pub last_commit: Option<i64>,
}

/// Why a call of the model ends without an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Refused(IssueError),
    /// The call would sleep for this long.
    Sleeps(Nanos),
    /// Another reservation is under way.
    WaitsForLock,
    /// The registry has given the server no worker ID.
    NoWorker,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Issued {
        start: Position,
        end: Position,
    },
    /// Waits for the clock to move on by this many ticks.
    WaitsForTick(u64),
    /// Waits for a clock that was set back, by this many nanoseconds.
    WaitsForClock(i64),
    /// Refused.
    Refused(IssueError),
    /// Waits for a reserver under way.
    WaitsForLock,
    /// Waits for the clock to reach the bound of the server's tenure.
    WaitsAtBound,
    /// The registry has given the server no worker ID.
    NoWorker,
}

/// What a nap does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Naps {
    /// The call stops there.
    #[default]
    Stop,
    /// Both clocks run.
    Pass,
    /// The boot clock runs, the wall clock stands still.
    Stand,
}

/// How many worker IDs a queue has.
pub const QUEUE: usize = 3;

/// A registry of worker IDs in miniature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    /// Each worker ID with its bound, the first one to be taken first.
    pub waits: [(WorkerId, UnixMillis); QUEUE],
    /// Which one the server has: the last one.
    pub taken: Option<usize>,
    pub lease: Millis,
    /// The registry is not told where the IDs of a worker ID end.
    pub is_deaf: bool,
}

impl Queue {
    /// Nothing is issued any more under the worker ID at this place from here on.
    pub fn ends(&mut self, at: usize, end: UnixMillis) {
        if !self.is_deaf {
            self.waits[at].1 = self.waits[at].1.min(end);
        }
    }
}

/// How long calls have slept: for a tick, and for a clock that was set back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slept {
    pub for_tick: i64,
    pub for_clock: i64,
}

pub struct Server {
    pub generator: Generator,
    pub settings: Settings,
    pub boot: Cell<i64>,
    pub wall: Cell<i64>,
    /// How often the server was started: its secret.
    pub life: u64,
    pub trusted: Cell<TrustedClock>,
    tenure: Cell<Tenure>,
    pub slot: Slot,

    /// What the disk holds.
    pub disk: Cell<Disk>,
    /// When a transaction committed last, by the wall clock.
    pub committed: Cell<Option<i64>>,
    /// What a standby that lags by one mark has.
    pub lagging: Cell<Replica>,
    /// What a standby has that saw nothing since the last promotion.
    pub blind: (Replica, i64),
    /// What the disk holds again if the transaction that rewrote it is rolled back.
    pub before_rewrite: Option<Disk>,
    pub timeline: i64,

    /// Only if `apart`: the call that has stopped where it began to reserve.
    pub under_way: Cell<Option<UnderWay>>,
    /// Whether each call stops where it begins to reserve, and [`Self::go_on`] takes the
    /// further steps.
    pub apart: bool,
    /// The tick that was left unfinished to give clocks back.
    pub left: Cell<Option<Tick>>,
    pub naps: Naps,
    /// The registry stores a later bound when a call needs one, this much later.
    pub renews: Option<Millis>,
    /// The queue of worker IDs of the server.
    pub queue: Cell<Option<Queue>>,
    /// Another generator of the server: it has the clocks and the tenure of this one.
    pub beside: Option<Box<Self>>,
    pub slept: Cell<Slept>,
    pub held: OneCall,
    pub marks: Cell<u32>,
    pub notes: RefCell<Vec<Note>>,
}

impl Clone for Server {
    fn clone(&self) -> Self {
        Self {
            boot: self.boot.clone(),
            wall: self.wall.clone(),
            trusted: self.trusted.clone(),
            tenure: self.tenure.clone(),
            slot: self.slot.copy(),
            disk: self.disk.clone(),
            committed: self.committed.clone(),
            lagging: self.lagging.clone(),
            under_way: self.under_way.clone(),
            left: self.left.clone(),
            queue: self.queue.clone(),
            beside: self.beside.clone(),
            slept: self.slept.clone(),
            held: OneCall::default(),
            marks: self.marks.clone(),
            notes: RefCell::default(),
            ..*self
        }
    }
}

impl Clocks for Server {
    fn wall(&self) -> UnixNanos {
        UnixNanos::new(self.wall.get())
    }

    fn boot(&self) -> BootNanos {
        BootNanos::new(self.boot.get())
    }

    fn read(&self) -> Reading {
        Reading {
            boot: self.boot(),
            wall: self.wall(),
        }
    }
}

impl Host for Server {
    type Error = Stop;

    fn error(&self, why: IssueError) -> Stop {
        Stop::Refused(why)
    }

    fn enter(&self) -> Result<(&Slot, &Generator), Stop> {
        if self.generation().worker().is_none() {
            return Err(Stop::NoWorker);
        }
        if self.slot.key() != KEY {
            let start = self.trusted.get().believable(self.read());
            assert!(self.slot.evict(KEY, start, 0), "it was evicted before");
            self.slot.unpin();
        }
        let (file, scale) = (self.disk.get().file, self.scale());
        if !self.slot.is_settled(file, scale) {
            let start = self.trusted.get().believable(self.read());
            self.reserving(|token| self.slot.settle(token, file, scale, start));
        }
        Ok((&self.slot, &self.generator))
    }

    whose_calls_are_transactions!();

    fn settings(&self) -> Settings {
        self.settings
    }

    fn read_mark(&self) -> Result<OnDisk, Stop> {
        Ok(OnDisk {
            value: self.disk.get().value,
            author: match self.disk.get().writer {
                Writer::Server { timeline } if timeline == self.timeline => Author::Present,
                Writer::Server { timeline } => Author::Earlier {
                    promotions: self.timeline - timeline,
                },
                Writer::Others => Author::Unknown,
                Writer::Restart => Author::Restart,
            },
        })
    }

    fn last_commit(&self) -> Option<UnixMillis> {
        self.committed.get().map(UnixMillis::new)
    }

    fn write_durably(&self, value: i64) -> Result<(), Stop> {
        self.marks.set(self.marks.get() + 1);
        assert!(self.marks.get() < MARKS_MAX, "it reserves for ever");
        self.lagging.set(self.replica());
        self.disk.set(Disk {
            value: Some(value),
            writer: self.writer(),
            ..self.disk.get()
        });
        Ok(())
    }

    fn nap(&self, nanos: Nanos) -> Result<(), Stop> {
        if self.naps == Naps::Stop {
            return Err(Stop::Sleeps(nanos));
        }
        // As PostgreSQL does.
        let most = if nanos.get() < MS { 500 } else { 10_000 };
        let nap = (nanos.get() / 1000).clamp(50, most) * 1000;
        let mut slept = self.slept.get();
        let watches = self.generator.policy.on_rollback.watches();
        if watches && self.slot.clock().rollback(self.wall()).is_some() {
            slept.for_clock += nap;
        } else {
            slept.for_tick += nap;
        }
        self.slept.set(slept);
        assert!(slept.for_clock + slept.for_tick < 8000 * MS, "for ever");
        self.boot.set(self.boot.get() + nap);
        if self.naps == Naps::Pass {
            self.wall.set(self.wall.get() + nap);
        }
        Ok(())
    }

    fn more_bound(&self, needed: UnixMillis) -> Result<bool, Stop> {
        if let Some(by) = self.renews {
            self.becomes(|tenure| tenure.renewed(needed.plus(by)));
        }
        Ok(self.renews.is_some())
    }

    fn another_worker(&self) -> Result<bool, Stop> {
        Ok(self.takes_from_queue(Some(self.wall().millis())))
    }

    fn note(&self, note: Note) {
        self.notes.borrow_mut().push(note);
    }

    fn reserved(&self, _began: BootNanos) {
        // The ID is in a transaction that commits.
        self.committed.set(Some(self.wall().millis().get()));
    }

    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Stop> {
        let together = self.slot.clock_history().together;
        let at = self
            .generator
            .layout
            .tick_of(self.slot.live().cursor().position());
        if !self.apart {
            let before = self.marks.get();
            let result = protocol::reserve(self, need);
            if together > 1 && self.marks.get() != before {
                self.note_left(at);
            }
            return result;
        }
        if self.under_way.get().is_some() {
            return match need {
                Need::Early(_) => Ok(None),
                _ => Err(Stop::WaitsForLock),
            };
        }
        match UnderWay::begin(self, need)? {
            Ok(None) => Ok(None),
            Ok(under_way) => {
                self.under_way.set(under_way);
                match need {
                    Need::Early(_) => Ok(None),
                    _ => Err(Stop::WaitsForLock),
                }
            }
            Err(_) if matches!(need, Need::Early(_)) => Ok(None),
            Err(refusal) => Ok(Some(refusal)),
        }
    }
}

impl Server {
    pub fn new(generator: Generator, settings: Settings, wall_ms: i64) -> Self {
        let reading = Reading {
            boot: BootNanos::new(0),
            wall: UnixNanos::new(wall_ms * MS),
        };
        let tenure = Tenure::NONE.unregistered(WorkerId::new(WORKER));
        let disk = Disk {
            value: None,
            writer: Writer::Server { timeline: 1 },
            file: 1,
        };
        let replica = Replica {
            disk,
            last_commit: None,
        };
        Self {
            generator,
            settings,
            boot: Cell::new(0),
            wall: Cell::new(wall_ms * MS),
            life: 0,
            trusted: Cell::new(TrustedClock::new(reading)),
            tenure: Cell::new(tenure),
            slot: Slot::new(reading, 0),
            disk: Cell::new(disk),
            committed: Cell::new(None),
            lagging: Cell::new(replica),
            blind: (replica, 1),
            before_rewrite: None,
            timeline: 1,
            under_way: Cell::new(None),
            apart: false,
            left: Cell::new(None),
            naps: Naps::Stop,
            renews: None,
            queue: Cell::new(None),
            beside: None,
            slept: Cell::default(),
            held: OneCall::default(),
            marks: Cell::new(0),
            notes: RefCell::default(),
        }
    }

    /// All that distinguishes this server from others of the same walk, except `life`.
    pub fn hash(&self, hash: &mut impl Hasher) {
        let trusted = self.trusted.get();
        let fields = (
            (self.boot.get(), self.wall.get(), trusted.trusted_offset),
            (self.slot.key(), self.slot.parts()),
            (self.disk.get(), self.committed.get(), self.lagging.get()),
            (self.blind, self.before_rewrite, self.timeline),
            (self.left.get(), self.tenure.get(), self.queue.get()),
        );
        fields.hash(hash);
        if let Some(beside) = &self.beside {
            beside.hash(hash);
        }
        if let Some(under_way) = self.under_way.get() {
            let (phase, plan) = under_way.parts();
            let work = (plan.believes, plan.reading, plan.leaves_gap, plan.forgiven);
            let plan = (
                (
                    plan.value,
                    plan.clock_history.parts(),
                    plan.clock_from.get(),
                ),
                (plan.reserved.get(), plan.early.get(), plan.window),
                plan.cursor_from.map(Position::get),
            );
            (phase, plan, work).hash(hash);
        }
    }

    pub fn pass(&mut self, nanos: i64) {
        self.boot.set(self.boot.get() + nanos);
        if let Some(beside) = &mut self.beside {
            beside.boot.set(self.boot.get());
        }
        self.step(nanos);
    }

    /// The wall clock is stepped.
    pub fn step(&mut self, nanos: i64) {
        self.wall.set(self.wall.get() + nanos);
        if let Some(beside) = &mut self.beside {
            beside.wall.set(self.wall.get());
        }
    }

    /// The generator's clock.
    pub fn now(&self) -> UnixNanos {
        self.slot.live().now(&self.generator, self.read())
    }

    pub fn scale(&self) -> Scale {
        Scale::of_generator(&self.generator)
    }

    /// Whether the generator has a slot, and issues by its present layout.
    pub fn is_in_force(&self) -> bool {
        self.has_place()
            && self.slot.scale() == self.scale()
            && self.reserved() != Position::ZERO
            && self.under_way.get().is_none()
    }

    pub fn has_place(&self) -> bool {
        self.slot.key() == KEY
    }

    pub fn cursor(&self) -> Position {
        self.slot.live().cursor().position()
    }

    pub fn reserved(&self) -> Position {
        self.slot.live().bounds().in_force()
    }

    pub fn clock_seq_span(&self) -> ClockSeqSpan {
        self.slot.live().bounds().clock_seq_span()
    }

    /// What the disk says: the mark, and what the mark says of clocks.
    pub fn stored(&self) -> (Option<UnixMillis>, Option<ClockSeqHistory>) {
        let value = self.disk.get().value;
        let now = self.wall().millis();
        let read = value.and_then(|value| self.generator.read_mark(value, now).ok());
        read.map_or((None, None), |(mark, clock_history)| {
            (Some(mark), clock_history)
        })
    }

    pub fn mark(&self) -> Option<UnixMillis> {
        self.stored().0
    }

    /// Somebody sets the mark, or restarts the sequence.
    pub fn set_mark(&self, value: Option<i64>) {
        let writer = value.map_or(Writer::Restart, |_| Writer::Others);
        self.disk.set(Disk {
            value,
            writer,
            ..self.disk.get()
        });
    }

    /// A tool sets the mark to the value that it has.
    pub fn unstamp(&self) {
        self.disk.set(Disk {
            writer: Writer::Others,
            ..self.disk.get()
        });
    }

    /// How many promotions lie between the writer of the mark, if it is known, and now.
    pub fn promotions(&self) -> i64 {
        match self.disk.get().writer {
            Writer::Server { timeline } => self.timeline - timeline,
            _ => 0,
        }
    }

    /// There is no mark yet.
    pub fn clear_mark(&self) {
        self.set_mark(None);
        self.claim_mark();
    }

    /// What the disk has is taken for a mark that this server wrote.
    pub fn claim_mark(&self) {
        self.disk.set(Disk {
            writer: self.writer(),
            ..self.disk.get()
        });
    }

    /// This server, as a writer.
    pub fn writer(&self) -> Writer {
        let timeline = self.timeline;
        Writer::Server { timeline }
    }

    /// The ID of a caller that enters now.
    pub fn id(&self, position: Position) -> SnowflakeId {
        self.id_for(self.generation(), position)
    }

    pub fn id_for(&self, generation: Generation, position: Position) -> SnowflakeId {
        let layout = self.generator.layout;
        let stamp = layout.stamp(generation.worker().unwrap()).unwrap();
        if self.generator.is_plain() {
            layout.compose(position, stamp)
        } else {
            let shuffle = self
                .generator
                .is_random()
                .then(|| Shuffle::new((self.life, 5), KEY));
            layout.compose_in(position, stamp, shuffle.as_ref())
        }
    }

    /// Shared memory is lost, the disk is not.
    pub fn restart(&mut self) {
        let reading = self.read();
        self.life += 1;
        let tenure = match self.tenure.get().bound {
            None => Tenure::NONE.unregistered(WorkerId::new(WORKER)),
            // The registry has to be asked.
            Some(_) => Tenure::NONE.closed(),
        };
        self.trusted.set(TrustedClock::new(reading));
        if let Some(beside) = &mut self.beside {
            beside.restart();
        }
        self.becomes(|_| tenure);
        self.slot = Slot::new(reading, 0);
        self.before_rewrite = None;
        self.under_way.set(None);
        self.left.set(None);
    }

    fn replica(&self) -> Replica {
        Replica {
            disk: self.disk.get(),
            last_commit: self.committed.get(),
        }
    }

    /// A standby takes over that has only seen marks up to the one before the last.
    pub fn promote(&mut self, clock_difference: i64) {
        self.take_over(self.lagging.get(), clock_difference);
    }

    /// A standby takes over that has seen nothing since the last promotion.
    pub fn promote_blind(&mut self, clock_difference: i64) {
        // The standby has no history of a timeline that it has not seen.
        let (replica, timeline) = self.blind;
        self.timeline = timeline;
        self.take_over(replica, clock_difference);
    }

    fn take_over(&mut self, replica: Replica, clock_difference: i64) {
        self.step(clock_difference);
        self.disk.set(replica.disk);
        self.committed.set(replica.last_commit);
        self.lagging.set(replica);
        self.blind = (replica, self.timeline);
        self.timeline += 1;
        self.restart();
    }

    /// The slot is given to another generator, if that is allowed, and comes back.
    pub fn evict(&mut self) {
        let start = self.trusted.get().believable(self.read());
        if self.slot.evict(OTHER_KEY, start, 0) {
            self.slot.unpin();
            self.left.set(None);
        }
    }

    /// A transaction gives the sequence a new file, and the mark that is known is written
    /// there: that before, with who wrote it, or a later one that this server wrote.
    pub fn rewrite(&mut self) {
        let mut disk = self.disk.get();
        self.before_rewrite = Some(disk);
        disk.file += 1;
        let own = self.slot.highest();
        if own > self.mark() {
            disk.value = own.map(UnixMillis::get);
            disk.writer = self.writer();
        }
        self.disk.set(disk);
    }

    /// That transaction ends.
    pub fn end_rewrite(&mut self, commit: bool) {
        let Some(before) = self.before_rewrite.take() else {
            return;
        };
        self.slot.end_rewrite(commit);
        if !commit {
            self.disk.set(before);
        }
    }

    /// `snowflake_accept_clock()`.
    pub fn accept(&mut self) {
        let reading = self.read();
        let _ = self.with_trusted_clock(|trusted, _| trusted.accept(reading));
        let _ = self.slot.accept(reading);
    }

    /// What a reserver would find.
    pub fn situation(&self, need: Need) -> Result<PlanInput, ReserveError> {
        step_by_step::situation(
            self,
            need,
            self.read_mark().unwrap(),
            &self.trusted.get(),
            self.tenure(),
        )
    }

    /// The next step of a reservation under way.
    pub fn go_on(&self) {
        if let Some(under_way) = self.under_way.take() {
            let (phase, plan) = under_way.parts();
            let gives_back = phase == 1 && plan.clock_history.together > 1;
            let at = self.generator.layout.tick_of(self.cursor());
            self.under_way.set(under_way.go_on(self).unwrap());
            if gives_back {
                self.note_left(at);
            }
        }
    }

    /// Clocks were given back, and the cursor was at this tick before: notes which tick
    /// lacks numbers now.
    fn note_left(&self, before: Tick) {
        let (layout, cursor) = (self.generator.layout, self.cursor());
        self.left.set(Some(if layout.within(cursor) == 0 {
            before
        } else {
            layout.tick_of(cursor)
        }));
    }

    /// A call, up to where it would sleep.
    pub fn call(&self, count: u64) -> Outcome {
        self.held.begins();
        match protocol::issue(self, count) {
            Ok(IssuedRange { start, end, .. }) => {
                self.held.returns();
                Outcome::Issued { start, end }
            }
            Err(Stop::WaitsForLock) => Outcome::WaitsForLock,
            Err(Stop::NoWorker) => Outcome::NoWorker,
            Err(Stop::Refused(refused)) => Outcome::Refused(refused),
            Err(Stop::Sleeps(nanos)) => {
                let step = self.look(count);
                match step {
                    Step::Wait { ticks } => Outcome::WaitsForTick(ticks),
                    Step::RolledBack { .. } => Outcome::WaitsForClock(nanos.get()),
                    Step::Reserve { .. } => Outcome::WaitsAtBound,
                    step => panic!("it sleeps, but {step:?}"),
                }
            }
        }
    }

    /// Takes the first worker ID of the queue whose bound is not after `latest`, if that is
    /// given: then the server closes first, and returns the one before. False if there is none. A
    /// server that has none in memory gets its own one back by forgetting that it is taken.
    pub fn takes_from_queue(&self, latest: Option<UnixMillis>) -> bool {
        let Some(mut queue) = self.queue.get() else {
            return false;
        };
        let free = (0..QUEUE).filter(|at| Some(*at) != queue.taken);
        let passed = |at: &usize| latest.is_none_or(|latest| queue.waits[*at].1 <= latest);
        let Some(first) = free.clone().find(passed) else {
            return false;
        };
        if let (Some(_), Some(at)) = (latest, queue.taken) {
            queue.ends(at, self.close());
        }
        let (worker, floor) = queue.waits[first];
        let bound = self
            .wall()
            .millis()
            .plus(queue.lease)
            .max(floor.plus(Millis::new(1)));
        // The one that was taken before has the last place, which is then the tail.
        queue.waits[first..].rotate_left(1);
        queue.waits[QUEUE - 1].1 = bound;
        queue.taken = Some(QUEUE - 1);
        self.queue.set(Some(queue));
        let ahead = Millis::new(1_000_000);
        self.becomes(|tenure| tenure.granted(worker, floor, bound, floor, ahead));
        true
    }

    /// The registry stores a later bound.
    pub fn renews_from_queue(&self) {
        let Some(mut queue) = self.queue.get() else {
            return;
        };
        let Some(at) = queue.taken else { return };
        let now = self.wall().millis();
        let under = |server: &Self| server.slot.furthest_under(self.generation());
        let furthest = under(self).max(self.beside.as_deref().and_then(under));
        let from = now.max(furthest.unwrap_or(now));
        self.becomes(|tenure| tenure.renewed(from.plus(queue.lease)));
        queue.waits[at].1 = queue.waits[at].1.max(from.plus(queue.lease));
        self.queue.set(Some(queue));
    }

    /// The server has another tenure from now on.
    pub fn becomes(&self, next: impl FnOnce(Tenure) -> Tenure) {
        self.tenure.set(next(self.tenure.get()));
        if let Some(beside) = &self.beside {
            beside.tenure.set(self.tenure.get());
        }
    }

    pub fn tenure(&self) -> Tenure {
        self.tenure.get()
    }

    /// The server is about to give its worker ID back. Returns where the IDs of that end.
    pub fn close(&self) -> UnixMillis {
        let tenure = self.tenure();
        self.becomes(Tenure::closed);
        let beside = self.beside.iter().map(|beside| &beside.slot);
        let slots = close_all(beside.chain([&self.slot]));
        tenure.end(slots, self.wall().millis())
    }

    /// A call of the generator beside this one, on the server's clock.
    pub fn call_beside(&self, count: u64) -> Option<Outcome> {
        let beside = self.beside.as_ref()?;
        beside.trusted.set(self.trusted.get());
        let outcome = beside.call(count);
        self.trusted.set(beside.trusted.get());
        Some(outcome)
    }

    /// The next step, without taking anything.
    fn look(&self, count: u64) -> Step {
        self.step_of(self.generation(), count)
    }

    /// One step of a session that has entered for a generation.
    pub fn step_of(&self, mine: Generation, count: u64) -> Step {
        let (live, generator) = (self.slot.live(), &self.generator);
        if generator.policy.on_rollback.watches() {
            live.issue::<true>(generator, mine, count, self)
        } else {
            live.issue::<false>(generator, mine, count, self)
        }
    }
}

/// The settings of a test, in milliseconds.
pub const fn settings(max_clock_jump: i64, reserve: i64, failover_gap: i64) -> Settings {
    Settings {
        max_clock_jump: Millis::new(max_clock_jump),
        reserve: Millis::new(reserve),
        failover_gap: Millis::new(failover_gap),
    }
}
