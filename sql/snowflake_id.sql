-- CREATE EXTENSION runs this script, then the others of this folder in the order that the
-- file `order` has: `make install` joins them to one. The C functions are in
-- src/sql; only these scripts give them what a user sees (names of arguments, volatility,
-- COMMENT). What changes after the first release goes into the script that leads to the next
-- version as well: CONTRIBUTING.md says how.

-- Tables, and functions that only this extension calls, are in a schema of its own. Only a
-- superuser may rename it, or put an object into it, wherever the extension itself is. The
-- command fails if a schema of this name is there: it would be somebody else's.
CREATE SCHEMA _snowflake;
COMMENT ON SCHEMA _snowflake IS 'internal: tables and functions of extension snowflake_id';

-- Names in PL/pgSQL, and in SQL that is a text, are looked up while it runs, and the owner of the
-- database may drop the extension meanwhile and make functions of the same names. So users call no
-- such function. What they call has its names bound when it is made (BEGIN ATOMIC), and calls two
-- functions: this one, which keeps the extension until the transaction ends, and then the function of
-- the same name in this schema, which does the work. That one is neither IMMUTABLE nor in SQL: the
-- planner would run it, or put its body in its place, before the first one has run. A procedure that
-- commits is in C, which does the same.
CREATE FUNCTION _snowflake.hold() RETURNS void
    LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'snowflake_internal_hold';
COMMENT ON FUNCTION _snowflake.hold() IS
    'internal: keeps the extension from being dropped until the transaction ends, or fails if its schema is another one';

-- The default generator is a sequence whose value is the mark: no ID of an instant at
-- or after the mark, in Unix milliseconds, has been issued. With these bounds plain
-- nextval() cannot move the mark.
CREATE SEQUENCE snowflake_default AS bigint
    INCREMENT BY 9223372036854775807 MINVALUE 1 MAXVALUE 9223372036854775807
    START WITH 9223372036854775807 NO CYCLE;
