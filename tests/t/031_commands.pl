# Tests that the commands that the library hooks keep their errors, privileges and
# locks, and that the library looks up nothing in a database without the extension.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('commands', 7);
$node->start;
$node->safe_psql('postgres', q{
	CREATE ROLE owner LOGIN;
	CREATE DATABASE bare OWNER owner;
	CREATE EXTENSION snowflake_id;
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
	$owner->quit;
}

# ONLY does not touch the generator of a child table, even one that another session is
# dropping.
$node->safe_psql('postgres', q{
	CREATE TABLE par (id bigint DEFAULT snowflake_nextval('par_ids'));
	CREATE TABLE heir () INHERITS (par);
	ALTER SEQUENCE par_ids OWNED BY par.id;
	ALTER SEQUENCE heir_ids OWNED BY heir.id;
	INSERT INTO par DEFAULT VALUES;
	SELECT snowflake_nextval('heir_ids')});
my ($one, $other) = (session($node), session($node));
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
	is(error_in($one, 'SELECT snowflake_currval()'), '', "an ID before $discard");
	$one->query_safe($discard);
	$one->query_safe('\\set VERBOSITY verbose');
	is(error_in($one, 'SELECT snowflake_currval()'), '55000', "none after $discard");
}
$_->quit for $one, $other;
$node->stop;
done_testing();
