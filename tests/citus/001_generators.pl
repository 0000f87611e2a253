# Tests generators of one's own on a coordinator and two workers of Citus, which makes
# their sequences on all nodes by itself, with other bounds and without labels: they get
# their labels, keep their marks when Citus synchronizes a node again, can be relabelled
# on all nodes by one statement, and come to nodes that are added later.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Citus;

my ($coordinator, @workers) = citus_cluster(2);
my @nodes = ($coordinator, @workers);
my $label = 'preset=sonyflake';

sub on_coordinator { return $coordinator->safe_psql('postgres', $_[0]); }

# Checks what a statement returns on each of these nodes.
sub everywhere
{
	my ($sql, $expected, $what, @on) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	@on = @nodes if !@on;
	return is_deeply([ on_all($sql, @on) ], [ map { $expected } @on ], $what);
}

sub label_of { return "SELECT label FROM pg_seclabels WHERE provider = 'snowflake_id' AND objoid = '$_[0]'::regclass"; }
my $bounds = "SELECT seqmin, seqmax, seqstart FROM pg_sequence WHERE seqrelid = '%s'::regclass";
my $fit = '1|9223372036854775807|9223372036854775807';

# Inserts in each way, from each node, and checks that no ID repeats.
sub check_inserts
{
	my ($table, $what, @on) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	@on = @nodes if !@on;
	for my $node (@on)
	{
		for my $insert ('VALUES (1), (2), (3)', 'SELECT i FROM generate_series(1, 50) AS i', "SELECT k FROM $table LIMIT 20", "SELECT k FROM $table")
		{
			my ($code, $text) = error_of($node, "INSERT INTO $table (k) $insert");
			is($code, '', "$what: " . $node->name . ": $insert") or diag $text;
		}
	}
	return is($coordinator->safe_psql('postgres', "SELECT count(*) > 200 AND count(*) = count(DISTINCT id) FROM $table"), 't', "$what: no ID twice");
}

# The extension comes to the workers by itself.
everywhere("SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'", '1.0', 'the extension is on all nodes');

