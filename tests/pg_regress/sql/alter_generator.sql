-- What a generator is told, by named arguments; its label stores it.
SET timezone = 'UTC';
CREATE VIEW told AS
    SELECT generator, preset, layout, epoch, tick, on_rollback, max_rollback, max_wait, max_borrow,
        on_exhausted, sequence_start, label
    FROM snowflake_generators WHERE generator <> 'snowflake_default'::regclass ORDER BY generator::text COLLATE "C";

-- Nothing, the text of a label, arguments, and both: the arguments override the text.
SELECT snowflake_create_generator('bare'), snowflake_create_generator('copy', $$preset=leaf  tick='5 s'$$),
    snowflake_create_generator('waits', max_wait => '2 s', on_rollback => 'wait'),
    snowflake_create_generator('own', layout => 'time:41 shard:5=3 worker:5 sequence:12', epoch => '2025-01-01Z', fields => '{"shard": 7}'),
    snowflake_create_generator('shards', preset => 'instagram', fields => '{"shard": 5.0}'),
    snowflake_create_generator('theirs', preset => 'mastodon', layout => 'time:41 worker:6 tenant:6 sequence:10',
        fields => '{"tenant": "caller", "x": null}'),
    snowflake_create_generator('changed_copy', $$preset=leaf  tick='5 s' max_borrow='10 s'$$, epoch => '1577836800000', max_borrow => '');
SELECT generator, label FROM told;
\x
SELECT * FROM told WHERE generator IN ('bare'::regclass, 'waits'::regclass);
\x
-- What the view shows can be given as it is.
SELECT snowflake_create_generator('same', preset => preset, layout => layout, epoch => epoch, tick => tick, on_rollback => on_rollback,
    max_rollback => max_rollback, max_wait => max_wait, max_borrow => max_borrow, on_exhausted => on_exhausted,
    sequence_start => sequence_start)
FROM told WHERE generator = 'waits'::regclass;
SELECT count(*) FROM (SELECT (told).* FROM told) AS t
    JOIN told AS u ON to_jsonb(t) - 'label' - 'generator' = to_jsonb(u) - 'label' - 'generator'
WHERE t.generator = 'waits'::regclass AND u.generator = 'same'::regclass;

-- Both functions have the same arguments, which are columns of the view; and each key of a label is one.
SELECT proname FROM pg_proc WHERE proname IN ('snowflake_create_generator', 'snowflake_alter_generator')
    AND proargnames::text NOT LIKE '%,' || (
        SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = 'snowflake_generators'::regclass AND attnum > 12 AND attname <> 'label') || ',fields}';
CREATE FUNCTION keys() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE hint text;
BEGIN
    PERFORM snowflake_decode_as(1, 'no_key=1');
EXCEPTION WHEN invalid_parameter_value THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN QUERY SELECT * FROM regexp_split_to_table(substring(hint FROM 'Keys are (.*)\.'), '(, | and )');
END $$;
SELECT count(*) >= 10 AS has_keys FROM keys();
SELECT * FROM keys() EXCEPT SELECT unnest(proargnames) FROM pg_proc WHERE proname = 'snowflake_alter_generator';
DROP FUNCTION keys;

-- NULL leaves a value, an empty text goes back to that of the preset, and the rest stays.
SELECT snowflake_alter_generator('waits', max_borrow => '1 s', tick => NULL);
SELECT label FROM told WHERE generator = 'waits'::regclass;
SELECT snowflake_alter_generator('waits', max_wait => '', on_rollback => 'error');
SELECT label, on_rollback, max_wait FROM told WHERE generator = 'waits'::regclass;
SELECT snowflake_alter_generator('waits', on_rollback => '', max_borrow => '');
SELECT label FROM told WHERE generator = 'waits'::regclass;
SELECT snowflake_alter_generator('shards', fields => '{"shard": 6}'), snowflake_alter_generator('own', fields => '{"shard": ""}');
SELECT generator, layout, label FROM told WHERE generator IN ('shards'::regclass, 'own'::regclass);
SELECT snowflake_alter_generator('changed_copy', preset => 'discord', tick => '', epoch => '');
SELECT snowflake_alter_generator('copy');
SELECT generator, label FROM told WHERE generator IN ('copy'::regclass, 'changed_copy'::regclass);
SELECT snowflake_create_generator(NULL, preset => 'leaf') IS NULL AS no_name,
    snowflake_alter_generator(NULL, preset => 'leaf') AS no_generator;

