//! The protocol: how an ID is issued, how a mark is raised.
//!
//! A [`Host`] is a server.
//!
//! # A reservation
//!
//! Under the generator's reservation lock, in this order:
//!
//! 1. look again whether the reservation is needed, and which mark is on disk;
//! 2. under the clock lock, read both clocks, plan, and believe the clock if the plan
//!    does;
//! 3. write the mark, and wait until it is durable;
//! 4. move clock and cursor;
//! 5. publish the bound.
//!
//! A crash between any two steps leaves a mark that is at most too high. A refusal
//! changes nothing but notes and statistics.
//!
//! # The order of a call
//!
//! A session that is about to take its first IDs of a generator in a transaction keeps to
//! this order, so that no horizon passes an ID that may still appear ([`crate::horizon`],
//! [`crate::reported`] have the proofs):
//!
//! 1. enter: the host loads what the session may do, and the slot;
//! 2. start the generator, if nobody has since the server's start: no hold lies before the
//!    mark;
//! 3. hold the horizon where the cursor is;
//! 4. load what the server has reported, after the hold;
//! 5. raise the cursor there, if it lies before;
//! 6. take the IDs, and raise the hold to the first one.
//!
//! Steps 2 and 5 reserve, and so may wait for others: after each of them, the call begins
//! anew. It also does after it has entered for another generation.
//!
//! # Who the server is
//!
//! A caller enters for a generation, that of the server's tenure at that moment. Step
//! 2 looks at the tenure under the clock lock: if it is another one by now, nothing is
//! reserved, and the caller enters anew. So a plan is always for the tenure that the
//! server has when the clocks are read, and no mark or bound is past that tenure's
//! bound. A call that needs more waits until the host has a later bound, or another
//! tenure.

use crate::clock::Reading;
use crate::clock_seq::ClockSeqHistory;
use crate::cursor::{Issued, Live, Pass, Step};
use crate::generator::{Descent, Generator};
use crate::horizon::BEGINNING;
use crate::id::{Millis, Nanos, Position, Tick, UnixMillis};
use crate::layout::OrderError;
use crate::protocol::host::{History, Host, IssueError, Need, Note, OnDisk, TrustedClock};
use crate::protocol::plan::{Durable, Failover, Moved, Plan, PlanInput, Planned, ReserveError};
use crate::protocol::wait::{Waits, await_bound};
use crate::slot::{Reserving, Slot};
use crate::tenure::{Generation, Tenure};

/// How long before the end of a layout's time a note tells of it.
const ENDS_SOON: Millis = Millis::new(365 * 24 * 60 * 60 * 1000);

/// Issues up to `count` IDs, at most [`Generator::max_chunk`]; fewer if room is
/// lacking. Waits for the clock and reserves as needed; a failed call issues nothing.
/// Fails with the host's error, or why there is no ID.
pub fn issue<H: Host>(host: &H, count: u64) -> Result<Issued, H::Error> {
    issue_from(host, None, count)
}

/// As [`issue`], for a caller that has just met `found`, which is not [`Step::Issue`]:
/// begins with that step, so that no clock is read again for it.
pub fn issue_after<H: Host>(host: &H, found: Step, count: u64) -> Result<Issued, H::Error> {
    issue_from(host, Some(found), count)
}

fn issue_from<H: Host>(host: &H, mut found: Option<Step>, count: u64) -> Result<Issued, H::Error> {
    let mut waits = Waits::default();
    let mut stand = Stand::default();
    loop {
        // After a wait or a reservation everything is checked again: the sequence may
        // be gone by now, or the transaction read-only.
        let (slot, generator) = host.enter()?;
        if !stand.is_taken(host, slot, generator)? {
            continue;
        }
        let (live, mine) = (slot.live(), host.generation());
        let watches = generator.policy.on_rollback.watches();
        let step = match found.take() {
            Some(found) if watches => found,
            _ if watches => live.issue::<true>(generator, mine, count, host),
            _ => live.issue::<false>(generator, mine, count, host),
        };
        match step {
            Step::Issue(issued) => {
                let layout = generator.layout;
                if stand.holds_since.is_some() {
                    host.narrow_hold(layout.instant_of(layout.tick_of(issued.start)));
                }
                if slot.is_refused_by_rollback() {
                    end_refusal(host, slot);
                }
                if live.bounds().claim_prefetch(issued.end) {
                    let last = Position::new(issued.end.get() - 1);
                    let _ = host.reserve(Need::Early(layout.tick_of(last)))?;
                }
                let waited = waits.waited;
                return Ok(Issued { waited, ..issued });
            }
            step => wait_or_reserve(host, slot, generator, &mut waits, step)?,
        }
    }
}

