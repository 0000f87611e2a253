# Measures a registry of worker IDs with many servers, in PostgreSQL and in etcd: keepers.rs plays
# their keepers. Prints tables of docs/performance.md. tests/run bench_registry starts it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use Etcd;
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Snowflake;
use Time::HiRes qw(time);

my @sizes = split ' ', $ENV{SERVERS} || ($ENV{QUICK} ? '100' : '100 384');
my @kinds = split ' ', $ENV{KINDS} || 'postgres etcd';
my $seconds = $ENV{QUICK} ? 5 : 20;
my $connections_max = $ENV{CONNECTIONS} || 400;
my $ticks = POSIX::sysconf(POSIX::_SC_CLK_TCK());
my (@lines, @notes);

# A registry for as many servers.
sub registry
{
	my ($count) = @_;
	my $node = new_node("registry$count", 7);
	# The settings of a test are those of no server in use.
	$node->append_conf('postgresql.conf', join "\n", "shared_buffers = '256MB'", "max_wal_size = '4GB'", 'fsync = on', 'log_statement = none',
		'log_connections = off', 'log_disconnections = off', 'max_connections = ' . ($connections_max + 50), 'commit_siblings = 0', 'autovacuum_naptime = 15s', '');
	$node->start;
	$node->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('main', '[0,44000)')});
	$node->safe_psql('postgres', "CREATE ROLE node LOGIN; SELECT snowflake_create_registry('node')");
	return ($node, sprintf 'host=%s port=%s dbname=postgres user=node', $node->host, $node->port);
}

# The processor time that processes have taken, in seconds, with those of their children that have ended.
sub processor
{
	my $sum = 0;
	for my $pid (@_)
	{
		my $stat = eval { slurp_file("/proc/$pid/stat") } or next;
		my @fields = split ' ', $stat =~ s/.*\) //sr;
		$sum += $_ for @fields[ 11 .. 14 ];
	}
	return $sum / $ticks;
}

sub children { my ($parent) = @_; my ($out) = run_command([ 'ps', '-o', 'pid=', '--ppid', $parent ]); return split ' ', $out; }

# The seconds that a query takes: the least of three times.
sub query_time
{
	my ($node, $database, $query) = @_;
	my ($out) = run_command([ 'psql', '-XqAt', '-c', '\timing on', map({ ('-c', $query) } 1 .. 4), $node->connstr($database) ]);
	my (undef, @times) = $out =~ /^Time: ([\d.]+) ms/mg;
	my ($least) = sort { $a <=> $b } @times;
	return $least // die $out;
}

# Plays the keepers of `count` servers. Calls a function when a phase begins. Returns what was seen in each phase.
sub play
{
	my ($count, $begins, $place) = @_;
	my $connections = $count < $connections_max ? $count : $connections_max;
	my %seen;
	open my $out, '-|', "$ENV{KEEPERS}", $count, $connections, $seconds, 'main', $place or die $!;
	while (<$out>)
	{
		chomp;
		my ($phase, @fields) = split /\t/;
		if ($phase eq 'begins') { $begins->($fields[0]); next; }
		my %of;
		@of{qw(answers median p99 greatest without refused failed why)} = @fields;
		$seen{$phase} = \%of;
	}
	close $out or die "keepers: $?";
	return ($connections, \%seen);
}

