# Tests crashes of servers whose leases are long: a crash loop, servers that are lost one after the
# other, and power cuts. Nobody waits for a lease to end, and nobody leads by one, unless the pool is
# too small. LONG=1 takes the default terms and intervals, which takes 25 minutes; otherwise the
# servers are younger. LOST, APART and PODS: how many servers are lost, how many seconds apart, and
# how many worker IDs their pool has; 50, 10 and 100 with LONG=1, which takes 9 of the minutes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Leases;
use Snowflake;

my $patience = 30;
my ($hold, $reserve) = $ENV{LONG} ? (30, 10) : (1, 2);
my $terms = "unused => true, hold => '$hold s'" . ($ENV{LONG} ? '' : q{, max_ahead => '1 s'});
my ($count, $apart, $pods) = $ENV{LONG} ? (50, 10, 100) : (12, 1, 40);
($count, $apart, $pods) = ($ENV{LOST} // $count, $ENV{APART} // $apart, $ENV{PODS} // $pods);
my $registry = new_registry('registry', "'loop', '[0,10)', $terms", "'four', '[20,24)', $terms", "'eight', '[30,38)', $terms", "'pods', '[100," . (100 + $pods) . ")', unused => true");
my $conninfo = conninfo($registry);
my $template = template_of('template');
sub leasing
{
	my ($name, $pool) = @_;
	my $node = member($template, $name, "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = '$pool'", "snowflake_id.reserve_ahead = '$reserve s'");
	$node->start;
	return $node;
}

# Three servers of a pool that is large enough, and three of one that is too small.
my @of_eight = map { leasing("eight$_", 'eight') } 1 .. 3;
my @of_four = map { leasing("four$_", 'four') } 1 .. 3;
first_id($_, 'a new server') for @of_eight, @of_four;
my $from = time;

# A server that crashes again and again.
my ($rounds, $interval) = $ENV{LONG} ? (120, 5) : (15, 1);
my $loop = leasing('loop', 'loop');
first_id($loop, 'before it crashes');
my ($most, $slowest) = (0, 0);
for (1 .. $rounds)
{
	my $next = time + $interval;
	kill_all($loop);
	$loop->start;
	my $up = time;
	my $lead = lead($loop);
	$slowest = time - $up if time - $up > $slowest;
	$most = $lead if $lead > $most;
	my $left = $next - time;
	sleep $left if $left > 0;
}
cmp_ok($most, '<', $patience + $reserve, "$rounds crashes, $interval s apart: the IDs lead by at most $most s");
cmp_ok($slowest, '<', 5, sprintf 'and the first comes after %.2f s at most', $slowest);
$loop->stop;

# Servers that are lost, each replaced by a new one, beside three that live.
my $pod = leasing('pod', 'pods');
my @beside = map { leasing("beside$_", 'pods') } 1 .. 3;
my (@waits, %workers, @leads);
for my $n (1 .. $count)
{
	my $next = time + $apart;
	push @waits, first_id_of($pod);
	$workers{ take($pod, 1) }++;
	push @leads, lead($pod);
	my $left = $next - time;
	sleep $left if $left > 0;
	reboot($pod);
	$pod->start;
}
sub first_id_of { my ($node) = @_; my $from = time; first_id($node, 'its predecessor is lost', 5); return sprintf '%.2f', time - $from; }
note("first IDs after @waits s; leads of @leads s");
cmp_ok((sort { $b <=> $a } @leads)[0], '<', $reserve + 1, "$count servers lost, $apart s apart, in a pool of $pods: nobody leads by a lease");
cmp_ok(scalar keys %workers, '>', 1, scalar(keys %workers) . ' worker IDs were used');
$_->stop for $pod, @beside;

# All servers are killed, and started a minute and a half later: each has a worker ID at once. As
# many machines lose their power, which makes others of them: those need worker IDs that nobody has.
my $old = time - $from;
sleep 620 - $old if $ENV{LONG} && $old < 620;
kill_all($_) for @of_four, @of_eight;
sleep($ENV{LONG} ? 90 : $patience + $hold + 2);
reboot($_) for @of_eight;
sub have_own
{
	my ($what, $limit, @nodes) = @_;
	$_->start for @nodes;
	first_id($_, $what, $limit) for @nodes;
	my %has = map { take($_) => 1 } @nodes;
	is(scalar keys %has, 3, "$what: each has a worker ID of its own");
	my ($most) = sort { $b <=> $a } map { lead($_) } @nodes;
	note("$what: they lead by $most s at most");
	return $most;
}
cmp_ok(have_own('three servers of a pool of eight lose their power', 5, @of_eight), '<', $reserve + 1, 'nobody leads by a lease');
have_own('three servers of a pool of four are killed', 5, @of_four);

# The same pool of four, and a power cut: the registry has heard of nobody for as long, so it does not
# know whether the machines were lost or itself. Who finds no worker ID waits once more.
kill_all($_) for @of_four, @of_eight;
sleep $patience + $hold + 2;
reboot($_) for @of_four;
have_own('three servers of a pool of four lose their power', $patience + $hold + 10, @of_four);
check_all('all servers', $registry);
$_->stop for @of_four;
done_testing();
