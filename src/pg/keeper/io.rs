//! The thread that talks to the registry, so that the keeper never waits for the network.
//!
//! The keeper sends [`Client::send`] one request at a time and reads the outcome by
//! [`Client::take`]; [`Client::socket`] can be read when there is one. A channel goes
//! each way; the socket is there because the keeper waits on its latch, which a channel
//! does not set.
//!
//! The thread calls nothing of PostgreSQL and gets no signals; [`libpq`] has the rules.
//! A client that is dropped ends its thread, at once unless it is in a look-up of a host
//! name, for which no time-out counts. Such a thread is left alone.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::super::libpq::wait::{Stop, Thread};
use super::super::libpq::{Connection, Error, Server};
use super::super::time;
use super::super::wire::{self, Unreadable};
use crate::snowflake::lease::Reply;

/// Sets what the registry's function needs, whatever the role or the database has set,
/// and finds its schema. A statement ends on the other server when nobody waits for it
/// any more; a commit that waits for a synchronous standby does not. Also tells when the
/// other postmaster started, in microseconds: only this server itself did so at the same
/// one.
const SET_UP: &str = "SELECT (SELECT pg_catalog.quote_ident(n.nspname) \
    FROM pg_catalog.pg_extension AS e \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace \
    WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake_id'), \
    (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) \
        OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, \
    pg_catalog.set_config('default_transaction_isolation', 'read committed', false), \
    pg_catalog.set_config('default_transaction_read_only', 'off', false), \
    pg_catalog.set_config('statement_timeout', '5s', false), \
    pg_catalog.set_config('lock_timeout', '5s', false)";

/// Calls the registry with the name of the pool and the request, in which the address of
/// this server is as the other one sees it.
const CALL: &str = "SELECT @schema@.snowflake_lease($1::pg_catalog.text, \
    pg_catalog.jsonb_set($2::pg_catalog.jsonb, '{asker,address}', pg_catalog.to_jsonb(\
        coalesce(pg_catalog.host(pg_catalog.inet_client_addr()), ''))))";

/// What became of a request.
pub struct Outcome {
    /// The number of the request.
    pub number: u64,
    /// The reply, or why there is none: a sentence.
    pub reply: Result<Reply, String>,
}

struct Job {
    number: u64,
    request: String,
    timeout: Duration,
}

/// How many threads there may be. A look-up of a host name that hangs leaves one behind.
const THREADS_MAX: usize = 5;

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
            let why = format!("{before} of them still look up the host name of the registry");
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

/// When the postmaster of this server started, in microseconds since 1970.
fn postmaster_start() -> i64 {
    // SAFETY: a variable of this process, which stays as it is.
    time::unix_micros(unsafe { pg_sys::PgStartTime })
}

/// The keeper's end.
pub struct Client {
    jobs: Sender<Job>,
    outcomes: Receiver<Outcome>,
    bell: UnixStream,
    stop: Arc<Stop>,
    has_ended: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Client {
    /// Starts the thread; `registry` is a conninfo or a URL. `here` tells then whether
    /// the latest connection was to this server itself. Fails if the process may have no
    /// more threads or files, or has [`THREADS_MAX`].
    pub fn new(registry: &str, pool: &str, here: &Arc<AtomicBool>) -> io::Result<Self> {
        let alive = Alive::count()?;
        let (jobs, their_jobs) = channel();
        let (their_outcomes, outcomes) = channel();
        let (bell, mut their_bell) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        their_bell.set_nonblocking(true)?;
        let stop = Arc::new(Stop::new()?);
        let their_stop = Arc::clone(&stop);
        let (registry, pool) = (registry.to_string(), pool.to_string());
        let (started, here) = (postmaster_start(), Arc::clone(here));
        without_signals(|| {
            let thread = std::thread::Builder::new().name("snowflake_id".to_string());
            thread.spawn(move || {
                let _alive = alive;
                let mut caller = Caller {
                    server: server(&registry),
                    pool,
                    stop: &their_stop,
                    session: None,
                    started,
                    here,
                };
                while let Ok(job) = their_jobs.recv()
                    && !their_stop.is_stopped()
                {
                    let reply = caller.answer(&job);
                    let number = job.number;
                    if their_outcomes.send(Outcome { number, reply }).is_err() {
                        return;
                    }
                    // If the bell is full, it has been rung.
                    let _ = their_bell.write(&[0]);
                }
            })
        })?;
        Ok(Self {
            jobs,
            outcomes,
            bell,
            stop,
            has_ended: false,
        })
    }

    /// Sends a request, as JSON. The outcome comes within the time, except for a look-up
    /// of a name; none comes from a thread that has ended.
    pub fn send(&self, number: u64, request: String, timeout: Duration) {
        // The thread ends only after its client.
        let _ = self.jobs.send(Job {
            number,
            request,
            timeout,
        });
    }

    /// The next outcome, if there is one.
    pub fn take(&mut self) -> Option<Outcome> {
        // The bell is emptied first: an outcome that comes later rings again.
        loop {
            match self.bell.read(&mut [0; 64]) {
                Ok(0) => self.has_ended = true,
                Ok(_) => continue,
                Err(_) => {}
            }
            break;
        }
        self.outcomes.try_recv().ok()
    }

    /// Whether [`Self::take`] has found that the thread has ended, so that nothing comes.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Can be read when an outcome has come, or the thread has ended.
    pub fn socket(&self) -> c_int {
        self.bell.as_raw_fd()
    }
}

/// The other server, of which only one that takes writes will do.
fn server(registry: &str) -> Result<Server, Error> {
    Server::parse(registry)?.with([("target_session_attrs", "read-write")])
}

/// Runs `f` with all signals blocked, as a thread that `f` starts has them for ever: the
/// handlers of PostgreSQL are for its own thread.
fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: both are sets of signals, and the calls only change the mask of this
    // thread.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// The thread's end.
struct Caller<'a> {
    server: Result<Server, Error>,
    pool: String,
    stop: &'a Stop,
    session: Option<Session>,
    /// When this server's postmaster started.
    started: i64,
    here: Arc<AtomicBool>,
}

