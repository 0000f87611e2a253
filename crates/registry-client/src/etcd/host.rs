//! The host of a registry in etcd: reads, asks the core, and writes back by one
//! transaction that compares what was read.
//!
//! | key under the prefix | value | goes |
//! |---|---|---|
//! | `/state` | [`etcd::StoredState`] | never |
//! | `/pools/NAME` | [`StoredPool`] | when the pool is dropped |
//! | `/workers/NAMESPACE/ID` | [`Row`] | never, not even with its pool |
//!
//! # Who excludes whom
//!
//! Each transaction fails if the state, the pool or a row that it writes has changed since it was
//! read; a row that did not exist must not exist. What fails begins anew, after a pause that is
//! drawn by lot, and may be twice as long each time. If it had read all rows, it reads only those that
//! were written since: of many that ask at once, most fail many times.
//!
//! - **A grant** and all else but a renewal reads all rows, and writes the state. So of those that
//!   were under way at the same time, one is stored, and the others begin anew.
//! - **A renewal** reads its row, and writes no more than that. So it excludes other requests with
//!   that row; and a change of the state excludes the renewals that have read the state of before. Two
//!   renewals of different worker IDs do not exclude each other.
//!
//! All reads are linearizable. A transaction whose outcome is not
//! known is made again at the next member: the core gives the same answer to the same request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::gateway::{Gateway, GatewayError, decoded, encoded, number};
use super::url::Url;
use crate::wire::{self, MessageError};
use snowflake_core::id::WorkerId;
use snowflake_core::lease::etcd::{self, EtcdInput, Position, StoredPool, StoredState};
use snowflake_core::lease::registry::{self, Rows, only_row};
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{RegistryMillis, Reply, Request, Row};

/// Two that change the registry at the same time wait for a part of this, in milliseconds, before
/// they begin anew, and each time for a part of twice as much, up to 4 s.
const PAUSE_MAX: u64 = 256;
const DOUBLED_MAX: u32 = 4;

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
    /// A server may use this row.
    InUse(Box<Row>),
    NotInPool,
    NeverLeased,
    /// What is stored cannot be read: words without a full stop.
    Unreadable(String),
    /// What is stored has another format.
    Format(u64),
}

/// Why an attempt has failed.
#[derive(Debug)]
pub(super) enum AttemptError {
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
}

/// What was read, at one revision.
struct EtcdReading {
    etcd_input: EtcdInput,
    entries: BTreeMap<String, EtcdEntry>,
    /// How many keys there are in what was read.
    count: u64,
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

