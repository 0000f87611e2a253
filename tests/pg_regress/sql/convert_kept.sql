-- What snowflake_convert() and snowflake_convert_swap() make again is as it was: whose it
-- is, whose code runs meanwhile, and what hangs on it.
SET timezone = 'UTC';
\set SHOW_CONTEXT never
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SELECT current_user AS me \gset
SET client_min_messages = warning;
CREATE SCHEMA kept;
SET search_path = kept, public;

-- The indexes of a materialized view of another role call functions of that role, which
-- PostgreSQL runs when it makes the indexes, even if there are no rows. None of them may run
-- as the caller.
CREATE ROLE regress_viewer;
GRANT USAGE, CREATE ON SCHEMA kept TO regress_viewer;
CREATE TABLE ran (caller name DEFAULT current_user, what text);
CREATE TABLE seen (id serial PRIMARY KEY);
CREATE TABLE seen_in_use (id serial PRIMARY KEY);
GRANT INSERT ON ran TO regress_viewer;
GRANT SELECT ON seen, seen_in_use TO regress_viewer;
SET ROLE regress_viewer;
CREATE FUNCTION tell(what text) RETURNS int LANGUAGE plpgsql AS $$BEGIN INSERT INTO kept.ran (what) VALUES ($1); RETURN 1; END$$;
CREATE FUNCTION one(what text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN kept.tell($1); END$$;
CREATE MATERIALIZED VIEW full_view AS SELECT id, tell('query') FROM seen;
CREATE INDEX full_index ON full_view ((id + one('index'))) WHERE id > one('condition');
CREATE STATISTICS full_statistics ON (id + one('statistics')), id FROM full_view;
CREATE MATERIALIZED VIEW empty_view AS SELECT id, tell('empty query') FROM seen_in_use WITH NO DATA;
CREATE INDEX empty_index ON empty_view ((id + one('empty index'))) WHERE id > one('empty condition');
CREATE VIEW plain_view AS SELECT id, tell('view') FROM seen;
ALTER VIEW plain_view ALTER COLUMN id SET DEFAULT one('default');
CREATE FUNCTION standard_body(v plain_view) RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM kept.plain_view WHERE id = kept.one('body'); END;
RESET ROLE;
INSERT INTO seen DEFAULT VALUES;
DELETE FROM ran;
CALL snowflake_convert('{seen}');
SELECT caller, what FROM ran GROUP BY 1, 2 ORDER BY 1, 2;
DELETE FROM ran;
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{seen_in_use}') \gexec
\set ECHO all
SELECT caller, what FROM ran GROUP BY 1, 2 ORDER BY 1, 2;
SELECT relname, relowner::regrole FROM pg_class WHERE relname ~ '^(full|empty|plain)_' AND relnamespace = 'kept'::regnamespace ORDER BY 1;
SELECT stxname, stxowner::regrole FROM pg_statistic_ext WHERE stxnamespace = 'kept'::regnamespace;
SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid IN ('full_view'::regclass, 'empty_view'::regclass) AND attname = 'id';
DROP TABLE seen, seen_in_use CASCADE;
-- PostgreSQL reads literals when it makes a view, and the conditions of domains in them run
-- as the caller. Those of the table's owner, or of the caller, are no matter.
CREATE TABLE literal (id serial PRIMARY KEY);
GRANT SELECT ON literal TO regress_viewer;
CREATE FUNCTION obstacles_of_literals() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT replace(note, current_user, 'me') FROM snowflake_convert_plan('{literal}') WHERE action = 'obstacle' $$;
SET ROLE regress_viewer;
CREATE DOMAIN told AS int CHECK (tell('domain') < VALUE);
CREATE TYPE pair AS (a int, b told);
CREATE TYPE span AS RANGE (subtype = told);
CREATE VIEW of_arrays AS SELECT id, '{2,3}'::told[] FROM literal;
CREATE VIEW of_pairs AS SELECT id, '{"(1,2)"}'::pair[] FROM literal;
CREATE VIEW of_spans AS SELECT id FROM literal WHERE '[2,4)'::span @> 3::told;
CREATE VIEW of_values AS SELECT id, '2'::told, ARRAY[id]::told[] FROM literal;
RESET ROLE;
SELECT obstacles_of_literals() ORDER BY 1;
SELECT note FROM snowflake_convert_plan('{literal}', online => true) WHERE note LIKE '%of_arrays%';
DELETE FROM ran;
CALL snowflake_convert('{literal}');
SELECT caller, what FROM ran GROUP BY 1, 2 ORDER BY 1, 2;
ALTER TABLE literal OWNER TO regress_viewer;
SELECT obstacles_of_literals() ORDER BY 1;
ALTER TABLE literal OWNER TO CURRENT_USER;
DROP VIEW of_arrays, of_pairs, of_spans;
CALL snowflake_convert('{literal}');
SELECT caller, what FROM ran GROUP BY 1, 2 ORDER BY 1, 2;
DROP TABLE literal CASCADE;

-- A caller whose name, read as an identifier, would be that of another role, or of none.
CREATE ROLE regress_a;
CREATE ROLE "regress_A" SUPERUSER;
CREATE ROLE "regress_A.b" SUPERUSER;
GRANT USAGE, CREATE ON SCHEMA kept TO regress_a;
CREATE VIEW owners AS
    SELECT c.relname AS name, c.relowner::regrole AS owner, coalesce(c.relacl, acldefault('r', c.relowner))::text AS acl FROM pg_class AS c WHERE c.relname LIKE 'named%' AND c.relkind IN ('v', 'm')
    UNION ALL SELECT p.proname, p.proowner::regrole, p.proacl::text FROM pg_proc AS p WHERE p.proname LIKE 'named%'
    UNION ALL SELECT x.stxname, x.stxowner::regrole, NULL FROM pg_statistic_ext AS x WHERE x.stxname LIKE 'named%' ORDER BY 1;
ALTER DEFAULT PRIVILEGES FOR ROLE "regress_A" GRANT SELECT ON TABLES TO PUBLIC;
\set make_named 'CREATE TABLE named (id serial PRIMARY KEY, n int); GRANT SELECT, REFERENCES ON named TO regress_a; SET ROLE regress_a; CREATE VIEW named_view AS SELECT id FROM kept.named; CREATE MATERIALIZED VIEW named_filled AS SELECT id, id % 7 AS n FROM kept.named; CREATE STATISTICS named_filled_statistics ON id, n FROM kept.named_filled; CREATE FUNCTION named_function(v named_view) RETURNS bigint LANGUAGE sql AS ''SELECT $1.id''; RESET ROLE; CREATE STATISTICS named_statistics ON id, n FROM kept.named; ALTER STATISTICS named_statistics OWNER TO regress_a;'
:make_named
CREATE TABLE owners_before AS TABLE owners;
SELECT name, owner FROM owners_before;
SET ROLE "regress_A";
CALL snowflake_convert('{named}');
RESET ROLE;
(TABLE owners_before EXCEPT TABLE owners) UNION ALL (TABLE owners EXCEPT TABLE owners_before);
DROP TABLE named CASCADE;
:make_named
SET ROLE "regress_A";
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{named}') \gexec
\set ECHO all
RESET ROLE;
(TABLE owners_before EXCEPT TABLE owners) UNION ALL (TABLE owners EXCEPT TABLE owners_before);
DROP TABLE named CASCADE;
:make_named
SET ROLE "regress_A.b";
CALL snowflake_convert('{named}');
RESET ROLE;
(TABLE owners_before EXCEPT TABLE owners) UNION ALL (TABLE owners EXCEPT TABLE owners_before);
DROP TABLE named CASCADE;
:make_named
SET ROLE "regress_A.b";
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{named}') \gexec
\set ECHO all
RESET ROLE;
(TABLE owners_before EXCEPT TABLE owners) UNION ALL (TABLE owners EXCEPT TABLE owners_before);
DROP TABLE named CASCADE;

-- The owner of statistics objects, which PostgreSQL makes again as the caller's. A caller
-- who cannot give them back is told so.
CREATE ROLE regress_owner;
GRANT USAGE, CREATE ON SCHEMA kept TO regress_owner;
CREATE TABLE counted (id serial PRIMARY KEY, n int, g int GENERATED ALWAYS AS (id % 5) STORED);
CREATE STATISTICS counted_id ON id, n FROM counted;
CREATE STATISTICS counted_g ON g, n FROM counted;
CREATE STATISTICS counted_n ON (n + 1), n FROM counted;
COMMENT ON STATISTICS counted_id IS 'of id';
ALTER STATISTICS counted_id SET STATISTICS 7;
ALTER TABLE counted OWNER TO regress_owner;
SET ROLE regress_owner;
SELECT note FROM snowflake_convert_plan('{counted}') WHERE action = 'obstacle';
CALL snowflake_convert('{counted}');
RESET ROLE;
ALTER STATISTICS counted_id OWNER TO regress_viewer;
ALTER STATISTICS counted_g OWNER TO regress_owner;
SELECT statement FROM snowflake_convert_plan('{counted}') WHERE statement LIKE '%STATISTICS%';
CALL snowflake_convert('{counted}');
SELECT stxname, replace(stxowner::regrole::text, :'me', 'me'), obj_description(oid, 'pg_statistic_ext') FROM pg_statistic_ext WHERE stxname LIKE 'counted%' ORDER BY 1;
DROP TABLE counted;

-- What hangs on a generated column, which is dropped and made again.
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_convert_kept LOCATION '';
CREATE TABLE hung (id serial PRIMARY KEY, n int NOT NULL, g bigint GENERATED ALWAYS AS (id + 1) STORED NOT NULL, r int4range, CONSTRAINT positive CHECK (g > 0),
    CONSTRAINT hung_unique UNIQUE (n) INCLUDE (g) WITH (fillfactor = 80) USING INDEX TABLESPACE regress_convert_kept,
    CONSTRAINT hung_later UNIQUE (g, n) DEFERRABLE INITIALLY DEFERRED, CONSTRAINT hung_apart EXCLUDE USING gist (int8range(g, g + 1) WITH &&));
CREATE UNIQUE INDEX hung_identity ON hung (g) TABLESPACE regress_convert_kept;
CREATE INDEX hung_expression ON hung ((g + n)) WHERE g > 1;
ALTER INDEX hung_expression ALTER COLUMN 1 SET STATISTICS 33;
ALTER TABLE hung REPLICA IDENTITY USING INDEX hung_identity;
ALTER TABLE hung CLUSTER ON hung_identity;
COMMENT ON CONSTRAINT positive ON hung IS 'it''s positive';
COMMENT ON CONSTRAINT hung_unique ON hung IS 'unique';
COMMENT ON INDEX hung_unique IS 'index of unique';
COMMENT ON INDEX hung_expression IS 'expression';
CREATE TABLE hung_parts (id serial, at date NOT NULL, n int NOT NULL, g bigint GENERATED ALWAYS AS (id + 1) STORED, CONSTRAINT small CHECK (g > -1000)) PARTITION BY RANGE (at);
CREATE TABLE hung_1 PARTITION OF hung_parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE TABLE hung_2 PARTITION OF hung_parts FOR VALUES FROM ('2027-01-01') TO ('2029-01-01') PARTITION BY RANGE (at);
CREATE TABLE hung_3 PARTITION OF hung_2 DEFAULT;
ALTER TABLE hung_1 ALTER COLUMN g SET NOT NULL;
ALTER TABLE hung_1 ADD CONSTRAINT one_key PRIMARY KEY (id, at, g);
ALTER TABLE hung_3 ADD CONSTRAINT three_key PRIMARY KEY (id, at, g) USING INDEX TABLESPACE regress_convert_kept;
ALTER TABLE hung_parts ADD PRIMARY KEY (id, at, g);
CREATE INDEX one_index ON hung_1 (g, n) TABLESPACE regress_convert_kept;
CREATE INDEX parts_index ON hung_parts (g, n);
ALTER INDEX parts_index SET TABLESPACE regress_convert_kept;
CREATE UNIQUE INDEX one_alone ON hung_1 (g);
ALTER TABLE hung_1 REPLICA IDENTITY USING INDEX one_alone;
ALTER TABLE hung_3 REPLICA IDENTITY USING INDEX three_key;
ALTER TABLE hung_1 CLUSTER ON one_index;
COMMENT ON INDEX one_index IS 'index of one';
COMMENT ON CONSTRAINT small ON hung_parts IS 'small';
COMMENT ON CONSTRAINT small ON hung_1 IS 'small in one';
COMMENT ON CONSTRAINT three_key ON hung_3 IS 'key of three';
CREATE TABLE hung_base (id serial PRIMARY KEY, g bigint GENERATED ALWAYS AS (id + 1) STORED);
CREATE TABLE hung_child () INHERITS (hung_base);
ALTER TABLE hung_child ALTER COLUMN g SET NOT NULL;
INSERT INTO hung (n) VALUES (1), (2);
INSERT INTO hung_parts (at, n) VALUES ('2026-02-01', 1), ('2027-02-01', 2);
CREATE VIEW hanging AS
    SELECT concat_ws(' ', c.oid::regclass, pg_get_indexdef(c.oid), s.spcname, i.indisvalid, i.indisclustered, i.indisreplident, 'part of ' || h.inhparent::regclass,
        obj_description(c.oid, 'pg_class'), (SELECT string_agg(a.attnum || ' ' || a.attstattarget, ', ') FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attstattarget > 0)) AS it
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace LEFT JOIN pg_inherits AS h ON h.inhrelid = c.oid
    WHERE i.indrelid::regclass IN ('hung', 'hung_parts', 'hung_1', 'hung_2', 'hung_3', 'hung_child')
    UNION ALL
    SELECT concat_ws(' ', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid), k.coninhcount, obj_description(k.oid, 'pg_constraint')) FROM pg_constraint AS k
    WHERE k.contype <> 'n' AND k.conrelid::regclass IN ('hung', 'hung_parts', 'hung_1', 'hung_2', 'hung_3', 'hung_child')
    UNION ALL
    SELECT concat_ws(' ', attrelid::regclass, attname, attnotnull) FROM pg_attribute WHERE attname LIKE 'g%' AND attrelid::regclass IN ('hung', 'hung_parts', 'hung_1', 'hung_2', 'hung_3', 'hung_child')
    UNION ALL
    SELECT concat_ws(' ', relname, relreplident) FROM pg_class WHERE oid::regclass IN ('hung', 'hung_parts', 'hung_1', 'hung_2', 'hung_3', 'hung_child');
