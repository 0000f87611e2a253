# Tests that many sessions in two databases issue no ID twice.
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
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION snowflake_id');

# Starts a session that prints IDs; returns a reader for its output.
sub issuer
{
	my ($database, $sql) = @_;
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr($database), '-v', 'ON_ERROR_STOP=1', '-c', $sql ],
		'>', \$out, '2>', \$err);
	return sub {
		ok($run->finish, 'session ended well') or diag $err;
		return [ split /\n/, $out ];
	};
}

my @sessions = map { issuer('postgres', 'SELECT snowflake_nextval() FROM generate_series(1, 200000)') } 1 .. 8;
check_ids('8 sessions of 200,000', map { $_->() } @sessions);

# Each database has a default generator of its own.
my @databases = ('postgres', 'other');
my %sessions = map {
	my $database = $_;
	$database => [ map { issuer($database, 'SELECT snowflake_nextval() FROM generate_series(1, 100000)') } 1 .. 4 ]
} @databases;
check_ids("two databases at once: $_", map { $_->() } @{ $sessions{$_} }) for @databases;

@sessions = map {
	issuer('postgres', $_ % 2
		? 'SELECT snowflake_nextval_batch(100000) UNION ALL SELECT snowflake_nextval_batch(70001)'
		: 'SELECT snowflake_nextval() FROM generate_series(1, 100000)')
} 1 .. 6;
check_ids('batches beside single calls', map { $_->() } @sessions);

# A saturated generator is at most 100 ms ahead of the clock.
is($node->safe_psql('postgres', q{
	SELECT max(snowflake_timestamp(id) - now) <= interval '101 ms'
	FROM (SELECT snowflake_nextval() AS id, clock_timestamp() AS now
	      FROM generate_series(1, 1000000)) AS s}),
	't', 'no ID more than 101 ms ahead of the clock');

# A session that waits for the clock because its generator is busy can be cancelled.
my ($code) = error_of($node, q{
	SET statement_timeout = '300 ms';
	SELECT count(snowflake_nextval()) FROM generate_series(1, 100000000)});
is($code, '57014', 'statement_timeout works while IDs are waited for');

# pg_cancel_backend also ends the wait; Ctrl-C in psql sends the same signal.
my ($out, $err) = ('', '');
my $waiting = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		"SET application_name = 'waiting'; SELECT count(snowflake_nextval()) FROM generate_series(1, 100000000)" ],
	'>', \$out, '2>', \$err);
wait_until('it runs', sub { $node->safe_psql('postgres',
	"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting' AND state = 'active'") });
is($node->safe_psql('postgres',
	"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'waiting'"), 't', 'cancel sent');
$waiting->finish;
like($err, qr/canceling statement due to user request/, 'cancelled');

# pgbench inserts single rows with many clients into a table with a default.
$node->safe_psql('postgres',
	'CREATE TABLE t (id bigint DEFAULT snowflake_nextval() PRIMARY KEY, client int)');
my $script = $node->basedir . '/insert.sql';
append_to_file($script, "INSERT INTO t (client) VALUES (:client_id);\n");
$node->command_ok(
	[ 'pgbench', '-n', '-c', '8', '-j', '2', '-t', '500', '-f', $script, '-M', 'prepared',
		'-h', $node->host, '-p', $node->port, 'postgres' ], 'pgbench');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM t'), '4000|4000', 'one row each');

# There are more generators than slots: slots change owners, and the server makes room
# where no slot is free.
$node->append_conf('postgresql.conf', 'snowflake_id.debug_slots = 1');
$node->safe_psql($_, q{SELECT snowflake_create_generator('named', 'preset=default')}) for @databases;
$node->restart;
my %lists = map { ("$_ default" => [], "$_ named" => []) } @databases;
for (1 .. 30)
{
	for my $database (@databases)
	{
		push @{ $lists{"$database default"} }, ids($node, 1, $database);
		push @{ $lists{"$database named"} }, $node->safe_psql($database, q{SELECT snowflake_nextval('named')});
	}
}
check_ids("few slots: $_", $lists{$_}) for sort keys %lists;
for my $database (@databases)
{
	my $lead = $node->safe_psql($database, qq{
		SELECT extract(epoch FROM snowflake_timestamp($lists{"$database named"}[-1], 'named') - clock_timestamp()) < 60});
	is($lead, 't', "$database: eviction does not run away from the clock");
}

# A session that holds slots is in nobody's way.
my $holder = $node->background_psql('postgres', on_error_die => 1);
$holder->query_safe(q{BEGIN; SELECT snowflake_nextval(), snowflake_nextval('named')});
is((error_of($node, q{SELECT snowflake_nextval(), snowflake_nextval('named')}, 'other'))[0], '',
	'all slots pinned: others get IDs');
is(in_log($node, 'made room for 64 more generators'), 1, 'room was made, once');
is(in_log($node, 'made room for'), 1, 'and for no more than that');
$holder->query_safe('COMMIT');
$holder->quit;

done_testing();
