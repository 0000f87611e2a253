# Tests labels and marks on a physical standby and through its promotion, labels without
# marks on a logical subscriber, and the switch to that subscriber.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $behind = -3600;
my %generator_of = (orders => 'orders_ids', photos => 'photo_ids', events => 'snowflake_default');
my @tables = sort keys %generator_of;

my $primary = new_node('primary', 7, allows_streaming => 'logical');
$primary->append_conf('postgresql.conf', "max_connections = 20");
$primary->start;
$primary->safe_psql('postgres', 'CREATE DATABASE shop');
$primary->safe_psql('shop', <<'END');
CREATE EXTENSION snowflake_id;
SELECT snowflake_create_generator('orders_ids', 'preset=shardingsphere on_rollback=continue');
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'), item text);
ALTER SEQUENCE orders_ids OWNED BY orders.id;
SELECT snowflake_create_generator('photo_ids', 'preset=instagram shard=5');
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_nextval('photo_ids'), item text);
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
END

my %issued;

sub insert
{
	my ($node, $table, $count) = @_;
	my @ids = split /\n/, $node->safe_psql('shop',
		"INSERT INTO $table (item) SELECT 'thing ' || n FROM generate_series(1, $count) AS n RETURNING id");
	return @ids;
}

sub labels
{
	my ($node) = @_;
	return $node->safe_psql('shop', q{
		SELECT objname, label FROM pg_seclabels WHERE provider = 'snowflake_id' ORDER BY objname COLLATE "C"});
}

# The physical standby has a clock that is an hour behind.
push @{ $issued{$_} }, insert($primary, $_, 100) for @tables;
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
start_with_clock($standby, $behind);
# After the backup a generator is created, and a label is changed before its first ID.
$primary->safe_psql('shop', q{
	SELECT snowflake_create_generator('late_ids', 'preset=twitter');
	CREATE TABLE late (id bigint PRIMARY KEY DEFAULT snowflake_nextval('late_ids'), item text)});
$primary->wait_for_catchup($standby);
is(labels($standby), labels($primary), 'labels on the standby');
is($standby->safe_psql('shop', q{
		SELECT severity, finding, ids FROM snowflake_check('events', worker_ids => '{[7,8)}') WHERE day IS NULL}),
	"warning|ID of the future|100\ninfo|all IDs|100", 'a check on the standby, whose clock is slow');
my $session = $standby->background_psql('shop');
my $id = 1 << 30;
is($session->query_safe("SELECT snowflake_timestamp($id, 'late_ids')"),
	'2010-11-04 01:42:54.913+00', 'a standby decodes by the label');
$primary->safe_psql('shop', q{SECURITY LABEL FOR snowflake_id ON SEQUENCE late_ids IS 'preset=discord'});
$primary->wait_for_catchup($standby);
is($session->query_safe("SELECT snowflake_timestamp($id, 'late_ids')"),
	'2015-01-01 00:00:00.256+00', 'and by the new one, in a session that knew the old one');
$session->quit;

push @{ $issued{$_} }, insert($primary, $_, 1000) for @tables, 'late';
# These IDs are in no row.
push @{ $issued{$_} }, split /\n/, $primary->safe_psql('shop',
	"BEGIN; SELECT snowflake_nextval('$generator_of{$_}') FROM generate_series(1, 10); ROLLBACK") for @tables;
$primary->wait_for_catchup($standby);
for my $table (@tables)
{
	my $generator = $generator_of{$table};
	is($standby->safe_psql('shop', qq{
		SELECT count(*), min(worker_id) FROM $table, snowflake_decode(id, '$generator')}),
		$primary->safe_psql('shop', qq{
		SELECT count(*), min(worker_id) FROM $table, snowflake_decode(id, '$generator')}),
		"a standby decodes IDs of $generator");
	for my $call ("snowflake_nextval('$generator')", "snowflake_nextval_batch(3, '$generator')",
		"snowflake_advance('$generator', now())")
	{
		is((error_of($standby, "SELECT $call", 'shop'))[0], '25006', "a standby refuses $call");
	}
	is((error_of($standby, "ALTER SEQUENCE $generator RESTART", 'shop'))[0], '25006', "as PostgreSQL does a restart of $generator");
}
is($standby->safe_psql('shop', 'SELECT count(*), count(reserved_until) FROM snowflake_generators'),
	'4|4', 'a standby shows generators and marks');

