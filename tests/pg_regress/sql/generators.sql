-- Generators beside the default one are sequences with a label.
SET timezone = 'UTC';

-- One call makes a generator.
SELECT snowflake_create_generator('orders_ids', 'preset=shardingsphere on_rollback=continue');
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'), item text);
ALTER SEQUENCE orders_ids OWNED BY orders.id;
INSERT INTO orders (item) VALUES ('one'), ('two') RETURNING item, id = snowflake_currval('orders_ids') AS is_currval;
SELECT item, w.worker_id, w.created_at BETWEEN now() - interval '1 min' AND now() + interval '1 min' AS now
FROM orders, snowflake_decode(id, 'orders_ids') AS w ORDER BY id;
SELECT objtype, objname, provider, label FROM pg_seclabels WHERE provider = 'snowflake_id';

-- A label makes a plain sequence a generator.
CREATE SEQUENCE by_hand;
SECURITY LABEL FOR snowflake_id ON SEQUENCE by_hand IS 'preset=sonyflake';
-- Before the first ID, any other label can be set.
SECURITY LABEL FOR snowflake_id ON SEQUENCE by_hand IS NULL;
SECURITY LABEL FOR snowflake_id ON SEQUENCE by_hand IS 'preset=discord max_borrow=0';
SELECT snowflake_nextval('by_hand') > 0 AS positive;
SELECT d.worker_id, d.fields - 'time' - 'sequence' AS fields FROM snowflake_decode(snowflake_nextval('by_hand'), 'by_hand') AS d;
SELECT nextval('by_hand');
-- One statement makes a sequence that fits from the start.
CREATE SEQUENCE by_hand_too AS bigint INCREMENT 9223372036854775807 START 9223372036854775807;
SECURITY LABEL FOR snowflake_id ON SEQUENCE by_hand_too IS 'preset=instagram shard=5';
SELECT d.worker_id, d.fields ->> 'shard' AS shard FROM snowflake_decode(snowflake_nextval('by_hand_too'), 'by_hand_too') AS d;
DROP SEQUENCE by_hand, by_hand_too;

-- Names have the form of those in CREATE SEQUENCE.
CREATE SCHEMA "My Schema";
SELECT snowflake_create_generator('"My Schema"."Order IDs"', 'preset=discord');
SELECT snowflake_nextval('"My Schema"."Order IDs"') > 0 AS positive;
SELECT snowflake_create_generator('orders_ids', 'preset=discord');
SELECT snowflake_create_generator('no_such_schema.ids', 'preset=discord');
SELECT snowflake_create_generator('', 'preset=discord');
SELECT snowflake_create_generator('a.b.c.d', 'preset=discord');
SELECT snowflake_create_generator(NULL, 'preset=discord') IS NULL AS null_gives_null;
-- The error's context is hidden, since it has the name of the session's schema.
\set SHOW_CONTEXT never
SELECT snowflake_create_generator('pg_temp.ids', 'preset=discord');
\set SHOW_CONTEXT errors
DROP SCHEMA "My Schema" CASCADE;

