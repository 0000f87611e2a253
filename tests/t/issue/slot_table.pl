# Tests a large slot table, as a server with many generators has in the end: each generator
# finds its own slot.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time);

my $generators = 1000;
my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "snowflake_id.debug_slots = 65536");
$node->start;
is($node->safe_psql('postgres', 'SHOW snowflake_id.debug_slots'), '65536', 'the server starts');

# Generators have two labels in turn, whose IDs differ in every field.
my @label = ('preset=discord', 'preset=shardingsphere on_rollback=continue');
$node->safe_psql('postgres', qq{
	CREATE EXTENSION snowflake_id;
	SELECT count(snowflake_create_generator('g' || n, ('{$label[0],$label[1]}'::text[])[n % 2 + 1])) FROM generate_series(1, $generators) AS n;
	CREATE TABLE seen (n bigserial, name text, id bigint)});

# Issues IDs in statements that are transactions of their own, and takes the time.
sub timed
{
	my ($what, $sql) = @_;
	my $from = time;
	my ($code, $text) = error_of($node, $sql);
	note sprintf '%s: %.3f s', $what, time - $from;
	return is($code, '', $what) || diag $text;
}
timed('the first use of each', join "\n", map { "INSERT INTO seen (name, id) VALUES ('g$_', snowflake_nextval('g$_'));" } 1 .. $generators);
timed('another use of each, in one transaction',
	qq{INSERT INTO seen (name, id) SELECT 'g' || n, snowflake_nextval(('g' || n)::regclass) FROM generate_series(1, $generators) AS n;});
timed('all are listed', 'SELECT count(*) FROM snowflake_generators;');
is($node->safe_psql('postgres', 'SELECT count(*), count(last_id_at), count(problem) FROM snowflake_generators'),
	join('|', $generators + 1, $generators, 0), 'with how far they are, and the default one');
is($node->safe_psql('postgres', q{SELECT count(*), sum(issued) FROM pg_stat_snowflake WHERE generator <> 'snowflake_default'::regclass}),
	join('|', $generators, 2 * $generators), 'and counted');

# Two generators issue in turn, in one transaction.
timed('two in one transaction', q{BEGIN;
	INSERT INTO seen (name, id) SELECT name, snowflake_nextval(name::regclass)
	FROM generate_series(1, 500) AS n, unnest('{g500,g501}'::text[]) AS name;
	COMMIT;});
is($node->safe_psql('postgres', q{
	SELECT name, count(*), count(DISTINCT id), bool_and(worker_id = 3), bool_and(created_at BETWEEN now() - interval '10 min' AND now() + interval '10 min')
	FROM seen, snowflake_decode(id, name::regclass) WHERE name IN ('g500', 'g501') GROUP BY name ORDER BY name}),
	"g500|502|502|t|t\ng501|502|502|t|t", 'each gets IDs of its own layout');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT id <= lag(id) OVER (PARTITION BY name ORDER BY n) AS back FROM seen) AS s WHERE back}), '0',
	'the IDs of each increase');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM seen, snowflake_decode(id, name::regclass)
	WHERE worker_id <> 3 OR created_at NOT BETWEEN now() - interval '10 min' AND now() + interval '10 min'}), '0',
	'all of them are of their own generators');

$node->stop;
done_testing();
