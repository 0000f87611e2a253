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
use super::host::{EtcdError, EtcdRegistry, grown};
use super::url::Url;
use crate::wire::FORMAT;
use snowflake_core::id::{BootNanos, Millis, UnixMillis, WorkerId};
use snowflake_core::lease::etcd::StoredPool;
use snowflake_core::lease::{
    Answer, Ask, Cause, Grant, Holder, Memory, Nonce, Pool, RegistryError, RegistryMillis, Request,
    ServerKey,
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

/// A server, as far as it asks.
struct Server {
    host: EtcdRegistry,
    asker: Holder,
    number: u64,
    /// How far its clock is ahead.
    off: Millis,
    memory: Option<Memory>,
    grant: Option<Grant>,
    /// How long it waits for an answer.
    wait: Duration,
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
            off: Millis::ZERO,
            memory: None,
            grant: None,
            wait: Duration::from_secs(10),
        }
    }

    fn ask(&mut self, ask: Ask) -> Result<Answer, EtcdError> {
        self.number += 1;
        let request = Request {
            asker: self.asker.clone(),
            nonce: Nonce(u128::from(self.asker.identity.inode) << 96 | 77),
            number: self.number,
            clock: now().plus(self.off),
            memory: self.memory,
            ask,
        };
        let reply = self
            .host
            .ask("default", &request, Instant::now() + self.wait)?;
        self.memory = Some(reply.memory);
        Ok(reply.answer)
    }

    fn acquire(&mut self) -> Result<Answer, EtcdError> {
        let answer = self.ask(Ask::Acquire {
            fixed: None,
            last: None,
            holding: None,
        })?;
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

    fn renewal(&self) -> Option<Ask> {
        let grant = self.grant.as_ref()?;
        Some(Ask::Renew {
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
fn a_renewal_writes_one_small_key() {
    let Some(etcd) = Etcd::start("small") else {
        return;
    };
    make_registry(&etcd);
    let mut server = granted(&etcd, 1);
    assert!(server.renew());
    let before = keys(&etcd);
    let kinds: Vec<&str> = before
        .keys()
        .filter_map(|key| key.split('/').nth(2))
        .collect();
    assert_eq!(kinds, ["leases", "pools", "renewals", "state", "workers"]);
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
    assert!(key.starts_with("/snowflake_id/renewals/default/"), "{key}");
    assert!(*size <= 300, "{size}");
    // What was stored of the renewal is what others see.
    let all = server.host.read_all(soon()).unwrap();
    let row = &all["workers"][0]["row"];
    assert_eq!((&row["number"], &row["renewed"]), (&json!(3), &json!(true)));
    assert_eq!(row["bound"], json!(server.grant.as_ref().unwrap().bound));
    // What comes next removes the renewal.
    let _ = server.host.revoke("default", 0, soon()).unwrap();
    assert!(!server.renew());
    assert!(!keys(&etcd).contains_key(*key));
    let all = server.host.read_all(soon()).unwrap();
    assert_eq!(all["workers"][0]["row"]["bound"], row["bound"]);
}

/// What is no renewal waits for its turn, and leaves none behind; a turn ends with its lease.
#[test]
fn one_reads_all_at_a_time() {
    let Some(etcd) = Etcd::start("turn") else {
        return;
    };
    make_registry(&etcd);
    let has_turn = || keys(&etcd).contains_key("/snowflake_id/turn");
    let put = |lease: &Value| {
        let (key, value) = (encoded("/snowflake_id/turn"), encoded("somebody"));
        let turn = json!({ "key": key, "value": value, "lease": lease });
        etcd.call("/v3/kv/put", &turn);
    };
    let mut server = granted(&etcd, 1);
    assert!(!has_turn());
    put(&json!("0"));
    assert!(server.renew());
    let before = keys(&etcd);
    // Who waits makes no lease of etcd: a thousand would make hundreds in a second.
    let leases = || {
        etcd.call("/v3/lease/leases", &json!({}))["leases"]
            .as_array()
            .map_or(0, Vec::len)
    };
    let leases_before = leases();
    assert!(leases_before > 0);
    let mut next = Server::new(&etcd, 2);
    next.wait = Duration::from_millis(500);
    let answer = next.acquire();
    assert!(
        matches!(answer, Err(EtcdError::Unreachable(_) | EtcdError::Late(_))),
        "{answer:?}"
    );
    assert_eq!(keys(&etcd), before);
    assert_eq!(leases(), leases_before);
    let lease = etcd.call("/v3/lease/grant", &json!({ "TTL": "2" }));
    put(&lease["ID"]);
    next.wait = Duration::from_secs(10);
    assert!(matches!(next.acquire(), Ok(Answer::Granted(_))));
    assert!(!has_turn());
    // Nor does one that is refused leave its turn.
    let answer = Server::new(&etcd, 3).ask(Ask::Acquire {
        fixed: WorkerId::new(2000),
        last: None,
        holding: None,
    });
    let _ = refused(answer.unwrap());
    assert!(!has_turn());
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
    for part in ["state", "pools", "workers", "renewals"] {
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
        let mut after = keys(&etcd);
        after.retain(|key, _| !key.ends_with("/turn"));
        assert_eq!(after, before, "{part}");
        put(&ours);
        assert!(server.renew(), "{part}");
    }
}

/// A renewal keeps etcd's lease alive, which lasts for the patience and the hold.
#[test]
fn a_renewal_begins_the_lease_of_etcd_anew() {
    let Some(etcd) = Etcd::start("alive") else {
        return;
    };
    make_registry(&etcd);
    let mut server = granted(&etcd, 1);
    let entries = etcd.entries();
    let lease = entries
        .iter()
        .find_map(|entry| entry.get("lease"))
        .unwrap()
        .clone();
    let left = || number(&etcd.call("/v3/lease/timetolive", &json!({ "ID": lease }))["TTL"]);
    let until = Instant::now() + Duration::from_secs(10);
    while left() > 57 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(100));
    }
    assert!(server.renew());
    assert!(left() >= 59, "{}", left());
    // Without its lease, the key comes back, with another one.
    etcd.call("/v3/lease/revoke", &json!({ "ID": lease }));
    assert!(server.renew());
    let other = etcd
        .entries()
        .iter()
        .find_map(|entry| entry.get("lease").cloned());
    assert!(other.is_some_and(|other| other != lease));
}

/// What a system has reached is kept when another one takes its worker ID, until it has passed.
#[test]
fn what_a_system_has_reached_outlives_its_row() {
    let Some(etcd) = Etcd::start("reached") else {
        return;
    };
    let mut ahead = Server::new(&etcd, 1);
    let pool = StoredPool {
        namespace: "default".to_string(),
        pool: Pool::default_at(RegistryMillis::new(0)),
    };
    ahead.host.create_pool(&pool, Some(true), soon()).unwrap();
    ahead.off = Millis::new(3_600_000);
    ahead.acquire().unwrap();
    let lost = ahead.grant.clone().unwrap();
    let answer = ahead.ask(Ask::Release {
        worker: lost.worker,
        counter: lost.counter,
        bound: lost.bound,
        end: lost.bound,
    });
    assert_eq!(answer.unwrap(), Answer::Released);
    let passed = encoded("{\"format\":1,\"instant\":5}");
    for name in ["/snowflake_id/reached/5", "/snowflake_id/reached/6"] {
        let put = json!({ "key": encoded(name), "value": passed });
        etcd.call("/v3/kv/put", &put);
    }
    let answer = Server::new(&etcd, 2).ask(Ask::Acquire {
        fixed: WorkerId::new(0),
        last: None,
        holding: None,
    });
    let Answer::Granted(taken) = answer.unwrap() else {
        panic!("not granted")
    };
    assert_eq!((taken.worker, taken.floor), (lost.worker, lost.bound));
    let kept: Vec<String> = keys(&etcd)
        .into_keys()
        .filter_map(|key| Some(key.strip_prefix("/snowflake_id/reached/")?.to_string()))
        .collect();
    assert_eq!(kept, [ahead.asker.identity.system.to_string()]);
    ahead.acquire().unwrap();
    let grant = ahead.grant.unwrap();
    assert_ne!(grant.worker, lost.worker);
    assert_eq!(grant.reached, lost.bound);
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
