//! Every policy, through every walk of events up to a stated length: calls, clocks
//! that pass, go back and jump, crashes, promotions, slots that are lost, marks
//! that are rewritten, labels that change.
//!
//! The walks continue as one, see [`super::explorer`], where the server and the IDs issued are
//! equal. Each state is checked, not only its IDs: what the clock history and the mark say of
//! clocks must be true of all IDs so far.

// Numbers are small here.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::Hash;

use siphasher::sip128::SipHasher13;

use super::explorer::{Explorer, Rules, deeper};
use super::model::{MS, Naps, Outcome, Server, Slept, Stop, WORKER, Writer, settings as of_millis};
use crate::id::layout::{FieldRole, Layout};
use crate::id::{Millis, Position, Tick, UnixMillis, WorkerId};
use crate::label::generator::Generator;
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::protocol;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{Clocks, IssuedRange, Step};
use crate::protocol::host::{Host, IssueError, Need};
use crate::protocol::plan::ReserveError;
use crate::protocol::plan::Settings;
use crate::protocol::tenure::{Generation, Tenure};
use crate::protocol::wait::STANDSTILL;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    One,
    /// A batch as large as a chunk may be.
    Batch,
    /// A tick passes.
    Pass,
    /// The wall clock is stepped by this many ticks.
    Step(i64),
    /// The wall clock is stepped back by half a tick.
    HalfBack,
    /// Shared memory is lost, the disk is not. A tick passes.
    Crash,
    /// A standby with a mark that lags takes over; its clock is a tick behind.
    Promote,
    /// A standby takes over that has seen nothing since the last promotion, some
    /// ticks later: twice as many as may be borrowed and its clock is behind. The
    /// server that is lost has not crashed since it was promoted.
    PromoteBlind,
    /// The slot is given to another generator, and comes back.
    Evict,
    /// A transaction rewrites the sequence, and ends.
    Rewrite,
    /// A tool sets the mark to the value that it has.
    Unstamp,
    Commit,
    Rollback,
    /// `snowflake_accept_clock()`.
    Accept,
    /// No ID before two ticks from now: IDs from elsewhere exist there.
    Advance,
    /// The greatest ID is observed of the tick that is this far ahead of the generator's clock.
    Observe(i64),
    /// Somebody sets the sequence to an instant this many ticks from now; an instant
    /// far away is no mark.
    Setval(i64),
    /// The generator gets another policy, from the list of the walk.
    Relabel(usize),
    /// A reservation under way takes its next step.
    GoOn,
    /// The registry grants the server a worker ID, one of two, which others have used up
    /// to this many ticks after its stored bound.
    Grant(usize, i64),
    /// The registry stores a later bound.
    Renew,
    /// A clean stop gives the worker ID back.
    Close,
    /// A session that entered before the last grant or the stop takes an ID.
    Old,
}

/// What the registry has stored, and how the server has got it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Registry {
    /// The bound of each worker ID, in milliseconds.
    bounds: [i64; 2],
    /// The worker ID that was granted last.
    granted: usize,
    /// The generation of sessions that have entered before.
    before: Option<Generation>,
}

/// Twice the length of a lease, in ticks: bounds lie within ticks, too.
const LEASES: i64 = 5;

const TIME_BITS: u32 = 6;
/// Three bits of clock and sequence number come on top.
const WORDS: usize = 8;

#[derive(Clone)]
struct State {
    server: Server,
    /// One bit for each ID that was issued, for each worker ID.
    issued: [[u64; WORDS]; 2],
    /// The bits of this server's IDs. One that was promoted knows nothing of IDs that the lost
    /// server has issued under another worker ID of a registry, and need not.
    here: [u64; WORDS],
    registry: Option<Registry>,
    /// The latest reading of the wall clock by which an ID was issued, in
    /// milliseconds; since the last start, or since a superuser accepted another.
    seen: i64,
    /// The latest tick of which an ID was observed.
    observed: Option<Tick>,
    /// How many marks were written when somebody set the mark; equal if none was since.
    set_after: Option<u32>,
    /// By how many ticks the clocks of the lost servers were ahead since the last
    /// promotion; `None` if the server has crashed since, or was never promoted.
    set_back: Option<i64>,
}

impl State {
    fn layout(&self) -> Layout {
        self.server.generator.layout
    }

    /// Whether the disk has a mark that somebody set: IDs issued before are known to
    /// the slot alone, or to nobody once the clock has passed them.
    fn was_set(&self) -> bool {
        self.set_after == Some(self.server.marks.get())
    }

    /// The place of an ID: clock, tick, sequence number.
    fn index(&self, tick: u64, clock: u64, number: u64) -> usize {
        let bits = self.layout().sequence_bits();
        ((clock << TIME_BITS | tick) << bits | number) as usize
    }

    fn was_issued(&self, worker: usize, index: usize) -> bool {
        self.issued[worker][index / 64] >> (index % 64) & 1 == 1
    }

    fn was_issued_at_all(&self, index: usize) -> bool {
        (0..2).any(|worker| self.was_issued(worker, index))
    }

    fn set_issued(&mut self, worker: usize, index: usize) {
        self.issued[worker][index / 64] |= 1 << (index % 64);
        self.here[index / 64] |= 1 << (index % 64);
    }

    /// The number of a worker ID here; the one granted last if there is none.
    fn worker(&self, generation: Generation) -> usize {
        match generation.worker() {
            Some(worker) => (worker.get() - WORKER as u32) as usize,
            None => self.registry.map_or(0, |registry| registry.granted),
        }
    }

    /// The latest ID of a clock: its tick and sequence number.
    fn latest_of(&self, clock: u64) -> Option<(u64, u64)> {
        let bits = self.layout().sequence_bits();
        let words = (1usize << (TIME_BITS + bits)) / 64;
        let first = clock as usize * words;
        let of_clock = &self.here[first..first + words];
        let cursor = of_clock.iter().rposition(|cursor| *cursor != 0)?;
        let offset = cursor as u64 * 64 + u64::from(of_clock[cursor].ilog2());
        Some((offset >> bits, offset & ((1 << bits) - 1)))
    }

    /// The first tick from which on no ID of a worker ID has been issued.
    fn reach_of_worker(&self, worker: usize) -> Tick {
        let bits = self.layout().sequence_bits();
        let words = (1usize << (TIME_BITS + bits)) / 64;
        let last = |clock: &[u64]| {
            let cursor = clock.iter().rposition(|cursor| *cursor != 0)?;
            Some((cursor as u64 * 64 + u64::from(clock[cursor].ilog2())) >> bits)
        };
        let last = self.issued[worker].chunks(words).filter_map(last).max();
        Tick::new(last.map_or(0, |tick| tick + 1))
    }

    /// The latest ID: its tick, clock and sequence number.
    fn latest(&self) -> Option<(u64, u64, u64)> {
        (0..self.layout().clocks())
            .filter_map(|clock| {
                let (tick, number) = self.latest_of(clock)?;
                Some((tick, clock, number))
            })
            .max()
    }

    /// The first tick from which on no ID of a clock has been issued.
    fn reach(&self, clock: u64) -> Tick {
        Tick::new(self.latest_of(clock).map_or(0, |(tick, _)| tick + 1))
    }
}

