-- snowflake_convert_steps() where others have got in its way: names that are taken, triggers,
-- isolation levels, partitions that were detached meanwhile. TAP test 054 has what needs
-- several sessions.
SET timezone = 'UTC';
\set SHOW_CONTEXT never
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
CREATE SCHEMA o;
SET search_path = o, public;
CREATE FUNCTION o.obstacles(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(tables, online => true) WHERE action = 'obstacle' ORDER BY 1 $$;
CREATE FUNCTION o.indexes(relation regclass) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT concat_ws(' ', c.relname, t.spcname) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    LEFT JOIN pg_tablespace AS t ON t.oid = c.reltablespace WHERE i.indrelid = relation ORDER BY 1 $$;

-- A function that another role has made before, with the text of ours.
CREATE ROLE convert_edges_owner;
CREATE ROLE convert_edges_other;
GRANT CREATE, USAGE ON SCHEMA o TO convert_edges_owner, convert_edges_other;
SET ROLE convert_edges_owner;
CREATE TABLE t (id serial PRIMARY KEY);
SET ROLE convert_edges_other;
CREATE FUNCTION o.t__bigint() RETURNS trigger LANGUAGE plpgsql AS E'BEGIN\n    NEW.id__bigint := NEW.id;\n    RETURN NEW;\nEND';
RESET ROLE;
SELECT obstacles('t');
-- Made between the list and its use.
DROP FUNCTION o.t__bigint();
SELECT statement AS make FROM snowflake_convert_steps('{t}') WHERE statement LIKE 'CREATE FUNCTION %' \gset
SET ROLE convert_edges_other;
CREATE FUNCTION o.t__bigint() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
RESET ROLE;
:make;
ALTER TABLE t ADD COLUMN id__bigint bigint;
CREATE TRIGGER "~snowflake_convert" BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION o.t__bigint();
ALTER TABLE t ENABLE ALWAYS TRIGGER "~snowflake_convert";
SELECT _snowflake_convert.check_copying('t');
DROP TABLE t;
DROP FUNCTION o.t__bigint();

-- Columns, indexes and constraints whose names end as those of copies do.
CREATE TABLE names (id serial PRIMARY KEY, id__bigint bigint, other int);
INSERT INTO names (id__bigint) VALUES (77);
SELECT obstacles('names');
SELECT statement FROM snowflake_convert_undo('{names}');
CALL snowflake_convert('{names}');
SELECT id, id__bigint FROM names;
DROP TABLE names;
CREATE TABLE names (id serial PRIMARY KEY, parent int, CONSTRAINT key__bigint FOREIGN KEY (parent) REFERENCES names, CONSTRAINT check__bigint CHECK (id > 0));
CREATE INDEX parents__bigint ON names (parent);
CREATE INDEX parents ON names (parent, id);
SELECT obstacles('names');
ALTER INDEX parents RENAME TO pairs;
ALTER TABLE names ADD CONSTRAINT key FOREIGN KEY (parent) REFERENCES names;
SELECT obstacles('names');
ALTER TABLE names DROP CONSTRAINT key;
CREATE TEMPORARY TABLE before_it AS SELECT conname, contype, convalidated FROM pg_constraint WHERE conrelid = 'names'::regclass AND contype <> 'n';
INSERT INTO names SELECT n, n FROM generate_series(1, 10) AS n;
SET client_min_messages = warning;
SELECT statement FROM snowflake_convert_steps('{names}') \gexec
RESET client_min_messages;
SELECT indexes('names');
(TABLE before_it EXCEPT SELECT conname, contype, convalidated FROM pg_constraint WHERE conrelid = 'names'::regclass);
SELECT count(*) FROM pg_constraint WHERE conrelid = 'names'::regclass AND contype <> 'n';
SELECT col_description('names'::regclass, attnum) FROM pg_attribute WHERE attrelid = 'names'::regclass AND attname = 'id';
SELECT attname, null_frac FROM pg_stats WHERE schemaname = 'o' AND tablename = 'names' ORDER BY 1;
SELECT statement FROM snowflake_convert_undo('{names}');

-- A name of 55 bytes.
CREATE TABLE long (a234567890123456789012345678901234567890123456789012345 serial PRIMARY KEY);
SET client_min_messages = warning;
SELECT statement FROM snowflake_convert_steps('{long}') \gexec
RESET client_min_messages;
SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'long'::regclass AND attnum > 0 AND NOT attisdropped;

-- Tablespaces of indexes, also where the condition has the word.
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE convert_edges LOCATION '';
CREATE TABLE spaces (id serial PRIMARY KEY USING INDEX TABLESPACE convert_edges, note text);
CREATE INDEX partial ON spaces (id) TABLESPACE convert_edges WHERE CASE WHEN note <> ' WHERE note' THEN id > 1 ELSE false END;
CREATE INDEX plain ON spaces (id, note) WITH (fillfactor = 80) TABLESPACE convert_edges;
CREATE TABLE space_parts (id serial, at date, PRIMARY KEY (id, at) USING INDEX TABLESPACE convert_edges) PARTITION BY RANGE (at);
CREATE TABLE space_part PARTITION OF space_parts DEFAULT;
SET client_min_messages = warning;
SELECT statement FROM snowflake_convert_steps('{spaces, space_parts}') \gexec
RESET client_min_messages;
SELECT indexes('spaces');
SELECT indexes('space_parts');
SELECT indexes('space_part');
DROP TABLE spaces, space_parts;
DROP TABLESPACE convert_edges;

-- A trigger that could change a key after it has been copied; a foreign key to an index
-- that is made again.
CREATE FUNCTION o.set_key() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := 5; RETURN NEW; END';
CREATE TABLE keyed (id serial PRIMARY KEY);
CREATE TABLE of_keyed (code int, k_id int REFERENCES keyed, PRIMARY KEY (code) INCLUDE (k_id));
CREATE TABLE of_codes (code int REFERENCES of_keyed);
CREATE TRIGGER "~~last" BEFORE INSERT ON keyed FOR EACH ROW EXECUTE FUNCTION o.set_key();
SELECT obstacles('keyed');
DROP TABLE of_codes, of_keyed, keyed;

-- Privileges on columns: roles that may read a column may read its copy, so that SELECT * goes
-- on. After the swap, they are those that the column had then.
CREATE TABLE granted (id serial, at date, v int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE granted_1 PARTITION OF granted DEFAULT;
CREATE TABLE of_granted (id int, at date, v int, FOREIGN KEY (id, at) REFERENCES granted);
INSERT INTO granted VALUES (1, '2026-01-01', 2);
GRANT SELECT (id, at, v), UPDATE (id) ON granted TO convert_edges_other;
GRANT SELECT (id) ON granted_1 TO PUBLIC;
GRANT SELECT (id), SELECT (v) ON of_granted TO convert_edges_other WITH GRANT OPTION;
GRANT INSERT (id) ON of_granted TO PUBLIC;
CREATE VIEW privileges AS SELECT a.attrelid::regclass, a.attname, (SELECT array_agg(replace(x::text, current_user, 'me') ORDER BY x::text) FROM unnest(a.attacl) AS x)
    FROM pg_attribute AS a WHERE a.attrelid::regclass IN ('granted', 'granted_1', 'of_granted') AND a.attacl IS NOT NULL AND NOT a.attisdropped ORDER BY 1, 2;
TABLE privileges;
SELECT statement FROM snowflake_convert_steps('{granted}') WHERE statement LIKE '%ADD COLUMN%' \gexec
TABLE privileges;
SET ROLE convert_edges_other;
SELECT * FROM granted;
RESET ROLE;
REVOKE SELECT (id) ON granted_1 FROM PUBLIC;
\set ECHO none
SET client_min_messages = warning;
SELECT statement FROM snowflake_convert_steps('{granted}') \gexec
RESET client_min_messages;
\set ECHO all
TABLE privileges;
SET ROLE convert_edges_other;
SELECT * FROM granted;
RESET ROLE;
DROP VIEW privileges;
DROP TABLE of_granted, granted;

-- Temporary tables are converted at once only.
CREATE TEMPORARY TABLE passing (id serial PRIMARY KEY, parent int REFERENCES passing);
CREATE TEMPORARY VIEW of_passing AS SELECT id, parent FROM passing;
INSERT INTO passing (parent) VALUES (1);
SELECT obstacles('passing');
SELECT statement FROM snowflake_convert_steps('{passing}');
CALL snowflake_convert('{passing}');
INSERT INTO passing DEFAULT VALUES;
SELECT pg_typeof(id), pg_typeof(parent), id > 1000000, parent FROM of_passing ORDER BY id;
CREATE TEMPORARY TABLE passing_rows (id serial PRIMARY KEY, created_at timestamptz DEFAULT '2026-01-01Z');
INSERT INTO passing_rows DEFAULT VALUES;
CALL snowflake_convert('{passing_rows}', backfill => true, worker_id => 1000);
SELECT snowflake_timestamp(id) FROM passing_rows;
DROP VIEW of_passing;
DROP TABLE passing, passing_rows, pg_temp.snowflake_old_ids;

-- Unique indexes that no foreign key needs are built last.
CREATE TABLE upserts (id serial PRIMARY KEY, at date, UNIQUE (id, at));
CREATE INDEX upserts_at ON upserts (at, id);
CREATE TABLE of_upserts (id int REFERENCES upserts);
SELECT substr(statement, 1, 60) FROM snowflake_convert_steps('{upserts}') WHERE statement LIKE 'CREATE %INDEX %' OR statement LIKE '%FOREIGN KEY%' ORDER BY step;

-- All locks have one deadline. The tables of what is made again are locked too.
CALL snowflake_convert_run($$CREATE TABLE o.seen AS SELECT current_setting('lock_timeout')::interval <= '300 ms' AS less$$, ARRAY['SELECT pg_sleep(0.2)']);
TABLE seen;
CALL snowflake_convert_run('DO $$BEGIN RAISE lock_not_available; END$$', tries => 1);
CREATE TABLE other (name text);
CREATE POLICY p ON other USING (EXISTS (SELECT FROM upserts WHERE upserts.id > 0));
CREATE VIEW low AS SELECT id FROM upserts;
CREATE MATERIALIZED VIEW high AS SELECT id FROM low;
SELECT replace(statement, current_user, 'me') FROM snowflake_convert_plan('{upserts}', online => true) WHERE action = 'swap' LIMIT 6;

-- Other isolation levels.
SET default_transaction_isolation = 'repeatable read';
CALL snowflake_convert_run('SELECT 1');
CALL snowflake_convert_swap('{upserts}');
RESET default_transaction_isolation;
SELECT statement FROM snowflake_convert_steps('{upserts}') WHERE step <= 4 \gexec
SET default_transaction_isolation = 'serializable';
INSERT INTO upserts (at) VALUES ('2026-01-01');
CALL snowflake_convert_backfill('upserts');
RESET default_transaction_isolation;

-- A foreign key that is dropped meanwhile, and a partition that is detached: undo removes
-- the copies of both.
CREATE TABLE parts (id int REFERENCES upserts, at date) PARTITION BY RANGE (at);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
SELECT statement FROM snowflake_convert_steps('{upserts}') WHERE statement ~ 'parts|of_upserts' AND statement ~ 'ADD COLUMN|FUNCTION|TRIGGER|CHECK' ORDER BY step \gexec
ALTER TABLE of_upserts DROP CONSTRAINT of_upserts_id_fkey;
ALTER TABLE parts DETACH PARTITION part;
CREATE FUNCTION o.part__bigint() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT count(*) FROM snowflake_convert_undo('{upserts}');
SET client_min_messages = warning;
SELECT statement FROM snowflake_convert_undo('{upserts, of_upserts}') \gexec
RESET client_min_messages;
SELECT attrelid::regclass, attname FROM pg_attribute WHERE attrelid::regclass IN ('upserts', 'of_upserts', 'parts', 'part') AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2;
SELECT proname FROM pg_proc WHERE pronamespace = 'o'::regnamespace AND proname ~ '__bigint$';
SELECT count(*) FROM pg_constraint WHERE conname ~ '^[=~]';
SELECT count(*) FROM pg_trigger WHERE tgname = '~snowflake_convert';
SELECT statement FROM snowflake_convert_undo('{upserts, of_upserts}');

SET client_min_messages = warning;
DROP SCHEMA o CASCADE;
DROP ROLE convert_edges_owner, convert_edges_other;
