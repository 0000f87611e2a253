//! The word: IDs are taken from it. Also how far they may be taken, and the one step
//! that takes them.
//!
//! # Shared fields
//!
//! | field | holds | written by | rule |
//! |---|---|---|---|
//! | `Word` | the next free position | every issuer, by compare-and-swap or addition; a reserver, by maximum, or by compare-and-swap to another clock | only grows, but for a change of clocks, see below; a position below it in its clock is taken, skipped for ever, or free only as far as the ledger of clock numbers knows |
//! | `Bounds::reserved` | no position at or past it is issued | one reserver at a time (it holds the reservation lock) | stored with Release after the mark is durable **and** after the word was moved; only grows, except to another clock, and to zero while nobody else can use the generator |
//! | `Bounds::spread` | in how many clocks a tick may be used, and could be after another reservation; both in one word | as `reserved` | lowered before the word leaves the tick it is at |
//! | `Bounds::early` | from here on somebody should reserve ahead of need | the reserver, then one elected issuer, by compare-and-swap | a hint: losing it costs a wait for the disk, never an ID |
//!
//! # Why no ID repeats while the server runs
//!
//! The word is moved by atomic read-modify-writes, each from the value that it
//! read, and always upward: two issuers cannot both move it from the same
//! value. No ordering weaker or stronger changes that.
//!
//! # Why it is an addition and not always a compare-and-swap
//!
//! Many cores that meet on one word fail each other's compare-and-swap: between
//! a core's load and its swap all others have had their turn, and IDs per second
//! fall as cores are added. An addition never fails. It is used where the word
//! is past the fresh tick already, the only case in which more than a few
//! callers meet, and only with [`ROOM`] positions left below the limits: what it
//! yields is checked again, and should more than that many IDs have been issued
//! in between, the position is skipped. Near a limit and for the first ID of a
//! tick it is a compare-and-swap, which skips nothing. So is a batch, which would
//! skip all of its positions; a small one adds after it has lost often.
//!
//! # Why no ID lies past a durable mark
//!
//! An issuer loads the bound (Acquire) before it moves the word. If it sees
//! the bound of a start or of a raised mark, then it also sees, by the
//! reserver's Release, that the word had been raised before; so a
//! compare-and-swap from an older word fails, and an addition yields a position
//! past the raise. If it sees an older bound, that one was durable too, and the
//! bound only grows.
//!
//! # Where clocks change
//!
//! The clock in force is the top of the word and of the bound. A switch, under the
//! reserver's lock, makes the mark durable, moves the word and publishes the bound, in
//! this order. Nobody issues while word and bound are of different clocks, and an
//! issuer that has loaded the word before fails to swap. A switch may make the word
//! smaller, because clocks go around. A swap that succeeds takes the next free position
//! of that moment, whatever the word was in between. Additions are only made where
//! clocks do not change.
//!
//! # Why the word is loaded before the clock is read
//!
//! The other way round, another core may issue between the two and the word
//! would be ahead of "now" by that much: a rollback that never happened.

use super::clock::{Clock, Reading, rollback};
use super::generator::Generator;
use super::id::{BootNanos, Nanos, Place, Position, Tick, UnixNanos};
use super::layout::Layout;
use super::sync::AtomicU64;
use super::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// What to do next. The caller acts; nothing has happened yet, except for `Issue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// These positions are the caller's, fewer than it asked for where there is no room
    /// for more.
    Issue(Issued),
    /// The word is as far ahead as it may be: wait until the generator's clock
    /// has moved on by this many ticks, then ask again.
    Wait { ticks: u64 },
    /// IDs up to this tick need a durable mark first. If it is the last tick, the
    /// layout's time has ended or the clock is wrong; the reserver can tell which.
    Reserve { through: Tick },
    /// The wall clock showed `wall`, which is behind an earlier reading by `by`.
    RolledBack { wall: UnixNanos, by: Nanos },
    /// The tick is exhausted in the clocks that it may use now; there are more.
    Widen,
}

/// The positions of a caller, from `start` up to and without `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
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
pub struct Spread {
    /// Now.
    pub together: u64,
    /// After another reservation.
    pub widest: u64,
}

