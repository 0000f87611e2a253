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
-- Instants by the registry's clock are timestamptz. Instants by the clocks of servers are
-- bigint, in Unix milliseconds, since a clock can be wrong by any amount.

CREATE TABLE _snowflake.state (
    id integer PRIMARY KEY CHECK (id = 1),
    state jsonb NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE _snowflake.state IS
    'internal: what the registry of worker IDs stores beside its pools and leases, in one row; no row before the first pool';
COMMENT ON COLUMN _snowflake.state.id IS '1: there is one row';
COMMENT ON COLUMN _snowflake.state.state IS
    'era, serial number of the latest change, starts of the server, greatest time of the registry''s clock, latest loss of grants, whether the registry has stopped, clocks of the servers that have renewed last, the secret key by which the registry knows its own words again; instants in Unix milliseconds';

CREATE TABLE _snowflake.pools (
    name text PRIMARY KEY,
    namespace text NOT NULL,
    worker_ids int8range NOT NULL,
    except_ids int8multirange NOT NULL,
    spares integer NOT NULL,
    lease interval NOT NULL,
    hold interval NOT NULL,
    max_ahead interval NOT NULL,
    made timestamptz NOT NULL
);
COMMENT ON TABLE _snowflake.pools IS
    'internal: the pools of the registry of worker IDs, as snowflake_create_pool() was told; see view snowflake_pools';

CREATE TABLE _snowflake.leases (
    namespace text NOT NULL,
    worker_id integer NOT NULL,
    counter bigint NOT NULL,
    nonce uuid NOT NULL,
    released boolean NOT NULL,
    revoked timestamptz,
    system_identifier numeric(20) NOT NULL,
    boot_id uuid NOT NULL,
    device numeric(20) NOT NULL,
    inode numeric(20) NOT NULL,
    generator numeric(20) NOT NULL,
    role text NOT NULL,
    started bigint NOT NULL,
    host text NOT NULL,
    address text NOT NULL,
    port integer NOT NULL,
    data_directory text NOT NULL,
    since timestamptz NOT NULL,
    floor bigint NOT NULL,
    start bigint NOT NULL,
    renewed boolean NOT NULL,
    leased_until timestamptz NOT NULL,
    bound bigint NOT NULL,
    number bigint NOT NULL,
    clock bigint NOT NULL,
    era bigint NOT NULL,
    contender jsonb,
    PRIMARY KEY (namespace, worker_id)
);
CREATE INDEX leases_until ON _snowflake.leases (namespace, leased_until);
CREATE INDEX leases_holder ON _snowflake.leases (system_identifier);
COMMENT ON INDEX _snowflake.leases_until IS 'internal: finds the leases that end first or last';
COMMENT ON INDEX _snowflake.leases_holder IS 'internal: finds the worker ID that a server had before';
COMMENT ON COLUMN _snowflake.pools.made IS 'before max_ahead has passed since then, no lease of the pool begins';
COMMENT ON COLUMN _snowflake.leases.namespace IS 'namespace of the pools that have the worker ID';
COMMENT ON COLUMN _snowflake.leases.counter IS 'how often the worker ID was granted; with the nonce, the token of the lease';
COMMENT ON COLUMN _snowflake.leases.nonce IS 'random number that this start of the holder has drawn';
COMMENT ON COLUMN _snowflake.leases.released IS 'the holder has given the worker ID back';
COMMENT ON COLUMN _snowflake.leases.revoked IS 'when an administrator has revoked the lease';
COMMENT ON COLUMN _snowflake.leases.boot_id IS 'boot ID of the holder''s kernel; with the next two and the system identifier, the identity of a server';
COMMENT ON COLUMN _snowflake.leases.device IS 'device of the holder''s data directory';
COMMENT ON COLUMN _snowflake.leases.inode IS 'inode of the holder''s data directory';
COMMENT ON COLUMN _snowflake.leases.generator IS
    'the generator of the holder that leases worker IDs of its own: OID of its database * 2^32 + OID of its sequence, or 0 instead of the latter for the default generator; 0: the server itself';
COMMENT ON COLUMN _snowflake.leases.role IS 'the role that has taken the lease, which is part of the identity, too: no other role renews or returns it';
COMMENT ON COLUMN _snowflake.leases.address IS 'address of the connection from which the holder got the lease; empty if that was no network connection';
COMMENT ON COLUMN _snowflake.leases.started IS 'when this start of the holder began, in nanoseconds since its machine was booted';
COMMENT ON COLUMN _snowflake.leases.floor IS 'the holder issues no ID before this instant, by its clock';
COMMENT ON COLUMN _snowflake.leases.start IS 'the floor, or the holder''s clock when it got the lease if that was later';
COMMENT ON COLUMN _snowflake.leases.renewed IS 'the lease was renewed';
COMMENT ON COLUMN _snowflake.leases.bound IS 'no ID of this instant or later has been issued with the worker ID';
COMMENT ON COLUMN _snowflake.leases.number IS 'number of the holder''s latest request';
COMMENT ON COLUMN _snowflake.leases.clock IS 'the holder''s clock in that request';
COMMENT ON COLUMN _snowflake.leases.era IS 'era of the registry in which the lease was granted or last renewed';
COMMENT ON COLUMN _snowflake.leases.contender IS
    'a server that has claimed the worker ID since this lease began, and was refused; instants in Unix milliseconds';
COMMENT ON TABLE _snowflake.leases IS
    'internal: one row per worker ID that was ever granted, with its latest holder; never deleted; see view snowflake_workers';

-- What views call has its names bound when it is made, as the views have, under a path that
-- holds no object of others.
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
SET LOCAL search_path = @extschema@, pg_temp;

CREATE FUNCTION snowflake_lease(pool text, request jsonb) RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_lease';
COMMENT ON FUNCTION snowflake_lease(text, jsonb) IS
    'for servers that lease a worker ID: acquires, renews or releases one, and returns the reply; the reply counts only once the transaction has committed, so the call is a transaction of its own';

CREATE FUNCTION snowflake_create_pool(
    name text, worker_ids int8range,
    lease interval DEFAULT '30 s', hold interval DEFAULT '30 s', max_ahead interval DEFAULT '1 min',
    except_ids int8multirange DEFAULT '{}', spares integer DEFAULT 0,
    namespace text DEFAULT 'default', registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
    AS 'MODULE_PATHNAME', 'snowflake_create_pool';
COMMENT ON FUNCTION snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, integer, text, text) IS
    'makes a pool of worker IDs, which this database, or the registry in etcd with this URL, leases to servers; pools of one namespace have different worker IDs';

CREATE FUNCTION snowflake_drop_pool(name text, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_drop_pool';
COMMENT ON FUNCTION snowflake_drop_pool(text, text) IS
    'drops a pool of worker IDs that no server uses; the registry keeps what it knows of each worker ID, for a later pool that has it';

CREATE FUNCTION snowflake_revoke_worker(pool text, worker_id integer, registry text DEFAULT '') RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_revoke_worker';
COMMENT ON FUNCTION snowflake_revoke_worker(text, integer, text) IS
    'ends the lease of a worker ID: its server cannot renew it, and stops issuing IDs when the lease ends at the latest; returns from when another server can have the worker ID';

CREATE FUNCTION snowflake_end_quiet_time(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_end_quiet_time';
COMMENT ON FUNCTION snowflake_end_quiet_time(text) IS
    'lets the registry lease worker IDs at once, although it may have lost leases: servers that have not asked since may lose their worker IDs to others, but no ID is issued twice';

CREATE FUNCTION snowflake_declare_registry(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_declare_registry';
COMMENT ON FUNCTION snowflake_declare_registry(text) IS
    'declares that of all copies of this registry, this one counts: it serves again if it has stopped, after a quiet time, and servers that have asked it accept no other copy';

-- The views are made with this path, which holds no object of others: an operator or a
-- function in the extension's schema that fits the types better than those in pg_catalog
-- would be taken, whoever made it, and run by whoever reads the view.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW @extschema@.snowflake_workers AS
SELECT p.name AS pool, l.worker_id,
    CASE WHEN l.released THEN CASE WHEN s.is_spare THEN 'spare' ELSE 'released' END
         WHEN clock_timestamp() >= l.leased_until + p.hold THEN CASE WHEN s.is_spare THEN 'spare' ELSE 'free' END
         WHEN l.revoked IS NOT NULL THEN 'revoked'
         WHEN clock_timestamp() >= l.leased_until THEN 'expired'
         ELSE 'leased' END AS state,
    l.host, l.address, l.port, l.data_directory, l.system_identifier,
    l.since, l.leased_until,
    _snowflake.instant(l.bound) AS bound,
    l.counter || '-' || left(l.nonce::text, 8) AS token,
    c.by AS contested_by, c.since AS contested_since, c.latest AS contested_last,
    l.role
FROM _snowflake.pools AS p
JOIN _snowflake.leases AS l
    ON l.namespace = p.namespace AND p.worker_ids @> l.worker_id::bigint
CROSS JOIN LATERAL (SELECT l.worker_id >= upper(p.worker_ids) - p.spares) AS s (is_spare)
LEFT JOIN LATERAL (
    SELECT format('%s%s, port %s, data directory "%s"', l.contender #>> '{by,host}',
            ' (' || nullif(l.contender #>> '{by,address}', '') || ')', l.contender #>> '{by,port}',
            l.contender #>> '{by,data_directory}'),
        _snowflake.instant((l.contender ->> 'since')::bigint),
        _snowflake.instant((l.contender ->> 'latest')::bigint)) AS c (by, since, latest)
    ON NOT l.released AND c.latest >= clock_timestamp() - 2 * (p.lease + p.hold);
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_workers IS
    'the worker IDs that this registry has leased, with their latest holders; worker IDs that were never leased have no row, see snowflake_pools.never_leased';
COMMENT ON COLUMN snowflake_workers.pool IS 'the pool that has the worker ID';
COMMENT ON COLUMN snowflake_workers.worker_id IS 'the worker ID';
COMMENT ON COLUMN snowflake_workers.state IS
    'leased; revoked: leased, but cannot be renewed; expired: not renewed in time, and kept for the holder until the hold has passed; free or released: another server can have it; spare: was leased, and is not leased again';
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
    'another server that has this worker ID set, asks for it, and is refused, since the holder has it: its host name, address, port and data directory; several servers take turns here; NULL if none has asked for two leases and two holds';
COMMENT ON COLUMN snowflake_workers.contested_since IS
    'since when the registry has noted that server without a break; it may have asked before';
COMMENT ON COLUMN snowflake_workers.contested_last IS
    'when it has asked last, exact to a third of a lease';
COMMENT ON COLUMN snowflake_workers.role IS
    'the role as which the holder got the worker ID; only this role renews or returns the lease';

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW @extschema@.snowflake_pools AS
SELECT p.name AS pool, p.namespace, p.worker_ids, p.except_ids, p.spares, p.lease, p.hold, p.max_ahead, p.made,
    c.leased, c.free + n.never_leased AS free, n.never_leased,
    q.quiet_until, CASE WHEN q.quiet_until IS NOT NULL THEN r.state #>> '{loss,cause}' END AS quiet_because,
    (r.state #>> '{era,counter}')::bigint AS era,
    _snowflake.instant((r.state #>> '{stopped,since}')::bigint) AS stopped_since,
    r.state #>> '{stopped,by,host}' AS stopped_by
FROM _snowflake.pools AS p
CROSS JOIN _snowflake.state AS r
CROSS JOIN LATERAL (
    SELECT int8multirange(int8range(lower(p.worker_ids), upper(p.worker_ids) - p.spares)) - p.except_ids) AS o (ordinary)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE w.state IN ('leased', 'expired', 'revoked')) AS leased,
        count(*) FILTER (WHERE w.state IN ('free', 'released') AND o.ordinary @> w.worker_id::bigint) AS free,
        count(*) FILTER (WHERE o.ordinary @> w.worker_id::bigint) AS known
    FROM @extschema@.snowflake_workers AS w WHERE w.pool = p.name) AS c
CROSS JOIN LATERAL (
    SELECT (SELECT sum(upper(i.ids) - lower(i.ids)) FROM unnest(o.ordinary) AS i (ids))::bigint - c.known) AS n (never_leased)
CROSS JOIN LATERAL (
    SELECT until FROM (SELECT _snowflake.instant((r.state #>> '{loss,quiet_from}')::bigint)
        + p.lease + p.hold) AS u (until)) AS u
LEFT JOIN LATERAL (SELECT u.until WHERE u.until > clock_timestamp()) AS q (quiet_until) ON true
-- There is one row. Said so, the planner expects no more, and compiles nothing.
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
COMMENT ON COLUMN snowflake_pools.quiet_until IS
    'until when the registry leases no worker IDs, since it may have lost leases; NULL if it does';
COMMENT ON COLUMN snowflake_pools.quiet_because IS
    'why it may have lost leases: place (promoted, restored or copied), recovery (crash recovery, or a snapshot), serial or token (a server knows more than the registry), foreign (the registry is new, and a server has asked another one before), declared (snowflake_declare_registry())';
COMMENT ON COLUMN snowflake_pools.era IS 'one more with each time that leases may have been lost';
COMMENT ON COLUMN snowflake_pools.stopped_since IS
    'since when the registry serves nobody, because a server has asked another copy of it that may have taken its place; NULL if it serves';
COMMENT ON COLUMN snowflake_pools.stopped_by IS 'host name of that server';

-- It reads the view with the rights of its reader.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION @extschema@.snowflake_pool_calls() RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 10
BEGIN ATOMIC
    SELECT format('SELECT %s.snowflake_create_pool(%L, int8range(%s, %s), lease => %L, hold => %L, max_ahead => %L, except_ids => %L, spares => %s, namespace => %L);',
        (SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'snowflake_id'),
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

CREATE FUNCTION snowflake_workers_in(registry text) RETURNS SETOF snowflake_workers
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH a (stored) AS MATERIALIZED (SELECT _snowflake.read_etcd(registry))
    SELECT p.pool ->> 'name', w.worker_id,
        CASE WHEN (w.r ->> 'released')::boolean THEN 'released'
             WHEN NOT w.live THEN 'free'
             WHEN w.r ->> 'revoked' IS NOT NULL THEN 'revoked'
             WHEN (a.stored ->> 'now')::bigint >= (w.r ->> 'leased_until')::bigint THEN 'expired'
             ELSE 'leased' END,
        w.r #>> '{holder,host}', w.r #>> '{holder,address}', (w.r #>> '{holder,port}')::integer,
        w.r #>> '{holder,data_directory}', (w.r #>> '{holder,identity,system}')::numeric(20),
        _snowflake.instant((w.r ->> 'since')::bigint),
        _snowflake.instant((w.r ->> 'leased_until')::bigint),
        _snowflake.instant((w.r ->> 'bound')::bigint),
        (w.r ->> 'counter') || '-' || left(w.r ->> 'nonce', 8),
        c.by, c.since, c.latest, nullif(w.r #>> '{holder,identity,role}', '')
    FROM a
    CROSS JOIN LATERAL jsonb_array_elements(a.stored -> 'pools') AS p (pool)
    CROSS JOIN LATERAL (
        SELECT e.worker -> 'row', (e.worker ->> 'live')::boolean, (e.worker #>> '{row,worker}')::integer
        FROM jsonb_array_elements(a.stored -> 'workers') AS e (worker)
        WHERE e.worker ->> 'namespace' = p.pool ->> 'namespace') AS w (r, live, worker_id)
    LEFT JOIN LATERAL (
        SELECT format('%s%s, port %s, data directory "%s"', w.r #>> '{contender,by,host}',
                ' (' || nullif(w.r #>> '{contender,by,address}', '') || ')', w.r #>> '{contender,by,port}',
                w.r #>> '{contender,by,data_directory}'),
            _snowflake.instant((w.r #>> '{contender,since}')::bigint),
            _snowflake.instant((w.r #>> '{contender,latest}')::bigint)) AS c (by, since, latest)
        ON NOT (w.r ->> 'released')::boolean AND (w.r #>> '{contender,latest}')::bigint >= (a.stored ->> 'now')::bigint
            - 2 * ((p.pool ->> 'lease')::bigint + (p.pool ->> 'hold')::bigint)
    WHERE w.worker_id >= (p.pool #>> '{ids,start}')::bigint AND w.worker_id < (p.pool #>> '{ids,end}')::bigint
$$;
COMMENT ON FUNCTION snowflake_workers_in(text) IS
    'the worker IDs that the registry in etcd with this URL has leased; as view snowflake_workers';

CREATE FUNCTION snowflake_pools_in(registry text) RETURNS SETOF snowflake_pools
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH a (stored) AS MATERIALIZED (SELECT _snowflake.read_etcd(registry)),
    pools AS (
        SELECT p.pool, p.pool ->> 'namespace' AS namespace,
            int8range((p.pool #>> '{ids,start}')::bigint, (p.pool #>> '{ids,end}')::bigint) AS ids,
            (SELECT coalesce(range_agg(int8range((e.ids ->> 'start')::bigint, (e.ids ->> 'end')::bigint)), '{}')
                FROM jsonb_array_elements(p.pool -> 'except') AS e (ids)) AS except_ids,
            (p.pool ->> 'lease')::bigint * interval '1 ms' AS lease,
            (p.pool ->> 'hold')::bigint * interval '1 ms' AS hold,
            a.stored -> 'state' AS state, a.stored -> 'workers' AS workers, (a.stored ->> 'now')::bigint AS now
        FROM a CROSS JOIN LATERAL jsonb_array_elements(a.stored -> 'pools') AS p (pool))
    SELECT p.pool ->> 'name', p.namespace, p.ids, p.except_ids, (p.pool ->> 'spares')::integer, p.lease, p.hold,
        (p.pool ->> 'max_ahead')::bigint * interval '1 ms',
        _snowflake.instant((p.pool ->> 'made')::bigint),
        c.taken, o.size - c.taken_here, o.size - c.known,
        q.until, CASE WHEN q.until IS NOT NULL THEN p.state #>> '{loss,cause}' END,
        (p.state #>> '{era,counter}')::bigint,
        _snowflake.instant((p.state #>> '{stopped,since}')::bigint),
        p.state #>> '{stopped,by,host}'
    FROM pools AS p
    CROSS JOIN LATERAL (
        SELECT sum(upper(i.ids) - lower(i.ids))::bigint
        FROM unnest(int8multirange(p.ids) - p.except_ids) AS i (ids)) AS o (size)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE w.taken), count(*) FILTER (WHERE w.taken AND w.here), count(*) FILTER (WHERE w.here)
        FROM (
            SELECT (e.worker ->> 'live')::boolean AND NOT (e.worker #>> '{row,released}')::boolean,
                NOT p.except_ids @> (e.worker #>> '{row,worker}')::bigint
            FROM jsonb_array_elements(p.workers) AS e (worker)
            WHERE e.worker ->> 'namespace' = p.namespace AND p.ids @> (e.worker #>> '{row,worker}')::bigint) AS w (taken, here))
        AS c (taken, taken_here, known)
    LEFT JOIN LATERAL (
        SELECT _snowflake.instant((p.state #>> '{loss,quiet_from}')::bigint) + p.lease + p.hold
        WHERE _snowflake.instant((p.state #>> '{loss,quiet_from}')::bigint) + p.lease + p.hold
            > _snowflake.instant(p.now)) AS q (until) ON true
$$;
COMMENT ON FUNCTION snowflake_pools_in(text) IS
    'the pools of the registry in etcd with this URL; as view snowflake_pools';
