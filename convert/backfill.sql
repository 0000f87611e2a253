-- snowflake_convert(backfill => true): old rows get IDs of the time at which they were made.
-- Each key column has the origin of its values, which is a key that counts: itself, or the
-- one that it refers to, directly or through other foreign keys.
--
-- 1. _snowflake_convert.backfill_keys(): the keys, and the column that has the time of
--    each row. A key of a table without such a column keeps its values.
-- 2. _snowflake_convert.backfill_columns(): all columns with their origins. A column with
--    two origins is an obstacle, since one old value would have two new ones.
-- 3. _snowflake_convert.backfill_obstacles(): rows that cannot have an ID of their time,
--    and worker IDs that are in use. This reads the tables.
-- 4. _snowflake_convert.backfill_map(): the statements that fill table snowflake_old_ids,
--    from which ALTER TABLE takes the new values. The caller keeps that table.
--
-- The IDs are made as a server with that worker ID would have made them: in the order of
-- ticks, within a tick in the order of keys, and each only once, also in different tables.
-- If a tick is exhausted, the row gets an ID of the next tick that has room. All constants
-- of the layout come from the functions that encode IDs.

-- The column of a table that has the time at which a row was made, as an expression of type
-- timestamptz; null if there is none.
CREATE FUNCTION _snowflake_convert.backfill_time(relation regclass, names name[], OUT name name, OUT expression text, OUT problem text)
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    type regtype;
    candidates name[];
BEGIN
    SELECT a.attname, b.base INTO name, type FROM unnest(names) WITH ORDINALITY AS n (wanted, place)
    JOIN pg_attribute AS a ON a.attrelid = relation AND a.attname = n.wanted AND a.attnum > 0 AND NOT a.attisdropped
    CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
    ORDER BY n.place LIMIT 1;
    IF NOT FOUND THEN
        -- The only one whose name does not speak of later times; or the only one of them
        -- that says by its name that it is of new rows.
        SELECT array_agg(a.attname ORDER BY a.attnum) INTO candidates FROM pg_attribute AS a
        CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
          AND b.base IN ('timestamptz'::regtype, 'timestamp'::regtype)
          AND a.attname !~* '(updat|modif|chang|last|latest|delet|expir|until|due|end_|ended)';
        IF cardinality(candidates) > 1 AND (SELECT count(*) FROM unnest(candidates) AS c WHERE c ~* '^(creat|insert)') = 1 THEN
            candidates := ARRAY(SELECT c FROM unnest(candidates) AS c WHERE c ~* '^(creat|insert)');
        END IF;
        IF candidates IS NULL THEN
            RETURN;
        ELSIF cardinality(candidates) > 1 THEN
            problem := format('table %s has more than one column with a time: name the one of new rows, as in backfill_by => %L',
                _snowflake.name(relation), candidates[1:1]);
            RETURN;
        END IF;
        name := candidates[1];
        type := (SELECT b.base FROM pg_attribute AS a
            CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b WHERE a.attrelid = relation AND a.attname = backfill_time.name);
    END IF;
    expression := CASE type
        WHEN 'timestamptz'::regtype THEN format('%I::timestamptz', name)
        WHEN 'timestamp'::regtype THEN format('%I::timestamp AT TIME ZONE %L', name, current_setting('TimeZone'))
        WHEN 'date'::regtype THEN format('%I::date::timestamp AT TIME ZONE %L', name, current_setting('TimeZone')) END;
    IF expression IS NULL THEN
        problem := format('column %s.%I has no time: it is of type %s', _snowflake.name(relation), name, type);
    END IF;
END $$;

-- The keys whose old values are replaced, with the time of a row.
CREATE FUNCTION _snowflake_convert.backfill_keys(columns _snowflake_convert.key_column[], wanted text, names name[]) RETURNS SETOF _snowflake_convert.old_key
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    -- A key that has the default already may have IDs, which stay.
    SELECT c.relation, c.name, t.name, t.expression, t.problem FROM unnest(columns) WITH ORDINALITY AS c
    CROSS JOIN _snowflake_convert.backfill_time(c.relation, names) AS t
    WHERE c.is_key AND (t.expression IS NOT NULL OR t.problem IS NOT NULL) AND EXISTS (
        SELECT FROM _snowflake.inheritance(c.relation, c.name) AS f WHERE f.expression IS DISTINCT FROM wanted)
    ORDER BY c.ordinality
