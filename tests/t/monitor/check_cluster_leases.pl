# Tests snowflake_check_cluster() of servers that lease their worker IDs: that standbys,
# promoted standbys and copies of such servers are all right, and what is wrong with
# servers whose registry gives them nothing. And what it finds of generators that a server
# lacks, or that have lost their labels, as on nodes of Citus.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

my $lease = q{lease => '2 s', hold => '1 s', max_ahead => '1 s'};
my $registry = new_registry('registry', "'main', '[100,110)', $lease");
my $conninfo = conninfo($registry);
my @leases = ("snowflake_id.registry = '$conninfo'", "snowflake_id.pool = 'main'");
my $template = template_of('template');
my $main = member($template, 'main', @leases);
$main->start;
first_id($main, 'the primary');

sub sql { my ($node, $sql) = @_; return $node->safe_psql('postgres', $sql); }
sub name_of { my ($node) = @_; return sprintf 'host=%s port=%s dbname=postgres', $node->host, $node->port; }

# Returns what main finds on these servers, without their addresses.
sub findings
{
	my ($columns, @nodes) = @_;
	my $servers = join ', ', map { "'" . conninfo($_) . "'" } @nodes;
	my $found = sql($main, "SELECT $columns FROM snowflake_check_cluster(ARRAY[$servers]::text[])");
	for my $node (@nodes) { my ($long, $short) = (name_of($node), $node->name); $found =~ s/\Q$long\E/$short/g; }
	return $found;
}

