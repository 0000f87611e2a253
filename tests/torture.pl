# Strikes servers with hundreds of faults, in many short episodes. Clients take IDs in
# every way there is, from the default generator and from labelled ones of many layouts
# and all policies. Meanwhile servers are killed, stopped and promoted, their clocks are
# stepped, sequences are restarted and labels change. Then torture/Check.pm checks every
# ID that a client received, and every refusal.
#
# In some episodes, servers lease their worker IDs from a registry: torture/Leases.pm
# runs these.
#
#   SEED      seed of all schedules; by default another one each time, printed
#   MINUTES   how long new episodes are begun; default 3
#   EPISODE   run this one only
#   MOOD      run episodes of this mood only, such as "leases"; all by default
#
# Seed and number determine an episode: settings, client scripts, faults, the pauses
# between them, the clock. They do not determine how far a client has come when a fault
# strikes, which process is the victim, and how long a server takes to come back. So a
# replay may need a few tries to meet the same moment.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin", "$FindBin::RealBin/t/lib";
use Fcntl;
use List::Util qw(max sum0);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Snowflake qw(wait_until);
use torture::Check;
use torture::Errors qw(errors refusal);
use torture::Leases;
use torture::Schedule qw(schedule describe literal mood_of moods);

# The limits of this test do not measure speed: they only end a hang.
use constant PATIENCE => 60;
$ENV{PGCTLTIMEOUT} = 3 * PATIENCE;
# Servers and clients are stopped then, too.
$SIG{$_} = sub { die "ended by signal $_[0]\n" } for qw(INT TERM);

my $seed    = $ENV{SEED}    || int(rand(2**31));
my $minutes = $ENV{MINUTES} || 3;
my $only    = $ENV{EPISODE} || 0;
my $mood    = $ENV{MOOD}    || '';
/^\d+$/ or die "SEED, MINUTES and EPISODE are whole numbers\n" for $seed, $minutes, $only;
die "MOOD is one of @{[ moods() ]}\n" if $mood ne '' && !grep { $_ eq $mood } moods();

my %total = map { $_ => 0 } qw(episodes sessions refusals);
my @firsts;
my (%faults, %codes, %bad, %seen, %by_policy, %refused);
# The number of the episode that runs or has failed.
my $running = 0;

my $temp = PostgreSQL::Test::Utils::tempdir();
my $template = "$temp/template";

# These variables belong to the episode that runs.
my ($s, $dir, $up, $primary, $standby, @clients, @sessions, @history, @starts, @accepts, @gaps, @refusals, @logs, $promotions, $launches);

my %node = map { $_ => PostgreSQL::Test::Cluster->new($_) } qw(one two);

# ---- Servers

# Makes a server once; episodes use copies of it, so that no server knows of an earlier
# one.
sub make_template
{
	my $node = $node{one};
	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'snowflake_id'
timezone = 'UTC'
log_min_messages = info
log_line_prefix = '%m [%p] %e %q%a '
log_statement = none
restart_after_crash = on
max_connections = 60
shared_buffers = 16MB
max_prepared_transactions = 60
wal_keep_size = 256MB
wal_sender_timeout = 0
wal_receiver_timeout = 0
snowflake_id.worker_id = 0
END
	$node->start;
	$node->safe_psql('postgres', "CREATE ROLE mortal LOGIN; CREATE DATABASE $_") for qw(a);
	$node->safe_psql('postgres', "CREATE DATABASE $_") for qw(b c);
	$node->safe_psql($_, <<'END') for qw(a b c);
CREATE EXTENSION snowflake_id;
CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), s text);
GRANT ALL ON t TO mortal;
CREATE FUNCTION ms(timestamptz) RETURNS bigint IMMUTABLE LANGUAGE sql
	AS 'SELECT (extract(epoch FROM $1) * 1000)::bigint';
-- Of the label in force: the snapshot of its query is taken after the ID before it.
CREATE FUNCTION label_of(g regclass) RETURNS text VOLATILE LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT left(md5(label), 8) FROM pg_seclabel
		WHERE objoid = g AND classoid = 'pg_class'::regclass AND provider = 'snowflake_id');
