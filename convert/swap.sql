-- The last step of online.sql, in short transactions: the copies take the places of the columns.
-- All statements change catalogs only. Tables that something ties to each other change in one
-- transaction; obstacles.sql has the groups.
--
-- A partitioned table and its partitions change together. ALTER TABLE on the whole table
-- reaches the columns of all partitions; indexes, keys and foreign keys are those that the
-- partitions have got before, and are attached to those of the whole table.

-- The statements that put the copies in the places of the columns. What is made of copies is not
-- made again. What one statement does faster than two, by measure, it does.
CREATE FUNCTION _snowflake_convert.swap_plan(what _snowflake_convert.request) RETURNS SETOF text LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex AS $$
DECLARE
    copies constant _snowflake_convert.copied_column[] := ARRAY(
        SELECT ROW (c.root, c.relation, c.kind, _snowflake.name(c.relation), c.name, c.number, c.is_key,
            c.copy, c.copy_number)::_snowflake_convert.copied_column
        FROM _snowflake_convert.copies(what) AS c);
    tables oid[];
    numbers smallint[];
    objects _snowflake_convert.object[];
BEGIN
    SELECT array_agg(c.relation), array_agg(c.number) INTO tables, numbers FROM unnest(copies) AS c;
    -- The constraints and the trigger of the copying are not made again.
    objects := _snowflake_convert.objects(tables, numbers);

    -- A query of a view locks the view, and then its tables. LOCK would also lock tables
    -- that we leave alone; this locks the view only, and changes nothing.
    RETURN QUERY
        SELECT format('ALTER %s %s OWNER TO %I', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'MATERIALIZED VIEW' END,
            _snowflake.name(c.oid), pg_get_userbyid(c.relowner))
        FROM unnest(objects) AS d
        JOIN pg_class AS c ON d.class = 'pg_class'::regclass AND c.oid = d.id AND c.relkind IN ('v', 'm')
        ORDER BY d.level DESC, 1;
    -- In the order in which most transactions come to them: the tables first that others
    -- refer to. So fewer of them wait for us while we wait for them.
    RETURN QUERY
        WITH RECURSIVE locked (id) AS (
            SELECT unnest(tables)
            UNION SELECT k.conrelid FROM pg_constraint AS k WHERE k.contype = 'f' AND k.confrelid = ANY (tables)
            UNION SELECT k.confrelid FROM unnest(tables, numbers) AS u (id, number)
            JOIN pg_constraint AS k ON k.contype = 'f' AND k.conrelid = u.id AND u.number = ANY (k.conkey)
            UNION
            -- What is made again may belong to other tables.
            SELECT c.oid FROM unnest(objects) AS d
            LEFT JOIN pg_rewrite AS r ON d.class = 'pg_rewrite'::regclass AND r.oid = d.id
            LEFT JOIN pg_trigger AS t ON d.class = 'pg_trigger'::regclass AND t.oid = d.id
            LEFT JOIN pg_policy AS p ON d.class = 'pg_policy'::regclass AND p.oid = d.id
            JOIN pg_class AS c ON c.oid IN (r.ev_class, t.tgrelid, p.polrelid) AND c.relkind IN ('r', 'p')
            UNION
            -- Partitions too, each by itself: LOCK of the whole table would wait anew for each.
            SELECT h.inhrelid FROM locked AS l JOIN pg_class AS c ON c.oid = l.id AND c.relkind = 'p'
            JOIN pg_inherits AS h ON h.inhparent = l.id),
        referred (id, by) AS (
            SELECT k.confrelid, l.id FROM locked AS l JOIN pg_constraint AS k ON k.conrelid = l.id AND k.contype = 'f'
            UNION SELECT k.confrelid, r.by FROM referred AS r JOIN pg_constraint AS k ON k.conrelid = r.id AND k.contype = 'f'),
        depths (id, depth) AS (SELECT r.by, count(*) FROM referred AS r GROUP BY r.by)
        SELECT format('LOCK TABLE %s%s IN ACCESS EXCLUSIVE MODE', CASE t.kind WHEN 'p' THEN 'ONLY ' ELSE '' END, t.name)
        FROM (SELECT _snowflake.name(l.id), _snowflake.name(w.id), c.relkind, coalesce(d.depth, 0),
                  (SELECT count(*) FROM pg_partition_ancestors(l.id) AS a)
              FROM locked AS l JOIN pg_class AS c ON c.oid = l.id
              CROSS JOIN LATERAL (SELECT coalesce(pg_partition_root(l.id)::oid, l.id)) AS w (id)
              LEFT JOIN depths AS d ON d.id = w.id) AS t (name, whole, kind, depth, level)
        ORDER BY t.depth, t.whole, t.level, t.name;
    RETURN QUERY
        SELECT d.drop_statement FROM unnest(objects) WITH ORDINALITY AS d ORDER BY d.ordinality DESC;
    RETURN QUERY
        WITH columns AS (SELECT * FROM unnest(copies)),
        sources AS (SELECT DISTINCT c.relation, c.root, c.kind, c.table_name FROM columns AS c),
        -- Constraints of the columns, with those foreign keys that refer to them.
        constraints AS (
            SELECT k.*, _snowflake.name(k.conrelid) AS table_name,
                _snowflake_convert.copy_name(k.conname) AS copy,
                t.relkind AS kind, f.relkind AS referred_kind
            FROM pg_constraint AS k
            JOIN pg_class AS t ON t.oid = k.conrelid
            LEFT JOIN pg_class AS f ON f.oid = k.confrelid
            LEFT JOIN pg_constraint AS p ON p.oid = k.conparentid AND k.contype = 'f'
            WHERE p.conrelid IS DISTINCT FROM k.conrelid AND k.contype IN ('p', 'u', 'f', 'c')
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = k.conrelid AND c.copy_number = ANY (k.conkey))
              AND EXISTS (SELECT FROM columns AS c
                  WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey)
                     OR k.contype = 'f' AND c.relation = k.confrelid AND c.number = ANY (k.confkey)
                     -- INCLUDE
                     OR k.contype IN ('p', 'u') AND c.relation = k.conrelid AND EXISTS (
                        SELECT FROM pg_index AS i WHERE i.indexrelid = k.conindid AND c.number = ANY (i.indkey)))),
        indexes AS (
            SELECT i.*, n.nspname, x.relnamespace, x.relname, x.reltablespace, _snowflake_convert.copy_name(x.relname) AS copy, s.table_name, s.kind,
                _snowflake.name(i.indexrelid) AS name,
                EXISTS (SELECT FROM pg_constraint AS k
                    WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u')) AS is_constraint
            FROM sources AS s
            JOIN pg_index AS i ON i.indrelid = s.relation
            JOIN pg_class AS x ON x.oid = i.indexrelid
            JOIN pg_namespace AS n ON n.oid = x.relnamespace
            CROSS JOIN _snowflake_convert.index_columns(x.oid) AS u (numbers)
            WHERE EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.number = ANY (u.numbers))
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.copy_number = ANY (u.numbers))),
        owned AS (
            SELECT o.oid AS id, _snowflake.name(o.oid) AS name, c.table_name, c.copy FROM columns AS c
            JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relation AND d.refobjsubid = c.number
                AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
            JOIN pg_class AS o ON o.oid = d.objid AND o.relkind = 'S'),
        statistics AS (
            SELECT x.oid, n.nspname, x.stxname, x.stxowner, x.stxstattarget FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
            WHERE EXISTS (SELECT FROM columns AS c JOIN pg_depend AS d ON d.refobjsubid = c.number
                WHERE c.relation = x.stxrelid AND d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = x.stxrelid)),
        steps (phase, place, text) AS (
            SELECT 1, k.table_name, format('ALTER TABLE %s %s', k.table_name,
                string_agg(format('DROP CONSTRAINT %I', k.conname), ', ' ORDER BY k.conname))
            FROM constraints AS k WHERE k.contype = 'f' AND k.conparentid = 0 GROUP BY k.table_name
            UNION ALL SELECT 2, s.table_name, format('DROP TRIGGER %I ON %s', '~snowflake_convert', s.table_name)
            FROM sources AS s WHERE s.relation = s.root
            UNION ALL SELECT 3, o.name, format('ALTER SEQUENCE %s%s OWNED BY %s.%I', o.name,
                CASE WHEN what.set_default THEN '' ELSE ' AS bigint' END, o.table_name, o.copy)
            FROM owned AS o
            UNION ALL
            -- A validated constraint says that a copy has no null: PostgreSQL does not look again. From PostgreSQL 18 on,
            -- NOT NULL has a name and perhaps a comment.
            SELECT 4, s.table_name, format('ALTER TABLE %s %s', s.table_name, (
                SELECT string_agg(concat_ws(', ', format('DROP COLUMN %I', c.name), CASE
                    WHEN n.oid IS NOT NULL THEN format('ADD CONSTRAINT %I NOT NULL %I%s', n.conname, c.copy,
                        substr(pg_get_constraintdef(n.oid), length(format('NOT NULL %I', c.name)) + 1))
                    WHEN a.attnotnull THEN format('ALTER COLUMN %I SET NOT NULL', c.copy) END), ', ' ORDER BY c.number)
                FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
                LEFT JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.contype = 'n' AND n.conkey = ARRAY[c.number]
                WHERE c.relation = s.relation))
            FROM sources AS s WHERE s.relation = s.root
            UNION ALL SELECT 5, c.table_name, format('ALTER TABLE %s RENAME COLUMN %I TO %I', c.table_name, c.copy, c.name)
            FROM columns AS c WHERE c.relation = c.root
            UNION ALL
            -- Then nothing needs that constraint. online_obstacles() has made sure of what snowflake_set_default() would look at,
            -- so that nobody waits for that.
            SELECT 8, u.table_name, format('ALTER TABLE %s %s', u.table_name, string_agg(u.text, ', ' ORDER BY u.text DESC)) FROM (
                SELECT c.table_name, format('DROP CONSTRAINT %I', '~' || c.copy)
                FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attnotnull WHERE c.relation = c.root
                UNION ALL SELECT k.table_name, format('ADD CONSTRAINT %I %s USING INDEX %I%s', k.conname,
                    CASE k.contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END, k.conname,
                    CASE WHEN k.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED' WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END)
                FROM constraints AS k JOIN indexes AS i ON i.indexrelid = k.conindid
                WHERE k.contype IN ('p', 'u') AND k.kind = 'r'
                UNION ALL SELECT c.table_name, format('ALTER COLUMN %I SET DEFAULT %s', c.name,
                    CASE WHEN what.generator <> _snowflake.default_generator()
                        THEN format('%s(%L::regclass)', _snowflake.issuer(false)::regproc, _snowflake.name(what.generator))
                        ELSE _snowflake.issuer(true)::text END)
                FROM columns AS c WHERE what.set_default AND c.is_key AND c.relation = c.root) AS u (table_name, text)
            GROUP BY u.table_name
            UNION ALL
            -- Those of the partitions are attached below.
            SELECT 8, k.table_name, format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', k.table_name, k.conname, pg_get_constraintdef(k.oid))
            FROM constraints AS k JOIN indexes AS i ON i.indexrelid = k.conindid WHERE k.contype IN ('p', 'u') AND k.kind <> 'r'
            UNION ALL
            -- Before a constraint takes them, so that PostgreSQL does not rename them with a notice, and slowly.
            SELECT 7, i.relname, format('ALTER INDEX %I.%I RENAME TO %I', i.nspname, i.copy, i.relname) FROM indexes AS i WHERE i.kind = 'r'
            UNION ALL SELECT 9, i.relname, pg_get_indexdef(i.indexrelid) FROM indexes AS i WHERE i.kind <> 'r' AND NOT i.is_constraint
            UNION ALL SELECT 10, p.name || i.name, format('ALTER INDEX %s ATTACH PARTITION %s', p.name, i.name)
            FROM indexes AS i JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid JOIN indexes AS p ON p.indexrelid = h.inhparent
            UNION ALL
            -- For partitions to come.
            SELECT 10, i.name, format('ALTER INDEX %s SET TABLESPACE %I', i.name, t.spcname)
            FROM indexes AS i JOIN pg_tablespace AS t ON t.oid = i.reltablespace WHERE i.kind = 'p'
            UNION ALL
            -- A partition's foreign key has been validated, so that of the whole table takes
            -- it over. One that refers to a partitioned table is validated after the swap.
            SELECT 11, k.table_name, format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', k.table_name, k.copy, k.conname)
            FROM constraints AS k WHERE k.contype = 'f' AND k.kind = 'r' AND k.referred_kind = 'r'
            UNION ALL SELECT 12, k.table_name, format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', k.table_name, k.conname, pg_get_constraintdef(k.oid),
                CASE WHEN k.kind = 'r' AND k.convalidated THEN ' NOT VALID' ELSE '' END)
            FROM constraints AS k WHERE k.contype = 'f' AND k.conparentid = 0 AND 'p' IN (k.kind, k.referred_kind)
            UNION ALL SELECT 13, k.table_name, format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', k.table_name, k.conname, pg_get_constraintdef(k.oid),
                CASE WHEN k.convalidated THEN ' NOT VALID' ELSE '' END)
            FROM constraints AS k WHERE k.contype = 'c' AND k.coninhcount = 0
            UNION ALL SELECT 14, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT %s',
                c.table_name, c.name, pg_get_expr(e.adbin, e.adrelid))
            FROM columns AS c JOIN pg_attrdef AS e ON e.adrelid = c.relation AND e.adnum = c.number WHERE NOT (what.set_default AND c.is_key)
            UNION ALL
            -- Others that defaults draw from.
            SELECT DISTINCT 15, q.name, format('ALTER SEQUENCE %s AS bigint', q.name) FROM columns AS c
            JOIN _snowflake.defaults AS d ON d.relation = c.relation AND d.number = c.number
            JOIN pg_sequence AS o ON o.seqrelid = d.sequence AND o.seqtypid <> 'bigint'::regtype
            CROSS JOIN _snowflake.name(o.seqrelid) AS q (name) WHERE NOT what.set_default AND o.seqrelid NOT IN (SELECT w.id FROM owned AS w)
            UNION ALL SELECT 16, s.table_name, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', s.table_name, i.relname)
            FROM sources AS s JOIN indexes AS i ON i.indrelid = s.relation AND i.indisreplident
            UNION ALL SELECT 16, s.table_name, format('ALTER TABLE %s CLUSTER ON %I', s.table_name, i.relname)
            FROM sources AS s JOIN indexes AS i ON i.indrelid = s.relation AND i.indisclustered
            UNION ALL SELECT 17, x.stxname, pg_get_statisticsobjdef(x.oid) FROM statistics AS x
            UNION ALL SELECT 18, x.stxname, format('ALTER STATISTICS %I.%I OWNER TO %I', x.nspname, x.stxname, pg_get_userbyid(x.stxowner))
            FROM statistics AS x WHERE x.stxowner <> quote_ident(current_user)::regrole
            UNION ALL SELECT 18, x.stxname, format('ALTER STATISTICS %I.%I SET STATISTICS %s', x.nspname, x.stxname, x.stxstattarget)
            FROM statistics AS x WHERE x.stxstattarget >= 0
            UNION ALL SELECT 18, x.stxname, format('COMMENT ON STATISTICS %I.%I IS ', x.nspname, x.stxname)
                || quote_literal(obj_description(x.oid, 'pg_statistic_ext'))
            FROM statistics AS x
            UNION ALL SELECT 19, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET STATISTICS %s', c.table_name, c.name, a.attstattarget)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number WHERE a.attstattarget >= 0
            UNION ALL SELECT 19, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET (%s)', c.table_name, c.name, o)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
            CROSS JOIN unnest(a.attoptions) AS o WHERE o LIKE 'n\_distinct%'
            UNION ALL
            -- Those of the copy itself, which the first step has granted, and then those of
            -- the column.
            SELECT DISTINCT 20, c.table_name, format('REVOKE ALL (%I) ON TABLE %s FROM %s', c.name, c.table_name,
                CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.copy_number
            CROSS JOIN aclexplode(a.attacl) AS e
            UNION ALL SELECT 21, c.table_name, g.statement FROM columns AS c JOIN pg_class AS t ON t.oid = c.relation
            JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attacl IS NOT NULL
            CROSS JOIN _snowflake_convert.grants(a.attacl, t.relowner, 'c', 'TABLE ' || c.table_name, c.name) AS g (statement)
            UNION ALL SELECT 22, i.relname, format('ALTER INDEX %I.%I ALTER COLUMN %s SET STATISTICS %s',
                i.nspname, i.relname, a.attnum, a.attstattarget)
            FROM indexes AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid AND a.attstattarget >= 0
            UNION ALL
            -- The copy in the whole table has a comment of ours.
            SELECT 22, c.table_name, format('COMMENT ON COLUMN %s.%I IS ', c.table_name, c.name)
                || coalesce(quote_literal(col_description(c.relation, c.number)), CASE WHEN c.relation = c.root THEN 'NULL' END)
            FROM columns AS c
            UNION ALL SELECT 22, c.table_name, format('SECURITY LABEL FOR %I ON COLUMN %s.%I IS %L', l.provider, c.table_name, c.name, l.label)
            FROM columns AS c JOIN pg_seclabel AS l ON l.classoid = 'pg_class'::regclass AND l.objoid = c.relation AND l.objsubid = c.number
            UNION ALL SELECT 22, k.table_name, format('COMMENT ON CONSTRAINT %I ON %s IS ', k.conname, k.table_name)
                || quote_literal(obj_description(k.oid, 'pg_constraint'))
            FROM constraints AS k
            UNION ALL SELECT 22, c.table_name, format('COMMENT ON CONSTRAINT %I ON %s IS ', n.conname, c.table_name)
                || quote_literal(obj_description(n.oid, 'pg_constraint'))
            FROM columns AS c JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.contype = 'n' AND n.conkey = ARRAY[c.number]
            WHERE c.relation = c.root
            UNION ALL SELECT 22, i.relname, format('COMMENT ON INDEX %I.%I IS ', i.nspname, i.relname)
                || quote_literal(obj_description(i.indexrelid, 'pg_class'))
            FROM indexes AS i)
        SELECT s.text FROM steps AS s WHERE s.text IS NOT NULL ORDER BY s.phase, s.place, s.text;
    RETURN QUERY
        SELECT s.statement FROM unnest(objects) WITH ORDINALITY AS d
        CROSS JOIN unnest(d.statements) WITH ORDINALITY AS s (statement, place)
        ORDER BY d.ordinality, s.place;
    RETURN QUERY
        SELECT 'DROP FUNCTION ' || string_agg(f.name || '()', ', ' ORDER BY f.name) FROM (SELECT DISTINCT c.root FROM unnest(copies) AS c) AS c (relation)
        CROSS JOIN _snowflake_convert.copy_function(c.relation) AS f (name) HAVING count(*) > 0;
