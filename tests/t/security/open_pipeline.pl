# Tests that a client which sends a statement and no Sync message does not keep the registry
# locked: the functions that change a registry commit at once, and refuse to come second.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Registry;
use Snowflake;

my $node = new_node('node', 7);
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; CREATE TABLE t (a int);
	SELECT snowflake_create_pool('main', '[0,8)'), snowflake_create_pool('idle', '[8,16)')});
my $me = $node->safe_psql('postgres', 'SELECT current_user');

# A connection by which messages of PostgreSQL's protocol are sent one by one.
sub open_connection
{
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die "cannot connect: $!";
	my $start = pack('N', 196608) . join '', map { "$_\0" } 'user', $me, 'database', 'postgres', '';
	$socket->syswrite(pack('N', 4 + length $start) . $start);
	messages_until($socket, 'Z');
	return $socket;
}

sub bytes
{
	my ($socket, $count) = @_;
	my $bytes = '';
	while (length $bytes < $count) { $socket->sysread($bytes, $count - length $bytes, length $bytes) or die 'the connection is closed' }
	return $bytes;
}

# Reads messages up to one of these kinds. Returns its kind, and the SQLSTATE of an error.
sub messages_until
{
	my ($socket, $kinds) = @_;
	while (1)
	{
		my ($kind, $length) = unpack 'a N', bytes($socket, 5);
		my $content = bytes($socket, $length - 4);
		next if index("E$kinds", $kind) < 0;
		my ($code) = $content =~ /\0C([0-9A-Z]{5})\0/;
		return $kind eq 'E' ? $code : $kind;
	}
}

# Runs a statement without a Sync message. Returns 'C' if it is completed.
sub run_without_sync
{
	my ($socket, $sql) = @_;
	my $message = sub { my ($kind, $content) = @_; return $kind . pack('N', 4 + length $content) . $content };
	$socket->syswrite($message->('P', "\0$sql\0" . pack('n', 0)) . $message->('B', "\0\0" . pack('n3', 0, 0, 0))
		. $message->('E', "\0" . pack('N', 0)) . $message->('H', ''));
	return messages_until($socket, 'C');
}

my $lock = 'SELECT FROM _snowflake.state FOR UPDATE NOWAIT';
my $holder = open_connection();
is(run_without_sync($holder, $lock), 'C', 'a statement without Sync');
is((error_of($node, $lock))[0], '55P03', 'keeps what it has locked');
close $holder;

my $request = request(server(1), { acquire => {} });
my $counted = 0;
for my $call ("_snowflake.lease('main', '$request')", "snowflake_create_pool('more', '[100,108)')", "snowflake_revoke_worker('main', 0)",
	"snowflake_drop_pool('idle')", 'snowflake_declare_registry()', 'snowflake_end_grace_period()')
{
	my $name = $call =~ s/\(.*//r;
	my $first = open_connection();
	is(run_without_sync($first, "SELECT $call"), 'C', "$name() without Sync");
	is((error_of($node, "SET lock_timeout = '10s'; SELECT FROM _snowflake.state FOR UPDATE"))[0], '', "$name() leaves no lock");
	my $second = open_connection();
	is(run_without_sync($second, 'INSERT INTO t VALUES (1)'), 'C', 'another statement');
	is(run_without_sync($second, "SELECT $call"), '25001', "$name() does not come second");
	close $_ for $first, $second;
	$counted++;
}
is($counted, 6, 'all functions that succeed here');
is($node->safe_psql('postgres', q{SELECT string_agg(pool, ' ' ORDER BY pool) FROM snowflake_pools}), 'main more', 'what they have done stays');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'what came before an error is undone');
done_testing();
