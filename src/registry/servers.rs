//! The servers of a registry in this database, and the horizon of the cluster:
//! [`snowflake_core::lease::horizon`] decides.
//!
//! A reader of the horizon takes no lock, so that nobody who reads it can keep servers
//! from renewing their leases. One statement reads the state and all servers, as they were
//! at one moment.

use super::super::error::{self, Error};
use super::{Known, Purpose, Registry, parsed, parsed_if, scene};
use snowflake_core::id::UnixMillis;
use snowflake_core::lease::ServerKey;
use snowflake_core::lease::horizon::{self, Server, Servers};
use snowflake_core::lease::state::State;

/// The servers, of which one is known.
pub(super) struct StoredServers {
    pub(super) registry: Registry,
    pub(super) known: Known<ServerKey, Server>,
}

impl StoredServers {
    pub(super) const fn new(registry: Registry, known: Known<ServerKey, Server>) -> Self {
        Self { registry, known }
    }

    fn set(&mut self, identity: ServerKey, server: Option<Server>) {
        if !self.known.is_of(identity) {
            self.write(None).unwrap_or_else(|error| error.raise());
        }
        self.known = Known::changed(identity, server);
    }

    /// Stores what has changed.
    fn write(&mut self, state: Option<&State>) -> Result<(), Error> {
        let server = self.known.take();
        if state.is_none() && server.is_none() {
            return Ok(());
        }
        self.registry.write(state, "", None, server)
    }

    /// Runs a query, which finds what has changed.
    fn read(&mut self, query: &'static str, values: &[&str]) -> Option<String> {
        self.write(None).unwrap_or_else(|error| error.raise());
        self.registry.run(query, values)
    }
}

impl Servers for StoredServers {
    fn server(&mut self, identity: &ServerKey) -> Option<Server> {
        if !self.known.is_of(*identity) {
            let server = self.read(
                "SELECT server FROM _snowflake.servers WHERE identity = $1",
                &[&identity.text()],
            );
            let server = parsed_if(server.as_deref()).unwrap_or_else(|error| error.raise());
            self.known = Known::read(*identity, server);
        }
        self.known.value.clone()
    }

    fn servers(&mut self) -> Vec<Server> {
        let text = self.read(
            "SELECT coalesce(jsonb_agg(server), '[]') FROM _snowflake.servers",
            &[],
        );
        parsed(&text.unwrap_or_default()).unwrap_or_else(|error| error.raise())
    }

    fn put_server(&mut self, server: Server) {
        self.set(server.holder.identity, Some(server));
    }

    fn remove_server(&mut self, identity: &ServerKey) {
        self.set(*identity, None);
    }
}

/// The horizon of the cluster; `None` if this database has no registry.
pub fn horizon() -> Result<Option<UnixMillis>, Error> {
    let found = Registry::with(Purpose::Read)?.guard.row(
        "SELECT s.state, (SELECT coalesce(jsonb_agg(r.server), '[]') FROM _snowflake.servers AS r) AS servers \
         FROM _snowflake.state AS s WHERE s.id = 1",
        &[],
    )?;
    let Some(found) = found else { return Ok(None) };
    let state: State = parsed(&found.text("state"))?;
    let servers: Vec<Server> = parsed(&found.text("servers"))?;
    let horizon = horizon::read(&state, &servers, &scene(None)?);
    let horizon = horizon.map_err(|why| error::cluster_horizon::lacking(&why))?;
    Ok(Some(horizon))
}

/// Drops a server that is lost.
pub fn drop_server(name: &str) -> Result<(), Error> {
    let registry = Registry::lock(c"snowflake_drop_server()")?;
    let mut state = registry.state()?.ok_or_else(error::no_registry)?;
    let mut servers = StoredServers::new(registry, Known::default());
    let dropped = horizon::drop_server(&mut state, &mut servers, name, &scene(None)?);
    dropped.map_err(|why| error::cluster_horizon::not_dropped(name, &why))?;
    servers.write(Some(&state))
}
