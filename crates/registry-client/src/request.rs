//! The thread that talks to the registry, so that the keeper never waits for the network.
//!
//! The keeper sends [`RegistryClient::send`] one request at a time and reads the outcome by
//! [`RegistryClient::take`]; the bell rings when there is one: see [`mailbox`].
//!
//! The thread gets no signals; [`crate::libpq`] has the rules.
//!
//! A client that is dropped ends its thread: that of PostgreSQL at once, unless it is in a
//! look-up of a host name, for which no time-out counts; that of etcd when the time-out of
//! its request is over. Such a thread is left alone.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::etcd::host::{EtcdError, EtcdRegistry};
use crate::etcd::url::{self, Url};
use crate::libpq::wait::Stop;
use crate::mailbox::{self, Bell, Worker};
use crate::postgres::{Finding, HostReply, PostgresError, PostgresRegistry};
use snowflake_core::lease::{Reply, Request};

/// A request of the keeper.
struct Job {
    number: u64,
    request: Request,
    timeout: Duration,
}

/// What became of a request.
pub struct RequestOutcome {
    /// The number of the request.
    pub number: u64,
    pub heard: RegistryAnswer,
}

/// What was heard of the registry.
pub struct RegistryAnswer {
    pub reply: Result<Reply, RequestError>,
    /// The host that has said so; empty if that is not known, or in etcd.
    pub host: String,
    /// The registry has several hosts.
    pub has_several_hosts: bool,
    /// Hosts whose answer does not count.
    pub others: Vec<HostReply>,
    /// Other hosts that take writes, too.
    pub findings: Vec<Finding>,
    /// Why etcd takes no writes, or soon will not: a sentence, or nothing.
    pub grown: String,
}

impl From<Result<Reply, RequestError>> for RegistryAnswer {
    fn from(reply: Result<Reply, RequestError>) -> Self {
        Self {
            reply,
            host: String::new(),
            has_several_hosts: false,
            others: Vec::new(),
            findings: Vec::new(),
            grown: String::new(),
        }
    }
}

/// Why there is no reply.
#[derive(Debug)]
pub enum RequestError {
    /// The setting names no registry in etcd, for this reason: a sentence.
    Url(String),
    Etcd(EtcdError),
    Postgres(PostgresError),
}

/// Carries a request to a registry, until an instant at most.
type Way = Box<dyn FnMut(&Request, Instant) -> RegistryAnswer>;

/// The way to the registry of a setting.
fn way_to(registry: &str, pool: String, stop: &Stop, here: Arc<AtomicBool>, started: i64) -> Way {
    if !url::is_etcd(registry) {
        let mut registry = PostgresRegistry::new(registry, pool, stop.clone(), here, started);
        return Box::new(move |request, until| {
            let (said, others) = registry.ask(request, until);
            RegistryAnswer {
                reply: said.reply.map_err(RequestError::Postgres),
                host: said.host,
                has_several_hosts: registry.has_several_hosts(),
                others,
                findings: registry.findings(),
                grown: String::new(),
            }
        });
    }
    here.store(false, Ordering::Relaxed);
    match Url::parse(registry).map(EtcdRegistry::new) {
        Ok(mut host) => Box::new(move |request, until| {
            let reply = host.ask(&pool, request, until);
            let grown = host.grown.clone();
            RegistryAnswer {
                grown,
                ..reply.map_err(RequestError::Etcd).into()
            }
        }),
        Err(why) => Box::new(move |_, _| Err(RequestError::Url(why.clone())).into()),
    }
}

/// How many threads there may be. The server needs one. A look-up of a host name that hangs leaves
/// one behind, and so does etcd, for as long as its request lasts.
const THREADS_MAX: usize = 8;

/// The number of threads that live.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread as long as it lives.
struct ThreadCount;

impl ThreadCount {
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

impl Drop for ThreadCount {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The keeper's end.
pub struct RegistryClient(mailbox::Client<Job, RequestOutcome>);

impl RegistryClient {
    /// Starts the thread; `registry` is what the setting says. `here` tells then whether
    /// the latest connection was to this server itself, whose postmaster started at `started`,
    /// in microseconds since 1970. Fails if the process may have no
    /// more threads or files, or has [`THREADS_MAX`].
    pub fn new(
        registry: &str,
        pool: &str,
        started: i64,
        here: &Arc<AtomicBool>,
        bell: &Bell,
    ) -> io::Result<Self> {
        let alive = ThreadCount::count()?;
        let (registry, pool) = (registry.to_string(), pool.to_string());
        let here = Arc::clone(here);
        let client = mailbox::start(bell, move |worker: Worker<Job, RequestOutcome>| {
            let _alive = alive;
            let mut ask = way_to(&registry, pool, worker.stop(), here, started);
            while let Some(job) = worker.next() {
                let heard = ask(&job.request, Instant::now() + job.timeout);
                let number = job.number;
                worker.reply(RequestOutcome { number, heard });
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
