# Tests a restart of a sequence that is rolled back: the rollback removes the mark of
# the IDs issued since. Then only the generator's slot knows these IDs, and the
# generator keeps the slot until the clock is past them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "snowflake_id.debug_slots = 2\nsnowflake_id.reserve_ahead = '3 s'");
start_with_clock($node, 0);
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	SELECT snowflake_create_generator('g' || n, 'preset=discord') FROM generate_series(1, 3) AS n});

my %restart = (
	transaction => q{BEGIN; ALTER SEQUENCE g1 RESTART;
		SELECT snowflake_nextval('g1') FROM generate_series(1, 3); ROLLBACK},
	savepoint => q{BEGIN; SAVEPOINT a; ALTER SEQUENCE g1 RESTART;
		SELECT snowflake_nextval('g1') FROM generate_series(1, 3); ROLLBACK TO a; COMMIT});
my @ids;
for my $how ('transaction', 'savepoint')
{
	push @ids, split /\n/, $node->safe_psql('postgres', q{SELECT snowflake_nextval('g1')});
	push @ids, split /\n/, $node->safe_psql('postgres', $restart{$how});
	# Two other generators take turns in the other slot.
	for my $other (2, 3)
	{
		is((error_of($node, "SELECT snowflake_nextval('g$other')"))[0], '', "$how: another generator finds a slot");
	}
	push @ids, split /\n/, $node->safe_psql('postgres', q{SELECT snowflake_nextval('g1')});
}
check_ids('after restarts that were rolled back', \@ids);

# The slot is not kept for ever. The server starts anew, with the generator far enough
# ahead; other generators take turns in the other slot.
$node->stop;
start_with_clock($node, 0);
my $tables = in_log($node, 'made room');
my $turns = 0;
sub turn
{
	$turns++;
	create_generator($node, "turn$turns", 'preset=discord');
	is((error_of($node, "SELECT snowflake_nextval('turn$turns')"))[0], '', "another generator takes its turn: $turns");
	return shown($node, 'pg_stat_snowflake', 'g1', 'count(*)');
}
$node->safe_psql('postgres', q{SELECT snowflake_advance('g1', now() + interval '1 min')});
push @ids, split /\n/, $node->safe_psql('postgres', $restart{transaction});
my $there = 0;
$there += turn() for 1 .. 10;
is($there, 10, 'the slot is kept');
set_clock($node, 120);
wait_until('the slot is given away', sub { return turn() eq '0' });
is(in_log($node, 'made room'), $tables, 'and room was made for nobody');
push @ids, split /\n/, $node->safe_psql('postgres', q{SELECT snowflake_nextval('g1')});
check_ids('after the slot was given away', \@ids);
# A slot is not lost either when its generator was dropped.
$node->stop;
start_with_clock($node, 120);
$node->safe_psql('postgres', $restart{transaction});
$node->safe_psql('postgres', 'DROP SEQUENCE g1');
set_clock($node, 240);
$node->safe_psql('postgres', q{SELECT snowflake_nextval('g2'); SELECT pg_sleep(0.01); SELECT snowflake_nextval('g3')}) for 1 .. 2;
is((error_of($node, q{SELECT snowflake_nextval('g2'), snowflake_nextval('g3')}))[0], '', 'others use the slot of one that was dropped');
is(in_log($node, 'made room'), $tables, 'and need no further room');

# A default generator that is made and undone has the place of the one before. If a server that has
# just crashed meets it first, with a clock that is behind the mark, the one before still starts at
# its mark.
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 1');
@ids = ();
for my $how ('ROLLBACK', 'ROLLBACK TO a; COMMIT', q{PREPARE TRANSACTION 'made'; ROLLBACK PREPARED 'made'})
{
	push @ids, $node->safe_psql('postgres', q{SELECT snowflake_advance('snowflake_default', now() + interval '1 min'); SELECT snowflake_nextval()}) =~ /(\d+)$/;
	$node->stop('immediate');
	start_with_clock($node, 240);
	# The same session goes on: it knows what it has undone.
	push @ids, $node->safe_psql('postgres', "BEGIN; SAVEPOINT a; DROP EXTENSION snowflake_id CASCADE; CREATE EXTENSION snowflake_id;
		SELECT snowflake_nextval() IS NOT NULL; $how; SELECT snowflake_nextval()") =~ /(\d+)$/;
	push @ids, $node->safe_psql('postgres', 'SELECT snowflake_nextval()');
}
check_ids('after default generators that were made and undone', \@ids);
is_deeply(\@ids, [ sort { $a <=> $b } @ids ], 'in the order of time');

done_testing();
