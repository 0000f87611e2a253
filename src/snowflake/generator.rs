//! The generator: one word, and what may be done to it.
//!
//! # Shared fields
//!
//! | field | holds | written by | rule |
//! |---|---|---|---|
//! | `Word` | the next free position | every issuer, by compare-and-swap or addition; a reserver, by maximum, or by compare-and-swap to another clock | only grows, but for a change of clocks, see below; a position below it in its clock is taken, skipped for ever, or free only as far as the account of clocks knows |
//! | `Bounds::reserved` | no position at or past it is issued | one reserver at a time (it holds a lock) | stored with Release after the mark is durable **and** after the word was moved; only grows, except to another clock, and to zero while nobody else can use the generator |
//! | `Bounds::clocks` | in how many clocks a tick may be used, and could be after another reservation; both in one word | as `reserved`; lowered before the word leaves the tick it is at |
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
//! reserver's lock, makes the mark durable, moves the word and publishes the bound,
//! in this order. Nobody issues while the two are of different clocks, and whoever
//! has loaded the word before fails to swap. A word may grow smaller by that:
//! clocks go around. A swap that succeeds takes what is the next free position at
//! that moment, whatever the word was in between. Additions are only made where
//! clocks do not change.
//!
//! # Why the word is loaded before the clock is read
//!
//! The other way round, another core may issue between the two and the word
//! would be ahead of "now" by that much: a rollback that never happened.

use super::id::{Position, Tick};
use super::layout::Layout;
use super::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use super::sync::{AtomicU64, Ordering};

/// What a generator is made of: all that is needed to decide a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    /// Bits, epoch and tick.
    pub layout: Layout,
    /// How far it may go.
    pub policy: Policy,
}

/// What to do next. The caller acts; nothing has happened yet unless `Issue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The positions from `start` up to and without `end` are the caller's.
    /// The last `borrowed` of them are of ticks that the generator's clock has
    /// not reached yet.
    Issue {
        start: Position,
        end: Position,
        borrowed: u64,
    },
    /// The word is as far ahead as it may be: wait until the generator's clock
    /// has moved on by this many ticks, then ask again.
    Wait { ticks: u64 },
    /// IDs up to this tick need a durable mark first.
    Reserve { through: Tick },
    /// The layout's time is used up.
    TimeUsedUp,
    /// The wall clock is this far, in nanoseconds, behind an earlier reading.
    RolledBack { by: i64 },
    /// The tick is used up in the clocks that it may be used in; there are more.
    Widen,
}

impl Generator {
    /// The built-in generator. **Frozen**, as its layout is.
    pub const DEFAULT: Self = Self {
        layout: Layout::DEFAULT,
        policy: Policy::DEFAULT,
    };

