-- The registry of worker IDs: it leases the worker IDs of pools to servers, so that no
-- two servers have the same one. crates/core/src/lease/registry.rs decides what is granted;
-- src/registry/mod.rs reads these tables for it, and stores what it says.
--
-- Each request and each call of an administrator locks the registry first, as src/registry/mod.rs says.
--
-- Rows of _snowflake.leases are never deleted, not even with their pool: a later
-- pool of the namespace that has the worker ID goes on above what was issued.
--
-- Nobody but their owner has a privilege on the tables. The functions run with the rights of
-- the caller, who needs EXECUTE, and switch to the owner of the tables where they read and
-- change them: src/postgres/own_tables.rs says how. A dump has no rows of these tables: leases that
-- were restored would be those of the past, and the registry would not know. Function
-- _snowflake.pool_calls() prints the calls that make the pools again.
--
-- A registry can also be in etcd, or in another database. The functions of administrators work on
-- the one that this server uses, and the views show it: src/registry/place.rs says which one that
-- is. View _snowflake.used has what it has stored in one form, of whatever kind it is.
--
-- A pool, a lease and the state are each stored as the JSON of the core's type, as in
-- etcd. Beside it, in columns that PostgreSQL makes of it, there is only what a key needs.
-- Instants are Unix milliseconds, since a clock can be wrong by any amount: those that
-- timestamptz cannot hold are shown as infinite.

