# Tests a clone of a worker, which Citus (13.2 and later) promotes to a node beside its
# origin: snowflake_check_cluster() finds that it has its origin's worker ID, and with one
# of its own no ID repeats.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Citus;

my ($coordinator, @workers) = citus_cluster(2);

sub on_coordinator { return $coordinator->safe_psql('postgres', $_[0]); }

plan skip_all => 'this Citus makes no clones'
  if on_coordinator("SELECT count(*) FROM pg_proc WHERE proname = 'citus_add_clone_node'") eq '0';

on_coordinator("SELECT * FROM snowflake_distribute_generator(snowflake_create_generator('own_ids', 'preset=sonyflake'));
	CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), own bigint DEFAULT snowflake_nextval('own_ids'), k int);
	SELECT create_distributed_table('t', 'id', shard_count => 4);
	INSERT INTO t (k) SELECT i FROM generate_series(1, 100) AS i");

my $origin = $workers[0];
$origin->backup('clone');
my $clone = PostgreSQL::Test::Cluster->new('clone');
$clone->init_from_backup($origin, 'clone', has_streaming => 1);
# Citus finds the clone among the standbys of its origin by its address or this name.
$clone->append_conf('postgresql.conf', sprintf "primary_conninfo = 'host=%s port=%d application_name=%s'", $origin->host, $origin->port, $clone->host);
$clone->start;
my @address = map { ($_->host, $_->port) } $clone, $origin;
my ($code, $text) = error_of($coordinator, sprintf "SELECT citus_add_clone_node('%s', %d, '%s', %d)", @address);
is($code, '', 'a clone is added') or diag $text;

my ($name, $of) = map { $_->host . ':' . $_->port } $clone, $origin;
is(on_coordinator('SELECT severity, finding, server, other_server FROM snowflake_check_cluster()'),
	"error|clone shares a worker ID|$of|$name", 'a clone with the worker ID of its origin');
like(on_coordinator('SELECT detail, hint FROM snowflake_check_cluster()'),
	qr/worker ID 2, and \Q$name\E is a clone: .*Before you call citus_promote_clone_and_rebalance/, 'and what to do');
$clone->append_conf('postgresql.conf', 'snowflake_id.worker_id = 4');
$clone->restart;
nothing_is_found($coordinator, 'a clone with a worker ID of its own');

($code, $text) = error_of($coordinator, "SELECT citus_promote_clone_and_rebalance((SELECT nodeid FROM pg_dist_node WHERE nodeisclone))");
is($code, '', 'it is promoted') or diag $text;
for my $node ($coordinator, @workers, $clone)
{
	for (1 .. 3)
	{
		($code, $text) = error_of($node, 'INSERT INTO t (k) SELECT i FROM generate_series(1, 50) AS i');
		is($code, '', $node->name . ' inserts') or diag $text;
	}
}
is(on_coordinator('SELECT count(*), count(DISTINCT id), count(DISTINCT own), count(DISTINCT (snowflake_decode(id)).worker_id) FROM t'), '700|700|700|4', 'no ID twice, of four nodes');
is(on_coordinator("SELECT string_agg(DISTINCT outcome, ' ') FROM snowflake_distribute_generator('own_ids')"), 'unchanged', 'the clone has brought the generator');

done_testing();
