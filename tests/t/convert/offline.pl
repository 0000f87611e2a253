# Tests snowflake_convert() on a shop that has everything which depends on integer keys:
# nothing but types and defaults changes, by exactly the statements of the plan; beside
# other sessions; and with errors in its midst.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "wal_level = logical\njit = off");
$node->start;
$node->safe_psql('postgres', "CREATE ROLE $_") for qw(reporting viewer clerk stranger);
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', 'CREATE EXTENSION snowflake_id_convert CASCADE; ' . slurp_file("$FindBin::RealBin/offline/shop.sql"));
$node->safe_psql('shop', q{CREATE FUNCTION rows_of(regclass) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE rows text;
	BEGIN EXECUTE format('SELECT string_agg(to_jsonb(t)::text, E''\\n'' ORDER BY to_jsonb(t)::text) FROM %s AS t', $1) INTO rows; RETURN rows; END $$});
$node->safe_psql('shop', slurp_file("$FindBin::RealBin/offline/$_.sql")) for qw(django odds);
my $inventory = slurp_file("$FindBin::RealBin/offline/inventory.sql");

sub shop
{
	my ($database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE shop");
	return;
}
sub sql { return $node->safe_psql($_[0], $_[1]); }

# Checks that two texts have the same lines.
sub same_lines
{
	my ($got, $expected, $what) = @_;
	my %lines;
	$lines{$_}++ for split /\n/, $expected;
	$lines{$_}-- for split /\n/, $got;
	return is(join("\n", map { $lines{$_} > 0 ? "lost: $_" : "more: $_" } grep { $lines{$_} } sort keys %lines), '', $what);
}

# Returns all rows of the tables, with their columns by name.
my $rows = q{SELECT c.oid::regclass, public.rows_of(c.oid) FROM pg_class AS c
	WHERE relnamespace IN ('shop'::regnamespace, 'hr'::regnamespace) AND relkind IN ('r', 'v', 'm') AND relispopulated ORDER BY 1};

shop('one');
my ($before, $rows_before) = (sql('one', $inventory), sql('one', $rows));
cmp_ok(scalar split(/\n/, $before), '>', 250, 'the shop has something to lose');
my $plan = sql('one', q{SELECT count(*), count(statement), max(step) FROM snowflake_convert_plan(schemas => '{shop}')});
like($plan, qr/^\d+\|(\d+)\|\1$/, 'the steps of the plan are numbered');
same_lines(sql('one', $inventory), $before, 'the plan changes nothing');
sql('one', q{CALL snowflake_convert(schemas => '{shop}')});
same_lines(sql('one', $inventory), $before, 'the conversion changes nothing but types and defaults');
same_lines(sql('one', $rows), $rows_before, 'and no row');
is(sql('one', q{SELECT string_agg(attrelid::regclass || '.' || attname, ' ' ORDER BY attrelid::regclass::text, attnum) FROM pg_attribute
	JOIN pg_class AS c ON c.oid = attrelid AND relnamespace IN ('shop'::regnamespace, 'hr'::regnamespace) AND relkind IN ('r', 'p', 'v', 'm')
	WHERE attnum > 0 AND atttypid IN ('integer'::regtype, 'smallint'::regtype)}),
	'hr.staff.staff_id hr.staff.boss hr.v_over.staff_id shop.audit.customer_id shop.item.pos shop.payment.staff_id shop.payment_1.staff_id '
	  . 'shop.payment_2.staff_id shop.status.status_id shop.ticket.status_id shop.v_checked.status_id',
	'what is no key, not in the schema, or without a foreign key is an integer still');
sql('one', q{INSERT INTO shop.customer (name) VALUES ('new'); INSERT INTO shop.ticket (customer_id) SELECT max(customer_id) FROM shop.customer;
	INSERT INTO shop.customer_extra SELECT max(customer_id) FROM shop.customer; INSERT INTO shop.b (a_id) VALUES (100);
	INSERT INTO shop.payment (customer_id, paid) SELECT max(customer_id), '2026-02-01Z' FROM shop.customer; INSERT INTO shop.v_sales (name) VALUES ('x');
	INSERT INTO shop.login (customer_id) SELECT max(customer_id) FROM shop.customer; REFRESH MATERIALIZED VIEW shop.m_sales});
is(sql('one', q{SELECT count(*) FROM shop.v_sales WHERE name = 'new'}), '1', 'new keys go through tables and views');
is(sql('one', q{SELECT count(*) FROM snowflake_convert_plan(schemas => '{shop}') WHERE statement IS NOT NULL}), '0', 'then there is nothing to convert');
is(sql('one', q{SELECT count(*) FROM snowflake_convert_plan('{hr.staff}') WHERE statement LIKE 'ALTER TABLE%'}), '2',
	'a column that one partition alone has as a foreign key leads to the whole table');
sql('one', q{CALL snowflake_convert('{hr.staff, shop.status}')});
is(sql('one', q{SELECT count(*) FROM pg_attribute WHERE attname IN ('staff_id', 'boss', 'status_id') AND atttypid <> 20}), '0', 'tables that are named');
my $dump = sub { my ($database) = @_;
	my ($out) = run_command([ 'pg_dump', '--schema-only', '--no-sync', '--dbname', $node->connstr($database) ]);
	# Newer versions of pg_dump write a random key.
	return $out =~ s/^\\(?:un)?restrict .*$//gmr; };

# The statements of the plan, run by hand.
shop('two');
shop('three');
my $statements = sql('two', q{SELECT statement || ';' FROM snowflake_convert_plan(schemas => '{shop}', generator => 'snowflake_default') WHERE statement IS NOT NULL ORDER BY step});
sql('two', "BEGIN; SET LOCAL search_path = pg_catalog; $statements COMMIT");
sql('three', q{CALL snowflake_convert(schemas => '{shop}', generator => 'snowflake_default')});
same_lines($dump->('two'), $dump->('three'), 'the conversion runs the statements of the plan, and no others');
# Without the extension that converted them, tables stay as they are, and can be dumped and
# restored.
my $converted = sql('three', $inventory);
sql('three', 'DROP EXTENSION snowflake_id_convert');
same_lines(sql('three', $inventory), $converted, 'converted tables stay as they are when the extension is dropped');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->run_log([ 'bash', '-c', "set -o pipefail; pg_dump --no-sync -d '" . $node->connstr('three') . "' | psql -X -q -v ON_ERROR_STOP=1 -d '" . $node->connstr('restored') . "'" ]);
same_lines(sql('restored', $inventory), sql('three', $inventory), 'a dump of the result restores');
is(sql('restored', q{SELECT extname FROM pg_extension WHERE extname LIKE 'snowflake%'}), 'snowflake_id', 'with one extension');
for my $database ('three', 'restored')
{
	cmp_ok(sql($database, q{INSERT INTO shop.customer (name) VALUES ('later') RETURNING customer_id}), '>', 1_000_000, "$database: a new row gets an ID");
}

# Defaults that are kept: sequences become bigint.
shop('four');
sql('four', q{CALL snowflake_convert(schemas => '{shop}', set_default => false)});
same_lines(sql('four', $inventory), $before, 'without defaults');
is(sql('four', q{SELECT count(*) FROM pg_sequence WHERE seqrelid::regclass::text LIKE 'shop.%' AND seqtypid <> 20}), '1', 'sequences are changed: all but that of a column that is no key');
is(sql('four', q{SELECT setval('shop.customer_customer_id_seq', 3000000000); INSERT INTO shop.customer (name) VALUES ('far') RETURNING customer_id}), "3000000000\n3000000001", 'and count on beyond integers');

# A strange role gets an error before any lock; an error in the midst changes nothing.
shop('five');
sql('five', 'GRANT USAGE ON SCHEMA shop TO stranger');
my ($code, $text) = error_of($node, q{SET ROLE stranger; CALL snowflake_convert('{shop.customer}')}, 'five');
is($code, '42501', 'strangers get an error');
like($text, qr/must be owner of table shop\.a/, 'with the first table that they do not own')
  or diag($text);
$before = sql('five', $inventory);
sql('five', 'CREATE VIEW shop.calls AS SELECT shop.f_int(customer_id) FROM shop.customer');
like(sql('five', q{SELECT note FROM snowflake_convert_plan('{shop.customer}') WHERE action = 'note' AND note LIKE '%f_int%'}), qr/make one that takes bigint first/,
	'the plan names a function that a view calls');
is((error_of($node, q{CALL snowflake_convert('{shop.customer}')}, 'five'))[0], '42883', 'without it, the view cannot be made again');
sql('five', 'DROP VIEW shop.calls');
same_lines(sql('five', $inventory), $before, 'and everything is as it was');

# What takes longer than ten seconds shows that it is alive: here, it begins ten seconds after its statement.
my %told;
for ([ online => q{PERFORM snowflake_convert_plan('{shop.item}', online => true)} ], [ plan => q{PERFORM snowflake_convert_plan('{shop.item}')} ], [ steps => q{PERFORM snowflake_convert_steps('{shop.item}')} ],
	[ call => q{CALL snowflake_convert('{shop.item}'); RAISE division_by_zero} ])
{
	$node->psql('five', "DO \$x\$BEGIN PERFORM pg_sleep(10.1); $_->[1]; END\$x\$", stderr => \$told{ $_->[0] });
}
like($told{online}, qr/NOTICE:  the plan has no obstacle after 1\d s\n(?s:.*)NOTICE:  the plan knows the steps after 1\d s/, 'a plan of steps tells how far it is');
like($told{plan}, qr/NOTICE:  the plan knows the obstacles after 1\d s\n(?s:.*)NOTICE:  the plan knows the statements after 1\d s/, 'and one at once');
like($told{steps}, qr/NOTICE:  the steps have no obstacle after 1\d s/, 'so do the steps');
like($told{call}, qr/NOTICE:  step 2 of \d+: \S+/, 'and a conversion');
unlike($told{call}, qr/step 3 of/, 'not for each step');

# Another session changes a table before it is locked.
my $other = session($node, undef, 'five');
$other->query_safe('BEGIN; CREATE VIEW shop.late AS SELECT customer_id FROM shop.customer; LOCK TABLE shop.customer IN ROW EXCLUSIVE MODE');
my $converts = session($node, undef, 'five');
send_to($converts, q{CALL snowflake_convert('{shop.customer}')});
wait_for_lock($node, 'CALL snowflake_convert%');
$other->query_safe('COMMIT');
is((answer_in($converts))[0], '55000', 'a table that has changed meanwhile');
sql('five', q{CALL snowflake_convert('{shop.customer}')});
is(sql('five', q{SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'shop.late'::regclass AND attnum = 1}), 'bigint', 'the next call sees it');
is(error_in($converts, q{BEGIN ISOLATION LEVEL REPEATABLE READ; CALL snowflake_convert('{shop.item}')}), '55000', 'a snapshot of old is refused');
$converts->query('ROLLBACK');
$_->quit for $other, $converts;

# All of it, or nothing, in a transaction of the caller's.
sql('five', q{BEGIN; CALL snowflake_convert('{shop.item}'); ROLLBACK});
is(sql('five', q{SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'shop.item'::regclass AND attname = 'item_id'}), 'integer', 'a conversion can be rolled back');

# The owner of tables and views is enough.
sql('five', q{CREATE SCHEMA own AUTHORIZATION clerk; SET ROLE clerk;
	CREATE TABLE own.t (id serial PRIMARY KEY, v int); CREATE VIEW own.v AS SELECT * FROM own.t; CREATE MATERIALIZED VIEW own.m AS SELECT * FROM own.t;
	CALL snowflake_convert(schemas => '{own}'); INSERT INTO own.t (v) VALUES (1)});
is(sql('five', 'SELECT count(*) FROM own.v WHERE id > 1000'), '1', 'an owner who is no superuser');

# The tables of a Django project, and of a schema with oddities, in all three ways. What
# rows have in common with others stays, also where their keys are new.
my %joined = (
	django => q{SELECT u.username, p.title, q.title, s.extra, l.at, g.name FROM django.app_post AS p JOIN django.auth_user AS u ON u.id = p.author_id
		LEFT JOIN django.app_post AS q ON q.id = p.parent_id LEFT JOIN django.app_special AS s ON s.post_ptr_id = p.id LEFT JOIN django.app_like AS l ON l.post_id = p.id
		LEFT JOIN django.auth_user_groups AS m ON m.user_id = u.id LEFT JOIN django.auth_group AS g ON g.id = m.group_id JOIN django.app_profile AS r ON r.user_id = u.id ORDER BY 1, 2},
	odds => q{SELECT c.name, m.name, f.name, d.name FROM odds.chicken AS c LEFT JOIN odds.chicken AS m ON m.id = c.mother
		LEFT JOIN odds.chicken AS f ON f.id = c.father LEFT JOIN odds.egg AS e ON e.id = c.egg_id LEFT JOIN odds.chicken AS d ON d.id = e.chicken_id ORDER BY 1});
for my $schema (sort keys %joined)
{
	my $all = $inventory =~ s/'(?:shop|hr)'/'$schema'/gr;
	my $every_row = $rows =~ s/'(?:shop|hr)'/'$schema'/gr;
	my $keys = qq{SELECT count(*) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid AND c.relnamespace = '$schema'::regnamespace
		JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] WHERE i.indisprimary AND a.atttypid IN (21, 23)};
	for my $way (qw(at_once online backfill))
	{
		my $database = "${schema}_$way";
		shop($database);
		my ($before, $rows_before, $joined_before) = map { sql($database, $_) } $all, $every_row, $joined{$schema};
		if ($schema eq 'odds' && $way eq 'online')
		{
			is(sql($database, q{SELECT note FROM snowflake_convert_plan(schemas => '{odds}', online => true) WHERE action = 'obstacle' ORDER BY 1}),
				"constraint line_note_one_id_note_key of table odds.line_note is DEFERRABLE, but the index of its copy refuses duplicates immediately until the swap:"
				  . " convert the table at once, or make the constraint without DEFERRABLE meanwhile\n"
				  . 'table odds.line_note is published without a replica identity, so its rows cannot be updated: ALTER TABLE odds.line_note REPLICA IDENTITY FULL',
				'a constraint that can be deferred, and a published table whose rows cannot be updated');
			sql($database, 'DROP PUBLICATION pub_all; ALTER TABLE odds.line_note DROP CONSTRAINT line_note_one_id_note_key, ADD UNIQUE (one_id, note)');
			($before, $rows_before) = map { sql($database, $_) } $all, $every_row;
		}
		elsif ($way eq 'backfill')
		{
			like((error_of($node, "CALL snowflake_convert(schemas => '{$schema}', backfill => true, worker_id => 1000)", $database))[1],
				qr/cannot convert keys: table $schema\..+ is published by pub_all, and new keys of old rows do not reach subscribers/, 'published tables whose keys would be new');
			sql($database, 'DROP PUBLICATION pub_all');
			($before, $rows_before) = map { sql($database, $_) } $all, $every_row;
		}
		sql($database, $way eq 'online'
			? join ";\n", split(/\x01/, sql($database, qq{SELECT string_agg(statement, chr(1) ORDER BY step) FROM snowflake_convert_steps(schemas => '{$schema}')})), ''
			: "CALL snowflake_convert(schemas => '{$schema}'" . ($way eq 'backfill' ? ", backfill => true, worker_id => 1000)" : ')'));
		sql($database, "ALTER TABLE $schema.snowflake_old_ids SET SCHEMA public") if $way eq 'backfill';
		same_lines(sql($database, $all), $before, "schema $schema $way: nothing changes but types and defaults");
		is(sql($database, $keys), '0', 'all keys are bigint');
		is(sql($database, $joined{$schema}), $joined_before, 'rows refer to the same rows');
		if ($way ne 'backfill') { same_lines(sql($database, $every_row), $rows_before, 'and have the same values'); }
		is(sql($database, "SELECT count(*) FROM snowflake_convert_plan(schemas => '{$schema}') WHERE statement IS NOT NULL"), '0', 'there is nothing left to do');
	}
}
is(sql('django_backfill', q{SELECT count(*), count(*) FILTER (WHERE snowflake_timestamp(id) = created_at) FROM django.app_post}), '100|100', 'old rows have IDs of their time');

# A foreign table is no table to name, and follows when it is a partition or a child. Its
# rows are kept elsewhere: here, in another database.
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
sql('elsewhere', q{CREATE TABLE far (id bigint, at timestamptz); CREATE TABLE child (id bigint)});
shop('six');
sql('six', sprintf q{CREATE EXTENSION postgres_fdw; CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'elsewhere');
	CREATE USER MAPPING FOR PUBLIC SERVER elsewhere; CREATE SCHEMA spread; SET search_path = spread;
	CREATE TABLE visits (id serial, at timestamptz) PARTITION BY RANGE (at);
	CREATE TABLE near PARTITION OF visits FOR VALUES FROM ('2026-01-01Z') TO ('2027-01-01Z');
	CREATE FOREIGN TABLE far PARTITION OF visits DEFAULT SERVER elsewhere OPTIONS (schema_name 'public');
	CREATE TABLE base (id serial PRIMARY KEY); CREATE FOREIGN TABLE child () INHERITS (base) SERVER elsewhere OPTIONS (schema_name 'public');
	CREATE VIEW of_visits AS SELECT id FROM visits;
	INSERT INTO visits (at) VALUES ('2026-01-01Z'), ('2025-06-01Z')}, $node->host, $node->port);
