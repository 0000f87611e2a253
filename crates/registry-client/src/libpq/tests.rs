use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use super::wait::{Stop, Thread};
use super::*;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(300);

/// Connects to a port of this machine.
fn open(port: u16, timeout: Duration) -> LibpqError {
    let server = Conninfo::parse(&format!("host=127.0.0.1 port={port} password=hunter2"));
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let stop = Stop::new(theirs);
    Connection::open(&server.unwrap(), timeout, &mut Thread(&stop)).unwrap_err()
}

#[test]
fn a_server_that_does_not_answer() {
    // The kernel accepts the connection, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    assert_eq!(open(port, SHORT), LibpqError::TimedOut(SHORT));
}

#[test]
fn a_server_that_is_not_there() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let LibpqError::Connect(message) = open(port, LONG) else {
        panic!("nobody refuses");
    };
    assert!(message.contains(&port.to_string()), "{message}");
    assert!(
        !message.contains('\n') && !message.contains("hunter2"),
        "{message}"
    );
}
