-- What this version installed, made by: tools/freeze COMMIT
-- Nobody edits this file: the changes since are in the scripts that lead from it to later
-- versions. CONTRIBUTING.md says how a version is released.
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
    OUT on_exhausted text, OUT sequence_start text, OUT pool text,
    OUT ids_per_second bigint, OUT workers bigint, OUT ends_at timestamptz,
    OUT can_be_negative boolean, OUT negative_from timestamptz,
    OUT label text, OUT origin text)
    RETURNS SETOF record LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE ROWS 18 AS 'MODULE_PATHNAME', 'snowflake_presets';
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
COMMENT ON COLUMN snowflake_presets.pool IS
    'pool of the registry from which the generator takes worker IDs of its own; null if it takes none';
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
    on_exhausted text DEFAULT NULL, sequence_start text DEFAULT NULL, pool text DEFAULT NULL, fields jsonb DEFAULT NULL)
    RETURNS regclass LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_create_generator';
COMMENT ON FUNCTION snowflake_create_generator IS
    'makes a generator: a sequence of this name that holds the mark, by default with the preset '
    'default; label is for the copy of another generator''s label; returns the sequence';

CREATE FUNCTION snowflake_alter_generator(
    generator regclass,
    preset text DEFAULT NULL, layout text DEFAULT NULL, epoch text DEFAULT NULL, tick text DEFAULT NULL,
    on_rollback text DEFAULT NULL, max_rollback text DEFAULT NULL, max_wait text DEFAULT NULL,
    max_borrow text DEFAULT NULL, max_observe text DEFAULT NULL,
    on_exhausted text DEFAULT NULL, sequence_start text DEFAULT NULL, pool text DEFAULT NULL, fields jsonb DEFAULT NULL)
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
    OUT ahead_by interval, OUT ahead_because text, OUT refused_since timestamptz, OUT gap_applied_at timestamptz,
    OUT ids_per_second bigint, OUT ends_at timestamptz, OUT problem text,
    OUT preset text, OUT layout text, OUT epoch text, OUT tick text,
    OUT on_rollback text, OUT max_rollback text, OUT max_wait text, OUT max_borrow text, OUT max_observe text,
    OUT on_exhausted text, OUT sequence_start text, OUT pool text,
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
    'when the generator last skipped a failover gap; known while the server runs and the generator keeps its place in shared memory';
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
COMMENT ON COLUMN snowflake_generators.pool IS
    'pool of the registry from which the generator takes worker IDs of its own; null if it takes none';
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
    OUT last_error text, OUT since timestamptz)
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
-- A key as `bigint` is, whose JSON is a string: JavaScript rounds numbers above 53 bits.
--
-- The type is stored as bigint and converts to it without a function, so that all operators,
-- indexes, statistics and functions of bigint serve it, and a column changes its type without
-- being written anew. It has no operators and no operator classes of its own: pg_upgrade would
-- lose those of both types, and a change of the type would rebuild every index. No function
-- takes this type but max(), min(), and those that convert it.
--
-- Its functions are PostgreSQL's: a database keeps its keys on a server without the library.
-- They are in schema _snowflake, since nobody calls them by their names.
CREATE TYPE snowflake;
CREATE FUNCTION _snowflake.snowflake_in(cstring) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8in';
COMMENT ON FUNCTION _snowflake.snowflake_in(cstring) IS 'internal: reads a decimal number as type snowflake';
CREATE FUNCTION _snowflake.snowflake_out(snowflake) RETURNS cstring
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8out';
COMMENT ON FUNCTION _snowflake.snowflake_out(snowflake) IS 'internal: writes type snowflake as a decimal number';
CREATE FUNCTION _snowflake.snowflake_recv(internal) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8recv';
COMMENT ON FUNCTION _snowflake.snowflake_recv(internal) IS 'internal: reads type snowflake in binary form, that of bigint';
CREATE FUNCTION _snowflake.snowflake_send(snowflake) RETURNS bytea
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8send';
COMMENT ON FUNCTION _snowflake.snowflake_send(snowflake) IS 'internal: writes type snowflake in binary form, that of bigint';
-- In the category of numbers, it has a common type with them; since it is not the preferred
-- type of that category, and bigint does not convert to it implicitly, bigint is that type.
CREATE TYPE snowflake (
    INPUT = _snowflake.snowflake_in, OUTPUT = _snowflake.snowflake_out,
    RECEIVE = _snowflake.snowflake_recv, SEND = _snowflake.snowflake_send,
    LIKE = pg_catalog.int8, CATEGORY = 'N', PREFERRED = false);
COMMENT ON TYPE snowflake IS 'a bigint whose JSON is a string; compares, sorts and joins as bigint does, by the same indexes';

CREATE CAST (snowflake AS bigint) WITHOUT FUNCTION AS IMPLICIT;
COMMENT ON CAST (snowflake AS bigint) IS 'the same bits: all that is for bigint takes it';
CREATE CAST (bigint AS snowflake) WITHOUT FUNCTION AS ASSIGNMENT;
COMMENT ON CAST (bigint AS snowflake) IS 'the same bits';

-- Literals and parameters of these types keep an expression at snowflake, as in coalesce(id, 0).
CREATE FUNCTION _snowflake.from_integer(integer) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int48';
COMMENT ON FUNCTION _snowflake.from_integer(integer) IS 'internal: converts integer to type snowflake';
CREATE CAST (integer AS snowflake) WITH FUNCTION _snowflake.from_integer(integer) AS IMPLICIT;
COMMENT ON CAST (integer AS snowflake) IS 'the same number';
CREATE FUNCTION _snowflake.from_smallint(smallint) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int28';
COMMENT ON FUNCTION _snowflake.from_smallint(smallint) IS 'internal: converts smallint to type snowflake';
CREATE CAST (smallint AS snowflake) WITH FUNCTION _snowflake.from_smallint(smallint) AS IMPLICIT;
COMMENT ON CAST (smallint AS snowflake) IS 'the same number';

-- No cast to or from numeric is implicit: -id, id % 2 and sum(id) would have two meanings.
CREATE FUNCTION _snowflake.from_numeric(numeric) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'numeric_int8';
COMMENT ON FUNCTION _snowflake.from_numeric(numeric) IS 'internal: converts numeric to type snowflake, rounded';
CREATE CAST (numeric AS snowflake) WITH FUNCTION _snowflake.from_numeric(numeric) AS ASSIGNMENT;
COMMENT ON CAST (numeric AS snowflake) IS 'the nearest whole number';
CREATE FUNCTION _snowflake.to_integer(snowflake) RETURNS integer
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int84';
COMMENT ON FUNCTION _snowflake.to_integer(snowflake) IS 'internal: converts type snowflake to integer';
CREATE CAST (snowflake AS integer) WITH FUNCTION _snowflake.to_integer(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS integer) IS 'the same number, or an error if it is out of the range';
CREATE FUNCTION _snowflake.to_numeric(snowflake) RETURNS numeric
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8_numeric';
COMMENT ON FUNCTION _snowflake.to_numeric(snowflake) IS 'internal: converts type snowflake to numeric';
CREATE CAST (snowflake AS numeric) WITH FUNCTION _snowflake.to_numeric(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS numeric) IS 'the same number';

-- Without these, max(id) would be a bigint, and its JSON a number. The library has them use an
-- index, see src/max_min.rs.
CREATE FUNCTION _snowflake.larger(snowflake, snowflake) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8larger';
COMMENT ON FUNCTION _snowflake.larger(snowflake, snowflake) IS 'internal: the step of max(snowflake)';
CREATE AGGREGATE max(snowflake) (SFUNC = _snowflake.larger, STYPE = snowflake, COMBINEFUNC = _snowflake.larger, PARALLEL = safe);
COMMENT ON AGGREGATE max(snowflake) IS 'the greatest value';
CREATE FUNCTION _snowflake.smaller(snowflake, snowflake) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8smaller';
COMMENT ON FUNCTION _snowflake.smaller(snowflake, snowflake) IS 'internal: the step of min(snowflake)';
CREATE AGGREGATE min(snowflake) (SFUNC = _snowflake.smaller, STYPE = snowflake, COMBINEFUNC = _snowflake.smaller, PARALLEL = safe);
COMMENT ON AGGREGATE min(snowflake) IS 'the smallest value';
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
-- No function here is SECURITY DEFINER. The functions in schema _snowflake are
-- parts of snowflake_set_default(), and grant nothing: a caller of one alone sees what the
-- catalogs show to everybody, or gets the error of a missing privilege.
--
-- Each function has a search_path with no schema in which others may create objects. So
-- unqualified names and operators below are PostgreSQL's own, and PostgreSQL writes
-- users' objects with their schemas. In a statement made by format(), %I is a name, %L
-- a literal, and %s what PostgreSQL has written as SQL: a regclass or a type, which are
-- quoted names, or an expression of the catalogs. The price: event triggers that fire on
-- our ALTER TABLE run with this search_path, and need one of their own.
--
-- What a user, another node or the library calls also fixes how names and texts are written and
-- read, for all that it calls: quote_all_identifiers would quote a default that is compared with
-- the one that is wanted, and standard_conforming_strings = off would take the backslashes from
-- regular expressions. Statements that are handed to the caller mean the same with both.
--
-- In a REPEATABLE READ transaction the catalogs are read as of its first statement. A
-- table that another session has changed since then leads to an error, or to a message
-- about its former state, and a foreign key that was made since then is not checked.
-- Values are always read as of now.

-- The next three are the only parts that SQL cannot have; src/sql/column.rs has them.

-- Locks a generator, by default the default one, and returns how many bits its IDs have, the
-- next ID, whether all later IDs are above it, when IDs reach a value, and whether
-- snowflake_advance() can go beyond that value.
CREATE FUNCTION _snowflake.next_id_range(
    generator regclass, value bigint,
    OUT source regclass, OUT is_default boolean, OUT bits integer,
    OUT next_id bigint, OUT sorted boolean, OUT reached text, OUT can_advance boolean)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_next_id_range';