/// What calls have met.
#[derive(Default, Clone, Copy)]
struct Tally {
    issued: usize,
    waits: usize,
    refused: usize,
    switches: usize,
    /// Refused calls for which the next clock was free.
    needlessly: usize,
}

/// The rules of these walks, and what calls have met in them.
#[derive(Default, Clone)]
struct Calls<'a> {
    relabels: &'a [Generator],
    tally: Tally,
    /// The waits that were waited out.
    waits: HashSet<(Outcome2, bool)>,
}

const GAP_TICKS: i64 = 12;

fn settings(tick_millis: i64) -> Settings {
    of_millis(40 * tick_millis, 4 * tick_millis, GAP_TICKS * tick_millis)
}

impl Rules for Calls<'_> {
    type State = State;
    type Event = Event;

    fn step(&mut self, state: &mut State, event: Event) -> Result<bool, String> {
        let happens = self.apply(state, event).and_then(|happens| {
            if happens {
                check(state)?;
            }
            Ok(happens)
        });
        happens.map_err(|problem| format!("{problem}\n{}", show(state)))
    }

    fn hash(&self, state: &State, into: &mut SipHasher13) {
        state.server.hash(into);
        (state.issued, state.here).hash(into);
        state.registry.hash(into);
        (state.seen, state.set_back, state.was_set(), state.observed).hash(into);
        let policy = state.server.generator.policy;
        if policy.sequence_start == SequenceStart::Random {
            state.server.life.hash(into);
        }
        let label = (
            policy.on_rollback as u8,
            policy.on_exhausted as u8,
            policy.max_borrow_ticks,
        );
        label.hash(into);
    }

    fn line(&self, state: &State) -> String {
        line(state)
    }
}