$$;

-- The columns whose values are replaced, with the key that the values come from, and how many
-- such keys there are.
CREATE FUNCTION _snowflake_convert.backfill_columns(columns _snowflake_convert.key_column[], keys _snowflake_convert.old_key[], also _snowflake_convert.also_column[],
    OUT relation oid, OUT name name, OUT origin oid, OUT origin_name name, OUT origins bigint)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH counted AS (
        SELECT r.*, count(*) OVER (PARTITION BY r.id, r.name) AS origins,
            EXISTS (SELECT FROM unnest(keys) AS k
                WHERE k.relation = r.origin AND k.name = r.origin_name) AS is_replaced
        FROM (SELECT array_agg(c.relation::oid) AS relations, array_agg(c.name) AS names FROM unnest(columns) AS c WHERE c.is_key) AS k
        CROSS JOIN _snowflake_convert.reached(k.relations, k.names, also) AS r WHERE r.origin IS NOT NULL)
    SELECT DISTINCT ON (c.id, c.name) c.id, c.name, c.origin, c.origin_name, c.origins
    FROM counted AS c WHERE c.is_replaced ORDER BY c.id, c.name, c.origin, c.origin_name
$$;

-- The numbers by which IDs of a generator and a worker ID are made, and the instants from and
-- before which.
-- What a layout does with an ID, in numbers: an ID is
--     tick * per_tick + first + sequence number * per_number
-- for ticks as snowflake_min_id() has them, and for sequence numbers below `numbers`.
-- The names are bound when the function is made, and the types are exactly those of the functions:
-- nothing that the schema had before fits better.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake_convert.backfill_layout(generator regclass, worker_id bigint,
    OUT per_tick bigint, OUT first bigint, OUT per_number bigint, OUT numbers bigint,
    OUT since timestamptz, OUT until timestamptz, OUT own_worker_id integer) LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT d.per_tick,
        @extschema@.snowflake_encode(i.at, backfill_layout.worker_id, 0::bigint, i.generator) - d.least_id / d.per_tick * d.per_tick,
        CASE WHEN d.numbers > 1 THEN
            @extschema@.snowflake_encode(i.at, backfill_layout.worker_id, 1::bigint, i.generator)
            - @extschema@.snowflake_encode(i.at, backfill_layout.worker_id, 0::bigint, i.generator)
            ELSE 0 END,
        d.numbers, i.since,
        @extschema@.snowflake_timestamp((_snowflake.next_id_range(i.generator, NULL::bigint)).next_id, i.generator),
        i.own_worker_id
    FROM (
        -- The midst of a tick: an instant at its edge may be rounded to another one.
        SELECT g.generator, g.worker_id AS own_worker_id, g.epoch::timestamptz AS since, g.tick::interval AS tick,
            g.epoch::timestamptz + g.tick::interval * 1.5 AS at
        FROM _snowflake.generators() AS g WHERE g.generator = backfill_layout.generator) AS i
    CROSS JOIN LATERAL (
        SELECT m.least_id, @extschema@.snowflake_min_id(i.at + i.tick, i.generator) - m.least_id AS per_tick,
            coalesce((@extschema@.snowflake_decode(m.greatest_id, i.generator)).sequence, 0) + 1 AS numbers
        FROM (SELECT @extschema@.snowflake_min_id(i.at, i.generator) AS least_id,
            @extschema@.snowflake_max_id(i.at, i.generator) AS greatest_id) AS m) AS d;
END;

