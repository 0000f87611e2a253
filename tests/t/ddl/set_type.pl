# Tests snowflake_set_type() beside other sessions, and on tables of a role that is hostile.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->start;
sub sql { return $node->safe_psql('postgres', $_[0]); }
sub types { return sql(q{SELECT string_agg(DISTINCT format_type(atttypid, NULL), ' ') FROM pg_attribute
	WHERE (attrelid, attname) IN (('orders'::regclass, 'id'), ('lines'::regclass, 'order_id'), ('bills'::regclass, 'line_id'))}); }
# The tables with the keys are the younger ones, so that the order of OIDs is none of their names and foreign keys.
sql('CREATE EXTENSION snowflake_id; CREATE ROLE stranger LOGIN;
	CREATE TABLE customers (id bigint PRIMARY KEY);
	CREATE TABLE bills (line_id bigint, customer_id bigint REFERENCES customers);
	CREATE TABLE orders (id bigint PRIMARY KEY);
	CREATE TABLE lines (id bigint PRIMARY KEY, order_id bigint);
	ALTER TABLE lines ADD UNIQUE (order_id), ADD FOREIGN KEY (order_id) REFERENCES orders;
	ALTER TABLE bills ADD FOREIGN KEY (line_id) REFERENCES lines (order_id);
	GRANT ALL ON orders, lines, bills TO stranger');
my $holder = session($node);

# Starts a call in a session of its own, and returns that when the call waits for a lock.
sub waiting
{
	my ($call, $role) = @_;
	my $session = session($node);
	$session->query_safe(q{SET application_name = 'waits'; SET t.state = 'not ended'});
	$session->query_until(qr/go/, qq{\\echo go
DO \$\$ BEGIN PERFORM $call; PERFORM set_config('t.state', 'no error', false);
EXCEPTION WHEN OTHERS THEN PERFORM set_config('t.state', SQLSTATE || ' ' || SQLERRM, false); END \$\$;
});
	wait_until('it waits', sub { sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waits' AND wait_event_type = 'Lock'}) eq '1' });
	return $session;
}
sub state_of { my ($session) = @_; my $state = $session->query_safe(q{SELECT current_setting('t.state')}); $session->quit; return $state; }

# Two calls lock tables in one order, whichever column they begin at: each holds all tables with
# lower OIDs when it waits, and none with higher OIDs.
for my $case (["snowflake_set_type('orders')", 'bills lines orders'], ["snowflake_set_type('lines', 'order_id')", 'bills lines orders'])
{
	my ($call, $tables) = @$case;
	my @tables = split / /, sql("SELECT string_agg(t, ' ' ORDER BY t::regclass::oid) FROM unnest(string_to_array('$tables', ' ')) AS t");
	for my $n (0 .. $#tables)
	{
		$holder->query_safe("BEGIN; LOCK TABLE $tables[$n] IN ROW EXCLUSIVE MODE");
		my $waiter = waiting($call);
		is(sql(q{SELECT coalesce(string_agg(l.relation::regclass::text, ' ' ORDER BY l.relation), '') FROM pg_locks AS l
			JOIN pg_stat_activity AS a ON a.pid = l.pid AND a.application_name = 'waits'
			WHERE l.granted AND l.mode IN ('AccessExclusiveLock', 'ShareRowExclusiveLock')}),
			join(' ', @tables[0 .. $n - 1]), "$call waits for $tables[$n]");
		$holder->query_safe('COMMIT');
		is(state_of($waiter), 'no error', 'and goes on');
		sql(q{SELECT snowflake_set_type('orders', type => 'bigint')});
	}
}
# The table of a key that a changed column refers to can be read meanwhile, and be waited for too.
$holder->query_safe('BEGIN; LOCK TABLE customers IN ROW EXCLUSIVE MODE');
my $waiter = waiting(q{snowflake_set_type('bills', 'customer_id')});
is(sql(q{SELECT l.mode FROM pg_locks AS l WHERE NOT l.granted AND l.relation = 'customers'::regclass}), 'ShareRowExclusiveLock',
	'the lock of a table that keeps its types');
$holder->query_safe('COMMIT');
is(state_of($waiter), 'no error', 'and it goes on');

# Who owns no table waits for none; an owner waits for as long as it says, and changes nothing then.
$holder->query_safe('BEGIN; LOCK TABLE lines IN ROW EXCLUSIVE MODE');
is((error_of($node, q{SET ROLE stranger; SET lock_timeout = '5 s'; SELECT snowflake_set_type('orders')}))[0], '42501', 'strangers get an error, not a lock');
is((error_of($node, q{SET lock_timeout = '100 ms'; SELECT snowflake_set_type('orders')}))[0], '55P03', 'the owner waits');
is(types(), 'bigint', 'and has changed nothing');
$holder->query_safe('ROLLBACK');

# What another transaction makes while the call waits.
for my $case (['CREATE TABLE late (order_id bigint REFERENCES orders)', qr/^55000 could not change .* tables were changed/, 'DROP TABLE late'],
	['CREATE VIEW seen AS SELECT id FROM orders', qr/^55000 cannot change .*: view public\.seen depends/, 'DROP VIEW seen'],
	['ALTER TABLE orders RENAME TO renamed', qr/^42P01 /, 'ALTER TABLE renamed RENAME TO orders'],
	['ALTER TABLE bills OWNER TO stranger', qr/^no error/, 'ALTER TABLE bills OWNER TO CURRENT_USER'])
{
	my ($change, $expected, $undo) = @$case;
	$holder->query_safe("BEGIN; $change");
	my $late = waiting(q{snowflake_set_type('orders')});
	$holder->query_safe('COMMIT');
	like(state_of($late), $expected, $change);
	sql($undo);
	is(types(), 'bigint', 'nothing is changed') if $expected !~ /no error/;
}
sql(q{SELECT snowflake_set_type('orders', type => 'bigint')});
$holder->quit;

# A superuser who changes tables of a hostile role runs none of its code with other rights: PostgreSQL
# checks constraints again and builds indexes of expressions anew. Names and the path are the attacker's.
my $schema = q{"a""b ' %I; --"};
sql("CREATE ROLE attacker; CREATE SCHEMA $schema AUTHORIZATION attacker");
sql(qq{SET ROLE attacker; SET search_path = $schema;
	CREATE TABLE ran (by name);
	CREATE FUNCTION grab(x bigint) RETURNS bigint LANGUAGE plpgsql AS \$f\$
	BEGIN
		BEGIN ALTER ROLE attacker SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END;
		INSERT INTO $schema.ran VALUES (current_user);
		RETURN x;
	END \$f\$;
	CREATE FUNCTION harmless(x bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \$f\$BEGIN RETURN $schema.grab(x); END\$f\$;
	CREATE TABLE "t'%I \$1 "";" ("i'd %s "";" bigint PRIMARY KEY CHECK (harmless("i'd %s "";") > 0));
	CREATE INDEX ON "t'%I \$1 "";" (harmless("i'd %s "";")) WHERE harmless("i'd %s "";") > 0;
	CREATE TABLE "lines""" ("n%L" bigint REFERENCES "t'%I \$1 "";" CHECK (harmless("n%L") > 0));
	INSERT INTO "t'%I \$1 "";" VALUES (1);
	INSERT INTO "lines""" VALUES (1);
	DELETE FROM ran;
	-- What stands for the extension's and for PostgreSQL's, for a caller with this path.
	CREATE DOMAIN snowflake AS bigint;
	CREATE FUNCTION equal(oid, oid) RETURNS boolean LANGUAGE plpgsql AS \$f\$BEGIN PERFORM $schema.grab(1); RETURN true; END\$f\$;
	CREATE OPERATOR = (FUNCTION = equal, LEFTARG = oid, RIGHTARG = oid);
	CREATE OPERATOR <> (FUNCTION = equal, LEFTARG = oid, RIGHTARG = oid)});
my $path = "SET search_path = $schema, pg_catalog, public;";
my $table = q{'"t''%I $1 "";"'};
is((error_of($node, "$path SELECT snowflake_set_type($table, type => 'snowflake')"))[0], '22023', 'a type of the same name in the path is none');
like(sql("$path SELECT snowflake_set_type($table)"), qr/"i'd %s "";": type bigint changed to public\.snowflake; .*"lines"""\."n%L": type bigint changed/, 'odd names');
like(sql("$path SELECT snowflake_set_default($table, type => 'bigint')"), qr/default set to public\.snowflake_nextval\(\); .*"n%L": type public\.snowflake changed to bigint/, 'and back');
is(sql("SELECT string_agg(DISTINCT by, ' ') FROM $schema.ran"), 'attacker', 'constraints and indexes are made as their owner');
is(sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'attacker'}), 'f', 'who gets no rights by it');

# Statements run as the owner of a table. What that role lacks is said before any lock.
sql(q{CREATE SCHEMA hidden; CREATE TABLE hidden.top (id bigint PRIMARY KEY); CREATE TABLE hidden.child () INHERITS (hidden.top); CREATE TABLE refers (id bigint REFERENCES hidden.top);
	ALTER TABLE hidden.top OWNER TO attacker; ALTER TABLE hidden.child OWNER TO stranger; ALTER TABLE refers OWNER TO stranger});
my $lock = session($node);
$lock->query_safe('BEGIN; LOCK TABLE hidden.top');
my ($code, $text) = error_of($node, q{SET lock_timeout = '5 s'; SELECT snowflake_set_type('hidden.top')});
$lock->quit;
is($code, '55000', 'a superuser cannot change what the owners cannot');
like($text, qr/\Q$_\E/, $_) for 'role attacker, which owns table hidden.top, needs: GRANT USAGE ON SCHEMA hidden TO attacker',
	'role stranger, which owns table public.refers, needs: GRANT USAGE ON SCHEMA hidden TO stranger',
	'role stranger, which owns table public.refers, needs for its constraint refers_id_fkey: GRANT REFERENCES ON TABLE hidden.top TO stranger',
	'table hidden.top belongs to role attacker, which does not have the rights of role stranger, the owner of hidden.child: give both to one role';
sql(q{GRANT USAGE ON SCHEMA hidden TO attacker, stranger; GRANT REFERENCES ON hidden.top TO stranger; ALTER TABLE hidden.child OWNER TO attacker});
like(sql(q{SELECT snowflake_set_type('hidden.top')}), qr/^hidden\.top\.id: type bigint changed .* public\.refers\.id: type bigint changed/, 'then it does');

$node->stop;
done_testing();