    /// Whether sessions may issue by [`Word::issue`] and [`Layout::compose`] alone:
    /// the default generator and its like.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        let policy = &self.policy;
        !policy.on_rollback.watches()
            && !matches!(policy.on_exhausted, OnExhausted::NextClock)
            && !matches!(policy.sequence_start, SequenceStart::Random)
    }

    /// Whether a rollback goes on in another clock.
    #[must_use]
    pub const fn changes_clocks(&self) -> bool {
        matches!(self.policy.on_rollback, OnRollback::NextClock)
    }

    /// Whether a rollback, and a tick that is used up, take clocks from one account.
    #[must_use]
    pub const fn shares_clocks(&self) -> bool {
        self.changes_clocks() && matches!(self.policy.on_exhausted, OnExhausted::NextClock)
    }

    /// Where the numbers of a fresh tick start.
    #[must_use]
    #[inline]
    pub const fn fresh(&self, tick: Tick) -> Position {
        let first = self.policy.sequence_start.first_in(tick);
        Position::new(self.layout.position_of(tick).get() | first)
    }

    /// The largest batch that is issued by one compare-and-swap: a quarter of
    /// the borrow window, at least one tick. So a batch never uses up at once
    /// what single calls of other sessions may borrow. Without borrowing, what
    /// is left of a tick wherever it starts.
    #[must_use]
    pub fn max_chunk(&self) -> u64 {
        let tick = 1 << self.layout.within_bits();
        match self.policy.max_borrow_ticks {
            0 => tick - self.policy.sequence_start.last(),
            ticks => tick.saturating_mul((ticks / 4).max(1)),
        }
    }

    /// Decides how `count` IDs can be issued: at most [`Self::max_chunk`].
    ///
    /// `now` is the tick of the generator's clock, which may lie outside the
    /// layout; it is compared before it is shifted.
    #[must_use]
    #[inline]
    pub const fn decide(&self, word: Position, reserved: Position, now: i64, count: u64) -> Step {
        let last_tick = self.layout.last_tick().get();
        // A clock before the epoch is for the reservation to complain about.
        let now = if now < 0 { 0 } else { now.cast_unsigned() };
        if now >= last_tick {
            return Step::TimeUsedUp;
        }
        let fresh = self.fresh(Tick::new(now)).get();
        let start = if word.get() > fresh {
            word.get()
        } else {
            fresh
        };
        let end = start + count;
        let through = (end - 1) >> self.layout.within_bits();
        if through >= last_tick {
            return Step::TimeUsedUp;
        }
        if through > now + self.policy.max_borrow_ticks {
            return Step::Wait {
                ticks: through - now - self.policy.max_borrow_ticks,
            };
        }
        if end > reserved.get() {
            return Step::Reserve {
                through: Tick::new(through),
            };
        }
        Step::Issue {
            start: Position::new(start),
            end: Position::new(end),
            borrowed: self.borrowed(start, end, now.cast_signed()),
        }
    }

    /// Where issuing ends for now, at the bound or with the borrow window: if
    /// the word is past the fresh tick, and far enough from there to add to it.
    #[inline]
    const fn room_past(&self, word: u64, reserved: Position, now: i64, count: u64) -> Option<u64> {
        let tick = now.cast_unsigned();
        // A clock before the epoch is a huge tick, and past the end as well.
        if tick >= self.layout.last_tick().get() || word < self.fresh(Tick::new(tick)).get() {
            return None;
        }
        let window = (tick + self.policy.max_borrow_ticks + 1) << self.layout.within_bits();
        let limit = if window < reserved.get() {
            window
        } else {
            reserved.get()
        };
        if word + count + ROOM <= limit {
            Some(limit)
        } else {
            None
        }
    }

    /// How many of these positions are of ticks after `now`, which lies before
    /// the last tick.
    const fn borrowed(&self, start: u64, end: u64, now: i64) -> u64 {
        let now = if now < 0 { 0 } else { now.cast_unsigned() };
        let present = (now + 1) << self.layout.within_bits();
        end.saturating_sub(if start > present { start } else { present })
    }
}

/// Positions that must be left below a limit for an addition: more than there
/// are callers under way at a time, so that next to none are skipped. The model
/// checker is to see what happens when that is not enough.
const ROOM: u64 = if cfg!(loom) { 0 } else { 256 };

/// The largest batch that adds: several at a time skip a fraction of a tick.
const ADDED_BATCH_MAX: u64 = 256;

/// How often it tries to compare and swap before it adds.
const BATCH_ATTEMPTS: u32 = if cfg!(loom) { 0 } else { 8 };

/// The next free position. Zero: nothing issued since the server started.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(pub(super) AtomicU64);

/// How far one database may issue from a word.
#[derive(Debug)]
#[repr(C)]
pub struct Bounds {
    reserved: AtomicU64,
    early: AtomicU64,
    clocks: AtomicU64,
}

impl Default for Word {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Word {
    /// Issues `count` consecutive positions, or says what must happen first.
    /// `now` reads the tick of the generator's clock.
    ///
    /// Never waits, never allocates; retries only when another issuer was the
    /// first in a fresh tick, or took the last that there was room for.
    #[inline]
    pub fn issue(
        &self,
        generator: &Generator,
        bounds: &Bounds,
        count: u64,
        mut now: impl FnMut() -> i64,
    ) -> Step {
        let mut lost = 0;
        loop {
            // Acquire keeps the clock behind this load, see the head of the file.
            let word = self.0.load(Ordering::Acquire);
            let now = now();
            let reserved = bounds.reserved();
            if (count == 1 || lost >= BATCH_ATTEMPTS && count <= ADDED_BATCH_MAX)
                && let Some(limit) = generator.room_past(word, reserved, now, count)
            {
                // AcqRel as below; the bound was loaded before.
                let start = self.0.fetch_add(count, Ordering::AcqRel);
                let end = start + count;
                if end <= limit {
                    return Step::Issue {
                        start: Position::new(start),
                        end: Position::new(end),
                        borrowed: generator.borrowed(start, end, now),
                    };
                }
                continue;
            }
            let step = generator.decide(Position::new(word), reserved, now, count);
            let Step::Issue { end, .. } = step else {
                return step;
            };
            // Release: whoever continues from this word comes after us. The
            // failure order is Relaxed: the loop loads again.
            if self
                .0
                .compare_exchange(word, end.get(), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return step;
            }
            lost += 1;
            std::hint::spin_loop();
        }
    }