impl Calls<'_> {
    /// Whether anything may have changed.
    fn apply(&mut self, state: &mut State, event: Event) -> Result<bool, String> {
        let tick = state.layout().tick().nanos().get();
        let server = &mut state.server;
        let rewrites = server.before_rewrite.is_some();
        let was_set = state.set_after == Some(server.marks.get());
        match event {
            // The slot is lost, with all that it knew; or the clock goes back to where
            // it has passed IDs that are no longer known.
            Event::Crash | Event::Promote | Event::PromoteBlind | Event::Rewrite if was_set => {
                return Ok(false);
            }
            Event::Step(..0) | Event::HalfBack if was_set && !server.is_in_force() => {
                return Ok(false);
            }
            // Only the mark is known of a generator that does not run.
            Event::Setval(_) if rewrites || !server.is_in_force() => return Ok(false),
            Event::Setval(ticks) => {
                let layout = server.generator.layout;
                let now = layout.tick_within(server.wall().millis()).get();
                let at = layout.instant_of(Tick::new(now.saturating_add_signed(ticks)));
                server.set_mark(Some(at.get()));
                state.set_after = Some(server.marks.get());
            }
            Event::One => return self.call(state, 1),
            Event::Batch => {
                let count = server.generator.max_chunk();
                return self.call(state, count);
            }
            Event::Pass => server.pass(tick),
            Event::Step(ticks) => {
                server.step(ticks * tick);
                state.set_back = state.set_back.map(|all| all - ticks.min(0));
            }
            Event::HalfBack => server.step(-tick / 2),
            // IDs issued by a transaction that rewrote the sequence and did not commit
            // are known to the slot alone.
            Event::Crash | Event::Promote | Event::PromoteBlind
                if rewrites || server.slot.is_undone() =>
            {
                return Ok(false);
            }
            Event::Crash => {
                server.pass(tick);
                server.restart();
                (state.seen, state.set_back) = (i64::MIN, None);
                state.forget_sessions();
            }
            // Both would leave the same gap behind one mark: one failover per gap.
            Event::Promote
                if server.lagging.get().disk.writer == Writer::Others
                    && server.lagging.get().disk.value != server.disk.get().value =>
            {
                return Ok(false);
            }
            Event::Promote => {
                server.promote(-tick);
                // The lead of the lost server's clock counts as well.
                let wall = server.wall().millis().get();
                let ahead = server.committed.get().map_or(0, |at| (at - wall).max(0));
                let ticks = ahead / (tick / MS) + i64::from(ahead > 0);
                (state.seen, state.set_back) = (i64::MIN, Some(ticks));
                state.forget_sessions();
                if state.registry.is_some() {
                    state.here = [0; WORDS];
                }
            }
            Event::PromoteBlind => {
                let Some(set_back @ 0..=4) = state.set_back else {
                    return Ok(false);
                };
                let borrow = server.generator.policy.max_borrow_ticks as i64;
                let mut after = state.clone();
                after.server.pass(2 * (borrow + set_back + 1) * tick);
                after.server.promote_blind(-tick);
                (after.seen, after.set_back) = (i64::MIN, Some(0));
                // A clock that is set back before the first ID would differ by more.
                let issued = self.tally.issued;
                self.call(&mut after, 1)?;
                if self.tally.issued == issued {
                    return Ok(false);
                }
                *state = after;
            }
            // A transaction that has rewritten the sequence keeps the slot pinned.
            Event::Evict
                if rewrites || server.slot.is_undone() || server.under_way.get().is_some() =>
            {
                return Ok(false);
            }
            Event::Evict => {
                server.evict();
                if !server.has_place() {
                    state.seen = i64::MIN;
                    state.forget_sessions();
                }
            }
            Event::Rewrite if rewrites => return Ok(false),
            Event::Rewrite => {
                // The slot is pinned, if there is one to pin.
                let _ = server.enter();
                server.rewrite();
            }
            // Who hides two promotions leaves one gap too few.
            Event::Unstamp if rewrites || server.promotions() > 1 => return Ok(false),
            Event::Unstamp => server.unstamp(),
            Event::Commit | Event::Rollback if !rewrites => return Ok(false),
            Event::Commit => server.end_rewrite(true),
            Event::Rollback => server.end_rewrite(false),
            Event::Accept => {
                server.accept();
                state.seen = i64::MIN;
            }
            Event::Advance => {
                let at = UnixMillis::new(server.wall.get() / MS + 2 * tick / MS);
                // Nobody has a place before the first call.
                if !server.has_place() || server.under_way.get().is_some() {
                    return Ok(false);
                }
                if server.reserve(Need::AdvanceTo(at)) == Ok(None) {
                    // Because of IDs from elsewhere, of any clock.
                    let layout = state.layout();
                    let Some(before) = layout.tick_from(at).get().checked_sub(1) else {
                        return Ok(true);
                    };
                    let worker = state.worker(state.server.tenure().generation);
                    for clock in 0..layout.clocks() {
                        for number in 0..=layout.max_sequence() {
                            let index = state.index(before, clock, number);
                            state.set_issued(worker, index);
                        }
                    }
                }
            }
            Event::Observe(ahead) => {
                // A slot that the generator is about to get has another clock.
                let _ = server.enter();
                let layout = server.generator.layout;
                let now = layout.tick_within(server.now().millis()).get();
                let tick = Tick::new(now.saturating_add_signed(ahead)).min(layout.last_tick());
                let Ok((_, greatest)) = layout.range_of(tick) else {
                    return Ok(false);
                };
                let (borrow, cursor) = (server.generator.policy.max_borrow_ticks, server.cursor());
                match protocol::observe(server, greatest, tick) {
                    Ok(()) => {
                        // A start may have moved the generator's clock.
                        let now = layout.tick_within(server.now().millis()).get();
                        let reached = layout.tick_of(server.cursor()).get();
                        if server.cursor() != cursor && reached > now + borrow + 1 {
                            return Err(format!("raised to {reached} at {now}"));
                        }
                        let mark = server.mark().max(server.slot.highest());
                        if mark <= Some(layout.instant_of(tick)) {
                            return Err(format!("{mark:?} is not past {tick:?}"));
                        }
                        state.observed = state.observed.max(Some(tick));
                    }
                    Err(Stop::Refused(IssueError::TooFarAhead { .. }))
                        if ahead <= borrow as i64 =>
                    {
                        return Err(format!("{ahead} is too far, with {borrow}"));
                    }
                    Err(_) => {}
                }
            }
            Event::Relabel(to) if rewrites || server.generator == self.relabels[to] => {
                return Ok(false);
            }
            Event::Relabel(to) => {
                let before = server.scale();
                server.generator = self.relabels[to];
                if server.scale() != before {
                    state.seen = i64::MIN;
                }
            }
            Event::GoOn if server.under_way.get().is_none() => return Ok(false),
            Event::GoOn => server.go_on(),
            Event::Grant(..) | Event::Renew | Event::Close | Event::Old => {
                return ask(state, event);
            }
        }
        Ok(true)
    }

    fn call(&mut self, state: &mut State, count: u64) -> Result<bool, String> {
        let generator = state.server.generator;
        let (layout, policy) = (generator.layout, generator.policy);
        let wall = state.server.read().wall.millis();
        let before = state.server.clone();
        let outcome = state.server.call(count);
        let server = &state.server;
        let leads = policy.on_rollback.watches() && server.slot.clock().parts()[1] != i64::MIN;
        if layout.clock_of(server.cursor()) != layout.clock_of(before.cursor()) {
            self.tally.switches += 1;
        }
        match outcome {
            Outcome::Issued { start, end } => {
                self.tally.issued += 1;
                // Nothing is known of a reservation ahead of need that came after the call.
                let now = layout.tick_number(before.now().millis().max(server.now().millis()));
                // While the slot knows more than the disk, the slot decides.
                let mark = server.mark().max(server.slot.highest()).ok_or("no mark")?;
                for position in start.get()..end.get() {
                    let position = Position::new(position);
                    let id = server.id(position);
                    let fields = layout.decode(id).map_err(|e| format!("{e:?}"))?;
                    let tenure = server.tenure();
                    let worker = state.worker(tenure.generation);
                    if fields.worker != WORKER as u64 + worker as u64 {
                        return Err(format!("worker of {fields:?}"));
                    }
                    let begins = layout.instant_of(fields.tick);
                    if tenure.floor.is_some_and(|floor| begins < floor)
                        || tenure.bound.is_some_and(|bound| begins >= bound)
                    {
                        return Err(format!("not within {tenure:?}: {fields:?}"));
                    }
                    let tick = fields.tick.get();
                    let index = state.index(tick, fields.clock, fields.sequence);
                    if state.was_issued(worker, index) {
                        return Err(format!("twice: {fields:?}"));
                    }
                    if Some(fields.tick) <= state.observed {
                        return Err(format!("not after {:?}: {fields:?}", state.observed));
                    }
                    let latest = if policy.sequence_start == SequenceStart::Random {
                        // Within a tick there is no order of IDs.
                        state.latest().map(|(tick, ..)| (tick, 0, 0))
                    } else {
                        state.latest()
                    };
                    if !generator.changes_clocks()
                        && latest > Some((tick, fields.clock, fields.sequence))
                    {
                        return Err(format!("not in order: {fields:?}"));
                    }
                    if layout.instant_of(fields.tick) >= mark {
                        return Err(format!("past the mark {mark:?}: {fields:?}"));
                    }
                    if fields.tick.get() as i64 > now + policy.max_borrow_ticks as i64 {
                        return Err(format!("ahead of {now}: {fields:?}"));
                    }
                    state.issued[worker][index / 64] |= 1 << (index % 64);
                    state.here[index / 64] |= 1 << (index % 64);
                }
                if policy.on_rollback.watches() && !leads && before.now() != before.read().wall {
                    // The clock led until this call, which found no need for that.
                    let met = before.now().millis() <= wall;
                    if !met && server.now() > server.read().wall {
                        return Err("it leads for no reason".to_string());
                    }
                }
                if matches!(policy.on_rollback, OnRollback::Wait | OnRollback::Error)
                    && wall.get() < state.seen
                {
                    return Err(format!("issued at {wall:?}, after {}", state.seen));
                }
                state.seen = state.seen.max(wall.get());
                if generator.changes_clocks() {
                    state.seen = i64::MIN;
                }
                return Ok(true);
            }
            Outcome::WaitsForTick(ticks) => {
                self.tally.waits += 1;
                if count == 1 && ticks != 1 {
                    return Err(format!("an ID waits for {ticks} ticks"));
                }
                if count == 1 && policy.max_borrow_ticks == 0 {
                    whole_tick_is_used(state)?;
                }
                if self.waits.insert((Outcome2::Tick(ticks), leads)) {
                    wait_out(&before, count)?;
                }
            }
            Outcome::WaitsForClock(by) => {
                self.tally.waits += 1;
                if by > policy.max_wait.nanos().get() || !policy.on_rollback.waits() {
                    return Err(format!("waits for {by} ns"));
                }
                if self.waits.insert((Outcome2::Clock(by), leads)) {
                    wait_out(&before, count)?;
                }
            }
            Outcome::Refused(IssueError::Behind { by, .. }) => {
                self.tally.refused += 1;
                let by = by.get();
                let waits = policy.on_rollback.waits() && by <= policy.max_wait.get();
                if waits || !policy.on_rollback.watches() {
                    return Err(format!("refused for being {by} ms behind"));
                }
                if generator.changes_clocks() && by <= policy.max_rollback.get() {
                    let now = layout.tick_within(wall);
                    let clock_history = server.slot.clock_history();
                    let next = (clock_history.clock + clock_history.together) % layout.clocks();
                    if clock_history.together < layout.clocks() && state.reach(next) <= now {
                        self.tally.needlessly += 1;
                    }
                }
            }
            Outcome::Refused(IssueError::TickUsedUp { .. }) => {
                self.tally.refused += 1;
                if policy.on_exhausted != OnExhausted::Error {
                    return Err("refused for a used-up tick".to_string());
                }
                if count == 1 && policy.max_borrow_ticks == 0 {
                    whole_tick_is_used(state)?;
                }
            }
            Outcome::Refused(IssueError::Reservation(
                refusal @ ReserveError::TimeUsedUp { .. },
            )) => {
                self.tally.refused += 1;
                let end = layout.last_tick().get() as i64;
                let ahead = policy.max_borrow_ticks as i64 + 1 + count as i64;
                if layout.tick_number(server.now().millis()) + ahead < end {
                    may_refuse(state, refusal)?;
                }
            }
            Outcome::Refused(IssueError::Reservation(refusal)) => {
                self.tally.refused += 1;
                may_refuse(state, refusal)?;
            }
            Outcome::Refused(IssueError::StandsStill { .. }) => {
                return Err("it stands still without a wait".to_string());
            }
            Outcome::Refused(IssueError::Interleaved { .. }) => {
                return Err("nobody asked for a block".to_string());
            }
            Outcome::Refused(IssueError::TooFarAhead { .. } | IssueError::Descends(_)) => {
                return Err("a call for IDs observes none".to_string());
            }
            Outcome::WaitsForLock => {}
            Outcome::WaitsAtBound => {
                self.tally.waits += 1;
                let now = layout.tick_within(server.now().millis());
                let furthest = Tick::new(now.get() + policy.max_borrow_ticks + count);
                let bound = server.tenure().bound.map(|at| layout.tick_from(at));
                if bound <= Some(now) || bound > Some(furthest) {
                    return Err(format!("waits for the bound {bound:?} at {now:?}"));
                }
                if self.waits.insert((Outcome2::Tick(0), leads)) {
                    wait_out(&before, count)?;
                }
            }
            Outcome::NoWorker if state.registry.is_some() => {}
            Outcome::NoWorker => return Err("without a worker ID".to_string()),
        }
        Ok(true)
    }
}

