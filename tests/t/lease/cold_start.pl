# Tests that all machines of a cluster lose their power, the registry's too, and start again in
# any order: each server has its first ID soon, and nobody has to help. The registry is in an etcd
# beside the servers, on a server of its own, or in a database of a server that leases from it.
# docs/worker-ids.md states the times. LONG=1 takes the default terms.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Etcd;
use Leases;
use Snowflake;

my ($lease, $hold) = $ENV{LONG} ? (30, 30) : (4, 1);
my $terms = "lease => '$lease s', hold => '$hold s', max_ahead => '1 s'";
my $template = template_of('template');

# Starts what is off in this order, and returns how long after the last of them each server has
# its first ID. What is no server is a function.
sub power_on
{
	my ($limit, $what, @order) = @_;
	my @servers = grep { ref $_ ne 'CODE' } @order;
	for my $next (@order) { ref $next eq 'CODE' ? $next->() : $next->start; }
	my $on = time;
	my %took;
	# Those that hold up the others come last.
	for (1 .. 600)
	{
		for my $node (grep { !exists $took{ $_->name } } @servers)
		{
			$took{ $node->name } = time - $on if (error_of($node, 'SELECT snowflake_nextval()'))[0] eq '';
		}
		last if keys %took == @servers;
		sleep 0.1;
	}
	for my $node (@servers)
	{
		my $name = $node->name;
		cmp_ok($took{$name} // 'no ID', '<', $limit, sprintf '%s: first ID of %s %.2f s after the last start', $what, $name, $took{$name} // -1);
		take($node);
	}
	return;
}

SKIP: {
	skip Etcd::missing(), 1 if Etcd::missing();
	local $ENV{REGISTRY} = 'etcd';
	my $etcd = new_registry('beside', "'main', '[0,16)', lease => '10 min'");
	my $url = conninfo($etcd);
	my @three = map { member($template, "beside$_", "snowflake_id.registry = '$url'", q{snowflake_id.pool = 'main'}) } 1 .. 3;
	$_->start for @three;
	first_id($_, 'before the power cut') for @three;
	my ($quorum, $rest) = (sub { $etcd->start_member($_) for 0, 1; }, sub { $etcd->start_member(2) });
	for my $case ([ 'etcd first', $quorum, $rest, @three ], [ 'etcd last', @three, $rest, $quorum ],
		[ 'a member of etcd is lost', $three[2], $quorum, @three[ 0, 1 ] ])
	{
		my ($what, @order) = @$case;
		start_load($_) for @three;
		wait_for_ids($_, 'before the power cut') for @three;
		kill_registry($etcd);
		kill_all($_) for @three;
		stop_load($_) for @three;
		reboot($_) for @three;
		power_on(15, $what, @order);
	}
	$etcd->start_member(2);
	$etcd->wait_until_up;
	check_all('etcd beside the servers', $etcd);
	$_->stop for @three;
}

# A registry of its own, and one that serves itself too. A registry that was not stopped cleanly may
# have lost leases, so it waits for those that it may have forgotten.
for my $inside (0, 1)
{
	my $what = $inside ? 'a registry inside' : 'a registry of its own';
	# No two registries of this test have a worker ID in common.
	my $ids = $inside ? '[40,56)' : '[20,36)';
	my $registry = new_registry("registry$inside", "'main', '$ids', $terms");
	my $conninfo = conninfo($registry);
	my @settings = ("snowflake_id.registry = '$conninfo'", q{snowflake_id.pool = 'main'});
	my @two = map { member($template, "of$inside$_", @settings) } 1, 2;
	if ($inside)
	{
		# It leases from its own database.
		$registry->append_conf('postgresql.conf', join "\n", @settings);
		$registry->reload;
		push @two, $registry;
	}
	for my $node (@two) { $node->start if $node != $registry; }
	first_id($_, "$what: before the power cut") for @two;
	for my $is_last (0, 1)
	{
		my @servers = grep { $_ != $registry } @two;
		start_load($_) for @two;
		wait_for_ids($_, "$what: before the power cut") for @two;
		kill_all($_) for $registry, @servers;
		stop_load($_) for @two;
		reboot($_) for $registry, @servers;
		my $on = $inside ? $registry : sub { $registry->start };
		power_on($lease + $hold + 10, "$what, started " . ($is_last ? 'last' : 'first'), $is_last ? (@servers, $on) : ($on, @servers));
	}
	check_all($what, $registry);
	$_->stop for @two;
	$registry->stop if !$inside;
}
done_testing();
