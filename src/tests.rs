//! Tests inside a server: SQLSTATEs, privileges, settings, the calls that SQL
//! cannot make.

mod libpq;

#[pgrx::pg_schema]
mod tests {
    use pgrx::pg_sys;
    use pgrx::prelude::*;

    use crate::session;

    /// The SQLSTATE with which a statement ends, "00000" without an error.
    fn sqlstate(sql: &str) -> String {
        let block = format!(
            "DO $do$ BEGIN EXECUTE {}; PERFORM set_config('t.state', '00000', true);
             EXCEPTION WHEN OTHERS THEN PERFORM set_config('t.state', SQLSTATE, true); END $do$",
            spi::quote_literal(sql)
        );
        Spi::run(&block).unwrap();
        Spi::get_one::<String>("SELECT current_setting('t.state')")
            .unwrap()
            .unwrap()
    }

    /// Each line has a role, the SQLSTATE with which a statement ends for it, and the statement.
    /// Role `none` is the superuser who runs the tests.
    fn each_ends(lines: &str) {
        for line in lines.lines().map(str::trim) {
            let (role, rest) = line.split_once(' ').unwrap();
            let (state, sql) = rest.split_once(' ').unwrap();
            let ended = sqlstate(&format!("SET LOCAL ROLE {role}; {sql}"));
            assert_eq!(ended, state, "{line}");
        }
    }

    fn one(sql: &str) -> i64 {
        Spi::get_one::<i64>(sql).unwrap().unwrap()
    }

    #[pg_test]
    fn sqlstates() {
        each_ends(
            "none 00000 SELECT snowflake_nextval()
             none 22003 SELECT snowflake_nextval_batch(0)
             none 22003 SELECT snowflake_nextval_batch(100001)
             none 42809 SELECT snowflake_nextval('pg_class')
             none 42P01 SELECT snowflake_nextval(0)
             none 42809 CREATE SEQUENCE s; SELECT snowflake_nextval('s')
             none 42809 CREATE TEMP SEQUENCE ts; SELECT snowflake_nextval('ts')
             none 22003 SELECT snowflake_timestamp(-1)
             none 22003 SELECT snowflake_decode(-1)
             none 22003 SELECT snowflake_encode(now(), 1024, 0)
             none 22008 SELECT snowflake_encode('-infinity', 0, 0)
             none 22008 SELECT snowflake_min_id('1970-01-01Z')
             none 22003 SELECT snowflake_advance('snowflake_default', -1)
             none 22008 SELECT snowflake_advance('snowflake_default', 9223372036854775807)
             none 22008 SELECT snowflake_advance('snowflake_default', '1999-01-01Z'::timestamptz)
             none 22008 SELECT snowflake_advance('snowflake_default', now() + interval '2 days')
             none 22008 SELECT snowflake_advance('snowflake_default', 'infinity'::timestamptz)
             none 42809 SELECT snowflake_advance('pg_class', now())
             none 00000 SELECT snowflake_observe(0)
             none 22003 SELECT snowflake_observe(-1)
             none 22008 SELECT snowflake_observe(9223372036854775807)
             none 42809 SELECT snowflake_observe(0, 'pg_class')
             none 0A000 SELECT snowflake_create_generator('g', 'preset=multi_clock epoch=1735689600000 on_rollback=next_clock'); SELECT snowflake_observe(0, 'g')
             none 22023 SELECT snowflake_create_generator('g', 'layout=''time:41 t:10=caller worker:4 sequence:8'' epoch=2025-01-01Z'); SELECT snowflake_nextval_batch(1, 'g')
             none 22023 SELECT snowflake_create_generator('g', 'preset=no')
             none 22023 SELECT snowflake_create_generator('g', 'preset=uniqueid')
             none 2200H SELECT snowflake_create_generator('g', 'preset=baidu')
             none 55000 SELECT snowflake_create_generator('pg_temp.g', 'preset=discord')
             none 42809 CREATE TABLE tt (); SECURITY LABEL FOR snowflake_id ON TABLE tt IS 'preset=discord'
             none 0A000 SECURITY LABEL FOR snowflake_id ON SEQUENCE snowflake_default IS 'preset=discord'
             none 0A000 SELECT snowflake_create_generator('g', 'preset=worker_queue epoch=1735689600000'); SELECT snowflake_nextval('g')
             none 53400 SELECT snowflake_create_generator('g', 'preset=javascript max_borrow=0 on_exhausted=error tick=''10 s'''); SELECT count(snowflake_nextval('g')) FROM generate_series(1, 1100)
             none 22023 SELECT snowflake_decode_as(1, 'preset=no')
             none 22003 SELECT snowflake_decode_as(-1, 'preset=twitter')
             none 22003 SELECT snowflake_decode_as(0, 'preset=uniqueid_time')
             none 42809 SELECT snowflake_decode(1, 'pg_class')
             none 22003 SELECT snowflake_explain(-1)
             none 0A000 SELECT snowflake_min_id_as(now(), 'preset=uniqueid')
             none 0A000 SELECT snowflake_min_id_as('2090-01-01Z', 'preset=discord')
             none 22023 SELECT snowflake_encode_as(now(), '[]', 'preset=discord')
             none 22003 SELECT snowflake_encode_as(now(), '{\"worker\": 32}', 'preset=discord')
             none 22023 SELECT snowflake_encode_as(now(), '{\"worker\": 1}', 'preset=discord')
             none 22003 SELECT snowflake_encode_as(now(), '{\"shard\": 6, \"sequence\": 0}', 'preset=instagram shard=5')
             none 22023 SELECT snowflake_encode_as(now(), '{\"worker\": 1e400, \"sequence\": 1}', 'preset=discord')
             none 22023 SELECT snowflake_encode_as(now(), (repeat('[', 200) || repeat(']', 200))::jsonb, 'preset=discord')
             none 2200H SELECT nextval('snowflake_default')
             none 55P02 SET snowflake_id.worker_id = 1
             none 55P02 SET snowflake_id.debug_slots = 1
             none 55P02 SET snowflake_id.reserve_ahead = '1 s'
             none 42602 SET snowflake_id.nonsense = 1",
        );
    }

