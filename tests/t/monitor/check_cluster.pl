# Tests snowflake_check_cluster(): what it finds on servers with equal worker IDs, copied
# data directories, wrong clocks and other labels, and on servers that do not answer;
# that it finds nothing on servers that are all right; and who may call it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $label = 'preset=sonyflake';
my (%node, $main);

# Makes a server with the extension, which this one knows as a foreign server.
sub add
{
	my ($name, $worker, $seconds) = @_;
	my $node = new_node($name, $worker, allows_streaming => 1);
	if (defined $seconds) { start_with_clock($node, $seconds); }
	else { $node->start; }
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	create_generator($node, 'same_ids', $label);
	return know($name, $node);
}

sub know
{
	my ($name, $node, $database) = @_;
	$node{$name} = $node;
	$main //= $node;
	$main->safe_psql('postgres', 'CREATE FOREIGN DATA WRAPPER other') if $node == $main;
	$database //= 'postgres';
	my ($host, $port) = ($node->host, $node->port);
	$main->safe_psql('postgres', "CREATE SERVER $name FOREIGN DATA WRAPPER other
		OPTIONS (host '$host', port '$port', dbname '$database', fetch_size '10')");
	return $node;
}

# Returns what main finds, one line each: without detail and hint, or with them alone.
sub findings
{
	my ($servers, $columns) = @_;
	$columns //= 'severity, finding, server, other_server';
	return $main->safe_psql('postgres', "SELECT $columns FROM snowflake_check_cluster($servers)");
}

sub found
{
	my ($servers, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(findings($servers), $expected, $what);
}

add('main', 1);
add('good', 2);
found(q({main,good}) =~ s/(.*)/'$1'/r, '', 'servers that are all right');
found("'{}'", '', 'this server alone');
my $conninfo = sprintf "host=%s port=%s dbname=postgres", $node{good}->host, $node{good}->port;
found("ARRAY['good', '$conninfo', '$conninfo user=' || current_user]", '', 'a server under several names is one server');

# Worker IDs.
add('twin', 1);
found("'{good,twin}'", 'error|equal worker IDs|this server|twin', 'equal worker IDs');
my ($detail, $hint) = split /\|/, findings("'{twin}'", 'detail, hint');
like($detail, qr/worker ID 1,.*issue the same IDs/, 'what is wrong');
like($hint, qr/Stop writes on one of them now/, 'what to do first');
is(findings("ARRAY['$conninfo', 'twin']", 'DISTINCT server'), 'this server', 'no finding for a server that is all right');
$node{twin}->append_conf('postgresql.conf', q{snowflake_id.worker_id = ''});
$node{twin}->restart;
found("'{twin}'", 'error|no worker ID|twin|', 'no worker ID');
$node{twin}->append_conf('postgresql.conf', 'snowflake_id.worker_id = 1024');
$node{twin}->restart;
found("'{twin}'", 'error|generator issues no IDs|twin|', 'a worker ID that one layout cannot hold');
like(findings("'{twin}'", 'detail'), qr/snowflake_default.*worker ID 1024 is out of range/, 'which layout');
create_generator($node{good}, 'broken_ids', $label);
$node{good}->safe_psql('postgres', "UPDATE pg_seclabel SET label = 'preset=no' WHERE objoid = 'broken_ids'::regclass");
found("'{good}'", 'error|generator issues no IDs|good|', 'a label that cannot be read');
$node{good}->safe_psql('postgres', 'DROP SEQUENCE broken_ids');

# A standby, and the same data directory without a primary.
$main->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($main, 'copy', has_streaming => 1);
$standby->start;
know('standby', $standby);
$main->wait_for_catchup($standby);
found("'{standby}'", 'warning|standby shares a worker ID|this server|standby', 'a standby with the worker ID of its primary');
like(findings("'{standby}'", 'detail'), qr/standby is in recovery/, 'which of them is the standby');
is($standby->safe_psql('postgres', "SELECT finding, server FROM snowflake_check_cluster(ARRAY['$conninfo'])"),
	'', 'a standby can ask');
$standby->append_conf('postgresql.conf', 'snowflake_id.worker_id = 3');
$standby->restart;
found("'{standby}'", '', 'a standby with a worker ID of its own');
$standby->promote;
found("'{standby}'", 'warning|copy of a server|this server|standby', 'a standby that was promoted beside its primary');
my $clone = PostgreSQL::Test::Cluster->new('clone');
$clone->init_from_backup($main, 'copy');
$clone->start;
know('clone', $clone);
found("'{clone}'", "error|copy of a server|this server|clone\nerror|equal worker IDs|this server|clone",
	'a copy beside its original');

# Labels and marks.
create_generator($node{good}, 'shard_ids', q(layout='time:41 shard:5=3 worker:5 sequence:12' epoch=2025-01-01Z));
create_generator($main, 'shard_ids', q(layout='time:41 shard:5=4 worker:5 sequence:12' epoch=2025-01-01Z));
create_generator($node{good}, 'only_there_ids', 'preset=twitter');
found("'{good}'", '', 'fixed fields may differ, and generators of other names');
create_generator($main, 'epoch_ids', 'preset=sonyflake');
create_generator($node{good}, 'epoch_ids', 'preset=sonyflake epoch=2020-01-01Z');
create_generator($main, 'policy_ids', 'preset=sonyflake');
create_generator($node{good}, 'policy_ids', 'preset=sonyflake max_rollback=1h');
found("'{good}'", "error|layouts differ|good|this server\nwarning|policies differ|good|this server", 'labels that differ');
like(findings("'{good}'", 'detail'), qr/Generator public\.epoch_ids has layout .*epoch 2020-01-01 .* on good, and .* on this server/,
	'which label differs, and how');
$_->safe_psql('postgres', 'DROP SEQUENCE epoch_ids, policy_ids') for $main, $node{good};
$node{good}->safe_psql('postgres', "SELECT snowflake_advance('same_ids', now() + interval '10 minutes')");
found("'{good}'", 'warning|mark is far ahead|good|', 'a mark far ahead');

# Clocks.
add('early', 4, 3600);
add('late', 5, -3600);
found("'{early,late}'", "warning|clocks differ|this server|early\nwarning|clocks differ|this server|late", 'clocks that differ from this one');
($detail) = findings("'{early}'", 'detail');
like($detail, qr/clock of early is (01:00:0|00:59:59)\S* ahead of that of this server, give or take 00:00:0/, 'by how much');
like(findings("'{late}'", 'detail'), qr/clock of late is (01:00:0|00:59:59)\S* behind/, 'in which direction');
# Each of them is within the gap.
set_clock($node{early}, 7);
set_clock($node{late}, -7);
found("'{early,late}'", 'warning|clocks differ|early|late', 'clocks that differ from each other');
set_clock($node{early}, 0);
set_clock($node{late}, 0);
found("'{early,late}'", '', 'clocks that agree');

# Without the library, without the extension.
my $bare = PostgreSQL::Test::Cluster->new('bare');
$bare->init;
$bare->start;
know('bare', $bare);
found("'{bare}'", "error|library is not preloaded|bare|\nwarning|extension is missing|bare|", 'a server without the library');
# A setting of this name means nothing there.
$bare->safe_psql('postgres', "ALTER DATABASE postgres SET snowflake_id.worker_id = '1'; CREATE EXTENSION snowflake_id");
found("'{bare}'", 'error|library is not preloaded|bare|', 'a server that only decodes');
$bare->safe_psql('postgres', "UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'snowflake_id'");
found("'{bare}'", "error|library is not preloaded|bare|\nwarning|other version|bare|this server", 'another version');
$node{early}->safe_psql('postgres', 'CREATE DATABASE empty');
know('empty', $node{early}, 'empty');
found("'{early,empty}'", 'warning|extension is missing|empty|', 'another database of a server');
# The view there is not what this version knows.
$bare->safe_psql('postgres', 'DROP EXTENSION snowflake_id CASCADE; CREATE EXTENSION snowflake_id;
	ALTER VIEW snowflake_generators RENAME TO other_view');
found("'{bare}'", "error|library is not preloaded|bare|\nwarning|server cannot be asked in full|bare|", 'a view that is not there');

# Servers that do not answer.
my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die "no socket: $!";
my $dead = PostgreSQL::Test::Cluster::get_free_port();
my @nobody = ("host=127.0.0.1 port=$dead password=hunter2", 'postgresql://u:hunter2@127.0.0.1:' . $silent->sockport . '/d');
my $asked = "ARRAY['$nobody[0]', '$nobody[1]', 'twin']";
my @lines = split /\n/, findings($asked, '*');
is(@lines, 3, 'findings about servers that do not answer, and about the others');
like($lines[0], qr/^error\|server cannot be reached\|host=127\.0\.0\.1 port=$dead\|\|.*Connection refused/, 'a server that is not there');
like($lines[1], qr/^error\|server cannot be reached\|host=127\.0\.0\.1 port=\d+ dbname=d\|\|connection to server at "127\.0\.0\.1", port \d+ failed: no answer within 5 s\|/, 'a server that says nothing');
like($lines[2], qr/^error\|generator issues no IDs\|twin\|/, 'the server after them');
unlike("@lines", qr/hunter2/, 'no password is shown');
my ($code, $text) = error_of($main, "SET statement_timeout = '500ms'; SELECT * FROM snowflake_check_cluster(ARRAY['$nobody[1]'])");
is($code, '57014', 'a query that waits can be cancelled');

# What is no server.
($code, $text) = error_of($main, "SELECT * FROM snowflake_check_cluster('{good,\"host=a password=my hunter2\"}')");
is($code, '22023', 'a text that is no conninfo');
like($text, qr/servers\[2\] is neither a libpq conninfo nor a URL/, 'which one');
unlike($text =~ s/^LINE.*//rms, qr/hunter2/, 'the text is not quoted');
($code, $text) = error_of($main, "SELECT * FROM snowflake_check_cluster('{nobody}')");
is($code, '42704', 'a foreign server that does not exist');
is((error_of($main, "SELECT * FROM snowflake_check_cluster('{NULL}')"))[0], '22004', 'NULL is no server');
($code, $text) = error_of($main, 'SELECT * FROM snowflake_check_cluster()');
is($code, '22023', 'no servers, and no Citus');
like($text, qr/Citus is not installed.*HINT:  Give the servers/s, 'what to give');

# Privileges, and the user mapping of the caller.
my $as = sub {
	my ($servers) = @_;
	return error_of($main, "SET SESSION AUTHORIZATION monitor; SELECT * FROM snowflake_check_cluster($servers)");
};
$main->safe_psql('postgres', 'CREATE ROLE monitor IN ROLE pg_monitor');
is(($as->("'{}'"))[0], '42501', 'no privilege to call the function');
$main->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION snowflake_check_cluster TO monitor');
is(($as->("'{}'"))[0], '', 'a role with EXECUTE');
is(($as->("'{good}'"))[0], '42501', 'no privilege to use the foreign server');
$main->safe_psql('postgres', "GRANT USAGE ON FOREIGN SERVER good TO monitor;
	CREATE USER MAPPING FOR PUBLIC SERVER good OPTIONS (user 'of_public', password 'hunter2')");
my $by_monitor = "SET SESSION AUTHORIZATION monitor; SELECT detail FROM snowflake_check_cluster('{good}')";
like($main->safe_psql('postgres', $by_monitor), qr/role "of_public" does not exist/, 'the user mapping of PUBLIC');
$main->safe_psql('postgres', "CREATE USER MAPPING FOR monitor SERVER good OPTIONS (user 'of_monitor', password 'hunter2')");
like($main->safe_psql('postgres', $by_monitor), qr/role "of_monitor" does not exist/, 'the user mapping of the caller');
# Only a superuser chooses where this server connects.
for my $server ('host=127.0.0.1 port=1', 'postgresql://127.0.0.1:1/x')
{
	my ($code, $text) = $as->("'{\"$server\"}'");
	is($code, '42501', "no address from a role with EXECUTE: $server");
	like($text, qr/only superusers may give the address of a server.*HINT:  Give the name of a foreign server/s, 'and what it may give');
}
$main->safe_psql('postgres', q{CREATE FOREIGN DATA WRAPPER open; GRANT USAGE ON FOREIGN DATA WRAPPER open TO monitor;
	SET SESSION AUTHORIZATION monitor; CREATE SERVER of_monitor FOREIGN DATA WRAPPER open OPTIONS (host '127.0.0.1', port '1')});
is(($as->("'{of_monitor}'"))[0], '42501', 'nor a foreign server that it has made');
$main->safe_psql('postgres', q{CREATE SERVER chosen FOREIGN DATA WRAPPER open OPTIONS (host '/nowhere/chosen'); GRANT USAGE ON FOREIGN SERVER chosen TO monitor;
	SET SESSION AUTHORIZATION monitor; CREATE USER MAPPING FOR monitor SERVER chosen OPTIONS (host '/nowhere/else', passfile '/nowhere/file', user 'me')});
like($main->safe_psql('postgres', "SET SESSION AUTHORIZATION monitor; SELECT detail FROM snowflake_check_cluster('{chosen}')"), qr{/nowhere/chosen}, 'nor another address in its user mapping');
$main->safe_psql('postgres', 'DROP FOREIGN DATA WRAPPER open CASCADE');
$main->safe_psql('postgres', 'DROP USER MAPPING FOR PUBLIC SERVER good');

# Functions and tables of others in the search_path are not used.
$main->safe_psql('postgres', "CREATE SCHEMA evil;
	CREATE TABLE evil.pg_foreign_server AS SELECT * FROM pg_foreign_server WITH NO DATA;
	CREATE FUNCTION evil.format(text, text) RETURNS text LANGUAGE sql AS \$\$SELECT 'evil'\$\$");
unlike($main->safe_psql('postgres', "SET search_path = evil, pg_catalog, public; SELECT detail FROM snowflake_check_cluster('{bare,twin}')"),
	qr/evil/, 'the search_path of the caller does not matter');

# The nodes of Citus. Only its table is needed. All nodes are to have the same generators.
$main->safe_psql('postgres', 'DROP SEQUENCE shard_ids');
my ($host, $here, $there) = ($main->host, $main->port, $clone->port);
$main->safe_psql('postgres', "SET allow_system_table_mods = on;
	CREATE TABLE pg_catalog.pg_dist_node (nodeid int, nodename text, nodeport int);
	INSERT INTO pg_dist_node VALUES (1, '$host', $here), (2, '$host', $there)");
found('', "error|copy of a server|this server|$host:$there\nerror|equal worker IDs|this server|$host:$there", 'the nodes of Citus');
like($main->safe_psql('postgres', "SET citus.node_conninfo = 'port=1 user=of_citus connect_timeout=1';
		SELECT count(*), string_agg(detail, ' ') FROM snowflake_check_cluster()"),
	qr/^2\|.*system identifier/, 'options of Citus do not replace the node');

done_testing();
