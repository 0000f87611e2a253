# Tests what the process that writes watermarks does alone: it waits for no registry, it says of an
# idle generator once a minute how far it is, and one that cannot connect tries more and more
# seldom.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Leases;
use Snowflake;

my $registry = new_node('registry', 900);
$registry->start;
$registry->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('main', '[0,16)', lease => '2 s', hold => '1 s', max_ahead => '1 s')});
my $node = new_node('main', '', allows_streaming => 'logical');
my $conninfo = conninfo($registry);
$node->append_conf('postgresql.conf', "snowflake_id.registry = '$conninfo'\nsnowflake_id.pool = 'main'\nautovacuum = off
snowflake_id.watermark_databases = 'postgres, closed'\nsnowflake_id.watermark_interval = '100 ms'\nlog_statement = none");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION snowflake_id;
CREATE PUBLICATION nothing;
SELECT pg_create_logical_replication_slot('slot', 'pgoutput');
END
$node->safe_psql('postgres', 'CREATE DATABASE closed ALLOW_CONNECTIONS false');

# The watermarks in the stream, as IDs.
sub watermarks
{
	my $messages = $node->safe_psql('postgres', q{SELECT substring(text FROM '\{.*\}')
		FROM (SELECT encode(data, 'escape') AS text FROM pg_logical_slot_peek_binary_changes('slot', NULL, NULL,
			'proto_version', '1', 'publication_names', 'nothing', 'messages', 'true')) s WHERE text ~ '^M.*snowflake_watermark'});
	return map { JSON::PP::decode_json($_)->{horizon} } split /\n/, $messages;
}
sub greatest { return (sort { $a <=> $b } 0, watermarks())[-1]; }
sub wait_for_watermark
{
	my ($what) = @_;
	my $id = $node->safe_psql('postgres', 'SELECT snowflake_nextval()');
	wait_until($what, sub { greatest() > $id });
	return;
}

# The process writes a watermark of a generator that was used before the server started. After a
# stop or a crash, that lacks a worker ID; or else a later bound, if the lease has ended since.
my $runs = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake_id watermarks'};
my $fails = qr/no watermark of generator public\.snowflake_default is written in database "postgres": /;
for my $end ('fast', 'immediate', 'lease')
{
	wait_for_watermark("a watermark before the end: $end");
	my $told = in_log($node, $fails);
	my $before = greatest();
	my @frozen;
	if ($end eq 'lease')
	{
		set_by_reload($node, 'snowflake_id.watermark_databases' => '');
		$node->restart;
		wait_until('a worker ID', sub { worker($node, 'worker_id') ne '' });
		@frozen = freeze($registry);
		wait_until('the end of the lease', sub { worker($node, 'bound < clock_timestamp()') eq 't' });
		set_by_reload($node, 'snowflake_id.watermark_databases' => 'postgres, closed');
	}
	else
	{
		$node->stop($end);
		@frozen = freeze($registry);
		$node->start;
	}
	wait_until('the process', sub { $node->safe_psql('postgres', $runs) > 0 });
	my $waits = 0;
	while (in_log($node, $fails) == $told)
	{
		$waits += $node->safe_psql('postgres', "$runs AND xact_start IS NOT NULL AND wait_event_type = 'Extension'");
		sleep 0.1;
		die 'the log tells of no failure' if !is_alive($node->{_pid});
	}
	cmp_ok($waits, '<', 5, "after the end of $end, the process does not wait for a registry that is silent");
	is(greatest(), $before, 'there is no watermark meanwhile');
	thaw(@frozen);
	wait_until('a watermark as soon as the registry answers', sub { greatest() > $before });
	is(in_log($node, $fails), $told + 1, 'the log tells once that there was none');
}

# After the last start.
my $logged = -s $node->logfile;
$node->restart;
wait_for_watermark('the closing watermark');
my $count = watermarks();
my $from = time;
wait_until('one more', sub { watermarks() > $count });
cmp_ok(time - $from, '>', 30, 'an idle generator gets one more after some time');
is(scalar(watermarks()), $count + 1, 'and no others meanwhile');
my $refused = () = substr(slurp_file($node->logfile), $logged) =~ /FATAL:  database "closed" is not currently accepting connections/g;
cmp_ok($refused, '>', 2, 'a process that cannot connect is started again');
cmp_ok($refused, '<', 8, 'but not each five seconds');
$node->safe_psql('postgres', 'ALTER DATABASE closed ALLOW_CONNECTIONS true');
$node->reload;
wait_until('a reload tries at once', sub { in_log($node, qr/no watermark is written in database "closed", which does not have extension/) });
done_testing();
