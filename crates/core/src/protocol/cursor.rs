//! The cursor: IDs are taken from it. Also how far they may be taken, and the one step
//! that takes them.
//!
//! # Shared fields
//!
//! | field | holds | written by | rule |
//! |---|---|---|---|
//! | `Cursor` | the next free position | every issuer, by compare-and-swap or addition; a session that observes an ID, by maximum; a reserver, or a process that closes the slot, by maximum, or by compare-and-swap to another clock; a new label, by a reset | only grows, but for a change of clocks, see below; a position below it in its clock is taken, skipped and never issued, or free only as far as the history of clock sequences knows |
//! | `Bounds::reserved` | no position at or past it is issued | one reserver at a time (it holds the reservation lock), by compare-and-swap from what it saw when it planned; the process that closes the slot, by a swap for [`CLOSED`] | stored with Release after the mark is durable **and** after the cursor was moved; only grows, except to another clock, and to zero when the mark may be gone |
//! | `Bounds::generation` | the tenure of the server for which `reserved` was published | as `reserved` | stored with Release after the cursor was moved, before `reserved` |
//! | `Bounds::clock_seq_span` | in how many clocks a tick may be used, and could be after another reservation; both in one cursor | as `reserved` | lowered before the cursor leaves the tick it is at |
//! | `Bounds::early` | from here on somebody should reserve ahead of need | the reserver, then one elected issuer, by compare-and-swap | a hint: losing it costs a wait for the disk, never an ID |
//!
//! # Why no ID repeats while the server runs
//!
//! The cursor is moved by atomic read-modify-writes, each from the value that it
//! read, and always upward: two issuers cannot both move it from the same
//! value. No ordering weaker or stronger changes that.
//!
//! # Why it is an addition and not always a compare-and-swap
//!
//! Many cores that meet on one cursor fail each other's compare-and-swap: between
//! a core's load and its swap all others have had their turn, and IDs per second
//! fall as cores are added. An addition never fails. It is used where the cursor
//! is past the fresh tick already, the only case in which more than a few
//! callers meet, and only with [`ROOM`] positions left below the limits. What it
//! yields is checked again: should more than that many IDs have been issued
//! in between, the position is skipped. Near a limit and for the first ID of a
//! tick it is a compare-and-swap, which skips nothing. So is a batch, which would
//! skip all of its positions; a small one adds after it has lost often.
//!
//! # Why no ID lies past a durable mark
//!
//! An issuer loads the bound (Acquire) before it moves the cursor. If it sees
//! the bound of a start or of a raised mark, then it also sees, by the
//! reserver's Release, that the cursor had been raised before. So a
//! compare-and-swap from an older cursor fails, and an addition yields a position
//! past the raise. If it sees an older bound, that one was durable too, and the
//! bound only grows.
//!
//! # Why no ID carries a worker ID with which it may not be issued
//!
//! A session composes IDs for its own generation, see [`crate::protocol::tenure`]. An issuer
//! loads the cursor, then the bound, then the slot's generation (each Acquire), and moves
//! the cursor only if that is its own. The reserver that brings a slot to generation 2 raises the
//! cursor to the mark, which is at or past every bound of generation 1; then stores the
//! generation; then publishes bound 2. So
//!
//! - An issuer of generation 1 that has loaded bound 2 finds generation 2, and stops.
//!   With an older bound it issues below that bound, which holds for generation 1.
//! - An issuer of generation 2 that finds it comes after the raise. If it has loaded an
//!   older bound, the cursor has reached that bound: a compare-and-swap from a lower cursor
//!   fails, and an addition ends past the bound.
//!
//! The generation is loaded last. Loaded before the cursor, it would not be enough: a
//! session that is stopped after it, while the slot comes to generation 2, would issue
//! below bound 2 for a worker ID that another server may have by then. A check after
//! the cursor has moved would come too late for a session that is stopped before it. The
//! old bound need not be taken away first: since the cursor has passed it, it allows
//! nothing.
//!
//! # How an ID of another server is observed
//!
//! A session that observes an ID wants all further IDs to sort after it, also after a crash. If
//! they do anyway, nothing is written: [`Live::exceeds`]. Otherwise the cursor is raised to the
//! tick after that of the ID, by a maximum: [`Live::raise_past`]. That is as if one call had
//! taken all positions up to there and used none of them, and needs the same bound. So what is
//! shown above holds as it stands, and the generation does not matter: no ID is composed, and
//! a slot that has come to another generation since has its cursor at that bound or past it.
//!
//! [`Live::exceeds`] loads the cursor, then the bound, then the generation, as an issuer does.
//! Further IDs of the caller's generation begin at that cursor, and are compared as a whole.
//! Those of a later generation begin at the bound or past it, and so does a start after a
//! crash: its tick is past that of the ID. Sessions of an earlier one find nothing below their
//! bound, since the slot has come to the caller's.
//!
//! Only generators whose IDs ascend observe ([`Generator::descends`]): their clock sequence
//! never changes, so that the greater position is the later one.
//!
//! # Where clocks change
//!
//! The clock in force is the top of the cursor and of the bound. A switch, under the
//! reserver's lock, makes the mark durable, moves the cursor and publishes the bound, in
//! this order. Nobody issues while cursor and bound are of different clocks, and an
//! issuer that has loaded the cursor before fails to swap. A switch may make the cursor
//! smaller, because clocks go around. A swap that succeeds takes the next free position
//! of that moment, whatever the cursor was in between. Additions are only made where
//! clocks do not change.
//!
//! # Why the cursor is loaded before the clock is read
//!
//! The other way round, another core may issue between the two and the cursor
//! would be ahead of "now" by that much: a rollback that never happened.

