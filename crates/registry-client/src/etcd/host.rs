//! The host of a registry in etcd: reads, asks the core, and writes back by one
//! transaction that compares what was read.
//!
//! | key under the prefix | value | goes |
//! |---|---|---|
//! | `/state` | [`etcd::Stored`] | never |
//! | `/pools/NAME` | [`StoredPool`] | when the pool is dropped |
//! | `/workers/NAMESPACE/ID` | [`Row`], as all but renewals have left it | never, not even with its pool |
//! | `/renewals/NAMESPACE/ID` | [`Renewal`]: what the latest renewal has changed of the row | when the row is written |
//! | `/leases/NAMESPACE/ID` | counter and nonce of the token, for people | with its lease of etcd |
//! | `/turn` | nothing | when whoever has put it is done, or with its lease of etcd |
//! | `/reached/SYSTEM` | an instant that servers with this system identifier have reached under a worker ID that others have now | when a later one is written and it has passed |
//!
//! Each transaction compares the state: what writes it excludes all that was answered at the same
//! time. Grants do; renewals do not, and each compares its own row: see [`etcd`]. What finds
//! something changed begins anew. All reads are linearizable. A transaction whose outcome is not
//! known is made again at the next member: the core gives the same answer to the same request.
//!
//! # One reads all at a time
//!
//! What is no renewal reads all rows, and changes the state. Of many that do so at the same time all
//! but one would read in vain, again and again. So each puts the key `/turn` before it reads, and waits
//! while there is one. No answer depends on that: the key only spares work, and a lease of two
//! seconds ends it if the server that has put it is gone. To make such a lease is a write, so
//! that a server first looks whether it can have the turn: otherwise each of a thousand that wait would
//! make one every two seconds. There is no turn without a registry, since an empty prefix means something.
//!
//! # The lease of etcd comes before the bound
//!
//! A renewal first keeps the lease of etcd alive, which writes nothing, and then stores the
//! bound. If it gets no further, the worker ID stays with its holder for longer than the row says.
//! If the lease ends before the bound is stored, its key goes, and the transaction fails, since it
//! compares the key.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::gateway::{Gateway, GatewayError, NOT_FOUND, decoded, encoded, number};
use super::url::Url;
use crate::wire::{self, MessageError};
use snowflake_core::id::{UnixMillis, WorkerId};
use snowflake_core::lease::etcd::{
    self, EtcdInput, EtcdKey, EtcdRows, Outcome, Position, Renewal, Stored, StoredPool, Table,
    key_of, only_row,
};
use snowflake_core::lease::registry;
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{Holder, RegistryMillis, Reply, Request, Row};

/// Two that change the registry at the same time wait for a part of this before they
/// begin anew, and each time for a part of twice as much, up to 4 s. All but one of many that read at
/// the same time have read in vain, and a look at the turn costs etcd work, too.
const PAUSE_MAX: u64 = 16;
const DOUBLED_MAX: u32 = 8;

/// How long a turn lasts, in seconds, if its server is gone. The least that etcd knows.
const TURN: u64 = 2;

/// How large the database of etcd may be, if it is not told otherwise. From half of it on, there is
/// a warning. Etcd before version 3.6 does not tell its quota.
const USUAL_QUOTA: u64 = 2 * GIGABYTE;
const GIGABYTE: u64 = 1 << 30;

/// How many characters of the name of an alarm are shown.
const ALARM_MAX: usize = 40;

/// Why something was not done.
#[derive(Debug)]
pub enum EtcdError {
    /// No member could be asked: a sentence for each.
    Unreachable(String),
    /// No member could be asked, and one of them did not answer in time: a sentence for each.
    Late(String),
    /// The registry has nothing under the prefix.
    NoRegistry,
    NoPool,
    /// Nothing is under the prefix, and the server that asks remembers a registry there.
    Emptied,
    PoolExists,
    /// The pool would have the same worker IDs as this one.
    Overlaps(String),
    InUse {
        worker: WorkerId,
        by: Box<Holder>,
        until: RegistryMillis,
    },
    NotInPool,
    NeverLeased,
    /// What is stored cannot be read: words without a full stop.
    Unreadable(String),
    /// What is stored has another format.
    Format(u64),
}

/// What a system has reached.
#[derive(Serialize, Deserialize)]
struct Reached {
    instant: UnixMillis,
}

/// Why an attempt has failed.
enum AttemptError {
    /// Something has changed meanwhile.
    Again,
    /// This member cannot be asked.
    Away(String),
    /// This member has not answered in time.
    Late,
    Ended(EtcdError),
}

impl From<GatewayError> for AttemptError {
    fn from(failure: GatewayError) -> Self {
        match failure {
            GatewayError::Refused { why, .. } | GatewayError::Away(why) => Self::Away(why),
            GatewayError::Late => Self::Late,
        }
    }
}

