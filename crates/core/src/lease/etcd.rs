//! A registry in etcd: what the rules of [`registry`] mean where the store ends leases by
//! itself, and the server that asks is the host of the protocol.
//!
//! The server reads, calls [`answer`], and writes back what has changed in one transaction,
//! which etcd refuses if anything has changed on which the answer depends. Then the server reads
//! again.
//!
//! # What a renewal reads and writes
//!
//! Nearly all requests are renewals. A renewal that changes neither the state nor more of its row
//! than a few numbers writes these, and nothing else: one small key, the [`Renewal`] of its worker
//! ID. It reads no row of others: see [`only_row`]. Two such renewals of different worker IDs do
//! not exclude each other. All else writes the row whole, and removes the renewal, since
//! [`Renewal::row`] is in what is written. What changes the state writes it, and so excludes
//! everything.
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
//! | a snapshot that is restored, under the same names too | [`Position`] goes back, or comes closer to the revision: raft's log begins anew, and the revision does not |
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
use super::registry::{self, Free, Rows, Vouchers, vouchers_of};
use super::state::{DAY, RegistryInput, State};
use super::{Answer, Ask, Cause, Origin, Pool, RegistryMillis, Reply, Request, Row, ServerKey};

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

/// What the latest renewal has changed of its row, which was not written since.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Renewal {
    pub number: u64,
    pub clock: UnixMillis,
    pub bound: UnixMillis,
    pub heard: RegistryMillis,
    pub leased_until: RegistryMillis,
    pub era: u64,
}

impl Renewal {
    fn of(row: &Row) -> Self {
        Self {
            number: row.number,
            clock: row.clock,
            bound: row.bound,
            heard: row.heard,
            leased_until: row.leased_until,
            era: row.era,
        }
    }

    /// The row of this worker ID, as the renewal has left it.
    #[must_use]
    pub fn row(&self, row: Row) -> Row {
        Row {
            renewed: true,
            number: self.number,
            clock: self.clock,
            bound: self.bound,
            heard: self.heard,
            leased_until: self.leased_until,
            era: self.era,
            ..row
        }
    }

    /// What has been changed of a row, if it is no more than this.
    fn small(was: &Row, row: &Row) -> Option<Self> {
        let renewal = Self::of(row);
        (renewal.row(was.clone()) == *row).then_some(renewal)
    }
}

/// What a server finds around it when it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdInput {
    /// The time of the member that has answered.
    pub now: RegistryMillis,
    /// The ID of the cluster.
    pub cluster: u64,
    /// The revision that was read.
    pub revision: u64,
    /// The revision at which the state was stored; 0 if there is none.
    pub stored_at: u64,
    /// Where raft is, asked of that member after it has answered.
    pub position: Position,
    pub random: u128,
}

impl EtcdInput {
    /// Whether raft's log has begun anew since the state was stored.
    ///
    /// The log may have come further since than it was then: what is stored of renewals has no
    /// position. But each revision is an entry of the log. So the log is ahead of the revision by
    /// as much as then, or more. The position was asked before the state was stored, and is
    /// asked now after the reading, so what is compared errs on the side of no loss.
    fn is_behind(&self, stored: &Stored) -> bool {
        let was = stored.position;
        let ahead =
            |position: Position, revision| i128::from(position.index) - i128::from(revision);
        self.position.is_behind(was)
            || ahead(self.position, self.revision) < ahead(was, self.stored_at)
    }

    /// The input for what is stored; for a new registry `None`.
    pub fn registry_input(&self, stored: Option<&Stored>) -> RegistryInput {
        let is_behind = stored.is_some_and(|stored| self.is_behind(stored));
        let clean_since = stored.map_or(0, |stored| stored.state.clean_since);
        RegistryInput {
            now: self.now,
            origin: Origin {
                system: self.cluster,
                timeline: 0,
                database: 0,
            },
            // A restart that has lost something is one at which raft has gone back.
            clean_since: if is_behind { self.random } else { clean_since },
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
) -> Option<(Stored, StoredPool)> {
    if pool != DEFAULT_POOL || !is_default_prefix {
        return None;
    }
    let input = etcd_input.registry_input(None);
    let mut state = State::new(&input);
    state.lose(Cause::New, &input, Some(input.now));
    let pool = StoredPool {
        namespace: "default".to_string(),
        pool: Pool::default_at(input.now),
    };
    Some((etcd_input.stored(state), pool))
}

/// The only worker ID of which a row is read for a request; `None` if all rows of all namespaces
/// are read. See [`Outcome::stands`].
#[must_use]
pub const fn only_row(ask: &Ask) -> Option<WorkerId> {
    match ask {
        Ask::Renew { worker, .. } => Some(*worker),
        Ask::Acquire { .. } | Ask::Release { .. } => None,
    }
}

/// The rows that were read, as their renewals have left them.
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
    /// What is kept of what a system has reached, by its identifier.
    pub reached: BTreeMap<u64, UnixMillis>,
}

/// What follows from a request: all of it is to be stored before the reply counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub reply: Reply,
    /// The state, unless it stays as it was.
    pub state: Option<State>,
    pub row: Option<Row>,
    /// To be stored in place of the row.
    pub renewal: Option<Renewal>,
    /// What a system has reached whose row is another one's now.
    pub reached: Option<(u64, UnixMillis)>,
}

