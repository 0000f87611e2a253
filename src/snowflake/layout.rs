//! Layouts: which bit of an ID means what.
//!
//! The default layout, the bit indices on top:
//!
//! ```text
//!  63 62                                      22 21        12 11         0
//! +--+------------------------------------------+------------+------------+
//! | 0|                  time (41)               | worker (10)|sequence(12)|
//! +--+------------------------------------------+------------+------------+
//! ```
//!
//! Fields may come in any order. A layout knows their roles and places;
//! [`super::label`] knows their names.
//!
//! A **position** is what a generator counts. On one worker, positions and IDs
//! map one to one; also in the same order, unless the layout writes the time
//! reversed or below other fields, or the policy gives the order up. From high
//! to low:
//!
//! ```text
//!  clock | tick | further | sequence
//! ```
//!
//! `tick` and `sequence` are the fields. The others are 0 unless the layout has a
//! clock field and the policy makes use of it: `clock` is the clock in force, to
//! which a rollback adds; `further` is how many clocks after it a tick that was
//! used up has gone on in. Their sum is the clock field.

use super::id::{Millis, Place, Position, SnowflakeId, Tick, UnixMillis, WorkerId};
use super::shuffle::Shuffle;

/// The fields of one ID that every layout has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Ticks since the layout's epoch.
    pub tick: Tick,
    /// The server that issued it; 0 if the layout has no worker ID.
    pub worker: u64,
    /// Its number within the tick.
    pub sequence: u64,
    /// Which of the layout's clocks it was issued by; 0 if it has only one.
    pub clock: u64,
}

/// Why a value does not fit a layout. Carries the value and the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// No ID of this layout has these bits: the ID, and the layout's width.
    NotAnId { id: i64, bits: u32 },
    /// A fixed field has another value in this ID.
    Fixed {
        id: i64,
        field: String,
        value: u64,
        fixed: u64,
    },
    /// A field value outside its field: name, value, largest value.
    FieldRange { field: String, value: i64, max: u64 },
    /// An instant outside the layout's time: first and last instant it holds.
    InstantRange {
        at: UnixMillis,
        first: UnixMillis,
        last: UnixMillis,
    },
    /// IDs do not sort by time, so that a tick has no least and greatest ID.
    Unordered(Disorder),
}

/// Why the IDs of a layout do not sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disorder {
    /// The bits of the time are reversed.
    Reversed,
    /// Fields above the time vary.
    TimeBelow,
    /// From this instant on IDs are negative.
    NegativeFrom(UnixMillis),
}

/// What a field is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ticks since the epoch.
    Time,
    /// Ticks since the epoch, the lowest bit first, so that IDs spread.
    TimeReversed,
    /// One of these two, as the mode field says: reversed where it is 0.
    TimeByMode,
    /// The number within a tick.
    Sequence,
    /// Counts changes of the clock.
    Clock,
    /// A part of the worker ID; the highest field has its highest bits.
    Worker,
    /// The same in all IDs of a generator.
    Fixed(u64),
    /// How the time is written: see [`Role::TimeByMode`]. A generator needs a
    /// value; without one, a layout can only decode.
    Mode(Option<u64>),
}

/// Why fields make no layout. `field` is an index into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// A field has 1 to this many bits.
    Bits { field: usize, max: u32 },
    /// A second field of a role that only one can have.
    Twice { field: usize },
    /// A value that its field does not hold.
    Value { field: usize, max: u64 },
    /// There is no time field.
    NoTime,
    /// There is no sequence field.
    NoSequence,
    /// A time that is written by mode needs a mode, and a mode such a time.
    Mode,
    /// All fields together have more than 64 bits.
    Width { bits: u32 },
    /// Time, clock and sequence have more than 62 bits.
    PositionWidth { bits: u32 },
    /// The parts of the worker ID have more than 31 bits.
    WorkerWidth { bits: u32 },
    /// The epoch is before 1970 or after 3084.
    Epoch,
    /// The tick is less than 1 ms or more than 10 s.
    Tick,
}

/// Most bits of the time field: 1,115 years of milliseconds.
pub const TIME_BITS_MAX: u32 = 45;
/// Most bits of the sequence field, and of the clock field.
pub const SEQUENCE_BITS_MAX: u32 = 31;
/// Most bits of the worker ID: a setting is a positive `int`.
pub const WORKER_BITS_MAX: u32 = 31;
/// Most bits of time, clock and sequence together: two are left so that
/// additions cannot overflow.
pub const POSITION_BITS_MAX: u32 = 62;
/// The latest epoch, in Unix milliseconds: in the year 3084.
pub const EPOCH_MAX: i64 = 1 << 45;
/// The longest tick, in milliseconds.
pub const TICK_MILLIS_MAX: i64 = 10_000;

/// Where a field lies: `bits` wide, with `shift` bits below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    shift: u32,
    bits: u32,
}

impl Span {
    const NONE: Self = Self { shift: 0, bits: 0 };

    const fn mask(self) -> u64 {
        ones(self.bits) << self.shift
    }

    const fn of(self, id: u64) -> u64 {
        id >> self.shift & ones(self.bits)
    }
}

/// How the time field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Plain,
    Reversed,
    /// As this bit of the ID says: plain where it is set.
    ByMode(u64),
}

