//! The thread that talks to the registry, so that the keeper never waits for the network.
//!
//! The keeper sends [`RegistryClient::send`] one request at a time and reads the outcome by
//! [`RegistryClient::take`]; the bell rings when there is one: see [`mailbox`].
//!
//! The thread calls nothing of PostgreSQL and gets no signals; [`super::super::libpq`] has
//! the rules. A [`Transport`] carries the requests: to PostgreSQL, or to etcd.
//!
//! A client that is dropped ends its thread: that of PostgreSQL at once, unless it is in a
//! look-up of a host name, for which no time-out counts; that of etcd when the time-out of
//! its request is over. Such a thread is left alone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::super::etcd::host::EtcdRegistry;
use super::super::etcd::url::{self, Url};
use super::super::libpq::wait::Stop;
use super::super::mailbox::{self, Bell, Worker};
use super::postgres::{self, PostgresRegistry};
use super::transport::{Job, Transport};
use crate::error;
use snowflake_core::lease::{Reply, Request};

/// What became of a request.
pub struct RequestOutcome {
    /// The number of the request.
    pub number: u64,
    /// The reply, or why there is none: a sentence.
    pub reply: Result<Reply, String>,
}

/// The way to the registry of a setting.
fn transport(
    registry: &str,
    pool: String,
    stop: &Stop,
    here: Arc<AtomicBool>,
    started: i64,
) -> Box<dyn Transport> {
    if !url::is_etcd(registry) {
        return Box::new(PostgresRegistry::new(
            registry,
            pool,
            stop.clone(),
            here,
            started,
        ));
    }
    here.store(false, Ordering::Relaxed);
    match Url::parse(registry) {
        Ok(url) => Box::new(Etcd {
            host: EtcdRegistry::new(url),
            pool,
        }),
        Err(why) => Box::new(Nowhere(why)),
    }
}

/// A registry in etcd.
struct Etcd {
    host: EtcdRegistry,
    pool: String,
}

impl Transport for Etcd {
    fn answer(&mut self, job: &Job) -> Result<Reply, String> {
        let until = std::time::Instant::now() + job.timeout;
        let reply = self.host.ask(&self.pool, &job.request, until);
        reply.map_err(|problem| error::etcd::sentence(&problem, &self.pool))
    }
}

/// A setting that names no registry, for this reason.
struct Nowhere(String);

impl Transport for Nowhere {
    fn answer(&mut self, _: &Job) -> Result<Reply, String> {
        Err(self.0.clone())
    }
}

/// How many threads there may be: one for the server and one for generators with worker IDs
/// of their own. A look-up of a host name that hangs leaves one behind,
/// and so does etcd, for as long as its request lasts.
const THREADS_MAX: usize = 8;

/// The number of threads that live.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread as long as it lives.
struct Alive;

impl Alive {
    fn count() -> io::Result<Self> {
        // From here on, the number goes down when the value is dropped.
        let (before, alive) = (THREADS.fetch_add(1, Ordering::Relaxed), Self);
        if before >= THREADS_MAX {
            drop(alive);
            let why = format!("{before} of them still wait for the registry or its host name");
            return Err(io::Error::other(why));
        }
        Ok(alive)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The keeper's end.
pub struct RegistryClient(mailbox::Client<Job, RequestOutcome>);

impl RegistryClient {
    /// Starts the thread; `registry` is what the setting says. `here` tells then whether
    /// the latest connection was to this server itself. Fails if the process may have no
    /// more threads or files, or has [`THREADS_MAX`].
    pub fn new(
        registry: &str,
        pool: &str,
        here: &Arc<AtomicBool>,
        bell: &Bell,
    ) -> io::Result<Self> {
        let alive = Alive::count()?;
        let (registry, pool) = (registry.to_string(), pool.to_string());
        let (started, here) = (postgres::postmaster_start(), Arc::clone(here));
        let client = mailbox::start(bell, move |worker: Worker<Job, RequestOutcome>| {
            let _alive = alive;
            let mut registry = transport(&registry, pool, worker.stop(), here, started);
            while let Some(job) = worker.next() {
                let (number, reply) = (job.number, registry.answer(&job));
                worker.reply(RequestOutcome { number, reply });
            }
        })?;
        Ok(Self(client))
    }

    /// Sends a request. The outcome comes within the time, except for a look-up
    /// of a name; none comes from a thread that has ended.
    pub fn send(&self, number: u64, request: Request, timeout: Duration) {
        self.0.send(Job {
            number,
            request,
            timeout,
        });
    }

    /// The next outcome, if there is one.
    pub fn take(&self) -> Option<RequestOutcome> {
        self.0.take()
    }

    /// Whether the thread has ended, so that nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}
