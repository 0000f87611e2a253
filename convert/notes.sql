-- Notes on what a person has to look at or to know: step 4 of plan.sql.

-- The functions that may handle keys. A function is listed if a view that is made again calls it, if
-- triggers of the tables run it, directly or by its name in the text of one that they run, or if its
-- text has a changed table or column; and if it has an argument, a result or a text with integers.
CREATE FUNCTION _snowflake_convert.functions(work _snowflake_convert.work, OUT id oid, OUT is_called boolean, OUT of_trigger boolean, OUT is_typed boolean)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
        UNION SELECT c.id FROM triggered AS t JOIN candidates AS f ON f.id = t.id JOIN candidates AS c ON f.text ~* c.call)
    SELECT f.* FROM (
        SELECT c.id, c.has_integers AND EXISTS (
                SELECT FROM unnest((work).objects) AS o
                JOIN pg_depend AS d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = c.id
                LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
                WHERE (d.classid, d.objid) = (o.class, o.id) OR (o.class, o.id) = ('pg_class'::regclass, r.ev_class)),
            c.id IN (SELECT t.id FROM triggered AS t), c.is_typed
        FROM candidates AS c) AS f (id, is_called, of_trigger, is_typed)
    JOIN candidates AS c ON c.id = f.id WHERE f.is_called OR f.is_typed AND f.of_trigger
       OR (f.is_typed OR (work).worker_id IS NOT NULL AND c.text ~ '(?<![\w."$])[0-9]+(?![\w."])')
        AND EXISTS (SELECT FROM changed AS w WHERE strpos(lower(c.text || ' ' || pg_get_functiondef(c.id)), lower(w.relname)) > 0
            OR strpos(lower(c.text || ' ' || pg_get_functiondef(c.id)), lower(w.name)) > 0)
$$;

