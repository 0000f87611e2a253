//! What the keeper tells the registry of the server's horizon: see
//! [`snowflake_core::reported`].
//!
//! The keeper is connected to no database. The names of databases are in a catalog that all
//! of them share. After a start, until a session connects, no index of it can be opened
//! without a database. So it is read as PostgreSQL reads it before it knows a session's
//! database: through the index if that is known, else from its beginning. What was found
//! counts until the setting or that catalog changes.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Once;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::super::encoding::to_server;
use super::super::shmem::Shared;
use super::super::{compat, error, guc, os_clock, tx_holds};
use snowflake_core::horizon::database_of;
use snowflake_core::id::UnixMillis;
use snowflake_core::reported;

/// How long a server that stops waits for the transactions of its sessions to end, which the
/// stop has told as well.
const SESSIONS_WAIT: Duration = Duration::from_millis(500);
const SESSIONS_NAP_MILLIS: i64 = 10;

/// The databases that count.
struct Databases {
    /// As the high halves of keys.
    keys: Vec<u64>,
    /// A name that no database has.
    unknown: Option<String>,
}

impl Databases {
    fn of(names: &[String]) -> Self {
        let found = look_up(names);
        let unknown = found.iter().zip(names).rfind(|(found, _)| found.is_none());
        let keys = found.iter().flatten();
        Self {
            keys: keys.map(|it| u64::from(it.to_u32()) << 32).collect(),
            unknown: unknown.map(|(_, name)| name.clone()),
        }
    }

    /// All of them count if a name may be another spelling of one.
    fn has(&self, key: u64) -> bool {
        self.unknown.is_some() || self.keys.contains(&database_of(key))
    }
}

thread_local! {
    /// What was found for these names last.
    static FOUND: RefCell<Option<(Vec<String>, Rc<Databases>)>> = const { RefCell::new(None) };
    /// The catalog of databases has changed since.
    static CHANGED: Cell<bool> = const { Cell::new(false) };
}

/// Called when the catalog of databases has changed, or may have.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_change(_arg: pg_sys::Datum, _cache: c_int, _hash: u32) {
    CHANGED.set(true);
}

/// `None` if none is set.
fn databases() -> Option<Rc<Databases>> {
    static ONCE: Once = Once::new();
    let cache = compat::cache(pg_sys::SysCacheIdentifier::DATABASEOID);
    // SAFETY: a function that lives as long as the process.
    ONCE.call_once(|| unsafe {
        pg_sys::CacheRegisterSyscacheCallback(cache, Some(on_change), pg_sys::Datum::from(0));
    });
    let names = guc::horizon_databases();
    if names.is_empty() {
        return None;
    }
    let known = || {
        FOUND.with_borrow(|found| {
            let (of, found) = found.as_ref()?;
            (*of == names && !CHANGED.get()).then(|| Rc::clone(found))
        })
    };
    // SAFETY: a background worker outside of a transaction.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        // Hears of changes of the catalog.
        pg_sys::StartTransactionCommand();
        let found = known().unwrap_or_else(|| {
            // Before the look: a change from here on counts.
            CHANGED.set(false);
            let found = Rc::new(Databases::of(&names));
            FOUND.set(Some((names.clone(), Rc::clone(&found))));
            found
        });
        pg_sys::CommitTransactionCommand();
        pg_sys::MemoryContextSwitchTo(context);
        Some(found)
    }
}

/// Looks the database of each name up, see the head of the file. In a transaction.
pub fn look_up(names: &[String]) -> Vec<Option<pg_sys::Oid>> {
    // SAFETY: a catalog that every process can open; its lock ends with the transaction.
    unsafe {
        let mode = pg_sys::AccessShareLock.cast_signed();
        let catalog = pg_sys::table_open(pg_sys::DatabaseRelationId, mode);
        let found = names.iter().map(|name| oid_in(catalog, name)).collect();
        pg_sys::table_close(catalog, mode);
        found
    }
}

/// The OID of the database of this name, as GetDatabaseTuple() of postinit.c finds it.
///
/// # Safety
/// `catalog` is `pg_database`, open.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
unsafe fn oid_in(catalog: pg_sys::Relation, name: &str) -> Option<pg_sys::Oid> {
    let name = pg_sys::Datum::from(to_server(name));
    // SAFETY: as the caller guarantees; one key, which lives as long as the scan. A row of
    // that catalog has the OID at its beginning.
    unsafe {
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &raw mut key,
            pg_sys::Anum_pg_database_datname as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_NAMEEQ.into(),
            name,
        );
        let index = pg_sys::DatabaseNameIndexId.into();
        let is_known = pg_sys::criticalSharedRelcachesBuilt;
        let now = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(catalog, index, is_known, now, 1, &raw mut key);
        let row = pg_sys::systable_getnext(scan);
        let found = (!row.is_null()).then(|| {
            let data = (*row).t_data;
            let form = data.byte_add(usize::from((*data).t_hoff));
            (*form.cast::<pg_sys::FormData_pg_database>()).oid
        });
        pg_sys::systable_endscan(scan);
        found
    }
}

thread_local! {
    /// The name of which the log has told last.
    static TOLD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What to report with a renewal; `None` if nothing. A name that no database has may be
/// another spelling of one whose rows are read: nothing is reported then.
pub fn report(shared: &Shared) -> Option<UnixMillis> {
    let databases = databases()?;
    let told = TOLD.replace(databases.unknown.clone());
    if let Some(name) = &databases.unknown {
        if told.as_ref() != Some(name) {
            error::keeper::unknown_database(name).log("");
        }
        return None;
    }
    let reading = os_clock::read();
    let limit = guc::settings().max_clock_jump;
    let now = shared.with_lease(shared.server(), |trusted, state| {
        // A tenure without a floor is none that a registry has granted.
        let bound = state.tenure.not_before.and(state.tenure.not_after)?;
        // A server that issues no IDs follows a clock that was set forward as well. One that
        // is not believed leads nobody.
        let wall = trusted.followed(reading, limit).wall.millis();
        Some(wall.min(bound))
    })?;
    let counts = |key| databases.has(key);
    let search = || tx_holds::least_locked(shared, counts);
    Some(shared.reported().report(now, shared, counts, search))
}

/// What transactions hold when the server returns its worker ID. One that stops waits for
/// its sessions first.
pub fn held(shared: &Shared, stops: bool) -> Option<UnixMillis> {
    let databases = databases()?;
    let deadline = Instant::now() + SESSIONS_WAIT;
    let sessions = || reported::held(shared, |database| databases.has(database));
    while stops && sessions().is_some() && Instant::now() < deadline {
        compat::wait_keeper(None, Some(SESSIONS_NAP_MILLIS));
    }
    let held = sessions();
    let locked = tx_holds::least_locked(shared, |key| databases.has(key));
    held.into_iter().chain(locked).min()
}
