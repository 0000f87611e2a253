# Tests more generators than slots: slots change owners, the server makes room, and no
# ID is issued twice, also over crashes. Two databases have generators of the same
# names.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time);

my $slots = 8;
my $generators = 200;
my $node = new_node('main', 3);
# No timeout may fire under load while the clock moves; see clock.c.
$node->append_conf('postgresql.conf', "snowflake_id.debug_slots = $slots\ndeadlock_timeout = '10 min'");
start_with_clock($node, 0);

# The names are the same in both databases, with other labels; some labels share a
# layout.
my %label = (
	postgres => [ q{preset=shardingsphere on_rollback=continue}, q{preset=sonyflake}, q{preset=discord}, q{preset=javascript} ],
	other => [ q{preset=discord}, q{preset=shardingsphere on_rollback=continue}, q{preset=instagram}, q{preset=sonyflake max_borrow=0} ]);
$node->safe_psql('postgres', 'CREATE DATABASE other');
for my $database (sort keys %label)
{
	my $labels = join ',', map { "'$_'" } @{ $label{$database} };
	$node->safe_psql($database, qq{
		SET client_min_messages = warning;
		CREATE EXTENSION snowflake_id;
		DO \$\$
		DECLARE labels text[] := ARRAY[$labels];
		BEGIN
			FOR n IN 1 .. $generators LOOP
				PERFORM snowflake_create_generator('g' || n, labels[n % 4 + 1]);
			END LOOP;
		END\$\$;
		CREATE TABLE seen (n bigserial, round int, client text, name text, id bigint)});
}

# Each transaction draws from two generators, so that four sessions hold all slots at
# times.
my $script = $node->basedir . '/draw.sql';
append_to_file($script, qq{
\\set first random(1, $generators)
\\set second random(1, $generators)
BEGIN;
SELECT snowflake_nextval('g:first') AS a \\gset
SELECT snowflake_nextval('g:second') AS b \\gset
SELECT snowflake_nextval('g:first') AS c \\gset
INSERT INTO seen (round, client, name, id) VALUES
	(:round, :client_id, 'g:first', :a), (:round, :client_id, 'g:second', :b), (:round, :client_id, 'g:first', :c);
COMMIT;
});

sub bench
{
	my ($database, $clients, $round, $seconds) = @_;
	my $bench = { out => '', err => '' };
	$bench->{run} = IPC::Run::start(
		[ 'pgbench', '-n', '-c', $clients, '-j', '1', '-T', $seconds, '-D', "round=$round", '-f', $script,
			'-h', $node->host, '-p', $node->port, $database ],
		'>', \$bench->{out}, '2>', \$bench->{err});
	return $bench;
}

my $rounds = 4;
for my $round (1 .. $rounds)
{
	my @benches = map { bench($_, 2, $round, $round == $rounds ? 3 : 60) } sort keys %label;
	# The last round ends by itself.
	for my $database ($round < $rounds ? sort keys %label : ())
	{
		wait_until("IDs in $database", sub {
			$node->safe_psql($database, "SELECT count(*) FROM seen WHERE round = $round") > 900 });
	}
	if ($round < $rounds)
	{
		# The server crashes in the middle of the load, and the clock goes back.
		crash($node);
		$_->{run}->finish for @benches;
		next;
	}
	for my $bench (@benches)
	{
		ok($bench->{run}->finish, 'clients drew to the end') or diag $bench->{err};
		unlike($bench->{err}, qr/ERROR/, 'without an error');
	}
}

for my $database (sort keys %label)
{
	my ($ids, $names) = split /\|/, $node->safe_psql($database, 'SELECT count(*), count(DISTINCT name) FROM seen');
	note "$database: $ids IDs of $names generators";
	is($names, $generators, "$database: each generator was used");
	is($node->safe_psql($database, 'SELECT count(*) FROM (SELECT FROM seen GROUP BY name, id HAVING count(*) > 1) AS s'), '0',
		"$database: no ID twice of a generator");
	is($node->safe_psql($database, q{
		SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY name, round, client ORDER BY n) AS back FROM seen) AS s WHERE back}), '0',
		"$database: each session's IDs of a generator increase");
	is($node->safe_psql($database, q{
		SELECT count(*) FROM (
			SELECT min(id) < lag(max(id)) OVER (PARTITION BY name ORDER BY round) AS back FROM seen GROUP BY name, round) AS s WHERE back}), '0',
		"$database: after a crash they lie above all before");
	# IDs decode by the label that the generator has in this database.
	is($node->safe_psql($database, q{
		SELECT count(*) FROM seen, snowflake_decode(id, name::regclass) AS d
		WHERE worker_id <> 3 OR created_at NOT BETWEEN now() - interval '1 h' AND now() + interval '1 h'}), '0',
		"$database: each is one of its generator's");
}

