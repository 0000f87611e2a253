//! Reservations: how far IDs may be issued before the next durable mark.
//!
//! The **mark** is an instant: no ID whose tick begins at or after it has been
//! issued. It is an instant and not a tick so that it means the same whatever
//! becomes of the layout's epoch, and so that a person can read it.
//!
//! [`Generator::plan`] is arithmetic on a [`PlanInput`] and changes nothing. What a
//! [`Plan`] allows is carried out in one order, [`NewPlan`], [`DurablePlan`], [`MovedPlan`],
//! published: each of these is made from the one before and consumes it.

use crate::id::{Millis, Nanos, Position, SnowflakeId, Tick, UnixMillis, UnixNanos};
use crate::label::generator::Generator;
use crate::protocol::clock::Reading;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{ClockSeqSpan, Live};
use crate::protocol::tenure::Tenure;

/// What administrators set for all generators of a server.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `snowflake_id.reserve_ahead`: how much a reservation takes.
    pub reserve: Millis,
    /// `snowflake_id.failover_gap`: the sum of how far a standby's marks may lag and
    /// how much its clock may differ.
    pub failover_gap: Millis,
    /// `snowflake_id.max_clock_jump`.
    pub max_clock_jump: Millis,
}

/// Who wrote what the disk has. A generator that runs knows better than any of them, and writes
/// its own mark back; one that starts leaves a gap behind a mark that is not [`Self::Present`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Author {
    /// This server, since it was promoted: no ID lies behind the mark.
    Present,
    /// This server or the one whose standby it was, this many promotions ago: that one may have
    /// gone on past the mark.
    Earlier { promotions: i64 },
    /// Somebody else, or this server before it became a copy: IDs may lie behind the mark.
    Unknown,
    /// Somebody has restarted the sequence, and nobody has kept the mark: how far the generator
    /// was is not known.
    Restart,
}

/// What is left out behind a mark that IDs may have passed, once: the generator writes a mark of
/// its own behind the gap.
///
/// One gap for each promotion: the lost primary may have gone on past the mark, and if it had
/// just been promoted itself, it ran a gap ahead. One gap behind a mark of which it is not known
/// who wrote it.
///
/// # From where the gap counts
///
/// After a promotion, from the mark as it would be if the lost primary had lived on until
/// now: the mark plus the time since the last replayed commit, or from now if that is
/// later. Two standbys that are promoted one after the other from one mark then start
/// at different instants, as far apart as their promotions. While the first one is ahead
/// of its clock, it runs at half speed. So the second one starts past all IDs of the
/// first one, if more time lies between the two promotions than the sum of two things:
/// twice the `max_borrow` of the generator, and twice the difference of the two clocks.
///
/// A mark of an unknown author may be years old. No time is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Who wrote the mark.
    pub author: Author,
    /// `snowflake_id.failover_gap` and what the generator may borrow, times the
    /// promotions.
    pub length: Millis,
    /// When the last replayed transaction had committed.
    pub last_commit: Option<UnixMillis>,
}

impl Gap {
    /// Where a generator with this mark starts.
    fn end(&self, mark: Option<UnixMillis>, now: UnixMillis) -> UnixMillis {
        let passed = match self.author {
            Author::Earlier { .. } => now.since(self.last_commit.unwrap_or(now)),
            _ => Millis::ZERO,
        };
        let mark = mark.map(|mark| mark.plus(passed.max(Millis::ZERO)));
        let latest = mark.max(self.last_commit).unwrap_or(now).max(now);
        latest.plus(self.length)
    }
}