    /// The next free position, as of now.
    #[must_use]
    pub fn position(&self) -> Position {
        Position::new(self.0.load(Ordering::Acquire))
    }

    /// Skips to `position`, if it is ahead.
    pub fn raise(&self, position: Position) {
        self.0.fetch_max(position.get(), Ordering::AcqRel);
    }

    /// Goes to a position: in the clock where the word is, only forward. Returns
    /// where it was.
    pub fn go_to(&self, to: Position, layout: Layout) -> Position {
        self.change(|word| {
            let stays = layout.clock_of(word) == layout.clock_of(to) && word >= to;
            if stays { word } else { to }
        })
    }

    /// Leaves the further clocks of its tick: goes to the next number where they are
    /// unused, else to the next tick. In any case it moves, so that whoever has loaded
    /// it while they could be used fails to swap. Returns from which tick on they are
    /// unused.
    pub fn leave_clocks(&self, layout: Layout) -> Tick {
        let are_unused = |word| layout.within(word) <= 1 << layout.sequence_bits();
        let next_tick = |word| Tick::new(layout.tick_of(word).get() + 1);
        let before = self.change(|word| {
            if are_unused(word) {
                // Also in the last tick, after which there is none.
                return Position::new(word.get() + 1);
            }
            let next = layout.position_of(next_tick(word));
            layout.in_clock(layout.clock_of(word), next)
        });
        if are_unused(before) {
            layout.tick_of(before)
        } else {
            next_tick(before)
        }
    }

    fn change(&self, to: impl Fn(Position) -> Position) -> Position {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let wanted = to(Position::new(word)).get();
            // AcqRel as in issue(); on failure we have loaded it anew.
            match self
                .0
                .compare_exchange(word, wanted, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(before) => return Position::new(before),
                Err(now) => word = now,
            }
        }
    }

    /// At a position, to copy a model of a server.
    #[cfg(test)]
    pub fn at(position: Position) -> Self {
        Self(AtomicU64::new(position.get()))
    }

    /// Forgets everything. Only for a word that nobody uses.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// In how many clocks, the one in force included, a tick may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Now.
    pub together: u64,
    /// After another reservation.
    pub widest: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            reserved: AtomicU64::new(0),
            early: AtomicU64::new(0),
            clocks: AtomicU64::new(1),
        }
    }
}

impl Bounds {
    /// No position at or past this one may be issued.
    #[must_use]
    #[inline]
    pub fn reserved(&self) -> Position {
        Position::new(self.reserved.load(Ordering::Acquire))
    }

    /// Allows positions below `reserved`. The mark is durable and the word has
    /// been raised: this is the last step of a reservation.
    pub fn publish(&self, reserved: Position, early: Position) {
        self.early.store(early.get(), Ordering::Relaxed);
        self.reserved.store(reserved.get(), Ordering::Release);
    }

