//! A whole server in miniature, for tests: the pieces of the core, put together
//! in the order in which `crate::pg` does it (`issue.rs`, `mark.rs`, `entry.rs`,
//! `shmem.rs`). One generator, one slot, one disk, and clocks that tests move.

use std::hash::{Hash, Hasher};

use super::account::Account;
use super::clock::{BootNanos, Clock, Reading, UnixNanos};
use super::generator::{Bounds, Generator, Step, Word};
use super::id::{Position, SnowflakeId, Tick, UnixMillis, WorkerId};
use super::policy::{OnExhausted, OnRollback, SequenceStart};
use super::reservation::{Failover, Plan, Refusal, Situation};
use super::shuffle::Shuffle;
use super::watch::{Patience, Watch};

pub const MS: i64 = 1_000_000;
/// Of the four that two bits hold.
pub const WORKER: i32 = 2;

/// The settings of the server, in milliseconds.
#[derive(Clone, Copy)]
pub struct Settings {
    pub max_clock_jump: i64,
    pub reserve: i64,
    /// What a standby's marks may lag and its clock differ, together.
    pub failover_gap: i64,
}

/// The value of the sequence, and the timeline on which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disk {
    pub value: Option<i64>,
    pub timeline: i64,
}

/// What positions mean: as `Scale` of `shmem.rs`.
pub type Scale = (i64, i64, u32, u32, u64, [bool; 3]);

pub fn scale(generator: &Generator) -> Scale {
    let (layout, policy) = (generator.layout, generator.policy);
    (
        layout.epoch().get(),
        layout.tick_millis(),
        layout.within_bits(),
        layout.clock_bits(),
        if generator.changes_clocks() {
            layout.last_tick().get()
        } else {
            0
        },
        [
            policy.on_rollback.watches(),
            generator.changes_clocks(),
            policy.sequence_start == SequenceStart::Random,
        ],
    )
}

/// Why somebody reserves: as in `mark.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Tick(Tick),
    Early(Tick),
    Floor(UnixMillis),
    Switch,
    Widen,
}

/// What a call comes to, short of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Issued {
        start: Position,
        end: Position,
    },
    /// For the clock to move on by so many ticks.
    WaitsForTick(u64),
    /// For a clock that was set back, by so many nanoseconds.
    WaitsForClock(i64),
    /// Refused by the reserver,
    Refused(Refusal),
    /// because the clock is so many milliseconds behind,
    Behind(i64),
    /// because of `on_exhausted=error`,
    TickUsedUp,
    /// or because there is no more time in the layout.
    TimeUsedUp,
    /// For a reserver under way.
    WaitsForLock,
}

/// A reservation under way: the mark is next, then the word, then the bound.
#[derive(Clone, Copy)]
pub struct UnderWay {
    pub need: Need,
    pub plan: Plan,
    reading: Reading,
    leaves_gap: bool,
    accepted: i64,
    pub phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Planned,
    Written,
    Moved,
}

pub struct Server {
    pub generator: Generator,
    pub settings: Settings,
    pub boot: i64,
    pub wall: i64,
    /// How often the server was started: its secret.
    pub life: u64,

    // The header of shared memory.
    pub trusted_offset: i64,
    pub promoted_at: Option<UnixMillis>,
    pub promoted: bool,

    // The slot.
    pub clock: Clock,
    pub watch: Watch,
    pub word: Word,
    pub bounds: Bounds,
    pub account: Account,
    pub scale: Option<Scale>,
    pub window: i64,
    pub highest: Option<UnixMillis>,
    pub undone: bool,
    pub gap_was_left: bool,
    pub refused_lead: i64,
    pub accepted_lead: i64,

    /// What the disk holds, and what it held one reservation ago.
    pub disk: Disk,
    pub lagging: Disk,
    /// What it holds again if the transaction that rewrote it is rolled back.
    pub before_rewrite: Option<Disk>,
    pub timeline: i64,

    /// Only if `apart`: each call stops where it begins to reserve, and further
    /// steps are [`Self::go_on`]'s.
    pub under_way: Option<UnderWay>,
    pub apart: bool,
    /// The tick that was left unfinished to give clocks back.
    pub left: Option<Tick>,
}

