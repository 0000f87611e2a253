# Tests rules for the catalogs of a database with the extension: who owns its objects, who
# may use them, and that nothing in them is looked up where others may make objects. The
# lists of what is allowed stand below. One database has the extension by its owner, who is
# no superuser; the other one by a superuser who is not the first, and where all default
# privileges and the schema of the extension are against it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

# Who may execute what. Types are as PostgreSQL writes them in short.
my @public = split /\n/, <<'END';
snowflake_advance(regclass, bigint)
snowflake_advance(regclass, timestamptz)
snowflake_alter_generator(regclass, text, text, text, text, text, text, text, text, text, text, text, jsonb)
snowflake_check(regclass, name, double precision, regclass, text, int8multirange, integer)
snowflake_check_horizon()
snowflake_create_generator(text, text, text, text, text, text, text, text, text, text, text, text, text, jsonb)
snowflake_currval()
snowflake_currval(regclass)
snowflake_decode(bigint)
snowflake_decode(bigint, regclass)
snowflake_decode_as(bigint, text)
snowflake_distribute_generator(regclass, text)
snowflake_encode(timestamptz, bigint, bigint)
snowflake_encode(timestamptz, bigint, bigint, regclass)
snowflake_encode_as(timestamptz, bigint, bigint, text)
snowflake_encode_as(timestamptz, jsonb, text)
snowflake_explain(bigint)
snowflake_explain(bigint, regclass)
snowflake_from_text(text, text)
snowflake_horizon()
snowflake_horizon(regclass)
snowflake_mask(bigint, bytea)
snowflake_mask(bigint, bytea, integer)
snowflake_max_id(timestamptz)
snowflake_max_id(timestamptz, regclass)
snowflake_max_id_as(timestamptz, text)
snowflake_min_id(timestamptz)
snowflake_min_id(timestamptz, regclass)
snowflake_min_id_as(timestamptz, text)
snowflake_nextval()
snowflake_nextval(regclass)
snowflake_nextval(regclass, jsonb)
snowflake_nextval_batch(integer)
snowflake_nextval_batch(integer, regclass)
snowflake_nextval_block(integer)
snowflake_nextval_block(integer, regclass)
snowflake_observe(bigint)
snowflake_observe(bigint, regclass)
snowflake_partition(regclass, interval, integer, interval, regclass)
snowflake_set_default(regclass, name, regclass, boolean)
snowflake_set_defaults(regnamespace, regclass)
snowflake_status()
snowflake_timestamp(bigint)
snowflake_timestamp(bigint, regclass)
snowflake_to_text(bigint, text)
snowflake_unmask(bigint, bytea)
snowflake_unmask(text, bytea, integer)
END
# In schema _snowflake.
my @public_internal = split /\n/, <<'END';
adopt_label(regclass)
base_type(oid, integer)
bound(timestamptz, regclass)
check_coordinator(text)
check_default(regclass, name, regclass)
check_limits()
check_limits(regclass)
check_limits_as(text)
check_nodes(regclass, name)
check_references(regclass, name, regclass, integer)
check_table(regclass, name)
check_takes(regclass, name, regclass)
check_values(regclass, name, regclass)
comments(regclass)
count_ids(regclass, name, double precision, text, text, bigint, timestamptz)
create_generator(text, text)
default_generator()
default_generators(regclass)
distribute(regclass, jsonb)
distribution(regclass)
find_relation(text)
fix_settings()
generators()
has_default(text, name, text)
hold()
horizon_held()
inheritance(regclass, name)
instant(bigint)
instant_or_null(bigint)
instant_or_null(bigint, regclass)
instant_or_null_as(bigint, text)
issuer(boolean)
key_column(regclass, name)
keys(regclass)
known_workers()
label(regclass)
lasting(interval)
loaded()
lock_tables(regclass[])
long_holders()
millis(timestamptz)
name(regclass)
next_id_range(regclass, bigint)
on_workers(text)
own_registry()
own_worker()
partition_step(regclass, interval, integer, interval, regclass)
partitions(regclass)
place_generator(text, text, name, jsonb)
pool(jsonb, jsonb, bigint, jsonb)
pool_calls()
present(regclass)
presets()
ranges(jsonb)
read_as_owner(regclass, text)
read_elsewhere()
readiness(text, name)
reads_as_owner(regclass)
refusals(regclass, name, bigint)
run_as_owner(regclass, text)
since(timestamptz)
small_pools()
snowflake_check(regclass, name, double precision, regclass, text, int8multirange, integer)
snowflake_distribute_generator(regclass, text)
snowflake_partition(regclass, interval, integer, interval, regclass)
snowflake_set_default(regclass, name, regclass, boolean)
snowflake_set_defaults(regnamespace, regclass)
snowflake_status()
statistics()
tables_of(regnamespace)
try_generator(text, text, name, jsonb)
undistribute(regclass, name, jsonb)
wanted_size(bigint)
warn_if_not_ready(regclass)
without_usage(regclass, regclass)
worker_of(bigint)
worker_of(bigint, regclass)
worker_of_as(bigint, text)
workers(jsonb, text[], jsonb[], bigint)
END
# Of extension snowflake_id_convert.
my @convert = split /\n/, <<'END';
_snowflake_convert.also_columns(text[], regclass[], boolean)
_snowflake_convert.alter_tables(_snowflake_convert.work)
_snowflake_convert.altered(_snowflake_convert.work)
_snowflake_convert.as_owner(regclass, text)
_snowflake_convert.backfill_columns(_snowflake_convert.key_column[], _snowflake_convert.old_key[], _snowflake_convert.also_column[])
_snowflake_convert.backfill_keys(_snowflake_convert.key_column[], text, name[])
_snowflake_convert.backfill_layout(regclass, bigint)
_snowflake_convert.backfill_map(_snowflake_convert.old_key[], regclass, bigint)
_snowflake_convert.backfill_obstacles(_snowflake_convert.old_key[], regclass, bigint)
_snowflake_convert.backfill_time(regclass, name[])
_snowflake_convert.catalog_state()
_snowflake_convert.check_backfill(boolean, name[], bigint, boolean)
_snowflake_convert.check_copying(regclass)
_snowflake_convert.check_list(anyarray, text)
_snowflake_convert.check_obstacles(_snowflake_convert.request, boolean)
_snowflake_convert.column_roots(regclass, name)
_snowflake_convert.columns(_snowflake_convert.request)
_snowflake_convert.copies(_snowflake_convert.request)
_snowflake_convert.copy_function(regclass)
_snowflake_convert.copy_index(regclass, name[])
_snowflake_convert.copy_name(name)
_snowflake_convert.copy_number(regclass, name, regclass)
_snowflake_convert.dependents(oid[], smallint[])
_snowflake_convert.end_conversion(regclass)
_snowflake_convert.expected_names(name, name)
_snowflake_convert.functions(_snowflake_convert.work)
_snowflake_convert.grants(aclitem[], oid, "char", text, name)
_snowflake_convert.greatest_swap(_snowflake_convert.work, bigint)
_snowflake_convert.groups(_snowflake_convert.work)
_snowflake_convert.hold()
_snowflake_convert.index_columns(regclass)
_snowflake_convert.index_expression(regclass, integer, name[])
_snowflake_convert.is_copy_function(regproc, regclass)
_snowflake_convert.is_copying(regclass)
_snowflake_convert.keys(regclass[], boolean)
_snowflake_convert.literals(_snowflake_convert.object[])
_snowflake_convert.lock_counts(_snowflake_convert.work)
_snowflake_convert.lock_room()
_snowflake_convert.lockers(text[], timestamptz)
_snowflake_convert.min_id(timestamptz, regclass)
_snowflake_convert.moved_foreign_keys(_snowflake_convert.work)
_snowflake_convert.need_read_committed()
_snowflake_convert.node(oid, oid)
_snowflake_convert.notes(_snowflake_convert.work)
_snowflake_convert.notes_of_keys(_snowflake_convert.work)
_snowflake_convert.notes_of_plan(_snowflake_convert.work, _snowflake_convert.request)
_snowflake_convert.objects(oid[], smallint[])
_snowflake_convert.obstacles(_snowflake_convert.work)
_snowflake_convert.obstacles_of_columns(_snowflake_convert.work)
_snowflake_convert.obstacles_of_foreign_keys(_snowflake_convert.work)
_snowflake_convert.obstacles_of_locks(_snowflake_convert.work)
_snowflake_convert.obstacles_of_objects(_snowflake_convert.work)
_snowflake_convert.obstacles_of_old_rows(_snowflake_convert.work)
_snowflake_convert.obstacles_of_rights(_snowflake_convert.work)
_snowflake_convert.obstacles_of_tables(_snowflake_convert.work)
_snowflake_convert.obstacles_of_values(_snowflake_convert.work, boolean)
_snowflake_convert.online_obstacles(_snowflake_convert.request, boolean)
_snowflake_convert.parsed(text, regclass[])
_snowflake_convert.plan(_snowflake_convert.request, name[], bigint, boolean, boolean)
_snowflake_convert.portable(text)
_snowflake_convert.reached(oid[], name[], _snowflake_convert.also_column[])
_snowflake_convert.references_of(_snowflake_convert.work)
_snowflake_convert.remake(regclass, oid)
_snowflake_convert.remake_generated(_snowflake_convert.work)
_snowflake_convert.remake_statistics(_snowflake_convert.work)
_snowflake_convert.request(regclass[], regnamespace[], text[], regclass, boolean)
_snowflake_convert.rows_as_owner(regclass, text)
_snowflake_convert.run(text)
_snowflake_convert.run_as_caller(text)
_snowflake_convert.run_with_locks(text, text[], integer, text)
_snowflake_convert.schema()
_snowflake_convert.snowflake_convert(regclass[], regnamespace[], regclass, boolean, boolean, name[], bigint, text[])
_snowflake_convert.snowflake_convert_backfill(regclass, interval)
_snowflake_convert.snowflake_convert_candidates(regclass[], regnamespace[], boolean)
_snowflake_convert.snowflake_convert_functions(regclass[], regnamespace[])
_snowflake_convert.snowflake_convert_plan(regclass[], regnamespace[], regclass, boolean, boolean, boolean, name[], bigint, text[])
_snowflake_convert.snowflake_convert_run(text, text[], integer)
_snowflake_convert.snowflake_convert_steps(regclass[], regnamespace[], regclass, boolean, text[])
_snowflake_convert.snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer, text[])
_snowflake_convert.snowflake_convert_undo(regclass[], regnamespace[])
_snowflake_convert.steps(_snowflake_convert.request, regnamespace[])
_snowflake_convert.swap(_snowflake_convert.request, text[], integer, bigint[], oid[], smallint[], text[])
_snowflake_convert.swap_plan(_snowflake_convert.request)
_snowflake_convert.swap_result(oid[], oid[], smallint[])
_snowflake_convert.swaps(_snowflake_convert.work, bigint)
_snowflake_convert.tables(regclass[], regnamespace[])
_snowflake_convert.tell(text)
_snowflake_convert.told_keys(oid[], name[], oid[], name[])
_snowflake_convert.wait_until(timestamptz)
_snowflake_convert.wanted_default(regclass)
_snowflake_convert.widened(text, boolean, text[])
_snowflake_convert.work_of(_snowflake_convert.request, name[], bigint, boolean)
snowflake_convert(regclass[], regnamespace[], regclass, boolean, boolean, name[], bigint, text[])
snowflake_convert_backfill(regclass, interval)
snowflake_convert_candidates(regclass[], regnamespace[], boolean)
snowflake_convert_functions(regclass[], regnamespace[])
snowflake_convert_plan(regclass[], regnamespace[], regclass, boolean, boolean, boolean, name[], bigint, text[])
snowflake_convert_run(text, text[], integer)
snowflake_convert_steps(regclass[], regnamespace[], regclass, boolean, text[])
snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer, text[])
snowflake_convert_undo(regclass[], regnamespace[])
END
# Superusers only.
my @nobody = split /\n/, <<'END';
_snowflake.horizon_support(internal)
_snowflake.lease(text, jsonb)
_snowflake.read_registry()
snowflake_accept_clock()
snowflake_check_cluster(text[])
snowflake_create_pool(text, int8range, interval, interval, interval, int8multirange, text, boolean, text)
snowflake_create_registry(text)
snowflake_declare_registry(text)
snowflake_drop_pool(text, text)
snowflake_end_grace_period(text)
snowflake_revoke_worker(text, integer, text)
snowflake_stat_reset()
snowflake_stat_reset(regclass)
END
my %function_grants;
$function_grants{$_} = 'PUBLIC:EXECUTE' for @public, @convert, map { "_snowflake.$_" } @public_internal;
$function_grants{$_} = '' for @nobody;
$function_grants{$_} = 'pg_monitor:EXECUTE' for '_snowflake.ask_registry()', 'snowflake_check_registry()';

