# Tests restarts and crashes under load with the clock 4 s back: no ID is issued twice,
# IDs increase, and the first ID comes at once.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');

# In each of two rounds, two sessions take 300,000 IDs each before the stop, and two
# after it.
my (@all, $clock);
$clock = 0;
for my $stop ('fast', 'immediate')
{
	my @before = map { [ ids($node, 300_000) ] } 1 .. 2;
	# The last batch is issued as late as possible before the server stops.
	my @last = split /\n/, $node->safe_psql('postgres', 'SELECT snowflake_nextval_batch(100000)');
	$node->stop($stop);
	$clock -= 4;
	start_with_clock($node, $clock);
	my $first = first_id_within($node, 3, "after a $stop stop with the clock 4 s back");
	cmp_ok($first, '>', $last[-1], 'still increasing');
	my @after = map { [ ids($node, 300_000) ] } 1 .. 2;
	push @all, @before, \@last, [$first], @after;
	cmp_ok($after[0][0], '>', $first, 'and onwards');
}
check_ids('2.6 million IDs around two restarts', @all);
# The IDs are in the order in which they were issued, as one session would see them.
my $order = 0;
my $last = -1;
for my $id (map { @$_ } @all) { $order++ if $id <= $last; $last = $id; }
is($order, 0, 'increasing over both restarts');

# After kill -9 of a backend the postmaster restarts all processes.
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->reload;
my ($before) = ids($node, 1);
my $victim = $node->background_psql('postgres');
my $pid = $victim->query_safe('SELECT pg_backend_pid()');
$victim->query_safe('BEGIN; SELECT snowflake_nextval()');
kill KILL => $pid;
eval { $victim->quit };
wait_until('the server is back', sub {
	my ($out, $err);
	# It dies where a psql that the server refuses has ended before it has taken the statement.
	return eval { $node->psql('postgres', 'SELECT 1', stdout => \$out, stderr => \$err) == 0 } });
my ($after) = ids($node, 1);
cmp_ok($after, '>', $before, 'increasing after kill -9 of a backend');

# Ten quick restarts do not run away from the clock.
$node->stop;
start_with_clock($node, 0);
for (1 .. 10)
{
	ids($node, 1);
	$node->stop('immediate');
	$node->start;
}
my $lead = $node->safe_psql('postgres',
	'SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp())');
cmp_ok($lead, '<', 25, "ten crashes in a row: $lead s ahead of the clock");

# The mark is durable before an ID is out: with the smallest window, every ID lies below
# the mark that a crash leaves behind.
is($node->safe_psql('postgres', q{
	SELECT bool_and(extract(epoch FROM snowflake_timestamp(id)) * 1000 < last_value)
	FROM (SELECT snowflake_nextval() AS id FROM generate_series(1, 1000)) AS s, snowflake_default}),
	't', 'IDs lie below the mark');

done_testing();
