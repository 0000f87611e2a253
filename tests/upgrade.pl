# Tests that pg_upgrade keeps labels and marks, and that generators skip a gap once after it, from the installation in
# OLD_INSTALLATION to the one in NEW_INSTALLATION, both with the extension. The new one gets a
# next version of the extension (see NextVersion.pm), to which a database is updated afterwards.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use NextVersion;
use Registry;
use Snowflake;

my $old_path = $ENV{OLD_INSTALLATION};
my ($new_path, $this, $next) = next_version($ENV{NEW_INSTALLATION});
# The defaults of initdb differ between versions, and pg_upgrade needs clusters with
# equal settings.
my @initdb = ('--encoding=UTF8', '--no-locale', '--data-checksums');
my $behind = -3600;
my %generator_of = (
	orders => 'orders_ids',
	'"Media".photos' => '"Media"."photo ids"',
	ledger => 'ledger_ids',
	events => 'snowflake_default');
my @tables = sort keys %generator_of;

my $old = new_node('old', 7, install_path => $old_path, extra => \@initdb);
start_with_clock($old, 0);
diag('from ' . $old->safe_psql('postgres', 'SHOW server_version'));
$old->safe_psql('postgres', 'CREATE ROLE keeper LOGIN; CREATE DATABASE shop OWNER keeper; CREATE DATABASE second');
$old->safe_psql('shop', <<'END', extra_params => [ '-U', 'keeper' ]);
CREATE EXTENSION snowflake_id;
SELECT snowflake_create_generator('orders_ids', 'preset=shardingsphere on_rollback=continue');
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'), item text);
ALTER SEQUENCE orders_ids OWNED BY orders.id;
CREATE SCHEMA "Media";
SELECT snowflake_create_generator('"Media"."photo ids"', 'preset=instagram shard=5');
CREATE TABLE "Media".photos (id bigint PRIMARY KEY DEFAULT snowflake_nextval('"Media"."photo ids"'), item text);
CREATE SEQUENCE ledger_ids INCREMENT 9223372036854775807 START 9223372036854775807;
SECURITY LABEL FOR snowflake_id ON SEQUENCE ledger_ids IS
	$$layout='time:41 worker:6 entry:4=9 sequence:12' epoch='2020-01-01 00:00:00+00' tick='1 ms' sequence_start='vibrate 3'$$;
CREATE TABLE ledger (id bigint PRIMARY KEY DEFAULT snowflake_nextval('ledger_ids'), item text);
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text,
	created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED);
