# Measures what IDs of managed/snowflake_sql.sql cost, beside a plain sequence, the native extension
# and two functions that are in use elsewhere: in one run, in which all take turns. Prints the tables
# of docs/managed.md. tests/run managed starts it. QUICK=1 shows whether it works.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Snowflake;
use Time::HiRes qw(sleep);

my $quick = $ENV{QUICK};
my ($rounds, $ids, $seconds) = $quick ? (1, 200_000, 1) : (4, 200_000, 3);
# Rounds in which one client takes IDs: of processor time, which the system counts in hundredths of a second.
my $short_rounds = $quick ? 2 : 10;

my $node = PostgreSQL::Test::Cluster->new('bench');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake_id'\nsnowflake_id.worker_id = 1\nfsync = on\nautovacuum = off\nmax_wal_size = '4GB'\nshared_buffers = '256MB'\nmax_connections = 80");
$node->start;
my ($host, $port) = ($node->host, $node->port);
system_or_bail('psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-h', $host, '-p', $port, '-d', 'postgres', '-f', "$FindBin::RealBin/../../managed/snowflake_sql.sql");
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	SELECT snowflake_sql.snowflake_create_generator('moved', 5), snowflake_sql.snowflake_create_generator('self', 6);
	CREATE SEQUENCE plain; CREATE SEQUENCE s; CREATE SEQUENCE t;
	CREATE FUNCTION as_instagram(OUT result bigint) LANGUAGE plpgsql AS $$
	DECLARE our_epoch bigint := 1735689600000; seq_id bigint; now_millis bigint; shard_id int := 5;
	BEGIN
		SELECT nextval('s') % 1024 INTO seq_id;
		SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) INTO now_millis;
		result := (now_millis - our_epoch) << 23 | shard_id << 10 | seq_id;
	END $$;
	CREATE FUNCTION by_setval() RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE id bigint := nextval('t'); now_id bigint := (floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1735689600000) << 22;
	BEGIN
		IF id < now_id THEN PERFORM setval('t', now_id); RETURN now_id; END IF;
		RETURN id;
	END $$;
	CREATE FUNCTION took(query text) RETURNS float8 LANGUAGE plpgsql AS $$
	DECLARE began text[] := string_to_array(pg_read_file('/proc/self/stat'), ' '); ended text[];
	BEGIN
		EXECUTE query;
		ended := string_to_array(pg_read_file('/proc/self/stat'), ' ');
		RETURN (ended[14]::int + ended[15]::int - began[14]::int - began[15]::int) * 1e7;
	END $$});
my @all = (
	{ key => 'plain', name => '`nextval()` of a plain sequence', call => q{nextval('plain')} },
	{ key => 'moved', name => '`nextval()` of a generator', call => q{nextval('moved')} },
	{ key => 'self', name => '`snowflake_sql.snowflake_nextval()`', call => q{snowflake_sql.snowflake_nextval('self')} },
	{ key => 'native', name => 'native `snowflake_nextval()`', call => 'snowflake_nextval()' },
	{ key => 'instagram', name => "Instagram's function", call => 'as_instagram()' },
	{ key => 'setval', name => 'a function with `nextval()` and `setval()`', call => 'by_setval()' });
$node->safe_psql('postgres', "CREATE TABLE t_$_->{key} (id bigint, x int, at timestamptz DEFAULT clock_timestamp())") for @all;

# A scheduler, as pg_cron: one call each second, for the generator that is moved.
my $mover = fork // die "fork: $!";
if ($mover == 0)
{
	setpgrp 0, 0;
	open STDIN, '<', '/dev/null';
	open STDOUT, '>', '/dev/null';
	exec 'sh', '-c', q{echo "SELECT snowflake_sql.move('moved', snowflake_sql.tick(clock_timestamp()) << 22, 20, true) \watch 1" | psql -XAt "$1"}, 'mover', $node->connstr('postgres') or die "exec: $!";
}
END { my $status = $?; kill 'KILL', -$mover if $mover; $? = $status; }

