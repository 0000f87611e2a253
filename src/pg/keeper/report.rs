//! What the keeper tells the registry of the server's horizon: see
//! [`crate::snowflake::reported`].
//!
//! The keeper is connected to no database. The names of databases are in a catalog that all
//! of them share.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::super::encoding::to_server;
use super::super::shmem::Shared;
use super::super::{compat, error, guc, horizon, os_clock};
use crate::snowflake::horizon::database_of;
use crate::snowflake::id::UnixMillis;
use crate::snowflake::reported;

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
    /// All of them count if a name may be another spelling of one.
    fn has(&self, key: u64) -> bool {
        self.unknown.is_some() || self.keys.contains(&database_of(key))
    }
}

/// `None` if none is set.
fn databases() -> Option<Databases> {
    let names = guc::horizon_databases();
    if names.is_empty() {
        return None;
    }
    // SAFETY: a background worker outside of a transaction; NUL-terminated names.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::StartTransactionCommand();
        let mut found = Databases {
            keys: Vec::new(),
            unknown: None,
        };
        for name in names {
            match pg_sys::get_database_oid(to_server(&name), true).to_u32() {
                0 => found.unknown = Some(name),
                database => found.keys.push(u64::from(database) << 32),
            }
        }
        pg_sys::CommitTransactionCommand();
        pg_sys::MemoryContextSwitchTo(context);
        Some(found)
    }
}

/// The least hold by a lock, such as of prepared transactions, in these databases.
fn locked(databases: &Databases) -> Option<UnixMillis> {
    let all = horizon::locked().into_iter();
    let counted = all.filter(|(key, _)| databases.has(key.bits()));
    counted.map(|(_, at)| at).min()
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
    let now = shared.with_beliefs(|beliefs| {
        // An identity without a floor is none that a registry has granted.
        let bound = beliefs.identity.floor.and(beliefs.identity.bound)?;
        // A clock that is not believed yet leads nobody.
        let wall = beliefs.believable(reading).wall.millis();
        Some(wall.min(bound))
    })?;
    let counts = |database| databases.has(database);
    let locked = || locked(&databases);
    Some(shared.reported().report(now, shared, counts, locked))
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
    sessions().into_iter().chain(locked(&databases)).min()
}
