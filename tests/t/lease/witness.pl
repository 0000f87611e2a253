# Tests what a registry makes of a crash of its server: a crash loses nothing, but a data directory
# that was set back does, and both begin with crash recovery. A file in memory tells them apart.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases qw(kill_all);
use Registry;
use Snowflake;

my $node = new_node('registry', 7);
$node->append_conf('postgresql.conf', "max_connections = 30\nautovacuum = off");
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('main', '[0,2000)')});
my $directory = $node->data_dir;
my $copy = PostgreSQL::Test::Utils::tempdir() . '/copy';
my $servers = 0;
sub newcomer { return acquire($node, server(++$servers)); }
sub holder { my $server = server(++$servers); granted(acquire($node, $server)); return $server; }
sub losses { return $node->safe_psql('postgres', q{SELECT era - 1, grace_because FROM snowflake_pools}); }
sub end_grace { return $node->safe_psql('postgres', 'SELECT snowflake_end_grace_period()'); }

# The directory stays the same one.
sub bring_back
{
	system_or_bail('sh', '-c', "find '$directory' -mindepth 1 -delete && cp -a '$copy/.' '$directory'");
	return;
}

sub keep { system_or_bail('sh', '-c', "rm -rf '$copy' && cp -a '$directory' '$copy'"); return; }

# Killed under load: 16 clients acquire and renew. All that they were answered is there, and nobody
# waits.
my $template = request(server(0), { acquire => {} });
$template =~ s/"nonce":"\w+"/"nonce":"%2\$s"/ or die $template;
$template =~ s/"inode":\d+/"inode":%1\$s/ or die $template;
my $script = PostgreSQL::Test::Utils::tempdir() . '/load.sql';
append_to_file($script, qq{
\\set server 1000 + :client_id
SELECT _snowflake.lease('main', format('$template', :server, lpad(:server::text, 32, 'a'))::jsonb) #>> '{answer,granted,worker}' AS worker \\gset
} . q{
SELECT (lease -> 'counter')::bigint AS counter, (lease -> 'number')::bigint + :server * 0 AS number, (lease -> 'bound')::bigint AS bound FROM _snowflake.leases WHERE worker_id = :worker \gset
} . join('', map { my $renewal = $template;
	$renewal =~ s/"ask":\{"acquire":\{\}\}/"ask":{"renew":{"worker":%3\$s,"counter":%4\$s,"bound":%5\$s,"furthest":0}}/ or die $renewal;
	$renewal =~ s/"number":\d+/"number":%6\$s/ or die $renewal;
	"SELECT _snowflake.lease('main', format('$renewal', :server, lpad(:server::text, 32, 'a'), :worker, :counter, :bound, :number + $_)::jsonb);\n" } 1 .. 500));
my @before = map { holder() } 1 .. 3;
renew($node, $before[0]);
my ($load, $load_out, $load_err) = (undef, '', '');
$load = IPC::Run::start([ 'pgbench', '-n', '-c', 16, '-j', 2, '-T', 60, '-f', $script, $node->connstr('postgres') ], '>', \$load_out, '2>', \$load_err);
ok(wait_until('the load renews', sub {
	$node->safe_psql('postgres', q{SELECT count(*) FROM _snowflake.leases WHERE (lease -> 'renewed')::boolean}) > 10 }), 'under load');
my $renewed = renew($node, $before[1])->{renewed}{bound};
kill_all($node);
eval { $load->finish };
$node->start;
is(kind(newcomer()), 'granted', 'killed under load: a new server gets a worker ID at once');
is(losses(), '0|', 'and no loss is noted');
is($node->safe_psql('postgres', "SELECT lease -> 'bound' FROM _snowflake.leases WHERE worker_id = $before[1]{grant}{worker}"), $renewed, 'the latest renewal is there');
is(kind(renew($node, $_)), 'renewed', 'and its server renews') for @before;

# Killed again and again, also before anybody asks, and after a clean stop.
$node->stop('immediate');
$node->start;
$node->stop('immediate');
$node->start;
is(kind(newcomer()), 'granted', 'killed twice');
$node->restart;
$node->stop('immediate');
$node->start;
is(kind(renew($node, $before[0])), 'renewed', 'killed after a clean restart');
is(kind(newcomer()), 'granted', 'a new server gets a worker ID');
is(losses(), '0|', 'nothing is lost');

