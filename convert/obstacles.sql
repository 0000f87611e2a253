-- What keeps a conversion from beginning: step 4 of plan.sql, whose head has the rules. Each
-- function returns a line for each obstacle.

-- The columns that change, in each table that has them, and those that are generated from them.
CREATE FUNCTION _snowflake_convert.altered(work _snowflake_convert.work, OUT member oid, OUT number smallint, OUT is_generated boolean, OUT described text)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.member, m.number, m.is_generated, format('%s.%I', _snowflake.name(m.relation), m.name) FROM unnest((work).members) AS m WHERE m.is_altered
$$;

-- Rights that the caller, or an owner of tables, does not have.
CREATE FUNCTION _snowflake_convert.obstacles_of_rights(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH members AS MATERIALIZED (
        SELECT p.relation AS root, CASE WHEN NOT p.is_generated THEN p.number END AS number, c.*
        FROM unnest((work).members) AS p JOIN pg_class AS c ON c.oid = p.member WHERE p.is_altered),
    keys AS MATERIALIZED (
        SELECT k.* FROM pg_constraint AS k
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM members AS m WHERE m.oid = k.conrelid AND m.number = ANY (k.conkey)))
    SELECT format('must be owner of %s', pg_describe_object('pg_class'::regclass, c.oid, 0)) FROM pg_class AS c
    WHERE (c.oid = ANY ((work).sources)
        OR c.oid IN (SELECT a.member FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)) AND NOT pg_has_role(c.relowner, 'USAGE')
    UNION ALL SELECT format('must be owner of %s', d.described) FROM unnest((work).objects) AS d WHERE NOT pg_has_role(d.owner, 'USAGE')
    UNION ALL
    -- They are made again by the caller, and then given to their owner.
    SELECT format('must be owner of %s', pg_describe_object('pg_statistic_ext'::regclass, x.oid, 0)) FROM pg_statistic_ext AS x
    WHERE NOT pg_has_role(x.stxowner, 'USAGE') AND (x.oid = ANY ((work).statistics)
        OR x.stxrelid IN (SELECT d.id FROM unnest((work).objects) AS d WHERE d.class = 'pg_class'::regclass))
    UNION ALL
    -- A statement about a table runs as its owner, unless he is the caller; a foreign key that a column
    -- has is made anew.
    SELECT DISTINCT format('table %s belongs to role %I, which does not have the rights of role %I, the owner of %s: give both to one role',
        _snowflake.name(t.oid), pg_get_userbyid(t.relowner), pg_get_userbyid(m.relowner), _snowflake.name(m.oid))
    FROM members AS m JOIN pg_class AS t ON t.oid = m.root
    WHERE t.relowner <> quote_ident(current_user)::regrole AND NOT pg_has_role(t.relowner, m.relowner, 'USAGE')
    UNION ALL SELECT DISTINCT format('role %I, which owns table %s, needs: GRANT USAGE ON SCHEMA %I TO %1$I',
        pg_get_userbyid(m.relowner), _snowflake.name(m.oid), n.nspname)
    FROM members AS m
    CROSS JOIN LATERAL (
        SELECT m.relnamespace
        UNION SELECT f.relnamespace FROM keys AS k JOIN pg_class AS f ON f.oid = k.confrelid WHERE k.conrelid = m.oid) AS w (schema)
    JOIN pg_namespace AS n ON n.oid = w.schema AND m.relpersistence <> 't'
    WHERE m.relowner <> quote_ident(current_user)::regrole AND NOT has_schema_privilege(m.relowner, n.oid, 'USAGE')
    UNION ALL SELECT format('role %I, which owns table %s, needs for its constraint %I: GRANT REFERENCES ON TABLE %s TO %1$I',
        pg_get_userbyid(t.relowner), _snowflake.name(t.oid), k.conname, _snowflake.name(k.confrelid))
    FROM keys AS k JOIN pg_class AS t ON t.oid = k.conrelid WHERE t.relowner <> quote_ident(current_user)::regrole
      AND NOT (SELECT bool_and(has_column_privilege(t.relowner, k.confrelid, u.number, 'REFERENCES')) FROM unnest(k.confkey) AS u (number))
    UNION ALL
    -- The indexes of generated columns are made anew. So are those of partitioned tables
    -- that stay in use.
    SELECT DISTINCT format('role %I, which owns table %s, needs: GRANT CREATE ON SCHEMA %I TO %1$I',
        pg_get_userbyid(t.relowner), _snowflake.name(t.oid), n.nspname)
    FROM unnest((work).members) AS p
    JOIN pg_class AS t ON t.oid = p.member AND t.relpersistence <> 't'
    JOIN pg_namespace AS n ON n.oid = t.relnamespace WHERE p.is_altered AND (p.is_generated OR (work).in_use AND t.relkind = 'p')
      AND t.relowner <> quote_ident(current_user)::regrole AND NOT has_schema_privilege(t.relowner, n.oid, 'CREATE')
    UNION ALL
    -- The last step reads the greatest key as the owner, also of a column that has its type already.
    SELECT DISTINCT v.note FROM unnest((work).columns) AS c
    JOIN pg_class AS t ON t.oid = c.relation AND t.relpersistence <> 't'
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_roles AS o ON o.oid = t.relowner
    CROSS JOIN LATERAL (VALUES
        (CASE WHEN NOT c.is_altered AND o.rolname <> current_user AND NOT has_schema_privilege(o.oid, n.oid, 'USAGE') THEN
            format('role %I, which owns table %s, needs: GRANT USAGE ON SCHEMA %I TO %1$I', o.rolname, _snowflake.name(t.oid), n.nspname) END),
        (CASE WHEN t.relrowsecurity AND t.relforcerowsecurity AND NOT (o.rolsuper OR o.rolbypassrls OR (work).in_use) THEN
            format('row-level security applies to the owner of table %s, who would not see all rows: '
                'ALTER TABLE %1$s NO FORCE ROW LEVEL SECURITY meanwhile', _snowflake.name(t.oid)) END)) AS v (note)
    WHERE (work).set_default AND c.is_key AND v.note IS NOT NULL
