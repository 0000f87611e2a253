//! PostgreSQL as a host of the protocol, and the path of each ID.

use std::cell::Cell;
use std::ops::Range;

use crate::postgres::compat;
use crate::server::shmem::{self, Shared};
use crate::server::{guc, lease_error, os_clock};
use crate::session::error::{self, Error};
use crate::session::generator::{IssueContext, Path, Purpose, SessionGenerator};
use crate::session::{label::ParsedLabel, lease_wait, mark, note, tx_holds};
use snowflake_core::id::layout::Stamp;
use snowflake_core::id::{
    BootNanos, Millis, NANOS_PER_MILLI, Nanos, Position, SnowflakeId, UnixMillis, UnixNanos,
};
use snowflake_core::label::generator::Generator;
use snowflake_core::protocol;
use snowflake_core::protocol::block::issue_block;
use snowflake_core::protocol::clock::Reading;
use snowflake_core::protocol::cursor::{Clocks, IssuedRange, Step};
use snowflake_core::protocol::host::{Host, IssueError, Need, Note, OnDisk, TrustedClock};
use snowflake_core::protocol::plan::{ReserveError, Settings};
use snowflake_core::protocol::slot::{Reserving, Slot};
use snowflake_core::protocol::tenure::{Generation, Tenure};

/// The shortest and the longest nap on a plain sleep, in microseconds: long enough to
/// give the core away, and shorter than a tick, so that no tick is lost.
const NAP_MICROS_MIN: i64 = 50;
const NAP_MICROS_MAX: i64 = 500;

/// The longest nap on the latch, in milliseconds: a clock that is corrected during the
/// nap is seen soon.
const NAP_MILLIS_MAX: i64 = 10;

/// How long a call waits for a later bound of the server's worker ID.
const BOUND_WAIT: Millis = Millis::new(5000);

/// How often a call that waits tells the keeper what it needs: another keeper may have
/// started meanwhile.
const BOUND_TELL: Millis = Millis::new(1000);

/// How far ahead of the clock and of the bound a call may need a later bound. A registry
/// gives none that is so far ahead, and a clock that was set back leaves the bound.
const BOUND_LEAD_MAX: Millis = Millis::new(24 * 60 * 60 * 1000);

/// PostgreSQL. The path of each ID needs its clocks only; with a [`Caller`], this type
/// is a [`Host`].
struct Postgres<C>(C);

/// A session that asks for IDs.
struct Caller {
    entry: &'static SessionGenerator,
    shared: &'static Shared,
    /// The context in which the session issues, once it has entered.
    context: Cell<Option<IssueContext>>,
    /// Whether a wait was counted.
    waited: Cell<bool>,
    /// The call gives no fields, so a generator that takes fields refuses it.
    is_bare: bool,
    /// What the session enters for.
    purpose: Purpose,
}

impl<C> Clocks for Postgres<C> {
    fn wall(&self) -> UnixNanos {
        os_clock::wall()
    }

    fn boot(&self) -> BootNanos {
        os_clock::boot()
    }

    fn read(&self) -> Reading {
        os_clock::read()
    }
}

impl Postgres<Caller> {
    /// Waits for what the keeper publishes: until `look`, which is told the time, finds an
    /// answer, or for [`BOUND_WAIT`], which is none.
    fn wait_until_told(&self, mut look: impl FnMut(BootNanos) -> Option<bool>) -> bool {
        let pending = self.0.entry.pending();
        let from = os_clock::boot();
        let mut at = from;
        let found = loop {
            if let Some(found) = look(at) {
                break found;
            }
            let left = Nanos::new(BOUND_WAIT.nanos().get() - at.since(from).get());
            if left <= Nanos::ZERO {
                break false;
            }
            if !self.0.waited.replace(true) {
                pending.count_wait();
            }
            pgrx::check_for_interrupts!();
            self.0.shared.sleep_until_told(left);
            let now = os_clock::boot();
            pending.add_wait(at, now);
            at = now;
        };
        compat::end_sleep();
        found
    }
}

