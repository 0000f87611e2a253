# Tests how much WAL and how many transaction IDs the issuing of IDs takes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(sleep);

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; SELECT snowflake_nextval()');

my $next_xid = 'SELECT pg_snapshot_xmax(pg_current_snapshot())';
my $session = $node->background_psql('postgres');
my $before = $session->query_safe($next_xid);
for (1 .. 100)
{
	$session->query_safe('SELECT snowflake_nextval()');
	sleep 0.05;
}
my $used = $session->query_safe($next_xid) - $before;
cmp_ok($used, '<=', 2, "100 IDs at 20 per second: $used xids");
$session->quit;

# A burst of IDs reserves once.
$before = $node->safe_psql('postgres', $next_xid);
$node->safe_psql('postgres', 'SELECT count(snowflake_nextval()) FROM generate_series(1, 1000000)');
$used = $node->safe_psql('postgres', $next_xid) - $before;
cmp_ok($used, '<=', 1, "1 million IDs in a statement: $used xids");

# The mark is flushed even if the transaction that raised the mark does not flush. Reading
# catalogs writes WAL too, where rows are left that CREATE EXTENSION has replaced.
$node->safe_psql('postgres', 'VACUUM');
$node->restart;
my $behind = $node->safe_psql('postgres', q{
	SET synchronous_commit = off;
	BEGIN;
	SELECT snowflake_nextval() IS NOT NULL;
	SELECT pg_current_wal_flush_lsn() = pg_current_wal_insert_lsn();
	ROLLBACK});
is($behind, "t\nt", 'flushed before the ID is out');

done_testing();