    #[pg_test]
    fn set_default_sqlstates() {
        Spi::run(
            "CREATE TABLE t (id bigint PRIMARY KEY, i integer, g bigint GENERATED ALWAYS AS (1) STORED);
             CREATE TABLE two (a bigint, b bigint, PRIMARY KEY (a, b)); CREATE TABLE none (id bigint);
             CREATE TABLE p (id bigint PRIMARY KEY) PARTITION BY HASH (id);
             CREATE TABLE p0 PARTITION OF p FOR VALUES WITH (MODULUS 1, REMAINDER 0);
             CREATE TABLE above (id bigint PRIMARY KEY); INSERT INTO above VALUES (9223372036854775807);
             CREATE DOMAIN small AS bigint CHECK (VALUE < 9); CREATE TABLE d (id small);
             CREATE VIEW v AS SELECT 1 AS id; CREATE ROLE stranger",
        )
        .unwrap();
        for (arguments, state) in [
            ("'t'", "00000"),
            ("'t', 'id', 'snowflake_default', true", "00000"),
            ("'t', NULL, NULL, NULL", "00000"),
            ("NULL", "22004"),
            ("0", "42P01"),
            ("'two'", "42702"),
            ("'none'", "42704"),
            ("'t', 'nonsense'", "42703"),
            ("'t', 'xmin'", "0A000"),
            ("'t', 'i'", "42804"),
            ("'t', 'g'", "428C9"),
            ("'p0'", "42809"),
            ("'p'", "00000"),
            ("'v', 'id'", "42809"),
            ("'pg_type', 'oid'", "42501"),
            ("'above'", "55000"),
            ("'d', 'id'", "23514"),
            ("'t', 'id', 't'", "42809"),
            ("'t', 'id', 0", "42P01"),
        ] {
            let sql = format!("SELECT snowflake_set_default({arguments})");
            assert_eq!(sqlstate(&sql), state, "{sql}");
        }
        let as_stranger = "SET LOCAL ROLE stranger; SELECT snowflake_set_default('t')";
        assert_eq!(sqlstate(as_stranger), "42501");
        let read_only = "SET LOCAL transaction_read_only = on; SELECT snowflake_set_default('t')";
        assert_eq!(sqlstate(read_only), "25006");
    }

