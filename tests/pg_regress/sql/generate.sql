-- IDs are generated as the default of a key column.
SELECT snowflake_currval();
SELECT snowflake_nextval() > 0 AS positive;
SELECT snowflake_nextval('snowflake_default') < snowflake_nextval('snowflake_default') AS increasing;
SELECT snowflake_nextval() = snowflake_currval() AS same,
       snowflake_currval() = snowflake_currval('snowflake_default') AS same_too;
SELECT (snowflake_decode(snowflake_nextval())).worker_id;
SELECT snowflake_timestamp(snowflake_nextval()) BETWEEN now() - interval '1 s' AND now() + interval '1 s' AS now;
SELECT snowflake_nextval(NULL) IS NULL AS null_gives_null;

-- The low bits vary at low rates: each fresh tick starts at another sequence number.
DO $$
DECLARE starts integer[] := '{}';
BEGIN
    FOR i IN 1 .. 40 LOOP
        starts := starts || (snowflake_nextval() % 64)::integer;
        PERFORM pg_sleep(0.0021);
    END LOOP;
    RAISE NOTICE 'id %% 64 takes more than 10 values: %',
        (SELECT count(DISTINCT s) > 10 FROM unnest(starts) AS s);
END $$;

-- Batches ascend, and no ID is issued twice.
SELECT count(*), count(DISTINCT id), bool_and(id > before) AS ascending
FROM (SELECT id, lag(id, 1, 0::bigint) OVER (ORDER BY n) AS before
      FROM snowflake_nextval_batch(5000) WITH ORDINALITY AS b (id, n)) AS s;
SELECT count(*), count(DISTINCT id)
FROM (SELECT snowflake_nextval_batch(100000, 'snowflake_default') AS id) AS s;
SELECT max(id) = snowflake_currval() AS currval_is_the_last FROM snowflake_nextval_batch(10) AS id;
SELECT count(*) FROM (SELECT snowflake_nextval_batch(1000) LIMIT 3) AS s;
SELECT snowflake_nextval_batch(0);
SELECT snowflake_nextval_batch(-1);
SELECT snowflake_nextval_batch(100001);
SELECT count(*) FROM snowflake_nextval_batch(NULL);

-- A block returns its first ID, and no other call gets the rest.
SELECT snowflake_nextval_block(50) AS first \gset
SELECT snowflake_currval() = :first AS currval_is_the_first,
       snowflake_nextval() > :first + 49 AS not_in_the_block;
SELECT bool_and(first > before + 49) AS apart, bool_and(snowflake_timestamp(first) = snowflake_timestamp(first + 49)) AS in_a_tick
FROM (SELECT first, lag(first, 1, -50::bigint) OVER (ORDER BY n) AS before
      FROM (SELECT n, snowflake_nextval_block(50) AS first FROM generate_series(1, 1000) AS n) AS b) AS s;
SELECT bool_and(first / 4096 = (first + 4032) / 4096) AS in_a_tick
FROM (SELECT snowflake_nextval_block(4033, 'snowflake_default') AS first FROM generate_series(1, 100)) AS s;
SELECT snowflake_nextval_block(1) > 0 AS one;
SELECT snowflake_nextval_block(0);
SELECT snowflake_nextval_block(-1);
SELECT snowflake_nextval_block(4034);
SELECT snowflake_nextval_block(NULL) IS NULL AS null_gives_null;
-- Other generators give blocks too, with other starts and in clock sequences; a generator
-- whose IDs do not count up refuses.
SELECT snowflake_create_generator('small', $$layout='time:41 worker:10 sequence:3' epoch=1735689600000 max_borrow=0 sequence_start='vibrate 2'$$);
SELECT snowflake_nextval_block(7, 'small');
SELECT count(DISTINCT first / 8) AS ticks, bool_and(first % 8 <= 2) AS in_a_tick
FROM (SELECT snowflake_nextval_block(6, 'small') AS first FROM generate_series(1, 20)) AS s;
SELECT snowflake_create_generator('clocks', $$preset=multi_clock epoch=1735689600000 on_exhausted=next_clock$$);
SELECT snowflake_create_generator('apart', $$layout='time:41 sequence:12 worker:10' epoch=1735689600000$$);
SELECT snowflake_nextval_block(2, 'apart');
SELECT snowflake_create_generator('unordered', $$preset=javascript sequence_start=random$$);
SELECT snowflake_nextval_block(2, 'unordered');
SELECT bool_and((d.fields ->> 'clock') = (e.fields ->> 'clock') AND d.created_at = e.created_at) AS in_a_clock, count(DISTINCT d.fields ->> 'clock') > 1 AS in_clocks
FROM (SELECT snowflake_nextval_block(100, 'clocks') AS first FROM generate_series(1, 2000)) AS s,
     snowflake_decode(first, 'clocks') AS d, snowflake_decode(first + 99, 'clocks') AS e;
