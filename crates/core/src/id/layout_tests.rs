//! Layouts: which layouts there are, which bits their IDs have, and what a change of
//! layout may do.

use std::collections::BTreeSet;

use super::*;
use proptest::prelude::*;

const D: Layout = Layout::DEFAULT;

/// Whether the IDs of a clock increase: the time is above the sequence numbers,
/// and nothing is reversed.
fn increases(layout: Layout) -> bool {
    layout.written == TimeForm::Plain && layout.sequence.shift < layout.time.shift
}

/// Time, worker and sequence, as in most layouts.
fn plain(
    epoch: i64,
    tick: i64,
    time: u32,
    worker: u32,
    sequence: u32,
) -> Result<Layout, FieldsError> {
    let fields = [
        (FieldRole::Time, time),
        (FieldRole::Worker, worker),
        (FieldRole::Sequence, sequence),
    ];
    Layout::new(UnixMillis::new(epoch), Millis::new(tick), &fields)
}

fn any_role() -> impl Strategy<Value = (FieldRole, u32)> {
    let fixed = (1..=16u32).prop_flat_map(|bits| {
        (0..1u64 << bits).prop_map(move |value| (FieldRole::Fixed(value), bits))
    });
    prop_oneof![
        (1..=16u32).prop_map(|bits| (FieldRole::Worker, bits)),
        (1..=16u32).prop_map(|bits| (FieldRole::Caller, bits)),
        fixed,
        (1..=6u32).prop_map(|bits| (FieldRole::Clock, bits)),
    ]
}

/// Any fields in any order, the time written in any way.
fn any_layout() -> impl Strategy<Value = Layout> {
    let time = prop_oneof![
        Just(vec![FieldRole::Time]),
        Just(vec![FieldRole::TimeReversed]),
        Just(vec![FieldRole::TimeByMode, FieldRole::Mode(Some(0))]),
        Just(vec![FieldRole::TimeByMode, FieldRole::Mode(Some(1))]),
    ];
    let fields = (
        time,
        prop_oneof![3 => 1..=45u32, 1 => 46..=63u32],
        1..=31u32,
        prop::collection::vec(any_role(), 0..5),
    );
    let fields = fields.prop_flat_map(|(time, time_bits, sequence_bits, mut fields)| {
        fields.push((FieldRole::Sequence, sequence_bits));
        for role in time {
            let bits = if matches!(role, FieldRole::Mode(_)) {
                1
            } else {
                time_bits
            };
            fields.push((role, bits));
        }
        Just(fields).prop_shuffle()
    });
    (0..=EPOCH_MAX.get(), 1..=10_000i64, fields).prop_filter_map("a layout", |(e, t, fields)| {
        Layout::new(UnixMillis::new(e), Millis::new(t), &fields).ok()
    })
}

/// Layouts that a generator can count in.
fn any_counted() -> impl Strategy<Value = Layout> {
    any_layout().prop_filter("positions", |l| l.position_bits() <= POSITION_BITS_MAX)
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
    assert!(increases(D) && !D.can_be_negative());
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
        UnixMillis::new(0),
        Millis::new(1),
        &[
            (FieldRole::Time, 4),
            (FieldRole::Worker, 3),
            (FieldRole::Fixed(1), 1),
            (FieldRole::Worker, 2),
            (FieldRole::Sequence, 2),
        ],
    )
    .unwrap();
    let id = layout.encode(Tick::new(5), 0b10110, 3).unwrap();
    assert_eq!(id.get(), 0b0101_101_1_10_11);
    assert_eq!(layout.decode(id).unwrap().worker, 0b10110);
    // The flag is part of an ID.
    assert!(layout.decode(SnowflakeId::new(0b0101_101_0_10_11)).is_err());
    let (least, greatest) = layout.range_of(Tick::new(5)).unwrap();
    assert_eq!(least.get(), 0b0101_000_1_00_00);
    assert_eq!(greatest.get(), 0b0101_111_1_11_11);
}

