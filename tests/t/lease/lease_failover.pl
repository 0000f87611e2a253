# Tests servers that lease their worker IDs while servers are frozen, copied, promoted
# and rewound, and while the registry itself fails over and loses its last seconds. No ID
# is issued twice, and none past a bound. The registry is in a database; 048 runs this with
# one in an etcd of three members, whose failovers and losses are in 045 and 046.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Leases;
use Snowflake;

my $short = q{lease => '2 s', hold => '1 s', max_ahead => '1 s'};
# The lease of a pool that outlives the seconds that a failover of the registry takes.
my $long = q{lease => '8 s', hold => '1 s', max_ahead => '1 s'};
my $registry = new_registry('registry', "'main', '[0,16)', $short", "'one', '[20,21)', $short", "'long', '[24,30)', $long");
my $conninfo = conninfo($registry);
my $template = template_of('template');
sub leasing
{
	my ($name, $pool, @more) = @_;
	my $node = member($template, $name, "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = '$pool'", @more);
	$node->start;
	return $node;
}

# A whole server is frozen for longer than its lease, and another one takes over.
my ($cold, $heir) = map { leasing($_, 'one') } 'cold', 'heir';
is(first_id($cold, 'the first server of the pool'), 20, 'the only worker ID');
start_load($cold);
start_load($heir);
wait_for_ids($cold, 'before it is frozen');
my @frozen = freeze($cold);
is(first_id($heir, 'its holder is frozen'), 20, 'another server takes over');
wait_for_ids($heir, 'its holder is frozen');
thaw(@frozen);
wait_until('the log of the first tells', sub { in_log($cold, qr/WARNING:  snowflake_id: lost worker ID 20\n/) });
like(slurp_file($cold->logfile), qr/lost worker ID 20\n.*DETAIL:  .*\Q${\ $heir->data_dir}\E/, 'to whom it was lost');
wait_until('the first stops', sub { (error_of($cold, 'SELECT snowflake_nextval()'))[0] eq '55000' });
wait_for_ids($heir, 'its former holder runs');
cmp_ok(scalar(stop_load($_)), '>', 0, $_->name . ' issued IDs') for $cold, $heir;
$_->stop for $cold, $heir;
my $of_worker = check_all('a frozen server', $registry);
is(join(' ', sort keys %{ $of_worker->{20} }), 'cold heir', 'both had the worker ID');

# A clone by pg_basebackup beside its origin.
my $origin = leasing('origin', 'main');
my $own = first_id($origin, 'the origin');
start_load($origin);
$origin->backup('live');
my $clone = PostgreSQL::Test::Cluster->new('clone');
$clone->init_from_backup($origin, 'live');
$clone->start;
my $of_clone = first_id($clone, 'a clone at another path');
isnt($of_clone, $own, 'a clone has another worker ID');
start_load($clone);
wait_for_ids($_, 'clone and origin') for $clone, $origin;
is(worker($origin, 'worker_id'), $own, 'the origin keeps its own');

# A copy that takes the path of its origin, which is moved away. Both have crashed.
$origin->stop('immediate');
stop_load($origin);
my $path = $origin->data_dir;
my $moved = PostgreSQL::Test::Cluster->new('moved');
rmdir $moved->data_dir;
rename $path, $moved->data_dir or die "rename: $!";
PostgreSQL::Test::RecursiveCopy::copypath($moved->data_dir, $path);
chmod 0700, $path or die "chmod: $!";
$moved->append_conf('postgresql.conf', 'port = ' . $moved->port . "\nunix_socket_directories = '" . $moved->host . "'");
unlink $moved->data_dir . '/postmaster.pid', "$path/postmaster.pid";
$origin->start;
isnt(first_id($origin, 'a copy at the path of its origin'), $own, 'the copy has another worker ID');
$moved->start;
isnt(first_id($moved, 'the origin at another path'), worker($origin, 'worker_id'), 'the origin has one, too');
start_load($_) for $origin, $moved;
wait_for_ids($_, 'copy at the same path') for $origin, $moved, $clone;
stop_load($_) for $origin, $moved, $clone;
$_->stop for $origin, $moved, $clone;
check_all('copies', $registry);

