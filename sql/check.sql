-- snowflake_check() looks at the IDs that a table holds: it decodes them, counts them by
-- worker ID and day, and reports those that its generator cannot have made.
--
-- One statement reads the table, once and only as far as the sample goes. Another one
-- makes the findings of what the first has counted. Both run with the caller's rights. A
-- policy that would hide rows from the caller is an error, since a check that has not
-- seen all rows says nothing.
--
-- The rules for names and for search_path are those at the head of set_default.sql.

-- src/sql/check.rs has the next six: each by the default generator, a generator or a layout.

-- Like snowflake_timestamp(), but NULL if the generator cannot have made the ID, or the layout
-- has no such ID; and -infinity if the layout has no negative IDs and the ID is negative.
CREATE FUNCTION _snowflake.instant_or_null(id bigint) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null';
CREATE FUNCTION _snowflake.instant_or_null(id bigint, generator regclass) RETURNS timestamptz
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null';
CREATE FUNCTION _snowflake.instant_or_null_as(id bigint, layout text) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null_as';

-- Up to which number a value comes from a sequence rather than from the generator (-1: no value
-- can be told); how far the generator may lead the clock by borrowing, and after the clock was
-- set back.
CREATE FUNCTION _snowflake.check_limits(OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval, OUT greatest_worker bigint)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits';
CREATE FUNCTION _snowflake.check_limits(
    generator regclass, OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval, OUT greatest_worker bigint)
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits';
CREATE FUNCTION _snowflake.check_limits_as(
    layout text, OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval, OUT greatest_worker bigint)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits_as';

-- All worker IDs that the registry of this database has ever leased, of all pools and namespaces,
-- dropped ones included, and those that its pools leave out, which are of servers with a fixed
-- worker ID; NULL if there are none. Who may read it sees no more of the tables. It is made as the
-- views of registry.sql are, out of reach of functions that others made.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW _snowflake.leased AS
SELECT range_agg(u.ids) AS worker_ids
FROM (SELECT int8range(l.worker_id, l.worker_id, '[]') FROM _snowflake.leases AS l
    UNION ALL SELECT unnest(p.except_ids) FROM _snowflake.pools AS p) AS u (ids);

-- Keys that count, which servers do alike: columns of primary keys, or of unique constraints where there is none, that have an
-- identity or a default with nextval(), or neither beside a sequence with the name that mappers give one.
CREATE VIEW _snowflake.counted_keys AS
SELECT c.oid AS relation, n.nspname AS schema, format('%I.%I', n.nspname, c.relname) AS table_name, c.relowner AS owner, a.attname AS name, a.atttypid AS type, s.sequence
FROM pg_constraint AS k
JOIN pg_class AS c ON c.oid = k.conrelid AND c.relpersistence <> 't' AND NOT c.relispartition
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY (k.conkey)
CROSS JOIN LATERAL (
    SELECT p.objid FROM pg_depend AS p
    WHERE a.attidentity <> '' AND p.deptype = 'i' AND (p.classid, p.refclassid, p.refobjid, p.refobjsubid) = ('pg_class'::regclass, 'pg_class'::regclass, c.oid, a.attnum)
    UNION ALL
    SELECT (SELECT min(p.refobjid) FROM pg_depend AS p
        WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass AND p.refobjsubid = 0)
    FROM pg_attrdef AS d
    WHERE d.adrelid = c.oid AND d.adnum = a.attnum AND strpos(d.adbin::text, ':funcid ' || 'nextval(regclass)'::regprocedure::oid || ' ') > 0
    UNION ALL
    SELECT min(q.oid) FROM pg_class AS q
    WHERE NOT a.atthasdef AND a.attidentity = '' AND cardinality(k.conkey) = 1
      AND q.relkind = 'S' AND q.relnamespace = c.relnamespace AND NOT EXISTS (SELECT FROM pg_seclabel AS l WHERE l.objoid = q.oid AND l.provider = 'snowflake_id')
      AND q.relname IN (left(c.relname || '_seq', 63), left(c.relname || '_' || a.attname || '_seq', 63))
    HAVING count(*) > 0) AS s (sequence)