#[test]
fn what_a_caller_gives_varies() {
    let layout = |role| {
        let fields = [
            (FieldRole::Time, 4),
            (role, 3),
            (FieldRole::Worker, 2),
            (FieldRole::Sequence, 2),
        ];
        Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap()
    };
    let given = layout(FieldRole::Caller);
    assert!(given.takes_fields() && !layout(FieldRole::Fixed(5)).takes_fields());
    assert_eq!(given.max_worker(), 3);
    assert_eq!(given.disorder(), None);
    let stamp = given.stamp(WorkerId::new(2).unwrap()).unwrap();
    let position = Position::new(0b0110_01);
    let id = |caller: u64| given.compose(position, stamp.and(Stamp::new(caller << 4)));
    assert_eq!(id(0b101).get(), 0b0110_101_10_01);
    let fields = given.decode(id(0)).unwrap();
    for caller in 0..8 {
        let one = id(caller);
        assert_eq!(given.decode(one), Ok(fields));
        let (least, greatest) = given.range_of(Tick::new(6)).unwrap();
        assert!(least <= one && one <= greatest);
    }
    // Above the time, a caller's field destroys the order.
    let above = [
        (FieldRole::Caller, 3),
        (FieldRole::Time, 4),
        (FieldRole::Sequence, 2),
    ];
    let above = Layout::new(UnixMillis::new(0), Millis::new(1), &above).unwrap();
    assert_eq!(above.disorder(), Some(OrderError::TimeBelow));
}

