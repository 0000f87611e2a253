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
DROP ROLE regress_viewer, regress_a, "regress_A", "regress_A.b";
