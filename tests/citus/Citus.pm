# Functions of the tests with Citus: they make a cluster of a coordinator and workers,
# each with the extension preloaded.
package Citus;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

our @EXPORT = qw(citus_node citus_cluster add_worker on_all nothing_is_found);

# Makes and starts a server with Citus and the extension preloaded, and with Citus in
# database postgres. Citus wants to be the first library. The extension comes later, by
# itself on workers: Citus has it created.
sub citus_node
{
	my ($name, $worker, %options) = @_;
	my $node = new_node($name, $worker, allows_streaming => 'logical', %options);
	$node->append_conf('postgresql.conf', <<"END");
shared_preload_libraries = 'citus,snowflake_id'
wal_level = logical
max_prepared_transactions = 100
max_connections = 200
max_wal_senders = 20
max_replication_slots = 20
citus.node_conninfo = 'sslmode=disable'
citus.local_hostname = '@{[ $node->host ]}'
citus.enable_statistics_collection = off
END
	$node->start;
	# Late minor releases name the libraries that may decode WAL, as Citus does for splits.
	my $decoders = $node->safe_psql('postgres', "SELECT setting FROM pg_settings WHERE name = 'output_plugin_libraries'");
	if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'"))
	{
		$node->append_conf('postgresql.conf', "output_plugin_libraries = '" . join(',', grep { $_ ne '' } $decoders, 'citus') . "'");
		$node->reload;
	}
	$node->safe_psql('postgres', 'CREATE EXTENSION citus');
	return $node;
}

# Makes a coordinator and so many workers, with worker IDs from 1 on, and creates the
# extension on the coordinator, in this version or the default one. Options are those of
# new_node().
sub citus_cluster
{
	my ($workers, $version, %options) = @_;
	my $coordinator = citus_node('coordinator', 1, %options);
	my ($host, $port) = ($coordinator->host, $coordinator->port);
	$coordinator->safe_psql('postgres', "SELECT citus_set_coordinator_host('$host', $port)");
	my @workers = map { citus_node("worker_$_", $_ + 1, %options) } 1 .. $workers;
	add_worker($coordinator, $_) for @workers;
	$coordinator->safe_psql('postgres', 'CREATE EXTENSION snowflake_id' . ($version ? " VERSION '$version'" : ''));
	return ($coordinator, @workers);
}

sub add_worker
{
	my ($coordinator, $worker) = @_;
	return $coordinator->safe_psql('postgres',
		sprintf("SELECT citus_add_node('%s', %d)", $worker->host, $worker->port));
}

# Checks that the nodes have nothing to report. A node of a busy machine may not answer in
# time, and is asked again.
sub nothing_is_found
{
	my ($coordinator, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $found;
	for (1 .. 10)
	{
		$found = $coordinator->safe_psql('postgres', 'SELECT * FROM snowflake_check_cluster()');
		last if $found !~ /no answer within/;
	}
	return is($found, '', "check_cluster: $what");
}

# Returns the results of a statement on these nodes, one for each.
sub on_all
{
	my ($sql, @nodes) = @_;
	return map { $_->safe_psql('postgres', $sql) } @nodes;
}

1;
