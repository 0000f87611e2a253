//! The SQL functions. Each carries its SQL beside it, so that what a user sees
//! (names of arguments, volatility, COMMENT) is not left to defaults.
//!
//! | module | functions |
//! |---|---|
//! | [`generate`] | nextval, nextval_batch, currval |
//! | [`decode`] | decode, timestamp, worker_id, sequence, encode, min_id, max_id |
//! | [`explain`] | explain |
//! | [`create`] | create_generator, snowflake_presets |
//! | [`admin`] | advance, accept_clock |
//! | [`column`] | set_default |
//! | [`monitor`] | snowflake_generators, pg_stat_snowflake, stat_reset |

mod admin;
mod column;
mod create;
mod decode;
mod explain;
mod generate;
mod monitor;

#[cfg(feature = "pg_test")]
pub use generate::snowflake_nextval as nextval_for_tests;

pgrx::extension_sql!(
    r#"
-- The default generator. Its value is the mark: no ID of an instant at or after
-- it, in Unix milliseconds, has been issued. With these bounds plain nextval()
-- cannot move it.
CREATE SEQUENCE snowflake_default AS bigint
    INCREMENT BY 9223372036854775807 MINVALUE 1 MAXVALUE 9223372036854775807
    START WITH 9223372036854775807 NO CYCLE;
-- "No mark yet", and nextval() fails from the start.
SELECT pg_catalog.setval('snowflake_default', 9223372036854775807, true);
COMMENT ON SEQUENCE snowflake_default IS
    'default snowflake generator; its value is the mark: no ID from this instant on (Unix milliseconds) has been issued';
GRANT USAGE, SELECT ON SEQUENCE snowflake_default TO PUBLIC;
-- Whoever restores a dump of this database sets the mark. To the role that is
-- whoever owns the database, since it cannot be dropped: a dump would go on
-- naming a dropped role, and not restore.
GRANT UPDATE ON SEQUENCE snowflake_default TO pg_database_owner;
SELECT pg_catalog.pg_extension_config_dump('snowflake_default', '');
"#,
    name = "default_generator",
    bootstrap
);
