# Tests a server that issues no IDs: its keeper renews the lease, also after a start after which
# nobody connects; and its horizon follows a wall clock that is set forward.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

my $registry = new_registry('registry', "'main', '[0,16)', lease => '3 s', hold => '1 s', max_ahead => '1 s'");
my $conninfo = conninfo($registry);

# Autovacuum would connect.
my $idle = new_node('idle', '');
$idle->append_conf('postgresql.conf', <<"END_OF_SETTINGS");
snowflake_id.registry = '$conninfo'
snowflake_id.pool = 'main'
autovacuum = off
END_OF_SETTINGS

sub shows
{
	my ($columns) = @_;
	return $registry->safe_psql('postgres', "SELECT $columns FROM snowflake_workers WHERE data_directory = '" . $idle->data_dir . "'");
}

# Waits until the server has renewed its lease so many times from now on.
sub renews
{
	my ($count, $what) = @_;
	for (1 .. $count)
	{
		my $last = shows('leased_until') || return 0;
		wait_until($what, sub { shows("leased_until > '$last'") eq 't' }) or return 0;
	}
	return 1;
}

# By how many seconds the horizon lags behind the server's clock.
sub lag { return $idle->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp() - snowflake_timestamp(snowflake_horizon()))'); }

# The clock of the server is 20 s behind.
start_with_clock($idle, -20);
$idle->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
first_id($idle, 'a server whose clock is behind');
ok(renews(1, 'a renewal'), 'it renews its lease');

# Then the clock is set right, and nobody takes IDs.
set_clock($idle, 0);
ok(renews(3, 'a renewal after the clock was set right'), 'and after its clock was set right');
cmp_ok(lag(), '<', 15, 'its horizon follows a clock that is set forward');

# A jump that is not believed moves nothing.
$idle->append_conf('postgresql.conf', "snowflake_id.max_clock_jump = '10 s'");
$idle->reload;
renews(2, 'a renewal after the reload');
set_clock($idle, 600);
cmp_ok(lag(), '>', 300, 'a jump beyond max_clock_jump is not followed');
set_clock($idle, 0);
is($idle->safe_psql('postgres', q{SELECT snowflake_timestamp(snowflake_nextval()) < clock_timestamp() + interval '5 min'}), 't',
	'and when it is corrected, IDs are issued as before');
$idle->append_conf('postgresql.conf', "snowflake_id.max_clock_jump = '1 d'");

# A start, after which nobody connects.
$idle->stop;
my $log = -s $idle->logfile;
$idle->start;
my $dies = sub { slurp_file($idle->logfile, $log) =~ /FATAL/ };
wait_until('it leases after a start', sub { shows("bool_or(state = 'leased')") eq 't' || $dies->() });
is($registry->safe_psql('postgres', "SELECT count(*) FROM snowflake_workers WHERE state = 'leased' AND data_directory = '" . $idle->data_dir . "'"),
	1, 'it has a worker ID');
my $worker = $registry->safe_psql('postgres', "SELECT worker_id FROM snowflake_workers WHERE state = 'leased' AND data_directory = '" . $idle->data_dir . "'");
my $renewed = 0;
for (1 .. 7)
{
	my $last = row($registry, $worker, 'leased_until');
	$renewed++ if wait_until('a renewal', sub { row($registry, $worker, "leased_until > '$last'") eq 't' });
}
is($renewed, 7, 'two leases long, it renews');
ok(!$dies->(), 'the keeper has not died');
done_testing();
