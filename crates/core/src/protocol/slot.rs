//! All shared state of a generator, and who may change it.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | `live` | see [`crate::protocol::cursor`] and [`crate::protocol::clock`] |
//! | `stats` | see [`crate::protocol::stats`]; written by anyone |
//! | `horizon` | see [`crate::horizon`]; written by anyone |
//! | `key` | the generator that the slot belongs to; 0 if none. Stored with Release by the process that evicts, after the slot was emptied |
//! | `pins` | how many transactions use the slot; [`EVICTING`] is added while somebody empties it. Raised (Acquire) before `key` is looked at, lowered with Release |
//! | `file`, `epoch`, `scale` | which file holds the mark of the bound, and what the positions of the cursor mean. Written under the reservation lock, after what they vouch for (Release); read by everybody (Acquire) before an ID is taken, so that nobody sees a new scale with an old cursor |
//! | `window` | what the last reservation took (milliseconds), 0 at a start; under the reservation lock |
//! | `seen` | both clocks when this generator last read them, for its statistics; under the reservation lock |
//! | `highest` | the latest mark that was written since the generator has this slot (Unix milliseconds); raised under the reservation lock; forgotten by the process that has made the sequence, as that is undone, before it gives its locks back ([`Slot::forget_mark`]). While it is there, it is the mark, whatever the disk says |
//! | `undone` | a mark up to `highest` was rolled back; until the next reservation. Stored at the end of the transaction, before its pin is given back |
//! | `gap_at`, `put_back_at`, `end_is_near` | when a gap was left last, and when a mark was written back that others had changed (Unix milliseconds, 0: never), and whether the end of the layout's time has been noted; stored under the reservation lock, read by views without |
//! | `clock_history` | which clocks have been used, see [`crate::protocol::clock_seq`]; under the reservation lock |
//! | `refused_at` | since when IDs are refused (Unix milliseconds, 0: they are not); set by compare-and-swap from 0 and cleared by anyone; the winner notes the change |
//! | `refused_by_rollback` | IDs are refused because the clock was set back, so that the next ID ends the refusal; stored after `refused_at`, a hint |
//! | `refused_lead` | the lead over the wall clock that was refused last (milliseconds); a plain store by the session that refuses |
//! | `forgiven_lead` | a lead that is allowed beyond the policy's limit, because a superuser has accepted it or because a start after a failover has left it (milliseconds); each writer stores plainly: at worst an acceptance is lost and asked for again |
//! | `least` | for a generator that rotates its worker ID: no rotation starts before this (Unix milliseconds; 0: anywhere), as somebody has advanced it, or the server's worker IDs come from elsewhere since; raised under the reservation lock, or by the keeper |
//! | `reached` | up to where words have come that were reset since (Unix milliseconds); raised by the process that resets the cursor, see [`Slot::furthest`]. Outlives evictions |
//!
//! What is "under the reservation lock" is Relaxed: the lock orders it. Such methods
//! take a [`Reserving`], which only the holder of that lock has.
//!
//! # Why no slot is used by two generators
//!
//! A transaction that pins adds 1 and looks at `key` and [`EVICTING`] afterwards; if it
//! finds another key or an eviction, it takes the 1 back and has no pin. An evictor
//! swaps `pins` from 0 to [`EVICTING`]: so there is no pin, and every later one sees
//! the eviction. The evictor empties the slot, stores the new key, and at last turns
//! its [`EVICTING`] into a pin of its own. A transaction that pins after that sees the
//! new key, by the Release of that last step.
//!
//! # Which slot may be emptied
//!
//! An empty slot starts at its mark or at the clock, whichever is later. So a slot may
//! be emptied once the clock has passed all of its IDs: what was reserved on top is
//! lost, and a mark that somebody has lowered or rolled back does no harm. A generator
//! that is ahead of the clock keeps its slot. So does one that changes clocks: for
//! earlier ticks, a lowered mark would call clocks free that are not, and a rollback
//! would continue there. A generator that rotates its worker ID keeps its slot, too: its mark
//! stays where its latest rotation has reached.

use crate::horizon::Horizon;
use crate::id::{BootNanos, Millis, Position, UnixMillis, UnixNanos};
use crate::label::generator::Generator;
use crate::protocol::clock::{Clock, Reading};
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::{CLOSED, CacheLine, Live};
use crate::protocol::plan::Plan;
use crate::protocol::stats::Stats;
use crate::protocol::tenure::Generation;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};

