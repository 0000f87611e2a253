# Tests many servers that lease their worker IDs from one registry, under load: starts at
# the same time, kills, an outage of the registry, too few worker IDs, crash loops and
# clocks that differ by minutes. No ID is issued twice, and none past a bound. ROUNDS says
# how often eight servers start at the same time; 3 unless told.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Leases;
use Snowflake;

my $rounds = $ENV{ROUNDS} || 3;
my $short = q{lease => '3 s', hold => '1 s', max_ahead => '1 s'};
my $registry = new_registry('registry', "'eight', '[0,8)', $short", "'one', '[20,21)', $short");
my $conninfo = conninfo($registry);
my $template = template_of('template');
sub leasing
{
	my ($name, $pool, @more) = @_;
	return member($template, $name, "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = '$pool'", @more);
}

# Eight servers are started at the same time, and restarted so.
my @eight = map { leasing("n$_", 'eight') } 1 .. 8;
sub pg_ctl
{
	my ($options) = @_;
	return sub { my ($node) = @_; return "pg_ctl -w -D '" . $node->data_dir . "' -l '" . $node->logfile . "' $options"; };
}
is(parallel(pg_ctl('start'), @eight), 0, 'eight servers start');
my @wrong;
my $slowest = 0;
for my $round (0 .. $rounds)
{
	my $mode = $round % 2 ? 'immediate' : 'fast';
	my $failed = $round == 0 ? 0 : parallel(pg_ctl("-m $mode restart"), @eight);
	my $from = time;
	# On a busy machine, a call may end before all have been served.
	my @workers = sort { $a <=> $b } map { first_id($_, 'all eight start'); take($_) } @eight;
	$slowest = time - $from if time - $from > $slowest;
	push @wrong, "round $round, $mode: $failed failed; @workers" if $failed || "@workers" ne '0 1 2 3 4 5 6 7';
}
is("@wrong", '', "eight servers get eight worker IDs, $rounds times");
my $stops = grep { $_ % 2 == 0 } 1 .. $rounds;
# A machine with much else to do may not be done within two seconds.
is(scalar(grep { in_log($_, qr/(?:returned|could not return) worker ID \d+/) == $stops } @eight), 8, 'each says at each stop what became of its worker ID');
note(sprintf 'IDs of all eight took at most %.2f s', $slowest);
check_all('eight servers', $registry);

# A ninth server waits for one of them, and gets its worker ID.
my $ninth = leasing('n9', 'eight');
$ninth->start;
my ($code, $text) = error_of($ninth, 'SELECT snowflake_nextval()');
is($code, '55000', 'no worker ID is left');
like($text, qr/All worker IDs of the pool belong to other servers/, 'the error says why');
my $gone = pop @eight;
my $worker = take($gone);
$gone->stop;
is(first_id($ninth, 'a worker ID is returned'), $worker, 'the waiting server gets it');
$ninth->stop;
$_->stop for splice @eight, 3;
my ($first, $second, $third) = @eight;

# A server crashes every second: its IDs lead the clock by no more than about a lease.
my (@leads, @firsts);
for (1 .. 10)
{
	my $from = time;
	$third->stop('immediate');
	$third->start;
	my $up = time;
	take($third, 1);
	push @firsts, sprintf '%.2f', time - $up;
	push @leads, $third->safe_psql('postgres', 'SELECT round(extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp()), 2)');
	my $left = $from + 1 - time;
	sleep $left if $left > 0;
}
note("crash restarts: leads of @leads s; first ID after @firsts s");
my ($most) = reverse sort { $a <=> $b } @leads;
cmp_ok($most, '<', 5, "crash restarts: the lead of IDs is at most $most s with a lease of 3 s");

# Whatever is killed, the others go on, and a server has a worker ID at once: its own one, or one whose time has passed.
start_load($_) for @eight;
wait_for_ids($_, 'all is well') for @eight;
kill_all($first);
wait_for_ids($second, 'another server is killed');
$first->start;
like(first_id($first, 'after kill -9 of all processes'), qr/^\d+$/, 'a worker ID at once');
wait_for_ids($first, 'after kill -9 of all processes');
my $acquired = in_log($second, qr/acquired worker ID/);
kill 'KILL', keeper($second);
wait_until('the crash restart', sub { in_log($second, qr/acquired worker ID/) > $acquired });
like(first_id($second, 'after kill -9 of the keeper'), qr/^\d+$/, 'a worker ID at once');
wait_for_ids($second, 'after kill -9 of the keeper');

# The registry is killed, and stays away for longer than a lease.
kill_registry($registry);
my %code;
for my $node (@eight)
{
	wait_until('IDs stop at the bound', sub { ($code{ $node->name }) = error_of($node, 'SELECT snowflake_nextval()'); $code{ $node->name } });
}
is(join(' ', values %code), '55000 55000 55000', 'without a registry IDs stop');
my @counts = map { loaded($_) } @eight;
sleep 1;
is(join(' ', map { loaded($_) } @eight), "@counts", 'nobody gets any');
start_registry($registry);
wait_for_ids($_, 'the registry is back') for @eight;
check_all('kills', $registry);

stop_load($_) for @eight;
$_->stop for @eight;

# The clocks of two servers differ by 12 minutes; they follow each other in a pool of one.
my ($fast, $slow) = (leasing('fast', 'one'), leasing('slow', 'one'));
start_with_clock($fast, 300);
is(first_id($fast, 'a clock 5 minutes ahead'), 20, 'the worker ID');
start_load($fast);
wait_for_ids($fast, 'a clock 5 minutes ahead');
start_with_clock($slow, -420);
is((error_of($slow, 'SELECT snowflake_nextval()'))[0], '55000', 'the other one has none');
kill_all($fast);
stop_load($fast);
is(first_id($slow, 'a clock 7 minutes behind'), 20, 'the same worker ID');
start_load($slow);
wait_for_ids($slow, 'a clock 7 minutes behind');
$slow->stop;
stop_load($slow);
start_with_clock($fast, 300);
is(first_id($fast, '5 minutes ahead again'), 20, 'the same worker ID');

my $of_worker = check_all('all servers', $registry);
is(join(' ', sort keys %{ $of_worker->{20} }), 'fast slow', 'two servers have had the same worker ID');
$fast->stop;
done_testing();
