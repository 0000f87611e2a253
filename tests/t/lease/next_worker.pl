# Tests servers whose clock is set back, and that take their next worker ID for a generator with
# on_rollback=next_worker: which generators come to it and where, where the old worker ID ends, a
# pool without a worker ID for the time, restarts, and a keeper that ends. With a registry in
# PostgreSQL, and in etcd. All IDs are collected, and no generator issues one twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Etcd;
use Snowflake;

# Worker IDs of pools are of times after their making, so the server's clock is ahead of
# the registry's by this much (seconds), and is set back by less.
my $ahead = 7200;
my $label = q{preset=worker_queue epoch='2025-01-01 00:00:00+00'};

sub next_of { return "SELECT snowflake_nextval('$_[0]')"; }

# Draws IDs of a generator, and returns their worker ID.
my (%names, $kind);
sub take
{
	my ($session, $name, $count) = @_;
	$names{"$kind $name"} = 1;
	draw($session, "$kind $name", $name) for 1 .. $count // 3;
	return $session->query_safe("SELECT (snowflake_decode(snowflake_currval('$name'), '$name')).worker_id");
}

# How far the latest ID of a session is ahead of the clock, in seconds.
sub lead { my ($session, $name) = @_; return $session->query_safe("SELECT extract(epoch FROM snowflake_timestamp(snowflake_currval('$name'), '$name') - clock_timestamp())"); }