/// Places and roles of the fields, epoch and tick. Always valid: the
/// constructors check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    epoch: UnixMillis,
    tick_millis: i64,
    time: Span,
    sequence: Span,
    clock: Span,
    written: Written,
    width: u32,
    /// The bits of the worker ID, from all its parts.
    worker_mask: u64,
    /// The bits that are the same in all IDs, and what they are.
    fixed_mask: u64,
    fixed: u64,
    /// What to issue in the mode field, in place.
    mode: u64,
    /// What the path of each ID would otherwise compute from the widths.
    last_tick: Tick,
    sequence_mask: u64,
    /// The bits of a position below the tick.
    within_bits: u32,
}

/// `bits` ones.
const fn ones(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// Puts the low bits of `value` where `mask` has ones, from the lowest up.
const fn deposit(mut value: u64, mut mask: u64) -> u64 {
    let mut bits = 0;
    while mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        if value & 1 != 0 {
            bits |= lowest;
        }
        value >>= 1;
        mask ^= lowest;
    }
    bits
}

/// The inverse of [`deposit`].
const fn extract(bits: u64, mut mask: u64) -> u64 {
    let mut value = 0;
    let mut place = 0;
    while mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        if bits & lowest != 0 {
            value |= 1 << place;
        }
        place += 1;
        mask ^= lowest;
    }
    value
}

/// The lowest `bits` bits the other way round.
const fn reversed(value: u64, bits: u32) -> u64 {
    value.reverse_bits() >> (64 - bits)
}

impl Layout {
    /// The layout of the default generator. **Frozen**: stored indexes and
    /// partition bounds are computed from it.
    pub const DEFAULT: Self = match Self::new(
        1_735_689_600_000,
        1,
        &[(Role::Time, 41), (Role::Worker, 10), (Role::Sequence, 12)],
    ) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    /// A layout of fields from high to low, each with its bits. `epoch_millis`
    /// is in Unix milliseconds.
    ///
    /// # Errors
    /// A [`Misfit`], if the fields make none.
    // Indices: slices have no iterators in a const fn; `at` is below the length.
    #[allow(clippy::indexing_slicing)]
    pub const fn new(
        epoch_millis: i64,
        tick_millis: i64,
        fields: &[(Role, u32)],
    ) -> Result<Self, Misfit> {
        if epoch_millis < 0 || epoch_millis > EPOCH_MAX {
            return Err(Misfit::Epoch);
        }
        if tick_millis < 1 || tick_millis > TICK_MILLIS_MAX {
            return Err(Misfit::Tick);
        }
        let mut layout = Self {
            epoch: UnixMillis::new(epoch_millis),
            tick_millis,
            time: Span::NONE,
            sequence: Span::NONE,
            clock: Span::NONE,
            written: Written::Plain,
            width: 0,
            worker_mask: 0,
            fixed_mask: 0,
            fixed: 0,
            mode: 0,
            last_tick: Tick::new(0),
            within_bits: 0,
            sequence_mask: 0,
        };
        let mut mode = None;
        // From low to high: what is below a field is its shift.
        let mut left = fields.len();
        while left > 0 {
            left -= 1;
            let field = left;
            let (role, bits) = fields[field];
            let max = match role {
                Role::Time | Role::TimeReversed | Role::TimeByMode => TIME_BITS_MAX,
                Role::Sequence | Role::Clock => SEQUENCE_BITS_MAX,
                Role::Worker => WORKER_BITS_MAX,
                Role::Fixed(_) => 63,
                Role::Mode(_) => 1,
            };
            if bits < 1 || bits > max {
                return Err(Misfit::Bits { field, max });
            }
            let shift = layout.width;
            layout.width += bits;
            if layout.width > 64 {
                let mut bits = 0;
                let mut at = 0;
                while at < fields.len() {
                    bits = fields[at].1.saturating_add(bits);
                    at += 1;
                }
                return Err(Misfit::Width { bits });
            }
            let span = Span { shift, bits };
            let before = match role {
                Role::Time | Role::TimeReversed | Role::TimeByMode => {
                    let before = layout.time;
                    layout.time = span;
                    layout.written = match role {
                        Role::Time => Written::Plain,
                        Role::TimeReversed => Written::Reversed,
                        _ => Written::ByMode(0),
                    };
                    before
                }
                Role::Sequence => {
                    let before = layout.sequence;
                    layout.sequence = span;
                    before
                }
                Role::Clock => {
                    let before = layout.clock;
                    layout.clock = span;
                    before
                }
                Role::Worker => {
                    layout.worker_mask |= span.mask();
                    Span::NONE
                }
                Role::Fixed(value) => {
                    let max = ones(bits);
                    if value > max {
                        return Err(Misfit::Value { field, max });
                    }
                    layout.fixed_mask |= span.mask();
                    layout.fixed |= value << shift;
                    Span::NONE
                }
                Role::Mode(value) => {
                    let before = match mode {
                        Some(before) => before,
                        None => Span::NONE,
                    };
                    mode = Some(span);
                    if let Some(value) = value {
                        if value > 1 {
                            return Err(Misfit::Value { field, max: 1 });
                        }
                        layout.mode = value << shift;
                    }
                    before
                }
            };
            if before.bits > 0 {
                return Err(Misfit::Twice { field });
            }
        }
        if layout.time.bits == 0 {
            return Err(Misfit::NoTime);
        }
        if layout.sequence.bits == 0 {
            return Err(Misfit::NoSequence);
        }
        match (layout.written, mode) {
            (Written::ByMode(_), Some(span)) => layout.written = Written::ByMode(span.mask()),
            (Written::ByMode(_), None) | (_, Some(_)) => return Err(Misfit::Mode),
            (_, None) => {}
        }
        let bits = layout.time.bits + layout.clock.bits + layout.sequence.bits;
        if bits > POSITION_BITS_MAX {
            return Err(Misfit::PositionWidth { bits });
        }
        let bits = layout.worker_mask.count_ones();
        if bits > WORKER_BITS_MAX {
            return Err(Misfit::WorkerWidth { bits });
        }
        layout.last_tick = Tick::new(ones(layout.time.bits));
        layout.sequence_mask = ones(layout.sequence.bits);
        layout.within_bits = layout.sequence.bits;
        Ok(layout)
    }

