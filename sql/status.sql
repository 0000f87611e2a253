-- snowflake_status(): what matters on this server, for a person who has to act. Its rows come
-- from what the views show, what is wrong first. docs/operations.md says more about each of them.
--
-- The function reads what its caller may see, and says so where that is not all. It works on
-- a standby, and without preloading; then there is one row.

-- What the views do not show: the version of the library that runs, why the registry does not
-- give what this server asks for, by how much the wall clock has jumped too far, and why etcd soon
-- takes no writes.
CREATE FUNCTION _snowflake.loaded(
    OUT version text, OUT is_loaded boolean, OUT keeper_runs boolean,
    OUT failing_since timestamptz, OUT failure text, OUT is_unreachable boolean, OUT remedy text, OUT jumped interval,
    OUT grown text)
    RETURNS record LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'snowflake_internal_library';

-- The names in these are bound when they are made, under a path that holds no object of others.
SET LOCAL search_path = pg_catalog, pg_temp;

-- A duration in words.
CREATE FUNCTION _snowflake.lasting(duration interval) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT u.number || ' ' || u.unit || CASE WHEN u.number = 1 THEN '' ELSE 's' END
    FROM (SELECT greatest(0, floor(extract(epoch FROM duration)))::bigint AS seconds) AS d
    CROSS JOIN LATERAL (VALUES
        (172800, d.seconds / 86400, 'day'), (7200, d.seconds / 3600, 'hour'),
        (120, d.seconds / 60, 'minute'), (0, d.seconds, 'second')) AS u (from_seconds, number, unit)
    WHERE d.seconds >= u.from_seconds ORDER BY u.from_seconds DESC LIMIT 1;
END;

-- Since when something lasts.
CREATE FUNCTION _snowflake.since(at timestamptz) RETURNS text
    LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('for %s (since %s)', _snowflake.lasting(clock_timestamp() - at), date_trunc('second', at));
END;

-- The transactions that have held back a horizon for long.
CREATE FUNCTION _snowflake.long_holders()
    RETURNS TABLE (generator text, since timestamptz, pid integer, gid text, usename text, state text)
    LANGUAGE sql STABLE PARALLEL RESTRICTED ROWS 10
BEGIN ATOMIC
    SELECT h.generator::text, h.since, h.pid, h.gid, h.usename::text, h.state
    FROM @extschema@.snowflake_horizon_holders AS h WHERE h.held_for > interval '5 minutes';
END;

-- The pools of the registry in this database that are too small for their servers: 2 worker IDs
-- for each, and a quarter of the pool besides. VOLATILE, so that who may not read them can avoid it.
CREATE FUNCTION _snowflake.small_pools() RETURNS TABLE (pool text, leased bigint, size bigint, wanted bigint)
    LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 1
BEGIN ATOMIC
    SELECT p.pool, p.leased, p.leased + p.free, w.wanted
    FROM @extschema@.snowflake_pools AS p CROSS JOIN LATERAL _snowflake.wanted_size(p.leased) AS w (wanted)
    WHERE p.leased + p.free < w.wanted AND EXISTS (SELECT FROM _snowflake.leased AS l WHERE l.worker_ids IS NOT NULL);
END;

-- Whether this server issues no IDs because nobody wants that: the registry of others is in this
-- database, and neither setting is set. It has the rights of its owner.
CREATE VIEW _snowflake.role_of_server AS
SELECT w.worker_id IS NULL AND w.pool IS NULL AND coalesce(current_setting('snowflake_id.worker_id', true), '') = ''
    AND EXISTS (SELECT FROM _snowflake.pools) AS is_registry,
    (SELECT _snowflake.instant((r.state -> 'top')::bigint) FROM _snowflake.state AS r) AS latest
FROM _snowflake.own_worker() AS w;
COMMENT ON VIEW _snowflake.role_of_server IS
    'internal: whether this server only is the registry of others, in this database, and the latest time that the registry knows';

