-- snowflake_set_type() changes a key, and what refers to it, between bigint and snowflake.
SET timezone = 'UTC';
\set SHOW_CONTEXT never
CREATE SCHEMA st;
SET search_path = st, public;
-- The columns of type snowflake, in tables and partitions.
CREATE FUNCTION typed() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(a.attrelid::regclass || '.' || quote_ident(a.attname), ' ' ORDER BY a.attrelid::regclass::text COLLATE "C", a.attnum)
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'st'::regnamespace AND c.relkind IN ('r', 'p', 'f') AND a.atttypid = 'snowflake'::regtype
$$;
-- Where the rows of tables and the entries of indexes are, and which have been written anew since then.
CREATE TABLE places AS SELECT relname, relfilenode FROM pg_class WHERE false;
CREATE FUNCTION moved() RETURNS SETOF name LANGUAGE sql AS $$
    SELECT c.relname FROM pg_class AS c JOIN st.places AS p ON p.relname = c.relname
    WHERE c.relnamespace = 'st'::regnamespace AND c.relkind IN ('r', 'i') AND p.relfilenode <> c.relfilenode ORDER BY 1
$$;
CREATE FUNCTION look() RETURNS bigint LANGUAGE sql AS $$
    DELETE FROM st.places;
    INSERT INTO st.places SELECT c.relname, c.relfilenode FROM pg_class AS c WHERE c.relnamespace = 'st'::regnamespace;
    SELECT count(*) FROM st.places WHERE relfilenode > 0;
$$;
-- Prints the error of a statement.
CREATE FUNCTION error_of(statement text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE detail text; hint text;
BEGIN
    EXECUTE statement;
    RAISE NOTICE 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE NOTICE E'%: %\ndetail: %\nhint: %', SQLSTATE, SQLERRM, replace(regexp_replace(regexp_replace(
        detail, '\m\d{18,19}\M', 'N', 'g'), '\m\d{4}-\d\d-\d\d [\d:.]+\+00', 'T', 'g'), '; ', E';\n        '), hint;
END $$;

-- A key with references to it: from itself, from a composite key, through another key, from a table
-- with partitions. Other columns keep their types, and so does the key that a changed column refers to.
CREATE TABLE customers (id bigint PRIMARY KEY);
CREATE TABLE orders (
    id bigint PRIMARY KEY DEFAULT snowflake_nextval() CHECK (id > 0),
    parent bigint REFERENCES orders, customer bigint REFERENCES customers, total bigint, UNIQUE (id, customer));
CREATE TABLE notes (order_id bigint PRIMARY KEY REFERENCES orders ON DELETE CASCADE, refers_to bigint REFERENCES customers);
CREATE TABLE details (note_id bigint REFERENCES notes, "the Order" bigint, customer bigint,
    FOREIGN KEY ("the Order", customer) REFERENCES orders (id, customer));
CREATE TABLE parts (day date, order_id bigint REFERENCES orders, PRIMARY KEY (day, order_id)) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE parts_2 (order_id bigint NOT NULL, day date NOT NULL);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
-- No statistics but those that are asked for.
ALTER TABLE orders SET (autovacuum_enabled = off);
ALTER TABLE notes SET (autovacuum_enabled = off);
ALTER TABLE details SET (autovacuum_enabled = off);
CREATE INDEX ON details USING hash ("the Order");
CREATE INDEX ON orders USING brin (id);
INSERT INTO customers VALUES (1), (2);
INSERT INTO orders (customer) SELECT 1 + n % 2 FROM generate_series(1, 100) AS n;
UPDATE orders SET parent = (SELECT min(id) FROM orders);
INSERT INTO notes SELECT id FROM orders;
INSERT INTO details SELECT id, id, customer FROM orders;
INSERT INTO parts SELECT date '2026-01-31' + (n.place % 2)::integer, n.id FROM (SELECT id, row_number() OVER () FROM orders) AS n (id, place);
SELECT look();
SELECT count(*) AS constraints FROM pg_constraint WHERE connamespace = 'st'::regnamespace AND convalidated AND contype <> 'n' \gset
SELECT snowflake_set_type('orders');
SELECT typed();
-- PostgreSQL builds the indexes of partitioned tables anew, and no others.
SELECT moved();
SELECT :constraints = count(*) AS all_are_valid FROM pg_constraint WHERE connamespace = 'st'::regnamespace AND convalidated AND contype <> 'n';
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'orders'::regclass;
SELECT jsonb_typeof(to_jsonb(o)->'id') AS id, jsonb_typeof(to_jsonb(o)->'parent') AS parent, jsonb_typeof(to_jsonb(o)->'customer') AS customer
FROM orders AS o LIMIT 1;
INSERT INTO orders (customer) VALUES (1) RETURNING pg_typeof(id), id = snowflake_currval() AS from_the_generator;
-- Keys of both types refer to each other.
SELECT error_of('INSERT INTO notes VALUES (5)');
-- A second call changes and locks nothing; a table that came later follows.
BEGIN;
SELECT snowflake_set_type('orders');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode ~ 'Exclusive' AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'st'::regnamespace);
COMMIT;
CREATE TABLE late (id bigint PRIMARY KEY, order_id bigint REFERENCES orders) WITH (autovacuum_enabled = off);
SELECT snowflake_set_type('orders', 'id', 'snowflake');
-- From a column that refers to others, what refers to it changes, and the others do not.
SELECT snowflake_set_type('notes', type => 'bigint');
SELECT typed();
SELECT snowflake_set_type('orders', type => 'bigint');
SELECT typed();
SELECT moved();
SELECT snowflake_set_type('orders', type => 'bigint');
-- The planner's statistics are gone.
ANALYZE orders, notes, parts, late;
SELECT snowflake_set_type('orders');
SELECT count(*) FROM pg_stats WHERE schemaname = 'st' AND attname IN ('id', 'order_id') AND tablename <> 'customers';
-- In a partition, the whole table changes.
SELECT snowflake_set_type('parts_2', 'order_id', 'bigint');
SELECT typed();