-- It has no mark yet, and nextval() fails from the start. A function that is here for this one call.
CREATE FUNCTION _snowflake.begin(generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_internal_begin';
SELECT _snowflake.begin('snowflake_default');
DROP FUNCTION _snowflake.begin(regclass);
COMMENT ON SEQUENCE snowflake_default IS
    'default snowflake generator; its value is the mark: no ID from this instant on (Unix milliseconds) has been issued';
SELECT pg_catalog.pg_extension_config_dump('snowflake_default', '');

-- Functions that issue IDs are VOLATILE, since each call gives another ID, and PARALLEL
-- UNSAFE, since a reservation writes, and a parallel worker may not, as with nextval().

CREATE FUNCTION snowflake_nextval() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_nextval';
COMMENT ON FUNCTION snowflake_nextval() IS 'next ID of the default generator';

CREATE FUNCTION snowflake_nextval(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_nextval';
COMMENT ON FUNCTION snowflake_nextval(regclass) IS 'next ID of a generator';

CREATE FUNCTION snowflake_nextval_batch(count integer) RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 1000 AS 'MODULE_PATHNAME', 'snowflake_nextval_batch';
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS 'the next 1 to 100,000 IDs of the default generator, ascending';

CREATE FUNCTION snowflake_nextval_batch(count integer, generator regclass) RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 1000 AS 'MODULE_PATHNAME', 'snowflake_nextval_batch';
COMMENT ON FUNCTION snowflake_nextval_batch(integer, regclass) IS 'the next 1 to 100,000 IDs of a generator, ascending';

CREATE FUNCTION snowflake_nextval_block(count integer) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_nextval_block';
COMMENT ON FUNCTION snowflake_nextval_block(integer) IS 'takes count consecutive IDs of the default generator, and returns the first';

CREATE FUNCTION snowflake_nextval_block(count integer, generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_nextval_block';
COMMENT ON FUNCTION snowflake_nextval_block(integer, regclass) IS 'takes count consecutive IDs of a generator, and returns the first';

-- A server that is given an ID of another server lets its own IDs sort after that one.

CREATE FUNCTION snowflake_observe(id bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_observe';
COMMENT ON FUNCTION snowflake_observe(bigint) IS
    'makes all further IDs of the default generator on this server greater than an ID that came from another server';

CREATE FUNCTION snowflake_observe(id bigint, generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_observe';
COMMENT ON FUNCTION snowflake_observe(bigint, regclass) IS
    'makes all further IDs of a generator on this server greater than an ID that came from another server';

-- These functions are for generators whose label leaves fields to the caller. The
-- caller chooses the values of these fields; IDs are unique whatever the values are.

CREATE FUNCTION snowflake_nextval(generator regclass, fields jsonb) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_nextval_with';
COMMENT ON FUNCTION snowflake_nextval(regclass, jsonb) IS
    'next ID of a generator, with the fields that its label leaves to the caller, such as {"tenant": 42}';

CREATE FUNCTION snowflake_currval() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_currval';
COMMENT ON FUNCTION snowflake_currval() IS 'last ID that this session got from the default generator';

CREATE FUNCTION snowflake_currval(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_currval';
COMMENT ON FUNCTION snowflake_currval(regclass) IS 'last ID that this session got from a generator';

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
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_decode';
COMMENT ON FUNCTION snowflake_decode(bigint) IS 'the parts of an ID of the default generator, in one row';

CREATE FUNCTION snowflake_decode(
    id bigint, generator regclass,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_decode';
COMMENT ON FUNCTION snowflake_decode(bigint, regclass) IS 'the parts of an ID of a generator, in one row';

CREATE FUNCTION snowflake_decode_as(
    id bigint, layout text,
    OUT created_at timestamptz, OUT worker_id bigint, OUT sequence bigint,
    OUT clock integer, OUT fields jsonb)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_decode_as';
COMMENT ON FUNCTION snowflake_decode_as(bigint, text) IS
    'the parts of an ID, by the text of a label such as ''preset=discord'', in one row';

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_timestamp';
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS 'when an ID of the default generator was made, to the millisecond';

CREATE FUNCTION snowflake_timestamp(id bigint, generator regclass) RETURNS timestamptz
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_timestamp';
COMMENT ON FUNCTION snowflake_timestamp(bigint, regclass) IS 'when an ID of a generator was made, to the tick';

CREATE FUNCTION snowflake_encode(created_at timestamptz, worker_id bigint, sequence bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_encode';
COMMENT ON FUNCTION snowflake_encode(timestamptz, bigint, bigint) IS
    'the ID of the default generator with these parts; the generator may issue the same ID later';

CREATE FUNCTION snowflake_encode(created_at timestamptz, worker_id bigint, sequence bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_encode';
COMMENT ON FUNCTION snowflake_encode(timestamptz, bigint, bigint, regclass) IS
    'the ID of a generator with these parts; the generator may issue the same ID later';

CREATE FUNCTION snowflake_encode_as(created_at timestamptz, worker_id bigint, sequence bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_encode_as';
COMMENT ON FUNCTION snowflake_encode_as(timestamptz, bigint, bigint, text) IS 'the ID with these parts, by the text of a label';

CREATE FUNCTION snowflake_encode_as(created_at timestamptz, fields jsonb, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_encode_as';
COMMENT ON FUNCTION snowflake_encode_as(timestamptz, jsonb, text) IS
    'the ID with these fields by name, as snowflake_decode_as() returns them; fixed fields may be omitted';

CREATE FUNCTION snowflake_min_id(at timestamptz) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_min_id';
COMMENT ON FUNCTION snowflake_min_id(timestamptz) IS
    'least ID of the millisecond that holds an instant: id >= snowflake_min_id(a) AND id < snowflake_min_id(b)';

CREATE FUNCTION snowflake_min_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_min_id';
COMMENT ON FUNCTION snowflake_min_id(timestamptz, regclass) IS 'least ID of a generator in the tick that holds an instant';

CREATE FUNCTION snowflake_min_id_as(at timestamptz, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_min_id_as';
COMMENT ON FUNCTION snowflake_min_id_as(timestamptz, text) IS 'least ID in the tick that holds an instant, by the text of a label';

CREATE FUNCTION snowflake_max_id(at timestamptz) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_max_id';
COMMENT ON FUNCTION snowflake_max_id(timestamptz) IS 'greatest ID of the millisecond that holds an instant';

CREATE FUNCTION snowflake_max_id(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_max_id';
COMMENT ON FUNCTION snowflake_max_id(timestamptz, regclass) IS 'greatest ID of a generator in the tick that holds an instant';

CREATE FUNCTION snowflake_max_id_as(at timestamptz, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_max_id_as';
COMMENT ON FUNCTION snowflake_max_id_as(timestamptz, text) IS 'greatest ID in the tick that holds an instant, by the text of a label';

-- IDs as text, and masked. The results depend on the arguments only, and no version may
-- change them, since they are stored elsewhere: so all are IMMUTABLE, and a key is an
-- argument, not a setting.

CREATE FUNCTION snowflake_to_text(id bigint, alphabet text DEFAULT 'base32') RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_to_text';
COMMENT ON FUNCTION snowflake_to_text(bigint, text) IS
    'an ID as text that sorts as the IDs do with COLLATE "C": 13 characters of Crockford''s base32, or 11 of base62';

CREATE FUNCTION snowflake_from_text(id_text text, alphabet text DEFAULT 'base32') RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_from_text';
COMMENT ON FUNCTION snowflake_from_text(text, text) IS 'the ID of a text of snowflake_to_text()';

CREATE FUNCTION snowflake_mask(id bigint, key bytea) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_mask';
COMMENT ON FUNCTION snowflake_mask(bigint, bytea) IS
    'another number for an ID, which tells neither time nor server nor count without the key of 16 bytes';

CREATE FUNCTION snowflake_unmask(masked bigint, key bytea) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_unmask';
COMMENT ON FUNCTION snowflake_unmask(bigint, bytea) IS 'the ID of a number of snowflake_mask() with the same key';

CREATE FUNCTION snowflake_mask(id bigint, key bytea, version integer) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_mask_text';
COMMENT ON FUNCTION snowflake_mask(bigint, bytea, integer) IS
    'a masked ID as text of 14 characters: the version of the key, 1 to 31, as a digit of base32, and the masked number in base32';

CREATE FUNCTION snowflake_unmask(masked text, key bytea, version integer) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_unmask_text';
COMMENT ON FUNCTION snowflake_unmask(text, bytea, integer) IS
    'the ID of a text of snowflake_mask(); null if the text says that its key has another version';

-- Presets are constant. snowflake_explain() is STABLE, since it prints how long ago an
-- ID was made.

CREATE FUNCTION _snowflake.presets(
    OUT preset text, OUT layout text, OUT epoch text, OUT tick text,
    OUT on_rollback text, OUT max_rollback text, OUT max_wait text, OUT max_borrow text, OUT max_observe text,
    OUT on_exhausted text, OUT sequence_start text,
    OUT ids_per_second bigint, OUT workers bigint, OUT ends_at timestamptz,
    OUT can_be_negative boolean, OUT negative_from timestamptz,
    OUT label text, OUT origin text)
    RETURNS SETOF record LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE ROWS 27 AS 'MODULE_PATHNAME', 'snowflake_presets';
CREATE VIEW snowflake_presets AS SELECT * FROM _snowflake.presets();
COMMENT ON VIEW snowflake_presets IS 'the schemes that a generator can have as its preset';
COMMENT ON COLUMN snowflake_presets.preset IS 'name of the preset';
COMMENT ON COLUMN snowflake_presets.layout IS 'fields from high to low, with their bits, and the values of fixed fields';
COMMENT ON COLUMN snowflake_presets.epoch IS 'instant from which the time counts; null if the generator must give the epoch';
COMMENT ON COLUMN snowflake_presets.tick IS 'unit of the time';
COMMENT ON COLUMN snowflake_presets.on_rollback IS 'what a generator does when the clock is set back';
COMMENT ON COLUMN snowflake_presets.max_rollback IS 'a clock that is set back further is refused';
COMMENT ON COLUMN snowflake_presets.max_wait IS 'longest wait for the clock after it was set back; null if on_rollback never waits';
COMMENT ON COLUMN snowflake_presets.max_borrow IS 'how far ahead of the clock IDs may be issued when ticks are exhausted';
COMMENT ON COLUMN snowflake_presets.max_observe IS 'how far ahead of the clock snowflake_observe() may set the generator';
COMMENT ON COLUMN snowflake_presets.on_exhausted IS 'what a generator does when a tick has no IDs left';
COMMENT ON COLUMN snowflake_presets.sequence_start IS 'where the sequence numbers of a tick start';
COMMENT ON COLUMN snowflake_presets.ids_per_second IS 'greatest number of IDs per second and worker ID';
COMMENT ON COLUMN snowflake_presets.workers IS 'number of worker IDs, if no field is given a value';
COMMENT ON COLUMN snowflake_presets.ends_at IS
    'when the time of the layout ends; infinity if that is later than any timestamp; null if the generator must give the epoch';
COMMENT ON COLUMN snowflake_presets.can_be_negative IS 'whether IDs can be negative';
COMMENT ON COLUMN snowflake_presets.negative_from IS
    'instant from which IDs are negative; null if IDs are never negative, or can be negative at any time';
COMMENT ON COLUMN snowflake_presets.label IS 'label text that the name stands for';
COMMENT ON COLUMN snowflake_presets.origin IS 'where the scheme comes from';

CREATE FUNCTION snowflake_explain(id bigint) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_explain';
COMMENT ON FUNCTION snowflake_explain(bigint) IS
    'an ID of the default generator drawn for a person: its bits, fields, instant, and what is left of the layout';

CREATE FUNCTION snowflake_explain(id bigint, generator regclass) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_explain';
COMMENT ON FUNCTION snowflake_explain(bigint, regclass) IS
    'an ID of a generator drawn for a person: its bits, fields, instant, and what is left of the layout';

-- Functions for administration are VOLATILE and PARALLEL UNSAFE, since they write or
-- change the server's state. Here and below, only a superuser may grant EXECUTE on
-- functions that concern the whole database, as with pg_stat_reset().

-- The named arguments are the keys of a label. NULL leaves one as it is, so these two functions
-- are not STRICT; but without a name or a generator they do nothing. src/sql/create.rs has the same list.

CREATE FUNCTION snowflake_create_generator(
    name text, label text DEFAULT '',
    preset text DEFAULT NULL, layout text DEFAULT NULL, epoch text DEFAULT NULL, tick text DEFAULT NULL,
    on_rollback text DEFAULT NULL, max_rollback text DEFAULT NULL, max_wait text DEFAULT NULL,
    max_borrow text DEFAULT NULL, max_observe text DEFAULT NULL,
    on_exhausted text DEFAULT NULL, sequence_start text DEFAULT NULL, fields jsonb DEFAULT NULL)
    RETURNS regclass LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_create_generator';
COMMENT ON FUNCTION snowflake_create_generator IS
    'makes a generator: a sequence of this name that holds the mark, by default with the preset '
    'default; label is for the copy of another generator''s label; returns the sequence';

CREATE FUNCTION snowflake_alter_generator(
    generator regclass,
    preset text DEFAULT NULL, layout text DEFAULT NULL, epoch text DEFAULT NULL, tick text DEFAULT NULL,
    on_rollback text DEFAULT NULL, max_rollback text DEFAULT NULL, max_wait text DEFAULT NULL,
    max_borrow text DEFAULT NULL, max_observe text DEFAULT NULL,
    on_exhausted text DEFAULT NULL, sequence_start text DEFAULT NULL, fields jsonb DEFAULT NULL)
    RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_alter_generator';
COMMENT ON FUNCTION snowflake_alter_generator IS
    'changes what a generator was told: an argument that is not given leaves it, and an empty text removes it';

CREATE FUNCTION snowflake_advance(generator regclass, id bigint) RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_advance_past_id';
COMMENT ON FUNCTION snowflake_advance(regclass, bigint) IS
    'makes all further IDs of a generator greater than an ID; returns the instant from which IDs start';

CREATE FUNCTION snowflake_advance(generator regclass, start timestamptz) RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_advance_to';
COMMENT ON FUNCTION snowflake_advance(regclass, timestamptz) IS
    'makes all further IDs of a generator start at an instant or later; returns the instant from which IDs start';

CREATE FUNCTION snowflake_accept_clock() RETURNS interval
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_accept_clock';
COMMENT ON FUNCTION snowflake_accept_clock() IS
    'accepts the wall clock of this server as right, after generators of this '
    'database have refused the clock; returns how far the clock had jumped';

-- Functions for monitoring are STABLE, like PostgreSQL's own functions for statistics,
-- and PARALLEL RESTRICTED, since only the leader has the counts that its session has
-- not added up yet.

CREATE FUNCTION _snowflake.generators(
    OUT generator regclass, OUT worker_id integer,
    OUT last_id_at timestamptz, OUT reserved_until timestamptz,
    OUT ahead_by interval, OUT ahead_because text, OUT refused_since timestamptz, OUT gap_applied_at timestamptz, OUT mark_put_back_at timestamptz,
    OUT ids_per_second bigint, OUT ends_at timestamptz, OUT problem text,
    OUT preset text, OUT layout text, OUT epoch text, OUT tick text,
    OUT on_rollback text, OUT max_rollback text, OUT max_wait text, OUT max_borrow text, OUT max_observe text,
    OUT on_exhausted text, OUT sequence_start text,
    OUT label text)
    RETURNS SETOF record LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10 AS 'MODULE_PATHNAME', 'snowflake_generators';
CREATE VIEW snowflake_generators AS SELECT * FROM _snowflake.generators();
COMMENT ON VIEW snowflake_generators IS
    'the generators of this database, with the instants of their IDs and marks, and what their layouts hold';
COMMENT ON COLUMN snowflake_generators.generator IS 'the generator: a sequence whose value is its mark';
COMMENT ON COLUMN snowflake_generators.worker_id IS 'worker ID of this server; null if it is not set, or if the layout has no worker ID';
COMMENT ON COLUMN snowflake_generators.last_id_at IS
    'instant of the latest ID; known while the server runs and the generator keeps its place in shared memory';
COMMENT ON COLUMN snowflake_generators.reserved_until IS 'the mark: all IDs lie before this instant';
COMMENT ON COLUMN snowflake_generators.ahead_by IS 'how far the next ID would be ahead of the wall clock';
COMMENT ON COLUMN snowflake_generators.ahead_because IS
    'why, if ahead_by is more than a second: what the lease began with, a clock that was set back, or a mark that was ahead';
COMMENT ON COLUMN snowflake_generators.refused_since IS
    'since when, because of the clock, IDs are refused, or the mark cannot be raised and IDs will soon be refused; null if all is well';
COMMENT ON COLUMN snowflake_generators.gap_applied_at IS
    'when the generator last skipped a gap behind a mark that IDs may have passed; known while the server runs and the generator keeps its place in shared memory';
COMMENT ON COLUMN snowflake_generators.mark_put_back_at IS
    'when the generator last found that somebody else had set or restarted its sequence, and wrote its mark back; known likewise';
COMMENT ON COLUMN snowflake_generators.ids_per_second IS 'greatest number of IDs per second that the layout holds';
COMMENT ON COLUMN snowflake_generators.ends_at IS 'when the time of the layout ends; infinity if that is later than any timestamp';
COMMENT ON COLUMN snowflake_generators.problem IS
    'why this server can issue no IDs of the generator, or that another transaction has '
    'locked the generator, and what helps; null if there is no problem; docs/operations.md#problem says more';
-- What snowflake_alter_generator() takes under these names: the values in force.
COMMENT ON COLUMN snowflake_generators.preset IS 'scheme that gives what the generator was not told; null without one';
COMMENT ON COLUMN snowflake_generators.layout IS 'fields of an ID from high to low, with their bits, and the values of fixed fields';
COMMENT ON COLUMN snowflake_generators.epoch IS 'instant from which the time of IDs counts';
COMMENT ON COLUMN snowflake_generators.tick IS 'unit of the time of IDs';
COMMENT ON COLUMN snowflake_generators.on_rollback IS 'what the generator does when the clock is set back';
COMMENT ON COLUMN snowflake_generators.max_rollback IS 'a clock that is set back further is refused';
COMMENT ON COLUMN snowflake_generators.max_wait IS 'longest wait for the clock after it was set back; null if on_rollback never waits';
COMMENT ON COLUMN snowflake_generators.max_borrow IS 'how far ahead of the clock IDs may be issued when ticks are exhausted';
COMMENT ON COLUMN snowflake_generators.max_observe IS 'how far ahead of the clock snowflake_observe() may set the generator';
COMMENT ON COLUMN snowflake_generators.on_exhausted IS 'what the generator does when a tick has no IDs left';
COMMENT ON COLUMN snowflake_generators.sequence_start IS 'where the sequence numbers of a tick start';
COMMENT ON COLUMN snowflake_generators.label IS 'the label that stores this, as it was set';

CREATE FUNCTION _snowflake.statistics(
    OUT generator regclass, OUT issued bigint, OUT batches bigint,
    OUT waits bigint, OUT wait_time double precision, OUT borrowed bigint,
    OUT refusals bigint, OUT clock_rollbacks bigint, OUT largest_rollback interval,
    OUT reservations bigint, OUT reservation_time double precision,
    OUT stats_reset timestamptz, OUT horizon_lag double precision)
    RETURNS SETOF record LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10 AS 'MODULE_PATHNAME', 'pg_stat_snowflake';
CREATE VIEW pg_stat_snowflake AS SELECT * FROM _snowflake.statistics();
COMMENT ON VIEW pg_stat_snowflake IS 'numbers of the generators of this database, counted from stats_reset';
COMMENT ON COLUMN pg_stat_snowflake.generator IS 'the generator: a sequence whose value is its mark';
COMMENT ON COLUMN pg_stat_snowflake.issued IS
    'IDs issued, also to transactions that were rolled back and for rows of a batch that were not fetched';
COMMENT ON COLUMN pg_stat_snowflake.batches IS 'calls of snowflake_nextval_batch()';
COMMENT ON COLUMN pg_stat_snowflake.waits IS
    'calls that waited, because too many IDs were asked for, the clock was set back, or the registry had not renewed the lease';
COMMENT ON COLUMN pg_stat_snowflake.wait_time IS 'time that calls waited, in milliseconds';
COMMENT ON COLUMN pg_stat_snowflake.borrowed IS 'IDs issued ahead of the generator''s clock, because a tick was exhausted';
COMMENT ON COLUMN pg_stat_snowflake.refusals IS
    'calls that got no ID because of the clock, the lease, a missing mark, an exhausted tick, or the end of the layout''s time';
COMMENT ON COLUMN pg_stat_snowflake.clock_rollbacks IS 'number of times that the wall clock was found set back';
COMMENT ON COLUMN pg_stat_snowflake.largest_rollback IS 'greatest distance by which the wall clock was found set back';
COMMENT ON COLUMN pg_stat_snowflake.reservations IS 'number of times that the mark was raised';
COMMENT ON COLUMN pg_stat_snowflake.reservation_time IS 'time that raising the mark took, in milliseconds';
COMMENT ON COLUMN pg_stat_snowflake.stats_reset IS 'when the numbers were last set to 0';
COMMENT ON COLUMN pg_stat_snowflake.horizon_lag IS
    'how far transactions that took IDs hold back snowflake_horizon(), in milliseconds; null if the generator has no horizon';

-- What tells about other servers is shown to roles that may read all statistics.
CREATE FUNCTION _snowflake.own_worker(
    OUT worker_id integer, OUT source text, OUT registry text, OUT pool text, OUT token text,
    OUT bound timestamptz, OUT leased_until timestamptz, OUT last_contact timestamptz,
    OUT clock_ahead_by interval, OUT last_error text, OUT since timestamptz)
    RETURNS record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'snowflake_worker';
CREATE VIEW snowflake_worker AS SELECT * FROM _snowflake.own_worker();
COMMENT ON VIEW snowflake_worker IS 'the worker ID of this server, and its lease if the server has a registry';
COMMENT ON COLUMN snowflake_worker.worker_id IS 'worker ID in force on this server; null if it has none';
COMMENT ON COLUMN snowflake_worker.source IS
    'where the worker ID comes from: setting (a number in snowflake_id.worker_id), hostname or env '
    '(which that setting names), registry (any of the pool), or none';
COMMENT ON COLUMN snowflake_worker.registry IS 'host, port and database of the registry; shown to roles that may read all statistics';
COMMENT ON COLUMN snowflake_worker.pool IS 'pool of the registry; null without a registry';
COMMENT ON COLUMN snowflake_worker.token IS
    'the lease, as in view snowflake_workers of the registry; shown to roles that may read all statistics';
COMMENT ON COLUMN snowflake_worker.bound IS
    'this server issues no ID of this instant or later before the registry has renewed its lease; null without a lease';
COMMENT ON COLUMN snowflake_worker.leased_until IS 'when the lease ends if it is not renewed, by the clock of the registry';
COMMENT ON COLUMN snowflake_worker.last_contact IS 'when the registry last answered';
COMMENT ON COLUMN snowflake_worker.clock_ahead_by IS
    'how far the clock of this server was ahead of the registry''s then, which includes the way of the answer; negative: behind';
COMMENT ON COLUMN snowflake_worker.last_error IS
    'why the registry does not give what this server asks for; null if it does; shown to roles that may read all statistics; '
    'docs/operations.md#registry says what to do';
COMMENT ON COLUMN snowflake_worker.since IS 'since when this server has the worker ID';

CREATE FUNCTION snowflake_stat_reset() RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_stat_reset';
COMMENT ON FUNCTION snowflake_stat_reset() IS 'sets the numbers of pg_stat_snowflake to 0 for all generators of this database';

CREATE FUNCTION snowflake_stat_reset(generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_stat_reset';
COMMENT ON FUNCTION snowflake_stat_reset(regclass) IS 'sets the numbers of pg_stat_snowflake to 0 for a generator';

-- This function is VOLATILE and PARALLEL UNSAFE, since it asks other servers, and not
-- STRICT: NULL for the servers has a meaning. Only a superuser may call it or grant
-- EXECUTE, since libpq takes what a conninfo leaves open from the files and the user of
-- the server: passwords, certificates, peer authentication.
CREATE FUNCTION snowflake_check_cluster(
    servers text[] DEFAULT NULL,
    OUT severity text, OUT finding text, OUT server text, OUT other_server text,
    OUT detail text, OUT hint text)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'snowflake_check_cluster';
COMMENT ON FUNCTION snowflake_check_cluster(text[]) IS
    'compares this server with others, given as conninfos, URLs or foreign servers, by default the nodes of '
    'Citus; one row for each finding. It connects as the server''s operating system user and with that '
    'user''s passwords, so only superusers may call it, and roles to which they grant it';
