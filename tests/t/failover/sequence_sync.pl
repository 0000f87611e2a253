# Tests what PostgreSQL 19 does with a publication FOR ALL SEQUENCES: plain sequences get the
# values of the publisher, and generators keep the marks of their own server, whose IDs are
# ahead of the publisher's. Otherwise a server that crashes or restarts would issue IDs twice.
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
	plan skip_all => 'sequences are replicated by PostgreSQL 19 or later' if $version < 19;
}

my %node;
for my $name ('north', 'south')
{
	my $node = $node{$name} = new_node($name, $name eq 'north' ? 1 : 2, allows_streaming => 'logical');
	$node->append_conf('postgresql.conf', "log_statement = none\nmax_connections = 30");
	start_with_clock($node, 0);
	$node->safe_psql('postgres', q{
		CREATE EXTENSION snowflake_id;
		CREATE SEQUENCE invoices;
		SELECT snowflake_create_generator('orders_ids', 'preset=default');
		SELECT snowflake_nextval('orders_ids'), snowflake_nextval()});
}
my ($north, $south) = @node{ 'north', 'south' };
my @generators = ('public.orders_ids', 'public.snowflake_default');

# Returns the greatest of the IDs that the server issues now.
sub greatest
{
	my ($generator) = @_;
	return $south->safe_psql('postgres', "SELECT max(snowflake_nextval('$generator')) FROM generate_series(1, 1000)");
}

# Runs a command of the subscriber, and returns what it warns of. The sequence of the publisher
# has another value then, and the function waits until the subscriber has it; unless the command
# starts nothing.
my $value = 0;
sub synchronize
{
	my ($command, $starts) = @_;
	$value += 1000;
	$north->safe_psql('postgres', "SELECT setval('invoices', $value)");
	my $err;
	is($south->psql('postgres', $command, stderr => \$err, on_error_stop => 1), 0, $command) or diag $err;
	return $err unless $starts // 1;
	wait_until("$command: the sequence has the value of the publisher", sub {
		$south->safe_psql('postgres', q{SELECT last_value FROM invoices}) eq $value
			&& $south->safe_psql('postgres', q{SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'}) eq '0' });
	return $err;
}
sub marks { return $south->safe_psql('postgres', join(' UNION ALL ', map { "SELECT last_value FROM $_" } @generators)); }

# IDs of the subscriber are ahead of its clock, and of the marks of the publisher.
my %most;
for my $generator (@generators)
{
	$south->safe_psql('postgres', "SELECT snowflake_advance('$generator', now() + interval '2 hours')");
	$most{$generator} = greatest($generator);
}
$north->safe_psql('postgres', 'CREATE PUBLICATION all_sequences FOR ALL SEQUENCES');

my $there = conninfo($north);
my @steps = (
	[ 'CREATE SUBSCRIPTION from_north', "CREATE SUBSCRIPTION from_north CONNECTION '$there' PUBLICATION all_sequences" ],
	[ 'REFRESH SEQUENCES', 'ALTER SUBSCRIPTION from_north REFRESH SEQUENCES' ]);
for my $step (@steps)
{
	my ($name, $command) = @$step;
	# The second time, nothing in memory knows the marks yet.
	$south->restart if $name eq 'REFRESH SEQUENCES';
	my $marks = marks();
	my $warned = synchronize($command);
	like($warned, qr/WARNING:  subscription "from_north" does not synchronize generators\nDETAIL:  .*orders_ids.*\n/, "$name: a warning");
	like($warned, qr/^DETAIL:.*snowflake_default/m, "$name: of the default generator, too");
	is(marks(), $marks, "$name: the marks are as they were");
	ok(in_log($south, qr/does not synchronize generators/), "$name: the log says so");
	crash($south);
	for my $generator (@generators)
	{
		my $least = $south->safe_psql('postgres', "SELECT min(snowflake_nextval('$generator')) FROM generate_series(1, 10)");
		cmp_ok($least, '>', $most{$generator}, "$name, and a crash: IDs of $generator are above the former ones");
		$most{$generator} = greatest($generator);
	}
}

# A generator that comes later, with a publication that is refreshed.
$_->safe_psql('postgres', q{SELECT snowflake_create_generator('later_ids', 'preset=discord'); SELECT snowflake_nextval('later_ids')}) for $north, $south;
push @generators, 'public.later_ids';
my $marks = marks();
my $warned = synchronize('ALTER SUBSCRIPTION from_north REFRESH PUBLICATION; ALTER SUBSCRIPTION from_north REFRESH SEQUENCES');
like($warned, qr/^DETAIL:.*later_ids/m, 'a generator that came later: a warning');
is(marks(), $marks, 'and its mark is as it was');

# A plain sequence that waits for its value cannot become a generator: the worker would overwrite
# the mark, if the sequence of the publisher has become one too.
sub label { return "SECURITY LABEL FOR snowflake_id ON SEQUENCE $_[0] IS 'preset=discord'"; }
$_->safe_psql('postgres', 'CREATE SEQUENCE tickets; CREATE SEQUENCE cards') for $north, $south;
synchronize("CREATE SUBSCRIPTION waiting CONNECTION '$there' PUBLICATION all_sequences WITH (enabled = false)", 0);
my ($code, $message) = error_of($south, label('tickets'));
is($code, '55000', 'a sequence that is to be synchronized gets no label');
like($message, qr/cannot make a generator of sequence tickets/, 'and the error says so');
synchronize('ALTER SUBSCRIPTION waiting ENABLE');
my $least = $south->safe_psql('postgres', label('tickets') . q{; SELECT snowflake_nextval('tickets')});
cmp_ok($least, '>', 0, 'a sequence that has been synchronized can become a generator');

# A label that is not committed yet, beside a command that would put the sequence on the list.
my $labels = $south->background_psql('postgres');
$labels->query_safe('SET client_min_messages = warning; BEGIN; ' . label('cards'));
my $refreshes = $south->background_psql('postgres');
$refreshes->query_until(qr/go/, "\\echo go\nALTER SUBSCRIPTION waiting REFRESH SEQUENCES;\n");
wait_until('the command waits for the label', sub {
	$south->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE NOT granted AND classid = 'pg_subscription'::regclass}) eq '1' });
$labels->query_safe('COMMIT');
$refreshes->query('SELECT 1');
like($refreshes->{stderr}, qr/^DETAIL:.*cards/m, 'and leaves out what is a generator now');
$_->quit for $labels, $refreshes;
# And in the other order.
$_->safe_psql('postgres', 'CREATE SEQUENCE seats') for $north, $south;
synchronize('ALTER SUBSCRIPTION waiting REFRESH PUBLICATION; ALTER SUBSCRIPTION waiting REFRESH SEQUENCES');
$refreshes = $south->background_psql('postgres', on_error_stop => 0);
$refreshes->query_safe('SET client_min_messages = error; BEGIN; ALTER SUBSCRIPTION waiting REFRESH SEQUENCES');
$labels = $south->background_psql('postgres', on_error_stop => 0);
$labels->query_until(qr/go/, "\\echo go\n" . label('seats') . ";\n");
wait_until('the label waits for the command', sub {
	$south->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE NOT granted AND classid = 'pg_subscription'::regclass}) eq '1' });