/// What a reserver finds, read under the reservation lock.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput {
    pub reading: Reading,
    pub settings: Settings,
    pub generator_now: UnixNanos,
    /// Wall minus boot clock when the wall clock was last trusted.
    pub trusted_offset: Nanos,
    /// How far the generator may be ahead of the wall clock, beyond the policy's limit.
    pub forgiven_lead: Millis,
    pub cursor: Position,
    /// The bound in force; zero at a start.
    pub reserved: Position,
    /// Who the server is.
    pub tenure: Tenure,
    /// The bound was published for another tenure, or none was.
    pub is_new: bool,
    /// The mark: the latest one that was written here since the generator has its slot, or
    /// without one that on disk.
    pub stored: Option<UnixMillis>,
    /// The latest mark that was written here since the generator has its slot.
    pub written: Option<UnixMillis>,
    /// For a generator that rotates its worker ID: no rotation starts before this.
    pub least: Option<UnixMillis>,
    /// Who wrote the mark on disk. Only a start looks at that.
    pub author: Author,
    /// The gap that is to be left, at a start.
    pub gap: Option<Gap>,
    /// Somebody advances the generator: no ID is to be issued before this instant.
    pub advance_to: Option<UnixMillis>,
    /// For a generator that changes clocks: at a start, the clock history that came with the
    /// stored mark; later, the clock history in force.
    pub clock_history: ClockSeqHistory,
    /// How far the wall clock is behind an earlier reading, if that rollback is to be
    /// dealt with.
    pub rollback: Option<Nanos>,
    /// The tick of which IDs are to be issued.
    pub through: Tick,
    /// What the last reservation of this slot took; zero at a start.
    pub last_window: Millis,
}

/// Where a generator may start at the earliest, and why.
struct Floors {
    mark: Option<UnixMillis>,
    gap: Option<UnixMillis>,
    advance: Option<UnixMillis>,
    /// The server's tenure, or the rotations of the generator.
    tenure: Option<UnixMillis>,
}

impl Floors {
    fn latest(&self) -> Option<UnixMillis> {
        self.gap.max(self.without_gap())
    }

    fn without_gap(&self) -> Option<UnixMillis> {
        self.mark.max(self.advance).max(self.tenure)
    }
}

/// What to do, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Both clocks, as they were read for this plan.
    pub reading: Reading,
    /// Make this mark durable.
    pub mark: UnixMillis,
    /// The mark as it is written, with the part of the clock history that it keeps.
    pub value: i64,
    /// Let the generator's clock show at least this.
    pub clock_from: UnixNanos,
    /// Move the cursor to here.
    pub cursor_from: Option<Position>,
    pub clock_history: ClockSeqHistory,
    /// Believe the wall clock, which was set back.
    pub believes: bool,
    /// Remember that a gap was left.
    pub leaves_gap: bool,
    /// Remember what this reservation took.
    pub window: Millis,
    /// Go on allowing this lead, which is beyond the policy's limit.
    pub forgiven: Millis,
    /// Start no further rotation before this instant.
    pub least: Option<UnixMillis>,
    /// The server's tenure when this was planned, for which the bound is published.
    pub tenure: Tenure,
    /// The bound that was there: `reserved` takes its place, unless another one has.
    pub before: Position,
    /// Publish this bound.
    pub reserved: Position,
    /// From this position on, reserve ahead of need.
    pub early: Position,
    /// The generator starts here, at the mark, instead of continuing.
    pub starts: bool,
    /// How far the generator is ahead of the wall clock.
    pub lead: Millis,
    /// The generator continues in another clock, or in another rotation.
    pub switches: bool,
}

