# Tests generators behind PgBouncer in transaction mode, where the transactions of many
# clients share a few sessions: IDs are unique, and those of one client increase; what
# snowflake_currval() shows; settings and roles of a transaction end with it; DISCARD ALL
# after each transaction; prepared statements.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'PgBouncer is not installed (Debian: pgbouncer)' if !$pgbouncer;
my ($major, $minor) = `$pgbouncer --version` =~ /PgBouncer (\d+)\.(\d+)/ or die 'no version';
diag("PgBouncer $major.$minor");
# These versions prepare a client's statements in each session that it gets.
my $has_prepared = $major > 1 || $minor >= 21;

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	SELECT snowflake_create_generator('own', 'preset=twitter');
	CREATE TABLE taken (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), own bigint UNIQUE DEFAULT snowflake_nextval('own'), client int, step int);
	CREATE ROLE outsider;
	CREATE ROLE insider; GRANT USAGE ON SEQUENCE own TO insider});
my $user = $node->safe_psql('postgres', 'SELECT current_user');

# Starts a pooler with so many sessions. Returns the arguments for its clients.
my $started = 0;
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my @poolers;
sub start_pooler
{
	my ($sessions, @more) = @_;
	my $name = 'pooler' . ++$started;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my ($there, $its_port) = ($node->host, $node->port);
	append_to_file("$folder/$name.ini", join "\n", <<"INI", @more, '');
[databases]
postgres = host=$there port=$its_port dbname=postgres user=$user
[pgbouncer]
unix_socket_dir = $folder
listen_port = $port
auth_type = any
pool_mode = transaction
max_client_conn = 100
default_pool_size = $sessions
logfile = $folder/$name.log
INI
	my $run = IPC::Run::start([ $pgbouncer, "$folder/$name.ini" ], '>', \my $out, '2>', \my $err);
	push @poolers, $run;
	my $pooler = { host => $folder, port => $port, run => $run };
	wait_until('the pooler', sub {
		IPC::Run::run([ 'psql', '-X', '-At', '-d', connstr($pooler), '-c', 'SELECT 1' ], '>', \my $one, '2>', \my $no) });
	return $pooler;
}
END { local $?; $_->kill_kill for @poolers; }
sub connstr { my ($pooler) = @_; return "host=$pooler->{host} port=$pooler->{port} dbname=postgres"; }

# Opens a client's connection to the pooler.
my @clients;
sub client
{
	my ($pooler) = @_;
	my $client = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-d', connstr($pooler) ]);
	push @clients, $client;
	return $client;
}
sub ask { my ($client, $sql) = @_; return $client->query_safe($sql); }
sub backend { my ($client) = @_; return ask($client, 'SELECT pg_backend_pid()'); }

my $script = "$folder/insert.sql";
append_to_file($script, <<'END');
\set step :step + 1
INSERT INTO taken (client, step) VALUES (:client_id, :step);
\set step :step + 1
BEGIN;
INSERT INTO taken (client, step) VALUES (:client_id, :step);
\set step :step + 1
INSERT INTO taken (client, step) VALUES (:client_id, :step);
COMMIT;
END
my ($count, $turns) = (20, 80);
# Runs clients through a pooler, each in a thread of its own, since pgbench waits while it
# prepares a statement. Each adds three rows per turn of the script.
sub run_clients
{
	my ($pooler, $mode, $what) = @_;
	$node->safe_psql('postgres', 'TRUNCATE taken');
	command_ok([ 'pgbench', '-n', '-M', $mode, '-c', $count, '-j', $count, '-t', $turns, '-D', 'step=0', '-f', $script,
			'-h', $pooler->{host}, '-p', $pooler->{port}, 'postgres' ], $what);
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), count(DISTINCT own) FROM taken'),
		join('|', ($count * $turns * 3) x 3), "$what: no ID twice");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT id < lag(id) OVER w OR own < lag(own) OVER w AS is_less
			FROM taken WINDOW w AS (PARTITION BY client ORDER BY step)) AS s WHERE is_less}), 0, "$what: the IDs of each client increase");
	return;
}

my $pooler = start_pooler(3);
run_clients($pooler, 'simple', '20 clients of 3 sessions');
run_clients($pooler, 'extended', 'unnamed prepared statements');
# The session of the query before may still be ending.
ok($node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}), 'three sessions');

