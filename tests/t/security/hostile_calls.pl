# Calls by roles that mean harm, and calls for tables of such roles: code of a table's owner
# runs as the owner and leaves no setting; a stranger leaves no lock on a generator; long
# arguments are refused before they are copied, and no error repeats them; a deeply nested
# query ends with PostgreSQL's own error. The functions are read from the catalogs, so a new
# one is tested as well.
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
	CREATE EXTENSION snowflake_id_convert CASCADE;
	CREATE ROLE alice LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE executor LOGIN;
	CREATE SCHEMA lure AUTHORIZATION alice});

# Runs a script in a session of a role; returns what it prints, and its messages.
sub run_as
{
	my ($role, $sql) = @_;
	my ($out, $err);
	$node->psql('postgres', $sql, stdout => \$out, stderr => \$err, on_error_stop => 0,
		timeout => 2 * $PostgreSQL::Test::Utils::timeout_default, extra_params => [ '-U', $role ]);
	return ($out, $err);
}

# Code of a table's owner. lure.seen() runs wherever PostgreSQL looks at the table: in a
# constant of a domain's condition and in the condition of a domain, which are not tried; in those
# of a table and of an index, which the planner computes.
my ($made, $failed) = run_as('alice', q{
	CREATE FUNCTION lure.seen(x bigint, place text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		RAISE NOTICE 'in % as %', place, current_user;
		PERFORM set_config('search_path', 'lure, pg_catalog', false), set_config('row_security', 'off', false),
			set_config('check_function_bodies', 'off', false), set_config('lure.setting', 'mine', false);
		RETURN true;
	END $$;
	CREATE FUNCTION lure.array_to_string(text[], text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN RAISE NOTICE 'in planted function as %', current_user; RETURN 'planted'; END $$;
	CREATE FUNCTION lure.count(text) RETURNS bigint LANGUAGE plpgsql AS $$
		BEGIN RAISE NOTICE 'in planted function as %', current_user; RETURN 0; END $$;
	CREATE DOMAIN lure.constant AS bigint CHECK (lure.seen(VALUE, 'constant'));
	CREATE DOMAIN lure.id AS bigint CHECK (VALUE <> ALL ('{5}'::lure.constant[]::bigint[])) CHECK (lure.seen(VALUE, 'domain'));
	CREATE TABLE lure.orders (id lure.id PRIMARY KEY, made timestamptz DEFAULT now(), CHECK (lure.seen(id, 'check')));
	CREATE INDEX ON lure.orders (id) WHERE lure.seen(5, 'index');
	CREATE TABLE lure.items (id integer PRIMARY KEY, made timestamptz DEFAULT now(), CHECK (lure.seen(id, 'check')));
	CREATE INDEX ON lure.items (id) WHERE lure.seen(6, 'index');
	INSERT INTO lure.orders VALUES (1); INSERT INTO lure.items VALUES (1)});
unlike($failed, qr/ERROR/, 'an owner makes tables with code of her own') or diag($failed);

my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
my $settings = q{SELECT pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(':', name, setting, source), ',' ORDER BY name)) FROM pg_catalog.pg_settings};
my %places = map { $_ => 0 } qw(constant domain index);
for my $call (
	"snowflake_set_default('lure.orders')",
	"snowflake_set_defaults('lure')",
	"snowflake_check('lure.orders')",
	"snowflake_convert_plan('{lure.items}', backfill => true, worker_id => 1000)",
	"_snowflake.read_as_owner('lure.orders', 'SELECT max(id) FROM lure.orders')")
{
	# An error undoes settings in any case: then, too, nothing may have run as the superuser.
	my ($out, $err) = run_as($superuser, "DO \$\$BEGIN END\$\$; $settings; SELECT 'called' FROM (SELECT " . ($call =~ /^_/ ? $call : "public.$call") . ") AS c (line) LIMIT 1; $settings;
		SELECT coalesce(pg_catalog.current_setting('lure.setting', true), ''), pg_catalog.current_setting('search_path')");
	my @lines = split /\n/, $out;
	my ($before, $after) = @lines[ 0, -2 ];
	is($after, $before, "$call: the settings are as before");
	is($lines[-1], '|"$user", public', "$call: no setting of the owner's code is left");
	unlike($err, qr/ as \Q$superuser\E\b/, "$call: the owner's code did not run as the superuser");
	unlike($err, qr/planted/, "$call: nor what she planted, as anybody");
	unlike($err, qr/^psql.*ERROR/m, "$call: no error");
	while ($err =~ /in (\w+) as alice/g) { $places{$1}++; }
}
cmp_ok($places{index}, '>', 0, 'the code in an index has run, as its owner');
is($places{$_}, 0, "the code in a $_ has not run") for qw(constant domain);

# Calls a function of the extension; returns SQLSTATE, the length of all texts of its error,
# the message, and the locks that the transaction still has on a relation.
$node->safe_psql('postgres', q{
	CREATE FUNCTION public.probe(call text, watched oid, OUT code text, OUT size integer, OUT message text, OUT locks text)
	LANGUAGE plpgsql AS $$
	DECLARE detail text; hint text;
	BEGIN
		BEGIN
			EXECUTE call;
			code := '';
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			size := octet_length(message || detail || hint);
		END;
		SELECT coalesce(string_agg(l.mode, ' '), '') INTO locks FROM pg_locks AS l
		WHERE l.pid = pg_backend_pid() AND (l.relation = watched OR l.locktype = 'userlock');
	END $$});

# The functions of the extension, with an argument for each of their parameters.
my %value = (
	bigint => '1', integer => '1', smallint => '1', boolean => 'false', oid => "'pg_class'::regclass::oid",
	text => "'x'", name => "'id'", '"char"' => "'x'", timestamptz => 'now()', interval => "'1 day'", jsonb => "'{}'",
	numeric => '1', real => '1', 'double precision' => '1', 'bigint[]' => "'{1}'", 'jsonb[]' => "'{}'", bytea => q{'\x00112233445566778899aabbccddeeff'}, 'bytea[]' => q{ARRAY['\x00112233445566778899aabbccddeeff'::bytea]},
	regclass => "'snowflake_default'", regnamespace => "'pg_catalog'", int8range => "'[1,3)'", int8multirange => "'{[1,3)}'",
	regproc => "'pg_catalog.pg_backend_pid'", 'aclitem[]' => "'{}'", 'text[]' => "'{}'", 'name[]' => "'{id}'", 'oid[]' => "'{}'", 'smallint[]' => "'{1}'", 'regclass[]' => "'{}'", 'regnamespace[]' => "'{pg_catalog}'",
	'boolean[]' => "'{}'", '_snowflake_convert.work' => "'(,,,,,,,,,,,)'", map { ("_snowflake_convert.$_\[]" => "'{}'") } 'key_column', 'old_key', 'object');
my %text = (layout => "'preset=twitter'", label => "'preset=twitter'", alphabet => "'base32'", registry => "''",
	relation => "'snowflake_default'", query => "'SELECT 1'");
my @functions = map {
	my ($call, $language, $names, $types) = split /\|/;
	my @types = split /;/, $types // '';
	my @names = split /;/, $names // '';
	{ call => $call, language => $language, types => \@types, names => \@names }
} split /\n/, $node->safe_psql('postgres', q{
	SELECT p.oid::regproc, l.lanname, a.names, a.types
	FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid JOIN pg_language AS l ON l.oid = p.prolang
	CROSS JOIN LATERAL (
		SELECT string_agg(coalesce(nullif(p.proargnames[t.place], ''), '-'), ';' ORDER BY t.place),
			string_agg(replace(format_type(t.type, NULL), 'timestamp with time zone', 'timestamptz'), ';' ORDER BY t.place)
		FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS t (type, place)) AS a (names, types)
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
	  AND d.refobjid IN (SELECT e.oid FROM pg_extension AS e WHERE e.extname IN ('snowflake_id', 'snowflake_id_convert'))
	  AND p.prokind = 'f' AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype, 'internal'::regtype)
	ORDER BY p.oid::regprocedure::text});