like((error_of($node, q{SELECT * FROM snowflake_convert_plan('{spread.far}')}, 'six'))[1], qr/42809: spread\.far is not a table/, 'a foreign table that is a partition cannot be named');
like((error_of($node, q{SELECT * FROM snowflake_convert_plan('{spread.child}')}, 'six'))[1], qr/42809: spread\.child is not a table/, 'nor can another one');
is(sql('six', q{SELECT note FROM snowflake_convert_plan(schemas => '{spread}', online => true) WHERE action = 'obstacle' AND note LIKE '%foreign%' ORDER BY 1}),
	"partition spread.child is a foreign table: convert it at once\npartition spread.far is a foreign table: convert it at once", 'online, they are obstacles');
is(sql('six', q{SELECT note FROM snowflake_convert_plan('{spread.visits}', backfill => true, backfill_by => '{at}', worker_id => 999) WHERE action = 'obstacle' AND note NOT LIKE '%is published by pub_all%'}),
	'foreign table spread.far is a part of a table whose old rows get IDs, and its rows would keep their keys', 'and so they are for IDs of old rows');
is(sql('six', q{SELECT note FROM snowflake_convert_plan(schemas => '{spread}') WHERE note LIKE '%foreign%' ORDER BY 1}), join("\n",
	map { "foreign table spread.$_ is a part of a table that is changed: change its column where its rows are kept" } qw(child far)), 'the plan has a note');
