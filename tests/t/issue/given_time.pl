# Tests IDs of given times: 200,000 rows of ten years in one statement (a million with LONG), beside rows of the
# generator, by two sessions that want IDs of the same ticks, and after all that could have lost
# what was issued: there, calls are refused until a superuser has said what may be used.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Pages;
use Snowflake;

my $node = new_node('main', 7, allows_streaming => 1);
# What is not flushed by its own commit stays unflushed.
$node->append_conf('postgresql.conf', "wal_writer_delay = '10s'\nautovacuum = off\nmax_prepared_transactions = 5\nmax_connections = 30");
$node->start;
sub sql { return $node->safe_psql('postgres', $_[0]); }
# Runs a statement that is refused, with this SQLSTATE and a text like this one.
sub refused
{
	my ($name, $statement, $code, $like, $where) = @_;
	my ($found, $text) = error_of($where // $node, $statement);
	is($found, $code, "$name: SQLSTATE");
	return like($text, $like, $name);
}
my $one = q{SELECT snowflake_nextval_at('2020-02-29 12:00Z', 'event_ids')};
sub reserve { my ($worker, @more) = @_; return "SELECT snowflake_reserve_worker_id('event_ids', " . join(', ', $worker, @more) . ')'; }
my $again = 'nothing_lost => true';

my ($page) = slurp_file("$FindBin::RealBin/../../../docs/reference.md") =~ /\n### IDs of a given time\n(.*?)\n##/s;
my ($tables, $import) = map { $_->{text} } grep { $_->{language} eq 'sql' } blocks($page);
like($tables, qr/reserve_worker_id\('event_ids', 1000\)/, 'the page reserves a worker ID');
like($import, qr/^INSERT INTO events .*old_events/s, 'and has the import');
$import =~ s/;.*//s;
$tables =~ s/SELECT snowflake_reserve.*//s;
sql("CREATE EXTENSION snowflake_id; $tables");

# Which worker IDs are refused.
refused('nothing is reserved', $one, '55000', qr/no worker ID is reserved.*snowflake_reserve_worker_id\('public\.event_ids', \.\.\.\)/s);
refused('the worker ID of this server', reserve(7), '55000', qr/that of this server/);
refused('a worker ID that does not fit', reserve(1024), '22003', qr/1023/);
refused('a worker ID below 0', reserve(-1), '22003', qr/worker_id/);
sql(q{SELECT snowflake_create_generator('no_worker', $$layout='time:41 shard:8=3 sequence:13' epoch=2020-01-01Z$$);
	SELECT snowflake_create_generator('with_tenant', $$layout='time:41 tenant:5=caller worker:5 sequence:12' epoch=2020-01-01Z$$)});
refused('a layout without workers', q{SELECT snowflake_reserve_worker_id('no_worker', 0)}, '0A000', qr/worker field and a sequence field/);
refused('a field of the caller', q{SELECT snowflake_reserve_worker_id('with_tenant', 9)}, '22023', qr/tenant/);
refused('what is no generator', q{SELECT snowflake_reserve_worker_id('pg_class', 9)}, '42809', qr/not a generator/);
sql(reserve(1000));
sql(reserve(1000));

# 4,000 rows of one millisecond, which has 4,096 IDs; the others are anywhere, with microseconds,
# and many share a millisecond.
my $rows = $ENV{LONG} ? 1_000_000 : 200_000;
sql(qq{SELECT setseed(0.5);
	CREATE TABLE old_events AS
	SELECT CASE WHEN n <= 4000 THEN timestamptz '2020-02-29 12:00Z'
		WHEN n <= 100000 THEN timestamptz '2021-01-01Z' + floor(random() * 100000) * interval '1 us'
		ELSE timestamptz '2016-01-01Z' + random() * interval '10 years' END AS happened_at
	FROM generate_series(1, $rows) AS n});
sub rows { return sql("SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE snowflake_timestamp(id, 'event_ids') = date_trunc('milliseconds', happened_at)) FROM events"); }
sql($import);
is(rows(), "$rows|$rows|$rows", "$rows rows of ten years have IDs of their time");
is(sql("SELECT min(worker_id), max(worker_id) FROM events, snowflake_decode(id, 'event_ids')"), '1000|1000', 'of one worker ID');
is(sql(q{SELECT max(happened_at) - min(happened_at) > interval '9 years 300 days' FROM events}), 't', 'of ten years');

# Rows of the generator, and then rows of the very same milliseconds; in any order.
sql(q{INSERT INTO events (happened_at) SELECT clock_timestamp() FROM generate_series(1, 1000)});
sql(q{TRUNCATE old_events;
	INSERT INTO old_events SELECT happened_at FROM events WHERE happened_at > now() - interval '1 h' OR happened_at BETWEEN '2020-03-01Z' AND '2020-06-01Z'});
my $more = sql('SELECT count(*) FROM old_events');
cmp_ok($more, '>', 2_000, 'many rows are imported again');
(my $unordered = $import) =~ s/ ORDER BY .*//s;
refused('times after the reservation', $unordered, '22008', qr/is not before/);
sql(reserve(1000));
sql("$unordered ORDER BY random()");
my $all = $rows + 1000 + $more;
is(sql('SELECT count(*), count(DISTINCT id) FROM events'), "$all|$all", 'no ID of the first time or of the server is repeated');

# Times and ticks that are refused, and change nothing.
my $state = 'SELECT count(*), sum(ids) FROM _snowflake.issued_at';
my $before = sql($state);
refused('a time after the reservation', q{SELECT snowflake_nextval_at(clock_timestamp(), 'event_ids')}, '22008', qr/is not before .*snowflake_reserve_worker_id\('public\.event_ids', 1000\)/s);
sql(reserve(1000));
$before = sql($state);
refused('a time before the epoch', q{SELECT snowflake_nextval_at('2014-12-31 23:59:59.999Z', 'event_ids')}, '22008', qr/2015/);
refused('infinity', q{SELECT snowflake_nextval_at('-infinity', 'event_ids')}, '22008', qr/infin/);
refused('more rows in a tick than numbers', "$one FROM generate_series(1, 97)", '22003', qr/tick of 2020-02-29 12:00:00.* has no more IDs/);
is(sql($state), $before, 'refused calls have stored nothing');
sql("$one FROM generate_series(1, 96)");
refused('a tick that is full', $one, '22003', qr/tick of 2020-02-29 12:00:00.* has no more IDs/);
is(sql('SELECT snowflake_nextval_at(NULL, NULL) IS NULL'), 't', 'NULL gives NULL');

# Two sessions want IDs of one tick: the second one waits, and gets what the first one leaves.
my $tick = q{snowflake_nextval_at('2019-05-05Z', 'event_ids')};
my ($first, $second) = map { session($node) } 1 .. 2;
my $got = $first->query_safe("BEGIN; SELECT $tick");
send_to($second, "BEGIN; SELECT $tick");
wait_for_lock($node, 'SELECT snowflake_nextval_at%');
$first->query_safe('SAVEPOINT a');
my $undone = $first->query_safe("SELECT $tick");
$first->query_safe('ROLLBACK TO a');
is($first->query_safe("SELECT $tick"), $undone, 'a savepoint gives its ID back');
$first->query_safe('COMMIT');
my $next = $second->query_safe('');
is($next, $got + 2, 'after a commit, the next one');
send_to($first, "SELECT $tick");
wait_for_lock($node, 'SELECT snowflake_nextval_at%');
$second->query_safe('ROLLBACK');
is($first->query_safe(''), $next, 'after a rollback, the same one');
is(scalar error_in($first, "BEGIN READ ONLY; SELECT $tick"), '25006', 'not in a transaction that only reads');
$first->query_safe('ROLLBACK');

# Many at the same time, in few ticks.
my $script = PostgreSQL::Test::Utils::tempdir() . '/import.sql';
append_to_file($script, q{\set ms random(1, 20)
INSERT INTO events (id, happened_at) SELECT snowflake_nextval_at(t, 'event_ids'), t FROM (SELECT timestamptz '2018-01-01Z' + :ms * interval '1 ms') AS s (t);
});
$node->command_ok([ 'pgbench', '-n', '-c', '8', '-t', '200', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], 'eight clients');
is(sql(q{SELECT count(*), count(DISTINCT id), max(id & 4095) >= 60 FROM events WHERE happened_at BETWEEN '2018-01-01Z' AND '2018-01-01 00:00:01Z' AND id & 4190208 = 1000 << 12}), '1600|1600|t', 'and no ID twice');

# A superuser who reserves a different worker ID waits for calls, also for those of a new tick.
$first->query_safe("BEGIN; SELECT snowflake_nextval_at('2019-06-06Z', 'event_ids')");
send_to($second, reserve(1001));
wait_for_lock($node, 'SELECT snowflake_reserve_worker_id%');
$first->query_safe('COMMIT');
$second->query_safe('');
is(sql("SELECT worker_id, sequence FROM snowflake_decode($tick, 'event_ids')"), '1001|0', 'a different worker ID begins at 0');
is(sql($state), '1|1', 'and what is known of the one before is not needed any more');
refused('a worker ID that was reserved before', reserve(1000), '55000', qr/was reserved .* before/);
refused('even if nothing was lost', reserve(1000, $again), '55000', qr/was reserved .* before/);

# What a session has read is good for as long as its lock: a savepoint that is rolled back ends it,
# and so does a reservation of its own.
my $worker = "SELECT worker_id FROM snowflake_decode($tick, 'event_ids')";
$first->query_safe("BEGIN; SAVEPOINT a; SELECT $tick; ROLLBACK TO a");
sql(reserve(990));
is($first->query_safe($worker), 990, 'after a savepoint, the worker ID that was reserved meanwhile');
$first->query_safe(reserve(991));
is($first->query_safe($worker), 991, 'and the one that the same transaction reserves');
$first->query_safe('ROLLBACK');
is($first->query_safe($worker), 990, 'which its rollback undoes');
sql(reserve(1002) . "; SELECT $tick");

# Who may do what.
sql(q{CREATE ROLE app LOGIN; CREATE ROLE importer LOGIN;
	GRANT USAGE ON SEQUENCE event_ids TO app; GRANT UPDATE ON SEQUENCE event_ids TO importer});
my ($app, $importer) = map { session($node, $_) } qw(app importer);
is(scalar error_in($app, "SELECT $tick"), '42501', 'USAGE on the generator is not enough');
is($importer->query_safe("SELECT sequence FROM snowflake_decode($tick, 'event_ids')"), 1, 'UPDATE is');
is(scalar error_in($importer, reserve(1009)), '42501', 'only superusers reserve worker IDs');
is(scalar error_in($importer, 'SELECT * FROM _snowflake.issued_at'), '42501', 'the tables are internal');
# Objects of others do not come before those that the statements name.
$importer->query_safe(q{CREATE TEMP TABLE pg_class (oid oid); CREATE TEMP TABLE reserved (generator oid); SET search_path = pg_temp, public});
is($importer->query_safe("SELECT sequence FROM snowflake_decode($tick, 'event_ids')"), 2, 'whatever the search_path');
$_->quit for $app, $importer;

# A restart loses nothing. After a crash, a server cannot tell: its disk may be that of yesterday.
$_->quit for $first, $second;
$node->restart;
is(sql("SELECT worker_id, sequence FROM snowflake_decode($tick, 'event_ids')"), '1002|3', 'a restart continues');
is(sql("SET synchronous_commit = off; SELECT sequence FROM snowflake_decode($tick, 'event_ids')"), 4, 'a commit that waits for nothing');
$node->stop('immediate');
$node->start;
refused('after a crash', "SELECT $tick", '55000', qr/may repeat IDs of worker ID 1002.*nothing_lost => true\)/s);
refused('and without a word', reserve(1002), '55000', qr/may repeat IDs/);
sql(reserve(1002, $again));
is(sql("SELECT worker_id, sequence FROM snowflake_decode($tick, 'event_ids')"), '1002|5', 'has waited for the disk');
my $prepared = sql("BEGIN; SELECT $tick; PREPARE TRANSACTION 'later'");
is(sql("COMMIT PREPARED 'later'; SELECT $tick"), $prepared + 1, 'a prepared transaction keeps its IDs');
# A crash of one process is none of the server.
my $session = session($node);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->reload;
kill_backend($node, $session->query_safe('SELECT pg_backend_pid()'));
is(sql("SELECT sequence FROM snowflake_decode($tick, 'event_ids')"), 8, 'after a crash of a process');

