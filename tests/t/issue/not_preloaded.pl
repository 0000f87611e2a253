# Tests a server that has not preloaded the library, has no worker ID, or has one out of
# range.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = PostgreSQL::Test::Cluster->new('plain');
$node->init;
$node->append_conf('postgresql.conf', "timezone = 'UTC'");
$node->start;

# Without preloading everything but generating works.
$node->safe_psql('postgres', 'CREATE SCHEMA "Strange Schema"; CREATE EXTENSION snowflake_id SCHEMA "Strange Schema"');
is($node->safe_psql('postgres', 'SELECT "Strange Schema".snowflake_timestamp(4194304)'),
	'2025-01-01 00:00:00.001+00', 'decodes without preloading');
for my $call ('snowflake_nextval()', q{snowflake_nextval('"Strange Schema".snowflake_default')},
	'snowflake_nextval_batch(3)', 'snowflake_nextval_block(3)', 'snowflake_observe(3)', 'snowflake_accept_clock()')
{
	my ($code, $text) = error_of($node, "SELECT \"Strange Schema\".$call");
	is($code, '55000', "$call needs preloading");
	like($text, qr/shared_preload_libraries = 'snowflake_id'/, 'the hint has the line to add');
	unlike($text, qr/backtrace|panicked/i, 'no backtrace');
}
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name LIKE 'snowflake_id.%'"),
	'0', 'no settings that would mean nothing');

# A preloaded server without a worker ID does not take worker ID 0 silently.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake_id'");
$node->restart;
my ($code, $text) = error_of($node, 'SELECT "Strange Schema".snowflake_nextval()');
is($code, '55000', 'no worker ID');
like($text, qr/HINT:.*"snowflake_id.worker_id".*0 to 1023/, 'the hint names the setting and the range');
like(slurp_file($node->logfile), qr/WARNING:  snowflake_id: this server has no worker ID/, 'a warning at start');
is($node->safe_psql('postgres', 'SHOW snowflake_id.worker_id'), '', 'not set is empty');
is((error_of($node, 'SET snowflake_id.worker_id = 3'))[0], '55P02', 'no session sets it');
for my $value ('-1', '7a', '1.5', '2147483648', 'hostnam', 'hostname 1', 'env', 'env A B')
{
	my ($refused, $why) = error_of($node, "ALTER SYSTEM SET snowflake_id.worker_id = '$value'");
	is($refused, '22023', "refused: $value");
	like($why, qr/DETAIL:  It is a number from 0 to 2147483647, 'hostname' or 'env NAME'\./, 'and the forms are named');
}

# A mistyped worker ID stops the start.
my $file = slurp_file($node->data_dir . '/postgresql.conf');
$node->append_conf('postgresql.conf', q{snowflake_id.worker_id = 'hostnam'});
$node->stop;
ok(!$node->start(fail_ok => 1), 'a mistyped worker ID: no start');
like(slurp_file($node->logfile), qr/FATAL:  invalid value for parameter "snowflake_id.worker_id": "hostnam"\n.*DETAIL:  It is a number/, 'and the log says why');
unlink $node->data_dir . '/postgresql.conf';
$node->append_conf('postgresql.conf', $file);
$node->start;

# The number of a host name counts only if it can be that of one server.
$node->append_conf('postgresql.conf', q{snowflake_id.worker_id = 'hostname'});
for ([ 'shop-3', 3 ], [ 'shop-03.example-7.org', 3 ], [ 'pg-15-0', 0 ], [ 'shop-eu-1', 1 ], [ 'shop-99999', 99999 ], [ 'shop', '' ], [ 'shop3', '' ], [ 'shop-', '' ],
	[ '7', '' ], [ '1-7', '' ], [ 'ip-10-0-1-12', '' ], [ 'shop-1-2-3', '' ], [ 'shop-2026-11-30', '' ], [ 'shop-20261130', '' ], [ 'shop-20261130-1', '' ], [ 'shop-1a', '' ])
{
	my ($host, $worker) = @$_;
	local $ENV{LD_PRELOAD} = $ENV{HOSTNAME_LIBRARY};
	local $ENV{FAKED_HOSTNAME} = $host;
	$node->stop;
	my $before = -s $node->logfile;
	$node->start;
	is($node->safe_psql('postgres', 'SELECT worker_id FROM "Strange Schema".snowflake_worker'), $worker, "host name $host");
	my $warning = qr/WARNING:  snowflake_id: no worker ID from "snowflake_id\.worker_id" = 'hostname'\n.*DETAIL:  The host name is "\Q$host\E", which gives no number.*HINT:  'hostname' is for host names such as shop-3, .* an address, a date/s;
	$worker eq '' ? like(slurp_file($node->logfile, $before), $warning, 'and why') : unlike(slurp_file($node->logfile, $before), qr/no worker ID/, 'without a warning');
}

# A worker ID can be out of range for the layout.
$node->append_conf('postgresql.conf', 'snowflake_id.worker_id = 1024');
$node->restart;
($code, $text) = error_of($node, 'SELECT "Strange Schema".snowflake_nextval()');
is($code, '22023', 'worker ID out of range');
like(slurp_file($node->logfile), qr/WARNING:.*needs a worker ID from 0 to 1023/, 'warned at start');
like($text, qr/worker ID 1024 is out of range.*DETAIL:.*0 to 1023/s, 'value and limit are in the text');

$node->append_conf('postgresql.conf', 'snowflake_id.worker_id = 1023');
$node->restart;
like(slurp_file($node->logfile), qr/LOG:  snowflake_id: worker ID is 1023/, 'logged at start');
is($node->safe_psql('postgres',
		'SELECT ("Strange Schema".snowflake_decode("Strange Schema".snowflake_nextval())).worker_id'),
	'1023', 'the largest worker ID');

# IDs increase across DROP EXTENSION and CREATE EXTENSION.
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id');
my ($before) = ids($node, 1);
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id');
my ($after) = ids($node, 1);
cmp_ok($after, '>', $before, 'increasing across DROP and CREATE EXTENSION');
# So they do in a session that was there all the time.
my $session = session($node);
$before = $session->query_safe('SELECT snowflake_nextval()');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id');
is(error_in($session, 'SELECT snowflake_nextval()'), '', 'a session finds the new default generator');
cmp_ok($session->query_safe('SELECT snowflake_nextval()'), '>', $before, 'and goes on');
$session->quit;

done_testing();
