# Tests the files of the image that CloudNativePG mounts as an extension volume, as a pod
# has them: a server whose installation has no snowflake_id finds library and extension in
# a folder, all instances have the same settings, and ALTER SYSTEM is refused. Worker IDs
# come from the host name or are leased. pg_upgrade finds the library in the folder, too.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use File::Basename;
use File::Find;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

plan skip_all => 'extension volumes need PostgreSQL 18 or later' if !$ENV{IMAGE};

my $image = $ENV{IMAGE};
my @files;
find(sub { push @files, $File::Find::name =~ s{^\Q$image\E}{}r if -f }, $image);
my ($version) = slurp_file("$image/share/extension/snowflake_id.control") =~ /^default_version = '(.*)'$/m;
# Scripts of released versions are in the image, too.
is(join(' ', grep { !m{^/share/extension/snowflake_id(?:_convert)?--(?!\Q$version\E\.sql)[\d.]+(?:--[\d.]+)?\.sql$} } sort @files),
	"/lib/snowflake_id.so /licenses/snowflake_id/LICENSE /share/extension/snowflake_id--$version.sql /share/extension/snowflake_id.control"
		. " /share/extension/snowflake_id_convert--$version.sql /share/extension/snowflake_id_convert.control",
	'the files of the image');
my $containerfile = slurp_file("$FindBin::RealBin/../../../Containerfile.volume");
my %copied = $containerfile =~ /^COPY (\w+) \/(\w+)$/mg;
is_deeply(\%copied, { map { $_ => $_ } map { m{^/(\w+)/} } @files }, 'Containerfile.volume copies all of them to the root');

# PostgreSQL finds its own files relative to its programs, so a copy without the
# extension is an installation without it. Packages have programs and other files in two folders.
my $folder = PostgreSQL::Test::Utils::tempdir();
my ($bin, $share) = map { `pg_config --$_` =~ /(.*)/ } 'bindir', 'sharedir';
my ($both) = "$bin\n$share" =~ m{^(.*)/.*\n\1/};
my $installed = "$folder/installed";
system_or_bail('cp', '-R', $both, $installed);
my @removed;
find(sub { push @removed, $File::Find::name if /^snowflake_id(_convert)?[.-]/ }, $installed);
is(join(' ', sort map { basename($_) } @removed), join(' ', sort map { basename($_) } grep { !/LICENSE/ } @files),
	'the installation has the same files');
unlink(@removed) == @removed or die "not removed: @removed";
$installed .= substr($bin =~ s{/bin$}{}r, length $both);
# The folder where the image is mounted.
my $mount = "$folder/extensions/snowflake_id";
mkdir "$folder/extensions";
system_or_bail('cp', '-R', $image, $mount);
system_or_bail('chmod', '-R', 'a-w', $mount);
END { system 'chmod', '-R', 'u+w', $mount if $mount; }

# These settings are the same in all pods. The last three are CloudNativePG's own.
my $settings = <<"CONF";
timezone = 'UTC'
shared_preload_libraries = 'snowflake_id'
extension_control_path = '\$system:$mount/share'
dynamic_library_path = '\$libdir:$mount/lib'
allow_alter_system = off
CONF

sub new_pod
{
	my ($name, @more) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $installed);
	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf', join '', $settings, map { "$_\n" } @more);
	return $node;
}

# Starts a server on a host of that name.
sub start_on
{
	my ($node, $host) = @_;
	local $ENV{LD_PRELOAD} = $ENV{HOSTNAME_LIBRARY};
	local $ENV{FAKED_HOSTNAME} = $host;
	$node->start;
	return;
}

sub worker { my ($node, $column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM snowflake_worker"); }

# Without the folder there is nothing.
my $plain = PostgreSQL::Test::Cluster->new('plain', install_path => $installed);
$plain->init;
$plain->start;
my ($code, $text) = error_of($plain, 'CREATE EXTENSION snowflake_id');
is($code, '0A000', 'an installation without the extension');
like($text, qr/extension "snowflake_id" is not available/, 'as the error says');
$plain->append_conf('postgresql.conf', "extension_control_path = '\$system:$mount/share'\ndynamic_library_path = '\$libdir:$mount/lib'");
$plain->restart;
$plain->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
is($plain->safe_psql('postgres', 'SELECT (snowflake_decode(249722523258744845)).worker_id'), '7', 'decoding needs no preloading');
$plain->stop;

# A cluster of three pods. The host name gives the worker ID; a standby is a copy with
# the same settings.
my $first = new_pod('first', "snowflake_id.worker_id = 'hostname'");
start_on($first, 'shop-1');
$first->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_generator('own', 'preset=twitter');
	CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), own bigint DEFAULT snowflake_nextval('own'))});
