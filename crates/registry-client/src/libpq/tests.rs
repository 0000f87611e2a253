use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

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
    let LibpqError::Connect(message) = open(port, SHORT) else {
        panic!("it answers");
    };
    assert!(message.contains("failed: no answer within "), "{message}");
    assert!(message.contains(&port.to_string()), "{message}");
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

/// A message of PostgreSQL's protocol.
fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 4).unwrap().to_be_bytes();
    [&[kind], &length[..], content].concat()
}

/// A row of one value.
fn row(value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap().to_be_bytes();
    message(b'D', &[&[0, 1], &length[..], value].concat())
}

fn read(client: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

/// The length of a message's content, which begins with it.
fn length(client: &mut TcpStream) -> usize {
    let bytes = read(client, 4).try_into().unwrap();
    usize::try_from(u32::from_be_bytes(bytes)).unwrap() - 4
}

/// Finds each socket ready, as that of a server is which sends faster than this one reads.
struct AlwaysReady;

impl Waiter for AlwaysReady {
    fn wait(&mut self, _: c_int, _: SocketEvent, _: Instant) -> Result<Ready, WaitEnded> {
        Ok(Ready::Yes)
    }
}

/// Asks a server that begins to answer, and then sends the same again and again.
fn ask_endless(repeated: Vec<u8>, timeout: Duration, waiter: &mut dyn Waiter) -> LibpqError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let endless = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let start = length(&mut client);
        read(&mut client, start);
        let ready = message(b'Z', b"I");
        client.write_all(&message(b'R', &[0; 4])).unwrap();
        client.write_all(&ready).unwrap();
        while read(&mut client, 1) != b"S" {
            let rest = length(&mut client);
            read(&mut client, rest);
        }
        let column = [
            &[0, 1][..],
            b"c\0",
            &[0; 6],
            &[0, 0, 0, 25],
            &[255; 6],
            &[0; 2],
        ]
        .concat();
        let begin = [
            message(b'1', b""),
            message(b'2', b""),
            message(b'T', &column),
        ]
        .concat();
        client.write_all(&begin).unwrap();
        while client.write_all(&repeated).is_ok() {}
    });
    let server =
        format!("host=127.0.0.1 port={port} user=x dbname=x sslmode=disable gssencmode=disable");
    let mut connection =
        Connection::open(&Conninfo::parse(&server).unwrap(), LONG, waiter).unwrap();
    let answer = connection.query("SELECT", &[], timeout, waiter);
    assert!(!connection.is_usable());
    drop(connection);
    endless.join().unwrap();
    answer.unwrap_err()
}

#[test]
fn an_answer_without_end() {
    let too_long = LibpqError::Lost("the answer has more than 16 MB".to_string());
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let stop = Stop::new(theirs);
    for row in [row(&[b'x'; 100_000]), row(b"").repeat(1000)] {
        assert_eq!(ask_endless(row, LONG, &mut Thread(&stop)), too_long);
    }
}

#[test]
fn a_server_that_is_always_ready_is_late() {
    let notice = message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mx\0\0").repeat(1000);
    let late = LibpqError::TimedOut(SHORT);
    assert_eq!(ask_endless(notice, SHORT, &mut AlwaysReady), late);
}
