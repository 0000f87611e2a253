# Tests that nothing of others runs while a superuser calls what the extensions have, in a database whose owner
# stops him in the middle: he queues a lock on the table of the call, or on a catalog that it reads; drops the extension
# that he has made; and puts functions and views of the same names in its place, each of which tells who runs it. The call
# gives an error or does what it says. The schema of the extension is the superuser's: in one of the owner's, the
# call itself could be his.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', "deadlock_timeout = 20ms\nlog_min_messages = log\nmax_prepared_transactions = 5");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN; CREATE DATABASE shop OWNER owner');
my $me = $node->safe_psql('postgres', 'SELECT current_user');
sub sql { return $node->safe_psql('shop', $_[0]); }

# What the owner has beside the extension.
sql('CREATE SCHEMA ext; GRANT USAGE ON SCHEMA ext TO PUBLIC; GRANT CREATE ON SCHEMA ext TO owner; CREATE SCHEMA supers');
my $as_owner = sub { $node->safe_psql('shop', $_[0], extra_params => [ '-U', 'owner' ]) };
my $make = 'CREATE EXTENSION snowflake_id SCHEMA ext; CREATE EXTENSION snowflake_id_convert SCHEMA ext';
$as_owner->("$make; CREATE SCHEMA own; GRANT ALL ON SCHEMA own TO PUBLIC");
$as_owner->(q{CREATE FUNCTION own.tell(name text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'planted: % as %', name, current_user; RETURN true; END$$});
# All functions of the internal schemas but those with types of their own, and all views and tables.
my $plant = $node->safe_psql('shop', <<'SQL');
SELECT 'CREATE SCHEMA _snowflake; GRANT ALL ON SCHEMA _snowflake TO PUBLIC; CREATE SCHEMA _snowflake_convert; GRANT ALL ON SCHEMA _snowflake_convert TO PUBLIC;';
SELECT format('CREATE %s %s.%I(%s) %s LANGUAGE plpgsql AS %L;', CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, n.nspname, p.proname,
	regexp_replace(pg_get_function_arguments(p.oid), ' DEFAULT [^,]*', '', 'g'), CASE p.prokind WHEN 'f' THEN 'RETURNS ' || pg_get_function_result(p.oid) ELSE '' END,
	format('BEGIN PERFORM own.tell(%L); %s END', p.oid::regprocedure, CASE WHEN p.prokind = 'p' THEN '' WHEN p.proretset OR p.proallargtypes IS NOT NULL OR p.prorettype = 'void'::regtype
		THEN 'RETURN;' ELSE 'RETURN NULL;' END))
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname ~ '^_snowflake' AND concat(pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)) !~ '_snowflake|internal|trigger|anyarray';
SELECT format('CREATE VIEW %s AS SELECT * FROM own.%I WHERE own.tell(%L);', c.oid::regclass, n.nspname || c.relname, c.oid::regclass)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname ~ '^_snowflake' AND c.relkind IN ('r', 'v');
SQL
# The views have a row each.
sql(q{DO $$ DECLARE it record; BEGIN
	FOR it IN SELECT c.oid::regclass AS id, format('own.%I', n.nspname || c.relname) AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE n.nspname ~ '^_snowflake' AND c.relkind IN ('r', 'v')
	LOOP
		EXECUTE format('CREATE TABLE %1$s AS SELECT * FROM %2$s LIMIT 0; INSERT INTO %1$s DEFAULT VALUES; ALTER TABLE %1$s OWNER TO owner', it.name, it.id);
	END LOOP;
END $$});
my $planted = () = $plant =~ /PERFORM own\.tell/g;
cmp_ok($planted, '>', 100, "$planted functions to plant");
cmp_ok(scalar(() = $plant =~ /CREATE VIEW/g), '>', 8, 'tables and views');

# Tables of the owner, as the calls need them.
my $tables = q{
	CREATE TABLE own.keys (id bigint PRIMARY KEY); CREATE TABLE own.events (id bigint PRIMARY KEY DEFAULT ext.snowflake_nextval()) PARTITION BY RANGE (id);
	CREATE TABLE own.old (id serial PRIMARY KEY); INSERT INTO own.old SELECT FROM generate_series(1, 3); CREATE TABLE own.old_2 (id serial PRIMARY KEY);
	CREATE TABLE own.polled (id bigint PRIMARY KEY DEFAULT ext.snowflake_nextval(), x int); CREATE TRIGGER t BEFORE INSERT ON own.polled FOR EACH ROW EXECUTE FUNCTION ext.snowflake_check_horizon()};
my $steps = sub { my ($table, $count) = @_; sql("SELECT statement FROM ext.snowflake_convert_steps('{$table}') LIMIT $count \\gexec") };
my $is_gone = 0;
sub make_again
{
	my ($is_online) = @_;
	sql('DROP SCHEMA IF EXISTS _snowflake CASCADE; DROP SCHEMA IF EXISTS _snowflake_convert CASCADE') if $is_gone;
	$as_owner->($make) if $is_gone;
	$as_owner->('DROP TABLE IF EXISTS own.keys, own.events, own.old, own.old_2, own.polled, own.made CASCADE; DROP FUNCTION IF EXISTS own.old__bigint, own.old_2__bigint');
	$as_owner->($tables);
	if ($is_online)
	{
		$steps->('own.old', 4);
		$steps->('own.old_2', 6);
	}
	return;
}

