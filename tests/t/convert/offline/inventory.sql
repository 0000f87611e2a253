-- Everything that the catalogs say of the schemas shop and hr, one line each. Types and
-- defaults of keys are left out, since the conversion changes them.
WITH relations AS (
    SELECT c.*, c.oid::regclass::text AS name FROM pg_class AS c
    WHERE c.relnamespace IN ('shop'::regnamespace, 'hr'::regnamespace) AND c.relkind IN ('r', 'p', 'v', 'm'))
SELECT 'relation', name, relowner::regrole::text, concat_ws(' ', relkind, (SELECT array_agg(o ORDER BY o) FROM unnest(reloptions) AS o), relreplident, relispopulated,
    relrowsecurity, obj_description(oid, 'pg_class'),
    (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(coalesce(relacl, acldefault('r', relowner))) AS x))
FROM relations
UNION ALL
SELECT 'index', c.name, pg_get_indexdef(indexrelid),
    concat_ws(' ', indisclustered, (SELECT reltablespace FROM pg_class AS x WHERE x.oid = indexrelid), indisreplident, indisvalid,
        (SELECT array_agg(a.attstattarget ORDER BY a.attnum) FROM pg_attribute AS a WHERE a.attrelid = indexrelid AND a.attstattarget >= 0), obj_description(indexrelid, 'pg_class'))
FROM pg_index JOIN relations AS c ON c.oid = indrelid
UNION ALL
SELECT 'constraint', c.name, conname, concat_ws(' ', pg_get_constraintdef(k.oid), convalidated, obj_description(k.oid, 'pg_constraint'))
FROM pg_constraint AS k JOIN relations AS c ON c.oid = conrelid
-- PostgreSQL 18 gives the NOT NULL of a partition another name when it changes a type.
WHERE contype <> 'n'
UNION ALL
SELECT 'trigger', c.name, pg_get_triggerdef(t.oid), concat_ws(' ', tgenabled, obj_description(t.oid, 'pg_trigger'))
FROM pg_trigger AS t JOIN relations AS c ON c.oid = tgrelid WHERE NOT tgisinternal
UNION ALL
SELECT 'rule', c.name, pg_get_ruledef(r.oid), concat_ws(' ', ev_enabled, obj_description(r.oid, 'pg_rewrite'))
FROM pg_rewrite AS r JOIN relations AS c ON c.oid = ev_class
UNION ALL
SELECT 'policy', c.name, polname, concat_ws(' ', polroles::regrole[], polpermissive, polcmd, pg_get_expr(polqual, polrelid),
    pg_get_expr(polwithcheck, polrelid), obj_description(p.oid, 'pg_policy'))
FROM pg_policy AS p JOIN relations AS c ON c.oid = polrelid
UNION ALL
SELECT 'publication', pubname, tablename, concat_ws(' ', (SELECT array_agg(a ORDER BY a) FROM unnest(attnames) AS a), rowfilter)
FROM pg_publication_tables WHERE schemaname IN ('shop', 'hr')
UNION ALL
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid), concat_ws(' ', proowner::regrole,
    (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(coalesce(proacl, acldefault('f', proowner))) AS x),
    obj_description(p.oid, 'pg_proc'))
FROM pg_proc AS p WHERE pronamespace IN ('shop'::regnamespace, 'hr'::regnamespace)
UNION ALL
SELECT 'column', c.name, attname, concat_ws(' ', attacl, attnotnull, attgenerated, nullif(attstattarget, -1), (SELECT array_agg(o ORDER BY o) FROM unnest(attoptions) AS o WHERE o LIKE 'n\_distinct%'),
    col_description(c.oid, attnum), CASE WHEN attgenerated <> '' OR relkind IN ('v', 'm') THEN pg_get_expr(adbin, adrelid) END)
FROM pg_attribute JOIN relations AS c ON c.oid = attrelid
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'statistics', stxname, pg_get_statisticsobjdef(s.oid),
    concat_ws(' ', stxowner::regrole, nullif(stxstattarget, -1), obj_description(s.oid, 'pg_statistic_ext'))
FROM pg_statistic_ext AS s WHERE stxrelid IN (SELECT oid FROM relations)
ORDER BY 1, 2, 3, 4
