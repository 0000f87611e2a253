# Tests snowflake_set_default() on tables of Citus: on the distribution column, on others,
# on identities, reference tables and colocated tables; and that it reports no success
# where some node could not issue.
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

sub on_coordinator { return $coordinator->safe_psql('postgres', $_[0]); }

sub error { my ($sql, $node) = @_; return error_of($node // $coordinator, $sql); }

# Returns the notices of a statement that succeeds.
sub notices
{
	my ($sql) = @_;
	my ($out, $err);
	my $status = $coordinator->psql('postgres', $sql, stdout => \$out, stderr => \$err, on_error_stop => 1);
	is($status, 0, $sql) or diag $err;
	return ($out, $err);
}

# Each node inserts a row by default; returns how many rows have an ID of each node.
sub insert_everywhere
{
	my ($table, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $node (@nodes)
	{
		my ($code, $text) = error("INSERT INTO $table (k) VALUES (1)", $node);
		is($code, '', "$what: " . $node->name . ' inserts') or diag $text;
	}
	my $by = $what =~ /generator/ ? ", 'own_ids'" : '';
	is(on_coordinator("SELECT count(DISTINCT (snowflake_decode(id$by)).worker_id) FROM $table WHERE id > 1000000"), scalar @nodes, "$what: with IDs of each node");
	return;
}

on_coordinator("CREATE TABLE by_id (id bigint PRIMARY KEY, k int); SELECT create_distributed_table('by_id', 'id', shard_count => 6);
	INSERT INTO by_id SELECT i, i FROM generate_series(1, 100) AS i");
my ($out, $notices) = notices(q{SELECT snowflake_set_default('by_id')});
like($out, qr/^public\.by_id\.id: default set to public\.snowflake_nextval\(\), distributed again; greatest value so far 100$/m, 'the distribution column');
like($notices, qr/NOTICE:  table public\.by_id is undistributed, and distributed again\n.*All rows are copied/, 'is said');
is(on_coordinator("SELECT citus_table_type, distribution_column, shard_count FROM citus_tables WHERE table_name = 'by_id'::regclass"),
	'distributed|id|6', 'and the table is what it was');
is(on_coordinator('SELECT count(*) FROM by_id'), '100', 'with its rows');
insert_everywhere('by_id', 'the distribution column');
($out, $notices) = notices(q{SELECT snowflake_set_default('by_id')});
like($out, qr/default is public\.snowflake_nextval\(\) already/, 'repeated');
unlike($notices, qr/undistributed/, 'nothing is copied');

on_coordinator("CREATE TABLE by_k (id bigint, k int); SELECT create_distributed_table('by_k', 'k');
	INSERT INTO by_k SELECT i, i FROM generate_series(1, 100) AS i");
($out, $notices) = notices(q{SELECT snowflake_set_default('by_k', 'id')});
unlike($notices, qr/undistributed/, 'another column: nothing is copied');
insert_everywhere('by_k', 'another column');

# Colocated tables stay together, and a join of them stays local.
on_coordinator("CREATE TABLE orders (id bigint PRIMARY KEY, k int); SELECT create_distributed_table('orders', 'id', colocate_with => 'none');
	CREATE TABLE items (order_id bigint, n int, PRIMARY KEY (order_id, n)); SELECT create_distributed_table('items', 'order_id', colocate_with => 'orders')");
notices(q{SELECT snowflake_set_default('orders')});
is(on_coordinator("SELECT count(DISTINCT colocation_id) FROM citus_tables WHERE table_name IN ('orders'::regclass, 'items'::regclass)"), '1', 'still in one group');
insert_everywhere('orders', 'colocated');

on_coordinator("CREATE TABLE reference (id bigint PRIMARY KEY, k int); SELECT create_reference_table('reference')");
notices(q{SELECT snowflake_set_default('reference')});
insert_everywhere('reference', 'a reference table');

on_coordinator("CREATE TABLE counted (id bigint GENERATED ALWAYS AS IDENTITY, k int); SELECT create_distributed_table('counted', 'k')");
my ($code, $text) = error(q{SELECT snowflake_set_default('counted', 'id')});
is($code, '0A000', 'an identity, which Citus cannot drop');
like($text, qr/Citus cannot drop the identity of public\.counted\.id\n.*HINT:/s, 'and what to do');
on_coordinator("CREATE TABLE serials (id bigserial, k int); SELECT create_distributed_table('serials', 'k'); INSERT INTO serials (k) VALUES (1)");
notices(q{SELECT snowflake_set_default('serials', 'id', drop_sequence => true)});
insert_everywhere('serials', 'a serial');

on_coordinator("CREATE TABLE serial_key (id bigserial PRIMARY KEY, k int); SELECT create_distributed_table('serial_key', 'id'); INSERT INTO serial_key (k) VALUES (1)");
($out, $notices) = notices(q{SELECT snowflake_set_default('serial_key', drop_sequence => true)});
like($out, qr/sequence public\.serial_key_id_seq dropped/, 'the sequence of the distribution column');
insert_everywhere('serial_key', 'a serial as the distribution column');

on_coordinator("CREATE TABLE parts (id bigint PRIMARY KEY, k int) PARTITION BY RANGE (id);
	CREATE TABLE parts_all PARTITION OF parts FOR VALUES FROM (0) TO (9223372036854775807);
	SELECT create_distributed_table('parts', 'id'); INSERT INTO parts VALUES (1, 1)");
notices(q{SELECT snowflake_set_default('parts')});
insert_everywhere('parts', 'a partitioned table');

# What belongs to a table that is undistributed stays.
on_coordinator("CREATE ROLE reader; CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
	CREATE TABLE rich (id bigint PRIMARY KEY, k int CHECK (k < 1000), secret text DEFAULT 'x', UNIQUE (id, k)) WITH (fillfactor = 70);
	CREATE INDEX rich_k ON rich (k) WHERE k > 5;
	CREATE STATISTICS rich_stats ON id, k FROM rich;
	COMMENT ON TABLE rich IS 'rich'; COMMENT ON COLUMN rich.k IS 'number''s';
	COMMENT ON INDEX rich_k IS 'index'; COMMENT ON CONSTRAINT rich_k_check ON rich IS 'check'; COMMENT ON STATISTICS rich_stats IS 'statistics';
	CREATE POLICY own ON rich TO reader USING (k > 3); COMMENT ON POLICY own ON rich IS 'policy';
	SELECT create_distributed_table('rich', 'id');
	ALTER TABLE rich ENABLE ROW LEVEL SECURITY; CREATE PUBLICATION rich_out FOR TABLE rich;
	GRANT SELECT ON rich TO reader; GRANT UPDATE (k) ON rich TO reader;
	CREATE VIEW rich_view AS SELECT id, k FROM rich;
	INSERT INTO rich SELECT i, i FROM generate_series(1, 50) AS i");
my $described = "SELECT relacl, reloptions, obj_description(c.oid, 'pg_class'), col_description(c.oid, 2),
		(SELECT attacl FROM pg_attribute WHERE attrelid = c.oid AND attnum = 2),
		(SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY conname) FROM pg_constraint WHERE conrelid = c.oid),
		(SELECT string_agg(pg_get_indexdef(indexrelid), ', ' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid = c.oid),
		(SELECT string_agg(stxname, ', ') FROM pg_statistic_ext WHERE stxrelid = c.oid),
		obj_description('rich_k'::regclass, 'pg_class'),
		(SELECT string_agg(obj_description(oid, 'pg_constraint'), ', ') FROM pg_constraint WHERE conrelid = c.oid),
		(SELECT string_agg(obj_description(oid, 'pg_statistic_ext'), ', ') FROM pg_statistic_ext WHERE stxrelid = c.oid),
		(SELECT string_agg(obj_description(oid, 'pg_policy'), ', ') FROM pg_policy WHERE polrelid = c.oid),
		(SELECT count(*) FROM pg_publication_rel WHERE prrelid = c.oid), c.relrowsecurity,
		(SELECT count(*) FROM rich_view)
	FROM pg_class AS c WHERE c.oid = 'rich'::regclass";
my $rich = on_coordinator($described);
notices(q{SELECT snowflake_set_default('rich')});
is(on_coordinator($described), $rich, 'a table with all that belongs to it');
insert_everywhere('rich', 'with all that belongs to it');

# A table that could not be distributed again as it is: nothing is undistributed.
on_coordinator("CREATE TABLE appended (id bigint, k int); SELECT create_distributed_table('appended', 'id', 'append')");
($code, $text) = error(q{SELECT snowflake_set_default('appended', 'id')});
is($code, '0A000', 'a table that is not distributed by hash');
like($text, qr/table public\.appended is not distributed by hash/, 'and why');
unlike($text, qr/is undistributed/, 'before anything is done');

# Foreign keys: Citus refuses, and the table stays as it is.
on_coordinator("CREATE TABLE parent (id bigint PRIMARY KEY, k int); SELECT create_distributed_table('parent', 'id');
	CREATE TABLE child (parent_id bigint REFERENCES parent, n int); SELECT create_distributed_table('child', 'parent_id')");
($code, $text) = error(q{SELECT snowflake_set_default('parent')});
isnt($code, '', 'a foreign key');
like($text, qr/foreign key/, 'is named');
is(on_coordinator("SELECT count(*) FROM citus_tables WHERE table_name IN ('parent'::regclass, 'child'::regclass)"), '2', 'both are distributed');

# Where Citus does not send the change to the workers.
on_coordinator("CREATE TABLE kept (id bigint, k int); SELECT create_distributed_table('kept', 'k')");
($code, $text) = error(q{SET citus.enable_ddl_propagation = off; SELECT snowflake_set_default('kept', 'id')});
is($code, '55000', 'a session whose changes stay on the coordinator');
like($text, qr/HINT:  SET citus\.enable_ddl_propagation = on/, 'and what helps');
on_coordinator('SET citus.enable_ddl_propagation = off; ALTER TABLE kept ALTER id SET DEFAULT snowflake_nextval()');
($out) = notices(q{SELECT snowflake_set_default('kept', 'id')});
like($out, qr/default is public\.snowflake_nextval\(\) already/, 'a default that stayed on the coordinator');
insert_everywhere('kept', 'goes to the workers');
on_coordinator("CREATE TABLE kept_key (id bigint PRIMARY KEY, k int); SELECT create_distributed_table('kept_key', 'id')");
on_coordinator('SET citus.enable_ddl_propagation = off; ALTER TABLE kept_key ALTER id SET DEFAULT snowflake_nextval()');
($code, $text) = error(q{SELECT snowflake_set_default('kept_key')});
is($code, '55000', 'a default of the distribution column that stayed on the coordinator');
like($text, qr/DETAIL:  \S+:\d+: the default is missing[^;]*; \S+:\d+: the default is missing.*HINT:  .*start_metadata_sync_to_all_nodes/s, 'is found');
on_coordinator('SELECT start_metadata_sync_to_all_nodes()');
notices(q{SELECT snowflake_set_default('kept_key')});
insert_everywhere('kept_key', 'a default that was sent again');

# A generator that has not come to the workers.
on_coordinator("CREATE TABLE own (id bigint, k int); SELECT create_distributed_table('own', 'k');
	SELECT snowflake_create_generator('own_ids', 'preset=sonyflake')");
($code, $text) = error(q{SELECT snowflake_set_default('own', 'id', generator => 'own_ids')});
is($code, '55000', 'a generator that the workers do not have');
like($text, qr/not all nodes of Citus can issue IDs of generator public\.own_ids\n.*:\d+: the generator does not exist; .*\n.*snowflake_distribute_generator\('public\.own_ids'\)/, 'which nodes, and what helps');
is(on_coordinator("SELECT count(*) FROM pg_attrdef WHERE adrelid = 'own'::regclass"), '0', 'no default is set');
on_coordinator(q{SELECT * FROM snowflake_distribute_generator('own_ids')});
notices(q{SELECT snowflake_set_default('own', 'id', generator => 'own_ids')});
insert_everywhere('own', 'a generator');
on_coordinator("CREATE TABLE own_key (id bigint PRIMARY KEY, k int); SELECT create_distributed_table('own_key', 'id')");
notices(q{SELECT snowflake_set_default('own_key', generator => 'own_ids')});
insert_everywhere('own_key', 'a generator and the distribution column');

# An owner who may not use it, there.
on_coordinator("CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; SET SESSION AUTHORIZATION app;
	CREATE TABLE apps (id bigint, k int); SELECT create_distributed_table('apps', 'k')");
my $as_app = 'SET SESSION AUTHORIZATION app;';
($code, $text) = error("$as_app SELECT snowflake_set_default('apps', 'id', generator => 'own_ids')");
is($code, '42501', 'a role without privileges');
like($text, qr/permission denied for generator public\.own_ids.*GRANT USAGE ON SEQUENCE public\.own_ids/s, 'and what helps');
on_coordinator('GRANT USAGE, SELECT ON SEQUENCE own_ids TO app');
notices("$as_app SELECT snowflake_set_default('apps', 'id', generator => 'own_ids')");

# A label that differs on a worker.
on_coordinator("SELECT * FROM snowflake_distribute_generator(snowflake_create_generator('other_ids', 'preset=sonyflake'))");
$workers[1]->safe_psql('postgres', q{SET citus.enable_ddl_propagation = off; SECURITY LABEL FOR snowflake_id ON SEQUENCE other_ids IS 'preset=twitter'});
($code, $text) = error(q{SELECT snowflake_set_default('by_k', 'id', generator => 'other_ids')});
is($code, '55000', 'a label that differs');
like($text, qr/its label is another one than on the coordinator/, 'and where');

# Worker IDs that are missing, or equal.
for my $case ([ '', qr/this server has no worker ID/ ], [ 2, qr/both have worker ID 2, and would issue the same IDs/ ])
{
	$workers[1]->append_conf('postgresql.conf', "snowflake_id.worker_id = '$case->[0]'");
	$workers[1]->restart;
	($code, $text) = error(q{SELECT snowflake_set_default('by_k', 'id', generator => 'own_ids')});
	is($code, '55000', "worker ID '$case->[0]' on a worker");
	like($text, $case->[1], 'and why');
}
$workers[1]->stop;
($code, $text) = error(q{SELECT snowflake_set_default('by_k', 'id', generator => 'own_ids')});
is($code, '55000', 'a worker that is away') or diag $text;
$workers[1]->append_conf('postgresql.conf', 'snowflake_id.worker_id = 3');
$workers[1]->start;

is((error(q{SELECT snowflake_set_default('by_k', 'id', generator => 'own_ids')}, $workers[0]))[0], '55000', 'not on a worker');
on_coordinator("CREATE TABLE back (id bigint, k int); SELECT create_distributed_table('back', 'k')");
notices(q{SELECT snowflake_set_default('back', 'id', generator => 'own_ids')});
insert_everywhere('back', 'a generator, when all is well again');

# A table of this node alone.
on_coordinator('CREATE TABLE here (id bigint PRIMARY KEY, k int)');
$workers[1]->stop;
notices(q{SELECT snowflake_set_default('here')});
$workers[1]->start;

done_testing();
