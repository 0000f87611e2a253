//! Errors of the horizon of a cluster.

use pgrx::PgSqlErrorCode::*;

use super::super::time::display;
use super::{Code, Error, not_ready};
use snowflake_core::excerpt::excerpt;
use snowflake_core::lease::Holder;
use snowflake_core::lease::cluster_horizon::{DropServerError, HorizonError, Server};

/// A server, for a person to find it.
fn place(holder: &Holder) -> String {
    let Holder {
        host,
        address,
        port,
        data_directory,
        ..
    } = holder;
    let address = match address.as_str() {
        "" => String::new(),
        address => format!(" ({address})"),
    };
    format!("at {host}{address}, port {port}, data directory \"{data_directory}\"")
}

pub fn lacking(why: &HorizonError) -> Error {
    let error = not_ready("the cluster has no horizon yet");
    match why {
        HorizonError::NoServer => error
            .detail("No server has a worker ID of this registry.")
            .hint(
                "View snowflake_cluster_servers shows the servers. Set \
                 \"snowflake_id.registry\" on each of them.",
            ),
        HorizonError::Report(server) => error
            .detail(format!(
                "The server {} counts since {}, and has reported no horizon.",
                place(&server.holder),
                display(server.since.as_nodes_clock())
            ))
            .hint(
                "A server reports when it renews its lease, every 10 s, if \
                 \"snowflake_id.horizon_databases\" is set there, and its version of extension \
                 snowflake_id is not older than this one. View snowflake_cluster_servers shows \
                 the servers.",
            ),
        HorizonError::Stopped(stopped) => not_ready(
            "this registry tells no horizon: it has stopped",
        )
        .detail(format!(
            "Since {} it serves nobody, because the server on host {} has asked another copy \
                 of it.",
            display(stopped.since.as_nodes_clock()),
            stopped.by.host
        ))
        .hint(
            "Ask the other copy, or call snowflake_declare_registry() here if this one \
                 counts.",
        ),
    }
}

pub fn not_dropped(name: &str, why: &DropServerError) -> Error {
    match why {
        DropServerError::Unknown => ERRCODE_UNDEFINED_OBJECT
            .error(format!("no server \"{}\" counts", excerpt(name)))
            .detail("A server has a different name after each start.")
            .hint("View snowflake_cluster_servers shows the servers."),
        DropServerError::MayRun(server) => in_use(name, server),
    }
}

fn in_use(name: &str, server: &Server) -> Error {
    ERRCODE_OBJECT_IN_USE
        .error(format!("cannot drop server \"{name}\": it may run"))
        .detail(format!(
            "The server {} has renewed its lease; it may run until {}.",
            place(&server.holder),
            display(server.until.as_nodes_clock())
        ))
        .hint("Stop the server. A clean stop makes it count no more.")
}

pub fn in_recovery() -> Error {
    ERRCODE_READ_ONLY_SQL_TRANSACTION
        .error("snowflake_cluster_horizon() cannot be called during recovery")
        .hint("Call it on the primary.")
}

pub fn no_registry_here() -> Error {
    not_ready("there is no registry to ask for the horizon of the cluster")
        .detail("This database has none, and \"snowflake_id.registry\" of this server names none.")
        .hint("Call snowflake_cluster_horizon() in the database of the registry.")
}