END $$;
-- Of the default generator that there is then.
CREATE FUNCTION default_of() RETURNS text VOLATILE LANGUAGE plpgsql AS $$
BEGIN
	RETURN 'default.' || to_regclass('snowflake_default')::oid;
END $$;
-- IDs taken in subtransactions, some of which are rolled back.
CREATE FUNCTION risky(n int, g regclass DEFAULT NULL) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	FOR i IN 1 .. n LOOP
		BEGIN
			id := CASE WHEN g IS NULL THEN snowflake_nextval() ELSE snowflake_nextval(g) END;
			IF i % 3 = 0 THEN
				RAISE EXCEPTION 'rolled back';
			END IF;
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
		RETURN NEXT id;
	END LOOP;
END $$;
END
	$node->stop;
	rename $node->data_dir, $template or die "could not move the template: $!";
	return;
}

# Makes the named generators of this episode.
sub make_generators
{
	for my $g (@{ $s->{generators} })
	{
		my $label = literal($g->{labels}[0]{text});
		my $bound = '9223372036854775807';
		my $made = ask($primary, $g->{database}, ($g->{by_hand}
			? "CREATE SEQUENCE $g->{name} INCREMENT $bound START $bound;\nSECURITY LABEL FOR snowflake_id ON SEQUENCE $g->{name} IS $label;\n"
			: "SELECT 'A', snowflake_create_generator('$g->{name}', $label);\n")
			. "CREATE TABLE t_$g->{name} (id bigint PRIMARY KEY DEFAULT snowflake_nextval('$g->{name}'), s text);\n"
			. "GRANT ALL ON TABLE t_$g->{name} TO mortal;\nGRANT ALL ON SEQUENCE $g->{name} TO mortal;\n"
			. ($g->{owned} ? "ALTER SEQUENCE $g->{name} OWNED BY t_$g->{name}.id;\n" : ''));
		failed("generator $g->{name} of $g->{database}: $made->{err}") if $made->{err} =~ /ERROR/;
	}
	return;
}

sub copy_template
{
	my ($node, $worker) = @_;
	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', $template, $node->data_dir);
	configure($node, $worker);
	return;
}

sub configure
{
	my ($node, $worker) = @_;
	my $port = $node->port;
	my $gap = gap_ms() . ' ms';
	$node->append_conf('postgresql.conf', <<"END");
port = $port
fsync = $s->{fsync}
checkpoint_timeout = '$s->{checkpoint_timeout}'
snowflake_id.worker_id = '$worker'
snowflake_id.reserve_ahead = '$s->{reserve_ms} ms'
snowflake_id.debug_slots = $s->{debug_slots}
snowflake_id.failover_gap = '$gap'
END
	return;
}

sub gap_ms { return 10_000; }

sub follow
{
	my ($node, $from) = @_;
	$node->append_conf('postgresql.conf', q{primary_conninfo = '} . $from->connstr . q{'});
	$node->append_conf('standby.signal', '');
	return;
}

# Returns by how much the second server's clock differs.
sub clock_of { return $_[0]->name eq 'two' ? $s->{standby_clock} : 0; }

# Records a setting of the clock from now on. No ID may follow a refused setting.
sub note_clock
{
	my ($offset, $refused) = @_;
	push @history, { offset => $offset, refused => $refused, since => time, until => 9e9 };
	return;
}

sub move_clock
{
	my ($offset, $refused) = @_;
	note_clock($offset, $refused);
	set_clock($_) for values %node;
	$history[-1]{until} = time;
	unstick() if $up && @history > 1 && $offset < $history[-2]{offset} - 1;
	return;
}

# PostgreSQL's timeouts, the deadlock detector's among them, go by the wall clock: a
# session that waits for a lock when the clock is set back waits that much longer.
sub unstick
{
	kill INT => map { $_->{pid} } grep { $_->{title} =~ / waiting/ } backends($primary);
	return;
}