/// Why nothing may be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveError {
    /// The wall clock is this far ahead of where the boot clock says it is.
    ClockJumped { by: Millis, limit: Millis },
    /// The wall clock is this far behind the generator's clock, or behind where
    /// the boot clock says it is.
    ClockRolledBack { by: Millis, limit: Millis },
    /// The start is this far ahead of the wall clock.
    MarkAhead {
        by: Millis,
        limit: Millis,
        start: UnixMillis,
    },
    /// The mark is this far ahead of the wall clock, and not this server wrote it, but a person or
    /// a tool: the clock is not to blame.
    Raised {
        by: Millis,
        limit: Millis,
        mark: UnixMillis,
    },
    /// The mark is this far ahead of the wall clock, and this server has not written it;
    /// the limit is that of the registry's pool of worker IDs. A start there would take
    /// the bound of the server's worker ID along, and with the next grant all generators.
    MarkPastPool {
        by: Millis,
        limit: Millis,
        mark: UnixMillis,
    },
    /// Somebody wants to advance the generator to this far ahead of the wall clock.
    AdvanceTooFar { by: Millis, limit: Millis },
    /// Somebody wants to advance the generator to this far ahead of the wall clock, and the
    /// limit is that of the registry's pool of worker IDs.
    AdvancePastPool { by: Millis, limit: Millis },
    /// The tick that is needed, which begins at `needed`, does not begin before the
    /// bound of the server's tenure. The generator's clock reaches that tick in
    /// `ahead` ticks.
    PastBound {
        needed: UnixMillis,
        bound: UnixMillis,
        ahead: u64,
    },
    /// The wall clock is before the layout's epoch.
    BeforeEpoch { epoch: UnixMillis },
    /// The layout's time has ended.
    TimeUsedUp { last: UnixMillis },
    /// The wall clock is this far behind an earlier reading, and no other clock is
    /// known to be free before the instant.
    NoClockFree {
        by: Millis,
        clocks: u64,
        free_from: UnixMillis,
    },
    /// The wall clock is this far behind an earlier reading, and IDs of that time may have
    /// been issued under the server's worker ID.
    WorkerUsed { by: Millis },
    /// The sequence holds a value that cannot be a mark.
    NoMark(MarkError),
}

/// What the value of a sequence is, if it is no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkError {
    /// An ID of this generator, of a tick that ends at the instant.
    Id { value: i64, ends: UnixMillis },
    /// Another number: a count, or an instant in another unit.
    Number { value: i64 },
    /// There is none: somebody has restarted the sequence, and nobody has kept the mark.
    Restart,
}

/// Marks are later than this, which is 1973-03-03. A smaller number is a count, or an
/// instant in seconds.
const MARK_MIN: i64 = 100_000_000_000;

/// Marks are no later than this, in the year 2527: clocks end in 2262. In a layout
/// whose time lasts longer, an ID would look like an instant.
const MARK_MAX: i64 = 1 << 44;

/// The first reservation of a start ahead of the wall clock takes this part of
/// the window, each further one twice as much as the one before. A start at the
/// mark takes the mark up by what it reserves. With the whole window each time,
/// a server that is restarted every second, or a generator that is evicted and
/// loaded again and again, would lead the clock by ever more. The price is some ten
/// more records in the first seconds after such a start.
const SLOW_START: i64 = 1024;

impl Generator {
    /// Reads a mark, and what it says of clocks if the layout has some.
    ///
    /// `now` is the wall clock: marks can be before 1973 only if it is, as in a test.
    /// Fails with what the value is instead of a mark.
    pub fn read_mark(
        &self,
        value: i64,
        now: UnixMillis,
    ) -> Result<(UnixMillis, Option<ClockSeqHistory>), MarkError> {
        let layout = self.layout;
        let (mark, clock_history) = match ClockSeqHistory::read_mark(value, layout) {
            Some((mark, clock_history)) if layout.clock_bits() > 0 => (mark, Some(clock_history)),
            // A value that no generator has written is an instant.
            _ => (UnixMillis::new(value), None),
        };
        let number = MarkError::Number { value };
        if mark.get() < MARK_MIN && now.get() >= MARK_MIN {
            return Err(number);
        }
        if mark <= layout.end().min(UnixMillis::new(MARK_MAX)) {
            return Ok((mark, clock_history));
        }
        let decoded = layout.decode(SnowflakeId::new(value));
        Err(decoded.map_or(number, |fields| {
            let ends = layout.instant_of(fields.tick.next());
            MarkError::Id { value, ends }
        }))
    }