WHERE (k.contype = 'p' OR k.contype = 'u' AND cardinality(k.conkey) = 1
      AND NOT EXISTS (SELECT FROM pg_constraint AS o WHERE o.conrelid = c.oid AND o.contype = 'p'))
  AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e');
COMMENT ON VIEW _snowflake.counted_keys IS 'internal: keys that get their numbers from sequences, and the sequences';

-- The worker ID of an ID.
CREATE FUNCTION _snowflake.worker_of(id bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_worker_of';
CREATE FUNCTION _snowflake.worker_of(id bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_worker_of';
CREATE FUNCTION _snowflake.worker_of_as(id bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_worker_of_as';
SET LOCAL search_path = @extschema@, pg_temp;

-- The worker IDs that the registry of this database knows, and this server's; NULL if it
-- knows none; and where they come from, or why there are none. The planner takes the views of
-- the registry for expensive, since it knows nothing of the tables of a small registry;
-- compiling them would take a second.
CREATE FUNCTION _snowflake.known_workers(OUT worker_ids int8multirange, OUT source text)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
    IF NOT has_table_privilege('_snowflake.leased', 'SELECT') THEN
        source := 'the current role may not read the registry of worker IDs';
        RETURN;
    END IF;
    SELECT l.worker_ids INTO worker_ids FROM _snowflake.leased AS l;
    IF worker_ids IS NULL THEN
        source := 'this database has no registry of worker IDs, or it has leased none';
        RETURN;
    END IF;
    source := 'the registry of this database';
    BEGIN
        worker_ids := worker_ids + coalesce((
            SELECT int8multirange(int8range(w.worker_id, w.worker_id, '[]'))
            FROM _snowflake.own_worker() AS w WHERE w.worker_id IS NOT NULL), '{}');
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        -- Without the library, this server has made no IDs.
        NULL;
    END;
END
$$;

-- Whether the caller may do all that the owner of a table may.
CREATE FUNCTION _snowflake.reads_as_owner(relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = relation
$$;

-- Counts the IDs in a column by what they are, worker ID and day.
CREATE FUNCTION _snowflake.count_ids(
    relation regclass, column_name name, sample double precision, suffix text, arguments text,
    greatest_small bigint, latest timestamptz)
    RETURNS TABLE (kind text, worker_id bigint, day date, ids bigint,
        least_id bigint, greatest_id bigint, first timestamptz, last timestamptz)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    -- %1$s table, %2$I column, %3$s sample, %4$s suffix, %5$s arguments,
    -- %6$L greatest_small, %7$L latest. With OFFSET, the planner does not copy the function to each
    -- place that names its result.
    query text := format($query$
SELECT k.kind,
    CASE WHEN k.kind IN ('fine', 'future') THEN _snowflake.worker_of%4$s(i.id%5$s) END,
    CASE WHEN k.kind = 'fine' THEN (i.at AT TIME ZONE 'UTC')::date END,
    count(*), min(i.id), max(i.id), min(i.at), max(i.at)
FROM (SELECT t.%2$I::bigint AS id,
          _snowflake.instant_or_null%4$s(t.%2$I::bigint%5$s) AS at
      FROM %1$s AS t %3$s WHERE t.%2$I IS NOT NULL OFFSET 0) AS i
CROSS JOIN LATERAL (SELECT CASE
    WHEN i.id BETWEEN 0 AND %6$L::bigint THEN 'small'
    WHEN i.at IS NULL THEN 'foreign'
    WHEN i.at = '-infinity' THEN 'negative'
    WHEN i.at > %7$L::timestamptz THEN 'future'
    ELSE 'fine' END) AS k (kind)
GROUP BY 1, 2, 3
$query$, relation, column_name,
        CASE WHEN sample < 100 THEN format('TABLESAMPLE SYSTEM (%s)', sample) ELSE '' END,
        suffix, arguments, greatest_small, latest);
    message text;
    detail text;
    hint text;
BEGIN
    -- Planning runs functions in the conditions of indexes and of the table, which are its
    -- owner's. A superuser, or another role that may do all that the owner may, reads as the
    -- owner, and lends her nothing.
    IF _snowflake.reads_as_owner(relation) THEN
        RETURN QUERY SELECT r.* FROM jsonb_to_recordset(_snowflake.read_as_owner(relation, format(
                'SELECT coalesce(jsonb_agg(to_jsonb(r)), %L) FROM (%s) AS r '
                '(kind, worker_id, day, ids, least_id, greatest_id, first, last)',
                '[]', query))::jsonb)
            AS r (kind text, worker_id bigint, day date, ids bigint,
                least_id bigint, greatest_id bigint, first timestamptz, last timestamptz);
    ELSE
        RETURN QUERY EXECUTE query;
    END IF;
EXCEPTION WHEN OTHERS THEN
    -- The context would have the whole query.
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE EXCEPTION '%', message USING ERRCODE = SQLSTATE, DETAIL = coalesce(nullif(detail, ''), format('Table %s could not be read.', relation)),
        HINT = coalesce(nullif(hint, ''), 'Nothing was checked.');
END
$$;

-- This function is not STRICT: NULL has a meaning for most arguments.
CREATE FUNCTION _snowflake.snowflake_check(
    relation regclass, column_name name, sample double precision,
    generator regclass, layout text, worker_ids int8multirange,
    max_rows integer)
    RETURNS TABLE (severity text, finding text, worker_id bigint, day date, ids bigint,
        least_id bigint, greatest_id bigint, detail text, hint text)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp SET row_security = off
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    kind "char" := (SELECT c.relkind FROM pg_class AS c WHERE c.oid = relation);
    table_name text;
    it pg_attribute;
    foreign_table regclass;
    has_generator boolean;
    found_generator regclass;
    maker text; -- who made the IDs, for messages
    -- The names of functions that decode end with the suffix. After the ID, they take the
    -- generator or the layout.
    suffix text := '';
    whose text := '';
    arguments text; -- the generator or the layout, after a comma
    known int8multirange := worker_ids;
    source text := 'the argument worker_ids';
    limits record;
    now timestamptz := clock_timestamp();
    latest timestamptz;   -- an ID may be ahead of the clock up to here: of another server's clock too
    farthest timestamptz; -- no clock and no generator leads beyond that
    -- SQL for hints, which show how to find the rows.
    instant text;    -- of the ID; never fails
    worker text;     -- of the ID; fails where the instant is NULL or -infinity
    rows_where text; -- SELECT ... WHERE
    is_no_small text;
    reading text;
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'relation must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF kind IS NULL THEN
        RAISE EXCEPTION 'relation with OID % does not exist', relation::oid
            USING ERRCODE = 'undefined_table';
    END IF;
    table_name := _snowflake.name(relation);
    IF kind NOT IN ('r', 'p', 'm', 'v', 'f') THEN
        RAISE EXCEPTION '% is not a table', table_name
            USING ERRCODE = 'wrong_object_type', HINT = 'Name a table, partitioned or not, or a view.';
    ELSIF sample IS NULL OR NOT (sample > 0 AND sample <= 100) THEN
        RAISE EXCEPTION 'sample is out of range: %', coalesce(sample::text, 'null')
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give the percentage of the table''s pages to read: more than 0, and at most 100, which reads all rows.';
    ELSIF max_rows IS NULL OR max_rows < 1 THEN
        RAISE EXCEPTION 'max_rows is out of range: %', coalesce(max_rows::text, 'null')
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give how many rows there may be of each finding: 1 or more.';
    ELSIF sample < 100 AND kind IN ('v', 'f') THEN
        RAISE EXCEPTION 'cannot read a sample of %', table_name
            USING ERRCODE = 'wrong_object_type',
            DETAIL = 'Only tables and materialized views have samples.',
            HINT = 'Read all of its rows, or check the table that keeps them.';
    ELSIF generator IS NOT NULL AND layout IS NOT NULL THEN
        RAISE EXCEPTION 'both a generator and a layout are given'
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give the generator, or for IDs of another system the layout.';
    END IF;

    -- Without a name, the column is the one that gets IDs by default, or the primary key.
    SELECT a.* INTO it FROM pg_attribute AS a
    WHERE a.attrelid = relation AND NOT a.attisdropped AND a.attnum > 0
      AND CASE WHEN column_name IS NOT NULL THEN a.attname = column_name
          ELSE a.attnum = coalesce(
              (SELECT min(g.number) FROM _snowflake.default_generators(relation) AS g
               HAVING count(*) = 1),
              (SELECT k.conkey[1] FROM pg_constraint AS k
               WHERE k.conrelid = relation AND k.contype = 'p' AND cardinality(k.conkey) = 1)) END;
    IF NOT FOUND AND column_name IS NOT NULL THEN
        RAISE EXCEPTION 'column "%" of table % does not exist', column_name, table_name
            USING ERRCODE = 'undefined_column',
            HINT = 'Give the name as it is stored: without quotes, and in lower case unless it was created in quotes.';
    ELSIF NOT FOUND THEN
        RAISE EXCEPTION 'which column of % has the IDs is not clear', table_name
            USING ERRCODE = 'ambiguous_column',
            DETAIL = 'Neither does exactly one column get IDs by default, nor has the primary key exactly one column.',
            HINT = format('Name the column, as in snowflake_check(%L, %L)', table_name, 'id');
    ELSIF (_snowflake.base_type(it.atttypid, it.atttypmod)).base <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'column "%" of table % is of type %, not bigint',
            it.attname, table_name, format_type(it.atttypid, it.atttypmod)
            USING ERRCODE = 'datatype_mismatch', HINT = 'Name a bigint column.';
    END IF;
    -- PostgreSQL takes no sample of a foreign table, and would read all of it.
    IF sample < 100 THEN
        SELECT f.member INTO foreign_table
        FROM _snowflake.inheritance(relation, it.attname) AS f
        JOIN pg_class AS c ON c.oid = f.member AND c.relkind = 'f' LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'cannot read a sample of %', table_name
                USING ERRCODE = 'wrong_object_type',
                DETAIL = format('It has foreign table %s as a partition or a child table, and foreign tables have no samples.',
                    _snowflake.name(foreign_table)),
                HINT = 'Read all of its rows, or check its other partitions one by one.';
        END IF;
    END IF;

    IF layout IS NOT NULL THEN
        suffix := '_as';
        whose := quote_literal(layout);
        maker := format('"%s"', layout);
        IF known IS NULL THEN
            source := 'the registry of this database does not know the servers of another system';
        END IF;
    ELSE
        SELECT true, g.generator INTO has_generator, found_generator
        FROM _snowflake.default_generators(relation) AS g
        WHERE g.number = it.attnum;
        found_generator := coalesce(generator, found_generator);
        IF found_generator IS NULL THEN
            RAISE EXCEPTION 'which generator makes the IDs in column "%" of table % is not clear', it.attname, table_name
                USING ERRCODE = 'invalid_parameter_value',
                DETAIL = CASE WHEN has_generator THEN 'The default of the column names no generator, or several.'
                    ELSE 'The column takes no IDs of a generator by default.' END,
                HINT = format('Name the generator, as in snowflake_check(%L, %L, generator => %L), '
                    'or the layout of another system, as in layout => %L',
                    table_name, it.attname, 'snowflake_default', 'preset=twitter');
        END IF;
        -- The functions without a generator know the layout of the default one by heart.
        IF found_generator <> _snowflake.default_generator() THEN
            whose := format('%L::regclass', found_generator);
        END IF;
        maker := format('generator %s', _snowflake.name(found_generator));
        IF known IS NULL THEN
            SELECT w.worker_ids, w.source INTO known, source
            FROM _snowflake.known_workers() AS w;
        END IF;
    END IF;
    reading := CASE WHEN sample = 100 THEN 'all rows were read'
        ELSE format('the rows in %s %% of the pages were read, chosen at random', sample) END;

    -- What is most often wrong, a privilege or a label, is found by these statements: an
    -- error shows the statement, and the one below is long.
    IF NOT _snowflake.reads_as_owner(relation) THEN
        EXECUTE format('SELECT %I FROM %s LIMIT 0', it.attname, relation);
    END IF;
    EXECUTE format('SELECT l.* FROM _snowflake.check_limits%s(%s) AS l',
        suffix, whose) INTO limits;
    latest := now + greatest(interval '1 minute', limits.max_borrow);
    farthest := now + greatest(interval '1 day', limits.max_rollback) + limits.max_borrow;

    arguments := coalesce(', ' || nullif(whose, ''), '');
    instant := format('_snowflake.instant_or_null%s(%I%s)', suffix, it.attname, arguments);
    worker := format('(%I.snowflake_decode%s(%I%s)).worker_id',
        (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
            WHERE e.extname = 'snowflake_id'), suffix, it.attname, arguments);
    rows_where := format('The rows: SELECT * FROM %s WHERE ', table_name);
    is_no_small := CASE WHEN limits.greatest_small > 0
        THEN format('%I NOT BETWEEN 0 AND %s AND ', it.attname, limits.greatest_small) ELSE '' END;

    RETURN QUERY
    WITH groups AS MATERIALIZED (
        SELECT c.* FROM _snowflake.count_ids(
            relation, it.attname, sample, suffix, arguments, limits.greatest_small, latest) AS c),
    by_worker AS (
        SELECT g.kind, g.worker_id, coalesce(worker || ' = ' || g.worker_id, 'true') AS is_worker,
            sum(g.ids)::bigint AS ids, min(g.least_id) AS least_id, max(g.greatest_id) AS greatest_id,
            min(g.first) AS first, max(g.last) AS last
        FROM groups AS g GROUP BY g.kind, g.worker_id),
    found (rank, severity, finding, worker_id, day, ids, least_id, greatest_id, detail, hint) AS (
        SELECT 1, 'error', 'ID of another layout', NULL::bigint, NULL::date, b.ids, b.least_id, b.greatest_id,
            format('No ID of %s has these bits.', maker),
            'Find out what else writes to the column, or name the generator or the layout that made them. '
                || rows_where || is_no_small || instant || ' IS NULL'
        FROM by_worker AS b WHERE b.kind = 'foreign'
        UNION ALL
        SELECT 1, 'error', 'ID before the epoch', NULL, NULL, b.ids, b.least_id, b.greatest_id,
            format('IDs of %s are never negative.', maker),
            rows_where || format('%I < 0', it.attname)
        FROM by_worker AS b WHERE b.kind = 'negative'
        UNION ALL
        SELECT CASE WHEN a.by_far THEN 1 ELSE 2 END, CASE WHEN a.by_far THEN 'error' ELSE 'warning' END,
            'ID of the future', b.worker_id, NULL, b.ids, b.least_id, b.greatest_id,
            format('The IDs are of instants up to %s', b.last) || CASE WHEN isfinite(b.last) THEN
                format(', %s ahead of the clock of this server', date_trunc('second', b.last - now)) ELSE '' END || '.',
            CASE WHEN a.by_far THEN 'No generator leads so far, unless this server''s clock is slow. '
                    'Find out what else writes to the column, or name the generator or the layout that made them. '
                ELSE 'Compare the clocks of the servers: snowflake_check_cluster(). This server''s clock may be slow. '
                    'A generator also leads after its clock was set back, and after snowflake_advance(). ' END
                || rows_where || is_no_small || format('CASE WHEN %s > %L THEN %s END', instant, latest, b.is_worker)
        FROM by_worker AS b CROSS JOIN LATERAL (SELECT b.last > farthest) AS a (by_far)
        WHERE b.kind = 'future'
        UNION ALL
        SELECT 2, 'warning', 'unknown worker ID', b.worker_id, NULL, sum(b.ids)::bigint, min(b.least_id), max(b.greatest_id),
            format('Not in %s. The IDs are of instants from %s to %s.', source, min(b.first), max(b.last)),
            'Find out which server has this worker ID. '
                || rows_where || is_no_small || format('CASE WHEN %s > ''-infinity'' THEN %s END', instant, b.is_worker)
        FROM by_worker AS b WHERE NOT known @> b.worker_id GROUP BY b.worker_id, b.is_worker
        UNION ALL
        SELECT 2, 'warning', 'IDs of a sequence', NULL, NULL, NULL, NULL, s.last,
            format('Its sequence %s continues from an ID, in numbers that other servers issue.', _snowflake.name(s.id)),
            format('SELECT snowflake_set_default(%L, %L)', table_name, it.attname)
        FROM (SELECT k.sequence, CASE WHEN has_sequence_privilege(k.sequence, 'SELECT, USAGE') THEN pg_sequence_last_value(k.sequence) END
            FROM _snowflake.counted_keys AS k WHERE k.relation = snowflake_check.relation AND k.name = it.attname) AS s (id, last)
        WHERE s.last > 1::bigint << 40
        UNION ALL
        SELECT 3, 'warning', 'worker IDs were not checked', NULL, NULL, NULL, NULL, NULL,
            format('It is not known which there are: %s.', source),
            'Give them, as in worker_ids => ''{[1,4)}'' for 1 to 3.'
        WHERE known IS NULL AND EXISTS (SELECT FROM groups AS g WHERE g.worker_id IS NOT NULL)
        UNION ALL
        SELECT 4, 'info', 'small numbers', NULL, NULL, b.ids, b.least_id, b.greatest_id,
            format('Numbers up to %s come from a sequence: as IDs they would be of the first instants after the epoch.', limits.greatest_small),
            'If the table had such keys before it had the generator, all is well.'
        FROM by_worker AS b WHERE b.kind = 'small'
        UNION ALL
        SELECT 5, 'info', 'all IDs', NULL, NULL, coalesce(sum(b.ids), 0)::bigint, min(b.least_id), max(b.greatest_id),
            format('Column %I of %s, IDs of %s; %s.', it.attname, table_name, maker, reading), NULL
        FROM by_worker AS b
        UNION ALL
        SELECT 6, 'info', 'IDs of a day', g.worker_id, g.day, g.ids, g.least_id, g.greatest_id, NULL, NULL
        FROM groups AS g WHERE g.kind = 'fine'),
    placed AS (
        SELECT f.*, row_number() OVER (PARTITION BY f.rank, f.finding ORDER BY f.day DESC, f.worker_id) AS place
        FROM found AS f),
    shown AS (
        SELECT p.* FROM placed AS p WHERE p.place <= max_rows
        UNION ALL
        SELECT p.rank, p.severity, p.finding, NULL, NULL, sum(p.ids)::bigint, min(p.least_id), max(p.greatest_id),
            format('This row stands for all others, %s in number.', count(*)),
            format('To see each of them, give max_rows => %s.', max(p.place)), NULL
        FROM placed AS p WHERE p.place > max_rows GROUP BY p.rank, p.severity, p.finding)
    SELECT s.severity, s.finding, s.worker_id, s.day, s.ids, s.least_id, s.greatest_id, s.detail, s.hint
    FROM shown AS s ORDER BY s.rank, s.finding, s.place;
END
$$;

-- Not STRICT: NULL has a meaning for most arguments.
CREATE FUNCTION snowflake_check(
    relation regclass, column_name name DEFAULT NULL, sample double precision DEFAULT 100,
    generator regclass DEFAULT NULL, layout text DEFAULT NULL, worker_ids int8multirange DEFAULT NULL,
    max_rows integer DEFAULT 1000)
    RETURNS TABLE (severity text, finding text, worker_id bigint, day date, ids bigint,
        least_id bigint, greatest_id bigint, detail text, hint text)
    LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 100
BEGIN ATOMIC
    SELECT _snowflake.hold();
    SELECT c.* FROM _snowflake.snowflake_check(relation, column_name, sample, generator, layout, worker_ids, max_rows) AS c;
END;
COMMENT ON FUNCTION snowflake_check(regclass, name, double precision, regclass, text, int8multirange, integer) IS
    'checks the IDs that a column holds: IDs that its generator or layout cannot have made, of the '
    'future, before the epoch, of unknown worker IDs; and counts them by worker ID and day';
