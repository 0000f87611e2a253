-- The conversion of tables in use, where a part of them is not like others: row types in
-- other types, foreign keys to partitioned tables, constraints that are deferrable,
-- sequences without an owner, names with keywords; and published tables.
SET timezone = 'UTC';
\set SHOW_CONTEXT never
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE SCHEMA oe;
SET search_path = oe, public;
CREATE FUNCTION oe.obstacles(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(tables, online => true) WHERE action = 'obstacle' ORDER BY 1 $$;
CREATE FUNCTION oe.at_once(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(tables) WHERE action = 'obstacle' ORDER BY 1 $$;
CREATE FUNCTION oe.valid(relation regclass) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT conname || ' ' || convalidated FROM pg_constraint WHERE conrelid = relation AND contype IN ('c', 'f') AND conparentid = 0 ORDER BY 1 $$;

-- The row type of a table, within other types: its rows there would have null keys.
CREATE TABLE t (id serial PRIMARY KEY, v text);
CREATE DOMAIN of_t AS t;
CREATE TABLE h (w of_t);
CREATE TYPE pair AS (a int, t t);
CREATE DOMAIN pairs AS pair[];
CREATE TABLE h2 (v int, w pairs, gone pair);
ALTER TABLE h2 DROP COLUMN gone;
CREATE TYPE spans AS RANGE (subtype = t, multirange_type_name = many_spans);
CREATE TABLE h3 (w many_spans[]);
CREATE VIEW of_h AS SELECT 1 AS one, w FROM h;
CREATE TABLE h4 (w of_h);
CREATE TABLE h5 (w t);
CREATE TABLE h6 (a int);
CREATE FUNCTION oe.to_t(a int) RETURNS t LANGUAGE sql IMMUTABLE AS 'SELECT ROW(a, NULL)::oe.t';
CREATE INDEX h6_to_t ON h6 (to_t(a));
SELECT obstacles('t');
SELECT at_once('t');
INSERT INTO h VALUES (ROW(1, 'one'));
CALL snowflake_convert('{t}');
SELECT statement FROM snowflake_convert_steps('{t}');
SELECT (w::t).id FROM h;
-- The row type of a partition.
CREATE TABLE r (id serial, at date) PARTITION BY RANGE (at);
CREATE TABLE r1 PARTITION OF r DEFAULT;
CREATE DOMAIN of_r1 AS r1;
CREATE TABLE h7 (w of_r1);
SELECT obstacles('r');
DROP TABLE h7;
SELECT obstacles('r');

-- A foreign key to a partitioned table is valid after all steps: of a column that is bigint
-- already, and of a table with another key that changes.
CREATE TABLE visits (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE v1 PARTITION OF visits DEFAULT;
CREATE TABLE stops (visit_id bigint, at date, FOREIGN KEY (visit_id, at) REFERENCES visits);
CREATE TABLE notes (id serial PRIMARY KEY, visit_id bigint, at date, later bigint, FOREIGN KEY (visit_id, at) REFERENCES visits);
ALTER TABLE notes ADD CONSTRAINT later FOREIGN KEY (later, at) REFERENCES visits NOT VALID;
CREATE TABLE ends (visit_id bigint, at date, FOREIGN KEY (visit_id, at) REFERENCES visits) PARTITION BY RANGE (at);
SELECT obstacles('visits', 'notes');
DROP TABLE ends;
INSERT INTO visits (at) VALUES ('2026-01-01');
INSERT INTO stops VALUES (1, '2026-01-01');
INSERT INTO notes VALUES (1, 1, '2026-01-01', 1);
-- The list that is made before the swap.
SELECT statement FROM snowflake_convert_steps('{visits, notes}') WHERE statement ~ 'VALIDATE CONSTRAINT [^"]|ANALYZE' ORDER BY step;
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{visits, notes}') ORDER BY step \gexec
\set ECHO all
SELECT valid('stops');
SELECT valid('notes');
SELECT statement FROM snowflake_convert_steps('{visits, notes}');
SELECT relation FROM _snowflake_convert.conversions WHERE ended IS NULL;
-- A list that is made after it.
DROP TABLE stops, notes, visits;
CREATE TABLE visits (id serial, at date, PRIMARY KEY (id, at), CHECK (id > 0)) PARTITION BY RANGE (at);
CREATE TABLE a_part PARTITION OF visits DEFAULT;
ALTER TABLE a_part ADD CONSTRAINT own CHECK (id > 0);
CREATE TABLE stops (visit_id bigint, at date, FOREIGN KEY (visit_id, at) REFERENCES visits);
CREATE TABLE z_parts (id serial, at date, visit_id int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE z_part PARTITION OF z_parts DEFAULT;
ALTER TABLE z_part ADD CONSTRAINT own FOREIGN KEY (visit_id, at) REFERENCES visits;
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{visits, z_parts}') WHERE statement !~ 'VALIDATE CONSTRAINT [^"]|ANALYZE' ORDER BY step \gexec
\set ECHO all
SELECT valid('stops');
SELECT relation, to_validate FROM _snowflake_convert.conversions WHERE ended IS NULL ORDER BY relation::text;
SELECT statement FROM snowflake_convert_steps('{visits, z_parts}') ORDER BY step;
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{visits, z_parts}') ORDER BY step \gexec
\set ECHO all
SELECT valid('stops');
SELECT valid('visits');
SELECT valid('a_part');
SELECT valid('z_part');
SELECT statement FROM snowflake_convert_steps('{visits, z_parts}');
SELECT relation FROM _snowflake_convert.conversions WHERE ended IS NULL;

-- New keys of old rows do not reach subscribers.
SET client_min_messages = error;
CREATE TABLE customers (id serial PRIMARY KEY, made timestamptz DEFAULT '2026-01-01Z');
CREATE TABLE orders (id serial PRIMARY KEY, customer_id int REFERENCES customers) PARTITION BY RANGE (id);
CREATE TABLE order_1 PARTITION OF orders DEFAULT;
CREATE TABLE no_origin (id serial PRIMARY KEY);
CREATE FUNCTION oe.of_old_rows() RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan('{oe.customers, oe.no_origin}', backfill => true, worker_id => 1000) WHERE action = 'obstacle' AND note LIKE '%publi%' ORDER BY 1 $$;
SELECT of_old_rows();
CREATE PUBLICATION convert_edges FOR TABLE customers, no_origin;
SELECT of_old_rows();
CALL snowflake_convert('{customers}', backfill => true, worker_id => 1000);
ALTER PUBLICATION convert_edges DROP TABLE customers;
ALTER PUBLICATION convert_edges ADD TABLE order_1;
SELECT of_old_rows();
ALTER PUBLICATION convert_edges DROP TABLE order_1;
ALTER PUBLICATION convert_edges ADD TABLE orders;
SELECT of_old_rows();
DROP PUBLICATION convert_edges;
CREATE PUBLICATION convert_edges FOR TABLES IN SCHEMA oe;
SELECT of_old_rows();
DROP PUBLICATION convert_edges;
CREATE PUBLICATION convert_edges FOR ALL TABLES;
SELECT of_old_rows();
-- Keys that stay are only a matter of their type.
SELECT at_once('customers');
DROP PUBLICATION convert_edges;
ALTER TABLE orders DROP COLUMN customer_id;
CALL snowflake_convert('{customers}', backfill => true, worker_id => 1000);
DROP TABLE snowflake_old_ids;
SET client_min_messages = warning;

-- An index that is built CONCURRENTLY cannot be deferred.
CREATE TABLE items (id serial PRIMARY KEY, list_id int REFERENCES items, pos int, UNIQUE (list_id, pos) DEFERRABLE, UNIQUE (pos) DEFERRABLE);
CREATE TABLE lasts (id serial, at date, PRIMARY KEY (id, at) DEFERRABLE INITIALLY DEFERRED) PARTITION BY RANGE (at);
CREATE TABLE last_1 PARTITION OF lasts DEFAULT;
SELECT obstacles('items', 'lasts');
SELECT statement FROM snowflake_convert_steps('{items}');
CALL snowflake_convert('{items, lasts}');
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN ('items'::regclass, 'lasts'::regclass) AND condeferrable ORDER BY 1;

-- Sequences that no column owns, or a column of another table.
CREATE SEQUENCE s AS integer START 2147483647;
CREATE SEQUENCE s2 AS smallint;
CREATE TABLE drawn (id int PRIMARY KEY DEFAULT nextval('s'));
CREATE TABLE drawn_parts (id int DEFAULT nextval('s2'), at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE drawn_part PARTITION OF drawn_parts DEFAULT;
CREATE SEQUENCE s3 AS integer OWNED BY drawn.id;
ALTER TABLE drawn_part ALTER id SET DEFAULT nextval('s3');
SELECT statement FROM snowflake_convert_plan('{drawn, drawn_parts}', set_default => false, online => true) WHERE statement LIKE 'ALTER SEQUENCE%';
SELECT statement FROM snowflake_convert_plan('{drawn, drawn_parts}', online => true) WHERE statement LIKE 'ALTER SEQUENCE%';
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{drawn, drawn_parts}', set_default => false) ORDER BY step \gexec
\set ECHO all
INSERT INTO drawn DEFAULT VALUES;
INSERT INTO drawn DEFAULT VALUES;
SELECT id FROM drawn;
SELECT seqrelid::regclass, seqtypid::regtype FROM pg_sequence WHERE seqrelid::regclass IN ('s', 's2', 's3') ORDER BY 1;

-- Names that look like the rest of a definition.
CREATE TABLE " USING x" ("id USING y" serial, note text, CONSTRAINT "a "" USING b" PRIMARY KEY ("id USING y"));
CREATE INDEX "c ON d USING e" ON " USING x" (("id USING y" + 1) DESC, note) WHERE note <> ' USING f';
CREATE UNIQUE INDEX "on" ON " USING x" USING btree ("id USING y") INCLUDE (note);
INSERT INTO " USING x" (note) VALUES ('one');
SELECT obstacles('" USING x"');
SELECT statement FROM snowflake_convert_steps(ARRAY['" USING x"'::regclass]) WHERE statement LIKE 'CREATE%INDEX%';
\set ECHO none
SELECT statement FROM snowflake_convert_steps(ARRAY['" USING x"'::regclass]) ORDER BY step \gexec
\set ECHO all
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = '" USING x"'::regclass ORDER BY 1;

-- Each partition is locked by itself, after the whole table.
CREATE TABLE whole (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE b_part PARTITION OF whole FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') PARTITION BY RANGE (at);
CREATE TABLE a_leaf PARTITION OF b_part DEFAULT;
CREATE TABLE c_part PARTITION OF whole DEFAULT;
CREATE TABLE single (id serial PRIMARY KEY);
CREATE TABLE by_code (single_id bigint REFERENCES single) PARTITION BY LIST (single_id);
CREATE TABLE by_code_1 PARTITION OF by_code DEFAULT;
SELECT statement FROM snowflake_convert_plan('{whole, single}', online => true) WHERE statement LIKE 'LOCK%';

-- Foreign keys that refer to a key by a column that stays.
CREATE ROLE regress_oe_owner;
GRANT USAGE, CREATE ON SCHEMA oe TO regress_oe_owner;
SET ROLE regress_oe_owner;
CREATE TABLE mine (id serial PRIMARY KEY);
RESET ROLE;
CREATE TABLE not_mine (mine_id bigint REFERENCES mine);
SET ROLE regress_oe_owner;
SELECT obstacles('mine');
SELECT statement FROM snowflake_convert_steps('{mine}');
RESET ROLE;

DROP SCHEMA oe CASCADE;
DROP ROLE regress_oe_owner;