$$;

-- Tables that PostgreSQL, Citus or another conversion keep as they are.
CREATE FUNCTION _snowflake_convert.obstacles_of_tables(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE members AS (
        SELECT u.member, u.number, format('%s.%I', _snowflake.name(u.member), a.attname) AS described, a.attinhcount, c.*
        FROM unnest((work).tables, (work).numbers) AS u (member, number)
        JOIN pg_attribute AS a ON a.attrelid = u.member AND a.attnum = u.number
        JOIN pg_class AS c ON c.oid = u.member),
    -- Types whose values have values of another type in them.
    holders (id, within) AS MATERIALIZED (
        SELECT y.typbasetype, y.oid FROM pg_type AS y WHERE y.typtype = 'd'
        UNION ALL SELECT y.typelem, y.oid FROM pg_type AS y WHERE y.typelem <> 0
        UNION ALL SELECT r.rngsubtype, w.id FROM pg_range AS r CROSS JOIN unnest(ARRAY[r.rngtypid, r.rngmultitypid]) AS w (id)
        UNION ALL SELECT a.atttypid, c.reltype FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid AND c.reltype <> 0
        -- A type of PostgreSQL itself is none of them.
        WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 12000),
    row_types (relation, id) AS (
        SELECT m.member, m.reltype FROM members AS m
        UNION SELECT r.relation, h.within FROM row_types AS r JOIN holders AS h ON h.id = r.id)
    SELECT DISTINCT format('table %s is of type %s: change the type first', _snowflake.name(m.member), m.reloftype::regtype)
    FROM members AS m WHERE m.reloftype <> 0
    UNION ALL SELECT DISTINCT format('%s has the row type of table %s%s, and PostgreSQL cannot change the rows in it: %s first',
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
    UNION ALL SELECT DISTINCT format('%s is a temporary table of another session', _snowflake.name(m.member))
    FROM members AS m WHERE m.relpersistence = 't' AND m.relnamespace <> pg_my_temp_schema()
    UNION ALL SELECT DISTINCT format('Citus distributes table %s: change it as the documentation of Citus says', _snowflake.name(m.member))
    FROM members AS m WHERE NOT m.relispartition AND _snowflake.distribution(m.member) IS NOT NULL
    UNION ALL SELECT format('table %s is partitioned by %s: PostgreSQL cannot change the type of such a column, '
        'so make a new table, and copy the rows', _snowflake.name(m.member), m.described)
    FROM members AS m WHERE EXISTS (SELECT FROM pg_depend AS d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = m.member AND d.objsubid = m.number
          AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.member AND d.refobjsubid = 0 AND d.deptype = 'i')
    UNION ALL SELECT DISTINCT format('%s is inherited from two tables, which PostgreSQL cannot change together', m.described)
    FROM members AS m WHERE m.attinhcount > 1
    UNION ALL
    -- It depends on an index that is made anew, but not on the column.
    SELECT DISTINCT format('constraint %I of table %s refers to a key that includes %s, '
        'so PostgreSQL cannot change that column: drop it before, and add it again after',
        k.conname, _snowflake.name(k.conrelid), m.described)
    FROM members AS m
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.member AND k.conparentid = 0 AND m.number <> ALL (k.confkey)
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND m.number = ANY (i.indkey::smallint[])
    UNION ALL SELECT format('table %s is being converted while it is in use: finish that, or undo it by snowflake_convert_undo()',
        _snowflake.name(c.relation))
    FROM unnest((work).columns) AS c WHERE c.is_altered AND _snowflake_convert.copy_number(c.relation, c.name, c.relation) IS NOT NULL
$$;

-- Columns that PostgreSQL keeps as they are.
CREATE FUNCTION _snowflake_convert.obstacles_of_columns(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH members AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)
    SELECT format('%s.%I is of domain %s over %s: change the column to bigint or to another domain first',
        _snowflake.name(c.relation), c.name, c.type::regtype, c.base::regtype)
    FROM unnest((work).columns) AS c WHERE c.is_altered AND c.type <> c.base
    UNION ALL
    -- PostgreSQL writes the operator class into the new index, unless it is the default.
    SELECT DISTINCT format('index %s has operator class %I, which is for integers: make the index without it first',
        _snowflake.name(i.indexrelid), o.opcname)
    FROM members AS m
    JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = m.member AND d.refobjsubid = m.number
    JOIN pg_index AS i ON i.indexrelid = d.objid
    CROSS JOIN unnest(i.indkey::smallint[], i.indclass::oid[]) AS k (number, class)
    JOIN pg_opclass AS o ON o.oid = k.class AND o.opcintype IN ('smallint'::regtype, 'integer'::regtype)
    WHERE k.number IN (m.number, 0) AND NOT (o.opcdefault AND EXISTS (
        SELECT FROM pg_opclass AS w WHERE w.opcmethod = o.opcmethod AND w.opcintype = 'bigint'::regtype AND w.opcdefault))
    UNION ALL
    -- PostgreSQL 16 or later has these.
    SELECT format('generated column %s.%I has an expression of its own, which that of table %s would replace: '
        'detach table %1$s, convert both tables, and attach it again',
        _snowflake.name(f.member), f.name, _snowflake.name(f.relation))
    FROM unnest((work).members) AS f
    JOIN unnest((work).members) AS r ON r.relation = f.relation AND r.name = f.name AND r.member = r.relation
    WHERE f.is_generated AND f.expression IS DISTINCT FROM r.expression
$$;

-- Foreign keys that PostgreSQL would not keep.
CREATE FUNCTION _snowflake_convert.obstacles_of_foreign_keys(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    -- Its foreign keys would be dropped with the column.
    SELECT format('constraint %I of table %s refers to a generated column', k.conname, _snowflake.name(k.conrelid)) FROM unnest((work).members) AS f
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0
        AND (k.confrelid = f.member AND f.number = ANY (k.confkey) OR k.conrelid = f.member AND f.number = ANY (k.conkey))
    WHERE f.is_generated
$$;

-- Objects that cannot be made again.
CREATE FUNCTION _snowflake_convert.obstacles_of_objects(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH members AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)
    SELECT format('%s belongs to extension %I', pg_describe_object(d.classid, d.objid, 0), x.extname)
    FROM pg_depend AS d JOIN pg_extension AS x ON x.oid = d.refobjid WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
      AND (d.classid = 'pg_class'::regclass AND d.objid IN (SELECT m.member FROM members AS m)
        OR (d.classid, d.objid) IN (SELECT o.class, o.id FROM unnest((work).objects) AS o))
    UNION ALL SELECT format('%s depends on a column that changes, or on a view of it, and cannot be made again: '
        'drop it before, and make it again after', d.described)
    FROM unnest((work).objects) AS d WHERE d.statements IS NULL
    UNION ALL
    -- A grant is made again by the role that made it.
    SELECT DISTINCT format('privileges on %s were granted by role %I, of which the caller is no member: let its owner grant them instead',
        g.described, pg_get_userbyid(e.grantor))
    FROM (
        SELECT pg_describe_object(o.class, o.id, 0), coalesce(c.relowner, p.proowner), l.acl FROM unnest((work).objects) AS o
        LEFT JOIN pg_class AS c ON o.class = 'pg_class'::regclass AND c.oid = o.id
        LEFT JOIN pg_proc AS p ON o.class = 'pg_proc'::regclass AND p.oid = o.id
        CROSS JOIN LATERAL (
            SELECT coalesce(c.relacl, p.proacl)
            UNION ALL SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = c.oid) AS l (acl)
        UNION ALL SELECT pg_describe_object('pg_class'::regclass, f.member, f.number), c.relowner, a.attacl FROM unnest((work).members) AS f
        JOIN pg_class AS c ON c.oid = f.member
        JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number WHERE f.is_generated) AS g (described, owner, acl)
    CROSS JOIN aclexplode(g.acl) AS e WHERE e.grantor <> g.owner
      AND NOT pg_has_role(e.grantor, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
    UNION ALL SELECT l FROM _snowflake_convert.literals((work).objects) AS l
$$;

-- A whole table with its partitions, or an object that is made again, as a number.
CREATE FUNCTION _snowflake_convert.node(class oid, id oid) RETURNS bigint
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT class::bigint << 32 | coalesce(CASE class WHEN 'pg_class'::regclass THEN pg_partition_root(id)::oid END, id)::bigint
$$;

-- About how many objects are locked for each table and object that is changed, at once or by the swap.
-- The numbers were measured on tables that have one thing more or less, and are rounded up: what is
-- dropped is locked as well as what is made, a foreign key with its four triggers.
CREATE FUNCTION _snowflake_convert.lock_counts(work _snowflake_convert.work, OUT node bigint, OUT locks bigint) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH altered AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a),
    relations (id, locks) AS (
        SELECT DISTINCT a.member, CASE WHEN (work).in_use THEN 6 ELSE 7 END FROM altered AS a
        UNION ALL SELECT o.id, CASE c.relkind WHEN 'm' THEN 12 ELSE 8 END
        FROM unnest((work).objects) AS o JOIN pg_class AS c ON o.class = 'pg_class'::regclass AND c.oid = o.id),
    constraints AS (
        SELECT a.member, k.oid, k.contype, k.conname FROM altered AS a JOIN pg_constraint AS k ON k.conrelid = a.member AND a.number = ANY (k.conkey)
        UNION SELECT a.member, k.oid, k.contype, k.conname
        FROM altered AS a JOIN pg_constraint AS k ON k.confrelid = a.member AND a.number = ANY (k.confkey))
    SELECT _snowflake_convert.node(l.class, l.id), sum(l.locks)::bigint FROM (
        SELECT 'pg_class'::regclass::oid, r.id,
            r.locks + CASE WHEN c.reltoastrelid = 0 OR (work).in_use AND c.relkind <> 'm' THEN 0 ELSE 4 END
        FROM relations AS r JOIN pg_class AS c ON c.oid = r.id
        UNION ALL SELECT 'pg_class'::regclass, r.id, 2 FROM relations AS r JOIN pg_index AS i ON i.indrelid = r.id
        JOIN pg_class AS c ON c.oid = i.indexrelid AND c.relname !~ '__bigint$'
        UNION ALL
        -- At once, ALTER TABLE makes a foreign key anew for each of its tables.
        SELECT 'pg_class'::regclass, min(k.member), CASE WHEN k.contype <> 'f' THEN 2 WHEN (work).in_use THEN 7 ELSE 2 + 5 * count(*) END
        FROM constraints AS k WHERE k.conname !~ '^[=~].*__bigint$' GROUP BY k.oid, k.contype
        UNION ALL
        -- The default of a key and its sequence.
        SELECT 'pg_class'::regclass, c.relation, CASE WHEN (work).in_use THEN 4 ELSE 8 END FROM unnest((work).columns) AS c WHERE c.is_key
        UNION ALL SELECT o.class, o.id, 3 FROM unnest((work).objects) AS o WHERE o.class <> 'pg_class'::regclass
        UNION ALL SELECT 'pg_class'::regclass, x.stxrelid, 2 FROM pg_statistic_ext AS x WHERE x.oid = ANY ((work).statistics)) AS l (class, id, locks)
    GROUP BY 1
$$;

-- The tables and objects that change, in groups that nothing ties to each other: no foreign key, and no
-- object that is made again.
CREATE FUNCTION _snowflake_convert.groups(work _snowflake_convert.work, OUT place bigint, OUT nodes bigint[]) RETURNS SETOF record
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    apart bigint[] := ARRAY(SELECT DISTINCT _snowflake_convert.node('pg_class'::regclass, a.member) FROM _snowflake_convert.altered(work) AS a ORDER BY 1);
    changed constant bigint[] := apart || ARRAY(SELECT _snowflake_convert.node(o.class, o.id) FROM unnest(work.objects) AS o);
    heads bigint[];     -- of ties, in both directions
    tails bigint[];
BEGIN
    WITH altered AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a),
    ties (head, tail) AS MATERIALIZED (
        SELECT _snowflake_convert.node('pg_class'::regclass, k.conrelid), _snowflake_convert.node('pg_class'::regclass, k.confrelid)
        FROM altered AS a JOIN pg_constraint AS k ON k.contype = 'f' AND k.conrelid = a.member AND a.number = ANY (k.conkey)
        UNION SELECT _snowflake_convert.node('pg_class'::regclass, k.conrelid), _snowflake_convert.node('pg_class'::regclass, k.confrelid)
        FROM altered AS a JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = a.member AND a.number = ANY (k.confkey)
        UNION
        -- What an object needs, by its rule if it is a view, and by a row type.
        SELECT n.head, n.tail FROM (
            SELECT _snowflake_convert.node(o.class, o.id),
                _snowflake_convert.node(CASE WHEN t.typrelid <> 0 THEN 'pg_class'::regclass ELSE d.refclassid END,
                    CASE WHEN t.typrelid <> 0 THEN t.typrelid ELSE d.refobjid END)
            FROM unnest(work.objects) AS o
            LEFT JOIN pg_rewrite AS r ON o.class = 'pg_class'::regclass AND r.ev_class = o.id
            JOIN pg_depend AS d ON d.objid = coalesce(r.oid, o.id) AND d.classid = CASE WHEN r.oid IS NULL THEN o.class ELSE 'pg_rewrite'::regclass END
            LEFT JOIN pg_type AS e ON d.refclassid = 'pg_type'::regclass AND e.oid = d.refobjid
            LEFT JOIN pg_type AS t ON t.oid = CASE WHEN e.typelem <> 0 THEN e.typelem ELSE e.oid END) AS n (head, tail)
        WHERE n.tail = ANY (changed)
        UNION SELECT n.head, n.tail FROM unnest(work.also) AS a
        CROSS JOIN LATERAL (SELECT _snowflake_convert.node('pg_class'::regclass, a.relation), _snowflake_convert.node('pg_class'::regclass, a.origin)) AS n (head, tail)
        WHERE ARRAY[n.head, n.tail] <@ changed)
    SELECT array_agg(t.head), array_agg(t.tail) INTO heads, tails FROM (SELECT head, tail FROM ties UNION SELECT tail, head FROM ties) AS t;
    place := 0;
    WHILE cardinality(apart) > 0 LOOP
        place := place + 1;
        nodes := ARRAY(
            WITH RECURSIVE reached (node) AS (
                SELECT apart[1]
                UNION SELECT t.tail FROM reached AS r JOIN unnest(heads, tails) AS t (head, tail) ON t.head = r.node)
            SELECT r.node FROM reached AS r);
        apart := ARRAY(SELECT n FROM unnest(apart) AS n WHERE n <> ALL (nodes) ORDER BY n);
        RETURN NEXT;
    END LOOP;
END $$;

-- The transactions of the swap, each with its tables and objects, how many locks it needs, and its groups. Small groups are swapped together:
-- each transaction needs a plan of its own.
CREATE FUNCTION _snowflake_convert.swaps(work _snowflake_convert.work, room bigint, OUT nodes bigint[], OUT locks bigint, OUT groups text[]) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH groups AS MATERIALIZED (
        SELECT g.place, g.nodes, sum(l.locks)::bigint AS locks, m.enough FROM _snowflake_convert.groups(work) AS g
        JOIN _snowflake_convert.lock_counts(work) AS l ON l.node = ANY (g.nodes)
        CROSS JOIN LATERAL (SELECT least(1000, room / 4)) AS m (enough)
        GROUP BY g.place, g.nodes, m.enough),
    placed AS (
        SELECT g.*, CASE WHEN g.locks >= g.enough THEN - g.place
            ELSE div(sum(g.locks) FILTER (WHERE g.locks < g.enough) OVER (ORDER BY g.place), g.enough) END AS swap
        FROM groups AS g)
    SELECT array_agg(DISTINCT n), 50 + (SELECT sum(o.locks)::bigint FROM placed AS o WHERE o.swap = p.swap),
        array_agg(DISTINCT p.nodes::text)
    FROM placed AS p CROSS JOIN unnest(p.nodes) AS n
    GROUP BY p.swap ORDER BY min(p.place)
$$;

-- Columns that no foreign key ties to a key: those that are named like one, and those into which a trigger of a
-- changed table writes its rows. `also` is how a caller names such a column.
CREATE FUNCTION _snowflake_convert.references_of(work _snowflake_convert.work, OUT described text, OUT also text, OUT obstacle text) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH keys AS MATERIALIZED (
        SELECT c.relation, c.name, t.relname, t.relnamespace, c.is_key FROM unnest((work).columns) AS c JOIN pg_class AS t ON t.oid = c.relation),
    names AS MATERIALIZED (
        SELECT DISTINCT replace(e.name, '_', '') AS name FROM keys AS k CROSS JOIN LATERAL (
            SELECT _snowflake_convert.expected_names(k.relname, k.name) WHERE k.is_key UNION ALL SELECT nullif(lower(k.name), 'id')) AS e (name)
        WHERE e.name IS NOT NULL),
    bound AS MATERIALIZED (
        SELECT DISTINCT r.id, h.attname FROM pg_constraint AS k JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = ANY (k.conkey)
        CROSS JOIN LATERAL (SELECT coalesce(pg_partition_root(k.conrelid)::oid, k.conrelid)) AS r (id) WHERE k.contype = 'f'),
    others AS MATERIALIZED (
        SELECT e.name FROM pg_class AS c CROSS JOIN _snowflake_convert.expected_names(c.relname, 'id') AS e (name)
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace IN (SELECT k.relnamespace FROM keys AS k) AND c.oid NOT IN (SELECT k.relation FROM keys AS k WHERE k.is_key)),
    filled AS (
        SELECT h.oid AS relation, c.name, c.relation AS origin, min(g.tgfoid) AS by FROM unnest((work).members) AS m
        JOIN keys AS c ON (c.relation, c.name) = (m.relation, m.name)
        JOIN pg_trigger AS g ON g.tgrelid = m.member AND NOT g.tgisinternal
        JOIN pg_proc AS p ON p.oid = g.tgfoid AND p.prosrc ~* '\m(new|old)\.\*'
        CROSS JOIN regexp_matches(p.prosrc, '\minto\s+(?:(?:"[^"]+"|\w+)\.)?(?:"([^"]+)"|(\w+))', 'gi') AS t (names)
        JOIN pg_class AS h ON h.relname = coalesce(t.names[1], lower(t.names[2])) AND h.relkind IN ('r', 'p') AND h.oid <> m.member
        GROUP BY h.oid, c.name, c.relation),
    found AS MATERIALIZED (
        SELECT a.attrelid AS relation, a.attname AS name, c.relkind = 'c' AS is_attribute, f.by, f.origin,
            format_type(a.atttypid, a.atttypmod) AS type, _snowflake.name(a.attrelid) AS table_name,
            c.relkind IN ('r', 'p') AND a.atttypid IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) AS can_follow
        FROM pg_attribute AS a
        JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'f', 'c') AND NOT c.relispartition
        JOIN pg_namespace AS s ON s.oid = c.relnamespace AND s.nspname <> 'information_schema' AND s.nspname !~ '^pg_'
        LEFT JOIN filled AS f ON (f.relation, f.name) = (a.attrelid, a.attname) WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
          -- Old and new keys of an earlier conversion.
          AND NOT EXISTS (SELECT FROM pg_attribute AS o WHERE o.attrelid = a.attrelid AND o.attname = 'relation' AND o.atttypid = 'regclass'::regtype)
          AND (a.atttypid IN ('smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype)
            OR (work).worker_id IS NOT NULL AND a.atttypid IN ('bigint'::regtype, 'bigint[]'::regtype))
          AND (f.by IS NOT NULL
              OR EXISTS (SELECT FROM names AS n
                  WHERE right(regexp_replace(lower(replace(a.attname, '_', '')), 's$', ''), length(n.name)) = n.name)
              -- Some refer to any table, such as object_id; but not those that are named like a table that stays.
              OR a.attname ~ '(_id|_ids|[a-z]Ids?)$' AND NOT EXISTS (SELECT FROM others AS o WHERE right('_' || lower(a.attname), length(o.name) + 1) = '_' || o.name)
                AND c.relnamespace IN (SELECT k.relnamespace FROM keys AS k)
                AND NOT EXISTS (SELECT FROM pg_index AS i
                    WHERE i.indrelid = a.attrelid AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))
          AND (a.attrelid, a.attnum) NOT IN (SELECT m.member, m.number FROM unnest((work).members) AS m WHERE NOT m.is_generated)
          AND (a.attrelid, a.attname) NOT IN (SELECT o.relation, o.name FROM unnest((work).also) AS o)
          AND (a.attrelid, a.attname) NOT IN (SELECT b.id, b.attname FROM bound AS b)
          AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.deptype = 'e' AND (d.classid, d.objid) IN (
              ('pg_class'::regclass, c.oid), ('pg_type'::regclass, c.reltype)))),
    told AS (
        SELECT g.* FROM (SELECT array_agg(f.relation) AS relations, array_agg(f.name) AS names FROM found AS f WHERE f.can_follow) AS f
        CROSS JOIN (SELECT array_agg(k.relation) AS relations, array_agg(k.name) AS names FROM keys AS k WHERE k.is_key) AS k
        CROSS JOIN _snowflake_convert.told_keys(f.relations, f.names, k.relations, k.names) AS g)
    SELECT d.described, d.also, d.described || CASE WHEN f.by IS NOT NULL THEN ': then INSERT fails'
            WHEN (work).worker_id IS NOT NULL AND NOT f.is_attribute THEN ': its values would not follow the keys that change' END
        || CASE WHEN d.also IS NULL THEN format(': change it by hand after the conversion, and name it in also => %L', ARRAY[d.none])
            ELSE format(': name it in also => %L, or in also => %L if it has no keys', ARRAY[d.also], ARRAY[d.none]) END
    FROM found AS f
    LEFT JOIN told AS t ON (t.relation, t.name) = (f.relation, f.name)
    CROSS JOIN LATERAL (SELECT coalesce(t.origin, f.origin), coalesce(t.origin_name, CASE WHEN f.by IS NOT NULL THEN f.name END)) AS k (relation, name)
    CROSS JOIN LATERAL (SELECT format('%s %s.%I is %s, and %s', CASE WHEN f.is_attribute THEN 'attribute' ELSE 'column' END, f.table_name, f.name, f.type,
            CASE WHEN f.by IS NOT NULL THEN format('function %s writes rows of table %s into it', f.by::regprocedure, _snowflake.name(f.origin))
                WHEN f.is_attribute THEN 'named like a key' ELSE 'named like a key, but has no foreign key' END),
        CASE WHEN f.can_follow THEN format('%s.%I', f.table_name, f.name) || coalesce('=' || _snowflake.name(k.relation) || '.' || quote_ident(k.name), '') END,
        format('%s.%I=none', f.table_name, f.name)) AS d (described, also, none)
