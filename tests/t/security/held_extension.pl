# Tests how long what users call keeps the extension: a function until its transaction ends, a procedure that commits over its
# whole call, and not longer, however it ends; on a standby, against what the primary does.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', "max_standby_streaming_delay = 100ms\nwal_level = replica\nmax_wal_senders = 4");
$node->append_conf('pg_hba.conf', 'local replication all trust');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN; CREATE DATABASE shop OWNER owner');
$node->safe_psql('shop', $_, extra_params => [ '-U', 'owner' ]) for 'CREATE EXTENSION snowflake_id; CREATE EXTENSION snowflake_id_convert',
	'CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id); CREATE TABLE keys (id serial PRIMARY KEY)';
my $held = q{SELECT string_agg(e.extname || ' ' || l.mode, ', ' ORDER BY e.extname) FROM pg_locks AS l JOIN pg_extension AS e ON e.oid = l.objid
	WHERE l.locktype = 'object' AND l.classid = 'pg_extension'::regclass AND l.pid = };
my $owner = session($node, 'owner', 'shop');
$owner->query_safe(q{SET lock_timeout = '50ms'});
my $user = session($node, undef, 'shop');
my $pid = $user->query_safe('SELECT pg_backend_pid()');
my $left = sub { return $node->safe_psql('shop', $held . $pid) };

# 1. Functions. What the owner of the database could do waits; what decides over members is refused.
my @drops = ('DROP EXTENSION snowflake_id CASCADE', 'DROP SCHEMA public CASCADE', 'DROP OWNED BY owner CASCADE');
for my $case ([ 'SELECT * FROM snowflake_status()', 'snowflake_id', @drops ], [ q{SELECT * FROM snowflake_check('events')}, 'snowflake_id', @drops ],
	[ q{SELECT snowflake_set_default('events')}, 'snowflake_id', @drops ], [ q{SELECT * FROM snowflake_set_defaults('public')}, 'snowflake_id', $drops[0] ],
	[ q{SELECT * FROM snowflake_convert_plan('{keys}')}, 'snowflake_id_convert', @drops, 'DROP EXTENSION snowflake_id_convert' ],
	[ q{SELECT * FROM snowflake_convert_steps('{keys}')}, 'snowflake_id_convert', $drops[0] ], [ q{CALL snowflake_convert('{keys}')}, 'snowflake_id_convert', $drops[0] ],
	[ q{SET LOCAL snowflake_id.new_keys = on; CREATE TABLE made (id bigserial PRIMARY KEY)}, 'snowflake_id', $drops[0] ])
{
	my ($call, $extension, @commands) = @$case;
	$user->query_safe("BEGIN; $call");
	is($left->(), "$extension AccessShareLock", "$call keeps $extension");
	is(error_in($owner, $_), '55P03', "$_ waits") for @commands;
	is((error_in($owner, 'ALTER EXTENSION snowflake_id DROP FUNCTION snowflake_status()')), '42501', 'members are not for the owner');
	$user->query_safe('ROLLBACK');
	is($left->(), '', 'until the transaction ends');
}
$user->query_safe('BEGIN; SELECT snowflake_nextval(), snowflake_decode(1)');
is($left->(), '', 'what looks no name up keeps nothing');
$user->query_safe('COMMIT');

# 2. A trigger looks its column up once in a session.
$node->safe_psql('shop', 'CREATE TABLE polled (id bigint PRIMARY KEY DEFAULT snowflake_nextval()); CREATE TRIGGER t BEFORE INSERT ON polled FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon()');
$user->query_safe('BEGIN; INSERT INTO polled DEFAULT VALUES');
is($left->(), 'snowflake_id AccessShareLock', 'the first row that a trigger sees');
$user->query_safe('COMMIT; BEGIN; INSERT INTO polled DEFAULT VALUES');
is($left->(), '', 'the next ones keep nothing');
$user->query_safe('COMMIT');

