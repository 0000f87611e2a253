# Tests that a reader that polls on the coordinator misses no row of statements that write to
# shards on several nodes, if the coordinator gives the rows their IDs: Citus commits on the
# workers after it has committed on the coordinator, and the horizon waits for that.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use POSIX ();
use Snowflake;
use Citus;

my ($seconds, $writers) = (15, 6);
my ($coordinator, @workers) = citus_cluster(2);
# What has been committed on the coordinator is committed on the workers some time later.
for my $worker (@workers)
{
	$worker->append_conf('postgresql.conf', "fsync = on\ncommit_delay = '20ms'\ncommit_siblings = 0");
	$worker->reload;
}

sub on_coordinator { return $coordinator->safe_psql('postgres', $_[0]); }

on_coordinator("CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), k int);
	SELECT create_distributed_table('events', 'id', shard_count => 8);
	SELECT snowflake_create_generator('other' || n) FROM generate_series(1, 4) n");

# The last of the scripts holds by a lock, since four other generators have the session's places.
my @scripts = (
	'INSERT INTO events (k) SELECT i FROM generate_series(1, 10) AS i;',
	"BEGIN;\nINSERT INTO events (k) VALUES (1), (2), (3);\nINSERT INTO events (k) SELECT i FROM generate_series(1, 5) AS i;\nCOMMIT;",
	"BEGIN;\nSELECT snowflake_nextval(('other' || n)::regclass) FROM generate_series(1, 4) n;\nINSERT INTO events (k) SELECT i FROM generate_series(1, 10) AS i;\nCOMMIT;");
my @files;
for my $n (0 .. $#scripts)
{
	my $file = PostgreSQL::Test::Utils::tempdir() . "/write_$n.sql";
	append_to_file($file, "$scripts[$n]\n");
	push @files, '-f', $n == 1 ? "$file\@2" : $file;
}

# Rows that a reader gets who remembers the greatest ID, and one who keeps to the horizon.
my ($reader, $naive) = (session($coordinator), session($coordinator));
my ($last, $greatest, $polls, %seen, %naive_seen) = (0, 0, 0);

sub poll
{
	my $horizon = $reader->query_safe('SELECT snowflake_horizon()');
	$seen{$_}++ for split /\n/, $reader->query_safe("SELECT id FROM events WHERE id >= $last AND id < $horizon");
	$last = $horizon;
	my @ids = sort { $a <=> $b } split /\n/, $naive->query_safe("SELECT id FROM events WHERE id > $greatest");
	$naive_seen{$_}++ for @ids;
	$greatest = $ids[-1] if @ids;
	$polls++;
	return;
}

my $log = PostgreSQL::Test::Utils::tempdir() . '/pgbench.log';
my $pid = fork // die "fork: $!";
if (!$pid)
{
	open STDOUT, '>', $log or die "$log: $!";
	open STDERR, '>&', \*STDOUT or die "$log: $!";
	exec 'pgbench', '-n', '-c', $writers, '-j', 2, '-T', $seconds, @files, '-d', $coordinator->connstr('postgres') or die "pgbench: $!";
}
my ($ended, $status) = 0;
until ($ended)
{
	($ended, $status) = (waitpid($pid, POSIX::WNOHANG), $?);
	poll();
}
is($status, 0, 'the writers end well') or diag slurp_file($log);
wait_until('the horizon passes all rows', sub {
	poll();
	on_coordinator("SELECT max(id) < $last FROM events") });

my @all = split /\n/, on_coordinator('SELECT id FROM events');
my $missed = grep { !$seen{$_} } @all;
my $missed_by_naive = grep { !$naive_seen{$_} } @all;
note scalar(@all), " rows, $polls polls; missed $missed by the horizon, $missed_by_naive by the greatest ID";
cmp_ok(@all, '>', 500, 'there are many rows');
cmp_ok($missed_by_naive, '>', 0, 'a reader who remembers the greatest ID misses some');
is($missed, 0, 'a reader who keeps to the horizon misses none');
is(scalar(grep { $_ > 1 } values %seen), 0, 'and reads none twice');

done_testing();
