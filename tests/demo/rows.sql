-- What the demo shows of all rows of all shards, which are in every_order and every_message.
\echo
\echo -- How many rows, and is any ID there twice? Rows of the lost server count too.
SELECT count(*) AS rows, count(*) - count(DISTINCT id) AS duplicates FROM every_order;
\echo -- Which server issued IDs with which worker ID? The rows that shard3 still has are
\echo -- those that its standby, which took over, had not received.
SELECT server, (snowflake_decode(id)).worker_id AS worker_id, count(*) AS rows FROM every_order
GROUP BY server, worker_id ORDER BY worker_id, server DESC;
\echo -- The worker IDs, as the registry knows them:
SELECT worker_id, state, port FROM snowflake_workers ORDER BY worker_id;
\echo -- What is in an ID? The last one of each server:
SELECT server, id, created_at, worker_id, sequence
FROM (SELECT server, max(id) AS id FROM every_order GROUP BY server) AS s, snowflake_decode(id)
ORDER BY worker_id, server;
\echo -- A range of time is a range of the key. The last second on this shard:
SELECT max(id) AS last FROM orders \gset
ANALYZE orders;
EXPLAIN (COSTS OFF)
SELECT count(*) FROM orders
WHERE id >= snowflake_min_id(snowflake_timestamp(:last) - interval '1 second');
SELECT count(*) AS rows_of_the_last_second FROM orders
WHERE id >= snowflake_min_id(snowflake_timestamp(:last) - interval '1 second');
\echo -- The messages, whose generator writes IDs as Discord does:
SELECT count(*) AS rows, count(*) - count(DISTINCT id) AS duplicates FROM every_message;
SELECT server, id, created_at, worker_id, fields
FROM (SELECT server, max(id) AS id FROM every_message GROUP BY server) AS s,
    snowflake_decode(id, 'message_ids')
ORDER BY worker_id, server;
\echo -- The last ID, explained:
\pset tuples_only
\pset format unaligned
SELECT snowflake_explain(max(id)) FROM every_order;