/// A connection that is set up.
struct Session {
    connection: Connection,
    /// The statement that calls the registry.
    call: String,
}

enum Failure {
    Libpq(Error),
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Libpq(error)
    }
}

impl Caller<'_> {
    fn answer(&mut self, job: &Job) -> Result<Reply, String> {
        let until = Instant::now() + job.timeout;
        let is_old = self.session.is_some();
        let outcome = match self.ask(job, until) {
            // A connection that was made for an earlier request may be gone since long.
            // A request may be sent twice.
            Err(Failure::Libpq(Error::Lost(_))) if is_old => self.ask(job, until),
            outcome => outcome,
        };
        outcome.map_err(|failure| match failure {
            Failure::Other(why) => why,
            Failure::Libpq(error) => sentence(&error),
        })
    }

    fn ask(&mut self, job: &Job, until: Instant) -> Result<Reply, Failure> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.connect(until)?,
        };
        let parameters = [Some(self.pool.as_str()), Some(job.request.as_str())];
        let answer = session.connection.query(
            &session.call,
            &parameters,
            until.saturating_duration_since(Instant::now()),
            &mut Thread(self.stop),
        );
        let has_warned = session.connection.has_warned();
        if session.connection.is_usable() {
            self.session = Some(session);
        }
        let rows = answer?;
        // The wait for a synchronous standby was ended: the reply could be lost.
        if has_warned {
            let why = "The registry's server has warned that its reply may not be durable.";
            return Err(Failure::Other(why.to_string()));
        }
        let text = rows.first_value().unwrap_or_default();
        wire::decode(text).map_err(|why| {
            Failure::Other(match why {
                Unreadable::Format(format) => format!(
                    "The registry answers in format {format}, and this server understands format \
                     {}: install the same version of extension snowflake_id on both.",
                    wire::FORMAT
                ),
                Unreadable::Content(why) => {
                    format!("The reply of the registry could not be read: {why}.")
                }
            })
        })
    }

    fn connect(&self, until: Instant) -> Result<Session, Failure> {
        let server = self.server.as_ref().map_err(Clone::clone)?;
        let mut waiter = Thread(self.stop);
        let left = || until.saturating_duration_since(Instant::now());
        let mut connection = Connection::open(server, left(), &mut waiter)?;
        let rows = connection.query(SET_UP, &[], left(), &mut waiter)?;
        let schema = rows.first_value().ok_or_else(|| {
            Failure::Other(
                "The registry's database does not have extension snowflake_id.".to_string(),
            )
        })?;
        let started = rows.rows.first().and_then(|row| row.get(1)?.as_deref());
        let is_here = started.and_then(|text| text.parse().ok()) == Some(self.started);
        self.here.store(is_here, Ordering::Relaxed);
        let call = CALL.replace("@schema@", schema);
        Ok(Session { connection, call })
    }
}

/// Why there is no reply.
fn sentence(error: &Error) -> String {
    match error {
        Error::Conninfo => {
            "\"snowflake_id.registry\" is neither a libpq conninfo nor a URL.".to_string()
        }
        Error::Connect(message) => format!("Could not connect: {}.", bare(message)),
        Error::TimedOut(_) => "The registry did not answer in time.".to_string(),
        Error::Statement(refusal) => format!(
            "The registry's server refused the request with SQLSTATE {}: {}.",
            refusal.sqlstate,
            bare(&refusal.message)
        ),
        Error::Lost(message) => format!("The connection was lost: {}.", bare(message)),
        Error::Ended => "The request was given up.".to_string(),
    }
}

/// A message without the full stop at its end.
fn bare(message: &str) -> &str {
    message.trim_end_matches(['.', '?', ' ', '\n'])
}
