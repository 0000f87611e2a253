//! The rows and servers of a registry, as its disk has them.

use std::collections::BTreeMap;

use super::super::id::{UnixMillis, WorkerId};
use super::super::lease::cluster_horizon::{Changes, Server, Servers};
use super::super::lease::registry::{self, Rows};
use super::super::lease::state::{RegistryInput, State};
use super::super::lease::{Pool, RegistryMillis, Reply, Request, Row, ServerKey};

/// The rows of a pool, as a registry's disk has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    pub pool: Pool,
    pub rows: BTreeMap<WorkerId, Row>,
    pub servers: BTreeMap<String, Server>,
}

impl Table {
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            rows: BTreeMap::new(),
            servers: BTreeMap::new(),
        }
    }

    pub fn put_server(&mut self, server: Server) {
        self.servers.insert(server.holder.identity.text(), server);
    }

    /// Stores what a request has changed.
    pub fn store(&mut self, changes: Changes) {
        if let Some(row) = changes.row {
            self.rows.insert(row.worker, row);
        }
        match changes.server {
            Some((_, Some(server))) => self.put_server(server),
            Some((identity, None)) => drop(self.servers.remove(&identity.text())),
            None => {}
        }
    }

    fn ordinary(&self) -> impl Iterator<Item = &Row> {
        let rows = self.rows.values();
        rows.filter(|row| self.pool.has(row.worker) && !self.pool.is_spare(row.worker))
    }
}

impl Servers for Table {
    fn server(&mut self, identity: &ServerKey) -> Option<Server> {
        self.servers.get(&identity.text()).cloned()
    }

    fn servers(&mut self) -> Vec<Server> {
        self.servers.values().cloned().collect()
    }
}

impl Rows for Table {
    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        self.rows.get(&worker).cloned()
    }

    fn last_held_by(&mut self, identity: &ServerKey) -> Option<Row> {
        let held = self.rows.values();
        let held = held.filter(|row| row.holder.identity == *identity);
        held.max_by_key(|row| (row.since, row.holder.started))
            .cloned()
    }

    fn unused(&mut self) -> Option<WorkerId> {
        let ids = self.pool.ids.start..self.pool.first_spare();
        let mut ids = ids.filter_map(|id| WorkerId::new(i32::try_from(id).unwrap()));
        ids.find(|id| self.pool.has(*id) && !self.rows.contains_key(id))
    }

    fn longest_free(&mut self, expired: RegistryMillis, bound: UnixMillis) -> Option<Row> {
        let free = self.ordinary();
        let free = free.filter(|row| row.released || row.leased_until <= expired);
        let free = free.filter(|row| row.bound <= bound);
        free.min_by_key(|row| row.leased_until).cloned()
    }

    fn clamp(&mut self, latest: RegistryMillis) {
        for row in self.rows.values_mut() {
            row.leased_until = row.leased_until.min(latest);
        }
    }

    fn reached_by(&mut self, system: u64) -> Option<UnixMillis> {
        let rows = self.rows.values();
        let rows = rows.filter(|row| row.holder.identity.system == system);
        rows.map(|row| row.bound).max()
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