impl Host for Postgres<Caller> {
    type Error = Error;

    fn error(&self, why: IssueError) -> Error {
        let entry = self.0.entry;
        let refused = |it: &ParsedLabel| {
            let error = lease_wait::refused(&entry.name(), &it.generator, why);
            match why {
                IssueError::Behind { by, .. }
                    if it.generator.rotates_worker() && by <= it.generator.policy.max_rollback =>
                {
                    let shared = self.0.shared;
                    let (mut shown, blocked) =
                        shared.with_lease(|_, state| (state.shown.clone(), state.blocked.clone()));
                    shown.failure = blocked.map(|blocked| blocked.obstacle);
                    lease_error::no_other_worker(error, &shown, shared.has_keeper())
                }
                _ => error,
            }
        };
        entry.describe().map_or_else(|error| error, refused)
    }

    fn enter(&self) -> Result<(&Slot, &Generator), Error> {
        let context = self.0.entry.context_or_fill(self.0.purpose)?;
        if self.0.is_bare {
            check_bare(self.0.entry, &context)?;
        }
        self.0.context.set(Some(context));
        Ok((context.slot, context.generator))
    }

    fn entered(&self) -> Option<(&Slot, &Generator)> {
        let (entry, shared) = (self.0.entry, self.0.shared);
        let context = entry.present_context(self.0.purpose, shared)?;
        Some((context.slot, context.generator))
    }

    fn generation(&self) -> Generation {
        // A session that reserves without a call for IDs has entered before.
        let entry = self.0.entry;
        let known = || entry.context_for(self.0.purpose);
        let context = self.0.context.get().or_else(known);
        context.map_or(Generation::NONE, |context| context.generation)
    }

    fn has_taken(&self) -> bool {
        self.0
            .context
            .get()
            .is_some_and(|context| !context.path.is_first())
    }

    fn hold(&self, _slot: &Slot, at: UnixMillis) -> Result<(), Error> {
        let entry = self.0.entry;
        let key = entry.pinned_key().unwrap_or_else(|| entry.key());
        tx_holds::hold(self.0.shared, key, at)
    }

    fn narrow_hold(&self, at: UnixMillis) {
        if let Some(key) = self.0.entry.pinned_key() {
            tx_holds::narrow_hold(key, at);
        }
    }

    fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T {
        mark::reserving(self.0.shared, self.0.entry.relation(), f)
    }

    fn reserving_unless<T>(
        &self,
        is_done: impl Fn() -> bool,
        f: impl FnOnce(&Reserving) -> T,
    ) -> Option<T> {
        mark::reserving_unless(self.0.shared, self.0.entry.relation(), is_done, f)
    }

    fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock, Tenure) -> T) -> T {
        let shared = self.0.shared;
        shared.with_lease(|trusted, state| f(trusted, state.tenure))
    }

    fn settings(&self) -> Settings {
        guc::settings()
    }

    fn read_mark(&self) -> Result<OnDisk, Error> {
        mark::read(self.0.entry.relation())
    }

    fn last_commit(&self) -> Option<UnixMillis> {
        mark::last_commit()
    }

    fn write_durably(&self, value: i64) -> Result<(), Error> {
        mark::write(self.0.entry.relation(), value)
    }

    /// A cancelled query ends the nap, and so does the end of the postmaster.
    fn nap(&self, nanos: Nanos) -> Result<(), Error> {
        let pending = self.0.entry.pending();
        if !self.0.waited.replace(true) {
            pending.count_wait();
        }
        pgrx::check_for_interrupts!();
        let from = os_clock::boot();
        match nanos.get() / NANOS_PER_MILLI {
            ..=0 => compat::sleep((nanos.get() / 1000).clamp(NAP_MICROS_MIN, NAP_MICROS_MAX)),
            millis => compat::wait_latch(millis.min(NAP_MILLIS_MAX)),
        }
        pending.add_wait(from, os_clock::boot());
        pgrx::check_for_interrupts!();
        Ok(())
    }

    fn more_bound(&self, needed: UnixMillis) -> Result<bool, Error> {
        let mine = self.generation();
        // Whether there is more, and whether a registry can give it.
        let look = |_: &mut TrustedClock, tenure| {
            let Tenure {
                generation, bound, ..
            } = tenure;
            let near = os_clock::wall().millis().max(bound.unwrap_or(needed));
            let has_more = generation != mine || bound.is_none_or(|bound| bound > needed);
            (has_more, needed.since(near) <= BOUND_LEAD_MAX)
        };
        let (shared, lease) = (self.0.shared, self.0.shared.server());
        let mut told = None;
        Ok(self.wait_until_told(|now| {
            // Without the lock first: all who wait are woken at once.
            if lease.generation() != mine {
                return Some(true);
            }
            let (has_more, can_come) = self.with_trusted_clock(look);
            if has_more || !can_come {
                return Some(has_more);
            }
            if told.is_none_or(|told| now.since(told) >= BOUND_TELL.nanos()) {
                if lease.need_bound(needed) {
                    shared.wake_keeper();
                }
                told = Some(now);
            }
            lease_wait::has_long_failure(shared).then_some(false)
        }))
    }

    fn another_worker(&self) -> Result<bool, Error> {
        let (shared, mine) = (self.0.shared, self.generation());
        let lease = shared.server();
        let mut told = None;
        Ok(self.wait_until_told(|now| {
            // Without a worker ID, the server is about to get the next one.
            if lease.generation() != mine {
                return Some(true);
            }
            if told.is_none_or(|told| now.since(told) >= BOUND_TELL.nanos()) {
                if lease.use_up(mine) {
                    shared.wake_keeper();
                }
                told = Some(now);
            }
            let reading = os_clock::read();
            let is_blocked = shared.with_lease(|_, state| {
                let blocked = state.blocked.as_ref();
                blocked.is_some_and(|blocked| blocked.holds(reading))
            });
            is_blocked.then_some(false)
        }))
    }

    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Self::Error> {
        protocol::reserve(self, need)
    }

    fn note(&self, note: Note) {
        let entry = self.0.entry;
        if let Ok(described) = entry.describe() {
            let (name, generator) = (entry.name(), &described.generator);
            let refusal = |why| lease_wait::refused(&name, generator, why);
            note::log(&name, note, refusal);
        }
    }

    fn reserved(&self, began: BootNanos) {
        let entry = self.0.entry;
        entry.pending().count_reservation(began, os_clock::boot());
        entry.flush_stats();
    }
}

/// Refuses a call that gives no fields, if the generator takes some.
pub fn check_bare(entry: &SessionGenerator, context: &IssueContext) -> Result<(), Error> {
    if !context.generator.layout.takes_fields() {
        return Ok(());
    }
    let label = &entry.describe()?.label;
    Err(error::needs_fields(&entry.name(), label))
}

/// Runs `f`, a step of the protocol, for this session. `is_bare`: the call asks for IDs
/// and gives no fields.
fn with_host<T>(
    entry: &'static SessionGenerator,
    is_bare: bool,
    f: impl FnOnce(&Postgres<Caller>) -> Result<T, Error>,
) -> Result<T, Error> {
    f(&host(entry, is_bare, Purpose::Issue)?)
}

fn host(
    entry: &'static SessionGenerator,
    is_bare: bool,
    purpose: Purpose,
) -> Result<Postgres<Caller>, Error> {
    Ok(Postgres(Caller {
        entry,
        shared: shmem::shared()?,
        context: Cell::new(None),
        waited: Cell::new(false),
        is_bare,
        purpose,
    }))
}

/// The slot of a generator, and the instant of a position at or before all IDs to come. The
/// caller has checked its privilege, and that the generator never goes back.
pub fn advance_to_now(
    entry: &'static SessionGenerator,
) -> Result<(&'static Slot, UnixMillis), Error> {
    let reached = protocol::advance_to_now(&host(entry, false, Purpose::Advance)?)?;
    Ok((entry.context_or_fill(Purpose::Advance)?.slot, reached))
}

