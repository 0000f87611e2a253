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
# has another value then, and the function waits until the subscriber has it.
my $value = 0;
sub synchronize
{
	my ($command) = @_;
	$value += 1000;
	$north->safe_psql('postgres', "SELECT setval('invoices', $value)");
	my $err;
	is($south->psql('postgres', $command, stderr => \$err, on_error_stop => 1), 0, $command) or diag $err;
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

# Other commands do not warn.
my $err;
$south->psql('postgres', 'ALTER SUBSCRIPTION from_north DISABLE; ALTER SUBSCRIPTION from_north ENABLE', stderr => \$err, on_error_stop => 1);
is($err, '', 'commands that list no sequences do not warn');
$_->stop for $south, $north;
done_testing();
