# Tests that sessions which wait for a worker ID sleep until there is something to look at:
# they do not look 100 times a second.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

plan skip_all => 'the kernel does not count how often a process sleeps' if !-e '/proc/self/status';

my $registry = new_node('registry', 900);
$registry->start;
$registry->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('main', '[0,16)')});
my $node = new_node('main', '');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
$node->stop;
my $conninfo = conninfo($registry);
$node->append_conf('postgresql.conf', "snowflake_id.registry = '$conninfo'\nsnowflake_id.pool = 'main'\nautovacuum = off");

# How often a process has gone to sleep.
sub sleeps
{
	my ($pid) = @_;
	my ($count) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)$/m;
	return $count;
}

# The registry neither answers nor refuses while its processes are stopped.
my @frozen = freeze($registry);
$node->start;
my @sessions = map { session($node) } 1 .. 3;
my @pids = map { $_->query_safe('SELECT pg_backend_pid()') } @sessions;
my @before = map { sleeps($_) } @pids;
send_to($_, 'SELECT snowflake_nextval()') for @sessions;
my $of_them = 'pid IN (' . join(',', @pids) . q{) AND query LIKE '%nextval%'};
wait_until('they wait for two seconds, or have given up', sub {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE $of_them
		AND (state = 'idle' OR query_start < clock_timestamp() - interval '2 s')") == @sessions });
my @after = map { sleeps($_) } @pids;
cmp_ok($after[$_] - $before[$_], '<', 60, "session $_ sleeps while it waits") for 0 .. $#pids;
thaw(@frozen);
answer_in($_) for @sessions;
wait_until('the worker ID has come', sub { worker($node, 'worker_id') ne '' });
is(error_in($_, 'SELECT snowflake_nextval()'), '', 'then there are IDs') for @sessions;
$_->quit for @sessions;
done_testing();
