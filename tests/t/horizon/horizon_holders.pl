# Tests snowflake_horizon(): what holds it back, and for how long: every way in which a
# transaction can end, prepared transactions over restarts and promotions, what is refused,
# who sees the holders, and the trigger for IDs that come from elsewhere.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Snowflake;

my $node = new_node('main', 7, allows_streaming => 1);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\nmax_connections = 60\nrestart_after_crash = on");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION snowflake_id;
SELECT snowflake_create_generator('g', 'preset=default');
CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), what text);
CREATE TABLE u (id bigint PRIMARY KEY DEFAULT snowflake_nextval('g'), what text);
END

sub horizon { my ($of) = @_; return $node->safe_psql('postgres', 'SELECT snowflake_horizon(' . ($of // '') . ')'); }
sub holders { return $node->safe_psql('postgres', "SELECT count(*) FROM snowflake_horizon_holders"); }

# The instants are compared as the functions give them.
sub passes
{
	my ($id, $what, $of) = @_;
	return wait_until($what, sub { horizon($of) > $id ? 't' : 'f' });
}

my $s = session($node);
my $take = q{INSERT INTO t (what) VALUES ('x') RETURNING id};

# An idle server: the horizon is the present.
my $before = horizon();
passes($before, 'an idle generator: the horizon goes on with the clock');
is(holders(), 0, 'nobody holds it back');

# Every way in which a transaction ends.
sub held_until
{
	my ($what, $end, @inside) = @_;
	$s->query_safe('BEGIN');
	my $id = $s->query_safe($take);
	$s->query_safe($_) for @inside;
	my $held = horizon();
	cmp_ok($held, '<=', $id, "$what: held back");
	sleep 0.05;
	cmp_ok(horizon(), '<=', $id, "$what: and later");
	is(holders(), 1, "$what: one holder");
	$end->();
	passes($id, "$what: no more");
	is(holders(), 0, "$what: no holder");
	return $id;
}

# A transaction of another database, which takes no ID, holds back what pg_snapshot_xmin() gives, and
# not the horizon (docs/ordered.md).
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
my $elsewhere = session($node, undef, 'elsewhere');
my $xid = $elsewhere->query_safe('BEGIN; SELECT pg_current_xact_id()');
my $here = $node->safe_psql('postgres', $take);
passes($here, 'a transaction of another database does not hold the horizon back');
is($node->safe_psql('postgres', 'SELECT pg_snapshot_xmin(pg_current_snapshot())'), $xid, '... and holds back what transactions see');
$elsewhere->quit;

# A partition with rows brings them below the horizon.
$node->safe_psql('postgres', q{CREATE TABLE parted (id bigint DEFAULT snowflake_nextval(), what text) PARTITION BY LIST (what);
	CREATE TABLE part (LIKE parted INCLUDING DEFAULTS)});
my $attached = $node->safe_psql('postgres', q{INSERT INTO part (what) VALUES ('x') RETURNING id});
passes($attached, 'the row of a table is below the horizon');
is($node->safe_psql('postgres', q{ALTER TABLE parted ATTACH PARTITION part FOR VALUES IN ('x'); SELECT id FROM parted}), $attached, '... and ATTACH PARTITION shows it there');

held_until('COMMIT', sub { $s->query_safe('COMMIT') });
held_until('ROLLBACK', sub { $s->query_safe('ROLLBACK') });
held_until('an error', sub { error_in($s, 'SELECT 1/0'); $s->query_safe('COMMIT') });
held_until('a savepoint that is released', sub { $s->query_safe('COMMIT') },
	'SAVEPOINT a', $take, 'RELEASE a');

# An ID that was taken before a rollback to a savepoint may be used after it.
$s->query_safe('BEGIN; SAVEPOINT a');
my $early = $s->query_safe('SELECT snowflake_nextval()');
$s->query_safe('ROLLBACK TO a');
sleep 0.02;
cmp_ok(horizon(), '<=', $early, 'rolled back to a savepoint: held back');
$s->query_safe("INSERT INTO t VALUES ($early, 'after'); COMMIT");
passes($early, 'the row is there before the horizon passes it');

# The other functions that take IDs.
for my $call ('snowflake_nextval_batch(3)', 'snowflake_nextval_block(3)', q{snowflake_nextval('snowflake_default')})
{
	$s->query_safe('BEGIN');
	my ($id) = split /\n/, $s->query_safe("SELECT $call");
	sleep 0.02;
	cmp_ok(horizon(), '<=', $id, "$call: held back");
	$s->query_safe('COMMIT');
	passes($id, "$call: no more");
}

# The first ID after one that was observed; what comes later does not raise the hold.
$s->query_safe('BEGIN');
$s->query_safe('SELECT snowflake_observe(1)');
my $after = $s->query_safe('SELECT snowflake_nextval()');
sleep 0.02;
horizon();
$s->query_safe('SELECT snowflake_nextval_batch(1)');
cmp_ok(horizon(), '<=', $after, 'after snowflake_observe(): held back by the first ID');
$s->query_safe('COMMIT');
passes($after, 'after snowflake_observe(): no more');

# What took no ID holds nothing, however long it runs.
$s->query_safe("BEGIN; INSERT INTO t VALUES (1, 'no ID'); SELECT snowflake_timestamp(1)");
my $now = horizon();
passes($now, 'a transaction without an ID');
is(holders(), 0, 'it is no holder');
$s->query_safe('ROLLBACK');

# The reader's own transaction.
$s->query_safe('BEGIN');
my $own = $s->query_safe($take);
sleep 0.02;
cmp_ok($s->query_safe('SELECT snowflake_horizon()'), '<=', $own, 'one\'s own ID holds back');
$s->query_safe('COMMIT');

# Backends that die: terminated, and killed.
{
	my $dying = session($node);
	$dying->query_safe('BEGIN');
	my $id = $dying->query_safe($take);
	my $pid = $dying->query_safe('SELECT pg_backend_pid()');
	is($node->safe_psql('postgres', 'SELECT pid FROM snowflake_horizon_holders'), $pid, 'the holder by its pid');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 10000)");
	passes($id, 'a backend that was terminated');
	is(holders(), 0, 'it holds nothing');
	eval { $dying->{run}->finish };
}
{
	my $dying = session($node);
	$dying->query_safe('BEGIN');
	my $id = $dying->query_safe($take);
	my $pid = $dying->query_safe('SELECT pg_backend_pid()');
	$s->quit;
	kill_backend($node, $pid);
	ok($node->poll_query_until('postgres', 'SELECT true'), 'the server is back after a kill');
	eval { $dying->{run}->finish };
	passes($id, 'a backend that was killed');
	is(holders(), 0, 'it holds nothing');
	$s = session($node);
}

# A procedure that commits: each of its transactions holds its own.
$node->safe_psql('postgres', <<'END');
CREATE PROCEDURE two(OUT taken bigint, OUT inside bigint, OUT later bigint) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t (what) VALUES ('first') RETURNING id INTO taken;
	inside := snowflake_horizon();
	COMMIT;
	PERFORM pg_sleep(0.01);
	later := snowflake_horizon();
END $$;
END
my ($first, $between, $later) = split /\|/, $s->query_safe('CALL two(NULL, NULL, NULL)');
cmp_ok($between, '<=', $first, 'before the COMMIT of a procedure');
cmp_ok($later, '>', $first, 'after it');

# A parallel query in a transaction that has taken an ID: its workers end before it.
$s->query_safe($_) for q{INSERT INTO t (what) SELECT 'many' FROM generate_series(1, 20000)}, 'ANALYZE t',
	'BEGIN; SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0';
my $in_parallel = $s->query_safe($take);
like($s->query_safe('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM t'), qr/Workers Launched: [1-9]/, 'a parallel query');
sleep 0.02;
cmp_ok(horizon(), '<=', $in_parallel, 'the ID that was taken before it holds back');
$s->query_safe('COMMIT');
passes($in_parallel, 'until the transaction ends');

# Generators are apart.
$s->query_safe('BEGIN');
my $of_t = $s->query_safe($take);
my $g = horizon(q{'g'});
passes($g, 'another generator goes on', q{'g'});
# More generators than a transaction has places for.
$node->safe_psql('postgres', "SELECT snowflake_create_generator('many' || n, 'preset=default') FROM generate_series(1, 6) n");
my @many = split /\n/, $s->query_safe("SELECT snowflake_nextval(('many' || n)::regclass) FROM generate_series(1, 6) n");
sleep 0.02;
for my $n (1 .. 6)
{
	cmp_ok(horizon("'many$n'"), '<=', $many[ $n - 1 ], "generator $n of many is held");
}
my $beside = horizon(q{'g'});
passes($beside, 'and no other', q{'g'});
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT generator), count(since), count(DISTINCT pid), min(state) FROM snowflake_horizon_holders'),
	'7|7|7|1|idle in transaction', 'the view shows all of them');