/// How far a call is in the order that the head of the file has.
#[derive(Default)]
struct Stand {
    /// The call has tried to start the generator.
    has_started: bool,
    /// For which generation the call has held the horizon, and found the cursor at or past what
    /// was reported.
    holds_since: Option<Generation>,
}

impl Stand {
    /// Steps 2 to 5: whether the session may take IDs now. If not, it has made way for that,
    /// and enters anew. A generator that may go back has no horizon.
    fn is_taken<H: Host>(
        &mut self,
        host: &H,
        slot: &Slot,
        generator: &Generator,
    ) -> Result<bool, H::Error> {
        let mine = host.generation();
        if host.has_taken() || self.holds_since == Some(mine) || generator.descends().is_some() {
            return Ok(true);
        }
        if slot.horizon().announced() == BEGINNING && !self.has_started {
            self.has_started = true;
            let _ = advance_to_now(host)?;
            return Ok(false);
        }
        let (layout, cursor) = (generator.layout, slot.live().cursor().position());
        host.hold(slot, layout.instant_of(layout.tick_of(cursor)))?;
        let reported = host.reported();
        if reported != BEGINNING && !is_past(slot, generator, reported) {
            demand(host, Need::Reported(reported))?;
            return Ok(false);
        }
        self.holds_since = Some(mine);
        Ok(true)
    }
}

/// The instant of a position at or before all IDs to come, as late as can be had: moves the
/// cursor to the tick of now, and issues nothing. For a generator that never goes back, see
/// [`Generator::descends`].
///
/// The cursor is not moved past the bound: after a crash, a generator starts at the mark. If
/// the cursor may not be moved, since the clock is refused or the cursor is ahead of it, the
/// answer is where the cursor is. Fails with the host's error, or why there is neither.
///
/// A generator that issues nothing reserves nothing. So a wall clock that was set forward is
/// looked for here; if it is refused, the generator's clock counts.
pub fn advance_to_now<H: Host>(host: &H) -> Result<UnixMillis, H::Error> {
    let mut has_looked = false;
    loop {
        let (slot, generator) = host.enter()?;
        let (live, mine) = (slot.live(), host.generation());
        if !has_looked {
            has_looked = true;
            if live.bounds().in_force() != Position::ZERO
                && lag(host, live, generator) >= LAG_MIN
                && host.reserve(Need::Clock)?.is_none()
            {
                continue;
            }
        }
        // No positions: a step that takes none moves the cursor in the same way.
        let step = if generator.policy.on_rollback.watches() {
            live.issue::<true>(generator, mine, 0, host)
        } else {
            live.issue::<false>(generator, mine, 0, host)
        };
        let layout = generator.layout;
        // What is past the latest mark was skipped.
        let cursor = live.cursor().position();
        let runs = cursor != Position::ZERO || live.bounds().in_force() != Position::ZERO;
        let at_cursor = slot.highest().filter(|_| runs);
        let at_cursor = at_cursor.map(|mark| mark.min(layout.instant_of(layout.tick_of(cursor))));
        let through = match step {
            Step::Issue(issued) if live.bounds().in_force() != Position::ZERO => {
                return Ok(layout.instant_of(layout.tick_of(issued.start)));
            }
            Step::Reserve { through } => through,
            Step::Issue(_) => Tick::new(0),
            Step::Wait { .. } | Step::RolledBack { .. } | Step::Widen => match at_cursor {
                Some(at) => return Ok(at),
                None => layout.tick_of(cursor),
            },
        };
        match (host.reserve(Need::Tick(through))?, at_cursor) {
            (None, _) => {}
            (Some(_), Some(at)) => return Ok(at),
            (Some(refusal), None) => await_bound(host, refusal)?,
        }
    }
}