my %relation_grants = (
	_snowflake => 'PUBLIC:USAGE',
	_snowflake_convert => 'PUBLIC:USAGE',
	# UPDATE or DELETE of the whole table would let everybody lock it.
	'_snowflake.counted_keys' => 'PUBLIC:SELECT',
	'_snowflake.defaults' => 'PUBLIC:SELECT',
	'_snowflake_convert.conversions' => 'PUBLIC:INSERT PUBLIC:SELECT',
	'_snowflake.here' => '',
	'_snowflake.leased' => 'pg_monitor:SELECT',
	'_snowflake.leases' => '',
	'_snowflake.pools' => '',
	'_snowflake.role_of_server' => 'PUBLIC:SELECT',
	'_snowflake.state' => '',
	'_snowflake.used' => '',
	pg_stat_snowflake => 'PUBLIC:SELECT',
	snowflake_default => 'PUBLIC:SELECT PUBLIC:USAGE pg_database_owner:UPDATE',
	snowflake_generators => 'PUBLIC:SELECT',
	snowflake_horizon_holders => 'PUBLIC:SELECT',
	snowflake_pools => 'pg_monitor:SELECT',
	snowflake_presets => 'PUBLIC:SELECT',
	snowflake_worker => 'PUBLIC:SELECT',
	snowflake_workers => 'pg_monitor:SELECT');