$s->query_safe(q{SAVEPOINT a; SELECT snowflake_nextval('g'); ROLLBACK TO a});
$beside = horizon(q{'g'});
sleep 0.02;
is(horizon(q{'g'}), $beside, 'one that is held by a lock is so after a rollback to a savepoint');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION snowflake_id');
my $other = sub { $node->safe_psql('other', 'SELECT snowflake_horizon()') };
my $there = $other->();
wait_until('another database goes on', sub { $other->() > $there ? 't' : 'f' });
is($node->safe_psql('other', 'SELECT count(*) FROM snowflake_horizon_holders'), 0, 'and sees no holders');
# A generator that is relabelled, dropped or emptied waits for those that hold it.
for my $ddl ('DROP SEQUENCE many1', q{SECURITY LABEL FOR snowflake_id ON SEQUENCE many1 IS 'preset=default on_rollback=wait'}, 'ALTER SEQUENCE many1 RESTART')
{
	is((error_of($node, "SET lock_timeout = '200 ms'; $ddl"))[0], '55P03', "$ddl waits for holders");
}
$s->query_safe('COMMIT');
passes($beside, 'after that, it goes on', q{'g'});
passes($many[$_ - 1], "generator $_ of many goes on", "'many$_'") for 1 .. 6;

# A role without a privilege on a generator does not hold it back.
$s->query_safe(q{CREATE ROLE stranger LOGIN; CREATE SCHEMA AUTHORIZATION stranger});
my $stranger = session($node, 'stranger');
$stranger->query_safe(q{SELECT snowflake_create_generator('stranger.own' || n, 'preset=default') FROM generate_series(1, 6) n});
$stranger->query_safe(q{BEGIN; SELECT count(snowflake_nextval(('stranger.own' || n)::regclass)) FROM generate_series(1, 6) n});
$beside = horizon(q{'g'});
passes($beside, 'a stranger with many generators of its own', q{'g'});
$stranger->query_safe('ROLLBACK');
$stranger->quit;

