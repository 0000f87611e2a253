//! What wraps PostgreSQL: nothing here knows what a generator issues, or what a registry leases.

pub mod backend_wait; // waits of a session for another server
pub mod catalog; // look-ups of sequences in the catalogs
pub mod compat; // differences between PostgreSQL versions
pub mod encoding; // converts text between UTF-8 and the database's encoding
pub mod error; // objects and statements that are not as they have to be
pub mod error_report; // passes errors and messages to PostgreSQL
pub mod own_tables; // the way into the tables of schema _snowflake
pub mod size_limit; // how long the arguments of SQL functions may be
pub mod spi; // runs the extension's own SQL statements
pub mod time; // conversions between timestamptz and Unix milliseconds
