# Tests tables of Citus that are distributed by a key of type snowflake.
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
sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sql(q{CREATE TABLE orders (id snowflake PRIMARY KEY, n int); SELECT create_distributed_table('orders', 'id', shard_count => 6);
	CREATE TABLE items (order_id snowflake REFERENCES orders, n int); SELECT create_distributed_table('items', 'order_id', colocate_with => 'orders');
	CREATE TABLE big (id bigint PRIMARY KEY, n int); SELECT create_distributed_table('big', 'id', shard_count => 6, colocate_with => 'none')});
sql('INSERT INTO orders SELECT i, i FROM generate_series(1, 1000) AS i; INSERT INTO items SELECT i, i FROM generate_series(1, 1000) AS i; INSERT INTO big SELECT i, i FROM generate_series(1, 1000) AS i');
for my $of ('orders', 'big')
{
	is(sql("SELECT count(DISTINCT get_shard_id_for_distribution_column('$of', i)) FROM generate_series(1, 1000) AS i"), '6', "$of: rows in all shards");
	for my $key ('5', '5::bigint', "'5'", '5::smallint')
	{
		like(sql("EXPLAIN (COSTS OFF) SELECT n FROM $of WHERE id = $key"), qr/Task Count: 1$/m, "$of: id = $key goes to one shard");
		is(sql("SELECT n FROM $of WHERE id = $key"), '5', 'and finds its row');
	}
	is(sql("PREPARE q AS SELECT n FROM $of WHERE id = \$1; " . join '; ', map { "EXECUTE q($_)" } 1 .. 8), join("\n", 1 .. 8), "$of: a parameter");
}
is(sql("SELECT array_agg(get_shard_id_for_distribution_column('orders', i) - get_shard_id_for_distribution_column('big', i) ORDER BY i) = array_agg((SELECT min(shardid) FROM pg_dist_shard WHERE logicalrelid = 'orders'::regclass) - (SELECT min(shardid) FROM pg_dist_shard WHERE logicalrelid = 'big'::regclass) ORDER BY i) FROM generate_series(1, 200) AS i"),
	't', 'a key is in the shard of the same place as with bigint');
is(sql('SELECT count(*), sum(orders.n) FROM orders JOIN items ON id = order_id'), '1000|500500', 'a join of colocated tables');
is(sql("SELECT pg_typeof(max(id)), to_json(max(id)), to_json(min(id)) FROM orders"), 'snowflake|"1000"|"1"', 'max() and min()');
is((error_of($coordinator, 'INSERT INTO items VALUES (5000, 1)'))[0], '23503', 'a foreign key');
is($workers[0]->safe_psql('postgres', 'SELECT to_json(id) FROM orders WHERE id = 7'), '"7"', 'from a worker');

done_testing();
