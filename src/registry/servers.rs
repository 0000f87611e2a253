//! The servers of a registry in this database, and the horizon of the cluster:
//! [`snowflake_core::lease::horizon`] decides.
//!
//! A reader of the horizon takes no lock, so that nobody who reads it can keep servers
//! from renewing their leases. One statement reads the state and all servers, as they were
//! at one moment.

use serde::Deserialize;

use super::super::error::{self, Error};
use super::{Purpose, Registry, RegistryTable, json, parsed, scene};
use snowflake_core::id::UnixMillis;
use snowflake_core::lease::ServerKey;
use snowflake_core::lease::horizon::{self, Server, Servers};
use snowflake_core::lease::state::State;

impl Registry {
    fn run(&self, statement: &str, values: &[&str]) -> Option<String> {
        let result = self.value(statement, values);
        // The core has no errors, so this one ends the statement.
        result.unwrap_or_else(|error| error.raise())
    }
}

impl Servers for Registry {
    fn server(&mut self, identity: &ServerKey) -> Option<Server> {
        let text = self.run(
            "SELECT server FROM _snowflake.servers WHERE identity = $1",
            &[&identity.text()],
        )?;
        Some(parsed(&text).unwrap_or_else(|error| error.raise()))
    }

    fn servers(&mut self) -> Vec<Server> {
        let text = self.run(
            "SELECT coalesce(jsonb_agg(server), '[]') FROM _snowflake.servers",
            &[],
        );
        let text = text.unwrap_or_default();
        parsed(&text).unwrap_or_else(|error| error.raise())
    }

    fn put_server(&mut self, server: Server) {
        self.run(
            "INSERT INTO _snowflake.servers (identity, server) \
             VALUES ($1, $2::jsonb) \
             ON CONFLICT (identity) DO UPDATE SET server = excluded.server",
            &[&server.holder.identity.text(), &json(&server)],
        );
    }

    fn remove_server(&mut self, identity: &ServerKey) {
        self.run(
            "DELETE FROM _snowflake.servers WHERE identity = $1",
            &[&identity.text()],
        );
    }
}

/// Those of all pools.
impl Servers for RegistryTable<'_> {
    fn server(&mut self, identity: &ServerKey) -> Option<Server> {
        self.registry.clone().server(identity)
    }

    fn servers(&mut self) -> Vec<Server> {
        self.registry.clone().servers()
    }

    fn put_server(&mut self, server: Server) {
        self.registry.clone().put_server(server);
    }

    fn remove_server(&mut self, identity: &ServerKey) {
        self.registry.clone().remove_server(identity);
    }
}

/// What one statement reads.
#[derive(Deserialize)]
struct Read {
    state: State,
    servers: Vec<Server>,
}

/// The horizon of the cluster; `None` if this database has no registry.
pub fn horizon() -> Result<Option<UnixMillis>, Error> {
    let registry = Registry::with(Purpose::Read)?;
    let text = registry.value(
        "SELECT jsonb_build_object('state', s.state, 'servers', \
             (SELECT coalesce(jsonb_agg(r.server), '[]') FROM _snowflake.servers AS r)) \
         FROM _snowflake.state AS s WHERE s.id = 1",
        &[],
    )?;
    let Some(text) = text else { return Ok(None) };
    let read: Read = parsed(&text)?;
    let horizon = horizon::read(&read.state, &read.servers, &scene(None)?);
    let horizon = horizon.map_err(|why| error::cluster_horizon::lacking(&why))?;
    Ok(Some(horizon))
}

/// Drops a server that is lost.
pub fn drop_server(name: &str) -> Result<(), Error> {
    let mut registry = Registry::lock(c"snowflake_drop_server()")?;
    let mut state = registry.state()?.ok_or_else(error::no_registry)?;
    let dropped = horizon::drop_server(&mut state, &mut registry, name, &scene(None)?);
    dropped.map_err(|why| error::cluster_horizon::not_dropped(name, &why))?;
    registry.store(&state)
}