# A transaction with more generators than places is prepared; the server crashes.
$s->query_safe('BEGIN');
@many = split /\n/, $s->query_safe("SELECT snowflake_nextval(('many' || n)::regclass) FROM generate_series(1, 6) n");
$s->query_safe(q{PREPARE TRANSACTION 'many'});
sleep 0.02;
cmp_ok(horizon("'many$_'"), '<=', $many[ $_ - 1 ], "prepared: generator $_ of many is held") for 1 .. 6;
is(session($node, 'stranger')->query_safe('SELECT count(*), count(since) FROM snowflake_horizon_holders'), '6|0', 'a stranger is not told how far they are');
$s->quit;
$node->stop('immediate');
$node->start;
$s = session($node);
cmp_ok(horizon("'many$_'"), '<=', $many[ $_ - 1 ], "after a crash, generator $_ of many is held") for 1 .. 6;
$s->query_safe(q{COMMIT PREPARED 'many'});
passes($many[$_ - 1], "generator $_ of many goes on", "'many$_'") for 1 .. 6;

# The horizon does not go back at a restart, whatever the first call is.
my $before_restart = horizon();
for my $first ('SELECT snowflake_nextval_block(0)', q{SELECT snowflake_advance('snowflake_default', 'infinity'::timestamptz)}, 'SELECT 1/0 FROM (SELECT snowflake_nextval() OFFSET 0) x')
{
	$s->quit;
	$node->restart;
	$s = session($node);
	$s->query_safe('BEGIN; SAVEPOINT a');
	isnt(error_in($s, $first), '', "$first fails");
	$s->query_safe('ROLLBACK TO a');
	cmp_ok(horizon(), '>=', $before_restart, "after a restart, $first: the horizon does not go back");
	$s->query_safe('ROLLBACK');
	$before_restart = horizon();
}
$s->quit;
$node->restart;
$s = session($node);
$s->query_safe(q{BEGIN; SELECT snowflake_advance('snowflake_default', now())});
cmp_ok(horizon(), '>=', $before_restart, 'nor if somebody has advanced the generator first');
is(holders(), 0, 'who takes no ID, and holds nothing');
$s->query_safe('COMMIT');

