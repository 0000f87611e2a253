-- IDs of given times: src/sql/given_time.rs says why they are unique.
--
-- A dump has no rows of these tables: a database that was restored does not know which IDs were
-- issued since, so it gets a reservation of its own.

CREATE TABLE _snowflake.reserved (
    generator oid PRIMARY KEY,
    worker_id bigint NOT NULL,
    server text NOT NULL,
    layout text NOT NULL,
    before_tick bigint NOT NULL,
    used bigint[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE _snowflake.reserved IS
    'internal: the worker ID of snowflake_nextval_at(), for each generator for which a superuser has reserved one';
COMMENT ON COLUMN _snowflake.reserved.generator IS 'OID of the generator''s sequence';
COMMENT ON COLUMN _snowflake.reserved.worker_id IS 'worker ID of the IDs';
COMMENT ON COLUMN _snowflake.reserved.server IS
    'the server that issues them: system identifier, database, timeline, hash of the place, the last start that may have lost something';
COMMENT ON COLUMN _snowflake.reserved.layout IS 'where IDs have their parts';
COMMENT ON COLUMN _snowflake.reserved.before_tick IS 'tick in which it was reserved: IDs are of ticks before it';
COMMENT ON COLUMN _snowflake.reserved.used IS 'worker IDs that were reserved before';

CREATE TABLE _snowflake.issued_at (
    generator oid,
    first_id bigint,
    ids integer NOT NULL,
    PRIMARY KEY (generator, first_id)
) WITH (fillfactor = 90);
COMMENT ON TABLE _snowflake.issued_at IS 'internal: how many IDs snowflake_nextval_at() has issued in each tick';
COMMENT ON COLUMN _snowflake.issued_at.generator IS 'OID of the generator''s sequence';
COMMENT ON COLUMN _snowflake.issued_at.first_id IS 'the first ID of the tick';
COMMENT ON COLUMN _snowflake.issued_at.ids IS 'how many IDs of the tick were issued';

CREATE FUNCTION snowflake_nextval_at(created_at timestamptz) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_nextval_at';
COMMENT ON FUNCTION snowflake_nextval_at(timestamptz) IS
    'an ID of the default generator for a row of the past, with the worker ID that snowflake_reserve_worker_id() has reserved';

CREATE FUNCTION snowflake_nextval_at(created_at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_nextval_at';
COMMENT ON FUNCTION snowflake_nextval_at(timestamptz, regclass) IS
    'an ID of a generator for a row of the past, with the worker ID that snowflake_reserve_worker_id() has reserved';

CREATE FUNCTION snowflake_reserve_worker_id(generator regclass, worker_id bigint, nothing_lost boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_reserve_worker_id';
COMMENT ON FUNCTION snowflake_reserve_worker_id(regclass, bigint, boolean) IS
    'reserves a worker ID that no server has, had or can lease for snowflake_nextval_at(), for times before the call; '
    'nothing_lost: use the one of before again, although the server has crashed, or was moved or upgraded';
