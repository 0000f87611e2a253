# Tests a cluster of Patroni whose members lease their worker IDs from Patroni's own etcd:
# no ID is issued twice, whatever is killed, frozen, promoted, rewound and copied.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Test::More;
use Patroni;
use Recipe;
use Scenarios;
use Snowflake;

my $cluster = Patroni->new;
set_up_leases($cluster);
run_scenarios($cluster);
# The pool lets a generator be a minute ahead of the clock.
far_ahead($cluster, 55);
$cluster->stop_clients;
$cluster->print_table('with leases');
done_testing();
