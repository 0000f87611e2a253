# Tests snowflake_id.new_keys where a single session shows too little: who may set it, and to which
# generators; commands of superusers among objects of others; functions and event triggers of others;
# servers that cannot issue IDs, dumps, and extensions' scripts. What becomes of which key is in
# tests/pg_regress/sql/new_keys.sql.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
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

# 1. The owner of a database makes the extension, which has no event trigger.
as('boss', 'CREATE EXTENSION snowflake_id; GRANT CREATE ON SCHEMA public TO friend, villain', $_) for 'shop', 'other';
is(sql('SELECT count(*) FROM pg_event_trigger'), '0', 'no event trigger');
$node->safe_psql('postgres', 'CREATE ROLE admin SUPERUSER LOGIN');

# 2. A database without the extension: the setting changes nothing.
$node->safe_psql('postgres', 'CREATE DATABASE without OWNER boss');
is((as('boss', 'SET snowflake_id.new_keys = on; CREATE TABLE t (id bigserial PRIMARY KEY)', 'without'))[1], '', 'without the extension, nothing is said');
like(key('t', 'without'), qr/^nextval/, 'and nothing done');

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
for my $table (qw(indexed expressed excluded generated))
{
	my (undef, $err) = as($root, "CREATE SCHEMA of_$table AUTHORIZATION villain CREATE TABLE t (LIKE public.$table INCLUDING ALL)");
	unlike($err, qr/ERROR/, "$table: a superuser runs no function of the owner");
	is(key("of_$table.t"), 'snowflake_nextval()', 'with IDs');
	is((as('villain', "ALTER TABLE of_$table.t ALTER COLUMN id SET STATISTICS 10"))[0], '', 'for the table of the villain');
}
my ($code, $err);
my (undef, $of_child) = as($root, 'CREATE SCHEMA of_child AUTHORIZATION villain
	CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY) CREATE TABLE c (LIKE public.checked INCLUDING CONSTRAINTS) INHERITS (t)');
unlike($of_child, qr/ERROR/, 'nor one of a child table');
like($of_child, qr/key of_child\.t\.id gets no snowflake IDs.*violate constraint checked_id_check/s, 'whose constraint IDs may violate');
(undef, $err) = as($root, 'CREATE SCHEMA of_checked AUTHORIZATION villain CREATE TABLE t (LIKE public.checked INCLUDING ALL)');
unlike($err, qr/ERROR/, 'nor the constraint of a key, which stays');
is(key('of_checked.t'), 'a', 'as it is');
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

# Somebody renames the schema at the last moment, and has another table of that name: the table that was
# made gets IDs, and the other one stays. The owner is the villain; an event trigger is as quick as can be.
sql(q{CREATE SCHEMA moving AUTHORIZATION villain;
	CREATE FUNCTION swap_schemas() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF to_regnamespace('moved') IS NULL AND to_regclass('moving.t') IS NOT NULL THEN
			ALTER SCHEMA moving RENAME TO moved;
			CREATE SCHEMA moving CREATE TABLE t (id bigint NOT NULL, other bigint) CREATE SEQUENCE t_id_seq;
		END IF;
	END $$;
	CREATE EVENT TRIGGER swap_schemas ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION swap_schemas()});
is((as($root, 'CREATE TABLE moving.t (id bigserial PRIMARY KEY)'))[0], '', 'a schema that is renamed');
is(key('moved.t'), 'snowflake_nextval()', 'the table that was made has IDs');
is(key('moving.t') . sql(q{SELECT to_regclass('moving.t_id_seq'), to_regclass('moved.t_id_seq')}), 'moving.t_id_seq|', 'the other one has what it had');
sql('DROP EVENT TRIGGER swap_schemas');

# Event triggers of others have fired before the key is changed, and have seen what the command made. Tables that they
# make are commands of their own, also in an exception block that fails, and within a command that makes no table.
sql(q{CREATE TABLE public.seen (tag text, default_was text);
	CREATE FUNCTION public.look() RETURNS event_trigger LANGUAGE plpgsql SET search_path = public AS $$
	BEGIN
		IF coalesce(current_setting('t.is_within', true), '') = '' THEN
			PERFORM set_config('t.is_within', 'yes', true);
			INSERT INTO seen SELECT tg_tag, (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = to_regclass('looked_at'));
			BEGIN
				CREATE TABLE of_no_use (id bigserial PRIMARY KEY);
				RAISE EXCEPTION 'no';
			EXCEPTION WHEN raise_exception THEN NULL;
			END;
			BEGIN
				CREATE TABLE of_no_use (id bigserial PRIMARY KEY, nothing nonsense);
			EXCEPTION WHEN undefined_object THEN NULL;
			END;
			CREATE TABLE of_trigger (id bigserial PRIMARY KEY);
			SET LOCAL snowflake_id.new_keys = off;
			CREATE TABLE of_trigger_off (id bigserial PRIMARY KEY);
		END IF;
	END $$;
	CREATE EVENT TRIGGER look ON ddl_command_end EXECUTE FUNCTION look()});
