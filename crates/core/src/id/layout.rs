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
//! [`crate::label`] knows their names.
//!
//! A **position** is what a generator counts. On one worker, positions and IDs map one
//! to one. They are also in the same order, unless the layout writes the time reversed
//! or below other fields, or the policy gives the order up. From high to low:
//!
//! ```text
//!  clock | tick | further | sequence
//! ```
//!
//! `tick` and `sequence` are the fields. The others are 0 unless the layout has a clock
//! field and the policy makes use of it. `clock` is the clock in force, to which a
//! rollback adds. `further` is in how many clocks after that one an exhausted tick has
//! continued. The sum of the two is the clock field.

pub use crate::id::Stamp;
use crate::id::shuffle::Shuffle;
use crate::id::{Millis, Offset, Position, SnowflakeId, Tick, UnixMillis, WorkerId};

/// The fields of one ID that every layout has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub tick: Tick,
    /// The server that issued it; 0 if the layout has no worker ID.
    pub worker: u64,
    pub sequence: u64,
    /// The layout's clock that issued the ID; 0 if there is only one.
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
    /// The caller gives a fixed field another value.
    Given {
        field: String,
        value: u64,
        fixed: u64,
    },
    /// The layout has no field of this name.
    Unknown(String),
    /// A field has no value.
    Missing(String),
    /// A value outside the range of its field: name, value, largest value.
    FieldRange { field: String, value: i64, max: u64 },
    /// An instant outside the layout's time: first and last instant it holds.
    InstantRange {
        at: UnixMillis,
        first: UnixMillis,
        last: UnixMillis,
    },
    /// IDs do not sort by time, so that a tick has no least and greatest ID.
    Unordered(OrderError),
}

/// Why the IDs of a layout do not sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The bits of the time are reversed.
    Reversed,
    /// Fields above the time vary.
    TimeBelow,
    /// From this instant on IDs are negative.
    NegativeFrom(UnixMillis),
}

/// What a field is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRole {
    /// Ticks since the epoch.
    Time,
    /// Ticks since the epoch, the lowest bit first, so that IDs spread.
    TimeReversed,
    /// One of these two, as the mode field says: reversed where it is 0.
    TimeByMode,
    Sequence,
    /// Counts changes of the clock.
    Clock,
    /// A part of the worker ID; the highest field has its highest bits.
    Worker,
    /// A value that is the same in all IDs of a generator.
    Fixed(u64),
    /// A value that the caller gives with each ID. IDs are unique without it.
    Caller,
    /// How the time is written: see [`FieldRole::TimeByMode`]. A generator needs a
    /// value; without one, a layout can only decode.
    Mode(Option<u64>),
}

impl FieldRole {
    /// Whether the field is the time, however that is written.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Time | Self::TimeReversed | Self::TimeByMode)
    }
}

/// Why fields make no layout. `field` is an index into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldsError {
    /// A field must have 1 to this many bits.
    Bits { field: usize, max: u32 },
    /// A second field of a role that only one field can have.
    Twice { field: usize },
    /// A value is too large for its field.
    Value { field: usize, value: u64, max: u64 },
    /// There is no time field.
    NoTime,
    /// A time that is written by mode needs a mode, and a mode such a time.
    Mode,
    /// All fields together have more than 64 bits.
    Width { bits: u32 },
    /// The parts of the worker ID have more than 31 bits.
    WorkerWidth { bits: u32 },
    /// The epoch is before 1970 or after 3084.
    Epoch,
    /// The tick is less than 1 ms or more than 10 s.
    Tick,
}

/// Most bits of the time field: an ID has one more at least, for the sequence.
pub const TIME_BITS_MAX: u32 = 63;
/// Most bits of the sequence field, and of the clock field.
pub const SEQUENCE_BITS_MAX: u32 = 31;
/// Most bits of the worker ID: a setting is a positive `int`.
pub const WORKER_BITS_MAX: u32 = 31;
/// Most bits of time, clock and sequence together, if a generator counts in them: two
/// bits are left so that additions cannot overflow.
pub const POSITION_BITS_MAX: u32 = 62;
/// The latest epoch: in the year 3084.
pub const EPOCH_MAX: UnixMillis = UnixMillis::new(1 << 45);
/// The longest tick.
pub const TICK_MAX: Millis = Millis::new(10_000);

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

    const fn extract(self, id: u64) -> u64 {
        id >> self.shift & ones(self.bits)
    }

    /// How many bits lie below the end of the field.
    const fn end(self) -> u32 {
        self.shift + self.bits
    }
}