use crate::id::layout::Layout;
use crate::id::{
    BootNanos, Nanos, Offset, Position, SnowflakeId, Tick, UnixMillis, UnixNanos, WorkerId,
};
use crate::label::generator::Generator;
use crate::protocol::clock::{self, Clock, Reading, rollback};
use crate::protocol::tenure::Generation;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// What to do next. The caller acts; nothing has happened yet, except for `Issue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// These positions are the caller's, fewer than it asked for where there is no room
    /// for more.
    Issue(IssuedRange),
    /// The cursor is as far ahead as it may be: wait until the generator's clock
    /// has moved on by this many ticks, then ask again.
    Wait { ticks: u64 },
    /// IDs up to this tick need a durable mark first. If it is the last tick, the
    /// layout's time has ended or the clock is wrong; the reserver can tell which. Also
    /// if the slot and the caller are of different generations.
    Reserve { through: Tick },
    /// The wall clock showed `wall`, which is behind an earlier reading by `by`.
    RolledBack { wall: UnixNanos, by: Nanos },
    /// The tick is exhausted in the clocks that it may use now; there are more.
    Widen,
}

/// The positions of a caller, from `start` up to and without `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedRange {
    pub start: Position,
    pub end: Position,
    /// How many of these, the last ones, belong to ticks that the generator's clock has
    /// not reached.
    pub borrowed: u64,
    /// The call had to wait for them.
    pub waited: bool,
}

/// The clocks of the operating system.
pub trait Clocks {
    fn wall(&self) -> UnixNanos;
    fn boot(&self) -> BootNanos;
    /// Both clocks as of one moment.
    fn read(&self) -> Reading;
}

/// How many clocks, the one in force included, a tick may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSeqSpan {
    /// Now.
    pub now: u64,
    /// After another reservation.
    pub max: u64,
}

