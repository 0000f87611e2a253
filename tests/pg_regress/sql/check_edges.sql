-- snowflake_check() at its edges: what it takes for what, whose generator it asks, and the
-- rows that its hints name. sql/check.sql has the rest.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA edges;
SET search_path = edges, public;
-- Runs the statements for rows in the hints, and counts what they return.
CREATE FUNCTION rows_of_hints(arguments text, OUT finding text, OUT worker_id bigint, OUT ids bigint, OUT rows bigint)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    FOR finding, worker_id, ids, hint IN EXECUTE format(
        $q$SELECT finding, worker_id, ids, split_part(hint, 'The rows: ', 2) FROM snowflake_check(%s) WHERE hint LIKE '%%The rows: %%'$q$, arguments)
    LOOP
        EXECUTE format('SELECT count(*) FROM (%s) AS s', hint) INTO rows;
        RETURN NEXT;
    END LOOP;
END $$;

-- What else is in the column does not get in the way of the statements for rows.
CREATE TABLE orders (id bigint DEFAULT snowflake_nextval());
INSERT INTO orders SELECT snowflake_encode('2025-03-01 12:00Z', 9, n) FROM generate_series(1, 4) AS n;
INSERT INTO orders SELECT snowflake_encode(now() + interval '1 h', n % 2, n) FROM generate_series(1, 5) AS n;
INSERT INTO orders SELECT snowflake_encode('2025-03-01 12:00Z', 0, n) FROM generate_series(1, 3) AS n;
INSERT INTO orders VALUES (-5), (NULL), (snowflake_encode('2094-01-01Z', 9, 0));
INSERT INTO orders SELECT generate_series(1, 100);
SELECT * FROM rows_of_hints($$'orders', worker_ids => '{}'$$);

-- With a fixed field or a reversed time, no ID of the layout is a small number. Numbers of
-- a sequence are told from IDs of another layout all the same.
SELECT snowflake_create_generator('shard_ids', 'layout=''time:41 shard:2=1 worker:8 sequence:12'' epoch=2025-01-01Z');
CREATE TABLE shards (id bigint DEFAULT snowflake_nextval('shard_ids'));
INSERT INTO shards SELECT generate_series(1, 100);
INSERT INTO shards VALUES (2147483648), (1099511627775), (1099511627776), (-7), (NULL);
INSERT INTO shards SELECT snowflake_encode('2025-03-01 12:00Z', 9, n, 'shard_ids') FROM generate_series(1, 4) AS n;
SELECT severity, finding, worker_id, ids, least_id, greatest_id, hint FROM snowflake_check('shards', worker_ids => '{[9,10)}') WHERE day IS NULL;
SELECT * FROM rows_of_hints($$'shards', worker_ids => '{}'$$);
CREATE TABLE numbers AS SELECT id::bigint FROM generate_series(0, 99) AS id;
INSERT INTO numbers VALUES (2147483647);
SELECT l.layout, severity, finding, ids, least_id, greatest_id
FROM (VALUES ('preset=uniqueid_spread'), ('preset=uniqueid_time'), ('preset=uniqueid'), ('preset=twitter'), ('preset=javascript'), ('preset=mastodon'),
        ('layout=''worker:10 time:41 sequence:12'' epoch=2025-01-01Z')) AS l (layout),
    snowflake_check('numbers', 'id', layout => l.layout) AS c
WHERE finding NOT LIKE '%IDs%' ORDER BY l.layout;
-- The IDs of a narrow layout are small numbers for more than a day.
SELECT snowflake_create_generator('narrow_ids', 'layout=''time:32 worker:4 sequence:4'' epoch=2025-01-01Z tick=''1 s'' max_borrow=0');
CREATE TABLE narrow (id bigint DEFAULT snowflake_nextval('narrow_ids'));
INSERT INTO narrow SELECT snowflake_encode(timestamptz '2025-01-01Z' + n * interval '1 day', 7, 0, 'narrow_ids') FROM generate_series(0, 2) AS n;
INSERT INTO narrow VALUES (snowflake_encode('2025-06-01Z', 7, 0, 'narrow_ids'));
SELECT max(id) > 2147483647 AS beyond FROM narrow;
SELECT severity, finding, worker_id, day, ids FROM snowflake_check('narrow', worker_ids => '{[7,8)}');
SELECT * FROM rows_of_hints($$'narrow', worker_ids => '{}'$$);
SELECT l.layout, (_snowflake.check_limits_as(l.layout)).*
FROM (VALUES ('preset=default'), ('layout=''time:40 worker:2 sequence:3'' epoch=0'), ('layout=''time:40 worker:2 sequence:2'' epoch=0 max_rollback=''2 h'' max_borrow=''1 h'''),
    ('layout=''worker:4 time_reversed:40 sequence:2'' epoch=0')) AS l (layout);
