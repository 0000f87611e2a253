# Tests privileges of a database owner who is no superuser, and the creation of the extension
# by such an owner, in hostile schemas and through dump and restore. Those of roles without
# any, and with USAGE only, are in src/tests.rs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('node', 7);
$node->start;
$node->safe_psql('postgres', q{
	CREATE ROLE stranger LOGIN; CREATE ROLE owner LOGIN; CREATE ROLE attacker LOGIN});
$node->safe_psql('postgres', "CREATE DATABASE $_ OWNER owner") for qw(shop copy);

# Runs a statement in a session of a role; returns SQLSTATE and output.
sub as
{
	my ($role, $sql, $database) = @_;
	my ($out, $err);
	$node->psql($database // 'shop', "\\set VERBOSITY verbose\n$sql", stdout => \$out, stderr => \$err,
		on_error_stop => 1, extra_params => [ '-U', $role ]);
	my ($code) = $err =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/;
	return ($code // '', $out, $err);
}

sub can
{
	my ($role, $sql, $database) = @_;
	my ($code, $out, $err) = as($role, $sql, $database);
	is($code, '', "$role can: $sql") or diag($err);
	return $out;
}

sub cannot
{
	my ($role, $code, $sql, $database) = @_;
	my ($got, $out, $err) = as($role, $sql, $database);
	is($got, $code, "$role cannot: $sql") or diag("$out$err");
	return;
}

# The owner of the database creates the extension, which is trusted.
cannot('stranger', '42501', 'CREATE EXTENSION snowflake_id');
can('owner', 'CREATE EXTENSION snowflake_id');
can('owner', 'CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text)');
can('owner', 'INSERT INTO orders (item) VALUES (1), (2)');

# Only the administrator changes settings.
for my $role (qw(stranger owner))
{
	for my $setting (qw(worker_id reserve_ahead failover_gap max_clock_jump debug_slots))
	{
		cannot($role, '55P02', "SET snowflake_id.$setting = 200");
		cannot($role, '55P02', "SELECT set_config('snowflake_id.$setting', '200', true)");
		cannot($role, '42501', "ALTER SYSTEM SET snowflake_id.$setting = 200");
	}
	# No role can set them for a session or a database; the error comes at once or when
	# a session starts.
	cannot($role, '55P02', 'ALTER ROLE CURRENT_USER SET snowflake_id.worker_id = 200');
}
cannot('owner', '55P02', 'ALTER DATABASE shop SET snowflake_id.worker_id = 200');

# The database's owner may set marks, so that restoring works, but may not accept a
# clock.
can('owner', q{SELECT snowflake_advance('snowflake_default', now() + interval '1 s')});
cannot('owner', '42501', 'SELECT snowflake_accept_clock()');
cannot('owner', '42501', 'SELECT snowflake_stat_reset()');
cannot('owner', '42501', 'ALTER SEQUENCE snowflake_default RESTART');
cannot('owner', '42501', 'ALTER FUNCTION snowflake_nextval() SECURITY DEFINER');
cannot('owner', '42501', 'CREATE OR REPLACE FUNCTION snowflake_nextval() RETURNS bigint LANGUAGE sql AS $$SELECT 1::bigint$$');
# A mark that is set back has no effect.
my $before = can('owner', 'SELECT snowflake_nextval()');
can('owner', q{SELECT setval('snowflake_default', 1)});
cmp_ok(can('owner', 'SELECT snowflake_nextval()'), '>', $before, 'a lowered mark gives no ID again');

# The functions use no object of the caller's search_path.
$node->safe_psql('shop', 'CREATE SCHEMA trap AUTHORIZATION attacker; GRANT USAGE ON SCHEMA trap TO PUBLIC');
can('attacker', q{
	SET search_path = trap;
	CREATE FUNCTION trap.boom() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped' USING ERRCODE = 'ZZZZZ'; END$$;
	CREATE FUNCTION setval(regclass, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT trap.boom()';
	CREATE FUNCTION snowflake_nextval() RETURNS bigint LANGUAGE sql AS 'SELECT trap.boom()';
	CREATE FUNCTION snowflake_nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT trap.boom()';
	CREATE FUNCTION snowflake_generators() RETURNS TABLE (generator regclass) LANGUAGE sql AS 'SELECT trap.boom()::regclass';
	CREATE FUNCTION trap.equal(regclass, regclass) RETURNS boolean LANGUAGE sql AS 'SELECT trap.boom() > 0';
	CREATE OPERATOR = (LEFTARG = regclass, RIGHTARG = regclass, FUNCTION = trap.equal);
	CREATE FUNCTION trap.same(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT trap.boom() > 0';
	CREATE OPERATOR = (LEFTARG = name, RIGHTARG = name, FUNCTION = trap.same);
	CREATE SEQUENCE snowflake_default; CREATE TABLE pg_class (oid oid); CREATE TABLE pg_sequence (oid oid)});
my $path = 'SET search_path = trap, pg_catalog, public;';
for my $sql (
	'SELECT public.snowflake_nextval(), public.snowflake_currval(), public.snowflake_nextval_batch(3)',
	'SELECT public.snowflake_decode(public.snowflake_nextval())',
	'SELECT public.snowflake_min_id(now()), public.snowflake_encode(now(), 1, 1)',
	q{SELECT public.snowflake_advance('public.snowflake_default', now())},
	'TABLE public.snowflake_generators',
	'SELECT public.snowflake_status()',
	'TABLE public.pg_stat_snowflake',
	q{INSERT INTO public.orders (item) VALUES ('x')},
	'SELECT public.snowflake_accept_clock()',
	q{SELECT public.snowflake_stat_reset('public.snowflake_default')})
{
	is((error_of($node, "$path $sql", 'shop'))[0], '', "not trapped: $sql");
}
# The caller names the regclass argument, and the function checks the named object.
is((error_of($node, "$path SELECT public.snowflake_nextval('snowflake_default')", 'shop'))[0], '42809',
	'a sequence of the same name elsewhere is no generator');
# The functions do not use temporary objects either.
can('stranger', 'CREATE TEMP SEQUENCE snowflake_default; SELECT public.snowflake_nextval()');

# A superuser who calls snowflake_set_default() for somebody's table does not run the
# owner's code: planning a query would call the function of an index.
$node->safe_psql('shop', 'CREATE SCHEMA lure AUTHORIZATION attacker');
can('attacker', q{
	CREATE FUNCTION lure.grab(x integer) RETURNS integer LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN ALTER ROLE attacker SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END;
		RETURN x;
	END $$;
	CREATE FUNCTION lure.harmless(x integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM lure.grab(x); RETURN x; END$$;
	CREATE DOMAIN lure.id AS bigint CHECK (lure.harmless(1) = 1);
	CREATE TABLE lure.orders (id lure.id PRIMARY KEY, v integer, CHECK (lure.harmless(2) = 2));
	CREATE TABLE lure.late (CHECK (lure.harmless(3) = 3)) INHERITS (lure.orders);
	CREATE INDEX ON lure.orders ((lure.harmless(1)));
	CREATE INDEX ON lure.orders (v) WHERE lure.harmless(1) = 1});
$node->safe_psql('shop', q{SELECT snowflake_set_default('lure.orders'); SELECT snowflake_set_default('lure.orders')});
is($node->safe_psql('shop', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'attacker'}), 'f', 'nothing of an owner ran as superuser');
$node->safe_psql('shop', 'DROP SCHEMA lure CASCADE');

# Another role was first to use a name: creating the extension fails, or all objects are
# the extension's own.
my $n = 0;
for my $object (
	'FUNCTION %s.snowflake_nextval() RETURNS bigint LANGUAGE sql AS $$SELECT 1::bigint$$',
	'SEQUENCE %s.snowflake_default',
	'VIEW %s.pg_stat_snowflake AS SELECT 1 AS x')
{
	my $schema = 'shared' . $n++;
	$node->safe_psql('copy', "CREATE SCHEMA $schema AUTHORIZATION attacker; GRANT ALL ON SCHEMA $schema TO owner");
	can('attacker', sprintf("CREATE $object", $schema), 'copy');
	my ($code) = as('owner', "CREATE EXTENSION snowflake_id SCHEMA $schema", 'copy');
	like($code, qr/^(?:42723|42P07|42501)$/, "taken name in the schema: refused ($code)");
	is($node->safe_psql('copy', q{SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_id'}), '0', 'and nothing is left');
}
$node->safe_psql('copy', 'CREATE SCHEMA trap AUTHORIZATION attacker');
can('attacker', q{CREATE FUNCTION trap.setval(regclass, bigint, boolean) RETURNS bigint LANGUAGE plpgsql
	AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$}, 'copy');
$node->safe_psql('copy', 'GRANT USAGE ON SCHEMA trap TO owner; CREATE SCHEMA own AUTHORIZATION owner');
can('owner', 'SET search_path = trap, pg_catalog; CREATE EXTENSION snowflake_id SCHEMA own; DROP EXTENSION snowflake_id', 'copy');

# Nor are operators and functions taken that somebody else made in the schema before, for
# types that fit better than those in pg_catalog: a role that reads a view would run them.
my $folder = $node->config_data('--sharedir') . '/extension';
my ($version) = slurp_file("$folder/snowflake_id.control") =~ /^default_version = '(.+)'/m;
my %called = map { $_ => 1 } map { slurp_file("$folder/$_--$version.sql") =~ /\b([a-z]\w+)\s*\(/g } 'snowflake_id', 'snowflake_id_convert';

# Fills the schema `planted` of a database with functions and operators of an attacker.
sub plant
{
	my ($database) = @_;
	my ($code, undef, $err) = as('attacker', sprintf(q{
		DO $do$
		DECLARE
			types text[] := '{bigint,integer,smallint,numeric,double precision,text,text[],name,oid,regclass,boolean,timestamptz,interval,jsonb,uuid,int8range,int8multirange}';
			of text; l text; r text;
		BEGIN
			SET LOCAL search_path = planted; SET LOCAL check_function_bodies = off;
			FOREACH l IN ARRAY types LOOP
				FOREACH r IN ARRAY types LOOP
					EXECUTE pg_catalog.format('CREATE FUNCTION planted_same(%%1$s, %%2$s) RETURNS boolean LANGUAGE sql AS $$SELECT 1/0 = 0$$;
						CREATE FUNCTION planted_other(%%1$s, %%2$s) RETURNS %%1$s LANGUAGE sql AS $$SELECT NULL::%%1$s$$', l, r);
					FOREACH of IN ARRAY '{=,<>,<,<=,>,>=,@>,<@,&&,~,~~,!~,^@}'::text[] LOOP
						EXECUTE pg_catalog.format('CREATE OPERATOR %%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = planted_same)', of, l, r);
					END LOOP;
					FOREACH of IN ARRAY '{+,-,*,/,%%,||,|,&,->,->>,#>,#>>,>>,<<}'::text[] LOOP
						EXECUTE pg_catalog.format('CREATE OPERATOR %%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = planted_other)', of, l, r);
					END LOOP;
				END LOOP;
				FOR of IN SELECT DISTINCT proname FROM pg_catalog.pg_proc
					WHERE proname OPERATOR(pg_catalog.=) ANY ('{%s}'::name[]) AND pronamespace OPERATOR(pg_catalog.=) 'pg_catalog'::regnamespace::oid
				LOOP
					EXECUTE pg_catalog.format('CREATE FUNCTION %%1$I(%%2$s) RETURNS %%2$s LANGUAGE sql AS $$SELECT NULL::%%2$s$$;
						CREATE FUNCTION %%1$I(%%2$s, %%2$s) RETURNS %%2$s LANGUAGE sql AS $$SELECT NULL::%%2$s$$;
						CREATE FUNCTION %%1$I(%%2$s, integer, integer) RETURNS %%2$s LANGUAGE sql AS $$SELECT NULL::%%2$s$$', of, l);
					IF l OPERATOR(pg_catalog.=) 'text' THEN
						FOR n IN 3..9 LOOP
							EXECUTE pg_catalog.format('CREATE FUNCTION %%I(%%s) RETURNS text LANGUAGE sql AS $$SELECT NULL::text$$',
								of, pg_catalog.rtrim(pg_catalog.repeat('text,', n), ','));
						END LOOP;
					END IF;
				END LOOP;
			END LOOP;
		END $do$}, join ',', sort keys %called), $database);
	is($code, '', "an attacker makes functions and operators in $database") or diag($err);
	my ($operators, $functions) = split /\n/, $node->safe_psql($database, q{
		SELECT count(*) FROM pg_operator WHERE oprnamespace = 'planted'::regnamespace
		UNION ALL SELECT count(*) FROM pg_proc WHERE pronamespace = 'planted'::regnamespace AND proowner = 'attacker'::regrole});
	cmp_ok($operators, '>', 5000, "$operators operators");
	cmp_ok($functions, '>', 2000, "$functions functions");
	return;
}

# Checks that no object of anybody else depends on what plant() made.
sub is_untouched
{
	my ($database, $name) = @_;
	is($node->safe_psql($database, q{
		WITH theirs AS (
			SELECT 'pg_operator'::regclass AS classid, oid FROM pg_operator WHERE oprowner = 'attacker'::regrole
			UNION ALL SELECT 'pg_proc'::regclass, oid FROM pg_proc WHERE proowner = 'attacker'::regrole)
		SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid) || ': ' || pg_describe_object(d.refclassid, d.refobjid, 0)
		FROM pg_depend AS d JOIN theirs AS t ON t.classid = d.refclassid AND t.oid = d.refobjid
		WHERE NOT EXISTS (SELECT FROM theirs AS o WHERE o.classid = d.classid AND o.oid = d.objid)}), '', $name);
	return;
}

$node->safe_psql('postgres', 'CREATE DATABASE planted');
$node->safe_psql('planted', 'CREATE SCHEMA planted; GRANT CREATE, USAGE ON SCHEMA planted TO attacker');
plant('planted');
$node->safe_psql('planted', 'CREATE EXTENSION snowflake_id_convert SCHEMA planted CASCADE');
is_untouched('planted', 'no object of both extensions uses one of them');

# The owner dumps and restores, also what a superuser has granted, and the dump carries the
# mark.
my @connect = ('-U', 'owner', '-h', $node->host, '-p', $node->port);
my $dump = $node->basedir . '/shop.dump';
$node->safe_psql('copy', 'DROP SCHEMA shared0, shared1, shared2, trap, own CASCADE');
$node->safe_psql('shop', 'DROP SCHEMA trap CASCADE; GRANT USAGE ON SEQUENCE snowflake_default TO stranger');
can('owner', q{SELECT snowflake_advance('snowflake_default', now() + interval '10 min')});
$node->command_ok([ 'pg_dump', @connect, '-Fc', '-f', $dump, 'shop' ], 'the owner dumps');
$node->command_ok([ 'pg_restore', @connect, '--exit-on-error', '-d', 'copy', $dump ], 'and restores');
is($node->safe_psql('copy', 'SELECT last_value FROM snowflake_default'),
	$node->safe_psql('shop', 'SELECT last_value FROM snowflake_default'), 'with the mark');
can('owner', 'INSERT INTO orders (item) VALUES (3)', 'copy');
is($node->safe_psql('copy', 'SELECT count(DISTINCT id) FROM orders'), '4', 'and goes on');
is($node->safe_psql('copy', 'SELECT bool_and(id < snowflake_nextval()) FROM orders'), 't', 'above what there was');
can('owner', 'DROP EXTENSION snowflake_id CASCADE', 'copy');

done_testing();
