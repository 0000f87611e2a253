//! The servers of a registry in this database, and the horizon of the cluster:
//! [`snowflake_core::lease::cluster_horizon`] decides.
//!
//! A reader of the horizon takes no lock, so that nobody who reads it can keep servers
//! from renewing their leases. One statement reads the state and all servers, as they were
//! at one moment.

use super::super::error::{self, Error};
use super::{Lock, Purpose, Registry, parsed, registry_input};
use snowflake_core::id::UnixMillis;
use snowflake_core::lease::cluster_horizon::{self, Changes, Server};
use snowflake_core::lease::state::State;

/// The horizon of the cluster.
pub fn horizon() -> Result<UnixMillis, Error> {
    let found = Registry::with(Purpose::Read)?.guard.row(
        "SELECT s.state, (SELECT coalesce(jsonb_agg(r.server), '[]') FROM _snowflake.servers AS r) AS servers \
         FROM _snowflake.state AS s WHERE s.id = 1",
        &[],
    )?;
    let found = found.ok_or_else(error::cluster_horizon::no_registry_here)?;
    let state: State = parsed(&found.text("state"))?;
    let servers: Vec<Server> = parsed(&found.text("servers"))?;
    let horizon = cluster_horizon::read(&state, &servers, &registry_input(None)?);
    horizon.map_err(|why| error::cluster_horizon::lacking(&why))
}

/// Drops a server that is lost.
pub fn drop_server(name: &str) -> Result<(), Error> {
    let registry = Registry::alone(c"snowflake_drop_server()")?;
    let (mut state, input) = registry.state()?;
    let servers = registry.servers()?;
    let dropped = cluster_horizon::drop_server(&mut state, &servers, name, &input);
    let server = dropped.map_err(|why| error::cluster_horizon::not_dropped(name, &why))?;
    let changes = Changes {
        server: Some((server.holder.identity, Some(server))),
        state: true,
        ..Changes::default()
    };
    registry.write(&state, Lock::Alone, "", &changes)
}
