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
my ($cockroach_time, $cockroach_node) = $page =~ /`([^`]* interval '10 us')`.* `(id & \d+)`/;
my %from = ('pgEdge' => "preset => 'pgedge'", $page =~ /^\| ([\w, ]+) \| `((?:preset|epoch) => '\S+')` \|$/mg);

# IDs whose time is past: those of the distant future are the ends of layouts.
my %ids;
for my $vector (@{ decode_json(slurp_file("$FindBin::RealBin/../../vectors/ids.json")) })
{
	push @{ $ids{ $vector->{system} } }, $vector->{id} if $vector->{timestamp_ms} < 1_780_000_000_000 && $vector->{id} > 0;
}
# CockroachDB's documentation of SERIAL has these three keys of one INSERT. Others are made as its source makes
# them, of units of 10 us since 2015, and the node: from its beginning to an hour ago.
my @documented = (148656994422095873, 148656994422161409, 148656994422194177);
$ids{cockroachdb} = [ @documented, map { ($_->[0] << 15) ^ $_->[1] } [ 1, 1 ], [ 3_600_000_000_000, 32767 ], [ (time - 3600 - 1_420_070_400) * 100_000, 2 ] ];

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
	my ($preset) = $what =~ /^preset => '(\w+)'/;
	my $its = $ids{ $preset // 'cockroachdb' };
	ok($its && @$its, "$from: there are IDs") or next;
	sql('CREATE TABLE orders (id bigint PRIMARY KEY); INSERT INTO orders VALUES ' . join ', ', map { "($_)" } @$its);
	# A node whose clock is ahead, or that ran ahead of its clock.
	sql("INSERT INTO orders VALUES (snowflake_encode_as(now() + interval '10 minutes', 5, 0, 'preset=$preset'))") if $preset;
	continue_above($from, $what);
	sql('DROP TABLE orders; DROP SEQUENCE orders_ids');
}

# What the page says of CockroachDB's keys: their parts, and that no later key of that system
# reaches a new ID of the same instant.
is(sql("SELECT $cockroach_time, $cockroach_node FROM (VALUES (117964800000032767)) AS k (id)"), '2016-02-21 16:00:00+00|32767', 'the parts of a key of CockroachDB');
is(sql(sprintf "SELECT $cockroach_time, $cockroach_node FROM unnest('{%s}'::bigint[]) AS k (id) ORDER BY id", join ',', @documented),
	join("\n", map { "2016-06-09 01:48:34.4110$_+00|1" } 4, 6, 7), 'and of those in its documentation: within 30 us, of node 1');
is(sql(q{SELECT bool_and(snowflake_min_id_as(at, 'preset=default epoch=1420070400000') > ((extract(epoch FROM at - '2015-01-01Z') * 100000)::bigint << 15 | 32767))
	FROM generate_series(timestamptz '2015-01-02Z', '2080-01-01Z', interval '1 month') AS at}), 't', 'IDs since 2015 are above those of CockroachDB');

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
