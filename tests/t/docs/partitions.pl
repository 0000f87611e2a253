# Tests docs/partitions.md: its SQL does what the page shows, and what the page says of
# locks, time zones, plans, missing partitions and silences is so.
#
# The blocks below the heading of pg_partman need that extension in the server's
# installation (Debian: postgresql-15-partman), and are skipped without it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
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

# By hand.
my $daily = block_with('DO $$');
my $partitions = q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass};
is(one($partitions), 8, 'by hand: partitions of today and of seven days');
is(one('SELECT count(*) FROM events'), 1000, 'by hand: the rows are there');
one($daily);
is(one($partitions), 8, 'by hand: the next run of the same day makes none');

# The last Sundays of March and October have 23 and 25 hours.
for my $sunday ('2045-03-26', '2045-10-29')
{
	my $as_of = $daily =~ s/now\(\)/'$sunday 00:00Z'::timestamptz/gr;
	isnt($as_of, $daily, "$sunday: the block asks for the time");
	one($as_of);
	is(one(qq{SELECT string_agg(bound, ' ') FROM (
		SELECT DISTINCT to_char(snowflake_timestamp(m[1]::bigint) AT TIME ZONE 'UTC', 'HH24:MI:SS.US') AS bound
		FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid,
			regexp_matches(pg_get_expr(relpartbound, c.oid), '[(]''(\\d+)''[)]', 'g') AS m
		WHERE inhparent = 'events'::regclass) AS all_bounds}), '00:00:00.000000', "$sunday: partitions begin and end at midnight in UTC");
}
# With `1 day`, runs before and after such a Sunday do not fit together.
my $by_day = $daily =~ s/24 hours/1 day/gr;
one($by_day =~ s/now\(\)/'2046-10-25 00:00Z'::timestamptz/gr);
my ($code, $error) = error_of($node, $by_day =~ s/now\(\)/'2046-10-29 00:00Z'::timestamptz/gr);
is($code, '42P17', 'with 1 day, partitions overlap');
like($error, qr/would overlap partition/, '... and that is the error');

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
one(qq{CREATE TABLE events_default PARTITION OF events DEFAULT; $late});
is((error_of($node, $daily =~ s/now\(\)/'2060-01-01 00:00Z'::timestamptz/gr))[0], '23514',
	'with one, its partition cannot be made any more');
one('DROP TABLE events_default');

# Queries.
sub scanned
{
	my ($condition) = @_;
	my $plan = one("EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT count(*) FROM events WHERE $condition");
	return scalar grep { /Scan(?: using \w+)? on events_\d+\b/ && !/never executed/ } split /\n/, $plan;
}
my $all = one($partitions);
is(scanned(q{id >= snowflake_min_id('2045-10-30Z') AND id < snowflake_min_id('2045-11-01Z')}), 2, 'a constant instant: two days are read');
is(scanned(q{id < snowflake_min_id(now() + interval '1 minute')}), 1, 'now(): one day is read');
one(q{CREATE TABLE jobs AS SELECT 'export' AS name, timestamptz '2045-10-31Z' AS started});
is(scanned(q{id >= (SELECT snowflake_min_id(started) FROM jobs WHERE name = 'export') AND id < snowflake_min_id('2046-01-01Z')}),
	6, 'a time that another table has: the days since then are read');
is(scanned(q{snowflake_timestamp(id) < now() + interval '1 minute'}), $all, 'snowflake_timestamp(id): all partitions are read');
is(scanned(q{id < snowflake_min_id(clock_timestamp() + interval '1 minute')}), $all, 'clock_timestamp(): all partitions are read');

# Generators whose IDs do not sort by time.
one(q{SELECT snowflake_create_generator('unsorted', 'preset=uniqueid_spread')});
is((error_of($node, q{SELECT snowflake_min_id(now(), 'unsorted')}))[0], '0A000', 'without an order by time, there are no bounds');

# Retention.
one($daily =~ s/now\(\)/'2025-02-01 00:00Z'::timestamptz/gr);
is(one($partitions), $all + 8, 'partitions of long ago');
output_of($node, 'postgres', block_with('DETACH PARTITION'));
is(one($partitions), $all, 'retention: these partitions are dropped, and no others');
is(one(q{SELECT to_regclass('events_20250201') IS NULL}), 't', 'retention: their tables are gone');

# An existing table.
is(one(q{SELECT count(*) FROM ONLY orders_before}) . ' ' . one('SELECT count(*) FROM orders'), '101 101', 'an existing table: all rows are there');
one(q{ALTER TABLE orders DETACH PARTITION orders_before; ALTER TABLE orders_before RENAME TO other_before; DROP TABLE orders;
	ALTER TABLE other_before RENAME TO orders});
my ($out, $err);
$node->psql('postgres', "SET client_min_messages = debug1;\n" . block_with('orders_before'), stdout => \$out, stderr => \$err);
like($err, qr/partition constraint for table "orders_before" is implied by existing constraints/, 'an existing table: its rows are not read again');

SKIP:
{
	skip 'pg_partman is not installed in this server (Debian: postgresql-15-partman)', 1
	  if one(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman'}) == 0;
	run_blocks($heading_of_partman, 1e9);

	is(one(q{SELECT partition_interval = (86400000::bigint << 22)::text FROM partman.part_config}), 't', 'pg_partman: the interval');
	is(one(q{SELECT count(*) FROM visits_default}), 0, 'pg_partman: the row is in no default partition');
	is(one(q{SELECT count(*) FROM (SELECT DISTINCT snowflake_timestamp(child_start_id::bigint) AS bound
		FROM partman.show_partitions('public.visits') AS p,
			partman.show_partition_info(p.partition_schemaname || '.' || p.partition_tablename)) AS bounds
		WHERE bound <> date_trunc('day', bound, 'UTC')}), 0, 'pg_partman: partitions begin at midnight in UTC');

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
	($code, $error) = error_of($node, $maintain);
	is($code, 'P0001', 'the maintenance fails');
	like($error, qr/updated partition constraint for default partition "uncured_default" would be violated/, '... for that reason');

	my $cure = block_with('create_partition_id') =~ s/visits/cured/gr =~ s/^CALL.*\n//mr;
	one($cure);
	unlike(one(sprintf $row_of_today, 'cured'), qr/default/, 'with partitions by the clock, the row goes to its partition');
	is(one('SELECT default_table, count FROM partman.check_default()'), 'public.uncured_default|1', 'the alert names the other table');

	one(q{CALL partman.partition_data_proc('public.uncured')});
	is(one('SELECT count(*) FROM partman.check_default()') . one('SELECT count(*) FROM uncured'), '02', 'the row is moved to a partition');
	one($maintain);

	# Retention.
	one(q{UPDATE partman.part_config SET retention_keep_table = false,
		retention = (snowflake_min_id('2026-01-11Z') - snowflake_min_id('2026-01-01Z'))::text WHERE parent_table = 'public.cured'});
	one($maintain);
	is(one('SELECT count(*) FROM cured'), 1, 'retention: the row of 20 days ago is gone');
}
done_testing();
