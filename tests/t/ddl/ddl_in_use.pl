# Tests DDL on generators while sessions use them: a generator behaves as users know it
# from a sequence, and no ID is issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $label = 'preset=shardingsphere on_rollback=continue';
my $node = new_node('main', 3);
# With a short window, IDs soon pass a mark that falls behind.
$node->append_conf('postgresql.conf', q{
max_prepared_transactions = 5
snowflake_id.reserve_ahead = '100 ms'
});
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE clerks;
	CREATE SCHEMA attic;
	GRANT CREATE ON SCHEMA public, attic TO alice, bob;
	GRANT USAGE ON SCHEMA attic TO PUBLIC});

my %session = map { $_ => session($node, $_) } qw(alice bob);
$session{$_} = session($node) for qw(admin other);
my ($admin, $other) = @session{qw(admin other)};

# A generator must do what a plain sequence does: the same steps, each "who: statement",
# run with both and must end in the same SQLSTATEs. In the steps, NEXTVAL stands for the
# function, and CREATE_S for the command that makes sequence s.
sub same_as_nextval
{
	my ($what, @steps) = @_;
	my %codes;
	for my $kind (qw(sequence generator))
	{
		my $create = $kind eq 'sequence' ? 'CREATE SEQUENCE s'
		  : "SELECT snowflake_create_generator('s', '$label')";
		my $nextval = $kind eq 'sequence' ? 'nextval' : 'snowflake_nextval';
		error_in($admin, $create);
		for my $step (@steps)
		{
			my ($who, $sql) = split /: /, $step, 2;
			$sql =~ s/CREATE_S/$create/g;
			$sql =~ s/NEXTVAL/$nextval/g;
			$codes{$kind} .= (error_in($session{$who}, $sql) || 'ok') . ' ';
		}
		error_in($_, 'ROLLBACK; DEALLOCATE ALL; RESET ROLE') for values %session;
		error_in($admin, 'DROP TABLE IF EXISTS t CASCADE; DROP SEQUENCE IF EXISTS s CASCADE; DROP SEQUENCE IF EXISTS s2 CASCADE;
			DROP SEQUENCE IF EXISTS attic.s CASCADE; REVOKE clerks FROM alice; DROP FUNCTION IF EXISTS lent');
	}
	is($codes{generator}, $codes{sequence}, $what);
	return;
}

same_as_nextval('GRANT and REVOKE are in force for the next transaction of a running session',
	q{alice: SELECT NEXTVAL('s')},
	q{admin: GRANT USAGE ON SEQUENCE s TO alice}, q{alice: PREPARE p AS SELECT NEXTVAL('s')}, q{alice: EXECUTE p},
	q{alice: BEGIN}, q{alice: EXECUTE p}, q{alice: COMMIT},
	q{admin: REVOKE USAGE ON SEQUENCE s FROM alice}, q{alice: EXECUTE p}, q{alice: SELECT NEXTVAL('s')},
	q{admin: GRANT SELECT ON SEQUENCE s TO alice}, q{alice: EXECUTE p},
	q{admin: GRANT UPDATE ON SEQUENCE s TO alice}, q{alice: EXECUTE p},
	q{admin: REVOKE ALL ON SEQUENCE s FROM alice}, q{alice: EXECUTE p},
	q{admin: GRANT USAGE ON SEQUENCE s TO PUBLIC}, q{alice: EXECUTE p},
	q{admin: REVOKE USAGE ON SEQUENCE s FROM PUBLIC}, q{alice: EXECUTE p});
same_as_nextval('by membership in a role',
	q{admin: GRANT USAGE ON SEQUENCE s TO clerks}, q{alice: SELECT NEXTVAL('s')},
	q{admin: GRANT clerks TO alice}, q{alice: SELECT NEXTVAL('s')},
	q{admin: REVOKE clerks FROM alice}, q{alice: SELECT NEXTVAL('s')});
# What a role may do also changes with the role, and with the owner of the database.
same_as_nextval('by being a superuser',
	q{alice: SELECT NEXTVAL('s')}, q{admin: ALTER ROLE alice SUPERUSER}, q{alice: SELECT NEXTVAL('s')}, q{alice: SELECT NEXTVAL('s')},
	q{admin: ALTER ROLE alice NOSUPERUSER}, q{alice: SELECT NEXTVAL('s')});
same_as_nextval('by owning the database',
	q{admin: GRANT USAGE ON SEQUENCE s TO pg_database_owner}, q{alice: SELECT NEXTVAL('s')},
	q{admin: ALTER DATABASE postgres OWNER TO alice}, q{alice: SELECT NEXTVAL('s')}, q{alice: SELECT NEXTVAL('s')},
	q{admin: ALTER DATABASE postgres OWNER TO bob}, q{alice: SELECT NEXTVAL('s')}, q{admin: ALTER DATABASE postgres OWNER TO CURRENT_USER});
same_as_nextval('as another role, with what that one may do',
	q{admin: GRANT USAGE ON SEQUENCE s TO bob}, q{admin: SET ROLE bob}, q{admin: SELECT NEXTVAL('s')}, q{admin: SELECT NEXTVAL('s')},
	q{admin: SET ROLE alice}, q{admin: SELECT NEXTVAL('s')}, q{admin: SET ROLE bob}, q{admin: SELECT NEXTVAL('s')}, q{admin: RESET ROLE});
same_as_nextval('a REVOKE in the transaction, and its rollback to a savepoint',
	q{admin: GRANT USAGE ON SEQUENCE s TO alice}, q{alice: SELECT NEXTVAL('s')}, q{admin: SET ROLE alice}, q{admin: SELECT NEXTVAL('s')}, q{admin: RESET ROLE},
	q{admin: BEGIN}, q{admin: SAVEPOINT a}, q{admin: REVOKE USAGE ON SEQUENCE s FROM alice}, q{admin: SET LOCAL ROLE alice}, q{admin: SAVEPOINT b}, q{admin: SELECT NEXTVAL('s')},
	q{admin: ROLLBACK TO a}, q{admin: SET LOCAL ROLE alice}, q{admin: SELECT NEXTVAL('s')}, q{admin: COMMIT});
same_as_nextval('a REVOKE that is rolled back',
	q{admin: GRANT USAGE ON SEQUENCE s TO alice}, q{alice: SELECT NEXTVAL('s')},
	q{admin: BEGIN; REVOKE USAGE ON SEQUENCE s FROM alice; SET LOCAL ROLE alice}, q{admin: SELECT NEXTVAL('s')},
	q{admin: ROLLBACK}, q{alice: SELECT NEXTVAL('s')});
same_as_nextval('one plan under two roles in one transaction',
	q{admin: GRANT USAGE ON SEQUENCE s TO bob}, q{admin: PREPARE p AS SELECT NEXTVAL('s')},
	q{admin: BEGIN}, q{admin: EXECUTE p}, q{admin: SET LOCAL ROLE bob}, q{admin: EXECUTE p},
	q{admin: SET LOCAL ROLE alice}, q{admin: EXECUTE p}, q{admin: ROLLBACK},
	q{admin: BEGIN}, q{admin: SET LOCAL ROLE bob}, q{admin: EXECUTE p}, q{admin: SAVEPOINT a},
	q{admin: SET LOCAL ROLE alice}, q{admin: EXECUTE p}, q{admin: ROLLBACK TO a}, q{admin: EXECUTE p}, q{admin: COMMIT});
same_as_nextval('SECURITY DEFINER lends the right, and only while it runs',
	q{admin: CREATE FUNCTION lent() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$SELECT NEXTVAL('s')$$},
	q{alice: SELECT lent()}, q{alice: SELECT lent(), NEXTVAL('s')}, q{alice: BEGIN; SELECT lent()}, q{alice: SELECT NEXTVAL('s')});
same_as_nextval('DROP waits for a transaction that took IDs; then it is gone for all',
	q{other: PREPARE p AS SELECT NEXTVAL('s')}, q{other: EXECUTE p}, q{bob: SELECT 1},
	q{other: BEGIN}, q{other: EXECUTE p},
	q{admin: SET lock_timeout = '100 ms'}, q{admin: DROP SEQUENCE s}, q{admin: RESET lock_timeout},
	q{other: COMMIT}, q{admin: DROP SEQUENCE s},
	q{other: EXECUTE p}, q{other: SELECT NEXTVAL('s')}, q{admin: SELECT NEXTVAL('s')},
	q{admin: CREATE_S}, q{other: EXECUTE p}, q{other: SELECT NEXTVAL('s')});
same_as_nextval('a DROP that is rolled back',
	q{other: SELECT NEXTVAL('s')}, q{admin: BEGIN}, q{admin: SELECT NEXTVAL('s')}, q{admin: SAVEPOINT a}, q{admin: DROP SEQUENCE s},
	q{other: SET lock_timeout = '100 ms'}, q{other: SELECT NEXTVAL('s')}, q{other: RESET lock_timeout},
	q{admin: SELECT NEXTVAL('s')}, q{admin: ROLLBACK TO a}, q{admin: SELECT NEXTVAL('s')}, q{admin: DROP SEQUENCE s}, q{admin: ROLLBACK},
	q{admin: SELECT NEXTVAL('s')}, q{other: SELECT NEXTVAL('s')});
for my $change ('RENAME TO s2', 'SET SCHEMA attic', 'OWNER TO bob', 'RESTART')
{
	same_as_nextval("ALTER SEQUENCE $change waits, then holds for all",
		q{admin: GRANT USAGE ON SEQUENCE s TO PUBLIC}, q{other: PREPARE p AS SELECT NEXTVAL('s')}, q{other: EXECUTE p},
		q{alice: BEGIN}, q{alice: SELECT NEXTVAL('s')},
		q{admin: SET lock_timeout = '100 ms'}, "admin: ALTER SEQUENCE s $change", q{admin: RESET lock_timeout},
		q{alice: COMMIT}, "admin: ALTER SEQUENCE s $change",
		q{other: EXECUTE p}, q{other: SELECT NEXTVAL('s')}, q{other: SELECT NEXTVAL('s2')}, q{other: SELECT NEXTVAL('attic.s')});
}
same_as_nextval('a default goes along with RENAME and SET SCHEMA, and keeps it from being dropped',
	q{admin: CREATE TABLE t (id bigint DEFAULT NEXTVAL('s'), v int)}, q{admin: INSERT INTO t (v) VALUES (1)},
	q{admin: ALTER SEQUENCE s RENAME TO s2}, q{admin: INSERT INTO t (v) VALUES (2)},
	q{admin: ALTER SEQUENCE s2 SET SCHEMA attic}, q{admin: INSERT INTO t (v) VALUES (3)},
	q{admin: DROP SEQUENCE attic.s2}, q{admin: DROP SEQUENCE attic.s2 CASCADE}, q{admin: INSERT INTO t (v) VALUES (4)});
same_as_nextval('OWNED BY: dropped with its table',
	q{admin: CREATE TABLE t (id bigint)}, q{admin: ALTER SEQUENCE s OWNED BY t.id}, q{admin: SELECT NEXTVAL('s')},
	q{admin: DROP TABLE t}, q{other: SELECT NEXTVAL('s')});
same_as_nextval('OWNED BY: dropped with its column',
	q{admin: CREATE TABLE t (id bigint, v int)}, q{admin: ALTER SEQUENCE s OWNED BY t.id}, q{admin: SELECT NEXTVAL('s')},
	q{admin: ALTER TABLE t DROP COLUMN id}, q{other: SELECT NEXTVAL('s')});
same_as_nextval('REASSIGN OWNED',
	q{admin: ALTER SEQUENCE s OWNER TO alice}, q{alice: SELECT NEXTVAL('s')}, q{bob: SELECT NEXTVAL('s')},
	q{admin: REASSIGN OWNED BY alice TO bob}, q{alice: SELECT NEXTVAL('s')}, q{bob: SELECT NEXTVAL('s')});
same_as_nextval('DROP OWNED',
	q{admin: ALTER SEQUENCE s OWNER TO alice}, q{alice: SELECT NEXTVAL('s')},
	q{admin: DROP OWNED BY alice}, q{alice: SELECT NEXTVAL('s')}, q{admin: SELECT NEXTVAL('s')},
	q{admin: GRANT CREATE ON SCHEMA public, attic TO alice});
same_as_nextval('a rolled back CREATE',
	q{admin: DROP SEQUENCE s}, q{admin: BEGIN}, q{admin: CREATE_S}, q{admin: SELECT NEXTVAL('s')}, q{admin: ROLLBACK},
	q{admin: SELECT NEXTVAL('s')}, q{other: SELECT NEXTVAL('s')},
	q{admin: BEGIN}, q{admin: SAVEPOINT a}, q{admin: CREATE_S}, q{admin: SELECT NEXTVAL('s')}, q{admin: ROLLBACK TO a},
	q{admin: SAVEPOINT b}, q{admin: SELECT NEXTVAL('s')}, q{admin: ROLLBACK TO b},
	q{admin: CREATE_S}, q{admin: SELECT NEXTVAL('s')}, q{admin: COMMIT}, q{other: SELECT NEXTVAL('s')});
same_as_nextval('COMMENT stops nobody',
	q{admin: BEGIN}, q{admin: COMMENT ON SEQUENCE s IS 'idle'},
	q{other: SET lock_timeout = '100 ms'}, q{other: SELECT NEXTVAL('s')}, q{other: RESET lock_timeout}, q{admin: COMMIT});

# A dropped generator takes its label along, also when it is dropped by DROP OWNED or
# with its table: a new sequence of that name without a label is no generator.
for my $drop ('DROP SEQUENCE gone', 'DROP OWNED BY alice', 'DROP TABLE holder')
{
	$node->safe_psql('postgres', "SELECT snowflake_create_generator('gone', '$label');
		ALTER SEQUENCE gone OWNER TO alice; CREATE TABLE holder (id bigint); ALTER TABLE holder OWNER TO alice;
		ALTER SEQUENCE gone OWNED BY holder.id; SELECT snowflake_nextval('gone')");
	error_in($other, q{SELECT snowflake_nextval('gone')});
	$node->safe_psql('postgres', "$drop; DROP TABLE IF EXISTS holder; CREATE SEQUENCE gone INCREMENT 9223372036854775807 START 9223372036854775807");
	is(error_in($other, q{SELECT snowflake_nextval('gone')}), '42809', "$drop: the label goes too");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM snowflake_generators WHERE generator = 'gone'::regclass}), '0', 'and is not listed');
	$node->safe_psql('postgres', 'DROP SEQUENCE gone');
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_seclabel}), '0', 'no label is left');
$node->safe_psql('postgres', 'GRANT CREATE ON SCHEMA public, attic TO alice');