/// A generator's clock that is less than this behind the wall clock was not left behind by a
/// step: a session that asks for a horizon does not write a mark because of it.
const LAG_MIN: Nanos = Nanos::new(10_000_000);

/// How far a generator's clock is behind the wall clock, which was set forward then since a
/// reservation has read it. Negative if the generator leads.
fn lag<H: Host>(host: &H, live: &Live, generator: &Generator) -> Nanos {
    if generator.policy.on_rollback.watches() {
        return Nanos::ZERO;
    }
    // The boot clock last: the time between the readings makes the lag less, never more.
    let wall = host.wall();
    wall.since(live.clock().now(host.boot()))
}

/// Reserves, waits, or fails, as a step asks for that is not [`Step::Issue`].
fn wait_or_reserve<H: Host>(
    host: &H,
    slot: &Slot,
    generator: &Generator,
    waits: &mut Waits,
    step: Step,
) -> Result<(), H::Error> {
    match step {
        Step::Issue(_) => Ok(()),
        Step::Reserve { through } => match host.reserve(Need::Tick(through))? {
            None => Ok(()),
            // A later bound does not come before the clock.
            Some(ReserveError::PastBound {
                ahead: ticks @ 1.., ..
            }) => waits.for_tick(host, slot, generator, ticks),
            Some(refusal) => await_bound(host, refusal),
        },
        Step::Widen => demand(host, Need::Widen),
        Step::Wait { ticks } => waits.for_tick(host, slot, generator, ticks),
        Step::RolledBack { wall, by } => waits.for_clock(host, slot, generator, wall, by),
    }
}

/// Observes an ID of this tick, which came from another server: every ID that is issued
/// after this has returned sorts after it, also after a crash. Reserves and waits as
/// [`issue`] does; a failed call changes nothing.
///
/// The tick may be ahead of the generator's clock by what the generator may borrow, and by
/// no more than its `max_observe`, if it has one. So nobody waits longer because of this than
/// because of a caller who takes IDs.
///
/// # Errors
/// The host's error, or why the ID cannot be observed.
pub fn observe<H: Host>(host: &H, tick: Tick) -> Result<(), H::Error> {
    let mut waits = Waits::default();
    let mut has_looked = false;
    loop {
        let (slot, generator) = host.enter()?;
        let live = slot.live();
        if let Some(descent) = descent_after(host, live, generator, tick) {
            return Err(host.error(IssueError::Descends(descent)));
        }
        let limited = generator.within(generator.policy.max_observe);
        let passed = if generator.policy.on_rollback.watches() {
            live.pass::<true>(&limited, tick, host)
        } else {
            live.pass::<false>(&limited, tick, host)
        };
        match passed {
            Pass::Past => return Ok(()),
            Pass::Raised(to) => {
                if live.bounds().claim_prefetch(to) {
                    let last = Position::new(to.get() - 1);
                    let tick = generator.layout.tick_of(last);
                    let _ = host.reserve(Need::Early(tick))?;
                }
                return Ok(());
            }
            // Who only observes reserves nothing, and does not see that the wall clock was set
            // forward. A lag of less than a millisecond moves no tick.
            Pass::TooFar { .. }
                if !has_looked && lag(host, live, generator).millis() > Millis::ZERO =>
            {
                has_looked = true;
                match host.reserve(Need::Clock)? {
                    // The clock has followed, whether there is more to reserve or not.
                    None | Some(ReserveError::PastBound { .. }) => {}
                    Some(refusal) => await_bound(host, refusal)?,
                }
            }
            Pass::TooFar { ticks } => {
                slot.stats().count_refusal();
                return Err(host.error(IssueError::TooFarAhead {
                    by: generator.layout.lasting(ticks),
                    limit: limited.max_borrow(),
                }));
            }
            Pass::Needs(step) => wait_or_reserve(host, slot, generator, &mut waits, step)?,
        }
    }
}