# One's own changes of a generator, after an ID was taken.
for my $ddl ('ALTER SEQUENCE g RESTART', q{SECURITY LABEL FOR snowflake_id ON SEQUENCE g IS 'preset=default sequence_start=random'})
{
	$s->query_safe('BEGIN');
	my $id = $s->query_safe('INSERT INTO u DEFAULT VALUES RETURNING id');
	$s->query_safe($ddl);
	$s->query_safe('INSERT INTO u DEFAULT VALUES');
	$s->query_safe("COMMIT");
	passes($id, "$ddl: the horizon goes on", q{'g'});
}

# A prepared transaction, over a restart, a crash and a promotion.
$s->query_safe('BEGIN');
my $prepared = $s->query_safe($take);
$s->query_safe($_) for "INSERT INTO u DEFAULT VALUES", "PREPARE TRANSACTION 'p'";
sleep 0.02;
cmp_ok(horizon(), '<=', $prepared, 'a prepared transaction holds back');
my $shown = q{SELECT string_agg(concat_ws(',', pid, gid, generator, state, since = snowflake_timestamp(} . $prepared
  . q{), held_for >= '0 s'), ' ' ORDER BY generator) FROM snowflake_horizon_holders WHERE generator::text ~ 'default'};
is($node->safe_psql('postgres', $shown), 'p,snowflake_default,prepared,t,t', 'the view shows it');
is(holders(), 2, 'for both generators');
$s->quit;
for my $how ('fast', 'immediate')
{
	$node->stop($how);
	$node->start;
	cmp_ok(horizon(), '<=', $prepared, "after a restart ($how) it does so");
	is($node->safe_psql('postgres', $shown), 'p,snowflake_default,prepared,t,t', 'and the view shows it');
	$node->safe_psql('postgres', "INSERT INTO t (what) VALUES ('meanwhile')");
	cmp_ok(horizon(), '<=', $prepared, "and when other IDs were taken");
}
$s = session($node);
# One that was prepared before the restart, and one after it.
$s->query_safe('BEGIN');
my $second = $s->query_safe($take);
$s->query_safe(q{PREPARE TRANSACTION 'p2'});
cmp_ok(horizon(), '<=', $prepared, 'the earlier one of two holds back');
$s->query_safe(q{ROLLBACK PREPARED 'p'});
passes($prepared, 'ROLLBACK PREPARED');
cmp_ok(horizon(), '<=', $second, 'the later one still does');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p2'});
passes($second, 'COMMIT PREPARED by another session');
is(holders(), 0, 'nobody is left');
$s->query_safe('BEGIN');
$prepared = $s->query_safe($take);
$s->query_safe(q{PREPARE TRANSACTION 'q'});

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
my ($code, $text) = error_of($standby, 'SELECT snowflake_horizon()');
is($code, '25006', 'refused on a standby');
like($text, qr/pg_current_wal_insert_lsn/, 'with the way to go');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_snowflake WHERE horizon_lag IS NOT NULL'), 0, 'no lag on a standby');

