//! Starts a process for each database of `snowflake_id.watermark_databases`, see
//! [`super::super::watermark`].
//!
//! The keeper looks every [`LOOK`] whether each database has its process, and does not look at
//! all while the setting is empty. PostgreSQL starts no such process again by itself: it would
//! not know of a database that was dropped. The processes end with the keeper that has started
//! them, and the next keeper starts others.
//!
//! A process that cannot connect ends at once, and PostgreSQL logs why. So that it does not fill the
//! log, the keeper then looks away for 0, 1, 2, 4 looks and so on, up to [`SKIPPED_MAX`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime, DynamicBackgroundWorker,
};
use pgrx::{PgMemoryContexts, pg_sys};

use super::super::{error, guc, watermark};
use super::report;

/// How often the keeper looks.
const LOOK: Duration = Duration::from_secs(5);

/// Some five minutes.
const SKIPPED_MAX: u32 = 64;

struct Process {
    database: pg_sys::Oid,
    worker: DynamicBackgroundWorker,
    /// How many looks have found it running.
    looks: u32,
}

thread_local! {
    /// The processes that this keeper has started. For the callback by which the keeper ends as
    /// well.
    static STARTED: RefCell<Vec<Process>> = const { RefCell::new(Vec::new()) };
}

/// A database whose process has ended before a look found it running.
#[derive(Default)]
struct Rest {
    /// How many looks are still skipped.
    left: u32,
    /// How many are skipped next time.
    next: u32,
}

#[derive(Default)]
pub struct Watermarks {
    /// When to look next; `None`: not before the settings change.
    next: Option<Instant>,
    /// The names of which the log has told that they have no process.
    told: BTreeSet<String>,
    /// By the OIDs of databases.
    rests: BTreeMap<u32, Rest>,
}

impl Watermarks {
    /// The settings may have changed.
    pub fn configure(&mut self) {
        self.rests.clear();
        self.next = Some(Instant::now());
    }

    /// Starts and ends processes if it is time to. Returns after how many milliseconds to look
    /// again; `None` if not before the settings change.
    pub fn round(&mut self) -> Option<i64> {
        let next = self.next?;
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let names = guc::watermark_databases();
            self.next = (!names.is_empty()).then(|| Instant::now() + LOOK);
            self.look(names);
        }
        let left = self.next?.saturating_duration_since(Instant::now());
        Some(i64::try_from(left.as_millis()).unwrap_or(0) + 1)
    }

    /// Whether this look does not start a process for the database.
    fn skips(&mut self, database: pg_sys::Oid) -> bool {
        let rest = self.rests.get_mut(&database.to_u32());
        let Some(rest) = rest.filter(|rest| rest.left > 0) else {
            return false;
        };
        rest.left -= 1;
        true
    }

    fn look(&mut self, names: Vec<String>) {
        let found = in_transaction(|| report::look_up(&names));
        let is_wanted = |database: &pg_sys::Oid| found.contains(&Some(*database));
        self.rests
            .retain(|database, _| is_wanted(&pg_sys::Oid::from(*database)));
        STARTED.with_borrow_mut(|started| {
            started.retain_mut(|it| {
                let runs = !matches!(it.worker.pid(), Err(BackgroundWorkerStatus::Stopped));
                if runs {
                    it.looks += 1;
                    self.rests.remove(&it.database.to_u32());
                } else if it.looks == 0 {
                    let rest = self.rests.entry(it.database.to_u32()).or_default();
                    rest.left = rest.next;
                    rest.next = (2 * rest.next).clamp(1, SKIPPED_MAX);
                }
                runs
            });
            let ended = started.extract_if(.., |it| !is_wanted(&it.database));
            for it in ended {
                it.worker.terminate();
            }
            self.told.retain(|name| names.contains(name));
            for (name, database) in names.into_iter().zip(&found) {
                let told = match database {
                    None => error::watermark::unknown_database(&name),
                    Some(known) if started.iter().any(|it| it.database == *known) => continue,
                    Some(known) if self.skips(*known) => continue,
                    Some(database) => match start(*database) {
                        Some(it) => {
                            started.push(it);
                            self.told.remove(&name);
                            continue;
                        }
                        None => error::watermark::no_process(&name),
                    },
                };
                if self.told.insert(name) {
                    told.log("");
                }
            }
        });
    }
}

/// Called when the keeper ends.
pub fn end_all() {
    STARTED.with_borrow_mut(|started| {
        for it in started.drain(..) {
            it.worker.terminate();
        }
    });
}

/// Starts a process; `None` if PostgreSQL has no room for it.
fn start(database: pg_sys::Oid) -> Option<Process> {
    let worker = BackgroundWorkerBuilder::new(watermark::NAME)
        .set_type(watermark::NAME)
        .set_library("snowflake_id")
        .set_function("write_watermarks")
        .set_argument(Some(database.into()))
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(None);
    // SAFETY: the handle lives as long as this process.
    let started =
        unsafe { PgMemoryContexts::TopMemoryContext.switch_to(|_| worker.load_dynamic()) };
    let worker = started.ok()?;
    Some(Process {
        database,
        worker,
        looks: 0,
    })
}

fn in_transaction<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: a background worker outside of a transaction, whose memory context stays.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::StartTransactionCommand();
        let result = f();
        pg_sys::CommitTransactionCommand();
        pg_sys::MemoryContextSwitchTo(context);
        result
    }
}