-- The error says what is wrong with a label, where, and what is valid there.
SELECT snowflake_create_generator('bad', ' ');
SELECT snowflake_create_generator('bad', 'discord');
SELECT snowflake_create_generator('bad', 'preset=discrod');
SELECT snowflake_create_generator('bad', 'max_borrow=0 preset=discord');
SELECT snowflake_create_generator('bad', 'preset=discord preset=twitter');
SELECT snowflake_create_generator('bad', 'preset=discord, max_borrow=0');
SELECT snowflake_create_generator('bad', 'preset=discord colour=red');
SELECT snowflake_create_generator('bad', 'preset=discord on_rolback=wait');
SELECT snowflake_create_generator('bad', 'preset=discord worker=one');
SELECT snowflake_create_generator('bad', 'preset=discord colour=7');
SELECT snowflake_create_generator('bad', 'preset=discord time=5');
SELECT snowflake_create_generator('bad', 'preset=instagram shard=8192');
SELECT snowflake_create_generator('bad', 'preset=instagram shard=-1');
SELECT snowflake_create_generator('bad', 'epoch=0');
SELECT snowflake_create_generator('bad', 'preset=random_start');
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:10 sequence:12'$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:10 sequence:12 epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout=time:41 worker:10 sequence:12$$);
SELECT snowflake_create_generator('bad', $$layout='' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time worker:10 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='Time:41 worker:10 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:ten sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:64 worker:4 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:0 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:10 worker:5 sequence:8' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 time_reversed:5 worker:10 sequence:8' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='worker:10 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:10' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 epoch:10 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:12 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 sequence:22' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:31 worker:32 sequence:1' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 sequence:12' epoch='2025-01-01 00:00:00+00'$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:10=1024 sequence:12' epoch=0$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 worker:10 sequence:12=0' epoch=0$$);
SELECT snowflake_create_generator('bad', $$preset=discord epoch='2025-01-01'$$);
SELECT snowflake_create_generator('bad', $$preset=discord epoch='2025-01-01 00:00:00'$$);
SELECT snowflake_create_generator('bad', $$preset=discord epoch='2025-01-01 Z'$$);
SELECT snowflake_create_generator('bad', $$preset=discord epoch='yesterday'$$);
SELECT snowflake_create_generator('bad', $$preset=discord epoch=1735689600$$);
SELECT snowflake_create_generator('bad', $$preset=discord epoch='1969-12-31 23:59:59+00'$$);
SELECT snowflake_create_generator('bad', $$preset=discord tick=10$$);
SELECT snowflake_create_generator('bad', $$preset=discord tick='11 s'$$);
SELECT snowflake_create_generator('bad', $$preset=discord on_rollback=ignore$$);
SELECT snowflake_create_generator('bad', $$preset=discord on_rollback=next_clock$$);
SELECT snowflake_create_generator('bad', $$preset=discord on_exhausted=next_clock$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 clock:7 sequence:10' epoch=0 on_rollback=next_clock$$);
SELECT snowflake_create_generator('bad', $$layout='time:41 clock:4=1 sequence:10' epoch=0 on_rollback=next_clock$$);
SELECT snowflake_create_generator('bad', $$preset=twitter max_wait='10 ms'$$);
SELECT snowflake_create_generator('bad', $$preset=twitter on_rollback=sometimes$$);
SELECT snowflake_create_generator('bad', $$preset=twitter on_exhausted=later$$);
SELECT snowflake_create_generator('bad', $$preset=twitter sequence_start=anywhere$$);
SELECT snowflake_create_generator('bad', $$preset=discord max_rollback=0$$);
SELECT snowflake_create_generator('bad', $$preset=discord max_wait='10 ms'$$);
SELECT snowflake_create_generator('bad', $$preset=discord max_borrow='1 year'$$);
SELECT snowflake_create_generator('bad', $$preset=discord max_borrow='13 h'$$);
SELECT snowflake_create_generator('bad', $$preset=discord sequence_start=vibrate$$);
SELECT snowflake_create_generator('bad', $$preset=discord sequence_start='vibrate 4096'$$);
SELECT snowflake_create_generator('bad', $$preset=uniqueid$$);
-- No sequence is left of the failed calls.
SELECT to_regclass('bad') IS NULL AS no_sequence;
-- SECURITY LABEL gives the same errors, and leaves the sequence as it was.
CREATE SEQUENCE bad;
SECURITY LABEL FOR snowflake_id ON SEQUENCE bad IS 'preset=discrod';
SELECT count(*) AS labels FROM pg_seclabels WHERE objoid = 'bad'::regclass;
DROP SEQUENCE bad;
-- The position counts characters and not bytes.
SELECT snowflake_create_generator('bad', $$preset=discord größe=5$$);

-- PostgreSQL's errors pass with all their fields: of several errors, the one that ends
-- the statement.
CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE how text := current_setting('regress.how');
BEGIN
    IF how = 'own SQLSTATE' THEN RAISE 'first' USING ERRCODE = 'U0001', CONSTRAINT = 'of_first'; END IF;
    BEGIN
        RAISE 'first' USING ERRCODE = '22012', CONSTRAINT = 'of_first';
    EXCEPTION WHEN others THEN
        IF how = 'replaced' THEN RAISE 'second' USING ERRCODE = 'U0002', CONSTRAINT = 'of_second'; END IF;
        BEGIN
            IF how = 'same message' THEN RAISE 'first' USING ERRCODE = '22011', CONSTRAINT = 'of_second'; END IF;
            IF how = 'same code' THEN RAISE 'second' USING ERRCODE = '22012', CONSTRAINT = 'of_second'; END IF;
        EXCEPTION WHEN others THEN NULL;
        END;
        RAISE NOTICE '%', how;
        RAISE;
    END;
END $$;
CREATE FUNCTION refused(how text) RETURNS TABLE (code text, message text, name text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('regress.how', how, true);
    PERFORM snowflake_create_generator('bad', 'preset=discord');
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, name = CONSTRAINT_NAME;
    RETURN NEXT;
END $$;
CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE SEQUENCE') EXECUTE FUNCTION refuse();
SELECT how, r.* FROM unnest(ARRAY['own SQLSTATE', 'raised again', 'replaced', 'same message', 'same code']) AS how, refused(how) AS r;
DROP EVENT TRIGGER refuse;
DROP FUNCTION refuse, refused;

-- Labels can be set on the user's own sequences only.
CREATE TABLE plain (id bigint, n serial);
SECURITY LABEL FOR snowflake_id ON TABLE plain IS 'preset=discord';
SECURITY LABEL FOR snowflake_id ON COLUMN plain.id IS 'preset=discord';
SECURITY LABEL FOR snowflake_id ON SCHEMA public IS 'preset=discord';
SECURITY LABEL FOR snowflake_id ON SEQUENCE snowflake_default IS 'preset=discord';
SECURITY LABEL ON SEQUENCE plain_n_seq IS NULL;
SELECT snowflake_nextval('plain_n_seq');
SELECT snowflake_decode(1, 'plain_n_seq');
DROP TABLE plain;

-- A generator that has its server take the next worker ID needs a registry, and decodes without one.
SELECT snowflake_create_generator('waiting', $$preset=worker_queue epoch='2025-01-01 00:00:00+00'$$);
SELECT snowflake_nextval('waiting');
SELECT * FROM snowflake_nextval_batch(2, 'waiting');
SELECT snowflake_advance('waiting', now());
SELECT snowflake_timestamp(33554432, 'waiting');
SELECT problem, on_rollback, max_wait FROM snowflake_generators WHERE generator = 'waiting'::regclass;
SECURITY LABEL FOR snowflake_id ON SEQUENCE waiting IS $$preset=default on_rollback=next_worker$$;
SELECT snowflake_nextval('waiting');
SECURITY LABEL FOR snowflake_id ON SEQUENCE waiting IS $$preset=worker_queue epoch='2025-01-01 00:00:00+00' on_rollback=wait$$;
SELECT snowflake_nextval('waiting') > 0 AS positive;
DROP SEQUENCE waiting;

-- All other policies issue IDs, and the view shows the policies in full.
CREATE FUNCTION issues(label text) RETURNS TABLE (positive boolean, policy text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM snowflake_create_generator('policies', label);
    RETURN QUERY SELECT min(id) > 0, (SELECT concat_ws(', ', on_rollback, max_rollback, max_wait, max_borrow, on_exhausted, sequence_start) FROM snowflake_generators AS g WHERE generator = 'policies'::regclass)
        FROM snowflake_nextval_batch(3, 'policies') AS id;
    DROP SEQUENCE policies;
END $$;
\x
SELECT label, i.* FROM unnest(ARRAY[
    'preset=twitter',
    'preset=shardingsphere',
    'preset=leaf',
    'preset=multi_clock epoch=1735689600000',
    'preset=multi_clock epoch=1735689600000 max_wait=''1 s'' max_rollback=''1 h'' on_exhausted=next_clock',
    'preset=multi_clock epoch=1735689600000 on_rollback=continue on_exhausted=next_clock',
    'preset=random_start epoch=1735689600000',
    'preset=baidu epoch=1735689600000 max_borrow=''1 h''',
    'preset=javascript on_exhausted=error sequence_start=random',
    'preset=javascript sequence_start=''vibrate 62''']) AS label, issues(label) AS i;
\x
DROP FUNCTION issues;
-- A tick is exhausted under on_exhausted=error.
SELECT snowflake_create_generator('few', $$layout='time:30 worker:10 sequence:3' epoch='2025-01-01 00:00:00+00' tick='10 s' max_borrow=0 on_exhausted=error sequence_start=zero$$);
CREATE FUNCTION error_of(statement text) RETURNS TABLE (code text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    hint := regexp_replace(hint, '([0-9]+ (s|ms) ?)+', '(so long)');
    RETURN NEXT;
END $$;
\x
SELECT * FROM error_of($$SELECT snowflake_nextval('few') FROM generate_series(1, 20)$$);
SELECT * FROM error_of($$SELECT snowflake_nextval_batch(20, 'few')$$);
\x
DROP FUNCTION error_of;
DROP SEQUENCE few;

-- Presets whose time is over decode, but need an epoch to generate.
SELECT snowflake_create_generator('inventory', 'preset=ztesoft resource_type=200 on_rollback=continue');
SELECT snowflake_create_generator('uid', 'preset=baidu');
SELECT snowflake_create_generator('inventory', $$preset=ztesoft epoch='2025-01-01 00:00:00+00' resource_type=200 on_rollback=continue$$);
SELECT d.worker_id, d.fields - 'time' - 'sequence' AS fields FROM snowflake_decode(snowflake_nextval('inventory'), 'inventory') AS d;
-- A date with an offset means midnight at that offset.
SELECT (snowflake_decode_as(0, 'preset=discord epoch=2025-01-01Z')).created_at AS utc,
       (snowflake_decode_as(0, 'preset=discord epoch=2025-01-01+08')).created_at AS east;
-- SECURITY LABEL accepts such a preset, since a dump must be restored at any time.
CREATE SEQUENCE uid AS bigint INCREMENT 9223372036854775807 START 9223372036854775807;
SECURITY LABEL FOR snowflake_id ON SEQUENCE uid IS 'preset=baidu on_rollback=continue';
SELECT snowflake_nextval('uid');
SELECT snowflake_timestamp(snowflake_encode('2020-01-01 00:00:00+00', 1, 2, 'uid'), 'uid');
-- The view says so too, and of a generator whose time has not begun.
SELECT snowflake_create_generator('future', 'preset=discord epoch=2250-01-01Z');
SELECT snowflake_nextval('future');
SELECT generator, problem FROM snowflake_generators WHERE generator::text IN ('uid', 'future') ORDER BY 1;
DROP SEQUENCE inventory, uid, future;

-- With 64 bits, IDs can be negative: a notice says so.
SELECT snowflake_create_generator('shards', 'preset=instagram shard=5');
SELECT snowflake_create_generator('spread', 'preset=uniqueid_spread');
SELECT snowflake_create_generator('positive', 'preset=javascript');
SELECT snowflake_nextval('positive') < 2 ^ 53 AS exact_in_javascript;
SELECT d.created_at BETWEEN now() - interval '1 min' AND now() + interval '1 min' AS now, d.fields ->> 'mode' AS mode
FROM snowflake_decode(snowflake_nextval('spread'), 'spread') AS d;
SELECT snowflake_min_id(now(), 'spread');

-- A time field can outlast timestamps: it ends at infinity, and so does an ID's time.
SELECT snowflake_create_generator('wide', $$layout='time:57 worker:3 sequence:3' epoch=2025-01-01Z tick='10 s' max_borrow='1 h'$$);
SELECT ends_at, problem FROM snowflake_generators WHERE generator = 'wide'::regclass;
SELECT d.worker_id, d.created_at BETWEEN now() - interval '1 min' AND now() + interval '1 min' AS now
FROM snowflake_decode(snowflake_nextval('wide'), 'wide') AS d;
SELECT count(*) FROM snowflake_nextval_batch(100, 'wide');
\set VERBOSITY sqlstate
SELECT snowflake_advance('wide', snowflake_max_id('infinity', 'wide'));
\set VERBOSITY default
SELECT snowflake_timestamp(snowflake_max_id('infinity', 'wide'), 'wide') AS last,
       snowflake_timestamp(snowflake_min_id('294276-12-31 23:59:59.999Z', 'wide'), 'wide') AS last_timestamp,
       snowflake_timestamp(snowflake_min_id('294276-12-31 23:59:59.999Z', 'wide') + 64, 'wide') AS next_tick;
SELECT snowflake_explain(snowflake_max_id('infinity', 'wide'), 'wide') ~ 'until 292278994-08-17 07:12:55.807 UTC' AS explained;
-- An ID is no mark under that layout either.
SELECT setval('wide', snowflake_max_id(now(), 'wide')) > 0 AS set;
SELECT snowflake_nextval('wide') > 0 AS healed;
-- The widest layouts only decode.
SELECT * FROM snowflake_decode_as(-1, $$layout='time:63 sequence:1' epoch=0 tick='10 s'$$);
SELECT preset, workers, ids_per_second, ends_at, negative_from FROM snowflake_presets WHERE preset IN ('mastodon', 'yitter') ORDER BY 1;
SELECT created_at, worker_id, fields FROM snowflake_decode_as(96993012809756456, 'preset=mastodon');
SELECT created_at, worker_id, sequence FROM snowflake_decode_as(628953899008069, 'preset=yitter');
SELECT snowflake_create_generator('wider', 'preset=mastodon');
SELECT snowflake_create_generator('wider', $$preset=mastodon layout='time:48 worker:6 sequence:10'$$);
SELECT (snowflake_decode_as(snowflake_nextval('wider'), 'preset=mastodon')).created_at BETWEEN now() - interval '1 min' AND now() + interval '1 min' AS now;
-- A label without a sequence number was set without the provider.
UPDATE pg_seclabel SET label = 'preset=mastodon' WHERE objoid = 'wider'::regclass;
\c -
SET timezone = 'UTC';
SELECT snowflake_nextval('wider');
SELECT problem FROM snowflake_generators WHERE generator = 'wider'::regclass;
DROP SEQUENCE wide, wider;

-- The worker ID does not fit the layout.
SELECT snowflake_create_generator('narrow', $$layout='time:41 worker:2 sequence:12' epoch='2025-01-01 00:00:00+00'$$);
CREATE SEQUENCE narrow;
SECURITY LABEL FOR snowflake_id ON SEQUENCE narrow IS $$layout='time:41 worker:2 sequence:12' epoch='2025-01-01 00:00:00+00'$$;
SELECT snowflake_nextval('narrow');
DROP SEQUENCE narrow;

-- Once there are IDs, these changes of a label are allowed or refused.
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS $$preset=shardingsphere on_rollback=continue epoch='2016-10-31 16:00:00+00'$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS 'preset=shardingsphere on_rollback=continue';
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS $$preset=shardingsphere on_rollback=continue epoch='2016-10-31 16:00:00+00' tick='2 ms'$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS $$layout='time:40 worker:10 sequence:12' epoch='2016-10-31 16:00:00+00'$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS $$layout='time:41 sequence:12 worker:10' epoch='2016-10-31 16:00:00+00'$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS $$layout='time:41 worker:10 sequence:12' epoch='1950-01-01 00:00:00+00'$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS $$layout='time:41 worker:10 sequence:12' epoch=0$$;
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS NULL;
SELECT label FROM pg_seclabels WHERE objoid = 'orders_ids'::regclass;
-- A time field on top can become wider, since existing IDs keep their meaning.
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS $$layout='time:42 worker:10 sequence:12' epoch='2016-10-31 16:00:00+00'$$;
INSERT INTO orders (item) VALUES ('three');
SELECT item FROM orders ORDER BY id;

-- An earlier epoch is refused if the time would end before the IDs that exist.
SELECT snowflake_create_generator('ending', $$layout='time:40 worker:10 sequence:12' epoch=2021-01-01Z$$);
SELECT snowflake_nextval('ending') > 0 AS positive;
\set VERBOSITY terse
SECURITY LABEL FOR snowflake_id ON SEQUENCE ending IS $$layout='time:40 worker:10 sequence:12' epoch=0$$;
\set VERBOSITY default
SELECT snowflake_nextval('ending') > 0 AS positive;
DROP SEQUENCE ending;

-- Restarting a generator keeps its mark, and other bounds are set back.
ALTER SEQUENCE orders_ids RESTART;
ALTER SEQUENCE orders_ids MINVALUE 281474976710657 MAXVALUE 562949953421313
    START 281474976710657 RESTART 281474976710657;
SELECT snowflake_nextval('orders_ids') > 0 AS positive;
CREATE SEQUENCE unused INCREMENT 9223372036854775807 START 9223372036854775807;
SECURITY LABEL FOR snowflake_id ON SEQUENCE unused IS 'preset=sonyflake';
ALTER SEQUENCE unused MINVALUE 5 START 5 RESTART;
SELECT seqmin, seqmax, seqstart FROM pg_sequence WHERE seqrelid IN ('orders_ids'::regclass, 'unused'::regclass);
SELECT nextval('unused');
DROP SEQUENCE unused;
ALTER SEQUENCE orders_ids CACHE 10;
TRUNCATE orders RESTART IDENTITY;
\set VERBOSITY terse
ALTER SEQUENCE orders_ids AS integer MAXVALUE 1000 START 1 INCREMENT 1 RESTART;
\set VERBOSITY default
ALTER SEQUENCE orders_ids CYCLE;
INSERT INTO orders (item) VALUES ('four');
ALTER SEQUENCE orders_ids NO CYCLE;
INSERT INTO orders (item) VALUES ('four');

-- The view and the statistics show these values.
\x
SELECT generator, worker_id, ids_per_second, ends_at, problem, layout, epoch, tick,
    on_rollback, max_rollback, max_wait, max_borrow, on_exhausted, sequence_start
FROM snowflake_generators ORDER BY generator::text COLLATE "C";
\x
SELECT generator, last_id_at IS NOT NULL AS last_id, reserved_until IS NOT NULL AS reserved
FROM snowflake_generators WHERE generator <> 'snowflake_default'::regclass
ORDER BY generator::text COLLATE "C";
SELECT snowflake_stat_reset('spread');
SELECT count(*) FROM snowflake_nextval_batch(100, 'spread');
SELECT generator, issued, batches FROM pg_stat_snowflake WHERE generator = 'spread'::regclass;

-- Privileges on the sequence apply.
CREATE ROLE regress_snowflake_clerk;
GRANT INSERT ON orders TO regress_snowflake_clerk;
SET ROLE regress_snowflake_clerk;
\set VERBOSITY terse
INSERT INTO orders (item) VALUES ('five');
SELECT snowflake_nextval('orders_ids');
SELECT snowflake_advance('orders_ids', now());
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS 'preset=discord';
SELECT snowflake_create_generator('mine', 'preset=discord');
SELECT generator, layout, last_id_at, reserved_until, ahead_by FROM snowflake_generators WHERE generator = 'orders_ids'::regclass;
-- Decoding needs no privilege.
SELECT snowflake_timestamp(0, 'orders_ids');
RESET ROLE;
GRANT USAGE ON SEQUENCE orders_ids TO regress_snowflake_clerk;
GRANT CREATE ON SCHEMA public TO regress_snowflake_clerk;
SET ROLE regress_snowflake_clerk;
INSERT INTO orders (item) VALUES ('five');
SELECT snowflake_advance('orders_ids', now());
SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS 'preset=discord';
SELECT snowflake_create_generator('mine', 'preset=discord');
SELECT snowflake_nextval('mine') > 0 AS positive;
SELECT snowflake_advance('mine', now()) IS NOT NULL AS advanced;
SECURITY LABEL FOR snowflake_id ON SEQUENCE mine IS $$preset=discord max_borrow=0$$;
\set VERBOSITY default
RESET ROLE;
DROP OWNED BY regress_snowflake_clerk;
DROP ROLE regress_snowflake_clerk;

-- A transaction that changes the layout gets no IDs, since it could be rolled back.
BEGIN;
SECURITY LABEL FOR snowflake_id ON SEQUENCE positive IS $$preset=javascript epoch='2024-01-01 00:00:00+00'$$;
SELECT snowflake_nextval('positive');
ROLLBACK;

-- Transactions can be read-only, or rolled back.
BEGIN READ ONLY;
SELECT snowflake_create_generator('late', 'preset=discord');
ROLLBACK;
BEGIN;
SELECT snowflake_create_generator('late', 'preset=discord');
SELECT snowflake_nextval('late') > 0 AS positive;
ROLLBACK;
SELECT snowflake_nextval('late');

-- A label was lost on the way; the default of another table would issue nothing.
CREATE SEQUENCE lost INCREMENT BY 9223372036854775807 MINVALUE 1
    MAXVALUE 9223372036854775807 START WITH 9223372036854775807;
SELECT snowflake_nextval('lost');
DROP SEQUENCE lost;
CREATE TABLE queue (id bigint PRIMARY KEY);
SELECT snowflake_create_generator('queue_ids', 'preset=worker_queue epoch=''2025-01-01 00:00:00+00''');
SELECT snowflake_set_default('queue', generator => 'queue_ids');
SELECT problem FROM snowflake_generators WHERE generator = 'queue_ids'::regclass;
DROP TABLE queue;
DROP SEQUENCE queue_ids;

-- A dropped generator is gone with its label.
DROP TABLE orders;
DROP SEQUENCE shards, spread, positive;
SELECT count(*) AS labels FROM pg_seclabel;
SELECT generator FROM snowflake_generators;

-- A name from another node is read up to a length that PostgreSQL reads quickly.
SELECT _snowflake.find_relation(lpad('public.snowflake_default', 4096)) AS short, _snowflake.find_relation(lpad('public.snowflake_default', 4097)) AS long;
SELECT _snowflake.place_generator(repeat('"', 100000000), 'preset=default', 'nobody', '[]');
