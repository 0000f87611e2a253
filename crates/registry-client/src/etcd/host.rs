//! The host of a registry in etcd: reads, asks the core, and writes back by one
//! transaction that compares what was read.
//!
//! | key under the prefix | value | goes |
//! |---|---|---|
//! | `/state` | [`etcd::Stored`]: its version is the lock of the whole registry | never |
//! | `/pools/NAME` | [`StoredPool`] | when the pool is dropped |
//! | `/workers/NAMESPACE/ID` | [`Row`] | never, not even with its pool |
//! | `/leases/NAMESPACE/ID` | counter and nonce of the token, for people | with its lease of etcd |
//! | `/servers/IDENTITY` | [`Server`] | when the server no longer counts |
//!
//! Each request writes the state, so of two that are answered at the same time one finds
//! it changed, and begins anew. That also guards rows of other namespaces that were read.
//! All reads are linearizable. A transaction whose outcome is not known is made again at
//! the next member: the core gives the same answer to the same request.

use std::fs::File;
use std::io::Read as _;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::gateway::{Gateway, GatewayError, NOT_FOUND, decoded, encoded, number};
use super::url::Url;
use crate::wire::{self, MessageError};
use snowflake_core::id::{UnixMillis, WorkerId};
use snowflake_core::lease::cluster_horizon::{self, DropServerError, HorizonError, Server};
use snowflake_core::lease::etcd::{
    self, EtcdInput, EtcdKey, EtcdRows, Position, Stored, StoredPool, Table, key_of, only_row,
};
use snowflake_core::lease::registry;
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{
    Answer, Holder, RegistryError, RegistryMillis, Reply, Request, Row, ServerKey, seal,
};

/// Two that change the registry at the same time wait for a part of this before they
/// begin anew.
const PAUSE_MAX: u64 = 16;

