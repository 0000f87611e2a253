# Tests a cluster of Patroni whose members have a worker ID each, in their own files. No
# ID is issued twice, unless a member's former IDs were far ahead of its clock and it is
# promoted again before the clock has passed them, as docs/guarantees.md says.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use Test::More;
use Patroni;
use Recipe;
use Scenarios;
use Snowflake;

my $cluster = Patroni->new;
set_up_numbers($cluster);
is(join(' ', map { $cluster->sql($_, 'SELECT worker_id FROM snowflake_worker') } $cluster->names), '1 2 3', 'each has its own');
run_scenarios($cluster);
is(join(' ', map { $cluster->sql($_, 'SELECT worker_id FROM snowflake_worker') } $cluster->names), '1 2 3', 'each still has its own');
$cluster->stop_clients;
$cluster->print_table('a worker ID for each member');

# Each ID carries the number of the member that issued it.
my $leader = $cluster->wait_until_whole;
is($cluster->sql($leader, q{SELECT string_agg(DISTINCT port || ' ' || (snowflake_decode(id)).worker_id, ', ') FROM events}),
	join(', ', sort map { $cluster->port($_) . ' ' . s/pg//r } $cluster->names), 'no member has issued IDs of another one');

# What is promised of a number ends where a node's clock and mark are too early.
$cluster->expect_duplicates;
far_ahead($cluster, 600);
$cluster->stop_clients;
done_testing();
