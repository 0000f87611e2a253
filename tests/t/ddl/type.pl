# Tests type snowflake where pg_regress/sql/type.sql cannot: who may change it, COPY, logical
# replication and postgres_fdw between it and bigint, dumps, a server without the library, and
# aggregates that others put into the extension.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('node', 7, allows_streaming => 'logical');
$node->append_conf('postgresql.conf', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE boss LOGIN; CREATE ROLE friend LOGIN; CREATE DATABASE shop OWNER boss');
sub as { my ($role, $sql) = @_; return $node->safe_psql('shop', $sql, extra_params => [ '-U', $role ]); }
sub super { my ($sql) = @_; return $node->safe_psql('shop', $sql); }
sub error { my ($role, $sql) = @_; return error_of($node, "SET SESSION AUTHORIZATION $role; SET search_path = ids, public; $sql", 'shop'); }
as('boss', 'CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids; GRANT USAGE, CREATE ON SCHEMA ids TO friend; GRANT CREATE ON SCHEMA public TO friend');

# Who owns the database, the extension and its schema changes nothing of the type; nor does a
# role that may create objects in that schema.
for my $role (qw(boss friend))
{
	for my $sql (
		'ALTER TYPE ids.snowflake RENAME TO mine', "ALTER TYPE ids.snowflake OWNER TO $role", 'ALTER TYPE ids.snowflake SET SCHEMA public', 'ALTER TYPE ids.snowflake SET (STORAGE = plain)',
		'COMMENT ON TYPE ids.snowflake IS $$mine$$',
		'DROP CAST (ids.snowflake AS bigint)', 'DROP CAST (bigint AS ids.snowflake)', 'CREATE CAST (ids.snowflake AS text) WITH INOUT AS IMPLICIT', 'CREATE CAST (text AS ids.snowflake) WITH INOUT AS IMPLICIT',
		'COMMENT ON CAST (ids.snowflake AS bigint) IS $$mine$$', 'ALTER FUNCTION _snowflake.from_integer(integer) VOLATILE', "ALTER FUNCTION _snowflake.snowflake_in(cstring) OWNER TO $role",
		'CREATE OR REPLACE FUNCTION _snowflake.from_integer(integer) RETURNS ids.snowflake LANGUAGE sql AS $$SELECT 1::bigint::ids.snowflake$$',
		'ALTER AGGREGATE ids.max(ids.snowflake) RENAME TO most', 'CREATE OR REPLACE AGGREGATE ids.max(ids.snowflake) (SFUNC = _snowflake.smaller, STYPE = ids.snowflake)',
		'ALTER EXTENSION snowflake_id DROP TYPE ids.snowflake', 'ALTER EXTENSION snowflake_id DROP CAST (ids.snowflake AS bigint)', 'ALTER EXTENSION snowflake_id DROP AGGREGATE ids.max(ids.snowflake)',
		'CREATE OPERATOR CLASS ids.mine DEFAULT FOR TYPE ids.snowflake USING btree AS OPERATOR 1 pg_catalog.< (int8, int8)', 'SELECT _snowflake.snowflake_in($$5$$)', 'SELECT _snowflake.larger(1, 2)')
	{
		my ($code, $text) = error($role, $sql);
		is($code, '42501', "$role cannot: $sql") or diag $text;
	}
	# This warns and changes nothing.
	error($role, 'REVOKE ALL ON TYPE ids.snowflake FROM PUBLIC; GRANT ALL ON FUNCTION _snowflake.snowflake_out TO PUBLIC');
	is((error($role, 'DROP TYPE ids.snowflake'))[0], $role eq 'boss' ? '2BP01' : '42501', "$role does not drop it");
}
is(super("SELECT has_type_privilege('friend', 'ids.snowflake', 'USAGE'), has_function_privilege('friend', '_snowflake.snowflake_out(ids.snowflake)', 'EXECUTE'), (SELECT count(*) FROM pg_cast WHERE 'ids.snowflake'::regtype IN (castsource, casttarget))"), 't|f|7', 'all is as it was');

# A role without further rights has tables with it. Each cast works in any search path.
is(as('friend', q{SET search_path = public;
	CREATE TABLE own (id ids.snowflake PRIMARY KEY DEFAULT ids.snowflake_nextval(), n int);
	INSERT INTO own VALUES (1, 1), ('2', 2), (3.0, 3), (4::smallint, 4), (5::bigint, 5) RETURNING id;
	INSERT INTO own (n) SELECT 6 RETURNING id > 1000;
	SELECT coalesce(id, 0), id::int, id::numeric, id::bigint FROM own WHERE id = 5 AND id IN (5, 6)}), "1\n2\n3\n4\n5\nt\n5|5|5|5", 'a role has a table with it');
super('REVOKE ALL ON SCHEMA ids FROM friend');
is((error_of($node, 'SET SESSION AUTHORIZATION friend; CREATE TABLE other (id ids.snowflake)', 'shop'))[0], '42501', 'who may not use the schema cannot name it');
is(as('friend', 'SELECT id, to_json(id), ARRAY[id] FROM own WHERE id < 3 ORDER BY id'), qq{1|"1"|{1}\n2|"2"|{2}}, 'and still reads his table');
super('GRANT USAGE, CREATE ON SCHEMA ids TO friend');

# An operator of exactly these types fits better than that of bigint, as with every type that
# has none of its own, varchar for one: in the path of a statement there must be no schema of others.
as('friend', 'CREATE FUNCTION public.planted(ids.snowflake, integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$SELECT true$$;
	CREATE OPERATOR public.= (LEFTARG = ids.snowflake, RIGHTARG = integer, FUNCTION = public.planted)');
is(super('SET search_path = ids, public; SELECT count(*) > 1 FROM own WHERE id = 5; SET search_path = ids; SELECT count(*) FROM public.own WHERE id = 5'), "t\n1", 'an operator in the path is found');
as('friend', 'DROP OPERATOR public.= (ids.snowflake, integer)');

# max() and min(), by an index. What the owner adds to the extension under these names is left
# as it is: a type of his own is not stored as bigint is.
super('INSERT INTO own SELECT i, i FROM generate_series(6, 20000) AS i; ANALYZE own');
sub plan_of { my ($sql, $before) = @_; return super("SET search_path = ids, public; " . ($before // '') . " EXPLAIN (COSTS OFF) $sql"); }
my $by_index = qr/Index Only Scan Backward using own_pkey/;
like(plan_of('SELECT max(id) FROM own'), $by_index, 'max() by the index');
like(plan_of('SELECT * FROM most', 'CREATE VIEW most AS SELECT max(id) FROM own;'), $by_index, 'of a view');
like(plan_of('EXECUTE q', 'PREPARE q AS SELECT max(id), min(id) FROM own;'), $by_index, 'of a prepared statement');
unlike(plan_of('SELECT * FROM inlined()', 'CREATE FUNCTION inlined() RETURNS SETOF snowflake STABLE LANGUAGE sql AS $$SELECT max(id) FROM own$$;'), $by_index, 'a function that is inlined reads the table');
is(super('SET search_path = ids, public; SELECT inlined() = (SELECT max(id) FROM own), pg_typeof(max(id)) FROM own'), 't|snowflake', 'with the same answer');
as('boss', q{CREATE SCHEMA mine; SET search_path = mine, pg_catalog; CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TYPE pair AS (a int, b text);
	CREATE FUNCTION later(mood, mood) RETURNS mood LANGUAGE sql IMMUTABLE AS 'SELECT greatest($1, $2)';
	CREATE FUNCTION later(pair, pair) RETURNS pair LANGUAGE sql IMMUTABLE AS 'SELECT greatest($1, $2)';
	CREATE AGGREGATE max(mood) (SFUNC = later, STYPE = mood); CREATE AGGREGATE max(pair) (SFUNC = later, STYPE = pair);
	ALTER EXTENSION snowflake_id ADD AGGREGATE max(mood); ALTER EXTENSION snowflake_id ADD AGGREGATE max(pair);
	CREATE TABLE moods (m mood, p pair); INSERT INTO moods VALUES ('low', '(1,x)'), ('high', '(2,y)')});
is(super('SELECT mine.max(m), mine.max(p), mine.max(m)::text FROM mine.moods'), 'high|(2,y)|high', 'an aggregate of the owner is what it was');

# A domain over bigint is stored as bigint, and its aggregates may do anything: also in the
# extension, and in a database that lacks it.
my $sums = 'CREATE DOMAIN public.number AS bigint; CREATE FUNCTION public.plus(number, number) RETURNS number LANGUAGE sql IMMUTABLE AS $$SELECT $1::bigint + $2$$;
	CREATE AGGREGATE public.max(number) (SFUNC = plus, STYPE = number, INITCOND = 0)';
my $sum = 'SELECT public.max(i::number) FROM generate_series(1, 4) AS i';
as('boss', "$sums; ALTER EXTENSION snowflake_id ADD AGGREGATE public.max(number)");
is(super($sum), '10', 'an aggregate for a domain is what it was');
as('boss', 'ALTER EXTENSION snowflake_id DROP AGGREGATE public.max(number); DROP DOMAIN public.number CASCADE');
is($node->safe_psql('postgres', "$sums; $sum"), '10', 'also without the extension');
# So may those of a base type of others that is stored so.
is($node->safe_psql('postgres', q{CREATE TYPE own; CREATE FUNCTION own_in(cstring) RETURNS own LANGUAGE internal IMMUTABLE STRICT AS 'int8in';
	CREATE FUNCTION own_out(own) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int8out'; CREATE TYPE own (INPUT = own_in, OUTPUT = own_out, LIKE = int8);
	CREATE CAST (own AS bigint) WITHOUT FUNCTION AS IMPLICIT; CREATE FUNCTION own_plus(own, own) RETURNS own LANGUAGE internal IMMUTABLE STRICT AS 'int8pl';
	CREATE AGGREGATE max(own) (SFUNC = own_plus, STYPE = own, INITCOND = 0); SELECT max(i::text::own) FROM generate_series(1, 4) AS i}), '10', 'and the type of another');

# COPY, in each format, both ways. The bytes are those of bigint.
super('CREATE TABLE of_bigint (id bigint, n int)');
my $folder = $node->basedir;
for my $format (qw(text csv binary))
{
	super("COPY public.own TO '$folder/own.$format' (FORMAT $format); TRUNCATE of_bigint; COPY of_bigint FROM '$folder/own.$format' (FORMAT $format);
		COPY of_bigint TO '$folder/big.$format' (FORMAT $format); CREATE TABLE back (id ids.snowflake, n int); COPY back FROM '$folder/big.$format' (FORMAT $format)");
	is(super('SELECT count(*) FROM (TABLE back EXCEPT TABLE own) AS b; SELECT count(*) FROM back'), "0\n20001", "COPY, $format: the same rows");
	is(slurp_file("$folder/own.$format"), slurp_file("$folder/big.$format"), "COPY, $format: the same file");
	super('DROP TABLE back');
}

# Logical replication between both types, both ways, as text and in binary form.
my $other = new_node('other', 8, allows_streaming => 'logical');
$other->append_conf('postgresql.conf', 'autovacuum = off');
$other->start;
$other->safe_psql('postgres', 'CREATE DATABASE shop; CREATE ROLE friend; CREATE ROLE boss');
$other->safe_psql('shop', 'CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids');
my $from = sprintf 'host=%s port=%s dbname=shop', $node->host, $node->port;
for my $binary (qw(off on))
{
	super("CREATE TABLE keys_$binary (id ids.snowflake PRIMARY KEY, parent bigint); CREATE TABLE bigs_$binary (id bigint PRIMARY KEY, parent ids.snowflake);
		INSERT INTO keys_$binary VALUES (250682904307331098, 1), (2, 1); INSERT INTO bigs_$binary TABLE keys_$binary;
		CREATE PUBLICATION p_$binary FOR TABLE keys_$binary, bigs_$binary");
	$other->safe_psql('shop', "CREATE TABLE keys_$binary (id bigint PRIMARY KEY, parent ids.snowflake); CREATE TABLE bigs_$binary (id ids.snowflake PRIMARY KEY, parent bigint)");
	$other->safe_psql('shop', "CREATE SUBSCRIPTION s_$binary CONNECTION '$from' PUBLICATION p_$binary WITH (binary = $binary)");
	$other->wait_for_subscription_sync($node, "s_$binary", 'shop');
	super("UPDATE $_ SET parent = id WHERE id = 250682904307331098; DELETE FROM $_ WHERE id = 2; INSERT INTO $_ VALUES (3, 250682904307331098)") for "keys_$binary", "bigs_$binary";
	$node->wait_for_catchup("s_$binary");
	is($other->safe_psql('shop', "SELECT * FROM $_ ORDER BY id"), "3|250682904307331098\n250682904307331098|250682904307331098", "replicated, binary $binary: $_") for "keys_$binary", "bigs_$binary";
}
my ($code, $text) = error_of($node, 'CREATE PUBLICATION filtered FOR TABLE own WHERE (id > 5)', 'shop');
is($code, '0A000', 'a row filter cannot use it');
like($text, qr/User-defined types are not allowed/, 'as PostgreSQL says');
is((error_of($node, 'CREATE PUBLICATION filtered FOR TABLE own WHERE (n > 5)', 'shop'))[0], '', 'but any other column of the table');

# postgres_fdw.
SKIP:
{
	skip 'postgres_fdw is not installed', 1 if !$other->safe_psql('shop', "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'");
	my ($host, $port) = ($node->host, $node->port);
	$other->safe_psql('shop', "CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'shop');
		CREATE USER MAPPING FOR CURRENT_USER SERVER far; CREATE FOREIGN TABLE own (id ids.snowflake, n int) SERVER far; CREATE FOREIGN TABLE own_big (id bigint, n int) SERVER far OPTIONS (table_name 'own')");
	my $remote = sub { my ($sql) = @_; my ($found) = $other->safe_psql('shop', "SET search_path = ids, public; EXPLAIN (VERBOSE, COSTS OFF) $sql") =~ /Remote SQL: (.*)/; return $found; };
	is($remote->('SELECT n FROM own_big WHERE id = 5'), 'SELECT n FROM public.own WHERE ((id = 5))', 'a foreign column of bigint over one of the type');
	is($remote->('SELECT n FROM own WHERE id = 5'), 'SELECT id, n FROM public.own', 'a foreign column of the type: nothing is left to the other server');
	$other->safe_psql('shop', "ALTER SERVER far OPTIONS (ADD extensions 'snowflake_id')");
	like($remote->('SELECT n FROM own WHERE id = 5'), qr/^SELECT n FROM public\.own WHERE \(\(id(?:::bigint)? = 5\)\)$/, 'with the option of the server, =');
	like($remote->('SELECT n FROM own WHERE id IN (5, 6)'), qr/WHERE \(\(id(?:::bigint)? = ANY \('\{5,6\}'::bigint\[\]\)\)\)$/, 'and IN');
	like($remote->('SELECT n FROM own ORDER BY id LIMIT 3'), qr/ORDER BY id.* ASC NULLS LAST LIMIT 3::bigint$/, 'and ORDER BY with LIMIT');
	is($remote->('SELECT max(id) FROM own') =~ s/::bigint//gr, $remote->('SELECT max(id) FROM own_big'), 'and max() as for bigint');
	is($other->safe_psql('shop', 'SET search_path = ids, public; SELECT n, to_json(id) FROM own WHERE id IN (5, 6) ORDER BY id; SELECT min(id) FROM own; INSERT INTO own VALUES (99999999, 5) RETURNING id'), qq{5|"5"\n6|"6"\n1\n99999999}, 'with these rows');
}

# A dump, and a server that does not preload the library: all answers are the same, and max()
# reads the table.
my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init;
$plain->start;
$plain->safe_psql('postgres', 'CREATE ROLE boss; CREATE ROLE friend; CREATE DATABASE shop');
super('ALTER EXTENSION snowflake_id DROP AGGREGATE mine.max(mine.mood); ALTER EXTENSION snowflake_id DROP AGGREGATE mine.max(mine.pair); DROP SCHEMA mine CASCADE');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$folder/shop.dump", 'shop' ], 'pg_dump');
$plain->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'shop', "$folder/shop.dump" ], 'pg_restore');
my $look = 'SET search_path = ids, public; SELECT count(*), sum(id), max(id), min(id), to_json(max(id)), pg_typeof(max(id)) FROM own; SELECT to_json(id), coalesce(id, 0) FROM own WHERE id = 5 AND id IN (5, 6); SELECT max(id) FILTER (WHERE n = 5) OVER () FROM own LIMIT 1';
is($plain->safe_psql('shop', $look), super($look), 'without the library: the same answers');
like($plain->safe_psql('shop', 'SET search_path = ids, public; EXPLAIN (COSTS OFF) SELECT max(id) FROM own'), qr/Seq Scan on own/, 'max() reads the table there');
like($plain->safe_psql('shop', 'SET search_path = ids, public; EXPLAIN (COSTS OFF) SELECT * FROM own WHERE id = 5'), qr/Index Cond: .*id.*= 5/, 'all else has the index');

done_testing();
