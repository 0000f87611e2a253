# Tests a cluster of Patroni whose members lease their worker IDs from Patroni's own etcd, or
# with REGISTRY=postgresql from a server beside it: no ID is issued twice, whatever is killed,
# frozen, promoted, rewound and copied.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use Test::More;
use Leases;
use Patroni;
use Recipe;
use Scenarios;
use Snowflake;

my $cluster = Patroni->new;
set_up_leases($cluster);
run_scenarios($cluster);
# The pool lets a generator be a minute ahead of the clock.
far_ahead($cluster, 55);

# With failsafe_mode, Patroni lets a primary go on without etcd. The lease of one that was just
# promoted ends half a minute later; then IDs stop, and resume by themselves.
$cluster->ctl('edit-config shop --force -s failsafe_mode=true');
my $leader = $cluster->wait_until_whole;
if (registry($cluster) == $cluster->etcd)
{
	wait_until('the mode is known', sub { $cluster->is_failsafe });
	$leader = $cluster->switchover;
	$cluster->scenario('SIGSTOP of etcd past a young lease, with failsafe_mode', sub {
		$cluster->etcd->freeze(0);
		wait_until('the lease ends', sub { my (undef, $error) = $cluster->try_sql($leader, 'SELECT snowflake_nextval()'); return $error =~ /has not renewed the lease/ });
		ok($cluster->takes_writes($leader), 'it is still primary');
		$cluster->etcd->thaw(0); });
}
$cluster->stop_clients;

# What the registry has stored is later than every ID.
my %bound = map { split /\|/ } split /\n/, bounds(registry($cluster));
my $epoch = $cluster->sql($leader, 'SELECT 1000 * extract(epoch FROM snowflake_timestamp(0))::bigint');
my @past = grep { my $bound = $bound{ ($_ >> 12) & 1023 }; !defined $bound || ($_ >> 22) + $epoch >= $bound } $cluster->found_ids;
is("@past[0 .. ($#past > 9 ? 9 : $#past)]", '', 'no ID is of a time past the bound of its worker ID');
note('bounds: ' . join ', ', map { "$_: $bound{$_}" } sort keys %bound);
$cluster->print_table('with leases');
done_testing();