-- The least ID of a generator in the tick of an instant. The planner puts the call of the extension's
-- function in its place.
CREATE FUNCTION _snowflake_convert.min_id(at timestamptz, generator regclass) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_min_id(at, generator);
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- Why old rows cannot be given IDs of their time.
CREATE FUNCTION _snowflake_convert.backfill_obstacles(
    keys _snowflake_convert.old_key[], generator regclass, worker_id bigint) RETURNS SETOF text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    ids record := _snowflake.next_id_range(generator, NULL);
    layout record;
    key record;
    counts text[];
    name text;
BEGIN
    IF NOT ids.sorted THEN
        RETURN NEXT format('IDs of generator %s do not sort by time, so old rows cannot be given IDs of their time',
            _snowflake.name(ids.source));
        RETURN;
    END IF;
    layout := _snowflake_convert.backfill_layout(ids.source, worker_id);
    IF worker_id IN (layout.own_worker_id, (SELECT w.worker_id FROM _snowflake.own_worker() AS w)) THEN
        RETURN NEXT format('worker ID %s is that of this server: old rows need one that no server has, or has had', worker_id);
    END IF;
    -- A server elsewhere may have it all the same: only the caller can know.
    IF has_table_privilege('_snowflake.pools', 'SELECT') THEN
        RETURN QUERY SELECT format('worker ID %s belongs to pool %s: old rows need one that no server has, or has had', worker_id, p.name)
            FROM _snowflake.pools AS p WHERE p.worker_ids @> worker_id AND NOT p.except_ids @> worker_id;
    END IF;
    FOR key IN SELECT k.* FROM unnest(keys) AS k LOOP
        name := _snowflake.name(key.relation);
        IF key.problem IS NOT NULL THEN
            RETURN NEXT key.problem;
        ELSIF EXISTS (SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = key.relation AND d.refclassid = 'pg_class'::regclass
              AND d.refobjid = key.relation AND d.deptype = 'i'
              AND d.objsubid = (SELECT a.attnum FROM pg_attribute AS a WHERE a.attrelid = key.relation AND a.attname = key.name)) THEN
            RETURN NEXT format('table %s is partitioned by %I, whose values would be replaced', name, key.name);
        ELSIF pg_has_role((SELECT c.relowner FROM pg_class AS c WHERE c.oid = key.relation), 'USAGE') THEN
            counts := string_to_array(_snowflake.read_as_owner(key.relation, format(
                'SELECT concat_ws('' '', count(*) FILTER (WHERE r.at IS NULL), count(*) FILTER (WHERE r.at < %L::timestamptz),'
                ' count(*) FILTER (WHERE r.at >= %L::timestamptz), %s) FROM (SELECT %I AS key, %s AS at FROM %s) AS r '
                'WHERE r.key IS NOT NULL',
                layout.since, layout.until,
                CASE WHEN EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                    WHERE i.indrelid = key.relation AND i.indisunique AND i.indpred IS NULL AND i.indnkeyatts = 1 AND a.attname = key.name
                      AND NOT EXISTS (SELECT FROM pg_inherits AS h JOIN pg_class AS p ON p.oid = h.inhparent AND p.relkind = 'r'
                          WHERE h.inhparent = key.relation))
                    THEN '0' ELSE 'count(*) - count(DISTINCT r.key)' END,
                key.name, key.expression, name)), ' ');
            IF counts[1] <> '0' THEN
                RETURN NEXT format('rows of table %s have no time in column %I: %s', name, key.time_name, counts[1]);
            END IF;
            IF counts[2] <> '0' THEN
                RETURN NEXT format('rows of table %s have a time in column %I that is before %s, '
                    'the epoch of generator %s: %s. Use a generator with an earlier epoch',
                    name, key.time_name, layout.since, _snowflake.name(ids.source), counts[2]);
            END IF;
            IF counts[3] <> '0' THEN
                RETURN NEXT format('rows of table %s have a time in column %I that is not before the next new ID: %s',
                    name, key.time_name, counts[3]);
            END IF;
            IF counts[4] <> '0' THEN
                RETURN NEXT format('rows of table %s have a value in column %I that another row has: %s', name, key.name, counts[4]);
            END IF;
        END IF;
    END LOOP;
