//! How a mark is raised. A [`Host`] is a server.
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
//! takes no position and writes no mark. It may leave a note, open a slot that was closed, and have
//! the clock believed that it has seen.

use crate::horizon::BEGINNING;
use crate::id::{Millis, Nanos, Position, Tick, UnixMillis};
use crate::label::generator::Generator;
use crate::protocol::clock::Reading;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::Live;
use crate::protocol::host::{Host, IssueError, Need, Note, OnDisk, TrustedClock};
use crate::protocol::plan::{
    Author, DurablePlan, Gap, MarkError, MovedPlan, NewPlan, Plan, PlanInput, ReserveError,
};
use crate::protocol::slot::{Reserving, Slot};
use crate::protocol::tenure::{Generation, Tenure};

/// How long before the end of a layout's time a note tells of it.
const ENDS_SOON: Millis = Millis::new(365 * 24 * 60 * 60 * 1000);

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
        Need::Clock => lag(host, live, generator).millis() <= Millis::ZERO,
        Need::AdvanceTo(_) | Need::Switch | Need::Widen => false,
    }
}

/// How far a generator's clock is behind the wall clock, which was set forward then since a
/// reservation has read it. Negative if the generator leads.
pub(super) fn lag<H: Host>(host: &H, live: &Live, generator: &Generator) -> Nanos {
    if generator.policy.on_rollback.watches() {
        return Nanos::ZERO;
    }
    // The boot clock last: the time between the readings makes the lag less, never more.
    let wall = host.wall();
    wall.since(live.clock().now(host.boot()))
}

/// Notes that the generator issues again, if it has refused.
pub(super) fn end_refusal<H: Host>(host: &H, slot: &Slot) {
    if let Some(since) = slot.end_refusal() {
        host.note(Note::IssuesAgain { since });
    }
}

/// What a reserver finds: a [`PlanInput`] is made of it.
struct Survey<'a> {
    on_disk: OnDisk,
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
    fn prepare(&self, need: Need) -> Result<Result<Option<NewPlan>, ReserveError>, H::Error> {
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
    fn survey(&self, need: Need, on_disk: OnDisk) -> Result<Option<NewPlan>, ReserveError> {
        let (host, slot, generator) = (self.host, self.slot, self.generator);
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
            | ReserveError::MarkPastPool { by, .. }
            | ReserveError::Raised { by, .. },
        ) = plan
        {
            slot.set_refused_lead(by);
        }
        let plan = plan?;
        let is_foreign = matches!(on_disk.author, Author::Unknown | Author::Restart);
        if is_foreign
            && slot.highest().is_some()
            && slot.put_back(self.token, reading.wall.millis())
        {
            let restarted = on_disk.author == Author::Restart;
            host.note(Note::PutBack { restarted });
        }
        // A refusal and a change of clocks have their own notes.
        if stepped != Millis::ZERO && !plan.switches {
            host.note(Note::Stepped { by: stepped });
        }
        // A refusal because of a rollback ends with the next ID.
        if !slot.is_refused_by_rollback() {
            end_refusal(host, slot);
        }
        self.note_plan(&situation, &plan);
        Ok(Some(NewPlan::new(plan)))
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
        let advance_to = match need {
            Need::AdvanceTo(at) => Some(at),
            _ => None,
        };
        let (stored, on_disk) = self.stored(found, at_start, advance_to)?;
        let nothing_known = |mark| ClockSeqHistory::unknown(0, layout.tick_from(mark));
        let clock_history = if at_start {
            on_disk.unwrap_or(stored.map_or(ClockSeqHistory::FRESH, nothing_known))
        } else {
            slot.clock_history()
        };
        let through = match need {
            Need::Tick(tick) | Need::Early(tick) => tick,
            _ => Tick::new(0),
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
            author: found.on_disk.author,
            gap: self.gap(found, at_start),
            advance_to,
            clock_history,
            least: slot.least().filter(|_| self.generator.rotates_worker()),
            rollback: found.rollback,
            through,
            last_window: if is_new { Millis::ZERO } else { slot.window() },
        })
    }

    /// The mark in force, and what the disk says of clocks.
    fn stored(
        &self,
        found: &Survey,
        at_start: bool,
        advance_to: Option<UnixMillis>,
    ) -> Result<(Option<UnixMillis>, Option<ClockSeqHistory>), ReserveError> {
        let (slot, now) = (self.slot, found.reading.wall.millis());
        let OnDisk { value, author } = found.on_disk;
        // Where the generator may start, whatever the mark was.
        let has_floor = advance_to.is_some() || self.is_granted(found.tenure);
        let read = match value {
            Some(value) => Some(self.generator.read_mark(value, now)),
            None if author == Author::Restart => Some(Err(MarkError::Restart)),
            None => None,
        };
        let own = slot.highest();
        let (mark, clock_history) = match read {
            None => (None, None),
            Some(Ok((mark, clock_history))) => (Some(mark), clock_history),
            // If the slot knows how far the marks were, the next mark heals the value.
            Some(Err(_)) if !at_start || own.is_some() => (None, None),
            Some(Err(MarkError::Restart)) if has_floor => (None, None),
            Some(Err(no_mark)) => return Err(ReserveError::NoMark(no_mark)),
        };
        // A generator that runs knows its mark, whatever others have written since. Clocks may
        // have been written differently under the same mark.
        if own.is_some() && (mark != own || slot.is_undone()) {
            return Ok((own, None));
        }
        Ok((mark, clock_history))
    }

    /// Whether a registry has granted the worker ID that the IDs carry. Whatever others have issued
    /// then lies before the floor, or carries another worker ID.
    fn is_granted(&self, tenure: Tenure) -> bool {
        tenure.floor.is_some() && self.generator.layout.has_worker()
    }

    /// What is to be left out behind the mark, by who wrote it. A generator that runs knows its
    /// own mark, and leaves nothing out.
    fn gap(&self, found: &Survey, at_start: bool) -> Option<Gap> {
        let author = found.on_disk.author;
        let times = match author {
            Author::Present => return None,
            Author::Earlier { promotions } => promotions,
            Author::Unknown | Author::Restart => 1,
        };
        if !at_start || self.slot.highest().is_some() {
            return None;
        }
        if self.is_granted(found.tenure) {
            return None;
        }
        let last_commit = match author {
            Author::Earlier { .. } => self.host.last_commit(),
            _ => None,
        };
        Some(Gap {
            author,
            length: self.generator.gap(&self.host.settings()).times(times),
            last_commit,
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
        if let Some(Gap { author, length, .. }) = s.gap {
            let gap = length;
            host.note(Note::LeftGap {
                author,
                gap,
                start,
                lead,
            });
        }
        let end = layout.end();
        let left = end.since(start);
        if left < ENDS_SOON && !self.slot.end_was_near(self.token) {
            host.note(Note::EndsSoon { left, end });
        }
    }

    // The steps of a reservation. Each consumes the one before.

    fn write(&self, planned: NewPlan) -> Result<DurablePlan, H::Error> {
        planned.write(|plan| {
            self.host.write_durably(plan.value)?;
            self.slot.set_highest(self.token, plan.mark);
            Ok(())
        })
    }

    fn move_cursor(&self, durable: DurablePlan) -> MovedPlan {
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

    fn publish(&self, moved: MovedPlan) {
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
