-- snowflake_check() reads the IDs of a table.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FUNCTION error_of_check(statement text) RETURNS TABLE (code text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
CREATE SCHEMA "Odd Schema";
SET search_path = "Odd Schema", public;
CREATE TABLE "Orders ""x""" ("The 'ID'" bigint PRIMARY KEY DEFAULT snowflake_nextval());

-- An empty table.
SELECT * FROM snowflake_check('"Orders ""x"""');

-- IDs of two days and two servers, and the keys of a former bigserial.
INSERT INTO "Orders ""x""" SELECT snowflake_encode(timestamptz '2025-03-01 12:00Z' + n * interval '1 h', n % 2 + 1, n) FROM generate_series(0, 23) AS n;
INSERT INTO "Orders ""x""" SELECT generate_series(1, 100);
SELECT * FROM snowflake_check('"Orders ""x"""');
-- The worker IDs that there are, by argument.
SELECT severity, finding, worker_id, ids, detail, hint FROM snowflake_check('"Orders ""x"""', worker_ids => '{[1,3)}') WHERE day IS NULL;
SELECT * FROM snowflake_check('"Orders ""x"""', worker_ids => '{[2,3),[7,8)}') WHERE severity <> 'info';

-- All that can be wrong.
INSERT INTO "Orders ""x""" VALUES (-5), (-9223372036854775808), (9223372036854775807);
SELECT severity, finding, worker_id, ids, least_id, greatest_id, regexp_replace(detail, ', .* ahead', ', ... ahead') AS detail,
    regexp_replace(hint, '''\d[^'']*\+00''', '''...''') AS hint
FROM snowflake_check('"Orders ""x"""', worker_ids => '{}') WHERE severity <> 'info';
DELETE FROM "Orders ""x""" WHERE "The 'ID'" NOT BETWEEN 0 AND 9000000000000000000;
INSERT INTO "Orders ""x""" SELECT snowflake_encode(now() + n * interval '1 h', 5, 0) FROM generate_series(1, 3) AS n;
SELECT severity, finding, worker_id, ids, regexp_replace(hint, '''\d[^'']*\+00''', '''...''') AS hint
FROM snowflake_check('"Orders ""x"""', column_name => 'The ''ID''', worker_ids => '{[1,2]}') WHERE severity <> 'info';
-- The rows that a hint names.
SELECT hint AS statement FROM snowflake_check('"Orders ""x"""', worker_ids => '{[2,3)}') WHERE finding = 'unknown worker ID' AND worker_id = 1 \gset
SELECT split_part(:'statement', 'The rows: ', 2) AS statement \gset
SELECT count(*) FROM (:statement) AS s;

-- A server's own IDs have the worker ID that the registry of the database knows. It also
-- knows the worker IDs that a pool leaves out.
TRUNCATE "Orders ""x""";
INSERT INTO "Orders ""x""" SELECT snowflake_nextval() FROM generate_series(1, 10);
INSERT INTO "Orders ""x""" SELECT snowflake_encode('2025-03-01 12:00Z', worker, 0) FROM generate_series(1, 4) AS worker;
BEGIN;
SELECT snowflake_create_pool('main', '[0,16)', except_ids => '{[2,4)}');
SELECT severity, finding, worker_id, ids, detail FROM snowflake_check('"Orders ""x"""') WHERE severity <> 'info';
INSERT INTO _snowflake.leases (namespace, lease)
VALUES ('default', '{"worker": 1, "released": false, "heard": 0, "leased_until": 0, "bound": 0, "holder": {"identity": {"system": 1}}}');
SELECT severity, finding, worker_id, ids, detail FROM snowflake_check('"Orders ""x"""') WHERE severity <> 'info';
-- A role that may not read the registry.
CREATE ROLE checker;
GRANT USAGE ON SCHEMA "Odd Schema" TO checker;
SET ROLE checker;
SAVEPOINT a;
SELECT * FROM snowflake_check('"Orders ""x"""');
ROLLBACK TO a;
RESET ROLE;
GRANT SELECT ("The 'ID'") ON "Orders ""x""" TO checker;
SET ROLE checker;
SELECT severity, finding, ids, detail, hint FROM snowflake_check('"Orders ""x"""') WHERE day IS NULL;
RESET ROLE;
-- Rows that a policy hides are no reason to say that all is well.
ALTER TABLE "Orders ""x""" ENABLE ROW LEVEL SECURITY;
SET ROLE checker;
SAVEPOINT a;
SELECT * FROM snowflake_check('"Orders ""x"""');
ROLLBACK TO a;
RESET ROLE;
ROLLBACK;

-- A generator of one's own, a partitioned table, a key of two columns.
SELECT snowflake_create_generator('check_ids', 'layout=''time:41 shard:2=1 worker:8 sequence:12'' epoch=2025-01-01Z');
CREATE TABLE parts (tenant integer, id bigint DEFAULT snowflake_nextval('check_ids'), PRIMARY KEY (tenant, id)) PARTITION BY LIST (tenant);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
INSERT INTO parts SELECT n % 2 + 1, snowflake_encode(timestamptz '2025-03-01 12:00Z' + n * interval '1 s', 9, 0, 'check_ids') FROM generate_series(1, 20) AS n;
INSERT INTO parts VALUES (1, snowflake_encode('2025-03-01 12:00Z', 9, 0));
SELECT * FROM snowflake_check('parts', worker_ids => '{[9,10)}');
SELECT finding, worker_id, ids FROM snowflake_check('parts_2');
SELECT finding, worker_id, ids FROM snowflake_check('parts', generator => 'snowflake_default') WHERE day IS NOT NULL;

-- IDs of other systems, in a view and in a table without a default.
CREATE TABLE statuses (id bigint PRIMARY KEY, other bigint);
INSERT INTO statuses SELECT snowflake_encode_as('2025-03-01 12:00Z', 33, n, 'preset=twitter') FROM generate_series(1, 5) AS n;
CREATE VIEW few AS SELECT id FROM statuses LIMIT 3;
SELECT severity, finding, worker_id, day, ids, detail FROM snowflake_check('few', 'id', layout => 'preset=twitter');
SELECT severity, finding, worker_id, ids FROM snowflake_check('statuses', layout => 'preset=twitter', worker_ids => '{}') WHERE finding <> 'IDs of a day';
-- A layout without a worker ID, one whose IDs are negative, and one that ends after the last timestamp.
SELECT severity, finding, worker_id, day, ids FROM snowflake_check('statuses', layout => 'layout=''time:51 sequence:12'' epoch=2025-01-01Z');
INSERT INTO statuses SELECT snowflake_encode_as('2025-03-01 12:00Z', 33, 1, 'layout=''region:1=1 time:41 worker:10 sequence:12'' epoch=2025-01-01Z');
SELECT severity, finding, worker_id, day, ids FROM snowflake_check('statuses', layout => 'layout=''region:1=1 time:41 worker:10 sequence:12'' epoch=2025-01-01Z');
SELECT severity, finding, worker_id, day, ids FROM snowflake_check('statuses', layout => 'layout=''region:1=0 time:41 worker:10 sequence:12'' epoch=2025-01-01Z');
INSERT INTO statuses VALUES (9223372036854775807);
SELECT severity, finding, worker_id, day, ids, detail FROM snowflake_check('statuses', layout => 'layout=''time:62 sequence:1'' epoch=2025-01-01Z') WHERE severity <> 'info';
-- NULL is no ID.
SELECT severity, finding, ids FROM snowflake_check('statuses', 'other', generator => 'snowflake_default');

-- A sample has pages at random.
CREATE TABLE many (id bigint DEFAULT snowflake_nextval());
INSERT INTO many SELECT snowflake_encode(timestamptz '2025-03-01 12:00Z' + n * interval '1 ms', 1, 0) FROM generate_series(1, 100000) AS n;
SELECT ids BETWEEN 1000 AND 99000 AS some, detail FROM snowflake_check('many', sample => 50) WHERE finding = 'all IDs';
SELECT count(*) FROM snowflake_check('parts', sample => 0.001);

-- Errors.
CREATE SEQUENCE plain;
CREATE TABLE narrow (id integer PRIMARY KEY);
\x
SELECT s.call, e.* FROM unnest(ARRAY[
    $$snowflake_check(NULL)$$, $$snowflake_check(1)$$, $$snowflake_check('plain')$$, $$snowflake_check('many', sample => 0)$$,
    $$snowflake_check('many', sample => 101)$$, $$snowflake_check('many', sample => 'NaN')$$, $$snowflake_check('many', sample => NULL)$$,
    $$snowflake_check('few', 'id', sample => 1)$$, $$snowflake_check('few')$$, $$snowflake_check('statuses')$$, $$snowflake_check('statuses', 'Id')$$,
    $$snowflake_check('many', 'ctid')$$, $$snowflake_check('narrow')$$, $$snowflake_check('many', generator => 'plain')$$,
    $$snowflake_check('many', layout => 'preset=nobody')$$, $$snowflake_check('many', generator => 'check_ids', layout => 'preset=twitter')$$]) AS s (call),
    error_of_check('SELECT * FROM ' || s.call) AS e;
\x
-- What cannot be read is said without the whole query.
CREATE ROLE regress_check_reader;
GRANT USAGE ON SCHEMA "Odd Schema" TO regress_check_reader;
CREATE TABLE hidden (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
GRANT SELECT ON hidden TO regress_check_reader;
ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
SET ROLE regress_check_reader;
DO $$
DECLARE
    context text;
BEGIN
    PERFORM public.snowflake_check('"Odd Schema".hidden');
EXCEPTION WHEN insufficient_privilege THEN
    GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
    RAISE WARNING '%: %', SQLERRM, context ~ 'instant_or_null';
END $$;
RESET ROLE;
DROP OWNED BY regress_check_reader;
DROP ROLE regress_check_reader;
-- Read-only transactions can check.
BEGIN READ ONLY;
SELECT count(*) FROM snowflake_check('many');
COMMIT;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA "Odd Schema" CASCADE;
