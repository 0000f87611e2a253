-- Type snowflake beside bigint. The same statements run over tables of both types, which have
-- the same names in schemas b and s. What differs is printed: of rows, of errors, of plans.
\set VERBOSITY terse
SET client_min_messages = warning;
SET timezone = 'UTC';
\dC snowflake
SELECT typlen, typbyval, typalign, typstorage, typcategory, typispreferred, typinput, typoutput, typreceive, typsend
FROM pg_type WHERE oid = 'snowflake'::regtype;
SELECT count(*) AS operators FROM pg_operator WHERE 'snowflake'::regtype IN (oprleft, oprright);
SELECT count(*) AS classes FROM pg_opclass WHERE opcintype = 'snowflake'::regtype;

DO $do$
DECLARE it record;
BEGIN
    FOR it IN VALUES ('b', 'bigint'), ('s', 'snowflake') LOOP
        EXECUTE format($$
            CREATE SCHEMA %1$s;
            SET LOCAL search_path = %1$s, public;
            CREATE TABLE t (id %2$s PRIMARY KEY, n bigint NOT NULL, small smallint, mid integer, note text, ids %2$s[]);
            INSERT INTO t SELECT i, i %% 100, i %% 1000, i, 'row ' || i, ARRAY[i, i + 1] FROM generate_series(1, 10000) AS i;
            CREATE INDEX ON t (n, id DESC);
            CREATE INDEX ON t USING hash (id);
            CREATE INDEX ON t USING brin (id);
            CREATE INDEX ON t USING gin (ids);
            CREATE INDEX by_rest ON t ((id %% 1000));
            -- One key of the other type, one of the same; parents of both types are referred to.
            CREATE TABLE child (id %2$s PRIMARY KEY, t_id %2$s REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE, other bigint REFERENCES t);
            INSERT INTO child SELECT i, i * 2, i FROM generate_series(1, 3000) AS i;
            CREATE INDEX ON child (t_id);
            CREATE INDEX ON child (other);
            CREATE TABLE plain (id bigint PRIMARY KEY, t_id %2$s);
            INSERT INTO plain SELECT i, i FROM generate_series(1, 3000) AS i;
            CREATE TABLE ranges (id %2$s PRIMARY KEY, n int) PARTITION BY RANGE (id);
            CREATE TABLE ranges_1 PARTITION OF ranges FOR VALUES FROM (MINVALUE) TO (1000);
            CREATE TABLE ranges_2 PARTITION OF ranges FOR VALUES FROM ('1000') TO (2000::bigint);
            CREATE TABLE ranges_3 PARTITION OF ranges FOR VALUES FROM (2000) TO (snowflake_min_id('2026-01-01Z'));
            CREATE TABLE ranges_4 PARTITION OF ranges FOR VALUES FROM (snowflake_min_id('2026-01-01Z')) TO (MAXVALUE);
            INSERT INTO ranges SELECT i, i FROM generate_series(1, 3000) AS i;
            CREATE TABLE lists (id %2$s, n int) PARTITION BY LIST (id);
            CREATE TABLE lists_1 PARTITION OF lists FOR VALUES IN (1, '2', 3::bigint);
            CREATE TABLE lists_2 PARTITION OF lists DEFAULT;
            INSERT INTO lists SELECT i, i FROM generate_series(1, 10) AS i;
            CREATE TABLE hashes (id %2$s PRIMARY KEY, n int) PARTITION BY HASH (id);
            CREATE TABLE hashes_1 PARTITION OF hashes FOR VALUES WITH (MODULUS 3, REMAINDER 0);
            CREATE TABLE hashes_2 PARTITION OF hashes FOR VALUES WITH (MODULUS 3, REMAINDER 1);
            CREATE TABLE hashes_3 PARTITION OF hashes FOR VALUES WITH (MODULUS 3, REMAINDER 2);
            INSERT INTO hashes SELECT i, i FROM generate_series(1, 3000) AS i;
            CREATE TABLE plain_hashes (id bigint, n int) PARTITION BY HASH (id);
            CREATE TABLE plain_hashes_1 PARTITION OF plain_hashes FOR VALUES WITH (MODULUS 3, REMAINDER 0);
            CREATE TABLE plain_hashes_2 PARTITION OF plain_hashes FOR VALUES WITH (MODULUS 3, REMAINDER 1);
            CREATE TABLE plain_hashes_3 PARTITION OF plain_hashes FOR VALUES WITH (MODULUS 3, REMAINDER 2);
            INSERT INTO plain_hashes SELECT i, i FROM generate_series(1, 3000) AS i;
            CREATE DOMAIN key AS %2$s CHECK (VALUE > 0);
            CREATE TABLE made (id %2$s PRIMARY KEY DEFAULT snowflake_encode('2026-01-01Z', 1, 1), twice bigint GENERATED ALWAYS AS (id * 2) STORED, CHECK (id > 0), CHECK (id < 9e18::bigint));
            CREATE FUNCTION next_of(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
            CREATE FUNCTION in_plpgsql(wanted bigint) RETURNS %2$s LANGUAGE plpgsql AS
                'DECLARE found bigint; it t; BEGIN SELECT id INTO found FROM t WHERE id = wanted; SELECT * INTO it FROM t WHERE id = found; RETURN it.id; END';
            ANALYZE t, child, plain, ranges, lists, hashes, plain_hashes;
        $$, it.column1, it.column2);
    END LOOP;
END
$do$;

-- The rows of a statement and its plan, or its error. Of the plan remains what is done, in order:
-- no conversion between both types, no parenthesis, and no node that only passes rows on. Since 17
-- the planner leaves out that a column is not null if it stands alone. EXCEPT and INTERSECT are
-- compared by their rows: since 18 they read two indexes in order, but not over the type.
CREATE FUNCTION outcome(schema text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    it record;
    rows text[];
    plan text := '';
BEGIN
    PERFORM set_config('search_path', schema || ', public', true);
    query := replace(query, '{type}', CASE schema WHEN 'b' THEN 'bigint' ELSE 'snowflake' END);
    FOR it IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        IF query !~ 'EXCEPT|INTERSECT' AND it."QUERY PLAN" !~ '->  (Result|Subquery Scan on ("\*SELECT|unnamed_subquery))|^ +(Index Cond|Filter): [()a-z.:]+ IS NOT NULL\)$' THEN
            plan := plan || regexp_replace(it."QUERY PLAN", '^ +|::(bigint|snowflake)(\[\])?|[()]', '', 'g') || E'\n';
        END IF;
    END LOOP;
    IF query ~ '^(SELECT|WITH|VALUES|EXECUTE)|RETURNING' THEN
        FOR it IN EXECUTE query LOOP
            rows := rows || it::text;
        END LOOP;
    ELSE
        EXECUTE query;
    END IF;
    RETURN coalesce(array_to_string(rows, E'\n', 'NULL'), 'none') || E'\n' || plan;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || replace(SQLERRM, 'snowflake', 'bigint');
END
$$;

-- Prints the statements whose outcomes differ. What has changed is rolled back.
CREATE FUNCTION compare(VARIADIC queries text[]) RETURNS TABLE (query text, "bigint" text, "snowflake" text) LANGUAGE plpgsql AS $$
DECLARE
    same int := 0;
    errors text := '';
    before text := current_setting('search_path');
BEGIN
    FOREACH query IN ARRAY queries LOOP
        BEGIN
            "bigint" := outcome('b', query);
            "snowflake" := outcome('s', query);
            RAISE EXCEPTION USING ERRCODE = 'UUUUU';
        EXCEPTION WHEN SQLSTATE 'UUUUU' THEN
            NULL;
        END;
        IF "bigint" = "snowflake" THEN
            same := same + 1;
            errors := errors || coalesce(substring("bigint" FROM '^[0-9A-Z]{5} '), '');
        ELSE
            RETURN NEXT;
        END IF;
    END LOOP;
    PERFORM set_config('search_path', before, true);
    query := format('%s statements are the same; errors: %s', same, errors);
    "bigint" := NULL; "snowflake" := NULL;
    RETURN NEXT;
END
$$;
\pset format unaligned
\pset tuples_only on

\echo -- Literals and operators
SELECT * FROM compare(
    'SELECT * FROM t WHERE id = 5', 'SELECT * FROM t WHERE 5 = id', $$SELECT * FROM t WHERE id = '5'$$, 'SELECT * FROM t WHERE id = 5::smallint',
    'SELECT * FROM t WHERE id = 5::bigint', 'SELECT * FROM t WHERE id = 5::{type}', 'SELECT * FROM t WHERE id = 9223372036854775807',
    'SELECT id FROM t WHERE id <> 5 AND id < 10', 'SELECT id FROM t WHERE id BETWEEN 5 AND 9', 'SELECT id FROM t WHERE id > 9990 ORDER BY id',
    'SELECT id FROM t ORDER BY id LIMIT 3', 'SELECT id FROM t ORDER BY id DESC LIMIT 3', 'SELECT id FROM t WHERE n = 5 ORDER BY n, id DESC LIMIT 3',
    'SELECT id FROM t WHERE id IN (1, 2, 3)', $$SELECT id FROM t WHERE id IN ('1', '2')$$, 'SELECT id FROM t WHERE id IN (1, 2::bigint)', 'SELECT id FROM t WHERE id IN (1, 2::smallint)',
    'SELECT count(*) FROM t WHERE id NOT IN (1, 2, 3)', $$SELECT id FROM t WHERE id = ANY('{1,2}')$$, 'SELECT id FROM t WHERE id = ANY(ARRAY[1, 2])', 'SELECT id FROM t WHERE id = ANY(ARRAY[1, 2]::bigint[])',
    'SELECT id FROM t WHERE id = ANY(ARRAY[1, 2]::smallint[])', 'SELECT id FROM t WHERE id = ANY(ARRAY[1, 2]::{type}[])', 'SELECT count(*) FROM t WHERE id <> ALL(ARRAY[1, 2]::bigint[])',
    'SELECT id FROM t WHERE id IS NULL', 'SELECT count(*) FROM t WHERE id IS DISTINCT FROM 5', 'SELECT id FROM t WHERE (id, n) > (9998, 3)', 'SELECT id FROM t WHERE (id, n) IN ((1, 1), (2, 3))',
    'SELECT id FROM t WHERE id % 1000 = 7', 'SELECT id FROM t WHERE id = (SELECT n FROM t WHERE id = 7)', 'SELECT id FROM t WHERE id = $$5$$::text', 'SELECT id FROM t WHERE id LIKE $$5%$$', 'SELECT id FROM t WHERE id = true',
    'SELECT id + 1, 1 + id, id - 1, id * 2, id / 2, -id, +id, id % 7, id - id, id & 3, id | 1, id # 1, ~id, id >> 2, id << 2 FROM t WHERE id = 77',
    'SELECT abs(id), mod(id, 7), to_hex(id), to_char(id, $$999$$), gcd(id, 14), lcm(id, 2) FROM t WHERE id = 77',
    'SELECT i FROM t, generate_series(id, id + 2) AS i WHERE id = 5', 'SELECT id::text, id || $$x$$, concat(id, 1), format($$%s %L$$, id, id), quote_literal(id), length(id::text) FROM t WHERE id = 77',
    'SELECT id::integer, id::numeric, id::bigint, id::bigint::smallint FROM t WHERE id = 77', 'SELECT (id * 1000000000000)::integer FROM t WHERE id = 77',
    'SELECT 99999999999::{type}::integer', 'SELECT $$x$$::{type}', 'SELECT $$9223372036854775808$$::{type}', 'SELECT 1.5::{type}, 2.5::numeric::{type}, 1e30::{type}',
    $$SELECT ' 12 '::{type}, '-5'::{type}, (-5)::{type}$$);
\echo -- One type of several
SELECT * FROM compare(
    'SELECT coalesce(id, 0), coalesce(NULL, id), coalesce(id, 0::bigint), coalesce(id, n), greatest(id, 50), least(id, n), nullif(id, 77) FROM t WHERE id = 77',
    'SELECT CASE WHEN n > 5 THEN id ELSE 0 END, CASE WHEN n > 5 THEN n ELSE id END FROM t WHERE id = 77',
    'SELECT id FROM t WHERE id < 3 UNION SELECT 7 ORDER BY 1', 'SELECT id FROM t WHERE id < 3 UNION ALL SELECT n FROM t WHERE id < 3', 'SELECT id FROM t EXCEPT SELECT id FROM plain ORDER BY 1 LIMIT 3',
    'SELECT t_id FROM child INTERSECT SELECT id FROM t ORDER BY 1 LIMIT 3', 'SELECT id FROM t WHERE id < 3 UNION SELECT NULL ORDER BY 1', $$SELECT id FROM t WHERE id < 3 UNION SELECT '7' ORDER BY 1$$,
    'VALUES (1::{type}), (2), (3::bigint)', 'SELECT * FROM (VALUES (1::{type}), (2)) AS v (id) JOIN t USING (id)', 'SELECT ARRAY[id, 5, n], ARRAY[id, 5] FROM t WHERE id = 77',
    'SELECT ids || 5, 5 || ids, array_append(ids, 5), array_prepend(5, ids), array_position(ids, 78), array_remove(ids, 77), array_replace(ids, 77, 1), cardinality(ids) FROM t WHERE id = 77',
    'SELECT unnest(ids), ids[1], ids[1:1] FROM t WHERE id = 77', 'SELECT id FROM t WHERE 5 = ANY(ids)', 'SELECT id FROM t WHERE id = ANY(ids) AND id < 3', 'SELECT id FROM t WHERE ids @> ARRAY[5]::{type}[]', 'SELECT id FROM t WHERE ids && ARRAY[5, 7]::{type}[]',
    'SELECT ids = ARRAY[77, 78]::{type}[], ids < ARRAY[1]::{type}[] FROM t WHERE id = 77', 'SELECT array_agg(id ORDER BY id DESC) FROM t WHERE id < 4', $$SELECT string_agg(id::text, ',' ORDER BY id) FROM t WHERE id < 4$$);
\echo -- Aggregates, windows, groups
SELECT * FROM compare(
    'SELECT max(id), min(id) FROM t', 'SELECT max(id) FROM t', 'SELECT n, max(id), min(id) FROM t GROUP BY n ORDER BY n LIMIT 3', 'SELECT max(id + 1), max(n) FROM t', 'SELECT max(id) FILTER (WHERE n = 5), max(DISTINCT id) FROM t', 'SELECT max(coalesce(id, 0)) FROM t',
    'SELECT max(id) FROM t HAVING max(id) > 5', 'SELECT n FROM t GROUP BY n ORDER BY max(id) DESC LIMIT 2', 'SELECT max(id) FROM t WHERE false', 'SELECT id FROM t WHERE id = (SELECT max(id) FROM t)', 'SELECT (SELECT max(t.id) FROM plain LIMIT 1) FROM t',
    'SELECT max(m) FROM (SELECT max(id) AS m FROM t GROUP BY n) AS q', 'WITH q AS MATERIALIZED (SELECT min(id) AS m FROM t) SELECT m FROM q', 'SELECT o.n FROM t AS o WHERE o.id = 3 AND EXISTS (SELECT FROM t AS i GROUP BY i.n HAVING max(i.id) > o.id)',
    'SELECT max((SELECT min(id) FROM plain WHERE plain.t_id > t.id)) FROM t WHERE id < 3', 'SELECT max(id) FROM ranges', 'INSERT INTO plain SELECT max(id) + 1, max(id) FROM t RETURNING *', 'SELECT max(NULL::{type})', 'SELECT max(NULL), max($$5$$)', 'SELECT max(ids) FROM t',
    'SELECT sum(id), avg(id), count(DISTINCT id), bit_and(id), bit_or(id), variance(id), stddev(id) FROM t', 'SELECT n, count(*) FROM t GROUP BY n HAVING count(id) > 5 ORDER BY n LIMIT 3', 'SELECT count(*) FROM (SELECT DISTINCT id FROM t) AS d',
    'SELECT DISTINCT ON (n) n, id FROM t ORDER BY n, id DESC LIMIT 3', 'SELECT id, count(*) FROM child GROUP BY ROLLUP (id) ORDER BY id NULLS FIRST LIMIT 2', 'SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id), mode() WITHIN GROUP (ORDER BY id) FROM t',
    'SELECT id, lag(id) OVER w, lag(id, 1, 0) OVER w, lead(id) OVER w, first_value(id) OVER w, max(id) OVER w, rank() OVER (ORDER BY n, id) FROM t WHERE id < 5 WINDOW w AS (ORDER BY id) ORDER BY id',
    'SELECT id, count(*) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t WHERE id < 5');
\echo -- Joins, by each method
\set joins '$$SELECT count(*), sum(t.n) FROM t JOIN child ON t.id = child.t_id$$, $$SELECT count(*) FROM t JOIN plain USING (id)$$, $$SELECT count(*) FROM plain NATURAL JOIN child$$, $$SELECT count(*) FROM t JOIN child ON other = t.id$$, $$SELECT count(*) FROM t LEFT JOIN plain USING (id) WHERE plain.id IS NULL$$, $$SELECT count(*) FROM t FULL JOIN plain USING (id)$$, $$SELECT id FROM t WHERE id IN (SELECT t_id FROM child) ORDER BY id LIMIT 2$$, $$SELECT count(*) FROM t WHERE NOT EXISTS (SELECT FROM plain WHERE plain.id = t.id)$$, $$SELECT count(*) FROM plain WHERE id IN (SELECT id FROM t)$$, $$SELECT count(*) FROM t, LATERAL (SELECT FROM plain WHERE plain.id = t.id LIMIT 1) AS l$$, $$SELECT count(*) FROM t JOIN plain ON t.id = plain.id + 1$$, $$SELECT count(*) FROM t AS x JOIN t AS y USING (id) JOIN child USING (id)$$, $$SELECT count(*) FROM hashes JOIN plain_hashes USING (id)$$, $$SELECT count(*) FROM ranges JOIN t USING (id)$$'
SELECT * FROM compare(:joins);
SET enable_hashjoin = off;
SELECT * FROM compare(:joins);
SET enable_mergejoin = off;
SELECT * FROM compare(:joins);
RESET enable_hashjoin; RESET enable_mergejoin;
SET enable_partitionwise_join = on;
SELECT * FROM compare(:joins);
RESET enable_partitionwise_join;
SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT * FROM compare(:joins, 'SELECT max(id + 0), min(id) FROM t', 'SELECT max(coalesce(id, 0)) FROM t');
RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
\echo -- Partitions
SELECT * FROM compare(
    'SELECT * FROM ranges WHERE id = 1500', 'SELECT count(*) FROM ranges WHERE id < 1500', $$SELECT count(*) FROM ranges WHERE id >= snowflake_min_id('2026-01-01Z')$$, 'SELECT * FROM ranges WHERE id IN (5, 1500)', 'SELECT * FROM ranges WHERE id = ANY($${5,1500}$$)', 'SELECT * FROM ranges ORDER BY id LIMIT 2',
    'SELECT * FROM ranges WHERE id = 1500::smallint', 'SELECT count(*) FROM ranges WHERE id > (SELECT 2000)', 'SELECT * FROM lists WHERE id = 2', 'SELECT * FROM lists WHERE id IN (1, 3)', 'SELECT * FROM lists WHERE id = $$7$$', 'SELECT * FROM hashes WHERE id = 17', 'SELECT * FROM hashes WHERE id = 17::bigint', 'SELECT * FROM hashes WHERE id IN (17, 18)',
    'SELECT tableoid::regclass, id FROM hashes WHERE id < 5 ORDER BY id', 'UPDATE ranges SET id = id + 2000 WHERE id = 1500 RETURNING tableoid::regclass, id', 'INSERT INTO ranges VALUES (snowflake_encode($$2026-05-05Z$$, 1, 1), 1), (5000, 2) RETURNING tableoid::regclass, *');
\echo -- What changes rows
SELECT * FROM compare(
    'INSERT INTO made DEFAULT VALUES RETURNING *', 'INSERT INTO made VALUES (5) RETURNING *', $$INSERT INTO made VALUES ('5') RETURNING *$$, 'INSERT INTO made VALUES (5.4) RETURNING *', 'INSERT INTO made VALUES (5::smallint) RETURNING *', 'INSERT INTO made SELECT n FROM t WHERE id = 5 RETURNING *', 'INSERT INTO made SELECT small FROM t WHERE id = 5 RETURNING *',
    'INSERT INTO made VALUES (-5)', 'INSERT INTO made VALUES (5), (5)', 'INSERT INTO made VALUES (NULL)', 'INSERT INTO made VALUES (true)', 'INSERT INTO made VALUES ($$x$$)', 'INSERT INTO made VALUES ($$5$$::text)',
    'INSERT INTO t (id, n) VALUES (5, 5) ON CONFLICT DO NOTHING RETURNING *', 'INSERT INTO t (id, n) VALUES (5, 5), (50000, 1) ON CONFLICT (id) DO UPDATE SET n = excluded.n + t.id, id = t.id + 20000 RETURNING id, n', 'INSERT INTO t (id, n) VALUES (5, 5) ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET note = excluded.id RETURNING id, n, note',
    'UPDATE t SET id = id + 20000 WHERE id = 9001 RETURNING id', 'UPDATE t SET id = 20000, n = id WHERE id = 9001 RETURNING id, n', 'UPDATE plain SET t_id = t.id FROM t WHERE t.id = plain.id AND t.id < 5 RETURNING plain.*', 'UPDATE t SET ids = ids || id WHERE id = 5 RETURNING ids', 'UPDATE t SET id = 5.5 WHERE id = 9001 RETURNING id',
    'MERGE INTO t USING plain AS p ON t.id = p.t_id WHEN MATCHED AND p.id < 5 THEN UPDATE SET n = p.t_id WHEN MATCHED AND p.id < 9 THEN DELETE WHEN NOT MATCHED THEN INSERT (id, n) VALUES (p.id, 1)',
    'DELETE FROM t USING plain WHERE t.id = plain.id + 9000 RETURNING t.id', 'DELETE FROM t WHERE id = 2', 'UPDATE t SET id = 3 WHERE id = 4', 'INSERT INTO child VALUES (99999, 99999, 5)', 'INSERT INTO child VALUES (99999, 5, 99999)',
    'WITH d AS (DELETE FROM plain WHERE id < 3 RETURNING id) SELECT t.id FROM t JOIN d USING (id) ORDER BY 1', 'SELECT in_plpgsql(5), next_of(id) FROM t WHERE id = in_plpgsql(6)', 'SELECT 5::key + id FROM t WHERE id = 5::key', 'SELECT (-5)::key',
    'SELECT id FROM t WHERE id = 5 FOR UPDATE', $$SELECT (jsonb_populate_record(NULL::t, '{"id": 250682904307331098, "ids": [1, "2"]}')).*$$, $$SELECT (json_populate_record(NULL::t, '{"id": "250682904307331098"}')).id$$, $$SELECT * FROM json_to_record('{"id": "5"}') AS r (id {type})$$, $$SELECT * FROM jsonb_to_recordset('[{"id": 5}, {"id": "6"}]') AS r (id {type})$$,
    'SELECT id, (snowflake_decode(id)).worker_id, snowflake_timestamp(id), snowflake_to_text(id, $$base32$$), snowflake_explain(id) FROM made UNION SELECT id, (snowflake_decode(id)).worker_id, snowflake_timestamp(id), snowflake_to_text(id, $$base62$$), snowflake_explain(id) FROM t WHERE id = 5');
-- RETURNING of MERGE came with 17.
DO $do$
DECLARE it text;
BEGIN
    FOREACH it IN ARRAY ARRAY['b', 's'] LOOP
        PERFORM set_config('search_path', it || ', public', true);
        MERGE INTO t USING (VALUES (5::bigint, 1), (60000, 2)) AS v (id, n) ON t.id = v.id
            WHEN MATCHED THEN UPDATE SET n = v.n + t.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (v.id, v.n);
    END LOOP;
END
$do$;
SELECT * FROM compare('SELECT id, n FROM t WHERE id IN (5, 60000) ORDER BY id');


\echo -- Parameters, and generic plans
SET plan_cache_mode = force_generic_plan;
\set prepare 'PREPARE p_int2 (smallint) AS SELECT id FROM t WHERE id = $1; PREPARE p_int4 (integer) AS SELECT id FROM t WHERE id = $1; PREPARE p_int8 (bigint) AS SELECT id FROM t WHERE id = $1; PREPARE p_unknown AS SELECT id FROM t WHERE id = $1; PREPARE p_array (bigint[]) AS SELECT id FROM t WHERE id = ANY($1); PREPARE p_any AS SELECT id FROM t WHERE id = ANY($1); PREPARE p_range (timestamptz) AS SELECT id FROM ranges WHERE id >= snowflake_min_id($1); PREPARE p_part AS SELECT id FROM ranges WHERE id = $1; PREPARE p_in AS SELECT id FROM t WHERE id IN ($1, $2); PREPARE p_insert AS INSERT INTO made VALUES ($1) RETURNING id; PREPARE p_int AS SELECT id FROM t WHERE id = $1::int; PREPARE p_update AS UPDATE plain SET t_id = $1 WHERE t_id = $2 RETURNING t_id; PREPARE p_limit AS SELECT id FROM t WHERE id > $1 ORDER BY id LIMIT $2; PREPARE p_coalesce AS SELECT id FROM t WHERE id = coalesce($1, id) AND id < 3; PREPARE p_values AS SELECT * FROM t JOIN (VALUES ($1::bigint)) AS v (id) USING (id);'
\set executed '$$EXECUTE p_int2(5)$$, $$EXECUTE p_int4(5)$$, $$EXECUTE p_int8(5)$$, $$EXECUTE p_unknown(5)$$, $$EXECUTE p_unknown(''5'')$$, $$EXECUTE p_array(''{1,2}'')$$, $$EXECUTE p_any(''{1,2}'')$$, $$EXECUTE p_range(''2026-01-01Z'')$$, $$EXECUTE p_part(1500)$$, $$EXECUTE p_in(1, 2)$$, $$EXECUTE p_insert(5)$$, $$EXECUTE p_int(6)$$, $$EXECUTE p_update(1, 2)$$, $$EXECUTE p_limit(5, 2)$$, $$EXECUTE p_coalesce(2)$$, $$EXECUTE p_values(5)$$'
SET search_path = b, public;
:prepare
CREATE TEMP TABLE of_bigint AS SELECT query, outcome('b', query) AS outcome FROM unnest(ARRAY[:executed]) AS query;
DEALLOCATE ALL;
SET search_path = s, public;
:prepare
SELECT count(*), b.outcome = s.outcome AS same, string_agg(query || E'\n' || b.outcome || s.outcome, E'\n') FILTER (WHERE b.outcome <> s.outcome)
FROM of_bigint AS b CROSS JOIN LATERAL (SELECT outcome('s', query) AS outcome OFFSET 0) AS s GROUP BY 2;
-- A parameter for which the statement names no type.
SELECT name, parameter_types AS not_bigint FROM pg_prepared_statements WHERE 'snowflake' = ANY(parameter_types::text[]) ORDER BY name;
DEALLOCATE ALL;
RESET plan_cache_mode;
SET search_path = public;

\echo -- Foreign keys: each check and each cascade reads by an index
-- Counters that the session has not handed over yet would be shown too.
CREATE FUNCTION scans(schema text, statement text) RETURNS TABLE (relation name, by_index boolean, whole boolean) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', schema || ', public', true);
    EXECUTE statement;
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN QUERY SELECT relname, idx_scan > 0, seq_scan > 0 FROM pg_stat_xact_user_tables
        WHERE schemaname = schema AND relname IN ('t', 'child') ORDER BY relname DESC;
END
$$;
\set statement '$$INSERT INTO child VALUES (99999, 5, 6)$$'
SELECT pg_stat_force_next_flush(); BEGIN; SELECT * FROM scans('s', :statement); ROLLBACK;
SELECT pg_stat_force_next_flush(); BEGIN; SELECT * FROM scans('b', :statement); ROLLBACK;
\set statement '$$DELETE FROM t WHERE id = 6000$$'
SELECT pg_stat_force_next_flush(); BEGIN; SELECT * FROM scans('s', :statement); ROLLBACK;
SELECT pg_stat_force_next_flush(); BEGIN; SELECT * FROM scans('b', :statement); ROLLBACK;
\set statement '$$DELETE FROM child WHERE id = 6000; UPDATE t SET id = 70000 WHERE id = 6000$$'
SELECT pg_stat_force_next_flush(); BEGIN; SELECT * FROM scans('s', :statement); ROLLBACK;
SELECT pg_stat_force_next_flush(); BEGIN; SELECT * FROM scans('b', :statement); ROLLBACK;

\pset format aligned
\pset tuples_only off
\echo -- JSON, and the types of results
CREATE FUNCTION tried(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    it text;
    rows text[];
BEGIN
    IF query ~ '^(SELECT|WITH)' THEN
        FOR it IN EXECUTE query LOOP
            rows := rows || it;
        END LOOP;
    ELSE
        EXECUTE query;
    END IF;
    RETURN coalesce(array_to_string(rows, ' '), 'done');
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END
$$;
CREATE TABLE keys (id snowflake PRIMARY KEY, big bigint, ids snowflake[]);
INSERT INTO keys VALUES (250682904307331098, 250682904307331098, '{250682904307331098,1}');
SELECT row_to_json(k), to_jsonb(id) AS id, to_json(ids) AS ids, json_agg(id) AS agg, jsonb_build_object('id', id, 'big', big) AS built, jsonb_object_agg('id', id) AS object
FROM keys AS k GROUP BY k.*, id, big, ids;
SELECT id::text = to_jsonb(id) #>> '{}' AS text_agrees FROM keys;
SELECT e AS expression, tried(format('SELECT to_json(%s) FROM keys GROUP BY id, big, ids', e)) AS json, tried(format('SELECT pg_typeof(%s) FROM keys GROUP BY id, big, ids', e)) AS type
FROM string_to_table('id;max(id);min(id);coalesce(id, 0);coalesce(id, big);greatest(id, 5);CASE WHEN true THEN id ELSE 5 END;nullif(id, 5);id + 0;-id;sum(id);(id + 0)::snowflake;max(id + 0);max(big)::snowflake;ids[1];array_agg(id);ids || 5', ';') AS e;

\echo -- What is not as with bigint, and what cures it
SET search_path = s, public;
CREATE FUNCTION of_key(snowflake) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::text';
\pset format unaligned
\pset fieldsep ' => '
SELECT query, tried(query), cure, tried(cure) FROM (VALUES
    ('SELECT id FROM t WHERE id = 5.0', 'SELECT id FROM t WHERE id::bigint = 5.0'),
    ('SELECT id FROM t WHERE id = 5::float8', 'SELECT id FROM t WHERE id::bigint = 5::float8'),
    ('SELECT id * 1.5 FROM t WHERE id = 5', 'SELECT id::bigint * 1.5 FROM t WHERE id = 5'),
    ('SELECT round(id) FROM t WHERE id = 5', 'SELECT round(id::bigint) FROM t WHERE id = 5'),
    ('SELECT sign(id) FROM t WHERE id = 5', 'SELECT sign(id::bigint) FROM t WHERE id = 5'),
    ('SELECT sqrt(id) FROM t WHERE id = 9', 'SELECT sqrt(id::bigint) FROM t WHERE id = 9'),
    ('SELECT width_bucket(id, 0, 10, 2) FROM t WHERE id = 7', 'SELECT width_bucket(id::bigint, 0, 10, 2) FROM t WHERE id = 7'),
    ('SELECT corr(id, n) > 0 FROM t', 'SELECT corr(id::bigint, n) > 0 FROM t'),
    ('SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM t WHERE id < 4', 'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id::bigint) FROM t WHERE id < 4'),
    ('SELECT id::float8 FROM t WHERE id = 5', 'SELECT id::bigint::float8 FROM t WHERE id = 5'),
    ('SELECT id::bit(8) FROM t WHERE id = 5', 'SELECT id::bigint::bit(8) FROM t WHERE id = 5'),
    ('SELECT id::oid FROM t WHERE id = 5', 'SELECT id::bigint::oid FROM t WHERE id = 5'),
    ('SELECT 5::float8::snowflake', 'SELECT 5::float8::bigint::snowflake'),
    ($$SELECT '5'::jsonb::snowflake$$, $$SELECT '5'::jsonb::bigint::snowflake$$),
    ($$SELECT (to_jsonb(t)->'id')::bigint FROM t WHERE id = 5$$, $$SELECT (to_jsonb(t)->>'id')::bigint FROM t WHERE id = 5$$),
    ('SELECT ids = ARRAY[5, 6]::bigint[] FROM t WHERE id = 5', 'SELECT ids = ARRAY[5, 6]::snowflake[] FROM t WHERE id = 5'),
    ('SELECT id FROM t WHERE ids @> ARRAY[5]::bigint[]', 'SELECT id FROM t WHERE ids @> ARRAY[5]::snowflake[]'),
    ('SELECT int8range(1, 9) @> id FROM t WHERE id = 5', 'SELECT int8range(1, 9) @> id::bigint FROM t WHERE id = 5'),
    ('CREATE TABLE i (id snowflake GENERATED ALWAYS AS IDENTITY)', 'CREATE TABLE i (id snowflake DEFAULT snowflake_nextval())'),
    ('WITH RECURSIVE r AS (SELECT id FROM t WHERE id = 1 UNION ALL SELECT id + 1 FROM r WHERE id < 3) SELECT id FROM r', 'WITH RECURSIVE r AS (SELECT id FROM t WHERE id = 1 UNION ALL SELECT (id + 1)::snowflake FROM r WHERE id < 3) SELECT id FROM r'),
    ('SELECT of_key(5::bigint)', 'SELECT of_key(5::bigint::snowflake)'),
    ($$CREATE FUNCTION f() RETURNS TABLE (id bigint) LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT t.id FROM t WHERE t.id = 5; END'$$, 'SELECT id FROM f()'),
    ($$CREATE FUNCTION g() RETURNS TABLE (id bigint) LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT t.id::bigint FROM t WHERE t.id = 5; END'$$, 'SELECT id FROM g()'),
    ('SELECT count(*) FROM t WHERE to_jsonb(t) @> $${"id": 5}$$', 'SELECT count(*) FROM t WHERE to_jsonb(t) @> $${"id": "5"}$$')
) AS v (query, cure);
\pset format aligned
\pset fieldsep '|'
SET search_path = public;

\echo -- ALTER TABLE: what has the same file afterwards, and what not
CREATE FUNCTION files() RETURNS TABLE (relation text, file oid) LANGUAGE sql AS $$
    SELECT c.oid::regclass::text, pg_relation_filenode(c.oid) FROM pg_class AS c
    WHERE c.relnamespace = 'b'::regnamespace AND c.relkind IN ('r', 'i') AND c.oid::regclass::text ~ '^b\.(t|child|plain)(_|$)|by_rest|partial'
$$;
CREATE INDEX partial ON b.t (n) WHERE id > 5;
CREATE TEMP TABLE before AS SELECT * FROM files();
PREPARE cached AS SELECT id FROM b.t WHERE id = 5;
EXECUTE cached;
ALTER TABLE b.t ALTER id TYPE snowflake;
ALTER TABLE b.child ALTER t_id TYPE snowflake, ALTER other TYPE snowflake, ALTER id TYPE snowflake;
ALTER TABLE b.plain ALTER t_id TYPE snowflake, ALTER id TYPE snowflake;
SELECT count(*) FILTER (WHERE a.file = f.file) AS same, string_agg(relation, ', ' ORDER BY relation) FILTER (WHERE a.file <> f.file) AS rebuilt FROM before AS f JOIN files() AS a USING (relation);
SELECT count(*) AS statistics FROM pg_stats WHERE schemaname = 'b' AND tablename = 't' AND attname = 'id';
EXECUTE cached;
EXECUTE cached;
DEALLOCATE cached;
VACUUM (ANALYZE) b.t, b.child, b.plain, s.t, s.child, s.plain;
\pset tuples_only on
SELECT * FROM compare(:joins);
\pset tuples_only off
TRUNCATE before;
INSERT INTO before SELECT * FROM files();
ALTER TABLE b.plain ALTER t_id TYPE bigint, ALTER id TYPE bigint;
ALTER TABLE b.child ALTER t_id TYPE bigint, ALTER other TYPE bigint, ALTER id TYPE bigint;
ALTER TABLE b.t ALTER id TYPE bigint;
SELECT count(*) FILTER (WHERE a.file = f.file) AS same, string_agg(relation, ', ' ORDER BY relation) FILTER (WHERE a.file <> f.file) AS rebuilt FROM before AS f JOIN files() AS a USING (relation);

DROP SCHEMA b CASCADE;
DROP SCHEMA s CASCADE;
DROP TABLE keys;
DROP FUNCTION outcome, compare, scans, tried, files;