    /// Plans a reservation. Fails with a [`ReserveError`], if clocks, mark and layout
    /// contradict each other.
    pub fn plan(&self, s: &PlanInput) -> Result<Plan, ReserveError> {
        let layout = self.layout;
        s.check_jump()?;
        // Forward at once; after a rollback, the generator's clock is the later one. A clock
        // before the epoch has no tick.
        let clock = s.generator_now.max(s.reading.wall).millis();
        let now = u64::try_from(layout.tick_number(clock)).ok().map(Tick::new);
        let floors = self.floors(s)?;
        let target = floors.latest().map(|at| layout.tick_from(at));
        let epoch = layout.epoch();
        let before_epoch = ReserveError::BeforeEpoch { epoch };
        // A gap after a clock before the epoch is no place to start.
        let may_start = now.is_some() || floors.without_gap().is_some();
        let start = target.max(now).filter(|_| may_start).ok_or(before_epoch)?;
        let limit = self.max_lead(s, &floors);
        let (start, clock_history, switches) = self.choose_clock(s, target, now, start, limit)?;
        let lead = self.check_lead(s, start, target, limit)?;

        let starts = s.begins() || s.advance_to.is_some();
        // A cursor that is ahead of the clock (it borrowed) needs its bound there. The
        // cursor of another clock does not matter.
        let first = if switches {
            start
        } else {
            start.max(s.through).max(layout.tick_of(s.cursor))
        };
        let time_used_up = ReserveError::TimeUsedUp { last: layout.end() };
        // A mark past the end is first of all a mark too far ahead.
        if first >= layout.last_tick() {
            return Err(time_used_up);
        }
        let goes_on = !starts && s.rollback.is_none();
        let end = self.tenure_end(s, start, first, goes_on)?;

        let window = s.window(lead);
        let ticks = layout.ticks_in(window);
        // A rotation has a bound of its own.
        let is_next_rotation = switches && self.rotates_worker();
        let reserved = (!is_next_rotation).then_some(layout.tick_of(s.reserved));
        // A mark further ahead than a start may be would be refused after a crash.
        let farthest = layout.tick_from(s.reading.wall.millis().plus(limit));
        let bound = Tick::new(first.next().get().saturating_add(ticks))
            .min(farthest.max(first.next()))
            .max(reserved.unwrap_or(first))
            // A start in another clock: this clock has been used up to the target.
            .max(target.unwrap_or(start))
            .min(end.unwrap_or(layout.last_tick()))
            .min(layout.last_tick());
        // Half of what was in fact reserved: a capped bound leaves less than the
        // window, and every ID would be past half of the window.
        let left = bound.get().saturating_sub(first.get()).min(ticks);
        let early = Tick::new(bound.get() - left / 2);
        let mark = layout.instant_of(bound);
        // A rotation may end before the one before it. Marks never go back.
        let mark = mark.max(s.written.filter(|_| self.rotates_worker()).unwrap_or(mark));
        let value = if self.changes_clocks() {
            let renewed = clock_history.renewed(layout.clocks());
            let kept = if switches { clock_history } else { renewed };
            kept.with_mark(mark, layout).ok_or(time_used_up)?
        } else {
            mark.get()
        };
        let at = |tick| layout.at(clock_history.clock, layout.offset_of(tick));
        let may_lead = s.forgiven_lead > Millis::ZERO || s.begins();
        let forgiven = (may_lead && lead > self.policy.max_rollback).then_some(lead);
        Ok(Plan {
            reading: s.reading,
            mark,
            value,
            clock_from: layout.instant_of(start).nanos(),
            cursor_from: (starts || switches)
                .then(|| layout.at(clock_history.clock, self.fresh(start))),
            clock_history,
            believes: s.rollback.is_some(),
            leaves_gap: s.gap.is_some(),
            window,
            forgiven: forgiven.unwrap_or_default(),
            least: s.advance_to,
            before: s.reserved,
            tenure: s.tenure,
            reserved: at(bound),
            early: at(early),
            starts,
            lead,
            switches,
        })
    }

    /// Where the generator may start at the earliest, by each of the causes.
    fn floors(&self, s: &PlanInput) -> Result<Floors, ReserveError> {
        Ok(Floors {
            advance: self.advance_floor(s)?,
            mark: self.mark_floor(s)?,
            gap: self.gap_floor(s)?,
            tenure: Self::tenure_floor(s),
        })
    }