impl Clone for Server {
    fn clone(&self) -> Self {
        Self {
            clock: Clock::from_parts(self.clock.parts()),
            watch: Watch::from_parts(self.watch.parts()),
            word: Word::at(self.word.position()),
            bounds: Bounds::from_parts(self.bounds.parts()),
            ..*self
        }
    }
}

impl Server {
    pub fn new(generator: Generator, settings: Settings, wall_ms: i64) -> Self {
        let wall = wall_ms * MS;
        let reading = Reading {
            boot: BootNanos::new(0),
            wall: UnixNanos::new(wall),
        };
        let empty = Disk {
            value: None,
            timeline: 1,
        };
        Self {
            generator,
            settings,
            boot: 0,
            wall,
            life: 0,
            trusted_offset: reading.offset(),
            promoted_at: None,
            promoted: false,
            clock: Clock::new(reading),
            watch: Watch::default(),
            word: Word::default(),
            bounds: Bounds::default(),
            account: Account::FRESH,
            scale: None,
            window: 0,
            highest: None,
            undone: false,
            gap_was_left: false,
            refused_lead: 0,
            accepted_lead: 0,
            disk: empty,
            lagging: empty,
            before_rewrite: None,
            timeline: 1,
            under_way: None,
            apart: false,
            left: None,
        }
    }

    pub fn reading(&self) -> Reading {
        Reading {
            boot: BootNanos::new(self.boot),
            wall: UnixNanos::new(self.wall),
        }
    }

    /// All that tells this server from others of the same walk, but for `life`.
    pub fn hash(&self, hash: &mut impl Hasher) {
        let fields = (
            (self.boot, self.wall, self.trusted_offset),
            (self.promoted_at.map(UnixMillis::get), self.promoted),
            (self.clock.parts(), &self.watch.parts()[..2]),
            (self.word.position().get(), self.bounds.parts()),
            (self.account.parts(), self.scale, self.window),
            (self.highest.map(UnixMillis::get), self.undone),
            (self.gap_was_left, self.refused_lead, self.accepted_lead),
            (self.disk, self.lagging, self.before_rewrite, self.timeline),
            self.left.map(Tick::get),
        );
        fields.hash(hash);
        let under_way = self.under_way.map(|it| {
            let plan = it.plan;
            (
                (it.phase, it.need == Need::Switch, it.reading.wall.get()),
                (plan.value, plan.account.parts(), plan.clock_from.get()),
                (plan.reserved.get(), plan.early.get(), plan.window_millis),
                (plan.word_from.map(Position::get), it.leaves_gap),
            )
        });
        under_way.hash(hash);
    }

    pub fn pass(&mut self, nanos: i64) {
        self.boot += nanos;
        self.wall += nanos;
    }

    /// The generator's clock.
    pub fn now(&self) -> UnixNanos {
        let reading = self.reading();
        if self.generator.policy.on_rollback.watches() {
            self.watch.now(reading.wall, || reading.boot)
        } else {
            self.clock.now(reading.boot)
        }
    }

    /// What the disk says: the mark, and what it knows of clocks.
    pub fn stored(&self) -> (Option<UnixMillis>, Option<Account>) {
        let layout = self.generator.layout;
        let Some(value) = self.disk.value else {
            return (None, None);
        };
        let read = if layout.clock_bits() > 0 {
            Account::of_mark(value, layout)
        } else {
            None
        };
        read.map_or((Some(UnixMillis::new(value)), None), |(mark, account)| {
            (Some(mark), Some(account))
        })
    }

    pub fn mark(&self) -> Option<UnixMillis> {
        self.stored().0
    }

    pub fn shuffle(&self) -> Option<Shuffle> {
        (self.generator.policy.sequence_start == SequenceStart::Random)
            .then(|| Shuffle::new((self.life, 5), 7))
    }

    pub fn id(&self, position: Position) -> SnowflakeId {
        let layout = self.generator.layout;
        let stamp = layout.stamp(WorkerId::new(WORKER).unwrap()).unwrap();
        if self.generator.is_plain() {
            layout.compose(position, stamp)
        } else {
            layout.compose_in(position, stamp, self.shuffle().as_ref())
        }
    }

