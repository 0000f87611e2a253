//! Settings. Defined only while the library is preloaded: without shared memory
//! they would mean nothing.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::{self, Display, Formatter};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PgList, pg_sys};

use crate::postgres::{compat, encoding::from_server, error_report};
use crate::server::error::{self, Error};
use crate::server::start_file;
use snowflake_core::id::{Millis, WorkerId};
use snowflake_core::protocol::plan::Settings;
use snowflake_registry_client::etcd::url::{self, Url};
use snowflake_registry_client::libpq::Conninfo;

/// The first size of the table of slots, 640 kB: generators beyond it cost a little more, and
/// nobody need know their number before.
const SLOTS_DEFAULT: i32 = 1024;
const SLOTS_MIN: i32 = 1;
const SLOTS_MAX: i32 = 65_536;

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

static WORKER_ID: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static REGISTRY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static POOL: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"default"));
static SLOTS: GucSetting<i32> = GucSetting::<i32>::new(SLOTS_DEFAULT);
static RESERVE: GucSetting<i32> = GucSetting::<i32>::new(RESERVE_MS_DEFAULT);
static FAILOVER_GAP: GucSetting<i32> = GucSetting::<i32>::new(FAILOVER_GAP_MS_DEFAULT);
static MAX_CLOCK_JUMP: GucSetting<i32> = GucSetting::<i32>::new(MAX_CLOCK_JUMP_S_DEFAULT);

/// Every session may set it: it changes what its own commands make, with the rights that it has,
/// and nothing that was there before.
static NEW_KEYS: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"off"));

/// Whether it is anything but off, and where its value comes from, a `GucSource`: written when it is
/// set, by the only thread that reads it.
static NEW_KEYS_IS_SET: AtomicBool = AtomicBool::new(false);
static NEW_KEYS_SOURCE: AtomicU32 = AtomicU32::new(0);
const NEW_KEYS_NAME: &CStr = c"snowflake_id.new_keys";

const WORKER_ID_NAME: &CStr = c"snowflake_id.worker_id";

/// Defines all settings. Called only in the postmaster, while it preloads.
pub fn define() {
    // SAFETY: nothing has to be dropped.
    unsafe { error_report::guard(check_first_worker_id) };
    // SAFETY: the hooks are guarded.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            WORKER_ID_NAME,
            c"Worker ID of this server, or where it comes from; no other server may have the same.",
            c"A number; 'hostname': the number that ends the host name, as in shop-3; 'env NAME': a variable of the server's environment. Empty means not set.",
            &WORKER_ID,
            GucContext::Postmaster,
            GucFlags::empty(),
            Some(check_worker_id),
            None,
            None,
        );
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
    GucRegistry::define_int_guc(
        c"snowflake_id.debug_slots",
        c"For tests: the first size of the table of generators in shared memory.",
        c"A small one makes generators lose their places, and the server add tables.",
        &SLOTS,
        SLOTS_MIN,
        SLOTS_MAX,
        GucContext::Postmaster,
        GucFlags::NO_SHOW_ALL,
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
    // SAFETY: the hooks are guarded.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            NEW_KEYS_NAME,
            c"Whether new tables get snowflake IDs where their commands ask for a bigserial or bigint identity key.",
            c"'on': IDs of the default generator; the name of a generator with its schema: of this one; or 'off'. Tables that are there already, and restores of dumps, are left as they are.",
            &NEW_KEYS,
            GucContext::Userset,
            GucFlags::empty(),
            Some(check_new_keys),
            Some(assign_new_keys),
            None,
        );
    }
    // SAFETY: a constant, NUL-terminated name.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"snowflake_id".as_ptr()) };
}

/// Where keys of new tables get IDs from.
pub enum NewKeys {
    /// The default generator.
    Default,
    /// A generator by its schema and name.
    Named(CString, CString),
}

impl Display for NewKeys {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("on"),
            Self::Named(schema, name) => {
                write!(f, "{}.{}", from_server(schema), from_server(name))
            }
        }
    }
}