/// Why an ID that is issued from now on may sort before one of this tick, whatever the cursor
/// is raised to. IDs that turn negative ascend until then.
fn descent_after<H: Host>(
    host: &H,
    live: &Live,
    generator: &Generator,
    tick: Tick,
) -> Option<Descent> {
    let layout = generator.layout;
    if let Some(turn @ OrderError::NegativeFrom(at)) = layout.disorder() {
        let next = layout.tick_of(live.next(generator, host.read()));
        if layout.instant_of(next.max(tick.next())) >= at {
            return Some(Descent::Layout(turn));
        }
    }
    generator.descends()
}

/// Whether no ID to come is of a tick that ends at or before an instant.
fn is_past(slot: &Slot, generator: &Generator, at: UnixMillis) -> bool {
    let (layout, cursor) = (generator.layout, slot.live().cursor().position());
    layout.tick_of(cursor) >= layout.tick_within(at)
}

fn end_refusal<H: Host>(host: &H, slot: &Slot) {
    if let Some(since) = slot.end_refusal() {
        host.note(Note::IssuesAgain { since });
    }
}

/// As [`reserve`], for a caller that cannot continue without it. Fails with the host's
/// error, or why nothing can be reserved.
pub fn demand<H: Host>(host: &H, need: Need) -> Result<(), H::Error> {
    let refusal = host.reserve(need)?;
    refusal.map_or(Ok(()), |refusal| await_bound(host, refusal))
}

/// Raises the mark, or finds that somebody else has; or says why it may not be raised.
/// Afterwards the host may have to be entered anew. Fails with the host's error.
#[cold]
pub fn reserve<H: Host>(host: &H, need: Need) -> Result<Option<ReserveError>, H::Error> {
    let is_done = || {
        let entered = host.entered();
        entered.is_none_or(|(slot, generator)| is_done(host, slot, generator, need))
    };
    let reserved = host.reserving_unless(is_done, |token| {
        let Some((slot, generator)) = host.entered() else {
            return Ok(None);
        };
        let reserver = Reserver {
            host,
            slot,
            generator,
            token,
        };
        match reserver.prepare(need)? {
            Ok(Some(planned)) => {
                let durable = reserver.write(planned)?;
                reserver.publish(reserver.move_cursor(durable));
                Ok(None)
            }
            Ok(None) => Ok(None),
            // A note tells; the first caller that runs into the bound gets the error.
            Err(_) if matches!(need, Need::Early(_)) => Ok(None),
            Err(refusal) => Ok(Some(refusal)),
        }
    });
    reserved.unwrap_or(Ok(None))
}

/// Whether somebody else has done what is needed. Holders of the reservation lock can rely on
/// it until they release that.
fn is_done<H: Host>(host: &H, slot: &Slot, generator: &Generator, need: Need) -> bool {
    let (layout, live) = (generator.layout, slot.live());
    match need {
        Need::Tick(_) if live.bounds().generation() != host.generation() => false,
        Need::Tick(tick) => {
            let (cursor, reserved) = (live.cursor().position(), live.bounds().reserved());
            layout.clock_of(reserved) == layout.clock_of(cursor)
                && layout.offset(reserved) > layout.offset_of(tick)
        }
        Need::Early(_) => !live.bounds().early_is_claimed(),
        Need::Reported(at) => is_past(slot, generator, at),
        Need::Clock => lag(host, live, generator).millis() <= Millis::ZERO,
        Need::AdvanceTo(_) | Need::Switch | Need::Widen => false,
    }
}

/// What a reserver finds: a [`PlanInput`] is made of it.
struct Survey<'a> {
    on_disk: OnDisk,
    history: History,
    trusted: &'a TrustedClock,
    tenure: Tenure,
    reading: Reading,
    rollback: Option<Nanos>,
}

/// The holder of the reservation lock of a generator.
struct Reserver<'a, H> {
    host: &'a H,
    slot: &'a Slot,
    generator: &'a Generator,
    token: &'a Reserving,
}

