-- Snowflake IDs in plain SQL, for servers that load no library. docs/managed.md says what this
-- promises, and what it does not. Install it as the owner of the database:
--
--     psql -1 -v ON_ERROR_STOP=1 -f snowflake_sql.sql
--
-- A generator is a sequence whose values ARE the IDs. Its INCREMENT is 1024, so that the worker ID
-- never changes:
--
--     time in ms since 2025 (41 bits) | sequence number (12) | worker ID (10)
--
-- Uniqueness and order rest on these rules:
-- 1. Only nextval(), and setval() upwards, change the position of a generator. Only move() calls
--    setval() on a generator in use, under a lock that keeps nextval() out. A clock decides how far
--    the position moves up, and never whether it goes down.
-- 2. setval(.., true) always: the position is the last ID that counts as issued.
-- 3. CACHE is 1 and CYCLE is off. Otherwise move() refuses, and the view says so.
--
-- No function is SECURITY DEFINER: each does what its caller may do. Names in bodies are bound when
-- the file is installed (RETURN, BEGIN ATOMIC), or are looked up in pg_catalog first; what is not
-- PostgreSQL's is named with its schema. Positions are read and set by OID. Statements that alter a
-- sequence have to name it, so is_locked() checks by OID that they have met the right one.

SET LOCAL search_path = pg_catalog, pg_temp;
DO $$
BEGIN
    IF current_setting('search_path') <> 'pg_catalog, pg_temp' THEN
        RAISE EXCEPTION 'this file must run in one transaction' USING ERRCODE = '25P01', HINT = 'Run: psql -1 -v ON_ERROR_STOP=1 -f snowflake_sql.sql';
    END IF;
    CREATE SCHEMA snowflake_sql;
END $$;
GRANT USAGE ON SCHEMA snowflake_sql TO PUBLIC;
COMMENT ON SCHEMA snowflake_sql IS 'snowflake IDs in plain SQL';

