-- Who may use what: this script is the last one, and no other one grants or revokes.
--
-- First all objects of the extension get one owner, the bootstrap superuser: the role that
-- makes the extension may be a superuser now and an ordinary role one day. Then all other
-- roles lose all privileges: ALTER DEFAULT PRIVILEGES of the superuser who makes
-- the extension reaches its objects too. What follows is the list of all that anybody may.
-- An object that is not in the list is for superusers, and roles to which they grant it: the
-- registry, its administration, the horizon of a cluster, the clock and the statistics of the
-- server, and all that connects to other servers. tests/t/security/catalog_rules.pl lists who
-- may use each object, and each script of an update ends with such lines for what it makes.
--
-- The script of snowflake_id_convert does so by the same function. The statements name
-- objects. The owner of the extension's schema may rename it meanwhile, and make another one
-- of its name; so in the end each object is looked at by its OID.
CREATE FUNCTION _snowflake.restrict(extension name) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    root constant oid := 10;
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
            -- Types of their own, not those of the rows of tables.
            SELECT 'TYPE', 'TYPE', t.oid, t.oid::regtype::text, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
            FROM pg_type AS t JOIN pg_class AS c ON c.oid = t.typrelid AND c.relkind = 'c') AS m
        JOIN pg_depend AS d ON d.objid = m.id AND d.deptype = 'e' AND d.classid = CASE m.kind
            WHEN 'SCHEMA' THEN 'pg_namespace'::regclass WHEN 'TABLE' THEN 'pg_class'::regclass
            WHEN 'TYPE' THEN 'pg_type'::regclass ELSE 'pg_proc'::regclass END
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
        -- From PostgreSQL 18 on, the types of the rows of tables and views are members too.
        LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
        WHERE e.extname = extension AND d.deptype = 'e'
          AND (coalesce(n.nspowner, c.relowner, p.proowner, t.typowner) IS DISTINCT FROM root
               OR EXISTS (SELECT FROM aclexplode(coalesce(n.nspacl, c.relacl, p.proacl, t.typacl)) AS a WHERE a.grantee <> root)
               OR d.classid <> 'pg_type'::regclass AND coalesce(n.nspacl, c.relacl, p.proacl) IS NULL))
    THEN
        RAISE EXCEPTION 'not all objects of the extension could be taken from others'
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Somebody has changed the schema of the extension meanwhile. Create the extension again.';
    END IF;
END
$$;
SELECT _snowflake.restrict('snowflake_id');

-- What PUBLIC calls runs with the rights of its caller, and so do the functions and tables of
-- this schema that it names. Nobody but a superuser may create objects in the schema.
GRANT USAGE ON SCHEMA _snowflake TO PUBLIC;

-- A role that restores a dump of this database must set the mark of the default generator.
-- The grantee is pg_database_owner, since that role cannot be dropped: a dump would still
-- name a dropped role, and could not be restored.
GRANT USAGE, SELECT ON SEQUENCE snowflake_default TO PUBLIC;
GRANT UPDATE ON SEQUENCE snowflake_default TO pg_database_owner;

-- Views. Those of the registry tell where servers are.
GRANT SELECT ON
    _snowflake.defaults, pg_stat_snowflake, snowflake_generators, snowflake_horizon_holders, snowflake_presets, snowflake_worker
TO PUBLIC;
GRANT SELECT ON _snowflake.leased, snowflake_cluster_servers, snowflake_pools, snowflake_workers TO pg_monitor;

-- IDs of generators: the C functions ask for USAGE or UPDATE on the sequence.
GRANT EXECUTE ON FUNCTION
    snowflake_advance(regclass, bigint), snowflake_advance(regclass, timestamptz),
    snowflake_currval(), snowflake_currval(regclass),
    snowflake_horizon(), snowflake_horizon(regclass),
    snowflake_nextval(), snowflake_nextval(regclass),
    snowflake_nextval_after(bigint), snowflake_nextval_after(bigint, regclass),
    snowflake_nextval_batch(integer), snowflake_nextval_batch(integer, regclass),
    snowflake_nextval_batch_with(integer, jsonb), snowflake_nextval_batch_with(integer, jsonb, regclass),
    snowflake_nextval_block(integer), snowflake_nextval_block(integer, regclass),
    snowflake_nextval_with(jsonb), snowflake_nextval_with(jsonb, regclass),
    snowflake_observe(bigint), snowflake_observe(bigint, regclass),
    snowflake_check_horizon()
TO PUBLIC;

-- IDs that are there already, with and without a generator whose label is read.
GRANT EXECUTE ON FUNCTION
    snowflake_decode(bigint), snowflake_decode(bigint, regclass), snowflake_decode_as(bigint, text),
    snowflake_encode(timestamptz, bigint, bigint), snowflake_encode(timestamptz, bigint, bigint, regclass),
    snowflake_encode_as(timestamptz, bigint, bigint, text), snowflake_encode_as(timestamptz, jsonb, text),
    snowflake_explain(bigint), snowflake_explain(bigint, regclass), snowflake_explain_as(bigint, text),
    snowflake_from_text(text, text),
    snowflake_mask(bigint, bytea), snowflake_mask_text(bigint, bytea, integer), snowflake_mask_version(text),
    snowflake_max_id(timestamptz), snowflake_max_id(timestamptz, regclass), snowflake_max_id_as(timestamptz, text),
    snowflake_min_id(timestamptz), snowflake_min_id(timestamptz, regclass), snowflake_min_id_as(timestamptz, text),
    snowflake_sequence(bigint), snowflake_sequence(bigint, regclass), snowflake_sequence_as(bigint, text),
    snowflake_timestamp(bigint), snowflake_timestamp(bigint, regclass), snowflake_timestamp_as(bigint, text),
    snowflake_to_text(bigint, text), snowflake_unmask(bigint, bytea), snowflake_unmask_text(text, bytea[]),
    snowflake_worker_id(bigint), snowflake_worker_id(bigint, regclass), snowflake_worker_id_as(bigint, text)
TO PUBLIC;

-- Generators, and what tables take: who owns them may change them.
GRANT EXECUTE ON FUNCTION
    snowflake_check(regclass, name, double precision, regclass, text, int8multirange, integer),
    snowflake_create_generator(text, text),
    snowflake_distribute_generator(regclass, text),
    snowflake_set_default(regclass, name, regclass, boolean),
    snowflake_set_defaults(regnamespace, regclass)
TO PUBLIC;

-- The functions of the views that PUBLIC may read; they show what the reader may see.
GRANT EXECUTE ON FUNCTION pg_stat_snowflake(), snowflake_generators(), snowflake_presets(), snowflake_worker() TO PUBLIC;

-- It reads view snowflake_pools with the rights of its caller.
GRANT EXECUTE ON FUNCTION snowflake_pool_calls() TO PUBLIC;

-- Functions that those above call, or that views and the library call for a session. Each
-- does what its caller may do. The planner needs no grant for its support function.
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA _snowflake TO PUBLIC;
REVOKE EXECUTE ON FUNCTION _snowflake.horizon_support(internal), _snowflake.read_etcd(text), _snowflake.restrict(name) FROM PUBLIC;
