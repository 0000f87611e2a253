# Tests that no function, view, procedure or trigger of the extensions looks a name up in the path
# of the session that calls it. Two schemas of another role are in that path: one has functions and
# operators with the same arguments as those of pg_catalog, and comes first; the other one, behind
# pg_catalog, has operators that fit better than any of pg_catalog. Each says so in the log when it
# runs. Everything is called by a superuser, with qualified names.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Registry;
use Pages;
use Snowflake;

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 10\nsnowflake_id.max_clock_jump = '2 d'");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN; CREATE DATABASE shop OWNER owner');
$node->safe_psql('shop', 'CREATE EXTENSION snowflake_id; CREATE EXTENSION snowflake_id_convert');
$node->safe_psql('shop', q{SET ROLE owner; CREATE SCHEMA equal; CREATE SCHEMA better; GRANT USAGE ON SCHEMA equal, better TO PUBLIC});

# Types whose values come in and go out without a size.
my $types = q{'bool', 'int2', 'int4', 'int8', 'oid', 'regclass', 'name', 'text', 'timestamptz', 'interval', 'float8', 'numeric',
	'jsonb', 'int8range', 'int8multirange', 'tid', 'xid', 'bpchar', 'regproc', 'regtype', 'regrole', 'regnamespace', '"char"', 'int2vector',
	'_text', '_oid', '_int2', '_int8', '_regclass', 'int4range', 'date', 'timestamp', 'pg_lsn', 'uuid', 'bytea'};
my $planted = $node->safe_psql('shop', <<"END", extra_params => [ '-U', 'owner' ]);
SET check_function_bodies = off;
CREATE FUNCTION pg_temp.plant(schema text, name text, arguments text[], result text, original text) RETURNS boolean LANGUAGE plpgsql AS \$\$
BEGIN
	EXECUTE pg_catalog.format('CREATE FUNCTION %I.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', schema, name,
		pg_catalog.array_to_string(arguments, ', '), result,
		pg_catalog.format('BEGIN RAISE LOG %L; RETURN %s; END', 'planted: ' || name || '(' || pg_catalog.array_to_string(arguments, ', ') || ')', original));
	RETURN true;
EXCEPTION WHEN OTHERS THEN
	RETURN false;
END \$\$;
CREATE FUNCTION pg_temp.plant_operator(schema text, name text, place bigint, lefts text, rights text, result text, original text) RETURNS boolean LANGUAGE plpgsql AS \$\$
BEGIN
	IF NOT pg_temp.plant(schema, 'op_' || place, CASE WHEN lefts IS NULL THEN ARRAY[rights] ELSE ARRAY[lefts, rights] END, result, original) THEN
		RETURN false;
	END IF;
	EXECUTE pg_catalog.format('CREATE OPERATOR %I.%s (%s rightarg = %s, function = %I.%I)', schema, name,
		CASE WHEN lefts IS NULL THEN '' ELSE 'leftarg = ' || lefts || ',' END, rights, schema, 'op_' || place);
	RETURN true;
EXCEPTION WHEN OTHERS THEN
	RETURN false;
END \$\$;
SELECT count(*) FILTER (WHERE pg_temp.plant('equal', p.proname, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) AS t),
		format_type(p.prorettype, NULL),
		format('pg_catalog.%I(%s)', p.proname, (SELECT string_agg('\$' || n, ', ') FROM generate_series(1, p.pronargs) AS n))))
FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset AND p.provariadic = 0
	AND p.proname !~ '(in|out|recv|send)\$' AND p.proname NOT LIKE 'pg\\_stat%'
	AND NOT EXISTS (SELECT FROM unnest(p.proargtypes::oid[] || p.prorettype) AS a JOIN pg_type AS t ON t.oid = a WHERE t.typtype = 'p' AND t.typname <> 'void');
SELECT count(*) FILTER (WHERE pg_temp.plant_operator('equal', o.oprname, o.oid::bigint, format_type(nullif(o.oprleft, 0), NULL), format_type(o.oprright, NULL),
		format_type(o.oprresult, NULL), CASE WHEN o.oprleft = 0 THEN format('OPERATOR(pg_catalog.%s) \$1', o.oprname)
			ELSE format('\$1 OPERATOR(pg_catalog.%s) \$2', o.oprname) END))