CREATE FUNCTION snowflake_sql.refuse(sqlstate text, message text, hint text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = sqlstate, MESSAGE = message, HINT = hint;
END $$;
COMMENT ON FUNCTION snowflake_sql.refuse(text, text, text) IS 'internal: raises an error';

-- Part 1: IDs and instants. STRICT would keep the planner from putting these functions in line.

CREATE FUNCTION snowflake_sql.tick(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
    RETURN CASE WHEN at >= timestamptz '2025-01-01Z' AND at < timestamptz '2094-09-07 15:47:35.552Z'
            THEN floor(extract(epoch FROM at AT TIME ZONE 'UTC') * 1000)::bigint - 1735689600000
        WHEN at IS NOT NULL THEN snowflake_sql.refuse('22008', format('instant %s is out of range', at),
            format('The layout holds %s to %s.', timestamptz '2025-01-01Z', timestamptz '2094-09-07 15:47:35.551Z')) END;
COMMENT ON FUNCTION snowflake_sql.tick(timestamptz) IS 'internal: the milliseconds from the epoch to an instant';

CREATE FUNCTION snowflake_sql.checked(id bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
    RETURN CASE WHEN id < 0 THEN snowflake_sql.refuse('22003', id::text || ' is not an ID of this layout',
        'Its IDs are 0 to 9223372036854775807.') ELSE id END;
COMMENT ON FUNCTION snowflake_sql.checked(bigint) IS 'internal: the ID, or an error';

CREATE FUNCTION snowflake_sql.snowflake_timestamp(id bigint) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
    RETURN (timestamp '2025-01-01' + (snowflake_sql.checked(id) >> 22) * interval '1 ms') AT TIME ZONE 'UTC';
COMMENT ON FUNCTION snowflake_sql.snowflake_timestamp(bigint) IS 'when an ID was made, to the millisecond';

CREATE FUNCTION snowflake_sql.snowflake_min_id(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
    RETURN CASE at WHEN '-infinity' THEN 0 WHEN 'infinity' THEN 9223372036854775807 ELSE snowflake_sql.tick(at) << 22 END;
COMMENT ON FUNCTION snowflake_sql.snowflake_min_id(timestamptz) IS
    'least ID of the millisecond that holds an instant: id >= snowflake_min_id(a) AND id < snowflake_min_id(b)';

CREATE FUNCTION snowflake_sql.snowflake_max_id(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE
    RETURN CASE at WHEN '-infinity' THEN 0 WHEN 'infinity' THEN 9223372036854775807 ELSE snowflake_sql.tick(at) << 22 | 4194303 END;
COMMENT ON FUNCTION snowflake_sql.snowflake_max_id(timestamptz) IS 'greatest ID of the millisecond that holds an instant';

-- Part 2: generators. The comment makes a sequence a generator: only the owner can set it, and dumps
-- have it. It also says which database gave the generator its worker ID.

CREATE VIEW snowflake_sql.marked AS
SELECT c.oid::regclass AS generator, c.relowner AS owner, s.seqmin AS worker_id, d.description,
    format('%I.%I', n.nspname, c.relname) AS name,
    -- OWNED BY is refused for the sequence of an identity column.
    EXISTS (SELECT FROM pg_depend AS p
        WHERE p.classid = 'pg_class'::regclass AND p.objid = c.oid AND p.deptype = 'i') AS is_identity,
    CASE WHEN s.seqtypid <> 'bigint'::regtype THEN 'it is not of type bigint'
        WHEN s.seqincrement <> 1024 THEN format('its INCREMENT is %s, not 1024', s.seqincrement)
        WHEN s.seqcache <> 1 THEN format('its CACHE is %s, not 1', s.seqcache)
        WHEN s.seqcycle THEN 'it has CYCLE'
        WHEN s.seqmin NOT BETWEEN 0 AND 1023 THEN format('its MINVALUE is %s, which is no worker ID', s.seqmin)
        WHEN c.relpersistence <> 'p' THEN 'it is temporary or unlogged' END AS fault
FROM pg_sequence AS s
JOIN pg_class AS c ON c.oid = s.seqrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_description AS d ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
WHERE starts_with(d.description, 'snowflake generator of ');
GRANT SELECT ON snowflake_sql.marked TO PUBLIC;
COMMENT ON VIEW snowflake_sql.marked IS 'internal: the sequences that are generators, and what is wrong with their parameters';

CREATE FUNCTION snowflake_sql.need(of_generator regclass) RETURNS snowflake_sql.marked
    LANGUAGE plpgsql STABLE CALLED ON NULL INPUT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    it snowflake_sql.marked;
BEGIN
    SELECT m.* INTO it FROM snowflake_sql.marked AS m WHERE m.generator = of_generator;
    IF NOT FOUND THEN
        PERFORM snowflake_sql.refuse('42809', format('%s is not a generator', coalesce(of_generator::text, 'null')),
            'View snowflake_generators lists the generators of this database; snowflake_create_generator() makes one.');
    ELSIF it.fault IS NOT NULL THEN
        PERFORM snowflake_sql.refuse('55000', format('generator %s has been altered: %s', it.name, it.fault),
            format('Repair it: SELECT snowflake_sql.snowflake_set_worker(%L, WORKER_ID)', it.name));
    END IF;
    RETURN it;
END $$;
COMMENT ON FUNCTION snowflake_sql.need(regclass) IS 'internal: the generator, or an error';

CREATE FUNCTION snowflake_sql.checked(id bigint, generator regclass) RETURNS bigint
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_description AS d WHERE d.objoid = generator AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
            AND starts_with(d.description, 'snowflake generator of ')) THEN
        PERFORM snowflake_sql.need(generator);
    END IF;
    RETURN CASE WHEN id < 0 THEN snowflake_sql.checked(id) ELSE id END;
END $$;
COMMENT ON FUNCTION snowflake_sql.checked(bigint, regclass) IS 'internal: the ID of a generator, or an error';

CREATE FUNCTION snowflake_sql.snowflake_timestamp(id bigint, generator regclass) RETURNS timestamptz
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE
    RETURN (timestamp '2025-01-01' + (snowflake_sql.checked(id, generator) >> 22) * interval '1 ms') AT TIME ZONE 'UTC';
COMMENT ON FUNCTION snowflake_sql.snowflake_timestamp(bigint, regclass) IS 'when an ID of a generator was made';
CREATE FUNCTION snowflake_sql.snowflake_min_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE RETURN snowflake_sql.checked(snowflake_sql.snowflake_min_id(at), generator);
COMMENT ON FUNCTION snowflake_sql.snowflake_min_id(timestamptz, regclass) IS 'as snowflake_min_id(), for IDs of a generator';
CREATE FUNCTION snowflake_sql.snowflake_max_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE RETURN snowflake_sql.checked(snowflake_sql.snowflake_max_id(at), generator);
COMMENT ON FUNCTION snowflake_sql.snowflake_max_id(timestamptz, regclass) IS 'as snowflake_max_id(), for IDs of a generator';

-- There is no snowflake_decode(id): in the extension, that is for the default layout, which has the
-- worker ID elsewhere. A query that moved there would change its result.
CREATE FUNCTION snowflake_sql.snowflake_decode(id bigint, generator regclass,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint, OUT clock integer, OUT fields jsonb)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT (timestamp '2025-01-01' + (i.id >> 22) * interval '1 ms') AT TIME ZONE 'UTC', i.id & 1023, i.id >> 10 & 4095, NULL::integer,
        jsonb_build_object('time', i.id >> 22, 'sequence', i.id >> 10 & 4095, 'worker', i.id & 1023)
    FROM (SELECT snowflake_sql.checked(snowflake_decode.id, generator) OFFSET 0) AS i (id);
END;
COMMENT ON FUNCTION snowflake_sql.snowflake_decode(bigint, regclass) IS 'the parts of an ID of a generator, in one row';

CREATE FUNCTION snowflake_sql.snowflake_explain(id bigint, generator regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT format(E'ID %s of generator %s\n\n  0  | %s | %s | %s\n'
        '  63 | 62                                     22 | 21        10 | 9        0\n'
        '     | time                                      | sequence     | worker\n\n'
        '  field     bits   %s\n  unused    63     %s\n  time      62-22  %s  %s UTC\n  sequence  21-10  %s\n  worker    9-0    %s\n\n'
        '  created    %s UTC, %s ago\n  epoch      2025-01-01 00:00:00.000 UTC, ticks of 1 ms\n'
        '  layout     until 2094-09-07 15:47:35.551 UTC',
        d.id, generator, (d.fields -> 'time')::bigint::bit(41), d.sequence::bit(12), d.worker_id::bit(10),
        lpad('value', d.wide), lpad('0', d.wide), lpad(d.fields ->> 'time', d.wide), d.created,
        lpad(d.sequence::text, d.wide), lpad(d.worker_id::text, d.wide), d.created, date_trunc('second', now() - d.created_at))
    FROM (SELECT p.*, snowflake_explain.id, greatest(length(p.fields ->> 'time'), 5) AS wide,
            to_char(p.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') AS created
        FROM snowflake_sql.snowflake_decode(snowflake_explain.id, generator) AS p) AS d;
END;
COMMENT ON FUNCTION snowflake_sql.snowflake_explain(bigint, regclass) IS 'an ID of a generator drawn for a person';

-- What the server does not tell, as some services do not, is left out.
CREATE FUNCTION snowflake_sql.identity(OUT place text, OUT timeline text)
    LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    system text := 'unknown';
BEGIN
    BEGIN
        SELECT s.system_identifier INTO system FROM pg_control_system() AS s;
    EXCEPTION WHEN others THEN NULL; END;
    BEGIN
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN others THEN timeline := 'unknown'; END;
    SELECT format('snowflake generator of database %s %I of system %s', d.oid, d.datname, system) INTO place
    FROM pg_database AS d WHERE d.datname = current_database();
END $$;
COMMENT ON FUNCTION snowflake_sql.identity() IS 'internal: what tells this database from its copies, and changes with a promotion';

CREATE FUNCTION snowflake_sql.mark(generator regclass) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('COMMENT ON SEQUENCE %s IS %L', generator, (SELECT i.place || ', timeline ' || i.timeline FROM snowflake_sql.identity() AS i));
END $$;
COMMENT ON FUNCTION snowflake_sql.mark(regclass) IS 'internal: makes a sequence a generator of this database';

CREATE FUNCTION snowflake_sql.is_locked(generator regclass) RETURNS boolean
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
    RETURN EXISTS (SELECT FROM pg_locks AS l
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.relation = generator AND l.granted
            AND l.mode IN ('ShareRowExclusiveLock', 'AccessExclusiveLock'));
COMMENT ON FUNCTION snowflake_sql.is_locked(regclass) IS 'internal: whether this session has a lock on the sequence that keeps nextval() out';

CREATE FUNCTION snowflake_sql.create_in(name text, here name, worker_id integer) RETURNS regclass
    LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    path text[];
    generator text;
BEGIN
    IF name IS NULL OR octet_length(name) > 300 THEN
        PERFORM snowflake_sql.refuse('42602', 'no name, or one of more than 300 bytes, is given for the generator', 'Give a name, or a schema and a name.');
    END IF;
    path := parse_ident(name);
    IF cardinality(path) = 1 THEN path := here::text || path; END IF;
    IF path[1] IS NULL THEN
        PERFORM snowflake_sql.refuse('3F000', 'no schema has been selected to create in', 'Give a schema and a name.');
    ELSIF cardinality(path) <> 2 OR path[1] LIKE 'pg\_temp%' THEN
        PERFORM snowflake_sql.refuse('42602', format('cannot make a generator with name %s', name),
            'Give a name, or a schema and a name. A generator cannot be temporary.');
    END IF;
    generator := format('%I.%I', path[1], path[2]);
    EXECUTE format('CREATE SEQUENCE %s', generator);
    PERFORM snowflake_sql.mark(generator::regclass), snowflake_sql.snowflake_set_worker(generator::regclass, worker_id);
    RETURN generator::regclass;
END $$;
COMMENT ON FUNCTION snowflake_sql.create_in(text, name, integer) IS 'internal: snowflake_create_generator(), with the schema of its caller';

CREATE FUNCTION snowflake_sql.snowflake_create_generator(name text, worker_id integer) RETURNS regclass
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
    RETURN snowflake_sql.create_in(name, current_schema(), worker_id);
COMMENT ON FUNCTION snowflake_sql.snowflake_create_generator(text, integer) IS
    'makes a generator: a sequence of this name whose values are IDs with this worker ID; returns the sequence';

-- Transactional: a rollback undoes all of it. Waits for open transactions that have used the sequence.
CREATE FUNCTION snowflake_sql.snowflake_set_worker(generator regclass, worker_id integer, adopt boolean DEFAULT false) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    it record;
    last bigint;
BEGIN
    IF worker_id IS NULL OR worker_id NOT BETWEEN 0 AND 1023 THEN
        PERFORM snowflake_sql.refuse('22023', format('worker ID %s is out of range', coalesce(worker_id::text, 'null')),
            'Give a number from 0 to 1023 that no other database has.');
    END IF;
    SELECT format('%I.%I', n.nspname, c.relname) AS name, d.refobjid::regclass AS relation, a.attname, a.atttypid,
        EXISTS (SELECT FROM snowflake_sql.marked AS m WHERE m.generator = c.oid) AS is_generator
    INTO it FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = d.classid AND d.deptype IN ('a', 'i')
    LEFT JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    WHERE c.oid = generator AND c.relkind = 'S' AND c.relpersistence = 'p';
    IF NOT FOUND THEN
        PERFORM snowflake_sql.refuse('42809', format('%s is not a sequence that can be a generator', coalesce(generator::text, 'null')),
            'Name a sequence that is neither temporary nor unlogged.');
    ELSIF NOT it.is_generator AND adopt IS NOT TRUE THEN
        PERFORM snowflake_sql.refuse('42809', format('%s is not a generator', it.name),
            'To make a generator of the sequence of a column, give adopt => true.');
    ELSIF it.atttypid <> 'bigint'::regtype THEN
        PERFORM snowflake_sql.refuse('42804', format('column "%s" of table %s is of type %s, not bigint', it.attname, it.relation, it.atttypid::regtype),
            'IDs have up to 63 bits. First change the type of the column.');
    END IF;
    EXECUTE format('ALTER SEQUENCE %s NO CYCLE', it.name); -- the lock, until the transaction ends
    last := coalesce(pg_sequence_last_value(generator), 0);
    IF last >= 9223372036854774784 THEN
        PERFORM snowflake_sql.refuse('2200H', format('no IDs are left above those of %s', it.name), 'Make another generator.');
    END IF;
    last := greatest((last >> 10) + 1 << 10, snowflake_sql.tick(clock_timestamp()) << 22) | worker_id;
    EXECUTE format('ALTER SEQUENCE %s AS bigint INCREMENT 1024 MINVALUE %s MAXVALUE %s START %s RESTART CACHE 1 NO CYCLE',
        it.name, worker_id, 9223372036854774784 + worker_id, last);
    IF NOT snowflake_sql.is_locked(generator) OR (SELECT s.seqstart FROM pg_sequence AS s WHERE s.seqrelid = generator) <> last THEN
        PERFORM snowflake_sql.refuse('55000', format('another sequence has taken the name of %s', it.name), 'Try again.');
    END IF;
    PERFORM setval(generator, last, true), snowflake_sql.mark(generator);
    IF it.relation IS NOT NULL AND NOT it.is_generator THEN
        PERFORM snowflake_sql.check_values(it.relation, it.attname, generator,
            'Make a generator by snowflake_create_generator(), advance it past that value, and call snowflake_set_default().');
    END IF;
    RETURN snowflake_sql.snowflake_timestamp(last);
END $$;
COMMENT ON FUNCTION snowflake_sql.snowflake_set_worker(regclass, integer, boolean) IS
    'gives a generator, or a sequence that becomes one, a worker ID, above all that it has issued; returns the instant from which IDs start';

-- The lock is that of an ALTER SEQUENCE that changes nothing, in a subtransaction that is rolled back.
-- setval() stays, since no rollback undoes it. The lock ends at once, and not with the caller's
-- transaction; owners stay; nothing is left in the catalogs.
CREATE FUNCTION snowflake_sql.move(generator regclass, goal bigint, wait_ms integer, is_clock boolean) RETURNS bigint
    LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    it snowflake_sql.marked := snowflake_sql.need(generator);
    worker bigint;
    last bigint;
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    BEGIN
        IF it.is_identity THEN
            EXECUTE format('ALTER SEQUENCE %s OWNER TO %I', it.name, pg_get_userbyid(it.owner));
        ELSE
            EXECUTE format('ALTER SEQUENCE %s OWNED BY NONE', it.name);
        END IF;
        IF NOT snowflake_sql.is_locked(generator) THEN
            PERFORM snowflake_sql.refuse('55000', format('another sequence has taken the name of generator %s', it.name), 'Try again.');
        END IF;
        SELECT s.seqmin INTO worker FROM pg_sequence AS s WHERE s.seqrelid = generator;
        last := nextval(generator); -- unlike the position, never null
        IF last & 1023 <> worker THEN
            PERFORM snowflake_sql.refuse('55000', format('generator %s is at an ID of worker ID %s, and its own is %s', it.name, last & 1023, worker),
                format('Somebody has called setval(). Repair it: SELECT snowflake_sql.snowflake_set_worker(%L, %s)', it.name, worker));
        ELSIF is_clock AND (goal >> 22) - (last >> 22) > 366::bigint * 86400000 THEN
            PERFORM snowflake_sql.refuse('22008', format('the clock is %s ahead of generator %s', snowflake_sql.snowflake_timestamp(goal)
                - snowflake_sql.snowflake_timestamp(last), it.name), format('A generator never goes back. If the clock is right, accept it: '
                'SELECT snowflake_sql.snowflake_advance(%L, now())', it.name));
        ELSIF (goal & -1024 | worker) > last THEN
            last := setval(generator, goal & -1024 | worker, true);
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'SF000';
    EXCEPTION
        WHEN SQLSTATE 'SF000' THEN RETURN last;
        WHEN lock_not_available OR deadlock_detected THEN RETURN NULL;
    END;
END $$;
COMMENT ON FUNCTION snowflake_sql.move(regclass, bigint, integer, boolean) IS
    'internal: moves a generator up, and returns its position; null if open transactions kept the lock; meanwhile all who call nextval() wait';

CREATE FUNCTION snowflake_sql.snowflake_advance(generator regclass, id bigint) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ahead interval := snowflake_sql.snowflake_timestamp(id) - clock_timestamp();
    last bigint;
BEGIN
    IF ahead > interval '12 hours' THEN
        PERFORM snowflake_sql.refuse('22008', format('cannot advance a generator to %s ahead of the clock', ahead),
            'At most 12 h ahead of the clock is allowed.');
    END IF;
    last := snowflake_sql.move(generator, id, 1000, false);
    IF last IS NULL THEN
        PERFORM snowflake_sql.refuse('55P03', format('could not lock generator %s, which open transactions have used', generator),
            'Columns held_by and held_by_prepared of view snowflake_generators show them.');
    END IF;
    RETURN snowflake_sql.snowflake_timestamp(last);
END $$;
COMMENT ON FUNCTION snowflake_sql.snowflake_advance(regclass, bigint) IS
    'makes all further IDs of a generator greater than an ID; returns the instant from which IDs start';

CREATE FUNCTION snowflake_sql.snowflake_advance(generator regclass, start timestamptz) RETURNS timestamptz
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE RETURN snowflake_sql.snowflake_advance(generator, snowflake_sql.tick(start) << 22);
COMMENT ON FUNCTION snowflake_sql.snowflake_advance(regclass, timestamptz) IS
    'makes all further IDs of a generator start at an instant or later; returns the instant from which IDs start';

CREATE FUNCTION snowflake_sql.snowflake_advance_all(ahead interval DEFAULT '0') RETURNS integer
    LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    it record;
    slow oid[] := '{}'; -- for each generator that is locked, the role
    failed integer := 0;
BEGIN
    IF ahead IS NULL OR ahead NOT BETWEEN '0' AND '12 hours' THEN
        PERFORM snowflake_sql.refuse('22023', format('ahead is out of range: %s', coalesce(ahead::text, 'null')), 'Give 0 to 12 hours.');
    ELSIF pg_is_in_recovery() THEN RETURN NULL; END IF;
    -- The caller's own come first, and a role that keeps its own locked is waited for once.
    FOR it IN SELECT m.*, i.place, pg_get_userbyid(m.owner) = current_user AS is_mine FROM snowflake_sql.marked AS m, snowflake_sql.identity() AS i
        WHERE pg_has_role(m.owner, 'USAGE') ORDER BY is_mine DESC, m.name LOOP
        BEGIN
            IF snowflake_sql.move(it.generator, snowflake_sql.tick(clock_timestamp() + ahead) << 22,
                    CASE WHEN NOT it.is_mine AND it.owner = ANY (slow) THEN 1 WHEN ahead > '0' THEN 1000 ELSE 20 END, ahead = '0') IS NULL THEN
                slow := slow || it.owner;
            ELSIF ahead > '0' AND starts_with(it.description, it.place || ',') THEN
                PERFORM snowflake_sql.mark(it.generator); -- the gap is the answer to a promotion, and not to a copy
            END IF;
        EXCEPTION WHEN others THEN
            RAISE WARNING 'generator % was not moved: %', it.name, SQLERRM USING ERRCODE = SQLSTATE;
            failed := failed + 1;
        END;
    END LOOP;
    RETURN failed + cardinality(slow);
END $$;
COMMENT ON FUNCTION snowflake_sql.snowflake_advance_all(interval) IS
    'moves all generators of the caller up to the clock, or this far ahead of it; returns how many could not be moved; null on a standby';

-- Part 3: who has no scheduler. An ID is late from 1 to 2 s on. Of the sessions that find one, about
-- one tries to move the generator; the others wait a little, and who has failed waits for about as
-- many seconds as there are sessions. So all together fail once a second, for 10 ms each time.

CREATE FUNCTION snowflake_sql.fresh() RETURNS bigint
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL SAFE
    RETURN (date_part('epoch', clock_timestamp()) * 1000 - 1735689601000 - 1000 * random())::bigint << 22;
COMMENT ON FUNCTION snowflake_sql.fresh() IS 'internal: an ID below this is late';

CREATE FUNCTION snowflake_sql.next_of_late(generator regclass) RETURNS bigint
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    drawn bigint := currval(generator);
    now_ms bigint := date_part('epoch', clock_timestamp()) * 1000;
    setting text := 'snowflake_sql.again_' || generator::oid;
    again bigint := coalesce(nullif(current_setting(setting, true), '')::bigint, 0);
    users integer;
    wait_ms integer;
BEGIN
    IF now_ms < again AND again < now_ms + 3600000 OR NOT pg_has_role((snowflake_sql.need(generator)).owner, 'USAGE') THEN
        RETURN drawn;
    END IF;
    SELECT count(DISTINCT l.virtualtransaction) INTO users FROM pg_locks AS l WHERE l.locktype = 'relation' AND l.relation = generator;
    wait_ms := CASE WHEN again > 0 OR random() * users < 1 THEN 2000 ELSE 200 END;
    again := CASE WHEN wait_ms = 2000 THEN snowflake_sql.move(generator, snowflake_sql.tick(clock_timestamp()) << 22, 10, true) END;
    -- Who has moved it once goes on.
    PERFORM set_config(setting, CASE WHEN again > 0 THEN '1' ELSE (now_ms + (wait_ms * random() * users)::bigint)::text END, false);
    RETURN CASE WHEN again > 0 THEN nextval(generator) ELSE drawn END;
END $$;
COMMENT ON FUNCTION snowflake_sql.next_of_late(regclass) IS 'internal: moves a generator that is late, if the caller owns it, and returns the next ID; else the ID that was drawn';

CREATE FUNCTION snowflake_sql.snowflake_nextval(generator regclass) RETURNS bigint
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
    RETURN CASE WHEN nextval(generator) < snowflake_sql.fresh() THEN snowflake_sql.next_of_late(generator) ELSE currval(generator) END;
COMMENT ON FUNCTION snowflake_sql.snowflake_nextval(regclass) IS 'next ID of a generator; a session of its owner also moves the generator up to the clock, if that is late';

CREATE FUNCTION snowflake_sql.snowflake_currval(generator regclass) RETURNS bigint LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE RETURN currval(generator);
COMMENT ON FUNCTION snowflake_sql.snowflake_currval(regclass) IS 'last ID that this session got from a generator';

-- Part 4: what is wrong. The position is read by OID: behind a name there could be a view by now. That
-- takes the lock of nextval(), until the transaction ends.

CREATE FUNCTION snowflake_sql.generators(
    OUT generator regclass, OUT worker_id integer, OUT last_id_at timestamptz, OUT late interval, OUT ahead_by interval,
    OUT held_by integer[], OUT held_by_prepared text[], OUT held_since timestamptz,
    OUT ids_per_second bigint, OUT ends_at timestamptz, OUT problem text)
    RETURNS SETOF record LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE ROWS 10
    SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    it record;
    last bigint;
BEGIN
    ids_per_second := 4096000;
    ends_at := '2094-09-07 15:47:35.551Z';
    FOR it IN SELECT m.*, i.place, i.timeline FROM snowflake_sql.marked AS m, snowflake_sql.identity() AS i ORDER BY m.name LOOP
        generator := it.generator;
        worker_id := it.worker_id;
        last := NULL;
        problem := 'the sequence has been altered: ' || it.fault || '; snowflake_set_worker() repairs it';
        IF has_sequence_privilege(it.generator, 'USAGE, SELECT') AND problem IS NULL THEN
            BEGIN
                last := pg_sequence_last_value(it.generator);
                problem := CASE WHEN last IS NULL THEN 'the sequence was restarted, and can issue IDs again that it has issued, until the next move'
                    WHEN last & 1023 <> it.worker_id THEN
                        format('somebody has called setval(): new IDs have worker ID %s; snowflake_set_worker() repairs it', last & 1023) END;
            EXCEPTION WHEN lock_not_available THEN
                problem := 'another transaction has locked the generator';
            END;
        END IF;
        last_id_at := snowflake_sql.snowflake_timestamp(last);
        late := greatest(clock_timestamp() - last_id_at, CASE WHEN last IS NOT NULL THEN interval '0' END);
        ahead_by := greatest(last_id_at - clock_timestamp(), CASE WHEN last IS NOT NULL THEN interval '0' END);
        SELECT array_agg(l.pid ORDER BY l.pid) FILTER (WHERE l.pid IS NOT NULL),
            array_agg(p.gid ORDER BY p.gid) FILTER (WHERE p.gid IS NOT NULL), min(coalesce(a.xact_start, p.prepared))
        INTO held_by, held_by_prepared, held_since
        FROM (SELECT DISTINCT l.pid, l.virtualtransaction FROM pg_locks AS l
            JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
            WHERE l.locktype = 'relation' AND l.relation = it.generator AND l.granted
                AND (it.is_identity OR l.mode <> 'AccessShareLock') AND l.pid IS DISTINCT FROM pg_backend_pid()) AS l
        LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
        LEFT JOIN pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
        LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid;
        problem := coalesce(problem, CASE
            WHEN pg_is_in_recovery() THEN NULL
            WHEN NOT starts_with(it.description, it.place || ',') THEN
                'another database got this worker ID, of which this is a copy: snowflake_set_worker() gives the copy a worker ID of its own'
            WHEN it.description <> it.place || ', timeline ' || it.timeline THEN
                'the server was promoted or restored: after a failover call snowflake_advance_all(''1 minute''), in a copy snowflake_set_worker()'
            -- Since when is shown to few roles.
            WHEN late > '10 s' AND num_nulls(held_by, held_by_prepared) < 2 AND coalesce(held_since < clock_timestamp() - interval '5 s', true) THEN
                'new IDs are late: open transactions keep moves out, see held_by and held_by_prepared'
            WHEN late > '10 s' THEN 'new IDs are late: nothing calls snowflake_advance_all() each second'
            WHEN ahead_by > '1 minute' THEN 'new IDs are ahead of the clock, and stay at that until the clock has reached them'
            WHEN last_id_at > ends_at - interval '1 year' THEN 'the time of the layout ends' END);
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION snowflake_sql.generators() IS 'internal: the rows of view snowflake_generators';

CREATE VIEW snowflake_sql.snowflake_generators AS SELECT g.* FROM snowflake_sql.generators() AS g;
GRANT SELECT ON snowflake_sql.snowflake_generators TO PUBLIC;
COMMENT ON VIEW snowflake_sql.snowflake_generators IS
    'the generators of this database: how late they are, which sessions and prepared transactions keep moves out, and what is wrong';

-- Part 5: tables. Code of a table's owner, as in the condition of an index, can run as who reads the
-- table. So a superuser has to become the owner first.
CREATE FUNCTION snowflake_sql.key_column(relation regclass, column_name name, as_owner boolean) RETURNS name
    LANGUAGE plpgsql STABLE CALLED ON NULL INPUT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    class record;
    it record;
BEGIN
    SELECT c.relkind, c.relispartition, pg_get_userbyid(c.relowner) AS owner INTO class FROM pg_class AS c WHERE c.oid = relation;
    IF class.relkind IS NULL OR class.relkind NOT IN ('r', 'p') THEN
        PERFORM snowflake_sql.refuse('42809', format('%s is not a table', coalesce(relation::text, 'null')), 'Name a table, partitioned or not.');
    ELSIF class.owner <> current_user AND (as_owner OR current_setting('is_superuser')::boolean) THEN
        PERFORM snowflake_sql.refuse('42501', format('must be owner of table %s', relation), format('Run this as its owner: SET ROLE %I', class.owner));
    ELSIF as_owner AND class.relispartition THEN
        PERFORM snowflake_sql.refuse('42809', format('%s is a partition', relation), format('Name the partitioned table: %s', pg_partition_root(relation)));
    END IF;
    SELECT a.attname, a.atttypid, a.attgenerated INTO it FROM pg_attribute AS a
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND CASE WHEN column_name IS NOT NULL THEN a.attname = column_name
        ELSE a.attnum = (SELECT k.conkey[1] FROM pg_constraint AS k
            WHERE k.conrelid = relation AND k.contype = 'p' AND cardinality(k.conkey) = 1) END;
    IF NOT FOUND THEN
        PERFORM snowflake_sql.refuse('42703', CASE WHEN column_name IS NULL THEN format('table %s has no primary key of one column', relation)
            ELSE format('column "%s" of table %s does not exist', column_name, relation) END, 'Name the column that the IDs are for.');
    ELSIF it.atttypid <> 'bigint'::regtype OR it.attgenerated <> '' THEN
        PERFORM snowflake_sql.refuse('42804', format('column "%s" of table %s is not a plain bigint column', it.attname, relation),
            'IDs have up to 63 bits. First change the type of the column, and of each that refers to it.');
    END IF;
    RETURN it.attname;
END $$;
COMMENT ON FUNCTION snowflake_sql.key_column(regclass, name, boolean) IS 'internal: the column of a table that can hold IDs, or an error';

CREATE FUNCTION snowflake_sql.check_values(relation regclass, column_name name, generator regclass, hint text) RETURNS bigint
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    key name := snowflake_sql.key_column(relation, column_name, true);
    greatest_value bigint;
BEGIN
    EXECUTE format('SELECT max(%I) FROM %s', key, relation) INTO greatest_value;
    IF greatest_value - 1024 >= coalesce(pg_sequence_last_value(generator), 0) THEN
        PERFORM snowflake_sql.refuse('55000', format('column "%s" of table %s holds %s, which is not below the IDs to come', key, relation, greatest_value),
            format(hint, generator, greatest_value));
    END IF;
    RETURN greatest_value;
END $$;
COMMENT ON FUNCTION snowflake_sql.check_values(regclass, name, regclass, text) IS 'internal: the greatest value of a column, which is below the IDs to come';

CREATE FUNCTION snowflake_sql.snowflake_set_default(relation regclass, column_name name DEFAULT NULL, generator regclass DEFAULT NULL,
    drop_sequence boolean DEFAULT false, self_moving boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key name := snowflake_sql.key_column(relation, column_name, true);
    it snowflake_sql.marked := snowflake_sql.need(generator);
    before record; greatest_value bigint; new_default text := format('%s(%L::regclass)', CASE WHEN self_moving THEN 'snowflake_sql.snowflake_nextval' ELSE 'nextval' END, it.name);
BEGIN
    EXECUTE format('LOCK TABLE %s', relation);
    SELECT a.attidentity <> '' AS is_identity, pg_get_expr(d.adbin, d.adrelid) AS expression,
        (SELECT c.oid::regclass::text FROM pg_depend AS p JOIN pg_class AS c ON c.oid = p.objid AND c.relkind = 'S' AND c.oid <> generator
         WHERE p.classid = 'pg_class'::regclass AND p.refclassid = p.classid AND p.refobjid = relation
            AND p.refobjsubid = a.attnum AND p.deptype = 'a' LIMIT 1) AS sequence,
        (SELECT format('%s.%I', k.conrelid::regclass, f.attname) FROM pg_constraint AS k
         JOIN pg_attribute AS f ON f.attrelid = k.conrelid AND f.attnum = k.conkey[array_position(k.confkey, a.attnum)]
         WHERE k.contype = 'f' AND k.confrelid = relation AND f.atttypid <> 'bigint'::regtype LIMIT 1) AS narrow
    INTO before FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = relation AND a.attname = key;
    PERFORM snowflake_sql.refuse('42804', format('column %s refers to table %s, and cannot hold IDs', before.narrow, relation), 'First change its type to bigint.')
        WHERE before.narrow IS NOT NULL;
    greatest_value := snowflake_sql.check_values(relation, key, generator, 'Start above it: SELECT snowflake_sql.snowflake_advance(%L, %s)');
    IF before.is_identity THEN EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', relation, key); END IF;
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', relation, key, new_default);
    IF drop_sequence AND before.sequence IS NOT NULL THEN EXECUTE format('DROP SEQUENCE %s', before.sequence); END IF;
    RETURN format('%s.%I: ', relation, key) || CASE WHEN before.is_identity THEN 'identity replaced by default ' || new_default
            WHEN before.expression IS NULL THEN 'default set to ' || new_default
            ELSE format('default %s replaced by %s', before.expression, new_default) END
        || coalesce('; greatest value so far ' || greatest_value, '; no values so far')
        || coalesce('; sequence ' || before.sequence || CASE WHEN drop_sequence THEN ' dropped' ELSE ' kept' END, '')
        || coalesce((SELECT format('; roles that insert rows need: GRANT USAGE ON SEQUENCE %s TO %s', it.name, string_agg(DISTINCT r.name, ', '))
            FROM (SELECT coalesce(t.relacl, acldefault('r', t.relowner)) FROM pg_class AS t WHERE t.oid = relation UNION ALL
                SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = relation) AS l (acl), aclexplode(l.acl) AS e,
                coalesce(quote_ident((SELECT o.rolname FROM pg_roles AS o WHERE o.oid = e.grantee)), 'PUBLIC') AS r (name)
            WHERE e.privilege_type = 'INSERT' AND NOT has_sequence_privilege(e.grantee, generator, 'USAGE, UPDATE') HAVING count(*) > 0), '');
END $$;
COMMENT ON FUNCTION snowflake_sql.snowflake_set_default(regclass, name, regclass, boolean, boolean) IS
    'makes a generator the default of a bigint column, by default that of the primary key; self_moving: by snowflake_nextval(); returns what was done';

CREATE FUNCTION snowflake_sql.snowflake_check(relation regclass, column_name name DEFAULT NULL, sample double precision DEFAULT 100,
    generator regclass DEFAULT NULL, worker_ids int8multirange DEFAULT NULL)
    RETURNS TABLE (severity text, finding text, worker_id bigint, day date, ids bigint, least_id bigint, greatest_id bigint, detail text, hint text)
    LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    key name := snowflake_sql.key_column(relation, column_name, false);
BEGIN
    IF generator IS NOT NULL THEN PERFORM snowflake_sql.need(generator); END IF;
    IF sample IS NULL OR NOT (sample > 0 AND sample <= 100) THEN
        PERFORM snowflake_sql.refuse('22023', format('sample is out of range: %s', coalesce(sample::text, 'null')),
            'Give the percentage of the pages of the table to read: more than 0, and at most 100.');
    END IF;
    RETURN QUERY EXECUTE format($query$
WITH counted AS MATERIALIZED (
    SELECT k.kind, CASE WHEN k.kind IN ('fine', 'ID of the future') THEN t.%2$I & 1023 END AS worker,
        CASE WHEN k.kind = 'fine' THEN (snowflake_sql.snowflake_timestamp(t.%2$I) AT TIME ZONE 'UTC')::date END AS day,
        count(*) AS n, min(t.%2$I) AS least, max(t.%2$I) AS most
    FROM %1$s AS t %3$s CROSS JOIN LATERAL (SELECT CASE WHEN t.%2$I < 0 THEN 'ID before the epoch' WHEN t.%2$I <= 1099511627775 THEN 'small numbers'
        WHEN t.%2$I > snowflake_sql.snowflake_max_id(now() + interval '1 minute') THEN 'ID of the future' ELSE 'fine' END) AS k (kind)
    WHERE t.%2$I IS NOT NULL GROUP BY 1, 2, 3)
SELECT f.* FROM (
    SELECT CASE WHEN c.kind = 'small numbers' THEN 'info' WHEN c.kind = 'ID before the epoch'
            OR c.most > snowflake_sql.snowflake_max_id(now() + interval '1 day') THEN 'error' ELSE 'warning' END AS severity,
        c.kind, c.worker, NULL::date AS day, c.n, c.least, c.most,
        CASE c.kind WHEN 'small numbers' THEN 'Numbers up to 1099511627775 come from a sequence.' END, NULL::text
    FROM counted AS c WHERE c.kind <> 'fine'
    UNION ALL
    SELECT 'warning', 'unknown worker ID', c.worker, NULL, sum(c.n)::bigint, min(c.least), max(c.most), NULL,
        $2 || c.worker
    FROM counted AS c WHERE NOT $1 @> c.worker GROUP BY c.worker
    UNION ALL
    SELECT 'warning', 'worker IDs were not checked', NULL, NULL, NULL, NULL, NULL, NULL, 'Give them, as in worker_ids => ''{[1,4)}'' for 1 to 3.'
    WHERE $1 IS NULL
    UNION ALL
    SELECT 'info', 'all IDs', NULL, NULL, coalesce(sum(c.n), 0)::bigint, min(c.least), max(c.most), NULL, NULL FROM counted AS c
    UNION ALL
    SELECT 'info', 'IDs of a day', c.worker, c.day, c.n, c.least, c.most, NULL, NULL FROM counted AS c WHERE c.kind = 'fine') AS f
ORDER BY array_position('{error,warning,info}', f.severity), f.kind = 'IDs of a day', f.kind, f.day DESC, f.worker$query$,
        relation, key, CASE WHEN sample < 100 THEN format('TABLESAMPLE SYSTEM (%s)', sample) ELSE '' END)
        USING worker_ids, format('Find out which database has it. The rows: SELECT * FROM %s WHERE %I & 1023 = ', relation, key);
END $$;
COMMENT ON FUNCTION snowflake_sql.snowflake_check(regclass, name, double precision, regclass, int8multirange) IS
    'checks the IDs that a column holds: of the future, before the epoch, of unknown worker IDs; and counts them by worker ID and day';