    fn put(&mut self, key: &str, value: &str) {
        self.success.push(json!({ "request_put": {
            "key": encoded(key), "value": encoded(value),
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
    /// What a request has read in vain that is not answered yet.
    known: Option<EtcdReading>,
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
            known: None,
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
        self.try_members(until, |host, until| {
            match host.attempt(pool, request, until) {
                Err(AttemptError::Ended(EtcdError::NoPool)) => {
                    host.make_first(pool, request.memory.is_some(), until)?;
                    host.attempt(pool, request, until)
                }
                done => done,
            }
        })
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
        change.put(&pool_key, &wire::encode(&pool));
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
            let stored: Option<StoredState> = reading.value(&state)?;
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
            let made = |stored: &StoredState| stored.state.making(pool.pool.unused, input.now);
            pool.pool.made = stored.as_ref().map_or(input.now, made);
            let new = match stored {
                Some(_) => None,
                None => Some(reading.etcd_input.stored(State::new(&input))),
            };
            let mut change = EtcdChange::default();
            change.unless_changed(&reading, &key);
            change.unless_written(&reading, &pools, &end_of(&pools));
            change.put(&key, &wire::encode(&pool));
            host.store(&reading, change, new.as_ref(), until)
        })
    }

    /// Drops a pool that no server uses.
    pub fn drop_pool(&mut self, pool: &str, until: Instant) -> Result<(), EtcdError> {
        self.try_members(until, |host, until| {
            let read = host.read_pool(pool, None, until)?;
            let terms = &read.pool.pool;
            if let Some(row) = read.rows.in_use(terms, read.reading.etcd_input.now) {
                return Err(EtcdError::InUse(Box::new(row.clone())).into());
            }
            let mut change = read.change(host);
            let place = |id| host.key(&format!("/workers/{}/{id:010}", read.pool.namespace));
            let ids = &terms.ids;
            change.unless_written(&read.reading, &place(ids.start), &place(ids.end));
            change.delete(&host.key(&format!("/pools/{pool}")));
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
            let mut read = host.read_pool(pool, Some(id), until)?;
            let terms = &read.pool.pool;
            if !terms.has(id) {
                return Err(EtcdError::NotInPool.into());
            }
            let input = read.reading.etcd_input.registry_input(Some(&read.stored));
            let row = read.rows.rows.get_mut(&id).ok_or(EtcdError::NeverLeased)?;
            let free = registry::revoke(&mut read.stored.state, terms, row, &input);
            let row = row.clone();
            let mut change = read.change(host);
            host.put_row(&mut change, &read, &row);
            let stored = read.reading.etcd_input.stored(read.stored.state);
            host.store(&read.reading, change, Some(&stored), until)?;
            Ok(free)
        })
    }

    /// All that is stored, as JSON: `now` of the registry, its `state`,
    /// `pools`, `workers` with their namespace, and `grown`.
    pub fn read_all(&mut self, until: Instant) -> Result<Value, EtcdError> {
        self.try_members(until, |host, until| {
            let state = host.key("/state");
            let (pools, workers) = (&host.key("/pools/"), &host.key("/workers/"));
            let reading = host.read(&[&state], &[pools, workers], until)?;
            let stored: StoredState = reading.value(&state)?.ok_or(EtcdError::NoRegistry)?;
            let pools = reading.below(pools).map(|(_, entry)| parsed(&entry.value));
            let pools = pools.collect::<Result<Vec<StoredPool>, _>>()?;
            let rows = reading.below(workers).map(|(place, entry)| {
                let row: Row = parsed(&entry.value)?;
                let namespace = place.split('/').next().unwrap_or_default();
                Ok(json!({ "namespace": namespace, "row": row }))
            });
            let rows = rows.collect::<Result<Vec<Value>, EtcdError>>()?;
            Ok(json!({
                "now": reading.etcd_input.now, "state": stored.state, "pools": pools, "workers": rows,
                "grown": host.grown,
            }))
        })
    }

    /// Writes a row, only if it is as it was read.
    fn put_row(&self, change: &mut EtcdChange, read: &EtcdRead, row: &Row) {
        let key = self.row_key(&read.pool.namespace, row.worker);
        change.unless_changed(&read.reading, &key);
        change.put(&key, &wire::encode(row));
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
            let stored: StoredState = reading.value(&key)?.ok_or(EtcdError::NoRegistry)?;
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
            let why = loop {
                let now = Instant::now();
                let part = now + until.saturating_duration_since(now) / left;
                let done = attempt(self, part);
                if matches!(done, Ok(_) | Err(AttemptError::Ended(_))) {
                    (self.tries, self.known) = (0, None);
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
                        let pause = pause(self.tries);
                        let left = until.saturating_duration_since(Instant::now());
                        thread::sleep(pause.min(left));
                        self.tries = self.tries.saturating_add(1);
                        if pause >= left {
                            let why = "others changed the registry again and again";
                            let why = self.gateway.tell(why);
                            self.gateway.next_host();
                            return Err(EtcdError::Unreachable(why));
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
        let draft = self.draft(pool, request, until)?;
        self.commit(draft, until)
    }

    /// Reads, and answers.
    pub(super) fn draft(
        &mut self,
        pool: &str,
        request: &Request,
        until: Instant,
    ) -> Result<Draft, AttemptError> {
        let mut request = request.clone();
        let mut only = only_row(&request.ask);
        let (read, (reply, changes)) = loop {
            let mut read = self.read_pool(pool, only, until)?;
            request.asker.address = self.gateway.address();
            let input = read.reading.etcd_input.registry_input(Some(&read.stored));
            let (state, rows) = (&mut read.stored.state, mem::take(&mut read.rows));
            match registry::handle(state, &read.pool.pool, rows, &request, &input) {
                Some(answer) => break (read, answer),
                None => only = None,
            }
        };
        let mut change = read.change(self);
        for row in changes.rows.values() {
            self.put_row(&mut change, &read, row);
        }
        let is_changed = changes.state || !changes.rows.is_empty();
        let stored = read.reading.etcd_input.stored(read.stored.state);
        Ok(Draft {
            reply,
            change: is_changed.then_some((change, changes.state.then_some(stored))),
            reading: read.reading,
            is_all: only.is_none(),
        })
    }

    /// Stores what an answer changes.
    pub(super) fn commit(&mut self, draft: Draft, until: Instant) -> Result<Reply, AttemptError> {
        if let Some((change, stored)) = draft.change {
            let done = self.store(&draft.reading, change, stored.as_ref(), until);
            if let Err(why) = done {
                self.known = draft.is_all.then_some(draft.reading);
                return Err(why);
            }
        }
        Ok(draft.reply)
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.gateway.url.prefix)
    }

    /// The key of a row. It has ten digits, so that keys are in their order.
    fn row_key(&self, namespace: &str, worker: WorkerId) -> String {
        self.key(&format!("/workers/{namespace}/{:010}", worker.get()))
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
        let all = self.key("/workers/");
        let reading = match own {
            Some(worker) => {
                let row = self.row_key(&namespace, worker);
                self.read(&[&state, &pool_key, &row], &[], until)?
            }
            None => self.read_all_rows([&state, &pool_key], &all, until)?,
        };
        let pool: StoredPool = reading.value(&pool_key)?.ok_or(EtcdError::NoPool)?;
        if pool.namespace != namespace {
            return Err(AttemptError::Again);
        }
        let Some(checked) = pool.pool.clone().checked() else {
            let why = format!("pool \"{name}\" makes no sense");
            return Err(EtcdError::Unreadable(why).into());
        };
        let stored: StoredState = reading.value(&state)?.ok_or(EtcdError::NoRegistry)?;
        let mut rows = Rows {
            is_all: own.is_none(),
            ..Rows::default()
        };
        for (place, entry) in reading.below(&all) {
            let row: Row = parsed(&entry.value)?;
            if place.split('/').next() == Some(&namespace) {
                rows.rows.insert(row.worker, row);
            } else {
                rows.elsewhere.push(row);
            }
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
            rows,
        })
    }

    /// Reads keys, and all rows. No row goes, so what was read before needs only what was written
    /// since; unless that was another cluster, or one of which a snapshot was restored.
    fn read_all_rows(
        &mut self,
        keys: [&str; 2],
        prefix: &str,
        until: Instant,
    ) -> Result<EtcdReading, AttemptError> {
        let known = self.known.take();
        let since = known.as_ref().map_or(0, |known| known.revision() + 1);
        let [state, pool] = keys.map(|key| json!({ "key": encoded(key) }));
        let rows = json!({
            "key": encoded(prefix), "range_end": encoded(&end_of(prefix)),
            "min_mod_revision": since.to_string(),
        });
        let mut reading = self.read_ranges(vec![state, pool, rows], until)?;
        if let Some(known) = known {
            let (was, input) = (&known.etcd_input, &reading.etcd_input);
            let is_another = was.cluster != input.cluster
                || input.revision < was.revision
                || input.position.is_behind(was.position);
            for (key, entry) in known.entries {
                if key.starts_with(prefix) {
                    reading.entries.entry(key).or_insert(entry);
                }
            }
            if is_another || reading.entries.len() as u64 != reading.count {
                return Err(AttemptError::Again);
            }
        }
        Ok(reading)
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
        let responses = responses.into_iter().flatten();
        let ranges = responses.filter_map(|response| response.get("response_range"));
        let count = ranges.clone().map(|range| field(range, "count")).sum();
        let entries = ranges
            .filter_map(|range| range.get("kvs")?.as_array())
            .flatten()
            .map(|entry| {
                let text = |name: &str| decoded(entry.get(name));
                let stored = EtcdEntry {
                    // An empty value is left out.
                    value: text("value").unwrap_or_default(),
                    changed: field(entry, "mod_revision"),
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
            count,
        })
    }

    /// Makes the transaction, which also stores the state if there is one to store.
    fn store(
        &mut self,
        reading: &EtcdReading,
        mut change: EtcdChange,
        stored: Option<&StoredState>,
        until: Instant,
    ) -> Result<(), AttemptError> {
        let key = self.key("/state");
        change.unless_changed(reading, &key);
        if let Some(stored) = stored {
            change.put(&key, &wire::encode(stored));
        }
        match self.gateway.call("/v3/kv/txn", &change.body(), until) {
            Ok(answer) if has_succeeded(&answer.body) => Ok(()),
            Ok(_) => Err(AttemptError::Again),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// A pool with what was read of it.
struct EtcdRead {
    reading: EtcdReading,
    stored: StoredState,
    pool: StoredPool,
    rows: Rows,
}

impl EtcdRead {
    /// A transaction that fails if the pool has changed.
    fn change(&self, host: &EtcdRegistry) -> EtcdChange {
        let mut change = EtcdChange::default();
        let key = host.key(&format!("/pools/{}", self.pool.pool.name));
        change.unless_changed(&self.reading, &key);
        change
    }
}

/// An answer that is not stored yet.
pub(super) struct Draft {
    reply: Reply,
    reading: EtcdReading,
    is_all: bool,
    /// The transaction, with the state if that changes; `None` if nothing does.
    change: Option<(EtcdChange, Option<StoredState>)>,
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
