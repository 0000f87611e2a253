# Tests ALTER EXTENSION snowflake_id UPDATE: the catalogs are the same afterwards as after
# CREATE EXTENSION, for every pair of versions between which there is a path; a library that
# is replaced while the server runs is used after a restart, and not before; and what is there
# stays: marks, labels, privileges, a registry with a server that leases from it, a conversion
# that is not done. Sessions insert all the time. The objects of the next version work with the
# present library, too, but for what is new in the next one.
#
# The next version is made by this test, from the present one: see NextVersion.pm. The library
# keeps no state of its own on disk: what it writes are the values of sequences and the rows
# of the registry, which belong to the script.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use NextVersion;
use Snowflake;

my ($installation, $this, $next) = next_version();
my $node = new_node('main', 7, install_path => $installation);
$node->append_conf('postgresql.conf', "autovacuum = off\njit = off");
start_with_clock($node, 0);
sub sql { my ($database, $statement, $role) = @_; return $node->safe_psql($database, $statement, $role ? (extra_params => [ '-U', $role ]) : ()); }
sub make_database { my ($name, $statement, $owner) = @_;
	sql('postgres', "CREATE DATABASE $name" . ($owner ? " OWNER $owner" : ''));
	sql($name, $statement, $owner);
	return $name; }
my $version_of = q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'};

