//! Tests that ask an etcd of their own. They say so and pass where none is installed.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::gateway::{Gateway, decoded, encoded, number};
use super::host::{AttemptError, EtcdError, EtcdRegistry, grown};
use super::url::Url;
use crate::wire::FORMAT;
use snowflake_core::id::{BootNanos, UnixMillis};
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{
    Answer, Cause, Grant, Holder, Memory, Nonce, RegistryError, Request, RequestKind, ServerKey,
};

/// An etcd of one member, with its data in a folder of its own.
struct Etcd {
    process: Child,
    folder: PathBuf,
    port: u16,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Etcd {
    /// `None` if there is no program of this name.
    fn start(name: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("{name}.{}", std::process::id()));
        let (port, peer) = (free_port(), free_port());
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new("etcd");
        for (option, value) in [
            ("--name", name),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("{name}={peer}")),
        ] {
            command.args([option, value]);
        }
        command.arg("--data-dir").arg(&folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let Ok(process) = command.spawn() else {
            eprintln!("etcd is not installed: not tested");
            return None;
        };
        let etcd = Self {
            process,
            folder,
            port,
        };
        let until = Instant::now() + Duration::from_secs(60);
        while etcd
            .try_call("/v3/maintenance/status", &json!({}))
            .is_none()
        {
            assert!(Instant::now() < until, "etcd does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        Some(etcd)
    }

    fn url(&self) -> Url {
        Url::parse(&format!("etcd://127.0.0.1:{}", self.port)).unwrap()
    }

    fn try_call(&self, path: &str, body: &Value) -> Option<Value> {
        let answer = Gateway::new(self.url()).call(path, body, soon());
        answer.ok().map(|answer| answer.body)
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        self.try_call(path, body).unwrap()
    }

    /// All keys with what is stored of them.
    fn entries(&self) -> Vec<Value> {
        let all = json!({ "key": encoded("/"), "range_end": encoded("0") });
        let read = self.call("/v3/kv/range", &all);
        read["kvs"].as_array().cloned().unwrap_or_default()
    }
}

impl Etcd {
    fn empty(&self) {
        let all = json!({ "key": encoded("/"), "range_end": encoded("0") });
        self.call("/v3/kv/deleterange", &all);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn now() -> UnixMillis {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    UnixMillis::new(now.as_millis().try_into().unwrap())
}

const ANY: RequestKind = RequestKind::Acquire {
    fixed: None,
    last: None,
    holding: None,
};

/// A server, as far as it asks.
struct Server {
    host: EtcdRegistry,
    asker: Holder,
    number: u64,
    memory: Option<Memory>,
    grant: Option<Grant>,
}

impl Server {
    fn new(etcd: &Etcd, number: u64) -> Self {
        let identity = ServerKey {
            system: 7_000_000_000_000_000_000 + number,
            boot: 0x1234_5678_9abc_def0_1234_5678_9abc_def0,
            device: 2049,
            inode: 1_000_000 + number,
        };
        Self {
            host: EtcdRegistry::new(etcd.url()),
            asker: Holder {
                identity,
                started: BootNanos::new(1_000_000_000),
                host: format!("db{number}.example.com"),
                address: String::new(),
                port: 5432,
                data_directory: "/var/lib/postgresql/15/main".to_string(),
            },
            number: 0,
            memory: None,
            grant: None,
        }
    }

    fn request(&mut self, ask: RequestKind) -> Request {
        self.number += 1;
        Request {
            asker: self.asker.clone(),
            nonce: Nonce(u128::from(self.asker.identity.inode) << 96 | 77),
            number: self.number,
            clock: now(),
            memory: self.memory,
            ask,
        }
    }

    fn ask(&mut self, ask: RequestKind) -> Result<Answer, EtcdError> {
        let request = self.request(ask);
        let reply = self.host.ask("default", &request, soon())?;
        self.memory = Some(reply.memory);
        Ok(reply.answer)
    }

    fn acquire(&mut self) -> Result<Answer, EtcdError> {
        let answer = self.ask(ANY)?;
        if let Answer::Granted(grant) = &answer {
            self.grant = Some(grant.clone());
        }
        Ok(answer)
    }

    /// Renews; false if that is refused.
    fn renew(&mut self) -> bool {
        let Some(ask) = self.renewal() else {
            return false;
        };
        let Answer::Renewed { bound, .. } = self.ask(ask).unwrap() else {
            return false;
        };
        if let Some(grant) = &mut self.grant {
            grant.bound = bound;
        }
        true
    }

    fn renewal(&self) -> Option<RequestKind> {
        let grant = self.grant.as_ref()?;
        Some(RequestKind::Renew {
            worker: grant.worker,
            counter: grant.counter,
            bound: grant.bound,
            furthest: now(),
        })
    }
}

/// The first server makes the registry, which begins as a loss. Ends the grace period.
fn make_registry(etcd: &Etcd) {
    let mut first = Server::new(etcd, 0);
    let answer = first.acquire().unwrap();
    assert!(
        matches!(
            answer,
            Answer::Refused(RegistryError::Grace {
                cause: Cause::New,
                ..
            })
        ),
        "{answer:?}"
    );
    first
        .host
        .change_state(soon(), |state, input| state.end_grace(input))
        .unwrap();
}

fn granted(etcd: &Etcd, number: u64) -> Server {
    let mut server = Server::new(etcd, number);
    let answer = server.acquire().unwrap();
    assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
    server
}

/// Name, revision and size of each key.
fn keys(etcd: &Etcd) -> BTreeMap<String, (u64, usize)> {
    let entries = etcd.entries().into_iter().map(|entry| {
        let key = decoded(Some(&entry["key"])).unwrap();
        let value = decoded(Some(&entry["value"])).unwrap();
        let size = key.len() + value.len();
        (key, (number(&entry["mod_revision"]), size))
    });
    entries.collect()
}

#[test]
fn a_renewal_writes_its_row() {
    let Some(etcd) = Etcd::start("row") else {
        return;
    };
    make_registry(&etcd);
    let mut server = granted(&etcd, 1);
    let mut next = granted(&etcd, 2);
    assert!(server.renew() && next.renew());
    let before = keys(&etcd);
    let kinds: Vec<&str> = before
        .keys()
        .filter_map(|key| key.split('/').nth(2))
        .collect();
    assert_eq!(kinds, ["pools", "state", "workers", "workers"]);
    assert!(server.renew());
    let after = keys(&etcd);
    let changed: Vec<_> = after
        .iter()
        .filter(|(key, stored)| before.get(*key) != Some(stored))
        .collect();
    assert_eq!(after.len(), before.len());
    let [(key, (_, size))] = &changed[..] else {
        panic!("{changed:?}")
    };
    assert_eq!(**key, "/snowflake_id/workers/default/0000000000");
    assert!(*size <= 1000, "{size}");
    let all = server.host.read_all(soon()).unwrap();
    let row = &all["workers"][0]["row"];
    assert_eq!((&row["number"], &row["renewed"]), (&json!(3), &json!(true)));
    assert_eq!(row["bound"], json!(server.grant.as_ref().unwrap().bound));
    let _ = server.host.revoke("default", 0, soon()).unwrap();
    assert!(!server.renew());
    let all = server.host.read_all(soon()).unwrap();
    assert_eq!(all["workers"][0]["row"]["bound"], row["bound"]);
}

/// An answer that depends on what has changed since it was read is not stored.
#[test]
fn what_others_have_stored_meanwhile_stays() {
    let Some(etcd) = Etcd::start("meanwhile") else {
        return;
    };
    make_registry(&etcd);
    let mut server = granted(&etcd, 1);
    let mut host = EtcdRegistry::new(etcd.url());
    let mut is_stored =
        |server: &mut Server, ask: RequestKind, meanwhile: &mut dyn FnMut(&mut Server)| {
            let request = server.request(ask);
            let draft = host.draft("default", &request, soon()).unwrap();
            meanwhile(server);
            let before = etcd.entries();
            match host.commit(draft, soon()) {
                Ok(_) => true,
                Err(AttemptError::Again) => {
                    assert_eq!(etcd.entries(), before);
                    false
                }
                Err(why) => panic!("{why:?}"),
            }
        };
    let renewal = server.renewal().unwrap();
    assert!(is_stored(&mut server, renewal, &mut |_| ()));
    // A later renewal has a later bound, and changes nothing but its row.
    let renewal = server.renewal().unwrap();
    let renews = &mut |server: &mut Server| assert!(server.renew());
    assert!(!is_stored(&mut server, renewal, renews));
    // Of two servers that have read that nobody has worker ID 1, one gets it.
    let mut other = Server::new(&etcd, 2);
    let acquires = &mut |_: &mut Server| drop(granted(&etcd, 3));
    assert!(!is_stored(&mut other, ANY, acquires));
    // A renewal of others changes nothing for a grant.
    assert!(is_stored(&mut other, ANY, &mut |_| assert!(server.renew())));
    // A new era counts for all.
    let declares = &mut |server: &mut Server| {
        let declare = |state: &mut State, input: &RegistryInput| state.declare(input);
        server.host.change_state(soon(), declare).unwrap();
    };
    let mut next = Server::new(&etcd, 4);
    assert!(!is_stored(&mut next, ANY, declares));
    let renewal = server.renewal().unwrap();
    assert!(!is_stored(&mut server, renewal, declares));
}

/// What fails reads only what was written since, unless that is not all.
#[test]
fn rows_that_were_read_in_vain_serve_the_next_try() {
    let Some(etcd) = Etcd::start("vain") else {
        return;
    };
    make_registry(&etcd);
    let mut holders = [1, 2].map(|number| granted(&etcd, number));
    let mut server = Server::new(&etcd, 3);
    let mut host = EtcdRegistry::new(etcd.url());
    let request = server.request(ANY);
    let fails = |host: &mut EtcdRegistry, number| {
        let draft = host.draft("default", &request, soon()).unwrap();
        granted(&etcd, number);
        assert!(matches!(
            host.commit(draft, soon()),
            Err(AttemptError::Again)
        ));
    };
    fails(&mut host, 4);
    assert!(holders.iter_mut().all(Server::renew));
    fails(&mut host, 5);
    // A key is gone, so what was read before is not there any more.
    let row = encoded("/snowflake_id/workers/default/0000000000");
    etcd.call("/v3/kv/deleterange", &json!({ "key": row }));
    let lacks = host.draft("default", &request, soon());
    assert!(matches!(lacks, Err(AttemptError::Again)));
    let draft = host.draft("default", &request, soon()).unwrap();
    let Answer::Granted(grant) = host.commit(draft, soon()).unwrap().answer else {
        panic!("not granted")
    };
    assert_eq!((grant.worker.get(), grant.counter), (0, 1));
    assert_eq!(keys(&etcd).len(), 2 + 4);
}

/// Renewals of different servers do not exclude each other, and grants go between them.
#[test]
fn many_renew_at_once() {
    let Some(etcd) = Etcd::start("many") else {
        return;
    };
    make_registry(&etcd);
    let mut servers: Vec<Server> = (1..=16).map(|number| granted(&etcd, number)).collect();
    let revision = keys(&etcd)["/snowflake_id/state"].0;
    thread::scope(|scope| {
        for server in &mut servers {
            scope.spawn(|| (0..10).for_each(|_| assert!(server.renew())));
        }
    });
    assert_eq!(keys(&etcd)["/snowflake_id/state"].0, revision);
    thread::scope(|scope| {
        for server in &mut servers {
            scope.spawn(|| (0..20).for_each(|_| assert!(server.renew())));
        }
        for number in 17..=20 {
            let etcd = &etcd;
            scope.spawn(move || drop(granted(etcd, number)));
        }
    });
}

/// Two servers find nothing at the same time: one of them makes the registry, and both take its
/// terms. `RACES` is how many times.
#[test]
fn two_at_once_make_one_registry() {
    let Some(etcd) = Etcd::start("races") else {
        return;
    };
    let races = std::env::var("RACES").map_or(60, |races| races.parse().unwrap());
    for _ in 0..races {
        let mut servers = [1, 2].map(|number| Server::new(&etcd, number));
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for server in &mut servers {
                scope.spawn(|| {
                    start.wait();
                    let answer = server.acquire().unwrap();
                    let RegistryError::Grace {
                        cause: Cause::New, ..
                    } = refused(answer)
                    else {
                        panic!("{:?}", server.memory)
                    };
                });
            }
        });
        // One transaction has stored state and pool.
        let entries = etcd.entries();
        let made = entries
            .iter()
            .map(|entry| number(&entry["create_revision"]));
        let made: Vec<u64> = made.collect();
        assert!(matches!(made[..], [one, other] if one == other), "{made:?}");
        let eras = servers.each_ref().map(|server| server.memory.unwrap().era);
        assert_eq!(eras[0], eras[1]);
        servers[0]
            .host
            .change_state(soon(), |state, input| state.end_grace(input))
            .unwrap();
        let grants = servers
            .each_mut()
            .map(|server| match server.acquire().unwrap() {
                Answer::Granted(grant) => grant,
                answer => panic!("{answer:?}"),
            });
        assert_ne!(grants[0].worker, grants[1].worker);
        assert_eq!(grants[0].terms, grants[1].terms);
        etcd.empty();
    }
}

fn refused(answer: Answer) -> RegistryError {
    match answer {
        Answer::Refused(error) => error,
        answer => panic!("{answer:?}"),
    }
}

/// An emptied prefix is no new registry for who remembers one.
#[test]
fn who_remembers_a_registry_makes_none() {
    let Some(etcd) = Etcd::start("emptied") else {
        return;
    };
    make_registry(&etcd);
    let mut server = granted(&etcd, 1);
    etcd.empty();
    let ask = server.renewal().unwrap();
    assert!(matches!(server.ask(ask), Err(EtcdError::Emptied)));
    assert!(matches!(server.acquire(), Err(EtcdError::Emptied)));
    assert!(keys(&etcd).is_empty());
    make_registry(&etcd);
    assert!(matches!(
        refused(server.ask(ask).unwrap()),
        RegistryError::Foreign
    ));
}

/// What a release of another format has stored stays as it is, and is told by its number.
#[test]
fn what_has_another_format_is_neither_read_nor_changed() {
    let Some(etcd) = Etcd::start("formats") else {
        return;
    };
    make_registry(&etcd);
    let mut server = granted(&etcd, 1);
    let format = |number| format!("\"format\":{number},");
    for part in ["state", "pools", "workers"] {
        let stored = etcd.entries().into_iter().find(|entry| {
            let key = decoded(Some(&entry["key"])).unwrap();
            key.split('/').nth(2) == Some(part)
        });
        let Some(stored) = stored else {
            panic!("no {part}");
        };
        let ours = decoded(Some(&stored["value"])).unwrap();
        let theirs = ours.replace(&format(FORMAT), &format(FORMAT + 1));
        assert_ne!(ours, theirs);
        let put = |value: &str| {
            let value = json!({ "key": stored["key"], "value": encoded(value) });
            etcd.call("/v3/kv/put", &value);
        };
        put(&theirs);
        let before = keys(&etcd);
        // It reads all that is stored.
        let answer = Server::new(&etcd, 2).acquire();
        assert!(
            matches!(answer, Err(EtcdError::Format(format)) if format == FORMAT + 1),
            "{part}: {answer:?}"
        );
        assert_eq!(keys(&etcd), before, "{part}");
        put(&ours);
        assert!(server.renew(), "{part}");
    }
}

/// The size counts from above half of the usual quota on; an alarm counts at any size.
#[test]
fn a_database_that_grows_too_large_is_told() {
    let of =
        |size: u64, errors: Value| grown(&json!({ "dbSize": size.to_string(), "errors": errors }));
    let half = 1 << 30;
    for (size, expected) in [
        (half + 1, "1.0"),
        (half / 10 * 13, "1.2"),
        (half * 9, "9.0"),
    ] {
        let expected = format!(
            "The database of etcd has grown to {expected} GB (of the usual quota of 2 GB, at which \
             etcd takes no writes)."
        );
        assert_eq!(of(size, json!([])), expected);
    }
    assert_eq!(grown(&json!({ "dbSize": "20480" })), "");
    for fine in [
        json!([]),
        json!(["etcdserver: no leader"]),
        json!([1]),
        json!(1),
    ] {
        assert_eq!(of(half, fine), "");
    }
    let alarm = "Etcd has set alarm NOSPACE, and takes no writes.";
    for size in [0, half * 2] {
        let errors = json!([
            "etcdserver: no leader",
            "memberID:8925027824743593106 alarm:NOSPACE "
        ]);
        assert_eq!(of(size, errors), alarm);
    }
    let long = format!("alarm:{}", "ä".repeat(1 << 20));
    assert_eq!(
        of(0, json!([long])).chars().count(),
        40 + alarm.len() - "NOSPACE".len()
    );
}
