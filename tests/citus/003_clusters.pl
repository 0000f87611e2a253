# Tests the default generator on a coordinator and two workers of Citus: every kind of
# INSERT from every node, reference and columnar tables, pruning of partitions by time,
# and that no ID repeats while shards are moved and split.
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
my @nodes = ($coordinator, @workers);

sub on_coordinator { return $coordinator->safe_psql('postgres', $_[0]); }

on_coordinator('CREATE EXTENSION citus_columnar');
on_coordinator("CREATE TABLE by_id (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), k int);
	SELECT create_distributed_table('by_id', 'id', shard_count => 4);
	CREATE TABLE by_k (id bigint DEFAULT snowflake_nextval(), k int, PRIMARY KEY (k, id));
	SELECT create_distributed_table('by_k', 'k', shard_count => 4);
	CREATE TABLE everywhere (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), k int);
	SELECT create_reference_table('everywhere');
	CREATE TABLE columns (id bigint DEFAULT snowflake_nextval(), k int) USING columnar;
	SELECT create_distributed_table('columns', 'k', shard_count => 4);
	CREATE TABLE source (k int); SELECT create_distributed_table('source', 'k', shard_count => 4);
	INSERT INTO source SELECT i FROM generate_series(1, 100) AS i");

my @inserts = (
	'INSERT INTO %s (k) VALUES (1)',
	'INSERT INTO %s (k) VALUES (1), (2), (3)',
	'INSERT INTO %s (id, k) VALUES (snowflake_nextval(), 4)',
	'INSERT INTO %s (k) SELECT i FROM generate_series(1, 50) AS i',
	'INSERT INTO %s (k) SELECT k FROM source',
	'INSERT INTO %s (k) SELECT k FROM source ORDER BY k LIMIT 30',
	'WITH new AS (INSERT INTO %1$s (k) VALUES (5) RETURNING id) SELECT id FROM new',
	'INSERT INTO %s (id, k) SELECT id, 6 FROM snowflake_nextval_batch(20) AS id',
	'INSERT INTO %s (k) VALUES (8), (9) ON CONFLICT DO NOTHING RETURNING id',
	'BEGIN; INSERT INTO %1$s (k) VALUES (10); SAVEPOINT a; INSERT INTO %1$s (k) VALUES (11); ROLLBACK TO a; INSERT INTO %1$s (k) VALUES (12); COMMIT',
	"COPY %s (k) FROM PROGRAM 'seq 20'",
	'PREPARE p AS INSERT INTO %s (k) VALUES ($1); EXECUTE p(1); EXECUTE p(2); EXECUTE p(3); EXECUTE p(4); EXECUTE p(5); EXECUTE p(6); EXECUTE p(7)');
for my $table (qw(by_id by_k everywhere columns))
{
	for my $node (@nodes)
	{
		for my $insert (@inserts)
		{
			my ($code, $text) = error_of($node, sprintf $insert, $table);
			is($code, '', "$table: " . $node->name . ": $insert") or diag $text;
		}
	}
	is(on_coordinator("SELECT count(*) > 600 AND count(*) = count(DISTINCT id) AND count(*) = count(id) FROM $table"), 't', "$table: each row has an ID of its own");
	is(on_coordinator("SELECT count(DISTINCT (snowflake_decode(id)).worker_id) FROM $table"), '3', "$table: of three nodes");
}

# A range of time is a range of keys on the shards, too.
on_coordinator("CREATE TABLE events (id bigint DEFAULT snowflake_nextval(), k int) PARTITION BY RANGE (id);
	CREATE TABLE events_before PARTITION OF events FOR VALUES FROM (0) TO (snowflake_min_id('2026-01-01Z'));
	CREATE TABLE events_now PARTITION OF events FOR VALUES FROM (snowflake_min_id('2026-01-01Z')) TO (9223372036854775807);
	SELECT create_distributed_table('events', 'k', shard_count => 4);
	INSERT INTO events (k) SELECT i FROM generate_series(1, 100) AS i;
	INSERT INTO events (id, k) SELECT snowflake_encode('2025-06-01Z', 9, i), i FROM generate_series(1, 100) AS i");
for my $node (@nodes)
{
	my $query = "SELECT count(*) FROM events WHERE id >= snowflake_min_id(now() - interval '1 day')";
	is($node->safe_psql('postgres', $query), '100', $node->name . ': rows of the last day');
	my $plan = $node->safe_psql('postgres', "SET citus.explain_all_tasks = on; EXPLAIN (COSTS OFF) $query");
	like($plan, qr/events_now/, $node->name . ': the partition of now is read');
	unlike($plan, qr/events_before/, $node->name . ': the one before is not');
}
my $pruned = on_coordinator("SELECT id FROM by_id LIMIT 1");
like(on_coordinator("EXPLAIN (COSTS OFF) SELECT * FROM by_id WHERE id = $pruned"), qr/Task Count: 1\b/, 'one ID is looked for on one shard');

# Shards are moved and split while all nodes insert.
my @clients;
for my $node (@nodes)
{
	my $script = PostgreSQL::Test::Utils::tempdir() . '/' . $node->name . '.sql';
	append_to_file($script, "INSERT INTO by_id (k) VALUES (7);\nINSERT INTO by_k (k) VALUES ((random() * 100)::int);\n");
	my $out = '';
	my $timer = IPC::Run::timeout(300);
	push @clients, [ IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 25, '--max-tries', 20, '-f', $script, $node->connstr('postgres') ],
		'>', \my $ignored, '2>', \$out, $timer), \$out ];
}
# pgbench repeats no other error than a serialization failure; a moved shard is none.
for my $table (qw(by_id by_k))
{
	my ($shard, $from) = split /\|/, on_coordinator("SELECT shardid, nodeport FROM citus_shards WHERE table_name = '$table'::regclass ORDER BY shardid LIMIT 1");
	my ($source, $target) = $workers[0]->port == $from ? @workers : reverse @workers;
	my ($code, $text) = error_of($coordinator, sprintf "SELECT citus_move_shard_placement(%d, '%s', %d, '%s', %d, 'force_logical')",
		$shard, $source->host, $source->port, $target->host, $target->port);
	is($code, '', "$table: a shard is moved") or diag $text;
	($code, $text) = error_of($coordinator, "SELECT citus_split_shard_by_split_points($shard,
		ARRAY[((shardminvalue::bigint + shardmaxvalue::bigint) / 2)::text], ARRAY[n.nodeid, n.nodeid], 'force_logical')
		FROM pg_dist_shard, (SELECT min(nodeid) AS nodeid FROM pg_dist_node WHERE shouldhaveshards) AS n WHERE shardid = $shard");
	is($code, '', "$table: a shard is split") or diag $text;
}
for my $client (@clients)
{
	IPC::Run::finish($client->[0]);
	unlike(${ $client->[1] }, qr/ERROR/, 'a client inserts meanwhile, without an error');
}
for my $table (qw(by_id by_k))
{
	is(on_coordinator("SELECT count(*) > 1000 AND count(*) = count(DISTINCT id) FROM $table"), 't', "$table: no ID twice, and many IDs");
	is(on_coordinator("SELECT count(*) FROM citus_shards WHERE table_name = '$table'::regclass"), '5', "$table: in five shards");
}

done_testing();
