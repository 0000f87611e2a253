//! How a thread that waits for other servers hands over with the session or the keeper that
//! has started it. The thread may call nothing of PostgreSQL.
//!
//! Each thread has one mutex, for what either end has to read, and one pair of sockets. Its
//! client has one [`Bell`], another pair of sockets, for all the threads that it starts:
//!
//! | what comes | on the pair of the thread | on the bell |
//! |---|---|---|
//! | a byte | there is a job | a thread has an outcome, or has ended |
//! | its end | the client gives up | |
//!
//! The client waits for the bell together with its latch, and the thread for its pair
//! together with the sockets of its connection ([`super::libpq::wait`]). Neither looks again
//! and again. A byte is written after the mailbox was filled, and read before it is emptied:
//! so nothing lies there unheard.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::libpq::wait::Stop;

/// What lies in the mailbox, for each end.
struct Mail<J, O> {
    jobs: VecDeque<J>,
    outcomes: VecDeque<O>,
    /// The thread has ended.
    has_ended: bool,
}

type Mailbox<J, O> = Arc<Mutex<Mail<J, O>>>;

/// What the client of one thread or of several waits for.
pub struct Bell {
    heard: UnixStream,
    rung: Arc<UnixStream>,
}

impl Bell {
    /// Fails if the process may have no more files.
    pub fn new() -> io::Result<Self> {
        let (heard, rung) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        // If it is full, it has been rung.
        rung.set_nonblocking(true)?;
        let rung = Arc::new(rung);
        Ok(Self { heard, rung })
    }

    /// Can be read when a thread has an outcome, or has ended.
    pub fn socket(&self) -> c_int {
        self.heard.as_raw_fd()
    }

    /// Silences the bell. After that the client looks into the mailboxes of all its threads: an
    /// outcome that comes later rings again.
    pub fn silence(&self) {
        let mut bytes = [0; 64];
        loop {
            match (&self.heard).read(&mut bytes) {
                Err(why) if why.kind() != io::ErrorKind::Interrupted => break,
                _ => {}
            }
        }
    }
}

/// The end that gives jobs. A client that is dropped ends its thread: at once if that waits
/// with [`Worker::stop`].
pub struct Client<J, O> {
    mailbox: Mailbox<J, O>,
    to_thread: UnixStream,
}

/// The thread's end.
pub struct Worker<J, O> {
    mailbox: Mailbox<J, O>,
    stop: Stop,
    bell: Arc<UnixStream>,
}

/// Starts a thread that runs `serve`, and rings the bell. Fails if the process may have no more threads or files.
pub fn start<J: Send + 'static, O: Send + 'static>(
    bell: &Bell,
    serve: impl FnOnce(Worker<J, O>) + Send + 'static,
) -> io::Result<Client<J, O>> {
    let (client, worker) = pair(bell)?;
    without_signals(|| {
        let thread = std::thread::Builder::new().name("snowflake_id".to_string());
        thread.spawn(move || serve(worker))
    })?;
    Ok(client)
}

fn pair<J, O>(bell: &Bell) -> io::Result<(Client<J, O>, Worker<J, O>)> {
    let (to_thread, theirs) = UnixStream::pair()?;
    // If it is full, the thread has been told.
    to_thread.set_nonblocking(true)?;
    let mailbox = Arc::new(Mutex::new(Mail {
        jobs: VecDeque::new(),
        outcomes: VecDeque::new(),
        has_ended: false,
    }));
    let worker = Worker {
        mailbox: Arc::clone(&mailbox),
        stop: Stop::new(theirs),
        bell: Arc::clone(&bell.rung),
    };
    Ok((Client { mailbox, to_thread }, worker))
}

impl<J, O> Client<J, O> {
    /// Gives the thread a job. One that has ended does nothing.
    pub fn send(&self, job: J) {
        self.mailbox.lock().jobs.push_back(job);
        let _ = (&self.to_thread).write(&[0]);
    }

    /// The next outcome, if there is one. Looked for after [`Bell::silence`].
    pub fn take(&self) -> Option<O> {
        self.mailbox.lock().outcomes.pop_front()
    }

    /// Whether the thread has ended, and [`Self::take`] has taken all: nothing more comes.
    pub fn has_ended(&self) -> bool {
        let mail = self.mailbox.lock();
        mail.has_ended && mail.outcomes.is_empty()
    }
}

impl<J, O> Worker<J, O> {
    /// Waits for the next job; `None` once the client is gone.
    pub fn next(&self) -> Option<J> {
        while !self.stop.is_stopped() {
            if let Some(job) = self.mailbox.lock().jobs.pop_front() {
                return Some(job);
            }
            // Several bytes may come at once.
            match self.stop.end().read(&mut [0; 64]) {
                Ok(0) => break,
                Err(why) if why.kind() != io::ErrorKind::Interrupted => break,
                _ => {}
            }
        }
        None
    }