    /// The same IDs, with positions that count on through all clocks of a tick.
    /// `None` if that makes them too wide.
    #[must_use]
    pub const fn through_clocks(self) -> Option<Self> {
        if self.time.bits + 2 * self.clock.bits + self.sequence.bits > POSITION_BITS_MAX {
            return None;
        }
        Some(Self {
            within_bits: self.sequence.bits + self.clock.bits,
            ..self
        })
    }

    /// The instant at which tick 0 begins.
    #[must_use]
    pub const fn epoch(self) -> UnixMillis {
        self.epoch
    }

    /// How long a tick lasts, in milliseconds.
    #[must_use]
    pub const fn tick_millis(self) -> i64 {
        self.tick_millis
    }

    /// Width of the sequence field.
    #[must_use]
    pub const fn sequence_bits(self) -> u32 {
        self.sequence.bits
    }

    /// Width of the clock field, 0 if there is none.
    #[must_use]
    pub const fn clock_bits(self) -> u32 {
        self.clock.bits
    }

    /// Width of all fields together. With 64, IDs can be negative.
    #[must_use]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Whether IDs carry the worker ID. If not, the fixed fields alone tell the
    /// IDs of two servers apart.
    #[must_use]
    pub const fn has_worker(self) -> bool {
        self.worker_mask != 0
    }

    /// The largest worker ID; 0 if IDs carry none.
    #[must_use]
    pub const fn max_worker(self) -> u64 {
        ones(self.worker_mask.count_ones())
    }

    /// The largest sequence number of a tick.
    #[must_use]
    pub const fn max_sequence(self) -> u64 {
        self.sequence_mask
    }

    /// How many IDs a second has room for.
    #[must_use]
    pub const fn ids_per_second(self) -> u64 {
        (1 << self.within_bits) * 1000 / self.tick_millis.cast_unsigned()
    }

    /// The last tick of the time field. It is never issued: its positions are
    /// the room in which "one past the end" can be written down.
    #[must_use]
    #[inline]
    pub const fn last_tick(self) -> Tick {
        self.last_tick
    }

    /// Whether an ID of this layout can be negative.
    #[must_use]
    pub const fn can_be_negative(self) -> bool {
        let sign = 1 << 63;
        self.width == 64 && (self.fixed_mask & sign == 0 || self.fixed & sign != 0)
    }

    /// Why IDs do not sort by time; `None` if they do, all of them. A layout
    /// whose IDs turn negative sorts before.
    #[must_use]
    pub const fn disorder(self) -> Option<Disorder> {
        if !matches!(self.written, Written::Plain) {
            return Some(Disorder::Reversed);
        }
        let top = self.time.shift + self.time.bits;
        let above = ones(self.width) & !ones(top);
        if above & !self.fixed_mask != 0 {
            return Some(Disorder::TimeBelow);
        }
        if top == 64 {
            let tick = Tick::new(1 << (self.time.bits - 1));
            return Some(Disorder::NegativeFrom(self.instant_of(tick)));
        }
        None
    }

    /// Whether a session's IDs increase: sequence numbers lie below the time,
    /// and nothing is reversed.
    #[must_use]
    pub const fn increases(self) -> bool {
        matches!(self.written, Written::Plain) && self.sequence.shift < self.time.shift
    }

    /// The instant at which a tick begins.
    #[must_use]
    pub const fn instant_of(self, tick: Tick) -> UnixMillis {
        // At most 2^45 ticks of 10^4 ms after 2^45 ms: below 2^59.
        UnixMillis::new(
            tick.get()
                .cast_signed()
                .saturating_mul(self.tick_millis)
                .saturating_add(self.epoch.get()),
        )
    }

    /// The tick that holds an instant; negative before the epoch, and not
    /// bounded by the time field.
    #[must_use]
    #[inline]
    pub const fn tick_number(self, at: UnixMillis) -> i64 {
        let since = at.get().saturating_sub(self.epoch.get());
        if self.tick_millis == 1 {
            since
        } else {
            since.div_euclid(self.tick_millis)
        }
    }

    /// The tick that holds an instant; outside the layout's time, its first or
    /// last.
    #[must_use]
    pub fn tick_within(self, at: UnixMillis) -> Tick {
        Tick::new(self.tick_number(at).max(0).cast_unsigned()).min(self.last_tick())
    }

    /// The first tick that begins at or after an instant, at least 0.
    #[must_use]
    pub const fn tick_from(self, at: UnixMillis) -> Tick {
        let floor = self.tick_number(at);
        if floor < 0 {
            return Tick::new(0);
        }
        let tick = Tick::new(floor.cast_unsigned());
        if self.instant_of(tick).get() < at.get() {
            Tick::new(tick.get() + 1)
        } else {
            tick
        }
    }

