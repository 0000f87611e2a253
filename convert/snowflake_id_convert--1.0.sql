-- What this version installed, made by: tools/freeze COMMIT
-- Nobody edits this file: the changes since are in the scripts that lead from it to later
-- versions. CONTRIBUTING.md says how a version is released.
-- CREATE EXTENSION snowflake_id_convert runs this script, then the others of this folder in the
-- order that the file `order` has: `make install` joins them to one.
--
-- The extension converts keys, and is dropped when that is done: converted tables need
-- extension snowflake_id only. It has no library of its own: its C functions are in that of
-- snowflake_id. Its rules:
--
-- 1. It is in the schema of snowflake_id, so that names with the extension's schema below are
--    of both. It calls internal functions of snowflake_id, so both have the same version.
-- 2. What only it calls is in schema _snowflake_convert. Only a superuser may rename that
--    schema, or put an object into it.
-- 3. This script runs as a superuser, even if the owner of the database, who is none, makes
--    the extension. That owner may drop snowflake_id at any moment, and make a schema of the
--    same name; not every minor release of PostgreSQL keeps a required extension until this one
--    is made. So the script first locks a table of snowflake_id, as src/guard.rs does, which
--    keeps snowflake_id here until the transaction ends, and looks at what it has locked. It
--    calls nothing of schema _snowflake before.
SET LOCAL search_path = pg_catalog, pg_temp;
DO $$
DECLARE
    it record;
BEGIN
    LOCK TABLE _snowflake.state IN ACCESS SHARE MODE;
    SELECT e.extnamespace AS namespace, e.extversion AS version INTO it
    FROM pg_locks AS l
    JOIN pg_class AS c ON c.oid = l.relation AND c.relname = 'state'
    JOIN pg_roles AS o ON o.oid = c.relowner AND o.rolsuper
    JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = '_snowflake' AND n.nspowner = c.relowner
    JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
    JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'snowflake_id'
    WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'schema _snowflake is not that of extension snowflake_id' USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF it.namespace <> '@extschema@'::regnamespace THEN
        RAISE EXCEPTION 'extension snowflake_id_convert must be in the schema of extension snowflake_id'
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('CREATE EXTENSION snowflake_id_convert SCHEMA %s', it.namespace::regnamespace);
    ELSIF it.version <> (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'snowflake_id_convert') THEN
        RAISE EXCEPTION 'extension snowflake_id has another version: %', it.version
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'ALTER EXTENSION snowflake_id UPDATE';
    END IF;
END
$$;
SET LOCAL search_path = @extschema@, pg_temp;

-- The command fails if a schema of this name is there: it would be somebody else's.
CREATE SCHEMA _snowflake_convert;
COMMENT ON SCHEMA _snowflake_convert IS
    'internal: the table and the functions of extension snowflake_id_convert';
-- The sets that the functions of a plan hand to each other, as arrays of these rows.

-- A key, or a column of a foreign key that reaches it, in the topmost table that has it: whether
-- its type or its values change, and the key that its new values come from.
CREATE TYPE _snowflake_convert.key_column AS (
    relation oid, name name, number smallint, type oid, base oid, is_key boolean, is_altered boolean,
    origin oid, origin_name name, origins bigint);

-- A key whose old values are replaced, with the time of a row.
CREATE TYPE _snowflake_convert.old_key AS (relation oid, name name, time_name name, expression text, problem text);

-- A column of a table, or one that is generated from it, in the table itself, a partition or a
-- child table.
CREATE TYPE _snowflake_convert.member AS (
    relation oid, name name, member oid, number smallint, expression text, is_altered boolean, is_generated boolean);

-- What depends on columns, with the statements that drop it and make it again.
CREATE TYPE _snowflake_convert.object AS (
    class oid, id oid, level integer, described text, owner oid, drop_statement text, statements text[]);

-- A column in its table or in a partition, with its copy.
CREATE TYPE _snowflake_convert.copied_column AS (
    root oid, relation oid, kind "char", table_name text, name name, number smallint, is_key boolean, copy name, copy_number smallint);

-- What a conversion has to do.
CREATE TYPE _snowflake_convert.work AS (
    generator regclass,
    set_default boolean,
    worker_id bigint,       -- of old rows that get IDs; null if they keep their keys
    new_type regtype,       -- of the columns; null: bigint, but type snowflake stays
    in_use boolean,         -- the tables stay in use
    columns _snowflake_convert.key_column[],
    keys _snowflake_convert.old_key[],
    map text,               -- the table of old and new values
    members _snowflake_convert.member[],
    tables oid[],           -- the members that change, as pairs
    numbers smallint[],
    objects _snowflake_convert.object[],    -- by level
    sources oid[],          -- the tables to lock
    statistics oid[]);      -- those of members that change
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

-- The keys of tables and all columns of foreign keys that reach them, in the topmost tables
-- that have them.
CREATE FUNCTION _snowflake_convert.columns(
    relations regclass[], are_named boolean,
    OUT relation regclass, OUT name name, OUT number smallint, OUT type oid, OUT base regtype, OUT is_key boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH keys (id, name) AS MATERIALIZED (
        SELECT t.root, k.name
        FROM _snowflake_convert.keys(relations, are_named) AS k
        CROSS JOIN _snowflake.column_roots(k.relation, k.name) AS t (root)
        WHERE k.is_taken)
    SELECT c.id, c.name, a.attnum, a.atttypid, b.base,
        EXISTS (SELECT FROM keys AS k WHERE k.id = c.id AND k.name = c.name)
    FROM _snowflake.reached(ARRAY(SELECT k.id::oid FROM keys AS k ORDER BY k.id, k.name), ARRAY(SELECT k.name FROM keys AS k ORDER BY k.id, k.name)) AS c (id, name)
    JOIN pg_class AS t ON t.oid = c.id
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.id AND a.attname = c.name AND NOT a.attisdropped
    CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
    WHERE b.base IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
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
-- What depends on the columns that snowflake_convert() changes, and the statements that make
-- it again: steps 2 and 3 of plan.sql, whose head has the rules.

-- The views, rules, triggers, policies, publications, functions and whatever else depends on
-- columns, directly or through each other, with the level at which each is made again.
CREATE FUNCTION _snowflake_convert.dependents(
    tables oid[], numbers smallint[], OUT class regclass, OUT id oid, OUT level integer)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE
    -- A view stands for its rule _RETURN and for its row type; a table stays a table.
    edges (class, id, of_class, of_id, of_number) AS MATERIALIZED (
        SELECT CASE WHEN r.rulename = '_RETURN' THEN 'pg_class'::regclass::oid ELSE d.classid END,
            CASE WHEN r.rulename = '_RETURN' THEN r.ev_class ELSE d.objid END,
            CASE WHEN t.typrelid <> 0 THEN 'pg_class'::regclass::oid ELSE d.refclassid END,
            CASE WHEN t.typrelid <> 0 THEN t.typrelid ELSE d.refobjid END,
            d.refobjsubid
        FROM pg_depend AS d
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        LEFT JOIN pg_trigger AS g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
        LEFT JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
        LEFT JOIN pg_type AS e ON d.refclassid = 'pg_type'::regclass AND e.oid = d.refobjid
        LEFT JOIN pg_type AS t ON t.oid = CASE WHEN e.typelem <> 0 THEN e.typelem ELSE e.oid END
        WHERE d.deptype IN ('n', 'a')
          -- These go with the table or the materialized view that they belong to.
          AND NOT coalesce(c.relkind IN ('i', 'I', 't', 'S') AND d.refclassid = 'pg_class'::regclass, false)
          AND d.classid <> 'pg_statistic_ext'::regclass
          AND NOT coalesce(f.adrelid = d.refobjid AND d.refclassid = 'pg_class'::regclass, false)
          -- The triggers of foreign keys, and the copies that partitions have.
          AND NOT coalesce(g.tgisinternal OR g.tgparentid <> 0, false)),
    found (class, id, level) AS (
        SELECT e.class, e.id, 1
        FROM unnest(tables, numbers) AS u (id, number)
        JOIN edges AS e ON e.of_class = 'pg_class'::regclass AND e.of_id = u.id AND e.of_number = u.number
        -- Constraints are made anew by ALTER TABLE.
        WHERE e.class <> 'pg_constraint'::regclass AND (e.class, e.id) <> ('pg_class'::regclass, u.id)
        UNION
        SELECT e.class, e.id, f.level + 1
        FROM found AS f
        JOIN edges AS e ON e.of_class = f.class AND e.of_id = f.id AND (e.class, e.id) <> (f.class, f.id)
        WHERE f.level < 1000)
    SELECT f.class::regclass, f.id, max(f.level) FROM found AS f GROUP BY f.class, f.id
$$;

-- The statements that give a new object, or a column of it, the privileges that an object had.
CREATE FUNCTION _snowflake_convert.grants(
    acl aclitem[], owner oid, kind "char", target text, column_name name) RETURNS SETOF text
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- What a new object has is what PostgreSQL gives it, unless the caller has said
    -- otherwise by ALTER DEFAULT PRIVILEGES: then everything is revoked, and granted anew.
    WITH changed_defaults AS (
        SELECT a.defaclacl FROM pg_default_acl AS a
        WHERE column_name IS NULL AND a.defaclobjtype = kind AND a.defaclrole = quote_ident(current_user)::regrole),
    usual AS (
        SELECT e.* FROM aclexplode(acldefault(CASE WHEN kind IN ('r', 'c', 'f') THEN kind END, owner)) AS e WHERE column_name IS NULL),
    given AS (
        SELECT u.grantee FROM usual AS u
        UNION
        SELECT e.grantee FROM changed_defaults AS d CROSS JOIN aclexplode(d.defaclacl) AS e),
    wanted AS (
        SELECT e.*, CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END AS role,
            CASE WHEN column_name IS NULL THEN e.privilege_type
                ELSE format('%s (%I)', e.privilege_type, column_name) END AS privilege
        FROM aclexplode(CASE WHEN EXISTS (SELECT FROM changed_defaults)
            THEN coalesce(acl, acldefault(CASE WHEN kind IN ('r', 'c', 'f') THEN kind END, owner)) ELSE acl END)
            WITH ORDINALITY AS e),
    -- Those of whom something is to be revoked.
    reduced AS (
        SELECT g.grantee FROM given AS g
        WHERE EXISTS (SELECT FROM changed_defaults)
           OR acl IS NOT NULL AND EXISTS (
              SELECT FROM usual AS u WHERE u.grantee = g.grantee AND NOT EXISTS (
                  SELECT FROM wanted AS w
                  WHERE (w.grantor, w.grantee, w.privilege_type) = (u.grantor, u.grantee, u.privilege_type)))),
    statements (phase, place, statement) AS (
        SELECT 1, 0, format('REVOKE ALL ON %s FROM %s', target,
            CASE r.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r.grantee)) END)
        FROM reduced AS r
        UNION ALL
        -- A grant that another role than the owner made is made by that role again.
        SELECT 2, min(w.ordinality), CASE WHEN w.grantor = owner THEN '' ELSE format('SET LOCAL ROLE %I; ', pg_get_userbyid(w.grantor)) END
            || format('GRANT %s ON %s TO %s', string_agg(w.privilege, ', ' ORDER BY w.ordinality), target, w.role)
            || CASE WHEN w.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
            || CASE WHEN w.grantor = owner THEN '' ELSE format('; SET LOCAL ROLE %I', current_user) END
        FROM wanted AS w
        WHERE w.grantee <> owner OR w.grantee IN (SELECT r.grantee FROM reduced AS r)
        GROUP BY w.grantor, w.grantee, w.role, w.is_grantable)
    SELECT s.statement FROM statements AS s ORDER BY s.phase, s.place, s.statement
$$;

-- The statement that drops an object and those that make it again, in the order in which they
-- run; null for an object of a kind that cannot be made again.
CREATE FUNCTION _snowflake_convert.remake(
    class regclass, id oid, OUT described text, OUT owner oid, OUT drop_statement text, OUT statements text[])
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it record;
    target text;
    kind text;
    options text;
BEGIN
    -- Other numbers would be an internal error there.
    IF NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = class AND d.objid = id) THEN
        RETURN;
    END IF;
    described := pg_describe_object(class, id, 0);
    statements := '{}';
    CASE class
    WHEN 'pg_class'::regclass THEN
        SELECT c.*, n.nspname, a.amname, s.spcname,
            rtrim(pg_get_viewdef(c.oid), ';') AS definition,
            _snowflake.name(c.oid) AS name INTO it
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        LEFT JOIN pg_am AS a ON a.oid = c.relam
        LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace
        WHERE c.oid = id AND c.relkind IN ('v', 'm')
          AND (c.relpersistence <> 't' OR c.relnamespace = pg_my_temp_schema());
        IF NOT FOUND THEN
            statements := NULL;
            RETURN;
        END IF;
        owner := it.relowner;
        kind := CASE it.relkind WHEN 'v' THEN 'VIEW' ELSE 'MATERIALIZED VIEW' END;
        options := (SELECT format(' WITH (%s)', string_agg(
                r.prefix || format('%I = %L', split_part(r.o, '=', 1), substr(r.o, strpos(r.o, '=') + 1)), ', ' ORDER BY r.prefix, r.o))
            FROM (SELECT '', o FROM unnest(it.reloptions) AS o
                  UNION ALL
                  SELECT 'toast.', o FROM pg_class AS t CROSS JOIN unnest(t.reloptions) AS o
                  WHERE t.oid = it.reltoastrelid) AS r (prefix, o)
            HAVING count(*) > 0);
        drop_statement := format('DROP %s %s', kind, it.name);
        statements := statements || (format('CREATE %s %s', kind, it.name)
            || CASE WHEN it.relkind = 'm' THEN format(' USING %I', it.amname) ELSE '' END
            || coalesce(options, '') || coalesce(' TABLESPACE ' || quote_ident(it.spcname), '')
            || ' AS' || E'\n' || it.definition
            -- The query runs later, as the owner: REFRESH does that.
            || CASE WHEN it.relkind = 'm' THEN E'\n  WITH NO DATA' ELSE '' END);
        -- Before everything that runs code of the owner: CREATE INDEX does that, with the rights
        -- of the role that owns the view then.
        IF it.relowner <> quote_ident(current_user)::regrole THEN
            statements := statements || format('ALTER %s %s OWNER TO %I', kind, it.name, pg_get_userbyid(it.relowner));
        END IF;
        statements := statements || ARRAY(
            SELECT format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s', it.name, a.attname, pg_get_expr(d.adbin, d.adrelid))
            FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
            WHERE d.adrelid = id ORDER BY d.adnum);
        statements := statements || ARRAY(
            SELECT format('ALTER MATERIALIZED VIEW %s ALTER COLUMN %I %s', it.name, a.attname, s.change)
            FROM pg_attribute AS a
            JOIN pg_type AS y ON y.oid = a.atttypid
            CROSS JOIN LATERAL (VALUES
                (1, 'SET STATISTICS ' || nullif(a.attstattarget, -1)),
                (2, (SELECT format('SET (%s)', string_agg(o, ', ')) FROM unnest(a.attoptions) AS o
                    WHERE o LIKE 'n\_distinct%' HAVING count(*) > 0)),
                (3, CASE WHEN a.attstorage <> y.typstorage THEN 'SET STORAGE ' || CASE a.attstorage
                    WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' WHEN 'x' THEN 'EXTENDED' END END),
                (4, 'SET COMPRESSION ' || CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END)
            ) AS s (place, change)
            WHERE a.attrelid = id AND it.relkind = 'm' AND a.attnum > 0 AND s.change IS NOT NULL
            ORDER BY a.attnum, s.place);
        statements := statements || ARRAY(
            SELECT s.statement
            FROM pg_index AS i
            JOIN pg_class AS c ON c.oid = i.indexrelid
            LEFT JOIN pg_tablespace AS t ON t.oid = c.reltablespace
            CROSS JOIN LATERAL (VALUES
                (1, pg_get_indexdef(i.indexrelid)),
                (2, format('ALTER INDEX %I.%I SET TABLESPACE ', it.nspname, c.relname) || quote_ident(t.spcname)),
                (3, CASE WHEN i.indisclustered THEN format('ALTER MATERIALIZED VIEW %s CLUSTER ON %I', it.name, c.relname) END),
                (4, format('COMMENT ON INDEX %I.%I IS ', it.nspname, c.relname) || quote_literal(obj_description(c.oid, 'pg_class')))
            ) AS s (place, statement)
            WHERE i.indrelid = id AND s.statement IS NOT NULL
            ORDER BY c.relname, s.place);
        statements := statements || ARRAY(
            SELECT s.statement
            FROM pg_statistic_ext AS x
            JOIN pg_namespace AS n ON n.oid = x.stxnamespace
            CROSS JOIN LATERAL (VALUES (1, pg_get_statisticsobjdef(x.oid)),
                (2, CASE WHEN x.stxowner <> quote_ident(current_user)::regrole THEN
                    format('ALTER STATISTICS %I.%I OWNER TO %I', n.nspname, x.stxname, pg_get_userbyid(x.stxowner)) END),
                (3, CASE WHEN x.stxstattarget >= 0
                    THEN format('ALTER STATISTICS %I.%I SET STATISTICS %s', n.nspname, x.stxname, x.stxstattarget) END),
                (4, format('COMMENT ON STATISTICS %I.%I IS ', n.nspname, x.stxname)
                    || quote_literal(obj_description(x.oid, 'pg_statistic_ext')))
            ) AS s (place, statement)
            WHERE x.stxrelid = id AND s.statement IS NOT NULL ORDER BY x.oid, s.place);
        statements := statements || ARRAY(
            SELECT _snowflake_convert.grants(it.relacl, it.relowner, 'r', 'TABLE ' || it.name, NULL));
        statements := statements || ARRAY(
            SELECT g FROM pg_attribute AS a
            CROSS JOIN _snowflake_convert.grants(a.attacl, it.relowner, 'c', 'TABLE ' || it.name, a.attname) AS g
            WHERE a.attrelid = id AND a.attacl IS NOT NULL ORDER BY a.attnum);
        statements := statements || ARRAY(
            SELECT CASE d.objsubid WHEN 0 THEN format('COMMENT ON %s %s IS %L', kind, it.name, d.description)
                ELSE format('COMMENT ON COLUMN %s.%I IS %L', it.name,
                    (SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = id AND a.attnum = d.objsubid), d.description) END
            FROM pg_description AS d
            WHERE d.classoid = class AND d.objoid = id ORDER BY d.objsubid);
        IF it.relkind = 'm' AND it.relispopulated THEN
            statements := statements || format('REFRESH MATERIALIZED VIEW %s', it.name);
        END IF;

    WHEN 'pg_rewrite'::regclass THEN
        SELECT r.*, c.relowner, c.relkind, _snowflake.name(c.oid) AS name,
            rtrim(pg_get_ruledef(r.oid), ';') AS definition INTO it
        FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class WHERE r.oid = id;
        owner := it.relowner;
        drop_statement := format('DROP RULE %I ON %s', it.rulename, it.name);
        statements := ARRAY[it.definition];
        IF it.ev_enabled <> 'O' THEN
            statements := statements || format('ALTER TABLE %s %s RULE %I', it.name,
                CASE it.ev_enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, it.rulename);
        END IF;
        target := format('RULE %I ON %s', it.rulename, it.name);

    WHEN 'pg_trigger'::regclass THEN
        SELECT t.*, c.relowner, _snowflake.name(c.oid) AS name, pg_get_triggerdef(t.oid) AS definition INTO it
        FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE t.oid = id;
        owner := it.relowner;
        drop_statement := format('DROP TRIGGER %I ON %s', it.tgname, it.name);
        statements := ARRAY[it.definition];
        -- The copies in partitions may be enabled in another way; a view's are always.
        statements := statements || ARRAY(
            WITH RECURSIVE copies (id, enabled, is_first) AS (
                SELECT it.oid, it.tgenabled, true
                UNION ALL
                SELECT t.oid, t.tgenabled, false FROM copies AS c JOIN pg_trigger AS t ON t.tgparentid = c.id)
            SELECT format('ALTER TABLE ONLY %s %s TRIGGER %I', _snowflake.name(t.tgrelid),
                CASE c.enabled WHEN 'D' THEN 'DISABLE' WHEN 'O' THEN 'ENABLE' WHEN 'R' THEN 'ENABLE REPLICA'
                    ELSE 'ENABLE ALWAYS' END, t.tgname)
            FROM copies AS c JOIN pg_trigger AS t ON t.oid = c.id
            WHERE c.enabled <> 'O' OR c.enabled <> it.tgenabled
            ORDER BY c.is_first DESC, c.id);
        target := format('TRIGGER %I ON %s', it.tgname, it.name);

    WHEN 'pg_policy'::regclass THEN
        SELECT p.*, c.relowner, _snowflake.name(c.oid) AS name,
            pg_get_expr(p.polqual, p.polrelid) AS condition, pg_get_expr(p.polwithcheck, p.polrelid) AS with_check,
            (SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, ', ')
             FROM unnest(p.polroles) AS r) AS roles INTO it
        FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid WHERE p.oid = id;
        owner := it.relowner;
        drop_statement := format('DROP POLICY %I ON %s', it.polname, it.name);
        statements := ARRAY[format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', it.polname, it.name,
                CASE WHEN it.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                CASE it.polcmd WHEN '*' THEN 'ALL' WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' ELSE 'DELETE' END,
                it.roles)
            || coalesce(' USING (' || it.condition || ')', '') || coalesce(' WITH CHECK (' || it.with_check || ')', '')];
        target := format('POLICY %I ON %s', it.polname, it.name);

    WHEN 'pg_publication_rel'::regclass THEN
        SELECT r.*, p.pubname, p.pubowner, _snowflake.name(r.prrelid) AS name,
            pg_get_expr(r.prqual, r.prrelid) AS condition,
            (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY u.place)
             FROM unnest(r.prattrs::smallint[]) WITH ORDINALITY AS u (number, place)
             JOIN pg_attribute AS a ON a.attrelid = r.prrelid AND a.attnum = u.number) AS columns INTO it
        FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE r.oid = id;
        owner := it.pubowner;
        drop_statement := format('ALTER PUBLICATION %I DROP TABLE ONLY %s', it.pubname, it.name);
        statements := ARRAY[format('ALTER PUBLICATION %I ADD TABLE ONLY %s', it.pubname, it.name)
            || coalesce(' (' || it.columns || ')', '') || coalesce(' WHERE (' || it.condition || ')', '')];

    WHEN 'pg_proc'::regclass THEN
        SELECT p.*, id::regprocedure AS name INTO it FROM pg_proc AS p WHERE p.oid = id AND p.prokind <> 'a';
        IF NOT FOUND THEN
            statements := NULL;
            RETURN;
        END IF;
        owner := it.proowner;
        drop_statement := format('DROP ROUTINE %s', it.name);
        statements := ARRAY[rtrim(pg_get_functiondef(id), E'\n')];
        IF it.proowner <> quote_ident(current_user)::regrole THEN
            statements := statements || format('ALTER ROUTINE %s OWNER TO %I', it.name, pg_get_userbyid(it.proowner));
        END IF;
        statements := statements || ARRAY(
            SELECT _snowflake_convert.grants(it.proacl, it.proowner, 'f', 'ROUTINE ' || it.name, NULL));
        target := 'ROUTINE ' || it.name;
    ELSE
        statements := NULL;
        RETURN;
    END CASE;

    statements := statements || ARRAY(
        SELECT format('COMMENT ON %s IS %L', target, d.description) FROM pg_description AS d
        WHERE target IS NOT NULL AND d.classoid = class AND d.objoid = id AND d.objsubid = 0);
    statements := statements || ARRAY(
        SELECT format('SECURITY LABEL FOR %I ON %s %s IS %L', l.provider, upper(l.objtype), l.objname, l.label)
        FROM pg_seclabels AS l WHERE l.classoid = class AND l.objoid = id ORDER BY l.objsubid, l.provider);
