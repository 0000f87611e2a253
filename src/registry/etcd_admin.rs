//! What administrators do with a registry in etcd, from a session of any server. Each function
//! gets the URL from [`crate::registry::Place`], which says who may name one.
//!
//! The calls run in a thread that gets no signals, as all that waits for etcd does; the
//! session waits for it, and resumes at once if its query is cancelled. Then the thread
//! ends by itself, within [`TIMEOUT`]. A session has [`THREADS_MAX`] at most.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::postgres::backend_wait::Backend;
use crate::registry::{error::Error, etcd_error};
use snowflake_core::id::UnixMillis;
use snowflake_core::lease::etcd::StoredPool;
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_registry_client::etcd::host::{EtcdError, EtcdRegistry};
use snowflake_registry_client::etcd::url::Url;
use snowflake_registry_client::libpq::wait::{SocketEvent, Waiter};
use snowflake_registry_client::mailbox::{self, Bell, Worker};

/// How long a function of an administrator waits for etcd.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many threads a session may have. One that cancels its calls again and again would take
/// those of the other sessions.
const THREADS_MAX: usize = 8;

/// The threads of this session. Relaxed: nothing but the count is read by it.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread until it ends.
struct ThreadCount;

impl ThreadCount {
    /// `None` if there are too many.
    fn new() -> Option<Self> {
        let count = THREADS.fetch_add(1, Ordering::Relaxed);
        let counted = Self;
        (count < THREADS_MAX).then_some(counted)
    }
}

impl Drop for ThreadCount {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `pool` and `worker` are those that errors name.
fn run<T: Send + 'static>(
    url: Url,
    pool: &str,
    worker: i32,
    f: impl FnOnce(&mut EtcdRegistry, Instant) -> Result<T, EtcdError> + Send + 'static,
) -> Result<T, Error> {
    let no_thread = |why| etcd_error::unreachable(&format!("Could not start a thread: {why}."));
    let bell = Bell::new().map_err(no_thread)?;
    let counted = ThreadCount::new().ok_or_else(|| {
        let why = "Calls of this session that were cancelled have not ended yet.";
        etcd_error::unreachable(why)
    })?;
    let serve = move |worker: Worker<(), Result<T, EtcdError>>| {
        let _counted = counted;
        let until = Instant::now() + TIMEOUT;
        worker.reply(f(&mut EtcdRegistry::new(url), until));
    };
    let client = mailbox::start(&bell, serve).map_err(no_thread)?;
    loop {
        bell.silence();
        if let Some(done) = client.take() {
            return done.map_err(|problem| etcd_error::problem(problem, pool, worker));
        }
        if client.has_ended() {
            return Err(etcd_error::unreachable("The thread that asks has ended."));
        }
        // A cancelled query ends the wait by its error.
        let _ = Backend.wait(bell.socket(), SocketEvent::Read, Instant::now() + TIMEOUT);
    }
}

/// Runs what only reads.
fn read<T: Send + 'static>(
    url: Url,
    f: impl FnOnce(&mut EtcdRegistry, Instant) -> Result<T, EtcdError> + Send + 'static,
) -> Result<T, Error> {
    run(url, "", 0, f).map_err(etcd_error::of_reading)
}

/// Makes a pool. `unused`: nobody has used its worker IDs before; `None`: if this makes the registry.
pub fn create_pool(url: Url, pool: StoredPool, unused: Option<bool>) -> Result<(), Error> {
    let name = pool.pool.name.clone();
    if [&name, &pool.namespace]
        .iter()
        .any(|text| text.contains('/'))
    {
        return Err(etcd_error::slash());
    }
    run(url, &name, 0, move |host, until| {
        host.create_pool(&pool, unused, until)
    })
}

/// Drops a pool that no server uses.
pub fn drop_pool(url: Url, pool: &str) -> Result<(), Error> {
    let name = pool.to_string();
    run(url, pool, 0, move |host, until| {
        host.drop_pool(&name, until)
    })
}

/// Revokes the lease of a worker ID. Returns from when another server can have it.
pub fn revoke(url: Url, pool: &str, worker: i32) -> Result<UnixMillis, Error> {
    let name = pool.to_string();
    let free = run(url, pool, worker, move |host, until| {
        host.revoke(&name, worker, until)
    })?;
    Ok(free.as_nodes_clock())
}

/// All that is stored, as JSON; `None` if there is no registry.
pub fn read_all(url: Url) -> Result<Option<String>, Error> {
    read(url, |host, until| match host.read_all(until) {
        Ok(all) => Ok(Some(all.to_string())),
        Err(EtcdError::NoRegistry) => Ok(None),
        Err(problem) => Err(problem),
    })
}

/// Ends the grace period, or declares that this registry counts.
pub fn change(url: Url, f: fn(&mut State, &RegistryInput)) -> Result<(), Error> {
    run(url, "", 0, move |host, until| host.change_state(until, f))
}