sub clock_file { return "$temp/" . $_[0]->name . '.clock'; }

# Writes the file in place, since servers have it mapped.
sub set_clock
{
	my ($node) = @_;
	my $nanos = ($history[-1]{offset} + clock_of($node)) * 1_000_000_000;
	sysopen my $file, clock_file($node), O_WRONLY | O_CREAT or die "the clock of a server: $!";
	syswrite $file, pack('q', $nanos);
	close $file or die "the clock of a server: $!";
	return;
}

sub start
{
	my ($node, $offset, $refused) = @_;
	move_clock($offset, $refused) if defined $offset && $offset != $history[-1]{offset};
	set_clock($node);
	local $ENV{LD_PRELOAD} = $ENV{CLOCK_LIBRARY};
	local $ENV{TORTURE_CLOCK} = clock_file($node);
	# A child that was being forked when its postmaster was killed can be missed among
	# the orphans. The server does not start beside such a child, so the start is tried
	# again.
	my $until = time + PATIENCE;
	tend() while !$node->start(fail_ok => time < $until);
	return;
}

# Stops a server. An ordinary stop in the middle of a recovery may take for ever.
sub stop
{
	my ($node, $mode) = @_;
	local $ENV{PGCTLTIMEOUT} = PATIENCE / 2;
	$node->stop($mode, fail_ok => $mode eq 'fast') or $node->stop('immediate');
	return;
}

# Returns all processes of a server: they work in its data directory.
sub processes
{
	my ($node) = @_;
	my @found;
	for my $link (glob '/proc/[0-9]*/cwd')
	{
		my $cwd = readlink $link or next;
		next if $cwd ne $node->data_dir;
		my ($pid) = $link =~ m{/proc/(\d+)/};
		open my $file, '<', "/proc/$pid/cmdline" or next;
		push @found, { pid => $pid, title => (scalar <$file>) // '' };
	}
	return sort { $a->{pid} <=> $b->{pid} } @found;
}

sub backends
{
	my ($node) = @_;
	return grep { $_->{title} =~ /^postgres: .*\[local\]/ } processes($node);
}

sub kill_postmaster
{
	my ($node, $orphans) = @_;
	$node->kill9;
	if ($orphans eq 'killed')
	{
		pause(0.05);
		kill KILL => map { $_->{pid} } processes($node);
	}
	# Orphans still issue IDs from the old shared memory. A new server must refuse to
	# start beside them.
	wait_until('the orphans are gone', sub { tend(); return !processes($node) }) or return;
	# The postmaster may linger as a zombie; then its lock files look as if it were
	# running.
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	return;
}

# ---- Clients

sub write_file
{
	my ($name, $text) = @_;
	open my $file, '>', $name or die "$name: $!";
	print $file $text;
	close $file or die "$name: $!";
	return;
}

# Starts psql in the background, with its output in files.
sub spawn
{
	my ($node, $database, $name, $file) = @_;
	my $session = {
		name => "$name ($database)",
		file => "$dir/$name",
		database => $database,
		worker => -1,
		clock => clock_of($node),
		rewrites => {},
		relabels => {},
		advances => {},
		transactions => 5,
		lineage => $promotions,
		launched => time,
		ended => 9e9,
	};
	my @command = ('psql', '-X', '-q', '-A', '-t', '-v', 'VERBOSITY=verbose', '-v', "n=$name", '-v', "u=$launches",
		'-d', $node->connstr($database), '-f', $file);
	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		open STDIN,  '<', '/dev/null';
		open STDOUT, '>', "$session->{file}.out";
		open STDERR, '>', "$session->{file}.err";
		exec { $command[0] } @command or POSIX::_exit(127);
	}
	$session->{pid} = $pid;
	push @sessions, $session;
	return $session;
}

sub has_ended
{
	my ($session) = @_;
	return 0 if waitpid($session->{pid}, POSIX::WNOHANG) != $session->{pid};
	$session->{ended} = time;
	return 1;
}