/// How the time field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeForm {
    Plain,
    Reversed,
    /// As this bit of the ID says: plain if the bit is set.
    ByMode(u64),
}

/// Places and roles of the fields, epoch and tick. Always valid: the constructors
/// check. Whether a generator can count in a layout is another question: see
/// [`Layout::position_bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Layout {
    epoch: UnixMillis,
    tick: Millis,
    divisor: u64,
    time: Span,
    sequence: Span,
    clock: Span,
    written: TimeForm,
    width: u32,
    /// The bits of the worker ID, from all its parts.
    worker_mask: u64,
    /// The bits that callers give.
    caller_mask: u64,
    /// The bits that are the same in all IDs.
    fixed_mask: u64,
    /// The values of these bits, and what to issue in the mode field.
    fixed: u64,
    /// Stored, because the path of each ID would otherwise compute it from the widths.
    last_tick: Tick,
    sequence_mask: u64,
    /// The bits of a position below the tick.
    within_bits: u32,
}

/// Makes the functions that read a layout as it is stored.
macro_rules! read_access {
    ($($(#[$about:meta])* $name:ident: $kind:ty = $($field:ident).+;)*) => {
        impl Layout {$(
            $(#[$about])*
            pub const fn $name(self) -> $kind {
                self.$($field).+
            }
        )*}
    };
}

read_access! {
    /// The instant at which tick 0 begins.
    epoch: UnixMillis = epoch;
    /// How long a tick is; 1 ms if ticks are shorter.
    tick: Millis = tick;
    /// How many ticks are in that: more than 1 if ticks are shorter than 1 ms. Then a
    /// layout only decodes and encodes.
    divisor: u64 = divisor;
    sequence_bits: u32 = sequence.bits;
    /// Width of the clock field, 0 if there is none.
    clock_bits: u32 = clock.bits;
    /// Width of all fields together. With 64, IDs can be negative.
    width: u32 = width;
    max_sequence: u64 = sequence_mask;
    /// The last tick of the time field. It is never issued: its positions are the room
    /// for writing down "one past the end".
    last_tick: Tick = last_tick;
    /// How many bits of a position lie below the tick.
    within_bits: u32 = within_bits;
}

const fn ones(bits: u32) -> u64 {
    !u64::MAX.unbounded_shl(bits)
}

/// Puts the low bits of `value` where `mask` has ones, from the lowest up.
const fn scatter(mut value: u64, mut mask: u64) -> u64 {
    let mut bits = 0;
    while mask != 0 {
        bits |= (value & 1) << mask.trailing_zeros();
        value >>= 1;
        mask &= mask - 1;
    }
    bits
}

/// The inverse of [`scatter`].
const fn gather(bits: u64, mut mask: u64) -> u64 {
    let (mut value, mut offset) = (0, 0);
    while mask != 0 {
        value |= (bits >> mask.trailing_zeros() & 1) << offset;
        offset += 1;
        mask &= mask - 1;
    }
    value
}

impl Layout {
    /// The layout of the default generator. **Frozen**: stored indexes and
    /// partition bounds are computed from it.
    pub const DEFAULT: Self = match Self::new(
        UnixMillis::new(1_735_689_600_000),
        Millis::new(1),
        &[
            (FieldRole::Time, 41),
            (FieldRole::Worker, 10),
            (FieldRole::Sequence, 12),
        ],
    ) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    /// Makes a layout of fields from high to low, each with its bits. Fails with a
    /// [`FieldsError`], if the fields make no layout.
    // Indices: slices have no iterators in a const fn; `field` is below the length.
    #[allow(clippy::indexing_slicing)]
    pub const fn new(
        epoch: UnixMillis,
        tick: Millis,
        fields: &[(FieldRole, u32)],
    ) -> Result<Self, FieldsError> {
        if epoch.get() < 0 || epoch.get() > EPOCH_MAX.get() {
            return Err(FieldsError::Epoch);
        }
        if tick.get() < 1 || tick.get() > TICK_MAX.get() {
            return Err(FieldsError::Tick);
        }
        let mut layout = Self {
            epoch,
            tick,
            divisor: 1,
            time: Span::NONE,
            sequence: Span::NONE,
            clock: Span::NONE,
            written: TimeForm::Plain,
            width: 0,
            worker_mask: 0,
            caller_mask: 0,
            fixed_mask: 0,
            fixed: 0,
            last_tick: Tick::new(0),
            within_bits: 0,
            sequence_mask: 0,
        };
        let mut mode = Span::NONE;
        // From low to high: what is below a field is its shift.
        let mut field = fields.len();
        while field > 0 {
            field -= 1;
            let (role, bits) = fields[field];
            let shift = layout.width;
            // A layout can have several fields of any other role.
            let mut other = Span::NONE;
            let (only, max) = match role {
                FieldRole::Time | FieldRole::TimeReversed | FieldRole::TimeByMode => {
                    (&mut layout.time, TIME_BITS_MAX)
                }
                FieldRole::Sequence => (&mut layout.sequence, SEQUENCE_BITS_MAX),
                FieldRole::Clock => (&mut layout.clock, SEQUENCE_BITS_MAX),
                FieldRole::Mode(_) => (&mut mode, 1),
                FieldRole::Worker => (&mut other, WORKER_BITS_MAX),
                FieldRole::Fixed(_) | FieldRole::Caller => (&mut other, 63),
            };
            if shift <= 64 && (bits < 1 || bits > max) {
                return Err(FieldsError::Bits { field, max });
            }
            layout.width = shift.saturating_add(bits);
            if layout.width > 64 {
                // Add up the others: the error message has the bits of all.
                continue;
            }
            if only.bits > 0 {
                return Err(FieldsError::Twice { field });
            }
            *only = Span { shift, bits };
            let mask = only.mask();
            if let FieldRole::Fixed(value) | FieldRole::Mode(Some(value)) = role {
                let max = ones(bits);
                if value > max {
                    return Err(FieldsError::Value { field, value, max });
                }
                layout.fixed |= value << shift;
            }
            match role {
                FieldRole::TimeReversed => layout.written = TimeForm::Reversed,
                FieldRole::TimeByMode => layout.written = TimeForm::ByMode(0),
                FieldRole::Worker => layout.worker_mask |= mask,
                FieldRole::Fixed(_) => layout.fixed_mask |= mask,
                FieldRole::Caller => layout.caller_mask |= mask,
                _ => {}
            }
        }
        let bits = layout.width;
        if bits > 64 {
            return Err(FieldsError::Width { bits });
        }
        if layout.time.bits == 0 {
            return Err(FieldsError::NoTime);
        }
        match layout.written {
            TimeForm::ByMode(_) if mode.bits > 0 => layout.written = TimeForm::ByMode(mode.mask()),
            TimeForm::Plain | TimeForm::Reversed if mode.bits == 0 => {}
            _ => return Err(FieldsError::Mode),
        }
        let bits = layout.worker_mask.count_ones();
        if bits > WORKER_BITS_MAX {
            return Err(FieldsError::WorkerWidth { bits });
        }
        layout.last_tick = Tick::new(ones(layout.time.bits));
        layout.sequence_mask = ones(layout.sequence.bits);
        layout.within_bits = layout.sequence.bits;
        Ok(layout)
    }

    /// The same layout, with so many ticks in a tick of 1 ms.
    pub const fn divided(self, divisor: u64) -> Self {
        Self { divisor, ..self }
    }

    /// How many bits time, clock and sequence have together. With more than
    /// [`POSITION_BITS_MAX`], the functions on positions do not work: such a layout
    /// only decodes and encodes.
    pub const fn position_bits(self) -> u32 {
        self.time.bits + self.clock.bits + self.sequence.bits
    }

    /// The same layout, with positions that count on through all clocks of a tick.
    /// `None` if that makes positions too wide.
    #[must_use]
    pub const fn through_clocks(self) -> Option<Self> {
        if self.position_bits() + self.clock.bits > POSITION_BITS_MAX {
            return None;
        }
        Some(Self {
            within_bits: self.sequence.bits + self.clock.bits,
            ..self
        })
    }

    /// Whether the next sequence number of a tick gives the next integer.
    pub const fn counts_by_one(self) -> bool {
        self.sequence.shift == 0
    }

    /// Whether IDs carry the worker ID. If they do not, only the fixed fields
    /// distinguish the IDs of two servers.
    pub const fn has_worker(self) -> bool {
        self.worker_mask != 0
    }

    /// Whether callers give fields: see [`crate::label::Label::given`].
    pub const fn takes_fields(self) -> bool {
        self.caller_mask != 0
    }

    /// The largest worker ID; 0 if IDs carry none.
    pub const fn max_worker(self) -> u64 {
        ones(self.worker_mask.count_ones())
    }

    /// How many IDs fit into a second.
    pub const fn ids_per_second(self) -> u64 {
        (1 << self.within_bits) * 1000 * self.divisor / self.tick.get().cast_unsigned()
    }

    /// How many ticks have IDs below 2^`bits`, at most, whatever fixed fields say.
    pub const fn ticks_below(self, bits: u32) -> u64 {
        let of_time = bits.saturating_sub(self.time.shift);
        1 << if of_time < self.time.bits {
            of_time
        } else {
            self.time.bits
        }
    }

    pub const fn can_be_negative(self) -> bool {
        let sign = 1 << 63;
        self.width == 64 && (self.fixed_mask & sign == 0 || self.fixed & sign != 0)
    }

    /// Why IDs do not sort by time; `None` if all of them do. A layout whose IDs turn
    /// negative sorts by time until then.
    pub const fn disorder(self) -> Option<OrderError> {
        if !matches!(self.written, TimeForm::Plain) {
            return Some(OrderError::Reversed);
        }
        let above = ones(self.width) & !ones(self.time.end());
        if above & !self.fixed_mask != 0 {
            return Some(OrderError::TimeBelow);
        }
        if self.time.end() == 64 {
            let tick = Tick::new(1 << (self.time.bits - 1));
            return Some(OrderError::NegativeFrom(self.instant_of(tick)));
        }
        None
    }

    /// The instant at which a tick begins, or the last instant if the tick is past all
    /// instants. No clock comes near that: clocks end in 2262. If ticks are shorter than
    /// 1 ms, the millisecond that holds the tick: see [`Self::micros_of`].
    pub const fn instant_of(self, tick: Tick) -> UnixMillis {
        self.epoch.plus(self.lasting(tick.get()))
    }

    /// How many microseconds after [`Self::instant_of`] a tick begins.
    pub const fn micros_of(self, tick: Tick) -> u64 {
        tick.get() % self.divisor * 1000 / self.divisor
    }

    /// The instant at which the last tick begins: no ID is issued from then on.
    pub const fn end(self) -> UnixMillis {
        self.instant_of(self.last_tick)
    }

    /// The tick that holds an instant; negative before the epoch, and not
    /// bounded by the time field. This and what follows from it is for generators: it
    /// knows no ticks shorter than 1 ms.
    #[inline]
    pub const fn tick_number(self, at: UnixMillis) -> i64 {
        let since = at.since(self.epoch).get();
        match self.tick.get() {
            1 => since,
            tick => since.div_euclid(tick),
        }
    }

    /// The tick that holds an instant. Outside the layout's time it is the first or the
    /// last tick.
    pub fn tick_within(self, at: UnixMillis) -> Tick {
        Tick::new(self.tick_number(at).max(0).cast_unsigned()).min(self.last_tick())
    }

    /// The first tick that begins at or after an instant; not below 0.
    pub fn tick_from(self, at: UnixMillis) -> Tick {
        // The tick after that of the millisecond before.
        let tick = self.tick_number(at.plus(Millis::new(-1))).saturating_add(1);
        Tick::new(tick.max(0).cast_unsigned())
    }

    /// How many ticks cover a duration, at least 1.
    pub fn ticks_in(self, duration: Millis) -> u64 {
        let (tick, duration) = (self.tick.get(), duration.get().max(1));
        duration.unsigned_abs().div_ceil(tick.unsigned_abs())
    }

    pub const fn lasting(self, ticks: u64) -> Millis {
        let most = i64::MAX.cast_unsigned();
        let ticks = if ticks < most { ticks } else { most };
        // No division for generators.
        let ticks = if self.divisor == 1 {
            ticks
        } else {
            ticks / self.divisor
        };
        self.tick.times(ticks.cast_signed())
    }

    /// The tick that holds an instant, given as a millisecond and the microseconds in it.
    /// Fails with [`LayoutError::InstantRange`] before the epoch or past the last tick.
    pub fn tick_at(self, at: UnixMillis, micros: u64) -> Result<Tick, LayoutError> {
        let divisor = self.divisor.cast_signed();
        let tick = self.tick_number(at).saturating_mul(divisor);
        let tick = tick.saturating_add_unsigned(micros * self.divisor / 1000);
        match u64::try_from(tick) {
            Ok(tick) if tick <= self.last_tick.get() => Ok(Tick::new(tick)),
            _ => Err(LayoutError::InstantRange {
                at,
                first: self.epoch,
                last: self.end(),
            }),
        }
    }

    pub const fn clocks(self) -> u64 {
        1 << self.clock.bits
    }

    pub const fn tick_of(self, position: Position) -> Tick {
        Tick::new(position.get() >> self.within_bits & self.last_tick.get())
    }

    /// How many bits of a position lie below its clock.
    const fn offset_bits(self) -> u32 {
        self.within_bits + self.time.bits
    }

    /// The clock in force at a position.
    pub const fn clock_of(self, position: Position) -> u64 {
        position.get() >> self.offset_bits()
    }

    /// The rotation after a rotation, which takes the place of the clock in positions; `None` if
    /// there is no further one. The clock sequence of IDs stays 0.
    pub fn rotation_after(self, rotation: u64) -> Option<u64> {
        let next = rotation.checked_add(self.clocks())?;
        (next <= u64::MAX >> self.offset_bits()).then_some(next)
    }

    /// A position without its clock.
    pub const fn offset(self, position: Position) -> Offset {
        Offset::new(position.get() & ones(self.offset_bits()))
    }

    /// The position of an offset in a clock.
    pub const fn at(self, clock: u64, offset: Offset) -> Position {
        Position::new(offset.get() | clock << self.offset_bits())
    }

    /// The part of a position below its tick.
    pub const fn within(self, position: Position) -> u64 {
        position.get() & ones(self.within_bits)
    }

    /// The least offset of a tick.
    pub const fn offset_of(self, tick: Tick) -> Offset {
        Offset::new(tick.get() << self.within_bits)
    }

    pub const fn tick_in(self, offset: Offset) -> Tick {
        Tick::new(offset.get() >> self.within_bits)
    }

    /// The bits that all IDs of a worker have: its ID and the fixed fields. Fails with
    /// [`LayoutError::FieldRange`] if the worker ID does not fit. If IDs carry none,
    /// any worker ID fits.
    pub fn stamp(self, worker: WorkerId) -> Result<Stamp, LayoutError> {
        if self.has_worker() {
            in_range("worker_id", i64::from(worker.get()), self.max_worker())?;
        }
        Ok(self.stamp_with(u64::from(worker.get())))
    }

    const fn stamp_with(self, worker: u64) -> Stamp {
        Stamp::new(scatter(worker, self.worker_mask) | self.fixed)
    }

    /// The ID of a position, which the caller has checked to be below that of
    /// the last tick, with the bits of a worker.
    #[inline]
    pub const fn compose(&self, position: Position, stamp: Stamp) -> SnowflakeId {
        let tick = Tick::new(position.get() >> self.sequence.bits);
        self.id(tick, 0, position.get() & self.sequence_mask, stamp)
    }

    /// As [`Self::compose`], for positions that have a clock, and for sequence numbers
    /// in another order.
    pub fn compose_in(
        &self,
        position: Position,
        stamp: Stamp,
        shuffle: Option<&Shuffle>,
    ) -> SnowflakeId {
        let within = self.within(position);
        let further = within >> self.sequence.bits;
        let clock = (self.clock_of(position) + further) & ones(self.clock.bits);
        let tick = self.tick_of(position);
        let number = within & self.sequence_mask;
        let number = shuffle.map_or(number, |shuffle| {
            shuffle.number(tick.get(), clock, number) & self.sequence_mask
        });
        self.id(tick, clock, number, stamp)
    }

    #[inline]
    const fn id(&self, tick: Tick, clock: u64, sequence: u64, stamp: Stamp) -> SnowflakeId {
        let stamp = stamp.get();
        let count = clock << self.clock.shift | sequence << self.sequence.shift;
        SnowflakeId::new((self.time_field(tick, stamp) | count | stamp).cast_signed())
    }

    /// The time field of an ID, in its place. `id` has the mode field, if the
    /// layout has one; its other bits do not matter.
    pub const fn time_field(self, tick: Tick, id: u64) -> u64 {
        self.turned(tick.get(), id) << self.time.shift
    }

    /// Whether the time of an ID has its bits reversed. Only the mode field of `id`
    /// matters, if the layout has one.
    #[inline]
    pub const fn is_reversed(self, id: u64) -> bool {
        match self.written {
            TimeForm::Plain => false,
            TimeForm::Reversed => true,
            TimeForm::ByMode(bit) => id & bit == 0,
        }
    }

    /// Turns a tick into the form that this ID has, and the other way round.
    #[inline]
    const fn turned(self, time: u64, id: u64) -> u64 {
        if self.is_reversed(id) {
            time.reverse_bits() >> (64 - self.time.bits)
        } else {
            time
        }
    }

    /// Makes an ID of clock 0 from its fields. Fails with [`LayoutError::FieldRange`],
    /// which names the field.
    pub fn encode(
        self,
        tick: Tick,
        worker: i64,
        sequence: i64,
    ) -> Result<SnowflakeId, LayoutError> {
        let worker = in_range("worker_id", worker, self.max_worker())?;
        let sequence = in_range("sequence", sequence, self.max_sequence())?;
        in_range("time", tick.get().cast_signed(), self.last_tick.get())?;
        Ok(self.id(tick, 0, sequence, self.stamp_with(worker)))
    }

    /// The tick of an ID that this layout has made.
    pub const fn tick_of_id(self, id: SnowflakeId) -> Tick {
        let bits = id.get().cast_unsigned();
        Tick::new(self.turned(self.time.extract(bits), bits))
    }

    /// The fields of an ID. Fails with [`LayoutError::NotAnId`] if a bit outside the
    /// fields is set, or a fixed bit differs: no generator with this layout can have
    /// made the ID.
    pub fn decode(self, id: SnowflakeId) -> Result<Fields, LayoutError> {
        let bits = id.get().cast_unsigned();
        if bits & !ones(self.width) != 0 || (bits ^ self.fixed) & self.fixed_mask != 0 {
            return Err(LayoutError::NotAnId {
                id: id.get(),
                bits: self.width,
            });
        }
        Ok(Fields {
            tick: self.tick_of_id(id),
            worker: gather(bits, self.worker_mask),
            sequence: self.sequence.extract(bits),
            clock: self.clock.extract(bits),
        })
    }

    /// The least and the greatest ID of a tick, over all workers. Fails with
    /// [`LayoutError::Unordered`] where IDs do not sort by time.
    pub const fn range_of(self, tick: Tick) -> Result<(SnowflakeId, SnowflakeId), LayoutError> {
        match self.disorder() {
            Some(OrderError::NegativeFrom(at)) if self.instant_of(tick).get() < at.get() => {}
            Some(disorder) => return Err(LayoutError::Unordered(disorder)),
            None => {}
        }
        let least = self.time_field(tick, 0) | self.fixed;
        let varies = ones(self.width) & !self.fixed_mask & !self.time.mask();
        Ok((
            SnowflakeId::new(least.cast_signed()),
            SnowflakeId::new((least | varies).cast_signed()),
        ))
    }

    /// Why a generator with IDs of layout `before` cannot continue with this layout; `None`
    /// if it can. Then the IDs of this layout are greater than those that `before` has for
    /// the same instant. So the generator, whose instants only grow, repeats none.
    pub fn change_from(self, before: Self) -> Option<LayoutChange> {
        let mut allowed = before;
        (allowed.epoch, allowed.within_bits) = (self.epoch, self.within_bits);
        // Elsewhere, a wider time moves the fields above it, or its own reversed bits.
        if before.written == TimeForm::Plain && before.time.end() == before.width {
            allowed.time.bits = self.time.bits;
            (allowed.width, allowed.last_tick) = (self.width, self.last_tick);
        }
        let changes = [
            (self.tick != before.tick, LayoutChange::Tick),
            (self.epoch > before.epoch, LayoutChange::LaterEpoch),
            (
                self.time.bits < before.time.bits,
                LayoutChange::NarrowerTime,
            ),
            (self != allowed, LayoutChange::Fields),
        ];
        let first = changes.into_iter().find(|(is_so, _)| *is_so);
        first.map(|(_, change)| change)
    }
}

/// Why IDs of another layout could repeat those that exist, or sort before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutChange {
    Tick,
    LaterEpoch,
    NarrowerTime,
    /// Other fields, places or fixed values; also a field that callers give instead of
    /// another one. Without a worker ID, only fixed values distinguish the IDs of two
    /// servers, and a caller could give the value of the other server.
    Fields,
}

/// A field's value, if it is in range. Fails with [`LayoutError::FieldRange`].
pub fn in_range(field: &str, value: i64, max: u64) -> Result<u64, LayoutError> {
    match u64::try_from(value) {
        Ok(value) if value <= max => Ok(value),
        _ => Err(LayoutError::FieldRange {
            field: field.to_string(),
            value,
            max,
        }),
    }
}

#[cfg(all(test, not(loom)))]
#[path = "layout_tests.rs"]
// Binary literals are grouped by field.
#[allow(clippy::unusual_byte_groupings)]
mod tests;
