# Tests that a dump carries labels and marks into a new cluster with the same worker ID
# and its clock an hour behind: there only the mark keeps IDs from being issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

# An hour is far more than this test takes.
my $behind = -3600;
my %generator_of = (
	orders => 'orders_ids',
	'"Media".photos' => '"Media"."photo ids"',
	ledger => 'ledger_ids',
	events => 'snowflake_default');
my @tables = sort keys %generator_of;

my $origin = new_node('origin', 7);
$origin->start;
$origin->safe_psql('postgres', 'CREATE ROLE keeper LOGIN; CREATE DATABASE shop OWNER keeper');
$origin->safe_psql('shop', <<'END', extra_params => [ '-U', 'keeper' ]);
CREATE EXTENSION snowflake_id;
SELECT snowflake_create_generator('orders_ids', 'preset=shardingsphere on_rollback=continue');
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'), item text);
ALTER SEQUENCE orders_ids OWNED BY orders.id;
-- A fixed field, names that need quotes.
CREATE SCHEMA "Media";
SELECT snowflake_create_generator('"Media"."photo ids"', 'preset=instagram shard=5');
CREATE TABLE "Media".photos (id bigint PRIMARY KEY DEFAULT snowflake_nextval('"Media"."photo ids"'), item text);
-- By hand, with quotes in its label.
CREATE SEQUENCE ledger_ids INCREMENT 9223372036854775807 START 9223372036854775807;
SECURITY LABEL FOR snowflake_id ON SEQUENCE ledger_ids IS
	$$layout='time:41 worker:6 entry:4=9 sequence:12' epoch='2020-01-01 00:00:00+00' tick='1 ms' sequence_start='vibrate 3'$$;
CREATE TABLE ledger (id bigint PRIMARY KEY DEFAULT snowflake_nextval('ledger_ids'), item text);
-- The default one, whose IDs a generated column decodes while rows are restored.
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text,
	created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED);
END

sub insert
{
	my ($node, $database, $table, @as) = @_;
	return split /\n/, $node->safe_psql($database,
		"INSERT INTO $table (item) SELECT 'thing ' || n FROM generate_series(1, 300) AS n RETURNING id",
		extra_params => \@as);
}

sub labels
{
	my ($node, $database) = @_;
	return $node->safe_psql($database, q{
		SELECT objname, label FROM pg_seclabels WHERE provider = 'snowflake_id' ORDER BY objname COLLATE "C"});
}

# The last IDs are in no table, since their transaction was rolled back.
my (%before, %greatest, @rows);
for my $table (@tables)
{
	$before{$table} = [ insert($origin, 'shop', $table, '-U', 'keeper'),
		split /\n/, $origin->safe_psql('shop',
			"BEGIN; SELECT snowflake_nextval('$generator_of{$table}') FROM generate_series(1, 5); ROLLBACK") ];
	$greatest{$table} = $before{$table}[-1];
	check_ids("in the origin, $table", $before{$table});
	push @rows, contents($origin, 'shop', $table);
}
my $labels = labels($origin, 'shop');
is(scalar(my @lines = split /\n/, $labels), 3, 'three generators have labels');

sub contents
{
	my ($node, $database, $table) = @_;
	return $node->safe_psql($database,
		"SELECT count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM $table AS t");
}

# The new cluster has the worker ID of the lost one, and a clock behind that of the lost
# one.
my $new = new_node('new', 7);
start_with_clock($new, $behind);
$new->safe_psql('postgres', 'CREATE ROLE keeper LOGIN');

my $folder = $origin->basedir;
sub dump_shop
{
	my ($file, $user, @options) = @_;
	$origin->command_ok([ 'pg_dump', '-U', $user, '-f', "$folder/$file", @options, 'shop' ],
		"pg_dump @options as $user");
	return;
}

# Each database has a default generator of its own, so the cases do not affect each
# other.
sub new_database
{
	my ($database) = @_;
	$new->safe_psql('postgres', "CREATE DATABASE $database OWNER keeper");
	return;
}