impl Generator {
    /// Decides how `count` IDs can be issued: at most [`Self::max_chunk`].
    ///
    /// `now` is the tick of the generator's clock. It may lie outside the layout, so it
    /// is compared before it is shifted. If the policy does not watch the wall clock,
    /// positions have no clock sequence, and the step does without.
    #[inline]
    pub fn step<const WATCHES: bool>(
        &self,
        cursor: Position,
        reserved: Position,
        clock_seq_span: ClockSeqSpan,
        now: i64,
        count: u64,
    ) -> Step {
        let layout = self.layout;
        let last = layout.last_tick();
        // The reservation reports a clock before the epoch.
        let now = if now < 0 { 0 } else { now.cast_unsigned() };
        if now >= last.get() {
            return Step::Reserve { through: last };
        }
        let (clock, offset, reserved_offset) = if WATCHES {
            let clock = layout.clock_of(cursor);
            let same = clock == layout.clock_of(reserved);
            let bound = layout.offset(reserved).get();
            (
                clock,
                layout.offset(cursor).get(),
                if same { bound } else { 0 },
            )
        } else {
            (0, cursor.get(), reserved.get())
        };
        let fresh = self.fresh(Tick::new(now)).get();
        let mut start = offset.max(fresh);
        // Where the borrow window ends: no offset from there on is issued.
        let window = now + self.policy.max_borrow_ticks + 1;
        let mut limit = window.min(last.get()) << layout.within_bits();
        if WATCHES && self.shares_clocks() {
            // A chunk takes only as much of the tick as its clocks hold.
            let size = clock_seq_span.now << layout.sequence_bits();
            let tick = layout.tick_in(Offset::new(start));
            let mut full = layout.offset_of(tick).get() + size;
            if start >= full {
                if clock_seq_span.now < clock_seq_span.max {
                    return Step::Widen;
                }
                start = layout.offset_of(tick.next()).get();
                full = start + size;
            }
            if start < limit {
                limit = full;
            }
        }
        if start >= limit {
            let tick = layout.tick_in(Offset::new(start)).get();
            if tick >= last.get() {
                return Step::Reserve { through: last };
            }
            return Step::Wait {
                ticks: tick - now - self.policy.max_borrow_ticks,
            };
        }
        let end = limit.min(start + count);
        if end > reserved_offset {
            return Step::Reserve {
                through: layout.tick_in(Offset::new(end - 1)),
            };
        }
        Step::Issue(IssuedRange {
            start: layout.at(clock, Offset::new(start)),
            end: layout.at(clock, Offset::new(end)),
            borrowed: self.borrowed(start, end, now),
            waited: false,
        })
    }

    /// The slot is of another generation: a session that reserves, or enters anew, brings both
    /// to the server's.
    #[cold]
    fn reserve_now(&self, now: i64) -> Step {
        let now = Tick::new(now.max(0).cast_unsigned());
        Step::Reserve {
            through: now.min(self.layout.last_tick()),
        }
    }

    /// Where issuing ends for now, at the bound or with the borrow window; `Some` only
    /// if the cursor is past the fresh tick, and far enough from that end to add to it.
    #[inline]
    fn room_past(&self, cursor: u64, reserved: u64, now: i64, count: u64) -> Option<u64> {
        let tick = now.cast_unsigned();
        // A clock before the epoch is a huge tick, and thus past the end as well.
        if tick >= self.layout.last_tick().get() || cursor < self.fresh(Tick::new(tick)).get() {
            return None;
        }
        let window = (tick + self.policy.max_borrow_ticks + 1) << self.layout.within_bits();
        let limit = window.min(reserved);
        (cursor + count + ROOM <= limit).then_some(limit)
    }

    /// How many of these offsets belong to ticks after `now`, which lies before the last
    /// tick.
    fn borrowed(&self, start: u64, end: u64, now: u64) -> u64 {
        let present = (now + 1) << self.layout.within_bits();
        end.saturating_sub(start.max(present))
    }
}

/// Positions that must be left below a limit for an addition: more than there are
/// callers under way at a time, so that hardly any are skipped. The model checker is to
/// see what happens when that is not enough.
const ROOM: u64 = if cfg!(loom) { 0 } else { 256 };