# A reader on the standby: the primary's horizon, then its position, then rows.
my $upto = horizon();
my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
$node->wait_for_catchup($standby, 'replay', $lsn);
is($standby->safe_psql('postgres', "SELECT count(*) FROM t WHERE id < $upto"),
	$node->safe_psql('postgres', "SELECT count(*) FROM t WHERE id < $upto"), 'a standby has all rows before it');
$node->stop('immediate');
$standby->promote;
my $promoted = $standby->safe_psql('postgres', 'SELECT snowflake_horizon()');
cmp_ok($promoted, '<=', $prepared, 'after a promotion it holds back');
is($standby->safe_psql('postgres', 'SELECT gid FROM snowflake_horizon_holders'), 'q', 'and the view shows it');
$standby->safe_psql('postgres', q{COMMIT PREPARED 'q'});
wait_until('COMMIT PREPARED', sub { $standby->safe_psql('postgres', 'SELECT snowflake_horizon()') > $prepared ? 't' : 'f' });
is($standby->safe_psql('postgres', "SELECT count(*) FROM t WHERE id = $prepared"), 1, 'with the row');
$standby->stop;
$node->start;
$node->safe_psql('postgres', q{COMMIT PREPARED 'q'});
$s = session($node);

# What is refused.
is(error_in($s, "BEGIN ISOLATION LEVEL $_; SELECT snowflake_horizon()"), '25001', "$_ is refused")
  and $s->query_safe('ROLLBACK')
  for 'REPEATABLE READ', 'SERIALIZABLE';
is(error_in($s, 'BEGIN READ ONLY; SELECT snowflake_horizon()'), '25006', 'READ ONLY is refused');
$s->query_safe('ROLLBACK');
for my $query (
	'SELECT * FROM t WHERE id < snowflake_horizon()',
	'SELECT snowflake_horizon(), (SELECT max(id) FROM t)',
	'SELECT (SELECT snowflake_horizon()) FROM t',
	'WITH h AS MATERIALIZED (SELECT snowflake_horizon() AS h) SELECT * FROM t, h WHERE id < h',
	'SELECT * FROM (SELECT snowflake_horizon() AS h OFFSET 0) h, LATERAL (SELECT * FROM t WHERE id < h) r',
	'UPDATE t SET what = what WHERE id < snowflake_horizon()',
	'DELETE FROM t WHERE id < snowflake_horizon()',
	'INSERT INTO t SELECT id + 1 FROM t WHERE id < snowflake_horizon()',
	'SELECT count(*) FROM t, snowflake_horizon() h WHERE id < h',
	# Subqueries that are planned before the call is.
	'SELECT x.h, (SELECT count(*) FROM t WHERE t.id < x.h) FROM (SELECT snowflake_horizon() AS h OFFSET 0) x',
	'SELECT x.h, (SELECT count(*) FROM t WHERE t.id < x.h) FROM (SELECT snowflake_horizon() AS h) x',
	'SELECT (SELECT count(*) FROM t) WHERE snowflake_horizon() > 0',
	'WITH r AS MATERIALIZED (SELECT count(*) FROM t) SELECT (SELECT count FROM r), snowflake_horizon()')
{
	is(error_in($s, "EXPLAIN $query"), '0A000', "refused: $query");
}
for my $query (
	'SELECT snowflake_horizon()', 'SELECT * FROM snowflake_horizon()', 'VALUES (snowflake_horizon())',
	'SELECT h FROM (SELECT snowflake_horizon() AS h OFFSET 0) s',
	q{DO $$ DECLARE h bigint := snowflake_horizon(); BEGIN PERFORM FROM t WHERE id < h; END $$},
	'CREATE TEMP TABLE cursors AS SELECT snowflake_horizon() AS upto',
	'INSERT INTO cursors VALUES (snowflake_horizon())')
{
	is(error_in($s, $query), '', "allowed: $query");
}
# Parameters are computed after the moment whose rows the prepared query reads.
$s->query_safe('PREPARE poll(bigint) AS SELECT count(*) FROM t WHERE id < $1; CREATE PROCEDURE poll(h bigint) LANGUAGE plpgsql AS $$ BEGIN PERFORM FROM t WHERE id < h; END $$');
for my $query ('EXECUTE poll(snowflake_horizon())', 'CREATE TABLE polled AS EXECUTE poll(snowflake_horizon())',
	'EXPLAIN ANALYZE EXECUTE poll(snowflake_horizon())', 'CALL poll(snowflake_horizon())',
	q{EXECUTE poll((SELECT snowflake_horizon('g')))})
{
	my ($refused, $why) = error_in($s, $query);
	is($refused, '0A000', "refused: $query");
	like($why, qr/SELECT snowflake_horizon\(\) as a statement of its own first/, 'with what to do') if $query !~ /'g'/;
}
is(error_in($s, 'SELECT snowflake_horizon() AS h \gset' . "\nEXECUTE poll(:h)"), '', 'allowed: a variable');
$s->query_safe(q{CREATE VIEW v AS SELECT snowflake_horizon() AS h});
is(error_in($s, 'SELECT * FROM v'), '', 'allowed: in a view that reads no table');
is(error_in($s, 'SELECT * FROM v, t'), '0A000', 'refused: such a view beside a table');
for my $label (q{layout='time:41 clock:2 worker:8 sequence:12' on_rollback=next_clock},
	q{layout='worker:10 time:41 sequence:12'}, q{layout='time_reversed:41 worker:10 sequence:12'})
{
	my $quoted = $label =~ s/'/''/gr;
	$s->query_safe("SELECT snowflake_create_generator('down', '$quoted epoch=2025-01-01Z')");
	is(error_in($s, q{SELECT snowflake_horizon('down')}), '0A000', "refused: $label");
	$s->query_safe(q{SELECT snowflake_nextval('down')});
	is($s->query_safe(q{SELECT horizon_lag IS NULL FROM pg_stat_snowflake WHERE generator::text = 'down'}), 't', 'and has no lag');
	$s->query_safe('DROP SEQUENCE down');
}

