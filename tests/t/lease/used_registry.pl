# Tests that one call makes a database a registry and lets servers lease, and that views and
# functions of a server are about the registry that it uses: that of the database, or that of
# the setting, which only members of pg_monitor have the server connect to.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

my $registry = new_node('registry', 900);
$registry->append_conf('postgresql.conf', 'log_connections = on');
$registry->start;
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE ROLE "snowflake node" LOGIN; CREATE ROLE second LOGIN; CREATE ROLE stranger LOGIN');
$registry->safe_psql('postgres', q{SELECT snowflake_create_registry(role => 'snowflake node')});
my $place = conninfo($registry);

sub leasing
{
	my ($name, $role) = @_;
	my $node = new_node($name, '');
	$node->append_conf('postgresql.conf', "snowflake_id.registry = '$place user=''$role'''");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	return $node;
}

my $one = leasing('one', 'snowflake node');
wait_until('one line is enough', sub { worker($one, 'worker_id') eq '0' });
my $two = leasing('two', 'second');
wait_until('another role has no rights yet', sub { worker($two, 'last_error') =~ /SQLSTATE 42501: permission denied for function lease\./ });
$registry->safe_psql('postgres', q{SELECT snowflake_create_registry('second')});
wait_until('the second call has granted them', sub { worker($two, 'worker_id') eq '1' });
is($registry->safe_psql('postgres', 'SELECT pool, worker_ids, leased FROM snowflake_pools'), 'default|[0,1024)|2', 'and made no other pool');

# The views of each server show that registry.
my %query = (snowflake_workers => 'SELECT worker_id, state, port FROM snowflake_workers ORDER BY worker_id',
	snowflake_pools => 'SELECT pool, worker_ids, except_ids, lease, hold, max_ahead, made, leased, free, never_leased, era FROM snowflake_pools');
for my $view (sort keys %query)
{
	my $there = $registry->safe_psql('postgres', $query{$view});
	isnt($there, '', "$view: the registry has rows");
	is($_->safe_psql('postgres', $query{$view}), $there, "$view of " . $_->name) for $one, $two;
}
sub connections { my @all = slurp_file($registry->logfile) =~ /connection authorized: user=snowflake node /g; return scalar @all; }
for my $view (sort keys %query)
{
	my $before = connections();
	$one->safe_psql('postgres', $query{$view});
	is(connections() - $before, 1, "$view: one connection for each reading");
}

# Who may read.
$one->safe_psql('postgres', 'CREATE ROLE reader LOGIN; GRANT SELECT ON snowflake_workers TO reader; CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor');
my $monitor = session($one, 'monitor');
is($monitor->query_safe('SELECT count(*) FROM snowflake_workers'), '2', 'a member of pg_monitor reads it');
$monitor->quit;
my $logged = -s $registry->logfile;
my $exporter = session($one, 'monitor');
my $local = 'SELECT count(*) FROM snowflake_pools WHERE EXISTS (SELECT FROM _snowflake.leased WHERE worker_ids IS NOT NULL)';
is($exporter->query_safe($local), '0', 'the query of the exporter is about the registry of the database only');
$exporter->quit;
is($registry->safe_psql('postgres', $local), 1, 'where it shows the pool');
my $reader = session($one, 'reader');
my ($code, $text) = error_in($reader, 'SELECT count(*) FROM snowflake_workers');
is($code, '42501', 'another role that may read the view');
like($text, qr/permission denied to read the registry of this server.*HINT:  Members of pg_monitor/s, 'is told why not');
is((error_in($reader, 'SELECT _snowflake.read_elsewhere()'))[0], '42501', 'nor does it call the function');
is((error_in($reader, 'SELECT count(*) FROM snowflake_pools'))[0], '42501', 'the other views are as ever for pg_monitor');
$reader->quit;
like(slurp_file($registry->logfile), qr/connection authorized: user=snowflake node /, 'views connect as the role of the setting');
unlike(slurp_file($registry->logfile, $logged), qr/connection authorized: user=snowflake node /, 'and nobody has connected for these');
my $stranger = session($registry, 'stranger');
is((error_in($stranger, 'SELECT _snowflake.read_registry()'))[0], '42501', 'a role that no server has reads nothing');
$stranger->quit;