-- A sequence stays the default.
CREATE TABLE serials (id bigserial PRIMARY KEY);
SELECT snowflake_set_type('serials');
INSERT INTO serials DEFAULT VALUES RETURNING pg_typeof(id), id;
SELECT pg_get_serial_sequence('serials', 'id');
DROP TABLE serials;

-- Inheritance, and a foreign table as a child.
CREATE TABLE animals (id bigint PRIMARY KEY, mate bigint);
CREATE TABLE cats (UNIQUE (id), lives integer) INHERITS (animals);
CREATE TABLE kittens (of bigint REFERENCES cats (id));
CREATE FOREIGN DATA WRAPPER st_nothing;
CREATE SERVER st_nowhere FOREIGN DATA WRAPPER st_nothing;
CREATE FOREIGN TABLE dogs (bark text) INHERITS (animals) SERVER st_nowhere;
SELECT snowflake_set_type('cats', 'id');
SELECT snowflake_set_type('animals', 'mate');
SELECT typed();
SELECT snowflake_set_type('animals', type => 'bigint');
DROP TABLE animals CASCADE;
DROP FOREIGN DATA WRAPPER st_nothing CASCADE;

-- What is in the way, all at once.
CREATE TABLE busy (id bigint PRIMARY KEY, v integer, twice bigint GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE busy_lines (busy_id bigint GENERATED ALWAYS AS IDENTITY REFERENCES busy, v integer);
CREATE DOMAIN order_number AS bigint;
CREATE TABLE busy_domain (busy_id order_number REFERENCES busy);
CREATE TABLE busy_integer (busy_id integer REFERENCES busy);
CREATE TABLE busy_numeric (busy_id bigint REFERENCES busy) PARTITION BY LIST (busy_id);
CREATE TYPE busy_row AS (busy_id bigint);
CREATE TABLE busy_typed OF busy_row (FOREIGN KEY (busy_id) REFERENCES busy);
CREATE TABLE busy_rows (rows busy_lines[]);
CREATE TABLE busy_unique (busy_id bigint REFERENCES busy, id bigint, UNIQUE (id) INCLUDE (busy_id));
CREATE TABLE busy_including (id bigint REFERENCES busy_unique (id));
CREATE TABLE busy_parent_1 (busy_id bigint REFERENCES busy);
CREATE TABLE busy_parent_2 (busy_id bigint REFERENCES busy);
CREATE TABLE busy_child () INHERITS (busy_parent_1, busy_parent_2);
CREATE VIEW busy_view AS SELECT id FROM busy;
CREATE VIEW busy_view_of_view AS SELECT id FROM busy_view;
CREATE MATERIALIZED VIEW busy_matview AS SELECT busy_id FROM busy_lines;
CREATE RULE busy_rule AS ON UPDATE TO busy WHERE new.id = 5 DO ALSO DELETE FROM busy_lines WHERE busy_id = old.id;
CREATE POLICY busy_policy ON busy USING (id > 0);
CREATE FUNCTION busy_function() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM busy; END;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TRIGGER busy_update_of BEFORE UPDATE OF id ON busy FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER busy_when BEFORE UPDATE ON busy FOR EACH ROW WHEN (new.id > 0) EXECUTE FUNCTION touch();
CREATE TRIGGER busy_any BEFORE UPDATE ON busy FOR EACH ROW EXECUTE FUNCTION touch();
SET client_min_messages = error;
CREATE PUBLICATION st_filter FOR TABLE busy WHERE (id > 0);
CREATE PUBLICATION st_all FOR TABLE busy;
RESET client_min_messages;
SELECT error_of($$SELECT snowflake_set_type('busy')$$);
SELECT typed();
-- Each of them alone.
CREATE FUNCTION alone(obstacle text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE TABLE st.one (id bigint PRIMARY KEY, v integer);
    EXECUTE obstacle;
    PERFORM st.error_of($s$SELECT public.snowflake_set_type('st.one')$s$);
    RAISE EXCEPTION USING ERRCODE = 'ZZZZZ', MESSAGE = 'undone';
EXCEPTION WHEN SQLSTATE 'ZZZZZ' THEN NULL;
END $$;
SET client_min_messages = notice;
SELECT alone(o) FROM unnest(ARRAY[
    'SELECT 1',
    'CREATE VIEW one_view AS SELECT id FROM one',
    'CREATE VIEW one_view AS SELECT v FROM one',
    'ALTER TABLE one ALTER id ADD GENERATED BY DEFAULT AS IDENTITY',
    'CREATE TABLE two (one_id integer REFERENCES one)',
    'CREATE TABLE two (one_id bigint REFERENCES one) PARTITION BY HASH (one_id)',
    'CREATE POLICY p ON one USING (id > 0)',
    'CREATE TABLE two (day date, one_id bigint REFERENCES one) PARTITION BY LIST (day); CREATE TABLE two_1 PARTITION OF two DEFAULT;
    CREATE TRIGGER t BEFORE UPDATE OF one_id ON two FOR EACH ROW EXECUTE FUNCTION touch()',
    'SET LOCAL client_min_messages = error; CREATE PUBLICATION st_columns FOR TABLE one (id); SET LOCAL client_min_messages = notice']) AS o;
-- What cannot be meant.
SELECT error_of($$SELECT snowflake_set_type('busy', type => 'integer')$$);
SELECT error_of($$SELECT snowflake_set_type(NULL)$$);
SELECT error_of($$SELECT snowflake_set_type('busy', type => NULL)$$);
SELECT error_of($$SELECT snowflake_set_type('busy_view')$$);
BEGIN READ ONLY;
SELECT error_of($$SELECT snowflake_set_type('busy')$$);
COMMIT;
SELECT error_of($$SELECT snowflake_set_type(1::regclass)$$);
SELECT error_of($$SELECT snowflake_set_type('busy', 'v')$$);
SELECT error_of($$SELECT snowflake_set_type('busy', 'twice')$$);
SELECT error_of($$SELECT snowflake_set_type('busy', 'none')$$);
SELECT error_of($$SELECT snowflake_set_type('details')$$);
SELECT error_of($$SELECT snowflake_set_type('parts')$$);
CREATE TABLE pairs (a bigint, b bigint, PRIMARY KEY (a, b));
SELECT error_of($$SELECT snowflake_set_type('pairs')$$);
SET client_min_messages = error;
DROP PUBLICATION st_filter, st_all;
DROP TABLE busy, busy_lines, busy_domain, busy_integer, busy_numeric, busy_typed, busy_rows, busy_unique, busy_including,
    busy_parent_1, busy_parent_2 CASCADE;
RESET client_min_messages;

-- Whose tables.
CREATE ROLE regress_st_owner;
CREATE ROLE regress_st_other;
GRANT CREATE, USAGE ON SCHEMA st TO regress_st_owner, regress_st_other;
SET ROLE regress_st_owner;
CREATE TABLE shop (id bigint PRIMARY KEY);
GRANT REFERENCES ON shop TO regress_st_other;
CREATE VIEW shop_view AS SELECT id FROM shop;
SET ROLE regress_st_other;
CREATE TABLE stock (shop_id bigint REFERENCES shop);
GRANT SELECT ON stock TO regress_st_owner;
RESET ROLE;
GRANT EXECUTE ON FUNCTION error_of(text) TO PUBLIC;
SET ROLE regress_st_owner;
SELECT error_of($$SELECT snowflake_set_type('shop')$$);
SET ROLE regress_st_other;
SELECT error_of($$SELECT snowflake_set_type('shop')$$);
SELECT error_of($$SELECT snowflake_set_default('shop', type => 'snowflake')$$);
-- The owner of one table can change that alone; the key of another role stays.
SELECT snowflake_set_type('stock', 'shop_id');
RESET ROLE;
DROP VIEW shop_view;
-- A superuser changes both, each as its owner, who refers to the other by a right to do so.
SELECT snowflake_set_type('shop');
SELECT typed();
DROP TABLE shop, stock;
DROP OWNED BY regress_st_owner, regress_st_other;
DROP ROLE regress_st_owner, regress_st_other;

-- snowflake_set_default() takes a column of either type, and can change it.
CREATE TABLE keys (id snowflake PRIMARY KEY);
INSERT INTO keys VALUES (7);
SELECT snowflake_set_default('keys');
SELECT snowflake_set_default('keys');
INSERT INTO keys DEFAULT VALUES RETURNING pg_typeof(id), id = snowflake_currval() AS from_the_generator;
SELECT finding, detail FROM snowflake_check('keys') WHERE finding = 'all IDs';
CREATE TABLE carts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text);
CREATE TABLE cart_lines (id bigserial PRIMARY KEY, cart_id bigint REFERENCES carts);
INSERT INTO carts (note) VALUES ('a'), ('b');
INSERT INTO cart_lines (cart_id) SELECT id FROM carts;
SELECT look();
SELECT snowflake_set_default('carts', type => 'snowflake');
SELECT typed();
SELECT moved();
INSERT INTO carts (note) VALUES ('c') RETURNING pg_typeof(id), id = snowflake_currval() AS from_the_generator;
SELECT snowflake_set_default('carts', type => 'snowflake');
SELECT snowflake_set_default('carts', type => 'bigint');
SELECT error_of($$SELECT snowflake_set_default('carts', type => 'integer')$$);
CREATE VIEW cart_view AS SELECT id FROM carts;
SELECT error_of($$SELECT snowflake_set_default('carts', type => 'snowflake')$$);
-- An identity of a column that refers to the key stays, so its type cannot change.
CREATE TABLE odd (id bigint PRIMARY KEY, other bigint GENERATED BY DEFAULT AS IDENTITY REFERENCES odd);
SELECT error_of($$SELECT snowflake_set_default('odd', type => 'snowflake')$$);
-- Columns that refer to a key of this type: integer is too narrow, the rest is right.
CREATE TABLE wide (id snowflake PRIMARY KEY);
CREATE TABLE narrow (a integer REFERENCES wide, b bigint REFERENCES wide, c snowflake REFERENCES wide);
SELECT error_of($$SELECT snowflake_set_default('wide')$$);
-- Partitions by a key of this type, and domains over it.
CREATE TABLE ranges (id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE ranges_1 PARTITION OF ranges FOR VALUES FROM (0) TO (1000);
SELECT error_of($$SELECT snowflake_set_default('ranges')$$);
CREATE TABLE ranges_2 PARTITION OF ranges FOR VALUES FROM ('1000') TO (MAXVALUE);
SELECT snowflake_set_default('ranges');
CREATE TABLE lists (id snowflake PRIMARY KEY) PARTITION BY LIST (id);
CREATE TABLE lists_1 PARTITION OF lists FOR VALUES IN (1, 2);
CREATE TABLE lists_rest PARTITION OF lists DEFAULT;
SELECT snowflake_set_default('lists');
CREATE DOMAIN key_domain AS snowflake CHECK (VALUE > 0);
CREATE DOMAIN small_domain AS snowflake CHECK (VALUE < 1000);
CREATE TABLE domains (a key_domain, b small_domain);
SELECT snowflake_set_default('domains', 'a');
SELECT error_of($$SELECT snowflake_set_default('domains', 'b')$$);
SELECT error_of($$SELECT snowflake_set_type('domains', 'a', 'bigint')$$);
-- All tables of a schema.
CREATE SCHEMA st_all;
CREATE TABLE st_all.a (id bigserial PRIMARY KEY);
CREATE TABLE st_all.b (id snowflake PRIMARY KEY, a_id bigint REFERENCES st_all.a);
SELECT relation, is_set, result FROM snowflake_set_defaults('st_all', type => 'snowflake');
DROP SCHEMA st_all CASCADE;

-- The trigger that keeps IDs in order takes a column of this type.
CREATE TABLE events (id snowflake PRIMARY KEY DEFAULT snowflake_nextval());
CREATE TRIGGER ordered BEFORE INSERT OR UPDATE OF id ON events FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon();
INSERT INTO events DEFAULT VALUES;
SELECT error_of('INSERT INTO events VALUES (5)');

-- The conversion takes tables with such columns. By default, they stay as they are.
CREATE TABLE small (id serial PRIMARY KEY, event_id snowflake REFERENCES events);
CREATE TABLE small_lines (id snowflake PRIMARY KEY, small_id integer REFERENCES small);
SET client_min_messages = warning;
CALL snowflake_convert('{small, small_lines}');
RESET client_min_messages;
SELECT attrelid::regclass, attname, format_type(atttypid, NULL), pg_get_expr(adbin, adrelid)
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid IN ('small'::regclass, 'small_lines'::regclass) AND attnum > 0 ORDER BY 1, attnum;
-- Old rows get IDs in such columns too.
CREATE TABLE old_rows (id snowflake PRIMARY KEY, at timestamptz NOT NULL);
CREATE TABLE old_lines (old_id integer REFERENCES old_rows);
INSERT INTO old_rows VALUES (1, '2026-01-01Z');
INSERT INTO old_lines VALUES (1);
CREATE TABLE apart (old_row_id snowflake);
SELECT note FROM snowflake_convert_plan('{old_rows}', backfill => true, backfill_by => '{at}', worker_id => 3) WHERE note ~ 'apart';
SET client_min_messages = warning;
CALL snowflake_convert('{old_rows}', backfill => true, backfill_by => '{at}', worker_id => 3);
RESET client_min_messages;
SELECT pg_typeof(r.id), pg_typeof(l.old_id), snowflake_timestamp(r.id) = '2026-01-01Z' AS is_of_its_time FROM old_rows AS r JOIN old_lines AS l ON l.old_id = r.id;
SELECT snowflake_set_type('small');

-- It can also change keys of all types to this type, or back, and make again what depends on them.
CREATE TABLE shelves (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
CREATE TABLE books (id bigserial PRIMARY KEY, shelf_id integer REFERENCES shelves, twice bigint GENERATED ALWAYS AS (id * 2) STORED);
COMMENT ON CONSTRAINT books_shelf_id_fkey ON books IS 'stays';
CREATE TABLE plain (id bigint PRIMARY KEY);
CREATE VIEW book_view AS SELECT b.id, s.name FROM books AS b JOIN shelves AS s ON s.id = b.shelf_id;
CREATE VIEW plain_view AS SELECT id FROM plain;
CREATE POLICY p ON books USING (id > 0);
INSERT INTO shelves (name) VALUES ('a');
INSERT INTO books (shelf_id) VALUES (1);
INSERT INTO plain VALUES (1);
SELECT step, action, split_part(statement, E'\n', 1) AS statement, rewrites > 0 AS rewrites FROM snowflake_convert_plan('{shelves, books, plain}', type => 'snowflake') WHERE step IS NOT NULL;
SET client_min_messages = warning;
CALL snowflake_convert('{shelves, books, plain}', type => 'snowflake');
RESET client_min_messages;
CREATE FUNCTION columns_of(VARIADIC tables regclass[]) RETURNS TABLE (name text, type text, "default" text) LANGUAGE sql AS $$
    SELECT attrelid::regclass || '.' || attname, format_type(atttypid, NULL), pg_get_expr(adbin, adrelid)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = ANY (tables) AND attnum > 0 AND NOT attisdropped ORDER BY 1
$$;
SELECT * FROM columns_of('shelves', 'books', 'plain', 'book_view', 'plain_view');
SELECT * FROM book_view;
SELECT obj_description(oid, 'pg_constraint'), convalidated FROM pg_constraint WHERE conname = 'books_shelf_id_fkey';
INSERT INTO shelves DEFAULT VALUES RETURNING pg_typeof(id), id = snowflake_currval() AS from_the_generator;
CALL snowflake_convert('{shelves, books, plain}', type => 'snowflake');
SELECT step, action, split_part(statement, E'\n', 1) AS statement, rewrites > 0 AS rewrites FROM snowflake_convert_plan('{plain}', set_default => false, type => 'bigint') WHERE step IS NOT NULL;
CALL snowflake_convert('{plain}', set_default => false, type => 'bigint');
SELECT * FROM columns_of('plain', 'plain_view');
CREATE TABLE ident (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CREATE TABLE ident_lines (ident_id bigint GENERATED ALWAYS AS IDENTITY REFERENCES ident);
SELECT error_of($$CALL snowflake_convert('{ident}', set_default => false, type => 'snowflake')$$);
SELECT error_of($$CALL snowflake_convert('{ident}', type => 'snowflake')$$);
SELECT error_of($$CALL snowflake_convert('{ident}', type => 'integer')$$);
SELECT note FROM snowflake_convert_plan('{ident}', online => true, type => 'snowflake');
CREATE TABLE ident_integer (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CALL snowflake_convert('{ident_integer}', set_default => false, type => 'bigint');
SELECT format_type(atttypid, NULL), attidentity FROM pg_attribute WHERE attrelid = 'ident_integer'::regclass AND attnum > 0;

SET client_min_messages = warning;
DROP SCHEMA st CASCADE;