impl Generator {
    /// Decides how `count` IDs can be issued: at most [`Self::max_chunk`].
    ///
    /// `now` is the tick of the generator's clock. It may lie outside the layout, so it
    /// is compared before it is shifted. If the policy does not watch the wall clock,
    /// positions have no clock number, and the step does without.
    #[inline]
    pub fn step<const WATCHES: bool>(
        &self,
        word: Position,
        reserved: Position,
        spread: Spread,
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
        let (clock, place, reserved_place) = if WATCHES {
            let clock = layout.clock_of(word);
            let same = clock == layout.clock_of(reserved);
            let bound = layout.place(reserved).get();
            (
                clock,
                layout.place(word).get(),
                if same { bound } else { 0 },
            )
        } else {
            (0, word.get(), reserved.get())
        };
        let fresh = self.fresh(Tick::new(now)).get();
        let mut start = place.max(fresh);
        // Where the borrow window ends: no place from there on is issued.
        let window = now + self.policy.max_borrow_ticks + 1;
        let mut limit = window.min(last.get()) << layout.within_bits();
        if WATCHES && self.shares_clocks() {
            // A chunk takes only as much of the tick as its clocks hold.
            let size = spread.together << layout.sequence_bits();
            let tick = layout.tick_in(Place::new(start));
            let mut full = layout.place_of(tick).get() + size;
            if start >= full {
                if spread.together < spread.widest {
                    return Step::Widen;
                }
                start = layout.place_of(tick.next()).get();
                full = start + size;
            }
            if start < limit {
                limit = full;
            }
        }
        if start >= limit {
            let tick = layout.tick_in(Place::new(start)).get();
            if tick >= last.get() {
                return Step::Reserve { through: last };
            }
            return Step::Wait {
                ticks: tick - now - self.policy.max_borrow_ticks,
            };
        }
        let end = limit.min(start + count);
        if end > reserved_place {
            return Step::Reserve {
                through: layout.tick_in(Place::new(end - 1)),
            };
        }
        Step::Issue(Issued {
            start: layout.at(clock, Place::new(start)),
            end: layout.at(clock, Place::new(end)),
            borrowed: self.borrowed(start, end, now),
            waited: false,
        })
    }

    /// Where issuing ends for now, at the bound or with the borrow window; `Some` only
    /// if the word is past the fresh tick, and far enough from that end to add to it.
    #[inline]
    fn room_past(&self, word: u64, reserved: u64, now: i64, count: u64) -> Option<u64> {
        let tick = now.cast_unsigned();
        // A clock before the epoch is a huge tick, and thus past the end as well.
        if tick >= self.layout.last_tick().get() || word < self.fresh(Tick::new(tick)).get() {
            return None;
        }
        let window = (tick + self.policy.max_borrow_ticks + 1) << self.layout.within_bits();
        let limit = window.min(reserved);
        (word + count + ROOM <= limit).then_some(limit)
    }

    /// How many of these places belong to ticks after `now`, which lies before the last
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
pub struct Word(AtomicU64);

/// How far IDs may be issued from a word.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Bounds {
    reserved: AtomicU64,
    early: AtomicU64,
    spread: AtomicU64,
}

/// Two lines of 64 bytes: processors fetch pairs. The models of the tests are
/// copied often and have no cores to keep apart.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(test), repr(align(128)))]
pub struct Line<T>(pub T);

/// All that issuers use without a lock.
#[derive(Debug)]
#[repr(C)]
pub struct Live {
    word: Line<Word>,
    limits: Line<(Bounds, Clock)>,
}

impl Live {
    pub fn new(reading: Reading) -> Self {
        let live = Self {
            word: Line(Word(AtomicU64::new(0))),
            limits: Line((Bounds::default(), Clock::new(reading))),
        };
        live.bounds().set_spread(Spread::ONE);
        live
    }

    pub const fn word(&self) -> &Word {
        &self.word.0
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

    /// Where the generator goes on: at its word or its clock, whichever is later.
    pub fn next(&self, generator: &Generator, reading: Reading) -> Position {
        let layout = generator.layout;
        let word = self.word().position();
        let now = layout.tick_within(self.now(generator, reading).millis());
        let place = layout.place(word).max(layout.place_of(now));
        layout.at(layout.clock_of(word), place)
    }

    /// Issues up to `count` consecutive positions, or says what must happen first.
    /// `WATCHES` is what the generator's policy says.
    ///
    /// Never waits, never allocates; retries only when another issuer was the
    /// first in a fresh tick, or took the last that there was room for.
    // Always: the path of each ID has a copy of its own, made for its constants.
    #[inline(always)]
    pub fn issue<const WATCHES: bool>(
        &self,
        generator: &Generator,
        count: u64,
        clocks: &impl Clocks,
    ) -> Step {
        let (word, bounds, clock) = (&self.word.0.0, self.bounds(), self.clock());
        let mut lost = 0;
        loop {
            // Acquire keeps the clock behind this load, see the head of the file.
            let at = word.load(Acquire);
            let mut seen = None;
            let now = if WATCHES {
                let latest = clock.latest();
                let wall = clocks.wall();
                if let Some(by) = rollback(latest, wall) {
                    return Step::RolledBack { wall, by };
                }
                let line = clock.line(|| clocks.boot());
                seen = Some((latest, wall, line));
                line.map_or(wall, |line| line.at.max(wall))
            } else {
                clock.now(clocks.boot())
            };
            let now = generator.layout.tick_number(now.millis());
            let reserved = bounds.reserved();
            if !WATCHES
                && (count == 1 || lost >= BATCH_ATTEMPTS && count <= ADDED_BATCH_MAX)
                && let Some(limit) = generator.room_past(at, reserved.get(), now, count)
            {
                // AcqRel as below; the bound was loaded before.
                let start = word.fetch_add(count, AcqRel);
                let end = start + count;
                if end <= limit {
                    return Step::Issue(Issued {
                        start: Position::new(start),
                        end: Position::new(end),
                        borrowed: generator.borrowed(start, end, now.cast_unsigned()),
                        waited: false,
                    });
                }
                continue;
            }
            let spread = if WATCHES {
                bounds.spread()
            } else {
                Spread::ONE
            };
            let step = generator.step::<WATCHES>(Position::new(at), reserved, spread, now, count);
            let Step::Issue(Issued { end, .. }) = step else {
                return step;
            };
            // Release: whatever continues from this word comes after us. The
            // failure order is Relaxed: the loop loads again.
            let swap = word.compare_exchange(at, end.get(), AcqRel, Relaxed);
            if swap.is_ok() {
                if let Some((latest, wall, line)) = seen {
                    clock.saw(latest, wall);
                    if let Some(line) = line {
                        clock.end_line(line, wall);
                    }
                }
                return step;
            }
            lost += 1;
            std::hint::spin_loop();
        }
    }

    /// Forgets where the generator is and what it knows of the clock. Only if nobody
    /// issues.
    pub fn reset(&self, reading: Reading) {
        self.bounds().clear();
        self.bounds().set_spread(Spread::ONE);
        self.word.0.0.store(0, Release);
        self.clock().reset(reading);
    }
}

impl Word {
    pub fn position(&self) -> Position {
        Position::new(self.0.load(Acquire))
    }

