# Measures what the extension's functions and keys cost on a coordinator and two workers of
# Citus, all on one machine. Prints a table. tests/run bench_citus starts it.
#
# Rounds alternate between the ways of one table, so that other load on the machine meets
# all of them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../t/lib", "$FindBin::RealBin/../citus";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Snowflake;
use Test::More;
use Time::HiRes qw(time);
use Citus;

my ($rounds, $rows) = $ENV{QUICK} ? (1, 10_000) : (5, 1_000_000);
my ($coordinator, @workers) = citus_cluster(2);
# The settings of a test are those of no server in use.
for my $node ($coordinator, @workers)
{
	$node->append_conf('postgresql.conf', join "\n", "shared_buffers = '256MB'", "max_wal_size = '4GB'", 'fsync = on',
		'log_statement = none', '');
	$node->restart;
}
my @lines;

sub run { return $coordinator->safe_psql('postgres', $_[0]); }

# Returns the seconds that a statement takes, with the start of psql.
sub seconds
{
	my ($sql) = @_;
	my $start = time;
	run($sql);
	return time - $start;
}

# Adds a line: what was done, the median of the seconds, the least and the most.
sub line
{
	my ($what, @seconds) = @_;
	my @sorted = sort { $a <=> $b } @seconds;
	my $median = ($sorted[ @sorted / 2 ] + $sorted[ $#sorted / 2 ]) / 2;
	push @lines, sprintf "| %s | %.1f | %.1f to %.1f |\n", $what, $median, @sorted[ 0, -1 ];
	return;
}

my %took;
for my $round (1 .. $rounds)
{
	push @{ $took{make} }, seconds("SELECT * FROM snowflake_distribute_generator(snowflake_create_generator('ids_$round', 'preset=twitter'))");
	push @{ $took{same} }, seconds("SELECT * FROM snowflake_distribute_generator('ids_$round')");
	push @{ $took{check} }, seconds('SELECT * FROM snowflake_check_cluster()');
}
line('`snowflake_distribute_generator()` makes a generator', @{ $took{make} });
line('it finds nothing to do', @{ $took{same} });
line('`snowflake_check_cluster()`', @{ $took{check} });

for my $round (1 .. $rounds)
{
	for my $column (qw(id k))
	{
		run("CREATE TABLE old (id bigint, k int); SELECT create_distributed_table('old', '$column');
			INSERT INTO old SELECT i, i FROM generate_series(1, $rows) AS i");
		push @{ $took{"default $column"} }, seconds(q{SELECT snowflake_set_default('old', 'id')});
		my $all = run('SELECT count(*) FROM old');
		die "$all rows of $rows" if $all != $rows;
		run('DROP TABLE old');
	}
}
line("`snowflake_set_default()`, $rows rows, the key is the distribution column", @{ $took{'default id'} });
line('the same, the key is another column', @{ $took{'default k'} });

run(q{CREATE TABLE by_k (id bigint DEFAULT snowflake_nextval(), k int); SELECT create_distributed_table('by_k', 'k');
	CREATE TABLE serials (id bigserial, k int); SELECT create_distributed_table('serials', 'k');
	CREATE TABLE by_id (id bigint DEFAULT snowflake_nextval(), k int); SELECT create_distributed_table('by_id', 'id')});
for my $round (1 .. $rounds)
{
	for my $table (qw(by_k serials by_id))
	{
		run("TRUNCATE $table");
		push @{ $took{$table} }, seconds("INSERT INTO $table (k) SELECT i FROM generate_series(1, $rows) AS i");
	}
}
line("`INSERT ... SELECT generate_series()`, $rows rows, a generator as the default", @{ $took{by_k} });
line('the same with `bigserial`', @{ $took{serials} });
line('the same with a generator, the key is the distribution column', @{ $took{by_id} });
run('DROP TABLE by_k, serials, by_id');

# Two sessions per node insert while a shard of each table is moved and split.
run(q{CREATE TABLE by_id (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), k int); SELECT create_distributed_table('by_id', 'id', shard_count => 4);
	CREATE TABLE by_k (id bigint DEFAULT snowflake_nextval(), k int, PRIMARY KEY (k, id)); SELECT create_distributed_table('by_k', 'k', shard_count => 4)});
my $script = PostgreSQL::Test::Utils::tempdir() . '/inserts.sql';
append_to_file($script, "INSERT INTO by_id (k) VALUES (7);\nINSERT INTO by_k (k) VALUES ((random() * 100)::int);\n");
my @clients;
for my $node ($coordinator, @workers)
{
	my ($out, $err) = ('', '');
	push @clients, [ IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 600, '-f', $script, $node->connstr('postgres') ], '>', \$out, '2>', \$err), \$err ];
}
sub all_insert { return run('SELECT count(DISTINCT (snowflake_decode(id)).worker_id) FROM by_k') == 1 + @workers; }
wait_until('all nodes insert', \&all_insert);
for my $table (qw(by_id by_k))
{
	my ($shard, $from) = split /\|/, run("SELECT shardid, nodeport FROM citus_shards WHERE table_name = '$table'::regclass ORDER BY shardid LIMIT 1");
	my ($source, $target) = $workers[0]->port == $from ? @workers : reverse @workers;
	push @{ $took{move} }, seconds(sprintf "SELECT citus_move_shard_placement(%d, '%s', %d, '%s', %d, 'force_logical')",
		$shard, $source->host, $source->port, $target->host, $target->port);
	push @{ $took{split} }, seconds("SELECT citus_split_shard_by_split_points($shard,
		ARRAY[((shardminvalue::bigint + shardmaxvalue::bigint) / 2)::text], ARRAY[n.nodeid, n.nodeid], 'force_logical')
		FROM pg_dist_shard, (SELECT min(nodeid) AS nodeid FROM pg_dist_node WHERE shouldhaveshards) AS n WHERE shardid = $shard");
}
my $failed = 0;
for my $client (@clients)
{
	die "a client has ended: ${ $client->[1] }" if !$client->[0]->pumpable;
	$client->[0]->signal('TERM');
	eval { IPC::Run::finish($client->[0]); };
	$failed += () = ${ $client->[1] } =~ /ERROR|FATAL|PANIC|aborted|error:/g;
}
line('a shard is moved while six sessions insert', @{ $took{move} });
line('a shard is split meanwhile', @{ $took{split} });
my ($inserted, $twice) = map { my $sum = $_; run("SELECT $sum FROM (SELECT id FROM by_id UNION ALL SELECT id FROM by_k) AS a") }
	'count(*)', 'count(*) - count(DISTINCT id)';

my $report = sprintf "%s, PostgreSQL %s, %d cores, %d rounds\n\n", run(q{SELECT 'Citus ' || extversion FROM pg_extension WHERE extname = 'citus'}),
	run('SHOW server_version'), scalar(grep { /^processor/ } split /\n/, slurp_file('/proc/cpuinfo')), $rounds;
$report .= "| what | seconds, median | from, to |\n|---|---|---|\n" . join('', @lines);
$report .= "\nmeanwhile $inserted rows were inserted; statements that failed: $failed; IDs that were issued twice: $twice\n";
append_to_file("$ENV{TESTDIR}/report", $report);
