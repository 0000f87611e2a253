# Functions of the TAP tests of many servers that lease their worker IDs: they make such
# servers and their registry, stop all processes of one, and collect the IDs that clients
# have received. The registry is in a database, or if REGISTRY says so in an etcd of three
# members.
package Leases;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Etcd;
use Snowflake;

our @EXPORT = qw(in_etcd new_registry create_pools kill_registry stop_registry start_registry freeze_registry thaw_registry
  on_registry template_of member conninfo worker row processes freeze thaw kill_all reboot keeper lead
  take first_id start_load stop_load loaded wait_for_ids bounds check_all parallel set_by_reload);

# The instant of tick 0 of the default layout, in Unix ms.
my $epoch;

sub in_etcd { return ($ENV{REGISTRY} // '') eq 'etcd'; }

# The server from which pools of an etcd are made.
my $admin;

# Makes a registry with these pools, and starts it. That in a database is a server whose
# clock the test can set. A pool is a line of arguments of snowflake_create_pool.
sub new_registry
{
	my ($name, @pools) = @_;
	if (in_etcd())
	{
		my $etcd = Etcd->new($name, 3, '--heartbeat-interval' => 50, '--election-timeout' => 500);
		create_pools($etcd, @pools);
		return $etcd;
	}
	my $node = new_node($name, '', allows_streaming => 1);
	$node->append_conf('postgresql.conf', "max_connections = 50\nrestart_after_crash = on\nlog_statement = none");
	start_with_clock($node, 0);
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	create_pools($node, @pools);
	return $node;
}

sub create_pools
{
	my ($registry, @pools) = @_;
	my ($server, $place) = ($registry, '');
	if ($registry->isa('Etcd'))
	{
		if (!$admin)
		{
			$admin = new_node('admin', 900);
			$admin->start;
			$admin->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
		}
		($server, $place) = ($admin, ", registry => '" . $registry->url . "'");
	}
	$server->safe_psql('postgres', join '; ', map { "SELECT snowflake_create_pool($_$place)" } @pools);
	return;
}

# Kills the registry, all members of it if it is an etcd, and starts it again.
sub kill_registry
{
	my ($registry) = @_;
	return $registry->isa('Etcd') ? $registry->kill_members($registry->members) : kill_all($registry);
}

# Stops the registry cleanly. An etcd that is killed has lost nothing.
sub stop_registry { my ($registry) = @_; return $registry->isa('Etcd') ? kill_registry($registry) : $registry->stop; }

sub freeze_registry
{
	my ($registry) = @_;
	return freeze($registry) if !$registry->isa('Etcd');
	return $registry->freeze($registry->members);
}

sub thaw_registry
{
	my ($registry, @frozen) = @_;
	return $registry->isa('Etcd') ? $registry->thaw($registry->members) : thaw(@frozen);
}

# Calls a function that administers the registry: these arguments, and where it is.
sub on_registry
{
	my ($registry, $function, @arguments) = @_;
	my $server = $registry->isa('Etcd') ? $admin : $registry;
	push @arguments, "registry => '" . $registry->url . "'" if $registry->isa('Etcd');
	return $server->safe_psql('postgres', "SELECT $function(" . join(', ', @arguments) . ')');
}

sub start_registry
{
	my ($registry) = @_;
	return start_with_clock($registry, 0) if !$registry->isa('Etcd');
	$registry->start_member($_) for $registry->members;
	return $registry->wait_until_up;
}

# Returns a stopped server of which members are copies. Copies have one system
# identifier, as clones of a machine's image do.
sub template_of
{
	my ($name) = @_;
	my $node = new_node($name, '', allows_streaming => 1);
	$node->append_conf('postgresql.conf', <<'CONF');
log_statement = none
restart_after_crash = on
shared_buffers = 16MB
autovacuum = off
CONF
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	$epoch = $node->safe_psql('postgres', 'SELECT 1000 * extract(epoch FROM snowflake_timestamp(0))::bigint');
	my $sample = 7 << 22 | 5 << 12 | 3;
	die 'the default layout is another one'
	  if $node->safe_psql('postgres', "SELECT (snowflake_decode($sample)).worker_id, 1000 * extract(epoch FROM snowflake_timestamp($sample))")
	  !~ /^5\|(\d+)\./ || $1 != $epoch + 7;
	$node->stop;
	$node->backup_fs_cold('cold');
	return $node;
}

# Makes a copy of the template with more settings; it is not started.
sub member
{
	my ($template, $name, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($template, 'cold');
	$node->append_conf('postgresql.conf', join "\n", @settings);
	return $node;
}

# Returns a conninfo of one registry, or of several that follow each other, or the URL of
# an etcd.
sub conninfo
{
	my @nodes = @_;
	return $nodes[0]->url if $nodes[0]->isa('Etcd');
	return join ' ', 'host=' . join(',', map { $_->host } @nodes), 'port=' . join(',', map { $_->port } @nodes), 'dbname=postgres';
}

sub worker { my ($node, $column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM snowflake_worker"); }
sub row { my ($registry, $id, $column) = @_; return $registry->safe_psql('postgres', "SELECT $column FROM snowflake_workers WHERE worker_id = $id"); }
sub keeper { return $_[0]->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake_id keeper'}); }

sub set_by_reload
{
	my ($node, %settings) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $_ = '$settings{$_}'") for sort keys %settings;
	$node->reload;
	return;
}

# Returns the process IDs of a server: its postmaster and that one's children.
sub processes
{
	my ($node) = @_;
	my $postmaster = $node->{_pid} or die 'the server does not run';
	return ($postmaster, split ' ', `ps -o pid= --ppid $postmaster`);
}

# Stops all processes of a server as a machine that is suspended does.
sub freeze
{
	my ($node) = @_;
	# The postmaster first: it starts no more children then.
	kill 'STOP', $node->{_pid};
	my @all = processes($node);
	kill 'STOP', @all;
	return @all;
}

sub thaw { return kill 'CONT', reverse @_; }

# Kills all processes of a server with SIGKILL.
sub kill_all
{
	my ($node) = @_;
	my @all = freeze($node);
	kill 'KILL', @all;
	wait_until('the server is dead', sub { !kill 0, @all });
	$node->{_pid} = undef;
	return;
}

# Cuts the power of the machine of a server, which is to be started again. Its boot ID is that of
# the tests' machine, so what differs is the data directory's inode: that is another server for a
# registry, as after a boot. What the kernel keeps of the former one does not count either. The
# former directory stays, empty: its inode would be that of another one otherwise.
my $boots = 0;
sub reboot
{
	my ($node) = @_;
	kill_all($node) if $node->{_pid};
	my $folder = $node->data_dir;
	PostgreSQL::Test::Utils::system_or_bail('sh', '-c', 'cp -a --reflink=auto "$0" "$0.new" && mv "$0" "$1" && mv "$0.new" "$0" && find "$1" -mindepth 1 -delete', $folder, "$folder." . ++$boots);
	return unlink "$folder/postmaster.pid";
}

# Runs a command for each of several nodes, all at the same time. Returns how many
# failed. `pg_ctl` leaves processes behind that would keep pipes open.
sub parallel
{
	my ($command, @nodes) = @_;
	my @children;
	for my $node (@nodes)
	{
		my $line = $command->($node);
		defined(my $pid = fork) or die "fork: $!";
		if ($pid == 0) { exec 'sh', '-c', "$line >/dev/null 2>&1 </dev/null" or die "exec: $!"; }
		push @children, $pid;
	}
	my $failed = 0;
	for (@children) { waitpid $_, 0; $failed++ if $? != 0; }
	$_->_update_pid(-1) for @nodes;
	return $failed;
}

# What clients have received, of every node: the IDs of a statement, and the bound of
# the node when the statement had its IDs, in Unix ms; 'fixed' if the worker ID comes
# from the settings and no registry has granted it.
my @received;
my %load;
my $statement = q{SELECT ids, (SELECT CASE WHEN bound IS NULL AND source = 'setting' THEN 'fixed' ELSE floor(extract(epoch FROM bound) * 1000)::text END
		FROM snowflake_worker WHERE ids IS NOT NULL)
	FROM (SELECT array_agg(snowflake_nextval()) AS ids FROM generate_series(1, %d) OFFSET 0) AS s};

sub receive
{
	my ($name, $line) = @_;
	my ($ids, $bound) = $line =~ /^\{(-?\d+(?:,-?\d+)*)\}\|(\d*|fixed)$/ or return;
	push @received, { node => $name, ids => [ split /,/, $ids ], bound => $bound };
	return;
}

# Returns worker ID and Unix ms of an ID.
sub decoded { my ($id) = @_; return (($id >> 12) & 1023, ($id >> 22) + $epoch); }

# Draws IDs, and returns the worker ID of the last one.
sub take
{
	my ($node, $count) = @_;
	receive($node->name, $node->safe_psql('postgres', sprintf $statement, $count // 20));
	return (decoded($received[-1]{ids}[-1]))[0];
}

# How many seconds the next ID of a server is ahead of the server's clock.
sub lead
{
	my ($node) = @_;
	take($node, 1);
	return $node->safe_psql('postgres', "SELECT round(extract(epoch FROM snowflake_timestamp($received[-1]{ids}[-1]) - clock_timestamp()), 2)");
}

# Draws the first ID of a server that has just come up, and returns its worker ID. Notes
# how long it took; the limit, in seconds, is far above that, for machines with much
# else to do.
sub first_id
{
	my ($node, $what, $limit) = @_;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die "no server: $what";
	my $from = time;
	my $worker;
	wait_until("an ID: $what", sub {
		my ($out, $error) = ('', '');
		return 0 if $node->psql('postgres', sprintf($statement, 1), stdout => \$out, stderr => \$error) != 0;
		receive($node->name, $out);
		$worker = (decoded($received[-1]{ids}[-1]))[0];
		return 1; });
	my $took = time - $from;
	note(sprintf 'first ID %.2f s after the server accepts connections: %s', $took, $what);
	# etcd looks for leases that have ended twice a second.
	cmp_ok($took, '<', $limit // (in_etcd() ? 20 : 10), "the first ID comes soon: $what");
	return $worker;
}

# Starts a client of a node, which draws IDs all the time and connects again when it
# must. Its IDs are known when it stops.
sub start_load
{
	my ($node, $every) = @_;
	$every //= 0.02;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/' . $node->name . '.ids';
	my $sql = sprintf "$statement \\watch $every\n", 5;
	append_to_file("$file.sql", $sql);
	append_to_file($_, '') for $file, "$file.err";
	defined(my $pid = fork) or die "fork: $!";
	if ($pid == 0)
	{
		setpgrp 0, 0;
		open STDOUT, '>>', $file or die "$file: $!";
		open STDERR, '>>', "$file.err" or die "$file.err: $!";
		$ENV{PGCONNECT_TIMEOUT} = 5;
		exec 'sh', '-c', 'while :; do psql -XAtq -f "$1" "$2"; sleep 0.1; done', 'load', "$file.sql",
		  $node->connstr('postgres') or die "exec: $!";
	}
	$load{ $node->name } = { pid => $pid, file => $file };
	return;
}

# A test that ends early leaves no clients behind.
END
{
	my $status = $?;
	kill 'KILL', -$_->{pid} for values %load;
	$? = $status;
}

# Ends the client of a node. Returns how many answers it got, and what errors it met.
sub stop_load
{
	my ($node) = @_;
	my $load = delete $load{ $node->name };
	kill 'KILL', -$load->{pid};
	waitpid $load->{pid}, 0;
	my $errors = slurp_file("$load->{file}.err");
	my $before = @received;
	# A last line that has no end is no answer.
	receive($node->name, $_) for map { /^(.*)\n/ ? $1 : () } slurp_file($load->{file}) =~ /([^\n]*\n)/g;
	unlink $load->{file}, "$load->{file}.sql", "$load->{file}.err";
	my $count = @received - $before;
	return wantarray ? ($count, $errors) : $count;
}

# Returns how many answers the client of a node has got so far.
sub loaded { my ($node) = @_; my @lines = slurp_file($load{ $node->name }{file}) =~ /^\{/mg; return scalar @lines; }

# Waits until the client of a node has got more IDs, issued from now on.
sub wait_for_ids
{
	my ($node, $what) = @_;
	my $before = loaded($node);
	return wait_until("IDs of " . $node->name . ": $what", sub { loaded($node) > $before + 5 });
}

# The greatest bound that a registry has ever shown for a worker ID, in Unix ms.
my %stored;

# The worker IDs of a registry, and their bounds in Unix ms.
sub bounds
{
	my ($registry) = @_;
	return $registry->isa('Etcd') ? $registry->bounds : $registry->safe_psql('postgres',
		'SELECT worker_id, floor(extract(epoch FROM bound) * 1000) FROM snowflake_workers WHERE bound IS NOT NULL');
}

# Checks the IDs of all nodes: none was issued twice, and none is of an instant past
# the bound that its node showed, or past the one that any registry has stored for its
# worker ID, now or at an earlier check.
sub check_all
{
	my ($what, @registries) = @_;
	for my $registry (@registries)
	{
		for (split /\n/, bounds($registry))
		{
			my ($worker, $ms) = split /\|/;
			$stored{$worker} = $ms if $ms > ($stored{$worker} // 0);
		}
	}
	my (%seen, %of_worker);
	my ($twice, $past_shown, $past_stored, $shown, $unknown) = (0) x 5;
	for my $answer (@received)
	{
		for my $id (@{ $answer->{ids} })
		{
			my ($worker, $ms) = decoded($id);
			$of_worker{$worker}{ $answer->{node} }++;
			if ($seen{$id}) { diag("$what: $id of $seen{$id} and $answer->{node}") if $twice++ < 3; }
			$seen{$id} = $answer->{node};
			next if $answer->{bound} eq 'fixed';
			if ($answer->{bound} ne '')
			{
				$shown++;
				if ($ms >= $answer->{bound}) { diag("$what: $id of $answer->{node} at $ms, bound $answer->{bound}") if $past_shown++ < 3; }
			}
			if (!defined $stored{$worker}) { $unknown++; }
			elsif ($ms >= $stored{$worker}) { diag("$what: $id of $answer->{node} at $ms, stored bound $stored{$worker}") if $past_stored++ < 3; }
		}
	}
	my $total = keys %seen;
	cmp_ok($total, '>', 0, "$what: $total IDs, under worker IDs " . join ', ', sort { $a <=> $b } keys %of_worker);
	is($twice, 0, "$what: no ID twice");
	cmp_ok($shown, '>', 0, "$what: bounds were shown");
	is($past_shown, 0, "$what: no ID past the bound that its node shows");
	is($unknown, 0, "$what: a registry knows each worker ID");
	is($past_stored, 0, "$what: no ID past the bound that is stored");
	return \%of_worker;
}

1;
