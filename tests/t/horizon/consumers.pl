# Tests the loop of docs/ordered.md: consumers that read rows below snowflake_horizon() see
# every committed row once, while writers commit in any order, prepare their transactions,
# are killed, and crash with the server. In the same run, consumers that remember the
# greatest ID that they have seen miss rows.
#
# MINUTES=n runs longer; the default is a few crashes and about 30 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use POSIX ();
use Snowflake;

my $lasts = ($ENV{MINUTES} || 0) * 60 || 20;
# many: of more generators than a session has places; many_prepared: these, prepared.
my @kinds = qw(autocommit long savepoints prepared batches pool many many_prepared);
my ($writers, $consumers) = (32, 4);

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', "max_connections = 100\nmax_prepared_transactions = 40\nlog_min_messages = fatal\nrestart_after_crash = on");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION snowflake_id;
-- Rows say which statement has written them: the number of a writer, and of its turn.
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), writer int, turn int);
CREATE TRIGGER ordered BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION snowflake_check_horizon();
CREATE TABLE cursors (consumer int PRIMARY KEY, upto bigint NOT NULL);
CREATE TABLE seen (consumer int, id bigint);
-- Horizons that lie before an earlier one.
CREATE TABLE falls (consumer int, upto bigint, horizon bigint);
SELECT snowflake_create_generator('many' || n, 'preset=default') FROM generate_series(1, 5) n;
CREATE INDEX ON seen (consumer, id);
-- Consumers that use no horizon, at the same time, in the same table.
CREATE TABLE naive_seen (consumer int, id bigint);

CREATE PROCEDURE write(kind text, writer int, turn int) LANGUAGE plpgsql AS $$
BEGIN
	IF kind ~ 'many' THEN
		PERFORM snowflake_nextval(('many' || n)::regclass) FROM generate_series(1, 5) n;
	END IF;
	IF kind = 'batches' THEN
		INSERT INTO events SELECT snowflake_nextval_batch(5), writer, turn;
	ELSE
		INSERT INTO events (writer, turn) VALUES (writer, turn);
	END IF;
	IF kind IN ('long', 'many') THEN
		PERFORM pg_sleep(random() * 0.3);
		INSERT INTO events (writer, turn) VALUES (writer, turn);
	END IF;
END $$;
INSERT INTO cursors SELECT n, 0 FROM generate_series(1, 5) n;
END

# A writer or a consumer is a process with a psql that it gives one statement after the
# other; when the server is away it comes again.
my (@children, %stop);
my $end = time + $lasts;

sub child
{
	my ($f) = @_;
	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		srand($$);
		eval { $f->() };
		print STDERR "# child: $@" if $@;
		POSIX::_exit($@ ? 1 : 0);
	}
	push @children, $pid;
	return $pid;
}

# Runs statements in one psql; a lost connection or an error ends it, perhaps before it has
# read them all.
sub run_sql
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	my $ran = eval {
		IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ], '<', \$sql, '>', \$out, '2>', \$err);
		1;
	};
	return ($?, $out, $err) if $ran;
	die $@ if $@ !~ /Broken pipe|EPIPE/;
	return (1, $out, $err);
}

sub statements
{
	my ($kind, $writer, $turn) = @_;
	my $call = "CALL write('$kind', $writer, $turn);";
	return "BEGIN; $call SELECT pg_sleep(random() * 0.05); COMMIT;" if $kind =~ /^(?:long|batches|many)$/;
	return "BEGIN; SAVEPOINT a; SELECT snowflake_nextval() AS early \\gset\nROLLBACK TO a; $call
		INSERT INTO events VALUES (:early, $writer, $turn); SAVEPOINT b; $call ROLLBACK TO b; COMMIT;"
	  if $kind eq 'savepoints';
	return "BEGIN; $call PREPARE TRANSACTION 'w$writer-$turn'; SELECT pg_sleep(random() * 0.1);
		@{[ $turn % 4 ? 'COMMIT' : 'ROLLBACK' ]} PREPARED 'w$writer-$turn';"
	  if $kind =~ /prepared/;
	# An ID that was taken earlier; the trigger may refuse it, then nothing is inserted.
	return "\\set ON_ERROR_STOP 0\nSELECT snowflake_nextval() AS pooled \\gset\nSELECT pg_sleep(random() * 0.01) WHERE $turn % 2 = 0;
		BEGIN; INSERT INTO events VALUES (:pooled, $writer, $turn); SELECT pg_sleep(random() * 0.05); COMMIT;"
	  if $kind eq 'pool';
	return $call x 3;
}