# Rights: a role that may use or read the generator. What other sessions do is shown as in
# pg_stat_activity.
$s->query_safe(q{CREATE ROLE reader LOGIN; CREATE ROLE nobody LOGIN; CREATE ROLE stats LOGIN IN ROLE pg_read_all_stats;
	GRANT SELECT ON SEQUENCE g TO reader});
my $reader = session($node, 'reader');
is(error_in($reader, q{SELECT snowflake_horizon('g')}), '', 'SELECT is enough');
is(error_in($reader, q{BEGIN; SELECT snowflake_horizon('g'); SELECT snowflake_nextval('g')}), '42501', 'and gives no ID');
$reader->query_safe('ROLLBACK');
is(error_in(session($node, 'nobody'), q{SELECT snowflake_horizon('g')}), '42501', 'nothing is not');
$s->query_safe(q{SET application_name = 'secret'; BEGIN; INSERT INTO u DEFAULT VALUES});
my $view = q{SELECT concat_ws(',', generator, since IS NULL, query ~ 'INSERT') FROM snowflake_horizon_holders};
is(session($node, 'nobody')->query_safe($view), 'g,t,f', 'a stranger sees that there is a holder');
is(session($node, 'stats')->query_safe($view), 'g,f,t', 'pg_read_all_stats sees all');
$s->query_safe('COMMIT; RESET application_name');

# The lag in pg_stat_snowflake.
$s->query_safe('BEGIN');
$s->query_safe($take);
# After a restart the generator is ahead of the clock.
ok($node->poll_query_until('postgres', q{SELECT horizon_lag >= 90 FROM pg_stat_snowflake WHERE generator::text = 'snowflake_default'}),
	'the lag is shown, in milliseconds');
$s->query_safe('COMMIT');
is($node->safe_psql('postgres', q{SELECT horizon_lag FROM pg_stat_snowflake WHERE generator::text = 'snowflake_default'}), 0, 'and ends');