# A standby is promoted while its primary lives. The former primary comes back by
# pg_rewind, and is promoted in its turn.
my $left = leasing('left', 'main', "wal_level = replica", 'wal_log_hints = on', "wal_keep_size = '512MB'", 'max_wal_senders = 5');
first_id($left, 'the primary');
$left->backup('base');
my $right = PostgreSQL::Test::Cluster->new('right');
$right->init_from_backup($left, 'base', has_streaming => 1);
$right->start;
start_load($left);
wait_for_ids($left, 'the primary');
$left->wait_for_catchup($right);
$right->promote;
isnt(first_id($right, 'promoted while the old primary lives'), worker($left, 'worker_id'), 'another worker ID');
start_load($right);
wait_for_ids($_, 'two primaries') for $left, $right;
$right->safe_psql('postgres', 'CHECKPOINT');
$left->stop;
stop_load($left);
command_ok([ 'pg_rewind', '-D', $left->data_dir, '--source-server', $right->connstr('postgres') ], 'pg_rewind');
$left->append_conf('postgresql.conf', 'port = ' . $left->port . "\nunix_socket_directories = '" . $left->host
	. "'\nprimary_conninfo = '" . $right->connstr . "'");
$left->set_standby_mode;
$left->start;
is(keeper($left), '', 'a former primary that was rewound has no keeper');
wait_until('it follows', sub { $left->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') eq '1' });
kill_all($right);
stop_load($right);
$left->promote;
first_id($left, 'a former primary is promoted again');
$right->start;
first_id($right, 'the killed one starts again beside it');
start_load($_) for $left, $right;
wait_for_ids($_, 'two primaries again') for $left, $right;
stop_load($_) for $left, $right;
$_->stop for $left, $right;
check_all('promotions', $registry);

# The registry is killed, and its standby is promoted, which has lost the last seconds. While the
# standby is a synchronous one, somebody cancels the waits for it: such a reply does not count.
sub registry_fails_over
{
	$registry->backup('base');
	my $next = PostgreSQL::Test::Cluster->new('next');
	$next->init_from_backup($registry, 'base', has_streaming => 1);
	$next->start;
	$conninfo = conninfo($registry, $next);
	my ($known, $unknown) = (leasing('known', 'long'), member($template, 'unknown', "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = 'long'"));
	my $of_known = first_id($known, 'a server that both registries know');
	start_load($known);
	$registry->wait_for_catchup($next);
	$next->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
	$next->reload;
	wait_until('the standby receives nothing more', sub { $next->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') eq '0' });
	set_by_reload($registry, synchronous_standby_names => '*');
	defined(my $cancels = fork) or die "fork: $!";
	if ($cancels == 0)
	{
		open STDIN, '-|', 'echo', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' \watch 0.1};
		open STDOUT, '>', '/dev/null';
		exec 'psql', '-XAtq', $registry->connstr('postgres') or die "exec: $!";
	}
	$unknown->start;
	wait_until('a reply whose wait was cancelled does not count', sub { worker($unknown, 'last_error') =~ /^The registry's server has warned that its reply may not/ });
	is(worker($unknown, 'worker_id'), '', 'it grants nothing');
	kill 'TERM', $cancels;
	waitpid $cancels, 0;
	set_by_reload($registry, synchronous_standby_names => '');
	my $of_unknown = first_id($unknown, 'a server of which the standby does not hear');
	start_load($unknown);
	wait_for_ids($_, 'before the failover of the registry') for $known, $unknown;
	kill_all($registry);
	$next->promote;
	my $from = time;
	my $new = leasing('new', 'long');
	wait_for_ids($known, 'after the failover of the registry');
	# A new server waits until nobody can use a worker ID that was leased in those seconds.
	my $of_new = first_id($new, 'a new server after the failover of the registry', 60);
	note(sprintf 'a new server begins %.2f s after the promotion of the registry', time - $from);
	wait_for_ids($unknown, 'after the grace period');
	is($next->safe_psql('postgres', q{SELECT DISTINCT era FROM snowflake_pools}), 2, 'the promoted registry has an era of its own');
	is(worker($known, 'worker_id'), $of_known, 'a server that it knows keeps its worker ID');
	is(worker($unknown, 'worker_id'), $of_unknown, 'and so does one whose grant was lost, which it tells');
	is(in_log($_, qr/lost worker ID/), 0, 'which is not lost') for $known, $unknown;
	isnt($of_new, $_, 'the new one has another worker ID') for $of_known, $of_unknown;
	start_load($new);
	wait_for_ids($_, 'three servers') for $known, $unknown, $new;
	stop_load($_) for $known, $unknown, $new;
	$_->stop for $known, $unknown, $new;
	# What the promoted registry has lost was stored in the other one.
	start_with_clock($registry, 0);
	check_all('a registry that fails over', $registry, $next);
	$next->stop;
	$registry->safe_psql('postgres', q{SELECT snowflake_declare_registry(); SELECT snowflake_end_grace_period()});
	return;
}
registry_fails_over() if !in_etcd();

# Servers with fixed worker IDs move to leases and back, under load.
create_pools($registry, "'fleet', '[30,40)', $long");
my @fleet = map { member($template, "fleet$_", "snowflake_id.worker_id = $_") } 33, 34;
$_->start for @fleet;
my $to_registry = conninfo($registry);
my @by_lease = ('snowflake_id.registry' => $to_registry, 'snowflake_id.pool' => 'fleet');
start_load($_) for @fleet;
wait_for_ids($_, 'fixed worker IDs') for @fleet;
set_by_reload($_, @by_lease) for @fleet;
wait_until('the claim', sub { worker($fleet[0], 'bound') ne '' && worker($fleet[1], 'bound') ne '' });
wait_for_ids($_, 'claimed worker IDs') for @fleet;
is(join(' ', map { worker($_, 'worker_id') } @fleet), '33 34', 'the same worker IDs');
# One after the other leaves its fixed worker ID, which takes a restart of that server.
sub restart_with
{
	my ($node, $fixed, $what) = @_;
	my ($other) = grep { $_ != $node } @fleet;
	$node->safe_psql('postgres', "ALTER SYSTEM SET snowflake_id.worker_id = $fixed");
	$node->restart;
	my $worker = first_id($node, $what);
	wait_for_ids($_, $what) for $node, $other;
	return $worker;
}
for my $node (@fleet) { between(restart_with($node, q{''}, 'from a fixed worker ID to a lease'), 30, 39, 'a worker ID of the pool'); }
isnt(worker($fleet[0], 'worker_id'), worker($fleet[1], 'worker_id'), 'each has its own');
# Back: the others leave the pool first. See the documentation of moves.
is(restart_with($fleet[0], 33, 'back to a fixed worker ID'), 33, 'the first has its fixed worker ID');
is(restart_with($fleet[1], 34, 'back to a fixed worker ID'), 34, 'and so has the second');
set_by_reload($_, 'snowflake_id.registry' => '') for @fleet;
wait_until('without a registry', sub { worker($fleet[0], 'bound') eq '' && worker($fleet[1], 'bound') eq '' });
wait_for_ids($_, 'fixed worker IDs again') for @fleet;
for my $node (@fleet)
{
	my (undef, $errors) = stop_load($node);
	unlike($errors, qr/ERROR/, $node->name . ': no call failed but those that a restart ends');
}
$_->stop for @fleet;
check_all('all servers', $registry);
done_testing();
