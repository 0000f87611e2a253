# Tests ALTER EXTENSION snowflake_id UPDATE on a cluster of Citus, to a next version that this
# test makes (see NextVersion.pm): the statement on the coordinator updates all nodes or none,
# also a node that was added before; the catalogs of each node are those of CREATE EXTENSION;
# all nodes insert meanwhile, and no ID repeats.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use NextVersion;
use Snowflake;
use Citus;

my $inventory = slurp_file("$FindBin::RealBin/../t/packaging/extension_update/inventory.sql");
my $version_of = "SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'";
my $label_of = q{SELECT label FROM pg_seclabels WHERE provider = 'snowflake_id' AND objname = 'own_ids'};
my $update = 'ALTER EXTENSION snowflake_id UPDATE';

my ($installation, $version, $newest) = next_version();
my @where = (install_path => $installation);
my $any = new_node('any', 9, @where);
$any->start;
$any->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $expected = $any->safe_psql('postgres', $inventory);
cmp_ok(length $expected, '>', 100_000, 'the catalogs have much to say');
$any->stop;

my ($coordinator, @workers) = citus_cluster(2, $version, @where);
my @nodes = ($coordinator, @workers);
my $what = "from $version";

sub on_coordinator { return $coordinator->safe_psql('postgres', $_[0]); }
# Checks what a statement returns on each node.
sub everywhere
{
	my ($sql, $expected, $label) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_deeply([ on_all($sql, @nodes) ], [ map { $expected } @nodes ], $label);
}

everywhere($version_of, $version, "$what: the version that was asked for is on all nodes");
on_coordinator("SELECT * FROM snowflake_distribute_generator(snowflake_create_generator('own_ids', 'preset=sonyflake'));
	CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), own bigint DEFAULT snowflake_nextval('own_ids'), k int);
	SELECT create_distributed_table('t', 'id', shard_count => 4);
	CREATE TABLE everywhere (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), k int);
	SELECT create_reference_table('everywhere')");
my @inserts = map { ("INSERT INTO $_ (k) VALUES (1), (2)", "INSERT INTO $_ (k) SELECT i FROM generate_series(1, 50) AS i") } qw(t everywhere);
sub insert
{
	my ($label) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $node (@nodes)
	{
		for my $insert (@inserts, 'INSERT INTO t (k) SELECT k FROM everywhere LIMIT 30')
		{
			my ($code, $text) = error_of($node, $insert);
			is($code, '', "$label: " . $node->name . ": $insert") or diag $text;
		}
	}
	return is(on_coordinator('SELECT (SELECT count(*) > 200 AND count(*) = count(DISTINCT id) AND count(*) = count(DISTINCT own) FROM t),
		(SELECT count(*) > 150 AND count(*) = count(DISTINCT id) FROM everywhere)'), 't|t', "$label: no ID twice");
}
insert("$what: before the update");
nothing_is_found($coordinator, "$what: before the update");

# The files of a new node are those of the newest version, and its objects those of the
# cluster.
my $late = citus_node('late', 4, @where);
add_worker($coordinator, $late);
push @nodes, $late;
everywhere($version_of, $version, "$what: a node that is added has the version of the others");

# An update that fails on one node changes none.
$workers[1]->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off;
	CREATE FUNCTION snowflake_marker() RETURNS bigint LANGUAGE sql AS $$SELECT 1::bigint$$');
my ($code, $text) = error_of($coordinator, $update);
is($code, '42723', "$what: a function of that name is in the way on one worker") or diag $text;
like($text, qr/function "snowflake_marker" already exists/, "$what: the error names it");
everywhere($version_of, $version, "$what: no node was updated");
insert("$what: after an update that failed");
$workers[1]->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; DROP FUNCTION snowflake_marker()');

# A worker updates nothing by itself.
($code, $text) = error_of($workers[0], $update);
like($text, qr/operation is not allowed on this node/, "$what: the statement belongs on the coordinator");

# A node that is away keeps the others from being updated, too.
$late->stop;
isnt((error_of($coordinator, $update))[0], '', "$what: a node does not answer");
$late->start;
everywhere($version_of, $version, "$what: no node was updated then either");

# The update, while all nodes insert, and with a session on a worker that goes on.
my $open = session($workers[0]);
$open->query_safe('INSERT INTO t (k) VALUES (9)');
my @clients;
for my $node (@nodes)
{
	my $script = PostgreSQL::Test::Utils::tempdir() . '/' . $node->name . '.sql';
	append_to_file($script, "$_;\n") for grep { /VALUES/ } @inserts;
	my $timer = IPC::Run::timeout(300);
	my $errors = '';
	push @clients, [ IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-j', 2, '-T', 15, '-f', $script, $node->connstr('postgres') ],
		'>', \my $ignored, '2>', \$errors, $timer), \$errors, $node->name ];
}
my $rows = 'SELECT count(*) FROM t';
my $at_first = on_coordinator($rows);
wait_until("$what: clients insert", sub { on_coordinator($rows) > $at_first + 100 });
($code, $text) = error_of($coordinator, $update);
is($code, '', "$what: the update") or diag $text;
my $at_update = on_coordinator($rows);
everywhere($version_of, $newest, "$what: all nodes are updated by one statement");
wait_until("$what: clients go on", sub { on_coordinator($rows) > $at_update + 100 });
for my $client (@clients)
{
	IPC::Run::finish($client->[0]);
	unlike(${ $client->[1] }, qr/ERROR|aborted/, "$what: clients on $client->[2] insert meanwhile, without an error");
}
$open->query_safe('INSERT INTO t (k) VALUES (9)');
$open->quit;

for my $node (@nodes)
{
	my %lines;
	$lines{$_}++ for split /\n/, $expected;
	$lines{$_}-- for split /\n/, $node->safe_psql('postgres', "SET citus.enable_ddl_propagation = off; $inventory");
	is(join("\n", map { ($lines{$_} > 0 ? 'missing: ' : 'too much: ') . $_ } grep { $lines{$_} } sort keys %lines), '',
		"$what: the catalogs of " . $node->name . ' are as if made by CREATE EXTENSION');
}
everywhere($label_of, 'preset=sonyflake', "$what: the label stays");
everywhere('SELECT snowflake_marker()', 'next', "$what: what is new works");
insert("$what: after the update");
nothing_is_found($coordinator, "$what: after the update");
is(on_coordinator("SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator('own_ids', 'preset=sonyflake max_rollback=1h')"),
	'relabelled relabelled relabelled relabelled', "$what: a generator is relabelled on all nodes");

# The statement is repeated, and a node is activated again.
($code, $text) = error_of($coordinator, $update);
is($code, '', "$what: the update again") or diag $text;
($code, $text) = error_of($coordinator, sprintf "SELECT citus_activate_node('%s', %d)", $late->host, $late->port);
is($code, '', "$what: a node is activated again") or diag $text;
everywhere($version_of, $newest, "$what: the versions stay");
$_->stop for @nodes;

done_testing();