END
$$;

-- What depends on columns, by level, with the statements that make it again.
CREATE FUNCTION _snowflake_convert.objects(tables oid[], numbers smallint[]) RETURNS _snowflake_convert.object[]
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY(
        SELECT ROW (d.class, d.id, d.level, r.described, r.owner, r.drop_statement, r.statements)::_snowflake_convert.object
        FROM _snowflake_convert.dependents(tables, numbers) AS d
        CROSS JOIN _snowflake_convert.remake(d.class, d.id) AS r
        ORDER BY d.level, r.described)
$$;

-- Objects that cannot be made again without code of other roles, in the conditions of domains,
-- that would run with the rights of the caller. PostgreSQL reads a literal when it parses a
-- statement, and may run code of the owner of its type: the conditions of a domain, also one in
-- an array, a range or a row. The caller runs the statements that make objects again. What a
-- type is can change until then: so all types count that another role can change or replace.
CREATE FUNCTION _snowflake_convert.literals(objects _snowflake_convert.object[]) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH types (name, owner) AS (
        SELECT format_type(y.oid, NULL), o.owner
        FROM pg_type AS y JOIN pg_namespace AS n ON n.oid = y.typnamespace
        CROSS JOIN LATERAL (VALUES (y.typowner), (CASE WHEN n.nspowner = 'pg_database_owner'::regrole
            THEN (SELECT b.datdba FROM pg_database AS b WHERE b.datname = current_database()) ELSE n.nspowner END)) AS o (owner)
        WHERE n.nspname <> 'pg_catalog' AND NOT pg_has_role(o.owner, quote_ident(current_user)::regrole, 'USAGE'))
    SELECT DISTINCT ON (d.described) format('%s has a literal of type %s, '
        'and role %I can have code of its own run with the rights of the caller there: '
        'convert as that role, or drop %1$s before, and let its owner make it again after',
        d.described, t.name, pg_get_userbyid(t.owner))
    FROM unnest(objects) AS d
    JOIN types AS t ON strpos(array_to_string(d.statements, E'\n'), '''::' || t.name) > 0
    -- The name of a type may begin with that of another one.
    ORDER BY d.described, length(t.name) DESC, t.owner
$$;
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
CREATE FUNCTION _snowflake_convert.backfill_time(
    relation regclass, names name[], OUT name name, OUT expression text, OUT problem text)
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    type regtype;
    candidates name[];
BEGIN
    SELECT a.attname, b.base INTO name, type
    FROM unnest(names) WITH ORDINALITY AS n (wanted, place)
    JOIN pg_attribute AS a ON a.attrelid = relation AND a.attname = n.wanted AND a.attnum > 0 AND NOT a.attisdropped
    CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
    ORDER BY n.place LIMIT 1;
    IF NOT FOUND THEN
        -- The only one whose name does not speak of later times; or the only one of them
        -- that says by its name that it is of new rows.
        SELECT array_agg(a.attname ORDER BY a.attnum) INTO candidates
        FROM pg_attribute AS a
        CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
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
            CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
            WHERE a.attrelid = relation AND a.attname = backfill_time.name);
    END IF;
    expression := CASE type
        WHEN 'timestamptz'::regtype THEN format('%I::timestamptz', name)
        WHEN 'timestamp'::regtype THEN format('%I::timestamp AT TIME ZONE %L', name, current_setting('TimeZone'))
        WHEN 'date'::regtype THEN format('%I::date::timestamp AT TIME ZONE %L', name, current_setting('TimeZone')) END;
    IF expression IS NULL THEN
        problem := format('column %s.%I has no time: it is of type %s', _snowflake.name(relation), name, type);
    END IF;
END
$$;

-- The keys whose old values are replaced, with the time of a row.
CREATE FUNCTION _snowflake_convert.backfill_keys(
    columns _snowflake_convert.key_column[], wanted text, names name[]) RETURNS SETOF _snowflake_convert.old_key
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A key that has the default already may have IDs, which stay.
    SELECT c.relation, c.name, t.name, t.expression, t.problem
    FROM unnest(columns) WITH ORDINALITY AS c
    CROSS JOIN _snowflake_convert.backfill_time(c.relation, names) AS t
    WHERE c.is_key AND (t.expression IS NOT NULL OR t.problem IS NOT NULL) AND EXISTS (
        SELECT FROM _snowflake.inheritance(c.relation, c.name) AS f WHERE f.expression IS DISTINCT FROM wanted)
    ORDER BY c.ordinality
$$;

-- The columns whose values are replaced, with the key that the values come from, and how many
-- such keys there are.
CREATE FUNCTION _snowflake_convert.backfill_columns(
    columns _snowflake_convert.key_column[], keys _snowflake_convert.old_key[],
    OUT relation oid, OUT name name, OUT origin oid, OUT origin_name name, OUT origins bigint)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE reached (id, name, origin, origin_name) AS (
        SELECT c.relation, c.name, c.relation, c.name
        FROM unnest(columns) AS c WHERE c.is_key
        UNION
        SELECT t.root, h.attname, c.origin, c.origin_name
        FROM reached AS c
        CROSS JOIN _snowflake.inheritance(c.id, c.name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f'
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        CROSS JOIN _snowflake.column_roots(k.conrelid, h.attname) AS t (root)
        WHERE u.there = f.number),
    counted AS (
        SELECT r.*, count(*) OVER (PARTITION BY r.id, r.name) AS origins,
            EXISTS (SELECT FROM unnest(keys) AS k
                WHERE k.relation = r.origin AND k.name = r.origin_name) AS is_replaced
        FROM reached AS r)
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
CREATE FUNCTION _snowflake_convert.backfill_layout(
    generator regclass, worker_id bigint,
    OUT per_tick bigint, OUT first bigint, OUT per_number bigint, OUT numbers bigint,
    OUT since timestamptz, OUT until timestamptz, OUT own_worker_id integer)
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
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
CREATE FUNCTION _snowflake_convert.min_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_min_id(at, generator);
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- Why old rows cannot be given IDs of their time.
CREATE FUNCTION _snowflake_convert.backfill_obstacles(
    keys _snowflake_convert.old_key[], generator regclass, worker_id bigint) RETURNS SETOF text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
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
            FROM _snowflake.pools AS p
            WHERE p.worker_ids @> worker_id AND NOT p.except_ids @> worker_id;
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
END
$$;

-- The statements that make and fill the table of old and new values, and the function that
-- looks them up.
CREATE FUNCTION _snowflake_convert.backfill_map(keys _snowflake_convert.old_key[], generator regclass, worker_id bigint) RETURNS text[]
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
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
        CROSS JOIN _snowflake.name(k.relation) AS n (name)
        WHERE k.expression IS NOT NULL);
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
END
$$;
-- What keeps a conversion from beginning: step 4 of plan.sql, whose head has the rules. Each
-- function returns a line for each obstacle.

-- The columns that change, in each table that has them, and those that are generated from them.
CREATE FUNCTION _snowflake_convert.altered(
    work _snowflake_convert.work, OUT member oid, OUT number smallint, OUT is_generated boolean, OUT described text)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT m.member, m.number, m.is_generated, format('%s.%I', _snowflake.name(m.relation), m.name)
    FROM unnest((work).members) AS m WHERE m.is_altered
$$;

-- Rights that the caller, or an owner of tables, does not have.
CREATE FUNCTION _snowflake_convert.obstacles_of_rights(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('must be owner of %s', pg_describe_object('pg_class'::regclass, c.oid, 0))
    FROM pg_class AS c
    WHERE (c.oid = ANY ((work).sources)
        OR c.oid IN (SELECT a.member FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)) AND NOT pg_has_role(c.relowner, 'USAGE')
    UNION ALL
    SELECT format('must be owner of %s', d.described)
    FROM unnest((work).objects) AS d WHERE NOT pg_has_role(d.owner, 'USAGE')
    UNION ALL
    -- They are made again by the caller, and then given to their owner.
    SELECT format('must be owner of %s', pg_describe_object('pg_statistic_ext'::regclass, x.oid, 0))
    FROM pg_statistic_ext AS x
    WHERE NOT pg_has_role(x.stxowner, 'USAGE') AND (x.oid = ANY ((work).statistics)
        OR x.stxrelid IN (SELECT d.id FROM unnest((work).objects) AS d WHERE d.class = 'pg_class'::regclass))
    UNION ALL
    SELECT r FROM _snowflake.missing_rights(
        ARRAY(SELECT p.relation FROM unnest((work).members) AS p WHERE p.is_altered ORDER BY p.member, p.number),
        ARRAY(SELECT p.member FROM unnest((work).members) AS p WHERE p.is_altered ORDER BY p.member, p.number),
        ARRAY(SELECT CASE WHEN NOT p.is_generated THEN p.number END FROM unnest((work).members) AS p WHERE p.is_altered ORDER BY p.member, p.number)) AS r
    UNION ALL
    -- The indexes of generated columns are made anew. So are those of partitioned tables
    -- that stay in use.
    SELECT DISTINCT format('role %I, which owns table %s, needs: GRANT CREATE ON SCHEMA %I TO %1$I',
        pg_get_userbyid(t.relowner), _snowflake.name(t.oid), n.nspname)
    FROM unnest((work).members) AS p
    JOIN pg_class AS t ON t.oid = p.member AND t.relpersistence <> 't'
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    WHERE p.is_altered AND (p.is_generated OR (work).in_use AND t.relkind = 'p')
      AND t.relowner <> quote_ident(current_user)::regrole AND NOT has_schema_privilege(t.relowner, n.oid, 'CREATE')
    UNION ALL
    -- The last step reads the greatest key as the owner, also of a column that has its type already.
    SELECT DISTINCT v.note
    FROM unnest((work).columns) AS c
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
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT f FROM _snowflake.fixed_types((work).tables, (work).numbers) AS f
    UNION ALL
    SELECT format('table %s is being converted while it is in use: finish that, or undo it by snowflake_convert_undo()',
        _snowflake.name(c.relation))
    FROM unnest((work).columns) AS c
    WHERE c.is_altered AND _snowflake_convert.copy_number(c.relation, c.name, c.relation) IS NOT NULL
$$;

-- Columns that PostgreSQL keeps as they are.
CREATE FUNCTION _snowflake_convert.obstacles_of_columns(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH members AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)
    SELECT format('%s.%I is of domain %s over %s: change the column to bigint or to another domain first',
        _snowflake.name(c.relation), c.name, c.type::regtype, c.base::regtype)
    FROM unnest((work).columns) AS c WHERE c.is_altered AND c.type NOT IN (c.base, _snowflake.key_type())
    UNION ALL
    SELECT format('type %s is neither bigint nor %s', (work).new_type, _snowflake.key_type())
    WHERE (work).new_type NOT IN ('bigint'::regtype, _snowflake.key_type())
    UNION ALL
    SELECT format('%s.%I is an identity, which cannot be of type %s, and gets no default in its place: drop the identity first',
        _snowflake.name(f.member), f.name, (work).new_type)
    FROM unnest((work).columns) AS c
    JOIN unnest((work).members) AS f ON f.relation = c.relation AND f.name = c.name
    JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number AND a.attidentity <> ''
    WHERE c.is_altered AND (work).new_type = _snowflake.key_type() AND NOT ((work).set_default AND c.is_key)
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
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- Its foreign keys would be dropped with the column.
    SELECT format('constraint %I of table %s refers to a generated column', k.conname, _snowflake.name(k.conrelid))
    FROM unnest((work).members) AS f
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0
        AND (k.confrelid = f.member AND f.number = ANY (k.confkey) OR k.conrelid = f.member AND f.number = ANY (k.conkey))
    WHERE f.is_generated
$$;

-- Objects that cannot be made again.
CREATE FUNCTION _snowflake_convert.obstacles_of_objects(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH members AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)
    SELECT format('%s belongs to extension %I', pg_describe_object(d.classid, d.objid, 0), x.extname)
    FROM pg_depend AS d JOIN pg_extension AS x ON x.oid = d.refobjid
    WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
      AND (d.classid = 'pg_class'::regclass AND d.objid IN (SELECT m.member FROM members AS m)
        OR (d.classid, d.objid) IN (SELECT o.class, o.id FROM unnest((work).objects) AS o))
    UNION ALL
    SELECT format('%s depends on a column that changes, or on a view of it, and cannot be made again: '
        'drop it before, and make it again after', d.described)
    FROM unnest((work).objects) AS d WHERE d.statements IS NULL
    UNION ALL
    -- A grant is made again by the role that made it.
    SELECT DISTINCT format('privileges on %s were granted by role %I, of which the caller is no member: let its owner grant them instead',
        g.described, pg_get_userbyid(e.grantor))
    FROM (
        SELECT pg_describe_object(o.class, o.id, 0), coalesce(c.relowner, p.proowner), l.acl
        FROM unnest((work).objects) AS o
        LEFT JOIN pg_class AS c ON o.class = 'pg_class'::regclass AND c.oid = o.id
        LEFT JOIN pg_proc AS p ON o.class = 'pg_proc'::regclass AND p.oid = o.id
        CROSS JOIN LATERAL (
            SELECT coalesce(c.relacl, p.proacl)
            UNION ALL
            SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = c.oid) AS l (acl)
        UNION ALL
        SELECT pg_describe_object('pg_class'::regclass, f.member, f.number), c.relowner, a.attacl
        FROM unnest((work).members) AS f
        JOIN pg_class AS c ON c.oid = f.member
        JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number
        WHERE f.is_generated) AS g (described, owner, acl)
    CROSS JOIN aclexplode(g.acl) AS e
    WHERE e.grantor <> g.owner
      AND NOT pg_has_role(e.grantor, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
    UNION ALL
    SELECT l FROM _snowflake_convert.literals((work).objects) AS l
$$;

-- A whole table with its partitions, or an object that is made again, as a number.
CREATE FUNCTION _snowflake_convert.node(class oid, id oid) RETURNS bigint
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT class::bigint << 32 | coalesce(CASE class WHEN 'pg_class'::regclass THEN pg_partition_root(id)::oid END, id)::bigint
$$;

-- About how many objects are locked for each table and object that is changed, at once or by the swap.
-- The numbers were measured on tables that have one thing more or less, and are rounded up: what is
-- dropped is locked as well as what is made, a foreign key with its four triggers.
CREATE FUNCTION _snowflake_convert.lock_counts(work _snowflake_convert.work, OUT node bigint, OUT locks bigint) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH altered AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a),
    relations (id, locks) AS (
        SELECT DISTINCT a.member, CASE WHEN (work).in_use THEN 6 ELSE 7 END FROM altered AS a
        UNION ALL
        SELECT o.id, CASE c.relkind WHEN 'm' THEN 12 ELSE 8 END
        FROM unnest((work).objects) AS o JOIN pg_class AS c ON o.class = 'pg_class'::regclass AND c.oid = o.id),
    constraints AS (
        SELECT a.member, k.oid, k.contype, k.conname
        FROM altered AS a JOIN pg_constraint AS k ON k.conrelid = a.member AND a.number = ANY (k.conkey)
        UNION
        SELECT a.member, k.oid, k.contype, k.conname
        FROM altered AS a JOIN pg_constraint AS k ON k.confrelid = a.member AND a.number = ANY (k.confkey))
    SELECT _snowflake_convert.node(l.class, l.id), sum(l.locks)::bigint
    FROM (
        SELECT 'pg_class'::regclass::oid, r.id,
            r.locks + CASE WHEN c.reltoastrelid = 0 OR (work).in_use AND c.relkind <> 'm' THEN 0 ELSE 4 END
        FROM relations AS r JOIN pg_class AS c ON c.oid = r.id
        UNION ALL
        SELECT 'pg_class'::regclass, r.id, 2
        FROM relations AS r JOIN pg_index AS i ON i.indrelid = r.id
        JOIN pg_class AS c ON c.oid = i.indexrelid AND c.relname !~ '__bigint$'
        UNION ALL
        -- At once, ALTER TABLE makes a foreign key anew for each of its tables.
        SELECT 'pg_class'::regclass, min(k.member), CASE WHEN k.contype <> 'f' THEN 2 WHEN (work).in_use THEN 7 ELSE 2 + 5 * count(*) END
        FROM constraints AS k WHERE k.conname !~ '^[=~].*__bigint$' GROUP BY k.oid, k.contype
        UNION ALL
        -- The default of a key and its sequence.
        SELECT 'pg_class'::regclass, c.relation, CASE WHEN (work).in_use THEN 4 ELSE 8 END FROM unnest((work).columns) AS c WHERE c.is_key
        UNION ALL
        SELECT o.class, o.id, 3 FROM unnest((work).objects) AS o WHERE o.class <> 'pg_class'::regclass
        UNION ALL
        SELECT 'pg_class'::regclass, x.stxrelid, 2 FROM pg_statistic_ext AS x WHERE x.oid = ANY ((work).statistics)) AS l (class, id, locks)
    GROUP BY 1
$$;

-- The tables and objects that change, in groups that nothing ties to each other: no foreign key, and no
-- object that is made again.
CREATE FUNCTION _snowflake_convert.groups(work _snowflake_convert.work, OUT place bigint, OUT nodes bigint[]) RETURNS SETOF record
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
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
        UNION
        SELECT _snowflake_convert.node('pg_class'::regclass, k.conrelid), _snowflake_convert.node('pg_class'::regclass, k.confrelid)
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
        WHERE n.tail = ANY (changed))
    SELECT array_agg(t.head), array_agg(t.tail) INTO heads, tails
    FROM (SELECT head, tail FROM ties UNION SELECT tail, head FROM ties) AS t;
    place := 0;
    WHILE cardinality(apart) > 0 LOOP
        place := place + 1;
        nodes := ARRAY(
            WITH RECURSIVE reached (node) AS (
                SELECT apart[1]
                UNION
                SELECT t.tail FROM reached AS r JOIN unnest(heads, tails) AS t (head, tail) ON t.head = r.node)
            SELECT r.node FROM reached AS r);
        apart := ARRAY(SELECT n FROM unnest(apart) AS n WHERE n <> ALL (nodes) ORDER BY n);
        RETURN NEXT;
    END LOOP;
END
$$;

-- The transactions of the swap, each with its tables and objects, how many locks it needs, and its groups. Small groups are swapped together:
-- each transaction needs a plan of its own.
CREATE FUNCTION _snowflake_convert.swaps(work _snowflake_convert.work, room bigint, OUT nodes bigint[], OUT locks bigint, OUT groups text[]) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH groups AS MATERIALIZED (
        SELECT g.place, g.nodes, sum(l.locks)::bigint AS locks, m.enough
        FROM _snowflake_convert.groups(work) AS g
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

-- Transactions that need more locks than the server has room for. PostgreSQL's own formula counts
-- neither the slots of background processes nor memory to spare: those remain for other sessions,
-- which would get errors too.
CREATE FUNCTION _snowflake_convert.lock_room(OUT locks bigint, OUT transactions bigint)
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT current_setting('max_locks_per_transaction')::bigint * t.count, t.count
    FROM (SELECT current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) AS t (count)
$$;
CREATE FUNCTION _snowflake_convert.obstacles_of_locks(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('%s locks about %s objects in one transaction, and this server has room for %s: '
        'set max_locks_per_transaction to %s or more, and restart it', l.what, l.count, r.locks, ceil(l.count::numeric / r.transactions))
    FROM _snowflake_convert.lock_room() AS r
    CROSS JOIN LATERAL (
        SELECT 'the conversion', 50 + sum(c.locks)::bigint FROM _snowflake_convert.lock_counts(work) AS c WHERE NOT (work).in_use
        UNION ALL
        (SELECT format('the swap of %s tables, which foreign keys or views tie to each other,',
            (SELECT count(*) FROM (SELECT _snowflake_convert.node('pg_class'::regclass, m.member) FROM unnest((work).members) AS m WHERE m.is_altered
                INTERSECT SELECT unnest(s.nodes)) AS t)), s.locks
         FROM _snowflake_convert.swaps(work, r.locks) AS s WHERE (work).in_use ORDER BY s.locks DESC LIMIT 1)) AS l (what, count)
    WHERE l.count > r.locks
$$;

-- What keeps old rows from getting IDs of their time.
CREATE FUNCTION _snowflake_convert.obstacles_of_old_rows(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH members AS (SELECT a.* FROM _snowflake_convert.altered(work) AS a WHERE NOT a.is_generated)
    SELECT format('%s.%I refers to keys of several tables, which get different new values', _snowflake.name(c.relation), c.name)
    FROM unnest((work).columns) AS c WHERE c.origins > 1
    UNION ALL
    SELECT format('table %s is there already, and has the old keys of an earlier conversion: rename or drop it', (work).map)
    WHERE to_regclass((work).map) IS NOT NULL
    UNION ALL
    -- ALTER TABLE changes the type of its column, but no row.
    SELECT format('foreign table %s is a part of a table whose old rows get IDs, and its rows would keep their keys',
        _snowflake.name(c.oid))
    FROM pg_class AS c
    WHERE c.relkind = 'f' AND (work).worker_id IS NOT NULL AND c.oid IN (SELECT m.member FROM members AS m)
    UNION ALL
    -- What ALTER TABLE changes is not replicated.
    SELECT DISTINCT format('table %s is published by %I, and new keys of old rows do not reach subscribers:'
        ' take it out of the publication before, and copy its rows to them anew after', _snowflake.name(n.oid), p.pubname)
    FROM unnest((work).columns) AS d
    JOIN unnest((work).members) AS f ON f.relation = d.relation AND f.name = d.name
    JOIN pg_class AS c ON c.oid = f.member AND c.relpersistence = 'p'
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) AS a (relid)) AS m (id)
    JOIN pg_class AS n ON n.oid = m.id
    CROSS JOIN pg_publication AS p
    WHERE d.origin IS NOT NULL AND (p.puballtables AND n.oid = d.relation
        OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = n.oid)
        OR EXISTS (SELECT FROM pg_publication_namespace AS s WHERE s.pnpubid = p.oid AND s.pnnspid = n.relnamespace))
    UNION ALL
    SELECT o FROM _snowflake_convert.backfill_obstacles((work).keys, (work).generator, (work).worker_id) AS o
    WHERE (work).worker_id IS NOT NULL
$$;

-- All obstacles, in the order of the plan.
CREATE FUNCTION _snowflake_convert.obstacles(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT o.note FROM (
        SELECT _snowflake_convert.obstacles_of_rights(work)
        UNION ALL
        SELECT _snowflake_convert.obstacles_of_tables(work)
        UNION ALL
        SELECT _snowflake_convert.obstacles_of_columns(work)
        UNION ALL
        SELECT _snowflake_convert.obstacles_of_foreign_keys(work)
        UNION ALL
        SELECT _snowflake_convert.obstacles_of_objects(work)
        UNION ALL
        SELECT _snowflake_convert.obstacles_of_locks(work)
        UNION ALL
        SELECT _snowflake_convert.obstacles_of_old_rows(work)) AS o (note)
    -- What the caller may do comes first.
    ORDER BY o.note NOT LIKE 'must be owner of %', o.note
$$;
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
        OR (work).worker_id IS NOT NULL AND a.atttypid IN ('bigint'::regtype, 'bigint[]'::regtype, _snowflake.key_type()))
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
        CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE 'role ' || r.name END, _snowflake.name(t.oid), _snowflake.name(g.source), r.name)
    FROM _snowflake.next_id_range((work).generator, NULL) AS g
    CROSS JOIN unnest((work).columns) AS c
    JOIN pg_class AS t ON t.oid = c.relation
    CROSS JOIN LATERAL (
        SELECT coalesce(t.relacl, acldefault('r', t.relowner))
        UNION ALL
        SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = t.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped) AS l (acl)
    CROSS JOIN aclexplode(l.acl) AS e
    CROSS JOIN LATERAL (SELECT CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END) AS r (name)
    WHERE (work).set_default AND c.is_key AND e.privilege_type = 'INSERT'
      AND NOT has_sequence_privilege(e.grantee, g.source, 'USAGE, UPDATE')
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
-- The statements that change the columns, and make again what goes with a generated column:
-- step 4 of plan.sql.

-- The statements that drop the foreign keys of columns that get new values, and those that add
-- them again, in the order in which the keys were made. An integer key and a column of type snowflake
-- have no foreign key between them, not even until the next statement.
CREATE FUNCTION _snowflake_convert.moved_foreign_keys(
    work _snowflake_convert.work, OUT drop_statements text[], OUT add_statements text[])
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH members AS (
        SELECT m.member AS id, m.number
        FROM unnest((work).columns) AS c
        JOIN unnest((work).members) AS m ON m.relation = c.relation AND m.name = c.name
        WHERE c.origin IS NOT NULL OR c.is_altered AND c.base <> 'bigint'::regtype AND (work).new_type = _snowflake.key_type()),
    found AS (
        SELECT k.*, _snowflake.name(k.conrelid) AS table_name
        FROM pg_constraint AS k
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (
            SELECT FROM members AS m WHERE m.id = k.conrelid AND m.number = ANY (k.conkey)
                OR m.id = k.confrelid AND m.number = ANY (k.confkey)))
    SELECT coalesce(array_agg(format('ALTER TABLE %s DROP CONSTRAINT %I', f.table_name, f.conname) ORDER BY f.oid), '{}'),
        coalesce(array_agg(format('ALTER TABLE %s ADD CONSTRAINT %I %s',
            f.table_name, f.conname, pg_get_constraintdef(f.oid)) ORDER BY f.oid), '{}')
            || coalesce(array_agg(format('COMMENT ON CONSTRAINT %I ON %s IS %L', f.conname, f.table_name, d.description) ORDER BY f.oid)
                FILTER (WHERE d.description IS NOT NULL), '{}')
    FROM found AS f LEFT JOIN pg_description AS d ON d.classoid = 'pg_constraint'::regclass AND d.objoid = f.oid
$$;

-- The statements that change the columns, with the bytes that they rewrite. One statement for
-- each table, so that it is rewritten once. PostgreSQL carries out the parts in this order. A
-- generated column of a child table alone goes before.
CREATE FUNCTION _snowflake_convert.alter_tables(
    work _snowflake_convert.work, OUT statement text, OUT rewrites bigint, OUT note text) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
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
        JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE g.is_generated AND g.member = g.relation),
    parts (relation, phase, place, part) AS (
        SELECT m.relation, 1, m.attnum, format('DROP COLUMN %I', m.name) FROM made AS m
        UNION ALL
        SELECT c.relation, 2, c.number, format('ALTER COLUMN %I TYPE %s', c.name,
                coalesce((work).new_type, CASE c.type WHEN _snowflake.key_type() THEN c.type::regtype ELSE 'bigint'::regtype END))
            || CASE WHEN c.origin IS NULL THEN ''
                ELSE format(' USING pg_temp.snowflake_new_id(%L::pg_catalog.regclass, %L::pg_catalog.name, %I::bigint)',
                    _snowflake.name(c.origin), c.origin_name, c.name) END
        FROM unnest((work).columns) AS c
        WHERE c.is_altered
        UNION ALL
        SELECT m.relation, 3, m.attnum, m.definition FROM made AS m),
    -- Whether the column that it is made of is inherited.
    alone AS (
        SELECT DISTINCT m.relation FROM made AS m
        WHERE NOT EXISTS (SELECT FROM parts AS p WHERE p.relation = m.relation AND p.phase = 2))
    SELECT format('ALTER TABLE %s %s', _snowflake.name(p.relation), string_agg(p.part, ', ' ORDER BY p.phase, p.place)),
        (SELECT nullif(sum(pg_total_relation_size(f.member)), 0)
         FROM (SELECT m.member FROM unnest((work).members) AS m WHERE m.relation = p.relation AND NOT m.is_generated
               UNION SELECT p.relation) AS f (member)
         -- Between bigint and snowflake, no row is written anew.
         WHERE max(p.phase) = 3 OR max(p.phase) = 2 AND EXISTS (SELECT FROM unnest((work).columns) AS c
             WHERE c.relation = p.relation AND c.is_altered AND (c.base <> 'bigint'::regtype OR c.origin IS NOT NULL))),
        CASE WHEN max(p.phase) = 3 THEN 'a generated column moves to the end of the table' END
    FROM parts AS p
    GROUP BY p.relation, CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN p.phase ELSE 2 END
    ORDER BY CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN min(p.phase) ELSE 2 END,
        _snowflake.name(p.relation)
$$;

-- The statements that make again what has gone with a generated column.
CREATE FUNCTION _snowflake_convert.remake_generated(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
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
        SELECT 3, i.relname, format('ALTER INDEX %s SET (%s)', i.index_name,
            string_agg(format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ' ORDER BY o))
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
        SELECT 7, x.stxname, format('COMMENT ON STATISTICS %I.%I IS ', n.nspname, x.stxname)
            || quote_literal(obj_description(x.oid, 'pg_statistic_ext'))
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
            ((SELECT format('SET (%s)', string_agg(o, ', ')) FROM unnest(a.attoptions) AS o
                WHERE o LIKE 'n\_distinct%' HAVING count(*) > 0)),
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
$$;

-- The statements for what ALTER TABLE .. TYPE does not keep of statistics and indexes. The
-- statistics are the caller's after ALTER TABLE.
CREATE FUNCTION _snowflake_convert.remake_statistics(work _snowflake_convert.work) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('ALTER STATISTICS %I.%I OWNER TO %I', n.nspname, x.stxname, pg_get_userbyid(x.stxowner))
    FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
    WHERE x.stxowner <> quote_ident(current_user)::regrole AND x.oid = ANY ((work).statistics)
    UNION ALL
    SELECT format('ALTER STATISTICS %I.%I SET STATISTICS %s', n.nspname, x.stxname, x.stxstattarget)
    FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
    WHERE x.stxstattarget >= 0 AND x.stxrelid = ANY ((work).tables)
    UNION ALL
    SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', _snowflake.name(i.indexrelid), a.attnum, a.attstattarget)
    FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid
    WHERE a.attstattarget >= 0 AND i.indrelid = ANY ((work).tables)
    ORDER BY 1
$$;
-- snowflake_convert() changes smallint and integer keys to bigint, with all foreign keys
-- that reach them, and makes a generator their default.
--
-- snowflake_convert_plan() returns the statements in order, and changes nothing. Without
-- `online`, snowflake_convert() locks the tables, makes the plan again, and runs exactly
-- these statements, in the caller's transaction; online.sql has the other way.
--
-- The plan is made in four steps, of which work_of() joins the first three. types.sql has what
-- they hand on:
--
-- 1. columns() in columns.sql: the columns to change. It begins with the keys of the
--    tables, and follows foreign keys until there is no further column. A column that is
--    inherited stands for the column of the topmost table: PostgreSQL changes it there only,
--    with all partitions and child tables. So a foreign key that one partition alone has
--    leads to the column in the whole table.
-- 2. dependents() in objects.sql: what depends on these columns, as pg_depend has it, and
--    what depends on that, with a level: an object is dropped before those of lower levels,
--    and made again after them.
-- 3. remake() there: the statements that drop one such object and make it again, from what
--    the catalogs say of it.
-- 4. plan() returns the rows: obstacles.sql has the obstacles, statements.sql what is done
--    with the columns, notes.sql the notes. With a worker ID for old rows, it adds what
--    backfill.sql says; foreign keys of columns that get new values are dropped before, and
--    added again after.
--
-- What ALTER TABLE .. TYPE does by itself is left to it: indexes, constraints with their
-- foreign keys, statistics objects, replica identity, the sequence of an identity, casts of
-- defaults, partitions. What PostgreSQL would refuse in the midst of the work is found in
-- step 2, and is an obstacle: the plan has a row that says so, and the conversion does not
-- begin. An object of a kind that is not known here is an obstacle too.
--
-- No function here is SECURITY DEFINER, but for one that backfill_map() of backfill.sql makes
-- in pg_temp, with its names bound: the caller needs to own what is changed. The head of
-- sql/set_default.sql says what the search_path of these functions means.
--
-- The functions of schema _snowflake_convert read, compare and make texts under settings that
-- the functions for users fix, which alone call them: quote_all_identifiers and
-- standard_conforming_strings as PostgreSQL has them; those that snowflake_convert_run() or a
-- client calls fix them themselves. What makes a plan runs without JIT: to compile these queries
-- would take longer than to run them.

-- What a conversion has to do.
CREATE FUNCTION _snowflake_convert.work_of(
    relations regclass[], are_named boolean, generator regclass, set_default boolean,
    backfill_by name[], worker_id bigint, new_type regtype, in_use boolean) RETURNS _snowflake_convert.work
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    work _snowflake_convert.work;
    wanted constant text := _snowflake_convert.wanted_default(generator);
BEGIN
    work.generator := generator;
    work.set_default := set_default;
    work.worker_id := worker_id;
    work.new_type := new_type;
    work.in_use := in_use;
    work.columns := ARRAY(
        SELECT ROW (c.relation, c.name, c.number, c.type, c.base, c.is_key, coalesce(c.type <> new_type, c.base <> 'bigint'::regtype),
            NULL, NULL, NULL)::_snowflake_convert.key_column
        FROM _snowflake_convert.columns(relations, are_named) AS c);
    work.keys := '{}';
    IF worker_id IS NOT NULL THEN
        work.keys := ARRAY(SELECT k FROM _snowflake_convert.backfill_keys(work.columns, wanted, backfill_by) AS k);
        work.columns := ARRAY(
            SELECT ROW (c.relation, c.name, c.number, c.type, c.base, c.is_key, c.is_altered OR b.origin IS NOT NULL,
                b.origin, b.origin_name, b.origins)::_snowflake_convert.key_column
            FROM unnest(work.columns) WITH ORDINALITY AS c
            LEFT JOIN _snowflake_convert.backfill_columns(work.columns, work.keys) AS b ON b.relation = c.relation AND b.name = c.name
            ORDER BY c.ordinality);
        work.map := (SELECT CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END || '.snowflake_old_ids'
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = (work.keys)[1].relation);
    END IF;
    work.members := ARRAY(
        SELECT ROW (c.relation, c.name, f.member, f.number, f.expression, c.is_altered, false)::_snowflake_convert.member
        FROM unnest(work.columns) AS c
        CROSS JOIN _snowflake.inheritance(c.relation, c.name) AS f);
    -- Generated columns that are made of them.
    work.members := work.members || ARRAY(
        SELECT ROW (g.relation, g.name, f.member, f.number, f.expression, true, true)::_snowflake_convert.member
        FROM (SELECT DISTINCT r.id::oid, a.attname
            FROM unnest(work.members) AS m
            JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
                AND d.refobjid = m.member AND d.refobjsubid = m.number
            JOIN pg_attrdef AS e ON e.oid = d.objid AND e.adrelid = m.member
            JOIN pg_attribute AS a ON a.attrelid = m.member AND a.attnum = e.adnum AND a.attgenerated <> ''
            CROSS JOIN _snowflake.column_roots(m.member, a.attname) AS r (id)
            WHERE m.is_altered) AS g (relation, name)
        CROSS JOIN _snowflake.inheritance(g.relation, g.name) AS f);
    work.tables := ARRAY(SELECT m.member FROM unnest(work.members) AS m WHERE m.is_altered);
    work.numbers := ARRAY(SELECT m.number FROM unnest(work.members) AS m WHERE m.is_altered);
    work.objects := _snowflake_convert.objects(work.tables, work.numbers);
    -- Everything about the keys that have their default already is left out.
    work.columns := ARRAY(
        SELECT (work.columns)[c.ordinality]
        FROM unnest(work.columns) WITH ORDINALITY AS c
        WHERE c.is_altered OR work.set_default AND c.is_key AND EXISTS (
            SELECT FROM unnest(work.members) AS m
            WHERE m.relation = c.relation AND m.name = c.name AND m.expression IS DISTINCT FROM wanted)
        ORDER BY c.ordinality);
    work.members := ARRAY(
        SELECT m FROM unnest(work.members) AS m
        WHERE m.is_generated OR EXISTS (SELECT FROM unnest(work.columns) AS c WHERE c.relation = m.relation AND c.name = m.name));

    -- The tables to lock: those of the columns, and those that rules, policies and
    -- triggers belong to.
    work.sources := ARRAY(
        SELECT c.relation FROM unnest(work.columns) AS c
        UNION
        SELECT m.relation FROM unnest(work.members) AS m WHERE m.is_generated
        UNION
        SELECT c.oid FROM unnest(work.objects) AS d
        LEFT JOIN pg_rewrite AS r ON d.class = 'pg_rewrite'::regclass AND r.oid = d.id
        LEFT JOIN pg_trigger AS t ON d.class = 'pg_trigger'::regclass AND t.oid = d.id
        LEFT JOIN pg_policy AS p ON d.class = 'pg_policy'::regclass AND p.oid = d.id
        JOIN pg_class AS c ON c.oid IN (r.ev_class, t.tgrelid, p.polrelid) AND c.relkind IN ('r', 'p'));

    work.statistics := ARRAY(
        SELECT DISTINCT d.objid FROM unnest(work.tables, work.numbers) AS u (id, number)
        JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = u.id AND d.refobjsubid = u.number);
    RETURN work;
END
$$;

-- All notes, in the order of the plan.
CREATE FUNCTION _snowflake_convert.notes_of_plan(work _snowflake_convert.work, relations regclass[], are_named boolean) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH of_columns (target, note) AS MATERIALIZED (
        SELECT format('column %s.%I ', _snowflake.name(k.relation), k.name), k.note
        FROM _snowflake_convert.keys(relations, are_named) AS k
        WHERE k.note IS NOT NULL AND NOT EXISTS (
            SELECT FROM unnest((work).columns) AS c
            WHERE c.name = k.name
              AND c.relation IN (SELECT _snowflake.column_roots(k.relation, k.name)))
          AND k.relation IS NOT NULL
          AND (k.note LIKE '%: name its table to change it' OR (SELECT b.base FROM pg_attribute AS a
               CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
               WHERE a.attrelid = k.relation AND a.attname = k.name) <> 'bigint'::regtype)),
    notes (note) AS MATERIALIZED (SELECT _snowflake_convert.notes(work) WHERE cardinality((work).columns) > 0)
    SELECT a.note
    FROM (
        SELECT c.target || c.note FROM of_columns AS c
        UNION ALL
        -- One note for a column, unless the other one says what becomes of its values.
        SELECT n.note FROM notes AS n
        WHERE (work).worker_id IS NOT NULL OR NOT EXISTS (SELECT FROM of_columns AS c WHERE starts_with(n.note, c.target))
        UNION ALL
        SELECT _snowflake_convert.notes_of_keys(work)) AS a (note)
    -- What would make each INSERT fail comes first.
    ORDER BY a.note NOT LIKE '%, and triggers of these tables run it: %', a.note
$$;

-- The rows of the plan, without numbers: obstacles, then statements, then notes.
CREATE FUNCTION _snowflake_convert.plan(
    relations regclass[], are_named boolean, generator regclass, set_default boolean,
    backfill_by name[], worker_id bigint, new_type regtype, only_obstacles boolean,
    OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    work constant _snowflake_convert.work :=
        _snowflake_convert.work_of(relations, are_named, generator, set_default, backfill_by, worker_id, new_type, only_obstacles);
    moved constant record := _snowflake_convert.moved_foreign_keys(work);
    is_backfill constant boolean := cardinality(work.keys) > 0 AND cardinality(work.columns) > 0;
    is_refused boolean;
    every constant text := 'ACCESS EXCLUSIVE';
BEGIN
    PERFORM _snowflake_convert.tell('the plan knows the columns');
    RETURN QUERY SELECT 'obstacle', NULL, NULL, NULL::bigint, o FROM _snowflake_convert.obstacles(work) AS o;
    is_refused := FOUND;
    PERFORM _snowflake_convert.tell('the plan knows the obstacles');
    IF only_obstacles THEN
        RETURN;
    END IF;

    RETURN QUERY
        SELECT 'lock', format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(n.name, ', ' ORDER BY n.name)),
            every, NULL::bigint, NULL
        FROM unnest(work.sources) AS s (id) CROSS JOIN _snowflake.name(s.id) AS n (name) HAVING count(*) > 0;
    RETURN QUERY
        SELECT 'drop', d.drop_statement, every, NULL::bigint, NULL
        FROM unnest(work.objects) WITH ORDINALITY AS d ORDER BY d.ordinality DESC;
    IF is_backfill AND NOT is_refused THEN
        RETURN QUERY
            SELECT 'backfill', s, NULL, NULL::bigint, NULL
            FROM unnest(_snowflake_convert.backfill_map(work.keys, generator, worker_id)) AS s;
    END IF;
    RETURN QUERY SELECT 'drop', s, every, NULL::bigint, NULL FROM unnest(moved.drop_statements) AS s;
    -- DROP COLUMN would not drop a constraint that has the column in an expression.
    RETURN QUERY
        SELECT 'drop', format('ALTER TABLE %s DROP CONSTRAINT %I', _snowflake.name(k.conrelid), k.conname), every, NULL::bigint, NULL
        FROM pg_constraint AS k
        WHERE k.contype = 'x' AND k.conparentid = 0 AND EXISTS (
            SELECT FROM unnest(work.members) AS f
            WHERE f.is_generated AND f.member = k.conrelid AND f.number = ANY (_snowflake_convert.index_columns(k.conindid))
              AND f.number <> ALL (k.conkey))
        ORDER BY 2;
    -- An identity cannot be of another type. The default takes its place. From PostgreSQL 17 on, that of
    -- a partition goes with that of its table.
    RETURN QUERY
        SELECT 'drop', format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', _snowflake.name(m.member), m.name), every, NULL::bigint, NULL
        FROM unnest(work.columns) AS c
        JOIN unnest(work.members) AS m ON m.relation = c.relation AND m.name = c.name
        JOIN pg_attribute AS a ON a.attrelid = m.member AND a.attnum = m.number AND a.attidentity <> ''
        JOIN pg_class AS t ON t.oid = m.member
        WHERE c.is_altered AND new_type = _snowflake.key_type()
          AND NOT (t.relispartition AND current_setting('server_version_num')::integer >= 170000)
        ORDER BY 2;
    RETURN QUERY SELECT 'alter', a.statement, every, a.rewrites, a.note FROM _snowflake_convert.alter_tables(work) AS a;
    RETURN QUERY SELECT 'make', s, every, NULL::bigint, NULL FROM _snowflake_convert.remake_generated(work) AS s;
    RETURN QUERY SELECT 'make', s, every, NULL::bigint, NULL FROM unnest(moved.add_statements) AS s;
    RETURN QUERY SELECT 'make', s, every, NULL::bigint, NULL FROM _snowflake_convert.remake_statistics(work) AS s;
    -- The sequence of an identity is changed with its column.
    RETURN QUERY
        SELECT DISTINCT 'alter', format('ALTER SEQUENCE %s AS bigint', _snowflake.name(s.seqrelid)), every, NULL::bigint, NULL
        FROM unnest(work.tables, work.numbers) AS u (id, number)
        JOIN _snowflake.defaults AS d ON d.relation = u.id AND d.number = u.number
        JOIN pg_sequence AS s ON s.seqrelid = d.sequence
        WHERE NOT set_default AND s.seqtypid <> 'bigint'::regtype
        ORDER BY 2;
    RETURN QUERY
        SELECT 'make', s.statement, CASE WHEN r.is_refresh THEN every END,
            CASE WHEN r.is_refresh THEN pg_total_relation_size(d.id) END, NULL
        FROM unnest(work.objects) WITH ORDINALITY AS d
        CROSS JOIN unnest(d.statements) WITH ORDINALITY AS s (statement, place)
        CROSS JOIN LATERAL (SELECT s.statement LIKE 'REFRESH %') AS r (is_refresh)
        ORDER BY d.ordinality, s.place;
    RETURN QUERY
        SELECT 'default', format('SELECT _snowflake.set_default(%L, %L, %L)',
            _snowflake.name(c.relation), c.name, _snowflake.name(generator)), every, NULL::bigint, NULL
        FROM unnest(work.columns) AS c WHERE set_default AND c.is_key;
    RETURN QUERY
        SELECT v.action, v.statement, NULL, NULL::bigint, NULL
        FROM (VALUES ('backfill', format('CREATE TABLE %s AS TABLE pg_temp.snowflake_new_ids', work.map)),
            ('backfill', format('ALTER TABLE %s ADD PRIMARY KEY (relation, column_name, old_id), ALTER new_id SET NOT NULL', work.map)),
            ('drop', 'DROP FUNCTION pg_temp.snowflake_new_id(regclass, name, bigint)'),
            ('drop', 'DROP TABLE pg_temp.snowflake_new_ids')) AS v (action, statement)
        WHERE is_backfill;
    RETURN QUERY
        SELECT DISTINCT 'analyze', format('ANALYZE %s', _snowflake.name(c.relation)), 'SHARE UPDATE EXCLUSIVE', NULL::bigint, NULL
        FROM unnest(work.columns) AS c WHERE c.is_altered ORDER BY 2;
    PERFORM _snowflake_convert.tell('the plan knows the statements');
    RETURN QUERY SELECT 'note', NULL, NULL, NULL::bigint, n FROM _snowflake_convert.notes_of_plan(work, relations, are_named) AS n;
END
$$;
-- Functions with integers, changed to bigint for a person to review: nothing runs these statements
-- but who reads them.

-- A statement or the text of a function with bigint for the integer types in it. Strings, also those
-- between dollars, quoted names and comments stay as they are. PostgreSQL writes the head of CREATE
-- FUNCTION, and there a type has its long name, and int2 or int4 is an argument. In a text, a type
-- follows :: or a name, as in a declaration, or AS, and no keyword before a name or an expression; and
-- int2 or int4 is none if an argument has this name. A text that cannot be read to its end stays as
-- it is, and so does one that takes long.
CREATE FUNCTION _snowflake_convert.widened(text text, is_head boolean, arguments text[]) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN length(text) > 1000000 OR regexp_count(text, '\$\w*\$') > 100 THEN text ELSE (
        WITH tokens AS (
            SELECT t.parts[1] AS token, t.place, t.parts[1] ~ '^(\s|--|/\*)' AS is_space
            -- The shortest token at each place: so that a string between dollars ends at its first end.
            FROM regexp_matches(text, '((?:--[^\n]*(?:\n|$)|/\*(?:[^*]|\*+[^*/])*\*+/|[eE]''(?:[^''\\]|\\.|'''')*''|''(?:[^'']|'''')*'''
                '|"(?:[^"]|"")*"|(\$(?:[[:alpha:]_]\w*)?\$).*?\2|(?![eE]'')[[:alpha:]_][\w$]*(?![\w$])|::'
                '|[^''"$/:[:alpha:]_-]|/(?!\*)|-(?!-)|:(?!:)|\$(?!(?:[[:alpha:]_]\w*)?\$)){1,1}?)', 'g') WITH ORDINALITY AS t (parts, place)),
        beside AS (
            SELECT t.*, lower(lag(t.token) OVER w) AS before, lead(t.token) OVER w AS after
            FROM tokens AS t WINDOW w AS (PARTITION BY t.is_space ORDER BY t.place)),
        result AS (
            SELECT string_agg(b.token, '' ORDER BY b.place) AS was, string_agg(CASE
                WHEN NOT b.is_space AND (lower(b.token) IN ('integer', 'smallint') OR NOT is_head AND (lower(b.token) = 'int'
                        OR lower(b.token) IN ('int2', 'int4') AND lower(b.token) <> ALL (arguments)))
                    AND (is_head OR b.before = '::' OR b.before ~ '^[[:alpha:]_"]' AND b.after NOT IN ('(', '.') AND b.before NOT IN (
                        'select', 'distinct', 'where', 'and', 'or', 'not', 'by', 'on', 'when', 'then', 'else', 'set', 'into', 'return',
                        'returning', 'if', 'elsif', 'while', 'case', 'between', 'perform', 'from', 'join', 'update', 'using', 'begin', 'loop',
                        'declare', 'for', 'foreach', 'having', 'limit', 'offset', 'strict', 'execute', 'diagnostics', 'assert'))
                THEN 'bigint' ELSE b.token END, '' ORDER BY b.place) AS becomes
            FROM beside AS b)
        SELECT CASE WHEN r.was = text THEN r.becomes ELSE text END FROM result AS r)
    END
