-- Who may use what: this script is the last one, and only restrict.sql, which comes before it,
-- grants or revokes too. What follows is the list of all that anybody may.
-- An object that is not in the list is for superusers, and roles to which they grant it: the
-- registry, its administration, the horizon of a cluster, the clock and the statistics of the
-- server, and all that connects to other servers. tests/t/security/catalog_rules.pl lists who
-- may use each object, and each script of an update ends with such lines for what it makes.

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
    snowflake_nextval_batch(integer), snowflake_nextval_batch(integer, regclass),
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
    snowflake_explain(bigint), snowflake_explain(bigint, regclass),
    snowflake_from_text(text, text),
    snowflake_mask(bigint, bytea), snowflake_mask(bigint, bytea, integer),
    snowflake_max_id(timestamptz), snowflake_max_id(timestamptz, regclass), snowflake_max_id_as(timestamptz, text),
    snowflake_min_id(timestamptz), snowflake_min_id(timestamptz, regclass), snowflake_min_id_as(timestamptz, text),
    snowflake_timestamp(bigint), snowflake_timestamp(bigint, regclass),
    snowflake_to_text(bigint, text), snowflake_unmask(bigint, bytea), snowflake_unmask(text, bytea, integer)
TO PUBLIC;

-- Generators, and what tables take: who owns them may change them.
GRANT EXECUTE ON FUNCTION
    snowflake_check(regclass, name, double precision, regclass, text, int8multirange, integer),
    snowflake_create_generator(text, text),
    snowflake_distribute_generator(regclass, text),
    snowflake_set_default(regclass, name, regclass, boolean),
    snowflake_set_defaults(regnamespace, regclass)
TO PUBLIC;

-- They read views with the rights of their caller.
GRANT EXECUTE ON FUNCTION snowflake_pool_calls(), snowflake_status() TO PUBLIC;

-- Functions that those above call, or that views and the library call for a session. Each
-- does what its caller may do. The planner needs no grant for its support function.
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA _snowflake TO PUBLIC;
REVOKE EXECUTE ON FUNCTION _snowflake.horizon_support(internal), _snowflake.read_etcd(text) FROM PUBLIC;