impl<H: Host> Reserver<'_, H> {
    /// Plans a reservation, or notes why nothing may be reserved; `None` if it is not
    /// needed. The outer error is the host's.
    fn prepare(&self, need: Need) -> Result<Result<Option<Planned>, ReserveError>, H::Error> {
        let slot = self.slot;
        if is_done(self.host, slot, self.generator, need) {
            return Ok(Ok(None));
        }
        if need == Need::Widen {
            if let Some(clock_history) = self.generator.widen(slot.live(), slot.clock_history()) {
                slot.set_clock_history(self.token, clock_history);
            }
            return Ok(Ok(None));
        }
        let on_disk = self.host.read_mark()?;
        let result = self.survey(need, on_disk);
        Ok(result.inspect_err(|refusal| self.note_refusal(*refusal)))
    }

    /// Reads both clocks and plans; believes the wall clock if the plan does.
    fn survey(&self, need: Need, on_disk: OnDisk) -> Result<Option<Planned>, ReserveError> {
        let (host, slot, generator) = (self.host, self.slot, self.generator);
        // Only a start can meet a mark from another timeline, and only the first one
        // since the switch.
        let at_start = slot.live().bounds().in_force() == Position::ZERO;
        let history = if at_start && slot.gap_at().is_none() {
            host.history(on_disk.lsn)
        } else {
            History::default()
        };
        let watches = generator.policy.on_rollback.watches();
        let surveyed = host.with_trusted_clock(|trusted, tenure| {
            if tenure.generation != host.generation() {
                return Ok(None);
            }
            let reading = host.read();
            let rollback = (need == Need::Switch).then(|| slot.clock().rollback(reading.wall));
            // Many callers may meet one rollback; another one has dealt with it.
            if rollback == Some(None) {
                return Ok(None);
            }
            let found = Survey {
                on_disk,
                history,
                trusted,
                tenure,
                reading,
                rollback: rollback.flatten(),
            };
            let situation = self.situation(need, &found)?;
            let stepped = reading.stepped_since(trusted.seen);
            let plan = generator.plan(&situation);
            // Who asks for the clock alone needs no room before the bound.
            let is_believed = match plan {
                Ok(_) => true,
                Err(ReserveError::PastBound { .. }) => need == Need::Clock,
                Err(_) => false,
            };
            if is_believed {
                trusted.trusted_offset = reading.offset();
                // A gap is not left for a clock that was refused.
                if let Some(failover) = situation.failover {
                    trusted.promoted_at = Some(failover.promoted_at);
                }
                if watches {
                    slot.clock().end_met_line(reading);
                } else {
                    slot.clock().anchor(reading);
                }
            }
            // Correcting a jump that was refused does not set a clock back.
            let is_jump = matches!(plan, Err(ReserveError::ClockJumped { .. }));
            if !is_jump {
                trusted.seen = reading;
            }
            Ok(Some((situation, stepped, plan, is_jump)))
        });
        let Some((situation, stepped, plan, is_jump)) = surveyed? else {
            return Ok(None);
        };
        let reading = situation.reading;
        let rolled_back = Millis::ZERO.minus(reading.stepped_since(slot.seen(self.token)));
        // A generator that watches the clock has counted the rollback.
        if rolled_back > Millis::ZERO && !watches {
            slot.stats().count_rollback(rolled_back);
        }
        if !is_jump {
            slot.set_seen(self.token, reading);
        }
        if let Err(
            ReserveError::ClockRolledBack { by, .. }
            | ReserveError::MarkAhead { by, .. }
            | ReserveError::MarkPastPool { by, .. },
        ) = plan
        {
            slot.set_refused_lead(by);
        }
        let plan = plan?;
        // A refusal and a change of clocks have their own notes.
        if stepped != Millis::ZERO && !plan.switches {
            host.note(Note::Stepped { by: stepped });
        }
        // A refusal because of a rollback ends with the next ID.
        if !slot.is_refused_by_rollback() {
            end_refusal(host, slot);
        }
        self.note_plan(&situation, &plan);
        Ok(Some(Planned::new(plan)))
    }

    /// Whether the slot's bound is of another tenure than this.
    fn is_new_to(&self, generation: Generation) -> bool {
        self.slot.live().bounds().generation() != generation
    }

    /// The one place where a [`PlanInput`] is made. Under the clock lock: a process that closes
    /// slots has changed the tenure under that lock before, so a slot that is found
    /// closed here was not closed for this tenure.
    fn situation(&self, need: Need, found: &Survey) -> Result<PlanInput, ReserveError> {
        let (slot, layout, reading) = (self.slot, self.generator.layout, found.reading);
        let live = slot.live();
        let reserved = live.bounds().open();
        let at_start = reserved == Position::ZERO;
        let tenure = found.tenure;
        let is_new = self.is_new_to(tenure.generation);
        let (stored, on_disk) = self.stored(found, at_start)?;
        let nothing_known = |mark| ClockSeqHistory::unknown(0, layout.tick_from(mark));
        let clock_history = if at_start {
            on_disk.unwrap_or(stored.map_or(ClockSeqHistory::FRESH, nothing_known))
        } else {
            slot.clock_history()
        };
        let (through, floor) = match need {
            Need::Tick(tick) | Need::Early(tick) => (tick, None),
            Need::AdvanceTo(at) => (Tick::new(0), Some(at)),
            Need::Reported(_) | Need::Clock | Need::Switch | Need::Widen => (Tick::new(0), None),
        };
        let reported = match need {
            // Ticks that begin before it and end after it may continue.
            Need::Reported(at) => Some(layout.instant_of(layout.tick_within(at))),
            _ => None,
        };
        Ok(PlanInput {
            reading,
            settings: self.host.settings(),
            generator_now: live.now(self.generator, reading),
            trusted_offset: found.trusted.trusted_offset,
            forgiven_lead: slot.forgiven_lead(),
            cursor: live.cursor().position(),
            reserved,
            tenure,
            is_new,
            stored,
            written: slot.highest(),
            mark_is_older: found.history.switches > 0,
            failover: self.failover(found, at_start),
            advance_to: floor,
            reported,
            clock_history,
            least: slot.least().filter(|_| self.generator.rotates_worker()),
            rollback: found.rollback,
            through,
            last_window: if is_new { Millis::ZERO } else { slot.window() },
        })
    }

    /// The stored mark, and what the disk says of clocks.
    fn stored(
        &self,
        found: &Survey,
        at_start: bool,
    ) -> Result<(Option<UnixMillis>, Option<ClockSeqHistory>), ReserveError> {
        let (slot, now) = (self.slot, found.reading.wall.millis());
        let value = found.on_disk.value;
        let read = value.map(|value| self.generator.read_mark(value, now));
        let (mark, clock_history) = match read {
            None => (None, None),
            Some(Ok((mark, clock_history))) => (Some(mark), clock_history),
            // If the slot knows how far the marks were, the next mark heals the value.
            Some(Err(_)) if !at_start || slot.highest().is_some() => (None, None),
            Some(Err(no_mark)) => return Err(ReserveError::NoMark(no_mark)),
        };
        // A mark that was written here and is gone was taken away since. Clocks may
        // have been written differently under the same mark.
        if mark < slot.highest() || slot.is_undone() {
            return Ok((mark.max(slot.highest()), None));
        }
        Ok((mark, clock_history))
    }

    /// Whether the mark was written before a switch of timelines, and how much to leave
    /// out then: one gap for each switch since.
    ///
    /// A `setval()` after the promotion moves the page's LSN past the switch, and ALTER
    /// SEQUENCE ... RESTART leaves no mark at all. So a generator that starts in the
    /// life of a server that was itself promoted leaves out a gap whatever it finds. It
    /// does so once as long as it keeps its slot, and counts from the promotion, not
    /// the mark, since this may not be the first time.
    fn failover(&self, found: &Survey, at_start: bool) -> Option<Failover> {
        let history = found.history;
        let count = history.switches.max(i64::from(history.promoted));
        if count == 0 || !at_start || self.slot.gap_at().is_some() {
            return None;
        }
        // Whatever a lost primary has issued lies before the floor, or carries another
        // worker ID, if IDs carry one.
        let is_granted = found.tenure.not_before.is_some();
        if is_granted && self.generator.layout.has_worker() {
            return None;
        }
        let now = found.reading.wall.millis();
        Some(Failover {
            gap: self.generator.gap(&self.host.settings()).times(count),
            mark_is_older: history.switches > 0,
            promoted_at: found.trusted.promoted_at.unwrap_or(now),
            last_commit: history.last_commit,
        })
    }

    /// Notes the first refusal of a series, and how long IDs last.
    fn note_refusal(&self, refusal: ReserveError) {
        // A request to go too far says nothing about the clock; and a caller that finds
        // no free clock or worker ID, or a bound, may want to wait.
        if let ReserveError::AdvanceTooFar { .. }
        | ReserveError::AdvancePastPool { .. }
        | ReserveError::NoClockFree { .. }
        | ReserveError::WorkerUsed { .. }
        | ReserveError::PastBound { .. } = refusal
        {
            return;
        }
        let (host, slot, layout) = (self.host, self.slot, self.generator.layout);
        if slot.begin_refusal(host.wall().millis(), false) {
            let reserved = slot.live().bounds().in_force();
            host.note(Note::Refused {
                why: IssueError::Reservation(refusal),
                reserved: (reserved != Position::ZERO)
                    .then(|| layout.instant_of(layout.tick_of(reserved))),
            });
        }
    }

    /// Notes what is out of the ordinary in a plan.
    fn note_plan(&self, s: &PlanInput, plan: &Plan) {
        let (host, layout, lead) = (self.host, self.generator.layout, plan.lead);
        if s.forgiven_lead > Millis::ZERO && plan.starts {
            host.note(Note::StartsAhead { lead });
        }
        let rollback = s.rollback.map(|by| by.millis().max(Millis::new(1)));
        if plan.switches && self.generator.rotates_worker() {
            let worker = plan.tenure.generation.worker();
            host.note(Note::NextWorker { rollback, worker });
        } else if plan.switches {
            // The clocks that a rollback to the same time would find free.
            let from = layout.tick_of(plan.cursor_from.unwrap_or(plan.reserved));
            host.note(Note::Switched {
                rollback,
                clock: plan.clock_history.clock,
                clocks: layout.clocks(),
                free: plan.clock_history.free(from, layout.clocks()),
            });
        }
        let start = plan.clock_from.millis();
        // If the failover makes no difference there is nothing to report.
        let otherwise = s.stored.max(Some(s.generator_now.millis()));
        let is_told = |f: &Failover| f.mark_is_older || Some(start) > otherwise;
        if let Some(Failover { gap, .. }) = s.failover.filter(is_told) {
            host.note(Note::LeftGap { gap, start, lead });
        }
        let end = layout.end();
        let left = end.since(start);
        if left < ENDS_SOON && !self.slot.end_was_near(self.token) {
            host.note(Note::EndsSoon { left, end });
        }
    }

    // The steps of a reservation. Each consumes the one before.

    fn write(&self, planned: Planned) -> Result<Durable, H::Error> {
        planned.write(|plan| {
            self.host.write_durably(plan.value)?;
            self.slot.set_highest(self.token, plan.mark);
            Ok(())
        })
    }

    fn move_cursor(&self, durable: Durable) -> Moved {
        // The process that closes a slot raises its cursor, so that is no sign of a start.
        let is_new = self.slot.horizon().announced() == BEGINNING;
        let moved = durable.move_cursor(self.generator, self.slot.live());
        if self.generator.changes_clocks() {
            self.slot
                .set_clock_history(self.token, moved.plan().clock_history);
        }
        if is_new {
            // At or past the mark, which no horizon has passed before.
            let (layout, cursor) = (self.generator.layout, self.slot.live().cursor().position());
            let at = layout.instant_of(layout.tick_of(cursor));
            self.slot.horizon().start_at(at);
        }
        moved
    }

    fn publish(&self, moved: Moved) {
        let (plan, slot) = (*moved.plan(), self.slot);
        if plan.believes {
            slot.clock().believe(plan.reading.wall);
        }
        slot.set_taken(self.token, &plan);
        // If not, the caller finds that it has to reserve anew.
        let _ = moved.publish(slot.live());
        self.host.reserved(plan.reading.boot);
    }
}

#[cfg(test)]
#[path = "../tests/step_by_step.rs"]
pub mod step_by_step;