    #[cfg(feature = "pg18")]
    #[pg_test]
    fn set_default_refuses_virtual_columns() {
        Spi::run(
            "CREATE TABLE t (id bigint PRIMARY KEY, v bigint GENERATED ALWAYS AS (id) VIRTUAL)",
        )
        .unwrap();
        assert_eq!(sqlstate("SELECT snowflake_set_default('t', 'v')"), "428C9");
    }

    #[pg_test]
    fn currval_is_of_this_session() {
        assert_eq!(sqlstate("SELECT snowflake_currval()"), "55000");
        let id = one("SELECT snowflake_nextval()");
        assert_eq!(one("SELECT snowflake_currval()"), id);
        assert_eq!(one("SELECT snowflake_currval('snowflake_default')"), id);
        let last = one("SELECT max(b) FROM snowflake_nextval_batch(100) AS b");
        assert_eq!(one("SELECT snowflake_currval()"), last);
    }

    /// A C function may call ours without any FmgrInfo.
    #[pg_test]
    fn works_without_flinfo() {
        unsafe fn nextval(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
            // SAFETY: as the caller guarantees.
            unsafe { crate::sql::nextval_for_tests(fcinfo) }
        }
        // SAFETY: a V1 function without arguments.
        let call = || unsafe { pgrx::direct_function_call::<i64>(nextval, &[]).unwrap() };
        let first = call();
        assert!(call() > first);
    }

    #[pg_test]
    fn the_worker_id_is_the_setting() {
        assert_eq!(
            one("SELECT (snowflake_decode(snowflake_nextval())).worker_id"),
            5
        );
    }

    /// SELECT is enough to read back, as for currval(), and UPDATE to issue, as for nextval().
    #[pg_test]
    fn a_session_that_loses_the_privilege_stops() {
        each_ends(
            "none 00000 CREATE ROLE r; PREPARE p AS SELECT snowflake_nextval()
             none 00000 CREATE FUNCTION lent() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT snowflake_nextval()'
             r 00000 SELECT snowflake_nextval()
             none 00000 REVOKE USAGE ON SEQUENCE snowflake_default FROM PUBLIC
             r 42501 SELECT snowflake_nextval()
             none 00000 SELECT snowflake_nextval()
             none 42501 EXECUTE p; SET LOCAL ROLE r; EXECUTE p
             none 25006 EXECUTE p; SET LOCAL transaction_read_only = on; EXECUTE p
             none 25006 SET LOCAL transaction_read_only = on; SELECT snowflake_nextval_block(2)
             none 00000 EXECUTE p
             r 42501 SELECT snowflake_accept_clock()
             r 00000 SELECT lent()
             r 00000 SELECT snowflake_currval()
             none 00000 REVOKE SELECT ON SEQUENCE snowflake_default FROM PUBLIC
             r 42501 SELECT snowflake_currval()
             none 00000 GRANT UPDATE ON SEQUENCE snowflake_default TO r
             r 00000 SELECT snowflake_nextval()",
        );
    }

