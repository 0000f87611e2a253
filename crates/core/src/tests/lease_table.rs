//! The rows of a registry, as its disk has them.

use std::collections::BTreeMap;

use super::super::id::{UnixMillis, WorkerId};
use super::super::lease::registry::{self, Changes, Free, Rows, Vouchers, vouchers_of};
use super::super::lease::state::{RegistryInput, State};
use super::super::lease::{Pool, RegistryMillis, Reply, Request, Row, ServerKey};

/// The rows of a pool, as a registry's disk has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    pub pool: Pool,
    pub rows: BTreeMap<WorkerId, Row>,
    /// What systems have reached whose rows have gone to others.
    pub reached: BTreeMap<u64, UnixMillis>,
}

impl Table {
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            rows: BTreeMap::new(),
            reached: BTreeMap::new(),
        }
    }

    /// Stores what a request has changed.
    pub fn store(&mut self, changes: Changes) {
        if let Some(row) = changes.row {
            self.rows.insert(row.worker, row);
        }
        if let Some((system, bound)) = changes.reached {
            let kept = self.reached.entry(system).or_insert(bound);
            *kept = bound.max(*kept);
        }
    }

    fn granted(&self) -> impl Iterator<Item = &Row> {
        let rows = self.rows.values();
        rows.filter(|row| self.pool.has(row.worker))
    }
}

impl Rows for Table {
    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        self.rows.get(&worker).cloned()
    }

    fn held_by(&mut self, identity: &ServerKey) -> Vec<Row> {
        let held = self.rows.values();
        let held = held.filter(|row| row.holder.identity == *identity);
        held.cloned().collect()
    }

    fn unused(&mut self) -> Option<WorkerId> {
        let mut ids = self
            .pool
            .ids
            .clone()
            .filter_map(|id| WorkerId::new(i32::try_from(id).unwrap()));
        ids.find(|id| self.pool.has(*id) && !self.rows.contains_key(id))
    }

    fn longest_free(&mut self, free: &Free) -> Option<Row> {
        let rows = self.granted().filter(|row| free.has(row));
        rows.min_by_key(|row| row.leased_until).cloned()
    }

    fn least_bound(&mut self, free: &Free) -> Option<Row> {
        let rows = self.granted().filter(|row| free.has(row));
        rows.min_by_key(|row| row.bound).cloned()
    }

    fn count_free(&mut self, free: &Free, with_unused: bool, _: i64) -> i64 {
        let number = |count: usize| i64::try_from(count).unwrap();
        let rows = number(self.granted().filter(|row| free.has(row)).count());
        let unused = self.pool.size() - number(self.granted().count());
        rows + if with_unused { unused } else { 0 }
    }

    fn latest_heard(&mut self) -> Option<RegistryMillis> {
        self.rows.values().map(|row| row.heard).max()
    }

    fn is_later(&mut self, latest: RegistryMillis) -> bool {
        self.rows.values().any(|row| row.leased_until > latest)
    }

    fn clamp(&mut self, latest: RegistryMillis) {
        for row in self.rows.values_mut() {
            row.leased_until = row.leased_until.min(latest);
        }
    }

    fn vouchers(&mut self, asker: &ServerKey, now: RegistryMillis) -> Vouchers {
        vouchers_of(self.rows.values(), asker, now)
    }

    fn reached_by(&mut self, system: u64) -> Option<UnixMillis> {
        let rows = self.rows.values();
        let rows = rows.filter(|row| row.holder.identity.system == system);
        let kept = self.reached.get(&system).copied();
        rows.map(|row| row.bound).max().max(kept)
    }
}

/// Answers a request, and stores what it changes.
pub fn handle(
    state: &mut State,
    table: &mut Table,
    request: &Request,
    input: &RegistryInput,
) -> Reply {
    let pool = table.pool.clone();
    let (reply, changes) = registry::handle(state, &pool, table, request, input);
    table.store(changes);
    reply
}

/// Revokes a worker ID, and stores that.
pub fn revoke(
    state: &mut State,
    table: &mut Table,
    worker: WorkerId,
    input: &RegistryInput,
) -> Option<Row> {
    let row = registry::revoke(state, table, worker, input)?;
    table.rows.insert(worker, row.clone());
    Some(row)
}
