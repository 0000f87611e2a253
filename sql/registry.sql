-- The registry of worker IDs: it leases the worker IDs of pools to servers, so that no
-- two servers have the same one. crates/core/src/lease/registry.rs decides what is granted;
-- src/registry.rs reads these tables for it, and stores what it says.
--
-- One row of _snowflake.state is the lock of the whole registry: every request
-- and every function of an administrator takes it first (SELECT ... FOR UPDATE).
--
-- Rows of _snowflake.leases are never deleted, not even with their pool: a later
-- pool of the namespace that has the worker ID goes on above what was issued.
--
-- Nobody but their owner has a privilege on the tables. The functions run with the rights of
-- the caller, who needs EXECUTE, and switch to the owner of the tables where they read and
-- change them: src/guard.rs says how. A dump has no rows of these tables: leases that
-- were restored would be those of the past, and the registry would not know. Function
-- snowflake_pool_calls() prints the calls that make the pools again.
--
-- A registry can also be in etcd (src/etcd): then the functions of administrators get
-- its URL, and read and change none of these tables. They serve superusers only.
--
-- A pool, a lease, a server and the state are each stored as the JSON of the core's type, as in
-- etcd. Beside it, in columns that PostgreSQL makes of it, there is only what a search needs.
-- Instants are Unix milliseconds, since a clock can be wrong by any amount: those that
-- timestamptz cannot hold are shown as infinite.

