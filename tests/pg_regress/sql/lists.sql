-- Arguments that are arrays, of every shape; and other odd arguments. Nothing is an internal
-- error.
CREATE SCHEMA lists;
SET search_path = lists, public;
CREATE TABLE a (id serial PRIMARY KEY, at timestamptz);
CREATE TABLE b (id serial PRIMARY KEY, at timestamptz);
CREATE FUNCTION tried(statement text, OUT code text, OUT message text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    code := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END
$$;
\x on
SELECT s.call, t.* FROM unnest(ARRAY[
    $$SELECT * FROM snowflake_convert_plan('{{a,b}}')$$, $$SELECT * FROM snowflake_convert_plan('{a,NULL}')$$,
    $$SELECT * FROM snowflake_convert_steps('{{a,b},{b,a}}')$$, $$SELECT * FROM snowflake_convert_steps('{NULL}')$$,
    $$SELECT * FROM snowflake_convert_undo('{{a}}')$$, $$SELECT * FROM snowflake_convert_undo('{a}')$$,
    $$CALL snowflake_convert('{{a,b}}')$$, $$CALL snowflake_convert('{NULL,a}')$$,
    $$CALL snowflake_convert_swap('{{a,b}}')$$, $$CALL snowflake_convert_swap('{a}')$$,
    $$SELECT * FROM snowflake_convert_plan('{a}', backfill => true, backfill_by => '{{at}}', worker_id => 3)$$,
    $$SELECT * FROM snowflake_convert_plan('{a}', backfill => true, backfill_by => '{at,NULL}', worker_id => 3)$$,
    $$CALL snowflake_convert('{a}', worker_id => 3)$$,
    $$CALL snowflake_convert_run('SELECT 1', '{{SELECT 2,SELECT 3}}')$$, $$CALL snowflake_convert_run('SELECT 1', '{NULL}')$$,
    $$CALL snowflake_convert_run('SELECT 1', NULL)$$, $$CALL snowflake_convert_run(NULL)$$, $$CALL snowflake_convert_run('SELECT 1', tries => NULL)$$,
    $$CALL snowflake_convert_backfill(NULL)$$, $$SELECT snowflake_set_defaults(NULL)$$, $$SELECT snowflake_set_default(NULL)$$,
    $$SELECT * FROM snowflake_check_cluster('{{host=a,host=b}}')$$, $$SELECT * FROM snowflake_check_cluster('{NULL}')$$]) AS s (call)
CROSS JOIN tried(s.call) AS t;
\x off

-- Subscripts that begin elsewhere.
SELECT count(*) FROM snowflake_convert_plan('[0:1]={a,b}') WHERE statement LIKE 'ALTER TABLE %';
SELECT count(*) FROM snowflake_convert_plan('[5:5]={a}', backfill => true, backfill_by => '[-3:-3]={at}', worker_id => 3) WHERE note LIKE '%in column at';
CALL snowflake_convert_run('DROP TABLE lists.b', '[7:7]={"LOCK TABLE lists.b IN ACCESS EXCLUSIVE MODE"}');
CALL snowflake_convert('[0:0]={a}');

-- Internal functions, which everybody can call.
SELECT * FROM _snowflake_convert.remake('pg_attribute', 1);
SELECT * FROM _snowflake_convert.remake('pg_class', 1);
SELECT * FROM _snowflake_convert.remake('a', 'a'::regclass);
SELECT * FROM _snowflake_convert.grants(NULL, 10, 'z', 'TABLE a', NULL);
SELECT _snowflake_convert.index_expression('a', 1, '{}'), _snowflake_convert.index_expression('a_pkey', 0, '{}'), _snowflake_convert.index_expression('a_pkey', -1, '{}'), _snowflake_convert.index_expression(0::oid::regclass, 1, '{}');
CREATE INDEX odd ON a ((id + 1), abs(id)) WHERE at IS NOT NULL;
SELECT _snowflake_convert.index_expression('odd', n, names) FROM generate_series(0, 3) AS n, (VALUES ('{}'::name[]), ('{"x y",id,z}'), ('{{u},{v}}'), ('{NULL}'), ('{at}')) AS v (names) ORDER BY n, names;
-- Indexes on copies, whatever the names of columns are and the texts say.
CREATE SCHEMA odd;
CREATE TABLE odd.names ("it's ""id"" = 'aaa'::text) AND (more of it, as long as it goes" serial PRIMARY KEY, id int REFERENCES odd.names, "note" text, "select" int UNIQUE REFERENCES odd.names, x int);
ALTER TABLE odd.names DROP COLUMN x;
CREATE INDEX texts ON odd.names ((note || ' id '), id, (id * "select") DESC, "it's ""id"" = 'aaa'::text) AND (more of it, as long as it goes") INCLUDE ("select") WHERE note <> 'id' AND "it's ""id"" = 'aaa'::text) AND (more of it, as long as it goes" > 0 AND id::text <> '"id"';
CREATE INDEX patterns ON odd.names (note COLLATE "C" text_pattern_ops DESC NULLS LAST, id) WITH (fillfactor = 70) WHERE lower(note) ~ '^id\\';
CREATE INDEX hashed ON odd.names USING hash (id) WHERE (CASE WHEN id > 3 THEN 'id' ELSE note END) = 'id';
INSERT INTO odd.names (note) SELECT 'id' FROM generate_series(1, 5);
CREATE TEMP TABLE defined AS SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition FROM pg_index WHERE indrelid = 'odd.names'::regclass;
SELECT statement FROM snowflake_convert_steps('{odd.names}') WHERE statement LIKE 'CREATE %INDEX%';
\set ECHO none
SET client_min_messages = warning;
SELECT statement FROM snowflake_convert_steps('{odd.names}') \gexec
RESET client_min_messages;
\set ECHO all
SELECT name, replace(pg_get_indexdef(name::regclass), '::bigint', '') = replace(definition, '::bigint', '') AS is_same FROM defined ORDER BY 1;
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'odd.names'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1;
SET client_min_messages = warning;
DROP SCHEMA odd CASCADE;
RESET client_min_messages;

-- What runs as the owner of a table, for those who have the owner's rights.
CREATE ROLE regress_lists;
GRANT USAGE ON SCHEMA lists TO regress_lists;
CREATE TABLE owned (n bigint, at timestamptz);
ALTER TABLE owned OWNER TO regress_lists;
SELECT s.call, t.code, t.message FROM unnest(ARRAY[
    $$SELECT * FROM _snowflake_convert.rows_as_owner('owned', 'SELECT 1, now()')$$, $$SELECT * FROM _snowflake_convert.rows_as_owner('owned', 'SELECT 1::bigint, now(), 3')$$,
    $$SELECT * FROM _snowflake_convert.rows_as_owner('owned', 'SELECT 1::bigint, now(); SELECT 1::bigint, now()')$$, $$SELECT * FROM _snowflake_convert.rows_as_owner('owned', 'DROP TABLE lists.owned')$$,
    $$SELECT * FROM _snowflake_convert.rows_as_owner('owned', 'TABLE lists.a')$$, $$SELECT * FROM _snowflake_convert.rows_as_owner('owned', '')$$,
    $$SELECT _snowflake.run_as_owner('owned', 'ALTER TABLE lists.a ADD COLUMN x int')$$, $$SELECT _snowflake.run_as_owner('owned', 'SET ROLE NONE')$$,
    $$SELECT _snowflake.run_as_owner('owned', 'COMMIT')$$, $$SELECT _snowflake.run_as_owner('owned', '')$$]) AS s (call)
CROSS JOIN tried(s.call) AS t;
SELECT _snowflake.run_as_owner('owned', 'INSERT INTO lists.owned SELECT n, to_timestamp(n) FROM generate_series(1, 2500) AS n');
SELECT count(*), sum(key), max(at) FROM _snowflake_convert.rows_as_owner('owned', 'TABLE lists.owned');
SELECT count(*), max(key), max(at) FROM _snowflake_convert.rows_as_owner('owned', 'SELECT NULL::bigint, NULL::timestamptz FROM lists.owned LIMIT 2');
SELECT _snowflake.run_as_owner('owned', 'SET search_path = lists'), current_setting('search_path'), current_user = session_user AS is_me;
GRANT EXECUTE ON FUNCTION tried(text) TO PUBLIC;
SET ROLE regress_lists;
SELECT s.call, t.code, t.message FROM unnest(ARRAY[
    $$SELECT _snowflake.run_as_owner('lists.a', 'SELECT 1')$$, $$SELECT * FROM _snowflake_convert.rows_as_owner('lists.a', 'SELECT 1::bigint, now()')$$,
    $$SELECT _snowflake.run_as_owner(1::regclass, 'SELECT 1')$$]) AS s (call)
CROSS JOIN lists.tried(s.call) AS t;
RESET ROLE;
DROP SCHEMA lists CASCADE;
DROP ROLE regress_lists;
