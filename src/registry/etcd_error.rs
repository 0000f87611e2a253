//! Errors of a registry in etcd.

use pgrx::PgSqlErrorCode::*;

use crate::error::{Code, Error, invalid, not_supported};
use crate::registry::error::{
    never_leased, no_pool, not_in_pool, pool_in_use, registry_not_read, update,
};
use snowflake_registry_client::{etcd::host::EtcdError, wire};

const URL_FORM: &str =
    "A registry in etcd is 'etcd://HOST:PORT,HOST:PORT/PREFIX?OPTION=VALUE&...'.";

const WRITERS: &str = "the other servers of this registry";

pub fn not_a_url(why: &str) -> Error {
    invalid("this is not a registry in etcd")
        .detail(why)
        .hint(URL_FORM)
}

pub fn not_superuser() -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error("permission denied to name a registry")
        .detail("This server would connect to it, and read the files that its URL names.")
        .hint("Superusers may name one.")
}

pub fn slash() -> Error {
    invalid("the name of a pool or of a namespace has a slash")
        .detail("Names are parts of etcd's keys.")
        .hint("Give a name such as 'main'.")
}

pub fn unreachable(why: &str) -> Error {
    ERRCODE_CONNECTION_EXCEPTION
        .error("could not ask the registry in etcd")
        .detail(why)
        .hint("The change may have been made, if etcd has received it: look before you repeat it.")
}

/// An error of [`problem`], as one of something that changes nothing.
pub fn of_reading(error: Error) -> Error {
    match error.code {
        ERRCODE_CONNECTION_EXCEPTION => error.hint("Try again when etcd can be reached."),
        _ => error,
    }
}

/// Why something was not done.
pub fn problem(problem: EtcdError, pool: &str, worker: i32) -> Error {
    match problem {
        EtcdError::Unreachable(why) | EtcdError::Late(why) => unreachable(&format!("{why}.")),
        EtcdError::NoRegistry => {
            crate::error::not_ready("there is no registry under this prefix in etcd")
                .hint("snowflake_create_pool() makes one.")
        }
        EtcdError::NoPool | EtcdError::Emptied => no_pool(pool),
        EtcdError::PoolExists => {
            ERRCODE_DUPLICATE_OBJECT.error(format!("pool \"{pool}\" already exists"))
        }
        EtcdError::Overlaps(other) => invalid(format!(
            "pool \"{pool}\" would overlap with pool \"{other}\""
        ))
        .hint(
            "Give other worker IDs. Servers whose IDs never meet can have a namespace of \
                 their own.",
        ),
        EtcdError::InUse(row) => pool_in_use(pool, &row),
        EtcdError::NotInPool => not_in_pool(pool, worker),
        EtcdError::NeverLeased => never_leased(pool, worker),
        EtcdError::Unreadable(why) => registry_not_read(&why),
        EtcdError::Format(format) => not_supported(format!(
            "format {format} of the registry in etcd is not supported by this server, which has \
             format {}",
            wire::FORMAT
        ))
        .hint(update(format, WRITERS, "this server")),
    }
}

/// Why a server has no reply: a sentence.
pub fn sentence(problem: &EtcdError, pool: &str) -> String {
    match problem {
        EtcdError::Unreachable(why) => format!("Could not ask etcd: {why}."),
        EtcdError::NoRegistry => "There is no registry under this prefix in etcd.".to_string(),
        EtcdError::NoPool => format!(
            "Pool \"{pool}\" does not exist in etcd under this prefix; snowflake_create_pool() \
             makes it."
        ),
        EtcdError::Emptied => format!(
            "Nothing is stored in etcd under this prefix, though this server has asked a registry \
             there before. If that one is gone for good, snowflake_create_pool() on this server \
             makes pool \"{pool}\" anew, so that it begins above the leases that are lost."
        ),
        EtcdError::Unreadable(why) => format!("What etcd has stored could not be read: {why}."),
        EtcdError::Format(format) => format!(
            "What etcd has stored is of format {format}, and this server understands format {}. {}",
            wire::FORMAT,
            update(*format, WRITERS, "this server")
        ),
        // Requests of servers meet no others.
        other => format!("The registry has refused the request: {other:?}."),
    }
}
