# Tests that nobody uses up what others need: roles without any privilege, and with one each, call whatever they may in loops, hold
# transactions, and make and drop what they can, all at once; the generators of others go on, in this database and in another one.
# MINUTES is how long; the run in CI is shorter.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();
use Snowflake;

my $seconds = 60 * ($ENV{MINUTES} // 0.25);
my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', "snowflake_id.debug_slots = 16\nmax_connections = 60\nmax_prepared_transactions = 10\nmax_locks_per_transaction = 64");
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE shop; CREATE DATABASE other');
for my $database (qw(shop other))
{
	$node->safe_psql($database, q{CREATE EXTENSION snowflake_id; CREATE EXTENSION snowflake_id_convert; SELECT snowflake_create_generator('ids', 'preset=default');
		CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), own bigint DEFAULT snowflake_nextval('ids'))});
}
$node->safe_psql('shop', q{SELECT snowflake_create_generator('lent', 'preset=default'); CREATE TABLE polled (id bigint PRIMARY KEY DEFAULT snowflake_nextval('lent'));
	CREATE TRIGGER t BEFORE INSERT ON polled FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon()});

# What the roles have, and what each does with it.
my $fails = sub { my ($call) = @_; return "DO \$\$BEGIN PERFORM $call; EXCEPTION WHEN others THEN NULL; END\$\$" };
my $many = sub { my ($count, $statement) = @_; return "DO \$\$BEGIN FOR n IN 1 .. $count LOOP $statement; END LOOP; END\$\$" };
my %does = (
	nobody => [ '', (map { $fails->($_) } q{snowflake_nextval('ids')}, q{snowflake_advance('ids', now() + interval '11 h')}, q{snowflake_observe(1, 'ids')}, q{snowflake_horizon('ids')}, q{count(*) FROM snowflake_nextval_batch(100000, 'ids')},
			q{snowflake_nextval_block(4000)}, q{snowflake_set_default('orders')}, q{snowflake_create_generator('public.mine')}, q{snowflake_alter_generator('ids', max_borrow => '1 h')}, q{* FROM snowflake_check('orders')}, q{snowflake_decode_as(1, repeat('x', 100000))}),
		q{BEGIN; SELECT count(*) FROM snowflake_status(), snowflake_generators, pg_stat_snowflake; SELECT snowflake_horizon(); COMMIT}, q{CREATE TEMP SEQUENCE IF NOT EXISTS t; SELECT count(*) FROM snowflake_horizon_holders},
		# The default generator is for everybody.
		q{BEGIN; SELECT snowflake_nextval(); SELECT pg_sleep(0.2); ROLLBACK}, 'SELECT count(*) FROM snowflake_nextval_batch(100000)', $many->(300, 'BEGIN PERFORM snowflake_nextval(); RAISE EXCEPTION $x$no$x$; EXCEPTION WHEN others THEN NULL; END') ],
	uses => [ 'GRANT USAGE ON SEQUENCE lent TO uses; GRANT INSERT ON polled TO uses', 'INSERT INTO polled SELECT FROM generate_series(1, 3000)', q{SELECT count(*) FROM snowflake_nextval_batch(100000, 'lent')},
		q{BEGIN; SELECT snowflake_nextval('lent'), snowflake_nextval_block(4000, 'lent'); SELECT pg_sleep(0.3); COMMIT}, $fails->(q{snowflake_observe(snowflake_nextval('lent') + (1::bigint << 40), 'lent')}) ],
	reads => [ 'GRANT SELECT ON SEQUENCE lent TO reads', q{SELECT snowflake_horizon('lent') FROM generate_series(1, 100)}, q{SELECT count(*) FROM snowflake_generators, pg_stat_snowflake}, $fails->(q{snowflake_nextval('lent')}) ],
	changes => [ 'GRANT UPDATE ON SEQUENCE lent TO changes', q{SELECT snowflake_advance('lent', now() + interval '1 h')}, q{SELECT setval('lent', 1)}, q{SELECT snowflake_nextval('lent')}, q{SELECT setval('lent', (extract(epoch FROM now()) * 1000.0)::bigint + 3600000)} ],
	creates => [ 'CREATE SCHEMA creates AUTHORIZATION creates',
		$many->(40, q{PERFORM snowflake_advance(snowflake_create_generator('creates.g' || n || '_' || pg_backend_pid(), $l$preset=default max_rollback='3650 d'$l$), now() + interval '100 days'); EXECUTE format('DROP SEQUENCE creates.g%s_%s', n, pg_backend_pid())}),
		q{BEGIN; SELECT count(snowflake_create_generator('creates.h_' || pg_backend_pid() || '_' || n)) FROM generate_series(1, 60) AS n; SELECT count(snowflake_nextval('creates.h_' || pg_backend_pid() || '_' || n)) FROM generate_series(1, 60) AS n; SELECT pg_sleep(0.2); ROLLBACK},
		q{SET snowflake_id.new_keys = on; CREATE TABLE creates.t (id bigserial PRIMARY KEY) PARTITION BY HASH (id); DROP TABLE creates.t}, q{CREATE TABLE creates.old (id serial PRIMARY KEY); CALL snowflake_convert('{creates.old}'); DROP TABLE creates.old},
		q{CREATE TABLE creates.k (id bigint PRIMARY KEY); SELECT snowflake_set_default('creates.k'); SELECT * FROM snowflake_set_defaults('creates'); DROP TABLE creates.k}, q{SELECT count(*) FROM snowflake_convert_plan(schemas => '{creates}')} ],
	makes_databases => [ 'ALTER ROLE makes_databases CREATEDB', 'CREATE DATABASE made', 'DROP DATABASE made' ],
	watches => [ 'GRANT pg_monitor TO watches', 'SELECT count(*) FROM snowflake_workers, snowflake_pools', 'SELECT count(*) FROM snowflake_check_registry()', 'SELECT count(*) FROM snowflake_status()', $fails->('snowflake_stat_reset()') ]);
