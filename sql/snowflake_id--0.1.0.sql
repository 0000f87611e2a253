-- What this version installed, made by: tests/run freeze COMMIT
-- Nobody edits this file: the changes since are in the scripts that lead from it to later
-- versions. CONTRIBUTING.md says how a version is released.
-- CREATE EXTENSION runs this script, then the others of this folder in the order that
-- install_into() in tests/env.sh has: `make install` joins them to one. The C functions are in
-- src/pg/sql; only these scripts give them what a user sees (names of arguments, volatility,
-- COMMENT).

-- The default generator is a sequence whose value is the mark: no ID of an instant at
-- or after the mark, in Unix milliseconds, has been issued. With these bounds plain
-- nextval() cannot move the mark.
CREATE SEQUENCE snowflake_default AS bigint
    INCREMENT BY 9223372036854775807 MINVALUE 1 MAXVALUE 9223372036854775807
    START WITH 9223372036854775807 NO CYCLE;
-- This value means "no mark yet", and makes nextval() fail from the start.
SELECT pg_catalog.setval('snowflake_default', 9223372036854775807, true);
COMMENT ON SEQUENCE snowflake_default IS
    'default snowflake generator; its value is the mark: no ID from this instant on (Unix milliseconds) has been issued';
GRANT USAGE, SELECT ON SEQUENCE snowflake_default TO PUBLIC;
-- A role that restores a dump of this database must set the mark. The grantee is
-- pg_database_owner, since that role cannot be dropped: a dump would still name a
-- dropped role, and could not be restored.
GRANT UPDATE ON SEQUENCE snowflake_default TO pg_database_owner;
SELECT pg_catalog.pg_extension_config_dump('snowflake_default', '');

-- Functions that issue IDs are VOLATILE, since each call gives another ID, and PARALLEL
-- UNSAFE, since a reservation writes, and a parallel worker may not, as with nextval().

CREATE FUNCTION snowflake_nextval() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval';
COMMENT ON FUNCTION snowflake_nextval() IS
    'next ID of the default generator';

CREATE FUNCTION snowflake_nextval(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval';
COMMENT ON FUNCTION snowflake_nextval(regclass) IS
    'next ID of a generator';

CREATE FUNCTION snowflake_nextval_batch(count integer) RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 1000
    AS 'MODULE_PATHNAME', 'snowflake_nextval_batch';
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS
    'the next 1 to 100,000 IDs of the default generator, ascending';

CREATE FUNCTION snowflake_nextval_batch(count integer, generator regclass) RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 1000
    AS 'MODULE_PATHNAME', 'snowflake_nextval_batch';
COMMENT ON FUNCTION snowflake_nextval_batch(integer, regclass) IS
    'the next 1 to 100,000 IDs of a generator, ascending';

CREATE FUNCTION snowflake_nextval_block(count integer) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval_block';
COMMENT ON FUNCTION snowflake_nextval_block(integer) IS
    'takes count consecutive IDs of the default generator, and returns the first';

CREATE FUNCTION snowflake_nextval_block(count integer, generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval_block';
COMMENT ON FUNCTION snowflake_nextval_block(integer, regclass) IS
    'takes count consecutive IDs of a generator, and returns the first';

-- These functions are for generators whose label leaves fields to the caller. The
-- caller chooses the values of these fields; IDs are unique whatever the values are.

CREATE FUNCTION snowflake_nextval_with(fields jsonb) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval_with';
COMMENT ON FUNCTION snowflake_nextval_with(jsonb) IS
    'next ID of the default generator, which leaves no fields to the caller';

CREATE FUNCTION snowflake_nextval_with(fields jsonb, generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_nextval_with';
COMMENT ON FUNCTION snowflake_nextval_with(jsonb, regclass) IS
    'next ID of a generator, with the fields that its label leaves to the caller, such as {"tenant": 42}';

CREATE FUNCTION snowflake_nextval_batch_with(count integer, fields jsonb) RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 1000
    AS 'MODULE_PATHNAME', 'snowflake_nextval_batch_with';
COMMENT ON FUNCTION snowflake_nextval_batch_with(integer, jsonb) IS
    'the next 1 to 100,000 IDs of the default generator, which leaves no fields to the caller';

CREATE FUNCTION snowflake_nextval_batch_with(count integer, fields jsonb, generator regclass) RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 1000
    AS 'MODULE_PATHNAME', 'snowflake_nextval_batch_with';
COMMENT ON FUNCTION snowflake_nextval_batch_with(integer, jsonb, regclass) IS
    'the next 1 to 100,000 IDs of a generator, all with the same fields of the caller';

CREATE FUNCTION snowflake_currval() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_currval';
COMMENT ON FUNCTION snowflake_currval() IS
    'last ID that this session got from the default generator';

CREATE FUNCTION snowflake_currval(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_currval';
COMMENT ON FUNCTION snowflake_currval(regclass) IS
    'last ID that this session got from a generator';

-- Functions that decode and encode are IMMUTABLE for the default generator, whose
-- layout never changes, and for the text of a label (_as), which contains the layout.
-- So indexes, generated columns and partition pruning can use them. For a generator,
-- whose label may change, they are STABLE. All are STRICT (NULL gives NULL) and
-- PARALLEL SAFE (they read only their arguments and the catalog). Functions of one name
-- share a C function, which tells them apart by the number of arguments.

CREATE FUNCTION snowflake_decode(
    id bigint,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_decode';
COMMENT ON FUNCTION snowflake_decode(bigint) IS
    'the parts of an ID of the default generator, in one row';

CREATE FUNCTION snowflake_decode(
    id bigint, generator regclass,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_decode';
COMMENT ON FUNCTION snowflake_decode(bigint, regclass) IS
    'the parts of an ID of a generator, in one row';

CREATE FUNCTION snowflake_decode_as(
    id bigint, layout text,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_decode_as';
COMMENT ON FUNCTION snowflake_decode_as(bigint, text) IS
    'the parts of an ID, by the text of a label such as ''preset=discord'', in one row';

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_timestamp';
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS
    'when an ID of the default generator was made, to the millisecond';

CREATE FUNCTION snowflake_timestamp(id bigint, generator regclass) RETURNS timestamptz
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_timestamp';
COMMENT ON FUNCTION snowflake_timestamp(bigint, regclass) IS
    'when an ID of a generator was made, to the tick';

CREATE FUNCTION snowflake_timestamp_as(id bigint, layout text) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_timestamp_as';
COMMENT ON FUNCTION snowflake_timestamp_as(bigint, text) IS
    'when an ID was made, to the tick, by the text of a label';

CREATE FUNCTION snowflake_worker_id(id bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_worker_id';
COMMENT ON FUNCTION snowflake_worker_id(bigint) IS
    'worker ID of the server that made an ID of the default generator';

CREATE FUNCTION snowflake_worker_id(id bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_worker_id';
COMMENT ON FUNCTION snowflake_worker_id(bigint, regclass) IS
    'worker ID of the server that made an ID of a generator; null if the layout has none';

CREATE FUNCTION snowflake_worker_id_as(id bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_worker_id_as';
COMMENT ON FUNCTION snowflake_worker_id_as(bigint, text) IS
    'worker ID of the server that made an ID, by the text of a label; null if the layout has none';

CREATE FUNCTION snowflake_sequence(id bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_sequence';
COMMENT ON FUNCTION snowflake_sequence(bigint) IS
    'sequence number of an ID of the default generator within its millisecond';

CREATE FUNCTION snowflake_sequence(id bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_sequence';
COMMENT ON FUNCTION snowflake_sequence(bigint, regclass) IS
    'sequence number of an ID of a generator within its tick';

CREATE FUNCTION snowflake_sequence_as(id bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_sequence_as';
COMMENT ON FUNCTION snowflake_sequence_as(bigint, text) IS
    'sequence number of an ID within its tick, by the text of a label';

CREATE FUNCTION snowflake_encode(created_at timestamptz, worker_id bigint, sequence bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_encode';
COMMENT ON FUNCTION snowflake_encode(timestamptz, bigint, bigint) IS
    'the ID of the default generator with these parts; the generator may issue the same ID later';

CREATE FUNCTION snowflake_encode(created_at timestamptz, worker_id bigint, sequence bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_encode';
COMMENT ON FUNCTION snowflake_encode(timestamptz, bigint, bigint, regclass) IS
    'the ID of a generator with these parts; the generator may issue the same ID later';

CREATE FUNCTION snowflake_encode_as(created_at timestamptz, worker_id bigint, sequence bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_encode_as';
COMMENT ON FUNCTION snowflake_encode_as(timestamptz, bigint, bigint, text) IS
    'the ID with these parts, by the text of a label';

CREATE FUNCTION snowflake_encode_as(created_at timestamptz, fields jsonb, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_encode_as';
COMMENT ON FUNCTION snowflake_encode_as(timestamptz, jsonb, text) IS
    'the ID with these fields by name, as snowflake_decode_as() returns them; fixed fields may be omitted';

CREATE FUNCTION snowflake_min_id(at timestamptz) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_min_id';
COMMENT ON FUNCTION snowflake_min_id(timestamptz) IS
    'least ID of the millisecond that holds an instant: id >= snowflake_min_id(a) AND id < snowflake_min_id(b)';

CREATE FUNCTION snowflake_min_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_min_id';
COMMENT ON FUNCTION snowflake_min_id(timestamptz, regclass) IS
    'least ID of a generator in the tick that holds an instant';

CREATE FUNCTION snowflake_min_id_as(at timestamptz, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_min_id_as';
COMMENT ON FUNCTION snowflake_min_id_as(timestamptz, text) IS
    'least ID in the tick that holds an instant, by the text of a label';

CREATE FUNCTION snowflake_max_id(at timestamptz) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_max_id';
COMMENT ON FUNCTION snowflake_max_id(timestamptz) IS
    'greatest ID of the millisecond that holds an instant';

CREATE FUNCTION snowflake_max_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_max_id';
COMMENT ON FUNCTION snowflake_max_id(timestamptz, regclass) IS
    'greatest ID of a generator in the tick that holds an instant';

CREATE FUNCTION snowflake_max_id_as(at timestamptz, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_max_id_as';
COMMENT ON FUNCTION snowflake_max_id_as(timestamptz, text) IS
    'greatest ID in the tick that holds an instant, by the text of a label';

-- IDs as text, and masked. The results depend on the arguments only, and no version may
-- change them, since they are stored elsewhere: so all are IMMUTABLE, and a key is an
-- argument, not a setting.

CREATE FUNCTION snowflake_to_text(id bigint, alphabet text DEFAULT 'base32') RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_to_text';
COMMENT ON FUNCTION snowflake_to_text(bigint, text) IS
    'an ID as text that sorts as the IDs do with COLLATE "C": 13 characters of Crockford''s base32, or 11 of base62';

CREATE FUNCTION snowflake_from_text(id_text text, alphabet text DEFAULT 'base32') RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_from_text';
COMMENT ON FUNCTION snowflake_from_text(text, text) IS
    'the ID of a text of snowflake_to_text()';

CREATE FUNCTION snowflake_mask(id bigint, key bytea) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_mask';
COMMENT ON FUNCTION snowflake_mask(bigint, bytea) IS
    'another number for an ID, which tells neither time nor server nor count without the key of 16 bytes';

CREATE FUNCTION snowflake_unmask(masked bigint, key bytea) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_unmask';
COMMENT ON FUNCTION snowflake_unmask(bigint, bytea) IS
    'the ID of a number of snowflake_mask() with the same key';

CREATE FUNCTION snowflake_mask_text(id bigint, key bytea, version integer) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_mask_text';
COMMENT ON FUNCTION snowflake_mask_text(bigint, bytea, integer) IS
    'a masked ID as text of 14 characters: the version of the key, 1 to 31, as a digit of base32, and the masked number in base32';

CREATE FUNCTION snowflake_unmask_text(masked text, keys bytea[]) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_unmask_text';
COMMENT ON FUNCTION snowflake_unmask_text(text, bytea[]) IS
    'the ID of a text of snowflake_mask_text(); the key of version n is element n of the array';

CREATE FUNCTION snowflake_mask_version(masked text) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_mask_version';
COMMENT ON FUNCTION snowflake_mask_version(text) IS
    'version of the key of a text of snowflake_mask_text()';

-- Presets are constant. snowflake_explain() is STABLE, since it prints how long ago an
-- ID was made.

CREATE FUNCTION snowflake_presets(
    OUT preset text, OUT layout text, OUT epoch timestamptz, OUT tick interval,
    OUT ids_per_second bigint, OUT workers bigint, OUT ends_at timestamptz,
    OUT can_be_negative boolean, OUT negative_from timestamptz,
    OUT policy text, OUT label text, OUT origin text)
    RETURNS SETOF record
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE ROWS 18
    AS 'MODULE_PATHNAME', 'snowflake_presets';
COMMENT ON FUNCTION snowflake_presets() IS
    'the rows of view snowflake_presets';
CREATE VIEW snowflake_presets AS SELECT * FROM snowflake_presets();
COMMENT ON VIEW snowflake_presets IS
    'the schemes that a label can name as preset=...';
COMMENT ON COLUMN snowflake_presets.preset IS 'name of the preset in a label';
COMMENT ON COLUMN snowflake_presets.layout IS 'fields from high to low, with their bits, and the values of fixed fields';
COMMENT ON COLUMN snowflake_presets.epoch IS 'instant from which the time counts; null if the label must give the epoch';
COMMENT ON COLUMN snowflake_presets.tick IS 'unit of the time';
COMMENT ON COLUMN snowflake_presets.ids_per_second IS 'greatest number of IDs per second and worker ID';
COMMENT ON COLUMN snowflake_presets.workers IS 'number of worker IDs, if the label gives no field a value';
COMMENT ON COLUMN snowflake_presets.ends_at IS 'when the time of the layout ends; infinity if that is later than any timestamp; null if the label must give the epoch';
COMMENT ON COLUMN snowflake_presets.can_be_negative IS 'whether IDs can be negative';
COMMENT ON COLUMN snowflake_presets.negative_from IS 'instant from which IDs are negative; null if IDs are never negative, or can be negative at any time';
COMMENT ON COLUMN snowflake_presets.policy IS 'what a generator does when the clock is set back and when a tick is exhausted, and where sequence numbers start in a tick';
COMMENT ON COLUMN snowflake_presets.label IS 'label text that the name stands for';
COMMENT ON COLUMN snowflake_presets.origin IS 'where the scheme comes from';
GRANT SELECT ON snowflake_presets TO PUBLIC;

CREATE FUNCTION snowflake_explain(id bigint) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_explain';
COMMENT ON FUNCTION snowflake_explain(bigint) IS
    'an ID of the default generator drawn for a person: its bits, fields, instant, and what is left of the layout';

CREATE FUNCTION snowflake_explain(id bigint, generator regclass) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_explain';
COMMENT ON FUNCTION snowflake_explain(bigint, regclass) IS
    'an ID of a generator drawn for a person: its bits, fields, instant, and what is left of the layout';

CREATE FUNCTION snowflake_explain_as(id bigint, layout text) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_explain_as';
COMMENT ON FUNCTION snowflake_explain_as(bigint, text) IS
    'an ID drawn for a person, by the text of a label such as ''preset=discord''';

-- Functions for administration are VOLATILE and PARALLEL UNSAFE, since they write or
-- change the server's state. Here and below, only a superuser may grant EXECUTE on
-- functions that concern the whole database, as with pg_stat_reset().

CREATE FUNCTION snowflake_create_generator(name text, label text) RETURNS regclass
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_create_generator';
COMMENT ON FUNCTION snowflake_create_generator(text, text) IS
    'makes a generator: a sequence that has this name and label and holds the mark; returns the sequence';

CREATE FUNCTION snowflake_advance(generator regclass, id bigint) RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_advance_past_id';
COMMENT ON FUNCTION snowflake_advance(regclass, bigint) IS
    'makes all further IDs of a generator greater than an ID; returns the instant from which IDs start';

CREATE FUNCTION snowflake_advance(generator regclass, start timestamptz) RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_advance_to';
COMMENT ON FUNCTION snowflake_advance(regclass, timestamptz) IS
    'makes all further IDs of a generator start at an instant or later; returns the instant from which IDs start';

CREATE FUNCTION snowflake_accept_clock() RETURNS interval
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_accept_clock';
REVOKE EXECUTE ON FUNCTION snowflake_accept_clock() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_accept_clock() IS
    'accepts the wall clock of this server as right, after generators of this database have refused the clock; returns how far the clock had jumped';

-- Functions for monitoring are STABLE, like PostgreSQL's own functions for statistics,
-- and PARALLEL RESTRICTED, since only the leader has the counts that its session has
-- not added up yet.

CREATE FUNCTION snowflake_generators(
    OUT generator regclass, OUT worker_id integer,
    OUT last_id_at timestamptz, OUT reserved_until timestamptz,
    OUT ahead_by interval, OUT refused_since timestamptz, OUT gap_applied_at timestamptz,
    OUT ids_per_second bigint, OUT ends_at timestamptz, OUT problem text,
    OUT layout text, OUT epoch timestamptz, OUT tick interval, OUT policy text,
    OUT label text)
    RETURNS SETOF record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'snowflake_generators';
COMMENT ON FUNCTION snowflake_generators() IS
    'the rows of view snowflake_generators';
CREATE VIEW snowflake_generators AS SELECT * FROM snowflake_generators();
COMMENT ON VIEW snowflake_generators IS
    'the generators of this database, with the instants of their IDs and marks, and what their layouts hold';
COMMENT ON COLUMN snowflake_generators.generator IS 'the generator: a sequence whose value is its mark';
COMMENT ON COLUMN snowflake_generators.worker_id IS 'worker ID of this server; null if it is not set, or if the layout has no worker ID';
COMMENT ON COLUMN snowflake_generators.last_id_at IS 'instant of the latest ID; known while the server runs and the generator keeps its place in shared memory';
COMMENT ON COLUMN snowflake_generators.reserved_until IS 'the mark: all IDs lie before this instant';
COMMENT ON COLUMN snowflake_generators.ahead_by IS 'how far the next ID would be ahead of the wall clock';
COMMENT ON COLUMN snowflake_generators.refused_since IS 'since when, because of the clock, IDs are refused, or the mark cannot be raised and IDs will soon be refused; null if all is well';
COMMENT ON COLUMN snowflake_generators.gap_applied_at IS 'when the generator last skipped a failover gap; known while the server runs and the generator keeps its place in shared memory';
COMMENT ON COLUMN snowflake_generators.ids_per_second IS 'greatest number of IDs per second that the layout holds';
COMMENT ON COLUMN snowflake_generators.ends_at IS 'when the time of the layout ends; infinity if that is later than any timestamp';
COMMENT ON COLUMN snowflake_generators.problem IS 'why this server can issue no IDs of the generator, or that another transaction has locked the generator, and what helps; null if there is no problem';
COMMENT ON COLUMN snowflake_generators.layout IS 'fields of an ID from high to low, with their bits, and the values of fixed fields';
COMMENT ON COLUMN snowflake_generators.epoch IS 'instant from which the time of IDs counts';
COMMENT ON COLUMN snowflake_generators.tick IS 'unit of the time of IDs';
COMMENT ON COLUMN snowflake_generators.label IS 'the label as it was set';
COMMENT ON COLUMN snowflake_generators.policy IS 'what a generator does when the clock is set back and when a tick is exhausted, and where sequence numbers start in a tick';
GRANT SELECT ON snowflake_generators TO PUBLIC;

CREATE FUNCTION pg_stat_snowflake(
    OUT generator regclass, OUT issued bigint, OUT batches bigint,
    OUT waits bigint, OUT wait_time double precision, OUT borrowed bigint,
    OUT refusals bigint, OUT clock_rollbacks bigint, OUT largest_rollback interval,
    OUT reservations bigint, OUT reservation_time double precision,
    OUT stats_reset timestamptz)
    RETURNS SETOF record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'pg_stat_snowflake';
COMMENT ON FUNCTION pg_stat_snowflake() IS
    'the rows of view pg_stat_snowflake';
CREATE VIEW pg_stat_snowflake AS SELECT * FROM pg_stat_snowflake();
COMMENT ON VIEW pg_stat_snowflake IS
    'numbers of the generators of this database, counted from stats_reset';
COMMENT ON COLUMN pg_stat_snowflake.generator IS 'the generator: a sequence whose value is its mark';
COMMENT ON COLUMN pg_stat_snowflake.issued IS 'IDs issued, also to transactions that were rolled back and for rows of a batch that were not fetched';
COMMENT ON COLUMN pg_stat_snowflake.batches IS 'calls of snowflake_nextval_batch()';
COMMENT ON COLUMN pg_stat_snowflake.waits IS 'calls that waited for the clock, because too many IDs were asked for or because the clock was set back';
COMMENT ON COLUMN pg_stat_snowflake.wait_time IS 'time that calls waited for the clock, in milliseconds';
COMMENT ON COLUMN pg_stat_snowflake.borrowed IS 'IDs issued ahead of the generator''s clock, because a tick was exhausted';
COMMENT ON COLUMN pg_stat_snowflake.refusals IS 'calls that got no ID because of the clock, an exhausted tick, or the end of the layout''s time';
COMMENT ON COLUMN pg_stat_snowflake.clock_rollbacks IS 'number of times that the wall clock was found set back';
COMMENT ON COLUMN pg_stat_snowflake.largest_rollback IS 'greatest distance by which the wall clock was found set back';
COMMENT ON COLUMN pg_stat_snowflake.reservations IS 'number of times that the mark was raised';
COMMENT ON COLUMN pg_stat_snowflake.reservation_time IS 'time that raising the mark took, in milliseconds';
COMMENT ON COLUMN pg_stat_snowflake.stats_reset IS 'when the numbers were last set to 0';
GRANT SELECT ON pg_stat_snowflake TO PUBLIC;

-- What tells about other servers is shown to roles that may read all statistics.
CREATE FUNCTION snowflake_worker(
    OUT worker_id integer, OUT source text, OUT registry text, OUT pool text, OUT token text,
    OUT bound timestamptz, OUT leased_until timestamptz, OUT last_contact timestamptz,
    OUT last_error text, OUT since timestamptz)
    RETURNS record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'snowflake_worker';
COMMENT ON FUNCTION snowflake_worker() IS
    'the row of view snowflake_worker';
CREATE VIEW snowflake_worker AS SELECT * FROM snowflake_worker();
COMMENT ON VIEW snowflake_worker IS
    'the worker ID of this server, and its lease if the server has a registry';
COMMENT ON COLUMN snowflake_worker.worker_id IS 'worker ID in force on this server; null if it has none';
COMMENT ON COLUMN snowflake_worker.source IS
    'where the worker ID comes from: setting (snowflake_id.worker_id), hostname or env (snowflake_id.worker_id_from), registry (any of the pool), or none';
COMMENT ON COLUMN snowflake_worker.registry IS 'host, port and database of the registry; shown to roles that may read all statistics';
COMMENT ON COLUMN snowflake_worker.pool IS 'pool of the registry; null without a registry';
COMMENT ON COLUMN snowflake_worker.token IS 'the lease, as in view snowflake_workers of the registry; shown to roles that may read all statistics';
COMMENT ON COLUMN snowflake_worker.bound IS 'this server issues no ID of this instant or later before the registry has renewed its lease; null without a lease';
COMMENT ON COLUMN snowflake_worker.leased_until IS 'when the lease ends if it is not renewed, by the clock of the registry';
COMMENT ON COLUMN snowflake_worker.last_contact IS 'when the registry last answered';
COMMENT ON COLUMN snowflake_worker.last_error IS 'why the registry does not give what this server asks for; null if it does; shown to roles that may read all statistics';
COMMENT ON COLUMN snowflake_worker.since IS 'since when this server has the worker ID';
GRANT SELECT ON snowflake_worker TO PUBLIC;

CREATE FUNCTION snowflake_stat_reset() RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_stat_reset';
REVOKE EXECUTE ON FUNCTION snowflake_stat_reset() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_stat_reset() IS
    'sets the numbers of pg_stat_snowflake to 0 for all generators of this database';

CREATE FUNCTION snowflake_stat_reset(generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'snowflake_stat_reset';
REVOKE EXECUTE ON FUNCTION snowflake_stat_reset(regclass) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_stat_reset(regclass) IS
    'sets the numbers of pg_stat_snowflake to 0 for a generator';

-- This function is VOLATILE and PARALLEL UNSAFE, since it asks other servers, and not
-- STRICT: NULL for the servers has a meaning. Only a superuser may call it or grant
-- EXECUTE, since libpq takes what a conninfo leaves open from the files and the user of
-- the server: passwords, certificates, peer authentication.
CREATE FUNCTION snowflake_check_cluster(
    servers text[] DEFAULT NULL,
    OUT severity text, OUT finding text, OUT server text, OUT other_server text,
    OUT detail text, OUT hint text)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_check_cluster';
REVOKE EXECUTE ON FUNCTION snowflake_check_cluster(text[]) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_check_cluster(text[]) IS
    'compares this server with others, given as conninfos, URLs or foreign servers, by default the nodes of Citus; one row for each finding. It connects as the server''s operating system user and with that user''s passwords, so only superusers may call it, and roles to which they grant it';
-- snowflake_set_default() makes a generator the default of a key column.
--
-- The steps, all in the caller's transaction and with at most the caller's rights:
--
-- 1. check that this is a whole table and the caller's: before any lock, so that
--    strangers cannot take one, and again under the lock;
-- 2. lock the table with all its descendants, as ALTER TABLE would: nobody inserts
--    until the transaction ends;
-- 3. find the column; refuse what is impossible, here and in columns that refer to it;
-- 4. refuse existing values at or above the IDs to come, and tables that do not take
--    these IDs. Values and conditions are read as the table's owner, since code
--    attached to the table is the owner's;
-- 5. ALTER TABLE, which reaches all descendants; look whether it has reached them.
--
-- A table that Citus distributes has its default on all nodes: before the lock, all of
-- them are asked whether they can issue (citus.sql). Citus does not change the default of
-- a distribution column, so such a table is made a local one between the checks and the
-- change, and distributed again after it.
--
-- No function here is SECURITY DEFINER. The functions named snowflake_internal_... are
-- parts of this one, and grant nothing: whoever calls one alone sees what the catalogs
-- show to everybody, or gets the error of a missing privilege.
--
-- Each function has a search_path with no schema in which others may create objects. So
-- unqualified names and operators below are PostgreSQL's own, and PostgreSQL writes
-- users' objects with their schemas. In a statement made by format(), %I is a name, %L
-- a literal, and %s what PostgreSQL has written as SQL: a regclass or a type, which are
-- quoted names, or an expression of the catalogs. The price: event triggers that fire on
-- our ALTER TABLE run with this search_path, and need one of their own.
--
-- In a REPEATABLE READ transaction the catalogs are read as of its first statement. A
-- table that another session has changed since then leads to an error, or to a message
-- about its former state, and a foreign key that was made since then is not checked.
-- Values are always read as of now.

-- The next three are the only parts that SQL cannot have; src/pg/sql/column.rs has them.

CREATE FUNCTION snowflake_internal_ids_to_come(
    generator regclass, value bigint,
    OUT source regclass, OUT is_default boolean, OUT bits integer,
    OUT next_id bigint, OUT sorted boolean, OUT reached text, OUT can_advance boolean)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_ids_to_come';
COMMENT ON FUNCTION snowflake_internal_ids_to_come(regclass, bigint) IS
    'internal, for snowflake_set_default(): locks a generator, by default the default one, and returns how many bits its IDs have, the next ID, whether all later IDs are above it, when IDs reach a value, and whether snowflake_advance() can go beyond that value';

CREATE FUNCTION snowflake_internal_warn_if_not_ready(generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_warn_if_not_ready';
COMMENT ON FUNCTION snowflake_internal_warn_if_not_ready(regclass) IS
    'internal, for snowflake_set_default(): warns if this server has no worker ID that the generator can use';

CREATE FUNCTION snowflake_internal_read_as_owner(relation regclass, query text) RETURNS text
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_as_owner';
COMMENT ON FUNCTION snowflake_internal_read_as_owner(regclass, text) IS
    'internal, for snowflake_set_default(): the value that a query returns, as of now, read as the owner of a table, whose rights the caller must have, and in a security-restricted operation as REINDEX is';

CREATE FUNCTION snowflake_internal_name(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- The schema of temporary tables has a number, which says nothing to people.
    SELECT CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END
        || '.' || quote_ident(c.relname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = relation
$$;
COMMENT ON FUNCTION snowflake_internal_name(regclass) IS
    'internal, for snowflake_set_default(): the qualified name of a relation, for messages';

CREATE FUNCTION snowflake_internal_base_type(
    type oid, typmod integer, OUT base regtype, OUT modifier integer)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A domain's own modifier, as in a domain over numeric(10,2), is its base type's.
    WITH RECURSIVE types (id, modifier, depth) AS (
        SELECT type, typmod, 0
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, s.depth + 1
        FROM types AS s JOIN pg_type AS t ON t.oid = s.id AND t.typtype = 'd')
    SELECT s.id::regtype, s.modifier FROM types AS s ORDER BY s.depth DESC LIMIT 1
$$;
COMMENT ON FUNCTION snowflake_internal_base_type(oid, integer) IS
    'internal, for snowflake_set_default(): the type and modifier of a column, with domains replaced by their base types';

CREATE FUNCTION snowflake_internal_family(
    relation regclass, column_name name,
    OUT member regclass, OUT number smallint, OUT identity "char",
    OUT expression text, OUT functions oid[])
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE family (id) AS (
        SELECT relation::oid
        UNION
        SELECT i.inhrelid FROM family AS f JOIN pg_inherits AS i ON i.inhparent = f.id)
    SELECT c.oid::regclass, a.attnum, a.attidentity, pg_get_expr(d.adbin, d.adrelid),
        ARRAY(SELECT p.refobjid FROM pg_depend AS p
              WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                AND p.refclassid = 'pg_proc'::regclass)
    FROM family AS f
    JOIN pg_class AS c ON c.oid = f.id
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = column_name AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    ORDER BY c.oid <> relation, n.nspname, c.relname
$$;
COMMENT ON FUNCTION snowflake_internal_family(regclass, name) IS
    'internal, for snowflake_set_default(): a column in its table, which comes first, and in all partitions and child tables, with its default and the functions that the default calls';

CREATE FUNCTION snowflake_internal_check_table(relation regclass, column_name name) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    class pg_class;
    table_name text := @extschema@.snowflake_internal_name(relation);
    root text;
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = relation;
    -- The second condition is about the present, as the head of this file explains.
    IF NOT FOUND OR pg_table_is_visible(relation) IS NULL THEN
        RAISE EXCEPTION 'relation with OID % does not exist', relation::oid
            USING ERRCODE = 'undefined_table';
    ELSIF class.relkind = 'v' THEN
        RAISE EXCEPTION '% is not a table', table_name
            USING ERRCODE = 'wrong_object_type', DETAIL = 'A view keeps no rows.',
            HINT = 'Name the table that keeps its rows.';
    ELSIF class.relkind = 'f' THEN
        RAISE EXCEPTION '% is a foreign table', table_name
            USING ERRCODE = 'wrong_object_type',
            DETAIL = 'Rows that are inserted where they are kept would not get a default that is set here.',
            HINT = 'Set the default where its rows are kept.';
    ELSIF class.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% is not a table', table_name
            USING ERRCODE = 'wrong_object_type', HINT = 'Name a table, partitioned or not.';
    ELSIF relation::oid < 12000 THEN
        -- FirstUnpinnedObjectId: PostgreSQL itself tells its catalogs by this number.
        RAISE EXCEPTION 'permission denied: % is a system catalog', table_name
            USING ERRCODE = 'insufficient_privilege';
    ELSIF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of table %', table_name
            USING ERRCODE = 'insufficient_privilege',
            HINT = format('Role %I owns it: that role and its members can do this.',
                pg_get_userbyid(class.relowner));
    ELSIF class.relpersistence = 't' AND class.relnamespace <> pg_my_temp_schema() THEN
        RAISE EXCEPTION '% is a temporary table of another session', table_name
            USING ERRCODE = 'feature_not_supported';
    ELSIF class.relispartition THEN
        root := @extschema@.snowflake_internal_name(pg_partition_root(relation));
        RAISE EXCEPTION 'cannot set the default of partition % apart from table %', table_name, root
            USING ERRCODE = 'wrong_object_type',
            DETAIL = 'Rows that are inserted through a partitioned table get the default of that table, not of the partition.',
            HINT = format('Set it on table %s, which reaches all partitions: snowflake_set_default(%s)',
                root, concat_ws(', ', quote_literal(root), quote_literal(column_name)));
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_table(regclass, name) IS
    'internal, for snowflake_set_default(): refuses what is no table, a part of a table, or not the caller''s';

CREATE FUNCTION snowflake_internal_key_column(relation regclass, column_name name) RETURNS name
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := @extschema@.snowflake_internal_name(relation);
    key smallint[] := (SELECT k.conkey FROM pg_constraint AS k
                       WHERE k.conrelid = relation AND k.contype = 'p');
    example name;
    advice text := 'Name the column that the IDs are for, which needs to be of type bigint.';
    it pg_attribute;
    described text;
    alter_column text;
    declared text;
BEGIN
    IF column_name IS NULL AND cardinality(key) IS DISTINCT FROM 1 THEN
        -- The example is the column most likely meant: a number that refers to no other
        -- table, of the primary key if there is one. A column that counts comes first,
        -- then a bigint, then the last of a key and the first of a table.
        SELECT a.attname INTO example
        FROM pg_attribute AS a
        CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS t
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attgenerated = '' AND (key IS NULL OR a.attnum = ANY (key))
          AND t.base IN ('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype)
          AND NOT EXISTS (
              SELECT FROM pg_constraint AS f
              WHERE f.conrelid = a.attrelid AND f.contype = 'f' AND a.attnum = ANY (f.conkey))
        ORDER BY (a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE '%nextval(%') DESC,
            t.base = 'bigint'::regtype DESC, array_position(key, a.attnum) DESC, a.attnum
        LIMIT 1;
        IF FOUND THEN
            advice := format('Name the column, as in snowflake_set_default(%L, %L)', table_name, example);
        END IF;
        IF key IS NULL THEN
            RAISE EXCEPTION 'table % has no primary key', table_name
                USING ERRCODE = 'undefined_object', HINT = advice;
        END IF;
        RAISE EXCEPTION 'primary key of table % has more than one column', table_name
            USING ERRCODE = 'ambiguous_column', HINT = advice,
            DETAIL = format('Its columns are: %s.', (
                SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)),
                    ', ' ORDER BY array_position(key, a.attnum))
                FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum = ANY (key)));
    END IF;

    SELECT a.* INTO it FROM pg_attribute AS a
    WHERE a.attrelid = relation AND NOT a.attisdropped
      AND CASE WHEN column_name IS NULL THEN a.attnum = key[1] ELSE a.attname = column_name END;
    described := format('column "%s" of table %s', coalesce(it.attname, column_name), table_name);
    alter_column := format('ALTER TABLE %s ALTER COLUMN %I', table_name, coalesce(it.attname, column_name));
    IF NOT FOUND THEN
        RAISE EXCEPTION '% does not exist', described
            USING ERRCODE = 'undefined_column',
            HINT = 'Give the name as it is stored: without quotes, and in lower case unless it was created in quotes.';
    ELSIF it.attnum < 1 THEN
        RAISE EXCEPTION '% is a system column', described
            USING ERRCODE = 'feature_not_supported';
    ELSIF it.attgenerated <> '' THEN
        RAISE EXCEPTION '% is a generated column', described
            USING ERRCODE = 'generated_always',
            DETAIL = 'Its values are computed from other columns: it has no default.',
            -- A column that is not stored has no values to keep.
            HINT = CASE it.attgenerated
                WHEN 's' THEN format('To make it a plain column that keeps its values: %s DROP EXPRESSION', alter_column)
                ELSE 'Add a bigint column for the IDs.' END;
    ELSIF (@extschema@.snowflake_internal_base_type(it.atttypid, it.atttypmod)).base <> 'bigint'::regtype THEN
        declared := format_type(it.atttypid, it.atttypmod);
        RAISE EXCEPTION '% is of type %, not bigint', described, declared
            USING ERRCODE = 'datatype_mismatch', DETAIL = 'IDs have up to 63 bits.',
            HINT = CASE
                WHEN it.atttypid IN ('integer'::regtype, 'smallint'::regtype) THEN
                    format('Change it first, and columns that refer to it too; each change rewrites its table: %s TYPE bigint', alter_column)
                ELSE 'Add a bigint column for the IDs.' END;
    END IF;
    RETURN it.attname;
END
$$;
COMMENT ON FUNCTION snowflake_internal_key_column(regclass, name) IS
    'internal, for snowflake_set_default(): the named column or that of the primary key, if it is one that can have the default';

CREATE FUNCTION snowflake_internal_check_references(
    relation regclass, column_name name, generator regclass, bits integer) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    narrow text;
    remedy text;
BEGIN
    -- A foreign key may refer to the table, or to one of its partitions or child tables,
    -- in which the column may have another number. PostgreSQL keeps copies of a foreign
    -- key for partitions (conparentid): the original says it all. The column of a
    -- partition is named, and can be altered, in the whole table only.
    WITH referring AS (
        SELECT DISTINCT @extschema@.snowflake_internal_name(a.attrelid) AS table_name,
            a.attnum, a.attname, a.atttypid, a.atttypmod
        FROM @extschema@.snowflake_internal_family(relation, column_name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f' AND k.conparentid = 0
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        JOIN pg_attribute AS a ON a.attrelid = coalesce(pg_partition_root(k.conrelid), k.conrelid)
            AND a.attname = h.attname
        WHERE u.there = f.number),
    -- How many bits of a whole number fit in each column; null if there is no limit. All
    -- numbers of so many bits have d decimal digits if 2 ^ bits <= 10 ^ d; with a scale
    -- below 0 the last digits are lost. A column that is no integer can refer to one
    -- where a cast allows it.
    room AS (
        SELECT r.*, CASE t.base
            WHEN 'smallint'::regtype THEN 15
            WHEN 'integer'::regtype THEN 31
            WHEN 'real'::regtype THEN 24
            WHEN 'double precision'::regtype THEN 53
            WHEN 'numeric'::regtype THEN
                CASE WHEN m[2]::integer < 0 THEN 0
                     ELSE floor((m[1]::integer - m[2]::integer)::numeric * log(2, 10)) END
            END AS bits
        FROM referring AS r
        CROSS JOIN @extschema@.snowflake_internal_base_type(r.atttypid, r.atttypmod) AS t
        CROSS JOIN regexp_match(format_type(t.base, t.modifier), '^numeric\((\d+),(-?\d+)\)$') AS m)
    SELECT string_agg(format('%s.%I is of type %s', r.table_name, r.attname, format_type(r.atttypid, r.atttypmod)),
            ', ' ORDER BY r.table_name, r.attnum),
        string_agg(format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint', r.table_name, r.attname),
            '; ' ORDER BY r.table_name, r.attnum)
    INTO narrow, remedy
    FROM room AS r
    WHERE r.bits < snowflake_internal_check_references.bits;

    IF narrow IS NOT NULL THEN
        RAISE EXCEPTION 'foreign keys that refer to column "%" of table % cannot hold IDs',
            column_name, @extschema@.snowflake_internal_name(relation)
            USING ERRCODE = 'datatype_mismatch',
            DETAIL = format('IDs of generator %s have up to %s bits, and %s.',
                @extschema@.snowflake_internal_name(generator), bits, narrow),
            HINT = format('Change them first; each change rewrites its table: %s', remedy);
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_references(regclass, name, regclass, integer) IS
    'internal, for snowflake_set_default(): refuses a column if columns refer to it that cannot hold IDs, since no row of theirs could refer to a new row';

-- A policy that hides rows from the owner is an error here: the greatest value may be
-- among them.
CREATE FUNCTION snowflake_internal_check_values(
    relation regclass, column_name name, generator regclass) RETURNS bigint
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    -- If the column has an index, this is its end.
    greatest_value bigint := @extschema@.snowflake_internal_read_as_owner(
        relation, format('SELECT max(%I) FROM %s', column_name, relation));
    ids record;
    table_name text := @extschema@.snowflake_internal_name(relation);
    generator_name text := @extschema@.snowflake_internal_name(generator);
BEGIN
    IF greatest_value IS NULL THEN
        RETURN NULL;
    END IF;
    ids := @extschema@.snowflake_internal_ids_to_come(generator, greatest_value);
    IF NOT ids.sorted THEN
        RAISE NOTICE 'values of %.% were not compared with IDs to come', table_name, quote_ident(column_name)
            USING DETAIL = format('IDs of generator %s do not sort by time, so that any value of the column may be issued a second time.', generator_name),
            HINT = 'A unique constraint refuses a row whose ID is there already.';
    ELSIF greatest_value >= ids.next_id THEN
        RAISE EXCEPTION 'column "%" of table % holds %, which is not below the IDs to come',
            column_name, table_name, greatest_value
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = format('IDs of generator %s are at %s now', generator_name, ids.next_id) || CASE
                WHEN ids.reached IS NOT NULL THEN
                    format(', and reach that value on %s. Until then its row sorts after newer rows; then it may be issued a second time.', ids.reached)
                ELSE '; that value is above all of them, and would sort after newer rows for ever.' END,
            HINT = CASE WHEN ids.can_advance THEN
                format('Make all further IDs greater, then call this again: SELECT snowflake_advance(%L, %s)', generator_name, greatest_value)
                ELSE 'That value is further ahead than snowflake_advance() goes. Find out where it comes from: give those rows other keys, or give the IDs a column of their own.' END;
    END IF;
    RETURN greatest_value;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_values(regclass, name, regclass) IS
    'internal, for snowflake_set_default(): refuses values that IDs to come could repeat or would sort before; returns the greatest value';

CREATE FUNCTION snowflake_internal_check_takes(
    relation regclass, column_name name, generator regclass) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it pg_attribute;
    next_id bigint := (@extschema@.snowflake_internal_ids_to_come(generator, NULL)).next_id;
    table_name text := @extschema@.snowflake_internal_name(relation);
    generator_name text := @extschema@.snowflake_internal_name(generator);
    condition record;
    holds boolean;
BEGIN
    SELECT a.* INTO it FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attname = column_name;
    -- Conditions of domains are tried one by one, the innermost domain's first: a cast
    -- would raise an error. A condition that is neither true nor false is no reason to
    -- refuse. The owner wrote the conditions, so they run as the owner.
    FOR condition IN
        WITH RECURSIVE domains AS (
            SELECT t.oid, t.typbasetype, 0 AS depth FROM pg_type AS t
            WHERE t.oid = it.atttypid AND t.typtype = 'd'
            UNION ALL
            SELECT t.oid, t.typbasetype, d.depth + 1
            FROM domains AS d JOIN pg_type AS t ON t.oid = d.typbasetype AND t.typtype = 'd')
        SELECT pg_get_expr(k.conbin, 0) AS code, format_type(d.typbasetype, NULL) AS type
        FROM domains AS d JOIN pg_constraint AS k ON k.contypid = d.oid AND k.contype = 'c'
        ORDER BY d.depth DESC, k.conname
    LOOP
        holds := @extschema@.snowflake_internal_read_as_owner(relation, format(
            'SELECT (%s) IS NOT FALSE FROM (SELECT %L::%s AS value) AS row', condition.code, next_id, condition.type));
        IF NOT holds THEN
            RAISE EXCEPTION 'column "%" of table % is of domain %, which refuses IDs',
                column_name, table_name, format_type(it.atttypid, it.atttypmod)
                USING ERRCODE = 'check_violation',
                DETAIL = format('ID %s of generator %s violates a constraint of the domain.', next_id, generator_name),
                HINT = 'Change the constraint, or the column''s type to bigint.';
        END IF;
    END LOOP;

    -- The next INSERT into a table that is partitioned by the column needs a partition
    -- for the ID. Sub-partitions, and keys of more than one column, are not checked. A
    -- default partition that is alone has no condition.
    SELECT coalesce(string_agg(coalesce('(' || pg_get_partition_constraintdef(i.inhrelid) || ')', 'true'), ' OR ')
            FILTER (WHERE i.inhrelid IS NOT NULL), 'false') AS code
    INTO condition
    FROM pg_partitioned_table AS p
    LEFT JOIN pg_inherits AS i ON i.inhparent = p.partrelid
    WHERE p.partrelid = relation AND p.partstrat IN ('l', 'r')
      AND p.partnatts = 1 AND p.partattrs[0] = it.attnum
    GROUP BY p.partrelid;
    IF FOUND THEN
        holds := @extschema@.snowflake_internal_read_as_owner(relation, format(
            'SELECT %s FROM (SELECT %L::bigint AS %I) AS row', condition.code, next_id, column_name));
        IF holds IS NOT TRUE THEN
            RAISE EXCEPTION 'no partition of table % takes IDs', table_name
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = format('It is partitioned by column "%s", and ID %s of generator %s fits none of its partitions.',
                    column_name, next_id, generator_name),
                HINT = format('Make one first, as in: CREATE TABLE ... PARTITION OF %s FOR VALUES FROM (snowflake_min_id(''2026-01-01Z'')) TO (snowflake_min_id(''2027-01-01Z''))', table_name);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_takes(regclass, name, regclass) IS
    'internal, for snowflake_set_default(): refuses a column whose domain refuses the next ID, and a table that is partitioned by the column and has no partition for the ID';

-- This function is not STRICT: NULL for the column or the generator has a meaning.
CREATE FUNCTION snowflake_set_default(
    relation regclass, column_name name DEFAULT NULL,
    generator regclass DEFAULT NULL, drop_sequence boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ids record;
    source_name text;
    issue regprocedure; -- the function that the default calls
    new_default text;   -- the default, as a statement has it
    wanted text;        -- the same, as PostgreSQL shows it with this search_path
    locked text;
    key name;
    table_name text;
    key_name text;
    owner oid;
    member record;
    first record;
    children integer := 0;
    all_set boolean := true;
    changes text[] := '{}';
    no_longer_always text[] := '{}';
    unused regclass[] := '{}'; -- sequences to drop
    fates text[] := '{}';      -- what becomes of all sequences
    greatest_value bigint;
    distribution jsonb;        -- null unless Citus knows the table
    is_rebuilt boolean := false;
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'table must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION 'cannot execute snowflake_set_default() in a read-only transaction'
            USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    PERFORM @extschema@.snowflake_internal_check_table(relation, column_name);

    ids := @extschema@.snowflake_internal_ids_to_come(generator, NULL);
    source_name := @extschema@.snowflake_internal_name(ids.source);
    IF ids.is_default THEN
        issue := '@extschema@.snowflake_nextval()';
        new_default := issue;
        wanted := issue;
    ELSE
        issue := '@extschema@.snowflake_nextval(regclass)';
        new_default := format('%s(%L::regclass)', issue::regproc, source_name);
        -- Unlike %L, PostgreSQL shows a backslash as it is.
        wanted := format('%s(''%s''::regclass)', issue::regproc, replace(source_name, '''', ''''''));
    END IF;

    distribution := @extschema@.snowflake_internal_distribution(relation);
    IF distribution IS NOT NULL THEN
        PERFORM @extschema@.snowflake_internal_check_nodes(ids.source,
            (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = relation));
    END IF;

    -- LOCK TABLE takes a name. If the table was renamed, dropped or moved to another
    -- schema while we waited, or if its name is another table's by now, we look again.
    LOOP
        locked := relation;
        BEGIN
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', locked);
        EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
            locked := NULL;
        END;
        PERFORM @extschema@.snowflake_internal_check_table(relation, column_name);
        EXIT WHEN locked = relation::text;
    END LOOP;

    key := @extschema@.snowflake_internal_key_column(relation, column_name);
    table_name := @extschema@.snowflake_internal_name(relation);
    key_name := format('%s.%I', table_name, key);

    -- All messages about the old defaults are made before they are gone.
    FOR member IN
        SELECT f.*, coalesce(f.expression = wanted, false) AND issue = ANY (f.functions) AS is_set,
            format('%s.%I', @extschema@.snowflake_internal_name(f.member), key) AS name
        FROM @extschema@.snowflake_internal_family(relation, key) AS f
    LOOP
        all_set := all_set AND member.is_set;
        IF member.member = relation THEN
            first := member;
        ELSE
            children := children + 1;
        END IF;
        -- A child is mentioned if its default or identity was its own.
        IF member.member = relation OR member.identity <> '' AND first.identity = ''
            OR member.expression <> coalesce(first.expression, '') AND NOT member.is_set
        THEN
            changes := changes || (member.name || ': ' || CASE
                WHEN member.identity <> '' THEN 'identity replaced by default ' || wanted
                WHEN member.is_set THEN format('default %s kept', wanted)
                WHEN member.expression IS NULL THEN 'default set to ' || wanted
                ELSE format('default %s replaced by %s', member.expression, wanted) END);
        END IF;
        -- What is said of the table holds for its descendants.
        IF member.identity = 'a' AND (member.member = relation OR first.identity <> 'a') THEN
            no_longer_always := no_longer_always || member.name;
        END IF;
    END LOOP;
    changes[1] := changes[1] || CASE children WHEN 0 THEN '' WHEN 1 THEN ', also in 1 child table'
        ELSE format(', also in %s child tables', children) END;

    -- These sequences would be dropped with the column.
    FOR member IN
        SELECT c.oid::regclass AS sequence, d.deptype
        FROM pg_depend AS d
        JOIN pg_class AS c ON c.oid = d.objid AND c.relkind = 'S'
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
          AND d.refobjid = relation AND d.refobjsubid = first.number AND d.deptype IN ('a', 'i')
          AND c.oid <> ids.source
        ORDER BY n.nspname, c.relname
    LOOP
        IF member.deptype <> 'i' AND drop_sequence THEN
            unused := unused || member.sequence;
        END IF;
        fates := fates || format('sequence %s %s', @extschema@.snowflake_internal_name(member.sequence), CASE
            WHEN member.deptype = 'i' THEN 'dropped with the identity'
            WHEN drop_sequence THEN 'dropped'
            ELSE 'kept' END);
    END LOOP;
    IF drop_sequence AND fates = '{}' THEN
        fates := ARRAY['no sequence is owned by the column'];
    END IF;

    IF all_set THEN
        -- The default may have stayed on this node. Citus sends it once more, unless the
        -- column is the distribution column.
        IF distribution->>'column' = key THEN
            PERFORM @extschema@.snowflake_internal_check_default(relation, key, ids.source);
        ELSIF distribution IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', relation, key, new_default);
        END IF;
        changes := ARRAY[format('%s: default is %s already', key_name, wanted)];
    ELSE
        IF distribution IS NOT NULL AND first.identity <> '' THEN
            RAISE EXCEPTION 'Citus cannot drop the identity of %', key_name
                USING ERRCODE = 'feature_not_supported',
                DETAIL = 'It can neither alter nor undistribute a table with an identity.',
                HINT = format('Make a table with %I bigint DEFAULT %s, distribute it, and copy the rows.', key, wanted);
        END IF;
        PERFORM @extschema@.snowflake_internal_check_references(relation, key, ids.source, ids.bits);
        greatest_value := @extschema@.snowflake_internal_check_values(relation, key, ids.source);
        PERFORM @extschema@.snowflake_internal_check_takes(relation, key, ids.source);
        changes := changes || coalesce('greatest value so far ' || greatest_value, 'no values so far');

        is_rebuilt := coalesce(distribution->>'column' = key, false);
        IF is_rebuilt THEN
            distribution := distribution || jsonb_build_object('comments',
                ARRAY(SELECT @extschema@.snowflake_internal_comments(relation)));
            relation := @extschema@.snowflake_internal_undistribute(relation, key, distribution);
        END IF;

        -- One by one, the table first: from 17 on, a partitioned table's identity goes
        -- with those of its partitions; any other identity belongs to one table.
        LOOP
            SELECT f.* INTO member FROM @extschema@.snowflake_internal_family(relation, key) AS f
            WHERE f.identity <> '' LIMIT 1;
            EXIT WHEN NOT FOUND;
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', member.member, key);
        END LOOP;
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', relation, key, new_default);
        -- Names stay the same under our lock, except those of schemas, which nothing
        -- locks. And in a REPEATABLE READ transaction an old default may still be seen.
        IF EXISTS (
            SELECT FROM @extschema@.snowflake_internal_family(relation, key) AS f
            WHERE f.expression IS DISTINCT FROM wanted OR issue <> ALL (f.functions))
        THEN
            RAISE EXCEPTION 'could not set the default of %', key_name
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Another session has renamed its schema, or has changed the table since this transaction began.',
                HINT = 'Try again.';
        END IF;

        -- From here on, what does not prevent the default, but keeps rows or users from
        -- using it, or changes what users may do.
        -- Inserting needs USAGE, setting a default does not: a table may be set up
        -- before its users are. But at least the table's owner is expected to insert.
        IF is_rebuilt THEN
            PERFORM @extschema@.snowflake_internal_distribute(relation, distribution);
            changes[1] := changes[1] || ', distributed again';
        END IF;
        owner := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = relation);
        IF NOT has_sequence_privilege(owner, ids.source, 'USAGE, UPDATE') THEN
            RAISE NOTICE 'role %, which owns table %, cannot get IDs of generator %',
                quote_ident(pg_get_userbyid(owner)), table_name, source_name
                USING HINT = format('Each role that inserts rows needs: GRANT USAGE ON SEQUENCE %s TO ...', source_name);
        END IF;
        -- A table may also be set up before its server is.
        PERFORM @extschema@.snowflake_internal_warn_if_not_ready(ids.source);
        -- If the column refers to another table's key, all rows may give its value.
        FOR member IN
            SELECT k.conname FROM pg_constraint AS k
            WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conrelid = relation
              AND first.number = ANY (k.conkey)
            ORDER BY k.conname
        LOOP
            RAISE NOTICE '% is a foreign key, constraint %', key_name, quote_ident(member.conname)
                USING HINT = 'A new ID is in no other table: rows that get an ID by default will violate the constraint.';
        END LOOP;
        FOR i IN 1 .. cardinality(no_longer_always) LOOP
            RAISE NOTICE '% is no longer GENERATED ALWAYS', no_longer_always[i]
                USING DETAIL = 'A default gives way to any value that a statement gives.',
                HINT = 'To keep values out, GRANT INSERT and UPDATE on the other columns only.';
        END LOOP;
    END IF;

    -- Another object that uses the sequence stops the drop; the error names it.
    FOR i IN 1 .. cardinality(unused) LOOP
        EXECUTE format('DROP SEQUENCE %s', unused[i]);
    END LOOP;
    RETURN array_to_string(changes || fates, '; ');
END
$$;
COMMENT ON FUNCTION snowflake_set_default(regclass, name, regclass, boolean) IS
    'makes a generator the default of a bigint column, by default that of the primary key, in place of the column''s default or identity; returns what was done';
-- The registry of worker IDs: it leases the worker IDs of pools to servers, so that no
-- two servers have the same one. src/snowflake/lease/registry.rs decides what is granted;
-- src/pg/registry.rs reads these tables for it, and stores what it says.
--
-- One row of snowflake_registry_state is the lock of the whole registry: every request
-- and every function of an administrator takes it first (SELECT ... FOR UPDATE).
--
-- Rows of snowflake_registry_leases are never deleted, not even with their pool: a later
-- pool of the namespace that has the worker ID goes on above what was issued.
--
-- The functions are SECURITY DEFINER, so that nobody needs a privilege on the tables,
-- and have a search_path with no schema in which others may create objects.
-- pg_database_owner may read the tables and add rows: pg_dump and a restore run by the
-- owner of the database do so. The grantee is no ordinary role, as for snowflake_default.
--
-- A registry can also be in etcd (src/pg/etcd): then the functions of administrators get
-- its URL, and read and change none of these tables. They serve superusers only.
--
-- Instants by the registry's clock are timestamptz. Instants by the clocks of servers are
-- bigint, in Unix milliseconds, since a clock can be wrong by any amount.

CREATE TABLE snowflake_registry_state (
    id integer PRIMARY KEY CHECK (id = 1),
    state jsonb NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE snowflake_registry_state IS
    'internal: what the registry of worker IDs stores beside its pools and leases, in one row; no row before the first pool';
COMMENT ON COLUMN snowflake_registry_state.id IS '1: there is one row';
COMMENT ON COLUMN snowflake_registry_state.state IS
    'era, serial number of the latest change, greatest time of the registry''s clock, latest loss of grants, whether the registry has stopped, clocks of the servers that asked last; instants in Unix milliseconds';

CREATE TABLE snowflake_registry_pools (
    name text PRIMARY KEY,
    namespace text NOT NULL,
    worker_ids int8range NOT NULL,
    except_ids int8multirange NOT NULL,
    spares integer NOT NULL,
    lease interval NOT NULL,
    hold interval NOT NULL,
    max_ahead interval NOT NULL,
    made timestamptz NOT NULL
);
COMMENT ON TABLE snowflake_registry_pools IS
    'internal: the pools of the registry of worker IDs, as snowflake_create_pool() was told; see view snowflake_pools';

CREATE TABLE snowflake_registry_leases (
    namespace text NOT NULL,
    worker_id integer NOT NULL,
    counter bigint NOT NULL,
    nonce uuid NOT NULL,
    released boolean NOT NULL,
    revoked timestamptz,
    system_identifier numeric(20) NOT NULL,
    boot_id uuid NOT NULL,
    device numeric(20) NOT NULL,
    inode numeric(20) NOT NULL,
    generator numeric(20) NOT NULL,
    started bigint NOT NULL,
    host text NOT NULL,
    address text NOT NULL,
    port integer NOT NULL,
    data_directory text NOT NULL,
    since timestamptz NOT NULL,
    floor bigint NOT NULL,
    start bigint NOT NULL,
    renewed boolean NOT NULL,
    leased_until timestamptz NOT NULL,
    bound bigint NOT NULL,
    number bigint NOT NULL,
    clock bigint NOT NULL,
    era bigint NOT NULL,
    contender jsonb,
    PRIMARY KEY (namespace, worker_id)
);
CREATE INDEX snowflake_registry_leases_until ON snowflake_registry_leases (namespace, leased_until);
CREATE INDEX snowflake_registry_leases_holder ON snowflake_registry_leases (system_identifier);
COMMENT ON INDEX snowflake_registry_leases_until IS 'internal: finds the leases that end first or last';
COMMENT ON INDEX snowflake_registry_leases_holder IS 'internal: finds the worker ID that a server had before';
COMMENT ON COLUMN snowflake_registry_pools.made IS 'before max_ahead has passed since then, no lease of the pool begins';
COMMENT ON COLUMN snowflake_registry_leases.namespace IS 'namespace of the pools that have the worker ID';
COMMENT ON COLUMN snowflake_registry_leases.counter IS 'how often the worker ID was granted; with the nonce, the token of the lease';
COMMENT ON COLUMN snowflake_registry_leases.nonce IS 'random number that this start of the holder has drawn';
COMMENT ON COLUMN snowflake_registry_leases.released IS 'the holder has given the worker ID back';
COMMENT ON COLUMN snowflake_registry_leases.revoked IS 'when an administrator has revoked the lease';
COMMENT ON COLUMN snowflake_registry_leases.boot_id IS 'boot ID of the holder''s kernel; with the next two and the system identifier, the identity of a server';
COMMENT ON COLUMN snowflake_registry_leases.device IS 'device of the holder''s data directory';
COMMENT ON COLUMN snowflake_registry_leases.inode IS 'inode of the holder''s data directory';
COMMENT ON COLUMN snowflake_registry_leases.generator IS
    'the generator of the holder that leases worker IDs of its own: OID of its database * 2^32 + OID of its sequence, or 0 instead of the latter for the default generator; 0: the server itself';
COMMENT ON COLUMN snowflake_registry_leases.started IS 'when this start of the holder began, in nanoseconds since its machine was booted';
COMMENT ON COLUMN snowflake_registry_leases.floor IS 'the holder issues no ID before this instant, by its clock';
COMMENT ON COLUMN snowflake_registry_leases.start IS 'the floor, or the holder''s clock when it got the lease if that was later';
COMMENT ON COLUMN snowflake_registry_leases.renewed IS 'the lease was renewed';
COMMENT ON COLUMN snowflake_registry_leases.bound IS 'no ID of this instant or later has been issued with the worker ID';
COMMENT ON COLUMN snowflake_registry_leases.number IS 'number of the holder''s latest request';
COMMENT ON COLUMN snowflake_registry_leases.clock IS 'the holder''s clock in that request';
COMMENT ON COLUMN snowflake_registry_leases.era IS 'era of the registry in which the lease was granted or last renewed';
COMMENT ON COLUMN snowflake_registry_leases.contender IS
    'a server that has claimed the worker ID since this lease began, and was refused; instants in Unix milliseconds';
COMMENT ON TABLE snowflake_registry_leases IS
    'internal: one row per worker ID that was ever granted, with its latest holder; never deleted; see view snowflake_workers';

REVOKE ALL ON snowflake_registry_state, snowflake_registry_pools, snowflake_registry_leases FROM PUBLIC;
GRANT SELECT, INSERT ON snowflake_registry_state, snowflake_registry_pools, snowflake_registry_leases
    TO pg_database_owner;
SELECT pg_catalog.pg_extension_config_dump('snowflake_registry_state', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake_registry_pools', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake_registry_leases', '');

CREATE FUNCTION snowflake_internal_millis(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT floor(extract(epoch FROM at) * 1000)::bigint $$;
COMMENT ON FUNCTION snowflake_internal_millis(timestamptz) IS
    'internal, for the registry: an instant in Unix milliseconds';

CREATE FUNCTION snowflake_internal_instant(millis bigint) RETURNS timestamptz
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- The limits lie in the years 287000 and -4000; timestamptz holds both.
    SELECT CASE WHEN millis > 9000000000000000 THEN 'infinity'
                WHEN millis < -190000000000000 THEN '-infinity'
                ELSE timestamptz 'epoch' + millis * interval '1 ms' END
$$;
COMMENT ON FUNCTION snowflake_internal_instant(bigint) IS
    'internal, for the registry: the instant of a number of Unix milliseconds';

CREATE FUNCTION snowflake_internal_lock_registry() RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_lock_registry';
REVOKE EXECUTE ON FUNCTION snowflake_internal_lock_registry() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_internal_lock_registry() IS
    'internal, for the functions of the registry: makes the registry if there is none, locks it until the transaction ends, and returns its time';

CREATE FUNCTION snowflake_lease(pool text, request jsonb) RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_lease';
REVOKE EXECUTE ON FUNCTION snowflake_lease(text, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_lease(text, jsonb) IS
    'for servers that lease a worker ID: acquires, renews or releases one, and returns the reply; the reply counts only once the transaction has committed, so the call is a transaction of its own';

CREATE FUNCTION snowflake_internal_create_etcd_pool(registry text, pool jsonb) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_create_etcd_pool';
REVOKE EXECUTE ON FUNCTION snowflake_internal_create_etcd_pool(text, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_internal_create_etcd_pool(text, jsonb) IS
    'internal, for snowflake_create_pool(): makes a pool in etcd, and the registry if there is none';

CREATE FUNCTION snowflake_internal_drop_etcd_pool(registry text, name text) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_drop_etcd_pool';
REVOKE EXECUTE ON FUNCTION snowflake_internal_drop_etcd_pool(text, text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_internal_drop_etcd_pool(text, text) IS
    'internal, for snowflake_drop_pool(): drops a pool in etcd';

CREATE FUNCTION snowflake_create_pool(
    name text, worker_ids int8range,
    lease interval DEFAULT '30 s', hold interval DEFAULT '30 s', max_ahead interval DEFAULT '1 min',
    except_ids int8multirange DEFAULT '{}', spares integer DEFAULT 0,
    namespace text DEFAULT 'default', registry text DEFAULT '') RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    beyond int8multirange;
    duration record;
    other record;
    now timestamptz;
BEGIN
    IF num_nulls(name, worker_ids, lease, hold, max_ahead, except_ids, spares, namespace, registry) > 0 THEN
        RAISE EXCEPTION 'no argument of snowflake_create_pool() may be NULL'
            USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Leave an argument out to use its default value.';
    ELSIF name = '' OR namespace = '' THEN
        RAISE EXCEPTION 'the name of a pool or of a namespace is empty'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a name such as ''main''.';
    ELSIF isempty(worker_ids) THEN
        RAISE EXCEPTION 'pool "%" would have no worker IDs', name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'The range of worker IDs is empty.',
            HINT = 'Give a range such as int8range(0, 1024): its end, 1024, is not part of it.';
    ELSIF lower_inf(worker_ids) OR upper_inf(worker_ids) THEN
        RAISE EXCEPTION 'pool "%" would have infinitely many worker IDs', name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = format('The range of worker IDs is %s.', worker_ids),
            HINT = 'Give a range such as int8range(0, 1024): its end, 1024, is not part of it.';
    ELSIF lower(worker_ids) < 0 OR upper(worker_ids) > 2147483648 THEN
        RAISE EXCEPTION 'worker IDs % of pool "%" are out of range', worker_ids, name
            USING ERRCODE = 'numeric_value_out_of_range',
            HINT = 'Worker IDs are numbers from 0 to 2147483647, and at most what the worker field of each generator holds.';
    ELSIF NOT except_ids <@ worker_ids THEN
        beyond := except_ids - int8multirange(worker_ids);
        RAISE EXCEPTION 'worker IDs % to leave out are not in pool "%"', beyond, name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = format('The pool has worker IDs %s.', worker_ids),
            HINT = 'Leave out only worker IDs of the pool.';
    ELSIF spares < 0 OR spares >= upper(worker_ids) - lower(worker_ids) THEN
        RAISE EXCEPTION 'pool "%" cannot have % spare worker IDs', name, spares
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = format('The pool has %s worker IDs, and at least one of them is not spare.',
                upper(worker_ids) - lower(worker_ids)),
            HINT = 'Give an even number such as 4, or 0.';
    ELSIF int8multirange(int8range(lower(worker_ids), upper(worker_ids) - spares)) <@ except_ids THEN
        RAISE EXCEPTION 'pool "%" would have no worker ID to lease', name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'All worker IDs are spare or left out.',
            HINT = 'Give more worker IDs.';
    END IF;
    FOR duration IN
        SELECT v.* FROM (VALUES ('lease', lease, interval '1 s'), ('hold', hold, interval '1 s'),
            ('max_ahead', max_ahead, interval '0')) AS v (name, value, at_least)
    LOOP
        IF duration.value NOT BETWEEN duration.at_least AND interval '1 day' THEN
            RAISE EXCEPTION '% of pool "%" is out of range: %', duration.name, name, duration.value
                USING ERRCODE = 'invalid_parameter_value',
                HINT = format('Give an interval from %s to %s.', duration.at_least, interval '1 day');
        END IF;
    END LOOP;

    IF registry <> '' THEN
        PERFORM @extschema@.snowflake_internal_create_etcd_pool(registry, jsonb_build_object(
            'name', name, 'namespace', namespace, 'spares', spares,
            'ids', jsonb_build_object('start', lower(worker_ids), 'end', upper(worker_ids)),
            'except', ARRAY(SELECT jsonb_build_object('start', lower(u.ids), 'end', upper(u.ids))
                FROM unnest(except_ids) AS u (ids)),
            'lease', floor(extract(epoch FROM lease) * 1000)::bigint,
            'hold', floor(extract(epoch FROM hold) * 1000)::bigint,
            'max_ahead', floor(extract(epoch FROM max_ahead) * 1000)::bigint, 'made', 0));
        RETURN;
    END IF;
    now := @extschema@.snowflake_internal_lock_registry();
    IF EXISTS (SELECT FROM @extschema@.snowflake_registry_pools AS p
               WHERE p.name = snowflake_create_pool.name) THEN
        RAISE EXCEPTION 'pool "%" already exists', name
            USING ERRCODE = 'duplicate_object', HINT = 'View snowflake_pools shows the pools.';
    END IF;
    SELECT p.name, p.worker_ids * snowflake_create_pool.worker_ids AS both INTO other
    FROM @extschema@.snowflake_registry_pools AS p
    WHERE p.namespace = snowflake_create_pool.namespace
      AND p.worker_ids && snowflake_create_pool.worker_ids
    ORDER BY p.worker_ids LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'pool "%" would overlap with pool "%"', name, other.name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = format('Both would have worker IDs %s in namespace "%s".', other.both, namespace),
            HINT = 'Give other worker IDs. Servers whose IDs never meet can have a namespace of their own.';
    END IF;
    INSERT INTO @extschema@.snowflake_registry_pools
        (name, namespace, worker_ids, except_ids, spares, lease, hold, max_ahead, made)
    VALUES (name, namespace, worker_ids, except_ids, spares,
        date_trunc('milliseconds', lease), date_trunc('milliseconds', hold),
        date_trunc('milliseconds', max_ahead), now);
END
$$;
REVOKE EXECUTE ON FUNCTION snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, integer, text, text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, integer, text, text) IS
    'makes a pool of worker IDs, which this database, or the registry in etcd with this URL, leases to servers; pools of one namespace have different worker IDs';

CREATE FUNCTION snowflake_drop_pool(name text, registry text DEFAULT '') RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now timestamptz;
    pool @extschema@.snowflake_registry_pools;
    held @extschema@.snowflake_registry_leases;
BEGIN
    IF registry <> '' THEN
        PERFORM @extschema@.snowflake_internal_drop_etcd_pool(registry, name);
        RETURN;
    END IF;
    now := @extschema@.snowflake_internal_lock_registry();
    SELECT p.* INTO pool FROM @extschema@.snowflake_registry_pools AS p
    WHERE p.name = snowflake_drop_pool.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pool "%" does not exist', name
            USING ERRCODE = 'undefined_object', HINT = 'View snowflake_pools shows the pools.';
    END IF;
    SELECT l.* INTO held FROM @extschema@.snowflake_registry_leases AS l
    WHERE l.namespace = pool.namespace AND pool.worker_ids @> l.worker_id::bigint
      AND NOT l.released AND l.leased_until + pool.hold > now
    ORDER BY l.leased_until DESC, l.worker_id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'cannot drop pool "%": a server may have worker ID %', name, held.worker_id
            USING ERRCODE = 'object_in_use',
            DETAIL = format('It was leased to the server at %s (%s), port %s, data directory "%s", until %s.',
                held.host, held.address, held.port, held.data_directory, held.leased_until),
            HINT = 'Stop the servers that lease from the pool. One that is gone already stands in the way until its lease and the hold have passed.';
    END IF;
    -- The rows of its leases stay.
    DELETE FROM @extschema@.snowflake_registry_pools AS p WHERE p.name = pool.name;
END
$$;
REVOKE EXECUTE ON FUNCTION snowflake_drop_pool(text, text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_drop_pool(text, text) IS
    'drops a pool of worker IDs that no server uses; the registry keeps what it knows of each worker ID, for a later pool that has it';

CREATE FUNCTION snowflake_revoke_worker(pool text, worker_id integer, registry text DEFAULT '') RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_revoke_worker';
REVOKE EXECUTE ON FUNCTION snowflake_revoke_worker(text, integer, text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_revoke_worker(text, integer, text) IS
    'ends the lease of a worker ID: its server cannot renew it, and stops issuing IDs when the lease ends at the latest; returns from when another server can have the worker ID';

CREATE FUNCTION snowflake_end_quiet_time(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_end_quiet_time';
REVOKE EXECUTE ON FUNCTION snowflake_end_quiet_time(text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_end_quiet_time(text) IS
    'lets the registry lease worker IDs at once, although it may have lost leases: servers that have not asked since may lose their worker IDs to others, but no ID is issued twice';

CREATE FUNCTION snowflake_declare_registry(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_declare_registry';
REVOKE EXECUTE ON FUNCTION snowflake_declare_registry(text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_declare_registry(text) IS
    'declares that of all copies of this registry, this one counts: it serves again if it has stopped, after a quiet time, and servers that have asked it accept no other copy';

CREATE VIEW snowflake_workers AS
SELECT p.name AS pool, l.worker_id,
    CASE WHEN l.released THEN CASE WHEN s.is_spare THEN 'spare' ELSE 'released' END
         WHEN clock_timestamp() >= l.leased_until + p.hold THEN CASE WHEN s.is_spare THEN 'spare' ELSE 'free' END
         WHEN l.revoked IS NOT NULL THEN 'revoked'
         WHEN clock_timestamp() >= l.leased_until THEN 'expired'
         ELSE 'leased' END AS state,
    l.host, l.address, l.port, l.data_directory, l.system_identifier,
    l.since, l.leased_until,
    snowflake_internal_instant(l.bound) AS bound,
    l.counter || '-' || left(l.nonce::text, 8) AS token,
    c.by AS contested_by, c.since AS contested_since, c.latest AS contested_last
FROM snowflake_registry_pools AS p
JOIN snowflake_registry_leases AS l
    ON l.namespace = p.namespace AND p.worker_ids @> l.worker_id::bigint
CROSS JOIN LATERAL (SELECT l.worker_id >= upper(p.worker_ids) - p.spares) AS s (is_spare)
LEFT JOIN LATERAL (
    SELECT format('%s%s, port %s, data directory "%s"', l.contender #>> '{by,host}',
            ' (' || nullif(l.contender #>> '{by,address}', '') || ')', l.contender #>> '{by,port}',
            l.contender #>> '{by,data_directory}'),
        snowflake_internal_instant((l.contender ->> 'since')::bigint),
        snowflake_internal_instant((l.contender ->> 'latest')::bigint)) AS c (by, since, latest)
    ON NOT l.released AND c.latest >= clock_timestamp() - 2 * (p.lease + p.hold);
COMMENT ON VIEW snowflake_workers IS
    'the worker IDs that this registry has leased, with their latest holders; worker IDs that were never leased have no row, see snowflake_pools.never_leased';
COMMENT ON COLUMN snowflake_workers.pool IS 'the pool that has the worker ID';
COMMENT ON COLUMN snowflake_workers.worker_id IS 'the worker ID';
COMMENT ON COLUMN snowflake_workers.state IS
    'leased; revoked: leased, but cannot be renewed; expired: not renewed in time, and kept for the holder until the hold has passed; free or released: another server can have it; spare: was leased, and is not leased again';
COMMENT ON COLUMN snowflake_workers.host IS 'host name of the holder, or of the latest one';
COMMENT ON COLUMN snowflake_workers.address IS 'address from which the holder reached the registry';
COMMENT ON COLUMN snowflake_workers.port IS 'port of the holder';
COMMENT ON COLUMN snowflake_workers.data_directory IS 'data directory of the holder';
COMMENT ON COLUMN snowflake_workers.system_identifier IS 'system identifier of the holder''s database cluster';
COMMENT ON COLUMN snowflake_workers.since IS 'when the holder got the worker ID';
COMMENT ON COLUMN snowflake_workers.leased_until IS 'when the lease ends if it is not renewed, or when it ended';
COMMENT ON COLUMN snowflake_workers.bound IS
    'no ID of this instant or later has been issued with this worker ID; by the clock of the holder';
COMMENT ON COLUMN snowflake_workers.token IS
    'tells the leases of a worker ID apart: how many there were, and the beginning of the holder''s random number';
COMMENT ON COLUMN snowflake_workers.contested_by IS
    'another server that has this worker ID set, asks for it, and is refused, since the holder has it: its host name, address, port and data directory; several servers take turns here; NULL if none has asked for two leases and two holds';
COMMENT ON COLUMN snowflake_workers.contested_since IS
    'since when the registry has noted that server without a break; it may have asked before';
COMMENT ON COLUMN snowflake_workers.contested_last IS
    'when it has asked last, exact to a third of a lease';
GRANT SELECT ON snowflake_workers TO pg_monitor;

CREATE VIEW snowflake_pools AS
SELECT p.name AS pool, p.namespace, p.worker_ids, p.except_ids, p.spares, p.lease, p.hold, p.max_ahead, p.made,
    c.leased, c.free + n.never_leased AS free, n.never_leased,
    q.quiet_until, CASE WHEN q.quiet_until IS NOT NULL THEN r.state #>> '{loss,cause}' END AS quiet_because,
    (r.state #>> '{era,counter}')::bigint AS era,
    snowflake_internal_instant((r.state #>> '{stopped,since}')::bigint) AS stopped_since,
    r.state #>> '{stopped,by,host}' AS stopped_by
FROM snowflake_registry_pools AS p
CROSS JOIN snowflake_registry_state AS r
CROSS JOIN LATERAL (
    SELECT int8multirange(int8range(lower(p.worker_ids), upper(p.worker_ids) - p.spares)) - p.except_ids) AS o (ordinary)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE w.state IN ('leased', 'expired', 'revoked')) AS leased,
        count(*) FILTER (WHERE w.state IN ('free', 'released') AND o.ordinary @> w.worker_id::bigint) AS free,
        count(*) FILTER (WHERE o.ordinary @> w.worker_id::bigint) AS known
    FROM snowflake_workers AS w WHERE w.pool = p.name) AS c
CROSS JOIN LATERAL (
    SELECT (SELECT sum(upper(i.ids) - lower(i.ids)) FROM unnest(o.ordinary) AS i (ids))::bigint - c.known) AS n (never_leased)
CROSS JOIN LATERAL (
    SELECT until FROM (SELECT snowflake_internal_instant((r.state #>> '{loss,quiet_from}')::bigint)
        + p.lease + p.hold) AS u (until)) AS u
LEFT JOIN LATERAL (SELECT u.until WHERE u.until > clock_timestamp()) AS q (quiet_until) ON true
-- There is one row. Said so, the planner expects no more, and compiles nothing.
WHERE r.id = 1;
COMMENT ON VIEW snowflake_pools IS
    'the pools of worker IDs that this database leases, and the state of the registry';
COMMENT ON COLUMN snowflake_pools.pool IS 'name of the pool';
COMMENT ON COLUMN snowflake_pools.namespace IS 'pools of one namespace have different worker IDs';
COMMENT ON COLUMN snowflake_pools.worker_ids IS 'the worker IDs of the pool';
COMMENT ON COLUMN snowflake_pools.except_ids IS 'those of them that are not leased';
COMMENT ON COLUMN snowflake_pools.spares IS
    'how many of them, at the end, are spare: they are leased only to the server of the registry, right after it was promoted';
COMMENT ON COLUMN snowflake_pools.lease IS 'how long a lease lasts unless it is renewed';
COMMENT ON COLUMN snowflake_pools.hold IS 'how long a worker ID is kept for its holder after its lease has ended';
COMMENT ON COLUMN snowflake_pools.max_ahead IS 'how far a generator may be ahead of its server''s clock';
COMMENT ON COLUMN snowflake_pools.made IS 'when the pool was made; its first leases begin max_ahead later';
COMMENT ON COLUMN snowflake_pools.leased IS 'worker IDs that servers have, or that are kept for them';
COMMENT ON COLUMN snowflake_pools.free IS 'worker IDs that a server can get; those that were never leased count';
COMMENT ON COLUMN snowflake_pools.never_leased IS 'worker IDs that no server ever had';
COMMENT ON COLUMN snowflake_pools.quiet_until IS
    'until when the registry leases no worker IDs, since it may have lost leases; NULL if it does';
COMMENT ON COLUMN snowflake_pools.quiet_because IS
    'why it may have lost leases: place (promoted, restored or copied), recovery (crash recovery, or a snapshot), serial or token (a server knows more than the registry), declared (snowflake_declare_registry())';
COMMENT ON COLUMN snowflake_pools.era IS 'one more with each time that leases may have been lost';
COMMENT ON COLUMN snowflake_pools.stopped_since IS
    'since when the registry serves nobody, because a server has asked another copy of it that may have taken its place; NULL if it serves';
COMMENT ON COLUMN snowflake_pools.stopped_by IS 'host name of that server';
GRANT SELECT ON snowflake_pools TO pg_monitor;

CREATE FUNCTION snowflake_internal_read_etcd(registry text) RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_etcd';
REVOKE EXECUTE ON FUNCTION snowflake_internal_read_etcd(text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_internal_read_etcd(text) IS
    'internal, for snowflake_workers_in() and snowflake_pools_in(): what a registry in etcd has stored';

CREATE FUNCTION snowflake_workers_in(registry text) RETURNS SETOF snowflake_workers
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH a (stored) AS MATERIALIZED (SELECT @extschema@.snowflake_internal_read_etcd(registry))
    SELECT p.pool ->> 'name', w.worker_id,
        CASE WHEN (w.r ->> 'released')::boolean THEN 'released'
             WHEN NOT w.live THEN 'free'
             WHEN w.r ->> 'revoked' IS NOT NULL THEN 'revoked'
             WHEN (a.stored ->> 'now')::bigint >= (w.r ->> 'leased_until')::bigint THEN 'expired'
             ELSE 'leased' END,
        w.r #>> '{holder,host}', w.r #>> '{holder,address}', (w.r #>> '{holder,port}')::integer,
        w.r #>> '{holder,data_directory}', (w.r #>> '{holder,identity,system}')::numeric(20),
        @extschema@.snowflake_internal_instant((w.r ->> 'since')::bigint),
        @extschema@.snowflake_internal_instant((w.r ->> 'leased_until')::bigint),
        @extschema@.snowflake_internal_instant((w.r ->> 'bound')::bigint),
        (w.r ->> 'counter') || '-' || left(w.r ->> 'nonce', 8),
        c.by, c.since, c.latest
    FROM a
    CROSS JOIN LATERAL jsonb_array_elements(a.stored -> 'pools') AS p (pool)
    CROSS JOIN LATERAL (
        SELECT e.worker -> 'row', (e.worker ->> 'live')::boolean, (e.worker #>> '{row,worker}')::integer
        FROM jsonb_array_elements(a.stored -> 'workers') AS e (worker)
        WHERE e.worker ->> 'namespace' = p.pool ->> 'namespace') AS w (r, live, worker_id)
    LEFT JOIN LATERAL (
        SELECT format('%s%s, port %s, data directory "%s"', w.r #>> '{contender,by,host}',
                ' (' || nullif(w.r #>> '{contender,by,address}', '') || ')', w.r #>> '{contender,by,port}',
                w.r #>> '{contender,by,data_directory}'),
            @extschema@.snowflake_internal_instant((w.r #>> '{contender,since}')::bigint),
            @extschema@.snowflake_internal_instant((w.r #>> '{contender,latest}')::bigint)) AS c (by, since, latest)
        ON NOT (w.r ->> 'released')::boolean AND (w.r #>> '{contender,latest}')::bigint >= (a.stored ->> 'now')::bigint
            - 2 * ((p.pool ->> 'lease')::bigint + (p.pool ->> 'hold')::bigint)
    WHERE w.worker_id >= (p.pool #>> '{ids,start}')::bigint AND w.worker_id < (p.pool #>> '{ids,end}')::bigint
$$;
REVOKE EXECUTE ON FUNCTION snowflake_workers_in(text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_workers_in(text) IS
    'the worker IDs that the registry in etcd with this URL has leased; as view snowflake_workers';

CREATE FUNCTION snowflake_pools_in(registry text) RETURNS SETOF snowflake_pools
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH a (stored) AS MATERIALIZED (SELECT @extschema@.snowflake_internal_read_etcd(registry)),
    pools AS (
        SELECT p.pool, p.pool ->> 'namespace' AS namespace,
            int8range((p.pool #>> '{ids,start}')::bigint, (p.pool #>> '{ids,end}')::bigint) AS ids,
            (SELECT coalesce(range_agg(int8range((e.ids ->> 'start')::bigint, (e.ids ->> 'end')::bigint)), '{}')
                FROM jsonb_array_elements(p.pool -> 'except') AS e (ids)) AS except_ids,
            (p.pool ->> 'lease')::bigint * interval '1 ms' AS lease,
            (p.pool ->> 'hold')::bigint * interval '1 ms' AS hold,
            a.stored -> 'state' AS state, a.stored -> 'workers' AS workers, (a.stored ->> 'now')::bigint AS now
        FROM a CROSS JOIN LATERAL jsonb_array_elements(a.stored -> 'pools') AS p (pool))
    SELECT p.pool ->> 'name', p.namespace, p.ids, p.except_ids, (p.pool ->> 'spares')::integer, p.lease, p.hold,
        (p.pool ->> 'max_ahead')::bigint * interval '1 ms',
        @extschema@.snowflake_internal_instant((p.pool ->> 'made')::bigint),
        c.taken, o.size - c.taken_here, o.size - c.known,
        q.until, CASE WHEN q.until IS NOT NULL THEN p.state #>> '{loss,cause}' END,
        (p.state #>> '{era,counter}')::bigint,
        @extschema@.snowflake_internal_instant((p.state #>> '{stopped,since}')::bigint),
        p.state #>> '{stopped,by,host}'
    FROM pools AS p
    CROSS JOIN LATERAL (
        SELECT sum(upper(i.ids) - lower(i.ids))::bigint
        FROM unnest(int8multirange(p.ids) - p.except_ids) AS i (ids)) AS o (size)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE w.taken), count(*) FILTER (WHERE w.taken AND w.here), count(*) FILTER (WHERE w.here)
        FROM (
            SELECT (e.worker ->> 'live')::boolean AND NOT (e.worker #>> '{row,released}')::boolean,
                NOT p.except_ids @> (e.worker #>> '{row,worker}')::bigint
            FROM jsonb_array_elements(p.workers) AS e (worker)
            WHERE e.worker ->> 'namespace' = p.namespace AND p.ids @> (e.worker #>> '{row,worker}')::bigint) AS w (taken, here))
        AS c (taken, taken_here, known)
    LEFT JOIN LATERAL (
        SELECT @extschema@.snowflake_internal_instant((p.state #>> '{loss,quiet_from}')::bigint) + p.lease + p.hold
        WHERE @extschema@.snowflake_internal_instant((p.state #>> '{loss,quiet_from}')::bigint) + p.lease + p.hold
            > @extschema@.snowflake_internal_instant(p.now)) AS q (until) ON true
$$;
REVOKE EXECUTE ON FUNCTION snowflake_pools_in(text) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_pools_in(text) IS
    'the pools of the registry in etcd with this URL; as view snowflake_pools';
-- Generators in a cluster of Citus.
--
-- Citus takes the sequence in DEFAULT snowflake_nextval('order_ids') for that of a serial
-- column: it makes the sequence on all nodes, with its owner and its grants, but without
-- its label. snowflake_distribute_generator() brings the label. The library knows nothing
-- of Citus: it is found in pg_extension, and asked through its own functions.
--
-- What runs on another node is one call of a function of this file, with all values as
-- literals. Citus connects as the role that asks, so the call has the rights of that
-- role there, and its search_path: so each literal has a type, since PostgreSQL would
-- take a function of another user that fits better, and there are no operators outside
-- the function. The call is a transaction of its own, which a later ROLLBACK here does
-- not undo: so a change is made here first, where it is checked, then tried on all
-- nodes, and repeating it does no harm.
--
-- As in set_default.sql, no function is SECURITY DEFINER, each has a search_path without
-- schemas in which others may create objects, and in format() a %s is what PostgreSQL has
-- written as SQL.

CREATE FUNCTION snowflake_internal_on_workers(
    command text, OUT node text, OUT success boolean, OUT result text)
    RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A clone gets its data from its origin, and takes no changes.
    RETURN QUERY EXECUTE
        'SELECT format(''%s:%s'', w.nodename, w.nodeport), w.success, w.result
         FROM pg_catalog.run_command_on_workers($1) AS w ORDER BY w.nodename, w.nodeport'
        USING command;
END
$$;
COMMENT ON FUNCTION snowflake_internal_on_workers(text) IS
    'internal, for clusters of Citus: what a statement returns on each worker';

CREATE FUNCTION snowflake_internal_check_coordinator(function text) RETURNS void
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_coordinator boolean;
BEGIN
    -- A node to which no other was added yet is a coordinator, too.
    EXECUTE 'SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group' INTO is_coordinator;
    IF NOT is_coordinator THEN
        RAISE EXCEPTION '% works on the coordinator of Citus only', function
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Call it there: it reaches the workers from there.';
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_coordinator(text) IS
    'internal, for clusters of Citus: refuses a call on a worker';

CREATE FUNCTION snowflake_internal_label(generator regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.label FROM pg_seclabel AS l
    WHERE l.provider = 'snowflake_id' AND l.classoid = 'pg_class'::regclass
      AND l.objoid = generator AND l.objsubid = 0
$$;
COMMENT ON FUNCTION snowflake_internal_label(regclass) IS
    'internal, for clusters of Citus: the label of a sequence; null if there is none';

CREATE FUNCTION snowflake_internal_readiness(name text, owner name) RETURNS jsonb
    LANGUAGE sql STABLE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_build_object(
        'label', @extschema@.snowflake_internal_label(wanted.generator),
        'worker_id', g.worker_id,
        'problem', CASE
            WHEN wanted.generator IS NULL THEN 'the generator does not exist'
            WHEN g.generator IS NULL THEN 'the sequence has no label'
            WHEN g.problem IS NOT NULL THEN g.problem
            WHEN g.worker_id IS NULL THEN 'IDs of this layout carry no worker ID: all nodes would issue the same IDs'
            WHEN NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = owner) THEN
                format('role %I does not exist', owner)
            WHEN NOT has_sequence_privilege(owner, wanted.generator, 'USAGE, UPDATE') THEN
                format('role %I, which owns the table, may not use the generator: GRANT USAGE ON SEQUENCE %s TO %I',
                    owner, wanted.generator, owner)
            END)
    FROM (SELECT to_regclass(name) AS generator) AS wanted
    LEFT JOIN @extschema@.snowflake_generators AS g ON g.generator = wanted.generator
$$;
COMMENT ON FUNCTION snowflake_internal_readiness(text, name) IS
    'internal, for clusters of Citus: the label of a generator on this node, the worker ID, and why this node can issue no IDs for a role';

CREATE FUNCTION snowflake_internal_check_nodes(generator regclass, owner name) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    generator_name text := @extschema@.snowflake_internal_name(generator);
    found text;
BEGIN
    WITH answer AS MATERIALIZED (
        SELECT 'this node' AS node, true AS success,
            @extschema@.snowflake_internal_readiness(generator_name, owner)::text AS result
        UNION ALL
        SELECT w.node, w.success, w.result
        FROM @extschema@.snowflake_internal_on_workers(format(
            'SELECT %s(%L::pg_catalog.text, %L::pg_catalog.name)',
            '@extschema@.snowflake_internal_readiness', generator_name, owner)) AS w
    ), node AS (
        SELECT a.node, CASE WHEN a.success THEN a.result::jsonb END AS it,
            CASE WHEN NOT a.success THEN a.result END AS error
        FROM answer AS a
    ), finding AS (
        SELECT n.node, coalesce(n.error, n.it->>'problem') AS problem FROM node AS n
        UNION ALL
        SELECT n.node, 'its label is another one than on the coordinator' FROM node AS n
        WHERE n.it->>'problem' IS NULL
          AND n.it->>'label' IS DISTINCT FROM @extschema@.snowflake_internal_label(generator)
        UNION ALL
        SELECT string_agg(n.node, ' and ' ORDER BY n.node),
            format('both have worker ID %s, and would issue the same IDs', n.it->>'worker_id')
        FROM node AS n WHERE n.it->>'worker_id' IS NOT NULL
        GROUP BY n.it->>'worker_id' HAVING count(*) > 1
    )
    SELECT string_agg(format('%s: %s', f.node, f.problem), '; ' ORDER BY f.node) INTO found
    FROM finding AS f WHERE f.problem IS NOT NULL;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'not all nodes of Citus can issue IDs of generator %', generator_name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = found || '.',
            HINT = format('To bring a generator, its label and its grants to all nodes, run, and commit: SELECT * FROM snowflake_distribute_generator(%L)', generator_name);
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_nodes(regclass, name) IS
    'internal, for snowflake_set_default() with Citus: refuses a generator of which some node can issue no IDs for a role, or of which two nodes would issue the same';

CREATE FUNCTION snowflake_internal_distribution(relation regclass) RETURNS jsonb
    LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found jsonb;
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        -- A table of the same group, so that the table can be put back into that group;
        -- partitions go with their tables.
        EXECUTE 'SELECT jsonb_build_object(
                ''method'', p.partmethod,
                ''column'', CASE WHEN p.partmethod <> ''n''
                    THEN pg_catalog.column_to_column_name(p.logicalrelid, p.partkey) END,
                ''shards'', (SELECT count(*) FROM pg_catalog.pg_dist_shard AS s WHERE s.logicalrelid = p.logicalrelid),
                ''beside'', (
                    SELECT format(''%I.%I'', n.nspname, c.relname)
                    FROM pg_catalog.pg_dist_partition AS o
                    JOIN pg_catalog.pg_class AS c ON c.oid = o.logicalrelid AND NOT c.relispartition
                    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE o.colocationid = p.colocationid AND o.partmethod = p.partmethod
                      AND p.colocationid <> 0 AND o.logicalrelid <> p.logicalrelid
                    ORDER BY n.nspname, c.relname LIMIT 1))
            FROM pg_catalog.pg_dist_partition AS p WHERE p.logicalrelid = $1'
            INTO found USING relation;
    END IF;
    IF found IS NOT NULL THEN
        PERFORM @extschema@.snowflake_internal_check_coordinator('snowflake_set_default()');
        IF NOT current_setting('citus.enable_ddl_propagation')::boolean THEN
            RAISE EXCEPTION 'the default of table % would not reach the workers', @extschema@.snowflake_internal_name(relation)
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'citus.enable_ddl_propagation is off in this session.',
                HINT = 'SET citus.enable_ddl_propagation = on';
        END IF;
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION snowflake_internal_distribution(regclass) IS
    'internal, for snowflake_set_default(): how Citus distributes a table; null if it does not know the table';

CREATE FUNCTION snowflake_internal_has_default(table_name text, column_name name, source text) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- pg_get_expr() would wait for the lock that the coordinator holds on this node, too.
    SELECT EXISTS (
        SELECT FROM pg_attribute AS a
        JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
        WHERE a.attrelid = to_regclass(table_name) AND a.attname = column_name AND NOT a.attisdropped
          AND CASE to_regclass(source)
              WHEN '@extschema@.snowflake_default'::regclass THEN
                  p.refclassid = 'pg_proc'::regclass AND p.refobjid = '@extschema@.snowflake_nextval()'::regprocedure
              ELSE p.refclassid = 'pg_class'::regclass AND p.refobjid = to_regclass(source) END)
$$;
COMMENT ON FUNCTION snowflake_internal_has_default(text, name, text) IS
    'internal, for clusters of Citus: whether the default of a column on this node uses a generator';

CREATE FUNCTION snowflake_internal_check_default(
    relation regclass, column_name name, generator regclass) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := @extschema@.snowflake_internal_name(relation);
    found text := (
        SELECT string_agg(format('%s: %s', w.node,
                CASE WHEN w.success THEN 'the default is missing, or another one' ELSE w.result END),
            '; ' ORDER BY w.node)
        FROM @extschema@.snowflake_internal_on_workers(format(
            'SELECT %s(%L::pg_catalog.text, %L::pg_catalog.name, %L::pg_catalog.text)',
            '@extschema@.snowflake_internal_has_default', table_name, column_name,
            @extschema@.snowflake_internal_name(generator))) AS w
        WHERE NOT w.success OR w.result <> 't');
BEGIN
    IF found IS NOT NULL THEN
        RAISE EXCEPTION '%.% has another default on some nodes of Citus', table_name, quote_ident(column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = found || '.',
            HINT = 'To send the table to the workers again: SELECT start_metadata_sync_to_all_nodes()';
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_default(regclass, name, regclass) IS
    'internal, for snowflake_set_default() with Citus: refuses a distribution column whose default is another one on some worker';

CREATE FUNCTION snowflake_internal_comments(relation regclass) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH member AS MATERIALIZED (
        SELECT relation AS id UNION SELECT t.relid FROM pg_partition_tree(relation) AS t)
    SELECT CASE d.objsubid WHEN 0 THEN format('COMMENT ON TABLE %s IS %L', m.id, d.description)
        ELSE format('COMMENT ON COLUMN %s.%I IS %L', m.id, a.attname, d.description) END
    FROM member AS m
    JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = m.id
    LEFT JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = d.objsubid
    UNION ALL
    SELECT format('COMMENT ON INDEX %s IS %L', i.indexrelid::regclass, d.description)
    FROM member AS m JOIN pg_index AS i ON i.indrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = i.indexrelid AND d.objsubid = 0
    UNION ALL
    SELECT format('COMMENT ON CONSTRAINT %I ON %s IS %L', k.conname, m.id, d.description)
    FROM member AS m JOIN pg_constraint AS k ON k.conrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_constraint'::regclass AND d.objoid = k.oid
    UNION ALL
    SELECT format('COMMENT ON TRIGGER %I ON %s IS %L', g.tgname, m.id, d.description)
    FROM member AS m JOIN pg_trigger AS g ON g.tgrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_trigger'::regclass AND d.objoid = g.oid
    UNION ALL
    SELECT format('COMMENT ON POLICY %I ON %s IS %L', o.polname, m.id, d.description)
    FROM member AS m JOIN pg_policy AS o ON o.polrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_policy'::regclass AND d.objoid = o.oid
    UNION ALL
    SELECT format('COMMENT ON STATISTICS %I.%I IS %L', n.nspname, x.stxname, d.description)
    FROM member AS m JOIN pg_statistic_ext AS x ON x.stxrelid = m.id
    JOIN pg_namespace AS n ON n.oid = x.stxnamespace
    JOIN pg_description AS d ON d.classoid = 'pg_statistic_ext'::regclass AND d.objoid = x.oid
$$;
COMMENT ON FUNCTION snowflake_internal_comments(regclass) IS
    'internal, for snowflake_set_default() with Citus, which loses them: the comments of a table and its parts, as statements';

CREATE FUNCTION snowflake_internal_undistribute(
    relation regclass, column_name name, distribution jsonb) RETURNS regclass
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := @extschema@.snowflake_internal_name(relation);
BEGIN
    IF distribution->>'method' <> 'h' THEN
        RAISE EXCEPTION 'table % is not distributed by hash', table_name
            USING ERRCODE = 'feature_not_supported',
            DETAIL = format('"%s" is its distribution column, whose default Citus does not change, and the table cannot be distributed again as it is.', column_name),
            HINT = 'Make a table with the default, distribute it, and copy the rows.';
    END IF;
    RAISE NOTICE 'table % is undistributed, and distributed again', table_name
        USING DETAIL = format('"%s" is the distribution column, whose default Citus does not change. All rows are copied to this node and back, and the table is locked meanwhile.', column_name),
            HINT = 'If this node has no room for the rows, cancel this call: nothing has been changed.';
    -- Citus makes a new table of the same name.
    EXECUTE 'SELECT pg_catalog.undistribute_table($1)' USING relation;
    RETURN table_name::regclass;
END
$$;
COMMENT ON FUNCTION snowflake_internal_undistribute(regclass, name, jsonb) IS
    'internal, for snowflake_set_default(): makes a table of Citus a local one, and says so before; returns the new table';

CREATE FUNCTION snowflake_internal_distribute(relation regclass, distribution jsonb) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    comment text;
BEGIN
    IF distribution->>'beside' IS NOT NULL THEN
        EXECUTE 'SELECT pg_catalog.create_distributed_table($1, $2, colocate_with => $3)'
            USING relation, distribution->>'column', distribution->>'beside';
    ELSE
        EXECUTE 'SELECT pg_catalog.create_distributed_table($1, $2, colocate_with => ''none'', shard_count => $3)'
            USING relation, distribution->>'column', (distribution->>'shards')::integer;
    END IF;
    FOR comment IN SELECT c.statement FROM jsonb_array_elements_text(distribution->'comments') AS c (statement) LOOP
        EXECUTE comment;
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_internal_distribute(regclass, jsonb) IS
    'internal, for snowflake_set_default(): distributes a table by hash, in its group or with its number of shards, and gives it its comments back';

-- The library calls this function after ALTER SEQUENCE, where a sequence has the INCREMENT
-- of a generator's and no label: so Citus leaves it where it has made the sequence, for a
-- new table or on a new node.
CREATE FUNCTION snowflake_internal_adopt_label(generator regclass) RETURNS boolean
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_coordinator boolean;
    found text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        RETURN false;
    END IF;
    EXECUTE 'SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group' INTO is_coordinator;
    IF is_coordinator THEN
        RETURN false;
    END IF;
    -- Citus waits for this command, and would not add or activate this node without it.
    -- snowflake_distribute_generator() can bring the label later, and says what is wrong.
    BEGIN
        EXECUTE 'SELECT c.result FROM pg_catalog.run_command_on_coordinator($1) AS c WHERE c.success'
            INTO found USING format(
                'SELECT %s(pg_catalog.to_regclass(%L::pg_catalog.text))',
                '@extschema@.snowflake_internal_label', @extschema@.snowflake_internal_name(generator));
        IF coalesce(found, '') = '' THEN
            RETURN false;
        END IF;
        EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', generator, found);
        RETURN true;
    EXCEPTION WHEN others THEN
        RAISE WARNING 'sequence % did not get its label from the coordinator: %',
            @extschema@.snowflake_internal_name(generator), SQLERRM;
        RETURN false;
    END;
END
$$;
COMMENT ON FUNCTION snowflake_internal_adopt_label(regclass) IS
    'internal, for clusters of Citus: gives a sequence that Citus has made on a worker the label that it has on the coordinator';

CREATE FUNCTION snowflake_internal_place_generator(
    name text, label text, owner name, grants jsonb) RETURNS text
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    generator regclass := to_regclass(name);
    before text;
    outcome text := 'unchanged';
    it record;
BEGIN
    -- This is the part of one node: Citus neither sends it on nor refuses it.
    PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
    -- A relabelling waits here for those who take IDs, and those may wait for the
    -- coordinator: no server sees such a deadlock.
    PERFORM set_config('lock_timeout', '30s', true);
    IF generator IS NULL THEN
        generator := @extschema@.snowflake_create_generator(name, label);
        outcome := 'created';
    ELSE
        before := @extschema@.snowflake_internal_label(generator);
        IF before IS DISTINCT FROM label THEN
            EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', generator, label);
            outcome := CASE WHEN before IS NULL THEN 'labelled' ELSE 'relabelled' END;
        END IF;
    END IF;
    -- A sequence that a column owns has the owner of its table.
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = generator AND pg_get_userbyid(c.relowner) <> owner)
        AND NOT EXISTS (
            SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = generator AND d.deptype IN ('a', 'i')
              AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0)
    THEN
        EXECUTE format('ALTER SEQUENCE %s OWNER TO %I', generator, owner);
    END IF;
    FOR it IN
        WITH wanted AS (
            SELECT w.grantee, w.privilege, w.grantable
            FROM jsonb_to_recordset(grants) AS w (grantee name, privilege text, grantable boolean)),
        had AS (
            SELECT CASE WHEN a.grantee <> 0 THEN pg_get_userbyid(a.grantee) END AS grantee,
                a.privilege_type AS privilege, a.is_grantable AS grantable
            FROM pg_class AS c
            CROSS JOIN aclexplode(coalesce(c.relacl, acldefault('s', c.relowner))) AS a
            WHERE c.oid = generator)
        SELECT false AS given, h.* FROM had AS h
        WHERE NOT EXISTS (SELECT FROM wanted AS w WHERE w IS NOT DISTINCT FROM h)
        UNION ALL
        SELECT true, w.* FROM wanted AS w
        WHERE NOT EXISTS (SELECT FROM had AS h WHERE w IS NOT DISTINCT FROM h)
        ORDER BY given
    LOOP
        IF it.privilege NOT IN ('USAGE', 'SELECT', 'UPDATE') THEN
            RAISE EXCEPTION 'unknown privilege on a sequence' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        EXECUTE CASE WHEN it.given
            THEN format('GRANT %s ON SEQUENCE %s TO %s', it.privilege, generator,
                coalesce(quote_ident(it.grantee), 'PUBLIC')) || CASE WHEN it.grantable THEN ' WITH GRANT OPTION' ELSE '' END
            ELSE format('REVOKE %s ON SEQUENCE %s FROM %s CASCADE', it.privilege, generator,
                coalesce(quote_ident(it.grantee), 'PUBLIC')) END;
    END LOOP;
    RETURN outcome;
END
$$;
COMMENT ON FUNCTION snowflake_internal_place_generator(text, text, name, jsonb) IS
    'internal, for snowflake_distribute_generator(): makes or labels a generator on this node, with this owner and these grants; returns what was done';

CREATE FUNCTION snowflake_internal_try_generator(
    name text, label text, owner name, grants jsonb) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@.snowflake_internal_place_generator(name, label, owner, grants);
    -- The handler undoes all that was done since BEGIN.
    RAISE EXCEPTION 'tried' USING ERRCODE = 'SFTRY';
EXCEPTION WHEN SQLSTATE 'SFTRY' THEN
    RETURN;
END
$$;
COMMENT ON FUNCTION snowflake_internal_try_generator(text, text, name, jsonb) IS
    'internal, for snowflake_distribute_generator(): does what snowflake_internal_place_generator() does, and undoes it; the error says why it cannot be done';

-- This function is not STRICT: NULL for the label has a meaning.
CREATE FUNCTION snowflake_distribute_generator(
    generator regclass, label text DEFAULT NULL, OUT node text, OUT outcome text)
    RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    generator_name text := @extschema@.snowflake_internal_name(generator);
    here text := @extschema@.snowflake_internal_label(generator);
    class pg_class;
    propagates text;
    grants jsonb;
    placed text;
    failed text;
    it record;
BEGIN
    IF generator IS NULL THEN
        RAISE EXCEPTION 'generator must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        RAISE EXCEPTION 'Citus is not installed in this database'
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Without Citus, give the generator the same label on each server: snowflake_create_generator() makes one.';
    END IF;
    PERFORM @extschema@.snowflake_internal_check_coordinator('snowflake_distribute_generator()');
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = generator;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'relation with OID % does not exist', generator::oid
            USING ERRCODE = 'undefined_table';
    ELSIF class.relpersistence = 't' THEN
        RAISE EXCEPTION '% is a temporary sequence', generator_name
            USING ERRCODE = 'feature_not_supported', DETAIL = 'It belongs to this session, which the other nodes do not know.';
    ELSIF generator = '@extschema@.snowflake_default'::regclass THEN
        RAISE EXCEPTION 'the default generator is on every node that has the extension'
            USING ERRCODE = 'wrong_object_type',
            HINT = 'Citus creates the extension on its nodes by itself.';
    ELSIF here IS NULL AND label IS NULL THEN
        RAISE EXCEPTION '% is not a generator', generator_name
            USING ERRCODE = 'wrong_object_type',
            HINT = 'Give the label, or make a generator: SELECT * FROM snowflake_distribute_generator(snowflake_create_generator(name, label))';
    ELSIF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of generator %', generator_name
            USING ERRCODE = 'insufficient_privilege',
            HINT = format('Role %I owns it: that role and its members can do this.', pg_get_userbyid(class.relowner));
    END IF;

    IF label IS NULL OR label = here THEN
        -- Until the end of this transaction nobody changes the label here, so that no
        -- node gets a label that is an old one by then.
        EXECUTE format('SELECT FROM %s', generator);
        here := @extschema@.snowflake_internal_label(generator);
    END IF;
    IF label IS DISTINCT FROM here AND label IS NOT NULL THEN
        -- Otherwise Citus says that the label stays here.
        propagates := current_setting('citus.enable_ddl_propagation', true);
        PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
        EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', generator, label);
        PERFORM set_config('citus.enable_ddl_propagation', propagates, true);
        outcome := CASE WHEN here IS NULL THEN 'labelled' ELSE 'relabelled' END;
    ELSE
        outcome := 'unchanged';
    END IF;
    -- A node without a worker ID gets the generator too. But a layout without one is for
    -- servers whose labels differ.
    IF EXISTS (SELECT FROM @extschema@.snowflake_generators AS g
               WHERE g.generator = class.oid AND g.problem IS NULL AND g.worker_id IS NULL)
    THEN
        RAISE EXCEPTION 'IDs of generator % carry no worker ID', generator_name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'With the same label, all nodes would issue the same IDs.',
            HINT = 'Give the layout a field for the worker ID, such as worker:10; or set a label of its own on each node, with another value of the fixed field.';
    END IF;
    node := 'this node';
    RETURN NEXT;

    grants := (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'grantee', CASE WHEN a.grantee <> 0 THEN pg_get_userbyid(a.grantee) END,
            'privilege', a.privilege_type, 'grantable', a.is_grantable)), '[]')
        FROM aclexplode(coalesce(class.relacl, acldefault('s', class.relowner))) AS a);
    placed := format('(%L::pg_catalog.text, %L::pg_catalog.text, %L::pg_catalog.name, %L::pg_catalog.jsonb)',
        generator_name, @extschema@.snowflake_internal_label(generator), pg_get_userbyid(class.relowner), grants);
    -- Each call on a worker is a transaction of its own. So all of them try first: a worker
    -- that is away, or refuses, is found before any of them has changed.
    failed := (
        SELECT string_agg(format('%s: %s', w.node, w.result), '; ' ORDER BY w.node)
        FROM @extschema@.snowflake_internal_on_workers(
            'SELECT @extschema@.snowflake_internal_try_generator' || placed) AS w
        WHERE NOT w.success);
    IF failed IS NOT NULL THEN
        RAISE EXCEPTION 'generator % cannot reach all nodes of Citus', generator_name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = failed || '.',
            HINT = 'Nothing was changed on any node. Remove the cause, and call this again.';
    END IF;
    FOR it IN
        SELECT w.node, w.success, w.result FROM @extschema@.snowflake_internal_on_workers(
            'SELECT @extschema@.snowflake_internal_place_generator' || placed) AS w
    LOOP
        IF it.success THEN
            node := it.node;
            outcome := it.result;
            RETURN NEXT;
        ELSE
            failed := concat_ws('; ', failed, format('%s: %s', it.node, it.result));
        END IF;
    END LOOP;
    IF failed IS NOT NULL THEN
        RAISE EXCEPTION 'generator % did not reach all nodes of Citus', generator_name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = failed || '.',
            HINT = 'The change was undone on this node, and stays on the nodes that the detail does not name. Remove the cause, and call this again.';
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_distribute_generator(regclass, text) IS
    'makes or relabels a generator on all nodes of Citus, with its owner and its grants; one row for each node. Called on the coordinator, again after a node was added';
-- snowflake_check() looks at the IDs that a table holds: it decodes them, counts them by
-- worker ID and day, and reports those that its generator cannot have made.
--
-- One statement reads the table, once and only as far as the sample goes. Another one
-- makes the findings of what the first has counted. Both run with the caller's rights. A
-- policy that would hide rows from the caller is an error, since a check that has not
-- seen all rows says nothing.
--
-- The rules for names and for search_path are those at the head of set_default.sql.

-- src/pg/sql/check.rs has the next six.

CREATE FUNCTION snowflake_internal_instant_or_null(id bigint) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null';
COMMENT ON FUNCTION snowflake_internal_instant_or_null(bigint) IS
    'internal, for snowflake_check(): like snowflake_timestamp(), but NULL if the default generator cannot have made the ID, and -infinity if the ID is negative';

CREATE FUNCTION snowflake_internal_instant_or_null(id bigint, generator regclass) RETURNS timestamptz
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null';
COMMENT ON FUNCTION snowflake_internal_instant_or_null(bigint, regclass) IS
    'internal, for snowflake_check(): like snowflake_timestamp(), but NULL if the generator cannot have made the ID, and -infinity if the layout has no negative IDs and the ID is negative';

CREATE FUNCTION snowflake_internal_instant_or_null_as(id bigint, layout text) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null_as';
COMMENT ON FUNCTION snowflake_internal_instant_or_null_as(bigint, text) IS
    'internal, for snowflake_check(): like snowflake_timestamp_as(), but NULL if the layout has no such ID, and -infinity if the layout has no negative IDs and the ID is negative';

CREATE FUNCTION snowflake_internal_check_limits(
    OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits';
COMMENT ON FUNCTION snowflake_internal_check_limits() IS
    'internal, for snowflake_check(): up to which number a value comes from a sequence rather than from the default generator; how far that may lead the clock to borrow, and after the clock was set back';

CREATE FUNCTION snowflake_internal_check_limits(
    generator regclass, OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval)
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits';
COMMENT ON FUNCTION snowflake_internal_check_limits(regclass) IS
    'internal, for snowflake_check(): up to which number a value comes from a sequence rather than from the generator (-1: no value can be told); how far that may lead the clock to borrow, and after the clock was set back';

CREATE FUNCTION snowflake_internal_check_limits_as(
    layout text, OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits_as';
COMMENT ON FUNCTION snowflake_internal_check_limits_as(text) IS
    'internal, for snowflake_check(): up to which number a value comes from a sequence rather than from a generator with the layout (-1: no value can be told); how far that may lead the clock to borrow, and after the clock was set back';

-- A default that gets the generator as text at run time, or that chooses among several, is
-- no evidence of which one made an ID.
CREATE FUNCTION snowflake_internal_default_generators(
    relation regclass, OUT number smallint, OUT generator regclass)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH makers (id, takes_generator) AS (
        SELECT f.oid, 'regclass'::regtype = ANY (f.proargtypes::oid[])
        FROM pg_extension AS x
        JOIN pg_depend AS e ON e.refclassid = 'pg_extension'::regclass AND e.refobjid = x.oid
            AND e.classid = 'pg_proc'::regclass AND e.deptype = 'e'
        JOIN pg_proc AS f ON f.oid = e.objid
        WHERE x.extname = 'snowflake_id'
          AND f.proname IN ('snowflake_nextval', 'snowflake_nextval_with', 'snowflake_nextval_block')),
    uses (number, maker, generator) AS (
        SELECT d.adnum, m.id, CASE WHEN NOT m.takes_generator THEN '@extschema@.snowflake_default'::regclass ELSE g.id END
        FROM pg_attrdef AS d
        JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
        LEFT JOIN makers AS m ON p.refclassid = 'pg_proc'::regclass AND m.id = p.refobjid
        LEFT JOIN (
            SELECT l.objoid FROM pg_seclabel AS l
            WHERE l.classoid = 'pg_class'::regclass AND l.provider = 'snowflake_id'
            UNION ALL
            SELECT '@extschema@.snowflake_default'::regclass) AS g (id)
            ON p.refclassid = 'pg_class'::regclass AND g.id = p.refobjid
        WHERE d.adrelid = relation)
    SELECT u.number, CASE WHEN count(DISTINCT u.generator) = 1 THEN min(u.generator)::regclass END
    FROM uses AS u GROUP BY u.number HAVING count(u.maker) > 0
$$;
COMMENT ON FUNCTION snowflake_internal_default_generators(regclass) IS
    'internal, for snowflake_check(): the columns of a table whose defaults take IDs of a generator, and the generator, or NULL if the default names none or several';

-- Worker IDs count here whose pool was dropped. Like snowflake_workers, which leaves them
-- out, this view shows a part of a table that its readers may not read.
CREATE VIEW snowflake_internal_leased AS
SELECT range_agg(int8range(l.worker_id, l.worker_id, '[]')) AS worker_ids FROM snowflake_registry_leases AS l;
COMMENT ON VIEW snowflake_internal_leased IS 'internal, for snowflake_check(): all worker IDs that this registry has ever leased';
COMMENT ON COLUMN snowflake_internal_leased.worker_ids IS 'those of all pools and namespaces, dropped ones included; NULL if there are none';
GRANT SELECT ON snowflake_internal_leased TO pg_monitor;

-- The planner takes the views of the registry for expensive, since it knows nothing of
-- the tables of a small registry; compiling them would take a second.
CREATE FUNCTION snowflake_internal_known_workers(
    OUT worker_ids int8multirange, OUT source text)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
    IF NOT has_table_privilege('@extschema@.snowflake_pools', 'SELECT') THEN
        source := 'the current role may not read the registry of worker IDs';
        RETURN;
    END IF;
    -- IDs that pools leave out are those of servers with a fixed worker ID.
    SELECT range_agg(u.ids) INTO worker_ids
    FROM (
        SELECT unnest(l.worker_ids) FROM @extschema@.snowflake_internal_leased AS l
        UNION ALL
        SELECT unnest(p.except_ids) FROM @extschema@.snowflake_pools AS p) AS u (ids);
    IF worker_ids IS NULL THEN
        source := 'this database has no registry of worker IDs, or it has leased none';
        RETURN;
    END IF;
    source := 'the registry of this database';
    BEGIN
        worker_ids := worker_ids + coalesce((
            SELECT int8multirange(int8range(w.worker_id, w.worker_id, '[]'))
            FROM @extschema@.snowflake_worker AS w WHERE w.worker_id IS NOT NULL), '{}');
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        -- Without the library, this server has made no IDs.
        NULL;
    END;
END
$$;
COMMENT ON FUNCTION snowflake_internal_known_workers() IS
    'internal, for snowflake_check(): the worker IDs that the registry of this database knows, and this server''s; NULL if it knows none; and where they come from, or why there are none';

CREATE FUNCTION snowflake_internal_count_ids(
    relation regclass, column_name name, sample double precision, suffix text, arguments text,
    greatest_small bigint, latest timestamptz)
    RETURNS TABLE (kind text, worker_id bigint, day date, ids bigint,
        least_id bigint, greatest_id bigint, first timestamptz, last timestamptz)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100
    SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
BEGIN
    -- %1$s table, %2$I column, %3$s sample, %4$s suffix, %5$s arguments. With OFFSET, the
    -- planner does not copy the function to each place that names its result.
    RETURN QUERY EXECUTE format($query$
SELECT k.kind,
    CASE WHEN k.kind IN ('fine', 'future') THEN @extschema@.snowflake_worker_id%4$s(i.id%5$s) END,
    CASE WHEN k.kind = 'fine' THEN (i.at AT TIME ZONE 'UTC')::date END,
    count(*), min(i.id), max(i.id), min(i.at), max(i.at)
FROM (SELECT t.%2$I::bigint AS id,
          @extschema@.snowflake_internal_instant_or_null%4$s(t.%2$I::bigint%5$s) AS at
      FROM %1$s AS t %3$s WHERE t.%2$I IS NOT NULL OFFSET 0) AS i
CROSS JOIN LATERAL (SELECT CASE
    WHEN i.id BETWEEN 0 AND $1 THEN 'small'
    WHEN i.at IS NULL THEN 'foreign'
    WHEN i.at = '-infinity' THEN 'negative'
    WHEN i.at > $2 THEN 'future'
    ELSE 'fine' END) AS k (kind)
GROUP BY 1, 2, 3
$query$, relation, column_name,
        CASE WHEN sample < 100 THEN format('TABLESAMPLE SYSTEM (%s)', sample) ELSE '' END,
        suffix, arguments) USING greatest_small, latest;
END
$$;
COMMENT ON FUNCTION snowflake_internal_count_ids(regclass, name, double precision, text, text, bigint, timestamptz) IS
    'internal, for snowflake_check(): counts the IDs in a column by what they are, worker ID and day';

-- This function is not STRICT: NULL has a meaning for most arguments.
CREATE FUNCTION snowflake_check(
    relation regclass, column_name name DEFAULT NULL, sample double precision DEFAULT 100,
    generator regclass DEFAULT NULL, layout text DEFAULT NULL, worker_ids int8multirange DEFAULT NULL,
    max_rows integer DEFAULT 1000)
    RETURNS TABLE (severity text, finding text, worker_id bigint, day date, ids bigint,
        least_id bigint, greatest_id bigint, detail text, hint text)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100
    SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    kind "char" := (SELECT c.relkind FROM pg_class AS c WHERE c.oid = relation);
    table_name text;
    it pg_attribute;
    foreign_table regclass;
    has_generator boolean;
    found_generator regclass;
    maker text; -- who made the IDs, for messages
    -- The names of functions that decode end with the suffix. After the ID, they take the
    -- generator or the layout.
    suffix text := '';
    whose text := '';
    arguments text; -- the same after a comma
    known int8multirange := worker_ids;
    source text := 'the argument worker_ids';
    limits record;
    now timestamptz := clock_timestamp();
    latest timestamptz;   -- an ID may be ahead of the clock up to here: of another server's clock too
    farthest timestamptz; -- no clock and no generator leads beyond that
    -- SQL for hints, which show how to find the rows.
    instant text;    -- of the ID; never fails
    worker text;     -- of the ID; fails where the instant is NULL or -infinity
    rows_where text; -- SELECT ... WHERE
    is_no_small text;
    reading text;
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'relation must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF kind IS NULL THEN
        RAISE EXCEPTION 'relation with OID % does not exist', relation::oid
            USING ERRCODE = 'undefined_table';
    END IF;
    table_name := @extschema@.snowflake_internal_name(relation);
    IF kind NOT IN ('r', 'p', 'm', 'v', 'f') THEN
        RAISE EXCEPTION '% is not a table', table_name
            USING ERRCODE = 'wrong_object_type', HINT = 'Name a table, partitioned or not, or a view.';
    ELSIF sample IS NULL OR NOT (sample > 0 AND sample <= 100) THEN
        RAISE EXCEPTION 'sample is out of range: %', coalesce(sample::text, 'null')
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give the percentage of the table''s pages to read: more than 0, and at most 100, which reads all rows.';
    ELSIF max_rows IS NULL OR max_rows < 1 THEN
        RAISE EXCEPTION 'max_rows is out of range: %', coalesce(max_rows::text, 'null')
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give how many rows there may be of each finding: 1 or more.';
    ELSIF sample < 100 AND kind IN ('v', 'f') THEN
        RAISE EXCEPTION 'cannot read a sample of %', table_name
            USING ERRCODE = 'wrong_object_type',
            DETAIL = 'Only tables and materialized views have samples.',
            HINT = 'Read all of its rows, or check the table that keeps them.';
    ELSIF generator IS NOT NULL AND layout IS NOT NULL THEN
        RAISE EXCEPTION 'both a generator and a layout are given'
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give the generator, or for IDs of another system the layout.';
    END IF;

    -- Without a name, the column is the one that gets IDs by default, or the primary key.
    SELECT a.* INTO it FROM pg_attribute AS a
    WHERE a.attrelid = relation AND NOT a.attisdropped AND a.attnum > 0
      AND CASE WHEN column_name IS NOT NULL THEN a.attname = column_name
          ELSE a.attnum = coalesce(
              (SELECT min(g.number) FROM @extschema@.snowflake_internal_default_generators(relation) AS g
               HAVING count(*) = 1),
              (SELECT k.conkey[1] FROM pg_constraint AS k
               WHERE k.conrelid = relation AND k.contype = 'p' AND cardinality(k.conkey) = 1)) END;
    IF NOT FOUND AND column_name IS NOT NULL THEN
        RAISE EXCEPTION 'column "%" of table % does not exist', column_name, table_name
            USING ERRCODE = 'undefined_column',
            HINT = 'Give the name as it is stored: without quotes, and in lower case unless it was created in quotes.';
    ELSIF NOT FOUND THEN
        RAISE EXCEPTION 'which column of % has the IDs is not clear', table_name
            USING ERRCODE = 'ambiguous_column',
            DETAIL = 'Neither does exactly one column get IDs by default, nor has the primary key exactly one column.',
            HINT = format('Name the column, as in snowflake_check(%L, %L)', table_name, 'id');
    ELSIF (@extschema@.snowflake_internal_base_type(it.atttypid, it.atttypmod)).base <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'column "%" of table % is of type %, not bigint',
            it.attname, table_name, format_type(it.atttypid, it.atttypmod)
            USING ERRCODE = 'datatype_mismatch', HINT = 'Name a bigint column.';
    END IF;
    -- PostgreSQL takes no sample of a foreign table, and would read all of it.
    IF sample < 100 THEN
        SELECT f.member INTO foreign_table
        FROM @extschema@.snowflake_internal_family(relation, it.attname) AS f
        JOIN pg_class AS c ON c.oid = f.member AND c.relkind = 'f' LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'cannot read a sample of %', table_name
                USING ERRCODE = 'wrong_object_type',
                DETAIL = format('It has foreign table %s as a partition or a child table, and foreign tables have no samples.',
                    @extschema@.snowflake_internal_name(foreign_table)),
                HINT = 'Read all of its rows, or check its other partitions one by one.';
        END IF;
    END IF;

    IF layout IS NOT NULL THEN
        suffix := '_as';
        whose := quote_literal(layout);
        maker := format('"%s"', layout);
        IF known IS NULL THEN
            source := 'the registry of this database does not know the servers of another system';
        END IF;
    ELSE
        SELECT true, g.generator INTO has_generator, found_generator
        FROM @extschema@.snowflake_internal_default_generators(relation) AS g
        WHERE g.number = it.attnum;
        found_generator := coalesce(generator, found_generator);
        IF found_generator IS NULL THEN
            RAISE EXCEPTION 'which generator makes the IDs in column "%" of table % is not clear', it.attname, table_name
                USING ERRCODE = 'invalid_parameter_value',
                DETAIL = CASE WHEN has_generator THEN 'The default of the column names no generator, or several.'
                    ELSE 'The column takes no IDs of a generator by default.' END,
                HINT = format('Name the generator, as in snowflake_check(%L, %L, generator => %L), or the layout of another system, as in layout => %L',
                    table_name, it.attname, 'snowflake_default', 'preset=twitter');
        END IF;
        -- The functions without a generator know the layout of the default one by heart.
        IF found_generator <> '@extschema@.snowflake_default'::regclass THEN
            whose := format('%L::regclass', found_generator);
        END IF;
        maker := format('generator %s', @extschema@.snowflake_internal_name(found_generator));
        IF known IS NULL THEN
            SELECT w.worker_ids, w.source INTO known, source
            FROM @extschema@.snowflake_internal_known_workers() AS w;
        END IF;
    END IF;
    reading := CASE WHEN sample = 100 THEN 'all rows were read'
        ELSE format('the rows in %s %% of the pages were read, chosen at random', sample) END;

    -- What is most often wrong, a privilege or a label, is found by these statements: an
    -- error shows the statement, and the one below is long.
    EXECUTE format('SELECT %I FROM %s LIMIT 0', it.attname, relation);
    EXECUTE format('SELECT l.* FROM @extschema@.snowflake_internal_check_limits%s(%s) AS l',
        suffix, whose) INTO limits;
    latest := now + greatest(interval '1 minute', limits.max_borrow);
    farthest := now + greatest(interval '1 day', limits.max_rollback) + limits.max_borrow;

    arguments := coalesce(', ' || nullif(whose, ''), '');
    instant := format('@extschema@.snowflake_internal_instant_or_null%s(%I%s)', suffix, it.attname, arguments);
    worker := format('@extschema@.snowflake_worker_id%s(%I%s)', suffix, it.attname, arguments);
    rows_where := format('The rows: SELECT * FROM %s WHERE ', table_name);
    is_no_small := CASE WHEN limits.greatest_small > 0
        THEN format('%I NOT BETWEEN 0 AND %s AND ', it.attname, limits.greatest_small) ELSE '' END;

    RETURN QUERY
    WITH groups AS MATERIALIZED (
        SELECT c.* FROM @extschema@.snowflake_internal_count_ids(
            relation, it.attname, sample, suffix, arguments, limits.greatest_small, latest) AS c),
    by_worker AS (
        SELECT g.kind, g.worker_id, coalesce(worker || ' = ' || g.worker_id, 'true') AS is_worker,
            sum(g.ids)::bigint AS ids, min(g.least_id) AS least_id, max(g.greatest_id) AS greatest_id,
            min(g.first) AS first, max(g.last) AS last
        FROM groups AS g GROUP BY g.kind, g.worker_id),
    found (rank, severity, finding, worker_id, day, ids, least_id, greatest_id, detail, hint) AS (
        SELECT 1, 'error', 'ID of another layout', NULL::bigint, NULL::date, b.ids, b.least_id, b.greatest_id,
            format('No ID of %s has these bits.', maker),
            'Find out what else writes to the column, or name the generator or the layout that made them. '
                || rows_where || is_no_small || instant || ' IS NULL'
        FROM by_worker AS b WHERE b.kind = 'foreign'
        UNION ALL
        SELECT 1, 'error', 'ID before the epoch', NULL, NULL, b.ids, b.least_id, b.greatest_id,
            format('IDs of %s are never negative.', maker),
            rows_where || format('%I < 0', it.attname)
        FROM by_worker AS b WHERE b.kind = 'negative'
        UNION ALL
        SELECT CASE WHEN a.by_far THEN 1 ELSE 2 END, CASE WHEN a.by_far THEN 'error' ELSE 'warning' END,
            'ID of the future', b.worker_id, NULL, b.ids, b.least_id, b.greatest_id,
            format('The IDs are of instants up to %s', b.last) || CASE WHEN isfinite(b.last) THEN
                format(', %s ahead of the clock of this server', date_trunc('second', b.last - now)) ELSE '' END || '.',
            CASE WHEN a.by_far THEN 'No generator leads so far, unless this server''s clock is slow. Find out what else writes to the column, or name the generator or the layout that made them. '
                ELSE 'Compare the clocks of the servers: snowflake_check_cluster(). This server''s clock may be slow. A generator also leads after its clock was set back, and after snowflake_advance(). ' END
                || rows_where || is_no_small || format('CASE WHEN %s > %L THEN %s END', instant, latest, b.is_worker)
        FROM by_worker AS b CROSS JOIN LATERAL (SELECT b.last > farthest) AS a (by_far)
        WHERE b.kind = 'future'
        UNION ALL
        SELECT 2, 'warning', 'unknown worker ID', b.worker_id, NULL, sum(b.ids)::bigint, min(b.least_id), max(b.greatest_id),
            format('Not in %s. The IDs are of instants from %s to %s.', source, min(b.first), max(b.last)),
            'Find out which server has this worker ID. '
                || rows_where || is_no_small || format('CASE WHEN %s > ''-infinity'' THEN %s END', instant, b.is_worker)
        FROM by_worker AS b WHERE NOT known @> b.worker_id GROUP BY b.worker_id, b.is_worker
        UNION ALL
        SELECT 3, 'warning', 'worker IDs were not checked', NULL, NULL, NULL, NULL, NULL,
            format('It is not known which there are: %s.', source),
            'Give them, as in worker_ids => ''{[1,4)}'' for 1 to 3.'
        WHERE known IS NULL AND EXISTS (SELECT FROM groups AS g WHERE g.worker_id IS NOT NULL)
        UNION ALL
        SELECT 4, 'info', 'small numbers', NULL, NULL, b.ids, b.least_id, b.greatest_id,
            'Numbers up to 2147483647 come from a sequence: as IDs they would be of the first instants after the epoch.',
            'If the table had such keys before it had the generator, all is well.'
        FROM by_worker AS b WHERE b.kind = 'small'
        UNION ALL
        SELECT 5, 'info', 'all IDs', NULL, NULL, coalesce(sum(b.ids), 0)::bigint, min(b.least_id), max(b.greatest_id),
            format('Column %I of %s, IDs of %s; %s.', it.attname, table_name, maker, reading), NULL
        FROM by_worker AS b
        UNION ALL
        SELECT 6, 'info', 'IDs of a day', g.worker_id, g.day, g.ids, g.least_id, g.greatest_id, NULL, NULL
        FROM groups AS g WHERE g.kind = 'fine'),
    placed AS (
        SELECT f.*, row_number() OVER (PARTITION BY f.rank, f.finding ORDER BY f.day DESC, f.worker_id) AS place
        FROM found AS f),
    shown AS (
        SELECT p.* FROM placed AS p WHERE p.place <= max_rows
        UNION ALL
        SELECT p.rank, p.severity, p.finding, NULL, NULL, sum(p.ids)::bigint, min(p.least_id), max(p.greatest_id),
            format('This row stands for all others, %s in number.', count(*)),
            format('To see each of them, give max_rows => %s.', max(p.place)), NULL
        FROM placed AS p WHERE p.place > max_rows GROUP BY p.rank, p.severity, p.finding)
    SELECT s.severity, s.finding, s.worker_id, s.day, s.ids, s.least_id, s.greatest_id, s.detail, s.hint
    FROM shown AS s ORDER BY s.rank, s.finding, s.place;
END
$$;
COMMENT ON FUNCTION snowflake_check(regclass, name, double precision, regclass, text, int8multirange, integer) IS
    'checks the IDs that a column holds: IDs that its generator or layout cannot have made, of the future, before the epoch, of unknown worker IDs; and counts them by worker ID and day';
-- Which columns snowflake_convert() changes, and of which keys snowflake_set_defaults() sets
-- the default: step 1 of convert_plan.sql, whose head has the rules.

CREATE FUNCTION snowflake_internal_convert_tables(
    relations regclass[], schema regnamespace) RETURNS regclass[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    class pg_class;
BEGIN
    IF (relations IS NULL) = (schema IS NULL) THEN
        RAISE EXCEPTION 'either relations or schema must be given'
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'As in snowflake_convert_plan(''{orders, customers}'') or snowflake_convert_plan(schema => ''public'')';
    END IF;
    relations := coalesce(relations, @extschema@.snowflake_internal_tables_of(schema));
    FOR i IN 1 .. cardinality(relations) LOOP
        SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = relations[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'relation with OID % does not exist', relations[i]::oid USING ERRCODE = 'undefined_table';
        ELSIF class.relkind NOT IN ('r', 'p') THEN
            RAISE EXCEPTION '% is not a table', @extschema@.snowflake_internal_name(relations[i])
                USING ERRCODE = 'wrong_object_type', HINT = 'Name tables, partitioned or not. Views of them are made again.';
        ELSIF class.oid < 12000 THEN
            -- FirstUnpinnedObjectId: PostgreSQL itself tells its catalogs by this number.
            RAISE EXCEPTION 'permission denied: % is a system catalog', @extschema@.snowflake_internal_name(relations[i])
                USING ERRCODE = 'insufficient_privilege';
        ELSIF class.relispartition THEN
            RAISE EXCEPTION '% is a partition', @extschema@.snowflake_internal_name(relations[i])
                USING ERRCODE = 'wrong_object_type',
                HINT = format('Name the whole table: %s', @extschema@.snowflake_internal_name(pg_partition_root(relations[i])));
        END IF;
    END LOOP;
    RETURN relations;
END
$$;
COMMENT ON FUNCTION snowflake_internal_convert_tables(regclass[], regnamespace) IS
    'internal, for snowflake_convert(): the tables that the caller means';

CREATE FUNCTION snowflake_internal_column_roots(relation regclass, column_name name) RETURNS SETOF regclass
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A scalar subquery, so that the index of pg_attribute is used in all cases.
    WITH RECURSIVE up (id) AS (
        SELECT relation::oid
        UNION
        SELECT i.inhparent FROM up AS u JOIN pg_inherits AS i ON i.inhrelid = u.id
        WHERE (SELECT NOT a.attisdropped FROM pg_attribute AS a WHERE a.attrelid = i.inhparent AND a.attname = column_name))
    SELECT u.id::regclass FROM up AS u
    WHERE NOT EXISTS (
        SELECT FROM pg_inherits AS i
        WHERE i.inhrelid = u.id
          AND (SELECT NOT a.attisdropped FROM pg_attribute AS a WHERE a.attrelid = i.inhparent AND a.attname = column_name))
$$;
COMMENT ON FUNCTION snowflake_internal_column_roots(regclass, name) IS
    'internal, for snowflake_convert(): the topmost tables that have a column which a table inherits; the table itself if it does not inherit it';

CREATE FUNCTION snowflake_internal_tables_of(schema regnamespace) RETURNS regclass[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(array_agg(c.oid::regclass ORDER BY c.relname), '{}')
    FROM pg_class AS c
    WHERE c.relnamespace = schema AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND NOT EXISTS (
          SELECT FROM pg_depend AS d
          WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
$$;
COMMENT ON FUNCTION snowflake_internal_tables_of(regnamespace) IS
    'internal, for snowflake_convert() and snowflake_set_defaults(): the tables of a schema, without partitions and tables of extensions';

-- A key is the only column of a primary key, whatever its default. A column that counts,
-- by an identity or a sequence, is a key too if it is part of the primary key, alone has
-- a unique index, or is in a table without either.
CREATE FUNCTION snowflake_internal_keys(
    relation regclass,
    OUT number smallint, OUT name name, OUT type oid, OUT base regtype, OUT has_default boolean,
    OUT is_key boolean, OUT refers_to regclass)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH own AS (
        SELECT i.indkey::smallint[] AS columns, i.indnkeyatts AS count, i.indisprimary AS is_primary
        FROM pg_index AS i
        WHERE i.indrelid = relation AND i.indisunique AND i.indpred IS NULL),
    columns AS (
        SELECT a.*, t.base, a.atthasdef OR a.attidentity <> '' AS has_default,
            a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE '%nextval(%' AS counts,
            coalesce((SELECT a.attnum = ANY (o.columns[0:o.count - 1]) FROM own AS o WHERE o.is_primary), false) AS in_primary,
            coalesce((SELECT o.count = 1 FROM own AS o WHERE o.is_primary), false) AS is_single,
            EXISTS (SELECT FROM own AS o WHERE o.count = 1 AND o.columns[0] = a.attnum) AS is_unique,
            NOT EXISTS (SELECT FROM own) AS is_bare
        FROM pg_attribute AS a
        CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS t
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
    SELECT c.attnum, c.attname, c.atttypid, c.base, c.has_default,
        c.in_primary AND (c.is_single OR c.counts) OR c.counts AND (c.is_unique OR c.is_bare),
        (SELECT f.confrelid::regclass FROM pg_constraint AS f
         WHERE f.conrelid = c.attrelid AND f.contype = 'f' AND c.attnum = ANY (f.conkey)
           AND (f.confrelid <> f.conrelid OR f.conkey <> f.confkey)
         ORDER BY f.conname LIMIT 1)
    FROM columns AS c
    WHERE c.in_primary OR c.counts
    ORDER BY c.attnum
$$;
COMMENT ON FUNCTION snowflake_internal_keys(regclass) IS
    'internal, for snowflake_convert() and snowflake_set_defaults(): the columns of a table that are in its primary key or count, which of them are keys that get IDs, and the table to which one refers';

-- A key that refers to another table has that table's keys: it follows that table. A key
-- without a default has values of the application: it is taken if its table was named, or
-- if it needs no change of type.
CREATE FUNCTION snowflake_internal_convert_keys(
    relations regclass[], are_named boolean,
    OUT relation regclass, OUT name name, OUT is_taken boolean, OUT note text)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.id, k.name, w.note IS NULL, w.note
    FROM unnest(relations) WITH ORDINALITY AS r (id, place)
    CROSS JOIN @extschema@.snowflake_internal_keys(r.id) AS k
    CROSS JOIN LATERAL (SELECT CASE
        WHEN k.refers_to IS NOT NULL THEN 'refers to table ' || @extschema@.snowflake_internal_name(k.refers_to) || ', and is changed with the key of that table only'
        WHEN NOT k.is_key AND k.has_default THEN 'draws from a sequence, but is no key'
        WHEN NOT k.is_key THEN 'is part of the primary key, but does not draw from a sequence'
        WHEN NOT are_named AND NOT k.has_default AND k.base <> 'bigint'::regtype THEN
            'is a key without a default, so its values come from the application: name its table to change it'
        END AS note) AS w
    WHERE k.base IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
    ORDER BY r.place, k.number
$$;
COMMENT ON FUNCTION snowflake_internal_convert_keys(regclass[], boolean) IS
    'internal, for snowflake_convert(): the keys of tables, and which of them are taken';

CREATE FUNCTION snowflake_internal_convert_columns(
    relations regclass[], are_named boolean,
    OUT relation regclass, OUT name name, OUT number smallint, OUT type oid, OUT base regtype, OUT is_key boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE keys (id, name) AS MATERIALIZED (
        SELECT t.root, k.name
        FROM @extschema@.snowflake_internal_convert_keys(relations, are_named) AS k
        CROSS JOIN @extschema@.snowflake_internal_column_roots(k.relation, k.name) AS t (root)
        WHERE k.is_taken),
    reached (id, name) AS (
        SELECT k.id, k.name FROM keys AS k
        UNION
        SELECT t.root, h.attname
        FROM reached AS c
        CROSS JOIN @extschema@.snowflake_internal_family(c.id, c.name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f'
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        CROSS JOIN @extschema@.snowflake_internal_column_roots(k.conrelid, h.attname) AS t (root)
        WHERE u.there = f.number)
    SELECT c.id, c.name, a.attnum, a.atttypid, b.base,
        EXISTS (SELECT FROM keys AS k WHERE k.id = c.id AND k.name = c.name)
    FROM reached AS c
    JOIN pg_class AS t ON t.oid = c.id
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.id AND a.attname = c.name AND NOT a.attisdropped
    CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS b
    WHERE b.base IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
    ORDER BY n.nspname, t.relname, a.attnum
$$;
COMMENT ON FUNCTION snowflake_internal_convert_columns(regclass[], boolean) IS
    'internal, for snowflake_convert(): the keys of tables and all columns of foreign keys that reach them, in the topmost tables that have them';

CREATE FUNCTION snowflake_internal_wanted_default(generator regclass) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- As PostgreSQL shows it.
    SELECT CASE WHEN generator <> '@extschema@.snowflake_default'::regclass
        THEN format('%s(''%s''::regclass)', '@extschema@.snowflake_nextval(regclass)'::regprocedure::regproc,
            replace(@extschema@.snowflake_internal_name(generator), '''', ''''''))
        ELSE '@extschema@.snowflake_nextval()'::regprocedure::text END
$$;
COMMENT ON FUNCTION snowflake_internal_wanted_default(regclass) IS
    'internal, for snowflake_convert(): the default of a key, as the catalogs have it, for a generator or the default one';
-- What depends on the columns that snowflake_convert() changes, and the statements that make
-- it again: steps 2 and 3 of convert_plan.sql, whose head has the rules.

CREATE FUNCTION snowflake_internal_convert_dependents(
    tables oid[], numbers smallint[], OUT class regclass, OUT id oid, OUT level integer)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE
    -- A view stands for its rule _RETURN and for its row type; a table stays a table.
    edges (class, id, of_class, of_id, of_number) AS MATERIALIZED (
        SELECT CASE WHEN r.rulename = '_RETURN' THEN 'pg_class'::regclass::oid ELSE d.classid END,
            CASE WHEN r.rulename = '_RETURN' THEN r.ev_class ELSE d.objid END,
            CASE WHEN t.typrelid <> 0 THEN 'pg_class'::regclass::oid ELSE d.refclassid END,
            CASE WHEN t.typrelid <> 0 THEN t.typrelid ELSE d.refobjid END,
            d.refobjsubid
        FROM pg_depend AS d
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        LEFT JOIN pg_trigger AS g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
        LEFT JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
        LEFT JOIN pg_type AS e ON d.refclassid = 'pg_type'::regclass AND e.oid = d.refobjid
        LEFT JOIN pg_type AS t ON t.oid = CASE WHEN e.typelem <> 0 THEN e.typelem ELSE e.oid END
        WHERE d.deptype IN ('n', 'a')
          -- These go with the table or the materialized view that they belong to.
          AND NOT coalesce(c.relkind IN ('i', 'I', 't', 'S') AND d.refclassid = 'pg_class'::regclass, false)
          AND d.classid <> 'pg_statistic_ext'::regclass
          AND NOT coalesce(f.adrelid = d.refobjid AND d.refclassid = 'pg_class'::regclass, false)
          -- The triggers of foreign keys, and the copies that partitions have.
          AND NOT coalesce(g.tgisinternal OR g.tgparentid <> 0, false)),
    found (class, id, level) AS (
        SELECT e.class, e.id, 1
        FROM unnest(tables, numbers) AS u (id, number)
        JOIN edges AS e ON e.of_class = 'pg_class'::regclass AND e.of_id = u.id AND e.of_number = u.number
        -- Constraints are made anew by ALTER TABLE.
        WHERE e.class <> 'pg_constraint'::regclass AND (e.class, e.id) <> ('pg_class'::regclass, u.id)
        UNION
        SELECT e.class, e.id, f.level + 1
        FROM found AS f
        JOIN edges AS e ON e.of_class = f.class AND e.of_id = f.id AND (e.class, e.id) <> (f.class, f.id)
        WHERE f.level < 1000)
    SELECT f.class::regclass, f.id, max(f.level) FROM found AS f GROUP BY f.class, f.id
$$;
COMMENT ON FUNCTION snowflake_internal_convert_dependents(oid[], smallint[]) IS
    'internal, for snowflake_convert(): the views, rules, triggers, policies, publications, functions and whatever else depends on columns, directly or through each other, with the level at which each is made again';

CREATE FUNCTION snowflake_internal_grants(
    acl aclitem[], owner oid, kind "char", target text, column_name name) RETURNS SETOF text
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- What a new object has is what PostgreSQL gives it, unless the caller has said
    -- otherwise by ALTER DEFAULT PRIVILEGES: then everything is revoked, and granted anew.
    WITH changed_defaults AS (
        SELECT a.defaclacl FROM pg_default_acl AS a
        WHERE column_name IS NULL AND a.defaclobjtype = kind AND a.defaclrole = quote_ident(current_user)::regrole),
    usual AS (
        SELECT e.* FROM aclexplode(acldefault(kind, owner)) AS e WHERE column_name IS NULL),
    given AS (
        SELECT u.grantee FROM usual AS u
        UNION
        SELECT e.grantee FROM changed_defaults AS d CROSS JOIN aclexplode(d.defaclacl) AS e),
    wanted AS (
        SELECT e.*, CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END AS role,
            CASE WHEN column_name IS NULL THEN e.privilege_type
                ELSE format('%s (%I)', e.privilege_type, column_name) END AS privilege
        FROM aclexplode(CASE WHEN EXISTS (SELECT FROM changed_defaults) THEN coalesce(acl, acldefault(kind, owner)) ELSE acl END)
            WITH ORDINALITY AS e),
    -- Those of whom something is to be revoked.
    reduced AS (
        SELECT g.grantee FROM given AS g
        WHERE EXISTS (SELECT FROM changed_defaults)
           OR acl IS NOT NULL AND EXISTS (
              SELECT FROM usual AS u WHERE u.grantee = g.grantee AND NOT EXISTS (
                  SELECT FROM wanted AS w
                  WHERE (w.grantor, w.grantee, w.privilege_type) = (u.grantor, u.grantee, u.privilege_type)))),
    statements (phase, place, statement) AS (
        SELECT 1, 0, format('REVOKE ALL ON %s FROM %s', target,
            CASE r.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r.grantee)) END)
        FROM reduced AS r
        UNION ALL
        -- A grant that another role than the owner made is made by that role again.
        SELECT 2, min(w.ordinality), CASE WHEN w.grantor = owner THEN '' ELSE format('SET LOCAL ROLE %I; ', pg_get_userbyid(w.grantor)) END
            || format('GRANT %s ON %s TO %s', string_agg(w.privilege, ', ' ORDER BY w.ordinality), target, w.role)
            || CASE WHEN w.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
            || CASE WHEN w.grantor = owner THEN '' ELSE format('; SET LOCAL ROLE %I', current_user) END
        FROM wanted AS w
        WHERE w.grantee <> owner OR w.grantee IN (SELECT r.grantee FROM reduced AS r)
        GROUP BY w.grantor, w.grantee, w.role, w.is_grantable)
    SELECT s.statement FROM statements AS s ORDER BY s.phase, s.place, s.statement
$$;
COMMENT ON FUNCTION snowflake_internal_grants(aclitem[], oid, "char", text, name) IS
    'internal, for snowflake_convert(): the statements that give a new object, or a column of it, the privileges that an object had';

-- The result is in the order in which the statements run. For an object of a kind that
-- cannot be made again, the statements are null.
CREATE FUNCTION snowflake_internal_convert_remake(
    class regclass, id oid, OUT described text, OUT owner oid, OUT drop_statement text, OUT statements text[])
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it record;
    target text;
    kind text;
    options text;
BEGIN
    described := pg_describe_object(class, id, 0);
    statements := '{}';
    CASE class
    WHEN 'pg_class'::regclass THEN
        SELECT c.*, n.nspname, a.amname, s.spcname,
            rtrim(pg_get_viewdef(c.oid), ';') AS definition,
            @extschema@.snowflake_internal_name(c.oid) AS name INTO it
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        LEFT JOIN pg_am AS a ON a.oid = c.relam
        LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace
        WHERE c.oid = id AND c.relkind IN ('v', 'm')
          AND (c.relpersistence <> 't' OR c.relnamespace = pg_my_temp_schema());
        IF NOT FOUND THEN
            statements := NULL;
            RETURN;
        END IF;
        owner := it.relowner;
        kind := CASE it.relkind WHEN 'v' THEN 'VIEW' ELSE 'MATERIALIZED VIEW' END;
        options := (SELECT format(' WITH (%s)', string_agg(
                r.prefix || format('%I = %L', split_part(r.o, '=', 1), substr(r.o, strpos(r.o, '=') + 1)), ', ' ORDER BY r.prefix, r.o))
            FROM (SELECT '', o FROM unnest(it.reloptions) AS o
                  UNION ALL
                  SELECT 'toast.', o FROM pg_class AS t CROSS JOIN unnest(t.reloptions) AS o WHERE t.oid = it.reltoastrelid) AS r (prefix, o)
            HAVING count(*) > 0);
        drop_statement := format('DROP %s %s', kind, it.name);
        statements := statements || (format('CREATE %s %s', kind, it.name)
            || CASE WHEN it.relkind = 'm' THEN format(' USING %I', it.amname) ELSE '' END
            || coalesce(options, '') || coalesce(' TABLESPACE ' || quote_ident(it.spcname), '')
            || ' AS' || E'\n' || it.definition
            -- The query runs later, as the owner: REFRESH does that.
            || CASE WHEN it.relkind = 'm' THEN E'\n  WITH NO DATA' ELSE '' END);
        -- Before everything that runs code of the owner: CREATE INDEX does that, with the rights
        -- of the role that owns the view then.
        IF it.relowner <> quote_ident(current_user)::regrole THEN
            statements := statements || format('ALTER %s %s OWNER TO %I', kind, it.name, pg_get_userbyid(it.relowner));
        END IF;
        statements := statements || ARRAY(
            SELECT format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s', it.name, a.attname, pg_get_expr(d.adbin, d.adrelid))
            FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
            WHERE d.adrelid = id ORDER BY d.adnum);
        statements := statements || ARRAY(
            SELECT format('ALTER MATERIALIZED VIEW %s ALTER COLUMN %I %s', it.name, a.attname, s.change)
            FROM pg_attribute AS a
            JOIN pg_type AS y ON y.oid = a.atttypid
            CROSS JOIN LATERAL (VALUES
                (1, 'SET STATISTICS ' || nullif(a.attstattarget, -1)),
                (2, (SELECT format('SET (%s)', string_agg(o, ', ')) FROM unnest(a.attoptions) AS o WHERE o LIKE 'n\_distinct%' HAVING count(*) > 0)),
                (3, CASE WHEN a.attstorage <> y.typstorage THEN 'SET STORAGE ' || CASE a.attstorage
                    WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' WHEN 'x' THEN 'EXTENDED' END END),
                (4, 'SET COMPRESSION ' || CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END)
            ) AS s (place, change)
            WHERE a.attrelid = id AND it.relkind = 'm' AND a.attnum > 0 AND s.change IS NOT NULL
            ORDER BY a.attnum, s.place);
        statements := statements || ARRAY(
            SELECT s.statement
            FROM pg_index AS i
            JOIN pg_class AS c ON c.oid = i.indexrelid
            LEFT JOIN pg_tablespace AS t ON t.oid = c.reltablespace
            CROSS JOIN LATERAL (VALUES
                (1, pg_get_indexdef(i.indexrelid)),
                (2, format('ALTER INDEX %I.%I SET TABLESPACE ', it.nspname, c.relname) || quote_ident(t.spcname)),
                (3, CASE WHEN i.indisclustered THEN format('ALTER MATERIALIZED VIEW %s CLUSTER ON %I', it.name, c.relname) END),
                (4, format('COMMENT ON INDEX %I.%I IS ', it.nspname, c.relname) || quote_literal(obj_description(c.oid, 'pg_class')))
            ) AS s (place, statement)
            WHERE i.indrelid = id AND s.statement IS NOT NULL
            ORDER BY c.relname, s.place);
        statements := statements || ARRAY(
            SELECT s.statement
            FROM pg_statistic_ext AS x
            JOIN pg_namespace AS n ON n.oid = x.stxnamespace
            CROSS JOIN LATERAL (VALUES (1, pg_get_statisticsobjdef(x.oid)),
                (2, CASE WHEN x.stxowner <> quote_ident(current_user)::regrole THEN
                    format('ALTER STATISTICS %I.%I OWNER TO %I', n.nspname, x.stxname, pg_get_userbyid(x.stxowner)) END),
                (3, CASE WHEN x.stxstattarget >= 0 THEN format('ALTER STATISTICS %I.%I SET STATISTICS %s', n.nspname, x.stxname, x.stxstattarget) END),
                (4, format('COMMENT ON STATISTICS %I.%I IS ', n.nspname, x.stxname) || quote_literal(obj_description(x.oid, 'pg_statistic_ext')))
            ) AS s (place, statement)
            WHERE x.stxrelid = id AND s.statement IS NOT NULL ORDER BY x.oid, s.place);
        statements := statements || ARRAY(
            SELECT @extschema@.snowflake_internal_grants(it.relacl, it.relowner, 'r', 'TABLE ' || it.name, NULL));
        statements := statements || ARRAY(
            SELECT g FROM pg_attribute AS a
            CROSS JOIN @extschema@.snowflake_internal_grants(a.attacl, it.relowner, 'c', 'TABLE ' || it.name, a.attname) AS g
            WHERE a.attrelid = id AND a.attacl IS NOT NULL ORDER BY a.attnum);
        statements := statements || ARRAY(
            SELECT CASE d.objsubid WHEN 0 THEN format('COMMENT ON %s %s IS %L', kind, it.name, d.description)
                ELSE format('COMMENT ON COLUMN %s.%I IS %L', it.name,
                    (SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = id AND a.attnum = d.objsubid), d.description) END
            FROM pg_description AS d
            WHERE d.classoid = class AND d.objoid = id ORDER BY d.objsubid);
        IF it.relkind = 'm' AND it.relispopulated THEN
            statements := statements || format('REFRESH MATERIALIZED VIEW %s', it.name);
        END IF;

    WHEN 'pg_rewrite'::regclass THEN
        SELECT r.*, c.relowner, c.relkind, @extschema@.snowflake_internal_name(c.oid) AS name,
            rtrim(pg_get_ruledef(r.oid), ';') AS definition INTO it
        FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class WHERE r.oid = id;
        owner := it.relowner;
        drop_statement := format('DROP RULE %I ON %s', it.rulename, it.name);
        statements := ARRAY[it.definition];
        IF it.ev_enabled <> 'O' THEN
            statements := statements || format('ALTER TABLE %s %s RULE %I', it.name,
                CASE it.ev_enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, it.rulename);
        END IF;
        target := format('RULE %I ON %s', it.rulename, it.name);

    WHEN 'pg_trigger'::regclass THEN
        SELECT t.*, c.relowner, @extschema@.snowflake_internal_name(c.oid) AS name, pg_get_triggerdef(t.oid) AS definition INTO it
        FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE t.oid = id;
        owner := it.relowner;
        drop_statement := format('DROP TRIGGER %I ON %s', it.tgname, it.name);
        statements := ARRAY[it.definition];
        -- The copies in partitions may be enabled in another way; a view's are always.
        statements := statements || ARRAY(
            WITH RECURSIVE copies (id, enabled, is_first) AS (
                SELECT it.oid, it.tgenabled, true
                UNION ALL
                SELECT t.oid, t.tgenabled, false FROM copies AS c JOIN pg_trigger AS t ON t.tgparentid = c.id)
            SELECT format('ALTER TABLE ONLY %s %s TRIGGER %I', @extschema@.snowflake_internal_name(t.tgrelid),
                CASE c.enabled WHEN 'D' THEN 'DISABLE' WHEN 'O' THEN 'ENABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, t.tgname)
            FROM copies AS c JOIN pg_trigger AS t ON t.oid = c.id
            WHERE c.enabled <> 'O' OR c.enabled <> it.tgenabled
            ORDER BY c.is_first DESC, c.id);
        target := format('TRIGGER %I ON %s', it.tgname, it.name);

    WHEN 'pg_policy'::regclass THEN
        SELECT p.*, c.relowner, @extschema@.snowflake_internal_name(c.oid) AS name,
            pg_get_expr(p.polqual, p.polrelid) AS condition, pg_get_expr(p.polwithcheck, p.polrelid) AS with_check,
            (SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, ', ')
             FROM unnest(p.polroles) AS r) AS roles INTO it
        FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid WHERE p.oid = id;
        owner := it.relowner;
        drop_statement := format('DROP POLICY %I ON %s', it.polname, it.name);
        statements := ARRAY[format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', it.polname, it.name,
                CASE WHEN it.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                CASE it.polcmd WHEN '*' THEN 'ALL' WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' ELSE 'DELETE' END,
                it.roles)
            || coalesce(' USING (' || it.condition || ')', '') || coalesce(' WITH CHECK (' || it.with_check || ')', '')];
        target := format('POLICY %I ON %s', it.polname, it.name);

    WHEN 'pg_publication_rel'::regclass THEN
        SELECT r.*, p.pubname, p.pubowner, @extschema@.snowflake_internal_name(r.prrelid) AS name,
            pg_get_expr(r.prqual, r.prrelid) AS condition,
            (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY u.place)
             FROM unnest(r.prattrs::smallint[]) WITH ORDINALITY AS u (number, place)
             JOIN pg_attribute AS a ON a.attrelid = r.prrelid AND a.attnum = u.number) AS columns INTO it
        FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE r.oid = id;
        owner := it.pubowner;
        drop_statement := format('ALTER PUBLICATION %I DROP TABLE ONLY %s', it.pubname, it.name);
        statements := ARRAY[format('ALTER PUBLICATION %I ADD TABLE ONLY %s', it.pubname, it.name)
            || coalesce(' (' || it.columns || ')', '') || coalesce(' WHERE (' || it.condition || ')', '')];

    WHEN 'pg_proc'::regclass THEN
        SELECT p.*, id::regprocedure AS name INTO it FROM pg_proc AS p WHERE p.oid = id AND p.prokind <> 'a';
        IF NOT FOUND THEN
            statements := NULL;
            RETURN;
        END IF;
        owner := it.proowner;
        drop_statement := format('DROP ROUTINE %s', it.name);
        statements := ARRAY[rtrim(pg_get_functiondef(id), E'\n')];
        IF it.proowner <> quote_ident(current_user)::regrole THEN
            statements := statements || format('ALTER ROUTINE %s OWNER TO %I', it.name, pg_get_userbyid(it.proowner));
        END IF;
        statements := statements || ARRAY(
            SELECT @extschema@.snowflake_internal_grants(it.proacl, it.proowner, 'f', 'ROUTINE ' || it.name, NULL));
        target := 'ROUTINE ' || it.name;
    ELSE
        statements := NULL;
        RETURN;
    END CASE;

    statements := statements || ARRAY(
        SELECT format('COMMENT ON %s IS %L', target, d.description) FROM pg_description AS d
        WHERE target IS NOT NULL AND d.classoid = class AND d.objoid = id AND d.objsubid = 0);
    statements := statements || ARRAY(
        SELECT format('SECURITY LABEL FOR %I ON %s %s IS %L', l.provider, upper(l.objtype), l.objname, l.label)
        FROM pg_seclabels AS l WHERE l.classoid = class AND l.objoid = id ORDER BY l.objsubid, l.provider);
END
$$;
COMMENT ON FUNCTION snowflake_internal_convert_remake(regclass, oid) IS
    'internal, for snowflake_convert(): the statement that drops an object and those that make it again; null for an object of a kind that cannot be made again';

-- PostgreSQL reads a literal of a type that contains a domain when it parses a statement, and
-- looks at the conditions of the domain then. Nobody but the caller could run such a
-- statement, and the caller only trusts the owners of the tables.
CREATE FUNCTION snowflake_internal_convert_literals(made_again jsonb, tables oid[]) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE types (id, domain, owner) AS (
        SELECT y.oid, y.oid, y.typowner FROM pg_type AS y
        WHERE EXISTS (SELECT FROM pg_constraint AS k WHERE k.contypid = y.oid)
          AND NOT pg_has_role(y.typowner, quote_ident(current_user)::regrole, 'USAGE')
          AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = ANY (tables) AND c.relowner = y.typowner)
        UNION
        SELECT m.id, t.domain, t.owner FROM types AS t
        CROSS JOIN LATERAL (
            SELECT y.oid FROM pg_type AS y WHERE t.id IN (y.typelem, y.typbasetype)
            UNION ALL
            SELECT c.reltype FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
            WHERE a.atttypid = t.id AND NOT a.attisdropped AND c.reltype <> 0
            UNION ALL
            SELECT u.id FROM pg_range AS r CROSS JOIN LATERAL (VALUES (r.rngtypid), (r.rngmultitypid)) AS u (id) WHERE r.rngsubtype = t.id) AS m (id))
    SELECT DISTINCT ON (d.described) format('%s has a literal of type %s, and domain %s would run code of role %I with the rights of the caller: drop it before, and let its owner make it again after',
        d.described, format_type(t.id, NULL), t.domain::regtype, pg_get_userbyid(t.owner))
    FROM jsonb_to_recordset(made_again) AS d (described text, statements text[])
    JOIN types AS t ON strpos(array_to_string(d.statements, E'\n'), '''::' || format_type(t.id, NULL)) > 0
    -- The name of a type may begin with that of another one.
    ORDER BY d.described, length(format_type(t.id, NULL)) DESC, t.domain
$$;
COMMENT ON FUNCTION snowflake_internal_convert_literals(jsonb, oid[]) IS
    'internal, for snowflake_convert(): objects that cannot be made again without code of third roles, in the conditions of domains, that would run with the rights of the caller';
-- snowflake_convert(backfill => true): old rows get IDs of the time at which they were made.
-- Each key column has the origin of its values, which is a key that counts: itself, or the
-- one that it refers to, directly or through other foreign keys.
--
-- 1. snowflake_internal_backfill_keys(): the keys, and the column that has the time of
--    each row. A key of a table without such a column keeps its values.
-- 2. snowflake_internal_backfill_columns(): all columns with their origins. A column with
--    two origins is an obstacle, since one old value would have two new ones.
-- 3. snowflake_internal_backfill_obstacles(): rows that cannot have an ID of their time,
--    and worker IDs that are in use. This reads the tables.
-- 4. snowflake_internal_backfill_map(): the statements that fill table snowflake_old_ids,
--    from which ALTER TABLE takes the new values. The caller keeps that table.
--
-- The IDs are made as a server with that worker ID would have made them: in the order of
-- ticks, within a tick in the order of keys, and each only once, also in different tables.
-- If a tick is exhausted, the row gets an ID of the next tick that has room. All constants
-- of the layout come from the functions that encode IDs.

CREATE FUNCTION snowflake_internal_backfill_time(
    relation regclass, names name[], OUT name name, OUT expression text, OUT problem text)
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    type regtype;
    candidates name[];
BEGIN
    SELECT a.attname, b.base INTO name, type
    FROM unnest(names) WITH ORDINALITY AS n (wanted, place)
    JOIN pg_attribute AS a ON a.attrelid = relation AND a.attname = n.wanted AND a.attnum > 0 AND NOT a.attisdropped
    CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS b
    ORDER BY n.place LIMIT 1;
    IF NOT FOUND THEN
        -- The only one whose name does not speak of later times; or the only one of them
        -- that says by its name that it is of new rows.
        SELECT array_agg(a.attname ORDER BY a.attnum) INTO candidates
        FROM pg_attribute AS a
        CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS b
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
          AND b.base IN ('timestamptz'::regtype, 'timestamp'::regtype)
          AND a.attname !~* '(updat|modif|chang|last|latest|delet|expir|until|due|end_|ended)';
        IF cardinality(candidates) > 1 AND (SELECT count(*) FROM unnest(candidates) AS c WHERE c ~* '^(creat|insert)') = 1 THEN
            candidates := ARRAY(SELECT c FROM unnest(candidates) AS c WHERE c ~* '^(creat|insert)');
        END IF;
        IF candidates IS NULL THEN
            RETURN;
        ELSIF cardinality(candidates) > 1 THEN
            problem := format('table %s has more than one column with a time: name the one of new rows, as in backfill_by => %L',
                @extschema@.snowflake_internal_name(relation), candidates[1:1]);
            RETURN;
        END IF;
        name := candidates[1];
        type := (SELECT b.base FROM pg_attribute AS a
            CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS b
            WHERE a.attrelid = relation AND a.attname = snowflake_internal_backfill_time.name);
    END IF;
    expression := CASE type
        WHEN 'timestamptz'::regtype THEN format('%I::timestamptz', name)
        WHEN 'timestamp'::regtype THEN format('%I::timestamp AT TIME ZONE %L', name, current_setting('TimeZone'))
        WHEN 'date'::regtype THEN format('%I::date::timestamp AT TIME ZONE %L', name, current_setting('TimeZone')) END;
    IF expression IS NULL THEN
        problem := format('column %s.%I has no time: it is of type %s', @extschema@.snowflake_internal_name(relation), name, type);
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_backfill_time(regclass, name[]) IS
    'internal, for snowflake_convert(): the column of a table that has the time at which a row was made, as an expression of type timestamptz; null if there is none';

CREATE FUNCTION snowflake_internal_backfill_keys(
    columns jsonb, wanted text, names name[],
    OUT relation oid, OUT name name, OUT time_name name, OUT expression text, OUT problem text)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A key that has the default already may have IDs, which stay.
    SELECT c.relation, c.name, t.name, t.expression, t.problem
    FROM ROWS FROM (jsonb_to_recordset(columns) AS (relation oid, name name, is_key boolean)) WITH ORDINALITY AS c (relation, name, is_key, place)
    CROSS JOIN @extschema@.snowflake_internal_backfill_time(c.relation, names) AS t
    WHERE c.is_key AND (t.expression IS NOT NULL OR t.problem IS NOT NULL) AND EXISTS (
        SELECT FROM @extschema@.snowflake_internal_family(c.relation, c.name) AS f WHERE f.expression IS DISTINCT FROM wanted)
    ORDER BY c.place
$$;
COMMENT ON FUNCTION snowflake_internal_backfill_keys(jsonb, text, name[]) IS
    'internal, for snowflake_convert(): the keys whose old values are replaced, with the time of a row';

CREATE FUNCTION snowflake_internal_backfill_columns(
    columns jsonb, keys jsonb, OUT relation oid, OUT name name, OUT origin oid, OUT origin_name name, OUT origins bigint)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE reached (id, name, origin, origin_name) AS (
        SELECT c.relation, c.name, c.relation, c.name
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_key boolean) WHERE c.is_key
        UNION
        SELECT t.root, h.attname, c.origin, c.origin_name
        FROM reached AS c
        CROSS JOIN @extschema@.snowflake_internal_family(c.id, c.name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f'
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        CROSS JOIN @extschema@.snowflake_internal_column_roots(k.conrelid, h.attname) AS t (root)
        WHERE u.there = f.number),
    counted AS (
        SELECT r.*, count(*) OVER (PARTITION BY r.id, r.name) AS origins,
            EXISTS (SELECT FROM jsonb_to_recordset(keys) AS k (relation oid, name name)
                WHERE k.relation = r.origin AND k.name = r.origin_name) AS is_replaced
        FROM reached AS r)
    SELECT DISTINCT ON (c.id, c.name) c.id, c.name, c.origin, c.origin_name, c.origins
    FROM counted AS c WHERE c.is_replaced ORDER BY c.id, c.name, c.origin, c.origin_name
$$;
COMMENT ON FUNCTION snowflake_internal_backfill_columns(jsonb, jsonb) IS
    'internal, for snowflake_convert(): the columns whose values are replaced, with the key that the values come from, and how many such keys there are';

-- What a layout does with an ID, in numbers: an ID is
--     tick * per_tick + first + sequence number * per_number
-- for ticks as snowflake_min_id() has them, and for sequence numbers below `numbers`.
CREATE FUNCTION snowflake_internal_backfill_layout(
    generator regclass, worker_id bigint,
    OUT per_tick bigint, OUT first bigint, OUT per_number bigint, OUT numbers bigint,
    OUT since timestamptz, OUT until timestamptz, OUT own_worker_id integer)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it record;
    -- The midst of a tick: an instant at its edge may be rounded to another one.
    at timestamptz;
    least_id bigint;
BEGIN
    SELECT g.epoch, g.tick, g.worker_id INTO it FROM @extschema@.snowflake_generators() AS g WHERE g.generator = snowflake_internal_backfill_layout.generator;
    since := it.epoch;
    own_worker_id := it.worker_id;
    at := it.epoch + it.tick * 1.5;
    least_id := @extschema@.snowflake_min_id(at, generator);
    per_tick := @extschema@.snowflake_min_id(at + it.tick, generator) - least_id;
    numbers := coalesce(@extschema@.snowflake_sequence(@extschema@.snowflake_max_id(at, generator), generator), 0) + 1;
    first := @extschema@.snowflake_encode(at, worker_id, 0, generator) - least_id / per_tick * per_tick;
    per_number := CASE WHEN numbers > 1 THEN
        @extschema@.snowflake_encode(at, worker_id, 1, generator) - @extschema@.snowflake_encode(at, worker_id, 0, generator)
        ELSE 0 END;
    until := @extschema@.snowflake_timestamp((@extschema@.snowflake_internal_ids_to_come(generator, NULL)).next_id, generator);
END
$$;
COMMENT ON FUNCTION snowflake_internal_backfill_layout(regclass, bigint) IS
    'internal, for snowflake_convert(): the numbers by which IDs of a generator and a worker ID are made, and the instants from and before which';

CREATE FUNCTION snowflake_internal_backfill_obstacles(keys jsonb, generator regclass, worker_id bigint) RETURNS SETOF text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    ids record := @extschema@.snowflake_internal_ids_to_come(generator, NULL);
    layout record;
    key record;
    counts text[];
    name text;
BEGIN
    IF NOT ids.sorted THEN
        RETURN NEXT format('IDs of generator %s do not sort by time, so old rows cannot be given IDs of their time', @extschema@.snowflake_internal_name(ids.source));
        RETURN;
    END IF;
    layout := @extschema@.snowflake_internal_backfill_layout(ids.source, worker_id);
    IF worker_id IN (layout.own_worker_id, (SELECT w.worker_id FROM @extschema@.snowflake_worker() AS w)) THEN
        RETURN NEXT format('worker ID %s is that of this server: old rows need one that no server has, or has had', worker_id);
    END IF;
    -- A server elsewhere may have it all the same: only the caller can know.
    IF has_table_privilege('@extschema@.snowflake_registry_pools', 'SELECT') THEN
        RETURN QUERY SELECT format('worker ID %s belongs to pool %s: old rows need one that no server has, or has had', worker_id, p.name)
            FROM @extschema@.snowflake_registry_pools AS p
            WHERE p.worker_ids @> worker_id AND NOT p.except_ids @> worker_id;
    END IF;
    FOR key IN SELECT k.* FROM jsonb_to_recordset(keys) AS k (relation oid, name name, time_name name, expression text, problem text) LOOP
        name := @extschema@.snowflake_internal_name(key.relation);
        IF key.problem IS NOT NULL THEN
            RETURN NEXT key.problem;
        ELSIF EXISTS (SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = key.relation AND d.refclassid = 'pg_class'::regclass AND d.refobjid = key.relation
              AND d.deptype = 'i' AND d.objsubid = (SELECT a.attnum FROM pg_attribute AS a WHERE a.attrelid = key.relation AND a.attname = key.name)) THEN
            RETURN NEXT format('table %s is partitioned by %I, whose values would be replaced', name, key.name);
        ELSIF pg_has_role((SELECT c.relowner FROM pg_class AS c WHERE c.oid = key.relation), 'USAGE') THEN
            counts := string_to_array(@extschema@.snowflake_internal_read_as_owner(key.relation, format(
                'SELECT concat_ws('' '', count(*) FILTER (WHERE r.at IS NULL), count(*) FILTER (WHERE r.at < %L::timestamptz),'
                ' count(*) FILTER (WHERE r.at >= %L::timestamptz), %s) FROM (SELECT %I AS key, %s AS at FROM %s) AS r WHERE r.key IS NOT NULL',
                layout.since, layout.until,
                CASE WHEN EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                    WHERE i.indrelid = key.relation AND i.indisunique AND i.indpred IS NULL AND i.indnkeyatts = 1 AND a.attname = key.name
                      AND NOT EXISTS (SELECT FROM pg_inherits AS h JOIN pg_class AS p ON p.oid = h.inhparent AND p.relkind = 'r'
                          WHERE h.inhparent = key.relation))
                    THEN '0' ELSE 'count(*) - count(DISTINCT r.key)' END,
                key.name, key.expression, name)), ' ');
            IF counts[1] <> '0' THEN
                RETURN NEXT format('rows of table %s have no time in column %I: %s', name, key.time_name, counts[1]);
            END IF;
            IF counts[2] <> '0' THEN
                RETURN NEXT format('rows of table %s have a time in column %I that is before %s, the epoch of generator %s: %s. Use a generator with an earlier epoch',
                    name, key.time_name, layout.since, @extschema@.snowflake_internal_name(ids.source), counts[2]);
            END IF;
            IF counts[3] <> '0' THEN
                RETURN NEXT format('rows of table %s have a time in column %I that is not before the next new ID: %s', name, key.time_name, counts[3]);
            END IF;
            IF counts[4] <> '0' THEN
                RETURN NEXT format('rows of table %s have a value in column %I that another row has: %s', name, key.name, counts[4]);
            END IF;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_internal_backfill_obstacles(jsonb, regclass, bigint) IS
    'internal, for snowflake_convert(): why old rows cannot be given IDs of their time';

CREATE FUNCTION snowflake_internal_backfill_map(keys jsonb, generator regclass, worker_id bigint, map text) RETURNS text[]
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    source regclass := (@extschema@.snowflake_internal_ids_to_come(generator, NULL)).source;
    layout record := @extschema@.snowflake_internal_backfill_layout(source, worker_id);
    rows_of text := (
        SELECT string_agg(format('    SELECT %L::regclass, %L::name, %I::bigint, %s FROM %s WHERE %I IS NOT NULL',
                n.name, k.name, k.name, k.expression, n.name, k.name), E' UNION ALL\n' ORDER BY k.place)
        FROM ROWS FROM (jsonb_to_recordset(keys) AS (relation oid, name name, expression text)) WITH ORDINALITY AS k (relation, name, expression, place)
        CROSS JOIN @extschema@.snowflake_internal_name(k.relation) AS n (name)
        WHERE k.expression IS NOT NULL);
BEGIN
    RETURN ARRAY[
        -- A policy that hides rows is an error.
        'SET LOCAL row_security = off',
        format('CREATE TABLE %s (relation regclass, column_name name, old_id bigint, new_id bigint NOT NULL, PRIMARY KEY (relation, column_name, old_id))', map),
        format('INSERT INTO %s', map) || E'\nWITH rows (relation, column_name, old_id, at) AS (\n' || rows_of || E'),\n'
            || format(E'ticks AS (SELECT r.*, @extschema@.snowflake_min_id(r.at, %L::regclass) / %s AS tick FROM rows AS r),\n',
                @extschema@.snowflake_internal_name(source), layout.per_tick)
            || E'numbered AS (SELECT t.*, row_number() OVER (ORDER BY t.tick, t.relation, t.column_name, t.old_id) AS number FROM ticks AS t),\n'
            -- Each row gets the first slot after that of the row before, and not before its tick.
            || format(E'slots AS (SELECT n.*, n.number + max(n.tick * %s - n.number) OVER (ORDER BY n.number) AS slot FROM numbered AS n)\n', layout.numbers)
            || format('SELECT s.relation, s.column_name, s.old_id, s.slot / %1$s * %2$s + %3$s + s.slot %% %1$s * %4$s FROM slots AS s',
                layout.numbers, layout.per_tick, layout.first, layout.per_number),
        format('ANALYZE %s', map),
        -- A foreign key that is not valid may have values that no key has: they stay.
        'CREATE FUNCTION pg_temp.snowflake_new_id(relation regclass, column_name name, old_id bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT AS '
            || quote_literal(format('BEGIN RETURN coalesce((SELECT m.new_id FROM %s AS m WHERE m.relation = $1 AND m.column_name = $2 AND m.old_id = $3), $3); END', map))];
END
$$;
COMMENT ON FUNCTION snowflake_internal_backfill_map(jsonb, regclass, bigint, text) IS
    'internal, for snowflake_convert(): the statements that make and fill the table of old and new values, and the function that looks them up';
-- snowflake_convert() changes smallint and integer keys to bigint, with all foreign keys
-- that reach them, and makes a generator their default.
--
-- snowflake_convert_plan() returns the statements in order, and changes nothing. Without
-- `online`, snowflake_convert() locks the tables, makes the plan again, and runs exactly
-- these statements, in the caller's transaction; convert_online.sql has the other way.
--
-- The plan is made in four steps:
--
-- 1. snowflake_internal_convert_columns() in convert_columns.sql: the columns to change. It
--    begins with the keys of the tables, and follows foreign keys until there is no further
--    column. A column that is inherited stands for the column of the topmost table:
--    PostgreSQL changes it there only, with all partitions and child tables. So a foreign
--    key that one partition alone has leads to the column in the whole table.
-- 2. snowflake_internal_convert_dependents() in convert_objects.sql: what depends on these
--    columns, as pg_depend has it, and what depends on that, with a level: an object is
--    dropped before those of lower levels, and made again after them.
-- 3. snowflake_internal_convert_remake() there: the statements that drop one such object
--    and make it again, from what the catalogs say of it.
-- 4. snowflake_internal_convert_plan() joins them. With a worker ID for old rows, it adds
--    what convert_backfill.sql says; foreign keys of columns that get new values are
--    dropped before, and added again after.
--
-- What ALTER TABLE .. TYPE does by itself is left to it: indexes, constraints with their
-- foreign keys, statistics objects, replica identity, the sequence of an identity, casts of
-- defaults, partitions. What PostgreSQL would refuse in the midst of the work is found in
-- step 2, and is an obstacle: the plan has a row that says so, and the conversion does not
-- begin. An object of a kind that is not known here is an obstacle too.
--
-- No function here is SECURITY DEFINER: the caller needs to own what is changed. The head
-- of set_default.sql says what the search_path of these functions means. JIT is off, since
-- to compile these queries would take longer than to run them.

CREATE FUNCTION snowflake_internal_convert_notes(
    columns jsonb, made_again jsonb, is_backfill boolean, OUT note text) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
    WITH changed AS (
        SELECT c.relation, c.name, c.is_key, t.relname
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_key boolean)
        JOIN pg_class AS t ON t.oid = c.relation),
    members AS (
        SELECT DISTINCT f.member, f.number FROM changed AS c
        CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f),
    -- Those whose values are replaced, and expressions that are made of them. A number in
    -- such an expression may be an old key.
    replaced AS (
        SELECT DISTINCT f.member, f.number, c.name, f.member = c.relation AS is_root
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, origin oid)
        CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f WHERE c.origin IS NOT NULL),
    expressions (described, text) AS (
        SELECT o.described, array_to_string(o.statements, E'\n')
        FROM jsonb_to_recordset(made_again) AS o (described text, statements text[])
        UNION ALL
        SELECT format('index %s', @extschema@.snowflake_internal_name(i.indexrelid)),
            concat_ws(' ', pg_get_expr(i.indpred, i.indrelid), pg_get_expr(i.indexprs, i.indrelid))
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition
        WHERE EXISTS (SELECT FROM replaced AS r JOIN pg_depend AS d ON d.refobjid = r.member AND d.refobjsubid = r.number
            WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass)
        UNION ALL
        SELECT format('generated column %s.%I', @extschema@.snowflake_internal_name(a.attrelid), a.attname), pg_get_expr(e.adbin, e.adrelid)
        FROM pg_attrdef AS e JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated <> ''
        WHERE EXISTS (SELECT FROM replaced AS r JOIN pg_depend AS d ON d.refobjid = r.member AND d.refobjsubid = r.number
            WHERE r.is_root AND r.member = e.adrelid AND d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass)),
    foreign_schemas AS (
        SELECT n.oid FROM pg_namespace AS n WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'),
    -- What a table's name and a key's name lead to expect as the name of a column.
    names AS (
        SELECT lower(replace(c.name, '_', '')) AS name FROM changed AS c WHERE lower(c.name) <> 'id'
        UNION
        SELECT v.name FROM changed AS c
        CROSS JOIN LATERAL (SELECT lower(replace(c.relname, '_', ''))) AS t (name)
        CROSS JOIN LATERAL (VALUES (t.name || 'id'), (regexp_replace(t.name, 's$', '') || 'id'),
            (regexp_replace(t.name, 'ies$', 'y') || 'id'), (regexp_replace(t.name, 'es$', '') || 'id')) AS v (name)
        WHERE c.is_key)
    SELECT format('published by %I: subscribers need bigint columns before the first new ID', p.pubname)
    FROM pg_publication AS p
    WHERE EXISTS (
        SELECT FROM pg_publication_tables AS t
        JOIN pg_class AS c ON c.relname = t.tablename
        JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = t.schemaname
        JOIN members AS m ON m.member = c.oid
        WHERE t.pubname = p.pubname)
    UNION ALL
    SELECT format('foreign table %s is a part of a table that is changed: change its column where its rows are kept',
        @extschema@.snowflake_internal_name(c.oid))
    FROM pg_class AS c WHERE c.relkind = 'f' AND c.oid IN (SELECT m.member FROM members AS m)
    UNION ALL
    SELECT format('constraint %I of table %s has a condition that new IDs need to satisfy: %s',
        k.conname, @extschema@.snowflake_internal_name(k.conrelid), pg_get_constraintdef(k.oid))
    FROM pg_constraint AS k
    WHERE k.contype = 'c' AND k.coninhcount = 0 AND k.conname !~ '^[=~].*__bigint$' AND EXISTS (
        SELECT FROM members AS m WHERE m.member = k.conrelid AND m.number = ANY (k.conkey))
    UNION ALL
    SELECT format('%s has numbers in its definition, which stay: if they are old keys, make it anew with the new ones after the conversion', e.described)
    FROM expressions AS e WHERE is_backfill AND e.text ~ '(?<![\w."$])[0-9]+(?![\w."])'
    UNION ALL
    SELECT format('column %s.%I has the default %s, which stays: if that is an old key, change it to the new one after the conversion',
        @extschema@.snowflake_internal_name(r.member), r.name, pg_get_expr(e.adbin, e.adrelid))
    FROM replaced AS r JOIN pg_attrdef AS e ON e.adrelid = r.member AND e.adnum = r.number
    WHERE is_backfill AND pg_get_expr(e.adbin, e.adrelid) ~ '(?<![\w."$])[0-9]+(?![\w."])'
      AND NOT EXISTS (SELECT FROM changed AS c WHERE c.relation = r.member AND c.name = r.name AND c.is_key)
    UNION ALL
    (SELECT format('column %s.%I is %s, and named like a key, but has no foreign key: %s',
        @extschema@.snowflake_internal_name(a.attrelid), a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN is_backfill THEN 'its values do not follow the keys that change' ELSE 'it stays as it is' END)
    FROM pg_attribute AS a
    JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition
    WHERE c.relnamespace IN (SELECT f.oid FROM foreign_schemas AS f) AND a.attnum > 0 AND NOT a.attisdropped
      AND (a.atttypid IN ('smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype)
        OR is_backfill AND a.atttypid IN ('bigint'::regtype, 'bigint[]'::regtype))
      AND (EXISTS (SELECT FROM names AS n
              WHERE right(regexp_replace(lower(replace(a.attname, '_', '')), 's$', ''), length(n.name)) = n.name)
          -- Some refer to any table, such as object_id.
          OR a.attname ~ '(_id|_ids|[a-z]Ids?)$' AND c.relnamespace IN (SELECT t.relnamespace FROM changed AS d JOIN pg_class AS t ON t.oid = d.relation)
            AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))
      AND (a.attrelid, a.attnum) NOT IN (SELECT m.member, m.number FROM members AS m)
      AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = a.attrelid AND k.contype = 'f' AND a.attnum = ANY (k.conkey))
      AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
    ORDER BY 1)
    UNION ALL
    -- A function is listed if a view that is made again calls it, or if its text has a
    -- changed table or column; and if it has an argument, a result or a text with integers.
    (SELECT format('%s %s %s', CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END, p.oid::regprocedure,
        CASE WHEN d.is_called AND i.has_integers THEN 'takes integers, and is called by an object that is made again: if it is given keys, make one that takes bigint first'
        WHEN i.is_typed THEN 'has integers: if they are keys, change them to bigint'
        ELSE 'has numbers: if they are old keys, change them to new ones after the conversion' END)
    FROM pg_proc AS p
    CROSS JOIN LATERAL (SELECT EXISTS (
        SELECT FROM jsonb_to_recordset(made_again) AS o (class oid, id oid)
        JOIN pg_depend AS d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        WHERE (d.classid, d.objid) = (o.class, o.id) OR (o.class, o.id) = ('pg_class'::regclass, r.ev_class)) AS is_called) AS d
    CROSS JOIN LATERAL (SELECT ARRAY['smallint'::regtype, 'integer'::regtype, 'smallint[]'::regtype, 'integer[]'::regtype]::oid[]
        && (coalesce(p.proallargtypes, p.proargtypes::oid[]) || p.prorettype) AS has_integers) AS h
    CROSS JOIN LATERAL (SELECT h.has_integers, h.has_integers OR p.prosrc ~* '\m(smallint|integer|int|int2|int4)\M' AS is_typed) AS i
    WHERE p.pronamespace IN (SELECT f.oid FROM foreign_schemas AS f) AND p.prokind IN ('f', 'p', 'w')
      AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e')
      AND (d.is_called AND i.has_integers
        OR (i.is_typed OR is_backfill AND p.prosrc ~ '(?<![\w."$])[0-9]+(?![\w."])')
        AND EXISTS (
            SELECT FROM changed AS c
            CROSS JOIN LATERAL (VALUES (c.relname), (CASE WHEN lower(c.name) <> 'id' THEN c.name END)) AS w (word)
            WHERE strpos(lower(p.prosrc || ' ' || pg_get_functiondef(p.oid)), lower(w.word)) > 0))
    ORDER BY 1)
$$;
COMMENT ON FUNCTION snowflake_internal_convert_notes(jsonb, jsonb, boolean) IS
    'internal, for snowflake_convert(): what a person has to look at, since the catalogs cannot tell whether it has to do with the keys';

-- The rows have no numbers yet. Obstacles come first, then statements, then notes.
CREATE FUNCTION snowflake_internal_convert_plan(
    relations regclass[], are_named boolean, generator regclass, set_default boolean,
    backfill_by name[], worker_id bigint, only_obstacles boolean,
    OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    columns jsonb;      -- of step 1; later, those of them that are changed in some way
    keys jsonb := '[]'; -- the keys whose old values are replaced
    map text;           -- the table of old and new values
    generated jsonb;    -- generated columns that are made of them
    tables oid[];       -- all of them in all members of their families, as pairs
    numbers smallint[];
    dependents jsonb;
    made_again jsonb;   -- the same with their statements, by level
    sources oid[];      -- the tables to lock
    changed_statistics oid[];
    drop_keys text[];   -- statements
    add_keys text[];
    is_refused boolean := false;
    wanted constant text := @extschema@.snowflake_internal_wanted_default(generator);
    every constant text := 'ACCESS EXCLUSIVE';
BEGIN
    columns := (SELECT coalesce(jsonb_agg(to_jsonb(c)), '[]') FROM (
        SELECT c.relation::oid, c.name, c.number, c.type, c.base::oid, c.is_key, c.base <> 'bigint'::regtype AS is_altered
        FROM @extschema@.snowflake_internal_convert_columns(relations, are_named) AS c) AS c);
    IF worker_id IS NOT NULL THEN
        keys := (SELECT coalesce(jsonb_agg(to_jsonb(k)), '[]')
            FROM @extschema@.snowflake_internal_backfill_keys(columns, wanted, backfill_by) AS k);
        columns := (SELECT coalesce(jsonb_agg(c.value || coalesce(to_jsonb(b), '{}') ORDER BY c.ordinality), '[]')
            FROM jsonb_array_elements(columns) WITH ORDINALITY AS c
            LEFT JOIN (SELECT b.relation, b.name, b.origin, b.origin_name, b.origins, true AS is_altered
                       FROM @extschema@.snowflake_internal_backfill_columns(columns, keys) AS b) AS b
                ON b.relation = (c.value->>'relation')::oid AND b.name = (c.value->>'name')::name);
        map := (SELECT CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END || '.snowflake_old_ids'
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = (keys->0->>'relation')::oid);
    END IF;
    SELECT coalesce(array_agg(f.member::oid), '{}'), coalesce(array_agg(f.number), '{}') INTO tables, numbers
    FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_altered boolean)
    CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f
    WHERE c.is_altered;
    generated := (SELECT coalesce(jsonb_agg(to_jsonb(g)), '[]') FROM (
        SELECT DISTINCT r.id::oid AS relation, a.attname AS name
        FROM unnest(tables, numbers) AS u (id, number)
        JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = u.id AND d.refobjsubid = u.number
        JOIN pg_attrdef AS e ON e.oid = d.objid AND e.adrelid = u.id
        JOIN pg_attribute AS a ON a.attrelid = u.id AND a.attnum = e.adnum AND a.attgenerated <> ''
        CROSS JOIN @extschema@.snowflake_internal_column_roots(u.id, a.attname) AS r (id)) AS g);
    SELECT tables || coalesce(array_agg(f.member::oid), '{}'), numbers || coalesce(array_agg(f.number), '{}') INTO tables, numbers
    FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
    CROSS JOIN @extschema@.snowflake_internal_family(g.relation, g.name) AS f;
    dependents := (SELECT coalesce(jsonb_agg(to_jsonb(d)), '[]') FROM (
        SELECT d.class::oid, d.id, d.level FROM @extschema@.snowflake_internal_convert_dependents(tables, numbers) AS d) AS d);
    made_again := (SELECT coalesce(jsonb_agg(to_jsonb(d) ORDER BY d.level, d.described), '[]') FROM (
        SELECT d.class, d.id, d.level, r.*
        FROM jsonb_to_recordset(dependents) AS d (class oid, id oid, level integer)
        CROSS JOIN @extschema@.snowflake_internal_convert_remake(d.class, d.id) AS r) AS d);
    -- Everything about the keys that have their default already is left out.
    columns := (SELECT coalesce(jsonb_agg(c.value ORDER BY c.ordinality), '[]')
        FROM jsonb_array_elements(columns) WITH ORDINALITY AS c
        WHERE (c.value->>'is_altered')::boolean
           OR set_default AND (c.value->>'is_key')::boolean AND EXISTS (
              SELECT FROM @extschema@.snowflake_internal_family((c.value->>'relation')::oid, (c.value->>'name')::name) AS f
              WHERE f.expression IS DISTINCT FROM wanted));

    -- The tables to lock: those of the columns, and those that rules, policies and
    -- triggers belong to.
    sources := ARRAY(
        SELECT c.relation FROM jsonb_to_recordset(columns) AS c (relation oid)
        UNION
        SELECT g.relation FROM jsonb_to_recordset(generated) AS g (relation oid)
        UNION
        SELECT c.oid FROM jsonb_to_recordset(dependents) AS d (class oid, id oid)
        LEFT JOIN pg_rewrite AS r ON d.class = 'pg_rewrite'::regclass AND r.oid = d.id
        LEFT JOIN pg_trigger AS t ON d.class = 'pg_trigger'::regclass AND t.oid = d.id
        LEFT JOIN pg_policy AS p ON d.class = 'pg_policy'::regclass AND p.oid = d.id
        JOIN pg_class AS c ON c.oid IN (r.ev_class, t.tgrelid, p.polrelid) AND c.relkind IN ('r', 'p'));

    changed_statistics := ARRAY(
        SELECT DISTINCT d.objid FROM unnest(tables, numbers) AS u (id, number)
        JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = u.id AND d.refobjsubid = u.number);

    -- Foreign keys of columns that get new values, in the order in which they were made.
    WITH members AS (
        SELECT f.member::oid AS id, f.number
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, origin oid)
        CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f WHERE c.origin IS NOT NULL),
    found AS (
        SELECT k.*, @extschema@.snowflake_internal_name(k.conrelid) AS table_name
        FROM pg_constraint AS k
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (
            SELECT FROM members AS m WHERE m.id = k.conrelid AND m.number = ANY (k.conkey) OR m.id = k.confrelid AND m.number = ANY (k.confkey)))
    SELECT coalesce(array_agg(format('ALTER TABLE %s DROP CONSTRAINT %I', f.table_name, f.conname) ORDER BY f.oid), '{}'),
        coalesce(array_agg(format('ALTER TABLE %s ADD CONSTRAINT %I %s', f.table_name, f.conname, pg_get_constraintdef(f.oid)) ORDER BY f.oid), '{}')
            || coalesce(array_agg(format('COMMENT ON CONSTRAINT %I ON %s IS %L', f.conname, f.table_name, d.description) ORDER BY f.oid)
                FILTER (WHERE d.description IS NOT NULL), '{}')
    INTO drop_keys, add_keys
    FROM found AS f LEFT JOIN pg_description AS d ON d.classoid = 'pg_constraint'::regclass AND d.objoid = f.oid;

    -- Obstacles.
    action := 'obstacle';
    FOR note IN
        SELECT o.note FROM (
        WITH RECURSIVE changed AS (
            SELECT c.*, format('%s.%I', @extschema@.snowflake_internal_name(c.relation), c.name) AS described
            FROM jsonb_to_recordset(columns) AS c (relation oid, name name, number smallint, type oid, base oid, origin oid, origins bigint, is_altered boolean)
            WHERE c.is_altered),
        members AS (
            SELECT f.member, f.number, c.described FROM changed AS c
            CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f),
        -- Types whose values have values of another type in them.
        holders (id, within) AS MATERIALIZED (
            SELECT y.typbasetype, y.oid FROM pg_type AS y WHERE y.typtype = 'd'
            UNION ALL
            SELECT y.typelem, y.oid FROM pg_type AS y WHERE y.typelem <> 0
            UNION ALL
            SELECT r.rngsubtype, w.id FROM pg_range AS r CROSS JOIN unnest(ARRAY[r.rngtypid, r.rngmultitypid]) AS w (id)
            UNION ALL
            SELECT a.atttypid, c.reltype
            FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid AND c.reltype <> 0
            -- A type of PostgreSQL itself is none of them.
            WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 12000),
        row_types (relation, id) AS (
            SELECT t.oid, t.reltype FROM pg_class AS t WHERE t.oid IN (SELECT m.member FROM members AS m)
            UNION
            SELECT r.relation, h.within FROM row_types AS r JOIN holders AS h ON h.id = r.id)
        SELECT format('must be owner of %s', pg_describe_object('pg_class'::regclass, c.oid, 0))
        FROM pg_class AS c
        WHERE (c.oid = ANY (sources) OR c.oid IN (SELECT m.member FROM members AS m)) AND NOT pg_has_role(c.relowner, 'USAGE')
        UNION ALL
        SELECT format('must be owner of %s', d.described)
        FROM jsonb_to_recordset(made_again) AS d (described text, owner oid) WHERE NOT pg_has_role(d.owner, 'USAGE')
        UNION ALL
        -- They are made again by the caller, and then given to their owner.
        SELECT format('must be owner of %s', pg_describe_object('pg_statistic_ext'::regclass, x.oid, 0))
        FROM pg_statistic_ext AS x
        WHERE NOT pg_has_role(x.stxowner, 'USAGE') AND (x.oid = ANY (changed_statistics)
            OR x.stxrelid IN (SELECT d.id FROM jsonb_to_recordset(dependents) AS d (class oid, id oid) WHERE d.class = 'pg_class'::regclass))
        UNION ALL
        SELECT format('%s is of domain %s over %s: change the column to bigint or to another domain first', c.described, c.type::regtype, c.base::regtype)
        FROM changed AS c WHERE c.type <> c.base
        UNION ALL
        SELECT format('table %s is partitioned by %s: PostgreSQL cannot change the type of such a column, so make a new table, and copy the rows',
            @extschema@.snowflake_internal_name(m.member), m.described)
        FROM members AS m
        WHERE EXISTS (SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = m.member AND d.objsubid = m.number
              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.member AND d.refobjsubid = 0 AND d.deptype = 'i')
        UNION ALL
        SELECT format('%s is inherited from two tables, which PostgreSQL cannot change together', c.described)
        FROM (SELECT m.member, format('%s.%I', @extschema@.snowflake_internal_name(m.member), a.attname) AS described
              FROM members AS m JOIN pg_attribute AS a ON a.attrelid = m.member AND a.attnum = m.number
              WHERE a.attinhcount > 1 GROUP BY m.member, a.attname) AS c
        UNION ALL
        SELECT format('table %s is of type %s: change the type first', @extschema@.snowflake_internal_name(c.oid), c.reloftype::regtype)
        FROM pg_class AS c WHERE c.oid IN (SELECT m.member FROM members AS m) AND c.reloftype <> 0
        UNION ALL
        SELECT DISTINCT format('%s has the row type of table %s%s, and PostgreSQL cannot change the rows in it: %s first',
            CASE c.relkind WHEN 'i' THEN 'index ' || @extschema@.snowflake_internal_name(c.oid)
                ELSE format('column %s.%I', @extschema@.snowflake_internal_name(c.oid), a.attname) END,
            @extschema@.snowflake_internal_name(t.oid),
            CASE WHEN a.atttypid IN (y.oid, y.typarray) THEN '' ELSE ', within type ' || format_type(a.atttypid, NULL) END,
            CASE c.relkind WHEN 'i' THEN 'drop it' ELSE 'change its type' END)
        FROM row_types AS r
        JOIN pg_class AS t ON t.oid = r.relation
        JOIN pg_type AS y ON y.oid = t.reltype
        JOIN pg_attribute AS a ON a.atttypid = r.id AND a.attnum > 0 AND NOT a.attisdropped
        JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'm', 'f', 'i')
        UNION ALL
        SELECT DISTINCT format('%s is a temporary table of another session', @extschema@.snowflake_internal_name(c.oid))
        FROM pg_class AS c
        WHERE c.oid IN (SELECT m.member FROM members AS m) AND c.relpersistence = 't' AND c.relnamespace <> pg_my_temp_schema()
        UNION ALL
        SELECT format('%s belongs to extension %I', pg_describe_object(d.classid, d.objid, 0), x.extname)
        FROM pg_depend AS d JOIN pg_extension AS x ON x.oid = d.refobjid
        WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
          AND (d.classid = 'pg_class'::regclass AND d.objid IN (SELECT m.member FROM members AS m)
            OR (d.classid, d.objid) IN (SELECT o.class, o.id FROM jsonb_to_recordset(dependents) AS o (class oid, id oid)))
        UNION ALL
        SELECT format('table %s is being converted while it is in use: finish that, or undo it by snowflake_convert_undo()',
            @extschema@.snowflake_internal_name(c.relation))
        FROM changed AS c
        WHERE @extschema@.snowflake_internal_copy_number(c.relation, c.name, c.relation) IS NOT NULL
        UNION ALL
        SELECT format('Citus distributes table %s: change it as the documentation of Citus says', @extschema@.snowflake_internal_name(c.relation))
        FROM (SELECT DISTINCT c.relation FROM changed AS c) AS c
        WHERE @extschema@.snowflake_internal_distribution(c.relation) IS NOT NULL
        UNION ALL
        SELECT format('%s refers to keys of several tables, which get different new values', c.described)
        FROM changed AS c WHERE c.origins > 1
        UNION ALL
        SELECT format('table %s is there already, and has the old keys of an earlier conversion: rename or drop it', map) WHERE to_regclass(map) IS NOT NULL
        UNION ALL
        -- ALTER TABLE changes the type of its column, but no row.
        SELECT format('foreign table %s is a part of a table whose old rows get IDs, and its rows would keep their keys', @extschema@.snowflake_internal_name(c.oid))
        FROM pg_class AS c
        WHERE c.relkind = 'f' AND worker_id IS NOT NULL AND c.oid IN (SELECT m.member FROM members AS m)
        UNION ALL
        -- What ALTER TABLE changes is not replicated.
        SELECT DISTINCT format('table %s is published by %I, and new keys of old rows do not reach subscribers:'
            ' take it out of the publication before, and copy its rows to them anew after', @extschema@.snowflake_internal_name(n.oid), p.pubname)
        FROM changed AS d
        CROSS JOIN @extschema@.snowflake_internal_family(d.relation, d.name) AS f
        JOIN pg_class AS c ON c.oid = f.member AND c.relpersistence = 'p'
        CROSS JOIN LATERAL (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) AS a (relid)) AS m (id)
        JOIN pg_class AS n ON n.oid = m.id
        CROSS JOIN pg_publication AS p
        WHERE d.origin IS NOT NULL AND (p.puballtables AND n.oid = d.relation
            OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = n.oid)
            OR EXISTS (SELECT FROM pg_publication_namespace AS s WHERE s.pnpubid = p.oid AND s.pnnspid = n.relnamespace))
        UNION ALL
        SELECT o FROM @extschema@.snowflake_internal_backfill_obstacles(keys, generator, worker_id) AS o WHERE worker_id IS NOT NULL
        UNION ALL
        SELECT format('%s depends on a column that changes, or on a view of it, and cannot be made again: drop it before, and make it again after', d.described)
        FROM jsonb_to_recordset(made_again) AS d (described text, statements text[]) WHERE d.statements IS NULL
        UNION ALL
        -- PostgreSQL writes the operator class into the new index, unless it is the default.
        SELECT DISTINCT format('index %s has operator class %I, which is for integers: make the index without it first',
            @extschema@.snowflake_internal_name(i.indexrelid), o.opcname)
        FROM members AS m
        JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.member AND d.refobjsubid = m.number
        JOIN pg_index AS i ON i.indexrelid = d.objid
        CROSS JOIN unnest(i.indkey::smallint[], i.indclass::oid[]) AS k (number, class)
        JOIN pg_opclass AS o ON o.oid = k.class AND o.opcintype IN ('smallint'::regtype, 'integer'::regtype)
        WHERE k.number IN (m.number, 0) AND NOT (o.opcdefault AND EXISTS (
            SELECT FROM pg_opclass AS w WHERE w.opcmethod = o.opcmethod AND w.opcintype = 'bigint'::regtype AND w.opcdefault))
        UNION ALL
        -- It depends on an index that is made anew, but not on the column.
        SELECT DISTINCT format('constraint %I of table %s refers to a key that includes %s, so PostgreSQL cannot change that column: drop it before, and add it again after',
            k.conname, @extschema@.snowflake_internal_name(k.conrelid), m.described)
        FROM (TABLE members
              UNION ALL
              SELECT f.member, f.number, format('%s.%I', @extschema@.snowflake_internal_name(g.relation), g.name)
              FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
              CROSS JOIN @extschema@.snowflake_internal_family(g.relation, g.name) AS f) AS m
        JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.member AND k.conparentid = 0 AND m.number <> ALL (k.confkey)
        JOIN pg_index AS i ON i.indexrelid = k.conindid AND m.number = ANY (i.indkey::smallint[])
        UNION ALL
        -- A grant is made again by the role that made it.
        SELECT DISTINCT format('privileges on %s were granted by role %I, of which the caller is no member: let its owner grant them instead',
            g.described, pg_get_userbyid(e.grantor))
        FROM (
            SELECT pg_describe_object(o.class, o.id, 0), coalesce(c.relowner, p.proowner), l.acl
            FROM jsonb_to_recordset(dependents) AS o (class oid, id oid)
            LEFT JOIN pg_class AS c ON o.class = 'pg_class'::regclass AND c.oid = o.id
            LEFT JOIN pg_proc AS p ON o.class = 'pg_proc'::regclass AND p.oid = o.id
            CROSS JOIN LATERAL (
                SELECT coalesce(c.relacl, p.proacl)
                UNION ALL
                SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = c.oid) AS l (acl)
            UNION ALL
            SELECT pg_describe_object('pg_class'::regclass, f.member, f.number), c.relowner, a.attacl
            FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            CROSS JOIN @extschema@.snowflake_internal_family(g.relation, g.name) AS f
            JOIN pg_class AS c ON c.oid = f.member
            JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number) AS g (described, owner, acl)
        CROSS JOIN aclexplode(g.acl) AS e
        WHERE e.grantor <> g.owner AND NOT pg_has_role(e.grantor, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
        UNION ALL
        SELECT l FROM @extschema@.snowflake_internal_convert_literals(made_again, tables) AS l
        UNION ALL
        -- PostgreSQL 16 or later has these.
        SELECT format('generated column %s.%I has an expression of its own, which that of table %s would replace: detach table %1$s, convert both tables, and attach it again',
            @extschema@.snowflake_internal_name(f.member), g.name, @extschema@.snowflake_internal_name(g.relation))
        FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
        CROSS JOIN @extschema@.snowflake_internal_family(g.relation, g.name) AS f
        WHERE f.expression IS DISTINCT FROM (SELECT r.expression FROM @extschema@.snowflake_internal_family(g.relation, g.name) AS r WHERE r.member = g.relation)
        UNION ALL
        -- Its foreign keys would be dropped with the column.
        SELECT format('constraint %I of table %s refers to a generated column', k.conname, @extschema@.snowflake_internal_name(k.conrelid))
        FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
        CROSS JOIN @extschema@.snowflake_internal_family(g.relation, g.name) AS f
        JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0
            AND (k.confrelid = f.member AND f.number = ANY (k.confkey) OR k.conrelid = f.member AND f.number = ANY (k.conkey))
        ) AS o (note)
        -- What the caller may do comes first.
        ORDER BY o.note NOT LIKE 'must be owner of %', o.note
    LOOP
        is_refused := true;
        RETURN NEXT;
    END LOOP;
    note := NULL;
    IF only_obstacles THEN
        RETURN;
    END IF;

    IF sources <> '{}' THEN
        action := 'lock';
        statement := (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE',
                string_agg(n.name, ', ' ORDER BY n.name))
            FROM unnest(sources) AS s (id) CROSS JOIN @extschema@.snowflake_internal_name(s.id) AS n (name));
        locks := every;
        RETURN NEXT;
    END IF;

    action := 'drop';
    FOR statement, note IN
        SELECT d.drop_statement, NULL
        FROM ROWS FROM (jsonb_to_recordset(made_again) AS (drop_statement text)) WITH ORDINALITY AS d (drop_statement, place)
        ORDER BY d.place DESC
    LOOP
        RETURN NEXT;
    END LOOP;

    IF keys <> '[]' AND columns <> '[]' AND NOT is_refused THEN
        action := 'backfill';
        locks := NULL;
        FOREACH statement IN ARRAY @extschema@.snowflake_internal_backfill_map(keys, generator, worker_id, map) LOOP
            RETURN NEXT;
        END LOOP;
        action := 'drop';
        locks := every;
        FOREACH statement IN ARRAY drop_keys LOOP
            RETURN NEXT;
        END LOOP;
    END IF;

    -- DROP COLUMN would not drop a constraint that has the column in an expression.
    action := 'drop';
    FOR statement IN
        SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', @extschema@.snowflake_internal_name(k.conrelid), k.conname)
        FROM pg_constraint AS k
        WHERE k.contype = 'x' AND k.conparentid = 0 AND EXISTS (
            SELECT FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            CROSS JOIN @extschema@.snowflake_internal_family(g.relation, g.name) AS f
            WHERE f.member = k.conrelid AND f.number = ANY (@extschema@.snowflake_internal_index_columns(k.conindid)) AND f.number <> ALL (k.conkey))
        ORDER BY 1
    LOOP
        RETURN NEXT;
    END LOOP;

    -- One statement for each table, so that it is rewritten once. PostgreSQL carries out the
    -- parts in this order. A generated column of a child table alone goes before.
    action := 'alter';
    FOR statement, rewrites, note IN
        WITH made AS (
            SELECT g.relation, g.name, a.attnum,
                format('ADD COLUMN %I %s', g.name, CASE
                    WHEN a.atttypid IN ('smallint'::regtype, 'integer'::regtype) THEN 'bigint'
                    ELSE format_type(a.atttypid, a.atttypmod) END)
                || CASE WHEN a.attcollation <> y.typcollation THEN
                    (SELECT format(' COLLATE %I.%I', n.nspname, o.collname) FROM pg_collation AS o
                     JOIN pg_namespace AS n ON n.oid = o.collnamespace WHERE o.oid = a.attcollation) ELSE '' END
                || format(' GENERATED ALWAYS AS (%s) %s', pg_get_expr(d.adbin, d.adrelid),
                    CASE a.attgenerated WHEN 's' THEN 'STORED' ELSE 'VIRTUAL' END)
                || CASE WHEN a.attnotnull THEN coalesce(
                    -- PostgreSQL 18 or later has it in pg_constraint.
                    (SELECT format(' CONSTRAINT %I NOT NULL%s', k.conname, CASE WHEN k.connoinherit THEN ' NO INHERIT' ELSE '' END)
                     FROM pg_constraint AS k WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum]), ' NOT NULL')
                    ELSE '' END AS definition
            FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            JOIN pg_attribute AS a ON a.attrelid = g.relation AND a.attname = g.name
            JOIN pg_type AS y ON y.oid = a.atttypid
            JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum),
        parts (relation, phase, place, part) AS (
            SELECT m.relation, 1, m.attnum, format('DROP COLUMN %I', m.name) FROM made AS m
            UNION ALL
            SELECT c.relation, 2, c.number, format('ALTER COLUMN %I TYPE bigint', c.name)
                || CASE WHEN c.origin IS NULL THEN ''
                    ELSE format(' USING pg_temp.snowflake_new_id(%L, %L, %I)', @extschema@.snowflake_internal_name(c.origin), c.origin_name, c.name) END
            FROM jsonb_to_recordset(columns) AS c (relation oid, name name, number smallint, origin oid, origin_name name, is_altered boolean)
            WHERE c.is_altered
            UNION ALL
            SELECT m.relation, 3, m.attnum, m.definition FROM made AS m),
        -- Whether the column that it is made of is inherited.
        alone AS (
            SELECT DISTINCT m.relation FROM made AS m
            WHERE NOT EXISTS (SELECT FROM parts AS p WHERE p.relation = m.relation AND p.phase = 2))
        SELECT format('ALTER TABLE %s %s', @extschema@.snowflake_internal_name(p.relation), string_agg(p.part, ', ' ORDER BY p.phase, p.place)),
            (SELECT nullif(sum(pg_total_relation_size(f.member)), 0)
             FROM (SELECT DISTINCT f.member
                   FROM jsonb_to_recordset(columns) AS c (relation oid, name name)
                   CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f
                   WHERE c.relation = p.relation
                   UNION SELECT p.relation) AS f
             WHERE max(p.phase) > 1),
            CASE WHEN max(p.phase) = 3 THEN 'a generated column moves to the end of the table' END
        FROM parts AS p
        GROUP BY p.relation, CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN p.phase ELSE 2 END
        ORDER BY CASE WHEN p.relation IN (SELECT a.relation FROM alone AS a) THEN min(p.phase) ELSE 2 END,
            @extschema@.snowflake_internal_name(p.relation)
    LOOP
        RETURN NEXT;
    END LOOP;
    rewrites := NULL;
    note := NULL;

    -- What has gone with a generated column.
    action := 'make';
    FOR statement IN
        WITH members AS (
            SELECT f.member::oid AS id, f.number, g.name, g.relation
            FROM jsonb_to_recordset(generated) AS g (relation oid, name name)
            CROSS JOIN @extschema@.snowflake_internal_family(g.relation, g.name) AS f),
        -- Also those of partitions, which keep their names.
        indexes AS (
            SELECT i.indexrelid, i.indrelid, i.indisreplident, i.indisclustered, c.relname, c.reltablespace, c.reloptions,
                @extschema@.snowflake_internal_name(i.indexrelid) AS index_name, @extschema@.snowflake_internal_name(i.indrelid) AS table_name,
                k.conname, pg_get_constraintdef(k.oid) AS definition
            FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            LEFT JOIN pg_constraint AS k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')
            WHERE EXISTS (SELECT FROM members AS m
                WHERE m.id = i.indrelid AND m.number = ANY (@extschema@.snowflake_internal_index_columns(i.indexrelid)))),
        made (phase, name, statement) AS (
            SELECT 1, m.name, format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', @extschema@.snowflake_internal_name(m.id), m.name)
            FROM members AS m
            JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number AND a.attnotnull
            JOIN pg_attribute AS r ON r.attrelid = m.relation AND r.attname = m.name AND NOT r.attnotnull
            UNION ALL
            SELECT 1, k.conname, format('ALTER TABLE %s ADD CONSTRAINT %I %s',
                @extschema@.snowflake_internal_name(k.conrelid), k.conname, pg_get_constraintdef(k.oid))
            FROM pg_constraint AS k
            WHERE k.contype = 'c' AND k.coninhcount = 0
              AND EXISTS (SELECT FROM members AS m WHERE m.id = k.conrelid AND m.number = ANY (k.conkey))
            UNION ALL
            SELECT CASE WHEN i.conname IS NULL THEN 2 ELSE 1 END, i.relname,
                CASE WHEN i.conname IS NULL THEN pg_get_indexdef(i.indexrelid)
                    ELSE format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', i.table_name, i.conname, i.definition) END
            FROM indexes AS i
            UNION ALL
            SELECT 3, i.relname, format('ALTER INDEX %s SET TABLESPACE %I', i.index_name, t.spcname)
            FROM indexes AS i JOIN pg_tablespace AS t ON t.oid = i.reltablespace
            UNION ALL
            -- CREATE INDEX says them, but no constraint does.
            SELECT 3, i.relname, format('ALTER INDEX %s SET (%s)', i.index_name, string_agg(format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ' ORDER BY o))
            FROM indexes AS i CROSS JOIN unnest(i.reloptions) AS o WHERE i.conname IS NOT NULL GROUP BY i.relname, i.index_name
            UNION ALL
            SELECT 4, p.relname || i.relname, format('ALTER INDEX %s ATTACH PARTITION %s', p.index_name, i.index_name)
            FROM indexes AS i JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid JOIN indexes AS p ON p.indexrelid = h.inhparent
            UNION ALL
            SELECT 5, i.relname, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', i.table_name, i.relname)
            FROM indexes AS i WHERE i.indisreplident
            UNION ALL
            SELECT 5, i.relname, format('ALTER TABLE %s CLUSTER ON %I', i.table_name, i.relname)
            FROM indexes AS i WHERE i.indisclustered
            UNION ALL
            SELECT 5, i.relname, format('COMMENT ON INDEX %s IS ', i.index_name) || quote_literal(obj_description(i.indexrelid, 'pg_class'))
            FROM indexes AS i
            UNION ALL
            SELECT 5, k.conname, format('COMMENT ON CONSTRAINT %I ON %s IS ', k.conname, @extschema@.snowflake_internal_name(k.conrelid))
                || quote_literal(obj_description(k.oid, 'pg_constraint'))
            FROM pg_constraint AS k
            WHERE k.oid IN (
                SELECT o.oid FROM pg_constraint AS o JOIN members AS m ON m.id = o.conrelid
                WHERE m.number = ANY (o.conkey) AND (o.contype = 'c' OR o.contype = 'n' AND m.id = m.relation)
                   OR o.contype IN ('p', 'u', 'x') AND o.conindid IN (SELECT i.indexrelid FROM indexes AS i))
            UNION ALL
            SELECT 6, x.stxname, pg_get_statisticsobjdef(x.oid)
            FROM pg_statistic_ext AS x
            WHERE EXISTS (SELECT FROM members AS m JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.id AND d.refobjsubid = m.number)
            UNION ALL
            SELECT 7, x.stxname, format('COMMENT ON STATISTICS %I.%I IS ', n.nspname, x.stxname) || quote_literal(obj_description(x.oid, 'pg_statistic_ext'))
            FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
            WHERE EXISTS (SELECT FROM members AS m JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.id AND d.refobjsubid = m.number)
            UNION ALL
            SELECT 7, m.name, format('ALTER TABLE ONLY %s ALTER COLUMN %I %s', @extschema@.snowflake_internal_name(m.id), m.name, v.change)
            FROM members AS m
            JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number
            JOIN pg_type AS y ON y.oid = a.atttypid
            CROSS JOIN LATERAL (VALUES
                (CASE WHEN a.attstattarget >= 0 THEN 'SET STATISTICS ' || a.attstattarget END),
                ((SELECT format('SET (%s)', string_agg(o, ', ')) FROM unnest(a.attoptions) AS o WHERE o LIKE 'n\_distinct%' HAVING count(*) > 0)),
                (CASE WHEN a.attstorage <> y.typstorage THEN 'SET STORAGE ' || CASE a.attstorage
                    WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' WHEN 'x' THEN 'EXTENDED' END END),
                ('SET COMPRESSION ' || CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END)) AS v (change)
            WHERE v.change IS NOT NULL
            UNION ALL
            SELECT 7, m.name, format('COMMENT ON COLUMN %s.%I IS %L', @extschema@.snowflake_internal_name(m.id), m.name, e.description)
            FROM members AS m
            JOIN pg_description AS e ON e.classoid = 'pg_class'::regclass AND e.objoid = m.id AND e.objsubid = m.number
            UNION ALL
            SELECT 7, m.name, format('SECURITY LABEL FOR %I ON COLUMN %s.%I IS %L', l.provider, @extschema@.snowflake_internal_name(m.id), m.name, l.label)
            FROM members AS m
            JOIN pg_seclabel AS l ON l.classoid = 'pg_class'::regclass AND l.objoid = m.id AND l.objsubid = m.number
            UNION ALL
            SELECT 8, m.name, g.statement
            FROM members AS m JOIN pg_class AS c ON c.oid = m.id
            JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = m.number AND a.attacl IS NOT NULL
            CROSS JOIN @extschema@.snowflake_internal_grants(a.attacl, c.relowner, 'c', 'TABLE ' || @extschema@.snowflake_internal_name(m.id), m.name) AS g (statement))
        SELECT m.statement FROM made AS m WHERE m.statement IS NOT NULL ORDER BY m.phase, m.name, m.statement
    LOOP
        RETURN NEXT;
    END LOOP;
    FOREACH statement IN ARRAY add_keys LOOP
        RETURN NEXT;
    END LOOP;
    -- ALTER TABLE .. TYPE makes statistics and indexes again without these. The statistics
    -- are the caller's then.
    FOR statement IN
        SELECT format('ALTER STATISTICS %I.%I OWNER TO %I', n.nspname, x.stxname, pg_get_userbyid(x.stxowner))
        FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
        WHERE x.stxowner <> quote_ident(current_user)::regrole AND x.oid = ANY (changed_statistics)
        UNION ALL
        SELECT format('ALTER STATISTICS %I.%I SET STATISTICS %s', n.nspname, x.stxname, x.stxstattarget)
        FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
        WHERE x.stxstattarget >= 0 AND x.stxrelid = ANY (tables)
        UNION ALL
        SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', @extschema@.snowflake_internal_name(i.indexrelid), a.attnum, a.attstattarget)
        FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid
        WHERE a.attstattarget >= 0 AND i.indrelid = ANY (tables)
        ORDER BY 1
    LOOP
        RETURN NEXT;
    END LOOP;

    IF NOT set_default THEN
        -- The sequence of an identity is changed with its column.
        action := 'alter';
        FOR statement IN
            SELECT DISTINCT format('ALTER SEQUENCE %s AS bigint', @extschema@.snowflake_internal_name(s.seqrelid))
            FROM unnest(tables, numbers) AS u (id, number)
            JOIN pg_attrdef AS e ON e.adrelid = u.id AND e.adnum = u.number
            JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass
            JOIN pg_sequence AS s ON s.seqrelid = d.refobjid
            WHERE s.seqtypid <> 'bigint'::regtype
            ORDER BY 1
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;

    action := 'make';
    FOR statement, rewrites IN
        SELECT s.statement, CASE WHEN s.statement LIKE 'REFRESH %' THEN pg_total_relation_size(d.id) END
        FROM ROWS FROM (jsonb_to_recordset(made_again) AS (id oid, statements text[])) WITH ORDINALITY AS d (id, statements, place)
        CROSS JOIN unnest(d.statements) WITH ORDINALITY AS s (statement, place)
        ORDER BY d.place, s.place
    LOOP
        locks := CASE WHEN statement LIKE 'REFRESH %' THEN every END;
        RETURN NEXT;
    END LOOP;
    rewrites := NULL;
    locks := every;

    IF set_default THEN
        action := 'default';
        FOR statement IN
            SELECT format('SELECT @extschema@.snowflake_set_default(%s)',
                concat_ws(', ', quote_literal(@extschema@.snowflake_internal_name(c.relation)), quote_literal(c.name),
                    quote_literal(@extschema@.snowflake_internal_name(generator))))
            FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_key boolean) WHERE c.is_key
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;

    IF keys <> '[]' AND columns <> '[]' THEN
        action := 'drop';
        locks := NULL;
        statement := 'DROP FUNCTION pg_temp.snowflake_new_id(regclass, name, bigint)';
        RETURN NEXT;
    END IF;

    action := 'analyze';
    locks := 'SHARE UPDATE EXCLUSIVE';
    FOR statement IN
        SELECT format('ANALYZE %s', n.name)
        FROM (SELECT DISTINCT @extschema@.snowflake_internal_name(c.relation)
              FROM jsonb_to_recordset(columns) AS c (relation oid, is_altered boolean) WHERE c.is_altered) AS n (name)
        ORDER BY n.name
    LOOP
        RETURN NEXT;
    END LOOP;

    action := 'note';
    statement := NULL;
    locks := NULL;
    FOR note IN
        SELECT format('column %s.%I %s', @extschema@.snowflake_internal_name(k.relation), k.name, k.note)
        FROM @extschema@.snowflake_internal_convert_keys(relations, are_named) AS k
        WHERE k.note IS NOT NULL AND NOT EXISTS (
            SELECT FROM jsonb_to_recordset(columns) AS c (relation oid, name name)
            WHERE c.name = k.name
              AND c.relation IN (SELECT @extschema@.snowflake_internal_column_roots(k.relation, k.name)))
          AND k.relation IS NOT NULL
          AND (SELECT b.base FROM pg_attribute AS a
               CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS b
               WHERE a.attrelid = k.relation AND a.attname = k.name) <> 'bigint'::regtype
        UNION ALL
        SELECT n.note FROM @extschema@.snowflake_internal_convert_notes(columns, made_again, worker_id IS NOT NULL) AS n (note)
        WHERE columns <> '[]'
        UNION ALL
        SELECT DISTINCT format('%s inserts rows into table %s, and needs: GRANT USAGE ON SEQUENCE %s TO %s',
            CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE 'role ' || r.name END, @extschema@.snowflake_internal_name(t.oid), @extschema@.snowflake_internal_name(g.source), r.name)
        FROM @extschema@.snowflake_internal_ids_to_come(generator, NULL) AS g
        CROSS JOIN jsonb_to_recordset(columns) AS c (relation oid, is_key boolean)
        JOIN pg_class AS t ON t.oid = c.relation
        CROSS JOIN LATERAL (
            SELECT coalesce(t.relacl, acldefault('r', t.relowner))
            UNION ALL
            SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = t.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped) AS l (acl)
        CROSS JOIN aclexplode(l.acl) AS e
        CROSS JOIN LATERAL (SELECT CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END) AS r (name)
        WHERE set_default AND c.is_key AND e.privilege_type = 'INSERT'
          AND NOT has_sequence_privilege(e.grantee, g.source, 'USAGE, UPDATE')
        UNION ALL
        SELECT format('%s %s no keys after the conversion: programs that call nextval(), currval() or lastval() for them need INSERT ... RETURNING',
            string_agg(DISTINCT q.name, ', '), CASE WHEN count(DISTINCT q.name) = 1 THEN 'makes' ELSE 'make' END)
        FROM jsonb_to_recordset(columns) AS c (relation oid, number smallint, is_key boolean)
        LEFT JOIN pg_attrdef AS e ON e.adrelid = c.relation AND e.adnum = c.number
        -- Of an identity, or named by a default.
        JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND (d.refobjid, d.refobjsubid) = (c.relation, c.number) AND d.deptype = 'i'
            OR d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass
        JOIN pg_class AS s ON s.relkind = 'S' AND s.oid IN (d.objid, d.refobjid)
        CROSS JOIN LATERAL (SELECT 'sequence ' || @extschema@.snowflake_internal_name(s.oid)) AS q (name)
        WHERE set_default AND c.is_key AND s.oid NOT IN (SELECT g.generator FROM @extschema@.snowflake_generators() AS g)
        HAVING count(*) > 0
        UNION ALL
        SELECT format('table %s keeps the keys of its old rows, since no column has their time', @extschema@.snowflake_internal_name(c.relation))
        FROM jsonb_to_recordset(columns) AS c (relation oid, name name, is_key boolean, origin oid)
        WHERE worker_id IS NOT NULL AND c.is_key AND c.origin IS NULL
        UNION ALL
        SELECT format('old rows of table %s get IDs of the time in column %I', @extschema@.snowflake_internal_name(k.relation), k.time_name)
        FROM jsonb_to_recordset(keys) AS k (relation oid, time_name name, expression text) WHERE columns <> '[]' AND k.expression IS NOT NULL
        UNION ALL
        SELECT format('table %s has the old and new keys after the conversion: drop it when nothing refers to old keys any more', map)
        WHERE keys <> '[]' AND columns <> '[]'
        ORDER BY 1
    LOOP
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_internal_convert_plan(regclass[], boolean, regclass, boolean, name[], bigint, boolean) IS
    'internal, for snowflake_convert(): the rows of the plan, without numbers';
-- The conversion of tables that stay in use. snowflake_convert_steps() returns statements
-- that a client runs one by one, each in a transaction of its own, since PostgreSQL builds
-- indexes CONCURRENTLY in no other way. In psql:
--
--     SELECT statement FROM snowflake_convert_steps('{orders}') \gexec
--
-- 1. Each integer column gets a bigint column beside it, its copy; a trigger that fills the
--    copy; and a constraint that the copy equals the column, not validated yet.
-- 2. snowflake_convert_backfill() fills the copies of old rows, in small transactions.
-- 3. The constraint is validated: from here on, PostgreSQL itself vouches for the copies.
-- 4. Indexes on the copies are built CONCURRENTLY; foreign keys are added NOT VALID, then
--    validated.
-- 5. snowflake_convert_swap() does the rest in one short transaction: it drops the columns,
--    and gives their copies the names, constraints, defaults, privileges and comments.
--
-- No step is stored. Each call looks at the catalogs, and returns what is left to do, so
-- that whatever was interrupted goes on, and nobody can change what another role will run.
-- Table snowflake_conversions has the progress of step 2 only: if its rows are lost, old
-- pages are read again, and if they are wrong, the constraint of step 3 finds that.
--
-- Until step 5, snowflake_convert_undo() returns the statements that remove everything.
--
-- Statements that lock a table go through snowflake_convert_run(), which waits for a lock
-- for half a second at most, since others queue behind it, and then tries again.
--
-- In a partitioned table, the columns, the trigger and the constraints are those of the
-- whole table, so that new partitions get them too. The filling, the indexes and the
-- foreign keys are those of each partition: PostgreSQL does them CONCURRENTLY or NOT VALID
-- there only.

CREATE TABLE snowflake_conversions (
    relation regclass PRIMARY KEY,
    pages_done bigint NOT NULL,
    pages bigint NOT NULL,
    rows_done bigint NOT NULL,
    rows_per_second double precision,
    started timestamptz NOT NULL,
    updated timestamptz NOT NULL,
    filled smallint[],
    to_validate name[]
);
COMMENT ON TABLE snowflake_conversions IS
    'progress of snowflake_convert_backfill(): one row for each table that is being converted';
COMMENT ON COLUMN snowflake_conversions.pages_done IS 'pages of the table that have been filled in this pass';
COMMENT ON COLUMN snowflake_conversions.pages IS 'pages that the table had when the pass began';
COMMENT ON COLUMN snowflake_conversions.rows_done IS 'rows that have been filled since the conversion began';
COMMENT ON COLUMN snowflake_conversions.rows_per_second IS 'rows filled per second, of late';
COMMENT ON COLUMN snowflake_conversions.filled IS 'numbers of the copies that are filled in all rows: a copy that is made again has another number';
COMMENT ON COLUMN snowflake_conversions.to_validate IS 'after the swap: constraints to validate';
-- Everybody sees and changes the rows of their own tables only.
ALTER TABLE snowflake_conversions ENABLE ROW LEVEL SECURITY;
CREATE POLICY owners ON snowflake_conversions USING (pg_catalog.pg_has_role(
    (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = relation), 'USAGE'));
COMMENT ON POLICY owners ON snowflake_conversions IS 'rows of the tables that the reader owns';
GRANT SELECT, INSERT, UPDATE, DELETE ON snowflake_conversions TO PUBLIC;

CREATE FUNCTION snowflake_internal_copy_name(name name) RETURNS name
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A long name is cut, and told from others by a hash. The names of constraints have one
    -- character more.
    SELECT CASE WHEN octet_length(name::text) <= 54 THEN name || '__bigint'
        ELSE left(name::text, 10) || substr(md5(name::text), 1, 12) || '__bigint' END
$$;
COMMENT ON FUNCTION snowflake_internal_copy_name(name) IS
    'internal, for snowflake_convert_steps(): the name of the copy of a column, an index or a constraint';

CREATE FUNCTION snowflake_internal_copy_function(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('%I.%I', n.nspname, @extschema@.snowflake_internal_copy_name(c.relname))
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation
$$;
COMMENT ON FUNCTION snowflake_internal_copy_function(regclass) IS
    'internal, for snowflake_convert_steps(): the name of the function that fills the copies of a table';

-- A copy is told from a column of the user's by its comment, which it has in the whole table.
CREATE FUNCTION snowflake_internal_copy_number(root regclass, column_name name, relation regclass) RETURNS smallint
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.attnum
    FROM pg_attribute AS r JOIN pg_attribute AS a ON a.attname = r.attname AND NOT a.attisdropped
    WHERE r.attrelid = root AND r.attname = @extschema@.snowflake_internal_copy_name(column_name) AND NOT r.attisdropped
      AND col_description(root, r.attnum) = 'filled by snowflake_convert_steps()' AND a.attrelid = relation
$$;
COMMENT ON FUNCTION snowflake_internal_copy_number(regclass, name, regclass) IS
    'internal, for snowflake_convert_steps(): the number of the copy of a column in a table or partition; null if there is no copy';

CREATE FUNCTION snowflake_internal_copies(
    relations regclass[], are_named boolean,
    OUT root regclass, OUT relation regclass, OUT kind "char", OUT name name, OUT number smallint,
    OUT is_key boolean, OUT copy name, OUT copy_number smallint)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.relation, f.member, t.relkind, c.name, f.number, c.is_key, @extschema@.snowflake_internal_copy_name(c.name),
        @extschema@.snowflake_internal_copy_number(c.relation, c.name, f.member)
    FROM @extschema@.snowflake_internal_convert_columns(relations, are_named) AS c
    CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f
    JOIN pg_class AS t ON t.oid = f.member
    WHERE c.base <> 'bigint'::regtype
$$;
COMMENT ON FUNCTION snowflake_internal_copies(regclass[], boolean) IS
    'internal, for snowflake_convert_steps(): the columns to change, also in all partitions, with their copies if there are any yet';

-- Whoever may put objects in the schema of a table could make the function before we do. So
-- its owner must have the rights of the table's owner, who can make triggers anyway.
CREATE FUNCTION snowflake_internal_is_copy_function(function regproc, relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_has_role(p.proowner, c.relowner, 'USAGE') AND l.lanname = 'plpgsql' AND NOT p.prosecdef AND p.proconfig IS NULL
        AND p.prorettype = 'trigger'::regtype AND p.prokind = 'f'
    FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang CROSS JOIN pg_class AS c
    WHERE p.oid = function AND c.oid = relation
$$;
COMMENT ON FUNCTION snowflake_internal_is_copy_function(regproc, regclass) IS
    'internal, for snowflake_convert_steps(): whether a function may fill the copies of a table';

CREATE FUNCTION snowflake_internal_is_copying(relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- BEFORE INSERT OR UPDATE FOR EACH ROW, without columns and conditions.
    SELECT EXISTS (
        SELECT FROM pg_trigger AS t
        WHERE t.tgrelid = relation AND t.tgname = '~snowflake_convert' AND t.tgenabled = 'A' AND t.tgtype = 23
          AND t.tgqual IS NULL AND cardinality(t.tgattr::smallint[]) = 0
          AND t.tgfoid = to_regprocedure(@extschema@.snowflake_internal_copy_function(relation) || '()')
          AND @extschema@.snowflake_internal_is_copy_function(t.tgfoid, relation))
$$;
COMMENT ON FUNCTION snowflake_internal_is_copying(regclass) IS
    'internal, for snowflake_convert_steps(): whether a table has the trigger that fills copies, with a function of its owner';

CREATE FUNCTION snowflake_internal_check_copying(relation regclass) RETURNS void
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT @extschema@.snowflake_internal_is_copying(relation) THEN
        RAISE EXCEPTION 'trigger "~snowflake_convert" of table % does not call a function of the owner of the table', @extschema@.snowflake_internal_name(relation)
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('Look at function %s(), and at who can create objects in its schema.', @extschema@.snowflake_internal_copy_function(relation));
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_copying(regclass) IS
    'internal, for snowflake_convert_steps(): an error unless a table has the trigger that fills copies';

-- A transaction with a snapshot would not see what others have changed before its locks.
CREATE FUNCTION snowflake_internal_need_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'cannot convert keys in a transaction of isolation level %', current_setting('transaction_isolation')
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'SET default_transaction_isolation = ''read committed''';
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_need_read_committed() IS
    'internal, for snowflake_convert_steps(): an error in transactions of other isolation levels';

CREATE FUNCTION snowflake_internal_index_columns(index regclass) RETURNS smallint[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- Those in expressions and conditions too, and those of a constraint, which stands
    -- between its index and the columns.
    SELECT coalesce(array_agg(DISTINCT d.refobjsubid::smallint), '{}')
    FROM pg_index AS i
    JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid AND d.refobjsubid <> 0
    WHERE i.indexrelid = index
      AND (d.classid = 'pg_class'::regclass AND d.objid = index
        OR d.classid = 'pg_constraint'::regclass AND d.objid IN (
            SELECT k.oid FROM pg_constraint AS k WHERE k.conindid = index AND k.conrelid = i.indrelid))
$$;
COMMENT ON FUNCTION snowflake_internal_index_columns(regclass) IS
    'internal, for snowflake_convert_steps(): the numbers of the columns that an index is made of';

-- The text of an index on copies. Columns come from the catalogs; in expressions and
-- conditions, the name of a column is replaced wherever it stands as a word. The swap
-- compares the result with the index that it replaces.
CREATE FUNCTION snowflake_internal_copy_index(
    index regclass, columns name[], OUT copy name, OUT definition text)
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it record;
    column_name name;
    tablespace name;
    place integer;
BEGIN
    SELECT i.*, c.relname, c.reltablespace, @extschema@.snowflake_internal_name(i.indrelid) AS table_name INTO it
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indexrelid = index;
    copy := @extschema@.snowflake_internal_copy_name(it.relname);
    -- CREATE [UNIQUE] INDEX name ON [ONLY] table USING ..., where a name in quotes may have
    -- any text.
    definition := regexp_replace(pg_get_indexdef(index),
        '^CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^" ]+) ON (?:ONLY )?(?:(?:"(?:[^"]|"")*"|[^". ]+)\.)?(?:"(?:[^"]|"")*"|[^". ]+)(?= USING )', '');
    -- pg_get_indexdef() leaves out the tablespace, which comes before the condition. The
    -- condition has other line breaks in pg_get_expr().
    tablespace := (SELECT s.spcname FROM pg_tablespace AS s WHERE s.oid = it.reltablespace);
    IF tablespace IS NOT NULL THEN
        place := coalesce((SELECT max(p) FROM generate_series(1, length(definition)) AS p
            WHERE substr(definition, p, 7) = ' WHERE ' AND regexp_replace(substr(definition, p + 7), '\s', '', 'g')
                = regexp_replace(pg_get_expr(it.indpred, it.indrelid), '\s', '', 'g')), length(definition) + 1);
        definition := overlay(definition PLACING ' TABLESPACE ' || quote_ident(tablespace) FROM place FOR 0);
    END IF;
    FOREACH column_name IN ARRAY columns LOOP
        definition := CASE WHEN column_name ~ '^[a-z_][a-z0-9_$]*$' AND quote_ident(column_name) = column_name
            THEN regexp_replace(definition, '(?<![\w$"''.])' || replace(column_name, '$', '\$') || '(?![\w$"''(])',
                replace(quote_ident(@extschema@.snowflake_internal_copy_name(column_name)), '\', '\\'), 'g')
            ELSE replace(definition, quote_ident(column_name), quote_ident(@extschema@.snowflake_internal_copy_name(column_name))) END;
    END LOOP;
    definition := format('%s INDEX CONCURRENTLY %I ON %s', CASE WHEN it.indisunique THEN 'CREATE UNIQUE' ELSE 'CREATE' END,
        copy, it.table_name) || definition;
END
$$;
COMMENT ON FUNCTION snowflake_internal_copy_index(regclass, name[]) IS
    'internal, for snowflake_convert_steps(): the statement that builds an index like another one on the copies of columns';

-- One deadline for all locks: those that are held already make others wait too.
CREATE FUNCTION snowflake_internal_wait_until(deadline timestamptz) RETURNS void
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
AS $$
    SELECT pg_catalog.set_config('lock_timeout', GREATEST(1, pg_catalog.ceil(EXTRACT(epoch FROM
        deadline OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000::pg_catalog.numeric))::pg_catalog.text, true)
$$;
COMMENT ON FUNCTION snowflake_internal_wait_until(timestamptz) IS
    'internal, for snowflake_convert_run(): sets lock_timeout to the time that is left';

-- Our own locks have been given back by now. Whoever has held one for a short time only
-- is left out, as far as the caller may see that.
CREATE FUNCTION snowflake_internal_lockers(statements text[], since timestamptz) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(DISTINCT format('%s holds %s on %s',
        CASE WHEN l.pid IS NULL THEN format('prepared transaction %L', x.gid) ELSE format('process %s', l.pid) END, l.mode, n.name), '; ')
    FROM pg_locks AS l
    JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
    JOIN pg_class AS c ON c.oid = l.relation AND c.relkind IN ('r', 'p', 'v', 'm')
    CROSS JOIN @extschema@.snowflake_internal_name(c.oid) AS n (name)
    CROSS JOIN @extschema@.snowflake_internal_name(coalesce(pg_partition_root(c.oid), c.oid)) AS r (name)
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_prepared_xacts AS x ON l.virtualtransaction = '-1/' || x.transaction
    WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND (a.xact_start < since) IS NOT FALSE
      AND EXISTS (SELECT FROM unnest(statements) AS s (text) WHERE strpos(s.text, n.name) > 0 OR strpos(s.text, r.name) > 0)
      -- Readers are in nobody's way where triggers and foreign keys are made.
      AND NOT (l.mode IN ('AccessShareLock', 'RowShareLock') AND statements[1] ~ '^CREATE OR REPLACE TRIGGER |^LOCK TABLE .* IN SHARE ROW EXCLUSIVE MODE$')
$$;
COMMENT ON FUNCTION snowflake_internal_lockers(text[], timestamptz) IS
    'internal, for snowflake_convert_run(): who holds locks on the tables that statements name, in transactions from before an instant; null if nobody does';

-- Several tables are locked one by one. Transactions that lock them in another order are
-- found by a lock that we do not get: that table comes first in the next try. So after some
-- tries we lock in the order in which they do, and queue before all of them.
--
-- Each try but the first begins a transaction, so that now() is when the first lock was
-- asked for. snowflake_convert_swap() commits before it calls this.
CREATE PROCEDURE snowflake_convert_run(statement text, locks text[] DEFAULT '{}', tries integer DEFAULT 1000)
    LANGUAGE plpgsql
AS $$
DECLARE
    tried integer := 0;
    lock_timeout constant text := pg_catalog.current_setting('lock_timeout');
    search_path constant text := pg_catalog.current_setting('search_path');
    place integer;
    began timestamptz;
    lockers text;
BEGIN
    LOOP
        PERFORM @extschema@.snowflake_internal_need_read_committed();
        BEGIN
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            began := clock_timestamp();
            place := 0;
            FOR i IN 1 .. cardinality(locks) LOOP
                place := i;
                PERFORM @extschema@.snowflake_internal_wait_until(began + interval '500 ms');
                EXECUTE locks[i];
            END LOOP;
            place := 0;
            PERFORM @extschema@.snowflake_internal_wait_until(began + interval '500 ms');
            EXECUTE statement;
            PERFORM set_config('lock_timeout', lock_timeout, true);
            PERFORM set_config('search_path', search_path, true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            tried := tried + 1;
            -- After 4, 8, 16 .. tries.
            IF tried >= tries OR tried >= 4 AND tried & (tried - 1) = 0 THEN
                lockers := coalesce(@extschema@.snowflake_internal_lockers(locks || statement, began), 'transactions that have ended now held the locks');
            END IF;
            IF tried >= tries THEN
                RAISE EXCEPTION 'could not lock the tables; number of tries: %', tried
                    USING ERRCODE = SQLSTATE, DETAIL = lockers,
                    HINT = 'Nothing has been changed. Run the statement again when these transactions have ended.';
            ELSIF tried >= 4 AND tried & (tried - 1) = 0 THEN
                RAISE NOTICE 'the locks were not to be had in % tries: %', tried, lockers;
            END IF;
            IF place BETWEEN 2 AND cardinality(locks) THEN
                locks := locks[place:place] || locks[:place - 1] || locks[place + 1:];
            END IF;
        END;
        -- Nobody queues behind us while we wait, for longer and longer.
        COMMIT;
        PERFORM pg_catalog.pg_sleep(pg_catalog.random() OPERATOR(pg_catalog.*) LEAST(tried, 40) OPERATOR(pg_catalog./) 4.0::pg_catalog.float8);
        COMMIT;
    END LOOP;
END
$$;
COMMENT ON PROCEDURE snowflake_convert_run(text, text[], integer) IS
    'for snowflake_convert_steps(): runs statements that lock tables, then another one, in one transaction that waits for locks for half a second at most; tries again until it gets them, or names who holds them';

CREATE FUNCTION snowflake_internal_online_obstacles(
    relations regclass[], are_named boolean, generator regclass, set_default boolean) RETURNS SETOF text
    LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH copies AS MATERIALIZED (
        SELECT * FROM @extschema@.snowflake_internal_copies(relations, are_named)),
    tables AS (
        SELECT DISTINCT c.relation AS id, @extschema@.snowflake_internal_name(c.relation) AS name FROM copies AS c)
    SELECT p.note FROM @extschema@.snowflake_internal_convert_plan(relations, are_named, generator, set_default, NULL, NULL, true) AS p
    WHERE p.action = 'obstacle' AND p.note NOT LIKE '% is being converted while it is in use%'
    UNION ALL
    -- Their foreign keys are added again, also if their columns stay.
    SELECT DISTINCT format('must be owner of %s', pg_describe_object('pg_class'::regclass, h.oid, 0))
    FROM copies AS c
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = c.relation AND c.number = ANY (k.confkey)
    JOIN pg_class AS h ON h.oid = k.conrelid AND NOT pg_has_role(h.relowner, 'USAGE')
    WHERE h.oid NOT IN (SELECT t.id FROM tables AS t)
    UNION ALL
    SELECT format('table %s has child tables, or is one: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id
    WHERE c.relkind <> 'p' AND NOT c.relispartition AND EXISTS (SELECT FROM pg_inherits AS i WHERE t.id IN (i.inhrelid, i.inhparent))
    UNION ALL
    SELECT format('table %s is temporary, and in use by nobody else: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id WHERE c.relpersistence = 't'
    UNION ALL
    SELECT format('partition %s is a foreign table: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id WHERE c.relkind = 'f'
    UNION ALL
    SELECT format('column %s.%I is NOT NULL, but not in the whole table: convert it at once', t.name, a.attname)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id AND c.root <> c.relation
    JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
    JOIN pg_attribute AS r ON r.attrelid = c.root AND r.attname = c.name
    WHERE a.attnotnull AND NOT r.attnotnull
    UNION ALL
    -- PostgreSQL adds no such constraint without reading the rows.
    SELECT format('constraint %I of partitioned table %s refers to partitioned table %s: convert them at once',
        k.conname, @extschema@.snowflake_internal_name(k.conrelid), @extschema@.snowflake_internal_name(k.confrelid))
    FROM pg_constraint AS k
    JOIN pg_class AS h ON h.oid = k.conrelid AND h.relkind = 'p'
    JOIN pg_class AS f ON f.oid = k.confrelid AND f.relkind = 'p'
    WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM copies AS c
        WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
    UNION ALL
    SELECT format('column %s.%I is generated from a column that changes: convert it at once', t.name, a.attname)
    FROM tables AS t
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attgenerated <> ''
    JOIN pg_attrdef AS e ON e.adrelid = t.id AND e.adnum = a.attnum
    WHERE EXISTS (SELECT FROM pg_depend AS d JOIN copies AS c ON c.relation = t.id AND c.number = d.refobjsubid
        WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.id)
    UNION ALL
    -- Primary keys WITHOUT OVERLAPS are exclusion constraints too.
    SELECT format('constraint %I of table %s is an exclusion constraint: convert it at once', k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id AND k.contype IN ('p', 'u', 'x')
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND i.indisexclusion
    WHERE EXISTS (SELECT FROM copies AS c JOIN pg_depend AS d ON d.refobjsubid = c.number
        WHERE c.relation = t.id AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.id
          AND (d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid OR d.classid = 'pg_constraint'::regclass AND d.objid = k.oid))
    UNION ALL
    -- A unique index that is built CONCURRENTLY refuses duplicates from the beginning.
    SELECT format('constraint %I of table %s is DEFERRABLE, but the index of its copy refuses duplicates immediately until the swap:'
        ' convert the table at once, or make the constraint without DEFERRABLE meanwhile', k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id AND k.contype IN ('p', 'u') AND k.condeferrable
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND NOT i.indisexclusion
    WHERE k.conparentid = 0 AND EXISTS (SELECT FROM copies AS c WHERE c.relation = t.id AND c.number = ANY (i.indkey::smallint[]))
    UNION ALL
    -- The copying updates each row, and PostgreSQL checks the new version. From PostgreSQL 18
    -- on, NOT NULL can be NOT VALID too, and what is NOT ENFORCED is checked never.
    SELECT format('constraint %I of table %s is not valid, and old rows that violate it cannot be copied: validate or drop it', k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id
    WHERE k.contype IN ('c', 'n') AND NOT k.convalidated AND k.coninhcount = 0 AND pg_get_constraintdef(k.oid) NOT LIKE '% NOT ENFORCED'
      AND NOT EXISTS (SELECT FROM copies AS c WHERE c.relation = t.id AND k.conname IN ('=' || c.copy, '~' || c.copy))
    UNION ALL
    -- The swap would find that the index is another one.
    SELECT format('index %s has the name of a column in a text: convert the table at once', @extschema@.snowflake_internal_name(i.indexrelid))
    FROM (SELECT c.relation, array_agg(c.name) AS names FROM copies AS c GROUP BY c.relation) AS c
    JOIN pg_index AS i ON i.indrelid = c.relation
    CROSS JOIN @extschema@.snowflake_internal_copy_index(i.indexrelid, c.names) AS d
    CROSS JOIN LATERAL (SELECT '"(?:[^"]|"")*"|(''(?:[^'']|'''')*'')') AS l (pattern)
    WHERE EXISTS (SELECT FROM copies AS o JOIN pg_depend AS e ON e.refobjsubid = o.number
            WHERE o.relation = i.indrelid AND e.classid = 'pg_class'::regclass AND e.objid = i.indexrelid
              AND e.refclassid = 'pg_class'::regclass AND e.refobjid = o.relation)
      AND ARRAY(SELECT m[1] FROM regexp_matches(pg_get_indexdef(i.indexrelid), l.pattern, 'g') AS m WHERE m[1] IS NOT NULL)
        <> ARRAY(SELECT m[1] FROM regexp_matches(d.definition, l.pattern, 'g') AS m WHERE m[1] IS NOT NULL)
    UNION ALL
    SELECT DISTINCT format('privileges on column %s.%I were granted by role %I, of which the caller is no member: let its owner grant them instead',
        t.name, c.name, pg_get_userbyid(e.grantor))
    FROM tables AS t JOIN copies AS c ON c.relation = t.id
    JOIN pg_class AS o ON o.oid = t.id
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum = c.number
    CROSS JOIN aclexplode(a.attacl) AS e
    WHERE e.grantor <> o.relowner AND NOT pg_has_role(e.grantor, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
    UNION ALL
    SELECT format('column %s.%I has an identity, which online conversion keeps for no column: use set_default => true, or convert it at once', t.name, a.attname)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum = c.number
    WHERE a.attidentity <> '' AND c.relation = c.root AND NOT (set_default AND c.is_key)
    UNION ALL
    SELECT format('generator %s is at ID %s, which is not above all integers: convert the tables at once', @extschema@.snowflake_internal_name(g.source), g.next_id)
    FROM @extschema@.snowflake_internal_ids_to_come(generator, NULL) AS g
    WHERE set_default AND g.sorted AND g.next_id <= 2147483647
    UNION ALL
    SELECT format('this server cannot issue IDs of generator %s: %s', @extschema@.snowflake_internal_name(g.generator), g.problem)
    FROM @extschema@.snowflake_generators() AS g
    WHERE set_default AND g.problem IS NOT NULL AND g.generator = coalesce(snowflake_internal_online_obstacles.generator, '@extschema@.snowflake_default'::regclass)
    UNION ALL
    SELECT format('column %s.%I refers to a key that changes, and is of type %s: change it to bigint or numeric first',
        @extschema@.snowflake_internal_name(k.conrelid), a.attname, format_type(a.atttypid, a.atttypmod))
    FROM copies AS c
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = c.relation
    CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
    JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.here
    CROSS JOIN @extschema@.snowflake_internal_base_type(a.atttypid, a.atttypmod) AS b
    WHERE u.there = c.number AND b.base NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
      AND NOT (b.base = 'numeric'::regtype AND b.modifier = -1)
    UNION ALL
    -- PostgreSQL refuses UPDATE then.
    SELECT format('table %s is published without a replica identity, so its rows cannot be updated: ALTER TABLE %1$s REPLICA IDENTITY FULL', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id AND c.relkind = 'r' AND c.relpersistence = 'p'
    WHERE CASE c.relreplident
        WHEN 'f' THEN false
        WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)
        ELSE NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisreplident) END
      AND EXISTS (
        SELECT FROM pg_publication AS p
        CROSS JOIN (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) AS a (relid)) AS m (id)
        JOIN pg_class AS n ON n.oid = m.id
        WHERE p.pubupdate AND (p.puballtables
            OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = n.oid)
            OR EXISTS (SELECT FROM pg_publication_namespace AS s WHERE s.pnpubid = p.oid AND s.pnnspid = n.relnamespace)))
    UNION ALL
    SELECT format('table %s has triggers or rules that fire on UPDATE, and the caller may not set session_replication_role, which keeps them from the copying', t.name)
    FROM tables AS t
    WHERE NOT has_parameter_privilege('session_replication_role', 'SET') AND (
        EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = t.id AND NOT g.tgisinternal AND g.tgtype & 16 <> 0
            AND cardinality(g.tgattr::smallint[]) = 0 AND g.tgname <> '~snowflake_convert')
        OR EXISTS (SELECT FROM pg_rewrite AS r WHERE r.ev_class = t.id AND r.ev_type = '2' AND r.ev_enabled <> 'D'))
    UNION ALL
    SELECT format('rule %I of table %s would change the copying: disable it, or do not enable it ALWAYS', r.rulename, t.name)
    FROM tables AS t JOIN pg_rewrite AS r ON r.ev_class = t.id AND r.ev_type = '2' AND r.ev_enabled IN ('A', 'R')
    UNION ALL
    SELECT format('column %s.%I has the name of the copy that column %I needs: rename it', t.name, a.attname, c.name)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id AND c.copy_number IS NULL
    JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attname = c.copy AND NOT a.attisdropped
    UNION ALL
    SELECT format('%s has the name of the copy that index %s needs: rename it', pg_describe_object('pg_class'::regclass, y.oid, 0), x.relname)
    FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.id
    JOIN pg_class AS x ON x.oid = i.indexrelid
    JOIN pg_class AS y ON y.relnamespace = x.relnamespace AND y.relname = @extschema@.snowflake_internal_copy_name(x.relname)
    WHERE EXISTS (SELECT FROM copies AS c
            WHERE c.relation = t.id AND c.number = ANY (@extschema@.snowflake_internal_index_columns(x.oid)))
      AND NOT EXISTS (SELECT FROM copies AS c
            WHERE c.relation = t.id AND c.copy_number = ANY (@extschema@.snowflake_internal_index_columns(x.oid)))
      AND NOT EXISTS (SELECT FROM copies AS c JOIN pg_index AS z ON z.indexrelid = y.oid AND z.indrelid = c.relation
            WHERE c.relation = t.id AND c.copy_number = ANY (@extschema@.snowflake_internal_index_columns(y.oid)))
    UNION ALL
    SELECT format('constraint %I of table %s has the name of the copy that constraint %I needs: rename it',
        o.conname, @extschema@.snowflake_internal_name(k.conrelid), k.conname)
    FROM pg_constraint AS k
    JOIN pg_constraint AS o ON o.conrelid = k.conrelid AND o.conname = @extschema@.snowflake_internal_copy_name(k.conname)
    WHERE k.contype = 'f' AND EXISTS (SELECT FROM copies AS c
            WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
      AND NOT EXISTS (SELECT FROM copies AS c
            WHERE c.relation = o.conrelid AND c.copy_number = ANY (o.conkey) OR c.relation = o.confrelid AND c.copy_number = ANY (o.confkey))
    UNION ALL
    SELECT format('function %s() is there already, and is not of the owner of table %s: drop or rename it', f.name, t.name)
    FROM (SELECT DISTINCT c.root FROM copies AS c) AS r (id) JOIN tables AS t ON t.id = r.id
    CROSS JOIN @extschema@.snowflake_internal_copy_function(t.id) AS f (name)
    WHERE NOT @extschema@.snowflake_internal_is_copy_function(to_regprocedure(f.name || '()')::regproc, t.id)
    UNION ALL
    -- It could change the key after the copy has been filled.
    SELECT format('trigger %I of table %s fires after the one that fills the copies: rename it', g.tgname, t.name)
    FROM tables AS t JOIN pg_trigger AS g ON g.tgrelid = t.id
    WHERE NOT g.tgisinternal AND g.tgtype & 3 = 3 AND g.tgtype & 20 <> 0 AND g.tgname > '~snowflake_convert'
    UNION ALL
    SELECT format('row-level security applies to the caller, who would not reach all rows of table %s: ALTER TABLE %1$s NO FORCE ROW LEVEL SECURITY meanwhile', t.name)
    FROM tables AS t WHERE row_security_active(t.id)
$$;
COMMENT ON FUNCTION snowflake_internal_online_obstacles(regclass[], boolean, regclass, boolean) IS
    'internal, for snowflake_convert_steps(): why tables cannot be converted while they are in use';

CREATE FUNCTION snowflake_convert_steps(
    relations regclass[] DEFAULT NULL, schema regnamespace DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true,
    OUT step bigint, OUT statement text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tables regclass[] := @extschema@.snowflake_internal_convert_tables(relations, schema);
    are_named boolean := relations IS NOT NULL;
    obstacle text := (SELECT o FROM @extschema@.snowflake_internal_online_obstacles(tables, are_named, generator, set_default) AS o LIMIT 1);
    arguments text := concat_ws(', ', 'relations => ' || quote_literal(relations::text), 'schema => ' || quote_literal(schema::text),
        'generator => ' || quote_literal(@extschema@.snowflake_internal_name(generator)),
        CASE WHEN NOT set_default THEN 'set_default => false' END);
BEGIN
    IF obstacle IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert keys: %', obstacle
            USING ERRCODE = CASE WHEN obstacle LIKE 'must be owner of %' THEN 'insufficient_privilege'
                ELSE 'object_not_in_prerequisite_state' END,
            HINT = 'snowflake_convert_plan(online => true) lists all obstacles.';
    END IF;
    step := 0;
    FOR statement IN
        WITH columns AS MATERIALIZED (
            SELECT c.*, @extschema@.snowflake_internal_name(c.relation) AS table_name, a.attnotnull,
                e.oid IS NOT NULL AS has_check, coalesce(e.convalidated, false) AS is_equal,
                n.oid IS NOT NULL OR NOT a.attnotnull AS has_not_null, coalesce(n.convalidated, NOT a.attnotnull) AS is_not_null
            FROM @extschema@.snowflake_internal_copies(tables, are_named) AS c
            JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
            LEFT JOIN pg_constraint AS e ON e.conrelid = c.relation AND e.conname = '=' || c.copy
            LEFT JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.conname = '~' || c.copy),
        sources AS (
            SELECT c.relation, c.root, c.kind, c.table_name, array_agg(c.name ORDER BY c.number) AS names,
                @extschema@.snowflake_internal_copy_function(c.relation) AS function,
                format(E'BEGIN\n    %s\n    RETURN NEW;\nEND', string_agg(format('NEW.%I := NEW.%I;', c.copy, c.name), E'\n    ' ORDER BY c.number)) AS body
            FROM columns AS c GROUP BY c.relation, c.root, c.kind, c.table_name),
        constraints AS (
            SELECT k.*, @extschema@.snowflake_internal_name(k.conrelid) AS table_name,
                @extschema@.snowflake_internal_name(k.confrelid) AS referred,
                @extschema@.snowflake_internal_copy_name(k.conname) AS copy
            FROM pg_constraint AS k
            JOIN pg_class AS h ON h.oid = k.conrelid AND h.relkind = 'r'
            -- The swap adds foreign keys that refer to partitioned tables: only there is
            -- there a primary key to refer to.
            JOIN pg_class AS f ON f.oid = k.confrelid AND f.relkind = 'r'
            LEFT JOIN pg_constraint AS p ON p.oid = k.conparentid
            WHERE k.contype = 'f' AND p.conrelid IS DISTINCT FROM k.conrelid
              AND EXISTS (SELECT FROM columns AS c
                  WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey)
                     OR c.relation = k.confrelid AND c.number = ANY (k.confkey))),
        -- The tables that are converted, and others whose foreign keys the swap adds again.
        members AS MATERIALIZED (
            SELECT f.member::oid AS relation, f.number, f.member = c.relation AS is_root
            FROM @extschema@.snowflake_internal_convert_columns(tables, are_named) AS c
            CROSS JOIN @extschema@.snowflake_internal_family(c.relation, c.name) AS f),
        ended AS MATERIALIZED (
            SELECT t.relation, t.is_root, @extschema@.snowflake_internal_name(t.relation) AS name
            FROM (
                SELECT DISTINCT m.relation, m.is_root FROM members AS m
                UNION ALL
                SELECT DISTINCT k.conrelid, true
                FROM members AS m
                JOIN pg_class AS f ON f.oid = m.relation AND f.relkind = 'p'
                JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.relation AND m.number = ANY (k.confkey)
                WHERE k.conrelid NOT IN (SELECT o.relation FROM members AS o)) AS t),
        -- Constraints that the swap adds without reading rows: those of columns, and foreign
        -- keys that refer to partitioned tables.
        unvalidated AS (
            SELECT t.relation, t.name, k.conname
            FROM ended AS t JOIN pg_constraint AS k ON k.conrelid = t.relation
            WHERE (k.contype = 'c' AND k.coninhcount = 0 OR k.contype = 'f' AND k.conparentid = 0)
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = t.relation AND c.copy_number = ANY (k.conkey))
              AND CASE WHEN k.convalidated THEN EXISTS (
                    SELECT FROM columns AS c
                    WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
                  AND (k.contype = 'c' OR (SELECT f.relkind FROM pg_class AS f WHERE f.oid = k.confrelid) = 'p')
                ELSE EXISTS (SELECT FROM @extschema@.snowflake_conversions AS p WHERE p.relation = t.relation AND k.conname = ANY (p.to_validate)) END),
        steps (phase, place, text) AS (
            SELECT 1, c.table_name, format('ALTER TABLE %s %s; %s', c.table_name,
                string_agg(format('ADD COLUMN %I bigint', c.copy), ', ' ORDER BY c.number),
                string_agg(concat_ws('; ', format('COMMENT ON COLUMN %s.%I IS %L', c.table_name, c.copy, 'filled by snowflake_convert_steps()'), g.statements), '; ' ORDER BY c.number))
            FROM columns AS c
            -- Whoever may read the column may read the copy, so that SELECT * goes on.
            CROSS JOIN LATERAL (
                SELECT string_agg(DISTINCT format('GRANT SELECT (%I) ON TABLE %s TO %s', c.copy, m.table_name,
                    CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END), '; ')
                FROM columns AS m
                JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attnum = m.number
                CROSS JOIN aclexplode(a.attacl) AS e
                WHERE m.root = c.root AND m.name = c.name AND e.privilege_type = 'SELECT') AS g (statements)
            WHERE c.copy_number IS NULL AND c.relation = c.root GROUP BY c.table_name
            UNION ALL
            SELECT 2, s.table_name, format('CREATE %sFUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS %L',
                CASE WHEN to_regprocedure(s.function || '()') IS NULL THEN '' ELSE 'OR REPLACE ' END, s.function, s.body)
            FROM sources AS s
            WHERE s.relation = s.root AND s.body IS DISTINCT FROM (SELECT p.prosrc FROM pg_proc AS p WHERE p.oid = to_regprocedure(s.function || '()'))
            UNION ALL
            SELECT 3, s.table_name, format('CREATE OR REPLACE TRIGGER %1$I BEFORE INSERT OR UPDATE ON %2$s FOR EACH ROW EXECUTE FUNCTION %3$s();'
                ' ALTER TABLE %2$s ENABLE ALWAYS TRIGGER %1$I; SELECT @extschema@.snowflake_internal_check_copying(%2$L)',
                '~snowflake_convert', s.table_name, s.function)
            FROM sources AS s
            WHERE s.relation = s.root AND NOT @extschema@.snowflake_internal_is_copying(s.relation)
            UNION ALL
            SELECT 4, c.table_name, format('ALTER TABLE %s %s', c.table_name, string_agg(concat_ws(', ',
                CASE WHEN NOT c.has_check THEN format('ADD CONSTRAINT %I CHECK (%I IS NOT DISTINCT FROM %I) NOT VALID', '=' || c.copy, c.copy, c.name) END,
                CASE WHEN NOT c.has_not_null THEN format('ADD CONSTRAINT %I CHECK (%I IS NOT NULL) NOT VALID', '~' || c.copy, c.copy) END), ', ' ORDER BY c.number))
            FROM columns AS c WHERE c.relation = c.root AND NOT (c.has_check AND c.has_not_null) GROUP BY c.table_name
            UNION ALL
            SELECT 5, c.table_name, format('CALL @extschema@.snowflake_convert_backfill(%L)', c.table_name)
            FROM columns AS c LEFT JOIN @extschema@.snowflake_conversions AS p ON p.relation = c.relation
            WHERE c.kind = 'r' AND NOT (c.is_equal AND c.is_not_null) AND (c.copy_number = ANY (p.filled)) IS NOT TRUE
            GROUP BY c.table_name
            UNION ALL
            -- A partition at a time; then the whole table, which reads nothing again.
            SELECT 6, CASE c.kind WHEN 'r' THEN '' ELSE c.root::text END || ' ' || c.table_name, format('ALTER TABLE %s %s', c.table_name, string_agg(concat_ws(', ',
                CASE WHEN NOT c.is_equal THEN format('VALIDATE CONSTRAINT %I', '=' || c.copy) END,
                CASE WHEN NOT c.is_not_null THEN format('VALIDATE CONSTRAINT %I', '~' || c.copy) END), ', ' ORDER BY c.number))
            FROM columns AS c WHERE (c.kind = 'r' OR c.relation = c.root) AND NOT (c.is_equal AND c.is_not_null) GROUP BY c.kind, c.root, c.table_name
            UNION ALL
            -- An upsert can fail on a unique index that it does not name. So those that no
            -- foreign key needs are built last.
            SELECT CASE WHEN NOT i.indisunique THEN 7 WHEN EXISTS (SELECT FROM pg_constraint AS k WHERE k.contype = 'f' AND k.conindid = i.indexrelid)
                THEN 8 ELSE 11 END, s.table_name || x.relname, v.text
            FROM sources AS s
            JOIN pg_index AS i ON i.indrelid = s.relation
            JOIN pg_class AS x ON x.oid = i.indexrelid
            CROSS JOIN @extschema@.snowflake_internal_index_columns(x.oid) AS u (numbers)
            CROSS JOIN @extschema@.snowflake_internal_copy_index(i.indexrelid, s.names) AS d
            LEFT JOIN pg_class AS y ON y.relnamespace = x.relnamespace AND y.relname = d.copy
            LEFT JOIN pg_index AS z ON z.indexrelid = y.oid
            CROSS JOIN LATERAL (VALUES
                -- What an interrupted build leaves behind.
                (1, CASE WHEN NOT z.indisvalid THEN format('DROP INDEX CONCURRENTLY %s', @extschema@.snowflake_internal_name(y.oid)) END),
                (2, CASE WHEN z.indisvalid IS NOT TRUE THEN d.definition END)) AS v (place, text)
            WHERE s.kind = 'r' AND EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.number = ANY (u.numbers))
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.copy_number = ANY (u.numbers))
              AND v.text IS NOT NULL
            UNION ALL
            SELECT 9, k.table_name || k.conname, format('CALL @extschema@.snowflake_convert_run(%L, ARRAY[%L, %L])', format(
                'ALTER TABLE %s ADD CONSTRAINT %I FOREIGN KEY (%s) REFERENCES %s (%s)%s%s%s %s', k.table_name, k.copy, m.here, k.referred, m.there,
                CASE k.confmatchtype WHEN 'f' THEN ' MATCH FULL' ELSE '' END,
                format(' ON UPDATE %s ON DELETE %s%s', u.text, d.text,
                    (SELECT format(' (%s)', string_agg(quote_ident(coalesce(c.copy, a.attname)), ', '))
                     FROM unnest(k.confdelsetcols) AS l (number)
                     JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = l.number
                     LEFT JOIN columns AS c ON c.relation = k.conrelid AND c.number = l.number HAVING count(*) > 0)),
                CASE WHEN k.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED' WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END,
                -- From PostgreSQL 18 on, one may be there that nothing checks.
                CASE WHEN pg_get_constraintdef(k.oid) LIKE '% NOT ENFORCED' THEN 'NOT ENFORCED' ELSE 'NOT VALID' END),
                format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', k.referred), format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', k.table_name))
            FROM constraints AS k
            CROSS JOIN LATERAL (
                SELECT string_agg(quote_ident(coalesce(c.copy, a.attname)), ', ' ORDER BY l.place),
                    string_agg(quote_ident(coalesce(f.copy, b.attname)), ', ' ORDER BY l.place)
                FROM unnest(k.conkey, k.confkey) WITH ORDINALITY AS l (here, there, place)
                JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = l.here
                JOIN pg_attribute AS b ON b.attrelid = k.confrelid AND b.attnum = l.there
                LEFT JOIN columns AS c ON c.relation = k.conrelid AND c.number = l.here
                LEFT JOIN columns AS f ON f.relation = k.confrelid AND f.number = l.there) AS m (here, there)
            JOIN (VALUES ('a', 'NO ACTION'), ('r', 'RESTRICT'), ('c', 'CASCADE'), ('n', 'SET NULL'), ('d', 'SET DEFAULT')) AS u (code, text) ON u.code = k.confupdtype
            JOIN (VALUES ('a', 'NO ACTION'), ('r', 'RESTRICT'), ('c', 'CASCADE'), ('n', 'SET NULL'), ('d', 'SET DEFAULT')) AS d (code, text) ON d.code = k.confdeltype
            WHERE NOT EXISTS (SELECT FROM pg_constraint AS o WHERE o.conrelid = k.conrelid AND o.conname = k.copy)
            UNION ALL
            SELECT 10, k.table_name || k.conname, format('ALTER TABLE %s VALIDATE CONSTRAINT %I', k.table_name, k.copy)
            FROM constraints AS k
            WHERE k.convalidated AND NOT EXISTS (
                SELECT FROM pg_constraint AS o WHERE o.conrelid = k.conrelid AND o.conname = k.copy AND o.convalidated)
            UNION ALL
            SELECT 12, '', format('CALL @extschema@.snowflake_convert_swap(%s)', arguments) WHERE EXISTS (SELECT FROM columns)
            UNION ALL
            -- Keys that are bigint already.
            SELECT 13, t.name, format('CALL @extschema@.snowflake_convert_run(%L)', format('SELECT @extschema@.snowflake_set_default(%s)',
                concat_ws(', ', quote_literal(t.name), quote_literal(c.name), quote_literal(@extschema@.snowflake_internal_name(generator)))))
            FROM @extschema@.snowflake_internal_convert_columns(tables, are_named) AS c
            CROSS JOIN @extschema@.snowflake_internal_name(c.relation) AS t (name)
            WHERE set_default AND c.is_key AND c.base = 'bigint'::regtype AND EXISTS (
                SELECT FROM @extschema@.snowflake_internal_family(c.relation, c.name) AS f
                WHERE f.expression IS DISTINCT FROM @extschema@.snowflake_internal_wanted_default(generator))
            UNION ALL
            -- After the swap, or for a list that is made before it.
            SELECT 14, u.name, format('ALTER TABLE %s VALIDATE CONSTRAINT %I', u.name, u.conname) FROM unvalidated AS u
            UNION ALL
            SELECT 15, t.name, format('CALL @extschema@.snowflake_convert_run(%L)', format(
                'ANALYZE %1$s; DELETE FROM @extschema@.snowflake_conversions'
                ' WHERE relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(%1$L) AS t UNION SELECT %1$L::pg_catalog.regclass)', t.name))
            FROM ended AS t
            WHERE t.is_root AND (EXISTS (SELECT FROM @extschema@.snowflake_conversions AS p WHERE p.relation = t.relation)
                OR EXISTS (SELECT FROM columns AS c WHERE c.relation = t.relation)
                OR EXISTS (SELECT FROM unvalidated AS u WHERE u.relation = t.relation)))
        SELECT CASE WHEN s.phase IN (1, 3, 4) THEN format('CALL @extschema@.snowflake_convert_run(%L)', s.text) ELSE s.text END
        FROM steps AS s ORDER BY s.phase, s.place, CASE WHEN s.text LIKE 'DROP %' THEN 0 WHEN s.text LIKE 'CALL %' THEN 2 ELSE 1 END, s.text
    LOOP
        step := step + 1;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_steps(regclass[], regnamespace, regclass, boolean) IS
    'the statements that convert the keys of tables which stay in use, without those that have been carried out; a client runs each in a transaction of its own, as with \gexec in psql';

CREATE FUNCTION snowflake_convert_undo(
    relations regclass[] DEFAULT NULL, schema regnamespace DEFAULT NULL,
    OUT step bigint, OUT statement text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tables regclass[] := @extschema@.snowflake_internal_convert_tables(relations, schema);
    left_over regclass;
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT c.relation, c.relation = c.root AS is_root, c.copy, c.copy_number
        FROM @extschema@.snowflake_internal_copies(tables, relations IS NOT NULL) AS c WHERE c.copy_number IS NOT NULL
        UNION
        -- A table that a foreign key does not reach any more has to be named.
        SELECT f.member, f.member = t.id, n.copy, f.number
        FROM unnest(tables) AS t (id)
        JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum > 0 AND NOT a.attisdropped
        CROSS JOIN @extschema@.snowflake_internal_copy_name(a.attname) AS n (copy)
        CROSS JOIN @extschema@.snowflake_internal_family(t.id, n.copy) AS f
        WHERE @extschema@.snowflake_internal_copy_number(t.id, a.attname, t.id) IS NOT NULL
        UNION
        -- A detached partition keeps the constraint, and has no trigger.
        SELECT k.conrelid, true, c.attname, c.attnum
        FROM pg_constraint AS k
        JOIN pg_class AS t ON t.oid = k.conrelid AND NOT t.relispartition AND pg_has_role(t.relowner, 'USAGE')
        JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey) AND NOT a.attisdropped
        JOIN pg_attribute AS c ON c.attrelid = k.conrelid AND c.attnum = ANY (k.conkey) AND NOT c.attisdropped
            AND c.attname = @extschema@.snowflake_internal_copy_name(a.attname)
        WHERE k.contype = 'c' AND k.conname = '=' || c.attname AND cardinality(k.conkey) = 2
          AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = k.conrelid AND g.tgname = '~snowflake_convert')),
    columns AS (
        SELECT f.*, @extschema@.snowflake_internal_name(f.relation) AS table_name FROM found AS f),
    steps (phase, place, text) AS (
        SELECT 1, n.name || k.conname, format('CALL @extschema@.snowflake_convert_run(%L, ARRAY[%L, %L])',
            format('ALTER TABLE %s DROP CONSTRAINT %I', n.name, k.conname),
            format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', f.name), format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', n.name))
        FROM pg_constraint AS k
        CROSS JOIN @extschema@.snowflake_internal_name(k.conrelid) AS n (name)
        CROSS JOIN @extschema@.snowflake_internal_name(k.confrelid) AS f (name)
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM columns AS c
            WHERE c.relation = k.conrelid AND c.copy_number = ANY (k.conkey) OR c.relation = k.confrelid AND c.copy_number = ANY (k.confkey))
        UNION ALL
        -- In one transaction: without the trigger, the constraint would refuse rows.
        SELECT 2, c.table_name, format('CALL @extschema@.snowflake_convert_run(%L)',
            format('ALTER TABLE %1$s %2$s; DROP TRIGGER IF EXISTS %3$I ON %1$s;%4$s'
                ' DELETE FROM @extschema@.snowflake_conversions WHERE relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(%1$L) AS t UNION SELECT %1$L::pg_catalog.regclass)',
                c.table_name, string_agg(format('DROP COLUMN %I', c.copy), ', ' ORDER BY c.copy_number), '~snowflake_convert',
                -- A function of the same name that is not ours stays.
                (SELECT format(' DROP FUNCTION %s();', f.name) FROM @extschema@.snowflake_internal_copy_function(c.relation) AS f (name)
                 WHERE @extschema@.snowflake_internal_is_copy_function(to_regprocedure(f.name || '()')::regproc, c.relation))))
        FROM columns AS c WHERE c.is_root GROUP BY c.relation, c.table_name)
    SELECT row_number() OVER (ORDER BY s.phase, s.place), s.text FROM steps AS s ORDER BY s.phase, s.place;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is nothing to undo' USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'No table has a copy of a column. After snowflake_convert_swap(), the conversion cannot be undone.';
    END IF;
    FOR left_over IN
        SELECT DISTINCT g.tgrelid FROM pg_trigger AS g
        WHERE g.tgname = '~snowflake_convert' AND g.tgparentid = 0
          AND g.tgrelid NOT IN (SELECT c.relation FROM @extschema@.snowflake_internal_copies(tables, relations IS NOT NULL) AS c UNION ALL SELECT unnest(tables))
    LOOP
        RAISE NOTICE 'table % has copies too, and no foreign key reaches it from here: name it, if it belongs to this conversion', @extschema@.snowflake_internal_name(left_over);
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_undo(regclass[], regnamespace) IS
    'the statements that remove what snowflake_convert_steps() has added, until the swap; a client runs each in a transaction of its own, as with \gexec in psql';

-- A procedure that ends transactions cannot have a search_path of its own, so it sets one
-- in each of them.
CREATE PROCEDURE snowflake_convert_backfill(relation regclass, batch interval DEFAULT '200 ms')
    LANGUAGE plpgsql
AS $$
DECLARE
    it record;
    name text;
    page bigint;
    pages bigint;
    width bigint;
    updated_rows bigint;
    done bigint := 0;
    done_before bigint := 0;
    wait float8 := 0.1;     -- seconds until the next pass
    rate float8;
    began timestamptz;
    told timestamptz;
    pass_began timestamptz;
    took float8;
    is_left boolean;
    older text[];
    processes text;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    name := @extschema@.snowflake_internal_name(relation);
    SELECT string_agg(format('%I = %I', c.attname, a.attname), ', ') AS assignments,
        string_agg(format('%I IS DISTINCT FROM %I', c.attname, a.attname), ' OR ') AS condition,
        array_agg(c.attnum) AS copies, array_agg(a.attnum) AS numbers INTO it
    FROM pg_attribute AS a
    JOIN pg_attribute AS c ON c.attrelid = a.attrelid
        AND c.attnum = @extschema@.snowflake_internal_copy_number(coalesce(pg_partition_root(relation), relation), a.attname, relation)
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped;
    IF it.assignments IS NULL THEN
        RAISE EXCEPTION 'table % has no copies of columns to fill', name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'snowflake_convert_steps() has the statements that add them.';
    END IF;
    INSERT INTO @extschema@.snowflake_conversions AS p (relation, pages_done, pages, rows_done, started, updated)
        VALUES (relation, 0, 0, 0, clock_timestamp(), clock_timestamp()) ON CONFLICT ON CONSTRAINT snowflake_conversions_pkey
        -- After a whole pass, another one is wanted.
        DO UPDATE SET pages_done = CASE WHEN p.filled IS NULL THEN p.pages_done ELSE 0 END, filled = NULL, to_validate = NULL;
    SELECT p.pages_done INTO page FROM @extschema@.snowflake_conversions AS p WHERE p.relation = snowflake_convert_backfill.relation;
    width := 16;
    told := clock_timestamp();
    LOOP
        pages := pg_relation_size(relation) / current_setting('block_size')::bigint;
        pass_began := clock_timestamp();
        WHILE page < pages LOOP
            PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
            -- Triggers of users do not see the copying; that of the copies fires always.
            PERFORM @extschema@.snowflake_internal_need_read_committed();
            IF has_parameter_privilege('session_replication_role', 'SET') THEN
                PERFORM set_config('session_replication_role', 'replica', true);
            END IF;
            began := clock_timestamp();
            -- Rows that are locked are left for the next pass, or for the trigger: whoever
            -- never waits for a row while it holds others is part of no deadlock.
            BEGIN
                EXECUTE format('WITH found AS (
                        SELECT ctid FROM ONLY %1$s WHERE ctid >= %2$L::tid AND ctid < %3$L::tid AND (%4$s) FOR NO KEY UPDATE SKIP LOCKED)
                    UPDATE ONLY %1$s AS t SET %5$s FROM found
                    WHERE t.ctid = found.ctid AND t.ctid >= %2$L::tid AND t.ctid < %3$L::tid',
                    relation, format('(%s,0)', page), format('(%s,0)', least(page + width, 4294967295)), it.condition, it.assignments);
                GET DIAGNOSTICS updated_rows = ROW_COUNT;
            EXCEPTION WHEN serialization_failure THEN
                -- A row was just moved to another partition. The trigger fills it there.
                updated_rows := NULL;
            END;
            IF updated_rows IS NULL THEN
                COMMIT;
                CONTINUE;
            END IF;
            page := page + width;
            done := done + updated_rows;
            took := greatest(extract(epoch FROM clock_timestamp() - began), 0.001);
            rate := done / greatest(extract(epoch FROM clock_timestamp() - pass_began), 0.001);
            UPDATE @extschema@.snowflake_conversions AS p
                SET pages_done = least(page, size.pages), pages = size.pages, rows_done = p.rows_done + updated_rows,
                    rows_per_second = rate, updated = clock_timestamp()
                FROM (SELECT pages) AS size (pages)
                WHERE p.relation = snowflake_convert_backfill.relation;
            -- As many pages as take the time of a batch, give or take.
            width := greatest(1, least(width * 2, (width * extract(epoch FROM batch) / took)::bigint, 65536));
            IF clock_timestamp() > told + interval '10 seconds' THEN
                told := clock_timestamp();
                RAISE NOTICE '%: page % of %, % rows per second, about % left', name, least(page, pages), pages, round(rate::numeric),
                    make_interval(secs => round(extract(epoch FROM told - pass_began) * (pages - page) / greatest(page, 1)));
            END IF;
            COMMIT;
        END LOOP;
        PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
        EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s WHERE %s)', relation, it.condition) INTO is_left;
        EXIT WHEN NOT is_left;
        -- The whole table is read again, so others get time to give the rows back.
        wait := CASE WHEN done > done_before THEN 0.1 ELSE least(wait * 2, 60) END;
        IF wait >= 1 THEN
            RAISE NOTICE '%: some rows are locked by other transactions; trying again in % s', name, round(wait::numeric);
        END IF;
        done_before := done;
        page := 0;
        UPDATE @extschema@.snowflake_conversions AS p SET pages_done = 0 WHERE p.relation = snowflake_convert_backfill.relation;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(wait);
    END LOOP;
    -- A snapshot from before has the rows without copies, and would find null keys after the
    -- swap. So we wait for such snapshots, as a concurrent build of an index does; but not
    -- every table gets one. Autovacuum, which has no user, reads no keys.
    older := ARRAY(SELECT l.virtualtransaction FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
        JOIN pg_database AS d ON d.oid = a.datid AND d.datname = current_database()
        WHERE l.locktype = 'virtualxid' AND l.granted AND l.mode = 'ExclusiveLock' AND a.usesysid IS NOT NULL AND l.pid <> pg_backend_pid());
    wait := 0.01;
    LOOP
        PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
        SELECT string_agg(DISTINCT l.pid::text, ', ') INTO processes
        FROM pg_locks AS l WHERE l.locktype = 'virtualxid' AND l.granted AND l.virtualtransaction = ANY (older);
        EXIT WHEN processes IS NULL;
        wait := least(wait * 2, 10);
        IF wait >= 1 THEN
            RAISE NOTICE '%: waiting for transactions that could see the table as it was before: processes %', name, processes;
        END IF;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(wait);
    END LOOP;
    UPDATE @extschema@.snowflake_conversions AS p SET filled = it.copies, updated = clock_timestamp()
        WHERE p.relation = snowflake_convert_backfill.relation;
END
$$;
COMMENT ON PROCEDURE snowflake_convert_backfill(regclass, interval) IS
    'for snowflake_convert_steps(): fills the copies of columns in the rows of a table, in transactions of about the given length; goes on where it was interrupted';
-- The last step of convert_online.sql, in one short transaction: the copies take the places
-- of the columns. All statements change catalogs only.
--
-- A partitioned table and its partitions change together. ALTER TABLE on the whole table
-- reaches the columns of all partitions; indexes, keys and foreign keys are those that the
-- partitions have got before, and are attached to those of the whole table.

-- The statements of the swap, all of which change catalogs only. What is made of copies is
-- not made again.
CREATE FUNCTION snowflake_internal_swap_plan(
    relations regclass[], are_named boolean, generator regclass, set_default boolean) RETURNS SETOF text
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    copies jsonb := (SELECT coalesce(jsonb_agg(to_jsonb(c)), '[]') FROM (
        SELECT c.root::oid, c.relation::oid, c.kind, @extschema@.snowflake_internal_name(c.relation) AS table_name, c.name, c.number, c.is_key, c.copy, c.copy_number
        FROM @extschema@.snowflake_internal_copies(relations, are_named) AS c) AS c);
    tables oid[];
    numbers smallint[];
    made_again jsonb;
BEGIN
    SELECT array_agg(c.relation), array_agg(c.number) INTO tables, numbers
    FROM jsonb_to_recordset(copies) AS c (relation oid, number smallint);
    -- The constraints and the trigger of the copying are not made again.
    made_again := (SELECT coalesce(jsonb_agg(to_jsonb(d) ORDER BY d.level, d.described), '[]') FROM (
        SELECT d.class::oid, d.id, d.level, r.* FROM @extschema@.snowflake_internal_convert_dependents(tables, numbers) AS d
        CROSS JOIN @extschema@.snowflake_internal_convert_remake(d.class, d.id) AS r) AS d);

    -- Whoever reads a view locks the view, and then its tables. LOCK would also lock tables
    -- that we leave alone; this locks the view only, and changes nothing.
    RETURN QUERY
        SELECT format('ALTER %s %s OWNER TO %I', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'MATERIALIZED VIEW' END,
            @extschema@.snowflake_internal_name(c.oid), pg_get_userbyid(c.relowner))
        FROM jsonb_to_recordset(made_again) AS d (class oid, id oid, level integer)
        JOIN pg_class AS c ON d.class = 'pg_class'::regclass AND c.oid = d.id AND c.relkind IN ('v', 'm')
        ORDER BY d.level DESC, 1;
    -- In the order in which most transactions come to them: the tables first that others
    -- refer to. So fewer of them wait for us while we wait for them.
    RETURN QUERY
        WITH RECURSIVE locked (id) AS (
            SELECT unnest(tables)
            UNION
            SELECT k.conrelid FROM pg_constraint AS k WHERE k.contype = 'f' AND k.confrelid = ANY (tables)
            UNION
            SELECT k.confrelid FROM unnest(tables, numbers) AS u (id, number)
            JOIN pg_constraint AS k ON k.contype = 'f' AND k.conrelid = u.id AND u.number = ANY (k.conkey)
            UNION
            -- What is made again may belong to other tables.
            SELECT c.oid FROM jsonb_to_recordset(made_again) AS d (class oid, id oid)
            LEFT JOIN pg_rewrite AS r ON d.class = 'pg_rewrite'::regclass AND r.oid = d.id
            LEFT JOIN pg_trigger AS t ON d.class = 'pg_trigger'::regclass AND t.oid = d.id
            LEFT JOIN pg_policy AS p ON d.class = 'pg_policy'::regclass AND p.oid = d.id
            JOIN pg_class AS c ON c.oid IN (r.ev_class, t.tgrelid, p.polrelid) AND c.relkind IN ('r', 'p')
            UNION
            -- Partitions too, each by itself: LOCK of the whole table would wait anew for each.
            SELECT h.inhrelid FROM locked AS l JOIN pg_class AS c ON c.oid = l.id AND c.relkind = 'p' JOIN pg_inherits AS h ON h.inhparent = l.id),
        referred (id, by) AS (
            SELECT k.confrelid, l.id FROM locked AS l JOIN pg_constraint AS k ON k.conrelid = l.id AND k.contype = 'f'
            UNION
            SELECT k.confrelid, r.by FROM referred AS r JOIN pg_constraint AS k ON k.conrelid = r.id AND k.contype = 'f')
        SELECT format('LOCK TABLE %s%s IN ACCESS EXCLUSIVE MODE', CASE t.kind WHEN 'p' THEN 'ONLY ' ELSE '' END, t.name)
        FROM (SELECT @extschema@.snowflake_internal_name(l.id), @extschema@.snowflake_internal_name(w.id), c.relkind,
                  (SELECT count(*) FROM referred AS r WHERE r.by = w.id),
                  (SELECT count(*) FROM pg_partition_ancestors(l.id) AS a)
              FROM locked AS l JOIN pg_class AS c ON c.oid = l.id
              CROSS JOIN LATERAL (SELECT coalesce(pg_partition_root(l.id)::oid, l.id)) AS w (id)) AS t (name, whole, kind, depth, level)
        ORDER BY t.depth, t.whole, t.level, t.name;
    RETURN QUERY
        SELECT d.drop_statement
        FROM ROWS FROM (jsonb_to_recordset(made_again) AS (drop_statement text)) WITH ORDINALITY AS d (drop_statement, place)
        ORDER BY d.place DESC;
    RETURN QUERY
        WITH columns AS (
            SELECT * FROM jsonb_to_recordset(copies)
                AS c (root oid, relation oid, kind "char", table_name text, name name, number smallint, is_key boolean, copy name, copy_number smallint)),
        sources AS (SELECT DISTINCT c.relation, c.root, c.kind, c.table_name FROM columns AS c),
        -- Constraints of the columns, with those foreign keys that refer to them.
        constraints AS (
            SELECT k.*, @extschema@.snowflake_internal_name(k.conrelid) AS table_name,
                @extschema@.snowflake_internal_copy_name(k.conname) AS copy,
                t.relkind AS kind, f.relkind AS referred_kind
            FROM pg_constraint AS k
            JOIN pg_class AS t ON t.oid = k.conrelid
            LEFT JOIN pg_class AS f ON f.oid = k.confrelid
            LEFT JOIN pg_constraint AS p ON p.oid = k.conparentid AND k.contype = 'f'
            WHERE p.conrelid IS DISTINCT FROM k.conrelid AND k.contype IN ('p', 'u', 'f', 'c')
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = k.conrelid AND c.copy_number = ANY (k.conkey))
              AND EXISTS (SELECT FROM columns AS c
                  WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey)
                     OR k.contype = 'f' AND c.relation = k.confrelid AND c.number = ANY (k.confkey)
                     -- INCLUDE
                     OR k.contype IN ('p', 'u') AND c.relation = k.conrelid AND EXISTS (
                        SELECT FROM pg_index AS i WHERE i.indexrelid = k.conindid AND c.number = ANY (i.indkey)))),
        indexes AS (
            SELECT i.*, n.nspname, x.relname, x.reltablespace, @extschema@.snowflake_internal_copy_name(x.relname) AS copy, s.table_name, s.kind,
                @extschema@.snowflake_internal_name(i.indexrelid) AS name,
                EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u')) AS is_constraint
            FROM sources AS s
            JOIN pg_index AS i ON i.indrelid = s.relation
            JOIN pg_class AS x ON x.oid = i.indexrelid
            JOIN pg_namespace AS n ON n.oid = x.relnamespace
            CROSS JOIN @extschema@.snowflake_internal_index_columns(x.oid) AS u (numbers)
            WHERE EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.number = ANY (u.numbers))
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.copy_number = ANY (u.numbers))),
        statistics AS (
            SELECT x.oid, n.nspname, x.stxname, x.stxowner, x.stxstattarget
            FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace
            WHERE EXISTS (SELECT FROM columns AS c JOIN pg_depend AS d ON d.refobjsubid = c.number
                WHERE c.relation = x.stxrelid AND d.classid = 'pg_statistic_ext'::regclass AND d.objid = x.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = x.stxrelid)),
        steps (phase, place, text) AS (
            SELECT 1, k.table_name, format('ALTER TABLE %s DROP CONSTRAINT %I', k.table_name, k.conname)
            FROM constraints AS k WHERE k.contype = 'f' AND k.conparentid = 0
            UNION ALL
            SELECT 2, s.table_name, format('DROP TRIGGER %I ON %s', '~snowflake_convert', s.table_name) FROM sources AS s WHERE s.relation = s.root
            UNION ALL
            SELECT 3, q.name, format('ALTER SEQUENCE %s OWNED BY NONE', q.name)
            FROM columns AS c
            JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relation AND d.refobjsubid = c.number
                AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
            JOIN pg_class AS o ON o.oid = d.objid AND o.relkind = 'S'
            CROSS JOIN @extschema@.snowflake_internal_name(o.oid) AS q (name)
            UNION ALL
            SELECT 4, s.table_name, format('ALTER TABLE %s %s', s.table_name,
                (SELECT string_agg(format('DROP COLUMN %I', c.name), ', ' ORDER BY c.number) FROM columns AS c WHERE c.relation = s.relation))
            FROM sources AS s WHERE s.relation = s.root
            UNION ALL
            SELECT 5, c.table_name, format('ALTER TABLE %s RENAME COLUMN %I TO %I', c.table_name, c.copy, c.name) FROM columns AS c WHERE c.relation = c.root
            UNION ALL
            -- A validated constraint says that there is no null: PostgreSQL does not look again.
            -- From PostgreSQL 18 on, it has a name and perhaps a comment.
            SELECT 6, c.table_name, CASE WHEN n.conname <> concat_ws('_', t.relname, c.name, 'not_null') OR n.connoinherit
                THEN format('ALTER TABLE %s ADD CONSTRAINT %I %s', c.table_name, n.conname, pg_get_constraintdef(n.oid))
                ELSE format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', c.table_name, c.name) END
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attnotnull
            JOIN pg_class AS t ON t.oid = c.relation
            LEFT JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.contype = 'n' AND n.conkey = ARRAY[c.number]
            WHERE c.relation = c.root
            UNION ALL
            SELECT 7, c.table_name, format('ALTER TABLE %s DROP CONSTRAINT %I', c.table_name, '~' || c.copy)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attnotnull
            WHERE c.relation = c.root
            UNION ALL
            SELECT 8, k.table_name, CASE k.kind
                WHEN 'r' THEN format('ALTER TABLE %s ADD CONSTRAINT %I %s USING INDEX %I%s', k.table_name, k.conname,
                    CASE k.contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END, i.copy,
                    CASE WHEN k.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED' WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END)
                -- Those of the partitions are attached below.
                ELSE format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', k.table_name, k.conname, pg_get_constraintdef(k.oid)) END
            FROM constraints AS k JOIN indexes AS i ON i.indexrelid = k.conindid WHERE k.contype IN ('p', 'u')
            UNION ALL
            SELECT 9, i.relname, CASE i.kind WHEN 'r' THEN format('ALTER INDEX %I.%I RENAME TO %I', i.nspname, i.copy, i.relname)
                ELSE pg_get_indexdef(i.indexrelid) END
            FROM indexes AS i WHERE NOT i.is_constraint
            UNION ALL
            SELECT 10, p.name || i.name, format('ALTER INDEX %s ATTACH PARTITION %s', p.name, i.name)
            FROM indexes AS i JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid JOIN indexes AS p ON p.indexrelid = h.inhparent
            UNION ALL
            -- For partitions to come.
            SELECT 10, i.name, format('ALTER INDEX %s SET TABLESPACE %I', i.name, t.spcname)
            FROM indexes AS i JOIN pg_tablespace AS t ON t.oid = i.reltablespace WHERE i.kind = 'p'
            UNION ALL
            -- A partition's foreign key has been validated, so that of the whole table takes
            -- it over. One that refers to a partitioned table is validated after the swap.
            SELECT 11, k.table_name, format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', k.table_name, k.copy, k.conname)
            FROM constraints AS k WHERE k.contype = 'f' AND k.kind = 'r' AND k.referred_kind = 'r'
            UNION ALL
            SELECT 12, k.table_name, format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', k.table_name, k.conname, pg_get_constraintdef(k.oid),
                CASE WHEN k.kind = 'r' AND k.convalidated THEN ' NOT VALID' ELSE '' END)
            FROM constraints AS k WHERE k.contype = 'f' AND k.conparentid = 0 AND 'p' IN (k.kind, k.referred_kind)
            UNION ALL
            SELECT 13, k.table_name, format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', k.table_name, k.conname, pg_get_constraintdef(k.oid),
                CASE WHEN k.convalidated THEN ' NOT VALID' ELSE '' END)
            FROM constraints AS k WHERE k.contype = 'c' AND k.coninhcount = 0
            UNION ALL
            SELECT 14, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT %s', c.table_name, c.name, pg_get_expr(e.adbin, e.adrelid))
            FROM columns AS c JOIN pg_attrdef AS e ON e.adrelid = c.relation AND e.adnum = c.number
            WHERE NOT (set_default AND c.is_key)
            UNION ALL
            SELECT 15, q.name, format('ALTER SEQUENCE %s%s OWNED BY %s.%I', q.name,
                CASE WHEN set_default THEN '' ELSE ' AS bigint' END, c.table_name, c.name)
            FROM columns AS c
            JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relation AND d.refobjsubid = c.number
                AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
            JOIN pg_class AS o ON o.oid = d.objid AND o.relkind = 'S'
            CROSS JOIN @extschema@.snowflake_internal_name(o.oid) AS q (name)
            UNION ALL
            -- Others that defaults draw from.
            SELECT DISTINCT 15, q.name, format('ALTER SEQUENCE %s AS bigint', q.name)
            FROM columns AS c
            JOIN pg_attrdef AS e ON e.adrelid = c.relation AND e.adnum = c.number
            JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass
            JOIN pg_sequence AS o ON o.seqrelid = d.refobjid AND o.seqtypid <> 'bigint'::regtype
            CROSS JOIN @extschema@.snowflake_internal_name(o.seqrelid) AS q (name)
            WHERE NOT set_default AND NOT EXISTS (SELECT FROM pg_depend AS w JOIN columns AS x ON x.relation = w.refobjid AND x.number = w.refobjsubid
                WHERE w.classid = 'pg_class'::regclass AND w.objid = o.seqrelid AND w.refclassid = 'pg_class'::regclass AND w.deptype = 'a')
            UNION ALL
            SELECT 16, s.table_name, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', s.table_name, i.relname)
            FROM sources AS s JOIN indexes AS i ON i.indrelid = s.relation AND i.indisreplident
            UNION ALL
            SELECT 16, s.table_name, format('ALTER TABLE %s CLUSTER ON %I', s.table_name, i.relname)
            FROM sources AS s JOIN indexes AS i ON i.indrelid = s.relation AND i.indisclustered
            UNION ALL
            SELECT 17, x.stxname, pg_get_statisticsobjdef(x.oid) FROM statistics AS x
            UNION ALL
            SELECT 18, x.stxname, format('ALTER STATISTICS %I.%I OWNER TO %I', x.nspname, x.stxname, pg_get_userbyid(x.stxowner))
            FROM statistics AS x WHERE x.stxowner <> quote_ident(current_user)::regrole
            UNION ALL
            SELECT 18, x.stxname, format('ALTER STATISTICS %I.%I SET STATISTICS %s', x.nspname, x.stxname, x.stxstattarget)
            FROM statistics AS x WHERE x.stxstattarget >= 0
            UNION ALL
            SELECT 18, x.stxname, format('COMMENT ON STATISTICS %I.%I IS ', x.nspname, x.stxname) || quote_literal(obj_description(x.oid, 'pg_statistic_ext'))
            FROM statistics AS x
            UNION ALL
            SELECT 19, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET STATISTICS %s', c.table_name, c.name, a.attstattarget)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number WHERE a.attstattarget >= 0
            UNION ALL
            SELECT 19, c.table_name, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET (%s)', c.table_name, c.name, o)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
            CROSS JOIN unnest(a.attoptions) AS o WHERE o LIKE 'n\_distinct%'
            UNION ALL
            -- Those of the copy itself, which the first step has granted, and then those of
            -- the column.
            SELECT DISTINCT 20, c.table_name, format('REVOKE ALL (%I) ON TABLE %s FROM %s', c.name, c.table_name,
                CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END)
            FROM columns AS c JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.copy_number
            CROSS JOIN aclexplode(a.attacl) AS e
            UNION ALL
            SELECT 21, c.table_name, g.statement
            FROM columns AS c JOIN pg_class AS t ON t.oid = c.relation
            JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number AND a.attacl IS NOT NULL
            CROSS JOIN @extschema@.snowflake_internal_grants(a.attacl, t.relowner, 'c', 'TABLE ' || c.table_name, c.name) AS g (statement)
            UNION ALL
            SELECT 22, i.relname, format('ALTER INDEX %I.%I ALTER COLUMN %s SET STATISTICS %s', i.nspname, i.relname, a.attnum, a.attstattarget)
            FROM indexes AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid AND a.attstattarget >= 0
            UNION ALL
            -- The copy in the whole table has a comment of ours.
            SELECT 22, c.table_name, format('COMMENT ON COLUMN %s.%I IS ', c.table_name, c.name)
                || coalesce(quote_literal(col_description(c.relation, c.number)), CASE WHEN c.relation = c.root THEN 'NULL' END)
            FROM columns AS c
            UNION ALL
            SELECT 22, c.table_name, format('SECURITY LABEL FOR %I ON COLUMN %s.%I IS %L', l.provider, c.table_name, c.name, l.label)
            FROM columns AS c JOIN pg_seclabel AS l ON l.classoid = 'pg_class'::regclass AND l.objoid = c.relation AND l.objsubid = c.number
            UNION ALL
            SELECT 22, k.table_name, format('COMMENT ON CONSTRAINT %I ON %s IS ', k.conname, k.table_name) || quote_literal(obj_description(k.oid, 'pg_constraint'))
            FROM constraints AS k
            UNION ALL
            SELECT 22, c.table_name, format('COMMENT ON CONSTRAINT %I ON %s IS ', n.conname, c.table_name) || quote_literal(obj_description(n.oid, 'pg_constraint'))
            FROM columns AS c JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.contype = 'n' AND n.conkey = ARRAY[c.number]
            WHERE c.relation = c.root
            UNION ALL
            SELECT 22, i.relname, format('COMMENT ON INDEX %I.%I IS ', i.nspname, i.relname) || quote_literal(obj_description(i.indexrelid, 'pg_class'))
            FROM indexes AS i)
        SELECT s.text FROM steps AS s WHERE s.text IS NOT NULL ORDER BY s.phase, s.place, s.text;
    RETURN QUERY
        SELECT s.statement
        FROM ROWS FROM (jsonb_to_recordset(made_again) AS (statements text[])) WITH ORDINALITY AS d (statements, place)
        CROSS JOIN unnest(d.statements) WITH ORDINALITY AS s (statement, place)
        ORDER BY d.place, s.place;
    RETURN QUERY
        SELECT format('DROP FUNCTION %s()', @extschema@.snowflake_internal_copy_function(c.relation))
        FROM (SELECT DISTINCT c.root FROM jsonb_to_recordset(copies) AS c (root oid)) AS c (relation) ORDER BY 1;
    -- snowflake_internal_online_obstacles() has made sure of what snowflake_set_default()
    -- would look at, so that nobody waits for that.
    IF set_default THEN
        RETURN QUERY
            SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', c.table_name, c.name,
                CASE WHEN generator <> '@extschema@.snowflake_default'::regclass
                    THEN format('@extschema@.snowflake_nextval(%L::regclass)', @extschema@.snowflake_internal_name(generator))
                    ELSE '@extschema@.snowflake_nextval()' END)
            FROM jsonb_to_recordset(copies) AS c (root oid, relation oid, table_name text, name name, is_key boolean)
            WHERE c.is_key AND c.relation = c.root ORDER BY 1;
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_swap_plan(regclass[], boolean, regclass, boolean) IS
    'internal, for snowflake_convert_swap(): the statements that put the copies in the places of the columns';

-- Each row version of a catalog has a place and a transaction, so two results that are
-- the same mean that nothing has changed: reading them takes a tenth of the time of a plan.
CREATE FUNCTION snowflake_internal_catalog_state() RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    catalog name;
    state bigint;
    states bigint[] := '{}';
BEGIN
    FOREACH catalog IN ARRAY '{pg_attrdef, pg_attribute, pg_class, pg_constraint, pg_default_acl, pg_depend, pg_description, pg_index, pg_inherits,
        pg_namespace, pg_policy, pg_proc, pg_publication, pg_publication_rel, pg_rewrite, pg_seclabel, pg_sequence, pg_statistic_ext, pg_trigger, pg_type}'::name[]
    LOOP
        EXECUTE format('SELECT bit_xor(hash_record_extended(ROW (c.ctid, c.xmin), 0)) FROM %I AS c', catalog) INTO state;
        states := states || state;
    END LOOP;
    RETURN states;
END
$$;
COMMENT ON FUNCTION snowflake_internal_catalog_state() IS
    'internal, for snowflake_convert_swap(): hashes of the catalogs that a plan is made of';

-- Without casts, since an expression may have another one on a bigint; and whether a
-- constraint is valid is left out, since those that are not are validated after the swap.
CREATE FUNCTION snowflake_internal_swap_result(tables oid[], owners oid[], copies smallint[]) RETURNS text[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
    WITH copied (relation, number) AS (SELECT * FROM unnest(owners, copies))
    SELECT array_agg(n.text ORDER BY n.text)
    FROM (
        SELECT concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid, c.reltablespace)
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indrelid = ANY (tables) AND NOT EXISTS (SELECT FROM copied AS o
            WHERE o.relation = i.indrelid AND o.number = ANY (@extschema@.snowflake_internal_index_columns(i.indexrelid)))
        UNION ALL
        SELECT format('%s %I %s', @extschema@.snowflake_internal_name(k.conrelid), k.conname, pg_get_constraintdef(k.oid))
        FROM pg_constraint AS k
        WHERE (k.conrelid = ANY (tables) OR k.confrelid = ANY (tables)) AND k.contype IN ('p', 'u', 'f', 'c', 'x')
          AND (k.contype <> 'f' OR k.conparentid = 0) AND NOT EXISTS (SELECT FROM copied AS o
            WHERE o.relation = k.conrelid AND o.number = ANY (k.conkey) OR o.relation = k.confrelid AND o.number = ANY (k.confkey))) AS d (text)
    CROSS JOIN regexp_replace(d.text, '::(bigint|integer|smallint)|[()]| NOT VALID$', '', 'g') AS n (text)
$$;
COMMENT ON FUNCTION snowflake_internal_swap_result(oid[], oid[], smallint[]) IS
    'internal, for snowflake_convert_swap(): the indexes and constraints of tables, without the copies';

-- Runs under the locks that snowflake_convert_run() has got.
CREATE FUNCTION snowflake_internal_swap(
    relations regclass[], are_named boolean, generator regclass, set_default boolean,
    steps text[], done integer, state bigint[], owners oid[], copies smallint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
AS $$
DECLARE
    locked constant timestamptz := clock_timestamp();
    changed constant oid[] := ARRAY(SELECT DISTINCT unnest(owners));
    before text[];
    after text[];
    valid jsonb;        -- constraints before the swap
BEGIN
    -- The plan is made again only if anybody has changed anything since.
    IF @extschema@.snowflake_internal_catalog_state() IS DISTINCT FROM state
        AND ARRAY(SELECT s FROM @extschema@.snowflake_internal_swap_plan(relations, are_named, generator, set_default) AS s) <> steps
    THEN
        RAISE EXCEPTION 'could not swap columns: tables were changed before they were locked'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run snowflake_convert_steps() again.';
    END IF;
    PERFORM @extschema@.snowflake_internal_check_copying(t.root)
        FROM (SELECT DISTINCT coalesce(pg_partition_root(c.id), c.id) FROM unnest(changed) AS c (id)) AS t (root);
    before := @extschema@.snowflake_internal_swap_result(changed, owners, copies);
    -- Foreign keys that refer to the tables may be those of other tables.
    valid := (SELECT jsonb_agg(jsonb_build_object('relation', k.conrelid, 'name', k.conname)) FROM pg_constraint AS k
        WHERE (k.conrelid = ANY (changed) OR k.confrelid = ANY (changed)) AND k.contype IN ('c', 'f') AND k.conparentid = 0 AND k.convalidated);
    FOR i IN 1 + done .. cardinality(steps) LOOP
        EXECUTE steps[i];
    END LOOP;
    INSERT INTO @extschema@.snowflake_conversions AS p (relation, pages_done, pages, rows_done, started, updated, to_validate)
        SELECT t.id, 0, 0, 0, clock_timestamp(), clock_timestamp(), coalesce(array_agg(k.conname ORDER BY k.conname) FILTER (WHERE k.oid IS NOT NULL), '{}')
        FROM (SELECT c, NULL::name FROM unnest(changed) AS c
              UNION SELECT v.relation, v.name FROM jsonb_to_recordset(valid) AS v (relation oid, name name)) AS t (id, name)
        LEFT JOIN pg_constraint AS k ON k.conrelid = t.id AND k.conname = t.name AND NOT k.convalidated
        WHERE t.name IS NULL OR k.oid IS NOT NULL
        GROUP BY t.id
        ON CONFLICT ON CONSTRAINT snowflake_conversions_pkey DO UPDATE SET to_validate = excluded.to_validate, filled = NULL, updated = clock_timestamp();
    after := @extschema@.snowflake_internal_swap_result(changed, '{}', '{}');
    IF before IS DISTINCT FROM after THEN
        RAISE EXCEPTION 'could not swap columns: an index or a constraint would not be the same'
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('Before: %s; and after: %s',
                (SELECT string_agg(b, '; ') FROM (SELECT unnest(before) EXCEPT SELECT unnest(after)) AS x (b)),
                (SELECT string_agg(a, '; ') FROM (SELECT unnest(after) EXCEPT SELECT unnest(before)) AS x (a))),
            HINT = 'Undo the conversion by snowflake_convert_undo(), and convert the tables at once.';
    END IF;
    RAISE NOTICE 'columns were swapped; all tables were locked for % ms, after % ms in which they were locked one by one',
        round(extract(epoch FROM clock_timestamp() - locked) * 1000), round(extract(epoch FROM locked - now()) * 1000);
END
$$;
COMMENT ON FUNCTION snowflake_internal_swap(regclass[], boolean, regclass, boolean, text[], integer, bigint[], oid[], smallint[]) IS
    'internal, for snowflake_convert_swap(): runs its statements, but for those that were run already to lock the tables, and compares indexes and constraints';

CREATE PROCEDURE snowflake_convert_swap(
    relations regclass[] DEFAULT NULL, schema regnamespace DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true, tries integer DEFAULT 1000)
    LANGUAGE plpgsql
AS $$
DECLARE
    tables regclass[];
    owners oid[];       -- of each copy, the table
    copies smallint[];  -- and the number of the column
    is_analyzed boolean := false;
    are_named constant boolean := relations IS NOT NULL;
    steps text[];
    locks text[];       -- the first of them
    swap text;
    state bigint[];
    left_over text;
    to_analyze text;
BEGIN
    LOOP
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        PERFORM @extschema@.snowflake_internal_need_read_committed();
        state := @extschema@.snowflake_internal_catalog_state();
        tables := @extschema@.snowflake_internal_convert_tables(relations, schema);
        SELECT s.statement INTO left_over
        FROM @extschema@.snowflake_convert_steps(relations, schema, generator, set_default) AS s ORDER BY s.step LIMIT 1;
        IF left_over IS NULL OR left_over NOT LIKE '%.snowflake_convert_swap(%' THEN
            RAISE EXCEPTION 'cannot swap columns yet, or no longer'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = coalesce('The next step is: ' || left_over, 'There is nothing to convert.');
        END IF;
        EXIT WHEN is_analyzed;
        -- The statistics of the copies stay when they are renamed.
        is_analyzed := true;
        FOR to_analyze IN SELECT DISTINCT @extschema@.snowflake_internal_name(c.root) FROM @extschema@.snowflake_internal_copies(tables, are_named) AS c LOOP
            EXECUTE format('ANALYZE %s', to_analyze);
        END LOOP;
        COMMIT;
    END LOOP;
    steps := ARRAY(SELECT s FROM @extschema@.snowflake_internal_swap_plan(tables, are_named, generator, set_default) AS s);
    -- The first statements, up to one that is no lock.
    locks := steps[:(SELECT min(s.place) - 1 FROM unnest(steps) WITH ORDINALITY AS s (s, place)
        WHERE s !~ '^LOCK TABLE ' AND s !~ '^ALTER (MATERIALIZED )?VIEW .* OWNER TO ')];
    SELECT array_agg(c.relation::oid), array_agg(c.copy_number) INTO owners, copies
    FROM @extschema@.snowflake_internal_copies(tables, are_named) AS c;
    swap := format('SELECT @extschema@.snowflake_internal_swap(%L, %L, %L, %L, %L, %L, %L, %L, %L)',
        tables, are_named, generator, set_default, steps, cardinality(locks), state, owners, copies);
    COMMIT;
    CALL @extschema@.snowflake_convert_run(swap, locks, tries);
END
$$;
COMMENT ON PROCEDURE snowflake_convert_swap(regclass[], regnamespace, regclass, boolean, integer) IS
    'for snowflake_convert_steps(): puts the copies in the places of the columns, in one short transaction; waits for locks for half a second at most, again and again until it gets them';
-- snowflake_convert_plan() shows the plans that convert_plan.sql and convert_online.sql
-- make. snowflake_convert() runs the first: at once, in the caller's transaction, all or
-- nothing. snowflake_set_defaults() sets the defaults of all tables of
-- a schema.
--
-- The plan is made twice: before the lock, for its obstacles and for the statement that
-- takes the lock, and under the lock. If they differ, nothing is changed.

CREATE FUNCTION snowflake_internal_check_backfill(
    backfill boolean, backfill_by name[], worker_id bigint, set_default boolean) RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT backfill AND (backfill_by IS NOT NULL OR worker_id IS NOT NULL) THEN
        RAISE EXCEPTION 'backfill_by and worker_id are for backfill => true' USING ERRCODE = 'invalid_parameter_value';
    ELSIF backfill AND worker_id IS NULL THEN
        RAISE EXCEPTION 'worker_id must be given for old rows' USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'With the worker ID of a server, an old row could get an ID that the server has issued.',
            HINT = 'Give one that no server has, or has had, as in worker_id => 1023';
    ELSIF backfill AND NOT set_default THEN
        RAISE EXCEPTION 'old rows cannot be given IDs while the default stays' USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'New rows would sort before them.', HINT = 'Leave out set_default => false.';
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal_check_backfill(boolean, name[], bigint, boolean) IS
    'internal, for snowflake_convert(): refuses arguments about old rows that do not belong together';

CREATE FUNCTION snowflake_convert_plan(
    relations regclass[] DEFAULT NULL, schema regnamespace DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true, online boolean DEFAULT false,
    backfill boolean DEFAULT false, backfill_by name[] DEFAULT NULL, worker_id bigint DEFAULT NULL,
    OUT step bigint, OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tables regclass[] := @extschema@.snowflake_internal_convert_tables(relations, schema);
    are_named boolean := relations IS NOT NULL;
BEGIN
    PERFORM @extschema@.snowflake_internal_check_backfill(backfill, backfill_by, worker_id, set_default);
    IF online AND backfill THEN
        action := 'obstacle';
        note := 'old rows can be given IDs of their time at once only, and not while the tables are in use';
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT online THEN
        RETURN QUERY
            SELECT CASE WHEN p.statement IS NOT NULL THEN count(p.statement) OVER (ORDER BY p.ordinality) END,
                p.action, p.statement, p.locks, p.rewrites, p.note
            FROM @extschema@.snowflake_internal_convert_plan(tables, are_named, generator, set_default, backfill_by, worker_id, false) WITH ORDINALITY AS p
            ORDER BY p.ordinality;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, 'obstacle', NULL::text, NULL::text, NULL::bigint, o.note
        FROM @extschema@.snowflake_internal_online_obstacles(tables, are_named, generator, set_default) AS o (note);
    IF NOT FOUND THEN
        FOR step, statement IN
            SELECT s.step, s.statement
            FROM @extschema@.snowflake_convert_steps(relations, schema, generator, set_default) AS s ORDER BY s.step
        LOOP
            action := 'step';
            locks := CASE
                WHEN statement LIKE 'CALL %.snowflake\_convert\_backfill(%' THEN 'ROW EXCLUSIVE'
                WHEN statement LIKE 'CALL %TRIGGER "~snowflake\_convert"%' OR statement LIKE 'CALL %FOREIGN KEY%' THEN 'SHARE ROW EXCLUSIVE'
                WHEN statement LIKE 'CALL %(''ANALYZE %' THEN 'SHARE UPDATE EXCLUSIVE'
                WHEN statement LIKE 'CALL %' THEN 'ACCESS EXCLUSIVE'
                WHEN statement ~ '^(CREATE UNIQUE|CREATE INDEX|DROP INDEX|ALTER TABLE)' THEN 'SHARE UPDATE EXCLUSIVE' END;
            RETURN NEXT;
            IF statement LIKE 'CALL %.snowflake\_convert\_swap(%' THEN
                -- What this call does, in one transaction.
                action := 'swap';
                step := NULL;
                FOR statement IN
                    SELECT s FROM @extschema@.snowflake_internal_swap_plan(tables, are_named, generator, set_default) AS s
                LOOP
                    rewrites := CASE WHEN statement LIKE 'REFRESH MATERIALIZED VIEW %' THEN
                        pg_total_relation_size(substr(statement, length('REFRESH MATERIALIZED VIEW ') + 1)::regclass) END;
                    note := CASE WHEN rewrites IS NOT NULL THEN 'the tables are locked while this runs: drop the view before, if it takes too long, and make it again after' END;
                    RETURN NEXT;
                END LOOP;
                rewrites := NULL;
                note := NULL;
            END IF;
        END LOOP;
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, p.action, NULL::text, NULL::text, NULL::bigint, p.note
        FROM @extschema@.snowflake_internal_convert_plan(tables, are_named, generator, set_default, NULL, NULL, false) AS p WHERE p.action = 'note';
    -- What the copies are to those who use the tables meanwhile.
    RETURN QUERY
        WITH changed AS (
            SELECT DISTINCT c.relation AS id, @extschema@.snowflake_internal_name(c.relation) AS name, c.relation = c.root AS is_root
            FROM @extschema@.snowflake_internal_copies(tables, are_named) AS c),
        notes (place, note) AS (
            SELECT 1, format('columns move to the end of table %s: after the swap, INSERT and COPY without a list of columns'
                ' write into the wrong columns, without an error if the types fit: name the columns', c.name)
            FROM changed AS c WHERE c.is_root
            UNION ALL
            SELECT 2, 'prepared statements that return whole rows or keys fail once in each session after the first step and after the swap:'
                ' cached plan must not change result type'
            WHERE EXISTS (SELECT FROM changed)
            UNION ALL
            SELECT 3, format('function %s returns rows of table %s: if its text lists the columns, it fails from the first step on', p.oid::regprocedure, c.name)
            FROM changed AS c
            JOIN pg_class AS t ON t.oid = c.id
            JOIN pg_type AS y ON y.oid = t.reltype
            JOIN pg_proc AS p ON p.prorettype IN (y.oid, y.typarray)
            UNION ALL
            SELECT 4, format('trigger %I of table %s uses OLD.* or NEW.*, which have further columns from the first step on, and another order after the swap', g.tgname, c.name)
            FROM changed AS c
            JOIN pg_trigger AS g ON g.tgrelid = c.id AND NOT g.tgisinternal AND g.tgparentid = 0
            JOIN pg_proc AS p ON p.oid = g.tgfoid AND p.prosrc ~* '\m(old|new)\.\*')
        SELECT NULL::bigint, 'note', NULL::text, NULL::text, NULL::bigint, n.note FROM notes AS n ORDER BY n.place, n.note;
END
$$;
COMMENT ON FUNCTION snowflake_convert_plan(regclass[], regnamespace, regclass, boolean, boolean, boolean, name[], bigint) IS
    'the statements that snowflake_convert(), or with online snowflake_convert_steps(), would run for tables, or for all tables of a schema, with their locks and the bytes that they rewrite; obstacles, and notes on what stays as it is; changes nothing';

-- The texts of functions that are made again are not checked, here and in the swap: one may
-- name a view without its schema, or a view that is made later.
CREATE PROCEDURE snowflake_convert(
    relations regclass[] DEFAULT NULL, schema regnamespace DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true,
    backfill boolean DEFAULT false, backfill_by name[] DEFAULT NULL, worker_id bigint DEFAULT NULL)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
AS $$
DECLARE
    tables regclass[] := @extschema@.snowflake_internal_convert_tables(relations, schema);
    are_named boolean := relations IS NOT NULL;
    steps text[];
    again text[];
    notes text[];
    obstacles text[];
BEGIN
    PERFORM @extschema@.snowflake_internal_check_backfill(backfill, backfill_by, worker_id, set_default);
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'cannot convert keys in a transaction of isolation level %', current_setting('transaction_isolation')
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'The plan is made again when the tables are locked, and needs to see them as they are then.',
            HINT = 'Use READ COMMITTED.';
    END IF;
    -- Once before the lock, and once under it.
    SELECT array_agg(p.statement) FILTER (WHERE p.statement IS NOT NULL),
        array_agg(p.note) FILTER (WHERE p.action = 'note'), array_agg(p.note) FILTER (WHERE p.action = 'obstacle')
    INTO steps, notes, obstacles
    FROM @extschema@.snowflake_internal_convert_plan(tables, are_named, generator, set_default, backfill_by, worker_id, false) AS p;
    IF obstacles IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert keys: %', obstacles[1]
            USING ERRCODE = CASE WHEN obstacles[1] LIKE 'must be owner of %' THEN 'insufficient_privilege'
                ELSE 'object_not_in_prerequisite_state' END,
            DETAIL = coalesce('Further obstacles: ' || nullif(array_to_string(obstacles[2:], '; '), '') || '.', 'There is no other obstacle.'),
            HINT = 'Nothing has been changed. snowflake_convert_plan() lists all obstacles.';
    ELSIF steps IS NULL THEN
        RAISE NOTICE 'there is nothing to convert';
        RETURN;
    END IF;
    EXECUTE steps[1];
    SELECT array_agg(p.statement) FILTER (WHERE p.statement IS NOT NULL) INTO again
    FROM @extschema@.snowflake_internal_convert_plan(tables, are_named, generator, set_default, backfill_by, worker_id, false) AS p
    HAVING count(*) FILTER (WHERE p.action = 'obstacle') = 0;
    IF again IS DISTINCT FROM steps THEN
        RAISE EXCEPTION 'could not convert keys: tables were changed before they were locked'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again.';
    END IF;

    FOR i IN 2 .. cardinality(steps) LOOP
        RAISE DEBUG 'step % of %: %', i, cardinality(steps), steps[i];
        EXECUTE steps[i];
    END LOOP;
    FOR i IN 1 .. coalesce(cardinality(notes), 0) LOOP
        RAISE NOTICE '%', notes[i];
    END LOOP;
END
$$;
COMMENT ON PROCEDURE snowflake_convert(regclass[], regnamespace, regclass, boolean, boolean, name[], bigint) IS
    'changes smallint and integer keys to bigint, with all foreign keys that reach them, and makes a generator their default: all or nothing, with the statements of snowflake_convert_plan()';

CREATE FUNCTION snowflake_set_defaults(
    schema regnamespace, generator regclass DEFAULT NULL,
    OUT relation regclass, OUT is_set boolean, OUT result text)
    RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    key record;
BEGIN
    IF schema IS NULL THEN
        RAISE EXCEPTION 'schema must not be null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    -- A generator that is none is an error once, and not one for each table.
    PERFORM @extschema@.snowflake_internal_ids_to_come(generator, NULL);
    FOREACH relation IN ARRAY @extschema@.snowflake_internal_tables_of(schema) LOOP
        is_set := false;
        result := NULL;
        FOR key IN
            SELECT k.* FROM @extschema@.snowflake_internal_keys(relation) AS k WHERE k.is_key ORDER BY k.number
        LOOP
            IF key.refers_to IS NOT NULL THEN
                result := concat_ws('; ', result, format('column "%s" refers to table %s, and has the keys of that table',
                    key.name, @extschema@.snowflake_internal_name(key.refers_to)));
                CONTINUE;
            END IF;
            BEGIN
                result := concat_ws('; ', result, @extschema@.snowflake_set_default(relation, key.name, generator));
                is_set := true;
            EXCEPTION WHEN OTHERS THEN
                result := concat_ws('; ', result, SQLERRM);
            END;
        END LOOP;
        result := coalesce(result, 'no column is a key that gets numbers from this database');
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_set_defaults(regnamespace, regclass) IS
    'makes a generator the default of the keys of all tables of a schema; returns a row for each table: whether a default is set now, and what was done, or why nothing was';