# Each call with the table whose lock stops it.
my @calls = (
	[ q{SELECT * FROM ext.snowflake_set_default('own.keys')}, 'own.keys' ], [ q{SELECT * FROM ext.snowflake_set_defaults('own')}, 'own.keys' ],
	[ q{SELECT * FROM ext.snowflake_check('own.polled')}, 'own.polled' ], [ 'SELECT * FROM ext.snowflake_status()', undef ],
	[ q{CALL ext.snowflake_partition('own.events', ahead => 1)}, 'own.events' ],
	[ q{SELECT * FROM ext.snowflake_convert_plan('{own.old}', online => true)}, undef ], [ q{SELECT * FROM ext.snowflake_convert_steps('{own.old}')}, undef ],
	[ q{SELECT * FROM ext.snowflake_convert_undo('{own.old}')}, undef ], [ q{SELECT * FROM ext.snowflake_convert_functions('{own.old}')}, undef ], [ q{SELECT * FROM ext.snowflake_convert_candidates('{own.old}')}, undef ],
	[ q{CALL ext.snowflake_convert('{own.old_2}')}, 'own.old_2' ], [ q{CALL ext.snowflake_convert_run('SELECT 1', '{LOCK TABLE own.keys IN ACCESS EXCLUSIVE MODE}', 3)}, 'own.keys' ],
	[ q{CALL ext.snowflake_convert_backfill('own.old')}, 'own.old' ], [ q{CALL ext.snowflake_convert_swap('{own.old_2}', tries => 2)}, 'own.old_2' ],
	[ q{SELECT * FROM ext.snowflake_distribute_generator('ext.snowflake_default')}, undef ],
	[ 'INSERT INTO own.polled (x) VALUES (1)', 'own.polled' ], [ q{SET snowflake_id.new_keys = on; CREATE TABLE own.made (id bigserial PRIMARY KEY)}, undef ],
	[ 'SELECT * FROM ext.snowflake_horizon_holders', undef ], [ 'SELECT * FROM ext.snowflake_workers', undef ], [ 'SELECT * FROM ext.snowflake_check_registry()', undef ]);
my @catalogs = $ENV{CATALOGS} ? split(' ', $ENV{CATALOGS})
	: qw(pg_class pg_proc pg_depend pg_namespace pg_extension pg_constraint pg_rewrite);

my $watch = session($node, undef);
sub state_of
{
	my ($pid) = @_;
	return $watch->query_safe("SELECT CASE WHEN state = 'idle' THEN 'done' WHEN wait_event_type = 'Lock' THEN 'waits' ELSE 'runs' END FROM pg_stat_activity WHERE pid = $pid");
}
sub pid_of { return $_[0]->query_safe('SELECT pg_backend_pid()'); }
sub wait_for
{
	my ($pid, $what) = @_;
	for (1 .. 4000)
	{
		my $state = state_of($pid);
		return $state if $state =~ $what;
		select undef, undef, undef, 0.002;
	}
	return 'runs for too long';
}