/// The largest batch that adds: several at a time skip only a fraction of a tick.
const ADDED_BATCH_MAX: u64 = 256;

/// How often a batch tries to compare and swap before it adds.
const BATCH_ATTEMPTS: u32 = if cfg!(loom) { 0 } else { 8 };

/// The next free position. Zero: nothing issued since the server started.
#[derive(Debug)]
#[repr(transparent)]
pub struct Cursor(AtomicU64);

/// The bound of a slot that was closed: below every bound that a reserver publishes,
/// since those begin a tick, and different from the zero of a slot that may start.
/// Position 0 lies below it, which the cursor leaves before.
pub const CLOSED: Position = Position::new(1);

/// How far IDs may be issued from a cursor.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Bounds {
    reserved: AtomicU64,
    generation: AtomicU64,
    early: AtomicU64,
    clock_seq_span: AtomicU64,
}

/// Two lines of 64 bytes: processors fetch pairs. The models of the tests are
/// copied often and have no cores to keep apart.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(test), repr(align(128)))]
pub struct CacheLine<T>(pub T);

/// A reading of the wall clock, the latest one of before, and the slewed line, if any.
#[derive(Clone, Copy)]
struct SeenClock {
    latest: UnixMillis,
    wall: UnixNanos,
    line: Option<clock::ReadingLine>,
}

/// All that issuers use without a lock.
#[derive(Debug)]
#[repr(C)]
pub struct Live {
    cursor: CacheLine<Cursor>,
    limits: CacheLine<(Bounds, Clock)>,
}

impl Live {
    pub fn new(reading: Reading) -> Self {
        let live = Self {
            cursor: CacheLine(Cursor(AtomicU64::new(0))),
            limits: CacheLine((Bounds::default(), Clock::new(reading))),
        };
        live.bounds().set_clock_seq_span(ClockSeqSpan::ONE);
        live
    }

    pub const fn cursor(&self) -> &Cursor {
        &self.cursor.0
    }

    pub const fn bounds(&self) -> &Bounds {
        &self.limits.0.0
    }

    pub const fn clock(&self) -> &Clock {
        &self.limits.0.1
    }

    pub fn now(&self, generator: &Generator, reading: Reading) -> UnixNanos {
        if generator.policy.on_rollback.watches() {
            self.clock().watched(reading.wall, || reading.boot)
        } else {
            self.clock().now(reading.boot)
        }
    }

    /// Where the generator continues: at its cursor or its clock, whichever is later.
    pub fn next(&self, generator: &Generator, reading: Reading) -> Position {
        let layout = generator.layout;
        let cursor = self.cursor().position();
        let now = layout.tick_within(self.now(generator, reading).millis());
        let offset = layout.offset(cursor).max(layout.offset_of(now));
        layout.at(layout.clock_of(cursor), offset)
    }