    /// In how many clocks a tick may be used now, and could be.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        // Acquire: whoever sees a word that has left its tick sees what was
        // lowered before.
        let clocks = self.clocks.load(Ordering::Acquire);
        Clocks {
            together: clocks & u64::from(u32::MAX),
            widest: clocks >> 32,
        }
    }

    /// Sets that. Before the bound is published if it allows more, before the word
    /// leaves its tick if it allows less.
    pub fn set_clocks(&self, clocks: Clocks) {
        self.clocks
            .store(clocks.together | clocks.widest << 32, Ordering::Release);
    }

    /// Allows nothing, until the next reservation.
    pub fn clear(&self) {
        self.reserved.store(0, Ordering::Release);
        self.early.store(0, Ordering::Relaxed);
    }

    /// Whether the caller, who has just issued up to `end`, shall reserve
    /// ahead of need. Says so to one caller per reservation.
    #[must_use]
    #[inline]
    pub fn elect_early(&self, end: Position) -> bool {
        // Relaxed: the hint carries no data; the reservation itself takes a lock.
        let early = self.early.load(Ordering::Relaxed);
        end.get() > early && self.claim(early)
    }

    /// Whether somebody was elected and has not reserved yet.
    #[must_use]
    pub fn early_is_claimed(&self) -> bool {
        self.early.load(Ordering::Relaxed) == u64::MAX
    }

    /// All fields, to copy a model of a server.
    #[cfg(test)]
    pub fn parts(&self) -> [u64; 3] {
        [&self.reserved, &self.early, &self.clocks].map(|field| field.load(Ordering::Relaxed))
    }

    /// From its fields, in the order of [`Self::parts`].
    #[cfg(test)]
    pub fn from_parts(parts: [u64; 3]) -> Self {
        let [reserved, early, clocks] = parts.map(AtomicU64::new);
        Self {
            reserved,
            early,
            clocks,
        }
    }

    #[cold]
    fn claim(&self, early: u64) -> bool {
        self.early
            .compare_exchange(early, u64::MAX, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::layout::Role;
    use super::super::policy::SequenceStart;
    use super::*;

    /// 4 bits of time, 2 of worker, 2 of sequence; borrows 2 ticks; starts at
    /// `tick % 2`.
    fn tiny() -> Generator {
        Generator {
            layout: Layout::new(
                0,
                1,
                &[(Role::Time, 4), (Role::Worker, 2), (Role::Sequence, 2)],
            )
            .unwrap(),
            policy: Policy {
                max_borrow_ticks: 2,
                max_rollback_millis: 8,
                sequence_start: SequenceStart::vibrate(1),
                ..Policy::DEFAULT
            },
        }
    }

    fn decide(word: u64, reserved: u64, now: i64, count: u64) -> Step {
        tiny().decide(Position::new(word), Position::new(reserved), now, count)
    }

    fn issue(start: u64, end: u64) -> Step {
        borrow(start, end, 0)
    }

    fn borrow(start: u64, end: u64, borrowed: u64) -> Step {
        Step::Issue {
            start: Position::new(start),
            end: Position::new(end),
            borrowed,
        }
    }

    #[test]
    fn a_fresh_tick_starts_where_its_parity_says() {
        assert_eq!(decide(0, 64, 4, 1), issue(16, 17));
        assert_eq!(decide(0, 64, 5, 1), issue(21, 22));
    }

    #[test]
    fn the_word_wins_over_the_clock() {
        assert_eq!(decide(18, 64, 4, 1), issue(18, 19));
        // An exhausted tick runs into the next ones.
        assert_eq!(decide(20, 64, 4, 1), borrow(20, 21, 1));
        assert_eq!(decide(27, 64, 4, 1), borrow(27, 28, 1));
        assert_eq!(decide(18, 64, 4, 4), borrow(18, 22, 2));
        // A clock behind the word changes nothing but the borrowing.
        assert_eq!(decide(27, 64, 5, 1), borrow(27, 28, 1));
        assert_eq!(decide(27, 64, 6, 1), issue(27, 28));
    }

    #[test]
    fn waits_past_the_borrow_window() {
        assert_eq!(decide(28, 64, 4, 1), Step::Wait { ticks: 1 });
        assert_eq!(decide(26, 64, 4, 3), Step::Wait { ticks: 1 });
        assert_eq!(decide(26, 64, 4, 2), borrow(26, 28, 2));
    }

    #[test]
    fn reserves_before_the_bound() {
        assert_eq!(
            decide(17, 17, 4, 1),
            Step::Reserve {
                through: Tick::new(4)
            }
        );
        assert_eq!(
            decide(17, 18, 4, 2),
            Step::Reserve {
                through: Tick::new(4)
            }
        );
        assert_eq!(decide(17, 18, 4, 1), issue(17, 18));
    }

    #[test]
    fn the_last_tick_is_never_issued() {
        assert_eq!(decide(59, 64, 14, 1), issue(59, 60));
        assert_eq!(decide(60, 64, 14, 1), Step::TimeUsedUp);
        assert_eq!(decide(58, 64, 14, 3), Step::TimeUsedUp);
        assert_eq!(decide(0, 64, 15, 1), Step::TimeUsedUp);
        assert_eq!(decide(0, 64, 1 << 40, 1), Step::TimeUsedUp);
        assert_eq!(decide(0, 64, i64::MAX, 1), Step::TimeUsedUp);
    }

    #[test]
    fn a_clock_before_the_epoch_is_tick_zero() {
        assert_eq!(decide(0, 64, -5, 1), issue(0, 1));
        assert_eq!(decide(0, 64, i64::MIN, 1), issue(0, 1));
    }

    #[test]
    fn a_batch_of_the_default_generator_is_one_step() {
        assert_eq!(Generator::DEFAULT.max_chunk(), 25 * 4096);
        assert_eq!(tiny().max_chunk(), 4);
    }

    #[test]
    fn clocks_are_given_back_at_once_where_they_are_unused() {
        let layout = Layout::new(
            0,
            1,
            &[
                (Role::Time, 4),
                (Role::Clock, 2),
                (Role::Worker, 2),
                (Role::Sequence, 2),
            ],
        );
        let layout = layout.unwrap().through_clocks().unwrap();
        let place = |tick: u64, within: u64| {
            let position = layout.position_of(Tick::new(tick)).get() + within;
            layout.in_clock(3, Position::new(position))
        };
        let left = |tick, within| {
            let word = Word::at(place(tick, within));
            (word.leave_clocks(layout), word.position())
        };
        assert_eq!(left(5, 0), (Tick::new(5), place(5, 1)));
        // The first clock of the tick is used up, and nothing else.
        assert_eq!(left(5, 3), (Tick::new(5), place(5, 4)));
        assert_eq!(left(5, 4), (Tick::new(5), place(5, 5)));
        assert_eq!(left(5, 5), (Tick::new(6), place(6, 0)));
        assert_eq!(left(5, 15), (Tick::new(6), place(6, 0)));
        // After the last tick there is none: the word stays there, and in its clock.
        assert_eq!(left(14, 9), (Tick::new(15), place(15, 0)));
        assert_eq!(left(15, 0), (Tick::new(15), place(15, 1)));
    }

    #[test]
    fn one_caller_is_elected() {
        let bounds = Bounds::default();
        bounds.publish(Position::new(100), Position::new(50));
        assert!(!bounds.elect_early(Position::new(50)));
        assert!(bounds.elect_early(Position::new(51)));
        assert!(!bounds.elect_early(Position::new(52)));
        bounds.publish(Position::new(200), Position::new(150));
        assert!(bounds.elect_early(Position::new(151)));
    }

    #[test]
    fn batches_that_meet_take_no_more_than_there_is_room_for() {
        // Each finds, between its load and its swap, that another was faster.
        let (word, bounds) = (Word::default(), Bounds::default());
        bounds.publish(Position::new(u64::MAX), Position::new(u64::MAX));
        let generator = Generator::DEFAULT;
        fn issue(word: &Word, bounds: &Bounds, generator: &Generator, others: u32) -> u64 {
            let mut inner = 0;
            let step = word.issue(generator, bounds, 100_000, || {
                if others > 0 && inner == 0 {
                    inner = issue(word, bounds, generator, others - 1);
                }
                1 << 30
            });
            inner + u64::from(matches!(step, Step::Issue { .. }))
        }
        let issued = issue(&word, &bounds, &generator, 16);
        assert_eq!(issued, 4, "what the borrow window holds");
        let limit = ((1u64 << 30) + 101) << 12;
        assert!(word.position().get() <= limit);
    }

    #[test]
    fn threads_never_share_a_position() {
        let (word, bounds) = (Word::default(), Bounds::default());
        bounds.publish(Position::new(u64::MAX), Position::new(u64::MAX));
        let clock = AtomicU64::new(1 << 30);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let run = |_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    while mine.len() < if cfg!(miri) { 60 } else { 20_000 } {
                        let now = || clock.fetch_add(1, Ordering::Relaxed).cast_signed() / 64;
                        let count = mine.len() as u64 % 7 + 1;
                        if let Step::Issue { start, end, .. } =
                            word.issue(&Generator::DEFAULT, &bounds, count, now)
                        {
                            mine.extend(start.get()..end.get());
                        }
                    }
                    assert!(mine.is_sorted());
                    mine
                })
            };
            let threads: Vec<_> = (0..4).map(run).collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        let issued = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), issued);
    }
}

