//! Presets: the schemes that people run, under their names. **Frozen**: what a
//! label that names a preset means must never change.
//!
//! Where the original leaves something open, or does something that would issue IDs
//! twice, the text says what ours does.

/// A stock text with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    pub text: &'static str,
    /// Where the preset comes from, in one line.
    pub origin: &'static str,
}

/// The table of presets, two lines for each preset.
macro_rules! presets {
    ($($name:literal is $origin:literal: $text:literal;)*) => {
        [$(Preset { name: $name, text: $text, origin: $origin }),*]
    };
}

/// All presets, in the order in which they are shown.
pub const ALL: [Preset; 27] = presets! {
    "default" is "the default generator of this extension":
        "layout='time:41 worker:10 sequence:12' epoch=1735689600000 tick='1 ms' on_rollback=continue max_rollback='1 d' max_borrow='100 ms' on_exhausted=wait sequence_start='vibrate 63'";
    "twitter" is "Twitter Snowflake, 2010":
        "layout='time:41 datacenter:5 worker:5 sequence:12' epoch=1288834974657 on_rollback=error max_borrow=0 sequence_start=zero";
    "shardingsphere" is "Apache ShardingSphere's SNOWFLAKE; older versions count from local midnight of 2016-11-01, so give epoch then":
        "layout='time:41 worker:10 sequence:12' epoch=1477958400000 on_rollback=wait max_wait='10 ms' max_borrow=0 sequence_start='vibrate 1'";
    "ztesoft" is "a resource inventory that puts region and resource type into its IDs":
        "layout='time:38 region:6 resource_type:14 machine:2 sequence:3' epoch=1420041600000 on_rollback=error max_borrow=0 sequence_start=zero";
    "worker_queue" is "Zero, which takes worker IDs from a central queue and another one after a rollback":
        "layout='time:38 worker:15 sequence:10' epoch=1513785600000 on_rollback=next_worker max_wait='15 ms' max_borrow=0 sequence_start=zero";
    "uniqueid_time" is "java-uniqueid in mode TIME_SEQUENTIAL; the worker ID is generator (11 bits), then cluster (4)":
        "layout='time:42 sequence:6 generator_high:3 mode:1=1 generator_low:8 cluster:4' epoch=0 max_borrow=0 sequence_start=zero";
    "uniqueid_spread" is "java-uniqueid in mode SPREAD: the bits of the time reversed, against hot spots":
        "layout='time_reversed:42 sequence:6 generator_high:3 mode:1=0 generator_low:8 cluster:4' epoch=0 max_borrow=0 sequence_start=zero";
    "uniqueid" is "java-uniqueid in both modes, told apart by the mode flag; give mode=0 or mode=1 to generate":
        "layout='time_by_mode:42 sequence:6 generator_high:3 mode:1 generator_low:8 cluster:4' epoch=0 max_borrow=0 sequence_start=zero";
    "random_start" is "IDs that do not tell how many there are: the numbers of a tick in an order of its own; give an epoch":
        "layout='time:41 machine:10 sequence:12' on_rollback=error max_borrow=0 on_exhausted=error sequence_start=random";
    "multi_clock" is "goes on in another clock when the time is set back, and with on_exhausted=next_clock when a tick is used up; give an epoch":
        "layout='time:41 clock:4 machine:8 sequence:10' on_rollback=next_clock max_borrow=0 sequence_start=zero";
    "baidu" is "Baidu uid-generator; its cached mode borrows the future: max_borrow='1 h'":
        "layout='time:28 worker:22 sequence:13' epoch=1463673600000 tick='1 s' on_rollback=error max_borrow=0 sequence_start=zero";
    "leaf" is "Meituan Leaf in snowflake mode":
        "layout='time:41 worker:10 sequence:12' epoch=1288834974657 on_rollback=wait max_wait='5 ms' max_borrow=0 sequence_start=random";
    "sonyflake" is "Sony's Sonyflake: ticks of 10 ms, 65,536 machines":
        "layout='time:39 sequence:8 machine:16' epoch=1735689600000 tick='10 ms' sequence_start=zero";
    "instagram" is "Instagram's IDs by logical shard; give shard to make it the schema's, or else it is the worker ID":
        "layout='time:41 shard:13 sequence:10' epoch=1314220021721 sequence_start=zero";
    "discord" is "Discord's snowflakes":
        "layout='time:42 worker:5 process:5 sequence:12' epoch=1420070400000 sequence_start=zero";
    "mastodon" is "Mastodon's IDs, whose low bits are a hash and a count; give a layout with a worker ID to generate":
        "layout='time:48 sequence:16' epoch=0 sequence_start=random";
    "yitter" is "Yitter's IdGenerator: short IDs, and bursts of up to 2 s ahead of the clock":
        "layout='time:51 worker:6 sequence:6' epoch=1582136402000 max_borrow='2 s' sequence_start=zero";
    // A later start would leave numbers unused, of which a tick has only 64.
    "javascript" is "53 bits, exact as a JavaScript number":
        "layout='time:41 worker:6 sequence:6' epoch=1735689600000 sequence_start=zero";
    "pgedge" is "pgEdge's extension snowflake since 1.2; before that, layout='time:41 sequence:12 node:10'":
        "layout='time:41 node:10 sequence:12' epoch=1672531200000 sequence_start=zero";
    "pgactive" is "pgactive and BDR, function pgactive_snowflake_id_nextval()":
        "layout='time:40 node:10 sequence:14' epoch=1475796139634 sequence_start=zero";
    "pgdog" is "PgDog's unique_id()":
        "layout='time:41 node:10 sequence:12' epoch=1764184395000 on_rollback=wait max_wait='60 s' max_borrow=0 sequence_start=zero";
    "pgdog_compact" is "PgDog's IDs of 53 bits":
        "layout='time:41 node:6 sequence:6' epoch=1764184395000 on_rollback=wait max_wait='60 s' max_borrow=0 sequence_start=zero";
    "pg_snowid" is "the extension pg_snowid, and the Rust crate snowid":
        "layout='time:42 node:10 sequence:12' epoch=1704067200000 sequence_start=zero";
    "clickhouse" is "ClickHouse's generateSnowflakeID()":
        "layout='time:41 machine:10 sequence:12' epoch=0 sequence_start=zero";
    "cosid" is "CosId's MillisecondSnowflakeId; its IDs in seconds need a layout":
        "layout='time:41 machine:10 sequence:12' epoch=1577203200000 on_rollback=wait max_wait='2 s' max_borrow=0";
    "seata" is "Apache Seata's IdWorker, whose worker ID lies above the time":
        "layout='worker:10 time:41 sequence:12' epoch=1588435200000 sequence_start=zero";
    "cockroachdb" is "CockroachDB's unique_rowid(): ticks of 10 us, and no sequence; only decodes":
        "layout='time:48 node:15' epoch=1420070400000 tick='10 us'";
};

pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}