my ($dropped, $stopped, $waited, $hits) = (0, 0, 0, '');
my %answers;
# The owner gives up after a second: a call that waits for the end of his transaction, without a lock, would wait for ever.
my @sessions = map { session($node, 'owner', 'shop') } 1 .. 2;
$_->query_safe(q{SET lock_timeout = '1s'}) for @sessions;
my $vacuum_pid = pid_of($sessions[1]);
for my $call (@calls)
{
	my ($statement, $table) = @$call;
	my $is_online = $statement =~ /convert_(?!plan|run|functions)|steps/;
	make_again($is_online);
	for my $gate (defined $table ? "LOCK TABLE $table IN ACCESS EXCLUSIVE MODE" : (), @catalogs)
	{
		my $from = -s $node->logfile;
		my $victim = session($node, undef, 'shop');
		my $pid = pid_of($victim);
		my ($locker, $vacuum) = @sessions;
		# A superuser who has begun is stopped at the first look into the catalog from here on.
		if ($gate =~ /^LOCK/) { error_in($locker, "BEGIN; $gate") }
		else
		{
			error_in($locker, "BEGIN; SELECT FROM $gate LIMIT 1");
			send_to($vacuum, "VACUUM FULL $gate");
			wait_for($vacuum_pid, qr/waits/);
		}
		send_to($victim, $statement);
		my $state = wait_for($pid, qr/waits|done/);
		$waited++ if $state eq 'waits';
		my $code = error_in($locker, "DROP EXTENSION snowflake_id CASCADE;\n$plant\nCOMMIT");
		error_in($locker, 'ROLLBACK');
		$vacuum->query('') if $gate !~ /^LOCK/;
		my ($answer) = answer_in($victim);
		$answers{$answer}++;
		$victim->quit;
		my $log = slurp_file($node->logfile, $from);
		$hits .= "$statement, at $gate: $1\n" if $log =~ /planted: (.* as \Q$me\E)/;
		$is_gone = sql(q{SELECT count(*) FROM pg_extension WHERE extname LIKE 'snowflake%'}) == 0;
		$is_gone ? $dropped++ : $stopped++;
		make_again($is_online) if $is_gone || $statement !~ /^SELECT/;
		$is_gone = 0;
	}
}
is($hits, '', 'a superuser runs nothing of the owner');
note "waited $waited, dropped $dropped, stopped $stopped; " . join ', ', map { "$_: $answers{$_}" } sort keys %answers;
cmp_ok($waited, '>', 40, "$waited calls waited for the owner");
cmp_ok($dropped, '>', 0, "$dropped times the extension was dropped");
cmp_ok($stopped, '>', 0, "$stopped times the call held it");
# The owner does the same within the superuser's session: in functions of a condition and of an index, which run as
# the owner, in the middle of the call, while it is planned or run. Some errors are of the call, some say that the drop is refused.
make_again(0);
$as_owner->(q{CREATE TABLE own.armed (); CREATE TABLE own.script (script text);
	CREATE FUNCTION own.drops() RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		IF current_user = 'owner' AND session_user <> 'owner' AND to_regclass('own.armed') IS NOT NULL AND EXISTS (SELECT FROM pg_extension WHERE extname = 'snowflake_id') THEN
			RAISE LOG 'fires';
			IF (SELECT script FROM own.script) ~ '^catch' THEN
				BEGIN DROP EXTENSION snowflake_id CASCADE; EXECUTE substr((SELECT script FROM own.script), 7); EXCEPTION WHEN object_in_use THEN RAISE LOG 'refused'; END;
			ELSE
				DROP EXTENSION snowflake_id CASCADE;
				EXECUTE (SELECT script FROM own.script);
			END IF;
		END IF;
		RETURN 1;
	END $$;
	CREATE FUNCTION own.one(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM own.drops(); RETURN 1; END'});
my $arm = sub { $as_owner->(q{CREATE TABLE IF NOT EXISTS own.armed ()}) };
my ($fires, $refused, $worked) = (0, 0, 0);
$hits = '';
for my $catch ('', 'catch ')
{
	$as_owner->('TRUNCATE own.script; INSERT INTO own.script VALUES ($script$' . "$catch$plant" . '$script$)');
	for my $call (@calls, [ q{CALL ext.snowflake_convert_run('ANALYZE own.old; SELECT _snowflake_convert.end_conversion(''own.old'')')} ],
		[ q{SELECT * FROM ext.snowflake_check('own.old', layout => 'preset=twitter')} ], [ q{SELECT ext.snowflake_set_default('own.old_2', generator => 'ext.snowflake_default')} ])
	{
		my ($statement) = @$call;
		$as_owner->('DROP TABLE IF EXISTS own.armed');
		make_again($statement =~ /convert_(?!plan|run|functions|'|\()|steps/);
		for my $table (qw(keys events old old_2 polled))
		{
			$as_owner->("ALTER TABLE own.$table ADD CHECK (own.one(1) + id * 0 = 1)");
			$as_owner->("CREATE INDEX ON own.$table ((own.one(1) + id * 0))");
		}
		$arm->();
		my $from = -s $node->logfile;
		my ($code) = error_of($node, $statement, 'shop');
		my $log = slurp_file($node->logfile, $from);
		$worked++ if $code eq '';
		$hits .= "$statement: $1\n" if $log =~ /planted: (.* as \Q$me\E)/;
		$is_gone = sql(q{SELECT count(*) FROM pg_extension WHERE extname LIKE 'snowflake%'}) == 0;
		# Else the error ends the call, or is in its result.
		next if $catch eq '';
		$fires++ if $log =~ /LOG:  fires/;
		$refused++ if $log =~ /LOG:  refused/;
	}
}
is($hits, '', 'nor is anything of the owner run that is planted within the call');
note "fires $fires, refused $refused, worked $worked";
cmp_ok($fires, '>', 5, "$fires calls ran a function of the owner");
is($fires, $refused, 'which was refused to drop the extension');
cmp_ok($worked, '>', 10, "$worked calls worked");
$as_owner->('DROP TABLE own.armed');
# Who drops it as himself, in a transaction that has used it, may.
is((error_of($node, 'BEGIN; SELECT count(*) FROM ext.snowflake_status(); DROP EXTENSION snowflake_id CASCADE; ROLLBACK', 'shop'))[0], '', 'a session drops what it has used');

# What is planted runs where nothing holds the extension.
my $from = -s $node->logfile;
error_in($sessions[0], "BEGIN; DROP EXTENSION snowflake_id CASCADE;\n$plant\nCOMMIT");
sql(q{SELECT _snowflake.name('own.keys'::regclass); SELECT count(*) FROM _snowflake.defaults});
my $told = () = slurp_file($node->logfile, $from) =~ /planted: .* as \Q$me\E/g;
is($told, 2, 'what is planted tells who runs it');
$_->quit for @sessions, $watch;
$node->stop;
done_testing();
