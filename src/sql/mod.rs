//! The SQL functions. What a user sees of them (names of arguments, volatility,
//! COMMENT) stands in `sql/`, which names these functions by their C symbols.

mod admin; // advance, accept_clock
mod call; // what functions without `#[pg_extern]` need
mod check; // internal ones, for check
mod cluster; // check_cluster
mod cluster_horizon; // cluster_horizon, drop_server
mod column; // internal ones, for set_default
mod convert; // internal ones, for convert
mod create; // create_generator, snowflake_presets
mod decode; // decode, timestamp, worker_id, sequence, encode, min_id, max_id
mod explain; // explain
mod generate; // nextval, nextval_batch, both with fields (`_with`), nextval_block, observe, nextval_after, currval
mod horizon; // horizon, ordered, snowflake_horizon_holders
pub(super) mod limit; // how long arguments may be
mod monitor; // snowflake_generators, pg_stat_snowflake, stat_reset
mod registry; // lease, revoke_worker, end_quiet_time, declare_registry, and one for create_pool and drop_pool
mod text; // to_text, from_text, mask, unmask, mask_text, unmask_text, mask_version

#[cfg(feature = "pg_test")]
pub(super) use generate::snowflake_nextval as nextval_for_tests;

// `make install` joins the files of sql/. cargo pgrx, which the tests inside a server use,
// installs the SQL that the library holds; so the library holds these as well.
pgrx::extension_sql_file!("../../sql/snowflake_id.sql", name = "base", bootstrap);
pgrx::extension_sql_file!(
    "../../sql/set_default.sql",
    name = "set_default",
    requires = ["base"]
);
pgrx::extension_sql_file!(
    "../../sql/registry.sql",
    name = "registry",
    requires = ["set_default"]
);
pgrx::extension_sql_file!(
    "../../sql/citus.sql",
    name = "citus",
    requires = ["registry"]
);
pgrx::extension_sql_file!("../../sql/check.sql", name = "check", requires = ["citus"]);
pgrx::extension_sql_file!(
    "../../sql/horizon.sql",
    name = "horizon",
    requires = ["check"]
);
pgrx::extension_sql_file!(
    "../../sql/cluster_horizon.sql",
    name = "cluster_horizon",
    requires = ["horizon"]
);
pgrx::extension_sql_file!(
    "../../sql/convert_columns.sql",
    name = "convert_columns",
    requires = ["cluster_horizon"]
);
pgrx::extension_sql_file!(
    "../../sql/convert_objects.sql",
    name = "convert_objects",
    requires = ["convert_columns"]
);
pgrx::extension_sql_file!(
    "../../sql/convert_backfill.sql",
    name = "convert_backfill",
    requires = ["convert_objects"]
);
pgrx::extension_sql_file!(
    "../../sql/convert_plan.sql",
    name = "convert_plan",
    requires = ["convert_backfill"]
);
pgrx::extension_sql_file!(
    "../../sql/convert_online.sql",
    name = "convert_online",
    requires = ["convert_plan"]
);
pgrx::extension_sql_file!(
    "../../sql/convert_swap.sql",
    name = "convert_swap",
    requires = ["convert_online"]
);
pgrx::extension_sql_file!(
    "../../sql/convert.sql",
    name = "convert",
    requires = ["convert_swap"]
);
pgrx::extension_sql_file!(
    "../../sql/grants.sql",
    name = "grants",
    requires = ["convert"]
);