# A worker ID that the server got later, and a layout that was changed.
$node->append_conf('postgresql.conf', 'snowflake_id.worker_id = 1002');
$node->restart;
refused('the server has the worker ID now', "SELECT $tick", '55000', qr/that of this server/);
$node->append_conf('postgresql.conf', 'snowflake_id.worker_id = 7');
$node->restart;
sql(q{SELECT snowflake_create_generator('changing', 'preset=twitter'); SELECT snowflake_reserve_worker_id('changing', 9);
	SELECT snowflake_nextval_at('2020-01-01Z', 'changing'); SELECT snowflake_alter_generator('changing', max_borrow => '5 s')});
is(sql(q{SELECT snowflake_nextval_at('2020-01-01Z', 'changing') IS NOT NULL}), 't', 'a different policy');
refused('fields that IDs of now could share with them', q{SELECT snowflake_alter_generator('changing', layout => 'time:41 worker:5 sequence:17')}, '55000', qr/./);
sql(q{SELECT snowflake_alter_generator('changing', epoch => '2005-01-01Z')});
refused('a different layout', q{SELECT snowflake_nextval_at('2020-01-01Z', 'changing')}, '55000', qr/for a different layout/);
refused('even if nothing was lost', qq{SELECT snowflake_reserve_worker_id('changing', 9, $again)}, '55000', qr/for a different layout/);
sql(q{SELECT snowflake_reserve_worker_id('changing', 10); SELECT snowflake_nextval_at('2020-01-01Z', 'changing')});