# A generator that gets a slot again starts at its mark. Each such start raises the mark
# a little, and the generator must not run away from the clock.
for my $database (sort keys %label)
{
	my $lead = $node->safe_psql($database, q{
		SELECT max(extract(epoch FROM snowflake_timestamp(id, name::regclass) - clock_timestamp()))
		FROM (SELECT DISTINCT ON (name) name, id FROM seen WHERE round = 1 ORDER BY name, id DESC) AS s});
	note "$database: at most $lead s ahead of the clock, " . 30 * ($rounds - 1) . ' s of which it was set back';
	cmp_ok($lead, '<', 30 * ($rounds - 1) + 30, "$database: the first round has not run away");
	$lead = $node->safe_psql($database, 'SELECT extract(epoch FROM max(ahead_by)) FROM snowflake_generators');
	cmp_ok($lead, '<', 30 * ($rounds - 1) + 30, "$database: at most $lead s ahead at the end");
}

# The views show all generators, quickly, and with the right values.
for my $database (sort keys %label)
{
	my $from = time;
	is($node->safe_psql($database, 'SELECT count(*), count(DISTINCT generator) FROM snowflake_generators'),
		join('|', ($generators + 1) x 2), "$database: all are listed");
	note sprintf '%s: %d generators listed in %.0f ms, with the connection', $database, $generators + 1, (time - $from) * 1000;
	is($node->safe_psql($database, 'SELECT count(*) FROM snowflake_generators WHERE problem IS NOT NULL'), '0', "$database: none has a problem");
	# A generator without a slot shows its mark, and the mark is after the last ID.
	is($node->safe_psql($database, q{
		SELECT count(*), bool_and(reserved_until > last.at), bool_and(coalesce(last_id_at <= reserved_until, true))
		FROM snowflake_generators JOIN (
			SELECT name::regclass AS generator, max(snowflake_timestamp(id, name::regclass)) AS at FROM seen GROUP BY name) AS last
			USING (generator)}), "$generators|t|t", "$database: all marks are after the last IDs");
	is($node->safe_psql($database, q{SELECT DISTINCT layout FROM snowflake_generators WHERE generator = 'g4'::regclass}),
		{ postgres => 'time:41 worker:10 sequence:12', other => 'time:42 worker:5 process:5 sequence:12' }->{$database}, "$database: with its own label");
}

# Statistics exist for generators in slots only.
my $session = session($node);
$session->query_safe(q{SELECT snowflake_stat_reset()});
# One transaction uses all three, so that none of them gives up its slot.
$session->query_safe('BEGIN');
$session->query_safe("SELECT snowflake_nextval('g$_') FROM generate_series(1, 10)") for 1 .. 3;
is($session->query_safe(q{SELECT generator, issued FROM pg_stat_snowflake WHERE generator IN ('g1'::regclass, 'g2'::regclass, 'g3'::regclass) ORDER BY 1}),
	"g1|10\ng2|10\ng3|10", 'counted by generator');
$session->query_safe('COMMIT');
is($session->query_safe(q{
	SELECT count(*) FILTER (WHERE issued < 0 OR batches < 0 OR reservations < 0 OR wait_time < 0 OR borrowed > issued) FROM pg_stat_snowflake}),
	'0', 'no nonsense');

