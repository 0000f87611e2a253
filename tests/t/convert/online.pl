# Tests the conversion of tables that stay in use: pgbench sees no error, the server is
# killed in every step, and everything is undone before it is done.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Convert;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "restart_after_crash = on\nautovacuum = off\njit = off");
$node->start;
sub sql { return $node->safe_psql('postgres', $_[0]); }

sql('CREATE ROLE reader; CREATE ROLE clerk LOGIN');
make_shop($node, 'postgres');
# The oracle: what the same statements make of keys that are bigint from the start.
make_shop($node, 'oracle', 1);
sub inventory { return inventory_of($node, 'postgres'); }
my $before = inventory();
my $types = q{SELECT string_agg(DISTINCT format_type(atttypid, NULL), ' ') FROM pg_attribute
	WHERE (attrelid::regclass::text, attname) IN (('shop.orders', 'id'), ('shop.items', 'id'), ('shop.items', 'order_id'), ('shop.refunds', 'item_id'), ('shop.refunds', 'gift'),
		('shop.visits', 'id'), ('shop.visits_2', 'id'), ('shop.visits_1', 'order_id'), ('shop.stops', 'visit_id'))};
my $steps = q{SELECT statement FROM snowflake_convert_steps(schemas => '{shop}') ORDER BY step};

# A role that may not keep its own triggers from the copying is told so before.
like((error_of($node, "SET ROLE clerk; $steps"))[1], qr/session_replication_role/, 'the trigger of an owner');
sql('GRANT SET ON PARAMETER session_replication_role TO clerk');
my $user = 'clerk';

sub run_statements { return run_in($node, 'postgres', @_); }
sub steps { return steps_of($node, 'postgres'); }
sub undo { return undo_of($node, 'postgres'); }

# Undo: after each number of steps that is worth a look.
my @all = steps();
my ($swap) = grep { $all[$_] =~ /snowflake_convert_swap/ } 0 .. $#all;
cmp_ok($swap, '>', 40, 'there are steps before the swap');
for my $count (2, int($swap / 2), $swap)
{
	@all = steps();
	is(run_statements(@all[ 0 .. $count - 1 ]), 0, "$count steps");
	is((error_of($node, q{CALL snowflake_convert('{shop.orders}')}))[0], '55000', 'a conversion at once has to wait');
	# Interrupted after its first statement, it goes on.
	run_statements((undo())[0]);
	run_statements(undo());
	is(inventory(), $before, "everything is undone after $count steps");
}