FROM pg_operator AS o JOIN pg_type AS l ON l.oid = coalesce(nullif(o.oprleft, 0), o.oprright) JOIN pg_type AS r ON r.oid = o.oprright
WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND 'p' NOT IN (l.typtype, r.typtype) AND o.oprresult <> 0;
SELECT count(*) FILTER (WHERE pg_temp.plant_operator('better', n.name, 100000000 + row_number, l, r, n.result, n.original))
FROM (SELECT row_number() OVER (), * FROM unnest(ARRAY[$types]) AS l CROSS JOIN unnest(ARRAY[$types]) AS r
	CROSS JOIN (VALUES ('=', 'boolean', '\$1::text = \$2::text'), ('<>', 'boolean', '\$1::text <> \$2::text'), ('<', 'boolean', '\$1::text < \$2::text'),
		('>=', 'boolean', '\$1::text >= \$2::text'), ('||', 'text', '\$1::text || \$2::text'), ('+', 'text', '\$1::text'), ('-', 'text', '\$1::text'),
		('\@>', 'boolean', 'true'), ('~', 'boolean', '\$1::text ~ \$2::text'),
		('/', 'text', '\$1::text'), ('*', 'text', '\$1::text'), ('%', 'text', '\$1::text'), ('>', 'boolean', '\$1::text > \$2::text'), ('<=', 'boolean', '\$1::text <= \$2::text')) AS n (name, result, original)) AS n
WHERE NOT EXISTS (SELECT FROM pg_operator AS o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = n.name
	AND o.oprleft = l::regtype AND o.oprright = r::regtype);
SELECT count(*) FILTER (WHERE pg_temp.plant('better', n, ARRAY[t], 'bigint', '1'))
FROM unnest(ARRAY[$types]) AS t CROSS JOIN unnest('{count,max,min,sum,length,to_timestamp,date_part,replace,format}'::text[]) AS n
WHERE NOT EXISTS (SELECT FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = n AND p.proargtypes[0] = t::regtype AND p.pronargs = 1);
END
my ($functions, $operators, $better, $fitting) = split /\n/, $planted;
cmp_ok($functions, '>', 1000, "$functions functions of pg_catalog have a double");
cmp_ok($operators, '>', 500, "$operators operators");
cmp_ok($better, '>', 5000, "$better operators fit better");
cmp_ok($fitting, '>', 100, "and $fitting functions");

# They do run where a name is looked up in the path.
sub hits
{
	my ($from) = @_;
	my $log = slurp_file($node->logfile, $from);
	my %hits;
	$hits{$1}++ while $log =~ /LOG:  (planted: \S.*)$/mg;
	return join ', ', sort keys %hits;
}
my @path = ('SET search_path = equal, pg_catalog, better', 'SET search_path = pg_catalog, better, equal', 'SET search_path = equal, better');
for my $case ([ $path[0], 'SELECT abs(1), 1 + 1', qr/abs\(integer\).*op_551/ ], [ $path[1], q{SELECT 1::oid = 1::int4}, qr/op_1\d+\(oid, int4\)/ ])
{
	my $from = -s $node->logfile;
	$node->safe_psql('shop', "$case->[0]; $case->[1]");
	like(hits($from), $case->[2], "the path counts: $case->[1]");
}