    /// Shared memory is lost, the disk is not.
    pub fn restart(&mut self) {
        let fresh = Self::new(self.generator, self.settings, 0);
        let reading = self.reading();
        *self = Self {
            boot: self.boot,
            wall: self.wall,
            life: self.life + 1,
            trusted_offset: reading.offset(),
            clock: Clock::new(reading),
            disk: self.disk,
            lagging: self.lagging,
            timeline: self.timeline,
            apart: self.apart,
            ..fresh
        };
    }

    /// A standby takes over that has only seen marks up to the one before the last.
    pub fn promote(&mut self, clock_difference: i64) {
        self.wall += clock_difference;
        self.disk = self.lagging;
        self.timeline += 1;
        self.restart();
        self.promoted = true;
    }

    /// The slot is given to another generator, if that may be, and comes back.
    pub fn evict(&mut self) {
        let reading = self.reading();
        if self.undone && self.highest > Some(reading.wall.millis()) {
            return;
        }
        let trusted = reading.boot.get() + self.trusted_offset;
        self.bounds.clear();
        self.word.reset();
        self.clock.set(Reading {
            wall: reading.wall.min(UnixNanos::new(trusted)),
            ..reading
        });
        self.watch.reset();
        self.account = Account::FRESH;
        self.gap_was_left = false;
        self.undone = false;
        self.scale = None;
        self.highest = None;
        self.window = 0;
        self.refused_lead = 0;
        self.accepted_lead = 0;
        self.left = None;
    }

    fn unsettle(&mut self) {
        self.bounds.clear();
        self.window = 0;
    }

    /// A transaction gives the sequence a new file: ALTER SEQUENCE ... RESTART,
    /// which takes the mark away so that it is written anew, or with the value it
    /// had.
    pub fn rewrite(&mut self, restart: bool) {
        self.before_rewrite = Some(self.disk);
        let known = self.mark().max(self.highest);
        if restart && known.is_some() {
            self.disk.value = known.map(UnixMillis::get);
            self.disk.timeline = self.timeline;
        }
        self.unsettle();
    }

    /// That transaction ends.
    pub fn end_rewrite(&mut self, commit: bool) {
        let Some(before) = self.before_rewrite.take() else {
            return;
        };
        self.unsettle();
        if !commit {
            self.disk = before;
            self.undone = true;
        }
    }

    /// `snowflake_accept_clock()`.
    pub fn accept(&mut self) {
        let reading = self.reading();
        self.trusted_offset = reading.offset();
        if self.refused_lead > 0 {
            self.accepted_lead = self.refused_lead;
        }
        if self.watch.behind(reading.wall).is_some() {
            let layout = self.generator.layout;
            let at = layout.instant_of(layout.tick_of(self.word.position()));
            self.watch.lead_to(reading.boot, UnixNanos::from_millis(at));
            self.watch.believe(reading.wall);
        }
    }

    /// As `Entry::settle`: what positions mean has changed.
    fn settle(&mut self) {
        let scale = Some(scale(&self.generator));
        if self.scale != scale {
            self.unsettle();
            self.word.reset();
            self.watch.reset();
            self.scale = scale;
            self.left = None;
        }
    }

    pub fn situation(&self, need: Need) -> Situation {
        let layout = self.generator.layout;
        let reading = self.reading();
        let reserved = self.bounds.reserved();
        let (mut stored, mut account) = self.stored();
        if stored < self.highest || self.undone {
            stored = stored.max(self.highest);
            account = None;
        }
        let nothing_known = |mark| Account::unknown(0, layout.tick_from(mark));
        let stored_account = account
            .or(stored.map(nothing_known))
            .unwrap_or(Account::FRESH);
        let (through, floor) = match need {
            Need::Tick(tick) | Need::Early(tick) => (tick, None),
            Need::Floor(at) => (Tick::new(0), Some(at)),
            Need::Switch | Need::Widen => (Tick::new(0), None),
        };
        let since_mark = self.timeline - self.disk.timeline;
        let switches = since_mark.max(i64::from(self.promoted));
        let borrow = layout.ticks_as_millis(self.generator.policy.max_borrow_ticks);
        let leaves_gap = reserved == Position::ZERO && !self.gap_was_left && switches > 0;
        let policy_lead = self.generator.policy.max_rollback_millis;
        Situation {
            reading,
            generator_now: self.now(),
            trusted_offset: self.trusted_offset,
            max_clock_jump_millis: self.settings.max_clock_jump,
            max_lead_millis: policy_lead + self.accepted_lead,
            word: self.word.position(),
            reserved,
            stored,
            failover: leaves_gap.then(|| Failover {
                gap_millis: (self.settings.failover_gap + borrow) * switches,
                mark_is_older: since_mark > 0,
                promoted_at: self.promoted_at.unwrap_or(reading.wall.millis()),
                last_commit: None,
            }),
            floor,
            account: if reserved == Position::ZERO {
                stored_account
            } else {
                self.account
            },
            behind: (need == Need::Switch)
                .then(|| self.watch.behind(reading.wall))
                .flatten(),
            through,
            full_window_millis: self.settings.reserve,
            last_window_millis: self.window,
        }
    }

