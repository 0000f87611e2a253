# Functions of the TAP tests: they start servers with the extension, move the wall clock
# of running servers, and check IDs.
package Snowflake;

use strict;
use warnings;
use Exporter 'import';
use Fcntl qw(O_CREAT O_WRONLY);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

our @EXPORT = qw(new_node start_with_clock set_clock set_clock_to set_back stop_clock stop_disk wall_clock ids first_id_within
  check_ids error_of wait_until crash kill_backend clock_of is_alive session error_in send_to wait_for_lock
  create_generator draw drawn draw_timed draw_clock
  draw_batch check_unique answer_in wait_for_clock between shown in_log behind);

# The limit of a psql in the background holds for each query: a session may take longer.
{
	no warnings 'redefine';
	my $background_psql = PostgreSQL::Test::Cluster->can('background_psql');
	*PostgreSQL::Test::Cluster::background_psql = sub {
		my $session = $background_psql->(@_);
		$session->set_query_timer_restart;
		return $session;
	};
}

# initdb takes most of a second of the processor. Where it would run without options of its own, a server gets a
# copy of the data directory in DATA_TEMPLATE, with a system identifier of its own.
{
	no warnings 'redefine';
	my $system_or_bail = PostgreSQL::Test::Utils->can('system_or_bail');
	*PostgreSQL::Test::Utils::system_or_bail = sub {
		my ($command, @arguments) = @_;
		return $system_or_bail->(@_) if $command ne 'initdb' || @arguments != 5 || !$ENV{DATA_TEMPLATE};
		my ($data) = grep { m{^/} } @arguments;
		$system_or_bail->('cp', '-RPp', $ENV{DATA_TEMPLATE}, $data);
		return identify($data);
	};
}

# Gives a data directory that no server has run with another system identifier, which stands in the control file,
# before a checksum, and in the head of the first file of WAL.
my $identified = 0;
sub identify
{
	my ($data) = @_;
	my $identifier = pack('Q', (int(time) << 32) | ($$ & 0xfffff) << 12 | $identified++);
	my $control = slurp_file("$data/global/pg_control");
	my @table = map { my $c = $_; $c = $c & 1 ? $c >> 1 ^ 0x82f63b78 : $c >> 1 for 1 .. 8; $c } 0 .. 255;
	my $add = sub { return $table[ ($_[0] ^ $_[1]) & 255 ] ^ $_[0] >> 8 };
	my ($crc, $at) = (0xffffffff, 0);
	$crc = $add->($crc, ord substr $control, $at++, 1)
	  while $at < 512 && ($at < 100 || unpack('L', substr $control, $at, 4) != ($crc ^ 0xffffffff));
	die "$data/global/pg_control has no checksum" if $at == 512;
	substr($control, 0, 8) = $identifier;
	$crc = 0xffffffff;
	$crc = $add->($crc, $_) for unpack 'C*', substr $control, 0, $at;
	substr($control, $at, 4) = pack 'L', $crc ^ 0xffffffff;
	for (['global/pg_control', 0, $control], ['pg_wal/000000010000000000000001', 24, $identifier])
	{
		my ($name, $from, $bytes) = @$_;
		open my $file, '+<:raw', "$data/$name" or die "$data/$name: $!";
		seek $file, $from, 0;
		print $file $bytes;
		close $file or die "$data/$name: $!";
	}
	return;
}

# Makes a server with the extension preloaded. The arguments after name and worker ID
# are those of init(), and install_path.
sub new_node
{
	my ($name, $worker, %options) = @_;
	my @where = map { $_ => delete $options{$_} } grep { $options{$_} } 'install_path';
	my $node = PostgreSQL::Test::Cluster->new($name, @where);
	$node->init(%options);
	$node->append_conf('postgresql.conf', <<"END");
shared_preload_libraries = 'snowflake_id'
snowflake_id.worker_id = '$worker'
timezone = 'UTC'
log_min_messages = info
END
	return $node;
}

# The wall clock of a node is the machine's clock plus a number of seconds, or stands
# still at an instant. The boot clock is left alone: a test that moved both would prove
# nothing. See clock.c.
my %clock_file;
my %clock_of;
my %offset_of;

sub write_clock
{
	my ($node, $offset, $stands_at) = @_;
	my $file = $clock_file{ $node->name } //=
	  PostgreSQL::Test::Utils::tempdir() . '/' . $node->name . '.clock';
	# The file is written in place, since servers have it mapped.
	sysopen my $out, $file, O_WRONLY | O_CREAT or die "$file: $!";
	syswrite $out, pack('q2', $offset * 1e9, $stands_at * 1e9);
	close $out or die "$file: $!";
	$offset_of{ $node->name } = $offset;
	return;
}

