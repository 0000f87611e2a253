# Tests watermarks in WAL: writers of all kinds, and readers of the change stream by
# test_decoding, pgoutput and the program of docs/change-stream.md. No row comes after a
# watermark above its ID, through a crash and a promotion. In the same streams, watermarks that
# were a millisecond later would be wrong.
#
# WATERMARK_ROWS=10000000 is the long tier: so many rows, and a fault every few seconds.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use POSIX ();
use Leases qw(set_by_reload);
use Snowflake;

my $wanted = $ENV{WATERMARK_ROWS} || 0;
my $interval = 0.2;
my @generators = map { "g$_" } 1 .. 6;
my $python = '/usr/bin/python3';
my $example = "$FindBin::RealBin/../../../examples/watermark_consumer.py";

my $node = new_node('main', 7, allows_streaming => 'logical');
$node->append_conf('postgresql.conf', "max_connections = 100\nmax_prepared_transactions = 60\nmax_wal_senders = 10\nmax_replication_slots = 10
max_worker_processes = 12\nlog_statement = none\nsnowflake_id.watermark_interval = '${interval} s'\nlogical_decoding_work_mem = '1 MB'\nrestart_after_crash = on
wal_keep_size = '256 MB'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION snowflake_id;
SELECT snowflake_create_generator('g' || n, 'preset=default') FROM generate_series(1, 6) n;
CREATE TABLE events (id bigint, g int);
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('g1'));
CREATE PUBLICATION all_rows FOR TABLE events, orders;
CREATE PUBLICATION orders FOR TABLE orders;
CREATE DATABASE bare;
END

my $processes = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake_id watermarks'";
is($node->safe_psql('postgres', $processes), 0, 'without the setting there is no process');