# IDs that come from elsewhere.
$s->query_safe(q{CREATE TABLE o (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), what text);
	CREATE TRIGGER ordered BEFORE INSERT OR UPDATE OF id ON o FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon()});
my $pooled = $s->query_safe('SELECT snowflake_nextval()');
$s->query_safe("BEGIN; INSERT INTO o VALUES ($pooled, 'from a pool')");
sleep 0.02;
cmp_ok(horizon(), '<=', $pooled, 'an ID of a pool holds back');
is(error_in($s, 'COMMIT'), '', 'and is inserted');
passes($pooled, 'then the horizon goes on');
my $late = $s->query_safe('SELECT snowflake_nextval()');
passes($late, 'the horizon passes an ID of a pool');
my ($refused, $why) = error_in($s, "INSERT INTO o VALUES ($late, 'too late')");
is($refused, '22023', 'which is refused then');
like($why, qr/ID $late lies before the horizon of generator snowflake_default/, 'with the reason');
is(error_in($s, "UPDATE o SET id = $late WHERE id = $pooled"), '22023', 'also as a new key');
is(error_in($s, "UPDATE o SET id = id, what = 'same key'"), '', 'a key that stays is no matter');
is(error_in($s, q{INSERT INTO o (what) VALUES ('own')}), '', 'one\'s own ID is taken');
is(error_in($s, q{COPY o (id) FROM PROGRAM 'echo 5'}), '22023', 'COPY is refused as well');
# No reader gets a row of the far future, nor anything after it in its order.
sub ahead { return error_in($s, "INSERT INTO @{[ $_[1] // 'o' ]} VALUES (snowflake_encode(clock_timestamp() + interval '$_[0]', 9, 0))"); }
is(error_in($s, 'INSERT INTO o VALUES (snowflake_nextval() + (50::bigint << 22))'), '', 'an ID of a clock that is as far ahead as max_observe allows');
($refused, $why) = ahead('1 minute');
is($refused, '22008', 'one of a clock that is further ahead is refused');
like($why, qr/ID \d+ is \S+ \S+.* ahead of the clock of generator snowflake_default\n.*It may be 100 ms ahead, by max_observe/s, 'with the limit');
is(error_in($s, 'INSERT INTO o VALUES (9223372036854775807)'), '22008', 'as is the greatest number');
$s->query_safe(q{SELECT snowflake_create_generator('led', 'preset=default'); CREATE TABLE l (id bigint PRIMARY KEY DEFAULT snowflake_nextval('led'));
	CREATE TRIGGER ordered BEFORE INSERT ON l FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon();
	SELECT snowflake_advance('led', clock_timestamp() + interval '2 minutes')});
