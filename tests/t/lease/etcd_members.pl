# Tests leases of worker IDs from an etcd of three members: some are killed and frozen, the
# quorum is lost for longer than a lease, and IDs resume by themselves. Then certificates
# and passwords. No ID is issued twice, and none past a bound.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use HTTP::Tiny;
use Test::More;
use Etcd;
use Leases;
use Snowflake;

plan skip_all => Etcd::missing() if Etcd::missing();

# Members notice soon that another one is gone.
my $etcd = Etcd->new('three', 3, '--heartbeat-interval' => 50, '--election-timeout' => 500);
my $url = $etcd->url;
my $template = template_of('template');

sub leasing
{
	my ($name, @more) = @_;
	my $node = member($template, $name, "snowflake_id.registry = '$url'", "snowflake_id.pool = 'some'", @more);
	$node->start;
	return $node;
}

my $admin = member($template, 'admin');
$admin->start;
my $short = q{lease => '2 s', hold => '1 s', max_ahead => '1 s'};
$admin->safe_psql('postgres', qq{SELECT snowflake_create_pool('some', int8range(0, 3), $short, registry => '$url')});
my @nodes = map { leasing("n$_") } 1 .. 3;
is(join(' ', sort map { first_id($_, 'three members', 60) } @nodes), '0 1 2', 'three servers have three worker IDs');
start_load($_) for @nodes;
sub all_go_on { my ($what) = @_; wait_for_ids($_, $what) for @nodes; return; }
sub workers { return join ' ', map { worker($_, 'worker_id') } @nodes; }
all_go_on('all is well');
my $workers = workers();

# Waits until a server's bound is past an instant of its lease by an interval. A server
# that has no lease at the moment gets one first.
sub wait_for_renewal
{
	my ($node, $column, $past) = @_;
	my $at;
	wait_until('a lease', sub { return $at = worker($node, $column) });
	wait_until('a renewal', sub { worker($node, "bound > '$at'::timestamptz + interval '$past'") eq 't' });
	return;
}

# Each member is killed, and frozen, in turn; one of them leads, and one is asked.
for my $number ($etcd->members)
{
	for my $how (qw(killed frozen))
	{
		$how eq 'killed' ? $etcd->kill_members($number) : $etcd->freeze($number);
		wait_for_renewal($_, 'bound', '0 s') for @nodes;
		all_go_on("member $number is $how");
		$how eq 'killed' ? $etcd->start_member($number) : $etcd->thaw($number);
		wait_until('it is back', sub { $etcd->call('/v3/maintenance/status', {}, $number) });
	}
}

# The leader is frozen for longer than a lease; another one takes its place. When it
# thaws, what it says is not believed.
my $leader = $etcd->leader;
$etcd->freeze($leader);
wait_for_renewal($_, 'leased_until', '2 s') for @nodes;
all_go_on('the leader is frozen');
$etcd->thaw($leader);
all_go_on('the leader has thawed');
is(workers(), $workers, 'nobody has lost the worker ID');

# A server is killed, another one takes its place, and both do so again.
my $gone = pop @nodes;
my $worker = worker($gone, 'worker_id');
kill_all($gone);
stop_load($gone);
my $fourth = leasing('n4');
is(first_id($fourth, 'the lease of a killed server has ended', 60), $worker, 'its worker ID is free');
$fourth->stop;
$gone->start;
is(first_id($gone, 'the killed server starts'), $worker, 'the worker ID comes back');
start_load($gone);
push @nodes, $gone;

# The quorum is lost for longer than lease and hold: IDs stop at the bound.
for my $how (qw(killed frozen))
{
	my @two = (0, 1);
	$how eq 'killed' ? $etcd->kill_members(@two) : $etcd->freeze(@two);
	for my $node (@nodes)
	{
		wait_until('IDs stop at the bound', sub { (error_of($node, 'SELECT snowflake_nextval()'))[0] eq '55000' });
		like(worker($node, 'last_error'), qr/^The registry did not answer within 1 s\. Of its members: 127\.0\.0\.1:\d+: .*127\.0\.0\.1:\d+: /, 'the view names the members');
	}
	# Past lease and hold.
	wait_until('the leases have ended', sub { worker($nodes[0], q{leased_until + interval '2 s' < clock_timestamp()}) eq 't' });
	if ($how eq 'killed') { $etcd->start_member($_) for @two; }
	else { $etcd->thaw(@two); }
	all_go_on("the quorum was $how, and is back");
	is(workers(), $workers, 'all have their worker IDs still');
	check_all("the quorum was $how", $etcd);
}
like(slurp_file($nodes[0]->logfile), qr/LOG:  snowflake_id: renewed worker ID \d again after /, 'the log says so');
is(in_log($_, qr/may have lost leases/), 0, 'a leader that changes is no loss') for @nodes;
for (@nodes) { my ($answers) = stop_load($_); cmp_ok($answers, '>', 100, 'the client got IDs'); }
check_all('all servers', $etcd);
$_->stop for @nodes;
my %rows = $etcd->entries('workers/default');
is(join(' ', map { /"released":(\w+)/ } values %rows), 'true true true', 'servers that stop return their worker IDs');