$$;

-- Transactions that need more locks than the server has room for. PostgreSQL's own formula counts
-- neither the slots of background processes nor memory to spare: those remain for other sessions,
-- which would get errors too.
CREATE FUNCTION _snowflake_convert.lock_room(OUT locks bigint, OUT transactions bigint)
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT current_setting('max_locks_per_transaction')::bigint * t.count, t.count
    FROM (SELECT current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) AS t (count)
$$;
-- How many tables the greatest swap changes together, and how many locks it needs.
CREATE FUNCTION _snowflake_convert.greatest_swap(work _snowflake_convert.work, room bigint, OUT tables bigint, OUT locks bigint)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (SELECT count(DISTINCT n.node) FROM unnest((work).members) AS m CROSS JOIN _snowflake_convert.node('pg_class'::regclass, m.member) AS n (node)
        WHERE m.is_altered AND n.node = ANY (s.nodes)), s.locks
    FROM _snowflake_convert.swaps(work, room) AS s ORDER BY s.locks DESC LIMIT 1
$$;
CREATE FUNCTION _snowflake_convert.obstacles_of_locks(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s locks about %s objects in one transaction, and this server has room for %s: '
        'set max_locks_per_transaction to %s or more, and restart it', l.what, l.count, r.locks, ceil(l.count::numeric / r.transactions))
    FROM _snowflake_convert.lock_room() AS r
    CROSS JOIN LATERAL (
        SELECT 'the conversion', 50 + sum(c.locks)::bigint FROM _snowflake_convert.lock_counts(work) AS c WHERE NOT (work).in_use
        UNION ALL SELECT format('the swap of %s tables, which foreign keys or views tie to each other,', s.tables), s.locks
        FROM _snowflake_convert.greatest_swap(work, r.locks) AS s WHERE (work).in_use) AS l (what, count)
    WHERE l.count > r.locks
