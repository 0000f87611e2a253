# Tests a registry that is restored from a backup in which all leases have ended, and of which one
# server knows nothing. The servers that live tell what they have: none loses its worker ID, no call
# fails, and no ID is ahead of the clock.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

# A holder may be silent for as long as the lease, and for the hold.
my $registry = new_registry('registry', q{'main', '[0,9)', lease => '12 s', hold => '2 s', max_ahead => '2 s'});
my $conninfo = conninfo($registry);
my $template = template_of('template');
my @servers = map { member($template, $_, "snowflake_id.registry = '$conninfo'", q{snowflake_id.pool = 'main'}) } 'a', 'b', 'later';
sub begins { my ($server) = @_; $server->start; first_id($server, $server->name); start_load($server); return; }
begins($_) for @servers[ 0, 1 ];

$registry->backup('old');
begins($servers[2]);
# Longer than lease and hold: the leases in the backup have ended, and those of now are as long as they get.
$_->safe_psql('postgres', 'SELECT pg_sleep(16)') for $registry;
my @had = map { worker($_, 'worker_id') } @servers;
$registry->stop;
my $path = $registry->data_dir;
rename $path, "$path.lost" or die "rename: $!";
PostgreSQL::Test::RecursiveCopy::copypath($registry->backup_dir . '/old', $path);
chmod 0700, $path or die "chmod: $!";
start_registry($registry);

wait_until('all have renewed their leases', sub {
	$registry->safe_psql('postgres', q{SELECT count(*) FROM snowflake_workers WHERE state = 'leased'}) eq '3' });
like($registry->safe_psql('postgres', 'SELECT grace_until > clock_timestamp() FROM snowflake_pools'), qr/^t?$/, 'while others wait');
$registry->safe_psql('postgres', 'SELECT pg_sleep(16)');
is_deeply([ map { worker($_, 'worker_id') } @servers ], \@had, 'all keep their worker IDs');
for my $server (@servers)
{
	is(in_log($server, qr/lost worker ID/), 0, $server->name . ' has lost none');
	cmp_ok($server->safe_psql('postgres', 'SELECT extract(epoch FROM max(ahead_by)) FROM snowflake_generators'), '<', 2, 'and is not ahead of its clock');
	is(scalar(grep { /ERROR/ } split /^/, slurp_file($server->logfile)), 0, 'no call has failed');
	cmp_ok(scalar(stop_load($server)), '>', 0, 'it has issued IDs');
}
check_all('a restored registry', $registry);
done_testing();
