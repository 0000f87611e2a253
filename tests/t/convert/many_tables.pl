# Tests the conversion of a schema that is too large for the lock table: the plan, the conversion
# and the steps say so before anything is touched, with the setting that suffices, and it suffices.
# LONG=1 takes 500 tables on a server with PostgreSQL's own settings, which takes some minutes;
# otherwise it is fewer tables, and a smaller lock table.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $tables = $ENV{LONG} ? 500 : 12;
my $node = new_node('main', 3);
my $small = $ENV{LONG} ? '' : "max_connections = 20\nmax_locks_per_transaction = 10\n";
$node->append_conf('postgresql.conf', "${small}jit = off\nfsync = off");
$node->start;
sub sql { return $node->safe_psql('many', $_[0]); }

# Each table refers to the two before it; they have indexes, triggers and views.
$node->safe_psql('postgres', 'CREATE DATABASE many');
sql(qq{CREATE EXTENSION snowflake_id_convert CASCADE; CREATE SCHEMA many;
	CREATE FUNCTION many.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.changed := now(); RETURN NEW; END';
	CREATE VIEW public.held AS SELECT DISTINCT locktype, database, relation, classid, objid, transactionid FROM pg_locks WHERE pid = pg_backend_pid()});
sql(qq{DO \$\$BEGIN
	FOR n IN 1 .. $tables LOOP
		EXECUTE format('CREATE TABLE many.t%s (id serial PRIMARY KEY, name text UNIQUE, changed timestamptz, a int %s, b int %s)', n,
			CASE WHEN n > 1 THEN format('REFERENCES many.t%s', n - 1) END, CASE WHEN n > 2 THEN format('REFERENCES many.t%s', n - 2) END);
		EXECUTE format('CREATE INDEX ON many.t%s (a)', n);
		EXECUTE format('CREATE INDEX ON many.t%s (b, id) WHERE a IS NOT NULL', n);
		EXECUTE format('CREATE TRIGGER touch BEFORE UPDATE OF a ON many.t%s FOR EACH ROW EXECUTE FUNCTION many.touch()', n);
		EXECUTE format('INSERT INTO many.t%s (name, a, b) SELECT g, g, g FROM generate_series(1, 20) AS g', n);
		IF n % 5 = 3 THEN
			EXECUTE format('CREATE VIEW many.v%s AS SELECT t.id, u.name FROM many.t%1\$s AS t JOIN many.t%s AS u ON u.id = t.a', n, n - 1);
		END IF;
		IF n % 20 = 3 THEN
			EXECUTE format('CREATE MATERIALIZED VIEW many.m%s AS SELECT t.id, v.name FROM many.t%1\$s AS t JOIN many.v%1\$s AS v ON v.id = t.a', n);
			EXECUTE format('CREATE INDEX ON many.m%s (id)', n);
		END IF;
		IF n % 20 = 0 THEN COMMIT; END IF;
	END LOOP;
END\$\$});
my $catalogs = q{SELECT (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_constraint),
	(SELECT string_agg(format_type(atttypid, NULL) || attrelid::regclass || attname, ' ' ORDER BY attrelid, attnum) FROM pg_attribute
	 WHERE attrelid::regclass::text LIKE 'many.%' AND attnum > 0)};
my $before = sql($catalogs);
my $obstacle = qr/(the conversion|the swap) locks about (\d+) objects in one transaction, and this server has room for (\d+): set max_locks_per_transaction to (\d+) or more, and restart it/;

sub plan_of { my ($online) = @_; return sql("SELECT note FROM snowflake_convert_plan(schemas => '{many}', online => $online) WHERE action = 'obstacle'"); }
my $wanted = 0;
my %count;
for my $online ('false', 'true')
{
	my ($what, $count, $room, $setting) = plan_of($online) =~ /^$obstacle$/ or BAIL_OUT('the plan has no obstacle');
	is($what, $online eq 'true' ? 'the swap' : 'the conversion', "online $online: the plan has an obstacle");
	cmp_ok($count, '>', $room, 'by its own count');
	is($room, $ENV{LONG} ? 6400 : 200, 'the room is that of the settings');
	$count{$online} = $count;
	$wanted = $setting if $setting > $wanted;
}
like((error_of($node, q{CALL snowflake_convert(schemas => '{many}')}, 'many'))[1], $obstacle, 'the conversion refuses');
like((error_of($node, q{SELECT * FROM snowflake_convert_steps(schemas => '{many}')}, 'many'))[1], $obstacle, 'the steps refuse');
like((error_of($node, q{CALL snowflake_convert_swap(schemas => '{many}')}, 'many'))[1], $obstacle, 'the swap refuses');
is(sql($catalogs), $before, 'nothing was touched');

# The setting that the plan names is enough, and not far more than enough.
$node->append_conf('postgresql.conf', "max_locks_per_transaction = $wanted");
$node->restart;
is(plan_of($_), '', "online $_: no obstacle is left") for 'false', 'true';
my $held = sql(q{BEGIN; SET client_min_messages = error; CALL snowflake_convert(schemas => '{many}'); SELECT count(*) FROM public.held; ROLLBACK});
cmp_ok($held, '<=', $count{false}, 'a conversion at once needs no more locks than the plan says');
cmp_ok($held * 1.4, '>', $count{false}, 'and not far fewer');
my ($status, $stderr) = (0, '');
$status = $node->psql('many', "SELECT statement FROM snowflake_convert_steps(schemas => '{many}') \\gexec\n", on_error_stop => 1, stderr => \$stderr);
is($status, 0, 'all steps') or diag(substr($stderr, -2000));
note($1) if $stderr =~ /(all tables were locked for \d+ ms)/;
is(sql(q{SELECT count(*) FROM snowflake_convert_plan(schemas => '{many}') WHERE statement IS NOT NULL}), '0', 'everything is converted');
is(sql(qq{SELECT count(*) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid WHERE c.relkind = 'r'
	AND c.relnamespace = 'many'::regnamespace AND attname IN ('id', 'a', 'b') AND atttypid = 'bigint'::regtype}), 3 * $tables - 3, 'to bigint');
done_testing();