    /// Issues up to `count` consecutive positions, or says what must happen first.
    /// `WATCHES` is what the generator's policy says, `mine` the generation for which
    /// the caller composes IDs.
    ///
    /// Never waits, never allocates; retries only when another issuer was the
    /// first in a fresh tick, or took the last that there was room for.
    // Always: the path of each ID has a copy of its own, made for its constants.
    #[inline(always)]
    #[cfg_attr(
        loom,
        expect(
            clippy::absurd_extreme_comparisons,
            reason = "no attempt is made there"
        )
    )]
    pub fn issue<const WATCHES: bool>(
        &self,
        generator: &Generator,
        mine: Generation,
        count: u64,
        clocks: &impl Clocks,
    ) -> Step {
        let (cursor, bounds) = (&self.cursor.0.0, self.bounds());
        let mut lost = 0;
        loop {
            // Acquire keeps the clock behind this load, see the head of the file.
            let at = cursor.load(Acquire);
            let (now, seen) = match self.time::<WATCHES>(clocks) {
                Ok(time) => time,
                Err(rolled_back) => return rolled_back,
            };
            let now = generator.layout.tick_number(now.millis());
            let reserved = bounds.reserved();
            // After the bound, see the head of the file.
            if bounds.generation() != mine {
                return generator.reserve_now(now);
            }
            if !WATCHES
                && (count == 1 || lost >= BATCH_ATTEMPTS && count <= ADDED_BATCH_MAX)
                && let Some(limit) = generator.room_past(at, reserved.get(), now, count)
            {
                // AcqRel as below; the bound was loaded before.
                let start = cursor.fetch_add(count, AcqRel);
                let end = start + count;
                if end <= limit {
                    return Step::Issue(IssuedRange {
                        start: Position::new(start),
                        end: Position::new(end),
                        borrowed: generator.borrowed(start, end, now.cast_unsigned()),
                        waited: false,
                    });
                }
                continue;
            }
            let clock_seq_span = if WATCHES {
                bounds.clock_seq_span()
            } else {
                ClockSeqSpan::ONE
            };
            let step =
                generator.step::<WATCHES>(Position::new(at), reserved, clock_seq_span, now, count);
            let Step::Issue(IssuedRange { end, .. }) = step else {
                return step;
            };
            // Release: whatever continues from this cursor comes after us. The
            // failure order is Relaxed: the loop loads again.
            let swap = cursor.compare_exchange(at, end.get(), AcqRel, Relaxed);
            if swap.is_ok() {
                self.saw(seen);
                return step;
            }
            lost += 1;
            std::hint::spin_loop();
        }
    }

    /// Whether all further IDs sort after this one of `tick` as things are, also after a crash:
    /// see the head of the file. The generator's IDs ascend; `mine` as for [`Self::issue`].
    pub fn exceeds(
        &self,
        generator: &Generator,
        mine: Generation,
        (id, tick): (SnowflakeId, Tick),
        clocks: &impl Clocks,
    ) -> bool {
        let (layout, bounds) = (generator.layout, self.bounds());
        // A clock that is watched may be set back to what the cursor says.
        let next = if generator.policy.on_rollback.watches() {
            self.cursor().position()
        } else {
            self.next(generator, clocks.read())
        };
        let reserved = layout.tick_of(bounds.reserved());
        if bounds.generation() != mine || reserved <= tick {
            return false;
        }
        let at = layout.tick_of(next);
        let stamp = layout.stamp(mine.worker().unwrap_or(WorkerId::NONE));
        at > tick
            || at == tick
                && generator.ascends_in_tick()
                && stamp.is_ok_and(|stamp| layout.compose(next, stamp) > id)
    }

    /// Raises the cursor to the tick after this one, and returns where that is; or says what must
    /// happen first. [`Step::Wait`]: the tick is so much further ahead of the generator's clock
    /// than the generator may borrow. The generator's IDs ascend.
    ///
    /// Never waits, never allocates, never tries again.
    pub fn raise_past<const WATCHES: bool>(
        &self,
        generator: &Generator,
        tick: Tick,
        clocks: &impl Clocks,
    ) -> Result<Position, Step> {
        let (layout, next) = (generator.layout, tick.next());
        let (now, seen) = self.time::<WATCHES>(clocks)?;
        let now = layout.tick_within(now.millis());
        let farthest = now.get() + generator.policy.max_borrow_ticks;
        if tick.get() > farthest {
            let ticks = tick.get() - farthest;
            return Err(Step::Wait { ticks });
        }
        let last = layout.last_tick();
        if now >= last || next >= last {
            return Err(Step::Reserve { through: last });
        }
        // With the sequence number of a fresh tick: a server whose clock is behind would
        // otherwise give each reply the number 0.
        let to = generator.fresh(next);
        if to > layout.offset(self.bounds().reserved()) {
            let through = layout.tick_in(Offset::new(to.get() - 1));
            return Err(Step::Reserve { through });
        }
        let to = layout.at(0, to);
        self.cursor().raise(to);
        // The cursor may lead the clock from now on: a clock that is set back must be noticed.
        self.saw(seen);
        Ok(to)
    }

    /// The generator's clock; or that it was set back.
    // Always: a part of the path of each ID.
    #[inline(always)]
    fn time<const WATCHES: bool>(
        &self,
        clocks: &impl Clocks,
    ) -> Result<(UnixNanos, Option<SeenClock>), Step> {
        let clock = self.clock();
        if !WATCHES {
            return Ok((clock.now(clocks.boot()), None));
        }
        let latest = clock.latest();
        let wall = clocks.wall();
        if let Some(by) = rollback(latest, wall) {
            return Err(Step::RolledBack { wall, by });
        }
        let line = clock.line(|| clocks.boot());
        let now = line.map_or(wall, |line| line.at.max(wall));
        Ok((now, Some(SeenClock { latest, wall, line })))
    }

    /// The cursor was moved by this reading of the wall clock.
    #[inline(always)]
    fn saw(&self, seen: Option<SeenClock>) {
        if let Some(SeenClock { latest, wall, line }) = seen {
            self.clock().saw(latest, wall);
            if let Some(line) = line {
                self.clock().end_line(line, wall);
            }
        }
    }

    /// Forgets where the generator is and what it knows of the clock. Only if nobody
    /// issues.
    pub fn reset(&self, reading: Reading) {
        self.bounds().forget();
        self.bounds().set_clock_seq_span(ClockSeqSpan::ONE);
        self.cursor.0.0.store(0, Release);
        self.clock().reset(reading);
    }
}

