-- Fields that the caller gives.
SET timezone = 'UTC';
SELECT snowflake_create_generator('ticket_ids', $$layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=2025-01-01Z$$);
SELECT layout, problem FROM snowflake_generators WHERE generator = 'ticket_ids'::regclass;
SELECT d.worker_id, d.fields - 'time' - 'sequence' AS fields,
       d.created_at BETWEEN now() - interval '1 min' AND now() + interval '1 min' AS now
FROM snowflake_decode(snowflake_nextval('ticket_ids', '{"tenant": 42}'), 'ticket_ids') AS d;
SELECT snowflake_decode(snowflake_currval('ticket_ids'), 'ticket_ids') = snowflake_decode(id, 'ticket_ids') AS is_currval
FROM snowflake_nextval('ticket_ids', '{"tenant": 1023}') AS id;
SELECT count(DISTINCT id), min((d.fields -> 'tenant')::int), max((d.fields -> 'tenant')::int)
FROM (SELECT snowflake_nextval('ticket_ids', '{"tenant": 7}') AS id FROM generate_series(1, 1000)) AS s, snowflake_decode(id, 'ticket_ids') AS d;
SELECT issued FROM pg_stat_snowflake WHERE generator = 'ticket_ids'::regclass;

-- IDs are unique without the field: no position is issued for two tenants.
SELECT count(DISTINCT id & ~(1023::bigint << 12)) AS positions
FROM (SELECT snowflake_nextval('ticket_ids', jsonb_build_object('tenant', n % 3)) AS id FROM generate_series(1, 2000) AS n) AS s;

