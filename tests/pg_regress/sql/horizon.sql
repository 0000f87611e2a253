-- The horizon: what a user reads who asks for it in the wrong place.
\set VERBOSITY verbose
\set SHOW_CONTEXT never
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), what text);
INSERT INTO events (what) VALUES ('first');
-- The horizon passes an ID once its transaction has ended and its tick is over.
SELECT pg_sleep(0.005);
SELECT snowflake_horizon() AS horizon \gset
SELECT what FROM events WHERE id >= 0 AND id < :horizon;
SELECT (snowflake_decode(:horizon)).sequence, (snowflake_decode(:horizon)).worker_id;
SELECT snowflake_horizon('snowflake_default') >= :horizon AS goes_on;
-- A query that reads tables began before the horizon.
SELECT * FROM events WHERE id < snowflake_horizon();
-- Parameters are computed after the prepared query has begun.
PREPARE poll(bigint) AS SELECT what FROM events WHERE id < $1;
EXECUTE poll(snowflake_horizon());
EXECUTE poll(:horizon);
DEALLOCATE poll;
-- So did the transaction.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake_horizon();
ROLLBACK;
\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT snowflake_horizon();
ROLLBACK;
\set VERBOSITY verbose
-- Generators whose IDs do not ascend.
SELECT snowflake_create_generator('reversed', 'layout=''time_reversed:41 worker:10 sequence:12'' epoch=2025-01-01Z');
SELECT snowflake_horizon('reversed');
SELECT snowflake_create_generator('clocks', 'layout=''time:41 clock:2 worker:8 sequence:12'' epoch=2025-01-01Z on_rollback=next_clock');
SELECT snowflake_horizon('clocks');
SELECT snowflake_create_generator('shard_first', 'layout=''worker:10 time:41 sequence:12'' epoch=2025-01-01Z');
SELECT snowflake_horizon('shard_first');
SELECT snowflake_create_generator('shuffled', 'preset=default sequence_start=random');
SELECT snowflake_horizon('shuffled') > 0 AS has_one;
SELECT snowflake_horizon(NULL);
SELECT snowflake_horizon('events');
-- Who holds it back.
BEGIN;
INSERT INTO events (what) VALUES ('second');
SELECT pid = pg_backend_pid() AS is_mine, gid, generator, since = snowflake_timestamp(max(id)) AS is_of_its_id, held_for >= '0' AS since_then, state
    FROM snowflake_horizon_holders, events GROUP BY 1, 2, 3, since, 5, 6;
COMMIT;
SELECT count(*) FROM snowflake_horizon_holders;
-- IDs from elsewhere.
CREATE TRIGGER ordered BEFORE INSERT OR UPDATE OF id ON events FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon();
-- Details have the present horizon.
\set VERBOSITY terse
INSERT INTO events VALUES (snowflake_encode('2025-06-01Z', 7, 0), 'old');
INSERT INTO events (what) VALUES ('own');
INSERT INTO events VALUES (NULL, 'null');
UPDATE events SET id = snowflake_encode('2025-06-01Z', 7, 0) WHERE what = 'own';
UPDATE events SET what = 'changed' WHERE what = 'own';
\set VERBOSITY verbose
CREATE TABLE keyless (id bigint);
CREATE TRIGGER ordered BEFORE INSERT ON keyless FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon();
INSERT INTO keyless VALUES (1);
CREATE OR REPLACE TRIGGER ordered BEFORE INSERT ON keyless FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('id');
INSERT INTO keyless VALUES (1);
-- A default that is chosen when a row is inserted names no generator.
ALTER TABLE keyless ALTER COLUMN id SET DEFAULT snowflake_nextval(current_setting('no.such', true)::regclass);
INSERT INTO keyless VALUES (1);
CREATE OR REPLACE TRIGGER ordered BEFORE INSERT ON keyless FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('no_such');
INSERT INTO keyless VALUES (1);
CREATE OR REPLACE TRIGGER ordered BEFORE INSERT ON keyless FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('id', 'clocks');
INSERT INTO keyless VALUES (1);
CREATE OR REPLACE TRIGGER ordered BEFORE INSERT ON keyless FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('id', 'shuffled');
INSERT INTO keyless VALUES (snowflake_nextval('shuffled')) RETURNING id > 0 AS taken;
INSERT INTO keyless VALUES (-5);
CREATE OR REPLACE TRIGGER ordered BEFORE INSERT ON keyless FOR EACH STATEMENT EXECUTE FUNCTION snowflake_check_horizon('id', 'shuffled');
INSERT INTO keyless VALUES (1);
SELECT snowflake_check_horizon();
DROP TABLE events, keyless;
DROP SEQUENCE reversed, clocks, shard_first, shuffled;