my @loops;
for my $role (sort keys %does)
{
	my ($grants, @statements) = @{ $does{$role} };
	$node->safe_psql('shop', "CREATE ROLE $role LOGIN; $grants");
	# Two sessions of each role.
	for my $n (1 .. ($role eq 'makes_databases' ? 1 : 2))
	{
		my $file = $node->basedir . "/$role$n";
		append_to_file("$file.sql", join '', map { s/creates\.(t|old|k)\b/creates.$1$n/gr . ";\n" } (@statements) x 3000);
		push @loops, { role => $role, file => $file, run => IPC::Run::start([ 'psql', '-X', '-q', '-At', '-U', $role, '-d', $node->connstr('shop'), '-f', "$file.sql" ], '<', '/dev/null', '>', "$file.out", '2>', "$file.err") };
	}
}

# The others: each statement has five seconds, in which a busy machine answers too.
my %other = map { $_ => session($node, undef, $_) } qw(shop other);
$_->query_safe(q{SET statement_timeout = '5s'}) for values %other;
my ($count, %errors, %ids) = (0);
my $until = Time::HiRes::time() + $seconds;
while (Time::HiRes::time() < $until)
{
	for my $database (keys %other)
	{
		for my $statement ('SELECT snowflake_nextval()', q{SELECT snowflake_nextval('ids')}, 'INSERT INTO orders DEFAULT VALUES RETURNING id', q{SELECT snowflake_horizon('ids')})
		{
			my $id = $other{$database}->query($statement);
			my $err = $other{$database}{stderr};
			$other{$database}{stderr} = '';
			$err =~ /ERROR/ ? $errors{"$database: $statement: $err"}++ : $count++;
			$ids{"$database $statement $id"}++ if $statement !~ /horizon/;
		}
		# As a new client.
		my ($code, $text) = error_of($node, q{SELECT snowflake_nextval('ids')}, $database);
		$errors{"$database: a new session: $text"}++ if $code ne '';
	}
	Time::HiRes::sleep(0.05);
}
is(join("\n", map { "$errors{$_} times: $_" } sort keys %errors), '', 'all generators of others go on');
cmp_ok($count, '>', 100, "$count calls");
is((grep { $_ > 1 } values %ids), 0, 'no ID twice');
for my $loop (@loops)
{
	$loop->{run}->kill_kill;
	my $failed = () = slurp_file("$loop->{file}.err") =~ /ERROR/g;
	my $done = () = slurp_file("$loop->{file}.out") =~ /\n/g;
	note "$loop->{role}: $done rows, $failed errors";
	unlike(slurp_file("$loop->{file}.err"), qr/syntax error|server closed|does not exist|is not unique/, "$loop->{role} makes real calls");
}
# And a server that has gone through it starts, and goes on.
$_->quit for values %other;
$node->restart;
is((error_of($node, "INSERT INTO orders DEFAULT VALUES; SELECT snowflake_nextval('lent')", 'shop'))[0], '', 'after a restart');
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal|TRAP|out of memory/, 'no crash');
$node->stop;
done_testing();
