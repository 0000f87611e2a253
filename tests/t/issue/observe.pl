# Tests two servers whose clocks differ, each of which answers messages of the other one:
# without snowflake_observe(), a reply sorts before what it answers; with it, never, also
# under load, with a reservation of 100 ms, and after a crash. A server's own IDs cost nothing.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(sleep time);

# The clock of the second server is 60 ms behind.
my ($ahead, $behind) = (new_node('ahead', 1, allows_streaming => 1), new_node('behind', 2));
$_->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '100 ms'\nmax_connections = 40") for $ahead, $behind;
start_with_clock($ahead, 0);
start_with_clock($behind, -0.06);
for my $node ($ahead, $behind)
{
	$node->safe_psql('postgres', <<'END');
CREATE EXTENSION snowflake_id;
CREATE ROLE app LOGIN;
CREATE TABLE replies (message bigint, id bigint, PRIMARY KEY (id));
GRANT INSERT ON replies TO app;
-- Answers a message.
CREATE FUNCTION next_after(message bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM snowflake_observe(message);
	RETURN snowflake_nextval();
END $$;
END
}
my %session = map { $_->name => session($_, 'app') } $ahead, $behind;
sub one { my ($node, $sql) = @_; return $session{ $node->name }->query_safe("SELECT $sql"); }
sub leads
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		q{SELECT extract(epoch FROM ahead_by) FROM snowflake_generators WHERE generator = 'snowflake_default'::regclass});
}

# A start is ahead of the clock, until it has caught up.
wait_until("$_: in step with its clock", sub {
	one($ahead, 'snowflake_nextval()');
	one($behind, 'snowflake_nextval()');
	return leads($ahead) < 0.005 && leads($behind) < 0.005 }) for 'both';

# A conversation: each message answers the one before, on the other server.
sub conversation
{
	my ($function) = @_;
	my ($before, $last) = (0, one($ahead, 'snowflake_nextval()'));
	for my $round (1 .. 100)
	{
		# Each reply is of a later tick: faster than that, it would run ahead of both clocks.
		sleep 0.0015;
		my $id = one($round % 2 ? $behind : $ahead, $function->($last));
		$before++ if $id <= $last;
		$last = $id;
	}
	return $before;
}
cmp_ok(conversation(sub { 'snowflake_nextval()' }), '>', 0, 'without observing, replies sort before what they answer');
is(conversation(sub { "next_after($_[0])" }), 0, 'after snowflake_observe(), no reply does');
my @ids = (one($ahead, 'snowflake_nextval()'));
for (1 .. 20)
{
	one($behind, "snowflake_observe($ids[-1])");
	push @ids, one($behind, 'snowflake_nextval()');
	one($ahead, "snowflake_observe($ids[-1])");
	push @ids, one($ahead, 'snowflake_nextval()');
}
check_ids('snowflake_observe()', \@ids);

# Under load, sessions of the server that is behind answer messages while others take IDs
# of the same generator. All messages are of a clock that is 60 ms ahead.
sub pgbench
{
	my ($node, $clients, $seconds, %scripts) = @_;
	my @files;
	for my $name (sort keys %scripts)
	{
		my $file = PostgreSQL::Test::Utils::tempdir() . "/$name.sql";
		append_to_file($file, $scripts{$name});
		push @files, '-f', $file;
	}
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-j', 2, '-T', $seconds, @files,
		'-h', $node->host, '-p', $node->port, '-U', 'app', 'postgres' ], '>', \$out, '2>', \$err)
	  or fail("pgbench: $out $err");
	like($out, qr/number of failed transactions: 0 /, 'no failed transaction');
	return;
}
my $message = "snowflake_encode(clock_timestamp() + interval '60 ms', 1, 4095)";
pgbench($behind, 12, 5,
	replies => "WITH m AS MATERIALIZED (SELECT $message AS message) INSERT INTO replies SELECT message, next_after(message) FROM m;\n",
	both => "SELECT $message AS message \\gset\nSELECT snowflake_observe(:message);\nINSERT INTO replies VALUES (:message, snowflake_nextval());\n",
	others => "INSERT INTO replies SELECT NULL, snowflake_nextval();\n",
	batches => "INSERT INTO replies SELECT NULL, id FROM snowflake_nextval_batch(20) AS id;\n");
my ($replies, $early) = split /\|/, $behind->safe_psql('postgres',
	'SELECT count(message), count(*) FILTER (WHERE id <= message) FROM replies');
cmp_ok($replies, '>', 100, "$replies replies under load");
is($early, 0, 'none of them sorts before its message');
# A mark is written for each 50 ms or so, not for each message.
my ($reservations, $seconds) = split /\|/, $behind->safe_psql('postgres',
	q{SELECT reservations, extract(epoch FROM now() - stats_reset) FROM pg_stat_snowflake WHERE generator = 'snowflake_default'::regclass});
cmp_ok($reservations, '<', 60 * $seconds, "$reservations marks in $seconds s");

# A loop over a server's own IDs takes no tick from anybody, and writes no mark, for each of them.
$behind->safe_psql('postgres', q{SELECT snowflake_create_generator('own', 'preset=default')});
$behind->safe_psql('postgres', q{SELECT snowflake_nextval('own'); SELECT snowflake_stat_reset('own')});
$behind->safe_psql('postgres', q{DO $$BEGIN FOR i IN 1 .. 10000 LOOP PERFORM snowflake_observe(snowflake_nextval('own'), 'own'); END LOOP; END$$});
($reservations, $seconds, my @others) = split /\|/, $behind->safe_psql('postgres',
	q{SELECT reservations, extract(epoch FROM now() - stats_reset), issued, borrowed, waits FROM pg_stat_snowflake WHERE generator = 'own'::regclass});
is("@others", '10000 0 0', 'own IDs are observed: nothing is borrowed, and no call waits');
cmp_ok($reservations, '<', 4 + 60 * $seconds, "$reservations marks in $seconds s");

# A crash: what was observed stays observed, also if the clock is set back meanwhile.
my $seen = one($behind, "snowflake_encode(clock_timestamp() + interval '80 ms', 1, 4095)");
is(one($behind, "snowflake_observe($seen)"), '', 'observed');
$behind->stop('immediate');
start_with_clock($behind, -30);
$session{behind} = session($behind, 'app');
cmp_ok(one($behind, 'snowflake_nextval()'), '>', $seen, 'after a crash, IDs go on after what was observed');
$behind->stop;
start_with_clock($behind, -0.06);
$session{behind} = session($behind, 'app');

# The clock is set forward, and the server only answers: IDs of now are not too far ahead.
one($behind, 'snowflake_nextval()');
set_clock($behind, 30);
my $of_now = one($behind, 'snowflake_encode(clock_timestamp(), 1, 0)');
is((error_in($session{behind}, "SELECT snowflake_observe($of_now)"))[0], '', 'an ID of now is observed after the clock was set forward');
set_clock($behind, 60);
$of_now = one($behind, 'snowflake_encode(clock_timestamp(), 1, 0)');
is((error_in($session{behind}, "SELECT next_after($of_now)"))[0], '', 'and answered');

# On a standby, and where nextval() is prevented.
$ahead->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($ahead, 'copy', has_streaming => 1);
start_with_clock($standby, 0);
is((error_of($standby, 'SELECT snowflake_observe(0)'))[0], '25006', 'snowflake_observe() on a standby');

$_->quit for values %session;
done_testing();