# Functions whose names are bound when they are called and that do without a path of their
# own. A procedure that commits cannot have one; it sets it in each of its transactions, by
# fix_settings(), whose own would undo it, and names all that it calls before with its schema.
my @without_path = split /\n/, <<'END';
_snowflake.fix_settings()
_snowflake.snowflake_partition(regclass, interval, integer, interval, regclass)
_snowflake_convert.run_with_locks(text, text[], integer, text)
_snowflake_convert.snowflake_convert_backfill(regclass, interval)
_snowflake_convert.snowflake_convert_run(text, text[], integer)
_snowflake_convert.snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer, text[])
_snowflake_convert.wait_until(timestamptz)
END

# The objects of both extensions, by catalog.
my $members = q{SELECT d.classid, d.objid FROM pg_depend AS d
	JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE e.extname IN ('snowflake_id', 'snowflake_id_convert') AND d.deptype = 'e'};
# All that has an owner: the objects, their indexes, their types and those of their rows, and
# what holds large values.
my $owned = qq{WITH member AS ($members), class AS (
		SELECT c.oid FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
		UNION SELECT i.indexrelid FROM pg_index AS i JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = i.indrelid
		UNION SELECT c.reltoastrelid FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid)
	SELECT 'schema ' || nspname AS object, nspowner AS owner FROM pg_namespace JOIN member ON classid = 'pg_namespace'::regclass AND objid = pg_namespace.oid
	UNION ALL SELECT 'relation ' || relname, relowner FROM pg_class JOIN class USING (oid)
	UNION ALL SELECT 'type ' || typname, typowner FROM pg_type WHERE typrelid IN (SELECT oid FROM class)
		OR oid IN (SELECT objid FROM member WHERE classid = 'pg_type'::regclass)
	UNION ALL SELECT 'function ' || p.oid::regprocedure, proowner FROM pg_proc AS p JOIN member ON classid = 'pg_proc'::regclass AND objid = p.oid};