# The versions, and the paths between them.
like(slurp_file("$FindBin::RealBin/../../../CHANGELOG.md"), qr/\A# Changelog\n\n## \Q$this\E\.\d+( \(unreleased\))?\n/, "$this has a section in CHANGELOG.md");
my @paths = map { [ split /\|/ ] } split /\n/, sql('postgres', q{SELECT source, target FROM pg_extension_update_paths('snowflake_id')
	WHERE path IS NOT NULL ORDER BY source, target});
for my $version (split /\n/, sql('postgres', qq{SELECT version FROM pg_available_extension_versions WHERE name = 'snowflake_id' AND version <> '$next'}))
{
	ok((grep { "@$_" eq "$version $next" } @paths), "a path leads from $version to the next version");
}
ok((grep { "@$_" eq "$next $this" } @paths), "and one back to $this");

# The catalogs: in a schema whose name needs quotes, too, and made by the owner of the
# database, who is no superuser.
sql('postgres', 'CREATE ROLE keeper LOGIN; CREATE ROLE watcher LOGIN; CREATE ROLE lessee LOGIN');
my $inventory = slurp_file("$FindBin::RealBin/extension_update/inventory.sql");
my $number = 0;
my %made;
# Checks that the objects of a database are those of a version that CREATE EXTENSION has made.
sub are_made_alike
{
	my ($name, $made, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%lines, @differences);
	$lines{$_}++ for split /\n/, $made;
	$lines{$_}-- for split /\n/, sql($name, $inventory);
	push @differences, ($lines{$_} > 0 ? 'missing: ' : 'too much: ') . $_ for grep { $lines{$_} } sort keys %lines;
	return is(join("\n", splice @differences, 0, 20), '', "$what: as if made by CREATE EXTENSION");
}
for my $how ([ 'public', '' ], [ 'public', 'keeper' ], [ '"My IDs"', '' ])
{
	my ($schema, $owner) = @$how;
	my $make = $schema eq 'public' ? '' : "CREATE SCHEMA $schema; ";
	for my $version ($this, $next)
	{
		$made{$version}{"@$how"} = sql(make_database('made' . $number++, "$make CREATE EXTENSION snowflake_id SCHEMA $schema VERSION '$version'", $owner), $inventory);
		cmp_ok(length $made{$version}{"@$how"}, '>', 100_000, 'the catalogs have much to say');
	}
	isnt($made{$this}{"@$how"}, $made{$next}{"@$how"}, 'two versions differ');
	for my $path (@paths)
	{
		my ($source, $target) = @$path;
		my $expected = $made{$target}{"@$how"} //= sql(make_database('made' . $number++, "$make CREATE EXTENSION snowflake_id SCHEMA $schema VERSION '$target'", $owner), $inventory);
		my $name = make_database('walked' . $number++, "$make CREATE EXTENSION snowflake_id SCHEMA $schema VERSION '$source'", $owner);
		sql($name, "ALTER EXTENSION snowflake_id UPDATE TO '$target'", $owner);
		are_made_alike($name, $expected, "$source to $target in $schema" . ($owner ? " by $owner" : ''));
	}
}
# A transaction that keeps the extension from being dropped does not hold an update back.
{
	my $name = make_database('held' . $number++, "CREATE EXTENSION snowflake_id VERSION '$this'");
	my $holder = session($node, undef, $name);
	$holder->query_safe('BEGIN; SELECT count(*) FROM snowflake_status()');
	is((error_of($node, "SET lock_timeout = '100ms'; DROP EXTENSION snowflake_id", $name))[0], '55P03', 'a drop waits');
	is((error_of($node, "SET lock_timeout = '100ms'; ALTER EXTENSION snowflake_id UPDATE", $name))[0], '', 'an update does not');
	is(error_in($holder, 'SELECT count(*) FROM snowflake_status(); COMMIT'), '', 'and the transaction goes on');
	$holder->quit;
}
# Both extensions have the same version.
my ($refused, $reason) = error_of($node, "CREATE EXTENSION snowflake_id_convert VERSION '$next'", 'made0');
is($refused, '55000', 'snowflake_id_convert of another version is refused');
like($reason, qr/extension snowflake_id has another version: \Q$this\E.*ALTER EXTENSION snowflake_id UPDATE/s, 'the error says what to do');
# From PostgreSQL 18 on, the row types of tables and views are members as well.
like(sql('made0', q{SELECT string_agg(DISTINCT classid::regclass::text, ' ') FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')}), qr/^pg_class pg_namespace pg_proc(?: pg_type)?$/, 'the inventory knows all kinds of objects');

# A function that a later script declares with more columns is refused, not read past its end.
my ($symbol, $columns) = split /\|/, sql('made0', q{SELECT prosrc, pg_get_function_arguments(oid) FROM pg_proc WHERE oid = '_snowflake.statistics'::regproc});
my ($code, $text) = error_of($node, qq{CREATE FUNCTION pg_temp.f($columns, OUT more text) RETURNS SETOF record STRICT LANGUAGE c
	AS 'snowflake_id', '$symbol'; SELECT * FROM pg_temp.f()}, 'made0');
is($code, '55000', 'a function with more columns than the library gives');
like($text, qr/the library of snowflake_id is of a different version than this function/, 'the error says so');

# From here on, the server has the present library.
$node->stop;
replace_library($installation, 'present');
start_with_clock($node, 0);

# What is in a database, and must be the same after an update.
my %preset_of = (orders => 'shardingsphere on_rollback=continue', photos => 'instagram shard=5', messages => 'sonyflake', waits => 'twitter on_rollback=wait max_wait=\'2 s\'');
my @tables = ('events', sort keys %preset_of);
my $stays = q{SELECT objname, label FROM pg_seclabels WHERE provider = 'snowflake_id' ORDER BY objname COLLATE "C";
	SELECT generator, worker_id, ends_at, layout, on_rollback, max_wait, problem FROM snowflake_generators ORDER BY generator::text COLLATE "C";
	SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
		WHERE adrelid::regclass::text IN ('events', 'orders', 'photos') ORDER BY adrelid::regclass::text COLLATE "C", attnum};
my $look = "$stays; SELECT * FROM _snowflake.pools ORDER BY name; SELECT state -> 'era' FROM _snowflake.state; SELECT worker_id FROM _snowflake.leases ORDER BY worker_id";
my $rights = q{SELECT objid::regprocedure::text, pg_proc.proacl::text FROM pg_depend JOIN pg_proc ON pg_proc.oid = objid AND classid = 'pg_proc'::regclass
	WHERE deptype = 'e' AND proacl::text ~ '(watcher|lessee)' UNION ALL
	SELECT objid::regclass::text, relacl::text FROM pg_depend JOIN pg_class ON pg_class.oid = objid AND classid = 'pg_class'::regclass
	WHERE deptype = 'e' AND relacl::text ~ '(watcher|lessee)' ORDER BY 1};
my $progress = 'SELECT relation, pages_done, rows_done, filled FROM _snowflake_convert.conversions ORDER BY relation::text';
my $update = 'ALTER EXTENSION snowflake_id UPDATE';

# The owner of the database has made the extension.
make_database('shop', join('; ', map { "CREATE EXTENSION $_ VERSION '$this'" } 'snowflake_id', 'snowflake_id_convert'), 'keeper');
sql('shop', join(";\n", (map { my $label = $preset_of{$_}; $label =~ s/'/''/g;
	"SELECT snowflake_create_generator('${_}_ids', 'preset=$label');
	CREATE TABLE $_ (id bigint PRIMARY KEY DEFAULT snowflake_nextval('${_}_ids'), item text)" } sort keys %preset_of),
	q{CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text, created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED);
	CREATE INDEX ON events (snowflake_timestamp(id));
	CREATE VIEW shop_worker AS SELECT * FROM snowflake_worker;
	CREATE VIEW shop_numbers AS SELECT generator, issued, stats_reset FROM pg_stat_snowflake;
	CREATE FUNCTION shop_state() RETURNS SETOF snowflake_worker LANGUAGE sql AS 'SELECT * FROM snowflake_worker';
	CREATE TABLE old_keys (id int PRIMARY KEY, item text);
	INSERT INTO old_keys SELECT n, 'thing ' || n FROM generate_series(1, 5000) AS n;
	CREATE TABLE old_parts (id int PRIMARY KEY, key int REFERENCES old_keys);
	INSERT INTO old_parts SELECT n, n FROM generate_series(1, 1000) AS n}), 'keeper');
# Privileges that users have given and taken.
sql('shop', q{GRANT EXECUTE ON FUNCTION snowflake_stat_reset() TO lessee;
	REVOKE EXECUTE ON FUNCTION snowflake_currval() FROM PUBLIC; GRANT EXECUTE ON FUNCTION snowflake_currval() TO watcher, keeper;
	REVOKE EXECUTE ON FUNCTION snowflake_set_defaults(regnamespace, regclass) FROM PUBLIC; GRANT EXECUTE ON FUNCTION snowflake_set_defaults(regnamespace, regclass) TO watcher;
	REVOKE SELECT ON snowflake_worker FROM PUBLIC; GRANT SELECT ON snowflake_worker, snowflake_workers TO watcher; GRANT SELECT ON snowflake_worker TO keeper});

# A registry, and a server that leases from it.
sql('shop', q{SELECT snowflake_create_pool('main', '[0,8)', lease => '6 s', hold => '1 s', max_ahead => '1 s')});
my $leasing = new_node('leasing', '', install_path => $installation);
my $conninfo = 'host=' . $node->host . ' port=' . $node->port . ' dbname=shop';
$leasing->append_conf('postgresql.conf', "snowflake_id.registry = '$conninfo'\nsnowflake_id.pool = 'main'");
$leasing->start;
$leasing->safe_psql('postgres', "CREATE EXTENSION snowflake_id VERSION '$this'");
ok($leasing->poll_query_until('postgres', 'SELECT bound IS NOT NULL FROM snowflake_worker'), 'a server leases a worker ID');
# Waits until the lease has been renewed twice from now on: the first renewal may have been on
# its way.
my $bound = q{SELECT extract(epoch FROM bound) FROM snowflake_worker};
sub lease_goes_on
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. 2)
	{
		my $before = $leasing->safe_psql('postgres', $bound);
		ok(wait_until("$what: the lease is renewed", sub { $leasing->safe_psql('postgres', $bound) > $before }), "$what: the lease is renewed");
	}
	return;
}
my @leased = ids($leasing, 300);
lease_goes_on('before an update');

# A conversion that is not done.
my $plan = q{SELECT statement FROM snowflake_convert_steps('{old_keys,old_parts}') ORDER BY step};
sub steps { return split /\x01/, sql('shop', "SELECT coalesce(string_agg(statement, chr(1)), '') FROM ($plan) AS s"); }
my @steps = steps();
my ($backfill) = grep { $steps[$_] =~ /snowflake_convert_backfill/ } 0 .. $#steps;
sql('shop', $_) for @steps[ 0 .. $backfill ];
my $done = sql('shop', $progress);
isnt($done, '', 'a conversion has begun');

# Clients insert through everything that follows, until the server is stopped.
my $client_script = PostgreSQL::Test::Utils::tempdir() . '/clients.sql';
append_to_file($client_script, "INSERT INTO $_ (item) VALUES ('by a client');\n") for @tables;
my ($clients, $client_errors);
sub start_clients
{
	$client_errors = '';
	$clients = IPC::Run::start([ "$installation/bin/pgbench", '-n', '-c', 4, '-j', 1, '-R', 400, '-T', 3600, '-f', $client_script, $node->connstr('shop') ],
		'>', \my $ignored, '2>', \$client_errors, IPC::Run::timeout(600));
	return they_insert('clients begin');
}
my $rows = join ' + ', map { "(SELECT count(*) FROM $_)" } @tables;
sub they_insert
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = sql('shop', "SELECT $rows");
	$clients->pump_nb;
	return ok(wait_until("$what: clients insert", sub { sql('shop', "SELECT $rows") > $before + 100 }), "$what: clients insert");
}
# Stops the clients, which must have seen no error, and checks their IDs.
sub stop_clients
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($clients->pumpable, "$what: all clients are there still");
	# Not INT, which is ignored by what a shell has started in the background.
	$clients->signal('TERM');
	$clients->finish;
	unlike($client_errors, qr/error|abort|fail/i, "$what: no client saw an error");
	return no_id_twice($what);
}
# The keys of the tables hold within one table; a table keeps what came before.
sub no_id_twice
{
	my ($what) = @_;
	return is(sql('shop', "SELECT count(*) FROM (SELECT g.id FROM (" . join(' UNION ALL ', map { "SELECT '$_', id, item FROM $_" } @tables)
		. ") AS g (generator, id, item) GROUP BY g.generator, g.id HAVING count(*) > 1) AS twice"), 0, "$what: no ID twice");
}
# Returns the file that the server of a session has loaded the library from: Linux says if the
# file has been replaced.
sub library_of
{
	my ($session) = @_;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my ($line) = slurp_file("/proc/$pid/maps") =~ m{(\S+/snowflake_id\.so(?: \(deleted\))?)$}m or return '';
	return $line;
}

# The library is replaced under the server's feet: a server that runs keeps what it has
# loaded, new sessions too. Then the server crashes, and starts with its clock behind: only
# the marks keep IDs from being issued twice.
start_clients();
my $session = session($node, undef, 'shop');
push @leased, ids($leasing, 10);
my $library = replace_library($installation, 'next');
they_insert('a library that is replaced');
my $new = session($node, undef, 'shop');
SKIP:
{
	skip '/proc is not here', 2 if !-r "/proc/$$/maps";
	is(library_of($_), "$library (deleted)", 'a server that runs keeps its library') for $session, $new;
}
$_->query_safe("SELECT snowflake_nextval('orders_ids')") for $session, $new;
# Until the server is restarted, the update finds that its library is not loaded.
for my $where ([ $session, $node ], [ session($leasing), $leasing ])
{
	my ($in, $server) = @$where;
	my ($code, $text) = error_in($in, $update);
	is($code, '42883', 'an update before the restart is refused: ' . $server->name);
	like($text, qr/could not find function "snowflake_next_marker"/, 'the error says what is missing');
	is($in->query_safe($version_of), $this, 'the version stays');
	$in->quit if $server == $leasing;
}
$_->quit for $session, $new;
stop_clients('a library that is replaced');
my %highest = map { $_ => sql('shop', "SELECT max(id) FROM $_") } @tables;
$node->stop('immediate');
start_with_clock($node, clock_of($node) - 5);
sql('shop', 'SELECT snowflake_end_grace_period()');
$session = session($node, undef, 'shop');
SKIP:
{
	skip '/proc is not here', 1 if !-r "/proc/$$/maps";
	is(library_of($session), $library, 'a server that was restarted has the new one');
}
start_clients();
for my $table (@tables)
{
	cmp_ok(sql('shop', "INSERT INTO $table (item) VALUES ('after') RETURNING id"), '>', $highest{$table}, "after the restart: $table goes on above");
}
lease_goes_on('after the restart');
my @open = ($session->query_safe("SELECT snowflake_nextval('orders_ids')"));
my $before = sql('shop', $look);
my $rights_before = sql('shop', $rights);
cmp_ok(() = $rights_before =~ /\n/g, '>', 2, 'users have given privileges');
my $made_before = sql('shop', $inventory);
my $folder = $node->basedir;
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$folder/shop.before", 'shop' ], 'a dump before the update');

# An update is all or nothing: if an object of a new name is there, if it is rolled back, or if
# it cannot have a lock in time.
sub nothing_has_changed
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql('shop', $version_of), $this, "$what: the version stays");
	is(sql('shop', $inventory), $made_before, "$what: so does everything else");
	push @open, $session->query_safe("SELECT snowflake_nextval('orders_ids')");
	return they_insert($what);
}
sql('shop', 'GRANT CREATE ON SCHEMA public TO watcher');
sql('shop', q{CREATE FUNCTION snowflake_marker() RETURNS text LANGUAGE sql AS $$SELECT 'planted'$$}, 'watcher');
for my $role ('keeper', undef)
{
	my $updates = session($node, $role, 'shop');
	($code, $text) = error_in($updates, $update);
	is($code, '42723', 'a function of another role is in the way: ' . ($role // 'a superuser')) or diag $text;
	$updates->quit;
	nothing_has_changed('a function in the way');
}
sql('shop', 'DROP FUNCTION snowflake_marker()', 'watcher');
sql('shop', 'REVOKE CREATE ON SCHEMA public FROM watcher');
my $reader = session($node, undef, 'shop');
$reader->query_safe('BEGIN; SELECT FROM snowflake_worker');
is((error_of($node, "SET lock_timeout = '100 ms'; $update", 'shop'))[0], '55P03', 'a reader of the view is in the way');
nothing_has_changed('an update that got no lock');
my $updates = session($node, 'watcher', 'shop');
is(scalar error_in($updates, $update), '42501', 'a role that does not own the extension');
$updates->quit;
nothing_has_changed('a role that does not own the extension');

# The owner of the database updates. That waits for the reader of the view; meanwhile the
# registry answers, clients insert, and the lease is renewed.
$updates = session($node, 'keeper', 'shop');
send_to($updates, $update);
wait_for_lock($node, 'ALTER EXTENSION%');
lease_goes_on('while the update waits');
they_insert('while the update waits');
$reader->query_safe('COMMIT');
$reader->quit;
($code, $text) = answer_in($updates);
is($code, '', 'its owner updates the extension') or diag $text;
is(sql('shop', $version_of), $next, 'the version');

sub all_is_well
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	they_insert($what);
	is(sql('shop', $look), $before, "$what: labels, generators and the registry are the same");
	is(sql('shop', $progress), $done, "$what: so is the progress of a conversion");
	is(sql('shop', $rights), $rights_before, "$what: and what users have granted");
	push @open, $session->query_safe("SELECT snowflake_nextval('orders_ids')");
	is($session->query_safe('SELECT worker_id FROM shop_worker'), 7, "$what: a view over the view, in a session that was open");
	is(sql('shop', 'SELECT worker_id FROM shop_state()'), 7, "$what: a function with the view's row type");
	is(sql('shop', 'SELECT count(*) FROM shop_numbers'), 5, "$what: a view over a function");
	is(sql('shop', 'SELECT worker_id FROM snowflake_worker', 'watcher'), 7, "$what: who could read the view can still");
	is((error_of($node, 'SET ROLE lessee; SELECT * FROM snowflake_worker', 'shop'))[0], '42501', "$what: who could not cannot");
	is(sql('shop', 'SELECT count(*) FROM events WHERE created_at IS DISTINCT FROM snowflake_timestamp(id)'), 0, "$what: IDs are decoded as before");
	push @leased, ids($leasing, 100);
	return lease_goes_on($what);
}
all_is_well('after the update');
is($session->query_safe('SELECT snowflake_marker()'), 'next', 'what is new works, in a session that was open');
is($session->query_safe('SELECT snowflake_library_marker()'), 't', 'so does what is new in the library');
isnt((error_of($node, 'SET ROLE lessee; SELECT snowflake_marker()', 'shop'))[0], '', 'for who may use it');

# Back, under load, and there again, with a rollback between.
is(scalar error_in($updates, "$update TO '$this'"), '', 'back');
is(sql('shop', $version_of), $this, 'back: the version');
is(sql('shop', $inventory), $made_before, 'back: the catalogs are as before');
all_is_well('back');
is(scalar error_in($session, 'SELECT snowflake_marker()'), '42883', 'back: what was new is gone, also for a session that has used it');
$updates->query_safe("BEGIN; $update; SELECT FROM shop_state(); ROLLBACK");
nothing_has_changed('an update that is rolled back');
is(scalar error_in($updates, $update), '', 'there again');
$updates->quit;
all_is_well('there again');
is(scalar error_in($session, $update), '', 'an update to where it is');
# The server that leases has the present library still.
$leasing->restart;
$leasing->safe_psql('postgres', $update);
ok(wait_until('it leases again', sub { $leasing->safe_psql('postgres', 'SELECT bound IS NOT NULL FROM snowflake_worker') eq 't' }), 'a server that was restarted leases again');
push @leased, ids($leasing, 300);
check_ids('the server that leases', \@leased);
stop_clients('updates');
check_ids('a session across the updates', \@open);

# The conversion goes on.
sql('shop', 'ALTER EXTENSION snowflake_id_convert UPDATE', 'keeper');
is(sql('shop', q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id_convert'}), $next, 'the extension that converts has the next version');
sql('shop', $_) for steps();
is(sql('shop', q{SELECT string_agg(atttypid::regtype || ' ' || attrelid::regclass, ', ' ORDER BY attrelid::regclass::text, attnum) FROM pg_attribute
	WHERE attrelid IN ('old_keys'::regclass, 'old_parts'::regclass) AND attname IN ('id', 'key')}),
	'bigint old_keys, bigint old_parts, bigint old_parts', 'the conversion is done');
is(sql('shop', 'SELECT count(*), count(DISTINCT k.id) FROM old_parts AS p JOIN old_keys AS k ON k.id = p.key'), '1000|1000', 'and all rows are there');

# Back to the present library, with the objects of the next version: the server crashes, and
# starts with its clock behind. All goes on but what is new in the next library. Then the
# objects go back as well, and both to the next version again.
sub restart_with
{
	my ($version) = @_;
	%highest = map { $_ => sql('shop', "SELECT max(id) FROM $_") } @tables;
	my $staying = sql('shop', $stays);
	$session->quit;
	replace_library($installation, $version);
	$node->stop('immediate');
	start_with_clock($node, clock_of($node) - 5);
	sql('shop', 'SELECT snowflake_end_grace_period()');
	$session = session($node, undef, 'shop');
	@open = ();
	for my $table (@tables)
	{
		cmp_ok(sql('shop', "INSERT INTO $table (item) VALUES ('on') RETURNING id"), '>', $highest{$table}, "the library of the $version version: $table goes on above");
	}
	is(sql('shop', $stays), $staying, "the library of the $version version: labels, generators and defaults are the same");
	# A restart with the clock behind begins a new era of the registry.
	lease_goes_on("the library of the $version version");
	$before = sql('shop', $look);
	return start_clients();
}
$done = sql('shop', $progress);
restart_with('present');
is(sql('shop', $version_of), $next, 'the present library: the version of the objects');
all_is_well('the present library with the objects of the next version');
is($session->query_safe('SELECT snowflake_marker()'), 'next', 'the present library: what is new in SQL works');
($code, $text) = error_in($session, 'SELECT snowflake_library_marker()');
is($code, '42883', 'the present library: what is new in the next library fails');
like($text, qr/could not find function "snowflake_next_marker"/, 'the error says what is missing');
is(scalar error_in($session, "$update TO '$this'"), '', 'the present library: the objects go back');
is(sql('shop', $inventory), $made_before, 'the present library: the catalogs are as before');
all_is_well('the present version');
stop_clients('the present version');
restart_with('next');
is(scalar error_in($session, $update), '', 'the next version again');
all_is_well('the next version again');
is($session->query_safe('SELECT snowflake_library_marker()'), 't', 'the next version again: its library');
stop_clients('the next version again');
$session->quit;
$leasing->stop;

# The server is stopped with the later version, and starts with its clock behind.
%highest = map { $_ => sql('shop', "SELECT max(id) FROM $_") } @tables;
$node->stop('immediate');
start_with_clock($node, clock_of($node) - 5);
cmp_ok(sql('shop', "INSERT INTO $_ (item) VALUES ('last') RETURNING id"), '>', $highest{$_}, "after the last restart: $_ goes on above") for @tables;

# A dump of before the update is restored with the version that the server has. The registry
# in it is not looked at.
sql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '-d', 'restored', '--exit-on-error', "$folder/shop.before" ], 'the dump of before is restored');
is(sql('restored', $version_of), $next, 'the dump of before: the version');
is(sql('restored', $stays), sql('shop', $stays), 'the dump of before: labels, generators and defaults');
cmp_ok(sql('restored', "INSERT INTO $_ (item) SELECT 'restored' FROM (SELECT max(id) AS most FROM $_) AS m RETURNING id"), '>',
	sql('restored', "SELECT max(id) FROM $_ WHERE item <> 'restored'"), "the dump of before: $_ goes on above") for @tables;

done_testing();
