-- An ID of another server is observed: all further IDs sort after it. Its fields are those
-- of a worker ID that this server does not have, at an instant of its clock.
CREATE FUNCTION of_other(ahead interval, generator regclass DEFAULT 'snowflake_default') RETURNS bigint
    LANGUAGE sql AS $$ SELECT snowflake_encode(clock_timestamp() + ahead, 9, 4000, generator) $$;
CREATE FUNCTION error_of(statement text, OUT code text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;

-- A reply in one call.
CREATE FUNCTION next_after(id bigint, generator regclass DEFAULT 'snowflake_default') RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM snowflake_observe(id, generator);
    RETURN snowflake_nextval(generator);
END $$;

-- Of the past, and up to some milliseconds ahead.
SELECT snowflake_observe(0);
SELECT snowflake_observe(of_other('-1 day'));
SELECT snowflake_observe(of_other('-1 day'), 'snowflake_default');
SELECT of_other('50 ms') AS message \gset
SELECT snowflake_observe(:message);
SELECT snowflake_nextval() > :message AS sorts_after, snowflake_currval() > :message AS currval;
SELECT bool_and(next_after(id) > id) AS sort_after, bool_and(snowflake_currval() > id) AS currval
FROM (SELECT of_other('80 ms') AS id FROM generate_series(1, 1000)) AS s;
SELECT snowflake_observe(NULL), snowflake_observe(1, NULL);

-- Further ahead than max_borrow it is an error, which changes nothing.
SELECT e.code, regexp_replace(e.message, '\d+ (h|min|s|ms)( \d+ (s|ms))*', '...') AS message, e.detail, e.hint
FROM error_of($$SELECT snowflake_observe(of_other('1 hour'))$$) AS e;
SELECT snowflake_timestamp(snowflake_nextval()) < clock_timestamp() + interval '1 s' AS unchanged;
SELECT code, message FROM error_of('SELECT snowflake_observe(9223372036854775807)') WHERE message !~ 'cannot observe an ID that is \d+ d .* ahead of the clock of generator snowflake_default';
-- A generator with a longer max_borrow accepts it.
SELECT snowflake_create_generator('wide', $$layout='time:41 worker:10 sequence:12' epoch=2025-01-01Z max_borrow='2 h'$$);
SELECT next_after(of_other('1 hour', 'wide'), 'wide') > snowflake_min_id(now() + interval '1 hour', 'wide') AS sorts_after;
SELECT ahead_by > interval '59 min' AS ahead, ahead_because FROM snowflake_generators WHERE generator = 'wide'::regclass;
SELECT e.code, e.detail FROM error_of($$SELECT snowflake_observe(of_other('3 hours', 'wide'), 'wide')$$) AS e;
-- A call that is refused is counted.
SELECT refusals FROM pg_stat_snowflake WHERE generator = 'wide'::regclass;

-- Nothing that is no ID of the layout.
SELECT snowflake_observe(-1);
SELECT snowflake_create_generator('shard_3', $$layout='time:41 shard:5=3 worker:5 sequence:12' epoch=2025-01-01Z$$);
SELECT e.code, regexp_replace(e.message, '^\d+', '...') AS message, e.detail
FROM error_of($$SELECT snowflake_observe(snowflake_encode_as(now(), '{"shard": 4, "worker": 1, "sequence": 0}', 'layout=''time:41 shard:5 worker:5 sequence:12'' epoch=2025-01-01Z'), 'shard_3')$$) AS e;
SELECT snowflake_observe(1, 'pg_class');

-- Only generators whose IDs ascend.
SELECT snowflake_create_generator('clocks', $$preset=multi_clock epoch=1735689600000 on_rollback=next_clock$$);
SELECT snowflake_observe(0, 'clocks');
SELECT snowflake_create_generator('reversed', $$layout='time_reversed:41 worker:10 sequence:12' epoch=2025-01-01Z$$);
SELECT snowflake_observe(0, 'reversed');
SELECT snowflake_create_generator('below', $$layout='worker:10 time:41 sequence:12' epoch=2025-01-01Z$$);
SELECT snowflake_observe(0, 'below');
-- These do, from tick to tick.
SELECT snowflake_create_generator('shuffled', $$layout='time:41 worker:10 sequence:12' epoch=2025-01-01Z sequence_start=random$$);
SELECT bool_and(next_after(id, 'shuffled') > id) AS sort_after
FROM (SELECT of_other('50 ms', 'shuffled') AS id FROM generate_series(1, 100)) AS s;
SELECT snowflake_create_generator('waits', $$layout='time:41 worker:10 sequence:12' epoch=2025-01-01Z on_rollback=wait$$);
SELECT bool_and(next_after(id, 'waits') > id) AS sort_after
FROM (SELECT of_other('50 ms', 'waits') AS id FROM generate_series(1, 100)) AS s;

-- A generator that takes fields observes, and gives no ID without fields.
SELECT snowflake_create_generator('tenants', $$layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=2025-01-01Z$$);
SELECT snowflake_encode_as(clock_timestamp() + interval '50 ms', '{"tenant": 1023, "worker": 9, "sequence": 255}', $$layout='time:41 tenant:10 worker:4 sequence:8' epoch=2025-01-01Z$$) AS message \gset
SELECT snowflake_observe(:message, 'tenants');
SELECT snowflake_nextval('tenants', '{"tenant": 0}') > :message AS sorts_after;

-- Privileges and read-only transactions are as with snowflake_nextval().
CREATE ROLE regress_snowflake_observer;
SET ROLE regress_snowflake_observer;
SELECT snowflake_observe(of_other('10 ms'));
SELECT code, message FROM error_of($$SELECT snowflake_observe(0, 'wide')$$);
RESET ROLE;
GRANT USAGE ON SEQUENCE wide TO regress_snowflake_observer;
SET ROLE regress_snowflake_observer;
SELECT snowflake_observe(0, 'wide');
RESET ROLE;
BEGIN READ ONLY;
SELECT snowflake_observe(0);
ROLLBACK;
SELECT proname, provolatile, proisstrict, proparallel FROM pg_proc
WHERE proname = 'snowflake_observe';
-- The label may say less than max_borrow, and not more.
SELECT snowflake_create_generator('near', $$preset=default max_observe='101 ms'$$);
SELECT snowflake_create_generator('near', $$preset=default max_observe=0$$);
SELECT snowflake_nextval('near') > 0 AS positive;
SELECT code, detail, hint FROM error_of($$SELECT snowflake_observe(snowflake_encode(clock_timestamp() + interval '50 ms', 1, 0, 'near'), 'near')$$);

DROP SEQUENCE wide, near, shard_3, clocks, reversed, below, shuffled, waits, tenants;
DROP ROLE regress_snowflake_observer;
DROP FUNCTION of_other, next_after, error_of;
