# Tests what a registry of worker IDs runs for a request: how many statements, that a session
# plans them once, and that its plans follow the extension when it is dropped, made again and
# renamed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Registry;
use Snowflake;

my $node = new_node('registry', 7);
$node->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'pg_stat_statements, snowflake_id'
pg_stat_statements.track = all
pg_stat_statements.track_planning = on
END
$node->start;
my $pool = q{SELECT snowflake_create_pool('main', '[0,10000)')};
$node->safe_psql('postgres', "CREATE EXTENSION pg_stat_statements; CREATE EXTENSION snowflake_id; $pool");

# Answers of one session, which keeps its plans.
my $session = session($node);
sub in_session { my ($server, $ask) = @_;
	return Registry::take_in($server, $session->query_safe("SELECT _snowflake.lease('main', '" . request($server, $ask) . "')")); }
sub acquire_here { return granted(in_session($_[0], { acquire => {} })); }
sub renew_here { my ($server) = @_;
	my $grant = $server->{grant};
	return kind(in_session($server, { renew => { worker => $grant->{worker}, counter => $grant->{counter}, bound => $grant->{bound}, furthest => $grant->{floor} } })); }

# What the functions of the session have run since the last call: statements, and plans made.
sub ran { return $node->safe_psql('postgres', q{
	SELECT coalesce(sum(calls), 0), coalesce(sum(plans), 0) FROM pg_stat_statements WHERE NOT toplevel;
	SELECT FROM pg_stat_statements_reset()}) =~ s/\n//gr; }

my @servers = map { server($_) } 1 .. 20;
ran();
acquire_here($_) for @servers;
like(ran(), qr/^40\|/, 'a grant runs two statements');
renew_here($_) for @servers;
ran();
is(join(' ', map { renew_here($_) } @servers), join(' ', map { 'renewed' } @servers), '20 servers renew');
is(ran(), '40|0', 'a renewal runs two statements, and makes no plan');
# What is stored is what was answered.
is($node->safe_psql('postgres', q{SELECT count(*) FROM _snowflake.leases WHERE (lease -> 'bound')::bigint = ANY(ARRAY[} . join(',', map { $_->{grant}{bound} } @servers) . '])'),
	20, 'and stores the bounds');

# Of many rows, a renewal reads few.
$node->safe_psql('postgres', q{
	INSERT INTO _snowflake.leases (namespace, lease) SELECT namespace, jsonb_set(lease, '{worker}', to_jsonb(i))
	FROM _snowflake.leases, generate_series(100, 5099) AS i WHERE worker_id = 0;
	ANALYZE _snowflake.leases});
sub rows_read { $session->query_safe('SELECT pg_stat_force_next_flush()');
	return $node->safe_psql('postgres', q{SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_all_tables WHERE relid = '_snowflake.leases'::regclass}); }
my $before = rows_read();
is(join(' ', map { renew_here($_) } @servers), join(' ', map { 'renewed' } @servers), 'they renew among 5,000 others');
my $read = rows_read() - $before;
cmp_ok($read, '>', 0, 'rows are counted');
cmp_ok($read, '<', 10 * @servers, 'and few are read');

# The extension is dropped and made again, in another schema too.
for my $create ('CREATE EXTENSION snowflake_id', 'CREATE SCHEMA s; CREATE EXTENSION snowflake_id SCHEMA s; SET search_path = public, s')
{
	# It has forgotten what the former registry has said, or else the new one would wait.
	my $before = { %{ $servers[0] }, memory => undef };
	$session->query_safe("DROP EXTENSION snowflake_id CASCADE; $create");
	$session->query_safe($pool);
	is($session->query_safe('SELECT count(*) FROM snowflake_workers'), '0', 'made again: nothing is leased');
	$servers[0] = server(1);
	is(acquire_here($servers[0]), 0, 'made again: the same session leases');
	is(renew_here($servers[0]), 'renewed', 'and renews');
	is($session->query_safe('SELECT token FROM snowflake_workers'), '1-' . substr($servers[0]{nonce}, 0, 8), 'in the new tables');
	isnt(renew_here($before), 'renewed', 'and nothing of before is there');
}

# Somebody else's schema takes the place of the extension's: nothing in it is used.
$session->query_safe('ALTER SCHEMA _snowflake RENAME TO hidden');
is((error_in($session, q{SELECT snowflake_revoke_worker('main', 0)}))[0], '42501', 'renamed: it is not used');
$session->query_safe('CREATE SCHEMA _snowflake; CREATE TABLE _snowflake.leases (LIKE hidden.leases INCLUDING ALL);
	CREATE TABLE _snowflake.state AS TABLE hidden.state; CREATE TABLE _snowflake.pools AS TABLE hidden.pools');
is((error_in($session, q{SELECT snowflake_revoke_worker('main', 0)}))[0], '42501', 'nor in a schema of that name');
is($session->query_safe('SELECT count(*) FROM _snowflake.leases'), '0', 'where nothing is written');
$session->query_safe('DROP SCHEMA _snowflake CASCADE; ALTER SCHEMA hidden RENAME TO _snowflake');
is(renew_here($servers[0]), 'renewed', 'renamed back: it is the registry again');

# Another owner of the tables, and a column more: plans are made anew.
$session->query_safe('CREATE ROLE chief SUPERUSER;
	ALTER SCHEMA _snowflake OWNER TO chief;
	ALTER TABLE _snowflake.state OWNER TO chief; ALTER TABLE _snowflake.pools OWNER TO chief;
	ALTER TABLE _snowflake.leases OWNER TO chief;
	ALTER TABLE _snowflake.leases ADD COLUMN note text DEFAULT current_user');
is(acquire_here(server(2)), 1, 'as another owner, the same session leases');
is($session->query_safe('SELECT note FROM _snowflake.leases WHERE worker_id = 1'), 'chief', 'with the rights of that owner');
is(renew_here($servers[0]), 'renewed', 'and renews');
is($session->query_safe('CREATE EXTENSION snowflake_id_convert SCHEMA s; SELECT count(*) FROM _snowflake_convert.conversions'), '0',
	'the extension for conversions knows the tables of that owner');

$session->quit;
done_testing();