sub line
{
	my ($what, $connections, $seen, $used, @more) = @_;
	my ($acquire, $renew, $resume) = @$seen{qw(acquire renew resume)};
	for my $phase (qw(acquire renew resume))
	{
		my $of = $seen->{$phase};
		push @notes, "$what, $phase: " . join(', ', map { "$_ " . ($of->{$_} // '') } sort keys %$of) . "\n";
	}
	push @lines, sprintf "| %s | %s | %.1f s%s | %.2f ms | %.0f | %.1f / %.1f ms | %.2f ms | %.1f s%s | %s |\n", $what, $connections,
		$acquire->{greatest} / 1000, $acquire->{without} ? " ($acquire->{without} have none)" : '', ($used->{settle} - $used->{acquire}) * 1000 / ($acquire->{answers} || 1),
		$renew->{answers} / $seconds, @$renew{qw(median p99)}, ($used->{outage} - $used->{renew}) * 1000 / ($renew->{answers} || 1), $resume->{greatest} / 1000, $resume->{without} ? " ($resume->{without} have not)" : '', join(' | ', @more);
	return;
}

sub in_postgres
{
	my ($count) = @_;
	my ($node, $place) = registry($count);
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my (%positions, %used, @more);
	my $begins = sub {
		my ($phase) = @_;
		$used{$phase} = processor($postmaster, children($postmaster));
		$positions{$phase} = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
		return if $phase ne 'outage';
		my ($sum, $backends) = (0, 0);
		for my $pid (split /\n/, $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE usename = 'node'}))
		{
			my ($private) = eval { slurp_file("/proc/$pid/smaps_rollup") =~ /^Private_Dirty: +(\d+)/m } or next;
			$sum += $private / 1024; $backends++;
		}
		push @more, sprintf('%.1f MB', $sum / ($backends || 1));
		push @more, map { sprintf '%.1f ms', query_time($node, 'postgres', $_) }
			'SELECT count(*) FROM snowflake_workers', 'SELECT * FROM snowflake_pools';
	};
	my ($connections, $seen) = play($count, $begins, $place);
	my ($stats) = run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-z', '-s', $positions{renew}, '-e', $positions{outage} ]);
	my (undef, $records, undef, $images) = $stats =~ /^Total +(\d+) +(\d+) \[[\d.]+%\] +(\d+)/m ? (0, $2, 0, $3) : die $stats;
	my $relations = $node->safe_psql('postgres', q{
		SELECT string_agg(format('%s %s kB, %s dead, vacuumed %s times', s.relname, pg_relation_size(s.relid) / 1024, s.n_dead_tup, s.autovacuum_count), '; ' ORDER BY s.relname)
		FROM pg_stat_all_tables AS s WHERE s.schemaname = '_snowflake' AND s.relname IN ('state', 'leases')});
	my $stored = $node->safe_psql('postgres', 'SELECT octet_length(_snowflake.read_registry()::text)');
	push @notes, sprintf "%d servers: stored %d bytes; %s\n", $count, $stored, $relations;
	# Whole pages after a checkpoint, which comes every 5 minutes.
	push @more, sprintf '%.0f MB', ($records * 3600 / $seconds + $images * 12) / 1e6;
	line("$count servers", $connections, $seen, \%used, @more);
	$node->stop;
	return;
}

sub in_etcd
{
	my ($count) = @_;
	my $why = Etcd::missing();
	if ($why) { push @notes, "skipped: $why\n"; return; }
	my $etcd = Etcd->new("etcd$count", 1);
	my $node = new_node("pools$count", 7);
	$node->start;
	$node->safe_psql('postgres', sprintf q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('main', '[0,27000)', registry => '%s')}, $etcd->url);
	my $pid = $etcd->{members}[0]{pid};
	my (%used, %sizes, @more);
	my $begins = sub {
		my ($phase) = @_;
		$used{$phase} = processor($pid);
		$sizes{$phase} = $etcd->call('/v3/maintenance/status', {})->{dbSize};
		return;
	};
	my ($connections, $seen) = play($count, $begins, $etcd->url);
	push @notes, sprintf "%d servers: etcd's database grew by %d bytes in %d seconds\n", $count, $sizes{outage} - $sizes{renew}, $seconds;
	push @more, '', '', '', sprintf '%.0f MB', ($sizes{outage} - $sizes{renew}) * 3600 / $seconds / 1e6;
	line("$count servers, etcd", $connections, $seen, \%used, @more);
	$etcd->kill_members(0);
	$node->stop;
	return;
}

for my $count (@sizes)
{
	in_postgres($count) if grep { $_ eq 'postgres' } @kinds;
	in_etcd($count) if grep { $_ eq 'etcd' } @kinds;
}

open my $report, '>', "$ENV{TESTDIR}/report" or die $!;
print {$report} '| | connections | all have a worker ID after | processor time of a grant | renewals a second | median / 99th percentile | processor time of each | after 20 s without the registry, all have renewed in | memory of a connection | ',
	"`snowflake_workers` | `snowflake_pools` | WAL an hour |\n", '|---' x 12, "|\n", @lines, "\n", @notes;
close $report or die $!;
