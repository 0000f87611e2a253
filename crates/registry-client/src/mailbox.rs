//! How a thread that waits for other servers hands over with the session or the keeper that
//! has started it. The thread may call nothing of PostgreSQL.
//!
//! There is one mutex, for what either end has to read, and one pair of sockets, the bell:
//!
//! | on the bell | from the client | from the thread |
//! |---|---|---|
//! | a byte | there is a job | there is an outcome |
//! | its end | give up | the thread has ended |
//!
//! The client waits for its end of the bell together with its latch, and the thread for its
//! own together with the sockets of its connection ([`super::libpq::wait`]). Neither looks
//! again and again. A byte is written after the mailbox was filled, and read before it is
//! emptied: so nothing lies there unheard.

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
}

type Mailbox<J, O> = Arc<Mutex<Mail<J, O>>>;

/// The end that gives jobs. A client that is dropped ends its thread: at once if that waits
/// with [`Worker::stop`].
pub struct Client<J, O> {
    mailbox: Mailbox<J, O>,
    bell: UnixStream,
    has_ended: bool,
}

/// The thread's end.
pub struct Worker<J, O> {
    mailbox: Mailbox<J, O>,
    stop: Stop,
}

/// Starts a thread that runs `serve`. Fails if the process may have no more threads or files.
pub fn start<J: Send + 'static, O: Send + 'static>(
    serve: impl FnOnce(Worker<J, O>) + Send + 'static,
) -> io::Result<Client<J, O>> {
    let (client, worker) = pair()?;
    without_signals(|| {
        let thread = std::thread::Builder::new().name("snowflake_id".to_string());
        thread.spawn(move || serve(worker))
    })?;
    Ok(client)
}

fn pair<J, O>() -> io::Result<(Client<J, O>, Worker<J, O>)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mailbox = Arc::new(Mutex::new(Mail {
        jobs: VecDeque::new(),
        outcomes: VecDeque::new(),
    }));
    let client = Client {
        mailbox: Arc::clone(&mailbox),
        bell: ours,
        has_ended: false,
    };
    let stop = Stop::new(theirs);
    Ok((client, Worker { mailbox, stop }))
}

impl<J, O> Client<J, O> {
    /// Gives the thread a job. One that has ended does nothing.
    pub fn send(&self, job: J) {
        self.mailbox.lock().jobs.push_back(job);
        // If the bell is full, it has been rung.
        let _ = (&self.bell).write(&[0]);
    }

    /// The next outcome, if there is one.
    pub fn take(&mut self) -> Option<O> {
        // The bell first: an outcome that comes later rings again.
        loop {
            match self.bell.read(&mut [0; 64]) {
                Ok(0) => self.has_ended = true,
                Ok(_) => continue,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {}
            }
            break;
        }
        self.mailbox.lock().outcomes.pop_front()
    }

    /// Whether [`Self::take`] has found that the thread has ended: nothing more comes.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Can be read when an outcome has come, or the thread has ended.
    pub fn socket(&self) -> c_int {
        self.bell.as_raw_fd()
    }
}

impl<J, O> Worker<J, O> {
    /// Waits for the next job; `None` once the client is gone.
    pub fn next(&self) -> Option<J> {
        while !self.stop.is_stopped() {
            if let Some(job) = self.mailbox.lock().jobs.pop_front() {
                return Some(job);
            }
            // Waits for the bell. Several bytes may come at once.
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
        // The client may be gone.
        let _ = self.stop.end().write(&[0]);
    }

    /// Ends what waits in this thread when the client is gone.
    pub const fn stop(&self) -> &Stop {
        &self.stop
    }
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::libpq::wait::{Ended, Thread, Waiter, Wanted};

    /// Waits for an outcome, or for the end of the thread.
    fn wait<O>(client: &mut Client<u32, O>) -> Option<O> {
        loop {
            let outcome = client.take();
            if outcome.is_some() || client.has_ended() {
                return outcome;
            }
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
    fn jobs_are_done_in_their_order() {
        let mut client = start(|worker| {
            while let Some(job) = worker.next() {
                worker.reply(job * 2);
            }
        })
        .unwrap();
        (1..=100).for_each(|job| client.send(job));
        for job in 1..=100 {
            assert_eq!(wait(&mut client), Some(job * 2));
        }
        assert!(client.take().is_none() && !client.has_ended());
    }

    #[test]
    fn a_client_hears_that_its_thread_has_ended() {
        let mut client = start(|worker| {
            let job = worker.next().unwrap();
            worker.reply(job);
        })
        .unwrap();
        client.send(7);
        assert_eq!(wait(&mut client), Some(7));
        assert_eq!(wait(&mut client), None);
        assert!(client.has_ended());
        // It does nothing.
        client.send(8);
        assert_eq!(client.take(), None);
        // Nor does one that panics leave its client alone.
        let mut client = start(|_: Worker<u32, u32>| resume()).unwrap();
        assert_eq!(wait(&mut client), None);
    }

    /// Ends a thread without a message on the terminal.
    fn resume() {
        std::panic::resume_unwind(Box::new(()));
    }

    #[test]
    fn a_client_that_is_gone_ends_the_waits_of_its_thread() {
        let (told, ends) = std::sync::mpsc::channel();
        let client = start(move |worker: Worker<u32, u32>| {
            let job = worker.next();
            told.send(Err(job)).unwrap();
            // A connection on which nothing comes; another job lies in the mailbox.
            let (_here, there) = UnixStream::pair().unwrap();
            let late = Instant::now() + Duration::from_secs(600);
            let waited = Thread(worker.stop()).wait(there.as_raw_fd(), Wanted::Read, late);
            told.send(Ok(waited)).unwrap();
            told.send(Err(worker.next())).unwrap();
        })
        .unwrap();
        client.send(1);
        client.send(2);
        assert_eq!(ends.recv().unwrap(), Err(Some(1)));
        drop(client);
        assert_eq!(ends.recv().unwrap(), Ok(Err(Ended)));
        assert_eq!(ends.recv().unwrap(), Err(None), "its job is given up");
    }
}