impl From<EtcdError> for AttemptError {
    fn from(problem: EtcdError) -> Self {
        Self::Ended(problem)
    }
}

/// What is stored at a key.
struct EtcdEntry {
    value: String,
    /// The revision of the latest change.
    changed: u64,
    /// The lease of etcd that ends it; 0 if none does.
    lease: u64,
}

/// What was read, at one revision.
struct EtcdReading {
    etcd_input: EtcdInput,
    entries: BTreeMap<String, EtcdEntry>,
}

impl EtcdReading {
    const fn revision(&self) -> u64 {
        self.etcd_input.revision
    }

    fn entry(&self, key: &str) -> Option<&EtcdEntry> {
        self.entries.get(key)
    }

    fn value<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, EtcdError> {
        let entry = self.entry(key);
        entry.map(|entry| parsed(&entry.value)).transpose()
    }

    /// What is stored below a prefix, with the rest of each key.
    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a EtcdEntry)> {
        let entries = self.entries.range(prefix.to_string()..);
        entries.map_while(move |(key, entry)| Some((key.strip_prefix(prefix)?, entry)))
    }
}

/// A transaction.
#[derive(Default)]
struct EtcdChange {
    compare: Vec<Value>,
    success: Vec<Value>,
}

impl EtcdChange {
    /// Only if the key is as it was read.
    fn unless_changed(&mut self, reading: &EtcdReading, key: &str) {
        let changed = reading.entry(key).map_or(0, |entry| entry.changed);
        self.compare.push(json!({
            "key": encoded(key), "target": "MOD", "result": "EQUAL",
            "mod_revision": changed.to_string(),
        }));
    }

    /// Only if nothing from a key up to another one was written since it was read.
    fn unless_written(&mut self, reading: &EtcdReading, from: &str, to: &str) {
        self.compare.push(json!({
            "key": encoded(from), "range_end": encoded(to), "target": "MOD",
            "result": "LESS", "mod_revision": (reading.revision() + 1).to_string(),
        }));
    }

    fn put(&mut self, key: &str, value: &str, lease: u64) {
        self.success.push(json!({ "request_put": {
            "key": encoded(key), "value": encoded(value), "lease": lease.to_string(),
        } }));
    }

    fn delete(&mut self, key: &str) {
        self.success
            .push(json!({ "request_delete_range": { "key": encoded(key) } }));
    }

    fn body(&self) -> Value {
        json!({ "compare": self.compare, "success": self.success })
    }
}

fn has_succeeded(body: &Value) -> bool {
    body.get("succeeded") == Some(&Value::Bool(true))
}

pub struct EtcdRegistry {
    gateway: Gateway,
    /// The namespace of the pool that was asked last.
    namespace: Option<(String, String)>,
    /// A lease of etcd that no key has, and its time to live in seconds.
    spare: Option<(u64, u64)>,
    /// The lease of etcd with which this server has put the turn, or would put it.
    turn: Option<u64>,
    has_turn: bool,
    /// How often this server has found others at work since its last answer: the pauses of a server
    /// that asks again stay as long as they were.
    tries: u32,
    /// Why the member that has answered last takes no writes, or soon will not: see [`grown`].
    pub grown: String,
}

impl EtcdRegistry {
    pub const fn new(url: Url) -> Self {
        Self {
            gateway: Gateway::new(url),
            namespace: None,
            spare: None,
            turn: None,
            has_turn: false,
            tries: 0,
            grown: String::new(),
        }
    }

    /// Answers a request of a server, which makes the registry if it is the first one, and
    /// remembers none. What it remembers is lost if there is nothing, or its URL leads to another
    /// etcd; the leases of its registry may still be in force.
    pub fn ask(
        &mut self,
        pool: &str,
        request: &Request,
        until: Instant,
    ) -> Result<Reply, EtcdError> {
        self.turn = None;
        let done = self.try_members(until, |host, until| {
            match host.attempt(pool, request, until) {
                Err(AttemptError::Ended(EtcdError::NoPool)) => {
                    host.make_first(pool, request.memory.is_some(), until)?;
                    host.attempt(pool, request, until)
                }
                done => done,
            }
        });
        if std::mem::take(&mut self.has_turn) {
            let mut change = EtcdChange::default();
            change.delete(&self.key("/turn"));
            // If nobody answers, its lease ends it.
            let _ = self.gateway.call("/v3/kv/txn", &change.body(), until);
        }
        done
    }