END $$;

-- Hashes of the catalogs that a plan is made of. Each row version of a catalog has a place and
-- a transaction, so two results that are the same mean that nothing has changed: reading them
-- takes a tenth of the time of a plan.
CREATE FUNCTION _snowflake_convert.catalog_state() RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    catalog name;
    state bigint;
    states bigint[] := '{}';
BEGIN
    FOREACH catalog IN ARRAY '{pg_attrdef, pg_attribute, pg_class, pg_constraint, pg_default_acl, pg_depend,
        pg_description, pg_index, pg_inherits, pg_namespace, pg_policy, pg_proc, pg_publication, pg_publication_rel,
        pg_rewrite, pg_seclabel, pg_sequence, pg_statistic_ext, pg_trigger, pg_type}'::name[]
    LOOP
        EXECUTE format('SELECT bit_xor(hash_record_extended(ROW (c.ctid, c.xmin), 0)) FROM %I AS c', catalog) INTO state;
        states := states || state;
    END LOOP;
    RETURN states;
END $$;

-- The indexes and constraints of tables, without the copies. Without casts, since an expression
-- may have another one on a bigint; and whether a constraint is valid is left out, since those
-- that are not are validated after the swap. The settings of the caller do not change what it
-- returns, since a procedure and a function with settings of its own both call it.
CREATE FUNCTION _snowflake_convert.swap_result(tables oid[], owners oid[], copies smallint[]) RETURNS text[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex AS $$
    WITH copied (relation, number) AS (SELECT * FROM unnest(owners, copies))
    SELECT array_agg(n.text ORDER BY n.text) FROM (
        SELECT concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid, c.reltablespace)
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = ANY (tables) AND NOT EXISTS (SELECT FROM copied AS o
            WHERE o.relation = i.indrelid AND o.number = ANY (_snowflake_convert.index_columns(i.indexrelid)))
        UNION ALL SELECT format('%s %I %s', _snowflake.name(k.conrelid), k.conname, pg_get_constraintdef(k.oid)) FROM pg_constraint AS k
        WHERE (k.conrelid = ANY (tables) OR k.confrelid = ANY (tables)) AND k.contype IN ('p', 'u', 'f', 'c', 'x')
          AND (k.contype <> 'f' OR k.conparentid = 0) AND NOT EXISTS (SELECT FROM copied AS o
            WHERE o.relation = k.conrelid AND o.number = ANY (k.conkey)
              OR o.relation = k.confrelid AND o.number = ANY (k.confkey))) AS d (text)
    CROSS JOIN regexp_replace(d.text, '::(bigint|integer|smallint)|[()]| NOT VALID$', '', 'g') AS n (text)
