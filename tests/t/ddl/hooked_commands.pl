# Tests that the commands that the library hooks keep their errors, privileges and
# locks, that other libraries see them too, and that the library looks up next to nothing
# in a database without the extension.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('commands', 7);
# The other library hooks the same commands, and is loaded first.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_stat_statements, snowflake_id'");
$node->start;
$node->safe_psql('postgres', q{
	CREATE ROLE owner LOGIN;
	CREATE DATABASE bare OWNER owner;
	CREATE EXTENSION snowflake_id;
	CREATE EXTENSION pg_stat_statements;
	GRANT CREATE ON SCHEMA public TO owner});
create_generator($node, 'par_ids', 'preset=default');
create_generator($node, 'heir_ids', 'preset=default');

# TRUNCATE needs no privilege beyond PostgreSQL's own.
for my $database (qw(bare postgres))
{
	$node->safe_psql($database, 'REVOKE ALL ON ALL TABLES IN SCHEMA pg_catalog FROM PUBLIC; GRANT CREATE ON SCHEMA public TO owner');
	my $owner = session($node, 'owner', $database);
	is(error_in($owner, 'CREATE TABLE plain (id serial PRIMARY KEY, v int); CREATE TABLE other (plain int REFERENCES plain)'), '', "$database: tables");
	is(error_in($owner, "INSERT INTO plain DEFAULT VALUES"), '', "$database: a row");
	is(error_in($owner, 'TRUNCATE plain RESTART IDENTITY CASCADE'), '', "$database: TRUNCATE by a role that may not read the catalogs");
	is(error_in($owner, 'ALTER SEQUENCE plain_id_seq RESTART'), '', "$database: ALTER SEQUENCE by such a role");
	is($owner->query_safe('INSERT INTO plain DEFAULT VALUES RETURNING id'), '1', "$database: the sequence was restarted");

	# An error of the command keeps its SQLSTATE and all of its fields.
	is(error_in($owner, <<'END'), '', "$database: a trigger");
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	RAISE SQLSTATE 'U0001' USING MESSAGE = 'no', DETAIL = 'a detail', HINT = 'a hint', SCHEMA = 's', TABLE = 't', COLUMN = 'c', CONSTRAINT = 'k', DATATYPE = 'd';
END$$;
CREATE TRIGGER refuse BEFORE TRUNCATE ON plain EXECUTE FUNCTION refuse();
CREATE FUNCTION fields(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE f text[] := ARRAY[]::text[]; v text;
BEGIN
	EXECUTE command;
	RETURN 'no error';
EXCEPTION WHEN SQLSTATE 'U0001' THEN
	GET STACKED DIAGNOSTICS v = MESSAGE_TEXT; f := f || v;
	GET STACKED DIAGNOSTICS v = PG_EXCEPTION_DETAIL; f := f || v;
	GET STACKED DIAGNOSTICS v = PG_EXCEPTION_HINT; f := f || v;
	GET STACKED DIAGNOSTICS v = SCHEMA_NAME; f := f || v;
	GET STACKED DIAGNOSTICS v = TABLE_NAME; f := f || v;
	GET STACKED DIAGNOSTICS v = COLUMN_NAME; f := f || v;
	GET STACKED DIAGNOSTICS v = CONSTRAINT_NAME; f := f || v;
	GET STACKED DIAGNOSTICS v = PG_DATATYPE_NAME; f := f || v;
	GET STACKED DIAGNOSTICS v = PG_EXCEPTION_CONTEXT; f := f || split_part(v, E'\n', 1);
	RETURN array_to_string(f, '|');
END$$
END
	is($owner->query_safe(q{SELECT fields('TRUNCATE plain RESTART IDENTITY CASCADE')}),
		'no|a detail|a hint|s|t|c|k|d|PL/pgSQL function refuse() line 2 at RAISE', "$database: the fields of its error");
	my ($code, $text) = error_in($owner, q{ALTER SEQUENCE plain_id_seq RESTART WITH 0});
	is($code, '22023', "$database: an error of ALTER SEQUENCE");

	# A plain sequence is restarted, also where its value could be a mark.
	is(error_in($owner, 'CREATE SEQUENCE large; CREATE TABLE owning (id bigserial)'), '', "$database: large values");
	is($owner->query_safe("SELECT setval('large', 1760000000000), setval('owning_id_seq', 1760000000000)"), '1760000000000|1760000000000', "$database: set");
	$owner->query_safe('ALTER SEQUENCE large RESTART; TRUNCATE owning RESTART IDENTITY');
	is($owner->query_safe(q{SELECT nextval('large'), nextval('owning_id_seq')}), '1|1', "$database: plain sequences are restarted");
	$owner->quit;
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_statements WHERE query LIKE 'ALTER SEQUENCE plain_id_seq RESTART'}),
	'2', 'the other library sees the commands too');