for my $command ('CREATE TABLE public.looked_at (id bigserial PRIMARY KEY)', 'CREATE SCHEMA looked_at_too CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)',
	'CREATE VIEW public.no_table AS SELECT 1 AS one', 'ALTER TABLE public.seen ADD COLUMN id bigserial')
{
	is((as($root, "SET snowflake_id.new_keys = on; $command"))[0], '', "within $command");
	is(key('public.of_trigger'), 'snowflake_nextval()', 'a table of an event trigger has IDs');
	like(key('public.of_trigger_off'), qr/^nextval/, 'or not, as is set there');
	sql('SET t.is_within = yes; DROP TABLE public.of_trigger, public.of_trigger_off');
}
is(key('public.looked_at') . key('looked_at_too.t'), 'snowflake_nextval()snowflake_nextval()', 'the tables have IDs');
like(sql(q{SELECT default_was FROM public.seen WHERE tag = 'CREATE TABLE'}), qr/^nextval/, 'and the trigger saw the sequence');
sql('DROP EVENT TRIGGER look; DROP TABLE public.seen');
# Before a command, and where something is dropped, PostgreSQL collects commands of triggers.
for my $event ('ddl_command_start', 'sql_drop')
{
	sql("CREATE TABLE to_drop (id int);
		CREATE FUNCTION public.at_$event() RETURNS event_trigger LANGUAGE plpgsql SET search_path = public AS \$\$
		BEGIN
			IF coalesce(current_setting('t.is_within', true), '') = '' THEN
				PERFORM set_config('t.is_within', 'yes', true);
				CREATE TABLE of_$event (id bigserial PRIMARY KEY);
			END IF;
		END \$\$;
		CREATE EVENT TRIGGER at_$event ON $event EXECUTE FUNCTION at_$event()");
	is((as($root, 'SET snowflake_id.new_keys = on; DROP TABLE to_drop'))[0], '', "a table that is made at $event");
	is(key("of_$event"), 'snowflake_nextval()', 'has IDs');
	sql("SET t.is_within = yes; DROP EVENT TRIGGER at_$event");
}
# A sequence that a trigger makes by itself is none of the command's.
sql(q{CREATE FUNCTION public.owns() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF to_regclass('public.theirs') IS NULL AND to_regclass('public.by_default') IS NOT NULL THEN CREATE SEQUENCE public.theirs OWNED BY public.by_default.id; END IF;
	END $$;
	CREATE EVENT TRIGGER owns ON ddl_command_end EXECUTE FUNCTION owns()});
is((as($root, 'SET snowflake_id.new_keys = on; CREATE TABLE public.by_default (id bigint PRIMARY KEY DEFAULT 99)'))[1], '', 'a sequence that a trigger makes');
is(key('public.by_default') . sql(q{SELECT to_regclass('public.theirs')}), '99theirs', 'stays, as does the default');
sql('DROP EVENT TRIGGER owns');
# After a command that fails, others are noted as before.
is((as($root, "SET snowflake_id.new_keys = on;\n\\set ON_ERROR_STOP 0\nCREATE TABLE failed (id bigserial PRIMARY KEY, nothing nonsense);\nCREATE TABLE after_failed (id bigserial PRIMARY KEY);"))[0], '42704', 'a command that fails');
is(key('after_failed'), 'snowflake_nextval()', 'and one after it');
is((as($root, "SET snowflake_id.new_keys = on; BEGIN; SAVEPOINT a;\n\\set ON_ERROR_STOP 0\nCREATE TABLE failed (id bigserial PRIMARY KEY, nothing nonsense);\nROLLBACK TO a;\nCREATE TABLE after_savepoint (id bigserial PRIMARY KEY); COMMIT"))[0], '42704', 'also to a savepoint');
is(key('after_savepoint'), 'snowflake_nextval()', 'and one after it');

# Functions of other roles: what the session or its role has set does not count there.
sql(q{CREATE FUNCTION public.make(name text) RETURNS void SECURITY DEFINER LANGUAGE plpgsql SET search_path = public AS $$BEGIN EXECUTE format('CREATE TABLE %I (id bigserial PRIMARY KEY)', name); END$$;
	ALTER FUNCTION public.make(text) OWNER TO friend});
as('boss', 'ALTER DATABASE shop RESET snowflake_id.new_keys');
as('friend', 'ALTER ROLE friend RESET snowflake_id.new_keys');
is((as('villain', "SET snowflake_id.new_keys = on; SELECT make('by_session')"))[0], '', 'a function of another role makes a table');
like(key('by_session'), qr/^nextval/, 'as its owner would, though the session has it on');
as('villain', 'ALTER ROLE villain SET snowflake_id.new_keys = on');
as('villain', "SELECT make('by_role')");
like(key('by_role'), qr/^nextval/, 'or the role');
as('friend', "SET snowflake_id.new_keys = on; SELECT make('by_self')");
is(key('by_self'), 'snowflake_nextval()', 'the role itself decides for its own function');
as('villain', 'ALTER ROLE villain RESET snowflake_id.new_keys');
as('boss', 'ALTER DATABASE shop SET snowflake_id.new_keys = on');
as('villain', "SELECT make('by_database')");
is(key('by_database'), 'snowflake_nextval()', 'that of the database counts');

# A generator that the setting names: of a superuser, or of a role whose rights the owner of the table has.
$node->safe_psql('shop', q{SELECT snowflake_create_generator('public.of_villain', 'preset=javascript')}, extra_params => [ '-U', 'villain' ]);
sql(q{SELECT snowflake_create_generator('public.of_admin', 'preset=javascript'); ALTER SEQUENCE public.of_admin OWNER TO admin});
as('boss', q{ALTER DATABASE shop SET snowflake_id.new_keys = 'public.of_villain'});
for my $role ($root, 'friend')
{
	my ($code, $err) = as($role, "CREATE TABLE trusts_$role (id bigserial PRIMARY KEY)");
	is($code, '', "$role makes a table");
	like($err, qr/key public\.trusts_\w+\.id gets no snowflake IDs.*generator public\.of_villain of role villain, whose rights the owner of the table has not/s, 'and takes no generator of others');
	like(key("trusts_$role"), qr/^nextval/, 'but keeps the sequence');
}
as('villain', 'CREATE TABLE trusts_villain (id bigserial PRIMARY KEY)');
is(key('trusts_villain'), q{snowflake_nextval('of_villain'::regclass)}, 'its owner does');
as('boss', q{ALTER DATABASE shop SET snowflake_id.new_keys = 'public.of_admin'});
my (undef, $needs) = as('friend', 'CREATE TABLE of_admin_1 (id bigserial PRIMARY KEY)');
like($needs, qr/Role friend lacks USAGE on sequence public\.of_admin\..*generator => 'public\.of_admin'/s, 'one of a superuser needs USAGE');
sql('GRANT USAGE ON SEQUENCE public.of_admin TO friend');
is((as('friend', 'CREATE TABLE of_admin_2 (id bigserial PRIMARY KEY); INSERT INTO of_admin_2 DEFAULT VALUES'))[0], '', 'with it');
is(key('of_admin_2'), q{snowflake_nextval('of_admin'::regclass)}, 'keys have its IDs');
as('boss', 'ALTER DATABASE shop SET snowflake_id.new_keys = on');

# 5. Who cannot use the extension keeps sequences, and commands work.
$node->safe_psql('postgres', 'CREATE DATABASE closed OWNER boss');
$node->safe_psql('closed', 'CREATE SCHEMA ids AUTHORIZATION boss');
as('boss', 'CREATE EXTENSION snowflake_id SCHEMA ids; CREATE SCHEMA friend AUTHORIZATION boss; GRANT ALL ON SCHEMA friend TO friend; ALTER DATABASE closed SET snowflake_id.new_keys = on', 'closed');
($code, $err) = as('friend', 'CREATE TABLE friend.t (id bigserial PRIMARY KEY)', 'closed');
is($code, '', 'without USAGE on the schema of the extension');
like($err, qr/WARNING: .* key friend\.t\.id gets no snowflake IDs.*Role friend lacks USAGE on schema ids\..*call snowflake_set_default\('friend\.t'\)/s, 'a warning says so');
like(key('friend.t', 'closed'), qr/^nextval/, 'and the sequence stays');
as('boss', 'GRANT USAGE ON SCHEMA ids TO friend', 'closed');
$node->safe_psql('closed', 'REVOKE USAGE ON SEQUENCE ids.snowflake_default FROM PUBLIC');
($code, $err) = as('friend', 'CREATE TABLE friend.t2 (id bigserial PRIMARY KEY)', 'closed');
is($code, '', 'without USAGE on the generator');
like($err, qr/WARNING: .* key friend\.t2\.id gets no snowflake IDs.*Role friend lacks USAGE on sequence ids\.snowflake_default\./s, 'a warning says so');
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

# 6. Dumps are restored as they were, into a database that has it on.
$node->safe_psql('other', q{CREATE TABLE ident (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY); CREATE TABLE has_ids (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
	SET snowflake_id.new_keys = on; CREATE TABLE new_ids (id bigserial PRIMARY KEY);
	INSERT INTO ident SELECT FROM generate_series(1, 5); INSERT INTO of_boss SELECT FROM generate_series(1, 5)});
my @tables = qw(ident has_ids new_ids of_boss);
my $folder = PostgreSQL::Test::Utils::tempdir();
command_ok([ 'pg_dump', '-f', "$folder/other.sql", $node->connstr('other') ], 'dump');
command_ok([ 'pg_dump', '-Fc', '-f', "$folder/other.dump", $node->connstr('other') ], 'dump to an archive');
unlike(slurp_file("$folder/other.sql"), qr/EVENT TRIGGER|_snowflake/, 'a dump has nothing of it');
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
is($warned, '', 'without preloading, there is no such setting');
like(key('t2', 'postgres', $bare), qr/^nextval/, 'and a table has its sequence');
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
