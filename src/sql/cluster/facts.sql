SELECT jsonb_build_object(
    'system_identifier', (SELECT system_identifier::text FROM pg_control_system()),
    'started', extract(epoch FROM pg_postmaster_start_time())::text,
    'in_recovery', pg_is_in_recovery(),
    'database', current_database(),
    'version', extension.extversion,
    'view', quote_ident(namespace.nspname) || '.snowflake_generators',
    -- This view can be read only where the library is preloaded.
    'worker_view', (SELECT quote_ident(namespace.nspname) || '.' || quote_ident(relname) FROM pg_class
                    WHERE relnamespace = namespace.oid AND relname = 'snowflake_worker'
                      AND EXISTS (SELECT FROM pg_settings WHERE name = 'snowflake_id.worker_id')),
    'has_citus', EXISTS (SELECT FROM pg_class
                         WHERE relnamespace = 'pg_catalog'::regnamespace AND relname = 'pg_dist_partition'),
    -- This list has a setting only if the library has defined it, which it does only
    -- where it is preloaded.
    -- A worker ID that is not a number is in the view above, or -1.
    'settings', (SELECT coalesce(jsonb_object_agg(
                     name, CASE WHEN setting ~ '^ *[0-9]+ *$' THEN setting::bigint ELSE -1 END), '{}')
                 FROM pg_settings
                 WHERE name IN ('snowflake_id.worker_id', 'snowflake_id.failover_gap',
                                'snowflake_id.reserve_ahead'))
) AS answer
FROM (VALUES ('snowflake_id')) AS wanted (name)
LEFT JOIN pg_extension AS extension ON extension.extname = wanted.name
LEFT JOIN pg_namespace AS namespace ON namespace.oid = extension.extnamespace