-- Warns if this server has no worker ID that the generator can use.
CREATE FUNCTION _snowflake.warn_if_not_ready(generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_warn_if_not_ready';

-- The value that a query returns, as of now, read as the owner of a table, whose rights the
-- caller must have, and in a security-restricted operation as REINDEX is.
CREATE FUNCTION _snowflake.read_as_owner(relation regclass, query text) RETURNS text
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_as_owner';

-- The qualified name of a relation, for messages.
CREATE FUNCTION _snowflake.name(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- The schema of temporary tables has a number, which says nothing to people.
    SELECT CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END
        || '.' || quote_ident(c.relname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = relation
$$;

-- Runs a statement as the owner of a table, whose rights the caller must have, and in a
-- security-restricted operation as REINDEX does; returns the number of rows. src/sql/convert.rs
-- has it.
CREATE FUNCTION _snowflake.run_as_owner(relation regclass, statement text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_run_as_owner';

-- The type of the extension, bound when this is made, as the objects below are.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.key_type() RETURNS regtype
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT '@extschema@.snowflake'::regtype;
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- The type and modifier of a column, with domains replaced by their base types, and type snowflake
-- by bigint: what is for one is for the other.
CREATE FUNCTION _snowflake.base_type(type oid, typmod integer, OUT base regtype, OUT modifier integer)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A domain's own modifier, as in a domain over numeric(10,2), is its base type's.
    WITH RECURSIVE types (id, modifier, depth) AS (
        SELECT type, typmod, 0
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, s.depth + 1
        FROM types AS s JOIN pg_type AS t ON t.oid = s.id AND t.typtype = 'd')
    SELECT CASE WHEN s.id = _snowflake.key_type() THEN 'bigint'::regtype ELSE s.id::regtype END, s.modifier
    FROM types AS s ORDER BY s.depth DESC LIMIT 1
$$;

-- What the default of a column, or the expression of a generated one, names: a row for each
-- function, and for each sequence or other relation. Whose default draws from which sequence is
-- asked here only. PostgreSQL's own functions, such as nextval(), are left out, since pg_depend
-- leaves them out. The view has its names bound when it is made, out of reach of what others make.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW _snowflake.defaults AS
SELECT d.adrelid AS relation, d.adnum AS number,
    CASE p.refclassid WHEN 'pg_proc'::regclass THEN p.refobjid END AS function,
    CASE p.refclassid WHEN 'pg_class'::regclass THEN p.refobjid END AS sequence
FROM pg_attrdef AS d
JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
WHERE p.refclassid IN ('pg_proc'::regclass, 'pg_class'::regclass) AND p.refobjsubid = 0;

-- The default generator, and the functions that a default calls: those of the extension, and not
-- what has their names. The owner of the extension's schema may rename it, and make another one of
-- its name. So no function of these scripts names that schema when it runs: what it calls there has
-- its name bound when it is made.
CREATE FUNCTION _snowflake.default_generator() RETURNS regclass
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT '@extschema@.snowflake_default'::regclass;
END;
CREATE FUNCTION _snowflake.issuer(of_default boolean) RETURNS regprocedure
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN of_default THEN '@extschema@.snowflake_nextval()'::regprocedure
        ELSE '@extschema@.snowflake_nextval(regclass)'::regprocedure END;
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- The columns of a table whose defaults take IDs of a generator, and the generator, or NULL
-- if the default names none or several: a default that gets the generator as text at run
-- time, or that chooses among several, is no evidence of which one made an ID.
CREATE FUNCTION _snowflake.default_generators(relation regclass, OUT number smallint, OUT generator regclass)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    WITH uses (number, maker, generator) AS (
        SELECT d.number, f.oid, CASE WHEN 'regclass'::regtype <> ALL (f.proargtypes::oid[]) THEN s.id
            WHEN d.sequence = s.id OR _snowflake.label(d.sequence) IS NOT NULL THEN d.sequence END
        FROM _snowflake.defaults AS d
        CROSS JOIN (SELECT _snowflake.default_generator()::oid) AS s (id)
        LEFT JOIN pg_proc AS f ON f.oid = d.function
            AND f.proname IN ('snowflake_nextval', 'snowflake_nextval_block')
            AND EXISTS (
                SELECT FROM pg_depend AS e
                JOIN pg_extension AS x ON x.oid = e.refobjid AND x.extname = 'snowflake_id'
                WHERE e.classid = 'pg_proc'::regclass AND e.objid = f.oid AND e.refclassid = 'pg_extension'::regclass
                  AND e.deptype = 'e')
        WHERE d.relation = default_generators.relation)
    SELECT u.number, CASE WHEN count(DISTINCT u.generator) = 1 THEN min(u.generator)::regclass END
    FROM uses AS u GROUP BY u.number HAVING count(u.maker) > 0
$$;

-- A column in its table, which comes first, and in all partitions and child tables, with its
-- default and the functions that the default calls. The planner expects a large family, and
-- would read, and compile the reading of, whole catalogs.
CREATE FUNCTION _snowflake.inheritance(
    relation regclass, column_name name,
    OUT member regclass, OUT number smallint, OUT identity "char",
    OUT expression text, OUT functions oid[])
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
AS $$
    WITH RECURSIVE family (id) AS (
        SELECT relation::oid
        UNION
        SELECT i.inhrelid FROM family AS f JOIN pg_inherits AS i ON i.inhparent = f.id)
    SELECT c.oid::regclass, a.attnum, a.attidentity, pg_get_expr(d.adbin, d.adrelid),
        ARRAY(SELECT u.function FROM _snowflake.defaults AS u
              WHERE u.relation = c.oid AND u.number = a.attnum AND u.function IS NOT NULL)
    FROM family AS f
    JOIN pg_class AS c ON c.oid = f.id
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = column_name AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    ORDER BY c.oid <> relation, n.nspname, c.relname
$$;

-- Refuses what is no table, a part of a table, or not the caller's.
CREATE FUNCTION _snowflake.check_table(relation regclass, column_name name) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    class pg_class;
    table_name text := _snowflake.name(relation);
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
        root := _snowflake.name(pg_partition_root(relation));
        RAISE EXCEPTION 'cannot set the default of partition % apart from table %', table_name, root
            USING ERRCODE = 'wrong_object_type',
            DETAIL = 'Rows that are inserted through a partitioned table get the default of that table, not of the partition.',
            HINT = format('Set it on table %s, which reaches all partitions: snowflake_set_default(%s)',
                root, concat_ws(', ', quote_literal(root), quote_literal(column_name)));
    END IF;
END
$$;

-- The named column or that of the primary key, if it is one that can have the default.
CREATE FUNCTION _snowflake.key_column(relation regclass, column_name name, caller text) RETURNS name
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := _snowflake.name(relation);
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
        CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS t
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
            advice := format('Name the column, as in %s(%L, %L)', caller, table_name, example);
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
    ELSIF (_snowflake.base_type(it.atttypid, it.atttypmod)).base <> 'bigint'::regtype THEN
        declared := format_type(it.atttypid, it.atttypmod);
        RAISE EXCEPTION '% is of type %, not bigint', described, declared
            USING ERRCODE = 'datatype_mismatch', DETAIL = 'IDs have up to 63 bits.',
            HINT = CASE
                WHEN it.atttypid IN ('integer'::regtype, 'smallint'::regtype) THEN
                    format('Convert it with the columns that refer to it, by snowflake_convert() of extension snowflake_id_convert. '
                        'By hand, change it first, and them too; each change rewrites its table: %s TYPE bigint', alter_column)
                ELSE 'Add a bigint column for the IDs.' END;
    END IF;
    RETURN it.attname;
END
$$;

-- Refuses a column if columns refer to it that cannot hold IDs, since no row of theirs could
-- refer to a new row.
CREATE FUNCTION _snowflake.check_references(
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
        SELECT DISTINCT _snowflake.name(a.attrelid) AS table_name,
            a.attnum, a.attname, a.atttypid, a.atttypmod
        FROM _snowflake.inheritance(relation, column_name) AS f
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
        CROSS JOIN _snowflake.base_type(r.atttypid, r.atttypmod) AS t
        CROSS JOIN regexp_match(format_type(t.base, t.modifier), '^numeric\((\d+),(-?\d+)\)$') AS m)
    SELECT string_agg(format('%s.%I is of type %s', r.table_name, r.attname, format_type(r.atttypid, r.atttypmod)),
            ', ' ORDER BY r.table_name, r.attnum),
        string_agg(format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint', r.table_name, r.attname),
            '; ' ORDER BY r.table_name, r.attnum)
    INTO narrow, remedy
    FROM room AS r
    WHERE r.bits < check_references.bits;

    IF narrow IS NOT NULL THEN
        RAISE EXCEPTION 'foreign keys that refer to column "%" of table % cannot hold IDs',
            column_name, _snowflake.name(relation)
            USING ERRCODE = 'datatype_mismatch',
            DETAIL = format('IDs of generator %s have up to %s bits, and %s.',
                _snowflake.name(generator), bits, narrow),
            HINT = format('Change them first; each change rewrites its table: %s', remedy);
    END IF;
END
$$;

-- Refuses values that IDs to come could repeat or would sort before; returns the greatest
-- value. A policy that hides rows from the owner is an error here: the greatest value may
-- be among them.
CREATE FUNCTION _snowflake.check_values(relation regclass, column_name name, generator regclass) RETURNS bigint
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    -- If the column has an index, this is its end.
    greatest_value bigint := _snowflake.read_as_owner(
        relation, format('SELECT max(%I) FROM %s', column_name, relation));
    ids record;
    table_name text := _snowflake.name(relation);
    generator_name text := _snowflake.name(generator);
BEGIN
    IF greatest_value IS NULL THEN
        RETURN NULL;
    END IF;
    ids := _snowflake.next_id_range(generator, greatest_value);
    IF NOT ids.sorted THEN
        RAISE NOTICE 'values of %.% were not compared with IDs to come', table_name, quote_ident(column_name)
            USING DETAIL = format('IDs of generator %s do not sort by time, so that '
                'any value of the column may be issued a second time.', generator_name),
            HINT = 'A unique constraint refuses a row whose ID is there already.';
    ELSIF greatest_value >= ids.next_id THEN
        RAISE EXCEPTION 'column "%" of table % holds %, which is not below the IDs to come',
            column_name, table_name, greatest_value
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = format('IDs of generator %s are at %s now', generator_name, ids.next_id) || CASE
                WHEN ids.reached IS NOT NULL THEN
                    format(', and reach that value on %s. Until then '
                        'its row sorts after newer rows; then it may be issued a second time.', ids.reached)
                ELSE '; that value is above all of them, and would sort after newer rows for ever.' END,
            HINT = CASE WHEN ids.can_advance THEN
                format('Make all further IDs greater, then call this again: SELECT snowflake_advance(%L, %s)',
                    generator_name, greatest_value)
                ELSE 'That value is further ahead than snowflake_advance() goes. Find out where it comes from: '
                    'give those rows other keys, or give the IDs a column of their own.' END;
    END IF;
    RETURN greatest_value;
END
$$;

-- Refuses a column whose domain refuses the next ID, and a table that is partitioned by the
-- column and has no partition for the ID.
CREATE FUNCTION _snowflake.check_takes(relation regclass, column_name name, generator regclass) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it pg_attribute;
    next_id bigint := (_snowflake.next_id_range(generator, NULL)).next_id;
    table_name text := _snowflake.name(relation);
    generator_name text := _snowflake.name(generator);
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
        holds := _snowflake.read_as_owner(relation, format(
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
        holds := _snowflake.read_as_owner(relation, format(
            'SELECT %s FROM (SELECT %L::bigint AS %I) AS row', condition.code, next_id, column_name));
        IF holds IS NOT TRUE THEN
            RAISE EXCEPTION 'no partition of table % takes IDs', table_name
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = format('It is partitioned by column "%s", and ID %s of generator %s fits none of its partitions.',
                    column_name, next_id, generator_name),
                HINT = format('Make one first, as in: CREATE TABLE ... PARTITION OF %s '
                    'FOR VALUES FROM (snowflake_min_id(''2026-01-01Z'')) TO (snowflake_min_id(''2027-01-01Z''))', table_name);
        END IF;
    END IF;
END
$$;

-- This function is not STRICT: NULL for the column, the generator or the type has a meaning.
CREATE FUNCTION snowflake_set_default(
    relation regclass, column_name name DEFAULT NULL,
    generator regclass DEFAULT NULL, drop_sequence boolean DEFAULT false, type regtype DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    ids record;
    source_name text;
    issue regprocedure; -- the function that the default calls
    new_default text;   -- the default, as a statement has it
    wanted text;        -- the default, as PostgreSQL shows it with this search_path
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
    PERFORM _snowflake.check_table(relation, column_name);

    ids := _snowflake.next_id_range(generator, NULL);
    source_name := _snowflake.name(ids.source);
    issue := _snowflake.issuer(ids.is_default);
    IF ids.is_default THEN
        new_default := issue;
        wanted := issue;
    ELSE
        new_default := format('%s(%L::regclass)', issue::regproc, source_name);
        -- Unlike %L, PostgreSQL shows a backslash as it is.
        wanted := format('%s(''%s''::regclass)', issue::regproc, replace(source_name, '''', ''''''));
    END IF;

    distribution := _snowflake.distribution(relation);
    IF distribution IS NOT NULL THEN
        PERFORM _snowflake.check_nodes(ids.source,
            (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = relation));
    END IF;

    IF type IS NOT NULL THEN
        PERFORM _snowflake.lock_for_type(
            relation, _snowflake.key_column(relation, column_name, 'snowflake_set_default'), type, true);
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
        PERFORM _snowflake.check_table(relation, column_name);
        EXIT WHEN locked = relation::text;
    END LOOP;

    key := _snowflake.key_column(relation, column_name, 'snowflake_set_default');
    table_name := _snowflake.name(relation);
    key_name := format('%s.%I', table_name, key);

    -- All messages about the old defaults are made before they are gone.
    FOR member IN
        SELECT f.*, coalesce(f.expression = wanted, false) AND issue = ANY (f.functions) AS is_set,
            format('%s.%I', _snowflake.name(f.member), key) AS name
        FROM _snowflake.inheritance(relation, key) AS f
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
        fates := fates || format('sequence %s %s', _snowflake.name(member.sequence), CASE
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
            PERFORM _snowflake.check_default(relation, key, ids.source);
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
        PERFORM _snowflake.check_references(relation, key, ids.source, ids.bits);
        greatest_value := _snowflake.check_values(relation, key, ids.source);
        PERFORM _snowflake.check_takes(relation, key, ids.source);
        changes := changes || coalesce('greatest value so far ' || greatest_value, 'no values so far');

        is_rebuilt := coalesce(distribution->>'column' = key, false);
        IF is_rebuilt THEN
            distribution := distribution || jsonb_build_object('comments',
                ARRAY(SELECT _snowflake.comments(relation)));
            relation := _snowflake.undistribute(relation, key, distribution);
        END IF;

        -- One by one, the table first: from 17 on, a partitioned table's identity goes
        -- with those of its partitions; any other identity belongs to one table.
        LOOP
            SELECT f.* INTO member FROM _snowflake.inheritance(relation, key) AS f
            WHERE f.identity <> '' LIMIT 1;
            EXIT WHEN NOT FOUND;
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', member.member, key);
        END LOOP;
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', relation, key, new_default);
        -- Names stay the same under our lock, except those of schemas, which nothing
        -- locks. And in a REPEATABLE READ transaction an old default may still be seen.
        IF EXISTS (
            SELECT FROM _snowflake.inheritance(relation, key) AS f
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
            PERFORM _snowflake.distribute(relation, distribution);
            changes[1] := changes[1] || ', distributed again';
        END IF;
        owner := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = relation);
        IF NOT has_sequence_privilege(owner, ids.source, 'USAGE, UPDATE') THEN
            RAISE NOTICE 'role %, which owns table %, cannot get IDs of generator %',
                quote_ident(pg_get_userbyid(owner)), table_name, source_name
                USING HINT = format('Each role that inserts rows needs: GRANT USAGE ON SEQUENCE %s TO ...', source_name);
        END IF;
        -- A table may also be set up before its server is.
        PERFORM _snowflake.warn_if_not_ready(ids.source);
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

    IF type IS NOT NULL THEN
        changes := changes || _snowflake.change_type(relation, key, type);
    END IF;
    -- Another object that uses the sequence stops the drop; the error names it.
    FOR i IN 1 .. cardinality(unused) LOOP
        EXECUTE format('DROP SEQUENCE %s', unused[i]);
    END LOOP;
    RETURN array_to_string(changes || fates, '; ');
END
$$;
COMMENT ON FUNCTION snowflake_set_default(regclass, name, regclass, boolean, regtype) IS
    'makes a generator the default of a column of type bigint or snowflake, by default that of the primary key, '
    'in place of the column''s default or identity; can change its type as snowflake_set_type() does; returns what was done';
-- snowflake_set_defaults() sets the defaults of all tables of a schema. Which columns are keys
-- is decided here for this function, and for the conversion in convert/columns.sql.

CREATE FUNCTION _snowflake.tables_of(schema regnamespace) RETURNS regclass[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(array_agg(c.oid::regclass ORDER BY c.relname), '{}')
    FROM pg_class AS c
    WHERE c.relnamespace = schema AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND NOT EXISTS (
          SELECT FROM pg_depend AS d
          WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
$$;
COMMENT ON FUNCTION _snowflake.tables_of(regnamespace) IS
    'internal, for snowflake_convert() and snowflake_set_defaults(): the tables of a schema, without partitions and tables of extensions';

-- A key is the only column of a primary key, whatever its default. A column that counts,
-- by an identity or a sequence, is a key too if it is part of the primary key, alone has
-- a unique index, or is in a table without either. A key whose values may come from elsewhere is left
-- alone unless somebody names its table: the row of a table of settings has the constant that is its
-- default, and a table whose key is that of another one, without a foreign key, has no default. A
-- generator would make rows there that nothing finds.
CREATE FUNCTION _snowflake.keys(
    relation regclass,
    OUT number smallint, OUT name name, OUT type oid, OUT base regtype, OUT has_default boolean,
    OUT is_key boolean, OUT refers_to regclass, OUT left_alone text)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH own AS (
        SELECT i.indkey::smallint[] AS columns, i.indnkeyatts AS count, i.indisprimary AS is_primary
        FROM pg_index AS i
        WHERE i.indrelid = relation AND i.indisunique AND i.indpred IS NULL),
    columns AS (
        SELECT a.*, t.base, a.atthasdef OR a.attidentity <> '' AS has_default, e.expression,
            a.attidentity <> '' OR coalesce(e.expression, '') LIKE '%nextval(%' AS counts,
            coalesce((SELECT a.attnum = ANY (o.columns[0:o.count - 1]) FROM own AS o WHERE o.is_primary), false) AS in_primary,
            coalesce((SELECT o.count = 1 FROM own AS o WHERE o.is_primary), false) AS is_single,
            EXISTS (SELECT FROM own AS o WHERE o.count = 1 AND o.columns[0] = a.attnum) AS is_unique,
            NOT EXISTS (SELECT FROM own) AS is_bare
        FROM pg_attribute AS a
        CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS t
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        CROSS JOIN LATERAL pg_get_expr(d.adbin, d.adrelid) AS e (expression)
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
    SELECT c.attnum, c.attname, c.atttypid, c.base, c.has_default,
        c.in_primary AND (c.is_single OR c.counts) OR c.counts AND (c.is_unique OR c.is_bare),
        (SELECT f.confrelid::regclass FROM pg_constraint AS f
         WHERE f.conrelid = c.attrelid AND f.contype = 'f' AND c.attnum = ANY (f.conkey)
           AND (f.confrelid <> f.conrelid OR f.conkey <> f.confkey)
         ORDER BY f.conname LIMIT 1),
        -- What a function of users does, nobody knows: mostly it counts.
        CASE WHEN c.counts OR EXISTS (SELECT FROM _snowflake.defaults AS u WHERE u.relation = c.attrelid AND u.number = c.attnum) THEN NULL
            WHEN c.has_default THEN format('has the default %s, which draws from no sequence', c.expression)
            -- By the size of files: no code of others runs.
            WHEN (SELECT sum(pg_relation_size(f.member)) FROM _snowflake.inheritance(c.attrelid, c.attname) AS f) > 0
                THEN 'has no default, and its table has rows' END
    FROM columns AS c
    WHERE c.in_primary OR c.counts
    ORDER BY c.attnum
$$;
COMMENT ON FUNCTION _snowflake.keys(regclass) IS
    'internal, for snowflake_convert() and snowflake_set_defaults(): the columns of a table '
    'that are in its primary key or count, which of them are keys that get IDs, the table to which one refers, '
    'and why it is left alone unless its table is named';

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.set_default(relation regclass, column_name name, generator regclass, type regtype DEFAULT NULL) RETURNS text
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    -- With all arguments, so that nothing that the schema had before fits as well.
    SELECT @extschema@.snowflake_set_default(relation, column_name, generator, false, type);
END;
SET LOCAL search_path = @extschema@, pg_temp;

CREATE FUNCTION snowflake_set_defaults(
    schema regnamespace, generator regclass DEFAULT NULL, type regtype DEFAULT NULL,
    OUT relation regclass, OUT is_set boolean, OUT severity text, OUT result text)
    RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    key record;
BEGIN
    IF schema IS NULL THEN
        RAISE EXCEPTION 'schema must not be null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'As in snowflake_set_defaults(''public'')';
    END IF;
    -- A generator that is none is an error once, and not one for each table.
    PERFORM _snowflake.next_id_range(generator, NULL);
    FOREACH relation IN ARRAY _snowflake.tables_of(schema) LOOP
        is_set := false;
        severity := 'info';
        result := NULL;
        FOR key IN
            SELECT k.* FROM _snowflake.keys(relation) AS k WHERE k.is_key ORDER BY k.number
        LOOP
            IF key.refers_to IS NOT NULL THEN
                result := concat_ws('; ', result, format('column "%s" refers to table %s, and has the keys of that table',
                    key.name, _snowflake.name(key.refers_to)));
                CONTINUE;
            ELSIF key.base NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
                AND (key.left_alone IS NOT NULL OR NOT key.has_default) THEN
                CONTINUE;
            ELSIF key.left_alone IS NOT NULL THEN
                result := concat_ws('; ', result, format('column "%s" %s, so it was left alone: if its values are to come from here, '
                    'call snowflake_set_default(%L, %L)', key.name, key.left_alone, _snowflake.name(relation), key.name));
                severity := CASE severity WHEN 'error' THEN severity ELSE 'warning' END;
                CONTINUE;
            END IF;
            BEGIN
                result := concat_ws('; ', result, _snowflake.set_default(relation, key.name, generator, type));
                is_set := true;
            EXCEPTION WHEN OTHERS THEN
                result := concat_ws('; ', result, SQLERRM);
                severity := 'error';
            END;
        END LOOP;
        result := coalesce(result, 'no column is a key that gets numbers from this database');
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_set_defaults(regnamespace, regclass, regtype) IS
    'makes a generator the default of the keys of all tables of a schema, and can change their type; returns a row for each table: '
    'whether a default is set now, and what was done, or why nothing was; with severity warning, a key was left alone, '
    'and a person has to decide; with error, it could not be changed';
-- The registry of worker IDs: it leases the worker IDs of pools to servers, so that no
-- two servers have the same one. crates/core/src/lease/registry.rs decides what is granted;
-- src/registry.rs reads these tables for it, and stores what it says.
--
-- Every request and every function of an administrator locks the registry first, as
-- src/registry.rs says.
--
-- Rows of _snowflake.leases are never deleted, not even with their pool: a later
-- pool of the namespace that has the worker ID goes on above what was issued.
--
-- Nobody but their owner has a privilege on the tables. The functions run with the rights of
-- the caller, who needs EXECUTE, and switch to the owner of the tables where they read and
-- change them: src/guard.rs says how. A dump has no rows of these tables: leases that
-- were restored would be those of the past, and the registry would not know. Function
-- _snowflake.pool_calls() prints the calls that make the pools again.
--
-- A registry can also be in etcd, or in another database. The functions of administrators work on
-- the one that this server uses, and the views show it: src/registry/place.rs says which one that
-- is. View _snowflake.used has what it has stored in one form, of whatever kind it is.
--
-- A pool, a lease, a server and the state are each stored as the JSON of the core's type, as in
-- etcd. Beside it, in columns that PostgreSQL makes of it, there is only what a search needs.
-- Instants are Unix milliseconds, since a clock can be wrong by any amount: those that
-- timestamptz cannot hold are shown as infinite.

CREATE TABLE _snowflake.state (
    id integer PRIMARY KEY CHECK (id = 1),
    state jsonb NOT NULL,
    written bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE _snowflake.state IS
    'internal: what the registry of worker IDs stores beside its pools and leases, in one row; no row before the first pool';
COMMENT ON COLUMN _snowflake.state.id IS '1: there is one row';
COMMENT ON COLUMN _snowflake.state.state IS
    'era, serial number of the latest change, starts of the server, greatest time of the registry''s clock, '
    'latest time in which it heard no server, latest loss of grants, whether the registry has stopped, '
    'the secret key by which the registry knows its own words again; instants in Unix milliseconds';
COMMENT ON COLUMN _snowflake.state.written IS
    'how often it was stored: by this number the registry knows after a crash whether the latest change is there';

-- What tables and views call has its names bound when it is made, as the views have, under a
-- path that holds no object of others.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE FUNCTION _snowflake.millis(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT floor(extract(epoch FROM at) * 1000)::bigint;
END;
COMMENT ON FUNCTION _snowflake.millis(timestamptz) IS
    'internal, for the registry: an instant in Unix milliseconds';

CREATE FUNCTION _snowflake.instant(millis bigint) RETURNS timestamptz
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    -- The limits lie in the years 287000 and -4000; timestamptz holds both.
    SELECT CASE WHEN millis > 9000000000000000 THEN timestamptz 'infinity'
                WHEN millis < -190000000000000 THEN timestamptz '-infinity'
                ELSE timestamptz '1970-01-01 00:00:00+00' + millis * interval '1 ms' END;
END;
COMMENT ON FUNCTION _snowflake.instant(bigint) IS
    'internal, for the registry: the instant of a number of Unix milliseconds';

CREATE FUNCTION _snowflake.ranges(ranges jsonb) RETURNS int8multirange
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(range_agg(int8range((e.ids -> 'start')::bigint, (e.ids -> 'end')::bigint)), '{}')
    FROM jsonb_array_elements(ranges) AS e (ids);
END;
COMMENT ON FUNCTION _snowflake.ranges(jsonb) IS
    'internal, for the registry: the worker IDs of an array of objects with start and end';

CREATE TABLE _snowflake.pools (
    pool jsonb NOT NULL,
    name text PRIMARY KEY GENERATED ALWAYS AS (pool ->> 'name') STORED,
    namespace text NOT NULL GENERATED ALWAYS AS (pool ->> 'namespace') STORED,
    worker_ids int8range NOT NULL GENERATED ALWAYS AS
        (int8range((pool #> '{ids,start}')::bigint, (pool #> '{ids,end}')::bigint)) STORED,
    except_ids int8multirange NOT NULL GENERATED ALWAYS AS (_snowflake.ranges(pool -> 'except')) STORED,
    used_below bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE _snowflake.pools IS
    'internal: the pools of the registry of worker IDs, as snowflake_create_pool() was told; see view snowflake_pools';
COMMENT ON COLUMN _snowflake.pools.pool IS
    'the pool; durations in milliseconds, instants in Unix milliseconds; the other columns but for used_below are parts of it that searches need';
COMMENT ON COLUMN _snowflake.pools.used_below IS
    'each worker ID of the pool below this one that is neither excepted nor spare was granted before: searches for an unused one begin here';

CREATE TABLE _snowflake.leases (
    namespace text NOT NULL,
    worker_id integer NOT NULL GENERATED ALWAYS AS ((lease -> 'worker')::integer) STORED,
    released boolean NOT NULL GENERATED ALWAYS AS ((lease -> 'released')::boolean) STORED,
    heard bigint NOT NULL GENERATED ALWAYS AS ((lease -> 'heard')::bigint) STORED,
    leased_until bigint NOT NULL GENERATED ALWAYS AS ((lease -> 'leased_until')::bigint) STORED,
    bound bigint NOT NULL GENERATED ALWAYS AS ((lease -> 'bound')::bigint) STORED,
    system_identifier numeric(20) NOT NULL GENERATED ALWAYS AS ((lease #> '{holder,identity,system}')::numeric) STORED,
    lease jsonb NOT NULL,
    PRIMARY KEY (namespace, worker_id)
);
CREATE INDEX leases_heard ON _snowflake.leases (heard);
CREATE INDEX leases_until ON _snowflake.leases (namespace, leased_until);
CREATE INDEX leases_released ON _snowflake.leases (namespace, leased_until) WHERE released;
CREATE INDEX leases_holder ON _snowflake.leases (system_identifier, bound);
COMMENT ON INDEX _snowflake.leases_heard IS 'internal: finds who was heard last, and who is heard now';
COMMENT ON INDEX _snowflake.leases_until IS 'internal: finds the leases that end first or last';
COMMENT ON INDEX _snowflake.leases_released IS 'internal: finds the leases that were returned first';
COMMENT ON INDEX _snowflake.leases_holder IS
    'internal: finds the worker ID that a server had before, and the greatest bound of a system';
COMMENT ON TABLE _snowflake.leases IS
    'internal: one row per worker ID that was ever granted, with its latest holder; never deleted; see view snowflake_workers';
COMMENT ON COLUMN _snowflake.leases.namespace IS 'namespace of the pools that have the worker ID';
COMMENT ON COLUMN _snowflake.leases.lease IS
    'type Row of crates/core/src/lease/mod.rs, which describes each field; the columns before it are parts of it that searches need';

-- A report changes no index, but for the first one of a server. So the least report is found by
-- reading all of them, unless a server has reported nothing.
CREATE TABLE _snowflake.servers (
    identity text PRIMARY KEY,
    counts boolean NOT NULL GENERATED ALWAYS AS (server ->> 'dropped' IS NULL) STORED,
    horizon bigint GENERATED ALWAYS AS ((server ->> 'horizon')::bigint) STORED,
    role text GENERATED ALWAYS AS (server #>> '{holder,identity,role}') STORED,
    is_silent boolean NOT NULL GENERATED ALWAYS AS (server ->> 'dropped' IS NULL AND server ->> 'horizon' IS NULL) STORED,
    server jsonb NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX servers_role ON _snowflake.servers (role) WHERE counts;
CREATE INDEX servers_silent ON _snowflake.servers (identity) WHERE is_silent;
COMMENT ON INDEX _snowflake.servers_role IS 'internal: counts the servers of a role';
COMMENT ON INDEX _snowflake.servers_silent IS 'internal: finds a server that has reported nothing';
COMMENT ON TABLE _snowflake.servers IS
    'internal: the servers that count for snowflake_cluster_horizon(), and those that were dropped; see view snowflake_cluster_servers';
COMMENT ON COLUMN _snowflake.servers.identity IS
    'system identifier, boot ID of the kernel, device and inode of the data directory';
COMMENT ON COLUMN _snowflake.servers.server IS
    'the server''s place and latest worker ID, what it has reported, and when; instants in Unix milliseconds; '
    'the other columns but for identity are parts of it that searches need';

CREATE TABLE _snowflake.reached (
    system_identifier numeric(20) PRIMARY KEY,
    reached bigint NOT NULL
);
COMMENT ON TABLE _snowflake.reached IS
    'internal: how far servers have come with worker IDs that others have got since, as long as that lies ahead: they may continue there';
COMMENT ON COLUMN _snowflake.reached.system_identifier IS 'system identifier of their database cluster';
COMMENT ON COLUMN _snowflake.reached.reached IS 'the greatest bound that such a server has had, in Unix milliseconds';

SET LOCAL search_path = @extschema@, pg_temp;

CREATE FUNCTION _snowflake.lease(pool text, request jsonb) RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_lease';
COMMENT ON FUNCTION _snowflake.lease(text, jsonb) IS
    'internal, for servers that lease a worker ID: acquires, renews or releases one, and returns the reply; '
    'the reply counts only once the transaction has committed, so the call is a transaction of its own';

CREATE FUNCTION snowflake_create_registry(role text DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_create_registry';
COMMENT ON FUNCTION snowflake_create_registry(text) IS
    'makes this database a registry of worker IDs, with pool "default" of worker IDs 0 to 1023, unless it has a pool; '
    'and lets servers that connect as this role lease worker IDs';

CREATE FUNCTION snowflake_create_pool(
    name text DEFAULT 'default', worker_ids int8range DEFAULT '[0,1024)',
    lease interval DEFAULT '10 min', hold interval DEFAULT '30 s', max_ahead interval DEFAULT '1 min',
    except_ids int8multirange DEFAULT '{}', spares integer DEFAULT 0,
    namespace text DEFAULT 'default', unused boolean DEFAULT NULL, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres'
    AS 'MODULE_PATHNAME', 'snowflake_create_pool';
COMMENT ON FUNCTION snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, integer, text, boolean, text) IS
    'makes a pool of worker IDs in the registry that this server uses, or in etcd with this URL; '
    'pools of one namespace have different worker IDs; unused: nobody has used them before; NULL: if this is the first pool';

CREATE FUNCTION snowflake_drop_pool(name text, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_drop_pool';
COMMENT ON FUNCTION snowflake_drop_pool(text, text) IS
    'drops a pool of worker IDs that no server uses; the registry keeps what it knows of each worker ID, for a later pool that has it';

CREATE FUNCTION snowflake_revoke_worker(pool text, worker_id integer, registry text DEFAULT '') RETURNS timestamptz
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_revoke_worker';
COMMENT ON FUNCTION snowflake_revoke_worker(text, integer, text) IS
    'ends the lease of a worker ID: its server cannot renew it, and stops issuing IDs when the lease ends at the latest; '
    'returns from when another server can have the worker ID';

CREATE FUNCTION snowflake_end_grace_period(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_end_grace_period';
COMMENT ON FUNCTION snowflake_end_grace_period(text) IS
    'lets the registry lease worker IDs at once, although it may have lost leases: '
    'servers that have not asked since may lose their worker IDs to others, but no ID is issued twice';

CREATE FUNCTION snowflake_declare_registry(registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_declare_registry';
COMMENT ON FUNCTION snowflake_declare_registry(text) IS
    'declares that of all copies of this registry, this one counts: '
    'it serves again if it has stopped, after a grace period, and servers that have asked it accept no other copy';

-- The views are made with this path, which holds no object of others: an operator or a
-- function in the extension's schema that fits the types better than those in pg_catalog
-- would be taken, whoever made it, and run by whoever reads the view.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW _snowflake.here AS
SELECT n.now, r.state - 'key' AS state, (SELECT array_agg(p.pool) FROM _snowflake.pools AS p) AS pools,
    (SELECT array_agg(l.namespace ORDER BY l.namespace, l.worker_id) FROM _snowflake.leases AS l) AS namespaces,
    (SELECT array_agg(l.lease ORDER BY l.namespace, l.worker_id) FROM _snowflake.leases AS l) AS leases,
    NULL::boolean[] AS live, (SELECT array_agg(s.server) FROM _snowflake.servers AS s) AS servers
FROM _snowflake.state AS r
CROSS JOIN (SELECT _snowflake.millis(clock_timestamp())) AS n (now)
-- There is one row. Said so, the planner expects no more, and compiles nothing.
WHERE r.id = 1 AND EXISTS (SELECT FROM _snowflake.pools);
COMMENT ON VIEW _snowflake.here IS 'internal: what the registry in this database has stored; no row without a pool';
COMMENT ON COLUMN _snowflake.here.now IS 'time of the registry';
COMMENT ON COLUMN _snowflake.here.state IS 'as in _snowflake.state, without the key: who reads a view need not have it';
COMMENT ON COLUMN _snowflake.here.pools IS 'the pools';
COMMENT ON COLUMN _snowflake.here.namespaces IS 'the namespace of each lease';
COMMENT ON COLUMN _snowflake.here.leases IS 'the leases, as in _snowflake.leases';
COMMENT ON COLUMN _snowflake.here.live IS 'whether etcd keeps the worker ID of each lease for its holder; NULL: the lease says it';
COMMENT ON COLUMN _snowflake.here.servers IS 'the servers, as in _snowflake.servers';

CREATE FUNCTION _snowflake.read_registry() RETURNS jsonb
    LANGUAGE c STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_registry';
COMMENT ON FUNCTION _snowflake.read_registry() IS
    'internal, for servers that lease a worker ID: what the registry in this database has stored; NULL if it has no pool';

CREATE FUNCTION _snowflake.read_elsewhere() RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_elsewhere';
COMMENT ON FUNCTION _snowflake.read_elsewhere() IS
    'internal: what the registry in etcd or in another database has stored that this server uses; NULL if there is none; for pg_monitor';

CREATE VIEW _snowflake.used AS
SELECT h.* FROM _snowflake.here AS h
UNION ALL
SELECT (e.stored -> 'now')::bigint, e.stored -> 'state', ARRAY(SELECT jsonb_array_elements(e.stored -> 'pools')),
    ARRAY(SELECT w.worker ->> 'namespace' FROM jsonb_array_elements(e.stored -> 'workers') AS w (worker)),
    ARRAY(SELECT w.worker -> 'row' FROM jsonb_array_elements(e.stored -> 'workers') AS w (worker)),
    ARRAY(SELECT (w.worker -> 'live')::boolean FROM jsonb_array_elements(e.stored -> 'workers') AS w (worker)),
    ARRAY(SELECT jsonb_array_elements(e.stored -> 'servers'))
FROM (SELECT _snowflake.read_elsewhere() WHERE NOT EXISTS (SELECT FROM _snowflake.pools)) AS e (stored)
WHERE e.stored IS NOT NULL;
COMMENT ON VIEW _snowflake.used IS 'internal: what the registry that this server uses has stored; src/registry/place.rs says which one';
COMMENT ON COLUMN _snowflake.used.now IS 'this column and the others: as in _snowflake.here';

-- PostgreSQL writes the body of the function into the views: so it is not STRICT, and gets the time
-- as a column.
CREATE FUNCTION _snowflake.workers(of_pool jsonb, namespaces text[], leases jsonb[], live boolean[], now bigint)
    RETURNS TABLE (pool text, worker_id integer, state text, host text, address text, port integer, data_directory text,
        system_identifier numeric, since timestamptz, leased_until timestamptz, bound timestamptz, token text,
        contested_by text, contested_since timestamptz, contested_last timestamptz, role text)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT of_pool ->> 'name', i.worker_id,
        CASE WHEN r.is_released OR NOT coalesce(e.is_live, (e.lease -> 'leased_until')::bigint > now - (of_pool -> 'hold')::bigint) THEN
                 CASE WHEN i.worker_id >= (of_pool #> '{ids,end}')::bigint - (of_pool -> 'spares')::bigint THEN 'spare'
                      WHEN r.is_released THEN 'released'
                      ELSE 'free' END
             WHEN e.lease ->> 'revoked' IS NOT NULL THEN 'revoked'
             WHEN now >= (e.lease -> 'leased_until')::bigint THEN 'expired'
             ELSE 'leased' END,
        e.lease #>> '{holder,host}', e.lease #>> '{holder,address}', (e.lease #> '{holder,port}')::integer,
        e.lease #>> '{holder,data_directory}', (e.lease #> '{holder,identity,system}')::numeric,
        _snowflake.instant((e.lease -> 'since')::bigint), _snowflake.instant((e.lease -> 'leased_until')::bigint),
        _snowflake.instant((e.lease -> 'bound')::bigint), (e.lease ->> 'counter') || '-' || left(e.lease ->> 'nonce', 8),
        CASE WHEN c.is_heard THEN format('%s%s, port %s, data directory "%s"', e.lease #>> '{contender,by,host}',
            ' (' || nullif(e.lease #>> '{contender,by,address}', '') || ')', e.lease #>> '{contender,by,port}',
            e.lease #>> '{contender,by,data_directory}') END,
        CASE WHEN c.is_heard THEN _snowflake.instant((e.lease #>> '{contender,since}')::bigint) END,
        CASE WHEN c.is_heard THEN _snowflake.instant((e.lease #>> '{contender,latest}')::bigint) END,
        nullif(e.lease #>> '{holder,identity,role}', '')
    FROM unnest(namespaces, leases, live) AS e (namespace, lease, is_live)
    CROSS JOIN LATERAL (SELECT (e.lease -> 'worker')::integer) AS i (worker_id)
    CROSS JOIN LATERAL (SELECT (e.lease -> 'released')::boolean) AS r (is_released)
    CROSS JOIN LATERAL (SELECT NOT r.is_released AND (e.lease #>> '{contender,latest}')::bigint
        >= now - 2 * (least((of_pool -> 'lease')::bigint, 30000) + (of_pool -> 'hold')::bigint)) AS c (is_heard)
    WHERE e.namespace = of_pool ->> 'namespace'
        AND i.worker_id >= (of_pool #> '{ids,start}')::bigint AND i.worker_id < (of_pool #> '{ids,end}')::bigint;
END;
COMMENT ON FUNCTION _snowflake.workers(jsonb, text[], jsonb[], boolean[], bigint) IS
    'internal: the rows of view snowflake_workers for a pool, from what a registry has stored';

CREATE VIEW @extschema@.snowflake_workers AS
SELECT w.*
FROM _snowflake.used AS u
CROSS JOIN LATERAL unnest(u.pools) AS p (pool)
CROSS JOIN LATERAL _snowflake.workers(p.pool, u.namespaces, u.leases, u.live, u.now) AS w;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_workers IS
    'the worker IDs that the registry of this server has leased, with their latest holders; '
    'worker IDs that were never leased have no row, see snowflake_pools.never_leased';
COMMENT ON COLUMN snowflake_workers.pool IS 'the pool that has the worker ID';
COMMENT ON COLUMN snowflake_workers.worker_id IS 'the worker ID';
COMMENT ON COLUMN snowflake_workers.state IS
    'leased; revoked: leased, but cannot be renewed; '
    'expired: the holder was silent for too long, and it is kept for the holder until the hold has passed; '
    'free or released: another server can have it; spare: was leased, and is not leased again';
COMMENT ON COLUMN snowflake_workers.host IS 'host name of the holder, or of the latest one';
COMMENT ON COLUMN snowflake_workers.address IS 'address from which the holder reached the registry';
COMMENT ON COLUMN snowflake_workers.port IS 'port of the holder';
COMMENT ON COLUMN snowflake_workers.data_directory IS 'data directory of the holder';
COMMENT ON COLUMN snowflake_workers.system_identifier IS 'system identifier of the holder''s database cluster';
COMMENT ON COLUMN snowflake_workers.since IS 'when the holder got the worker ID';
COMMENT ON COLUMN snowflake_workers.leased_until IS
    'until when the registry waits for the holder, which may issue IDs up to its bound: the hold follows; or when the holder returned the worker ID';
COMMENT ON COLUMN snowflake_workers.bound IS
    'no ID of this instant or later has been issued with this worker ID; by the clock of the holder';
COMMENT ON COLUMN snowflake_workers.token IS
    'tells the leases of a worker ID apart: how many there were, and the beginning of the holder''s random number';
COMMENT ON COLUMN snowflake_workers.contested_by IS
    'another server that has this worker ID set, asks for it, and is refused, since the holder has it: '
    'its host name, address, port and data directory; several servers take turns here; '
    'NULL if none has asked lately: for twice the time after which a silent holder loses its worker ID';
COMMENT ON COLUMN snowflake_workers.contested_since IS
    'since when the registry has noted that server without a break; it may have asked before';
COMMENT ON COLUMN snowflake_workers.contested_last IS
    'when it has asked last, exact to 10 s';
COMMENT ON COLUMN snowflake_workers.role IS
    'the role as which the holder got the worker ID; only this role renews or returns the lease';

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.pool(stored jsonb, registry jsonb, now bigint, workers jsonb)
    RETURNS TABLE (pool text, namespace text, worker_ids int8range, except_ids int8multirange, spares integer,
        lease interval, hold interval, max_ahead interval, made timestamptz,
        leased bigint, free bigint, never_leased bigint, grace_until timestamptz, grace_because text, begins timestamptz, era bigint,
        stopped_since timestamptz, stopped_by text)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
BEGIN ATOMIC
    SELECT stored ->> 'name', stored ->> 'namespace', int8range(i.first, i.beyond), i.except_ids, i.spares::integer,
        t.lease * interval '1 ms', t.hold * interval '1 ms', t.max_ahead * interval '1 ms', _snowflake.instant((stored -> 'made')::bigint),
        c.leased, c.free + o.size - c.known, o.size - c.known, q.until, CASE WHEN q.until IS NOT NULL THEN registry #>> '{loss,cause}' END,
        _snowflake.instant(CASE WHEN b.begins > now THEN b.begins END), (registry #> '{era,counter}')::bigint, _snowflake.instant((registry #>> '{stopped,since}')::bigint),
        registry #>> '{stopped,by,host}'
    FROM (SELECT (stored #> '{ids,start}')::bigint, (stored #> '{ids,end}')::bigint, (stored -> 'spares')::bigint,
            _snowflake.ranges(stored -> 'except')) AS i (first, beyond, spares, except_ids)
    CROSS JOIN LATERAL (SELECT (stored -> 'lease')::bigint, (stored -> 'hold')::bigint, (stored -> 'max_ahead')::bigint)
        AS t (lease, hold, max_ahead)
    -- How far a bound that is lost can lie ahead of its holder's clock.
    CROSS JOIN LATERAL (SELECT least(t.lease, greatest(30000, (registry #>> '{loss,lost}')::bigint + t.hold))) AS g (growth)
    CROSS JOIN LATERAL (SELECT (stored -> 'made')::bigint, CASE WHEN (stored -> 'unused')::boolean THEN 0 ELSE t.lease + t.hold + t.max_ahead END,
        (registry #>> '{loss,top}')::bigint, (registry #>> '{loss,lost}')::bigint) AS f (made, led, top, lost)
    CROSS JOIN LATERAL (SELECT greatest(f.made + f.led, f.top + g.growth + 2 * t.hold + t.max_ahead,
        f.made + f.led + CASE WHEN f.top IS NOT NULL THEN greatest(0, least(f.top - f.made, f.lost)) + 2 * t.hold END)) AS b (begins)
    -- Computed once, not for each worker ID.
    CROSS JOIN LATERAL (SELECT int8multirange(int8range(i.first, i.beyond - i.spares)) - i.except_ids OFFSET 0) AS m (ordinary)
    CROSS JOIN LATERAL (SELECT sum(upper(u.ids) - lower(u.ids))::bigint FROM unnest(m.ordinary) AS u (ids)) AS o (size)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE w.state IN ('leased', 'expired', 'revoked')),
            count(*) FILTER (WHERE w.state IN ('free', 'released') AND m.ordinary @> w.id::bigint),
            count(*) FILTER (WHERE m.ordinary @> w.id::bigint)
        FROM jsonb_each_text(workers) AS w (id, state)) AS c (leased, free, known)
    LEFT JOIN LATERAL (
        SELECT u.until FROM (SELECT _snowflake.instant((registry #>> '{loss,grace_from}')::bigint + g.growth + t.hold)) AS u (until)
        WHERE u.until > _snowflake.instant(now)) AS q ON true;
END;
COMMENT ON FUNCTION _snowflake.pool(jsonb, jsonb, bigint, jsonb) IS
    'internal: a row of view snowflake_pools; workers: the state of each worker ID in view snowflake_workers';

CREATE VIEW @extschema@.snowflake_pools AS
SELECT p.*
FROM _snowflake.used AS u
CROSS JOIN LATERAL unnest(u.pools) AS s (pool)
CROSS JOIN LATERAL _snowflake.pool(s.pool, u.state, u.now,
    (SELECT jsonb_object_agg(w.worker_id, w.state)
        FROM _snowflake.workers(s.pool, u.namespaces, u.leases, u.live, u.now) AS w)) AS p;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_pools IS
    'the pools of the registry that this server uses, and the state of the registry';
COMMENT ON COLUMN snowflake_pools.pool IS 'name of the pool';
COMMENT ON COLUMN snowflake_pools.namespace IS 'pools of one namespace have different worker IDs';
COMMENT ON COLUMN snowflake_pools.worker_ids IS 'the worker IDs of the pool';
COMMENT ON COLUMN snowflake_pools.except_ids IS 'those of them that are not leased';
COMMENT ON COLUMN snowflake_pools.spares IS
    'how many of them, at the end, are spare: they are leased only to the server of the registry, right after it was promoted';
COMMENT ON COLUMN snowflake_pools.lease IS 'for how long a server issues IDs while it does not reach the registry';
COMMENT ON COLUMN snowflake_pools.hold IS
    'how long a worker ID is kept for its holder after leased_until, which is 30 s, or the lease if that is shorter, after the holder was heard';
COMMENT ON COLUMN snowflake_pools.max_ahead IS 'how far a generator may be ahead of its server''s clock';
COMMENT ON COLUMN snowflake_pools.made IS 'when the pool was made';
COMMENT ON COLUMN snowflake_pools.leased IS 'worker IDs that servers have, or that are kept for them';
COMMENT ON COLUMN snowflake_pools.free IS 'worker IDs that a server can get; those that were never leased count';
COMMENT ON COLUMN snowflake_pools.never_leased IS 'worker IDs that no server ever had';
COMMENT ON COLUMN snowflake_pools.grace_until IS
    'until when the registry leases no worker IDs, since it may have lost leases; NULL if it does';
COMMENT ON COLUMN snowflake_pools.grace_because IS
    'why it may have lost leases: origin (promoted, restored or copied), recovery (crash recovery, or a snapshot), '
    'serial or token (a server knows more than the registry), '
    'foreign (the registry is new, and a server has asked another one before), declared (snowflake_declare_registry()), '
    'new (a server has made the registry in etcd)';
COMMENT ON COLUMN snowflake_pools.begins IS
    'from when on a server with a worker ID that no server ever had issues IDs: later than now after a loss, '
    'above all, if the registry''s clock was wrong then, and after the pool was made if its worker IDs may have been used; NULL if at once';
COMMENT ON COLUMN snowflake_pools.era IS 'one more with each time that leases may have been lost';
COMMENT ON COLUMN snowflake_pools.stopped_since IS
    'since when the registry serves nobody, because a server has asked another copy of it that may have taken its place; NULL if it serves';
COMMENT ON COLUMN snowflake_pools.stopped_by IS 'host name of that server';

SET LOCAL search_path = pg_catalog, pg_temp;
-- Two worker IDs for each server, and a quarter of the pool, or one.
CREATE FUNCTION _snowflake.wanted_size(servers bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT greatest(2 * servers + 1, ceil(servers * 8 / 3.0))::bigint;
END;
COMMENT ON FUNCTION _snowflake.wanted_size(bigint) IS 'internal: how many worker IDs a pool needs at least for so many servers';

-- It reads the view with the rights of its reader.
CREATE FUNCTION _snowflake.pool_calls() RETURNS SETOF text
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE ROWS 10
BEGIN ATOMIC
    SELECT format('SELECT %s.snowflake_create_pool(%L, int8range(%s, %s), lease => %L, hold => %L, max_ahead => %L, '
        'except_ids => %L, spares => %s, namespace => %L, unused => false);',
        (SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
            WHERE e.extname = 'snowflake_id'),
        p.pool, lower(p.worker_ids), upper(p.worker_ids), p.lease, p.hold, p.max_ahead, p.except_ids, p.spares, p.namespace)
    FROM @extschema@.snowflake_pools AS p ORDER BY p.namespace, lower(p.worker_ids);
END;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON FUNCTION _snowflake.pool_calls() IS
    'internal: the calls of snowflake_create_pool() that make the pools again, for a database that was restored from a dump';
-- A right is granted on an object. For a pool from which generators lease worker IDs of their
-- own, this is a foreign server of the pool's name with this wrapper, which connects nowhere;
-- src/own_workers.rs says who may lease. Nobody but a superuser has USAGE on the wrapper, so
-- nobody else makes such a server.
CREATE FOREIGN DATA WRAPPER snowflake_pool;
COMMENT ON FOREIGN DATA WRAPPER snowflake_pool IS
    'for foreign servers with the names of pools: a role with USAGE on one may own generators that lease worker IDs from the pool';
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

-- What a statement returns on each worker.
CREATE FUNCTION _snowflake.on_workers(command text, OUT node text, OUT success boolean, OUT result text)
    RETURNS SETOF record LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A clone gets its data from its origin, and takes no changes.
    RETURN QUERY EXECUTE
        'SELECT format(''%s:%s'', w.nodename, w.nodeport), w.success, w.result
         FROM pg_catalog.run_command_on_workers($1) AS w ORDER BY w.nodename, w.nodeport'
        USING command;
END
$$;

-- Refuses a call on a worker.
CREATE FUNCTION _snowflake.check_coordinator(function text) RETURNS void
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

-- The label of a sequence; null if there is none.
CREATE FUNCTION _snowflake.label(generator regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.label FROM pg_seclabel AS l
    WHERE l.provider = 'snowflake_id' AND l.classoid = 'pg_class'::regclass
      AND l.objoid = generator AND l.objsubid = 0
$$;

-- The relation with this name; null if there is none. A name that is longer than any is not looked
-- up: PostgreSQL takes a time that grows with the square of its length, and cannot be cancelled.
CREATE FUNCTION _snowflake.find_relation(name text) RETURNS regclass
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN octet_length(name) <= 4096 THEN to_regclass(name) END
$$;

-- The label of a generator on this node, the worker ID, and why this node can issue no IDs
-- for a role.
CREATE FUNCTION _snowflake.readiness(name text, owner name) RETURNS jsonb
    LANGUAGE sql STABLE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    SELECT jsonb_build_object(
        'label', _snowflake.label(wanted.generator),
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
    FROM (SELECT _snowflake.find_relation(name) AS generator) AS wanted
    LEFT JOIN _snowflake.generators() AS g ON g.generator = wanted.generator
$$;

-- Refuses a generator of which some node can issue no IDs for a role, or of which two nodes
-- would issue the same.
CREATE FUNCTION _snowflake.check_nodes(generator regclass, owner name) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    generator_name text := _snowflake.name(generator);
    found text;
BEGIN
    WITH answer AS MATERIALIZED (
        SELECT 'this node' AS node, true AS success,
            _snowflake.readiness(generator_name, owner)::text AS result
        UNION ALL
        SELECT w.node, w.success, w.result
        FROM _snowflake.on_workers(format(
            'SELECT %s(%L::pg_catalog.text, %L::pg_catalog.name)',
            '_snowflake.readiness', generator_name, owner)) AS w
    ), node AS (
        SELECT a.node, CASE WHEN a.success THEN a.result::jsonb END AS it,
            CASE WHEN NOT a.success THEN a.result END AS error
        FROM answer AS a
    ), finding AS (
        SELECT n.node, coalesce(n.error, n.it->>'problem') AS problem FROM node AS n
        UNION ALL
        SELECT n.node, 'its label is another one than on the coordinator' FROM node AS n
        WHERE n.it->>'problem' IS NULL
          AND n.it->>'label' IS DISTINCT FROM _snowflake.label(generator)
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
            HINT = format('To bring a generator, its label and its grants to all nodes, run, and commit: '
                'SELECT * FROM snowflake_distribute_generator(%L)', generator_name);
    END IF;
END
$$;

-- How Citus distributes a table; null if it does not know the table.
CREATE FUNCTION _snowflake.distribution(relation regclass) RETURNS jsonb
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
        PERFORM _snowflake.check_coordinator('snowflake_set_default()');
        IF NOT current_setting('citus.enable_ddl_propagation')::boolean THEN
            RAISE EXCEPTION 'the default of table % would not reach the workers', _snowflake.name(relation)
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'citus.enable_ddl_propagation is off in this session.',
                HINT = 'SET citus.enable_ddl_propagation = on';
        END IF;
    END IF;
    RETURN found;
END
$$;

-- Whether the default of a column on this node uses a generator.
CREATE FUNCTION _snowflake.has_default(table_name text, column_name name, source text) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    -- pg_get_expr() would wait for the lock that the coordinator holds on this node, too.
    SELECT EXISTS (
        SELECT FROM pg_attribute AS a
        JOIN _snowflake.default_generators(a.attrelid) AS g ON g.number = a.attnum
        WHERE a.attrelid = _snowflake.find_relation(table_name) AND a.attname = column_name AND NOT a.attisdropped
          AND g.generator = _snowflake.find_relation(source))
$$;

-- Refuses a distribution column whose default is another one on some worker.
CREATE FUNCTION _snowflake.check_default(relation regclass, column_name name, generator regclass) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := _snowflake.name(relation);
    found text := (
        SELECT string_agg(format('%s: %s', w.node,
                CASE WHEN w.success THEN 'the default is missing, or another one' ELSE w.result END),
            '; ' ORDER BY w.node)
        FROM _snowflake.on_workers(format(
            'SELECT %s(%L::pg_catalog.text, %L::pg_catalog.name, %L::pg_catalog.text)',
            '_snowflake.has_default', table_name, column_name,
            _snowflake.name(generator))) AS w
        WHERE NOT w.success OR w.result <> 't');
BEGIN
    IF found IS NOT NULL THEN
        RAISE EXCEPTION '%.% has another default on some nodes of Citus', table_name, quote_ident(column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = found || '.',
            HINT = 'To send the table to the workers again: SELECT start_metadata_sync_to_all_nodes()';
    END IF;
END
$$;

-- The comments of a table and its parts, as statements.
CREATE FUNCTION _snowflake.comments(relation regclass) RETURNS SETOF text
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

-- Makes a table of Citus a local one, and says so before; returns the new table.
CREATE FUNCTION _snowflake.undistribute(relation regclass, column_name name, distribution jsonb) RETURNS regclass
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := _snowflake.name(relation);
BEGIN
    IF distribution->>'method' <> 'h' THEN
        RAISE EXCEPTION 'table % is not distributed by hash', table_name
            USING ERRCODE = 'feature_not_supported',
            DETAIL = format('"%s" is its distribution column, whose default Citus does not change, '
                'and the table cannot be distributed again as it is.', column_name),
            HINT = 'Make a table with the default, distribute it, and copy the rows.';
    END IF;
    RAISE NOTICE 'table % is undistributed, and distributed again', table_name
        USING DETAIL = format('"%s" is the distribution column, whose default Citus does not change. '
                'All rows are copied to this node and back, and the table is locked meanwhile.', column_name),
            HINT = 'If this node has no room for the rows, cancel this call: nothing has been changed.';
    -- Citus makes a new table of the same name.
    EXECUTE 'SELECT pg_catalog.undistribute_table($1)' USING relation;
    RETURN table_name::regclass;
END
$$;

-- Distributes a table by hash, in its group or with its number of shards, and gives it its
-- comments back.
CREATE FUNCTION _snowflake.distribute(relation regclass, distribution jsonb) RETURNS void
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

-- Gives a sequence that Citus has made on a worker the label that it has on the coordinator.
-- The library calls this function after ALTER SEQUENCE, where a sequence has the INCREMENT
-- of a generator's and no label: so Citus leaves it where it has made the sequence, for a
-- new table or on a new node.
CREATE FUNCTION _snowflake.adopt_label(generator regclass) RETURNS boolean
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
                '_snowflake.label', _snowflake.name(generator));
        IF coalesce(found, '') = '' THEN
            RETURN false;
        END IF;
        EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', generator, found);
        RETURN true;
    EXCEPTION WHEN others THEN
        RAISE WARNING 'sequence % did not get its label from the coordinator: %',
            _snowflake.name(generator), SQLERRM;
        RETURN false;
    END;
END
$$;

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.create_generator(name text, label text) RETURNS regclass
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_create_generator(name, label);
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- Makes or labels a generator on this node, with this owner and these grants; returns what
-- was done.
CREATE FUNCTION _snowflake.place_generator(name text, label text, owner name, grants jsonb) RETURNS text
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    generator regclass := _snowflake.find_relation(name);
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
        generator := _snowflake.create_generator(name, label);
        outcome := 'created';
    ELSE
        before := _snowflake.label(generator);
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

-- Does what _snowflake.place_generator() does, and undoes it; the error says why it cannot
-- be done.
CREATE FUNCTION _snowflake.try_generator(name text, label text, owner name, grants jsonb) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
BEGIN
    PERFORM _snowflake.place_generator(name, label, owner, grants);
    -- The handler undoes all that was done since BEGIN.
    RAISE EXCEPTION 'tried' USING ERRCODE = 'SFTRY';
EXCEPTION WHEN SQLSTATE 'SFTRY' THEN
    RETURN;
END
$$;

-- This function is not STRICT: NULL for the label has a meaning.
CREATE FUNCTION snowflake_distribute_generator(
    generator regclass, label text DEFAULT NULL, OUT node text, OUT outcome text)
    RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    generator_name text := _snowflake.name(generator);
    here text := _snowflake.label(generator);
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
            HINT = 'Without Citus, call snowflake_create_generator() with the same arguments on each server.';
    END IF;
    PERFORM _snowflake.check_coordinator('snowflake_distribute_generator()');
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = generator;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'relation with OID % does not exist', generator::oid
            USING ERRCODE = 'undefined_table';
    ELSIF class.relpersistence = 't' THEN
        RAISE EXCEPTION '% is a temporary sequence', generator_name
            USING ERRCODE = 'feature_not_supported', DETAIL = 'It belongs to this session, which the other nodes do not know.';
    ELSIF generator = _snowflake.default_generator() THEN
        RAISE EXCEPTION 'the default generator is on every node that has the extension'
            USING ERRCODE = 'wrong_object_type',
            HINT = 'Citus creates the extension on its nodes by itself.';
    ELSIF here IS NULL AND label IS NULL THEN
        RAISE EXCEPTION '% is not a generator', generator_name
            USING ERRCODE = 'wrong_object_type',
            HINT = 'Give the label, or make a generator: '
                'SELECT * FROM snowflake_distribute_generator(snowflake_create_generator(name, ...))';
    ELSIF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of generator %', generator_name
            USING ERRCODE = 'insufficient_privilege',
            HINT = format('Role %I owns it: that role and its members can do this.', pg_get_userbyid(class.relowner));
    END IF;

    IF label IS NULL OR label = here THEN
        -- Until the end of this transaction nobody changes the label here, so that no
        -- node gets a label that is an old one by then.
        EXECUTE format('SELECT FROM %s', generator);
        here := _snowflake.label(generator);
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
    IF EXISTS (SELECT FROM _snowflake.generators() AS g
               WHERE g.generator = class.oid AND g.problem IS NULL AND g.worker_id IS NULL)
    THEN
        RAISE EXCEPTION 'IDs of generator % carry no worker ID', generator_name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'With the same label, all nodes would issue the same IDs.',
            HINT = 'Give the layout a field for the worker ID, such as worker:10; '
                'or set a label of its own on each node, with another value of the fixed field.';
    END IF;
    node := 'this node';
    RETURN NEXT;

    grants := (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'grantee', CASE WHEN a.grantee <> 0 THEN pg_get_userbyid(a.grantee) END,
            'privilege', a.privilege_type, 'grantable', a.is_grantable)), '[]')
        FROM aclexplode(coalesce(class.relacl, acldefault('s', class.relowner))) AS a);
    placed := format('(%L::pg_catalog.text, %L::pg_catalog.text, %L::pg_catalog.name, %L::pg_catalog.jsonb)',
        generator_name, _snowflake.label(generator), pg_get_userbyid(class.relowner), grants);
    -- Each call on a worker is a transaction of its own. So all of them try first: a worker
    -- that is away, or refuses, is found before any of them has changed.
    failed := (
        SELECT string_agg(format('%s: %s', w.node, w.result), '; ' ORDER BY w.node)
        FROM _snowflake.on_workers(
            'SELECT _snowflake.try_generator' || placed) AS w
        WHERE NOT w.success);
    IF failed IS NOT NULL THEN
        RAISE EXCEPTION 'generator % cannot reach all nodes of Citus', generator_name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = failed || '.',
            HINT = 'Nothing was changed on any node. Remove the cause, and call this again.';
    END IF;
    FOR it IN
        SELECT w.node, w.success, w.result FROM _snowflake.on_workers(
            'SELECT _snowflake.place_generator' || placed) AS w
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
            HINT = 'The change was undone on this node, and stays on the nodes that the detail does not name. '
                'Remove the cause, and call this again.';
    END IF;
END
$$;
COMMENT ON FUNCTION snowflake_distribute_generator(regclass, text) IS
    'makes or relabels a generator on all nodes of Citus, with its owner and its grants; one '
    'row for each node. Called on the coordinator, again after a node was added';
-- snowflake_set_type() changes a key between bigint and snowflake, together with all columns of
-- foreign keys that reach it. Both types are stored alike, so PostgreSQL writes neither tables nor
-- the indexes of such columns anew.
--
-- The steps are those of set_default.sql, whose rules hold here too: look for obstacles before
-- any lock and again under the locks, change the columns, say what was done. PostgreSQL would name
-- one obstacle at a time, after it has waited for locks. It makes anew what depends on a column
-- only as indexes and constraints do; snowflake_convert() can make views and the like anew.
-- Statements about a table can run code of its owner, so each runs as that owner.

-- The topmost tables that have a column which a table inherits; the table itself if it does not
-- inherit it.
CREATE FUNCTION _snowflake.column_roots(relation regclass, column_name name) RETURNS SETOF regclass
    LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp
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

-- Columns and all columns of foreign keys that reach them, in the topmost tables that have them.
CREATE FUNCTION _snowflake.reached(relations oid[], names name[], OUT relation oid, OUT name name)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE reached (id, name) AS (
        SELECT t.root::oid, u.name
        FROM unnest(relations, names) AS u (id, name) CROSS JOIN _snowflake.column_roots(u.id, u.name) AS t (root)
        UNION
        SELECT t.root, h.attname
        FROM reached AS c
        CROSS JOIN _snowflake.inheritance(c.id, c.name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f'
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        CROSS JOIN _snowflake.column_roots(k.conrelid, h.attname) AS t (root)
        WHERE u.there = f.number)
    SELECT r.id, r.name FROM reached AS r
$$;

-- What keeps the type of columns from being changed, whichever it is: a line for each obstacle.
CREATE FUNCTION _snowflake.fixed_types(tables oid[], numbers smallint[]) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE members AS (
        SELECT u.member, u.number, format('%s.%I', _snowflake.name(u.member), a.attname) AS described, a.attinhcount, c.*
        FROM unnest(tables, numbers) AS u (member, number)
        JOIN pg_attribute AS a ON a.attrelid = u.member AND a.attnum = u.number
        JOIN pg_class AS c ON c.oid = u.member),
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
        SELECT m.member, m.reltype FROM members AS m
        UNION
        SELECT r.relation, h.within FROM row_types AS r JOIN holders AS h ON h.id = r.id)
    SELECT DISTINCT format('table %s is of type %s: change the type first', _snowflake.name(m.member), m.reloftype::regtype)
    FROM members AS m WHERE m.reloftype <> 0
    UNION ALL
    SELECT DISTINCT format('%s has the row type of table %s%s, and PostgreSQL cannot change the rows in it: %s first',
        CASE c.relkind WHEN 'i' THEN 'index ' || _snowflake.name(c.oid)
            ELSE format('column %s.%I', _snowflake.name(c.oid), a.attname) END,
        _snowflake.name(t.oid),
        CASE WHEN a.atttypid IN (y.oid, y.typarray) THEN '' ELSE ', within type ' || format_type(a.atttypid, NULL) END,
        CASE c.relkind WHEN 'i' THEN 'drop it' ELSE 'change its type' END)
    FROM row_types AS r
    JOIN pg_class AS t ON t.oid = r.relation
    JOIN pg_type AS y ON y.oid = t.reltype
    JOIN pg_attribute AS a ON a.atttypid = r.id AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'm', 'f', 'i')
    UNION ALL
    SELECT DISTINCT format('%s is a temporary table of another session', _snowflake.name(m.member))
    FROM members AS m WHERE m.relpersistence = 't' AND m.relnamespace <> pg_my_temp_schema()
    UNION ALL
    SELECT DISTINCT format('Citus distributes table %s: change it as the documentation of Citus says', _snowflake.name(m.member))
    FROM members AS m WHERE NOT m.relispartition AND _snowflake.distribution(m.member) IS NOT NULL
    UNION ALL
    SELECT format('table %s is partitioned by %s: PostgreSQL cannot change the type of such a column, '
        'so make a new table, and copy the rows', _snowflake.name(m.member), m.described)
    FROM members AS m
    WHERE EXISTS (SELECT FROM pg_depend AS d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = m.member AND d.objsubid = m.number
          AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.member AND d.refobjsubid = 0 AND d.deptype = 'i')
    UNION ALL
    SELECT DISTINCT format('%s is inherited from two tables, which PostgreSQL cannot change together', m.described)
    FROM members AS m WHERE m.attinhcount > 1
    UNION ALL
    -- It depends on an index that is made anew, but not on the column.
    SELECT DISTINCT format('constraint %I of table %s refers to a key that includes %s, '
        'so PostgreSQL cannot change that column: drop it before, and add it again after',
        k.conname, _snowflake.name(k.conrelid), m.described)
    FROM members AS m
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.member AND k.conparentid = 0 AND m.number <> ALL (k.confkey)
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND m.number = ANY (i.indkey::smallint[])
$$;

-- Rights that the owners of tables need to have their columns changed: a statement about a table
-- runs as its owner, unless he is the caller. The columns are of members of families, each with the
-- table at the top; a foreign key that a column has is made anew.
CREATE FUNCTION _snowflake.missing_rights(roots oid[], tables oid[], numbers smallint[]) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH members AS MATERIALIZED (
        SELECT u.root, u.number, c.* FROM unnest(roots, tables, numbers) AS u (root, member, number) JOIN pg_class AS c ON c.oid = u.member),
    keys AS MATERIALIZED (
        SELECT k.* FROM pg_constraint AS k
        WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM members AS m WHERE m.oid = k.conrelid AND m.number = ANY (k.conkey)))
    SELECT DISTINCT format('table %s belongs to role %I, which does not have the rights of role %I, the owner of %s: give both to one role',
        _snowflake.name(t.oid), pg_get_userbyid(t.relowner), pg_get_userbyid(m.relowner), _snowflake.name(m.oid))
    FROM members AS m JOIN pg_class AS t ON t.oid = m.root
    WHERE t.relowner <> quote_ident(current_user)::regrole AND NOT pg_has_role(t.relowner, m.relowner, 'USAGE')
    UNION ALL
    SELECT DISTINCT format('role %I, which owns table %s, needs: GRANT USAGE ON SCHEMA %I TO %1$I',
        pg_get_userbyid(m.relowner), _snowflake.name(m.oid), n.nspname)
    FROM members AS m
    CROSS JOIN LATERAL (
        SELECT m.relnamespace
        UNION SELECT f.relnamespace FROM keys AS k JOIN pg_class AS f ON f.oid = k.confrelid WHERE k.conrelid = m.oid) AS w (schema)
    JOIN pg_namespace AS n ON n.oid = w.schema AND m.relpersistence <> 't'
    WHERE m.relowner <> quote_ident(current_user)::regrole AND NOT has_schema_privilege(m.relowner, n.oid, 'USAGE')
    UNION ALL
    SELECT format('role %I, which owns table %s, needs for its constraint %I: GRANT REFERENCES ON TABLE %s TO %1$I',
        pg_get_userbyid(t.relowner), _snowflake.name(t.oid), k.conname, _snowflake.name(k.confrelid))
    FROM keys AS k JOIN pg_class AS t ON t.oid = k.conrelid
    WHERE t.relowner <> quote_ident(current_user)::regrole
      AND NOT (SELECT bool_and(has_column_privilege(t.relowner, k.confrelid, u.number, 'REFERENCES')) FROM unnest(k.confkey) AS u (number))
$$;

-- The columns that get a type, and those that have it already, in their tables, partitions and
-- child tables.
CREATE FUNCTION _snowflake.typed_columns(
    relation regclass, key name, type regtype,
    OUT root regclass, OUT name name, OUT member regclass, OUT number smallint,
    OUT old_type oid, OUT is_altered boolean, OUT identity "char", OUT described text)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.relation, r.name, f.member, f.number, a.atttypid, a.atttypid <> type, a.attidentity,
        format('%s.%I', _snowflake.name(f.member), r.name)
    FROM _snowflake.reached(ARRAY[relation::oid], ARRAY[key]) AS r
    CROSS JOIN _snowflake.inheritance(r.relation, r.name) AS f
    JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number
$$;

-- What keeps a key, and what refers to it, from getting a type.
CREATE FUNCTION _snowflake.obstacles_of_type(relation regclass, key name, type regtype, drops_identity boolean) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH columns AS MATERIALIZED (SELECT c.* FROM _snowflake.typed_columns(relation, key, type) AS c),
    altered AS (SELECT c.* FROM columns AS c WHERE c.is_altered),
    found (note) AS (
        -- All are locked, also those that are of the type already.
        SELECT format('must be owner of table %s', _snowflake.name(t.oid))
        FROM pg_class AS t WHERE t.oid IN (SELECT c.member FROM columns AS c) AND NOT pg_has_role(t.relowner, 'USAGE')
        UNION ALL
        SELECT format('column %s is of type %s: change it to bigint first', c.described, format_type(c.old_type, NULL))
        FROM altered AS c WHERE c.member = c.root AND c.old_type NOT IN ('bigint'::regtype, _snowflake.key_type())
        UNION ALL
        SELECT format('column %s is an identity: drop that first, or use snowflake_set_default() if it is to get IDs', c.described)
        FROM altered AS c
        WHERE c.identity <> '' AND NOT (drops_identity
            AND (c.member, c.name) IN (SELECT f.member, key FROM _snowflake.inheritance(relation, key) AS f))
        UNION ALL
        SELECT r FROM _snowflake.missing_rights(
            ARRAY(SELECT c.root::oid FROM altered AS c ORDER BY c.member, c.number),
            ARRAY(SELECT c.member::oid FROM altered AS c ORDER BY c.member, c.number),
            ARRAY(SELECT c.number FROM altered AS c ORDER BY c.member, c.number)) AS r
        UNION ALL
        SELECT f FROM _snowflake.fixed_types(
            ARRAY(SELECT c.member::oid FROM altered AS c ORDER BY c.member, c.number),
            ARRAY(SELECT c.number FROM altered AS c ORDER BY c.member, c.number)) AS f
        UNION ALL
        SELECT format('%s depends on column %s', CASE
                WHEN r.rulename = '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                WHEN g.oid IS NOT NULL THEN pg_describe_object('pg_class'::regclass, g.adrelid, g.adnum) || ', which is generated,'
                ELSE pg_describe_object(d.classid, d.objid, 0) END, c.described)
        FROM altered AS c
        JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.member AND d.refobjsubid = c.number
        LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_attrdef AS g ON d.classid = 'pg_attrdef'::regclass AND g.oid = d.objid AND g.adnum <> c.number
        LEFT JOIN pg_trigger AS t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
        WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass, 'pg_publication_rel'::regclass)
           OR g.oid IS NOT NULL OR t.tgparentid = 0)
    SELECT DISTINCT f.note FROM found AS f
$$;

-- Locks all tables that a change of the type needs, in the order of their OIDs, unless something is
-- in the way. The planner expects large families, as with _snowflake.inheritance().
CREATE FUNCTION _snowflake.lock_for_type(relation regclass, key name, type regtype, drops_identity boolean) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    obstacles text[];
    locks text[];
    planned text[];
BEGIN
    IF type NOT IN ('bigint'::regtype, _snowflake.key_type()) THEN
        RAISE EXCEPTION 'type % is neither bigint nor %', type, _snowflake.key_type()
            USING ERRCODE = 'invalid_parameter_value', HINT = 'IDs are of one of these two types.';
    END IF;
    FOR pass IN 1 .. 2 LOOP
        obstacles := ARRAY(
            SELECT o FROM _snowflake.obstacles_of_type(relation, key, type, drops_identity) AS o
            -- What the caller may do comes first.
            ORDER BY o NOT LIKE 'must be owner of %', o);
        IF obstacles <> '{}' THEN
            RAISE EXCEPTION 'cannot change the type of %.% to %: %', _snowflake.name(relation), quote_ident(key), type, obstacles[1]
                USING ERRCODE = CASE WHEN obstacles[1] LIKE 'must be owner of %' THEN 'insufficient_privilege'
                    ELSE 'object_not_in_prerequisite_state' END,
                DETAIL = coalesce('Further obstacles: ' || nullif(array_to_string(obstacles[2:], '; '), '') || '.',
                    'There is no other obstacle.'),
                HINT = 'Nothing has been changed. Remove what is in the way, and call again. Or call snowflake_convert() of extension '
                    'snowflake_id_convert with its argument type: it drops views and the like, and makes them again.';
        END IF;
        -- A foreign key that a column has is made anew, also one that refers to a table that keeps
        -- its type. The caller may refer to a table of another role, but not lock it here.
        locks := ARRAY(
            WITH columns AS MATERIALIZED (SELECT c.* FROM _snowflake.typed_columns(relation, key, type) AS c),
            tables (id, is_changed) AS (
                SELECT c.member::oid, true FROM columns AS c
                UNION ALL
                SELECT k.confrelid, false
                FROM columns AS c JOIN pg_constraint AS k ON k.contype = 'f' AND k.conrelid = c.member AND c.number = ANY (k.conkey)
                WHERE c.is_altered)
            SELECT format('LOCK TABLE ONLY %s IN %s MODE', t.id::regclass,
                CASE WHEN bool_or(t.is_changed) THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END)
            FROM tables AS t JOIN pg_class AS c ON c.oid = t.id
            -- A foreign table cannot be locked so.
            WHERE c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE') AND EXISTS (SELECT FROM columns AS a WHERE a.is_altered)
            GROUP BY t.id ORDER BY t.id);
        IF pass = 2 AND locks IS DISTINCT FROM planned THEN
            RAISE EXCEPTION 'could not change the type of %.%: tables were changed before they were locked',
                _snowflake.name(relation), quote_ident(key)
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again.';
        END IF;
        EXIT WHEN pass = 2;
        planned := locks;
        FOR i IN 1 .. cardinality(locks) LOOP
            EXECUTE locks[i];
        END LOOP;
    END LOOP;
END
$$;

-- Changes the columns, under the locks, and returns what was done.
CREATE FUNCTION _snowflake.change_type(relation regclass, key name, type regtype) RETURNS text[]
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    it record;
    changes text[] := '{}';
    measured text[] := '{}';
BEGIN
    FOR it IN
        SELECT c.root, string_agg(format('ALTER COLUMN %I TYPE %s', c.name, type), ', ' ORDER BY c.number) AS parts,
            array_agg(format('%s: type %s changed to %s', c.described, format_type(c.old_type, NULL), type) ORDER BY c.number) AS changes,
            bool_or(EXISTS (SELECT FROM _snowflake.inheritance(c.root, c.name) AS f
                JOIN pg_class AS t ON t.oid = f.member AND t.reltuples > 0)) AS is_measured
        FROM _snowflake.typed_columns(relation, key, type) AS c
        WHERE c.is_altered AND c.member = c.root
        GROUP BY c.root ORDER BY c.root
    LOOP
        PERFORM _snowflake.run_as_owner(it.root, format('ALTER TABLE %s %s', it.root, it.parts));
        changes := changes || it.changes;
        IF it.is_measured THEN
            measured := measured || _snowflake.name(it.root);
        END IF;
    END LOOP;
    IF measured <> '{}' THEN
        -- Here it would keep the locks.
        RAISE NOTICE 'the planner''s statistics of the changed columns are gone'
            USING HINT = format('After COMMIT: ANALYZE %s', array_to_string(measured, ', '));
    END IF;
    RETURN CASE WHEN changes = '{}' THEN ARRAY[format('%s.%I: type is %s already', _snowflake.name(relation), key, type)] ELSE changes END;
END
$$;

-- This function is not STRICT: NULL for the column has a meaning.
CREATE FUNCTION snowflake_set_type(
    relation regclass, column_name name DEFAULT NULL, type regtype DEFAULT '@extschema@.snowflake'::regtype) RETURNS text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    key name;
BEGIN
    IF relation IS NULL OR type IS NULL THEN
        RAISE EXCEPTION 'table and type must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION 'cannot execute snowflake_set_type() in a read-only transaction'
            USING ERRCODE = 'read_only_sql_transaction';
    ELSIF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = relation AND c.relkind IN ('r', 'p')) THEN
        RAISE EXCEPTION '% is not a table', coalesce(_snowflake.name(relation), relation::text)
            USING ERRCODE = 'wrong_object_type', HINT = 'Name a table, partitioned or not.';
    END IF;
    key := _snowflake.key_column(relation, column_name, 'snowflake_set_type');
    PERFORM _snowflake.lock_for_type(relation, key, type, false);
    RETURN array_to_string(_snowflake.change_type(relation, key, type), '; ');
END
$$;
COMMENT ON FUNCTION snowflake_set_type(regclass, name, regtype) IS
    'changes a column, by default that of the primary key, from bigint to snowflake or back, '
    'with all columns of foreign keys that reach it and without writing tables anew; returns what was done';
-- snowflake_check() looks at the IDs that a table holds: it decodes them, counts them by
-- worker ID and day, and reports those that its generator cannot have made.
--
-- One statement reads the table, once and only as far as the sample goes. Another one
-- makes the findings of what the first has counted. Both run with the caller's rights. A
-- policy that would hide rows from the caller is an error, since a check that has not
-- seen all rows says nothing.
--
-- The rules for names and for search_path are those at the head of set_default.sql.

-- src/sql/check.rs has the next six: each by the default generator, a generator or a layout.

-- Like snowflake_timestamp(), but NULL if the generator cannot have made the ID, or the layout
-- has no such ID; and -infinity if the layout has no negative IDs and the ID is negative.
CREATE FUNCTION _snowflake.instant_or_null(id bigint) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null';
CREATE FUNCTION _snowflake.instant_or_null(id bigint, generator regclass) RETURNS timestamptz
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null';
CREATE FUNCTION _snowflake.instant_or_null_as(id bigint, layout text) RETURNS timestamptz
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_instant_or_null_as';

-- Up to which number a value comes from a sequence rather than from the generator (-1: no value
-- can be told); how far the generator may lead the clock by borrowing, and after the clock was
-- set back.
CREATE FUNCTION _snowflake.check_limits(OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval, OUT greatest_worker bigint)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits';
CREATE FUNCTION _snowflake.check_limits(
    generator regclass, OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval, OUT greatest_worker bigint)
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits';
CREATE FUNCTION _snowflake.check_limits_as(
    layout text, OUT greatest_small bigint, OUT max_borrow interval, OUT max_rollback interval, OUT greatest_worker bigint)
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_check_limits_as';

-- All worker IDs that the registry of this database has ever leased, of all pools and namespaces,
-- dropped ones included, and those that its pools leave out, which are of servers with a fixed
-- worker ID; NULL if there are none. Who may read it sees no more of the tables. It is made as the
-- views of registry.sql are, out of reach of functions that others made.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW _snowflake.leased AS
SELECT range_agg(u.ids) AS worker_ids
FROM (SELECT int8range(l.worker_id, l.worker_id, '[]') FROM _snowflake.leases AS l
    UNION ALL SELECT unnest(p.except_ids) FROM _snowflake.pools AS p) AS u (ids);

-- The worker ID of an ID.
CREATE FUNCTION _snowflake.worker_of(id bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_worker_of';
CREATE FUNCTION _snowflake.worker_of(id bigint, generator regclass) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_worker_of';
CREATE FUNCTION _snowflake.worker_of_as(id bigint, layout text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_internal_worker_of_as';
SET LOCAL search_path = @extschema@, pg_temp;

-- The worker IDs that the registry of this database knows, and this server's; NULL if it
-- knows none; and where they come from, or why there are none. The planner takes the views of
-- the registry for expensive, since it knows nothing of the tables of a small registry;
-- compiling them would take a second.
CREATE FUNCTION _snowflake.known_workers(OUT worker_ids int8multirange, OUT source text)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
    IF NOT has_table_privilege('_snowflake.leased', 'SELECT') THEN
        source := 'the current role may not read the registry of worker IDs';
        RETURN;
    END IF;
    SELECT l.worker_ids INTO worker_ids FROM _snowflake.leased AS l;
    IF worker_ids IS NULL THEN
        source := 'this database has no registry of worker IDs, or it has leased none';
        RETURN;
    END IF;
    source := 'the registry of this database';
    BEGIN
        worker_ids := worker_ids + coalesce((
            SELECT int8multirange(int8range(w.worker_id, w.worker_id, '[]'))
            FROM _snowflake.own_worker() AS w WHERE w.worker_id IS NOT NULL), '{}');
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        -- Without the library, this server has made no IDs.
        NULL;
    END;
END
$$;

-- Whether the caller may do all that the owner of a table may.
CREATE FUNCTION _snowflake.reads_as_owner(relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = relation
$$;

-- Counts the IDs in a column by what they are, worker ID and day.
CREATE FUNCTION _snowflake.count_ids(
    relation regclass, column_name name, sample double precision, suffix text, arguments text,
    greatest_small bigint, latest timestamptz)
    RETURNS TABLE (kind text, worker_id bigint, day date, ids bigint,
        least_id bigint, greatest_id bigint, first timestamptz, last timestamptz)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    -- %1$s table, %2$I column, %3$s sample, %4$s suffix, %5$s arguments,
    -- %6$L greatest_small, %7$L latest. With OFFSET, the planner does not copy the function to each
    -- place that names its result.
    query text := format($query$
SELECT k.kind,
    CASE WHEN k.kind IN ('fine', 'future') THEN _snowflake.worker_of%4$s(i.id%5$s) END,
    CASE WHEN k.kind = 'fine' THEN (i.at AT TIME ZONE 'UTC')::date END,
    count(*), min(i.id), max(i.id), min(i.at), max(i.at)
FROM (SELECT t.%2$I::bigint AS id,
          _snowflake.instant_or_null%4$s(t.%2$I::bigint%5$s) AS at
      FROM %1$s AS t %3$s WHERE t.%2$I IS NOT NULL OFFSET 0) AS i
CROSS JOIN LATERAL (SELECT CASE
    WHEN i.id BETWEEN 0 AND %6$L::bigint THEN 'small'
    WHEN i.at IS NULL THEN 'foreign'
    WHEN i.at = '-infinity' THEN 'negative'
    WHEN i.at > %7$L::timestamptz THEN 'future'
    ELSE 'fine' END) AS k (kind)
GROUP BY 1, 2, 3
$query$, relation, column_name,
        CASE WHEN sample < 100 THEN format('TABLESAMPLE SYSTEM (%s)', sample) ELSE '' END,
        suffix, arguments, greatest_small, latest);
BEGIN
    -- Planning runs functions in the conditions of indexes and of the table, which are its
    -- owner's. A superuser, or another role that may do all that the owner may, reads as the
    -- owner, and lends her nothing.
    IF _snowflake.reads_as_owner(relation) THEN
        RETURN QUERY SELECT r.* FROM jsonb_to_recordset(_snowflake.read_as_owner(relation, format(
                'SELECT coalesce(jsonb_agg(to_jsonb(r)), %L) FROM (%s) AS r '
                '(kind, worker_id, day, ids, least_id, greatest_id, first, last)',
                '[]', query))::jsonb)
            AS r (kind text, worker_id bigint, day date, ids bigint,
                least_id bigint, greatest_id bigint, first timestamptz, last timestamptz);
    ELSE
        RETURN QUERY EXECUTE query;
    END IF;
END
$$;

-- This function is not STRICT: NULL has a meaning for most arguments.
CREATE FUNCTION snowflake_check(
    relation regclass, column_name name DEFAULT NULL, sample double precision DEFAULT 100,
    generator regclass DEFAULT NULL, layout text DEFAULT NULL, worker_ids int8multirange DEFAULT NULL,
    max_rows integer DEFAULT 1000)
    RETURNS TABLE (severity text, finding text, worker_id bigint, day date, ids bigint,
        least_id bigint, greatest_id bigint, detail text, hint text)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp SET row_security = off
    SET quote_all_identifiers = off SET standard_conforming_strings = on
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
    arguments text; -- the generator or the layout, after a comma
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
    table_name := _snowflake.name(relation);
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
              (SELECT min(g.number) FROM _snowflake.default_generators(relation) AS g
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
    ELSIF (_snowflake.base_type(it.atttypid, it.atttypmod)).base <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'column "%" of table % is of type %, not bigint',
            it.attname, table_name, format_type(it.atttypid, it.atttypmod)
            USING ERRCODE = 'datatype_mismatch', HINT = 'Name a bigint column.';
    END IF;
    -- PostgreSQL takes no sample of a foreign table, and would read all of it.
    IF sample < 100 THEN
        SELECT f.member INTO foreign_table
        FROM _snowflake.inheritance(relation, it.attname) AS f
        JOIN pg_class AS c ON c.oid = f.member AND c.relkind = 'f' LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'cannot read a sample of %', table_name
                USING ERRCODE = 'wrong_object_type',
                DETAIL = format('It has foreign table %s as a partition or a child table, and foreign tables have no samples.',
                    _snowflake.name(foreign_table)),
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
        FROM _snowflake.default_generators(relation) AS g
        WHERE g.number = it.attnum;
        found_generator := coalesce(generator, found_generator);
        IF found_generator IS NULL THEN
            RAISE EXCEPTION 'which generator makes the IDs in column "%" of table % is not clear', it.attname, table_name
                USING ERRCODE = 'invalid_parameter_value',
                DETAIL = CASE WHEN has_generator THEN 'The default of the column names no generator, or several.'
                    ELSE 'The column takes no IDs of a generator by default.' END,
                HINT = format('Name the generator, as in snowflake_check(%L, %L, generator => %L), '
                    'or the layout of another system, as in layout => %L',
                    table_name, it.attname, 'snowflake_default', 'preset=twitter');
        END IF;
        -- The functions without a generator know the layout of the default one by heart.
        IF found_generator <> _snowflake.default_generator() THEN
            whose := format('%L::regclass', found_generator);
        END IF;
        maker := format('generator %s', _snowflake.name(found_generator));
        IF known IS NULL THEN
            SELECT w.worker_ids, w.source INTO known, source
            FROM _snowflake.known_workers() AS w;
        END IF;
    END IF;
    reading := CASE WHEN sample = 100 THEN 'all rows were read'
        ELSE format('the rows in %s %% of the pages were read, chosen at random', sample) END;

    -- What is most often wrong, a privilege or a label, is found by these statements: an
    -- error shows the statement, and the one below is long.
    IF NOT _snowflake.reads_as_owner(relation) THEN
        EXECUTE format('SELECT %I FROM %s LIMIT 0', it.attname, relation);
    END IF;
    EXECUTE format('SELECT l.* FROM _snowflake.check_limits%s(%s) AS l',
        suffix, whose) INTO limits;
    latest := now + greatest(interval '1 minute', limits.max_borrow);
    farthest := now + greatest(interval '1 day', limits.max_rollback) + limits.max_borrow;

    arguments := coalesce(', ' || nullif(whose, ''), '');
    instant := format('_snowflake.instant_or_null%s(%I%s)', suffix, it.attname, arguments);
    worker := format('(%I.snowflake_decode%s(%I%s)).worker_id',
        (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
            WHERE e.extname = 'snowflake_id'), suffix, it.attname, arguments);
    rows_where := format('The rows: SELECT * FROM %s WHERE ', table_name);
    is_no_small := CASE WHEN limits.greatest_small > 0
        THEN format('%I NOT BETWEEN 0 AND %s AND ', it.attname, limits.greatest_small) ELSE '' END;

    RETURN QUERY
    WITH groups AS MATERIALIZED (
        SELECT c.* FROM _snowflake.count_ids(
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
            CASE WHEN a.by_far THEN 'No generator leads so far, unless this server''s clock is slow. '
                    'Find out what else writes to the column, or name the generator or the layout that made them. '
                ELSE 'Compare the clocks of the servers: snowflake_check_cluster(). This server''s clock may be slow. '
                    'A generator also leads after its clock was set back, and after snowflake_advance(). ' END
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
            format('Numbers up to %s come from a sequence: as IDs they would be of the first instants after the epoch.', limits.greatest_small),
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
    'checks the IDs that a column holds: IDs that its generator or layout cannot have made, of the '
    'future, before the epoch, of unknown worker IDs; and counts them by worker ID and day';
-- snowflake_partition() makes and drops the partitions of a table by time. No step is stored: each
-- transaction looks at the catalogs, finds the next statement, runs it and commits, so that no
-- lock is held for longer than one statement takes, and a call that was interrupted is repeated.
--
-- What time it is, the generator says, by an ID: a clock that has jumped too far is refused, as for
-- all IDs. A job that asked the wall clock would drop everything on the day on which it is wrong.

-- The least ID of an instant, or of the epoch if that is later; and the present. What belongs to
-- the schema of the extension has its names bound when it is made.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.bound(at timestamptz, generator regclass) RETURNS bigint
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_min_id(GREATEST(at, @extschema@.snowflake_timestamp(0::bigint, generator)), generator);
END;
CREATE FUNCTION _snowflake.present(generator regclass) RETURNS timestamptz
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_timestamp(@extschema@.snowflake_nextval(generator), generator);
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- The partitions of a table that have bounds, without one whose DETACH CONCURRENTLY has begun.
CREATE FUNCTION _snowflake.partitions(parent regclass, OUT part regclass, OUT lower_bound bigint, OUT upper_bound bigint)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    SELECT c.oid::regclass, CASE b.found[1] WHEN 'MINVALUE' THEN -9223372036854775808 ELSE btrim(b.found[1], '''')::bigint END,
        CASE b.found[2] WHEN 'MAXVALUE' THEN 9223372036854775807 ELSE btrim(b.found[2], '''')::bigint END
    FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid
    CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \((.*)\) TO \((.*)\)$') AS b (found)
    WHERE i.inhparent = parent AND NOT i.inhdetachpending AND b.found IS NOT NULL
$$;

-- The statements that make the next partition, or drop the oldest; null if nothing is left to do.
CREATE FUNCTION _snowflake.partition_step(parent regclass, every interval, ahead integer, keep interval, generator regclass) RETURNS text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    months integer := CASE WHEN isfinite(every) THEN extract(year FROM every) * 12 + extract(month FROM every) END;
    base constant timestamp := '2001-01-01';  -- the first day of a week, a month, a quarter and a year
    present timestamptz;
    utc timestamp;
    periods double precision;                 -- from the base to the present
    part name;
    it record;
    gap record;
BEGIN
    IF months IS NULL OR every < interval '1 minute' OR months <> 0 AND every <> make_interval(months => months) THEN
        RAISE EXCEPTION 'cannot make partitions of %', coalesce(every::text, 'null') USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give whole months, as in ''3 months'', or a minute or more without months, as in ''7 days''.';
    ELSIF (ahead BETWEEN 1 AND 100) IS NOT TRUE THEN
        RAISE EXCEPTION 'ahead must be from 1 to 100, not %', coalesce(ahead::text, 'null') USING ERRCODE = 'invalid_parameter_value';
    ELSIF keep <= interval '0' THEN
        RAISE EXCEPTION 'cannot keep rows for %', keep USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give the age from which partitions are dropped, as in ''90 days'', or null to keep all.';
    END IF;
    SELECT c.relname, c.relnamespace::regnamespace AS schema, p.partattrs[0] AS number,
        coalesce((SELECT format(' USING %I', a.amname) FROM pg_am AS a WHERE a.oid = c.relam), '')
            || coalesce((SELECT format(' TABLESPACE %I', t.spcname) FROM pg_tablespace AS t WHERE t.oid = c.reltablespace), '') AS place
    INTO it FROM pg_class AS c JOIN pg_partitioned_table AS p ON p.partrelid = c.oid AND p.partstrat = 'r' AND p.partnatts = 1
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0]
    WHERE c.oid = parent AND (_snowflake.base_type(a.atttypid, a.atttypmod)).base = 'bigint'::regtype;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not partitioned by ranges of one bigint column', coalesce(_snowflake.name(parent), 'null')
            USING ERRCODE = 'wrong_object_type', HINT = 'Make the table with PARTITION BY RANGE (id).';
    END IF;
    generator := coalesce(generator, (SELECT g.generator FROM _snowflake.default_generators(parent) AS g WHERE g.number = it.number));
    IF generator IS NULL THEN
        RAISE EXCEPTION 'the key of % takes no IDs of a generator by its default', _snowflake.name(parent)
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Set the default by snowflake_set_default(), or name a generator with the layout of these IDs: generator => ''snowflake_default''.';
    END IF;

    present := _snowflake.present(generator);
    utc := present AT TIME ZONE 'UTC';
    periods := floor(CASE WHEN months > 0 THEN (extract(year FROM utc) * 12 + extract(month FROM utc) - extract(year FROM base) * 12 - 1) / months
        ELSE extract(epoch FROM utc - base) / extract(epoch FROM every) END);
    -- From the first instant of a period that no partition has, to its end or the next partition.
    WITH taken AS MATERIALIZED (SELECT p.lower_bound, p.upper_bound FROM _snowflake.partitions(parent) AS p
        WHERE p.upper_bound > _snowflake.bound((base + periods * every) AT TIME ZONE 'UTC', generator))
    SELECT f.id AS lower_bound, LEAST(w.upper_bound, (SELECT min(t.lower_bound) FROM taken AS t WHERE t.lower_bound > f.id)) AS upper_bound
    INTO gap FROM generate_series(0, ahead) AS n
    CROSS JOIN LATERAL (SELECT _snowflake.bound((base + (periods + n) * every) AT TIME ZONE 'UTC', generator) AS lower_bound,
        _snowflake.bound((base + (periods + n + 1) * every) AT TIME ZONE 'UTC', generator) AS upper_bound) AS w
    CROSS JOIN LATERAL (SELECT w.lower_bound AS id UNION ALL
        SELECT t.upper_bound FROM taken AS t WHERE t.upper_bound > w.lower_bound AND t.upper_bound < w.upper_bound) AS f
    WHERE NOT EXISTS (SELECT FROM taken AS t WHERE t.lower_bound <= f.id AND f.id < t.upper_bound)
    ORDER BY f.id LIMIT 1;
    IF FOUND THEN
        utc := _snowflake.instant_or_null(gap.lower_bound, generator) AT TIME ZONE 'UTC';
        -- What a name has no room for is cut off where the table's name ends. If somebody has the name, the
        -- next one is free: a name says nothing here.
        SELECT f.name INTO part FROM generate_series(0, 9999) AS n
        CROSS JOIN LATERAL (SELECT to_char(utc, CASE WHEN utc = date_trunc('day', utc) THEN '_YYYYMMDD' ELSE '_YYYYMMDD_HH24MISS' END)
            || CASE WHEN n > 0 THEN '_' || n ELSE '' END AS suffix) AS s
        CROSS JOIN LATERAL (SELECT (right((s.suffix || it.relname)::name::text, -length(s.suffix)) || s.suffix)::name AS name) AS f
        WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = it.schema AND c.relname = f.name)
          AND NOT EXISTS (SELECT FROM pg_type AS y WHERE y.typnamespace = it.schema AND y.typname = f.name)
        ORDER BY n LIMIT 1;
        -- Unlike CREATE TABLE ... PARTITION OF, ATTACH PARTITION keeps nobody from reading and writing the table.
        RETURN format('CREATE TABLE %1$s.%2$I (LIKE %3$s INCLUDING ALL EXCLUDING IDENTITY)%4$s; '
            'ALTER TABLE %3$s ATTACH PARTITION %1$s.%2$I FOR VALUES FROM (%5$L) TO (%6$L)',
            it.schema, part, _snowflake.name(parent), it.place, gap.lower_bound, gap.upper_bound);
    END IF;

    RETURN (SELECT format('ALTER TABLE %1$s DETACH PARTITION %2$s; DROP TABLE %2$s', _snowflake.name(parent), _snowflake.name(p.part))
        FROM _snowflake.partitions(parent) AS p
        WHERE p.upper_bound <= _snowflake.bound(LEAST(present, now()) - keep, generator) ORDER BY p.upper_bound LIMIT 1);
END
$$;

-- Makes the settings that names and texts depend on, until the transaction ends. A procedure
-- that ends transactions cannot have settings of its own, so it makes them in each of its
-- transactions. Nothing here may depend on them.
CREATE FUNCTION _snowflake.fix_settings() RETURNS void
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
AS $$
    SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('quote_all_identifiers', 'off', true),
        pg_catalog.set_config('standard_conforming_strings', 'on', true)
$$;

CREATE PROCEDURE snowflake_partition(
    parent regclass, every interval DEFAULT '1 day', ahead integer DEFAULT 7, keep interval DEFAULT NULL, generator regclass DEFAULT NULL)
    LANGUAGE plpgsql
AS $$
DECLARE
    statement pg_catalog.text;
BEGIN
    LOOP
        -- First of all: what comes before is of the caller. It fails in a transaction block.
        COMMIT;
        PERFORM _snowflake.fix_settings();
        -- Who waits for a lock makes all others wait behind it.
        PERFORM set_config('lock_timeout', CASE current_setting('lock_timeout') WHEN '0' THEN '2s' ELSE current_setting('lock_timeout') END, true);
        PERFORM _snowflake.run_as_owner(parent, format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', _snowflake.name(parent)));
        statement := _snowflake.partition_step(parent, every, ahead, keep, generator);
        PERFORM _snowflake.run_as_owner(parent, statement);
        COMMIT;
        EXIT WHEN statement IS NULL;
    END LOOP;
END
$$;
COMMENT ON PROCEDURE snowflake_partition(regclass, interval, integer, interval, regclass) IS
    'makes the partitions of the present and of the periods ahead that are missing, by the time in IDs, and drops those that are wholly older than keep';
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
-- The horizon: IDs before it can no longer appear. See docs/ordered.md.

-- snowflake_horizon() is VOLATILE, since each call answers anew, and PARALLEL UNSAFE, since
-- a reservation may write, as with snowflake_nextval(). The planner asks the support
-- function, which refuses queries that read tables beside it.

-- Refuses snowflake_horizon() in queries that read tables.
CREATE FUNCTION _snowflake.horizon_support(internal) RETURNS internal
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_horizon_support';

CREATE FUNCTION snowflake_horizon() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SUPPORT _snowflake.horizon_support AS 'MODULE_PATHNAME', 'snowflake_horizon';
COMMENT ON FUNCTION snowflake_horizon() IS
    'no ID of the default generator below this can appear on this server any more, of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_horizon(generator regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SUPPORT _snowflake.horizon_support AS 'MODULE_PATHNAME', 'snowflake_horizon';
COMMENT ON FUNCTION snowflake_horizon(regclass) IS
    'no ID of a generator below this can appear on this server any more, of IDs that the inserting transaction has taken';

-- A trigger function is not STRICT: it has no arguments.
CREATE FUNCTION snowflake_check_horizon() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'snowflake_check_horizon';
COMMENT ON FUNCTION snowflake_check_horizon() IS
    'trigger BEFORE INSERT, FOR EACH ROW, for tables that are polled: refuses IDs from elsewhere that lie before the horizon. '
    'Arguments: the column (by default the primary key), the generator (by default that of the column''s default)';

-- Running transactions of this database that hold back a horizon by a place in shared memory.
-- Details of other sessions are shown as in pg_stat_activity.
CREATE FUNCTION _snowflake.horizon_held(OUT pid integer, OUT generator regclass, OUT since timestamptz) RETURNS SETOF record
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED ROWS 10 AS 'MODULE_PATHNAME', 'snowflake_horizon_held';

-- Where pg_catalog has no operator of exactly these types, it is named: another one in the
-- extension's schema would be taken, even one that another role made.
CREATE VIEW snowflake_horizon_holders AS
    -- Prepared transactions, by the lock that each has. There may be thousands of other locks.
    WITH x AS MATERIALIZED (
        SELECT l.virtualtransaction, l.transactionid FROM pg_catalog.pg_locks l
        WHERE l.locktype = 'transactionid' AND l.pid IS NULL AND l.mode = 'ExclusiveLock'),
    held AS (
        SELECT h.pid, NULL::text AS gid, h.generator, h.since, NULL::name AS owner,
            NULL::timestamptz AS prepared
        FROM _snowflake.horizon_held() h
        UNION ALL
        -- Prepared transactions, and generators for which a session had no place: see
        -- src/tx_holds.rs for what the lock says. Of several locks, the earliest counts.
        SELECT l.pid, p.gid, g.generator,
            CASE WHEN pg_catalog.has_sequence_privilege(g.generator::pg_catalog.oid, 'SELECT, USAGE')
                OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
            THEN pg_catalog.min(pg_catalog.to_timestamp(
                (l.objsubid::bigint * 4294967296 + l.objid::bigint) OPERATOR(pg_catalog./) 1000.0)) END,
            p.owner, p.prepared
        FROM pg_catalog.pg_locks l
        CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN l.classid OPERATOR(pg_catalog.<>) 0 THEN l.classid END,
            'snowflake_default'::pg_catalog.regclass::pg_catalog.oid)::pg_catalog.regclass AS generator) g
        LEFT JOIN x ON l.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
        LEFT JOIN pg_catalog.pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = x.transactionid
        WHERE l.locktype = 'userlock' AND l.mode = 'ShareLock'
            AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                WHERE d.datname = pg_catalog.current_database())
        GROUP BY l.pid, l.virtualtransaction, p.gid, g.generator, p.owner, p.prepared)
    SELECT h.pid, h.gid, h.generator, h.since,
        greatest(pg_catalog.date_trunc('milliseconds', pg_catalog.clock_timestamp() - h.since), '0') AS held_for,
        coalesce(a.usename, h.owner) AS usename, a.application_name, a.client_addr,
        CASE WHEN h.pid IS NULL THEN 'prepared' ELSE a.state END AS state,
        coalesce(a.xact_start, h.prepared) AS xact_start, a.query
    FROM held h
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid;
COMMENT ON VIEW snowflake_horizon_holders IS 'transactions of this database that hold back snowflake_horizon(), running and prepared';
COMMENT ON COLUMN snowflake_horizon_holders.pid IS 'process of a running transaction; null for a prepared one';
COMMENT ON COLUMN snowflake_horizon_holders.gid IS
    'name of a prepared transaction, for COMMIT PREPARED or ROLLBACK PREPARED; null for a running one';
COMMENT ON COLUMN snowflake_horizon_holders.generator IS 'the generator whose horizon is held back';
COMMENT ON COLUMN snowflake_horizon_holders.since IS
    'the instant of the first ID that the transaction has taken, or one shortly before: the '
    'horizon does not pass it; null for users who may not use the generator';
COMMENT ON COLUMN snowflake_horizon_holders.held_for IS 'how long ago that was, by the wall clock; 0 while the generator is ahead of it';
COMMENT ON COLUMN snowflake_horizon_holders.usename IS 'role of the session, or owner of the prepared transaction';
COMMENT ON COLUMN snowflake_horizon_holders.application_name IS 'as in pg_stat_activity';
COMMENT ON COLUMN snowflake_horizon_holders.client_addr IS 'as in pg_stat_activity';
COMMENT ON COLUMN snowflake_horizon_holders.state IS 'as in pg_stat_activity; prepared for a prepared transaction';
COMMENT ON COLUMN snowflake_horizon_holders.xact_start IS 'when the transaction began, or was prepared';
COMMENT ON COLUMN snowflake_horizon_holders.query IS 'as in pg_stat_activity';
-- The horizon of a cluster: IDs before it cannot appear any more on any server that leases
-- worker IDs from this registry. See docs/ordered.md; crates/core/src/lease/cluster_horizon.rs has
-- the rules, and src/registry/servers.rs reads and writes table _snowflake.servers for them.

-- snowflake_cluster_horizon() is VOLATILE, since each call answers anew. It locks and changes
-- nothing, so whoever may call it stops nobody.

CREATE FUNCTION snowflake_cluster_horizon() RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SUPPORT _snowflake.horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_cluster_horizon';
COMMENT ON FUNCTION snowflake_cluster_horizon() IS
    'no ID of the default generator below this can appear any more on any server of the registry, '
    'of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_cluster_horizon(generator regclass, registry text DEFAULT '') RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SUPPORT _snowflake.horizon_support
    AS 'MODULE_PATHNAME', 'snowflake_cluster_horizon';
COMMENT ON FUNCTION snowflake_cluster_horizon(regclass, text) IS
    'no ID of a generator with this one''s label below this can appear any more on any server of the registry, '
    'which this server uses or which is in etcd with this URL, of IDs that the inserting transaction has taken';

CREATE FUNCTION snowflake_drop_server(server text, registry text DEFAULT '') RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_drop_server';
COMMENT ON FUNCTION snowflake_drop_server(text, text) IS
    'says that a server is lost: it does not hold back snowflake_cluster_horizon() any more, and cannot renew its lease';

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.server(server jsonb, now bigint,
    OUT server text, OUT state text, OUT worker_id integer, OUT host text, OUT address text, OUT port integer,
    OUT data_directory text, OUT system_identifier numeric(20), OUT since timestamptz, OUT reported timestamptz,
    OUT horizon timestamptz, OUT lag interval)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT left($1 ->> 'nonce', 16),
        CASE WHEN ($1 ->> 'stopped')::boolean THEN 'stopped'
             WHEN ($1 ->> 'until')::bigint <= $2 THEN 'lost'
             WHEN $1 ->> 'horizon' IS NULL THEN 'not reported'
             ELSE 'reports' END,
        ($1 ->> 'worker')::integer,
        $1 #>> '{holder,host}', $1 #>> '{holder,address}', ($1 #>> '{holder,port}')::integer,
        $1 #>> '{holder,data_directory}', ($1 #>> '{holder,identity,system}')::numeric(20),
        _snowflake.instant(($1 ->> 'since')::bigint),
        _snowflake.instant(($1 ->> 'reported')::bigint),
        _snowflake.instant(($1 ->> 'horizon')::bigint),
        -- A server can report any instant. One before 1970 has the lag of 1970.
        ($2 - CASE WHEN ($1 ->> 'horizon')::bigint < 0 THEN 0 ELSE ($1 ->> 'horizon')::bigint END) * interval '1 ms';
END;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON FUNCTION _snowflake.server(jsonb, bigint) IS
    'internal, for view snowflake_cluster_servers: what the registry has stored of a server';

-- A view reads tables with the rights of its owner; functions in it are run by its reader.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW @extschema@.snowflake_cluster_servers AS
SELECT s.* FROM _snowflake.used AS u
CROSS JOIN LATERAL unnest(u.servers) AS e (server)
CROSS JOIN LATERAL _snowflake.server(e.server, u.now) AS s
WHERE e.server ->> 'dropped' IS NULL;
SET LOCAL search_path = @extschema@, pg_temp;
COMMENT ON VIEW snowflake_cluster_servers IS
    'the servers that count for snowflake_cluster_horizon(): the one with the earliest horizon, or with none, holds it back';
COMMENT ON COLUMN snowflake_cluster_servers.server IS
    'name of this start of the server, for snowflake_drop_server(): 16 hexadecimal digits';
COMMENT ON COLUMN snowflake_cluster_servers.state IS
    'reports; not reported: it has reported no horizon yet; '
    'stopped: it has returned its worker ID, and transactions that it has prepared hold IDs; '
    'lost: its lease and the hold have passed, and it has not returned its worker ID';
COMMENT ON COLUMN snowflake_cluster_servers.worker_id IS 'the worker ID that it has got last';
COMMENT ON COLUMN snowflake_cluster_servers.host IS 'host name of the server';
COMMENT ON COLUMN snowflake_cluster_servers.address IS 'address from which it reached the registry';
COMMENT ON COLUMN snowflake_cluster_servers.port IS 'its port';
COMMENT ON COLUMN snowflake_cluster_servers.data_directory IS 'its data directory';
COMMENT ON COLUMN snowflake_cluster_servers.system_identifier IS 'system identifier of its database cluster';
COMMENT ON COLUMN snowflake_cluster_servers.since IS 'since when it counts';
COMMENT ON COLUMN snowflake_cluster_servers.reported IS 'when it has reported last; NULL if never';
COMMENT ON COLUMN snowflake_cluster_servers.horizon IS
    'no ID of an earlier instant can appear there any more; NULL if it has not reported';
COMMENT ON COLUMN snowflake_cluster_servers.lag IS
    'how long ago that instant is, by the registry''s clock; usually up to 12 s if nothing holds it back';
-- snowflake_status(): what matters on this server, for a person who has to act. Its rows come
-- from what the views show, what is wrong first. docs/operations.md says more about each of them.
--
-- The function reads what its caller may see, and says so where that is not all. It works on
-- a standby, and without preloading; then there is one row.

-- What the views do not show: the version of the library that runs, why the registry does not
-- give what this server asks for, by how much the wall clock has jumped too far, and why etcd soon
-- takes no writes.
CREATE FUNCTION _snowflake.loaded(
    OUT version text, OUT is_loaded boolean, OUT keeper_runs boolean,
    OUT failing_since timestamptz, OUT failure text, OUT is_unreachable boolean, OUT remedy text, OUT jumped interval,
    OUT grown text)
    RETURNS record LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'snowflake_internal_library';

-- The names in these are bound when they are made, under a path that holds no object of others.
SET LOCAL search_path = pg_catalog, pg_temp;

-- A duration in words.
CREATE FUNCTION _snowflake.lasting(duration interval) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT u.number || ' ' || u.unit || CASE WHEN u.number = 1 THEN '' ELSE 's' END
    FROM (SELECT greatest(0, floor(extract(epoch FROM duration)))::bigint AS seconds) AS d
    CROSS JOIN LATERAL (VALUES
        (172800, d.seconds / 86400, 'day'), (7200, d.seconds / 3600, 'hour'),
        (120, d.seconds / 60, 'minute'), (0, d.seconds, 'second')) AS u (from_seconds, number, unit)
    WHERE d.seconds >= u.from_seconds ORDER BY u.from_seconds DESC LIMIT 1;
END;

-- Since when something lasts.
CREATE FUNCTION _snowflake.since(at timestamptz) RETURNS text
    LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('for %s (since %s)', _snowflake.lasting(clock_timestamp() - at), date_trunc('second', at));
END;

-- The transactions that have held back a horizon for long.
CREATE FUNCTION _snowflake.long_holders()
    RETURNS TABLE (generator text, since timestamptz, pid integer, gid text, usename text, state text)
    LANGUAGE sql STABLE PARALLEL RESTRICTED ROWS 10
BEGIN ATOMIC
    SELECT h.generator::text, h.since, h.pid, h.gid, h.usename::text, h.state
    FROM @extschema@.snowflake_horizon_holders AS h WHERE h.held_for > interval '5 minutes';
END;

-- The pools of the registry in this database that are too small for their servers: 2 worker IDs
-- for each, and a quarter of the pool besides. VOLATILE, so that who may not read them can avoid it.
CREATE FUNCTION _snowflake.small_pools() RETURNS TABLE (pool text, leased bigint, size bigint, wanted bigint)
    LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 1
BEGIN ATOMIC
    SELECT p.pool, p.leased, p.leased + p.free, w.wanted
    FROM @extschema@.snowflake_pools AS p CROSS JOIN LATERAL _snowflake.wanted_size(p.leased) AS w (wanted)
    WHERE p.leased + p.free < w.wanted AND EXISTS (SELECT FROM _snowflake.leased AS l WHERE l.worker_ids IS NOT NULL);
END;

SET LOCAL search_path = @extschema@, pg_temp;

-- It reads what the views show, and names none of them: the owner of the extension's schema may
-- rename it, make another one of its name, and put views of his own there.
CREATE FUNCTION snowflake_status(OUT state text, OUT item text, OUT detail text, OUT hint text, OUT see text) RETURNS SETOF record
    LANGUAGE plpgsql STABLE STRICT PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    is_standby constant boolean := pg_is_in_recovery();
    installed constant text := (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'snowflake_id');
    library record;
    worker record;
    -- What the settings ask for, if that gave the worker ID.
    asked text := current_setting('snowflake_id.worker_id', true);
    -- How far the bound lies ahead of the clock, and how long IDs are issued without the registry:
    -- a generator that is ahead of the clock reaches the bound sooner, at half the clock's speed.
    ahead interval;
    remaining interval;
    -- IDs are issued, though the lease may be failing. That is urgent in its last minute.
    has_time boolean;
    is_failing boolean;
    is_urgent boolean;
    is_unclaimed boolean;
    trouble text;
BEGIN
    SELECT l.* INTO library FROM _snowflake.loaded() AS l;
    IF NOT library.is_loaded THEN
        RETURN QUERY VALUES ('critical', 'library',
            'The library was not loaded when the server started, so the server issues no IDs.',
            'Append snowflake_id to shared_preload_libraries, and restart the server. A server that only reads IDs needs nothing.',
            'docs/operations.md#not-preloaded');
        RETURN;
    END IF;
    SELECT w.* INTO worker FROM _snowflake.own_worker() AS w;
    ahead := worker.bound - clock_timestamp();
    SELECT least(ahead, min(2 * (ahead - g.ahead_by))) INTO remaining
    FROM _snowflake.generators() AS g WHERE NOT is_standby AND g.on_rollback <> 'next_worker';
    has_time := worker.worker_id IS NOT NULL AND coalesce(remaining > '0', true);
    is_failing := NOT library.keeper_runs OR library.failing_since IS NOT NULL;
    is_urgent := NOT has_time OR is_failing AND coalesce(remaining < '1 minute', false);
    -- The number of the settings, which the registry has not granted.
    is_unclaimed := worker.worker_id IS NOT NULL AND worker.pool IS NOT NULL AND worker.bound IS NULL;
    trouble := format('The registry has %s %s', CASE WHEN library.is_unreachable THEN 'been unreachable' ELSE 'granted nothing' END,
        _snowflake.since(library.failing_since));
    IF worker.source IN ('setting', 'hostname', 'env') THEN
        asked := '';
    END IF;

    RETURN QUERY
    WITH generators AS MATERIALIZED (
        SELECT g.generator::text AS name, g.problem, g.refused_since, g.ahead_by, g.ahead_because, g.ends_at, g.on_rollback,
            coalesce(g.ahead_by >= ahead AND g.on_rollback <> 'next_worker', false) AS is_past
        FROM _snowflake.generators() AS g WHERE NOT is_standby),
    found (place, state, item, detail, hint) AS (
        SELECT 1, CASE WHEN library.version = installed THEN 'ok' ELSE 'warning' END, 'library',
            CASE WHEN library.version = installed THEN format('Version %s is loaded.', installed)
                ELSE format('Version %s is loaded, and this database has version %s of the extension.', library.version, installed) END,
            CASE WHEN library.version = installed THEN NULL
                WHEN string_to_array(library.version, '.')::int[] > string_to_array(installed, '.')::int[]
                THEN 'Run ALTER EXTENSION snowflake_id UPDATE in this database.'
                ELSE 'Restart the server, so that it loads the installed library.' END
        UNION ALL
        SELECT 2, CASE WHEN s.future IS NULL THEN 'warning' ELSE 'ok' END, 'standby',
            'The server is in recovery, and issues no IDs. '
                || coalesce('Once promoted, it ' || s.future, 'If it were promoted, it would have no worker ID.'),
            CASE WHEN s.future IS NULL THEN 'Set snowflake_id.worker_id or snowflake_id.registry before a promotion.' END
        FROM (SELECT CASE
            WHEN worker.pool IS NOT NULL THEN format('asks the registry for a worker ID of pool "%s".', worker.pool)
            WHEN worker.worker_id IS NOT NULL THEN format('has worker ID %s.', worker.worker_id) END) AS s (future)
        WHERE is_standby
        UNION ALL
        SELECT 2, CASE WHEN worker.worker_id IS NULL THEN 'critical' WHEN asked <> '' OR is_unclaimed THEN 'warning' ELSE 'ok' END, 'worker ID',
            CASE WHEN is_unclaimed THEN format('%s, set on this server, and not granted by the registry from pool "%s". '
                    'From its next restart on, the server issues no IDs before it is.', worker.worker_id, worker.pool)
                WHEN worker.worker_id IS NOT NULL THEN format('%s, %s.', worker.worker_id, CASE
                    WHEN worker.source = 'registry' THEN format('leased from pool "%s" of the registry', worker.pool)
                    WHEN worker.pool IS NOT NULL THEN format('set on this server, and claimed in pool "%s" of the registry', worker.pool)
                    ELSE 'set on this server' END)
                WHEN worker.pool IS NOT NULL THEN format(
                    'This server issues no IDs: the registry has given it no worker ID of pool "%s".', worker.pool)
                ELSE 'This server issues no IDs: it has no worker ID.' END
                || CASE WHEN asked <> '' THEN format(' Setting snowflake_id.worker_id is "%s", which gives no number.', asked) ELSE '' END,
            CASE WHEN asked <> '' THEN 'The log of the server''s start says why. Correct snowflake_id.worker_id, and restart the server.'
                WHEN worker.worker_id IS NOT NULL AND NOT is_unclaimed THEN NULL
                WHEN worker.pool IS NOT NULL THEN 'Do what the row "registry" says.'
                ELSE 'Set snowflake_id.worker_id to a number that no other server has, and restart the server. '
                    'Or set snowflake_id.registry, and reload; if it is set, the server log says why it was refused.' END
        WHERE NOT is_standby
        UNION ALL
        SELECT 3, CASE WHEN is_urgent THEN 'critical' WHEN is_failing THEN 'warning' ELSE 'ok' END, 'lease',
            CASE WHEN has_time AND remaining < '1 s' THEN
                    'If the registry does not answer, no more IDs are issued. The lease is new: '
                    'this time grows to that of the lease within as long.'
                WHEN has_time THEN format('%s until %s, which is in %s.', CASE WHEN library.failing_since IS NULL
                        THEN 'If the registry does not answer, IDs are issued' ELSE trouble || '. IDs continue' END,
                    date_trunc('second', clock_timestamp() + remaining), _snowflake.lasting(remaining))
                WHEN ahead > '0' THEN format('No IDs are issued: the lease covers IDs of times before %s, '
                    'and the next ones are ahead of the clock.', date_trunc('second', worker.bound))
                ELSE format('The lease could not be renewed, and no IDs are issued %s.', _snowflake.since(worker.bound)) END,
            CASE WHEN is_urgent OR is_failing THEN 'Do what the row "registry" says.' END
        WHERE worker.bound IS NOT NULL AND NOT is_standby
        UNION ALL
        SELECT 4, CASE WHEN r.is_fine THEN 'ok' WHEN is_urgent THEN 'critical' ELSE 'warning' END, 'registry',
            CASE WHEN NOT library.keeper_runs THEN 'The keeper does not run, the background worker that asks the registry.'
                WHEN library.failing_since IS NOT NULL THEN trouble || ': ' || library.failure
                WHEN worker.last_contact IS NULL THEN 'The registry has not answered yet.'
                ELSE format('The registry answered %s ago.', _snowflake.lasting(clock_timestamp() - worker.last_contact)) END,
            CASE WHEN NOT library.keeper_runs
                THEN 'The server log says why. If no background worker was left, raise max_worker_processes, and restart the server.'
                WHEN NOT r.is_fine THEN coalesce(nullif(library.remedy, '') || ' ', '') || 'IDs resume by themselves.' END
        FROM (SELECT library.keeper_runs AND library.failing_since IS NULL AND worker.last_contact IS NOT NULL) AS r (is_fine)
        WHERE worker.pool IS NOT NULL AND NOT is_standby
        UNION ALL
        SELECT 5, CASE WHEN library.jumped IS NULL THEN 'ok' ELSE 'critical' END, 'clock',
            CASE WHEN library.jumped IS NOT NULL THEN format(
                    'The wall clock has jumped forward by %s. Generators issue no IDs once the time that they have reserved is used up.',
                    _snowflake.lasting(library.jumped))
                WHEN s.largest IS NULL THEN 'The wall clock runs without a jump.'
                ELSE format('The wall clock was set back by up to %s since %s.',
                    CASE WHEN s.largest < '2 s' THEN floor(date_part('epoch', s.largest) * 1000) || ' ms'
                        ELSE _snowflake.lasting(s.largest) END,
                    date_trunc('second', s.reset)) END,
            CASE WHEN library.jumped IS NOT NULL THEN 'Set the clock right; IDs then resume by themselves. '
                'If it is right now, a superuser can call snowflake_accept_clock() in this database.' END
        FROM (SELECT max(p.largest_rollback), min(p.stats_reset) FROM _snowflake.statistics() AS p) AS s (largest, reset)
        UNION ALL
        SELECT 6, 'critical', CASE count(*) WHEN 1 THEN 'generator ' || min(g.name)
            ELSE format('%s generators, such as %s', count(*), min(g.name)) END, g.problem, 'Do what the end of the detail says.'
        FROM generators AS g WHERE g.problem IS NOT NULL GROUP BY g.problem
        UNION ALL
        SELECT 7, 'critical', 'generator ' || g.name,
            format('It issues no IDs because of the clock, or soon will not, %s.', _snowflake.since(g.refused_since)),
            format('Call snowflake_nextval(%L): its error says why, and what to do. '
                'If the clock is wrong, set it right; IDs then resume by themselves.', g.name)
        FROM generators AS g WHERE g.refused_since IS NOT NULL AND g.problem IS NULL
        UNION ALL
        SELECT 8, 'warning', 'generator ' || g.name, format('Its IDs are %s ahead of the clock, since %s. They are unique and in order, '
            'and half a second of the lead goes each second.', _snowflake.lasting(g.ahead_by), g.ahead_because), NULL
        FROM generators AS g
        WHERE g.ahead_by > '1 minute' AND g.refused_since IS NULL AND g.problem IS NULL AND NOT g.is_past
        UNION ALL
        SELECT 9, 'warning', 'generator ' || g.name,
            format('The time of its layout ends on %s, in %s.', g.ends_at::date, _snowflake.lasting(g.ends_at - clock_timestamp())),
            'Give the time more bits, if the fields have fewer than 63. Otherwise make a generator with a later epoch for new rows, '
                'and a column that tells which generator made an ID.'
        FROM generators AS g WHERE g.ends_at < clock_timestamp() + interval '1 year' AND g.problem IS NULL
        UNION ALL
        SELECT 10, 'ok', 'generators', format('%s without trouble', c.seen)
            || coalesce(', up to ' || _snowflake.lasting(c.lead) || ' ahead of the clock', '') || '.'
            || coalesce(' ' || nullif(c.hidden, 0) || ' more: what they do is shown to roles that may use them.', ''), NULL
        FROM (SELECT count(g.ahead_by), count(*) - count(g.ahead_by), max(g.ahead_by) FILTER (WHERE g.ahead_by > '5 s')
            FROM generators AS g
            WHERE has_time AND g.problem IS NULL AND g.refused_since IS NULL AND coalesce(g.ahead_by, '0') <= '1 minute'
                AND NOT g.is_past AND g.ends_at >= clock_timestamp() + interval '1 year') AS c (seen, hidden, lead)
        WHERE c.seen + c.hidden > 0
        UNION ALL
        SELECT 11, 'warning', 'horizon', format('A transaction holds back a horizon, that of %s, %s: %s of role %s%s.',
                h.generator, _snowflake.since(h.since), coalesce('process ' || h.pid, 'prepared transaction ' || h.gid),
                h.usename, coalesce(', ' || h.state, '')),
            CASE WHEN h.pid IS NULL THEN format('End it: COMMIT PREPARED %L, or ROLLBACK PREPARED %L.', h.gid, h.gid)
                ELSE format('End its transaction, if need be by SELECT pg_terminate_backend(%s).', h.pid) END
        FROM _snowflake.long_holders() AS h
        UNION ALL
        SELECT 12, 'warning', 'pool', format('Pool "%s" of the registry in this database has %s worker IDs, %s of which servers have: '
                'after crashes, a server may get one that leads its clock, or none.', p.pool, p.size, p.leased),
            format('Use a larger pool: of %s worker IDs or more for so many servers.', p.wanted)
        FROM _snowflake.small_pools() AS p WHERE has_table_privilege('_snowflake.leased', 'SELECT')
        UNION ALL
        SELECT 13, 'warning', 'etcd', library.grown, 'Compact and defragment etcd, and then disarm its alarm. '
            'Start its members with --auto-compaction-retention=1h.'
        WHERE library.grown IS NOT NULL AND NOT is_standby)
    SELECT f.state, f.item, f.detail, f.hint, CASE WHEN f.state <> 'ok' THEN 'docs/operations.md#' || CASE WHEN is_standby AND f.place = 2
        THEN 'standby' ELSE (ARRAY['version', 'no-worker-id', 'lease', CASE WHEN library.keeper_runs THEN 'registry' ELSE 'keeper' END, 'refused', 'problem', 'refused', 'ahead', 'layout-ends',
            NULL, 'horizon', 'few-worker-ids', 'etcd-grown'])[f.place] END END
    FROM found AS f
    ORDER BY array_position(ARRAY['critical', 'warning', 'ok'], f.state), f.place, f.item;
END
$$;
COMMENT ON FUNCTION snowflake_status() IS
    'what matters on this server, one row each, what is wrong first: whether IDs are issued, how long still, and what to do';
-- snowflake_check_registry(): whether this server could lease a worker ID, before it has to. It
-- asks each host of the registry, also on a standby, and changes nothing.

CREATE FUNCTION _snowflake.ask_registry(OUT host text, OUT stored jsonb, OUT problem text, OUT fixed integer)
    RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE ROWS 3 SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_ask_registry';
COMMENT ON FUNCTION _snowflake.ask_registry() IS
    'internal: what each host of the registry has stored that the setting names, or why it cannot be read; '
    'fixed: the worker ID that is set on this server';

-- The names are bound when it is made, under a path that holds no object of others.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION @extschema@.snowflake_check_registry(OUT state text, OUT item text, OUT detail text, OUT hint text)
    RETURNS SETOF record LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE ROWS 5 SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    WITH asked AS MATERIALIZED (
        SELECT a.*, a.stored IS NOT NULL AND coalesce((a.stored -> 'may_lease')::boolean, true) AS answers,
            coalesce((a.stored -> 'in_recovery')::boolean, false) AS is_standby
        FROM _snowflake.ask_registry() WITH ORDINALITY AS a (host, stored, problem, fixed, number)),
    one AS (SELECT bool_or(a.answers AND NOT a.is_standby) AS serves FROM asked AS a),
    best AS (
        SELECT a.stored, a.fixed, current_setting('snowflake_id.pool') AS pool, (a.stored -> 'now')::bigint AS now
        FROM asked AS a WHERE a.stored IS NOT NULL ORDER BY a.is_standby, a.number LIMIT 1),
    pool AS (
        SELECT b.fixed, b.stored #>> '{state,loss,cause}' AS cause, p.*, p.leased + p.free AS size,
            _snowflake.wanted_size(p.leased) AS wanted
        FROM best AS b
        CROSS JOIN LATERAL jsonb_array_elements(b.stored -> 'pools') AS s (pool)
        CROSS JOIN LATERAL _snowflake.pool(s.pool, b.stored -> 'state', b.now, (
            SELECT jsonb_object_agg(w.worker_id, w.state)
            FROM (SELECT array_agg(r.stored ->> 'namespace'), array_agg(r.stored -> 'row'), array_agg((r.stored -> 'live')::boolean)
                FROM jsonb_array_elements(b.stored -> 'workers') AS r (stored)) AS r (namespaces, leases, live)
            CROSS JOIN LATERAL _snowflake.workers(s.pool, r.namespaces, r.leases, r.live, b.now) AS w)) AS p
        WHERE s.pool ->> 'name' = b.pool),
    found (place, state, item, detail, hint) AS (
        SELECT 1, 'warning', 'registry', 'Setting snowflake_id.registry is empty: this server leases no worker ID.',
            'To lease one, set it, and reload.'
        WHERE NOT EXISTS (SELECT FROM asked)
        UNION ALL
        SELECT 1, CASE WHEN a.answers AND (o.serves OR NOT a.is_standby) THEN 'ok' WHEN o.serves THEN 'warning' ELSE 'critical' END, 'registry',
            coalesce(nullif(a.host, ''), 'libpq''s default server') || CASE
                WHEN a.problem IS NOT NULL THEN ': ' || a.problem
                WHEN a.stored IS NULL THEN ' answers, and has no registry.'
                WHEN NOT a.answers THEN ' answers, and lets the role of this server lease nothing.'
                WHEN a.is_standby THEN ' answers. It is a standby, which leases nothing before its promotion.'
                ELSE ' answers.' END,
            CASE WHEN a.answers AND (o.serves OR NOT a.is_standby) THEN NULL
                WHEN a.answers THEN 'Find out why no host of the registry takes writes, or name the one that does in snowflake_id.registry.'
                WHEN a.problem IS NULL AND a.stored IS NULL THEN 'Correct snowflake_id.registry, or make a registry there. '
                    'In an etcd, the first server makes it, if prefix and pool are the default ones.'
                ELSE 'Check that it runs, that it lets this server in (pg_hba.conf, password, certificates), '
                    'and that snowflake_create_registry() was called there for the role.' END
        FROM asked AS a CROSS JOIN one AS o
        UNION ALL
        SELECT 1, 'warning', 'registry', a.host || ': ' || (a.stored ->> 'grown'), 'Compact and defragment etcd, and then disarm its alarm. '
            'Start its members with --auto-compaction-retention=1h.'
        FROM asked AS a WHERE a.stored ->> 'grown' <> ''
        UNION ALL
        SELECT 2, 'critical', 'pool', format('The registry has no pool "%s".', b.pool), 'Correct snowflake_id.pool, or make the pool.'
        FROM best AS b WHERE NOT EXISTS (SELECT FROM pool)
        UNION ALL
        SELECT 2, s.state, 'pool', s.detail, s.hint
        FROM pool AS p CROSS JOIN LATERAL (
            SELECT 'critical', format('The registry serves nobody since %s: the server on host "%s" has seen another one that has taken over from it.',
                    date_trunc('second', p.stopped_since), p.stopped_by),
                'Stop the copy of the registry that must not count, and call snowflake_declare_registry() at the other one.'
            WHERE p.stopped_since IS NOT NULL
            UNION ALL
            SELECT 'warning', format('The registry gives no worker ID until %s, since it may have lost leases (%s).',
                date_trunc('second', p.grace_until), p.cause), 'Wait.'
            WHERE p.stopped_since IS NULL AND p.grace_until IS NOT NULL
            UNION ALL
            SELECT 'critical', format('Worker ID %s, which is set on this server, is not in pool "%s". From its next restart on, the server issues no IDs.',
                p.fixed, p.pool), 'Set a worker ID of the pool, or remove snowflake_id.worker_id: then the server leases any of the pool.'
            WHERE NOT p.worker_ids @> p.fixed::bigint OR p.except_ids @> p.fixed::bigint
            UNION ALL
            SELECT CASE WHEN p.free > 0 OR p.fixed IS NOT NULL OR w.worker_id IS NOT NULL THEN 'warning' ELSE 'critical' END,
                format('Pool "%s" has %s worker IDs, %s of which servers have.', p.pool, p.size, p.leased) || CASE WHEN p.free > 0
                    THEN format(' A server that crashes can then lead its clock by up to the lease, %s.', _snowflake.lasting(p.lease))
                    ELSE ' A further server gets none.' END,
                format('Use a larger pool: of %s worker IDs or more for so many servers. '
                    'Those of servers that are gone are free after the lease and the hold.', p.wanted)
            FROM _snowflake.own_worker() AS w WHERE p.size < p.wanted) AS s (state, detail, hint)
        UNION ALL
        SELECT 2, 'ok', 'pool', format('Pool "%s" has %s worker IDs, and servers can get %s of them.', p.pool, p.size, p.free), NULL
        FROM pool AS p
        WHERE p.size >= p.wanted AND p.stopped_since IS NULL AND p.grace_until IS NULL
            AND (p.fixed IS NULL OR p.worker_ids @> p.fixed::bigint AND NOT p.except_ids @> p.fixed::bigint)
        UNION ALL
        SELECT 3, 'critical', 'generator ' || g.generator::text,
            format('It cannot hold all worker IDs of pool "%s": the pool has worker IDs up to %s, and the layout up to %s.',
                p.pool, upper(p.worker_ids) - 1, l.greatest_worker),
            'Make the generator with more worker bits, or let its servers lease from a pool of their own, with smaller numbers.'
        FROM pool AS p CROSS JOIN _snowflake.generators() AS g CROSS JOIN LATERAL _snowflake.check_limits(g.generator) AS l
        WHERE g.layout IS NOT NULL AND g.pool IS NULL AND upper(p.worker_ids) - 1 > l.greatest_worker)
    SELECT f.state, f.item, f.detail, f.hint
    FROM found AS f
    ORDER BY array_position(ARRAY['critical', 'warning', 'ok'], f.state), f.place, f.item, f.detail;
END;
COMMENT ON FUNCTION @extschema@.snowflake_check_registry() IS
    'whether this server could lease a worker ID: a row for each host of its registry, one for its pool, '
    'and one for each generator that cannot hold the pool; also on a standby; it changes nothing';
SET LOCAL search_path = @extschema@, pg_temp;
-- snowflake_id.new_keys: keys of new tables get snowflake IDs by themselves, so that nobody has
-- to change a model or a migration.
--
-- The trigger fires after each CREATE TABLE, ALTER TABLE and CREATE SCHEMA of everybody, and
-- its function runs with the rights of that command, which may be those of a superuser:
--
-- 1. Where the setting is off, the function reads that setting, and ends. It is no C function:
--    commands work on a server that lacks the library.
-- 2. Where the setting is on, it touches a key only if this command has made both the key and
--    the sequence that the key owns. pg_dump makes them by separate commands, and so does
--    pg_upgrade: their setval() finds its sequence. So nothing that was there before changes.
-- 3. It runs no code of others: it evaluates no default, condition or expression, and has none
--    evaluated. Whether a table has rows is asked of the file's size. A change of the type
--    makes PostgreSQL evaluate parts of conditions and expressions that use the column: such a
--    key stays bigint.
-- 4. Its statements name objects, and the owner of a schema may rename it meanwhile. So in the
--    end the key is looked at by its OID, and the command fails unless all is as it should be.
--    For a change of the type that is too late: another table of that name could have code. So
--    a superuser keeps the schema's name, which not all versions of PostgreSQL do by themselves.
--    Others cannot; they change the type only in schemas of roles whose rights they have, of
--    superusers, and of the database's owner.
CREATE FUNCTION _snowflake.new_keys() RETURNS event_trigger
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    issue regprocedure;
    key_type regtype;
    key record;
    obstacle text;
    kept_by text;
    change_type text;
    is_superuser boolean;
    is_done boolean := false;
BEGIN
    -- Without the library there is no such setting, unless the database or the role has it.
    IF current_setting('snowflake_id.new_keys', true) IS DISTINCT FROM 'on' THEN
        RETURN;
    END IF;
    -- The statements below fire this trigger again.
    PERFORM set_config('snowflake_id.new_keys', 'off', true);
    issue := _snowflake.issuer(true);
    is_superuser := (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user);
    FOR key IN
        SELECT c.oid::regclass AS relation, c.relowner AS owner, a.attname AS name, a.attidentity AS identity,
            a.atttypid AS type, format('%s.%I', _snowflake.name(c.oid), a.attname) AS described,
            s.oid::regclass AS sequence, _snowflake.name(s.oid) AS sequence_name, c.relkind, c.relnamespace AS schema
        FROM pg_event_trigger_ddl_commands() AS e
        JOIN pg_class AS s ON s.oid = e.objid AND s.relkind = 'S'
        JOIN pg_sequence AS q ON q.seqrelid = s.oid
        JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
        JOIN pg_class AS c ON c.oid = d.refobjid
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
        JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'p' AND k.conkey = ARRAY[a.attnum]
        WHERE e.classid = 'pg_class'::regclass AND e.command_tag = 'CREATE SEQUENCE' AND NOT e.in_extension
          -- The key is younger than the sequence, which this command has made.
          AND k.xmin = s.xmin AND k.cmin::text::bigint > s.cmin::text::bigint
          AND c.relpersistence <> 't' AND a.attinhcount = 0
          -- Bounds and steps that a command gives are meant; a smallint has bounds of its own.
          AND (q.seqincrement, q.seqmin, q.seqmax, q.seqcycle)
              = (1, 1, CASE a.atttypid WHEN 'bigint'::regtype THEN 9223372036854775807 ELSE 2147483647 END, false)
          -- Nothing else takes numbers from it.
          AND NOT EXISTS (
              SELECT FROM pg_depend AS o
              LEFT JOIN pg_attrdef AS f ON o.classid = 'pg_attrdef'::regclass AND f.oid = o.objid
              LEFT JOIN pg_attribute AS t ON t.attrelid = f.adrelid AND t.attnum = f.adnum
              WHERE o.refclassid = 'pg_class'::regclass AND o.refobjid = s.oid AND o.deptype = 'n'
                AND (coalesce(pg_partition_root(f.adrelid), f.adrelid), t.attname) IS DISTINCT FROM (c.oid, a.attname))
          -- The rows of a table that gets a column have its numbers already.
          AND (tg_tag <> 'ALTER TABLE' OR (
              SELECT sum(pg_relation_size(f.member)) FROM _snowflake.inheritance(c.oid, a.attname) AS f) = 0)
        ORDER BY s.oid
    LOOP
        obstacle := (
            SELECT CASE WHEN key.type = 'integer'::regtype THEN 'It is of type integer, which cannot hold them.'
                WHEN NOT pg_has_role(key.owner, 'USAGE') THEN format('Role %I owns the table.', pg_get_userbyid(key.owner))
                WHEN NOT has_schema_privilege(p.pronamespace, 'USAGE') OR NOT has_sequence_privilege(g, 'USAGE, UPDATE') THEN
                    format('Role %I lacks USAGE on schema %s, or on sequence %s.', current_user, p.pronamespace::regnamespace, g) END
            FROM pg_proc AS p CROSS JOIN _snowflake.default_generator() AS g WHERE p.oid = issue);
        IF obstacle IS NOT NULL THEN
            RAISE WARNING 'key % gets no snowflake IDs', key.described
                USING DETAIL = format('%s Its numbers come from sequence %s: another server issues the same ones.', obstacle, key.sequence_name),
                HINT = CASE key.type WHEN 'integer'::regtype THEN 'Declare it as bigint in the model or the migration.'
                    ELSE format('Grant what is missing, and let the owner of the table call snowflake_set_default(%L).', key.relation) END;
            CONTINUE;
        END IF;

        IF key.identity <> '' THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', key.relation, key.name);
        END IF;
        key_type := key.type;
        IF current_setting('snowflake_id.new_keys_type', true) = 'snowflake' THEN
            -- What keeps the column at its type, in the table and in those that inherit from it.
            kept_by := CASE WHEN key.relkind = 'p' THEN 'the partition key'
                WHEN NOT is_superuser AND NOT EXISTS (
                    SELECT FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner
                    WHERE n.oid = key.schema AND (pg_has_role(n.nspowner, 'USAGE') OR r.rolsuper
                        OR n.nspowner IN (SELECT o.datdba FROM pg_database AS o WHERE o.datname = current_database())
                        OR r.rolname = 'pg_database_owner'))
                THEN 'the owner of schema ' || key.schema::regnamespace ELSE (
                SELECT string_agg(DISTINCT pg_describe_object(u.classid, u.objid, u.objsubid), ', ')
                FROM _snowflake.inheritance(key.relation, key.name) AS m
                CROSS JOIN LATERAL (
                    SELECT u.classid, u.objid, 0
                    FROM pg_depend AS u
                    LEFT JOIN pg_constraint AS t ON u.classid = 'pg_constraint'::regclass AND t.oid = u.objid
                    LEFT JOIN pg_index AS i ON u.classid = 'pg_class'::regclass AND i.indexrelid = u.objid
                    LEFT JOIN pg_attrdef AS f ON u.classid = 'pg_attrdef'::regclass AND f.oid = u.objid
                    WHERE u.refclassid = 'pg_class'::regclass AND u.refobjid = m.member AND u.refobjsubid = m.number
                      AND NOT (u.classid = 'pg_class'::regclass AND u.objid = key.sequence)
                      -- Keys, foreign keys and NOT NULL.
                      AND coalesce(t.contype NOT IN ('p', 'u', 'f', 'n'), true)
                      AND (i.indexrelid IS NULL OR i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
                      AND (f.oid IS NULL OR f.adrelid <> m.member OR f.adnum <> m.number)
                    UNION ALL
                    -- Columns of the row type, which PostgreSQL would not change.
                    SELECT u.classid, u.objid, u.objsubid
                    FROM pg_type AS y JOIN pg_depend AS u ON u.refobjid IN (y.oid, y.typarray)
                    WHERE y.oid = (SELECT r.reltype FROM pg_class AS r WHERE r.oid = m.member)
                      AND u.refclassid = 'pg_type'::regclass AND u.deptype = 'n'
                      AND u.classid IN ('pg_class'::regclass, 'pg_type'::regclass)
                    UNION ALL
                    -- Nor one that is inherited from two tables.
                    SELECT 'pg_class'::regclass, n.attrelid, n.attnum FROM pg_attribute AS n
                    WHERE n.attrelid = m.member AND n.attnum = m.number AND n.attinhcount > 1
                ) AS u (classid, objid, objsubid)) END;
            IF kept_by IS NULL THEN
                key_type := (SELECT p.prorettype FROM pg_proc AS p WHERE p.oid = '_snowflake.from_integer(integer)'::regprocedure);
                change_type := format('ALTER TABLE %s ALTER COLUMN %I TYPE %s', key.relation, key.name, key_type);
                IF is_superuser THEN
                    SELECT format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE %s', n.nspname, c.relname, key.name, key_type) INTO change_type
                    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE c.oid = key.relation FOR KEY SHARE OF n;
                END IF;
                EXECUTE change_type;
            ELSE
                RAISE WARNING 'key % stays of type bigint, because of %', key.described, kept_by;
            END IF;
        END IF;
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', key.relation, key.name, issue);
        IF key.identity = '' THEN
            EXECUTE format('DROP SEQUENCE %s', key.sequence);
        END IF;
        IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = key.sequence)
            OR EXISTS (
                SELECT FROM _snowflake.inheritance(key.relation, key.name) AS f
                JOIN pg_attribute AS a ON a.attrelid = f.member AND a.attnum = f.number
                WHERE f.functions <> ARRAY[issue::oid] OR a.atttypid <> key_type)
        THEN
            RAISE EXCEPTION 'could not set the default of %', key.described
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Another session has renamed its schema.', HINT = 'Try again.';
        END IF;
        is_done := true;
        RAISE NOTICE 'key % has type %, and default % in place of %', key.described, key_type, issue,
            CASE key.identity WHEN '' THEN 'sequence ' || key.sequence_name ELSE 'an identity' END
            USING DETAIL = 'Its sequence is dropped.' || CASE key.identity WHEN 'a' THEN
                ' It is no longer GENERATED ALWAYS: a default gives way to any value that a statement gives, also with OVERRIDING USER VALUE.'
                ELSE '' END;
    END LOOP;

    IF is_done THEN
        PERFORM _snowflake.warn_if_not_ready(_snowflake.default_generator());
    END IF;
    FOR key IN
        SELECT DISTINCT _snowflake.name(k.conrelid) AS table_name, a.attname AS name, a.atttypid::regtype AS type,
            format('%s.%I', _snowflake.name(k.confrelid), r.attname) AS refers_to
        FROM pg_event_trigger_ddl_commands() AS e
        JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0 AND k.conrelid = e.objid
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.here
        JOIN pg_attribute AS r ON r.attrelid = k.confrelid AND r.attnum = u.there
        JOIN _snowflake.defaults AS d ON d.relation = k.confrelid AND d.number = u.there AND d.function = issue
        WHERE e.classid = 'pg_class'::regclass AND NOT e.in_extension
          AND a.atttypid IN ('integer'::regtype, 'smallint'::regtype)
        ORDER BY 1, 2
    LOOP
        RAISE WARNING 'column "%" of table % is of type %, which cannot hold IDs of key %',
            key.name, key.table_name, key.type, key.refers_to
            USING HINT = format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint', key.table_name, key.name);
    END LOOP;
    PERFORM set_config('snowflake_id.new_keys', 'on', true);
END
$$;
COMMENT ON FUNCTION _snowflake.new_keys() IS 'internal: gives new keys snowflake IDs, where setting snowflake_id.new_keys is on';

CREATE EVENT TRIGGER snowflake_id_new_keys ON ddl_command_end
    WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA') EXECUTE FUNCTION _snowflake.new_keys();
COMMENT ON EVENT TRIGGER snowflake_id_new_keys IS 'does nothing unless setting snowflake_id.new_keys is on';
-- All objects of the extension get one owner, the bootstrap superuser: the role that makes the
-- extension may be a superuser now and an ordinary role one day. Then all other roles lose all
-- privileges: ALTER DEFAULT PRIVILEGES of the superuser who makes the extension reaches its
-- objects too. Grants follow.
--
-- The scripts of both extensions have these statements; tools/env.sh puts in the name. They
-- serve CREATE EXTENSION only, when the script has made all objects itself: the owner of the
-- database may add objects of his own to an extension later, and must not get a superuser as
-- their owner. So they stay no function, and no script of an update has them.
--
-- The statements name objects. The owner of the extension's schema may rename it meanwhile, and
-- make another one of its name; so in the end each object is looked at by its OID.
SET LOCAL search_path = pg_catalog, pg_temp;
DO $$
DECLARE
    root constant oid := 10;
    extension constant name := 'snowflake_id';
    it record;
BEGIN
    FOR it IN
        SELECT m.* FROM (
            SELECT 'SCHEMA' AS kind, 'SCHEMA' AS granted, n.oid AS id, quote_ident(n.nspname) AS name,
                n.nspowner AS owner, coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
            FROM pg_namespace AS n
            UNION ALL
            SELECT 'TABLE', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid, c.oid::regclass::text,
                c.relowner, coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))
            FROM pg_class AS c WHERE c.relkind IN ('r', 'v', 'S')
            UNION ALL
            SELECT 'ROUTINE', 'ROUTINE', p.oid, p.oid::regprocedure::text,
                p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
            FROM pg_proc AS p
            UNION ALL
            SELECT 'FOREIGN DATA WRAPPER', 'FOREIGN DATA WRAPPER', f.oid, quote_ident(f.fdwname),
                f.fdwowner, coalesce(f.fdwacl, acldefault('F', f.fdwowner))
            FROM pg_foreign_data_wrapper AS f
            UNION ALL
            -- There are no privileges on these.
            SELECT 'EVENT TRIGGER', NULL, v.oid, quote_ident(v.evtname), v.evtowner, NULL FROM pg_event_trigger AS v
            UNION ALL
            -- Types of their own, not those of the rows of tables, and no arrays.
            SELECT 'TYPE', 'TYPE', t.oid, t.oid::regtype::text, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
            FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
            WHERE c.relkind = 'c' OR t.typtype = 'b' AND t.typelem = 0) AS m
        JOIN pg_depend AS d ON d.objid = m.id AND d.deptype = 'e' AND d.classid = CASE m.kind
            WHEN 'SCHEMA' THEN 'pg_namespace'::regclass WHEN 'TABLE' THEN 'pg_class'::regclass
            WHEN 'TYPE' THEN 'pg_type'::regclass WHEN 'EVENT TRIGGER' THEN 'pg_event_trigger'::regclass
            WHEN 'FOREIGN DATA WRAPPER' THEN 'pg_foreign_data_wrapper'::regclass ELSE 'pg_proc'::regclass END
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        WHERE e.extname = extension
    LOOP
        IF it.owner <> root THEN
            EXECUTE format('ALTER %s %s OWNER TO %I', it.kind, it.name, pg_get_userbyid(root));
        END IF;
        CONTINUE WHEN it.granted IS NULL;
        -- The statement makes the list explicit even if it changes nothing.
        EXECUTE (
            SELECT format('REVOKE ALL ON %s %s FROM PUBLIC', it.granted, it.name)
                || coalesce(string_agg(DISTINCT ', ' || quote_ident(pg_get_userbyid(a.grantee)), ''), '')
            FROM aclexplode(it.acl) AS a WHERE a.grantee NOT IN (0, it.owner, root));
        -- Default privileges may have taken them even from the owner. An empty list would not
        -- be kept as that of the extension, and each dump would have it.
        EXECUTE format('GRANT ALL ON %s %s TO %I', it.granted, it.name, pg_get_userbyid(root));
    END LOOP;
    IF EXISTS (
        SELECT FROM pg_depend AS d
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        LEFT JOIN pg_namespace AS n ON d.classid = 'pg_namespace'::regclass AND n.oid = d.objid
        LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
        LEFT JOIN pg_foreign_data_wrapper AS f ON d.classid = 'pg_foreign_data_wrapper'::regclass AND f.oid = d.objid
        LEFT JOIN pg_event_trigger AS v ON d.classid = 'pg_event_trigger'::regclass AND v.oid = d.objid
        -- From PostgreSQL 18 on, the types of the rows of tables and views are members too.
        LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
        -- A cast belongs to who owns its types.
        WHERE e.extname = extension AND d.deptype = 'e' AND d.classid <> 'pg_cast'::regclass
          AND (coalesce(n.nspowner, c.relowner, p.proowner, t.typowner, f.fdwowner, v.evtowner) IS DISTINCT FROM root
               OR EXISTS (SELECT FROM aclexplode(coalesce(n.nspacl, c.relacl, p.proacl, t.typacl, f.fdwacl)) AS a WHERE a.grantee <> root)
               OR d.classid NOT IN ('pg_type'::regclass, 'pg_event_trigger'::regclass) AND coalesce(n.nspacl, c.relacl, p.proacl, f.fdwacl) IS NULL))
    THEN
        RAISE EXCEPTION 'not all objects of the extension could be taken from others'
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Somebody has changed the schema of the extension meanwhile. Create the extension again.';
    END IF;
END
$$;
SET LOCAL search_path = @extschema@, pg_temp;
-- Who may use what: this script is the last one, and only restrict.sql, which comes before it,
-- grants or revokes too. What follows is the list of all that anybody may.
-- An object that is not in the list is for superusers, and roles to which they grant it: the
-- registry, its administration, the horizon of a cluster, the clock and the statistics of the
-- server, and all that connects to other servers. tests/t/security/catalog_rules.pl lists who
-- may use each object, and each script of an update ends with such lines for what it makes.

-- What PUBLIC calls runs with the rights of its caller, and so do the functions and tables of
-- this schema that it names. Nobody but a superuser may create objects in the schema.
GRANT USAGE ON SCHEMA _snowflake TO PUBLIC;

-- A role that restores a dump of this database must set the mark of the default generator.
-- The grantee is pg_database_owner, since that role cannot be dropped: a dump would still
-- name a dropped role, and could not be restored.
GRANT USAGE, SELECT ON SEQUENCE snowflake_default TO PUBLIC;
GRANT UPDATE ON SEQUENCE snowflake_default TO pg_database_owner;

-- A type for columns, what converts it, and its aggregates; PostgreSQL asks for no right to input
-- and output, and asks the owner of an aggregate for that to its steps.
GRANT USAGE ON TYPE snowflake TO PUBLIC;
GRANT EXECUTE ON FUNCTION max(snowflake), min(snowflake),
    _snowflake.from_integer, _snowflake.from_numeric, _snowflake.from_smallint, _snowflake.to_integer, _snowflake.to_numeric
TO PUBLIC;

-- Views. Those of the registry tell where servers are.
GRANT SELECT ON
    _snowflake.defaults, pg_stat_snowflake, snowflake_generators, snowflake_horizon_holders, snowflake_presets, snowflake_worker
TO PUBLIC;
GRANT SELECT ON _snowflake.leased, snowflake_cluster_servers, snowflake_pools, snowflake_workers TO pg_monitor;
-- It has the server connect to its registry.
GRANT EXECUTE ON FUNCTION snowflake_check_registry(), _snowflake.ask_registry() TO pg_monitor;

-- IDs of generators: the C functions ask for USAGE or UPDATE on the sequence.
GRANT EXECUTE ON FUNCTION
    snowflake_advance(regclass, bigint), snowflake_advance(regclass, timestamptz),
    snowflake_currval(), snowflake_currval(regclass),
    snowflake_horizon(), snowflake_horizon(regclass),
    snowflake_nextval(), snowflake_nextval(regclass), snowflake_nextval(regclass, jsonb),
    snowflake_nextval_at(timestamptz), snowflake_nextval_at(timestamptz, regclass),
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
    snowflake_set_default(regclass, name, regclass, boolean, regtype),
    snowflake_set_defaults(regnamespace, regclass, regtype),
    snowflake_set_type(regclass, name, regtype)
TO PUBLIC;
GRANT EXECUTE ON PROCEDURE snowflake_partition(regclass, interval, integer, interval, regclass) TO PUBLIC;

-- It reads views with the rights of its caller.
GRANT EXECUTE ON FUNCTION snowflake_status() TO PUBLIC;

-- Functions that those above call, or that views and the library call for a session. Each
-- does what its caller may do. A name without arguments is that of one function.
GRANT EXECUTE ON FUNCTION
    _snowflake.adopt_label, _snowflake.base_type, _snowflake.bound, _snowflake.change_type, _snowflake.check_coordinator, _snowflake.check_default, _snowflake.check_limits(),
    _snowflake.check_limits(regclass), _snowflake.check_limits_as, _snowflake.check_nodes, _snowflake.check_references,
    _snowflake.check_table, _snowflake.check_takes, _snowflake.check_values, _snowflake.column_roots, _snowflake.comments, _snowflake.count_ids,
    _snowflake.create_generator, _snowflake.default_generator, _snowflake.default_generators, _snowflake.distribute,
    _snowflake.distribution, _snowflake.find_relation, _snowflake.fix_settings, _snowflake.fixed_types, _snowflake.generators, _snowflake.has_default, _snowflake.horizon_held, _snowflake.inheritance,
    _snowflake.instant, _snowflake.instant_or_null(bigint), _snowflake.instant_or_null(bigint, regclass), _snowflake.instant_or_null_as,
    _snowflake.issuer, _snowflake.key_column, _snowflake.key_type, _snowflake.keys, _snowflake.known_workers, _snowflake.label, _snowflake.lasting,
    _snowflake.loaded, _snowflake.lock_for_type, _snowflake.long_holders, _snowflake.millis, _snowflake.missing_rights, _snowflake.name, _snowflake.next_id_range, _snowflake.obstacles_of_type, _snowflake.on_workers,
    _snowflake.own_worker, _snowflake.partition_step, _snowflake.partitions, _snowflake.place_generator, _snowflake.pool, _snowflake.pool_calls, _snowflake.present, _snowflake.presets, _snowflake.ranges,
    _snowflake.reached, _snowflake.read_as_owner, _snowflake.read_elsewhere, _snowflake.readiness, _snowflake.reads_as_owner, _snowflake.run_as_owner, _snowflake.server,
    _snowflake.set_default, _snowflake.since, _snowflake.small_pools, _snowflake.statistics, _snowflake.tables_of, _snowflake.try_generator, _snowflake.typed_columns,
    _snowflake.undistribute, _snowflake.wanted_size, _snowflake.warn_if_not_ready, _snowflake.worker_of(bigint), _snowflake.worker_of(bigint, regclass),
    _snowflake.worker_of_as, _snowflake.workers
TO PUBLIC;
