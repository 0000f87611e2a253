-- snowflake_set_type() changes a key between bigint and snowflake, together with all columns of
-- foreign keys that reach it. Both types are stored alike, so PostgreSQL writes neither tables nor
-- the indexes of such columns anew.
--
-- The steps are those of set_default.sql, whose rules hold here too: look for obstacles before
-- any lock and again under the locks, change the columns, say what was done. PostgreSQL would name
-- one obstacle at a time, after it has waited for locks. It makes anew what depends on a column
-- only as indexes and constraints do; snowflake_convert() can make views and the like anew.
-- Statements about a table can run code of its owner, so each runs as that owner.

-- The topmost tables that have a column which a table inherits; the table itself if it does not
-- inherit it.
CREATE FUNCTION _snowflake.column_roots(relation regclass, column_name name) RETURNS SETOF regclass
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

-- Columns and all columns of foreign keys that reach them, in the topmost tables that have them.
CREATE FUNCTION _snowflake.reached(relations oid[], names name[], OUT relation oid, OUT name name)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE reached (id, name) AS (
        SELECT t.root::oid, u.name
        FROM unnest(relations, names) AS u (id, name) CROSS JOIN _snowflake.column_roots(u.id, u.name) AS t (root)
        UNION
        SELECT t.root, h.attname
        FROM reached AS c
        CROSS JOIN _snowflake.inheritance(c.id, c.name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f'
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        CROSS JOIN _snowflake.column_roots(k.conrelid, h.attname) AS t (root)
        WHERE u.there = f.number)
    SELECT r.id, r.name FROM reached AS r
$$;

-- What keeps the type of columns from being changed, whichever it is: a line for each obstacle.
CREATE FUNCTION _snowflake.fixed_types(tables oid[], numbers smallint[]) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE members AS (
        SELECT u.member, u.number, format('%s.%I', _snowflake.name(u.member), a.attname) AS described, a.attinhcount, c.*
        FROM unnest(tables, numbers) AS u (member, number)
        JOIN pg_attribute AS a ON a.attrelid = u.member AND a.attnum = u.number
        JOIN pg_class AS c ON c.oid = u.member),
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
        SELECT m.member, m.reltype FROM members AS m
        UNION
        SELECT r.relation, h.within FROM row_types AS r JOIN holders AS h ON h.id = r.id)
    SELECT DISTINCT format('table %s is of type %s: change the type first', _snowflake.name(m.member), m.reloftype::regtype)
    FROM members AS m WHERE m.reloftype <> 0
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
    SELECT DISTINCT format('%s is a temporary table of another session', _snowflake.name(m.member))
    FROM members AS m WHERE m.relpersistence = 't' AND m.relnamespace <> pg_my_temp_schema()
    UNION ALL
    SELECT DISTINCT format('Citus distributes table %s: change it as the documentation of Citus says', _snowflake.name(m.member))
    FROM members AS m WHERE NOT m.relispartition AND _snowflake.distribution(m.member) IS NOT NULL
    UNION ALL
    SELECT format('table %s is partitioned by %s: PostgreSQL cannot change the type of such a column, '
        'so make a new table, and copy the rows', _snowflake.name(m.member), m.described)
    FROM members AS m
    WHERE EXISTS (SELECT FROM pg_depend AS d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = m.member AND d.objsubid = m.number
          AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.member AND d.refobjsubid = 0 AND d.deptype = 'i')
    UNION ALL
    SELECT DISTINCT format('%s is inherited from two tables, which PostgreSQL cannot change together', m.described)
    FROM members AS m WHERE m.attinhcount > 1
    UNION ALL
    -- It depends on an index that is made anew, but not on the column.
    SELECT DISTINCT format('constraint %I of table %s refers to a key that includes %s, '
        'so PostgreSQL cannot change that column: drop it before, and add it again after',
        k.conname, _snowflake.name(k.conrelid), m.described)
    FROM members AS m
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.member AND k.conparentid = 0 AND m.number <> ALL (k.confkey)
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND m.number = ANY (i.indkey::smallint[])
$$;

