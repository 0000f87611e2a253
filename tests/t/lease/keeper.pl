# Tests the keeper on real servers: a worker ID is leased, renewed and returned; it
# outlives crashes of server and keeper, an outage of the registry and a promotion; a
# fixed worker ID is claimed; a reload moves a server to a registry and back. All IDs of
# all servers are collected, and none is issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $registry = new_node('registry', 900, allows_streaming => 0);
$registry->start;
my $admin = session($registry);
$admin->query_safe('CREATE EXTENSION snowflake_id');
$admin->query_safe(q{SELECT snowflake_create_pool('default', int8range(0, 16), lease => '3 s', hold => '1 s', max_ahead => '1 s')});
$admin->query_safe(q{SELECT snowflake_create_pool('one', int8range(20, 21), lease => '3 s', hold => '1 s', max_ahead => '1 s')});
$admin->query_safe(q{SELECT snowflake_create_pool('long', int8range(30, 40), max_ahead => '1 s')});
$admin->query_safe(q{SELECT snowflake_create_pool('wide', int8range(1020, 1030), lease => '3 s', hold => '1 s', max_ahead => '1 s')});

# All IDs of all servers.
my (@all, @nodes);

sub conninfo { return join ' ', 'host=' . $registry->host, 'port=' . $registry->port, 'dbname=postgres'; }

# Makes a server that has a registry, and starts it.
sub new_leasing
{
	my ($name, $worker, $pool, %options) = @_;
	my $node = new_node($name, $worker, %options);
	my $conninfo = conninfo();
	$node->append_conf('postgresql.conf', <<"END");
snowflake_id.registry = '$conninfo'
snowflake_id.pool = '$pool'
restart_after_crash = on
END
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	push @nodes, $node;
	return $node;
}

