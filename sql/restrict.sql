-- All objects of the extension get one owner, the bootstrap superuser: the role that makes the
-- extension may be a superuser now and an ordinary role one day. Then all other roles lose all
-- privileges: ALTER DEFAULT PRIVILEGES of the superuser who makes the extension reaches its
-- objects too. Grants follow.
--
-- The scripts of both extensions have these statements; tools/env.sh puts the other name in. They
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
    extension constant name := 'snowflake_id';
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
            -- Types of their own, not those of the rows of tables.
            SELECT 'TYPE', 'TYPE', t.oid, t.oid::regtype::text, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
            FROM pg_type AS t JOIN pg_class AS c ON c.oid = t.typrelid AND c.relkind = 'c') AS m
        JOIN pg_depend AS d ON d.objid = m.id AND d.deptype = 'e' AND d.classid = CASE m.kind
            WHEN 'SCHEMA' THEN 'pg_namespace'::regclass WHEN 'TABLE' THEN 'pg_class'::regclass
            WHEN 'TYPE' THEN 'pg_type'::regclass
            WHEN 'FOREIGN DATA WRAPPER' THEN 'pg_foreign_data_wrapper'::regclass ELSE 'pg_proc'::regclass END
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        WHERE e.extname = extension
    LOOP
        IF it.owner <> root THEN
            EXECUTE format('ALTER %s %s OWNER TO %I', it.kind, it.name, pg_get_userbyid(root));
        END IF;
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
        -- From PostgreSQL 18 on, the types of the rows of tables and views are members too.
        LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
        WHERE e.extname = extension AND d.deptype = 'e'
          AND (coalesce(n.nspowner, c.relowner, p.proowner, t.typowner, f.fdwowner) IS DISTINCT FROM root
               OR EXISTS (SELECT FROM aclexplode(coalesce(n.nspacl, c.relacl, p.proacl, t.typacl, f.fdwacl)) AS a WHERE a.grantee <> root)
               OR d.classid <> 'pg_type'::regclass AND coalesce(n.nspacl, c.relacl, p.proacl, f.fdwacl) IS NULL))
    THEN
        RAISE EXCEPTION 'not all objects of the extension could be taken from others'
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Somebody has changed the schema of the extension meanwhile. Create the extension again.';
    END IF;
END
$$;
SET LOCAL search_path = @extschema@, pg_temp;