cmp_ok(scalar @functions, '>', 100, 'the extension has functions');

# Returns a call with the value $special->($type) of an argument for which it has one.
sub call_of
{
	my ($function, $special) = @_;
	my @types = @{ $function->{types} };
	my @arguments = map {
		my ($type, $name) = ($types[$_], $function->{names}[$_]);
		my $value = $special->($type, $_) // ($type eq 'text' ? $text{$name} : undef) // $value{$type};
		die "no value for type $type, of $function->{call}" if !defined $value;
		"$value\::$type"
	} 0 .. $#types;
	return "SELECT $function->{call}(" . join(', ', @arguments) . ')';
}

# Runs calls one by one, each in its own transaction of one session; returns a row for each.
sub probe
{
	my ($role, $watched, @calls) = @_;
	my ($out, $err) = run_as($role, "SET client_min_messages = error; SET statement_timeout = '60s';\n" . join('', map {
		"SELECT 'row', code, coalesce(size, 0), locks, replace(coalesce(message, ''), E'\\n', ' ') FROM public.probe(\$call\$$_\$call\$, $watched);\n" } @calls));
	my @rows = map { [ (split /\|/, $_, 5)[ 1 .. 4 ] ] } grep { /^row\|/ } split /\n/, $out;
	is(scalar @rows, scalar @calls, "$role: the server has answered all calls") or diag($err);
	return @rows;
}

