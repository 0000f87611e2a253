-- IDs are decoded and encoded.
SET timezone = 'UTC';
SET datestyle = 'ISO';
SELECT * FROM snowflake_decode(249722523258744845);
SELECT snowflake_timestamp(249722523258744845);
SELECT snowflake_encode('2026-11-21 02:28:09.165+00', 7, 13);

-- These are the ends of the range.
SELECT * FROM snowflake_decode(0);
SELECT * FROM snowflake_decode(9223372036854775807);
SELECT snowflake_encode('2025-01-01 00:00:00+00', 0, 0),
       snowflake_encode('2094-09-07 15:47:35.551+00', 1023, 4095);

-- NULL gives NULL.
SELECT snowflake_timestamp(NULL),
       snowflake_encode(NULL, 1, 1), snowflake_encode(now(), NULL, 1), snowflake_min_id(NULL),
       snowflake_max_id(NULL);
SELECT * FROM snowflake_decode(NULL);

-- A value that this layout cannot have made is an error, not a guess.
SELECT snowflake_timestamp(-1);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_decode(-1);
SELECT snowflake_timestamp(-9223372036854775808);
SELECT snowflake_encode('2025-01-01 00:00:00+00', 1024, 0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_encode('2025-01-01 00:00:00+00', -1, 0);
SELECT snowflake_encode('2025-01-01 00:00:00+00', 0, 4096);
SELECT snowflake_encode('2024-12-31 23:59:59.999+00', 0, 0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_encode('2094-09-07 15:47:35.552+00', 0, 0);
SELECT snowflake_encode('infinity', 0, 0);

-- Bounds are the least and greatest ID of the millisecond that holds an instant.
SELECT snowflake_min_id('2026-11-21 02:28:09.165+00'), snowflake_max_id('2026-11-21 02:28:09.165+00');
SELECT snowflake_min_id('2026-11-21 02:28:09.165999+00') = snowflake_min_id('2026-11-21 02:28:09.165+00') AS same_millisecond;
SELECT snowflake_max_id(t) + 1 = snowflake_min_id(t + interval '1 ms') AS no_gap
FROM (VALUES (timestamptz '2026-11-21 02:28:09.165+00')) AS v (t);
SELECT snowflake_min_id('-infinity'), snowflake_max_id('-infinity'),
       snowflake_min_id('infinity'), snowflake_max_id('infinity');
SELECT snowflake_min_id('2025-01-01 00:00:00+00'), snowflake_max_id('2094-09-07 15:47:35.551+00');
SELECT snowflake_min_id('2024-12-31 23:59:59.999+00');
SELECT snowflake_max_id('2094-09-07 15:47:35.552+00');

-- The parts of an ID encode to the same ID.
SELECT count(*) AS differ
FROM (SELECT snowflake_nextval() AS id FROM generate_series(1, 10000)) AS s, snowflake_decode(id) AS d
WHERE id <> snowflake_encode(d.created_at, d.worker_id, d.sequence)
   OR snowflake_timestamp(id) <> d.created_at
   OR id NOT BETWEEN snowflake_min_id(snowflake_timestamp(id)) AND snowflake_max_id(snowflake_timestamp(id));

-- Functions have these declarations, and those for users a description. Unaligned, so that a new one changes one line.
\pset format unaligned
SELECT p.oid::regprocedure AS function, provolatile AS volatile, proisstrict AS strict, proparallel AS parallel,
       n.nspname ~ '^_' OR obj_description(p.oid, 'pg_proc') IS NOT NULL AS has_comment
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname IN ('snowflake_id', 'snowflake_id_convert')
ORDER BY p.oid::regprocedure::text COLLATE "C";
\pset format aligned
SELECT obj_description('snowflake_default'::regclass, 'pg_class');
SELECT name, setting, unit, context, min_val, max_val FROM pg_settings
WHERE name LIKE 'snowflake\_id.%' ORDER BY name COLLATE "C";