# Draws IDs, and returns their worker ID.
sub take
{
	my ($node, $count) = @_;
	my @ids = ids($node, $count // 50);
	push @all, \@ids;
	return $node->safe_psql('postgres', "SELECT (snowflake_decode($ids[-1])).worker_id");
}

# Returns a column of snowflake_worker.
sub worker { my ($node, $column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM snowflake_worker"); }

# Returns a column of snowflake_workers, of the registry.
sub row { my ($id, $column) = @_; return $admin->query_safe("SELECT $column FROM snowflake_workers WHERE worker_id = $id"); }

sub keeper { return $_[0]->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake_id keeper'}); }

# Waits until the lease of a server is renewed again, so many times.
sub renewals
{
	my ($node, $count) = @_;
	for (1 .. $count)
	{
		my $bound = worker($node, 'bound');
		wait_until('a renewal', sub { worker($node, "bound > '$bound'") eq 't' });
	}
	return;
}

# Sets a setting, and reloads.
sub set
{
	my ($node, $name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	return;
}

# A lease.
my $a = new_leasing('a', '', 'default');
is(take($a), 0, 'the first server has the first worker ID');
is(worker($a, q{concat_ws(' ', worker_id, source, pool, last_error)}), '0 registry default', 'the view of the node');
is(worker($a, 'token'), row(0, 'token'), 'node and registry have the same token');
ok(worker($a, 'bound > clock_timestamp() AND leased_until > clock_timestamp() AND since < clock_timestamp()') eq 't', 'bound and lease');
like(worker($a, 'registry'), qr/^host=\S+ port=\d+ dbname=postgres$/, 'where the registry is');
is(row(0, q{concat_ws(' ', state, port, data_directory)}), join(' ', 'leased', $a->port, $a->data_dir), 'the view of the registry');
is(in_log($a, qr/LOG:  snowflake_id: acquired worker ID 0 from pool "default"\n.*DETAIL:  The registry is host=/), 1, 'the log tells once');
ok(wait_until('pg_stat_activity shows the keeper, and that it waits', sub {
	$a->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'snowflake_id keeper' AND wait_event_type = 'Extension'}) }), 'pg_stat_activity shows the keeper');
$a->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
is($a->safe_psql('postgres', 'SELECT worker_id, registry, token, last_error FROM snowflake_worker', extra_params => [ '-U', 'nobody' ]),
	'0|||', 'others see no more than the worker ID');

# Renewals.
my $bound = worker($a, 'bound');
wait_until('a renewal', sub { worker($a, "bound > '$bound'") eq 't' });
is(take($a), 0, 'the same worker ID');
is(in_log($a, qr/acquired worker ID/), 1, 'renewals are not logged');

# The keeper ends, and another one goes on.
my ($token, $pid) = (worker($a, 'token'), keeper($a));
$a->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
take($a);
wait_until('another keeper', sub { my $new = keeper($a); $new && $new ne $pid });
$bound = worker($a, 'bound');
wait_until('it renews', sub { worker($a, "bound > '$bound'") eq 't' });
is(worker($a, 'token'), $token, 'a keeper that is started anew goes on with the same lease');
is(in_log($a, qr/acquired worker ID/), 1, 'and acquires nothing');

# A role that moves its own generator beyond all that a registry gives stops no other one.
create_generator($a, 'far', q{layout='time:41 worker:10 sequence:12' epoch=2025-01-01Z max_rollback='30 d'});
$a->safe_psql('postgres', q{SELECT setval('far', (extract(epoch FROM now() + interval '3 days') * 1000)::bigint)});
my ($code, $text) = error_of($a, q{SELECT snowflake_nextval('far')});
is($code, '58000', 'a generator that is days ahead does not start');
$a->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
($code, $text) = error_of($a, q{SELECT snowflake_nextval('far')});
is($code, '55000', 'nor does it when a superuser accepts it');
$bound = worker($a, 'bound');
ok(wait_until('it is renewed', sub { worker($a, "bound > '$bound'") eq 't' }), 'the others go on');
is(worker($a, 'last_error'), '', 'without trouble');
is(take($a), 0, 'and have IDs');

# A role that may set the mark of one generator moves no other one, not after a restart either.
create_generator($a, 'near', q{layout='time:41 worker:10 sequence:12' epoch=2025-01-01Z});
$a->safe_psql('postgres', 'CREATE ROLE setter LOGIN; GRANT USAGE, UPDATE ON SEQUENCE near TO setter');
my $setter = session($a, 'setter');
$setter->query_safe(q{SELECT setval('near', (extract(epoch FROM now() + interval '23 hours') * 1000)::bigint)});
($code, $text) = error_in($setter, q{SELECT snowflake_nextval('near')});
is($code, '58000', 'a generator does not start at a mark that was set a day ahead');
like($text, qr/generator near would start 22 h 59 min .* ahead of the clock.*its other generators would follow/s, 'why');
my ($back) = $text =~ /(SELECT setval\('near', \d+\))/;
my $is_near = q{SELECT snowflake_timestamp(snowflake_nextval()) < clock_timestamp() + interval '1 minute'};
sub at_now { return worker($a, q{bound < clock_timestamp() + interval '1 minute'}) . $a->safe_psql('postgres', $is_near); }
is(at_now(), 'tt', 'the bound and the default generator stay where they are');
$setter->quit;
$a->restart;
is(take($a), 0, 'after a restart');
is(at_now(), 'tt', 'they do, too');
($code) = error_of($a, q{SELECT snowflake_nextval('near')});
is($code, '58000', 'and the generator still does not start');
$setter = session($a, 'setter');
$setter->query_safe($back);
is((error_in($setter, q{SELECT snowflake_nextval('near')}))[0], '', 'until its mark is set back as the hint says');
$setter->quit;

# A second server, and a fixed worker ID that is in use.
my $b = new_leasing('b', '', 'default');
is(take($b), 1, 'the second server has the second worker ID');
my $c = new_leasing('c', 1, 'default');
($code, $text) = error_of($c, 'SELECT snowflake_nextval()');
is($code, '55006', 'a fixed worker ID that another server holds');
like($text, qr/worker ID 1 belongs to another server/, 'which one');
my ($there, $port) = ($b->data_dir, $b->port);
like($text, qr/DETAIL:  Worker ID 1 belongs to the server on host "[^"]+".*, port $port, data directory "\Q$there\E", since \d{4}-/, 'who holds it, where, since when');
like(worker($c, 'last_error'), qr/^Worker ID 1 belongs to the server on host/, 'the view says so');
is(in_log($c, qr/WARNING:  snowflake_id: could not claim worker ID 1 in pool "default"\n.*DETAIL:  .*Worker ID 1 belongs to the server on host/), 1, 'and the log, once');
is(worker($c, 'source'), 'none', 'it has no worker ID');
$b->stop;
wait_until('the fixed worker ID is free', sub { worker($c, 'worker_id') eq '1' });
is(take($c), 1, 'it is granted without a restart');
is(worker($c, 'source'), 'setting', 'its source');
is(in_log($b, qr/LOG:  snowflake_id: returned worker ID 1 to pool "default"/), 1, 'a clean stop returns it');
$b->start;
is(take($b), 2, 'a server whose worker ID was taken gets another one');

# A crash of the server, and one of the keeper.
$a->stop('immediate');
$a->start;
like(take($a), qr/^\d+$/, 'after a crash, a server has a worker ID at once: its own one, or one whose time has passed');
my $before = in_log($a, qr/acquired worker ID \d/);
kill 'KILL', keeper($a);
wait_until('the crash restart', sub { in_log($a, qr/acquired worker ID \d/) > $before && $a->poll_query_until('postgres', 'SELECT true') });
like(take($a), qr/^\d+$/, 'after a crash of the keeper, too');

# The registry is away for longer than a lease.
my $session = session($b);
$admin->quit;
$registry->stop;
wait_until('IDs stop at the bound', sub {
	my ($code, $text) = error_in($session, 'SELECT snowflake_nextval()');
	$code && is($code, '55000', 'SQLSTATE') && like($text, qr/has not renewed the lease of this server.*The registry has been unreachable since/s, 'why') });
like(worker($b, 'last_error'), qr/^Could not connect: .*\.$/, 'the view says why');
is(in_log($b, qr/WARNING:  snowflake_id: could not renew worker ID 2\n/), 1, 'the log says so once');
wait_until('the log tells of the end', sub { in_log($b, qr/WARNING:  snowflake_id: no IDs are issued any more under worker ID 2: its lease ended at [^\n]*\n[^\n]*DETAIL:  Could not connect: /) });
# A role that does not see the view does not see the registry's address either.
$b->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
my $nobody = session($b, 'nobody');
($code, $text) = error_in($nobody, 'SELECT snowflake_nextval()');
is($code, '55000', 'others have no IDs either');
like($text, qr/The registry has been unreachable since \d{4}-.*The registry cannot be asked; members of pg_monitor see more/, 'and are told less');
$nobody->quit;
$registry->start;
$admin = session($registry);
wait_until('IDs resume by themselves', sub { error_in($session, 'SELECT snowflake_nextval()') eq '' });
wait_until('the log says so', sub { in_log($b, qr/LOG:  snowflake_id: renewed worker ID 2 again after /) == 1 });
is(take($b), 2, 'with the same worker ID');
is(worker($b, 'last_error'), '', 'no trouble is left');
$session->quit;

# One worker ID for two servers.
my $d = new_leasing('d', '', 'one');
is(take($d), 20, 'the only worker ID of a pool');
my $e = new_leasing('e', '', 'one');
($code, $text) = error_of($e, 'SELECT snowflake_nextval()');
is($code, '55000', 'no worker ID is left');
like($text, qr/this server has no worker ID.*All worker IDs of the pool belong to other servers\..*snowflake_status\(\) says what helps/s, 'why, and what to look at');
is(in_log($e, qr/All worker IDs of the pool belong .*\n.*HINT:  View snowflake_workers of the registry shows which servers have them\./), 1, 'the log says what helps');
$d->stop;
wait_until('the other server has it', sub { worker($e, 'worker_id') eq '20' });
is(take($e), 20, 'as soon as it is returned');

# A server that is frozen for longer than its lease.
$session = session($e);
push @all, [ split /\n/, $session->query_safe('SELECT snowflake_nextval() FROM generate_series(1, 10)') ];
$d->start;
my ($postmaster) = slurp_file($e->data_dir . '/postmaster.pid') =~ /^(\d+)/;
my @frozen = ($postmaster, split ' ', `ps -o pid= --ppid $postmaster`);
kill 'STOP', @frozen;
wait_until('another server has its worker ID', sub { worker($d, 'worker_id') eq '20' });
is(take($d), 20, 'the worker ID of a frozen server goes to another one');
kill 'CONT', @frozen;
wait_until('the server is told', sub {
	in_log($e, qr/WARNING:  snowflake_id: lost worker ID 20\n.*DETAIL:  Another server got it\. It went to the server on host/) });
($code, $text) = error_in($session, 'SELECT snowflake_nextval()');
is($code, '55000', 'which issues nothing then');
wait_until('the log says that there is no other worker ID', sub {
	in_log($e, qr/WARNING:  snowflake_id: could not acquire a worker ID from pool "one"\n.*All worker IDs of the pool belong to other servers\./) == 2 });
is(in_log($e, qr/lost worker ID 20\n/), 1, 'and that it was lost, once');
like($text, qr/All worker IDs of the pool belong to other servers|Another server got it/, 'and says why');
$d->stop;
wait_until('the worker ID comes back', sub { error_in($session, 'SELECT snowflake_nextval()') eq '' });
is(take($e), 20, 'with a floor above the IDs of the other one');
$session->quit;
$e->stop;

# A server stops before it knows that its worker ID was revoked.
my $late = new_leasing('late', '', 'long');
is(take($late), 30, 'a lease that is renewed seldom');
$admin->query_safe(q{SELECT snowflake_revoke_worker('long', 30)});
$late->stop;
is(in_log($late, qr/WARNING:  snowflake_id: lost worker ID 30\n.*DETAIL:  It was revoked at the registry\.$/m), 1, 'its log says so');
is(in_log($late, qr/return(?:ed)? worker ID 30/), 0, 'and that it returned nothing');

# A pool whose worker IDs do not fit.
my $f = new_leasing('f', '', 'wide');
is(take($f), 1020, 'a worker ID that fits');
like($f->safe_psql('postgres', q{SELECT problem FROM snowflake_generators}),
	qr/cannot hold all worker IDs of pool "wide".*up to 1029.*0 to 1023/, 'the view tells that others do not');
$admin->query_safe(q{SELECT snowflake_create_pool('beyond', int8range(1030, 1040))});
set($f, 'snowflake_id.pool', 'beyond');
wait_until('a worker ID that does not fit', sub { worker($f, 'worker_id') eq '1030' });
($code, $text) = error_of($f, 'SELECT snowflake_nextval()');
is($code, '22023', 'it is refused');
like($text, qr/worker ID 1030 is out of range.*HINT:  Set "snowflake_id\.pool" to a pool whose worker IDs are from 0 to 1023/s, 'another pool is the way out');
$f->stop;

# A standby has no lease; promoted, it has its own.
my $g = new_leasing('g', '', 'default', allows_streaming => 1);
my $own = take($g);
$g->backup('standby');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($g, 'standby', has_streaming => 1);
$standby->start;
is(keeper($standby), '', 'a standby has no keeper');
$g->wait_for_catchup($standby);
$standby->promote;
isnt(take($standby), $own, 'a promoted server has another worker ID than its primary');
is(take($g), $own, 'which goes on');
$standby->stop;
$g->stop;

# Settings that are wrong, and put right by a reload.
my $h = new_leasing('h', '', 'nowhere');
($code, $text) = error_of($h, 'SELECT snowflake_nextval()');
is($code, '55000', 'a pool that does not exist');
like($text, qr/SQLSTATE 42704: pool "nowhere" does not exist/, 'is named');
# A text that is no conninfo, and a password: refused, and shown nowhere, since the log has
# what a reload changes.
my $file = $h->data_dir . '/wrong.conf';
append_to_file($h->data_dir . '/postgresql.conf', "include_if_exists = 'wrong.conf'\n");
for my $wrong ('host=/nowhere hunter2', 'host=/nowhere password=hunter2', 'postgresql://u:hunter2@nowhere/d', 'postgresql://nowhere/d?password=hunter2',
	'host=/nowhere sslpassword=hunter2', 'password=my hunter2', 'dbname=\'\'password=hunter2\'\'')
{
	($code, $text) = error_of($h, "ALTER SYSTEM SET snowflake_id.registry = '$wrong'");
	is($code, '22023', "refused: $wrong");
	like($text, qr/invalid value for parameter "snowflake_id\.registry"\nDETAIL:  It (has a password|is neither)/, 'with a reason');
	unlike($text, qr/hunter2/, 'the error does not show it');
	my $logged = -s $h->logfile;
	append_to_file($file, "snowflake_id.registry = '" . $wrong =~ s/hunter2/hunter3/r . "'\n");
	$h->reload;
	wait_until('a reload', sub { $h->log_contains(qr/wrong\.conf" contains errors/, $logged) });
	unlink $file;
}
is(in_log($h, qr/hunter3/), 0, 'nor does the log');
is(in_log($h, qr/LOG:  invalid value for parameter "snowflake_id\.registry"\n/), 7, 'which says what is wrong');
my $passwords = $h->data_dir . '/passwords';
append_to_file($passwords, "*:*:*:node:geheim\n");
chmod 0600, $passwords;
$admin->query_safe(q{CREATE ROLE node LOGIN PASSWORD 'geheim'; SELECT snowflake_create_registry('node')});
$registry->append_conf('pg_hba.conf', 'local all all trust');
my $hba = slurp_file($registry->data_dir . '/pg_hba.conf');
unlink $registry->data_dir . '/pg_hba.conf';
append_to_file($registry->data_dir . '/pg_hba.conf', "local all node scram-sha-256\n$hba");
$registry->reload;
$h->safe_psql('postgres', q{ALTER SYSTEM SET snowflake_id.pool = 'default'});
set($h, 'snowflake_id.registry', conninfo() . ' user=node');
wait_until('no password', sub { worker($h, 'last_error') =~ /^Could not connect: .*no password supplied/ });
set($h, 'snowflake_id.registry', conninfo() . " user=node passfile=$passwords");
wait_until('a password file', sub { worker($h, 'worker_id') ne '' });
take($h);
is(worker($h, 'last_error'), '', 'no trouble is left');
$h->stop;

# The registry's database has another function in the place of the extension's: it is not
# called, since it would run as this server's role, and could answer anything. PostgreSQL runs an
# immutable function while it plans.
$admin->query_safe(q{CREATE FUNCTION tell() RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RAISE LOG 'planted'; RETURN '{}'; END$$});
my %planted = (
	volatile => q{LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'planted'; RETURN jsonb_set(_snowflake.right_lease(pool, request), '{number}', '999999'); END$$},
	immutable => q{LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RAISE LOG 'planted'; RETURN '{}'; END$$},
	'of parts' => q{LANGUAGE sql STABLE AS $$SELECT public.tell()$$});
sub plant
{
	my ($kind) = @_;
	$admin->query_safe(q{BEGIN; ALTER FUNCTION _snowflake.lease RENAME TO right_lease});
	$admin->query_safe(qq{CREATE FUNCTION _snowflake.lease(pool text, request jsonb) RETURNS jsonb $planted{$kind}; COMMIT});
	return $admin->query_safe('SELECT clock_timestamp()');
}
sub uproot
{
	$admin->query_safe(q{BEGIN; DROP FUNCTION _snowflake.lease; ALTER FUNCTION _snowflake.right_lease RENAME TO lease; COMMIT});
	return;
}
my $foreign = 'Function _snowflake.lease() in the registry\'s database is not that of extension snowflake_id.';
plant('volatile');
my $odd = new_leasing('odd', '', 'default');
wait_until('a planted function', sub { worker($odd, 'last_error') eq $foreign });
for my $kind (qw(immutable), 'of parts')
{
	$admin->query_safe('BEGIN');
	$admin->query_safe($_) for 'DROP FUNCTION _snowflake.lease', "CREATE FUNCTION _snowflake.lease(pool text, request jsonb) RETURNS jsonb $planted{$kind}";
	$admin->query_safe('COMMIT');
	my $since = $admin->query_safe('SELECT clock_timestamp()');
	wait_until('the registry is called', sub {
		$admin->query_safe(qq{SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query ~ '_snowflake.lease' AND query_start > '$since'}) ne '0' });
	wait_until('and again', sub { $admin->query_safe(qq{SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query ~ '_snowflake.lease' AND query_start > timestamptz '$since' + interval '2 s'}) ne '0' });
	is(worker($odd, 'last_error'), $foreign, "planted: $kind");
}
unlike(slurp_file($registry->logfile), qr/LOG:\s+planted/, 'a planted function is not called');
uproot();
wait_until('the right reply', sub { worker($odd, 'worker_id') ne '' });
take($odd);
# Nor on a connection that has called the right one.
plant('immutable');
wait_until('a planted function beside a lease', sub { worker($odd, 'last_error') eq $foreign });
unlike(slurp_file($registry->logfile), qr/LOG:\s+planted/, 'a planted function is not called on a connection that has called the right one');
uproot();
wait_until('the lease is renewed', sub { worker($odd, 'last_error') eq '' });
$odd->stop;

# No background worker is left for the keeper.
my $none = new_leasing('none', '', 'default');
$none->append_conf('postgresql.conf', 'max_worker_processes = 0');
$none->restart;
($code, $text) = error_of($none, 'SELECT snowflake_nextval()');
is($code, '55000', 'no keeper');
like($text, qr/The keeper is not running.*"max_worker_processes"/, 'and what it needs');
$none->stop;

# A server that leases from its own registry: a smart stop does not wait for the keeper.
my $own_registry = new_node('own_registry', '');
$own_registry->append_conf('postgresql.conf', "snowflake_id.pool = 'own'");
$own_registry->start;
$own_registry->safe_psql('postgres', q{CREATE EXTENSION snowflake_id;
	SELECT snowflake_create_pool('own', int8range(500, 510), lease => '3 s', hold => '1 s', max_ahead => '1 s')});
set($own_registry, 'snowflake_id.registry', join ' ', 'host=' . $own_registry->host, 'port=' . $own_registry->port, 'dbname=postgres');
wait_until('a lease of its own', sub { worker($own_registry, 'worker_id') eq '500' });
take($own_registry);
$own_registry->stop('smart');
is(in_log($own_registry, qr/LOG:  snowflake_id: did not return worker ID 500 to pool "own"/), 1, 'a smart stop ends');
$own_registry->start;
wait_until('another lease, whose bound has passed', sub { worker($own_registry, 'worker_id') eq '501' });
take($own_registry);
$own_registry->stop;
is(in_log($own_registry, qr/LOG:  snowflake_id: did not return worker ID 501 to pool "own"/), 1, 'so does a fast one');
is(in_log($own_registry, qr/WARNING:  snowflake_id: could not return/), 0, 'without a warning');

# From a fixed worker ID to a lease and back, without a stop.
my $i = new_node('i', 7);
$i->append_conf('postgresql.conf', "snowflake_id.pool = 'default'");
$i->start;
$i->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE TABLE taken (id bigint DEFAULT snowflake_nextval(), seen boolean DEFAULT false)');
my $script = PostgreSQL::Test::Utils::tempdir() . '/insert.sql';
append_to_file($script, "INSERT INTO taken DEFAULT VALUES;\n");
my $load = IPC::Run::start([ 'pgbench', '-n', '-c', '4', '-T', '600', '-f', $script, '-h', $i->host, '-p', $i->port, 'postgres' ],
	'>', \my $said, '2>', \my $errors);
my $conninfo = conninfo();
sub count_taken { return $i->safe_psql('postgres', 'SELECT count(*) FROM taken'); }
sub goes_on
{
	my ($what) = @_;
	my $count = count_taken();
	return wait_until("IDs go on: $what", sub { count_taken() > $count + 100 });
}
goes_on('fixed');
is(worker($i, q{concat_ws(' ', worker_id, source, pool, bound)}), '7 setting', 'a fixed worker ID');
set($i, 'snowflake_id.registry', 'host=/nowhere');
wait_until('a registry that does not answer', sub { worker($i, 'last_error') ne '' });
goes_on('without a claim');
is(in_log($i, qr/could not claim worker ID 7 in pool "default"\n.*IDs are issued under worker ID 7 as without a registry/), 1, 'the log says so');
set($i, 'snowflake_id.registry', $conninfo);
wait_until('the claim', sub { worker($i, 'bound') ne '' });
goes_on('with a claim');
is(row(7, 'state'), 'leased', 'the registry knows');
set($i, 'snowflake_id.registry', '');
wait_until('back', sub { worker($i, 'bound') eq '' });
goes_on('fixed again');
is(row(7, 'state'), 'released', 'the registry knows');
# SIGINT may be ignored, as it is in a command in the background.
$load->signal('TERM');
$load->finish;
unlike($errors, qr/ERROR/, 'no call failed') or diag($errors);
push @all, [ split /\n/, $i->safe_psql('postgres', 'SELECT id FROM taken ORDER BY id') ];
# Another server holds the worker ID that a running one has.
my $j = new_leasing('j', 7, 'default');
is(take($j), 7, 'the worker ID is free');
set($i, 'snowflake_id.registry', $conninfo);
wait_until('a server that runs is told', sub { (error_of($i, 'SELECT snowflake_nextval()'))[0] eq '55006' });
# Where the other one is, a monitor may know.
$i->safe_psql('postgres', 'CREATE ROLE app; GRANT USAGE ON SEQUENCE snowflake_default TO app');
{
	my ($code, $text) = error_of($i, 'SET ROLE app; SELECT snowflake_nextval()');
	like($text, qr/worker ID 7 belongs to another server.*It is because of another server; members of pg_monitor see more/s, "an application's role: $code");
	unlike($text . $i->safe_psql('postgres', 'SET ROLE app; SELECT string_agg(s::text, $$ $$) FROM snowflake_status() AS s'), qr/data directory/, '... does not see where that is');
}
# Its log says so, once for each start.
sub refusals
{
	my ($node) = @_;
	my ($there, $port) = ($j->data_dir, $j->port);
	return in_log($node, qr/WARNING:  snowflake_id: could not claim worker ID 7 in pool "default"\n.*DETAIL:  .*Worker ID 7 belongs to the server on host "[^"]+"[^\n]*, port $port, data directory "\Q$there\E", since \d{4}-/);
}
wait_until('its log', sub { refusals($i) });
renewals($j, 3);
is(refusals($i), 1, 'the log tells once');
$i->restart;
wait_until('its log', sub { refusals($i) > 1 });
my $third = new_leasing('third', 7, 'default');
wait_until('that of a third one', sub { refusals($third) });
is(take($j), 7, 'and goes on');
$third->stop;
$i->stop;

# A release that the registry refuses.
$admin->query_safe(q{UPDATE _snowflake.state SET state = jsonb_set(state, '{stopped}', jsonb_build_object(
	'since', 0, 'seen', state -> 'era', 'by', '{"host": "elsewhere", "address": "", "port": 5432, "data_directory": "/"}'::jsonb))});
$j->stop;
is(in_log($j, qr/WARNING:  snowflake_id: could not return worker ID 7 to pool "default"\n.*DETAIL:  The registry serves nobody since 1970-[^\n]* The worker ID is free when/), 1, 'the log says why');
$admin->query_safe(q{UPDATE _snowflake.state SET state = jsonb_set(state, '{stopped}', 'null')});

# Where the worker ID comes from.
{
	local $ENV{MY_WORKER} = '77';
	my $k = new_node('k', '');
	$k->append_conf('postgresql.conf', "snowflake_id.worker_id = 'env MY_WORKER'");
	$k->start;
	$k->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	is(worker($k, q{concat_ws(' ', worker_id, source)}), '77 env', 'from the environment');
	is($k->safe_psql('postgres', 'SHOW snowflake_id.worker_id'), 'env MY_WORKER', 'the setting shows its text');
	take($k);
	$k->append_conf('postgresql.conf', "snowflake_id.worker_id = 'env NOTHING'");
	$k->restart;
	is(in_log($k, qr/WARNING:  snowflake_id: no worker ID from "snowflake_id\.worker_id" = 'env NOTHING'/), 1, 'a variable that is not set');
	is(worker($k, 'source'), 'none', 'no worker ID');
	$k->stop;
}

check_ids('all servers', @all);
# A fast stop is no failure of the keeper, whose worker ID goes back.
for my $stopped (grep { defined $_->{_pid} } @nodes)
{
	my $from = -s $stopped->logfile;
	$stopped->stop('fast');
	unlike(slurp_file($stopped->logfile, $from), qr/FATAL(?!.*administrator command)|background worker "snowflake_id.*exited with/, $stopped->name . ' stops without a word of a failure');
}
$admin->quit;
done_testing();