# A stranger names a generator by its OID: it is in a schema that he may not use. Neither he
# nor a role that may call every function leaves a lock.
$node->safe_psql('postgres', q{
	CREATE SCHEMA hidden; CREATE SCHEMA shown; GRANT USAGE ON SCHEMA shown TO PUBLIC;
	SELECT snowflake_create_generator('hidden.ids', 'preset=twitter'), snowflake_create_generator('shown.ids', 'preset=twitter')});
$node->safe_psql('postgres', "GRANT EXECUTE ON FUNCTION $_ TO executor") for split /\n/, $node->safe_psql('postgres', q{
	SELECT d.objid::regprocedure FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass AND p.prokind = 'f'
	  AND d.refobjid = (SELECT e.oid FROM pg_extension AS e WHERE e.extname = 'snowflake_id')});
my $generator = $node->safe_psql('postgres', q{SELECT 'hidden.ids'::regclass::oid});
my @naming = grep { grep { /^regclass(\[\])?$/ } @{ $_->{types} } } @functions;
cmp_ok(scalar @naming, '>', 40, scalar(@naming) . ' functions take a relation');
my @calls = map { call_of($_, sub {
	my ($type) = @_;
	return $type eq 'regclass' ? "'$generator'" : $type eq 'regclass[]' ? "'{$generator}'" : undef }) } @naming;
for my $role (qw(stranger executor))
{
	my @rows = probe($role, $generator, @calls);
	my @left = map { "$calls[$_]: $rows[$_][2]" } grep { $rows[$_][2] ne '' } 0 .. $#rows;
	is(join("\n", @left), '', "$role leaves no lock on a generator that he may not use");
	my %code = map { $_->[0] => 1 } @rows;
	ok($code{''} && $code{42501}, "$role gets answers, and is refused");
}
# The same look finds the locks of a role that may use the generator.
my @rows = probe($superuser, $generator, "SELECT snowflake_nextval('hidden.ids')", "SELECT _snowflake.next_id_range('hidden.ids', 1)",
	"SELECT snowflake_decode(1, 'hidden.ids')");
like($rows[0][2], qr/RowExclusiveLock/, 'who takes an ID keeps a lock');
like($rows[1][2], qr/RowExclusiveLock/, 'who sets a default keeps a lock');
is($rows[2][2], '', 'who decodes an ID does not');
# What the internal functions answer is for those who may use the generator.
$generator = $node->safe_psql('postgres', q{SELECT 'shown.ids'::regclass::oid});
my @internal = ("SELECT _snowflake.next_id_range('shown.ids', 1)", "SELECT _snowflake.warn_if_not_ready('shown.ids')");
is(join(' ', map { "$_->[0]$_->[2]" } probe('stranger', $generator, @internal)), '42501 42501', 'a stranger gets no answer');
for my $privilege (qw(USAGE SELECT UPDATE))
{
	$node->safe_psql('postgres', "GRANT $privilege ON SEQUENCE shown.ids TO alice");
	is(join(' ', map { $_->[0] } probe('alice', $generator, @internal)), ' ', "a role with $privilege does");
	$node->safe_psql('postgres', "REVOKE $privilege ON SEQUENCE shown.ids FROM alice");
}
# A trigger of his own does not lock it either.
run_as('alice', q{
	CREATE TABLE lure.polled (id bigint);
	CREATE TRIGGER ordered BEFORE INSERT ON lure.polled FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon('id', 'shown.ids')});