$$;

-- What keeps old rows from getting IDs of their time.
CREATE FUNCTION _snowflake_convert.obstacles_of_old_rows(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH members AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)
    SELECT format('%s.%I refers to keys of several tables, which get different new values', _snowflake.name(c.relation), c.name)
    FROM unnest((work).columns) AS c WHERE c.origins > 1
    UNION ALL SELECT format('column %s has keys, but of which table? Name it, as in also => %L', a.given, ARRAY[a.given || '=schema.table.column'])
    FROM unnest((work).also) AS a WHERE (work).worker_id IS NOT NULL AND a.has_keys AND a.origin IS NULL
      AND NOT EXISTS (SELECT FROM unnest((work).columns) AS c WHERE (c.relation, c.name) = (a.relation, a.name) AND c.origin IS NOT NULL)
    UNION ALL SELECT format('table %s is there already, and has the old keys of an earlier conversion: rename or drop it', (work).map)
    WHERE to_regclass((work).map) IS NOT NULL
    UNION ALL
    -- ALTER TABLE changes the type of its column, but no row.
    SELECT format('foreign table %s is a part of a table whose old rows get IDs, and its rows would keep their keys',
        _snowflake.name(c.oid))
    FROM pg_class AS c WHERE c.relkind = 'f' AND (work).worker_id IS NOT NULL AND c.oid IN (SELECT m.member FROM members AS m)
    UNION ALL
    -- What ALTER TABLE changes is not replicated.
    SELECT DISTINCT format('table %s is published by %I, and new keys of old rows do not reach subscribers:'
        ' take it out of the publication before, and copy its rows to them anew after', _snowflake.name(n.oid), p.pubname)
    FROM unnest((work).columns) AS d
    JOIN unnest((work).members) AS f ON f.relation = d.relation AND f.name = d.name
    JOIN pg_class AS c ON c.oid = f.member AND c.relpersistence = 'p'
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) AS a (relid)) AS m (id)
    JOIN pg_class AS n ON n.oid = m.id
    CROSS JOIN pg_publication AS p WHERE d.origin IS NOT NULL AND (p.puballtables AND n.oid = d.relation
        OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = n.oid)
        OR EXISTS (SELECT FROM pg_publication_namespace AS s WHERE s.pnpubid = p.oid AND s.pnnspid = n.relnamespace))
    UNION ALL SELECT o FROM _snowflake_convert.backfill_obstacles((work).keys, (work).generator, (work).worker_id) AS o
    WHERE (work).worker_id IS NOT NULL