/// Consecutive positions of this session, and what turns them into IDs.
pub struct Chunk {
    positions: Range<u64>,
    context: IssueContext,
}

impl Iterator for Chunk {
    type Item = SnowflakeId;

    #[inline]
    fn next(&mut self) -> Option<SnowflakeId> {
        let position = Position::new(self.positions.next()?);
        Some(self.context.compose(position))
    }
}

/// One ID, if that needs no wait and no catalog. One that is taken half a window before the bound is
/// reached reserves the next one, if its session was elected.
// Always: as a function of its own, it would cost 16 instructions.
#[inline(always)]
pub fn next_fast(entry: &'static SessionGenerator) -> Option<SnowflakeId> {
    let context = entry.context()?;
    if context.path != Path::Plain {
        return next_fast_of_others(entry);
    }
    let (layout, stamp) = (&context.generator.layout, context.stamp);
    take_one::<false>(entry, &context, |at| layout.compose(at, stamp)).ok()
}

/// [`next_fast`] of generators that are not plain, kept out of the path of those that are.
#[inline(never)]
fn next_fast_of_others(entry: &'static SessionGenerator) -> Option<SnowflakeId> {
    let context = entry.context()?;
    // The slow path refuses a call without fields, and notes the end of a refusal.
    if context.path.is_first()
        || context.generator.layout.takes_fields()
        || context.slot.is_refused_by_rollback()
    {
        None
    } else if context.generator.policy.on_rollback.watches() {
        match take_one::<true>(entry, &context, |at| context.compose(at)) {
            // The slow path begins with this reading of the clock.
            Err(found @ Step::RolledBack { .. }) => Some(next_after(entry, found)),
            taken => taken.ok(),
        }
    } else {
        take_one::<false>(entry, &context, |at| context.compose(at)).ok()
    }
}

// Always: as a function of its own, it would cost the default generator 70 instructions.
#[inline(always)]
fn take_one<const WATCHES: bool>(
    entry: &'static SessionGenerator,
    context: &IssueContext,
    compose: impl FnOnce(Position) -> SnowflakeId,
) -> Result<SnowflakeId, Step> {
    let (live, generator, mine) = (context.slot.live(), context.generator, context.generation);
    let step = live.issue::<WATCHES>(generator, mine, 1, &Postgres(()));
    let Step::Issue(issued) = step else {
        return Err(step);
    };
    let id = compose(issued.start);
    entry.set_last_id(id);
    if entry.pending().count_issued(1, issued.borrowed) {
        entry.flush_stats();
    }
    if live.bounds().claim_prefetch(issued.end) {
        early(entry, generator, issued.start);
    }
    Ok(id)
}

/// Reserves ahead of need, after the ID was issued.
#[cold]
fn early(entry: &'static SessionGenerator, generator: &Generator, issued: Position) {
    let need = Need::Early(generator.layout.tick_of(issued));
    if let Err(error) = with_host(entry, false, |host| protocol::reserve(host, need)) {
        error.raise();
    }
}

/// One ID by the slow path, of a call that has found this step.
#[cold]
fn next_after(entry: &'static SessionGenerator, found: Step) -> SnowflakeId {
    let id = take_first(entry, None, |host| protocol::issue_after(host, found, 1));
    id.unwrap_or_else(|error| error.raise())
}

/// Up to `count` IDs, at most [`Generator::max_chunk`] of the entry's generator; fewer
/// if there is no room for more. Waits for the clock and reserves as needed; a failed
/// call issues nothing.
#[cold]
pub fn next_chunk(entry: &'static SessionGenerator, count: u64) -> Result<Chunk, Error> {
    let issue = |host: &Postgres<Caller>| protocol::issue(host, count);
    take(entry, None, issue, |context, issued| Chunk {
        positions: issued.start.get()..issued.end.get(),
        context: *context,
    })
}

