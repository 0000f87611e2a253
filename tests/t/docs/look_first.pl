# Tests of the commands of docs/convert.md, "Look first", which try the migration on a copy without data: they run as the page has
# them, and find what the catalogs do not tell.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Pages;
use Snowflake;

my $node = new_node('main', 7);
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', q{
	CREATE EXTENSION snowflake_id; CREATE EXTENSION snowflake_id_convert;
	CREATE TABLE customers (id serial PRIMARY KEY, "the name" text, shelf text, created_at timestamptz NOT NULL DEFAULT '2025-06-01', upper_name text GENERATED ALWAYS AS (upper("the name")) STORED);
	CREATE TABLE "the orders" (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer_id int NOT NULL REFERENCES customers, created_at timestamptz NOT NULL DEFAULT '2025-06-02');
	CREATE VIEW customer_orders AS SELECT o.id, c."the name" FROM "the orders" AS o JOIN customers AS c ON c.id = o.customer_id;
	CREATE TABLE measured (id serial, at date NOT NULL, customer_id int DEFAULT 1 REFERENCES customers, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
	CREATE TABLE measured_1 PARTITION OF measured FOR VALUES FROM ('2025-01-01') TO ('2027-01-01');
	-- PostgreSQL has chr(integer) only, and no text of this function has a type of integers.
	CREATE FUNCTION shelve() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.shelf := chr(65 + NEW.id % 26); RETURN NEW; END $$;
	CREATE TRIGGER shelve BEFORE INSERT ON customers FOR EACH ROW EXECUTE FUNCTION shelve();
	-- Who runs the code of all owners.
	CREATE TABLE runs (by_whom text DEFAULT current_user, at timestamptz DEFAULT now());
	CREATE FUNCTION log_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO runs DEFAULT VALUES; RETURN NULL; END $$;
	CREATE TRIGGER log_run AFTER INSERT ON "the orders" FOR EACH ROW EXECUTE FUNCTION log_run();
	CREATE ROLE looks LOGIN CREATEDB; GRANT pg_read_all_data TO looks;
	INSERT INTO customers ("the name") SELECT 'c' || n FROM generate_series(1, 200) AS n;
	-- The sample has orders of customers that are not in it.
	ALTER TABLE "the orders" DISABLE TRIGGER log_run;
	INSERT INTO "the orders" (customer_id) SELECT 201 - n FROM generate_series(1, 150) AS n;
	ALTER TABLE "the orders" ENABLE TRIGGER log_run;
	INSERT INTO measured (at) VALUES ('2026-01-01'), ('2026-01-02')});
my $before = $node->safe_psql('shop', 'SELECT count(*), sum(customer_id) FROM "the orders"');

my ($block) = grep { $_->{language} eq 'sh' } blocks(slurp_file("$FindBin::RealBin/../../../docs/convert.md"));
like($block->{text}, qr/^createdb trial\n/, 'the page has the commands');
# The programs of this server are found first, and connect to it.
sub look
{
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => 'looks', PATH => $node->config_data('--bindir') . ":$ENV{PATH}", PGOPTIONS => '-c client_min_messages=warning');
	my $out = '';
	IPC::Run::run([ 'dropdb', '--if-exists', 'trial' ], '>', \my $dropped, '2>&1');
	IPC::Run::run([ 'bash', '-c', $block->{text} ], '<', \undef, '>', \$out, '2>&1');
	return $out;
}

my $out = look();
like($out, qr/ERROR:  function chr\(bigint\) does not exist/, 'the copy finds a function of integers that a trigger calls');
is(scalar(() = $out =~ /^ERROR/mg), 1, 'and nothing else') or diag $out;
is($node->safe_psql('shop', q{SELECT count(*) FROM snowflake_convert_plan(schemas => '{public}') WHERE action = 'obstacle' OR note ~ 'shelve|customers.*(cast|integer)'}), '0', 'of which the plan says nothing');
is($node->safe_psql('trial', q{SELECT (SELECT count(*) FROM customers WHERE id > 1000000), (SELECT count(*) FROM "the orders"), (SELECT count(*) FROM measured)}), '100|101|3', 'rows of the sample have IDs, and the other tables take new rows');
is($node->safe_psql('trial', q{SELECT string_agg(DISTINCT by_whom, ' ') FROM runs}), 'looks', 'code of others runs with the rights of the role that looks');
is($node->safe_psql('shop', 'SELECT count(*), sum(customer_id) FROM "the orders"'), $before, 'the database itself stays as it is');
is($node->safe_psql('shop', 'SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = \'customers\'::regclass AND attname = \'id\''), 'integer', 'with its types');

# It would have failed in production.
$node->safe_psql('postgres', 'CREATE DATABASE production TEMPLATE shop');
$node->safe_psql('production', q{CALL snowflake_convert(schemas => '{public}')});
is((error_of($node, q{INSERT INTO customers ("the name") VALUES ('new')}, 'production'))[0], '42883', 'without the copy, each INSERT would fail');
# What the copy has shown is repaired before.
$node->safe_psql('shop', q{CREATE OR REPLACE FUNCTION shelve() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.shelf := chr((65 + NEW.id % 26)::integer); RETURN NEW; END $$});
is(look(), '', 'then the copy takes all rows');
$node->safe_psql('shop', q{CALL snowflake_convert(schemas => '{public}')});
is($node->safe_psql('shop', q{INSERT INTO customers ("the name") VALUES ('new') RETURNING length(shelf)}), '1', 'and so does the database itself');
$node->stop;
done_testing();
