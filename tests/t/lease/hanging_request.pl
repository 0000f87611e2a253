# Tests replies of the registry that get lost, or are late. A keeper that ends before a reply comes
# leaves the number of its request to the next keeper. Between the server and its registry there is a
# proxy, which swallows and delays replies when it is told to.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Select;
use IO::Socket::UNIX;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use Snowflake;

my $registry = new_node('registry', 900);
$registry->start;
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
$registry->safe_psql('postgres', q{SELECT snowflake_create_pool('servers', int8range(0, 8), lease => '3 s', hold => '1 s', max_ahead => '1 s')});
$registry->safe_psql('postgres', q{SELECT snowflake_create_pool('short', int8range(200, 201), lease => '1 s', hold => '1 s', max_ahead => '1 s')});

# The proxy. While the first file exists, no reply comes; while the second one does, all that comes
# is late. The connections stay open.
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $port = $registry->port;
my ($is_deaf, $is_slow) = map { "$folder/$_" } 'is_deaf', 'is_slow';
my $listener = IO::Socket::UNIX->new(Local => "$folder/.s.PGSQL.$port", Listen => 20) or die "proxy: $!";

# Passes on what clients and the registry send, until somebody kills the process.
sub pass_on
{
	my (%other, %is_client);
	local $SIG{PIPE} = 'IGNORE';
	my $ends = IO::Select->new($listener);
	for (;;)
	{
		for my $end ($ends->can_read)
		{
			if ($end == $listener)
			{
				my $client = $listener->accept or next;
				my $server = IO::Socket::UNIX->new(Peer => $registry->host . "/.s.PGSQL.$port") or die "registry: $!";
				@other{ $client, $server } = ($server, $client);
				$is_client{$client} = 1;
				$ends->add($client, $server);
				next;
			}
			my $to = $other{$end} or next;
			if (!sysread $end, my $bytes, 65536)
			{
				$ends->remove($end, $to);
				delete @other{ $end, $to };
				delete $is_client{$_} for $end, $to;
				close $_ for $end, $to;
			}
			elsif ($is_client{$end}) { syswrite $to, $bytes; }
			elsif (!-e $is_deaf)
			{
				sleep 0.2 if -e $is_slow;
				syswrite $to, $bytes;
			}
		}
	}
	return;
}

my $proxy = fork // die "fork: $!";
if ($proxy == 0)
{
	# A child that died would stop the servers.
	eval { pass_on(); };
	POSIX::_exit(1);
}
close $listener;
END
{
	my $status = $?;
	kill 'KILL', $proxy if $proxy;
	$? = $status;
}

my $node = new_node('main', '');
$node->append_conf('postgresql.conf', <<"END");
snowflake_id.registry = 'host=$folder port=$port dbname=postgres'
snowflake_id.pool = 'servers'
END
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $session = session($node);
ok(ids($node, 1), 'the server has a worker ID');

# The keeper ends after the registry has renewed, and before it has heard so.
# It waits for a second, so all is prepared before.
my $at_registry = session($registry);
my $worker = sub { $session->query_safe("SELECT $_[0] FROM snowflake_worker") };
my $stored = sub { $at_registry->query_safe('SELECT bound FROM snowflake_workers WHERE worker_id = 0') };
my $keeper = sub { $session->query_safe(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake_id keeper'}) };
my ($token, $pid) = ($worker->('token'), $keeper->());
append_to_file($is_deaf, '');
wait_until('a renewal of which the keeper does not hear', sub { $stored->() gt $worker->('bound') });
kill 'TERM', $pid;
wait_until('the keeper is gone', sub { !is_alive($pid) });
# The next one starts a second later: its first request arrives.
unlink $is_deaf;
wait_until('another keeper', sub { my $new = $keeper->(); $new && $new ne $pid });
my $bound = $stored->();
ok(wait_until('it renews', sub { $worker->(qq{bound > '$bound'}) eq 't' }), 'the next keeper renews');
is($worker->('token'), $token, 'it has the same lease');
is(in_log($node, qr/was copied while it ran/), 0, 'and is no copy of the keeper before');
is(in_log($node, qr/acquired worker ID 0/), 1, 'which has acquired it');

# How long a server waits is told, and where that comes from.
append_to_file($is_deaf, '');
ok(wait_until('no reply', sub {
	$worker->('last_error') =~ /^The server on socket "\Q$folder\E\/\.s\.PGSQL\.$port" did not answer within 1 s, a third of the lease of pool "servers"\.$/ }), 'the view says for how long the server has waited');
unlink $is_deaf;
wait_until('it is over', sub { $worker->('last_error') eq '' });
$_->quit for $session, $at_registry;
$node->stop;
is(in_log($node, qr/returned worker ID 0 to pool "servers"/), 1, 'all is returned');

# Replies are late, and the lease is short.
append_to_file($is_slow, '');
my $hasty = new_node('hasty', '');
$hasty->append_conf('postgresql.conf', "snowflake_id.registry = 'host=$folder port=$port dbname=postgres'\nsnowflake_id.pool = 'short'");
$hasty->start;
my $holds = sub { $hasty->safe_psql('postgres', 'SELECT bound > clock_timestamp() FROM snowflake_worker') eq 't' };
$hasty->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
ok(wait_until('a lease', $holds), 'a server gets a lease of a second by replies that are late');
$registry->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'snowflake_id'});
sleep 1.5;
ok(wait_until('a renewal', $holds), 'it renews, also by another connection');
is(in_log($hasty, qr/did not answer|no answer within/), 0, 'and waits for long enough') || diag(slurp_file($hasty->logfile));
$hasty->stop;
done_testing();