    /// How many ticks cover a duration, at least 1.
    #[must_use]
    pub const fn ticks_in(self, duration: Millis) -> u64 {
        if duration.get() <= self.tick_millis {
            return 1;
        }
        (duration.get().cast_unsigned()).div_ceil(self.tick_millis.cast_unsigned())
    }

    /// How long ticks last.
    #[must_use]
    pub fn ticks_as_millis(self, ticks: u64) -> Millis {
        Millis::new(self.tick_millis).times(i64::try_from(ticks).unwrap_or(i64::MAX))
    }

    /// The tick that holds an instant.
    ///
    /// # Errors
    /// [`LayoutError::InstantRange`] before the epoch or past the last tick.
    pub fn tick_at(self, at: UnixMillis) -> Result<Tick, LayoutError> {
        u64::try_from(self.tick_number(at))
            .ok()
            .map(Tick::new)
            .filter(|tick| *tick <= self.last_tick())
            .ok_or(LayoutError::InstantRange {
                at,
                first: self.epoch,
                last: self.instant_of(self.last_tick()),
            })
    }

    /// How many bits of a position lie below the tick.
    #[must_use]
    pub const fn within_bits(self) -> u32 {
        self.within_bits
    }

    /// How many clocks there are.
    #[must_use]
    pub const fn clocks(self) -> u64 {
        1 << self.clock.bits
    }

    /// The tick of a position.
    #[must_use]
    pub const fn tick_of(self, position: Position) -> Tick {
        Tick::new(position.get() >> self.within_bits & self.last_tick.get())
    }

    /// The clock in force at a position.
    #[must_use]
    pub const fn clock_of(self, position: Position) -> u64 {
        position.get() >> (self.within_bits + self.time.bits)
    }

    /// What of a position lies below its tick.
    #[must_use]
    pub const fn within(self, position: Position) -> u64 {
        position.get() & ones(self.within_bits)
    }

    /// The least place of a tick.
    #[must_use]
    #[inline]
    pub const fn place_of(self, tick: Tick) -> Place {
        Place::new(tick.get() << self.within_bits)
    }

    /// The tick of a place.
    #[must_use]
    #[inline]
    pub const fn tick_in(self, place: Place) -> Tick {
        Tick::new(place.get() >> self.within_bits)
    }

    /// A position without its clock number.
    #[must_use]
    #[inline]
    pub const fn place(self, position: Position) -> Place {
        Place::new(position.get() & ones(self.within_bits + self.time.bits))
    }

    /// The position with this clock number.
    #[must_use]
    #[inline]
    pub const fn at(self, clock: u64, place: Place) -> Position {
        Position::new(place.get() | clock << (self.within_bits + self.time.bits))
    }

    /// Where the tick of a position ends.
    #[must_use]
    pub const fn end_of(self, position: Position) -> UnixMillis {
        self.instant_of(self.tick_of(position).next())
    }

    /// The bits that all IDs of a worker have: its ID and the fixed fields.
    ///
    /// # Errors
    /// [`LayoutError::FieldRange`] if the worker ID does not fit.
    pub fn stamp(self, worker: WorkerId) -> Result<Stamp, LayoutError> {
        self.check_worker(worker)?;
        let worker = deposit(u64::from(worker.get()), self.worker_mask);
        Ok(Stamp(worker | self.fixed | self.mode))
    }

    /// The ID of a position, which the caller has checked to be below that of
    /// the last tick, with the bits of a worker.
    #[must_use]
    #[inline]
    pub const fn compose(self, position: Position, stamp: Stamp) -> SnowflakeId {
        let tick = position.get() >> self.sequence.bits;
        SnowflakeId::new(
            self.bits_of(tick, position.get() & self.sequence_mask, stamp)
                .cast_signed(),
        )
    }

    #[inline]
    const fn bits_of(self, tick: u64, sequence: u64, stamp: Stamp) -> u64 {
        let tick = match self.written {
            Written::Plain => tick,
            _ => self.written(tick, stamp.0),
        };
        tick << self.time.shift | sequence << self.sequence.shift | stamp.0
    }

    /// As [`Self::compose`], for positions that have a clock, and for sequence
    /// numbers in another order.
    #[must_use]
    pub fn compose_in(
        self,
        position: Position,
        stamp: Stamp,
        shuffle: Option<&Shuffle>,
    ) -> SnowflakeId {
        let within = self.within(position);
        let further = within >> self.sequence.bits;
        let clock = (self.clock_of(position) + further) & ones(self.clock.bits);
        let tick = self.tick_of(position);
        let number = within & self.sequence_mask;
        let number = match shuffle {
            Some(shuffle) => shuffle.number(tick.get(), clock, number) & self.sequence_mask,
            None => number,
        };
        let bits = self.bits_of(tick.get(), number, stamp);
        SnowflakeId::new((bits | clock << self.clock.shift).cast_signed())
    }

    /// A tick as an ID with these mode bits has it, and the other way round.
    const fn written(self, tick: u64, mode: u64) -> u64 {
        match self.written {
            Written::Plain => tick,
            Written::ByMode(bit) if mode & bit != 0 => tick,
            _ => reversed(tick, self.time.bits),
        }
    }

    /// Whether the worker ID fits. Any does if IDs carry none.
    ///
    /// # Errors
    /// [`LayoutError::FieldRange`].
    pub fn check_worker(self, worker: WorkerId) -> Result<(), LayoutError> {
        if self.has_worker() {
            in_range("worker_id", i64::from(worker.get()), self.max_worker())?;
        }
        Ok(())
    }