/// Whether `snowflake_id.new_keys` is anything but off.
pub fn new_keys_is_set() -> bool {
    NEW_KEYS_IS_SET.load(Relaxed)
}

/// What `snowflake_id.new_keys` asks for. `of_others`: what the session or its role has set does
/// not count.
pub fn new_keys(of_others: bool) -> Option<NewKeys> {
    let source = NEW_KEYS_SOURCE.load(Relaxed);
    if !new_keys_is_set() || of_others && source > pg_sys::GucSource::PGC_S_DATABASE {
        return None;
    }
    let value = NEW_KEYS.get()?;
    wanted_keys(&value).ok().flatten()
}

/// Reads `snowflake_id.new_keys`: a boolean, or a name with its schema, with quotes as in SQL.
fn wanted_keys(text: &CStr) -> Result<Option<NewKeys>, ()> {
    let mut is_on = false;
    let mut names = std::ptr::null_mut();
    // SAFETY: NUL-terminated; the function changes the copy, and makes a list of texts in it.
    unsafe {
        if pg_sys::parse_bool(text.as_ptr(), &raw mut is_on) {
            return Ok(is_on.then_some(NewKeys::Default));
        }
        let copy = pg_sys::pstrdup(text.as_ptr());
        if !pg_sys::SplitIdentifierString(copy, b'.'.cast_signed() as c_char, &raw mut names) {
            return Err(());
        }
        let names = PgList::<c_char>::from_pg(names);
        let name = |index| {
            names
                .get_ptr(index)
                .map(|name| CStr::from_ptr(name).to_owned())
        };
        match (names.len(), name(0), name(1)) {
            (2, Some(schema), Some(name)) => Ok(Some(NewKeys::Named(schema, name))),
            _ => Err(()),
        }
    }
}

/// Refuses a text that is neither, and keeps where it comes from.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn check_new_keys(
    value: *mut *mut c_char,
    extra: *mut *mut c_void,
    source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: as PostgreSQL calls a check, with a NUL-terminated text.
    let wanted = unsafe { wanted_keys(CStr::from_ptr(*value)) };
    let Ok(wanted) = wanted else {
        compat::explain_refused_setting(
            NEW_KEYS_NAME,
            "It is neither on nor off, nor the name of a generator with its schema, as public.web_ids is.",
        );
        return false;
    };
    // SAFETY: PostgreSQL frees this memory with the value; it has room for both.
    unsafe {
        let kept = compat::guc_malloc(size_of::<(bool, u32)>()).cast::<(bool, u32)>();
        if kept.is_null() {
            return false;
        }
        kept.write((wanted.is_some(), source));
        *extra = kept.cast();
    }
    true
}

/// Called when the setting gets a value that was checked.
unsafe extern "C-unwind" fn assign_new_keys(_value: *const c_char, extra: *mut c_void) {
    // SAFETY: what the check has kept with the value.
    if let Some((is_set, source)) = unsafe { extra.cast::<(bool, u32)>().as_ref() } {
        NEW_KEYS_IS_SET.store(*is_set, Relaxed);
        NEW_KEYS_SOURCE.store(*source, Relaxed);
    }
}

/// What the text of `snowflake_id.worker_id` says.
enum WorkerSetting {
    Nothing,
    Number(WorkerId),
    Hostname,
    Env(String),
}

/// Reads `snowflake_id.worker_id`; `None` if it has none of its forms.
fn wanted(text: &str) -> Option<WorkerSetting> {
    let mut words = text.split_ascii_whitespace();
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Some(WorkerSetting::Nothing),
        (Some("hostname"), None, None) => Some(WorkerSetting::Hostname),
        (Some("env"), Some(name), None) => Some(WorkerSetting::Env(name.to_string())),
        (Some(number), None, None) => number_in(number).map(WorkerSetting::Number),
        _ => None,
    }
}

/// The worker ID that a text of digits is.
fn number_in(text: &str) -> Option<WorkerId> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|_| is_number)
        .and_then(WorkerId::new)
}