# What the calls need.
my $sql = <<'END';
CREATE TABLE public.orders (id bigint PRIMARY KEY DEFAULT public.snowflake_nextval(), note text);
CREATE TABLE public.lines (id bigint PRIMARY KEY, note text);
CREATE TABLE public.polled (id bigint PRIMARY KEY DEFAULT public.snowflake_nextval('public.own'), note text);
CREATE TRIGGER horizon BEFORE INSERT ON public.polled FOR EACH ROW EXECUTE FUNCTION public.snowflake_check_horizon();
CREATE TABLE public.named (id bigint PRIMARY KEY, note text);
CREATE TRIGGER horizon BEFORE INSERT ON public.named FOR EACH ROW EXECUTE FUNCTION public.snowflake_check_horizon('id', 'public.own');
CREATE TABLE public.parts (id bigint PRIMARY KEY DEFAULT public.snowflake_nextval()) PARTITION BY RANGE (id);
CREATE TABLE public.old (id serial PRIMARY KEY, note text);
CREATE TABLE public.refers (id int PRIMARY KEY, old_id int REFERENCES public.old);
INSERT INTO public.old (note) SELECT 'x' FROM pg_catalog.generate_series(1, 100);
CREATE TABLE public.online (id serial PRIMARY KEY, note text);
INSERT INTO public.online (note) SELECT 'x' FROM pg_catalog.generate_series(1, 5000);
END
my $owned = $sql =~ /TABLE (public\.\w+)/g;
$node->safe_psql('shop', q{SELECT public.snowflake_create_generator('public.own', 'preset=default')});
$node->safe_psql('shop', $sql);
my $here = sprintf q{host='%s' port=%s dbname=shop}, $node->host, $node->port;
my $at = q{timestamptz '2026-01-01 00:00:00Z'};
my @calls = (
	'SELECT public.snowflake_accept_clock()',
	"SELECT public.snowflake_advance('public.own', pg_catalog.now())", "SELECT public.snowflake_advance('public.own', public.snowflake_nextval('public.own'))",
	"SELECT public.snowflake_create_generator('public.made', tick => '1 ms', layout => 'time:41 worker:10 sequence:12', epoch => '2025-01-01Z')",
	"SELECT public.snowflake_alter_generator('public.made', max_borrow => '1 s')",
	"SELECT public.snowflake_set_default('public.lines')", "SELECT * FROM public.snowflake_set_defaults('public')",
	"INSERT INTO public.polled (note) VALUES ('a'), ('b')", "INSERT INTO public.named VALUES (public.snowflake_nextval('public.own'), 'c')",
	'INSERT INTO public.orders DEFAULT VALUES',
	"SELECT * FROM public.snowflake_check('public.orders')", "SELECT * FROM public.snowflake_check('public.polled', 'id', 100, 'public.own')",
	"SELECT * FROM public.snowflake_check('public.orders', layout => 'preset=twitter')",
	"SELECT * FROM public.snowflake_check_cluster(ARRAY[\$\$$here\$\$])",
	"SELECT public.snowflake_currval(), public.snowflake_nextval() FROM public.snowflake_nextval()",
	"SELECT public.snowflake_nextval('public.own'), public.snowflake_currval('public.own')",
	'SELECT public.snowflake_decode(public.snowflake_nextval())', "SELECT public.snowflake_decode(public.snowflake_nextval('public.own'), 'public.own')",
	"SELECT public.snowflake_decode_as(1, 'preset=twitter')", 'SELECT public.snowflake_explain(1)', "SELECT public.snowflake_explain(1, 'public.own')",
	"SELECT public.snowflake_encode($at, 1, 1)", "SELECT public.snowflake_encode($at, 1, 1, 'public.own')",
	"SELECT public.snowflake_encode_as($at, '{\"worker\": 1}', 'preset=twitter')", "SELECT public.snowflake_encode_as($at, 1, 1, 'preset=twitter')",
	"SELECT public.snowflake_min_id($at), public.snowflake_max_id($at)", "SELECT public.snowflake_min_id($at, 'public.own'), public.snowflake_max_id($at, 'public.own')",
	"SELECT public.snowflake_min_id_as($at, 'preset=twitter'), public.snowflake_max_id_as($at, 'preset=twitter')",
	'SELECT public.snowflake_timestamp(1)', "SELECT public.snowflake_timestamp(1, 'public.own')",
	'SELECT public.snowflake_horizon()', "SELECT public.snowflake_horizon('public.own')",
	'SELECT * FROM public.snowflake_nextval_batch(3)', "SELECT * FROM public.snowflake_nextval_batch(3, 'public.own')",
	'SELECT public.snowflake_nextval_block(3)', "SELECT public.snowflake_nextval_block(3, 'public.own')",
	'SELECT public.snowflake_observe(public.snowflake_nextval())', "SELECT public.snowflake_observe(public.snowflake_nextval('public.own'), 'public.own')",
	"SELECT public.snowflake_to_text(1), public.snowflake_from_text('1')",
	"SELECT public.snowflake_mask(1, '\\x00112233445566778899aabbccddeeff'), public.snowflake_mask(1, '\\x00112233445566778899aabbccddeeff', 3)",
	"SELECT public.snowflake_unmask(public.snowflake_mask(1, '\\x00112233445566778899aabbccddeeff'), '\\x00112233445566778899aabbccddeeff')",
	"SELECT public.snowflake_unmask(public.snowflake_mask(1, '\\x00112233445566778899aabbccddeeff', 3), '\\x00112233445566778899aabbccddeeff', 3)",
	'SELECT * FROM public.snowflake_status()', 'SELECT public.snowflake_stat_reset()', "SELECT public.snowflake_stat_reset('public.own')",
	'SELECT public.snowflake_create_registry()', "SELECT public.snowflake_create_pool('more', '[500,600)')", 'SELECT public.snowflake_declare_registry()',
	'SELECT public.snowflake_end_grace_period()', "SELECT public.snowflake_drop_pool('more')", "SELECT public.snowflake_revoke_worker('main', 3)",
	'SELECT * FROM public.snowflake_check_registry()', 'SELECT _snowflake.pool_calls()',
	"CALL public.snowflake_partition('public.parts')", "CALL public.snowflake_partition('public.parts', keep => '1 day', ahead => 1)",
	"SELECT public.snowflake_distribute_generator('public.own')",
	"SELECT * FROM public.snowflake_convert_plan()", "SELECT * FROM public.snowflake_convert_plan('{public.old}')", "SELECT * FROM public.snowflake_convert_steps('{public.online}')",
	"SELECT * FROM public.snowflake_convert_functions()", "SELECT * FROM public.snowflake_convert_candidates('{public.online}', backfill => true)", "SELECT * FROM public.snowflake_convert_undo('{public.online}')",
	"CALL public.snowflake_convert('{public.old,public.refers}')", "CALL public.snowflake_convert_run('SELECT 1', '{LOCK TABLE public.lines IN ACCESS EXCLUSIVE MODE}')",
	(map { "SELECT * FROM public.$_" } qw(snowflake_horizon_holders snowflake_presets snowflake_generators pg_stat_snowflake snowflake_worker snowflake_pools snowflake_workers)));

