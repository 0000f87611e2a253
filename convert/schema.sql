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
--    is made. So the script first locks a table of snowflake_id, as src/postgres/own_tables.rs does, which
--    keeps snowflake_id here until the transaction ends, and looks at what it has locked. It
--    calls nothing of schema _snowflake before.
SET LOCAL search_path = pg_catalog, pg_temp;
DO $$
DECLARE
    it record;
BEGIN
    LOCK TABLE _snowflake.state IN ACCESS SHARE MODE;
    SELECT e.extnamespace AS namespace, e.extversion AS version INTO it FROM pg_locks AS l
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
END $$;
SET LOCAL search_path = @extschema@, pg_temp;

-- The command fails if a schema of this name is there: it would be somebody else's.
CREATE SCHEMA _snowflake_convert;
COMMENT ON SCHEMA _snowflake_convert IS
    'internal: the table and the functions of extension snowflake_id_convert';

-- As _snowflake.hold(), for the functions of this extension.
CREATE FUNCTION _snowflake_convert.hold() RETURNS void LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'snowflake_internal_hold';
COMMENT ON FUNCTION _snowflake_convert.hold() IS
    'internal: keeps the extension from being dropped until the transaction ends, or fails if its schema is another one';
