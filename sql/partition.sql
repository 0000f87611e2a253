-- snowflake_partition() makes and drops the partitions of a table by time. No step is stored: each
-- transaction looks at the catalogs, finds the next statement, runs it and commits, so that no
-- lock is held for longer than one statement takes, and a call that was interrupted is repeated.
--
-- What time it is, the generator says, by an ID: a clock that has jumped too far is refused, as for
-- all IDs. A job that asked the wall clock would drop everything on the day on which it is wrong.

-- The least ID of an instant, or of the epoch if that is later; and the present. What belongs to
-- the schema of the extension has its names bound when it is made.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.bound(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_min_id(GREATEST(at, @extschema@.snowflake_timestamp(0::bigint, generator)), generator);
END;
CREATE FUNCTION _snowflake.present(generator regclass) RETURNS timestamptz
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_timestamp(@extschema@.snowflake_nextval(generator), generator);
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- The partitions of a table that have bounds, without one whose DETACH CONCURRENTLY has begun.
CREATE FUNCTION _snowflake.partitions(parent regclass, OUT part regclass, OUT lower_bound bigint, OUT upper_bound bigint)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    SELECT c.oid::regclass, CASE b.found[1] WHEN 'MINVALUE' THEN -9223372036854775808 ELSE btrim(b.found[1], '''')::bigint END,
        CASE b.found[2] WHEN 'MAXVALUE' THEN 9223372036854775807 ELSE btrim(b.found[2], '''')::bigint END
    FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid
    CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \((.*)\) TO \((.*)\)$') AS b (found)
    WHERE i.inhparent = parent AND NOT i.inhdetachpending AND b.found IS NOT NULL
$$;

-- The statements that make the next partition, or drop the oldest; null if nothing is left to do.
CREATE FUNCTION _snowflake.partition_step(parent regclass, every interval, ahead integer, keep interval, generator regclass) RETURNS text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    months integer := CASE WHEN isfinite(every) THEN extract(year FROM every) * 12 + extract(month FROM every) END;
    base constant timestamp := '2001-01-01';  -- the first day of a week, a month, a quarter and a year
    present timestamptz;
    utc timestamp;
    periods double precision;                 -- from the base to the present
    part name;
    it record;
    gap record;
BEGIN
    IF months IS NULL OR every < interval '1 minute' OR months <> 0 AND every <> make_interval(months => months) THEN
        RAISE EXCEPTION 'cannot make partitions of %', coalesce(every::text, 'null') USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give whole months, as in ''3 months'', or a minute or more without months, as in ''7 days''.';
    ELSIF (ahead BETWEEN 1 AND 100) IS NOT TRUE THEN
        RAISE EXCEPTION 'ahead must be from 1 to 100, not %', coalesce(ahead::text, 'null') USING ERRCODE = 'invalid_parameter_value';
    ELSIF keep <= interval '0' THEN
        RAISE EXCEPTION 'cannot keep rows for %', keep USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give the age from which partitions are dropped, as in ''90 days'', or null to keep all.';
    END IF;
    SELECT c.relname, c.relnamespace::regnamespace AS schema, p.partattrs[0] AS number,
        coalesce((SELECT format(' USING %I', a.amname) FROM pg_am AS a WHERE a.oid = c.relam), '')
            || coalesce((SELECT format(' TABLESPACE %I', t.spcname) FROM pg_tablespace AS t WHERE t.oid = c.reltablespace), '') AS place
    INTO it FROM pg_class AS c JOIN pg_partitioned_table AS p ON p.partrelid = c.oid AND p.partstrat = 'r' AND p.partnatts = 1
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0]
    WHERE c.oid = parent AND (_snowflake.base_type(a.atttypid, a.atttypmod)).base = 'bigint'::regtype;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not partitioned by ranges of one bigint column', coalesce(_snowflake.name(parent), 'null')
            USING ERRCODE = 'wrong_object_type', HINT = 'Make the table with PARTITION BY RANGE (id).';
    END IF;
    generator := coalesce(generator, (SELECT g.generator FROM _snowflake.default_generators(parent) AS g WHERE g.number = it.number));
    IF generator IS NULL THEN
        RAISE EXCEPTION 'the key of % takes no IDs of a generator by its default', _snowflake.name(parent)
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Set the default by snowflake_set_default(), or name a generator with the layout of these IDs: generator => ''snowflake_default''.';
    END IF;

    present := _snowflake.present(generator);
    utc := present AT TIME ZONE 'UTC';
    periods := floor(CASE WHEN months > 0 THEN (extract(year FROM utc) * 12 + extract(month FROM utc) - extract(year FROM base) * 12 - 1) / months
        ELSE extract(epoch FROM utc - base) / extract(epoch FROM every) END);
    -- From the first instant of a period that no partition has, to its end or the next partition.
    WITH taken AS MATERIALIZED (SELECT p.lower_bound, p.upper_bound FROM _snowflake.partitions(parent) AS p
        WHERE p.upper_bound > _snowflake.bound((base + periods * every) AT TIME ZONE 'UTC', generator))
    SELECT f.id AS lower_bound, LEAST(w.upper_bound, (SELECT min(t.lower_bound) FROM taken AS t WHERE t.lower_bound > f.id)) AS upper_bound
    INTO gap FROM generate_series(0, ahead) AS n
    CROSS JOIN LATERAL (SELECT _snowflake.bound((base + (periods + n) * every) AT TIME ZONE 'UTC', generator) AS lower_bound,
        _snowflake.bound((base + (periods + n + 1) * every) AT TIME ZONE 'UTC', generator) AS upper_bound) AS w
    CROSS JOIN LATERAL (SELECT w.lower_bound AS id UNION ALL
        SELECT t.upper_bound FROM taken AS t WHERE t.upper_bound > w.lower_bound AND t.upper_bound < w.upper_bound) AS f
    WHERE NOT EXISTS (SELECT FROM taken AS t WHERE t.lower_bound <= f.id AND f.id < t.upper_bound)
    ORDER BY f.id LIMIT 1;
    IF FOUND THEN
        utc := _snowflake.instant_or_null(gap.lower_bound, generator) AT TIME ZONE 'UTC';
        -- What a name has no room for is cut off where the table's name ends. If somebody has the name, the
        -- next one is free: a name says nothing here.
        SELECT f.name INTO part FROM generate_series(0, 9999) AS n
        CROSS JOIN LATERAL (SELECT to_char(utc, CASE WHEN utc = date_trunc('day', utc) THEN '_YYYYMMDD' ELSE '_YYYYMMDD_HH24MISS' END)
            || CASE WHEN n > 0 THEN '_' || n ELSE '' END AS suffix) AS s
        CROSS JOIN LATERAL (SELECT (right((s.suffix || it.relname)::name::text, -length(s.suffix)) || s.suffix)::name AS name) AS f
        WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = it.schema AND c.relname = f.name)
          AND NOT EXISTS (SELECT FROM pg_type AS y WHERE y.typnamespace = it.schema AND y.typname = f.name)
        ORDER BY n LIMIT 1;
        -- Unlike CREATE TABLE ... PARTITION OF, ATTACH PARTITION keeps nobody from reading and writing the table.
        RETURN format('CREATE TABLE %1$s.%2$I (LIKE %3$s INCLUDING ALL EXCLUDING IDENTITY)%4$s; '
            'ALTER TABLE %3$s ATTACH PARTITION %1$s.%2$I FOR VALUES FROM (%5$L) TO (%6$L)',
            it.schema, part, _snowflake.name(parent), it.place, gap.lower_bound, gap.upper_bound);
    END IF;

    RETURN (SELECT format('ALTER TABLE %1$s DETACH PARTITION %2$s; DROP TABLE %2$s', _snowflake.name(parent), _snowflake.name(p.part))
        FROM _snowflake.partitions(parent) AS p
        WHERE p.upper_bound <= _snowflake.bound(LEAST(present, now()) - keep, generator) ORDER BY p.upper_bound LIMIT 1);