CREATE INDEX ON events (snowflake_timestamp(id));
-- One without an ID.
SELECT snowflake_create_generator('unused_ids', 'preset=discord');
GRANT SELECT ON SEQUENCE orders_ids TO PUBLIC;
-- Keys that were made before the setting stay as they are, with their sequences.
CREATE TABLE plain (id bigserial PRIMARY KEY);
CREATE TABLE identity (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
ALTER DATABASE shop SET snowflake_id.new_keys = on;
END
# Each database has a generator; the privileges on the default one are unusual.
$old->safe_psql('second', 'CREATE EXTENSION snowflake_id; SELECT snowflake_nextval(); REVOKE SELECT ON SEQUENCE snowflake_default FROM PUBLIC');
# This one has a registry of worker IDs, with a lease. A dump has no registry; pg_upgrade keeps it.
$old->safe_psql('second', q{SELECT snowflake_create_pool('main', '[0,8)', except_ids => '{[2,3)}')});
granted(acquire($old, server(1), database => 'second'));

# A database whose extension is updated after the upgrade.
$old->safe_psql('postgres', 'CREATE DATABASE aged');
my @aged = split /\n/, $old->safe_psql('aged', "CREATE EXTENSION snowflake_id;
	CREATE VIEW stats AS SELECT * FROM pg_stat_snowflake; SELECT snowflake_nextval() FROM generate_series(1, 10)");

sub insert
{
	my ($node, $table) = @_;
	return split /\n/, $node->safe_psql('shop',
		"INSERT INTO $table (item) SELECT 'thing ' || n FROM generate_series(1, 300) AS n RETURNING id",
		extra_params => [ '-U', 'keeper' ]);
}

sub look
{
	my ($node) = @_;
	my $rights = q{(SELECT string_agg(a::text, ' ' ORDER BY a::text COLLATE "C") FROM unnest(c.relacl) AS a)};
	return $node->safe_psql('shop', qq{
		SELECT objname, label FROM pg_seclabels WHERE provider = 'snowflake_id' ORDER BY objname COLLATE "C";
		SELECT generator, worker_id, reserved_until, ends_at FROM snowflake_generators ORDER BY generator::text COLLATE "C";
		SELECT s.seqrelid::regclass, s.seqstart, s.seqincrement, s.seqmax, $rights
		FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid ORDER BY s.seqrelid::regclass::text COLLATE "C";
		SELECT count(*), min((snowflake_decode(id, 'orders_ids')).worker_id) FROM orders;
		SELECT count(*), min(fields->>'entry') FROM ledger, snowflake_decode(id, 'ledger_ids');
		SELECT count(*), bool_and(created_at = snowflake_timestamp(id)) FROM events;
		SELECT attrelid::regclass, attidentity, pg_get_serial_sequence(attrelid::regclass::text, 'id') FROM pg_attribute
		WHERE attrelid IN ('plain'::regclass, 'identity'::regclass) AND attname = 'id' ORDER BY 1;
	})
	  . $node->safe_psql('second', qq{
		SELECT last_value, $rights FROM snowflake_default, pg_class AS c WHERE c.oid = 'snowflake_default'::regclass;
		TABLE _snowflake.state; TABLE _snowflake.pools; TABLE _snowflake.leases;
		SELECT c.relname, c.relowner::regrole, n.nspowner::regrole,
			(SELECT string_agg(concat(a.grantee, a.privilege_type), ' ' ORDER BY a.grantee, a.privilege_type) FROM aclexplode(c.relacl) AS a WHERE a.grantee <> c.relowner)
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = '_snowflake' ORDER BY c.relname COLLATE "C"});
}

my %before;
for my $table (@tables)
{
	# The last of these IDs are in no row.
	$before{$table} = [ insert($old, $table), split /\n/, $old->safe_psql('shop',
		"BEGIN; SELECT snowflake_nextval('$generator_of{$table}') FROM generate_series(1, 5); ROLLBACK") ];
}
my $looks = look($old);
# Since their releases of November 2026 servers keep a pg_attver among the options of
# each column. An earlier release of the newer version, if no other is available, does
# not accept it. That is PostgreSQL's matter, so the test removes the option.
if (slurp_file("$old_path/bin/postgres") =~ /pg_attver/ && slurp_file("$new_path/bin/postgres") !~ /pg_attver/)
{
	diag('the new server is older than the old one: column options pg_attver removed');
	$old->safe_psql($_, q{
		UPDATE pg_attribute
		SET attoptions = NULLIF(ARRAY(SELECT o FROM unnest(attoptions) AS o WHERE o NOT LIKE 'pg\_attver=%'), '{}')
		WHERE attrelid >= 16384 AND attoptions IS NOT NULL}) for 'shop', 'second', 'aged';
}
$old->stop;

# Other modes than --copy leave the old cluster unusable.
my $is_18 = PostgreSQL::Test::Cluster->new('version', install_path => $new_path)->pg_version >= 18;
my @modes = ('--link', $is_18 ? '--swap' : ());
my %copy_of;
$old->backup_fs_cold('cold');
for my $mode (@modes)
{
	$copy_of{$mode} = PostgreSQL::Test::Cluster->new('old' . $mode =~ s/-+/_/r, install_path => $old_path);
	$copy_of{$mode}->init_from_backup($old, 'cold');
}

# pg_upgrade leaves files in the folder where it is called.
chdir $PostgreSQL::Test::Utils::tmp_check or die $!;

# How many generators have skipped a gap, by the log.
sub skips { my ($node, $why) = @_; return scalar(() = slurp_file($node->logfile) =~ /generator \S.* $why/g); }

for my $mode ('--copy', @modes)
{
	my $from = $copy_of{$mode} // $old;
	my $new = new_node('new' . $mode =~ s/-+/_/r, 7, install_path => $new_path, extra => \@initdb, allows_streaming => 1);
	# The upgrade itself does not need preloading.
	$new->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''") if $mode eq '--link';
	command_ok([
		"$new_path/bin/pg_upgrade", '-d', $from->data_dir, '-D', $new->data_dir,
		'-b', "$old_path/bin", '-B', "$new_path/bin", '-s', $new->host,
		'-p', $from->port, '-P', $new->port, $mode ], "pg_upgrade $mode");
	$new->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'snowflake_id'") if $mode eq '--link';
	start_with_clock($new, $behind);
	diag('to ' . $new->safe_psql('postgres', 'SHOW server_version')) if $mode eq '--copy';
	is(look($new), $looks, "$mode: labels, marks, rights and IDs are the same");
	for my $table (@tables)
	{
		my @ids = insert($new, $table);
		cmp_ok($ids[0], '>', $before{$table}[-1], "$mode: $table goes on above");
		check_ids("$mode: $table", [ @{ $before{$table} }, @ids ]);
	}
	is($new->safe_psql('shop', 'SELECT count(*) FROM pg_stat_snowflake WHERE issued > 0'), '4', "$mode: numbers");
	cmp_ok($new->safe_psql('shop', q{
		SET enable_seqscan = off;
		SELECT count(*) FROM events AS e WHERE snowflake_timestamp(id) = (SELECT created_at FROM events LIMIT 1)}),
		'>', 0, "$mode: the index over instants");
	# The version of before continues, and is updated then.
	my @went_on = @aged;
	for my $version ($this, $next)
	{
		$new->safe_psql('aged', 'ALTER EXTENSION snowflake_id UPDATE') if $version eq $next;
		is($new->safe_psql('aged', q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'}), $version, "$mode: version $version");
		push @went_on, split /\n/, $new->safe_psql('aged', 'SELECT snowflake_nextval() FROM generate_series(1, 10)');
		is($new->safe_psql('aged', 'SELECT count(*) FROM stats WHERE issued > 0'), 1, "$mode: numbers in version $version");
	}
	check_ids("$mode: the database that is updated", \@went_on);
	# After the upgrade a dump still includes the mark of the default generator.
	my ($dump, $err) = run_command([ "$new_path/bin/pg_dump", '-h', $new->host, '-p', $new->port, 'shop' ]);
	like($dump, qr/setval\('public\.$_'/, "$mode: a dump has the mark of $_") for 'snowflake_default', 'orders_ids';
	like($dump, qr/^SECURITY LABEL FOR snowflake_id ON SEQUENCE public\.orders_ids IS 'preset=shardingsphere /m,
		"$mode: and labels");
	unlike(slurp_file($new->logfile), qr/was promoted/, "$mode: that is no promotion");
	# The new cluster has another system identifier: one gap for each generator, and none later.
	my $seen = skips($new, 'skips \d+ ms, since this server did not write its mark');
	is($seen, @tables + 1, "$mode: each generator skips one gap");
	$new->stop;
	start_with_clock($new, $behind);
	insert($new, $_) for @tables;
	is(skips($new, 'skips'), $seen, "$mode: and none at the next start");
	$new->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby' . $mode =~ s/-+/_/r, install_path => $new_path);
	$standby->init_from_backup($new, 'base', has_streaming => 1);
	start_with_clock($standby, $behind);
	$new->wait_for_catchup($standby);
	my %lost = map { $_ => [ insert($new, $_) ] } @tables;
	$new->stop('immediate');
	$standby->promote;
	check_ids("$mode, then a promotion: $_", [ @{ $lost{$_} }, insert($standby, $_) ]) for @tables;
	is(skips($standby, 'was promoted with this server and skips'), scalar @tables, "$mode, then a promotion: one gap");
	$standby->stop;
}

done_testing();
