//! snowflake_id: distributed 64-bit primary keys for PostgreSQL.
//!
//! The crate has two halves. [`snowflake`] is the core in pure Rust: layouts, the
//! generator's word and clock, reservations. `pg` calls PostgreSQL: settings, shared
//! memory, the durable mark, SQL functions. `pg` uses `snowflake`, never the reverse.

#![cfg_attr(
    any(test, feature = "pg_test"),
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod snowflake;

#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18"))]
mod pg;

// The framework looks for it at the root of the crate.
#[cfg(all(test, feature = "pg_test"))]
pub use pg::tests::pg_test;
