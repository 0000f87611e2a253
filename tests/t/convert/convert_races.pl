# Tests the conversion of tables in use beside other sessions, and crashes in the midst of
# its transactions: the swap under its locks, what follows the swap, and undo. An event
# trigger holds a transaction at a command.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases qw(kill_all);
use Snowflake;
use Convert;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "restart_after_crash = on\nautovacuum = off\njit = off");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE reader; CREATE ROLE clerk LOGIN; GRANT SET ON PARAMETER session_replication_role TO clerk');
make_shop($node, 'oracle', 1);
make_shop($node, 'shop');
sub sql { return $node->safe_psql(@_); }

# A transaction stops at the end of a command while table gate has its tag, and holds an
# advisory lock then.
sql('shop', q{CREATE TABLE gate (tag text); GRANT SELECT ON gate TO PUBLIC;
	CREATE FUNCTION stop_at_gate() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN
		IF EXISTS (SELECT FROM public.gate WHERE tag = tg_tag) THEN
			PERFORM pg_advisory_xact_lock_shared(54);
			WHILE EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.02); END LOOP;
		END IF;
	END$$;
	CREATE EVENT TRIGGER gate ON ddl_command_end EXECUTE FUNCTION stop_at_gate()});
my $before = inventory_of($node, 'shop');
my $rows = q{SELECT 'orders', count(*), sum(id), NULL FROM shop.orders UNION ALL SELECT 'items', count(*), sum(id), sum(order_id) FROM shop.items
	UNION ALL SELECT 'refunds', count(*), sum(item_id), sum(gift) FROM shop.refunds UNION ALL SELECT 'visits', count(*), sum(id), sum(order_id) FROM shop.visits
	UNION ALL SELECT 'stops', count(*), sum(visit_id), NULL FROM shop.stops ORDER BY 1};
my $rows_before = sql('shop', $rows);
# All that the steps add. PostgreSQL renames no columns of indexes with those of tables.
my $rest = q{SELECT (SELECT count(*) FROM pg_attribute JOIN pg_class ON oid = attrelid WHERE attname LIKE '%\_\_bigint' AND NOT attisdropped AND relkind <> 'i' AND relkind <> 'I'), (SELECT count(*) FROM pg_class WHERE relname LIKE '%\_\_bigint'),
	(SELECT count(*) FROM pg_constraint WHERE conname ~ '^[=~]|__bigint$'), (SELECT count(*) FROM pg_trigger WHERE tgname = '~snowflake_convert'),
	(SELECT count(*) FROM pg_proc WHERE proname LIKE '%\_\_bigint'), (SELECT count(*) FROM _snowflake_convert.conversions WHERE ended IS NULL)};

# Sends a statement that stops at the end of a command with this tag; meanwhile, something else is done.
sub stopped_at
{
	my ($database, $tag, $statement, $meanwhile) = @_;
	sql($database, "INSERT INTO gate VALUES ('$tag')");
	my $session = session($node, 'clerk', $database);
	send_to($session, $statement);
	$meanwhile->() if $meanwhile;
	wait_until("the gate at $tag", sub { sql($database, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 54 AND granted}) });
	return $session;
}

# Kills the backend that runs a statement, or the server, and starts it again.
sub killed
{
	my ($session, $database, $like, $is_server) = @_;
	my $pid = sql('postgres', "SELECT pid FROM pg_stat_activity WHERE usename = 'clerk' AND datname = '$database' AND query LIKE '$like'");
	die "no process: $pid" if $pid !~ /^\d+$/;
	if ($is_server)
	{
		kill_all($node);
		$node->start;
	}
	else
	{
		kill_backend($node, $pid) or die 'the process has ended';
	}
	# psql may end before it has read a query, which would end this test.
	$session->{run}->kill_kill;
	sql($database, 'DELETE FROM gate');
	return;
}
sub kill_at
{
	my ($database, $tag, $statement, $is_server) = @_;
	killed(stopped_at($database, $tag, $statement), $database, substr($statement, 0, 10) . '%', $is_server);
	return;
}