# A generator that was committed before a table uses it: nothing else is needed.
on_coordinator("SELECT snowflake_create_generator('table_ids', '$label')");
on_coordinator("CREATE TABLE by_id (id bigint PRIMARY KEY DEFAULT snowflake_nextval('table_ids'), k int);
	SELECT create_distributed_table('by_id', 'id')");
everywhere(label_of('table_ids'), $label, 'Citus makes a sequence, which gets its label');
everywhere(sprintf($bounds, 'table_ids'), $fit, 'and its bounds');
check_inserts('by_id', 'the distribution column');

# In one transaction, the label is not there yet when Citus makes the sequence.
on_coordinator("BEGIN;
	SELECT snowflake_create_generator('same_ids', '$label');
	CREATE TABLE same (id bigint DEFAULT snowflake_nextval('same_ids'), k int);
	SELECT create_distributed_table('same', 'k');
	COMMIT");
everywhere(label_of('same_ids'), '', 'no label yet', @workers);
for my $insert ('SELECT k FROM same', 'SELECT i FROM generate_series(1, 5) AS i')
{
	is((error_of($workers[0], "INSERT INTO same (k) $insert"))[0], $insert =~ /same/ ? '' : '42809', "without a label: $insert");
}
my ($code, $text) = error_of($workers[0], 'INSERT INTO same (k) VALUES (1)');
is($code, '42809', 'an error, and no ID');
like($text, qr/same_ids is not a generator: it has no label/, 'which one');
like($text, qr/HINT:  .*SELECT \* FROM snowflake_distribute_generator\('same_ids'\)/, 'what helps with Citus');
my $findings = q{SELECT severity, finding, hint FROM snowflake_check_cluster()};
sub lacks { my ($name, $severity, $finding) = @_; return "$severity|$finding|Run on the coordinator: SELECT * FROM snowflake_distribute_generator('$name')"; }
is(on_coordinator($findings), join("\n", (lacks('public.same_ids', 'error', 'generator has no label')) x 2), 'check_cluster names both workers');
is(on_coordinator("SELECT outcome FROM snowflake_distribute_generator('same_ids') ORDER BY node = 'this node' DESC, node"),
	"unchanged\nlabelled\nlabelled", 'one statement brings it to all nodes');
everywhere(label_of('same_ids'), $label, 'the label is there');
everywhere(sprintf($bounds, 'same_ids'), $fit, 'and the bounds');
check_inserts('same', 'another column');
is(on_coordinator("SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator('same_ids')"),
	'unchanged unchanged unchanged', 'repeated, it changes nothing');

nothing_is_found($coordinator, 'all nodes have the label');

# A schema of a tenant, which Citus distributes as it is made.
if (on_coordinator("SELECT count(*) FROM pg_settings WHERE name = 'citus.enable_schema_based_sharding'"))
{
	on_coordinator("SET citus.enable_schema_based_sharding = on; CREATE SCHEMA tenant; BEGIN;
		SELECT snowflake_create_generator('tenant.own_ids', '$label');
		CREATE TABLE tenant.t (id bigint PRIMARY KEY DEFAULT snowflake_nextval('tenant.own_ids'), k int); COMMIT");
	is(on_coordinator("SELECT count(DISTINCT server), string_agg(DISTINCT severity, ' ') FROM snowflake_check_cluster() WHERE detail LIKE '%tenant.own_ids%'"),
		'2|error', 'a generator in the schema of a tenant, which both workers lack');
	on_coordinator("SELECT * FROM snowflake_distribute_generator('tenant.own_ids')");
	nothing_is_found($coordinator, 'a schema of a tenant');
	on_coordinator('DROP SCHEMA tenant CASCADE');
}

# A label that is set by hand on a worker.
on_coordinator("BEGIN; SELECT snowflake_create_generator('hand_ids', '$label');
	CREATE TABLE hand (id bigint DEFAULT snowflake_nextval('hand_ids'), k int);
	SELECT create_distributed_table('hand', 'k'); COMMIT");
$_->safe_psql('postgres', "SECURITY LABEL FOR snowflake_id ON SEQUENCE hand_ids IS '$label'") for @workers;
check_inserts('hand', 'labelled by hand');

# A generator that a column owns, as the README recommends.
on_coordinator("SELECT snowflake_create_generator('owned_ids', '$label')");
on_coordinator("CREATE TABLE owned (id bigint DEFAULT snowflake_nextval('owned_ids'), k int);
	ALTER SEQUENCE owned_ids OWNED BY owned.id;
	SELECT create_distributed_table('owned', 'k')");
check_inserts('owned', 'OWNED BY');

# Citus synchronizes a node again, and its bounds are set back: the mark stays, also if the server was restarted.
my $mark = "SELECT last_value FROM %s";
my ($host, $port) = ($workers[0]->host, $workers[0]->port);
for my $table (qw(by_id owned))
{
	my $generator = $table eq 'by_id' ? 'table_ids' : 'owned_ids';
	my ($before) = on_all(sprintf($mark, $generator), $workers[0]);
	$workers[0]->restart if $table eq 'owned';
	($code, $text) = error_of($coordinator, "SELECT citus_activate_node('$host', $port)");
	is($code, '', "$table: a node is activated again") or diag $text;
	cmp_ok((on_all(sprintf($mark, $generator), $workers[0]))[0], '>=', $before, "$table: the mark is kept");
	everywhere(sprintf($bounds, $generator), $fit, "$table: and the bounds");
	check_inserts($table, "$table: activated again");
}
($code, $text) = error_of($coordinator, 'SELECT start_metadata_sync_to_all_nodes()');
is($code, '', 'all metadata is sent again') or diag $text;
check_inserts('owned', 'sent again');

# One statement makes a generator on all nodes, or relabels it there.
is(on_coordinator("SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator(snowflake_create_generator('free_ids', '$label'))"),
	'unchanged created created', 'a generator that no table uses');
everywhere("SELECT snowflake_nextval('free_ids') > 0", 't', 'issues on all nodes');
my $other = "$label max_rollback=1h";
is(on_coordinator("SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator('free_ids', '$other')"),
	'relabelled relabelled relabelled', 'another label');
everywhere(label_of('free_ids'), $other, 'is on all nodes');
is(on_coordinator("SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator('same_ids', '$other')"),
	'relabelled relabelled relabelled', 'also if a table uses the generator');
check_inserts('same', 'relabelled');
($code, $text) = error_of($coordinator, "SELECT * FROM snowflake_distribute_generator('free_ids', 'preset=twitter')");
is($code, '55000', 'a layout that could issue IDs twice is refused');
everywhere(label_of('free_ids'), $other, 'and nothing changes, on no node');
nothing_is_found($coordinator, 'all labels are equal');

# Grants and owners.
on_coordinator('CREATE ROLE app LOGIN; CREATE ROLE "odd ""role"" \'" LOGIN; CREATE ROLE boss LOGIN; GRANT CREATE ON SCHEMA public TO boss');
on_coordinator('GRANT USAGE ON SEQUENCE table_ids, free_ids TO app');
my $acl = "SELECT coalesce(string_agg(a.grantee::regrole || ' ' || a.privilege_type || ' ' || a.is_grantable, ', ' ORDER BY a.grantee::regrole::text, a.privilege_type), '')
	FROM pg_class AS c, aclexplode(c.relacl) AS a WHERE c.oid = '%s'::regclass AND a.grantee <> c.relowner";
everywhere(sprintf($acl, 'table_ids'), 'app USAGE false', 'Citus sends grants on sequences that a table uses');
on_coordinator('GRANT USAGE, SELECT ON SEQUENCE free_ids TO "odd ""role"" \'" WITH GRANT OPTION; GRANT SELECT ON SEQUENCE free_ids TO PUBLIC;
	SELECT * FROM snowflake_distribute_generator(\'free_ids\')');
everywhere("SELECT relacl FROM pg_class WHERE oid = 'free_ids'::regclass", on_coordinator("SELECT relacl FROM pg_class WHERE oid = 'free_ids'::regclass"), 'grants on the others come with the statement');
everywhere("SET SESSION AUTHORIZATION app; SELECT snowflake_nextval('free_ids') > 0", 't', 'so that they issue for the role');
on_coordinator("SELECT snowflake_create_generator('early_ids', '$label'); GRANT USAGE ON SEQUENCE early_ids TO app");
on_coordinator("CREATE TABLE early (id bigint DEFAULT snowflake_nextval('early_ids'), k int); GRANT ALL ON early TO app;
	SELECT create_distributed_table('early', 'k')");
everywhere(sprintf($acl, 'early_ids'), 'app USAGE false', 'Citus brings grants that were there before');
for my $node (@nodes)
{
	($code, $text) = error_of($node, 'SET SESSION AUTHORIZATION app; INSERT INTO early (k) SELECT i FROM generate_series(1, 20) AS i; INSERT INTO early (k) SELECT k FROM early');
	is($code, '', 'the role inserts on ' . $node->name) or diag $text;
}
on_coordinator('REVOKE USAGE ON SEQUENCE early_ids FROM app');
everywhere(sprintf($acl, 'early_ids'), '', 'and what is revoked');
on_coordinator('REVOKE ALL ON SEQUENCE free_ids FROM app, PUBLIC, "odd ""role"" \'"; ALTER SEQUENCE free_ids OWNER TO boss;
	SELECT * FROM snowflake_distribute_generator(\'free_ids\')');
is((error_of($_, "SET SESSION AUTHORIZATION app; SELECT snowflake_nextval('free_ids')"))[0], '42501', $_->name . ': so is what was revoked') for @nodes;
everywhere("SELECT relowner::regrole FROM pg_class WHERE oid = 'free_ids'::regclass", 'boss', 'and the owner');

# With the rights of the caller.
($code, $text) = error_of($coordinator, "SET SESSION AUTHORIZATION app; SELECT * FROM snowflake_distribute_generator('free_ids')");
is($code, '42501', 'a role that does not own the generator');
like($text, qr/HINT:  Role boss owns it/, 'who does');
is(on_coordinator("SET SESSION AUTHORIZATION boss; SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator(snowflake_create_generator('boss_ids', '$label'))"),
	'unchanged created created', 'no superuser is needed');
everywhere("SELECT relowner::regrole FROM pg_class WHERE oid = 'boss_ids'::regclass", 'boss', 'and none owns the generator');
is((error_of($workers[0], "SET SESSION AUTHORIZATION app; SELECT _snowflake.place_generator('boss_ids', 'preset=twitter', 'app', '[]')"))[0],
	'42501', 'the part of a worker asks for rights too');

# A role that may create functions and operators beside the extension: nobody runs them.
on_coordinator('CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory');
for my $node (@nodes)
{
	$node->safe_psql('postgres', q{SET citus.enable_ddl_propagation = off; SET SESSION AUTHORIZATION mallory;
		CREATE FUNCTION public.attack(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'attack'; END$$;
		CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.attack)});
	is((error_of($node, q{SET citus.enable_ddl_propagation = off; SET SESSION AUTHORIZATION mallory;
		CREATE FUNCTION _snowflake.readiness(text, text) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb'}))[0], '42501', 'no function fits better than ours on ' . $node->name);
}
($code, $text) = error_of($coordinator, "SELECT snowflake_create_generator('safe_ids', '$label')");
on_coordinator("CREATE TABLE safe (id bigint DEFAULT snowflake_nextval('safe_ids'), k int); SELECT create_distributed_table('safe', 'k')");
everywhere(q{SELECT _snowflake.label('safe_ids')}, $label, 'a label arrives past them');
for my $statement ("* FROM snowflake_distribute_generator('safe_ids', '$other')", "snowflake_set_default('safe', 'id', generator => 'safe_ids')")
{
	($code, $text) = error_of($coordinator, "SELECT $statement");
	is($code, '', "past them: $statement") or diag $text;
}
$_->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; DROP OPERATOR public.= (oid, regclass); DROP FUNCTION public.attack') for @nodes;

# Names that have to be quoted.
on_coordinator(q{CREATE SCHEMA "o'dd ""s%s\\"});
my $odd = q{"o'dd ""s%s\\"."i'ds ""; DROP TABLE by_id; --"};
(my $quoted = $odd) =~ s/'/''/g;
is(on_coordinator("SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator(snowflake_create_generator('$quoted', 'preset=sonyflake'))"),
	'unchanged created created', 'odd names');
everywhere("SELECT snowflake_nextval('$quoted') > 0", 't', 'odd names: issue on all nodes');
on_coordinator("CREATE TABLE odd (id bigint DEFAULT snowflake_nextval('$quoted'), k int); SELECT create_distributed_table('odd', 'k')");
check_inserts('odd', 'odd names');

# What is refused.
for my $case (
	[ $workers[0], "'table_ids'", '55000', qr/works on the coordinator of Citus only/ ],
	[ $coordinator, "'snowflake_default'", '42809', qr/default generator is on every node/ ],
	[ $coordinator, "NULL", '22004', qr/must not be null/ ],
	[ $coordinator, "'by_id'", '42809', qr/by_id is not a generator/ ],
	[ $coordinator, "'by_id', '$label'", '42809', qr/"by_id" is not a sequence/ ],
	[ $coordinator, "4000000000::oid, '$label'", '42P01', qr/relation with OID 4000000000 does not exist/ ],
	[ $coordinator, "'passing_ids', '$label'", '0A000', qr/passing_ids is a temporary sequence/, 'CREATE TEMPORARY SEQUENCE passing_ids; ' ],
	[ $coordinator, "snowflake_create_generator('fixed', \$\$layout='time:41 shard:10=3 sequence:12' epoch=2025-01-01Z\$\$)", '22023', qr/carry no worker ID.*HINT/s ])
{
	($code, $text) = error_of($case->[0], ($case->[4] // '') . "SELECT * FROM snowflake_distribute_generator($case->[1])");
	is($code, $case->[2], "refused: $case->[1]");
	like($text, $case->[3], 'and why');
}
$coordinator->safe_psql('postgres', 'CREATE DATABASE alone');
$coordinator->safe_psql('alone', 'CREATE EXTENSION snowflake_id');
($code, $text) = error_of($coordinator, "SELECT * FROM snowflake_distribute_generator('snowflake_default')", 'alone');
is($code, '55000', 'a database without Citus');
like($text, qr/Citus is not installed in this database/, 'and why');
$coordinator->safe_psql('alone', "CREATE SEQUENCE lost INCREMENT 9223372036854775807 START 9223372036854775807; ALTER SEQUENCE lost MAXVALUE 9223372036854775807");
is($coordinator->safe_psql('alone', 'SELECT count(*) FROM pg_seclabels'), '0', 'nothing is labelled there');

# A node that is added later.
my $late = citus_node('late', 4);
add_worker($coordinator, $late);
everywhere(label_of($_), $_ eq 'same_ids' ? $other : $label, "$_: on a node that was added later", $late) for qw(table_ids same_ids hand_ids owned_ids);
push @nodes, $late;
check_inserts($_, "with a node that was added later: $_") for qw(by_id same owned odd);
is((error_of($late, "SELECT snowflake_nextval('boss_ids')"))[0], '42P01', 'a generator that no table uses is not there');
my $lacking = lacks('public.boss_ids', 'warning', 'generator is missing');
like(on_coordinator($findings), qr/^\Q$lacking\E$/m, 'check_cluster says so');
on_coordinator("SELECT d.* FROM snowflake_generators AS g, snowflake_distribute_generator(g.generator) AS d
	WHERE g.generator <> 'snowflake_default'::regclass AND g.worker_id IS NOT NULL");
everywhere("SELECT snowflake_nextval('boss_ids') > 0", 't', 'one statement brings all of them');

# A worker that does not answer: nothing changes, on no node.
my $before = on_coordinator(label_of('boss_ids'));
$late->stop;
($code, $text) = error_of($coordinator, "SELECT * FROM snowflake_distribute_generator('boss_ids', '$other')");
is($code, '55000', 'a worker that is away');
like($text, qr/DETAIL:  \S+:\d+: .*HINT:  Nothing was changed on any node.*call this again/s, 'which, and what to do');
everywhere(label_of('boss_ids'), $before, 'nothing has changed', $coordinator, @workers);
$late->start;
on_coordinator("SELECT * FROM snowflake_distribute_generator('boss_ids', '$other')");
everywhere(label_of('boss_ids'), $other, 'repeated: on all nodes');

# A worker that answers, and refuses: no node changes, and the error says which it is.
my $third = "$label max_rollback=2h";
my $holder = session($workers[1]);
$holder->query_safe("BEGIN; SELECT snowflake_nextval('boss_ids')");
($code, $text) = error_of($coordinator, "SELECT * FROM snowflake_distribute_generator('boss_ids', '$third')");
is($code, '55000', 'a worker with a transaction that has taken IDs');
my $of = $workers[1]->host . ':' . $workers[1]->port;
like($text, qr/DETAIL:  \Q$of\E: [^;]*lock timeout.*HINT:  Nothing was changed on any node/s, 'is the one that is named');
everywhere(label_of('boss_ids'), $other, 'and no node has changed');
$holder->query_safe('COMMIT');
$holder->quit;
on_coordinator("SELECT * FROM snowflake_distribute_generator('boss_ids', '$third')");
everywhere(label_of('boss_ids'), $third, 'repeated: on all nodes');

# A layout that one worker refuses, since it has issued IDs: the others do not get it either.
on_coordinator("SELECT * FROM snowflake_distribute_generator(snowflake_create_generator('half_ids', '$label'))");
$workers[1]->safe_psql('postgres', "SELECT snowflake_nextval('half_ids')");
($code, $text) = error_of($coordinator, "SELECT * FROM snowflake_distribute_generator('half_ids', 'preset=twitter')");
is($code, '55000', 'a layout that could issue IDs twice on one worker');
like($text, qr/DETAIL:  \Q$of\E: .*HINT:  Nothing was changed on any node/s, 'is refused');
everywhere(label_of('half_ids'), $label, 'on all nodes');

# Two calls at once: the second one brings what the first has made, and nothing older.
my ($first, $second) = (session($coordinator), session($coordinator));
for my $case ([ $other, '', $other ], [ $third, ", '$other'", $other ])
{
	$first->query_safe("BEGIN; SELECT * FROM snowflake_distribute_generator('boss_ids', '$case->[0]')");
	send_to($second, "SELECT * FROM snowflake_distribute_generator('boss_ids'$case->[1])");
	wait_for_lock($coordinator, "%snowflake_distribute_generator('boss_ids'$case->[1])%" =~ s/'/''/gr);
	$first->query_safe('COMMIT');
	is((answer_in($second))[0], '', 'the second call waits for the first');
	everywhere(label_of('boss_ids'), $case->[2], 'and all nodes have one label');
}
$_->quit for $first, $second;

# A node that was disabled when a label changed keeps the old one until the statement runs.
sub node_of { return sprintf "'%s', %d", $_[0]->host, $_[0]->port; }
on_coordinator(sprintf 'SELECT citus_disable_node(%s, synchronous => true)', node_of($late));
is(on_coordinator("SELECT count(*) FROM snowflake_distribute_generator('same_ids', '$third')"), '3', 'a node that is disabled is not asked');
($code, $text) = error_of($coordinator, sprintf 'SELECT citus_activate_node(%s)', node_of($late));
is($code, '', 'it is activated') or diag $text;
like(on_coordinator('SELECT finding, detail FROM snowflake_check_cluster()'), qr/same_ids/, 'and the difference is found');
on_coordinator("SELECT * FROM snowflake_distribute_generator('same_ids')");
everywhere(label_of('same_ids'), $third, 'until the statement brings the label');

# A label that the worker cannot take does not stop Citus, which waits for its command.
on_coordinator("SELECT snowflake_create_generator('full_ids', '$label')");
my ($out, $err);
is($workers[0]->psql('postgres', 'SET citus.enable_ddl_propagation = off;
	CREATE SEQUENCE full_ids INCREMENT 9223372036854775807 MAXVALUE 9223372036854775806 START 5; SELECT setval(\'full_ids\', 7);
	ALTER SEQUENCE full_ids MINVALUE 3', stderr => \$err, on_error_stop => 1), 0, 'a sequence that is in use') or diag $err;
like($err, qr/WARNING:  sequence public\.full_ids did not get its label from the coordinator: /, 'is said in the log');
is((error_of($workers[0], "SELECT snowflake_nextval('full_ids')"))[0], '42809', 'and issues nothing');

# A coordinator without workers.
my $single = citus_node('single', 5);
$single->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
is($single->safe_psql('postgres', "SELECT string_agg(outcome, ' ') FROM snowflake_distribute_generator(snowflake_create_generator('own_ids', '$label'))"),
	'unchanged', 'a cluster of one node');

done_testing();
