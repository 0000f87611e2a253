-- The registry of worker IDs: pools, requests, privileges.
SET timezone = 'UTC';
CREATE FUNCTION error_of_registry(statement text) RETURNS TABLE (code text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;

-- Before the first pool.
SELECT count(*) FROM snowflake_pools;
SELECT snowflake_end_grace_period();
SELECT snowflake_declare_registry();
SELECT snowflake_drop_pool('main');
SELECT snowflake_revoke_worker('main', 1);
\echo :LAST_ERROR_SQLSTATE

-- The first pool can be made in a transaction block, since nobody waits for it.
BEGIN;
SELECT snowflake_create_pool('first', '[0,16)');
SELECT count(*) FROM snowflake_pools;
ROLLBACK;

-- The default pool, and all that a role needs.
CREATE ROLE regress_snowflake_node;
SELECT e.* FROM error_of_registry($$SELECT snowflake_create_registry('regress_snowflake_nobody')$$) AS e;
SELECT e.hint FROM error_of_registry($$SELECT snowflake_create_registry('a "role" SUPERUSER')$$) AS e;
CREATE VIEW default_pool AS SELECT pool, namespace, worker_ids, except_ids, lease, hold, max_ahead, free, era FROM snowflake_pools;
BEGIN;
SELECT snowflake_create_pool();
TABLE default_pool;
ROLLBACK;
BEGIN;
SELECT snowflake_create_registry(role => 'regress_snowflake_node');
TABLE default_pool;
SELECT p.oid::regprocedure, a.privilege_type, a.is_grantable FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
WHERE a.grantee = 'regress_snowflake_node'::regrole ORDER BY 1;
SELECT count(*) FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = 'regress_snowflake_node'::regrole;
ROLLBACK;
DROP VIEW default_pool;
DROP ROLE regress_snowflake_node;

-- Pools.
SELECT snowflake_create_pool('main', '[0,16)', except_ids => '{[3,5), [7,8)}');
SELECT snowflake_create_pool('wide', int8range(16, 4194304), lease => '10 s', hold => '1 min', max_ahead => '0');
SELECT snowflake_create_pool('other', '[0,3]', namespace => 'apart', unused => true);
SELECT pool, namespace, worker_ids, except_ids, lease, hold, max_ahead, made <= now() + interval '1 min' AS made,
    leased, free, never_leased, grace_until, grace_because, begins - made AS begins, era, stopped_since, stopped_by
FROM snowflake_pools ORDER BY pool;

-- Pools that are refused.
\x
SELECT e.* FROM unnest(ARRAY[
    $$'more', '[5000000,5000000)'$$, $$'more', '[5000000,)'$$, $$'more', '(,)'$$,
    $$'more', '[-1,5)', namespace => 'n'$$, $$'more', '[5000000,2147483648]'$$, $$'more', '[5000000,5000010)', except_ids => '{[4999999,5000001)}'$$,
    $$'more', '[5000000,5000010)', except_ids => '{[5000000,5000010)}'$$,
    $$'more', '[5000000,5000010)', lease => '10 ms'$$, $$'more', '[5000000,5000010)', hold => '-1 s'$$,
    $$'more', '[5000000,5000010)', max_ahead => '2 days'$$, $$'more', NULL$$, $$'', '[5000000,5000010)'$$,
    $$repeat('p', 256), '[5000000,5000010)'$$]) AS s (arguments),
    error_of_registry('SELECT snowflake_create_pool(' || s.arguments || ')') AS e;
\x
SELECT snowflake_create_pool('main', '[100,200)');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_create_pool('more', '[10,20)');
\echo :LAST_ERROR_SQLSTATE
-- The calls that make these pools again.
SELECT _snowflake.pool_calls();
-- The last worker ID there is.
SELECT snowflake_create_pool('last', '[2147483647,2147483647]');
SELECT snowflake_drop_pool('last');

-- A request, as a server makes it.
CREATE FUNCTION ask(pool text, server integer, number integer, ask jsonb, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
    SELECT _snowflake.lease(pool, jsonb_build_object('format', 1, 'number', number, 'ask', ask,
        'asker', jsonb_build_object(
            'identity', jsonb_build_object('system', 7000000000000000000 + server, 'boot', repeat('b', 32), 'device', 18446744073709551615, 'inode', server),
            'started', 1000, 'host', 'host' || server, 'address', '10.0.0.' || server, 'port', 5432, 'data_directory', '/srv/' || server),
        'nonce', lpad(server::text, 32, '0'),
        'clock', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, 'memory', NULL) || more)
$$;
-- Times and what differs from run to run are left out.
CREATE FUNCTION gist(reply jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('number', reply -> 'number', 'answer',
        CASE WHEN jsonb_typeof(reply -> 'answer') = 'string' THEN reply -> 'answer' ELSE reply -> 'answer' #- '{granted,floor}' #- '{granted,bound}' #- '{granted,until}' #- '{renewed,bound}' #- '{renewed,until}'
            #- '{granted,reached}' #- '{refused,held,since}' #- '{refused,held,retry}' #- '{refused,fenced,since}' END) $$;

SELECT jsonb_build_object('clock', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS clock \gset
SELECT gist(ask('main', 1, 1, '{"acquire": {}}', :'clock'));
-- The same again: the reply was lost.
SELECT gist(ask('main', 1, 1, '{"acquire": {"fixed": null, "last": null}}', :'clock'));
SELECT gist(ask('main', 2, 1, '{"acquire": {"fixed": 2}}'));
SELECT gist(ask('main', 3, 1, '{"acquire": {"fixed": 2}}'));
-- Renewals, and claims that are refused.
SELECT gist(ask('main', 2, 2, '{"renew": {"worker": 2, "counter": 1, "bound": 0, "furthest": 0}}'));
SELECT gist(ask('main', 1, 3, '{"renew": {"worker": 0, "counter": 1, "bound": 0, "furthest": 0}}'));
SELECT gist(ask('main', 7, 1, '{"acquire": {"fixed": 0}}'));
SELECT gist(ask('main', 3, 2, '{"acquire": {"fixed": 7}}'));
SELECT gist(ask('main', 3, 3, '{"acquire": {"fixed": 15}}'));
SELECT gist(ask('main', 4, 1, '{"acquire": {}}'));
SELECT gist(ask('main', 5, 1, '{"acquire": {}}'));
SELECT gist(ask('wide', 1, 3, '{"acquire": {}}'));
SELECT gist(ask('other', 1, 4, '{"acquire": {}}'));
SELECT ask('main', 1, 5, '{"renew": {"worker": 0, "counter": 1, "bound": 0, "furthest": 0}}') @> '{"format": 1, "answer": {"renewed": {}}}' AS renewed;
-- An earlier request of the same server arrives late.
SELECT gist(ask('main', 1, 4, '{"renew": {"worker": 0, "counter": 1, "bound": 0, "furthest": 0}}'));
SELECT gist(ask('main', 4, 2, '{"release": {"worker": 1, "counter": 1, "bound": 0, "end": 0}}'));
SELECT gist(ask('main', 4, 3, '{"renew": {"worker": 1, "counter": 1, "bound": 0, "furthest": 0}}'));
SELECT gist(ask('main', 6, 1, '{"acquire": {"fixed": 1}}'));
SELECT gist(ask('main', 4, 4, '{"renew": {"worker": 1, "counter": 1, "bound": 0, "furthest": 0}}'));
SELECT snowflake_revoke_worker('main', 0) BETWEEN now() + interval '55 s' AND now() + interval '65 s' AS free_in_a_minute;
SELECT gist(ask('main', 1, 6, '{"renew": {"worker": 0, "counter": 1, "bound": 0, "furthest": 0}}'));
-- A clock that is two days ahead.
SELECT jsonb_path_query_array(ask('main', 8, 1, '{"acquire": {}}',
    jsonb_build_object('clock', extract(epoch FROM now() + interval '2 days')::bigint * 1000)), '$.answer.refused.keyvalue().key');

SELECT pool, worker_id, state, host, address, port, data_directory, system_identifier,
    since BETWEEN now() - interval '1 min' AND leased_until AS since, leased_until > now() AS later, bound > now() AS bound_later, token
FROM snowflake_workers ORDER BY pool, worker_id;
SELECT pool, leased, free, never_leased FROM snowflake_pools ORDER BY pool;

\x
SELECT e.code, e.message, e.detail, e.hint FROM unnest(ARRAY[
    $$SELECT ask('main', 1, 7, '{"acquire": {}}', '{"format": 0}')$$, $$SELECT ask('main', 1, 7, '{"acquire": {}}', '{"format": 2}')$$,
    $$SELECT ask('main', 1, 7, '{"acquire": {}}', '{"format": "x"}')$$, $$SELECT ask('main', 1, 7, '{"steal": {}}')$$,
    $$SELECT ask('main', 1, 7, '{"acquire": {"fixed": -1}}')$$, $$SELECT ask('main', 1, 7, '{"acquire": {}}', '{"nonce": "7"}')$$,
    $$SELECT _snowflake.lease('main', '[]')$$, $$SELECT _snowflake.lease('main', '{"format": 1}')$$]) AS s (statement),
    error_of_registry(s.statement) AS e;
\x
SELECT snowflake_drop_pool('none');
\set VERBOSITY terse
SELECT snowflake_drop_pool('other');
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_revoke_worker('main', 9);
SELECT snowflake_revoke_worker('main', 4);
SELECT snowflake_revoke_worker('main', -1);
SELECT ask('none', 1, 7, '{"acquire": {}}');
SELECT _snowflake.lease(NULL, '{}') IS NULL AS null_gives_null;

-- A pool that is dropped and made again goes on where it was.
SELECT gist(ask('other', 1, 8, '{"release": {"worker": 0, "counter": 1, "bound": 0, "end": 0}}'));
SELECT snowflake_drop_pool('other');
SELECT snowflake_create_pool('again', '[0,0]', namespace => 'apart');
SELECT gist(ask('again', 2, 2, '{"acquire": {}}'));

-- Isolation levels, and transactions that only read.
SET default_transaction_isolation = 'repeatable read';
SELECT ask('main', 1, 9, '{"acquire": {}}');
RESET default_transaction_isolation;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake_create_pool('more', '[5000000,5000010)');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake_drop_pool('main');
ROLLBACK;
SET default_transaction_read_only = on;
SELECT ask('main', 1, 9, '{"acquire": {}}');
SELECT snowflake_drop_pool('main');
RESET default_transaction_read_only;

-- In a transaction block, the registry would be locked until its end.
BEGIN;
SELECT ask('main', 1, 9, '{"acquire": {}}');
ROLLBACK;
SELECT e.code, e.message, e.detail, e.hint FROM unnest(ARRAY[
    $$SELECT snowflake_create_pool('late', '[5000000,5000010)')$$, $$SELECT snowflake_drop_pool('main')$$, $$SELECT snowflake_revoke_worker('main', 0)$$,
    $$SELECT snowflake_end_grace_period()$$, $$SELECT snowflake_declare_registry()$$]) AS s (statement),
    error_of_registry(s.statement) AS e;
SELECT ask('main', 1, 9, '{"acquire": {}}') \; SELECT 1;

-- The commit is durable.
SET synchronous_commit = off;
SELECT gist(ask('main', 3, 6, '{"acquire": {"fixed": 9}}')), current_setting('synchronous_commit');
SHOW synchronous_commit;
SET synchronous_commit = remote_apply;
SELECT gist(ask('main', 3, 7, '{"release": {"worker": 9, "counter": 1, "bound": 0, "end": 0}}')), current_setting('synchronous_commit');
RESET synchronous_commit;

-- Privileges.
CREATE ROLE regress_snowflake_server;
CREATE ROLE regress_snowflake_monitor IN ROLE pg_monitor;
SET ROLE regress_snowflake_server;
SELECT e.code, e.message FROM unnest(ARRAY[
    $$SELECT _snowflake.lease('main', '{}')$$, $$SELECT _snowflake.read_registry()$$, $$SELECT snowflake_create_registry()$$, $$SELECT snowflake_create_pool('more', '[5000000,5000010)')$$, $$SELECT snowflake_drop_pool('main')$$,
    $$SELECT snowflake_revoke_worker('main', 2)$$, $$SELECT snowflake_end_grace_period()$$, $$SELECT snowflake_declare_registry()$$,
    $$SELECT _snowflake.pool_calls()$$, $$TABLE snowflake_workers$$, $$TABLE snowflake_pools$$, $$TABLE _snowflake.state$$,
    $$TABLE _snowflake.pools$$, $$TABLE _snowflake.leases$$, $$DELETE FROM _snowflake.leases$$,
    $$UPDATE _snowflake.leases SET lease = NULL$$]) AS s, error_of_registry(s) AS e;
RESET ROLE;
-- A registry that has pools gets no other one.
SELECT snowflake_create_registry('regress_snowflake_server');
SELECT string_agg(pool, ' ' ORDER BY pool) FROM snowflake_pools;
SET ROLE regress_snowflake_server;
SELECT gist(ask('main', 9, 1, '{"acquire": {"fixed": 10}}'));
SELECT count(*) FROM jsonb_array_elements(_snowflake.read_registry() -> 'pools');
SELECT e.code, e.message FROM error_of_registry('TABLE _snowflake.leases') AS e;
SET ROLE regress_snowflake_monitor;
SELECT worker_id, host FROM snowflake_workers WHERE worker_id = 10;
SELECT count(*) FROM snowflake_pools;
SELECT e.code, e.message FROM unnest(ARRAY['TABLE _snowflake.leases', 'SELECT snowflake_end_grace_period()']) AS s, error_of_registry(s) AS e;
RESET ROLE;

-- An administrator says that leases may be lost: a grace period begins, and ends early.
SELECT snowflake_declare_registry();
SELECT DISTINCT grace_until > now() AS grace, grace_because, era FROM snowflake_pools;
SELECT jsonb_path_query(ask('main', 9, 2, '{"acquire": {"fixed": 11}}'), '$.answer.refused.grace.cause');
SELECT snowflake_end_grace_period();
SELECT DISTINCT grace_until, grace_because, era FROM snowflake_pools;
SELECT gist(ask('main', 9, 3, '{"acquire": {"fixed": 11}}'));

SELECT e.code, e.message FROM error_of_registry($$SELECT snowflake_end_grace_period('host=none')$$) AS e;
REVOKE EXECUTE ON FUNCTION _snowflake.lease(text, jsonb), _snowflake.read_registry() FROM regress_snowflake_server;
DROP ROLE regress_snowflake_server, regress_snowflake_monitor;

-- No view of the extension looks so expensive that the server would compile a query of it.
CREATE FUNCTION cost_of(relation regclass) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE format('EXPLAIN (FORMAT JSON) SELECT * FROM %s', relation) INTO plan;
    RETURN plan #>> '{0,Plan,Total Cost}';
END $$;
SELECT count(*) > 5 AS views, array_agg(c.oid::regclass) FILTER (WHERE cost_of(c.oid) > current_setting('jit_above_cost')::float8 / 4) AS expensive
FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'snowflake_id'
WHERE c.relkind = 'v';
DROP FUNCTION cost_of(regclass);