# Runs all of it with one kind of registry.
sub run_with
{
	($kind, my ($conninfo, $administrate, $row_of)) = @_;
	$administrate->(q{'servers', int8range(0, 4), lease => '20 s', hold => '1 s', max_ahead => '10 s'});
	my $node = new_node("main_$kind", '');
	$node->append_conf('postgresql.conf', <<"END");
snowflake_id.registry = '$conninfo'
snowflake_id.pool = 'servers'
snowflake_id.reserve_ahead = '10 s'
END
	start_with_clock($node, $ahead);
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	my ($session, $holder) = (session($node), session($node));
	my $worker = sub { $node->safe_psql('postgres', 'SELECT worker_id FROM snowflake_worker') };

	create_generator($node, 'queued', $label);
	create_generator($node, 'idle', $label);
	create_generator($node, 'plain', 'preset=default');
	create_generator($node, 'held', 'preset=default');
	create_generator($node, 'waiting', 'preset=default on_rollback=wait');
	is(take($session, $_), 0, "$kind: $_ has the worker ID of the server") for qw(queued idle plain held waiting);
	# One generator leads, and a statement is in the middle of its IDs.
	$session->query_safe(q{SELECT snowflake_advance('plain', clock_timestamp() + interval '8 s')});
	is(take($session, 'plain'), 0, 'a generator that somebody has advanced');
	is(take($session, 'queued'), 0, 'changes nothing');
	my $fetch = sub { my $id = $holder->query_safe('FETCH c'); push @{ drawn("$kind held") }, $id; return $id >> 12 & 1023 };
	$holder->query_safe(q{BEGIN; DECLARE c CURSOR FOR SELECT snowflake_nextval('held') FROM generate_series(1, 100)});
	is($fetch->(), 0, 'a statement has it') for 1 .. 2;

	# The clock is set back.
	set_clock($node, $ahead - 600);
	is(take($session, 'queued'), 1, 'a rollback takes the next worker ID');
	cmp_ok(abs lead($session, 'queued'), '<', 60, 'IDs have the time of the clock');
	is($worker->(), 1, 'it is that of the server');
	ok(in_log($node, qr/LOG:  snowflake_id: clock moved backwards by [^\n]*\n.*DETAIL:  Generator queued continues with worker ID 1\./), 'the log tells');
	ok(in_log($node, qr/LOG:  snowflake_id: acquired worker ID 1 from pool "servers"\n.*DETAIL:  .*Before, it was worker ID 0\./), 'and the keeper does');
	# The others, also in the middle of a statement.
	is($fetch->(), 1, 'the statement goes on with it, though there was room before the mark');
	cmp_ok(lead($holder, 'held'), '>', 500, 'at its own mark');
	$holder->query_safe('COMMIT');
	is(take($session, $_), 1, "$_ has it, too") for qw(plain held idle);
	is((error_in($session, next_of('waiting')))[0], '58000', 'one that waits for the clock does so');
	cmp_ok(abs lead($session, 'idle'), '<', 60, 'one that goes back does, at the first ID');
	my @ids = @{ drawn("$kind plain") };
	is((grep { $ids[$_] <= $ids[ $_ - 1 ] } 1 .. $#ids), 0, 'the IDs of plain ascend');
	# The old one ends where the leading generator was.
	ok(wait_until('the old one is returned', sub { $row_of->(0, 'state') eq 'released' }), 'the old worker ID goes back to the pool');
	my ($last) = grep { ($_ >> 12 & 1023) == 0 } reverse @{ drawn("$kind plain") };
	is($row_of->(0, "bound > '" . $session->query_safe("SELECT snowflake_timestamp($last, 'plain')") . "'"), 't', 'and ends after all IDs of all generators');
	is(in_log($node, qr/LOG:  snowflake_id: returned worker ID 0 to pool "servers"/), 1, 'the log tells');
	is(shown($node, 'snowflake_generators', 'queued', 'problem IS NULL AND ahead_by < interval $$1 min$$'), 't', 'the view shows no lead of a rotation of before');

	# Until there is no worker ID for the time.
	for my $next (2, 3)
	{
		set_clock($node, $ahead - 600 * $next);
		is(take($session, 'queued'), $next, "worker ID $next");
	}
	set_clock($node, $ahead - 2400);
	my ($code, $text) = error_in($session, next_of('queued'));
	is($code, '58000', 'none is left');
	like($text, qr/clock moved backwards by .*DETAIL:  .*This server has got no worker ID from pool "servers" that was not used at this time\. There is trouble since [^\n]*: Each other free worker ID of the pool has been used at .*HINT:  .*IDs resume by themselves/s, 'the error says why');
	is($worker->(), 3, 'the server keeps its worker ID');
	is($node->safe_psql('postgres', 'SELECT bound > clock_timestamp() AND last_error IS NULL FROM snowflake_worker'), 't', 'without trouble');

	# The clock is right again: all go on with what the server has.
	set_clock($node, $ahead);
	is(take($session, $_), 3, "$_ goes on when the clock is right") for qw(queued idle plain held waiting);
	# What the keeper was asked before (for 3 s) is over.
	sleep 4;
	is($worker->(), 3, 'the server takes no other worker ID, since it needs none any more');

	# Back and forth, with two sessions, and with a keeper that ends just then.
	set_clock($node, $ahead + 60);
	take($holder, 'queued', 20);
	set_clock($node, $ahead + 30);
	my $now = take($holder, 'queued', 20);
	isnt($now, 3, 'the next one again, after its end');
	is(take($session, 'queued', 20), $now, 'for all sessions');
	set_clock($node, $ahead + 600);
	take($session, 'queued');
	my $keeper = sub { $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake_id keeper'}) };
	my $pid = $keeper->();
	# In this order: PostgreSQL starts a worker again a second later by the wall clock.
	set_clock($node, $ahead + 300);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_until('another keeper', sub { my $new = $keeper->(); $new && $new ne $pid });
	isnt(take($session, 'queued'), $now, 'the next keeper knows that the clock was set back');
	take($session, $_) for qw(idle plain held waiting);

	# The server is stopped, and killed.
	$now = $worker->();
	$_->quit for $session, $holder;
	$node->stop;
	is($row_of->($now, 'state'), 'released', 'a clean stop returns it');
	start_with_clock($node, $ahead + 400);
	$session = session($node);
	take($session, $_) for qw(queued idle plain held waiting);
	$node->stop('immediate');
	start_with_clock($node, $ahead + 405);
	$session = session($node);
	take($session, $_) for qw(queued idle plain held waiting);
	$session->quit;
	$node->stop;
	return;
}

# A server with a number of its own never takes another one.
my $fixed = new_node('fixed', 7);
$fixed->start;
$fixed->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $never = qr/generator (?:public\.)?queued needs a server that leases any worker ID of a registry/;
$fixed->psql('postgres', "SELECT snowflake_create_generator('queued', \$\$$label\$\$)", stderr => \my $warning);
like($warning, qr/WARNING:  $never\n.*HINT:  Set "snowflake_id.registry"/s, 'a warning where it is made');
is(scalar(() = $warning =~ /WARNING/g), 1, 'once');
$fixed->psql('postgres', "SECURITY LABEL FOR snowflake_id ON SEQUENCE queued IS \$\$$label\$\$", stderr => \$warning);
like($warning, qr/WARNING:  $never/, 'and where it is restored');
my ($code, $text) = error_of($fixed, next_of('queued'));
is($code, '0A000', 'it issues nothing');
like($text, $never, 'the error says why');
like(shown($fixed, 'snowflake_generators', 'queued', 'problem'), $never, 'so does the view');
$fixed->stop;

my $registry = new_node('registry', 900);
$registry->start;
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $row_in = sub { my ($server) = @_; return sub { $server->safe_psql('postgres', "SELECT $_[1] FROM snowflake_workers WHERE worker_id = $_[0]") } };
run_with('postgres', join(' ', 'host=' . $registry->host, 'port=' . $registry->port, 'dbname=postgres'),
	sub { $registry->safe_psql('postgres', "SELECT snowflake_create_pool($_[0])") }, $row_in->($registry));

SKIP:
{
	skip Etcd::missing(), 1 if Etcd::missing();
	my $etcd = Etcd->new('queue', 1);
	my $url = $etcd->url;
	my $viewer = new_node('viewer', '');
	$viewer->append_conf('postgresql.conf', "snowflake_id.registry = '$url'\nsnowflake_id.pool = 'nothing'");
	$viewer->start;
	$viewer->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	run_with('etcd', $url,
		sub { $viewer->safe_psql('postgres', "SELECT snowflake_create_pool($_[0])") }, $row_in->($viewer));
}
check_unique($_) for sort keys %names;
done_testing();
