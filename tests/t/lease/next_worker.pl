# Tests generators with on_rollback=next_worker, which lease worker IDs of their own: who
# may have one, a clock that is set back and corrected, a pool without a worker ID for the
# time, restarts, and that nothing of it moves other generators. With a registry in
# PostgreSQL, and in etcd. All IDs of all servers are collected, and none is issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Etcd;
use Snowflake;

# Worker IDs of pools are of times after their making, so the servers' clocks are ahead of
# the registry's by this much (seconds), and are set back by less.
my $ahead = 3600;
my $label = q{preset=worker_queue epoch='2025-01-01 00:00:00+00' pool=queue};
my $short = q{lease => '3 s', hold => '1 s', max_ahead => '1 s'};

# Returns the worker ID of an ID that was drawn.
sub worker_in { my ($session, $name) = @_; return $session->query_safe("SELECT (snowflake_decode(snowflake_currval('$name'), '$name')).worker_id"); }
sub next_of { return "SELECT snowflake_nextval('$_[0]')"; }

# Draws IDs of a generator, and returns their worker ID.
my (%names, $kind);
sub take
{
	my ($session, $name, $count) = @_;
	$names{"$kind $name"} = 1;
	draw($session, "$kind $name", $name) for 1 .. $count // 3;
	return worker_in($session, $name);
}

# Waits until the generator has a worker ID of the pool that its label names.
sub next_of_pool
{
	my ($session, $name, $worker, $what) = @_;
	return ok(wait_until($what, sub { take($session, $name, 1) == $worker }), $what);
}