    /// Says what became of a job.
    pub fn reply(&self, outcome: O) {
        self.mailbox.lock().outcomes.push_back(outcome);
        self.ring();
    }

    /// Ends what waits in this thread when the client is gone.
    pub const fn stop(&self) -> &Stop {
        &self.stop
    }

    fn ring(&self) {
        // The client may be gone.
        let _ = (&*self.bell).write(&[0]);
    }
}

impl<J, O> Drop for Worker<J, O> {
    fn drop(&mut self) {
        self.mailbox.lock().has_ended = true;
        self.ring();
    }
}

/// Runs `f` with all signals blocked, since a thread that `f` starts keeps them blocked until it
/// ends: the handlers of PostgreSQL are for its own thread.
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::libpq::wait::{SocketEvent, Thread, WaitEnded, Waiter};

    /// Waits for an outcome, or for the end of the thread.
    fn wait<O>(bell: &Bell, client: &Client<u32, O>) -> Option<O> {
        loop {
            bell.silence();
            let outcome = client.take();
            if outcome.is_some() || client.has_ended() {
                return outcome;
            }
            let mut bell = libc::pollfd {
                fd: bell.socket(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry.
            unsafe { libc::poll(&raw mut bell, 1, -1) };
        }
    }

    /// Starts a thread that doubles numbers.
    fn doubling(bell: &Bell) -> Client<u32, u32> {
        let serve = |worker: Worker<u32, u32>| {
            while let Some(job) = worker.next() {
                worker.reply(job * 2);
            }
        };
        start(bell, serve).unwrap()
    }

    #[test]
    fn jobs_are_done_in_their_order() {
        let bell = Bell::new().unwrap();
        let client = doubling(&bell);
        (1..=100).for_each(|job| client.send(job));
        for job in 1..=100 {
            assert_eq!(wait(&bell, &client), Some(job * 2));
        }
        assert!(client.take().is_none() && !client.has_ended());
    }

    #[test]
    fn a_thread_that_hangs_delays_no_other() {
        let bell = Bell::new().unwrap();
        let (_here, there) = UnixStream::pair().unwrap();
        let hanging = start(&bell, move |worker: Worker<u32, u32>| {
            while let Some(job) = worker.next() {
                let late = Instant::now() + Duration::from_secs(600);
                let _ = Thread(worker.stop()).wait(there.as_raw_fd(), SocketEvent::Read, late);
                worker.reply(job);
            }
        })
        .unwrap();
        let client = doubling(&bell);
        hanging.send(1);
        for job in 1..=100 {
            client.send(job);
            assert_eq!(wait(&bell, &client), Some(job * 2));
        }
        assert!(hanging.take().is_none() && !hanging.has_ended());
    }

    #[test]
    fn a_client_hears_that_its_thread_has_ended() {
        let bell = Bell::new().unwrap();
        let client = start(&bell, |worker| {
            let job = worker.next().unwrap();
            worker.reply(job);
        })
        .unwrap();
        client.send(7);
        assert_eq!(wait(&bell, &client), Some(7));
        assert_eq!(wait(&bell, &client), None);
        assert!(client.has_ended());
        // It does nothing.
        client.send(8);
        assert_eq!(client.take(), None);
        // Nor does one that panics leave its client alone.
        let client = start(&bell, |worker: Worker<u32, u32>| {
            let _ends = worker;
            resume();
        })
        .unwrap();
        assert_eq!(wait(&bell, &client), None);
    }

    /// Ends a thread without a message on the terminal.
    fn resume() {
        std::panic::resume_unwind(Box::new(()));
    }

    #[test]
    fn a_client_that_is_gone_ends_the_waits_of_its_thread() {
        let (told, ends) = std::sync::mpsc::channel();
        let bell = Bell::new().unwrap();
        let client = start(&bell, move |worker: Worker<u32, u32>| {
            let job = worker.next();
            told.send(Err(job)).unwrap();
            // A connection on which nothing comes; another job lies in the mailbox.
            let (_here, there) = UnixStream::pair().unwrap();
            let late = Instant::now() + Duration::from_secs(600);
            let waited = Thread(worker.stop()).wait(there.as_raw_fd(), SocketEvent::Read, late);
            told.send(Ok(waited)).unwrap();
            told.send(Err(worker.next())).unwrap();
        })
        .unwrap();
        client.send(1);
        client.send(2);
        assert_eq!(ends.recv().unwrap(), Err(Some(1)));
        drop(client);
        assert_eq!(ends.recv().unwrap(), Ok(Err(WaitEnded)));
        assert_eq!(ends.recv().unwrap(), Err(None), "its job is given up");
    }
}
