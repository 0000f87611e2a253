//! A registry in etcd: what the rules of [`registry`] mean where the store ends leases by
//! itself, and the server that asks is the host of the protocol.
//!
//! The server reads state, pool and rows, calls [`answer`], and writes back what has
//! changed in one transaction, which etcd refuses if anything that was read has changed.
//! Then the server reads again.
//!
//! # Whose clock counts
//!
//! None of a server that asks. There are two times:
//!
//! - **etcd's leases** decide who may take over. Beside the row of each worker ID there
//!   is a key that goes when the patience and a hold have passed since the last grant or
//!   renewal, by the monotonic clock of etcd's leader. As long as this key is there, the
//!   row is not free, whatever any clock says; when it has gone, the row is free,
//!   whatever the row says. A leader that is new begins all its leases anew, so a worker
//!   ID may be kept longer by that much, and is never free too early.
//! - **The registry's time** ([`RegistryInput::now`]) is the clock of the member of etcd that has
//!   answered (HTTP's `Date`, rounded up to its next second). It says what time it is
//!   where the rules compare clocks: how far ahead a server's clock may be, how long a
//!   lead has lasted, when a grace period ends, and what floors follow a loss. It may go
//!   back, or jump by what the members' clocks differ; [`registry`] bears that of the
//!   clock of any registry.
//!
//! So `leased_until` of a row is what the registry's time was at the last renewal, plus the
//! patience; [`seen`] moves it to where the key of etcd says. The cut of rule 5 has nothing
//! to do then: a row that has its key lasts a patience at most, and without the key it has
//! ended.
//!
//! # What shows a loss
//!
//! | what happens | what shows it |
//! |---|---|
//! | a new cluster with the content of another one | its cluster ID: [`Origin::system`] |
//! | a snapshot that is restored, under the same names too | [`Position`] goes back: raft's log begins anew |
//! | a member's disk that is set back, under a cluster of one | the first server that knows better, as in [`super`] |
//! | an empty cluster, a prefix that was deleted | a registry that a server makes begins as a loss; servers know the era of the other one if an administrator makes a new one |
//! | a new leader, members that crash or freeze | nothing is lost, so nothing is shown |
//!
//! After a loss, only what was stored says whether a lease had expired before it. The keys
//! of a cluster that was restored begin anew, and the takeover may be what was lost. So
//! [`seen`] prolongs no row that was not granted or renewed since the loss.
//!
//! # The first registry
//!
//! The first server that asks makes the registry: see [`first`]. It stores state and pool in one
//! transaction, which etcd refuses if there is any key under the prefix. A server that comes
//! second finds them, and takes the pool as it is. An emptied prefix looks like a new one, and
//! the servers of the lost registry may issue up to their bounds. So the registry begins as a
//! loss ([`Cause::New`]): it has a grace period, and floors that follow from the terms of the
//! default pool. If the lost pool had longer terms, or fewer worker IDs because others use the rest,
//! an administrator makes it anew before a server asks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::id::{Millis, UnixMillis, WorkerId};
use super::cluster_horizon::{Changes, Reports, Server, Servers};
use super::registry::{self, Free, Rows, Vouchers, vouchers_of};
use super::seal::SealKey;
use super::state::{RegistryInput, State};
use super::{
    Answer, Ask, Cause, Origin, Pool, RegistryMillis, Reply, Request, Role, Row, ServerKey,
};

/// The pool of servers whose settings name no other one.
pub const DEFAULT_POOL: &str = "default";

/// How far raft has come: it never goes back, unless the cluster is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

impl Position {
    const fn is_behind(self, other: Self) -> bool {
        self.term < other.term || self.index < other.index
    }
}

/// What is stored beside pools and rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stored {
    pub state: State,
    /// Where raft was when the state was about to be stored.
    pub position: Position,
}

/// A pool, and the namespace in which its worker IDs are different from those of others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredPool {
    pub namespace: String,
    #[serde(flatten)]
    pub pool: Pool,
}

/// What a server finds around it when it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdInput {
    /// The time of the member that has answered.
    pub now: RegistryMillis,
    /// The ID of the cluster.
    pub cluster: u64,
    /// Where raft is, asked of that member after it has answered.
    pub position: Position,
    pub random: u128,
}

impl EtcdInput {
    /// The input for what is stored; for a new registry `None`.
    pub fn registry_input(&self, stored: Option<&Stored>) -> RegistryInput {
        let is_behind = stored.is_some_and(|stored| self.position.is_behind(stored.position));
        let start = stored.map_or(0, |stored| stored.state.start);
        let clean_since = stored.map_or(0, |stored| stored.state.clean_since);
        RegistryInput {
            now: self.now,
            origin: Origin {
                system: self.cluster,
                timeline: 0,
                database: 0,
            },
            // A restart that has lost something is one at which raft has gone back.
            start: if is_behind { self.random } else { start },
            clean_since: if is_behind { self.random } else { clean_since },
            // A server makes its answer itself, and hears it when it is stored.
            revocable: false,
            // No server is the host of etcd, so spare worker IDs serve nobody.
            asker_hosts: false,
            random: self.random,
        }
    }