# One subscriber has a worker ID of its own, and one has the publisher's. Both come from
# a schema-only dump, and their clocks are an hour behind.
my $schema = $primary->basedir . '/schema.sql';
$primary->command_ok([ 'pg_dump', '-s', '--no-publications', '-f', $schema, 'shop' ], 'pg_dump -s');
$primary->safe_psql('shop', 'CREATE PUBLICATION everything FOR ALL TABLES');
my %subscriber;
for my $worker (8, 7)
{
	my $node = $subscriber{$worker} = new_node("subscriber$worker", $worker, allows_streaming => 'logical');
	start_with_clock($node, $behind);
	$node->safe_psql('postgres', 'CREATE DATABASE shop');
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'shop', '-f', $schema ], 'schema restored');
	my $publisher = $primary->connstr('shop');
	$node->safe_psql('shop', "CREATE SUBSCRIPTION s$worker CONNECTION \$\$$publisher\$\$ PUBLICATION everything");
}
for my $worker (8, 7) { $subscriber{$worker}->wait_for_subscription_sync($primary, "s$worker", 'shop'); }
# These rows are streamed.
push @{ $issued{$_} }, insert($primary, $_, 1000) for @tables;
for my $worker (8, 7)
{
	my $node = $subscriber{$worker};
	$primary->wait_for_catchup("s$worker");
	is(labels($node), labels($primary), "subscriber $worker: labels");
	for my $table (@tables)
	{
		my $sum = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM $table AS t";
		is($node->safe_psql('shop', $sum), $primary->safe_psql('shop', $sum), "subscriber $worker: rows of $table");
		is($node->safe_psql('shop', "SELECT last_value FROM $generator_of{$table}"), '1',
			"subscriber $worker: $table, no mark");
	}
}
# The switch takes four steps: stop writing, wait until all has arrived, set the marks,
# start writing on the subscriber.
my %mark;
for my $table (@tables)
{
	push @{ $issued{$table} }, split /\n/, $primary->safe_psql('shop',
		"BEGIN; SELECT snowflake_nextval('$generator_of{$table}') FROM generate_series(1, 10); ROLLBACK");
	$mark{$table} = $primary->safe_psql('shop', "SELECT last_value FROM $generator_of{$table}");
}
for my $worker (8, 7)
{
	my $node = $subscriber{$worker};
	$node->safe_psql('shop', "DROP SUBSCRIPTION s$worker");
	for my $table (@tables)
	{
		my $generator = $generator_of{$table};
		my $most = $node->safe_psql('shop', "SELECT max(id) FROM $table");
		my ($first) = $node->safe_psql('shop', "SELECT snowflake_nextval('$generator')");
		cmp_ok($first, '<', $most, "subscriber $worker: without a mark, IDs of $table start at the clock");
		# With another worker ID, the mark need only be above the rows. With the same
		# worker ID, IDs that are in no table matter too, and the publisher's mark is
		# above them.
		$node->safe_psql('shop', $worker == 8
			? "SELECT snowflake_advance('$generator', max(id)) FROM $table"
			: "SELECT snowflake_advance('$generator', to_timestamp($mark{$table} / 1000.0))");
		my @ids = insert($node, $table, 1000);
		cmp_ok($ids[0], '>', $most, "subscriber $worker: $table goes on above its rows");
		cmp_ok($ids[0], '>', $issued{$table}[-1], "subscriber $worker: $table goes on above all IDs")
		  if $worker == 7;
		check_ids("cut over to subscriber $worker, $table", $issued{$table}, [ $first, @ids ])
		  # A fixed field tells shards apart, not servers.
		  if $worker == 7 || $table ne 'photos';
	}
	$node->stop('immediate');
	start_with_clock($node, $behind);
	for my $table (@tables)
	{
		my $most = $node->safe_psql('shop', "SELECT max(id) FROM $table");
		cmp_ok((insert($node, $table, 1))[0], '>', $most, "subscriber $worker: $table, durable");
	}
	$node->stop;
}

# The primary is lost, and the standby takes over with its worker ID.
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
$standby->promote;
is(labels($standby) =~ tr/\n//, 2, 'labels after the promotion');
for my $table (@tables, 'late')
{
	my @ids = insert($standby, $table, 1000);
	cmp_ok($ids[0], '>', $issued{$table}[-1], "$table goes on above after a promotion");
	check_ids("across a promotion, $table", $issued{$table}, \@ids);
}
my @gaps = slurp_file($standby->logfile) =~ /generator (\S+) was promoted/g;
is("@{[ sort @gaps ]}", 'late_ids orders_ids photo_ids snowflake_default', 'each leaves out the gap');

done_testing();
