//! Plays the sequences of `tests/vectors/lease.json`. The registry has etcd's clock, so only those
//! are played that take seconds, and times are not compared.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Etcd, EtcdRegistry, Url, now, soon};
use snowflake_core::id::Millis;
use snowflake_core::lease::etcd::StoredPool;
use snowflake_core::lease::{Pool, RegistryMillis};

#[path = "../../../../../tests/vectors/lease.rs"]
mod player;

/// Longer sequences are left to registries whose clock can be set.
const LONGEST: i64 = 10_000;

struct Registry {
    host: EtcdRegistry,
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
        let mut host = EtcdRegistry::new(Url::parse(url).unwrap());
        host.create_pool(&pool, Some(true), soon()).unwrap();
        Self {
            host,
            begun: Instant::now(),
            made: now().get(),
        }
    }
}

impl player::Registry for Registry {
    fn made(&self) -> i64 {
        self.made
    }

    fn reply(&mut self, at: i64, request: &Value) -> Value {
        let at = Duration::from_millis(at.unsigned_abs());
        thread::sleep(at.saturating_sub(self.begun.elapsed()));
        let request = serde_json::from_value(request.clone()).unwrap();
        json!(self.host.ask("default", &request, soon()).unwrap())
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
    let fields = fields.map(|(name, value)| (name.clone(), timeless(value)));
    Value::Object(fields.collect())
}

#[test]
fn etcd_answers_as_the_core_does() {
    let Some(etcd) = Etcd::start("vectors") else {
        return;
    };
    let vectors = include_str!("../../../../../tests/vectors/lease.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let sequences = vectors["sequences"].as_array().unwrap().iter();
    let is_short = |sequence: &&Value| {
        let steps = sequence["steps"].as_array().unwrap();
        steps
            .iter()
            .all(|step| step["at"].as_i64() <= Some(LONGEST))
    };
    let short: Vec<_> = sequences.filter(is_short).collect();
    assert!(short.len() >= 10, "few sequences are short");
    thread::scope(|scope| {
        for (number, sequence) in short.into_iter().enumerate() {
            let url = format!("etcd://127.0.0.1:{}/{number}", etcd.port);
            let holders = &vectors["holders"];
            scope.spawn(move || {
                let mut registry = Registry::new(&url, &sequence["pool"]);
                let answers = player::play(holders, sequence, &mut registry);
                let steps = sequence["steps"].as_array().unwrap();
                for (step, answer) in steps.iter().zip(answers) {
                    let name = &sequence["name"];
                    assert_eq!(
                        timeless(&answer),
                        timeless(&step["answer"]),
                        "{name}: {step}"
                    );
                }
            });
        }
    });
}