# A session that waits for a DROP or a RESTART gets the error, or an ID.
$node->safe_psql('postgres', "SELECT snowflake_create_generator('waited', '$label')");
draw($other, 'waited');
for my $end ('ROLLBACK', 'COMMIT')
{
	for my $change ('ALTER SEQUENCE waited RESTART', 'DROP SEQUENCE waited')
	{
		$admin->query_safe("BEGIN; $change");
		send_to($other, q{SELECT snowflake_nextval('waited')});
		wait_for_lock($node, '%snowflake_nextval(_waited_)%');
		$admin->query_safe($end);
		my $id = $other->query('');
		my $text = $other->{stderr};
		$other->{stderr} = '';
		if ("$end $change" =~ /COMMIT DROP/)
		{
			like($text, qr/ERROR:\s+42P01:/, "$change: $end while one waits: it is gone");
		}
		else
		{
			cmp_ok($id, '>', drawn('waited')->[-1], "$change: $end while one waits: goes on");
			push @{ drawn('waited') }, $id;
		}
	}
}

# A generator that is not committed exists for its own transaction only. A prepared
# transaction keeps it over a crash, and later IDs are above those that the transaction
# took.
$admin->query_safe("BEGIN; SELECT snowflake_create_generator('fresh', '$label')");
draw($admin, 'fresh');
is(error_in($other, q{SELECT snowflake_nextval('fresh')}), '42P01', 'not there for others');
$admin->query_safe('SAVEPOINT a');
draw($admin, 'fresh');
$admin->query_safe('ROLLBACK TO a');
draw($admin, 'fresh');
$admin->query_safe('SAVEPOINT a; ALTER SEQUENCE fresh RESTART');
draw($admin, 'fresh');
$admin->query_safe('ROLLBACK TO a');
draw($admin, 'fresh');
$admin->query_safe('COMMIT');
draw($_, 'fresh') for $other, $admin;
$admin->query_safe("BEGIN; SELECT snowflake_create_generator('prepared', '$label')");
draw($admin, 'prepared');
$admin->query_safe(q{PREPARE TRANSACTION 'p'});
$admin->query_safe("BEGIN; SELECT snowflake_create_generator('committed', '$label')");
draw($admin, 'committed');
$admin->query_safe('COMMIT');

