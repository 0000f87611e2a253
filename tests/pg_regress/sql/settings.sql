-- Settings of a session that change how PostgreSQL writes and reads names and texts.
CREATE SCHEMA st;
SET search_path = st, public;
SET timezone = 'UTC';
-- PostgreSQL 19 has no other strings than standard ones.
SELECT CASE WHEN is_old THEN 'SET standard_conforming_strings = off; SET escape_string_warning = off;' ELSE '' END AS odd_strings,
    CASE WHEN is_old THEN 'RESET standard_conforming_strings; RESET escape_string_warning;' ELSE '' END AS even_strings
FROM (SELECT current_setting('server_version_num')::int < 190000 AS is_old) AS s \gset
\set odd :odd_strings 'SET quote_all_identifiers = on; SET DateStyle = ''SQL, DMY''; SET IntervalStyle = sql_standard; SET extra_float_digits = -10; SET xmloption = document; SET bytea_output = escape;'
\set even :even_strings 'RESET quote_all_identifiers; RESET DateStyle; RESET IntervalStyle; RESET extra_float_digits; RESET xmloption; RESET bytea_output;'
SELECT snowflake_create_generator('other_ids', 'preset=default');

CREATE TABLE kinds (id serial PRIMARY KEY, name text);
CREATE TABLE "Ord\ers" (
    id serial PRIMARY KEY, kind int REFERENCES kinds, note text DEFAULT 'a\b', at timestamptz DEFAULT '2024-02-01 00:00Z',
    CONSTRAINT "ch\eck" CHECK (note !~ '\ySTOP\y' AND id > 0));
