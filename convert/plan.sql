-- snowflake_convert() changes smallint and integer keys to bigint, with all foreign keys
-- that reach them, and makes a generator their default.
--
-- snowflake_convert_plan() returns the statements in order, and changes nothing. Without
-- `online`, snowflake_convert() locks the tables, makes the plan again, and runs exactly
-- these statements, in the caller's transaction; online.sql has the other way.
--
-- The plan is made in four steps:
--
-- 1. _snowflake_convert.columns() in columns.sql: the columns to change. It
--    begins with the keys of the tables, and follows foreign keys until there is no further
--    column. A column that is inherited stands for the column of the topmost table:
--    PostgreSQL changes it there only, with all partitions and child tables. So a foreign
--    key that one partition alone has leads to the column in the whole table.
-- 2. _snowflake_convert.dependents() in objects.sql: what depends on these
--    columns, as pg_depend has it, and what depends on that, with a level: an object is
--    dropped before those of lower levels, and made again after them.
-- 3. _snowflake_convert.remake() there: the statements that drop one such object
--    and make it again, from what the catalogs say of it.
-- 4. _snowflake_convert.plan() joins them. With a worker ID for old rows, it adds
--    what backfill.sql says; foreign keys of columns that get new values are
--    dropped before, and added again after.
--
-- What ALTER TABLE .. TYPE does by itself is left to it: indexes, constraints with their
-- foreign keys, statistics objects, replica identity, the sequence of an identity, casts of
-- defaults, partitions. What PostgreSQL would refuse in the midst of the work is found in
-- step 2, and is an obstacle: the plan has a row that says so, and the conversion does not
-- begin. An object of a kind that is not known here is an obstacle too.
--
-- No function here is SECURITY DEFINER, but for one that backfill_map() of
-- backfill.sql makes in pg_temp, with its names bound: the caller needs to own what is changed. The head
-- of set_default.sql says what the search_path of these functions means. JIT is off, since
-- to compile these queries would take longer than to run them.

