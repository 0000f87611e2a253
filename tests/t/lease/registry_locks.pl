# Tests who waits for whom in a registry in PostgreSQL: renewals for none but those of the same
# server, everything else for all. The disk stands still meanwhile, so that nobody is done.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Registry;
use Snowflake;

my $node = new_node('registry', 7);
$node->append_conf('postgresql.conf', "fsync = on\nautovacuum = off\nmax_connections = 40");
start_with_clock($node, 0);
$node->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('main', '[0,100)')});
my @servers = map { server($_) } 1 .. 20;
granted(acquire($node, $_)) for @servers;
my @sessions = map { session($node) } @servers;
my %pid = map { $_ => $sessions[$_]->query_safe('SELECT pg_backend_pid()') } 0 .. $#sessions;

# Sends a request of a server in a session.
sub ask_in { my ($n, $server, $ask) = @_;
	return send_to($sessions[$n], "SELECT _snowflake.lease('main', '" . request($server, $ask) . "')"); }
sub renewal { my $grant = $_[0]{grant};
	return { renew => { %$grant{qw(worker counter bound)}, furthest => $grant->{floor} } }; }
sub waits { my ($n) = @_;
	return $node->safe_psql('postgres', "SELECT CASE WHEN state = 'active' THEN coalesce(wait_event_type, '') ELSE state END FROM pg_stat_activity WHERE pid = $pid{$n}"); }
sub kind_in { my ($n, $server) = @_;
	my (undef, $error, $text) = answer_in($sessions[$n]);
	return $error || kind(Registry::take_in($server, $text)); }

# The first renewals after a start change the state too: each gives back the lock that it shares, or
# all would wait for each other.
$node->stop;
eval { $_->quit } for @sessions;
start_with_clock($node, 0);
@sessions = map { session($node) } @servers;
%pid = map { $_ => $sessions[$_]->query_safe('SELECT pg_backend_pid()') } 0 .. $#sessions;
ask_in($_, $servers[$_], renewal($servers[$_])) for 0 .. $#servers;
my %kinds;
$kinds{ kind_in($_, $servers[$_]) }++ for 0 .. $#servers;
is(join(' ', %kinds), 'renewed 20', 'all servers renew at once after a start');

stop_disk($node, 1);
my $twin = { %{ $servers[0] } };
ask_in(0, $servers[0], renewal($servers[0]));
ok(wait_until('the renewal waits for the disk', sub { waits(0) =~ /^(IO|LWLock)$/ }), 'a renewal waits for the disk');
# Another one with the same number, of a copy of the server: it must see what the first has stored.
ask_in(1, $twin, renewal($twin));
ask_in(2, $servers[2], renewal($servers[2]));
ok(wait_until('the twin waits', sub { waits(1) eq 'Lock' }), 'one of the same server waits for it');
ok(wait_until('the other one does not', sub { waits(2) =~ /^(IO|LWLock)$/ }), 'one of another server does not');
my $new = server(50);
ask_in(3, $new, { acquire => {} });
ok(wait_until('a grant waits', sub { waits(3) eq 'Lock' }), 'a grant waits for both');
ask_in(4, $servers[4], renewal($servers[4]));
ok(wait_until('a renewal behind it waits', sub { waits(4) eq 'Lock' }), 'and is not overtaken');
like(waits(2), qr/^(IO|LWLock)$/, 'the other one still waits for the disk only');
stop_disk($node, 0);
is(kind_in(0, $servers[0]), 'renewed', 'then the renewal is answered');
is(kind_in(1, $twin), 'refused fenced copied', 'that of the copy shows that it is one');
is(kind_in(2, $servers[2]), 'renewed', 'that of another one');
is(kind_in(3, $new), 'granted', 'the grant');
is(kind_in(4, $servers[4]), 'renewed', 'and that behind it');
$_->quit for @sessions;
$node->stop;
done_testing();
