-- Notes on what a person has to look at or to know: step 4 of plan.sql.

-- The functions that may handle keys. A function is listed if a view that is made again calls it, if
-- triggers of the tables run it, directly or by its name in the text of one that they run, or if its
-- text has a changed table or column; and if it has an argument, a result or a text with integers.
CREATE FUNCTION _snowflake_convert.functions(
    work _snowflake_convert.work, OUT id oid, OUT is_called boolean, OUT of_trigger boolean, OUT is_typed boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE changed AS (
        SELECT t.relname, CASE WHEN lower(c.name) <> 'id' THEN c.name END AS name
        FROM unnest((work).columns) AS c JOIN pg_class AS t ON t.oid = c.relation),
    candidates AS MATERIALIZED (
        SELECT p.oid AS id, p.prosrc AS text,
            format('(?:\m%1$s|"%1$s")\s*\(', regexp_replace(p.proname, '(\W)', '\\\1', 'g')) AS call,
            h.has_integers, h.has_integers OR p.prosrc ~* '\m(smallint|integer|int|int2|int4)\M' AS is_typed
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        CROSS JOIN LATERAL (SELECT ARRAY['smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype]::oid[]
            && (coalesce(p.proallargtypes, p.proargtypes::oid[]) || p.prorettype) AS has_integers) AS h
        WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND p.prokind IN ('f', 'p', 'w') AND octet_length(p.prosrc) < 100000000
          AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e')),
    triggered (id) AS (
        SELECT g.tgfoid FROM unnest((work).members) AS m JOIN pg_trigger AS g ON g.tgrelid = m.member AND NOT g.tgisinternal
        UNION
        SELECT c.id FROM triggered AS t JOIN candidates AS f ON f.id = t.id JOIN candidates AS c ON f.text ~* c.call)
    SELECT f.* FROM (
        SELECT c.id, c.has_integers AND EXISTS (
                SELECT FROM unnest((work).objects) AS o
                JOIN pg_depend AS d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = c.id
                LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
                WHERE (d.classid, d.objid) = (o.class, o.id) OR (o.class, o.id) = ('pg_class'::regclass, r.ev_class)),
            c.id IN (SELECT t.id FROM triggered AS t), c.is_typed
        FROM candidates AS c) AS f (id, is_called, of_trigger, is_typed)
    JOIN candidates AS c ON c.id = f.id
    WHERE f.is_called OR f.is_typed AND f.of_trigger
       OR (f.is_typed OR (work).worker_id IS NOT NULL AND c.text ~ '(?<![\w."$])[0-9]+(?![\w."])')
        AND EXISTS (SELECT FROM changed AS w WHERE strpos(lower(c.text || ' ' || pg_get_functiondef(c.id)), lower(w.relname)) > 0
            OR strpos(lower(c.text || ' ' || pg_get_functiondef(c.id)), lower(w.name)) > 0)
$$;

-- What a person has to look at, since the catalogs cannot tell whether it has to do with the
-- keys.
CREATE FUNCTION _snowflake_convert.notes(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH changed AS (
        SELECT c.relation, c.name, c.is_key, t.relname
        FROM unnest((work).columns) AS c
        JOIN pg_class AS t ON t.oid = c.relation),
    members AS (
        SELECT DISTINCT m.member, m.number FROM unnest((work).members) AS m WHERE NOT m.is_generated),
    -- Those whose values are replaced, and expressions that are made of them. A number in
    -- such an expression may be an old key.
    replaced AS (
        SELECT DISTINCT m.member, m.number, m.name, m.member = m.relation AS is_root
        FROM unnest((work).columns) AS c
        JOIN unnest((work).members) AS m ON m.relation = c.relation AND m.name = c.name WHERE c.origin IS NOT NULL),
    expressions (described, text) AS (
        SELECT o.described, array_to_string(o.statements, E'\n')
        FROM unnest((work).objects) AS o
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
            WHERE r.is_root AND r.member = e.adrelid AND d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid
              AND d.refclassid = 'pg_class'::regclass)),
    -- Indexes and generated columns that are made of the columns.
    forced (described, text) AS (
        SELECT 'index ' || _snowflake.name(i.indexrelid), concat_ws(' ', pg_get_expr(i.indpred, i.indrelid), pg_get_expr(i.indexprs, i.indrelid))
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition
        WHERE (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL) AND c.relname !~ '__bigint$'
          AND EXISTS (SELECT FROM members AS m WHERE m.member = i.indrelid AND m.number = ANY (_snowflake_convert.index_columns(i.indexrelid)))
        UNION ALL
        SELECT format('generated column %s.%I', _snowflake.name(a.attrelid), a.attname), pg_get_expr(e.adbin, e.adrelid)
        FROM pg_attrdef AS e
        JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated <> '' AND a.attinhcount = 0
        WHERE EXISTS (SELECT FROM members AS m JOIN pg_depend AS d ON d.refobjid = m.member AND d.refobjsubid = m.number
            WHERE m.member = e.adrelid AND d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass)),
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
    -- A literal has a cast as well, which is in nobody's way.
    SELECT format('%s has a cast to %s: if it casts a key, each INSERT will fail: drop it before, and make it again with bigint after',
        f.described, f.casts[1])
    FROM forced AS u
    CROSS JOIN LATERAL (SELECT u.described, regexp_match(regexp_replace(u.text, '''(?:[^'']|'''')*''::\w+', '', 'g'), '::(smallint|integer)')) AS f (described, casts)
    WHERE f.casts IS NOT NULL
    UNION ALL
    -- PostgreSQL has the columns to which a rule writes among those that it needs.
    SELECT format('rule %I of table %s inserts or updates rows, and names integer columns: if it writes keys into them, it will fail: '
        'change them to bigint first: %s', r.rulename, _snowflake.name(r.ev_class),
        string_agg(DISTINCT format('%s.%I', _snowflake.name(a.attrelid), a.attname), ', '))
    FROM pg_rewrite AS r
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
    JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.atttypid IN ('smallint'::regtype, 'integer'::regtype)
    WHERE r.rulename <> '_RETURN' AND (a.attrelid, a.attnum) NOT IN (SELECT m.member, m.number FROM members AS m)
      AND EXISTS (SELECT FROM pg_depend AS o JOIN members AS m ON o.refobjid = m.member AND o.refobjsubid = m.number
          WHERE o.classid = 'pg_rewrite'::regclass AND o.objid = r.oid AND o.refclassid = 'pg_class'::regclass)
      AND substring(pg_get_ruledef(r.oid) FROM ' DO .*') ~ '\m(INSERT INTO|UPDATE)\M'
    GROUP BY r.oid, r.rulename, r.ev_class
    UNION ALL
    SELECT format('aggregate %s takes integers: if it is given keys, make one that takes bigint first', p.oid::regprocedure)
    FROM pg_proc AS p
    WHERE p.pronamespace IN (SELECT f.oid FROM foreign_schemas AS f) AND p.prokind = 'a'
      AND ARRAY['smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype]::oid[] && p.proargtypes::oid[]
      AND NOT EXISTS (SELECT FROM pg_proc AS o WHERE (o.proname, o.pronamespace, o.prokind) = (p.proname, p.pronamespace, p.prokind)
          AND ARRAY['bigint'::regtype, 'bigint[]'::regtype]::oid[] && o.proargtypes::oid[])
      AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e')
    UNION ALL
    SELECT format('%s has numbers in its definition, which stay: if they are old keys, '
        'make it anew with the new ones after the conversion', e.described)
    FROM expressions AS e WHERE (work).worker_id IS NOT NULL AND e.text ~ '(?<![\w."$])[0-9]+(?![\w."])'
    UNION ALL
    SELECT format('column %s.%I has the default %s, which stays: if that is an old key, change it to the new one after the conversion',
        _snowflake.name(r.member), r.name, pg_get_expr(e.adbin, e.adrelid))
    FROM replaced AS r JOIN pg_attrdef AS e ON e.adrelid = r.member AND e.adnum = r.number
    WHERE (work).worker_id IS NOT NULL AND pg_get_expr(e.adbin, e.adrelid) ~ '(?<![\w."$])[0-9]+(?![\w."])'
      AND NOT EXISTS (SELECT FROM changed AS c WHERE c.relation = r.member AND c.name = r.name AND c.is_key)
    UNION ALL
    (SELECT format('%s %s.%I is %s, and named like a key%s: %s',
        CASE c.relkind WHEN 'c' THEN 'attribute' ELSE 'column' END,
        _snowflake.name(a.attrelid), a.attname, format_type(a.atttypid, a.atttypmod),
        CASE c.relkind WHEN 'c' THEN '' ELSE ', but has no foreign key' END,
        CASE WHEN (work).worker_id IS NOT NULL THEN 'its values do not follow the keys that change' ELSE 'it stays as it is' END)
    FROM pg_attribute AS a
    JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'f', 'c') AND NOT c.relispartition
    WHERE c.relnamespace IN (SELECT f.oid FROM foreign_schemas AS f) AND a.attnum > 0 AND NOT a.attisdropped
      AND (a.atttypid IN ('smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype)
        OR (work).worker_id IS NOT NULL AND a.atttypid IN ('bigint'::regtype, 'bigint[]'::regtype))
      AND (EXISTS (SELECT FROM names AS n
              WHERE right(regexp_replace(lower(replace(a.attname, '_', '')), 's$', ''), length(n.name)) = n.name)
          -- Some refer to any table, such as object_id.
          OR a.attname ~ '(_id|_ids|[a-z]Ids?)$'
            AND c.relnamespace IN (SELECT t.relnamespace FROM changed AS d JOIN pg_class AS t ON t.oid = d.relation)
            AND NOT EXISTS (SELECT FROM pg_index AS i
                WHERE i.indrelid = a.attrelid AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))
      AND (a.attrelid, a.attnum) NOT IN (SELECT m.member, m.number FROM members AS m)
      AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = a.attrelid AND k.contype = 'f' AND a.attnum = ANY (k.conkey))
      AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.deptype = 'e' AND (d.classid, d.objid) IN (
          ('pg_class'::regclass, c.oid), ('pg_type'::regclass, c.reltype)))
    ORDER BY 1)
    UNION ALL
    (SELECT format('%s %s %s', CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END, p.oid::regprocedure,
        CASE WHEN f.is_called THEN 'takes integers, and is called by an object that is made again: '
            'if it is given keys, make one that takes bigint first'
        WHEN f.is_typed AND f.of_trigger THEN 'has integers, and triggers of these tables run it: if they are keys, change them to bigint first'
        WHEN f.is_typed THEN 'has integers: if they are keys, change them to bigint'
        ELSE 'has numbers: if they are old keys, change them to new ones after the conversion' END)
    FROM _snowflake_convert.functions(work) AS f JOIN pg_proc AS p ON p.oid = f.id
    ORDER BY 1)
$$;

-- What programs and roles need for the new keys, and what becomes of old ones.
CREATE FUNCTION _snowflake_convert.notes_of_keys(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT format('%s inserts rows into table %s, and needs: GRANT USAGE ON SEQUENCE %s TO %s',
        CASE w.role WHEN 'PUBLIC' THEN w.role ELSE 'role ' || w.role END, _snowflake.name(c.relation), _snowflake.name(g.source), w.role)
    FROM _snowflake.next_id_range((work).generator, NULL) AS g
    CROSS JOIN unnest((work).columns) AS c
    CROSS JOIN _snowflake.without_usage(c.relation, g.source) AS w (role)
    WHERE (work).set_default AND c.is_key
    UNION ALL
    SELECT format('%s %s no keys after the conversion: '
        'programs that call nextval(), currval() or lastval() for them need INSERT ... RETURNING',
        string_agg(DISTINCT q.name, ', '), CASE WHEN count(DISTINCT q.name) = 1 THEN 'makes' ELSE 'make' END)
    FROM unnest((work).columns) AS c
    -- Of an identity, or named by a default.
    CROSS JOIN LATERAL (
        SELECT d.objid FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
          AND (d.refobjid, d.refobjsubid) = (c.relation, c.number) AND d.deptype = 'i'
        UNION ALL
        SELECT u.sequence FROM _snowflake.defaults AS u WHERE u.relation = c.relation AND u.number = c.number) AS d (id)
    JOIN pg_class AS s ON s.oid = d.id AND s.relkind = 'S'
    CROSS JOIN LATERAL (SELECT 'sequence ' || _snowflake.name(s.oid)) AS q (name)
    WHERE (work).set_default AND c.is_key AND s.oid NOT IN (SELECT g.generator FROM _snowflake.generators() AS g)
    HAVING count(*) > 0
    UNION ALL
    SELECT format('table %s keeps the keys of its old rows, since no column has their time', _snowflake.name(c.relation))
    FROM unnest((work).columns) AS c
    WHERE (work).worker_id IS NOT NULL AND c.is_key AND c.origin IS NULL
    UNION ALL
    SELECT format('old rows of table %s get IDs of the time in column %I', _snowflake.name(k.relation), k.time_name)
    FROM unnest((work).keys) AS k WHERE cardinality((work).columns) > 0 AND k.expression IS NOT NULL
    UNION ALL
    SELECT format('table %s has the old and new keys after the conversion: drop it when nothing refers to old keys any more', (work).map)
    WHERE cardinality((work).keys) > 0 AND cardinality((work).columns) > 0
$$;
