# Tests the functions of managed/snowflake_sql.sql on a server without the library: what they
# return, beside the native ones; errors; the view, when something is wrong; privileges.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Managed;
use Snowflake;

my $node = stock_node('main');
install_file($node);

# --- Installation -----------------------------------------------------------------------
my ($code, $error) = (0, '');
$node->safe_psql('postgres', 'CREATE DATABASE other OWNER dbo');
{
	my $file = "$FindBin::RealBin/../../../managed/snowflake_sql.sql";
	my ($host, $port) = ($node->host, $node->port);
	IPC::Run::run([ 'psql', '-X', '-q', '-h', $host, '-p', $port, '-U', 'dbo', '-d', 'other', '-f', $file ], '>', \my $out, '2>', \$error);
	like($error, qr/this file must run in one transaction/, 'without -1, the file refuses');
	is($node->safe_psql('other', q{SELECT count(*) FROM pg_proc WHERE proname LIKE 'snowflake\_%'}), 0, 'and makes nothing');
	cmp_ok(scalar(my @lines = split /\n/, slurp_file($file)), '<=', 600, 'the file has 600 lines at most');
}
sql($node, 'CREATE EXTENSION snowflake_sql', database => 'other');
is(sql($node, "SELECT snowflake_create_generator('g', 3); SELECT nextval('g') & 1023", database => 'other'), "g\n3", 'as an extension, by a role that is no superuser');
sql($node, 'DROP SEQUENCE g; DROP EXTENSION snowflake_sql', database => 'other');
is($node->safe_psql('other', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'snowflake_sql'}), 0, 'the extension leaves nothing behind');

# Rules for the objects, as for those of the native extension.
is($node->safe_psql('shop', q{SELECT p.oid::regprocedure FROM pg_proc AS p WHERE pronamespace = 'snowflake_sql'::regnamespace
	AND (prosecdef OR obj_description(p.oid, 'pg_proc') IS NULL
		OR prosqlbody IS NULL AND NOT coalesce(proconfig[1] = 'search_path=pg_catalog, pg_temp', false))}), '',
	'no function is SECURITY DEFINER; each has a comment, and names that are bound or looked up in pg_catalog first');
is($node->safe_psql('shop', q{SELECT relname FROM pg_class WHERE relnamespace = 'snowflake_sql'::regnamespace AND obj_description(oid, 'pg_class') IS NULL}), '', 'each view has a comment');

