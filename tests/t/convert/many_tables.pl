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
# What the conversion is to convert.
my ($many, $apart) = map { "schemas => '{$_}'" } qw(many apart);
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
sql('ANALYZE');
my $catalogs = q{SELECT (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_constraint),
	(SELECT string_agg(format_type(atttypid, NULL) || attrelid::regclass || attname, ' ' ORDER BY attrelid, attnum) FROM pg_attribute
	 WHERE attrelid::regclass::text LIKE 'many.%' AND attnum > 0)};
my $before = sql($catalogs);
my $obstacle = qr/(the conversion|the swap of $tables tables, which foreign keys or views tie to each other,) locks about (\d+) objects in one transaction, and this server has room for (\d+): set max_locks_per_transaction to (\d+) or more, and restart it/;

sub plan_of { my ($online) = @_; return sql("SELECT note FROM snowflake_convert_plan($many, online => $online) WHERE action = 'obstacle'"); }
my $wanted = 0;
my %count;
for my $online ('false', 'true')
{
	my ($what, $count, $room, $setting) = plan_of($online) =~ /^$obstacle$/ or BAIL_OUT('the plan has no obstacle');
	like($what, $online eq 'true' ? qr/swap/ : qr/conversion/, "online $online: the plan has an obstacle");
	cmp_ok($count, '>', $room, 'by its own count');
	is($room, $ENV{LONG} ? 6400 : 200, 'the room is that of the settings');
	$count{$online} = $count;
	$wanted = $setting if $setting > $wanted;
}
like((error_of($node, qq{CALL snowflake_convert($many)}, 'many'))[1], $obstacle, 'the conversion refuses');
like((error_of($node, qq{SELECT * FROM snowflake_convert_steps($many)}, 'many'))[1], $obstacle, 'the steps refuse');
like((error_of($node, qq{CALL snowflake_convert_swap($many)}, 'many'))[1], $obstacle, 'the swap refuses');
is(sql($catalogs), $before, 'nothing was touched');

# Tables that nothing ties to each other: each pair has a foreign key, and every second pair a view
# with the next one. Together they do not fit; they are swapped in several transactions. Some keys
# are bigint already, and have the default.
my $pairs = $ENV{LONG} ? 300 : 20;
sql(qq{DO \$\$BEGIN
	FOR n IN 1 .. $pairs LOOP
		EXECUTE format('CREATE TABLE apart.a%s (id %s PRIMARY KEY%s, name text)', n, CASE WHEN n % 5 = 0 THEN 'bigint' ELSE 'serial' END,
			CASE WHEN n % 5 = 0 THEN ' DEFAULT snowflake_nextval()' ELSE '' END);
		EXECUTE format('CREATE TABLE apart.b%s (id serial PRIMARY KEY, a_id int REFERENCES apart.a%1\$s)', n);
		EXECUTE format('CREATE TRIGGER touch BEFORE UPDATE OF a_id ON apart.b%s FOR EACH ROW EXECUTE FUNCTION many.touch()', n);
		IF n % 4 = 0 THEN
			EXECUTE format('CREATE VIEW apart.v%s AS SELECT a.id, b.id AS b_id FROM apart.b%1\$s AS a JOIN apart.b%s AS b USING (id)', n, n - 1);
			EXECUTE format('CREATE VIEW apart.w%s AS SELECT v.b_id FROM apart.v%1\$s AS v', n);
		END IF;
		IF n % 20 = 0 THEN COMMIT; END IF;
	END LOOP;
END\$\$} =~ s/^/CREATE SCHEMA apart; /r);
sql('ANALYZE');
like(sql("SELECT note FROM snowflake_convert_plan($apart) WHERE action = 'obstacle'"), qr/^the conversion locks about/, 'tables that are not tied: at once, they are too many');
is(sql("SELECT note FROM snowflake_convert_plan($apart, online => true) WHERE action = 'obstacle'"), '', 'but not in use');
my $groups = sql(q{SELECT count(*), bool_and((SELECT count(*) FROM unnest(g.nodes) AS n JOIN pg_class AS c ON c.oid = (n & 4294967295)::oid AND relkind = 'r')
		= CASE WHEN EXISTS (SELECT FROM unnest(g.nodes) AS n JOIN pg_class AS c ON c.oid = (n & 4294967295)::oid AND relkind = 'v') THEN 4 ELSE 2 END)
	FROM _snowflake_convert.groups(_snowflake_convert.work_of(_snowflake_convert.request(NULL, '{apart}', NULL, NULL, true), NULL, NULL, true)) AS g});
is($groups, $pairs * 3 / 4 . '|t', 'a foreign key ties, a view too, and a function that triggers share does not');
# With room for it, small groups are swapped together, up to a thousand locks.
is(sql(q{SELECT count(*) = div(sum(s.locks - 50), 1000) + 1
	FROM _snowflake_convert.swaps(_snowflake_convert.work_of(_snowflake_convert.request(NULL, '{apart}', NULL, NULL, true), NULL, NULL, true), 1000000) AS s}), 't', 'small groups are swapped together');