    /// An ID from its fields, of clock 0.
    ///
    /// # Errors
    /// [`LayoutError::FieldRange`] names the field that is out of range.
    pub fn encode(
        self,
        tick: Tick,
        worker: i64,
        sequence: i64,
    ) -> Result<SnowflakeId, LayoutError> {
        let worker = in_range("worker_id", worker, self.max_worker())?;
        let sequence = in_range("sequence", sequence, self.max_sequence())?;
        let tick = in_range("time", tick.get().cast_signed(), self.last_tick().get())?;
        Ok(SnowflakeId::new(
            (self.written(tick, self.mode) << self.time.shift
                | deposit(worker, self.worker_mask)
                | sequence << self.sequence.shift
                | self.fixed
                | self.mode)
                .cast_signed(),
        ))
    }

    /// The tick of an ID that this layout has made.
    #[must_use]
    pub const fn tick_of_id(self, id: SnowflakeId) -> Tick {
        let bits = id.get().cast_unsigned();
        Tick::new(self.written(self.time.of(bits), bits))
    }

    /// The fields of an ID.
    ///
    /// # Errors
    /// [`LayoutError::NotAnId`] if a bit outside the fields is set, or a fixed
    /// bit is another: no generator with this layout can have made it.
    pub fn decode(self, id: SnowflakeId) -> Result<Fields, LayoutError> {
        let bits = id.get().cast_unsigned();
        if bits & !ones(self.width) != 0 || bits & self.fixed_mask != self.fixed {
            return Err(LayoutError::NotAnId {
                id: id.get(),
                bits: self.width,
            });
        }
        Ok(Fields {
            tick: self.tick_of_id(id),
            worker: extract(bits, self.worker_mask),
            sequence: self.sequence.of(bits),
            clock: self.clock.of(bits),
        })
    }

    /// Least and greatest ID of a tick, over all workers.
    ///
    /// # Errors
    /// [`LayoutError::Unordered`] where IDs do not sort by time.
    pub const fn range_of(self, tick: Tick) -> Result<(SnowflakeId, SnowflakeId), LayoutError> {
        match self.disorder() {
            Some(Disorder::NegativeFrom(at)) if self.instant_of(tick).get() < at.get() => {}
            Some(disorder) => return Err(LayoutError::Unordered(disorder)),
            None => {}
        }
        let least = tick.get() << self.time.shift | self.fixed;
        let varies = ones(self.width) & !self.fixed_mask & !self.time.mask();
        Ok((
            SnowflakeId::new(least.cast_signed()),
            SnowflakeId::new((least | varies).cast_signed()),
        ))
    }

    /// Why this layout cannot take over from `before`, IDs of which exist:
    /// `None` if it can. Then all its IDs of an instant are greater than all
    /// those of `before`, and an ID of one is at most one of the other.
    #[must_use]
    pub fn change_from(self, before: Self) -> Option<Change> {
        let wider = Self {
            epoch: self.epoch,
            time: Span {
                bits: self.time.bits,
                ..before.time
            },
            width: self.width,
            last_tick: self.last_tick,
            within_bits: self.within_bits,
            ..before
        };
        if self.tick_millis != before.tick_millis {
            Some(Change::Tick)
        } else if self.epoch > before.epoch {
            Some(Change::LaterEpoch)
        } else if self.time.bits < before.time.bits {
            Some(Change::NarrowerTime)
        } else if self != wider
            || self.width != before.width
                && (before.written != Written::Plain
                    || before.time.shift + before.time.bits != before.width)
        {
            Some(Change::Fields)
        } else {
            None
        }
    }
}

/// Why IDs of another layout could repeat those that exist, or sort before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The tick differs.
    Tick,
    /// The epoch is later.
    LaterEpoch,
    /// The time field has fewer bits.
    NarrowerTime,
    /// Other fields, places or fixed values.
    Fields,
}

/// The bits that all IDs have that a server issues: see [`Layout::stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// From its stored form.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The stored form.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A field's value, if it is in range.
///
/// # Errors
/// [`LayoutError::FieldRange`].
pub fn in_range(field: &str, value: i64, max: u64) -> Result<u64, LayoutError> {
    u64::try_from(value)
        .ok()
        .filter(|v| *v <= max)
        .ok_or_else(|| LayoutError::FieldRange {
            field: field.to_string(),
            value,
            max,
        })
}

