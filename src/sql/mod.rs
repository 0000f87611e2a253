//! The SQL functions. What a user sees of them (names of arguments, volatility,
//! COMMENT) stands in `sql/`, which names these functions by their C symbols.

mod admin; // advance, accept_clock
mod call; // what functions without `#[pg_extern]` need
mod check; // internal ones, for check
mod cluster; // check_cluster
mod cluster_error; // why check_cluster cannot ask a server
mod column; // internal ones, for set_default
mod convert; // internal ones, for extension snowflake_id_convert
mod create; // create_generator, alter_generator, snowflake_presets
mod decode; // decode, timestamp, encode, min_id, max_id
mod error; // texts that are no IDs, and calls that are refused
mod explain; // explain
mod generate; // nextval, nextval_batch, nextval_block, observe, currval
mod held; // what keeps the extension: hold, and procedures that commit
mod horizon_functions; // horizon, check_horizon, snowflake_horizon_holders
mod monitor; // snowflake_generators, pg_stat_snowflake, stat_reset
mod registry_functions; // lease, revoke_worker, end_grace_period, declare_registry, and one for create_pool and drop_pool
mod status; // an internal one, for status
mod text; // to_text, from_text, mask, unmask

#[cfg(feature = "pg_test")]
pub(super) use generate::snowflake_nextval as nextval_for_tests;