impl State {
    /// Sessions that entered before are gone.
    fn forget_sessions(&mut self) {
        if let Some(registry) = &mut self.registry {
            registry.before = None;
        }
    }
}

/// What happens between a server and its registry, and sessions that missed it.
fn ask(state: &mut State, event: Event) -> Result<bool, String> {
    let layout = state.layout();
    let lease = layout.tick().times(LEASES).half();
    let Some(mut registry) = state.registry else {
        return Ok(false);
    };
    let server = &state.server;
    let (wall, tenure) = (server.wall().millis(), server.tenure());
    let holds = tenure.generation.worker().is_some();
    match event {
        Event::Grant(worker, ahead) => {
            let floor = UnixMillis::new(registry.bounds[worker]).plus(layout.tick().times(ahead));
            let bound = floor.max(wall).plus(lease);
            let id = WorkerId::new(WORKER + worker as i32).unwrap();
            if holds {
                registry.before = Some(tenure.generation);
            }
            registry.bounds[worker] = bound.get();
            registry.granted = worker;
            let max_ahead = layout.tick().times(3);
            server.becomes(|tenure| tenure.granted(id, floor, bound, floor, max_ahead));
        }
        Event::Renew if !holds => return Ok(false),
        Event::Renew => {
            // The bound that a caller needs who waits for one.
            let reached = server.slot.furthest().max(server.slot.highest());
            let bound = reached.max(Some(wall)).unwrap_or(wall).plus(lease);
            let stored = &mut registry.bounds[registry.granted];
            *stored = bound.get().max(*stored);
            server.becomes(|tenure| tenure.renewed(bound));
        }
        Event::Close if !holds => return Ok(false),
        Event::Close => {
            registry.before = Some(tenure.generation);
            // The one time that a bound is lowered.
            registry.bounds[registry.granted] = server.close().get();
        }
        _ => {
            let Some(before) = registry.before.filter(|_| server.has_place()) else {
                return Ok(false);
            };
            let Step::Issue(IssuedRange { start, .. }) = server.step_of(before, 1) else {
                return Ok(false);
            };
            let id = server.id_for(before, start);
            let fields = layout.decode(id).map_err(|e| format!("{e:?}"))?;
            let worker = state.worker(before);
            let index = state.index(fields.tick.get(), fields.clock, fields.sequence);
            if state.was_issued(worker, index) || Some(fields.tick) <= state.observed {
                return Err(format!("twice, or not after what was observed: {fields:?}"));
            }
            state.set_issued(worker, index);
        }
    }
    state.registry = Some(registry);
    Ok(true)
}

/// [`Outcome`], as far as a wait depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome2 {
    Tick(u64),
    Clock(i64),
}

/// Every sequence number of the tick is taken, in all clocks that it may use.
fn whole_tick_is_used(state: &State) -> Result<(), String> {
    let server = &state.server;
    let generator = server.generator;
    let layout = generator.layout;
    let tick = layout.tick_within(server.now().millis());
    if server.left.get() == Some(tick) || Some(tick) <= state.observed {
        return Ok(());
    }
    let first = generator.policy.sequence_start.first_in(tick);
    let clock = layout.clock_of(server.cursor());
    let wide = 1 << (layout.within_bits() - layout.sequence_bits());
    let clocks = if generator.shares_clocks() {
        server.clock_seq_span().max
    } else {
        wide
    };
    for further in 0..clocks {
        let clock = (clock + further) % layout.clocks();
        for number in if further == 0 { first } else { 0 }..=layout.max_sequence() {
            if !state.was_issued_at_all(state.index(tick.get(), clock, number)) {
                return Err(format!("{tick:?} has room in clock {clock}: {number}"));
            }
        }
    }
    Ok(())
}

/// A refusal by the reserver has a reason.
fn may_refuse(state: &State, refusal: ReserveError) -> Result<(), String> {
    let server = &state.server;
    let (layout, policy) = (server.generator.layout, server.generator.policy);
    let wall = server.wall.get().div_euclid(MS);
    let ahead = |at: UnixMillis| at.get() - wall;
    let furthest = server
        .mark()
        .max(server.slot.highest())
        .max(Some(server.now().millis()))
        .max(server.tenure().floor)
        .map_or(0, ahead);
    let furthest = if server.timeline > 1 || server.disk.get().writer == Writer::Others {
        // The gap is added.
        furthest.max(0) + server.generator.gap(&server.settings).get() * server.timeline
    } else {
        furthest
    };
    let is_right = match refusal {
        ReserveError::ClockRolledBack { by, limit } | ReserveError::MarkAhead { by, limit, .. } => {
            let seen = state.seen.saturating_sub(wall).max(furthest);
            let trusted = server.trusted.get().trusted_offset.get() / MS;
            by > limit
                && seen.max(trusted - (wall - server.boot.get() / MS)) > policy.max_rollback.get()
        }
        // A mark of an earlier start, or one that somebody has set.
        ReserveError::MarkPastPool { by, mark, .. } => {
            let tenure = server.tenure();
            let floor = tenure.floor.map_or(0, ahead).max(0);
            server.mark() == Some(mark)
                && server.slot.highest() < Some(mark)
                && by.get() == ahead(mark)
                && by.get() > tenure.max_ahead.map_or(i64::MAX, Millis::get).max(floor)
        }
        ReserveError::ClockJumped { by, limit } => by > limit,
        ReserveError::AdvanceTooFar { .. } | ReserveError::AdvancePastPool { .. } => false,
        ReserveError::BeforeEpoch { epoch } => wall < epoch.get(),
        ReserveError::TimeUsedUp { .. } => {
            let near = layout.instant_of(Tick::new(layout.last_tick().get() - 1));
            wall + furthest.max(0) >= near.get()
        }
        // Only a caller that waits for the clock gets this refusal.
        ReserveError::NoClockFree { .. } | ReserveError::WorkerUsed { .. } => false,
        ReserveError::NoMark(_) => state.was_set(),
        ReserveError::Raised { by, limit, .. } => {
            server.disk.get().writer == Writer::Others && by > limit
        }
        ReserveError::PastBound { needed, bound, .. } => {
            // The generator's clock is there, or its start is.
            let is_there = wall + furthest.max(0) + layout.tick().get() > needed.get();
            needed >= bound && server.tenure().bound == Some(bound) && is_there
        }
    };
    if is_right {
        Ok(())
    } else {
        Err(format!("refused: {refusal:?}"))
    }
}