    /// The era whose rows may be prolonged; `None` if a loss shows already.
    #[must_use]
    pub fn era(&self, stored: &Stored) -> Option<u64> {
        let (input, era) = (self.registry_input(Some(stored)), stored.state.era);
        let is_same = input.clean_since == stored.state.clean_since && input.origin == era.origin;
        is_same.then_some(era.counter)
    }

    /// What is to be stored with a state that has noticed what the input shows. A change
    /// that leaves the state alone leaves the position alone too: a loss is still to be
    /// noticed.
    pub const fn stored(&self, state: State) -> Stored {
        Stored {
            state,
            position: self.position,
        }
    }
}

/// What a server stores that finds no key under the prefix: a registry with the default pool.
/// `None` if that is left to an administrator. A server whose settings name another prefix or
/// pool may have a slip of the pen in them, and a registry of its own would give it the worker
/// IDs of others.
#[must_use]
pub fn first(
    pool: &str,
    is_default_prefix: bool,
    etcd_input: &EtcdInput,
    key: SealKey,
) -> Option<(Stored, StoredPool)> {
    if pool != DEFAULT_POOL || !is_default_prefix {
        return None;
    }
    let input = etcd_input.registry_input(None);
    let mut state = State::new(&input, key);
    state.lose(Cause::New, &input, Some(input.now));
    let pool = StoredPool {
        namespace: "default".to_string(),
        pool: Pool::default_at(input.now),
    };
    Some((etcd_input.stored(state), pool))
}

/// Which rows have to be read for a request: one, or all of all namespaces, of which a
/// grant tells what the server's system has reached.
#[must_use]
pub const fn only_row(ask: &Ask) -> Option<WorkerId> {
    ask.worker()
}

/// The rows that were read.
#[derive(Clone, Debug, Default)]
pub struct EtcdRows {
    /// The rows of the pool's namespace.
    pub rows: Vec<Row>,
    /// All rows were read.
    pub is_all: bool,
    /// The rows of other namespaces.
    pub elsewhere: Vec<Row>,
    /// The worker IDs of the pool's namespace whose keys have not gone.
    pub live: BTreeSet<WorkerId>,
    /// All servers of the registry.
    pub servers: Vec<Server>,
}

/// What follows from a request.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub reply: Reply,
    /// To be stored before the reply counts, with the changes.
    pub state: State,
    pub changes: Changes,
}

/// Answers a request.
#[must_use]
pub fn answer(
    stored: &Stored,
    pool: &Pool,
    found: &EtcdRows,
    request: &Request,
    etcd_input: &EtcdInput,
) -> Outcome {
    let input = etcd_input.registry_input(Some(stored));
    let run = |era: Option<u64>| {
        let mut state = stored.state.clone();
        let mut table = Table::new(pool, found, input.now, era);
        let (reply, changes) = registry::handle(&mut state, pool, &mut table, request, &input);
        Outcome {
            reply,
            state,
            changes,
        }
    };
    let mut outcome = run(etcd_input.era(stored));
    // A loss that only this request has shown: see the head of the file.
    if outcome.state.era != stored.state.era {
        outcome = run(None);
    }
    // A row whose lease continues is stored as it was: what [`seen`] has made of it would
    // look like a renewal after a loss.
    if let Some(row) = &mut outcome.changes.row {
        let was = found.rows.iter().find(|was| was.worker == row.worker);
        if let (EtcdKey::Stays, Some(was)) = (key_of(row, &outcome.reply), was) {
            row.leased_until = was.leased_until;
        }
    }
    outcome
}

/// What becomes of the key of a worker ID when its row is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdKey {
    /// The key lasts for the patience and a hold from now on.
    Lasts,
    /// The key goes with the lease.
    Goes,
    /// The key is as it was.
    Stays,
}

/// What becomes of the key of a row that a reply has changed.
#[must_use]
pub const fn key_of(row: &Row, reply: &Reply) -> EtcdKey {
    match &reply.answer {
        Answer::Granted(_) | Answer::Renewed { .. } => EtcdKey::Lasts,
        _ if row.released => EtcdKey::Goes,
        _ => EtcdKey::Stays,
    }
}

/// A row as its key in etcd says: see the head of the file. Rows of this era are
/// prolonged.
fn seen(row: &Row, is_live: bool, pool: &Pool, now: RegistryMillis, era: Option<u64>) -> Row {
    let mut row = row.clone();
    if row.released {
        return row;
    }
    if is_live {
        if Some(row.era) == era {
            row.leased_until = row.leased_until.max(now);
        }
        row.leased_until = row.leased_until.min(now.plus(pool.patience()));
    } else {
        let free = now.plus(Millis::ZERO.minus(pool.hold));
        row.leased_until = row.leased_until.min(free);
    }
    row
}

