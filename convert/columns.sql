-- Which columns snowflake_convert() changes: step 1 of plan.sql, whose head has the rules.

-- An array as a list; refuses arrays of more dimensions and with nulls.
CREATE FUNCTION _snowflake_convert.check_list(list anyarray, name text) RETURNS anyarray
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- The tables that the caller means.
CREATE FUNCTION _snowflake_convert.tables(relations regclass[], schemas regnamespace[]) RETURNS regclass[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- What the names of a table and its key lead to expect as the name of a column that has its keys.
CREATE FUNCTION _snowflake_convert.expected_names(relation name, key name) RETURNS SETOF text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT v.name FROM lower(relation) AS t (name)
    CROSS JOIN LATERAL (VALUES (nullif(lower(key), 'id')), (t.name || '_id'), (regexp_replace(t.name, 's$', '') || '_id'),
        (regexp_replace(t.name, 'ies$', 'y') || '_id'), (regexp_replace(t.name, 'es$', '') || '_id')) AS v (name) WHERE v.name IS NOT NULL
$$;

-- The table and the column that a text names, as `schema.table.column` or, in one of the schemas of tables, `table.column`.
CREATE FUNCTION _snowflake_convert.parsed(text text, tables regclass[], OUT relation oid, OUT name name, OUT is_qualified boolean)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE cardinality(i.parts) WHEN 3 THEN to_regclass(format('%I.%I', i.parts[1], i.parts[2])) WHEN 2 THEN (
            SELECT CASE WHEN count(*) = 1 THEN min(c.oid) END FROM pg_class AS c WHERE c.relname = i.parts[1] AND c.relkind <> 'i'
              AND c.relnamespace IN (SELECT t.relnamespace FROM pg_class AS t WHERE t.oid = ANY (tables::oid[]))) END,
        (i.parts)[cardinality(i.parts)], cardinality(i.parts) > 1
    FROM parse_ident(text) AS i (parts)
$$;

-- The keys that the names of columns tell: the name of a key, or of its table with `id`, alone or behind an underscore.
CREATE FUNCTION _snowflake_convert.told_keys(tables oid[], columns name[], relations oid[], names name[],
    OUT relation oid, OUT name name, OUT origin oid, OUT origin_name name)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH keys AS MATERIALIZED (
        SELECT DISTINCT k.relation, k.name, e.expected, c.relnamespace
        FROM unnest(relations, names) AS k (relation, name) JOIN pg_class AS c ON c.oid = k.relation
        CROSS JOIN _snowflake_convert.expected_names(c.relname, k.name) AS e (expected)),
    found AS (
        SELECT u.*, k.relation AS origin, k.name AS origin_name, rank() OVER (PARTITION BY u.relation, u.name
            ORDER BY length(k.expected) DESC, k.relnamespace = c.relnamespace DESC) AS place
        FROM unnest(tables, columns) AS u (relation, name) JOIN pg_class AS c ON c.oid = u.relation
        JOIN keys AS k ON right('_' || lower(u.name), length(k.expected) + 1) = '_' || k.expected
            OR replace(lower(u.name), '_', '') = replace(k.expected, '_', ''))
    SELECT f.relation, f.name, min(f.origin), min(f.origin_name)::name
    FROM found AS f WHERE f.place = 1 GROUP BY f.relation, f.name HAVING count(DISTINCT (f.origin, f.origin_name)) = 1
$$;

-- The columns of `also` in the topmost tables that have them. A table without a schema is one of the schemas of the tables: a path
-- would find what others put there. A column for which no key is named gets the one that its name tells.
CREATE FUNCTION _snowflake_convert.also_columns(also text[], relations regclass[], are_named boolean) RETURNS _snowflake_convert.also_column[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    named constant _snowflake_convert.also_column[] := ARRAY(
        SELECT ROW (g.given, h.relation, h.name, t.relation, t.name, t.name IS DISTINCT FROM 'none' OR t.is_qualified)::_snowflake_convert.also_column
        FROM unnest(_snowflake_convert.check_list(also, 'also')) WITH ORDINALITY AS g (given, place)
        CROSS JOIN LATERAL regexp_match(g.given, '^((?:"(?:[^"]|"")*"|[^"=])*)(?:=(.*))?$') AS m (sides)
        CROSS JOIN LATERAL _snowflake_convert.parsed(coalesce(m.sides[1], g.given), relations) AS h
        CROSS JOIN LATERAL _snowflake_convert.parsed(m.sides[2], relations) AS t ORDER BY g.place);
    it _snowflake_convert.also_column;
    side record;
BEGIN
    FOREACH it IN ARRAY named LOOP
        FOR side IN
            SELECT v.*, c.relkind, a.attnum, a.attgenerated, format_type(a.atttypid, a.atttypmod) AS type, b.base
            FROM (VALUES (true, it.relation, it.name), (it.has_keys, it.origin, it.origin_name)) AS v (is_given, relation, name)
            LEFT JOIN pg_class AS c ON c.oid = v.relation
            LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = v.name AND a.attnum > 0 AND NOT a.attisdropped
            LEFT JOIN LATERAL _snowflake.base_type(a.atttypid, a.atttypmod) AS b ON true WHERE v.is_given AND v.name IS NOT NULL
        LOOP
            IF side.relkind IS NULL OR side.attnum IS NULL THEN
                RAISE EXCEPTION 'column "%" of also was not found', it.given
                    USING ERRCODE = CASE WHEN side.relkind IS NULL THEN 'undefined_table' ELSE 'undefined_column' END,
                    HINT = 'Give schema, table and column, as in public.posts.user_id, public.posts.user_id=public.users.id or public.posts.remote_id=none.';
            ELSIF side.relkind NOT IN ('r', 'p') OR side.relation < 12000 OR side.attgenerated <> '' THEN
                -- FirstUnpinnedObjectId, as above.
                RAISE EXCEPTION 'column "%" of also is %', it.given, CASE WHEN side.attgenerated <> '' THEN 'generated' ELSE 'not one of a table' END
                    USING ERRCODE = 'wrong_object_type', HINT = 'Leave it out: what is made of columns that change is made again.';
            ELSIF it.has_keys AND side.base NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) THEN
                RAISE EXCEPTION 'column "%" of also is of type %', it.given, side.type
                    USING ERRCODE = 'datatype_mismatch', HINT = 'Leave it out, and change it by hand.';
            END IF;
        END LOOP;
    END LOOP;
    RETURN ARRAY(
        SELECT ROW (format('%s.%I', _snowflake.name(h.root), n.name) || CASE WHEN NOT n.has_keys THEN '=none'
                ELSE coalesce('=' || _snowflake.name(t.root) || '.' || quote_ident(o.name), '') END,
            h.root, n.name, t.root, o.name, n.has_keys)::_snowflake_convert.also_column
        FROM unnest(named) AS n
        CROSS JOIN _snowflake_convert.column_roots(n.relation, n.name) AS h (root)
        LEFT JOIN (
            SELECT g.* FROM (SELECT array_agg(k.relation::oid) AS relations, array_agg(k.name) AS names
                FROM _snowflake_convert.keys(relations, are_named) AS k WHERE k.is_taken) AS k
            CROSS JOIN (SELECT array_agg(n.relation) AS relations, array_agg(n.name) AS names
                FROM unnest(named) AS n WHERE n.has_keys AND n.origin IS NULL) AS n
            CROSS JOIN _snowflake_convert.told_keys(n.relations, n.names, k.relations, k.names) AS g) AS g
            ON (g.relation, g.name) = (n.relation, n.name) AND n.has_keys AND n.origin IS NULL
        CROSS JOIN LATERAL (SELECT coalesce(n.origin, g.origin), coalesce(n.origin_name, g.origin_name)) AS o (relation, name)
        LEFT JOIN LATERAL _snowflake_convert.column_roots(o.relation, o.name) AS t (root) ON o.relation IS NOT NULL);
END $$;

-- A sign of life in a statement that has run for ten seconds.
CREATE FUNCTION _snowflake_convert.tell(what text) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF clock_timestamp() > statement_timestamp() + interval '10 seconds' THEN
        RAISE NOTICE '% after % s', what, round(extract(epoch FROM clock_timestamp() - statement_timestamp()));
    END IF;
END $$;

-- What the caller asks for.
CREATE FUNCTION _snowflake_convert.request(relations regclass[], schemas regnamespace[], also text[], generator regclass, set_default boolean)
    RETURNS _snowflake_convert.request LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ROW (t.tables, relations IS NOT NULL, _snowflake_convert.also_columns(also, t.tables, relations IS NOT NULL),
        generator, set_default)::_snowflake_convert.request
    FROM _snowflake_convert.tables(relations, schemas) AS t (tables)
$$;

-- The keys of tables, and which of them are taken. A key that refers to another table has that
-- table's keys: it follows that table. A key that does not count, or whose default does not, may have
-- values of the application: it is taken if its table was named, or if it is bigint and without rows.
CREATE FUNCTION _snowflake_convert.keys(relations regclass[], are_named boolean,
    OUT relation regclass, OUT name name, OUT is_taken boolean, OUT note text)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.id, k.name, w.note IS NULL, w.note FROM unnest(relations) WITH ORDINALITY AS r (id, place)
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
    LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    -- A scalar subquery, so that the index of pg_attribute is used in all cases.
    WITH RECURSIVE up (id) AS (
        SELECT relation::oid
        UNION SELECT i.inhparent FROM up AS u JOIN pg_inherits AS i ON i.inhrelid = u.id
        WHERE (SELECT NOT a.attisdropped FROM pg_attribute AS a WHERE a.attrelid = i.inhparent AND a.attname = column_name))
    SELECT u.id::regclass FROM up AS u
    WHERE NOT EXISTS (
        SELECT FROM pg_inherits AS i
        WHERE i.inhrelid = u.id
          AND (SELECT NOT a.attisdropped FROM pg_attribute AS a WHERE a.attrelid = i.inhparent AND a.attname = column_name))
$$;

-- The columns of these keys, and all columns that have their values, by foreign keys or by `also`, in the
-- topmost tables that have them. `origin` is the key that a column's values come from, if it is known.
CREATE FUNCTION _snowflake_convert.reached(relations oid[], names name[], also _snowflake_convert.also_column[],
    OUT id oid, OUT name name, OUT origin oid, OUT origin_name name)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE reached (id, name, origin, origin_name) AS (
        (SELECT k.*, k.* FROM unnest(relations, names) AS k
        UNION ALL SELECT a.relation, a.name, NULL, NULL FROM unnest(also) AS a WHERE a.has_keys)
        UNION SELECT n.root, n.name, c.origin, c.origin_name FROM reached AS c
        CROSS JOIN LATERAL (
            SELECT t.root::oid, h.attname FROM _snowflake.inheritance(c.id, c.name) AS f
            JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f'
            CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
            JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
            CROSS JOIN _snowflake_convert.column_roots(k.conrelid, h.attname) AS t (root) WHERE u.there = f.number
            UNION ALL SELECT a.relation, a.name FROM unnest(also) AS a WHERE (a.origin, a.origin_name) = (c.id, c.name)) AS n (root, name))
    SELECT * FROM reached
$$;

-- The keys of tables and all columns that have their values, in the topmost tables that have them.
CREATE FUNCTION _snowflake_convert.columns(what _snowflake_convert.request,
    OUT relation regclass, OUT name name, OUT number smallint, OUT type oid, OUT base regtype, OUT is_key boolean)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH keys (relations, names) AS (
        SELECT coalesce(array_agg(t.root::oid), '{}'), coalesce(array_agg(k.name), '{}')
        FROM _snowflake_convert.keys((what).relations, (what).are_named) AS k
        CROSS JOIN _snowflake_convert.column_roots(k.relation, k.name) AS t (root) WHERE k.is_taken)
    SELECT c.id, c.name, a.attnum, a.atttypid, b.base, coalesce(bool_or(c.id = c.origin AND c.name = c.origin_name), false) FROM keys AS k
    CROSS JOIN _snowflake_convert.reached(k.relations, k.names, (what).also) AS c
    JOIN pg_class AS t ON t.oid = c.id
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.id AND a.attname = c.name AND NOT a.attisdropped
    CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b WHERE b.base IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
    GROUP BY c.id, c.name, a.attnum, a.atttypid, b.base, n.nspname, t.relname
    ORDER BY n.nspname, t.relname, a.attnum
$$;

-- The default of a key, as the catalogs have it, for a generator or the default one.
CREATE FUNCTION _snowflake_convert.wanted_default(generator regclass) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    -- As PostgreSQL shows it.
    SELECT CASE WHEN generator <> _snowflake.default_generator()
        THEN format('%s(''%s''::regclass)', _snowflake.issuer(false)::regproc,
            replace(_snowflake.name(generator), '''', ''''''))
        ELSE _snowflake.issuer(true)::text END
$$;

-- The schema of both extensions, whose owner may rename it at any moment: for the statements that a
-- client runs. What these functions run themselves does not name it.
CREATE FUNCTION _snowflake_convert.schema() RETURNS regnamespace
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.pronamespace::regnamespace FROM pg_proc AS p WHERE p.oid = _snowflake.issuer(true)
$$;
