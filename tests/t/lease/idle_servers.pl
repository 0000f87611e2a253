# Tests a server that nobody connects to: its keeper renews the lease and reports the
# horizon after a start, also if databases come, go and change their names meanwhile; and a
# wall clock that is set forward moves the report of a server that issues no IDs, and the
# horizon there.
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

# Autovacuum would connect, and so write the file that tells where indexes of shared
# catalogs are.
my $idle = new_node('idle', '');
$idle->append_conf('postgresql.conf', <<"END_OF_SETTINGS");
snowflake_id.registry = '$conninfo'
snowflake_id.pool = 'main'
snowflake_id.horizon_databases = 'postgres'
autovacuum = off
END_OF_SETTINGS

sub shows
{
	my ($columns) = @_;
	return $registry->safe_psql('postgres', "SELECT $columns FROM snowflake_cluster_servers WHERE data_directory = '" . $idle->data_dir . "'");
}

# Waits until the server has reported so many times from now on.
sub reports
{
	my ($count, $what) = @_;
	for (1 .. $count)
	{
		my $last = shows('reported') || return 0;
		wait_until($what, sub { shows("reported > '$last'") eq 't' }) or return 0;
	}
	return 1;
}

# The clock of the server is 20 s behind.
start_with_clock($idle, -20);
$idle->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
first_id($idle, 'a server whose clock is behind');
wait_until('it reports', sub { shows('state') eq 'reports' });
ok(reports(1, 'a report'), 'it reports its horizon');
cmp_ok(shows('extract(epoch FROM lag)'), '>', 15, 'which is as late as its clock');

# Then the clock is set right, and nobody takes IDs.
set_clock($idle, 0);
reports(3, 'a report after the clock was set right');
cmp_ok(shows('extract(epoch FROM lag)'), '<', 15, 'an idle server follows a clock that is set forward');
cmp_ok($idle->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp() - snowflake_timestamp(snowflake_horizon()))'), '<', 15,
	'so does its own horizon');

# A jump that is not believed moves nothing.
$idle->append_conf('postgresql.conf', "snowflake_id.max_clock_jump = '10 s'");
$idle->reload;
reports(2, 'a report after the reload');
set_clock($idle, 600);
reports(3, 'a report after the jump');
cmp_ok(shows('extract(epoch FROM horizon - clock_timestamp())'), '<', 300, 'a jump beyond max_clock_jump is not followed');
set_clock($idle, 0);
is($idle->safe_psql('postgres', q{SELECT snowflake_timestamp(snowflake_nextval()) < clock_timestamp() + interval '5 min'}), 't',
	'and when it is corrected, IDs are issued as before');
$idle->append_conf('postgresql.conf', "snowflake_id.max_clock_jump = '1 d'");

# A start, after which nobody connects: no index of a shared catalog is known then.
$idle->stop;
my $log = -s $idle->logfile;
$idle->start;
my $dies = sub { slurp_file($idle->logfile, $log) =~ /FATAL/ };
wait_until('it reports after a start', sub { shows('state') eq 'reports' || $dies->() });
ok(reports(7, 'a report'), 'two leases long, it reports after a start');
is(shows('state'), 'reports', 'its state');
is($registry->safe_psql('postgres', "SELECT count(*) FROM snowflake_workers WHERE state = 'leased' AND data_directory = '" . $idle->data_dir . "'"),
	1, 'and it has a worker ID');
ok(!$dies->(), 'the keeper has not died');

# Names of databases that come, go and change.
my $session = session($idle);
set_by_reload($idle, 'snowflake_id.horizon_databases' => 'postgres, later');
wait_until('the log tells of a name that no database has', sub { in_log($idle, qr/database "later" in snowflake_id.horizon_databases does not exist/) });
my $stands = shows('horizon');
$session->query_safe('CREATE DATABASE later');
wait_until('it reports once there is such a database', sub { shows("horizon > '$stands'") eq 't' });
$session->query_safe('ALTER DATABASE later RENAME TO sooner');
wait_until('the log tells when the name is gone', sub { in_log($idle, qr/database "later" in snowflake_id.horizon_databases does not exist/) == 2 });
is(in_log($idle, qr/database "later" in snowflake_id.horizon_databases does not exist/), 2, 'each time once');
$stands = shows('horizon');
$session->query_safe('ALTER DATABASE sooner RENAME TO later');
wait_until('it reports when it is back', sub { shows("horizon > '$stands'") eq 't' });

# A hold in the database that has come counts.
$session->query_safe('SELECT 1');
my $there = session($idle, undef, 'later');
$there->query_safe('CREATE EXTENSION snowflake_id');
$there->query_safe('BEGIN; SELECT snowflake_nextval()');
reports(2, 'a report');
$stands = shows('horizon');
reports(3, 'a report');
is(shows('horizon'), $stands, 'a transaction there holds the horizon back');
$there->query_safe('COMMIT');
wait_until('until it ends', sub { shows("horizon > '$stands'") eq 't' });
$_->quit for $there, $session;
done_testing();