# 3. Procedures: over their transactions, and no longer.
my $events = session($node, undef, 'shop');
$events->query_safe('BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE');
my $partition = q{CALL snowflake_partition('events', ahead => 2)};
send_to($user, "SET lock_timeout = '1min'; $partition");
wait_for_lock($node, '%snowflake_partition%');
is($left->(), 'snowflake_id AccessShareLock', 'a procedure that waits in its first transaction');
is(error_in($owner, $drops[0]), '55P03', 'nobody drops the extension');
$events->query_safe('COMMIT');
is((answer_in($user))[0], '', 'it goes on');
is($left->(), '', 'and ends');
# In the middle of its transactions: it sleeps between them.
my $run = q{CALL snowflake_convert_run('SELECT 1', '{LOCK TABLE public.keys IN ACCESS EXCLUSIVE MODE}', 50)};
$events->query_safe('BEGIN; LOCK TABLE keys IN SHARE MODE');
my $sleeps = sub { wait_until('it sleeps', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'PgSleep'") }) };
for my $end ([ 'goes on', sub { $events->query_safe('COMMIT') }, '' ], [ 'is cancelled', sub { $node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)") }, '57014' ])
{
	my ($what, $do, $code) = @$end;
	$events->query_safe('COMMIT; BEGIN; LOCK TABLE keys IN SHARE MODE');
	send_to($user, $run);
	$sleeps->();
	is($left->(), 'snowflake_id_convert AccessShareLock', 'a procedure between its transactions');
	is(error_in($owner, $_), '55P03', "$_ waits") for @drops;
	$do->();
	is((answer_in($user))[0], $code, "one that $what");
	is($left->(), '', 'keeps nothing');
}
$events->query_safe('ROLLBACK');
for my $case ([ q{CALL snowflake_partition('keys')}, '42809' ], [ q{CALL snowflake_convert_run('SELECT 1 / 0')}, '22012' ], [ "BEGIN; $partition", '2D000' ],
	[ "DO \$\$BEGIN $partition; END\$\$", '' ], [ "DO \$\$BEGIN BEGIN $partition; EXCEPTION WHEN invalid_transaction_termination THEN NULL; END; PERFORM 1; END\$\$", '' ])
{
	my ($call, $code) = @$case;
	is(error_in($user, $call), $code, $call);
	$user->query_safe('ROLLBACK') if $call =~ /^BEGIN/;
	is($left->(), '', 'keeps nothing');
}
# An exception block gives the lock back, and the transaction goes on without it.
$user->query_safe("BEGIN; DO \$\$BEGIN $partition; EXCEPTION WHEN invalid_transaction_termination THEN NULL; END\$\$");
is($left->(), '', 'a call that an exception block has undone');
$user->query_safe('COMMIT');
# A session that is ended in the middle.
$events->query_safe('BEGIN; LOCK TABLE keys IN SHARE MODE');
send_to($user, $run);
$sleeps->();
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 10000)");
is($left->(), '', 'a session that is ended keeps nothing');
$events->quit;

# 4. The guard looks whose the schema is. Only a superuser can change that.
$node->safe_psql('shop', 'ALTER SCHEMA _snowflake RENAME TO gone; CREATE SCHEMA _snowflake AUTHORIZATION owner');
my ($code, $text) = error_of($node, 'SELECT * FROM snowflake_status()', 'shop');
is($code, '42501', 'a schema of the same name');
like($text, qr/schema "_snowflake" is not that of extension snowflake_id/, 'is named');
is((error_of($node, q{SELECT * FROM snowflake_convert_plan('{keys}')}, 'shop'))[0], '42501', 'nor does the other extension take it');
$node->safe_psql('shop', 'DROP SCHEMA _snowflake; ALTER SCHEMA gone RENAME TO _snowflake; ALTER SCHEMA _snowflake OWNER TO owner');
is((error_of($node, 'SELECT * FROM snowflake_status()', 'shop'))[0], '42501', 'nor one that is not a superuser\'s');
$node->safe_psql('shop', 'ALTER SCHEMA _snowflake OWNER TO CURRENT_USER');
is((error_of($node, 'SELECT * FROM snowflake_status()', 'shop'))[0], '', 'its own is taken');

# 5. On a standby, what the primary drops stays until the transaction ends, or the transaction is cancelled.
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
my $reader = session($standby, undef, 'shop');
for my $case ([ 'SELECT count(*) FROM snowflake_status()', '_snowflake.state' ], [ q{SELECT count(*) FROM snowflake_convert_plan('{keys}')}, '_snowflake_convert.conversions|_snowflake.state' ])
{
	my ($call, $tables) = @$case;
	$reader->query_safe("BEGIN; $call");
	is(join('|', sort split /\n/, $reader->query_safe(q{SELECT relation::regclass FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation::regclass::text IN
		('_snowflake.state', '_snowflake_convert.conversions')})), join('|', sort split /\|/, $tables), "$call locks tables on a standby");
	$reader->query_safe('COMMIT');
}
my $reads = $reader->query_safe('SELECT pg_backend_pid()');
$reader->query_safe('BEGIN; SELECT count(*) FROM snowflake_status()');
$node->safe_psql('shop', 'DROP EXTENSION snowflake_id CASCADE');
wait_until('the replay waits, and then cancels', sub { $standby->safe_psql('postgres', q{SELECT confl_lock FROM pg_stat_database_conflicts WHERE datname = 'shop'}) });
ok(wait_until('the session of the standby is ended', sub { !$standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $reads") }), 'and the transaction of the standby has ended');
$_->stop for $standby, $node;
done_testing();