-- Rights that the owners of tables need to have their columns changed: a statement about a table
-- runs as its owner, unless he is the caller. The columns are of members of families, each with the
-- table at the top; a foreign key that a column has is made anew.
CREATE FUNCTION _snowflake.missing_rights(roots oid[], tables oid[], numbers smallint[]) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH members AS MATERIALIZED (
        SELECT u.root, u.number, c.* FROM unnest(roots, tables, numbers) AS u (root, member, number) JOIN pg_class AS c ON c.oid = u.member),
    keys AS MATERIALIZED (
        SELECT k.* FROM pg_constraint AS k
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM members AS m WHERE m.oid = k.conrelid AND m.number = ANY (k.conkey)))
    SELECT DISTINCT format('table %s belongs to role %I, which does not have the rights of role %I, the owner of %s: give both to one role',
        _snowflake.name(t.oid), pg_get_userbyid(t.relowner), pg_get_userbyid(m.relowner), _snowflake.name(m.oid))
    FROM members AS m JOIN pg_class AS t ON t.oid = m.root
    WHERE t.relowner <> quote_ident(current_user)::regrole AND NOT pg_has_role(t.relowner, m.relowner, 'USAGE')
    UNION ALL
    SELECT DISTINCT format('role %I, which owns table %s, needs: GRANT USAGE ON SCHEMA %I TO %1$I',
        pg_get_userbyid(m.relowner), _snowflake.name(m.oid), n.nspname)
    FROM members AS m
    CROSS JOIN LATERAL (
        SELECT m.relnamespace
        UNION SELECT f.relnamespace FROM keys AS k JOIN pg_class AS f ON f.oid = k.confrelid WHERE k.conrelid = m.oid) AS w (schema)
    JOIN pg_namespace AS n ON n.oid = w.schema AND m.relpersistence <> 't'
    WHERE m.relowner <> quote_ident(current_user)::regrole AND NOT has_schema_privilege(m.relowner, n.oid, 'USAGE')
    UNION ALL
    SELECT format('role %I, which owns table %s, needs for its constraint %I: GRANT REFERENCES ON TABLE %s TO %1$I',
        pg_get_userbyid(t.relowner), _snowflake.name(t.oid), k.conname, _snowflake.name(k.confrelid))
    FROM keys AS k JOIN pg_class AS t ON t.oid = k.conrelid
    WHERE t.relowner <> quote_ident(current_user)::regrole
      AND NOT (SELECT bool_and(has_column_privilege(t.relowner, k.confrelid, u.number, 'REFERENCES')) FROM unnest(k.confkey) AS u (number))
$$;

-- The columns that get a type, and those that have it already, in their tables, partitions and
-- child tables.
CREATE FUNCTION _snowflake.typed_columns(
    relation regclass, key name, type regtype,
    OUT root regclass, OUT name name, OUT member regclass, OUT number smallint,
    OUT old_type oid, OUT is_altered boolean, OUT identity "char", OUT described text)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.relation, r.name, f.member, f.number, a.atttypid, a.atttypid <> type, a.attidentity,
        format('%s.%I', _snowflake.name(f.member), r.name)
    FROM _snowflake.reached(ARRAY[relation::oid], ARRAY[key]) AS r
    CROSS JOIN _snowflake.inheritance(r.relation, r.name) AS f
    JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number
$$;