    /// Takes the turn, or finds that somebody has it: see the head of the file. Where etcd takes no
    /// writes, there is none.
    fn take_turn(&mut self, until: Instant) -> Result<(), AttemptError> {
        if self.has_turn {
            return Ok(());
        }
        let lease = match self.turn {
            Some(lease) => lease,
            None => {
                if !self.put_turn(None, until)? {
                    return Ok(());
                }
                match self.new_lease(TURN, until) {
                    Ok(lease) => lease,
                    Err(GatewayError::Refused { .. }) => return Ok(()),
                    Err(failure) => return Err(failure.into()),
                }
            }
        };
        self.turn = Some(lease);
        match self.put_turn(Some(lease), until) {
            // The lease has ended during a pause: to wait again would waste a turn that is free.
            Err(AttemptError::Again) if self.turn.is_none() => self.take_turn(until),
            has_turn => {
                self.has_turn = has_turn?;
                Ok(())
            }
        }
    }

    /// Puts the turn with a lease of etcd; without one, only looks whether it can be put. Returns false
    /// where there can be none; fails while somebody else has it.
    fn put_turn(&mut self, lease: Option<u64>, until: Instant) -> Result<bool, AttemptError> {
        let key = self.key("/turn");
        let mut change = EtcdChange::default();
        for (key, result) in [(self.key("/state"), "GREATER"), (key.clone(), "EQUAL")] {
            change.compare.push(json!({
                "key": encoded(&key), "target": "CREATE", "result": result, "create_revision": "0",
            }));
        }
        if let Some(lease) = lease {
            change.put(&key, "", lease);
        }
        let body = json!({
            "compare": change.compare, "success": change.success,
            "failure": [{ "request_range": { "key": encoded(&key) } }],
        });
        let answer = match self.gateway.call("/v3/kv/txn", &body, until) {
            Ok(answer) => answer.body,
            Err(GatewayError::Refused {
                code: NOT_FOUND, ..
            }) => {
                self.turn = None;
                return Err(AttemptError::Again);
            }
            Err(GatewayError::Refused { .. }) => return Ok(false),
            Err(failure) => return Err(failure.into()),
        };
        if has_succeeded(&answer) {
            return Ok(true);
        }
        match answer.pointer("/responses/0/response_range/kvs/0") {
            None => Ok(false),
            // It is this server's own if the answer of an earlier try was lost.
            Some(entry) if lease.is_some() && entry.get("lease").map(number) == lease => Ok(true),
            Some(_) => Err(AttemptError::Again),
        }
    }

    /// Makes the registry if the prefix has no key; fails if it has, without this pool, or if the
    /// settings leave that to an administrator: see [`etcd::first`].
    fn make_first(
        &mut self,
        pool: &str,
        is_remembered: bool,
        until: Instant,
    ) -> Result<(), AttemptError> {
        let all = self.key("/");
        let (begin, end) = (encoded(&all), encoded(&end_of(&all)));
        let any = json!({ "key": begin, "range_end": end, "limit": "1" });
        let pool_key = self.key(&format!("/pools/{pool}"));
        let wanted = json!({ "key": encoded(&pool_key) });
        let reading = self.read_ranges(vec![any, wanted], until)?;
        if reading.entry(&pool_key).is_some() {
            // Another server was first.
            return Ok(());
        }
        if is_remembered && reading.entries.is_empty() {
            return Err(EtcdError::Emptied.into());
        }
        let is_default = self.gateway.url.has_default_prefix();
        let first = etcd::first(pool, is_default, &reading.etcd_input);
        let Some((stored, pool)) = first.filter(|_| reading.entries.is_empty()) else {
            return Err(EtcdError::NoPool.into());
        };
        let mut change = EtcdChange::default();
        change.compare.push(json!({
            "key": begin, "range_end": end, "target": "CREATE", "result": "EQUAL",
            "create_revision": "0",
        }));
        change.put(&pool_key, &wire::encode(&pool), 0);
        self.store(&reading, change, Some(&stored), until)
    }

    /// Makes a pool, and the registry if there is none: then, without `unused`, nobody has used the
    /// pool's worker IDs.
    pub fn create_pool(
        &mut self,
        pool: &StoredPool,
        unused: Option<bool>,
        until: Instant,
    ) -> Result<(), EtcdError> {
        self.try_members(until, |host, until| {
            let (pools, key) = (
                host.key("/pools/"),
                host.key(&format!("/pools/{}", pool.pool.name)),
            );
            let state = host.key("/state");
            let reading = host.read(&[&state], &[&pools], until)?;
            let stored: Option<Stored> = reading.value(&state)?;
            let input = reading.etcd_input.registry_input(stored.as_ref());
            let mut wanted = pool.clone();
            wanted.pool.unused = unused.unwrap_or(stored.is_none());
            let pool = &wanted;
            if reading.entry(&key).is_some() {
                return Err(EtcdError::PoolExists.into());
            }
            for (_, entry) in reading.below(&pools) {
                let other: StoredPool = parsed(&entry.value)?;
                let (one, two) = (&other.pool.ids, &pool.pool.ids);
                if other.namespace == pool.namespace && one.start < two.end && two.start < one.end {
                    return Err(EtcdError::Overlaps(other.pool.name).into());
                }
            }
            let mut pool = pool.clone();
            // Not earlier than what has been stored, though a clock was set back.
            let top = stored.as_ref().map(|stored| stored.state.top);
            pool.pool.made = top.map_or(input.now, |top| input.now.max(top));
            let new = match stored {
                Some(_) => None,
                None => Some(reading.etcd_input.stored(State::new(&input))),
            };
            let mut change = EtcdChange::default();
            change.unless_changed(&reading, &key);
            change.unless_written(&reading, &pools, &end_of(&pools));
            change.put(&key, &wire::encode(&pool), 0);
            host.store(&reading, change, new.as_ref(), until)
        })
    }