# Stops the disk of a node that was started with a clock, or lets it go on: until then no
# flush of WAL returns. The setting fsync has to be on.
sub stop_disk
{
	my ($node, $stands) = @_;
	sysopen my $out, $clock_file{ $node->name }, O_WRONLY or die $!;
	sysseek $out, 16, 0;
	syswrite $out, pack('q', $stands);
	close $out or die $!;
	return;
}

sub set_clock { my ($node, $seconds) = @_; return write_clock($node, $seconds, 0); }

# Stops the clock at an instant, or at the present one, and returns the instant. When
# the clock is set again, it has the same offset as before.
sub stop_clock
{
	my ($node, $instant) = @_;
	my $offset = $offset_of{ $node->name };
	$instant //= time + $offset;
	write_clock($node, $offset, $instant);
	return $instant;
}

# Returns what the clock shows. The next two functions set the clock back, or to an
# instant.
sub wall_clock { return time + $offset_of{ $_[0]->name }; }
sub set_back { my ($node, $by) = @_; return set_clock($node, $offset_of{ $node->name } - $by); }
sub set_clock_to { my ($node, $instant) = @_; return set_clock($node, $instant - time); }

sub start_with_clock
{
	my ($node, $seconds) = @_;
	die 'no CLOCK_LIBRARY: the tests are started by tests/run' if !$ENV{CLOCK_LIBRARY};
	set_clock($node, $seconds);
	$clock_of{ $node->name } = $seconds;
	local $ENV{LD_PRELOAD} = $ENV{CLOCK_LIBRARY};
	local $ENV{TORTURE_CLOCK} = $clock_file{ $node->name };
	$node->start;
	# A test whose clock does not move would prove nothing.
	my $before = time;
	my $shown = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())');
	die "the clock of the server did not move: $shown"
	  if $shown < $before + $seconds - 1 || $shown > time + $seconds + 1;
	return;
}

# Returns the offset of the clock when the server was started.
sub clock_of { return $clock_of{ $_[0]->name } // 0; }

# Crashes the server, and starts it with the clock another 30 s further back: only the
# mark keeps IDs from being issued twice.
sub crash
{
	my ($node) = @_;
	$node->stop('immediate');
	start_with_clock($node, clock_of($node) - 30);
	return;
}

# Kills a process of a server, which starts again without it. Until the server has noticed,
# it answers as before. Returns 0 if the process has ended already.
sub kill_backend
{
	my ($node, $pid) = @_;
	my $logged = -s $node->logfile;
	kill 'KILL', $pid or return 0;
	wait_until('the server has started again', sub { $node->log_contains(qr/database system is ready to accept/, $logged) });
	return 1;
}

# A process that has ended may linger until somebody asks for its status.
sub is_alive
{
	my ($pid) = @_;
	return 0 if !kill 0, $pid;
	open my $file, '<', "/proc/$pid/stat" or return -d '/proc/self' ? 0 : 1;
	my $stat = <$file> // '';
	return $stat !~ /\) [ZX] /;
}

# Returns IDs of one session, in the order in which the session got them.
sub ids
{
	my ($node, $count, $database) = @_;
	my $out = $node->safe_psql($database // 'postgres',
		"SELECT snowflake_nextval() FROM generate_series(1, $count)");
	return split /\n/, $out;
}

# Returns the first ID after a start, and checks that it came in time.
sub first_id_within
{
	my ($node, $seconds, $what) = @_;
	my $from = time;
	my ($id) = ids($node, 1);
	my $took = time - $from;
	cmp_ok($took, '<', $seconds, sprintf('%s: first ID in %.3f s', $what, $took));
	return $id;
}

# Checks that no ID was issued twice among any number of lists, each of which increases.
sub check_ids
{
	my ($what, @lists) = @_;
	my (%seen, $total, $twice, $disorder);
	$total = $twice = $disorder = 0;
	for my $list (@lists)
	{
		my $last = -1;
		for my $id (@$list)
		{
			$total++;
			$twice++ if $seen{$id}++;
			if ($id <= $last)
			{
				diag("$what: $id after $last, as number $total") if !$disorder;
				$disorder++;
			}
			$last = $id;
		}
	}
	cmp_ok($total, '>', 0, "$what: $total IDs");
	is($twice, 0, "$what: no ID twice");
	is($disorder, 0, "$what: each session's IDs increase");
	return;
}