/// The rows of a pool, for [`registry`].
pub struct Table<'a> {
    pool: &'a Pool,
    rows: BTreeMap<WorkerId, Row>,
    elsewhere: &'a [Row],
    is_all: bool,
    servers: &'a [Server],
}

impl<'a> Table<'a> {
    /// `era` is the one of the rows that may be prolonged.
    #[must_use]
    pub fn new(pool: &'a Pool, found: &'a EtcdRows, now: RegistryMillis, era: Option<u64>) -> Self {
        let rows = found.rows.iter().map(|row| {
            let is_live = found.live.contains(&row.worker);
            (row.worker, seen(row, is_live, pool, now, era))
        });
        Self {
            pool,
            rows: rows.collect(),
            elsewhere: &found.elsewhere,
            is_all: found.is_all,
            servers: &found.servers,
        }
    }

    /// The row that forbids to drop the pool, if there is one: a server may use it.
    #[must_use]
    pub fn in_use(&self, now: RegistryMillis) -> Option<&Row> {
        self.own()
            .filter(|row| !row.released && row.leased_until.plus(self.pool.hold) > now)
            .max_by_key(|row| row.leased_until)
    }

    fn free(&self, free: &Free) -> impl Iterator<Item = &Row> {
        self.ordinary().filter(|row| free.has(row))
    }

    fn ordinary(&self) -> impl Iterator<Item = &Row> {
        let rows = self.own();
        rows.filter(|row| self.pool.has(row.worker) && !self.pool.is_spare(row.worker))
    }

    /// The rows of the pool's range; others are those of pools that were dropped.
    fn own(&self) -> impl Iterator<Item = &Row> {
        let ids = &self.pool.ids;
        let rows = self.rows.values();
        rows.filter(|row| ids.contains(&i64::from(row.worker.get())))
    }
}

impl Servers for Table<'_> {
    fn server(&mut self, identity: &ServerKey) -> Option<Server> {
        let mut servers = self.servers.iter();
        let found = servers.find(|server| server.holder.identity == *identity);
        found.cloned()
    }

    fn reports(&mut self, without: Option<&ServerKey>) -> Reports {
        let servers = self.servers.iter();
        Reports::of(servers.filter(|server| Some(&server.holder.identity) != without))
    }

    fn count(&mut self, role: &Role) -> (usize, usize) {
        let counting = self
            .servers
            .iter()
            .filter(|server| server.dropped.is_none());
        let of_role = counting
            .clone()
            .filter(|server| server.holder.identity.role == *role);
        (of_role.count(), counting.count())
    }
}

impl Rows for Table<'_> {
    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        self.rows.get(&worker).cloned()
    }

    fn held_by(&mut self, identity: &ServerKey) -> Vec<Row> {
        let held = self.own().filter(|row| row.holder.identity == *identity);
        held.cloned().collect()
    }

    fn unused(&mut self) -> Option<WorkerId> {
        let ids = self.pool.ids.start..self.pool.first_spare();
        let mut ids = ids.filter_map(|id| WorkerId::new(i32::try_from(id).ok()?));
        ids.find(|id| self.pool.has(*id) && !self.rows.contains_key(id))
    }

    fn longest_free(&mut self, free: &Free) -> Option<Row> {
        self.free(free).min_by_key(|row| row.leased_until).cloned()
    }

    fn least_bound(&mut self, free: &Free) -> Option<Row> {
        self.free(free).min_by_key(|row| row.bound).cloned()
    }

    fn count_free(&mut self, free: &Free, with_unused: bool, _: i64) -> i64 {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let unused = match with_unused {
            true => self
                .pool
                .ordinary()
                .saturating_sub(number(self.ordinary().count())),
            false => 0,
        };
        number(self.free(free).count()).saturating_add(unused)
    }

    fn latest_heard(&mut self) -> Option<RegistryMillis> {
        let is_all = self.is_all;
        let rows = self.rows.values().chain(self.elsewhere);
        rows.map(|row| row.heard).max().filter(|_| is_all)
    }

    fn is_later(&mut self, _: RegistryMillis) -> bool {
        false
    }

    fn clamp(&mut self, _: RegistryMillis) {}

    fn vouchers(&mut self, asker: &ServerKey, now: RegistryMillis) -> Vouchers {
        let rows = self.rows.values().chain(self.elsewhere);
        vouchers_of(rows, asker, now)
    }

    fn reached_by(&mut self, system: u64) -> Option<UnixMillis> {
        let rows = self.rows.values().chain(self.elsewhere);
        let rows = rows.filter(|row| row.holder.identity.system == system);
        rows.map(|row| row.bound).max()
    }
}