sub found
{
	my ($expected, $what, @nodes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(findings('severity, finding, server, other_server', @nodes), $expected, $what);
}

# A standby asks the registry when it is promoted.
$main->backup('copy');
sub copy_of_main
{
	my ($name, $settings, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($main, 'copy', %options);
	$node->append_conf('postgresql.conf', $_) for @$settings;
	$node->start;
	return $node;
}
my $standby = copy_of_main('standby', [], has_streaming => 1);
$main->wait_for_catchup($standby);
found('', 'a standby that leases', $standby);
my $described = sprintf 'host=%s port=%s dbname=postgres', $registry->host, $registry->port;
is(worker($standby, 'worker_id IS NULL, source, registry, pool'), "t|none|$described|main", 'the standby shows its registry and its pool');
sql($main, 'CREATE ROLE nobody_special');
$main->wait_for_catchup($standby);
is(sql($standby, 'SET SESSION AUTHORIZATION nobody_special; SELECT registry IS NULL, pool FROM snowflake_worker'), 't|main',
	'the address of the registry is for those who read all statistics');
$standby->append_conf('postgresql.conf', 'snowflake_id.worker_id = ' . worker($main, 'worker_id'));
$standby->restart;
found('warning|standby shares a worker ID|this server|standby', 'a standby that would claim the worker ID of its primary', $standby);
like(findings('hint', $standby), qr/^Remove snowflake_id\.worker_id from the standby/, 'no other number is recommended');
$standby->append_conf('postgresql.conf', "snowflake_id.worker_id = ''\nsnowflake_id.registry = ''");
$standby->restart;
found('warning|no worker ID|standby|', 'a standby without a registry and a number', $standby);
is(worker($standby, 'registry IS NULL, pool IS NULL'), 't|t', 'it shows no registry');
$standby->append_conf('postgresql.conf', $leases[0]);
$standby->restart;

# What is promoted or copied gets a worker ID of its own.
$standby->promote;
first_id($standby, 'the standby is promoted');
found('', 'a standby that was promoted beside its primary', $standby);
my $copy = copy_of_main('copy', []);
first_id($copy, 'a copy');
found('', 'copies that lease', $standby, $copy);
$copy->append_conf('postgresql.conf', "snowflake_id.worker_id = 3\nsnowflake_id.registry = ''");
$copy->restart;
found('warning|copy of a server|this server|copy', 'a copy with a fixed worker ID', $copy);
$copy->append_conf('postgresql.conf', 'snowflake_id.worker_id = ' . worker($main, 'worker_id'));
$copy->restart;
found("error|copy of a server|this server|copy\nerror|equal worker IDs|this server|copy", 'a copy with a number of the pool', $copy);
like(findings('hint', $copy), qr/Give the one with a fixed number another snowflake_id\.worker_id, outside of the pool/, 'it is to leave the pool');
$copy->stop;
$standby->stop;

# Another registry has the same worker IDs.
my $second = new_registry('second', "'main', '[100,110)', $lease");
my $other = member($template, 'other', "snowflake_id.registry = '" . conninfo($second) . "'", "snowflake_id.pool = 'main'");
$other->start;
my $own = worker($main, 'worker_id');
first_id($other, 'a server of another registry');
is(worker($other, 'worker_id'), $own, 'equal worker IDs of two registries');
found("error|copy of a server|this server|other\nerror|equal worker IDs|this server|other", 'overlapping pools', $other);
like(findings('hint', $other), qr/Their pools .* overlap/, 'the pools are to be repaired');

# A registry that gives nothing.
set_by_reload($other, 'snowflake_id.pool' => 'missing');
wait_until('no worker ID', sub { worker($other, q{worker_id IS NULL AND last_error ~ 'does not exist'}) eq 't' });
found('error|no worker ID|other|', 'a server that leases and gets nothing', $other);
like(findings('detail', $other), qr/^The server issues no IDs: its registry has given it no worker ID of pool "missing"\. .*: pool "missing" does not exist/, 'why');
like(findings('hint', $other), qr/by itself\. Do not set a number instead\.$/, 'no number is recommended');
set_by_reload($other, 'snowflake_id.registry' => $conninfo, 'snowflake_id.pool' => 'main');
first_id($other, 'the same registry');
found('', 'servers of one registry', $other);

$other->append_conf('postgresql.conf', "snowflake_id.worker_id = $own");
$other->restart;
wait_until('a refusal', sub { worker($other, 'last_error IS NOT NULL') eq 't' });
found('error|no worker ID|other|', 'a server that claims the worker ID of another one', $other);
$other->append_conf('postgresql.conf', q{snowflake_id.worker_id = ''});
$other->restart;
first_id($other, 'without a number of its own');

# A sequence that was made for IDs and has no label.
my $plain = 'INCREMENT 9223372036854775807 START 9223372036854775807';
my $table = q{CREATE TABLE late (id bigint PRIMARY KEY DEFAULT snowflake_nextval('late_ids'))};
create_generator($main, 'late_ids', 'preset=discord');
sql($main, $table);
found('', 'a server need not have the generators of another', $other);
sql($other, "CREATE SEQUENCE late_ids $plain; CREATE SEQUENCE left_ids $plain; CREATE SEQUENCE usual_ids");
is((error_of($other, "SELECT snowflake_nextval('late_ids')"))[0], '42809', 'such a sequence issues no IDs');
found("error|generator has no label|other|this server\nwarning|generator has no label|other|", 'sequences without a label', $other);
like(findings('detail, hint', $other), qr/^Sequence public\.left_ids has no label on other\. Without a label it issues no IDs\.\|Give it its label, .*, or drop it\.$/m,
	'one that nothing uses');
sql($other, "DROP SEQUENCE left_ids; $table");
is(findings('detail', $other), 'Sequence public.late_ids has no label on other, and is a generator on this server. '
	. 'The default of table public.late uses it. Without a label it issues no IDs.', 'which one');
like(findings('hint', $other), qr/^Give it the label that it has on this server/, 'what to do');
sql($other, "SECURITY LABEL FOR snowflake_id ON SEQUENCE late_ids IS 'preset=discord'");
found('', 'with its label', $other);

# Nodes of Citus. Only its tables are needed.
my $target = sprintf '%s:%s', $other->host, $other->port;
sql($main, sprintf "SET allow_system_table_mods = on;
	CREATE TABLE pg_catalog.pg_dist_node (nodeid int, nodename text, nodeport int);
	CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass);
	INSERT INTO pg_dist_node VALUES (1, '%s', %d), (2, '%s', %d)", map { ($_->host, $_->port) } $main, $other);
sub on_nodes { my ($columns) = @_; return sql($main, "SELECT $columns FROM snowflake_check_cluster()") =~ s/\Q$target\E/other/gr; }
my $columns = 'severity, finding, server, other_server';
is(on_nodes($columns), '', 'nodes with the same generators');
create_generator($main, 'new_ids', 'preset=discord');
is(on_nodes($columns), 'warning|generator is missing|other|this server', 'a generator that one node lacks');
is(on_nodes('detail, hint'), 'Generator public.new_ids is on this server, and not on other, where no table uses it so far.|'
	. q{Run on the coordinator: SELECT * FROM snowflake_distribute_generator('public.new_ids')}, 'what to do');
sql($main, q{CREATE TABLE here (id bigint DEFAULT snowflake_nextval('new_ids'))});
is(on_nodes($columns), '', 'only a local table uses it');
sql($main, q{CREATE TABLE "All" (id bigint DEFAULT snowflake_nextval('new_ids')); INSERT INTO pg_dist_partition VALUES ('"All"')});
is(on_nodes($columns), 'error|generator is missing|other|this server', 'a distributed table uses it');
is(on_nodes('detail'), 'Generator public.new_ids is on this server, and not on other, where table public."All" needs it to insert rows.', 'which table');
found('', 'servers that are no nodes of Citus need not have it', $other);
sql($other, "CREATE SEQUENCE new_ids $plain");
is(on_nodes($columns), 'error|generator has no label|other|this server', 'without its label');
is(on_nodes('hint'), q{Run on the coordinator: SELECT * FROM snowflake_distribute_generator('public.new_ids')}, 'the same helps');
sql($other, "SECURITY LABEL FOR snowflake_id ON SEQUENCE new_ids IS 'preset=discord'");
is(on_nodes($columns), '', 'all nodes have it');
my $fixed = q(layout='time:41 shard:10=3 sequence:12' epoch=2025-01-01Z);
create_generator($main, 'shard_ids', $fixed);
is(on_nodes($columns), '', 'a layout without a worker ID is for one node');
sql($main, q{ALTER TABLE "All" ALTER id SET DEFAULT snowflake_nextval('shard_ids')});
is(on_nodes($columns), 'error|generator is missing|other|this server', 'unless a distributed table uses it');
like(on_nodes('hint'), qr/^Make it there with a label of its own/, 'which takes another label');
create_generator($other, 'shard_ids', $fixed =~ s/=3/=4/r);
create_generator($other, 'theirs', 'preset=discord');
is(on_nodes($columns), 'warning|generator is missing|this server|other', 'a generator of another node');

done_testing();