my %measured;
sub median { my @x = sort { $a <=> $b } @_; return ($x[ @x / 2 ] + $x[ $#x / 2 ]) / 2; }
sub measured { my ($row, $who, $value) = @_; push @{ $measured{$row}{ $who->{key} } }, $value; return; }
# The median of the rounds' ratios to the plain sequence.
sub ratio
{
	my ($row, $who) = @_;
	my ($these, $plain) = map { $measured{$row}{$_} } $who->{key}, 'plain';
	return median(map { $these->[$_] / $plain->[$_] } 0 .. $#$these);
}
sub in_turn { my ($round, @who) = @_; my $first = $round % @who; return @who[$first .. $#who], @who[0 .. $first - 1]; }

sub per_id
{
	my ($call) = @_;
	return $node->safe_psql('postgres', "SELECT took(\$\$SELECT count(x) FROM (SELECT $call AS x FROM generate_series(1, $ids) OFFSET 0) AS s\$\$)") / $ids;
}
sub inserts
{
	my ($who, $clients) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$who->{key}.sql";
	append_to_file($file, "INSERT INTO t_$who->{key} (id, x) VALUES ($who->{call}, 1);\n") if !-e $file;
	my ($out) = run_command([ 'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-j', 2, '-T', $seconds, '-f', $file, '-h', $host, '-p', $port, 'postgres' ]);
	my ($tps) = $out =~ /^tps = ([\d.]+)/m or die "pgbench: $out";
	return $tps;
}
my (%time, $empty);
for my $round (1 .. $short_rounds)
{
	$empty += per_id('pg_backend_pid()') / $short_rounds;
	$time{ $_->{key} } += per_id($_->{call}) / $short_rounds for in_turn($round, @all);
}
for my $round (1 .. $rounds)
{
	measured('four', $_, inserts($_, 4)) for in_turn($round, @all);
}
my $late = join '; ', map { my ($who) = @$_; "$who->{name} " . $node->safe_psql('postgres', "SELECT format('%s ms, at most %s ms', round(percentile_cont(0.5) WITHIN GROUP (ORDER BY late)), round(max(late)))
	FROM (SELECT 1000 * extract(epoch FROM at - snowflake_sql.snowflake_timestamp(id)) AS late FROM t_$who->{key}) AS s") } [ $all[1] ], [ $all[2] ];
# With 32 clients, beside a transaction that has used the generators and stays open.
my @three = @all[ 0 .. 2 ];
for my $round (1 .. $rounds)
{
	measured('many', $_, inserts($_, 32)) for in_turn($round, @three);
	my $session = $node->background_psql('postgres');
	$session->query_safe(q{BEGIN; SELECT nextval('plain'), nextval('moved'), nextval('self')});
	measured('held', $_, inserts($_, 32)) for in_turn($round, @three);
	$session->query_safe('COMMIT');
	$session->quit;
}
my $report = '';
sub table
{
	my ($rows, @who) = @_;
	$report .= '| | ' . join(' | ', map { $_->[1] } @$rows) . " |\n|---|" . '---|' x @$rows . "\n";
	for my $who (@who)
	{
		$report .= join(' | ', "| $who->{name}", map { sprintf "$_->[2] (%.2f)", median(@{ $measured{ $_->[0] }{ $who->{key} } }), ratio($_->[0], $who) } @$rows) . " |\n";
	}
	$report .= "\n";
	return;
}
$report .= "| | processor time per ID, ns, one client |\n|---|---|\n" . join('', map {
	sprintf "| %s | %.0f (%.2f) |\n", $_->{name}, $time{ $_->{key} } - $empty, ($time{ $_->{key} } - $empty) / ($time{plain} - $empty) } @all) . "\n";
table([ [ 'four', 'INSERTs per second, 4 clients', '%.0f' ] ], @all);
table([ [ 'many', 'INSERTs per second, 32 clients', '%.0f' ], [ 'held', 'the same, beside a long transaction', '%.0f' ] ], @three);
$report .= sprintf "PostgreSQL %s; in parentheses the ratio to the plain sequence: of %d rounds together, and of INSERTs the median of the ratios of %d rounds.\n",
  $node->safe_psql('postgres', 'SHOW server_version'), $short_rounds, $rounds;
$report .= "How late the time in IDs is, 4 clients, median: $late.\n";
kill 'KILL', -$mover;
$node->stop;
append_to_file("$ENV{TESTDIR}/report", $report);
