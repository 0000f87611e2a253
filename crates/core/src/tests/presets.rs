//! Presets: each of them in numbers, and the IDs of the systems that they stand for.

use serde_json::Value;

use crate::id::layout::{LayoutError, OrderError, POSITION_BITS_MAX};
use crate::id::{Millis, SnowflakeId, Tick, UnixMillis};
use crate::label::presets;
use crate::label::{Label, timestamp_text};

fn label(text: &str) -> Label {
    Label::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// A preset as its users know it.
struct Expected {
    name: &'static str,
    layout: &'static str,
    epoch: &'static str,
    tick: &'static str,
    policy: &'static str,
    /// The preset's last tick, which is never issued.
    ends: &'static str,
    ids_per_second: u64,
    workers: u64,
    negative: Negative,
}

#[derive(Debug, PartialEq)]
enum Negative {
    Never,
    From(&'static str),
    /// Every odd millisecond.
    Odd,
}
use Negative::{From, Never, Odd};

/// The presets, with an epoch for those that have none.
const EXPECTED: [Expected; presets::ALL.len()] = [
    Expected {
        name: "default",
        layout: "time:41 worker:10 sequence:12",
        epoch: "2025-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start='vibrate 63'",
        ends: "2094-09-07 15:47:35.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "twitter",
        layout: "time:41 datacenter:5 worker:5 sequence:12",
        epoch: "2010-11-04 01:42:54.657+00",
        tick: "'1 ms'",
        policy: "on_rollback=error max_rollback='1 d' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2080-07-10 17:30:30.208+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "shardingsphere",
        layout: "time:41 worker:10 sequence:12",
        epoch: "2016-11-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=wait max_rollback='1 d' max_wait='10 ms' max_borrow=0 on_exhausted=wait sequence_start='vibrate 1'",
        ends: "2086-07-08 15:47:35.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "ztesoft",
        layout: "time:38 region:6 resource_type:14 machine:2 sequence:3",
        epoch: "2014-12-31 16:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=error max_rollback='1 d' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2023-09-17 02:58:26.943+00",
        ids_per_second: 8_000,
        workers: 4_194_304,
        negative: Never,
    },
    Expected {
        name: "worker_queue",
        layout: "time:38 worker:15 sequence:10",
        epoch: "2017-12-20 16:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=next_worker max_rollback='1 d' max_wait='15 ms' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2026-09-06 02:58:26.943+00",
        ids_per_second: 1_024_000,
        workers: 32_768,
        negative: Never,
    },
    Expected {
        name: "uniqueid_time",
        layout: "time:42 sequence:6 generator_high:3 mode:1=1 generator_low:8 cluster:4",
        epoch: "1970-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2109-05-15 07:35:11.103+00",
        ids_per_second: 64_000,
        workers: 32_768,
        negative: From("2039-09-07 15:47:35.552+00"),
    },
    Expected {
        name: "uniqueid_spread",
        layout: "time_reversed:42 sequence:6 generator_high:3 mode:1=0 generator_low:8 cluster:4",
        epoch: "1970-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2109-05-15 07:35:11.103+00",
        ids_per_second: 64_000,
        workers: 32_768,
        negative: Odd,
    },
    Expected {
        name: "uniqueid",
        layout: "time_by_mode:42 sequence:6 generator_high:3 mode:1 generator_low:8 cluster:4",
        epoch: "1970-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2109-05-15 07:35:11.103+00",
        ids_per_second: 64_000,
        workers: 32_768,
        negative: Odd,
    },
    Expected {
        name: "random_start",
        layout: "time:41 machine:10 sequence:12",
        epoch: "2025-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=error max_rollback='1 d' max_borrow=0 on_exhausted=error sequence_start=random",
        ends: "2094-09-07 15:47:35.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "multi_clock",
        layout: "time:41 clock:4 machine:8 sequence:10",
        epoch: "2025-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=next_clock max_rollback='1 d' max_wait='10 ms' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2094-09-07 15:47:35.551+00",
        ids_per_second: 1_024_000,
        workers: 256,
        negative: Never,
    },
    Expected {
        name: "baidu",
        layout: "time:28 worker:22 sequence:13",
        epoch: "2016-05-19 16:00:00+00",
        tick: "'1 s'",
        policy: "on_rollback=error max_rollback='1 d' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2024-11-20 13:24:15+00",
        ids_per_second: 8_192,
        workers: 4_194_304,
        negative: Never,
    },
    Expected {
        name: "leaf",
        layout: "time:41 worker:10 sequence:12",
        epoch: "2010-11-04 01:42:54.657+00",
        tick: "'1 ms'",
        policy: "on_rollback=wait max_rollback='1 d' max_wait='5 ms' max_borrow=0 on_exhausted=wait sequence_start=random",
        ends: "2080-07-10 17:30:30.208+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "sonyflake",
        layout: "time:39 sequence:8 machine:16",
        epoch: "2025-01-01 00:00:00+00",
        tick: "'10 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2199-03-19 03:28:58.870+00",
        ids_per_second: 25_600,
        workers: 65_536,
        negative: Never,
    },
    Expected {
        name: "instagram",
        layout: "time:41 shard:13 sequence:10",
        epoch: "2011-08-24 21:07:01.721+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2081-04-30 12:54:37.272+00",
        ids_per_second: 1_024_000,
        workers: 8192,
        negative: From("2046-06-27 17:00:49.497+00"),
    },
    Expected {
        name: "discord",
        layout: "time:42 worker:5 process:5 sequence:12",
        epoch: "2015-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2154-05-15 07:35:11.103+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: From("2084-09-06 15:47:35.552+00"),
    },
    Expected {
        name: "mastodon",
        layout: "time:48 sequence:16",
        epoch: "1970-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=random",
        ends: "10889-08-02 05:31:50.655+00",
        ids_per_second: 65_536_000,
        workers: 1,
        negative: From("6429-10-17 02:45:55.328+00"),
    },
    Expected {
        name: "yitter",
        layout: "time:51 worker:6 sequence:6",
        epoch: "2020-02-19 18:20:02+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='2 s' on_exhausted=wait sequence_start=zero",
        ends: "73376-10-30 14:34:47.247+00",
        ids_per_second: 64_000,
        workers: 64,
        negative: Never,
    },
    Expected {
        name: "javascript",
        layout: "time:41 worker:6 sequence:6",
        epoch: "2025-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2094-09-07 15:47:35.551+00",
        ids_per_second: 64_000,
        workers: 64,
        negative: Never,
    },
    Expected {
        name: "pgedge",
        layout: "time:41 node:10 sequence:12",
        epoch: "2023-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2092-09-06 15:47:35.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "pgactive",
        layout: "time:40 node:10 sequence:14",
        epoch: "2016-10-06 23:22:19.634+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2051-08-10 19:16:07.409+00",
        ids_per_second: 16_384_000,
        workers: 1024,
        negative: From("2034-03-09 21:19:13.522+00"),
    },
    Expected {
        name: "pgdog",
        layout: "time:41 node:10 sequence:12",
        epoch: "2025-11-26 19:13:15+00",
        tick: "'1 ms'",
        policy: "on_rollback=wait max_rollback='1 d' max_wait='1 min' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2095-08-03 11:00:50.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "pgdog_compact",
        layout: "time:41 node:6 sequence:6",
        epoch: "2025-11-26 19:13:15+00",
        tick: "'1 ms'",
        policy: "on_rollback=wait max_rollback='1 d' max_wait='1 min' max_borrow=0 on_exhausted=wait sequence_start=zero",
        ends: "2095-08-03 11:00:50.551+00",
        ids_per_second: 64_000,
        workers: 64,
        negative: Never,
    },
    Expected {
        name: "pg_snowid",
        layout: "time:42 node:10 sequence:12",
        epoch: "2024-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2163-05-15 07:35:11.103+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: From("2093-09-06 15:47:35.552+00"),
    },
    Expected {
        name: "clickhouse",
        layout: "time:41 machine:10 sequence:12",
        epoch: "1970-01-01 00:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2039-09-07 15:47:35.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "cosid",
        layout: "time:41 machine:10 sequence:12",
        epoch: "2019-12-24 16:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=wait max_rollback='1 d' max_wait='2 s' max_borrow=0 on_exhausted=wait sequence_start='vibrate 63'",
        ends: "2089-08-30 07:47:35.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "seata",
        layout: "worker:10 time:41 sequence:12",
        epoch: "2020-05-02 16:00:00+00",
        tick: "'1 ms'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2090-01-07 07:47:35.551+00",
        ids_per_second: 4_096_000,
        workers: 1024,
        negative: Never,
    },
    Expected {
        name: "cockroachdb",
        layout: "time:48 node:15",
        epoch: "2015-01-01 00:00:00+00",
        tick: "'10 us'",
        policy: "on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start=zero",
        ends: "2104-03-13 02:56:07.106+00",
        ids_per_second: 100_000,
        workers: 32_768,
        negative: Never,
    },
];

#[test]
fn presets_are_frozen() {
    for (preset, expected) in presets::ALL.iter().zip(EXPECTED) {
        let name = expected.name;
        assert_eq!(preset.name, name);
        let open = matches!(name, "random_start" | "multi_clock");
        assert_eq!(Label::parse(preset.text).is_err(), open, "{name}");
        let epoch = if open {
            "epoch='2025-01-01 00:00:00+00'"
        } else {
            ""
        };
        let label = label(&format!("preset={name} {epoch}"));
        let layout = label.layout();

        assert_eq!(label.layout_text(), expected.layout, "{name}");
        assert_eq!(timestamp_text(layout.epoch()), expected.epoch, "{name}");
        assert_eq!(
            label.to_string(),
            format!(
                "layout='{}' epoch='{}' tick={} {}",
                expected.layout, expected.epoch, expected.tick, expected.policy
            )
        );
        let ends = layout.instant_of(layout.last_tick());
        assert_eq!(timestamp_text(ends), expected.ends, "{name}");
        assert_eq!(layout.ids_per_second(), expected.ids_per_second, "{name}");
        assert_eq!(layout.max_worker() + 1, expected.workers, "{name}");
        let never = expected.negative == Never;
        assert_eq!(layout.can_be_negative(), !never, "{name}");
        match (expected.negative, layout.disorder()) {
            (Never, None) => assert_ne!(name, "seata"),
            (Never, Some(OrderError::TimeBelow)) => assert_eq!(name, "seata"),
            (Odd, Some(OrderError::Reversed)) => {}
            (From(expected), Some(OrderError::NegativeFrom(at))) => {
                assert_eq!(timestamp_text(at), expected, "{name}");
            }
            (expected, found) => panic!("{name}: {expected:?}, {found:?}"),
        }
        let only_decodes = matches!(name, "uniqueid" | "mastodon" | "cockroachdb");
        assert_eq!(label.check_generates().is_err(), only_decodes, "{name}");
    }
}

/// A vector of a system that the presets stand for.
struct Vector {
    system: String,
    /// The layout, by the name that the fitting label gives it.
    layout: String,
    epoch: i64,
    tick: Tick,
    /// All fields but the time.
    fields: Vec<(String, i64)>,
    id: SnowflakeId,
}

/// The vectors of `tests/vectors/ids.json`: IDs that the systems' own tests and
/// users have published, or that follow from their formulas (`derived`). Also
/// those that only a mistake can make.
fn vectors() -> Vec<Vector> {
    let text = include_str!("../../../../tests/vectors/ids.json");
    let all: Vec<Value> = serde_json::from_str(text).unwrap();
    all.iter().map(vector).collect()
}

fn vector(json: &Value) -> Vector {
    let number = |key: &str| json[key].as_i64().unwrap();
    let id: i64 = json["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(json["id_hex"], format!("{id:#018x}"));
    let epoch = number("epoch_ms");
    let unit = json["unit_us"].as_i64();
    let unit = unit.unwrap_or_else(|| 1000 * number("unit_ms"));
    let mut fields = vec![];
    let mut tick = 0;
    for (name, value) in json["fields"].as_object().unwrap() {
        let mut field = |name: &str, value| fields.push((name.to_string(), value));
        match (name.as_str(), value.as_i64()) {
            ("timestamp", Some(value)) => tick = value,
            // 11 bits, three of them above the mode and eight below.
            ("generator", Some(value)) => {
                field("generator_high", value >> 8);
                field("generator_low", value & 255);
            }
            ("resourceType", Some(value)) => field("resource_type", value),
            ("mode", None) => {
                assert_eq!(value, "SPREAD");
                field("mode", 0);
            }
            (name, Some(value)) => field(name, value),
            (name, None) => panic!("{name}"),
        }
    }
    let tick = Tick::new(tick.unsigned_abs());
    let since = number("timestamp_ms") - epoch;
    assert_eq!(since, tick.get().cast_signed() * unit / 1000);
    let layout = match &json["layout"] {
        Value::Array(fields) => {
            let fields = fields.iter().filter(|field| field[0] != "sign");
            let words = fields.map(|field| {
                let name = match field[0].as_str().unwrap() {
                    "timestamp" => "time",
                    "resourceType" => "resource_type",
                    name => name,
                };
                format!("{name}:{}", field[1])
            });
            words.collect::<Vec<_>>().join(" ")
        }
        diagram => {
            assert_eq!(
                diagram,
                "TTTTTTTT TTTTTTTT TTTTTTTT TTTTTTTT TTTTTTTT TTSSSSSS GGGMGGGG GGGGCCCC (big-endian 8 bytes)"
            );
            "time_reversed:42 sequence:6 generator_high:3 mode:1=0 generator_low:8 cluster:4"
                .to_string()
        }
    };
    Vector {
        system: json["system"].as_str().unwrap().to_string(),
        layout,
        epoch,
        tick,
        fields,
        id: SnowflakeId::new(id),
    }
}

/// The label for a vector: a preset, with the epoch of this user of the system, and for
/// systems whose fields are a setting or have changed, with the fields.
fn preset_of(vector: &Vector) -> &str {
    match vector.system.as_str() {
        "twitter (2010)" => "twitter",
        "java-uniqueid" => "uniqueid_spread",
        system => system,
    }
}

fn label_of(vector: &Vector) -> Label {
    let preset = preset_of(vector);
    let text = format!("preset={preset} epoch={}", vector.epoch);
    let widths = matches!(vector.system.as_str(), "baidu" | "twitter" | "pgedge");
    if widths {
        label(&format!("{text} layout='{}'", vector.layout))
    } else {
        let label = label(&text);
        assert_eq!(label.layout_text(), vector.layout, "{text}");
        label
    }
}

/// The presets of this project, and those whose systems have published no IDs.
const WITHOUT_IDS: [&str; 6] = [
    "default",
    "uniqueid_time",
    "uniqueid",
    "random_start",
    "sonyflake",
    "javascript",
];

#[test]
fn a_preset_has_ids_of_its_system() {
    let vectors = vectors();
    for preset in presets::ALL {
        let has_ids = vectors
            .iter()
            .any(|vector| preset_of(vector) == preset.name);
        let is_without = WITHOUT_IDS.contains(&preset.name);
        assert!(
            has_ids != is_without,
            "{}: tests/vectors/ids.json",
            preset.name
        );
    }
}

/// IDs that the systems made by mistake: ours refuses to make them.
const MISTAKES: [(&str, i64); 3] = [
    ("baidu", 33_969_564_322_693_120),
    ("baidu", 33_969_564_322_693_120),
    ("leaf", -9_223_372_036_854_775_793),
];

#[test]
fn ids_of_other_systems() {
    let (mistakes, good): (Vec<_>, Vec<_>) = vectors()
        .into_iter()
        .partition(|vector| MISTAKES.contains(&(vector.system.as_str(), vector.id.get())));
    assert_eq!((good.len(), mistakes.len()), (95, MISTAKES.len()));
    for vector in good {
        let label = label_of(&vector);
        let decoded = label.decode(vector.id).unwrap();
        assert_eq!(decoded.fields.tick, vector.tick, "{label}");
        let mut found: Vec<_> = decoded
            .named
            .iter()
            .filter(|(name, _)| *name != "time")
            .map(|(name, value)| ((*name).to_string(), value.cast_signed()))
            .collect();
        let mut fields = vector.fields.clone();
        assert_eq!(label.encode(vector.tick, &fields), Ok(vector.id), "{label}");
        found.sort();
        fields.sort();
        assert_eq!(found, fields, "{label}");
    }
}

/// A worker ID of 19 bits in a field of 18: its highest bit lands in the time, so
/// that the IDs of seconds 3954576 and 3954577 are the same.
#[test]
fn baidus_worker_id_out_of_range() {
    let two: Vec<_> = vectors()
        .into_iter()
        .filter(|vector| vector.id.get() == 33_969_564_322_693_120)
        .collect();
    let ticks: Vec<_> = two.iter().map(|vector| vector.tick.get()).collect();
    assert_eq!(ticks, [3_954_577, 3_954_576]);
    for vector in two {
        let label = label_of(&vector);
        assert_eq!(
            label.encode(vector.tick, &vector.fields),
            Err(LayoutError::FieldRange {
                field: "worker".to_string(),
                value: 462_146,
                max: 262_143,
            })
        );
        // Taken alone, it is an ID of another worker: no reader can tell.
        let decoded = label.decode(vector.id).unwrap();
        let named = vec![("time", 3_954_577), ("worker", 200_002), ("sequence", 0)];
        assert_eq!(decoded.named, named);
    }
}

/// The tick after the last one, shifted into the sign.
#[test]
fn leafs_time_field_overflows() {
    let vectors = vectors();
    let id = SnowflakeId::new(-9_223_372_036_854_775_793);
    let vector = vectors.iter().find(|vector| vector.id == id).unwrap();
    let label = label_of(vector);
    let max = label.layout().last_tick().get();
    assert_eq!(vector.tick, Tick::new(max + 1));
    assert_eq!(
        label.encode(vector.tick, &vector.fields),
        Err(LayoutError::FieldRange {
            field: "time".to_string(),
            value: 2_199_023_255_552,
            max,
        })
    );
    let not_an_id = LayoutError::NotAnId {
        id: id.get(),
        bits: 63,
    };
    assert_eq!(label.decode(id), Err(not_an_id));
}

/// Both modes of java-uniqueid: milliseconds, sequence, generator, cluster, ID in
/// mode TIME_SEQUENTIAL, ID in mode SPREAD.
const UNIQUEID: [(u64, i64, i64, i64, i64, i64); 6] = [
    (0, 0, 0, 0, 4096, 0),
    (1, 0, 0, 0, 4_198_400, i64::MIN),
    (
        1_767_225_600_000,
        17,
        1337,
        3,
        7_412_281_402_983_560_083,
        6_011_506_165_654_419,
    ),
    ((1 << 41) - 1, 63, 2047, 15, i64::MAX, -4_198_401),
    (1 << 41, 0, 1, 1, -9_223_372_036_854_771_695, 4_194_321),
    ((1 << 42) - 1, 63, 2047, 15, -1, -4097),
];

#[test]
fn both_modes_in_one_column() {
    let (time, spread) = (
        label("preset=uniqueid_time"),
        label("preset=uniqueid_spread"),
    );
    let column = label("preset=uniqueid");
    let (zero, one) = (
        label("preset=uniqueid mode=0"),
        label("preset=uniqueid mode=1"),
    );
    for (tick, sequence, generator, cluster, in_time, in_clock_seq_span) in UNIQUEID {
        let tick = Tick::new(tick);
        let fields = [
            ("sequence", sequence),
            ("generator_high", generator >> 8),
            ("generator_low", generator & 255),
            ("cluster", cluster),
        ];
        let mut fields: Vec<_> = fields.map(|(name, v)| (name.to_string(), v)).to_vec();
        let worker = (generator << 4 | cluster).unsigned_abs();
        for (mode, id, own, generates) in [
            (1, in_time, &time, &one),
            (0, in_clock_seq_span, &spread, &zero),
        ] {
            let id = SnowflakeId::new(id);
            assert_eq!(own.encode(tick, &fields), Ok(id));
            assert_eq!(generates.encode(tick, &fields), Ok(id));
            let decoded = own.decode(id).unwrap();
            assert_eq!((decoded.fields.tick, decoded.fields.worker), (tick, worker));
            // All IDs that a generator of this preset makes can be read.
            for label in [&column, &zero, &one] {
                assert_eq!(label.decode(id), Ok(decoded.clone()));
            }
            fields.push(("mode".to_string(), mode));
            assert_eq!(column.encode(tick, &fields), Ok(id));
            fields.pop();
        }
        // Each mode alone refuses the IDs of the other mode.
        for (label, id, mode) in [(&time, in_clock_seq_span, 0), (&spread, in_time, 1)] {
            let error = LayoutError::Fixed {
                id,
                field: "mode".to_string(),
                value: mode,
                fixed: 1 - mode,
            };
            assert_eq!(label.decode(SnowflakeId::new(id)), Err(error));
        }
    }
}

#[test]
fn a_time_that_is_over_can_be_read() {
    let over = label("preset=baidu");
    let last = SnowflakeId::new(i64::MAX);
    let tick = over.decode(last).unwrap().fields.tick;
    let at = UnixMillis::new(1_732_109_055_000);
    assert_eq!(over.layout().instant_of(tick), at);
    assert_eq!(timestamp_text(at), "2024-11-20 13:24:15+00");
}

/// The page for users says what the presets say, and its labels work.
#[test]
fn the_page_of_presets_is_right() {
    let page = include_str!("../../../../docs/presets.md");
    for (preset, expected) in presets::ALL.iter().zip(EXPECTED) {
        let row = format!("\n| `{}` | `{}` |\n", preset.name, preset.text);
        assert!(page.contains(&row), "{row}");
        let row = page.lines().find(|line| {
            let name = format!("| `{}` | ", preset.name);
            line.starts_with(&name) && line.split('|').count() == 8
        });
        let row = row.unwrap_or_else(|| panic!("no row of {}", preset.name));
        let has = |text: &str| assert!(row.contains(text), "{row}: {text}");
        has(&format!("| {} |", with_commas(expected.ids_per_second)));
        has(&format!("| {}", with_commas(expected.workers)));
        has(&format!("| {} |", expected.tick.trim_matches('\'')));
        if Label::parse(preset.text).is_ok() {
            has(&expected.ends[..10]);
        }
        match expected.negative {
            Never => has("| never |"),
            From(date) => has(&format!("| from {} |", &date[..10])),
            Odd => assert!(row.contains("odd") || row.contains("mode"), "{row}"),
        }
    }
    // The arguments that issue IDs now: all presets, each with what it needs and no more.
    let (_, now) = page.split_once("## What issues IDs now").unwrap();
    let (now, _) = now.split_once("## Differences").unwrap();
    let lines = now.lines().filter(|line| line.starts_with("preset => "));
    let mut names = vec![];
    for line in lines {
        let text = line
            .replace("fields => '{\"mode\": ", "mode='")
            .replace('}', "");
        let text = &text.replace(" => ", "=").replace("', ", "' ");
        let label = label(text);
        assert_eq!(label.check_generates(), Ok(()), "{text}");
        let name = line.split('\'').nth(1).unwrap();
        names.push(name);
        let bare = label_with_epoch(name);
        let has = |key: &str| text.contains(&format!(" {key}="));
        let is_wide = bare.layout().position_bits() > POSITION_BITS_MAX;
        assert_eq!(has("layout"), is_wide, "{text}");
        let lacks = bare.check_generates().is_err();
        assert_eq!(has("mode"), lacks && !is_wide, "{text}");
        let row = page
            .lines()
            .find(|l| l.starts_with(&format!("| `{name}` |")));
        let over = row.is_some_and(|row| row.contains(": over") || row.contains("from the epoch"));
        assert_eq!(has("epoch"), over, "{text}");
        for key in ["on_rollback", "max_wait", "on_exhausted", "sequence_start"] {
            assert!(!has(key), "{text}");
        }
    }
    names.dedup();
    let others = presets::ALL.map(|preset| preset.name);
    let others = others.into_iter().filter(|name| *name != "cockroachdb");
    assert_eq!(names, others.collect::<Vec<_>>());
    assert!(now.contains("except `mastodon`, and `cockroachdb`, which only decodes."));
    assert!(page.contains("calls wait for up to 15 ms (`max_wait`)"));
    let one = label_with_epoch("worker_queue").generator().policy;
    assert_eq!(one.max_wait, Millis::new(15));
    // All other labels in the page are understood.
    for text in page
        .split('`')
        .filter(|text| text.starts_with("preset=") && *text != "preset=...")
    {
        label(text);
    }
    // The page's statement on bursts.
    let (clocks, bursts) = (
        label_with_epoch("multi_clock"),
        label("preset=multi_clock epoch=0 on_exhausted=next_clock"),
    );
    let of_a_tick = |label: &Label| 1u64 << label.generator().layout.within_bits();
    assert_eq!((of_a_tick(&clocks), of_a_tick(&bursts)), (1024, 16_384));
    assert!(page.contains("16,384 IDs per ms"));
}

fn label_with_epoch(name: &str) -> Label {
    label(&format!("preset={name} epoch='2025-01-01 00:00:00+00'"))
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8(groups.join(&b',')).unwrap()
}