# Runs all of it with one kind of registry.
sub run_with
{
	($kind, my ($conninfo, $administrate, $state_of)) = @_;
	$administrate->(qq{'servers', int8range(0, 8), $short});
	$administrate->(qq{'queue', int8range(100, 103), $short});
	$administrate->(qq{'many', int8range(200, 300), $short});
	my $node = new_node("main_$kind", '');
	$node->append_conf('postgresql.conf', <<"END");
snowflake_id.registry = '$conninfo'
snowflake_id.pool = 'servers'
snowflake_id.reserve_ahead = '1 s'
END
	start_with_clock($node, $ahead);
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	my $session = session($node);

	# Who may lease.
	create_generator($node, 'queued', $label);
	create_generator($node, 'plain', q{preset=default on_rollback=wait});
	my ($code, $text) = error_in($session, next_of('queued'));
	is($code, '55000', "$kind: no pool for such generators");
	like($text, qr/generator queued has no queue of worker IDs\n.*this database has no foreign server for pool "queue"\..*\nHINT:  .*CREATE SERVER queue FOREIGN DATA WRAPPER snowflake_pool/, 'the hint says what to do');
	like(shown($node, 'snowflake_generators', 'queued', 'problem'), qr/no queue of worker IDs/, 'the view tells before');
	$node->safe_psql('postgres', "CREATE SERVER $_ FOREIGN DATA WRAPPER snowflake_pool") for qw(queue many servers);
	is(shown($node, 'snowflake_generators', 'queued', 'problem'), '', 'no problem any more');
	$node->safe_psql('postgres', 'CREATE ROLE shop LOGIN; GRANT CREATE ON SCHEMA public TO shop');
	$node->safe_psql('postgres', "SELECT snowflake_create_generator('shop_ids', \$\$$label\$\$)", extra_params => [ '-U', 'shop' ]);
	($code, $text) = error_in($session, next_of('shop_ids'));
	is($code, '42501', 'the owner has no privilege, though the caller is a superuser');
	like($text, qr/HINT:  A superuser can run: GRANT USAGE ON FOREIGN SERVER queue TO shop/, 'the hint has the statement');

	# The first worker ID.
	is(take($session, 'queued'), 100, 'the head of the queue');
	is(shown($node, 'snowflake_generators', 'queued', 'worker_id'), '100', 'the view shows it');
	is(shown($node, 'snowflake_generators', 'plain', 'worker_id'), '0', 'others have that of the server');
	is(take($session, 'plain'), 0, 'and use it');
	ok(in_log($node, qr/LOG:  snowflake_id: acquired worker ID 100 from pool "queue" for generator queued of database "postgres"/), 'the log tells');
	$node->safe_psql('postgres', 'GRANT USAGE ON FOREIGN SERVER queue TO shop');
	is(take($session, 'shop_ids'), 101, 'the next generator has the next worker ID');
	create_generator($node, 'own_pool', $label =~ s/queue$/servers/r);
	($code, $text) = error_in($session, next_of('own_pool'));
	is($code, '55000', 'the pool of the server is not for generators');
	like($text, qr/pool "servers" is the one of this server\..*\nHINT:  Name a pool that is made for generators/, 'and why');

	# The clock is set back: another worker ID, at the time of the clock. Other generators
	# keep theirs.
	set_clock($node, $ahead - 600);
	is(take($session, 'queued'), 102, 'a rollback takes the next worker ID');
	ok($session->query_safe(q{SELECT abs(extract(epoch FROM clock_timestamp() - snowflake_timestamp(snowflake_currval('queued'), 'queued'))) < 60}) eq 't', 'IDs have the time of the clock');
	ok(in_log($node, qr/LOG:  snowflake_id: clock moved backwards by [^\n]*\n.*DETAIL:  Generator queued continues with worker ID 102\./), 'the log tells');
	ok(wait_until('the old one is returned', sub { $state_of->(100) eq 'released' }), 'the old worker ID goes back to the queue');
	is((error_in($session, next_of('plain')))[0], '58000', 'a generator that waits is refused');
	is(shown($node, 'snowflake_generators', 'plain', 'worker_id'), '0', 'and keeps the worker ID of the server');

	# No other worker ID is free for that time.
	($code, $text) = error_in($session, next_of('shop_ids'));
	is($code, '58000', 'none is left');
	like($text, qr/clock moved backwards by .*DETAIL:  .*Generator shop_ids gets no worker ID from pool "queue" that was not used at this time\. There is trouble since [^\n]*: Each free worker ID of the pool has been used at .*HINT:  .*IDs resume by themselves/s, 'the error says why');
	is(shown($node, 'snowflake_generators', 'shop_ids', 'worker_id'), '101', 'the generator keeps its worker ID');

	# The clock is right again: all go on with what they have.
	set_clock($node, $ahead);
	is(take($session, 'shop_ids'), 101, 'it goes on with it when the clock is right');
	is(take($session, 'queued'), 102, 'so does the one that has changed');
	is(take($session, 'plain'), 0, 'and the server');

	# What the keeper was asked before (for 3 s) is over, though worker ID 100 is free now.
	sleep 3;
	is(shown($node, 'snowflake_generators', 'shop_ids', 'worker_id'), '101', 'it gets no other worker ID, since it needs none any more');

	# Back and forth, with two sessions.
	my $other = session($node);
	set_clock($node, $ahead - 300);
	my ($code2, $text2) = error_in($session, next_of('queued'));
	is($code2, '58000', 'the first one was used until later');
	set_clock($node, $ahead + 60);
	take($other, 'queued', 20);
	set_clock($node, $ahead + 30);
	is(take($other, 'queued', 20), 100, 'the head of the queue again, after its end');
	is(take($session, 'queued', 20), 100, 'for all sessions');

	# The server is stopped, and killed: each generator has its own worker ID again.
	$session->quit;
	$other->quit;
	$node->stop;
	is($state_of->(100), 'released', 'a clean stop returns it');
	start_with_clock($node, $ahead + 60);
	$session = session($node);
	is(take($session, 'queued'), 100, 'its own worker ID after a stop');
	is(take($session, 'shop_ids'), 101, 'the other one, too');
	$node->stop('immediate');
	start_with_clock($node, $ahead + 62);
	$session = session($node);
	is(take($session, 'queued'), 100, 'its own worker ID after a crash');

	# The keeper ends.
	my $keeper = sub { $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake_id keeper'}) };
	my $pid = $keeper->();
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_until('another keeper', sub { my $new = $keeper->(); $new && $new ne $pid });
	is(take($session, 'queued'), 100, 'the next keeper goes on with it');

	# Another label takes it to another pool, and back.
	my $relabel = sub { $node->safe_psql('postgres', "SECURITY LABEL FOR snowflake_id ON SEQUENCE queued IS \$\$$_[0]\$\$") };
	$relabel->($label =~ s/queue$/many/r);
	next_of_pool($session, 'queued', 200, 'the pool that the label names');
	ok(wait_until('the old one is returned', sub { $state_of->(100) eq 'released' }), 'the old worker ID goes back to its pool');
	is(take($session, 'shop_ids'), 101, 'others keep theirs');
	$relabel->($label);
	next_of_pool($session, 'queued', 100, 'and back');
	my $shop = "SECURITY LABEL FOR snowflake_id ON SEQUENCE shop_ids IS \$\$";
	$node->safe_psql('postgres', $shop . $label =~ s/queue$/many/r . '$$');
	is((error_in($session, next_of('shop_ids')))[0], '42501', 'no other pool without the privilege');
	$node->safe_psql('postgres', "$shop$label\$\$");
	is(take($session, 'shop_ids'), 101, 'the worker ID is kept');

	# All places are taken. A restart makes those of dropped generators free.
	create_generator($node, "many_$_", $label =~ s/queue$/many/r) for 1 .. 63;
	take($session, "many_$_", 1) for 1 .. 62;
	($code, $text) = error_in($session, next_of('many_63'));
	is($code, '53400', 'there are 64 places');
	like($text, qr/HINT:  A restart of the server makes the places of dropped generators free/, 'the hint says how to have more');

	# Another label takes it to the worker ID of the server.
	$relabel->($label =~ s/pool=queue/on_rollback=wait/r);
	is(take($session, 'queued'), $node->safe_psql('postgres', 'SELECT worker_id FROM snowflake_worker'), 'without next_worker, the worker ID is that of the server');
	$session->quit;
	$node->stop;
	return;
}

my $registry = new_node('registry', 900);
$registry->start;
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
run_with('postgres', join(' ', 'host=' . $registry->host, 'port=' . $registry->port, 'dbname=postgres'),
	sub { $registry->safe_psql('postgres', "SELECT snowflake_create_pool($_[0])") },
	sub { $registry->safe_psql('postgres', "SELECT state FROM snowflake_workers WHERE worker_id = $_[0]") });

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
		sub { $viewer->safe_psql('postgres', "SELECT snowflake_create_pool($_[0])") },
		sub { $viewer->safe_psql('postgres', "SELECT state FROM snowflake_workers WHERE worker_id = $_[0]") });
}
check_unique($_) for sort keys %names;
done_testing();
