# Tests the registry of worker IDs: many servers at once, crashes, promotions, dumps,
# clocks that are set back. The test makes the servers' requests.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Registry;
use Snowflake;

my $main = new_node('main', 7, allows_streaming => 1);
$main->append_conf('postgresql.conf', "restart_after_crash = on\nmax_connections = 50");
start_with_clock($main, 0);
$main->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE ROLE node LOGIN;
	SELECT snowflake_create_pool('eight', '[0,8)');
	SELECT snowflake_create_pool('many', '[100,260)');
	SELECT snowflake_create_pool('main', '[1000,1100)', unused => true);
	SELECT snowflake_create_pool('short', '[2000,2001]', lease => '1 s', hold => '1 s', max_ahead => '1 s');
	SELECT snowflake_create_registry('node')});
sub pools { my ($node, $columns, $database) = @_;
	return $node->safe_psql($database // 'postgres', "SELECT DISTINCT $columns FROM snowflake_pools WHERE pool = 'main'"); }
sub leases { my ($node, $database) = @_;
	return $node->safe_psql($database // 'postgres', 'SELECT * FROM _snowflake.leases ORDER BY 1, 2'); }

# Eight servers at once get the eight worker IDs of a pool, 20 times over.
my @sessions = map { session($main, 'node') } 1 .. 8;
my @wrong;
for my $round (1 .. 20)
{
	my @servers = map { server(10 * $round + $_) } 0 .. 7;
	send_to($sessions[$_], "SELECT _snowflake.lease('eight', '" . request($servers[$_], { acquire => {} }) . "')") for 0 .. 7;
	my @ids;
	for my $n (0 .. 7)
	{
		my (undef, $error, $text) = answer_in($sessions[$n]);
		die $error if $error ne '';
		push @ids, granted(Registry::take_in($servers[$n], $text));
	}
	push @wrong, "round $round: @ids" if join(' ', sort @ids) ne '0 1 2 3 4 5 6 7';
	is(kind(acquire($main, server(999), pool => 'eight')), 'refused none_free', 'and no ninth one') if $round == 1;
	release($main, $_, pool => 'eight', role => 'node') for @servers;
}
is("@wrong", '', 'eight servers get eight worker IDs, 20 times');
$_->quit for @sessions;

# The same without a pause between the requests.
$main->safe_psql('postgres', q{
	CREATE TABLE got (worker int);
	GRANT INSERT ON got TO node;
	CREATE SEQUENCE servers;
	GRANT USAGE ON servers TO node});
my $template = request(server(0), { acquire => {} });
$template =~ s/"nonce":"\w+"/"nonce":"%2\$s"/ or die $template;
$template =~ s/"inode":\d+/"inode":%1\$s/ or die $template;
my $script = PostgreSQL::Test::Utils::tempdir() . '/acquire.sql';
append_to_file($script, qq{
SELECT nextval('servers') AS server \\gset
INSERT INTO got SELECT (_snowflake.lease('many', format('$template', :server, lpad(:server::text, 32, 'a'))::jsonb)
	#>> '{answer,granted,worker}')::int;
});
$main->command_ok([ 'pgbench', '-n', '-U', 'node', '-c', 8, '-j', 2, '-t', 20, '-f', $script, $main->connstr('postgres') ],
	'eight clients, 20 servers each');
is($main->safe_psql('postgres', 'SELECT count(*), count(DISTINCT worker), min(worker), max(worker) FROM got'),
	'160|160|100|259', 'get 160 worker IDs');

# A lease that is not renewed: kept for the holder for the hold, then anybody's.
my ($first, $second) = (server(1), server(2));
my $id = granted(acquire($main, $first, pool => 'short', role => 'node'));
is(kind(acquire($main, $second, fixed => $id, pool => 'short')), 'refused held', 'a fixed worker ID that another server has');
my $held = refusal(acquire($main, $second, fixed => $id, pool => 'short'));
is($held->{by}{host}, 'host1', 'and who has it');
for my $state ('expired', 'free')
{
	ok(wait_until("$state", sub {
		$main->safe_psql('postgres', "SELECT state FROM snowflake_workers WHERE worker_id = $id") eq $state }), "unused: $state");
}
# The registry has heard nobody meanwhile, for longer than 3 s, so that the first was silent means nothing: it gets its
# time again.
sleep 2;
is(kind(acquire($main, $second, fixed => $id, pool => 'short')), 'refused held', 'nobody was heard: not at once');
ok(wait_until('taken over', sub { kind(acquire($main, $second, fixed => $id, pool => 'short')) eq 'granted' }), 'another server takes over');
cmp_ok($second->{grant}{floor}, '>=', $first->{grant}{bound}, 'and begins where the first must have ended');
my $answer = renew($main, $first, pool => 'short');
is(kind($answer), 'refused fenced taken_over', 'the first one is told');
is(refusal($answer)->{by}{host}, 'host2', 'by whom');
# The next incarnation of a server takes its worker ID over at once; an older one does
# not.
my $later = incarnation($second);
is(granted(acquire($main, $later, pool => 'short')), $id, 'a restarted server gets its worker ID back');
is(kind(renew($main, $second, pool => 'short')), 'refused fenced taken_over', 'its earlier incarnation does not');

# A worker ID is revoked: not renewed, and free when the lease and the hold have passed,
# which are two seconds. A busy machine may need longer to ask, and then asks again.
my ($revoked, $said, $quick);
for my $try (1 .. 5)
{
	my $from = time;
	$revoked = server(3);
	$id = granted(acquire($main, $revoked, pool => 'short'));
	$main->safe_psql('postgres', "SELECT snowflake_revoke_worker('short', $id)");
	$said = join ', ', $main->safe_psql('postgres', "SELECT state FROM snowflake_workers WHERE worker_id = $id"),
		kind(renew($main, $revoked, pool => 'short')), kind(acquire($main, server(4), fixed => $id, pool => 'short'));
	last if time - $from < 2;
	# Somebody may have got it: his lease ends too.
	wait_until('free again', sub { $main->safe_psql('postgres', "SELECT state FROM snowflake_workers WHERE worker_id = $id") eq 'free' });
}
is($said, 'revoked, refused fenced revoked, refused held', 'revoked, its holder is told, and nobody gets it at once');
my $heir = server(4);
ok(wait_until('free again', sub { kind(acquire($main, $heir, fixed => $id, pool => 'short')) eq 'granted' }), 'but soon');
cmp_ok($heir->{grant}{floor}, '>=', $revoked->{grant}{bound}, 'above what its holder may have issued');

# A pool is not dropped while a server may use it.
my ($code, $text) = error_of($main, q{SELECT snowflake_drop_pool('short')});
is($code, '55006', 'a pool in use is not dropped');
like($text, qr/worker ID $id\b.*host4, port 5432/s, 'and who uses it');
renew($main, $heir, pool => 'short');
is(release($main, $heir, pool => 'short'), 'released', 'released');
ok(wait_until('dropped', sub { (error_of($main, q{SELECT snowflake_drop_pool('short')}))[0] eq '' }), 'then it is');
# A later pool goes on where the dropped one was.
$main->safe_psql('postgres', q{SELECT snowflake_create_pool('short', '[2000,2001]', lease => '1 s', hold => '1 s', max_ahead => '0')});
my $next = server(5);
is(granted(acquire($main, $next, fixed => $id, pool => 'short')), $id, 'a later pool has the worker ID');
cmp_ok($next->{grant}{counter}, '>', $heir->{grant}{counter}, 'and counts its leases on');
# A server of the dropped pool that wakes up is told, and no loss is taken from it.
is(kind(renew($main, $heir, pool => 'short')), 'refused fenced taken_over', 'a server of the dropped pool is told');
is(pools($main, 'era'), 1, 'nothing is lost so far');

# A clean restart loses nothing, a crash of a server process neither: the postmaster
# lives, so its data are those it had.
my $holder = server(20);
granted(acquire($main, $holder));
$main->stop;
start_with_clock($main, 0);
is(kind(renew($main, $holder)), 'renewed', 'clean restart: renewed');
is(kind(acquire($main, server(21))), 'granted', 'clean restart: no grace period');
my $start = $main->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $victim = session($main);
my $pid = $victim->query_safe('SELECT pg_backend_pid()');
kill 'KILL', $pid;
# A psql that the server refuses may end before it has taken the statement, for which psql() dies.
ok(wait_until('back', sub { my $out;
	eval { $main->psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", stdout => \$out) == 0 && $out eq '0' } }), 'a backend is killed');
eval { $victim->{run}->kill_kill };
like(in_log($main, 'all server processes terminated; reinitializing'), qr/[1-9]/, 'all processes started anew');
is($main->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $start, 'under the same postmaster');
is(kind(renew($main, $holder)), 'renewed', 'crash of a process: renewed');
is(kind(acquire($main, server(22))), 'granted', 'crash of a process: no grace period');
is(pools($main, 'era'), 1, 'crash of a process: nothing is lost');

# A crash whose witness is gone, as after a boot: grants are durable, whatever the session has set.
my $careless = session($main, 'node');
$careless->query_safe('SET synchronous_commit = off');
my $durable = server(23);
my $reply = $careless->query_safe("SELECT _snowflake.lease('main', '" . request($durable, { acquire => {} }) . "')");
$main->stop('immediate');
eval { $careless->{run}->kill_kill };
Registry::take_in($durable, $reply);
unlink witnesses($main);
start_with_clock($main, 0);
is(kind(renew($main, $durable, role => 'node')), 'renewed', 'crash: a grant is not lost');
is(pools($main, q{era, grace_because, grace_until > clock_timestamp()}), '2|recovery|t', 'crash: a grace period begins');
is(kind(acquire($main, server(24))), 'refused grace recovery', 'no worker ID for a new server');
# The next incarnation of a server that has one.
$durable = incarnation($durable);
is(kind(acquire($main, $durable, role => 'node')), 'granted', 'a server that has restarted goes on');
$main->safe_psql('postgres', 'SELECT snowflake_end_grace_period()');
my $new = server(24);
is(kind(acquire($main, $new)), 'granted', 'the grace period is ended');
cmp_ok($new->{grant}{floor}, '>', int(time) * 1000 + 60_000, 'and a new lease begins above what may be lost');
is(pools($main, 'grace_until, grace_because'), '|', 'and no grace period is shown');

# The clock of the registry is set back by an hour: who asks for a worker ID does not wait for it.
set_back($main, 3600);
is(kind(renew($main, $durable, role => 'node')), 'renewed', 'clock set back: renewed');
is(kind(acquire($main, server(25), fixed => 1)), 'refused not_in_pool', 'clock set back: a worker ID is asked for');
is($main->safe_psql('postgres', q{SELECT count(*) FROM snowflake_workers
	WHERE worker_id BETWEEN 1000 AND 1099 AND leased_until > clock_timestamp() + interval '31 s'}), 0, 'no lease is longer than a lease');
# Nor does a new pool begin in an hour, unless its worker IDs may have been used.
for (['set back', 'true', 'f'], ['set back, too', 'false', 't']) {
	my ($pool, $unused, $later) = @$_;
	my $warned;
	$main->psql('postgres', qq{SELECT snowflake_create_pool('$pool', '[0,8)', namespace => '$pool', unused => $unused)}, stderr => \$warned);
	is($warned =~ /WARNING:  IDs of pool "\Q$pool\E" begin after 20.*, ahead of the clock\n.*It is wrong now, or was wrong then\.\n.*unused => true/s ? 't' : 'f',
		$later, "a warning, with unused => $unused");
	is($main->safe_psql('postgres', qq{SELECT made > clock_timestamp() + interval '50 min' FROM snowflake_pools WHERE pool = '$pool'}), $later, 'when it begins');
	$main->safe_psql('postgres', qq{SELECT snowflake_drop_pool('$pool')});
}
set_clock($main, 0);

# A standby serves nobody, and shows what its primary has.
$main->backup('standby');
sub standby { my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($main, 'standby', has_streaming => 1);
	$node->start;
	return $node; }
my $standby = standby('standby');
$main->wait_for_catchup($standby);
($code, $text) = error_of($standby, "SELECT _snowflake.lease('main', '" . request(server(30), { acquire => {} }) . "')");
is($code, '25006', 'a standby serves nobody');
is((error_of($standby, 'SELECT snowflake_end_grace_period()'))[0], '25006', 'and nobody administers it');
is($standby->safe_psql('postgres', q{SELECT * FROM snowflake_workers WHERE pool <> 'short' ORDER BY pool, worker_id}),
	$main->safe_psql('postgres', q{SELECT * FROM snowflake_workers WHERE pool <> 'short' ORDER BY pool, worker_id}), 'its views show the leases');

# The standby is promoted, and has lost the last lease.
my ($known, $lost) = (server(31), server(32));
granted(acquire($main, $known));
$main->wait_for_catchup($standby);
$standby->stop;
my $lost_id = granted(acquire($main, $lost));
my $old_bound = $lost->{grant}{bound};
# The standby does not find its primary any more.
$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
$standby->start;
$standby->promote;
is(kind(renew($standby, $known)), 'renewed', 'promotion: a server that it knows goes on');
is(pools($standby, 'era, grace_because'), '3|origin', 'promotion: a grace period begins');
is(kind(acquire($standby, server(33))), 'refused grace origin', 'promotion: no worker ID for a new server');
$lost->{holder}{started} += 1;
# Who remembers a lease would keep it.
$lost->{memory} = undef;
is(kind(renew($standby, $lost)), 'refused fenced lost', 'promotion: a lease is lost');
is(kind(acquire($standby, $lost, last => $lost_id)),
	'refused grace origin', 'promotion: its server waits');
$standby->safe_psql('postgres', 'SELECT snowflake_end_grace_period()');
my $next_holder = server(35);
is(granted(acquire($standby, $next_holder, fixed => $lost_id)), $lost_id, 'the lost worker ID is leased again');
cmp_ok($next_holder->{grant}{floor}, '>', $old_bound, 'above what its holder may have issued');

# The former primary lives: a server that has asked the new one makes it stop.
is(kind(renew($main, $known)), 'refused stopped', 'the former primary hears of the new one');
is(kind(renew($main, $holder)), 'refused stopped', 'and serves nobody');
is(pools($main, 'stopped_since IS NOT NULL, stopped_by'), 't|host31', 'as its view says');
is(pools($standby, 'stopped_since IS NULL'), 't', 'the new one serves');
# An administrator declares that it counts after all.
$main->safe_psql('postgres', 'SELECT snowflake_declare_registry()');
is(pools($main, 'stopped_since IS NULL, grace_because'), 't|declared', 'declared: it serves again, after a grace period');
is(kind(renew($main, $known)), 'renewed', 'declared: and renews');
is(kind(renew($standby, $known)), 'refused stopped', 'declared: the other one stops when it hears of it');
$standby->stop;

# The owner of a database dumps it, and restores it into another one. A dump has no leases:
# they would be those of the past. A superuser makes the pools again by the calls that the
# registry printed, and declares that this registry counts from now on.
$main->safe_psql('postgres', 'CREATE ROLE keeper LOGIN; CREATE DATABASE shop OWNER keeper; CREATE DATABASE restored OWNER keeper');
$main->safe_psql('shop', 'CREATE EXTENSION snowflake_id', extra_params => [ '-U', 'keeper' ]);
$main->safe_psql('shop', q{SELECT snowflake_create_pool('main', '[0,10)', except_ids => '{[2,4)}', namespace => 'n')});
my ($shop, $gone) = (server(40), server(41));
granted(acquire($main, $_, database => 'shop')) for $shop, $gone;
release($main, $gone, database => 'shop');
my $bound = $shop->{grant}{bound};
my $calls = $main->safe_psql('shop', 'SELECT _snowflake.pool_calls()');
my $file = PostgreSQL::Test::Utils::tempdir() . '/shop.sql';
$main->command_ok([ 'pg_dump', '-U', 'keeper', '-f', $file, 'shop' ], 'dumped by the owner of the database');
$main->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', 'keeper', '-d', 'restored', '-f', $file ], 'restored by the owner');
isnt(leases($main, 'shop'), '', 'there are leases');
is(leases($main, 'restored'), '', 'restored: and none in the dump');
is((error_of($main, 'SET ROLE keeper; SELECT _snowflake.pool_calls()', 'shop'))[0], '42501', 'restored: the owner may not read the pools');
$main->safe_psql('restored', $calls);
is($main->safe_psql('restored', 'SELECT pool, namespace, worker_ids, except_ids, lease, hold, max_ahead FROM snowflake_pools'),
	'main|n|[0,10)|{[2,4)}|00:10:00|00:00:30|00:01:00', 'restored: the calls make the pools again');
$main->safe_psql('restored', 'SELECT snowflake_declare_registry()');
like(kind(acquire($main, server(42), database => 'restored')), qr/^refused grace/, 'restored: no new lease at once');
isnt(kind(renew($main, $shop, database => 'restored')), 'renewed', 'restored: a lease that it does not know is not renewed');
$main->safe_psql('restored', 'SELECT snowflake_end_grace_period()');
my $again = acquire($main, $shop, database => 'restored');
granted($again);
cmp_ok($again->{granted}{floor}, '>=', $bound, 'restored: the next lease begins behind all that the server has issued');
# A registry whose pools were made again has a key of its own, so the original does not
# believe what its servers remember, and goes on.
is(kind(acquire($main, $shop, database => 'shop')), 'refused foreign', 'restored: the original does not know the other one');
is(pools($main, 'stopped_since IS NULL', 'shop'), 't', 'restored: and is not stopped by it');
# A copy of the database has the key.
$main->safe_psql('postgres', 'CREATE DATABASE twin TEMPLATE shop');
my $both = server(45);
is(kind(acquire($main, $both, database => $_)), 'refused ' . ($_ eq 'twin' ? 'grace origin' : 'stopped'), "a server that asks a copied database and the original: $_")
  for 'twin', 'shop';
# A copy of the database.
$main->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE restored');
is(kind(acquire($main, server(43), database => 'copy')), 'refused grace origin', 'a copied database has a grace period of its own');

# Names that are not ASCII, in a database of another encoding and in another schema.
$main->safe_psql('postgres', q{CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0});
{
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	my ($schema, $pool) = ("\"Schl\xc3\xbcssel\"", "h\xc3\xb6he");
	$main->safe_psql('latin', qq{CREATE SCHEMA $schema; CREATE EXTENSION snowflake_id SCHEMA $schema;
		SELECT $schema.snowflake_create_pool('$pool', '[0,4)')});
	# encode_json writes UTF-8.
	my $foreign = server(50, host => "m\x{fc}ller");
	my $ask = request($foreign, { acquire => {} });
	granted(Registry::take_in($foreign, $main->safe_psql('latin', "SELECT _snowflake.lease('$pool', '$ask')")));
	is($main->safe_psql('latin', "SELECT pool, host FROM $schema.snowflake_workers"), "$pool|m\xc3\xbcller", 'names in LATIN1');
	$ask = request(server(51), { acquire => { fixed => $foreign->{grant}{worker} } });
	my $text = $main->safe_psql('latin', "SELECT _snowflake.lease('$pool', '$ask')");
	is(decode_json($text)->{answer}{refused}{held}{by}{host}, "m\x{fc}ller", 'and in a reply');
}

# Without the library preloaded the registry works, but cannot tell a clean stop: each
# start may have lost leases, unless the witness knows better.
my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init;
$plain->start;
$plain->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('main', '[0,4)')});
my $there = server(60);
granted(acquire($plain, $there));
is(pools($plain, 'era'), 1, 'not preloaded: leases');
$plain->restart;
is(kind(renew($plain, $there)), 'renewed', 'not preloaded: renews after a restart');
is(pools($plain, 'era'), 1, 'not preloaded: and has lost nothing');
$plain->stop;
unlink witnesses($plain);
$plain->start;
is(kind(renew($plain, $there)), 'renewed', 'not preloaded: renews after a boot');
is(pools($plain, 'era, grace_because'), '2|recovery', 'not preloaded: but has a grace period');

done_testing();
