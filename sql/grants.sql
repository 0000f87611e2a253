-- Who may use what: this script is the last one, and only restrict.sql, which comes before it,
-- grants or revokes too. What follows is the list of all that anybody may.
-- An object that is not in the list is for superusers, and roles to which they grant it: the
-- registry, its administration, the clock and the statistics of the server, and all that connects to
-- other servers. tests/t/security/catalog_rules.pl lists who may use each object, and each script of
-- an update ends with such lines for what it makes.

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
    _snowflake.counted_keys, _snowflake.defaults, _snowflake.role_of_server, pg_stat_snowflake, snowflake_generators, snowflake_horizon_holders, snowflake_presets, snowflake_worker
TO PUBLIC;
GRANT SELECT ON _snowflake.leased, snowflake_pools, snowflake_workers TO pg_monitor;
-- It has the server connect to its registry.
GRANT EXECUTE ON FUNCTION snowflake_check_registry(), _snowflake.ask_registry() TO pg_monitor;

-- IDs of generators: the C functions ask for USAGE or UPDATE on the sequence.
GRANT EXECUTE ON FUNCTION
    snowflake_advance(regclass, bigint), snowflake_advance(regclass, timestamptz),
    snowflake_currval(), snowflake_currval(regclass),
    snowflake_horizon(), snowflake_horizon(regclass),
    snowflake_nextval(), snowflake_nextval(regclass), snowflake_nextval(regclass, jsonb),
    snowflake_nextval_batch(integer), snowflake_nextval_batch(integer, regclass),
    snowflake_nextval_block(integer), snowflake_nextval_block(integer, regclass),
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
    snowflake_alter_generator,
    snowflake_create_generator,
    snowflake_distribute_generator(regclass, text),
    snowflake_set_default(regclass, name, regclass, boolean),
    snowflake_set_defaults(regnamespace, regclass)
TO PUBLIC;
GRANT EXECUTE ON PROCEDURE snowflake_partition(regclass, interval, integer, interval, regclass), _snowflake.snowflake_partition TO PUBLIC;

-- Functions that those above call, or that views and the library call for a session; and
-- snowflake_status(). Each does what its caller may do. A name without arguments is that of one function.
GRANT EXECUTE ON FUNCTION
    snowflake_status(),
    _snowflake.adopt_label, _snowflake.base_type, _snowflake.bound, _snowflake.check_coordinator, _snowflake.check_default, _snowflake.check_limits(),
    _snowflake.check_limits(regclass), _snowflake.check_limits_as, _snowflake.check_nodes, _snowflake.check_references, _snowflake.check_table,
    _snowflake.check_takes, _snowflake.check_values, _snowflake.comments, _snowflake.count_ids, _snowflake.create_generator,
    _snowflake.default_generator, _snowflake.default_generators, _snowflake.distribute, _snowflake.distribution, _snowflake.find_relation,
    _snowflake.fix_settings, _snowflake.generators, _snowflake.has_default, _snowflake.hold, _snowflake.horizon_held, _snowflake.inheritance, _snowflake.instant,
    _snowflake.instant_or_null(bigint), _snowflake.instant_or_null(bigint, regclass), _snowflake.instant_or_null_as, _snowflake.issuer,
    _snowflake.key_column, _snowflake.keys, _snowflake.known_workers, _snowflake.label, _snowflake.lasting, _snowflake.loaded, _snowflake.lock_tables,
    _snowflake.long_holders, _snowflake.millis, _snowflake.name, _snowflake.next_id_range, _snowflake.on_workers, _snowflake.own_registry, _snowflake.own_worker,
    _snowflake.partition_step, _snowflake.partitions, _snowflake.place_generator, _snowflake.pool, _snowflake.pool_calls, _snowflake.present,
    _snowflake.presets, _snowflake.ranges, _snowflake.read_as_owner, _snowflake.read_elsewhere, _snowflake.readiness, _snowflake.reads_as_owner, _snowflake.refusals,
    _snowflake.run_as_owner, _snowflake.since, _snowflake.small_pools,
    _snowflake.snowflake_check, _snowflake.snowflake_distribute_generator, _snowflake.snowflake_set_default, _snowflake.snowflake_set_defaults, _snowflake.snowflake_status,
    _snowflake.statistics, _snowflake.tables_of,
    _snowflake.try_generator, _snowflake.undistribute, _snowflake.wanted_size, _snowflake.warn_if_not_ready, _snowflake.without_usage, _snowflake.worker_of(bigint),
    _snowflake.worker_of(bigint, regclass), _snowflake.worker_of_as, _snowflake.workers
TO PUBLIC;
