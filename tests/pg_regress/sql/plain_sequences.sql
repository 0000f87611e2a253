-- A label changes an unused plain sequence so that it can hold a mark. A used one is
-- refused, with a hint what to do.
SET timezone = 'UTC';
CREATE SCHEMA p;
SET search_path = p, public;
CREATE FUNCTION bounds(sequence regclass)
RETURNS TABLE (type regtype, start bigint, min bigint, max bigint, increment bigint, cycle boolean) LANGUAGE sql AS $$
    SELECT seqtypid, seqstart, seqmin, seqmax, seqincrement, seqcycle FROM pg_sequence WHERE seqrelid = sequence
$$;

-- An unused sequence is changed, whatever its type and bounds.
CREATE SEQUENCE small AS smallint MINVALUE -5 MAXVALUE 100 START 7 INCREMENT 3 CYCLE CACHE 20;
SECURITY LABEL FOR snowflake_id ON SEQUENCE small IS 'preset=discord';
SELECT * FROM bounds('small');
SELECT nextval('small');
SELECT snowflake_nextval('small') > 0 AS positive;
ALTER SEQUENCE small RESTART WITH 1000;
SELECT snowflake_timestamp(snowflake_nextval('small'), 'small') BETWEEN now() - interval '1 min' AND now() + interval '1 min' AS now;
CREATE SEQUENCE negative INCREMENT -1;
SECURITY LABEL FOR snowflake_id ON SEQUENCE negative IS 'preset=discord';
SELECT snowflake_nextval('negative') > 0 AS positive;
-- A restarted sequence counts as unused, since its owner has given up its values.
CREATE SEQUENCE restarted;
SELECT nextval('restarted'), nextval('restarted');
ALTER SEQUENCE restarted RESTART WITH 1000;
SECURITY LABEL FOR snowflake_id ON SEQUENCE restarted IS 'preset=discord';
SELECT snowflake_nextval('restarted') > 0 AS positive;
-- A sequence that fits gets no notice.
CREATE SEQUENCE fit INCREMENT 9223372036854775807 START 9223372036854775807;
SECURITY LABEL FOR snowflake_id ON SEQUENCE fit IS 'preset=discord';
SELECT is_called FROM fit;

-- After a rollback or an invalid label the sequence is still plain.
CREATE SEQUENCE undone;
BEGIN;
SECURITY LABEL FOR snowflake_id ON SEQUENCE undone IS 'preset=discord';
SELECT snowflake_nextval('undone') > 0 AS positive;
ROLLBACK;
SECURITY LABEL FOR snowflake_id ON SEQUENCE undone IS 'preset=discrod';
SELECT * FROM bounds('undone');
SELECT nextval('undone');

-- A label can be taken back before the first ID.
CREATE SEQUENCE taken_back;
SECURITY LABEL FOR snowflake_id ON SEQUENCE taken_back IS 'preset=discord';
SECURITY LABEL FOR snowflake_id ON SEQUENCE taken_back IS NULL;
SELECT snowflake_nextval('taken_back');
SECURITY LABEL FOR snowflake_id ON SEQUENCE taken_back IS 'preset=twitter on_rollback=continue';
ALTER SEQUENCE taken_back INCREMENT 1 MINVALUE -10 MAXVALUE 1000 START 1 RESTART;
SELECT snowflake_nextval('taken_back');
SELECT nextval('taken_back');
SECURITY LABEL FOR snowflake_id ON SEQUENCE taken_back IS 'preset=discord';
SELECT setval('taken_back', -5);
SELECT problem FROM snowflake_generators WHERE generator = 'taken_back'::regclass;
SECURITY LABEL FOR snowflake_id ON SEQUENCE taken_back IS NULL;
SELECT nextval('taken_back');

-- A used sequence is refused.
CREATE SEQUENCE used;
SELECT setval('used', 4711);
SECURITY LABEL FOR snowflake_id ON SEQUENCE used IS 'preset=discord';
SELECT * FROM bounds('used');
SELECT nextval('used');
CREATE SEQUENCE below_zero INCREMENT -1;
SELECT nextval('below_zero');
SECURITY LABEL FOR snowflake_id ON SEQUENCE below_zero IS 'preset=discord';
-- The statements in the hints work.
SELECT snowflake_create_generator('p.used_ids', 'preset=discord');
SELECT snowflake_nextval('used_ids') > 0 AS positive;
ALTER SEQUENCE used RESTART;
SECURITY LABEL FOR snowflake_id ON SEQUENCE used IS 'preset=discord';
SELECT snowflake_nextval('used') > 0 AS positive;
-- A serial and an identity column own these sequences.
CREATE TABLE "Orders" (id bigserial PRIMARY KEY, "The Number" integer GENERATED ALWAYS AS IDENTITY, item text);
INSERT INTO "Orders" (item) VALUES ('a'), ('b');
SECURITY LABEL FOR snowflake_id ON SEQUENCE "Orders_id_seq" IS $$layout='time:41 worker:10 sequence:12' epoch='2025-01-01 00:00:00+00'$$;
SELECT snowflake_create_generator('p."Orders_ids"', 'layout=''time:41 worker:10 sequence:12'' epoch=''2025-01-01 00:00:00+00''');
SELECT snowflake_set_default('"Orders"', 'id', 'p."Orders_ids"');
INSERT INTO "Orders" (item) VALUES ('c');
SELECT item, id > 1000 AS is_new FROM "Orders" ORDER BY id;
SECURITY LABEL FOR snowflake_id ON SEQUENCE "Orders_The Number_seq" IS 'preset=discord';
-- A sequence with a mark was altered.
ALTER SEQUENCE used CYCLE;
SECURITY LABEL FOR snowflake_id ON SEQUENCE used IS 'preset=discord max_borrow=0';
SECURITY LABEL FOR snowflake_id ON SEQUENCE used IS NULL;
SELECT snowflake_nextval('used');
ALTER SEQUENCE used AS bigint INCREMENT BY 9223372036854775807 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 9223372036854775807 NO CYCLE;
SECURITY LABEL FOR snowflake_id ON SEQUENCE used IS 'preset=discord max_borrow=0';
SELECT snowflake_nextval('used') > 0 AS positive;

-- These sequences are temporary or unlogged.
CREATE TEMP SEQUENCE temporary;
SECURITY LABEL FOR snowflake_id ON SEQUENCE temporary IS 'preset=discord';
CREATE TEMP SEQUENCE temporary_fit INCREMENT 9223372036854775807 START 9223372036854775807;
SECURITY LABEL FOR snowflake_id ON SEQUENCE temporary_fit IS 'preset=discord';
CREATE UNLOGGED SEQUENCE unlogged;
SECURITY LABEL FOR snowflake_id ON SEQUENCE unlogged IS 'preset=discord';
SELECT snowflake_nextval('unlogged');
ALTER SEQUENCE unlogged SET LOGGED;
SELECT snowflake_nextval('unlogged') > 0 AS positive;

SET client_min_messages = warning;
DROP SCHEMA p CASCADE;