# What was dropped is forgotten with the next reservation.
sql(q{DROP SEQUENCE changing; SELECT snowflake_create_generator('other', 'preset=twitter')});
sql(q{SELECT snowflake_reserve_worker_id('other', 9)});
sql(reserve(1003));
is(sql('SELECT count(*) FROM _snowflake.reserved'), 2, 'two generators');
is(sql($state), '0|', 'neither of which has issued any');

# A server that was stopped, and comes back as a standby that is promoted: another one may have taken
# its place in between.
$node->stop;
$node->set_standby_mode;
$node->start;
$node->promote;
refused('after a clean stop and a promotion', "SELECT $tick", '55000', qr/may repeat IDs of worker ID 1003/);
sql(reserve(1003, $again));

# A standby that is promoted, a copy, and a dump.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'snowflake_id.worker_id = 8');
$standby->start;
sql("SELECT $tick");
$node->wait_for_catchup($standby);
refused('on a standby', "SELECT $tick", '25006', qr/read-only|recovery/, $standby);
$node->stop;
$standby->promote;
refused('after a promotion', "SELECT $tick", '55000', qr/may repeat IDs of worker ID 1003/, $standby);
$standby->safe_psql('postgres', reserve(1004));
is($standby->safe_psql('postgres', "SELECT worker_id, sequence FROM snowflake_decode($tick, 'event_ids')"), '1004|0', 'a worker ID that was not used');
my ($out) = run_command([ 'pg_dump', '-h', $standby->host, '-p', $standby->port, 'postgres' ]);
unlike($out, qr/COPY _snowflake/, 'a dump has no reservation');
$standby->stop;

PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $node->data_dir . '_copy');
$node->start;
is(sql("SELECT worker_id, sequence FROM snowflake_decode($tick, 'event_ids')"), '1003|1', 'the original continues');
$node->stop;
rename($node->data_dir, $node->data_dir . '_original') or die $!;
rename($node->data_dir . '_copy', $node->data_dir) or die $!;
chmod 0700, $node->data_dir;
$node->start;
refused('a copy of a stopped server', "SELECT $tick", '55000', qr/may repeat IDs of worker ID 1003/);
$node->stop;

# A registry can lease the worker IDs of its pools, but for those that it leaves out.
my $registry = new_registry('registry', q{'main', '[0,16)', except_ids => '{[9,10)}', lease => '5 s', hold => '1 s'}, q{'other', '[0,64)', namespace => 'other'});
my $template = template_of('template');
my $member = member($template, 'member', "snowflake_id.registry = '" . conninfo($registry) . "'", 'snowflake_id.pool = main');
$member->start;
cmp_ok(first_id($member), '<', 16, 'a leased worker ID');
sub reserve_default { return "SELECT snowflake_reserve_worker_id('snowflake_default', $_[0])"; }
refused('a worker ID of the pool', reserve_default(12), '55000', qr/can lease worker ID 12.*pool main/s, $member);
$member->safe_psql('postgres', reserve_default(9) . '; ' . reserve_default(17));
is($member->safe_psql('postgres', q{SELECT worker_id FROM snowflake_decode(snowflake_nextval_at('2026-02-01Z'))}), 17, 'one that it leaves out');
refused('in the registry itself', reserve_default(12), '55000', qr/can lease worker ID 12/, $registry);
# A worker ID of a pool that is dropped afterwards.
on_registry($registry, 'snowflake_create_pool', "'short'", "'[30,31)'");
my $former = member($template, 'former', "snowflake_id.registry = '" . conninfo($registry) . "'", 'snowflake_id.pool = short');
$former->start;
is(first_id($former), 30, 'a server has a worker ID of a pool');
$former->stop;
on_registry($registry, 'snowflake_drop_pool', "'short'");
refused('one that was leased', reserve_default(30), '55000', qr/has leased worker ID 30/, $member);
# Pools that were left here when the server got a different registry.
$member->append_conf('postgresql.conf', "snowflake_id.registry = ''");
$member->restart;
create_pools($member, q{'left', '[0,2)'});
$member->append_conf('postgresql.conf', "snowflake_id.registry = '" . conninfo($registry) . "'");
$member->restart;
refused('pools that no server uses', reserve_default(18), '55000', qr/pools of its own/, $member);
$member->safe_psql('postgres', q{SELECT snowflake_drop_pool('left')});
$registry->stop('immediate');
my ($code, $text) = error_of($member, reserve_default(18));
isnt($code, '', 'a registry that cannot be asked');
note($text);
done_testing();