$$;

CREATE FUNCTION snowflake_convert_functions(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    OUT function regprocedure, OUT of_trigger boolean, OUT statement text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    it record;
    tag text;
    head text;
    becomes text;
BEGIN
    FOR it IN
        SELECT f.*, p.prosrc, coalesce(p.proargnames, '{}') AS arguments, r.drop_statement, r.statements
        FROM _snowflake_convert.functions(_snowflake_convert.work_of(_snowflake_convert.tables(relations, schemas), relations IS NOT NULL,
            NULL, true, NULL, NULL, NULL, false)) AS f
        JOIN pg_proc AS p ON p.oid = f.id JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
        CROSS JOIN _snowflake_convert.remake('pg_proc'::regclass, f.id) AS r
        -- Only the caller's own: the text of others would run with the caller's rights.
        WHERE (f.is_typed OR f.is_called) AND p.proowner = (SELECT u.oid FROM pg_roles AS u WHERE u.rolname = current_user)
        ORDER BY NOT f.of_trigger, f.id::regprocedure::text
    LOOP
        -- One with a body of SQL has no text.
        tag := CASE WHEN it.prosrc <> '' THEN substring(it.statements[1] FROM '\$\w+\$\Z') ELSE '' END;
        head := left(it.statements[1], length(it.statements[1]) - length(it.prosrc) - 2 * length(tag));
        becomes := _snowflake_convert.widened(head, true, '{}');
        function := it.id;
        of_trigger := it.of_trigger;
        statement := becomes || tag || _snowflake_convert.widened(it.prosrc, false, it.arguments) || tag;
        IF becomes <> head THEN
            -- With other types it would be one more function, or an error.
            statement := it.drop_statement || E';\n' || statement || (
                SELECT coalesce(string_agg(E';\n' || _snowflake_convert.widened(s, true, '{}'), '' ORDER BY place), '')
                FROM unnest(it.statements[2:]) WITH ORDINALITY AS s (s, place));
        END IF;
        IF statement <> it.statements[1] THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_functions(regclass[], regnamespace[]) IS
    'for review: the statements that give bigint to what is integer in the functions that snowflake_convert_plan() names, '
    'and the caller owns, those first that triggers of the tables run';
-- The conversion of tables that stay in use. snowflake_convert_steps() returns statements
-- that a client runs one by one, each in a transaction of its own, since PostgreSQL builds
-- indexes CONCURRENTLY in no other way. In psql:
--
--     SELECT statement FROM snowflake_convert_steps('{orders}') \gexec
--
-- 1. Each integer column gets a bigint column beside it, its copy; a trigger that fills the
--    copy; and a constraint that the copy equals the column, not validated yet.
-- 2. snowflake_convert_backfill() fills the copies of old rows, in small transactions.
-- 3. The constraint is validated: from here on, PostgreSQL itself vouches for the copies.
-- 4. Indexes on the copies are built CONCURRENTLY; foreign keys are added NOT VALID, then
--    validated.
-- 5. snowflake_convert_swap() does the rest in short transactions: it drops the columns,
--    and gives their copies the names, constraints, defaults, privileges and comments.
--
-- No step is stored. Each call looks at the catalogs, and returns what is left to do, so
-- that whatever was interrupted goes on, and nobody can change what another role will run.
-- Table _snowflake_convert.conversions has the progress of step 2 only: if its rows are lost, as
-- with the extension, old pages are read again, and if they are wrong, the constraint of step 3 finds that.
--
-- Until step 5, snowflake_convert_undo() returns the statements that remove everything.
--
-- Statements that lock a table go through snowflake_convert_run(), which waits for a lock
-- for half a second at most, since others queue behind it, and then tries again.
--
-- In a partitioned table, the columns, the trigger and the constraints are those of the
-- whole table, so that new partitions get them too. The filling, the indexes and the
-- foreign keys are those of each partition: PostgreSQL does them CONCURRENTLY or NOT VALID
-- there only.

CREATE TABLE _snowflake_convert.conversions (
    relation regclass PRIMARY KEY,
    pages_done bigint NOT NULL,
    pages bigint NOT NULL,
    rows_done bigint NOT NULL,
    rows_per_second double precision,
    started timestamptz NOT NULL,
    updated timestamptz NOT NULL,
    ended timestamptz,
    filled smallint[],
    to_validate name[]
);
COMMENT ON TABLE _snowflake_convert.conversions IS
    'progress of snowflake_convert_backfill(): one row for each table that is being converted, or was';
COMMENT ON COLUMN _snowflake_convert.conversions.pages_done IS 'pages of the table that have been filled in this pass';
COMMENT ON COLUMN _snowflake_convert.conversions.pages IS 'pages that the table had when the pass began';
COMMENT ON COLUMN _snowflake_convert.conversions.rows_done IS 'rows that have been filled since the conversion began';
COMMENT ON COLUMN _snowflake_convert.conversions.rows_per_second IS 'rows filled per second, of late';
COMMENT ON COLUMN _snowflake_convert.conversions.ended IS 'when the conversion was done or undone; null while it is not';
COMMENT ON COLUMN _snowflake_convert.conversions.filled IS
    'numbers of the copies that are filled in all rows: a copy that is made again has another number';
COMMENT ON COLUMN _snowflake_convert.conversions.to_validate IS 'after the swap: constraints to validate';
-- Everybody sees and changes the rows of their own tables only. The operator is named: see the
-- views of registry.sql.
ALTER TABLE _snowflake_convert.conversions ENABLE ROW LEVEL SECURITY;
CREATE POLICY owners ON _snowflake_convert.conversions USING (pg_catalog.pg_has_role(
    (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) relation), 'USAGE'));
