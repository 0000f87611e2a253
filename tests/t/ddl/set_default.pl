# Tests snowflake_set_default() beside other sessions, on a server that cannot issue IDs
# yet, in another encoding, and after a step of the clock.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

# Without preloading the function only writes a default.
my $node = new_node('main', 3, allows_streaming => 1);
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->start;
sub sql { return $node->safe_psql('postgres', $_[0]); }
sql('CREATE EXTENSION snowflake_id; CREATE TABLE early (id bigserial PRIMARY KEY);
	CREATE TABLE ahead (id bigint PRIMARY KEY)');
like(sql(q{SELECT snowflake_set_default('early')}), qr/replaced by public\.snowflake_nextval\(\)/,
	'the default is set before the library is preloaded');
is((error_of($node, 'INSERT INTO early DEFAULT VALUES'))[0], '55000', 'inserting says why not');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'snowflake_id'");
$node->restart;
sql('INSERT INTO early DEFAULT VALUES');
pass('and works once it is');

# The generator starts at its mark, and the mark counts before the first ID too.
sql(q{INSERT INTO ahead VALUES (snowflake_min_id(now() + interval '10 minutes'))});
is((error_of($node, q{SELECT snowflake_set_default('ahead')}))[0], '55000', 'a value ahead is refused');
sql(q{SELECT snowflake_advance('snowflake_default', max(id)) FROM ahead});
like(sql(q{BEGIN; SELECT snowflake_set_default('ahead'); ROLLBACK}), qr/greatest value so far/,
	'the advance that the hint names helps');
$node->restart;
like(sql(q{SELECT snowflake_set_default('ahead')}), qr/greatest value so far/,
	'values below the mark are below the IDs to come');
is(sql(q{INSERT INTO ahead DEFAULT VALUES; SELECT max(id) = snowflake_currval() FROM ahead}), 't',
	'and they are');

# Other sessions commit rows after the snapshot of this transaction.
sql('CREATE TABLE late (id bigint PRIMARY KEY)');
my $s = $node->background_psql('postgres', on_error_stop => 0);
$s->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM late');
sql('INSERT INTO late VALUES (9223372036854775807)');
is($s->query_safe('SELECT count(*) FROM late'), '0', 'an old snapshot does not show the row');
my $state = $s->query_safe(q{SET t.state = 'no error';
	DO $$ BEGIN PERFORM snowflake_set_default('late');
	EXCEPTION WHEN OTHERS THEN PERFORM set_config('t.state', SQLSTATE, false); END $$;
	SELECT current_setting('t.state')});
is($state, '55000', 'the check does');
$s->query_safe('ROLLBACK');

# A session that inserts meanwhile waits, and then gets the new default.
sql('CREATE TABLE busy (id bigserial PRIMARY KEY); INSERT INTO busy DEFAULT VALUES');
$s->query_safe(q{BEGIN; SELECT snowflake_set_default('busy')});
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
$waiter->query_until(qr/go/, "\\echo go\nINSERT INTO busy DEFAULT VALUES;\n");
wait_until('the insert waits', sub {
	sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'busy'::regclass}) eq '1' });
$s->query_safe('COMMIT');
$waiter->query_safe('SELECT 1');
is(sql('SELECT count(*), count(*) FILTER (WHERE id > 1000) FROM busy'), '2|1', 'a waiting insert');

# A role that does not own the table cannot queue for the lock of the table and block
# others.
sql('CREATE ROLE stranger LOGIN; GRANT ALL ON busy TO stranger');
$s->query_safe('BEGIN; SELECT count(*) FROM busy');
is((error_of($node, q{SET ROLE stranger; SET lock_timeout = '5 s';
	SELECT snowflake_set_default('busy')}))[0], '42501', 'strangers get an error, not a lock');
is((error_of($node, q{SET lock_timeout = '100 ms'; SELECT snowflake_set_default('busy')}))[0],
	'55P03', 'the owner waits');
$s->query_safe('ROLLBACK');
$waiter->quit;

