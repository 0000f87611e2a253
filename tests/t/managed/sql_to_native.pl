# Tests the way from managed/snowflake_sql.sql to the native extension and back, with rows that are
# inserted before, during and after.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Managed;
use Snowflake;

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE dbo LOGIN; CREATE ROLE shop_app; GRANT shop_app TO dbo; CREATE DATABASE shop OWNER dbo');
install_file($node);
$node->safe_psql('shop', 'GRANT CREATE ON SCHEMA public TO dbo');
sql($node, q{CREATE TABLE orders (id bigint PRIMARY KEY, client int, step int); SELECT snowflake_create_generator('order_ids', 5); SELECT snowflake_set_default('orders', generator => 'order_ids');
	CREATE SCHEMA snowflake; CREATE EXTENSION snowflake_id SCHEMA snowflake; GRANT USAGE ON SCHEMA snowflake TO PUBLIC;
	GRANT SELECT, INSERT ON orders TO shop_app; GRANT USAGE ON SEQUENCE order_ids TO shop_app});

# A query of an application, the same before and after: how many of the rows with a worker ID it
# finds, and whether it finds them right.
sub query
{
	my ($worker, $path) = @_;
	return sql($node, qq{SELECT count(*) FILTER (WHERE worker_id = $worker), bool_and(id BETWEEN snowflake_min_id(created_at, 'order_ids') AND snowflake_max_id(created_at, 'order_ids')
			AND created_at = snowflake_timestamp(id, 'order_ids') AND created_at = snowflake_timestamp(id) AND worker_id = id & 1023)
		FROM orders, snowflake_decode(id, 'order_ids')}, path => "public, $path");
}
my $values = "\\set step :step + 1\nINSERT INTO orders (client, step) VALUES (:client_id, :step);\n";
# Runs clients while a function runs.
sub during
{
	my ($what, $function) = @_;
	my $before = sql($node, 'SELECT count(*) FROM orders');
	my $load = load($node, [ '-c', 4, '-j', 2, '-T', 2, '-R', 500, '-D', 'step=0' ], $values, 1);
	my $stage = 0;
	my $from = time;
	ok(poll($load, sub { Time::HiRes::sleep(0.05); if (!$stage && time - $from >= 1) { $stage = 1; $function->(); } }), "$what: the load ends well") or diag(${ $load->{error} });
	is($stage, 1, "$what: it was done during the load");
	cmp_ok(sql($node, 'SELECT count(*) FROM orders') - $before, '>', 50, "$what: rows were inserted");
	is(sql($node, q{SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY client ORDER BY step) AS is_less FROM orders WHERE client IS NOT NULL) AS s WHERE is_less}), 0, "$what: the IDs of each client ascend");
	sql($node, 'UPDATE orders SET client = NULL');
	return;
}

sql($node, 'INSERT INTO orders SELECT FROM generate_series(1, 100)') for 1 .. 3;
is(query(5, 'snowflake_sql'), '300|t', 'a query, before');

# The statements of the page.
during('to the native extension', sub { sql($node, q{
	BEGIN;
	LOCK TABLE orders;
	ALTER SEQUENCE order_ids RENAME TO order_ids_sql;
	SELECT snowflake_create_generator('order_ids', layout => 'time:41 sequence:12 worker:10', epoch => '2025-01-01Z');
	SELECT snowflake_advance('order_ids', max(id)) FROM orders;
	GRANT USAGE ON SEQUENCE order_ids TO shop_app;
	SELECT snowflake_set_default('orders', generator => 'order_ids');
	COMMIT}, path => 'public, snowflake'); });
my $as_application = q{SET ROLE shop_app; INSERT INTO orders (step) VALUES (1); SELECT count(*) > 0 FROM snowflake_decode(1, 'order_ids'); SELECT snowflake_min_id(now()) > 0};
is(sql($node, $as_application, path => 'public, snowflake'), "t\nt", 'an application role inserts and decodes as before');
is(sql($node, q{SELECT min(id) FILTER (WHERE id & 1023 = 7) > max(id) FILTER (WHERE id & 1023 = 5), count(*) - count(DISTINCT id) FROM orders}), 't|0', 'IDs of the native generator are above all before');
my ($count, $fits) = split /\|/, query(7, 'snowflake');
cmp_ok($count, '>', 10, 'rows have got IDs of the native generator');
is($fits, 't', 'the query, after, with another path and no other change');
cmp_ok((split /\|/, query(5, 'snowflake'))[0], '>=', 300, 'which finds the rows from before, too');

during('back', sub { sql($node, q{
	BEGIN;
	LOCK TABLE orders;
	ALTER SEQUENCE order_ids RENAME TO order_ids_native;
	SELECT snowflake_create_generator('order_ids', 6);
	SELECT snowflake_advance('order_ids', max(id)) FROM orders;
	SELECT snowflake_set_default('orders', generator => 'order_ids');
	COMMIT}); });
cmp_ok((split /\|/, query(6, 'snowflake_sql'))[0], '>', 10, 'rows have got IDs of the generator in SQL');
is((split /\|/, query(7, 'snowflake_sql'))[1], 't', 'the query, with the first path');
sql($node, q{CREATE TABLE late (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY); GRANT INSERT ON late TO shop_app});
like(sql($node, q{SELECT snowflake_set_default('late', generator => 'order_ids')}), qr/; roles that insert rows need: GRANT USAGE ON SEQUENCE public\.order_ids TO shop_app$/, 'the default in SQL names the roles that get no IDs');
sql($node, q{REVOKE USAGE ON SEQUENCE order_ids_native FROM shop_app});
like(sql($node, q{SELECT snowflake_set_default('late', generator => 'order_ids_native')}, path => 'public, snowflake'), qr/roles that insert rows need: GRANT USAGE ON SEQUENCE public\.order_ids_native TO shop_app/, 'and so does that of the extension');
is(sql($node, q{SELECT min(id) FILTER (WHERE id & 1023 = 6) > max(id) FILTER (WHERE id & 1023 <> 6), count(*) - count(DISTINCT id) FROM orders}), 't|0', 'IDs are above all before, and no ID is there twice');
$node->stop;
done_testing();
