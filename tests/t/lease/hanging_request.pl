# Tests requests to the registry that hang, and replies that get lost. A request that hangs for
# a generator with a worker ID of its own delays no renewal of the server. A keeper that ends
# before a reply comes leaves the number of its request to the next keeper. A generator that gets
# another label while its request hangs returns its worker ID after that. Between the server
# and its registry there is a proxy, which swallows such requests and replies when it is told to.
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
# The keeper waits for a reply for up to 5 s, since the lease is long.
$registry->safe_psql('postgres', q{SELECT snowflake_create_pool('queue', int8range(100, 108))});

$registry->safe_psql('postgres', q{SELECT snowflake_create_pool('short', int8range(200, 201), lease => '1 s', hold => '1 s', max_ahead => '1 s')});

# The proxy. While the first file exists, requests for generators go nowhere, and while the
# second one does, no reply comes; while the third one does, all that comes is late. The
# connections stay open. It makes the fourth one when a request goes nowhere.
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $port = $registry->port;
my ($hangs, $is_deaf, $is_slow, $has_hung) = map { "$folder/$_" } 'hangs', 'is_deaf', 'is_slow', 'has_hung';
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
			elsif ($is_client{$end})
			{
				# A parameter of five bytes, the name of the pool.
				if ($bytes =~ /\0\0\0\x05queue/ && -e $hangs) { append_to_file($has_hung, ''); next; }
				syswrite $to, $bytes;
			}
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
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE SERVER queue FOREIGN DATA WRAPPER snowflake_pool; CREATE SERVER other FOREIGN DATA WRAPPER snowflake_pool');
my $label = q{preset=worker_queue epoch='2025-01-01 00:00:00+00' pool=queue};
create_generator($node, $_, $label) for 'first', 'second';
my $session = session($node);
is($session->query_safe(q{SELECT (snowflake_decode(snowflake_nextval('first'), 'first')).worker_id}), 100, 'a generator has a worker ID of its own');
ok(ids($node, 1), 'and the server has one');

append_to_file($hangs, '');
my $from = time;
my $other = session($node);
send_to($other, q{SELECT snowflake_nextval('second')});
# Three times as long as the lease, and longer than the keeper waits for a reply.
my (%bounds, $samples);
my $lapses = 0;
while (time - $from < 10)
{
	my ($bound, $holds) = split /\|/, $session->query_safe('SELECT bound, bound > clock_timestamp() FROM snowflake_worker');
	$bounds{$bound} = 1;
	$samples++;
	$lapses++ if $holds ne 't';
	sleep 0.1;
}
my ($code, $text) = error_in($other, q{SELECT snowflake_nextval('second')});
is($code, '55000', 'a request of a generator hangs');
like($text, qr/generator second has no worker ID\n.*The registry has given it none from pool "queue"\..*did not answer within 5 s\./s, 'the error says so');
is($lapses, 0, "the server's bound was never past, in $samples looks");
cmp_ok(scalar(keys %bounds), '>=', 4, 'the server renews its lease meanwhile');
is(in_log($node, qr/could not renew worker ID 0\n/), 0, 'without trouble');
ok(ids($node, 5), 'it issues IDs');
is(in_log($node, qr/WARNING:  snowflake_id: could not acquire a worker ID from pool "queue" for generator second of database "postgres"\n.*DETAIL:  .*did not answer within 5 s\./), 1, 'the log tells of the generator, once');

unlink $hangs;
ok(wait_until('the generator has a worker ID', sub {
	shown($node, 'snowflake_generators', 'second', 'worker_id') eq '101' }), 'the generator has a worker ID when its request is answered');

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

# A generator gets another pool while its renewal, the first request of a new keeper, is under way.
$registry->safe_psql('postgres', q{SELECT snowflake_create_pool('other', int8range(300, 301))});
append_to_file($hangs, '');
$pid = $keeper->();
kill 'TERM', $pid;
wait_until('the keeper is gone', sub { !is_alive($pid) });
# What the one before has asked does not count.
unlink $has_hung;
ok(wait_until('a request hangs', sub { -e $has_hung }), 'the next keeper renews for the generators');
$session->query_safe(qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE first IS \$\$@{[$label =~ s/queue$/other/r]}\$\$});
ok(wait_until('the new pool', sub {
	$session->query_safe(q{SELECT (snowflake_decode(snowflake_nextval('first'), 'first')).worker_id}) == 300 }), 'a generator has a worker ID of its new pool');
unlink $hangs;
ok(wait_until('it is returned', sub { in_log($node, qr/returned worker ID 100 of generator first of database "postgres" to pool "queue"/) }), 'it returns its old one when the renewal has failed');
is($at_registry->query_safe('SELECT state FROM snowflake_workers WHERE worker_id = 100'), 'released', 'and the registry knows');

# How long a server waits is told, and where that comes from.
append_to_file($is_deaf, '');
ok(wait_until('no reply', sub {
	$worker->('last_error') =~ /^The server on socket "\Q$folder\E\/\.s\.PGSQL\.$port" did not answer within 1 s, a third of the lease of pool "servers"\.$/ }), 'the view says for how long the server has waited');
unlink $is_deaf;
wait_until('it is over', sub { $worker->('last_error') eq '' });
$_->quit for $session, $other, $at_registry;
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