impl Cursor {
    pub fn position(&self) -> Position {
        Position::new(self.0.load(Acquire))
    }

    /// Skips to `position`, if that is ahead: for generators with one clock sequence.
    pub fn raise(&self, position: Position) {
        self.0.fetch_max(position.get(), AcqRel);
    }

    /// Goes to a position: within the clock of the cursor, only forward. Returns where
    /// the cursor was.
    pub fn go_to(&self, to: Position, layout: Layout) -> Position {
        self.change(|cursor| {
            let stays = layout.clock_of(cursor) == layout.clock_of(to)
                && layout.offset(cursor) >= layout.offset(to);
            if stays { cursor } else { to }
        })
    }

    /// Leaves the further clocks of the cursor's tick: goes to the next number if they
    /// are unused, else to the next tick. In any case the cursor moves, so that an issuer
    /// that loaded it while they could be used fails to swap. Returns from which tick
    /// on they are unused.
    pub fn leave_clocks(&self, layout: Layout) -> Tick {
        let are_unused = |cursor| layout.within(cursor) <= 1 << layout.sequence_bits();
        let next_tick = |cursor| layout.tick_of(cursor).next();
        let before = self.change(|cursor| {
            if are_unused(cursor) {
                // So does the last tick, after which there is none.
                return Position::new(cursor.get() + 1);
            }
            layout.at(layout.clock_of(cursor), layout.offset_of(next_tick(cursor)))
        });
        if are_unused(before) {
            layout.tick_of(before)
        } else {
            next_tick(before)
        }
    }

    /// Moves the cursor by `to`. Returns where it was.
    pub(crate) fn change(&self, to: impl Fn(Position) -> Position) -> Position {
        let to = |cursor| Some(to(Position::new(cursor)).get());
        // AcqRel as in issue(). The update is tried until it succeeds.
        let (Ok(before) | Err(before)) = self.0.fetch_update(AcqRel, Acquire, to);
        Position::new(before)
    }
}

impl ClockSeqSpan {
    /// A tick uses the clock in force only.
    pub const ONE: Self = Self { now: 1, max: 1 };
}

impl Bounds {
    pub fn reserved(&self) -> Position {
        Position::new(self.reserved.load(Acquire))
    }

    /// The bound; zero if the slot has none, or was closed.
    pub fn in_force(&self) -> Position {
        let reserved = self.reserved();
        if reserved == CLOSED {
            Position::ZERO
        } else {
            reserved
        }
    }

