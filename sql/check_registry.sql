-- snowflake_check_registry(): whether this server could lease a worker ID, before it has to. It
-- asks each host of the registry, also on a standby, and changes nothing.

CREATE FUNCTION _snowflake.ask_registry(OUT host text, OUT stored jsonb, OUT problem text, OUT fixed integer)
    RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 3 SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_ask_registry';
COMMENT ON FUNCTION _snowflake.ask_registry() IS
    'internal: what each host of the registry has stored that the setting names, or why it cannot be read; '
    'fixed: the worker ID that is set on this server';

-- The names are bound when it is made, under a path that holds no object of others.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION @extschema@.snowflake_check_registry(OUT state text, OUT item text, OUT detail text, OUT hint text)
    RETURNS SETOF record LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE ROWS 5 SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    WITH asked AS MATERIALIZED (
        SELECT a.*, a.stored IS NOT NULL AND coalesce((a.stored -> 'may_lease')::boolean, true) AS answers,
            coalesce((a.stored -> 'in_recovery')::boolean, false) AS is_standby,
            a.stored #>> '{state,stopped}' IS NOT NULL AS has_stopped
        FROM _snowflake.ask_registry() WITH ORDINALITY AS a (host, stored, problem, fixed, number)),
    one AS (
        SELECT bool_or(a.answers AND NOT a.is_standby) AS serves, bool_or(a.answers AND NOT a.is_standby AND NOT a.has_stopped) AS counts,
            bool_and(a.host LIKE 'etcd://%') AS is_etcd FROM asked AS a),
    best AS (
        SELECT a.stored, a.fixed, current_setting('snowflake_id.pool') AS pool, (a.stored -> 'now')::bigint AS now
        FROM asked AS a WHERE a.stored IS NOT NULL ORDER BY a.is_standby, a.has_stopped, a.number LIMIT 1),
    pool AS (
        SELECT b.fixed, b.stored #>> '{state,loss,cause}' AS cause, p.*, p.leased + p.free AS size,
            _snowflake.wanted_size(p.leased) AS wanted
        FROM best AS b
        CROSS JOIN LATERAL jsonb_array_elements(b.stored -> 'pools') AS s (pool)
        CROSS JOIN LATERAL _snowflake.pool(s.pool, b.stored -> 'state', b.now, (
            SELECT jsonb_object_agg(w.worker_id, w.state)
            FROM (SELECT array_agg(r.stored ->> 'namespace'), array_agg(r.stored -> 'row')
                FROM jsonb_array_elements(b.stored -> 'workers') AS r (stored)) AS r (namespaces, leases)
            CROSS JOIN LATERAL _snowflake.workers(s.pool, r.namespaces, r.leases, b.now) AS w)) AS p
        WHERE s.pool ->> 'name' = b.pool),
    found (place, state, item, detail, hint) AS (
        SELECT 1, 'warning', 'registry', 'Setting snowflake_id.registry is empty: this server leases no worker ID.',
            'To lease one, set it, and reload.'
        WHERE NOT EXISTS (SELECT FROM asked)
        UNION ALL
        SELECT 1, CASE WHEN a.has_stopped AND o.counts THEN 'warning'
                WHEN a.answers AND (o.serves OR NOT a.is_standby) THEN 'ok' WHEN o.serves THEN 'warning' ELSE 'critical' END, 'registry',
            coalesce(nullif(a.host, ''), 'libpq''s default server') || CASE
                WHEN a.problem IS NOT NULL THEN ': ' || a.problem
                WHEN a.stored IS NULL THEN ' answers, and has no registry.'
                WHEN NOT a.answers THEN ' answers, and lets the role of this server lease nothing.'
                WHEN a.has_stopped AND o.counts THEN ' answers, and serves nobody: another host has taken over from it.'
                WHEN a.is_standby THEN ' answers. It is a standby, which leases nothing before its promotion.'
                ELSE ' answers.' END,
            CASE WHEN a.has_stopped AND o.counts THEN 'Stop this copy of the registry, or make it a standby.'
                WHEN a.answers AND (o.serves OR NOT a.is_standby) THEN NULL
                WHEN a.answers THEN 'Find out why no host of the registry takes writes, or name the one that does in snowflake_id.registry.'
                WHEN a.problem IS NULL AND a.stored IS NULL THEN 'Correct snowflake_id.registry, or make a registry there. '
                    'In an etcd, the first server makes it, if prefix and pool are the default ones.'
                WHEN o.is_etcd THEN 'Check that it runs, that its address is right, and that the user and the certificates in the URL are accepted.'
                ELSE 'Check that it runs, that it lets this server in (pg_hba.conf, password, certificates), '
                    'and that snowflake_create_registry() was called there for the role.' END
        FROM asked AS a CROSS JOIN one AS o
        UNION ALL
        SELECT 1, 'warning', 'registry', a.host || ': ' || (a.stored ->> 'grown'), 'Compact and defragment etcd, and then disarm its alarm. '
            'Start its members with --auto-compaction-retention=1h.'
        FROM asked AS a WHERE a.stored ->> 'grown' <> ''
        UNION ALL
        SELECT 2, 'critical', 'pool', format('The registry has no pool "%s".', b.pool), 'Correct snowflake_id.pool, or make the pool.'
        FROM best AS b WHERE NOT EXISTS (SELECT FROM pool)
        UNION ALL
        SELECT 2, s.state, 'pool', s.detail, s.hint
        FROM pool AS p CROSS JOIN LATERAL (
            SELECT 'critical', format('The registry serves nobody since %s: the server on host "%s" has seen another one that has taken over from it.',
                    date_trunc('second', p.stopped_since), p.stopped_by),
                'Stop the copy of the registry that must not count, and call snowflake_declare_registry() at the other one.'
            WHERE p.stopped_since IS NOT NULL
            UNION ALL
            SELECT 'warning', format('The registry gives no worker ID until %s, since it may have lost leases (%s).',
                date_trunc('second', p.grace_until), p.cause), 'Wait.'
            WHERE p.stopped_since IS NULL AND p.grace_until IS NOT NULL
            UNION ALL
            SELECT 'critical', format('Worker ID %s, which is set on this server, is not in pool "%s". From its next restart on, the server issues no IDs.',
                p.fixed, p.pool), 'Set a worker ID of the pool, or remove snowflake_id.worker_id: then the server leases any of the pool.'
            WHERE NOT p.worker_ids @> p.fixed::bigint OR p.except_ids @> p.fixed::bigint
            UNION ALL
            SELECT CASE WHEN p.free > 0 OR p.fixed IS NOT NULL OR w.worker_id IS NOT NULL THEN 'warning' ELSE 'critical' END,
                format('Pool "%s" has %s worker IDs, %s of which servers have.', p.pool, p.size, p.leased) || CASE WHEN p.free > 0
                    THEN format(' A server that crashes can then lead its clock by up to the lease, %s.', _snowflake.lasting(p.lease))
                    ELSE ' A further server gets none.' END,
                format('Use a larger pool: of %s worker IDs or more for these servers, and more for those that wait.', p.wanted)
            FROM _snowflake.own_worker() AS w WHERE p.size < p.wanted) AS s (state, detail, hint)
        UNION ALL
        SELECT 2, 'ok', 'pool', format('Pool "%s" has %s worker IDs, and servers can get %s of them.', p.pool, p.size, p.free), NULL
        FROM pool AS p
        WHERE p.size >= p.wanted AND p.stopped_since IS NULL AND p.grace_until IS NULL
            AND (p.fixed IS NULL OR p.worker_ids @> p.fixed::bigint AND NOT p.except_ids @> p.fixed::bigint)
        UNION ALL
        SELECT 3, 'critical', 'generator ' || g.generator::text,
            format('It cannot hold all worker IDs of pool "%s": the pool has worker IDs up to %s, and the layout up to %s.',
                p.pool, upper(p.worker_ids) - 1, l.greatest_worker),
            'Make the generator with more worker bits, or let its servers lease from a pool of their own, with smaller numbers.'
        FROM pool AS p CROSS JOIN _snowflake.generators() AS g CROSS JOIN LATERAL _snowflake.check_limits(g.generator) AS l
        WHERE g.layout IS NOT NULL AND upper(p.worker_ids) - 1 > l.greatest_worker)
    SELECT f.state, f.item, f.detail, f.hint
    FROM found AS f
    ORDER BY array_position(ARRAY['critical', 'warning', 'ok'], f.state), f.place, f.item, f.detail;
END;
COMMENT ON FUNCTION @extschema@.snowflake_check_registry() IS
    'whether this server could lease a worker ID: a row for each host of its registry, one for its pool, '
    'and one for each generator that cannot hold the pool; also on a standby; it changes nothing';
SET LOCAL search_path = @extschema@, pg_temp;
