-- What 0.2.0 adds to 0.1.0. ALTER EXTENSION snowflake_id UPDATE runs this script in one
-- transaction. It replaces no function and drops nothing, so that what users have made of the
-- objects of 0.1.0, their privileges included, stays. tests/t/061_upgrades.pl compares the
-- result with what CREATE EXTENSION makes.

-- At a higher level, the end of the script would not see leases that others have just been
-- granted: servers would not count.
DO $$
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
        RAISE EXCEPTION 'ALTER EXTENSION snowflake_id UPDATE needs transaction isolation level READ COMMITTED'
            USING ERRCODE = 'active_sql_transaction',
            DETAIL = 'At a higher level it would not see what others have just committed.',
            HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END
$$;

-- A server that is given an ID of another server lets its own IDs sort after that one.

CREATE FUNCTION snowflake_observe(id bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_observe';
COMMENT ON FUNCTION snowflake_observe(bigint) IS
    'makes all further IDs of the default generator on this server greater than an ID that came from another server';

CREATE FUNCTION snowflake_observe(id bigint, generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_observe';
COMMENT ON FUNCTION snowflake_observe(bigint, regclass) IS
    'makes all further IDs of a generator on this server greater than an ID that came from another server';

CREATE FUNCTION snowflake_nextval_after(id bigint) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval_after';
COMMENT ON FUNCTION snowflake_nextval_after(bigint) IS
    'next ID of the default generator, greater than an ID that came from another server';

CREATE FUNCTION snowflake_nextval_after(id bigint, generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval_after';
COMMENT ON FUNCTION snowflake_nextval_after(bigint, regclass) IS
    'next ID of a generator, greater than an ID that came from another server';

-- What the view shows besides comes from a function of its own: the result of a function
-- cannot change while others depend on it.

CREATE FUNCTION snowflake_horizon_lags(OUT generator regclass, OUT horizon_lag double precision)
    RETURNS SETOF record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'snowflake_horizon_lags';
COMMENT ON FUNCTION snowflake_horizon_lags() IS
    'column horizon_lag of view pg_stat_snowflake';
CREATE OR REPLACE VIEW pg_stat_snowflake AS
    SELECT s.*, l.horizon_lag
    FROM pg_stat_snowflake() AS s
    LEFT JOIN snowflake_horizon_lags() AS l ON l.generator OPERATOR(pg_catalog.=) s.generator;
COMMENT ON COLUMN pg_stat_snowflake.horizon_lag IS 'how far transactions that took IDs hold back snowflake_horizon(), in milliseconds; null if the generator has no horizon';

-- The horizon: IDs before it cannot appear any more. See docs/ordered.md.

-- snowflake_horizon() is VOLATILE, since each call answers anew, and PARALLEL UNSAFE, since
-- a reservation may write, as with snowflake_nextval(). The planner asks the support
-- function, which refuses queries that read tables beside it.

CREATE FUNCTION snowflake_horizon_support(internal) RETURNS internal
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_horizon_support';
COMMENT ON FUNCTION snowflake_horizon_support(internal) IS
    'internal: refuses snowflake_horizon() in queries that read tables';

CREATE FUNCTION snowflake_horizon() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SUPPORT snowflake_horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_horizon';
COMMENT ON FUNCTION snowflake_horizon() IS
    'no ID of the default generator below this can appear on this server any more, of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_horizon(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SUPPORT snowflake_horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_horizon';
COMMENT ON FUNCTION snowflake_horizon(regclass) IS
    'no ID of a generator below this can appear on this server any more, of IDs that the inserting transaction has taken';

-- A trigger function is not STRICT: it has no arguments.
CREATE FUNCTION snowflake_ordered() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_ordered';
COMMENT ON FUNCTION snowflake_ordered() IS
    'trigger BEFORE INSERT, FOR EACH ROW, for tables that are polled: refuses IDs from elsewhere that lie before the horizon. Arguments: the column (by default the primary key), the generator (by default that of the column''s default)';

-- Running transactions of this database that hold back a horizon by a place in shared memory.
-- Details of other sessions are shown as in pg_stat_activity.
CREATE FUNCTION snowflake_horizon_held(
    OUT pid integer, OUT generator regclass, OUT since timestamptz)
    RETURNS SETOF record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'snowflake_horizon_held';
COMMENT ON FUNCTION snowflake_horizon_held() IS
    'running transactions, for view snowflake_horizon_holders';

-- Where pg_catalog has no operator of exactly these types, it is named: another one in the
-- extension's schema would be taken, whoever made it.
CREATE VIEW snowflake_horizon_holders AS
    WITH held AS (
        SELECT h.pid, NULL::text AS gid, h.generator, h.since, NULL::name AS owner,
            NULL::timestamptz AS prepared
        FROM snowflake_horizon_held() h
        UNION ALL
        -- Prepared transactions, and generators for which a session had no place: see
        -- src/pg/horizon.rs for what the lock says. Of several locks, the earliest counts.
        SELECT l.pid, p.gid, g.generator,
            CASE WHEN pg_catalog.has_sequence_privilege(g.generator::pg_catalog.oid, 'SELECT, USAGE')
                OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
            THEN pg_catalog.min(pg_catalog.to_timestamp(
                (l.objsubid::bigint * 4294967296 + l.objid::bigint) OPERATOR(pg_catalog./) 1000.0)) END,
            p.owner, p.prepared
        FROM pg_catalog.pg_locks l
        CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN l.classid OPERATOR(pg_catalog.<>) 0 THEN l.classid END,
            'snowflake_default'::pg_catalog.regclass::pg_catalog.oid)::pg_catalog.regclass AS generator) g
        LEFT JOIN pg_catalog.pg_locks x ON x.virtualtransaction = l.virtualtransaction
            AND x.locktype = 'transactionid' AND x.pid IS NULL AND x.mode = 'ExclusiveLock'
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
COMMENT ON VIEW snowflake_horizon_holders IS
    'transactions of this database that hold back snowflake_horizon(), running and prepared';
COMMENT ON COLUMN snowflake_horizon_holders.pid IS 'process of a running transaction; null for a prepared one';
COMMENT ON COLUMN snowflake_horizon_holders.gid IS 'name of a prepared transaction, for COMMIT PREPARED or ROLLBACK PREPARED; null for a running one';
COMMENT ON COLUMN snowflake_horizon_holders.generator IS 'the generator whose horizon is held back';
COMMENT ON COLUMN snowflake_horizon_holders.since IS 'the instant of the first ID that the transaction has taken, or one shortly before: the horizon does not pass it; null for users who may not use the generator';
COMMENT ON COLUMN snowflake_horizon_holders.held_for IS 'how long ago that was, by the wall clock; 0 while the generator is ahead of it';
COMMENT ON COLUMN snowflake_horizon_holders.usename IS 'role of the session, or owner of the prepared transaction';
COMMENT ON COLUMN snowflake_horizon_holders.application_name IS 'as in pg_stat_activity';
COMMENT ON COLUMN snowflake_horizon_holders.client_addr IS 'as in pg_stat_activity';
COMMENT ON COLUMN snowflake_horizon_holders.state IS 'as in pg_stat_activity; prepared for a prepared transaction';
COMMENT ON COLUMN snowflake_horizon_holders.xact_start IS 'when the transaction began, or was prepared';
COMMENT ON COLUMN snowflake_horizon_holders.query IS 'as in pg_stat_activity';
GRANT SELECT ON snowflake_horizon_holders TO PUBLIC;

-- The horizon of a cluster: IDs before it cannot appear any more on any server that leases
-- worker IDs from this registry. See docs/ordered.md; src/snowflake/lease/horizon.rs has the
-- rules, and src/pg/registry/servers.rs reads and writes the table for them.

-- The registry, if this is one, answers nobody until the end of this script: see there. What
-- waits for others comes before: view pg_stat_snowflake waits for those who have read it. The
-- lock is that of the table, since there is no row before the first pool.
LOCK TABLE snowflake_registry_state IN EXCLUSIVE MODE;

CREATE TABLE snowflake_registry_servers (
    identity text PRIMARY KEY,
    server jsonb NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE snowflake_registry_servers IS
    'internal: the servers that count for snowflake_cluster_horizon(), and those that were dropped; see view snowflake_cluster_servers';
COMMENT ON COLUMN snowflake_registry_servers.identity IS
    'system identifier, boot ID of the kernel, device and inode of the data directory';
COMMENT ON COLUMN snowflake_registry_servers.server IS
    'the server''s place and latest worker ID, what it has reported, and when; instants in Unix milliseconds';
-- It belongs to the owner of the registry's other tables, whose functions write it, whoever
-- runs this script.
DO $$
BEGIN
    EXECUTE pg_catalog.format('ALTER TABLE @extschema@.snowflake_registry_servers OWNER TO %s',
        (SELECT c.relowner::pg_catalog.regrole FROM pg_catalog.pg_class AS c
            WHERE c.oid OPERATOR(pg_catalog.=) '@extschema@.snowflake_registry_state'::pg_catalog.regclass));
END
$$;
REVOKE ALL ON snowflake_registry_servers FROM PUBLIC;
GRANT SELECT, INSERT ON snowflake_registry_servers TO pg_database_owner;
SELECT pg_catalog.pg_extension_config_dump('snowflake_registry_servers', '');

-- snowflake_cluster_horizon() is VOLATILE, since each call answers anew. It locks and changes
-- nothing, so whoever may call it stops nobody. SECURITY DEFINER, for it reads the tables of
-- the registry.

CREATE FUNCTION snowflake_cluster_horizon() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SUPPORT snowflake_horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_cluster_horizon';
REVOKE EXECUTE ON FUNCTION snowflake_cluster_horizon() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_cluster_horizon() IS
    'no ID of the default generator below this can appear any more on any server of the registry, of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_cluster_horizon(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SUPPORT snowflake_horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_cluster_horizon';
REVOKE EXECUTE ON FUNCTION snowflake_cluster_horizon(regclass) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_cluster_horizon(regclass) IS
    'no ID of a generator with this one''s label below this can appear any more on any server of the registry, of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_cluster_horizon(generator regclass, registry text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SUPPORT snowflake_horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_cluster_horizon';
REVOKE EXECUTE ON FUNCTION snowflake_cluster_horizon(regclass, text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_cluster_horizon(regclass, text) IS
    'the same, of the registry in etcd with this URL';

CREATE FUNCTION snowflake_drop_server(server text, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_drop_server';
REVOKE EXECUTE ON FUNCTION snowflake_drop_server(text, text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_drop_server(text, text) IS
    'says that a server is lost: it does not hold back snowflake_cluster_horizon() any more, and cannot renew its lease';

CREATE FUNCTION snowflake_internal_server(server jsonb, now bigint,
    OUT server text, OUT state text, OUT worker_id integer, OUT host text, OUT address text, OUT port integer,
    OUT data_directory text, OUT system_identifier numeric(20), OUT since timestamptz, OUT reported timestamptz,
    OUT horizon timestamptz, OUT lag interval)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT left($1 ->> 'nonce', 16),
        CASE WHEN ($1 ->> 'stopped')::boolean THEN 'stopped'
             WHEN ($1 ->> 'until')::bigint <= $2 THEN 'lost'
             WHEN $1 ->> 'horizon' IS NULL THEN 'not reported'
             ELSE 'reports' END,
        ($1 ->> 'worker')::integer,
        $1 #>> '{holder,host}', $1 #>> '{holder,address}', ($1 #>> '{holder,port}')::integer,
        $1 #>> '{holder,data_directory}', ($1 #>> '{holder,identity,system}')::numeric(20),
        @extschema@.snowflake_internal_instant(($1 ->> 'since')::bigint),
        @extschema@.snowflake_internal_instant(($1 ->> 'reported')::bigint),
        @extschema@.snowflake_internal_instant(($1 ->> 'horizon')::bigint),
        ($2 - ($1 ->> 'horizon')::bigint) * interval '1 ms'
$$;
REVOKE EXECUTE ON FUNCTION snowflake_internal_server(jsonb, bigint) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_internal_server(jsonb, bigint) IS
    'internal, for view snowflake_cluster_servers: what the registry has stored of a server';

CREATE FUNCTION snowflake_internal_servers(OUT server text, OUT state text, OUT worker_id integer, OUT host text,
    OUT address text, OUT port integer, OUT data_directory text, OUT system_identifier numeric(20),
    OUT since timestamptz, OUT reported timestamptz, OUT horizon timestamptz, OUT lag interval)
    RETURNS SETOF record
    LANGUAGE sql VOLATILE STRICT PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.* FROM @extschema@.snowflake_registry_servers AS r
    CROSS JOIN LATERAL @extschema@.snowflake_internal_server(r.server,
        @extschema@.snowflake_internal_millis(clock_timestamp())) AS s
    WHERE r.server ->> 'dropped' IS NULL
$$;
REVOKE EXECUTE ON FUNCTION snowflake_internal_servers() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_internal_servers() TO pg_monitor;
COMMENT ON FUNCTION snowflake_internal_servers() IS
    'internal, for view snowflake_cluster_servers: the servers that count';

CREATE VIEW snowflake_cluster_servers AS
SELECT server, state, worker_id, host, address, port, data_directory, system_identifier, since, reported, horizon, lag
FROM snowflake_internal_servers();
COMMENT ON VIEW snowflake_cluster_servers IS
    'the servers that count for snowflake_cluster_horizon(): the one with the earliest horizon, or with none, holds it back';
COMMENT ON COLUMN snowflake_cluster_servers.server IS
    'name of this start of the server, for snowflake_drop_server(): 16 hexadecimal digits';
COMMENT ON COLUMN snowflake_cluster_servers.state IS
    'reports; not reported: it has reported no horizon yet; stopped: it has returned its worker ID, and transactions that it has prepared hold IDs; lost: its lease and the hold have passed, and it has not returned its worker ID';
COMMENT ON COLUMN snowflake_cluster_servers.worker_id IS 'the worker ID that it has got last';
COMMENT ON COLUMN snowflake_cluster_servers.host IS 'host name of the server';
COMMENT ON COLUMN snowflake_cluster_servers.address IS 'address from which it reached the registry';
COMMENT ON COLUMN snowflake_cluster_servers.port IS 'its port';
COMMENT ON COLUMN snowflake_cluster_servers.data_directory IS 'its data directory';
COMMENT ON COLUMN snowflake_cluster_servers.system_identifier IS 'system identifier of its database cluster';
COMMENT ON COLUMN snowflake_cluster_servers.since IS 'since when it counts';
COMMENT ON COLUMN snowflake_cluster_servers.reported IS 'when it has reported last; NULL if never';
COMMENT ON COLUMN snowflake_cluster_servers.horizon IS
    'no ID of an earlier instant can appear there any more; NULL if it has not reported';
COMMENT ON COLUMN snowflake_cluster_servers.lag IS
    'how long ago that instant is, by the registry''s clock; up to a third of a lease if nothing holds it back';
GRANT SELECT ON snowflake_cluster_servers TO pg_monitor;

CREATE FUNCTION snowflake_cluster_servers_in(registry text) RETURNS SETOF snowflake_cluster_servers
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH a (stored) AS MATERIALIZED (SELECT @extschema@.snowflake_internal_read_etcd(registry))
    SELECT s.* FROM a
    CROSS JOIN LATERAL jsonb_array_elements(a.stored -> 'servers') AS e (server)
    CROSS JOIN LATERAL @extschema@.snowflake_internal_server(e.server, (a.stored ->> 'now')::bigint) AS s
    WHERE e.server ->> 'dropped' IS NULL
$$;
REVOKE EXECUTE ON FUNCTION snowflake_cluster_servers_in(text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_cluster_servers_in(text) IS
    'the servers that count for the horizon of the registry in etcd with this URL; as view snowflake_cluster_servers';

-- The servers that have a worker ID of this registry count from now on, although they have got
-- it before: otherwise those that ask later could still make IDs appear below a horizon that
-- was returned. Those that are lost count too, until snowflake_drop_server(), or until their
-- worker ID is granted to them again. The state is locked since the table was made, so no
-- server is granted a worker ID in between.

SET LOCAL search_path = pg_catalog, pg_temp;
INSERT INTO @extschema@.snowflake_registry_servers (identity, server)
SELECT format('%s-%s-%s-%s-0', lpad(h.system, 16, '0'), l.boot, h.device, h.inode),
    jsonb_build_object(
        'holder', jsonb_build_object(
            'identity', jsonb_build_object('system', l.system_identifier, 'boot', l.boot,
                'device', l.device, 'inode', l.inode, 'generator', 0),
            'started', l.started, 'host', l.host, 'address', l.address, 'port', l.port,
            'data_directory', l.data_directory),
        'nonce', l.nonce, 'worker', l.worker_id,
        'since', @extschema@.snowflake_internal_millis(clock_timestamp()),
        'horizon', NULL, 'reported', NULL, 'stopped', false, 'dropped', NULL,
        'until', @extschema@.snowflake_internal_millis(l.leased_until + l.hold))
FROM (
    SELECT DISTINCT ON (r.system_identifier, r.boot_id, r.device, r.inode)
        r.system_identifier, r.device, r.inode, r.started, r.host, r.address, r.port, r.data_directory,
        r.worker_id, r.leased_until,
        replace(r.boot_id::text, '-', '') AS boot, replace(r.nonce::text, '-', '') AS nonce,
        coalesce((SELECT max(p.hold) FROM @extschema@.snowflake_registry_pools AS p
            WHERE p.namespace = r.namespace), '0') AS hold
    FROM @extschema@.snowflake_registry_leases AS r
    WHERE NOT r.released AND r.generator = 0
    ORDER BY r.system_identifier, r.boot_id, r.device, r.inode, r.started DESC, r.since DESC) AS l
CROSS JOIN LATERAL (
    -- Numbers of 64 bits without a sign, in hexadecimal digits.
    SELECT max(hex) FILTER (WHERE n = 1), max(hex) FILTER (WHERE n = 2), max(hex) FILTER (WHERE n = 3)
    FROM unnest(ARRAY[l.system_identifier, l.device, l.inode]) WITH ORDINALITY AS u (number, n)
    CROSS JOIN LATERAL (SELECT to_hex((number
        - CASE WHEN number >= 9223372036854775808 THEN 18446744073709551616 ELSE 0 END)::bigint)) AS x (hex))
    AS h (system, device, inode);