# What snowflake_currval() shows: it belongs to the session, so within a transaction it
# is the client's, and after it may be another client's. Here all share one session.
my $one = start_pooler(1);
my ($a, $b) = (client($one), client($one));
is(backend($a), backend($b), 'two clients of one session');
my $id = ask($a, 'SELECT snowflake_nextval()');
is(ask($b, 'SELECT snowflake_currval()'), $id, 'after the transaction, another client sees the ID of the first one, as with currval()');
is(ask($a, "BEGIN;\nSELECT snowflake_nextval() = snowflake_currval();\nCOMMIT"), 't', 'within the transaction, the ID is the own one');
like(ask($a, 'INSERT INTO taken DEFAULT VALUES RETURNING id'), qr/^\d+$/, 'RETURNING needs no session');

# The role of a transaction ends with it, and so does what it may do.
my ($code, $text) = error_in($a, "\\set VERBOSITY verbose\nBEGIN;\nSET LOCAL ROLE outsider;\nSELECT snowflake_nextval('own')");
is($code, '42501', 'SET LOCAL ROLE: a role without USAGE');
ask($a, 'ROLLBACK');
like(ask($b, "SELECT snowflake_nextval('own')"), qr/^\d+$/, 'the next client of the session is not that role');
like(ask($a, "BEGIN;\nSET LOCAL ROLE insider;\nSELECT snowflake_nextval('own');\nCOMMIT"), qr/^\d+$/, 'SET LOCAL ROLE: a role with USAGE');
is(error_in($b, "\\set VERBOSITY verbose\nBEGIN;\nSET LOCAL ROLE outsider;\nSELECT snowflake_nextval('own')"), '42501', 'another role in the same session');
ask($b, 'ROLLBACK');
ask($a, "BEGIN;\nSET LOCAL search_path = pg_catalog;\nSELECT public.snowflake_nextval('public.own');\nCOMMIT");
like(ask($b, "SELECT snowflake_nextval('own')"), qr/^\d+$/, 'SET LOCAL search_path ends, too');
is((error_in($a, "\\set VERBOSITY verbose\nBEGIN;\nSET LOCAL snowflake_id.worker_id = 8"))[0], '55P02', 'no client can set the worker ID');
ask($a, 'ROLLBACK');

# DISCARD ALL by a client.
$id = ask($a, 'SELECT snowflake_nextval()');
ask($b, 'DISCARD ALL');
is(error_in($a, "\\set VERBOSITY verbose\nSELECT snowflake_currval()"), '55000', 'DISCARD ALL of any client: nobody sees an ID');
cmp_ok(ask($a, 'SELECT snowflake_nextval()'), '>', $id, 'IDs go on');

# DISCARD ALL after each transaction.
my $discards = start_pooler(2, 'server_reset_query = DISCARD ALL', 'server_reset_query_always = 1');
run_clients($discards, 'simple', 'DISCARD ALL after each transaction');
my $c = client($discards);
my @ids = map { ask($c, 'SELECT snowflake_nextval()') } 1 .. 20;
check_ids('one client', \@ids);
is(error_in($c, "\\set VERBOSITY verbose\nSELECT snowflake_currval()"), '55000', 'nobody sees an ID of another client');
is(ask($c, "BEGIN;\nSELECT snowflake_nextval() = snowflake_currval();\nCOMMIT"), 't', 'within the transaction, the ID is there');

# Statements that stay prepared.
ask($c, "BEGIN;\nPREPARE take AS SELECT snowflake_nextval('own')");
like(ask($c, "EXECUTE take;\nEXECUTE take;\nDEALLOCATE take;\nCOMMIT"), qr/^\d+\n\d+$/, 'PREPARE and EXECUTE within a transaction');
SKIP:
{
	skip "PgBouncer $major.$minor keeps no prepared statements of clients; 1.21 and later do", 3 if !$has_prepared;
	my $prepares = start_pooler(3, 'max_prepared_statements = 100');
	run_clients($prepares, 'prepared', 'named prepared statements');
}

# The server crashes below the pooler.
$id = ask($a, 'SELECT snowflake_nextval()');
$node->stop('immediate');
$node->start;
my $after;
wait_until('the pooler connects again', sub {
	IPC::Run::run([ 'psql', '-X', '-At', '-d', connstr($pooler), '-c', 'SELECT snowflake_nextval()' ], '>', \$after, '2>', \my $no) });
cmp_ok($after, '>', $id, 'after a crash, IDs go on');

$_->quit for @clients;
done_testing();