# All steps before the swap. A database where they are done is kept for each test.
my @all = steps_of($node, 'shop');
my ($swap) = grep { $all[$_] =~ /snowflake_convert_swap/ } 0 .. $#all;
is(run_in($node, 'shop', @all[ 0 .. $swap - 1 ]), 0, 'all steps before the swap');
sub copy_of_shop { return $node->safe_psql('postgres', "CREATE DATABASE $_[0] TEMPLATE shop"); }
copy_of_shop($_) for qw(swapped races);
my $ready = inventory_of($node, 'shop');
# The list of steps does not depend on the database.
my $steps = join "\n", steps_of($node, 'shop');

# The swap, killed under its locks: at its beginning, in its midst, and at its end.
for my $kill ([ 'DROP VIEW', 0 ], [ 'ALTER SEQUENCE', 0 ], [ 'REFRESH MATERIALIZED VIEW', 1 ])
{
	my ($tag, $is_server) = @$kill;
	kill_at('swapped', $tag, $all[$swap], $is_server);
	is(inventory_of($node, 'swapped'), $ready, "killed in the swap at $tag: nothing has changed");
	is(join("\n", steps_of($node, 'swapped')), $steps, 'and the same steps are left');
}
is(run_in($node, 'swapped', $all[$swap]), 0, 'the swap');
is((error_of($node, q{SELECT snowflake_convert_undo(schemas => '{shop}')}, 'swapped'))[0], '55000', 'after which there is nothing to undo');

# What follows the swap, killed in each kind of step.
my @after = steps_of($node, 'swapped');
my ($validate) = grep { /VALIDATE/ } @after;
my ($analyze) = grep { /ANALYZE/ } @after;
kill_at('swapped', 'ALTER TABLE', $validate, 0);
is_deeply([ steps_of($node, 'swapped') ], \@after, 'killed in a validation: it is left to do');
my $holder = session($node, undef, 'swapped');
$holder->query_safe('BEGIN; LOCK TABLE _snowflake_convert.conversions IN SHARE MODE');
my $session = session($node, 'clerk', 'swapped');
send_to($session, $analyze);
wait_for_lock($node, 'CALL %ANALYZE%');
# Not the postmaster: when that dies, the holder may end first, and the step with the lock before it notices.
killed($session, 'swapped', 'CALL %ANALYZE%', 0);
$holder->{run}->kill_kill;
is_deeply([ steps_of($node, 'swapped') ], \@after, 'killed between ANALYZE and the end');
is(run_in($node, 'swapped', steps_of($node, 'swapped')), 0, 'the rest of the steps');
is(join("\n", steps_of($node, 'swapped')), '', 'no step is left');
is(inventory_of($node, 'swapped') =~ s/ON place, order_id/ON order_id, place/r, inventory_of($node, 'oracle'), 'all is as if the keys had been bigint from the start');
is(sql('swapped', $rows), $rows_before, 'no row has changed');
is(sql('swapped', $rest), '0|0|0|0|0|0', 'and nothing is left over');

