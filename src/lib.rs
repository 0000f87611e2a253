//! snowflake_id: distributed 64-bit primary keys for PostgreSQL.
//!
//! This crate calls PostgreSQL: settings, shared memory, the durable mark, SQL functions.
//! What an ID is, and which one comes next, is decided in `snowflake_core` (`crates/core`),
//! which calls nothing of PostgreSQL. `snowflake_registry_client` (`crates/registry-client`)
//! talks to registries and to other servers, and does not call this one.

#![cfg(feature = "postgres")]
#![cfg_attr(
    feature = "pg_test",
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)
)]

mod backend_wait; // waits of a session for another server
mod catalog; // look-ups of sequences in the catalogs
mod commands; // what is done before and after commands of PostgreSQL
mod compat; // differences between PostgreSQL versions
mod encoding; // converts text between UTF-8 and the database's encoding
mod error; // the errors that users read
mod etcd_admin; // what administrators do with a registry in etcd
mod generator_horizon; // the horizon of a generator
mod guard; // the way into the tables of schema _snowflake
mod guc; // settings
mod issue; // PostgreSQL as a host of the protocol; the path of each ID
mod keeper; // leases the worker ID from a registry
mod label; // reads labels of sequences
mod lease_state; // the place of a lease in shared memory
mod lease_wait; // what sessions ask of it: is there a worker ID, and why not
mod limit; // how long the arguments of SQL functions may be
mod mark; // reads and writes the durable mark; holds the reservation lock
mod os_clock; // reads the two clocks of the operating system
mod provider; // checks a label before PostgreSQL stores it
mod registry; // PostgreSQL as the host of a registry of worker IDs
mod report; // passes errors and messages to PostgreSQL
mod server_key; // what tells this server, and this start of it, from others
mod session; // the generators that this session knows, and when that ends
mod session_generator; // what this session knows about a generator, and until when
mod shmem; // shared memory: the cursors, bounds and clocks of all generators
mod spi; // runs the extension's own SQL statements
mod sql; // the SQL functions
mod start_file; // remembers the last start, to notice copies
#[cfg(feature = "pg19")]
mod subscription; // leaves generators out when sequences are replicated
mod time; // conversions between timestamptz and Unix milliseconds
mod tx_holds; // what this session holds back, and what prepared transactions do

#[cfg(feature = "pg_test")]
pub mod tests;

pgrx::pg_module_magic!(name, version);

// The script of CREATE EXTENSION is made of the parts in sql/, in this order: by cargo-pgrx, and
// where that is not there, by tools/env.sh, which reads these lines.
pgrx::extension_sql_file!("../sql/snowflake_id.sql");
pgrx::extension_sql_file!("../sql/set_default.sql", requires = ["snowflake_id"]);
pgrx::extension_sql_file!("../sql/set_defaults.sql", requires = ["set_default"]);
pgrx::extension_sql_file!("../sql/registry.sql", requires = ["set_defaults"]);
pgrx::extension_sql_file!("../sql/citus.sql", requires = ["registry"]);
pgrx::extension_sql_file!("../sql/check.sql", requires = ["citus"]);
pgrx::extension_sql_file!("../sql/partition.sql", requires = ["check"]);
pgrx::extension_sql_file!("../sql/horizon.sql", requires = ["partition"]);
pgrx::extension_sql_file!("../sql/status.sql", requires = ["horizon"]);
pgrx::extension_sql_file!("../sql/check_registry.sql", requires = ["status"]);
pgrx::extension_sql_file!("../sql/restrict.sql", requires = ["check_registry"]);
pgrx::extension_sql_file!("../sql/grants.sql", requires = ["restrict"]);

/// What pgrx-tests asks of the crate that it tests.
#[cfg(test)]
pub mod pg_test {
    pub fn setup(_options: Vec<&str>) {}

    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec![
            "shared_preload_libraries = 'snowflake_id'",
            "snowflake_id.worker_id = 5",
        ]
    }
}

/// Called when the library is loaded: by the postmaster, if it is preloaded, else by the
/// first session that decodes an ID. Without `shared_preload_libraries` there are neither
/// shared memory nor settings: decoding works, and generating raises an error that says
/// why.
#[pgrx::pg_guard]
#[allow(non_snake_case)]
pub extern "C-unwind" fn _PG_init() {
    provider::register();
    commands::watch_objects();
    // SAFETY: reads a flag that only the postmaster changes, before any backend starts.
    if unsafe { pgrx::pg_sys::process_shared_preload_libraries_in_progress } {
        guc::define();
        server_key::look_how_it_stopped();
        shmem::request();
        commands::register();
        keeper::register();
    }
}
