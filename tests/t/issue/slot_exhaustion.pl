# Tests that no user can use up the slots of others: slots in shared memory are a cache,
# whatever a user does with generators of their own.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $places = 8;
my $many = 3 * $places;
my $node = new_node('main', 3);
# The tables of slots are files.
$node->append_conf('postgresql.conf', "snowflake_id.debug_slots = $places\ndynamic_shared_memory_type = mmap");
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE DATABASE other');
for my $database ('postgres', 'other')
{
	$node->safe_psql($database, qq{
		CREATE EXTENSION snowflake_id;
		SELECT count(snowflake_create_generator('g' || n, 'preset=default')) FROM generate_series(1, $many) AS n});
}
$node->safe_psql('postgres', 'CREATE ROLE alice LOGIN; CREATE SCHEMA hers AUTHORIZATION alice');
my %session = map { $_ => session($node, undef, $_) } 'postgres', 'other';

# These generators belong to others: the default generators and more named ones than
# there are slots, in this database and in another one. Each is used in a transaction of
# its own.
my @names = ('snowflake_default', map { "g$_" } 1 .. $many);
my %ids;

# Returns how many of them get no ID, and the first error.
sub refused
{
	my ($count, $first) = (0, '');
	for my $database (sort keys %session)
	{
		for my $name (@names)
		{
			my $id = $session{$database}->query("SELECT snowflake_nextval('$name')");
			my $text = $session{$database}{stderr};
			$session{$database}{stderr} = '';
			push @{ $ids{"$database $name"} }, $id if $text eq '';
			$count++ if $text ne '';
			$first ||= "$database, $name: $text" if $text ne '';
		}
	}
	diag "$count get no ID; $first" if $count > 0;
	return $count;
}
is(refused(), 0, 'all get IDs in the beginning');

# Restarts the server, so that slots of one part do not affect the next.
sub restart
{
	$_->quit for values %session;
	$node->stop;
	start_with_clock($node, 0);
	%session = map { $_ => session($node, undef, $_) } 'postgres', 'other';
	return;
}

# One user makes a generator, moves it ahead of the clock as far as the label allows,
# and rolls all of that back, again and again in one statement.
my $rounds = 3 * $places;
my $round = <<'END';
PERFORM snowflake_create_generator('hers.g', $label$preset=default max_rollback='3650 d'$label$);
PERFORM snowflake_advance('hers.g', now() + interval '1800 days');
END
my %way = (
	'each round is rolled back' => <<"END",
DO \$\$
DECLARE failed int := 0;
BEGIN
	FOR i IN 1 .. $rounds LOOP
		BEGIN
			$round
			RAISE EXCEPTION 'never mind';
		EXCEPTION WHEN raise_exception THEN NULL; WHEN OTHERS THEN failed := failed + 1;
		END;
	END LOOP;
	PERFORM set_config('t.failed', failed::text, false);
END\$\$;
END
	'all of them are rolled back' => <<"END",
DO \$\$
DECLARE failed int := 0;
BEGIN
	FOR i IN 1 .. $rounds LOOP
		BEGIN
			$round
			ALTER SEQUENCE hers.g RENAME TO kept;
			EXECUTE 'ALTER SEQUENCE hers.kept RENAME TO g' || i;
		EXCEPTION WHEN OTHERS THEN failed := failed + 1;
		END;
	END LOOP;
	-- A setting would be rolled back too.
	RAISE EXCEPTION '% rounds failed', failed;
END\$\$;
END
);
for my $way (sort keys %way)
{
	restart();
	my $alice = session($node, 'alice');
	my ($code, $text) = error_in($alice, $way{$way});
	my $failed = $code eq 'P0001' && $text =~ /(\d+) rounds failed/ ? $1
	  : $code eq '' ? $alice->query_safe(q{SELECT current_setting('t.failed')}) : $text;
	is($failed, '0', "$way: her own statement finds places");
	is(refused(), 0, "$way: all others get IDs while she is there");
	$alice->quit;
	is(refused(), 0, "$way: and when she is gone");
}