my $alone = sub { my $stderr = ''; my $status = $node->psql('many', "SELECT statement FROM snowflake_convert_steps($_[0]) \\gexec\n", on_error_stop => 1, stderr => \$stderr);
	return $status, $stderr; };
{
	my ($status, $stderr) = $alone->("'{apart.a5}'");
	is($status, 0, 'a key that is bigint, with a column that refers to it') or diag(substr($stderr, -2000));
	is(sql(q{SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'apart.b5'::regclass AND attname = 'a_id'}), 'bigint', 'which is changed');
	# A lock keeps back the tables of its group only, also if the first swap has it beside others.
	my @steps = split /\x01/, sql(qq{SELECT string_agg(statement, chr(1) ORDER BY step) FROM snowflake_convert_steps($apart)});
	my ($swap) = grep { $steps[$_] =~ /convert_swap/ } 0 .. $#steps;
	sql(join ";\n", @steps[ 0 .. $swap - 1 ]);
	my $holder = session($node, undef, 'many');
	my $left = q{SELECT string_agg(c.relname || '.' || attname, ' ' ORDER BY c.relname, attname) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE c.relkind = 'r' AND c.relnamespace = 'apart'::regnamespace AND attnum > 0 AND atttypid = 'integer'::regtype};
	# A group that is a swap, if there is one, and one that is swapped with others.
	my $kept = sql(q{SELECT string_agg(k.tables, '|') FROM (SELECT DISTINCT ON (cardinality(s.groups) > 1) string_agg(c.relname, '|' ORDER BY c.relname) AS tables
			FROM _snowflake_convert.lock_room() AS r, _snowflake_convert.swaps(_snowflake_convert.work_of(_snowflake_convert.request(NULL, '{apart}', NULL, NULL, true), NULL, NULL, true), r.locks) AS s,
				unnest(s.groups) AS g, unnest(g::bigint[]) AS n JOIN pg_class AS c ON c.oid = (n & 4294967295)::oid AND c.relkind = 'r'
			GROUP BY s.groups, g HAVING count(*) = 2 ORDER BY cardinality(s.groups) > 1, 1) AS k});
	my @locked = $kept =~ /a\d+/g;
	my $expected = sql("$left AND c.relname ~ '^($kept)\$'");
	$holder->query_safe(join '; ', 'BEGIN', map { "SELECT count(*) FROM apart.$_" } @locked);
	$stderr = '';
	$node->psql('many', $steps[$swap] =~ s/\)\z/, tries => 1)/r, stderr => \$stderr);
	like($stderr, qr/could not lock the tables/, 'a lock that is not to be had');
	my @apart = $stderr =~ /NOTICE:  the tables of this swap are swapped in (\d+) transactions, since they could not be locked together: (.*)/g;
	is(scalar(@apart), 2, 'one notice says that tables are swapped alone') or diag($stderr);
	cmp_ok($apart[0], '>', 1, 'each group');
	like($apart[1], qr/AccessShareLock on apart\.$locked[-1]\b/, 'and for whom');
	is(sql($left), $expected, 'all others are swapped');
	is(sql(qq{SELECT string_agg(DISTINCT t[1], '|' ORDER BY t[1]) FROM snowflake_convert_plan($apart), regexp_matches(statement, 'ALTER TABLE apart.(\\S+)') AS t}),
		join('|', sort keys %{ { map { s/\..*//r => 1 } split / /, $expected } }), 'and the plan has those that are left');
	$holder->query_safe('COMMIT');
	$holder->quit;
	($status, $stderr) = $alone->($apart);
	is($status, 0, 'the same query again') or diag(substr($stderr, -2000));
	is(sql($left), '', 'converts them too');
	is(sql(qq{SELECT count(*) FROM snowflake_convert_plan($apart) WHERE statement IS NOT NULL}), '0', 'and nothing is left');
}

# The setting that the plan names is enough, and not far more than enough.
$node->append_conf('postgresql.conf', "max_locks_per_transaction = $wanted");
$node->restart;
is(plan_of($_), '', "online $_: no obstacle is left") for 'false', 'true';
my $held = sql(qq{BEGIN; SET client_min_messages = error; CALL snowflake_convert($many); SELECT count(*) FROM public.held; ROLLBACK});
cmp_ok($held, '<=', $count{false}, 'a conversion at once needs no more locks than the plan says');
cmp_ok($held * 1.4, '>', $count{false}, 'and not far fewer');
my ($status, $stderr) = (0, '');
$status = $node->psql('many', "SELECT statement FROM snowflake_convert_steps($many) \\gexec\n", on_error_stop => 1, stderr => \$stderr);
is($status, 0, 'all steps') or diag(substr($stderr, -2000));
diag($1) if $ENV{LONG} && $stderr =~ /(all tables were locked for \d+ ms)/;
is(sql(qq{SELECT count(*) FROM snowflake_convert_plan($many) WHERE statement IS NOT NULL}), '0', 'everything is converted');
is(sql(qq{SELECT count(*) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid WHERE c.relkind = 'r'
	AND c.relnamespace = 'many'::regnamespace AND attname IN ('id', 'a', 'b') AND atttypid = 'bigint'::regtype}), 3 * $tables - 3, 'to bigint');
done_testing();