/// Refuses a text that has none of the forms.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn check_worker_id(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: as PostgreSQL calls a check.
    let text = unsafe { given(*value) };
    let is_good = wanted(&text).is_some();
    if !is_good {
        let why = error::bad_worker_id(&text).detail;
        compat::explain_refused_setting(WORKER_ID_NAME, &why);
    }
    is_good
}

/// Refuses to start with such a text: PostgreSQL only warns of a bad value that was there before
/// its setting was defined.
fn check_first_worker_id() -> Result<(), Error> {
    // SAFETY: returns NULL or a NUL-terminated text.
    let text = unsafe {
        given(pg_sys::GetConfigOption(
            WORKER_ID_NAME.as_ptr(),
            true,
            false,
        ))
    };
    match wanted(&text) {
        Some(_) => Ok(()),
        None => Err(error::bad_worker_id(&text)),
    }
}

/// The value of a setting; empty if there is none.
///
/// # Safety
/// It is a NUL-terminated text, or NULL.
unsafe fn given(value: *const c_char) -> String {
    // SAFETY: as the caller guarantees.
    let text = unsafe { (!value.is_null()).then(|| CStr::from_ptr(value)) };
    let text = text.map(CStr::to_string_lossy).unwrap_or_default();
    text.trim().to_string()
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
    // SAFETY: as PostgreSQL calls a check.
    let text = unsafe { given(*value) };
    let checked = match url::is_etcd(&text) {
        false if text.is_empty() => return true,
        false => check_conninfo(&text),
        true => Url::parse(&text).and_then(|url| url.check_files()),
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
        let (number, source, what) = match wanted(&text(&WORKER_ID)) {
            None | Some(WorkerSetting::Nothing) => return (None, Source::None),
            Some(WorkerSetting::Number(worker)) => return (Some(worker), Source::Setting),
            Some(WorkerSetting::Hostname) => {
                let host = start_file::host_name();
                let number = ordinal_in(&host).unwrap_or_default().to_string();
                let what = format!("The host name is \"{host}\"");
                (number, Source::Hostname, what)
            }
            Some(WorkerSetting::Env(name)) => {
                let value = std::env::var(&name).unwrap_or_default();
                let what =
                    format!("Variable \"{name}\" of the server's environment is \"{value}\"");
                (value.trim().to_string(), Source::Env, what)
            }
        };
        let worker = number_in(&number);
        if worker.is_none() {
            error::no_number(&text(&WORKER_ID), &what).warning();
            return (None, Source::None);
        }
        (worker, source)
    })
}

/// The number that ends the first part of a host name, after a hyphen, if it may count servers: not
/// more than five digits, which are a date or the number of a virtual machine, and not more than one
/// number before it, as in pg-15-0. More are an address, whose last number is in each subnet.
fn ordinal_in(host: &str) -> Option<&str> {
    let name = host.split('.').next().unwrap_or_default();
    let is_number =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: Vec<_> = name.rsplit('-').take_while(is_number).collect();
    let has_name = name.split('-').count() > numbers.len();
    let is_short = numbers.iter().all(|it| it.len() <= 5);
    let last = numbers.first().copied();
    last.filter(|_| has_name && is_short && numbers.len() <= 2)
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

/// A setting's value, copied.
fn text(setting: &GucSetting<Option<CString>>) -> String {
    let value = setting.get();
    let value = value.as_deref().map(CStr::to_string_lossy);
    value.map_or_else(String::new, |value| value.trim().to_string())
}

/// How many slots the first table has.
pub fn slots() -> usize {
    usize::try_from(SLOTS.get()).unwrap_or(1)
}

/// The settings of the protocol, as they are now.
pub fn settings() -> Settings {
    Settings {
        reserve: Millis::new(i64::from(RESERVE.get())),
        failover_gap: Millis::new(i64::from(FAILOVER_GAP.get())),
        max_clock_jump: Millis::new(i64::from(MAX_CLOCK_JUMP.get())).times(1000),
    }
}