/// A wait ends as it should: if the clocks pass, with an ID; if the wall clock
/// stands still, with a refusal.
fn wait_out(before: &Server, count: u64) -> Result<(), String> {
    if before.apart {
        return Ok(());
    }
    let generator = before.generator;
    let (layout, policy) = (generator.layout, generator.policy);
    for (stands_still, has_taken) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut server = before.clone();
        server.held.has_taken = has_taken;
        server.naps = if stands_still {
            Naps::Stand
        } else {
            Naps::Pass
        };
        let ends = protocol::issue(&server, count);
        let Slept {
            for_tick,
            for_clock,
        } = server.slept.get();
        if for_clock > (policy.max_wait.get() + 2) * MS {
            return Err(format!("waited {for_clock} ns for the clock"));
        }
        // A clock that leads runs at half speed, and the last nap may be too long. A session
        // that has taken IDs rests as well.
        let rest = if has_taken {
            generator.max_borrow().nanos().get() / 5
        } else {
            0
        };
        let most = 2 * layout.tick().nanos().get() * count.max(4) as i64 + MS + rest;
        if !stands_still && for_tick > most {
            return Err(format!("waited {for_tick} ns for a tick"));
        }
        if for_tick > STANDSTILL.nanos().get() + 2 * MS + most {
            return Err(format!("waited {for_tick} ns for a clock that stands"));
        }
        let as_it_should = match ends {
            Ok(IssuedRange { .. }) => true,
            Err(Stop::Refused(refused)) => match refused {
                IssueError::Reservation(ReserveError::TimeUsedUp { .. }) => true,
                IssueError::Reservation(
                    ReserveError::ClockRolledBack { by, limit }
                    | ReserveError::MarkAhead { by, limit, .. }
                    | ReserveError::MarkPastPool { by, limit, .. },
                ) => by > limit,
                IssueError::TickUsedUp { .. } => policy.on_exhausted == OnExhausted::Error,
                IssueError::Behind { .. } | IssueError::StandsStill { .. } => stands_still,
                IssueError::Reservation(ReserveError::PastBound { needed, bound, .. }) => {
                    needed >= bound
                }
                IssueError::Reservation(_)
                | IssueError::Interleaved { .. }
                | IssueError::TooFarAhead { .. }
                | IssueError::Descends(_) => false,
            },
            Err(Stop::Sleeps(_) | Stop::WaitsForLock | Stop::NoWorker) => false,
        };
        if !as_it_should {
            return Err(format!("a wait ends with {ends:?}, {stands_still}"));
        }
    }
    Ok(())
}

/// What must be true of every state.
fn check(state: &State) -> Result<(), String> {
    let server = &state.server;
    let generator = server.generator;
    let layout = generator.layout;
    // A promotion leaves a gap instead; a rewrite is remembered by the slot.
    let disk_is_true = server.disk.get().writer == server.writer()
        && !state.was_set()
        && server.before_rewrite.is_none()
        && !server.slot.is_undone();
    let (mark, clock_history) = server.stored();
    if disk_is_true {
        let end = mark.map_or(Tick::new(0), |mark| layout.tick_from(mark));
        for clock in 0..layout.clocks() {
            if state.reach(clock) > end {
                return Err(format!("clock {clock} past the mark {mark:?}"));
            }
        }
        if let Some(clock_history) = clock_history {
            is_true_of(state, clock_history).map_err(|e| format!("on disk: {e}"))?;
        }
    }
    if let Some(registry) = state.registry {
        for (worker, bound) in registry.bounds.into_iter().enumerate() {
            let end = layout.tick_from(UnixMillis::new(bound));
            if state.reach_of_worker(worker) > end {
                return Err(format!("worker {worker} past its stored bound {bound}"));
            }
        }
    }
    if !server.is_in_force() {
        return Ok(());
    }
    if let Some(registry) = state.registry {
        let worker = state.worker(server.slot.live().bounds().generation());
        let end = layout.tick_from(UnixMillis::new(registry.bounds[worker]));
        if layout.tick_of(server.reserved()) > end {
            return Err(format!("the bound is past that of worker {worker}"));
        }
    }
    let (cursor, reserved) = (server.cursor(), server.reserved());
    if server.slot.highest() < Some(layout.instant_of(layout.tick_of(reserved))) {
        return Err("the bound is past the mark".to_string());
    }
    let clock = layout.clock_of(cursor);
    if layout.clock_of(reserved) != clock {
        return Err("bound and word are of two clocks".to_string());
    }
    if generator.changes_clocks() {
        let clock_history = server.slot.clock_history();
        if clock_history.clock != clock {
            return Err(format!("{clock_history:?}, but clock {clock}"));
        }
        is_true_of(state, clock_history)?;
        let tick = layout.tick_of(cursor);
        for further in 0..clock_history.together {
            let clock = (clock + further) % layout.clocks();
            if state.reach(clock).get() > tick.get() + 1 {
                return Err(format!("clock {clock} is ahead of the word"));
            }
        }
        let bounds = server.clock_seq_span();
        if generator.shares_clocks()
            && (bounds.now != clock_history.together
                || bounds.max > clock_history.widest(tick, layout.clocks()))
        {
            return Err(format!("{bounds:?}, but {clock_history:?}"));
        }
    } else if clock != 0 {
        return Err(format!("in clock {clock}"));
    }
    Ok(())
}

/// Every clock that the clock history calls free from some tick on is free there.
fn is_true_of(state: &State, clock_history: ClockSeqHistory) -> Result<(), String> {
    let clocks = state.layout().clocks();
    let [_, known_from, others_before] = clock_history.parts();
    // The answer of the clock history changes only at these ticks.
    for to in [0, known_from, others_before].map(Tick::new) {
        for further in 0..clock_history.free(to, clocks) {
            let clock = (clock_history.clock + clock_history.together + further) % clocks;
            let reach = state.reach(clock);
            if reach > to {
                return Err(format!(
                    "clock {clock} is used before {reach:?}: {clock_history:?}"
                ));
            }
        }
    }
    Ok(())
}

/// The position of a server, in ticks.
fn line(state: &State) -> String {
    let (server, layout) = (&state.server, state.layout());
    let ticks = |nanos: i64| nanos as f64 / layout.tick().nanos().get() as f64;
    let offset = |position: Position| {
        let tick = layout.tick_of(position).get();
        format!(
            "{}:{tick}.{}",
            layout.clock_of(position),
            layout.within(position)
        )
    };
    let clock_history = |clock_history: ClockSeqHistory| {
        let [_, known_from, others_before] = clock_history.parts();
        let used =
            1 + layout.clocks() - 1 - clock_history.free(Tick::new(known_from), layout.clocks());
        format!(
            "{}+{} of {used} from {known_from}, others before {others_before}",
            clock_history.clock, clock_history.together,
        )
    };
    let (mark, stored) = server.stored();
    format!(
        "wall {} boot {} latest {} word {} bound {} clocks {:?}; knows {}; mark {:?} knows {}; {:?}",
        ticks(server.wall.get()),
        ticks(server.boot.get()),
        ticks(server.slot.clock().latest().get().saturating_mul(MS)),
        offset(server.cursor()),
        offset(server.reserved()),
        server.clock_seq_span(),
        clock_history(server.slot.clock_history()),
        mark.map(|at| ticks(at.get() * MS)),
        stored.map_or("nothing".to_string(), clock_history),
        server.under_way.get().map(|it| it.parts().0),
    )
}

