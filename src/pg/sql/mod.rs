//! The SQL functions. What a user sees of them (names of arguments, volatility,
//! COMMENT) stands in `sql/`, which names these functions by their C symbols.
//!
//! | module | functions |
//! |---|---|
//! | [`generate`] | nextval, nextval_batch, both with fields (`_with`), currval |
//! | [`decode`] | decode, timestamp, worker_id, sequence, encode, min_id, max_id |
//! | [`explain`] | explain |
//! | [`create`] | create_generator, snowflake_presets |
//! | [`cluster`] | check_cluster |
//! | [`admin`] | advance, accept_clock |
//! | [`column`] | internal ones, for set_default |
//! | [`registry`] | lease, revoke_worker, end_quiet_time, declare_registry, and one for create_pool and drop_pool |
//! | [`monitor`] | snowflake_generators, pg_stat_snowflake, stat_reset |
//!
//! [`call`] has what functions without `#[pg_extern]` need.

mod admin;
mod call;
mod cluster;
mod column;
mod create;
mod decode;
mod explain;
mod generate;
mod monitor;
mod registry;

#[cfg(feature = "pg_test")]
pub(super) use generate::snowflake_nextval as nextval_for_tests;

// `make install` joins these files. cargo pgrx, which the tests inside a server use,
// installs the SQL that the library holds; so the library holds the files as well.
pgrx::extension_sql_file!("../../../sql/snowflake_id.sql", name = "base", bootstrap);
pgrx::extension_sql_file!(
    "../../../sql/set_default.sql",
    name = "set_default",
    requires = ["base"]
);
pgrx::extension_sql_file!(
    "../../../sql/registry.sql",
    name = "registry",
    requires = ["set_default"]
);