# Sessions end with the server, so they are opened again.
sub reconnect
{
	for my $who (keys %session)
	{
		# The session has lost its connection, and may not have noticed.
		eval { $session{$who}->quit };
		$session{$who} = session($node, $who =~ /alice|bob/ ? $who : undef);
	}
	($admin, $other) = @session{qw(admin other)};
	return;
}

crash($node);
reconnect();
$admin->query_safe(q{COMMIT PREPARED 'p'});
draw($other, $_) for qw(fresh prepared committed);
check_ids("$_: created in a transaction with others in flight", drawn($_)) for qw(fresh prepared committed waited);

# Each case is a kind of ALTER SEQUENCE, what the next ID must be, and how to undo the
# change. Each case has four generators: one issues its next ID before the crash, one
# after the crash; and for two of them the change is the first event in a server's life.
my $top = 9223372036854775807;
my @kinds = (
	[ 'RESTART', '' ],
	[ 'RESTART WITH 5', '' ],
	[ "RESTART WITH $top", '' ],
	[ 'CACHE 100', '' ],
	[ 'NO CYCLE', '' ],
	[ 'OWNED BY holder.id', '' ],
	[ 'OWNED BY NONE', '' ],
	[ 'OWNER TO alice', '' ],
	[ 'SET LOGGED', '' ],
	[ 'INCREMENT 1', '55000', "INCREMENT $top" ],
	[ 'MINVALUE -5', '' ],
	[ 'START 5', '' ],
	[ 'START 5 RESTART', '' ],
	[ 'CYCLE', '55000', 'NO CYCLE' ],
	[ 'MAXVALUE 9000000000000000000 START 1', '' ],
	[ 'MAXVALUE 9000000000000000000 START 1 RESTART', '' ],
	# What Citus does with the sequence of a default on each of its nodes.
	[ 'MINVALUE 281474976710657 MAXVALUE 562949953421313 START 281474976710657 RESTART 281474976710657', '' ]);