fn show(state: &State) -> String {
    let layout = state.layout();
    let mut text = format!("{}\n", line(state));
    for clock in 0..layout.clocks() {
        let _ = write!(text, "clock {clock}:");
        for tick in 0..=layout.last_tick().get() {
            for number in 0..=layout.max_sequence() {
                if state.was_issued_at_all(state.index(tick, clock, number)) {
                    let _ = write!(text, " {tick}.{number}");
                }
            }
        }
        text.push('\n');
    }
    text
}

/// 6 bits of time, 2 of worker, `clock` and `sequence`: at most 3 together.
fn layout(tick_millis: i64, clock: u32, sequence: u32) -> Layout {
    let fields = [
        (FieldRole::Time, 6),
        (FieldRole::Clock, clock),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, sequence),
    ];
    Layout::new(UnixMillis::new(0), Millis::new(tick_millis), &fields).unwrap()
}

fn generator(
    layout: Layout,
    on_rollback: OnRollback,
    on_exhausted: OnExhausted,
    sequence_start: SequenceStart,
    max_borrow_ticks: u64,
) -> Generator {
    let policy = Policy {
        on_rollback,
        max_rollback: layout.tick().times(8),
        max_wait: layout.tick(),
        max_borrow_ticks,
        max_observe: None,
        on_exhausted,
        sequence_start,
    };
    let layout = if on_exhausted == OnExhausted::NextClock {
        layout.through_clocks().unwrap()
    } else {
        layout
    };
    Generator { layout, policy }
}

/// A generator that may be as far ahead of the clock as promotions may need.
fn patient(mut generator: Generator) -> Generator {
    generator.policy.max_rollback = generator.layout.tick().times(60);
    generator
}

const EXHAUSTED: [OnExhausted; 3] = [
    OnExhausted::Wait,
    OnExhausted::Error,
    OnExhausted::NextClock,
];
const STARTS: [SequenceStart; 3] = [
    SequenceStart::Masked(0),
    SequenceStart::Masked(1),
    SequenceStart::Random,
];

/// All generators of a layout with `on_rollback`.
fn generators(layout: Layout, on_rollback: OnRollback) -> Vec<Generator> {
    let mut all = Vec::new();
    for on_exhausted in EXHAUSTED {
        for start in STARTS {
            for borrow in [0, 2] {
                all.push(generator(layout, on_rollback, on_exhausted, start, borrow));
            }
        }
    }
    all
}

fn name(generator: &Generator) -> String {
    let (layout, policy) = (generator.layout, generator.policy);
    format!(
        "{:?}/{:?}/{:?}/borrow {}, {} clocks of {} in {} ms",
        policy.on_rollback,
        policy.on_exhausted,
        policy.sequence_start,
        policy.max_borrow_ticks,
        layout.clocks(),
        1 << layout.sequence_bits(),
        layout.tick().get(),
    )
}

const CLOCKS: [Event; 7] = [
    Event::One,
    Event::Batch,
    Event::Pass,
    Event::Step(-1),
    Event::Step(-3),
    Event::Step(2),
    Event::Crash,
];

/// Walks of all generators; prints the findings of all together.
struct Walks<'a> {
    what: &'a str,
    events: &'a [Event],
    /// In ticks.
    wall: i64,
    depth: usize,
    apart: bool,
    prelude: &'a [Event],
    relabels: &'a [Generator],
    /// The server asks a registry for its worker ID.
    registry: bool,
}

const WALKS: Walks = Walks {
    what: "",
    events: &[],
    wall: 20,
    depth: 5,
    apart: false,
    prelude: &[],
    relabels: &[],
    registry: false,
};

impl Walks<'_> {
    fn first(&self, generator: Generator) -> State {
        let tick = generator.layout.tick().get();
        let mut server = Server::new(generator, settings(tick), self.wall * tick);
        server.apart = self.apart;
        if self.registry {
            server.becomes(Tenure::closed);
        }
        State {
            server,
            issued: [[0; WORDS]; 2],
            here: [0; WORDS],
            registry: self.registry.then(Registry::default),
            seen: i64::MIN,
            observed: None,
            set_after: None,
            set_back: None,
        }
    }

    fn run(&self, generators: Vec<Generator>) {
        let (mut states, mut steps, mut long, mut all) = (0, 0, 0, Tally::default());
        for generator in generators {
            let explorer = Explorer {
                name: &format!("{}: {}", self.what, name(&generator)),
                prelude: self.prelude,
                events: self.events,
                depth: self.depth + deeper(),
                budget: 3_000_000,
            };
            let first = self.first(generator);
            let rules = Calls {
                relabels: self.relabels,
                ..Calls::default()
            };
            let found = explorer.run(&rules, &first);
            let (count, length, seed) = (200 << (2 * deeper()), 60, 1 + states as u64);
            explorer.at_random(&rules, &first, (count, length), seed);
            long += count * length;
            states += found.states;
            steps += found.steps;
            let tally = found.rules.tally;
            all.issued += tally.issued;
            all.waits += tally.waits;
            all.refused += tally.refused;
            all.needlessly += tally.needlessly;
            all.switches += tally.switches;
        }
        println!(
            "{}: {states} states, {steps} steps; {} issued, {} waits, {} refused ({} needlessly), {} switches; {long} steps at random",
            self.what, all.issued, all.waits, all.refused, all.needlessly, all.switches,
        );
        // Where calls are taken apart, most steps are parts of calls.
        assert!(all.issued * 1000 > steps, "too few IDs for a test");
    }
}

fn clocks(on_rollback: OnRollback, wall: i64, depth: usize) {
    let layouts = if on_rollback == OnRollback::NextClock {
        vec![layout(64, 1, 2), layout(100, 2, 1)]
    } else {
        vec![layout(1, 1, 2)]
    };
    Walks {
        what: &format!("{on_rollback:?} from tick {wall}"),
        events: &CLOCKS,
        wall,
        depth,
        ..WALKS
    }
    .run(
        layouts
            .into_iter()
            .flat_map(|layout| generators(layout, on_rollback))
            .collect(),
    );
}

#[test]
fn clocks_continue() {
    clocks(OnRollback::Continue, 20, 5);
}

#[test]
fn clocks_wait() {
    clocks(OnRollback::Wait, 20, 5);
}

#[test]
fn clocks_error() {
    clocks(OnRollback::Error, 20, 5);
}

#[test]
fn clocks_next_clock() {
    clocks(OnRollback::NextClock, 20, 5);
}

const ALL: [OnRollback; 4] = [
    OnRollback::Continue,
    OnRollback::Wait,
    OnRollback::Error,
    OnRollback::NextClock,
];

/// A few generators of each policy: those that differ in what a start, a mark or a
/// reservation does.
fn some() -> Vec<Generator> {
    let mut all = vec![];
    for on_rollback in ALL {
        for on_exhausted in [OnExhausted::Wait, OnExhausted::NextClock] {
            for borrow in [0, 2] {
                let start = SequenceStart::Masked(0);
                for layout in [layout(64, 1, 2), layout(100, 2, 1)] {
                    if borrow == 2 || on_rollback == OnRollback::NextClock {
                        all.push(generator(layout, on_rollback, on_exhausted, start, borrow));
                    }
                }
            }
        }
    }
    all
}

