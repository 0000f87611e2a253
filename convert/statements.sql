-- The statements that change the columns, and make again what goes with a generated column:
-- step 4 of plan.sql.

-- The statements that drop the foreign keys of columns that get new values, and those that add them again, in the order in which the
-- keys were made. A comment on a key between tables of two owners is taken off, and put on again by the caller: ALTER TABLE would put
-- it on as the owner of one of them, who must not.
CREATE FUNCTION _snowflake_convert.moved_foreign_keys(work _snowflake_convert.work, OUT drop_statements text[], OUT add_statements text[])
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH members AS (
        SELECT m.member AS id, m.number, c.origin IS NOT NULL AS is_moved FROM unnest((work).columns) AS c
        JOIN unnest((work).members) AS m ON m.relation = c.relation AND m.name = c.name WHERE c.is_altered),
    found AS (
        SELECT k.*, _snowflake.name(k.conrelid) AS table_name, m.is_moved, d.description FROM pg_constraint AS k
        CROSS JOIN LATERAL (SELECT bool_or(m.is_moved) FROM members AS m WHERE m.id = k.conrelid AND m.number = ANY (k.conkey)
            OR m.id = k.confrelid AND m.number = ANY (k.confkey)) AS m (is_moved)
        LEFT JOIN pg_description AS d ON d.classoid = 'pg_constraint'::regclass AND d.objoid = k.oid
        WHERE k.contype = 'f' AND k.conparentid = 0 AND (m.is_moved OR NOT m.is_moved AND d.description IS NOT NULL
            AND (SELECT count(DISTINCT c.relowner) FROM pg_class AS c WHERE c.oid IN (k.conrelid, k.confrelid)) > 1))
    SELECT coalesce(array_agg(CASE WHEN f.is_moved THEN format('ALTER TABLE %s DROP CONSTRAINT %I', f.table_name, f.conname)
            ELSE format('COMMENT ON CONSTRAINT %I ON %s IS NULL', f.conname, f.table_name) END ORDER BY f.oid), '{}'),
        coalesce(array_agg(format('ALTER TABLE %s ADD CONSTRAINT %I %s',
            f.table_name, f.conname, pg_get_constraintdef(f.oid)) ORDER BY f.oid) FILTER (WHERE f.is_moved), '{}')
            || coalesce(array_agg(format('COMMENT ON CONSTRAINT %I ON %s IS %L', f.conname, f.table_name, f.description) ORDER BY f.oid)
                FILTER (WHERE f.description IS NOT NULL), '{}')
    FROM found AS f
$$;

-- The statements that change the columns, with the bytes that they rewrite. One statement for
-- each table, so that it is rewritten once. PostgreSQL carries out the parts in this order. A
-- generated column of a child table alone goes before.
CREATE FUNCTION _snowflake_convert.alter_tables(
    work _snowflake_convert.work, OUT statement text, OUT rewrites bigint, OUT note text) RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
        FROM unnest((work).members) AS g
        JOIN pg_attribute AS a ON a.attrelid = g.relation AND a.attname = g.name
        JOIN pg_type AS y ON y.oid = a.atttypid
        JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE g.is_generated AND g.member = g.relation),
    parts (relation, phase, place, part) AS (
        SELECT m.relation, 1, m.attnum, format('DROP COLUMN %I', m.name) FROM made AS m
        UNION ALL SELECT c.relation, 2, c.number, format('ALTER COLUMN %I TYPE bigint', c.name)
            || CASE WHEN c.origin IS NULL THEN ''
                ELSE format(' USING pg_temp.snowflake_new_id(%L::pg_catalog.regclass, %L::pg_catalog.name, %I::bigint)',
                    _snowflake.name(c.origin), c.origin_name, c.name) END
        FROM unnest((work).columns) AS c WHERE c.is_altered
        UNION ALL SELECT m.relation, 3, m.attnum, m.definition FROM made AS m),
    -- Whether the column that it is made of is inherited.
    alone AS (
        SELECT DISTINCT m.relation FROM made AS m
        WHERE NOT EXISTS (SELECT FROM parts AS p WHERE p.relation = m.relation AND p.phase = 2))
    SELECT format('ALTER TABLE %s %s', _snowflake.name(p.relation), string_agg(p.part, ', ' ORDER BY p.phase, p.place)),
        (SELECT nullif(sum(pg_total_relation_size(f.member)), 0)
         FROM (SELECT m.member FROM unnest((work).members) AS m WHERE m.relation = p.relation AND NOT m.is_generated
               UNION SELECT p.relation) AS f (member)
         WHERE max(p.phase) > 1),
        CASE WHEN max(p.phase) = 3 THEN 'a generated column moves to the end of the table' END
    FROM parts AS p
    GROUP BY p.relation, CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN p.phase ELSE 2 END
    ORDER BY CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN min(p.phase) ELSE 2 END,
        _snowflake.name(p.relation)