# The table is dropped, renamed or given away while the function waits.
for my $case (['DROP TABLE busy', '42P01'], ['ALTER TABLE busy RENAME TO quiet', ''],
	['ALTER TABLE busy OWNER TO stranger', '42501'])
{
	my ($change, $expected) = @$case;
	sql('DROP TABLE IF EXISTS busy, quiet; CREATE ROLE mine; CREATE TABLE busy (id bigserial PRIMARY KEY);
		ALTER TABLE busy OWNER TO mine');
	$s->query_safe("BEGIN; $change");
	my $late = $node->background_psql('postgres', on_error_stop => 0);
	$late->query_safe(q{SET ROLE mine; SET t.state = ''});
	$late->query_until(qr/go/, q{\\echo go
DO $$ BEGIN PERFORM snowflake_set_default('busy');
EXCEPTION WHEN OTHERS THEN PERFORM set_config('t.state', SQLSTATE, false); END $$;
});
	wait_until('it waits', sub { sql('SELECT count(*) FROM pg_locks WHERE NOT granted') eq '1' });
	$s->query_safe('COMMIT');
	is($late->query_safe(q{SELECT current_setting('t.state')}), $expected, $change);
	$late->quit;
	sql('DROP TABLE IF EXISTS busy, quiet; DROP ROLE mine');
}
$s->quit;

# A function in an index names another one without a schema, as functions around unaccent() do. From PostgreSQL 17 on,
# only a dump brings such an index: the function is changed after its index was made.
sql(q{CREATE FUNCTION plain(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT pg_catalog.lower($1)';
	CREATE FUNCTION named(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT public.plain($1)';
	CREATE TABLE people (id bigserial PRIMARY KEY, name text); CREATE INDEX ON people (named(name)); INSERT INTO people (name) VALUES ('A');
	CREATE OR REPLACE FUNCTION named(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT plain($1)'});
is((error_of($node, q{SELECT snowflake_set_default('people')}))[0], '42883', 'a function of an index that is found in one path only');
sql('ALTER FUNCTION named(text) SET search_path = pg_catalog, public');
like(sql(q{SELECT snowflake_set_default('people')}), qr/replaced by public\.snowflake_nextval\(\)/, 'has a path, as the page says');

# In a database of another encoding, names are in that encoding.
sql(q{CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'});
$ENV{PGCLIENTENCODING} = 'UTF8';
my $done = $node->safe_psql('latin', qq{CREATE EXTENSION snowflake_id;
	CREATE TABLE "Gr\xc3\xb6\xc3\x9fe" ("\xc3\xa9" bigserial PRIMARY KEY);
	SELECT snowflake_set_default('"Gr\xc3\xb6\xc3\x9fe"', '\xc3\xa9', drop_sequence => true)});
like($done, qr/^public\."Gr\xc3\xb6\xc3\x9fe"\."\xc3\xa9": default .* replaced by .* dropped$/,
	'names that are not ASCII in a LATIN1 database');
is($node->safe_psql('latin', qq{INSERT INTO "Gr\xc3\xb6\xc3\x9fe" DEFAULT VALUES;
	SELECT "\xc3\xa9" = snowflake_currval() FROM "Gr\xc3\xb6\xc3\x9fe"}), 't', 'and the default is there');
delete $ENV{PGCLIENTENCODING};

# The function fails on a standby.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
is((error_of($standby, q{SELECT snowflake_set_default('late')}))[0], '25006', 'a standby says no');
$standby->stop;
$node->stop;

# The wall clock has jumped ahead of the generator: the next IDs are still below it.
my $jumpy = new_node('jumpy', 4);
$jumpy->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '60 s'");
start_with_clock($jumpy, 0);
$jumpy->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_nextval();
	CREATE TABLE t (id bigint PRIMARY KEY);
	INSERT INTO t VALUES (snowflake_min_id(now() + interval '1 hour'))});
set_clock($jumpy, 7200);
is($jumpy->safe_psql('postgres', 'SELECT snowflake_min_id(now()) > max(id) FROM t'), 't',
	'by the wall clock the value is past');
is((error_of($jumpy, q{SELECT snowflake_set_default('t')}))[0], '55000', 'by the generator it is not');
$jumpy->stop;

done_testing();
