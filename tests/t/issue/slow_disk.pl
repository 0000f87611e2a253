# Tests sessions that need IDs while another one waits for the disk, with the mark that all
# of them need: lock_timeout does not count, a cancelled query does, and all have IDs when the
# mark is durable.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 1);
$node->append_conf('postgresql.conf', "fsync = on\nwal_sync_method = fdatasync\nautovacuum = off");
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
# The first use after a start needs a mark.
$node->stop;
start_with_clock($node, 0);
my ($first, $cancelled, @others) = map { session($node) } 1 .. 7;
$_->query_safe(q{SET lock_timeout = '100 ms'}) for @others;
my %pid = map { $_ => $_->query_safe('SELECT pg_backend_pid()') } $first, $cancelled, @others;

# Whether these sessions wait, and since when at least, in seconds.
sub wait_so
{
	my ($type, $least, @sessions) = @_;
	my $pids = join ',', map { $pid{$_} } @sessions;
	return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid IN ($pids) AND state = 'active'
		AND wait_event_type = '$type' AND query_start < clock_timestamp() - interval '$least s'") == @sessions;
}

stop_disk($node, 1);
send_to($first, 'SELECT snowflake_nextval()');
wait_until('the first session waits for the disk', sub { wait_so('IO', 0, $first) });
send_to($_, 'SELECT snowflake_nextval()') for @others, $cancelled;
my $has_ended = sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%nextval%'}) > 0 };
wait_until('the others wait for it, for longer than lock_timeout', sub { wait_so('Extension', 1, @others, $cancelled) || $has_ended->() });
ok(!$has_ended->(), 'lock_timeout does not count while another session flushes a mark');
is($node->safe_psql('postgres', "SELECT pg_cancel_backend($pid{$cancelled})"), 't', 'one of them is cancelled');
my ($code) = answer_in($cancelled);
is($code, '57014', 'a query that waits so can be cancelled');
stop_disk($node, 0);
my @ids;
for ($first, @others)
{
	my ($error, $text, $id) = answer_in($_);
	is($error, '', 'an ID when the mark is durable') or diag($text);
	push @ids, [ $id ];
}
check_ids('all', @ids);
is(error_in($cancelled, 'SELECT snowflake_nextval()'), '', 'the session that was cancelled has IDs as well');
is($node->safe_psql('postgres', q{SELECT reservations FROM pg_stat_snowflake WHERE generator::text = 'snowflake_default'}), 1, 'one mark for all of them');
$_->quit for $first, $cancelled, @others;
done_testing();