-- What keeps a key, and what refers to it, from getting a type.
CREATE FUNCTION _snowflake.obstacles_of_type(relation regclass, key name, type regtype, drops_identity boolean) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH columns AS MATERIALIZED (SELECT c.* FROM _snowflake.typed_columns(relation, key, type) AS c),
    altered AS (SELECT c.* FROM columns AS c WHERE c.is_altered),
    found (note) AS (
        -- All are locked, also those that are of the type already.
        SELECT format('must be owner of table %s', _snowflake.name(t.oid))
        FROM pg_class AS t WHERE t.oid IN (SELECT c.member FROM columns AS c) AND NOT pg_has_role(t.relowner, 'USAGE')
        UNION ALL
        SELECT format('column %s is of type %s: change it to bigint first', c.described, format_type(c.old_type, NULL))
        FROM altered AS c WHERE c.member = c.root AND c.old_type NOT IN ('bigint'::regtype, _snowflake.key_type())
        UNION ALL
        SELECT format('column %s is an identity: drop that first, or use snowflake_set_default() if it is to get IDs', c.described)
        FROM altered AS c
        WHERE c.identity <> '' AND NOT (drops_identity
            AND (c.member, c.name) IN (SELECT f.member, key FROM _snowflake.inheritance(relation, key) AS f))
        UNION ALL
        SELECT r FROM _snowflake.missing_rights(
            ARRAY(SELECT c.root::oid FROM altered AS c ORDER BY c.member, c.number),
            ARRAY(SELECT c.member::oid FROM altered AS c ORDER BY c.member, c.number),
            ARRAY(SELECT c.number FROM altered AS c ORDER BY c.member, c.number)) AS r
        UNION ALL
        SELECT f FROM _snowflake.fixed_types(
            ARRAY(SELECT c.member::oid FROM altered AS c ORDER BY c.member, c.number),
            ARRAY(SELECT c.number FROM altered AS c ORDER BY c.member, c.number)) AS f
        UNION ALL
        SELECT format('%s depends on column %s', CASE
                WHEN r.rulename = '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                WHEN g.oid IS NOT NULL THEN pg_describe_object('pg_class'::regclass, g.adrelid, g.adnum) || ', which is generated,'
                ELSE pg_describe_object(d.classid, d.objid, 0) END, c.described)
        FROM altered AS c
        JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.member AND d.refobjsubid = c.number
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_attrdef AS g ON d.classid = 'pg_attrdef'::regclass AND g.oid = d.objid AND g.adnum <> c.number
        LEFT JOIN pg_trigger AS t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
        WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass, 'pg_publication_rel'::regclass)
           OR g.oid IS NOT NULL OR t.tgparentid = 0)
    SELECT DISTINCT f.note FROM found AS f
$$;

-- Locks all tables that a change of the type needs, in the order of their OIDs, unless something is
-- in the way. The planner expects large families, as with _snowflake.inheritance().
CREATE FUNCTION _snowflake.lock_for_type(relation regclass, key name, type regtype, drops_identity boolean) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    obstacles text[];
    locks text[];
    planned text[];
BEGIN
    IF type NOT IN ('bigint'::regtype, _snowflake.key_type()) THEN
        RAISE EXCEPTION 'type % is neither bigint nor %', type, _snowflake.key_type()
            USING ERRCODE = 'invalid_parameter_value', HINT = 'IDs are of one of these two types.';
    END IF;
    FOR pass IN 1 .. 2 LOOP
        obstacles := ARRAY(
            SELECT o FROM _snowflake.obstacles_of_type(relation, key, type, drops_identity) AS o
            -- What the caller may do comes first.
            ORDER BY o NOT LIKE 'must be owner of %', o);
        IF obstacles <> '{}' THEN
            RAISE EXCEPTION 'cannot change the type of %.% to %: %', _snowflake.name(relation), quote_ident(key), type, obstacles[1]
                USING ERRCODE = CASE WHEN obstacles[1] LIKE 'must be owner of %' THEN 'insufficient_privilege'
                    ELSE 'object_not_in_prerequisite_state' END,
                DETAIL = coalesce('Further obstacles: ' || nullif(array_to_string(obstacles[2:], '; '), '') || '.',
                    'There is no other obstacle.'),
                HINT = 'Nothing has been changed. Remove what is in the way, and call again. Or call snowflake_convert() of extension '
                    'snowflake_id_convert with its argument type: it drops views and the like, and makes them again.';
        END IF;
        -- A foreign key that a column has is made anew, also one that refers to a table that keeps
        -- its type. The caller may refer to a table of another role, but not lock it here.
        locks := ARRAY(
            WITH columns AS MATERIALIZED (SELECT c.* FROM _snowflake.typed_columns(relation, key, type) AS c),
            tables (id, is_changed) AS (
                SELECT c.member::oid, true FROM columns AS c
                UNION ALL
                SELECT k.confrelid, false
                FROM columns AS c JOIN pg_constraint AS k ON k.contype = 'f' AND k.conrelid = c.member AND c.number = ANY (k.conkey)
                WHERE c.is_altered)
            SELECT format('LOCK TABLE ONLY %s IN %s MODE', t.id::regclass,
                CASE WHEN bool_or(t.is_changed) THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END)
            FROM tables AS t JOIN pg_class AS c ON c.oid = t.id
            -- A foreign table cannot be locked so.
            WHERE c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE') AND EXISTS (SELECT FROM columns AS a WHERE a.is_altered)
            GROUP BY t.id ORDER BY t.id);
        IF pass = 2 AND locks IS DISTINCT FROM planned THEN
            RAISE EXCEPTION 'could not change the type of %.%: tables were changed before they were locked',
                _snowflake.name(relation), quote_ident(key)
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again.';
        END IF;
        EXIT WHEN pass = 2;
        planned := locks;
        FOR i IN 1 .. cardinality(locks) LOOP
            EXECUTE locks[i];
        END LOOP;
    END LOOP;
