# Tests that a session keeps no memory for relations that are no generators, for dropped
# generators, and for changed labels.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('node', 7);
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE TABLE plain (id bigserial);
	-- Asks for so many relations that are not there.
	CREATE PROCEDURE ask(first int, count int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN first .. first + count - 1 LOOP
			BEGIN
				PERFORM snowflake_timestamp(1, n::oid::regclass);
				RAISE 'OID % is a generator', n;
			EXCEPTION WHEN undefined_table THEN NULL;
			END;
			IF n % 1000 = 0 THEN COMMIT; END IF;
		END LOOP;
	END $$;
	-- Gives a generator so many labels, one after the other, and looks at each.
	CREATE PROCEDURE relabel(first int, count int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN first .. first + count - 1 LOOP
			EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE changing IS ''preset=twitter max_borrow=%sms''', n);
			PERFORM snowflake_timestamp(1, 'changing');
			COMMIT;
		END LOOP;
	END $$;
	-- Looks at one label so often, each time after a change of the sequence.
	CREATE PROCEDURE look(first int, count int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN first .. first + count - 1 LOOP
			GRANT USAGE ON SEQUENCE changing TO PUBLIC;
			PERFORM snowflake_timestamp(1, 'changing');
			COMMIT;
		END LOOP;
	END $$;
	-- Makes, uses and drops so many generators, or plain sequences.
	CREATE PROCEDURE use_and_drop(count int, make text, use text) LANGUAGE plpgsql AS $$
	BEGIN
		FOR n IN 1 .. count LOOP
			EXECUTE make;
			EXECUTE use;
			COMMIT;
			DROP SEQUENCE short_lived;
			COMMIT;
		END LOOP;
	END $$;
	SELECT snowflake_create_generator('changing', 'preset=twitter');
	SELECT snowflake_create_generator('steady', 'preset=sonyflake')});

my $session = $node->background_psql("postgres", on_error_stop => 0);
my $pid = $session->query_safe('SELECT pg_backend_pid()');

# Returns the session's own memory, in kB.
sub resident
{
	slurp_file("/proc/$pid/smaps_rollup") =~ /^Private_Dirty: +(\d+) kB/m or die 'no size';
	return $1;
}

# A label that is in use stays as it is meanwhile.
my $decoded = $session->query_safe(q{SELECT snowflake_decode(10000000000000, 'steady')});

SKIP:
{
	skip 'no /proc', 4 if !-r "/proc/$pid/smaps_rollup";
	for my $what ([ 'relations that are not there', 'ask', 1_000_000, 50_000 ], [ 'labels', 'relabel', 1, 10_000 ],
		[ 'looks at a label', 'look', 1, 10_000 ])
	{
		my ($name, $procedure, $first, $count) = @$what;
		# The first calls fill PostgreSQL's own caches.
		$session->query_safe("CALL $procedure($first, 1000)");
		my $before = resident();
		$session->query_safe("CALL $procedure(" . ($first + 1000) . ", $count)");
		my $more = resident() - $before;
		cmp_ok($more, '<', 5_000, "$count $name take $more kB");
	}

	# PostgreSQL itself keeps something of each relation that the session has seen.
	my @more = map {
		my $call = "CALL use_and_drop(%d, '$_->[0]', '$_->[1]')";
		$session->query_safe(sprintf $call, 1000);
		my $before = resident();
		$session->query_safe(sprintf $call, 5000);
		resident() - $before;
	} [ 'CREATE SEQUENCE short_lived', q{SELECT nextval(''short_lived'')} ],
		[ q{SELECT snowflake_create_generator(''short_lived'', ''preset=twitter'')}, q{SELECT snowflake_nextval(''short_lived'')} ];
	cmp_ok($more[1] - $more[0], '<', 2_000, "5000 dropped generators take $more[1] kB, and sequences $more[0] kB");
}

$session->query_safe('CALL relabel(20000, 200)');
is($session->query_safe(q{SELECT snowflake_decode(10000000000000, 'steady')}), $decoded, 'a label in use is kept');

# Entries of dropped generators are used for others, and keep nothing of the dropped
# ones.
$session->query_safe('PREPARE next (regclass) AS SELECT snowflake_nextval($1)');
my %seen;
my $wrong = 0;
for my $n (1 .. 300)
{
	my $preset = $n % 2 ? 'preset=twitter' : 'preset=sonyflake';
	$session->query_safe("SELECT snowflake_create_generator('g$n', '$preset')");
	my $defined = $session->query_safe("SELECT count(*) FROM pg_sequences WHERE sequencename = 'g$n'");
	my $id = $session->query_safe("EXECUTE next('g$n')");
	my $text = $session->query_safe("SELECT snowflake_timestamp($id, 'g$n') BETWEEN now() - interval '1 min' AND now() + interval '1 min',
		snowflake_currval('g$n') = $id, snowflake_nextval('g$n') > $id, issued >= 1
		FROM pg_stat_snowflake WHERE generator = 'g$n'::regclass");
	$wrong++ if $text ne 't|t|t|t' || $defined ne '1';
	$session->query_safe("DROP SEQUENCE g$n") if $n % 10;
}
is($wrong, 0, 'generators that come and go');
is($session->query_safe(q{SELECT count(*) FROM snowflake_generators}), '33', 'those that are left are shown');
$session->query_safe("SELECT snowflake_create_generator('fresh', 'preset=twitter')");
$session->query_safe("SELECT snowflake_create_generator('fresh2', 'preset=twitter')");
my $code = error_in($session, "\\set VERBOSITY verbose\nSELECT snowflake_currval('fresh')");
is($code, '55000', 'another one has no value yet');

# The entries are given up when the session meets others, here so many of another
# session's that it searches for unused ones. Those have no value either.
$node->safe_psql('postgres', "SELECT snowflake_create_generator('met' || n, 'preset=twitter') FROM generate_series(1, 700) AS n");
my $values = $session->query_safe(<<'END');
CREATE FUNCTION values_of_others() RETURNS int LANGUAGE plpgsql AS $$
DECLARE found int := 0;
BEGIN
	FOR n IN 1 .. 700 LOOP
		BEGIN
			PERFORM snowflake_currval(('met' || n)::regclass);
			found := found + 1;
		EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL;
		END;
	END LOOP;
	RETURN found;
END $$;
SELECT values_of_others();
END
is($values, '0', 'none of 700 others has a value yet');
$node->safe_psql('postgres', q{DO $$ BEGIN FOR n IN 1 .. 700 LOOP EXECUTE 'DROP SEQUENCE met' || n; END LOOP; END $$});

# A drop is rolled back.
my $id = $session->query_safe("SELECT snowflake_nextval('fresh')");
$session->query_safe('BEGIN; SAVEPOINT a; DROP SEQUENCE fresh');
$session->query_safe("SELECT snowflake_create_generator('h$_', 'preset=twitter')") for 1 .. 200;
$session->query_safe('ROLLBACK TO a; COMMIT');
is($session->query_safe("SELECT snowflake_currval('fresh')"), $id, 'a drop that is undone keeps it');

# The same transaction has changed its label before: that is not forgotten either.
my $layout = q{layout=''time:41 worker:10 sequence:12'' epoch=''2024-01-01Z''} =~ s/''/'/gr;
create_generator($node, 'relabelled', $layout);
$node->safe_psql('postgres', q{SELECT snowflake_nextval('relabelled')});
my $relabels = session($node);
$relabels->query_safe('BEGIN; SECURITY LABEL FOR snowflake_id ON SEQUENCE relabelled IS $$' . $layout =~ s/2024/2020/r . '$$');
$relabels->query_safe('SAVEPOINT a; DROP SEQUENCE relabelled');
$relabels->query_safe(q{SELECT snowflake_create_generator('r' || n, 'preset=twitter') FROM generate_series(1, 200) AS n});
$relabels->query_safe('ROLLBACK TO a');
is(error_in($relabels, q{SELECT snowflake_nextval('relabelled')}), '55000', 'no IDs of a layout that is not committed');
$relabels->quit;

# A relation that is no generator is refused with the right error, also one that the
# session has known as a generator.
my $dropped = $session->query_safe("SELECT snowflake_create_generator('dropped', 'preset=twitter')::oid");
$session->query_safe(q{SELECT snowflake_nextval('dropped'); DROP SEQUENCE dropped});
for my $case ([ 'plain', '42809' ], [ 'plain_id_seq', '42809' ], [ '4000000000', '42P01' ], [ 'pg_class', '42809' ], [ $dropped, '42P01' ])
{
	my ($name, $expected) = @$case;
	for my $call ('snowflake_nextval(%s)', 'snowflake_nextval_batch(1, %s)', 'snowflake_currval(%s)', 'snowflake_timestamp(1, %s)',
		'snowflake_stat_reset(%s)', 'snowflake_advance(%s, now())')
	{
		my ($code) = error_in($session, 'SELECT ' . sprintf($call, "'$name'::regclass"));
		is($code, $expected, sprintf $call, $name);
	}
}
# A call waits for a generator that another session is making.
$session->query_safe('CREATE SEQUENCE late AS bigint INCREMENT BY 9223372036854775807 MINVALUE 1 START WITH 9223372036854775807');
my $other = $node->background_psql('postgres');
$other->query_safe(q{BEGIN; SECURITY LABEL FOR snowflake_id ON SEQUENCE late IS 'preset=twitter'});
send_to($session, q{SELECT snowflake_nextval('late') > 0});
wait_for_lock($node, '%late%');
$other->query_safe('COMMIT');
$other->quit;
is((answer_in($session))[2], 't', 'a label that is being set is waited for');
$session->quit;
$node->stop;
done_testing();