sql('six', q{CALL snowflake_convert(schemas => '{spread}'); INSERT INTO spread.visits (at) VALUES ('2025-06-01Z'), ('2026-01-02Z')});
is(sql('six', q{SELECT DISTINCT format_type(atttypid, NULL) FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
	WHERE c.relnamespace = 'spread'::regnamespace AND c.relkind IN ('r', 'p', 'f', 'v') AND attname = 'id'}), 'bigint', 'they are converted with the others');
is(sql('six', q{SELECT count(*), count(*) FILTER (WHERE id > 1000000) FROM spread.of_visits}), '4|2', 'and keep their rows');

# From version 16 on, a partition can have a generation expression of its own. The values
# stay if it is detached meanwhile, as the plan says.
SKIP:
{
	skip 'generation expressions of partitions need PostgreSQL 16', 4 if $node->pg_version < 16;
	sql('six', q{CREATE SCHEMA sums; SET search_path = sums;
		CREATE TABLE sums (id serial, at date, g bigint GENERATED ALWAYS AS (id * 2) STORED) PARTITION BY RANGE (at);
		CREATE TABLE same PARTITION OF sums FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
		CREATE TABLE own PARTITION OF sums (g GENERATED ALWAYS AS (id * 3) STORED) DEFAULT;
		INSERT INTO sums (at) VALUES ('2026-01-01'), ('2025-01-01')});
	my $obstacle = 'generated column sums.own.g has an expression of its own, which that of table sums.sums would replace: '
	  . 'detach table sums.own, convert both tables, and attach it again';
	is(sql('six', qq{SELECT note FROM snowflake_convert_plan('{sums.sums}', online => $_) WHERE action = 'obstacle' AND note LIKE '%own.g has%'}), $obstacle,
		"a generation expression of a partition, online $_") for qw(false true);
	like((error_of($node, q{CALL snowflake_convert('{sums.sums}')}, 'six'))[1], qr/\Q$obstacle/, 'is an error');
	my $sums = q{SELECT at, id, g FROM sums.sums ORDER BY at};
	my $sums_before = sql('six', $sums);
	sql('six', q{ALTER TABLE sums.sums DETACH PARTITION sums.own; CALL snowflake_convert('{sums.sums, sums.own}');
		ALTER TABLE sums.sums ATTACH PARTITION sums.own DEFAULT});
	is(sql('six', $sums), $sums_before, 'and the rows keep their values when it is detached meanwhile');
}