# Functions of administrators say where to call them.
for my $call ('create_pool()', q{create_pool('more', '[2000,2010)')}, q{drop_pool('default')}, q{revoke_worker('default', 0)}, 'end_grace_period()',
	'declare_registry()')
{
	($code, $text) = error_of($one, "SELECT snowflake_$call");
	is($code, '55000', "snowflake_$call: the registry is elsewhere");
	like($text, qr/HINT:  Call the function in the database of the registry\./, 'where');
}
is($one->safe_psql('postgres', 'SELECT count(*) FROM _snowflake.state'), 0, 'nothing was made here');
$one->safe_psql('postgres', 'CREATE DATABASE own');
$one->safe_psql('own', 'CREATE EXTENSION snowflake_id; SELECT snowflake_create_registry()');
is($one->safe_psql('own', 'SELECT pool, leased FROM snowflake_pools'), 'default|0', 'a database that has pools shows them');
is($one->safe_psql('own', q{SELECT snowflake_create_pool('more', '[2000,2010)'); SELECT count(*) FROM snowflake_pools}) =~ s/^\n//r, '2', 'and its functions are about them');

# A server whose setting leads to a database of its own: that is to be the registry.
my $self = new_node('self', '');
$self->append_conf('postgresql.conf', "snowflake_id.registry = '" . conninfo($self) . "'");
$self->start;
$self->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE DATABASE other');
$self->safe_psql('other', 'CREATE EXTENSION snowflake_id');
is((error_of($self, q{SELECT snowflake_create_pool(max_ahead => '1 s')}, 'other'))[0], '55000', 'not another database of it');
$self->safe_psql('postgres', q{SELECT snowflake_create_pool(max_ahead => '1 s')});
wait_until('a registry of its own', sub { worker($self, 'worker_id') eq '0' });
$self->stop;

# A pool that is not there; the hint of the registry reaches the server.
set_by_reload($two, 'snowflake_id.pool' => 'mine');
wait_until('the hint', sub { worker($two, 'last_error') =~ /SQLSTATE 42704: pool "mine" does not exist\. snowflake_create_pool\(\) makes a pool;/ });
my $empty = new_node('empty', 901);
$empty->start;
$empty->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
set_by_reload($two, 'snowflake_id.registry' => conninfo($empty), 'snowflake_id.pool' => 'default');
wait_until('no registry', sub { worker($two, 'last_error') =~ /SQLSTATE 42704: pool "default" does not exist\. snowflake_create_registry\(\) makes it/ });
is($two->safe_psql('postgres', 'SELECT count(*) FROM snowflake_pools'), 0, 'a registry without pools has no rows');

# A registry that cannot be reached.
$empty->stop;
for my $view (sort keys %query)
{
	($code, $text) = error_of($two, "SELECT * FROM $view");
	is($code, '08000', "$view: there is no server");
	like($text, qr/could not read the registry of this server.*DETAIL:  Could not connect: /s, 'why');
}

# Generators whose worker field is too small: for the pool, or for the worker ID of the setting.
my $narrow = q{SELECT snowflake_create_generator('narrow', $$layout='time:41 worker:5 sequence:12' epoch=1735689600000$$)};
($code, $text) = error_of($one, $narrow);
is($code, '22023', 'a pool that the generator cannot hold');
like($text, qr/cannot hold all worker IDs of pool "default"/, 'which one');
($code, $text) = error_of($registry, $narrow);
is($code, '22023', 'a worker ID of the setting that it cannot hold');
like($text, qr/worker ID 900 is out of range for generator narrow.*HINT:  Set "snowflake_id.worker_id".* Or make the generator with more worker bits\./s, 'with the way out');
is($_->safe_psql('postgres', q{SELECT to_regclass('narrow')}), '', 'nothing was made') for $one, $registry;

$_->stop for $one, $two, $registry;
done_testing();