    /// As `mark::reserve`. Without a plan if there was nothing to do.
    pub fn reserve(&mut self, need: Need) -> Result<Option<Plan>, Refusal> {
        if !self.is_needed(need) {
            return Ok(None);
        }
        match (self.reserve_anyway(need), need) {
            (Err(_), Need::Early(_)) => Ok(None),
            (planned, _) => planned.map(Some),
        }
    }

    fn is_needed(&mut self, need: Need) -> bool {
        let (generator, layout) = (self.generator, self.generator.layout);
        match need {
            Need::Tick(tick) => {
                let clock = layout.clock_of(self.word.position());
                let reserved = self.bounds.reserved();
                if layout.clock_of(reserved) == clock
                    && reserved > layout.in_clock(clock, layout.position_of(tick))
                {
                    return false;
                }
            }
            Need::Early(_) => return self.bounds.early_is_claimed(),
            Need::Widen => {
                if let Some(account) = generator.widen(&self.word, &self.bounds, self.account) {
                    self.account = account;
                }
                return false;
            }
            _ => {}
        }
        true
    }

    /// Also if nobody needs it.
    pub fn reserve_anyway(&mut self, need: Need) -> Result<Plan, Refusal> {
        assert!(self.under_way.is_none(), "the lock is taken");
        let generator = self.generator;
        let situation = self.situation(need);
        let planned = generator.plan(&situation);
        if let Err(Refusal::ClockRolledBack { by, .. } | Refusal::MarkAhead { by, .. }) = planned {
            self.refused_lead = by;
        }
        let plan = planned?;
        let reading = situation.reading;
        self.trusted_offset = reading.offset();
        if let Some(failover) = situation.failover {
            self.promoted_at = Some(failover.promoted_at);
        }
        if generator.policy.on_rollback.watches() {
            self.watch.end_lead(reading.boot, reading.wall);
        } else {
            self.clock.anchor(reading);
        }
        self.under_way = Some(UnderWay {
            need,
            plan,
            reading,
            leaves_gap: situation.failover.is_some(),
            accepted: self.accepted_lead,
            phase: Phase::Planned,
        });
        while !self.apart && self.under_way.is_some() {
            self.go_on();
        }
        Ok(plan)
    }

    /// The next step of a reservation under way.
    pub fn go_on(&mut self) {
        let Some(UnderWay {
            need,
            plan,
            reading,
            leaves_gap,
            accepted,
            phase,
        }) = self.under_way
        else {
            return;
        };
        let generator = self.generator;
        let boot = BootNanos::new(self.boot);
        let next = match phase {
            Phase::Planned => {
                self.lagging = self.disk;
                self.disk = Disk {
                    value: Some(plan.value),
                    timeline: self.timeline,
                };
                self.highest = self.highest.max(Some(plan.mark));
                self.undone = false;
                Phase::Written
            }
            Phase::Written => {
                if !generator.policy.on_rollback.watches() {
                    self.clock.lead_to(boot, plan.clock_from);
                } else {
                    if plan.clock_from > reading.wall {
                        self.watch.lead_to(boot, plan.clock_from);
                    }
                    if plan.starts {
                        self.watch.started_by(reading.wall);
                    }
                }
                if plan.account.together() > 1 {
                    self.left = Some(generator.layout.tick_of(self.word.position()));
                }
                self.account = generator.move_word(&self.word, &self.bounds, &plan);
                Phase::Moved
            }
            Phase::Moved => {
                if need == Need::Switch {
                    self.watch.believe(reading.wall);
                }
                self.gap_was_left |= leaves_gap;
                self.window = plan.window_millis;
                let policy_lead = generator.policy.max_rollback_millis;
                let keeps = accepted > 0 && plan.lead_millis > policy_lead;
                self.accepted_lead = if keeps { plan.lead_millis } else { 0 };
                self.refused_lead = 0;
                self.bounds.publish(plan.reserved, plan.early);
                self.under_way = None;
                return;
            }
        };
        self.under_way = Some(UnderWay {
            phase: next,
            ..self.under_way.unwrap()
        });
    }

