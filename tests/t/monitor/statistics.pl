# Tests statistics across sessions, crashes and standbys, log messages about clocks, and
# what pg_stat_activity shows of a session that waits.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(sleep);

sub stat_of
{
	my ($node, $columns, $database) = @_;
	return $node->safe_psql($database // 'postgres', "SELECT $columns FROM pg_stat_snowflake");
}

sub lines_of
{
	my ($node, $pattern) = @_;
	my @lines = slurp_file($node->logfile) =~ /$pattern/g;
	return scalar @lines;
}

my $node = new_node('node', 7, allows_streaming => 1);
$node->append_conf('postgresql.conf', "snowflake_id.debug_slots = 2\nsnowflake_id.reserve_ahead = '200 ms'");
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');

# Some sessions have ended, one of them was killed in the middle of a transaction, and
# one rolls back.
ids($node, 1000) for 1 .. 3;
$node->safe_psql('postgres', 'SELECT count(*) FROM snowflake_nextval_batch(500)');
$node->safe_psql('postgres', 'BEGIN; SELECT snowflake_nextval(); ROLLBACK');
is(stat_of($node, 'issued, batches'), '3501|1', 'ended sessions and transactions are counted');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; SELECT snowflake_nextval() FROM generate_series(1, 10)');
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
wait_until('the session is gone', sub {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' });
is(stat_of($node, 'issued'), '3511', 'and one that was terminated');
eval { $session->quit };
is(stat_of($node, 'clock_rollbacks, largest_rollback'), '0|', 'no rollback yet');
my ($reservations, $time) = split /\|/, stat_of($node, 'reservations, reservation_time');
cmp_ok($reservations, '>=', 1, "$reservations reservations");
cmp_ok($time, '>', 0, "took $time ms");

# The counters grow before a long statement ends.
$session = $node->background_psql('postgres');
$session->query_safe('BEGIN; SELECT count(snowflake_nextval()) FROM generate_series(1, 20000)');
cmp_ok(stat_of($node, 'issued'), '>=', 3511 + 3 * 4096, 'a running transaction is counted');
$session->quit;

# The clock goes back by an hour, once. Every generator counts the rollback, and the log
# has one line about it.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION snowflake_id');
ids($node, 1, 'other');
set_clock($node, -3600);
for my $database (qw(postgres other postgres other))
{
	ids($node, 1, $database);
	sleep 0.3;
}
for my $database (qw(postgres other))
{
	my ($count, $largest) = split /\|/,
	  stat_of($node, 'clock_rollbacks, extract(epoch FROM largest_rollback)', $database);
	is($count, 1, "one rollback counted in $database");
	cmp_ok(abs($largest - 3600), '<', 1, "of $largest s");
}
is(lines_of($node, qr/LOG: .*clock moved backwards by (?:1 h|59 min 59 s)/), 1, 'logged once, with the figure');
my $ahead = $node->safe_psql('postgres', 'SELECT extract(epoch FROM ahead_by) FROM snowflake_generators');
cmp_ok($ahead, '>', 3590, "the view says how far ahead it is: $ahead s");
cmp_ok($ahead, '<', 3601, 'and not more');

# The clock goes forward again.
set_clock($node, 0);
sleep 0.3;
ids($node, 1);
is(lines_of($node, qr/LOG: .*clock moved forward by/), 1, 'a step forward is logged once');
is(stat_of($node, 'clock_rollbacks'), '1', 'and is no rollback');

# The log has a line for a refused jump, and another line when the jump is accepted.
set_clock($node, 3 * 86400);
sleep 0.3;
my ($code) = error_of($node, 'SELECT snowflake_nextval()');
is($code, '58000', 'refused');
error_of($node, 'SELECT snowflake_nextval()') for 1 .. 2;
is($node->safe_psql('postgres', q{
	SELECT clock_timestamp() - refused_since BETWEEN '0' AND '1 min', refusals
	FROM snowflake_generators JOIN pg_stat_snowflake USING (generator)}), 't|3', 'the views say so');
is(lines_of($node, qr/LOG: .*snowflake_id: clock jumped forward by (?:3 d|2 d 23 h 59 min 59 s)/), 1, 'so does the log, once');
# The clock is corrected: no rollback is counted, and no problem is shown.
set_clock($node, 0);
ids($node, 1);
is($node->safe_psql('postgres', q{
	SELECT refused_since IS NULL, clock_rollbacks FROM snowflake_generators JOIN pg_stat_snowflake USING (generator)}),
	't|1', 'a corrected jump is no rollback');
is(lines_of($node, qr/LOG: .*clock moved backwards by/), 1, 'nor one in the log');
is(lines_of($node, qr/LOG: .*generator snowflake_default issues IDs again/), 1, 'which says when it is over');
set_clock($node, 3 * 86400);
sleep 0.3;
is((error_of($node, 'SELECT snowflake_nextval()'))[0], '58000', 'refused again');
is(lines_of($node, qr/clock moved forward by 3 d/), 0, 'not followed');
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock(); SELECT snowflake_nextval()');
is(lines_of($node, qr/LOG: .*clock accepted, after a jump of (?:3 d|2 d 23 h 59 min 59 s)/), 1, 'an accepted jump is logged');

# The statistics of one database are reset.
$node->safe_psql('postgres', 'SELECT snowflake_stat_reset()');
is(stat_of($node, 'issued, clock_rollbacks, largest_rollback, reservations'), '0|0||0', 'reset');
cmp_ok(stat_of($node, 'issued', 'other'), '>', 0, 'the other database keeps its own');

my $before = stat_of($node, 'stats_reset');
# The default generator of a new database starts at the clock, however far ahead another
# one is.
$node->safe_psql('postgres', q{SELECT snowflake_advance('snowflake_default', clock_timestamp() + interval '1 hour')});
$node->safe_psql('postgres', 'CREATE DATABASE new');
$node->safe_psql('new', 'CREATE EXTENSION snowflake_id');
$ahead = $node->safe_psql('new', 'SELECT extract(epoch FROM ahead_by) FROM snowflake_generators');
my $found = $node->safe_psql('new', 'SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp())');
between($ahead, 0, 60, 'ahead by so many seconds');
between($found, -60, 60, 'so is its first ID');

# The counters of a generator that gave up its slot begin anew, and stats_reset shows
# since when. The test does not know which generator gives up its slot.
sub counted
{
	my ($columns, $view) = @_;
	$view //= 'pg_stat_snowflake';
	return $node->safe_psql('new', "SELECT $columns FROM $view WHERE generator = 'counted'::regclass");
}
$node->safe_psql('new', q{
	SELECT snowflake_create_generator('counted', 'preset=default');
	SELECT count(snowflake_nextval('counted')) FROM generate_series(1, 100)});
is(counted('issued'), '100', 'a named generator is counted');
$before = counted('stats_reset');
for my $number (1 .. 60)
{
	$node->safe_psql('new', "SELECT snowflake_create_generator('other$number', 'preset=default'); SELECT snowflake_nextval('other$number')");
	last if counted('count(*)') eq '0';
}
is(counted('count(*)'), '0', 'no slot, no row');
is(counted('reserved_until IS NOT NULL, last_id_at IS NULL', 'snowflake_generators'), 't|t', 'no slot, no last ID, but a mark');
$node->safe_psql('new', q{SELECT snowflake_nextval('counted')});
is(counted("issued, stats_reset > '$before'"), '1|t', 'a new slot counts from its beginning');
is(stat_of($node, 'count(*)'), '1', 'the default generator does not give way');
is(in_log($node, 'made room'), 0, 'each found a slot');

# pg_stat_activity shows that a session waits for the clock.
$node->safe_psql('new', q{SELECT snowflake_create_generator('few', $$layout='time:41 worker:10 sequence:1' epoch='2025-01-01 00:00:00+00'$$)});
my $busy = $node->background_psql('new', on_error_stop => 0);
$busy->query_until(qr/started/, q{\echo started
SELECT count(snowflake_nextval('few')) FROM generate_series(1, 10000000);
});
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');
my $expected = $version >= 170000 ? 'Extension|SnowflakeClock' : 'Extension|Extension';
my $seen = '';
wait_until('the wait is seen', sub {
	$seen = $node->safe_psql('postgres', q{
		SELECT DISTINCT wait_event_type, wait_event FROM pg_stat_activity
		WHERE wait_event_type = 'Extension' AND query LIKE '%generate_series(1, 10000000)%'
		AND pid <> pg_backend_pid()});
	return $seen ne '' });
is($seen, $expected, 'the wait has a name');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%generate_series(1, 10000000)%' AND pid <> pg_backend_pid()");
$busy->quit;

# A standby shows its mark, and no statistics.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
start_with_clock($standby, 3 * 86400);
ids($node, 1);
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT reserved_until FROM snowflake_generators'),
	$node->safe_psql('postgres', 'SELECT to_timestamp(last_value / 1000.0) FROM snowflake_default'),
	'a standby shows the mark');
is(stat_of($standby, 'count(*)'), '0', 'and has done nothing');
# A generator whose sequence cannot be read is shown as such, and the view still shows
# the others.
$node->safe_psql('postgres', q{CREATE UNLOGGED SEQUENCE volatile; SECURITY LABEL FOR snowflake_id ON SEQUENCE volatile IS 'preset=discord'});
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT generator, reserved_until FROM snowflake_generators WHERE generator::text = 'volatile'}),
	'volatile|', 'an unlogged sequence');