CREATE TABLE hanging_before AS TABLE hanging;
SELECT count(*) FROM hanging_before;
CREATE TABLE of_hung (n int REFERENCES hung (n));
SELECT note FROM snowflake_convert_plan('{hung, hung_parts}') WHERE action = 'obstacle';
DROP TABLE of_hung;
CALL snowflake_convert('{hung, hung_parts, hung_base}');
(TABLE hanging_before EXCEPT TABLE hanging) ORDER BY 1;
(TABLE hanging EXCEPT TABLE hanging_before) ORDER BY 1;
SELECT id, g FROM hung_parts ORDER BY at;
DROP VIEW hanging;
DROP TABLE hung, hung_parts, hung_base, hung_child;
SELECT count(*) FROM pg_class AS c JOIN pg_tablespace AS s ON s.oid = c.reltablespace WHERE s.spcname = 'regress_convert_kept';
DROP TABLESPACE regress_convert_kept;

-- The text of a function names a view without its schema, or one that is made again later.
CREATE TABLE called (id serial PRIMARY KEY);
CREATE TABLE called_in_use (id serial PRIMARY KEY);
CREATE VIEW first_view AS SELECT id FROM called UNION ALL SELECT id FROM called_in_use;
CREATE VIEW second_view AS SELECT id FROM first_view;
CREATE FUNCTION without_schema(v first_view) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM first_view WHERE id = v.id';
CREATE FUNCTION of_later(v first_view) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM kept.second_view';
CALL snowflake_convert('{called}');
SHOW check_function_bodies;
SELECT without_schema(v), of_later(v) FROM first_view AS v;
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{called_in_use}') \gexec
\set ECHO all
SHOW check_function_bodies;
INSERT INTO called DEFAULT VALUES;
SELECT without_schema(v), of_later(v), pg_typeof(v.id) FROM first_view AS v;

DROP SCHEMA kept CASCADE;
DROP OWNED BY "regress_A";
DROP ROLE regress_viewer, regress_a, "regress_A", "regress_A.b", regress_owner;