$$;

-- Runs the statements of the swap, but for those that were run already to lock the tables, and
-- compares indexes and constraints with those before. Runs under the locks that
-- snowflake_convert_run() has got: what can be known before is given, and is looked at
-- again only if a catalog has changed since.
CREATE FUNCTION _snowflake_convert.swap(
    what _snowflake_convert.request, steps text[], done integer, state bigint[], owners oid[], copies smallint[], before text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex AS $$
DECLARE
    locked constant timestamptz := clock_timestamp();
    changed constant oid[] := ARRAY(SELECT DISTINCT unnest(owners));
    after text[];
    valid_of oid[];     -- constraints before the swap, with their tables
    valid name[];
BEGIN
    IF _snowflake_convert.catalog_state() IS DISTINCT FROM state THEN
        IF ARRAY(SELECT s FROM _snowflake_convert.swap_plan(what) AS s) <> steps THEN
            RAISE EXCEPTION 'could not swap columns: tables were changed before they were locked'
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run snowflake_convert_steps() again.';
        END IF;
        before := _snowflake_convert.swap_result(changed, owners, copies);
        PERFORM _snowflake_convert.check_copying(t.root)
            FROM (SELECT DISTINCT coalesce(pg_partition_root(c.id), c.id) FROM unnest(changed) AS c (id)) AS t (root);
    END IF;
    -- Foreign keys that refer to the tables may be those of other tables.
    SELECT array_agg(k.conrelid), array_agg(k.conname) INTO valid_of, valid FROM pg_constraint AS k
    WHERE (k.conrelid = ANY (changed) OR k.confrelid = ANY (changed)) AND k.contype IN ('c', 'f') AND k.conparentid = 0 AND k.convalidated;
    FOR i IN 1 + done .. cardinality(steps) LOOP
        PERFORM _snowflake_convert.run(steps[i]);
    END LOOP;
    -- The schema that the defaults name could have been renamed after they were written.
    IF EXISTS (
        SELECT FROM _snowflake.defaults AS d JOIN pg_proc AS p ON p.oid = d.function AND p.proname = 'snowflake_nextval'
        WHERE what.set_default AND d.relation = ANY (changed) AND p.oid NOT IN (_snowflake.issuer(true), _snowflake.issuer(false)))
    THEN
        RAISE EXCEPTION 'could not swap columns: the schema of extension snowflake_id was renamed meanwhile'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run snowflake_convert_steps() again.';
    END IF;
    INSERT INTO _snowflake_convert.conversions AS p (relation, pages_done, pages, rows_done, started, updated, to_validate)
        SELECT t.id, 0, 0, 0, clock_timestamp(), clock_timestamp(),
            coalesce(array_agg(k.conname ORDER BY k.conname) FILTER (WHERE k.oid IS NOT NULL), '{}')
        FROM (SELECT c, NULL::name FROM unnest(changed) AS c
              UNION SELECT v.* FROM unnest(valid_of, valid) AS v) AS t (id, name)
        LEFT JOIN pg_constraint AS k ON k.conrelid = t.id AND k.conname = t.name AND NOT k.convalidated WHERE t.name IS NULL OR k.oid IS NOT NULL
        GROUP BY t.id
        ON CONFLICT ON CONSTRAINT conversions_pkey DO UPDATE SET to_validate = excluded.to_validate, filled = NULL,
            updated = clock_timestamp(), ended = NULL;
    after := _snowflake_convert.swap_result(changed, '{}', '{}');
    IF before IS DISTINCT FROM after THEN
        RAISE EXCEPTION 'could not swap columns: an index or a constraint would not be the same'
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('Before: %s; and after: %s',
                (SELECT string_agg(b, '; ') FROM (SELECT unnest(before) EXCEPT SELECT unnest(after)) AS x (b)),
                (SELECT string_agg(a, '; ') FROM (SELECT unnest(after) EXCEPT SELECT unnest(before)) AS x (a))),
            HINT = 'Undo the conversion by snowflake_convert_undo(), and convert the tables at once.';
    END IF;
    RAISE NOTICE 'columns were swapped; all tables were locked for % ms, after % ms in which they were locked one by one',
        round(extract(epoch FROM clock_timestamp() - locked) * 1000), round(extract(epoch FROM locked - now()) * 1000);
END $$;

CREATE PROCEDURE _snowflake_convert.snowflake_convert_swap(
    relations regclass[], schemas regnamespace[], generator regclass, set_default boolean, tries integer, also pg_catalog.text[]) LANGUAGE plpgsql AS $$
DECLARE
    what _snowflake_convert.request;
    part _snowflake_convert.request;    -- what one transaction swaps
    waiting pg_catalog.text[];     -- of each transaction that is left, the groups of tables and objects
    late pg_catalog.text[] := '{}';     -- those of them that were alone, and could not be locked
    groups pg_catalog.text[];
    lockers pg_catalog.text;
    most integer;
    owners pg_catalog.oid[];       -- of each copy, the table
    copies smallint[];  -- and the number of the column
    is_analyzed boolean := false;
    nodes bigint[];     -- its tables and objects
    steps pg_catalog.text[];
    locks pg_catalog.text[];       -- the first of them
    swap pg_catalog.text;
    state bigint[];
    left_over pg_catalog.text;
    to_analyze pg_catalog.text;
BEGIN
    LOOP
        PERFORM _snowflake.fix_settings();
        PERFORM _snowflake_convert.need_read_committed();
        what := _snowflake_convert.request(relations, schemas, also, generator, set_default);
        PERFORM _snowflake_convert.check_obstacles(what, false);
        SELECT s.statement INTO left_over FROM _snowflake_convert.steps(what, schemas) AS s ORDER BY s.step LIMIT 1;
        IF left_over IS NULL OR left_over NOT LIKE '%.snowflake_convert_swap(%' THEN
            RAISE EXCEPTION 'cannot swap columns yet, or no longer'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = coalesce('The next step is: ' || left_over, 'There is nothing to convert.'),
                HINT = 'Run the statements of snowflake_convert_steps(), which has this call as one of the last.';
        END IF;
        EXIT WHEN is_analyzed;
        -- The statistics of the copies stay when they are renamed.
        is_analyzed := true;
        FOR to_analyze IN SELECT DISTINCT _snowflake.name(c.root) FROM _snowflake_convert.copies(what) AS c LOOP
            EXECUTE format('ANALYZE %s', to_analyze);
        END LOOP;
        COMMIT;
    END LOOP;
    waiting := ARRAY(SELECT s.groups::text FROM _snowflake_convert.lock_room() AS r
        CROSS JOIN _snowflake_convert.swaps(_snowflake_convert.work_of(what, NULL, NULL, true), r.locks) AS s);
    LOOP
        PERFORM _snowflake.fix_settings();
        EXIT WHEN cardinality(waiting) = 0;
        PERFORM _snowflake_convert.need_read_committed();
        groups := waiting[1];
        waiting := waiting[2:];
        state := _snowflake_convert.catalog_state();
        part := what;
        nodes := ARRAY(SELECT unnest(g::bigint[]) FROM unnest(groups) AS g);
        part.relations := ARRAY(SELECT t FROM unnest(what.relations) AS t WHERE _snowflake_convert.node('pg_class'::regclass, t) = ANY (nodes));
        part.also := ARRAY(SELECT a FROM unnest(what.also) AS a WHERE _snowflake_convert.node('pg_class'::regclass, a.relation) = ANY (nodes));
        PERFORM _snowflake_convert.check_copying(c.root) FROM (SELECT DISTINCT c.root FROM _snowflake_convert.copies(part) AS c) AS c;
        steps := ARRAY(SELECT s FROM _snowflake_convert.swap_plan(part) AS s);
        -- The first statements, up to one that is no lock.
        locks := steps[:(SELECT min(s.place) - 1 FROM unnest(steps) WITH ORDINALITY AS s (s, place)
            WHERE s !~ '^LOCK TABLE ' AND s !~ '^ALTER (MATERIALIZED )?VIEW .* OWNER TO ')];
        SELECT array_agg(c.relation::oid), array_agg(c.copy_number) INTO owners, copies FROM _snowflake_convert.copies(part) AS c;
        -- Another session has tied them to those of a swap before.
        CONTINUE WHEN owners IS NULL;
        swap := format('SELECT _snowflake_convert.swap(%L, %L, %L, %L, %L, %L, %L)',
            part, steps, cardinality(locks), state, owners, copies,
            _snowflake_convert.swap_result(owners, owners, copies));
        -- Tables that cannot be locked keep back only those that they are tied to: their group is swapped alone, and last.
        lockers := CASE WHEN cardinality(groups) > 1 OR cardinality(waiting) > 0 AND NOT late @> (waiting || groups::text) THEN '' END;
        most := CASE WHEN lockers IS NOT NULL AND tries > 8 THEN 8 ELSE tries END;
        COMMIT;
        CALL _snowflake_convert.run_with_locks(swap, locks, most, lockers);
        COMMIT;
        IF lockers IS NOT NULL THEN
            PERFORM _snowflake.fix_settings();
            IF cardinality(groups) > 1 THEN
                RAISE NOTICE 'the tables of this swap are swapped in % transactions, since they could not be locked together: %', cardinality(groups), lockers;
                waiting := waiting || ARRAY(SELECT ARRAY[g]::text FROM unnest(groups) AS g);
            ELSE
                waiting := waiting || groups::text;
                late := late || groups::text;
            END IF;
        END IF;
    END LOOP;
END $$;

CREATE PROCEDURE snowflake_convert_swap(relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true, tries integer DEFAULT 1000, also text[] DEFAULT NULL)
    LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_internal_held_procedure';
COMMENT ON PROCEDURE snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer, text[]) IS
    'for snowflake_convert_steps(): puts the copies in the places of the columns, in short transactions; '
    'waits for locks for half a second at most, again and again until it gets them; what it cannot lock, it swaps last';
