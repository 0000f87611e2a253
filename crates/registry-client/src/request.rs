//! The thread that talks to the registry, so that the keeper never waits for the network.
//!
//! The keeper sends [`RegistryClient::send`] one request at a time and reads the outcome by
//! [`RegistryClient::take`]; [`RegistryClient::socket`] can be read when there is one: see [`mailbox`].
//!
//! The thread gets no signals; [`crate::libpq`] has the rules.
//!
//! A client that is dropped ends its thread: that of PostgreSQL at once, unless it is in a
//! look-up of a host name, for which no time-out counts; that of etcd when the time-out of
//! its request is over. Such a thread is left alone.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::etcd::host::{EtcdRegistry, Problem};
use crate::etcd::url::{self, Url};
use crate::libpq::LibpqError;
use crate::libpq::wait::Stop;
use crate::mailbox::{self, Worker};
use crate::postgres::PostgresRegistry;
use crate::wire::UnreadableMessage;
use snowflake_core::lease::{Reply, Request};

/// A request of the keeper.
pub struct Job {
    number: u64,
    pub request: Request,
    pub timeout: Duration,
}

/// What became of a request.
pub struct RequestOutcome {
    /// The number of the request.
    pub number: u64,
    pub reply: Result<Reply, Unanswered>,
}

/// Why there is no reply.
#[derive(Debug)]
pub enum Unanswered {
    /// The setting names no registry in etcd, for this reason: a sentence.
    Url(String),
    Etcd(Problem),
    Libpq(LibpqError),
    /// The registry's database does not have the extension.
    NoExtension,
    /// The function of the registry's database is not the extension's.
    ForeignFunction,
    /// The registry's server has warned that its reply could be lost.
    NotDurable,
    Unreadable(UnreadableMessage),
}

impl From<LibpqError> for Unanswered {
    fn from(error: LibpqError) -> Self {
        Self::Libpq(error)
    }
}

/// Carries a request to a registry. Takes no longer than the job's time-out, but for a look-up
/// of a host name.
type Ask = Box<dyn FnMut(&Job) -> Result<Reply, Unanswered>>;

/// The way to the registry of a setting.
fn way_to(registry: &str, pool: String, stop: &Stop, here: Arc<AtomicBool>, started: i64) -> Ask {
    if !url::is_etcd(registry) {
        let mut registry = PostgresRegistry::new(registry, pool, stop.clone(), here, started);
        return Box::new(move |job| registry.answer(job));
    }
    here.store(false, Ordering::Relaxed);
    match Url::parse(registry).map(EtcdRegistry::new) {
        Ok(mut host) => Box::new(move |job| {
            let until = Instant::now() + job.timeout;
            let reply = host.ask(&pool, &job.request, until);
            reply.map_err(Unanswered::Etcd)
        }),
        Err(why) => Box::new(move |_| Err(Unanswered::Url(why.clone()))),
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
    /// the latest connection was to this server itself, whose postmaster started at `started`,
    /// in microseconds since 1970. Fails if the process may have no
    /// more threads or files, or has [`THREADS_MAX`].
    pub fn new(
        registry: &str,
        pool: &str,
        started: i64,
        here: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let alive = Alive::count()?;
        let (registry, pool) = (registry.to_string(), pool.to_string());
        let here = Arc::clone(here);
        let client = mailbox::start(move |worker: Worker<Job, RequestOutcome>| {
            let _alive = alive;
            let mut ask = way_to(&registry, pool, worker.stop(), here, started);
            while let Some(job) = worker.next() {
                let (number, reply) = (job.number, ask(&job));
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
    pub fn take(&mut self) -> Option<RequestOutcome> {
        self.0.take()
    }

    /// Whether [`Self::take`] has found that the thread has ended, so that nothing comes.
    pub const fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Can be read when an outcome has come, or the thread has ended.
    pub fn socket(&self) -> c_int {
        self.0.socket()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use snowflake_core::id::{BootNanos, UnixMillis};
    use snowflake_core::lease::{Ask, Holder, Nonce, Role, ServerKey};

    fn request() -> Request {
        let identity = ServerKey {
            system: 1,
            boot: 2,
            device: 3,
            inode: 4,
            generator: 0,
            role: Role::NONE,
        };
        Request {
            asker: Holder {
                identity,
                started: BootNanos::new(5),
                host: "a".to_string(),
                address: String::new(),
                port: 6,
                data_directory: "/b".to_string(),
            },
            nonce: Nonce(7),
            number: 8,
            clock: UnixMillis::new(9),
            memory: None,
            ask: Ask::Acquire {
                fixed: None,
                last: None,
                latest: None,
            },
        }
    }

    /// Asks the registry of a setting.
    fn ask(registry: &str) -> (Unanswered, bool) {
        let here = Arc::new(AtomicBool::new(true));
        let mut client = RegistryClient::new(registry, "main", 0, &here).unwrap();
        client.send(8, request(), Duration::from_secs(600));
        loop {
            if let Some(outcome) = client.take() {
                assert_eq!(outcome.number, 8);
                return (outcome.reply.unwrap_err(), here.load(Ordering::Relaxed));
            }
            assert!(!client.has_ended());
            let mut bell = libc::pollfd {
                fd: client.socket(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry.
            unsafe { libc::poll(&raw mut bell, 1, -1) };
        }
    }

    #[test]
    fn a_registry_that_is_not_there() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = closed.local_addr().unwrap().port();
        drop(closed);
        let (why, _) = ask(&format!("host=127.0.0.1 port={port}"));
        assert!(
            matches!(why, Unanswered::Libpq(LibpqError::Connect(_))),
            "{why:?}"
        );
        let (why, is_here) = ask(&format!("etcd://127.0.0.1:{port}"));
        assert!(
            matches!(why, Unanswered::Etcd(Problem::Unreachable(_))),
            "{why:?}"
        );
        assert!(!is_here, "no server hosts etcd");
    }

    #[test]
    fn a_setting_that_names_no_registry() {
        let (why, _) = ask("etcd://a?b");
        assert!(matches!(why, Unanswered::Url(_)), "{why:?}");
        let (why, _) = ask("a=b");
        assert!(
            matches!(why, Unanswered::Libpq(LibpqError::Conninfo)),
            "{why:?}"
        );
    }
}