$node->safe_psql('postgres', 'DROP SEQUENCE volatile');
$node->wait_for_catchup($standby);
$standby->promote;
ids($standby, 1);
is($standby->safe_psql('postgres',
	q{SELECT clock_timestamp() - gap_applied_at BETWEEN '0' AND '1 min' FROM snowflake_generators}),
	't', 'after a promotion it shows when the gap was left');
$standby->stop;

# Without preloading the view shows the mark and the layout, but no statistics.
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
is($node->safe_psql('postgres', 'SELECT worker_id, reserved_until IS NOT NULL, ids_per_second FROM snowflake_generators'),
	'|t|4096000', 'not preloaded: what the catalog knows');
is((error_of($node, 'SELECT * FROM pg_stat_snowflake'))[0], '55000', 'not preloaded: no statistics');
$node->stop;

# The log announces the end of the layout's time a year ahead, once.
my $late = new_node('late', 1);
start_with_clock($late, 3976128000 - time);    # 2095-12-31, past the end
$late->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
is((error_of($late, 'SELECT snowflake_nextval()'))[0], '2200H', 'used up');
is(stat_of($late, 'refusals, issued'), '1|0', 'and counted');
is(shown($late, 'snowflake_generators', 'snowflake_default', q{clock_timestamp() - refused_since BETWEEN '0' AND '1 min'}), 't',
	'and shown since when');