# From version 18 on, NOT NULL has a name.
SKIP:
{
	skip 'names of NOT NULL need PostgreSQL 18', 1 if $node->pg_version < 18;
	sql('six', q{CREATE SCHEMA named; CREATE TABLE named.t (id serial, g bigint GENERATED ALWAYS AS (id * 2) STORED CONSTRAINT filled NOT NULL);
		COMMENT ON CONSTRAINT filled ON named.t IS 'always'; CALL snowflake_convert('{named.t}')});
	is(sql('six', q{SELECT conname, obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conrelid = 'named.t'::regclass AND contype = 'n' AND conname <> 't_id_not_null'}),
		'filled|always', 'that of a generated column stays');
}

sql('shop', q{DROP PUBLICATION pub_all; SELECT snowflake_create_pool('of_others', '[500,600]')});
is(sql('shop', q{SELECT note FROM snowflake_convert_plan('{django.app_post}', backfill => true, worker_id => 555) WHERE action = 'obstacle'}),
	'worker ID 555 belongs to pool of_others: old rows need one that no server has, or has had', 'a worker ID of a pool');

# All defaults of a schema, again and again.
my @set = split /\n/, sql('one', q{SELECT relation, is_set, left(result, 50) FROM snowflake_set_defaults('shop')});
my @again = split /\n/, sql('one', q{SELECT relation, is_set, left(result, 50) FROM snowflake_set_defaults('shop')});
is("@again", "@set", 'a second call of snowflake_set_defaults() finds nothing to do');
is(scalar @set, sql('one', q{SELECT count(*) FROM pg_class WHERE relnamespace = 'shop'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition}), 'one row for each table');
done_testing();
