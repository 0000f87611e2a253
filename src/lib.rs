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

// By floors: a room uses those below it. The `mod.rs` of each says which file has what.
mod error; // 0: what an error is; each room has the texts of its own
mod hooks; // 4: what is done before and after commands of PostgreSQL
mod keeper; // 5: leases the worker ID from a registry
mod postgres; // 1: what wraps PostgreSQL
mod registry; // 4: PostgreSQL as the host of a registry of worker IDs
mod server; // 2: what all sessions share: memory, settings, clocks, the place of a lease
mod session; // 3: what a session knows of generators, and the path of each ID
mod sql; // 6: the SQL functions

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
    hooks::provider::register();
    hooks::commands::watch_objects();
    // SAFETY: reads a flag that only the postmaster changes, before any backend starts.
    if unsafe { pgrx::pg_sys::process_shared_preload_libraries_in_progress } {
        server::guc::define();
        server::server_key::look_how_it_stopped();
        server::shmem::request();
        hooks::commands::register();
        keeper::register();
    }
}