# Each slot sees what is written from here on.
my $has_text = -e $node->config_data('--pkglibdir') . '/test_decoding.so';
my $plugin = $has_text ? 'test_decoding' : 'pgoutput';
note('this PostgreSQL lacks test_decoding: pgoutput takes its place') if !$has_text;
# Now and then, an assertion of PostgreSQL 18 fails when it streams (rbtxn_is_streamed(toptxn) in pgoutput.c, at a part that was rolled
# back): only servers without assertions stream here.
my @streaming = $node->safe_psql('postgres', 'SHOW debug_assertions') eq 'on' ? () : 'streaming';
note('this PostgreSQL has assertions: nothing is sent in blocks') if !@streaming;
my @slots = ([ 'text', $plugin ], [ 'binary', 'pgoutput' ], map({ [ $_, 'pgoutput', 'false, true' ] } @streaming), [ 'program', 'pgoutput' ], [ 'two_phase', $plugin, 'false, true' ]);
$node->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('$_->[0]', '$_->[1]', @{[ $_->[2] // 'false' ]})") for @slots;
set_by_reload($node, 'snowflake_id.watermark_databases' => 'postgres, bare, none_such');
wait_until('the log tells of a database that does not exist', sub { in_log($node, qr/no watermark is written in database "none_such"/) });
wait_until('the log tells of a database without the extension', sub { in_log($node, qr/no watermark is written in database "bare", which does not have extension/) });
is($node->safe_psql('postgres', $processes), 2, 'each database has its process');

# The watermark of a change that pgoutput has encoded; none if it is another change.
sub watermark_in
{
	my ($change) = @_;
	return if $change !~ /^M/;
	my ($flags, undef, $prefix, $content) = unpack 'x C a8 Z* N/a', $change;
	return $prefix eq 'snowflake_watermark' && !$flags ? $content : ();
}
my $pgoutput = ", 'proto_version', '1', 'publication_names', 'all_rows', 'messages', 'true'";
# Parallel appliers are told more of what was rolled back.
my ($version, $streams) = $node->pg_version >= 16 ? (4, 'parallel') : (3, 'on');
my $streaming = $pgoutput =~ s/'1'/'$version'/r . ", 'two_phase', 'true', 'streaming', '$streams'";
sub messages
{
	my ($slot, $database) = @_;
	my $found = $node->safe_psql($database // 'postgres',
		"SELECT pg_catalog.encode(data, 'hex') FROM pg_catalog.pg_logical_slot_peek_binary_changes('$slot', NULL, NULL$pgoutput)");
	return map { JSON::PP::decode_json($_) } map { watermark_in(pack 'H*', $_) } split /\n/, $found;
}

# What a watermark says, and when a server that becomes idle writes its last one.
$node->safe_psql('postgres', qq{SELECT snowflake_create_generator('"Häuser ""x"""', 'preset=default')});
$node->safe_psql('postgres', "INSERT INTO orders DEFAULT VALUES");
my $odd = $node->safe_psql('postgres', qq{SELECT snowflake_nextval('"Häuser ""x"""')});
sub last_of { my ($oid) = @_; my ($last) = grep { $_->{oid} == $oid } reverse messages('binary'); return $last; }
my $oid = $node->safe_psql('postgres', qq{SELECT '"Häuser ""x"""'::regclass::oid});
wait_until('a watermark above the last ID', sub { my $told = last_of($oid); $told && $told->{horizon} > $odd });
my $told = last_of($oid);
is_deeply([ sort keys %$told ], [qw(generator horizon instant oid server worker)], 'its fields');
is($told->{generator}, qq{public."H\x{e4}user ""x"""}, 'the name of the generator');
is($told->{worker}, 7, 'the worker ID');
is($told->{server}, $node->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'), 'the server');
is($node->safe_psql('postgres', "SELECT snowflake_timestamp($told->{horizon}) = '$told->{instant}'"), 't', 'the instant is that of the ID');
my $before = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
sleep 3 * $interval;
my $count = messages('binary');
sleep 2;
is(scalar messages('binary'), $count, 'an idle server writes no watermark');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake_id watermarks'
	AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR xact_start IS NOT NULL)"), 0, 'the processes hold no snapshot while they sleep');

# After a restart it says how far it is, though nobody uses it.
$node->restart;
wait_until('a watermark after the restart', sub { last_of($oid)->{horizon} > $told->{horizon} });

# The owner of a database may set all this for it.
$node->safe_psql('bare', <<'END');
CREATE EXTENSION snowflake_id;
CREATE SCHEMA mine;
CREATE FUNCTION mine.fail(oid, oid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE OPERATOR mine.= (FUNCTION = mine.fail, LEFTARG = oid, RIGHTARG = oid);
ALTER DATABASE bare SET search_path = mine, pg_catalog;
ALTER DATABASE bare SET default_transaction_read_only = on;
ALTER DATABASE bare SET default_transaction_isolation = serializable;
SELECT public.snowflake_create_generator('public.clocks', $$layout='time:41 clock:1 worker:10 sequence:11' epoch='2025-01-01 00:00:00+00' on_rollback=next_clock max_wait='5 s' max_borrow=0$$);
SELECT public.snowflake_create_generator('public.changing', 'preset=default');
SELECT public.snowflake_nextval('public.clocks');
SELECT public.snowflake_nextval('public.changing');
CREATE PUBLICATION all_rows;
SELECT pg_catalog.pg_create_logical_replication_slot('bare', 'pgoutput');
END
wait_until('the log tells of a generator without a horizon', sub { in_log($node, qr/no watermark of generator public.clocks is written in database "bare"/) });
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'snowflake_id watermarks' AND datname = 'bare'");
sub in_bare { my ($generator) = @_; return scalar grep { $_->{generator} eq $generator } messages('bare', 'bare'); }
wait_until('a process that was ended is started anew', sub { in_log($node, qr/no watermark of generator public.clocks/) == 2 });
wait_until('it writes under the settings of the database', sub { in_bare('public.changing') });
my $changes = session($node, undef, 'bare');
$changes->query_safe('SET default_transaction_read_only = off; SET default_transaction_isolation = "read committed"; BEGIN; SELECT public.snowflake_nextval(\'public.changing\'); DROP SEQUENCE public.changing');
sleep 3 * $interval;
my $others = in_bare('public.snowflake_default');
$node->safe_psql('bare', 'SET default_transaction_read_only = off; SELECT public.snowflake_nextval()');
wait_until('others get watermarks while a generator is being dropped', sub { in_bare('public.snowflake_default') > $others });
$changes->query_safe('COMMIT');
$changes->quit;
is(in_log($node, qr/no watermark is written in database "none_such"/), 2, 'the log tells each thing once after a start');
is(in_log($node, qr/no watermark of generator public.clocks/), 2, 'also of a generator, by each process');

# A database cannot be dropped while its process is there.
$node->safe_psql('bare', "SELECT pg_catalog.pg_drop_replication_slot('bare')");
my ($code) = error_of($node, 'DROP DATABASE bare');
is($code, '55006', 'DROP DATABASE fails while watermarks are written');
set_by_reload($node, 'snowflake_id.watermark_databases' => 'postgres');
($code) = error_of($node, 'DROP DATABASE bare');
like($code . $node->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname = 'bare'"), qr/^0$/, 'and succeeds when the setting names it no more');
$node->safe_psql('postgres', 'CREATE DATABASE other');
set_by_reload($node, 'snowflake_id.watermark_databases' => 'postgres, other');
wait_until('its process', sub { $node->safe_psql('postgres', $processes) == 2 });
$node->safe_psql('postgres', 'DROP DATABASE other WITH (FORCE)');
wait_until('the log tells of a database that was dropped', sub { in_log($node, qr/no watermark is written in database "other"[^,]*, which does not exist/) });
set_by_reload($node, 'snowflake_id.watermark_databases' => 'postgres');

# Who can forge a watermark.
$node->safe_psql('postgres', 'CREATE ROLE forger LOGIN');
my $forge = q{SELECT pg_logical_emit_message(false, 'snowflake_watermark', '{"generator": "public.x", "horizon": "9"}')};
($code) = error_of($node, "SET ROLE forger; $forge");
is($code, '', 'unless it is revoked, each role can write such a message');
# As the page says.
my ($revoke) = slurp_file("$FindBin::RealBin/../../../docs/change-stream.md") =~ /```sql\n(DO .*?)```/s;
$node->safe_psql('postgres', $revoke);
for my $overload (split /\n/, $node->safe_psql('postgres', "SELECT oid::regprocedure FROM pg_proc WHERE proname = 'pg_logical_emit_message'"))
{
	is($node->safe_psql('postgres', "SELECT has_function_privilege('forger', '$overload', 'EXECUTE')"), 'f', "$overload is closed");
}
($code) = error_of($node, "SET ROLE forger; $forge");
is($code, '42501', 'after that, it cannot');

# The load. Each kind of writer is a script of pgbench.
my %scripts = (
	autocommit => "INSERT INTO events SELECT snowflake_nextval('g1'), 1;\nINSERT INTO orders DEFAULT VALUES;",
	long => "BEGIN;\nINSERT INTO events SELECT snowflake_nextval('g2'), 2;\nINSERT INTO orders DEFAULT VALUES;\n\\sleep 30 ms\nINSERT INTO events SELECT snowflake_nextval('g2'), 2;\nCOMMIT;",
	savepoints => "BEGIN;\nSAVEPOINT a;\nSELECT snowflake_nextval('g1') AS early \\gset\nROLLBACK TO a;\n\\sleep 2 ms\nINSERT INTO events VALUES (:early, 1);
SAVEPOINT b;\nINSERT INTO events SELECT snowflake_nextval('g3'), 3;\nROLLBACK TO b;\nINSERT INTO events SELECT snowflake_nextval('g3'), 3;\nCOMMIT;",
	own_prepared => "\\set n random(1, 1000000000)\nBEGIN;\nINSERT INTO events SELECT snowflake_nextval('g3'), 3;\nPREPARE TRANSACTION 'm:client_id.:n';\n\\sleep 5 ms\nCOMMIT PREPARED 'm:client_id.:n';",
	other_prepared => "\\set n random(1, 1000000000)\nBEGIN;\nINSERT INTO events SELECT snowflake_nextval('g4'), 4;\nINSERT INTO events SELECT snowflake_nextval('g1'), 1;\nPREPARE TRANSACTION 'o:client_id.:n';\n\\sleep 20 ms",
	asynchronous => "BEGIN;\nSET LOCAL synchronous_commit = off;\nINSERT INTO events SELECT snowflake_nextval('g2'), 2;\nCOMMIT;",
	batches => "INSERT INTO events SELECT snowflake_nextval_batch(20, 'g5'), 5;",
	blocks => "BEGIN;\nSELECT snowflake_nextval_block(20, 'g5') AS first \\gset\n\\sleep 2 ms\nINSERT INTO events SELECT :first + n, 5 FROM generate_series(0, 19) n;\nCOMMIT;",
	bulk => "BEGIN;\nINSERT INTO events SELECT snowflake_nextval('g6'), 6 FROM generate_series(1, @{[ $wanted ? 15000 : 300 ]});\n\\sleep 20 ms\nCOMMIT;",
	# Long enough to be sent before they end.
	bulk_prepared => "\\set n random(1, 1000000000)\nBEGIN;\nINSERT INTO events SELECT snowflake_nextval('g5'), 5 FROM generate_series(1, 500);
SAVEPOINT a;\nINSERT INTO events SELECT snowflake_nextval('g5'), 5 FROM generate_series(1, 500);\nROLLBACK TO a;\nPREPARE TRANSACTION 'b:client_id.:n';\n\\sleep 5 ms\nCOMMIT PREPARED 'b:client_id.:n';",
	rollback => "BEGIN;\nINSERT INTO events SELECT snowflake_nextval('g1'), 1;\n\\sleep 1 ms\nROLLBACK;",
	# More generators than a session has places.
	many => "BEGIN;\nINSERT INTO events SELECT snowflake_nextval(('g' || n)::regclass), n FROM generate_series(1, 6) n;\n\\sleep 3 ms\nCOMMIT;",
);
my $folder = $node->basedir;
append_to_file("$folder/$_.sql", $scripts{$_}) for keys %scripts;

my @children;
sub child
{
	my ($f) = @_;
	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		# An error must not get to the end of this file, which stops the servers.
		eval { $f->() };
		print STDERR "# child: $@" if $@;
		POSIX::_exit($@ ? 1 : 0);
	}
	push @children, $pid;
	return $pid;
}
sub load
{
	my ($on, $seconds) = @_;
	my @files = map { ('-f', "$folder/$_.sql") } sort keys %scripts;
	return child(sub {
		open STDOUT, '>', '/dev/null';
		open STDERR, '>>', "$folder/pgbench.err";
		exec 'pgbench', '-n', '-c', 22, '-j', 2, '-T', $seconds, @files, $on->connstr('postgres');
	});
}

# Ends what other sessions have prepared.
my $stop = "$folder/stop";
sub finisher
{
	my ($on) = @_;
	return child(sub {
		open STDERR, '>', '/dev/null';
		while (!-e $stop)
		{
			# A psql that the server refuses may end before it is sent the query.
			eval { IPC::Run::run([ 'psql', '-XqAt', '-d', $on->connstr('postgres') ], '<',
				\"SELECT format('%s PREPARED %L', CASE WHEN random() < 0.2 THEN 'ROLLBACK' ELSE 'COMMIT' END, gid) FROM pg_prepared_xacts WHERE gid ~ '^o' OR prepared < now() - interval '2 s' \\gexec\n", '>', \my $out, '2>', \my $err) };
			sleep 0.02;
		}
	});
}

# The program of the page, which ends with its server, and is killed twice; it comes again.
my $has_program = !system("$python -c 'import psycopg2' 2>/dev/null");
child(sub {
	my $kills = 0;
	while (!-e $stop)
	{
		my $port = $node->port;
		my $host = $node->host;
		my $pid = fork;
		if (!$pid)
		{
			open STDOUT, '>>', "$folder/program.out";
			open STDERR, '>>', "$folder/program.err";
			exec $python, $example, "host=$host port=$port dbname=postgres", '--slot', 'program', '--publication', 'orders', '--generator', 'public.g1', '--state', "$folder/program.state";
		}
		my $until = $kills < 2 ? time + 3 : 'inf';
		while (time < $until && !-e $stop && !waitpid $pid, POSIX::WNOHANG) { sleep 0.1; }
		$kills += kill 'KILL', $pid;
		waitpid $pid, 0;
		sleep 0.2;
	}
}) if $has_program;

# What the streams have shown, by slot: rows, messages, the greatest watermark of each generator,
# rows below an earlier watermark, and those if each watermark were 1 ms later.
my %seen;
my $millisecond = 1 << 22;
sub seen { return $seen{ $_[0] } //= { rows => 0, messages => 0, late => 0, sharp => 0, max => {} }; }
sub row
{
	my ($slot, $generator, $id) = @_;
	my $seen = seen($slot);
	$seen->{rows}++;
	my $max = $seen->{max}{$generator} // return;
	$seen->{late}++ if $id < $max;
	$seen->{sharp}++ if $id < $max + $millisecond;
	return;
}
sub watermark
{
	my ($slot, $json) = @_;
	my $told = JSON::PP::decode_json($json);
	my ($generator) = $told->{generator} =~ /^public\.(g\d)$/ or return;
	my $seen = seen($slot);
	$seen->{messages}++;
	$seen->{max}{$generator} = $told->{horizon} if $told->{horizon} > ($seen->{max}{$generator} // 0);
	return;
}

# The end of a transaction that was sent in blocks before it. Its rows, by transaction and
# subtransaction, count now. How many ends there were: committed, prepared, rolled back.
my %ends = (c => 0, p => 0, A => 0);
sub end_of_blocks
{
	my ($slot, $sent, $kind, $change) = @_;
	if ($kind eq 'A')
	{
		my (undef, $transaction, $part) = unpack 'a N N', $change;
		$ends{A}++;
		delete $sent->{$transaction}{$part};
		delete $sent->{$transaction} if $part == $transaction;
		return;
	}
	# Before it, that of a prepared one has flags, two positions and a time.
	my ($transaction) = unpack $kind eq 'c' ? 'x N' : 'x26 N', $change;
	$ends{$kind}++;
	my $parts = delete $sent->{$transaction};
	row($slot, @$_) for map { @$_ } values %$parts;
	return;
}

# Reads a slot to the end.
sub consume
{
	my ($on, $slot, $options) = @_;
	my $name = $on->name . " $slot";
	my $is_binary = $options ne '';
	my ($function, $data) = $is_binary ? ('get_binary_changes', q{encode(data, 'hex')}) : ('get_changes', 'data');
	my (%table_of, %sent, $block);
	my $out = "$folder/changes";
	local $ENV{PGOPTIONS} = "-c logical_decoding_work_mem=64kB" if $slot eq 'streaming';
	my $ran = IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $on->connstr('postgres'), '-c',
		"SELECT $data FROM pg_logical_slot_$function('$slot', NULL, NULL$options)" ], '>', $out);
	die 'the stream could not be read' if !$ran;
	open my $file, '<', $out or die $!;
	while (my $line = <$file>)
	{
		if ($is_binary)
		{
			my $change = pack 'H*', $line =~ s/\n//r;
			my $kind = substr $change, 0, 1;
			# In a block, each change says of which subtransaction it is.
			my $part = $block && unpack 'x N', $change;
			substr $change, 1, 4, '' if $block && $kind ne 'E';
			if ($kind eq 'I')
			{
				my ($relation, $id, $generator) = unpack 'x N x3 (x N/a)*', $change;
				my @row = ($table_of{$relation} eq 'orders' ? 'g1' : "g$generator", $id);
				if ($block) { push @{ $sent{$block}{$part} }, \@row; }
				else { row($name, @row); }
			}
			elsif ($kind eq 'S') { $block = unpack 'x N', $change; }
			elsif ($kind eq 'E') { undef $block; }
			elsif ($kind eq 'M') { watermark($name, $_) for watermark_in($change); }
			elsif ($kind =~ /[cpA]/) { end_of_blocks($name, \%sent, $kind, $change); }
			elsif ($kind eq 'R')
			{
				my ($relation, undef, $table) = unpack 'x N Z* Z*', $change;
				$table_of{$relation} = $table;
			}
		}
		elsif ($line =~ /^table public\.(\w+): INSERT: id\[bigint\]:(\d+)(?: g\[integer\]:(\d))?/)
		{
			row($name, $1 eq 'orders' ? 'g1' : "g$3", $2);
		}
		elsif ($line =~ /^message: transactional: 0 prefix: snowflake_watermark, sz: \d+ content:(.*)/)
		{
			watermark($name, $1);
		}
	}
	return;
}
sub consume_all
{
	my ($on, @those) = @_;
	my %options = (binary => $pgoutput, streaming => $streaming);
	my $others = $has_text ? '' : $pgoutput;
	consume($on, $_, $options{$_} // ($_ eq 'two_phase' ? $others =~ s/'1'/'3'/r : $others)) for @those;
	return;
}

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nsnowflake_id.failover_gap = 0");
$standby->start;

finisher($node);
my ($rows, $faults) = (0, 0);
do
{
	my $pgbench = load($node, 60);
	sleep($wanted ? 4 : 3);
	if (!$faults)
	{
		# Under load.
		$node->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('middle', '$plugin')");
		if ($node->pg_version >= 16)
		{
			# It waits for what the primary logs then.
			child(sub { exec 'psql', '-XqAt', '-o', '/dev/null', '-d', $node->connstr('postgres'), '-c', 'SELECT pg_sleep(1)', '-c', 'SELECT pg_log_standby_snapshot()' });
			$standby->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('standby', '$plugin')");
		}
		sleep 2;
	}
	if ($faults % 2)
	{
		kill_backend($node, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE query ~ 'events' AND pid <> pg_backend_pid() LIMIT 1"));
	}
	else
	{
		$node->stop('immediate');
		$node->start;
	}
	$faults++;
	waitpid $pgbench, 0;
	wait_until('the server is up', sub { eval { $node->poll_query_until('postgres', 'SELECT true') } });
	consume_all($node, qw(text binary), @streaming, qw(two_phase middle)) if $wanted;
	$rows = seen('main text')->{rows};
	note("$rows rows after $faults faults") if $wanted;
} while ($wanted && ($rows < $wanted || $faults < 2));
waitpid load($node, 4), 0;
wait_until('nothing is left prepared', sub { $node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts') eq '0' });

# How late watermarks are, without transactions that are long.
my (@came, @lags);
if ($has_text)
{
	my $pgbench = child(sub { open STDOUT, '>', '/dev/null'; open STDERR, '>', '/dev/null'; exec 'pgbench', '-n', '-c', 2, '-R', 200, '-T', 5, '-f', "$folder/autocommit.sql", $node->connstr('postgres') });
	$node->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('live', 'test_decoding')");
	my $pid = open my $live, '-|', 'pg_recvlogical', '-d', $node->connstr('postgres'), '--slot', 'live', '--start', '-F', 0, '-f', '-', '--no-loop' or die $!;
	my $until = time + 5;
	while (time < $until and defined(my $line = <$live>))
	{
		my $now = time;
		push @came, [ $1, $now ] if $line =~ /orders: INSERT: id\[bigint\]:(\d+)/;
		next if $line !~ /content:(\{.*"public.g1".*\})/;
		my $horizon = JSON::PP::decode_json($1)->{horizon};
		push @lags, $now - $_->[1] for grep { $_->[0] < $horizon } @came;
		@came = grep { $_->[0] >= $horizon } @came;
	}
	kill 'TERM', $pid;
	close $live;
	waitpid $pgbench, 0;
	@lags = sort { $a <=> $b } @lags;
	cmp_ok(scalar @lags, '>', 100, 'rows were followed by watermarks');
	my ($median, $p99) = map { sprintf '%.2f', $lags[ $#lags * $_ ] } 0.5, 0.99;
	note("lag of the watermark at an interval of $interval s: median $median s, p99 $p99 s");
	# Others may need the processors meanwhile, so the times are not checked.
}

# The program has written each order once or, when it was killed, more often; in order each time.
my $last = $node->safe_psql('postgres', 'SELECT max(id) FROM orders');
if ($has_program)
{
	wait_until('the program has written all', sub { my $state = eval { slurp_file("$folder/program.state") } // ''; $state =~ /(\d+)/ && $1 > $last });
}
append_to_file($stop, '');
waitpid $_, 0 for @children;
SKIP:
{
	skip 'no psycopg2', 3 if !$has_program;
	my @written = map { JSON::PP::decode_json($_)->{id} } grep { /\}$/ } split /\n/, slurp_file("$folder/program.out");
	my %written = map { $_ => 1 } @written;
	my @orders = split /\n/, $node->safe_psql('postgres', 'SELECT id FROM orders');
	is(scalar(grep { !$written{$_} } @orders), 0, 'the program has missed none of ' . @orders . ' rows');
	is(scalar(keys %written), scalar @orders, 'and has written no others');
	my ($max, $falls, %before) = (0, 0);
	for my $id (@written)
	{
		$falls++ if !$before{$id}++ && $id < $max;
		$max = $id if $id > $max;
	}
	is($falls, 0, 'each row came after those with smaller IDs');
}

# A standby decodes the same.
consume_all($node, qw(text binary), @streaming, qw(two_phase middle));
$node->wait_for_catchup($standby);
consume_all($standby, 'standby') if $node->pg_version >= 16;

# The standby is promoted under load, with a part of the WAL, of which it keeps the last 256 MB. It
# issues nothing below the watermarks that it has.
my $pgbench = load($node, 10);
sleep 2;
$node->stop('immediate');
waitpid $pgbench, 0;
$standby->promote;
my $least = $standby->safe_psql('postgres', "SELECT snowflake_nextval('g1')");
my ($greatest, $read) = (0, 0);
for my $file (sort grep { /^00000001[0-9A-F]{16}(?:\.partial)?$/ } slurp_dir($standby->data_dir . '/pg_wal'))
{
	my $wal = slurp_file($standby->data_dir . "/pg_wal/$file");
	# Messages that lie over two pages are not found so; there are others.
	while ($wal =~ /snowflake_watermark\0(\{"generator":"public\.g1"[^}]*\})/g)
	{
		my $horizon = eval { JSON::PP::decode_json($1)->{horizon} } or next;
		$read++;
		$greatest = $horizon if $horizon > $greatest;
	}
}
# Under the load of the long tier, long transactions hold most of them back.
cmp_ok($read, '>', 0, 'the standby has watermarks in its WAL');
cmp_ok($least, '>=', $greatest, 'the new primary issues no ID below a watermark that it has');
$standby->safe_psql('postgres', "SELECT format('COMMIT PREPARED %L', gid) FROM pg_prepared_xacts \\gexec");
$standby->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('promoted', '$plugin')");
unlink $stop;
finisher($standby);
waitpid load($standby, 3), 0;
append_to_file($stop, '');
waitpid $children[-2], 0;
consume_all($standby, 'promoted');

for my $slot (sort keys %seen)
{
	my $seen = $seen{$slot};
	note("stream $slot: $seen->{rows} rows, $seen->{messages} watermarks; 1 ms later, $seen->{sharp} rows would lie below one");
	cmp_ok($seen->{rows}, '>', 100, "$slot: rows");
	cmp_ok($seen->{messages}, '>', 10, "$slot: watermarks");
	is($seen->{late}, 0, "$slot: no row came after a watermark above its ID");
}
my $sharp = 0;
$sharp += $_->{sharp} for values %seen;
cmp_ok($sharp, '>', 0, 'a watermark that is 1 ms later would be wrong');
note("sent in blocks: $ends{c} transactions that were committed, $ends{p} prepared, $ends{A} parts rolled back");
if (@streaming)
{
	cmp_ok($_, '>', 0, 'sent before its end') for values %ends;
	cmp_ok($seen{'main streaming'}{sharp}, '>', 0, 'also of the stream with blocks');
}
cmp_ok($faults, '>=', $wanted ? 2 : 1, 'the server has crashed');
cmp_ok($rows, '>=', $wanted, 'as many rows as were wanted') if $wanted;
is($standby->safe_psql('postgres', $processes), 1, 'the new primary has its process');

# Without logical decoding there is nobody who would read watermarks.
$standby->append_conf('postgresql.conf', "wal_level = replica\nmax_wal_senders = 0");
$standby->safe_psql('postgres', "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots");
$standby->restart;
wait_until('the log tells that wal_level is too low', sub { in_log($standby, qr/no watermark is written in database "postgres": no change stream can be read/) });
done_testing();
