# A restart of a sequence that is rolled back takes the mark of the IDs given since
# with it. Then the generator's slot alone knows of them, and keeps it until the
# clock is past that mark.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "snowflake_id.max_generators = 2\nsnowflake_id.reserve = '3 s'");
$node->start;
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
	# They take turns in the other slot.
	for my $other (2, 3)
	{
		is((error_of($node, "SELECT snowflake_nextval('g$other')"))[0], '', "$how: another generator finds a slot");
	}
	push @ids, split /\n/, $node->safe_psql('postgres', q{SELECT snowflake_nextval('g1')});
}
check_ids('after restarts that were rolled back', \@ids);

# Not for ever.
$node->safe_psql('postgres', $restart{transaction});
$node->safe_psql('postgres', 'DROP SEQUENCE g1');
my $both = q{SELECT snowflake_nextval('g2'), snowflake_nextval('g3')};
is((error_of($node, $both))[0], '53400', 'the slot is kept');
wait_until('the slot is given away', sub { return (error_of($node, $both))[0] eq '' });
is((error_of($node, $both))[0], '', 'until the clock is past the mark');

done_testing();