# A role makes databases, with generators that it moves ahead of the clock, and drops them: their
# slots serve again, and no table is added.
restart();
$node->safe_psql('postgres', 'ALTER ROLE alice CREATEDB');
sub tables { my @files = glob $node->data_dir . '/pg_dynshmem/mmap.*'; return scalar @files; }
my @tables;
for my $n (1 .. 6)
{
	$node->safe_psql('postgres', 'CREATE DATABASE gone', extra_params => [ '-U', 'alice' ]);
	$node->safe_psql('gone', qq{CREATE EXTENSION snowflake_id; SELECT snowflake_advance('snowflake_default', now() + interval '11 h');
		SELECT count(snowflake_advance(snowflake_create_generator('g' || n, 'preset=default'), now() + interval '11 h')) FROM generate_series(1, 150) AS n}, extra_params => [ '-U', 'alice' ]);
	$node->safe_psql('postgres', 'DROP DATABASE gone', extra_params => [ '-U', 'alice' ]);
	push @tables, tables();
}
cmp_ok($tables[1], '>', 0, 'so many generators need tables');
is($tables[-1], $tables[1], "and those of later databases take their places: @tables");
is(refused(), 0, 'all others get IDs');

# The marks of restarted and used generators are rolled back, under the default
# settings, for more generators than there are slots.
$node->safe_psql('postgres', join ';', map {
	"CREATE TABLE t$_ (id bigint PRIMARY KEY DEFAULT snowflake_nextval('g$_'));
	ALTER SEQUENCE g$_ OWNED BY t$_.id" } 1 .. $many);

# This is the first error.
my $said;

# Restarts the generators of these tables, inserts, and rolls back. The IDs that were
# issued still count.
sub restart_and_roll_back
{
	my @numbers = @_;
	my $session = $session{postgres};
	my $failed = error_in($session, 'BEGIN; TRUNCATE ' . join(',', map { "t$_" } @numbers) . ' RESTART IDENTITY') ne '' ? 1 : 0;
	for my $n (@numbers)
	{
		my $out = $session->query("INSERT INTO t$n SELECT FROM generate_series(1, 3) RETURNING id");
		my $text = $session->{stderr};
		$session->{stderr} = '';
		$failed++ if $text ne '';
		push @{ $ids{"postgres g$n"} }, split /\n/, $out if $text eq '';
		$said //= diag "t$n: $text" if $text ne '';
	}
	$session->query_safe('ROLLBACK');
	return $failed;
}
restart();
my $failed = 0;
$failed += restart_and_roll_back($_) for 1 .. $many;
is($failed, 0, 'TRUNCATE RESTART IDENTITY and inserts, one table after the other');
is(refused(), 0, 'all get IDs after all of that was rolled back');
restart();
is(restart_and_roll_back(1 .. $many), 0, 'the same of all tables in one transaction');
is(refused(), 0, 'all get IDs after it was rolled back');

# One transaction uses more generators than there are slots, and stays open.
restart();
my $holder = session($node);
$holder->query_safe('BEGIN');
for my $pass (1, 2)
{
	my $denied = 0;
	for my $name (@names)
	{
		my ($out) = $holder->query("SAVEPOINT a;\nSELECT snowflake_nextval('$name')");
		$denied++ if $holder->{stderr} ne '';
		diag "$name: $holder->{stderr}" if $holder->{stderr} ne '' && $denied == 1;
		push @{ $ids{"postgres $name"} }, $out if $holder->{stderr} eq '';
		$holder->query('ROLLBACK TO a') if $holder->{stderr} ne '';
		$holder->{stderr} = '';
	}
	is($denied, 0, "an open transaction gets an ID of each of many generators, pass $pass");
	is(refused(), 0, "and so do all others meanwhile, pass $pass");
}
is((error_in($holder, 'COMMIT'))[0], '', 'it commits');
is(refused(), 0, 'all get IDs afterwards');
is((error_of($node, 'SELECT count(*) FROM snowflake_generators; SELECT count(*) FROM pg_stat_snowflake'))[0], '', 'the views can be read');
$_->quit for $holder, values %session;

# Their marks hold after a crash.
crash($node);
%session = map { $_ => session($node, undef, $_) } 'postgres', 'other';
is(refused(), 0, 'all get IDs after a crash');
$_->quit for values %session;
my (%seen, $twice, $disorder);
$twice = $disorder = 0;
for my $of (sort keys %ids)
{
	my $last = -1;
	for my $id (@{ $ids{$of} })
	{
		$twice++ if $seen{"$of $id"}++;
		$disorder++ if $id <= $last;
		$last = $id;
	}
}
note scalar(keys %seen) . ' IDs of ' . scalar(keys %ids) . ' generators';
is($twice, 0, 'no generator gave an ID twice');
is($disorder, 0, "each generator's IDs increase");

$node->stop;
done_testing();
