# Tests crashes of servers whose leases are long: a crash loop, a power cut of three servers whose
# pool has four worker IDs, and servers that are lost one after the other. Nobody waits for a
# lease to end, and nobody leads by one. LONG=1 takes the default terms and intervals, which takes
# 25 minutes; otherwise the servers are younger.
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
my $terms = "hold => '$hold s'" . ($ENV{LONG} ? '' : q{, max_ahead => '1 s'});
my $registry = new_registry('registry', "'loop', '[0,10)', $terms", "'four', '[20,24)', $terms", "'pods', '[100,140)', $terms");
my $conninfo = conninfo($registry);
my $template = template_of('template');
sub leasing
{
	my ($name, $pool) = @_;
	my $node = member($template, $name, "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = '$pool'", "snowflake_id.reserve_ahead = '$reserve s'");
	$node->start;
	return $node;
}

# Three servers, the power of which is cut later.
my @three = map { leasing("power$_", 'four') } 1 .. 3;
first_id($_, 'a new server') for @three;
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
my ($count, $apart) = $ENV{LONG} ? (30, 10) : (12, 1);
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
cmp_ok((sort { $b <=> $a } @leads)[0], '<', $reserve + 1, "$count servers lost, $apart s apart: nobody leads by a lease");
cmp_ok(scalar keys %workers, '>', 1, scalar(keys %workers) . ' worker IDs were used');
$_->stop for $pod, @beside;

# The power of all three is away for longer than patience and hold: their worker IDs are free.
my $old = time - $from;
sleep 620 - $old if $ENV{LONG} && $old < 620;
kill_all($_) for @three;
sleep $ENV{LONG} ? 90 : $patience + $hold + 2;
for my $node (@three) { reboot($node); $node->start; }
first_id($_, 'three servers of a pool of four, after a power cut', 5) for @three;
my %has = map { take($_) => 1 } @three;
is(scalar keys %has, 3, 'each has a worker ID of its own');
note('they lead by ' . join ', ', map { lead($_) . ' s' } @three);
check_all('all servers', $registry);
$_->stop for @three;
done_testing();
