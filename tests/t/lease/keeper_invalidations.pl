# Tests that the keeper reads the messages that tell of changed catalogs when PostgreSQL asks
# it to. It runs no transaction for as long as a server has no registry.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

my $node = new_node('main', 1);
# No other process is behind the one that makes the messages. PostgreSQL logs whom it asks,
# and who reads.
$node->append_conf('postgresql.conf', <<'END_OF_SETTINGS');
autovacuum = off
max_logical_replication_workers = 0
log_line_prefix = '[%p] '
log_min_messages = debug4
END_OF_SETTINGS
$node->start;
my $keeper = keeper($node);
like($keeper, qr/^\d+$/, 'there is a keeper');
my $session = session($node);
my $asked = qr/sending sinval catchup signal to PID $keeper\n/;
my $read = qr/^\[$keeper\] DEBUG:  ProcessCatchupEvent outside transaction/m;
for my $round (1 .. 2)
{
	wait_until('the keeper is asked to read', sub {
		$session->query_safe('DO $$ BEGIN FOR n IN 1 .. 20 LOOP CREATE TEMP TABLE many (a int, b int, c int, d int); DROP TABLE many; END LOOP; END $$');
		return in_log($node, $asked) >= $round });
	ok(wait_until('it reads', sub { in_log($node, $read) >= $round }), "the keeper reads when it is asked to: time $round");
}
is(keeper($node), $keeper, 'and it is the same one');
$session->quit;
done_testing();