/// Proof that the caller holds the reservation lock of the slot's generator.
#[derive(Debug)]
pub struct Reserving(());

impl Reserving {
    /// For the one place of each host that takes the lock.
    pub const fn the_lock_is_held() -> Self {
        Self(())
    }
}

#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    live: Live,
    rest: SlotFields,
    stats: CacheLine<(Stats, HighWater, Least)>,
    horizon: CacheLine<(Horizon, PutBack)>,
}

/// The latest instant that was left behind by a reset; zero: none.
#[derive(Debug, Default)]
#[repr(transparent)]
struct HighWater(AtomicI64);

/// When a mark was written back that others had changed; zero: never.
#[derive(Debug, Default)]
#[repr(transparent)]
struct PutBack(AtomicI64);

/// Before this, no rotation starts; zero: anywhere.
#[derive(Debug, Default)]
#[repr(transparent)]
struct Least(AtomicI64);

#[derive(Debug, Default)]
#[repr(C)]
struct SlotFields {
    key: AtomicU64,
    pins: AtomicU32,
    file: AtomicU32,
    epoch: AtomicI64,
    scale: AtomicU64,
    window: AtomicI64,
    seen: [AtomicI64; 2],
    highest: AtomicI64,
    gap_at: AtomicI64,
    refused_at: AtomicI64,
    refused_lead: AtomicI64,
    forgiven_lead: AtomicI64,
    clock_history: [AtomicU64; 3],
    undone: AtomicBool,
    end_is_near: AtomicBool,
    refused_by_rollback: AtomicBool,
}

/// In `pins`: somebody empties the slot. The value is above any number of transactions.
const EVICTING: u32 = 1 << 30;

/// What positions mean: two layouts with the same meaning can share a cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scale {
    epoch: i64,
    /// From bit 0: bits below the tick, bits of the clock, bits of the time if
    /// clocks or rotations change (they are above it then), which of the policies that make a
    /// difference; from bit 32 the tick in milliseconds. 0 only where a slot has not
    /// been used, which is the default.
    packed: u64,
}

impl Scale {
    pub fn of_generator(generator: &Generator) -> Self {
        let (layout, policy) = (generator.layout, generator.policy);
        let flags = u64::from(generator.rotates_worker()) << 3
            | u64::from(policy.on_rollback.watches()) << 2
            | u64::from(generator.changes_clocks()) << 1
            | u64::from(generator.is_random());
        let time = if generator.changes_clocks() || generator.rotates_worker() {
            layout.last_tick().get().count_ones()
        } else {
            0
        };
        Self {
            epoch: layout.epoch().get(),
            packed: u64::from(layout.within_bits())
                | u64::from(layout.clock_bits()) << 8
                | u64::from(time) << 16
                | flags << 24
                | layout.tick().get().unsigned_abs() << 32,
        }
    }

    fn instant_of(self, tick: u64) -> UnixMillis {
        let lasts = Millis::new((self.packed >> 32).cast_signed());
        UnixMillis::new(self.epoch).plus(lasts.times(tick.cast_signed()))
    }

    /// The position at which the first tick from an instant on begins, in the clock of
    /// `cursor`.
    fn place_from(self, at: UnixMillis, cursor: Position) -> Position {
        let (within, time) = (self.packed & 0xff, self.packed >> 16 & 0xff);
        let lasts = (self.packed >> 32).cast_signed().max(1);
        let since = at.since(UnixMillis::new(self.epoch)).get().max(0);
        let tick = since.saturating_add(lasts - 1).div_euclid(lasts);
        let (tick, clock) = match time {
            0 => (tick.cast_unsigned(), 0),
            time => {
                let last = (1 << time) - 1;
                let above = within + time;
                (
                    tick.cast_unsigned().min(last),
                    cursor.get() >> above << above,
                )
            }
        };
        Position::new(clock | tick << within)
    }

    /// Whether generators change clocks, so that an earlier position may be a later
    /// tick.
    fn changes_clocks(self) -> bool {
        self.packed >> 25 & 1 != 0
    }

    /// Whether generators rotate their worker IDs, so that an earlier position may be a later
    /// tick, too.
    fn rotates_worker(self) -> bool {
        self.packed >> 27 & 1 != 0
    }