    /// Drops a pool that no server uses.
    pub fn drop_pool(&mut self, pool: &str, until: Instant) -> Result<(), EtcdError> {
        self.try_members(until, |host, until| {
            let read = host.read_pool(pool, None, until)?;
            let (now, era) = (read.reading.etcd_input.now, read.era());
            let table = Table::new(&read.pool.pool, &read.found, now, era);
            if let Some(row) = table.in_use(now) {
                return Err(EtcdError::InUse {
                    worker: row.worker,
                    by: Box::new(row.holder.clone()),
                    until: row.leased_until,
                }
                .into());
            }
            let mut change = read.change(host, None);
            let (pool_key, ids) = (host.key(&format!("/pools/{pool}")), &read.pool.pool.ids);
            for kind in ["workers", "renewals", "leases"] {
                let place = |id| host.key(&format!("/{kind}/{}/{id:010}", read.pool.namespace));
                change.unless_written(&read.reading, &place(ids.start), &place(ids.end));
            }
            change.delete(&pool_key);
            host.store(&read.reading, change, None, until)
        })
    }

    /// Revokes the lease of a worker ID. Returns from when another server can have it.
    pub fn revoke(
        &mut self,
        pool: &str,
        worker: i32,
        until: Instant,
    ) -> Result<RegistryMillis, EtcdError> {
        self.try_members(until, |host, until| {
            let id = WorkerId::new(worker).ok_or(EtcdError::NotInPool)?;
            let read = host.read_pool(pool, None, until)?;
            let terms = &read.pool.pool;
            if !terms.has(id) {
                return Err(EtcdError::NotInPool.into());
            }
            let input = read.reading.etcd_input.registry_input(Some(&read.stored));
            let mut state = read.stored.state.clone();
            let mut table = Table::new(terms, &read.found, input.now, read.era());
            let row = registry::revoke(&mut state, &mut table, id, &input);
            let row = row.ok_or(EtcdError::NeverLeased)?;
            let hold = terms.hold;
            let mut change = read.change(host, Some(id));
            host.change_row(&mut change, &read, &row);
            let stored = read.reading.etcd_input.stored(state);
            host.store(&read.reading, change, Some(&stored), until)?;
            Ok(if row.released {
                row.leased_until
            } else {
                row.leased_until.plus(hold)
            })
        })
    }

    /// All that is stored, as JSON: `now` of the registry, its `state`,
    /// `pools`, `workers` with their namespace and whether they are `live`, and `grown`.
    pub fn read_all(&mut self, until: Instant) -> Result<Value, EtcdError> {
        self.try_members(until, |host, until| {
            let state = host.key("/state");
            let parts = ["/pools/", "/workers/", "/renewals/", "/leases/"];
            let parts = parts.map(|part| host.key(part));
            let [pools, workers, renewals, leases] = &parts;
            let all = [pools, workers, renewals, leases].map(String::as_str);
            let reading = host.read(&[&state], &all, until)?;
            let stored: Stored = reading.value(&state)?.ok_or(EtcdError::NoRegistry)?;
            let pools = reading.below(pools).map(|(_, entry)| parsed(&entry.value));
            let pools = pools.collect::<Result<Vec<StoredPool>, _>>()?;
            let rows = reading.below(workers).map(|(place, entry)| {
                let row = renewed(
                    &reading,
                    parsed(&entry.value)?,
                    &format!("{renewals}{place}"),
                )?;
                let namespace = place.split('/').next().unwrap_or_default();
                let is_live = reading.entry(&format!("{leases}{place}")).is_some();
                Ok(json!({ "namespace": namespace, "live": is_live, "row": row }))
            });
            let rows = rows.collect::<Result<Vec<Value>, EtcdError>>()?;
            Ok(json!({
                "now": reading.etcd_input.now, "state": stored.state, "pools": pools, "workers": rows,
                "grown": host.grown,
            }))
        })
    }

