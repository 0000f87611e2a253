//! What the log says of watermarks.

use super::keeper::told;
use super::{Error, joined};

/// A name in `snowflake_id.watermark_databases` that no database has.
pub fn unknown_database(name: &str) -> Error {
    told(format!(
        "no watermark is written in database \"{name}\" of snowflake_id.watermark_databases, which does not exist"
    ))
    .hint("Write the name as in pg_database: no quotes, and its own upper and lower case. Remove the name of a database that was dropped.")
}

/// There is no room for another background worker.
pub fn no_process(database: &str) -> Error {
    told(format!(
        "no watermark is written in database \"{database}\": its process could not be started"
    ))
    .hint("Raise \"max_worker_processes\" by one for each database in snowflake_id.watermark_databases, and restart the server.")
}

pub fn not_logical(database: &str) -> Error {
    told(format!(
        "no watermark is written in database \"{database}\": no change stream can be read from WAL"
    ))
    .hint("Set \"wal_level\" to logical, and restart the server.")
}

pub fn no_extension(database: &str) -> Error {
    told(format!(
        "no watermark is written in database \"{database}\", which does not have extension snowflake_id"
    ))
    .hint("Create the extension there, or remove the database from snowflake_id.watermark_databases and reload.")
}

/// A generator cannot have a watermark now.
pub fn failed(generator: &str, database: &str, why: Error) -> Error {
    let error = told(format!(
        "no watermark of generator {generator} is written in database \"{database}\": {}",
        why.message
    ));
    error.detail(joined(&why.detail, &why.hint))
}
