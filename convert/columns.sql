-- Which columns snowflake_convert() changes: step 1 of plan.sql, whose head has the rules.

-- An array as a list; refuses arrays of more dimensions and with nulls.
CREATE FUNCTION _snowflake_convert.check_list(list anyarray, name text) RETURNS anyarray
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF array_ndims(list) > 1 THEN
        RAISE EXCEPTION '% must be a one-dimensional array, and has % dimensions', name, array_ndims(list)
            USING ERRCODE = 'array_subscript_error', HINT = 'Give a list, as in ARRAY[''a'', ''b''].';
    ELSIF array_position(list, NULL) IS NOT NULL THEN
        RAISE EXCEPTION '% must not contain null', name
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Leave the null out.';
    END IF;
    -- The elements are numbered from 1, whatever the caller's subscripts are.
    RETURN list[:];
END
$$;

-- The tables that the caller means.
CREATE FUNCTION _snowflake_convert.tables(
    relations regclass[], schemas regnamespace[]) RETURNS regclass[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    class pg_class;
BEGIN
    IF (relations IS NULL) = (schemas IS NULL) THEN
        RAISE EXCEPTION 'either relations or schemas must be given'
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'As in snowflake_convert_plan(''{orders, customers}'') or snowflake_convert_plan(schemas => ''{public}'')';
    END IF;
    relations := coalesce(_snowflake_convert.check_list(relations, 'relations'), ARRAY(
        SELECT DISTINCT t FROM unnest(_snowflake_convert.check_list(schemas, 'schemas')) AS s CROSS JOIN unnest(_snowflake.tables_of(s)) AS t ORDER BY t));
    FOR i IN 1 .. cardinality(relations) LOOP
        SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = relations[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'relation with OID % does not exist', relations[i]::oid USING ERRCODE = 'undefined_table';
        ELSIF class.relkind NOT IN ('r', 'p') THEN
            RAISE EXCEPTION '% is not a table', _snowflake.name(relations[i])
                USING ERRCODE = 'wrong_object_type', HINT = 'Name tables, partitioned or not. Views of them are made again.';
        ELSIF class.oid < 12000 THEN
            -- FirstUnpinnedObjectId: PostgreSQL itself tells its catalogs by this number.
            RAISE EXCEPTION 'permission denied: % is a system catalog', _snowflake.name(relations[i])
                USING ERRCODE = 'insufficient_privilege';
        ELSIF class.relispartition THEN
            RAISE EXCEPTION '% is a partition', _snowflake.name(relations[i])
                USING ERRCODE = 'wrong_object_type',
                HINT = format('Name the whole table: %s', _snowflake.name(pg_partition_root(relations[i])));
        END IF;
    END LOOP;
    RETURN relations;
END
$$;

-- A sign of life in a statement that has run for ten seconds.
CREATE FUNCTION _snowflake_convert.tell(what text) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF clock_timestamp() > statement_timestamp() + interval '10 seconds' THEN
        RAISE NOTICE '% after % s', what, round(extract(epoch FROM clock_timestamp() - statement_timestamp()));
    END IF;
END
$$;

-- The keys of tables, and which of them are taken. A key that refers to another table has that
-- table's keys: it follows that table. A key that does not count, or whose default does not, may have
-- values of the application: it is taken if its table was named, or if it is bigint and without rows.
CREATE FUNCTION _snowflake_convert.keys(
    relations regclass[], are_named boolean,
    OUT relation regclass, OUT name name, OUT is_taken boolean, OUT note text)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.id, k.name, w.note IS NULL, w.note
    FROM unnest(relations) WITH ORDINALITY AS r (id, place)
    CROSS JOIN _snowflake.keys(r.id) AS k
    CROSS JOIN LATERAL (SELECT CASE
        WHEN k.refers_to IS NOT NULL THEN 'refers to table ' || _snowflake.name(k.refers_to)
            || ', and is changed with the key of that table only'
        WHEN NOT k.is_key AND EXISTS (SELECT FROM pg_index AS i
            WHERE i.indrelid = r.id AND i.indisprimary AND k.number = ANY ((i.indkey::smallint[])[0:i.indnkeyatts - 1]))
            THEN 'is part of the primary key, but does not draw from a sequence'
        WHEN NOT k.is_key THEN 'draws from a sequence, but is no key'
        WHEN NOT are_named AND NOT k.has_default AND k.base <> 'bigint'::regtype THEN
            'is a key without a default, so its values come from the application: name its table to change it'
        WHEN NOT are_named AND k.left_alone IS NOT NULL THEN k.left_alone || ', so it is left alone: name its table to change it'
        END AS note) AS w
    WHERE k.base IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
    ORDER BY r.place, k.number
$$;

-- The topmost tables that have a column which a table inherits; the table itself if it does not
-- inherit it.
CREATE FUNCTION _snowflake_convert.column_roots(relation regclass, column_name name) RETURNS SETOF regclass
    LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
    -- A scalar subquery, so that the index of pg_attribute is used in all cases.
    WITH RECURSIVE up (id) AS (
        SELECT relation::oid
        UNION
        SELECT i.inhparent FROM up AS u JOIN pg_inherits AS i ON i.inhrelid = u.id
        WHERE (SELECT NOT a.attisdropped FROM pg_attribute AS a WHERE a.attrelid = i.inhparent AND a.attname = column_name))
    SELECT u.id::regclass FROM up AS u
    WHERE NOT EXISTS (
        SELECT FROM pg_inherits AS i
        WHERE i.inhrelid = u.id
          AND (SELECT NOT a.attisdropped FROM pg_attribute AS a WHERE a.attrelid = i.inhparent AND a.attname = column_name))
$$;

-- The columns of these keys, and all columns of foreign keys that reach them, in the topmost tables
-- that have them. `origin` is the key that a column's values come from.
CREATE FUNCTION _snowflake_convert.reached(
    relations oid[], names name[],
    OUT id oid, OUT name name, OUT origin oid, OUT origin_name name)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE reached (id, name, origin, origin_name) AS (
        SELECT k.*, k.* FROM unnest(relations, names) AS k
        UNION
        SELECT t.root, h.attname, c.origin, c.origin_name
        FROM reached AS c
        CROSS JOIN _snowflake.inheritance(c.id, c.name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f'
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        CROSS JOIN _snowflake_convert.column_roots(k.conrelid, h.attname) AS t (root)
        WHERE u.there = f.number)
    SELECT * FROM reached
$$;

-- The keys of tables and all columns of foreign keys that reach them, in the topmost tables
-- that have them.
CREATE FUNCTION _snowflake_convert.columns(
    relations regclass[], are_named boolean,
    OUT relation regclass, OUT name name, OUT number smallint, OUT type oid, OUT base regtype, OUT is_key boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH keys (relations, names) AS (
        SELECT coalesce(array_agg(t.root::oid), '{}'), coalesce(array_agg(k.name), '{}')
        FROM _snowflake_convert.keys(relations, are_named) AS k
        CROSS JOIN _snowflake_convert.column_roots(k.relation, k.name) AS t (root)
        WHERE k.is_taken)
    SELECT c.id, c.name, a.attnum, a.atttypid, b.base, bool_or(c.id = c.origin AND c.name = c.origin_name)
    FROM keys AS k
    CROSS JOIN _snowflake_convert.reached(k.relations, k.names) AS c
    JOIN pg_class AS t ON t.oid = c.id
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.id AND a.attname = c.name AND NOT a.attisdropped
    CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
    WHERE b.base IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
    GROUP BY c.id, c.name, a.attnum, a.atttypid, b.base, n.nspname, t.relname
    ORDER BY n.nspname, t.relname, a.attnum
$$;

-- The default of a key, as the catalogs have it, for a generator or the default one.
CREATE FUNCTION _snowflake_convert.wanted_default(generator regclass) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- As PostgreSQL shows it.
    SELECT CASE WHEN generator <> _snowflake.default_generator()
        THEN format('%s(''%s''::regclass)', _snowflake.issuer(false)::regproc,
            replace(_snowflake.name(generator), '''', ''''''))
        ELSE _snowflake.issuer(true)::text END
$$;

-- The schema of both extensions, whose owner may rename it at any moment: for the statements that a
-- client runs. What these functions run themselves does not name it.
CREATE FUNCTION _snowflake_convert.schema() RETURNS regnamespace
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.pronamespace::regnamespace FROM pg_proc AS p WHERE p.oid = _snowflake.issuer(true)
$$;
