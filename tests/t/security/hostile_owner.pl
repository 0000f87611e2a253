# Tests that the owner of a database, who is no superuser, gets no rights by what the
# extension does there: he renames schemas, drops the extension while its functions run, and
# puts schemas, tables, views, triggers and functions of the same names in their place. Callers of
# all functions of the registry are there meanwhile: a role that may execute them, a
# superuser, and a reader of the views.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Registry;
use Snowflake;

my $seconds = $ENV{SECONDS} // 6;
my $rounds = 10;    # how often the owner plants, at least
my $node = new_node('node', 7);
$node->append_conf('postgresql.conf', 'max_connections = 50');
$node->start;
$node->safe_psql('postgres', q{
	CREATE ROLE owner LOGIN; CREATE ROLE caller LOGIN; CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor;
	CREATE DATABASE reg OWNER owner});
my @functions = ('_snowflake.lease(text, jsonb)', '_snowflake.read_registry()', 'snowflake_create_registry(text)', 'snowflake_revoke_worker(text, integer, text)',
	'snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, text, boolean, text)',
	'snowflake_drop_pool(text, text)', 'snowflake_end_grace_period(text)', 'snowflake_declare_registry(text)');
my $grants = join '; ', map { "GRANT EXECUTE ON FUNCTION " . (/^_/ ? '' : 'public.') . "$_ TO caller" } @functions;
my $pool = q{SELECT public.snowflake_create_pool('main', '[0,8)', lease => '1 s', hold => '1 s', max_ahead => '1 s')};
$node->safe_psql('reg', "CREATE EXTENSION snowflake_id; $grants; $pool");

sub as
{
	my ($role, $sql) = @_;
	my ($out, $err);
	$node->psql('reg', "\\set VERBOSITY verbose\n$sql", stdout => \$out, stderr => \$err, on_error_stop => 1,
		extra_params => [ '-U', $role ]);
	my ($code) = $err =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/;
	return ($code // '', $out, $err);
}

sub is_still_ordinary
{
	my ($name) = @_;
	is($node->safe_psql('postgres', q{
		SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
			OR EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid)
		FROM pg_roles AS r WHERE rolname = 'owner'}), 'f', "$name: the owner has no rights that he had not");
	$node->safe_psql('postgres', 'ALTER ROLE owner NOSUPERUSER');
	return;
}

# The owner may not touch what is in the extension's schema.
for my $sql ('ALTER SCHEMA _snowflake RENAME TO mine', 'ALTER SCHEMA _snowflake OWNER TO owner', 'DROP SCHEMA _snowflake CASCADE',
	'CREATE TABLE _snowflake.mine ()', 'CREATE FUNCTION _snowflake.mine() RETURNS int LANGUAGE sql AS $$SELECT 1$$',
	'GRANT ALL ON SCHEMA _snowflake TO owner; CREATE TABLE _snowflake.mine ()',
	'ALTER EXTENSION snowflake_id DROP TABLE _snowflake.state', 'TABLE _snowflake.state', 'TABLE _snowflake.pools',
	'TABLE _snowflake.leases', 'INSERT INTO _snowflake.state VALUES (1, $${}$$)',
	'DELETE FROM _snowflake.leases', 'UPDATE _snowflake.pools SET pool = NULL', 'TRUNCATE _snowflake.leases',
	'BEGIN; LOCK TABLE _snowflake.state IN ROW EXCLUSIVE MODE', 'CREATE TRIGGER t BEFORE UPDATE ON _snowflake.state FOR EACH ROW EXECUTE FUNCTION tsvector_update_trigger()',
	'CREATE RULE r AS ON UPDATE TO _snowflake.state DO INSTEAD NOTHING', 'CREATE INDEX ON _snowflake.state (id)',
	'CREATE TABLE heir () INHERITS (_snowflake.state)', 'CREATE TABLE refers (id int REFERENCES _snowflake.state)')
{
	is((as('owner', $sql))[0], '42501', "the owner cannot: $sql");
}