END
$$;

-- Changes the columns, under the locks, and returns what was done.
CREATE FUNCTION _snowflake.change_type(relation regclass, key name, type regtype) RETURNS text[]
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    it record;
    changes text[] := '{}';
    measured text[] := '{}';
BEGIN
    FOR it IN
        SELECT c.root, string_agg(format('ALTER COLUMN %I TYPE %s', c.name, type), ', ' ORDER BY c.number) AS parts,
            array_agg(format('%s: type %s changed to %s', c.described, format_type(c.old_type, NULL), type) ORDER BY c.number) AS changes,
            bool_or(EXISTS (SELECT FROM _snowflake.inheritance(c.root, c.name) AS f
                JOIN pg_class AS t ON t.oid = f.member AND t.reltuples > 0)) AS is_measured
        FROM _snowflake.typed_columns(relation, key, type) AS c
        WHERE c.is_altered AND c.member = c.root
        GROUP BY c.root ORDER BY c.root
    LOOP
        PERFORM _snowflake.run_as_owner(it.root, format('ALTER TABLE %s %s', it.root, it.parts));
        changes := changes || it.changes;
        IF it.is_measured THEN
            measured := measured || _snowflake.name(it.root);
        END IF;
    END LOOP;
    IF measured <> '{}' THEN
        -- Here it would keep the locks.
        RAISE NOTICE 'the planner''s statistics of the changed columns are gone'
            USING HINT = format('After COMMIT: ANALYZE %s', array_to_string(measured, ', '));
    END IF;
    RETURN CASE WHEN changes = '{}' THEN ARRAY[format('%s.%I: type is %s already', _snowflake.name(relation), key, type)] ELSE changes END;
END
$$;

-- This function is not STRICT: NULL for the column has a meaning.
CREATE FUNCTION snowflake_set_type(
    relation regclass, column_name name DEFAULT NULL, type regtype DEFAULT '@extschema@.snowflake'::regtype) RETURNS text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    key name;
BEGIN
    IF relation IS NULL OR type IS NULL THEN
        RAISE EXCEPTION 'table and type must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION 'cannot execute snowflake_set_type() in a read-only transaction'
            USING ERRCODE = 'read_only_sql_transaction';
    ELSIF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = relation AND c.relkind IN ('r', 'p')) THEN
        RAISE EXCEPTION '% is not a table', coalesce(_snowflake.name(relation), relation::text)
            USING ERRCODE = 'wrong_object_type', HINT = 'Name a table, partitioned or not.';
    END IF;
    key := _snowflake.key_column(relation, column_name, 'snowflake_set_type');
    PERFORM _snowflake.lock_for_type(relation, key, type, false);
    RETURN array_to_string(_snowflake.change_type(relation, key, type), '; ');
END
$$;
COMMENT ON FUNCTION snowflake_set_type(regclass, name, regtype) IS
    'changes a column, by default that of the primary key, from bigint to snowflake or back, '
    'with all columns of foreign keys that reach it and without writing tables anew; returns what was done';