    /// Somebody advances the generator.
    fn advance_floor(&self, s: &PlanInput) -> Result<Option<UnixMillis>, ReserveError> {
        let Some(floor) = s.advance_to else {
            return Ok(None);
        };
        let by = floor.since(s.reading.wall.millis());
        let limit = self.policy.max_advance();
        if by > limit {
            return Err(ReserveError::AdvanceTooFar { by, limit });
        }
        match s.tenure.max_ahead {
            Some(limit) if by > limit => Err(ReserveError::AdvancePastPool { by, limit }),
            _ => Ok(Some(floor)),
        }
    }

    /// A start lies behind the mark. So does one under a new tenure, but for the next rotation
    /// of a generator: the mark that it has written is of this rotation or of an earlier one. A
    /// slot that was closed before its first reservation has a cursor, and has written none.
    fn mark_floor(&self, s: &PlanInput) -> Result<Option<UnixMillis>, ReserveError> {
        let obeys = if self.rotates_worker() {
            s.cursor == Position::ZERO || s.written.is_none()
        } else {
            s.begins()
        };
        let mark = s.stored.filter(|_| obeys);
        if let Some(latest) = self.latest_foreign_mark(s)
            && let Some(mark) = mark.filter(|mark| Some(*mark) > s.written)
            && mark > latest
        {
            let wall = s.reading.wall.millis();
            let (by, limit) = (mark.since(wall), latest.since(wall));
            return Err(ReserveError::MarkPastPool { by, limit, mark });
        }
        Ok(mark)
    }

    /// IDs may lie behind the mark.
    fn gap_floor(&self, s: &PlanInput) -> Result<Option<UnixMillis>, ReserveError> {
        let Some(gap) = s.gap else {
            return Ok(None);
        };
        // From the wall clock, not from the generator's clock, which may lead already.
        let wall = s.reading.wall.millis();
        let limit = s.settings.max_clock_jump.plus(s.forgiven_lead);
        if gap.author == Author::Unknown
            && let Some(mark) = s.stored
            && let by = mark.since(wall)
            && by > limit
        {
            return Err(ReserveError::Raised { by, limit, mark });
        }
        Ok(Some(gap.end(s.stored, wall)))
    }

    /// All IDs of earlier holders of the worker ID lie before this.
    fn tenure_floor(s: &PlanInput) -> Option<UnixMillis> {
        s.tenure.floor.max(s.least).filter(|_| s.begins())
    }

    /// How far ahead of the wall clock the generator may continue.
    fn max_lead(&self, s: &PlanInput, floors: &Floors) -> Millis {
        let limit = self.forgiven_rollback(s);
        if !s.begins() {
            return limit;
        }
        // At least the lead that a start after a failover has left.
        let may_be_left = self.gap(&s.settings).plus(s.settings.reserve);
        let gap = s.gap.map_or(Millis::ZERO, |gap| gap.length);
        let limit = may_be_left.max(limit).plus(gap);
        // The floor of a tenure is no clock error.
        let layout = self.layout;
        let of_tenure = floors
            .tenure
            .map(|at| layout.instant_of(layout.tick_from(at)));
        let lead = of_tenure.map(|at| at.since(s.reading.wall.millis()));
        limit.max(lead.unwrap_or(limit))
    }

    /// A rollback is forgiven on top of a forgiven lead, as without one.
    fn forgiven_rollback(&self, s: &PlanInput) -> Millis {
        self.policy.max_rollback.plus(s.forgiven_lead)
    }