    /// The tenure for which the bound was published.
    #[inline]
    pub fn generation(&self) -> Generation {
        Generation::from_bits(self.generation.load(Acquire))
    }

    /// Allows positions below `reserved` to sessions of this generation, if the bound
    /// still is `before`. The mark is durable and the cursor has been raised: this is the
    /// last step of a reservation. False if the slot was closed, or the bound voided,
    /// since it was planned.
    #[must_use]
    pub(crate) fn publish(
        &self,
        before: Position,
        generation: Generation,
        reserved: Position,
        early: Position,
    ) -> bool {
        self.generation.store(generation.bits(), Release);
        self.early.store(early.get(), Relaxed);
        // Acquire: the process that closes the slot sees what we did before, and we what the
        // last reserver did.
        let (before, reserved) = (before.get(), reserved.get());
        let swap = self
            .reserved
            .compare_exchange(before, reserved, AcqRel, Relaxed);
        swap.is_ok()
    }

    /// Opens a slot that was closed, for a server with a new tenure. Returns the bound.
    /// Holders of the reservation lock only. The process that closes the slot again takes this
    /// away: what a reserver publishes takes the place of zero, never of [`CLOSED`], or
    /// a reserver could not tell one closing from the next.
    pub(crate) fn open(&self) -> Position {
        let closed = CLOSED.get();
        let swap = self.reserved.compare_exchange(closed, 0, AcqRel, Acquire);
        Position::new(swap.map_or_else(|bound| bound, |_| 0))
    }

    /// Allows no ID until there is a new tenure. Returns the bound as it was.
    pub(crate) fn close(&self) -> Position {
        Position::new(self.reserved.swap(CLOSED.get(), AcqRel))
    }

    pub fn clock_seq_span(&self) -> ClockSeqSpan {
        // Acquire: a reader that sees a cursor that has left its tick sees what was
        // lowered before.
        let clock_seq_span = self.clock_seq_span.load(Acquire);
        ClockSeqSpan {
            now: clock_seq_span & u64::from(u32::MAX),
            max: clock_seq_span >> 32,
        }
    }

    /// Sets the span: before the bound is published if it allows more, before the
    /// cursor leaves its tick if it allows less.
    pub(crate) fn set_clock_seq_span(&self, clock_seq_span: ClockSeqSpan) {
        self.clock_seq_span
            .store(clock_seq_span.now | clock_seq_span.max << 32, Release);
    }

    /// Allows no ID until the next reservation. A slot that was closed stays closed:
    /// a reserver that saw zero before could publish.
    pub(crate) fn clear(&self) {
        // A read-modify-write, so that the process that closes the slot next sees what the last
        // reserver did.
        let open = |reserved| (reserved != CLOSED.get()).then_some(0);
        let _ = self.reserved.fetch_update(AcqRel, Relaxed, open);
        self.early.store(0, Relaxed);
    }

    /// As new. Only if nobody issues or reserves.
    fn forget(&self) {
        self.reserved.store(0, Release);
        self.early.store(0, Relaxed);
        self.generation.store(0, Release);
    }

    /// Whether the caller, which has just issued up to `end`, shall reserve ahead of
    /// need. True for one caller per reservation.
    #[must_use]
    #[inline]
    pub fn claim_prefetch(&self, end: Position) -> bool {
        // Relaxed: the hint carries no data; the reservation itself takes a lock.
        let early = self.early.load(Relaxed);
        end.get() > early && self.claim(early)
    }

    /// Whether a caller was elected and has not reserved yet.
    pub fn early_is_claimed(&self) -> bool {
        self.early.load(Relaxed) == u64::MAX
    }

    #[cold]
    fn claim(&self, early: u64) -> bool {
        let field = &self.early;
        let swap = field.compare_exchange(early, u64::MAX, Relaxed, Relaxed);
        swap.is_ok()
    }
}

#[cfg(test)]
#[path = "../tests/copy_live.rs"]
mod copy;