# --- IDs and instants, beside the native functions, which decode without the library ------
$node->safe_psql('shop', 'CREATE SCHEMA native; CREATE EXTENSION snowflake_id SCHEMA native; GRANT USAGE ON SCHEMA native TO PUBLIC');
sql($node, q{SELECT snowflake_create_generator('g', 5)});
my $layout = q{$l$layout='time:41 sequence:12 worker:10' epoch=2025-01-01Z$l$};
my $vectors = decode_json(slurp_file("$FindBin::RealBin/../../vectors/managed.json"));
cmp_ok(scalar @$vectors, '>=', 10, 'there are vectors');
for my $v (@$vectors)
{
	my $shown = "$v->{created_at}|$v->{worker}|$v->{sequence}||$v->{time}|$v->{sequence}|$v->{worker}";
	my $columns = q{created_at, worker_id, sequence, clock, fields -> 'time', fields -> 'sequence', fields -> 'worker'};
	is(sql($node, "SELECT $columns FROM snowflake_decode($v->{id}, 'g')"), $shown, "$v->{id}: snowflake_decode()");
	is(sql($node, "SELECT $columns FROM native.snowflake_decode_as($v->{id}, $layout)"), $shown, "$v->{id}: the native function");
	is(sql($node, "SELECT snowflake_timestamp($v->{id}), snowflake_timestamp($v->{id}, 'g'), native.snowflake_timestamp($v->{id})"),
		join('|', ($v->{created_at}) x 3), "$v->{id}: snowflake_timestamp()");
	is(sql($node, "SELECT snowflake_min_id(at) = native.snowflake_min_id(at), snowflake_max_id(at) = native.snowflake_max_id(at), snowflake_min_id(at, 'g') = native.snowflake_min_id_as(at, $layout),
			snowflake_max_id(at, 'g') = native.snowflake_max_id_as(at, $layout), snowflake_min_id(at) <= $v->{id} AND $v->{id} <= snowflake_max_id(at)
		FROM (SELECT timestamptz '$v->{created_at}' + interval '0.6 ms') AS s (at)"), 't|t|t|t|t', "$v->{id}: snowflake_min_id(), snowflake_max_id()");
}
is(sql($node, "SELECT snowflake_$_('-infinity') = native.snowflake_$_('-infinity'), snowflake_$_('infinity') = native.snowflake_$_('infinity'), snowflake_$_(NULL) IS NULL"), 't|t|t', "$_() of the ends")
  for qw(min_id max_id);
is(sql($node, q{SELECT count(*) FROM (SELECT (i * 7919 % 2199023255551) << 22 | i * 31 % 4194304 AS id FROM generate_series(1, 5000) AS i) AS s
		WHERE snowflake_timestamp(id) <> native.snowflake_timestamp(id) OR snowflake_min_id(snowflake_timestamp(id)) <> id & -4194304}), 0, '5000 IDs');
my $drawn = sub { return $_[0] =~ s/, \S+( \S+)* ago//r =~ s/, another .*//r };
$node->safe_psql('shop', qq{SET search_path = native; SELECT snowflake_create_generator('native.n', layout => 'time:41 sequence:12 worker:10', epoch => '2025-01-01Z')});
$node->safe_psql('shop', 'GRANT USAGE, SELECT ON native.n TO PUBLIC');
for my $id (249722523258744845, 0, 5_000_000)
{
	my $ours = $drawn->(sql($node, "SELECT snowflake_explain($id, 'g')") =~ s/generator g$/generator native.n/mr);
	is($ours, $drawn->(sql($node, "SELECT native.snowflake_explain($id, 'native.n')")), "snowflake_explain($id)");
}
is(sql($node, q{CREATE TABLE indexed (id bigint); CREATE INDEX ON indexed (snowflake_timestamp(id));
	SELECT snowflake_timestamp(NULL) IS NULL, (snowflake_decode(NULL, 'g')).created_at IS NULL, snowflake_explain(NULL, 'g') IS NULL, snowflake_timestamp(5, NULL) IS NULL}), 't|t|t|t', 'nulls, and an index');

# --- Errors -----------------------------------------------------------------------------
refused($node, @$_) for (
	[ 'SELECT snowflake_timestamp(-1)', 22003, '-1 is not an ID' ], [ q{SELECT snowflake_decode(-1, 'g')}, 22003, '-1 is not an ID' ],
	[ q{SELECT snowflake_min_id('2024-12-31 23:59:59.999Z')}, 22008, 'out of range' ], [ q{SELECT snowflake_max_id('2094-09-07 15:47:35.552Z')}, 22008, 'out of range' ],
	[ q{SELECT snowflake_decode(5, 'pg_class')}, 42809, 'pg_class is not a generator' ], [ q{SELECT snowflake_min_id(now(), 'pg_class')}, 42809, 'not a generator' ],
	[ q{CREATE SEQUENCE plain; SELECT snowflake_nextval('plain')}, 42809, 'plain is not a generator' ], [ q{CREATE SEQUENCE plain; SELECT snowflake_advance('plain', 5)}, 42809, 'is not a generator' ],
	[ q{SELECT snowflake_create_generator('x', 1024)}, 22023, 'worker ID 1024 is out of range' ], [ q{SELECT snowflake_create_generator('x', NULL)}, 22023, 'worker ID null' ],
	[ q{SELECT snowflake_create_generator('x', -1)}, 22023, 'worker ID -1' ], [ q{SELECT snowflake_create_generator('g', 1)}, '42P07', 'already exists' ],
	[ q{SELECT snowflake_create_generator('a.b.c', 1)}, 42602, 'a.b.c' ], [ q{SELECT snowflake_create_generator('pg_temp.x', 1)}, 42602, 'cannot be temporary' ],
	[ q{SELECT snowflake_create_generator(NULL, 1)}, 42602, 'no name' ], [ q{SELECT snowflake_create_generator(repeat('x', 1e8::int), 1)}, 42602, 'more than 300 bytes' ],
	[ q{SELECT snowflake_create_generator('nowhere.x', 1)}, '3F000', 'nowhere' ],
	[ q{SET search_path = ''; SELECT snowflake_sql.snowflake_create_generator('x', 1)}, '3F000', 'no schema' ],
	[ q{SELECT snowflake_advance('g', now() + interval '13 hours')}, 22008, 'At most 12 h' ], [ q{SELECT snowflake_advance('g', -5)}, 22003, '-5' ],
	[ q{SELECT snowflake_advance_all('-1 s')}, 22023, 'ahead' ], [ q{SELECT snowflake_advance_all(NULL)}, 22023, 'ahead' ], [ q{SELECT snowflake_advance_all('13 hours')}, 22023, 'ahead' ],
	[ q{SELECT snowflake_set_worker('pg_class', 5)}, 42809, 'pg_class' ], [ q{SELECT snowflake_set_worker(NULL, 5)}, 42809, 'null' ], [ q{SELECT snowflake_set_worker('g', 5000)}, 22023, '5000' ],
	[ q{CREATE SEQUENCE plain; SELECT snowflake_set_worker('plain', 5)}, 42809, 'adopt => true' ],
	[ q{CREATE TABLE narrow (id serial PRIMARY KEY); SELECT snowflake_set_worker('narrow_id_seq', 5, adopt => true)}, 42804, 'integer' ],
	[ q{SELECT snowflake_set_default('pg_class', 'oid', 'g')}, 42501, 'must be owner' ], [ q{SELECT snowflake_set_default(NULL)}, 42809, 'null is not a table' ],
	[ q{CREATE TABLE k (a bigint, b bigint, PRIMARY KEY (a, b)); SELECT snowflake_set_default('k', generator => 'g')}, 42703, 'no primary key of one column' ],
	[ q{CREATE TABLE k (a bigint); SELECT snowflake_set_default('k', 'b', 'g')}, 42703, 'column "b"' ], [ q{CREATE TABLE k (a int); SELECT snowflake_set_default('k', 'a', 'g')}, 42804, 'column "a"' ],
	[ q{CREATE TABLE k (a bigint); SELECT snowflake_set_default('k', 'a')}, 42809, 'null is not a generator' ],
	[ q{CREATE TABLE k (a bigint PRIMARY KEY); CREATE TABLE r (k int REFERENCES k); SELECT snowflake_set_default('k', generator => 'g')}, 42804, 'r.k' ],
	[ q{CREATE TABLE k (a bigint); INSERT INTO k VALUES (9e18); SELECT snowflake_set_default('k', 'a', 'g')}, 55000, 'holds 9000000000000000000.*snowflake_advance' ],
	[ q{CREATE TABLE k (a bigint GENERATED ALWAYS AS IDENTITY); INSERT INTO k OVERRIDING SYSTEM VALUE VALUES (9e18); SELECT snowflake_set_worker('k_a_seq', 1, true)}, 55000, 'holds 9000000000000000000' ],
	[ q{CREATE TABLE k (a bigint) PARTITION BY RANGE (a); CREATE TABLE p PARTITION OF k DEFAULT; SELECT snowflake_set_default('p', 'a', 'g')}, 42809, 'partitioned table: public.k' ],
	[ q{SELECT snowflake_check('indexed', 'id', sample => 0)}, 22023, 'sample' ], [ q{SELECT snowflake_check('g', 'id')}, 42809, 'g is not a table' ]);
is(sql($node, q{SELECT snowflake_create_generator('"od d%s'||chr(39)||'"', 9); SELECT snowflake_advance_all(), nextval('"od d%s'||chr(39)||'"') & 1023, snowflake_nextval(('"od d%s'||chr(39)||'"')::regclass) & 1023}), qq{"od d%s'"\n0|9|9}, 'an odd name');
sql($node, q{DROP SEQUENCE "od d%s'"});

# --- Moves ------------------------------------------------------------------------------
sub late { return value_of($node, $_[0] // 'g', 'extract(epoch FROM late)'); }
is(sql($node, q{SELECT snowflake_advance_all()}), 0, 'a move');
cmp_ok(late(), '<', 2, 'the ID is of now');
is(sql($node, q{BEGIN; SELECT nextval('g') < snowflake_min_id(snowflake_advance('g', now() + interval '5 min')); SELECT nextval('g') > snowflake_min_id(clock_timestamp() + interval '4 min'), currval('g') = snowflake_currval('g'); ROLLBACK; SELECT nextval('g') > snowflake_min_id(now() + interval '4 min')}), "t\nt|t\nt", 'snowflake_advance() to an instant, which no rollback undoes');
my $id = sql($node, q{SELECT nextval('g')});
sql($node, 'SELECT snowflake_advance(' . "'g', " . ($id + 5_000_007) . ')');
my $next = sql($node, q{SELECT nextval('g')});
ok($id + 5_000_007 < $next && $next <= $id + 5_000_007 + 1024 && ($next & 1023) == 5, 'snowflake_advance() past an ID');
is(sql($node, "SELECT snowflake_advance('g', 5); SELECT nextval('g')") =~ s/.*\n//r, $next + 2048, 'snowflake_advance() to an ID of the past');

# The clock is set back, and far ahead.
sql($node, q{SELECT snowflake_create_generator('c', 6)});
set_clock($node, -3600);
is(sql($node, q{SELECT snowflake_advance_all()}), 0, 'the clock is set back: no error');
my @ids = split /\n/, sql($node, q{SELECT nextval('c') FROM generate_series(1, 100)});
cmp_ok(sql($node, q{SELECT extract(epoch FROM snowflake_timestamp(nextval('c')) - clock_timestamp())}), '>', 3500, 'IDs stay ahead of the clock');
cmp_ok(value_of($node, 'c', 'extract(epoch FROM ahead_by)'), '>', 3500, 'the view shows it');
like(value_of($node, 'c', 'problem'), qr/ahead of the clock/, 'and says it');
set_clock($node, 400 * 86400);
like((sql($node, q{SELECT snowflake_advance_all()}, may_fail => 1))[1], qr/WARNING:  22008: generator public\.c was not moved: the clock is \d+ days/, 'a clock that is more than a year ahead moves nothing');
cmp_ok(sql($node, q{SELECT nextval('c')}), '==', $ids[-1] + 3 * 1024, 'IDs go on where they were');
is(sql($node, q{SELECT snowflake_advance('c', now()) > now() - interval '1 s'; SELECT snowflake_advance_all()} ) =~ s/\n.*//r, 't', 'snowflake_advance() accepts the clock');
set_clock($node, 0);
sql($node, 'DROP SEQUENCE c; DROP SEQUENCE IF EXISTS g; SELECT snowflake_create_generator($$g$$, 5)');

# Open transactions keep moves out: IDs go on, and the view names who holds it.
my $holder = $node->background_psql('shop', extra_params => [ '-U', 'dbo' ]);
my $pid = $holder->query_safe('SELECT pg_backend_pid()');
my $before = $holder->query_safe(q{BEGIN; SELECT nextval('g')});
my $from = Time::HiRes::time();
is(sql($node, 'SELECT snowflake_advance_all()'), 1, 'an open transaction: not moved');
cmp_ok(Time::HiRes::time() - $from, '<', 10, 'the move gives up soon');
Time::HiRes::sleep(1.1);
refused($node, q{SELECT snowflake_advance('g', now())}, '55P03', 'held_by');
is(sql($node, q{SELECT nextval('g')}), $before + 1024, 'IDs go on meanwhile');
is(value_of($node, 'g', q{held_by, held_by_prepared, held_since < now(), late > '1 s'}), "{$pid}||t|t", 'the view names the session');
is(sql($node, q{SELECT snowflake_nextval('g')}), $before + 2048, 'snowflake_nextval() returns the ID that it has');
set_clock($node, 5);
$from = Time::HiRes::time();
is(sql($node, q{SELECT count(DISTINCT snowflake_nextval('g')) FROM generate_series(1, 1000)}), 1000, '1000 calls for IDs that are late');
cmp_ok(Time::HiRes::time() - $from, '<', 5, 'do not wait for the lock each time');
$holder->query_safe(q{PREPARE TRANSACTION 'left over'});
is(sql($node, 'SELECT snowflake_advance_all()'), 1, 'a prepared transaction: not moved');
is(value_of($node, 'g', 'held_by, held_by_prepared'), '|{"left over"}', 'the view names it');
set_clock($node, 15);
like(value_of($node, 'g', 'problem'), qr/open transactions keep moves out/, 'and says so when it is late');
# A role that keeps many sequences locked, which sort first, does not stop a scheduler with rights over it: neither for its own
# generators, nor for those of a third role.
my $root = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('shop', q{CREATE ROLE rival LOGIN; CREATE SCHEMA aaa AUTHORIZATION rival; CREATE SCHEMA zzz; SELECT snowflake_sql.snowflake_create_generator('zzz.mine', 9); CREATE ROLE third;
	CREATE SCHEMA yyy AUTHORIZATION third; GRANT USAGE ON SCHEMA snowflake_sql TO rival, third; SET ROLE third; SELECT snowflake_sql.snowflake_create_generator('yyy.theirs', 9)});
$node->safe_psql('shop', q{SELECT count(snowflake_sql.snowflake_create_generator('aaa.s' || n, 9)) FROM generate_series(1, 100) AS n}, extra_params => [ '-U', 'rival' ]);
my $rival = $node->background_psql('shop', extra_params => [ '-U', 'rival' ]);
$rival->query_safe(q{BEGIN; SELECT nextval('aaa.s' || n) FROM generate_series(1, 100) AS n});
set_clock($node, 25);
my $moved = q{SELECT string_agg((snowflake_sql.snowflake_timestamp(nextval(g)) > clock_timestamp() - interval '3 s')::text, ' ') FROM unnest('{zzz.mine,yyy.theirs}'::text[]) AS g};
is($node->safe_psql('shop', $moved), 'false false', 'two generators are late');
# The first lock is waited for a second, and then those of the same role for a millisecond each.
$node->psql('shop', q{SET statement_timeout = '900ms'; SELECT snowflake_sql.snowflake_advance_all('1 s')}, extra_params => [ '-U', $root ]);
is($node->safe_psql('shop', $moved), 'true false', "the caller's own is moved before the first lock");
is($node->safe_psql('shop', q{SET statement_timeout = '60s'; SELECT snowflake_sql.snowflake_advance_all('1 s') >= 100}, extra_params => [ '-U', $root ]), 't', '100 locked ones of a role');
is($node->safe_psql('shop', $moved), 'true true', 'do not stop a move of all');
$rival->query_safe('ROLLBACK');
$rival->quit;
$node->safe_psql('shop', 'DROP SCHEMA aaa, yyy, zzz CASCADE; DROP OWNED BY rival, third; DROP ROLE rival, third');

sql($node, 'GRANT SELECT ON SEQUENCE g TO app');
like(value_of($node, 'g', 'problem', role => 'app'), qr/open transactions keep moves out/, 'to other roles, too');
$holder->query_safe(q{COMMIT PREPARED 'left over'});
like(value_of($node, 'g', 'problem'), qr/nothing calls snowflake_advance_all/, 'without a scheduler, the view says so');
my ($first, $second) = split /\n/, sql($node, q{SELECT snowflake_nextval('g'); SELECT nextval('g')});
cmp_ok($first - $before, '>', 14000 << 22, 'snowflake_nextval() moves a generator that is late');
is($second, $first + 1024, 'and returns an ID after it');
is(value_of($node, 'g', q{problem, late < '2 s'}), '|t', 'all is well again');
set_clock($node, 0);

# While a move waits for the lock, another sequence takes the name: the lock is on that one then.
$holder->query_safe(q{BEGIN; SELECT nextval('g'); ALTER SEQUENCE g RENAME TO renamed; CREATE SEQUENCE g});
my $waiting = session($node, 'dbo', 'shop');
send_to($waiting, q{SELECT snowflake_sql.snowflake_advance('public.g', now() + interval '1 min')});
wait_for_lock($node, '%advance%');
$holder->query_safe('COMMIT');
my ($state, $text) = answer_in($waiting);
is($state, 55000, 'another sequence has taken the name: no move') or diag($text);
like($text, qr/another sequence has taken the name/, 'and the error says so');
$waiting->quit;
sql($node, 'DROP SEQUENCE g; ALTER SEQUENCE renamed RENAME TO g');

# --- What others do to the sequence ---------------------------------------------------------
sub broken
{
	my ($what, $change, $like) = @_;
	sql($node, "SELECT snowflake_create_generator('b', 9); ALTER SEQUENCE b OWNED BY NONE; $change");
	like(value_of($node, 'b', 'problem'), $like, "$what: the view says so");
	like((sql($node, 'SELECT snowflake_advance_all()', may_fail => 1))[1], qr/WARNING:  55000: generator public.b was not moved/, "$what: no move");
	my $last = sql($node, 'SELECT last_value FROM b');
	is(sql($node, q{SELECT 1 FROM snowflake_set_worker('b', 10); SELECT problem FROM snowflake_generators WHERE generator = 'b'::regclass; SELECT nextval('b') & 1023, snowflake_advance_all()}), "1\n\n10|0", "$what: snowflake_set_worker() repairs it");
	cmp_ok(sql($node, q{SELECT nextval('b')}), '>', $last, "$what: IDs go on above it");
	sql($node, 'DROP SEQUENCE b');
	return;
}
broken('CACHE', 'ALTER SEQUENCE b CACHE 100', qr/CACHE is 100/);
broken('CYCLE', 'ALTER SEQUENCE b CYCLE', qr/CYCLE/);
broken('INCREMENT', 'ALTER SEQUENCE b INCREMENT 1', qr/INCREMENT is 1, not 1024/);
broken('setval() to another worker ID', q{SELECT setval('b', nextval('b') + 3)}, qr/have worker ID 12/);
sql($node, q{SELECT snowflake_create_generator('b', 9); SELECT setval('b', 9223372036854775807 - 1023 + 9 - 1024)});
like(value_of($node, 'b', 'problem'), qr/ahead of the clock/, 'near the end of the time: the view');
sql($node, q{SELECT nextval('b')});
refused($node, q{SELECT nextval('b')}, '2200H', 'maximum value');
refused($node, q{SELECT snowflake_set_worker('b', 8)}, '2200H', 'no IDs are left');
sql($node, 'ALTER SEQUENCE b RESTART');
like(value_of($node, 'b', 'problem'), qr/restarted/, 'RESTART: the view says so');
is(sql($node, q{SELECT snowflake_advance_all(); SELECT problem FROM snowflake_generators WHERE generator = 'b'::regclass; SELECT nextval('b') & 1023}), "0\n\n9", 'the next move repairs it');
sql($node, 'DROP SEQUENCE b');

# --- The worker ID ----------------------------------------------------------------------
$before = sql($node, q{SELECT nextval('g')});
sql($node, q{BEGIN; SELECT snowflake_set_worker('g', 77); SELECT nextval('g'); ROLLBACK});
is(sql($node, q{SELECT nextval('g')}), $before + 1024, 'a rollback undoes snowflake_set_worker()');
is(sql($node, q{SELECT 1 FROM snowflake_set_worker('g', 77); SELECT nextval('g') & 1023, worker_id FROM snowflake_generators}), "1\n77|77", 'another worker ID');
cmp_ok(sql($node, q{SELECT nextval('g')}), '>', $before + 2048, 'above the IDs so far');

# Also of IDs that are ahead of the clock.
$before = sql($node, q{SELECT 1 FROM snowflake_advance('g', now() + interval '5 min'); SELECT nextval('g')}) =~ s/.*\n//r;
cmp_ok(sql($node, q{SELECT 1 FROM snowflake_set_worker('g', 77); SELECT nextval('g')}) =~ s/.*\n//r, '>', $before, 'and those ahead of the clock');
sql($node, 'DROP SEQUENCE g; SELECT snowflake_create_generator($$g$$, 77)');

# --- Tables -----------------------------------------------------------------------------
sql($node, q{CREATE TABLE orders (id bigserial PRIMARY KEY, item text); INSERT INTO orders (item) VALUES ('a'), ('b');
	CREATE TABLE visits (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, page text); INSERT INTO visits (page) VALUES ('a');
	CREATE TABLE parts (id bigint, x int) PARTITION BY RANGE (id); CREATE TABLE parts_all PARTITION OF parts DEFAULT});
is(sql($node, q{SELECT snowflake_set_default('orders', generator => 'g')}), q{orders.id: default nextval('orders_id_seq'::regclass) replaced by nextval('public.g'::regclass); greatest value so far 2; sequence orders_id_seq kept} =~ s/orders\./public.orders./r =~ s/'orders_/'public.orders_/r =~ s/sequence orders/sequence public.orders/r, 'snowflake_set_default() of a bigserial');
is(sql($node, q{SELECT snowflake_set_default('orders', generator => 'g', drop_sequence => true, self_moving => true)}) =~ s/\d{15,}/N/gr, q{public.orders.id: default nextval('public.g'::regclass) replaced by snowflake_sql.snowflake_nextval('public.g'::regclass); greatest value so far 2; sequence public.orders_id_seq dropped}, 'and with the sequence dropped');
is(sql($node, q{SELECT snowflake_set_default('visits', generator => 'g')}), q{public.visits.id: identity replaced by default nextval('public.g'::regclass); greatest value so far 1}, 'of an identity column');
is(sql($node, q{SELECT snowflake_set_default('parts', 'id', 'g')}), q{public.parts.id: default set to nextval('public.g'::regclass); no values so far}, 'of a partitioned table');
is(sql($node, q{INSERT INTO orders (item) SELECT 'c' FROM generate_series(1, 50); INSERT INTO visits (page) SELECT 'c' FROM generate_series(1, 50); INSERT INTO parts (x) SELECT 1 FROM generate_series(1, 50); INSERT INTO parts_all (x) VALUES (1);
	SELECT count(DISTINCT id), bool_and(id & 1023 = 77) FROM (SELECT id FROM orders UNION ALL SELECT id FROM visits UNION ALL SELECT id FROM parts) AS s WHERE id > 1000}), '151|t', 'rows get IDs');
sql($node, q{CREATE TABLE own (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, x int); INSERT INTO own (x) VALUES (1); SELECT snowflake_set_worker('own_id_seq', 78, adopt => true); INSERT INTO own (x) VALUES (2)});
set_clock($node, 20);
is(sql($node, q{SELECT snowflake_advance_all(); INSERT INTO own (x) VALUES (3); SELECT x, id & 1023, snowflake_timestamp(id) > clock_timestamp() - interval '5 s' FROM own ORDER BY id}), "0\n1|1|f\n2|78|f\n3|78|t", 'the sequence of an identity column becomes a generator, and is moved');
is(sql($node, q{SELECT pg_get_serial_sequence('own', 'id'), count(*) FROM pg_depend WHERE objid = 'own_id_seq'::regclass AND deptype = 'i'}), 'public.own_id_seq|1', 'and stays that of the column');
set_clock($node, 0);
is(sql($node, q{CREATE TABLE owner (id bigint); CREATE SEQUENCE owned; ALTER SEQUENCE owned OWNED BY owner.id; SELECT 1 FROM snowflake_set_worker('owned', 79, true); SELECT snowflake_advance_all() FROM generate_series(1, 20); SELECT count(*) FROM pg_depend WHERE objid = 'owned'::regclass AND deptype = 'a'}) =~ s/(\n0){20}//r, "1\n1", 'moves leave OWNED BY as it is');

is(sql($node, q{CREATE TABLE checked (id bigint); INSERT INTO checked SELECT snowflake_min_id('2025-03-02Z') + (i << 10) + i % 2 + 1 FROM generate_series(1, 10) AS i; INSERT INTO checked VALUES (5), (-7), (snowflake_min_id(clock_timestamp() + interval '1 h') | 1), (snowflake_min_id('2090-01-01Z') | 9);
	SELECT severity, finding, worker_id, day, ids FROM snowflake_check('checked', 'id', worker_ids => '{[1,3)}')}), join("\n", 'error|ID before the epoch|||1', 'error|ID of the future|9||1', 'warning|ID of the future|1||1',
	'warning|unknown worker ID|9||1', 'info|all IDs|||14', 'info|small numbers|||1', 'info|IDs of a day|1|2025-03-02|5', 'info|IDs of a day|2|2025-03-02|5'), 'snowflake_check()');
is(sql($node, q{SELECT c.severity, c.finding, c.worker_id, c.day, c.ids FROM native.snowflake_check('checked', 'id', layout => $$layout='time:41 sequence:12 worker:10' epoch=2025-01-01Z$$, worker_ids => '{[1,3)}') AS c WHERE c.finding ~ 'future|unknown|epoch|small|all' ORDER BY 1, 2, 3}),
	join("\n", 'error|ID before the epoch|||1', 'error|ID of the future|9||1', 'info|all IDs|||14', 'info|small numbers|||1', 'warning|ID of the future|1||1', 'warning|unknown worker ID|9||1'), 'as the native function does');
is(sql($node, q{CREATE TABLE "o'd %s %1$I" ("k'%s" bigint PRIMARY KEY); INSERT INTO "o'd %s %1$I" VALUES (nextval('g')); SELECT hint FROM snowflake_check('"o''d %s %1$I"', worker_ids => '{}') WHERE severity = 'warning';
	SELECT 1 FROM snowflake_set_default('"o''d %s %1$I"', generator => 'g'); INSERT INTO "o'd %s %1$I" DEFAULT VALUES}), q{Find out which database has it. The rows: SELECT * FROM public."o'd %s %1$I" WHERE "k'%s" & 1023 = 77} . "\n1", 'odd names of tables and columns');
like(sql($node, q{SELECT finding FROM snowflake_check('checked', 'id', sample => 50)}), qr/worker IDs were not checked/, 'a sample, without worker IDs');

# --- Privileges -------------------------------------------------------------------------
my %app = (role => 'app');
sql($node, 'GRANT USAGE ON SEQUENCE g TO app; GRANT INSERT, SELECT ON orders TO app; CREATE SEQUENCE secret; SELECT snowflake_create_generator($$hidden$$, 4)');
is(sql($node, q{SELECT nextval('g') & 1023, snowflake_nextval('g') & 1023, snowflake_advance_all(); INSERT INTO orders (item) VALUES ('app'); SELECT worker_id, last_id_at IS NULL FROM snowflake_generators WHERE generator = 'hidden'::regclass}, %app), "77|77|0\n4|t", 'a role with USAGE takes IDs, moves nothing, and sees no positions of others');
set_clock($node, 30);
cmp_ok(sql($node, q{SELECT extract(epoch FROM clock_timestamp() - snowflake_timestamp(snowflake_nextval('g')))}, %app), '>', 5, 'snowflake_nextval() of a role that does not own the generator does not move it');
set_clock($node, 0);
refused($node, @$_, %app) for (
	[ q{SELECT snowflake_advance('g', now())}, 42501, 'must be owner' ], [ q{SELECT snowflake_set_worker('g', 1)}, 42501, 'must be owner' ],
	[ q{SELECT snowflake_sql.move('g', 9000000000000000000, 1000, false)}, 42501, 'must be owner' ], [ q{SELECT snowflake_sql.mark('g')}, 42501, 'must be owner' ],
	[ q{SELECT snowflake_create_generator('mine', 1)}, 42501, 'permission denied' ], [ q{SELECT snowflake_set_default('orders', generator => 'g')}, 42501, 'must be owner' ],
	[ q{SELECT nextval('hidden')}, 42501, 'permission denied' ], [ q{SELECT snowflake_nextval('hidden')}, 42501, 'permission denied' ], [ q{SELECT snowflake_check('visits')}, 42501, 'permission denied' ]);
refused($node, q{SELECT snowflake_check('orders')}, 42501, 'SET ROLE dbo', role => $node->safe_psql('postgres', 'SELECT current_user'));
# What others make under the names that the functions use is not taken.
sql($node, q{CREATE SCHEMA evil; CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0::bigint'; CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT timestamptz ''2050-01-01''';
	CREATE FUNCTION evil.shift(bigint, integer) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0::bigint'; CREATE OPERATOR evil.<< (leftarg = bigint, rightarg = integer, function = evil.shift); CREATE VIEW evil.pg_locks AS SELECT 1 / 0 AS pid});
is(sql($node, q{SET search_path = evil, pg_catalog, public; SELECT snowflake_sql.snowflake_advance_all(), snowflake_sql.snowflake_nextval('g') & 1023, snowflake_sql.snowflake_min_id('2025-01-01 00:00:00.001Z'), count(*) FROM snowflake_sql.snowflake_generators}), '0|77|4194304|4', 'names of others in the path are not taken');
# Read-only transactions and standbys.
refused($node, q{BEGIN READ ONLY; SELECT snowflake_advance('g', now())}, 25006, 'read-only');
$node->stop;
done_testing();
