# Tests that sessions that wait for the clock end with the postmaster, however it ends,
# and however long they would have waited.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time sleep);

my $epoch = q{epoch='2025-01-01 00:00:00+00'};
my %label = (
	set_back => q{preset=default on_rollback=wait max_wait='60 s'},
	used_up => qq{layout='time:31 worker:10 sequence:1' $epoch tick='10 s' max_borrow=0 on_exhausted=wait});
my $node = new_node('main', 3);
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
create_generator($node, $_, $label{$_}) for sort keys %label;

my (%session, %pid);
for my $name (sort keys %label)
{
	$session{$name} = session($node);
	$pid{$name} = $session{$name}->query_safe('SELECT pg_backend_pid()');
	draw($session{$name}, $name);
}
set_clock($node, -30);
# The second session waits for more ticks than the test will last.
my %count = (set_back => 1, used_up => 100);
for my $name (sort keys %label)
{
	send_to($session{$name}, "SELECT snowflake_nextval('$name') FROM generate_series(1, $count{$name})");
	ok(wait_for_clock($node, "%snowflake_nextval(_${name}_)%"), "$name: a session waits for the clock");
}
ok(is_alive($pid{$_}), "$_: its process is there") for sort keys %label;

# The test cleans up what the postmaster leaves behind, whatever the outcome.
my $postmaster = $node->{_pid};
$node->kill9;
wait_until('the postmaster is gone', sub { !is_alive($postmaster) });
my $until = time + 5;
sleep 0.05 while time < $until && grep { is_alive($_) } values %pid;
my %lives = map { $_ => is_alive($pid{$_}) } sort keys %pid;
kill KILL => grep { is_alive($_) } values %pid;
ok(!$lives{$_}, "$_: the session that waits is gone within seconds of the postmaster") for sort keys %lives;
wait_until('all sessions are gone', sub { !grep { is_alive($_) } values %pid });
for my $session (values %session)
{
	eval { $session->quit };
}

# The ended sessions do not prevent the next start.
unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
my $started = 0;
# Other processes of the old server may take a moment longer.
for (1 .. 50)
{
	last if $started = $node->start(fail_ok => 1);
	sleep 0.2;
}
ok($started, 'the server starts again');
if ($started)
{
	is((error_of($node, "SELECT snowflake_nextval('$_')"))[0], '', "$_: gives IDs") for sort keys %label;
	$node->stop;
}

done_testing();