SELECT _snowflake.check_limits(), _snowflake.check_limits('narrow_ids');

-- An ID of the future has a worker ID too.
TRUNCATE orders;
INSERT INTO orders SELECT snowflake_encode(now() + n * interval '1 h', 5, 0) FROM generate_series(-1, 1) AS n;
SELECT severity, finding, worker_id, ids FROM snowflake_check('orders', worker_ids => '{[7,8)}') WHERE severity <> 'info';

-- Where the future begins: a minute or max_borrow ahead of the clock; and from a day or
-- max_rollback on, and max_borrow, no generator leads so far.
SELECT snowflake_create_generator('leading_ids', 'preset=default max_borrow=''2 h'' max_rollback=''10 d''');
CREATE TABLE one (id bigint);
CREATE FUNCTION future(ahead interval, generator regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE one;
    INSERT INTO one VALUES (snowflake_encode(clock_timestamp() + ahead, 7, 0));
    RETURN coalesce((SELECT severity FROM snowflake_check('one', 'id', generator => future.generator) WHERE finding = 'ID of the future'), 'fine');
END $$;
SELECT ahead, future(ahead, 'snowflake_default') AS default_generator, future(ahead, 'leading_ids') AS leading_generator
FROM (VALUES (interval '30 s'), ('10 min'), ('23 h'), ('25 h'), ('9 d'), ('10 d 1 h'), ('11 d')) AS t (ahead);
-- That is exact.
TRUNCATE one;
INSERT INTO one SELECT snowflake_encode('2025-03-01 12:00Z', 7, n) FROM generate_series(1, 2) AS n;
INSERT INTO one VALUES (snowflake_encode('2025-03-01 12:00:00.001Z', 7, 0)), (0), (2147483647), (2147483648), (-1);
SELECT kind, ids, least_id, greatest_id FROM _snowflake.count_ids('one', 'id', 100, '', '', 2147483647, '2025-03-01 12:00Z') ORDER BY least_id;
-- One row of a table is decoded once.
SET track_functions = 'all';
BEGIN;
SELECT count(*) FROM _snowflake.count_ids('one', 'id', 100, '', '', 2147483647, '2025-03-01 12:00Z');
SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'instant_or_null';
COMMIT;
RESET track_functions;

-- Days are those of UTC, whatever the time zone of the session.
TRUNCATE one;
INSERT INTO one SELECT snowflake_encode(t.at, 7, 0)
FROM (VALUES (timestamptz '2025-03-01 23:59:59.999Z'), ('2025-03-02 00:00Z'), ('2025-03-02 11:30Z'), ('2025-03-02 23:30Z')) AS t (at);
SET timezone = 'Pacific/Auckland';
SELECT day, ids FROM snowflake_check('one', 'id', generator => 'snowflake_default') WHERE day IS NOT NULL;
SET timezone = 'America/Los_Angeles';
SELECT day, ids FROM snowflake_check('one', 'id', generator => 'snowflake_default') WHERE day IS NOT NULL;
SET timezone = 'UTC';

-- The generator is that of the default, if that names exactly one.
CREATE SEQUENCE plain;
CREATE TABLE defaults (
    with_none bigint DEFAULT snowflake_nextval(), with_default bigint DEFAULT snowflake_nextval('snowflake_default'),
    with_one bigint DEFAULT snowflake_nextval('shard_ids'), with_sequence bigint DEFAULT snowflake_nextval('shard_ids') + 0 * nextval('plain'),
    with_fields bigint DEFAULT snowflake_nextval('shard_ids', '{}'), with_block bigint DEFAULT snowflake_nextval_block(10, 'shard_ids'),
    late bigint DEFAULT snowflake_nextval('shard_ids'::text::regclass),
    with_two bigint DEFAULT CASE WHEN random() < 0.5 THEN snowflake_nextval('shard_ids') ELSE snowflake_nextval('narrow_ids') END,
    or_default bigint DEFAULT coalesce(snowflake_nextval('shard_ids'), snowflake_nextval()),
    no_generator bigint DEFAULT nextval('plain'));
CREATE FUNCTION maker(column_name name) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    detail text;
BEGIN
    RETURN (SELECT c.detail FROM snowflake_check('defaults', column_name) AS c WHERE finding = 'all IDs');
EXCEPTION WHEN invalid_parameter_value THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN message || ': ' || detail;
END $$;
SELECT maker(attname) FROM pg_attribute WHERE attrelid = 'defaults'::regclass AND attnum > 0 ORDER BY attnum;
-- What is asked of a worker of Citus; and what defaults name beside PostgreSQL's own functions.
SELECT a.attname, _snowflake.has_default('edges.defaults', a.attname, 'public.snowflake_default') AS of_default,
    _snowflake.has_default('edges.defaults', a.attname, 'edges.shard_ids') AS of_shard_ids,
    (SELECT string_agg(coalesce(d.function::regprocedure::text, d.sequence::regclass::text), ' ' ORDER BY d.function, d.sequence::regclass::text)
     FROM _snowflake.defaults AS d WHERE d.relation = a.attrelid AND d.number = a.attnum) AS named
FROM pg_attribute AS a WHERE attrelid = 'defaults'::regclass AND attnum > 0 ORDER BY attnum;

-- Worker IDs that the registry knows: those of dropped pools too, and of all namespaces.
TRUNCATE one;
INSERT INTO one SELECT snowflake_encode('2025-03-01 12:00Z', n, 0) FROM generate_series(1, 5) AS n;
SELECT snowflake_create_pool('a', '[0,16)'), snowflake_create_pool('b', '[0,16)', namespace => 'other', except_ids => '{[3,4)}');
SELECT snowflake_drop_pool('a');
INSERT INTO _snowflake.leases (namespace, lease)
SELECT l.namespace, format('{"worker": %s, "released": true, "heard": 0, "leased_until": 0, "bound": 0, "holder": {"identity": {"system": 1}}}', l.worker_id)::jsonb
FROM (VALUES ('default', 1), ('other', 2)) AS l (namespace, worker_id);
CREATE ROLE edge_monitor IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA edges TO edge_monitor;
GRANT SELECT ON one TO edge_monitor;
SET ROLE edge_monitor;
SELECT severity, finding, worker_id, ids FROM snowflake_check('one', 'id', generator => 'snowflake_default') WHERE severity <> 'info';
RESET ROLE;
DROP OWNED BY edge_monitor;
DROP ROLE edge_monitor;
DELETE FROM _snowflake.leases;
DELETE FROM _snowflake.pools;
DELETE FROM _snowflake.state;
-- Without a registry and without the argument, nobody is told that all is well.
SELECT severity, finding, ids FROM snowflake_check('one', 'id', generator => 'snowflake_default') WHERE severity <> 'info';
SELECT severity, finding, ids FROM snowflake_check('one', 'id', layout => 'preset=twitter') WHERE severity <> 'info';
SELECT severity, finding, ids FROM snowflake_check('one', 'id', generator => 'snowflake_default', worker_ids => '{[1,6)}') WHERE severity <> 'info';

-- Of each finding there are max_rows rows, and one for all others.
INSERT INTO one SELECT snowflake_encode('2025-03-02 12:00Z', n, 0) FROM generate_series(1, 5) AS n;
SELECT finding, worker_id, day, ids, least_id, greatest_id, detail, split_part(hint, ' The rows', 1) AS hint
FROM snowflake_check('one', 'id', generator => 'snowflake_default', worker_ids => '{[1,2)}', max_rows => 3);
SELECT finding, count(*), sum(ids) AS ids FROM snowflake_check('one', 'id', generator => 'snowflake_default', worker_ids => '{[1,2)}', max_rows => 10) GROUP BY finding ORDER BY finding;
SELECT snowflake_check('one', 'id', generator => 'snowflake_default', max_rows => 0);
SELECT snowflake_check('one', 'id', generator => 'snowflake_default', max_rows => NULL);

-- Domains, inheritance, a materialized view.
CREATE DOMAIN key AS bigint CHECK (VALUE > 0);
CREATE TABLE parents (id key DEFAULT snowflake_nextval());
CREATE TABLE children (extra text) INHERITS (parents);
INSERT INTO parents SELECT snowflake_encode('2025-03-01 12:00Z', 1, 0);
INSERT INTO children SELECT snowflake_encode('2025-03-01 12:00Z', 2, n) FROM generate_series(1, 2) AS n;
CREATE MATERIALIZED VIEW stored AS SELECT id::bigint FROM parents;
SELECT finding, worker_id, ids FROM snowflake_check('parents', worker_ids => '{}') WHERE day IS NULL;
SELECT * FROM rows_of_hints($$'parents', worker_ids => '{}'$$);
SELECT finding, worker_id, ids FROM snowflake_check('stored', 'id', generator => 'snowflake_default') WHERE day IS NOT NULL;
SELECT ids FROM snowflake_check('stored', 'id', generator => 'snowflake_default', sample => 50) WHERE finding = 'all IDs' AND ids NOT IN (0, 3);

-- A foreign table has no samples, and no sample is taken of what it is a part of.
CREATE EXTENSION postgres_fdw;
DO $$ BEGIN
    EXECUTE format('CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER itself;
CREATE TABLE far (tenant integer, id bigint);
INSERT INTO far SELECT 1, snowflake_encode('2025-03-01 12:00Z', 3, 0);
CREATE FOREIGN TABLE near (id bigint) SERVER itself OPTIONS (schema_name 'edges', table_name 'far');
SELECT finding, worker_id, ids FROM snowflake_check('near', 'id', generator => 'snowflake_default') WHERE day IS NOT NULL;
SELECT snowflake_check('near', 'id', sample => 50);
CREATE TABLE parts (tenant integer, id bigint DEFAULT snowflake_nextval()) PARTITION BY LIST (tenant);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1) PARTITION BY LIST (tenant);
CREATE FOREIGN TABLE parts_1_far PARTITION OF parts_1 DEFAULT SERVER itself OPTIONS (table_name 'far');
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
SELECT snowflake_check('parts', sample => 50);
\echo :LAST_ERROR_SQLSTATE
SELECT finding, worker_id, ids FROM snowflake_check('parts') WHERE day IS NOT NULL;
SELECT ids FROM snowflake_check('parts_2', sample => 50);

-- Objects of others in the caller's search_path are not used.
CREATE SCHEMA trap;
CREATE FUNCTION trap.sprung() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trap'; END $$;
CREATE FUNCTION trap.greater(one bigint, other bigint) RETURNS boolean LANGUAGE sql RETURN trap.sprung();
CREATE FUNCTION trap.greater(one timestamptz, other timestamptz) RETURNS boolean LANGUAGE sql RETURN trap.sprung();
CREATE FUNCTION trap.snowflake_decode(id bigint, OUT worker_id bigint, OUT sequence bigint) LANGUAGE sql RETURN CASE WHEN trap.sprung() THEN (1, 1) END;
CREATE FUNCTION trap.instant_or_null(id bigint) RETURNS timestamptz LANGUAGE sql RETURN CASE WHEN trap.sprung() THEN now() END;
CREATE FUNCTION trap.format(one text, VARIADIC others "any") RETURNS text LANGUAGE internal AS 'text_format';
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql RETURN CASE WHEN trap.sprung() THEN now() END;
CREATE OPERATOR trap.> (FUNCTION = trap.greater, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR trap.> (FUNCTION = trap.greater, LEFTARG = timestamptz, RIGHTARG = timestamptz);
CREATE TEMPORARY TABLE pg_class (oid oid, relkind "char");
SET search_path = pg_temp, trap, pg_catalog, edges, public;
SELECT finding, pg_catalog.int8(worker_id) AS worker_id, ids FROM snowflake_check('edges.orders', worker_ids => '{}') WHERE day IS NULL;
RESET search_path;
DROP TABLE pg_temp.pg_class;
SET client_min_messages = warning;
DROP EXTENSION postgres_fdw CASCADE;
DROP SCHEMA edges, trap CASCADE;
