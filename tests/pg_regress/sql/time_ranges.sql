-- The time in the key serves indexes, generated columns, partitions and ranges.
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE TABLE plain (id bigint PRIMARY KEY, note text);
INSERT INTO plain
SELECT snowflake_encode('2026-01-01 00:00:00+00'::timestamptz + n * interval '1 minute', n % 8, n % 4096), 'row ' || n
FROM generate_series(0, 99999) AS n;
ANALYZE plain;

-- A range of time is a range of the primary key.
EXPLAIN (COSTS OFF)
SELECT * FROM plain
WHERE id >= snowflake_min_id('2026-02-01 00:00:00+00') AND id < snowflake_min_id('2026-02-01 01:00:00+00');
SELECT count(*), min(snowflake_timestamp(id)), max(snowflake_timestamp(id)) FROM plain
WHERE id >= snowflake_min_id('2026-02-01 00:00:00+00') AND id < snowflake_min_id('2026-02-01 01:00:00+00');
EXPLAIN (COSTS OFF)
SELECT * FROM plain WHERE id >= snowflake_min_id(now() - interval '1 day');

-- The time can have an index of its own.
CREATE INDEX plain_created ON plain (snowflake_timestamp(id));
ANALYZE plain;
EXPLAIN (COSTS OFF)
SELECT * FROM plain
WHERE snowflake_timestamp(id) BETWEEN '2026-02-01 00:00:00+00' AND '2026-02-01 00:05:00+00';
SELECT note FROM plain
WHERE snowflake_timestamp(id) BETWEEN '2026-02-01 00:00:00+00' AND '2026-02-01 00:02:00+00' ORDER BY id;

-- The time can be a stored generated column.
CREATE TABLE generated (
    id bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED,
    shard bigint GENERATED ALWAYS AS ((snowflake_decode(id)).worker_id) STORED);
INSERT INTO generated DEFAULT VALUES;
INSERT INTO generated VALUES (snowflake_encode('2026-03-04 05:06:07.089+00', 7, 0));
SELECT count(*), min(created_at), bool_and(shard = 7) AS all_shard_7 FROM generated;

-- The key partitions by time.
CREATE TABLE parted (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text) PARTITION BY RANGE (id);
CREATE TABLE parted_old PARTITION OF parted
    FOR VALUES FROM (MINVALUE) TO (snowflake_min_id('2026-01-01 00:00:00+00'));
CREATE TABLE parted_2026_01 PARTITION OF parted
    FOR VALUES FROM (snowflake_min_id('2026-01-01 00:00:00+00')) TO (snowflake_min_id('2026-02-01 00:00:00+00'));
CREATE TABLE parted_2026_02 PARTITION OF parted
    FOR VALUES FROM (snowflake_min_id('2026-02-01 00:00:00+00')) TO (snowflake_min_id('2026-03-01 00:00:00+00'));
CREATE TABLE parted_new PARTITION OF parted
    FOR VALUES FROM (snowflake_min_id('2026-03-01 00:00:00+00')) TO (MAXVALUE);
INSERT INTO parted SELECT * FROM plain WHERE snowflake_timestamp(id) < '2026-03-10 00:00:00+00';
INSERT INTO parted (note) VALUES ('made now');
ANALYZE parted;
SELECT tableoid::regclass AS partition, count(*) FROM parted GROUP BY 1 ORDER BY 1;
-- Partitions are pruned by the planner,
EXPLAIN (COSTS OFF)
SELECT * FROM parted
WHERE id >= snowflake_min_id('2026-02-03 00:00:00+00') AND id < snowflake_min_id('2026-02-03 00:10:00+00');
-- at the start, with a time that is known only then,
EXPLAIN (COSTS OFF)
SELECT count(*) FROM parted WHERE id >= snowflake_min_id(now() - interval '1 day');
-- and with parameters.
SET plan_cache_mode = force_generic_plan;
PREPARE since(timestamptz, timestamptz) AS
SELECT count(*) FROM parted WHERE id >= snowflake_min_id($1) AND id < snowflake_min_id($2);
EXPLAIN (COSTS OFF)
EXECUTE since('2026-01-05 00:00:00+00', '2026-01-05 00:10:00+00');

DROP TABLE plain, generated, parted;