CREATE TABLE _snowflake.state (
    id integer PRIMARY KEY CHECK (id = 1),
    state jsonb NOT NULL,
    written bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE _snowflake.state IS
    'internal: what the registry of worker IDs stores beside its pools and leases, in one row; no row before the first pool';
COMMENT ON COLUMN _snowflake.state.id IS '1: there is one row';
COMMENT ON COLUMN _snowflake.state.state IS
    'era, serial number of the latest change, starts of the server, greatest time of the registry''s clock, '
    'latest time in which it heard no server, latest loss of grants, whether the registry has stopped, '
    'the secret key by which the registry knows its own words again; instants in Unix milliseconds';
COMMENT ON COLUMN _snowflake.state.written IS
    'how often it was stored: by this number the registry knows after a crash whether the latest change is there';

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
    'the pool; durations in milliseconds, instants in Unix milliseconds; the other columns are parts of it';
CREATE TABLE _snowflake.leases (
    namespace text NOT NULL,
    worker_id integer NOT NULL GENERATED ALWAYS AS ((lease -> 'worker')::integer) STORED,
    lease jsonb NOT NULL,
    PRIMARY KEY (namespace, worker_id)
);
COMMENT ON TABLE _snowflake.leases IS
    'internal: one row per worker ID that was ever granted, with its latest holder; never deleted; see view snowflake_workers';
COMMENT ON COLUMN _snowflake.leases.namespace IS 'namespace of the pools that have the worker ID';
COMMENT ON COLUMN _snowflake.leases.lease IS
    'type Row of crates/core/src/lease/mod.rs, which describes each field; the worker ID is part of it';

SET LOCAL search_path = @extschema@, pg_temp;

CREATE FUNCTION _snowflake.lease(pool text, request jsonb) RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_lease';
COMMENT ON FUNCTION _snowflake.lease(text, jsonb) IS
    'internal, for servers that lease a worker ID: acquires, renews or releases one, and returns the reply; '
    'the reply counts only once the transaction has committed, so the call is a transaction of its own';

CREATE FUNCTION snowflake_create_registry(role text DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_create_registry';
COMMENT ON FUNCTION snowflake_create_registry(text) IS
    'makes this database a registry of worker IDs, with pool "default" of worker IDs 0 to 1023, unless it has a pool; '
    'and lets servers that connect as this role lease worker IDs';

CREATE FUNCTION snowflake_create_pool(
    name text DEFAULT 'default', worker_ids int8range DEFAULT '[0,1024)',
    lease interval DEFAULT '10 min', hold interval DEFAULT '30 s', max_ahead interval DEFAULT '1 min',
    except_ids int8multirange DEFAULT '{}',
    namespace text DEFAULT 'default', unused boolean DEFAULT NULL, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
    AS 'MODULE_PATHNAME', 'snowflake_create_pool';
COMMENT ON FUNCTION snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, text, boolean, text) IS
    'makes a pool of worker IDs in the registry that this server uses, or in etcd with this URL; '
    'pools of one namespace have different worker IDs; unused: nobody has used them before; NULL: if this is the first pool';

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

-- The views are made with this path, which holds no object of others: an operator or a
-- function in the extension's schema that fits the types better than those in pg_catalog
-- would be taken, whoever made it, and run by whoever reads the view.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW _snowflake.here AS
SELECT n.now, r.state, (SELECT array_agg(p.pool) FROM _snowflake.pools AS p) AS pools,
    (SELECT array_agg(l.namespace ORDER BY l.namespace, l.worker_id) FROM _snowflake.leases AS l) AS namespaces,
    (SELECT array_agg(l.lease ORDER BY l.namespace, l.worker_id) FROM _snowflake.leases AS l) AS leases
FROM _snowflake.state AS r
CROSS JOIN (SELECT _snowflake.millis(clock_timestamp())) AS n (now)
-- There is one row. Said so, the planner expects no more, and compiles nothing.
WHERE r.id = 1 AND EXISTS (SELECT FROM _snowflake.pools);
COMMENT ON VIEW _snowflake.here IS 'internal: what the registry in this database has stored; no row without a pool';
COMMENT ON COLUMN _snowflake.here.now IS 'time of the registry';
COMMENT ON COLUMN _snowflake.here.state IS 'as in _snowflake.state, without the key: who reads a view need not have it';
COMMENT ON COLUMN _snowflake.here.pools IS 'the pools';
COMMENT ON COLUMN _snowflake.here.namespaces IS 'the namespace of each lease';
COMMENT ON COLUMN _snowflake.here.leases IS 'the leases, as in _snowflake.leases';

CREATE FUNCTION _snowflake.read_registry() RETURNS jsonb
    LANGUAGE c STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_registry';
COMMENT ON FUNCTION _snowflake.read_registry() IS
    'internal, for servers that lease a worker ID: what the registry in this database has stored; NULL if it has no pool';

CREATE FUNCTION _snowflake.read_elsewhere() RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_elsewhere';
COMMENT ON FUNCTION _snowflake.read_elsewhere() IS
    'internal: what the registry in etcd or in another database has stored that this server uses; NULL if there is none; for pg_monitor';

CREATE VIEW _snowflake.used AS
SELECT h.* FROM _snowflake.here AS h
UNION ALL
SELECT (e.stored -> 'now')::bigint, e.stored -> 'state', ARRAY(SELECT jsonb_array_elements(e.stored -> 'pools')),
    ARRAY(SELECT w.worker ->> 'namespace' FROM jsonb_array_elements(e.stored -> 'workers') AS w (worker)),
    ARRAY(SELECT w.worker -> 'row' FROM jsonb_array_elements(e.stored -> 'workers') AS w (worker))
FROM (SELECT _snowflake.read_elsewhere() WHERE NOT EXISTS (SELECT FROM _snowflake.pools)) AS e (stored)
WHERE e.stored IS NOT NULL;
COMMENT ON VIEW _snowflake.used IS 'internal: what the registry that this server uses has stored; src/registry/place.rs says which one';
COMMENT ON COLUMN _snowflake.used.now IS 'this column and the others: as in _snowflake.here';

-- PostgreSQL writes the body of the function into the views: so it is not STRICT, and gets the time
-- as a column.
CREATE FUNCTION _snowflake.workers(of_pool jsonb, namespaces text[], leases jsonb[], now bigint)
    RETURNS TABLE (pool text, worker_id integer, state text, host text, address text, port integer, data_directory text,
        system_identifier numeric, since timestamptz, leased_until timestamptz, bound timestamptz, token text)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT of_pool ->> 'name', i.worker_id,
        CASE WHEN r.is_released OR (e.lease -> 'leased_until')::bigint <= now - (of_pool -> 'hold')::bigint THEN
                 CASE WHEN r.is_released THEN 'released' ELSE 'free' END
             WHEN e.lease ->> 'revoked' IS NOT NULL THEN 'revoked'
             WHEN now >= (e.lease -> 'leased_until')::bigint THEN 'expired'
             ELSE 'leased' END,
        e.lease #>> '{holder,host}', e.lease #>> '{holder,address}', (e.lease #> '{holder,port}')::integer,
        e.lease #>> '{holder,data_directory}', (e.lease #> '{holder,identity,system}')::numeric,
        _snowflake.instant((e.lease -> 'since')::bigint), _snowflake.instant((e.lease -> 'leased_until')::bigint),
        _snowflake.instant((e.lease -> 'bound')::bigint), (e.lease ->> 'counter') || '-' || left(e.lease ->> 'nonce', 8)
    FROM unnest(namespaces, leases) AS e (namespace, lease)
    CROSS JOIN LATERAL (SELECT (e.lease -> 'worker')::integer) AS i (worker_id)
    CROSS JOIN LATERAL (SELECT (e.lease -> 'released')::boolean) AS r (is_released)
    WHERE e.namespace = of_pool ->> 'namespace'
        AND i.worker_id >= (of_pool #> '{ids,start}')::bigint AND i.worker_id < (of_pool #> '{ids,end}')::bigint;
END;
COMMENT ON FUNCTION _snowflake.workers(jsonb, text[], jsonb[], bigint) IS
    'internal: the rows of view snowflake_workers for a pool, from what a registry has stored';

CREATE VIEW @extschema@.snowflake_workers AS
SELECT w.*
FROM _snowflake.used AS u
CROSS JOIN LATERAL unnest(u.pools) AS p (pool)
CROSS JOIN LATERAL _snowflake.workers(p.pool, u.namespaces, u.leases, u.now) AS w;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_workers IS
    'the worker IDs that the registry of this server has leased, with their latest holders; '
    'worker IDs that were never leased have no row, see snowflake_pools.never_leased';
COMMENT ON COLUMN snowflake_workers.pool IS 'the pool that has the worker ID';
COMMENT ON COLUMN snowflake_workers.worker_id IS 'the worker ID';
COMMENT ON COLUMN snowflake_workers.state IS
    'leased; revoked: leased, but cannot be renewed; '
    'expired: the holder was silent for too long, and it is kept for the holder until the hold has passed; '
    'free or released: another server can have it';
COMMENT ON COLUMN snowflake_workers.host IS 'host name of the holder, or of the latest one';
COMMENT ON COLUMN snowflake_workers.address IS 'address from which the holder reached the registry';
COMMENT ON COLUMN snowflake_workers.port IS 'port of the holder';
COMMENT ON COLUMN snowflake_workers.data_directory IS 'data directory of the holder';
COMMENT ON COLUMN snowflake_workers.system_identifier IS 'system identifier of the holder''s database cluster';
COMMENT ON COLUMN snowflake_workers.since IS 'when the holder got the worker ID';
COMMENT ON COLUMN snowflake_workers.leased_until IS
    'until when the registry waits for the holder, which may issue IDs up to its bound: the hold follows; or when the holder returned the worker ID';
COMMENT ON COLUMN snowflake_workers.bound IS
    'no ID of this instant or later has been issued with this worker ID; by the clock of the holder';
COMMENT ON COLUMN snowflake_workers.token IS
    'tells the leases of a worker ID apart: how many there were, and the beginning of the holder''s random number';

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.pool(stored jsonb, registry jsonb, now bigint, workers jsonb)
    RETURNS TABLE (pool text, namespace text, worker_ids int8range, except_ids int8multirange, lease interval, hold interval, max_ahead interval, made timestamptz,
        leased bigint, free bigint, never_leased bigint, grace_until timestamptz, grace_because text, begins timestamptz, era bigint,
        stopped_since timestamptz, stopped_by text)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT stored ->> 'name', stored ->> 'namespace', int8range(i.first, i.beyond), i.except_ids,
        t.lease * interval '1 ms', t.hold * interval '1 ms', t.max_ahead * interval '1 ms', _snowflake.instant((stored -> 'made')::bigint),
        c.leased, c.free + o.size - c.known, o.size - c.known, q.until, CASE WHEN q.until IS NOT NULL THEN registry #>> '{loss,cause}' END,
        _snowflake.instant(CASE WHEN b.begins > now THEN b.begins END), (registry #> '{era,counter}')::bigint, _snowflake.instant((registry #>> '{stopped,since}')::bigint),
        registry #>> '{stopped,by,host}'
    FROM (SELECT (stored #> '{ids,start}')::bigint, (stored #> '{ids,end}')::bigint,
            _snowflake.ranges(stored -> 'except')) AS i (first, beyond, except_ids)
    CROSS JOIN LATERAL (SELECT (stored -> 'lease')::bigint, (stored -> 'hold')::bigint, (stored -> 'max_ahead')::bigint)
        AS t (lease, hold, max_ahead)
    -- How far a bound that is lost can lie ahead of its holder's clock.
    CROSS JOIN LATERAL (SELECT least(t.lease, greatest(30000, (registry #>> '{loss,lost}')::bigint + t.hold))) AS g (growth)
    CROSS JOIN LATERAL (SELECT (stored -> 'made')::bigint, CASE WHEN (stored -> 'unused')::boolean THEN 0 ELSE t.lease + t.hold + t.max_ahead END,
        (registry #>> '{loss,top}')::bigint, (registry #>> '{loss,lost_in_all}')::bigint) AS f (made, led, top, lost)
    CROSS JOIN LATERAL (SELECT greatest(f.made + f.led, f.top + g.growth + 2 * t.hold + t.max_ahead,
        f.made + f.led + CASE WHEN f.top IS NOT NULL THEN greatest(0, least(f.top - f.made, f.lost)) + 2 * t.hold END)) AS b (begins)
    -- Computed once, not for each worker ID.
    CROSS JOIN LATERAL (SELECT int8multirange(int8range(i.first, i.beyond)) - i.except_ids OFFSET 0) AS m (ids)
    CROSS JOIN LATERAL (SELECT sum(upper(u.ids) - lower(u.ids))::bigint FROM unnest(m.ids) AS u (ids)) AS o (size)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE w.state IN ('leased', 'expired', 'revoked')),
            count(*) FILTER (WHERE w.state IN ('free', 'released') AND m.ids @> w.id::bigint),
            count(*) FILTER (WHERE m.ids @> w.id::bigint)
        FROM jsonb_each_text(workers) AS w (id, state)) AS c (leased, free, known)
    LEFT JOIN LATERAL (
        SELECT u.until FROM (SELECT _snowflake.instant((registry #>> '{loss,grace_from}')::bigint + g.growth + t.hold)) AS u (until)
        WHERE u.until > _snowflake.instant(now)) AS q ON true;
END;
COMMENT ON FUNCTION _snowflake.pool(jsonb, jsonb, bigint, jsonb) IS
    'internal: a row of view snowflake_pools; workers: the state of each worker ID in view snowflake_workers';

CREATE VIEW @extschema@.snowflake_pools AS
SELECT p.*
FROM _snowflake.used AS u
CROSS JOIN LATERAL unnest(u.pools) AS s (pool)
CROSS JOIN LATERAL _snowflake.pool(s.pool, u.state, u.now,
    (SELECT jsonb_object_agg(w.worker_id, w.state)
        FROM _snowflake.workers(s.pool, u.namespaces, u.leases, u.now) AS w)) AS p;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_pools IS
    'the pools of the registry that this server uses, and the state of the registry';
COMMENT ON COLUMN snowflake_pools.pool IS 'name of the pool';
COMMENT ON COLUMN snowflake_pools.namespace IS 'pools of one namespace have different worker IDs';
COMMENT ON COLUMN snowflake_pools.worker_ids IS 'the worker IDs of the pool';
COMMENT ON COLUMN snowflake_pools.except_ids IS 'those of them that are not leased';
COMMENT ON COLUMN snowflake_pools.lease IS 'for how long a server issues IDs while it does not reach the registry';
COMMENT ON COLUMN snowflake_pools.hold IS
    'how long a worker ID is kept for its holder after leased_until, which is 30 s, or the lease if that is shorter, after the holder was heard';
COMMENT ON COLUMN snowflake_pools.max_ahead IS 'how far a generator may be ahead of its server''s clock';
COMMENT ON COLUMN snowflake_pools.made IS 'when the pool was made';
COMMENT ON COLUMN snowflake_pools.leased IS 'worker IDs that servers have, or that are kept for them';
COMMENT ON COLUMN snowflake_pools.free IS 'worker IDs that a server can get; those that were never leased count';
COMMENT ON COLUMN snowflake_pools.never_leased IS 'worker IDs that no server ever had';
COMMENT ON COLUMN snowflake_pools.grace_until IS
    'until when the registry leases no worker IDs, since it may have lost leases; NULL if it does';
COMMENT ON COLUMN snowflake_pools.grace_because IS
    'why it may have lost leases: origin (promoted, restored or copied), recovery (crash recovery, or a snapshot), '
    'serial or token (a server knows more than the registry), '
    'foreign (the registry is new, and a server has asked another one before), declared (snowflake_declare_registry()), '
    'new (a server has made the registry in etcd)';
COMMENT ON COLUMN snowflake_pools.begins IS
    'from when on a server with a worker ID that no server ever had issues IDs: later than now after a loss, '
    'above all, if the registry''s clock was wrong then, and after the pool was made if its worker IDs may have been used; NULL if at once';
COMMENT ON COLUMN snowflake_pools.era IS 'one more with each time that leases may have been lost';
COMMENT ON COLUMN snowflake_pools.stopped_since IS
    'since when the registry serves nobody, because a server has asked another copy of it that may have taken its place; NULL if it serves';
COMMENT ON COLUMN snowflake_pools.stopped_by IS 'host name of that server';

SET LOCAL search_path = pg_catalog, pg_temp;
-- Two worker IDs for each server, and a quarter of the pool, or one.
CREATE FUNCTION _snowflake.wanted_size(servers bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT greatest(2 * servers + 1, ceil(servers * 8 / 3.0))::bigint;
END;
COMMENT ON FUNCTION _snowflake.wanted_size(bigint) IS 'internal: how many worker IDs a pool needs at least for so many servers';

-- It reads the view with the rights of its reader.
CREATE FUNCTION _snowflake.pool_calls() RETURNS SETOF text
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE ROWS 10
BEGIN ATOMIC
    SELECT format('SELECT %s.snowflake_create_pool(%L, int8range(%s, %s), lease => %L, hold => %L, max_ahead => %L, '
        'except_ids => %L, namespace => %L, unused => false);',
        (SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
            WHERE e.extname = 'snowflake_id'),
        p.pool, lower(p.worker_ids), upper(p.worker_ids), p.lease, p.hold, p.max_ahead, p.except_ids, p.namespace)
    FROM @extschema@.snowflake_pools AS p ORDER BY p.namespace, lower(p.worker_ids);
END;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON FUNCTION _snowflake.pool_calls() IS
    'internal: the calls of snowflake_create_pool() that make the pools again, for a database that was restored from a dump';