/// Every interleaving of the concurrent steps; see the Makefile's check-core.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        word: Word,
        bounds: Bounds,
        /// The durable mark, as a position: what the disk holds.
        mark: AtomicU64,
    }

    const G: Generator = Generator::DEFAULT;
    const TICK: u64 = 4096;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            word: Word::default(),
            bounds: Bounds::default(),
            mark: AtomicU64::new(0),
        })
    }

    /// One attempt; an issued position must lie below the mark on disk.
    fn issue(s: &Shared, now: i64) -> Option<u64> {
        match s.word.issue(&G, &s.bounds, 1, || now) {
            Step::Issue { start, end, .. } => {
                assert!(
                    end.get() <= s.mark.load(Ordering::Acquire),
                    "past the durable mark"
                );
                Some(start.get())
            }
            _ => None,
        }
    }

    /// The order of a reservation: mark, then word, then bound.
    fn reserve(s: &Shared, from: u64, to: u64) {
        s.mark.store(to, Ordering::Release);
        s.word.raise(Position::new(from));
        s.bounds.publish(Position::new(to), Position::new(to));
    }

    #[test]
    fn two_issuers_and_a_reserver_that_starts_at_a_mark() {
        loom::model(|| {
            let s = shared();
            // A stored mark at tick 9 while the clock says 3: nothing below
            // tick 9 may come out.
            let start = 9 * TICK;
            let issuers: Vec<_> = (0..2)
                .map(|_| {
                    let s = s.clone();
                    thread::spawn(move || issue(&s, 3))
                })
                .collect();
            reserve(&s, start, start + TICK);
            let issued: Vec<_> = issuers
                .into_iter()
                .filter_map(|t| t.join().unwrap())
                .collect();
            assert!(
                issued.iter().all(|p| *p >= start),
                "before the mark: {issued:?}"
            );
            assert!(
                issued.len() < 2 || issued[0] != issued[1],
                "twice: {issued:?}"
            );
        });
    }

    #[test]
    fn two_issuers_and_a_reserver_that_extends() {
        loom::model(|| {
            let s = shared();
            // Room for one more ID below the old bound.
            let word = 5 * TICK + 4095;
            reserve(&s, word, 6 * TICK);
            let issuers: Vec<_> = (0..2)
                .map(|_| {
                    let s = s.clone();
                    thread::spawn(move || issue(&s, 5))
                })
                .collect();
            reserve(&s, 0, 7 * TICK);
            let mut issued: Vec<_> = issuers
                .into_iter()
                .filter_map(|t| t.join().unwrap())
                .collect();
            issued.sort_unstable();
            // The one who found no room has skipped a position.
            let second = matches!(issued[1..], [] | [_])
                && issued[1..]
                    .iter()
                    .all(|p| (word + 1..=word + 2).contains(p));
            assert!(issued[0] == word && second, "{issued:?}");
        });
    }

    #[test]
    fn of_two_issuers_that_meet_the_borrow_limit_one_waits() {
        loom::model(|| {
            let s = shared();
            // Room for one more ID before the limit, far below the bound.
            let word = (5 + G.policy.max_borrow_ticks) * TICK + 4095;
            reserve(&s, word, 200 * TICK);
            let other = {
                let s = s.clone();
                thread::spawn(move || issue(&s, 5))
            };
            let mine = issue(&s, 5);
            let other = other.join().unwrap();
            assert_eq!(mine.xor(other), Some(word), "{mine:?} {other:?}");
            assert!(s.word.position().get() <= word + 2, "one skipped at most");
        });
    }

    #[test]
    fn a_batch_and_an_issuer_that_meet_the_bound() {
        loom::model(|| {
            let s = shared();
            let word = 5 * TICK + 4093;
            reserve(&s, word, 6 * TICK);
            let batch = {
                let s = s.clone();
                thread::spawn(move || match s.word.issue(&G, &s.bounds, 3, || 5) {
                    Step::Issue { start, end, .. } => Some((start.get(), end.get())),
                    _ => None,
                })
            };
            let mine = issue(&s, 5);
            let batch = batch.join().unwrap();
            // All three to the batch, or one to the caller and what is left
            // skipped.
            assert!(
                (batch, mine) == (Some((word, word + 3)), None)
                    || (batch, mine) == (None, Some(word)),
                "{batch:?} {mine:?}"
            );
        });
    }

    #[test]
    fn two_issuers_in_a_fresh_tick() {
        loom::model(|| {
            let s = shared();
            reserve(&s, 5 * TICK, 200 * TICK);
            let fresh = G.fresh(Tick::new(6)).get();
            let other = {
                let s = s.clone();
                thread::spawn(move || issue(&s, 6))
            };
            let mut both = [issue(&s, 6).unwrap(), other.join().unwrap().unwrap()];
            both.sort_unstable();
            assert_eq!(both, [fresh, fresh + 1]);
        });
    }

    #[test]
    fn early_is_one_callers_work() {
        loom::model(|| {
            let s = shared();
            s.bounds.publish(Position::new(100), Position::new(50));
            let other = {
                let s = s.clone();
                thread::spawn(move || s.bounds.elect_early(Position::new(60)))
            };
            let mine = s.bounds.elect_early(Position::new(61));
            assert!(mine != other.join().unwrap());
        });
    }
}
