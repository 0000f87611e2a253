//! Settings. Defined only while the library is preloaded: without shared memory
//! they would mean nothing.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_sys};

use super::{compat, error, start_file};
use snowflake_core::id::{Millis, WorkerId};
use snowflake_core::protocol::plan::Settings;
use snowflake_registry_client::etcd::url::{self, Url};
use snowflake_registry_client::libpq::Conninfo;

const WORKER_ID_UNSET: i32 = -1;

const MAX_LEASED_GENERATORS_DEFAULT: i32 = 8;
const MAX_LEASED_GENERATORS_MAX: i32 = 1024;

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

/// What a generator may borrow is the only limit.
const MAX_OBSERVE_UNSET: i32 = -1;

static WORKER_ID: GucSetting<i32> = GucSetting::<i32>::new(WORKER_ID_UNSET);
static WORKER_ID_FROM: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static REGISTRY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static POOL: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"default"));
static GENERATOR_POOL: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static HORIZON_DATABASES: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c""));
static MAX_LEASED_GENERATORS: GucSetting<i32> =
    GucSetting::<i32>::new(MAX_LEASED_GENERATORS_DEFAULT);
static MAX_GENERATORS: GucSetting<i32> = GucSetting::<i32>::new(MAX_GENERATORS_DEFAULT);
static RESERVE: GucSetting<i32> = GucSetting::<i32>::new(RESERVE_MS_DEFAULT);
static FAILOVER_GAP: GucSetting<i32> = GucSetting::<i32>::new(FAILOVER_GAP_MS_DEFAULT);
static MAX_CLOCK_JUMP: GucSetting<i32> = GucSetting::<i32>::new(MAX_CLOCK_JUMP_S_DEFAULT);
static MAX_OBSERVE_AHEAD: GucSetting<i32> = GucSetting::<i32>::new(MAX_OBSERVE_UNSET);

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
    GucRegistry::define_string_guc(
        c"snowflake_id.worker_id_from",
        c"Where the worker ID comes from if \"snowflake_id.worker_id\" is not set.",
        c"'hostname': the number after the last hyphen of the host name; 'env NAME': a variable of the server's environment.",
        &WORKER_ID_FROM,
        GucContext::Postmaster,
        GucFlags::empty(),
    );
    // SAFETY: the hook is guarded.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"snowflake_id.registry",
            c"Registry that leases worker IDs to servers: a database, or etcd.",
            c"A libpq conninfo or URL without a password, or 'etcd://HOST:PORT,.../PREFIX?OPTION=VALUE&...'; empty means no registry. Passwords belong in files.",
            &REGISTRY,
            GucContext::Sighup,
            GucFlags::SUPERUSER_ONLY,
            Some(check_registry),
            None,
            None,
        );
    }
    GucRegistry::define_string_guc(
        c"snowflake_id.pool",
        c"Pool of the registry from which this server leases its worker ID.",
        c"snowflake_create_pool() makes a pool in the registry.",
        &POOL,
        GucContext::Sighup,
        GucFlags::empty(),
    );
    GucRegistry::define_string_guc(
        GENERATOR_POOL_NAME,
        c"Pool of the registry from which generators with on_rollback=next_worker lease worker IDs.",
        c"It should not be the pool of the servers. Empty means that there is none. Roles with the privilege SET on this parameter may own such generators.",
        &GENERATOR_POOL,
        GucContext::Sighup,
        GucFlags::empty(),
    );
    GucRegistry::define_string_guc(
        c"snowflake_id.horizon_databases",
        c"Databases of this server whose rows snowflake_cluster_horizon() is for.",
        c"Names with commas between them. The server reports to its registry how far their IDs can be read. Empty: it reports nothing.",
        &HORIZON_DATABASES,
        GucContext::Sighup,
        GucFlags::empty(),
    );
    GucRegistry::define_int_guc(
        c"snowflake_id.max_leased_generators",
        c"Number of generators of this server that can lease worker IDs of their own.",
        c"Those with on_rollback=next_worker.",
        &MAX_LEASED_GENERATORS,
        0,
        MAX_LEASED_GENERATORS_MAX,
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
        c"snowflake_id.reserve_ahead",
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
    GucRegistry::define_int_guc(
        c"snowflake_id.max_observe_ahead",
        c"How far ahead of a generator's clock an ID may be that snowflake_observe() is given.",
        c"The generator's max_borrow is a limit too. -1 means that there is no other one; 0 refuses what is ahead of the clock.",
        &MAX_OBSERVE_AHEAD,
        MAX_OBSERVE_UNSET,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    // SAFETY: a constant, NUL-terminated name.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"snowflake_id".as_ptr()) };
}

/// Refuses a registry in etcd that could not be used; and a text that libpq cannot read, or
/// one with a password: PostgreSQL writes the settings that a reload changes to the log. What
/// else libpq needs, it finds in other places too.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn check_registry(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL gives a place with a NUL-terminated text, or with NULL.
    let text = unsafe {
        if (*value).is_null() {
            return true;
        }
        CStr::from_ptr(*value).to_string_lossy()
    };
    let text = text.trim();
    let checked = match url::is_etcd(text) {
        false if text.is_empty() => return true,
        false => check_conninfo(text),
        true => Url::parse(text).and_then(|url| url.check_files()),
    };
    checked
        .map_err(|why| compat::explain_refused_setting(c"snowflake_id.registry", &why))
        .is_ok()
}