CREATE TABLE _snowflake.state (
    id integer PRIMARY KEY CHECK (id = 1),
    state jsonb NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE _snowflake.state IS
    'internal: what the registry of worker IDs stores beside its pools and leases, in one row; no row before the first pool';
COMMENT ON COLUMN _snowflake.state.id IS '1: there is one row';
COMMENT ON COLUMN _snowflake.state.state IS
    'era, serial number of the latest change, starts of the server, greatest time of the registry''s clock, '
    'latest loss of grants, whether the registry has stopped, clocks of the servers that have renewed last, '
    'the secret key by which the registry knows its own words again; instants in Unix milliseconds';

-- What tables and views call has its names bound when it is made, as the views have, under a
-- path that holds no object of others.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE FUNCTION _snowflake.millis(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT floor(extract(epoch FROM at) * 1000)::bigint;
END;
COMMENT ON FUNCTION _snowflake.millis(timestamptz) IS
    'internal, for the registry: an instant in Unix milliseconds';

CREATE FUNCTION _snowflake.instant(millis bigint) RETURNS timestamptz
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    -- The limits lie in the years 287000 and -4000; timestamptz holds both.
    SELECT CASE WHEN millis > 9000000000000000 THEN timestamptz 'infinity'
                WHEN millis < -190000000000000 THEN timestamptz '-infinity'
                ELSE timestamptz '1970-01-01 00:00:00+00' + millis * interval '1 ms' END;
END;
COMMENT ON FUNCTION _snowflake.instant(bigint) IS
    'internal, for the registry: the instant of a number of Unix milliseconds';

CREATE FUNCTION _snowflake.ranges(ranges jsonb) RETURNS int8multirange
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(range_agg(int8range((e.ids -> 'start')::bigint, (e.ids -> 'end')::bigint)), '{}')
    FROM jsonb_array_elements(ranges) AS e (ids);
END;
COMMENT ON FUNCTION _snowflake.ranges(jsonb) IS
    'internal, for the registry: the worker IDs of an array of objects with start and end';

CREATE TABLE _snowflake.pools (
    pool jsonb NOT NULL,
    name text PRIMARY KEY GENERATED ALWAYS AS (pool ->> 'name') STORED,
    namespace text NOT NULL GENERATED ALWAYS AS (pool ->> 'namespace') STORED,
    worker_ids int8range NOT NULL GENERATED ALWAYS AS
        (int8range((pool #> '{ids,start}')::bigint, (pool #> '{ids,end}')::bigint)) STORED,
    except_ids int8multirange NOT NULL GENERATED ALWAYS AS (_snowflake.ranges(pool -> 'except')) STORED
);
COMMENT ON TABLE _snowflake.pools IS
    'internal: the pools of the registry of worker IDs, as snowflake_create_pool() was told; see view snowflake_pools';
COMMENT ON COLUMN _snowflake.pools.pool IS
    'the pool; durations in milliseconds, instants in Unix milliseconds; the other columns are parts of it that searches need';

CREATE TABLE _snowflake.leases (
    namespace text NOT NULL,
    lease jsonb NOT NULL,
    worker_id integer NOT NULL GENERATED ALWAYS AS ((lease -> 'worker')::integer) STORED,
    released boolean NOT NULL GENERATED ALWAYS AS ((lease -> 'released')::boolean) STORED,
    leased_until bigint NOT NULL GENERATED ALWAYS AS ((lease -> 'leased_until')::bigint) STORED,
    bound bigint NOT NULL GENERATED ALWAYS AS ((lease -> 'bound')::bigint) STORED,
    system_identifier numeric(20) NOT NULL GENERATED ALWAYS AS ((lease #> '{holder,identity,system}')::numeric) STORED,
    PRIMARY KEY (namespace, worker_id)
);
CREATE INDEX leases_until ON _snowflake.leases (namespace, leased_until);
CREATE INDEX leases_holder ON _snowflake.leases (system_identifier, bound);
COMMENT ON INDEX _snowflake.leases_until IS 'internal: finds the leases that end first or last';
COMMENT ON INDEX _snowflake.leases_holder IS
    'internal: finds the worker ID that a server had before, and the greatest bound of a system';
COMMENT ON TABLE _snowflake.leases IS
    'internal: one row per worker ID that was ever granted, with its latest holder; never deleted; see view snowflake_workers';
COMMENT ON COLUMN _snowflake.leases.namespace IS 'namespace of the pools that have the worker ID';
COMMENT ON COLUMN _snowflake.leases.lease IS
    'type Row of crates/core/src/lease/mod.rs, which describes each field; the columns behind it are parts of it that searches need';
SET LOCAL search_path = @extschema@, pg_temp;

CREATE FUNCTION snowflake_lease(pool text, request jsonb) RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_lease';
COMMENT ON FUNCTION snowflake_lease(text, jsonb) IS
    'for servers that lease a worker ID: acquires, renews or releases one, and returns the reply; '
    'the reply counts only once the transaction has committed, so the call is a transaction of its own';

CREATE FUNCTION snowflake_create_pool(
    name text, worker_ids int8range,
    lease interval DEFAULT '30 s', hold interval DEFAULT '30 s', max_ahead interval DEFAULT '1 min',
    except_ids int8multirange DEFAULT '{}', spares integer DEFAULT 0,
    namespace text DEFAULT 'default', registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
    AS 'MODULE_PATHNAME', 'snowflake_create_pool';
COMMENT ON FUNCTION snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, integer, text, text) IS
    'makes a pool of worker IDs, which this database, or the registry in etcd with this URL, leases to servers; '
    'pools of one namespace have different worker IDs';

CREATE FUNCTION snowflake_drop_pool(name text, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_drop_pool';
COMMENT ON FUNCTION snowflake_drop_pool(text, text) IS
    'drops a pool of worker IDs that no server uses; the registry keeps what it knows of each worker ID, for a later pool that has it';

CREATE FUNCTION snowflake_revoke_worker(pool text, worker_id integer, registry text DEFAULT '') RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_revoke_worker';
COMMENT ON FUNCTION snowflake_revoke_worker(text, integer, text) IS
    'ends the lease of a worker ID: its server cannot renew it, and stops issuing IDs when the lease ends at the latest; '
    'returns from when another server can have the worker ID';

CREATE FUNCTION snowflake_end_grace_period(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_end_grace_period';
COMMENT ON FUNCTION snowflake_end_grace_period(text) IS
    'lets the registry lease worker IDs at once, although it may have lost leases: '
    'servers that have not asked since may lose their worker IDs to others, but no ID is issued twice';

CREATE FUNCTION snowflake_declare_registry(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_declare_registry';
COMMENT ON FUNCTION snowflake_declare_registry(text) IS
    'declares that of all copies of this registry, this one counts: '
    'it serves again if it has stopped, after a grace period, and servers that have asked it accept no other copy';

-- What the functions _snowflake.worker() and _snowflake.pool() say of what a registry has stored is
-- what the views show of the registry in this database, and the functions further below of one in
-- etcd. PostgreSQL writes the body of the first one into the view: so it is not STRICT, and gets
-- the time as a column.
--
-- The views are made with this path, which holds no object of others: an operator or a
-- function in the extension's schema that fits the types better than those in pg_catalog
-- would be taken, whoever made it, and run by whoever reads the view.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.worker(pool jsonb, lease jsonb, is_kept boolean, now bigint)
    RETURNS TABLE (worker_id integer, state text, host text, address text, port integer, data_directory text,
        system_identifier numeric, since timestamptz, leased_until timestamptz, bound timestamptz, token text,
        contested_by text, contested_since timestamptz, contested_last timestamptz, role text)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT (lease -> 'worker')::integer,
        CASE WHEN r.is_released OR NOT is_kept THEN
                 CASE WHEN (lease -> 'worker')::bigint >= (pool #> '{ids,end}')::bigint - (pool -> 'spares')::bigint THEN 'spare'
                      WHEN r.is_released THEN 'released'
                      ELSE 'free' END
             WHEN lease ->> 'revoked' IS NOT NULL THEN 'revoked'
             WHEN now >= (lease -> 'leased_until')::bigint THEN 'expired'
             ELSE 'leased' END,
        lease #>> '{holder,host}', lease #>> '{holder,address}', (lease #> '{holder,port}')::integer,
        lease #>> '{holder,data_directory}', (lease #> '{holder,identity,system}')::numeric,
        _snowflake.instant((lease -> 'since')::bigint), _snowflake.instant((lease -> 'leased_until')::bigint),
        _snowflake.instant((lease -> 'bound')::bigint), (lease ->> 'counter') || '-' || left(lease ->> 'nonce', 8),
        CASE WHEN c.is_heard THEN format('%s%s, port %s, data directory "%s"', lease #>> '{contender,by,host}',
            ' (' || nullif(lease #>> '{contender,by,address}', '') || ')', lease #>> '{contender,by,port}',
            lease #>> '{contender,by,data_directory}') END,
        CASE WHEN c.is_heard THEN _snowflake.instant((lease #>> '{contender,since}')::bigint) END,
        CASE WHEN c.is_heard THEN _snowflake.instant((lease #>> '{contender,latest}')::bigint) END,
        nullif(lease #>> '{holder,identity,role}', '')
    FROM (SELECT (lease -> 'released')::boolean) AS r (is_released)
    CROSS JOIN LATERAL (SELECT NOT r.is_released AND (lease #>> '{contender,latest}')::bigint
        >= now - 2 * ((pool -> 'lease')::bigint + (pool -> 'hold')::bigint)) AS c (is_heard);
END;
COMMENT ON FUNCTION _snowflake.worker(jsonb, jsonb, boolean, bigint) IS
    'internal: a row of view snowflake_workers; is_kept: nobody but the holder can have the worker ID';

CREATE VIEW @extschema@.snowflake_workers AS
SELECT p.name AS pool, w.*
FROM (SELECT _snowflake.millis(clock_timestamp())) AS n (now)
CROSS JOIN _snowflake.pools AS p
JOIN _snowflake.leases AS l ON l.namespace = p.namespace AND p.worker_ids @> l.worker_id::bigint
CROSS JOIN LATERAL _snowflake.worker(p.pool, l.lease, l.leased_until > n.now - (p.pool -> 'hold')::bigint, n.now) AS w;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_workers IS
    'the worker IDs that this registry has leased, with their latest holders; '
    'worker IDs that were never leased have no row, see snowflake_pools.never_leased';
COMMENT ON COLUMN snowflake_workers.pool IS 'the pool that has the worker ID';
COMMENT ON COLUMN snowflake_workers.worker_id IS 'the worker ID';
COMMENT ON COLUMN snowflake_workers.state IS
    'leased; revoked: leased, but cannot be renewed; '
    'expired: not renewed in time, and kept for the holder until the hold has passed; '
    'free or released: another server can have it; spare: was leased, and is not leased again';
COMMENT ON COLUMN snowflake_workers.host IS 'host name of the holder, or of the latest one';
COMMENT ON COLUMN snowflake_workers.address IS 'address from which the holder reached the registry';
COMMENT ON COLUMN snowflake_workers.port IS 'port of the holder';
COMMENT ON COLUMN snowflake_workers.data_directory IS 'data directory of the holder';
COMMENT ON COLUMN snowflake_workers.system_identifier IS 'system identifier of the holder''s database cluster';
COMMENT ON COLUMN snowflake_workers.since IS 'when the holder got the worker ID';
COMMENT ON COLUMN snowflake_workers.leased_until IS 'when the lease ends if it is not renewed, or when it ended';
COMMENT ON COLUMN snowflake_workers.bound IS
    'no ID of this instant or later has been issued with this worker ID; by the clock of the holder';
COMMENT ON COLUMN snowflake_workers.token IS
    'tells the leases of a worker ID apart: how many there were, and the beginning of the holder''s random number';
COMMENT ON COLUMN snowflake_workers.contested_by IS
    'another server that has this worker ID set, asks for it, and is refused, since the holder has it: '
    'its host name, address, port and data directory; several servers take turns here; '
    'NULL if none has asked for two leases and two holds';
COMMENT ON COLUMN snowflake_workers.contested_since IS
    'since when the registry has noted that server without a break; it may have asked before';
COMMENT ON COLUMN snowflake_workers.contested_last IS
    'when it has asked last, exact to a third of a lease';
COMMENT ON COLUMN snowflake_workers.role IS
    'the role as which the holder got the worker ID; only this role renews or returns the lease';

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.pool(stored jsonb, registry jsonb, now bigint, workers jsonb)
    RETURNS TABLE (pool text, namespace text, worker_ids int8range, except_ids int8multirange, spares integer,
        lease interval, hold interval, max_ahead interval, made timestamptz,
        leased bigint, free bigint, never_leased bigint, grace_until timestamptz, grace_because text, era bigint,
        stopped_since timestamptz, stopped_by text)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT stored ->> 'name', stored ->> 'namespace', int8range(i.first, i.beyond), i.except_ids, i.spares::integer,
        t.lease, t.hold, (stored -> 'max_ahead')::bigint * interval '1 ms', _snowflake.instant((stored -> 'made')::bigint),
        c.leased, c.free + o.size - c.known, o.size - c.known, q.until, CASE WHEN q.until IS NOT NULL THEN registry #>> '{loss,cause}' END,
        (registry #> '{era,counter}')::bigint, _snowflake.instant((registry #>> '{stopped,since}')::bigint),
        registry #>> '{stopped,by,host}'
    FROM (SELECT (stored #> '{ids,start}')::bigint, (stored #> '{ids,end}')::bigint, (stored -> 'spares')::bigint,
            _snowflake.ranges(stored -> 'except')) AS i (first, beyond, spares, except_ids)
    CROSS JOIN LATERAL (SELECT (stored -> 'lease')::bigint * interval '1 ms',
        (stored -> 'hold')::bigint * interval '1 ms') AS t (lease, hold)
    -- Computed once, not for each worker ID.
    CROSS JOIN LATERAL (SELECT int8multirange(int8range(i.first, i.beyond - i.spares)) - i.except_ids OFFSET 0) AS m (ordinary)
    CROSS JOIN LATERAL (SELECT sum(upper(u.ids) - lower(u.ids))::bigint FROM unnest(m.ordinary) AS u (ids)) AS o (size)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE w.state IN ('leased', 'expired', 'revoked')),
            count(*) FILTER (WHERE w.state IN ('free', 'released') AND m.ordinary @> w.id::bigint),
            count(*) FILTER (WHERE m.ordinary @> w.id::bigint)
        FROM jsonb_each_text(workers) AS w (id, state)) AS c (leased, free, known)
    LEFT JOIN LATERAL (
        SELECT u.until FROM (SELECT _snowflake.instant((registry #>> '{loss,grace_from}')::bigint) + t.lease + t.hold) AS u (until)
        WHERE u.until > _snowflake.instant(now)) AS q ON true;
END;
COMMENT ON FUNCTION _snowflake.pool(jsonb, jsonb, bigint, jsonb) IS
    'internal: a row of view snowflake_pools; workers: the state of each worker ID in view snowflake_workers';

CREATE VIEW @extschema@.snowflake_pools AS
SELECT p.*
FROM _snowflake.state AS r
CROSS JOIN _snowflake.pools AS s
CROSS JOIN LATERAL _snowflake.pool(s.pool, r.state - 'key', _snowflake.millis(clock_timestamp()),
    (SELECT jsonb_object_agg(w.worker_id, w.state) FROM @extschema@.snowflake_workers AS w WHERE w.pool = s.name)) AS p
-- There is one row. Said so, the planner expects no more, and compiles nothing. Who reads the
-- view runs the function, and need not have the key.
WHERE r.id = 1;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_pools IS
    'the pools of worker IDs that this database leases, and the state of the registry';
COMMENT ON COLUMN snowflake_pools.pool IS 'name of the pool';
COMMENT ON COLUMN snowflake_pools.namespace IS 'pools of one namespace have different worker IDs';
COMMENT ON COLUMN snowflake_pools.worker_ids IS 'the worker IDs of the pool';
COMMENT ON COLUMN snowflake_pools.except_ids IS 'those of them that are not leased';
COMMENT ON COLUMN snowflake_pools.spares IS
    'how many of them, at the end, are spare: they are leased only to the server of the registry, right after it was promoted';
COMMENT ON COLUMN snowflake_pools.lease IS 'how long a lease lasts unless it is renewed';
COMMENT ON COLUMN snowflake_pools.hold IS 'how long a worker ID is kept for its holder after its lease has ended';
COMMENT ON COLUMN snowflake_pools.max_ahead IS 'how far a generator may be ahead of its server''s clock';
COMMENT ON COLUMN snowflake_pools.made IS 'when the pool was made; its first leases begin max_ahead later';
COMMENT ON COLUMN snowflake_pools.leased IS 'worker IDs that servers have, or that are kept for them';
COMMENT ON COLUMN snowflake_pools.free IS 'worker IDs that a server can get; those that were never leased count';
COMMENT ON COLUMN snowflake_pools.never_leased IS 'worker IDs that no server ever had';
COMMENT ON COLUMN snowflake_pools.grace_until IS
    'until when the registry leases no worker IDs, since it may have lost leases; NULL if it does';
COMMENT ON COLUMN snowflake_pools.grace_because IS
    'why it may have lost leases: place (promoted, restored or copied), recovery (crash recovery, or a snapshot), '
    'serial or token (a server knows more than the registry), '
    'foreign (the registry is new, and a server has asked another one before), declared (snowflake_declare_registry())';
COMMENT ON COLUMN snowflake_pools.era IS 'one more with each time that leases may have been lost';
COMMENT ON COLUMN snowflake_pools.stopped_since IS
    'since when the registry serves nobody, because a server has asked another copy of it that may have taken its place; NULL if it serves';
COMMENT ON COLUMN snowflake_pools.stopped_by IS 'host name of that server';

-- It reads the view with the rights of its reader.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION @extschema@.snowflake_pool_calls() RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT format('SELECT %s.snowflake_create_pool(%L, int8range(%s, %s), lease => %L, hold => %L, max_ahead => %L, '
        'except_ids => %L, spares => %s, namespace => %L);',
        (SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
            WHERE e.extname = 'snowflake_id'),
        p.pool, lower(p.worker_ids), upper(p.worker_ids), p.lease, p.hold, p.max_ahead, p.except_ids, p.spares, p.namespace)
    FROM @extschema@.snowflake_pools AS p ORDER BY p.namespace, lower(p.worker_ids);
END;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON FUNCTION snowflake_pool_calls() IS
    'the calls of snowflake_create_pool() that make the pools of this database again, for a database that was restored from a dump';

CREATE FUNCTION _snowflake.read_etcd(registry text) RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_etcd';
COMMENT ON FUNCTION _snowflake.read_etcd(text) IS
    'internal, for snowflake_workers_in() and snowflake_pools_in(): what a registry in etcd has stored';

CREATE FUNCTION _snowflake.workers_of(stored jsonb, pool jsonb) RETURNS SETOF snowflake_workers
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pool ->> 'name', w.*
    FROM jsonb_array_elements(stored -> 'workers') AS e (worker)
    CROSS JOIN LATERAL _snowflake.worker(pool, e.worker -> 'row', (e.worker -> 'live')::boolean, (stored -> 'now')::bigint) AS w
    WHERE e.worker -> 'namespace' = pool -> 'namespace'
        AND w.worker_id >= (pool #> '{ids,start}')::bigint AND w.worker_id < (pool #> '{ids,end}')::bigint
$$;
COMMENT ON FUNCTION _snowflake.workers_of(jsonb, jsonb) IS
    'internal: the rows of view snowflake_workers for a pool of a registry in etcd, from what _snowflake.read_etcd() has returned';

CREATE FUNCTION snowflake_workers_in(registry text) RETURNS SETOF snowflake_workers
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH a (stored) AS MATERIALIZED (SELECT _snowflake.read_etcd(registry))
    SELECT w.* FROM a
    CROSS JOIN LATERAL jsonb_array_elements(a.stored -> 'pools') AS e (pool)
    CROSS JOIN LATERAL _snowflake.workers_of(a.stored, e.pool) AS w
$$;
COMMENT ON FUNCTION snowflake_workers_in(text) IS
    'the worker IDs that the registry in etcd with this URL has leased; as view snowflake_workers';

CREATE FUNCTION snowflake_pools_in(registry text) RETURNS SETOF snowflake_pools
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH a (stored) AS MATERIALIZED (SELECT _snowflake.read_etcd(registry))
    SELECT p.* FROM a
    CROSS JOIN LATERAL jsonb_array_elements(a.stored -> 'pools') AS e (pool)
    CROSS JOIN LATERAL _snowflake.pool(e.pool, a.stored -> 'state', (a.stored -> 'now')::bigint,
        (SELECT jsonb_object_agg(w.worker_id, w.state) FROM _snowflake.workers_of(a.stored, e.pool) AS w)) AS p
$$;
COMMENT ON FUNCTION snowflake_pools_in(text) IS
    'the pools of the registry in etcd with this URL; as view snowflake_pools';
