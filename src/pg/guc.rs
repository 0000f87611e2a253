//! Settings. Defined only while the library is preloaded: without shared memory
//! they would mean nothing.

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_sys};

use crate::snowflake::id::Millis;
use crate::snowflake::server::Settings;

const WORKER_ID_UNSET: i32 = -1;

const MAX_GENERATORS_DEFAULT: i32 = 1024;
const MAX_GENERATORS_MIN: i32 = 1;
const MAX_GENERATORS_MAX: i32 = 65_536;

/// A quiet server reserves every half window while IDs are asked for: at 10 s, one WAL
/// record and flush per 5 s. After a restart, IDs resume at the mark, up to this far
/// ahead of the clock.
const RESERVE_MS_DEFAULT: i32 = 10_000;
const RESERVE_MS_MIN: i32 = 100;
const RESERVE_MS_MAX: i32 = 600_000;

const FAILOVER_GAP_MS_DEFAULT: i32 = 10_000;
const FAILOVER_GAP_MS_MAX: i32 = 3_600_000;

const MAX_CLOCK_JUMP_S_DEFAULT: i32 = 86_400;
const MAX_CLOCK_JUMP_S_MIN: i32 = 1;

static WORKER_ID: GucSetting<i32> = GucSetting::<i32>::new(WORKER_ID_UNSET);
static MAX_GENERATORS: GucSetting<i32> = GucSetting::<i32>::new(MAX_GENERATORS_DEFAULT);
static RESERVE: GucSetting<i32> = GucSetting::<i32>::new(RESERVE_MS_DEFAULT);
static FAILOVER_GAP: GucSetting<i32> = GucSetting::<i32>::new(FAILOVER_GAP_MS_DEFAULT);
static MAX_CLOCK_JUMP: GucSetting<i32> = GucSetting::<i32>::new(MAX_CLOCK_JUMP_S_DEFAULT);

/// Defines all settings. Called only in the postmaster, while it preloads.
pub fn define() {
    GucRegistry::define_int_guc(
        c"snowflake_id.worker_id",
        c"Worker ID of this server; no other server may have the same.",
        c"-1 means not set; then no IDs are issued.",
        &WORKER_ID,
        WORKER_ID_UNSET,
        i32::MAX,
        GucContext::Postmaster,
        GucFlags::empty(),
    );
    GucRegistry::define_int_guc(
        c"snowflake_id.max_generators",
        c"Number of generators whose state is kept in shared memory at a time.",
        c"If there are more generators, the state of one that no transaction uses is dropped, and later read back from its sequence. If all are in use, the server makes room for more.",
        &MAX_GENERATORS,
        MAX_GENERATORS_MIN,
        MAX_GENERATORS_MAX,
        GucContext::Postmaster,
        GucFlags::empty(),
    );
    GucRegistry::define_int_guc(
        c"snowflake_id.reserve",
        c"How far ahead of its clock a generator makes its mark durable.",
        c"Longer: fewer WAL flushes. Shorter: IDs are less far ahead of the clock after a crash.",
        &RESERVE,
        RESERVE_MS_MIN,
        RESERVE_MS_MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"snowflake_id.failover_gap",
        c"How much time a generator skips after a promotion or point-in-time recovery.",
        c"No acknowledged ID is issued twice if replication lag and clock difference together are shorter.",
        &FAILOVER_GAP,
        0,
        FAILOVER_GAP_MS_MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"snowflake_id.max_clock_jump",
        c"Largest forward jump of the wall clock that generators follow.",
        c"After a larger jump, no IDs are reserved until a superuser calls snowflake_accept_clock().",
        &MAX_CLOCK_JUMP,
        MAX_CLOCK_JUMP_S_MIN,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    // SAFETY: a constant, NUL-terminated name.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"snowflake_id".as_ptr()) };
}

/// `snowflake_id.worker_id`; -1 if it is not set.
pub fn worker_id() -> i32 {
    WORKER_ID.get()
}

/// `snowflake_id.max_generators`: the number of slots.
pub fn max_generators() -> usize {
    usize::try_from(MAX_GENERATORS.get()).unwrap_or(1)
}

/// The settings of the protocol, as they are now.
pub fn settings() -> Settings {
    Settings {
        reserve: Millis::new(i64::from(RESERVE.get())),
        failover_gap: Millis::new(i64::from(FAILOVER_GAP.get())),
        max_clock_jump: Millis::new(i64::from(MAX_CLOCK_JUMP.get())).times(1000),
    }
}