/// The first of `count` consecutive IDs, at most [`Generator::max_block`] of the entry's
/// generator.
#[cold]
pub fn next_block(entry: &'static SessionGenerator, count: u64) -> Result<SnowflakeId, Error> {
    take_first(entry, None, |host| issue_block(host, count))
}

/// Issues IDs, and returns what `made` makes of them.
fn take<T>(
    entry: &'static SessionGenerator,
    given: Option<Stamp>,
    issue: impl FnOnce(&Postgres<Caller>) -> Result<IssuedRange, Error>,
    made: impl FnOnce(&IssueContext, &IssuedRange) -> T,
) -> Result<T, Error> {
    let mut host = host(entry, given.is_none(), Purpose::Issue)?;
    let issued = issue(&host)?;
    // The context stays where it is: a transaction's first ID pays for each copy.
    let context = match host.0.context.get_mut() {
        Some(context) => context,
        // The session has entered the protocol, so there is a context.
        none => none.insert(entry.context_or_fill(Purpose::Issue)?),
    };
    if let Some(given) = given {
        context.stamp = context.stamp.and(given);
    }
    if context.path.is_first() {
        entry.set_path();
    }
    let number = issued.end.get() - issued.start.get();
    if entry.pending().count_issued(number, issued.borrowed) || issued.waited {
        entry.flush_stats();
    }
    Ok(made(context, &issued))
}

/// As [`take`]; returns the first ID, which is the session's last ID from now on.
fn take_first(
    entry: &'static SessionGenerator,
    given: Option<Stamp>,
    issue: impl FnOnce(&Postgres<Caller>) -> Result<IssuedRange, Error>,
) -> Result<SnowflakeId, Error> {
    take(entry, given, issue, |context, issued| {
        let id = context.compose(issued.start);
        entry.set_last_id(id);
        id
    })
}

/// What the values of these fields add to the IDs of a generator. Until the transaction
/// ends, only its own session can give the generator another label.
pub fn given(entry: &'static SessionGenerator, values: &[(String, i64)]) -> Result<Stamp, Error> {
    // The privilege is checked first.
    entry.context_or_fill(Purpose::Issue)?;
    let label = &entry.learn()?.described.label;
    let given = label.given(values);
    given.map_err(|error| error::given_fields(&entry.name(), label, error))
}

/// One ID, by the slow path; `given` is what the caller gives for its fields.
#[cold]
pub fn next(entry: &'static SessionGenerator, given: Option<Stamp>) -> Result<SnowflakeId, Error> {
    take_first(entry, given, |host| protocol::issue(host, 1))
}

/// Observes an ID that came from another server: see [`protocol::observe`].
pub fn observe(entry: &'static SessionGenerator, id: SnowflakeId) -> Result<(), Error> {
    // The privilege is checked first. Until the transaction ends, only its own session can
    // give the generator another label.
    let context = entry.context_or_fill(Purpose::Issue)?;
    let tick = match context.generator.layout.decode(id) {
        Ok(fields) => fields.tick,
        // The label knows the names of the fields.
        Err(_) => entry.learn()?.described.label.decode(id)?.fields.tick,
    };
    with_host(entry, false, |host| protocol::observe(host, id, tick))
}

/// Makes all further IDs start at an instant or later, and takes none. The caller has checked
/// its privilege, and has got a context for [`Purpose::Advance`]. Returns the
/// instant of the first such ID; `None` if the caller has to look again.
pub fn advance(
    entry: &'static SessionGenerator,
    to: UnixMillis,
) -> Result<Option<UnixMillis>, Error> {
    let host = host(entry, false, Purpose::Advance)?;
    protocol::demand(&host, Need::AdvanceTo(to))?;
    let context = entry.present_context(Purpose::Advance, shmem::shared()?);
    Ok(context.and_then(|context| {
        let (layout, live) = (context.generator.layout, context.slot.live());
        let tick = layout.tick_of(live.cursor().position());
        // If not, the server has had to wait, or has another worker ID by now.
        let is_done =
            live.bounds().generation() == context.generation && tick >= layout.tick_from(to);
        is_done.then(|| layout.instant_of(tick).max(to))
    }))
}