impl Outcome {
    /// Whether the outcome would be the same if all had been read, and not [`only_row`].
    #[must_use]
    pub fn stands(&self, request: &Request, input: &EtcdInput) -> bool {
        // Who else is that late decides how far the bound may be.
        let is_late = |instant: UnixMillis| instant >= input.now.plus(DAY).as_nodes_clock();
        let furthest = match request.ask {
            Ask::Renew { furthest, .. } => furthest,
            Ask::Acquire { .. } | Ask::Release { .. } => request.clock,
        };
        let is_plain = match self.reply.answer {
            Answer::Renewed { .. } => self.renewal.is_some() || self.row.is_none(),
            Answer::Ignored => self.row.is_none(),
            _ => false,
        };
        is_plain && self.state.is_none() && !is_late(request.clock) && !is_late(furthest)
    }
}

/// Answers a request.
#[must_use]
pub fn answer(
    stored: &Stored,
    pool: &StoredPool,
    found: &EtcdRows,
    request: &Request,
    etcd_input: &EtcdInput,
) -> Outcome {
    let pool = &pool.pool;
    let input = etcd_input.registry_input(Some(stored));
    let run = |era: Option<u64>| {
        let mut state = stored.state.clone();
        let mut table = Table::new(pool, found, input.now, era);
        let (reply, changes) = registry::handle(&mut state, pool, &mut table, request, &input);
        (state, reply, changes)
    };
    let mut answered = run(etcd_input.era(stored));
    // A loss that only this request has shown: see the head of the file.
    if answered.0.era != stored.state.era {
        answered = run(None);
    }
    let (state, reply, changes) = answered;
    let is_changed = changes.state;
    let mut row = changes.row;
    let was = row.as_ref().and_then(|row| {
        let mut rows = found.rows.iter();
        rows.find(|was| was.worker == row.worker)
    });
    // A row whose lease continues is stored as it was: what [`seen`] has made of it would
    // look like a renewal after a loss.
    if let (Some(row), Some(was)) = (&mut row, was)
        && key_of(row, &reply) == EtcdKey::Stays
    {
        row.leased_until = was.leased_until;
    }
    let renewal = match (&reply.answer, &row, was) {
        (Answer::Renewed { .. }, Some(row), Some(was)) if !is_changed => Renewal::small(was, row),
        _ => None,
    };
    Outcome {
        reply,
        state: is_changed.then_some(state),
        row,
        renewal,
        reached: changes.reached,
    }
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
    now: RegistryMillis,
    rows: BTreeMap<WorkerId, Row>,
    elsewhere: &'a [Row],
    is_all: bool,
    reached: &'a BTreeMap<u64, UnixMillis>,
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
            now,
            rows: rows.collect(),
            elsewhere: &found.elsewhere,
            is_all: found.is_all,
            reached: &found.reached,
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
        self.granted().filter(|row| free.has(row))
    }

    fn granted(&self) -> impl Iterator<Item = &Row> {
        self.own().filter(|row| self.pool.has(row.worker))
    }

    /// The rows of the pool's range; others are those of pools that were dropped.
    fn own(&self) -> impl Iterator<Item = &Row> {
        let ids = &self.pool.ids;
        let rows = self.rows.values();
        rows.filter(|row| ids.contains(&i64::from(row.worker.get())))
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
        let mut ids = self
            .pool
            .ids
            .clone()
            .filter_map(|id| WorkerId::new(i32::try_from(id).ok()?));
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
        let granted = number(self.granted().count());
        let unused = self.pool.size().saturating_sub(granted);
        let unused = if with_unused { unused } else { 0 };
        number(self.free(free).count()).saturating_add(unused)
    }

    fn latest_heard(&mut self) -> Option<RegistryMillis> {
        let is_all = self.is_all;
        let rows = self.rows.values().chain(self.elsewhere);
        let heard = rows.map(|row| row.heard).max();
        // Who was not heard itself for long may be the first one after a silence.
        heard.filter(|heard| is_all || self.now.since(*heard) > self.pool.patience())
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
        let kept = self.reached.get(&system).copied();
        rows.map(|row| row.bound).max().max(kept)
    }
}