    /// Writes a row whole. What its renewal says of it is in it.
    fn change_row(&self, change: &mut EtcdChange, read: &EtcdRead, row: &Row) {
        let place = |kind| self.id_key(kind, &read.pool.namespace, row.worker);
        change.put(&place("workers"), &wire::encode(row), 0);
        let renewal = place("renewals");
        if read.reading.entry(&renewal).is_some() {
            change.delete(&renewal);
        }
    }

    /// Changes the state of the registry.
    pub fn change_state(
        &mut self,
        until: Instant,
        f: impl Fn(&mut State, &RegistryInput),
    ) -> Result<(), EtcdError> {
        self.try_members(until, |host, until| {
            let key = host.key("/state");
            let reading = host.read(&[&key], &[], until)?;
            let stored: Stored = reading.value(&key)?.ok_or(EtcdError::NoRegistry)?;
            let input = reading.etcd_input.registry_input(Some(&stored));
            let mut state = stored.state;
            f(&mut state, &input);
            let stored = reading.etcd_input.stored(state);
            host.store(&reading, EtcdChange::default(), Some(&stored), until)
        })
    }

    /// Tries members until one of them answers; each that is left has its part of the
    /// time.
    fn try_members<T>(
        &mut self,
        until: Instant,
        mut attempt: impl FnMut(&mut Self, Instant) -> Result<T, AttemptError>,
    ) -> Result<T, EtcdError> {
        let (mut failures, mut is_late): (Vec<String>, _) = (Vec::new(), false);
        // A connection that was used before may be gone since long: one member is tried
        // twice.
        let tries = u32::try_from(self.gateway.url.hosts.len()).map_or(2, |count| count.max(2));
        for left in (1..=tries).rev() {
            let now = Instant::now();
            let part = now + until.saturating_duration_since(now) / left;
            let why = loop {
                let done = attempt(self, part);
                if matches!(done, Ok(_) | Err(AttemptError::Ended(_))) {
                    self.tries = 0;
                }
                match done {
                    Ok(done) => return Ok(done),
                    Err(AttemptError::Ended(problem)) => return Err(problem),
                    Err(AttemptError::Away(why)) => break why,
                    Err(AttemptError::Late) => {
                        is_late = true;
                        break "there was no answer in time".to_string();
                    }
                    Err(AttemptError::Again) => {
                        // Others wait for who has the turn.
                        let pause = pause(if self.has_turn { 0 } else { self.tries });
                        let left = part.saturating_duration_since(Instant::now());
                        thread::sleep(pause.min(left));
                        self.tries = self.tries.saturating_add(1);
                        if pause >= left {
                            break "others changed the registry again and again".to_string();
                        }
                    }
                }
            };
            let why = self.gateway.tell(&why);
            if !failures.contains(&why) {
                failures.push(why);
            }
            self.gateway.next_host();
        }
        let why = failures.join("; ");
        Err(match is_late {
            true => EtcdError::Late(why),
            false => EtcdError::Unreachable(why),
        })
    }

    fn attempt(
        &mut self,
        pool: &str,
        request: &Request,
        until: Instant,
    ) -> Result<Reply, AttemptError> {
        let mut request = request.clone();
        let mut own = only_row(&request.ask);
        let (read, outcome) = loop {
            if own.is_none() {
                self.take_turn(until)?;
            }
            let read = self.read_pool(pool, own, until)?;
            request.asker.address = self.gateway.address();
            let input = &read.reading.etcd_input;
            let outcome = etcd::answer(&read.stored, &read.pool, &read.found, &request, input);
            if own.is_none() || outcome.stands(&request, input) {
                break (read, outcome);
            }
            own = None;
        };
        if outcome.state.is_none() && outcome.row.is_none() {
            return Ok(outcome.reply);
        }
        let written = outcome.row.as_ref().map(|row| row.worker);
        let asked = request.ask.token().map(|(worker, ..)| worker);
        let mut change = read.change(self, written.or(asked));
        let has_lease = self.change_lease(&mut change, &read, &outcome, until)?;
        let place = |kind, worker| self.id_key(kind, &read.pool.namespace, worker);
        match (&outcome.renewal, &outcome.row) {
            (Some(renewal), Some(row)) => {
                let key = place("renewals", row.worker);
                change.put(&key, &wire::encode(renewal), 0);
            }
            (None, Some(row)) => self.change_row(&mut change, &read, row),
            (_, None) => {}
        }
        if let Some(reached) = outcome.reached {
            self.change_reached(&mut change, &read, reached);
        }
        let stored = outcome
            .state
            .map(|state| read.reading.etcd_input.stored(state));
        self.store(&read.reading, change, stored.as_ref(), until)?;
        if has_lease {
            self.spare = None;
        }
        Ok(outcome.reply)
    }

