# Tests leases of worker IDs from a registry in etcd, of one member: a worker ID is
# leased, renewed, returned, and taken over when its lease has ended; a fixed one is
# claimed; etcd is killed, frozen and set back. All IDs of all servers are collected, and
# none is issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use Etcd;
use Leases;
use Snowflake;

plan skip_all => Etcd::missing() if Etcd::missing();

my $etcd = Etcd->new('single', 1);
my $url = $etcd->url;
my $template = template_of('template');

sub leasing
{
	my ($name, $pool, @more) = @_;
	return member($template, $name, "snowflake_id.registry = '$url'", "snowflake_id.pool = '$pool'", @more);
}

# Pools are made by any server. This one leases nothing, and its views show the registry.
my $admin = member($template, 'admin', "snowflake_id.registry = '$url'", q{snowflake_id.pool = 'nothing'});
$admin->start;
sub create_pool { my ($arguments, $registry) = @_; return sprintf q{SELECT snowflake_create_pool(%s, registry => '%s')}, $arguments, $registry // $url; }
my $short = q{lease => '2 s', hold => '1 s', max_ahead => '1 s'};
my ($code, $text) = error_of($admin, qq{SELECT snowflake_declare_registry('$url')});
is($code, '55000', 'there is no registry yet');
$admin->safe_psql('postgres', create_pool(qq{'some', int8range(0, 16), $short, except_ids => '{[3,4)}'}));
$admin->safe_psql('postgres', create_pool(qq{'one', int8range(20, 21), $short}));
($code) = error_of($admin, create_pool(q{'some', int8range(100, 101)}));
is($code, '42710', 'a pool that exists');
($code, $text) = error_of($admin, create_pool(q{'other', int8range(15, 30)}));
is($code, '22023', 'a pool that overlaps');
like($text, qr/pool "other" would overlap with pool "(some|one)"/, 'with which one');
unlike($text, qr/CONTEXT/, 'and no more');
is((error_of($admin, create_pool(q{'a/b', int8range(30, 31)})))[0], '22023', 'a name with a slash');
is((error_of($admin, create_pool(q{'a', int8range(30, 31)}, 'etcd://127.0.0.1:1')))[0], '08000', 'no etcd there');
($code, $text) = error_of($admin, create_pool(q{'a', int8range(30, 31)}, 'etcd://127.0.0.1:1'));
like($text, qr/HINT:  The change may have been made/, 'a change may have been made');
is($admin->safe_psql('postgres', 'SELECT count(*) FROM snowflake_pools'), 2, 'the views show the registry of the setting');
set_by_reload($admin, 'snowflake_id.registry' => 'etcd://127.0.0.1:1');
wait_until('another registry', sub { worker($admin, 'registry') =~ /:1\// });
for my $read (qw(snowflake_pools snowflake_workers))
{
	($code, $text) = error_of($admin, "SELECT * FROM $read");
	is($code, '08000', "$read: no etcd there");
	like($text, qr/HINT:  Try again when etcd can be reached\./, 'and what to do');
}
set_by_reload($admin, 'snowflake_id.registry' => $url);
wait_until('the registry again', sub { worker($admin, 'registry') eq $url });
($code, $text) = error_of($admin, create_pool(q{'a', int8range(30, 31)}, 'etcd://root:hunter2@127.0.0.1'));
is($code, '22023', 'a password in the URL');
unlike($text, qr/DETAIL:.*hunter2/s, 'is not shown');
$admin->safe_psql('postgres', 'CREATE ROLE deputy LOGIN; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO deputy');
my $deputy = session($admin, 'deputy');
is((error_in($deputy, create_pool(q{'a', int8range(30, 31)})))[0], '42501', 'only superusers name a registry');
$deputy->quit;
($code, $text) = error_of($admin, qq{SELECT snowflake_revoke_worker('some', 5, '$url')});
is($code, '55000', 'a worker ID that was never leased');
is((error_of($admin, qq{SELECT snowflake_revoke_worker('some', 3, '$url')}))[0], '22023', 'one that the pool has not');
is((error_of($admin, qq{SELECT snowflake_revoke_worker('none', 3, '$url')}))[0], '42704', 'a pool that does not exist');

# Settings are checked when they are set.
for my $wrong ('etcd://', 'etcd://a:b', 'etcd://a?password=hunter2', 'etcd://a?cacert=/nowhere', "etcd://a?cert=/a", 'http://a:2379', 'https://a:2379/x?user=hunter2')
{
	($code, $text) = error_of($admin, "ALTER SYSTEM SET snowflake_id.registry = '$wrong'");
	is($code, '22023', "refused: $wrong");
	like($text, qr/DETAIL:  .+\./, 'with a reason');
	like($text, qr/DETAIL:.* etcd:\/\/\./, 'with what etcd\'s URLs begin') if $wrong =~ /^http/;
	unlike($text, qr/hunter2/, 'without the text');
}
# A password goes to this machine only, unless it is encrypted.
my $password = PostgreSQL::Test::Utils::tempdir() . '/password';
append_to_file($password, "geheim\n");
chmod 0600, $password;
for my $call ("ALTER SYSTEM SET snowflake_id.registry = '%s'", "SELECT snowflake_end_grace_period('%s')")
{
	($code, $text) = error_of($admin, sprintf $call, "etcd://192.0.2.1,127.0.0.1?user=node&password_file=$password");
	is($code, '22023', 'refused: a user without TLS');
	like($text, qr/need option cacert, unless all hosts are this machine/, 'the error says why');
}
is((error_of($admin, "SELECT snowflake_end_grace_period('etcd://localhost:1,127.0.0.1:1?user=node&password_file=$password')"))[0], '08000',
	'on this machine it is tried');

# A lease.
my $a = leasing('a', 'some');
$a->start;
is(first_id($a, 'a lease'), 0, 'the first server has the first worker ID');
is(worker($a, q{concat_ws(' ', worker_id, source, pool, last_error)}), '0 registry some', 'the view of the node');
is(worker($a, 'registry'), $url, 'where the registry is');
is($etcd->row(0)->{holder}{port}, $a->port, 'etcd knows the server');
is($etcd->row(0)->{holder}{address}, '127.0.0.1', 'and its address');
is($admin->safe_psql('postgres', qq{SELECT pool, worker_id, state, port, token, leased_until > clock_timestamp() - interval '1 s' FROM snowflake_workers}),
	join('|', 'some', 0, 'leased', $a->port, worker($a, 'token'), 't'), 'the registry shows the lease');
is($admin->safe_psql('postgres', qq{SELECT pool, worker_ids, except_ids, lease, hold, max_ahead, leased, free, never_leased, grace_until, era, stopped_since
	FROM snowflake_pools ORDER BY pool}),
	"one|[20,21)|{}|00:00:02|00:00:01|00:00:01|0|1|1||1|\nsome|[0,16)|{[3,4)}|00:00:02|00:00:01|00:00:01|1|14|14||1|", 'and the pools');
my $bound = worker($a, 'bound');
wait_until('a renewal', sub { worker($a, "bound > '$bound'") eq 't' });
is(in_log($a, qr/acquired worker ID/), 1, 'renewals are not logged');
start_load($a);
wait_for_ids($a, 'all is well');

# A fixed worker ID that is in use.
my $b = leasing('b', 'some');
$b->start;
is(first_id($b, 'a second server'), 1, 'the second worker ID');
my $c = leasing('c', 'some', 'snowflake_id.worker_id = 1');
$c->start;
wait_until('a fixed worker ID that another server holds', sub { worker($c, 'last_error') ne '' });
my ($there, $port) = ($b->data_dir, $b->port);
like(worker($c, 'last_error'), qr/^Worker ID 1 belongs to the server on host "[^"]+" \(127\.0\.0\.1\), port $port, data directory "\Q$there\E"/, 'who holds it');
# The holder goes on.
for (1 .. 3)
{
	my $bound = worker($b, 'bound');
	wait_until('a renewal', sub { worker($b, "bound > '$bound'") eq 't' });
}
$b->stop;
is(in_log($b, qr/LOG:  snowflake_id: returned worker ID 1 to pool "some"/), 1, 'a clean stop returns it');
is(first_id($c, 'a worker ID that was returned'), 1, 'the other one gets it by itself');
$b->start;
is(first_id($b, 'a server whose worker ID was taken'), 2, 'another one');

# Crashes.
$a->stop('immediate');
$a->start;
# Its own one if the bound of that has passed, and the next free one otherwise.
my $own = first_id($a, 'a crash');
like($own, qr/^[04]$/, 'after a crash, a server has a worker ID at once');
wait_for_ids($a, 'after a crash');

# etcd is killed, and away for longer than a lease.
my $session = session($b);
$etcd->kill_members(0);
wait_until('IDs stop at the bound', sub {
	my ($code, $text) = error_in($session, 'SELECT snowflake_nextval()');
	$code && is($code, '55000', 'SQLSTATE') && like($text, qr/has not renewed the lease of this server.*The registry has been unreachable since/s, 'why') });
like(worker($b, 'last_error'), qr/^Could not ask etcd: 127\.0\.0\.1:\d+: .*refused.*\.$/, 'the view says why');
$etcd->start_member(0);
wait_until('IDs resume by themselves', sub { error_in($session, 'SELECT snowflake_nextval()') eq '' });
wait_for_ids($a, 'etcd is back');
is(worker($a, 'worker_id') . worker($b, 'worker_id') . worker($c, 'worker_id'), "${own}21", 'with the same worker IDs');

# etcd is frozen for longer than a lease. The server that stops meanwhile does stop.
$etcd->freeze(0);
wait_until('IDs stop at the bound', sub { (error_in($session, 'SELECT snowflake_nextval()'))[0] });
like(worker($b, 'last_error'), qr/^The registry did not answer within 1 s\. Of its members: 127\.0\.0\.1:\d+: there was no answer in time\.$/, 'the view says why');
$c->stop;
is(in_log($c, qr/WARNING:  snowflake_id: could not return worker ID 1 to pool "some"/), 1, 'a server stops without its registry');
$etcd->thaw(0);
wait_until('IDs resume by themselves', sub { error_in($session, 'SELECT snowflake_nextval()') eq '' });
wait_for_ids($a, 'etcd has thawed');
$session->quit;
$c->start;
first_id($c, 'a server that could not return its worker ID');
$c->stop;

# A server whose clock is an hour ahead takes nothing from a live holder, and keeps nothing
# from others when it is gone. many_servers_etcd.pl has servers whose clocks are behind, and
# lease_failover_etcd.pl frozen ones.
my ($d, $e) = map { leasing($_, 'one') } qw(d e);
$e->start;
is(first_id($e, 'the only worker ID of a pool'), 20, 'the worker ID');
start_with_clock($d, 3600);
wait_until('a clock that is an hour ahead takes nothing', sub { worker($d, 'last_error') =~ /All worker IDs of the pool belong to other servers/ });
is(take($e), 20, 'the holder goes on');
kill_all($e);
is(first_id($d, 'a clock that is an hour ahead', 60), 20, 'it has the worker ID when the lease has ended');
kill_all($d);
# Its IDs lead by an hour, and the next holder goes on from there.
sub is_free { return $admin->safe_psql('postgres', q{SELECT state FROM snowflake_workers WHERE worker_id = 20}) =~ /^(?:free|released)$/; }
wait_until('the lease has ended', \&is_free);
$e->start;
is(first_id($e, 'its holder was killed', 60), 20, 'the worker ID of a killed server');
$e->stop;

# Its IDs lead by an hour still. It may go on so with a worker ID of another namespace.
$admin->safe_psql('postgres', create_pool(qq{'elsewhere', int8range(25, 26), $short, namespace => 'second'}));
$e->adjust_conf('postgresql.conf', 'snowflake_id.pool', 'elsewhere');
$e->start;
is(first_id($e, 'a pool of another namespace', 60), 25, 'a grant tells what the system has reached in all namespaces');
is($e->safe_psql('postgres', q{SELECT snowflake_timestamp(snowflake_nextval()) > clock_timestamp() + interval '30 min'}), 't', 'the IDs go on where they were');
$e->stop;
$e->adjust_conf('postgresql.conf', 'snowflake_id.pool', 'one');

# A revocation, by any server.
$session = session($b);
$admin->safe_psql('postgres', qq{SELECT snowflake_revoke_worker('some', 2, '$url')});
like($admin->safe_psql('postgres', qq{SELECT string_agg(worker_id || ' ' || state, ', ' ORDER BY worker_id) FROM snowflake_workers}),
	qr/^0 \w+, 1 released, 2 revoked, (?:[45] leased, ){0,2}20 \w+, 25 released$/, 'the registry shows what became of each worker ID');
wait_until('the server is told', sub { in_log($b, qr/WARNING:  snowflake_id: lost worker ID 2\n.*DETAIL:  It was revoked at the registry\./) });
# Until it has another one, it goes on below its bound.
wait_until('it leases another worker ID', sub { (worker($b, 'worker_id') // 2) ne '2' });
isnt(first_id($b, 'a revocation'), 2, 'it has another worker ID');
$session->quit;
($code, $text) = error_of($admin, qq{SELECT snowflake_drop_pool('some', '$url')});
is($code, '55006', 'a pool that is in use');
like($text, qr/a server may have worker ID \d+.*DETAIL:  It was leased to the server at /s, 'by whom');
wait_until('no lease is left', \&is_free);
is($admin->safe_psql('postgres', qq{SELECT snowflake_drop_pool('one', '$url')}), '', 'another one is dropped');
# A server waits for at most 5 s between two requests: less than the grace period of this pool.
$admin->safe_psql('postgres', create_pool(q{'one', int8range(20, 21), lease => '2 s', hold => '8 s', max_ahead => '1 s'}));
cmp_ok($etcd->row(20)->{counter}, '>', 2, 'its worker IDs are not forgotten');
check_all('before a snapshot is restored', $etcd);

# A snapshot is restored, under the same names. What was leased since then is lost; a server that
# lives tells what it has, and others wait.
my $snapshot = PostgreSQL::Test::Utils::tempdir() . '/snapshot.db';
$etcd->etcdctl('snapshot', 'save', $snapshot);
$d->start;
is(first_id($d, 'a lease that will be lost'), 20, 'the worker ID');
my $losses = in_log($d, qr/lost worker ID 20/);
$etcd->kill_members(0);
$etcd->restore($snapshot);
$c->start;
wait_until('a server that starts waits', sub { in_log($c, qr/may have lost leases \(its server has crashed, or was restored from a snapshot\)/) > 0 });
wait_for_ids($a, 'a snapshot was restored');
first_id($c, 'the wait is over', 60);
is(first_id($d, 'its grant was lost'), 20, 'it has the worker ID still');
is(in_log($d, qr/lost worker ID 20/), $losses, 'and had it all the time');
check_all('a snapshot', $etcd);

# A new etcd in the same place knows nothing; nobody issues past the bound, which only the
# lost one has stored.
$bound = worker($a, 'bound');
wait_until('a renewal', sub { worker($a, "bound > '$bound'") eq 't' });
$etcd->lose_data;
$etcd->start_member(0);
$etcd->wait_until_up;
wait_until('there is no registry', sub { worker($a, 'last_error') eq 'Nothing is stored in etcd under this prefix, though this server has asked a registry there before. '
	  . 'If that one is gone for good, snowflake_create_pool() on this server makes pool "some" anew, so that it begins above the leases that are lost.' });
$admin->safe_psql('postgres', create_pool(qq{'some', int8range(0, 16), $short}));
is($admin->safe_psql('postgres', qq{SELECT count(*) FROM snowflake_workers}), 0, 'no worker ID is known');
wait_until('another registry', sub { in_log($a, qr/The registry does not know what this server remembers of it/) > 0 });
wait_for_ids($a, 'the new registry has waited for the servers of the lost one');
is($admin->safe_psql('postgres', qq{SELECT era, stopped_since FROM snowflake_pools}), '2|', 'the first of them has shown that there was another one');
check_all('a new etcd', $etcd);

my ($answers) = stop_load($a);
cmp_ok($answers, '>', 100, 'the client got IDs');
check_all('all servers', $etcd);
# A change by an administrator does not hide that a snapshot was restored before it.
$_->stop for $a, $b, $c, $d;
$etcd->etcdctl('snapshot', 'save', "$snapshot.2");
$etcd->restore("$snapshot.2");
$admin->safe_psql('postgres', create_pool(qq{'late', int8range(30, 31), $short}));
$admin->safe_psql('postgres', qq{SELECT snowflake_drop_pool('late', '$url')});
my $waits = in_log($b, qr/may have lost leases \(/);
$b->start;
first_id($b, 'another snapshot was restored', 60);
is(in_log($b, qr/may have lost leases \(/), $waits + 1, 'the loss is noticed');
check_all('another snapshot', $etcd);
# A server of a later release, with a format of its own, has changed the pool.
my %pools = $etcd->entries('pools');
$etcd->etcdctl('put', "$etcd->{prefix}/pools/some", $pools{some} =~ s/"format":1/"format":2/r);
wait_until('another format', sub { worker($b, 'last_error') eq
	  'What etcd has stored is of format 2, and this server understands format 1. Update the package of snowflake_id on this server.' });
($code, $text) = error_of($admin, 'TABLE snowflake_pools');
is($code, '0A000', 'views do not misread it');
like($text, qr/format 2 of the registry in etcd.*which has format 1\nHINT:  Update .* on this server\./s, 'and say who is to be updated');
$etcd->etcdctl('put', "$etcd->{prefix}/pools/some", $pools{some});
wait_until('the format of before', sub { worker($b, 'last_error') eq '' });
$_->stop for $b, $admin;
done_testing();