# What the owner puts in the place of the extension's objects. Each tells who runs it.
$node->safe_psql('reg', q{
	CREATE SCHEMA mold;
	CREATE TABLE mold.state AS TABLE _snowflake.state; CREATE TABLE mold.pools AS TABLE _snowflake.pools;
	CREATE TABLE mold.leases (LIKE _snowflake.leases INCLUDING ALL);
	CREATE TABLE mold.functions AS
		SELECT p.proname::text AS name, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
		FROM pg_proc AS p WHERE p.pronamespace = '_snowflake'::regnamespace AND p.prorettype <> 'internal'::regtype
			AND p.prokind = 'f' AND pg_get_function_identity_arguments(p.oid) !~ 'OUT|VARIADIC|internal' AND pg_get_function_result(p.oid) !~ 'TABLE|SETOF|record|snowflake|trigger';
	ALTER SCHEMA mold OWNER TO owner; GRANT SELECT ON ALL TABLES IN SCHEMA mold TO owner});
cmp_ok($node->safe_psql('reg', 'SELECT count(*) FROM mold.functions'), '>', 25, 'functions to plant');
is((as('owner', q{
	CREATE FUNCTION mold.grab() RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN ALTER ROLE owner SUPERUSER; END IF;
		RETURN true;
	END $$;
	CREATE FUNCTION mold.on_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM mold.grab(); RETURN NEW; END $$;
	GRANT USAGE ON SCHEMA mold TO PUBLIC;
	CREATE PROCEDURE mold.plant(schema text) LANGUAGE plpgsql AS $$
	DECLARE name text; it record;
	BEGIN
		EXECUTE format('CREATE SCHEMA %1$I; GRANT ALL ON SCHEMA %1$I TO PUBLIC', schema);
		FOREACH name IN ARRAY '{state,pools,leases}'::text[] LOOP
			EXECUTE format('CREATE TABLE %1$I.%2$I (LIKE mold.%2$I INCLUDING ALL, CHECK (mold.grab()));
				CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON %1$I.%2$I FOR EACH ROW EXECUTE FUNCTION mold.on_change();
				GRANT ALL ON %1$I.%2$I TO PUBLIC', schema, name);
			-- No server leases anything yet, so the other two are empty.
			IF name IN ('state', 'pools') THEN EXECUTE format('INSERT INTO %1$I.%2$I SELECT * FROM mold.%2$I', schema, name); END IF;
		END LOOP;
		FOR it IN SELECT * FROM mold.functions LOOP
			EXECUTE format('CREATE FUNCTION %1$I.%2$I(%3$s) RETURNS %4$s LANGUAGE plpgsql AS %5$L', schema, it.name, it.arguments, it.result,
				'BEGIN PERFORM mold.grab(); ' || CASE it.result WHEN 'void' THEN 'END' ELSE 'RETURN NULL; END' END);
		END LOOP;
	END $$}))[0], '', 'the owner is prepared');

# Sessions that run statements again and again until a time; each statement may fail.
my $repeated = 0;
sub repeat
{
	my ($role, @statements) = @_;
	my $file = $node->basedir . '/repeat_' . ++$repeated;
	append_to_file("$file.sql", join '', map { "$_;\n" } (@statements) x 4000);
	my $run = IPC::Run::start([ 'psql', '-X', '-q', '-At', '-U', $role, '-d', $node->connstr('reg'), '-f', "$file.sql" ],
		'<', '/dev/null', '>', "$file.out", '2>', "$file.err");
	return { role => $role, run => $run, file => $file };
}

# The rows that sessions of repeat() have got so far.
sub rows
{
	my $rows = 0;
	$rows += () = slurp_file("$_->{file}.out") =~ /\n/g for @_;
	return $rows;
}

sub end_all
{
	for my $session (@_)
	{
		$session->{run}->kill_kill;
		my $errors = () = slurp_file("$session->{file}.err") =~ /ERROR/g;
		note("$session->{role}: " . rows($session) . " rows, $errors errors");
	}
	return;
}

my $asker = server(1);
# Only roles of servers name functions of schema _snowflake.
my @of_servers = (q{SELECT _snowflake.lease('main', '} . request($asker, { acquire => {} }) . q{')}, q{SELECT _snowflake.read_registry()});
my @calls = (
	q{SELECT public.snowflake_create_pool('more', '[100,108)')},
	q{SELECT public.snowflake_create_registry('caller')},
	q{SELECT public.snowflake_revoke_worker('main', 0)},
	q{SELECT public.snowflake_declare_registry()}, q{SELECT public.snowflake_end_grace_period()}, q{SELECT public.snowflake_drop_pool('more')});
my @views = ('SELECT count(*) FROM public.snowflake_workers', 'SELECT count(*) FROM public.snowflake_pools',
	'SELECT _snowflake.pool_calls()');
my $me = $node->safe_psql('postgres', 'SELECT current_user');

# The schema of the extension is renamed, and views and functions of the owner stand in its place.
is((as('owner', q{
	CREATE EXTENSION snowflake_id_convert SCHEMA public;
	ALTER SCHEMA public RENAME TO away; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC;
	DO $$ DECLARE name text; BEGIN
		FOREACH name IN ARRAY '{snowflake_worker,snowflake_generators,pg_stat_snowflake,snowflake_horizon_holders}'::text[] LOOP
			EXECUTE format('CREATE VIEW public.%1$I AS SELECT * FROM away.%1$I WHERE mold.grab(); GRANT SELECT ON public.%1$I TO PUBLIC', name);
		END LOOP;
	END $$}))[0], '', 'views of the owner');
for my $role ($me, 'monitor')
{
	my ($code, $rows) = as($role, 'SELECT * FROM away.snowflake_status()');
	is($code, '', "snowflake_status() works for $role");
	like($rows, qr/^ok\|worker ID\|7, set on this server/m, 'and reads nothing of the owner');
}
# What superusers call for tables of their own.
$node->safe_psql('reg', q{
	CREATE SCHEMA supers; CREATE TABLE supers.t (id bigint PRIMARY KEY); CREATE TABLE supers.u (id bigint PRIMARY KEY);
	CREATE TABLE supers.customers (id serial PRIMARY KEY, made timestamptz); INSERT INTO supers.customers (made) VALUES (now() - interval '1 day');
	CREATE TABLE supers.orders (id serial PRIMARY KEY, customer integer REFERENCES supers.customers); INSERT INTO supers.orders (customer) VALUES (1);
	CREATE TABLE supers.items (id serial PRIMARY KEY); INSERT INTO supers.items SELECT FROM generate_series(1, 10);
	CREATE TABLE supers.parts (id bigserial PRIMARY KEY, item integer REFERENCES supers.items); INSERT INTO supers.parts (item) VALUES (1)});
is((as('owner', q{
	CREATE SEQUENCE public.snowflake_default;
	-- All of both extensions, and others that fit some calls better.
	DO $$ DECLARE it record; BEGIN
		FOR it IN
			SELECT p.proname AS name, p.prokind, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
				p.proretset OR p.proallargtypes IS NOT NULL OR t.typname = 'void' AS is_plain
			FROM pg_proc AS p LEFT JOIN pg_type AS t ON t.oid = p.prorettype
			WHERE p.pronamespace = 'away'::regnamespace AND (t.typtype <> 'p' OR t.typname IN ('record', 'void'))
		LOOP
			EXECUTE CASE it.prokind WHEN 'p' THEN format('CREATE PROCEDURE public.%I(%s) LANGUAGE plpgsql AS %L', it.name, it.arguments, 'BEGIN PERFORM mold.grab(); END')
				ELSE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', it.name, it.arguments, it.result,
					'BEGIN PERFORM mold.grab(); ' || CASE WHEN it.is_plain THEN 'END' ELSE 'RETURN NULL; END' END) END;
		END LOOP;
	END $$;
	CREATE FUNCTION public.snowflake_set_default(regclass, name, regclass) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM mold.grab(); RETURN 1; END';
	CREATE FUNCTION public.snowflake_set_default(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM mold.grab(); RETURN 1; END';
	CREATE FUNCTION public.snowflake_encode(timestamptz, bigint, integer, regclass) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN PERFORM mold.grab(); RETURN 1; END'}))[0],
	'', 'functions of the owner');
cmp_ok($node->safe_psql('reg', q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosrc ~ 'grab'}), '>', 60, 'as many as the extensions have');
for my $call (q{away.snowflake_set_default('supers.t')}, q{away.snowflake_set_defaults('supers')}, q{away.snowflake_check('supers.t')},
	q{away.snowflake_convert_plan('{supers.customers}', backfill => true, worker_id => 900)}, q{away.snowflake_convert_plan('{supers.items}', online => true)})
{
	is((as($me, "SELECT * FROM $call; INSERT INTO supers.t DEFAULT VALUES"))[0], '', "$call works for a superuser");
}
is($node->safe_psql('reg', 'SELECT count(*) FROM supers.t WHERE id > 1'), 5, 'with IDs of the extension');
my $gexec = sub { my ($source, $what) = @_; is((as($me, "SELECT statement FROM away.$source \\gexec"))[0], '', $what) };
is((as($me, q{CALL away.snowflake_convert('{supers.customers,supers.orders}', backfill => true, worker_id => 900)}))[0], '', 'a superuser converts tables at once');
my $tables = q{'{supers.items,supers.parts}'};
$gexec->("snowflake_convert_steps($tables) LIMIT 5", 'and runs the first steps of others');
$gexec->("snowflake_convert_undo($tables)", 'undoes them');
$gexec->("snowflake_convert_steps($tables)", 'and runs all of them');
is($node->safe_psql('reg', "SELECT count(*) FROM away.snowflake_convert_steps($tables)"), 0, 'none is left');
is((as($me, join '; ', map { "INSERT INTO supers.$_ DEFAULT VALUES" } qw(customers orders items parts)))[0], '', 'each converted table takes a row');
is($node->safe_psql('reg', join ' UNION ALL ', map { "SELECT '$_', count(*) FROM supers.$_ WHERE id > 2147483647" } qw(customers orders items parts)),
	"customers|2\norders|1\nitems|1\nparts|1", 'with an ID of the extension');
is($node->safe_psql('reg', 'SELECT count(*) FROM supers.orders AS o JOIN supers.customers AS c ON c.id = o.customer'), 1, 'and the old row has one of its time');
is_still_ordinary('views and functions planted');
$node->safe_psql('reg', 'DROP SCHEMA supers CASCADE');
is((as('owner', 'DROP EXTENSION snowflake_id_convert; DROP SCHEMA public CASCADE; ALTER SCHEMA away RENAME TO public'))[0], '', 'the owner undoes it');

# Schemas are swapped beside the calls.
is((as('owner', q{CALL mold.plant('decoy')}))[0], '', 'a schema to swap in');
my $swapper = repeat('owner', 'BEGIN; ALTER SCHEMA public RENAME TO away; ALTER SCHEMA decoy RENAME TO public; COMMIT',
	'BEGIN; ALTER SCHEMA public RENAME TO decoy; ALTER SCHEMA away RENAME TO public; COMMIT');
my @callers = (repeat('caller', @of_servers, @calls), repeat($me, @calls), repeat('monitor', @views));
sleep $seconds;
for my $caller (@callers)
{
	ok(wait_until('answers', sub { rows($caller) > 0 }), "calls of $caller->{role} succeed beside the swaps");
}
ok(wait_until('errors', sub { slurp_file("$callers[0]{file}.err") =~ /ERROR/ }), 'and others fail');
end_all(@callers, $swapper);
is_still_ordinary('schemas swapped');
$node->safe_psql('reg', q{
	DO $$ BEGIN
		IF to_regnamespace('away') IS NOT NULL THEN ALTER SCHEMA public RENAME TO decoy; ALTER SCHEMA away RENAME TO public; END IF;
	END $$;
	DROP SCHEMA decoy CASCADE});

# The extension cannot be dropped while a function waits in the registry.
my $holder = session($node, $me, 'reg');
$holder->query_safe('BEGIN; SELECT FROM _snowflake.state FOR UPDATE');
my $waiting = session($node, 'caller', 'reg');
send_to($waiting, $of_servers[0]);
ok(wait_until('the call waits', sub { $node->safe_psql('reg', q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'caller' AND wait_event_type = 'Lock'}) == 1 }),
	'a call waits in the registry');
my $dropper = session($node, 'owner', 'reg');
send_to($dropper, 'DROP SCHEMA public CASCADE');
ok(wait_until('the drop waits', sub { $node->safe_psql('reg', q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'owner' AND wait_event_type = 'Lock'}) == 1 }),
	'and the owner waits for it to drop the extension');
$holder->query_safe('COMMIT');
my (undef, $error, $reply) = answer_in($waiting);
is($error, '', 'the call gets the answer of the registry');
like($reply, qr/"answer"/, 'a real one');
(undef, $error) = answer_in($dropper);
is($error, '', 'then the extension is dropped');
$_->quit for $holder, $waiting, $dropper;
is_still_ordinary('dropped behind a call');

# The owner drops the extension, plants, and makes it again, while an administrator grants
# and makes pools, and others call.
is((as('owner', 'DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO PUBLIC; CREATE EXTENSION snowflake_id SCHEMA public'))[0], '',
	'the owner makes the extension, which is trusted');
is((as('owner', q{CALL mold.plant('decoy')}))[0], '', 'a schema to put in its place');
# One transaction each: nothing is missing at any time.
my $planter = repeat('owner', 'BEGIN; DROP EXTENSION snowflake_id CASCADE; ALTER SCHEMA decoy RENAME TO _snowflake; COMMIT',
	'BEGIN; ALTER SCHEMA _snowflake RENAME TO decoy; CREATE EXTENSION snowflake_id SCHEMA public; COMMIT', 'SELECT pg_sleep(0.01)');
@callers = (repeat('caller', @of_servers, @calls), repeat($me, split(/; /, $grants), $pool, @calls), repeat($me, @calls), repeat('monitor', @views));
sleep 2 * $seconds;
ok(wait_until("$rounds rounds of planting", sub { rows($planter) >= $rounds }), 'the owner has planted again and again');
ok(wait_until('answers', sub { rows(@callers[ 1, 2 ]) > 0 }), 'calls of an administrator succeed in between');
end_all(@callers, $planter);
is_still_ordinary('extension dropped and objects planted');
$node->safe_psql('reg', 'DROP EXTENSION IF EXISTS snowflake_id CASCADE; DROP SCHEMA IF EXISTS _snowflake, decoy CASCADE');

# A planted schema only keeps the extension from being made, and the error says so.
is((as('owner', q{CALL mold.plant('_snowflake')}))[0], '', 'a planted schema');
is((as('owner', 'CREATE EXTENSION snowflake_id SCHEMA public'))[0], '42P06', 'the extension is not made over it');
is((as('owner', 'DROP SCHEMA _snowflake CASCADE'))[0], '', 'until it is dropped');

# The script of snowflake_id_convert runs as a superuser. The owner drops snowflake_id and
# plants while it is made. PostgreSQL 15.20 itself keeps the required extension from being dropped
# meanwhile; for servers before that, the script looks first whose schema it is.
is((as('owner', q{CREATE EXTENSION snowflake_id SCHEMA public; CALL mold.plant('decoy')}))[0], '', 'a schema to put in the place of that of snowflake_id');
my ($drops, $makes) = map { session($node, 'owner', 'reg') } 1, 2;
$drops->query_safe('BEGIN; DROP EXTENSION snowflake_id; ALTER SCHEMA decoy RENAME TO _snowflake');
send_to($makes, 'CREATE EXTENSION snowflake_id_convert SCHEMA public');
wait_for_lock($node, 'CREATE EXTENSION snowflake_id_convert%');
$drops->query_safe('COMMIT');
like((answer_in($makes))[0], qr/^(42704|55000)$/, 'the extension is not made with what was planted');
my ($script) = glob(`pg_config --sharedir` =~ s/\n//r . '/extension/snowflake_id_convert--*.sql');
my ($look) = slurp_file($script) =~ /^(DO \$\$.*?^\$\$;)$/ms;
my ($state, $refusal) = error_of($node, $look =~ s/\@extschema\@/public/r, 'reg');
is($state, '55000', 'the script finds that the schema is another one');
like($refusal, qr/schema _snowflake is not that of extension snowflake_id/, 'and says so');
is_still_ordinary('planted for the script of snowflake_id_convert');
$_->quit for $drops, $makes;
is((as('owner', 'DROP SCHEMA _snowflake CASCADE'))[0], '', 'what was planted is dropped');

# A role that may call the functions cannot have a superuser's session open connections: an
# expression of its index runs when a superuser analyzes the table.
$node->safe_psql('reg', "CREATE EXTENSION snowflake_id SCHEMA public; $grants");
my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die;
my $url = 'etcd://127.0.0.1:' . $listener->sockport . '/x';
my $tries = join "\n", map { qq{
	BEGIN PERFORM public.$_; EXCEPTION WHEN others THEN RAISE LOG 'lured: % as %', SQLSTATE, session_user; END;} } (
	"snowflake_create_pool('main', '[0,8)', registry => '$url')",
	"snowflake_drop_pool('main', '$url')", "snowflake_revoke_worker('main', 1, '$url')", "snowflake_end_grace_period('$url')",
	"snowflake_declare_registry('$url')");
is((as('caller', "CREATE FUNCTION public.lure(a int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF session_user <> 'caller' THEN $tries END IF; RETURN a; END \$\$;
	CREATE TABLE public.lure (a int); INSERT INTO public.lure VALUES (1); CREATE INDEX ON public.lure (public.lure(a))"))[0], '', 'an index of the role');
my $log = -s $node->logfile;
$node->safe_psql('reg', 'ANALYZE public.lure');
my $lured = () = slurp_file($node->logfile, $log) =~ /lured: 42501 as $me/g;
cmp_ok($lured, '>=', 5, 'each call in the session of a superuser is refused');
is(scalar(IO::Select->new($listener)->can_read(0)), undef, 'and nobody has connected');
is((as('caller', "SELECT public.snowflake_end_grace_period('$url')"))[0], '42501', 'as a direct call is');

# Tables of a superuser, with a type of the owner in their conditions; and a view of the owner under a name that is read.
is((as('owner', q{CREATE SCHEMA mine; GRANT USAGE ON SCHEMA mine TO PUBLIC; CREATE DOMAIN mine.d AS bigint;
	CREATE FUNCTION mine.rise(bigint) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN
		IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE owner SUPERUSER; END IF;
		RETURN true;
	END$$;
	CREATE VIEW mine.planted AS SELECT 1::bigint AS id WHERE mine.rise(1); GRANT SELECT ON mine.planted TO PUBLIC}))[0], '', 'a domain and a view of the owner');
$node->safe_psql('reg', q{CREATE EXTENSION snowflake_id_convert; CREATE SCHEMA supers;
	CREATE TABLE supers.t (id mine.d PRIMARY KEY, CHECK (id > 0)); CREATE TABLE supers.u (id bigint PRIMARY KEY, CHECK ((id::mine.d)::bigint > 0))});
is((as('owner', 'ALTER DOMAIN mine.d ADD CONSTRAINT c CHECK (mine.rise(VALUE)) NOT VALID'))[0], '', 'a condition of the domain');
for my $call (q{snowflake_convert_plan('{supers.t, supers.u}')}, q{snowflake_set_default('supers.t')}, q{snowflake_set_default('supers.u')})
{
	is((as($me, "SELECT * FROM public.$call"))[0], '', "a superuser calls $call");
	is_still_ordinary($call);
}
for my $query ('SELECT max(id) FROM mine.planted', 'SELECT max(id) FROM (SELECT id FROM mine.planted) AS t')
{
	is((as($me, "SELECT _snowflake.read_as_owner('supers.u', \$\$$query\$\$)"))[0], '55000', "another relation under the name that is read: $query");
	is_still_ordinary($query);
}

is((as($me, q{SELECT * FROM _snowflake_convert.rows_as_owner('supers.u', 'SELECT id, now() FROM mine.planted')}))[0], '55000', 'or under one whose rows are read');
is_still_ordinary('rows of another relation');

# The function that is called may be gone when its arguments are there.
is((as('owner', q{CREATE FUNCTION mine.drops() RETURNS int LANGUAGE plpgsql AS $$BEGIN EXECUTE 'DROP EXTENSION snowflake_id CASCADE'; RETURN 3; END$$;
	CREATE TABLE mine.p (id bigint) PARTITION BY RANGE (id)}))[0], '', 'a function that drops the extension');
isnt((as('owner', q{BEGIN; CALL public.snowflake_partition('mine.p', ahead => mine.drops())}))[0], '', 'a procedure that its arguments have dropped');
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server lives');

done_testing();