    fn step(&self, count: u64) -> Step {
        let (generator, reading) = (&self.generator, self.reading());
        if generator.policy.on_rollback.watches() {
            return self.word.issue_watching(
                generator,
                &self.bounds,
                &self.watch,
                count,
                || reading.wall,
                || reading.boot,
            );
        }
        self.word.issue(generator, &self.bounds, count, || {
            generator
                .layout
                .tick_number(self.clock.now(reading.boot).millis())
        })
    }

    /// As `issue::next_chunk`, up to where it would sleep.
    pub fn call(&mut self, count: u64, patience: &mut Patience) -> Outcome {
        if self.under_way.is_none() {
            self.settle();
        }
        for _ in 0..8 {
            let refused = match self.step(count) {
                Step::Issue { start, end, .. } => {
                    if self.bounds.elect_early(end) && self.under_way.is_none() {
                        let last = Position::new(end.get() - 1);
                        let tick = self.generator.layout.tick_of(last);
                        let _ = self.reserve(Need::Early(tick));
                    }
                    return Outcome::Issued { start, end };
                }
                Step::Wait { ticks } => return self.wait_for_tick(ticks),
                Step::TimeUsedUp => return Outcome::TimeUsedUp,
                Step::RolledBack { by } => match self.wait_for_clock(by, patience) {
                    Some(outcome) => return outcome,
                    None => continue,
                },
                Step::Reserve { .. } | Step::Widen if self.under_way.is_some() => {
                    return Outcome::WaitsForLock;
                }
                Step::Reserve { through } => self.reserve(Need::Tick(through)),
                Step::Widen => self.reserve(Need::Widen),
            };
            match refused {
                Err(refusal) => return Outcome::Refused(refusal),
                Ok(_) if self.under_way.is_some() => return Outcome::WaitsForLock,
                Ok(_) => {}
            }
        }
        panic!("no ID and no reason after eight attempts");
    }

    fn wait_for_tick(&self, ticks: u64) -> Outcome {
        if self.generator.policy.on_exhausted == OnExhausted::Error {
            return Outcome::TickUsedUp;
        }
        Outcome::WaitsForTick(ticks)
    }

    /// `None`: look again.
    fn wait_for_clock(&mut self, by: i64, patience: &mut Patience) -> Option<Outcome> {
        let policy = self.generator.policy;
        let (millis, boot) = (by / MS, BootNanos::new(self.boot));
        let _ = self.watch.is_new_rollback();
        if millis > policy.max_rollback_millis {
            self.refused_lead = millis;
            return Some(Outcome::Behind(millis));
        }
        let mut nanos = by;
        if policy.on_rollback == OnRollback::NextClock {
            if self.under_way.is_some() {
                return Some(Outcome::WaitsForLock);
            }
            match self.reserve(Need::Switch) {
                Ok(_) if self.under_way.is_some() => return Some(Outcome::WaitsForLock),
                Ok(_) => return None,
                Err(Refusal::NoClockFree { free_from, .. }) => {
                    let free = UnixNanos::from_millis(free_from).get();
                    nanos = free.saturating_sub(self.wall).clamp(0, by);
                }
                Err(refusal) => return Some(Outcome::Refused(refusal)),
            }
        }
        if patience.awaits(&policy, nanos, boot) {
            return Some(Outcome::WaitsForClock(nanos));
        }
        self.refused_lead = millis;
        Some(Outcome::Behind(millis))
    }
}