$late->stop;
start_with_clock($late, 3919708800 - time);    # 2094-03-18
ids($late, 10);
$late->safe_psql('postgres', 'SELECT pg_sleep(6)');
ids($late, 10);
is(lines_of($late, qr/LOG: .*generator snowflake_default will have used up the time of its layout in 1\d\d d/),
	1, 'the end of its time is announced once');
$late->stop;

# When a generator changes its clock sequence, the log has the reason and how many clock
# sequences are left, whichever session saw the step first.
my $clocks = new_node('clocks', 1);
$clocks->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '100 ms'");
start_with_clock($clocks, 0);
$clocks->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
create_generator($clocks, 'n', q{preset=multi_clock epoch='2025-01-01 00:00:00+00'});
$clocks->safe_psql('postgres', "SELECT snowflake_nextval(), snowflake_nextval('n')");
set_clock($clocks, -60);
sleep 0.2;
ids($clocks, 1);
is(lines_of($clocks, qr/LOG: .*clock moved backwards by (?:1 min|5\d s)/), 1, 'the default generator has seen it');
$clocks->safe_psql('postgres', "SELECT snowflake_nextval('n')");
is(lines_of($clocks, qr/LOG: .*clock moved backwards by 5\d s.*\n.*DETAIL: .* n continues with clock sequence 1 of 0 to 15; 14 more are free\./),
	1, 'the other one goes on in its next clock');
is(lines_of($clocks, qr/starts before its mark/), 0, 'which was no start');
$clocks->stop('immediate');
start_with_clock($clocks, -60);
$clocks->safe_psql('postgres', "SELECT snowflake_nextval('n')");
is(lines_of($clocks, qr/LOG: .*generator n starts before its mark\n.*DETAIL: .* clock sequence 2 of 0 to 15; 13 more are free\./),
	1, 'and this is one');
$clocks->stop;

done_testing();
