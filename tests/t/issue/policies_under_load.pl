# Tests that many clients at once issue no ID twice under each policy: while the clock
# is stepped, labels change, and ticks are exhausted, and around a crash.
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
my $node = new_node('main', 3);
start_with_clock($node, 0);
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION snowflake_id;
CREATE TABLE ids (name text, client int, n bigserial, id bigint);
CREATE FUNCTION take(generator text, client int, many int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. many LOOP
        BEGIN
            INSERT INTO ids (name, client, id) VALUES (generator, client, snowflake_nextval(generator::regclass));
        EXCEPTION WHEN system_error OR configuration_limit_exceeded THEN
        END;
    END LOOP;
    INSERT INTO ids (name, client, id) SELECT generator, client, snowflake_nextval_batch(many, generator::regclass);
EXCEPTION WHEN system_error OR configuration_limit_exceeded THEN
END $$;
END
my @pgbench = ('pgbench', '-n', '-c', '4', '-j', '2', '-M', 'prepared', '-h', $node->host, '-p', $node->port, 'postgres');

# Starts clients that run statements again and again, for some seconds, or until the
# server stops.
sub start_clients
{
	my ($seconds, @statements) = @_;
	my $file = $node->basedir . '/clients.sql';
	open my $out, '>', $file or die $!;
	print $out map { "$_;\n" } @statements;
	close $out or die $!;
	my ($said, $err) = ('', '');
	my $run = IPC::Run::start([ @pgbench, '-T', $seconds, '-f', $file ], '>', \$said, '2>', \$err);
	return sub {
		my ($may_fail) = @_;
		$run->finish;
		ok($may_fail || $run->result == 0 && $err !~ /abort|error/i, 'the clients ended well') or diag $err;
	};
}

# Checks that no ID was issued twice, and that IDs of the given generators increase
# within each session.
sub check_table
{
	my ($what, %ordered) = @_;
	for my $line (split /\n/, $node->safe_psql('postgres', <<'END'))
SELECT name, count(*), count(*) - count(DISTINCT id), count(*) FILTER (WHERE id < before)
FROM (SELECT name, id, lag(id) OVER (PARTITION BY name, client ORDER BY n) AS before FROM ids) AS i
GROUP BY name ORDER BY name
END
	{
		my ($name, $count, $twice, $disorder) = split /\|/, $line;
		cmp_ok($count, '>', 100, "$what, $name: $count IDs");
		is($twice, 0, "$what, $name: no ID twice");
		is($disorder, 0, "$what, $name: each session's IDs increase") if $ordered{$name};
	}
	return;
}

# The clock is stepped forward and back.
my %label = (
	going => 'preset=default',
	refusing => 'preset=default on_rollback=error',
	waiting => q{preset=default on_rollback=wait max_wait='1 s'},
	switching => "preset=multi_clock $epoch max_wait='20 ms'",
	sharing => "preset=multi_clock $epoch on_exhausted=next_clock",
	shuffled => "preset=multi_clock $epoch on_exhausted=next_clock sequence_start=random");
create_generator($node, $_, $label{$_}) for sort keys %label;
my @takes = map { "SELECT take('$_', :client_id, 20)" } sort keys %label;
my %ordered = map { $_ => 1 } 'going', 'refusing', 'waiting';
srand 7;
for my $round (1 .. 2)
{
	my $clients = start_clients(3, @takes);
	my $until = time + 2.5;
	while (time < $until)
	{
		set_clock($node, rand(0.6) - 0.4);
		sleep 0.02 + rand 0.1;
	}
	# The server crashes with the clock behind, in the middle of the load.
	$node->stop('immediate') if $round == 1;
	$clients->($round == 1);
	start_with_clock($node, -0.5) if $round == 1;
}
check_table('the clock is stepped', %ordered);
for my $name (grep { $_ ne 'going' } sort keys %label)
{
	cmp_ok(shown($node, 'pg_stat_snowflake', $name, 'clock_rollbacks'), '>', 0, "$name: it was seen");
}

# Labels change: each has another key for the order of a tick, and some have no such
# order.
$node->safe_psql('postgres', 'TRUNCATE ids');
set_clock($node, 5);
my $base = "layout='time:41 worker:10 sequence:6' $epoch max_borrow='5 ms'";
create_generator($node, 'relabelled', $base);
my $clients = start_clients(3, q{SELECT take('relabelled', :client_id, 50)});
for my $start (('random', 'zero') x 4)
{
	sleep 0.3;
	$node->safe_psql('postgres', "SECURITY LABEL FOR snowflake_id ON SEQUENCE relabelled IS \$\$$base sequence_start=$start\$\$");
}
$clients->();
check_table('labels change');
# The order has another key in each life of the server, before and after a crash.
create_generator($node, 'crashed', "$base sequence_start=random");
$clients = start_clients(3, q{SELECT take('crashed', :client_id, 50)});
sleep 1;
$node->stop('immediate');
$clients->(1);
start_with_clock($node, 5);
$clients = start_clients(1, q{SELECT take('crashed', :client_id, 50)});
$clients->();
check_table('a crash');

# Clients ask for more than the layout holds, without borrowing: no tick is lost for
# long.
$node->safe_psql('postgres', 'TRUNCATE ids');
%label = (
	saturated => "layout='time:41 worker:10 sequence:3' $epoch max_borrow=0",
	saturated_watching => "layout='time:41 worker:10 sequence:3' $epoch max_borrow=0 on_rollback=wait",
	saturated_sharing => "layout='time:41 clock:2 worker:10 sequence:1' $epoch max_borrow=0 on_rollback=next_clock on_exhausted=next_clock",
	saturated_through => "layout='time:41 clock:2 worker:10 sequence:1' $epoch max_borrow=0 on_exhausted=next_clock");
for my $name (sort keys %label)
{
	create_generator($node, $name, $label{$name});
	start_clients(1, qq{INSERT INTO ids (name, client, id) SELECT '$name', :client_id, snowflake_nextval('$name') FROM generate_series(1, 100)})->();
	my ($ticks, $used) = split /\|/, $node->safe_psql('postgres', <<"END");
SELECT max(tick) - min(tick) + 1, count(*)
FROM (SELECT DISTINCT extract(epoch FROM snowflake_timestamp(id, '$name')) * 1000 AS tick
    FROM ids WHERE name = '$name') AS t
END
	cmp_ok($used / $ticks, '>', 0.5, "$name: $used of $ticks ticks were used");
}
check_table('more than there is', map { $_ => 1 } 'saturated', 'saturated_watching', 'saturated_through', 'saturated_sharing');

$node->stop;
done_testing();
