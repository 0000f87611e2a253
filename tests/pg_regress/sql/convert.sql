-- snowflake_convert_plan() and snowflake_convert() change integer keys to bigint. TAP tests
-- 053 and 054 convert a whole shop.
SET timezone = 'UTC';
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE SCHEMA c;
SET search_path = c, public;
CREATE FUNCTION c.obstacles(VARIADIC tables regclass[]) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(tables) WHERE action = 'obstacle' $$;
-- Prints the error of a statement.
CREATE FUNCTION c.error_of(statement text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE detail text; hint text;
BEGIN
    EXECUTE statement;
    RAISE NOTICE 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE NOTICE E'%: %\ndetail: %\nhint: %', SQLSTATE, SQLERRM, regexp_replace(detail, '\n +0: .*', ''), hint;
END $$;

-- The plan of two tables.
CREATE TABLE orders (id serial PRIMARY KEY, note text);
CREATE TABLE items (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id int REFERENCES orders, line smallint);
CREATE VIEW open_orders AS SELECT id FROM orders;
INSERT INTO orders (note) VALUES ('a'), ('b');
INSERT INTO items (order_id, line) VALUES (1, 1), (2, 1);
-- PostgreSQL 15 writes the name of the table before that of a column.
SELECT step, action, replace(statement, 'orders.id', 'id'), locks, rewrites > 0, note FROM snowflake_convert_plan('{orders}');
SELECT count(*) FROM snowflake_convert_plan('{items}') WHERE statement ~ 'orders';
CALL snowflake_convert('{orders, items}');
\d items
SELECT * FROM items ORDER BY id;
CALL snowflake_convert('{orders, items}');
-- Another generator, and a second call for another one.
SELECT snowflake_create_generator('c.ids', 'preset=default');
CREATE TABLE others (id serial PRIMARY KEY);
CALL snowflake_convert('{others}', generator => 'c.ids');
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'others'::regclass;
SELECT statement FROM snowflake_convert_plan('{others}', generator => 'c.ids');
SELECT statement FROM snowflake_convert_plan('{others}');

-- Which columns are keys. Several columns that count; none that counts.
CREATE SCHEMA k;
CREATE TABLE k.both (id serial, part int, place serial, more serial UNIQUE, PRIMARY KEY (id, part));
CREATE TABLE k.bare (id serial, at date);
CREATE TABLE k.lookup (id smallint PRIMARY KEY, name text);
CREATE TABLE k.uses (id bigserial PRIMARY KEY, kind smallint REFERENCES k.lookup);
CREATE TABLE k.custom (id int PRIMARY KEY DEFAULT 1 + 1);
CREATE TABLE k.uuids (id uuid PRIMARY KEY);
-- The row of a table of settings, and keys of another table without a foreign key.
CREATE TABLE k.config (id int PRIMARY KEY DEFAULT 1, v text);
INSERT INTO k.config VALUES (DEFAULT, 'a');
CREATE TABLE k.loose (part_id bigint PRIMARY KEY, v text);
INSERT INTO k.loose VALUES (1, 'a');
CREATE TABLE k.no_rows (id bigint PRIMARY KEY, v text);
CREATE TABLE k.one_to_one (id int PRIMARY KEY REFERENCES k.custom);
SELECT statement, note FROM snowflake_convert_plan(schemas => '{k}') WHERE action IN ('alter', 'default', 'note');
SELECT statement FROM snowflake_convert_plan('{k.lookup}') WHERE action = 'alter';
SELECT statement, note FROM snowflake_convert_plan('{k.one_to_one}');
CALL snowflake_convert(schemas => '{k}');
SELECT relation, is_set, severity, regexp_replace(result, ': .*', '') AS result FROM snowflake_set_defaults('k');
INSERT INTO k.config (v) VALUES ('b') ON CONFLICT (id) DO UPDATE SET v = excluded.v;
TABLE k.config;
SELECT error_of($$INSERT INTO k.loose (v) VALUES ('b')$$);
-- Who names the table wants it.
SELECT action, statement, note FROM snowflake_convert_plan('{k.config, k.loose}') WHERE action IN ('alter', 'default', 'note');
-- All defaults of a schema, with an error in a row.
CREATE SCHEMA s;
CREATE TABLE s.a (id bigserial PRIMARY KEY);
CREATE TABLE s.b (id serial PRIMARY KEY);
CREATE TABLE s.c (id bigserial PRIMARY KEY);
INSERT INTO s.c VALUES (9223372036854775807);
CREATE TABLE s.d (id bigint PRIMARY KEY DEFAULT 1, e bigserial UNIQUE);
INSERT INTO s.d VALUES (1, 9223372036854775807);
SELECT relation, is_set, severity, regexp_replace(result, '; greatest.*', '') AS result FROM snowflake_set_defaults('s');
SELECT error_of($$SELECT snowflake_set_defaults(NULL)$$);
SELECT error_of($$SELECT snowflake_set_defaults('s', 's.a_id_seq')$$);

-- Obstacles: nothing begins.
CREATE DOMAIN key AS integer CHECK (VALUE > 0);
CREATE TABLE of_domain (id key PRIMARY KEY);
SELECT obstacles('of_domain');
SELECT error_of($$CALL snowflake_convert('{of_domain}')$$);
CREATE TABLE by_key (id int PRIMARY KEY) PARTITION BY RANGE (id);
SELECT obstacles('by_key');
CREATE TABLE by_sum (id serial, at int) PARTITION BY RANGE ((id + at));
SELECT obstacles('by_sum');
CREATE TABLE root (id serial, at date) PARTITION BY LIST (at);
CREATE TABLE leaf (at date, id int NOT NULL) PARTITION BY RANGE (id);
ALTER TABLE root ATTACH PARTITION leaf FOR VALUES IN ('2026-01-01');
SELECT obstacles('root');
SELECT error_of($$SELECT obstacles('leaf')$$);
CREATE TYPE pair AS (id int, name text);
CREATE TABLE of_type OF pair (PRIMARY KEY (id));
SELECT obstacles('of_type');
CREATE TABLE whole (id serial PRIMARY KEY);
CREATE TABLE has_whole (w whole, ws whole[]);
SELECT obstacles('whole');
CREATE TABLE p1 (id int PRIMARY KEY);
CREATE TABLE p2 (id int);
CREATE TABLE child () INHERITS (p1, p2);
SELECT obstacles('p1');
CREATE TABLE aggregated (id serial PRIMARY KEY);
CREATE VIEW v AS SELECT id FROM aggregated;
CREATE TABLE has_view (v v);
SELECT obstacles('aggregated');
DROP TABLE has_view;
CREATE FUNCTION add_up(state bigint, it v) RETURNS bigint LANGUAGE sql AS 'SELECT $1 + ($2).id';
CREATE AGGREGATE total(v) (SFUNC = add_up, STYPE = bigint);
SELECT obstacles('aggregated');
-- What no table is.
SELECT error_of($$SELECT snowflake_convert_plan('{v}')$$);
SELECT error_of($$SELECT snowflake_convert_plan('{pg_class}')$$);
SELECT error_of($$SELECT snowflake_convert_plan('{4000000000}')$$);
SELECT error_of($$SELECT snowflake_convert_plan()$$);
SELECT error_of($$SELECT snowflake_convert_plan('{orders}', '{c}')$$);
-- Not the caller's.
CREATE ROLE regress_convert;
GRANT USAGE ON SCHEMA c TO regress_convert;
CREATE TABLE theirs (id serial PRIMARY KEY);
SET ROLE regress_convert;
SELECT error_of($$CALL snowflake_convert('{theirs}')$$);
SELECT error_of($$SELECT snowflake_convert_steps('{theirs}')$$);
-- What keeps the caller from copying.
RESET ROLE;
CREATE TABLE hindered (id serial PRIMARY KEY, at int4range, EXCLUDE USING gist (at WITH &&), EXCLUDE USING gist (int4range(id, id + 1) WITH &&));
ALTER TABLE hindered OWNER TO regress_convert;
ALTER TABLE hindered ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE RULE quiet AS ON UPDATE TO hindered DO INSTEAD NOTHING;
ALTER TABLE hindered ENABLE ALWAYS RULE quiet;
SET ROLE regress_convert;
SELECT note FROM snowflake_convert_plan('{hindered}', online => true) WHERE action = 'obstacle' ORDER BY 1;
RESET ROLE;
DROP OWNED BY regress_convert;
DROP ROLE regress_convert;

-- A generated column, in a child table too.
CREATE TABLE base (id serial PRIMARY KEY, code text GENERATED ALWAYS AS ('c' || id) STORED);
CREATE TABLE derived (half int GENERATED ALWAYS AS (id / 2) STORED) INHERITS (base);
INSERT INTO derived VALUES (DEFAULT, DEFAULT);
SELECT statement, rewrites > 0, note FROM snowflake_convert_plan('{base}') WHERE action = 'alter';
CALL snowflake_convert('{base}');
SELECT * FROM derived;
SELECT attname, format_type(atttypid, NULL), attgenerated FROM pg_attribute WHERE attrelid = 'derived'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1;

-- Old rows get IDs of their time, in the order of ticks, then of keys; foreign keys follow.
CREATE SCHEMA b;
CREATE TABLE b.customers (id serial PRIMARY KEY, name text, created_at timestamptz, updated_at timestamptz);
CREATE TABLE b.orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "customer's" int REFERENCES b.customers DEFERRABLE INITIALLY DEFERRED,
    again int REFERENCES b.orders ON DELETE SET NULL, made timestamp NOT NULL, doubled bigint GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE b.extras (customer_id bigint PRIMARY KEY REFERENCES b.customers);
CREATE TABLE b.extra_notes (id bigserial PRIMARY KEY, extra_id int, old_order_id bigint);
ALTER TABLE b.extra_notes ADD FOREIGN KEY (extra_id) REFERENCES b.extras NOT VALID;
CREATE VIEW b.both AS SELECT o.made, c.name, p.made AS again FROM b.orders AS o JOIN b.customers AS c ON c.id = o."customer's" LEFT JOIN b.orders AS p ON p.id = o.again;
COMMENT ON CONSTRAINT extras_customer_id_fkey ON b.extras IS 'of extras';
INSERT INTO b.customers (name, created_at) SELECT 'c' || n, '2025-03-01Z'::timestamptz + n / 5000 * interval '1 ms' FROM generate_series(1, 9999) AS n;
INSERT INTO b.orders ("customer's", again, made) SELECT n, nullif(n / 2, 0), '2025-03-01'::timestamp + (100 - n) * interval '1 s' FROM generate_series(1, 100) AS n;
INSERT INTO b.extras VALUES (1), (2);
INSERT INTO b.extra_notes (extra_id) VALUES (1), (2);
CREATE TABLE b.before AS SELECT * FROM b.both;
SELECT statement FROM snowflake_convert_plan(schemas => '{b}', backfill => true, worker_id => 1000, also => '{b.extra_notes.old_order_id=none}') WHERE action IN ('backfill', 'drop', 'alter', 'make') AND statement !~ 'VIEW';
SELECT note FROM snowflake_convert_plan(schemas => '{b}', backfill => true, worker_id => 1000, also => '{b.extra_notes.old_order_id=none}') WHERE step IS NULL;
SET client_min_messages = warning;
CALL snowflake_convert(schemas => '{b}', backfill => true, worker_id => 1000, also => '{b.extra_notes.old_order_id=none}');
RESET client_min_messages;
SELECT count(*), count(DISTINCT new_id), min((snowflake_decode(new_id)).worker_id), max((snowflake_decode(new_id)).worker_id) FROM b.snowflake_old_ids;
-- A tick holds 4096 IDs: 4999 customers are of the first one, and their last ones get IDs of the next.
SELECT snowflake_timestamp(id) - '2025-03-01Z' AS later, count(*), min(created_at), max(created_at) FROM b.customers GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM (SELECT id < lag(id) OVER (ORDER BY created_at, substr(name, 2)::int) AS is_before FROM b.customers) AS c WHERE is_before;
SELECT count(*) FILTER (WHERE snowflake_timestamp(id) = made), count(*) FILTER (WHERE doubled = id * 2) FROM b.orders;
SELECT (SELECT count(*) FROM b.both), (SELECT count(*) FROM (TABLE b.before EXCEPT TABLE b.both) AS lost);
SELECT conname, pg_get_constraintdef(oid), obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE contype = 'f' AND connamespace = 'b'::regnamespace ORDER BY 1;
SELECT min(extra_id) = (SELECT min(id) FROM b.customers) FROM b.extra_notes;
INSERT INTO b.customers (name) VALUES ('new');
SELECT name FROM b.customers ORDER BY id DESC LIMIT 1;
SELECT statement FROM snowflake_convert_plan(schemas => '{b}', backfill => true, worker_id => 1000, also => '{b.extra_notes.old_order_id=none}') WHERE statement IS NOT NULL;
-- What old rows cannot have.
CREATE FUNCTION c.refused(relations regclass[], backfill_by name[] DEFAULT NULL, worker_id bigint DEFAULT 1000, generator regclass DEFAULT NULL) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT note FROM snowflake_convert_plan(relations, generator => generator, backfill => true, backfill_by => backfill_by, worker_id => worker_id) WHERE action = 'obstacle' $$;
CREATE TABLE b.many (id serial, at timestamptz, day date, label text, t timestamp);
INSERT INTO b.many (id, at, day) VALUES (1, NULL, NULL), (1, '1999-01-01Z', '2025-01-02'), (2, 'infinity', '2025-01-03'), (3, '-infinity', '2025-01-04');
ALTER TABLE b.snowflake_old_ids RENAME TO old_ids;
CREATE VIEW b.snowflake_old_ids AS TABLE b.old_ids;
SELECT refused('{b.customers, b.many}');
DROP VIEW b.snowflake_old_ids;
SELECT refused('{b.many}', '{at}');
SELECT refused('{b.many}', '{none, day, at}');
SELECT refused('{b.many}', '{label}');
SELECT refused('{b.many}', '{day}', 7);
SELECT error_of($$SELECT refused('{b.many}', '{day}', 1024)$$);
SELECT snowflake_create_generator('c.reversed', 'preset=uniqueid mode=0');
SELECT refused('{b.many}', '{day}', 3, 'c.reversed');
SELECT error_of($$CALL snowflake_convert('{b.many}', backfill => true, backfill_by => '{at}', worker_id => 1000)$$);
SELECT error_of($$CALL snowflake_convert('{b.many}', backfill => true)$$);
SELECT error_of($$CALL snowflake_convert('{b.many}', worker_id => 1000)$$);
SELECT error_of($$CALL snowflake_convert('{b.many}', backfill => true, worker_id => 1000, set_default => false)$$);
SELECT note FROM snowflake_convert_plan('{b.many}', backfill => true, worker_id => 1000, online => true);
CREATE TABLE b.left_side (id serial PRIMARY KEY, at timestamptz);
CREATE TABLE b.right_side (id serial PRIMARY KEY, at timestamptz);
CREATE TABLE b.either (id int REFERENCES b.left_side, FOREIGN KEY (id) REFERENCES b.right_side);
SELECT refused('{b.left_side, b.right_side}');
CREATE TABLE b.parts (id bigint PRIMARY KEY DEFAULT nextval('b.many_id_seq'), at timestamptz) PARTITION BY RANGE (id);
SELECT refused('{b.parts}');
-- A layout with its worker ID below, ticks of 10 ms, and few sequence numbers.
SELECT snowflake_create_generator('c.sony', 'preset=sonyflake');
CREATE TABLE b.few (id serial PRIMARY KEY, at timestamptz);
INSERT INTO b.few (at) SELECT '2025-03-01Z' FROM generate_series(1, 600);
SET client_min_messages = warning;
CALL snowflake_convert('{b.few}', generator => 'c.sony', backfill => true, worker_id => 65535);
RESET client_min_messages;
SELECT snowflake_timestamp(id, 'c.sony') - '2025-03-01Z' AS later, count(*), min((snowflake_decode(id, 'c.sony')).worker_id), max((snowflake_decode(id, 'c.sony')).sequence) FROM b.few GROUP BY 1 ORDER BY 1;

-- Strange names.
CREATE TABLE "A ""b" ("I d'" serial PRIMARY KEY, "select" int);
CREATE TABLE "c\d" ("A ""b" int REFERENCES "A ""b");
CREATE INDEX "I ""x" ON "A ""b" (("I d'" + 1)) WHERE "I d'" > 0;
CREATE VIEW "v ""v" AS SELECT "I d'" AS "J""d" FROM "A ""b";
COMMENT ON COLUMN "v ""v"."J""d" IS 'it''s \';
CALL snowflake_convert(ARRAY['"A ""b"']::regclass[]);
SELECT attrelid::regclass, attname FROM pg_attribute WHERE atttypid = 'bigint'::regtype AND attrelid IN ('"A ""b"'::regclass, '"c\d"'::regclass, '"v ""v"'::regclass);
-- The same while they are in use.
CREATE TABLE "E ""b" ("I d'" serial PRIMARY KEY, "select" int);
CREATE TABLE "e\d" ("E ""b" int REFERENCES "E ""b");
CREATE INDEX "E ""x" ON "E ""b" (("I d'" + 1)) WHERE "I d'" > 0;
INSERT INTO "E ""b" ("select") VALUES (1), (2);
SET client_min_messages = warning;
\pset format unaligned
SELECT statement FROM snowflake_convert_steps(ARRAY['"E ""b"']::regclass[]) \gexec
RESET client_min_messages;
\d "E ""b"
SELECT "I d'" FROM "E ""b" ORDER BY 1;
SELECT note FROM snowflake_convert_plan('{base, root}', online => true) WHERE action = 'obstacle';
SELECT error_of($$CALL snowflake_convert_backfill('base')$$);
SELECT error_of($$CALL snowflake_convert_swap('{base}')$$);
SET client_min_messages = warning;
DROP SCHEMA b, c, k, s CASCADE;
