//! Errors of the registry of worker IDs.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_identifier;

use crate::postgres::time::display;
pub use crate::session::error::*;
use snowflake_core::label::excerpt::{cut, excerpt};
use snowflake_core::lease::etcd::DEFAULT_POOL;
use snowflake_core::lease::{Holder, HolderError, RegistryMillis, Row};
use snowflake_registry_client::wire;

pub fn no_pool(name: &str) -> Error {
    let maker = match name {
        DEFAULT_POOL => "snowflake_create_registry() makes it, in the database of the registry",
        _ => "snowflake_create_pool() makes a pool",
    };
    ERRCODE_UNDEFINED_OBJECT
        .error(format!("pool \"{}\" does not exist", excerpt(name)))
        .hint(format!("{maker}; view snowflake_pools shows the pools."))
}

/// The setting names a registry in PostgreSQL.
pub fn registry_elsewhere() -> Error {
    not_ready("this server uses the registry of another database")
        .detail(
            "\"snowflake_id.registry\" names one in PostgreSQL, and this database has no pools.",
        )
        .hint("Call the function in the database of the registry.")
}

/// A view would open a connection for this role.
pub fn registry_not_shown() -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error("permission denied to read the registry of this server")
        .detail("It is not in this database, so this server would connect to it.")
        .hint("Members of pg_monitor may read it.")
}

/// A view could not read the registry.
pub fn registry_unreachable(why: &str) -> Error {
    ERRCODE_CONNECTION_EXCEPTION
        .error("could not read the registry of this server")
        .detail(why)
        .hint(
            "In the database that \"snowflake_id.registry\" names, snowflake_create_registry() makes the \
             registry, and lets the role of the setting use it.",
        )
}

pub fn no_such_role(role: &str) -> Error {
    let role = excerpt(role);
    let quoted = quote_identifier(&*role);
    ERRCODE_UNDEFINED_OBJECT
        .error(format!("role \"{role}\" does not exist"))
        .hint(format!(
            "Make it first, for example by CREATE ROLE {quoted} LOGIN PASSWORD '...'."
        ))
}

pub fn no_registry() -> Error {
    not_ready("this database has no registry of worker IDs")
        .hint("snowflake_create_registry() makes one.")
}

pub fn not_in_pool(pool: &str, worker: i32) -> Error {
    invalid(format!("pool \"{pool}\" has no worker ID {worker}"))
        .hint("View snowflake_pools shows the worker IDs of each pool.")
}

pub fn never_leased(pool: &str, worker: i32) -> Error {
    not_ready(format!(
        "worker ID {worker} of pool \"{pool}\" was never leased"
    ))
    .hint("View snowflake_workers shows the worker IDs that were.")
}

pub fn needs_read_committed(function: &str) -> Error {
    ERRCODE_ACTIVE_SQL_TRANSACTION
        .error(format!(
            "{function} needs transaction isolation level READ COMMITTED"
        ))
        .detail("At a higher level it would not see what others have just committed.")
        .hint("Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.")
}

pub fn needs_own_transaction(function: &str) -> Error {
    ERRCODE_ACTIVE_SQL_TRANSACTION
        .error(format!("{function} cannot run inside a transaction block"))
        .detail(
            "It locks the registry until the transaction ends, and no server can renew its lease \
             meanwhile.",
        )
        .hint("Call the function in a statement of its own, without BEGIN.")
}

pub fn no_null() -> Error {
    ERRCODE_NULL_VALUE_NOT_ALLOWED
        .error("no argument of snowflake_create_pool() may be NULL")
        .hint("Leave an argument out to use its default value.")
}

pub fn empty_name() -> Error {
    invalid("the name of a pool or of a namespace is empty").hint("Give a name such as 'main'.")
}

pub fn long_name(limit: usize) -> Error {
    invalid(format!(
        "the name of a pool or of a namespace is longer than {limit} bytes"
    ))
    .hint("Give a shorter name, such as 'main'.")
}

const RANGE: &str = "Give a range such as int8range(0, 1024): its end, 1024, is not part of it.";

pub fn no_worker_ids(pool: &str) -> Error {
    invalid(format!("pool \"{pool}\" would have no worker IDs"))
        .detail("The range of worker IDs is empty.")
        .hint(RANGE)
}

pub fn infinitely_many(pool: &str, ids: &str) -> Error {
    invalid(format!(
        "pool \"{pool}\" would have infinitely many worker IDs"
    ))
    .detail(format!("The range of worker IDs is {ids}."))
    .hint(RANGE)
}

pub fn worker_ids_out_of_range(pool: &str, ids: &str) -> Error {
    out_of_range(format!(
        "worker IDs {ids} of pool \"{pool}\" are out of range"
    ))
    .hint(
        "Worker IDs are numbers from 0 to 2147483647, and at most what the worker field of each \
         generator holds.",
    )
}

pub fn excepts_others(pool: &str, ids: &str, beyond: &str) -> Error {
    invalid(format!(
        "worker IDs {beyond} to leave out are not in pool \"{pool}\""
    ))
    .detail(format!("The pool has worker IDs {ids}."))
    .hint("Leave out only worker IDs of the pool.")
}

