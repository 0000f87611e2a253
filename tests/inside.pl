# The functions of src that are marked #[pg_test], whose names are in FUNCTIONS: each is called
# in a transaction of its own, which is rolled back.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('inside');
$node->init;
# Some of them connect to their own server.
$node->append_conf('postgresql.conf', <<'CONF');
listen_addresses = 'localhost'
shared_preload_libraries = 'snowflake_id'
snowflake_id.worker_id = 5
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE SCHEMA tests');
for my $name (split ' ', $ENV{FUNCTIONS})
{
	$node->safe_psql('postgres',
		"CREATE FUNCTION tests.$name() RETURNS void STRICT LANGUAGE c AS '\$libdir/snowflake_id', '${name}_wrapper'");
	my ($status, undef, $errors) =
	  $node->psql('postgres', "BEGIN; SELECT tests.$name(); ROLLBACK");
	is($status, 0, $name) or diag($errors);
}
done_testing();