my ($node, $database);
sub sql { my ($sql) = @_; return $node->safe_psql($database, "SET search_path = pg_catalog; $sql"); }

# Writes a signature as the lists above have it.
sub short
{
	my ($signature, $schema) = @_;
	$signature =~ s/timestamp with time zone/timestamptz/g;
	$signature =~ s/,\s*/, /g;
	$signature =~ s/^\Q$schema\E\.//;
	return $signature;
}

# Returns the grants to others than the owner, by object.
sub grants_of
{
	my ($query, $schema) = @_;
	my %grants;
	for (split /\n/, sql("SELECT o.name || '|' || coalesce((
			SELECT string_agg(CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END || ':' || a.privilege_type
				|| CASE WHEN a.is_grantable THEN '*' ELSE '' END, ' ' ORDER BY a.grantee, a.privilege_type)
			FROM aclexplode(o.acl) AS a WHERE a.grantee <> o.owner), '')
		FROM ($query) AS o (name, owner, acl)"))
	{
		my ($name, $list) = /^(.*)\|(.*)$/;
		$grants{ short($name, $schema) } = $list;
	}
	return \%grants;
}

sub check_rules
{
	my ($what, $schema) = @_;

	# 1. One owner.
	cmp_ok(sql("SELECT count(*) FROM ($owned) AS o"), '>', 190, "$what: what has an owner");
	is(sql("SELECT object, owner::regrole FROM ($owned) AS o WHERE owner <> 10"), '', "$what: the first superuser owns it");
	# From PostgreSQL 18 on, the types of the rows of tables and views are members too.
	is(sql("SELECT DISTINCT classid::regclass FROM ($members) AS m LEFT JOIN pg_type AS t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
		LEFT JOIN pg_type AS e ON e.oid = t.typelem
		WHERE classid NOT IN ('pg_class'::regclass, 'pg_namespace'::regclass, 'pg_proc'::regclass) AND coalesce(t.typrelid, 0) = 0 AND coalesce(e.typrelid, 0) = 0"),
		'', "$what: no object of another kind");

	# 2. and 3. Functions run as their callers, and look up names nowhere else.
	is(sql("SELECT p.oid::regprocedure FROM pg_proc AS p JOIN ($members) AS m ON m.objid = p.oid WHERE p.prosecdef"), '', "$what: no SECURITY DEFINER");
	is(join("\n", sort map { short($_, $schema) } split /\n/, sql("SELECT p.oid::regprocedure
		FROM pg_proc AS p JOIN ($members) AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
		JOIN pg_language AS l ON l.oid = p.prolang
		WHERE l.lanname <> 'c' AND p.prosqlbody IS NULL
		  AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)")),
		join("\n", sort @without_path), "$what: functions without a path of their own");
	# The types of their variables are looked up before a path is set: keywords, or with their schema.
	is(join("\n", grep { !/^\s*(?:--|$)/ && !/^\s*\w+ (?:constant )?(?:(?:integer|bigint|smallint|boolean)\b|pg_catalog\.|_snowflake_convert\.)/ } split /\n/,
		sql("SELECT substring(p.prosrc FROM '^\\s*DECLARE\\n(.*?)\\nBEGIN\\n') FROM pg_proc AS p JOIN ($members) AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
		JOIN pg_language AS l ON l.oid = p.prolang WHERE l.lanname = 'plpgsql' AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)
		AND p.prosrc ~ '^\\s*DECLARE\\n'")),
		'', "$what: nor types of variables that others can make");

	# 4. Grants.
	my $functions = grants_of("SELECT p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
		FROM pg_proc AS p JOIN ($members) AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid", $schema);
	is_deeply($functions, \%function_grants, "$what: who may execute functions")
	  or diag(map { "$_: " . ($functions->{$_} // 'is not there') . ', expected: ' . ($function_grants{$_} // 'none, not in the list') . "\n" }
		grep { ($functions->{$_} // '-') ne ($function_grants{$_} // '-') } sort keys %{ { %$functions, %function_grants } });
	# What PUBLIC may call, or a view in its hands, calls with the rights of its caller: so
	# PUBLIC may call that too. A function with a body of its own, or a view, has it in pg_depend.
	my $calls = "WITH member AS ($members), open AS (
			SELECT p.oid, p.prosrc, p.prosqlbody FROM pg_proc AS p JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
			CROSS JOIN aclexplode(p.proacl) AS a WHERE a.grantee = 0)
		SELECT p.oid::regprocedure::text AS caller, d.refobjid AS callee FROM open AS p JOIN pg_depend AS d
			ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_proc'::regclass AND p.prosqlbody IS NOT NULL
		UNION SELECT r.ev_class::regclass::text, d.refobjid FROM pg_rewrite AS r JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = r.ev_class
			JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_proc'::regclass
		UNION SELECT p.oid::regprocedure::text, c.oid FROM open AS p
			CROSS JOIN regexp_matches(regexp_replace(p.prosrc, '--[^\\n]*', '', 'g'), '\\m(_snowflake\\w*|$schema)\\.(\\w+)\\s*\\(', 'g') AS x (found)
			JOIN pg_proc AS c ON c.proname = x.found[2] AND c.pronamespace = x.found[1]::regnamespace";
	cmp_ok(sql("SELECT count(DISTINCT callee) FROM ($calls) AS c"), '>', 90, "$what: functions that others call");
	is(sql("SELECT caller, callee::regprocedure FROM ($calls) AS c JOIN ($members) AS m ON m.classid = 'pg_proc'::regclass AND m.objid = callee
		WHERE NOT EXISTS (SELECT FROM pg_proc AS p CROSS JOIN aclexplode(p.proacl) AS a WHERE p.oid = callee AND a.grantee = 0) ORDER BY 1, 2"),
		'', "$what: PUBLIC may call what its functions call");
	my $relations = grants_of("SELECT c.oid::regclass::text, c.relowner, coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", c.relowner))
		FROM pg_class AS c JOIN ($members) AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
		UNION ALL SELECT n.nspname, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner))
		FROM pg_namespace AS n JOIN ($members) AS m ON m.classid = 'pg_namespace'::regclass AND m.objid = n.oid", $schema);
	is_deeply($relations, \%relation_grants, "$what: who may use tables, views and schemas") or diag explain $relations;
	is(sql("SELECT a.attrelid::regclass || '.' || a.attname, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END, g.privilege_type, i.initprivs = a.attacl
		FROM pg_attribute AS a JOIN ($members) AS m ON m.objid = a.attrelid CROSS JOIN aclexplode(a.attacl) AS g
		LEFT JOIN pg_init_privs AS i ON (i.classoid, i.objoid, i.objsubid) = ('pg_class'::regclass, a.attrelid, a.attnum)
		WHERE m.classid = 'pg_class'::regclass ORDER BY 1"),
		join("\n", map { "_snowflake_convert.conversions.$_|PUBLIC|UPDATE|t" } qw(ended filled pages pages_done rows_done rows_per_second started to_validate updated)),
		"$what: grants on columns");
	is(sql("SELECT count(*) FROM pg_init_privs AS i JOIN ($members) AS m ON (m.classid, m.objid) = (i.classoid, i.objoid)
		LEFT JOIN pg_proc AS p ON i.classoid = 'pg_proc'::regclass AND p.oid = i.objoid
		LEFT JOIN pg_class AS c ON i.classoid = 'pg_class'::regclass AND c.oid = i.objoid
		LEFT JOIN pg_namespace AS n ON i.classoid = 'pg_namespace'::regclass AND n.oid = i.objoid
		WHERE i.initprivs = coalesce(p.proacl, c.relacl, n.nspacl)"), sql("SELECT count(*) FROM ($members) AS m WHERE classid <> 'pg_type'::regclass"),
		"$what: a dump has no grant of the extension");

	# A role without any right of its own can lock no table or view against others, whose
	# statements take ROW EXCLUSIVE at most. Sequences cannot be locked by name.
	my @lockable = split /\n/, sql("SELECT c.oid::regclass FROM pg_class AS c JOIN ($members) AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid WHERE c.relkind <> 'S'");
	cmp_ok(scalar @lockable, '>', 10, "$what: tables and views");
	my %locked;
	for my $relation (@lockable)
	{
		$locked{ (error_of($node, "SET ROLE friend; BEGIN; LOCK TABLE $relation IN $_ MODE", $database))[0] } .= " $relation"
			for 'SHARE UPDATE EXCLUSIVE', 'SHARE', 'ACCESS EXCLUSIVE';
	}
	is_deeply([ keys %locked ], ['42501'], "$what: nobody locks them") or diag explain \%locked;

	# 5. and 6. Dumps, and the schema.
	is(sql("SELECT c::regclass FROM pg_extension, unnest(extconfig) AS c WHERE extname = 'snowflake_id'"), "$schema.snowflake_default",
		"$what: of the tables, a dump has no row");
	is(sql("SELECT rolname FROM pg_roles WHERE NOT rolsuper AND (has_schema_privilege(oid, '_snowflake', 'CREATE') OR has_schema_privilege(oid, '_snowflake_convert', 'CREATE'))"), '',
		"$what: no other role may make objects in schemas _snowflake and _snowflake_convert");
	is(sql("SELECT n.nspname || '.' || p.proname FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
			WHERE n.nspname IN ('_snowflake', '_snowflake_convert') AND p.oid NOT IN (SELECT objid FROM ($members) AS m)
		UNION ALL SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relnamespace IN ('_snowflake'::regnamespace, '_snowflake_convert'::regnamespace) AND c.relkind IN ('r', 'v', 'm', 'S', 'f', 'p')
			AND c.oid NOT IN (SELECT objid FROM ($members) AS m)"), '', "$what: nor are any there");

	# 7. What is bound. pg_depend has no rows of what is in pg_catalog from the start, which
	# nobody can replace.
	my $bound = "WITH member AS ($members), source AS (
			SELECT 'pg_rewrite'::regclass AS classid, r.oid AS objid FROM pg_rewrite AS r JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = r.ev_class
			UNION ALL SELECT 'pg_policy'::regclass, o.oid FROM pg_policy AS o JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = o.polrelid
			UNION ALL SELECT 'pg_attrdef'::regclass, f.oid FROM pg_attrdef AS f JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = f.adrelid
			UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint AS k JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = k.conrelid
			UNION ALL SELECT 'pg_class'::regclass, i.indexrelid FROM pg_index AS i JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = i.indrelid
			UNION ALL SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger AS t JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = t.tgrelid
			UNION ALL SELECT m.* FROM member AS m)
		SELECT s.classid, s.objid, d.refclassid, d.refobjid, d.refobjsubid FROM source AS s JOIN pg_depend AS d ON (d.classid, d.objid) = (s.classid, s.objid)
		WHERE d.deptype <> 'e'";
	cmp_ok(sql("SELECT count(*) FROM ($bound) AS b WHERE classid <> 'pg_proc'::regclass AND refclassid = 'pg_proc'::regclass"), '>', 5, "$what: what views and others use");
	is(sql("SELECT pg_describe_object(classid, objid, 0), pg_describe_object(refclassid, refobjid, refobjsubid) FROM ($bound) AS b
		WHERE (refclassid, refobjid) NOT IN (SELECT * FROM ($members) AS m)
		  -- What initdb has made, the schema in which the extension is, and parts of its tables.
		  AND refobjid >= 16384
		  AND NOT (refclassid = 'pg_namespace'::regclass AND refobjid = '$schema'::regnamespace)
		  AND NOT (refclassid = 'pg_type'::regclass AND refobjid IN (SELECT oid FROM pg_type WHERE typrelid IN (SELECT objid FROM ($members) AS m)
			OR typelem IN (SELECT objid FROM ($members) AS m WHERE classid = 'pg_type'::regclass)))
		  AND NOT (refclassid = 'pg_constraint'::regclass AND refobjid IN (SELECT oid FROM pg_constraint WHERE conrelid IN (SELECT objid FROM ($members) AS m)))"),
		'', "$what: nothing of others is bound");

	# 8. What is looked up by its name. Aliases of tables look like schemas, so what counts is
	# what is called, and what follows a word that a relation follows. The schema in '%s.name('
	# is an argument of format().
	my $names = '([a-z_][a-z0-9_$]*)\.[a-z_][a-z0-9_$]*';
	my $sources = "SELECT p.oid::regprocedure::text AS name, regexp_replace(p.prosrc, '--[^\\n]*', '', 'g') AS source FROM pg_proc AS p
		JOIN ($members) AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid JOIN pg_language AS l ON l.oid = p.prolang
		WHERE l.lanname IN ('sql', 'plpgsql') AND p.prosqlbody IS NULL";
	my $named = "SELECT s.name, x.found[1] AS schema, x.found FROM ($sources) AS s, regexp_matches(s.source, '(?<!%)\\m$names\\s*\\(', 'gi') AS x (found)
		UNION ALL SELECT s.name, x.found[2], x.found FROM ($sources) AS s,
			regexp_matches(s.source, '\\m(?<!DISTINCT\\s)(FROM|JOIN|UPDATE|INTO|CALL|LOCK|TABLE)\\s+$names', 'gi') AS x (found)
		UNION ALL SELECT s.name, x.found[1], x.found FROM ($sources) AS s, regexp_matches(s.source, '''$names''\\s*::\\s*reg', 'gi') AS x (found)";
	cmp_ok(sql("SELECT count(*) FROM ($named) AS n WHERE schema = '_snowflake'"), '>', 100, "$what: names with schemas are found");
	is(sql("SELECT name, schema FROM ($named) AS n WHERE lower(schema) NOT IN ('pg_catalog', 'pg_temp', '_snowflake', '_snowflake_convert', '$schema')"), '',
		"$what: no other schema is named");
	# The owner of that schema may rename it, and make another one of its name. So nobody names it
	# when a function runs.
	is(sql("SELECT p.oid::regprocedure FROM pg_proc AS p JOIN ($members) AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
		WHERE p.prosqlbody IS NULL AND strpos(p.prosrc, '$schema') > 0 ORDER BY 1"), '', "$what: no function names the extension's schema when it runs");
	is(sql("SELECT name FROM ($named) AS n WHERE schema = '_snowflake_convert' AND name !~ '^(_snowflake_convert\\.|$schema\\.snowflake_convert)'"), '',
		"$what: snowflake_id calls nothing of snowflake_id_convert");

	# 9. Nothing that looks names up while it runs is reached before a guard. What users and views call is in C or has its names bound. Such
	# a function calls others of its kind only, or the guard and then the function of its own name, which the planner neither runs nor
	# puts in its place.
	my $entries = "SELECT p.*, l.lanname AS language, pg_get_function_sqlbody(p.oid) AS body,
			coalesce(pg_get_function_sqlbody(p.oid), '') ~ ('^BEGIN ATOMIC\\n\\s*SELECT (_snowflake(?:_convert)?)\\.hold\\(\\) AS hold;\\n\\s*SELECT [^;]*\\m\\1\\.' || p.proname || '\\([^;()]*\\)[^;()]*(\\([^;()]*\\))?;\\nEND\\Z') AS is_guarded
		FROM pg_proc AS p JOIN ($members) AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid JOIN pg_language AS l ON l.oid = p.prolang";
	my $late = "SELECT * FROM ($entries) AS e WHERE language <> 'c' AND prosqlbody IS NULL";
	is(sql("SELECT oid::regprocedure FROM ($late) AS e WHERE pronamespace = '$schema'::regnamespace"), '', "$what: users call nothing that looks names up while it runs");
	is(sql("SELECT count(*) FROM ($entries) AS e WHERE is_guarded"), 11, "$what: functions that begin with the guard");
	is(sql("SELECT e.oid::regprocedure FROM ($entries) AS e LEFT JOIN pg_proc AS i ON i.proname = e.proname AND i.proargtypes = e.proargtypes
			AND i.pronamespace = substring(e.body FROM '(\\w+)\\.hold')::regnamespace
		WHERE e.body ~ '\\.hold\\(' AND (e.prokind = 'f' AND i.provolatile IS DISTINCT FROM e.provolatile OR i.prolang IS DISTINCT FROM (SELECT oid FROM pg_language WHERE lanname = 'plpgsql')
			OR i.prosupport <> 0 OR i.provolatile = 'i' OR NOT e.is_guarded OR e.pronamespace <> '$schema'::regnamespace)"), '',
		"$what: each calls a function of the same name that the planner cannot run");
	is(sql("SELECT string_agg(DISTINCT prosrc, ' ') FROM ($entries) AS e WHERE prokind = 'p' AND pronamespace = '$schema'::regnamespace AND prosqlbody IS NULL"), 'snowflake_internal_committing_procedure snowflake_internal_held_procedure',
		"$what: and procedures that commit");
	is(sql("SELECT s.classid, s.objid, s.refobjid::regprocedure FROM ($bound) AS s JOIN ($late) AS e ON s.refclassid = 'pg_proc'::regclass AND s.refobjid = e.oid
		WHERE s.classid <> 'pg_proc'::regclass OR s.objid NOT IN (SELECT oid FROM ($entries) AS e WHERE is_guarded)"), '', "$what: nothing else that is bound calls such a function");
	return;
}

$node = new_node('main', 7);
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE boss LOGIN; CREATE ROLE friend LOGIN; CREATE ROLE admin SUPERUSER LOGIN; CREATE ROLE early LOGIN;
	CREATE DATABASE shop OWNER boss; CREATE DATABASE trap OWNER boss');

$database = 'shop';
$node->safe_psql('shop', 'CREATE SCHEMA telltale; CREATE EXTENSION snowflake_id_convert SCHEMA telltale CASCADE', extra_params => [ '-U', 'boss' ]);
is(sql("SELECT extowner::regrole FROM pg_extension WHERE extname = 'snowflake_id'"), 'boss', 'the owner of a database has made the extension');
check_rules('made by an owner', 'telltale');

# By a superuser who is not the first, under default privileges of everybody, into a schema of
# the owner that has operators and functions which fit better than those of PostgreSQL.
$database = 'trap';
$node->safe_psql('trap', <<'END', extra_params => [ '-U', 'boss' ]);
CREATE SCHEMA telltale;
CREATE FUNCTION telltale.planted() RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION telltale.contains(int8range, bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE OPERATOR telltale.@> (LEFTARG = int8range, RIGHTARG = bigint, FUNCTION = telltale.contains);
CREATE FUNCTION telltale.minus(int8multirange, int8multirange) RETURNS int8multirange LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE OPERATOR telltale.- (LEFTARG = int8multirange, RIGHTARG = int8multirange, FUNCTION = telltale.minus);
CREATE FUNCTION telltale.append(bigint, text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $2';
CREATE OPERATOR telltale.|| (LEFTARG = bigint, RIGHTARG = text, FUNCTION = telltale.append);
CREATE FUNCTION telltale.same(regclass, regclass) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE OPERATOR telltale.= (LEFTARG = regclass, RIGHTARG = regclass, FUNCTION = telltale.same);
CREATE FUNCTION telltale.snowflake_set_default(regclass, name, regclass) RETURNS text LANGUAGE sql AS 'SELECT NULL';
CREATE FUNCTION telltale.snowflake_encode(timestamptz, bigint, integer, regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
CREATE FUNCTION telltale.snowflake_convert_run(text) RETURNS text LANGUAGE sql AS 'SELECT NULL';
CREATE FUNCTION telltale.unnest(int8multirange) RETURNS SETOF int8range LANGUAGE sql IMMUTABLE AS 'SELECT NULL::int8range';
CREATE FUNCTION telltale.lower(int8range) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1::bigint';
CREATE FUNCTION telltale.acldefault("char", oid) RETURNS aclitem[] LANGUAGE sql IMMUTABLE AS $$SELECT '{}'::aclitem[]$$;
END
for my $maker (qw(boss admin postgres))
{
	my $role = $maker eq 'postgres' ? sql('SELECT 10::oid::regrole') : $maker;
	$node->safe_psql('trap', "SET allow_system_table_mods = on; " . join '; ', map { my $kind = $_;
		map { "ALTER DEFAULT PRIVILEGES FOR ROLE $role GRANT ALL ON $kind TO $_" } 'PUBLIC', 'friend', 'boss', 'admin WITH GRANT OPTION' }
		qw(SCHEMAS TABLES FUNCTIONS SEQUENCES TYPES));
	$node->safe_psql('trap', "ALTER DEFAULT PRIVILEGES FOR ROLE $role REVOKE ALL ON FUNCTIONS FROM $role");
}
$node->safe_psql('trap', 'CREATE EXTENSION snowflake_id_convert SCHEMA telltale CASCADE', extra_params => [ '-U', 'admin' ]);
is(sql("SELECT extowner::regrole FROM pg_extension WHERE extname = 'snowflake_id'"), 'admin', 'another superuser has made the extension');
check_rules('made by another superuser', 'telltale');

# What PUBLIC may, works; and the owner of the database still dumps it.
my $as_friend = [ '-U', 'friend' ];
$node->safe_psql('trap', 'GRANT USAGE ON SCHEMA telltale TO PUBLIC', extra_params => [ '-U', 'boss' ]);
like($node->safe_psql('trap', 'SELECT telltale.snowflake_nextval()', extra_params => $as_friend), qr/^\d+$/, 'a role takes an ID');
is((error_of($node, 'SET SESSION AUTHORIZATION friend; SELECT * FROM _snowflake.leases', 'trap'))[0], '42501', 'and may not read the registry');
my $folder = PostgreSQL::Test::Utils::tempdir();
for my $name (qw(shop trap))
{
	command_ok([ 'pg_dump', '-U', 'boss', '-d', $node->connstr($name), '-f', "$folder/$name.sql" ], "the owner dumps $name");
	unlike(slurp_file("$folder/$name.sql"), qr/^(GRANT|REVOKE) .*snowflake/m, "$name: without grants of the extension");
}

# The same by the first superuser, under the same default privileges, and by the owner again.
for my $maker ([ sql('SELECT 10::oid::regrole'), 'the first superuser' ], [ 'boss', 'an owner, with default privileges' ])
{
	$node->safe_psql('trap', 'DROP EXTENSION snowflake_id CASCADE');
	$node->safe_psql('trap', 'CREATE EXTENSION snowflake_id_convert SCHEMA telltale CASCADE', extra_params => [ '-U', $maker->[0] ]);
	check_rules("made by $maker->[1]", 'telltale');
}

# Whatever somebody changes while the script takes the privileges from all others is noticed.
$node->safe_psql('postgres', 'CREATE DATABASE race OWNER boss');
$database = 'race';
$node->safe_psql('race', <<'END');
CREATE SCHEMA telltale;
CREATE FUNCTION public.grant_again() RETURNS event_trigger LANGUAGE plpgsql AS
	$$BEGIN GRANT EXECUTE ON FUNCTION _snowflake.lease(text, jsonb) TO friend; END$$;
CREATE EVENT TRIGGER grants_again ON ddl_command_end WHEN TAG IN ('REVOKE') EXECUTE FUNCTION public.grant_again();
END
my ($code, $text) = error_of($node, 'CREATE EXTENSION snowflake_id_convert SCHEMA telltale CASCADE', 'race');
is($code, '55000', 'a privilege that is granted meanwhile is noticed');
like($text, qr/not all objects of the extension could be taken.*Create the extension again/s, 'and what to do');
is(sql("SELECT count(*) FROM pg_namespace WHERE nspname = '_snowflake'"), '0', 'the extension was not made');
$node->safe_psql('race', 'DROP EVENT TRIGGER grants_again; CREATE EXTENSION snowflake_id_convert SCHEMA telltale CASCADE');
check_rules('made again', 'telltale');

done_testing();