# Returns SQLSTATE and text of a statement's error.
sub error_of
{
	my ($node, $sql, $database) = @_;
	my ($out, $err);
	my $status = $node->psql($database // 'postgres', "\\set VERBOSITY verbose\n$sql",
		stdout => \$out, stderr => \$err, on_error_stop => 1);
	return ('', "no error, but: $out") if $status == 0;
	my ($code) = $err =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/;
	return ($code // '', $err);
}

# Opens a session of a role, which stays open after errors.
sub session
{
	my ($node, $role, $database) = @_;
	my $session = $node->background_psql($database // 'postgres', on_error_stop => 0,
		extra_params => [ defined $role ? ('-U', $role) : () ]);
	$session->query_safe("\\set VERBOSITY verbose\nSET client_min_messages = error");
	return $session;
}

# Returns SQLSTATE, '' if none, and text of a statement's error in that session.
sub error_in
{
	my ($session, $sql) = @_;
	$session->query($sql);
	my $text = $session->{stderr};
	$session->{stderr} = '';
	my ($code) = $text =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/;
	$code //= '';
	return wantarray ? ($code, $text) : $code;
}

# Sends a statement without waiting for its answer: query('') waits for it.
sub send_to
{
	my ($session, $sql) = @_;
	$session->{stdin} .= "$sql;\n";
	$session->{run}->pump_nb while $session->{stdin} ne '';
	return;
}

# Waits until a session that runs a statement like this waits for a lock.
sub wait_for_lock
{
	my ($node, $like) = @_;
	return wait_until("a lock is waited for: $like", sub {
		$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '$like'") });
}

# Waits until a session that runs a statement like this waits for the clock.
sub wait_for_clock
{
	my ($node, $like) = @_;
	return wait_until("the clock is waited for: $like", sub {
		$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Extension' AND query LIKE '$like' AND pid <> pg_backend_pid()") });
}

# Returns the end of a statement that was sent, as error_in(), and its result.
sub answer_in
{
	my ($session) = @_;
	my $out = $session->query('');
	my $text = $session->{stderr};
	$session->{stderr} = '';
	my ($code) = $text =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/;
	return ($code // '', $text, $out);
}

# Checks a range; both ends are included.
sub between
{
	my ($value, $least, $most, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($value ne '' && $least <= $value && $value <= $most, "$what: $value");
}

# Returns what a view shows of a generator.
sub shown
{
	my ($node, $view, $name, $expression) = @_;
	return $node->safe_psql('postgres', "SELECT $expression FROM $view WHERE generator = '$name'::regclass");
}

# Returns how often a pattern is in the server's log.
sub in_log
{
	my ($node, $pattern) = @_;
	my @found = slurp_file($node->logfile) =~ /$pattern/g;
	return scalar @found;
}

# Returns how many seconds behind an error says that the clock is, or -1.
sub behind
{
	my ($text) = @_;
	my ($by) = $text =~ /clock moved backwards by (\d+ \w+(?: \d+ \w+)*)/ or return -1;
	my %unit = (d => 86_400, h => 3600, min => 60, s => 1, ms => 0.001);
	my $seconds = 0;
	$seconds += $1 * $unit{$2} while $by =~ /(\d+) (\w+)/g;
	return $seconds;
}

sub create_generator
{
	my ($node, $name, $label) = @_;
	$node->safe_psql('postgres', "SELECT snowflake_create_generator('$name', \$\$$label\$\$)");
	return;
}

# These are the IDs that sessions, one after the other, drew from each generator, by a
# name of the caller: all IDs of the generator in the order of the calls.
my %drawn;

sub draw
{
	my ($session, $key, $name) = @_;
	$name //= $key;
	my $id = $session->query_safe("SELECT snowflake_nextval('$name')");
	die "no ID from $name: $id" if $id !~ /^-?\d+$/;
	push @{ $drawn{$key} }, $id;
	return $id;
}

# Draws an ID; returns how many seconds the call took.
sub draw_timed
{
	my $from = time;
	draw(@_);
	return time - $from;
}

# Draws an ID; returns its clock sequence, and how many seconds it is ahead of the
# server's clock.
sub draw_clock
{
	my ($session, $key, $name) = @_;
	$name //= $key;
	my $id = draw($session, $key, $name);
	return split /\|/, $session->query_safe(
		"SELECT clock, extract(epoch FROM created_at - clock_timestamp()) FROM snowflake_decode($id, '$name')");
}

# Draws a batch of IDs.
sub draw_batch
{
	my ($session, $key, $count, $name) = @_;
	$name //= $key;
	my @ids = split /\n/, $session->query_safe("SELECT snowflake_nextval_batch($count, '$name')");
	die "not $count IDs from $name" if @ids != $count;
	push @{ $drawn{$key} }, @ids;
	return @ids;
}

sub drawn { return $drawn{ $_[0] }; }

# Checks that no drawn ID was issued twice; their order is not checked.
sub check_unique
{
	my ($key) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%seen, $twice);
	$twice = grep { $seen{$_}++ } @{ $drawn{$key} };
	return is($twice, 0, "$key: no ID twice of " . @{ $drawn{$key} });
}

sub wait_until
{
	my ($what, $check) = @_;
	for (1 .. 1800)
	{
		return 1 if $check->();
		sleep 0.1;
	}
	fail("timed out: $what");
	return 0;
}

1;
