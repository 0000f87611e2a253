//! Waits for a socket: in a backend, or in a thread that calls nothing of PostgreSQL.

use std::ffi::c_int;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::compat;

/// What the socket is to be ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Read,
    Write,
    /// To be read or to be written, whichever is first.
    Either,
}

/// Whether the socket became ready before the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    Yes,
    No,
}

/// Somebody ended the wait: the work is to be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

/// How a client waits.
pub trait Waiter {
    /// Waits until the socket is ready, or until the deadline. Looks at the socket at
    /// least once, even if the deadline has passed.
    fn wait(&mut self, socket: c_int, wanted: Wanted, deadline: Instant) -> Result<Ready, Ended>;
}

/// Waits in a backend or in the main thread of a background worker. An interrupt such as
/// a cancelled query raises its error, and the end of the postmaster ends the process.
pub struct Backend;

impl Waiter for Backend {
    fn wait(&mut self, socket: c_int, wanted: Wanted, deadline: Instant) -> Result<Ready, Ended> {
        let (read, write) = (wanted != Wanted::Write, wanted != Wanted::Read);
        loop {
            pgrx::check_for_interrupts!();
            let left = millis_until(deadline);
            if compat::wait_socket(socket, read, write, i64::from(left)) {
                return Ok(Ready::Yes);
            }
            if left == 0 {
                return Ok(Ready::No);
            }
        }
    }
}

/// Ends the waits of threads, from any other thread and for ever.
#[derive(Debug)]
pub struct Stop {
    ours: UnixStream,
    theirs: UnixStream,
}

impl Stop {
    /// Fails if the process may open no more files.
    pub fn new() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok(Self { ours, theirs })
    }

    /// Ends all waits with this stop, now and later.
    pub fn stop(&self) {
        // The other end can be read from now on: it is at its end. This fails only for
        // an end that was shut down before.
        let _ = self.ours.shutdown(Shutdown::Both);
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        let mut ends = [waits_for(self.theirs.as_raw_fd(), libc::POLLIN)];
        poll(&mut ends, 0);
        is_ready(ends)
    }
}

/// Waits in a thread, by poll(2), until its [`Stop`] ends the wait.
#[derive(Debug)]
pub struct Thread<'a>(pub &'a Stop);

impl Waiter for Thread<'_> {
    fn wait(&mut self, socket: c_int, wanted: Wanted, deadline: Instant) -> Result<Ready, Ended> {
        let events = match wanted {
            Wanted::Read => libc::POLLIN,
            Wanted::Write => libc::POLLOUT,
            Wanted::Either => libc::POLLIN | libc::POLLOUT,
        };
        loop {
            let left = millis_until(deadline);
            let mut both = [
                waits_for(self.0.theirs.as_raw_fd(), libc::POLLIN),
                waits_for(socket, events),
            ];
            poll(&mut both, left);
            let [stop, socket] = both;
            if is_ready([stop]) {
                return Err(Ended);
            }
            if is_ready([socket]) {
                return Ok(Ready::Yes);
            }
            if left == 0 {
                return Ok(Ready::No);
            }
        }
    }
}

fn waits_for(fd: c_int, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// Errors count as ready: the next read or write tells which one it is.
fn is_ready([end]: [libc::pollfd; 1]) -> bool {
    end.revents != 0
}

/// Waits for this many milliseconds at most. A signal ends the wait early.
fn poll<const N: usize>(ends: &mut [libc::pollfd; N], millis: c_int) {
    let count = libc::nfds_t::try_from(N).unwrap_or(0);
    // SAFETY: as many entries as said.
    let ready = unsafe { libc::poll(ends.as_mut_ptr(), count, millis) };
    if ready < 0 {
        // The kernel may have written some of them.
        ends.iter_mut().for_each(|end| end.revents = 0);
    }
}

/// The time until the deadline, rounded up, so that a wait does not end just before it.
fn millis_until(deadline: Instant) -> c_int {
    let left = deadline.saturating_duration_since(Instant::now());
    c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn a_thread_waits_for_its_socket() {
        let stop = Stop::new().unwrap();
        let (mut here, there) = UnixStream::pair().unwrap();
        let socket = there.as_raw_fd();
        let mut waiter = Thread(&stop);
        assert_eq!(waiter.wait(socket, Wanted::Read, soon()), Ok(Ready::No));
        assert_eq!(waiter.wait(socket, Wanted::Write, late()), Ok(Ready::Yes));
        assert_eq!(waiter.wait(socket, Wanted::Either, late()), Ok(Ready::Yes));
        here.write_all(b"x").unwrap();
        assert_eq!(waiter.wait(socket, Wanted::Read, late()), Ok(Ready::Yes));
        // A deadline that has passed does not hide a socket that is ready.
        assert_eq!(
            waiter.wait(socket, Wanted::Read, Instant::now()),
            Ok(Ready::Yes)
        );
    }

    #[test]
    fn a_stop_ends_the_waits_of_all_threads() {
        let stop = Stop::new().unwrap();
        let (_here, there) = UnixStream::pair().unwrap();
        let socket = there.as_raw_fd();
        assert!(!stop.is_stopped());
        std::thread::scope(|scope| {
            let wait = || Thread(&stop).wait(socket, Wanted::Read, late());
            let threads = [scope.spawn(wait), scope.spawn(wait)];
            stop.stop();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), Err(Ended));
            }
        });
        stop.stop();
        assert!(stop.is_stopped());
        // Not even a socket that is ready goes on.
        assert_eq!(
            Thread(&stop).wait(socket, Wanted::Write, late()),
            Err(Ended)
        );
    }
}
