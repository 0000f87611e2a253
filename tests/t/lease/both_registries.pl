# Tests what a server may expect of a registry, whichever of the two kinds it is: starts and
# stops, a takeover, claims, a revocation, a pool that is too small, and a registry that is
# away or hangs, for less and for more time than the leases last. both_registries_etcd.pl runs
# this with one in an etcd of three members. LONG=1 takes the default terms, which takes half an
# hour; otherwise the servers are younger, and their leases are shorter.
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

# Seconds: how old servers are when the registry goes away, and for how long it is away.
my ($age, $outage, $hold) = $ENV{LONG} ? (620, 540, 30) : (70, 36, 1);
my $patience = 30;
my $reserve = 2;
my $terms = "unused => true, lease => '10 min', hold => '$hold s', max_ahead => '1 s'";
my $short = q{lease => '3 s', hold => '1 s', max_ahead => '1 s'};
my $registry = new_registry('registry', "'main', '[0,16)', $terms", "'one', '[20,21)', $terms", "'kept', '[22,23)', $terms",
	"'claimed', '[40,42)', $terms", "'short', '[30,32)', $short");
my $conninfo = conninfo($registry);
my $template = template_of('template');
my @all;
sub leasing
{
	my ($name, $pool, @more) = @_;
	my $node = member($template, $name, "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = '$pool'", "snowflake_id.reserve_ahead = '$reserve s'", @more);
	push @all, $node;
	$node->start;
	return $node;
}
sub refused { my ($node) = @_; return (error_of($node, 'SELECT snowflake_nextval()'))[0]; }

# A first ID, a clean stop, and a crash of a young server.
my $first = leasing('first', 'main');
is(first_id($first, 'a new server'), 0, 'the first worker ID');
$first->restart;
is(first_id($first, 'a clean stop'), 0, 'a clean stop and a start: the same worker ID');
cmp_ok(lead($first), '<', $reserve + 1, 'which leads by the own mark at most');
kill_all($first);
$first->start;
first_id($first, 'kill -9 and a start');
cmp_ok(lead($first), '<', $reserve + 1, 'a crash adds nothing to that');

# A server that claims a number, and one that is refused it; both logs say so.
my $holder = leasing('holder', 'claimed', 'snowflake_id.worker_id = 40');
is(first_id($holder, 'a claim'), 40, 'the claimed number');
my $rival = leasing('rival', 'claimed', 'snowflake_id.worker_id = 40');
is(refused($rival), '55006', 'a number that another server holds');
sub named { my ($node) = @_; my ($there, $port) = ($node->data_dir, $node->port); return qr/on host "[^"]+"[^\n]*, port $port, data directory "\Q$there\E"/; }
my $of_holder = named($holder);
wait_until('the log of the refused server names the holder', sub { in_log($rival, qr/WARNING:  snowflake_id: could not claim worker ID 40 in pool "claimed"\n.*DETAIL:  .*Worker ID 40 belongs to the server $of_holder/) });
take($holder);

