-- One row for each finding, from the answers of all servers, which are put in as an array;
-- the first is this server's.
WITH answer AS MATERIALIZED (
    SELECT number, answer->>'server' AS server, answer->>'error' AS error,
        answer->>'clone_of' AS clone_of,
        jsonb_typeof(answer->'facts') = 'object' AS is_reached,
        -- A server that has another name in the list too is the same server.
        (answer->'facts'->>'system_identifier') || ' ' || (answer->'facts'->>'started') AS instance,
        answer->'facts'->>'system_identifier' AS system_identifier,
        (answer->'facts'->>'in_recovery')::boolean AS in_recovery,
        answer->'facts'->>'database' AS database,
        answer->'facts'->>'version' AS version,
        -- A pool is shown where a registry is set, on a standby too.
        pool,
        answer->'generators'->'worker'->>'last_error' AS last_error,
        -- -1 if there is none, NULL without preloading. Who has a registry has what that one
        -- grants; on a standby, a fixed number is what it will ask for.
        coalesce(
            (answer->'generators'->'worker'->>'worker_id')::bigint,
            CASE WHEN pool IS NOT NULL AND NOT (answer->'facts'->'in_recovery')::boolean THEN -1 END,
            (SELECT max(worker_id::bigint)
             FROM jsonb_path_query(answer, '$.generators.rows[*].worker_id ? (@ != null)') AS worker_id),
            (answer->'facts'->'settings'->>'snowflake_id.worker_id')::bigint) AS worker_id,
        coalesce((answer->'facts'->'settings'->>'snowflake_id.failover_gap')::bigint, 10000)
            * interval '1 millisecond' AS failover_gap,
        coalesce((answer->'facts'->'settings'->>'snowflake_id.reserve_ahead')::bigint, 10000)
            * interval '1 millisecond' AS reserve,
        (answer->>'offset')::bigint * interval '1 microsecond' AS ahead,
        (answer->>'uncertainty')::bigint * interval '1 microsecond' AS uncertainty,
        answer->'generators' AS generators, answer->'sequences' AS sequences
    FROM jsonb_array_elements($answers$::jsonb) WITH ORDINALITY AS asked (answer, number),
        LATERAL (SELECT answer->'generators'->'worker'->>'pool') AS leases (pool)
), database AS (
    SELECT DISTINCT ON (instance, database) * FROM answer WHERE is_reached
    ORDER BY instance, database, number
), instance AS (
    SELECT DISTINCT ON (instance) * FROM answer WHERE is_reached ORDER BY instance, number
), pair AS (
    SELECT one.number, one.server, other.server AS other_server, one.worker_id,
        one.worker_id >= 0 AND one.worker_id = other.worker_id AS same_worker_id,
        one.pool IS NOT NULL AS leases, other.pool IS NOT NULL AS other_leases,
        one.system_identifier,
        one.system_identifier = other.system_identifier AS same_system,
        one.in_recovery, other.in_recovery AS other_in_recovery,
        CASE WHEN other.clone_of = one.server THEN other.server
             WHEN one.clone_of = other.server THEN one.server END AS clone,
        -- Positive if the other server's clock is ahead.
        other.ahead - one.ahead AS ahead,
        one.uncertainty + other.uncertainty AS uncertainty,
        least(one.failover_gap, other.failover_gap) AS failover_gap,
        one.number = 1 AS has_this_server,
        -- Their clocks differ from this server's, which has a row of its own.
        greatest(abs(extract(epoch FROM one.ahead)), abs(extract(epoch FROM other.ahead)))
            > extract(epoch FROM least(one.failover_gap, other.failover_gap)) AS differ_from_this
    FROM instance AS one JOIN instance AS other ON one.number < other.number
), generator AS (
    SELECT number, server, worker_id, reserve, name,
        -- A standby that leases has no worker ID yet, which its view says of each generator.
        CASE WHEN pool IS NULL OR NOT in_recovery THEN fields->>'problem' END AS problem,
        (fields->>'reserved_until')::timestamptz AS mark,
        (generators->>'clock')::timestamptz AS clock,
        -- Fixed fields may have another value on each server: they are there for that.
        regexp_replace(fields->>'layout', '=[0-9]+', '', 'g') AS layout,
        fields->>'epoch' AS epoch, fields->>'tick' AS tick,
        (SELECT string_agg(format('%s %s', key, value), ', ' ORDER BY key) FROM jsonb_each_text(fields)
         WHERE key IN ('on_rollback', 'max_rollback', 'max_wait', 'max_borrow', 'max_observe', 'on_exhausted',
                       'sequence_start') AND value IS NOT NULL) AS policy,
        -- Whether IDs carry the worker ID, whatever its field is called. A server without one
        -- does not show it.
        bool_or(fields->>'worker_id' IS NOT NULL OR fields->>'layout' IS NULL OR coalesce(worker_id, -1) < 0)
            OVER (PARTITION BY name) AS has_worker,
        first_value(number) OVER (PARTITION BY name ORDER BY number) AS first_number
    FROM database,
        jsonb_path_query(generators, '$.rows[*] ? (@.generator != null)') AS fields,
        LATERAL (SELECT fields->>'generator') AS named (name)
), without_label AS (
    -- A standby has what its primary has, and no change can be made there.
    SELECT number, server, name
    FROM database, jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(sequences->'without_label') = 'array' THEN sequences->'without_label' END) AS name
    WHERE number = 1 OR NOT in_recovery
), use AS (
    SELECT number, server, name, relation, is_distributed
    FROM database, jsonb_to_recordset(
        CASE WHEN jsonb_typeof(sequences->'uses') = 'array' THEN sequences->'uses' END)
        AS used (name text, relation text, is_distributed boolean)
), missing AS (
    -- On a node of Citus that answered. What only local tables use, other nodes need not have.
    SELECT other.number, other.server, first.server AS first_server, first.name, first.has_worker,
        (SELECT use.relation FROM use WHERE use.name = first.name AND use.is_distributed
         ORDER BY use.number LIMIT 1) AS relation
    FROM generator AS first JOIN database AS other ON other.number <> first.number
    WHERE $are_nodes$ AND first.number = first.first_number AND first.name NOT LIKE 'pg\_temp%'
      AND jsonb_typeof(other.generators) = 'object' AND jsonb_typeof(other.sequences) = 'object'
      AND NOT other.in_recovery AND other.clone_of IS NULL
      AND NOT EXISTS (SELECT FROM generator AS it WHERE (it.number, it.name) = (other.number, first.name))
      AND NOT EXISTS (SELECT FROM without_label AS it WHERE (it.number, it.name) = (other.number, first.name))
      -- Where each node has another label, a generator may be of one node.
      AND (first.has_worker AND NOT EXISTS (SELECT FROM use WHERE use.name = first.name)
           OR EXISTS (SELECT FROM use WHERE use.name = first.name AND use.is_distributed))
), label AS (
    SELECT one.number, one.server, first.server AS first_server, one.name,
        one.policy, first.policy AS first_policy,
        (one.layout, one.epoch, one.tick) = (first.layout, first.epoch, first.tick) AS same_layout,
        format('layout "%s", epoch %s, tick %s', one.layout, one.epoch, one.tick) AS layout,
        format('layout "%s", epoch %s, tick %s', first.layout, first.epoch, first.tick) AS first_layout
    FROM generator AS one
    JOIN generator AS first ON first.name = one.name AND first.number = one.first_number
    WHERE one.number <> first.number
), finding AS (
    SELECT number, 'error' AS severity, 'server cannot be reached' AS finding,
        server, NULL AS other_server, error AS detail,
        'The other findings do not cover this server. Check its address, whether it runs, and whether it lets the user in.' AS hint
    FROM answer WHERE NOT is_reached
    UNION ALL
    SELECT number, 'warning', 'server cannot be asked in full', server, NULL, error,
        'The other findings do not cover all of this server.'
    FROM answer WHERE is_reached AND error IS NOT NULL

    UNION ALL
    SELECT number, 'warning', 'extension is missing', server, NULL,
        format('Database %s has no extension snowflake_id.', quote_ident(database)),
        'Run CREATE EXTENSION snowflake_id in that database, if tables in it need IDs.'
    FROM database WHERE version IS NULL
    UNION ALL
    SELECT other.number, 'warning', 'other version', other.server, this.server,
        format('The extension has version %s on %s, and %s on %s.',
               other.version, other.server, this.version, this.server),
        'Run ALTER EXTENSION snowflake_id UPDATE where the version is older.'
    FROM database AS other JOIN database AS this ON this.number = 1
    WHERE other.version <> this.version
    UNION ALL
    SELECT number, 'error', 'library is not preloaded', server, NULL,
        CASE WHEN in_recovery THEN 'After a promotion the server would issue no IDs.'
             ELSE 'The server issues no IDs.' END,
        'Append snowflake_id to shared_preload_libraries, and restart the server.'
    FROM instance WHERE worker_id IS NULL
    UNION ALL
    SELECT number, CASE WHEN in_recovery THEN 'warning' ELSE 'error' END, 'no worker ID', server, NULL,
        CASE WHEN in_recovery THEN 'After a promotion the server would issue no IDs.'
             ELSE 'The server issues no IDs.' END,
        'Let the server lease a worker ID: set snowflake_id.registry. '
            'Or set snowflake_id.worker_id to a number that no other server has, and restart the server. '
            'A server that only decodes IDs needs none.'
    FROM instance WHERE worker_id < 0 AND pool IS NULL
    UNION ALL
    -- A standby asks its registry when it is promoted.
    SELECT number, 'error', 'no worker ID', server, NULL,
        format('The server issues no IDs: its registry has given it no worker ID of pool "%s".', pool)
            || coalesce(' ' || last_error, ''),
        'Remove the cause, which view snowflake_worker shows there: the server then gets a worker ID by itself. '
            'Do not set a number instead.'
    FROM instance WHERE worker_id < 0 AND pool IS NOT NULL AND NOT in_recovery

    UNION ALL
    SELECT number, 'error', 'equal worker IDs', server, other_server,
        format('Both servers have worker ID %s, and neither is in recovery: they issue the same IDs.', worker_id),
        'Stop writes on one of them now. ' || CASE
            WHEN leases AND other_leases THEN 'Their pools are of two registries, or of two namespaces of one, and overlap: '
                'make pools that do not, and let one of the servers lease from another pool.'
            WHEN leases OR other_leases THEN 'Give the one with a fixed number another snowflake_id.worker_id, '
                'outside of the pool of the other one, and restart it.'
            ELSE 'Give that server another snowflake_id.worker_id, and restart it.' END
            || ' Look for IDs that both have issued.'
    FROM pair WHERE same_worker_id AND NOT in_recovery AND NOT other_in_recovery
    UNION ALL
    SELECT number, 'warning', 'standby shares a worker ID', server, other_server,
        format('Both servers have worker ID %s, and %s is in recovery: it issues no IDs before its promotion.', worker_id,
               CASE WHEN NOT in_recovery THEN other_server WHEN other_in_recovery THEN 'each' ELSE server END),
        CASE WHEN leases AND other_leases
             THEN 'Remove snowflake_id.worker_id from the standby: '
                 'after a promotion its registry then gives it a worker ID at once. '
                 'With it, the standby waits until the lease of the other server has ended.'
             WHEN same_system
             THEN 'Give the standby a worker ID of its own. A shared one is safe only if the old primary is fenced, '
                 'lag and clock difference are within snowflake_id.failover_gap, and there is one failover per gap.'
             ELSE 'Give the standby a worker ID of its own before its promotion: the servers are not of one cluster.' END
    FROM pair WHERE same_worker_id AND (in_recovery OR other_in_recovery) AND clone IS NULL
    UNION ALL
    SELECT number, 'error', 'clone shares a worker ID', server, other_server,
        format('Both servers have worker ID %s, and %s is a clone: '
            'its promotion makes it a node beside its origin, and both would issue the same IDs.', worker_id, clone),
        'Before you call citus_promote_clone_and_rebalance(), give the clone another snowflake_id.worker_id, and restart it.'
    FROM pair WHERE same_worker_id AND (in_recovery OR other_in_recovery) AND clone IS NOT NULL
        AND NOT (leases AND other_leases)
    UNION ALL
    SELECT number, 'error', 'clone shares a worker ID', server, other_server,
        format('Both servers have worker ID %s, and %s is a clone: '
            'its promotion makes it a node beside its origin, '
            'and it would issue no IDs while its origin has the worker ID.', worker_id, clone),
        'Before you call citus_promote_clone_and_rebalance(), remove snowflake_id.worker_id from the clone, and restart it: '
            'its registry then gives it a worker ID.'
    FROM pair WHERE same_worker_id AND (in_recovery OR other_in_recovery) AND clone IS NOT NULL
        AND leases AND other_leases
    UNION ALL
    SELECT number, CASE WHEN same_worker_id THEN 'error' ELSE 'warning' END, 'copy of a server', server, other_server,
        format('Both servers have system identifier %s, and neither is in recovery: '
            'one was copied from the other, or was promoted beside it.', system_identifier),
        'If this is not intended, stop one of them. If it is, the copy needs a worker ID of its own.'
    FROM pair WHERE same_system AND NOT in_recovery AND NOT other_in_recovery
        -- A registry gives a copy a worker ID of its own, and so it does to copies of it.
        AND (same_worker_id IS NOT FALSE OR NOT leases OR NOT other_leases)

    UNION ALL
    SELECT number, 'warning', 'clocks differ', server, other_server,
        format('The clock of %s is %s %s that of %s, give or take %s; snowflake_id.failover_gap is %s.', other_server,
               date_trunc('milliseconds', greatest(ahead, -ahead)),
               CASE WHEN ahead > interval '0' THEN 'ahead of' ELSE 'behind' END, server,
               date_trunc('milliseconds', uncertainty) + interval '1 millisecond', failover_gap),
        'Repair the time synchronization of the server whose clock is wrong.'
    FROM pair WHERE greatest(ahead, -ahead) - uncertainty > failover_gap
        AND (has_this_server OR NOT differ_from_this)

    UNION ALL
    SELECT number, 'error', 'layouts differ', server, first_server,
        format('Generator %s has %s on %s, and %s on %s: both servers may issue equal IDs.',
               name, layout, server, first_layout, first_server),
        'Tell the generator the same on all servers, with snowflake_alter_generator(). Only the values of fixed fields may differ.'
    FROM label WHERE NOT same_layout
    UNION ALL
    SELECT number, 'warning', 'policies differ', server, first_server,
        format('Generator %s has %s on %s, and %s on %s.', name, policy, server, first_policy, first_server),
        'IDs stay unique. If this is not intended, tell the generator the same on all servers, with snowflake_alter_generator().'
    FROM label WHERE policy <> first_policy
    UNION ALL
    SELECT lost.number, CASE WHEN use.name IS NOT NULL OR first.name IS NOT NULL THEN 'error' ELSE 'warning' END,
        'generator has no label', lost.server, first.server,
        format('Sequence %s has no label on %s', lost.name, lost.server)
            || coalesce(', and is a generator on ' || first.server, '')
            || coalesce('. The default of table ' || use.relation || ' uses it', '')
            || '. Without a label it issues no IDs.',
        CASE WHEN $are_nodes$ THEN format('Run on the coordinator: SELECT * FROM snowflake_distribute_generator(%L)', lost.name)
             WHEN first.name IS NOT NULL THEN format('Give it the label that it has on %s: '
                 'SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS ...', first.server, lost.name)
             ELSE format('Give it its label, SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS ..., or drop it.', lost.name) END
    FROM without_label AS lost
    LEFT JOIN use ON (use.number, use.name) = (lost.number, lost.name)
    LEFT JOIN generator AS first ON first.name = lost.name AND first.number = first.first_number
    UNION ALL
    SELECT number, CASE WHEN relation IS NOT NULL THEN 'error' ELSE 'warning' END,
        'generator is missing', server, first_server,
        format('Generator %s is on %s, and not on %s', name, first_server, server)
            || coalesce(', where table ' || relation || ' needs it to insert rows', ', where no table uses it so far') || '.',
        CASE WHEN has_worker THEN format('Run on the coordinator: SELECT * FROM snowflake_distribute_generator(%L)', name)
             ELSE format('Make it there with a label of its own, since IDs of its layout carry no worker ID: '
                 'SELECT snowflake_create_generator(%L, ...)', name) END
    FROM missing
    UNION ALL
    SELECT number, 'error', 'generator issues no IDs', server, NULL,
        format('Generator %s: %s', name, problem), NULL
    FROM generator WHERE problem IS NOT NULL AND worker_id >= 0
    UNION ALL
    SELECT number, 'warning', 'mark is far ahead', server, NULL,
        format('The mark of generator %s is %s; the clock of the server is %s.', name, mark, clock),
        'The clock of the server is wrong, or has been. IDs carry a time that is ahead, or are refused: see snowflake_generators there.'
    FROM generator WHERE mark > clock + reserve + interval '1 minute'
)
SELECT severity, finding, server, other_server, detail, hint FROM finding
ORDER BY severity, number, finding, other_server, detail