# The directory is set back to what it was before each of these. The witness has the only trace of it, but
# for the last one.
my ($known, $taken) = (holder(), undef);
my %changes = (
	'a grant' => sub { $taken = holder(); },
	'a renewal' => sub { renew($node, $known) eq '' and die; },
	'a release' => sub { release($node, $known); $known = holder(); },
	'what an administrator did' => sub { $node->safe_psql('postgres', q{SELECT snowflake_create_pool('more', '[5000,5001)')}); },
	'a grant, and later changes in other slots' => sub { $taken = holder(); renew($node, $before[$_]) for 0 .. 2; },
);
my $losses = 0;
for my $lost (sort keys %changes)
{
	$node->stop('immediate');
	$node->start;
	is(kind(renew($node, $before[2])), 'renewed', "before $lost: whole");
	# A copy of a running server, which is idle: it is of the same life of the registry.
	$node->safe_psql('postgres', 'CHECKPOINT');
	keep();
	unlink "$copy/postmaster.pid" or die;
	my $session = session($node);
	$changes{$lost}->();
	$node->stop('immediate');
	eval { $session->{run}->kill_kill };
	bring_back();
	$node->start;
	# Nobody can tell by the position in WAL.
	$node->safe_psql('postgres', 'CREATE TABLE wal (); DROP TABLE wal; SELECT pg_switch_wal(); CREATE TABLE wal (); DROP TABLE wal');
	is(kind(newcomer()), 'refused grace recovery', "without $lost: no new server gets a worker ID");
	is(losses(), ++$losses . '|recovery', 'a loss is noted');
	end_grace();
	if ($lost =~ /grant/)
	{
		my $next = server(++$servers);
		is(granted(acquire($node, $next, fixed => $taken->{grant}{worker})), $taken->{grant}{worker}, 'the lost worker ID is leased again');
		cmp_ok($next->{grant}{floor}, '>=', $taken->{grant}{bound}, 'above what its holder may have issued');
	}
	$known = holder();
	# A renewal begins no file, so somebody gets a worker ID first.
	$node->stop('immediate');
	$node->start;
	is(kind(newcomer()), 'granted', 'the next crash is none');
	is(losses(), "$losses|", 'and noted as none');
}

# What the file has to be.
my %damages = (
	'is not there' => sub { unlink $_[0] or die; },
	'can be written by others' => sub { chmod 0666, $_[0] or die; },
	'is a link' => sub { rename $_[0], "$_[0].real" or die; symlink "$_[0].real", $_[0] or die; },
	'has two names' => sub { link $_[0], "$_[0].real" or die; },
	'is of another boot' => sub { open my $out, '+<', $_[0] or die; seek $out, 12, 0; print {$out} 'x'; close $out or die; },
	'has a damaged note' => sub { open my $out, '+<', $_[0] or die; seek $out, -1, 2; print {$out} 'x'; close $out or die; },
	'is cut' => sub { truncate $_[0], -s($_[0]) - 1 or die; },
);
for my $damage (sort keys %damages)
{
	is(kind(newcomer()), 'granted', 'all is well');
	$node->stop('immediate');
	my ($file, @others) = witnesses($node);
	is(scalar @others, 0, 'there is one file');
	is((stat $file)[2] & 07777, 0600, 'which others cannot write');
	$damages{$damage}->($file);
	$node->start;
	is(kind(newcomer()), 'refused grace recovery', "a file that $damage: no new server gets a worker ID");
	is(losses(), ++$losses . '|recovery', 'a loss is noted');
	end_grace();
	unlink "$file.real";
}

# A commit that is not noted removes the file: here, there is no slot for the session.
$known = holder();
my ($file) = witnesses($node);
truncate $file, 384 or die;
is(kind(renew($node, $known)), 'renewed', 'a renewal');
is(scalar(() = witnesses($node)), 0, 'which is not noted removes the file');
is(kind(renew($node, $known)), 'renewed', 'a renewal');
is(scalar(() = witnesses($node)), 0, 'makes none');
is(kind(newcomer()), 'granted', 'a new server');
is(scalar(() = witnesses($node)), 1, 'makes one');
$node->stop;
unlink witnesses($node);
done_testing();