#[test]
fn reversed_time_spreads() {
    let reversed = |role, mode: &[(FieldRole, u32)]| {
        let mut fields = vec![(role, 4), (FieldRole::Sequence, 2)];
        fields.extend_from_slice(mode);
        Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap()
    };
    let spread = reversed(FieldRole::TimeReversed, &[]);
    assert_eq!(spread.encode(Tick::new(1), 0, 3).unwrap().get(), 0b1000_11);
    assert_eq!(spread.disorder(), Some(OrderError::Reversed));
    assert!(!increases(spread));
    // A column of both kinds decodes by the flag.
    let (zero, one) = ((FieldRole::Mode(Some(0)), 1), (FieldRole::Mode(Some(1)), 1));
    let (zero, one) = (
        reversed(FieldRole::TimeByMode, &[zero]),
        reversed(FieldRole::TimeByMode, &[one]),
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
    let wide = |fields: &[(FieldRole, u32)]| {
        Layout::new(UnixMillis::new(0), Millis::new(1), fields).unwrap()
    };
    let discord = wide(&[
        (FieldRole::Time, 42),
        (FieldRole::Worker, 10),
        (FieldRole::Sequence, 12),
    ]);
    let turn = UnixMillis::new(1 << 41);
    assert_eq!(discord.disorder(), Some(OrderError::NegativeFrom(turn)));
    assert!(discord.can_be_negative());
    assert!(discord.range_of(Tick::new((1 << 41) - 1)).is_ok());
    assert!(discord.range_of(Tick::new(1 << 41)).is_err());
    // A fixed sign keeps the order.
    for (sign, negative) in [(0, false), (1, true)] {
        let fixed = wide(&[
            (FieldRole::Fixed(sign), 1),
            (FieldRole::Time, 41),
            (FieldRole::Worker, 10),
            (FieldRole::Sequence, 12),
        ]);
        assert_eq!(fixed.disorder(), None);
        assert_eq!(fixed.can_be_negative(), negative);
        let (a, b) = (
            fixed.range_of(Tick::new(7)).unwrap(),
            fixed.range_of(Tick::new(8)).unwrap(),
        );
        assert!(a.0 < a.1 && a.1 < b.0 && (a.0.get() < 0) == negative);
    }
    let below = wide(&[
        (FieldRole::Worker, 10),
        (FieldRole::Time, 41),
        (FieldRole::Sequence, 12),
    ]);
    assert_eq!(below.disorder(), Some(OrderError::TimeBelow));
}

#[test]
fn few_ticks_have_small_ids() {
    for roles in [
        [
            (FieldRole::Time, 4),
            (FieldRole::Worker, 2),
            (FieldRole::Sequence, 3),
        ],
        [
            (FieldRole::TimeReversed, 4),
            (FieldRole::Sequence, 3),
            (FieldRole::Worker, 2),
        ],
        [
            (FieldRole::Worker, 2),
            (FieldRole::Time, 4),
            (FieldRole::Sequence, 3),
        ],
        [
            (FieldRole::Sequence, 3),
            (FieldRole::Worker, 2),
            (FieldRole::Time, 4),
        ],
    ] {
        let layout = Layout::new(UnixMillis::new(0), Millis::new(1), &roles).unwrap();
        for bits in 0..12 {
            let ids = (0..1_i64 << bits.min(layout.width())).map(SnowflakeId::new);
            let ticks: BTreeSet<_> = ids.map(|id| layout.tick_of_id(id).get()).collect();
            assert_eq!(layout.ticks_below(bits), ticks.len() as u64, "{roles:?}");
        }
    }
    assert_eq!(Layout::DEFAULT.ticks_below(31), 512);
}

#[test]
fn refuses_what_makes_no_layout() {
    use FieldRole::{Clock, Fixed, Mode, Sequence, Time, TimeByMode, TimeReversed, Worker};
    let refused = |fields: &[(FieldRole, u32)], why| {
        assert_eq!(
            Layout::new(UnixMillis::new(0), Millis::new(1), fields),
            Err(why),
            "{fields:?}"
        );
    };
    assert_eq!(plain(-1, 1, 41, 10, 12), Err(FieldsError::Epoch));
    assert_eq!(
        plain(EPOCH_MAX.get() + 1, 1, 41, 10, 12),
        Err(FieldsError::Epoch)
    );
    assert_eq!(plain(0, 0, 41, 10, 12), Err(FieldsError::Tick));
    assert_eq!(plain(0, 10_001, 41, 10, 12), Err(FieldsError::Tick));
    let bits = |field, max| FieldsError::Bits { field, max };
    refused(&[(Time, 0), (Sequence, 12)], bits(0, 63));
    refused(&[(Time, 64), (Sequence, 12)], bits(0, 63));
    refused(&[(Time, 41), (Sequence, 0)], bits(1, 31));
    refused(&[(Time, 41), (Worker, 0), (Sequence, 1)], bits(1, 31));
    refused(
        &[(Time, 41), (Fixed(0), u32::MAX), (Sequence, 1)],
        bits(1, 63),
    );
    refused(
        &[(Time, 41), (Sequence, 12), (Time, 5)],
        FieldsError::Twice { field: 0 },
    );
    refused(
        &[(Time, 41), (TimeReversed, 5), (Sequence, 1)],
        FieldsError::Twice { field: 0 },
    );
    refused(&[(Sequence, 12)], FieldsError::NoTime);
    refused(&[(TimeByMode, 12), (Sequence, 1)], FieldsError::Mode);
    refused(
        &[(Time, 12), (Mode(None), 1), (Sequence, 1)],
        FieldsError::Mode,
    );
    refused(
        &[(Time, 41), (Fixed(8), 3), (Sequence, 1)],
        FieldsError::Value {
            field: 1,
            value: 8,
            max: 7,
        },
    );
    refused(
        &[(Time, 42), (Worker, 11), (Sequence, 12)],
        FieldsError::Width { bits: 65 },
    );
    refused(
        &[(Time, 63), (Clock, 1), (Sequence, 1)],
        FieldsError::Width { bits: 65 },
    );
    refused(
        &[(Time, 12), (Worker, 16), (Worker, 16), (Sequence, 12)],
        FieldsError::WorkerWidth { bits: 32 },
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
    // For IDs without a worker ID, any worker ID will do.
    let shard = [
        (FieldRole::Time, 41),
        (FieldRole::Fixed(5), 13),
        (FieldRole::Sequence, 10),
    ];
    let shard = Layout::new(UnixMillis::new(0), Millis::new(1), &shard).unwrap();
    assert_eq!(shard.stamp(worker(i32::MAX)), Ok(Stamp::new(5 << 10)));
}

#[test]
fn instants_at_the_ends() {
    let first = 1_735_689_600_000;
    let last = first + (1 << 41) - 1;
    assert!(D.tick_at(UnixMillis::new(first - 1), 0).is_err());
    assert_eq!(D.tick_at(UnixMillis::new(first), 0), Ok(Tick::new(0)));
    assert_eq!(D.tick_at(UnixMillis::new(last), 0), Ok(D.last_tick()));
    assert_eq!(D.tick_within(UnixMillis::new(first - 1)), Tick::new(0));
    assert_eq!(D.tick_within(UnixMillis::new(first + 5)), Tick::new(5));
    assert_eq!(D.tick_within(UnixMillis::new(last + 1)), D.last_tick());
    assert_eq!(D.ids_per_second(), 4_096_000);
    assert!(D.tick_at(UnixMillis::new(last + 1), 0).is_err());
}

/// CockroachDB's last tick lies in the middle of a millisecond.
#[test]
fn ticks_below_a_millisecond() {
    let fields = [(FieldRole::Time, 48), (FieldRole::Worker, 15)];
    let epoch = UnixMillis::new(1_420_070_400_000);
    let l = Layout::new(epoch, Millis::new(1), &fields).unwrap();
    let l = l.divided(100);
    let after = |millis| epoch.plus(Millis::new(millis));
    let (last, end) = (l.last_tick().get(), 2_814_749_767_106);
    for (millis, micros, tick, begins) in [
        (0, 0, 0, 0),
        (0, 9, 0, 0),
        (0, 10, 1, 10),
        (0, 999, 99, 990),
        (1, 0, 100, 0),
        (45_366_514_411, 47, 4_536_651_441_104, 40),
        (end, 559, last, 550),
    ] {
        let (at, tick) = (after(millis), Tick::new(tick));
        assert_eq!(l.tick_at(at, micros), Ok(tick));
        assert_eq!((l.instant_of(tick), l.micros_of(tick)), (at, begins));
        let id = l.encode(tick, 7, 0).unwrap();
        let fields = l.decode(id).unwrap();
        assert_eq!((fields.tick, fields.worker, fields.sequence), (tick, 7, 0));
        let range = l.range_of(tick).unwrap();
        assert_eq!(
            (range.0.get(), range.1.get()),
            (id.get() - 7, id.get() | 32767)
        );
    }
    assert!(l.tick_at(after(end), 560).is_err());
    assert!(l.tick_at(after(-1), 999).is_err());
    assert!(l.tick_at(UnixMillis::new(i64::MAX), 999).is_err());
    assert_eq!(l.end(), after(end));
    assert_eq!(l.lasting(199), Millis::new(1));
    assert_eq!(l.ids_per_second(), 100_000);
    assert!(l.encode(Tick::new(0), 0, 1).is_err());
    // Others have none.
    assert_eq!(D.micros_of(D.last_tick()), 0);
    assert_eq!(D.tick_at(D.epoch(), 999), Ok(Tick::new(0)));
}

/// Nothing overflows, whatever a layout makes of time: an instant past the last one
/// becomes the last one.
#[test]
fn a_time_that_outlives_all_clocks() {
    let (first, end) = (UnixMillis::new(0), UnixMillis::new(i64::MAX));
    let beginning = UnixMillis::new(i64::MIN);
    for time in [1, 41, 45, 48, 51, 61, 62, 63] {
        for tick in [1, 10, TICK_MAX.get()] {
            for epoch in [first, EPOCH_MAX] {
                let fields = [
                    (FieldRole::Time, time),
                    (FieldRole::Sequence, 64 - time.max(33)),
                ];
                let l = Layout::new(epoch, Millis::new(tick), &fields).unwrap();
                let last = l.last_tick();
                assert_eq!(last.get(), (1 << time) - 1);
                let exact = i128::from(epoch.get()) + i128::from(last.get()) * i128::from(tick);
                let ends = l.instant_of(last);
                assert_eq!(i128::from(ends.get()), exact.min(i128::from(i64::MAX)));
                assert_eq!(l.instant_of(Tick::new(u64::MAX)), end);
                for at in [first, epoch, ends, end] {
                    let within = l.tick_within(at);
                    assert!(within <= last && l.instant_of(within) <= at.max(epoch));
                    let from = l.tick_from(at);
                    assert!(l.instant_of(from) >= at);
                    if let Ok(tick) = l.tick_at(at, 0) {
                        assert_eq!(tick, within);
                    }
                }
                assert_eq!(l.tick_at(ends, 0), Ok(l.tick_within(ends)));
                assert!(l.tick_at(beginning, 0).is_err());
                assert_eq!(l.tick_within(beginning), Tick::new(0));
                assert_eq!(l.tick_from(beginning), Tick::new(0));
                assert_eq!(l.lasting(u64::MAX), Millis::new(i64::MAX));
                assert!(l.ticks_in(Millis::new(i64::MAX)) >= (i64::MAX / tick).unsigned_abs());
                let id = l.encode(last, 0, 1).unwrap();
                let fields = l.decode(id).unwrap();
                assert_eq!((fields.tick, fields.sequence), (last, 1));
                let range = l.range_of(Tick::new(0)).unwrap();
                assert!(range.0.get() == 0 && range.1 > range.0);
                assert_eq!(
                    l.through_clocks().is_some(),
                    l.position_bits() <= POSITION_BITS_MAX
                );
            }
        }
    }
    let negative = plain(0, 1, 48, 1, 15).unwrap();
    let turn = OrderError::NegativeFrom(UnixMillis::new(1 << 47));
    assert_eq!(negative.disorder(), Some(turn));
}

#[test]
fn what_may_change() {
    use FieldRole::{Sequence, Time, TimeReversed, Worker};
    let before = plain(1000, 10, 30, 8, 8).unwrap();
    let to = |layout: Result<Layout, FieldsError>| layout.unwrap().change_from(before);
    assert_eq!(to(Ok(before)), None);
    assert_eq!(to(plain(999, 10, 30, 8, 8)), None);
    assert_eq!(to(plain(0, 10, 31, 8, 8)), None);
    assert_eq!(
        to(plain(1001, 10, 31, 8, 8)),
        Some(LayoutChange::LaterEpoch)
    );
    assert_eq!(
        to(plain(1000, 10, 29, 8, 8)),
        Some(LayoutChange::NarrowerTime)
    );
    assert_eq!(to(plain(1000, 1, 30, 8, 8)), Some(LayoutChange::Tick));
    assert_eq!(to(plain(1000, 10, 30, 9, 7)), Some(LayoutChange::Fields));
    assert_eq!(to(plain(1000, 10, 30, 9, 8)), Some(LayoutChange::Fields));
    // A field that a caller gives is neither fixed nor a part of the worker ID.
    let with = |role| {
        let fields = [(Time, 30), (role, 4), (Worker, 4), (Sequence, 8)];
        Layout::new(UnixMillis::new(1000), Millis::new(10), &fields).unwrap()
    };
    let roles = [
        FieldRole::Caller,
        FieldRole::Fixed(5),
        FieldRole::Fixed(6),
        Worker,
    ];
    for (from, to) in roles.iter().flat_map(|from| roles.map(|to| (*from, to))) {
        let change = (from != to).then_some(LayoutChange::Fields);
        assert_eq!(with(to).change_from(with(from)), change, "{from:?} {to:?}");
    }
    // A wider time that is not on top moves the fields above it.
    let low = |bits| {
        Layout::new(
            UnixMillis::new(0),
            Millis::new(1),
            &[(Worker, 4), (Time, bits), (Sequence, 2)],
        )
        .unwrap()
    };
    assert_eq!(low(9).change_from(low(8)), Some(LayoutChange::Fields));
    // A wider reversed time moves all its bits.
    let spread = |bits| {
        Layout::new(
            UnixMillis::new(0),
            Millis::new(1),
            &[(TimeReversed, bits), (Sequence, 2)],
        )
        .unwrap()
    };
    assert_eq!(spread(9).change_from(spread(8)), Some(LayoutChange::Fields));
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
        if l.position_bits() > POSITION_BITS_MAX {
            return Ok(());
        }
        // compose is encode for a position.
        let position = Position::new(l.offset_of(fields.tick).get() | fields.sequence);
        let stamp = l.stamp(worker(l, w)).unwrap();
        prop_assert_eq!(l.compose(position, stamp), id);
        prop_assert_eq!(l.tick_of(position), fields.tick);
    }

    #[test]
    fn every_id_is_one_thing(l in any_layout(), id: i64) {
        if let Ok(f) = l.decode(SnowflakeId::new(id))
            && f.clock == 0
            && id.cast_unsigned() & l.caller_mask == 0
            && !matches!(l.written, TimeForm::ByMode(_))
        {
            prop_assert_eq!(
                l.encode(f.tick, f.worker.cast_signed(), f.sequence.cast_signed()),
                Ok(SnowflakeId::new(id))
            );
        }
    }

    #[test]
    fn a_position_is_a_clock_and_a_place(l in any_counted(), position: u64, clock: u64) {
        let l = l.through_clocks().unwrap_or(l);
        let position = Position::new(position >> (64 - POSITION_BITS_MAX));
        let offset = l.offset(position);
        prop_assert_eq!(l.at(l.clock_of(position), offset), position);
        let other = l.at(clock & (l.clocks() - 1), offset);
        prop_assert_eq!(other, l.at(clock & (l.clocks() - 1), l.offset(position)));
        prop_assert_eq!(l.clock_of(other), clock & (l.clocks() - 1));
        prop_assert_eq!(l.offset(other), offset);
        prop_assert_eq!(l.tick_of(other), l.tick_of(position));
        prop_assert_eq!(l.within(other), l.within(position));
    }

    #[test]
    fn positions_order_as_ids(l in any_counted(), a: u64, b: u64, w: u64) {
        let top = l.offset_of(l.last_tick()).get();
        let stamp = l.stamp(worker(l, w)).unwrap();
        let (a, b) = (Position::new(a % top), Position::new(b % top));
        let (x, y) = (l.compose(a, stamp), l.compose(b, stamp));
        prop_assert_eq!(a == b, x == y);
        if increases(l) && (l.disorder().is_none() || x.get() >= 0 && y.get() >= 0) {
            prop_assert_eq!(l.offset(a).cmp(&l.offset(b)), x.cmp(&y));
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
        (l, m) in (any_layout(), 0..EPOCH_MAX.get(), 0..4u32, any::<bool>()).prop_filter_map(
            "a wider layout",
            |(l, epoch, more, on_top)| {
                let mut m = l;
                m.epoch = UnixMillis::new(epoch.min(l.epoch.get()));
                if on_top && l.time.end() == l.width {
                    m.time.bits = (l.time.bits + more).min(TIME_BITS_MAX);
                    m.last_tick = Tick::new(ones(m.time.bits));
                    m.width = m.time.end();
                }
                (m.width <= 64 && m.position_bits() <= POSITION_BITS_MAX)
                    .then_some((l, m))
            },
        ),
        at in 0..1i64 << 46,
        w: u64,
    ) {
        // At the same instant and later, no new ID equals an old one.
        let at = UnixMillis::new(at);
        if m.change_from(l).is_none()
            && let (Ok(old), Ok(new)) = (l.tick_at(at, 0), m.tick_at(at, 0))
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
            prop_assert_ne!(l.written, TimeForm::Plain);
        }
    }

    #[test]
    fn ticks_hold_their_instants(l in any_layout(), millis in 0..1i64 << 46) {
        let at = UnixMillis::new(millis);
        if let Ok(tick) = l.tick_at(at, 0) {
            let start = l.instant_of(tick).get();
            prop_assert!(start <= millis && millis < start + l.tick.get());
            let from = l.tick_from(at);
            prop_assert!(l.instant_of(from).get() >= millis);
            prop_assert!(from.get() - tick.get() <= 1);
        }
    }
}
