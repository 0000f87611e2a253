//! Plays the sequences of `lease.json` to a registry. The tests of the core and those of the client
//! of etcd include this file; tests/t/lease/protocol.pl does the same to a database.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Instants, which the file gives in milliseconds since the pool was made.
pub const INSTANTS: [&str; 11] = [
    "asked", "bound", "end", "floor", "furthest", "latest", "limit", "now", "reached", "since",
    "until",
];

/// What answers requests.
pub trait Registry {
    /// When the pool was made, in Unix milliseconds.
    fn made(&self) -> i64;

    /// The reply to a request that arrives this many milliseconds later.
    fn reply(&mut self, at: i64, request: &Value) -> Value;
}

/// The same value, with all its instants later by this.
pub fn shifted(value: &Value, by: i64) -> Value {
    let Value::Object(fields) = value else {
        return value.clone();
    };
    let shifted = fields.iter().map(|(name, value)| {
        let value = match value.as_i64() {
            Some(at) if INSTANTS.contains(&name.as_str()) => json!(at + by),
            // Worker IDs have an end too.
            _ if name == "ids" => value.clone(),
            _ => shifted(value, by),
        };
        (name.clone(), value)
    });
    Value::Object(shifted.collect::<Map<_, _>>())
}

/// One incarnation of a holder.
#[derive(Default)]
struct Holder {
    number: u64,
    memory: Value,
    bound: Value,
    latest: Value,
}

/// The answer to each step of a sequence.
pub fn play(holders: &Value, sequence: &Value, registry: &mut impl Registry) -> Vec<Value> {
    let made = registry.made();
    let mut known: BTreeMap<(&str, i64), Holder> = BTreeMap::new();
    let steps = sequence["steps"].as_array().into_iter().flatten();
    steps
        .map(|step| {
            let (who, at) = (step["who"].as_str().unwrap(), step["at"].as_i64().unwrap());
            let incarnation = step["incarnation"].as_i64().unwrap_or(1);
            let holder = known.entry((who, incarnation)).or_default();
            if let Some(memory) = step.get("memory") {
                holder.memory = memory.clone();
            }
            let mut number = step["number"].as_u64().unwrap_or(holder.number + 1);
            let reply = loop {
                let (mut asker, mut ask) = (holders[who].clone(), shifted(&step["ask"], made));
                asker["started"] = json!(incarnation * 1000);
                for kind in ["renew", "release"] {
                    if let Some(token) = ask.get_mut(kind) {
                        token["bound"] = json!(holder.bound.as_i64().unwrap_or(0));
                    }
                }
                let request = match step["repeat"].as_bool() {
                    Some(true) => holder.latest.clone(),
                    _ => json!({
                        "format": 1, "asker": asker, "nonce": format!("{who}{incarnation}").repeat(16),
                        "number": number, "clock": made + at + step["ahead"].as_i64().unwrap_or(0),
                        "memory": holder.memory, "ask": ask,
                    }),
                };
                let reply = registry.reply(at, &request);
                assert_eq!(reply["nonce"], request["nonce"], "{step}");
                assert_eq!(reply["number"], request["number"], "{step}");
                holder.latest = request;
                if reply["answer"] != "again" {
                    break reply;
                }
                number += 1;
            };
            holder.number = holder.number.max(number);
            let answer = &reply["answer"];
            if step["lost"] != true {
                holder.memory = reply["memory"].clone();
                let kinds = ["granted", "renewed"].into_iter();
                let bound = kinds.filter_map(|kind| answer.get(kind)?.get("bound")).next();
                holder.bound = bound.unwrap_or(&holder.bound).clone();
            }
            shifted(answer, -made)
        })
        .collect()
}
