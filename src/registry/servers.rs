//! The servers of a registry in this database, and the horizon of the cluster:
//! [`snowflake_core::lease::cluster_horizon`] decides.
//!
//! A reader of the horizon takes no lock, so that nobody who reads it can keep servers
//! from renewing their leases. One statement reads the state and what all servers have reported,
//! as they were at one moment. It reads columns, and no JSON of a server, as a consumer asks often.

use super::super::error::{self, Error};
use super::{Lock, Purpose, Registry, parsed, parsed_if, registry_input, reports_of};
use snowflake_core::id::UnixMillis;
use snowflake_core::lease::cluster_horizon::{self, Changes, Server};
use snowflake_core::lease::state::State;

/// The horizon of the cluster.
pub fn horizon() -> Result<UnixMillis, Error> {
    let found = Registry::with(Purpose::Read)?.guard.row(
        "SELECT s.state, r.least, r.is_silent, (SELECT v.server FROM _snowflake.servers AS v \
             WHERE v.is_silent LIMIT 1) AS silent \
         FROM _snowflake.state AS s \
         CROSS JOIN (SELECT min(horizon) AS least, bool_or(horizon IS NULL) AS is_silent \
             FROM _snowflake.servers WHERE counts) AS r \
         WHERE s.id = 1",
        &[],
    )?;
    let found = found.ok_or_else(error::cluster_horizon::no_registry_here)?;
    let state: State = parsed(&found.text("state"))?;
    let silent: Option<Server> = parsed_if(found.get("silent"))?;
    let input = registry_input(None)?;
    let horizon = cluster_horizon::read(&state, reports_of(&found), silent.as_ref(), &input);
    horizon.map_err(|why| error::cluster_horizon::lacking(&why))
}

/// Drops a server that is lost.
pub fn drop_server(name: &str) -> Result<(), Error> {
    let registry = Registry::alone(c"snowflake_drop_server()")?;
    let (mut state, input) = registry.state()?;
    let servers = registry.servers(name)?;
    let dropped = cluster_horizon::drop_server(&mut state, &servers, name, &input);
    let server = dropped.map_err(|why| error::cluster_horizon::not_dropped(name, &why))?;
    let changes = Changes {
        server: Some((server.holder.identity, Some(server))),
        state: true,
        ..Changes::default()
    };
    registry.write(&state, Lock::Alone, "", &changes)
}
