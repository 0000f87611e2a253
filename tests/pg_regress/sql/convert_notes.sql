-- What the plan of snowflake_convert() says of what it cannot change, and what it refuses.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE SCHEMA cn;
SET search_path = cn, public;
CREATE FUNCTION cn.notes(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(tables) WHERE action = 'note' $$;
CREATE FUNCTION cn.online(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT action || ': ' || note FROM snowflake_convert_plan(tables, online => true) WHERE action IN ('note', 'obstacle') $$;
CREATE FUNCTION cn.obstacles(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(tables) WHERE action = 'obstacle' $$;

-- Who knows the columns of a table, or counts keys.
CREATE ROLE regress_cn_reader;
CREATE ROLE regress_cn_other;
CREATE TABLE shape (id serial PRIMARY KEY, v int);
CREATE FUNCTION rows_of() RETURNS SETOF shape LANGUAGE sql AS 'SELECT id, v FROM shape';
CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO shape_old SELECT OLD.*; RETURN OLD; END';
CREATE TRIGGER keeps BEFORE DELETE ON shape FOR EACH ROW EXECUTE FUNCTION keeps();
GRANT SELECT (id, v), INSERT (v) ON shape TO regress_cn_reader;
GRANT INSERT ON shape TO PUBLIC;
SELECT online('shape');
-- Who inserts rows, also by privileges on columns alone.
SELECT snowflake_create_generator('cn.ids', 'preset=default');
SELECT note FROM snowflake_convert_plan('{shape}', generator => 'cn.ids') WHERE step IS NULL;
CREATE TABLE counted (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
SELECT notes('counted', 'shape');
SELECT count(*) FROM snowflake_convert_plan('{counted}', set_default => false) WHERE action = 'note';
CREATE TABLE generated (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
SELECT note FROM snowflake_convert_plan('{generated}', generator => 'cn.ids') WHERE step IS NULL;
CREATE TABLE named (id bigint PRIMARY KEY DEFAULT snowflake_nextval('cn.ids'));
SELECT note FROM snowflake_convert_plan('{named}') WHERE step IS NULL;

-- Old keys that are written as numbers.
CREATE TABLE status (id serial PRIMARY KEY, name text, created_at timestamptz, is_first boolean GENERATED ALWAYS AS (id = 1) STORED);
CREATE TABLE ticket (id serial PRIMARY KEY, status_id int DEFAULT 1 REFERENCES status, other_id int DEFAULT NULL REFERENCES status,
    created_at timestamptz, v2 int, CHECK (status_id < 9));
CREATE INDEX firsts ON ticket (v2) WHERE status_id = 1;
CREATE INDEX others ON ticket (v2) WHERE status_id IS NOT NULL;
CREATE INDEX apart ON ticket (v2) WHERE v2 = 1;
CREATE VIEW firsts_of AS SELECT v2 FROM ticket WHERE status_id = 1;
CREATE VIEW all_of AS SELECT v2, status_id FROM ticket;
CREATE POLICY p ON ticket USING (status_id <> 2);
CREATE FUNCTION by_number() RETURNS text LANGUAGE sql AS 'SELECT name FROM status WHERE id = 1';
CREATE FUNCTION by_name() RETURNS text LANGUAGE sql AS 'SELECT max(name) FROM status';
SELECT note FROM snowflake_convert_plan('{status, ticket}', backfill => true, worker_id => 1000) WHERE step IS NULL;
SELECT notes('status', 'ticket');

-- What makes an integer of a key again is an obstacle if each INSERT fails, else a note.
CREATE TABLE forced (id serial PRIMARY KEY, v text, b int GENERATED ALWAYS AS ((id::text)::int) STORED, c text GENERATED ALWAYS AS (id::text) STORED);
CREATE INDEX forced_back ON forced ((id::bigint::integer));
CREATE INDEX forced_some ON forced ((id::bigint::integer)) WHERE v = 'x';
CREATE INDEX forced_where ON forced (v) WHERE id::text::smallint > 0;
CREATE INDEX forced_literal ON forced (v) WHERE id > '-5'::integer AND v <> ':: x::integer';
CREATE INDEX forced_other ON forced ((v::integer));
CREATE TABLE forced_big (id bigserial PRIMARY KEY, v text);
CREATE INDEX forced_bigint ON forced_big ((id::integer));
SELECT notes('forced', 'forced_big');
SELECT obstacles('forced', 'forced_big');
\set VERBOSITY terse
SELECT snowflake_set_default('forced_big');
DROP INDEX forced_back, forced_some, forced_where;
ALTER TABLE forced DROP COLUMN b;
CALL snowflake_convert('{forced}');
INSERT INTO forced (v) VALUES ('1');
DROP TABLE forced, forced_big;
-- Conditions by plain comparisons: the least ID is above 2,147,483,647.
CREATE TABLE small (id serial PRIMARY KEY CHECK (id > 0 AND id < 2147483648), "a key" int REFERENCES small CHECK ("a key" BETWEEN 1 AND 1000), v int CHECK (v < 5),
    CONSTRAINT either CHECK (id < 5 OR v > 0), CONSTRAINT other CHECK (id > -5 AND v <= 9), CONSTRAINT large CHECK (id <= 9000000000000000000), CONSTRAINT one CHECK (id = 7));
SELECT obstacles('small');
SELECT n FROM notes('small') AS n WHERE n LIKE 'constraint%';
SELECT count(*) FROM snowflake_convert_plan('{small}', set_default => false) WHERE action = 'obstacle';
ALTER TABLE small ALTER id TYPE bigint, ALTER "a key" TYPE bigint, DROP CONSTRAINT one;
SELECT snowflake_set_default('small');
\set VERBOSITY default
-- An operator of somebody else is no plain comparison.
CREATE SCHEMA cn_three;
CREATE FUNCTION cn_three.always(bigint, integer) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR cn_three.< (FUNCTION = cn_three.always, LEFTARG = bigint, RIGHTARG = integer);
CREATE TABLE shadowed (id bigserial PRIMARY KEY CHECK (id OPERATOR(cn_three.<) 5));
SELECT obstacles('shadowed');
DROP TABLE small, shadowed;
DROP SCHEMA cn_three CASCADE;
-- Keys that are bigint already, and partitions.
CREATE TABLE parts (id bigserial PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM (1) TO (1000);
CREATE TABLE large (id bigserial PRIMARY KEY);
INSERT INTO large VALUES (8900000000000000000);
CREATE TABLE to_change (id serial PRIMARY KEY);
SELECT regexp_replace(o, '[0-9]{19}', '...') FROM obstacles('parts', 'large', 'to_change') AS o;
SELECT regexp_replace(o, '[0-9]{19}', '...') FROM online('parts', 'large', 'to_change') AS o WHERE o LIKE 'obstacle%';
DROP TABLE parts, large, to_change;
-- Casts that depend on the session, or on other values.
CREATE TABLE cast_to (id serial PRIMARY KEY, v text, tenant_id int DEFAULT nullif(current_setting('app.tenant', true), '')::int REFERENCES cast_to);
CREATE TABLE payloads (p jsonb, q text);
CREATE INDEX of_payload ON payloads (((p ->> 'tenant_id')::integer));
CREATE INDEX of_key ON payloads (((p ->> 'Cast_To_Id')::integer));
CREATE INDEX of_other ON payloads (((p ->> 'size')::integer));
CREATE INDEX of_literal ON cast_to (v) WHERE id > '-5'::integer AND v <> ':: x::integer';
CREATE POLICY of_tenant ON cast_to USING (tenant_id = current_setting('app.tenant')::int);
CREATE TRIGGER by_tenant AFTER INSERT ON cast_to FOR EACH ROW WHEN (new.tenant_id = current_setting('app.tenant', true)::int) EXECUTE FUNCTION keeps();
CREATE RULE by_rule AS ON DELETE TO cast_to WHERE old.id = current_setting('app.tenant', true)::smallint DO INSTEAD NOTHING;
CREATE VIEW by_payload AS SELECT t.v FROM payloads JOIN cast_to AS t ON t.id = (p ->> 'tenant_id')::int;
CREATE VIEW by_text AS SELECT t.v FROM payloads JOIN cast_to AS t ON t.id::text = p ->> 'tenant_id';
CREATE TYPE cast_row AS (cast_to_id int, n int);
SELECT notes('cast_to');
SELECT obstacles('cast_to');
DROP TABLE cast_to, payloads CASCADE;
DROP TYPE cast_row;

-- Materialized views and generated columns keep how they are stored.
CREATE TABLE stored (id serial PRIMARY KEY, t text, g text GENERATED ALWAYS AS (id::text) STORED);
ALTER TABLE stored ALTER g SET STORAGE external, ALTER g SET COMPRESSION pglz;
CREATE MATERIALIZED VIEW kept WITH (fillfactor = 50, toast.autovacuum_enabled = off) AS SELECT id, t FROM stored;
ALTER MATERIALIZED VIEW kept ALTER t SET STORAGE external, ALTER t SET COMPRESSION pglz;
CREATE VIEW storage AS
    SELECT c.relname, c.reloptions, t.reloptions AS of_toast, a.attname, a.attstorage, a.attcompression
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname IN ('t', 'g') LEFT JOIN pg_class AS t ON t.oid = c.reltoastrelid
    WHERE c.relname IN ('stored', 'kept') ORDER BY c.relname, a.attname;
TABLE storage;
CALL snowflake_convert('{stored}');
TABLE storage;
-- Labels of columns, without a provider here.
CREATE TABLE labelled (id serial PRIMARY KEY, g text GENERATED ALWAYS AS (id::text) STORED);
BEGIN;
SET LOCAL allow_system_table_mods = on;
INSERT INTO pg_seclabel VALUES ('labelled'::regclass, 'pg_class'::regclass, 1, 'none', 'it''s'), ('labelled'::regclass, 'pg_class'::regclass, 2, 'none', 'made');
SELECT statement FROM snowflake_convert_plan('{labelled}') WHERE statement LIKE 'SECURITY%';
ALTER TABLE labelled DROP COLUMN g;
SELECT statement FROM snowflake_convert_plan('{labelled}', online => true) WHERE statement LIKE 'SECURITY%';
ROLLBACK;

-- Rows that a constraint refuses cannot be copied. At once, no row is updated.
CREATE TABLE invalid (id serial PRIMARY KEY, v int);
INSERT INTO invalid (v) VALUES (-1);
ALTER TABLE invalid ADD CHECK (v > 0) NOT VALID;
SELECT online('invalid');
CALL snowflake_convert('{invalid}');
-- A foreign key to a key that includes the column.
CREATE TABLE codes (o_id serial UNIQUE, code text, PRIMARY KEY (code) INCLUDE (o_id));
CREATE TABLE of_codes (code text REFERENCES codes);
SELECT obstacles('codes');
SELECT o FROM online('codes') AS o WHERE o LIKE 'obstacle%';
-- Names of 55 bytes: a constraint's has one more.
CREATE TABLE long_names (a2345678901234567890123456789012345678901234567890123_55 serial PRIMARY KEY, a234567890123456789012345678901234567890123456789012_54 int REFERENCES long_names);
INSERT INTO long_names VALUES (1, 1), (2, 1);
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{long_names}') \gexec
\set ECHO all
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'long_names'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname;
-- A text that has the name of a column.
CREATE TABLE texts (id serial PRIMARY KEY, "kind's" text, kind_id int REFERENCES texts);
CREATE INDEX by_text ON texts (id) WHERE "kind's" <> 'the kind_id of it''s';
CREATE INDEX by_other_text ON texts (id) WHERE "kind's" <> 'kind';
CREATE INDEX without_columns ON texts ("kind's") WHERE "kind's" <> 'kind_id';
SELECT o FROM online('texts') AS o WHERE o LIKE 'obstacle%';
-- Operator classes.
CREATE TABLE classes (id serial PRIMARY KEY, v int);
CREATE INDEX by_class ON classes USING brin (id int4_minmax_multi_ops);
CREATE INDEX by_expression ON classes USING brin ((id + 1) int4_minmax_multi_ops);
CREATE INDEX of_others ON classes USING brin (v int4_minmax_multi_ops);
CREATE INDEX by_default ON classes USING brin (id int4_minmax_ops, v int4_minmax_multi_ops);
SELECT obstacles('classes');
-- One note for a column, with the right reason.
CREATE TABLE member (id int, seq_id int DEFAULT 0, counted int DEFAULT 0, PRIMARY KEY (id, seq_id));
CREATE TABLE other_counts (id serial PRIMARY KEY, n serial, member_id int, UNIQUE (n, member_id));
SELECT n FROM notes('member', 'other_counts') AS n WHERE n ~ 'member|other_counts\.n ';
-- Functions: those first that triggers of the tables run, also by name. The statements for them change
-- what is a type.
CREATE TABLE item (id serial PRIMARY KEY, pos int);
CREATE TABLE line (id serial PRIMARY KEY, item_id int REFERENCES item, status_id int);
CREATE FUNCTION a_count(a int) RETURNS bigint LANGUAGE sql AS 'SELECT max(id)::int::bigint + a FROM item';
CREATE FUNCTION b_names(int4 integer, n int4) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE int integer; m int2;
BEGIN
    FOR int2 IN 1 .. 3 LOOP m := int2 + int4;
        SELECT pos INTO STRICT int2 FROM item GROUP BY pos HAVING int2 > 0 LIMIT int2 OFFSET int2;
        GET DIAGNOSTICS int2 = ROW_COUNT; ASSERT int2 > 0; EXECUTE int2;
        FOREACH int2 IN ARRAY ARRAY[int2] LOOP FOR n IN int2 .. 3 LOOP END LOOP; END LOOP;
    END LOOP;
    SELECT max(id) AS int4 INTO STRICT m FROM item WHERE pos IN (int4, n) LIMIT int4;
    RETURN m::int;
END $f$;
CREATE FUNCTION "re seq"(item_id integer, "int" smallint DEFAULT 3::smallint) RETURNS integer LANGUAGE plpgsql SET work_mem TO '4MB' AS $f$
DECLARE
    i integer := 0; -- an integer: it's here
    s CONSTANT int4 = 5; /* int * */
    a integer[];
    r record;
    "integer" text := 'x int';
BEGIN
    PERFORM format($q$CREATE TEMP TABLE x (id integer, it's)$q$) || E'it\'s y integer' || i::int || $q$z int$q$;
    FOR r IN SELECT line.id::int, cast(id AS integer), "integer" AS x FROM line WHERE id = $1 LIMIT int4(1) LOOP i := i + 1; END LOOP;
    RETURN int4(i::integer - 1) - 1e0;
END $f$;
COMMENT ON FUNCTION "re seq"(integer, smallint) IS 'an integer''s';
REVOKE EXECUTE ON FUNCTION "re seq"(integer, smallint) FROM PUBLIC;
CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM "re seq"(new.item_id); PERFORM z_next (new.id); RETURN new; END';
CREATE FUNCTION z_next(n bigint) RETURNS void LANGUAGE plpgsql AS 'DECLARE k int; BEGIN k := n; END';
SET check_function_bodies = off;
CREATE FUNCTION open_end() RETURNS bigint LANGUAGE sql AS 'SELECT id::int FROM item $x$';
RESET check_function_bodies;
CREATE FUNCTION of_sql(n int) RETURNS bigint RETURN n + 1;
CREATE VIEW of_function AS SELECT of_sql(id) FROM item;
CREATE FUNCTION untouched(n int) RETURNS bigint LANGUAGE sql AS 'SELECT 1';
CREATE TRIGGER on_insert AFTER INSERT ON line FOR EACH ROW EXECUTE FUNCTION on_insert();
SELECT n FROM notes('item', 'line') AS n WHERE n LIKE 'function %';
SELECT function, of_trigger, statement FROM snowflake_convert_functions('{item, line}');
-- Those of other roles are left out: their text would run as who runs the statements.
CREATE FUNCTION of_other(n int) RETURNS bigint LANGUAGE sql AS 'SELECT max(id)::int::bigint + n FROM item';
ALTER FUNCTION of_other(int) OWNER TO regress_cn_other;
SELECT count(*) FROM snowflake_convert_functions('{item, line}') WHERE function::text ~ 'of_other';
SELECT n ~ '^function' AS is_noted FROM notes('item', 'line') AS n WHERE n ~ 'of_other';
DROP FUNCTION of_other(int);
-- What takes long to read stays as it is.
SELECT _snowflake_convert.widened(t, false, '{}') = t AS stays, t ~ ' int ' AS has_integer
FROM (SELECT string_agg('$t' || n || '$ x int ', '') FROM generate_series(1, 800) AS n) AS f (t);
-- They run, and an insert works after the conversion. Without them, it does not.
DROP VIEW of_function;
BEGIN;
CALL snowflake_convert('{item, line}');
INSERT INTO item VALUES (DEFAULT, 1);
-- PostgreSQL 19 words the hint in another way.
\set VERBOSITY terse
INSERT INTO line (item_id) SELECT id FROM item;
\set VERBOSITY default
ROLLBACK;
BEGIN;
SELECT statement FROM snowflake_convert_functions('{item, line}') WHERE of_trigger \gexec
SELECT proname, proargtypes::regtype[], prorettype::regtype, proacl::text ~ '[{,]=' AS is_public, obj_description(oid) FROM pg_proc WHERE pronamespace = 'cn'::regnamespace AND proname IN ('re seq', 'z_next');
CALL snowflake_convert('{item, line}');
INSERT INTO item VALUES (DEFAULT, 1);
INSERT INTO line (item_id) SELECT id FROM item;
SELECT count(*) FROM line WHERE id > 1000000;
ROLLBACK;
-- A function that returns a query works before and after, and one that others call comes first.
CREATE FUNCTION z_called(n int) RETURNS int LANGUAGE sql AS 'SELECT max(id) + n FROM cn.item';
CREATE FUNCTION a_calls(n int) RETURNS int LANGUAGE sql AS 'SELECT cn.z_called(n) FROM cn.item';
CREATE FUNCTION returned(at int) RETURNS TABLE (item_id int, label text) LANGUAGE plpgsql AS
    $$ BEGIN RETURN QUERY SELECT i.id, ';''' || i.pos FROM cn.item AS i WHERE i.pos = at ORDER BY 1; RETURN QUERY EXECUTE 'SELECT 1::bigint, ''x'''; END $$;
CREATE FUNCTION returned_keys() RETURNS SETOF int LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT i.id FROM cn.item AS i; END $$;
SELECT function, statement FROM snowflake_convert_functions('{item, line}') WHERE function::text ~ 'called|calls|returned';
BEGIN;
INSERT INTO item VALUES (DEFAULT, 1);
SELECT statement FROM snowflake_convert_functions('{item, line}') WHERE function::text ~ 'called|calls|returned' \gexec
SELECT count(*) FROM returned(1), returned_keys();
DROP VIEW IF EXISTS of_function;
CALL snowflake_convert('{item, line}');
SELECT count(*) FROM returned(1), returned_keys();
ROLLBACK;
-- A comment on a foreign key between tables of two owners is put on again by the caller.
CREATE TABLE commented (id serial PRIMARY KEY);
CREATE TABLE of_commented (id serial PRIMARY KEY, commented_id int CONSTRAINT to_commented REFERENCES commented);
COMMENT ON CONSTRAINT to_commented ON of_commented IS 'each has one';
ALTER TABLE commented OWNER TO regress_cn_other;
GRANT CREATE, USAGE ON SCHEMA cn TO regress_cn_other;
CALL snowflake_convert('{commented, of_commented}');
SELECT obj_description(oid) FROM pg_constraint WHERE conname = 'to_commented';
-- While the tables are in use: what PostgreSQL would refuse at a step, or on subscribers.
CREATE TABLE wide (id serial PRIMARY KEY);
\set ECHO none
SELECT 'ALTER TABLE wide ' || string_agg(format('ADD c%s int', n), ', ') FROM generate_series(1, 1599) AS n \gexec
\set ECHO all
CREATE TABLE filtered (id serial PRIMARY KEY, region int);
CREATE TABLE listed (id serial PRIMARY KEY, region int);
SET client_min_messages = error;
CREATE PUBLICATION of_some FOR TABLE filtered WHERE (region = 1), listed (id, region);
CREATE PUBLICATION of_keys FOR TABLE filtered WHERE (id > 0) WITH (publish = 'insert');
SET client_min_messages = warning;
CREATE TABLE deferred (id serial PRIMARY KEY);
CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION keeps();
ALTER TABLE deferred ENABLE ALWAYS TRIGGER later;
CREATE CONSTRAINT TRIGGER usual AFTER UPDATE ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION keeps();
SELECT o FROM online('wide', 'filtered', 'listed', 'deferred') AS o WHERE o ~ 'columns, with|publi|deferred,';
ALTER TABLE deferred OWNER TO regress_cn_other;
SELECT o FROM online('wide', 'filtered', 'listed', 'deferred') AS o WHERE o ~ 'columns, with|publi|deferred,';
ALTER TABLE filtered REPLICA IDENTITY FULL;
SELECT o FROM online('filtered', 'listed') AS o WHERE o LIKE 'obstacle%';
DROP PUBLICATION of_some, of_keys;
DROP TABLE wide;
-- Several schemas.
CREATE SCHEMA cn_two;
CREATE TABLE cn_two.t (id serial PRIMARY KEY);
CREATE SCHEMA cn_one;
CREATE TABLE cn_one.t (id serial PRIMARY KEY, by_hand int);
CREATE TABLE cn_one.by_hand (id int PRIMARY KEY);
SELECT statement FROM snowflake_convert_plan(schemas => '{cn_two, cn_one, cn_two}') WHERE action = 'alter';
SELECT s.statement FROM snowflake_convert_steps(schemas => '{cn_two, cn_one}') AS s WHERE s.statement LIKE '%swap%';
CALL snowflake_convert(schemas => '{{cn_one}, {cn_two}}');
CALL snowflake_convert(schemas => '{cn_one, NULL}');
CALL snowflake_convert('{shape}', '{cn_one}');
SELECT count(*) FROM snowflake_convert_plan(schemas => '{}');
-- A table with row security is read as its owner, who needs to find it.
CREATE TABLE cn_one.hidden (id bigserial PRIMARY KEY);
ALTER TABLE cn_one.hidden OWNER TO regress_cn_other;
SELECT obstacles('cn_one.hidden');
ALTER TABLE cn_one.hidden ENABLE ROW LEVEL SECURITY;
SELECT obstacles('cn_one.hidden');
SELECT count(*) FROM snowflake_convert_plan('{cn_one.hidden}', set_default => false) WHERE action = 'obstacle';
GRANT USAGE ON SCHEMA cn_one TO regress_cn_other;
SELECT obstacles('cn_one.hidden');
ALTER TABLE cn_one.hidden FORCE ROW LEVEL SECURITY;
SELECT obstacles('cn_one.hidden');
ALTER TABLE cn_one.hidden NO FORCE ROW LEVEL SECURITY;
CALL snowflake_convert('{cn_one.hidden}');
-- Which tables get another order of columns: one note.
SELECT o FROM online('cn_one.t', 'cn_two.t') AS o WHERE o LIKE 'note: columns%';
SELECT count(*) FROM online('generated') AS o WHERE o LIKE 'note: columns%';
DROP SCHEMA cn_one, cn_two CASCADE;
-- What an index runs: with integers, and what it does not find while columns change; and a reference with numbers of its own.
CREATE FUNCTION half(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 / 2';
CREATE FUNCTION quarter(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN half(half($1)); END';
CREATE TABLE halves (id serial PRIMARY KEY, v int);
CREATE TABLE parts (id serial PRIMARY KEY, half serial REFERENCES halves);
CREATE INDEX halves_id ON halves (half(id));
CREATE INDEX halves_v ON halves (quarter(v));
INSERT INTO halves (v) VALUES (8);
-- Not of what another role has put anywhere.
CREATE SCHEMA cn_other;
CREATE FUNCTION cn_other.half(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 666';
ALTER FUNCTION cn_other.half(int) OWNER TO regress_cn_other;
SELECT n FROM notes('halves') AS n WHERE n ~ '^(function|index|column.*parts)' ORDER BY n;
-- PostgreSQL 19 words these errors differently.
\set VERBOSITY sqlstate
CALL snowflake_convert('{halves}');
CREATE FUNCTION half(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 / 2';
CALL snowflake_convert('{halves}');
\set VERBOSITY default
ALTER FUNCTION quarter(int) SET search_path = cn;
SELECT n FROM notes('halves') AS n WHERE n ~ '^index';
CALL snowflake_convert('{halves}');
INSERT INTO halves (v) VALUES (12);
SELECT id > 1000000 AS is_new, v FROM halves WHERE quarter(v) = 3;
DROP SCHEMA cn_other CASCADE;
-- Privileges that others have granted.
CREATE ROLE regress_cn_owner;
GRANT USAGE, CREATE ON SCHEMA cn TO regress_cn_owner, regress_cn_reader;
SET ROLE regress_cn_owner;
CREATE TABLE granted (id serial PRIMARY KEY, v int, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE VIEW of_granted AS SELECT id, v FROM granted;
GRANT SELECT ON of_granted TO regress_cn_reader WITH GRANT OPTION;
GRANT SELECT (v) ON of_granted TO regress_cn_reader WITH GRANT OPTION;
GRANT SELECT (id, twice) ON granted TO regress_cn_reader WITH GRANT OPTION;
SET ROLE regress_cn_reader;
GRANT SELECT ON of_granted TO regress_cn_other;
GRANT SELECT (id, twice) ON granted TO regress_cn_other;
SET ROLE regress_cn_owner;
SELECT obstacles('granted');
SELECT o FROM online('granted') AS o WHERE o LIKE 'obstacle: priv%' ORDER BY 1;
RESET ROLE;
GRANT regress_cn_reader TO regress_cn_owner;
SET ROLE regress_cn_owner;
SELECT obstacles('granted');
CALL snowflake_convert('{granted}', set_default => false);
RESET ROLE;
DROP SCHEMA cn CASCADE;
DROP OWNED BY regress_cn_reader, regress_cn_owner, regress_cn_other;
DROP ROLE regress_cn_reader, regress_cn_owner, regress_cn_other;