$node->safe_psql('postgres', 'CREATE TABLE holder (id bigint)');
my @places = qw(before after first_before first_after);
$node->safe_psql('postgres', join ';', map { my $n = $_; map { "SELECT snowflake_create_generator('${_}_$n', '$label')" } @places } 0 .. $#kinds);

# Makes a change and undoes it at once, and checks what the same session and another one
# see.
sub change
{
	my ($n, $place) = @_;
	my ($kind, $expected, $undo) = @{ $kinds[$n] };
	$admin->query_safe("ALTER SEQUENCE ${place}_$n $kind");
	if ($expected ne '')
	{
		my ($code, $text) = error_in($other, "SELECT snowflake_nextval('${place}_$n')");
		is($code, $expected, "$kind: unfit") or diag $text;
		like($text, qr/DETAIL:/, 'with the reason');
	}
	$admin->query_safe("ALTER SEQUENCE ${place}_$n $undo") if defined $undo;
	return;
}

sub draw_all { my (@places) = @_; for my $n (0 .. $#kinds) { draw($other, "${_}_$n") for @places; } return; }

draw_all(@places);
draw_all(@places);
for my $n (0 .. $#kinds) { change($n, $_) for qw(before after); }
draw_all('before');
crash($node);
reconnect();
for my $n (0 .. $#kinds) { change($n, $_) for qw(first_before first_after); }
draw_all('before', 'after', 'first_before');
crash($node);
reconnect();
draw_all(@places);
draw_all(@places);
for my $n (0 .. $#kinds) { check_ids("ALTER SEQUENCE $kinds[$n][0]: $_", drawn("${_}_$n")) for @places; }

# A transaction restarts the sequence, issues IDs and is rolled back: the next
# reservation, here of another session, covers these IDs.
create_generator($node, 'undone', $label);
for my $undo ('ROLLBACK', 'ROLLBACK TO a; COMMIT')
{
	draw($other, 'undone');
	$admin->query_safe('BEGIN; SAVEPOINT a; ALTER SEQUENCE undone RESTART; SELECT pg_sleep(0.3)');
	draw($admin, 'undone');
	$admin->query_safe($undo);
	draw($other, 'undone');
	crash($node);
	reconnect();
	draw($other, 'undone');
}
check_ids('a rolled back RESTART, then a crash', drawn('undone'));

# A change that PostgreSQL or the generator refuses leaves the generator as it was.
create_generator($node, 'firm', $label);
draw($other, 'firm');
for my $kind ('AS integer', 'AS smallint', 'MAXVALUE 1000', 'INCREMENT 0', 'RESTART WITH 0', 'RESTART WITH -1')
{
	isnt(error_in($admin, "ALTER SEQUENCE firm $kind"), '', "refused: ALTER SEQUENCE $kind");
	draw($other, 'firm');
}
# A sequence that is too small to hold a mark is refused, or does no harm once the
# change is undone.
my $code = error_in($admin, 'ALTER SEQUENCE firm AS integer MAXVALUE 1000 START 1 INCREMENT 1 RESTART');
note "an integer is answered by: $code";
is(error_in($other, q{SELECT snowflake_nextval('firm')}), $code eq '' ? '55000' : '', 'unfit, or as it was');
$admin->query_safe("ALTER SEQUENCE firm AS bigint INCREMENT $top MAXVALUE $top START $top RESTART");
draw($other, 'firm');

# A user calls setval(): a generator that runs writes its own mark back, whatever the value is,
# and a start refuses a value that is no instant of the layout.
create_generator($node, 'handmade', $label);
draw($other, 'handmade');
for my $value ('5', '1, false', $top)
{
	$admin->query_safe("SELECT setval('handmade', $value)");
	draw($other, 'handmade');
	# The window is used up, so the next ID reserves.
	$other->query_safe('SELECT pg_sleep(0.15)');
	draw($other, 'handmade');
	is($admin->query_safe('SELECT last_value > 1e12, log_cnt > 1e18 FROM handmade'), 't|t', "$value: the mark is back");
	crash($node);
	reconnect();
	draw($other, 'handmade');
}
is($admin->query_safe(q{
	SELECT date_trunc('second', now()) + interval '1 hour' AS at \gset
	SELECT setval('handmade', (extract(epoch FROM :'at'::timestamptz) * 1000)::bigint) > 0;
	SELECT pg_sleep(0.15);
	SELECT snowflake_nextval('handmade') AS id \gset
	SELECT snowflake_timestamp(:id, 'handmade') >= :'at', last_value < extract(epoch FROM :'at'::timestamptz) * 1000 FROM handmade}),
	"t\n\nf|t", 'one that is set higher by hand, too');
draw($other, 'handmade');
create_generator($node, 'poisoned', $label);
$admin->query_safe(q{SELECT setval('poisoned', 9000000000000000000)});
my ($refused, $text) = error_in($other, q{SELECT snowflake_nextval('poisoned')});
is($refused, '55000', 'one that is far too high is refused');
like($text, qr/HINT:.*SELECT setval\('[^']+', \d{13}\)/s, 'the hint has the statement that helps');
$admin->query_safe(q{SELECT setval('poisoned', (extract(epoch FROM now()) * 1000)::bigint)});
draw($other, 'poisoned');
check_ids('setval()', drawn('handmade'));
check_ids('refused changes', drawn('firm'));
for my $name (qw(firm handmade))
{
	is(error_in($admin, "SELECT nextval('$name')"), '2200H', 'nextval() does not move a mark');
}

# TRUNCATE ... RESTART IDENTITY reaches the generators of the table, of tables with
# foreign keys to it, of partitions and of children; it runs also in a function and by
# an owner who is no superuser. A plain sequence of the table restarts.
$node->safe_psql('postgres', qq{
	SET ROLE alice;
	SELECT snowflake_create_generator(name, '$label')
	FROM unnest(ARRAY['parent_ids', 'child_ids', 'parts_ids', 'heir_ids']) AS name;
	CREATE TABLE parent (id bigint DEFAULT snowflake_nextval('parent_ids') PRIMARY KEY, n serial);
	CREATE TABLE child (id bigint DEFAULT snowflake_nextval('child_ids') PRIMARY KEY, parent bigint REFERENCES parent);
	CREATE TABLE parts (id bigint DEFAULT snowflake_nextval('parts_ids')) PARTITION BY HASH (id);
	CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	CREATE TABLE heir (more int) INHERITS (parent);
	ALTER TABLE heir ALTER COLUMN id SET DEFAULT snowflake_nextval('heir_ids');
	ALTER SEQUENCE parent_ids OWNED BY parent.id;
	ALTER SEQUENCE child_ids OWNED BY child.id;
	ALTER SEQUENCE parts_ids OWNED BY parts.id;
	ALTER SEQUENCE heir_ids OWNED BY heir.id;
	CREATE FUNCTION wipe() RETURNS void LANGUAGE plpgsql AS
	\$\$BEGIN EXECUTE 'TRUNCATE parent, parts RESTART IDENTITY CASCADE'; END\$\$});
my %table = (parent => 'n', child => 'parent', parts => '', heir => 'n');

sub insert_all
{
	for my $table (sort keys %table)
	{
		push @{ drawn("${table}_ids") },
		  $session{alice}->query_safe("INSERT INTO $table DEFAULT VALUES RETURNING id");
	}
	return;
}

draw($session{alice}, "${_}_ids") for sort keys %table;
insert_all();
is($session{alice}->query_safe('SELECT max(n) FROM parent') > 1, 1, 'a plain sequence beside it has counted');
for my $wipe ('TRUNCATE parent, parts RESTART IDENTITY CASCADE', 'SELECT wipe()',
	q{DO $$BEGIN TRUNCATE parent RESTART IDENTITY CASCADE; TRUNCATE ONLY parts RESTART IDENTITY; EXCEPTION WHEN OTHERS THEN TRUNCATE parts RESTART IDENTITY; END$$},
	'TRUNCATE parent, parts CONTINUE IDENTITY CASCADE')
{
	# Before the crash no ID is issued or one ID is issued, or the command is the first
	# event in the server's life.
	$session{alice}->query_safe($wipe);
	crash($node);
	reconnect();
	insert_all();
	$session{alice}->query_safe($wipe);
	insert_all();
	$session{alice}->query_safe("BEGIN; $wipe");
	insert_all();
	$session{alice}->query_safe("SAVEPOINT a; $wipe");
	insert_all();
	$session{alice}->query_safe('ROLLBACK TO a');
	insert_all();
	$session{alice}->query_safe("$wipe; ROLLBACK");
	insert_all();
	is($session{alice}->query_safe('SELECT min(n) FROM parent'), 1, 'a plain sequence beside it restarts') if $wipe !~ /CONTINUE/;
	crash($node);
	reconnect();
	$session{alice}->query_safe($wipe);
	insert_all();
}
check_ids("TRUNCATE RESTART IDENTITY: $_", drawn("${_}_ids")) for sort keys %table;
$node->safe_psql('postgres', 'CREATE SEQUENCE plain; SELECT nextval(\'plain\'), nextval(\'plain\'); ALTER SEQUENCE plain RESTART');
is($node->safe_psql('postgres', q{SELECT nextval('plain')}), '1', 'ALTER SEQUENCE RESTART of a plain sequence is what it was');

# A generator takes the place of an identity column's sequence.
$node->safe_psql('postgres', qq{
	CREATE TABLE identity (id bigint GENERATED BY DEFAULT AS IDENTITY (INCREMENT $top START $top), v int);
	SECURITY LABEL FOR snowflake_id ON SEQUENCE identity_id_seq IS '$label'});
draw($other, 'identity_id_seq') for 1 .. 2;
for my $restart ('ALTER TABLE identity ALTER COLUMN id RESTART', 'TRUNCATE identity RESTART IDENTITY')
{
	$admin->query_safe($restart);
	crash($node);
	reconnect();
	draw($other, 'identity_id_seq');
}
check_ids('the sequence of an identity column', drawn('identity_id_seq'));

# The table stays logged, since its sequence would not: a crash would reset it.
$node->safe_psql('postgres', "CREATE TABLE volatile (id bigint); SELECT snowflake_create_generator('volatile_ids', '$label'); ALTER SEQUENCE volatile_ids OWNED BY volatile.id");
is(error_in($admin, 'ALTER TABLE volatile SET UNLOGGED'), '0A000', 'a table that owns a generator stays logged');
is(error_in($admin, 'ALTER SEQUENCE volatile_ids OWNED BY NONE; ALTER TABLE volatile SET UNLOGGED'), '', 'unless it does not own it');
draw($other, 'volatile_ids');

# The clock is right from here on.
sub restart
{
	$node->stop;
	$node->start;
	reconnect();
	return;
}

# Other sessions insert meanwhile: there is no deadlock and no error, and no ID is
# issued twice.
restart();
$node->safe_psql('postgres', qq{
	SELECT snowflake_create_generator('busy_ids', '$label');
	CREATE TABLE busy (id bigint DEFAULT snowflake_nextval('busy_ids') PRIMARY KEY);
	ALTER SEQUENCE busy_ids OWNED BY busy.id;
	CREATE TABLE seen (n bigserial, client int, id bigint)});
my $script = $node->basedir . '/busy.sql';
append_to_file($script, q{
BEGIN;
WITH new AS (INSERT INTO busy SELECT FROM generate_series(1, 5) RETURNING id) INSERT INTO seen (client, id) SELECT :client_id, id FROM new;
SELECT snowflake_nextval('busy_ids') AS id \gset
INSERT INTO seen (client, id) VALUES (:client_id, :id);
COMMIT;
});
# Each client has a thread: pgbench waits while it prepares a statement, which waits for a
# TRUNCATE, which would wait for another client of the same thread.
my ($bench_out, $bench_err) = ('', '');
my $bench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', '4', '-j', '4', '-T', '4', '-M', 'prepared', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$bench_out, '2>', \$bench_err);
wait_until('it runs', sub { $node->safe_psql('postgres', 'SELECT count(*) FROM seen') > 20 });
my $rounds = 0;
while ($bench->pumpable)
{
	$bench->pump_nb;
	for my $sql ('TRUNCATE busy RESTART IDENTITY', 'ALTER SEQUENCE busy_ids RESTART', 'ALTER SEQUENCE busy_ids CACHE 5',
		'BEGIN; TRUNCATE busy RESTART IDENTITY; ROLLBACK', "SELECT snowflake_advance('busy_ids', now())",
		"SELECT setval('busy_ids', 5)", "COMMENT ON SEQUENCE busy_ids IS 'busy'")
	{
		my ($code, $text) = error_in($admin, $sql);
		is($code, '', "while others insert: $sql") or diag $text if $code ne '';
	}
	$rounds++;
}
ok($bench->finish, "clients inserted during $rounds rounds of restarts") or diag $bench_err;
is($node->safe_psql('postgres', q{
	SELECT count(*) > 100, count(*) = count(DISTINCT id) FROM seen}), 't|t', 'while others insert: no ID twice');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY client ORDER BY n) AS back FROM seen) AS s WHERE back}), '0',
	'while others insert: each session\'s IDs increase');
# The mark is lowered by hand, and the next reservation heals it.
$other->query_safe(q{SELECT snowflake_advance('busy_ids', now())});
my $busiest = $node->safe_psql('postgres', 'SELECT max(id) FROM seen');
crash($node);
reconnect();
cmp_ok(draw($other, 'busy_ids'), '>', $busiest, 'and above all after a crash');

# GRANT and REVOKE take no lock on the generator: a session's knowledge of the generator
# becomes void in the middle of the lookup, and each ID still belongs to the generator.
restart();
create_generator($node, 'granted', $label);
$node->safe_psql('postgres', 'TRUNCATE seen; GRANT clerks TO bob; GRANT ALL ON seen, seen_n_seq TO clerks; GRANT USAGE ON SEQUENCE granted TO clerks');
my %script = (
	grants => 'GRANT USAGE ON SEQUENCE granted TO alice; REVOKE USAGE ON SEQUENCE granted FROM alice; GRANT clerks TO alice; REVOKE clerks FROM alice;',
	draws => q{INSERT INTO seen (client, id) SELECT :client_id, snowflake_nextval('granted');});
my @runs;
for my $case ([ 'grants', 1 ], [ 'draws', 4 ])
{
	my ($what, $clients) = @$case;
	my $file = $node->basedir . "/$what.sql";
	append_to_file($file, "$script{$what}\n");
	my ($out, $err) = ('', '');
	push @runs, { err => \$err, what => $what, run => IPC::Run::start(
		[ 'pgbench', '-n', '-c', $clients, '-T', '3', '-f', $file, '-U', $what eq 'draws' ? 'bob' : $node->safe_psql('postgres', 'SELECT current_user'),
			'-h', $node->host, '-p', $node->port, 'postgres' ], '>', \$out, '2>', \$err) };
}
ok($_->{run}->finish, "while privileges change: $_->{what}") or diag ${ $_->{err} } for @runs;
is($node->safe_psql('postgres', 'SELECT count(*) > 100, count(*) = count(DISTINCT id) FROM seen'), 't|t', 'while privileges change: no ID twice');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY client ORDER BY n) AS back FROM seen) AS s WHERE back}), '0',
	'while privileges change: each session\'s IDs increase');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM seen, snowflake_decode(id, 'granted') AS d
	WHERE worker_id <> 3 OR created_at NOT BETWEEN now() - interval '1 min' AND now() + interval '1 min'}), '0', 'while privileges change: all are its own');
$node->safe_psql('postgres', 'REVOKE clerks FROM bob');

# The extension is dropped and created again: labels and marks stay.
create_generator($node, 'survivor', $label);
draw($other, 'survivor');
$node->safe_psql('postgres', 'SET client_min_messages = warning; DROP EXTENSION snowflake_id CASCADE');
like((error_in($other, q{SELECT snowflake_nextval('survivor')}))[0], qr/^42883$/, 'no extension, no function');
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
draw($other, 'survivor');
crash($node);
reconnect();
draw($other, 'survivor');
check_ids('DROP and CREATE EXTENSION', drawn('survivor'));
$_->quit for values %session;

done_testing();
