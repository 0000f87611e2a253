//! The keeper: a background worker that leases the server's worker ID from a registry.
//!
//! A [`lease`] asks the node of the core what to do, and publishes, a [`mod@line`] carries its requests, and this file follows
//! the settings and waits.
//!
//! There is one keeper for each server that has preloaded the library. Without a
//! registry it waits on its latch for a reload and does nothing else.
//!
//! | what ends the keeper | what follows |
//! |---|---|
//! | a stop of the server | it closes all slots, returns the worker ID within [`line::RELEASE_WAIT`] unless the registry is on this server, and ends |
//! | `pg_terminate_backend()`, an error | the next keeper, a second later, continues with what is in shared memory: same incarnation, next request. IDs are issued meanwhile |
//! | SIGKILL | a crash of the server: shared memory is made anew, and a new incarnation takes over its own worker ID |
//!
//! # A fixed worker ID
//!
//! It is claimed: a server that starts with a registry issues nothing before the grant.
//! A server that is given a registry by a reload continues to issue under its worker ID,
//! without a promise of the registry, until the registry grants it, or says that another
//! server holds it. So servers can be moved to a registry one by one, without a stop,
//! and back: without the registry the fixed worker ID holds at once.

mod client_error;
mod error;
mod lease;
mod line;
mod target;

use std::ffi::c_int;
use std::rc::Rc;
use std::time::Duration;

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::{PgMemoryContexts, pg_sys};

use crate::keeper::lease::{End, leave_registry};
use crate::keeper::line::{Line, is_stopping};
use crate::keeper::target::Target;
use crate::postgres::compat;
use crate::server::shmem::{self, Shared};
use snowflake_registry_client::mailbox::Bell;

/// The name in `pg_stat_activity`.
const NAME: &str = "snowflake_id keeper";

/// A keeper that ended is started anew after this time.
const RESTART: Duration = Duration::from_secs(1);

/// Registers the keeper. Called only in the postmaster, while it preloads.
pub fn register() {
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    BackgroundWorkerBuilder::new(NAME)
        .set_type(NAME)
        .set_library("snowflake_id")
        .set_function("keep_worker_id")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(RESTART))
        .load();
}

/// The main function of the background worker.
#[pgrx::pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn keep_worker_id(_argument: pg_sys::Datum) {
    // SAFETY: in a background worker that starts. Callbacks run in reverse order, so this
    // one, after those of shared memory: on_proc_exit comes after before_shmem_exit.
    unsafe { pg_sys::on_proc_exit(Some(end_at_once), pg_sys::Datum::from(0)) };
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // A connection to no database: pg_stat_activity shows the process.
    BackgroundWorker::connect_worker_to_spi_by_oid(None, None);
    let Ok(shared) = shmem::shared() else {
        return;
    };
    // SAFETY: as above.
    unsafe {
        pg_sys::before_shmem_exit(Some(leave), pg_sys::Datum::from(0));
        shared.set_keeper(pg_sys::MyLatch);
    }
    let mut context = PgMemoryContexts::new(NAME);
    let bell = Bell::new();
    let bell =
        bell.unwrap_or_else(|why| pgrx::error!("snowflake_id: could not make a socket: {why}"));
    let mut keeper = Keeper {
        shared,
        bell: Rc::new(bell),
        line: None,
    };
    // SAFETY: switched to for each round, and emptied after it: texts of messages.
    unsafe { context.switch_to(|_| keeper.configure()) };
    loop {
        // SAFETY: as above.
        let millis = unsafe { context.switch_to(|_| keeper.round()) };
        // SAFETY: nothing in it is used after this.
        unsafe { context.reset() };
        compat::wait_keeper(Some(keeper.bell.socket()), millis);
    }
}

/// Ends the process without the handlers of exit(3): those of libpq and OpenSSL free what
/// the thread may be using.
unsafe extern "C-unwind" fn end_at_once(code: c_int, _: pg_sys::Datum) {
    // SAFETY: all callbacks that matter have run.
    unsafe { libc::_exit(code) };
}

/// The latch is another process's from now on.
unsafe extern "C-unwind" fn leave(_: c_int, _: pg_sys::Datum) {
    if let Ok(shared) = shmem::shared() {
        shared.set_keeper(std::ptr::null_mut());
    }
}

/// The registry of the settings, without secrets, and the pool; for who asks before a
/// keeper has run, as on a standby.
pub fn configured() -> Option<(String, String)> {
    Target::of_server().map(|target| (target.described(), target.pool))
}

struct Keeper {
    shared: &'static Shared,
    /// What it waits for, beside its latch.
    bell: Rc<Bell>,
    line: Option<Line>,
}

/// Ends a line if the settings name another target than its own. Returns whether they do.
fn end_other(line: &mut Option<Line>, target: Option<&Target>, shared: &Shared) -> bool {
    let is_other = line.as_ref().map(|line| &*line.target) != target;
    if let Some(line) = line.take_if(|_| is_other) {
        let why = target.map_or(End::NoRegistry, |_| End::OtherRegistry);
        line.end(shared, why);
    }
    is_other
}

impl Keeper {
    /// Does all that can be done now. Returns for how many milliseconds to wait for the bell;
    /// without an end if there are none.
    fn round(&mut self) -> Option<i64> {
        // Barriers of PostgreSQL's; SIGTERM only sets a flag.
        pgrx::check_for_interrupts!();
        catch_up();
        if BackgroundWorker::sigterm_received() {
            self.end();
        }
        if BackgroundWorker::sighup_received() {
            // SAFETY: in the main loop of a background worker.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            self.configure();
        }
        // Before any mailbox is looked into.
        self.bell.silence();
        self.line.as_mut()?.round(self.shared)
    }

    /// Follows the settings.
    fn configure(&mut self) {
        let (shared, bell) = (self.shared, &self.bell);
        let target = Target::of_server();
        let is_other = end_other(&mut self.line, target.as_ref(), shared);
        match target {
            Some(target) if is_other => {
                self.line = Some(Line::new(target, bell, shared));
            }
            Some(_) => {}
            None => {
                // The settings may have been changed while there was no keeper.
                shared.with_lease(|_, state| leave_registry(state));
                if is_other {
                    error::no_registry().log("");
                }
            }
        }
    }

    /// SIGTERM has come: the server stops, or somebody has ended this process.
    fn end(&mut self) -> ! {
        let is_stopping = is_stopping();
        if let Some(line) = self.line.take_if(|_| is_stopping) {
            line.end(self.shared, End::Stop);
        }
        // After 0, PostgreSQL starts no other keeper, and logs nothing.
        let code = i32::from(!is_stopping);
        compat::exit(code)
    }
}

/// Reads the messages that tell of changed catalogs, if PostgreSQL asks for that. It asks one
/// process after the other, and each passes that on when it has read. The keeper may run no
/// transaction for as long as the server does: who waits behind it would be asked late, and
/// lose all that it knows of the catalogs.
fn catch_up() {
    // SAFETY: between two transactions, each of which leaves another memory context.
    unsafe {
        if pg_sys::catchupInterruptPending != 0 {
            let context = pg_sys::CurrentMemoryContext;
            pg_sys::ProcessCatchupInterrupt();
            pg_sys::MemoryContextSwitchTo(context);
        }
    }
}