# The server has its initial slots again, and a transaction needs more.
$session->quit;
crash($node);
$session = session($node);
my $tables = in_log($node, 'made room');
$session->query_safe('BEGIN');
my $many = 4 * $slots;
draw($session, "g$_") for 1 .. $slots / 2;
is(in_log($node, 'made room'), $tables, 'there is room for a few');
draw($session, "g$_") for 1 .. $many;
is(in_log($node, 'made room'), $tables + 1, 'more than all slots: room is made');
is($session->query_safe(q{SELECT count(*) FROM pg_stat_snowflake}), $many, 'all of them are counted');
# Other sessions need more slots than that, one of them a session that has not noticed
# the new room.
my $holder = session($node, undef, 'other');
my $knows_little = session($node, undef, 'other');
$knows_little->query_safe(q{SELECT snowflake_nextval('g1')});
$holder->query_safe('BEGIN');
$holder->query_safe("SELECT snowflake_nextval('g$_')") for 1 .. $generators;
cmp_ok(in_log($node, 'made room'), '>', $tables + 1, 'more room is made for another database');
is(error_in($knows_little, "SELECT snowflake_nextval('g$_')"), '', "g$_ in a session that made none of it") for 2, $generators;
is($knows_little->query_safe(q{SELECT count(*) FROM pg_stat_snowflake}), $generators, 'which sees all of them');
is((error_of($node, q{SELECT snowflake_nextval('g1'), snowflake_nextval('g200')}))[0], '', 'and so does a new one');
# Decoding and reading the views take no slot.
is((error_of($node, q{SELECT snowflake_decode(1, 'g20'), snowflake_min_id(now(), 'g20'); TABLE snowflake_generators; TABLE pg_stat_snowflake}))[0], '',
	'who only looks needs none');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_snowflake WHERE generator IN ('g20'::regclass, 'g100'::regclass)}), '1',
	'nor gets one');
draw($session, "g$_") for 1 .. $many;
$session->query_safe('COMMIT');
$holder->query_safe('COMMIT');
$tables = in_log($node, 'made room');
draw($session, "g$_") for 1 .. $many;
check_ids("g$_ around that", drawn("g$_")) for 1 .. $many;
is(in_log($node, 'made room'), $tables, 'there is room now');
$knows_little->quit;

# RESTART of a generator without a slot works while others hold all slots.
draw($session, 'g100');
sub afresh
{
	eval { $_->quit } for $session, $holder;
	crash($node);
	$session = session($node);
	$holder = session($node, undef, 'other');
	return;
}
for my $then ('used', 'not used before a crash')
{
	afresh();
	$holder->query_safe('BEGIN');
	$holder->query_safe("SELECT snowflake_nextval('g$_')") for 1 .. $slots;
	is($session->query_safe('SELECT count(*) FROM pg_stat_snowflake'), '0', 'it has no slot');
	is(error_in($session, 'ALTER SEQUENCE g100 RESTART'), '', "a restart without a slot, $then");
	$holder->query_safe('COMMIT');
	draw($session, 'g100') if $then eq 'used';
}
afresh();
draw($session, 'g100');
check_ids('restarted without a slot', drawn('g100'));
$_->quit for $session, $holder;
$holder = session($node);

# All generators are owned by tables: TRUNCATE RESTART IDENTITY of one table, or of all.
$node->safe_psql('postgres', qq{
	SET client_min_messages = warning;
	DO \$\$BEGIN FOR n IN 1 .. $generators LOOP
		EXECUTE format('CREATE TABLE t%s (id bigint DEFAULT snowflake_nextval(%L))', n, 'g' || n);
		EXECUTE format('ALTER SEQUENCE g%s OWNED BY t%s.id', n, n);
	END LOOP; END\$\$});
$session = session($node);
my @before = split /\n/, $session->query_safe(join ";\n", map { "INSERT INTO t$_ DEFAULT VALUES RETURNING id" } 1 .. $generators);
for my $last (1, 100)
{
	$holder->query_safe('BEGIN; TRUNCATE ' . join(',', map { "t$_" } 1 .. $last) . ' RESTART IDENTITY');
	is(error_in($session, 'INSERT INTO t150 DEFAULT VALUES'), '', "TRUNCATE RESTART IDENTITY of $last tables leaves slots for others");
	$holder->query_safe('ROLLBACK');
}
my $from = time;
is(error_in($holder, 'TRUNCATE ' . join(',', map { "t$_" } 1 .. $generators) . ' RESTART IDENTITY'), '', 'of all tables at once');
note sprintf 'took %.0f ms', (time - $from) * 1000;
$_->quit for $session, $holder;
crash($node);
$session = session($node);
my @after = map { $session->query_safe("INSERT INTO t$_ DEFAULT VALUES RETURNING id") } 1 .. $generators;
is(scalar(grep { $after[$_] <= $before[$_] } 0 .. $generators - 1), 0, 'all go on above what they had');
$session->quit;

done_testing();