$$;

-- Columns that cannot take the IDs to come: what the catalogs tell, and of keys that have their type already, what the last step
-- would look at, in the same way, as the owner. Without the rights for that, nothing is read.
CREATE FUNCTION _snowflake_convert.obstacles_of_values(work _snowflake_convert.work, is_read boolean) RETURNS SETOF text
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids constant record := _snowflake.next_id_range(work.generator, NULL);
    it record;
BEGIN
    FOR it IN SELECT c.relation::regclass, c.name, c.is_key, c.is_altered, c.origin FROM unnest(work.columns) AS c LOOP
        RETURN QUERY SELECT r.note FROM _snowflake.refusals(it.relation, it.name, ids.next_id) AS r WHERE r.is_certain AND (it.is_key OR it.origin IS NOT NULL);
        CONTINUE WHEN it.is_altered OR NOT it.is_key OR NOT is_read;
        BEGIN
            PERFORM _snowflake.check_values(it.relation, it.name, ids.source);
            PERFORM _snowflake.check_takes(it.relation, it.name, ids.source);
        EXCEPTION
            -- Another session has dropped it meanwhile: what the catalogs have under the lock counts.
            WHEN undefined_table OR undefined_column THEN NULL;
            WHEN OTHERS THEN RETURN NEXT format('column %s.%I cannot take IDs: %s', _snowflake.name(it.relation), it.name, SQLERRM);
        END;
    END LOOP;
END $$;

-- All obstacles, in the order of the plan.
CREATE FUNCTION _snowflake_convert.obstacles(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT o.note FROM (
        SELECT _snowflake_convert.obstacles_of_rights(work)
        UNION ALL SELECT _snowflake_convert.obstacles_of_tables(work)
        UNION ALL SELECT _snowflake_convert.obstacles_of_columns(work)
        UNION ALL SELECT _snowflake_convert.obstacles_of_foreign_keys(work)
        UNION ALL SELECT _snowflake_convert.obstacles_of_objects(work)
        UNION ALL SELECT _snowflake_convert.obstacles_of_locks(work)
        UNION ALL SELECT _snowflake_convert.obstacles_of_old_rows(work)) AS o (note)
    -- What the caller may do comes first.
    ORDER BY o.note NOT LIKE 'must be owner of %', o.note
$$;