END $$;

-- The statements that make and fill the table of old and new values, and the function that
-- looks them up.
CREATE FUNCTION _snowflake_convert.backfill_map(keys _snowflake_convert.old_key[], generator regclass, worker_id bigint) RETURNS text[]
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source regclass := (_snowflake.next_id_range(generator, NULL)).source;
    layout record := _snowflake_convert.backfill_layout(source, worker_id);
    rows_of text := (
        SELECT string_agg(CASE WHEN c.relowner = quote_ident(current_user)::regrole
                THEN format('    SELECT %L::regclass, %L::name, %I::bigint, %s FROM %s WHERE %I IS NOT NULL',
                    n.name, k.name, k.name, k.expression, n.name, k.name)
                ELSE format('    SELECT %L::regclass, %L::name, o.key, o.at FROM _snowflake_convert.rows_as_owner(%L, %L) AS o',
                    n.name, k.name, n.name,
                    format('SELECT %I::bigint, %s FROM %s WHERE %I IS NOT NULL', k.name, k.expression, n.name, k.name)) END,
            E' UNION ALL\n' ORDER BY k.ordinality)
        FROM unnest(keys) WITH ORDINALITY AS k
        JOIN pg_class AS c ON c.oid = k.relation
        CROSS JOIN _snowflake.name(k.relation) AS n (name) WHERE k.expression IS NOT NULL);
BEGIN
    RETURN ARRAY[
        -- A policy that hides rows is an error.
        'SET LOCAL row_security = off',
        -- Nobody but the caller can drop or replace it until the keys are changed.
        'CREATE TEMPORARY TABLE snowflake_new_ids (relation regclass, column_name name, old_id bigint, new_id bigint NOT NULL, '
        'PRIMARY KEY (relation, column_name, old_id))',
        'INSERT INTO pg_temp.snowflake_new_ids' || E'\nWITH rows (relation, column_name, old_id, at) AS (\n' || rows_of || E'),\n'
            || format(E'ticks AS (SELECT r.*, _snowflake_convert.min_id(r.at, %L::regclass) / %s AS tick FROM rows AS r),\n',
                _snowflake.name(source), layout.per_tick)
            || E'numbered AS (SELECT t.*, row_number() OVER (ORDER BY t.tick, t.relation, t.column_name, t.old_id) AS number '
                'FROM ticks AS t),\n'
            -- Each row gets the first slot after that of the row before, and not before its tick.
            || format(E'slots AS (SELECT n.*, n.number + max(n.tick * %s - n.number) OVER (ORDER BY n.number) AS slot '
                'FROM numbered AS n)\n', layout.numbers)
            || format('SELECT s.relation, s.column_name, s.old_id, s.slot / %1$s * %2$s + %3$s + s.slot %% %1$s * %4$s FROM slots AS s',
                layout.numbers, layout.per_tick, layout.first, layout.per_number),
        'ANALYZE pg_temp.snowflake_new_ids',
        -- A foreign key that is not valid may have values that no key has: they stay. The
        -- owners of other tables call it, and may not read the table of the caller: so it
        -- runs with the caller's rights, and its names are bound when it is made. Calls give
        -- exactly these types, so that no other function of its name fits better.
        'CREATE FUNCTION pg_temp.snowflake_new_id(relation regclass, column_name name, old_id bigint) RETURNS bigint '
        'LANGUAGE sql STABLE STRICT SECURITY DEFINER '
            || 'RETURN coalesce((SELECT m.new_id FROM pg_temp.snowflake_new_ids AS m WHERE m.relation OPERATOR(pg_catalog.=) $1'
                ' AND m.column_name OPERATOR(pg_catalog.=) $2 AND m.old_id OPERATOR(pg_catalog.=) $3), $3)'
            || '; GRANT EXECUTE ON FUNCTION pg_temp.snowflake_new_id(regclass, name, bigint) TO PUBLIC'];
END $$;