# Two servers are lost: the only one of a pool, and the one that claims. Who waits for them gets
# the worker ID when patience and hold have passed since their last contact, whatever the lease.
my $lost = leasing('lost', 'one');
is(first_id($lost, 'the only worker ID of a pool'), 20, 'the worker ID');
my $heir = leasing('heir', 'one');
is(refused($heir), '55000', 'none is left');
like((error_of($heir, 'SELECT snowflake_nextval()'))[1], qr/All worker IDs of the pool belong to other servers\./, 'the error says why');
# It is as old as the others when the registry goes away.
my $keeps = leasing('keeps', 'kept');
is(first_id($keeps, 'a server that is to keep its worker ID'), 22, 'the worker ID');
my $second = leasing('second', 'main');
my $from = time;
first_id($second, 'a second server');
sleep $age - $patience - $hold - 5 if $ENV{LONG};
kill_all($_) for $lost, $holder;
my $gone = time;
my %took;
wait_until('both are taken over', sub {
	for my $node ($heir, $rival) { $took{ $node->name } //= time - $gone if refused($node) eq ''; }
	return keys %took == 2; }) or die 'no takeover';
for my $name (sort keys %took)
{
	# The last contact was 12 s before the kill, at most.
	between(sprintf('%.1f', $took{$name}), $patience - 12 + $hold - 5, $patience + $hold + 10, "seconds until $name takes over");
}
is(join(' ', take($heir), take($rival)), '20 40', 'they have the worker IDs of those that are lost');
$_->stop for $heir, $rival;

# A pool that is too small, and a revocation: then anybody may have the worker ID when patience and
# hold have passed. A clean stop returns one at once.
my @short = map { leasing($_, 'short') } qw(one two three);
sub served { return grep { refused($_) eq '' } @short; }
my ($revoked) = served();
my $worker = take($revoked);
on_registry($registry, 'snowflake_revoke_worker', q{'short'}, $worker);
wait_until('the server is told', sub { in_log($revoked, qr/WARNING:  snowflake_id: lost worker ID $worker\n.*DETAIL:  It was revoked at the registry\./) }) or die 'not told';
wait_until('it is leased again', sub { served() == 2 }) or die 'not leased';
my ($stops, $stays) = served();
my ($waits) = grep { my $node = $_; !grep { $_ == $node } $stops, $stays } @short;
is(join(' ', sort map { take($_) } $stops, $stays), '30 31', 'a pool of two serves two servers');
$worker = take($stops);
$stops->stop;
is(first_id($waits, 'a worker ID is returned'), $worker, 'the third one gets the worker ID of one that stops');

# The clock of a server is wrong by half an hour for a moment, in which it issues no IDs. It gives
# back what it was granted for that time, so that nobody leads by it later.
my $wrong = leasing('wrong', 'main');
$wrong->stop;
start_with_clock($wrong, 0);
first_id($wrong, 'before its clock is wrong');
sub ahead { return worker($wrong, 'extract(epoch FROM bound)') - time; }
set_clock($wrong, 1800);
wait_until('it has a bound far ahead', sub { ahead() > 1700 }) or die 'no renewal';
set_clock($wrong, 0);
wait_until('it has given that back', sub { my $ahead = worker($wrong, 'extract(epoch FROM bound)'); $ahead ne '' && $ahead - time < 700 }) or die 'no return';
is(refused($wrong), '', 'and it issues IDs');
cmp_ok(lead($wrong), '<', $reserve + 1, 'which are of now');

# The registry hangs: who has a short lease has no IDs until it answers again.
start_load($_, 0.1) for $first, $second, $keeps;
my @frozen = freeze_registry($registry);
wait_until('IDs stop at the bound', sub { refused($waits) });
my ($code, $text) = error_of($waits, 'SELECT snowflake_nextval()');
is($code, '55000', 'a registry that hangs: SQLSTATE');
like($text, qr/has not renewed the lease of this server.*The registry has been unreachable since/s, 'and why');
thaw_registry($registry, @frozen);
wait_until('IDs resume by themselves', sub { refused($waits) eq '' });
$_->stop for $waits, $stays;

# The registry is away, for longer than patience and hold. Servers that were older than that do
# not notice. One that was young stops when its lease ends. One that starts has none.
my $next = leasing('next', 'kept');
is(refused($next), '55000', 'a server waits for the worker ID of one that lives');
# It renews its lease once or twice.
my $left = $from + $age - 15 - time;
sleep $left if $left > 0;
my $young = leasing('young', 'main');
first_id($young, 'a young server');
sleep 15;
stop_registry($registry);
my $away = time;
wait_until('a young server stops', sub { refused($young) });
between(sprintf('%.1f', time - $away), 5, $patience + 6, 'seconds until a young server has no IDs');
$young->restart;
is(refused($young), '55000', 'nor has one that starts');
$left = $away + $outage - time;
sleep $left if $left > 0;
# Who waits for a worker ID asks before its holder does.
@frozen = freeze($keeps);
start_registry($registry);
wait_until('IDs resume by themselves', sub { refused($young) eq '' });
wait_until('the other one asks', sub { worker($next, 'last_error') =~ /^All worker IDs of the pool belong/ }) or die 'nobody asks';
thaw(@frozen);
wait_for_ids($_, 'the registry is back') for $first, $second, $keeps;
is(worker($keeps, 'worker_id') . in_log($keeps, qr/lost worker ID/), '220', 'nobody takes a worker ID from a server that had no chance to renew');
for my $node ($first, $second, $keeps)
{
	my ($count, $errors) = stop_load($node);
	cmp_ok($count, '>', 5 * $outage, $node->name . ' issued IDs all the time');
	is($errors, '', $node->name . ': no call failed');
}

# A crash of a server that holds a long lease.
kill_all($first);
$first->start;
first_id($first, 'kill -9 of a server with a long lease', 5);
cmp_ok(lead($first), '<', $reserve + 1, 'which leads by the own mark at most');
check_all('all servers', $registry);
for my $node (@all) { $node->stop if $node->{_pid}; }
done_testing();