    fn tick_of(self, position: Position) -> u64 {
        let tick = position.get() >> (self.packed & 0xff);
        match self.packed >> 16 & 0xff {
            0 => tick,
            time => tick & ((1 << time) - 1),
        }
    }
}

fn instant(at: i64) -> Option<UnixMillis> {
    (at != 0).then_some(UnixMillis::new(at))
}

impl Slot {
    /// A slot without a generator. `now` is a `timestamptz`, for the statistics.
    pub fn new(reading: Reading, now: i64) -> Self {
        Self {
            live: Live::new(reading),
            rest: SlotFields {
                seen: [reading.boot.get(), reading.wall.get()].map(AtomicI64::new),
                clock_history: ClockSeqHistory::FRESH.parts().map(AtomicU64::new),
                ..SlotFields::default()
            },
            stats: CacheLine((Stats::new(now), HighWater::default(), Least::default())),
            horizon: CacheLine((Horizon::default(), PutBack::default())),
        }
    }

    pub const fn live(&self) -> &Live {
        &self.live
    }

    pub const fn clock(&self) -> &Clock {
        self.live.clock()
    }

    pub const fn stats(&self) -> &Stats {
        &self.stats.0.0
    }

    pub const fn horizon(&self) -> &Horizon {
        &self.horizon.0.0
    }

    // Which generator the slot belongs to.

    pub fn key(&self) -> u64 {
        self.rest.key.load(Acquire)
    }

    /// Keeps the slot for this generator until [`Self::unpin`], if the slot belongs to
    /// it.
    #[must_use]
    pub fn pin(&self, key: u64) -> bool {
        let rest = &self.rest;
        if rest.key.load(Relaxed) != key {
            return false;
        }
        // Acquire: what an evictor did before is seen, and the key is looked at
        // afterwards.
        let before = rest.pins.fetch_add(1, Acquire);
        if before < EVICTING && rest.key.load(Relaxed) == key {
            return true;
        }
        rest.pins.fetch_sub(1, Relaxed);
        false
    }

    pub fn unpin(&self) {
        // Release: what we did to the slot is seen by the next evictor.
        self.rest.pins.fetch_sub(1, Release);
    }

    /// Empties the slot for another generator, and pins it for that one; false if the
    /// slot is in use, or ahead of the clock. One caller at a time. `reading` is one to
    /// start from, `now` as for [`Self::new`].
    #[must_use]
    pub fn evict(&self, key: u64, reading: Reading, now: i64) -> bool {
        self.hand_on(key, 1, |old| {
            let may = old == 0 || self.is_passed_by(reading.wall.millis());
            if may {
                self.empty(reading, now);
            }
            may
        })
    }

    /// Gives the slot to `key` with this many pins, if nobody uses it and `may` allows
    /// that for the present key. A process that sees the new key sees what `may` did.
    fn hand_on(&self, key: u64, pins: u32, may: impl FnOnce(u64) -> bool) -> bool {
        let rest = &self.rest;
        // Acquire pairs with unpin().
        let claim = rest.pins.compare_exchange(0, EVICTING, Acquire, Relaxed);
        if claim.is_err() {
            return false;
        }
        let may = may(rest.key.load(Relaxed));
        if may {
            rest.key.store(key, Release);
        }
        // Release: a transaction that pins from now on sees the key and all the rest.
        let pins = if may { pins } else { 0 };
        rest.pins.fetch_sub(EVICTING - pins, Release);
        may
    }

    /// Gives up the slot of a generator that will not be used again. Nobody uses the slot.
    pub fn abandon(&self) {
        self.rest.key.store(0, Release);
    }

    /// As [`Self::abandon`], if the slot still is the generator's and is not in use.
    #[must_use]
    pub fn abandon_unpinned(&self, key: u64) -> bool {
        self.hand_on(0, 0, |its| its == key)
    }

    /// Whether all IDs lie before an instant, and nothing else need be known of them.
    fn is_passed_by(&self, now: UnixMillis) -> bool {
        let scale = self.scale();
        let cursor = self.live.cursor().position();
        if (scale.changes_clocks() || scale.rotates_worker()) && self.highest().is_some() {
            return false;
        }
        if cursor == Position::ZERO || scale == Scale::default() {
            // What was issued before the cursor was reset lies before the mark.
            return self.highest() <= Some(now);
        }
        let tick = scale.tick_of(cursor) + 1;
        scale.instant_of(tick) <= now
    }

