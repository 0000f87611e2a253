//! The rows and servers of a registry, as its disk has them.

use std::collections::BTreeMap;

use super::super::id::{UnixMillis, WorkerId};
use super::super::lease::horizon::{Server, Servers};
use super::super::lease::registry::Rows;
use super::super::lease::{Pool, RegistryMillis, Row, ServerKey};

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

    fn put_server(&mut self, server: Server) {
        let key = server.holder.identity.text();
        self.servers.insert(key, server);
    }

    fn remove_server(&mut self, identity: &ServerKey) {
        self.servers.remove(&identity.text());
    }
}

impl Rows for Table {
    fn horizon(&mut self) -> &mut impl Servers {
        self
    }

    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        self.rows.get(&worker).cloned()
    }

    fn put(&mut self, row: Row) {
        self.rows.insert(row.worker, row);
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

    fn cut(&mut self, latest: RegistryMillis) {
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
