//! Why `snowflake_check_cluster()` cannot ask a server. No text of a conninfo is quoted:
//! it may have a password.

use pgrx::PgSqlErrorCode::*;

use crate::error::{Code, Error, invalid};
use snowflake_core::label::excerpt::excerpt;

const SERVERS: &str = "A server is a libpq conninfo such as 'host=a dbname=b', a URL such as \
                       'postgresql://a/b', or the name of a foreign server.";

pub fn no_servers() -> Error {
    invalid("there are no servers to compare this one with")
        .detail("servers is null, and Citus is not installed in this database.")
        .hint(format!("Give the servers as an array of text. {SERVERS}"))
}

pub fn null_server() -> Error {
    ERRCODE_NULL_VALUE_NOT_ALLOWED
        .error("a server must not be null")
        .hint(SERVERS)
}

/// The server at this place of the array, from 1.
pub fn not_a_server(place: usize) -> Error {
    invalid(format!(
        "servers[{place}] is neither a libpq conninfo nor a URL"
    ))
    .hint("In a conninfo, a value that is empty or has spaces needs single quotes.")
}

pub fn no_foreign_server(name: &str) -> Error {
    ERRCODE_UNDEFINED_OBJECT
        .error(format!("server \"{}\" does not exist", excerpt(name)))
        .hint(SERVERS)
}

pub fn foreign_server_denied(name: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!("permission denied for foreign server {name}"))
        .hint(format!(
            "A role that uses the server needs: GRANT USAGE ON FOREIGN SERVER {name} TO ..."
        ))
}

pub fn not_superuser() -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error("only superusers may give the address of a server")
        .detail("This server connects to it as its operating system user, with the passwords of that user.")
        .hint("Give the name of a foreign server that a superuser has made, on which you have USAGE.")
}

pub fn foreign_server_of_others(name: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!("foreign server {name} does not belong to a superuser"))
        .detail("This server connects to it as its operating system user, with the passwords of that user.")
        .hint(format!(
            "A superuser allows it: ALTER SERVER {name} OWNER TO ..., with a superuser's name."
        ))
}

pub fn citus_options() -> Error {
    invalid("citus.node_conninfo is no libpq conninfo")
}
