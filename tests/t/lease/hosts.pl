# Tests a registry of several hosts. An old primary that comes back serves nobody, and captures no
# server; one that nobody has asked since is found and told; a host that hangs is named.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use Leases;
use Snowflake;

my $first = new_registry('first', q{'main', '[0,16)', lease => '2 s', hold => '1 s', max_ahead => '1 s'});
$first->backup('base');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($first, 'base', has_streaming => 1);
$second->start;
my $template = template_of('template');

sub leasing
{
	my ($name, @hosts) = @_;
	my $node = member($template, $name, "snowflake_id.registry = '" . conninfo(@hosts) . "'", q{snowflake_id.pool = 'main'});
	$node->start;
	return $node;
}
sub holds { my ($node) = @_; return worker($node, 'bound > clock_timestamp()') eq 't'; }
sub stopped { my ($registry) = @_; return $registry->safe_psql('postgres', 'SELECT stopped_since IS NOT NULL FROM snowflake_pools') eq 't'; }
# How messages of libpq name a host.
sub place { my ($node) = @_; return quotemeta 'server on socket "' . $node->host . '/.s.PGSQL.' . $node->port . '"'; }

# The first host dies, the second one is promoted, and the first one comes back as a primary.
my $node = leasing('node', $first, $second);
my $own = first_id($node, 'the first host serves');
$first->wait_for_catchup($second);
kill_all($first);
# Copies of the first host, as it was when it died, of which nobody has heard.
sub old
{
	my ($name) = @_;
	my $old = PostgreSQL::Test::Cluster->new($name);
	rmdir $old->data_dir;
	PostgreSQL::Test::RecursiveCopy::copypath($first->data_dir, $old->data_dir);
	chmod 0700, $old->data_dir or die "chmod: $!";
	unlink $old->data_dir . '/postmaster.pid';
	$old->append_conf('postgresql.conf', 'port = ' . $old->port . "\nunix_socket_directories = '" . $old->host . "'");
	return $old;
}
$second->promote;
my ($watched, $asked) = map { old($_) } 'watched', 'asked';
ok(wait_until('the second host renews', sub { holds($node) && worker($node, 'last_error') eq '' }), 'a server follows the promotion');
start_with_clock($first, 0);
$second->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'snowflake_id'});
my ($from, $lapses) = (time, 0);
while (time - $from < 6) { $lapses++ if !holds($node); sleep 0.1; }
is($lapses, 0, 'an old primary that comes back captures no server');
is(worker($node, 'worker_id'), $own, 'which keeps its worker ID');
# Says that the log of a server tells of another host that takes writes, once, and names both.
sub warned
{
	my ($server, $used, $other, $what) = @_;
	my $pattern = qr/WARNING:  snowflake_id: two hosts of "snowflake_id\.registry" take writes\n.*DETAIL:  This server uses the ${\ place($used)}\. The ${\ place($other)} takes writes, too\. $what/;
	wait_until("a warning of $what", sub { in_log($server, $pattern) });
	return is(in_log($server, $pattern), 1, $server->name . ' tells of both hosts, once');
}
warned($node, $second, $first, qr/It is an older copy of the registry, and serves nobody\./);
ok(stopped($first), 'the old primary has been told, and serves nobody');
my $checked = $node->safe_psql('postgres', q{SELECT state, item, detail, hint FROM snowflake_check_registry() WHERE item IN ('registry', 'pool')});
like($checked, qr/^warning\|registry\|host=\S+ port=${\ $first->port} dbname=postgres answers, and serves nobody: another host has taken over from it\.\|Stop this copy/m, 'the check names it');
like($checked, qr/^ok\|registry\|host=\S+ port=${\ $second->port} dbname=postgres answers\.\|$/m, 'and the one that serves');
unlike($checked, qr/^critical/m, 'and finds that a worker ID can be leased');

# The next keeper asks the first host first.
my ($keeper, $token) = (keeper($node), worker($node, 'token'));
kill 'TERM', $keeper;
wait_until('another keeper', sub { my $new = keeper($node); $new && $new ne $keeper });
($from, $lapses) = (time, 0);
while (time - $from < 5) { $lapses++ if !holds($node); sleep 0.1; }
is($lapses, 0, 'a host that serves nobody is passed over');
is(worker($node, 'token'), $token, 'the lease is the one of before');

# An old primary that nobody has asked since comes back while a server runs.
my $guard = leasing('guard', $second, $watched);
first_id($guard, 'of the host that runs');
$watched->start;
ok(wait_until('it is told', sub { stopped($watched) }), 'an old primary is found by a server that does not need it');
warned($guard, $second, $watched, qr/It is an older copy/);
ok(holds($guard), 'which keeps its lease');

# A server without a lease begins while two primaries run, of which the old one is the first.
$asked->start;
my $granted = sub { $_[0]->safe_psql('postgres', 'SELECT sum(split_part(token, $$-$$, 1)::int) FROM snowflake_workers') };
my $before = $granted->($asked);
my $fresh = leasing('fresh', $asked, $second);
first_id($fresh, 'two primaries');
is($granted->($asked), $before, 'the old one grants nothing');
ok(stopped($asked), 'and is told');
like($second->safe_psql('postgres', 'SELECT string_agg(data_directory, $$ $$) FROM snowflake_workers'), qr/\Q${\ $fresh->data_dir}\E/, 'the other one does');
like(slurp_file($fresh->logfile), qr/acquired worker ID \d+ from pool "main"\n.*DETAIL:  The registry is host=.*\. The ${\ place($second)} answered\./, 'the log names the host');
$_->stop for $fresh, $guard;

# A host that hangs is named, beside the one that refuses; so is one that does not reply.
my @frozen = freeze($asked);
my $late = leasing('late', $asked, $second);
ok(first_id($late, 'the first host hangs') ne '', 'a host that hangs leaves time for the next');
my @other = freeze($second);
wait_until('no reply', sub { worker($late, 'last_error') =~ /The ${\ place($second)} did not answer within 1 s\./ });
thaw(@other);
$second->stop('immediate');
my $hangs = qr/connection to ${\ place($asked)} failed: no answer within \d+ ms/;
my $refuses = qr/connection to ${\ place($second)} failed: .+?/;
ok(wait_until('both are named', sub { worker($late, 'last_error') =~ /^Could not connect: (?:$hangs; $refuses|$refuses; $hangs)\.$/ }), 'both hosts are named') || diag worker($late, 'last_error');
thaw(@frozen);
$second->start;
$_->stop for $late, $asked, $watched, $first;

# A standby is promoted while its primary lives.
$second->backup('again');
my $third = PostgreSQL::Test::Cluster->new('third');
$third->init_from_backup($second, 'again', has_streaming => 1);
$third->start;
my $split = leasing('split', $second, $third);
first_id($split, 'before the promotion');
$second->wait_for_catchup($third);
$third->promote;
warned($split, $second, $third, qr/It is a newer copy of the registry, and this server asks that one from now on\./);
ok(wait_until('the other one is told', sub { stopped($second) }), 'of two primaries, the older one stops');
ok(wait_until('the newer one renews', sub { holds($split) && worker($split, 'last_error') eq '' }), 'the newer one serves');
$_->stop for $split, $node, $third, $second;
done_testing();