END
$$;

-- Makes the settings that names and texts depend on, until the transaction ends. A procedure
-- that ends transactions cannot have settings of its own, so it makes them in each of its
-- transactions. Nothing here may depend on them.
CREATE FUNCTION _snowflake.fix_settings() RETURNS void
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
AS $$
    SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('quote_all_identifiers', 'off', true),
        pg_catalog.set_config('standard_conforming_strings', 'on', true)
$$;

CREATE PROCEDURE _snowflake.snowflake_partition(
    parent regclass, every interval, ahead integer, keep interval, generator regclass)
    LANGUAGE plpgsql
AS $$
DECLARE
    statement pg_catalog.text;
BEGIN
    LOOP
        -- First of all: what comes before is of the caller. It fails in a transaction block.
        COMMIT;
        PERFORM _snowflake.fix_settings();
        -- Who waits for a lock makes all others wait behind it.
        PERFORM set_config('lock_timeout', CASE current_setting('lock_timeout') WHEN '0' THEN '2s' ELSE current_setting('lock_timeout') END, true);
        PERFORM _snowflake.run_as_owner(parent, format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', _snowflake.name(parent)));
        statement := _snowflake.partition_step(parent, every, ahead, keep, generator);
        PERFORM _snowflake.run_as_owner(parent, statement);
        COMMIT;
        EXIT WHEN statement IS NULL;
    END LOOP;
END
$$;

CREATE PROCEDURE snowflake_partition(
    parent regclass, every interval DEFAULT '1 day', ahead integer DEFAULT 7, keep interval DEFAULT NULL, generator regclass DEFAULT NULL)
    LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_internal_committing_procedure';
COMMENT ON PROCEDURE snowflake_partition(regclass, interval, integer, interval, regclass) IS
    'makes the partitions of the present and of the periods ahead that are missing, by the time in IDs, and drops those that are wholly older than keep';
