//! How IDs are issued: the order of a call. `reserve.rs` has what a reservation does.
//!
//! A session that is about to take its first IDs of a generator in a transaction keeps to
//! this order, so that no horizon passes an ID that may still appear ([`crate::horizon`] has the
//! proof):
//!
//! 1. enter: the host loads what the session may do, and the slot;
//! 2. start the generator, if nobody has since the server's start: no hold lies before the
//!    mark;
//! 3. hold the horizon where the cursor is;
//! 4. take the IDs, and raise the hold to the first one.
//!
//! Step 2 reserves, and so may wait for others: after it, the call begins anew. It also does
//! after it has entered for another generation.
//!
//! # Who the server is
//!
//! A caller enters for a generation, that of the server's tenure at that moment. A
//! reservation looks at the tenure under the clock lock: if it is another one by now, nothing is
//! reserved, and the caller enters anew. So a plan is always for the tenure that the
//! server has when the clocks are read, and no mark or bound is past that tenure's
//! bound. A call that needs more waits until the host has a later bound, or another
//! tenure.

use crate::horizon::BEGINNING;
use crate::id::layout::OrderError;
use crate::id::{Millis, Nanos, Position, SnowflakeId, Tick, UnixMillis};
use crate::label::generator::{Descent, Generator};
use crate::protocol::cursor::{IssuedRange, Live, Step};
use crate::protocol::host::{Host, IssueError, Need};
use crate::protocol::plan::ReserveError;
use crate::protocol::reserve::{end_refusal, lag};
use crate::protocol::slot::Slot;
use crate::protocol::tenure::Generation;
use crate::protocol::wait::{Waits, await_bound};

/// Issues up to `count` IDs, at most [`Generator::max_chunk`]; fewer if room is
/// lacking. Waits for the clock and reserves as needed; a failed call issues nothing.
/// Fails with the host's error, or why there is no ID.
pub fn issue<H: Host>(host: &H, count: u64) -> Result<IssuedRange, H::Error> {
    issue_from(host, None, count)
}

/// As [`issue`], for a caller that has just met `found`, which is not [`Step::Issue`]:
/// begins with that step, so that no clock is read again for it.
pub fn issue_after<H: Host>(host: &H, found: Step, count: u64) -> Result<IssuedRange, H::Error> {
    issue_from(host, Some(found), count)
}

fn issue_from<H: Host>(
    host: &H,
    mut found: Option<Step>,
    count: u64,
) -> Result<IssuedRange, H::Error> {
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
                reserve_early(host, slot, generator, issued.end)?;
                let waited = waits.waited;
                return Ok(IssuedRange { waited, ..issued });
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
    /// For which generation the call has held the horizon.
    holds_since: Option<Generation>,
}

impl Stand {
    /// Steps 2 and 3: whether the session may take IDs now. If not, it has made way for that,
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
/// answer is where the cursor is; where the layout's time has ended, the mark. Fails with the host's
/// error, or why there is neither.
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
            // No ID comes any more: what is left of the reservation is skipped, so that readers
            // get the last rows.
            (Some(ReserveError::TimeUsedUp { .. }), Some(at)) => {
                let mark = slot.highest().unwrap_or(at);
                let end = layout.offset_of(layout.tick_from(mark));
                live.cursor().raise(layout.at(layout.clock_of(cursor), end));
                return Ok(mark);
            }
            (Some(_), Some(at)) => return Ok(at),
            (Some(refusal), None) => await_bound(host, refusal)?,
        }
    }
}

/// A generator's clock that is less than this behind the wall clock was not left behind by a
/// step: a session that asks for a horizon does not write a mark because of it.
const LAG_MIN: Nanos = Nanos::new(10_000_000);

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
            }) => waits.for_tick(host, slot, generator, ticks, false),
            Some(refusal) => await_bound(host, refusal),
        },
        Step::Widen => demand(host, Need::Widen),
        // A transaction's first ID does not wait for those that want many.
        Step::Wait { ticks } => waits.for_tick(host, slot, generator, ticks, host.has_taken()),
        Step::RolledBack { wall, by } => waits.for_clock(host, slot, generator, wall, by),
    }
}

/// Observes an ID of `tick`, which came from another server: every ID that is issued
/// after this has returned sorts after it, also after a crash. If that is so anyway, nothing
/// changes. Otherwise the cursor is raised, without a lock where that lies below the bound.
/// Reserves and waits as [`issue`] does; a failed call changes nothing.
///
/// The tick may be ahead of the generator's clock by what the generator may borrow, and by
/// no more than its `max_observe`, if it has one. So nobody waits longer because of this than
/// because of a caller who takes IDs.
///
/// # Errors
/// The host's error, or why the ID cannot be observed.
pub fn observe<H: Host>(host: &H, id: SnowflakeId, tick: Tick) -> Result<(), H::Error> {
    let mut waits = Waits::default();
    let mut has_looked = false;
    loop {
        let (slot, generator) = host.enter()?;
        let live = slot.live();
        if let Some(descent) = descent_after(host, live, generator, tick) {
            return Err(host.error(IssueError::Descends(descent)));
        }
        if live.exceeds(generator, host.generation(), (id, tick), host) {
            return Ok(());
        }
        let limited = generator.within(generator.policy.max_observe);
        let raised = if generator.policy.on_rollback.watches() {
            live.raise_past::<true>(&limited, tick, host)
        } else {
            live.raise_past::<false>(&limited, tick, host)
        };
        match raised {
            Ok(to) => return reserve_early(host, slot, generator, to),
            // Who only observes reserves nothing, and does not see that the wall clock was set
            // forward. A lag of less than a millisecond moves no tick.
            Err(Step::Wait { .. })
                if !has_looked && lag(host, live, generator).millis() > Millis::ZERO =>
            {
                has_looked = true;
                match host.reserve(Need::Clock)? {
                    // The clock has followed, whether there is more to reserve or not.
                    None | Some(ReserveError::PastBound { .. }) => {}
                    Some(refusal) => await_bound(host, refusal)?,
                }
            }
            Err(Step::Wait { ticks }) => {
                slot.stats().count_refusal();
                let by = limited.policy.max_borrow_ticks + ticks;
                return Err(host.error(IssueError::TooFarAhead {
                    by: generator.layout.lasting(by),
                    limit: limited.max_borrow(),
                }));
            }
            Err(step) => wait_or_reserve(host, slot, generator, &mut waits, step)?,
        }
    }
}

/// Reserves ahead of need, if the cursor has come to where the caller is elected to.
fn reserve_early<H: Host>(
    host: &H,
    slot: &Slot,
    generator: &Generator,
    end: Position,
) -> Result<(), H::Error> {
    if slot.live().bounds().claim_prefetch(end) {
        let last = Position::new(end.get() - 1);
        let _ = host.reserve(Need::Early(generator.layout.tick_of(last)))?;
    }
    Ok(())
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

/// Reserves, as [`Host::reserve`], for a caller that cannot continue without it. Fails with the host's
/// error, or why nothing can be reserved.
pub fn demand<H: Host>(host: &H, need: Need) -> Result<(), H::Error> {
    let refusal = host.reserve(need)?;
    refusal.map_or(Ok(()), |refusal| await_bound(host, refusal))
}
