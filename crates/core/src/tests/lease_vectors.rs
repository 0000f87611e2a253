//! The sequences of `tests/vectors/lease.json`, which programs of other languages are tested
//! with: each answer in the file is the core's. `WRITE_VECTORS=1` writes the answers anew.

use serde_json::{Value, json};

use super::super::id::Millis;
use super::super::lease::state::{RegistryInput, State};
use super::super::lease::{Origin, Pool, RegistryMillis, Request, seal::SealKey};
use super::lease::EPOCH;
use super::lease_table::{self, Table};

#[path = "../../../../tests/vectors/lease.rs"]
mod player;

struct Registry {
    state: State,
    table: Table,
}

fn registry_input(now: i64) -> RegistryInput {
    RegistryInput {
        now: RegistryMillis::new(now),
        origin: Origin {
            system: 1,
            timeline: 1,
            database: 1,
        },
        start: 1,
        clean_since: 1,
        revocable: true,
        asker_hosts: false,
        random: 1,
    }
}

impl Registry {
    fn new(pool: &Value) -> Self {
        let millis = |name: &str| Millis::new(pool[name].as_i64().unwrap());
        let pool = Pool {
            name: "default".to_string(),
            ids: 0..pool["worker_ids"].as_i64().unwrap(),
            lease: millis("lease"),
            hold: millis("hold"),
            max_ahead: millis("max_ahead"),
            ..Pool::default_at(RegistryMillis::new(EPOCH))
        };
        Self {
            state: State::new(&registry_input(EPOCH), SealKey::new([7; 32])),
            table: Table::new(pool),
        }
    }
}

impl player::Registry for Registry {
    fn reply(&mut self, at: i64, request: &Value) -> Value {
        let request: Request = serde_json::from_value(request.clone()).unwrap();
        let input = registry_input(EPOCH + at);
        json!(lease_table::handle(
            &mut self.state,
            &mut self.table,
            &request,
            &input
        ))
    }

    fn made(&self) -> i64 {
        EPOCH
    }
}

/// The file's form: a line for each step.
fn written(vectors: &Value) -> String {
    let sequences = vectors["sequences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sequence| {
            let steps = sequence["steps"].as_array().unwrap().iter();
            let steps: Vec<_> = steps.map(|step| format!("    {step}")).collect();
            let (name, pool, steps) = (&sequence["name"], &sequence["pool"], steps.join(",\n"));
            format!("  {{\"name\": {name}, \"pool\": {pool}, \"steps\": [\n{steps}]}}")
        });
    let sequences: Vec<_> = sequences.collect();
    let (about, holders, sequences) = (
        &vectors["about"],
        &vectors["holders"],
        sequences.join(",\n"),
    );
    format!("{{\"about\": {about:#},\n\"holders\": {holders},\n\"sequences\": [\n{sequences}]}}\n")
}

#[test]
fn the_vectors_are_what_the_registry_answers() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/lease.json"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let mut vectors: Value = serde_json::from_str(&text).unwrap();
    let holders = vectors["holders"].clone();
    for sequence in vectors["sequences"].as_array_mut().unwrap() {
        let mut registry = Registry::new(&sequence["pool"]);
        let answers = player::play(&holders, sequence, &mut registry);
        for (step, answer) in sequence["steps"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .zip(answers)
        {
            step["answer"] = answer;
        }
    }
    let played = written(&vectors);
    if std::env::var_os("WRITE_VECTORS").is_some() {
        std::fs::write(path, &played).unwrap();
    } else {
        assert_eq!(played, text);
    }
}