#[cfg(all(test, not(loom)))]
// Binary literals are grouped by field.
#[allow(clippy::unusual_byte_groupings)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const D: Layout = Layout::DEFAULT;

    /// Time, worker and sequence, as most layouts have it.
    fn plain(
        epoch: i64,
        tick: i64,
        time: u32,
        worker: u32,
        sequence: u32,
    ) -> Result<Layout, Misfit> {
        let fields = [
            (Role::Time, time),
            (Role::Worker, worker),
            (Role::Sequence, sequence),
        ];
        Layout::new(epoch, tick, &fields)
    }

    fn any_role() -> impl Strategy<Value = (Role, u32)> {
        let fixed = (1..=16u32).prop_flat_map(|bits| {
            (0..1u64 << bits).prop_map(move |value| (Role::Fixed(value), bits))
        });
        prop_oneof![
            (1..=16u32).prop_map(|bits| (Role::Worker, bits)),
            fixed,
            (1..=6u32).prop_map(|bits| (Role::Clock, bits)),
        ]
    }

    /// Any fields in any order, the time written in any way.
    fn any_layout() -> impl Strategy<Value = Layout> {
        let time = prop_oneof![
            Just(vec![Role::Time]),
            Just(vec![Role::TimeReversed]),
            Just(vec![Role::TimeByMode, Role::Mode(Some(0))]),
            Just(vec![Role::TimeByMode, Role::Mode(Some(1))]),
        ];
        let fields = (
            time,
            1..=45u32,
            1..=31u32,
            prop::collection::vec(any_role(), 0..5),
        );
        let fields = fields.prop_flat_map(|(time, time_bits, sequence_bits, mut fields)| {
            fields.push((Role::Sequence, sequence_bits));
            for role in time {
                let bits = if matches!(role, Role::Mode(_)) {
                    1
                } else {
                    time_bits
                };
                fields.push((role, bits));
            }
            Just(fields).prop_shuffle()
        });
        (0..=EPOCH_MAX, 1..=10_000i64, fields)
            .prop_filter_map("a layout", |(e, t, fields)| Layout::new(e, t, &fields).ok())
    }

    fn worker(layout: Layout, any: u64) -> WorkerId {
        WorkerId::new(i32::try_from(any & layout.max_worker()).unwrap()).unwrap()
    }

    #[test]
    fn default_is_frozen() {
        assert_eq!(D.epoch.get(), 1_735_689_600_000);
        assert_eq!(Ok(D), plain(1_735_689_600_000, 1, 41, 10, 12));
        assert_eq!(D.max_worker(), 1023);
        assert_eq!(D.width(), 63);
        assert_eq!(D.disorder(), None);
        assert!(D.increases() && !D.can_be_negative());
        assert_eq!(
            D.range_of(D.last_tick()).unwrap().1,
            SnowflakeId::new(i64::MAX)
        );
        assert_eq!(
            D.instant_of(D.last_tick()).get(),
            1_735_689_600_000 + (1 << 41) - 1
        );
        // Worked by hand: tick 1, worker 2, sequence 3.
        let id = D.encode(Tick::new(1), 2, 3).unwrap();
        assert_eq!(id.get(), (1 << 22) + (2 << 12) + 3);
    }

    #[test]
    fn parts_of_the_worker_id_lie_apart() {
        // Worked by hand: 3 bits of the worker ID, a flag, 2 more bits.
        let layout = Layout::new(
            0,
            1,
            &[
                (Role::Time, 4),
                (Role::Worker, 3),
                (Role::Fixed(1), 1),
                (Role::Worker, 2),
                (Role::Sequence, 2),
            ],
        )
        .unwrap();
        let id = layout.encode(Tick::new(5), 0b10110, 3).unwrap();
        assert_eq!(id.get(), 0b0101_101_1_10_11);
        assert_eq!(layout.decode(id).unwrap().worker, 0b10110);
        // The flag is part of what an ID is.
        assert!(layout.decode(SnowflakeId::new(0b0101_101_0_10_11)).is_err());
        let (least, greatest) = layout.range_of(Tick::new(5)).unwrap();
        assert_eq!(least.get(), 0b0101_000_1_00_00);
        assert_eq!(greatest.get(), 0b0101_111_1_11_11);
    }

    #[test]
    fn reversed_time_spreads() {
        let reversed = |role, mode: &[(Role, u32)]| {
            let mut fields = vec![(role, 4), (Role::Sequence, 2)];
            fields.extend_from_slice(mode);
            Layout::new(0, 1, &fields).unwrap()
        };
        let spread = reversed(Role::TimeReversed, &[]);
        assert_eq!(spread.encode(Tick::new(1), 0, 3).unwrap().get(), 0b1000_11);
        assert_eq!(spread.disorder(), Some(Disorder::Reversed));
        assert!(!spread.increases());
        // A column of both kinds decodes by the flag.
        let (zero, one) = ((Role::Mode(Some(0)), 1), (Role::Mode(Some(1)), 1));
        let (zero, one) = (
            reversed(Role::TimeByMode, &[zero]),
            reversed(Role::TimeByMode, &[one]),
        );
        let (a, b) = (
            zero.encode(Tick::new(1), 0, 3).unwrap(),
            one.encode(Tick::new(1), 0, 3).unwrap(),
        );
        assert_eq!((a.get(), b.get()), (0b1000_11_0, 0b0001_11_1));
        for layout in [zero, one] {
            assert_eq!(layout.decode(a), layout.decode(b));
        }
    }

    #[test]
    fn signs() {
        let wide = |fields: &[(Role, u32)]| Layout::new(0, 1, fields).unwrap();
        let discord = wide(&[(Role::Time, 42), (Role::Worker, 10), (Role::Sequence, 12)]);
        let turn = UnixMillis::new(1 << 41);
        assert_eq!(discord.disorder(), Some(Disorder::NegativeFrom(turn)));
        assert!(discord.can_be_negative());
        assert!(discord.range_of(Tick::new((1 << 41) - 1)).is_ok());
        assert!(discord.range_of(Tick::new(1 << 41)).is_err());
        // A fixed sign keeps the order.
        for (sign, negative) in [(0, false), (1, true)] {
            let fixed = wide(&[
                (Role::Fixed(sign), 1),
                (Role::Time, 41),
                (Role::Worker, 10),
                (Role::Sequence, 12),
            ]);
            assert_eq!(fixed.disorder(), None);
            assert_eq!(fixed.can_be_negative(), negative);
            let (a, b) = (
                fixed.range_of(Tick::new(7)).unwrap(),
                fixed.range_of(Tick::new(8)).unwrap(),
            );
            assert!(a.0 < a.1 && a.1 < b.0 && (a.0.get() < 0) == negative);
        }
        let below = wide(&[(Role::Worker, 10), (Role::Time, 41), (Role::Sequence, 12)]);
        assert_eq!(below.disorder(), Some(Disorder::TimeBelow));
    }

    #[test]
    fn refuses_what_makes_no_layout() {
        use Role::{Clock, Fixed, Mode, Sequence, Time, TimeByMode, TimeReversed, Worker};
        let refused = |fields: &[(Role, u32)], why| {
            assert_eq!(Layout::new(0, 1, fields), Err(why), "{fields:?}");
        };
        assert_eq!(plain(-1, 1, 41, 10, 12), Err(Misfit::Epoch));
        assert_eq!(plain(EPOCH_MAX + 1, 1, 41, 10, 12), Err(Misfit::Epoch));
        assert_eq!(plain(0, 0, 41, 10, 12), Err(Misfit::Tick));
        assert_eq!(plain(0, 10_001, 41, 10, 12), Err(Misfit::Tick));
        let bits = |field, max| Misfit::Bits { field, max };
        refused(&[(Time, 0), (Sequence, 12)], bits(0, 45));
        refused(&[(Time, 46), (Sequence, 12)], bits(0, 45));
        refused(&[(Time, 41), (Sequence, 0)], bits(1, 31));
        refused(&[(Time, 41), (Worker, 0), (Sequence, 1)], bits(1, 31));
        refused(
            &[(Time, 41), (Fixed(0), u32::MAX), (Sequence, 1)],
            bits(1, 63),
        );
        refused(
            &[(Time, 41), (Sequence, 12), (Time, 5)],
            Misfit::Twice { field: 0 },
        );
        refused(
            &[(Time, 41), (TimeReversed, 5), (Sequence, 1)],
            Misfit::Twice { field: 0 },
        );
        refused(&[(Sequence, 12)], Misfit::NoTime);
        refused(&[(Time, 12)], Misfit::NoSequence);
        refused(&[(TimeByMode, 12), (Sequence, 1)], Misfit::Mode);
        refused(&[(Time, 12), (Mode(None), 1), (Sequence, 1)], Misfit::Mode);
        refused(
            &[(Time, 41), (Fixed(8), 3), (Sequence, 1)],
            Misfit::Value { field: 1, max: 7 },
        );
        refused(
            &[(Time, 42), (Worker, 11), (Sequence, 12)],
            Misfit::Width { bits: 65 },
        );
        refused(
            &[(Time, 41), (Clock, 10), (Sequence, 12)],
            Misfit::PositionWidth { bits: 63 },
        );
        refused(
            &[(Time, 12), (Worker, 16), (Worker, 16), (Sequence, 12)],
            Misfit::WorkerWidth { bits: 32 },
        );
    }

    #[test]
    fn refuses_what_does_not_fit() {
        for (worker, sequence, field, value, max) in [
            (1024, 0, "worker_id", 1024, 1023),
            (-1, 0, "worker_id", -1, 1023),
            (0, 4096, "sequence", 4096, 4095),
        ] {
            assert_eq!(
                D.encode(Tick::new(0), worker, sequence),
                Err(LayoutError::FieldRange {
                    field: field.to_string(),
                    value,
                    max
                })
            );
        }
        assert_eq!(
            D.decode(SnowflakeId::new(-1)),
            Err(LayoutError::NotAnId { id: -1, bits: 63 })
        );
        assert_eq!(WorkerId::new(-1), None);
        let worker = |id| WorkerId::new(id).unwrap();
        assert!(D.stamp(worker(1023)).is_ok());
        assert!(D.stamp(worker(1024)).is_err());
        // IDs without a worker ID do not care.
        let shard = [(Role::Time, 41), (Role::Fixed(5), 13), (Role::Sequence, 10)];
        let shard = Layout::new(0, 1, &shard).unwrap();
        assert_eq!(shard.stamp(worker(i32::MAX)), Ok(Stamp::new(5 << 10)));
    }

    #[test]
    fn instants_at_the_ends() {
        let first = 1_735_689_600_000;
        let last = first + (1 << 41) - 1;
        assert!(D.tick_at(UnixMillis::new(first - 1)).is_err());
        assert_eq!(D.tick_at(UnixMillis::new(first)), Ok(Tick::new(0)));
        assert_eq!(D.tick_at(UnixMillis::new(last)), Ok(D.last_tick()));
        assert_eq!(D.tick_within(UnixMillis::new(first - 1)), Tick::new(0));
        assert_eq!(D.tick_within(UnixMillis::new(first + 5)), Tick::new(5));
        assert_eq!(D.tick_within(UnixMillis::new(last + 1)), D.last_tick());
        assert_eq!(D.ids_per_second(), 4_096_000);
        assert!(D.tick_at(UnixMillis::new(last + 1)).is_err());
    }

    #[test]
    fn what_may_change() {
        use Role::{Sequence, Time, TimeReversed, Worker};
        let before = plain(1000, 10, 30, 8, 8).unwrap();
        let to = |layout: Result<Layout, Misfit>| layout.unwrap().change_from(before);
        assert_eq!(to(Ok(before)), None);
        assert_eq!(to(plain(999, 10, 30, 8, 8)), None);
        assert_eq!(to(plain(0, 10, 31, 8, 8)), None);
        assert_eq!(to(plain(1001, 10, 31, 8, 8)), Some(Change::LaterEpoch));
        assert_eq!(to(plain(1000, 10, 29, 8, 8)), Some(Change::NarrowerTime));
        assert_eq!(to(plain(1000, 1, 30, 8, 8)), Some(Change::Tick));
        assert_eq!(to(plain(1000, 10, 30, 9, 7)), Some(Change::Fields));
        assert_eq!(to(plain(1000, 10, 30, 9, 8)), Some(Change::Fields));
        // A wider time that is not on top moves what is above it.
        let low = |bits| Layout::new(0, 1, &[(Worker, 4), (Time, bits), (Sequence, 2)]).unwrap();
        assert_eq!(low(9).change_from(low(8)), Some(Change::Fields));
        // Reversed, a wider time moves all its bits.
        let spread = |bits| Layout::new(0, 1, &[(TimeReversed, bits), (Sequence, 2)]).unwrap();
        assert_eq!(spread(9).change_from(spread(8)), Some(Change::Fields));
    }

    proptest! {
        #[test]
        fn encode_and_decode_are_inverse(l in any_layout(), t: u64, w: u64, s: u64) {
            let fields = Fields {
                tick: Tick::new(t & l.last_tick().get()),
                worker: w & l.max_worker(),
                sequence: s & l.max_sequence(),
                clock: 0,
            };
            let id = l
                .encode(fields.tick, fields.worker.cast_signed(), fields.sequence.cast_signed())
                .unwrap();
            prop_assert_eq!(l.decode(id), Ok(fields));
            if let Ok((least, greatest)) = l.range_of(fields.tick) {
                prop_assert!(least <= id && id <= greatest);
            }
            // compose is encode for a position.
            let position = Position::new(l.place_of(fields.tick).get() | fields.sequence);
            let stamp = l.stamp(worker(l, w)).unwrap();
            prop_assert_eq!(l.compose(position, stamp), id);
            prop_assert_eq!(l.tick_of(position), fields.tick);
        }

        #[test]
        fn every_id_is_one_thing(l in any_layout(), id: i64) {
            if let Ok(f) = l.decode(SnowflakeId::new(id))
                && f.clock == 0
                && !matches!(l.written, Written::ByMode(_))
            {
                prop_assert_eq!(
                    l.encode(f.tick, f.worker.cast_signed(), f.sequence.cast_signed()),
                    Ok(SnowflakeId::new(id))
                );
            }
        }

        #[test]
        fn positions_order_as_ids(l in any_layout(), a: u64, b: u64, w: u64) {
            let top = l.place_of(l.last_tick()).get();
            let stamp = l.stamp(worker(l, w)).unwrap();
            let (a, b) = (Position::new(a % top), Position::new(b % top));
            let (x, y) = (l.compose(a, stamp), l.compose(b, stamp));
            prop_assert_eq!(a == b, x == y);
            if l.increases() && (l.disorder().is_none() || x.get() >= 0 && y.get() >= 0) {
                prop_assert_eq!(l.place(a).cmp(&l.place(b)), x.cmp(&y));
            }
        }

        #[test]
        fn ticks_do_not_overlap(l in any_layout(), t: u64) {
            let tick = Tick::new(t % l.last_tick().get().max(1));
            let next = Tick::new(tick.get() + 1);
            if let (Ok(a), Ok(b)) = (l.range_of(tick), l.range_of(next)) {
                prop_assert!(a.0 <= a.1 && a.1 < b.0);
            }
        }

        #[test]
        fn a_change_raises_ids(
            (l, m) in (any_layout(), 0..EPOCH_MAX, 0..4u32, any::<bool>()).prop_filter_map(
                "a wider layout",
                |(l, epoch, more, on_top)| {
                    let mut m = l;
                    m.epoch = UnixMillis::new(epoch.min(l.epoch.get()));
                    if on_top && l.time.shift + l.time.bits == l.width {
                        m.time.bits = (l.time.bits + more).min(TIME_BITS_MAX);
                        m.last_tick = Tick::new(ones(m.time.bits));
                        m.width = m.time.shift + m.time.bits;
                    }
                    (m.width <= 64 && m.time.bits + m.sequence.bits <= POSITION_BITS_MAX)
                        .then_some((l, m))
                },
            ),
            at in 0..1i64 << 46,
            w: u64,
        ) {
            // At the same instant and later, no new ID is an old one.
            let at = UnixMillis::new(at);
            if m.change_from(l).is_none()
                && let (Ok(old), Ok(new)) = (l.tick_at(at), m.tick_at(at))
                && m.instant_of(new) >= at
            {
                prop_assert!(new >= old);
                let id = |l: Layout, tick| {
                    l.encode(tick, (w & l.max_worker()).cast_signed(), 0).unwrap()
                };
                if new > old {
                    prop_assert_ne!(id(l, old), id(m, new));
                    if m.disorder().is_none() {
                        prop_assert!(id(l, old) < id(m, new));
                    }
                }
            } else if m.change_from(l).is_some() {
                prop_assert_ne!(l.written, Written::Plain);
            }
        }

        #[test]
        fn ticks_hold_their_instants(l in any_layout(), millis in 0..1i64 << 46) {
            let at = UnixMillis::new(millis);
            if let Ok(tick) = l.tick_at(at) {
                let start = l.instant_of(tick).get();
                prop_assert!(start <= millis && millis < start + l.tick_millis);
                let from = l.tick_from(at);
                prop_assert!(l.instant_of(from).get() >= millis);
                prop_assert!(from.get() - tick.get() <= 1);
            }
        }
    }
}
