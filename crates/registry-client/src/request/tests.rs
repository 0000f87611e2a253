use std::net::TcpListener;

use super::*;
use crate::libpq::LibpqError;
use snowflake_core::id::{BootNanos, UnixMillis};
use snowflake_core::lease::{Holder, Nonce, RequestKind, ServerKey};

fn request() -> Request {
    let identity = ServerKey {
        system: 1,
        boot: 2,
        device: 3,
        inode: 4,
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
        ask: RequestKind::Acquire {
            fixed: None,
            last: None,
            holding: None,
        },
    }
}

/// Asks the registry of a setting.
fn ask(registry: &str) -> (RequestError, bool) {
    let here = Arc::new(AtomicBool::new(true));
    let bell = Bell::new().unwrap();
    let client = RegistryClient::new(registry, "main", 0, &here, &bell).unwrap();
    client.send(8, request(), Duration::from_secs(600));
    loop {
        bell.silence();
        if let Some(outcome) = client.take() {
            assert_eq!(outcome.number, 8);
            return (
                outcome.heard.reply.unwrap_err(),
                here.load(Ordering::Relaxed),
            );
        }
        assert!(!client.has_ended());
        let mut rings = libc::pollfd {
            fd: bell.socket(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut rings, 1, -1) };
    }
}

#[test]
fn a_registry_that_is_not_there() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let (why, _) = ask(&format!("host=127.0.0.1 port={port}"));
    assert!(
        matches!(
            why,
            RequestError::Postgres(PostgresError::Libpq(LibpqError::Connect(_)))
        ),
        "{why:?}"
    );
    let (why, is_here) = ask(&format!("etcd://127.0.0.1:{port}"));
    assert!(
        matches!(why, RequestError::Etcd(EtcdError::Unreachable(_))),
        "{why:?}"
    );
    assert!(!is_here, "no server hosts etcd");
}

#[test]
fn a_setting_that_names_no_registry() {
    let (why, _) = ask("etcd://a?b");
    assert!(matches!(why, RequestError::Url(_)), "{why:?}");
    let (why, _) = ask("a=b");
    assert!(
        matches!(
            why,
            RequestError::Postgres(PostgresError::Libpq(LibpqError::Conninfo))
        ),
        "{why:?}"
    );
}