-- An error names the argument, and its value.
SELECT snowflake_create_generator('bad', preset => 'discrod');
SELECT snowflake_create_generator('bad', max_wait => '5 parsecs', on_rollback => 'wait');
SELECT snowflake_create_generator('bad', epoch => '2025-01-01');
SELECT snowflake_create_generator('bad', layout => 'time:41 worker:12 sequence:12');
SELECT snowflake_create_generator('bad', on_rollback => 'next_clock');
SELECT snowflake_create_generator('bad', on_exhausted => $$it's "late" \ now$$);
SELECT snowflake_create_generator('bad', preset => 'uniqueid');
SELECT snowflake_create_generator('bad', layout => 'time:41 sequence:12', epoch => '0');
SELECT snowflake_create_generator('bad', preset => 'instagram', fields => '{"shard": 8192}');
SELECT snowflake_create_generator('bad', preset => 'instagram', fields => '{"shard": 1.5}');
SELECT snowflake_create_generator('bad', preset => 'instagram', fields => '{"shrad": 5}');
SELECT snowflake_create_generator('bad', preset => 'instagram', fields => '{"shard": true}');
SELECT snowflake_create_generator('bad', preset => 'instagram', fields => '{"shard=5 tick": "1 s"}');
SELECT snowflake_create_generator('bad', fields => '{"epoch": 0}');
SELECT snowflake_create_generator('bad', fields => '[]');
SELECT snowflake_create_generator('bad', tick => repeat('1', 20000));
-- Some are wrong together, and one may be missing.
SELECT snowflake_create_generator('bad', preset => 'random_start');
SELECT snowflake_create_generator('bad', layout => 'time:41 worker:10 sequence:12');
SELECT snowflake_create_generator('bad', layout => repeat(' ', 16000), epoch => repeat(' ', 16000));
-- The text is wrong by itself.
SELECT snowflake_create_generator('bad', 'preset', max_wait => '1 s');
SELECT snowflake_create_generator('bad', 'preset=discrod', on_rollback => 'wait');
SELECT to_regclass('bad') IS NULL AS no_sequence;
SELECT snowflake_alter_generator('waits', on_rollback => 'sometimes');
SELECT snowflake_alter_generator('copy', on_rollback => 'error', max_wait => '1 s');
SELECT snowflake_create_generator('patient', on_rollback => 'wait', max_wait => '1 s');
SELECT snowflake_alter_generator('patient', on_rollback => 'error');
SELECT snowflake_alter_generator('patient', fields => '{"on_rollback": "error"}');
SELECT label FROM told WHERE generator = 'patient'::regclass;

-- What a label cannot be changed to is refused as for SECURITY LABEL.
SELECT snowflake_nextval('waits') > 0 AS positive;
SELECT snowflake_alter_generator('waits', tick => '2 ms');
SECURITY LABEL FOR snowflake_id ON SEQUENCE waits IS $$preset=default tick='2 ms'$$;
SELECT snowflake_alter_generator('snowflake_default', max_borrow => '0');
BEGIN READ ONLY;
SELECT snowflake_alter_generator('waits', max_borrow => '0');
ROLLBACK;
CREATE SEQUENCE plain;
CREATE TABLE holder ();
SELECT snowflake_alter_generator('plain', max_borrow => '0');
SELECT snowflake_alter_generator('holder', max_borrow => '0');
SELECT snowflake_alter_generator('none', max_borrow => '0');
SELECT snowflake_alter_generator(1, max_borrow => '0');
CREATE SEQUENCE lost AS bigint INCREMENT 9223372036854775807 START 9223372036854775807;
SELECT snowflake_alter_generator('lost', max_borrow => '0');
-- Only its owner changes a generator.
CREATE ROLE regress_stranger;
GRANT USAGE, UPDATE ON SEQUENCE waits TO regress_stranger;
SET ROLE regress_stranger;
SELECT snowflake_alter_generator('waits', max_borrow => '0');
RESET ROLE;
DROP OWNED BY regress_stranger;
DROP ROLE regress_stranger;

-- It is a command for event triggers.
CREATE FUNCTION tells() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', tg_tag; END $$;
CREATE EVENT TRIGGER tells ON ddl_command_start EXECUTE FUNCTION tells();
SELECT snowflake_alter_generator('waits', max_borrow => '0');
DROP EVENT TRIGGER tells;

-- Names and settings of any kind.
-- PostgreSQL 19 has no other strings than standard ones.
SELECT current_setting('server_version_num')::int < 190000 AS has_escapes \gset
CREATE SCHEMA "My.Schema";
SELECT snowflake_create_generator('"My.Schema"."it''s.""mine"""', max_borrow => '0');
SET search_path = pg_catalog, pg_temp;
\if :has_escapes
SET standard_conforming_strings = off;
\endif
SET quote_all_identifiers = on;
SELECT public.snowflake_alter_generator('"My.Schema"."it''s.""mine"""', max_borrow => '1 min');
RESET ALL;
SET timezone = 'UTC';
SELECT generator, label FROM told WHERE max_borrow = '1 min';

DROP SCHEMA "My.Schema" CASCADE;
DROP FUNCTION tells;
DROP VIEW told;
DROP TABLE holder;
DROP SEQUENCE bare, changed_copy, copy, lost, own, patient, plain, same, shards, theirs, waits;
