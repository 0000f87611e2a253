//! Plays the sequences of `tests/vectors/lease.json` to a registry in etcd, which has the clock of
//! the machine: so only those that take seconds, and without comparing times. Says so and passes
//! where etcd is not installed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use snowflake_core::id::Millis;
use snowflake_core::lease::etcd::StoredPool;
use snowflake_core::lease::{Pool, RegistryMillis};
use snowflake_registry_client::etcd::host::{EtcdError, EtcdRegistry};
use snowflake_registry_client::etcd::url::Url;

#[path = "../../../tests/vectors/lease.rs"]
mod player;

/// Longer sequences are left to registries whose clock can be set.
const LONGEST: i64 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// An etcd with one member.
struct Etcd {
    process: Child,
    folder: PathBuf,
    client: String,
}

impl Etcd {
    /// `None` if it is not installed.
    fn start() -> Option<Self> {
        let address = || {
            TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .to_string()
        };
        let (client, peer) = (address(), address());
        let folder = std::env::temp_dir().join(format!("lease_vectors.{}", std::process::id()));
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(&folder);
        etcd.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        etcd.args([
            "--listen-client-urls",
            &client_url,
            "--advertise-client-urls",
            &client_url,
        ]);
        etcd.args([
            "--listen-peer-urls",
            &peer_url,
            "--initial-advertise-peer-urls",
            &peer_url,
        ]);
        etcd.args(["--initial-cluster", &format!("default={peer_url}")]);
        let process = etcd
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self {
            process,
            folder,
            client,
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Registry {
    etcd: EtcdRegistry,
    begun: Instant,
    made: i64,
}

impl Registry {
    /// A registry with this pool.
    fn new(url: &str, pool: &Value) -> Self {
        let millis = |name: &str| Millis::new(pool[name].as_i64().unwrap());
        let pool = StoredPool {
            namespace: "default".to_string(),
            pool: Pool {
                ids: 0..pool["worker_ids"].as_i64().unwrap(),
                lease: millis("lease"),
                hold: millis("hold"),
                max_ahead: millis("max_ahead"),
                ..Pool::default_at(RegistryMillis::new(0))
            },
        };
        let mut etcd = EtcdRegistry::new(Url::parse(url).unwrap());
        let until = Instant::now() + TIMEOUT;
        // The member may still be starting.
        while let Err(why) = etcd.create_pool(&pool, until) {
            assert!(
                matches!(why, EtcdError::Unreachable(_)) && Instant::now() < until,
                "{why:?}"
            );
            thread::sleep(Duration::from_millis(100));
        }
        let made = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis() as i64;
        Self {
            etcd,
            begun: Instant::now(),
            made,
        }
    }
}

impl player::Registry for Registry {
    fn made(&self) -> i64 {
        self.made
    }

    fn reply(&mut self, at: i64, request: &Value) -> Value {
        thread::sleep(Duration::from_millis(at as u64).saturating_sub(self.begun.elapsed()));
        let request = serde_json::from_value(request.clone()).unwrap();
        json!(
            self.etcd
                .ask("default", &request, Instant::now() + TIMEOUT)
                .unwrap()
        )
    }
}

/// The same answer without what depends on clocks, or on the way to the registry.
fn timeless(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return value.clone();
    };
    let fields = fields.iter().filter(|(name, _)| {
        let name = name.as_str();
        name != "retry" && name != "address" && !player::INSTANTS.contains(&name)
    });
    Value::Object(
        fields
            .map(|(name, value)| (name.clone(), timeless(value)))
            .collect(),
    )
}

#[test]
fn etcd_answers_as_the_core_does() {
    let Some(etcd) = Etcd::start() else {
        eprintln!("skipped: etcd is not installed");
        return;
    };
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/lease.json"
    );
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let sequences = vectors["sequences"].as_array().unwrap().iter();
    let is_short = |sequence: &&Value| {
        let steps = sequence["steps"].as_array().unwrap();
        steps
            .iter()
            .all(|step| step["at"].as_i64().unwrap() <= LONGEST)
    };
    let short: Vec<_> = sequences.filter(is_short).collect();
    assert!(short.len() >= 10, "too few sequences are short");
    thread::scope(|scope| {
        for (number, sequence) in short.into_iter().enumerate() {
            let url = format!("etcd://{}/{number}", etcd.client);
            let holders = &vectors["holders"];
            scope.spawn(move || {
                let mut registry = Registry::new(&url, &sequence["pool"]);
                let answers = player::play(holders, sequence, &mut registry);
                let steps = sequence["steps"].as_array().unwrap();
                for (step, answer) in steps.iter().zip(answers) {
                    assert_eq!(
                        timeless(&answer),
                        timeless(&step["answer"]),
                        "{}: {step}",
                        sequence["name"]
                    );
                }
            });
        }
    });
}
