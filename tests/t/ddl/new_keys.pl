# Tests snowflake_id.new_keys where a single session shows too little: who owns and who may
# change its event trigger, who may set it, commands of superusers among objects of others,
# servers that cannot issue IDs, dumps, and extensions' scripts. What becomes of which key is
# in tests/pg_regress/sql/new_keys.sql.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "track_functions = all");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE boss LOGIN; CREATE ROLE friend LOGIN; CREATE ROLE villain LOGIN;
	CREATE DATABASE shop OWNER boss; CREATE DATABASE other OWNER boss');
my $root = $node->safe_psql('postgres', 'SELECT current_user');
sub sql { return $node->safe_psql('shop', $_[0]); }

# Runs a statement as a role; returns its SQLSTATE, '' if none, and its messages.
sub as
{
	my ($role, $statement, $database) = @_;
	my $err;
	$node->psql($database // 'shop', "\\set VERBOSITY verbose\n$statement", stderr => \$err, on_error_stop => 1, extra_params => [ '-U', $role ]);
	my ($code) = $err =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/;
	return ($code // '', $err);
}

# Returns the default of a key, or the kind of its identity.
sub key
{
	my ($table, $database, $on) = @_;
	return ($on // $node)->safe_psql($database // 'shop', "SELECT coalesce(pg_get_expr(f.adbin, f.adrelid), a.attidentity::text)
		FROM pg_attribute AS a LEFT JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
		WHERE a.attrelid = '$table'::regclass AND a.attname = 'id'");
}

# 1. The owner of a database makes the extension. The trigger is the first superuser's.
is((as('boss', 'CREATE EXTENSION snowflake_id'))[0], '', 'the owner of a database makes the extension');
is(sql('SELECT evtname, evtowner, evtenabled, evtevent FROM pg_event_trigger'), 'snowflake_id_new_keys|10|O|ddl_command_end', 'and the first superuser owns the trigger');
for my $change (
	'DROP EVENT TRIGGER snowflake_id_new_keys',
	'ALTER EVENT TRIGGER snowflake_id_new_keys DISABLE',
	'ALTER EVENT TRIGGER snowflake_id_new_keys RENAME TO mine',
	'ALTER EVENT TRIGGER snowflake_id_new_keys OWNER TO boss',
	q{COMMENT ON EVENT TRIGGER snowflake_id_new_keys IS 'mine'},
	'ALTER EXTENSION snowflake_id DROP EVENT TRIGGER snowflake_id_new_keys',
	'CREATE OR REPLACE FUNCTION _snowflake.new_keys() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN END$$',
	'ALTER FUNCTION _snowflake.new_keys() SET search_path = public',
	'DROP FUNCTION _snowflake.new_keys() CASCADE',
	'CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION _snowflake.new_keys()')
{
	is((as('boss', $change))[0], '42501', "the owner of the database: $change");
}
is((as('boss', 'SELECT _snowflake.new_keys()'))[0], '42501', 'nobody calls its function');
as('boss', 'DROP EXTENSION snowflake_id');
is(sql('SELECT count(*) FROM pg_event_trigger'), '0', 'DROP EXTENSION drops the trigger');
$node->safe_psql('postgres', 'CREATE ROLE admin SUPERUSER LOGIN');
as('admin', 'CREATE EXTENSION snowflake_id');
is(sql('SELECT evtowner FROM pg_event_trigger'), '10', 'another superuser makes the extension, the first one owns the trigger');
as('admin', 'DROP EXTENSION snowflake_id');
as('boss', 'CREATE EXTENSION snowflake_id; GRANT CREATE ON SCHEMA public TO friend, villain', $_) for 'shop', 'other';

# 2. With the setting off, the function of the trigger does nothing but read it.
my $tracked = q{SELECT string_agg(funcname, ' ' ORDER BY funcname) FROM pg_stat_user_functions WHERE schemaname = '_snowflake'};
my $create = 'CREATE TABLE tracked (id bigserial PRIMARY KEY)';
sub calls
{
	my ($setting) = @_;
	sql("SELECT pg_stat_reset(); SET snowflake_id.new_keys = $setting; $create; DROP TABLE tracked");
	ok($node->poll_query_until('shop', q{SELECT count(*) > 0 FROM pg_stat_user_functions WHERE funcname = 'new_keys'}), 'functions are counted');
	return sql($tracked);
}
is(calls('off'), 'new_keys', 'off: the function of the trigger calls no other');
like(calls('on'), qr/\bname\b.*\bnew_keys\b.*\bwarn_if_not_ready\b/, 'on: it does');

# 3. Who may set it: everybody for the own session, who owns the database for the database.
is((as('friend', 'ALTER DATABASE shop SET snowflake_id.new_keys = on'))[0], '42501', 'not everybody sets it for the database');
is((as('boss', 'ALTER DATABASE shop SET snowflake_id.new_keys = on'))[0], '', 'its owner does');
is((as('friend', 'ALTER ROLE friend SET snowflake_id.new_keys = on'))[0], '', 'a role sets it for itself');
for my $case ([ 'boss', 'shop', 'snowflake_nextval()' ], [ 'boss', 'other', q{nextval('of_boss_id_seq'::regclass)} ], [ 'friend', 'other', 'snowflake_nextval()' ])
{
	my ($role, $database, $expected) = @$case;
	as($role, "CREATE TABLE of_$role (id bigserial PRIMARY KEY)", $database);
	is(key("of_$role", $database), $expected, "a table of $role in database $database");
}
is((as('villain', 'SET snowflake_id.new_keys = off; CREATE TABLE by_sequence (id bigserial PRIMARY KEY)'))[1], '', 'a session that switches it off hears nothing');
like(key('by_sequence'), qr/^nextval/, 'and has its sequence');
# The setting is as before after each command, also after one that fails.
is(sql(q{BEGIN; CREATE TABLE a (id bigserial PRIMARY KEY); SHOW snowflake_id.new_keys; SET snowflake_id.new_keys = off; COMMIT; SHOW snowflake_id.new_keys; RESET snowflake_id.new_keys;
	BEGIN; CREATE TABLE b (id bigserial PRIMARY KEY); ROLLBACK; SHOW snowflake_id.new_keys}), "on\noff\non", 'commands leave the setting as it was');
sql('DROP TABLE a');

# 4. Superusers among objects of others. The functions of the villain would run as they do.
$node->safe_psql('shop', <<'END', extra_params => [ '-U', 'villain' ]);
SET snowflake_id.new_keys = off;
CREATE FUNCTION public.trap(bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN RAISE EXCEPTION 'run as %', current_user; END IF;
	RETURN $1;
END $$;
CREATE TABLE checked (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, CHECK (id > public.trap(0)));
CREATE TABLE indexed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CREATE INDEX ON indexed (id) WHERE id > public.trap(0);
CREATE TABLE expressed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CREATE INDEX ON expressed ((id + public.trap(0)));
CREATE TABLE excluded (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, other bigint, EXCLUDE USING btree (id WITH =) WHERE (other > public.trap(0)));
CREATE TABLE generated (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, g bigint GENERATED ALWAYS AS (id + public.trap(0)) STORED);
END
for my $table (qw(checked indexed expressed excluded generated))
{
	my (undef, $err) = as($root, "CREATE SCHEMA of_$table AUTHORIZATION villain CREATE TABLE t (LIKE public.$table INCLUDING ALL)");
	unlike($err, qr/ERROR/, "$table: a superuser runs no function of the owner");
	is(key("of_$table.t"), 'snowflake_nextval()', 'with IDs');
	is((as('villain', "ALTER TABLE of_$table.t ALTER COLUMN id SET STATISTICS 10"))[0], '', 'for the table of the villain');
}
my (undef, $of_child) = as($root, 'CREATE SCHEMA of_child AUTHORIZATION villain
	CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY) CREATE TABLE c (LIKE public.checked INCLUDING CONSTRAINTS) INHERITS (t)');
unlike($of_child, qr/ERROR/, 'nor one of a child table');
like((as($root, 'ALTER TABLE checked ADD CHECK (id < public.trap(1))'))[1], qr/run as \Q$root\E/, 'the function would tell');

# Names that the villain has made are not taken.
sql(q{CREATE SCHEMA mine AUTHORIZATION villain});
$node->safe_psql('shop', <<'END', extra_params => [ '-U', 'villain' ]);
CREATE FUNCTION mine.snowflake_nextval() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
CREATE FUNCTION mine.format(text, regclass, name) RETURNS text LANGUAGE sql AS $$SELECT 'DROP TABLE checked'$$;
CREATE FUNCTION mine.same(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR mine.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = mine.same);
CREATE TABLE mine.pg_class (oid oid, relkind "char");
END
# PostgreSQL 19 has no other strings than standard ones.
my $strings = $node->pg_version->major < 19 ? 'off' : 'on';
is((as($root, qq{SET standard_conforming_strings = $strings; } . q{SET search_path = mine, pg_catalog, public; SET quote_all_identifiers = on;
	CREATE TABLE mine."a\"b'; DROP TABLE checked --" ("i%I\d" bigserial PRIMARY KEY)} =~ s/\\"b/""b/r))[0], '', 'a superuser makes a table in the schema of a villain');
is(sql(q{SELECT d.function = 'public.snowflake_nextval()'::regprocedure
	FROM _snowflake.defaults AS d WHERE d.relation::regclass::text LIKE 'mine.%'}), 't', 'with the function of the extension');

# Somebody renames the schema and has another table of that name. (An event trigger can do in
# time what another session would have to be quick for.)
sql(q{CREATE SCHEMA moving AUTHORIZATION villain;
	CREATE FUNCTION swap_schemas() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF current_setting('t.skip')::integer > 0 THEN
			PERFORM set_config('t.skip', '0', false);
		ELSIF to_regnamespace('moved') IS NULL THEN
			ALTER SCHEMA moving RENAME TO moved;
			CREATE SCHEMA moving CREATE TABLE t (id bigint NOT NULL, other bigint) CREATE SEQUENCE t_id_seq;
		END IF;
	END $$});
for my $case (
	# The default is set for the other table, or its sequence is dropped.
	[ 'ALTER TABLE', 'SET t.skip = 1; CREATE TABLE moving.t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)' ],
	[ 'DROP SEQUENCE', 'CREATE TABLE moving.t (id bigserial PRIMARY KEY)' ])
{
	my ($tag, $command) = @$case;
	sql("CREATE EVENT TRIGGER swap_schemas ON ddl_command_start WHEN TAG IN ('$tag') EXECUTE FUNCTION swap_schemas()");
	my ($code, $err) = as($root, "SET t.skip = 0; $command");
	is($code, '55000', "a schema that is renamed at $tag");
	like($err, qr/could not set the default of .*moving\.t\.id/, 'and what failed');
	is(sql(q{SELECT to_regclass('moving.t'), to_regnamespace('moved')}), '|', 'nothing is left');
	sql('DROP EVENT TRIGGER swap_schemas');
}

# 5. Who cannot use the extension keeps sequences, and commands work.
$node->safe_psql('postgres', 'CREATE DATABASE closed OWNER boss');
$node->safe_psql('closed', 'CREATE SCHEMA ids AUTHORIZATION boss');
as('boss', 'CREATE EXTENSION snowflake_id SCHEMA ids; CREATE SCHEMA friend AUTHORIZATION boss; GRANT ALL ON SCHEMA friend TO friend; ALTER DATABASE closed SET snowflake_id.new_keys = on', 'closed');
my ($code, $err) = as('friend', 'CREATE TABLE friend.t (id bigserial PRIMARY KEY)', 'closed');
is($code, '', 'without USAGE on the schema of the extension');
like($err, qr/WARNING: .* key friend\.t\.id gets no snowflake IDs.*Role friend lacks USAGE on schema ids, or on sequence ids\.snowflake_default\..*call snowflake_set_default\('friend\.t'\)/s, 'a warning says so');
like(key('friend.t', 'closed'), qr/^nextval/, 'and the sequence stays');
as('boss', 'GRANT USAGE ON SCHEMA ids TO friend', 'closed');
$node->safe_psql('closed', 'REVOKE USAGE ON SEQUENCE ids.snowflake_default FROM PUBLIC');
($code, $err) = as('friend', 'CREATE TABLE friend.t2 (id bigserial PRIMARY KEY)', 'closed');
is($code, '', 'without USAGE on the generator');
like($err, qr/WARNING: .* key friend\.t2\.id gets no snowflake IDs/, 'a warning says so');
$node->safe_psql('closed', 'GRANT USAGE ON SEQUENCE ids.snowflake_default TO PUBLIC');
is((as('friend', 'CREATE TABLE friend.t3 (id bigserial PRIMARY KEY); INSERT INTO friend.t3 DEFAULT VALUES', 'closed'))[0], '', 'with both');
is(key('friend.t3', 'closed'), 'ids.snowflake_nextval()', 'the key has IDs');
# A schema for a role whose rights the caller has not.
sql('CREATE ROLE maker LOGIN NOINHERIT; GRANT villain TO maker; GRANT CREATE ON DATABASE shop TO maker');
($code, $err) = as('maker', 'CREATE SCHEMA of_maker AUTHORIZATION villain CREATE TABLE t (id bigserial PRIMARY KEY)');
is($code, '', 'a schema for another role');
like($err, qr/key of_maker\.t\.id gets no snowflake IDs.*Role villain owns the table.*call snowflake_set_default\('of_maker\.t'\)/s, 'a warning says so');
# Nor do other kinds of objects disturb it.
is((as($root, 'CREATE SCHEMA mixed CREATE TABLE t (id bigserial PRIMARY KEY) CREATE VIEW v AS SELECT id FROM t CREATE INDEX ON t ((id % 7)) GRANT SELECT ON t TO PUBLIC'))[0], '', 'a schema with elements');
is(key('mixed.t'), 'snowflake_nextval()', 'and IDs');

# 6. Dumps name no trigger, and are restored as they were, into a database that has it on.
$node->safe_psql('other', q{CREATE TABLE ident (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY); CREATE TABLE has_ids (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
	SET snowflake_id.new_keys = on; CREATE TABLE new_ids (id bigserial PRIMARY KEY);
	INSERT INTO ident SELECT FROM generate_series(1, 5); INSERT INTO of_boss SELECT FROM generate_series(1, 5)});
my @tables = qw(ident has_ids new_ids of_boss);
my $folder = PostgreSQL::Test::Utils::tempdir();
command_ok([ 'pg_dump', '-f', "$folder/other.sql", $node->connstr('other') ], 'dump');
command_ok([ 'pg_dump', '-Fc', '-f', "$folder/other.dump", $node->connstr('other') ], 'dump to an archive');
unlike(slurp_file("$folder/other.sql"), qr/EVENT TRIGGER|_snowflake/, 'a dump has no line of the trigger');
$node->safe_psql('postgres', "CREATE DATABASE $_ OWNER boss; ALTER DATABASE $_ SET snowflake_id.new_keys = on") for 'again', 'archive', 'pieces';
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$folder/other.sql", '-d', $node->connstr('again') ], 'restore');
command_ok([ 'pg_restore', '--exit-on-error', '--single-transaction', '-d', $node->connstr('archive'), "$folder/other.dump" ], 'restore in a transaction');
command_ok([ 'pg_restore', '--exit-on-error', "--section=$_", '-d', $node->connstr('pieces'), "$folder/other.dump" ], "restore of $_") for qw(pre-data data post-data);
for my $database (qw(again archive pieces))
{
	is(key($_, $database), key($_, 'other'), "$database: $_") for @tables;
	is($node->safe_psql($database, 'INSERT INTO ident DEFAULT VALUES RETURNING id'), '6', "$database: a sequence goes on");
}

# 7. Scripts of extensions make what they say.
SKIP:
{
	skip 'extensions elsewhere need PostgreSQL 18', 2 if $node->pg_version < 18;
	mkdir "$folder/extension";
	append_to_file("$folder/extension/keyed.control", "default_version = '1'\nrelocatable = true\n");
	append_to_file("$folder/extension/keyed--1.sql", "CREATE TABLE keyed (id bigserial PRIMARY KEY); CREATE TABLE keyed_too (id serial PRIMARY KEY, keyed_id integer REFERENCES of_boss);\n");
	my $path = sql('SHOW extension_control_path');
	is((as($root, "SET extension_control_path = '$folder:$path'; CREATE EXTENSION keyed"))[1], '', 'the script of another extension hears nothing');
	like(key('keyed'), qr/^nextval/, 'and has its sequence');
}

# 8. Servers that issue no IDs: commands work, and rows are refused.
my $bare = new_node('bare', '');
$bare->start;
$bare->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; ALTER DATABASE postgres SET snowflake_id.new_keys = on');
my $warned;
$bare->psql('postgres', 'CREATE TABLE t (id bigserial PRIMARY KEY)', stderr => \$warned);
like($warned, qr/WARNING:  this server has no worker ID/, 'without a worker ID: a warning');
is(key('t', 'postgres', $bare), 'snowflake_nextval()', 'and the default is there');
is((error_of($bare, 'INSERT INTO t DEFAULT VALUES'))[0], '55000', 'which says what is missing');
$bare->stop;
$bare->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$bare->start;
$bare->psql('postgres', 'CREATE TABLE t2 (id bigserial PRIMARY KEY)', stderr => \$warned);
unlike($warned, qr/ERROR/, 'without preloading');
is((error_of($bare, 'INSERT INTO t2 DEFAULT VALUES'))[0], '55000', 'rows are refused');
# A database outlives the library: commands of those who have the setting off work.
$bare->safe_psql('postgres', 'ALTER DATABASE postgres RESET snowflake_id.new_keys');
mkdir "$folder/lib";
symlink $bare->config_data('--pkglibdir') . '/plpgsql.so', "$folder/lib/plpgsql.so";
$bare->append_conf('postgresql.conf', "dynamic_library_path = '$folder/lib'");
$bare->restart;
is((error_of($bare, 'SELECT snowflake_nextval()'))[0], '58P01', 'without the library');
is((error_of($bare, 'CREATE TABLE t3 (id bigserial PRIMARY KEY); ALTER TABLE t3 ADD COLUMN n integer; CREATE SCHEMA s CREATE TABLE t (id bigserial PRIMARY KEY)'))[0], '', 'tables are made');
like(key('t3', 'postgres', $bare), qr/^nextval/, 'with sequences');
$bare->stop;
$node->stop;
done_testing();