/// Why something was not done.
#[derive(Debug)]
pub enum EtcdError {
    /// No member could be asked: a sentence for each.
    Unreachable(String),
    /// The registry has nothing under the prefix.
    NoRegistry,
    NoPool,
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

/// Why an attempt has failed.
enum AttemptError {
    /// Something has changed meanwhile.
    Again,
    /// This member cannot be asked.
    Away(String),
    Ended(EtcdError),
}

impl From<GatewayError> for AttemptError {
    fn from(failure: GatewayError) -> Self {
        match failure {
            GatewayError::Refused { why, .. } | GatewayError::Away(why) => Self::Away(why),
        }
    }
}

impl From<EtcdError> for AttemptError {
    fn from(problem: EtcdError) -> Self {
        Self::Ended(problem)
    }
}

/// A key with its value.
struct EtcdEntry {
    key: String,
    value: String,
    /// The revision of the latest change.
    changed: u64,
    /// The lease of etcd that ends it; 0 if none does.
    lease: u64,
}

/// What was read, at one revision.
struct EtcdReading {
    revision: u64,
    etcd_input: EtcdInput,
    entries: Vec<EtcdEntry>,
}

impl EtcdReading {
    fn entry(&self, key: &str) -> Option<&EtcdEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn value<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, EtcdError> {
        let entry = self.entry(key);
        entry.map(|entry| parsed(&entry.value)).transpose()
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a EtcdEntry> {
        let entries = self.entries.iter();
        entries.filter(move |entry| entry.key.starts_with(prefix))
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

    /// Only if nothing below the prefix was written since it was read.
    fn unless_written(&mut self, reading: &EtcdReading, prefix: &str) {
        self.compare.push(json!({
            "key": encoded(prefix), "range_end": encoded(&end_of(prefix)), "target": "MOD",
            "result": "LESS", "mod_revision": (reading.revision + 1).to_string(),
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
}

pub struct EtcdRegistry {
    gateway: Gateway,
    /// The namespace of the pool that was asked last.
    namespace: Option<(String, String)>,
    /// A lease of etcd that no key has, and its time to live in seconds.
    spare: Option<(u64, u64)>,
}

impl EtcdRegistry {
    pub const fn new(url: Url) -> Self {
        Self {
            gateway: Gateway::new(url),
            namespace: None,
            spare: None,
        }
    }

    /// Answers a request of a server, which makes the registry if it is the first one.
    pub fn ask(
        &mut self,
        pool: &str,
        request: &Request,
        until: Instant,
    ) -> Result<Reply, EtcdError> {
        self.try_members(until, |host, until| {
            match host.attempt(pool, request, until) {
                Err(AttemptError::Ended(EtcdError::NoPool)) => {
                    host.make_first(pool, until)?;
                    host.attempt(pool, request, until)
                }
                done => done,
            }
        })
    }

    /// Makes the registry if the prefix has no key; fails if it has, or if the settings leave
    /// that to an administrator: see [`etcd::first`].
    fn make_first(&mut self, pool: &str, until: Instant) -> Result<(), AttemptError> {
        let all = self.key("/");
        let (begin, end) = (encoded(&all), encoded(&end_of(&all)));
        let any = json!({ "key": begin, "range_end": end, "limit": "1" });
        let reading = self.read_ranges(vec![any], until)?;
        let key = seal::SealKey::new(random().map_err(AttemptError::Away)?);
        let is_default = self.gateway.url.has_default_prefix();
        let first = etcd::first(pool, is_default, &reading.etcd_input, key);
        let Some((stored, pool)) = first.filter(|_| reading.entries.is_empty()) else {
            return Err(EtcdError::NoPool.into());
        };
        let mut change = EtcdChange::default();
        change.compare.push(json!({
            "key": begin, "range_end": end, "target": "CREATE", "result": "EQUAL",
            "create_revision": "0",
        }));
        let key = self.key(&format!("/pools/{}", pool.pool.name));
        change.put(&key, &wire::encode(&pool), 0);
        self.store(&reading, change, &stored, until)
    }

    /// Makes a pool, and the registry if there is none.
    pub fn create_pool(&mut self, pool: &StoredPool, until: Instant) -> Result<(), EtcdError> {
        self.try_members(until, |host, until| {
            let (pools, key) = (
                host.key("/pools/"),
                host.key(&format!("/pools/{}", pool.pool.name)),
            );
            let state = host.key("/state");
            let reading = host.read(&[&state], &[&pools], until)?;
            let stored: Option<Stored> = reading.value(&state)?;
            let input = reading.etcd_input.registry_input(stored.as_ref());
            if reading.entry(&key).is_some() {
                return Err(EtcdError::PoolExists.into());
            }
            for entry in reading.below(&pools) {
                let other: StoredPool = parsed(&entry.value)?;
                let (one, two) = (&other.pool.ids, &pool.pool.ids);
                if other.namespace == pool.namespace && one.start < two.end && two.start < one.end {
                    return Err(EtcdError::Overlaps(other.pool.name).into());
                }
            }
            let registry = match stored {
                Some(stored) => stored,
                None => {
                    let key = seal::SealKey::new(random().map_err(AttemptError::Away)?);
                    reading.etcd_input.stored(State::new(&input, key))
                }
            };
            let mut pool = pool.clone();
            // Not earlier than what has been stored, though a clock was set back.
            pool.pool.made = input.now.max(registry.state.top);
            let mut change = EtcdChange::default();
            change.unless_changed(&reading, &key);
            change.unless_written(&reading, &pools);
            change.put(&key, &wire::encode(&pool), 0);
            host.store(&reading, change, &registry, until)
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
            change.delete(&host.key(&format!("/pools/{pool}")));
            host.store(&read.reading, change, &read.stored, until)
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
            let read = host.read_pool(pool, Some(id), until)?;
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
            change.put(&host.row_key(&read.pool, id), &wire::encode(&row), 0);
            let stored = read.reading.etcd_input.stored(state);
            host.store(&read.reading, change, &stored, until)?;
            Ok(if row.released {
                row.leased_until
            } else {
                row.leased_until.plus(hold)
            })
        })
    }

    /// All that is stored, as JSON: `now` of the registry, its `state` without the key,
    /// `pools`, and `workers` with their namespace and whether they are `live`.
    pub fn read_all(&mut self, until: Instant) -> Result<Value, EtcdError> {
        self.try_members(until, |host, until| {
            let state = host.key("/state");
            let parts = ["/pools/", "/workers/", "/leases/", "/servers/"];
            let parts = parts.map(|part| host.key(part));
            let [pools, workers, leases, servers] = &parts;
            let reading = host.read(&[&state], &[pools, workers, leases, servers], until)?;
            let stored: Stored = reading.value(&state)?.ok_or(EtcdError::NoRegistry)?;
            let pools = reading.below(pools).map(|entry| parsed(&entry.value));
            let pools = pools.collect::<Result<Vec<StoredPool>, _>>()?;
            let rows = reading.below(workers).map(|entry| {
                let row: Row = parsed(&entry.value)?;
                let place = entry.key.strip_prefix(workers.as_str()).unwrap_or_default();
                let namespace = place.split('/').next().unwrap_or_default();
                let is_live = reading.entry(&format!("{leases}{place}")).is_some();
                Ok(json!({ "namespace": namespace, "live": is_live, "row": row }))
            });
            let rows = rows.collect::<Result<Vec<Value>, EtcdError>>()?;
            let mut state = json!(stored.state);
            if let Some(state) = state.as_object_mut() {
                // Who may see the pools need not be able to seal what servers remember.
                state.remove("key");
            }
            Ok(json!({
                "now": reading.etcd_input.now, "state": state, "pools": pools, "workers": rows,
                "servers": servers_of(&reading, servers)?,
            }))
        })
    }

    /// The horizon of the cluster, or why there is none. Changes nothing.
    pub fn horizon(
        &mut self,
        until: Instant,
    ) -> Result<Result<UnixMillis, HorizonError>, EtcdError> {
        self.try_members(until, |host, until| {
            let (reading, stored, servers) = host.read_servers(until)?;
            let input = reading.etcd_input.registry_input(Some(&stored));
            Ok(cluster_horizon::read(&stored.state, &servers, &input))
        })
    }

    /// Drops a server that is lost, or says why not.
    pub fn drop_server(
        &mut self,
        name: &str,
        until: Instant,
    ) -> Result<Result<(), DropServerError>, EtcdError> {
        self.try_members(until, |host, until| {
            let (reading, stored, servers) = host.read_servers(until)?;
            let input = reading.etcd_input.registry_input(Some(&stored));
            let mut state = stored.state;
            let server = match cluster_horizon::drop_server(&mut state, &servers, name, &input) {
                Ok(server) => server,
                Err(why) => return Ok(Err(why)),
            };
            let mut change = EtcdChange::default();
            host.change_server(&mut change, server.holder.identity, Some(server));
            let stored = reading.etcd_input.stored(state);
            host.store(&reading, change, &stored, until)?;
            Ok(Ok(()))
        })
    }

    /// The state and all servers.
    fn read_servers(
        &mut self,
        until: Instant,
    ) -> Result<(EtcdReading, Stored, Vec<Server>), AttemptError> {
        let (key, prefix) = (self.key("/state"), self.key("/servers/"));
        let reading = self.read(&[&key], &[&prefix], until)?;
        let stored: Stored = reading.value(&key)?.ok_or(EtcdError::NoRegistry)?;
        let servers = servers_of(&reading, &prefix)?;
        Ok((reading, stored, servers))
    }

    /// Guarded by the state, which every request writes.
    fn change_server(&self, change: &mut EtcdChange, identity: ServerKey, server: Option<Server>) {
        let key = self.key(&format!("/servers/{}", identity.text()));
        match server {
            Some(server) => change.put(&key, &wire::encode(&server), 0),
            None => change.delete(&key),
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
            host.store(&reading, EtcdChange::default(), &stored, until)
        })
    }

    /// Tries members until one of them answers; each that is left has its part of the
    /// time.
    fn try_members<T>(
        &mut self,
        until: Instant,
        mut attempt: impl FnMut(&mut Self, Instant) -> Result<T, AttemptError>,
    ) -> Result<T, EtcdError> {
        let mut failures: Vec<String> = Vec::new();
        // A connection that was used before may be gone since long: one member is tried
        // twice.
        let tries = u32::try_from(self.gateway.url.hosts.len()).map_or(2, |count| count.max(2));
        for left in (1..=tries).rev() {
            let now = Instant::now();
            let part = now + until.saturating_duration_since(now) / left;
            let why = loop {
                match attempt(self, part) {
                    Ok(done) => return Ok(done),
                    Err(AttemptError::Ended(problem)) => return Err(problem),
                    Err(AttemptError::Away(why)) => break why,
                    Err(AttemptError::Again) if Instant::now() < part => thread::sleep(pause()),
                    Err(AttemptError::Again) => {
                        break "others changed the registry again and again".to_string();
                    }
                }
            };
            let why = self.gateway.tell(&why);
            if !failures.contains(&why) {
                failures.push(why);
            }
            self.gateway.next_host();
        }
        Err(EtcdError::Unreachable(failures.join("; ")))
    }

    fn attempt(
        &mut self,
        pool: &str,
        request: &Request,
        until: Instant,
    ) -> Result<Reply, AttemptError> {
        let only = only_row(&request.ask);
        let mut read = self.read_pool(pool, only, until)?;
        let mut request = request.clone();
        request.asker.address = self.gateway.address();
        let mut outcome = read.answer(&request);
        if only.is_some() && is_too_far(&outcome.reply) {
            // Other holders may vouch for the clock.
            read = self.read_pool(pool, None, until)?;
            outcome = read.answer(&request);
        }
        let terms = &read.pool.pool;
        let mut change = read.change(self, only);
        if let Some(row) = &outcome.changes.row {
            let lease_key = self.lease_key(&read.pool, row.worker);
            match key_of(row, &outcome.reply) {
                EtcdKey::Stays => {}
                EtcdKey::Goes => change.delete(&lease_key),
                EtcdKey::Lasts => {
                    let entry = read.reading.entry(&lease_key);
                    let token = format!("{}-{:032x}", row.counter, row.nonce.0);
                    // The lease is kept alive if it is that of the same token.
                    let same = entry.filter(|entry| entry.value == token);
                    let lasts = match same {
                        Some(entry) => self.keep_alive(entry.lease, until)?,
                        None => false,
                    };
                    if !lasts {
                        let hold = u64::try_from(terms.patience().plus(terms.hold).get());
                        let seconds = hold.unwrap_or_default().div_ceil(1000);
                        change.put(&lease_key, &token, self.grant_lease(seconds, until)?);
                    }
                }
            }
            let key = self.row_key(&read.pool, row.worker);
            change.put(&key, &wire::encode(row), 0);
        }
        let has_lease = change_has_lease(&outcome);
        if let Some((identity, server)) = outcome.changes.server {
            self.change_server(&mut change, identity, server);
        }
        let stored = read.reading.etcd_input.stored(outcome.state);
        self.store(&read.reading, change, &stored, until)?;
        if has_lease {
            self.spare = None;
        }
        Ok(outcome.reply)
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.gateway.url.prefix)
    }

    /// Worker IDs have ten digits, so that keys are in their order.
    fn row_key(&self, pool: &StoredPool, worker: WorkerId) -> String {
        self.key(&format!("/workers/{}/{:010}", pool.namespace, worker.get()))
    }

    fn lease_key(&self, pool: &StoredPool, worker: WorkerId) -> String {
        self.key(&format!("/leases/{}/{:010}", pool.namespace, worker.get()))
    }

    /// The pool, one row of it or all rows of the registry, and the state.
    fn read_pool(
        &mut self,
        name: &str,
        only: Option<WorkerId>,
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
        let (all_rows, servers) = (self.key("/workers/"), self.key("/servers/"));
        let one = only.map(|id| [&rows, &leases].map(|kind| format!("{kind}{:010}", id.get())));
        let reading = match &one {
            Some([row, lease]) => {
                self.read(&[&state, &pool_key, row, lease], &[&servers], until)?
            }
            None => self.read(&[&state, &pool_key], &[&all_rows, &leases, &servers], until)?,
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
            servers: servers_of(&reading, &servers)?,
            is_all: only.is_none(),
            ..EtcdRows::default()
        };
        for entry in reading.below(&all_rows) {
            let is_here = entry.key.starts_with(&rows);
            let into = if is_here {
                &mut found.rows
            } else {
                &mut found.elsewhere
            };
            into.push(parsed(&entry.value)?);
        }
        for entry in reading.below(&leases) {
            let id = entry.key.strip_prefix(leases.as_str());
            let id = id.and_then(|id| id.parse().ok()).and_then(WorkerId::new);
            found.live.extend(id);
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
                Some(EtcdEntry {
                    key: text("key")?,
                    // An empty value is left out.
                    value: text("value").unwrap_or_default(),
                    changed: field(entry, "mod_revision"),
                    lease: field(entry, "lease"),
                })
            })
            .collect::<Option<Vec<_>>>();
        let wrong = || EtcdError::Unreadable("a key is no text".to_string());
        Ok(EtcdReading {
            revision,
            etcd_input: EtcdInput {
                now,
                cluster,
                position,
                random: u128::from_ne_bytes(random().map_err(AttemptError::Away)?),
            },
            entries: entries.ok_or_else(wrong)?,
        })
    }

    /// Makes the transaction, which also stores the state.
    fn store(
        &mut self,
        reading: &EtcdReading,
        mut change: EtcdChange,
        stored: &Stored,
        until: Instant,
    ) -> Result<(), AttemptError> {
        let key = self.key("/state");
        change.unless_changed(reading, &key);
        change.put(&key, &wire::encode(stored), 0);
        let body = json!({ "compare": change.compare, "success": change.success });
        match self.gateway.call("/v3/kv/txn", &body, until) {
            Ok(answer) if answer.body.get("succeeded") == Some(&Value::Bool(true)) => Ok(()),
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
        let body = json!({ "TTL": seconds.to_string() });
        let answer = self.gateway.call("/v3/lease/grant", &body, until)?;
        let lease = answer.body.get("ID").map_or(0, number);
        if lease == 0 {
            return Err(AttemptError::Away("etcd has granted no lease".to_string()));
        }
        self.spare = Some((lease, seconds));
        Ok(lease)
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
    fn answer(&self, request: &Request) -> etcd::Outcome {
        let (terms, input) = (&self.pool.pool, &self.reading.etcd_input);
        etcd::answer(&self.stored, terms, &self.found, request, input)
    }

    /// See [`EtcdInput::era`].
    fn era(&self) -> Option<u64> {
        self.reading.etcd_input.era(&self.stored)
    }

    /// A transaction that fails if anything that was read has changed.
    fn change(&self, host: &EtcdRegistry, only: Option<WorkerId>) -> EtcdChange {
        let (mut change, namespace) = (EtcdChange::default(), &self.pool.namespace);
        let name = &self.pool.pool.name;
        change.unless_changed(&self.reading, &host.key(&format!("/pools/{name}")));
        match only {
            Some(worker) => {
                change.unless_changed(&self.reading, &host.row_key(&self.pool, worker));
                change.unless_changed(&self.reading, &host.lease_key(&self.pool, worker));
            }
            None => {
                for kind in ["workers", "leases"] {
                    let prefix = host.key(&format!("/{kind}/{namespace}/"));
                    change.unless_written(&self.reading, &prefix);
                }
            }
        }
        change
    }
}

/// The servers that were read.
fn servers_of(reading: &EtcdReading, prefix: &str) -> Result<Vec<Server>, EtcdError> {
    let entries = reading.below(prefix);
    entries.map(|entry| parsed(&entry.value)).collect()
}

/// Whether the reply takes the clock for wrong.
const fn is_too_far(reply: &Reply) -> bool {
    matches!(
        reply.answer,
        Answer::Refused(RegistryError::TooFarAhead { .. })
    )
}

/// Whether a lease of etcd has got its key.
fn change_has_lease(outcome: &etcd::Outcome) -> bool {
    let row = outcome.changes.row.as_ref();
    row.is_some_and(|row| key_of(row, &outcome.reply) == EtcdKey::Lasts)
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

fn pause() -> Duration {
    let random = random().map_or(0, u64::from_ne_bytes);
    Duration::from_millis(1 + random % PAUSE_MAX)
}