COMMENT ON POLICY owners ON _snowflake_convert.conversions IS 'rows of the tables that the reader owns';

-- The name of the copy of a column, an index or a constraint.
CREATE FUNCTION _snowflake_convert.copy_name(name name) RETURNS name
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A long name is cut, and told from others by a hash. The names of constraints have one
    -- character more.
    SELECT CASE WHEN octet_length(name::text) <= 54 THEN name || '__bigint'
        ELSE left(name::text, 10) || substr(md5(name::text), 1, 12) || '__bigint' END
$$;

-- The name of the function that fills the copies of a table.
CREATE FUNCTION _snowflake_convert.copy_function(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('%I.%I', n.nspname, _snowflake_convert.copy_name(c.relname))
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation
$$;

-- The number of the copy of a column in a table or partition; null if there is no copy. A copy
-- is told from a column of the user's by its comment, which it has in the whole table.
CREATE FUNCTION _snowflake_convert.copy_number(root regclass, column_name name, relation regclass) RETURNS smallint
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.attnum
    FROM pg_attribute AS r JOIN pg_attribute AS a ON a.attname = r.attname AND NOT a.attisdropped
    WHERE r.attrelid = root AND r.attname = _snowflake_convert.copy_name(column_name) AND NOT r.attisdropped
      AND col_description(root, r.attnum) = 'filled by snowflake_convert_steps()' AND a.attrelid = relation
$$;

-- The columns to change, also in all partitions, with their copies if there are any yet.
CREATE FUNCTION _snowflake_convert.copies(
    relations regclass[], are_named boolean,
    OUT root regclass, OUT relation regclass, OUT kind "char", OUT name name, OUT number smallint,
    OUT is_key boolean, OUT copy name, OUT copy_number smallint)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.relation, f.member, t.relkind, c.name, f.number, c.is_key, _snowflake_convert.copy_name(c.name),
        _snowflake_convert.copy_number(c.relation, c.name, f.member)
    FROM _snowflake_convert.columns(relations, are_named) AS c
    CROSS JOIN _snowflake.inheritance(c.relation, c.name) AS f
    JOIN pg_class AS t ON t.oid = f.member
    WHERE c.base <> 'bigint'::regtype
$$;

-- Whether a function may fill the copies of a table. A role that may put objects in the schema
-- of a table could make the function before we do. So its owner must have the rights of the
-- table's owner, who can make triggers anyway.
CREATE FUNCTION _snowflake_convert.is_copy_function(function regproc, relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_has_role(p.proowner, c.relowner, 'USAGE') AND l.lanname = 'plpgsql' AND NOT p.prosecdef AND p.proconfig IS NULL
        AND p.prorettype = 'trigger'::regtype AND p.prokind = 'f'
    FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang CROSS JOIN pg_class AS c
    WHERE p.oid = function AND c.oid = relation
$$;

-- Whether a table has the trigger that fills copies, with a function of its owner.
CREATE FUNCTION _snowflake_convert.is_copying(relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- BEFORE INSERT OR UPDATE FOR EACH ROW, without columns and conditions.
    SELECT EXISTS (
        SELECT FROM pg_trigger AS t
        WHERE t.tgrelid = relation AND t.tgname = '~snowflake_convert' AND t.tgenabled = 'A' AND t.tgtype = 23
          AND t.tgqual IS NULL AND cardinality(t.tgattr::smallint[]) = 0
          AND t.tgfoid = to_regprocedure(_snowflake_convert.copy_function(relation) || '()')
          AND _snowflake_convert.is_copy_function(t.tgfoid, relation))
$$;

-- An error unless a table has the trigger that fills copies.
CREATE FUNCTION _snowflake_convert.check_copying(relation regclass) RETURNS void
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT _snowflake_convert.is_copying(relation) THEN
        RAISE EXCEPTION 'trigger "~snowflake_convert" of table % does not call a function of the owner of the table',
                _snowflake.name(relation)
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('Look at function %s(), and at who can create objects in its schema.',
                _snowflake_convert.copy_function(relation));
    END IF;
END
$$;

-- An error in transactions of other isolation levels.
CREATE FUNCTION _snowflake_convert.need_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'cannot convert keys in a transaction of isolation level %', current_setting('transaction_isolation')
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'A plan is made again when the tables are locked, and needs to see them as they are then.',
            HINT = 'Use READ COMMITTED: SET default_transaction_isolation = ''read committed''';
    END IF;
END
$$;

-- The numbers of the columns that an index is made of.
CREATE FUNCTION _snowflake_convert.index_columns(index regclass) RETURNS smallint[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- Those in expressions and conditions too, and those of a constraint, which stands
    -- between its index and the columns.
    SELECT coalesce(array_agg(DISTINCT d.refobjsubid::smallint), '{}')
    FROM pg_index AS i
    JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid AND d.refobjsubid <> 0
    WHERE i.indexrelid = index
      AND (d.classid = 'pg_class'::regclass AND d.objid = index
        OR d.classid = 'pg_constraint'::regclass AND d.objid IN (
            SELECT k.oid FROM pg_constraint AS k WHERE k.conindid = index AND k.conrelid = i.indrelid))
$$;

-- The next three are the only parts that SQL cannot have; src/sql/convert.rs has them.

-- An expression of an index, or for place 0 its condition, with other names for the columns of
-- the table; null if there is none.
CREATE FUNCTION _snowflake_convert.index_expression(index regclass, place integer, names name[]) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_index_expression';

-- The rows of a query, read as _snowflake.run_as_owner() runs a statement.
CREATE FUNCTION _snowflake_convert.rows_as_owner(relation regclass, query text, OUT key bigint, OUT at timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_rows_as_owner';

-- Marks the progress of a table and of its partitions as ended. The row stays: no role has
-- DELETE on the table, since with it a role could lock the table, and hold up the conversions
-- of all others. Policies leave out the tables of others.
CREATE FUNCTION _snowflake_convert.end_conversion(relation regclass) RETURNS void
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE _snowflake_convert.conversions AS p SET ended = clock_timestamp(), pages_done = 0, filled = NULL, to_validate = NULL
    WHERE p.ended IS NULL AND p.relation IN (
        SELECT t.relid FROM pg_partition_tree(end_conversion.relation) AS t UNION ALL SELECT end_conversion.relation)
$$;

-- A statement that means the same in sessions with either standard_conforming_strings.
-- PostgreSQL writes the backslash of a text as it is. A session with
-- standard_conforming_strings = off would read another text.
CREATE FUNCTION _snowflake_convert.portable(statement text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(CASE WHEN strpos(t.parts[2], '\') > 0 THEN 'E' || replace(t.parts[2], '\', '\\') ELSE t.parts[1] END,
        '' ORDER BY t.place)
    FROM regexp_matches(statement, '((''(?:[^'']|'''')*'')|"(?:[^"]|"")*"|[^"'']+)', 'g') WITH ORDINALITY AS t (parts, place)
$$;

-- The statement that builds an index like another one on the copies of columns. The statement
-- is PostgreSQL's own, part by part. Columns, expressions and the condition are written anew,
-- from the catalogs. The swap compares the result with the index that it replaces.
CREATE FUNCTION _snowflake_convert.copy_index(
    index regclass, columns name[], OUT copy name, OUT definition text)
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it record;
    names name[];       -- of the columns of the table, by number
    copies name[];      -- the same with those of the copies
    rest text;          -- of PostgreSQL's statement
    was text;           -- the next part of it
    become text;
    expression integer := 0;
BEGIN
    SELECT i.*, c.relname, s.spcname, _snowflake.name(i.indrelid) AS table_name INTO it
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace WHERE i.indexrelid = index;
    SELECT array_agg(CASE WHEN a.attisdropped THEN '' ELSE a.attname END ORDER BY a.attnum),
        array_agg(CASE WHEN a.attisdropped THEN ''
            WHEN a.attname = ANY (columns) THEN _snowflake_convert.copy_name(a.attname) ELSE a.attname END ORDER BY a.attnum)
    INTO names, copies
    FROM pg_attribute AS a WHERE a.attrelid = it.indrelid AND a.attnum > 0;
    copy := _snowflake_convert.copy_name(it.relname);
    definition := format('%s INDEX CONCURRENTLY %I ON %s', CASE WHEN it.indisunique THEN 'CREATE UNIQUE' ELSE 'CREATE' END,
        copy, it.table_name);
    -- CREATE [UNIQUE] INDEX name ON [ONLY] table USING ..., where a name in quotes may have
    -- any text.
    rest := regexp_replace(pg_get_indexdef(index),
        '^CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^" ]+) ON (?:ONLY )?'
        '(?:(?:"(?:[^"]|"")*"|[^". ]+)\.)?(?:"(?:[^"]|"")*"|[^". ]+)(?= USING )', '');
    was := substring(rest FROM '^ USING (?:"(?:[^"]|"")*"|[^" (]+) \(');
    definition := definition || was;
    rest := substr(rest, length(was) + 1);
    FOR place IN 1 .. it.indnatts LOOP
        was := pg_get_indexdef(index, place, false);
        IF it.indkey[place - 1] <> 0 THEN
            become := quote_ident(copies[it.indkey[place - 1]]);
        ELSE
            expression := expression + 1;
            become := _snowflake_convert.index_expression(index, expression, copies);
            -- The call of a function has no parentheses around it.
            IF was <> _snowflake_convert.index_expression(index, expression, names) THEN
                become := '(' || become || ')';
            END IF;
        END IF;
        -- Behind it: collation, operator class with options, order.
        was := was || substring(substr(rest, length(was) + 1)
            FROM '^(?:"(?:[^"]|"")*"|\((?:''(?:[^'']|'''')*''|"(?:[^"]|"")*"|[^''"()])*\)|[^"''(),])*');
        become := become || substr(was, length(pg_get_indexdef(index, place, false)) + 1)
            || CASE place WHEN it.indnatts THEN ')' WHEN it.indnkeyatts THEN ') INCLUDE (' ELSE ', ' END;
        was := was || CASE place WHEN it.indnatts THEN ')' WHEN it.indnkeyatts THEN ') INCLUDE (' ELSE ', ' END;
        IF left(rest, length(was)) <> was THEN
            RAISE EXCEPTION 'could not read the definition of index %', _snowflake.name(index)
                USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('At: %s', rest),
                HINT = 'Convert the table at once, by snowflake_convert().';
        END IF;
        definition := definition || become;
        rest := substr(rest, length(was) + 1);
    END LOOP;
    was := substring(rest FROM '^(?: NULLS NOT DISTINCT)?(?: WITH \((?:''(?:[^'']|'''')*''|"(?:[^"]|"")*"|[^''"()])*\))?');
    -- pg_get_indexdef() leaves out the tablespace, which comes before the condition.
    definition := _snowflake_convert.portable(definition || was || coalesce(' TABLESPACE ' || quote_ident(it.spcname), '')
        || coalesce(' WHERE ' || _snowflake_convert.index_expression(index, 0, copies), ''));
END
$$;

-- Runs a statement of a plan, as the owner of its table if it can run code of the owner. Who
-- converts the table of another role runs that role's code as that role: see the head of
-- src/sql/convert.rs. Names are qualified in all statements that the plans have. What is not
-- named here runs no code of an owner, or PostgreSQL switches to the owner itself.
CREATE FUNCTION _snowflake_convert.run(statement text) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name constant text := '((?:"(?:[^"]|"")*"|[^" .]+)\.(?:"(?:[^"]|"")*"|[^" .]+))';
    target constant text := coalesce(
        substring(statement FROM '^ALTER TABLE (?:ONLY )?' || name || ' '),
        substring(statement FROM '^ALTER INDEX ' || name || ' ATTACH PARTITION '),
        substring(statement FROM '^CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^" ]+) ON (?:ONLY )?' || name || ' USING '));
    relation regclass;
BEGIN
    SELECT coalesce(i.indrelid, c.oid)::regclass INTO relation
    FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
    WHERE c.oid = to_regclass(target) AND c.relkind IN ('r', 'p', 'v', 'f', 'i', 'I') AND c.relowner <> quote_ident(current_user)::regrole;
    IF FOUND THEN
        PERFORM _snowflake.run_as_owner(relation, statement);
    ELSE
        EXECUTE statement;
    END IF;
END
$$;

-- Runs a statement with the settings that its text depends on: snowflake_convert_run() has none.
CREATE FUNCTION _snowflake_convert.run_as_caller(statement text) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET xmloption = content SET bytea_output = hex
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
BEGIN
    EXECUTE statement;
END
$$;

-- Runs a statement of a client as the owner of a table. A procedure, since that shows no result.
CREATE PROCEDURE _snowflake_convert.do_as_owner(relation regclass, statement text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
BEGIN
    PERFORM _snowflake.run_as_owner(relation, statement);
END
$$;

-- A statement, or the call that runs it as the owner of a table.
CREATE FUNCTION _snowflake_convert.as_owner(relation regclass, statement text) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN c.relowner = quote_ident(current_user)::regrole THEN statement
        ELSE format('CALL _snowflake_convert.do_as_owner(%L, %L)', _snowflake.name(relation), statement) END
    FROM pg_class AS c WHERE c.oid = relation
$$;

-- Sets lock_timeout to the time that is left. One deadline for all locks: those that are held
-- already make others wait too.
CREATE FUNCTION _snowflake_convert.wait_until(deadline timestamptz) RETURNS void
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
AS $$
    SELECT pg_catalog.set_config('lock_timeout', GREATEST(1, pg_catalog.ceil(EXTRACT(epoch FROM
        deadline OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())
            OPERATOR(pg_catalog.*) 1000::pg_catalog.numeric))::pg_catalog.text, true)
$$;

-- Who holds locks on the tables that statements name, in transactions from before an instant;
-- null if nobody does. Our own locks have been given back by now. A session that has held one
-- for a short time only is left out, as far as the caller may see that.
CREATE FUNCTION _snowflake_convert.lockers(statements text[], since timestamptz) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    SELECT string_agg(DISTINCT format('%s holds %s on %s',
        CASE WHEN l.pid IS NULL THEN format('prepared transaction %L', x.gid) ELSE format('process %s', l.pid) END, l.mode, n.name), '; ')
    FROM pg_locks AS l
    JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
    JOIN pg_class AS c ON c.oid = l.relation AND c.relkind IN ('r', 'p', 'v', 'm')
    CROSS JOIN _snowflake.name(c.oid) AS n (name)
    CROSS JOIN _snowflake.name(coalesce(pg_partition_root(c.oid), c.oid)) AS r (name)
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_prepared_xacts AS x ON l.virtualtransaction = '-1/' || x.transaction
    WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND (a.xact_start < since) IS NOT FALSE
      AND EXISTS (SELECT FROM unnest(statements) AS s (text) WHERE strpos(s.text, n.name) > 0 OR strpos(s.text, r.name) > 0)
      -- Readers are in nobody's way where triggers and foreign keys are made.
      AND NOT (l.mode IN ('AccessShareLock', 'RowShareLock')
          AND statements[1] ~ '^CREATE OR REPLACE TRIGGER |^LOCK TABLE .* IN SHARE ROW EXCLUSIVE MODE$')
$$;

-- Several tables are locked one by one. Transactions that lock them in another order are
-- found by a lock that we do not get: that table comes first in the next try. So after some
-- tries we lock in the order in which they do, and queue before all of them.
--
-- Each try but the first begins a transaction, so that now() is when the first lock was
-- asked for. snowflake_convert_swap() commits before it calls this.
CREATE PROCEDURE _snowflake_convert.run_with_locks(statement text, locks text[], tries integer, INOUT lockers text)
    LANGUAGE plpgsql
AS $$
DECLARE
    may_fail constant boolean := lockers IS NOT NULL;
    tried integer := 0;
    lock_timeout constant pg_catalog.text := pg_catalog.current_setting('lock_timeout');
    search_path constant pg_catalog.text := pg_catalog.current_setting('search_path');
    place integer;
    began pg_catalog.timestamptz;
    message pg_catalog.text;
    detail pg_catalog.text;
    hint pg_catalog.text;
    context pg_catalog.text;
BEGIN
    IF statement IS NULL OR locks IS NULL OR tries IS NULL THEN
        RAISE EXCEPTION 'an argument of snowflake_convert_run() is null'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Run the statements of snowflake_convert_steps() as they are.';
    END IF;
    locks := _snowflake_convert.check_list(locks, 'locks');
    LOOP
        PERFORM _snowflake_convert.need_read_committed();
        BEGIN
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            began := clock_timestamp();
            place := 0;
            FOR i IN 1 .. cardinality(locks) LOOP
                place := i;
                PERFORM _snowflake_convert.wait_until(began + interval '500 ms');
                PERFORM _snowflake_convert.run_as_caller(locks[i]);
            END LOOP;
            place := 0;
            PERFORM _snowflake_convert.wait_until(began + interval '500 ms');
            PERFORM _snowflake_convert.run_as_caller(statement);
            PERFORM set_config('lock_timeout', lock_timeout, true);
            PERFORM set_config('search_path', search_path, true);
            lockers := NULL;
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            tried := tried + 1;
            -- After 4, 8, 16 .. tries.
            IF tried >= tries OR tried >= 4 AND tried & (tried - 1) = 0 THEN
                lockers := coalesce(_snowflake_convert.lockers(locks || statement, began),
                    'transactions that have ended now held the locks');
            END IF;
            IF tried >= tries AND NOT may_fail THEN
                RAISE EXCEPTION 'could not lock the tables; number of tries: %', tried
                    USING ERRCODE = SQLSTATE, DETAIL = lockers,
                    HINT = 'This transaction has changed nothing. Run the statement again when these transactions have ended.';
            ELSIF tried < tries AND tried >= 4 AND tried & (tried - 1) = 0 THEN
                RAISE NOTICE 'the locks were not to be had in % tries: %', tried, lockers;
            END IF;
            IF place BETWEEN 2 AND cardinality(locks) THEN
                locks := locks[place:place] || locks[:place - 1] || locks[place + 1:];
            END IF;
        WHEN OTHERS OR query_canceled THEN
            -- The context has the whole statement, and that of the swap is as long as its plan.
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
            IF length(context) <= 2000 THEN
                RAISE;
            END IF;
            RAISE EXCEPTION '%', message USING ERRCODE = SQLSTATE, HINT = coalesce(nullif(hint, ''), 'Nothing has been changed.'),
                DETAIL = concat_ws(' ', nullif(detail, ''), format('It was in: %s...', left(context, 2000)));
        END;
        -- Nobody queues behind us while we wait, for longer and longer.
        COMMIT;
        IF tried OPERATOR(pg_catalog.>=) tries THEN
            RETURN;
        END IF;
        PERFORM pg_catalog.pg_sleep(pg_catalog.random() OPERATOR(pg_catalog.*) LEAST(tried, 40)
            OPERATOR(pg_catalog./) 4.0::pg_catalog.float8);
        COMMIT;
    END LOOP;
END
$$;

CREATE PROCEDURE snowflake_convert_run(statement text, locks text[] DEFAULT '{}', tries integer DEFAULT 1000)
    LANGUAGE plpgsql
AS $$
DECLARE
    lockers pg_catalog.text;
BEGIN
    CALL _snowflake_convert.run_with_locks(statement, locks, tries, lockers);
END
$$;
COMMENT ON PROCEDURE snowflake_convert_run(text, text[], integer) IS
    'for snowflake_convert_steps(): runs statements that lock tables, then another one, in one transaction '
    'that waits for locks for half a second at most; tries again until it gets them, or names who holds them';

-- Why tables cannot be converted while they are in use.
CREATE FUNCTION _snowflake_convert.online_obstacles(
    relations regclass[], are_named boolean, generator regclass, set_default boolean) RETURNS SETOF text
    LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH copies AS MATERIALIZED (
        SELECT * FROM _snowflake_convert.copies(relations, are_named)),
    tables AS (
        SELECT DISTINCT c.relation AS id, _snowflake.name(c.relation) AS name FROM copies AS c)
    SELECT p.note FROM _snowflake_convert.plan(relations, are_named, generator, set_default, NULL, NULL, NULL, true) AS p
    WHERE p.action = 'obstacle' AND p.note NOT LIKE '% is being converted while it is in use%'
    UNION ALL
    -- Their foreign keys are added again, also if their columns stay.
    SELECT DISTINCT format('must be owner of %s', pg_describe_object('pg_class'::regclass, h.oid, 0))
    FROM copies AS c
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = c.relation AND c.number = ANY (k.confkey)
    JOIN pg_class AS h ON h.oid = k.conrelid AND NOT pg_has_role(h.relowner, 'USAGE')
    WHERE h.oid NOT IN (SELECT t.id FROM tables AS t)
    UNION ALL
    SELECT format('table %s has child tables, or is one: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id
    WHERE c.relkind <> 'p' AND NOT c.relispartition AND EXISTS (SELECT FROM pg_inherits AS i WHERE t.id IN (i.inhrelid, i.inhparent))
    UNION ALL
    SELECT format('table %s is temporary, and in use by nobody else: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id WHERE c.relpersistence = 't'
    UNION ALL
    SELECT format('partition %s is a foreign table: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id WHERE c.relkind = 'f'
    UNION ALL
    SELECT format('column %s.%I is NOT NULL, but not in the whole table: convert it at once', t.name, a.attname)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id AND c.root <> c.relation
    JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
    JOIN pg_attribute AS r ON r.attrelid = c.root AND r.attname = c.name
    WHERE a.attnotnull AND NOT r.attnotnull
    UNION ALL
    -- PostgreSQL adds no such constraint without reading the rows.
    SELECT format('constraint %I of partitioned table %s refers to partitioned table %s: convert them at once',
        k.conname, _snowflake.name(k.conrelid), _snowflake.name(k.confrelid))
    FROM pg_constraint AS k
    JOIN pg_class AS h ON h.oid = k.conrelid AND h.relkind = 'p'
    JOIN pg_class AS f ON f.oid = k.confrelid AND f.relkind = 'p'
    WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM copies AS c
        WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
    UNION ALL
    SELECT format('column %s.%I is generated from a column that changes: convert it at once', t.name, a.attname)
    FROM tables AS t
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attgenerated <> ''
    JOIN pg_attrdef AS e ON e.adrelid = t.id AND e.adnum = a.attnum
    WHERE EXISTS (SELECT FROM pg_depend AS d JOIN copies AS c ON c.relation = t.id AND c.number = d.refobjsubid
        WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.id)
    UNION ALL
    -- Primary keys WITHOUT OVERLAPS are exclusion constraints too.
    SELECT format('constraint %I of table %s is an exclusion constraint: convert it at once', k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id AND k.contype IN ('p', 'u', 'x')
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND i.indisexclusion
    WHERE EXISTS (SELECT FROM copies AS c JOIN pg_depend AS d ON d.refobjsubid = c.number
        WHERE c.relation = t.id AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.id
          AND (d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid OR d.classid = 'pg_constraint'::regclass AND d.objid = k.oid))
    UNION ALL
    -- A unique index that is built CONCURRENTLY refuses duplicates from the beginning.
    SELECT format('constraint %I of table %s is DEFERRABLE, but the index of its copy refuses duplicates immediately until the swap:'
        ' convert the table at once, or make the constraint without DEFERRABLE meanwhile', k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id AND k.contype IN ('p', 'u') AND k.condeferrable
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND NOT i.indisexclusion
    WHERE k.conparentid = 0 AND EXISTS (SELECT FROM copies AS c WHERE c.relation = t.id AND c.number = ANY (i.indkey::smallint[]))
    UNION ALL
    -- The copying updates each row, and PostgreSQL checks the new version. From PostgreSQL 18
    -- on, NOT NULL can be NOT VALID too, and what is NOT ENFORCED is checked never.
    SELECT format('constraint %I of table %s is not valid, and old rows that violate it cannot be copied: validate or drop it',
        k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id
    WHERE k.contype IN ('c', 'n') AND NOT k.convalidated AND k.coninhcount = 0 AND pg_get_constraintdef(k.oid) NOT LIKE '% NOT ENFORCED'
      AND NOT EXISTS (SELECT FROM copies AS c WHERE c.relation = t.id AND k.conname IN ('=' || c.copy, '~' || c.copy))
    UNION ALL
    -- PostgreSQL reads the statement of an index that is built CONCURRENTLY as the caller.
    SELECT l FROM _snowflake_convert.literals(ARRAY(
        SELECT ROW (NULL, NULL, NULL, 'index ' || _snowflake.name(i.indexrelid), NULL, NULL,
            ARRAY[pg_get_indexdef(i.indexrelid)])::_snowflake_convert.object
        FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.id WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)) AS l
    UNION ALL
    SELECT DISTINCT format('privileges on column %s.%I were granted by role %I, '
        'of which the caller is no member: let its owner grant them instead',
        t.name, c.name, pg_get_userbyid(e.grantor))
    FROM tables AS t JOIN copies AS c ON c.relation = t.id
    JOIN pg_class AS o ON o.oid = t.id
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum = c.number
    CROSS JOIN aclexplode(a.attacl) AS e
    WHERE e.grantor <> o.relowner
      AND NOT pg_has_role(e.grantor, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
    UNION ALL
    SELECT format('column %s.%I has an identity, which online conversion keeps for no column: '
        'use set_default => true, or convert it at once', t.name, a.attname)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum = c.number
    WHERE a.attidentity <> '' AND c.relation = c.root AND NOT (set_default AND c.is_key)
    UNION ALL
    SELECT format('generator %s is at ID %s, which is not above all integers: convert the tables at once',
        _snowflake.name(g.source), g.next_id)
    FROM _snowflake.next_id_range(generator, NULL) AS g
    WHERE set_default AND g.sorted AND g.next_id <= 2147483647
    UNION ALL
    SELECT format('this server cannot issue IDs of generator %s: %s', _snowflake.name(g.generator), g.problem)
    FROM _snowflake.generators() AS g
    WHERE set_default AND g.problem IS NOT NULL
      AND g.generator = coalesce(online_obstacles.generator, _snowflake.default_generator())
    UNION ALL
    SELECT format('column %s.%I refers to a key that changes, and is of type %s: change it to bigint or numeric first',
        _snowflake.name(k.conrelid), a.attname, format_type(a.atttypid, a.atttypmod))
    FROM copies AS c
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = c.relation
    CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
    JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.here
    CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
    WHERE u.there = c.number AND b.base NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
      AND NOT (b.base = 'numeric'::regtype AND b.modifier = -1)
    UNION ALL
    -- PostgreSQL refuses UPDATE then.
    SELECT format('table %s is published without a replica identity, so its rows cannot be updated: '
        'ALTER TABLE %1$s REPLICA IDENTITY FULL', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id AND c.relkind = 'r' AND c.relpersistence = 'p'
    WHERE CASE c.relreplident
        WHEN 'f' THEN false
        WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)
        ELSE NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisreplident) END
      AND EXISTS (
        SELECT FROM pg_publication AS p
        CROSS JOIN (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) AS a (relid)) AS m (id)
        JOIN pg_class AS n ON n.oid = m.id
        WHERE p.pubupdate AND (p.puballtables
            OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = n.oid)
            OR EXISTS (SELECT FROM pg_publication_namespace AS s WHERE s.pnpubid = p.oid AND s.pnnspid = n.relnamespace)))
    UNION ALL
    SELECT format('table %s has triggers or rules that fire on UPDATE, and the caller may not set session_replication_role, '
        'which keeps them from the copying', t.name)
    FROM tables AS t
    WHERE NOT has_parameter_privilege('session_replication_role', 'SET') AND (
        EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = t.id AND NOT g.tgisinternal AND g.tgtype & 16 <> 0
            AND cardinality(g.tgattr::smallint[]) = 0 AND g.tgname <> '~snowflake_convert')
        OR EXISTS (SELECT FROM pg_rewrite AS r WHERE r.ev_class = t.id AND r.ev_type = '2' AND r.ev_enabled <> 'D'))
    UNION ALL
    SELECT format('rule %I of table %s would change the copying: disable it, or do not enable it ALWAYS', r.rulename, t.name)
    FROM tables AS t JOIN pg_rewrite AS r ON r.ev_class = t.id AND r.ev_type = '2' AND r.ev_enabled IN ('A', 'R')
    UNION ALL
    SELECT format('column %s.%I has the name of the copy that column %I needs: rename it', t.name, a.attname, c.name)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id AND c.copy_number IS NULL
    JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attname = c.copy AND NOT a.attisdropped
    UNION ALL
    SELECT format('%s has the name of the copy that index %s needs: rename it',
        pg_describe_object('pg_class'::regclass, y.oid, 0), x.relname)
    FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.id
    JOIN pg_class AS x ON x.oid = i.indexrelid
    JOIN pg_class AS y ON y.relnamespace = x.relnamespace AND y.relname = _snowflake_convert.copy_name(x.relname)
    WHERE EXISTS (SELECT FROM copies AS c
            WHERE c.relation = t.id AND c.number = ANY (_snowflake_convert.index_columns(x.oid)))
      AND NOT EXISTS (SELECT FROM copies AS c
            WHERE c.relation = t.id AND c.copy_number = ANY (_snowflake_convert.index_columns(x.oid)))
      AND NOT EXISTS (SELECT FROM copies AS c JOIN pg_index AS z ON z.indexrelid = y.oid AND z.indrelid = c.relation
            WHERE c.relation = t.id AND c.copy_number = ANY (_snowflake_convert.index_columns(y.oid)))
    UNION ALL
    SELECT format('constraint %I of table %s has the name of the copy that constraint %I needs: rename it',
        o.conname, _snowflake.name(k.conrelid), k.conname)
    FROM pg_constraint AS k
    JOIN pg_constraint AS o ON o.conrelid = k.conrelid AND o.conname = _snowflake_convert.copy_name(k.conname)
    WHERE k.contype = 'f' AND EXISTS (SELECT FROM copies AS c
            WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
      AND NOT EXISTS (SELECT FROM copies AS c
            WHERE c.relation = o.conrelid AND c.copy_number = ANY (o.conkey)
              OR c.relation = o.confrelid AND c.copy_number = ANY (o.confkey))
    UNION ALL
    SELECT format('function %s() is there already, and is not of the owner of table %s: drop or rename it', f.name, t.name)
    FROM (SELECT DISTINCT c.root FROM copies AS c) AS r (id) JOIN tables AS t ON t.id = r.id
    CROSS JOIN _snowflake_convert.copy_function(t.id) AS f (name)
    WHERE NOT _snowflake_convert.is_copy_function(to_regprocedure(f.name || '()')::regproc, t.id)
    UNION ALL
    -- It could change the key after the copy has been filled.
    SELECT format('trigger %I of table %s fires after the one that fills the copies: rename it', g.tgname, t.name)
    FROM tables AS t JOIN pg_trigger AS g ON g.tgrelid = t.id
    WHERE NOT g.tgisinternal AND g.tgtype & 3 = 3 AND g.tgtype & 20 <> 0 AND g.tgname > '~snowflake_convert'
    UNION ALL
    SELECT format('row-level security applies to the caller or to the owner, who would not reach all rows of table %s: '
        'ALTER TABLE %1$s NO FORCE ROW LEVEL SECURITY meanwhile', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id JOIN pg_roles AS o ON o.oid = c.relowner
    -- The copying runs as the owner.
    WHERE row_security_active(t.id) OR c.relrowsecurity AND c.relforcerowsecurity AND NOT (o.rolsuper OR o.rolbypassrls)
$$;

-- An error if tables cannot be converted while they are in use.
CREATE FUNCTION _snowflake_convert.check_obstacles(relations regclass[], are_named boolean, generator regclass, set_default boolean) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex
AS $$
DECLARE
    obstacle constant text := (SELECT o FROM _snowflake_convert.online_obstacles(relations, are_named, generator, set_default) AS o LIMIT 1);
BEGIN
    IF obstacle IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert keys: %', obstacle
            USING ERRCODE = CASE WHEN obstacle LIKE 'must be owner of %' THEN 'insufficient_privilege'
                ELSE 'object_not_in_prerequisite_state' END,
            HINT = 'snowflake_convert_plan(online => true) lists all obstacles.';
    END IF;
    PERFORM _snowflake_convert.tell('the steps have no obstacle');
END
$$;

-- The steps of tables that have no obstacle.
CREATE FUNCTION _snowflake_convert.steps(
    relations regclass[], schemas regnamespace[], generator regclass, set_default boolean, OUT step bigint, OUT statement text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex
AS $$
DECLARE
    tables regclass[] := _snowflake_convert.tables(relations, schemas);
    are_named boolean := relations IS NOT NULL;
    arguments text := concat_ws(', ', 'relations => ' || quote_literal(relations::text), 'schemas => ' || quote_literal(schemas::text),
        'generator => ' || quote_literal(_snowflake.name(generator)),
        CASE WHEN NOT set_default THEN 'set_default => false' END);
    home constant regnamespace := _snowflake_convert.schema();
BEGIN
    step := 0;
    FOR statement IN
        WITH columns AS MATERIALIZED (
            SELECT c.*, _snowflake.name(c.relation) AS table_name, a.attnotnull,
                e.oid IS NOT NULL AS has_check, coalesce(e.convalidated, false) AS is_equal,
                n.oid IS NOT NULL OR NOT a.attnotnull AS has_not_null, coalesce(n.convalidated, NOT a.attnotnull) AS is_not_null
            FROM _snowflake_convert.copies(tables, are_named) AS c
            JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
            LEFT JOIN pg_constraint AS e ON e.conrelid = c.relation AND e.conname = '=' || c.copy
            LEFT JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.conname = '~' || c.copy),
        sources AS (
            SELECT c.relation, c.root, c.kind, c.table_name, array_agg(c.name ORDER BY c.number) AS names,
                _snowflake_convert.copy_function(c.relation) AS function,
                format(E'BEGIN\n    %s\n    RETURN NEW;\nEND',
                    string_agg(format('NEW.%I := NEW.%I;', c.copy, c.name), E'\n    ' ORDER BY c.number)) AS body
            FROM columns AS c GROUP BY c.relation, c.root, c.kind, c.table_name),
        constraints AS (
            SELECT k.*, _snowflake.name(k.conrelid) AS table_name,
                _snowflake.name(k.confrelid) AS referred,
                _snowflake_convert.copy_name(k.conname) AS copy
            FROM pg_constraint AS k
            JOIN pg_class AS h ON h.oid = k.conrelid AND h.relkind = 'r'
            -- The swap adds foreign keys that refer to partitioned tables: only there is
            -- there a primary key to refer to.
            JOIN pg_class AS f ON f.oid = k.confrelid AND f.relkind = 'r'
            LEFT JOIN pg_constraint AS p ON p.oid = k.conparentid
            WHERE k.contype = 'f' AND p.conrelid IS DISTINCT FROM k.conrelid
              AND EXISTS (SELECT FROM columns AS c
                  WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey)
                     OR c.relation = k.confrelid AND c.number = ANY (k.confkey))),
        -- The tables that are converted, and others whose foreign keys the swap adds again.
        members AS MATERIALIZED (
            SELECT f.member::oid AS relation, f.number, f.member = c.relation AS is_root
            FROM _snowflake_convert.columns(tables, are_named) AS c
            CROSS JOIN _snowflake.inheritance(c.relation, c.name) AS f),
        ended AS MATERIALIZED (
            SELECT t.relation, t.is_root, _snowflake.name(t.relation) AS name
            FROM (
                SELECT DISTINCT m.relation, m.is_root FROM members AS m
                UNION ALL
                SELECT DISTINCT k.conrelid, true
                FROM members AS m
                JOIN pg_class AS f ON f.oid = m.relation AND f.relkind = 'p'
                JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.relation AND m.number = ANY (k.confkey)
                WHERE k.conrelid NOT IN (SELECT o.relation FROM members AS o)) AS t),
        -- Constraints that the swap adds without reading rows: those of columns, and foreign
        -- keys that refer to partitioned tables.
        unvalidated AS (
            SELECT t.relation, t.name, k.conname
            FROM ended AS t JOIN pg_constraint AS k ON k.conrelid = t.relation
            WHERE (k.contype = 'c' AND k.coninhcount = 0 OR k.contype = 'f' AND k.conparentid = 0)
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = t.relation AND c.copy_number = ANY (k.conkey))
              AND CASE WHEN k.convalidated THEN EXISTS (
                    SELECT FROM columns AS c
                    WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
                  AND (k.contype = 'c' OR (SELECT f.relkind FROM pg_class AS f WHERE f.oid = k.confrelid) = 'p')
                ELSE EXISTS (SELECT FROM _snowflake_convert.conversions AS p
                    WHERE p.relation = t.relation AND k.conname = ANY (p.to_validate)) END),
        steps (phase, place, text) AS (
            SELECT 1, c.table_name, format('ALTER TABLE %s %s; %s', c.table_name,
                string_agg(format('ADD COLUMN %I bigint', c.copy), ', ' ORDER BY c.number),
                string_agg(concat_ws('; ',
                    format('COMMENT ON COLUMN %s.%I IS %L', c.table_name, c.copy, 'filled by snowflake_convert_steps()'),
                    g.statements), '; ' ORDER BY c.number))
            FROM columns AS c
            -- Roles that may read the column may read the copy, so that SELECT * still works.
            CROSS JOIN LATERAL (
                SELECT string_agg(DISTINCT format('GRANT SELECT (%I) ON TABLE %s TO %s', c.copy, m.table_name,
                    CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END), '; ')
                FROM columns AS m
                JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attnum = m.number
                CROSS JOIN aclexplode(a.attacl) AS e
                WHERE m.root = c.root AND m.name = c.name AND e.privilege_type = 'SELECT') AS g (statements)
            WHERE c.copy_number IS NULL AND c.relation = c.root GROUP BY c.table_name
            UNION ALL
            SELECT 2, s.table_name, format('CREATE %sFUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS %L',
                CASE WHEN to_regprocedure(s.function || '()') IS NULL THEN '' ELSE 'OR REPLACE ' END, s.function, s.body)
            FROM sources AS s
            WHERE s.relation = s.root
              AND s.body IS DISTINCT FROM (SELECT p.prosrc FROM pg_proc AS p WHERE p.oid = to_regprocedure(s.function || '()'))
            UNION ALL
            SELECT 3, s.table_name, format(
                'CREATE OR REPLACE TRIGGER %1$I BEFORE INSERT OR UPDATE ON %2$s FOR EACH ROW EXECUTE FUNCTION %3$s();'
                ' ALTER TABLE %2$s ENABLE ALWAYS TRIGGER %1$I; SELECT _snowflake_convert.check_copying(%2$L)',
                '~snowflake_convert', s.table_name, s.function)
            FROM sources AS s
            WHERE s.relation = s.root AND NOT _snowflake_convert.is_copying(s.relation)
            UNION ALL
            SELECT 4, c.table_name, format('ALTER TABLE %s %s', c.table_name, string_agg(concat_ws(', ',
                CASE WHEN NOT c.has_check THEN format('ADD CONSTRAINT %I CHECK (%I IS NOT DISTINCT FROM %I) NOT VALID',
                    '=' || c.copy, c.copy, c.name) END,
                CASE WHEN NOT c.has_not_null THEN format('ADD CONSTRAINT %I CHECK (%I IS NOT NULL) NOT VALID',
                    '~' || c.copy, c.copy) END), ', ' ORDER BY c.number))
            FROM columns AS c WHERE c.relation = c.root AND NOT (c.has_check AND c.has_not_null) GROUP BY c.table_name
            UNION ALL
            SELECT 5, c.table_name, format('CALL %s.snowflake_convert_backfill(%L)', home, c.table_name)
            FROM columns AS c LEFT JOIN _snowflake_convert.conversions AS p ON p.relation = c.relation
            WHERE c.kind = 'r' AND NOT (c.is_equal AND c.is_not_null) AND (c.copy_number = ANY (p.filled)) IS NOT TRUE
            GROUP BY c.table_name
            UNION ALL
            -- A partition at a time; then the whole table, which reads nothing again.
            SELECT 6, CASE c.kind WHEN 'r' THEN '' ELSE c.root::text END || ' ' || c.table_name,
                _snowflake_convert.as_owner(c.relation, format('ALTER TABLE %s %s', c.table_name, string_agg(concat_ws(', ',
                    CASE WHEN NOT c.is_equal THEN format('VALIDATE CONSTRAINT %I', '=' || c.copy) END,
                    CASE WHEN NOT c.is_not_null THEN format('VALIDATE CONSTRAINT %I', '~' || c.copy) END), ', ' ORDER BY c.number)))
            FROM columns AS c WHERE (c.kind = 'r' OR c.relation = c.root) AND NOT (c.is_equal AND c.is_not_null)
            GROUP BY c.kind, c.root, c.relation, c.table_name
            UNION ALL
            -- An upsert can fail on a unique index that it does not name. So those that no
            -- foreign key needs are built last.
            SELECT CASE WHEN NOT i.indisunique THEN 7
                WHEN EXISTS (SELECT FROM pg_constraint AS k WHERE k.contype = 'f' AND k.conindid = i.indexrelid)
                THEN 8 ELSE 11 END, s.table_name || x.relname, v.text
            FROM sources AS s
            JOIN pg_index AS i ON i.indrelid = s.relation
            JOIN pg_class AS x ON x.oid = i.indexrelid
            CROSS JOIN _snowflake_convert.index_columns(x.oid) AS u (numbers)
            CROSS JOIN _snowflake_convert.copy_index(i.indexrelid, s.names) AS d
            LEFT JOIN pg_class AS y ON y.relnamespace = x.relnamespace AND y.relname = d.copy
            LEFT JOIN pg_index AS z ON z.indexrelid = y.oid
            CROSS JOIN LATERAL (VALUES
                -- What an interrupted build leaves behind.
                (1, CASE WHEN NOT z.indisvalid THEN format('DROP INDEX CONCURRENTLY %s', _snowflake.name(y.oid)) END),
                (2, CASE WHEN z.indisvalid IS NOT TRUE THEN d.definition END)) AS v (place, text)
            WHERE s.kind = 'r' AND EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.number = ANY (u.numbers))
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.copy_number = ANY (u.numbers))
              AND v.text IS NOT NULL
            UNION ALL
            SELECT 9, k.table_name || k.conname, format('CALL %s.snowflake_convert_run(%L, ARRAY[%L, %L])', home, format(
                'ALTER TABLE %s ADD CONSTRAINT %I FOREIGN KEY (%s) REFERENCES %s (%s)%s%s%s %s',
                k.table_name, k.copy, m.here, k.referred, m.there,
                CASE k.confmatchtype WHEN 'f' THEN ' MATCH FULL' ELSE '' END,
                format(' ON UPDATE %s ON DELETE %s%s', u.text, d.text,
                    (SELECT format(' (%s)', string_agg(quote_ident(coalesce(c.copy, a.attname)), ', '))
                     FROM unnest(k.confdelsetcols) AS l (number)
                     JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = l.number
                     LEFT JOIN columns AS c ON c.relation = k.conrelid AND c.number = l.number HAVING count(*) > 0)),
                CASE WHEN k.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED' WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END,
                -- From PostgreSQL 18 on, one may be there that nothing checks.
                CASE WHEN pg_get_constraintdef(k.oid) LIKE '% NOT ENFORCED' THEN 'NOT ENFORCED' ELSE 'NOT VALID' END),
                format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', k.referred),
                format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', k.table_name))
            FROM constraints AS k
            CROSS JOIN LATERAL (
                SELECT string_agg(quote_ident(coalesce(c.copy, a.attname)), ', ' ORDER BY l.place),
                    string_agg(quote_ident(coalesce(f.copy, b.attname)), ', ' ORDER BY l.place)
                FROM unnest(k.conkey, k.confkey) WITH ORDINALITY AS l (here, there, place)
                JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = l.here
                JOIN pg_attribute AS b ON b.attrelid = k.confrelid AND b.attnum = l.there
                LEFT JOIN columns AS c ON c.relation = k.conrelid AND c.number = l.here
                LEFT JOIN columns AS f ON f.relation = k.confrelid AND f.number = l.there) AS m (here, there)
            JOIN (VALUES ('a', 'NO ACTION'), ('r', 'RESTRICT'), ('c', 'CASCADE'), ('n', 'SET NULL'), ('d', 'SET DEFAULT')) AS u (code, text)
                ON u.code = k.confupdtype
            JOIN (VALUES ('a', 'NO ACTION'), ('r', 'RESTRICT'), ('c', 'CASCADE'), ('n', 'SET NULL'), ('d', 'SET DEFAULT')) AS d (code, text)
                ON d.code = k.confdeltype
            WHERE NOT EXISTS (SELECT FROM pg_constraint AS o WHERE o.conrelid = k.conrelid AND o.conname = k.copy)
            UNION ALL
            SELECT 10, k.table_name || k.conname,
                _snowflake_convert.as_owner(k.conrelid, format('ALTER TABLE %s VALIDATE CONSTRAINT %I', k.table_name, k.copy))
            FROM constraints AS k
            WHERE k.convalidated AND NOT EXISTS (
                SELECT FROM pg_constraint AS o WHERE o.conrelid = k.conrelid AND o.conname = k.copy AND o.convalidated)
            UNION ALL
            SELECT 12, '', format('CALL %s.snowflake_convert_swap(%s)', home, arguments) WHERE EXISTS (SELECT FROM columns)
            UNION ALL
            -- Keys that are bigint already.
            SELECT 13, t.name, format('CALL %s.snowflake_convert_run(%L)', home,
                format('SELECT %s.snowflake_set_default(%s)', home,
                    concat_ws(', ', quote_literal(t.name), quote_literal(c.name), quote_literal(_snowflake.name(generator)))))
            FROM _snowflake_convert.columns(tables, are_named) AS c
            CROSS JOIN _snowflake.name(c.relation) AS t (name)
            WHERE set_default AND c.is_key AND c.base = 'bigint'::regtype AND EXISTS (
                SELECT FROM _snowflake.inheritance(c.relation, c.name) AS f
                WHERE f.expression IS DISTINCT FROM _snowflake_convert.wanted_default(generator))
            UNION ALL
            -- After the swap, or for a list that is made before it.
            SELECT 14, u.name, _snowflake_convert.as_owner(u.relation, format('ALTER TABLE %s VALIDATE CONSTRAINT %I', u.name, u.conname))
            FROM unvalidated AS u
            UNION ALL
            SELECT 15, t.name, format('CALL %s.snowflake_convert_run(%L)', home, format(
                'ANALYZE %1$s; SELECT _snowflake_convert.end_conversion(%1$L)', t.name))
            FROM ended AS t
            WHERE t.is_root AND (EXISTS (SELECT FROM _snowflake_convert.conversions AS p WHERE p.relation = t.relation AND p.ended IS NULL)
                OR EXISTS (SELECT FROM columns AS c WHERE c.relation = t.relation)
                OR EXISTS (SELECT FROM unvalidated AS u WHERE u.relation = t.relation)))
        SELECT CASE WHEN s.phase IN (1, 3, 4) THEN format('CALL %s.snowflake_convert_run(%L)', home, s.text) ELSE s.text END
        FROM steps AS s ORDER BY s.phase, s.place, CASE WHEN s.text LIKE 'DROP %' THEN 0 WHEN s.text LIKE 'CALL %' THEN 2 ELSE 1 END, s.text
    LOOP
        step := step + 1;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION snowflake_convert_steps(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true,
    OUT step bigint, OUT statement text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
BEGIN
    PERFORM _snowflake_convert.check_obstacles(_snowflake_convert.tables(relations, schemas), relations IS NOT NULL, generator, set_default);
    RETURN QUERY SELECT s.step, s.statement FROM _snowflake_convert.steps(relations, schemas, generator, set_default) AS s;
END
$$;
COMMENT ON FUNCTION snowflake_convert_steps(regclass[], regnamespace[], regclass, boolean) IS
    'the statements that convert the keys of tables which stay in use, without those that have been carried out; '
    'a client runs each in a transaction of its own, as with "gexec" in psql';

CREATE FUNCTION snowflake_convert_undo(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    OUT step bigint, OUT statement text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    tables regclass[] := _snowflake_convert.tables(relations, schemas);
    left_over regclass;
    home constant regnamespace := _snowflake_convert.schema();
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT c.relation, c.relation = c.root AS is_root, c.copy, c.copy_number
        FROM _snowflake_convert.copies(tables, relations IS NOT NULL) AS c WHERE c.copy_number IS NOT NULL
        UNION
        -- A table that a foreign key does not reach any more has to be named.
        SELECT f.member, f.member = t.id, n.copy, f.number
        FROM unnest(tables) AS t (id)
        JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum > 0 AND NOT a.attisdropped
        CROSS JOIN _snowflake_convert.copy_name(a.attname) AS n (copy)
        CROSS JOIN _snowflake.inheritance(t.id, n.copy) AS f
        WHERE _snowflake_convert.copy_number(t.id, a.attname, t.id) IS NOT NULL
        UNION
        -- A detached partition keeps the constraint, and has no trigger.
        SELECT k.conrelid, true, c.attname, c.attnum
        FROM pg_constraint AS k
        JOIN pg_class AS t ON t.oid = k.conrelid AND NOT t.relispartition AND pg_has_role(t.relowner, 'USAGE')
        JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey) AND NOT a.attisdropped
        JOIN pg_attribute AS c ON c.attrelid = k.conrelid AND c.attnum = ANY (k.conkey) AND NOT c.attisdropped
            AND c.attname = _snowflake_convert.copy_name(a.attname)
        WHERE k.contype = 'c' AND k.conname = '=' || c.attname AND cardinality(k.conkey) = 2
          AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = k.conrelid AND g.tgname = '~snowflake_convert')),
    columns AS (
        SELECT f.*, _snowflake.name(f.relation) AS table_name FROM found AS f),
    steps (phase, place, text) AS (
        SELECT 1, n.name || k.conname, format('CALL %s.snowflake_convert_run(%L, ARRAY[%L, %L])', home,
            format('ALTER TABLE %s DROP CONSTRAINT %I', n.name, k.conname),
            format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', f.name), format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', n.name))
        FROM pg_constraint AS k
        CROSS JOIN _snowflake.name(k.conrelid) AS n (name)
        CROSS JOIN _snowflake.name(k.confrelid) AS f (name)
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM columns AS c
            WHERE c.relation = k.conrelid AND c.copy_number = ANY (k.conkey)
              OR c.relation = k.confrelid AND c.copy_number = ANY (k.confkey))
        UNION ALL
        -- In one transaction: without the trigger, the constraint would refuse rows.
        SELECT 2, c.table_name, format('CALL %s.snowflake_convert_run(%L)', home,
            format('ALTER TABLE %1$s %2$s; DROP TRIGGER IF EXISTS %3$I ON %1$s;%4$s'
                ' SELECT _snowflake_convert.end_conversion(%1$L)',
                c.table_name, string_agg(format('DROP COLUMN %I', c.copy), ', ' ORDER BY c.copy_number), '~snowflake_convert',
                -- A function of the same name that is not ours stays.
                (SELECT format(' DROP FUNCTION %s();', f.name) FROM _snowflake_convert.copy_function(c.relation) AS f (name)
                 WHERE _snowflake_convert.is_copy_function(to_regprocedure(f.name || '()')::regproc, c.relation))))
        FROM columns AS c WHERE c.is_root GROUP BY c.relation, c.table_name)
    SELECT row_number() OVER (ORDER BY s.phase, s.place), s.text FROM steps AS s ORDER BY s.phase, s.place;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is nothing to undo' USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'No table has a copy of a column. After snowflake_convert_swap(), the conversion cannot be undone.',
            HINT = 'Name the tables that snowflake_convert_steps() was called with.';
    END IF;
    FOR left_over IN
        SELECT DISTINCT g.tgrelid FROM pg_trigger AS g
        WHERE g.tgname = '~snowflake_convert' AND g.tgparentid = 0
          AND g.tgrelid NOT IN (
              SELECT c.relation FROM _snowflake_convert.copies(tables, relations IS NOT NULL) AS c UNION ALL SELECT unnest(tables))
    LOOP
        RAISE NOTICE 'table % has copies too, and no foreign key reaches it from here: '
            'name it, if it belongs to this conversion', _snowflake.name(left_over);
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_undo(regclass[], regnamespace[]) IS
    'the statements that remove what snowflake_convert_steps() has added, until the swap; '
    'a client runs each in a transaction of its own, as with "gexec" in psql';

CREATE PROCEDURE snowflake_convert_backfill(relation regclass, batch interval DEFAULT '200 ms')
    LANGUAGE plpgsql
AS $$
DECLARE
    it pg_catalog.record;
    name pg_catalog.text;
    page bigint;
    pages bigint;
    width bigint;
    updated_rows bigint;
    done bigint := 0;
    done_before bigint := 0;
    wait pg_catalog.float8 := 0.1;     -- seconds until the next pass
    rate pg_catalog.float8;
    began pg_catalog.timestamptz;
    told pg_catalog.timestamptz;
    pass_began pg_catalog.timestamptz;
    took pg_catalog.float8;
    is_left boolean;
    older pg_catalog.text[];
    processes pg_catalog.text;
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'relation must not be null'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Run the statements of snowflake_convert_steps() as they are.';
    END IF;
    PERFORM _snowflake.fix_settings();
    name := _snowflake.name(relation);
    SELECT string_agg(format('%I = %I', c.attname, a.attname), ', ') AS assignments,
        string_agg(format('%I IS DISTINCT FROM %I', c.attname, a.attname), ' OR ') AS condition,
        array_agg(c.attnum) AS copies, array_agg(a.attnum) AS numbers INTO it
    FROM pg_attribute AS a
    JOIN pg_attribute AS c ON c.attrelid = a.attrelid
        AND c.attnum = _snowflake_convert.copy_number(coalesce(pg_partition_root(relation), relation), a.attname, relation)
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped;
    IF it.assignments IS NULL THEN
        RAISE EXCEPTION 'table % has no copies of columns to fill', name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'snowflake_convert_steps() has the statements that add them.';
    END IF;
    INSERT INTO _snowflake_convert.conversions AS p (relation, pages_done, pages, rows_done, started, updated)
        VALUES (relation, 0, 0, 0, clock_timestamp(), clock_timestamp()) ON CONFLICT ON CONSTRAINT conversions_pkey
        -- After a whole pass, another one is wanted.
        DO UPDATE SET pages_done = CASE WHEN p.filled IS NULL THEN p.pages_done ELSE 0 END, filled = NULL, to_validate = NULL,
            rows_done = CASE WHEN p.ended IS NULL THEN p.rows_done ELSE 0 END,
            started = CASE WHEN p.ended IS NULL THEN p.started ELSE excluded.started END, ended = NULL;
    SELECT p.pages_done INTO page FROM _snowflake_convert.conversions AS p WHERE p.relation = snowflake_convert_backfill.relation;
    width := 16;
    told := clock_timestamp();
    LOOP
        pages := pg_relation_size(relation) / current_setting('block_size')::bigint;
        pass_began := clock_timestamp();
        WHILE page < pages LOOP
            PERFORM _snowflake.fix_settings();
            -- Triggers of users do not see the copying; that of the copies fires always.
            PERFORM _snowflake_convert.need_read_committed();
            IF has_parameter_privilege('session_replication_role', 'SET') THEN
                PERFORM set_config('session_replication_role', 'replica', true);
            END IF;
            began := clock_timestamp();
            -- Rows that are locked are left for the next pass, or for the trigger: a session that
            -- never waits for a row while it holds others is part of no deadlock.
            BEGIN
                updated_rows := _snowflake.run_as_owner(relation, format('WITH found AS (
                        SELECT ctid FROM ONLY %1$s WHERE ctid >= %2$L::tid AND ctid < %3$L::tid AND (%4$s) FOR NO KEY UPDATE SKIP LOCKED)
                    UPDATE ONLY %1$s AS t SET %5$s FROM found
                    WHERE t.ctid = found.ctid AND t.ctid >= %2$L::tid AND t.ctid < %3$L::tid',
                    relation, format('(%s,0)', page), format('(%s,0)', least(page + width, 4294967295)), it.condition, it.assignments));
            EXCEPTION WHEN serialization_failure THEN
                -- A row was just moved to another partition. The trigger fills it there.
                updated_rows := NULL;
            END;
            IF updated_rows IS NULL THEN
                COMMIT;
                CONTINUE;
            END IF;
            page := page + width;
            done := done + updated_rows;
            took := greatest(extract(epoch FROM clock_timestamp() - began), 0.001);
            rate := done / greatest(extract(epoch FROM clock_timestamp() - pass_began), 0.001);
            UPDATE _snowflake_convert.conversions AS p
                SET pages_done = least(page, size.pages), pages = size.pages, rows_done = p.rows_done + updated_rows,
                    rows_per_second = rate, updated = clock_timestamp()
                FROM (SELECT pages) AS size (pages)
                WHERE p.relation = snowflake_convert_backfill.relation;
            -- As many pages as take the time of a batch, give or take.
            width := greatest(1, least(width * 2, (width * extract(epoch FROM batch) / took)::bigint, 65536));
            IF clock_timestamp() > told + interval '10 seconds' THEN
                told := clock_timestamp();
                RAISE NOTICE '%: page % of %, % rows per second, about % left', name, least(page, pages), pages, round(rate::numeric),
                    make_interval(secs => round(extract(epoch FROM told - pass_began) * (pages - page) / greatest(page, 1)));
            END IF;
            COMMIT;
        END LOOP;
        PERFORM _snowflake.fix_settings();
        is_left := _snowflake.read_as_owner(relation,
            format('SELECT EXISTS (SELECT FROM ONLY %s WHERE %s)', relation, it.condition))::boolean;
        EXIT WHEN NOT is_left;
        -- The whole table is read again, so others get time to give the rows back.
        wait := CASE WHEN done > done_before THEN 0.1 ELSE least(wait * 2, 60) END;
        IF wait >= 1 THEN
            RAISE NOTICE '%: some rows are locked by other transactions; trying again in % s', name, round(wait::numeric);
        END IF;
        done_before := done;
        page := 0;
        UPDATE _snowflake_convert.conversions AS p SET pages_done = 0 WHERE p.relation = snowflake_convert_backfill.relation;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(wait);
    END LOOP;
    -- A snapshot from before has the rows without copies, and would find null keys after the
    -- swap. So we wait for such snapshots, as a concurrent build of an index does; but not
    -- every table gets one. Autovacuum, which has no user, reads no keys.
    older := ARRAY(SELECT l.virtualtransaction FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
        JOIN pg_database AS d ON d.oid = a.datid AND d.datname = current_database()
        WHERE l.locktype = 'virtualxid' AND l.granted AND l.mode = 'ExclusiveLock'
          AND a.usesysid IS NOT NULL AND l.pid <> pg_backend_pid());
    wait := 0.01;
    LOOP
        PERFORM _snowflake.fix_settings();
        SELECT string_agg(DISTINCT l.pid::text, ', ') INTO processes
        FROM pg_locks AS l WHERE l.locktype = 'virtualxid' AND l.granted AND l.virtualtransaction = ANY (older);
        EXIT WHEN processes IS NULL;
        wait := least(wait * 2, 10);
        IF wait >= 1 THEN
            RAISE NOTICE '%: waiting for transactions that could see the table as it was before: processes %', name, processes;
        END IF;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(wait);
    END LOOP;
    UPDATE _snowflake_convert.conversions AS p SET filled = it.copies, updated = clock_timestamp()
        WHERE p.relation = snowflake_convert_backfill.relation;
END
$$;
COMMENT ON PROCEDURE snowflake_convert_backfill(regclass, interval) IS
    'for snowflake_convert_steps(): fills the copies of columns in the rows of a table, '
    'in transactions of about the given length; continues where it was interrupted';
-- The last step of online.sql, in short transactions: the copies take the places of the columns.
-- All statements change catalogs only. Tables that something ties to each other change in one
-- transaction; obstacles.sql has the groups.
--
-- A partitioned table and its partitions change together. ALTER TABLE on the whole table
-- reaches the columns of all partitions; indexes, keys and foreign keys are those that the
-- partitions have got before, and are attached to those of the whole table.

-- The statements that put the copies in the places of the columns. What is made of copies is not
-- made again.
CREATE FUNCTION _snowflake_convert.swap_plan(
    relations regclass[], are_named boolean, generator regclass, set_default boolean) RETURNS SETOF text
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex
AS $$
DECLARE
    copies constant _snowflake_convert.copied_column[] := ARRAY(
        SELECT ROW (c.root, c.relation, c.kind, _snowflake.name(c.relation), c.name, c.number, c.is_key,
            c.copy, c.copy_number)::_snowflake_convert.copied_column
        FROM _snowflake_convert.copies(relations, are_named) AS c);
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
            UNION
            SELECT k.conrelid FROM pg_constraint AS k WHERE k.contype = 'f' AND k.confrelid = ANY (tables)
            UNION
            SELECT k.confrelid FROM unnest(tables, numbers) AS u (id, number)
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
            UNION
            SELECT k.confrelid, r.by FROM referred AS r JOIN pg_constraint AS k ON k.conrelid = r.id AND k.contype = 'f'),
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
            SELECT o.oid AS id, _snowflake.name(o.oid) AS name, c.table_name, c.name AS column_name
            FROM columns AS c
            JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relation AND d.refobjsubid = c.number
                AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
            JOIN pg_class AS o ON o.oid = d.objid AND o.relkind = 'S'),
        statistics AS (
            SELECT x.oid, n.nspname, x.stxname, x.stxowner, x.stxstattarget
            FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
            WHERE EXISTS (SELECT FROM columns AS c JOIN pg_depend AS d ON d.refobjsubid = c.number
                WHERE c.relation = x.stxrelid AND d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = x.stxrelid)),
        steps (phase, place, text) AS (
            SELECT 1, k.table_name, format('ALTER TABLE %s %s', k.table_name,
                string_agg(format('DROP CONSTRAINT %I', k.conname), ', ' ORDER BY k.conname))
            FROM constraints AS k WHERE k.contype = 'f' AND k.conparentid = 0 GROUP BY k.table_name
            UNION ALL
            SELECT 2, s.table_name, format('DROP TRIGGER %I ON %s', '~snowflake_convert', s.table_name)
            FROM sources AS s WHERE s.relation = s.root
            UNION ALL
            SELECT 3, o.name, format('ALTER SEQUENCE %s OWNED BY NONE', o.name) FROM owned AS o
            UNION ALL
            SELECT 4, s.table_name, format('ALTER TABLE %s %s', s.table_name,
                (SELECT string_agg(format('DROP COLUMN %I', c.name), ', ' ORDER BY c.number)
                 FROM columns AS c WHERE c.relation = s.relation))
            FROM sources AS s WHERE s.relation = s.root
            UNION ALL
            SELECT 5, c.table_name, format('ALTER TABLE %s RENAME COLUMN %I TO %I', c.table_name, c.copy, c.name)
            FROM columns AS c WHERE c.relation = c.root
            UNION ALL
            -- A validated constraint says that there is no null: PostgreSQL does not look again.
            -- From PostgreSQL 18 on, it has a name and perhaps a comment.
            SELECT 6, c.table_name, CASE WHEN n.conname <> concat_ws('_', t.relname, c.name, 'not_null') OR n.connoinherit
                THEN format('ALTER TABLE %s ADD CONSTRAINT %I %s', c.table_name, n.conname, pg_get_constraintdef(n.oid))
                ELSE format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', c.table_name, c.name) END
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attnotnull
            JOIN pg_class AS t ON t.oid = c.relation
            LEFT JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.contype = 'n' AND n.conkey = ARRAY[c.number]
            WHERE c.relation = c.root
            UNION ALL
            -- Then nothing needs the constraint. A statement for each table: it takes longer to begin one than to run it.
            SELECT 8, u.table_name, format('ALTER TABLE %s %s', u.table_name, string_agg(u.text, ', ' ORDER BY u.text DESC))
            FROM (
                SELECT c.table_name, format('DROP CONSTRAINT %I', '~' || c.copy)
                FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attnotnull
                WHERE c.relation = c.root
                UNION ALL
                SELECT k.table_name, format('ADD CONSTRAINT %I %s USING INDEX %I%s', k.conname,
                    CASE k.contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END, k.conname,
                    CASE WHEN k.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED' WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END)
                FROM constraints AS k JOIN indexes AS i ON i.indexrelid = k.conindid
                WHERE k.contype IN ('p', 'u') AND k.kind = 'r') AS u (table_name, text)
            GROUP BY u.table_name
            UNION ALL
            -- Those of the partitions are attached below.
            SELECT 8, k.table_name, format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', k.table_name, k.conname, pg_get_constraintdef(k.oid))
            FROM constraints AS k JOIN indexes AS i ON i.indexrelid = k.conindid WHERE k.contype IN ('p', 'u') AND k.kind <> 'r'
            UNION ALL
            -- Before a constraint takes them, so that PostgreSQL does not rename them with a notice.
            SELECT 7, i.relname, format('ALTER INDEX %I.%I RENAME TO %I', i.nspname, i.copy, i.relname) FROM indexes AS i WHERE i.kind = 'r'
            UNION ALL
            -- The columns of an index have the names that those of its table had when it was made. A name
            -- that another column of the index has is not given.
            SELECT 8, i.relname, format('ALTER TABLE %s RENAME COLUMN %I TO %I', i.name, y.attname, a.attname)
            FROM indexes AS i JOIN pg_class AS x ON i.kind = 'r' AND x.relnamespace = i.relnamespace AND x.relname = i.copy
            JOIN pg_attribute AS a ON a.attrelid = i.indexrelid
            JOIN pg_attribute AS y ON y.attrelid = x.oid AND y.attnum = a.attnum AND y.attname <> a.attname
            WHERE NOT EXISTS (SELECT FROM pg_attribute AS o WHERE o.attrelid = x.oid AND o.attname = a.attname)
            UNION ALL
            SELECT 9, i.relname, pg_get_indexdef(i.indexrelid) FROM indexes AS i WHERE i.kind <> 'r' AND NOT i.is_constraint
            UNION ALL
            SELECT 10, p.name || i.name, format('ALTER INDEX %s ATTACH PARTITION %s', p.name, i.name)
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
            UNION ALL
            SELECT 12, k.table_name, format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', k.table_name, k.conname, pg_get_constraintdef(k.oid),
                CASE WHEN k.kind = 'r' AND k.convalidated THEN ' NOT VALID' ELSE '' END)
            FROM constraints AS k WHERE k.contype = 'f' AND k.conparentid = 0 AND 'p' IN (k.kind, k.referred_kind)
            UNION ALL
            SELECT 13, k.table_name, format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', k.table_name, k.conname, pg_get_constraintdef(k.oid),
                CASE WHEN k.convalidated THEN ' NOT VALID' ELSE '' END)
            FROM constraints AS k WHERE k.contype = 'c' AND k.coninhcount = 0
            UNION ALL
            SELECT 14, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT %s',
                c.table_name, c.name, pg_get_expr(e.adbin, e.adrelid))
            FROM columns AS c JOIN pg_attrdef AS e ON e.adrelid = c.relation AND e.adnum = c.number
            WHERE NOT (set_default AND c.is_key)
            UNION ALL
            SELECT 15, o.name, format('ALTER SEQUENCE %s%s OWNED BY %s.%I', o.name,
                CASE WHEN set_default THEN '' ELSE ' AS bigint' END, o.table_name, o.column_name)
            FROM owned AS o
            UNION ALL
            -- Others that defaults draw from.
            SELECT DISTINCT 15, q.name, format('ALTER SEQUENCE %s AS bigint', q.name)
            FROM columns AS c
            JOIN _snowflake.defaults AS d ON d.relation = c.relation AND d.number = c.number
            JOIN pg_sequence AS o ON o.seqrelid = d.sequence AND o.seqtypid <> 'bigint'::regtype
            CROSS JOIN _snowflake.name(o.seqrelid) AS q (name)
            WHERE NOT set_default AND o.seqrelid NOT IN (SELECT w.id FROM owned AS w)
            UNION ALL
            SELECT 16, s.table_name, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', s.table_name, i.relname)
            FROM sources AS s JOIN indexes AS i ON i.indrelid = s.relation AND i.indisreplident
            UNION ALL
            SELECT 16, s.table_name, format('ALTER TABLE %s CLUSTER ON %I', s.table_name, i.relname)
            FROM sources AS s JOIN indexes AS i ON i.indrelid = s.relation AND i.indisclustered
            UNION ALL
            SELECT 17, x.stxname, pg_get_statisticsobjdef(x.oid) FROM statistics AS x
            UNION ALL
            SELECT 18, x.stxname, format('ALTER STATISTICS %I.%I OWNER TO %I', x.nspname, x.stxname, pg_get_userbyid(x.stxowner))
            FROM statistics AS x WHERE x.stxowner <> quote_ident(current_user)::regrole
            UNION ALL
            SELECT 18, x.stxname, format('ALTER STATISTICS %I.%I SET STATISTICS %s', x.nspname, x.stxname, x.stxstattarget)
            FROM statistics AS x WHERE x.stxstattarget >= 0
            UNION ALL
            SELECT 18, x.stxname, format('COMMENT ON STATISTICS %I.%I IS ', x.nspname, x.stxname)
                || quote_literal(obj_description(x.oid, 'pg_statistic_ext'))
            FROM statistics AS x
            UNION ALL
            SELECT 19, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET STATISTICS %s', c.table_name, c.name, a.attstattarget)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number WHERE a.attstattarget >= 0
            UNION ALL
            SELECT 19, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET (%s)', c.table_name, c.name, o)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
            CROSS JOIN unnest(a.attoptions) AS o WHERE o LIKE 'n\_distinct%'
            UNION ALL
            -- Those of the copy itself, which the first step has granted, and then those of
            -- the column.
            SELECT DISTINCT 20, c.table_name, format('REVOKE ALL (%I) ON TABLE %s FROM %s', c.name, c.table_name,
                CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.copy_number
            CROSS JOIN aclexplode(a.attacl) AS e
            UNION ALL
            SELECT 21, c.table_name, g.statement
            FROM columns AS c JOIN pg_class AS t ON t.oid = c.relation
            JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attacl IS NOT NULL
            CROSS JOIN _snowflake_convert.grants(a.attacl, t.relowner, 'c', 'TABLE ' || c.table_name, c.name) AS g (statement)
            UNION ALL
            SELECT 22, i.relname, format('ALTER INDEX %I.%I ALTER COLUMN %s SET STATISTICS %s',
                i.nspname, i.relname, a.attnum, a.attstattarget)
            FROM indexes AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid AND a.attstattarget >= 0
            UNION ALL
            -- The copy in the whole table has a comment of ours.
            SELECT 22, c.table_name, format('COMMENT ON COLUMN %s.%I IS ', c.table_name, c.name)
                || coalesce(quote_literal(col_description(c.relation, c.number)), CASE WHEN c.relation = c.root THEN 'NULL' END)
            FROM columns AS c
            UNION ALL
            SELECT 22, c.table_name, format('SECURITY LABEL FOR %I ON COLUMN %s.%I IS %L', l.provider, c.table_name, c.name, l.label)
            FROM columns AS c JOIN pg_seclabel AS l ON l.classoid = 'pg_class'::regclass AND l.objoid = c.relation AND l.objsubid = c.number
            UNION ALL
            SELECT 22, k.table_name, format('COMMENT ON CONSTRAINT %I ON %s IS ', k.conname, k.table_name)
                || quote_literal(obj_description(k.oid, 'pg_constraint'))
            FROM constraints AS k
            UNION ALL
            SELECT 22, c.table_name, format('COMMENT ON CONSTRAINT %I ON %s IS ', n.conname, c.table_name)
                || quote_literal(obj_description(n.oid, 'pg_constraint'))
            FROM columns AS c JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.contype = 'n' AND n.conkey = ARRAY[c.number]
            WHERE c.relation = c.root
            UNION ALL
            SELECT 22, i.relname, format('COMMENT ON INDEX %I.%I IS ', i.nspname, i.relname)
                || quote_literal(obj_description(i.indexrelid, 'pg_class'))
            FROM indexes AS i)
        SELECT s.text FROM steps AS s WHERE s.text IS NOT NULL ORDER BY s.phase, s.place, s.text;
    RETURN QUERY
        SELECT s.statement
        FROM unnest(objects) WITH ORDINALITY AS d
        CROSS JOIN unnest(d.statements) WITH ORDINALITY AS s (statement, place)
        ORDER BY d.ordinality, s.place;
    RETURN QUERY
        SELECT 'DROP FUNCTION ' || string_agg(f.name || '()', ', ' ORDER BY f.name)
        FROM (SELECT DISTINCT c.root FROM unnest(copies) AS c) AS c (relation)
        CROSS JOIN _snowflake_convert.copy_function(c.relation) AS f (name) HAVING count(*) > 0;
    -- _snowflake_convert.online_obstacles() has made sure of what snowflake_set_default()
    -- would look at, so that nobody waits for that.
    IF set_default THEN
        RETURN QUERY
            SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', c.table_name, c.name,
                CASE WHEN generator <> _snowflake.default_generator()
                    THEN format('%s(%L::regclass)', _snowflake.issuer(false)::regproc, _snowflake.name(generator))
                    ELSE _snowflake.issuer(true)::text END)
            FROM unnest(copies) AS c WHERE c.is_key AND c.relation = c.root ORDER BY 1;
    END IF;
END
$$;

-- Hashes of the catalogs that a plan is made of. Each row version of a catalog has a place and
-- a transaction, so two results that are the same mean that nothing has changed: reading them
-- takes a tenth of the time of a plan.
CREATE FUNCTION _snowflake_convert.catalog_state() RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
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
END
$$;

-- The indexes and constraints of tables, without the copies. Without casts, since an expression
-- may have another one on a bigint; and whether a constraint is valid is left out, since those
-- that are not are validated after the swap. The settings of the caller do not change what it
-- returns, since a procedure and a function with settings of its own both call it.
CREATE FUNCTION _snowflake_convert.swap_result(tables oid[], owners oid[], copies smallint[]) RETURNS text[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex
AS $$
    WITH copied (relation, number) AS (SELECT * FROM unnest(owners, copies))
    SELECT array_agg(n.text ORDER BY n.text)
    FROM (
        SELECT concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid, c.reltablespace)
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indrelid = ANY (tables) AND NOT EXISTS (SELECT FROM copied AS o
            WHERE o.relation = i.indrelid AND o.number = ANY (_snowflake_convert.index_columns(i.indexrelid)))
        UNION ALL
        SELECT format('%s %I %s', _snowflake.name(k.conrelid), k.conname, pg_get_constraintdef(k.oid))
        FROM pg_constraint AS k
        WHERE (k.conrelid = ANY (tables) OR k.confrelid = ANY (tables)) AND k.contype IN ('p', 'u', 'f', 'c', 'x')
          AND (k.contype <> 'f' OR k.conparentid = 0) AND NOT EXISTS (SELECT FROM copied AS o
            WHERE o.relation = k.conrelid AND o.number = ANY (k.conkey)
              OR o.relation = k.confrelid AND o.number = ANY (k.confkey))) AS d (text)
    CROSS JOIN regexp_replace(d.text, '::(bigint|integer|smallint)|[()]| NOT VALID$', '', 'g') AS n (text)
$$;

-- Runs the statements of the swap, but for those that were run already to lock the tables, and
-- compares indexes and constraints with those before. Runs under the locks that
-- snowflake_convert_run() has got: what can be known before is given.
CREATE FUNCTION _snowflake_convert.swap(
    relations regclass[], are_named boolean, generator regclass, set_default boolean,
    steps text[], done integer, state bigint[], owners oid[], copies smallint[], before text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex
AS $$
DECLARE
    locked constant timestamptz := clock_timestamp();
    changed constant oid[] := ARRAY(SELECT DISTINCT unnest(owners));
    after text[];
    valid_of oid[];     -- constraints before the swap, with their tables
    valid name[];
BEGIN
    -- The plan is made again only if anybody has changed anything since.
    IF _snowflake_convert.catalog_state() IS DISTINCT FROM state THEN
        IF ARRAY(SELECT s FROM _snowflake_convert.swap_plan(relations, are_named, generator, set_default) AS s) <> steps THEN
            RAISE EXCEPTION 'could not swap columns: tables were changed before they were locked'
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run snowflake_convert_steps() again.';
        END IF;
        before := _snowflake_convert.swap_result(changed, owners, copies);
    END IF;
    PERFORM _snowflake_convert.check_copying(t.root)
        FROM (SELECT DISTINCT coalesce(pg_partition_root(c.id), c.id) FROM unnest(changed) AS c (id)) AS t (root);
    -- Foreign keys that refer to the tables may be those of other tables.
    SELECT array_agg(k.conrelid), array_agg(k.conname) INTO valid_of, valid FROM pg_constraint AS k
    WHERE (k.conrelid = ANY (changed) OR k.confrelid = ANY (changed)) AND k.contype IN ('c', 'f') AND k.conparentid = 0 AND k.convalidated;
    FOR i IN 1 + done .. cardinality(steps) LOOP
        PERFORM _snowflake_convert.run(steps[i]);
    END LOOP;
    -- The schema that the defaults name could have been renamed after they were written.
    IF EXISTS (
        SELECT FROM _snowflake.defaults AS d JOIN pg_proc AS p ON p.oid = d.function AND p.proname = 'snowflake_nextval'
        WHERE set_default AND d.relation = ANY (changed) AND p.oid NOT IN (_snowflake.issuer(true), _snowflake.issuer(false)))
    THEN
        RAISE EXCEPTION 'could not swap columns: the schema of extension snowflake_id was renamed meanwhile'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run snowflake_convert_steps() again.';
    END IF;
    INSERT INTO _snowflake_convert.conversions AS p (relation, pages_done, pages, rows_done, started, updated, to_validate)
        SELECT t.id, 0, 0, 0, clock_timestamp(), clock_timestamp(),
            coalesce(array_agg(k.conname ORDER BY k.conname) FILTER (WHERE k.oid IS NOT NULL), '{}')
        FROM (SELECT c, NULL::name FROM unnest(changed) AS c
              UNION SELECT v.* FROM unnest(valid_of, valid) AS v) AS t (id, name)
        LEFT JOIN pg_constraint AS k ON k.conrelid = t.id AND k.conname = t.name AND NOT k.convalidated
        WHERE t.name IS NULL OR k.oid IS NOT NULL
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
END
$$;

CREATE PROCEDURE snowflake_convert_swap(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true, tries integer DEFAULT 1000)
    LANGUAGE plpgsql
AS $$
DECLARE
    wanted pg_catalog.regclass[];
    waiting pg_catalog.text[];     -- of each transaction that is left, the groups of tables and objects
    late pg_catalog.text[] := '{}';     -- those of them that were alone, and could not be locked
    groups pg_catalog.text[];
    lockers pg_catalog.text;
    most integer;
    tables pg_catalog.regclass[];
    owners pg_catalog.oid[];       -- of each copy, the table
    copies smallint[];  -- and the number of the column
    is_analyzed boolean := false;
    are_named constant boolean := relations IS NOT NULL;
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
        wanted := _snowflake_convert.tables(relations, schemas);
        PERFORM _snowflake_convert.check_obstacles(wanted, are_named, generator, set_default);
        SELECT s.statement INTO left_over
        FROM _snowflake_convert.steps(relations, schemas, generator, set_default) AS s ORDER BY s.step LIMIT 1;
        IF left_over IS NULL OR left_over NOT LIKE '%.snowflake_convert_swap(%' THEN
            RAISE EXCEPTION 'cannot swap columns yet, or no longer'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = coalesce('The next step is: ' || left_over, 'There is nothing to convert.'),
                HINT = 'Run the statements of snowflake_convert_steps(), which has this call as one of the last.';
        END IF;
        EXIT WHEN is_analyzed;
        -- The statistics of the copies stay when they are renamed.
        is_analyzed := true;
        FOR to_analyze IN SELECT DISTINCT _snowflake.name(c.root) FROM _snowflake_convert.copies(wanted, are_named) AS c LOOP
            EXECUTE format('ANALYZE %s', to_analyze);
        END LOOP;
        COMMIT;
    END LOOP;
    waiting := ARRAY(SELECT s.groups::text FROM _snowflake_convert.lock_room() AS r
        CROSS JOIN _snowflake_convert.swaps(_snowflake_convert.work_of(wanted, are_named, generator, set_default, NULL, NULL, NULL, true), r.locks) AS s);
    LOOP
        PERFORM _snowflake.fix_settings();
        EXIT WHEN cardinality(waiting) = 0;
        PERFORM _snowflake_convert.need_read_committed();
        groups := waiting[1];
        waiting := waiting[2:];
        state := _snowflake_convert.catalog_state();
        tables := ARRAY(SELECT t FROM unnest(wanted) AS t WHERE _snowflake_convert.node('pg_class'::regclass, t) IN (SELECT unnest(g::bigint[]) FROM unnest(groups) AS g));
        steps := ARRAY(SELECT s FROM _snowflake_convert.swap_plan(tables, are_named, generator, set_default) AS s);
        -- The first statements, up to one that is no lock.
        locks := steps[:(SELECT min(s.place) - 1 FROM unnest(steps) WITH ORDINALITY AS s (s, place)
            WHERE s !~ '^LOCK TABLE ' AND s !~ '^ALTER (MATERIALIZED )?VIEW .* OWNER TO ')];
        SELECT array_agg(c.relation::oid), array_agg(c.copy_number) INTO owners, copies
        FROM _snowflake_convert.copies(tables, are_named) AS c;
        -- Another session has tied them to those of a swap before.
        CONTINUE WHEN owners IS NULL;
        swap := format('SELECT _snowflake_convert.swap(%L, %L, %L, %L, %L, %L, %L, %L, %L, %L)',
            tables, are_named, generator, set_default, steps, cardinality(locks), state, owners, copies,
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
END
$$;
COMMENT ON PROCEDURE snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer) IS
    'for snowflake_convert_steps(): puts the copies in the places of the columns, in short transactions; '
    'waits for locks for half a second at most, again and again until it gets them; what it cannot lock, it swaps last';
-- snowflake_convert_plan() shows the plans that plan.sql and online.sql
-- make. snowflake_convert() runs the first: at once, in the caller's transaction, all or
-- nothing. snowflake_set_defaults() sets the defaults of all tables of
-- a schema.
--
-- The plan is made twice: before the lock, for its obstacles and for the statement that
-- takes the lock, and under the lock. If they differ, nothing is changed.

-- Refuses arguments about old rows that do not belong together.
CREATE FUNCTION _snowflake_convert.check_backfill(
    backfill boolean, backfill_by name[], worker_id bigint, set_default boolean) RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM _snowflake_convert.check_list(backfill_by, 'backfill_by');
    IF NOT backfill AND (backfill_by IS NOT NULL OR worker_id IS NOT NULL) THEN
        RAISE EXCEPTION 'backfill_by and worker_id are for backfill => true' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Leave them out, or give backfill => true too.';
    ELSIF backfill AND worker_id IS NULL THEN
        RAISE EXCEPTION 'worker_id must be given for old rows' USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'With the worker ID of a server, an old row could get an ID that the server has issued.',
            HINT = 'Give one that no server has, has had or can lease.';
    ELSIF backfill AND NOT set_default THEN
        RAISE EXCEPTION 'old rows cannot be given IDs while the default stays' USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'New rows would sort before them.', HINT = 'Leave out set_default => false.';
    END IF;
END
$$;

CREATE FUNCTION snowflake_convert_plan(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true, online boolean DEFAULT false,
    backfill boolean DEFAULT false, backfill_by name[] DEFAULT NULL, worker_id bigint DEFAULT NULL,
    type regtype DEFAULT NULL,
    OUT step bigint, OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex
AS $$
DECLARE
    tables regclass[] := _snowflake_convert.tables(relations, schemas);
    are_named boolean := relations IS NOT NULL;
BEGIN
    PERFORM _snowflake_convert.check_backfill(backfill, backfill_by, worker_id, set_default);
    IF online AND (backfill OR type IS NOT NULL) THEN
        action := 'obstacle';
        note := CASE WHEN backfill THEN 'old rows can be given IDs of their time at once only, and not while the tables are in use'
            ELSE 'columns become bigint while the tables are in use: call snowflake_set_type() after that' END;
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT online THEN
        RETURN QUERY
            SELECT CASE WHEN p.statement IS NOT NULL THEN count(p.statement) OVER (ORDER BY p.ordinality) END,
                p.action, p.statement, p.locks, p.rewrites, p.note
            FROM _snowflake_convert.plan(tables, are_named, generator, set_default, backfill_by, worker_id, type, false) WITH ORDINALITY AS p
            ORDER BY p.ordinality;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, 'obstacle', NULL::text, NULL::text, NULL::bigint, o.note
        FROM _snowflake_convert.online_obstacles(tables, are_named, generator, set_default) AS o (note);
    IF NOT FOUND THEN
        PERFORM _snowflake_convert.tell('the plan has no obstacle');
        FOR step, statement IN
            SELECT s.step, s.statement
            FROM _snowflake_convert.steps(relations, schemas, generator, set_default) AS s ORDER BY s.step
        LOOP
            action := 'step';
            locks := CASE
                WHEN statement LIKE 'CALL %.snowflake\_convert\_backfill(%' THEN 'ROW EXCLUSIVE'
                WHEN statement LIKE 'CALL %TRIGGER "~snowflake\_convert"%' OR statement LIKE 'CALL %FOREIGN KEY%' THEN 'SHARE ROW EXCLUSIVE'
                WHEN statement LIKE 'CALL %(''ANALYZE %' THEN 'SHARE UPDATE EXCLUSIVE'
                WHEN statement LIKE 'CALL \_snowflake\_convert.do\_as\_owner(%' THEN 'SHARE UPDATE EXCLUSIVE'
                WHEN statement LIKE 'CALL %' THEN 'ACCESS EXCLUSIVE'
                WHEN statement ~ '^(CREATE UNIQUE|CREATE INDEX|DROP INDEX|ALTER TABLE)' THEN 'SHARE UPDATE EXCLUSIVE' END;
            RETURN NEXT;
            IF statement LIKE 'CALL %.snowflake\_convert\_swap(%' THEN
                -- What this call does, in one transaction.
                action := 'swap';
                step := NULL;
                PERFORM _snowflake_convert.tell('the plan knows the steps');
                FOR statement IN
                    SELECT s FROM _snowflake_convert.swap_plan(tables, are_named, generator, set_default) AS s
                LOOP
                    rewrites := CASE WHEN statement LIKE 'REFRESH MATERIALIZED VIEW %' THEN
                        pg_total_relation_size(substr(statement, length('REFRESH MATERIALIZED VIEW ') + 1)::regclass) END;
                    note := CASE WHEN rewrites IS NOT NULL THEN 'the tables are locked while this runs: '
                        'drop the view before, if it takes too long, and make it again after' END;
                    RETURN NEXT;
                END LOOP;
                rewrites := NULL;
                note := NULL;
            END IF;
        END LOOP;
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, 'note', NULL::text, NULL::text, NULL::bigint, n
        FROM _snowflake_convert.notes_of_plan(
            _snowflake_convert.work_of(tables, are_named, generator, set_default, NULL, NULL, NULL, false), tables, are_named) AS n;
    -- What the copies are to those who use the tables meanwhile.
    RETURN QUERY
        WITH changed AS (
            SELECT DISTINCT c.relation AS id, _snowflake.name(c.relation) AS name, c.relation = c.root AS is_root
            FROM _snowflake_convert.copies(tables, are_named) AS c),
        notes (place, note) AS (
            SELECT 1, format('columns move to the end of %s: after the swap, INSERT and COPY without a list of columns'
                ' write into the wrong columns, without an error if the types fit: name the columns',
                string_agg('table ' || c.name, ', ' ORDER BY c.name))
            FROM changed AS c WHERE c.is_root HAVING count(*) > 0
            UNION ALL
            SELECT 2, 'prepared statements that return whole rows or keys fail once in each session '
                'after the first step and after the swap:'
                ' cached plan must not change result type'
            WHERE EXISTS (SELECT FROM changed)
            UNION ALL
            SELECT 3, format('function %s returns rows of table %s: '
                'if its text lists the columns, it fails from the first step on', p.oid::regprocedure, c.name)
            FROM changed AS c
            JOIN pg_class AS t ON t.oid = c.id
            JOIN pg_type AS y ON y.oid = t.reltype
            JOIN pg_proc AS p ON p.prorettype IN (y.oid, y.typarray)
            UNION ALL
            SELECT 4, format('trigger %I of table %s uses OLD.* or NEW.*, which have further columns from the first step on, '
                'and another order after the swap', g.tgname, c.name)
            FROM changed AS c
            JOIN pg_trigger AS g ON g.tgrelid = c.id AND NOT g.tgisinternal AND g.tgparentid = 0
            JOIN pg_proc AS p ON p.oid = g.tgfoid AND p.prosrc ~* '\m(old|new)\.\*')
        SELECT NULL::bigint, 'note', NULL::text, NULL::text, NULL::bigint, n.note FROM notes AS n ORDER BY n.place, n.note;
END
$$;
COMMENT ON FUNCTION snowflake_convert_plan(regclass[], regnamespace[], regclass, boolean, boolean, boolean, name[], bigint, regtype) IS
    'the statements that snowflake_convert(), or with online snowflake_convert_steps(), would run for tables, '
    'or for all tables of a schema, with their locks and the bytes that they rewrite; '
    'obstacles, and notes on what stays as it is; changes nothing';

-- The texts of functions that are made again are not checked, here and in the swap: one may
-- name a view without its schema, or a view that is made later.
CREATE PROCEDURE snowflake_convert(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true,
    backfill boolean DEFAULT false, backfill_by name[] DEFAULT NULL, worker_id bigint DEFAULT NULL,
    type regtype DEFAULT NULL)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
    SET quote_all_identifiers = off SET standard_conforming_strings = on
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex
AS $$
DECLARE
    tables regclass[] := _snowflake_convert.tables(relations, schemas);
    are_named boolean := relations IS NOT NULL;
    steps text[];
    again text[];
    notes text[];
    obstacles text[];
    told timestamptz := statement_timestamp();
BEGIN
    PERFORM _snowflake_convert.check_backfill(backfill, backfill_by, worker_id, set_default);
    PERFORM _snowflake_convert.need_read_committed();
    -- Once before the lock, and once under it.
    SELECT array_agg(p.statement) FILTER (WHERE p.statement IS NOT NULL),
        array_agg(p.note) FILTER (WHERE p.action = 'note'), array_agg(p.note) FILTER (WHERE p.action = 'obstacle')
    INTO steps, notes, obstacles
    FROM _snowflake_convert.plan(tables, are_named, generator, set_default, backfill_by, worker_id, type, false) AS p;
    IF obstacles IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert keys: %', obstacles[1]
            USING ERRCODE = CASE WHEN obstacles[1] LIKE 'must be owner of %' THEN 'insufficient_privilege'
                ELSE 'object_not_in_prerequisite_state' END,
            DETAIL = coalesce('Further obstacles: ' || nullif(array_to_string(obstacles[2:], '; '), '') || '.',
                'There is no other obstacle.'),
            HINT = 'Nothing has been changed. snowflake_convert_plan() lists all obstacles.';
    ELSIF steps IS NULL THEN
        RAISE NOTICE 'there is nothing to convert';
        RETURN;
    END IF;
    EXECUTE steps[1];
    SELECT array_agg(p.statement) FILTER (WHERE p.statement IS NOT NULL) INTO again
    FROM _snowflake_convert.plan(tables, are_named, generator, set_default, backfill_by, worker_id, type, false) AS p
    HAVING count(*) FILTER (WHERE p.action = 'obstacle') = 0;
    IF again IS DISTINCT FROM steps THEN
        RAISE EXCEPTION 'could not convert keys: tables were changed before they were locked'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again.';
    END IF;

    FOR i IN 2 .. cardinality(steps) LOOP
        IF clock_timestamp() > told + interval '10 seconds' THEN
            told := clock_timestamp();
            RAISE NOTICE 'step % of %: %', i, cardinality(steps), left(steps[i], 100);
        END IF;
        PERFORM _snowflake_convert.run(steps[i]);
    END LOOP;
    FOR i IN 1 .. coalesce(cardinality(notes), 0) LOOP
        RAISE NOTICE '%', notes[i];
    END LOOP;
END
$$;
COMMENT ON PROCEDURE snowflake_convert(regclass[], regnamespace[], regclass, boolean, boolean, name[], bigint, regtype) IS
    'changes smallint and integer keys to bigint, or keys to the type that is given, with all foreign keys that reach them, and makes a generator their default: '
    'all or nothing, with the statements of snowflake_convert_plan()';
-- All objects of the extension get one owner, the bootstrap superuser: the role that makes the
-- extension may be a superuser now and an ordinary role one day. Then all other roles lose all
-- privileges: ALTER DEFAULT PRIVILEGES of the superuser who makes the extension reaches its
-- objects too. Grants follow.
--
-- The scripts of both extensions have these statements; tools/env.sh puts in the name. They
-- serve CREATE EXTENSION only, when the script has made all objects itself: the owner of the
-- database may add objects of his own to an extension later, and must not get a superuser as
-- their owner. So they stay no function, and no script of an update has them.
--
-- The statements name objects. The owner of the extension's schema may rename it meanwhile, and
-- make another one of its name; so in the end each object is looked at by its OID.
SET LOCAL search_path = pg_catalog, pg_temp;
DO $$
DECLARE
    root constant oid := 10;
    extension constant name := 'snowflake_id_convert';
    it record;
BEGIN
    FOR it IN
        SELECT m.* FROM (
            SELECT 'SCHEMA' AS kind, 'SCHEMA' AS granted, n.oid AS id, quote_ident(n.nspname) AS name,
                n.nspowner AS owner, coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
            FROM pg_namespace AS n
            UNION ALL
            SELECT 'TABLE', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid, c.oid::regclass::text,
                c.relowner, coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))
            FROM pg_class AS c WHERE c.relkind IN ('r', 'v', 'S')
            UNION ALL
            SELECT 'ROUTINE', 'ROUTINE', p.oid, p.oid::regprocedure::text,
                p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
            FROM pg_proc AS p
            UNION ALL
            SELECT 'FOREIGN DATA WRAPPER', 'FOREIGN DATA WRAPPER', f.oid, quote_ident(f.fdwname),
                f.fdwowner, coalesce(f.fdwacl, acldefault('F', f.fdwowner))
            FROM pg_foreign_data_wrapper AS f
            UNION ALL
            -- There are no privileges on these.
            SELECT 'EVENT TRIGGER', NULL, v.oid, quote_ident(v.evtname), v.evtowner, NULL FROM pg_event_trigger AS v
            UNION ALL
            -- Types of their own, not those of the rows of tables, and no arrays.
            SELECT 'TYPE', 'TYPE', t.oid, t.oid::regtype::text, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
            FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
            WHERE c.relkind = 'c' OR t.typtype = 'b' AND t.typelem = 0) AS m
        JOIN pg_depend AS d ON d.objid = m.id AND d.deptype = 'e' AND d.classid = CASE m.kind
            WHEN 'SCHEMA' THEN 'pg_namespace'::regclass WHEN 'TABLE' THEN 'pg_class'::regclass
            WHEN 'TYPE' THEN 'pg_type'::regclass WHEN 'EVENT TRIGGER' THEN 'pg_event_trigger'::regclass
            WHEN 'FOREIGN DATA WRAPPER' THEN 'pg_foreign_data_wrapper'::regclass ELSE 'pg_proc'::regclass END
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        WHERE e.extname = extension
    LOOP
        IF it.owner <> root THEN
            EXECUTE format('ALTER %s %s OWNER TO %I', it.kind, it.name, pg_get_userbyid(root));
        END IF;
        CONTINUE WHEN it.granted IS NULL;
        -- The statement makes the list explicit even if it changes nothing.
        EXECUTE (
            SELECT format('REVOKE ALL ON %s %s FROM PUBLIC', it.granted, it.name)
                || coalesce(string_agg(DISTINCT ', ' || quote_ident(pg_get_userbyid(a.grantee)), ''), '')
            FROM aclexplode(it.acl) AS a WHERE a.grantee NOT IN (0, it.owner, root));
        -- Default privileges may have taken them even from the owner. An empty list would not
        -- be kept as that of the extension, and each dump would have it.
        EXECUTE format('GRANT ALL ON %s %s TO %I', it.granted, it.name, pg_get_userbyid(root));
    END LOOP;
    IF EXISTS (
        SELECT FROM pg_depend AS d
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        LEFT JOIN pg_namespace AS n ON d.classid = 'pg_namespace'::regclass AND n.oid = d.objid
        LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
        LEFT JOIN pg_foreign_data_wrapper AS f ON d.classid = 'pg_foreign_data_wrapper'::regclass AND f.oid = d.objid
        LEFT JOIN pg_event_trigger AS v ON d.classid = 'pg_event_trigger'::regclass AND v.oid = d.objid
        -- From PostgreSQL 18 on, the types of the rows of tables and views are members too.
        LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
        -- A cast belongs to who owns its types.
        WHERE e.extname = extension AND d.deptype = 'e' AND d.classid <> 'pg_cast'::regclass
          AND (coalesce(n.nspowner, c.relowner, p.proowner, t.typowner, f.fdwowner, v.evtowner) IS DISTINCT FROM root
               OR EXISTS (SELECT FROM aclexplode(coalesce(n.nspacl, c.relacl, p.proacl, t.typacl, f.fdwacl)) AS a WHERE a.grantee <> root)
               OR d.classid NOT IN ('pg_type'::regclass, 'pg_event_trigger'::regclass) AND coalesce(n.nspacl, c.relacl, p.proacl, f.fdwacl) IS NULL))
    THEN
        RAISE EXCEPTION 'not all objects of the extension could be taken from others'
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Somebody has changed the schema of the extension meanwhile. Create the extension again.';
    END IF;
END
$$;
SET LOCAL search_path = @extschema@, pg_temp;
-- Who may use what of this extension. restrict.sql comes before it, so nobody but superusers has
-- what no line grants. All of it runs with the rights of its caller, who has to own the tables.

GRANT USAGE ON SCHEMA _snowflake_convert TO PUBLIC;

-- Its policies show each role the rows of its own tables. UPDATE of the whole table, or DELETE,
-- would let each role lock it, and hold up the conversions of others.
GRANT SELECT, INSERT ON _snowflake_convert.conversions TO PUBLIC;
GRANT UPDATE (pages_done, pages, rows_done, rows_per_second, started, updated, ended, filled, to_validate)
    ON _snowflake_convert.conversions TO PUBLIC;

GRANT EXECUTE ON FUNCTION
    snowflake_convert_functions(regclass[], regnamespace[]),
    snowflake_convert_plan(regclass[], regnamespace[], regclass, boolean, boolean, boolean, name[], bigint, regtype),
    snowflake_convert_steps(regclass[], regnamespace[], regclass, boolean),
    snowflake_convert_undo(regclass[], regnamespace[])
TO PUBLIC;
GRANT EXECUTE ON PROCEDURE
    _snowflake_convert.do_as_owner(regclass, text),
    _snowflake_convert.run_with_locks(text, text[], integer, text),
    snowflake_convert(regclass[], regnamespace[], regclass, boolean, boolean, name[], bigint, regtype),
    snowflake_convert_backfill(regclass, interval),
    snowflake_convert_run(text, text[], integer),
    snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer)
TO PUBLIC;

-- Functions that those above call. Each name is that of one function.
GRANT EXECUTE ON FUNCTION
    _snowflake_convert.alter_tables, _snowflake_convert.altered, _snowflake_convert.as_owner, _snowflake_convert.backfill_columns,
    _snowflake_convert.backfill_keys, _snowflake_convert.backfill_layout, _snowflake_convert.backfill_map,
    _snowflake_convert.backfill_obstacles, _snowflake_convert.backfill_time, _snowflake_convert.catalog_state,
    _snowflake_convert.check_backfill, _snowflake_convert.check_copying, _snowflake_convert.check_list, _snowflake_convert.check_obstacles,
    _snowflake_convert.columns, _snowflake_convert.copies, _snowflake_convert.copy_function,
    _snowflake_convert.copy_index, _snowflake_convert.copy_name, _snowflake_convert.copy_number, _snowflake_convert.dependents,
    _snowflake_convert.end_conversion, _snowflake_convert.functions, _snowflake_convert.grants,
    _snowflake_convert.index_columns, _snowflake_convert.index_expression, _snowflake_convert.is_copy_function,
    _snowflake_convert.is_copying, _snowflake_convert.keys, _snowflake_convert.groups, _snowflake_convert.literals, _snowflake_convert.lock_counts, _snowflake_convert.lock_room, _snowflake_convert.lockers,
    _snowflake_convert.node,
    _snowflake_convert.min_id, _snowflake_convert.moved_foreign_keys, _snowflake_convert.need_read_committed,
    _snowflake_convert.notes, _snowflake_convert.notes_of_keys, _snowflake_convert.notes_of_plan, _snowflake_convert.objects, _snowflake_convert.obstacles,
    _snowflake_convert.obstacles_of_columns, _snowflake_convert.obstacles_of_foreign_keys, _snowflake_convert.obstacles_of_locks,
    _snowflake_convert.obstacles_of_objects, _snowflake_convert.obstacles_of_old_rows, _snowflake_convert.obstacles_of_rights,
    _snowflake_convert.obstacles_of_tables, _snowflake_convert.online_obstacles, _snowflake_convert.plan,
    _snowflake_convert.portable, _snowflake_convert.remake, _snowflake_convert.remake_generated,
    _snowflake_convert.remake_statistics, _snowflake_convert.rows_as_owner, _snowflake_convert.run,
    _snowflake_convert.run_as_caller, _snowflake_convert.schema, _snowflake_convert.steps,
    _snowflake_convert.swap, _snowflake_convert.swap_plan, _snowflake_convert.swap_result, _snowflake_convert.swaps, _snowflake_convert.tables, _snowflake_convert.tell,
    _snowflake_convert.wait_until, _snowflake_convert.wanted_default, _snowflake_convert.widened, _snowflake_convert.work_of
TO PUBLIC;
