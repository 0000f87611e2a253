//! The thread that talks to the registry, so that the keeper never waits for the network.
//!
//! The keeper sends [`Client::send`] one request at a time and reads the outcome by
//! [`Client::take`]; [`Client::socket`] can be read when there is one. A channel goes
//! each way; the socket is there because the keeper waits on its latch, which a channel
//! does not set.
//!
//! The thread calls nothing of PostgreSQL and gets no signals; [`super::super::libpq`] has
//! the rules. A [`Transport`] carries the requests: to PostgreSQL, or to etcd.
//!
//! A client that is dropped ends its thread: that of PostgreSQL at once, unless it is in a
//! look-up of a host name, for which no time-out counts; that of etcd when the time-out of
//! its request is over. Such a thread is left alone.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::super::etcd::host::Host;
use super::super::etcd::url::{self, Url};
use super::super::libpq::wait::Stop;
use super::postgres::{self, Postgres};
use crate::error;
use snowflake_core::lease::{Reply, Request};

/// What became of a request.
pub struct Outcome {
    /// The number of the request.
    pub number: u64,
    /// The reply, or why there is none: a sentence.
    pub reply: Result<Reply, String>,
}

pub struct Job {
    number: u64,
    pub request: Request,
    pub timeout: Duration,
}

/// A way to a registry, used by the thread only.
pub trait Transport {
    /// The reply to a request; or why there is none, as a sentence. Takes no longer than
    /// the job's time-out, but for a look-up of a host name.
    fn answer(&mut self, job: &Job) -> Result<Reply, String>;
}

/// The way to the registry of a setting.
fn transport(
    registry: &str,
    pool: String,
    stop: &Arc<Stop>,
    here: Arc<AtomicBool>,
    started: i64,
) -> Box<dyn Transport> {
    if !url::is_etcd(registry) {
        let stop = Arc::clone(stop);
        return Box::new(Postgres::new(registry, pool, stop, here, started));
    }
    here.store(false, Ordering::Relaxed);
    match Url::parse(registry) {
        Ok(url) => Box::new(Etcd {
            host: Host::new(url),
            pool,
        }),
        Err(why) => Box::new(Nowhere(why)),
    }
}

/// A registry in etcd.
struct Etcd {
    host: Host,
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
    /// Starts the thread; `registry` is what the setting says. `here` tells then whether
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
        let (started, here) = (postgres::postmaster_start(), Arc::clone(here));
        without_signals(|| {
            let thread = std::thread::Builder::new().name("snowflake_id".to_string());
            thread.spawn(move || {
                let _alive = alive;
                let mut registry = transport(&registry, pool, &their_stop, here, started);
                while let Ok(job) = their_jobs.recv()
                    && !their_stop.is_stopped()
                {
                    let reply = registry.answer(&job);
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

    /// Sends a request. The outcome comes within the time, except for a look-up
    /// of a name; none comes from a thread that has ended.
    pub fn send(&self, number: u64, request: Request, timeout: Duration) {
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

/// Runs `f` with all signals blocked, as a thread that `f` starts has them for ever: the
/// handlers of PostgreSQL are for its own thread.
pub fn without_signals<T>(f: impl FnOnce() -> T) -> T {
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