-- The registry in this database. VOLATILE, as small_pools(). The clock of the registry, if it was
-- far ahead of now: what is stored then counts as later.
CREATE FUNCTION _snowflake.own_registry(OUT state text, OUT detail text, OUT hint text) RETURNS record
    LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT CASE WHEN p.stopped_since IS NOT NULL THEN 'critical' WHEN p.grace_until IS NOT NULL OR r.is_ahead THEN 'warning' ELSE 'ok' END,
        'This server is a registry of worker IDs' || CASE
            WHEN p.stopped_since IS NOT NULL THEN format(', and serves nobody since %s: the server on host "%s" has seen another one that has taken over from it.',
                date_trunc('second', p.stopped_since), p.stopped_by)
            WHEN p.grace_until IS NOT NULL THEN format(', and gives no worker ID until %s, since it may have lost leases (%s).',
                date_trunc('second', p.grace_until), p.grace_because)
            ELSE format(': servers have %s, and can get %s more.', p.leased, p.free) END
            || CASE WHEN r.is_ahead THEN format(' Its clock was at %s once: a new pool begins there.', date_trunc('second', r.top)) ELSE '' END
            || format(' Its era is %s.', p.era),
        CASE WHEN p.stopped_since IS NOT NULL THEN 'Stop the copy of the registry that must not count, and call snowflake_declare_registry() at the other one.'
            WHEN p.grace_until IS NOT NULL THEN 'Wait: servers that have a worker ID keep it.'
            WHEN r.is_ahead THEN 'Set the clock of this server right. Make no pool before that instant.' END
    FROM (SELECT sum(s.leased) AS leased, sum(s.free) AS free, max(s.era) AS era, max(s.grace_until) AS grace_until, max(s.grace_because) AS grace_because,
            max(s.stopped_since) AS stopped_since, max(s.stopped_by) AS stopped_by FROM @extschema@.snowflake_pools AS s) AS p
    CROSS JOIN (SELECT r.latest, r.latest > clock_timestamp() + interval '10 s' FROM _snowflake.role_of_server AS r) AS r (top, is_ahead);
END;

SET LOCAL search_path = @extschema@, pg_temp;