# A row that is locked for long: the whole table is read again less and less often.
run_statements(@all[ 0 .. (grep { $all[$_] =~ /convert_backfill/ } 0 .. $#all)[0] - 1 ]);
my $holder = session($node);
$holder->query_safe('BEGIN; SELECT FROM shop.orders WHERE id = 500 FOR UPDATE');
my $filler = session($node, $user);
my $logged = -s $node->logfile;
send_to($filler, q{CALL snowflake_convert_backfill('shop.orders');});
wait_until('the rows that are left are told of', sub { $node->log_contains(qr/shop\.orders: some rows are locked by other transactions; trying again in \d+ s/, $logged) });
is(sql('SELECT count(*) FROM shop.orders WHERE id__bigint IS NULL'), '1', 'all other rows are filled');
$holder->query_safe('COMMIT');
wait_until('the row is filled', sub { sql(q{SELECT count(*) FROM _snowflake_convert.conversions WHERE relation = 'shop.orders'::regclass AND filled IS NOT NULL}) eq '1' });
$_->quit for $holder, $filler;
run_statements(undo());
is(inventory(), $before, 'and undone');

# A snapshot from before would find null keys after the swap: it is waited for, also if the
# table has no index whose build would do that.
run_statements(grep { /shop\.stops|"?visits__bigint|shop\.visits / && !/backfill/ } @all[ 0 .. (grep { $all[$_] =~ /convert_backfill/ } 0 .. $#all)[0] - 1 ]);
my $snapshot = session($node);
$snapshot->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
$filler = session($node, $user);
$logged = -s $node->logfile;
send_to($filler, q{CALL snowflake_convert_backfill('shop.stops');});
wait_until('the snapshot is told of', sub { $node->log_contains(qr/shop\.stops: waiting for transactions that could see the table as it was before: processes \d+/, $logged) });
is(sql('SELECT count(*) FROM shop.stops WHERE visit_id__bigint IS NULL'), '0', 'all rows are filled');
is($snapshot->query_safe('SELECT count(visit_id__bigint) FROM shop.stops'), '0', 'which the snapshot does not see');
is(sql(q{SELECT count(*) FROM _snowflake_convert.conversions WHERE relation = 'shop.stops'::regclass AND filled IS NOT NULL}), '0', 'so that the table is not done');
$snapshot->query_safe('COMMIT');
wait_until('the table is done', sub { sql(q{SELECT count(*) FROM _snowflake_convert.conversions WHERE relation = 'shop.stops'::regclass AND filled IS NOT NULL}) eq '1' });
$_->quit for $snapshot, $filler;
run_statements(undo());
is(inventory(), $before, 'and undone');

# pgbench runs during all that follows but the crashes: its transactions insert, update
# and delete, through keys of all tables.
my $script = $node->basedir . '/load.sql';
append_to_file($script, <<'END');
\set order random(1, 20000)
\set item random(1, 30000)
BEGIN;
INSERT INTO shop.orders (note) VALUES ('new') RETURNING id AS new_order \gset
INSERT INTO shop.items (order_id, place) VALUES (:new_order, 1) RETURNING id AS new_item \gset
INSERT INTO shop.refunds (item_id, gift, amount) VALUES (:new_item, :new_item, 1);
INSERT INTO shop.visits (order_id, at) VALUES (:new_order, date '2026-01-01' + :item % 300) RETURNING id AS new_visit \gset
INSERT INTO shop.stops (visit_id, at) SELECT id, at FROM shop.visits WHERE id = :new_visit;
END;
UPDATE shop.visits SET at = '2026-01-31' WHERE id = :order AND at <> '2026-01-31' AND id % 10 <> 0;
UPDATE shop.orders SET note = 'changed' WHERE id = :order;
UPDATE shop.refunds SET amount = amount + 1 WHERE item_id = :item;
DELETE FROM shop.orders WHERE id = :new_order;
SELECT count(*) FROM shop.open_orders WHERE id = :order;
END

# Upserts, of keys that no other client has; and statements that were prepared before.
my $upserts = $node->basedir . '/upserts.sql';
append_to_file($upserts, <<'END');
\set key :base + :client_id
INSERT INTO shop.orders (id, note) VALUES (:key, 'changed') ON CONFLICT (id) DO UPDATE SET note = excluded.note;
INSERT INTO shop.orders (id, note) VALUES (:key, 'changed') ON CONFLICT (id) DO UPDATE SET note = excluded.note;
INSERT INTO shop.orders (id, note) VALUES (:key, 'changed') ON CONFLICT DO NOTHING;
INSERT INTO shop.items (order_id, place) VALUES (:key, 2) ON CONFLICT (order_id, place) DO UPDATE SET place = excluded.place;
INSERT INTO shop.items (order_id, place) VALUES (:key, 2) ON CONFLICT (order_id, place) DO UPDATE SET place = excluded.place;
DELETE FROM shop.orders WHERE id = :key;
END
my $prepared = $node->basedir . '/prepared.sql';
append_to_file($prepared, <<'END');
\set order random(1, 20000)
\set item random(1, 30000)
INSERT INTO shop.items (order_id, place) VALUES (:order, 3 + :client_id) ON CONFLICT DO NOTHING;
UPDATE shop.orders SET note = 'changed' WHERE id = :order;
UPDATE shop.refunds SET amount = amount + 1 WHERE item_id = :item;
SELECT count(*) FROM shop.open_orders WHERE id = :order;
DELETE FROM shop.items WHERE order_id = :order AND place = 3 + :client_id;
END

# Kills the server in each kind of step, or shortly after it; the next call goes on.
my %kind;
my $crashes = 0;
STEPS: while (1)
{
	my @quiet;
	for my $statement (steps())
	{
		my ($kind) = $statement =~ /(ADD COLUMN|CREATE FUNCTION|TRIGGER|CHECK|backfill|FOREIGN KEY|VALIDATE|CREATE.*CONCURRENTLY|DROP.*CONCURRENTLY|swap)/ or die $statement;
		if ($kind{$kind}++) { push @quiet, $statement; next; }
		run_statements(@quiet) == 0 or BAIL_OUT('a step failed');
		my $session = session($node, $user);
		# The swap waits for this, and so does a build of an index.
		my $reader = session($node);
		$reader->query_safe('BEGIN; SELECT count(*) FROM shop.refunds') if $kind =~ /swap|INDEX|CONCURRENTLY/;
		send_to($session, $statement);
		if ($kind eq 'backfill') {
			wait_until('some rows are filled', sub { sql('SELECT count(*) FROM _snowflake_convert.conversions WHERE pages_done > 0') eq '1' });
		}
		elsif ($kind eq 'swap') { wait_for_lock($node, '%snowflake_convert_swap%'); }
		my $pid = sql(q{SELECT pid FROM pg_stat_activity WHERE usename = 'clerk' AND backend_type = 'client backend' LIMIT 1});
		$crashes += kill_backend($node, $pid);
		# psql may end before it has read a query, which would end this test.
		$_->{run}->kill_kill for $session, $reader;
		# If it was another backend that died, this one goes on until it finds its client gone.
		wait_until('the step is over', sub { sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'clerk' AND backend_type = 'client backend'}) eq '0' });
		last STEPS if $kind eq 'swap';
		next STEPS;
	}
	die 'there was no swap';
}
cmp_ok($crashes, '>=', 9, "the server was killed in $crashes kinds of steps");
like((steps())[0], qr/convert_swap/, 'all steps before the swap are done');
run_statements(undo());
is(inventory(), $before, 'and are undone');

# All steps under load.
my $log = $node->basedir . '/pgbench.log';
my @bench = (
	[ '-f', $script, '-f', $upserts, '-c', 3, '-D', 'base=900000000' ],
	[ '-f', $prepared, '-f', $upserts, '-c', 3, '-D', 'base=910000000', '-M', 'prepared' ]);
@bench = map { IPC::Run::start([ 'pgbench', '-n', '-T', 600, @$_, $node->connstr('postgres') ], '>>', $log, '2>&1') } @bench;
wait_until('pgbench runs', sub { slurp_file($log) =~ /error/ && BAIL_OUT(slurp_file($log)); sql(q{SELECT last_value > 20100 FROM shop.orders_id_seq}) eq 't' });

# Statements that were prepared before: those that return other columns or types then fail
# until they are prepared again, and those that take a key take no new one.
my %statement = (
	whole => 'SELECT * FROM shop.orders WHERE id = 1',
	key => 'UPDATE shop.orders SET note = \'changed\' WHERE id = 1 RETURNING id',
	count => 'SELECT count(*) FROM shop.orders WHERE id = $1');
my %call = (whole => 'EXECUTE whole', key => 'EXECUTE key', count => 'EXECUTE count (1)', new => 'EXECUTE count (250000000000000000)');
my $client = session($node);
sub prepare { $client->query_safe(join ';', 'DEALLOCATE ALL', map { "PREPARE $_ AS $statement{$_}" } sort keys %statement); }
sub states { return join ' ', map { "$_:" . error_in($client, $call{$_}) } @_; }
prepare();
is(states(qw(count key whole)), 'count: key: whole:', 'prepared statements');
is(states('new'), 'new:22003', 'an integer has no room for a new key');
my $locked;
my @left = steps();
while (my $statement = shift @left)
{
	my $stderr = '';
	my $status = $node->psql('postgres', $statement, extra_params => [ '-U', $user ], stderr => \$stderr);
	is($status, 0, 'step: ' . substr($statement, 0, 70)) or diag($stderr);
	$locked = $1 if $stderr =~ /locked for (\d+) ms/;
	last if $status;
	if ($statement =~ /ADD COLUMN/ && $statement =~ /shop\.orders /)
	{
		is(states(qw(count key whole)), 'count: key: whole:0A000', 'there is a further column');
		prepare();
		is(states(qw(count key whole)), 'count: key: whole:', 'statements that are prepared again');
	}
	elsif ($statement =~ /TRIGGER.* shop\.visits /s)
	{
		# A new partition in the midst of it needs its own index and foreign keys. The tables
		# are locked in the order of the load: CREATE TABLE alone would be in a deadlock.
		is(run_statements(q{CALL snowflake_convert_run($$CREATE TABLE shop.visits_3 PARTITION OF shop.visits FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')$$,
				ARRAY['LOCK TABLE shop.orders IN SHARE ROW EXCLUSIVE MODE', 'LOCK TABLE shop.visits IN ACCESS EXCLUSIVE MODE', 'LOCK TABLE shop.stops IN SHARE ROW EXCLUSIVE MODE'])},
			q{INSERT INTO shop.visits (order_id, at) VALUES (1, '2027-01-01')}), 0, 'a new partition');
		@left = steps();
	}
	elsif ($statement =~ /convert_swap/)
	{
		is(states(qw(count new key whole)), 'count: new:22003 key:0A000 whole:0A000', 'keys are bigint');
		prepare();
		is(states(qw(count new key whole)), 'count: new: key: whole:', 'statements that are prepared again');
		# The load goes on with the new keys.
		wait_until('a new key is used', sub { slurp_file($log) =~ /error/ && BAIL_OUT(slurp_file($log)); sql('SELECT count(*) > 0 FROM shop.items WHERE id > 1000000000') eq 't' });
	}
}
is(join("\n", steps()), '', 'no step is left');
note("locked for $locked ms");
# pgbench stops with an error when its server does, and says nothing before if all went well.
my $errors = slurp_file($log);
$client->quit;
$_->signal('KILL') for @bench;
for my $bench (@bench) { eval { $bench->finish }; }
is(sql($types), 'bigint', 'all columns are bigint');
unlike($errors, qr/aborted|ERROR|error/, 'no transaction of pgbench failed');
sql('DELETE FROM shop.visits_3; ALTER TABLE shop.visits DETACH PARTITION shop.visits_3; DROP TABLE shop.visits_3 CASCADE');
# PostgreSQL writes the columns of statistics in their order in the table.
is(inventory() =~ s/ON place, order_id/ON order_id, place/r, inventory_of($node, 'oracle'), 'all is as if the keys had been bigint from the start');
is(sql('SELECT count(*) FROM shop.orders WHERE id <= 20000'), '20000', 'all old rows are there');
is(sql('SELECT count(*) FROM shop.orders WHERE changes > 0 AND note NOT IN (\'changed\')'), '0', 'the copying was no change of a row');
is(sql('SELECT count(*) FROM _snowflake_convert.conversions WHERE ended IS NULL'), '0', 'the progress has ended');
is(sql(q{SELECT count(*) FROM shop.items AS i LEFT JOIN shop.orders AS o ON o.id = i.order_id WHERE o.id IS NULL}), '0', 'all items have orders');
is(sql(q{SELECT count(*) FROM shop.stops AS s LEFT JOIN shop.visits AS v ON v.id = s.visit_id AND v.at = s.at WHERE v.id IS NULL}), '0', 'all stops have visits');
is(sql(q{SELECT count(*) FROM shop.visits WHERE id <= 20000}), '20000', 'all old visits are there');

# The extension is dropped in the midst of a conversion, which goes on when it is made again.
make_shop($node, 'dropped');
my @some = steps_of($node, 'dropped');
my ($filled) = grep { $some[$_] =~ /convert_backfill/ } 0 .. $#some;
is(run_in($node, 'dropped', @some[ 0 .. $filled ]), 0, 'some steps');
$node->safe_psql('dropped', 'DROP EXTENSION snowflake_id_convert');
$node->safe_psql('dropped', q{UPDATE shop.orders SET note = 'without' WHERE id % 10 = 0});
is($node->safe_psql('dropped', q{SELECT count(*) FROM shop.orders WHERE id__bigint IS DISTINCT FROM id AND note = 'without'}), '0', 'the trigger fills copies without the extension');
$node->safe_psql('dropped', 'CREATE EXTENSION snowflake_id_convert');
is(run_in($node, 'dropped', steps_of($node, 'dropped')), 0, 'the conversion goes on');
is(join("\n", steps_of($node, 'dropped')), '', 'until no step is left');
is($node->safe_psql('dropped', $types), 'bigint', 'and all columns are bigint');
$node->safe_psql('dropped', 'DROP EXTENSION snowflake_id_convert');
is($node->safe_psql('dropped', q{SELECT count(*) FROM pg_proc WHERE proname LIKE '%snowflake\_convert%' OR proname LIKE '%\_\_bigint'}), '0', 'nothing of it is left');

# From PostgreSQL 18 on, constraints can be NOT ENFORCED, and those of NOT NULL have names.
if ($node->pg_version >= 18)
{
	sql('CREATE DATABASE loose');
	$node->safe_psql('loose', q{CREATE EXTENSION snowflake_id_convert CASCADE; CREATE SCHEMA loose; SET search_path = loose;
		CREATE TABLE a (id serial CONSTRAINT "a key" NOT NULL, PRIMARY KEY (id));
		COMMENT ON CONSTRAINT "a key" ON a IS 'named';
		CREATE TABLE b (id serial PRIMARY KEY, a_id int CONSTRAINT a_of_b NOT NULL NO INHERIT, CONSTRAINT of_a FOREIGN KEY (a_id) REFERENCES a ON DELETE CASCADE NOT ENFORCED,
			CONSTRAINT few CHECK (id < 3) NOT ENFORCED, CONSTRAINT of_b CHECK (a_id > 0));
		COMMENT ON CONSTRAINT of_a ON b IS 'not enforced';
		CREATE TABLE c (id serial CONSTRAINT "c key" NOT NULL, a_id int, at date, PRIMARY KEY (id, at), CONSTRAINT few CHECK (id < 3) NOT ENFORCED,
			CONSTRAINT a_of_c FOREIGN KEY (a_id) REFERENCES a ON DELETE CASCADE NOT ENFORCED) PARTITION BY RANGE (at);
		CREATE TABLE c1 PARTITION OF c DEFAULT;
		CREATE TABLE d (c_id int, at date, CONSTRAINT c_of_d FOREIGN KEY (c_id, at) REFERENCES c ON DELETE CASCADE NOT ENFORCED);
		INSERT INTO a SELECT FROM generate_series(1, 4);
		INSERT INTO b (a_id) SELECT * FROM generate_series(1, 5);
		INSERT INTO c (a_id, at) SELECT n, '2026-01-01' FROM generate_series(1, 5) AS n;
		INSERT INTO d SELECT n, '2026-01-01' FROM generate_series(1, 6) AS n});
	my $constraints = q{SELECT conrelid::regclass, contype, conname, pg_get_constraintdef(oid), conenforced, convalidated, obj_description(oid, 'pg_constraint')
		FROM pg_constraint WHERE conrelid::regclass::text ~ '^loose\.[abcd]$' AND conparentid = 0 ORDER BY conrelid::regclass::text, conname};
	my $rows = 'SELECT (SELECT count(*) FROM loose.b), (SELECT count(*) FROM loose.c), (SELECT count(*) FROM loose.d)';
	my $before = $node->safe_psql('loose', $constraints);
	is(() = $before =~ /NOT ENFORCED/g, 5, 'constraints that are not enforced');
	$node->safe_psql('postgres', 'CREATE DATABASE loose_at_once TEMPLATE loose');
	my $obstacles = q{SELECT note FROM snowflake_convert_plan(schemas => '{loose}', online => true) WHERE action = 'obstacle'};
	is($node->safe_psql('loose', $obstacles), '', 'they are no obstacles');
	my $left = sub { return split /\x01/, $node->safe_psql('loose', q{SELECT coalesce(string_agg(statement, chr(1) ORDER BY step), '') FROM snowflake_convert_steps(schemas => '{loose}')}) };
	my $run = sub { return $node->psql('loose', join(";\n", @_, ''), on_error_stop => 1, stderr => \my $ignored) };
	my @all = $left->();
	my ($swap) = grep { $all[$_] =~ /snowflake_convert_swap/ } 0 .. $#all;
	is($run->(@all[ 0 .. $swap - 1 ]), 0, 'all steps before the swap');
	$node->safe_psql('loose', 'DELETE FROM loose.a WHERE id = 1');
	is($node->safe_psql('loose', $rows), '5|5|6', 'the copies of foreign keys delete no row');
	is($run->($left->()), 0, 'the swap, and what is left');
	is(join("\n", $left->()), '', 'no step is left');
	$node->safe_psql('loose', 'DELETE FROM loose.a WHERE id = 2; DELETE FROM loose.c WHERE id = 2');
	is($node->safe_psql('loose', $rows), '5|4|6', 'nor do they after the swap');
	is($node->safe_psql('loose', $constraints), $before, 'all constraints are as before, with names and comments');
	$node->safe_psql('loose_at_once', q{CALL snowflake_convert(schemas => '{loose}')});
	is($node->safe_psql('loose_at_once', $constraints), $before, 'and so they are after a conversion at once');
	is($node->safe_psql($_, q{SELECT count(*) FROM pg_attribute WHERE attrelid::regclass::text ~ '^loose\.(a|b|c|c1|d)$' AND attname ~ 'id$' AND atttypid = 20}), '8', "$_: all keys are bigint")
	  for qw(loose loose_at_once);
	$node->safe_psql('loose', 'CREATE TABLE loose.e (id serial PRIMARY KEY, v int); INSERT INTO loose.e DEFAULT VALUES; ALTER TABLE loose.e ADD CONSTRAINT given NOT NULL v NOT VALID');
	is($node->safe_psql('loose', $obstacles), 'constraint given of table loose.e is not valid, and old rows that violate it cannot be copied: validate or drop it',
		'a NOT NULL that is not valid');
}

# What the swap tells: no notice of indexes that are renamed, and where it fails, no more of its plan than
# a person can read. The columns of indexes have the names of their tables' columns.
$node->safe_psql('postgres', 'CREATE DATABASE names');
my $names = sub { return $node->safe_psql('names', $_[0]); };
$names->(q{CREATE EXTENSION snowflake_id_convert CASCADE; CREATE TABLE gate ();
	CREATE FUNCTION open_gate(id bigint) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN
		IF to_regclass('public.gate') IS NOT NULL THEN RAISE EXCEPTION 'the gate is shut' USING ERRCODE = 'P7777', HINT = 'Open it.', DETAIL = 'It is a gate.'; END IF;
		RETURN id; END$$;
	CREATE SCHEMA "Odd";
	CREATE TABLE "Odd".head (id serial PRIMARY KEY, code text UNIQUE, "Of" int REFERENCES "Odd".head);
	CREATE TABLE "Odd".line (id serial PRIMARY KEY, head_id int REFERENCES "Odd".head, n int, UNIQUE (head_id, n));
	CREATE INDEX "By" ON "Odd".head ("Of", lower(code)) INCLUDE (id);
	CREATE INDEX expression ON "Odd".line ((head_id + 1), (head_id::text), head_id);
	INSERT INTO "Odd".head (code) SELECT n FROM generate_series(1, 10) AS n;
	DROP TABLE gate; CREATE MATERIALIZED VIEW shut AS SELECT open_gate(id) AS id FROM "Odd".head; CREATE TABLE gate ()});
my $run_steps = q{SELECT statement FROM snowflake_convert_steps(schemas => '{"\"Odd\""}') \gexec};
my $said;
is($node->psql('names', $run_steps, on_error_stop => 1, stderr => \$said), 3, 'a swap that fails');
like($said, qr/ERROR:  the gate is shut\nDETAIL:  It is a gate\. It was in: PL\/pgSQL function (?:public\.)?open_gate.*REFRESH MATERIALIZED VIEW public\.shut.*\.\.\.\nHINT:  Open it\.\n/s, 'says why, and in which statement');
cmp_ok(length $said =~ s/.*(?=ERROR:  the gate)//sr, '<', 4000, 'in few words');
$names->('DROP TABLE gate');
is($node->psql('names', "SET client_min_messages = debug1; $run_steps", on_error_stop => 1, stderr => \$said), 0, 'the next one does not fail');
like($said, qr/NOTICE:  columns were swapped/, 'and says so');
unlike($said, qr/will rename index/, 'and nothing of names');
unlike($said, qr/(?:verifying|rewriting) table/, 'and reads no rows');
done_testing();
