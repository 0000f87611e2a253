# Tests that a session whose calls to a registry are cancelled again and again starts few threads:
# each waits for an etcd that does not answer until its time is over.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

# The kernel accepts connections, and nobody answers.
my $silent = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1') or die;
my $node = new_node('main', '');
$node->append_conf('postgresql.conf', "snowflake_id.registry = 'etcd://127.0.0.1:" . $silent->sockport . "'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor');
my $session = session($node, 'monitor');
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe(q{SET statement_timeout = '30ms'});
my %codes;
for (1 .. 40)
{
	send_to($session, 'SELECT count(*) FROM snowflake_pools');
	my ($code) = answer_in($session);
	$codes{$code}++;
}
note("$codes{$_} times $_") for sort keys %codes;
my @threads = glob "/proc/$pid/task/*";
cmp_ok(scalar @threads, '<=', 9, 'a session has few threads');
ok($codes{'57014'}, 'calls were cancelled');
ok($codes{'08000'}, 'and others refused');
$session->quit;
$node->stop;
done_testing();