DROP SEQUENCE small, clocks, apart, unordered;

-- INSERT, COPY and INSERT ... SELECT use the default.
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
INSERT INTO orders (item) VALUES ('one'), ('two');
COPY orders (item) FROM stdin;
three
four
\.
INSERT INTO orders (item) SELECT 'many' FROM generate_series(1, 10000);
SELECT count(*), count(DISTINCT id) FROM orders;
SELECT item FROM orders ORDER BY id LIMIT 4;
INSERT INTO orders (item) VALUES ('returned') RETURNING id = snowflake_currval() AS is_currval;
UPDATE orders SET id = DEFAULT WHERE item = 'one';
SELECT item FROM orders ORDER BY id DESC LIMIT 1;

-- So do partitioned parents, triggers, prepared statements, PL/pgSQL and MERGE.
CREATE TABLE events (id bigint DEFAULT snowflake_nextval(), kind integer) PARTITION BY HASH (id);
CREATE TABLE events_0 PARTITION OF events FOR VALUES WITH (MODULUS 4, REMAINDER 0);
CREATE TABLE events_1 PARTITION OF events FOR VALUES WITH (MODULUS 4, REMAINDER 1);
CREATE TABLE events_2 PARTITION OF events FOR VALUES WITH (MODULUS 4, REMAINDER 2);
CREATE TABLE events_3 PARTITION OF events FOR VALUES WITH (MODULUS 4, REMAINDER 3);
CREATE FUNCTION log_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (kind) VALUES (length(NEW.item));
    RETURN NEW;
END $$;
CREATE TRIGGER log_order AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION log_order();
PREPARE place(text) AS INSERT INTO orders (item) VALUES ($1);
EXECUTE place('a'); EXECUTE place('b'); EXECUTE place('c'); EXECUTE place('d');
EXECUTE place('e'); EXECUTE place('f'); EXECUTE place('g'); EXECUTE place('h');
DO $$
DECLARE last bigint := 0; id bigint; disorder integer := 0;
BEGIN
    FOR i IN 1 .. 1000 LOOP
        id := snowflake_nextval();
        IF id <= last THEN disorder := disorder + 1; END IF;
        last := id;
    END LOOP;
    RAISE NOTICE 'out of order: %', disorder;
END $$;
MERGE INTO events AS e USING (VALUES (1), (2)) AS v (kind) ON e.kind = -v.kind
    WHEN NOT MATCHED THEN INSERT (kind) VALUES (v.kind);
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM orders UNION ALL SELECT id FROM events) AS s;

-- After a rollback to a savepoint no ID is issued twice.
BEGIN;
CREATE TEMP TABLE seen (id bigint);
INSERT INTO seen SELECT snowflake_nextval();
SAVEPOINT s;
SELECT snowflake_nextval() AS inner_id \gset
ROLLBACK TO s;
INSERT INTO seen SELECT snowflake_nextval();
SELECT count(*), bool_and(id <> :inner_id) AS not_again FROM seen;
COMMIT;

-- Roles that own nothing can take IDs.
CREATE ROLE regress_snowflake_user;
GRANT INSERT ON orders, events TO regress_snowflake_user;
SET ROLE regress_snowflake_user;
INSERT INTO orders (item) VALUES ('by a role that owns nothing');
SELECT snowflake_currval() > 0 AS positive;
SELECT nextval('snowflake_default');
SELECT setval('snowflake_default', 1);
SELECT snowflake_accept_clock();
\set VERBOSITY terse
SELECT snowflake_advance('snowflake_default', now());
\set VERBOSITY default
RESET ROLE;

-- A cursor and a volatile default in ALTER TABLE take IDs.
BEGIN;
DECLARE c CURSOR FOR SELECT snowflake_nextval() FROM generate_series(1, 3);
MOVE ALL IN c;
COMMIT;
CREATE TABLE old (n integer);
INSERT INTO old SELECT generate_series(1, 1000);
ALTER TABLE old ADD COLUMN id bigint DEFAULT snowflake_nextval() NOT NULL;
SELECT count(DISTINCT id) FROM old;

-- These objects are no generators.
CREATE SEQUENCE plain;
SELECT snowflake_nextval('plain');
SELECT snowflake_nextval('orders');
SELECT snowflake_currval('plain');
SELECT nextval('snowflake_default');

DROP TABLE orders, events, old;
DROP FUNCTION log_order();
DROP SEQUENCE plain;
DROP ROLE regress_snowflake_user;