# Procedures end transactions, so each call is a statement of its own. Some calls fail, as they should.
my %called;
for my $path (@path)
{
	my $from = -s $node->logfile;
	for my $call (@calls)
	{
		my $err;
		my $before = -s $node->logfile;
		$node->psql('shop', "$path;\n$call", stderr => \$err);
		unlike($err, qr/syntax error|function .* does not exist|internal|not unique|XX000/, "$call is a call") if !$called{$call}++;
		my $hits = hits($before);
		is($hits, '', "$path: $call runs nothing of others") if $hits ne '';
	}
	is(hits($from), '', "$path: nothing of others runs");
}

# What an exporter runs finds the views by its path, and looks up nothing else in vain.
for my $query (slurp_file("$FindBin::RealBin/../../../docs/monitoring/queries.yaml") =~ /^  query: >-\n((?:    .*\n)+)/mg)
{
	my $from = -s $node->logfile;
	my $err;
	$node->psql('shop', "SET search_path = pg_catalog, public, better;\n$query", stderr => \$err);
	is($err, '', 'a query of the exporter');
	is(hits($from), '', 'runs nothing of others');
}

# So does what the pages give to administrators. Some statements are for other servers or roles, and fail here.
my ($given, $worked) = (0, 0);
for my $page (qw(install monitoring operations patroni reference several-servers upgrade worker-ids))
{
	for my $block (grep { $_->{language} eq 'sql' } blocks(slurp_file("$FindBin::RealBin/../../../docs/$page.md")))
	{
		my $from = -s $node->logfile;
		my $err;
		$node->psql('shop', "SET search_path = pg_catalog, public, better;\n$block->{text}", stderr => \$err);
		$given++;
		$worked++ if $err !~ /ERROR/;
		is(hits($from), '', "docs/$page.md: $block->{text}");
	}
}
cmp_ok($worked, '>', 10, "$worked of $given statements of the pages work");

# A conversion while the table is in use, with each of its steps.
my %stepped;
for my $step (1 .. 20)
{
	my $next = $node->safe_psql('shop', q{SELECT statement FROM public.snowflake_convert_steps('{public.online}') ORDER BY step LIMIT 1});
	last if $next eq '';
	$stepped{$_} = 1 for $next =~ /(snowflake_convert_\w+)/g;
	my $from = -s $node->logfile;
	my $err;
	$node->psql('shop', "$path[0];\n$next", stderr => \$err, on_error_stop => 1);
	unlike($err, qr/ERROR/, "step $step succeeds") or last;
	is(hits($from), '', 'and runs nothing of others: ' . substr($next, 0, 60));
}
is($node->safe_psql('shop', q{SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'public.online'::regclass AND attname = 'id'}), 'bigint', 'it is converted');

# The server that somebody checks has such a path for all its sessions.
$node->safe_psql('postgres', 'ALTER DATABASE shop SET search_path = equal, better, pg_catalog; CREATE EXTENSION snowflake_id');
my $from = -s $node->logfile;
$node->safe_psql('postgres', "SELECT * FROM snowflake_check_cluster(ARRAY[\$\$$here\$\$])");
is(hits($from), '', 'a check of another server runs nothing of its owner');

my %names = (%stepped, map { $_ => 1 } map { /(snowflake_\w+)/g } @calls, $sql);
my $missing = $node->safe_psql('postgres', q{CREATE EXTENSION snowflake_id_convert;
	SELECT DISTINCT p.proname FROM pg_depend AS d JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname LIKE 'snowflake%'
	WHERE d.deptype = 'e' AND p.pronamespace = 'public'::regnamespace});
is(join(' ', grep { !$names{$_} } split /\n/, $missing), '', 'all that users can call was called');
done_testing();
