# Tests the order of docs/active-active.md in which a table that two servers have gets a key, so that each
# row gets one ID, while rows are inserted. Before PostgreSQL 16, only one of the two subscribes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

my ($north, $south) = map { new_node($_->[0], $_->[1], allows_streaming => 'logical') } [ 'north', 1 ], [ 'south', 2 ];
my @both = ($north, $south);
my $has_origin = $north->pg_version >= 16;
for my $node (@both)
{
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE TABLE events (code text PRIMARY KEY, note text); CREATE PUBLICATION both_ways FOR TABLE events');
}
sub subscribe
{
	my ($to, $from) = @_;
	$to->safe_psql('postgres', "CREATE SUBSCRIPTION from_other CONNECTION '@{[ conninfo($from) ]}' PUBLICATION both_ways WITH (copy_data = false"
		. ($has_origin ? ', origin = none)' : ')'));
	return;
}
subscribe($south, $north);
subscribe($north, $south) if $has_origin;

# Waits until each server has what the other one has sent.
sub catch_up
{
	my $name = 'from_other';
	$north->wait_for_catchup($name);
	$south->wait_for_catchup($name) if $has_origin;
	return;
}
sub keys_of { my ($node, $column) = @_; return $node->safe_psql('postgres', "SELECT string_agg(code || ' ' || coalesce(${column}::text, 'null'), ',' ORDER BY code) FROM events"); }
sub insert { my ($node, $code) = @_; return $node->safe_psql('postgres', "INSERT INTO events (code) VALUES ('$code')"); }

$north->safe_psql('postgres', q{INSERT INTO events SELECT 'n' || n FROM generate_series(1, 50) AS n});
$south->safe_psql('postgres', q{INSERT INTO events SELECT 's' || n FROM generate_series(1, 50) AS n}) if $has_origin;
catch_up();

# What the page warns of.
$_->safe_psql('postgres', 'ALTER TABLE events ADD COLUMN two bigint DEFAULT snowflake_nextval()') for @both;
isnt(keys_of($north, 'two'), keys_of($south, 'two'), 'a default of ADD COLUMN gives each row two IDs');
$_->safe_psql('postgres', 'ALTER TABLE events DROP COLUMN two') for @both;

# The statements of the page, in its order.
my ($add, $fill, $finish) = map { s/\\\|/|/gr } slurp_file("$FindBin::RealBin/../../../docs/active-active.md") =~ /^\| \d \| [^|]* \| `(.*?)` \|$/mg;
ok($finish, 'the page has three statements');
insert($north, 'before');
$north->safe_psql('postgres', $add);
insert($north, 'between');
$south->safe_psql('postgres', $add);
catch_up();
$north->safe_psql('postgres', $fill);
insert($north, 'after');
insert($south, 'south') if $has_origin;
catch_up();
my $rows = keys_of($north, 'id');
unlike($rows, qr/null/, 'all rows have an ID');
is(keys_of($south, 'id'), $rows, 'the same on both servers');
$_->safe_psql('postgres', $finish) for @both;
insert($north, 'last');
catch_up();
is(keys_of($south, 'id'), keys_of($north, 'id'), 'also afterwards');
is($north->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT id) FROM events'), '0', 'no two rows have one');

done_testing();