-- It reads what the views show, and names none of them: the owner of the extension's schema may
-- rename it, make another one of its name, and put views of his own there.
CREATE FUNCTION _snowflake.snowflake_status(OUT state text, OUT item text, OUT detail text, OUT hint text, OUT see text) RETURNS SETOF record
    LANGUAGE plpgsql STABLE STRICT PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    is_standby constant boolean := pg_is_in_recovery();
    installed constant text := (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'snowflake_id');
    library record;
    worker record;
    -- What the settings ask for, if that gave the worker ID.
    asked text := current_setting('snowflake_id.worker_id', true);
    -- How far the bound lies ahead of the clock, and how long IDs are issued without the registry:
    -- a generator that is ahead of the clock reaches the bound sooner, at half the clock's speed.
    ahead interval;
    remaining interval;
    -- IDs are issued, though the lease may be failing. That is urgent in its last minute.
    has_time boolean;
    is_failing boolean;
    is_urgent boolean;
    is_unclaimed boolean;
    trouble text;
    is_registry boolean;
    may_read boolean := has_table_privilege('_snowflake.leased', 'SELECT');
    own_database constant oid := (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
    off constant text := '=(off?|f|fa|fal|fals|false|no?|0)$';
    new_keys constant boolean := '=' || coalesce(current_setting('snowflake_id.new_keys', true), 'off') !~* off;
BEGIN
    SELECT l.* INTO library FROM _snowflake.loaded() AS l;
    IF NOT library.is_loaded THEN
        RETURN QUERY VALUES ('critical', 'library',
            'The library was not loaded when the server started, so the server issues no IDs.',
            'Append snowflake_id to shared_preload_libraries, and restart the server. A server that only reads IDs needs nothing.',
            'docs/operations.md#not-preloaded');
        RETURN;
    END IF;
    SELECT w.* INTO worker FROM _snowflake.own_worker() AS w;
    SELECT NOT is_standby AND r.is_registry INTO is_registry FROM _snowflake.role_of_server AS r;
    ahead := worker.bound - clock_timestamp();
    SELECT least(ahead, min(2 * (ahead - g.ahead_by))) INTO remaining
    FROM _snowflake.generators() AS g WHERE NOT is_standby;
    has_time := worker.worker_id IS NOT NULL AND coalesce(remaining > '0', true);
    is_failing := NOT library.keeper_runs OR library.failing_since IS NOT NULL;
    is_urgent := NOT has_time OR is_failing AND coalesce(remaining < '1 minute', false);
    -- The number of the settings, which the registry has not granted.
    is_unclaimed := worker.worker_id IS NOT NULL AND worker.pool IS NOT NULL AND worker.bound IS NULL;
    trouble := format('The registry has %s %s', CASE WHEN library.is_unreachable THEN 'been unreachable' ELSE 'granted nothing' END,
        _snowflake.since(library.failing_since));
    IF worker.source IN ('setting', 'hostname', 'env') THEN
        asked := '';
    END IF;

    RETURN QUERY
    WITH generators AS MATERIALIZED (
        SELECT g.generator::text AS name, g.problem, g.refused_since, g.ahead_by, g.ahead_because, g.ends_at, g.on_rollback, g.mark_put_back_at,
            coalesce(g.ahead_by >= ahead, false) AS is_past
        FROM _snowflake.generators() AS g WHERE NOT is_standby),
    -- For whose tables new_keys is on: it is for this session, for the database, or for the owner.
    asking (owner) AS MATERIALIZED (
        SELECT o.oid FROM pg_roles AS o
        WHERE NOT is_standby AND (new_keys OR EXISTS (
            SELECT FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS u (given)
            WHERE (s.setdatabase = own_database AND s.setrole IN (0, o.oid) OR s.setdatabase = 0 AND s.setrole = o.oid)
              AND u.given ~* '^snowflake_id[.]new_keys=' AND u.given !~* off))),
    counted AS MATERIALIZED (
        SELECT k.*, format('%s.%I', k.table_name, k.name) AS key FROM _snowflake.counted_keys AS k WHERE NOT is_standby),
    -- What takes a sequence for itself is not waited for. The newest 1000: each look takes a lock.
    above AS (SELECT k.* FROM (
            SELECT c.* FROM counted AS c
            WHERE c.type = 'bigint'::regtype AND has_sequence_privilege(c.sequence, 'SELECT, USAGE') AND c.sequence <> ALL (ARRAY(
                SELECT l.relation FROM pg_locks AS l WHERE l.relation IS NOT NULL AND l.database = own_database
                    AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')))
            ORDER BY c.sequence DESC LIMIT 1000) AS k
        WHERE pg_sequence_last_value(k.sequence) > 1::bigint << 40),
    narrow AS (SELECT format('%s.%I', _snowflake.name(f.conrelid), a.attname) AS key,
            format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint', _snowflake.name(f.conrelid), a.attname) AS cure
        FROM pg_constraint AS f
        CROSS JOIN unnest(f.conkey, f.confkey) AS u (here, there)
        JOIN pg_class AS c ON c.oid = f.conrelid
        JOIN pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = u.here AND a.atttypid IN ('integer'::regtype, 'smallint'::regtype)
        JOIN pg_attribute AS r ON r.attrelid = f.confrelid AND r.attnum = u.there AND r.atttypid = 'bigint'::regtype
        WHERE f.contype = 'f' AND f.conparentid = 0 AND c.relowner IN (SELECT o.owner FROM asking AS o)
          AND (EXISTS (SELECT FROM counted AS k WHERE k.relation = r.attrelid AND k.name = r.attname)
            OR EXISTS (SELECT FROM _snowflake.default_generators(r.attrelid) AS d WHERE d.number = r.attnum))),
    -- A generator of the same name and owner may have the label.
    unlabelled AS (SELECT format('%s.%I', _snowflake.name(d.relation), a.attname) AS key,
            format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', _snowflake.name(s.sequence), coalesce((
                SELECT min(l.label) FROM pg_seclabel AS l JOIN pg_class AS q ON q.oid = l.objoid
                WHERE l.provider = 'snowflake_id' AND l.classoid = 'pg_class'::regclass AND q.relname = c.relname AND q.relowner = c.relowner
                HAVING count(DISTINCT l.label) = 1), 'preset=default')) AS cure
        FROM _snowflake.defaults AS d
        JOIN _snowflake.defaults AS s ON s.relation = d.relation AND s.number = d.number AND s.sequence <> _snowflake.default_generator()
        JOIN pg_class AS c ON c.oid = s.sequence
        JOIN pg_attribute AS a ON a.attrelid = d.relation AND a.attnum = d.number
        WHERE d.function = _snowflake.issuer(false) AND NOT is_standby AND _snowflake.label(s.sequence) IS NULL),
    columns (place, state, item, detail, key, cure) AS (
        SELECT 17, 'warning', 'keys', 'Keys get numbers from sequences, as they do on other servers', k.key,
            CASE WHEN k.type = 'bigint'::regtype THEN format('SELECT * FROM snowflake_set_defaults(%L)', k.schema)
                ELSE 'Declare integer keys as bigint, or call snowflake_convert()' END
        FROM counted AS k WHERE k.owner IN (SELECT o.owner FROM asking AS o)
        UNION ALL
        SELECT 18, 'warning', 'references', 'Columns cannot hold IDs of the keys to which they refer', n.key, n.cure FROM narrow AS n
        UNION ALL
        SELECT 19, 'warning', 'sequences', 'Sequences of keys continue from an ID, in numbers that other servers issue', a.key,
            format('SELECT snowflake_set_default(%L, %L)', a.table_name, a.name) FROM above AS a
        UNION ALL
        SELECT 20, 'critical', 'defaults', 'Defaults name sequences that are no generators, so INSERTs fail', u.key, u.cure FROM unlabelled AS u),
    found (place, state, item, detail, hint) AS (
        SELECT 1, CASE WHEN library.version = installed THEN 'ok' ELSE 'warning' END, 'library',
            CASE WHEN library.version = installed THEN format('Version %s is loaded.', installed)
                ELSE format('Version %s is loaded, and this database has version %s of the extension.', library.version, installed) END,
            CASE WHEN library.version = installed THEN NULL
                WHEN string_to_array(library.version, '.')::int[] > string_to_array(installed, '.')::int[]
                THEN 'Run ALTER EXTENSION snowflake_id UPDATE in this database.'
                ELSE 'Restart the server, so that it loads the installed library.' END
        UNION ALL
        SELECT 2, CASE WHEN s.future IS NULL THEN 'warning' ELSE 'ok' END, 'standby',
            'The server is in recovery, and issues no IDs. '
                || coalesce('Once promoted, it ' || s.future, 'If it were promoted, it would have no worker ID.'),
            CASE WHEN s.future IS NULL THEN 'Set snowflake_id.worker_id or snowflake_id.registry before a promotion.' END
        FROM (SELECT CASE
            WHEN worker.pool IS NOT NULL THEN format('asks the registry for a worker ID of pool "%s".', worker.pool)
            WHEN worker.worker_id IS NOT NULL THEN format('has worker ID %s.', worker.worker_id) END) AS s (future)
        WHERE is_standby
        UNION ALL
        SELECT 2, CASE WHEN worker.worker_id IS NULL THEN 'critical' WHEN asked <> '' OR is_unclaimed THEN 'warning' ELSE 'ok' END, 'worker ID',
            CASE WHEN is_unclaimed THEN format('%s, set on this server, and not granted by the registry from pool "%s". '
                    'From its next restart on, the server issues no IDs before it is.', worker.worker_id, worker.pool)
                WHEN worker.worker_id IS NOT NULL THEN format('%s, %s.', worker.worker_id, CASE
                    WHEN worker.source = 'registry' THEN format('leased from pool "%s" of the registry', worker.pool)
                    WHEN worker.pool IS NOT NULL THEN format('set on this server, and claimed in pool "%s" of the registry', worker.pool)
                    ELSE 'set on this server' END)
                WHEN worker.pool IS NOT NULL THEN format(
                    'This server issues no IDs: the registry has given it no worker ID of pool "%s".', worker.pool)
                ELSE 'This server issues no IDs: it has no worker ID.' END
                || CASE WHEN asked <> '' THEN format(' Setting snowflake_id.worker_id is "%s", which gives no number.', asked) ELSE '' END,
            CASE WHEN asked <> '' THEN 'The log of the server''s start says why. Correct snowflake_id.worker_id, and restart the server.'
                WHEN worker.worker_id IS NOT NULL AND NOT is_unclaimed THEN NULL
                WHEN worker.pool IS NOT NULL THEN 'Do what the row "registry" says.'
                ELSE 'Set snowflake_id.worker_id to a number that no other server has, and restart the server. '
                    'Or set snowflake_id.registry, and reload; if it is set, the server log says why it was refused.' END
        WHERE NOT is_standby AND NOT is_registry
        UNION ALL
        SELECT 15, r.state, 'registry', r.detail, r.hint FROM _snowflake.own_registry() AS r WHERE is_registry AND may_read
        UNION ALL
        SELECT 15, 'ok', 'registry', 'This server is a registry of worker IDs, whose state is shown to members of pg_monitor.', NULL
        WHERE is_registry AND NOT may_read
        UNION ALL
        SELECT 16, 'warning', 'clocks', format('The clock of this server is %s %s that of the registry.',
                _snowflake.lasting(greatest(worker.clock_ahead_by, -worker.clock_ahead_by)), CASE WHEN worker.clock_ahead_by > '0' THEN 'ahead of' ELSE 'behind' END),
            'Set the wrong clock right.'
        WHERE NOT is_standby AND (worker.clock_ahead_by > '10 s' OR worker.clock_ahead_by < '-10 s')
        UNION ALL
        SELECT 3, CASE WHEN is_urgent THEN 'critical' WHEN is_failing THEN 'warning' ELSE 'ok' END, 'lease',
            CASE WHEN has_time AND remaining < '1 s' THEN
                    'If the registry does not answer, no more IDs are issued. The lease is new: '
                    'this time grows to that of the lease within as long.'
                WHEN has_time THEN format('%s until %s, which is in %s.', CASE WHEN library.failing_since IS NULL
                        THEN 'If the registry does not answer, IDs are issued' ELSE trouble || '. IDs continue' END,
                    date_trunc('second', clock_timestamp() + remaining), _snowflake.lasting(remaining))
                WHEN ahead > '0' THEN format('No IDs are issued: the lease covers IDs of times before %s, '
                    'and the next ones are ahead of the clock.', date_trunc('second', worker.bound))
                ELSE format('The lease could not be renewed, and no IDs are issued %s.', _snowflake.since(worker.bound)) END,
            CASE WHEN is_urgent OR is_failing THEN 'Do what the row "registry" says.' END
        WHERE worker.bound IS NOT NULL AND NOT is_standby
        UNION ALL
        SELECT 4, CASE WHEN r.is_fine THEN 'ok' WHEN is_urgent THEN 'critical' ELSE 'warning' END, 'registry',
            CASE WHEN NOT library.keeper_runs THEN 'The keeper does not run, the background worker that asks the registry.'
                WHEN library.failing_since IS NOT NULL THEN trouble || ': ' || library.failure
                WHEN worker.last_contact IS NULL THEN 'The registry has not answered yet.'
                ELSE format('The registry answered %s ago.', _snowflake.lasting(clock_timestamp() - worker.last_contact)) END,
            CASE WHEN NOT library.keeper_runs
                THEN 'The server log says why. If no background worker was left, raise max_worker_processes, and restart the server.'
                WHEN NOT r.is_fine THEN coalesce(nullif(library.remedy, '') || ' ', '') || 'IDs resume by themselves.' END
        FROM (SELECT library.keeper_runs AND library.failing_since IS NULL AND worker.last_contact IS NOT NULL) AS r (is_fine)
        WHERE worker.pool IS NOT NULL AND NOT is_standby
        UNION ALL
        SELECT 5, CASE WHEN library.jumped IS NULL THEN 'ok' ELSE 'critical' END, 'clock',
            CASE WHEN library.jumped IS NOT NULL THEN format(
                    'The wall clock has jumped forward by %s. Generators issue no IDs once the time that they have reserved is used up.',
                    _snowflake.lasting(library.jumped))
                WHEN s.largest IS NULL THEN 'The wall clock runs without a jump.'
                ELSE format('The wall clock was set back by up to %s since %s.',
                    CASE WHEN s.largest < '2 s' THEN floor(date_part('epoch', s.largest) * 1000) || ' ms'
                        ELSE _snowflake.lasting(s.largest) END,
                    date_trunc('second', s.reset)) END,
            CASE WHEN library.jumped IS NOT NULL THEN 'Set the clock right; IDs then resume by themselves. '
                'If it is right now, a superuser can call snowflake_accept_clock() in this database.' END
        FROM (SELECT max(p.largest_rollback), min(p.stats_reset) FROM _snowflake.statistics() AS p) AS s (largest, reset)
        UNION ALL
        SELECT 6, 'critical', CASE count(*) WHEN 1 THEN 'generator ' || min(g.name)
            ELSE format('%s generators, such as %s', count(*), min(g.name)) END, g.problem, 'Do what the end of the detail says.'
        FROM generators AS g WHERE g.problem IS NOT NULL AND NOT is_registry GROUP BY g.problem
        UNION ALL
        SELECT 7, 'critical', 'generator ' || g.name,
            format('It issues no IDs because of the clock, or soon will not, %s.', _snowflake.since(g.refused_since)),
            format('Call snowflake_nextval(%L): its error says why, and what to do. '
                'If the clock is wrong, set it right; IDs then resume by themselves.', g.name)
        FROM generators AS g WHERE g.refused_since IS NOT NULL AND g.problem IS NULL
        UNION ALL
        SELECT 8, 'warning', 'generator ' || g.name, format('Its IDs are %s ahead of the clock, since %s. They are unique and in order, '
            'and half a second of the lead goes each second.', _snowflake.lasting(g.ahead_by), g.ahead_because), NULL
        FROM generators AS g
        WHERE g.ahead_by > '1 minute' AND g.refused_since IS NULL AND g.problem IS NULL AND NOT g.is_past
        UNION ALL
        SELECT 9, 'warning', 'generator ' || g.name,
            format('The time of its layout ends on %s, in %s.', g.ends_at::date, _snowflake.lasting(g.ends_at - clock_timestamp())),
            'Give the time more bits, if the fields have fewer than 63. Otherwise make a generator with a later epoch for new rows, '
                'and a column that tells which generator made an ID.'
        FROM generators AS g WHERE g.ends_at < clock_timestamp() + interval '1 year' AND g.problem IS NULL
        UNION ALL
        SELECT 14, 'warning', 'generator ' || g.name,
            format('Somebody sets or restarts its sequence, last %s ago. The generator wrote its mark back, and IDs are unique.',
                _snowflake.lasting(clock_timestamp() - g.mark_put_back_at)),
            'The value of the sequence is no counter. Exclude the sequence from what replicates, copies or resets sequences.'
        FROM generators AS g WHERE g.mark_put_back_at > clock_timestamp() - interval '1 day'
        UNION ALL
        SELECT 10, 'ok', 'generators', format('%s without trouble', c.seen)
            || coalesce(', up to ' || _snowflake.lasting(c.lead) || ' ahead of the clock', '') || '.'
            || coalesce(' ' || nullif(c.hidden, 0) || ' more: what they do is shown to roles that may use them.', ''), NULL
        FROM (SELECT count(g.ahead_by), count(*) - count(g.ahead_by), max(g.ahead_by) FILTER (WHERE g.ahead_by > '5 s')
            FROM generators AS g
            WHERE has_time AND g.problem IS NULL AND g.refused_since IS NULL AND coalesce(g.ahead_by, '0') <= '1 minute'
                AND NOT g.is_past AND g.ends_at >= clock_timestamp() + interval '1 year') AS c (seen, hidden, lead)
        WHERE c.seen + c.hidden > 0
        UNION ALL
        SELECT 11, 'warning', 'horizon', format('A transaction holds back a horizon, that of %s, %s: %s of role %s%s.',
                h.generator, _snowflake.since(h.since), coalesce('process ' || h.pid, 'prepared transaction ' || h.gid),
                h.usename, coalesce(', ' || h.state, '')),
            CASE WHEN h.pid IS NULL THEN format('End it: COMMIT PREPARED %L, or ROLLBACK PREPARED %L.', h.gid, h.gid)
                ELSE format('End its transaction, if need be by SELECT pg_terminate_backend(%s).', h.pid) END
        FROM _snowflake.long_holders() AS h
        UNION ALL
        SELECT 12, 'warning', 'pool', format('Pool "%s" of the registry in this database has %s worker IDs, %s of which servers have: '
                'after crashes, a server may get one that leads its clock, or none.', p.pool, p.size, p.leased),
            format('Use a larger pool: of %s worker IDs or more for so many servers.', p.wanted)
        FROM _snowflake.small_pools() AS p WHERE may_read
        UNION ALL
        SELECT 13, 'warning', 'etcd', library.grown, 'Compact and defragment etcd, and then disarm its alarm. '
            'Start its members with --auto-compaction-retention=1h.'
        WHERE library.grown IS NOT NULL AND NOT is_standby
        UNION ALL
        SELECT c.place, c.state, c.item, format('%s, %s in all: %s.', c.detail, count(*), array_to_string((array_agg(c.key ORDER BY c.key))[:5], ', ')
                || CASE WHEN count(*) > 5 THEN ', ...' ELSE '' END),
            array_to_string((array_agg(DISTINCT c.cure ORDER BY c.cure DESC))[:5], '; ')
        FROM columns AS c GROUP BY c.place, c.state, c.item, c.detail)
    SELECT f.state, f.item, f.detail, f.hint, CASE WHEN f.state <> 'ok' THEN 'docs/operations.md#' || CASE WHEN is_standby AND f.place = 2
        THEN 'standby' ELSE (ARRAY['version', 'no-worker-id', 'lease', CASE WHEN library.keeper_runs THEN 'registry' ELSE 'keeper' END, 'refused', 'problem', 'refused', 'ahead', 'layout-ends',
            NULL, 'horizon', 'few-worker-ids', 'etcd-grown', 'setval', 'own-registry', 'clocks', 'new-keys', 'new-keys', 'continued', 'no-label'])[f.place] END END
    FROM found AS f
    ORDER BY array_position(ARRAY['critical', 'warning', 'ok'], f.state), f.place, f.item;
END
$$;

CREATE FUNCTION snowflake_status(OUT state text, OUT item text, OUT detail text, OUT hint text, OUT see text) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL RESTRICTED ROWS 10
BEGIN ATOMIC
    SELECT _snowflake.hold();
    SELECT s.* FROM _snowflake.snowflake_status() AS s;
END;
COMMENT ON FUNCTION snowflake_status() IS
    'what matters on this server, one row each, what is wrong first: whether IDs are issued, how long still, and what to do';