    /// Skips to `position`, if that is ahead: for generators with one clock number.
    pub fn raise(&self, position: Position) {
        self.0.fetch_max(position.get(), AcqRel);
    }

    /// Goes to a position: within the clock of the word, only forward. Returns where
    /// the word was.
    pub fn go_to(&self, to: Position, layout: Layout) -> Position {
        self.change(|word| {
            let stays = layout.clock_of(word) == layout.clock_of(to)
                && layout.place(word) >= layout.place(to);
            if stays { word } else { to }
        })
    }

    /// Leaves the further clocks of the word's tick: goes to the next number if they
    /// are unused, else to the next tick. In any case the word moves, so that an issuer
    /// that loaded it while they could be used fails to swap. Returns from which tick
    /// on they are unused.
    pub fn leave_clocks(&self, layout: Layout) -> Tick {
        let are_unused = |word| layout.within(word) <= 1 << layout.sequence_bits();
        let next_tick = |word| layout.tick_of(word).next();
        let before = self.change(|word| {
            if are_unused(word) {
                // The same in the last tick, after which there is none.
                return Position::new(word.get() + 1);
            }
            layout.at(layout.clock_of(word), layout.place_of(next_tick(word)))
        });
        if are_unused(before) {
            layout.tick_of(before)
        } else {
            next_tick(before)
        }
    }

    fn change(&self, to: impl Fn(Position) -> Position) -> Position {
        let to = |word| Some(to(Position::new(word)).get());
        // AcqRel as in issue(). The update is tried until it succeeds.
        let (Ok(before) | Err(before)) = self.0.fetch_update(AcqRel, Acquire, to);
        Position::new(before)
    }
}

impl Spread {
    /// A tick uses the clock in force only.
    pub const ONE: Self = Self {
        together: 1,
        widest: 1,
    };
}

impl Bounds {
    pub fn reserved(&self) -> Position {
        Position::new(self.reserved.load(Acquire))
    }

    /// Allows positions below `reserved`. The mark is durable and the word has
    /// been raised: this is the last step of a reservation.
    pub(super) fn publish(&self, reserved: Position, early: Position) {
        self.early.store(early.get(), Relaxed);
        self.reserved.store(reserved.get(), Release);
    }

    pub fn spread(&self) -> Spread {
        // Acquire: a reader that sees a word that has left its tick sees what was
        // lowered before.
        let spread = self.spread.load(Acquire);
        let (together, widest) = (spread & u64::from(u32::MAX), spread >> 32);
        Spread { together, widest }
    }

    /// Sets the spread: before the bound is published if it allows more, before the
    /// word leaves its tick if it allows less.
    pub(super) fn set_spread(&self, spread: Spread) {
        self.spread
            .store(spread.together | spread.widest << 32, Release);
    }

    /// Allows no ID until the next reservation.
    pub(super) fn clear(&self) {
        self.reserved.store(0, Release);
        self.early.store(0, Relaxed);
    }

    /// Whether the caller, which has just issued up to `end`, shall reserve ahead of
    /// need. True for one caller per reservation.
    #[must_use]
    #[inline]
    pub fn elect_early(&self, end: Position) -> bool {
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
#[path = "tests/copy_live.rs"]
mod copy;
