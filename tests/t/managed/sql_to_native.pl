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
$node->safe_psql('postgres', 'CREATE ROLE dbo LOGIN; CREATE DATABASE shop OWNER dbo');
install_file($node);
$node->safe_psql('shop', 'GRANT CREATE ON SCHEMA public TO dbo');
sql($node, q{CREATE TABLE orders (id bigint PRIMARY KEY, client int, step int); SELECT snowflake_create_generator('order_ids', 5); SELECT snowflake_set_default('orders', generator => 'order_ids'); CREATE EXTENSION snowflake_id});

# A query of an application, which runs before and after. Its path has the native functions first.
my $query = q{SET search_path = public, snowflake_sql; SELECT count(*), bool_and(id BETWEEN snowflake_min_id(created_at, '%1$s') AND snowflake_max_id(created_at, '%1$s') AND created_at = snowflake_timestamp(id, '%1$s') AND worker_id = %2$s)
	FROM orders, snowflake_decode(id, '%1$s') WHERE id & 1023 = %2$s};
my $values = "\\set step :step + 1\nINSERT INTO orders (client, step) VALUES (:client_id, :step);\n";
# Runs clients while a function runs.
sub during
{
	my ($what, $function) = @_;
	sql($node, 'DELETE FROM orders WHERE false');
	my $before = sql($node, 'SELECT count(*) FROM orders');
	my $load = load($node, [ '-c', 4, '-j', 2, '-T', 4, '-D', 'step=0' ], $values, 1);
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
my ($count, $fits) = split /\|/, sql($node, sprintf $query, 'order_ids', 5);
is("$count $fits", '300 t', 'a query, before');

# The statements of the page.
my @there = ([ 'all at once', q{
	SELECT public.snowflake_create_generator('native_ids', layout => 'time:41 sequence:12 worker:10', epoch => '2025-01-01Z');
	BEGIN;
	LOCK TABLE orders;
	SELECT public.snowflake_advance('native_ids', max(id)) FROM orders;
	SELECT public.snowflake_set_default('orders', generator => 'native_ids');
	COMMIT} ]);
during('to the native extension', sub { sql($node, $there[0][1]); });
is(sql($node, q{SELECT count(*) > 0, min(id) FILTER (WHERE id & 1023 = 7) > max(id) FILTER (WHERE id & 1023 = 5) FROM orders}), 't|t', 'IDs of the native generator are above all before');
cmp_ok(sql($node, 'SELECT count(*) FROM orders WHERE id & 1023 = 7'), '>', 10, 'and they are there');
like(sql($node, sprintf $query, 'native_ids', 7), qr/^\d{2,}\|t$/, 'the query, after, with the native generator');
like(sql($node, sprintf $query =~ s/public, snowflake_sql/snowflake_sql/r, 'order_ids', 5), qr/^\d{3,}\|t$/, 'and of the old rows, as before');

during('back', sub { sql($node, q{
	SELECT snowflake_sql.snowflake_create_generator('back_ids', 6);
	BEGIN;
	LOCK TABLE orders;
	SELECT snowflake_sql.snowflake_advance('back_ids', max(id)) FROM orders;
	SELECT snowflake_sql.snowflake_set_default('orders', generator => 'back_ids');
	COMMIT}); });
is(sql($node, q{SELECT min(id) FILTER (WHERE id & 1023 = 6) > max(id) FILTER (WHERE id & 1023 <> 6), count(*) - count(DISTINCT id) FROM orders}), 't|0', 'IDs are above all before, and no ID is there twice');
$node->stop;
done_testing();