    /// How far a start is ahead of the wall clock, unless that is too far.
    fn check_lead(
        &self,
        s: &PlanInput,
        start: Tick,
        target: Option<Tick>,
        limit: Millis,
    ) -> Result<Millis, ReserveError> {
        let lead = self.layout.instant_of(start).since(s.reading.wall.millis());
        if lead > limit {
            return Err(if target == Some(start) {
                self.mark_ahead(start, lead, limit)
            } else {
                ReserveError::ClockRolledBack { by: lead, limit }
            });
        }
        // A generator without a mark and a past does not lead. If it believed this
        // clock, the server would do so too, and refuse the right clock as a jump.
        let by = Millis::ZERO.minus(s.reading.jumped_from(s.trusted_offset));
        let limit = self.forgiven_rollback(s);
        if by > limit {
            return Err(ReserveError::ClockRolledBack { by, limit });
        }
        Ok(lead)
    }

    /// The first tick of the next holder of the worker ID. If a generator that continues
    /// (`goes_on`) has reserved up to there, there is nothing to gain.
    fn tenure_end(
        &self,
        s: &PlanInput,
        start: Tick,
        first: Tick,
        goes_on: bool,
    ) -> Result<Option<Tick>, ReserveError> {
        let layout = self.layout;
        let Some(bound) = s.tenure.bound else {
            return Ok(None);
        };
        let end = layout.tick_from(bound);
        if first >= end || goes_on && layout.tick_of(s.reserved) >= end {
            return Err(ReserveError::PastBound {
                needed: layout.instant_of(first),
                bound,
                ahead: first.get().saturating_sub(start.get()),
            });
        }
        Ok(Some(end))
    }

    /// The gap after one promotion: the lost primary may have been ahead of its clock
    /// by all that it could borrow.
    pub(crate) fn gap(&self, settings: &Settings) -> Millis {
        settings.failover_gap.plus(self.max_borrow())
    }

    /// Under a grant, the latest mark that is believed if this server has not written it
    /// since it started. Such a mark is of an earlier start, or of somebody who may set
    /// this one mark; and the whole server follows its leading generator.
    ///
    /// A mark of an earlier start lies within the bounds that the server has had, but for
    /// the tick that ends one, and for a reservation past the end that a clean stop has
    /// told. One of before the registry lies ahead of the clock by what was borrowed,
    /// reserved or left out. There is no limit for a mark that came with a promotion: it
    /// tells how far the lost primary was, whose clock and lead nobody knows here.
    fn latest_foreign_mark(&self, s: &PlanInput) -> Option<UnixMillis> {
        let is_promoted = matches!(s.author, Author::Earlier { .. });
        let limit = s.tenure.max_ahead.filter(|_| !is_promoted)?;
        let near = s.reading.wall.millis().plus(limit).plus(self.max_borrow());
        let past = s.tenure.high_water.max(Some(near))?;
        let past = past.plus(s.settings.reserve).plus(s.forgiven_lead);
        // A mark before the floor moves nothing.
        let latest = past.max(s.tenure.floor?);
        Some(self.layout.instant_of(self.layout.tick_from(latest)))
    }

    const fn mark_ahead(&self, start: Tick, by: Millis, limit: Millis) -> ReserveError {
        let start = self.layout.instant_of(start);
        ReserveError::MarkAhead { by, limit, start }
    }