    fn empty(&self, reading: Reading, now: i64) {
        let rest = &self.rest;
        // Nobody else can use the slot, which does as well as the lock.
        let token = &Reserving::the_lock_is_held();
        self.reset_cursor(reading);
        self.set_clock_history(token, ClockSeqHistory::FRESH);
        self.set_seen(token, reading);
        self.store_scale(Scale::default());
        for field in [
            &rest.window,
            &rest.highest,
            &rest.gap_at,
            &self.horizon.0.1.0,
            &rest.refused_at,
            &rest.refused_lead,
            &rest.forgiven_lead,
            &self.stats.0.2.0,
        ] {
            field.store(0, Relaxed);
        }
        for field in [&rest.undone, &rest.end_is_near, &rest.refused_by_rollback] {
            field.store(false, Relaxed);
        }
        rest.file.store(0, Relaxed);
        self.stats().reset(now);
        self.stats().forget_last_tick();
        self.horizon().reset();
    }

    // What the positions of the slot mean.

    /// Whether bound and cursor belong to this file and this scale: if not, the generator
    /// has to [`Self::settle`].
    pub fn is_settled(&self, file: u32, scale: Scale) -> bool {
        self.rest.file.load(Acquire) == file && self.scale() == scale
    }

    /// The bound belongs to another file than the sequence has now: the sequence was
    /// rewritten, or the slot is new. Forgets the bound, once. If positions have
    /// another meaning by now, also forgets the cursor: the generator continues from
    /// its mark. `reading` is one to start from.
    pub fn settle(&self, _: &Reserving, file: u32, scale: Scale, reading: Reading) {
        if self.is_settled(file, scale) {
            return;
        }
        self.unsettle();
        if self.scale() != scale {
            self.reset_cursor(reading);
            // The generator may be another one with the same OID, which starts anywhere.
            self.horizon().reset();
            self.stats().forget_last_tick();
            self.store_scale(scale);
        }
        self.rest.file.store(file, Release);
    }

    /// The bound is void, the cursor stays: the mark that allowed the bound may be gone.
    /// Others may be issuing where the rewrite itself was undone by a savepoint; they
    /// reserve anew, which is safe and costs a start at the mark.
    pub fn unsettle(&self) {
        self.live.bounds().clear();
        self.rest.file.store(0, Release);
        self.rest.window.store(0, Relaxed);
    }

    /// The sequence was made by a transaction, or a part of it, that does not commit now, and the
    /// generator of before has its key again: [`Self::highest`] may be a mark of the file that
    /// goes, so the one on disk counts, as at a start. The cursor stays: no later ID repeats.
    /// Nobody else uses the generator until the transaction gives its locks back.
    pub fn forget_mark(&self) {
        self.unsettle();
        self.rest.highest.store(0, Relaxed);
        self.rest.undone.store(false, Relaxed);
    }

    /// The transaction that has rewritten the sequence, or a part of it, ends.
    /// `kept`: it was committed.
    pub fn end_rewrite(&self, kept: bool) {
        self.unsettle();
        if !kept {
            self.rest.undone.store(true, Relaxed);
        }
    }

    pub fn scale(&self) -> Scale {
        // The scale is stored last, see store_scale().
        let packed = self.rest.scale.load(Acquire);
        let epoch = self.rest.epoch.load(Relaxed);
        Scale { epoch, packed }
    }

    fn store_scale(&self, scale: Scale) {
        self.rest.epoch.store(scale.epoch, Relaxed);
        self.rest.scale.store(scale.packed, Release);
    }

    // How far the slot has come.

    /// No ID of a tick that begins at or after this instant was issued from this slot
    /// under the present worker ID of the server; `None` if none was issued at all. Of a
    /// generator that rotates its worker ID, this is the present rotation: [`crate::protocol::rotation`]
    /// says why no other one has IDs of that worker ID past it. Of all other generators, it holds
    /// for each worker ID that the server has had.
    #[must_use]
    pub fn furthest(&self) -> Option<UnixMillis> {
        let present = self.furthest_at(self.live.cursor().position());
        present.max(self.reached_before())
    }