#[test]
fn at_the_ends_of_time() {
    for wall in [1, 59] {
        for on_rollback in ALL {
            clocks(on_rollback, wall, 4);
        }
    }
}

#[test]
fn promotions() {
    use Event::{Batch, Crash, One, Pass, Promote, Step};
    Walks {
        what: "promotions",
        events: &[One, Batch, Pass, Step(-1), Crash, Promote],
        ..WALKS
    }
    .run(some().into_iter().map(patient).collect());
}

#[test]
fn promotions_and_marks_that_others_rewrite() {
    use Event::{Commit, Crash, One, Pass, Promote, Rewrite, Rollback, Step, Unstamp};
    Walks {
        what: "promotions and rewrites",
        events: &[
            One,
            Pass,
            Step(-1),
            Crash,
            Promote,
            Rewrite,
            Commit,
            Rollback,
            Unstamp,
        ],
        // A standby lacks the second mark.
        prelude: &[One, Pass, Pass, Pass, Pass, Pass, One],
        ..WALKS
    }
    .run(some().into_iter().map(patient).collect());
}

#[test]
fn promotions_of_standbys_that_saw_nothing() {
    use Event::{Batch, Crash, One, Pass, Promote, PromoteBlind, Step};
    Walks {
        what: "blind promotions",
        events: &[One, Batch, Pass, Step(-1), Crash, Promote, PromoteBlind],
        wall: 4,
        // Both standbys are caught up.
        prelude: &[One, Pass, Pass, Pass, Pass, One, Promote],
        ..WALKS
    }
    .run(some().into_iter().map(patient).collect());
}

#[test]
fn slots_and_files() {
    use Event::*;
    Walks {
        what: "slots and files",
        events: &[
            One,
            Pass,
            Step(-3),
            Step(2),
            HalfBack,
            Crash,
            Evict,
            Rewrite,
            Commit,
            Rollback,
            Accept,
            Advance,
        ],
        ..WALKS
    }
    .run(some());
}

#[test]
fn observed_ids() {
    use Event::{Accept, Batch, Close, Crash, Evict, GoOn, Grant, HalfBack};
    use Event::{Observe, Old, One, Pass, Renew, Step};
    let all = ALL.map(|on_rollback| generators(layout(64, 1, 2), on_rollback));
    let all: Vec<_> = all.into_iter().flatten().collect();
    let ascending = |it: &Generator| it.descends().is_none();
    let seen = [Observe(-1), Observe(0), Observe(2)];
    let others = [One, Batch, Pass, Step(-3), Step(2), HalfBack, Crash];
    Walks {
        what: "observed IDs",
        events: &[&seen[..], &others, &[Evict, Accept]].concat(),
        depth: 4,
        ..WALKS
    }
    .run(all.into_iter().filter(ascending).collect());
    let others = [One, Pass, GoOn, Grant(1, 0), Renew, Old, Close];
    Walks {
        what: "observed IDs, a registry, taken apart",
        events: &[&seen[..], &others].concat(),
        apart: true,
        prelude: &[Grant(0, 0), One, GoOn, GoOn, GoOn, One],
        registry: true,
        ..WALKS
    }
    .run(some().into_iter().filter(ascending).collect());
}

#[test]
fn after_a_rewrite_that_was_rolled_back() {
    use Event::{Batch, Crash, Evict, One, Pass, Rewrite, Rollback, Step};
    Walks {
        what: "after a rewrite that was rolled back",
        events: &[One, Batch, Pass, Step(-3), Step(2), Crash, Evict],
        // The bound belongs to a mark that the rollback has taken away.
        prelude: &[One, Pass, Pass, Pass, Pass, Rewrite, One, Rollback],
        ..WALKS
    }
    .run(some());
}

#[test]
fn marks_that_somebody_sets() {
    use Event::{Advance, Evict, One, Pass, Setval, Step};
    Walks {
        what: "marks that are set",
        // Lower, higher, and where no clock can be.
        events: &[
            One,
            Pass,
            Step(-3),
            Step(2),
            Evict,
            Advance,
            Setval(-2),
            Setval(3),
            Setval(1000),
        ],
        ..WALKS
    }
    .run(some());
}

#[test]
fn labels() {
    use Event::{Batch, Crash, Evict, One, Pass, Relabel, Step};
    let layout = layout(64, 1, 2);
    let (zero, random) = (SequenceStart::Masked(0), SequenceStart::Random);
    let (waits, goes_on) = (OnExhausted::Wait, OnExhausted::NextClock);
    let all = vec![
        generator(layout, OnRollback::NextClock, waits, zero, 0),
        generator(layout, OnRollback::NextClock, goes_on, zero, 0),
        generator(layout, OnRollback::NextClock, waits, random, 0),
        generator(layout, OnRollback::Continue, waits, zero, 2),
        generator(layout, OnRollback::Wait, goes_on, zero, 0),
    ];
    Walks {
        what: "labels",
        events: &[
            One,
            Batch,
            Pass,
            Step(-3),
            Crash,
            Evict,
            Relabel(0),
            Relabel(1),
            Relabel(2),
            Relabel(3),
            Relabel(4),
        ],
        relabels: &all.clone(),
        ..WALKS
    }
    .run(all);
}

#[test]
fn reservations_taken_apart() {
    use Event::{Batch, Crash, GoOn, One, Pass, Step};
    let starts: [(i64, &[Event]); 3] = [
        (20, &[One, GoOn, GoOn, GoOn, One, Pass, One]),
        // A burst, where clocks are shared.
        (20, &[One, GoOn, GoOn, GoOn, Pass, Batch, Batch]),
        // A burst two ticks before the last that is issued.
        (60, &[One, GoOn, GoOn, GoOn, Batch, Batch, Pass, Pass]),
    ];
    for (wall, prelude) in starts {
        Walks {
            what: &format!("taken apart from tick {wall}"),
            events: &[One, Batch, Pass, Step(-3), Step(2), Crash, GoOn],
            wall,
            depth: 6,
            apart: true,
            prelude,
            ..WALKS
        }
        .run(some());
    }
}

#[test]
fn clocks_that_are_refused_and_accepted() {
    use Event::{Accept, Advance, Crash, One, Pass, Step};
    Walks {
        what: "refused and accepted",
        // Further back than is allowed, and further forward.
        events: &[
            One,
            Pass,
            Step(-3),
            Step(-9),
            Step(41),
            Accept,
            Advance,
            Crash,
        ],
        wall: 12,
        ..WALKS
    }
    .run(some());
}

/// The prelude of a server that has issued under a worker ID.
const GRANTED: [Event; 3] = [Event::Grant(0, 0), Event::One, Event::Pass];

#[test]
fn worker_ids_of_a_registry() {
    use Event::{Batch, Close, Crash, Grant, Old, One, Pass, Renew, Step};
    Walks {
        what: "a registry",
        events: &[
            One,
            Batch,
            Pass,
            Step(-3),
            Grant(0, 0),
            Grant(1, 0),
            Grant(1, 9),
            Renew,
            Close,
            Old,
            Crash,
        ],
        depth: 4,
        prelude: &GRANTED,
        registry: true,
        ..WALKS
    }
    .run(some());
}

