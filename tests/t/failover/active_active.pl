# Tests two servers that replicate the same tables to each other by logical replication
# (origin = none) while clients of both insert: no conflict, and both have all rows; also
# after one of them has crashed, and its clock was set back. Worker IDs are fixed, then
# leased. Marks are not replicated. Two servers with one worker ID have a conflict: what
# is looked at would show one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

{
	my ($version) = `pg_config --version` =~ /(\d+)/;
	plan skip_all => 'subscriptions with origin = none need PostgreSQL 16 or later' if $version < 16;
}

my @tables = qw(events orders);

sub new_side
{
	my ($name, $worker, @more) = @_;
	my $node = new_node($name, $worker, allows_streaming => 'logical');
	$node->append_conf('postgresql.conf', join "\n", 'max_connections = 30', 'log_statement = none', @more);
	start_with_clock($node, 0);
	$node->safe_psql('postgres', <<'END');
CREATE EXTENSION snowflake_id;
SELECT snowflake_create_generator('orders_ids', 'preset=shardingsphere on_rollback=continue');
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), node text);
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'), node text);
ALTER SEQUENCE orders_ids OWNED BY orders.id;
CREATE PUBLICATION both_ways FOR TABLE events, orders;
END
	return $node;
}

# Each subscribes to what has originated on the other one.
sub subscribe
{
	my ($to, $from) = @_;
	my ($name, $there) = ($to->name, conninfo($from));
	$to->safe_psql('postgres', "CREATE SUBSCRIPTION to_$name CONNECTION '$there' PUBLICATION both_ways WITH (origin = none, copy_data = false)");
	return;
}