sub launch
{
	my ($client) = @_;
	my $script = $client->{next} % @{ $client->{scripts} };
	my $session = spawn($primary, $client->{database},
		sprintf('%s.%d', $client->{name}, ++$launches), "$dir/$client->{name}.$script.sql");
	$session->{$_} = $client->{scripts}[$script]{$_} for qw(rewrites relabels advances transactions);
	$client->{session} = $session;
	return;
}

# Starts the next session of clients whose session is over. A client that could not
# connect tries again a little later.
sub tend
{
	for my $client (@clients)
	{
		if (my $session = $client->{session})
		{
			next if !has_ended($session);
			$client->{session} = undef;
			$client->{next}++ if -s "$session->{file}.out";
			$client->{not_before} = time + (-s "$session->{file}.out" ? 0 : 0.2);
		}
		launch($client) if $up && time >= $client->{not_before};
	}
	return;
}

sub pause
{
	my $until = time + $_[0];
	do { tend(); sleep 0.02; } while time < $until;
	return;
}

# Runs statements of this script; the IDs that they receive are checked as well.
sub ask
{
	my ($node, $database, $sql, $rewrites) = @_;
	my $name = 'probe.' . ++$launches;
	write_file("$dir/$name.sql", "SET statement_timeout = '5 s';\n$sql");
	my $session = spawn($node, $database, $name, "$dir/$name.sql");
	$session->{rewrites} = $rewrites // {};
	my $until = time + PATIENCE;
	while (!has_ended($session))
	{
		tend();
		sleep 0.005;
		next if time < $until;
		failed("$name does not end");
		kill KILL => $session->{pid};
	}
	$session->{out} = slurp_file("$session->{file}.out");
	$session->{err} = slurp_file("$session->{file}.err");
	return $session;
}

my $prepared = <<'END';
SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts WHERE database = current_database() \gexec
END
my $started = <<'END';
SELECT 'S', (SELECT pid || '.' || ms(backend_start) FROM pg_stat_activity WHERE backend_type = 'checkpointer'),
	current_setting('snowflake_id.worker_id'), ms(clock_timestamp());
END
my $probe = $prepared . $started . <<'END';
SELECT 'I', snowflake_nextval(), ms(statement_timestamp()), ms(clock_timestamp()), default_of();
END

# Returns such statements for all generators of a database.
sub probe_sql
{
	my ($database) = @_;
	return join '', $probe, map { "SELECT 'I', snowflake_nextval('$_'), ms(statement_timestamp()), ms(clock_timestamp()), '$_', label_of('$_');\n" }
	  named($database);
}

sub named { my ($database) = @_; return map { $_->{name} } grep { $_->{database} eq $database } @{ $s->{generators} }; }