CREATE INDEX part ON "Ord\ers" (id) WHERE note ~ '^\w\\' AND at > '2024-02-01 00:00Z';
CREATE INDEX expr ON "Ord\ers" ((note || '\' || id), id DESC NULLS LAST) INCLUDE (kind) WITH (fillfactor = 80);
CREATE INDEX call ON "Ord\ers" (abs(id), (id % 10)) WHERE kind IS NOT NULL;
CREATE VIEW shown AS SELECT id, note ~ '\d' AS has_digit, id * 1.23456789012345678::float8 AS f, '2024-02-01'::date AS d,
    '-1 day +02:00'::interval AS i, '\x00ff\\'::text AS t, '\x00ff'::bytea AS b FROM "Ord\ers";
CREATE FUNCTION refund(order_id integer) RETURNS text LANGUAGE sql AS $$SELECT note FROM st."Ord\ers" WHERE id = order_id$$;
CREATE TABLE kept_for (kind_id integer, orders_id integer);
INSERT INTO kinds (name) SELECT 'n' FROM generate_series(1, 3);
INSERT INTO "Ord\ers" (kind, note, at) SELECT n % 3 + 1, 'x' || E'\\' || n, timestamptz '2025-03-01Z' + n * interval '1 hour' FROM generate_series(1, 100) AS n;

-- All plans are the same, word by word, and none of them is empty.
CREATE FUNCTION pg_temp.plans() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT 'at once: ' || p.line FROM (SELECT p::text FROM public.snowflake_convert_plan(schemas => '{st}', generator => 'st.other_ids') AS p) AS p (line)
    UNION ALL
    SELECT 'old rows: ' || p.line FROM (SELECT p::text FROM public.snowflake_convert_plan(schemas => '{st}', backfill => true, worker_id => 1000) AS p) AS p (line)
    UNION ALL
    SELECT 'online: ' || p.line FROM (SELECT p::text FROM public.snowflake_convert_plan(schemas => '{st}', generator => 'st.other_ids', online => true) AS p) AS p (line)
    UNION ALL
    SELECT 'steps: ' || s.statement FROM public.snowflake_convert_steps(schemas => '{st}') AS s
$$;
CREATE TEMP TABLE of_even AS SELECT p AS line FROM pg_temp.plans() AS p;
:odd
CREATE TEMP TABLE of_odd AS SELECT p AS line FROM pg_temp.plans() AS p;
:even
SELECT split_part(line, ':', 1) AS plan, count(*) > 3 AS is_there, bool_or(line ~ 'has integers') AS has_note, bool_or(line ~ 'part__bigint') AS has_index FROM of_even GROUP BY 1 ORDER BY 1;
(TABLE of_even EXCEPT TABLE of_odd) UNION ALL (TABLE of_odd EXCEPT TABLE of_even);

-- Tables in use. The client reads the statements.
CREATE TEMP TABLE before AS
    SELECT pg_get_viewdef('shown') AS shown, pg_get_indexdef('part'::regclass) AS part, pg_get_indexdef('expr'::regclass) AS expr, pg_get_indexdef('call'::regclass) AS call,
    pg_get_constraintdef((SELECT oid FROM pg_constraint WHERE conname = 'ch\eck')) AS "check",
    (SELECT md5(string_agg(v::text, E'\n' ORDER BY v.id)) FROM shown AS v) AS rows;
CREATE VIEW after AS
    SELECT pg_get_viewdef('shown') AS shown, pg_get_indexdef('part'::regclass) AS part, pg_get_indexdef('expr'::regclass) AS expr, pg_get_indexdef('call'::regclass) AS call,
    pg_get_constraintdef((SELECT oid FROM pg_constraint WHERE conname = 'ch\eck')) AS "check",
    (SELECT md5(string_agg(v::text, E'\n' ORDER BY v.id)) FROM shown AS v) AS rows;
SELECT * FROM before EXCEPT SELECT * FROM after;
SELECT statement FROM snowflake_convert_steps('{kinds}') WHERE statement LIKE 'CREATE INDEX %';
:odd
\set ECHO none
SET client_min_messages = warning;
SELECT statement FROM snowflake_convert_steps(schemas => '{st}', generator => 'other_ids') \gexec
RESET client_min_messages;
\set ECHO all
SELECT count(*) FROM snowflake_convert_steps(schemas => '{st}', generator => 'other_ids');
:even
SELECT part, expr, call, "check" FROM after;
SELECT b.part = a.part, b."check" = a."check", b.rows = a.rows, b.shown = a.shown FROM before AS b CROSS JOIN after AS a;
SELECT attrelid::regclass, attname, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid IN ('kinds'::regclass, '"Ord\ers"'::regclass) AND attname IN ('id', 'kind') ORDER BY 1, 2;

-- At once; set_default() finds its own default again.
DROP VIEW after;
CREATE TABLE again (id serial PRIMARY KEY, note text CHECK (note <> '\d'));
CREATE VIEW of_again AS SELECT id, note ~ '\d\\' AS has_digit, id * 1.23456789012345678::float8 AS f, '2024-02-01'::date AS d FROM again;
SELECT pg_get_viewdef('of_again') AS of_again \gset
:odd
SET client_min_messages = warning;
CALL snowflake_convert('{again}', generator => 'other_ids');
SELECT snowflake_set_default('again', 'id', 'other_ids');
SELECT snowflake_set_default('again');
SELECT snowflake_set_default('again');
SELECT severity, count(*) FROM snowflake_check('again') GROUP BY 1;
:even
SELECT pg_get_viewdef('of_again') = :'of_again' AS is_same;

DROP SCHEMA st CASCADE;

-- What parses, compares or makes statements depends on settings. All that a user, a client, another
-- node or the library calls fixes them; what only such functions call has them fixed.
RESET client_min_messages;
WITH RECURSIVE functions AS MATERIALIZED (
    SELECT p.oid AS id, n.nspname || '.' || p.proname AS name, p.prosrc,
        n.nspname ~ '^_' AND p.proname !~ '^snowflake_' AND p.proname NOT IN ('default_generators', 'end_conversion',
            'has_default', 'place_generator', 'readiness', 'try_generator') AS is_internal
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
    WHERE NOT coalesce(p.proconfig @> '{quote_all_identifiers=off,standard_conforming_strings=on}', false)
      -- A procedure that ends transactions.
      AND p.prosrc !~ 'fix_settings'),
reached AS (
    SELECT f.* FROM functions AS f WHERE NOT f.is_internal
    UNION
    SELECT f.* FROM reached AS r JOIN functions AS f ON r.prosrc ~ ('\m' || f.name || '\('))
SELECT r.id::regprocedure AS depends_on_settings FROM reached AS r
WHERE r.prosrc ~ '[\\]|pg_get_|quote_ident|%[0-9$]*[IL]|EXECUTE' ORDER BY 1;
