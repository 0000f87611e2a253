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
//! A **position** is an ID without the worker: `tick << sequence_bits |
//! sequence`. For one worker, positions and IDs map one to one and in the same
//! order, so a generator counts positions only.

use std::fmt;

/// A whole number of milliseconds since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMillis(i64);

impl UnixMillis {
    /// Any number of milliseconds is an instant.
    #[must_use]
    pub const fn new(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// The identity of one server in its cluster: 0 to 2^31 - 1 here, and at most
/// what the worker field of a [`Layout`] holds when it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId(u32);

impl WorkerId {
    /// `None` if negative: -1 is how a setting says "not set".
    #[must_use]
    pub fn new(id: i32) -> Option<Self> {
        u32::try_from(id).ok().map(Self)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A number of ticks since the epoch of a layout. Never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    /// A tick; whether a layout holds it is checked where it is used.
    #[must_use]
    pub const fn new(tick: u64) -> Self {
        Self(tick)
    }

    /// Ticks since the epoch.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// An ID without its worker: `tick << sequence_bits | sequence`, below 2^62.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u64);

impl Position {
    /// The least position. As a bound: nothing may be issued.
    pub const ZERO: Self = Self(0);

    /// A position from its stored form.
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

/// A 64-bit ID as PostgreSQL's `bigint` holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnowflakeId(i64);

impl SnowflakeId {
    /// Any `bigint`; whether a layout can have made it is checked on decoding.
    #[must_use]
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// The `bigint`.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// The fields of one ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Ticks since the layout's epoch.
    pub tick: Tick,
    /// The server that issued it.
    pub worker: u64,
    /// Its number within the tick.
    pub sequence: u64,
}

/// Why a value does not fit a layout. Carries the value and the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// No ID of this layout has these bits: the ID, and the layout's largest.
    NotAnId { id: i64, max: i64 },
    /// A field value outside its field: name, value, largest value.
    FieldRange {
        field: &'static str,
        value: i64,
        max: u64,
    },
    /// An instant outside the layout's time: first and last instant it holds.
    InstantRange {
        at: UnixMillis,
        first: UnixMillis,
        last: UnixMillis,
    },
}

/// Widths, epoch and tick of an ID, fields from high to low: time, worker,
/// sequence. Always valid: the constructor checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    epoch: UnixMillis,
    tick_millis: i64,
    time_bits: u32,
    worker_bits: u32,
    sequence_bits: u32,
}

/// `bits` ones. `bits` is at most 62 here, see [`Layout::new`].
const fn ones(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Layout {
    /// The layout of the default generator. **Frozen**: stored indexes and
    /// partition bounds are computed from it.
    pub const DEFAULT: Self = match Self::new(1_735_689_600_000, 1, 41, 10, 12) {
        Some(layout) => layout,
        None => unreachable!(),
    };

    /// A layout, or `None` unless every field has 1 to 45 bits (time) or 1 to
    /// 31 bits (worker, sequence), all together at most 63, the tick is 1 ms
    /// to 10 s, and the epoch is not before 1970.
    #[must_use]
    pub const fn new(
        epoch_millis: i64,
        tick_millis: i64,
        time_bits: u32,
        worker_bits: u32,
        sequence_bits: u32,
    ) -> Option<Self> {
        let widths_fit = 1 <= time_bits
            && time_bits <= 45
            && 1 <= worker_bits
            && worker_bits <= 31
            && 1 <= sequence_bits
            && sequence_bits <= 31
            && time_bits + worker_bits + sequence_bits <= 63;
        let tick_fits = 1 <= tick_millis && tick_millis <= 10_000;
        if !(widths_fit && tick_fits && epoch_millis >= 0 && epoch_millis <= 1 << 45) {
            return None;
        }
        Some(Self {
            epoch: UnixMillis(epoch_millis),
            tick_millis,
            time_bits,
            worker_bits,
            sequence_bits,
        })
    }

    /// Width of the sequence field.
    #[must_use]
    pub const fn sequence_bits(self) -> u32 {
        self.sequence_bits
    }

    /// The largest worker ID.
    #[must_use]
    pub const fn max_worker(self) -> u64 {
        ones(self.worker_bits)
    }

    /// The largest sequence number of a tick.
    #[must_use]
    pub const fn max_sequence(self) -> u64 {
        ones(self.sequence_bits)
    }

    /// How many IDs a second has room for.
    #[must_use]
    pub const fn ids_per_second(self) -> u64 {
        (self.max_sequence() + 1) * 1000 / self.tick_millis.cast_unsigned()
    }

    /// The last tick of the time field. It is never issued: its positions are
    /// the room in which "one past the end" can be written down.
    #[must_use]
    pub const fn last_tick(self) -> Tick {
        Tick(ones(self.time_bits))
    }

    /// The largest ID.
    #[must_use]
    pub const fn max_id(self) -> SnowflakeId {
        SnowflakeId(ones(self.time_bits + self.worker_bits + self.sequence_bits).cast_signed())
    }

    /// The instant at which a tick begins.
    #[must_use]
    pub const fn instant_of(self, tick: Tick) -> UnixMillis {
        // At most 2^45 ticks of 10^4 ms after 2^45 ms: below 2^59.
        UnixMillis(
            tick.0
                .cast_signed()
                .saturating_mul(self.tick_millis)
                .saturating_add(self.epoch.0),
        )
    }

    /// The tick that holds an instant; negative before the epoch, and not
    /// bounded by the time field.
    #[must_use]
    #[inline]
    pub const fn tick_number(self, at: UnixMillis) -> i64 {
        let since = at.0.saturating_sub(self.epoch.0);
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
        Tick(self.tick_number(at).max(0).cast_unsigned()).min(self.last_tick())
    }

    /// The first tick that begins at or after an instant, at least 0.
    #[must_use]
    pub const fn tick_from(self, at: UnixMillis) -> Tick {
        let floor = self.tick_number(at);
        if floor < 0 {
            return Tick(0);
        }
        let tick = Tick(floor.cast_unsigned());
        if self.instant_of(tick).0 < at.0 {
            Tick(tick.0 + 1)
        } else {
            tick
        }
    }

    /// How many ticks cover a duration, at least 1.
    #[must_use]
    pub const fn ticks_in(self, millis: i64) -> u64 {
        if millis <= self.tick_millis {
            return 1;
        }
        (millis.cast_unsigned()).div_ceil(self.tick_millis.cast_unsigned())
    }

    /// How long ticks last, in microseconds.
    #[must_use]
    pub fn ticks_as_micros(self, ticks: u64) -> i64 {
        i64::try_from(ticks)
            .unwrap_or(i64::MAX)
            .saturating_mul(self.tick_millis)
            .saturating_mul(1000)
    }

    /// The tick that holds an instant.
    ///
    /// # Errors
    /// [`LayoutError::InstantRange`] before the epoch or past the last tick.
    pub fn tick_at(self, at: UnixMillis) -> Result<Tick, LayoutError> {
        u64::try_from(self.tick_number(at))
            .ok()
            .map(Tick)
            .filter(|tick| *tick <= self.last_tick())
            .ok_or(LayoutError::InstantRange {
                at,
                first: self.epoch,
                last: self.instant_of(self.last_tick()),
            })
    }

    /// Splits a position. The tick is bounded by how positions are made.
    #[must_use]
    pub const fn tick_of(self, position: Position) -> Tick {
        Tick(position.0 >> self.sequence_bits)
    }

    /// The least position of a tick.
    #[must_use]
    pub const fn position_of(self, tick: Tick) -> Position {
        Position(tick.0 << self.sequence_bits)
    }

    /// The ID of a position on a worker.
    ///
    /// The caller has checked that the worker fits ([`Self::check_worker`])
    /// and that the position is below that of the last tick.
    #[must_use]
    #[inline]
    pub const fn compose(self, position: Position, worker: WorkerId) -> SnowflakeId {
        let tick = position.0 >> self.sequence_bits;
        let sequence = position.0 & ones(self.sequence_bits);
        let worker = (worker.0 as u64) << self.sequence_bits;
        SnowflakeId(
            (tick << (self.worker_bits + self.sequence_bits) | worker | sequence).cast_signed(),
        )
    }

    /// Whether the worker field holds this ID.
    ///
    /// # Errors
    /// [`LayoutError::FieldRange`].
    pub fn check_worker(self, worker: WorkerId) -> Result<(), LayoutError> {
        self.field("worker_id", i64::from(worker.0), self.max_worker())
            .map(drop)
    }

    /// An ID from its fields.
    ///
    /// # Errors
    /// [`LayoutError::FieldRange`] names the field that is out of range.
    pub fn encode(
        self,
        tick: Tick,
        worker: i64,
        sequence: i64,
    ) -> Result<SnowflakeId, LayoutError> {
        let worker = self.field("worker_id", worker, self.max_worker())?;
        let sequence = self.field("sequence", sequence, self.max_sequence())?;
        let tick = self.field("time", tick.0.cast_signed(), self.last_tick().0)?;
        Ok(SnowflakeId(
            (tick << (self.worker_bits + self.sequence_bits)
                | worker << self.sequence_bits
                | sequence)
                .cast_signed(),
        ))
    }

    /// The fields of an ID.
    ///
    /// # Errors
    /// [`LayoutError::NotAnId`] if a bit outside the fields is set: no
    /// generator with this layout can have made it.
    pub fn decode(self, id: SnowflakeId) -> Result<Fields, LayoutError> {
        let max = self.max_id();
        if id.0 < 0 || id > max {
            return Err(LayoutError::NotAnId {
                id: id.0,
                max: max.0,
            });
        }
        let bits = id.0.cast_unsigned();
        Ok(Fields {
            tick: Tick(bits >> (self.worker_bits + self.sequence_bits)),
            worker: bits >> self.sequence_bits & self.max_worker(),
            sequence: bits & self.max_sequence(),
        })
    }

    /// The least ID of a tick, over all workers.
    #[must_use]
    pub const fn min_id_of(self, tick: Tick) -> SnowflakeId {
        SnowflakeId((tick.0 << (self.worker_bits + self.sequence_bits)).cast_signed())
    }

    /// The greatest ID of a tick, over all workers.
    #[must_use]
    pub const fn max_id_of(self, tick: Tick) -> SnowflakeId {
        let below = ones(self.worker_bits + self.sequence_bits);
        SnowflakeId(self.min_id_of(tick).0 | below.cast_signed())
    }

    fn field(self, field: &'static str, value: i64, max: u64) -> Result<u64, LayoutError> {
        u64::try_from(value)
            .ok()
            .filter(|v| *v <= max)
            .ok_or(LayoutError::FieldRange { field, value, max })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "time:{} worker:{} sequence:{}",
            self.time_bits, self.worker_bits, self.sequence_bits
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const D: Layout = Layout::DEFAULT;

    fn any_layout() -> impl Strategy<Value = Layout> {
        (
            0..=1i64 << 45,
            1..=10_000i64,
            1..=45u32,
            1..=31u32,
            1..=31u32,
        )
            .prop_filter_map("at most 63 bits", |(e, t, a, b, c)| {
                Layout::new(e, t, a, b, c)
            })
    }

    #[test]
    fn default_is_frozen() {
        assert_eq!(D.epoch.get(), 1_735_689_600_000);
        assert_eq!(D.to_string(), "time:41 worker:10 sequence:12");
        assert_eq!(D.max_id().get(), i64::MAX);
        assert_eq!(
            D.instant_of(D.last_tick()).get(),
            1_735_689_600_000 + (1 << 41) - 1
        );
        // Worked by hand: tick 1, worker 2, sequence 3.
        let id = D.encode(Tick::new(1), 2, 3).unwrap();
        assert_eq!(id.get(), (1 << 22) + (2 << 12) + 3);
    }

    #[test]
    fn shards_of_shardingsphere_decode_with_its_epoch() {
        // time, worker, sequence and ID as that system publishes them.
        let layout = Layout::new(1_477_929_600_000, 1, 41, 10, 12).unwrap();
        let fields = layout
            .decode(SnowflakeId::new(854_658_443_787_632_640))
            .unwrap();
        assert_eq!(
            fields,
            Fields {
                tick: Tick::new(203_766_451_785),
                worker: 0,
                sequence: 0
            }
        );
        assert_eq!(layout.instant_of(fields.tick).get(), 1_681_696_051_785);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let refused = |e, t, a, b, c| assert_eq!(Layout::new(e, t, a, b, c), None);
        refused(-1, 1, 41, 10, 12);
        refused(0, 0, 41, 10, 12);
        refused(0, 10_001, 41, 10, 12);
        refused(0, 1, 42, 10, 12);
        refused(0, 1, 0, 10, 12);
        refused(0, 1, 41, 0, 12);
        refused(0, 1, 41, 10, 0);
        for (worker, sequence, field, max) in [
            (1024, 0, "worker_id", 1023),
            (-1, 0, "worker_id", 1023),
            (0, 4096, "sequence", 4095),
        ] {
            let value = if field == "sequence" {
                sequence
            } else {
                worker
            };
            assert_eq!(
                D.encode(Tick::new(0), worker, sequence),
                Err(LayoutError::FieldRange { field, value, max })
            );
        }
        assert_eq!(
            D.decode(SnowflakeId::new(-1)),
            Err(LayoutError::NotAnId {
                id: -1,
                max: i64::MAX
            })
        );
        assert_eq!(WorkerId::new(-1), None);
        assert!(D.check_worker(WorkerId::new(1023).unwrap()).is_ok());
        assert!(D.check_worker(WorkerId::new(1024).unwrap()).is_err());
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

    proptest! {
        #[test]
        fn encode_and_decode_are_inverse(l in any_layout(), t: u64, w: u64, s: u64) {
            let fields = Fields {
                tick: Tick::new(t & l.last_tick().get()),
                worker: w & l.max_worker(),
                sequence: s & l.max_sequence(),
            };
            let id = l
                .encode(fields.tick, fields.worker.cast_signed(), fields.sequence.cast_signed())
                .unwrap();
            prop_assert_eq!(l.decode(id), Ok(fields));
            prop_assert!(l.min_id_of(fields.tick) <= id && id <= l.max_id_of(fields.tick));
            // compose is encode for a position.
            let position = Position::new(l.position_of(fields.tick).get() | fields.sequence);
            let worker = WorkerId::new(i32::try_from(fields.worker).unwrap()).unwrap();
            prop_assert_eq!(l.compose(position, worker), id);
            prop_assert_eq!(l.tick_of(position), fields.tick);
        }

        #[test]
        fn every_id_is_one_thing(l in any_layout(), id: i64) {
            match l.decode(SnowflakeId::new(id)) {
                Ok(f) => prop_assert_eq!(
                    l.encode(f.tick, f.worker.cast_signed(), f.sequence.cast_signed()),
                    Ok(SnowflakeId::new(id))
                ),
                Err(_) => prop_assert!(id < 0 || id > l.max_id().get()),
            }
        }

        #[test]
        fn positions_order_as_ids(l in any_layout(), a: u64, b: u64, w: u64) {
            let top = l.position_of(l.last_tick()).get();
            let worker = WorkerId::new(i32::try_from(w & l.max_worker()).unwrap()).unwrap();
            let (a, b) = (Position::new(a % top), Position::new(b % top));
            prop_assert_eq!(a.cmp(&b), l.compose(a, worker).cmp(&l.compose(b, worker)));
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