for my $writer (1 .. $writers)
{
	my $kind = $kinds[ $writer % @kinds ];
	child(sub {
		my $turn = 0;
		while (time < $end)
		{
			# Several turns in one session.
			my $sql = join "\n", map { statements($kind, $writer, ++$turn) } 1 .. 5;
			my ($status) = run_sql($sql);
			sleep 0.1 if $status;
		}
	});
}

# The loop of the page: the horizon in a statement of its own, then the rows, and the
# cursor in the same transaction as what is made of the rows.
my $loop = <<'END';
BEGIN;
SELECT upto AS last FROM cursors WHERE consumer = :consumer FOR UPDATE \gset
SELECT snowflake_horizon() AS horizon \gset
INSERT INTO seen SELECT :consumer, id FROM events WHERE id >= :last AND id < :horizon;
INSERT INTO falls SELECT :consumer, :last, :horizon WHERE :horizon < :last;
UPDATE cursors SET upto = :horizon WHERE consumer = :consumer;
COMMIT;
SELECT pg_sleep(0.01);
END
my $naive = <<'END';
INSERT INTO naive_seen SELECT :consumer, id FROM events
	WHERE id > (SELECT coalesce(max(id), 0) FROM naive_seen WHERE consumer = :consumer);
SELECT pg_sleep(0.01);
END
my $writers_only = $node->basedir . '/writers_only';
for my $consumer (1 .. $consumers)
{
	for my $sql ($loop, $naive)
	{
		child(sub {
			while (time < $end)
			{
				# After a crash, writers come first: what they hold then is seen by nobody.
				if (-e $writers_only) { sleep 0.05; next; }
				my ($status) = run_sql("\\set consumer $consumer\n" . $sql x 20);
				sleep 0.1 if $status;
			}
		});
	}
}

# The consumer of the page in Python, which writes IDs to a file, and is killed again and again.
my ($program) = slurp_file("$FindBin::RealBin/../../../docs/ordered.md") =~ /^```python\n(.*?)^```/ms;
my ($of_page, $handled, $killed) = map { $node->basedir . "/$_" } qw(consumer.py handled killed);
my $has_driver = system('/usr/bin/python3 -c "import psycopg2" 2>/dev/null') == 0;
append_to_file($of_page, "import sys, time, psycopg2\n\n\n" . ($program =~ s/\boutbox\b/events/r =~ s/\bpayload\b/turn/r) . <<'END');


def handle(id, turn):
    output.write(f"{id}\n")
    output.flush()


output = open(sys.argv[2], "a")
while True:
    try:
        connection = psycopg2.connect(sys.argv[1])
        while read_batch(connection, 5, handle, 20) or len(sys.argv) < 4:
            time.sleep(0.001)
        break
    except (psycopg2.OperationalError, psycopg2.InterfaceError):
        time.sleep(0.05)
END
append_to_file($_, '') for $handled, $killed;
my @of_page = ('/usr/bin/python3', $of_page, $node->connstr('postgres'), $handled);
child(sub {
	while (time < $end)
	{
		my $pid = fork // die "fork: $!";
		if (!$pid) { exec(@of_page) or POSIX::_exit(1); }
		sleep 0.2 + rand 0.4;
		kill 9, $pid;
		waitpid $pid, 0;
		append_to_file($killed, 'x');
	}
}) if $has_driver;

# Somebody watches all the while.
child(sub {
	while (time < $end)
	{
		my ($status) = run_sql('SELECT * FROM pg_stat_snowflake, snowflake_horizon_holders;' x 50);
		sleep 0.1 if $status;
	}
});

