# Calls every function of the extension with odd arguments, as several roles, on a primary and
# its standby, in read-only and serializable transactions, with settings turned, and in deep
# expressions. A call may fail. It must not
#
#   - end the server, or a process of the server;
#   - have an internal error (SQLSTATE XX...) or a panic;
#   - leave a lock on a relation behind, when its savepoint is rolled back;
#   - change a role, a membership, a database, or an owner or privilege of a function;
#   - go on after it was cancelled, by a timeout or by another session.
#
# Functions and the types of their arguments come from the catalogs.
#
#   SEED      another each time if not given, and printed
#   MINUTES   default 5
#   BATCH     calls this batch only: what failed names it
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Snowflake qw(new_node);

my $seed    = $ENV{SEED}    || int(rand(2**31));
my $minutes = $ENV{MINUTES} || 5;
my $only    = length($ENV{BATCH} // '') ? $ENV{BATCH} : undef;
/^\d+$/ or die "SEED, MINUTES and BATCH are whole numbers\n" for grep { defined } $seed, $minutes, $only;
note("SEED=$seed MINUTES=$minutes");

# Statements of a session end at the latest after this time, and then have so long to clean up.
my ($timeout, $grace) = (3, 60);
my $per_batch = 120;

my $primary = new_node('primary', 7, allows_streaming => 1);
$primary->append_conf('postgresql.conf', <<"END");
statement_timeout = '$timeout s'
restart_after_crash = off
log_line_prefix = '%p %e %u '
log_statement = none
log_error_verbosity = default
autovacuum = off
fsync = off
max_prepared_transactions = 4
snowflake_id.reserve_ahead = '5 s'
END
$primary->start;
# The schema of the extension has a name that needs quotes in half of the runs.
my $schema = $seed % 2 ? '"My IDs"' : 'public';
$primary->safe_psql('postgres', q{
	CREATE ROLE keeper LOGIN; CREATE ROLE plain LOGIN; CREATE ROLE stranger LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor; CREATE DATABASE fuzzed OWNER keeper});
sub as { my ($role, $sql) = @_; return $primary->safe_psql('fuzzed', $sql, $role ? (extra_params => [ '-U', $role ]) : ()); }
as('keeper', ($schema eq 'public' ? '' : "CREATE SCHEMA $schema; GRANT USAGE ON SCHEMA $schema TO PUBLIC; ") . "CREATE EXTENSION snowflake_id_convert SCHEMA $schema CASCADE");
as(undef, 'GRANT CREATE ON SCHEMA public TO plain, stranger, watcher');
# Each of three roles has generators and relations of every kind.
my %label = (
	keeper => 'preset=default', plain => "layout='time:41 tenant:6=caller worker:4 sequence:12' epoch=0",
	stranger => 'preset=instagram shard=5');
my %relations;
for my $owner (sort keys %label)
{
	as($owner, qq{
		SELECT $schema.snowflake_create_generator('public.${owner}_ids', \$\$$label{$owner}\$\$);
		CREATE SEQUENCE public.${owner}_plain;
		CREATE TABLE public.${owner}_t (id bigint PRIMARY KEY DEFAULT $schema.snowflake_nextval('public.${owner}_ids'), k int UNIQUE, made timestamptz, note text, doc jsonb);
		CREATE TABLE public.${owner}_serial (id serial PRIMARY KEY, parent int REFERENCES public.${owner}_serial, note varchar(10));
		INSERT INTO public.${owner}_serial (note) SELECT 'row' FROM generate_series(1, 50);
		CREATE TABLE public.${owner}_parts (id bigint, day date) PARTITION BY RANGE (day);
		CREATE TABLE public.${owner}_part PARTITION OF public.${owner}_parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
		CREATE VIEW public.${owner}_view AS SELECT id FROM public.${owner}_t;
		CREATE INDEX ${owner}_index ON public.${owner}_t ((note || 'x')) WHERE k > 0;
		CREATE TABLE public."$owner 'odd"" name" ("The ""Key""" smallint PRIMARY KEY);
		CREATE TABLE public.${owner}_gone (id int)});
	$relations{$owner} = [ (map { "public.${owner}_$_" } qw(ids plain t serial serial_id_seq parts part view index t_pkey)), qq{public."$owner 'odd"" name"} ];
}
as('keeper', "CREATE TABLE public.canary AS SELECT 42 AS n; REVOKE ALL ON public.canary FROM PUBLIC");
as(undef, "SELECT $schema.snowflake_create_pool('main', '[0,8)')");
my $gone = as('plain', "SELECT 'public.plain_gone'::regclass::oid");
as('plain', 'DROP TABLE public.plain_gone');
my $id = as('keeper', "SELECT $schema.snowflake_nextval()");

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
my %node = (primary => $primary, standby => $standby);

# The functions: name, kind, types of the arguments, how many have a default, and the type of
# the result.
my @functions = map { my @f = split /\|/, $_, -1; { name => $f[0], kind => $f[1], types => [ split /;/, $f[2] ], defaults => $f[3], result => $f[4], set => $f[5] eq 't' } }
  split /\n/, as(undef, q{
	SELECT pronamespace::regnamespace::text || '.' || quote_ident(proname), prokind,
		(SELECT coalesce(string_agg(format_type(t, NULL), ';' ORDER BY n), '') FROM unnest(proargtypes) WITH ORDINALITY AS a (t, n)),
		pronargdefaults, format_type(prorettype, NULL), proretset
	FROM pg_proc JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e'
	JOIN pg_extension AS e ON refclassid = 'pg_extension'::regclass AND refobjid = e.oid
	WHERE extname IN ('snowflake_id', 'snowflake_id_convert') ORDER BY 1, 3});
cmp_ok(scalar @functions, '>', 100, scalar(@functions) . ' functions');
my @schemas = do { my %s; grep { !$s{$_}++ } map { $_->{name} =~ /^("[^"]*"|[^.]+)\./ } @functions };
cmp_ok(scalar @schemas, '>', 1, "in the schemas @schemas");

# What must be the same at the end of each batch.
my $rights = q{
	SELECT 'roles', md5(string_agg((to_jsonb(a) - 'rolpassword')::text, ',' ORDER BY oid)) FROM pg_authid AS a;
	SELECT 'members', md5(coalesce(string_agg(roleid || ' ' || member || ' ' || admin_option, ',' ORDER BY roleid, member), '')) FROM pg_auth_members;
	SELECT 'databases', md5(string_agg(concat_ws(' ', datname, datdba, datacl), ',' ORDER BY datname)) FROM pg_database;
	SELECT 'settings', md5(coalesce(string_agg(s::text, ',' ORDER BY s::text), '')) FROM pg_db_role_setting AS s;
	SELECT 'schemas', md5(string_agg(concat_ws(' ', nspname, nspowner, nspacl), ',' ORDER BY nspname)) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp';
	SELECT 'functions', md5(string_agg(concat_ws(' ', p.oid, proowner, proacl, prosecdef, proconfig), ',' ORDER BY p.oid)) FROM pg_proc AS p
		JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e';
	SELECT 'canary', * FROM public.canary};
my $rights_at_first = as(undef, $rights);

# Arguments, by type: expressions that any setting reads alike, so without backslashes.
sub pick { return $_[ int rand @_ ]; }
sub chance { return rand() < $_[0]; }
sub quoted { my ($text) = @_; return "'" . $text =~ s/'/''/gr . "'"; }
my @labels = ('preset=default', 'preset=discord', 'preset=sonyflake max_rollback=1h', 'preset=twitter worker=caller', 'preset=', 'preset=nothing', 'preset=worker_queue epoch=0',
	q{layout='time:41 worker:10 sequence:12' epoch=0}, q{layout='time:63' epoch=0 tick='1 us'}, q{layout='time:1 sequence:1' epoch=9223372036854775807}, q{layout='' epoch=''},
	q{layout='time:41 tenant:6=caller worker:4 sequence:12' epoch=0}, q{layout='sequence:4 time:40 shard:8=7 worker:8' epoch=0}, "layout='time:64 worker:64 sequence:64'", 'epoch=0', q{preset='discord' max_borrow='-1 s'});
my @texts = ('', ' ', 'main', 'base32', 'base58', 'base62', 'x', '0', '-1', '9223372036854775807', '9223372036854775808', 'NULL', '%s%n%I%L%1$s%99$s', q{a'b"c}, q{'; DROP TABLE public.canary; --},
	q{') ; DROP TABLE public.canary; --}, 'public.keeper_ids', 'public.stranger_ids', '"', '""', '.', 'a.b.c.d', "\x{e9}\x{4e2d}\x{1f600}", "a\tb\nc\x01", 'etcd://', 'etcd://localhost:1', 'etcd://u:p@127.0.0.1:1/x?y=z',
	'host=127.0.0.1 port=1 connect_timeout=1', 'postgresql://', 'dbname=fuzzed', '{}', '[]', 'SELECT 1', 'LOCK public.canary', 'VACUUM', 'COMMIT', 'id', 'k', 'ctid', 'tenant=1', 'ffffffffffffffff', @labels);
my @sizes = ([ 0.90, 1_000 ], [ 0.995, 1_000_000 ], [ 1, 100_000_000 ]);
sub long
{
	my ($piece) = @_;
	my $at = rand();
	my ($size) = map { $_->[1] } grep { $at < $_->[0] } @sizes;
	return "repeat(" . quoted($piece) . ', ' . int($size / length $piece) . ')';
}
my %values;
%values = (
	bigint => sub { return pick(0, 1, -1, 7, "'-9223372036854775808'", '9223372036854775807', 2147483648, 4294967296, $id, $id + 1, $id + (1 << 40), 1 << 22, int(rand(2**53)), -int(rand(2**53))) . '::bigint'; },
	integer => sub { return pick(0, 1, 2, -1, 7, 1000, 4096, 100_001, 2147483647, "'-2147483648'", int(rand(2**31))) . '::integer'; },
	smallint => sub { return pick(0, 1, -1, 2, 32767, "'-32768'") . '::smallint'; },
	'double precision' => sub { return quoted(pick(qw(NaN Infinity -Infinity 0 -0 1 100 50.5 1e308 1e-307 -5))) . '::float8'; },
	numeric => sub { return quoted(pick(qw(NaN 0 -1 1e1000 18446744073709551615 1.5))) . '::numeric'; },
	boolean => sub { return pick('true', 'false'); },
	'"char"' => sub { return quoted(pick('', 'r', 'S', 'v', 'i', 'p', 'f', 'x')) . '::"char"'; },
	interval => sub { return quoted(pick('0', '-1 s', '1 us', '5 s', '200 ms', '1 day', '1 mon', '178000000 years', '-178000000 years', '9223372036854 s', 'infinity')) . '::interval'; },
	'timestamp with time zone' => sub { return quoted(pick('infinity', '-infinity', '4714-11-24 00:00:00+00 BC', '294276-12-31 23:59:59.999999+00', 'now', '1970-01-01 00:00:00+00', '2025-01-01 00:00:00+00',
			'2024-12-31 23:59:59.999999+00', '2094-09-07 15:47:35.551+00', '2026-02-29 00:00:00+00', '2026-03-01 12:00:00+00')) . '::timestamptz'; },
	text => sub { return chance(0.85) ? quoted(pick(@texts)) . '::text' : long(pick('x', '9', "\x{e9}", 'a=1 ', '(', '"', "preset=default ", "layout='time:1 ")); },
	name => sub { return quoted(chance(0.5) ? pick(qw(id k made note doc day parent nothing ctid tableoid xmin)) : pick('', 'The "Key"', '........pg.dropped.1........', 'x' x 63, "\x{e9}" x 31, 'a.b', '%I', @texts[ 0 .. 18 ])) . '::name'; },
	jsonb => sub {
		return pick('null', '{}', '[]', '1', '"x"', 'true', '{"tenant": 1}', '{"tenant": 1.0}', '{"tenant": 1e300}', '{"tenant": "1"}', '{"tenant": null}', '{"tenant": -1, "worker": 1, "no": 2}', '{"": {}}',
			'[[1, [2, [3]]], {"a": {"b": {"c": null}}}]', '{"identity": {"system": 1, "boot": "b", "device": 1, "inode": 1}}', '{"format": 1}',
			'{"format": 1, "asker": {"identity": {"system": 7000000000000000001, "boot": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "device": 64769, "inode": 1}, "started": 0, "host": "h", "address": "10.0.0.1", "port": 5432, "data_directory": "/srv"}, "nonce": "00000000000000000000000000000001", "number": 1, "clock": 1764000000000, "memory": null, "ask": {"acquire": {}}}',
			'{"n": 99999999999999999999999999999999}') =~ s/(.*)/quoted($1) . '::jsonb'/er if chance(0.85);
		my $depth = pick(10, 1000, 3000);
		return pick("(repeat('[', $depth) || repeat(']', $depth))::jsonb", qq{(repeat('{"a":', $depth) || '1' || repeat('}', $depth))::jsonb}, 'to_jsonb(' . long('x') . ')', q{jsonb_build_object('tenant', } . long('9') . ')',
			q{(SELECT jsonb_object_agg('k' || n, n) FROM generate_series(1, 20000) AS n)}); },
	bytea => sub { return pick("''::bytea", "decode('00', 'hex')", "decode(repeat('ab', 16), 'hex')", "decode(repeat('00', 32), 'hex')", "decode(repeat('ff', 33), 'hex')", 'decode(' . long('ab') . ", 'hex')"); },
	oid => sub { return pick(0, 1, 1259, 2200, $gone, 4294967295, 16384 + int(rand(300))) . '::oid'; },
	regclass => sub {
		return pick(0, 1, 4294967295, $gone, 16384 + int(rand(300))) . '::oid::regclass' if chance(0.25);
		return quoted(pick(map { @$_ } values %relations)) . '::regclass' if chance(0.8);
		return quoted(pick('pg_class', 'pg_catalog.pg_locks', 'pg_toast.pg_toast_1255', 'pg_class_oid_index', "$schema.snowflake_default", "$schema.snowflake_workers", '_snowflake.state', '_snowflake.pools', 'public.canary')) . '::regclass'; },
	regnamespace => sub { return pick("'public'", "'pg_catalog'", "'pg_toast'", "'_snowflake'", quoted($schema), "'information_schema'", "'keeper'", '0::oid', '99999::oid') . '::regnamespace'; },
	regproc => sub { return pick("'pg_catalog.pg_backend_pid'", '0::oid', '99999::oid') . '::regproc'; },
	int8range => sub { return quoted(pick('empty', '[0,8)', '[,)', '[0,)', '(,5]', '[-5,5)', '[5,5]', '[9223372036854775800,9223372036854775807)', '[0,2147483648)', '[100,110)')) . '::int8range'; },
	int8multirange => sub { return quoted(pick('{}', '{[0,8)}', '{(,)}', '{[1,2),[5,)}', '{[-5,5)}', '{[9223372036854775806,9223372036854775807)}', '{[7,8)}')) . '::int8multirange'; },
	'_snowflake_convert.also_column' => sub { return 'ROW (' . join(', ', map { argument($_) } qw(text oid name oid name boolean)) . ')::_snowflake_convert.also_column'; },
	'_snowflake_convert.request' => sub { return '_snowflake_convert.request(ARRAY[' . argument('regclass') . '], NULL, ' . join(', ', map { argument($_) } 'text[]', 'regclass', 'boolean') . ')'; },
	'_snowflake_convert.work' => sub { return '_snowflake_convert.work_of(' . join(', ', map { argument($_) } '_snowflake_convert.request', 'name[]', 'bigint', 'boolean') . ')'; },
	'_snowflake_convert.key_column' => sub { return 'ROW (' . join(', ', map { argument($_) } qw(oid name smallint oid oid boolean boolean oid name bigint)) . ')::_snowflake_convert.key_column'; },
	'_snowflake_convert.old_key' => sub { return 'ROW (' . join(', ', map { argument($_) } qw(oid name name text text)) . ')::_snowflake_convert.old_key'; },
	'_snowflake_convert.object' => sub { return 'ROW (' . join(', ', map { argument($_) } qw(oid oid integer text oid text text[])) . ')::_snowflake_convert.object'; },
	'aclitem[]' => sub { return pick("'{}'::aclitem[]", 'NULL::aclitem[]', "acldefault('r', 10)"); });
my %huge = (text => "repeat('x', 100000000)", jsonb => "to_jsonb(repeat('x', 100000000))", bytea => "decode(repeat('ab', 100000000), 'hex')");
sub argument
{
	my ($type) = @_;
	return 'NULL' if $type =~ /^(?:internal|any\w*|trigger|event_trigger)$/;
	return "NULL::$type" if chance(0.06);
	return $values{$type}->() if $values{$type};
	return chance(0.5) ? "NULL::$type" : quoted(pick(@texts)) . "::$type" if $type !~ /^(.*)\[\]$/;
	my $element = $1;
	my @elements = map { argument($element) } 1 .. pick(1, 1, 1, 2, 3);
	return pick(
		"'{}'::$type", "ARRAY[NULL]::$type", "ARRAY[NULL, $elements[0]]::$type", 'ARRAY[' . join(', ', @elements) . "]::$type", 'ARRAY[' . join(', ', @elements) . "]::$type",
		"ARRAY[ARRAY[$elements[0], $elements[0]], ARRAY[$elements[-1], NULL]]::$type",
		"array_fill($elements[0]::$element, ARRAY[2], ARRAY[5])", "array_fill($elements[0]::$element, ARRAY[2], ARRAY[-2147483648])", "array_fill($elements[0]::$element, ARRAY[2, 0, 3])",
		"array_fill($elements[0]::$element, ARRAY[" . pick(100, 5000) . '])');
}
sub call
{
	my ($function) = @_;
	my @types = @{ $function->{types} };
	pop @types for 1 .. int rand($function->{defaults} + 1);
	return "$function->{name}(" . join(', ', map { argument($_) } @types) . ')';
}

# Settings that sessions have.
sub settings
{
	my @settings = (
		[ quote_all_identifiers => 'on' ], [ backslash_quote => 'off' ],
		[ search_path => pick("''", 'nothing', 'pg_temp, public', '_snowflake, _snowflake_convert, public', 'public, pg_catalog') ], [ statement_timeout => pick(1, 3, 10, 50, 300) . 'ms' ], [ lock_timeout => pick(1, 20) . 'ms' ],
		[ DateStyle => pick('SQL, DMY', 'German', 'Postgres, MDY') ], [ IntervalStyle => pick('sql_standard', 'iso_8601', 'postgres_verbose') ], [ extra_float_digits => pick(-15, 0, 3) ],
		[ bytea_output => 'escape' ], [ TimeZone => pick('Pacific/Apia', '-13:45', 'Asia/Kathmandu') ], [ client_encoding => 'LATIN1' ], [ array_nulls => 'off' ], [ transform_null_equals => 'on' ],
		[ work_mem => '64kB' ], [ plan_cache_mode => pick('force_generic_plan', 'force_custom_plan') ], [ check_function_bodies => 'off' ], [ row_security => 'off' ], [ enable_seqscan => 'off' ],
		[ default_transaction_isolation => pick('serializable', '"repeatable read"') ], [ default_transaction_read_only => 'on' ], [ default_transaction_deferrable => 'on' ],
		[ max_stack_depth => '100kB' ], [ idle_in_transaction_session_timeout => '1000' ], [ jit_above_cost => 0 ], [ xmloption => 'document' ], [ lc_numeric => 'C' ]);
	# PostgreSQL 19 has no other strings than standard ones.
	push @settings, [ standard_conforming_strings => 'off' ], [ escape_string_warning => 'off' ] if $primary->pg_version->major < 19;
	my %turned;
	for (1 .. pick(0, 1, 2, 4)) { my $setting = pick(@settings); $turned{ $setting->[0] } = $setting->[1]; }
	# Only superusers may set this one, others see an error.
	my $name = { search_path => 1, default_transaction_isolation => 1 };
	return map { my $value = $turned{$_}; "SET $_ TO " . ($name->{$_} ? $value =~ s/"([^"]*)"/'$1'/r : quoted($value)) . ';' } sort keys %turned;
}

# A statement that calls a function, as a script for psql. After what is rolled back to a
# savepoint, the locks are looked at.
# What nextval() keeps until the transaction ends, generators keep as well: that lock of a sequence
# that the role may use. Predicate locks keep nobody out.
my $locks = q{SELECT coalesce(string_agg(concat_ws(' ', mode, relkind, relname), ', '), '') AS left_locks
	FROM pg_locks JOIN pg_class AS c ON c.oid = relation
	WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation >= 16384 AND mode <> 'SIReadLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND NOT CASE WHEN relkind = 'S' AND mode IN ('AccessShareLock', 'RowExclusiveLock') THEN has_sequence_privilege(c.oid, 'USAGE, SELECT, UPDATE') ELSE false END};
sub statement
{
	my ($function) = @_;
	my $call = call($function);
	return "CALL $call;" if $function->{kind} eq 'p';
	if ($function->{set})
	{
		return pick(
			("SELECT count(r::text) FROM $call AS r;") x 4,
			"SELECT count(r::text) FROM (SELECT $call AS r) AS s;",
			"SELECT count(r::text) FROM generate_series(1, 3) AS n, LATERAL (SELECT $call AS r) AS s;",
			deep($function, $call));
	}
	return pick(
		("SELECT count(r::text) FROM (SELECT $call AS r) AS s;") x 6,
		("SELECT count(r::text) FROM $call AS r;") x 4,
		"SELECT count($call) FROM generate_series(1, 20) AS n;",
		"SELECT count(*) FROM generate_series(1, 20) AS n WHERE $call IS NOT NULL;",
		"DEALLOCATE ALL; PREPARE p AS SELECT ($call)::text; EXECUTE p; EXECUTE p;",
		"DO \$fuzz\$ BEGIN PERFORM $call; EXCEPTION WHEN division_by_zero THEN NULL; END \$fuzz\$;",
		"CREATE TEMP TABLE made_by_fuzz AS SELECT ($call)::text AS c; DROP TABLE IF EXISTS made_by_fuzz;",
		deep($function, $call));
}
sub deep
{
	my ($function, $call) = @_;
	my $many = pick(200, 500);
	return pick(
		'EXPLAIN SELECT ' . join(', ', ($call) x 100) . ' FROM generate_series(1, 2) AS n;',
		'EXPLAIN SELECT FROM ' . join(', ', map { "$call AS r$_" } 1 .. 50) . ';') if $function->{set};
	return pick(
		'EXPLAIN SELECT ' . join(' AND ', ("$call IS NULL") x $many) . ';',
		'EXPLAIN SELECT ' . ("coalesce($call, " x $many) . $call . (')' x $many) . ';',
		'EXPLAIN SELECT ' . ("CASE WHEN $call IS NULL THEN 1 ELSE " x $many) . '0' . (' END' x $many) . ';',
		'EXPLAIN SELECT 1 WHERE ' . join(' OR ', ("($call)::text = ($call)::text") x ($many / 2)) . ';',
		'EXPLAIN SELECT ' . join(', ', ($call) x 100) . ' FROM generate_series(1, 2) AS n;');
}
sub wrapped
{
	my ($statement) = @_;
	my $how = rand();
	return $statement if $how < 0.35;
	return "BEGIN;\n$statement\n$statement\nCOMMIT;" if $how < 0.4;
	return "BEGIN;\nSAVEPOINT s;\n$statement\nROLLBACK TO s;\n$locks \\gset\n\\if :{?left_locks}\n\\warn locks :left_locks\n\\endif\n\\unset left_locks\nROLLBACK;";
}

# A batch: its role, its server, its settings, and its calls, all from its number.
my @roles = ('', 'keeper', 'plain', 'watcher');
sub batch
{
	my ($number) = @_;
	srand($seed + 7919 * $number);
	my %batch = (number => $number, role => pick(@roles), node => chance(0.25) ? 'standby' : 'primary', settings => [ settings() ], calls => []);
	# The first batches call all functions, each once with an EXPLAIN.
	my @these = map { $functions[ ($number * $per_batch / 2 + $_) % @functions ] } 0 .. $per_batch / 2 - 1;
	push @{ $batch{calls} }, wrapped($_->{kind} eq 'p' ? statement($_) : pick(statement($_), deep($_, call($_)))) for @these;
	# One argument of each batch has 100 MB. Functions that run a statement of the caller's get
	# none: PostgreSQL repeats what it cannot parse in its message, its context and its log.
	my @with_text = grep { $_->{name} !~ /\b(?:run|run_as_caller|as_owner|on_workers|snowflake_convert_run)$/
		&& grep { /^(?:text|jsonb|bytea)$/ } @{ $_->{types} } } @functions;
	my $large = $with_text[ $number % @with_text ];
	my $is_large = 0;
	my @arguments = map { /^(text|jsonb|bytea)$/ && !$is_large++ ? $huge{$1} : argument($_) } @{ $large->{types} };
	push @{ $batch{calls} }, ($large->{kind} eq 'p' ? 'CALL' : 'SELECT') . " $large->{name}(" . join(', ', @arguments) . ');';
	push @{ $batch{calls} }, wrapped(statement(pick(@functions))) for 1 .. $per_batch / 2;
	return \%batch;
}

my (%called, %states, @defects, $calls);
$calls = 0;
my %read = map { $_ => -s $node{$_}->logfile } keys %node;
sub defect
{
	my ($batch, $what) = @_;
	push @defects, "SEED=$seed BATCH=$batch->{number}: $what";
	diag($defects[-1]) if @defects <= 20;
	return;
}
sub start
{
	my ($batch) = @_;
	my $node = $node{ $batch->{node} };
	my $file = PostgreSQL::Test::Utils::tempdir() . "/batch$batch->{number}.sql";
	my $number = 0;
	my $text = join("\n", '\set VERBOSITY verbose', '\set SHOW_CONTEXT never', 'SET client_min_messages = error;', @{ $batch->{settings} },
		(map { sprintf("\\warn #%d\n%s", $number++, $_) } @{ $batch->{calls} }), '\warn #end', '');
	# What is written are bytes.
	utf8::encode($text) if utf8::is_utf8($text);
	append_to_file($file, $text);
	my $out = '';
	$batch->{errors} = '';
	$batch->{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('fuzzed') . " application_name=fuzz$batch->{number}", $batch->{role} ? ('-U', $batch->{role}) : (), '-f', $file ],
		'<', \undef, '>', '/dev/null', '2>', \$batch->{errors});
	return $batch;
}
# What went on in a batch, from what psql has said.
sub finish
{
	my ($batch) = @_;
	IPC::Run::finish($batch->{run});
	my $who = ($batch->{role} || 'a superuser') . " on the $batch->{node} with '@{ $batch->{settings} }'";
	my @parts = split /^#(\d+|end)\n/m, $batch->{errors} =~ s/^psql:\S+:\d+: #/#/gmr;
	my ($done, %parts) = ('', @parts[ 1 .. $#parts ], 'end' => $parts[-1]);
	defect($batch, "the session of $who has ended: " . substr($batch->{errors}, -500)) if $batch->{errors} !~ /^#end$/m;
	for my $number (grep { $_ ne 'end' } keys %parts)
	{
		my $call = $batch->{calls}[$number];
		my $text = $parts{$number};
		$calls++;
		my @codes = $text =~ /(?:ERROR|FATAL|PANIC):\s+([0-9A-Z]{5}):/g;
		$states{$_}++ for @codes ? @codes : '00000';
		for my $function (@functions) { $called{ $function->{name} }{ @codes ? 'failed' : 'succeeded' }++ if index($call, "$function->{name}(") >= 0; }
		$call =~ s/^BEGIN;\nSAVEPOINT s;\n(.*)\nROLLBACK TO s;.*/$1/s;
		defect($batch, "$_ for $who: " . substr($call, 0, 1000) . "\n" . substr($text, 0, 500)) for grep { /^XX/ } @codes;
		defect($batch, "a lock is left for $who: $1: " . substr($call, 0, 1000)) if $text =~ /^(?:psql:\S+ )?locks (.+)$/m && $1 !~ /^:/;
	}
	return;
}
# Sessions that nobody can stop, and what the logs say.
sub look
{
	my ($batch) = @_;
	for my $name (sort keys %node)
	{
		my $log = slurp_file($node{$name}->logfile, $read{$name});
		$read{$name} += length $log;
		for my $line (grep { /TRAP: |was terminated by signal|PANIC|panicked|terminating any other active|^\d+ XX\w+ / } split /\n/, $log)
		{
			defect($batch, "the log of the $name: $line");
		}
	}
	return;
}
sub is_up { my ($node) = @_; return $node->psql('postgres', 'SELECT 1', on_error_die => 0) == 0; }

my $until = time + 60 * $minutes;
my $number = $only // 0;
my $is_lost = 0;
while (!$is_lost && (time < $until && !defined $only || defined $only && $number == $only))
{
	# Two at once, which also meet each other's locks.
	my @batches = map { start(batch($number++)) } 1 .. (defined $only ? 1 : 2);
	srand;
	my $looked = time;
	while (grep { $_->{run}->pumpable } @batches)
	{
		$_->{run}->pump_nb for grep { $_->{run}->pumpable } @batches;
		sleep 0.02;
		next if time < $looked + 1;
		$looked = time;
		for my $name (sort keys %node)
		{
			my ($status, $out, $err) = $node{$name}->psql('postgres', "SELECT application_name || ': ' || left(query, 1000) FROM pg_stat_activity WHERE application_name LIKE 'fuzz%' AND state = 'active'
				AND query_start < clock_timestamp() - interval '@{[ $timeout + $grace ]} s'");
			if ($status) { $is_lost = 1; defect($batches[0], "the $name does not answer: $err"); next; }
			for my $query (split /\n(?=fuzz\d+: )/, $out)
			{
				defect($batches[0], "the $name does not cancel $query");
				$is_lost = 1;
			}
			# Whatever runs, its cancellation ends it.
			$node{$name}->psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'fuzz%' AND state = 'active'") if chance(0.3);
		}
		if ($is_lost) { $_->{run}->kill_kill for @batches; last; }
	}
	finish($_) for grep { !$is_lost } @batches;
	look($batches[0]);
	$is_lost ||= !is_up($primary) || !is_up($standby);
	last if $is_lost;
	my $now = as(undef, $rights);
	if ($now ne $rights_at_first)
	{
		defect($batches[0], "rights have changed, from\n$rights_at_first\nto\n$now");
		$rights_at_first = $now;
	}
}
ok(!$is_lost, 'both servers are there, and every call has ended');
is(scalar @defects, 0, 'no internal error, no lock left, no right gained') or diag(map { "$_\n" } @defects);
note("$calls calls in $number batches; SQLSTATEs: " . join(', ', map { "$_ $states{$_}" } sort { $states{$b} <=> $states{$a} } keys %states));
if (!defined $only)
{
	my @never = grep { !$called{$_} } map { $_->{name} } @functions;
	is("@never", '', 'all functions were called');
	cmp_ok(scalar(grep { $_->{succeeded} } values %called), '>', @functions / 3, 'many of them with success');
}
done_testing();