    /// Keeps what a system has reached, and of others only what lies ahead still. The state is
    /// written with it, which guards them.
    fn change_reached(
        &self,
        change: &mut EtcdChange,
        read: &EtcdRead,
        (system, instant): (u64, UnixMillis),
    ) {
        let key = |system: &u64| self.key(&format!("/reached/{system}"));
        let known = read.found.reached.get(&system).copied();
        let instant = known.map_or(instant, |known| known.max(instant));
        change.put(&key(&system), &wire::encode(&Reached { instant }), 0);
        let now = read.reading.etcd_input.now.as_nodes_clock();
        let kept = read.found.reached.iter();
        for (other, _) in kept.filter(|(other, instant)| **other != system && **instant <= now) {
            change.delete(&key(other));
        }
    }

    /// What becomes of the key that goes with a lease of etcd. Returns whether it is to last.
    fn change_lease(
        &mut self,
        change: &mut EtcdChange,
        read: &EtcdRead,
        outcome: &Outcome,
        until: Instant,
    ) -> Result<bool, AttemptError> {
        let Some(row) = &outcome.row else {
            return Ok(false);
        };
        let key = self.id_key("leases", &read.pool.namespace, row.worker);
        match key_of(row, &outcome.reply) {
            EtcdKey::Stays => Ok(false),
            EtcdKey::Goes => {
                change.delete(&key);
                Ok(false)
            }
            EtcdKey::Lasts => {
                let token = format!("{}-{:032x}", row.counter, row.nonce.0);
                // The lease is kept alive if it is that of the same token.
                let entry = read.reading.entry(&key);
                let lasts = match entry.filter(|entry| entry.value == token) {
                    Some(entry) => self.keep_alive(entry.lease, until)?,
                    None => false,
                };
                if !lasts {
                    let pool = &read.pool.pool;
                    let hold = u64::try_from(pool.patience().plus(pool.hold).get());
                    let seconds = hold.unwrap_or_default().div_ceil(1000);
                    change.put(&key, &token, self.grant_lease(seconds, until)?);
                }
                Ok(true)
            }
        }
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.gateway.url.prefix)
    }

    /// The key of a kind for a worker ID. It has ten digits, so that keys are in their order.
    fn id_key(&self, kind: &str, namespace: &str, worker: WorkerId) -> String {
        self.key(&format!("/{kind}/{namespace}/{:010}", worker.get()))
    }

    /// The state, the pool, and either one row or all rows.
    fn read_pool(
        &mut self,
        name: &str,
        own: Option<WorkerId>,
        until: Instant,
    ) -> Result<EtcdRead, AttemptError> {
        let (state, pool_key) = (self.key("/state"), self.key(&format!("/pools/{name}")));
        let known = self.namespace.take();
        let namespace = match known.filter(|(pool, _)| pool == name) {
            Some((_, namespace)) => namespace,
            None => {
                let reading = self.read(&[&pool_key], &[], until)?;
                let pool: StoredPool = reading.value(&pool_key)?.ok_or(EtcdError::NoPool)?;
                pool.namespace
            }
        };
        let place = |kind: &str| self.key(&format!("/{kind}/{namespace}/"));
        let (rows, leases) = (place("workers"), place("leases"));
        let all = ["/workers/", "/renewals/", "/reached/"].map(|part| self.key(part));
        let [all_rows, renewals, reached] = all.each_ref().map(String::as_str);
        let reading = match own {
            Some(worker) => {
                let kinds = ["workers", "renewals", "leases"];
                let [row, renewal, lease] = kinds.map(|kind| self.id_key(kind, &namespace, worker));
                self.read(&[&state, &pool_key, &row, &renewal, &lease], &[], until)?
            }
            None => {
                let parts = [all_rows, renewals, leases.as_str(), reached];
                self.read(&[&state, &pool_key], &parts, until)?
            }
        };
        let pool: StoredPool = reading.value(&pool_key)?.ok_or(EtcdError::NoPool)?;
        if pool.namespace != namespace {
            return Err(AttemptError::Again);
        }
        let Some(checked) = pool.pool.clone().checked() else {
            let why = format!("pool \"{name}\" makes no sense");
            return Err(EtcdError::Unreadable(why).into());
        };
        let stored: Stored = reading.value(&state)?.ok_or(EtcdError::NoRegistry)?;
        let mut found = EtcdRows {
            is_all: own.is_none(),
            ..EtcdRows::default()
        };
        for (system, entry) in reading.below(reached) {
            let Ok(system) = system.parse() else {
                let why = "a key has no system identifier".to_string();
                return Err(EtcdError::Unreadable(why).into());
            };
            let Reached { instant } = parsed(&entry.value)?;
            found.reached.insert(system, instant);
        }
        for (place, entry) in reading.below(all_rows) {
            let is_here = format!("{all_rows}{place}").starts_with(&rows);
            let into = if is_here {
                &mut found.rows
            } else {
                &mut found.elsewhere
            };
            let renewal = format!("{renewals}{place}");
            into.push(renewed(&reading, parsed(&entry.value)?, &renewal)?);
        }
        for (id, _) in reading.below(&leases) {
            found.live.extend(id.parse().ok().and_then(WorkerId::new));
        }
        self.namespace = Some((name.to_string(), namespace));
        let pool = StoredPool {
            pool: checked,
            ..pool
        };
        Ok(EtcdRead {
            reading,
            stored,
            pool,
            found,
        })
    }

    /// Reads keys, and all below prefixes; then asks where raft is.
    fn read(
        &mut self,
        keys: &[&str],
        prefixes: &[&str],
        until: Instant,
    ) -> Result<EtcdReading, AttemptError> {
        let one = keys.iter().map(|key| json!({ "key": encoded(key) }));
        let all = prefixes
            .iter()
            .map(|key| json!({ "key": encoded(key), "range_end": encoded(&end_of(key)) }));
        self.read_ranges(one.chain(all).collect(), until)
    }

    fn read_ranges(
        &mut self,
        ranges: Vec<Value>,
        until: Instant,
    ) -> Result<EtcdReading, AttemptError> {
        let ranges = ranges.into_iter();
        let ranges: Vec<Value> = ranges
            .map(|range| json!({ "request_range": range }))
            .collect();
        let body = json!({ "success": ranges });
        let answer = self.gateway.call("/v3/kv/txn", &body, until)?;
        let header = answer.body.get("header").cloned().unwrap_or_default();
        let field = |value: &Value, name: &str| value.get(name).map_or(0, number);
        let now = answer.now.ok_or_else(|| {
            AttemptError::Away("the answer does not say what time it is (HTTP's Date)".to_string())
        })?;
        // Asked after the reading, for which the member has come as far as the cluster.
        let status = self
            .gateway
            .call("/v3/maintenance/status", &json!({}), until)?
            .body;
        self.grown = grown(&status);
        let position = Position {
            term: field(&status, "raftTerm"),
            index: field(&status, "raftIndex"),
        };
        let member = status
            .get("header")
            .map(|header| field(header, "member_id"));
        if member != Some(field(&header, "member_id")) {
            // Something between sends each call to another member.
            return Err(AttemptError::Again);
        }
        let (revision, cluster) = (field(&header, "revision"), field(&header, "cluster_id"));
        if position.index == 0 || revision == 0 || cluster == 0 {
            return Err(AttemptError::Away("the answer is not etcd's".to_string()));
        }
        let responses = answer.body.get("responses").and_then(Value::as_array);
        let entries = responses
            .into_iter()
            .flatten()
            .filter_map(|response| response.get("response_range")?.get("kvs")?.as_array())
            .flatten()
            .map(|entry| {
                let text = |name: &str| decoded(entry.get(name));
                let stored = EtcdEntry {
                    // An empty value is left out.
                    value: text("value").unwrap_or_default(),
                    changed: field(entry, "mod_revision"),
                    lease: field(entry, "lease"),
                };
                Some((text("key")?, stored))
            })
            .collect::<Option<BTreeMap<_, _>>>();
        let wrong = || EtcdError::Unreadable("a key is no text".to_string());
        let entries = entries.ok_or_else(wrong)?;
        Ok(EtcdReading {
            etcd_input: EtcdInput {
                now,
                cluster,
                revision,
                stored_at: entries
                    .get(&self.key("/state"))
                    .map_or(0, |entry| entry.changed),
                position,
                random: u128::from_ne_bytes(random().map_err(AttemptError::Away)?),
            },
            entries,
        })
    }

    /// Makes the transaction, which also stores the state if there is one to store.
    fn store(
        &mut self,
        reading: &EtcdReading,
        mut change: EtcdChange,
        stored: Option<&Stored>,
        until: Instant,
    ) -> Result<(), AttemptError> {
        let key = self.key("/state");
        change.unless_changed(reading, &key);
        if let Some(stored) = stored {
            change.put(&key, &wire::encode(stored), 0);
        }
        if self.has_turn {
            change.delete(&self.key("/turn"));
        }
        match self.gateway.call("/v3/kv/txn", &change.body(), until) {
            Ok(answer) if has_succeeded(&answer.body) => {
                self.has_turn = false;
                Ok(())
            }
            Ok(_) => Err(AttemptError::Again),
            // The lease has ended before it had its key.
            Err(GatewayError::Refused {
                code: NOT_FOUND, ..
            }) => {
                self.spare = None;
                Err(AttemptError::Again)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Begins a lease of etcd anew. False if it has ended.
    fn keep_alive(&mut self, lease: u64, until: Instant) -> Result<bool, AttemptError> {
        let body = json!({ "ID": lease.to_string() });
        match self.gateway.call("/v3/lease/keepalive", &body, until) {
            Ok(answer) => {
                let left = answer.body.get("result").and_then(|it| it.get("TTL"));
                Ok(left.map_or(0, number) > 0)
            }
            Err(GatewayError::Refused {
                code: NOT_FOUND, ..
            }) => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// A new lease of etcd.
    fn grant_lease(&mut self, seconds: u64, until: Instant) -> Result<u64, AttemptError> {
        // One that a transaction did not get to use has its time from before.
        if let Some((lease, of)) = self.spare.take()
            && of == seconds
            && self.keep_alive(lease, until)?
        {
            self.spare = Some((lease, of));
            return Ok(lease);
        }
        let lease = self.new_lease(seconds, until)?;
        self.spare = Some((lease, seconds));
        Ok(lease)
    }

    fn new_lease(&mut self, seconds: u64, until: Instant) -> Result<u64, GatewayError> {
        let body = json!({ "TTL": seconds.to_string() });
        let answer = self.gateway.call("/v3/lease/grant", &body, until)?;
        match answer.body.get("ID").map_or(0, number) {
            0 => Err(GatewayError::Away("etcd has granted no lease".to_string())),
            lease => Ok(lease),
        }
    }
}

/// A pool with what was read of it.
struct EtcdRead {
    reading: EtcdReading,
    stored: Stored,
    pool: StoredPool,
    found: EtcdRows,
}

impl EtcdRead {
    /// See [`EtcdInput::era`].
    fn era(&self) -> Option<u64> {
        self.reading.etcd_input.era(&self.stored)
    }

    /// A transaction that fails if the pool has changed, or what was read of this worker ID.
    fn change(&self, host: &EtcdRegistry, worker: Option<WorkerId>) -> EtcdChange {
        let mut change = EtcdChange::default();
        let name = &self.pool.pool.name;
        change.unless_changed(&self.reading, &host.key(&format!("/pools/{name}")));
        for kind in ["workers", "renewals", "leases"] {
            if let Some(worker) = worker {
                let key = host.id_key(kind, &self.pool.namespace, worker);
                change.unless_changed(&self.reading, &key);
            }
        }
        change
    }
}

/// A row with its renewal, whose key this is.
fn renewed(reading: &EtcdReading, row: Row, key: &str) -> Result<Row, EtcdError> {
    let renewal: Option<Renewal> = reading.value(key)?;
    Ok(match renewal {
        Some(renewal) => renewal.row(row),
        None => row,
    })
}

/// Why a member with this status takes no writes, or soon will not: a sentence, or nothing. Etcd
/// keeps all revisions, unless it is told otherwise.
pub(super) fn grown(status: &Value) -> String {
    let errors = status.get("errors").and_then(Value::as_array);
    let errors = errors.into_iter().flatten().filter_map(Value::as_str);
    // Each is `memberID:... alarm:NOSPACE`, or says that there is no leader, which passes.
    let mut words = errors.flat_map(str::split_whitespace);
    if let Some(alarm) = words.find_map(|it| it.strip_prefix("alarm:")) {
        let alarm: String = alarm.chars().take(ALARM_MAX).collect();
        return format!("Etcd has set alarm {alarm}, and takes no writes.");
    }
    let size = status.get("dbSize").map_or(0, number);
    if size <= USUAL_QUOTA / 2 {
        return String::new();
    }
    let tenths = u128::from(size) * 10 / u128::from(GIGABYTE);
    format!(
        "The database of etcd has grown to {}.{} GB (of the usual quota of {} GB, at which etcd \
         takes no writes).",
        tenths / 10,
        tenths % 10,
        USUAL_QUOTA / GIGABYTE
    )
}

/// The first key after all those that begin with a prefix, which ends with a slash.
fn end_of(prefix: &str) -> String {
    let stem = prefix.strip_suffix('/').unwrap_or(prefix);
    format!("{stem}0")
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, EtcdError> {
    wire::decode(text).map_err(|why| match why {
        MessageError::Format(format) => EtcdError::Format(format),
        MessageError::Content(why) => EtcdError::Unreadable(why),
    })
}

/// Strong random bytes; or why there are none, in words.
fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut random = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
    read.map_err(|why| format!("could not read random numbers: {why}"))?;
    Ok(random)
}

fn pause(tries: u32) -> Duration {
    let random = random().map_or(0, u64::from_ne_bytes);
    Duration::from_millis(1 + random % (PAUSE_MAX << tries.min(DOUBLED_MAX)))
}