# Starts clients of a node, which insert until they are stopped.
my %clients;
sub start_clients
{
	my ($node) = @_;
	my ($out, $err) = ('', '');
	my $name = $node->name;
	my $script = PostgreSQL::Test::Utils::tempdir() . "/$name.sql";
	append_to_file($script, "INSERT INTO events (node) VALUES ('$name');\nINSERT INTO orders (node) SELECT '$name' FROM generate_series(1, 5);\n")
	  if !-e $script;
	$clients{$name} = { err => \$err, run => IPC::Run::start(
		[ 'pgbench', '-n', '-c', '4', '-T', '600', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \$out, '2>', \$err) };
	return;
}

# Returns what they said.
sub stop_clients
{
	my ($node) = @_;
	my $clients = delete $clients{ $node->name };
	# SIGINT may be ignored, as it is in a command in the background.
	$clients->{run}->signal('TERM');
	$clients->{run}->finish;
	return ${ $clients->{err} };
}

sub count_of
{
	my ($node, $origin) = @_;
	return $node->safe_psql('postgres', "SELECT (SELECT count(*) FROM events WHERE node = '$origin') + (SELECT count(*) FROM orders WHERE node = '$origin')");
}

sub goes_on
{
	my ($node, $what) = @_;
	my $before = count_of($node, $node->name);
	return wait_until($node->name . " goes on: $what", sub { count_of($node, $node->name) > $before + 500 }) || die 'no clients';
}

# Returns how many conflicts a node has met: replication then stops until somebody
# resolves them. PostgreSQL counts them from 18 on.
sub conflicts
{
	my ($node) = @_;
	my $counted = $node->safe_psql('postgres', q{SELECT coalesce(sum(value::bigint), 0) FROM pg_stat_subscription_stats AS s, jsonb_each_text(to_jsonb(s))
		WHERE key LIKE 'confl%'});
	return $counted + in_log($node, qr/conflict detected|duplicate key/);
}

# Checks that both have all rows of both, and that no conflict was met.
sub check_both
{
	my ($what, $one, $other) = @_;
	for ([ $one, $other ], [ $other, $one ])
	{
		my ($to, $from) = @$_;
		$from->wait_for_catchup('to_' . $to->name);
	}
	for my $table (@tables)
	{
		my $sum = "SELECT count(*), count(DISTINCT node), md5(string_agg(t::text, ',' ORDER BY id)) FROM $table AS t";
		my $rows = $one->safe_psql('postgres', $sum);
		is($rows, $other->safe_psql('postgres', $sum), "$what: both have the same rows of $table: $rows");
		like($rows, qr/^\d+\|2\|/, "$what: rows of both");
	}
	for my $node ($one, $other)
	{
		is(conflicts($node), 0, "$what: no conflict on " . $node->name);
	}
	return;
}

sub marks { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT (SELECT last_value FROM snowflake_default), (SELECT last_value FROM orders_ids)'); }
my $no_mark = '1|1';

# Runs two servers through all events.
sub run_both
{
	my ($what, $one, $other) = @_;
	subscribe($one, $other);
	subscribe($other, $one);
	$_->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r'") for $one, $other;

	# Rows arrive with their IDs, and marks stay where they are.
	$one->safe_psql('postgres', "INSERT INTO events (node) VALUES ('" . $one->name . "'); INSERT INTO orders (node) VALUES ('" . $one->name . "')");
	$one->wait_for_catchup('to_' . $other->name);
	is(count_of($other, $one->name), 2, "$what: rows of the first one have arrived");
	is(marks($other), $no_mark, "$what: the other one has no marks, before it issues IDs");
	my $marks = marks($one);
	unlike($marks, qr/\b1\b/, "$what: the first one has");

	start_clients($_) for $one, $other;
	goes_on($_, 'both run') for $one, $other;
	unlike(marks($other), qr/\b1\b/, "$what: the other one has its own marks, now");

	# A crash of one, after which its clock is half a minute behind.
	crash($one);
	like(stop_clients($one), qr/server closed the connection|backend died|terminat|crash/, "$what: a crash of the first one");
	goes_on($other, 'the first one has crashed');
	start_clients($one);
	goes_on($_, 'after the crash') for $one, $other;
	is(stop_clients($_) =~ /ERROR/, '', "$what: no call has failed") for $one, $other;
	check_both($what, $one, $other);
	is($one->safe_psql('postgres', "SELECT count(DISTINCT (snowflake_decode(id)).worker_id) FROM events"), 2, "$what: two worker IDs");
	$_->safe_psql('postgres', 'DROP SUBSCRIPTION to_' . $_->name) for $one, $other;
	return;
}

# Fixed worker IDs.
my ($north, $south) = (new_side('north', 1), new_side('south', 2));
is($north->safe_psql('postgres', "SELECT count(*) FROM snowflake_check_cluster(ARRAY['" . conninfo($south) . "'])"), 0, 'the cluster is sound');
run_both('fixed', $north, $south);

# What is schema is not replicated: a generator and its label must be made on both sides.
$north->safe_psql('postgres', q{DROP SEQUENCE orders_ids CASCADE; SELECT snowflake_create_generator('orders_ids', 'preset=twitter')});
like($north->safe_psql('postgres', "SELECT finding FROM snowflake_check_cluster(ARRAY['" . conninfo($south) . "'])"),
	qr/^layouts differ$/m, 'a label that was changed on one side is found');
$_->stop for $north, $south;

# One worker ID: IDs are issued twice, and the checks above would see it.
my @same = map { new_side($_, 7) } 'one', 'same';
subscribe(@same);
subscribe(reverse @same);
start_clients($_) for @same;
wait_until('a conflict', sub { grep { conflicts($_) } @same });
stop_clients($_) for @same;
$_->stop('immediate') for @same;

# Leases, from a registry in a database that is not replicated.
my $registry = new_registry('registry', "'main', '[100,110)'");
my @lease = ("snowflake_id.registry = '" . conninfo($registry) . "'", "snowflake_id.pool = 'main'");
my ($east, $west) = (new_side('east', '', @lease), new_side('west', '', @lease));
run_both('leases', $east, $west);
is(join(' ', sort map { worker($_, 'worker_id') } $east, $west), '100 101', 'leased worker IDs, the same as before the crash');

# The extension's own tables are tables too.
$registry->safe_psql('postgres', 'CREATE TABLE events (id bigint); CREATE PUBLICATION everything FOR ALL TABLES; CREATE PUBLICATION named FOR TABLE events');
my $published = q{SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_publication_tables WHERE pubname = '%s'};
is($registry->safe_psql('postgres', sprintf $published, 'everything'), 'events leases pools state',
	'a publication of all tables has those of the extension');
is($registry->safe_psql('postgres', sprintf $published, 'named'), 'events', 'one with names has not');

$_->stop for $east, $west, $registry;
done_testing();