# Certificates, and a user with a password.
my $folder = PostgreSQL::Test::Utils::tempdir() . '/certificates';
mkdir $folder;
sub openssl { my (@arguments) = @_; return PostgreSQL::Test::Utils::system_or_bail('openssl', @arguments); }
append_to_file("$folder/names", "subjectAltName = IP:127.0.0.1\n");
openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=ca', '-keyout', "$folder/ca.key", '-out', "$folder/ca.crt");
# If etcd has users, its gateway refuses certificates of clients that have a common name.
for my $who (qw(member server named))
{
	openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', $who eq 'server' ? '/O=server' : "/CN=$who", '-keyout', "$folder/$who.key", '-out', "$folder/$who.csr");
	openssl('x509', '-req', '-days', '2', '-in', "$folder/$who.csr", '-CA', "$folder/ca.crt", '-CAkey', "$folder/ca.key", '-CAcreateserial',
		'-extfile', "$folder/names", '-out', "$folder/$who.crt");
}
append_to_file("$folder/password", "geheim\n");
chmod 0600, glob("$folder/*.key"), "$folder/password";
my $metrics = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
# A password is checked in little time.
my $safe = Etcd->new('safe', 1, '--bcrypt-cost' => 4, '--listen-metrics-urls' => $metrics, tls => [ '--cacert', "$folder/ca.crt", '--cert', "$folder/server.crt", '--key', "$folder/server.key" ],
	'--cert-file' => "$folder/member.crt", '--key-file' => "$folder/member.key", '--trusted-ca-file' => "$folder/ca.crt", '--client-cert-auth' => '');
$safe->etcdctl(@$_) for [ qw(user add root:verborgen) ], [ qw(user grant-role root root) ], [ qw(user add node:geheim) ], [ qw(role add node) ],
  [ qw(role grant-permission node --prefix=true readwrite /test/) ], [ qw(user grant-role node node) ], [ qw(auth enable) ];
my $tls = "cacert=$folder/ca.crt&cert=$folder/server.crt&key=$folder/server.key";
my $user = "user=node&password_file=$folder/password";
sub pool_at { my ($options) = @_; return sprintf q{SELECT snowflake_create_pool('some', int8range(0, 3), %s, registry => '%s?%s')}, $short, $safe->url, $options; }
my ($code, $text) = error_of($admin, pool_at("cacert=$folder/ca.crt&$user"));
is($code, '08000', 'without a certificate');
($code, $text) = error_of($admin, pool_at($tls));
is($code, '08000', 'without a user');
($code) = error_of($admin, pool_at("$tls&$user" =~ s/server\.(crt|key)/named.$1/gr));
is($code, '08000', 'a certificate with a common name');
($code, $text) = error_of($admin, pool_at($tls));
like($text, qr/user name is empty/, 'etcd says why');
append_to_file("$folder/wrong", "hunter2\n");
chmod 0644, "$folder/wrong";
($code, $text) = error_of($admin, pool_at("$tls&user=node&password_file=$folder/wrong"));
is($code, '22023', 'a password that everybody can read');
like($text, qr/DETAIL:  Everybody can read or change file "/, 'the error says so');
chmod 0600, "$folder/wrong";
($code, $text) = error_of($admin, pool_at("$tls&user=node&password_file=$folder/wrong"));
is($code, '08000', 'a wrong password');
like($text, qr/authentication failed/, 'etcd says so');
unlike($text, qr/hunter2/, 'nobody else learns it');
# These versions let no other role ask for the state of a member: see docs/registry.md.
my ($minor, $patch) = `etcd --version` =~ /etcd Version: 3\.(\d+)\.(\d+)/;
if ($minor == 5 && $patch >= 28 && $patch <= 30 || $minor == 6 && $patch <= 11)
{
	($code, $text) = error_of($admin, pool_at("$tls&$user"));
	like($text, qr/permission denied/, 'a user without the role root');
	$safe->etcdctl('--user', 'root:verborgen', qw(user grant-role node root));
}
$admin->safe_psql('postgres', pool_at("$tls&$user"));
$url = $safe->url . "?$tls&$user";
my $node = leasing('safe_node');
is(first_id($node, 'certificates and a password', 60), 0, 'a lease');
is(worker($node, 'registry'), $safe->url, 'the view shows no files');
my $bound = worker($node, 'bound');
wait_until('a renewal', sub { worker($node, "bound > '$bound'") eq 't' });
# A member that does not answer in time costs no token.
sub tokens { my ($count) = HTTP::Tiny->new->get("$metrics/metrics")->{content} =~ /^grpc_server_started_total\{grpc_method="Authenticate",[^}]*\} (\d+)$/m; return $count; }
my $tokens = tokens();
cmp_ok($tokens, '>', 0, 'etcd counts its tokens');
$safe->freeze(0);
wait_until('no answer', sub { worker($node, 'last_error') =~ /there was no answer in time/ });
$safe->thaw(0);
wait_until('a renewal after that', sub { worker($node, 'last_error') eq '' });
is(tokens(), $tokens, 'by the same token');
# etcd forgets its tokens.
$safe->kill_members(0);
$safe->start_member(0);
$bound = worker($node, 'bound');
wait_until('a renewal by another token', sub { worker($node, "bound > '$bound'") eq 't' });
cmp_ok(tokens(), '>', 0, 'etcd has made another one');
take($node);
$node->stop;
is(in_log($node, qr/returned worker ID 0/), 1, 'it is returned');
is(in_log($node, qr/geheim|password_file|\.key/), 0, 'the log has no secrets');
$admin->stop;
done_testing();
