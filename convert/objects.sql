-- What depends on the columns that snowflake_convert() changes, and the statements that make
-- it again: steps 2 and 3 of plan.sql, whose head has the rules.

-- The views, rules, triggers, policies, publications, functions and whatever else depends on
-- columns, directly or through each other, with the level at which each is made again.
CREATE FUNCTION _snowflake_convert.dependents(tables oid[], numbers smallint[], OUT class regclass, OUT id oid, OUT level integer)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
        LEFT JOIN pg_type AS t ON t.oid = CASE WHEN e.typelem <> 0 THEN e.typelem ELSE e.oid END WHERE d.deptype IN ('n', 'a')
          -- These go with the table or the materialized view that they belong to.
          AND NOT coalesce(c.relkind IN ('i', 'I', 't', 'S') AND d.refclassid = 'pg_class'::regclass, false)
          AND d.classid <> 'pg_statistic_ext'::regclass
          AND NOT coalesce(f.adrelid = d.refobjid AND d.refclassid = 'pg_class'::regclass, false)
          -- The triggers of foreign keys, and the copies that partitions have.
          AND NOT coalesce(g.tgisinternal OR g.tgparentid <> 0, false)),
    found (class, id, level) AS (
        SELECT e.class, e.id, 1 FROM unnest(tables, numbers) AS u (id, number)
        JOIN edges AS e ON e.of_class = 'pg_class'::regclass AND e.of_id = u.id AND e.of_number = u.number
        -- Constraints are made anew by ALTER TABLE.
        WHERE e.class <> 'pg_constraint'::regclass AND (e.class, e.id) <> ('pg_class'::regclass, u.id)
        UNION SELECT e.class, e.id, f.level + 1 FROM found AS f
        JOIN edges AS e ON e.of_class = f.class AND e.of_id = f.id AND (e.class, e.id) <> (f.class, f.id) WHERE f.level < 1000)
    SELECT f.class::regclass, f.id, max(f.level) FROM found AS f GROUP BY f.class, f.id
$$;

-- The statements that give a new object, or a column of it, the privileges that an object had.
CREATE FUNCTION _snowflake_convert.grants(
    acl aclitem[], owner oid, kind "char", target text, column_name name) RETURNS SETOF text LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    -- What a new object has is what PostgreSQL gives it, unless the caller has said
    -- otherwise by ALTER DEFAULT PRIVILEGES: then everything is revoked, and granted anew.
    WITH changed_defaults AS (
        SELECT a.defaclacl FROM pg_default_acl AS a
        WHERE column_name IS NULL AND a.defaclobjtype = kind AND a.defaclrole = quote_ident(current_user)::regrole),
    usual AS (
        SELECT e.* FROM aclexplode(acldefault(CASE WHEN kind IN ('r', 'c', 'f') THEN kind END, owner)) AS e WHERE column_name IS NULL),
    given AS (
        SELECT u.grantee FROM usual AS u
        UNION SELECT e.grantee FROM changed_defaults AS d CROSS JOIN aclexplode(d.defaclacl) AS e),
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
        FROM wanted AS w WHERE w.grantee <> owner OR w.grantee IN (SELECT r.grantee FROM reduced AS r)
        GROUP BY w.grantor, w.grantee, w.role, w.is_grantable)
    SELECT s.statement FROM statements AS s ORDER BY s.phase, s.place, s.statement
$$;

-- The statement that drops an object and those that make it again, in the order in which they
-- run; null for an object of a kind that cannot be made again.
CREATE FUNCTION _snowflake_convert.remake(class regclass, id oid, OUT described text, OUT owner oid, OUT drop_statement text, OUT statements text[])
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
        LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace WHERE c.oid = id AND c.relkind IN ('v', 'm')
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
                  UNION ALL SELECT 'toast.', o FROM pg_class AS t CROSS JOIN unnest(t.reloptions) AS o
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
            FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = id ORDER BY d.adnum);
        statements := statements || ARRAY(
            SELECT format('ALTER MATERIALIZED VIEW %s ALTER COLUMN %I %s', it.name, a.attname, s.change) FROM pg_attribute AS a
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
            SELECT s.statement FROM pg_index AS i
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
            SELECT s.statement FROM pg_statistic_ext AS x
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
            FROM pg_description AS d WHERE d.classoid = class AND d.objoid = id ORDER BY d.objsubid);
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
                UNION ALL SELECT t.oid, t.tgenabled, false FROM copies AS c JOIN pg_trigger AS t ON t.tgparentid = c.id)
            SELECT format('ALTER TABLE ONLY %s %s TRIGGER %I', _snowflake.name(t.tgrelid),
                CASE c.enabled WHEN 'D' THEN 'DISABLE' WHEN 'O' THEN 'ENABLE' WHEN 'R' THEN 'ENABLE REPLICA'
                    ELSE 'ENABLE ALWAYS' END, t.tgname)
            FROM copies AS c JOIN pg_trigger AS t ON t.oid = c.id WHERE c.enabled <> 'O' OR c.enabled <> it.tgenabled
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
END $$;

-- What depends on columns, by level, with the statements that make it again.
CREATE FUNCTION _snowflake_convert.objects(tables oid[], numbers smallint[]) RETURNS _snowflake_convert.object[]
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
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
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH types (name, owner) AS (
        SELECT format_type(y.oid, NULL), o.owner FROM pg_type AS y JOIN pg_namespace AS n ON n.oid = y.typnamespace
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
