# Tests what docs/presets.md tells those who come from other systems: for each row of its table,
# the three statements, on a table with IDs of that system. These come from the extension itself
# where it is installed (PEERS, see tests/run), and from tests/vectors/ids.json.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Pages;
use Snowflake;

my $node = new_node('main', 7);
$node->start;
my $installed = $node->safe_psql('postgres', q{SELECT string_agg(name, ' ') FROM pg_available_extensions WHERE name IN ('snowflake', 'pg_snowid')});
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake_id, pg_snowid'") if $installed =~ /pg_snowid/;
$node->append_conf('postgresql.conf', "snowflake.node = 3");
$node->restart;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
sub sql { return $node->safe_psql('postgres', $_[0]); }

my ($page) = slurp_file("$FindBin::RealBin/../../../docs/presets.md") =~ /\n## You come from\n(.*?)\n## /s;
my ($statements) = map { $_->{text} } grep { $_->{language} eq 'sql' } blocks($page);
is(scalar(() = $statements =~ /;\n/g), 3, 'the page has three statements');
my ($of_seata) = $page =~ /`(SELECT snowflake_advance\('orders_ids', max\(d\.created_at\)\).*?)`/;
my %from = ('pgEdge' => "preset => 'pgedge'", $page =~ /^\| ([\w, ]+) \| `((?:preset|epoch) => '\S+')` \|$/mg);

# IDs whose time is past: those of the distant future are the ends of layouts.
my %ids;
for my $vector (@{ decode_json(slurp_file("$FindBin::RealBin/../../vectors/ids.json")) })
{
	push @{ $ids{ $vector->{system} } }, $vector->{id} if $vector->{timestamp_ms} < 1_780_000_000_000 && $vector->{id} > 0;
}

# Continues the table `orders`, and checks what comes then.
sub continue_above
{
	my ($from, $what) = @_;
	my $mine = $statements =~ s/preset => 'pgedge'/$what/r;
	$mine =~ s/SELECT snowflake_advance[^;]*/$of_seata/ if $what =~ /seata/;
	my $old = sql('SELECT string_agg(id::text, \',\' ORDER BY id) FROM orders');
	sql("$mine; INSERT INTO orders DEFAULT VALUES; INSERT INTO orders DEFAULT VALUES");
	is(sql("SELECT count(*) FROM orders WHERE id NOT IN ($old)"), '2', "$from: the table continues");
	my $time = "snowflake_timestamp(id, 'orders_ids')";
	is(sql("SELECT min($time) FILTER (WHERE id NOT IN ($old)) > max($time) FILTER (WHERE id IN ($old)) FROM orders"), 't', "$from: later than all old keys");
	is(sql("SELECT min(id) FILTER (WHERE id NOT IN ($old)) > max(id) FILTER (WHERE id IN ($old)) FROM orders"), 't', "$from: and above them") if $what !~ /seata/;
	is(sql("SELECT abs(extract(epoch FROM max($time) - now())) < 700 FROM orders"), 't', "$from: and of the present");
	return;
}

for my $from (sort keys %from)
{
	my $what = $from{$from};
	my $preset = $what =~ /^preset => '(\w+)'/ ? $1 : 'cockroachdb';
	my $its = $ids{$preset};
	ok($its && @$its, "$from: there are IDs") or next;
	sql('CREATE TABLE orders (id bigint PRIMARY KEY); INSERT INTO orders VALUES ' . join ', ', map { "($_)" } @$its);
	# A node whose clock is ahead, or that ran ahead of its clock.
	sql("INSERT INTO orders VALUES (snowflake_encode_as(now() + interval '10 minutes', 5, 0, 'preset=$preset'))");
	continue_above($from, $what);
	sql('DROP TABLE orders; DROP SEQUENCE orders_ids');
}

# CockroachDB makes its keys of units of 10 us since 2015, and the node. Its documentation of SERIAL has the
# first three, of one INSERT.
is(sql(q{SELECT to_char(d.created_at, 'YYYY-MM-DD HH24:MI:SS.US'), d.worker_id, d.sequence, d.fields, snowflake_encode_as(d.created_at, d.worker_id, 0, l) = k, snowflake_encode_as(d.created_at, d.fields, l) = k
	FROM unnest('{148656994422095873, 148656994422161409, 148656994422194177, 117964800000032767, 9223372036854775807}'::bigint[]) AS k,
		(VALUES ('preset=cockroachdb')) AS v (l), snowflake_decode_as(k, l) AS d}), <<'END' =~ s/\n\z//r, 'keys of CockroachDB');
2016-06-09 01:48:34.411040|1||{"node": 1, "time": 4536651441104}|t|t
2016-06-09 01:48:34.411060|1||{"node": 1, "time": 4536651441106}|t|t
2016-06-09 01:48:34.411070|1||{"node": 1, "time": 4536651441107}|t|t
2016-02-21 16:00:00.000000|32767||{"node": 32767, "time": 3600000000000}|t|t
2104-03-13 02:56:07.106550|32767||{"node": 32767, "time": 281474976710655}|t|t
END
is(sql(q{SELECT bool_and(snowflake_min_id_as(at, 'preset=default epoch=1420070400000') > snowflake_max_id_as(at, 'preset=cockroachdb')),
		bool_and(snowflake_max_id_as(at, 'preset=cockroachdb') = ((extract(epoch FROM at - '2015-01-01Z') * 100000)::bigint << 15 | 32767)),
		bool_and(snowflake_min_id_as(at + interval '10 us', 'preset=cockroachdb') = snowflake_max_id_as(at, 'preset=cockroachdb') + 1)
	FROM generate_series(timestamptz '2015-01-02Z', '2080-01-01Z', interval '1 month 17 ms 30 us') AS at}), 't|t|t', 'IDs since 2015 are above those of CockroachDB, whose ranges are of 10 us');
is(($node->psql('postgres', "\\set VERBOSITY verbose\nSELECT snowflake_create_generator('x', preset => 'cockroachdb')"))[2] =~ s/psql:\S+ |LOCATION.*//sgr, <<'END' =~ s/\n\z//r, 'a generator cannot have them');
ERROR:  22023: invalid argument preset: ticks are shorter than 1 ms
DETAIL:  Its value is "cockroachdb".
HINT:  Such a layout only decodes and encodes IDs: a generator has ticks of 1 ms to 10 s.
END

# The extensions themselves: their keys, their default, their conversion.
my %itself = (
	snowflake => [ 'pgEdge', 'CREATE EXTENSION snowflake; CREATE SEQUENCE s; CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake.nextval(\'s\'))', 'node' ],
	pg_snowid => [ 'pg_snowid', 'CREATE EXTENSION pg_snowid; SELECT snowid_set_node(3::smallint); CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowid_generate(1::oid))', 'node' ]);
for my $extension (split / /, $installed)
{
	my ($from, $setup, $number) = @{ $itself{$extension} };
	# Many in one statement: such keys are ahead of the clock.
	sql("$setup; INSERT INTO orders SELECT FROM generate_series(1, 100000)");
	continue_above("$from itself", $from{$from});
	is(sql("SELECT count(*) FROM orders, snowflake_decode(id, 'orders_ids') AS d WHERE d.fields->>'$number' = '3' AND abs(extract(epoch FROM d.created_at - now())) < 60"),
		'100000', "$from itself: its keys are read");
	sql("DROP TABLE orders; DROP SEQUENCE orders_ids");
}
note("with keys of the extensions: " . ($installed || 'none'));
done_testing();