    /// As [`Self::furthest`], for renewals of this tenure. A generator that rotates its worker ID,
    /// and has not come to the tenure, has issued nothing under it: its cursor may be far ahead,
    /// in a rotation of before.
    #[must_use]
    pub fn furthest_under(&self, tenure: Generation) -> Option<UnixMillis> {
        let has_come = self.live.bounds().generation() == tenure;
        match self.scale().rotates_worker() && !has_come {
            true => self.reached_before(),
            false => self.furthest(),
        }
    }

    fn reached_before(&self) -> Option<UnixMillis> {
        instant(self.stats.0.1.0.load(Relaxed))
    }

    /// Where the IDs end that were issued since the cursor was reset last.
    fn furthest_at(&self, cursor: Position) -> Option<UnixMillis> {
        let scale = self.scale();
        let last = cursor.get().checked_sub(1)?;
        if scale == Scale::default() {
            return None;
        }
        if scale.changes_clocks() {
            return self.highest();
        }
        let end = scale.tick_of(Position::new(last)) + 1;
        Some(scale.instant_of(end))
    }

    /// Forgets where the cursor is, but for [`Self::furthest`].
    fn reset_cursor(&self, reading: Reading) {
        if let Some(furthest) = self.furthest() {
            self.stats.0.1.0.fetch_max(furthest.get(), Relaxed);
        }
        self.live.reset(reading);
    }

    /// Allows no ID until there is a new tenure, and returns [`Self::furthest`], which
    /// does not change again under the old tenure. The server no longer has a right to issue; see
    /// [`crate::protocol::tenure`] for why that is enough.
    #[must_use]
    pub fn close(&self) -> Option<UnixMillis> {
        let cursor = self.live.cursor();
        // Position 0 lies below the bound of a closed slot.
        cursor.raise(CLOSED);
        let bound = self.live.bounds().close();
        // The mark: an issuer may have loaded an older bound than the one that was taken
        // away, if that one had been voided. A read-modify-write reads the latest value.
        let mark = UnixMillis::new(self.rest.highest.fetch_max(0, AcqRel));
        let scale = self.scale();
        let before = cursor.change(|cursor| {
            let passed = scale.place_from(mark, cursor).get().max(bound.get());
            Position::new(cursor.get().max(passed))
        });
        // Loaded after the scale: what a new label has left behind is stored before it.
        self.furthest_at(before).max(self.reached_before())
    }

    // What reservers know.

    /// Which clocks have been used. Under the reservation lock, or where nobody
    /// reserves.
    pub fn clock_history(&self) -> ClockSeqHistory {
        ClockSeqHistory::from_parts(
            self.rest
                .clock_history
                .each_ref()
                .map(|part| part.load(Relaxed)),
        )
    }

    pub(crate) fn set_clock_history(&self, _: &Reserving, clock_history: ClockSeqHistory) {
        for (part, value) in self.rest.clock_history.iter().zip(clock_history.parts()) {
            part.store(value, Relaxed);
        }
    }

    pub(crate) fn seen(&self, _: &Reserving) -> Reading {
        let [boot, wall] = &self.rest.seen;
        Reading {
            boot: BootNanos::new(boot.load(Relaxed)),
            wall: UnixNanos::new(wall.load(Relaxed)),
        }
    }

    pub(crate) fn set_seen(&self, _: &Reserving, reading: Reading) {
        let [boot, wall] = &self.rest.seen;
        boot.store(reading.boot.get(), Relaxed);
        wall.store(reading.wall.get(), Relaxed);
    }

    pub(crate) fn window(&self) -> Millis {
        Millis::new(self.rest.window.load(Relaxed))
    }

    /// Stores what a reservation took, left out and forgave. Its mark is durable.
    pub(crate) fn set_taken(&self, _: &Reserving, plan: &Plan) {
        let rest = &self.rest;
        // Not stored before the mark that leaves the gap is durable.
        if plan.leaves_gap {
            rest.gap_at.store(plan.reading.wall.millis().get(), Relaxed);
        }
        rest.window.store(plan.window.get(), Relaxed);
        rest.forgiven_lead.store(plan.forgiven.get(), Relaxed);
        rest.refused_lead.store(0, Relaxed);
        if let Some(least) = plan.least {
            self.stats.0.2.0.fetch_max(least.get(), Relaxed);
        }
    }

    /// For a generator that rotates its worker ID: no rotation starts before this.
    pub(crate) fn least(&self) -> Option<UnixMillis> {
        instant(self.stats.0.2.0.load(Relaxed))
    }