/// Fails with a sentence, which quotes nothing.
fn check_conninfo(text: &str) -> Result<(), String> {
    let server = Conninfo::parse(text);
    let server = server.map_err(|_| {
        "It is neither a libpq conninfo nor a URL; one of etcd begins with etcd://.".to_string()
    })?;
    match server.has_secret() {
        false => Ok(()),
        true => Err(
            "It has a password, which the log would show: put the password into the password \
             file of the server's operating system user, or name a file by \"passfile\"."
                .to_string(),
        ),
    }
}

/// Where the worker ID of the settings comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Setting,
    Hostname,
    Env,
    /// The settings give none.
    None,
}

/// The worker ID of the settings. Found by the postmaster, whose children inherit it.
static FOUND: OnceLock<(Option<WorkerId>, Source)> = OnceLock::new();

/// The worker ID of the settings, and where it comes from. First called by the
/// postmaster, which warns of a value that gives none.
pub fn worker() -> (Option<WorkerId>, Source) {
    *FOUND.get_or_init(|| {
        if let Some(worker) = WorkerId::new(WORKER_ID.get()) {
            return (Some(worker), Source::Setting);
        }
        let from = text(&WORKER_ID_FROM);
        match worker_from(&from) {
            Ok((worker, source)) => (worker, source),
            Err(why) => {
                error::keeper::worker_id_from(&from, &why).warning();
                (None, Source::None)
            }
        }
    })
}

/// What a value of `snowflake_id.worker_id_from` gives; or why nothing, as a sentence.
fn worker_from(from: &str) -> Result<(Option<WorkerId>, Source), String> {
    let mut words = from.split_ascii_whitespace();
    let (text, source, what) = match (words.next(), words.next(), words.next()) {
        (None, ..) => return Ok((None, Source::None)),
        (Some("hostname"), None, None) => {
            let host = start_file::host_name();
            let name = host.split('.').next().unwrap_or_default();
            let (_, number) = name.rsplit_once('-').unwrap_or_default();
            let what = format!("The host name is \"{host}\"");
            (number.to_string(), Source::Hostname, what)
        }
        (Some("env"), Some(name), None) => {
            let value = std::env::var(name).unwrap_or_default();
            let what = format!("Variable \"{name}\" of the server's environment is \"{value}\"");
            (value.trim().to_string(), Source::Env, what)
        }
        _ => return Err("There is no such source.".to_string()),
    };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    match number.and_then(WorkerId::new) {
        Some(worker) => Ok((Some(worker), source)),
        None => Err(format!(
            "{what}, which gives no number from 0 to {}.",
            i32::MAX
        )),
    }
}

/// The worker ID of the settings.
pub fn worker_id() -> Option<WorkerId> {
    worker().0
}

/// `snowflake_id.registry`: empty if there is none.
pub fn registry() -> String {
    text(&REGISTRY)
}

/// `snowflake_id.pool`.
pub fn pool() -> String {
    text(&POOL)
}

/// The setting that names the pool of generators with worker IDs of their own. SET on it is the
/// least privilege to lease from that pool.
pub const GENERATOR_POOL_NAME: &CStr = c"snowflake_id.generator_pool";

/// `snowflake_id.generator_pool`: empty if there is none.
pub fn generator_pool() -> String {
    text(&GENERATOR_POOL)
}

/// `snowflake_id.horizon_databases`.
pub fn horizon_databases() -> Vec<String> {
    let names = text(&HORIZON_DATABASES);
    let names = names.split(',').map(|name| name.trim().to_string());
    names.filter(|name| !name.is_empty()).collect()
}

/// `snowflake_id.max_leased_generators`.
pub fn max_leased_generators() -> usize {
    usize::try_from(MAX_LEASED_GENERATORS.get()).unwrap_or(0)
}

/// A setting's value, copied.
fn text(setting: &GucSetting<Option<CString>>) -> String {
    let value = setting.get();
    let value = value.as_deref().map(CStr::to_string_lossy);
    value.map_or_else(String::new, |value| value.trim().to_string())
}

/// `snowflake_id.max_generators`: the number of slots.
pub fn max_generators() -> usize {
    usize::try_from(MAX_GENERATORS.get()).unwrap_or(1)
}

/// `snowflake_id.max_observe_ahead`; `None` if it sets no limit.
pub fn max_observe_ahead() -> Option<Millis> {
    let most = MAX_OBSERVE_AHEAD.get();
    (most >= 0).then(|| Millis::new(i64::from(most)))
}

/// The settings of the protocol, as they are now.
pub fn settings() -> Settings {
    Settings {
        reserve: Millis::new(i64::from(RESERVE.get())),
        failover_gap: Millis::new(i64::from(FAILOVER_GAP.get())),
        max_clock_jump: Millis::new(i64::from(MAX_CLOCK_JUMP.get())).times(1000),
    }
}