-- What a person has to look at, since the catalogs cannot tell whether it has to do with the
-- keys.
CREATE FUNCTION _snowflake_convert.notes(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH changed AS (
        SELECT c.relation, c.name, c.is_key, t.relname FROM unnest((work).columns) AS c
        JOIN pg_class AS t ON t.oid = c.relation),
    members AS (
        SELECT DISTINCT m.member, m.number FROM unnest((work).members) AS m WHERE NOT m.is_generated),
    -- Those whose values are replaced, and expressions that are made of them. A number in
    -- such an expression may be an old key.
    replaced AS (
        SELECT DISTINCT m.member, m.number, m.name, m.member = m.relation AS is_root FROM unnest((work).columns) AS c
        JOIN unnest((work).members) AS m ON m.relation = c.relation AND m.name = c.name WHERE c.origin IS NOT NULL),
    expressions (described, text) AS (
        SELECT o.described, array_to_string(o.statements, E'\n') FROM unnest((work).objects) AS o
        UNION ALL SELECT format('index %s', _snowflake.name(i.indexrelid)),
            concat_ws(' ', pg_get_expr(i.indpred, i.indrelid), pg_get_expr(i.indexprs, i.indrelid))
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition
        WHERE EXISTS (SELECT FROM replaced AS r JOIN pg_depend AS d ON d.refobjid = r.member AND d.refobjsubid = r.number
            WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass)
        UNION ALL SELECT format('generated column %s.%I', _snowflake.name(a.attrelid), a.attname), pg_get_expr(e.adbin, e.adrelid)
        FROM pg_attrdef AS e JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated <> ''
        WHERE EXISTS (SELECT FROM replaced AS r JOIN pg_depend AS d ON d.refobjid = r.member AND d.refobjsubid = r.number
            WHERE r.is_root AND r.member = e.adrelid AND d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid
              AND d.refclassid = 'pg_class'::regclass)),
    -- Where a key may be cast to a narrower type: this is read, and never evaluated. An index or a generated column counts if it is
    -- made of a changed column; an index also if it takes what is named like a key out of JSON.
    casts (described, text) AS (
        SELECT o.described, array_to_string(o.statements, E'\n') FROM unnest((work).objects) AS o WHERE o.class <> 'pg_proc'::regclass
        UNION ALL SELECT format('default of column %s.%I', _snowflake.name(m.member), m.name), m.expression
        FROM unnest((work).members) AS m WHERE NOT m.is_generated
        UNION ALL SELECT format('generated column %s.%I', _snowflake.name(m.member), m.name), m.expression
        FROM unnest((work).members) AS m WHERE m.is_generated AND m.member = m.relation
        UNION ALL SELECT 'index ' || _snowflake.name(i.indexrelid), e.text
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition AND c.relname !~ '__bigint$'
        CROSS JOIN LATERAL (SELECT concat_ws(' ', pg_get_expr(i.indpred, i.indrelid), pg_get_expr(i.indexprs, i.indrelid))) AS e (text)
        WHERE e.text <> '' AND (EXISTS (SELECT FROM members AS m WHERE m.member = i.indrelid AND m.number = ANY (_snowflake_convert.index_columns(i.indexrelid)))
            OR EXISTS (SELECT FROM changed AS k CROSS JOIN _snowflake_convert.expected_names(k.relname, k.name) AS x (name)
                WHERE k.is_key AND strpos(lower(e.text), format('->> %L', x.name)) > 0)))
    SELECT format('published by %I: subscribers need bigint columns before the first new ID', p.pubname) FROM pg_publication AS p
    WHERE EXISTS (
        SELECT FROM pg_publication_tables AS t
        JOIN pg_class AS c ON c.relname = t.tablename
        JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = t.schemaname
        JOIN members AS m ON m.member = c.oid WHERE t.pubname = p.pubname)
    UNION ALL SELECT format('foreign table %s is a part of a table that is changed: change its column where its rows are kept',
        _snowflake.name(c.oid))
    FROM pg_class AS c WHERE c.relkind = 'f' AND c.oid IN (SELECT m.member FROM members AS m)
    UNION ALL
    -- A literal has a cast as well, which is in nobody's way.
    SELECT format('%s has a cast to %s: if it casts a key, it fails for new ones: make it again with bigint', u.described, f.casts[1]) FROM casts AS u
    CROSS JOIN LATERAL regexp_match(regexp_replace(u.text, '''(?:[^'']|'''')*''::\w+', '', 'g'), '::(smallint|integer)') AS f (casts)
    WHERE f.casts IS NOT NULL
    UNION ALL SELECT format('%s has numbers in its definition, which stay: if they are old keys, '
        'make it anew with the new ones after the conversion', e.described)
    FROM expressions AS e WHERE (work).worker_id IS NOT NULL AND e.text ~ '(?<![\w."$])[0-9]+(?![\w."])'
    UNION ALL SELECT format('column %s.%I has the default %s, which stays: if that is an old key, change it to the new one after the conversion',
        _snowflake.name(r.member), r.name, pg_get_expr(e.adbin, e.adrelid))
    FROM replaced AS r JOIN pg_attrdef AS e ON e.adrelid = r.member AND e.adnum = r.number
    WHERE (work).worker_id IS NOT NULL AND pg_get_expr(e.adbin, e.adrelid) ~ '(?<![\w."$])[0-9]+(?![\w."])'
      AND NOT EXISTS (SELECT FROM changed AS c WHERE c.relation = r.member AND c.name = r.name AND c.is_key)
    UNION ALL
    (SELECT CASE WHEN r.also IS NULL THEN r.described || ': it stays as it is' ELSE r.described || ': it stays as it is, unless also names it' END
    FROM _snowflake_convert.references_of(work) AS r WHERE r.obstacle IS NULL ORDER BY 1)
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
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT format('%s inserts rows into table %s, and needs: GRANT USAGE ON SEQUENCE %s TO %s',
        CASE w.role WHEN 'PUBLIC' THEN w.role ELSE 'role ' || w.role END, _snowflake.name(c.relation), _snowflake.name(g.source), w.role)
    FROM _snowflake.next_id_range((work).generator, NULL) AS g CROSS JOIN unnest((work).columns) AS c
    CROSS JOIN _snowflake.without_usage(c.relation, g.source) AS w (role) WHERE (work).set_default AND c.is_key
    UNION ALL SELECT r.note FROM _snowflake.next_id_range((work).generator, NULL) AS g CROSS JOIN unnest((work).columns) AS c
    CROSS JOIN _snowflake.refusals(c.relation, c.name, g.next_id) AS r WHERE (work).set_default AND r.is_certain AND NOT c.is_key AND c.origin IS NULL
    UNION ALL SELECT format('%s %s no keys after the conversion: '
        'programs that call nextval(), currval() or lastval() for them need INSERT ... RETURNING',
        string_agg(DISTINCT q.name, ', '), CASE WHEN count(DISTINCT q.name) = 1 THEN 'makes' ELSE 'make' END)
    FROM unnest((work).columns) AS c
    -- Of an identity, or named by a default.
    CROSS JOIN LATERAL (
        SELECT d.objid FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
          AND (d.refobjid, d.refobjsubid) = (c.relation, c.number) AND d.deptype = 'i'
        UNION ALL SELECT u.sequence FROM _snowflake.defaults AS u WHERE u.relation = c.relation AND u.number = c.number) AS d (id)
    JOIN pg_class AS s ON s.oid = d.id AND s.relkind = 'S'
    CROSS JOIN LATERAL (SELECT 'sequence ' || _snowflake.name(s.oid)) AS q (name)
    WHERE (work).set_default AND c.is_key AND s.oid NOT IN (SELECT g.generator FROM _snowflake.generators() AS g)
    HAVING count(*) > 0
    UNION ALL SELECT format('table %s keeps the keys of its old rows, since no column has their time', _snowflake.name(c.relation))
    FROM unnest((work).columns) AS c WHERE (work).worker_id IS NOT NULL AND c.is_key AND c.origin IS NULL
    UNION ALL SELECT format('column %s.%I has the keys of column %s.%I, and gets the new ones', _snowflake.name(c.relation), c.name, _snowflake.name(c.origin), c.origin_name)
    FROM unnest((work).also) AS a JOIN unnest((work).columns) AS c ON (c.relation, c.name) = (a.relation, a.name) AND c.origin IS NOT NULL
    UNION ALL SELECT format('old rows of table %s get IDs of the time in column %I', _snowflake.name(k.relation), k.time_name)
    FROM unnest((work).keys) AS k WHERE cardinality((work).columns) > 0 AND k.expression IS NOT NULL
    UNION ALL SELECT format('table %s has the old and new keys after the conversion: drop it when nothing refers to old keys any more', (work).map)
    WHERE cardinality((work).keys) > 0 AND cardinality((work).columns) > 0
$$;