    #[pg_test]
    fn roles_take_ids_and_change_nothing() {
        // The first calls come before this session has any ID. A division by zero means that a
        // view hides how far the IDs are.
        each_ends(
            "none 00000 CREATE ROLE guest; CREATE ROLE taker; CREATE ROLE watcher IN ROLE pg_monitor
             none 00000 CREATE VIEW lending AS SELECT snowflake_nextval() AS id; GRANT SELECT ON lending TO guest
             none 00000 REVOKE ALL ON SEQUENCE snowflake_default FROM PUBLIC; GRANT USAGE ON SEQUENCE snowflake_default TO taker
             guest 42501 SELECT snowflake_currval()
             guest 42501 SELECT snowflake_currval('snowflake_default')
             guest 42501 SELECT snowflake_nextval()
             guest 42501 SELECT snowflake_nextval('snowflake_default')
             guest 42501 SELECT snowflake_nextval_batch(2)
             guest 42501 SELECT snowflake_nextval_block(2)
             guest 42501 SELECT id FROM lending
             guest 00000 SELECT snowflake_decode(1), snowflake_min_id(now())
             taker 00000 SELECT snowflake_nextval(), snowflake_currval()
             taker 42501 SELECT last_value FROM snowflake_default
             taker 42501 SELECT setval('snowflake_default', 1)
             taker 42501 SELECT snowflake_advance('snowflake_default', now())
             guest 42501 SELECT snowflake_currval()
             guest 22012 SELECT 1 / num_nonnulls(last_id_at, reserved_until, ahead_by, gap_applied_at) FROM snowflake_generators
             watcher 00000 SELECT 1 / num_nonnulls(last_id_at) FROM snowflake_generators
             watcher 00000 TABLE pg_stat_snowflake
             watcher 42501 SELECT snowflake_nextval()
             none 00000 GRANT EXECUTE ON FUNCTION snowflake_accept_clock(), snowflake_stat_reset() TO watcher
             watcher 00000 SELECT snowflake_accept_clock(), snowflake_stat_reset()",
        );
        // What PUBLIC has. PostgreSQL answers the GRANT of a guest with a warning.
        each_ends(
            "none 00000 GRANT USAGE, SELECT ON SEQUENCE snowflake_default TO PUBLIC
             guest 00000 SELECT snowflake_nextval(), snowflake_currval(), snowflake_nextval_batch(2)
             guest 00000 SELECT 1 / num_nonnulls(last_id_at) FROM snowflake_generators
             guest 00000 TABLE pg_stat_snowflake
             guest 00000 GRANT UPDATE ON SEQUENCE snowflake_default TO guest
             guest 42501 SELECT setval('snowflake_default', 1)
             guest 42501 SELECT setval('snowflake_default', 1, false)
             guest 42501 SELECT snowflake_advance('snowflake_default', now())
             guest 42501 SELECT snowflake_advance('snowflake_default', snowflake_nextval())
             guest 42501 SELECT snowflake_accept_clock()
             guest 42501 SELECT snowflake_stat_reset()
             guest 42501 SELECT snowflake_stat_reset('snowflake_default')
             guest 42501 ALTER SEQUENCE snowflake_default RESTART
             guest 42501 ALTER SEQUENCE snowflake_default CYCLE
             guest 42501 DROP SEQUENCE snowflake_default
             guest 42501 COMMENT ON SEQUENCE snowflake_default IS 'mine'
             guest 42501 CREATE OR REPLACE VIEW snowflake_generators AS SELECT 1
             guest 42501 ALTER FUNCTION snowflake_nextval() SECURITY DEFINER
             guest 42501 DROP EXTENSION snowflake_id",
        );
    }

    #[pg_test]
    fn the_mark_is_above_all_ids() {
        for _ in 0..200 {
            assert!(
                Spi::get_one::<bool>(
                    "SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval())) * 1000
                        < (SELECT last_value FROM snowflake_default)"
                )
                .unwrap()
                .unwrap()
            );
        }
    }

    #[pg_test]
    fn the_default_generator_is_found_in_any_search_path() {
        let relation = session::default_relation().unwrap_or(pg_sys::InvalidOid);
        Spi::run("CREATE SCHEMA evil; CREATE SEQUENCE evil.snowflake_default").unwrap();
        Spi::run("SET LOCAL search_path = evil, public").unwrap();
        assert_eq!(
            session::default_relation().unwrap_or(pg_sys::InvalidOid),
            relation
        );
        assert_eq!(
            sqlstate("SELECT snowflake_nextval('snowflake_default')"),
            "42809"
        );
        assert_eq!(sqlstate("SELECT snowflake_nextval()"), "00000");
    }

    #[pg_test]
    fn every_object_for_users_has_a_comment() {
        assert_eq!(
            one("SELECT count(*) FROM pg_depend AS d
                 JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'snowflake_id'
                 WHERE d.deptype = 'e' AND d.classid IN ('pg_class'::regclass, 'pg_proc'::regclass)
                   AND obj_description(d.objid, d.classid::regclass::name) IS NULL
                   -- Internal objects, and the functions of this test build.
                   AND (pg_identify_object(d.classid, d.objid, 0)).schema
                       NOT IN ('_snowflake', 'tests')"),
            0
        );
    }
}