$$;

-- The statements that make again what has gone with a generated column.
CREATE FUNCTION _snowflake_convert.remake_generated(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH members AS (
        SELECT m.member AS id, m.number, m.name, m.relation FROM unnest((work).members) AS m WHERE m.is_generated),
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
        SELECT 1, m.name, format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', _snowflake.name(m.id), m.name) FROM members AS m
        JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number AND a.attnotnull
        JOIN pg_attribute AS r ON r.attrelid = m.relation AND r.attname = m.name AND NOT r.attnotnull
        UNION ALL SELECT 1, k.conname, format('ALTER TABLE %s ADD CONSTRAINT %I %s',
            _snowflake.name(k.conrelid), k.conname, pg_get_constraintdef(k.oid))
        FROM pg_constraint AS k WHERE k.contype = 'c' AND k.coninhcount = 0
          AND EXISTS (SELECT FROM members AS m WHERE m.id = k.conrelid AND m.number = ANY (k.conkey))
        UNION ALL SELECT CASE WHEN i.conname IS NULL THEN 2 ELSE 1 END, i.relname,
            CASE WHEN i.conname IS NULL THEN pg_get_indexdef(i.indexrelid)
                ELSE format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', i.table_name, i.conname, i.definition) END
        FROM indexes AS i
        UNION ALL SELECT 3, i.relname, format('ALTER INDEX %s SET TABLESPACE %I', i.index_name, t.spcname)
        FROM indexes AS i JOIN pg_tablespace AS t ON t.oid = i.reltablespace
        UNION ALL
        -- CREATE INDEX says them, but no constraint does.
        SELECT 3, i.relname, format('ALTER INDEX %s SET (%s)', i.index_name,
            string_agg(format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ' ORDER BY o))
        FROM indexes AS i CROSS JOIN unnest(i.reloptions) AS o WHERE i.conname IS NOT NULL GROUP BY i.relname, i.index_name
        UNION ALL SELECT 4, p.relname || i.relname, format('ALTER INDEX %s ATTACH PARTITION %s', p.index_name, i.index_name)
        FROM indexes AS i JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid JOIN indexes AS p ON p.indexrelid = h.inhparent
        UNION ALL SELECT 5, i.relname, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', i.table_name, i.relname)
        FROM indexes AS i WHERE i.indisreplident
        UNION ALL SELECT 5, i.relname, format('ALTER TABLE %s CLUSTER ON %I', i.table_name, i.relname) FROM indexes AS i WHERE i.indisclustered
        UNION ALL SELECT 5, i.relname, format('COMMENT ON INDEX %s IS ', i.index_name) || quote_literal(obj_description(i.indexrelid, 'pg_class'))
        FROM indexes AS i
        UNION ALL SELECT 5, k.conname, format('COMMENT ON CONSTRAINT %I ON %s IS ', k.conname, _snowflake.name(k.conrelid))
            || quote_literal(obj_description(k.oid, 'pg_constraint'))
        FROM pg_constraint AS k WHERE k.oid IN (
            SELECT o.oid FROM pg_constraint AS o JOIN members AS m ON m.id = o.conrelid
            WHERE m.number = ANY (o.conkey) AND (o.contype = 'c' OR o.contype = 'n' AND m.id = m.relation)
               OR o.contype IN ('p', 'u', 'x') AND o.conindid IN (SELECT i.indexrelid FROM indexes AS i))
        UNION ALL SELECT 6, x.stxname, pg_get_statisticsobjdef(x.oid) FROM pg_statistic_ext AS x
        WHERE EXISTS (SELECT FROM members AS m JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.id AND d.refobjsubid = m.number)
        UNION ALL SELECT 7, x.stxname, format('COMMENT ON STATISTICS %I.%I IS ', n.nspname, x.stxname)
            || quote_literal(obj_description(x.oid, 'pg_statistic_ext'))
        FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
        WHERE EXISTS (SELECT FROM members AS m JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.id AND d.refobjsubid = m.number)
        UNION ALL SELECT 7, m.name, format('ALTER TABLE ONLY %s ALTER COLUMN %I %s', _snowflake.name(m.id), m.name, v.change) FROM members AS m
        JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number
        JOIN pg_type AS y ON y.oid = a.atttypid
        CROSS JOIN LATERAL (VALUES
            (CASE WHEN a.attstattarget >= 0 THEN 'SET STATISTICS ' || a.attstattarget END),
            ((SELECT format('SET (%s)', string_agg(o, ', ')) FROM unnest(a.attoptions) AS o
                WHERE o LIKE 'n\_distinct%' HAVING count(*) > 0)),
            (CASE WHEN a.attstorage <> y.typstorage THEN 'SET STORAGE ' || CASE a.attstorage
                WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' WHEN 'x' THEN 'EXTENDED' END END),
            ('SET COMPRESSION ' || CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END)) AS v (change)
        WHERE v.change IS NOT NULL
        UNION ALL SELECT 7, m.name, format('COMMENT ON COLUMN %s.%I IS %L', _snowflake.name(m.id), m.name, e.description) FROM members AS m
        JOIN pg_description AS e ON e.classoid = 'pg_class'::regclass AND e.objoid = m.id AND e.objsubid = m.number
        UNION ALL SELECT 7, m.name, format('SECURITY LABEL FOR %I ON COLUMN %s.%I IS %L', l.provider, _snowflake.name(m.id), m.name, l.label)
        FROM members AS m
        JOIN pg_seclabel AS l ON l.classoid = 'pg_class'::regclass AND l.objoid = m.id AND l.objsubid = m.number
        UNION ALL SELECT 8, m.name, g.statement FROM members AS m JOIN pg_class AS c ON c.oid = m.id
        JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number AND a.attacl IS NOT NULL
        CROSS JOIN _snowflake_convert.grants(a.attacl, c.relowner, 'c', 'TABLE ' || _snowflake.name(m.id), m.name) AS g (statement))
    SELECT m.statement FROM made AS m WHERE m.statement IS NOT NULL ORDER BY m.phase, m.name, m.statement
$$;

-- The statements for what ALTER TABLE .. TYPE does not keep of statistics and indexes. The
-- statistics are the caller's after ALTER TABLE.
CREATE FUNCTION _snowflake_convert.remake_statistics(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('ALTER STATISTICS %I.%I OWNER TO %I', n.nspname, x.stxname, pg_get_userbyid(x.stxowner))
    FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
    WHERE x.stxowner <> quote_ident(current_user)::regrole AND x.oid = ANY ((work).statistics)
    UNION ALL SELECT format('ALTER STATISTICS %I.%I SET STATISTICS %s', n.nspname, x.stxname, x.stxstattarget)
    FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace WHERE x.stxstattarget >= 0 AND x.stxrelid = ANY ((work).tables)
    UNION ALL SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', _snowflake.name(i.indexrelid), a.attnum, a.attstattarget)
    FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid WHERE a.attstattarget >= 0 AND i.indrelid = ANY ((work).tables)
    ORDER BY 1
$$;