    /// The tick and the clock in which a generator that changes clocks continues:
    /// `start` in the same clock, or `now` in the next one.
    fn choose_clock(
        &self,
        s: &PlanInput,
        target: Option<Tick>,
        now: Option<Tick>,
        start: Tick,
        limit: Millis,
    ) -> Result<(Tick, ClockSeqHistory, bool), ReserveError> {
        let layout = self.layout;
        if self.rotates_worker() {
            return self.choose_rotation(s, start);
        }
        if !self.changes_clocks() {
            return Ok((start, ClockSeqHistory::FRESH, false));
        }
        let at_start = s.at_start();
        // Under a new worker ID, nothing was issued from the start on. What was issued
        // in any clock before it, perhaps by another server, is not known.
        let knows_nothing = if at_start {
            s.tenure.floor.is_some()
        } else {
            s.is_new
        };
        let (now, clocks) = (now.unwrap_or(Tick::new(0)), layout.clocks());
        let same = |clock_history| Ok((start, clock_history, false));
        let next = |reached| {
            let clock_history = s.clock_history.switch(now, reached, clocks)?;
            Some((now, clock_history, true))
        };
        if s.gap.is_some() || knows_nothing {
            // All earlier use of any clock lies before the start.
            return same(ClockSeqHistory::unknown(s.clock_history.clock, start));
        }
        if s.advance_to.is_some() || !at_start && target.is_some() {
            return same(s.clock_history.forget_before(start));
        }
        if let Some(target) = target {
            let by = layout.instant_of(target).since(s.reading.wall.millis());
            if by > limit {
                return Err(self.mark_ahead(target, by, limit));
            }
            if now >= target {
                return same(s.clock_history);
            }
            // If no clock is free, the generator starts ahead like any other.
            return Ok(next(target).unwrap_or((start, s.clock_history, false)));
        }
        let Some(rollback) = s.rollback else {
            return same(s.clock_history);
        };
        let by = rollback.millis();
        if by > limit {
            return Err(ReserveError::ClockRolledBack { by, limit });
        }
        let reached = layout.tick_of(s.cursor);
        if now >= reached {
            return same(s.clock_history);
        }
        let reached = reached.next();
        next(reached).ok_or_else(|| {
            let free_from = s
                .clock_history
                .free_from(clocks)
                .unwrap_or(reached)
                .min(reached);
            ReserveError::NoClockFree {
                by,
                clocks,
                free_from: layout.instant_of(free_from),
            }
        })
    }

    /// The tick and the rotation in which a generator that rotates its worker ID continues:
    /// see [`crate::protocol::rotation`].
    fn choose_rotation(
        &self,
        s: &PlanInput,
        start: Tick,
    ) -> Result<(Tick, ClockSeqHistory, bool), ReserveError> {
        let layout = self.layout;
        let (rotation, at) = (layout.clock_of(s.cursor), layout.tick_of(s.cursor));
        let in_rotation = |rotation, start, is_next| {
            Ok((start, ClockSeqHistory::unknown(rotation, start), is_next))
        };
        if s.cursor == Position::ZERO {
            return in_rotation(rotation, start, false);
        }
        if let Some(by) = s.rollback.filter(|_| !s.is_new)
            && start < at
        {
            return Err(ReserveError::WorkerUsed { by: by.millis() });
        }
        // Nothing lies before the floor of a grant.
        let is_granted = s.is_new && s.tenure.floor.is_some();
        let reached = s.written.map(|mark| layout.tick_from(mark)).max(Some(at));
        match reached.filter(|reached| is_granted && start < *reached) {
            None => in_rotation(rotation, start, false),
            Some(reached) => match layout.rotation_after(rotation) {
                Some(next) => in_rotation(next, start, true),
                None => in_rotation(rotation, reached, false),
            },
        }
    }

    /// How many clocks a tick may use now, and how many it could use.
    fn clock_seq_span(&self, live: &Live, clock_history: ClockSeqHistory) -> ClockSeqSpan {
        let at = self.layout.tick_of(live.cursor().position());
        ClockSeqSpan {
            now: clock_history.together,
            max: clock_history.widest(at, self.layout.clocks()),
        }
    }

    /// Lets a tick use further clocks, unless somebody else has just done so; returns
    /// the clock history after that. The mark of such a generator says that any clock may have
    /// been used before it, so that this need not be durable. Holders of the
    /// reservation lock only.
    pub(crate) fn widen(
        &self,
        live: &Live,
        clock_history: ClockSeqHistory,
    ) -> Option<ClockSeqHistory> {
        let layout = self.layout;
        let position = live.cursor().position();
        let at = layout.tick_of(position);
        let now = live.bounds().clock_seq_span();
        if layout.within(position) < now.now << layout.sequence_bits() || now.now >= now.max {
            return None;
        }
        let clock_history = clock_history.widen(at, layout.clocks());
        live.bounds()
            .set_clock_seq_span(self.clock_seq_span(live, clock_history));
        Some(clock_history)
    }
}

