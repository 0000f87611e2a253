-- What would refuse new IDs is tried on copies of the tables, before anything is locked or rewritten.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE SCHEMA ct;
SET search_path = ct, public;
CREATE FUNCTION obstacles(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT regexp_replace(note, '"[0-9]+"', '"..."') FROM snowflake_convert_plan(tables) WHERE action = 'obstacle' $$;
CREATE FUNCTION online(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(tables, online => true) WHERE action = 'obstacle' $$;
CREATE FUNCTION bucket(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 % 10';
CREATE FUNCTION is_even(int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 % 2 = 0';
CREATE FUNCTION does() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''fired''; END';

-- A function of integers, wherever it is.
CREATE TABLE t (id serial PRIMARY KEY, v int, g int GENERATED ALWAYS AS (bucket(id)) STORED, CONSTRAINT even CHECK (is_even(id) IS NOT NULL));
CREATE INDEX by_bucket ON t (bucket(id));
CREATE INDEX evens ON t (v) WHERE is_even(id);
CREATE STATISTICS of_bucket ON bucket(id), v FROM t;
CREATE POLICY evens ON t USING (is_even(id));
CREATE TRIGGER does AFTER INSERT ON t FOR EACH ROW WHEN (is_even(new.id)) EXECUTE FUNCTION does();
CREATE VIEW buckets AS SELECT bucket(id) AS b FROM t;
CREATE VIEW of_buckets AS SELECT b FROM buckets;
CREATE MATERIALIZED VIEW kept_buckets AS SELECT bucket(id) AS b FROM t;
SELECT obstacles('t');
SELECT online('t');
CALL snowflake_convert('{t}');
SELECT count(*) FROM snowflake_convert_steps('{t}');
-- Nothing stays of the trial, and one that takes bigint is enough.
SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema();
CREATE FUNCTION bucket(bigint) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT ($1 % 10)::int';
CREATE FUNCTION is_even(bigint) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 % 2 = 0';
SELECT obstacles('t');
DROP TABLE t CASCADE;

-- Conditions and casts, of a table with a row and of an empty one.
CREATE TABLE cast_back (id serial PRIMARY KEY, v text, b int GENERATED ALWAYS AS ((id::text)::int) STORED);
CREATE INDEX cast_index ON cast_back ((id::bigint::integer));
CREATE INDEX cast_where ON cast_back (v) WHERE id::text::smallint > 0;
CREATE INDEX cast_literal ON cast_back (v) WHERE id > '-5'::integer AND v <> ':: x::integer';
CREATE VIEW cast_view AS SELECT (id::text)::integer AS n FROM cast_back;
CREATE TABLE small (id serial PRIMARY KEY CHECK (id < 2147483647), kind text NOT NULL CHECK (kind <> ''), other_id int, CONSTRAINT one CHECK (num_nonnulls(kind, other_id) = 1),
    self_id int REFERENCES small, CHECK (self_id <= id));
SELECT obstacles('cast_back', 'small');
INSERT INTO cast_back DEFAULT VALUES;
INSERT INTO small (kind, self_id) VALUES ('k', 1), ('l', 1);
SELECT obstacles('cast_back', 'small');
-- Types alone are no obstacle.
SELECT note FROM snowflake_convert_plan('{cast_back, small}', set_default => false) WHERE action = 'obstacle';
DROP TABLE cast_back, small CASCADE;

-- Rules write into copies.
CREATE TABLE ruled (id serial PRIMARY KEY, v text);
CREATE TABLE log (x int, y bigint);
CREATE TRIGGER does AFTER INSERT OR UPDATE OR DELETE ON log FOR EACH STATEMENT EXECUTE FUNCTION does();
CREATE VIEW of_log AS SELECT x FROM log;
CREATE RULE inserts AS ON INSERT TO ruled DO ALSO INSERT INTO log VALUES (new.id);
CREATE RULE updates AS ON UPDATE TO ruled DO ALSO INSERT INTO log VALUES (old.id);
CREATE RULE has_room AS ON INSERT TO ruled DO ALSO INSERT INTO log (y) VALUES (new.id);
CREATE RULE disabled AS ON INSERT TO ruled DO ALSO INSERT INTO log VALUES (new.id);
ALTER TABLE ruled DISABLE RULE disabled;
CREATE RULE by_view AS ON INSERT TO ruled DO ALSO INSERT INTO of_log VALUES (new.id);
SELECT obstacles('ruled');
ALTER TABLE log DISABLE TRIGGER does;
INSERT INTO ruled (v) VALUES ('x');
ALTER TABLE log ENABLE TRIGGER does;
SELECT obstacles('ruled');
DROP TABLE ruled, log CASCADE;

-- Operator classes, and names that two tables have.
CREATE TABLE classes (id serial PRIMARY KEY, v int);
CREATE INDEX by_class ON classes USING brin (id int4_minmax_multi_ops);
CREATE INDEX by_expression ON classes USING brin ((id + 1) int4_minmax_multi_ops);
CREATE INDEX of_others ON classes USING brin (v int4_minmax_multi_ops);
CREATE INDEX by_default ON classes USING brin (id int4_minmax_ops, v int4_minmax_multi_ops);
SELECT obstacles('classes');
CREATE SCHEMA ct_two;
CREATE TABLE ct_two.classes (id serial PRIMARY KEY, classes_id int REFERENCES classes, whole text);
CREATE VIEW both_classes AS SELECT a.id, b.id AS other, b FROM classes AS a JOIN ct_two.classes AS b ON a.id = b.classes_id;
CREATE FUNCTION of_row(ct_two.classes) RETURNS text LANGUAGE sql AS 'SELECT $1.whole';
CREATE VIEW of_rows AS SELECT of_row(b) FROM ct_two.classes AS b;
CREATE TEMP TABLE classes_two (id int);
DROP INDEX by_class, by_expression, by_default;
CREATE TEMP TABLE classes (id serial PRIMARY KEY);
SELECT obstacles('ct.classes', 'ct_two.classes');
DROP TABLE pg_temp.classes;
CALL snowflake_convert('{ct.classes, ct_two.classes}');
DROP SCHEMA ct_two CASCADE;

-- A copy has a row type of its own, which is no obstacle.
CREATE TABLE rowed (id serial PRIMARY KEY, whole text);
CREATE FUNCTION of_rowed(rowed) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN $1.whole; END';
CREATE VIEW of_rows AS SELECT of_rowed(r) FROM rowed AS r;
SELECT obstacles('rowed');
CALL snowflake_convert('{rowed}');
DROP TABLE rowed CASCADE;
CREATE TABLE whole (id bigserial PRIMARY KEY CHECK (id > 0), v text);
CREATE FUNCTION of_whole(whole) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1.v';
CREATE INDEX ON whole (of_whole(whole));
SELECT left(snowflake_set_default('whole'), 30);
DROP TABLE whole CASCADE;

-- Functions that name objects without a schema: the obstacle says which.
CREATE FUNCTION inner_of(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT lower($1)';
CREATE FUNCTION outer_of(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT inner_of($1)';
CREATE FUNCTION late_of(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN inner_of($1); END';
CREATE TABLE people (id serial PRIMARY KEY, name text);
CREATE INDEX by_outer ON people (outer_of(name));
CREATE INDEX by_late ON people (late_of(name));
INSERT INTO people (name) VALUES ('A');
\c
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
SET search_path = ct, public;
SET client_min_messages = warning;
SELECT obstacles('people');
ALTER FUNCTION outer_of(text) SET search_path = ct, pg_temp;
ALTER FUNCTION late_of(text) SET search_path = ct, pg_temp;
CALL snowflake_convert('{people}');
INSERT INTO people (name) VALUES ('B');
-- What reads the table alone needs no path.
ALTER FUNCTION outer_of(text) RESET ALL;
ALTER FUNCTION late_of(text) RESET ALL;
ALTER TABLE people ALTER id DROP DEFAULT;
\c
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SELECT snowflake_set_default('ct.people');
ALTER ROLE CURRENT_USER SET search_path = public, ct;
\c
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
ALTER ROLE CURRENT_USER RESET search_path;
SELECT left(snowflake_set_default('people'), 50);
SELECT finding FROM snowflake_check('people') WHERE finding = 'all IDs';
SET search_path = ct, public;

-- Keys that are bigint already.
CREATE TABLE parts (id bigserial PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM (1) TO (1000);
CREATE TABLE large (id bigserial PRIMARY KEY);
INSERT INTO large VALUES (8900000000000000000);
CREATE TABLE narrow (id bigserial PRIMARY KEY CHECK (id < 2147483648), v text);
CREATE TABLE casts (id bigserial PRIMARY KEY, v text);
CREATE INDEX of_casts ON casts ((id::int));
CREATE TABLE to_change (id serial PRIMARY KEY);
SELECT obstacles('parts', 'large', 'narrow', 'casts', 'to_change');
SELECT online('parts', 'large', 'narrow', 'casts', 'to_change');
SELECT snowflake_set_default('narrow');
SELECT snowflake_set_default('casts');
DROP TABLE people, classes CASCADE;
CREATE TABLE logged (id bigserial PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE logged_1 PARTITION OF logged FOR VALUES FROM (1) TO (2000000);
CREATE TABLE logged_rest PARTITION OF logged DEFAULT;
CREATE TABLE wide_logged (id bigserial PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE wide_logged_1 PARTITION OF wide_logged FOR VALUES FROM (1) TO (9000000000000000000);
CREATE TABLE wide_logged_rest PARTITION OF wide_logged DEFAULT;
SELECT relation, is_set, severity, result FROM snowflake_set_defaults('ct') WHERE severity <> 'info';
-- What cannot be read is said without the whole query.
CREATE TABLE by_rows (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
CREATE ROLE regress_ct_reader;
GRANT SELECT ON by_rows TO regress_ct_reader;
GRANT USAGE ON SCHEMA ct TO regress_ct_reader;
ALTER TABLE by_rows ENABLE ROW LEVEL SECURITY;
SET ROLE regress_ct_reader;
DO $$
DECLARE
    context text;
BEGIN
    PERFORM snowflake_check('ct.by_rows');
EXCEPTION WHEN insufficient_privilege THEN
    GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
    RAISE WARNING '%: %', SQLERRM, context ~ 'instant_or_null';
END
$$;
RESET ROLE;
DROP TABLE by_rows;
DROP OWNED BY regress_ct_reader;
DROP ROLE regress_ct_reader;

-- A transaction that may not write tries nothing.
BEGIN READ ONLY;
SELECT count(*) FROM snowflake_convert_plan('{to_change, casts}') WHERE action = 'obstacle';
ROLLBACK;
SELECT count(*) FROM snowflake_convert_plan('{to_change, casts}') WHERE action = 'obstacle';

-- The owner's code runs as the owner.
CREATE ROLE regress_ct_owner;
GRANT USAGE, CREATE ON SCHEMA ct TO regress_ct_owner;
SET ROLE regress_ct_owner;
CREATE FUNCTION who(n bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN IF n > 1000 THEN RAISE EXCEPTION ''run by %'', current_user; END IF; RETURN n; END';
CREATE TABLE of_owner (id serial PRIMARY KEY, v text CHECK (pg_catalog.length(v) > 0));
CREATE VIEW by_owner AS SELECT id FROM of_owner;
INSERT INTO of_owner (v) VALUES ('a');
CREATE INDEX ON of_owner (ct.who(id));
RESET ROLE;
SELECT obstacles('of_owner');
DROP SCHEMA ct CASCADE;
DROP OWNED BY regress_ct_owner;
DROP ROLE regress_ct_owner;
