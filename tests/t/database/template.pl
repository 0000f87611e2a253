# Tests that a database made from a template issues IDs above those of the template, and
# that a database that is dropped and made again, with the same or other OIDs, has the
# marks of its template.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 7);
# The window is long, so that a reservation for a database lasts until the database is
# made again.
$node->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '10 min'");
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', <<'END');
CREATE EXTENSION snowflake_id;
SELECT snowflake_create_generator('orders_ids', 'preset=shardingsphere on_rollback=continue');
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'), item text);
ALTER SEQUENCE orders_ids OWNED BY orders.id;
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
END
my @tables = ('orders', 'events');

sub insert
{
	my ($database, $table) = @_;
	return split /\n/, $node->safe_psql($database,
		"INSERT INTO $table (item) SELECT 'thing ' || n FROM generate_series(1, 500) AS n RETURNING id");
}

sub labels
{
	my ($database) = @_;
	return $node->safe_psql($database, q{
		SELECT objname, label FROM pg_seclabels WHERE provider = 'snowflake_id' ORDER BY objname COLLATE "C"});
}

my %before = map { $_ => [ insert('shop', $_) ] } @tables;

# The clock is an hour behind from here on: only the copied mark puts IDs above the
# former ones.
my $behind = -3600;
for my $strategy ('wal_log', 'file_copy')
{
	my $copy = "copy_$strategy";
	$node->stop;
	start_with_clock($node, $behind);
	# The template has issued IDs in the life of this server too.
	push @{ $before{$_} }, insert('shop', $_) for @tables;
	$node->safe_psql('postgres', "CREATE DATABASE $copy TEMPLATE shop STRATEGY $strategy");
	$node->stop('immediate');
	start_with_clock($node, $behind);
	is(labels($copy), labels('shop'), "$strategy: labels are the same");
	for my $table (@tables)
	{
		my @ids = insert($copy, $table);
		cmp_ok($ids[0], '>', $before{$table}[-1], "$strategy: $table goes on above the template's");
		check_ids("$strategy: $table", [ @{ $before{$table} }, @ids ]);
	}
	# A start ahead of the clock reserves little at first, and each further reservation
	# twice as much: now the reservations last until the database is made again.
	$node->safe_psql($copy, "SELECT snowflake_advance('$_', now()) FROM generate_series(1, 12)") for qw(orders_ids snowflake_default);

	# The database is dropped and made again: the server uses the mark, and nothing that
	# it remembers of the former database. The OID is the same, so all keys are the same
	# too.
	my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$copy'");
	$node->safe_psql('postgres', "DROP DATABASE $copy");
	$node->safe_psql('postgres', "CREATE DATABASE $copy TEMPLATE shop STRATEGY $strategy OID = $oid");
	for my $table (@tables)
	{
		my @ids = insert($copy, $table);
		cmp_ok($ids[0], '>', $before{$table}[-1], "$strategy, made again: $table");
		my $generator = $table eq 'orders' ? 'orders_ids' : 'snowflake_default';
		is($node->safe_psql($copy, qq{
			SELECT extract(epoch FROM snowflake_timestamp($ids[-1], '$generator')) * 1000 < last_value FROM $generator}),
			't', "$strategy, made again: IDs of $table lie below the mark");
		$before{"$strategy $table"} = \@ids;
	}
	$node->stop('immediate');
	start_with_clock($node, $behind);
	for my $table (@tables)
	{
		my @ids = insert($copy, $table);
		cmp_ok($ids[0], '>', $before{"$strategy $table"}[-1], "$strategy, made again: $table after a crash");
	}

	# The server does not use a former label either: the OIDs are the same, but the
	# template had another label before its first ID.
	$node->safe_psql('postgres', "DROP DATABASE $copy");
	$node->safe_psql('postgres', 'CREATE DATABASE bare');
	$node->safe_psql('bare', q{CREATE EXTENSION snowflake_id;
		SELECT snowflake_create_generator('some_ids', 'preset=shardingsphere on_rollback=continue')});
	$node->safe_psql('postgres', "CREATE DATABASE $copy TEMPLATE bare STRATEGY $strategy OID = $oid");
	$node->safe_psql($copy, q{SELECT snowflake_nextval('some_ids')});
	$node->safe_psql('postgres', "DROP DATABASE $copy");
	$node->safe_psql('bare', q{SECURITY LABEL FOR snowflake_id ON SEQUENCE some_ids IS 'preset=discord'});
	$node->safe_psql('postgres', "CREATE DATABASE $copy TEMPLATE bare STRATEGY $strategy OID = $oid");
	is($node->safe_psql($copy, q{
		SELECT abs(extract(epoch FROM snowflake_timestamp(snowflake_nextval('some_ids'), 'some_ids') - now())) < 1800}),
		't', "$strategy: made again with another label, IDs as it says");
	$node->safe_psql('postgres', "DROP DATABASE $copy");
	$node->safe_psql('postgres', 'DROP DATABASE bare');
}

# The template resumes too.
for my $table (@tables)
{
	my @ids = insert('shop', $table);
	cmp_ok($ids[0], '>', $before{$table}[-1], "the template goes on: $table");
	check_ids("the template: $table", [ @{ $before{$table} }, @ids ]);
}

done_testing();
