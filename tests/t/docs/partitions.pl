# Tests docs/partitions.md: its SQL does what the page shows, and what the page says of
# locks, time zones, plans, missing partitions and silences is so. tests/t/ddl/partition.pl
# tests snowflake_partition() itself.
#
# The blocks below the heading of pg_partman need that extension in the server's
# installation (Debian: postgresql-15-partman), and are skipped without it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use Pages;
use Snowflake;

my $page = 'docs/partitions.md';
my $text = slurp_file("$FindBin::RealBin/../../../$page");
my @blocks = blocks($text);
my $heading_of_partman = () = $text =~ /\G(?!## pg_partman\n)[^\n]*\n/gc;

# The page's blocks make partitions of today, and today may not end before the test.
sleep 61 if time % 86400 > 86340;

my $node = new_node('node', 7);
# Days have 23 or 25 hours here twice a year.
$node->append_conf('postgresql.conf', "timezone = 'Europe/Berlin'");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
	INSERT INTO orders VALUES (4711, 'from before snowflake IDs');
	INSERT INTO orders (item) SELECT 'a book' FROM generate_series(1, 100)});

sub one { return $node->safe_psql('postgres', $_[0]); }

# Runs the SQL blocks from one line of the page to another.
sub run_blocks
{
	my ($from, $to) = @_;
	for my $n (grep { $blocks[$_]{language} eq 'sql' } 0 .. $#blocks)
	{
		my $line = $blocks[$n]{line};
		check_block($node, 'postgres', $page, @blocks[ $n, $n + 1 ]) if $from <= $line && $line < $to;
	}
	return;
}

# Returns the one SQL block that contains a text.
sub block_with
{
	my ($part) = @_;
	my @found = grep { $_->{language} eq 'sql' && index($_->{text}, $part) >= 0 } @blocks;
	die scalar(@found) . " blocks contain $part" if @found != 1;
	return $found[0]{text};
}

run_blocks(0, $heading_of_partman);

# One call.
my $partitions = q{SELECT count(*) FROM pg_inherits WHERE inhparent = '%s'::regclass};
sub parts_of { return one(sprintf $partitions, $_[0]); }
is(parts_of('events'), 8, 'one call: partitions of today and of seven days');
is(one('SELECT count(*) FROM events'), 1000, 'one call: the rows are there');

# Locks on the parent, of the two ways to make a partition.
my $locks = q{SELECT string_agg(mode, ' ' ORDER BY mode) FROM pg_locks WHERE relation = 'events'::regclass AND pid = pg_backend_pid()};
is(one(qq{BEGIN; CREATE TABLE events_2050 (LIKE events INCLUDING ALL);
	ALTER TABLE events ATTACH PARTITION events_2050 FOR VALUES FROM (snowflake_min_id('2050-01-01Z')) TO (snowflake_min_id('2050-01-02Z'));
	$locks}), 'AccessShareLock ShareUpdateExclusiveLock', 'ATTACH PARTITION lets others read and write');
like(one(qq{BEGIN; CREATE TABLE events_2050 PARTITION OF events
	FOR VALUES FROM (snowflake_min_id('2050-01-01Z')) TO (snowflake_min_id('2050-01-02Z')); $locks}),
	qr/AccessExclusiveLock/, 'PARTITION OF does not');

# A missing partition, without and with a default one.
my $late = q{INSERT INTO events VALUES (snowflake_min_id('2060-01-01Z'), 'late')};
is((error_of($node, $late))[0], '23514', 'without a default partition, a row without a partition is refused');

# Without the extension: every day, on the last Sundays of March and October, which have 23 and
# 25 hours, after some days without the job, and after a partition that ends within a day.
my $block_of_logs = block_with('CREATE TABLE logs');
my $daily = block_with('DO $$');
is(parts_of('logs'), 8, 'without the extension: partitions of today and of seven days');
one($daily);
is(parts_of('logs'), 8, '... and the next run of the same day makes none');
one(q{CREATE TABLE other (LIKE logs INCLUDING ALL); ALTER TABLE logs ATTACH PARTITION other
	FOR VALUES FROM (snowflake_min_id('2045-03-01Z')) TO (snowflake_min_id('2045-03-24 15:00Z'))});
for my $day ('2045-03-20', '2045-03-26', '2045-10-20', '2045-10-29')
{
	my $as_of = $daily =~ s/now\(\)/'$day 00:00Z'::timestamptz/gr;
	isnt($as_of, $daily, "$day: the block asks for the time");
	one($as_of);
	is(one(q{SELECT string_agg(bound, ' ') FROM (
		SELECT DISTINCT to_char(snowflake_timestamp(m[1]::bigint) AT TIME ZONE 'UTC', 'HH24:MI:SS.US') AS bound
		FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid,
			regexp_matches(pg_get_expr(relpartbound, c.oid), '[(]''(\\d+)''[)]', 'g') AS m
		WHERE inhparent = 'logs'::regclass AND c.relname NOT IN ('other', 'logs_20450324')) AS all_bounds}), '00:00:00.000000', "$day: partitions begin and end at midnight in UTC");
	is((error_of($node, "INSERT INTO logs VALUES (snowflake_min_id('$day 23:59Z'))"))[0], '', "$day: a row has its partition");
}
is(parts_of('logs'), 9 + 227, '... and of all days since the one on which the job last ran');

# The same with IDs in plain SQL.
$node->safe_psql('postgres', 'CREATE DATABASE plain');
$node->command_ok([ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('plain'), '-f', "$FindBin::RealBin/../../../managed/snowflake_sql.sql" ], 'managed/snowflake_sql.sql');
is($node->safe_psql('plain', "SET search_path = public, snowflake_sql; $block_of_logs $daily " . sprintf $partitions, 'logs'), 8, 'IDs in plain SQL: the same block');

# Queries.
sub scanned
{
	my ($condition) = @_;
	my $plan = one("EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT count(*) FROM events WHERE $condition");
	return scalar grep { /Scan(?: using \w+)? on events_\d+\b/ && !/never executed/ } split /\n/, $plan;
}
sub day { return POSIX::strftime('%Y-%m-%d 00:00Z', gmtime(time + 86400 * $_[0])); }
one(q{CALL snowflake_partition('events', ahead => 12)});
my $all = parts_of('events');
is(scanned("id >= snowflake_min_id('" . day(5) . "') AND id < snowflake_min_id('" . day(7) . "')"), 2, 'a constant instant: two days are read');
is(scanned(q{id < snowflake_min_id(now() + interval '1 minute')}), 1, 'now(): one day is read');
one("CREATE TABLE jobs AS SELECT 'export' AS name, timestamptz '" . day(4) . "' AS started");
is(scanned("id >= (SELECT snowflake_min_id(started) FROM jobs WHERE name = 'export') AND id < snowflake_min_id('" . day(10) . "')"),
	6, 'a time that another table has: the days since then are read');
is(scanned(q{snowflake_timestamp(id) < now() + interval '1 minute'}), $all, 'snowflake_timestamp(id): all partitions are read');
is(scanned(q{id < snowflake_min_id(clock_timestamp() + interval '1 minute')}), $all, 'clock_timestamp(): all partitions are read');

# Generators whose IDs do not sort by time.
one(q{SELECT snowflake_create_generator('unsorted', 'preset=uniqueid_spread')});
is((error_of($node, q{SELECT snowflake_min_id(now(), 'unsorted')}))[0], '0A000', 'without an order by time, there are no bounds');

# Retention.
one("CREATE TABLE events_2025020$_ PARTITION OF events FOR VALUES FROM (snowflake_min_id('2025-02-0${_}Z')) TO (snowflake_min_id('2025-02-0" . ($_ + 1) . "Z'))") for 1, 2;
is(parts_of('events'), $all + 2, 'partitions of long ago');
output_of($node, 'postgres', block_with('CONCURRENTLY'));
is(parts_of('events'), $all, 'retention: these partitions are dropped, and no others');
is(one(q{SELECT to_regclass('events_20250201') IS NULL}), 't', 'retention: their tables are gone');

# An existing table.
my $months = q{SELECT string_agg(part::text, ' ' ORDER BY lower_bound) FROM _snowflake.partitions('orders')};
like(one($months), qr/^orders_before(?: orders_\d{8}){3,4}$/, 'an existing table: the call makes partitions from the bound on');
is(one(q{SELECT count(*) FROM ONLY orders_before}) . ' ' . one('SELECT count(*) FROM orders'), '101 101', 'an existing table: all rows are there');
one(q{ALTER TABLE orders DETACH PARTITION orders_before; ALTER TABLE orders_before RENAME TO other_before; DROP TABLE orders;
	ALTER TABLE other_before RENAME TO orders});
my ($out, $err);
$node->psql('postgres', "SET client_min_messages = debug1;\n" . block_with('orders_before'), stdout => \$out, stderr => \$err);
like($err, qr/partition constraint for table "orders_before" is implied by existing constraints/, 'an existing table: its rows are not read again');

SKIP:
{
	skip 'pg_partman is not installed in this server (Debian: postgresql-15-partman)', 11
	  if one(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman'}) == 0;
	run_blocks($heading_of_partman, 1e9);

		is(one('SELECT count(*) FROM partman.part_config'), 0, 'pg_partman: the table has left it');
	is(one("SELECT count(*) FROM visits_default") . one('SELECT count(*) FROM visits'), '01', '... with its row');
	is(one(q{SELECT count(*) FROM _snowflake.partitions('visits') WHERE snowflake_timestamp(lower_bound) <> date_trunc('day', snowflake_timestamp(lower_bound), 'UTC')}), 0,
		'... and partitions that begin at midnight in UTC');
	cmp_ok(parts_of('visits'), '>=', 8, '... today and seven days');
	is(one("INSERT INTO visits (id) VALUES (snowflake_min_id(now() + interval '7 days')) RETURNING tableoid::regclass <> 'visits_default'::regclass"), 't', '... each of which takes rows');

	# The last row of these tables is 20 days old. One has the cure of the page.
	for my $table ('uncured', 'cured')
	{
		one(block_with('create_parent') =~ s/CREATE (?:SCHEMA|EXTENSION) .*?;\n//gr =~ s/visits/$table/gr
			=~ s/INSERT .*//sr =~ s/now\(\)/now() - interval '20 days'/gr);
		one("INSERT INTO $table VALUES (snowflake_min_id(now() - interval '20 days'), 'the last one')");
	}
	my $row_of_today = q{INSERT INTO %s (page) VALUES ('/') RETURNING tableoid::regclass};
	my $maintain = 'CALL partman.run_maintenance_proc();';
	one($maintain);
	is(one(sprintf $row_of_today, 'uncured'), 'uncured_default', 'after a silence, a row goes to the default partition');
	if (one(q{SELECT extversion FROM pg_extension WHERE extname = 'pg_partman'}) =~ /^4/)
	{
		like((error_of($node, $maintain))[1], qr/updated partition constraint for default partition "uncured_default" would be violated/, 'version 4: the maintenance fails');
	}
	else
	{
		one($maintain);
		is(one('BEGIN; ' . sprintf $row_of_today, 'uncured'), 'uncured_default', 'version 5: the maintenance does not see the row, and the next one goes there too');
	}

	my $cure = block_with('create_partition_id') =~ s/visits/cured/gr =~ s/^CALL.*\n//mr;
	one($cure);
	unlike(one(sprintf $row_of_today, 'cured'), qr/default/, 'with partitions by the clock, the row goes to its partition');
	is(one('SELECT default_table, count FROM partman.check_default()'), 'public.uncured_default|1', 'the alert names the other table');

	one(q{CALL partman.partition_data_proc('public.uncured')});
	is(one('SELECT count(*) FROM partman.check_default()') . one('SELECT count(*) FROM uncured'), '02', 'the row is moved to a partition');
	one($maintain);
}
done_testing();
