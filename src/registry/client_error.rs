//! Why the registry's PostgreSQL has not answered: sentences.

use super::error::update;
use snowflake_registry_client::libpq::LibpqError;
use snowflake_registry_client::postgres::PostgresError;
use snowflake_registry_client::wire::{self, MessageError};

pub fn of_postgres(failure: &PostgresError) -> String {
    match failure {
        PostgresError::Libpq(error) => of_libpq(error),
        PostgresError::NoExtension => {
            "The registry's database does not have extension snowflake_id.".to_string()
        }
        PostgresError::ForeignFunction => {
            "Function _snowflake.lease() in the registry's database is not that of extension \
             snowflake_id."
                .to_string()
        }
        PostgresError::NotDurable => {
            "The registry's server has warned that its reply may not be durable.".to_string()
        }
        PostgresError::Unreadable(MessageError::Format(format)) => format!(
            "The registry answers in format {format}, and this server understands format {}. {}",
            wire::FORMAT,
            update(*format, "the registry's server", "this server")
        ),
        PostgresError::Unreadable(MessageError::Content(why)) => {
            format!("The reply of the registry could not be read: {why}.")
        }
    }
}

fn of_libpq(error: &LibpqError) -> String {
    match error {
        LibpqError::Conninfo => {
            "\"snowflake_id.registry\" is neither a libpq conninfo nor a URL.".to_string()
        }
        LibpqError::Connect(message) => format!("Could not connect: {}.", bare(message)),
        LibpqError::TimedOut(_) => format!("The registry gave {error}."),
        LibpqError::Statement(refusal) => {
            let what = format!(
                "The registry's server refused the request with SQLSTATE {}: {}. {}",
                refusal.sqlstate,
                bare(&refusal.message),
                refusal.hint
            );
            what.trim_end().to_string()
        }
        LibpqError::Lost(message) => format!("The connection was lost: {}.", bare(message)),
        LibpqError::Ended => "The request was given up.".to_string(),
    }
}

/// A message without the full stop at its end.
pub fn bare(message: &str) -> &str {
    message.trim_end_matches(['.', '?', ' ', '\n'])
}