is(worker($first, q{concat_ws(' ', worker_id, source)}), '1 hostname', 'the first pod');
is($first->safe_psql('postgres', q{SELECT DISTINCT probin FROM pg_proc WHERE proname LIKE 'snowflake%' AND prolang = 13}),
	'snowflake_id', 'functions name the library without a folder');
is((error_of($first, q{ALTER SYSTEM SET snowflake_id.reserve_ahead = '5 s'}))[0], '0A000', 'ALTER SYSTEM is refused');
$first->backup('base');
my (@ids, @own);
sub insert
{
	my ($node) = @_;
	my @rows = split /\n/, $node->safe_psql('postgres', 'INSERT INTO orders SELECT FROM generate_series(1, 500) RETURNING id, own');
	push @ids, [ map { (split /\|/)[0] } @rows ];
	push @own, [ map { (split /\|/)[1] } @rows ];
	return $node->safe_psql('postgres', "SELECT (snowflake_decode($ids[-1][-1])).worker_id");
}
is(insert($first), 1, 'its IDs');
my %standby;
for my $host ('shop-2', 'shop-3.pods.svc.cluster.local')
{
	my $node = $standby{$host} = PostgreSQL::Test::Cluster->new($host =~ s/\..*//r, install_path => $installed);
	$node->init_from_backup($first, 'base', has_streaming => 1);
	start_on($node, $host);
	$first->wait_for_catchup($node);
}
$first->stop('immediate');
for (sort keys %standby)
{
	my ($number) = /-(\d+)/;
	my $node = $standby{$_};
	$node->promote;
	is(insert($node), $number, "$_: its own worker ID");
}
# The former primary comes back, and nobody has fenced it.
start_on($first, 'shop-1');
is(insert($first), 1, 'the former primary still has its own');
check_ids('three pods, default generator', @ids);
check_ids('three pods, own generator', @own);
$_->stop for values %standby;

# A pod whose name ends in no number.
$first->stop;
start_on($first, 'shop');
is((error_of($first, 'SELECT snowflake_nextval()'))[0], '55000', 'a host name without a number: no IDs');
is(in_log($first, qr/WARNING:  snowflake_id: no worker ID from "snowflake_id\.worker_id" = 'hostname'/), 1, 'the log says so');
$first->stop;

# Leases, with the same settings in all pods.
my $registry = new_pod('registry');
start_on($registry, 'registry-1');
$registry->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('shop', int8range(100, 110))});
my $conninfo = join ' ', 'host=' . $registry->host, 'port=' . $registry->port, 'dbname=postgres';
my $leasing = new_pod('leasing', "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = 'shop'");
start_on($leasing, 'mail-1');
$leasing->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_generator('own', 'preset=twitter');
	CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), own bigint DEFAULT snowflake_nextval('own'))});
(@ids, @own) = ();
is(insert($leasing), 100, 'a lease');
$leasing->backup('base');
my $second = PostgreSQL::Test::Cluster->new('second', install_path => $installed);
$second->init_from_backup($leasing, 'base', has_streaming => 1);
start_on($second, 'mail-2');
$leasing->wait_for_catchup($second);
$second->promote;
is(insert($second), 101, 'the promoted one has its own');
is(insert($leasing), 100, 'the former primary still has its own');
check_ids('two pods with leases', @ids);
check_ids('two pods with leases, own generator', @own);
is($registry->safe_psql('postgres', q{SELECT string_agg(worker_id || ' ' || host, ', ' ORDER BY worker_id) FROM snowflake_workers WHERE state = 'leased'}),
	'100 mail-1, 101 mail-2', 'the registry has the names of the pods');
$_->stop for $leasing, $second, $registry;

# pg_upgrade loads every library that functions name.
my $new = new_pod('new', "snowflake_id.worker_id = 'hostname'");
{
	local $ENV{LD_PRELOAD} = $ENV{HOSTNAME_LIBRARY};
	local $ENV{FAKED_HOSTNAME} = 'shop-1';
	start_on($first, 'shop-1');
	insert($first);
	my $last = $ids[-1][-1];
	$first->stop;
	my $host = $new->host;
	command_ok([ "$installed/bin/pg_upgrade", '--no-sync', '-d', $first->data_dir, '-D', $new->data_dir, '-b', "$installed/bin", '-B', "$installed/bin",
			'-s', $host, '-p', $first->port, '-P', $new->port, '-U', scalar getpwuid $< ], 'pg_upgrade');
	start_on($new, 'shop-1');
	is(insert($new), 1, 'IDs after pg_upgrade');
	cmp_ok($ids[-1][0], '>', $last, 'they go on');
}
$new->stop;
done_testing();