sub restore
{
	my ($file, $user, $database, @options) = @_;
	my @command = $file =~ /\.sql$/
	  ? ('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$folder/$file")
	  : ('pg_restore', '--exit-on-error', "$folder/$file");
	$new->command_ok([ @command, '-U', $user, '-d', $database, @options ], "restore @options as $user into $database");
	return;
}

# All generators, or those of some tables, resume above their former IDs.
sub goes_on_above
{
	my ($what, $node, $database, $as, @which) = @_;
	@which = @tables if !@which;
	for my $table (@which)
	{
		my @ids = insert($node, $database, $table, '-U', $as);
		cmp_ok($ids[0], '>', $greatest{$table}, "$what: $table goes on above");
		check_ids("$what: $table", [ @{ $before{$table} }, @ids ]);
	}
	return;
}

my $superuser = $origin->safe_psql('postgres', 'SELECT current_user');
for my $case (
	[ 'plain.sql', $superuser ],
	[ 'custom.dump', $superuser, [ '-Fc' ] ],
	[ 'folder', $superuser, [ '-Fd', '-j2' ], [ '-j2' ] ],
	[ 'plain_owner.sql', 'keeper' ],
	[ 'custom_owner.dump', 'keeper', [ '-Fc' ] ],
	[ 'folder_owner', 'keeper', [ '-Fd', '-j2' ], [ '-j2' ] ])
{
	my ($file, $user, $dump, $restore) = @$case;
	my $database = $file =~ s/\..*//r;
	dump_shop($file, $user, @{ $dump // [] });
	new_database($database);
	restore($file, $user, $database, @{ $restore // [] });
	is(labels($new, $database), $labels, "$database: labels are the same");
	is_deeply([ map { contents($new, $database, $_) } @tables ], \@rows, "$database: rows are the same");
	goes_on_above($database, $new, $database, 'keeper');
	is($new->safe_psql($database, q{
		SELECT pg_get_serial_sequence('orders', 'id');
		SELECT worker_id, fields->>'entry', (fields->>'time')::bigint = id >> 22, sequence = id & 4095
		FROM (SELECT min(id) AS id FROM ledger) AS s, snowflake_decode(id, 'ledger_ids')}),
		"public.orders_ids\n7|9|t|t", "$database: owned by its column, and decodes");
	if ($file eq 'plain.sql')
	{
		# A crash of the new server does not lose the mark.
		my @then = insert($new, $database, 'orders');
		$new->stop('immediate');
		start_with_clock($new, $behind);
		cmp_ok((insert($new, $database, 'orders'))[0], '>', $then[-1], 'above after a crash, too');
	}
}

# A schema-only dump has labels, but no marks. IDs start at the clock.
dump_shop('schema.sql', 'keeper', '-s');
new_database('bare');
restore('schema.sql', 'keeper', 'bare');
is(labels($new, 'bare'), $labels, 'schema only: labels are the same');
is((error_of($new, q{SELECT nextval('orders_ids')}, 'bare'))[0], '2200H', 'schema only: plain nextval() fails');
for my $table (@tables)
{
	my $generator = $generator_of{$table};
	is($new->safe_psql('bare', "SELECT last_value FROM $generator"), '1', "$table: no mark");
	my $file = "$folder/rows." . ($table =~ tr/a-z//cdr);
	$origin->safe_psql('shop', "COPY $table TO '$file'");
	$new->safe_psql('bare', "COPY $table FROM '$file'");
	my ($first) = $new->safe_psql('bare', "SELECT snowflake_nextval('$generator')");
	cmp_ok($first, '<', $greatest{$table}, "$table: IDs start at the clock, below the rows");
	# This runs as the database's owner, who is no superuser.
	$new->safe_psql('bare', "SELECT snowflake_advance('$generator', max(id)) FROM $table", extra_params => [ '-U', 'keeper' ]);
	my @ids = insert($new, 'bare', $table);
	my $most = $origin->safe_psql('shop', "SELECT max(id) FROM $table");
	cmp_ok($ids[0], '>', $most, "$table: snowflake_advance() puts them above");
	check_ids("schema only, then advanced: $table", [ $first, @ids ]);
}
$new->stop('immediate');
start_with_clock($new, $behind);
for my $table (@tables)
{
	my $most = $new->safe_psql('bare', "SELECT max(id) FROM $table");
	cmp_ok((insert($new, 'bare', $table))[0], '>', $most, "$table: durable");
}

# The schema is restored first and the data later: the marks come with the data.
dump_shop('data.dump', 'keeper', '-Fc', '-a');
new_database('later');
restore('schema.sql', 'keeper', 'later');
restore('data.dump', 'keeper', 'later');
goes_on_above('schema first, data later', $new, 'later', 'keeper');

# The data are restored into generators that are in use: these have not read the new
# mark, and a user must call snowflake_advance().
new_database('used');
restore('schema.sql', 'keeper', 'used');
$new->safe_psql('used', "SELECT snowflake_nextval('$_')") for values %generator_of;
restore('data.dump', 'keeper', 'used');
for my $table (@tables)
{
	$new->safe_psql('used', qq{
		SELECT snowflake_advance('$generator_of{$table}', to_timestamp(last_value / 1000.0)) FROM $generator_of{$table}});
}
goes_on_above('data into generators in use, which are told', $new, 'used', 'keeper');

# One table is dumped. The dump includes the generator that a column of the table owns,
# with its mark; the extension must exist.
dump_shop('orders.sql', 'keeper', '-t', 'orders');
new_database('single');
$new->safe_psql('single', 'CREATE EXTENSION snowflake_id', extra_params => [ '-U', 'keeper' ]);
restore('orders.sql', 'keeper', 'single');
is(labels($new, 'single'), (grep { /^orders_ids/ } split /\n/, $labels)[0], 'one table: the label of its generator');
goes_on_above('one table', $new, 'single', 'keeper', 'orders');

# A generator that the table does not own must be named, or the restore fails.
dump_shop('ledger.sql', 'keeper', '-t', 'ledger');
dump_shop('ledger_ids.sql', 'keeper', '-t', 'ledger', '-t', 'ledger_ids');
$new->command_fails_like(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', 'keeper', '-d', 'single', '-f', "$folder/ledger.sql" ],
	qr/relation "public\.ledger_ids" does not exist/, 'a generator that the table does not own does not come along');
restore('ledger_ids.sql', 'keeper', 'single');
goes_on_above('one table and its generator', $new, 'single', 'keeper', 'ledger');

# The mark of the default generator is not dumped either, unless the generator is named.
dump_shop('events.sql', 'keeper', '-t', 'events');
dump_shop('events_default.sql', 'keeper', '-t', 'events', '-t', 'snowflake_default');
new_database('without_mark');
$new->safe_psql('without_mark', 'CREATE EXTENSION snowflake_id', extra_params => [ '-U', 'keeper' ]);
restore('events.sql', 'keeper', 'without_mark');
is($new->safe_psql('without_mark', 'SELECT last_value FROM snowflake_default'), '1',
	'one table: no mark of the default generator');
new_database('with_mark');
$new->safe_psql('with_mark', 'CREATE EXTENSION snowflake_id', extra_params => [ '-U', 'keeper' ]);
restore('events_default.sql', 'keeper', 'with_mark');
goes_on_above('one table and the default generator', $new, 'with_mark', 'keeper', 'events');

# Without labels there are no IDs, rather than wrong ones. The labels can be set again,
# and the marks are still there.
new_database('unlabelled');
restore('custom_owner.dump', 'keeper', 'unlabelled', '--no-security-labels');
is((error_of($new, 'INSERT INTO orders DEFAULT VALUES', 'unlabelled'))[0], '42809', 'no label, no IDs');
my $list = "$folder/labels";
$new->command_ok([ 'bash', '-c', "pg_restore -l $folder/custom_owner.dump | grep ' SECURITY LABEL ' > $list" ],
	'the labels of an archive');
restore('custom_owner.dump', 'keeper', 'unlabelled', '-L', $list);
is(labels($new, 'unlabelled'), $labels, 'labels put back');
goes_on_above('labels put back', $new, 'unlabelled', 'keeper');

# The server does not preload the library: the commands that create the functions load
# it, so labels are restored too. The server issues IDs once it preloads the library.
my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init;
start_with_clock($plain, $behind);
$plain->safe_psql('postgres', q{CREATE ROLE keeper LOGIN; CREATE DATABASE shop OWNER keeper; CREATE DATABASE single OWNER keeper});
$plain->command_ok([ 'pg_restore', '--exit-on-error', '-U', 'keeper', '-d', 'shop', "$folder/custom_owner.dump" ],
	'restore into a server that does not preload');
is(labels($plain, 'shop'), $labels, 'labels are the same');
is((error_of($plain, 'INSERT INTO orders DEFAULT VALUES', 'shop'))[0], '55000', 'but no IDs');
# Where the extension exists already, no command loads the library: the label is
# refused, and a restore that ignores the error leaves a sequence that gives no IDs.
$plain->safe_psql('single', 'CREATE EXTENSION snowflake_id', extra_params => [ '-U', 'keeper' ]);
$plain->command_checks_all([ 'psql', '-X', '-q', '-U', 'keeper', '-d', 'single', '-f', "$folder/orders.sql" ], 0, [],
	[ qr/ERROR: +security label provider "snowflake_id" is not loaded/ ], 'a label alone needs the library');
$plain->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake_id'\nsnowflake_id.worker_id = 7");
$plain->stop;
start_with_clock($plain, $behind);
is((error_of($plain, 'INSERT INTO orders DEFAULT VALUES', 'single'))[0], '42809', 'none without a label');
$plain->safe_psql('single', q{SECURITY LABEL FOR snowflake_id ON SEQUENCE orders_ids IS 'preset=shardingsphere on_rollback=continue'},
	extra_params => [ '-U', 'keeper' ]);
goes_on_above('preloaded later, label put back', $plain, 'single', 'keeper', 'orders');
goes_on_above('preloaded later', $plain, 'shop', 'keeper');

done_testing();
