# Tests ALTER EXTENSION snowflake_id UPDATE: the catalogs are the same afterwards as after
# CREATE EXTENSION, for every pair of versions between which there is a path; the library
# works under the script of each earlier version until then; and what is there stays: marks,
# labels, privileges, a registry with servers that lease from it, a conversion that is not
# done.
#
# The library keeps no state of its own on disk: what it writes are the values of sequences
# and the rows of the registry, which belong to the script. So a library that starts on what
# an earlier script holds is the upgrade of the library. OLD_LIBRARY names the file of an
# earlier library, if there is one (CONTRIBUTING.md); the last part then tests both side by
# side.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use File::Copy ();
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Registry;
use Snowflake;

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 4\nautovacuum = off\njit = off");
start_with_clock($node, 0);
sub sql { my ($database, $statement, @as) = @_; return $node->safe_psql($database, $statement, @as ? (extra_params => [ '-U', @as ]) : ()); }
sub make_database { my ($name, $statement, $owner) = @_;
	sql('postgres', "CREATE DATABASE $name" . ($owner ? " OWNER $owner" : ''));
	sql($name, $statement, $owner) if $owner;
	sql($name, $statement) if !$owner;
	return $name; }

# The versions, and the paths between them.
my $newest = sql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'snowflake_id'});
like(slurp_file("$FindBin::RealBin/../../CHANGELOG.md"), qr/\A# Changelog\n\n## \Q$newest\E( \(unreleased\))?\n/, "$newest has a section in CHANGELOG.md");
my @earlier = split /\n/, sql('postgres', qq{SELECT version FROM pg_available_extension_versions
	WHERE name = 'snowflake_id' AND version <> '$newest' ORDER BY string_to_array(version, '.')::int[]});
cmp_ok(@earlier, '>', 0, "there are earlier versions than $newest: @earlier");
my @paths = map { [ split /\|/ ] } split /\n/, sql('postgres', q{SELECT source, target FROM pg_extension_update_paths('snowflake_id')
	WHERE path IS NOT NULL ORDER BY string_to_array(source, '.')::int[], string_to_array(target, '.')::int[]});
for my $version (@earlier)
{
	ok((grep { "@$_" eq "$version $newest" } @paths), "a path leads from $version to $newest");
}

# The catalogs: in a schema whose name needs quotes, too.
my $inventory = slurp_file("$FindBin::RealBin/061_upgrades/inventory.sql");
my $number = 0;
my %made;
for my $path (@paths)
{
	my ($source, $target) = @$path;
	for my $schema ('public', '"My IDs"')
	{
		my $make = $schema eq 'public' ? '' : "CREATE SCHEMA $schema; ";
		my $made = $made{$target}{$schema} //= sql(make_database('made' . $number++, "$make CREATE EXTENSION snowflake_id SCHEMA $schema VERSION '$target'"), $inventory);
		my $name = make_database('walked' . $number++, "$make CREATE EXTENSION snowflake_id SCHEMA $schema VERSION '$source'");
		sql($name, "ALTER EXTENSION snowflake_id UPDATE TO '$target'");
		my $updated = sql($name, $inventory);
		cmp_ok(length $made, '>', 100_000, 'the catalogs have much to say') if $number == 2;
		my (%lines, @differences);
		$lines{$_}++ for split /\n/, $made;
		$lines{$_}-- for split /\n/, $updated;
		push @differences, ($lines{$_} > 0 ? 'missing: ' : 'too much: ') . $_ for grep { $lines{$_} } sort keys %lines;
		is(join("\n", splice @differences, 0, 20), '', "$source to $target in $schema: as if made by CREATE EXTENSION");
	}
}
# From PostgreSQL 18 on, the row types of tables and views are members as well.
like(sql('made0', q{SELECT string_agg(DISTINCT classid::regclass::text, ' ') FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')}), qr/^pg_class pg_proc(?: pg_type)?$/, 'the inventory knows all kinds of objects');

# A function that a later script declares with more columns is refused, not read past its end.
my ($code, $text) = error_of($node, q{CREATE FUNCTION pg_temp.f(OUT a regclass, OUT b float8, OUT c text) RETURNS SETOF record STRICT LANGUAGE c
	AS 'snowflake_id', 'snowflake_horizon_lags'; SELECT * FROM pg_temp.f()}, 'made0');
is($code, '55000', 'a function with more columns than the library gives');
like($text, qr/the library of snowflake_id is of another version than this function/, 'the error says so');

# What is in a database, and must be the same after an update and in a restored dump.
my %preset_of = (orders => 'shardingsphere on_rollback=continue', photos => 'instagram shard=5', messages => 'sonyflake', waits => 'twitter on_rollback=wait max_wait=\'2 s\'');
my @tables = ('events', sort keys %preset_of);
my $rows = join '; ', map { "SELECT '$_', count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM $_ AS t" } @tables;
my $look = q{
	SELECT objname, label FROM pg_seclabels WHERE provider = 'snowflake_id' ORDER BY objname COLLATE "C";
	SELECT generator, worker_id, ends_at, layout, policy, problem FROM snowflake_generators ORDER BY generator::text COLLATE "C";
	SELECT * FROM snowflake_registry_pools ORDER BY name; SELECT state -> 'era' FROM snowflake_registry_state;
	SELECT * FROM snowflake_registry_leases WHERE worker_id >= 100 ORDER BY worker_id;
	SELECT worker_id FROM snowflake_registry_leases WHERE worker_id < 100;
	SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
		WHERE adrelid::regclass::text IN ('events', 'orders', 'photos') ORDER BY adrelid::regclass::text COLLATE "C", attnum;
	} . $rows;
my $rights = q{SELECT objid::regprocedure::text, pg_proc.proacl::text FROM pg_depend JOIN pg_proc ON pg_proc.oid = objid AND classid = 'pg_proc'::regclass
	WHERE deptype = 'e' AND proacl::text ~ '(watcher|lessee)' UNION ALL
	SELECT objid::regclass::text, relacl::text FROM pg_depend JOIN pg_class ON pg_class.oid = objid AND classid = 'pg_class'::regclass
	WHERE deptype = 'e' AND relacl::text ~ '(watcher|lessee)' ORDER BY 1};

sub insert
{
	my ($database, $table) = @_;
	return split /\n/, sql($database, "INSERT INTO $table (item) SELECT 'thing ' || n FROM generate_series(1, 200) AS n RETURNING id", 'keeper');
}

sql('postgres', 'CREATE ROLE keeper LOGIN; CREATE ROLE watcher LOGIN; CREATE ROLE lessee LOGIN');
for my $version (@earlier)
{
	my $what = "from $version";
	(my $shop = "shop_$version") =~ tr/./_/;
	# The script of the earlier version, and the present library. The owner of the database
	# has made the extension.
	make_database($shop, "CREATE EXTENSION snowflake_id VERSION '$version'", 'keeper');
	sql($shop, join(";\n", (map { my $label = $preset_of{$_}; $label =~ s/'/''/g;
		"SELECT snowflake_create_generator('${_}_ids', 'preset=$label');
		CREATE TABLE $_ (id bigint PRIMARY KEY DEFAULT snowflake_nextval('${_}_ids'), item text)" } sort keys %preset_of),
		q{CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text, created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED);
		CREATE INDEX ON events (snowflake_timestamp(id));
		CREATE VIEW shop_stats AS SELECT * FROM pg_stat_snowflake;
		CREATE VIEW shop_numbers AS SELECT generator, issued, stats_reset FROM pg_stat_snowflake();
		CREATE FUNCTION shop_state() RETURNS SETOF pg_stat_snowflake LANGUAGE sql AS 'SELECT * FROM pg_stat_snowflake';
		CREATE TABLE old_keys (id int PRIMARY KEY, item text);
		INSERT INTO old_keys SELECT n, 'thing ' || n FROM generate_series(1, 5000) AS n;
		CREATE TABLE old_parts (id int PRIMARY KEY, key int REFERENCES old_keys);
		INSERT INTO old_parts SELECT n, n FROM generate_series(1, 1000) AS n}), 'keeper');
	# Privileges that users have given and taken.
	sql($shop, q{GRANT EXECUTE ON FUNCTION snowflake_lease(text, jsonb), snowflake_stat_reset() TO lessee;
		REVOKE EXECUTE ON FUNCTION pg_stat_snowflake() FROM PUBLIC; GRANT EXECUTE ON FUNCTION pg_stat_snowflake() TO watcher;
		REVOKE SELECT ON pg_stat_snowflake FROM PUBLIC; GRANT SELECT ON pg_stat_snowflake, snowflake_workers TO watcher; GRANT SELECT ON pg_stat_snowflake TO keeper});

	# IDs, decoding, statistics.
	my %ids = map { $_ => [ insert($shop, $_) ] } @tables;
	for my $table (@tables)
	{
		my $generator = $table eq 'events' ? 'snowflake_default' : "${table}_ids";
		push @{ $ids{$table} }, split /\n/, sql($shop, "BEGIN; SELECT id FROM snowflake_nextval_batch(50, '$generator') AS id; ROLLBACK");
		is(sql($shop, "SELECT snowflake_timestamp($ids{$table}[0], '$generator') BETWEEN now() - interval '10 min' AND now() + interval '1 min'"), 't', "$what: $table is decoded");
	}
	is(sql($shop, q{SELECT created_at = snowflake_timestamp(id) FROM events LIMIT 1}), 't', "$what: the default generator is decoded");
	is(sql($shop, q{SELECT count(*), min(issued), bool_and(stats_reset BETWEEN now() - interval '1 h' AND now()) FROM pg_stat_snowflake}), '5|250|t', "$what: statistics before the update");
	is(sql($shop, q{SELECT severity, finding FROM snowflake_check_cluster(ARRAY[]::text[])}), '', "$what: a cluster is checked");
	is(sql($shop, "SELECT count(*) FROM snowflake_check('events')") > 0, 1, "$what: a table is checked");
	is(sql($shop, 'SELECT source, worker_id FROM snowflake_worker'), 'setting|7', "$what: the worker ID is shown");

	# A registry, its leases, and a server that leases from it.
	sql($shop, q{SELECT snowflake_create_pool('main', '[0,8)', lease => '6 s', hold => '1 s', max_ahead => '1 s');
		SELECT snowflake_create_pool('other', '[100,110)', lease => '10 min', hold => '10 s', max_ahead => '1 s')});
	my ($lives, $gone, $lost, $queue) = map { server($_) } 1 .. 4;
	# Numbers above 2^63, which to_hex() takes for negative ones.
	$lost->{holder}{identity} = { %{ $lost->{holder}{identity} }, inode => 18446744073709551615, device => 10 };
	my %here = (database => $shop, pool => 'other', role => 'lessee');
	granted(acquire($node, $lives, %here));
	granted(acquire($node, $gone, %here));
	granted(acquire($node, $lost, %here));
	$queue->{holder}{identity}{generator} = 4294967296;
	granted(acquire($node, $queue, %here));
	is(kind(renew($node, $lives, %here)), 'renewed', "$what: a lease is renewed");
	# Whoever may create tables there cannot have the registry use one of his.
	sql($shop, q{CREATE TABLE snowflake_registry_servers (identity text PRIMARY KEY, server jsonb);
		CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$planted$$; END';
		CREATE TRIGGER planted BEFORE INSERT ON snowflake_registry_servers FOR EACH ROW EXECUTE FUNCTION planted()}, 'keeper');
	is(kind(renew($node, $lives, %here)), 'renewed', "$what: a table of another role is left alone");
	sql($shop, 'DROP TABLE snowflake_registry_servers; DROP FUNCTION planted()', 'keeper');
	is(release($node, $gone, %here), 'released', "$what: and returned");
	my $leasing = new_node("leasing_$number", -1);
	$number++;
	my $conninfo = 'host=' . $node->host . ' port=' . $node->port . " dbname=$shop";
	$leasing->append_conf('postgresql.conf', "snowflake_id.registry = '$conninfo'\nsnowflake_id.pool = 'main'\nsnowflake_id.horizon_databases = 'postgres'\nmax_prepared_transactions = 4");
	$leasing->start;
	$leasing->safe_psql('postgres', "CREATE EXTENSION snowflake_id VERSION '$version'");
	ok($leasing->poll_query_until('postgres', 'SELECT bound IS NOT NULL FROM snowflake_worker'), "$what: a server leases a worker ID");
	my @leased = ids($leasing, 300);
	my $bound = q{SELECT extract(epoch FROM bound) FROM snowflake_worker};
	my $first_bound = $leasing->safe_psql('postgres', $bound);
	wait_until('the lease is renewed', sub { $leasing->safe_psql('postgres', $bound) > $first_bound });
	is($leasing->safe_psql('postgres', 'SELECT last_error IS NULL FROM snowflake_worker'), 't', "$what: and renews it");
	ok(wait_until("$what: four leases", sub { sql($shop, q{SELECT count(*) FROM snowflake_workers WHERE state = 'leased'}, 'watcher') == 4 }), "$what: the registry shows it");

	# A conversion that is not done.
	my $plan = q{SELECT statement FROM snowflake_convert_steps('{old_keys,old_parts}') ORDER BY step};
	sub steps { my ($database, $statement) = @_; return split /\x01/, sql($database, "SELECT coalesce(string_agg(statement, chr(1)), '') FROM ($statement) AS s", 'postgres'); }
	my @steps = steps($shop, $plan);
	my ($backfill) = grep { $steps[$_] =~ /snowflake_convert_backfill/ } 0 .. $#steps;
	sql($shop, $_) for @steps[ 0 .. $backfill ];
	my $progress = 'SELECT relation, pages_done, rows_done, filled FROM snowflake_conversions ORDER BY relation::text';
	my $done = sql($shop, $progress);
	isnt($done, '', "$what: a conversion has begun");

	# The library starts anew, with its clock behind: only the marks keep IDs from being issued
	# twice.
	$node->stop('immediate');
	start_with_clock($node, clock_of($node) - 5);
	sql($shop, 'SELECT snowflake_end_quiet_time()');
	push @{ $ids{$_} }, insert($shop, $_) for @tables;
	check_ids("$what, after a crash: $_", $ids{$_}) for @tables;
	my $before = sql($shop, $look);
	my $rights_before = sql($shop, $rights);
	cmp_ok(() = $rights_before =~ /\n/g, '>', 2, "$what: users have given privileges");
	my $folder = $node->basedir;
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$folder/$shop.before", $shop ], "$what: a dump before the update");

	# Sessions that have used everything go on.
	my $open = session($node, undef, $shop);
	my @open = ($open->query_safe("SELECT snowflake_nextval('orders_ids')"));
	$open->query_safe('SELECT * FROM pg_stat_snowflake');

	# The update waits for who has read the view, and the registry answers meanwhile; then for whoever changes
	# the registry, and then for nothing else.
	my $reader = session($node, undef, $shop);
	$reader->query_safe('BEGIN; SELECT FROM pg_stat_snowflake');
	my $updates = session($node, 'keeper', $shop);
	send_to($updates, "ALTER EXTENSION snowflake_id UPDATE TO '$newest'");
	wait_for_lock($node, 'ALTER EXTENSION%');
	is((error_of($node, 'BEGIN; SELECT FROM snowflake_registry_state FOR UPDATE NOWAIT; ROLLBACK', $shop))[0], '', "$what: the registry answers while the update waits");
	my $admin = session($node, undef, $shop);
	$admin->query_safe('BEGIN; SELECT FROM snowflake_registry_state FOR UPDATE');
	$reader->query_safe('COMMIT');
	$reader->quit;
	wait_until("$what: the update waits for the registry", sub { sql($shop, q{SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE query LIKE 'ALTER EXTENSION%' AND NOT granted AND locktype = 'relation' AND relation = 'snowflake_registry_state'::regclass}) == 1 });
	$admin->query_safe('COMMIT');
	my (undef, $error) = answer_in($updates);
	is($error, '', "$what: its owner updates the extension");
	$_->quit for $admin, $updates;
	is(sql($shop, q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'}), $newest, "$what: the version");

	is(sql($shop, $look), $before, "$what: labels, generators, the registry and rows are the same");
	is(sql($shop, $progress), $done, "$what: so is the progress of a conversion");
	is(sql($shop, $rights), $rights_before, "$what: and what users have granted");
	my $shown = sql($shop, q{SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'shop_stats'::regclass});
	is($shown, 'generator issued batches waits wait_time borrowed refusals clock_rollbacks largest_rollback reservations reservation_time stats_reset',
		"$what: a view of a user has the columns that it had");
	push @open, $open->query_safe("SELECT snowflake_nextval('orders_ids')");
	is($open->query_safe("SELECT count(*), count(horizon_lag), count(stats_reset) FROM pg_stat_snowflake"), '5|5|5', "$what: a session that was open sees what is new");
	is(sql($shop, 'SELECT count(*) FROM shop_numbers'), 5, "$what: a view over the function");
	is(sql($shop, 'SELECT count(*) FROM shop_state()'), 5, "$what: a function with the view's row type");
	is(sql($shop, 'SELECT count(*) FROM pg_stat_snowflake', 'watcher'), 5, "$what: who could read the view can still");
	is((error_of($node, 'SET ROLE lessee; SELECT * FROM pg_stat_snowflake', $shop))[0], '42501', "$what: who could not cannot");

	# IDs go on above; what is new works.
	check_ids("$what: a session across the update", \@open);
	push @{ $ids{$_} }, insert($shop, $_) for @tables;
	check_ids("$what, after the update: $_", $ids{$_}) for @tables;
	cmp_ok(sql($shop, 'SELECT snowflake_horizon()'), '>', $ids{events}[0], "$what: a horizon");
	my $far = $ids{events}[-1] + (1 << 22);
	cmp_ok(sql($shop, "SELECT snowflake_nextval_after($far)"), '>', $far, "$what: an ID after another one");

	# The servers that had worker IDs count, and hold the horizon of the cluster back, until
	# they report or are dropped.
	is(sql($shop, q{SELECT string_agg(data_directory || ' ' || state, ', ' ORDER BY data_directory COLLATE "C") FROM snowflake_cluster_servers WHERE worker_id >= 100}),
		'/srv/1 not reported, /srv/3 not reported', "$what: servers that had leases count");
	($code, $text) = error_of($node, 'SELECT snowflake_cluster_horizon()', $shop);
	is($code, '55000', "$what: the cluster has no horizon yet");
	my $kept = sql($shop, q{SELECT identity FROM snowflake_registry_servers WHERE server ->> 'worker' >= '100' ORDER BY server #>> '{holder,host}'});
	my $mine = q{state = 'reports' AND horizon > now() - interval '1 min'};
	wait_until("$what: the server reports", sub { sql($shop, "SELECT count(*) FROM snowflake_cluster_servers WHERE $mine AND worker_id < 100") == 1 });
	is(sql($shop, 'SELECT count(*) FROM snowflake_cluster_servers WHERE worker_id < 100'), 1, "$what: and is counted once");
	is(kind(renew($node, $_, %here)), 'renewed', "$what: a lease of before is renewed") for $lives, $lost;
	is(sql($shop, q{SELECT identity FROM snowflake_registry_servers WHERE server ->> 'worker' >= '100' ORDER BY server #>> '{holder,host}'}), $kept,
		"$what: under the name that it had");
	is(release($node, $_, %here), 'released', "$what: and returned") for $lives, $lost;
	is(sql($shop, "SELECT count(*) FROM snowflake_cluster_servers WHERE worker_id >= 100"), 0, "$what: then they count no more");
	like(sql($shop, 'SELECT snowflake_cluster_horizon()'), qr/^\d+$/, "$what: so the cluster has a horizon");
	$leasing->safe_psql('postgres', 'ALTER EXTENSION snowflake_id UPDATE');
	push @leased, ids($leasing, 300);
	check_ids("$what: the server that leases", \@leased);
	$leasing->stop;

	# The conversion goes on.
	sql($shop, $_) for steps($shop, $plan);
	is(sql($shop, q{SELECT string_agg(atttypid::regtype || ' ' || attrelid::regclass, ', ' ORDER BY attrelid::regclass::text, attnum) FROM pg_attribute
		WHERE attrelid IN ('old_keys'::regclass, 'old_parts'::regclass) AND attname IN ('id', 'key')}),
		'bigint old_keys, bigint old_parts, bigint old_parts', "$what: the conversion is done");
	is(sql($shop, 'SELECT count(*), count(DISTINCT k.id) FROM old_parts AS p JOIN old_keys AS k ON k.id = p.key'), '1000|1000', "$what: and all rows are there");

	# Dumps: one of before the update, which CREATE EXTENSION reads as the present version,
	# and one of the updated database.
	sub is_restored
	{
		my ($copy, $file, $compared, $expected, $label) = @_;
		sql('postgres', "CREATE DATABASE $copy");
		$node->command_ok([ 'pg_restore', '-d', $copy, '--exit-on-error', $file ], "$label: restored");
		is(sql($copy, q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'}), $newest, "$label: the version");
		is(sql($copy, $compared), $expected, "$label: and nothing is missing");
		return;
	}
	# What is granted on functions by a dump stays apart from the rest, see docs/operations.md.
	is_restored("${shop}_before", "$folder/$shop.before", $look, $before, "$what: the dump of before");
	# A registry that is restored in its earlier version counts its servers with the update.
	make_database("${shop}_counts", "CREATE EXTENSION snowflake_id VERSION '$version'");
	$node->command_ok([ 'pg_restore', '-d', "${shop}_counts", '--exit-on-error', "$folder/$shop.before" ], "$what: restored in the earlier version");
	sql("${shop}_counts", 'ALTER EXTENSION snowflake_id UPDATE');
	is(sql("${shop}_counts", q{SELECT count(*) FROM snowflake_cluster_servers WHERE worker_id >= 100}), 2, "$what: and the servers count");
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$folder/$shop.after", $shop ], "$what: a dump after the update");
	is_restored("${shop}_after", "$folder/$shop.after", "$look; $rights; SELECT count(*) FROM snowflake_registry_servers",
		sql($shop, "$look; $rights; SELECT count(*) FROM snowflake_registry_servers"), "$what: the dump of after");
	for my $copy ("${shop}_before", "${shop}_after")
	{
		cmp_ok(sql($copy, "SELECT snowflake_nextval('${_}_ids')"), '>', $copy =~ /after/ ? $ids{$_}[-1] : $ids{$_}[449], "$copy: $_ goes on above") for sort keys %preset_of;
	}
	$open->quit;
}

# A registry that has no pool yet gets none while it is updated: a worker ID of that pool would
# not be counted.
for my $version (@earlier)
{
	(my $name = "empty_$version") =~ tr/./_/;
	make_database($name, "CREATE EXTENSION snowflake_id VERSION '$version'");
	my $isolation = q{SET default_transaction_isolation = 'repeatable read';};
	is((error_of($node, "$isolation ALTER EXTENSION snowflake_id UPDATE", $name))[0], '25001', "from $version: an update that would not see the latest leases is refused");
	is(sql($name, q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'}), $version, "from $version: and nothing has changed");
	my $updates = session($node, undef, $name);
	$updates->query_safe('BEGIN; ALTER EXTENSION snowflake_id UPDATE');
	my $pool = q{SELECT snowflake_create_pool('first', '[0,8)')};
	is((error_of($node, "SET lock_timeout = '1 s'; $pool", $name))[0], '55P03', "from $version: the first pool waits for the update");
	$updates->query_safe('COMMIT');
	$updates->quit;
	sql($name, $pool);
	granted(acquire($node, server(1), database => $name, pool => 'first'));
	is(sql($name, 'SELECT count(*) FROM snowflake_registry_servers'), 1, "from $version: its servers count");
}

# The objects may belong to a role that was a superuser when it made them, and is none now.
sql('postgres', 'CREATE ROLE former LOGIN SUPERUSER');
for my $version (@earlier)
{
	(my $name = "former_$version") =~ tr/./_/;
	make_database($name, "CREATE EXTENSION snowflake_id VERSION '$version'", 'former');
	sql('postgres', 'ALTER ROLE former NOSUPERUSER');
	sql($name, 'ALTER EXTENSION snowflake_id UPDATE');
	sql($name, q{SELECT snowflake_create_pool('other', '[100,110)', lease => '10 min', hold => '10 s', max_ahead => '1 s')});
	my %here = (database => $name, pool => 'other');
	my $server = server(1);
	granted(acquire($node, $server, %here));
	is(kind(renew($node, $server, %here)), 'renewed', "from $version: leases of a registry whose owner is no superuser");
	is(sql($name, 'SELECT count(*) FROM snowflake_registry_servers'), 1, "from $version: and it counts the server");
	sql('postgres', 'ALTER ROLE former SUPERUSER');
}

# Both libraries side by side: a registry and two servers are upgraded one after the other.
SKIP:
{
	my $library = $ENV{OLD_LIBRARY} or skip 'OLD_LIBRARY names no earlier library', 1;
	my $version = $earlier[-1];
	my $folder = PostgreSQL::Test::Utils::tempdir();
	File::Copy::copy($library, "$folder/snowflake_id.so") or die "$library: $!";
	chmod 0755, "$folder/snowflake_id.so";
	my $old = "dynamic_library_path = '$folder:\$libdir'";
	sub make { my ($name, $worker, @settings) = @_;
		my $made = new_node($name, $worker);
		$made->append_conf('postgresql.conf', join "\n", 'restart_after_crash = on', @settings);
		start_with_clock($made, 0);
		$made->safe_psql('postgres', "CREATE EXTENSION snowflake_id VERSION '$version'");
		return $made; }
	my %ids;
	sub take { my (@nodes) = @_; push @{ $ids{ $_->name } }, ids($_, 100) for @nodes; return; }
	# Starts a server with one of the libraries, its clock five seconds further back.
	sub restart { my ($mode, $from, $is_old) = @_;
		$from->stop($mode);
		$from->adjust_conf('postgresql.conf', 'dynamic_library_path', $is_old ? "'$folder:\$libdir'" : "'\$libdir'");
		start_with_clock($from, clock_of($from) - 5);
		return; }
	my $registry = make('registry', 1000, $old);
	$registry->safe_psql('postgres', "SELECT snowflake_create_pool('main', '[0,8)', lease => '6 s', hold => '1 s', max_ahead => '30 s')");
	my @settings = ("snowflake_id.registry = 'host=" . $registry->host . ' port=' . $registry->port . " dbname=postgres'", "snowflake_id.pool = 'main'");
	my $older = make('older', -1, $old, @settings);
	my $newer = make('newer', -1, @settings, "snowflake_id.horizon_databases = 'postgres'");
	sub lease_on { my ($what, @nodes) = @_;
		for my $leasing (@nodes)
		{
			my $since = $leasing->safe_psql('postgres', 'SELECT clock_timestamp()');
			ok(wait_until("a renewal: $what", sub { $leasing->safe_psql('postgres', "SELECT last_contact > '$since' AND last_error IS NULL FROM snowflake_worker") eq 't' }),
				"$what: " . $leasing->name . ' renews its lease');
		}
		take(@nodes);
		return; }
	is((error_of($registry, q{CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE c AS 'snowflake_id', 'snowflake_horizon'}))[0], '42883', 'that library is an earlier one');
	take($registry);
	lease_on('a registry with the earlier library', $older, $newer);
	restart('immediate', $registry);
	$registry->safe_psql('postgres', 'SELECT snowflake_end_quiet_time()');
	take($registry);
	lease_on('a registry with the later library, and the earlier script', $older, $newer);
	$registry->safe_psql('postgres', 'ALTER EXTENSION snowflake_id UPDATE');
	take($registry);
	lease_on('an updated registry', $older, $newer);
	my (undef, $text) = error_of($registry, 'SELECT snowflake_cluster_horizon()');
	my $directory = $older->data_dir;
	like($text, qr/the cluster has no horizon yet.*data directory "\Q$directory\E".*has reported no horizon/s, 'the server with the earlier library holds the horizon back');
	$older->append_conf('postgresql.conf', "snowflake_id.horizon_databases = 'postgres'");
	restart('immediate', $older);
	ok($older->poll_query_until('postgres', 'SELECT bound IS NOT NULL FROM snowflake_worker'), 'that server gets a worker ID with the later library');
	lease_on('the later library on all of them', $older, $newer);
	$_->safe_psql('postgres', 'ALTER EXTENSION snowflake_id UPDATE') for $older, $newer;
	ok($registry->poll_query_until('postgres', q{SELECT count(*) = 2 FROM snowflake_cluster_servers WHERE state = 'reports'}), 'both report');
	like($registry->safe_psql('postgres', 'SELECT snowflake_cluster_horizon()'), qr/^\d+$/, 'so the cluster has a horizon');
	# Back to the earlier library, under the later script.
	restart('fast', $_, 1) for $registry, $older;
	take($registry);
	ok($older->poll_query_until('postgres', 'SELECT bound IS NOT NULL FROM snowflake_worker'), 'back: a server gets a worker ID');
	lease_on('back to the earlier library', $older, $newer);
	is((error_of($registry, 'SELECT snowflake_horizon()'))[0], '42883', 'back: what is new fails');
	is((error_of($registry, 'SELECT * FROM pg_stat_snowflake'))[0], '42883', 'back: so does the view with a new column');
	is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake_generators, pg_stat_snowflake()'), 1, 'back: what is old works');
	check_ids('from one library to another', values %ids);
}

done_testing();