-- Calls with wrong fields: the error says how to make the call.
CREATE FUNCTION error_of(statement text) RETURNS TABLE (code text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
\x
SELECT * FROM error_of($$SELECT snowflake_nextval('ticket_ids')$$);
SELECT * FROM error_of($$SELECT snowflake_nextval_batch(2, 'ticket_ids')$$);
SELECT * FROM error_of($$SELECT snowflake_nextval_block(2, 'ticket_ids')$$);
\x
SELECT call, e.code, e.message, e.hint FROM unnest(ARRAY[
    '{}', '{"tenant": 1, "region": 2}', '{"Tenant": 1}', '{"worker": 1, "tenant": 1}', '{"tenant": 1, "time": 5}',
    '{"tenant": 1024}', '{"tenant": -1}', '{"tenant": 9223372036854775808}', '{"tenant": 1.5}', '{"tenant": "1"}',
    '{"tenant": null}', '{"tenant": [1]}', '{"tenant": 1e400}', '[1]', '1', 'null']) AS call,
    error_of(format('SELECT snowflake_nextval(''ticket_ids'', %L)', call)) AS e;
-- A whole number may have a fraction of zeros.
SELECT call, (SELECT d.fields -> 'tenant' FROM snowflake_decode(id, 'ticket_ids') AS d) AS tenant FROM unnest(ARRAY['{"tenant": 1.0}', '{"tenant": 70e-1}', '{"tenant": 100.000}', '{"tenant": 0.0}']::jsonb[]) AS call,
    snowflake_nextval('ticket_ids', call) AS id;
SELECT call, e.code, e.message FROM unnest(ARRAY['{"tenant": 1.01}', '{"tenant": 1.10}', '{"tenant": 0.99999999999999999999}', '{"ten.0ant": 1}', '{"a\\\".0": "b\".0"}']) AS call,
    error_of(format('SELECT snowflake_nextval(''ticket_ids'', %L)', call)) AS e;
SELECT snowflake_nextval('ticket_ids', NULL) IS NULL AS null_gives_null;
-- None of these calls has taken an ID.
SELECT issued FROM pg_stat_snowflake WHERE generator = 'ticket_ids'::regclass;

-- The default generator, as others, leaves no field to the caller.
SELECT snowflake_nextval('snowflake_default', '{}') > 0 AS positive;
SELECT snowflake_nextval('snowflake_default', '{"tenant": 1}');
SELECT snowflake_nextval('snowflake_default', '{"worker": 1}');

-- Functions that read IDs treat the field as one that varies.
SELECT snowflake_max_id('2026-01-01Z', 'ticket_ids') - snowflake_min_id('2026-01-01Z', 'ticket_ids') = (1 << 22) - 1 AS all_tenants;
SELECT snowflake_encode('2026-01-01Z', 1, 2, 'ticket_ids');
SELECT fields FROM snowflake_decode_as(
    snowflake_encode_as('2026-01-01Z', '{"tenant": 42, "worker": 1, "sequence": 2}', $$layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=2025-01-01Z$$),
    $$layout='time:41 tenant:10 worker:4 sequence:8' epoch=2025-01-01Z$$);
SELECT snowflake_explain(132271570944172290, 'ticket_ids') ~ 'tenant +21-12 +42  given by the caller' AS explained;

-- A preset can have several fields of the caller, given in any order.
SELECT snowflake_create_generator('resources', $$preset=ztesoft epoch=2025-01-01Z region=caller resource_type=caller machine=1 on_rollback=continue$$);
\x
SELECT * FROM error_of($$SELECT snowflake_nextval('resources')$$);
SELECT * FROM error_of($$SELECT snowflake_nextval('resources', '{"region": 1}')$$);
\x
SELECT d.worker_id, d.fields - 'time' - 'sequence' AS fields
FROM (SELECT snowflake_nextval('resources', '{"resource_type": 200, "region": 22}') AS id FROM generate_series(1, 3)) AS s, snowflake_decode(id, 'resources') AS d;

-- IDs are unique under each policy: this one looks at the clock for each ID.
SELECT snowflake_create_generator('watching', $$layout='time:40 region:6=caller resource_type:8=caller worker:3 sequence:6' epoch=2025-01-01Z sequence_start=random on_rollback=wait max_borrow='1 s'$$);
SELECT count(DISTINCT id & ~(16383::bigint << 9)), count(DISTINCT d.fields -> 'region') AS regions
FROM generate_series(1, 500) AS n, snowflake_nextval('watching', jsonb_build_object('region', n % 7, 'resource_type', n % 9)) AS id,
     snowflake_decode(id, 'watching') AS d;
SELECT e.code, e.message FROM error_of($$SELECT snowflake_nextval('watching')$$) AS e;
DROP SEQUENCE watching;

-- A field that tells the servers apart cannot be the caller's.
SELECT snowflake_create_generator('bad', 'preset=instagram shard=caller');
SELECT snowflake_create_generator('bad', 'preset=uniqueid mode=caller');
SELECT snowflake_create_generator('bad', 'preset=discord sequence=caller');

-- Once there are IDs, the caller's fields stay the caller's, and no others become so.
SECURITY LABEL FOR snowflake_id ON SEQUENCE ticket_ids IS $$layout='time:41 tenant:10=5 worker:4 sequence:8' epoch=2025-01-01Z$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE ticket_ids IS $$layout='time:41 tenant:10 worker:4 sequence:8' epoch=2025-01-01Z$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE ticket_ids IS $$layout='time:41 customer:10=caller worker:4 sequence:8' epoch=2025-01-01Z$$;
SELECT e.code, e.message FROM error_of($$SELECT snowflake_nextval('ticket_ids', '{"tenant": 1}')$$) AS e;
SECURITY LABEL FOR snowflake_id ON SEQUENCE ticket_ids IS $$layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=2025-01-01Z$$;
SELECT snowflake_create_generator('fixed', $$layout='time:41 tenant:10=5 worker:4 sequence:8' epoch=2025-01-01Z$$);
SELECT snowflake_nextval('fixed') > 0 AS positive;
SECURITY LABEL FOR snowflake_id ON SEQUENCE fixed IS $$layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=2025-01-01Z$$;
DROP SEQUENCE fixed;

-- A trigger puts a row's tenant into its key, since a default cannot.
CREATE TABLE tickets (id bigint PRIMARY KEY, tenant int NOT NULL, title text);
\set SHOW_CONTEXT never
SELECT snowflake_set_default('tickets', generator => 'ticket_ids');
\set SHOW_CONTEXT errors
CREATE FUNCTION ticket_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.id := snowflake_nextval('ticket_ids', jsonb_build_object('tenant', NEW.tenant));
    RETURN NEW;
END $$;
CREATE TRIGGER ticket_id BEFORE INSERT ON tickets FOR EACH ROW WHEN (NEW.id IS NULL) EXECUTE FUNCTION ticket_id();
INSERT INTO tickets (tenant, title) SELECT n % 5, 'ticket ' || n FROM generate_series(1, 1000) AS n;
SELECT count(*), bool_and(id >> 12 & 1023 = tenant) AS tenant_in_key FROM tickets;
\set VERBOSITY terse
INSERT INTO tickets (tenant, title) VALUES (1024, 'out of range');
INSERT INTO tickets (tenant, title) VALUES (NULL, 'nobody''s');
\set VERBOSITY default

-- Privileges and read-only transactions are as with snowflake_nextval().
CREATE ROLE regress_snowflake_caller;
SET ROLE regress_snowflake_caller;
SELECT e.code, e.message FROM error_of($$SELECT snowflake_nextval('ticket_ids', '{"tenant": 1}')$$) AS e;
SELECT e.code, e.message FROM error_of($$SELECT snowflake_nextval('ticket_ids', '{}')$$) AS e;
SELECT e.code, e.message FROM error_of($$SELECT snowflake_nextval('ticket_ids')$$) AS e;
RESET ROLE;
DROP ROLE regress_snowflake_caller;
BEGIN READ ONLY;
SELECT snowflake_nextval('ticket_ids', '{"tenant": 1}');
ROLLBACK;
SELECT snowflake_advance('ticket_ids', now() + interval '1 s') > now() AS advanced;
SELECT snowflake_nextval('ticket_ids', '{"tenant": 1}') > 0 AS positive;
DROP TABLE tickets;
DROP FUNCTION error_of, ticket_id;
DROP SEQUENCE ticket_ids, resources;