    /// The server gets its worker IDs from elsewhere from now on: no rotation starts before the
    /// marks that the generator has written. Called before the server has the first of these
    /// worker IDs, which a reserver learns under the clock lock.
    pub fn start_rotations_at_mark(&self) {
        if let Some(mark) = self.highest() {
            self.stats.0.2.0.fetch_max(mark.get(), Relaxed);
        }
    }

    pub fn highest(&self) -> Option<UnixMillis> {
        instant(self.rest.highest.load(Relaxed))
    }

    /// Stores a mark that is durable, in the file that the sequence has now.
    pub(crate) fn set_highest(&self, _: &Reserving, mark: UnixMillis) {
        self.rest.highest.fetch_max(mark.get(), Relaxed);
        self.rest.undone.store(false, Relaxed);
    }

    pub fn is_undone(&self) -> bool {
        self.rest.undone.load(Relaxed)
    }

    pub fn gap_at(&self) -> Option<UnixMillis> {
        instant(self.rest.gap_at.load(Relaxed))
    }

    /// The mark on disk, which others have changed, is about to be written back; true the first
    /// time.
    pub(crate) fn put_back(&self, _: &Reserving, at: UnixMillis) -> bool {
        self.horizon.0.1.0.swap(at.get(), Relaxed) == 0
    }

    pub fn put_back_at(&self) -> Option<UnixMillis> {
        instant(self.horizon.0.1.0.load(Relaxed))
    }

    /// Whether the near end of the layout's time has been noted; from now on it has.
    pub(crate) fn end_was_near(&self, _: &Reserving) -> bool {
        self.rest.end_is_near.swap(true, Relaxed)
    }

    // What is refused, and what is forgiven.

    pub fn refused_at(&self) -> Option<UnixMillis> {
        instant(self.rest.refused_at.load(Relaxed))
    }

    /// Notes that IDs are refused; true if they were not before. `by_rollback`: because
    /// the clock was set back, so that the next ID ends the refusal.
    pub(crate) fn begin_refusal(&self, at: UnixMillis, by_rollback: bool) -> bool {
        let rest = &self.rest;
        let since = &rest.refused_at;
        let swap = since.compare_exchange(0, at.get(), Relaxed, Relaxed);
        if swap.is_ok() {
            rest.refused_by_rollback.store(by_rollback, Relaxed);
        }
        swap.is_ok()
    }

    /// Ends a refusal. Returns its beginning to the one caller that notes the end.
    pub(crate) fn end_refusal(&self) -> Option<UnixMillis> {
        self.rest.refused_by_rollback.store(false, Relaxed);
        instant(self.rest.refused_at.swap(0, Relaxed))
    }

    pub fn is_refused_by_rollback(&self) -> bool {
        self.rest.refused_by_rollback.load(Relaxed)
    }

    pub(crate) fn forgiven_lead(&self) -> Millis {
        Millis::new(self.rest.forgiven_lead.load(Relaxed))
    }

    /// Stores the lead that was refused: no other can be accepted.
    pub(crate) fn set_refused_lead(&self, lead: Millis) {
        self.rest.refused_lead.store(lead.get(), Relaxed);
    }

    /// A superuser accepts the wall clock: the lead that was refused last is allowed,
    /// and returned. A generator that was refused because it watches the wall clock
    /// continues from where it is; one that was not refused may have a clock to change
    /// to. The slot stays the generator's during this call.
    pub fn accept(&self, reading: Reading) -> Millis {
        let rest = &self.rest;
        let refused = rest.refused_lead.load(Relaxed).max(0);
        if refused > 0 {
            rest.forgiven_lead.store(refused, Relaxed);
        }
        let clock = self.clock();
        if self.is_refused_by_rollback() && clock.rollback(reading.wall).is_some() {
            let scale = self.scale();
            let at = scale.instant_of(scale.tick_of(self.live.cursor().position()));
            clock.lead_to(reading.boot, at.nanos());
            clock.believe(reading.wall);
        }
        Millis::new(refused)
    }
}

/// Closes all slots of a server, whose tenure was closed before. Returns where the IDs of its
/// worker ID end: the latest end of all generators.
pub fn close_all<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> Option<UnixMillis> {
    slots.into_iter().filter_map(Slot::close).max()
}

#[cfg(test)]
#[path = "../tests/copy_slot.rs"]
mod copy;
