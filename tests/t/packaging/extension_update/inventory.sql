-- Everything that the catalogs say of the extension's objects, one line each: the same
-- after an update as after CREATE EXTENSION. Numbers of objects, files and transactions and
-- what ANALYZE counts are left out. Privileges are in no order.
CREATE FUNCTION pg_temp.acl(acl aclitem[]) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(a::text, ' ' ORDER BY a::text COLLATE "C") FROM unnest(acl) AS a $$;
WITH members AS (
    SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
    FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
    WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'snowflake_id'),
relations AS (
    SELECT objid AS oid, name FROM members WHERE classid = 'pg_class'::regclass
    UNION ALL
    SELECT i.indexrelid, pg_describe_object('pg_class'::regclass, i.indexrelid, 0)
    FROM pg_index AS i JOIN members AS m ON m.classid = 'pg_class'::regclass AND m.objid = i.indrelid),
-- What belongs to a member without being one itself.
parts AS (
    SELECT classid, objid, name FROM members
    UNION SELECT 'pg_class'::regclass, oid, name FROM relations
    UNION SELECT 'pg_constraint'::regclass, k.oid, pg_describe_object('pg_constraint'::regclass, k.oid, 0)
    FROM pg_constraint AS k JOIN relations AS r ON r.oid = k.conrelid
    UNION SELECT 'pg_attrdef'::regclass, f.oid, pg_describe_object('pg_attrdef'::regclass, f.oid, 0)
    FROM pg_attrdef AS f JOIN relations AS r ON r.oid = f.adrelid
    UNION SELECT 'pg_rewrite'::regclass, w.oid, pg_describe_object('pg_rewrite'::regclass, w.oid, 0)
    FROM pg_rewrite AS w JOIN relations AS r ON r.oid = w.ev_class
    UNION SELECT 'pg_type'::regclass, t.oid, pg_describe_object('pg_type'::regclass, t.oid, 0)
    FROM pg_type AS t JOIN relations AS r ON r.oid IN (t.typrelid, (SELECT e.typrelid FROM pg_type AS e WHERE e.oid = t.typelem)))
SELECT 'extension' AS kind, extname::text AS name, concat_ws(' ', extversion, extnamespace::regnamespace, extowner::regrole, extrelocatable,
    (SELECT string_agg(format('%s %s', c.config, c.condition), ' ' ORDER BY c.config::regclass::text COLLATE "C")
        FROM (SELECT c::regclass, w FROM unnest(extconfig, extcondition) AS u (c, w)) AS c (config, condition))) AS what
FROM pg_extension WHERE extname = 'snowflake_id'
UNION ALL
SELECT 'member', name, classid::regclass::text FROM members
UNION ALL
SELECT 'schema', name, concat_ws(' ', nspname, nspowner::regrole, pg_temp.acl(nspacl))
FROM pg_namespace AS n JOIN members ON classid = 'pg_namespace'::regclass AND objid = n.oid
UNION ALL
SELECT 'wrapper', name, jsonb_build_object('owner', fdwowner::regrole, 'handler', fdwhandler::regproc, 'validator', fdwvalidator::regproc,
    'options', fdwoptions, 'acl', pg_temp.acl(fdwacl))::text
FROM pg_foreign_data_wrapper AS f JOIN members ON classid = 'pg_foreign_data_wrapper'::regclass AND objid = f.oid
UNION ALL
SELECT 'function', name, jsonb_build_object('schema', pronamespace::regnamespace, 'owner', proowner::regrole,
    'language', (SELECT lanname FROM pg_language AS l WHERE l.oid = prolang), 'variadic', provariadic::regtype,
    'result', pg_get_function_result(p.oid), 'arguments', pg_get_function_arguments(p.oid), 'acl', pg_temp.acl(proacl),
    'types', proargtypes::regtype[], 'all types', proallargtypes::regtype[], 'transforms', protrftypes::regtype[],
    'body', pg_get_function_sqlbody(p.oid))::text
    || (to_jsonb(p) - '{oid,pronamespace,proowner,prolang,provariadic,prorettype,proargtypes,proallargtypes,protrftypes,proargdefaults,prosqlbody,proacl}'::text[])::text
