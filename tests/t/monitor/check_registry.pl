# Tests snowflake_check_registry(): that it finds, on a primary and on a standby, what would keep
# a server from leasing a worker ID, on each host of the registry, and that it changes nothing there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Etcd;
use Leases;
use Snowflake;

my $query = q{SELECT concat_ws('|', state, item, detail, hint) FROM snowflake_check_registry()};

# Compares the rows on a server with these patterns, one each.
sub rows
{
	my ($node, $what, @expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found = split /\n/, $node->safe_psql('postgres', $query);
	is(scalar @found, scalar @expected, "$what: rows") or diag(join "\n", @found);
	like($found[$_] // '', $expected[$_], "$what: row $_") for 0 .. $#expected;
	return;
}

# A registry with a standby, which is the second host of the setting.
my $lease = q{lease => '20 s', hold => '1 s', max_ahead => '1 s'};
my $registry = new_node('registry', '', allows_streaming => 1);
$registry->start;
$registry->safe_psql('postgres', "CREATE EXTENSION snowflake_id; CREATE ROLE node LOGIN; CREATE ROLE reader LOGIN; CREATE DATABASE empty;
	SELECT snowflake_create_registry('node'); SELECT snowflake_create_pool('few', '[900,902)', $lease, namespace => 'other')");
$registry->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION _snowflake.read_registry() TO reader');
$registry->safe_psql('empty', 'CREATE EXTENSION snowflake_id');
$registry->backup('copy');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($registry, 'copy', has_streaming => 1);
$second->start;

my ($one, $two) = map { sprintf 'host=%s port=%d dbname=postgres', $_->host, $_->port } $registry, $second;
my $both = conninfo($registry, $second);
my $node = new_node('node', '', allows_streaming => 1);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE ROLE nobody LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
rows($node, 'no registry', qr/^warning\|registry\|Setting snowflake_id\.registry is empty/);
$node->append_conf('postgresql.conf', "snowflake_id.registry = '$both user=node'");
$node->reload;
wait_until('a worker ID', sub { worker($node, 'worker_id') eq '0' });
$registry->wait_for_catchup($second);

my $serves = qr/^ok\|registry\|\Q$one\E answers\.$/;
my $waits = qr/^ok\|registry\|\Q$two\E answers\. It is a standby, which leases nothing before its promotion\.$/;
my @hosts = $registry->port < $second->port ? ($serves, $waits) : ($waits, $serves);
my $fine = qr/^ok\|pool\|Pool "default" has 1024 worker IDs, and servers can get 1023 of them\.$/;
rows($node, 'all is well', @hosts, $fine);

# Who may ask.
for ([ 'nobody', '42501' ], [ 'monitor', '' ])
{
	my ($role, $code) = @$_;
	my $session = session($node, $role);
	is(error_in($session, $_), $code, "$role: $_") for 'SELECT * FROM snowflake_check_registry()', 'SELECT * FROM _snowflake.ask_registry()';
	$session->quit;
}

# A standby of the server, which has asked nobody: nothing changes at the registry.
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
$node->stop;
my $all = 'SELECT (SELECT state FROM _snowflake.state), (SELECT array_agg(lease ORDER BY worker_id) FROM _snowflake.leases)';
my $before = $registry->safe_psql('postgres', $all);
rows($standby, 'a standby', @hosts, qr/^ok\|pool\|Pool "default" has 1024 worker IDs, and servers can get 1024 of them\.$/);
is($registry->safe_psql('postgres', $all), $before, 'the registry has stored nothing');

# A missing line of pg_hba.conf at the host that will take over.
my $hba = slurp_file($second->data_dir . '/pg_hba.conf');
sub set_hba
{
	my ($line) = @_;
	unlink $second->data_dir . '/pg_hba.conf';
	$second->append_conf('pg_hba.conf', "$line\n$hba");
	return $second->reload;
}
set_hba('local all node reject');
my $rejected = qr/^warning\|registry\|\Q$two\E: Could not connect: .*pg_hba\.conf rejects connection.*\|Check that it runs, that it lets this server in \(pg_hba\.conf/;
wait_until('the line counts', sub { $standby->safe_psql('postgres', $query) =~ /rejects/ });
my $free = qr/^ok\|pool\|Pool "default" has 1024/;
rows($standby, 'a line of pg_hba.conf is missing', $rejected, $serves, $free);

# Without the host that takes writes, nothing serves.
set_hba('');
$registry->stop;
wait_until('the line is gone', sub { $standby->safe_psql('postgres', $query) !~ /rejects/ });
my $down = qr/^critical\|registry\|\Q$one\E: Could not connect: /;
my $no_primary = qr/^critical\|registry\|\Q$two\E answers\. It is a standby, .*\|Find out why no host of the registry takes writes/;
rows($standby, 'only a standby answers', ($registry->port < $second->port ? ($down, $no_primary) : ($no_primary, $down)), $free);
$registry->start;

# The settings of a server are not replicated.
sub with
{
	my ($what, $settings, @expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$standby->append_conf('postgresql.conf', "$_ = '$settings->{$_}'") for sort keys %$settings;
	$standby->restart;
	return rows($standby, $what, @expected);
}
with('a role without rights', { 'snowflake_id.registry' => "$one user=reader" },
	qr/^critical\|registry\|\Q$one\E answers, and lets the role of this server lease nothing\.\|.*snowflake_create_registry\(\)/, $free);
$registry->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION _snowflake.read_registry() FROM reader');
rows($standby, 'a role that may not even read', qr/^critical\|registry\|\Q$one\E: .*SQLSTATE 42501: permission denied for function read_registry/);
my $there = $one =~ s/dbname=postgres/dbname=empty/r;
with('a database without pools', { 'snowflake_id.registry' => "$there user=reader" },
	qr/^critical\|registry\|\Q$there\E: .*SQLSTATE 42501/);
with('a database without a registry', { 'snowflake_id.registry' => $there }, qr/^critical\|registry\|\Q$there\E answers, and has no registry\.\|Correct snowflake_id\.registry/);
with('a typo', { 'snowflake_id.registry' => $one, 'snowflake_id.pool' => 'none' },
	qr/^critical\|pool\|The registry has no pool "none"\.\|Correct snowflake_id\.pool/, $serves);
with('a number outside of the pool', { 'snowflake_id.pool' => 'few', 'snowflake_id.worker_id' => 2 },
	qr/^critical\|pool\|Worker ID 2, which is set on this server, is not in pool "few"\. From its next restart on, the server issues no IDs\.\|Set a worker ID of the pool/, $serves);
with('one of the pool', { 'snowflake_id.worker_id' => 901 }, $serves, qr/^ok\|pool\|Pool "few" has 2 worker IDs, and servers can get 2 of them\.$/);

# A pool that is too small, then one that has nothing left.
my @few;
for my $free (1, 0)
{
	my $server = new_node("few$free", '');
	$server->append_conf('postgresql.conf', "snowflake_id.registry = '$one'\nsnowflake_id.pool = 'few'");
	$server->start;
	$server->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	wait_until('a worker ID', sub { worker($server, 'worker_id') ne '' });
	push @few, $server;
	my $taken = 2 - $free;
	my $wanted = $taken == 1 ? 3 : 6;
	my $pool = qr/Pool "few" has 2 worker IDs, $taken of which servers have\./;
	my $enough = qr/\|Use a larger pool: of $wanted worker IDs or more/;
	my @status = split /\n/, $registry->safe_psql('postgres', q{SELECT concat_ws('|', state, item, detail, hint, see) FROM snowflake_status() WHERE item = 'pool'});
	is(scalar @status, 1, 'status of the registry: one row, of this pool');
	like($status[0], qr/^warning\|pool\|Pool "few" of the registry in this database has 2 worker IDs, $taken of which servers have: .*$enough.*\|docs\/operations\.md#few-worker-ids$/, 'which one');
	is($registry->safe_psql('postgres', q{SELECT count(*) FROM snowflake_status() WHERE item = 'pool'}, extra_params => [ '-U', 'reader' ]), 0, 'a role that may not read the pools gets no row, and no error');
	is($server->safe_psql('postgres', q{SELECT count(*) FROM snowflake_status() WHERE item = 'pool'}), 0, 'nor does a server connect to the registry for it');
	rows($server, "$free is free", qr/^warning\|pool\|$pool .*$enough/, $serves);
	with("$free is free for a standby", { 'snowflake_id.worker_id' => '' }, $free
		? qr/^warning\|pool\|$pool A server that crashes can then lead its clock by up to the lease, 20 seconds\.$enough/
		: qr/^critical\|pool\|$pool A further server gets none\.$enough/, $serves);
}
$_->stop for @few;

# A generator that cannot hold the pool; without a registry, it was made for small numbers.
$few[0]->append_conf('postgresql.conf', "snowflake_id.registry = ''\nsnowflake_id.worker_id = 3");
$few[0]->start;
$few[0]->safe_psql('postgres', q{SELECT snowflake_create_generator('narrow', $$layout='time:41 worker:5 sequence:12' epoch=1735689600000$$);
	SELECT snowflake_create_generator('fixed', $$layout='time:41 shard:5=3 sequence:12' epoch=1735689600000$$)});
$few[0]->append_conf('postgresql.conf', "snowflake_id.registry = '$one'\nsnowflake_id.worker_id = 901");
$few[0]->restart;
wait_until('its number', sub { worker($few[0], 'worker_id') eq '901' });
rows($few[0], 'a narrow generator',
	qr/^critical\|generator public\.narrow\|It cannot hold all worker IDs of pool "few": the pool has worker IDs up to 901, and the layout up to 31\.\|Make/,
	qr/^warning\|pool/, $serves);
$few[0]->stop;

# A registry that may have lost leases, and one that another copy has replaced.
$registry->safe_psql('postgres', 'SELECT snowflake_declare_registry()');
with('a grace period', { 'snowflake_id.pool' => 'default' }, qr/^warning\|pool\|The registry gives no worker ID until .*, since it may have lost leases \(declared\)\.\|Wait\.$/, $serves);
$registry->safe_psql('postgres', q{UPDATE _snowflake.state SET state = state || jsonb_build_object('stopped', jsonb_build_object('since', 1000, 'by', jsonb_build_object('host', 'db9')))});
rows($standby, 'a copy that does not count',
	qr/^critical\|pool\|The registry serves nobody since 1970-.*: the server on host "db9" has seen another one .*\|Stop the copy/, $serves);
$_->stop for $standby, $second, $registry;

SKIP:
{
	skip(Etcd::missing(), 1) if Etcd::missing();
	my $etcd = Etcd->new('two', 3, '--heartbeat-interval' => 50, '--election-timeout' => 500);
	my @urls = map { "etcd://127.0.0.1:$_->{client}/test" } @{ $etcd->{members} };
	$node->append_conf('postgresql.conf', sprintf "snowflake_id.registry = '%s'\nsnowflake_id.pool = 'main'", $etcd->url);
	$node->start;
	rows($node, 'an etcd without a registry', map { qr/^critical\|registry\|\Q$_\E answers, and has no registry\.\|.* In an etcd, the first server makes it/ } sort @urls);
	$node->safe_psql('postgres', "SELECT snowflake_create_pool('main', '[0,8)', $lease)");
	wait_until('a worker ID of etcd', sub { worker($node, 'worker_id') eq '0' });
	my $etcd_pool = qr/^ok\|pool\|Pool "main" has 8 worker IDs, and servers can get 7 of them\.$/;
	rows($node, 'an etcd', (map { qr/^ok\|registry\|\Q$_\E answers\.$/ } sort @urls), $etcd_pool);
	$etcd->kill_members(1);
	rows($node, 'a member is gone', qr/^warning\|registry\|\Q$urls[1]\E: .*\|Check that it runs/, (map { qr/^ok\|registry\|\Q$_\E answers\.$/ } sort @urls[ 0, 2 ]), $etcd_pool);
	$node->stop;
}

done_testing();