impl PlanInput {
    fn at_start(&self) -> bool {
        self.reserved == Position::ZERO
    }

    /// A new tenure is a start, too: at its floor, or past all that was issued.
    fn begins(&self) -> bool {
        self.at_start() || self.is_new
    }

    fn check_jump(&self) -> Result<(), ReserveError> {
        let by = self.reading.jumped_from(self.trusted_offset);
        let limit = self.settings.max_clock_jump;
        if by > limit {
            return Err(ReserveError::ClockJumped { by, limit });
        }
        Ok(())
    }

    /// How much to reserve for a generator that is this far ahead of the clock.
    fn window(&self, lead: Millis) -> Millis {
        let full = self.settings.reserve;
        let slow = Millis::new(full.get() / SLOW_START);
        let window = match self.last_window {
            Millis::ZERO if lead > slow => slow,
            Millis::ZERO => full,
            last => last.times(2).min(full),
        };
        window.max(Millis::new(1))
    }
}

/// A plan that has not been carried out at all.
#[must_use]
#[derive(Debug)]
pub struct NewPlan(Plan);

/// A plan whose mark is durable.
#[must_use]
#[derive(Debug)]
pub struct DurablePlan(Plan);

/// A plan whose cursor was moved, and which allows nothing new yet.
#[must_use]
#[derive(Debug)]
pub struct MovedPlan(Plan);

impl NewPlan {
    pub const fn new(plan: Plan) -> Self {
        Self(plan)
    }

    /// Writes the mark by `write`, which returns when it is durable. Fails with what
    /// `write` returns. Then no position was taken and no bound moved, but the mark may be higher.
    pub fn write<E>(self, write: impl FnOnce(&Plan) -> Result<(), E>) -> Result<DurablePlan, E> {
        write(&self.0).map(|()| DurablePlan(self.0))
    }
}

impl DurablePlan {
    /// Moves clock and cursor to where the plan has them, and the clock history with the cursor.
    /// Holders of the reservation lock only.
    pub fn move_cursor(self, generator: &Generator, live: &Live) -> MovedPlan {
        let mut plan = self.0;
        let (layout, reading) = (generator.layout, plan.reading);
        let (cursor, bounds, clock) = (live.cursor(), live.bounds(), live.clock());
        let watches = generator.policy.on_rollback.watches();
        if !watches || plan.clock_from > reading.wall {
            clock.lead_to(reading.boot, plan.clock_from);
        }
        if watches && plan.starts {
            clock.start_at(reading.wall);
        }
        if !generator.changes_clocks() {
            if let Some(from) = plan.cursor_from {
                cursor.raise(from);
            }
            return MovedPlan(plan);
        }
        let clock_history = &mut plan.clock_history;
        if let Some(from) = plan.cursor_from {
            let before = cursor.go_to(from, layout);
            if layout.clock_of(before) != clock_history.clock {
                *clock_history = clock_history.others_reached(layout.tick_of(before).next());
            }
        }
        if generator.shares_clocks() {
            // The clocks that a burst took are given back here.
            if clock_history.together > 1 {
                bounds.set_clock_seq_span(ClockSeqSpan::ONE);
                *clock_history = clock_history.narrow(cursor.leave_clocks(layout));
            }
            bounds.set_clock_seq_span(generator.clock_seq_span(live, *clock_history));
        }
        MovedPlan(plan)
    }
}

impl MovedPlan {
    /// What was planned, with the clock history as it is since the cursor was moved.
    pub const fn plan(&self) -> &Plan {
        &self.0
    }

    /// Allows what was planned, unless the slot was closed or its bound voided since.
    /// Returns whether it does. Holders of the reservation lock only.
    pub fn publish(self, live: &Live) -> bool {
        let plan = self.0;
        let generation = plan.tenure.generation;
        live.bounds()
            .publish(plan.before, generation, plan.reserved, plan.early)
    }
}

#[cfg(test)]
#[path = "../tests/show_plan.rs"]
mod show_plan;
