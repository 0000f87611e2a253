-- The horizon: IDs before it can no longer appear. See docs/ordered.md.

-- snowflake_horizon() is VOLATILE, since each call answers anew, and PARALLEL UNSAFE, since
-- a reservation may write, as with snowflake_nextval(). The planner asks the support
-- function, which refuses queries that read tables beside it.

-- Refuses snowflake_horizon() in queries that read tables.
CREATE FUNCTION _snowflake.horizon_support(internal) RETURNS internal
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_horizon_support';

CREATE FUNCTION snowflake_horizon() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SUPPORT _snowflake.horizon_support AS 'MODULE_PATHNAME', 'snowflake_horizon';
COMMENT ON FUNCTION snowflake_horizon() IS
    'no ID of the default generator below this can appear on this server any more, of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_horizon(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SUPPORT _snowflake.horizon_support AS 'MODULE_PATHNAME', 'snowflake_horizon';
COMMENT ON FUNCTION snowflake_horizon(regclass) IS
    'no ID of a generator below this can appear on this server any more, of IDs that the inserting transaction has taken';

-- A trigger function is not STRICT: it has no arguments.
CREATE FUNCTION snowflake_check_horizon() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_check_horizon';
COMMENT ON FUNCTION snowflake_check_horizon() IS
    'trigger BEFORE INSERT, FOR EACH ROW, for tables that are polled: refuses IDs from elsewhere that lie before the horizon. '
    'Arguments: the column (by default the primary key), the generator (by default that of the column''s default)';

-- Running transactions of this database that hold back a horizon by a place in shared memory.
-- Details of other sessions are shown as in pg_stat_activity.
CREATE FUNCTION _snowflake.horizon_held(OUT pid integer, OUT generator regclass, OUT since timestamptz) RETURNS SETOF record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10 AS 'MODULE_PATHNAME', 'snowflake_horizon_held';

-- Where pg_catalog has no operator of exactly these types, it is named: another one in the
-- extension's schema would be taken, even one that another role made.
CREATE VIEW snowflake_horizon_holders AS
    -- Prepared transactions, by the lock that each has. There may be thousands of other locks.
    WITH x AS MATERIALIZED (
        SELECT l.virtualtransaction, l.transactionid FROM pg_catalog.pg_locks l
        WHERE l.locktype = 'transactionid' AND l.pid IS NULL AND l.mode = 'ExclusiveLock'),
    held AS (
        SELECT h.pid, NULL::text AS gid, h.generator, h.since, NULL::name AS owner,
            NULL::timestamptz AS prepared
        FROM _snowflake.horizon_held() h
        UNION ALL
        -- Prepared transactions, and generators for which a session had no place: see
        -- src/session/tx_holds.rs for what the lock says. Of several locks, the earliest counts.
        SELECT l.pid, p.gid, g.generator,
            CASE WHEN pg_catalog.has_sequence_privilege(g.generator::pg_catalog.oid, 'SELECT, USAGE')
                OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
            THEN pg_catalog.min(pg_catalog.to_timestamp(
                (l.objsubid::bigint * 4294967296 + l.objid::bigint) OPERATOR(pg_catalog./) 1000.0)) END,
            p.owner, p.prepared
        FROM pg_catalog.pg_locks l
        CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN l.classid OPERATOR(pg_catalog.<>) 0 THEN l.classid END,
            'snowflake_default'::pg_catalog.regclass::pg_catalog.oid)::pg_catalog.regclass AS generator) g
        LEFT JOIN x ON l.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
        LEFT JOIN pg_catalog.pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = x.transactionid
        WHERE l.locktype = 'userlock' AND l.mode = 'ShareLock'
            AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                WHERE d.datname = pg_catalog.current_database())
        GROUP BY l.pid, l.virtualtransaction, p.gid, g.generator, p.owner, p.prepared)
    SELECT h.pid, h.gid, h.generator, h.since,
        greatest(pg_catalog.date_trunc('milliseconds', pg_catalog.clock_timestamp() - h.since), '0') AS held_for,
        coalesce(a.usename, h.owner) AS usename, a.application_name, a.client_addr,
        CASE WHEN h.pid IS NULL THEN 'prepared' ELSE a.state END AS state,
        coalesce(a.xact_start, h.prepared) AS xact_start, a.query
    FROM held h
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid;
COMMENT ON VIEW snowflake_horizon_holders IS 'transactions of this database that hold back snowflake_horizon(), running and prepared';
COMMENT ON COLUMN snowflake_horizon_holders.pid IS 'process of a running transaction; null for a prepared one';
COMMENT ON COLUMN snowflake_horizon_holders.gid IS
    'name of a prepared transaction, for COMMIT PREPARED or ROLLBACK PREPARED; null for a running one';
COMMENT ON COLUMN snowflake_horizon_holders.generator IS 'the generator whose horizon is held back';
COMMENT ON COLUMN snowflake_horizon_holders.since IS
    'the instant of the first ID that the transaction has taken, or one shortly before: the '
    'horizon does not pass it; null for users who may not use the generator';
COMMENT ON COLUMN snowflake_horizon_holders.held_for IS 'how long ago that was, by the wall clock; 0 while the generator is ahead of it';
COMMENT ON COLUMN snowflake_horizon_holders.usename IS 'role of the session, or owner of the prepared transaction';
COMMENT ON COLUMN snowflake_horizon_holders.application_name IS 'as in pg_stat_activity';
COMMENT ON COLUMN snowflake_horizon_holders.client_addr IS 'as in pg_stat_activity';
COMMENT ON COLUMN snowflake_horizon_holders.state IS 'as in pg_stat_activity; prepared for a prepared transaction';
COMMENT ON COLUMN snowflake_horizon_holders.xact_start IS 'when the transaction began, or was prepared';
COMMENT ON COLUMN snowflake_horizon_holders.query IS 'as in pg_stat_activity';
