# Tests what is said of a worker ID whose first IDs are ahead of the clock: the true reason, and a
# warning if that is further than a failover or a new pool makes it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

my $short = q{lease => '2 s', hold => '1 s'};
my $registry = new_registry('registry', "'main', '[0,1)', $short, max_ahead => '1 s'",
	"'lossy', '[10,20)', $short, max_ahead => '60 s'", "'claimed', '[20,30)', $short, max_ahead => '60 s'");

# Makes a server, with a system identifier of its own, which is not started.
sub leasing
{
	my ($name, $pool, @more) = @_;
	my $node = new_node($name, '');
	$node->append_conf('postgresql.conf', "snowflake_id.registry = '" . conninfo($registry) . "'\nsnowflake_id.pool = '$pool'\nrestart_after_crash = off\n" . join "\n", @more);
	return $node;
}

# Returns the log's line about the latest worker ID, and its detail.
sub acquired
{
	my ($node) = @_;
	my @all = slurp_file($node->logfile) =~ /(\w+:  snowflake_id: acquired worker ID .*)\n.*(DETAIL:  .*)\n(.*HINT:  .*\n)?/g;
	return join "\n", map { $_ // '' } @all[ -3 .. -1 ];
}

my $lead = qr/ IDs under it start at \d{4}-.*, .* ahead of the clock of this server, since /;
my $far = qr/^WARNING:  snowflake_id: acquired worker ID 0 from pool "main", \d min( \d+ s)? ahead of the clock\n.*$lead/;
my $hint = qr/\. The lead shrinks by itself\.\n.*HINT:  IDs are unique and in order\. Look at the clocks/;

# Not far: no warning, and the true reason as well.
sub near
{
	my ($pool, $why, @settings) = @_;
	my $node = leasing($pool, $pool, @settings);
	start_with_clock($node, 0);
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	wait_until("a worker ID of pool $pool", sub { worker($node, 'worker_id') =~ /\d/ && acquired($node) });
	like(acquired($node), qr/^LOG:  snowflake_id: acquired worker ID \d+ from pool "$pool"\n.*$lead$why\. The lead shrinks by itself\./, "pool $pool: why it leads");
	$node->stop;
	return;
}
near('claimed', qr/the pool is new, and its worker IDs may have been in use before it/, 'snowflake_id.worker_id = 25');

# A server whose clock was ahead, when it is right again.
my $wrong = leasing('wrong', 'main');
start_with_clock($wrong, 300);
$wrong->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
first_id($wrong, 'a server whose clock is ahead');
unlike(acquired($wrong), qr/ahead of the clock/, 'it leads no clock but its own');
kill_all($wrong);
start_with_clock($wrong, 0);
wait_until('the worker ID again', sub { worker($wrong, 'worker_id') eq '0' });
like(acquired($wrong), qr/$far.*this server, or a copy of it, had a lease of the times before and did not return it: .*$hint/, 'its own lease');
# What snowflake_status() says of the generator, as soon as it has an ID: a young lease that leads reaches not far.
sub status_of
{
	my ($node) = @_;
	my $row = '';
	wait_until('its IDs', sub {
		$node->psql('postgres', 'SELECT snowflake_nextval()');
		return $row = $node->safe_psql('postgres', q{SELECT detail FROM snowflake_status() WHERE item LIKE 'generator %'}) });
	return $row;
}
like(status_of($wrong), qr/^Its IDs are \d+ \w+ ahead of the clock, since this server, or a copy of it, had a lease .*\. They are unique and in order, and half/, 'status says so too');
kill_all($wrong);

# A server whose clock was never wrong gets that worker ID.
my $right = leasing('right', 'main');
start_with_clock($right, 0);
$right->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
wait_until('the same worker ID', sub { worker($right, 'worker_id') eq '0' });
like(acquired($right), qr/$far.*another server had a lease of the times before, a long one or by a clock that was ahead$hint/, 'the lease of another server');
like(status_of($right), qr/^Its IDs are \d+ \w+ ahead of the clock, since another server had a lease /, 'status says so too');
$right->stop;

# A registry that may have lost leases.
$registry->safe_psql('postgres', 'SELECT snowflake_declare_registry()');
near('lossy', qr/the registry may have lost leases of the times before/);
$registry->stop;

done_testing();