$north->stop;
$refreshes->query_safe('COMMIT');
$labels->query('SELECT 1');
like($labels->{stderr}, qr/Subscription "waiting" is still to give it the value/, 'and is refused');
$_->quit for $labels, $refreshes;
$north->start;

# A worker has read the list and waits for the publisher; then the sequence leaves the list and
# gets a label. The worker must not set it.
$north->safe_psql('postgres', q{CREATE PUBLICATION nothing; SELECT snowflake_create_generator('badges', 'preset=discord'); SELECT snowflake_nextval('badges')});
$south->safe_psql('postgres', 'CREATE SEQUENCE badges');
my $renames = $north->background_psql('postgres');
$renames->query_safe('BEGIN; ALTER SEQUENCE badges RENAME TO tokens');
$south->safe_psql('postgres', 'ALTER SUBSCRIPTION waiting REFRESH PUBLICATION');
wait_until('a worker asks for the value', sub {
	$north->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%pg_get_sequence_data%'}) eq '1' });
$south->safe_psql('postgres', 'ALTER SUBSCRIPTION waiting SET PUBLICATION nothing');
$south->safe_psql('postgres', label('badges') . q{; SELECT snowflake_advance('badges', now() + interval '2 hours')});
my $mark = $south->safe_psql('postgres', 'SELECT last_value FROM badges');
$renames->query_safe('ROLLBACK');
$renames->quit;
wait_until('no worker synchronizes sequences', sub {
	$south->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_subscription WHERE worker_type = 'sequence synchronization'}) eq '0' });
is($south->safe_psql('postgres', 'SELECT last_value FROM badges'), $mark, 'a sequence that has left the list keeps its mark');

# Other commands do not warn.
my $err;
$south->psql('postgres', 'ALTER SUBSCRIPTION from_north DISABLE; ALTER SUBSCRIPTION from_north ENABLE', stderr => \$err, on_error_stop => 1);
is($err, '', 'commands that list no sequences do not warn');
$_->stop for $south, $north;
done_testing();