# Checks that IDs resume, in all databases, from all generators, or that a policy
# refuses them. torture/Check.pm checks later whether the policy may.
sub probe
{
	my ($what) = @_;
	for my $database (@{ $s->{databases} })
	{
		my $until = time + PATIENCE;
		my %missing = map { $_ => 1 } '', named($database);
		while (1)
		{
			my $session = ask($primary, $database, probe_sql($database));
			delete @missing{ map { s/^default\.\d+$//r } $session->{out} =~ /^I(?:\|-?\d+){3}\|([\w.]+)(?:\|\w*)?$/mg };
			delete @missing{ map { (refusal($_))[1] // () } errors($session->{err}) };
			last if !%missing;
			return failed('no ID within ' . PATIENCE . " s $what: $session->{err}") if time > $until;
			unstick();
			pause(0.05);
		}
	}
	return;
}

# Checks the promised refusal of a clock that cannot be right.
sub probe_refusal
{
	my ($what, $message) = @_;
	$total{"refusals"}++;
	my $until = time + PATIENCE;
	while (time < $until)
	{
		my $session = ask($primary, $s->{databases}[0], $probe);
		return 1 if $session->{err} =~ /ERROR:\s+58000: .*$message/;
		sleep 0.05;
	}
	return failed("$what: not refused");
}

my @failures;
sub failed { push @failures, $_[0]; return 0; }

# ---- Faults

sub victims
{
	my ($f, $count, @from) = @_;
	return if !@from;
	my $first = int($f->{victim} * @from);
	return map { $from[ ($first + $_) % @from ]{pid} } 0 .. ($count > @from ? $#from : $count - 1);
}

# Crashes the server, which makes its shared memory anew.
sub crash
{
	push @starts, time;
	return kill KILL => @_;
}

# Stops the server, and starts it again with the same or another clock.
sub down
{
	my ($f, $stop) = @_;
	$up = 0;
	push @starts, time;
	$stop->();
	pause($f->{down});
	start($primary, $f->{clock});
	if (my $first = $f->{first})
	{
		my $session = ask($primary, $first->{database}, "$prepared$started$first->{sql}", $first->{rewrites});
	}
	$up = 1;
	return;
}

my %fault = (
	kill_backend => sub { crash(victims($_[0], 1, backends($primary))); },
	kill_backends => sub { crash(victims($_[0], 3, backends($primary))); },
	kill_auxiliary => sub {
		crash(victims($_[0], 1, grep { $_->{title} =~ /checkpointer|walwriter|background writer|walsender/ } processes($primary)));
	},
	kill_postmaster => sub { my ($f) = @_; down($f, sub { kill_postmaster($primary, $f->{orphans}) }); },
	immediate => sub { down($_[0], sub { stop($primary, 'immediate') }); },
	restart => sub { down($_[0], sub { stop($primary, 'fast') }); },
	terminate => sub { kill TERM => victims($_[0], 2, backends($primary)); },
	cancel => sub { kill INT => victims($_[0], 4, backends($primary)); },
	kill_client => sub { kill KILL => victims($_[0], 2, map { $_->{session} // () } @clients); },
	checkpoint => sub { ask($primary, 'postgres', 'CHECKPOINT;'); },
	reload => sub {
		my ($f) = @_;
		$primary->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '$f->{reserve_ms} ms'");
		$primary->reload;
	},
	step => sub { move_clock($_[0]{clock}); },
	swing => sub { for my $swing (@{ $_[0]{swings} }) { move_clock($swing->[0]); pause($swing->[1]); } },
	# The clock goes beyond a day from any clock of this episode, and back.
	leap_forward => sub {
		my ($f) = @_;
		refuse($f->{by} + max(map { $_->{offset} } @history), 'clock jumped forward');
	},
	leap_back => sub {
		my ($f) = @_;
		refuse(-$f->{by} - max(map { -$_->{offset} } @history), 'clock moved backwards');
	},
	# The server starts with its clock so far back that it must refuse its mark.
	start_far_back => sub {
		my ($f) = @_;
		probe('before a start far back');
		my $right = $history[-1]{offset};
		my $wrong = -$f->{by} - max(map { -$_->{offset} } @history);
		$up = 0;
		push @starts, time;
		stop($primary, 'immediate');
		push @refusals, { from => time, until => 9e9 };
		start($primary, $wrong, 1);
		$up = 1;
		probe_refusal('start far back', 'would start .* ahead of the clock');
		pause(0.3);
		if ($f->{way_out} eq 'accept')
		{
			move_clock($right);
			ask($primary, $_, "SELECT 'A', snowflake_accept_clock();") for @{ $s->{databases} };
			push @accepts, time;
		}
		else
		{
			down({ down => 0, clock => $right }, sub { stop($primary, 'fast') });
		}
		probe('after the clock was put right');
		$refusals[-1]{until} = time;
	},
	# A tool sets each mark to the value that it has.
	set_marks => sub {
		for my $database (@{ $s->{databases} })
		{
			ask($primary, $database, join '', map { "SELECT 'A', setval('$_', last_value) FROM $_;\n" } 'snowflake_default', named($database));
		}
		note_gap();
	},
	without_library => \&without_library,
	promote => \&promote);

# A generator that starts next may leave a gap behind a mark of which nobody knows who wrote it.
sub note_gap { push @gaps, { at => time, switches => 1, ms => gap_ms() }; return; }

# The server runs without the library for a while, in which sequences are rewritten; those of the
# default generators may be restarted, and somebody knows how far they were.
sub without_library
{
	my ($f) = @_;
	$up = 0;
	push @starts, time;
	stop($primary, 'fast');
	$primary->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	start($primary);
	my %mark;
	for my $database (@{ $s->{databases} })
	{
		my $session = ask($primary, $database, "SELECT 'A', last_value FROM snowflake_default;\nALTER SEQUENCE snowflake_default $f->{rewrite};\n"
			. join '', map { "ALTER SEQUENCE $_ CACHE 20;\n" } named($database));
		($mark{$database}) = $session->{out} =~ /^A\|(\d+)$/m;
		failed("without the library: $session->{err}") if $session->{err} =~ /ERROR/ || !$mark{$database};
	}
	stop($primary, 'fast');
	$primary->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake_id'");
	start($primary);
	note_gap();
	for my $database ($f->{rewrite} eq 'RESTART' ? @{ $s->{databases} } : ())
	{
		my $session = ask($primary, $database,
			"$prepared$started" . "SELECT 'A', snowflake_advance('snowflake_default', greatest(clock_timestamp(), to_timestamp($mark{$database} / 1000.0)));\n");
		failed("after a restart without the library: $session->{err}") if $session->{err} =~ /ERROR/;
	}
	$up = 1;
	return;
}

sub refuse
{
	my ($wrong, $message) = @_;
	my $right = $history[-1]{offset};
	probe("before a leap");
	push @refusals, { from => time, until => 9e9 };
	move_clock($wrong, 1);
	probe_refusal("clock set to $wrong", $message);
	pause(0.3);
	move_clock($right);
	probe('after the clock was put right');
	$refusals[-1]{until} = time;
	return;
}

# Promotes the standby, after it has lost its connection for a while, and moves the
# clients to it.
sub promote
{
	my ($f) = @_;
	$standby = make_standby() if !$standby;
	my $session = ask($standby, $s->{databases}[0], $probe);
	failed("a standby: $session->{out} $session->{err}") if $session->{err} !~ /ERROR:\s+25006/;

	# The gap covers what was lost since this instant, and the clocks' difference.
	my $touched = time;
	if ($s->{worker} == $s->{standby_worker})
	{
		my $lsn = $primary->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
		wait_until('the standby has replayed', sub {
			tend();
			return $standby->safe_psql('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' })
		  or failed('the standby does not follow');
	}
	$standby->append_conf('postgresql.conf', q{primary_conninfo = ''});
	$standby->reload;
	wait_until('the standby has lost touch', sub {
		tend();
		return !grep { $_->{title} =~ /walreceiver/ } processes($standby) });
	pause($f->{lag});

	$up = 0;
	push @starts, time;
	if ($f->{end} eq 'kill_postmaster') { kill_postmaster($primary, $f->{orphans}); }
	else { stop($primary, $f->{end}); }
	# A generator may have been ahead of its clock by what it borrowed, or by a start at
	# its mark. The gap leaves room for that.
	my $ahead_ms = max(1000, map { 2 * $_->{tick} + $s->{reserve_ms} + max(map { $_->{borrow} } @{ $_->{labels} }) } @{ $s->{generators} });
	my $lag_ms = int(1000 * (time - $touched + abs $s->{standby_clock})) + $ahead_ms;
	my $gap_ms = max(gap_ms(), $lag_ms);
	if ($gap_ms > gap_ms())
	{
		$standby->append_conf('postgresql.conf', "snowflake_id.failover_gap = '$gap_ms ms'");
		$standby->reload;
	}
	push @gaps, { at => time, switches => ++$promotions, ms => $gap_ms * $promotions };
	$standby->promote;
	($primary, $standby) = ($standby, undef);
	$up = 1;
	return;
}

# Makes the other server anew from the one that runs.
sub make_standby
{
	my $node = $primary->name eq 'one' ? $node{two} : $node{one};
	my $worker = $node->name eq 'one' ? $s->{worker} : $s->{standby_worker};
	remove_data($node);
	my @command = ('pg_basebackup', '-D', $node->data_dir, '-h', $primary->host, '-p', $primary->port, '-c', 'fast', '--no-sync');
	PostgreSQL::Test::Utils::system_log(@command) == 0 or failed('pg_basebackup');
	configure($node, $worker);
	follow($node, $primary);
	start($node);
	return $node;
}

sub remove_data
{
	my ($node) = @_;
	PostgreSQL::Test::Utils::system_log('rm', '-rf', $node->data_dir);
	return;
}

# ---- Episodes

sub episode_seed { my ($n) = @_; return ($seed * 1_000_003 + $n * 7_919) % 2**31; }

sub run_episode
{
	my ($n) = @_;
	$running = $n;
	$s = schedule(episode_seed($n));
	$dir = "$temp/episode$n";
	mkdir $dir or die "$dir: $!";
	@failures = ();
	my $began = time;
	my ($check, $count) = $s->{mood} eq 'leases' ? lease() : torment($began);
	push @failures, @{ $check->{text} };
	read_logs();

	$total{episodes}++;
	$total{sessions} += $count;
	for my $counts ([ \%seen, 'seen' ], [ \%bad, 'bad' ], [ \%codes, 'codes' ], [ \%by_policy, 'by_policy' ], [ \%refused, 'refused' ])
	{
		my ($sum, $what) = @$counts;
		$sum->{$_} += $check->{$what}{$_} for keys %{ $check->{$what} // {} };
	}
	my $what = sprintf('episode %d, %s: %d IDs to %d sessions, %d faults, %.1f s',
		$n, $s->{mood}, $check->{seen}{IDs}, $count, scalar @{ $s->{faults} }, time - $began);
	ok(!@failures, $what);
	if (@failures)
	{
		diag(join "\n", @failures);
		diag("the schedule:\n" . describe($s));
		diag("scripts and what clients received: $dir\nserver logs: @logs");
		return 0;
	}
	PostgreSQL::Test::Utils::system_log('rm', '-rf', $dir, @logs);
	$running = 0;
	return 1;
}

# Runs an episode of servers that lease their worker IDs. Returns what was checked, and
# how many sessions there were.
sub lease
{
	my $episode = torture::Leases->new(schedule => $s, dir => $dir, template => $template, temp => $temp);
	$episode->run;
	@logs = @{ $episode->{logs} };
	push @failures, @{ $episode->{failures} };
	$faults{$_} += $episode->{faults}{$_} for keys %{ $episode->{faults} };
	push @firsts, @{ $episode->{firsts} };
	return ($episode->{grants}, $episode->{grants}{seen}{'sessions of servers that lease'});
}

# Runs an episode of a server and its standby, in the same way.
sub torment
{
	my ($began) = @_;
	($primary, $standby) = ($node{one}, undef);
	$promotions = $launches = $up = 0;
	@clients = @sessions = @history = @starts = @accepts = @gaps = @refusals = ();
	@logs = map { $_->rotate_logfile } values %node;

	copy_template($primary, $s->{worker});
	note_clock(0);
	start($primary);
	if ($s->{mood} eq 'failover')
	{
		copy_template($node{two}, $s->{standby_worker});
		follow($node{two}, $primary);
		start($node{two});
		$standby = $node{two};
	}
	make_generators();
	for my $n (0 .. $#{ $s->{clients} })
	{
		my $client = { %{ $s->{clients}[$n] }, name => "client$n", next => 0, not_before => 0 };
		write_file("$dir/$client->{name}.$_.sql", $client->{scripts}[$_]{sql}) for 0 .. $#{ $client->{scripts} };
		push @clients, $client;
	}
	$up = 1;
	for my $f (@{ $s->{faults} })
	{
		pause($f->{after});
		printf "## %.3f %s\n", time - $began, $f->{kind};
		$fault{ $f->{kind} }->($f);
		$faults{ $f->{kind} }++;
		$faults{'clock set while down'}++ if $f->{kind} ne 'step' && defined $f->{clock};
		printf "## %.3f %s done\n", time - $began, $f->{kind};
		probe("after $f->{kind}") if $f->{probe};
	}
	pause(0.5);
	finish();
	my $check = torture::Check->new(schedule => $s, history => \@history, starts => \@starts,
		accepts => \@accepts, gaps => \@gaps, refusals => \@refusals, sessions => \@sessions);
	printf "## %.3f check\n", time - $began;
	$check->run;
	printf "## %.3f checked\n", time - $began;
	return ($check, scalar grep { $_->{life} } @sessions);
}

# Ends the clients, stops the server in an ordinary way and in a bad one, and checks
# each time that IDs resume.
sub finish
{
	$up = 0;
	my @waiting = grep { $_->{session} } @clients;
	push @starts, time;
	stop($primary, 'fast');
	my $until = time + PATIENCE;
	while (@waiting && time < $until)
	{
		tend();
		@waiting = grep { $_->{session} } @waiting;
		sleep 0.02;
	}
	for my $client (@waiting)
	{
		failed("$client->{session}{name} does not end");
		kill KILL => $client->{session}{pid};
		waitpid $client->{session}{pid}, 0;
		$client->{session}{ended} = time;
	}
	start($primary);
	probe('at the end');
	push @starts, time;
	stop($primary, 'immediate');
	start($primary);
	probe('at the very end');
	for my $node (values %node)
	{
		$node->stop('immediate');
		remove_data($node);
	}
	for my $session (@sessions)
	{
		$session->{out} = slurp_file("$session->{file}.out");
		$session->{err} = slurp_file("$session->{file}.err");
	}
	return;
}

# Checks the logs: only this script may kill processes by signal 9.
sub read_logs
{
	for my $log (grep { -e $_ } @logs)
	{
		open my $file, '<', $log or die "$log: $!";
		while (my $line = <$file>)
		{
			$seen{'tables of slots added'}++ if $line =~ /made room for \d+ more generators/;
			failed("in $log: $line")
			  if $line =~ /PANIC: |TRAP: |panicked at|\] XX00[12]|was copied while it ran|terminated by signal (?!9\b)/;
		}
	}
	return;
}

# Cleans up, however the script ended.
END
{
	my $status = $?;
	diag("to run this episode again: make torture SEED=$seed EPISODE=$running PG=" . int($node{one}->pg_version))
	  if $running;
	$? = $status;
}

sub table
{
	my (%counts) = @_;
	return map { sprintf('  %-32s %8d', $_, $counts{$_}) } sort keys %counts;
}

note("seed $seed, " . ($only ? "episode $only" : "$minutes minutes"));
make_template();
my $began = time;
my $n = $only || 1;
do
{
	$n++ while $mood ne '' && !$only && mood_of(episode_seed($n)) ne $mood;
} while run_episode($n++) && !$only && time - $began < 60 * $minutes;
my ($slowest) = sort { $b->{took} <=> $a->{took} } @firsts;
note(join "\n",
	sprintf('seed %s, %.1f minutes, PostgreSQL %s', $seed, (time - $began) / 60, $node{one}->pg_version),
	"$total{episodes} episodes, $total{sessions} sessions; checked:", table(%seen),
	sum0(values %faults) . ' faults:', table(%faults),
	'IDs of named generators by policy:', table(%by_policy),
	"$total{refusals} refusals provoked and met; as policies ask for:", table(%refused),
	$slowest
	? sprintf('first IDs of servers that lease: %d, the slowest %.2f s after %s', scalar @firsts, @$slowest{qw(took what)})
	: (),
	'errors that clients met:', table(%codes),
	'violations:', table(map({ $_ => 0 } qw(duplicate overlap order early ahead mark worker clock label decode refusal wait unleased bound)), %bad));
done_testing();