CREATE FUNCTION _snowflake_convert.notes(
    columns jsonb, made_again jsonb, is_backfill boolean, OUT note text) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    WITH changed AS (
        SELECT c.relation, c.name, c.is_key, t.relname
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_key boolean)
        JOIN pg_class AS t ON t.oid = c.relation),
    members AS (
        SELECT DISTINCT f.member, f.number FROM changed AS c
        CROSS JOIN _snowflake.family(c.relation, c.name) AS f),
    -- Those whose values are replaced, and expressions that are made of them. A number in
    -- such an expression may be an old key.
    replaced AS (
        SELECT DISTINCT f.member, f.number, c.name, f.member = c.relation AS is_root
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, origin oid)
        CROSS JOIN _snowflake.family(c.relation, c.name) AS f WHERE c.origin IS NOT NULL),
    expressions (described, text) AS (
        SELECT o.described, array_to_string(o.statements, E'\n')
        FROM jsonb_to_recordset(made_again) AS o (described text, statements text[])
        UNION ALL
        SELECT format('index %s', _snowflake.name(i.indexrelid)),
            concat_ws(' ', pg_get_expr(i.indpred, i.indrelid), pg_get_expr(i.indexprs, i.indrelid))
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition
        WHERE EXISTS (SELECT FROM replaced AS r JOIN pg_depend AS d ON d.refobjid = r.member AND d.refobjsubid = r.number
            WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass)
        UNION ALL
        SELECT format('generated column %s.%I', _snowflake.name(a.attrelid), a.attname), pg_get_expr(e.adbin, e.adrelid)
        FROM pg_attrdef AS e JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated <> ''
        WHERE EXISTS (SELECT FROM replaced AS r JOIN pg_depend AS d ON d.refobjid = r.member AND d.refobjsubid = r.number
            WHERE r.is_root AND r.member = e.adrelid AND d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass)),
    foreign_schemas AS (
        SELECT n.oid FROM pg_namespace AS n WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'),
    -- What a table's name and a key's name lead to expect as the name of a column.
    names AS (
        SELECT lower(replace(c.name, '_', '')) AS name FROM changed AS c WHERE lower(c.name) <> 'id'
        UNION
        SELECT v.name FROM changed AS c
        CROSS JOIN LATERAL (SELECT lower(replace(c.relname, '_', ''))) AS t (name)
        CROSS JOIN LATERAL (VALUES (t.name || 'id'), (regexp_replace(t.name, 's$', '') || 'id'),
            (regexp_replace(t.name, 'ies$', 'y') || 'id'), (regexp_replace(t.name, 'es$', '') || 'id')) AS v (name)
        WHERE c.is_key)
    SELECT format('published by %I: subscribers need bigint columns before the first new ID', p.pubname)
    FROM pg_publication AS p
    WHERE EXISTS (
        SELECT FROM pg_publication_tables AS t
        JOIN pg_class AS c ON c.relname = t.tablename
        JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = t.schemaname
        JOIN members AS m ON m.member = c.oid
        WHERE t.pubname = p.pubname)
    UNION ALL
    SELECT format('foreign table %s is a part of a table that is changed: change its column where its rows are kept',
        _snowflake.name(c.oid))
    FROM pg_class AS c WHERE c.relkind = 'f' AND c.oid IN (SELECT m.member FROM members AS m)
    UNION ALL
    SELECT format('constraint %I of table %s has a condition that new IDs need to satisfy: %s',
        k.conname, _snowflake.name(k.conrelid), pg_get_constraintdef(k.oid))
    FROM pg_constraint AS k
    WHERE k.contype = 'c' AND k.coninhcount = 0 AND k.conname !~ '^[=~].*__bigint$' AND EXISTS (
        SELECT FROM members AS m WHERE m.member = k.conrelid AND m.number = ANY (k.conkey))
    UNION ALL
    SELECT format('%s has numbers in its definition, which stay: if they are old keys, make it anew with the new ones after the conversion', e.described)
    FROM expressions AS e WHERE is_backfill AND e.text ~ '(?<![\w."$])[0-9]+(?![\w."])'
    UNION ALL
    SELECT format('column %s.%I has the default %s, which stays: if that is an old key, change it to the new one after the conversion',
        _snowflake.name(r.member), r.name, pg_get_expr(e.adbin, e.adrelid))
    FROM replaced AS r JOIN pg_attrdef AS e ON e.adrelid = r.member AND e.adnum = r.number
    WHERE is_backfill AND pg_get_expr(e.adbin, e.adrelid) ~ '(?<![\w."$])[0-9]+(?![\w."])'
      AND NOT EXISTS (SELECT FROM changed AS c WHERE c.relation = r.member AND c.name = r.name AND c.is_key)
    UNION ALL
    (SELECT format('column %s.%I is %s, and named like a key, but has no foreign key: %s',
        _snowflake.name(a.attrelid), a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN is_backfill THEN 'its values do not follow the keys that change' ELSE 'it stays as it is' END)
    FROM pg_attribute AS a
    JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition
    WHERE c.relnamespace IN (SELECT f.oid FROM foreign_schemas AS f) AND a.attnum > 0 AND NOT a.attisdropped
      AND (a.atttypid IN ('smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype)
        OR is_backfill AND a.atttypid IN ('bigint'::regtype, 'bigint[]'::regtype))
      AND (EXISTS (SELECT FROM names AS n
              WHERE right(regexp_replace(lower(replace(a.attname, '_', '')), 's$', ''), length(n.name)) = n.name)
          -- Some refer to any table, such as object_id.
          OR a.attname ~ '(_id|_ids|[a-z]Ids?)$' AND c.relnamespace IN (SELECT t.relnamespace FROM changed AS d JOIN pg_class AS t ON t.oid = d.relation)
            AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))
      AND (a.attrelid, a.attnum) NOT IN (SELECT m.member, m.number FROM members AS m)
      AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = a.attrelid AND k.contype = 'f' AND a.attnum = ANY (k.conkey))
      AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
    ORDER BY 1)
    UNION ALL
    -- A function is listed if a view that is made again calls it, or if its text has a
    -- changed table or column; and if it has an argument, a result or a text with integers.
    (SELECT format('%s %s %s', CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END, p.oid::regprocedure,
        CASE WHEN d.is_called AND i.has_integers THEN 'takes integers, and is called by an object that is made again: if it is given keys, make one that takes bigint first'
        WHEN i.is_typed THEN 'has integers: if they are keys, change them to bigint'
        ELSE 'has numbers: if they are old keys, change them to new ones after the conversion' END)
    FROM pg_proc AS p
    CROSS JOIN LATERAL (SELECT EXISTS (
        SELECT FROM jsonb_to_recordset(made_again) AS o (class oid, id oid)
        JOIN pg_depend AS d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        WHERE (d.classid, d.objid) = (o.class, o.id) OR (o.class, o.id) = ('pg_class'::regclass, r.ev_class)) AS is_called) AS d
    CROSS JOIN LATERAL (SELECT ARRAY['smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype]::oid[]
        && (coalesce(p.proallargtypes, p.proargtypes::oid[]) || p.prorettype) AS has_integers) AS h
    CROSS JOIN LATERAL (SELECT h.has_integers, h.has_integers OR p.prosrc ~* '\m(smallint|integer|int|int2|int4)\M' AS is_typed) AS i
    WHERE p.pronamespace IN (SELECT f.oid FROM foreign_schemas AS f) AND p.prokind IN ('f', 'p', 'w')
      AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e')
      AND (d.is_called AND i.has_integers
        OR (i.is_typed OR is_backfill AND p.prosrc ~ '(?<![\w."$])[0-9]+(?![\w."])')
        AND EXISTS (
            SELECT FROM changed AS c
            CROSS JOIN LATERAL (VALUES (c.relname), (CASE WHEN lower(c.name) <> 'id' THEN c.name END)) AS w (word)
            WHERE strpos(lower(p.prosrc || ' ' || pg_get_functiondef(p.oid)), lower(w.word)) > 0))
    ORDER BY 1)
$$;
COMMENT ON FUNCTION _snowflake_convert.notes(jsonb, jsonb, boolean) IS
    'internal, for snowflake_convert(): what a person has to look at, since the catalogs cannot tell whether it has to do with the keys';

-- The rows have no numbers yet. Obstacles come first, then statements, then notes.
CREATE FUNCTION _snowflake_convert.plan(
    relations regclass[], are_named boolean, generator regclass, set_default boolean,
    backfill_by name[], worker_id bigint, only_obstacles boolean,
    OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    columns jsonb;      -- of step 1; later, those of them that are changed in some way
    keys jsonb := '[]'; -- the keys whose old values are replaced
    map text;           -- the table of old and new values
    generated jsonb;    -- generated columns that are made of them
    tables oid[];       -- all of them in all members of their families, as pairs
    numbers smallint[];
    dependents jsonb;
    made_again jsonb;   -- the same with their statements, by level
    sources oid[];      -- the tables to lock
    changed_statistics oid[];
    drop_keys text[];   -- statements
    add_keys text[];
    is_refused boolean := false;
    wanted constant text := _snowflake_convert.wanted_default(generator);
    every constant text := 'ACCESS EXCLUSIVE';
BEGIN
    columns := (SELECT coalesce(jsonb_agg(to_jsonb(c)), '[]') FROM (
        SELECT c.relation::oid, c.name, c.number, c.type, c.base::oid, c.is_key, c.base <> 'bigint'::regtype AS is_altered
        FROM _snowflake_convert.columns(relations, are_named) AS c) AS c);
    IF worker_id IS NOT NULL THEN
        keys := (SELECT coalesce(jsonb_agg(to_jsonb(k)), '[]')
            FROM _snowflake_convert.backfill_keys(columns, wanted, backfill_by) AS k);
        columns := (SELECT coalesce(jsonb_agg(c.value || coalesce(to_jsonb(b), '{}') ORDER BY c.ordinality), '[]')
            FROM jsonb_array_elements(columns) WITH ORDINALITY AS c
            LEFT JOIN (SELECT b.relation, b.name, b.origin, b.origin_name, b.origins, true AS is_altered
                       FROM _snowflake_convert.backfill_columns(columns, keys) AS b) AS b
                ON b.relation = (c.value->>'relation')::oid AND b.name = (c.value->>'name')::name);
        map := (SELECT CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END || '.snowflake_old_ids'
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = (keys->0->>'relation')::oid);
    END IF;
    SELECT coalesce(array_agg(f.member::oid), '{}'), coalesce(array_agg(f.number), '{}') INTO tables, numbers
    FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_altered boolean)
    CROSS JOIN _snowflake.family(c.relation, c.name) AS f
    WHERE c.is_altered;
    generated := (SELECT coalesce(jsonb_agg(to_jsonb(g)), '[]') FROM (
        SELECT DISTINCT r.id::oid AS relation, a.attname AS name
        FROM unnest(tables, numbers) AS u (id, number)
        JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = u.id AND d.refobjsubid = u.number
        JOIN pg_attrdef AS e ON e.oid = d.objid AND e.adrelid = u.id
        JOIN pg_attribute AS a ON a.attrelid = u.id AND a.attnum = e.adnum AND a.attgenerated <> ''
        CROSS JOIN _snowflake_convert.column_roots(u.id, a.attname) AS r (id)) AS g);
    SELECT tables || coalesce(array_agg(f.member::oid), '{}'), numbers || coalesce(array_agg(f.number), '{}') INTO tables, numbers
    FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
    CROSS JOIN _snowflake.family(g.relation, g.name) AS f;
    dependents := (SELECT coalesce(jsonb_agg(to_jsonb(d)), '[]') FROM (
        SELECT d.class::oid, d.id, d.level FROM _snowflake_convert.dependents(tables, numbers) AS d) AS d);
    made_again := (SELECT coalesce(jsonb_agg(to_jsonb(d) ORDER BY d.level, d.described), '[]') FROM (
        SELECT d.class, d.id, d.level, r.*
        FROM jsonb_to_recordset(dependents) AS d (class oid, id oid, level integer)
        CROSS JOIN _snowflake_convert.remake(d.class, d.id) AS r) AS d);
    -- Everything about the keys that have their default already is left out.
    columns := (SELECT coalesce(jsonb_agg(c.value ORDER BY c.ordinality), '[]')
        FROM jsonb_array_elements(columns) WITH ORDINALITY AS c
        WHERE (c.value->>'is_altered')::boolean
           OR set_default AND (c.value->>'is_key')::boolean AND EXISTS (
              SELECT FROM _snowflake.family((c.value->>'relation')::oid, (c.value->>'name')::name) AS f
              WHERE f.expression IS DISTINCT FROM wanted));

    -- The tables to lock: those of the columns, and those that rules, policies and
    -- triggers belong to.
    sources := ARRAY(
        SELECT c.relation FROM jsonb_to_recordset(columns) AS c (relation oid)
        UNION
        SELECT g.relation FROM jsonb_to_recordset(generated) AS g (relation oid)
        UNION
        SELECT c.oid FROM jsonb_to_recordset(dependents) AS d (class oid, id oid)
        LEFT JOIN pg_rewrite AS r ON d.class = 'pg_rewrite'::regclass AND r.oid = d.id
        LEFT JOIN pg_trigger AS t ON d.class = 'pg_trigger'::regclass AND t.oid = d.id
        LEFT JOIN pg_policy AS p ON d.class = 'pg_policy'::regclass AND p.oid = d.id
        JOIN pg_class AS c ON c.oid IN (r.ev_class, t.tgrelid, p.polrelid) AND c.relkind IN ('r', 'p'));

    changed_statistics := ARRAY(
        SELECT DISTINCT d.objid FROM unnest(tables, numbers) AS u (id, number)
        JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = u.id AND d.refobjsubid = u.number);

    -- Foreign keys of columns that get new values, in the order in which they were made.
    WITH members AS (
        SELECT f.member::oid AS id, f.number
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, origin oid)
        CROSS JOIN _snowflake.family(c.relation, c.name) AS f WHERE c.origin IS NOT NULL),
    found AS (
        SELECT k.*, _snowflake.name(k.conrelid) AS table_name
        FROM pg_constraint AS k
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (
            SELECT FROM members AS m WHERE m.id = k.conrelid AND m.number = ANY (k.conkey) OR m.id = k.confrelid AND m.number = ANY (k.confkey)))
    SELECT coalesce(array_agg(format('ALTER TABLE %s DROP CONSTRAINT %I', f.table_name, f.conname) ORDER BY f.oid), '{}'),
        coalesce(array_agg(format('ALTER TABLE %s ADD CONSTRAINT %I %s', f.table_name, f.conname, pg_get_constraintdef(f.oid)) ORDER BY f.oid), '{}')
            || coalesce(array_agg(format('COMMENT ON CONSTRAINT %I ON %s IS %L', f.conname, f.table_name, d.description) ORDER BY f.oid)
                FILTER (WHERE d.description IS NOT NULL), '{}')
    INTO drop_keys, add_keys
    FROM found AS f LEFT JOIN pg_description AS d ON d.classoid = 'pg_constraint'::regclass AND d.objoid = f.oid;

    -- Obstacles.
    action := 'obstacle';
    FOR note IN
        SELECT o.note FROM (
        WITH RECURSIVE changed AS (
            SELECT c.*, format('%s.%I', _snowflake.name(c.relation), c.name) AS described
            FROM jsonb_to_recordset(columns) AS c (relation oid, name name, number smallint, type oid, base oid, origin oid, origins bigint, is_altered boolean)
            WHERE c.is_altered),
        members AS (
            SELECT f.member, f.number, c.described FROM changed AS c
            CROSS JOIN _snowflake.family(c.relation, c.name) AS f),
        parts AS (
            SELECT c.relation, f.member, false AS is_generated FROM changed AS c
            CROSS JOIN _snowflake.family(c.relation, c.name) AS f
            UNION
            SELECT g.relation, f.member, true FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            CROSS JOIN _snowflake.family(g.relation, g.name) AS f),
        -- Types whose values have values of another type in them.
        holders (id, within) AS MATERIALIZED (
            SELECT y.typbasetype, y.oid FROM pg_type AS y WHERE y.typtype = 'd'
            UNION ALL
            SELECT y.typelem, y.oid FROM pg_type AS y WHERE y.typelem <> 0
            UNION ALL
            SELECT r.rngsubtype, w.id FROM pg_range AS r CROSS JOIN unnest(ARRAY[r.rngtypid, r.rngmultitypid]) AS w (id)
            UNION ALL
            SELECT a.atttypid, c.reltype
            FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid AND c.reltype <> 0
            -- A type of PostgreSQL itself is none of them.
            WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 12000),
        row_types (relation, id) AS (
            SELECT t.oid, t.reltype FROM pg_class AS t WHERE t.oid IN (SELECT m.member FROM members AS m)
            UNION
            SELECT r.relation, h.within FROM row_types AS r JOIN holders AS h ON h.id = r.id)
        SELECT format('must be owner of %s', pg_describe_object('pg_class'::regclass, c.oid, 0))
        FROM pg_class AS c
        WHERE (c.oid = ANY (sources) OR c.oid IN (SELECT m.member FROM members AS m)) AND NOT pg_has_role(c.relowner, 'USAGE')
        UNION ALL
        SELECT format('must be owner of %s', d.described)
        FROM jsonb_to_recordset(made_again) AS d (described text, owner oid) WHERE NOT pg_has_role(d.owner, 'USAGE')
        UNION ALL
        -- They are made again by the caller, and then given to their owner.
        SELECT format('must be owner of %s', pg_describe_object('pg_statistic_ext'::regclass, x.oid, 0))
        FROM pg_statistic_ext AS x
        WHERE NOT pg_has_role(x.stxowner, 'USAGE') AND (x.oid = ANY (changed_statistics)
            OR x.stxrelid IN (SELECT d.id FROM jsonb_to_recordset(dependents) AS d (class oid, id oid) WHERE d.class = 'pg_class'::regclass))
        UNION ALL
        -- A statement about a table runs as its owner.
        SELECT DISTINCT format('table %s belongs to role %I, which does not have the rights of role %I, the owner of %s: give both to one role',
            _snowflake.name(t.oid), pg_get_userbyid(t.relowner), pg_get_userbyid(m.relowner), _snowflake.name(m.oid))
        FROM parts AS p JOIN pg_class AS t ON t.oid = p.relation JOIN pg_class AS m ON m.oid = p.member
        WHERE t.relowner <> quote_ident(current_user)::regrole AND NOT pg_has_role(t.relowner, m.relowner, 'USAGE')
        UNION ALL
        SELECT DISTINCT format('role %I, which owns table %s, needs: GRANT %s ON SCHEMA %I TO %1$I',
            pg_get_userbyid(t.relowner), _snowflake.name(t.oid), w.privilege, n.nspname)
        FROM parts AS p JOIN pg_class AS t ON t.oid = p.member
        -- The indexes of generated columns are made anew. So are those of partitioned tables
        -- that stay in use. A foreign key is made anew too.
        CROSS JOIN LATERAL (
            SELECT t.relnamespace, CASE WHEN only_obstacles AND t.relkind = 'p' OR p.is_generated THEN 'CREATE' END
            UNION SELECT t.relnamespace, 'USAGE'
            UNION SELECT f.relnamespace, 'USAGE' FROM pg_constraint AS k JOIN pg_class AS f ON f.oid = k.confrelid
            WHERE k.contype = 'f' AND k.conrelid = t.oid AND k.conparentid = 0 AND EXISTS (SELECT FROM members AS m WHERE m.member = t.oid AND m.number = ANY (k.conkey))) AS w (schema, privilege)
        JOIN pg_namespace AS n ON n.oid = w.schema AND t.relpersistence <> 't'
        WHERE t.relowner <> quote_ident(current_user)::regrole AND NOT has_schema_privilege(t.relowner, n.oid, w.privilege)
        UNION ALL
        SELECT format('role %I, which owns table %s, needs for its constraint %I: GRANT REFERENCES ON TABLE %s TO %1$I',
            pg_get_userbyid(t.relowner), _snowflake.name(t.oid), k.conname, _snowflake.name(k.confrelid))
        FROM pg_constraint AS k JOIN pg_class AS t ON t.oid = k.conrelid
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM members AS m WHERE m.member = t.oid AND m.number = ANY (k.conkey))
          AND t.relowner <> quote_ident(current_user)::regrole
          AND NOT (SELECT bool_and(has_column_privilege(t.relowner, k.confrelid, u.number, 'REFERENCES')) FROM unnest(k.confkey) AS u (number))
        UNION ALL
        SELECT format('%s is of domain %s over %s: change the column to bigint or to another domain first', c.described, c.type::regtype, c.base::regtype)
        FROM changed AS c WHERE c.type <> c.base
        UNION ALL
        SELECT format('table %s is partitioned by %s: PostgreSQL cannot change the type of such a column, so make a new table, and copy the rows',
            _snowflake.name(m.member), m.described)
        FROM members AS m
        WHERE EXISTS (SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = m.member AND d.objsubid = m.number
              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.member AND d.refobjsubid = 0 AND d.deptype = 'i')
        UNION ALL
        SELECT format('%s is inherited from two tables, which PostgreSQL cannot change together', c.described)
        FROM (SELECT m.member, format('%s.%I', _snowflake.name(m.member), a.attname) AS described
              FROM members AS m JOIN pg_attribute AS a ON a.attrelid = m.member AND a.attnum = m.number
              WHERE a.attinhcount > 1 GROUP BY m.member, a.attname) AS c
        UNION ALL
        SELECT format('table %s is of type %s: change the type first', _snowflake.name(c.oid), c.reloftype::regtype)
        FROM pg_class AS c WHERE c.oid IN (SELECT m.member FROM members AS m) AND c.reloftype <> 0
        UNION ALL
        SELECT DISTINCT format('%s has the row type of table %s%s, and PostgreSQL cannot change the rows in it: %s first',
            CASE c.relkind WHEN 'i' THEN 'index ' || _snowflake.name(c.oid)
                ELSE format('column %s.%I', _snowflake.name(c.oid), a.attname) END,
            _snowflake.name(t.oid),
            CASE WHEN a.atttypid IN (y.oid, y.typarray) THEN '' ELSE ', within type ' || format_type(a.atttypid, NULL) END,
            CASE c.relkind WHEN 'i' THEN 'drop it' ELSE 'change its type' END)
        FROM row_types AS r
        JOIN pg_class AS t ON t.oid = r.relation
        JOIN pg_type AS y ON y.oid = t.reltype
        JOIN pg_attribute AS a ON a.atttypid = r.id AND a.attnum > 0 AND NOT a.attisdropped
        JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'm', 'f', 'i')
        UNION ALL
        SELECT DISTINCT format('%s is a temporary table of another session', _snowflake.name(c.oid))
        FROM pg_class AS c
        WHERE c.oid IN (SELECT m.member FROM members AS m) AND c.relpersistence = 't' AND c.relnamespace <> pg_my_temp_schema()
        UNION ALL
        SELECT format('%s belongs to extension %I', pg_describe_object(d.classid, d.objid, 0), x.extname)
        FROM pg_depend AS d JOIN pg_extension AS x ON x.oid = d.refobjid
        WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
          AND (d.classid = 'pg_class'::regclass AND d.objid IN (SELECT m.member FROM members AS m)
            OR (d.classid, d.objid) IN (SELECT o.class, o.id FROM jsonb_to_recordset(dependents) AS o (class oid, id oid)))
        UNION ALL
        SELECT format('table %s is being converted while it is in use: finish that, or undo it by snowflake_convert_undo()',
            _snowflake.name(c.relation))
        FROM changed AS c
        WHERE _snowflake_convert.copy_number(c.relation, c.name, c.relation) IS NOT NULL
        UNION ALL
        SELECT format('Citus distributes table %s: change it as the documentation of Citus says', _snowflake.name(c.relation))
        FROM (SELECT DISTINCT c.relation FROM changed AS c) AS c
        WHERE _snowflake.distribution(c.relation) IS NOT NULL
        UNION ALL
        SELECT format('%s refers to keys of several tables, which get different new values', c.described)
        FROM changed AS c WHERE c.origins > 1
        UNION ALL
        SELECT format('table %s is there already, and has the old keys of an earlier conversion: rename or drop it', map) WHERE to_regclass(map) IS NOT NULL
        UNION ALL
        -- ALTER TABLE changes the type of its column, but no row.
        SELECT format('foreign table %s is a part of a table whose old rows get IDs, and its rows would keep their keys', _snowflake.name(c.oid))
        FROM pg_class AS c
        WHERE c.relkind = 'f' AND worker_id IS NOT NULL AND c.oid IN (SELECT m.member FROM members AS m)
        UNION ALL
        -- What ALTER TABLE changes is not replicated.
        SELECT DISTINCT format('table %s is published by %I, and new keys of old rows do not reach subscribers:'
            ' take it out of the publication before, and copy its rows to them anew after', _snowflake.name(n.oid), p.pubname)
        FROM changed AS d
        CROSS JOIN _snowflake.family(d.relation, d.name) AS f
        JOIN pg_class AS c ON c.oid = f.member AND c.relpersistence = 'p'
        CROSS JOIN LATERAL (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) AS a (relid)) AS m (id)
        JOIN pg_class AS n ON n.oid = m.id
        CROSS JOIN pg_publication AS p
        WHERE d.origin IS NOT NULL AND (p.puballtables AND n.oid = d.relation
            OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = n.oid)
            OR EXISTS (SELECT FROM pg_publication_namespace AS s WHERE s.pnpubid = p.oid AND s.pnnspid = n.relnamespace))
        UNION ALL
        SELECT o FROM _snowflake_convert.backfill_obstacles(keys, generator, worker_id) AS o WHERE worker_id IS NOT NULL
        UNION ALL
        SELECT format('%s depends on a column that changes, or on a view of it, and cannot be made again: drop it before, and make it again after', d.described)
        FROM jsonb_to_recordset(made_again) AS d (described text, statements text[]) WHERE d.statements IS NULL
        UNION ALL
        -- PostgreSQL writes the operator class into the new index, unless it is the default.
        SELECT DISTINCT format('index %s has operator class %I, which is for integers: make the index without it first',
            _snowflake.name(i.indexrelid), o.opcname)
        FROM members AS m
        JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.member AND d.refobjsubid = m.number
        JOIN pg_index AS i ON i.indexrelid = d.objid
        CROSS JOIN unnest(i.indkey::smallint[], i.indclass::oid[]) AS k (number, class)
        JOIN pg_opclass AS o ON o.oid = k.class AND o.opcintype IN ('smallint'::regtype, 'integer'::regtype)
        WHERE k.number IN (m.number, 0) AND NOT (o.opcdefault AND EXISTS (
            SELECT FROM pg_opclass AS w WHERE w.opcmethod = o.opcmethod AND w.opcintype = 'bigint'::regtype AND w.opcdefault))
        UNION ALL
        -- It depends on an index that is made anew, but not on the column.
        SELECT DISTINCT format('constraint %I of table %s refers to a key that includes %s, so PostgreSQL cannot change that column: drop it before, and add it again after',
            k.conname, _snowflake.name(k.conrelid), m.described)
        FROM (TABLE members
              UNION ALL
              SELECT f.member, f.number, format('%s.%I', _snowflake.name(g.relation), g.name)
              FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
              CROSS JOIN _snowflake.family(g.relation, g.name) AS f) AS m
        JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.member AND k.conparentid = 0 AND m.number <> ALL (k.confkey)
        JOIN pg_index AS i ON i.indexrelid = k.conindid AND m.number = ANY (i.indkey::smallint[])
        UNION ALL
        -- A grant is made again by the role that made it.
        SELECT DISTINCT format('privileges on %s were granted by role %I, of which the caller is no member: let its owner grant them instead',
            g.described, pg_get_userbyid(e.grantor))
        FROM (
            SELECT pg_describe_object(o.class, o.id, 0), coalesce(c.relowner, p.proowner), l.acl
            FROM jsonb_to_recordset(dependents) AS o (class oid, id oid)
            LEFT JOIN pg_class AS c ON o.class = 'pg_class'::regclass AND c.oid = o.id
            LEFT JOIN pg_proc AS p ON o.class = 'pg_proc'::regclass AND p.oid = o.id
            CROSS JOIN LATERAL (
                SELECT coalesce(c.relacl, p.proacl)
                UNION ALL
                SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = c.oid) AS l (acl)
            UNION ALL
            SELECT pg_describe_object('pg_class'::regclass, f.member, f.number), c.relowner, a.attacl
            FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            CROSS JOIN _snowflake.family(g.relation, g.name) AS f
            JOIN pg_class AS c ON c.oid = f.member
            JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number) AS g (described, owner, acl)
        CROSS JOIN aclexplode(g.acl) AS e
        WHERE e.grantor <> g.owner AND NOT pg_has_role(e.grantor, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
        UNION ALL
        SELECT l FROM _snowflake_convert.literals(made_again) AS l
        UNION ALL
        -- PostgreSQL 16 or later has these.
        SELECT format('generated column %s.%I has an expression of its own, which that of table %s would replace: detach table %1$s, convert both tables, and attach it again',
            _snowflake.name(f.member), g.name, _snowflake.name(g.relation))
        FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
        CROSS JOIN _snowflake.family(g.relation, g.name) AS f
        WHERE f.expression IS DISTINCT FROM (SELECT r.expression FROM _snowflake.family(g.relation, g.name) AS r WHERE r.member = g.relation)
        UNION ALL
        -- Its foreign keys would be dropped with the column.
        SELECT format('constraint %I of table %s refers to a generated column', k.conname, _snowflake.name(k.conrelid))
        FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
        CROSS JOIN _snowflake.family(g.relation, g.name) AS f
        JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0
            AND (k.confrelid = f.member AND f.number = ANY (k.confkey) OR k.conrelid = f.member AND f.number = ANY (k.conkey))
        ) AS o (note)
        -- What the caller may do comes first.
        ORDER BY o.note NOT LIKE 'must be owner of %', o.note
    LOOP
        is_refused := true;
        RETURN NEXT;
    END LOOP;
    note := NULL;
    IF only_obstacles THEN
        RETURN;
    END IF;

    IF sources <> '{}' THEN
        action := 'lock';
        statement := (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE',
                string_agg(n.name, ', ' ORDER BY n.name))
            FROM unnest(sources) AS s (id) CROSS JOIN _snowflake.name(s.id) AS n (name));
        locks := every;
        RETURN NEXT;
    END IF;

    action := 'drop';
    FOR statement, note IN
        SELECT d.drop_statement, NULL
        FROM ROWS FROM (jsonb_to_recordset(made_again) AS (drop_statement text)) WITH ORDINALITY AS d (drop_statement, place)
        ORDER BY d.place DESC
    LOOP
        RETURN NEXT;
    END LOOP;

    IF keys <> '[]' AND columns <> '[]' AND NOT is_refused THEN
        action := 'backfill';
        locks := NULL;
        FOREACH statement IN ARRAY _snowflake_convert.backfill_map(keys, generator, worker_id) LOOP
            RETURN NEXT;
        END LOOP;
        action := 'drop';
        locks := every;
        FOREACH statement IN ARRAY drop_keys LOOP
            RETURN NEXT;
        END LOOP;
    END IF;

    -- DROP COLUMN would not drop a constraint that has the column in an expression.
    action := 'drop';
    FOR statement IN
        SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', _snowflake.name(k.conrelid), k.conname)
        FROM pg_constraint AS k
        WHERE k.contype = 'x' AND k.conparentid = 0 AND EXISTS (
            SELECT FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            CROSS JOIN _snowflake.family(g.relation, g.name) AS f
            WHERE f.member = k.conrelid AND f.number = ANY (_snowflake_convert.index_columns(k.conindid)) AND f.number <> ALL (k.conkey))
        ORDER BY 1
    LOOP
        RETURN NEXT;
    END LOOP;

    -- One statement for each table, so that it is rewritten once. PostgreSQL carries out the
    -- parts in this order. A generated column of a child table alone goes before.
    action := 'alter';
    FOR statement, rewrites, note IN
        WITH made AS (
            SELECT g.relation, g.name, a.attnum,
                format('ADD COLUMN %I %s', g.name, CASE
                    WHEN a.atttypid IN ('smallint'::regtype, 'integer'::regtype) THEN 'bigint'
                    ELSE format_type(a.atttypid, a.atttypmod) END)
                || CASE WHEN a.attcollation <> y.typcollation THEN
                    (SELECT format(' COLLATE %I.%I', n.nspname, o.collname) FROM pg_collation AS o
                     JOIN pg_namespace AS n ON n.oid = o.collnamespace WHERE o.oid = a.attcollation) ELSE '' END
                || format(' GENERATED ALWAYS AS (%s) %s', pg_get_expr(d.adbin, d.adrelid),
                    CASE a.attgenerated WHEN 's' THEN 'STORED' ELSE 'VIRTUAL' END)
                || CASE WHEN a.attnotnull THEN coalesce(
                    -- PostgreSQL 18 or later has it in pg_constraint.
                    (SELECT format(' CONSTRAINT %I NOT NULL%s', k.conname, CASE WHEN k.connoinherit THEN ' NO INHERIT' ELSE '' END)
                     FROM pg_constraint AS k WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum]), ' NOT NULL')
                    ELSE '' END AS definition
            FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            JOIN pg_attribute AS a ON a.attrelid = g.relation AND a.attname = g.name
            JOIN pg_type AS y ON y.oid = a.atttypid
            JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum),
        parts (relation, phase, place, part) AS (
            SELECT m.relation, 1, m.attnum, format('DROP COLUMN %I', m.name) FROM made AS m
            UNION ALL
            SELECT c.relation, 2, c.number, format('ALTER COLUMN %I TYPE bigint', c.name)
                || CASE WHEN c.origin IS NULL THEN ''
                    ELSE format(' USING pg_temp.snowflake_new_id(%L::pg_catalog.regclass, %L::pg_catalog.name, %I::bigint)', _snowflake.name(c.origin), c.origin_name, c.name) END
            FROM jsonb_to_recordset(columns) AS c (relation oid, name name, number smallint, origin oid, origin_name name, is_altered boolean)
            WHERE c.is_altered
            UNION ALL
            SELECT m.relation, 3, m.attnum, m.definition FROM made AS m),
        -- Whether the column that it is made of is inherited.
        alone AS (
            SELECT DISTINCT m.relation FROM made AS m
            WHERE NOT EXISTS (SELECT FROM parts AS p WHERE p.relation = m.relation AND p.phase = 2))
        SELECT format('ALTER TABLE %s %s', _snowflake.name(p.relation), string_agg(p.part, ', ' ORDER BY p.phase, p.place)),
            (SELECT nullif(sum(pg_total_relation_size(f.member)), 0)
             FROM (SELECT DISTINCT f.member
                   FROM jsonb_to_recordset(columns) AS c (relation oid, name name)
                   CROSS JOIN _snowflake.family(c.relation, c.name) AS f
                   WHERE c.relation = p.relation
                   UNION SELECT p.relation) AS f
             WHERE max(p.phase) > 1),
            CASE WHEN max(p.phase) = 3 THEN 'a generated column moves to the end of the table' END
        FROM parts AS p
        GROUP BY p.relation, CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN p.phase ELSE 2 END
        ORDER BY CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN min(p.phase) ELSE 2 END,
            _snowflake.name(p.relation)
    LOOP
        RETURN NEXT;
    END LOOP;
    rewrites := NULL;
    note := NULL;

    -- What has gone with a generated column.
    action := 'make';
    FOR statement IN
        WITH members AS (
            SELECT f.member::oid AS id, f.number, g.name, g.relation
            FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            CROSS JOIN _snowflake.family(g.relation, g.name) AS f),
        -- Also those of partitions, which keep their names.
        indexes AS (
            SELECT i.indexrelid, i.indrelid, i.indisreplident, i.indisclustered, c.relname, c.reltablespace, c.reloptions,
                _snowflake.name(i.indexrelid) AS index_name, _snowflake.name(i.indrelid) AS table_name,
                k.conname, pg_get_constraintdef(k.oid) AS definition
            FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            LEFT JOIN pg_constraint AS k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')
            WHERE EXISTS (SELECT FROM members AS m
                WHERE m.id = i.indrelid AND m.number = ANY (_snowflake_convert.index_columns(i.indexrelid)))),
        made (phase, name, statement) AS (
            SELECT 1, m.name, format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', _snowflake.name(m.id), m.name)
            FROM members AS m
            JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number AND a.attnotnull
            JOIN pg_attribute AS r ON r.attrelid = m.relation AND r.attname = m.name AND NOT r.attnotnull
            UNION ALL
            SELECT 1, k.conname, format('ALTER TABLE %s ADD CONSTRAINT %I %s',
                _snowflake.name(k.conrelid), k.conname, pg_get_constraintdef(k.oid))
            FROM pg_constraint AS k
            WHERE k.contype = 'c' AND k.coninhcount = 0
              AND EXISTS (SELECT FROM members AS m WHERE m.id = k.conrelid AND m.number = ANY (k.conkey))
            UNION ALL
            SELECT CASE WHEN i.conname IS NULL THEN 2 ELSE 1 END, i.relname,
                CASE WHEN i.conname IS NULL THEN pg_get_indexdef(i.indexrelid)
                    ELSE format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', i.table_name, i.conname, i.definition) END
            FROM indexes AS i
            UNION ALL
            SELECT 3, i.relname, format('ALTER INDEX %s SET TABLESPACE %I', i.index_name, t.spcname)
            FROM indexes AS i JOIN pg_tablespace AS t ON t.oid = i.reltablespace
            UNION ALL
            -- CREATE INDEX says them, but no constraint does.
            SELECT 3, i.relname, format('ALTER INDEX %s SET (%s)', i.index_name, string_agg(format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ' ORDER BY o))
            FROM indexes AS i CROSS JOIN unnest(i.reloptions) AS o WHERE i.conname IS NOT NULL GROUP BY i.relname, i.index_name
            UNION ALL
            SELECT 4, p.relname || i.relname, format('ALTER INDEX %s ATTACH PARTITION %s', p.index_name, i.index_name)
            FROM indexes AS i JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid JOIN indexes AS p ON p.indexrelid = h.inhparent
            UNION ALL
            SELECT 5, i.relname, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', i.table_name, i.relname)
            FROM indexes AS i WHERE i.indisreplident
            UNION ALL
            SELECT 5, i.relname, format('ALTER TABLE %s CLUSTER ON %I', i.table_name, i.relname)
            FROM indexes AS i WHERE i.indisclustered
            UNION ALL
            SELECT 5, i.relname, format('COMMENT ON INDEX %s IS ', i.index_name) || quote_literal(obj_description(i.indexrelid, 'pg_class'))
            FROM indexes AS i
            UNION ALL
            SELECT 5, k.conname, format('COMMENT ON CONSTRAINT %I ON %s IS ', k.conname, _snowflake.name(k.conrelid))
                || quote_literal(obj_description(k.oid, 'pg_constraint'))
            FROM pg_constraint AS k
            WHERE k.oid IN (
                SELECT o.oid FROM pg_constraint AS o JOIN members AS m ON m.id = o.conrelid
                WHERE m.number = ANY (o.conkey) AND (o.contype = 'c' OR o.contype = 'n' AND m.id = m.relation)
                   OR o.contype IN ('p', 'u', 'x') AND o.conindid IN (SELECT i.indexrelid FROM indexes AS i))
            UNION ALL
            SELECT 6, x.stxname, pg_get_statisticsobjdef(x.oid)
            FROM pg_statistic_ext AS x
            WHERE EXISTS (SELECT FROM members AS m JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.id AND d.refobjsubid = m.number)
            UNION ALL
            SELECT 7, x.stxname, format('COMMENT ON STATISTICS %I.%I IS ', n.nspname, x.stxname) || quote_literal(obj_description(x.oid, 'pg_statistic_ext'))
            FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
            WHERE EXISTS (SELECT FROM members AS m JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.id AND d.refobjsubid = m.number)
            UNION ALL
            SELECT 7, m.name, format('ALTER TABLE ONLY %s ALTER COLUMN %I %s', _snowflake.name(m.id), m.name, v.change)
            FROM members AS m
            JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number
            JOIN pg_type AS y ON y.oid = a.atttypid
            CROSS JOIN LATERAL (VALUES
                (CASE WHEN a.attstattarget >= 0 THEN 'SET STATISTICS ' || a.attstattarget END),
                ((SELECT format('SET (%s)', string_agg(o, ', ')) FROM unnest(a.attoptions) AS o WHERE o LIKE 'n\_distinct%' HAVING count(*) > 0)),
                (CASE WHEN a.attstorage <> y.typstorage THEN 'SET STORAGE ' || CASE a.attstorage
                    WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' WHEN 'x' THEN 'EXTENDED' END END),
                ('SET COMPRESSION ' || CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END)) AS v (change)
            WHERE v.change IS NOT NULL
            UNION ALL
            SELECT 7, m.name, format('COMMENT ON COLUMN %s.%I IS %L', _snowflake.name(m.id), m.name, e.description)
            FROM members AS m
            JOIN pg_description AS e ON e.classoid = 'pg_class'::regclass AND e.objoid = m.id AND e.objsubid = m.number
            UNION ALL
            SELECT 7, m.name, format('SECURITY LABEL FOR %I ON COLUMN %s.%I IS %L', l.provider, _snowflake.name(m.id), m.name, l.label)
            FROM members AS m
            JOIN pg_seclabel AS l ON l.classoid = 'pg_class'::regclass AND l.objoid = m.id AND l.objsubid = m.number
            UNION ALL
            SELECT 8, m.name, g.statement
            FROM members AS m JOIN pg_class AS c ON c.oid = m.id
            JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number AND a.attacl IS NOT NULL
            CROSS JOIN _snowflake_convert.grants(a.attacl, c.relowner, 'c', 'TABLE ' || _snowflake.name(m.id), m.name) AS g (statement))
        SELECT m.statement FROM made AS m WHERE m.statement IS NOT NULL ORDER BY m.phase, m.name, m.statement
    LOOP
        RETURN NEXT;
    END LOOP;
    FOREACH statement IN ARRAY add_keys LOOP
        RETURN NEXT;
    END LOOP;
    -- ALTER TABLE .. TYPE makes statistics and indexes again without these. The statistics
    -- are the caller's then.
    FOR statement IN
        SELECT format('ALTER STATISTICS %I.%I OWNER TO %I', n.nspname, x.stxname, pg_get_userbyid(x.stxowner))
        FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
        WHERE x.stxowner <> quote_ident(current_user)::regrole AND x.oid = ANY (changed_statistics)
        UNION ALL
        SELECT format('ALTER STATISTICS %I.%I SET STATISTICS %s', n.nspname, x.stxname, x.stxstattarget)
        FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
        WHERE x.stxstattarget >= 0 AND x.stxrelid = ANY (tables)
        UNION ALL
        SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', _snowflake.name(i.indexrelid), a.attnum, a.attstattarget)
        FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid
        WHERE a.attstattarget >= 0 AND i.indrelid = ANY (tables)
        ORDER BY 1
    LOOP
        RETURN NEXT;
    END LOOP;

    IF NOT set_default THEN
        -- The sequence of an identity is changed with its column.
        action := 'alter';
        FOR statement IN
            SELECT DISTINCT format('ALTER SEQUENCE %s AS bigint', _snowflake.name(s.seqrelid))
            FROM unnest(tables, numbers) AS u (id, number)
            JOIN _snowflake.defaults AS d ON d.relation = u.id AND d.number = u.number
            JOIN pg_sequence AS s ON s.seqrelid = d.sequence
            WHERE s.seqtypid <> 'bigint'::regtype
            ORDER BY 1
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;

    action := 'make';
    FOR statement, rewrites IN
        SELECT s.statement, CASE WHEN s.statement LIKE 'REFRESH %' THEN pg_total_relation_size(d.id) END
        FROM ROWS FROM (jsonb_to_recordset(made_again) AS (id oid, statements text[])) WITH ORDINALITY AS d (id, statements, place)
        CROSS JOIN unnest(d.statements) WITH ORDINALITY AS s (statement, place)
        ORDER BY d.place, s.place
    LOOP
        locks := CASE WHEN statement LIKE 'REFRESH %' THEN every END;
        RETURN NEXT;
    END LOOP;
    rewrites := NULL;
    locks := every;

    IF set_default THEN
        action := 'default';
        FOR statement IN
            SELECT format('SELECT %s.snowflake_set_default(%s)', '@extschema@',
                concat_ws(', ', quote_literal(_snowflake.name(c.relation)), quote_literal(c.name),
                    quote_literal(_snowflake.name(generator))))
            FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_key boolean) WHERE c.is_key
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;

    IF keys <> '[]' AND columns <> '[]' THEN
        action := 'backfill';
        locks := NULL;
        FOREACH statement IN ARRAY ARRAY[format('CREATE TABLE %s AS TABLE pg_temp.snowflake_new_ids', map),
            format('ALTER TABLE %s ADD PRIMARY KEY (relation, column_name, old_id), ALTER new_id SET NOT NULL', map)]
        LOOP
            RETURN NEXT;
        END LOOP;
        action := 'drop';
        FOREACH statement IN ARRAY ARRAY['DROP FUNCTION pg_temp.snowflake_new_id(regclass, name, bigint)',
            'DROP TABLE pg_temp.snowflake_new_ids']
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;

    action := 'analyze';
    locks := 'SHARE UPDATE EXCLUSIVE';
    FOR statement IN
        SELECT format('ANALYZE %s', n.name)
        FROM (SELECT DISTINCT _snowflake.name(c.relation)
              FROM jsonb_to_recordset(columns) AS c (relation oid, is_altered boolean) WHERE c.is_altered) AS n (name)
        ORDER BY n.name
    LOOP
        RETURN NEXT;
    END LOOP;

    action := 'note';
    statement := NULL;
    locks := NULL;
    FOR note IN
        SELECT format('column %s.%I %s', _snowflake.name(k.relation), k.name, k.note)
        FROM _snowflake_convert.keys(relations, are_named) AS k
        WHERE k.note IS NOT NULL AND NOT EXISTS (
            SELECT FROM jsonb_to_recordset(columns) AS c (relation oid, name name)
            WHERE c.name = k.name
              AND c.relation IN (SELECT _snowflake_convert.column_roots(k.relation, k.name)))
          AND k.relation IS NOT NULL
          AND (SELECT b.base FROM pg_attribute AS a
               CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
               WHERE a.attrelid = k.relation AND a.attname = k.name) <> 'bigint'::regtype
        UNION ALL
        SELECT n.note FROM _snowflake_convert.notes(columns, made_again, worker_id IS NOT NULL) AS n (note)
        WHERE columns <> '[]'
        UNION ALL
        SELECT DISTINCT format('%s inserts rows into table %s, and needs: GRANT USAGE ON SEQUENCE %s TO %s',
            CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE 'role ' || r.name END, _snowflake.name(t.oid), _snowflake.name(g.source), r.name)
        FROM _snowflake.ids_to_come(generator, NULL) AS g
        CROSS JOIN jsonb_to_recordset(columns) AS c (relation oid, is_key boolean)
        JOIN pg_class AS t ON t.oid = c.relation
        CROSS JOIN LATERAL (
            SELECT coalesce(t.relacl, acldefault('r', t.relowner))
            UNION ALL
            SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = t.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped) AS l (acl)
        CROSS JOIN aclexplode(l.acl) AS e
        CROSS JOIN LATERAL (SELECT CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END) AS r (name)
        WHERE set_default AND c.is_key AND e.privilege_type = 'INSERT'
          AND NOT has_sequence_privilege(e.grantee, g.source, 'USAGE, UPDATE')
        UNION ALL
        SELECT format('%s %s no keys after the conversion: programs that call nextval(), currval() or lastval() for them need INSERT ... RETURNING',
            string_agg(DISTINCT q.name, ', '), CASE WHEN count(DISTINCT q.name) = 1 THEN 'makes' ELSE 'make' END)
        FROM jsonb_to_recordset(columns) AS c (relation oid, number smallint, is_key boolean)
        -- Of an identity, or named by a default.
        CROSS JOIN LATERAL (
            SELECT d.objid FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
              AND (d.refobjid, d.refobjsubid) = (c.relation, c.number) AND d.deptype = 'i'
            UNION ALL
            SELECT u.sequence FROM _snowflake.defaults AS u WHERE u.relation = c.relation AND u.number = c.number) AS d (id)
        JOIN pg_class AS s ON s.oid = d.id AND s.relkind = 'S'
        CROSS JOIN LATERAL (SELECT 'sequence ' || _snowflake.name(s.oid)) AS q (name)
        WHERE set_default AND c.is_key AND s.oid NOT IN (SELECT g.generator FROM @extschema@.snowflake_generators() AS g)
        HAVING count(*) > 0
        UNION ALL
        SELECT format('table %s keeps the keys of its old rows, since no column has their time', _snowflake.name(c.relation))
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_key boolean, origin oid)
        WHERE worker_id IS NOT NULL AND c.is_key AND c.origin IS NULL
        UNION ALL
        SELECT format('old rows of table %s get IDs of the time in column %I', _snowflake.name(k.relation), k.time_name)
        FROM jsonb_to_recordset(keys) AS k (relation oid, time_name name, expression text) WHERE columns <> '[]' AND k.expression IS NOT NULL
        UNION ALL
        SELECT format('table %s has the old and new keys after the conversion: drop it when nothing refers to old keys any more', map)
        WHERE keys <> '[]' AND columns <> '[]'
        ORDER BY 1
    LOOP
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION _snowflake_convert.plan(regclass[], boolean, regclass, boolean, name[], bigint, boolean) IS
    'internal, for snowflake_convert(): the rows of the plan, without numbers';