# A database without the extension pays one test per command: the extension is not looked
# up again, until some relation changes.
my ($one, $other);
$one = session($node, undef, 'bare');
sub lookups
{
	$one->query_safe('SELECT pg_stat_force_next_flush()');
	return $node->safe_psql('bare', q{SELECT idx_scan + seq_scan FROM pg_stat_sys_tables WHERE relname = 'pg_extension'});
}
my $command = 'ALTER SEQUENCE IF EXISTS missing RESTART';
$one->query_safe($command);
my $looked = lookups();
$one->query_safe($command) for 1 .. 50;
cmp_ok(lookups() - $looked, '<', 10, '50 commands in a database without the extension');

# Another session makes the extension: from then on a restart keeps the mark.
$node->safe_psql('bare', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_generator('late_ids', 'preset=default')});
my $mark = $node->safe_psql('bare', q{SELECT snowflake_nextval('late_ids'); SELECT last_value FROM late_ids}) =~ s/.*\n//r;
$one->query_safe('ALTER SEQUENCE late_ids RESTART');
is($node->safe_psql('bare', 'SELECT last_value FROM late_ids'), $mark, 'the mark is kept once there is an extension');
$one->quit;

# A role that may not restart a generator does not get its state into memory either.
$node->safe_psql('postgres', q{
	CREATE ROLE guest LOGIN;
	CREATE TABLE theirs (id bigint);
	GRANT TRUNCATE ON theirs TO guest;
	CREATE SEQUENCE their_ids INCREMENT 9223372036854775807 START 9223372036854775807 OWNED BY theirs.id;
	SECURITY LABEL FOR snowflake_id ON SEQUENCE their_ids IS 'preset=default'});
my $guest = session($node, 'guest');
for my $command ('TRUNCATE theirs RESTART IDENTITY', 'ALTER SEQUENCE their_ids RESTART')
{
	is(error_in($guest, $command), '42501', "not allowed: $command");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_snowflake WHERE generator = 'their_ids'::regclass}), '0',
		'it takes no slot');
	# PostgreSQL's own check comes first.
	is(error_in($guest, "BEGIN READ ONLY; $command"), '25006', "not in a read-only transaction: $command");
	$guest->query_safe('ROLLBACK');
}
$node->safe_psql('postgres', 'TRUNCATE theirs RESTART IDENTITY');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_snowflake WHERE generator = 'their_ids'::regclass}), '1', 'its owner does');
$guest->quit;

# ONLY does not touch the generator of a child table, even one that another session is
# dropping.
$node->safe_psql('postgres', q{
	CREATE TABLE par (id bigint DEFAULT snowflake_nextval('par_ids'));
	CREATE TABLE heir () INHERITS (par);
	ALTER SEQUENCE par_ids OWNED BY par.id;
	ALTER SEQUENCE heir_ids OWNED BY heir.id;
	INSERT INTO par DEFAULT VALUES;
	SELECT snowflake_nextval('heir_ids')});
($one, $other) = (session($node), session($node));
my $file = q{SELECT pg_relation_filenode('heir_ids')};
my $before = $node->safe_psql('postgres', $file);
is(error_in($one, 'TRUNCATE ONLY par RESTART IDENTITY'), '', 'TRUNCATE ONLY');
is($node->safe_psql('postgres', $file), $before, 'it does not restart an heir\'s sequence');
$other->query_safe('BEGIN; DROP SEQUENCE heir_ids');
is(error_in($one, q{SET lock_timeout = '5 s'; TRUNCATE ONLY par RESTART IDENTITY}), '', 'TRUNCATE ONLY beside DROP SEQUENCE of an heir');
$other->query_safe('ROLLBACK');
draw($one, 'par_ids');
check_ids('TRUNCATE ONLY', drawn('par_ids'));

# DISCARD forgets the last ID, as it does for currval(): behind a pooler the next client
# is another one.
for my $discard ('DISCARD ALL', 'DISCARD SEQUENCES')
{
	$one->query_safe('SELECT snowflake_nextval()');
	is(error_in($one, "$_; SELECT snowflake_currval()"), '', "an ID after $_") for 'DISCARD PLANS', 'DISCARD TEMP';
	is(error_in($one, 'SELECT snowflake_currval()'), '', "an ID before $discard");
	$one->query_safe($discard);
	$one->query_safe('\\set VERBOSITY verbose');
	is(error_in($one, 'SELECT snowflake_currval()'), '55000', "none after $discard");
}

# A session whose first call finds no default generator hears of it when it is back.
my $early = session($node);
$other->query_safe('ALTER SEQUENCE snowflake_default RENAME TO away');
is(error_in($early, 'SELECT snowflake_nextval()'), '42704', 'no default generator');
$other->query_safe('ALTER SEQUENCE away RENAME TO snowflake_default');
$mark = $other->query_safe('SELECT last_value FROM par_ids');
$early->query_safe('ALTER SEQUENCE par_ids RESTART');
is($other->query_safe('SELECT last_value FROM par_ids'), $mark, 'a restart in that session keeps the mark');
$_->quit for $one, $other, $early;
$node->stop;
done_testing();