#[test]
fn worker_ids_of_a_registry_and_slots() {
    use Event::{Advance, Close, Evict, Grant, HalfBack, Old, One, Pass};
    use Event::{Promote, Renew, Rewrite, Rollback, Step};
    Walks {
        what: "a registry, slots and files",
        events: &[
            One,
            Pass,
            Step(-3),
            Step(2),
            HalfBack,
            Grant(0, 0),
            Grant(1, 0),
            Renew,
            Close,
            Old,
            Evict,
            Advance,
            Rewrite,
            Rollback,
            Promote,
        ],
        depth: 4,
        prelude: &GRANTED,
        registry: true,
        ..WALKS
    }
    .run(some());
}

#[test]
fn worker_ids_of_a_registry_and_reservations_taken_apart() {
    use Event::{Batch, Close, GoOn, Grant, Old, One, Pass, Renew, Step};
    Walks {
        what: "a registry, taken apart",
        events: &[
            One,
            Batch,
            Pass,
            Step(-3),
            Grant(0, 0),
            Grant(1, 0),
            Renew,
            Close,
            Old,
            GoOn,
        ],
        apart: true,
        prelude: &[Grant(0, 0), One, GoOn, GoOn, GoOn, One],
        registry: true,
        ..WALKS
    }
    .run(some());
}

/// Calls one after the other until one would wait; returns the IDs.
fn saturate(server: &Server, count: u64) -> Vec<i64> {
    let mut ids = vec![];
    loop {
        match server.call(count) {
            Outcome::Issued { start, end } => {
                let position = Position::new;
                ids.extend((start.get()..end.get()).map(|at| server.id(position(at)).get()));
            }
            Outcome::WaitsForTick(_) | Outcome::Refused(IssueError::TickUsedUp { .. }) => {
                return ids;
            }
            outcome => panic!("{outcome:?}"),
        }
    }
}

#[test]
fn a_saturated_tick_is_used_up() {
    for on_rollback in ALL {
        for on_exhausted in EXHAUSTED {
            for start in STARTS {
                for (layout, batch) in [
                    (layout(1, 1, 2), false),
                    (layout(64, 2, 1), false),
                    (layout(64, 1, 2), true),
                ] {
                    let generator = generator(layout, on_rollback, on_exhausted, start, 0);
                    let lasts = layout.tick().get();
                    let mut server = Server::new(generator, settings(lasts), 20 * lasts);
                    let count = if batch { generator.max_chunk() } else { 1 };
                    let (mut skipped, mut marks) = (0, HashSet::new());
                    for tick in 20..50 {
                        let mut ids = saturate(&server, count);
                        // Less is left than a batch of one compare-and-swap.
                        ids.extend(saturate(&server, 1));
                        ids.sort_unstable();
                        ids.dedup();
                        let whole = 1 << generator.layout.within_bits();
                        let first = start.first_in(Tick::new(tick));
                        skipped += whole - first - ids.len() as u64;
                        marks.insert(server.disk.get().value);
                        server.pass(lasts * MS);
                    }
                    // Giving clocks back costs a sequence number for each reservation.
                    let most = if generator.shares_clocks() {
                        marks.len() as u64
                    } else {
                        0
                    };
                    assert!(skipped <= most, "{}: {skipped}", name(&generator));
                }
            }
        }
    }
}

/// The tick and the clock of the next ID.
fn next(server: &mut Server) -> (u64, u64) {
    match server.call(1) {
        Outcome::Issued { start, .. } => {
            let layout = server.generator.layout;
            let fields = layout.decode(server.id(start)).unwrap();
            (fields.tick.get(), fields.clock)
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_rollback_goes_on_at_once_in_each_clock_but_one() {
    for (clock_bits, on_exhausted) in [
        (1, OnExhausted::Wait),
        (2, OnExhausted::Wait),
        (2, OnExhausted::NextClock),
    ] {
        let layout = layout(64, clock_bits, 1);
        let start = SequenceStart::Masked(0);
        let generator = generator(layout, OnRollback::NextClock, on_exhausted, start, 0);
        let tick = 64 * MS;
        let mut server = Server::new(generator, settings(64), 20 * 64);
        assert_eq!(next(&mut server), (20, 0));
        for clock in 1..layout.clocks() {
            server.pass(4 * tick);
            assert_eq!(next(&mut server), (24, clock - 1));
            server.step(-4 * tick);
            assert_eq!(next(&mut server), (20, clock));
        }
        server.pass(4 * tick);
        next(&mut server);
        server.step(-4 * tick);
        let refused = server.call(1);
        let Outcome::Refused(IssueError::Behind {
            by,
            no_clock: Some(_),
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(by, Millis::new(4 * 64));
        // A tick before clocks are free it waits; then time has passed the others.
        server.wall.set(24 * tick + tick / 2);
        let waits = server.call(1);
        assert!(matches!(waits, Outcome::Issued { .. }), "{waits:?}");
        server.pass(3 * tick);
        assert_eq!(next(&mut server).0, 27);
        server.step(-tick);
        let last = layout.clocks() - 1;
        assert_eq!(next(&mut server), (26, (last + 1) % layout.clocks()));
    }
}

#[test]
fn a_start_goes_on_now_in_a_clock_that_is_known_to_be_free() {
    let start = SequenceStart::Masked(0);
    let of = |on_rollback, on_exhausted| {
        let generator = generator(layout(64, 2, 1), on_rollback, on_exhausted, start, 0);
        let mut server = Server::new(generator, settings(64), 20 * 64);
        next(&mut server);
        server
    };
    let mut server = of(OnRollback::NextClock, OnExhausted::Wait);
    // The mark is at 25. Restarts do not run away from the clock.
    for clock in 1..4 {
        server.pass(64 * MS / 4);
        server.restart();
        assert_eq!(next(&mut server), (20, clock));
    }
    // No clock is left: the start is at the mark.
    server.restart();
    assert_eq!(next(&mut server), (25, 3));
    // Behind the mark, the start is in the same clock.
    server.pass(9 * 64 * MS);
    server.restart();
    assert_eq!(next(&mut server), (29, 3));

    // A mark of shared clocks says nothing, nor does a mark after a promotion.
    let mut server = of(OnRollback::NextClock, OnExhausted::NextClock);
    server.restart();
    assert_eq!(next(&mut server), (25, 0));
    let mut server = of(OnRollback::NextClock, OnExhausted::Wait);
    server.generator = patient(server.generator);
    let bounds = server.slot.live().bounds();
    assert!(bounds.claim_prefetch(Position::new(u64::MAX)));
    server.reserve(Need::Early(Tick::new(20))).unwrap();
    server.promote(0);
    assert_eq!(next(&mut server).0, 25 + GAP_TICKS as u64);
    // A mark that a person sets is an instant, and says nothing of clocks.
    let mut server = of(OnRollback::NextClock, OnExhausted::Wait);
    server.set_mark(Some(27 * 64));
    server.restart();
    assert_eq!(next(&mut server), (27 + GAP_TICKS as u64, 0));
    // Generators with other policies start at the mark.
    for on_rollback in [OnRollback::Continue, OnRollback::Wait, OnRollback::Error] {
        let mut server = of(on_rollback, OnExhausted::NextClock);
        server.restart();
        assert_eq!(next(&mut server), (25, 0));
    }
}