FROM pg_proc AS p JOIN members ON classid = 'pg_proc'::regclass AND objid = p.oid
UNION ALL
SELECT 'relation', r.name, jsonb_build_object('schema', relnamespace::regnamespace, 'owner', relowner::regrole,
    'method', (SELECT amname FROM pg_am AS a WHERE a.oid = relam), 'tablespace', reltablespace, 'acl', pg_temp.acl(relacl),
    'view', CASE WHEN relkind = 'v' THEN pg_get_viewdef(c.oid) END, 'index', CASE WHEN relkind = 'i' THEN pg_get_indexdef(c.oid) END,
    'toast', reltoastrelid <> 0)::text
    || (to_jsonb(c) - '{oid,relnamespace,relowner,relam,reltablespace,relacl,reltype,reloftype,relfilenode,reltoastrelid,relpages,reltuples,relallvisible,relallfrozen,relfrozenxid,relminmxid}'::text[])::text
FROM pg_class AS c JOIN relations AS r ON r.oid = c.oid
UNION ALL
SELECT 'column', r.name, jsonb_build_object('type', format_type(atttypid, atttypmod), 'collation', attcollation::regcollation,
    'acl', pg_temp.acl(attacl), 'default', pg_get_expr(f.adbin, f.adrelid))::text
    -- Releases since November 2026 keep a number of their own, pg_attver, among the options.
    || ((to_jsonb(a) || jsonb_build_object('attoptions', (SELECT array_agg(o) FROM unnest(attoptions) AS o WHERE o NOT LIKE 'pg\_attver=%')))
        - '{attrelid,atttypid,attcollation,attacl,attcacheoff,attmissingval}'::text[])::text
FROM pg_attribute AS a JOIN relations AS r ON r.oid = attrelid LEFT JOIN pg_attrdef AS f ON f.adrelid = attrelid AND f.adnum = attnum
WHERE attnum > 0
UNION ALL
SELECT 'index', r.name, (to_jsonb(i) - '{indexrelid,indrelid,indexprs,indpred}'::text[])::text FROM pg_index AS i JOIN relations AS r ON r.oid = indexrelid
UNION ALL
SELECT 'constraint', r.name, concat_ws(' ', conname, contype, condeferrable, condeferred, convalidated, conislocal, pg_get_constraintdef(k.oid))
FROM pg_constraint AS k JOIN relations AS r ON r.oid = conrelid
UNION ALL
SELECT 'rule', r.name, pg_get_ruledef(w.oid) FROM pg_rewrite AS w JOIN relations AS r ON r.oid = ev_class
UNION ALL
SELECT 'trigger', r.name, pg_get_triggerdef(t.oid) FROM pg_trigger AS t JOIN relations AS r ON r.oid = tgrelid
UNION ALL
SELECT 'sequence', r.name, (to_jsonb(s) - 'seqrelid' - 'seqtypid')::text || seqtypid::regtype FROM pg_sequence AS s JOIN relations AS r ON r.oid = seqrelid
UNION ALL
SELECT 'label', p.name, concat_ws(' ', objsubid, provider, label) FROM pg_seclabel AS l JOIN parts AS p ON l.classoid = p.classid AND l.objoid = p.objid
UNION ALL
SELECT 'type', p.name, concat_ws(' ', typtype, typowner::regrole, pg_temp.acl(typacl)) FROM pg_type AS t JOIN parts AS p ON classid = 'pg_type'::regclass AND objid = t.oid
UNION ALL
SELECT 'comment', p.name, concat_ws(' ', objsubid, description) FROM pg_description AS d JOIN parts AS p ON d.classoid = p.classid AND d.objoid = p.objid
UNION ALL
SELECT 'first privileges', p.name, concat_ws(' ', objsubid, privtype, pg_temp.acl(initprivs)) FROM pg_init_privs AS i JOIN parts AS p ON i.classoid = p.classid AND i.objoid = p.objid
UNION ALL
SELECT 'dependency', p.name, concat_ws(' ', d.objsubid, deptype, pg_describe_object(refclassid, refobjid, refobjsubid))
FROM pg_depend AS d JOIN parts AS p USING (classid, objid)
UNION ALL
SELECT 'role', p.name, concat_ws(' ', d.objsubid, deptype, pg_describe_object(refclassid, refobjid, 0))
FROM pg_shdepend AS d JOIN parts AS p ON p.classid = d.classid AND p.objid = d.objid AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1, 2, 3;