@rows = probe('alice', $generator, 'INSERT INTO lure.polled VALUES (1)');
is("$rows[0][0]:$rows[0][2]", '42501:', 'nor does the trigger of a table whose owner may not use it');

# Long arguments. Each function of the library refuses each of its arguments that has no
# fixed length, and says how long it is; nothing that it was given is repeated.
my $long = 20_000_000;
my %long = (
	text => "repeat('x', $long)", bytea => "convert_to(repeat('x', $long), 'UTF8')", jsonb => "jsonb_build_object('a', repeat('x', $long))",
	int8multirange => '(SELECT range_agg(int8range(2 * n, 2 * n + 1)) FROM generate_series(1, 1000000) AS n)',
	'name[]' => "(SELECT array_agg('x'::name) FROM generate_series(1, 200000))", 'text[]' => "ARRAY[repeat('x', $long)]", 'bytea[]' => "ARRAY[convert_to(repeat('x', $long), 'UTF8')]");
my @long;
for my $function (grep { $_->{language} eq 'c' } @functions)
{
	for my $at (0 .. $#{ $function->{types} })
	{
		my $type = $function->{types}[$at];
		if ($type =~ /^(bigint|integer|oid|regclass|timestamp.*|boolean|interval|int8range)$/) { next; }
		ok($long{$type}, "$function->{call}: a long value of type $type is known") or next;
		push @long, call_of($function, sub { return $_[1] == $at ? $long{$type} : undef });
	}
}
cmp_ok(scalar @long, '>', 25, scalar(@long) . ' arguments can be long');
# Some of these calls are refused in a transaction, or for another reason, but only later.
@rows = probe($superuser, $generator, @long);
is(join("\n", map { "$long[$_]: $rows[$_][0] $rows[$_][3]" } grep { $rows[$_][3] !~ /: it has \d{8} bytes$/ } 0 .. $#rows), '', 'all are refused by their length');
is(join("\n", map { "$long[$_]: $rows[$_][1]" } grep { $rows[$_][1] > 120 } 0 .. $#rows), '', 'in short errors');

# What was stored is measured before it is read or decompressed.
$node->safe_psql('postgres', q{
	CREATE TABLE stored (compressed text, external text, bits bytea, fields jsonb);
	ALTER TABLE stored ALTER external SET STORAGE external;
	INSERT INTO stored VALUES (repeat('x', 200000), repeat('y', 100000), convert_to(repeat('z', 300000), 'UTF8'), jsonb_build_object('a', repeat('x', 400000)))});
my @stored = (
	[ q{snowflake_from_text(compressed, 'base32')}, '22P02', 'invalid ID: it has 200000 bytes' ],
	[ q{snowflake_from_text(external, 'base32')}, '22P02', 'invalid ID: it has 100000 bytes' ],
	[ q{snowflake_unmask(external, 'sixteen bytes ok', 1)}, '22P02', 'invalid ID: it has 100000 bytes' ],
	[ q{snowflake_mask(1, bits)}, '22023', 'invalid key: it has 300000 bytes' ],
	[ q{snowflake_decode_as(1, external)}, '22023', 'invalid label: it has 100000 bytes' ],
	[ q{snowflake_nextval('snowflake_default', fields)}, '22023', qr/^invalid fields: it has 4000\d\d bytes$/ ]);
@rows = probe($superuser, $generator, map { "SELECT $_->[0] FROM stored" } @stored);
for my $at (0 .. $#stored)
{
	my ($call, $code, $message) = @{ $stored[$at] };
	is($rows[$at][0], $code, "$call: SQLSTATE");
	ref $message ? like($rows[$at][3], $message, $call) : is($rows[$at][3], $message, $call);
}
# A short jsonb can have a long text.
@rows = probe('stranger', $generator, q{SELECT snowflake_encode_as(now(), jsonb_build_object('sequence', 1e20000::numeric), 'preset=twitter')});
like($rows[0][3], qr/^invalid fields: it has 200\d\d bytes$/, 'a number with many digits');
# The owner's code returns something long.
@rows = probe($superuser, $generator, q{SELECT _snowflake.read_as_owner('lure.orders', 'SELECT repeat(''x'', 20000000)')},
	q{SELECT octet_length(_snowflake.read_as_owner('lure.orders', 'SELECT repeat(''x'', 1000000)'))});
is($rows[0][3], 'invalid value: it has 20000000 bytes', 'so is what the code of an owner returns');
is($rows[1][0], '', 'ten million bytes are taken');
# What is as long as allowed is taken.
my $label = 'preset=twitter' . ' ' x (16_384 - 14);
is($node->safe_psql('postgres', "SELECT snowflake_decode_as(1, '$label') = snowflake_decode_as(1, 'preset=twitter')"), 't', 'a label of 16,384 bytes');

# Errors show at most 40 bytes of what was given.
my @shown = (
	q{snowflake_from_text(repeat('é', 30), 'base32')}, q{snowflake_from_text(repeat('z', 60), 'base62')}, q{snowflake_to_text(1, repeat('q', 60))},
	q{snowflake_unmask(repeat('é', 30), 'sixteen bytes ok', 1)}, q{snowflake_encode_as(now(), jsonb_build_object(repeat('é', 3000), 1), 'preset=twitter')},
	q{snowflake_encode_as(now(), jsonb_build_object(repeat('é', 3000), 'a'), 'preset=twitter')},
	q{snowflake_nextval('snowflake_default', jsonb_build_object(repeat('é', 3000), 1))}, q{snowflake_decode_as(1, repeat('é', 7000))},
	q{snowflake_decode_as(1, 'preset=' || repeat('é', 7000))}, q{snowflake_decode_as(1, 'preset=twitter ' || repeat('é', 5000) || '=1')},
	q{snowflake_decode_as(1, 'layout=''' || repeat('é', 5000) || ':4''')},
	q{snowflake_create_generator('lure.new', layout => repeat('é', 5000), epoch => '0')},
	q{snowflake_create_generator('lure.new', fields => jsonb_build_object(repeat('é', 3000), 1))},
	q{snowflake_create_generator('lure.new', fields => jsonb_build_object('shard', repeat('é', 3000)))});
@rows = probe('stranger', $generator, map { "SELECT $_" } @shown);
for my $at (0 .. $#shown)
{
	like($rows[$at][0], qr/^22/, "$shown[$at] is refused");
	my ($repeated) = $rows[$at][3] =~ /((?:é|z|q)+)/;
	cmp_ok(length($repeated // ''), '<=', 40, 'with 40 bytes of it at most');
	cmp_ok($rows[$at][1], '<', 1000, 'in a short error');
}

# A query that is nested deeply: the planner asks the library about the whole of it. Nobody
# can cancel what catches PostgreSQL's error at each level.
my $terms = sub { return 'EXPLAIN SELECT snowflake_horizon() IS NULL OR ' . join('+', ('random()') x $_[0]) . ' > 0' };
$node->safe_psql('postgres', "CREATE ROLE shallow LOGIN; ALTER ROLE shallow SET max_stack_depth = '100kB'");
my ($out, $err) = run_as('shallow', "\\set VERBOSITY verbose\n" . $terms->(300));
like($err, qr/ERROR:  54001: stack depth limit exceeded/, "PostgreSQL's own error");
cmp_ok(length $err, '<', 2000, 'without a line for each level') or diag(substr $err, 0, 3000);
SKIP:
{
	skip 'such a query could not be stopped', 2 if length $err >= 2000;
	for my $count (1500, 3000)
	{
		($out, $err) = run_as('stranger', $terms->($count));
		like($out, qr/Result/, "a sum of $count terms is planned") or diag(substr $err, 0, 1000);
	}
}
# It still finds tables at any depth, and nothing where there are none.
for my $query (
	q{SELECT snowflake_horizon() FROM pg_class}, q{SELECT 1 + (SELECT 1 + (SELECT snowflake_horizon() FROM (SELECT 1 FROM pg_class) AS t LIMIT 1))},
	q{SELECT snowflake_horizon(), (SELECT count(*) FROM pg_class)}, q{WITH t AS MATERIALIZED (SELECT oid FROM pg_class) SELECT snowflake_horizon() FROM t})
{
	is((error_of($node, $query))[0], '0A000', "refused: $query");
}
is((error_of($node, 'SELECT (SELECT 1 + (SELECT snowflake_horizon())) IS NULL'))[0], '', 'no table');

is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server runs');
is(in_log($node, qr/was terminated by signal|reinitializing/), 0, 'and has not crashed');
done_testing();
