-- The horizon of a cluster: IDs before it cannot appear any more on any server that leases
-- worker IDs from this registry. See docs/ordered.md; crates/core/src/lease/cluster_horizon.rs has
-- the rules, and src/registry/servers.rs reads and writes table _snowflake.servers for them.

-- snowflake_cluster_horizon() is VOLATILE, since each call answers anew. It locks and changes
-- nothing, so whoever may call it stops nobody.

CREATE FUNCTION snowflake_cluster_horizon() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SUPPORT _snowflake.horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_cluster_horizon';
COMMENT ON FUNCTION snowflake_cluster_horizon() IS
    'no ID of the default generator below this can appear any more on any server of the registry, '
    'of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_cluster_horizon(generator regclass, registry text DEFAULT '') RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SUPPORT _snowflake.horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_cluster_horizon';
COMMENT ON FUNCTION snowflake_cluster_horizon(regclass, text) IS
    'no ID of a generator with this one''s label below this can appear any more on any server of the registry, '
    'which this server uses or which is in etcd with this URL, of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_drop_server(server text, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_drop_server';
COMMENT ON FUNCTION snowflake_drop_server(text, text) IS
    'says that a server is lost: it does not hold back snowflake_cluster_horizon() any more, and cannot renew its lease';

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.server(server jsonb, now bigint,
    OUT server text, OUT state text, OUT worker_id integer, OUT host text, OUT address text, OUT port integer,
    OUT data_directory text, OUT system_identifier numeric(20), OUT since timestamptz, OUT reported timestamptz,
    OUT horizon timestamptz, OUT lag interval)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT left($1 ->> 'nonce', 16),
        CASE WHEN ($1 ->> 'stopped')::boolean THEN 'stopped'
             WHEN ($1 ->> 'until')::bigint <= $2 THEN 'lost'
             WHEN $1 ->> 'horizon' IS NULL THEN 'not reported'
             ELSE 'reports' END,
        ($1 ->> 'worker')::integer,
        $1 #>> '{holder,host}', $1 #>> '{holder,address}', ($1 #>> '{holder,port}')::integer,
        $1 #>> '{holder,data_directory}', ($1 #>> '{holder,identity,system}')::numeric(20),
        _snowflake.instant(($1 ->> 'since')::bigint),
        _snowflake.instant(($1 ->> 'reported')::bigint),
        _snowflake.instant(($1 ->> 'horizon')::bigint),
        -- A server can report any instant. One before 1970 has the lag of 1970.
        ($2 - CASE WHEN ($1 ->> 'horizon')::bigint < 0 THEN 0 ELSE ($1 ->> 'horizon')::bigint END) * interval '1 ms';
END;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON FUNCTION _snowflake.server(jsonb, bigint) IS
    'internal, for view snowflake_cluster_servers: what the registry has stored of a server';

-- A view reads tables with the rights of its owner; functions in it are run by its reader.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW @extschema@.snowflake_cluster_servers AS
SELECT s.* FROM _snowflake.used AS u
CROSS JOIN LATERAL unnest(u.servers) AS e (server)
CROSS JOIN LATERAL _snowflake.server(e.server, u.now) AS s
WHERE e.server ->> 'dropped' IS NULL;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_cluster_servers IS
    'the servers that count for snowflake_cluster_horizon(): the one with the earliest horizon, or with none, holds it back';
COMMENT ON COLUMN snowflake_cluster_servers.server IS
    'name of this start of the server, for snowflake_drop_server(): 16 hexadecimal digits';
COMMENT ON COLUMN snowflake_cluster_servers.state IS
    'reports; not reported: it has reported no horizon yet; '
    'stopped: it has returned its worker ID, and transactions that it has prepared hold IDs; '
    'lost: its lease and the hold have passed, and it has not returned its worker ID';
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
    'how long ago that instant is, by the registry''s clock; usually up to 12 s if nothing holds it back';
