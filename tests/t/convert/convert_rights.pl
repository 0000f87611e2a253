# Tests whose code runs when somebody converts the tables of another role: that of their
# owner, as the owner, and with no effect on the session of the caller.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "jit = off\nautovacuum = off");
$node->start;
$node->safe_psql('postgres', q{CREATE ROLE mallory LOGIN; CREATE ROLE other LOGIN; CREATE ROLE admin LOGIN IN ROLE mallory;
	GRANT SET ON PARAMETER session_replication_role TO admin});
sub sql { return $node->safe_psql('attacked', @_); }

# Everything of the owner's calls this function, which tells the log who runs it, takes the
# rights of that role, and changes settings. So does everything that a search_path
# with the owner's schema would call in place of PostgreSQL's own.
my $schema = q{
	CREATE FUNCTION m.grab(what text) RETURNS void LANGUAGE plpgsql AS $$BEGIN
		IF pg_catalog.current_setting('m.is_armed', true) = 'on' THEN
			RAISE LOG 'code of % as %', what, current_user;
			IF current_user <> 'mallory' THEN
				BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN insufficient_privilege THEN NULL; END;
			END IF;
			PERFORM pg_catalog.set_config('search_path', 'm, pg_catalog', false), pg_catalog.set_config('work_mem', '77MB', false),
				pg_catalog.set_config('row_security', 'off', false), pg_catalog.set_config('m.setting', 'mallory', false);
		END IF;
	END$$;
	CREATE FUNCTION m.is(what text, n bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM m.grab(what); RETURN true; END$$;
	CREATE FUNCTION m.number(what text, n bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM m.grab(what); RETURN n; END$$;
	CREATE FUNCTION m.fired() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM m.grab('trigger'); RETURN NEW; END$$;
	CREATE FUNCTION m.array_to_string(text[], text) RETURNS text LANGUAGE plpgsql AS $$BEGIN PERFORM m.grab('array_to_string'); RETURN ''; END$$;
	CREATE FUNCTION m.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$BEGIN PERFORM m.grab('format'); RETURN ''; END$$;
	CREATE FUNCTION m.quote_ident(name) RETURNS text LANGUAGE plpgsql AS $$BEGIN PERFORM m.grab('quote_ident'); RETURN ''; END$$;
	CREATE FUNCTION m.count(text) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN PERFORM m.grab('count'); RETURN 0; END$$;
	CREATE FUNCTION m.same(integer, bigint) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN PERFORM m.grab('operator'); RETURN true; END$$;
	CREATE OPERATOR m.= (FUNCTION = m.same, LEFTARG = integer, RIGHTARG = bigint);
	CREATE DOMAIN m.told AS bigint CHECK (m.is('domain', VALUE));
	CREATE DOMAIN m.text AS pg_catalog.text CHECK (m.is('domain text', 1));
	CREATE TABLE m.head (id serial PRIMARY KEY, at timestamptz DEFAULT '2025-06-01Z', n int DEFAULT 1,
		CONSTRAINT ck CHECK (m.is('check', id)));
	CREATE INDEX head_const ON m.head (id) WHERE m.is('constant condition', 5);
	CREATE INDEX head_cond ON m.head (id) WHERE m.is('condition', id);
	CREATE INDEX head_expr ON m.head ((m.number('expression', id)));
	CREATE INDEX head_n ON m.head (n) WHERE m.is('other condition', 5);
	CREATE TABLE m.line (id serial PRIMARY KEY, head_id int REFERENCES m.head, at timestamptz DEFAULT '2025-06-02Z');
	CREATE INDEX line_const ON m.line (head_id) WHERE m.is('condition of the line', 5);
	CREATE TRIGGER fired BEFORE UPDATE ON m.head FOR EACH ROW EXECUTE FUNCTION m.fired();
	ALTER TABLE m.head ENABLE ALWAYS TRIGGER fired;
	CREATE TABLE m.parts (id serial, n int, PRIMARY KEY (id, n)) PARTITION BY LIST (n);
	CREATE TABLE m.part1 PARTITION OF m.parts FOR VALUES IN (1);
	CREATE INDEX parts_const ON m.parts (id) WHERE m.is('condition of a partition', 5);
	INSERT INTO m.head SELECT FROM generate_series(1, 50); INSERT INTO m.line (head_id) SELECT 1 + n % 50 FROM generate_series(1, 90) AS n;
	INSERT INTO m.parts (n) SELECT 1 FROM generate_series(1, 20);
	ANALYZE m.head; ANALYZE m.line};
my $columns = q{CREATE TABLE m.made (id serial PRIMARY KEY, g bigint GENERATED ALWAYS AS (m.number('generated', id)) STORED UNIQUE, h int, CHECK (m.is('check of g', g)));
	CREATE INDEX made_g ON m.made (g) WHERE m.is('condition of g', g);
	CREATE INDEX made_literal ON m.made (id) WHERE id <> ALL ('{5}'::m.told[]::bigint[]); INSERT INTO m.made (h) SELECT 1 FROM generate_series(1, 5)};

# Makes a database with the tables of mallory, and calls the statements as a role. Then
# none of mallory's code has had other rights than mallory's, and all of it that is named
# has run.
sub attacked
{
	my ($what, $role, $with_columns, $statements, @ran) = @_;
	$node->safe_psql('postgres', 'CREATE DATABASE attacked');
	sql('CREATE EXTENSION snowflake_id_convert CASCADE; CREATE SCHEMA m AUTHORIZATION mallory; GRANT USAGE ON SCHEMA m TO PUBLIC; GRANT USAGE ON SEQUENCE snowflake_default TO mallory');
	sql("SET m.is_armed = off; SET ROLE mallory; $schema" . ($with_columns ? "; $columns" : ''));
	my $before = -s $node->logfile;
	my $settings = q{SELECT 'settings: ' || md5(string_agg(concat_ws('=', name, setting), ';' ORDER BY name)) || current_setting('m.setting', true) FROM pg_catalog.pg_settings WHERE source = 'session'};
	my ($out, $err);
	$node->psql('attacked', "SET client_min_messages = warning; SET m.is_armed = on; SET m.setting = 'mine'; $settings;\n$statements\n$settings", stdout => \$out, stderr => \$err,
		on_error_stop => 1, extra_params => $role ? [ '-U', $role ] : []);
	is($err, '', "$what: no error");
	my @found = $out =~ /^settings: (.*)$/mg;
	ok(@found == 2 && $found[0] eq $found[1], "$what: no setting has changed") or diag($out);
	my $log = slurp_file($node->logfile, $before);
	my %ran;
	while ($log =~ /LOG:  code of (.*?) as (\w+)/g) { $ran{$2}{$1}++ }
	is(join(' ', sort keys %ran), 'mallory', "$what: code of the owner runs as the owner alone")
	  or diag(join "\n", map { my $who = $_; "$who: " . join(', ', sort keys %{ $ran{$who} }) } sort keys %ran);
	ok($ran{mallory}{$_}, "$what: there was code of: $_") for @ran;
	is(sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', "$what: the owner is no superuser");
	is(sql(q{SELECT string_agg(DISTINCT format_type(atttypid, NULL), ' ') FROM pg_attribute WHERE attrelid IN ('m.head'::regclass, 'm.line'::regclass) AND attname IN ('id', 'head_id')}),
		'bigint', "$what: the keys are converted") if $what !~ /plan/;
	$node->safe_psql('postgres', 'DROP DATABASE attacked');
	return;
}

my $steps = q{SELECT statement FROM snowflake_convert_steps(schemas => '{m}') \gexec};
my $line = 'condition of the line';
for my $role ('', 'admin')
{
	my $who = $role || 'superuser';
	attacked("at once, $who", $role, !$role, q{CALL snowflake_convert(schemas => '{m}');}, 'constant condition', 'condition', 'expression', 'check', $line,
		$role ? () : ('generated', 'condition of g', 'check of g', 'domain'));
	attacked("a plan for old rows, $who", $role, 1, q{SELECT count(*) FROM snowflake_convert_plan(schemas => '{m}', backfill => true, worker_id => 1000);
		SELECT count(*) FROM snowflake_convert_plan(schemas => '{m}', online => true);}, 'constant condition', $line);
	attacked("old rows, $who", $role, 0, q{CALL snowflake_convert('{m.head, m.line}', backfill => true, worker_id => 1000);}, 'constant condition', 'condition', 'expression', 'check', $line);
	attacked("in use, $who", $role, 0, $steps, 'constant condition', 'condition', 'expression', 'check', 'trigger', $line);
}

# The table of old and new keys, and the function that looks keys up, are the caller's. Code of
# an owner runs between two tables, and tries to put others in their place.
$node->safe_psql('postgres', 'CREATE DATABASE attacked');
sql('CREATE EXTENSION snowflake_id_convert CASCADE; CREATE SCHEMA m AUTHORIZATION mallory; GRANT USAGE ON SCHEMA m TO PUBLIC; GRANT USAGE ON SEQUENCE snowflake_default TO mallory');
sql(q{SET ROLE mallory;
	CREATE FUNCTION m.taken() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'taken as %', current_user;
		IF current_user <> 'mallory' THEN ALTER ROLE mallory SUPERUSER; END IF; RETURN 1; END$$;
	CREATE FUNCTION m.swap(n bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM m.do_swap(); RETURN true; END$$;
	CREATE FUNCTION m.do_swap() RETURNS void LANGUAGE plpgsql AS $$DECLARE statement text; BEGIN
		IF to_regprocedure('pg_temp.snowflake_new_id(regclass,name,bigint)') IS NOT NULL AND to_regprocedure('pg_temp.snowflake_new_id(text,text,integer)') IS NULL THEN
			FOREACH statement IN ARRAY ARRAY['DROP TABLE pg_temp.snowflake_new_ids CASCADE', 'DROP FUNCTION pg_temp.snowflake_new_id(regclass,name,bigint)',
				'ALTER TABLE pg_temp.snowflake_new_ids RENAME TO x', 'DELETE FROM pg_temp.snowflake_new_ids',
				'CREATE OR REPLACE FUNCTION pg_temp.snowflake_new_id(relation regclass, column_name name, old_id bigint) RETURNS bigint LANGUAGE sql AS $f$SELECT m.taken()$f$'] LOOP
				BEGIN EXECUTE statement; RAISE LOG 'done: %', statement; EXCEPTION WHEN insufficient_privilege THEN RAISE LOG 'refused: %', statement; END;
			END LOOP;
			CREATE FUNCTION pg_temp.snowflake_new_id(text,text,integer) RETURNS bigint LANGUAGE sql AS 'SELECT m.taken()';
			RAISE LOG 'done: overloaded';
		END IF; END$$;
	CREATE TABLE m.head (id serial PRIMARY KEY, at timestamptz DEFAULT '2025-06-01Z'); CREATE INDEX head_swap ON m.head (at) WHERE m.swap(id);
	CREATE TABLE m.line (id serial PRIMARY KEY, head_id int REFERENCES m.head, at timestamptz DEFAULT '2025-06-02Z');
	INSERT INTO m.head DEFAULT VALUES; INSERT INTO m.line (head_id) VALUES (1)});
my $before = -s $node->logfile;
my ($code, $error) = error_of($node, q{CALL snowflake_convert('{m.head, m.line}', backfill => true, worker_id => 1000)}, 'attacked');
my $log = slurp_file($node->logfile, $before);
my $refused = () = $log =~ /LOG:  refused: /g;
is($refused, 5, 'the owner can neither drop nor change them');
is(join(' ', $log =~ /LOG:  done: (.*)/g), 'overloaded', 'nor replace them');
unlike($log, qr/LOG:  taken as/, 'and another function of the name is not called');
is($code, '', 'the conversion succeeds') or diag($error);
is(sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', 'and the owner is no superuser');
is(sql(q{SELECT count(*), bool_and(n.new_id > 1000000) FROM m.snowflake_old_ids AS n}), '2|t', 'the table of old and new keys is there');
is(sql(q{SELECT l.head_id = h.id FROM m.head AS h CROSS JOIN m.line AS l}), 't', 'and the keys fit');
$node->safe_psql('postgres', 'DROP DATABASE attacked');

# A literal of a type that the owner can change is parsed by the caller, whatever the type is
# before: the owner's code gives a domain a condition while the conversion runs.
$node->safe_psql('postgres', 'CREATE DATABASE attacked');
sql('CREATE EXTENSION snowflake_id_convert CASCADE; CREATE SCHEMA m AUTHORIZATION mallory; GRANT USAGE ON SCHEMA m TO PUBLIC; GRANT USAGE ON SEQUENCE snowflake_default TO mallory');
sql(q{SET ROLE mallory; CREATE DOMAIN m.d AS bigint; CREATE TYPE m.mood AS ENUM ('fine');
	CREATE TABLE m.seen (id serial PRIMARY KEY); CREATE VIEW m.v AS SELECT id FROM m.seen WHERE id <> ALL ('{5}'::m.d[]::bigint[]);
	CREATE VIEW m.w AS SELECT id, 'fine'::m.mood AS mood FROM m.seen;
	CREATE TABLE m.part (id serial PRIMARY KEY); CREATE INDEX odd ON m.part (id) WHERE id <> ALL ('{5}'::m.d[]::bigint[])});
my $obstacles = q{SELECT note FROM snowflake_convert_plan('{m.seen, m.part}', online => %s) WHERE action = 'obstacle' ORDER BY note};
like(sql(sprintf $obstacles, 'false'), qr/view m\.v has a literal of type m\.d\[\], and role mallory can have code of its own run .*\nview m\.w has a literal of type m\.mood, /,
	'a superuser does not make views with such literals again');
like(sql(sprintf $obstacles, 'true'), qr/^index m\.odd has a literal of type m\.d\[\], and role mallory/m, 'nor indexes');
is(sql('SET ROLE mallory; ' . sprintf $obstacles, 'false'), '', 'their owner does');
$node->safe_psql('postgres', 'DROP DATABASE attacked');

# Where the owner cannot do what the conversion does, the plan says so.
$node->safe_psql('postgres', 'CREATE DATABASE attacked');
sql(q{CREATE EXTENSION snowflake_id_convert CASCADE; CREATE SCHEMA s; CREATE SCHEMA hidden; GRANT USAGE ON SCHEMA s TO mallory, other;
	CREATE TABLE s.whole (id serial, n int, PRIMARY KEY (id, n)) PARTITION BY LIST (n); CREATE TABLE s.part PARTITION OF s.whole FOR VALUES IN (1);
	ALTER TABLE s.whole OWNER TO mallory; ALTER TABLE s.part OWNER TO other;
	CREATE TABLE hidden.t (id serial PRIMARY KEY); ALTER TABLE hidden.t OWNER TO mallory;
	CREATE TABLE s.t (id serial PRIMARY KEY, t_id int REFERENCES hidden.t, g bigint GENERATED ALWAYS AS (id) STORED UNIQUE); ALTER TABLE s.t OWNER TO other;
	CREATE TABLE s.forced (id serial PRIMARY KEY); ALTER TABLE s.forced OWNER TO other; ALTER TABLE s.forced ENABLE ROW LEVEL SECURITY; ALTER TABLE s.forced FORCE ROW LEVEL SECURITY});
is(sql(q{SELECT note FROM snowflake_convert_plan('{s.whole, s.t, s.forced, hidden.t}') WHERE action = 'obstacle' ORDER BY note}), join("\n",
	'role mallory, which owns table hidden.t, needs: GRANT USAGE ON SCHEMA hidden TO mallory',
	'role other, which owns table s.t, needs for its constraint t_t_id_fkey: GRANT REFERENCES ON TABLE hidden.t TO other',
	'role other, which owns table s.t, needs: GRANT CREATE ON SCHEMA s TO other',
	'role other, which owns table s.t, needs: GRANT USAGE ON SCHEMA hidden TO other',
	'row-level security applies to the owner of table s.forced, who would not see all rows: ALTER TABLE s.forced NO FORCE ROW LEVEL SECURITY meanwhile',
	'table s.whole belongs to role mallory, which does not have the rights of role other, the owner of s.part: give both to one role'), 'rights that owners lack');
like(sql(q{SELECT note FROM snowflake_convert_plan('{s.forced, s.whole}', online => true) WHERE action = 'obstacle' ORDER BY note}),
	qr/^role mallory, which owns table s.whole, needs: GRANT CREATE ON SCHEMA s TO mallory\nrow-level security applies to the caller or to the owner, .* s\.forced:.*\ntable s.whole belongs/,
	'and for tables in use');
done_testing();
