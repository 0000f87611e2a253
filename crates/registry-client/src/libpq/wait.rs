//! Waits for a socket: in a thread, or as a session does that gives a [`Waiter`] of its own.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// What the socket is to be ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketEvent {
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
pub struct WaitEnded;

/// How a client waits.
pub trait Waiter {
    /// Waits until the socket is ready, or until the deadline. Looks at the socket at
    /// least once, even if the deadline has passed.
    fn wait(
        &mut self,
        socket: c_int,
        wanted: SocketEvent,
        deadline: Instant,
    ) -> Result<Ready, WaitEnded>;
}

/// A thread's end of a pair of sockets. Once the other end is closed, all waits with this one
/// end, now and later; what can be read here ends none.
#[derive(Clone, Debug)]
pub struct Stop(Arc<UnixStream>);

impl Stop {
    pub fn new(end: UnixStream) -> Self {
        Self(Arc::new(end))
    }

    /// This end.
    pub fn end(&self) -> &UnixStream {
        &self.0
    }

    /// Whether the other end is closed.
    pub fn is_stopped(&self) -> bool {
        let mut ends = [self.to_wait_for()];
        poll(&mut ends, 0);
        is_ready(ends)
    }

    /// With no events, poll(2) tells only that the other end is closed.
    fn to_wait_for(&self) -> libc::pollfd {
        waits_for(self.0.as_raw_fd(), 0)
    }
}

/// Waits in a thread, by poll(2), until its [`Stop`] ends the wait.
#[derive(Debug)]
pub struct Thread<'a>(pub &'a Stop);

impl Waiter for Thread<'_> {
    fn wait(
        &mut self,
        socket: c_int,
        wanted: SocketEvent,
        deadline: Instant,
    ) -> Result<Ready, WaitEnded> {
        let events = match wanted {
            SocketEvent::Read => libc::POLLIN,
            SocketEvent::Write => libc::POLLOUT,
            SocketEvent::Either => libc::POLLIN | libc::POLLOUT,
        };
        loop {
            let left = millis_until(deadline);
            let mut both = [self.0.to_wait_for(), waits_for(socket, events)];
            poll(&mut both, left);
            let [stop, socket] = both;
            if is_ready([stop]) {
                return Err(WaitEnded);
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
pub fn millis_until(deadline: Instant) -> c_int {
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
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let stop = Stop::new(theirs);
        let (mut here, there) = UnixStream::pair().unwrap();
        let socket = there.as_raw_fd();
        let mut waiter = Thread(&stop);
        assert_eq!(
            waiter.wait(socket, SocketEvent::Read, soon()),
            Ok(Ready::No)
        );
        assert_eq!(
            waiter.wait(socket, SocketEvent::Write, late()),
            Ok(Ready::Yes)
        );
        assert_eq!(
            waiter.wait(socket, SocketEvent::Either, late()),
            Ok(Ready::Yes)
        );
        here.write_all(b"x").unwrap();
        assert_eq!(
            waiter.wait(socket, SocketEvent::Read, late()),
            Ok(Ready::Yes)
        );
        // A deadline that has passed does not hide a socket that is ready.
        assert_eq!(
            waiter.wait(socket, SocketEvent::Read, Instant::now()),
            Ok(Ready::Yes)
        );
    }

    #[test]
    fn a_stop_ends_the_waits_of_all_threads() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let stop = Stop::new(theirs);
        let (_here, there) = UnixStream::pair().unwrap();
        let socket = there.as_raw_fd();
        // What the other end writes is no stop.
        ours.write_all(b"x").unwrap();
        assert!(!stop.is_stopped());
        std::thread::scope(|scope| {
            let wait = || Thread(&stop).wait(socket, SocketEvent::Read, late());
            let threads = [scope.spawn(wait), scope.spawn(wait)];
            drop(ours);
            for thread in threads {
                assert_eq!(thread.join().unwrap(), Err(WaitEnded));
            }
        });
        assert!(stop.is_stopped());
        // After a stop, the wait fails even if the socket is ready.
        assert_eq!(
            Thread(&stop).wait(socket, SocketEvent::Write, late()),
            Err(WaitEnded)
        );
    }
}
