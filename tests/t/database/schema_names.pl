# Tests the extension in schemas with odd names. PostgreSQL refuses quotes, backslashes and
# dollars in the schema of an extension, and nothing else.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', 'jit = off');
$node->start;

my $number = 0;
for my $name ('a%sb', '%I %L', 'A b.c%1', '%%; x')
{
	my $database = 'named' . $number++;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	my $sql = sub { return $node->safe_psql($database, "SET client_min_messages = warning; $_[0]") };
	$sql->(qq{CREATE SCHEMA "$name"; CREATE EXTENSION snowflake_id SCHEMA "$name"});
	like((error_of($node, 'CREATE EXTENSION snowflake_id_convert', $database))[1], qr/must be in the schema of extension snowflake_id.*CREATE EXTENSION snowflake_id_convert SCHEMA "\Q$name\E"/s, "$name: of both extensions");
	$sql->(qq{CREATE EXTENSION snowflake_id_convert SCHEMA "$name"});
	$sql->(qq{CREATE SCHEMA t; CREATE TABLE t.a (id serial PRIMARY KEY, at timestamptz DEFAULT '2025-06-01Z', note text);
		CREATE TABLE t.b (id bigserial PRIMARY KEY, a_id int REFERENCES t.a); CREATE VIEW t.shown AS SELECT id FROM t.a;
		CREATE TABLE t.old (id serial PRIMARY KEY, at timestamptz DEFAULT '2025-06-01Z'); CREATE TABLE t.once (id serial PRIMARY KEY);
		INSERT INTO t.a SELECT FROM generate_series(1, 9); INSERT INTO t.b (a_id) SELECT 1 + n % 9 FROM generate_series(1, 20) AS n; INSERT INTO t.old SELECT FROM generate_series(1, 9)});
	$sql->(qq{SELECT "$name".snowflake_create_generator('t.ids', 'preset=default')});
	is($sql->(qq{SELECT "$name".snowflake_nextval('t.ids') > 0, "$name".snowflake_nextval() > 0}), 't|t', "$name: generators");
	like($sql->(qq{SELECT "$name".snowflake_set_default('t.b', 'id', 't.ids')}), qr/replaced by .*snowflake_nextval\('t.ids'::regclass\)/, "$name: a default");
	like($sql->(qq{SELECT "$name".snowflake_set_default('t.b', 'id', 't.ids')}), qr/is \S.*snowflake_nextval\('t.ids'::regclass\) already/, "$name: is found again");
	like($sql->(qq{SELECT "$name".snowflake_set_default('t.b')}), qr/replaced by .*snowflake_nextval\(\)/, "$name: the default generator");
	is($sql->(qq{SELECT count(*) > 8 FROM "$name".snowflake_convert_plan(schemas => '{t}', online => true)}), 't', "$name: a plan");
	is($sql->(qq{CALL "$name".snowflake_convert('{t.once}', generator => 't.ids'); SELECT count(*) FROM "$name".snowflake_convert_plan('{t.once}', generator => 't.ids') WHERE statement IS NOT NULL}),
		'0', "$name: a conversion at once");
	is($sql->(qq{CALL "$name".snowflake_convert('{t.old}', backfill => true, worker_id => 1000);
		SELECT count(*) FROM t.old WHERE "$name".snowflake_timestamp(id) = at AND ("$name".snowflake_decode(id)).worker_id = 1000}), '9', "$name: with old rows");
	# Interrupted, undone, and done.
	$sql->(qq{SELECT statement FROM "$name".snowflake_convert_steps('{t.a, t.b}', generator => 't.ids') LIMIT 4 \\gexec\n});
	$sql->(qq{SELECT statement FROM "$name".snowflake_convert_undo('{t.a, t.b}') \\gexec\n});
	$sql->(qq{SELECT statement FROM "$name".snowflake_convert_steps('{t.a, t.b}', generator => 't.ids') \\gexec\n});
	is($sql->(qq{SELECT count(*) FROM "$name".snowflake_convert_steps('{t.a, t.b}', generator => 't.ids');
		INSERT INTO t.b (a_id) SELECT max(id) FROM t.a; INSERT INTO t.a DEFAULT VALUES; SELECT count(*) FROM t.shown WHERE id > 1000}), "0\n1", "$name: a conversion in use");
	is($sql->(qq{SELECT count(*) FROM t.b WHERE id > 1000}), '1', "$name: new rows have IDs");
	is($sql->(qq{SELECT severity FROM "$name".snowflake_check('t.old', worker_ids => '{[1000,1001)}') WHERE severity <> 'info'}), '', "$name: a check");
	is($sql->(qq{SELECT count(*) FROM "$name".snowflake_check('t.a', generator => 't.ids') WHERE severity = 'error'}), '0', "$name: of a generator");
	is($sql->(qq{SELECT bool_and(is_set) FROM "$name".snowflake_set_defaults('t') WHERE relation <> 't.snowflake_old_ids'::regclass}), 't', "$name: a schema");
	# All views can be read.
	$sql->(qq{SELECT format('SELECT count(*) FROM %s', c.oid::regclass) FROM pg_class AS c JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e' WHERE c.relkind = 'v' \\gexec\n});
	# Functions of the rest.
	$sql->(qq{SELECT "$name".snowflake_create_pool('p', '[1,10)'); SELECT "$name".snowflake_drop_pool('p')});
	is($sql->('DROP EXTENSION snowflake_id CASCADE; SELECT 1'), '1', "$name: dropped");
}
for my $name ('a"b', "a'b", 'a\\b', 'a$b')
{
	my $database = 'refused' . $number++;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	my $quoted = $name =~ s/"/""/gr;
	my ($code, undef, $err) = $node->psql($database, qq{CREATE SCHEMA "$quoted"; CREATE EXTENSION snowflake_id SCHEMA "$quoted"});
	like($err, qr/invalid character in extension "snowflake_id" schema: must not contain any of/, "$name is refused");
}
done_testing();