# Undo, killed where it drops constraints, and where it drops the copies.
my @undo = undo_of($node, 'shop');
my ($constraint) = grep { /DROP CONSTRAINT/ } @undo;
kill_at('shop', 'ALTER TABLE', $constraint, 0);
is_deeply([ undo_of($node, 'shop') ], \@undo, 'killed in undo at a constraint: it is left to do');
is(run_in($node, 'shop', grep { /DROP CONSTRAINT/ } @undo), 0, 'all constraints are dropped');
@undo = undo_of($node, 'shop');
for my $kill ([ 'ALTER TABLE', 0 ], [ 'DROP TRIGGER', 1 ], [ 'DROP FUNCTION', 0 ])
{
	my ($tag, $is_server) = @$kill;
	kill_at('shop', $tag, $undo[0], $is_server);
	is_deeply([ undo_of($node, 'shop') ], \@undo, "killed in undo at $tag: it is left to do");
}
# Half undone, it can be done again, and undone then.
is(run_in($node, 'shop', $undo[0]), 0, 'one table is undone');
@all = steps_of($node, 'shop');
is(run_in($node, 'shop', @all[ 0 .. (grep { $all[$_] =~ /snowflake_convert_swap/ } 0 .. $#all)[0] - 1 ]), 0, 'and done again');
is(inventory_of($node, 'shop'), $ready, 'with the same result');
is(run_in($node, 'shop', undo_of($node, 'shop')), 0, 'all is undone');
is(inventory_of($node, 'shop'), $before, 'as it was before');
is(sql('shop', $rows), $rows_before, 'no row has changed');
is(sql('shop', $rest), '0|0|0|0|0|0', 'and nothing is left over');

# Other sessions change indexes between the steps: the swap says what is to be done first.
my $other = session($node, 'clerk', 'races');
$other->query_safe('CREATE INDEX late ON shop.orders (note, id); CREATE TABLE shop.late_orders (order_id int REFERENCES shop.orders)');
my ($code, $text) = error_of($node, q{CALL snowflake_convert_swap(schemas => '{shop}')}, 'races');
is($code, '55000', 'the swap does not begin');
like($text, qr/cannot swap columns yet.*The next step is: /s, 'while steps are left');
@all = steps_of($node, 'races');
($swap) = grep { $all[$_] =~ /snowflake_convert_swap/ } 0 .. $#all;
is(join(' ', map { /ADD COLUMN|INDEX CONCURRENTLY late__bigint|backfill/ ? $& : () } @all), 'ADD COLUMN backfill INDEX CONCURRENTLY late__bigint', 'which are those for what is new');
is(run_in($node, 'races', @all[ 0 .. $swap - 1 ]), 0, 'they are done');

# A transaction that stays open starves the swap, which then says who it is.
my $pid = $other->query_safe('SELECT pg_backend_pid()');
$other->query_safe('BEGIN; SELECT count(*) FROM shop.refunds');
($code, $text) = error_of($node, q{CALL snowflake_convert_swap(schemas => '{shop}', tries => 2)}, 'races');
is($code, '55P03', 'the swap gives up');
like($text, qr/could not lock the tables; number of tries: 2.*DETAIL:  process $pid holds AccessShareLock on shop\.refunds\n/s, 'and names the process');
is(sql('races', q{SELECT count(*) FROM shop.orders WHERE id = id__bigint}), '20000', 'the tables stay in use');
# It changes a table while the swap waits for its locks.
my $logged = -s $node->logfile;
$session = session($node, 'clerk', 'races');
send_to($session, $all[$swap]);
wait_for_lock($node, '%snowflake_convert_swap%');
wait_until('the process is named', sub { $node->log_contains(qr/the locks were not to be had in 4 tries: process $pid holds AccessShareLock on shop\.refunds/, $logged) });
$other->query_safe('CREATE VIEW shop.late_view AS SELECT item_id FROM shop.refunds; COMMIT');
($code, $text) = answer_in($session);
is($code, '55000', 'the swap has got its locks');
like($text, qr/tables were changed before they were locked/, 'and finds that its plan is not the present one');

# Statements that wait for the swap go on after it: upserts, also prepared ones, and a
# transaction whose snapshot is older than the swap.
my %waiting = map { $_ => session($node, undef, 'races') } qw(upsert prepared snapshot);
$waiting{prepared}->query_safe(q{PREPARE upsert AS INSERT INTO shop.orders (id, note) VALUES ($1, 'prepared') ON CONFLICT (id) DO UPDATE SET note = excluded.note; EXECUTE upsert (3)});
$waiting{snapshot}->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
sql('races', q{INSERT INTO shop.orders (note) VALUES ('unseen'); DELETE FROM shop.refunds WHERE item_id = 5; UPDATE shop.orders SET note = 'unseen' WHERE id = 7});
# Before it has its locks, a table gets an index that is none of its business.
$logged = -s $node->logfile;
$other->query_safe('BEGIN; SELECT count(*) FROM shop.refunds');
my $swaps = stopped_at('races', 'REFRESH MATERIALIZED VIEW', $all[$swap], sub {
	wait_until('the swap waits', sub { $node->log_contains(qr/the locks were not to be had in 4 tries: process $pid holds AccessShareLock on shop\.refunds/, $logged) });
	$other->query_safe('CREATE INDEX meanwhile ON shop.refunds (amount); COMMIT');
});
send_to($waiting{upsert}, q{INSERT INTO shop.orders (id, note) VALUES (2, 'upsert'), (50000, 'upsert') ON CONFLICT (id) DO UPDATE SET note = excluded.note});
send_to($waiting{prepared}, 'EXECUTE upsert (4)');
send_to($waiting{snapshot}, q{SELECT count(*), count(id), min(id), max(id), count(*) FILTER (WHERE note = 'unseen') FROM shop.orders; SELECT count(*), sum(item_id) FROM shop.refunds WHERE item_id < 10; SELECT note = repeat('n', 50) FROM shop.orders WHERE id = 7});
wait_until('they wait', sub { sql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'races' AND wait_event_type = 'Lock'}) eq '3' });
sql('races', 'DELETE FROM gate');
is((answer_in($swaps))[0], '', 'the swap');
my %answer = map { $_ => [ answer_in($waiting{$_}) ] } sort keys %waiting;
is($answer{$_}[0], '', "no error: $_") or diag($answer{$_}[1]) for sort keys %answer;
is($answer{snapshot}[2], "20000|20000|1|20000|0\n9|45\nt", 'the snapshot sees the rows that it has seen');
is($waiting{snapshot}->query_safe('COMMIT; SELECT count(*) FROM shop.orders'), '20002', 'and others after its end');
is(sql('races', q{SELECT string_agg(format('%s %s', id, note), ', ' ORDER BY id) FROM shop.orders WHERE note IN ('upsert', 'prepared')}), '2 upsert, 3 prepared, 4 prepared, 50000 upsert', 'each upsert is there');
is(run_in($node, 'races', steps_of($node, 'races')), 0, 'the rest of the steps');
$_->quit for values %waiting, $other, $session, $swaps;
sql('races', 'DROP VIEW shop.late_view; DROP TABLE shop.late_orders; DROP INDEX shop.late, shop.meanwhile');
is(inventory_of($node, 'races') =~ s/ON place, order_id/ON order_id, place/r, inventory_of($node, 'oracle'), 'all is as if the keys had been bigint from the start');
is(sql('races', $rest), '0|0|0|0|0|0', 'and nothing is left over');

# Beside a transaction that has read one of the tables, the defaults of a schema wait, and give the others back meanwhile.
$node->safe_psql('postgres', 'CREATE DATABASE defaults');
sql('defaults', 'CREATE EXTENSION snowflake_id; CREATE SCHEMA d; CREATE TABLE d.a (id bigserial PRIMARY KEY); CREATE TABLE d.b (id bigserial PRIMARY KEY)');
my $reader = session($node, undef, 'defaults');
my $caller = session($node, undef, 'defaults');
my $writer = session($node, undef, 'defaults');
$reader->query_safe('BEGIN; SELECT count(*) FROM d.b');
send_to($caller, q{SELECT string_agg(severity, ' ') FROM snowflake_set_defaults('d')});
wait_until('it has tried', sub { sql('defaults', q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'defaults' AND wait_event = 'PgSleep'}) eq '1' });
my $longest = 0;
for (1 .. 40)
{
	my $since = time;
	$writer->query_safe('INSERT INTO d.a DEFAULT VALUES');
	$longest = time - $since if time - $since > $longest;
	select undef, undef, undef, 0.05;
}
cmp_ok($longest, '<=', 3, 'a writer of the other table does not wait for the reader');
is(sql('defaults', q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'defaults' AND state = 'active' AND query LIKE '%snowflake_set_defaults%' AND pid <> pg_backend_pid()}), '1', 'which the call still does');
$reader->query_safe('COMMIT');
my @answer = answer_in($caller);
is("$answer[0]|$answer[2]", '|info info', 'and then it has both');
# Who has set lock_timeout waits for each table by itself.
$reader->query_safe('BEGIN; SELECT count(*) FROM d.b');
is(sql('defaults', q{SET lock_timeout = '100ms'; SELECT string_agg(severity, ' ' ORDER BY relation::text) FROM snowflake_set_defaults('d')}), 'info error', 'with lock_timeout, a table that is held is an error, and the others are set');
$_->quit for $reader, $caller, $writer;
done_testing();