# Commits what was prepared this long ago and is left behind by a writer that was killed.
my $resolved = 0;
sub resolve
{
	my ($age) = @_;
	my @left = split /\n/, eval { $node->safe_psql('postgres', "SELECT gid FROM pg_prepared_xacts WHERE prepared <= now() - interval '$age'") } // '';
	for my $gid (@left)
	{
		my ($status) = run_sql("COMMIT PREPARED '$gid'");
		$resolved++ if !$status;
	}
	return;
}

# Faults: a session is killed so that all restart, or the server stops at once.
my ($crashes, $kills) = (0, 0);
while (time < $end - 4)
{
	sleep 3;
	resolve('1 s');
	append_to_file($writers_only, '');
	my $pid = $crashes % 2 ? '' : eval { $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE query ~ 'write' AND pid <> pg_backend_pid() LIMIT 1") } // '';
	if ($pid ne '')
	{
		# The process may have ended meanwhile: then the server goes on.
		kill 9, $pid;
		$kills++;
	}
	else
	{
		$node->stop('immediate');
		$node->start;
	}
	$crashes++;
	# A psql that the server refuses may end before it is sent the query.
	wait_until('the server is up', sub { eval { $node->poll_query_until('postgres', 'SELECT true') } });
	sleep 0.5;
	unlink $writers_only;
}
my $failed = 0;
for my $pid (@children) { waitpid $pid, 0; $failed++ if $?; }
is($failed, 0, 'all writers and consumers came to their end');
$node->poll_query_until('postgres', 'SELECT true');

# What was prepared when the server crashed is still held.
resolve('0 s');

# The consumers read to the end.
sleep 0.01;
for my $consumer (1 .. $consumers)
{
	my ($status, $out, $err) = run_sql("\\set consumer $consumer\n$loop$naive");
	is($status, 0, "consumer $consumer reads to the end") or diag($err);
}
SKIP:
{
	skip 'python3-psycopg2 is not installed', 3 if !$has_driver;
	is(system(@of_page, 'once'), 0, 'so does the consumer of the page');
	my %seen = map { $_ => 1 } split /\n/, slurp_file($handled);
	my @events = split /\n/, $node->safe_psql('postgres', 'SELECT id FROM events');
	is_deeply([ grep { !$seen{$_} } @events ], [], 'which has missed nothing');
	my %is_there = map { $_ => 1 } @events;
	is_deeply([ grep { !$is_there{$_} } keys %seen ], [], 'and has handled nothing that was not committed');
	note(-s $killed, ' kills of the consumer of the page, ', scalar(() = slurp_file($handled) =~ /\n/g) - keys %seen, ' rows handled again');
}
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM events');
note("$rows rows, $crashes crashes, $kills of them by kill -9, $resolved transactions were left prepared");
cmp_ok($rows, '>', 100, 'writers have written');
cmp_ok($crashes, '>', 1, 'the server has crashed');
my %kind_of;
push @{ $kind_of{ $kinds[ $_ % @kinds ] } }, $_ for 1 .. $writers;
for my $kind (@kinds)
{
	my $numbers = join ',', @{ $kind_of{$kind} };
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM events WHERE writer IN ($numbers)"), '>', 0, "rows of writers: $kind");
}
for my $consumer (1 .. $consumers)
{
	is($node->safe_psql('postgres', "SELECT count(*) FROM events e WHERE NOT EXISTS
		(SELECT FROM seen s WHERE s.consumer = $consumer AND s.id = e.id)"), 0, "consumer $consumer has missed nothing");
	is($node->safe_psql('postgres', "SELECT count(*) - count(DISTINCT id) FROM seen WHERE consumer = $consumer"), 0,
		"consumer $consumer has seen nothing twice");
	is($node->safe_psql('postgres', "SELECT count(*) FROM seen s WHERE consumer = $consumer AND NOT EXISTS
		(SELECT FROM events e WHERE e.id = s.id)"), 0, "consumer $consumer has seen nothing that was not committed");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM falls'), 0, 'no horizon lies before an earlier one');
my $missed = $node->safe_psql('postgres', "SELECT count(*) FROM events e, generate_series(1, $consumers) c WHERE NOT EXISTS
	(SELECT FROM naive_seen s WHERE s.consumer = c AND s.id = e.id)");
cmp_ok($missed, '>', 0, "consumers that remember the greatest ID have missed $missed rows");

done_testing();
