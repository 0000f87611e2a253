# Tests what copies of a database with managed/snowflake_sql.sql notice and do: a database made
# from it, a dump that is restored, a promoted standby; and what a crash can issue twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Managed;
use Snowflake;

my $node = stock_node('main', allows_streaming => 1);
install_file($node);
sql($node, q{SELECT snowflake_create_generator('g', 5); CREATE TABLE orders (id bigint PRIMARY KEY); SELECT snowflake_set_default('orders', generator => 'g');
	CREATE TABLE own (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY); SELECT snowflake_set_worker('own_id_seq', 6, adopt => true);
	INSERT INTO orders SELECT FROM generate_series(1, 10); INSERT INTO own SELECT FROM generate_series(1, 10)});
my $problems = q{SELECT string_agg(coalesce(problem, 'none'), ';' ORDER BY generator::text) FROM snowflake_generators};
is(sql($node, $problems), 'none;none', 'no problem');

# --- A database made from it ------------------------------------------------------------
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE shop OWNER dbo');
my %copy = (database => 'copy');
like(sql($node, $problems, %copy), qr/^another database got this worker ID.*;another database/, 'a copy says that it is one');
sql($node, 'SELECT snowflake_advance_all(), snowflake_advance_all($$1 minute$$)', %copy);
like(sql($node, $problems, %copy), qr/^another database got this worker ID/, 'no move changes that');
my $last = sql($node, 'SELECT max(id) FROM orders', %copy);
sql($node, q{SELECT snowflake_set_worker('g', 7), snowflake_set_worker('own_id_seq', 8)}, %copy);
is(sql($node, $problems, %copy), 'none;none', 'snowflake_set_worker() is the answer');
is(sql($node, "INSERT INTO orders DEFAULT VALUES RETURNING id & 1023, id > $last", %copy), '7|t', 'the copy has a worker ID of its own, above its rows');

# --- A dump that is restored -------------------------------------------------------------
sub restored
{
	my ($database, @options) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$database.sql";
	command_ok([ 'pg_dump', '-U', 'dbo', '-h', $node->host, '-p', $node->port, '-f', $file, @options, 'shop' ], "$database: pg_dump by the owner");
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER dbo");
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', 'dbo', '-h', $node->host, '-p', $node->port, '-d', $database, '-f', $file ], "$database: restore by the owner");
	like(sql($node, $problems, database => $database), qr/^another database got this worker ID.*;another database/, "$database: it says that it is a copy");
	is(sql($node, q{SELECT snowflake_set_worker('g', 5) > now(), snowflake_set_worker('own_id_seq', 6) > now()}, database => $database), 't|t', "$database: the same worker IDs, where the original is gone");
	is(sql($node, $problems, database => $database), 'none;none', "$database: no problem");
	is(sql($node, q{INSERT INTO orders DEFAULT VALUES; INSERT INTO own DEFAULT VALUES; SELECT count(*), count(DISTINCT id), max(id & 1023) FROM orders}, database => $database), '11|11|5', "$database: rows go on");
	return;
}
restored('dumped');

# --- A promoted standby that has not received the end -------------------------------------
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
start_with_clock($standby, 0);
$node->wait_for_catchup($standby, 'replay');
is(sql($standby, 'SELECT snowflake_advance_all() IS NULL'), 't', 'on a standby, a scheduler moves nothing');
is(sql($standby, $problems), 'none;none', 'and the view shows no problem');
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
my @lost = split /\n/, sql($node, q{INSERT INTO orders SELECT FROM generate_series(1, 500) RETURNING id; SELECT snowflake_advance_all(); INSERT INTO orders SELECT FROM generate_series(1, 500) RETURNING id});
$node->stop('immediate');
# A standby replays before its promotion what it has received. This one has received nothing since the backup.
$standby->stop;
$standby = PostgreSQL::Test::Cluster->new('promoted');
$standby->init_from_backup($node, 'base', has_streaming => 1);
start_with_clock($standby, 0);
$standby->promote;
like(sql($standby, $problems), qr/^the server was promoted or restored.*snowflake_advance_all/, 'a promoted server says so');
is(sql($standby, q{SELECT snowflake_advance_all()}), 0, 'the scheduler moves it');
like(sql($standby, $problems), qr/^the server was promoted/, 'which is not the answer');
is(sql($standby, q{SELECT snowflake_advance_all('1 minute')}), 0, 'the call that the page names');
is(sql($standby, $problems), 'none;none', 'is the answer');
my %lost = map { $_ => 1 } @lost;
my @new = split /\n/, sql($standby, 'INSERT INTO orders SELECT FROM generate_series(1, 2000) RETURNING id');
is(scalar(grep { $lost{$_} } @new), 0, 'none of 2000 IDs had been issued by the lost server');
cmp_ok($new[0], '>', (sort { $b <=> $a } grep { /^\d{15}/ } @lost)[0], 'and all are above those');
$standby->stop;
done_testing();