is(error_in($s, 'INSERT INTO l DEFAULT VALUES'), '', 'the IDs of a generator that is ahead are taken');
is((ahead('3 minutes', 'l'))[0], '22008', 'but not one that is further ahead');
my $kept = $s->query_safe('SELECT snowflake_nextval()');
$s->quit;
$node->restart;
$s = session($node);
is(error_in($s, "INSERT INTO o VALUES ($kept, 'before the restart')"), '22023', 'after a restart, IDs from before it are refused');
is(error_in($s, q{INSERT INTO o (what) VALUES ('own')}), '', 'one\'s own is not');
is(error_in($s, 'SELECT snowflake_check_horizon()'), '39P01', 'it is a trigger only');
$s->query_safe('CREATE TABLE bad (id int PRIMARY KEY, other bigint DEFAULT 5);
	CREATE TRIGGER ordered BEFORE INSERT ON bad FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon()');
is(error_in($s, 'INSERT INTO bad VALUES (1)'), '22023', 'a column of another type');
$s->query_safe(q{CREATE OR REPLACE TRIGGER ordered BEFORE INSERT ON bad FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('other')});
is(error_in($s, 'INSERT INTO bad VALUES (1)'), '22023', 'a default without a generator');
$s->query_safe(q{CREATE OR REPLACE TRIGGER ordered BEFORE INSERT ON bad FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('other', 'g')});
is(error_in($s, q{INSERT INTO bad VALUES (1, snowflake_nextval('g'))}), '', 'with a generator');
$s->query_safe(q{GRANT ALL ON SCHEMA public TO nobody; SET SESSION AUTHORIZATION nobody;
	CREATE TABLE mine (id bigint PRIMARY KEY);
	CREATE TRIGGER ordered BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('id', 'g')});
is(error_in($s, 'INSERT INTO mine VALUES (1)'), '42501', 'nobody holds back a generator that he may not use');
$s->query_safe('RESET SESSION AUTHORIZATION');

# Partitions have the trigger of their table.
$s->query_safe(q{CREATE TABLE p (id bigint DEFAULT snowflake_nextval('g'), PRIMARY KEY (id)) PARTITION BY RANGE (id);
	CREATE TABLE p1 PARTITION OF p DEFAULT;
	CREATE TRIGGER ordered BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon()});
is(error_in($s, 'INSERT INTO p DEFAULT VALUES'), '', 'a partition');
horizon(q{'g'});
is(error_in($s, 'INSERT INTO p VALUES (5)'), '22023', 'and one that is refused');
# One that was attached has no default of its own; the table that is named has.
$s->query_safe(q{CREATE TABLE q (id bigint DEFAULT snowflake_nextval('g'), region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
	CREATE TABLE q1 (region text NOT NULL, id bigint NOT NULL, PRIMARY KEY (id, region)); CREATE TABLE q2 PARTITION OF q FOR VALUES IN ('b');
	ALTER TABLE q ATTACH PARTITION q1 FOR VALUES IN ('a');
	CREATE TRIGGER ordered BEFORE INSERT ON q FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('id')});
my $moving = $s->query_safe(q{INSERT INTO q (region) VALUES ('a') RETURNING id});
ok($moving, 'a partition that was attached');
is(error_in($s, q{INSERT INTO q VALUES (5, 'a')}), '22023', 'and a row of it that is refused');
# What PostgreSQL makes a new row of: a move to another partition, and a conflict.
passes($moving, 'readers have passed the row', q{'g'});
my ($moved, $move_why) = error_in($s, "UPDATE q SET region = 'b' WHERE id = $moving");
is($moved, '22023', 'a row that moves to another partition is refused once readers have passed it');
like($move_why, qr/do not move it to another partition/, 'with what to do');
is(error_in($s, "INSERT INTO q VALUES ($moving, 'a') ON CONFLICT DO NOTHING"), '22023', 'so is a row that exists, with ON CONFLICT');
is(error_in($s, q{UPDATE q SET region = 'a' WHERE region = 'a'}), '', 'an UPDATE in place is not');

# A table that is rewritten looks empty to a COPY that waits for it, unless the reader has locked it before the horizon.
$s->query_safe(q{CREATE TABLE rewritten (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), payload text);
	INSERT INTO rewritten (payload) SELECT 'a' FROM generate_series(1, 100)});
my $exporter = session($node);
for ([ '', 0 ], [ 'LOCK TABLE rewritten IN ACCESS SHARE MODE;', 100 ])
{
	my ($lock, $expected) = @$_;
	$s->query_safe("BEGIN; ALTER TABLE rewritten ALTER payload TYPE char(@{[ 50 + $expected ]})");
	$exporter->query_until(qr/^go$/m, "\\echo go\nBEGIN; $lock\nSELECT snowflake_horizon() AS horizon \\gset\nCOPY (SELECT id FROM rewritten WHERE id < :horizon) TO STDOUT; COMMIT;\n");
	ok($node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'rewritten'::regclass)}), 'a reader waits');
	$s->query_safe('COMMIT');
	is(scalar(() = $exporter->query_safe('SELECT 1') =~ /^\d{15,}$/mg), $expected, "it reads $expected of 100 rows");
}
$exporter->quit;

# Idle sessions cost nothing.
my @idle = map { session($node) } 1 .. 40;
$_->query_safe($take) for @idle;
is(holders(), 0, '40 sessions that have taken IDs hold nothing');
passes(horizon(), 'and the horizon goes on');

done_testing();