pub fn nothing_to_lease(pool: &str) -> Error {
    invalid(format!("pool \"{pool}\" would have no worker ID to lease"))
        .detail("All worker IDs are left out.")
        .hint("Give more worker IDs.")
}

pub fn bad_duration(pool: &str, name: &str, value: &str, at_least: &str) -> Error {
    invalid(format!(
        "{name} of pool \"{pool}\" is out of range: {value}"
    ))
    .hint(format!("Give an interval from {at_least} to 1 day."))
}

pub fn pool_exists(pool: &str) -> Error {
    ERRCODE_DUPLICATE_OBJECT
        .error(format!("pool \"{pool}\" already exists"))
        .hint("View snowflake_pools shows the pools.")
}

/// The registry has stored a time that is past its clock.
pub fn made_ahead(pool: &str, made: RegistryMillis) -> Error {
    let begins = display(made.as_nodes_clock());
    ERRCODE_WARNING
        .error(format!("IDs of pool \"{pool}\" begin after {begins}, ahead of the clock"))
        .detail("The clock of this registry has shown that time before. It is wrong now, or was wrong then.")
        .hint(
            "If the clock is right now, and no server has ever had these worker IDs, drop the pool, and \
             make it with unused => true.",
        )
}

pub fn pools_overlap(pool: &str, other: &str, both: &str, namespace: &str) -> Error {
    invalid(format!(
        "pool \"{pool}\" would overlap with pool \"{other}\""
    ))
    .detail(format!(
        "Both would have worker IDs {both} in namespace \"{namespace}\"."
    ))
    .hint(
        "Give other worker IDs. Servers whose IDs never meet can have a namespace of their \
             own.",
    )
}

pub fn unknown_pool(pool: &str) -> Error {
    ERRCODE_UNDEFINED_OBJECT
        .error(format!("pool \"{pool}\" does not exist"))
        .hint("View snowflake_pools shows the pools.")
}

pub fn pool_in_use(pool: &str, row: &Row) -> Error {
    let by = &row.holder;
    let address = match by.address.as_str() {
        "" => String::new(),
        address => format!(" ({address})"),
    };
    ERRCODE_OBJECT_IN_USE
        .error(format!(
            "cannot drop pool \"{pool}\": a server may have worker ID {}",
            row.worker.get()
        ))
        .detail(format!(
            "It was leased to the server at {}{address}, port {}, data directory \"{}\", until {}.",
            by.host,
            by.port,
            by.data_directory,
            display(row.leased_until.as_nodes_clock())
        ))
        .hint(
            "Stop the servers that lease from the pool. One that is gone already stands in the \
             way until its lease and the hold have passed.",
        )
}

pub fn other_format(format: u64) -> Error {
    not_supported(format!(
        "requests of format {format} are not supported by this registry, which has format {}",
        wire::FORMAT
    ))
    .hint(update(
        format,
        "the server that asks",
        "the registry's server",
    ))
}

/// What to do where two releases do not understand each other: the older one has the lower format.
pub fn update(format: u64, theirs: &str, ours: &str) -> String {
    let older = if format < wire::FORMAT { theirs } else { ours };
    format!("Update the package of snowflake_id on {older}.")
}

pub fn request_not_read(why: &str) -> Error {
    // Most of it is ours, and it may quote the request.
    let why = cut(why, 200);
    invalid(format!("not a request to a registry of worker IDs: {why}"))
        .hint("Servers call _snowflake.lease() by themselves, if \"snowflake_id.registry\" is set.")
}

/// A text of the request is not stored. It is not shown, either.
pub fn request_not_fit(why: HolderError) -> Error {
    let (error, name) = match why {
        HolderError::Control(name) => (
            invalid(format!(
                "\"{name}\" of a request to a registry of worker IDs has control characters"
            )),
            name,
        ),
        HolderError::Long(name, most) => (
            invalid(format!(
                "\"{name}\" of a request to a registry of worker IDs is longer than {most} bytes"
            )),
            name,
        ),
    };
    let what = if name == "data_directory" {
        "Move the data directory of that server to a path without such characters, which is not \
         longer."
    } else {
        "Give that machine a host name without such characters, which is not longer."
    };
    error.hint(format!("Other servers write it into their logs. {what}"))
}

/// A server remembers what this registry has not said. For the log.
pub fn foreign_memory(asker: &Holder) -> Error {
    let (host, port, directory) = (&asker.host, asker.port, &asker.data_directory);
    let address = match asker.address.as_str() {
        "" => String::new(),
        address => format!(" ({address})"),
    };
    ERRCODE_SUCCESSFUL_COMPLETION
        .error("refused a request: it remembers another registry")
        .detail(format!(
            "The server on host \"{host}\"{address}, port {port}, data directory \"{directory}\" has asked \
             another registry before, or one that this one replaces."
        ))
        .hint(
            "If the server has asked another registry, it now leases from this one. Two registries \
             whose servers make IDs that meet must not have the same worker IDs.",
        )
}

pub fn registry_not_read(why: &str) -> Error {
    ERRCODE_DATA_CORRUPTED.error(format!(
        "could not read what the registry of worker IDs has stored: {why}"
    ))
}

pub fn no_random_numbers() -> Error {
    ERRCODE_INTERNAL_ERROR.error("could not generate random numbers")
}
