-- The views show the state and the statistics of generators.
SET timezone = 'UTC';
\x
SELECT generator, worker_id, ids_per_second, ends_at
FROM snowflake_generators;
SELECT snowflake_nextval() AS id \gset
SELECT last_id_at = snowflake_timestamp(:id) AS last_id, last_id_at < reserved_until AS reserved,
       ahead_by < interval '1 s' AS close_to_the_clock, gap_applied_at
FROM snowflake_generators;
\x
-- No generator reserves further than the setting says.
SELECT reserved_until < now() + current_setting('snowflake_id.reserve_ahead')::interval + interval '1 s' AS near
FROM snowflake_generators;

-- The session sees its own counts at once.
SELECT snowflake_stat_reset();
SELECT count(snowflake_nextval()) FROM generate_series(1, 100);
SELECT count(*) FROM snowflake_nextval_batch(1000);
BEGIN;
SELECT snowflake_nextval() > 0 AS id;
SELECT issued, batches FROM pg_stat_snowflake;
ROLLBACK;
SELECT generator, issued, batches, clock_rollbacks, largest_rollback, wait_time >= 0 AS wait_time,
       borrowed <= issued AS borrowed, reservation_time >= 0 AS reservation_time,
       now() - stats_reset < interval '1 min' AS just_reset
FROM pg_stat_snowflake;
SELECT snowflake_stat_reset('snowflake_default');
SELECT issued, batches FROM pg_stat_snowflake;
SELECT snowflake_stat_reset('pg_class');
-- A reset also takes the counts that the transaction has made so far.
BEGIN;
SELECT snowflake_nextval() > 0 AS id;
SELECT snowflake_stat_reset();
SELECT issued, batches FROM pg_stat_snowflake;
ROLLBACK;
-- A generator within a long tick is not behind the clock.
SELECT snowflake_create_generator('slow', $$layout='time:30 worker:10 sequence:12' epoch=2025-01-01Z tick='10 s'$$);
SELECT snowflake_nextval('slow') > 0 AS id;
SELECT ahead_by FROM snowflake_generators WHERE generator = 'slow'::regclass;
DROP SEQUENCE slow;

-- A batch that is not fetched to its end counts as issued in full, as far as there was
-- room for it.
DO $$ BEGIN PERFORM snowflake_nextval_batch(100000) LIMIT 1; END $$;
SELECT issued, batches FROM pg_stat_snowflake;

-- A call that asks for more than the clock gives borrows, and then waits. A batch that
-- finds less room takes what there is.
DO $$ BEGIN FOR i IN 1 .. 20 LOOP PERFORM snowflake_nextval_batch(100000) LIMIT 1; END LOOP; END $$;
SELECT issued BETWEEN 400000 AND 2100000 AS issued, batches, borrowed > 300000 AS borrowed,
       waits > 0 AS waits, wait_time > 0 AS wait_time
FROM pg_stat_snowflake;

-- Privileges decide what a role sees and does.
CREATE ROLE regress_snowflake_nobody;
SET ROLE regress_snowflake_nobody;
SELECT issued > 0 AS issued FROM pg_stat_snowflake;
SELECT last_id_at IS NOT NULL AS last_id, reserved_until IS NOT NULL AS reserved FROM snowflake_generators;
SELECT snowflake_stat_reset();
SELECT snowflake_stat_reset('snowflake_default');
RESET ROLE;
REVOKE ALL ON SEQUENCE snowflake_default FROM PUBLIC;
SET ROLE regress_snowflake_nobody;
-- As with pg_sequences, a role does not see how far another role's IDs are.
SELECT generator, last_id_at, reserved_until, ahead_by, ids_per_second FROM snowflake_generators;
RESET ROLE;
GRANT USAGE, SELECT ON SEQUENCE snowflake_default TO PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_stat_reset() TO regress_snowflake_nobody;
SET ROLE regress_snowflake_nobody;
SELECT snowflake_stat_reset();
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_stat_reset() FROM regress_snowflake_nobody;
DROP ROLE regress_snowflake_nobody;

-- The descriptions say what these columns mean where policies differ.
SELECT attrelid::regclass AS view, attname, col_description(attrelid, attnum)
FROM pg_attribute
WHERE attrelid IN ('pg_stat_snowflake'::regclass, 'snowflake_generators'::regclass)
    AND attname IN ('waits', 'refusals', 'clock_rollbacks', 'refused_since', 'ahead_by')
ORDER BY attrelid::regclass::text COLLATE "C", attname;

-- Every object for users has a description (row types of views are members since 17).
SELECT pg_describe_object(d.classid, d.objid, 0) AS without_comment
FROM pg_depend AS d
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) AS o
LEFT JOIN pg_description AS c ON c.classoid = d.classid AND c.objoid = d.objid AND c.objsubid = 0
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND c.objoid IS NULL AND d.classid <> 'pg_type'::regclass
  AND o.schema IS DISTINCT FROM '_snowflake' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id');
SELECT a.attrelid::regclass, a.attname AS without_comment
FROM pg_attribute AS a
WHERE a.attrelid IN ('snowflake_generators'::regclass, 'pg_stat_snowflake'::regclass)
  AND a.attnum > 0 AND col_description(a.attrelid, a.attnum) IS NULL;
