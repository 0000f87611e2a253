# Functions of the tests with Patroni: they make a cluster of three members with an etcd,
# kill, freeze and switch its parts, and run clients that record every ID.
package Patroni;

use strict;
use warnings;
use DBI;
use DBD::Pg;
use File::Basename qw(basename);
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use List::Util qw(max sum0);
use MIME::Base64;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Etcd;
use Snowflake;

my @names = qw(pg1 pg2 pg3);
# A client gives up on a server that does not answer for so many seconds.
my $patience = 2;
my @all;

# Makes a cluster of three members, without this extension, and waits until all are up.
# The intervals are the least that Patroni takes, or with TERMS=default its default ones.
# Returns it.
sub new
{
	my ($class) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my $test = basename($0, '.pl');
	my $self = bless { folder => $folder, etcd => Etcd->new('etcd', 1, prefix => '/snowflake_id'), members => {}, clients => [], seen => {},
		of_scenario => 0, twice => [], table => [] }, $class;
	for my $name (@names)
	{
		$self->{members}{$name} = { name => $name, port => PostgreSQL::Test::Cluster::get_free_port(), api => PostgreSQL::Test::Cluster::get_free_port(),
			data => "$folder/$name", yml => "$folder/$name.yml", log => "$PostgreSQL::Test::Utils::log_path/${test}_$name.log", local => '' };
		$self->write_yml($name);
	}
	push @all, $self;
	$self->start($names[0]);
	wait_until('a primary', sub { $self->leader eq $names[0] && $self->takes_writes($names[0]) }) or die 'no primary';
	$self->start($_) for @names[1, 2];
	$self->wait_until_whole;
	return $self;
}

sub etcd { return $_[0]{etcd}; }
sub names { return @names; }
sub others { my ($self, $name) = @_; return grep { $_ ne $name } @names; }
sub port { my ($self, $name) = @_; return $self->{members}{$name}{port}; }

# Writes the file of a member. What its `local` holds is added below `postgresql`.
sub write_yml
{
	my ($self, $name) = @_;
	my $member = $self->{members}{$name};
	my ($etcd_port) = $self->{etcd}{members}[0]{client};
	my $hba = join '', map { "    - $_\n" } 'local all all trust', 'host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust';
	my $bin = (grep { -x "$_/postgres" } split /:/, $ENV{PATH})[0];
	my ($ttl, $loop_wait, $retry_timeout) = ($ENV{TERMS} // '') eq 'default' ? (30, 10, 10) : (20, 1, 3);
	my $local = $member->{local} =~ s/^parameters:\n//mr;
	my ($parameters, $rest) = ('', '');
	for (split /^/, $local) { if (/^  /) { $parameters .= "  $_"; } else { $rest .= "  $_"; } }
	unlink $member->{yml};
	append_to_file($member->{yml}, <<"END");
scope: shop
name: $name
restapi:
  listen: 127.0.0.1:$member->{api}
  connect_address: 127.0.0.1:$member->{api}
etcd3:
  host: 127.0.0.1:$etcd_port
bootstrap:
  dcs:
    ttl: $ttl
    loop_wait: $loop_wait
    retry_timeout: $retry_timeout
    maximum_lag_on_failover: 1073741824
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters:
        max_connections: 60
        shared_buffers: 32MB
        fsync: 'off'
        log_min_messages: info
        log_line_prefix: '%m [%p] '
        timezone: UTC
        wal_keep_size: 512MB
  initdb:
    - encoding: UTF8
    - locale: C
    - data-checksums
  pg_hba:
$hba
postgresql:
  listen: 127.0.0.1:$member->{port}
  connect_address: 127.0.0.1:$member->{port}
  data_dir: $member->{data}
  bin_dir: $bin
  pgpass: $self->{folder}/$name.pgpass
  authentication:
    superuser: { username: postgres }
    replication: { username: replicator }
    rewind: { username: postgres }
  basebackup:
    - checkpoint: fast
  parameters:
    unix_socket_directories: ''
$parameters$rest
END
	return;
}

# Gives a member these lines below `postgresql`, besides what all have.
sub set_local
{
	my ($self, $name, $lines) = @_;
	$self->{members}{$name}{local} = $lines;
	return $self->write_yml($name);
}

# Starts the Patroni of a member.
sub start
{
	my ($self, $name) = @_;
	my $member = $self->{members}{$name};
	defined(my $pid = fork) or die "fork: $!";
	if ($pid == 0)
	{
		setpgrp 0, 0;
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', $member->{log};
		open STDERR, '>&', \*STDOUT;
		$ENV{WORKER_ID} = $name =~ s/\D//gr;
		exec 'patroni', $member->{yml} or POSIX::_exit(1);
	}
	$member->{pid} = $pid;
	return;
}

sub log_of { my ($self, $name) = @_; my $file = $self->{members}{$name}{log}; return -e $file ? slurp_file($file) : ''; }

# The postmaster of a member, and all its processes.
sub postmaster
{
	my ($self, $name) = @_;
	my $file = "$self->{members}{$name}{data}/postmaster.pid";
	return if !-e $file;
	my ($pid) = eval { slurp_file($file) } =~ /^(\d+)\n/ or return;
	return kill(0, $pid) ? $pid : undef;
}

sub processes { my ($self, $name) = @_; my $pid = $self->postmaster($name) or return; return ($pid, split ' ', `ps -o pid= --ppid $pid`); }

sub signal_patroni { my ($self, $signal, $name) = @_; return kill $signal, $self->{members}{$name}{pid}; }

sub kill_patroni
{
	my ($self, $name) = @_;
	$self->signal_patroni('KILL', $name);
	waitpid delete $self->{members}{$name}{pid}, 0;
	return;
}

sub kill_postmaster { my ($self, $name) = @_; return kill 'KILL', $self->postmaster($name); }

# Kills all processes of a server, also those that are frozen.
sub kill_server
{
	my ($self, $name) = @_;
	my @pids = $self->freeze($name);
	kill 'KILL', @pids;
	return wait_until("$name is dead", sub { !kill 0, @pids });
}

sub freeze
{
	my ($self, $name) = @_;
	# The postmaster first: it starts no more children then.
	kill 'STOP', $self->postmaster($name);
	my @pids = $self->processes($name);
	kill 'STOP', @pids;
	return @pids;
}

sub thaw { my ($self, @pids) = @_; return kill 'CONT', reverse @pids; }

# Kills all that the cluster consists of, as a power cut does.
sub kill_everything
{
	my ($self) = @_;
	$self->{etcd}->kill_members(0);
	for my $name (@names) { $self->kill_patroni($name); $self->kill_server($name); }
	return;
}

# Freezes the processes that send WAL, and returns them: the standbys lag from now on.
sub stop_sending
{
	my ($self, $name) = @_;
	my @pids = split /\n/, $self->sql($name, 'SELECT pid FROM pg_stat_replication');
	kill 'STOP', @pids;
	return @pids;
}

# A test that is ended from outside cleans up, too.
$SIG{TERM} = $SIG{INT} = sub { exit 1 };

END
{
	my $status = $?;
	for my $self (@all)
	{
		$self->stop_clients(1);
		for my $name (@names)
		{
			my $pid = $self->{members}{$name}{pid} or next;
			kill 'KILL', $pid;
			waitpid $pid, 0;
		}
		for my $name (@names) { my @pids = $self->freeze_if_there($name); kill 'KILL', @pids; }
	}
	$? = $status;
}

sub freeze_if_there { my ($self, $name) = @_; return $self->postmaster($name) ? $self->freeze($name) : (); }

# Runs a statement on a member. Dies if it fails.
sub sql
{
	my ($self, $name, $sql) = @_;
	my ($out, $error) = $self->try_sql($name, $sql);
	die "$name: $sql: $error" if !defined $out;
	return $out;
}

sub try_sql
{
	my ($self, $name, $sql) = @_;
	local $ENV{PGCONNECT_TIMEOUT} = 2;
	my ($out, $error) = ('', '');
	my $went_well = eval {
		IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $self->conninfo($name), '-c', $sql ], '<', \'', '>', \$out, '2>', \$error,
			IPC::Run::timeout(60)) };
	chomp $out;
	return $went_well ? ($out, '') : (undef, $error);
}

sub conninfo { my ($self, $name) = @_; return "host=127.0.0.1 port=${\ $self->port($name)} user=postgres dbname=postgres"; }

sub takes_writes { my ($self, $name) = @_; my ($out) = $self->try_sql($name, 'SELECT NOT pg_is_in_recovery()'); return ($out // '') eq 't'; }

# The name of the member that has the lock in etcd; '' if none has it.
sub leader
{
	my ($self) = @_;
	my $read = $self->{etcd}->call('/v3/kv/range', { key => encode_base64('/service/shop/leader', '') });
	return $read && $read->{kvs} ? decode_base64($read->{kvs}[0]{value}) : '';
}

# Waits until a member other than these has the lock and takes writes. Returns its name.
sub wait_for_primary
{
	my ($self, @not) = @_;
	my $name;
	wait_until('a primary', sub { my $leader = $self->leader; $name = $leader; return $leader ne '' && !(grep { $_ eq $leader } @not) && $self->takes_writes($leader) })
	  or die 'no primary';
	return $name;
}

# Waits until there is a primary that two standbys follow, without lag. Returns its name.
# A member that has been primary for a moment may never follow: pg_rewind finds nothing to
# do before its first checkpoint. Nor may one that has followed such a primary. As an
# administrator would, this function makes it anew.
sub wait_until_whole
{
	my ($self) = @_;
	my %before = map { $_ => length $self->log_of($_) } @names;
	wait_until('two standbys', sub {
		return 1 if $self->is_whole;
		for my $name (@names)
		{
			my $log = substr $self->log_of($name), $before{$name};
			next if 5 > (() = $log =~ /is behind recovery timeline|is not a child of database system timeline|forked off current database system timeline/g);
			diag("$name cannot follow, and is made anew");
			$self->ctl("reinit shop $name --force --wait");
			$before{$name} = length $self->log_of($name);
		}
		return 0; }) or die 'the cluster does not come back';
	return $self->leader;
}

sub is_whole
{
	my ($self) = @_;
	my $name = $self->leader or return 0;
	my ($out) = $self->try_sql($name, q{SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn >= sent_lsn - 100000});
	return ($out // '') eq '2' && $self->takes_writes($name) && !grep { $_ ne 'running' } $self->states;
}

# The states of all members, as Patroni shows them.
sub states
{
	my ($self) = @_;
	for my $name (grep { $self->{members}{$_}{pid} } @names)
	{
		my $answer = HTTP::Tiny->new(timeout => 2)->get("http://127.0.0.1:$self->{members}{$name}{api}/cluster");
		next if !$answer->{success};
		my @members = @{ decode_json($answer->{content})->{members} };
		return @members == @names ? map { $_->{state} } @members : 'absent';
	}
	return 'unknown';
}

# Whether the members have told each other their addresses, which failsafe_mode needs.
sub is_failsafe
{
	my ($self) = @_;
	my $read = $self->{etcd}->call('/v3/kv/range', { key => encode_base64('/service/shop/failsafe', '') });
	return $read && $read->{kvs} && 3 == keys %{ decode_json(decode_base64($read->{kvs}[0]{value})) };
}

# Runs patronictl; returns what it prints. The arguments are those of a shell, as the
# documentation shows them.
sub ctl
{
	my ($self, $line, $input) = @_;
	my $out = '';
	my ($name) = grep { $self->{members}{$_}{pid} } @names;
	my $went_well = IPC::Run::run([ 'sh', '-c', "exec timeout 120 patronictl -c $self->{members}{$name}{yml} $line" ], '<', \($input // ''), '>', \$out, '2>&1');
	note("patronictl $line\n$out");
	return wantarray ? ($went_well, $out) : ($went_well || die "patronictl $line: $out");
}

# Runs lines of the shell, in which patronictl has the configuration of a member.
sub shell
{
	my ($self, $lines) = @_;
	my $out = '';
	my ($name) = grep { $self->{members}{$_}{pid} } @names;
	my $went_well = IPC::Run::run([ 'sh', '-ec', "patronictl() { command timeout 120 patronictl -c $self->{members}{$name}{yml} \"\$@\"; }\n$lines" ], '<', \'', '>', \$out, '2>&1');
	note("$lines\n$out");
	return $went_well || die "$lines: $out";
}

# Makes a member primary, or another than before. Returns its name.
sub switchover
{
	my ($self, $candidate) = @_;
	my $leader = $self->wait_until_whole;
	$candidate //= ($self->others($leader))[0];
	# A member that has just come may not be a candidate yet.
	wait_until("a switchover to $candidate", sub { $self->leader eq $candidate || ($self->ctl("switchover shop --leader $leader --candidate $candidate --force"))[0] }) or die 'no switchover';
	return $self->wait_for_primary($leader);
}

# Makes another member primary as soon as one follows; the former primary may not follow
# yet. Asks Patroni without patronictl, which takes longer to start than a switchover.
sub switchover_at_once
{
	my ($self) = @_;
	my $leader = $self->wait_for_primary;
	wait_until('a switchover', sub {
		my $now = $self->leader;
		return 1 if $now ne $leader && $now ne '';
		my ($names) = $self->try_sql($leader, q{SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'});
		my ($candidate) = split /\n/, $names // '';
		return $candidate && HTTP::Tiny->new(timeout => 30)->post("http://127.0.0.1:$self->{members}{$leader}{api}/switchover",
			{ content => encode_json({ leader => $leader, candidate => $candidate }) })->{success}; }) or die 'no switchover';
	return $self->wait_for_primary($leader);
}

# Clients. Each is a process that inserts rows one after the other and notes what it
# gets, one line each:
#   I time number id    an ID that was acknowledged, of the row with this number
#   P time              a row without an ID that was acknowledged
#   O time              the server takes writes (a client of one member)
#   E time state text   an error
# A client of all members connects to the first that takes writes, as libpq does.

sub start_clients
{
	my ($self) = @_;
	my @rotated = @names;
	for my $number (1 .. 3)
	{
		$self->start_client("any$number", 'insert', @rotated);
		push @rotated, shift @rotated;
	}
	$self->start_client('plain', 'plain', @rotated);
	$self->start_client("only_$_", 'probe', $_) for @names;
	return;
}

my $run = 0;

sub start_client
{
	my ($self, $name, $kind, @members) = @_;
	$run++;
	my $file = "$self->{folder}/$name.$run";
	my $source = sprintf 'dbi:Pg:dbname=postgres;user=postgres;host=%s;port=%s;connect_timeout=2%s', join(',', map { '127.0.0.1' } @members),
	  join(',', map { $self->port($_) } @members), @members > 1 ? ';target_session_attrs=read-write' : '';
	append_to_file($file, '');
	defined(my $pid = fork) or die "fork: $!";
	if ($pid == 0)
	{
		$SIG{TERM} = $SIG{INT} = 'DEFAULT';
		eval { client("$name.$run", $kind, $source, $file); 1 } or print {*STDERR} $@;
		POSIX::_exit(1);
	}
	push @{ $self->{clients} }, { name => $name, writer => "$name.$run", kind => $kind, pid => $pid, file => $file };
	return;
}

# What a client does, for ever.
sub client
{
	my ($writer, $kind, $source, $file) = @_;
	open my $out, '>>', $file or die "$file: $!";
	my $say = sub { syswrite $out, join(' ', $_[0], sprintf('%.3f', time), @_[1 .. $#_]) . "\n"; };
	my ($dbh, $is_open);
	my $number = 0;
	while (1)
	{
		my $went_well = eval {
			$dbh //= DBI->connect($source, '', '', { RaiseError => 1, PrintError => 0, AutoCommit => 1, AutoInactiveDestroy => 1 });
			if ($kind eq 'probe' && !$is_open)
			{
				my ($recovering) = ask($dbh, 'SELECT pg_is_in_recovery()');
				if ($recovering) { sleep 0.02; return 1; }
				$is_open = 1;
				$say->('O');
			}
			if ($kind eq 'plain')
			{
				ask($dbh, 'INSERT INTO plain (writer) VALUES (?) RETURNING writer', $writer);
				$say->('P');
			}
			else
			{
				$number++;
				my ($id) = ask($dbh, 'INSERT INTO events (writer, number) VALUES (?, ?) RETURNING id', $writer, $number);
				$say->('I', $number, $id) if defined $id;
			}
			sleep 0.005;
			1 };
		next if $went_well;
		my ($error, $state) = ("$@", $DBI::state // '');
		$say->('E', $state || '?????', $error =~ s/\s+/ /gr);
		if ($error =~ /^no answer/)
		{
			# To end a connection in an orderly way, DBD::Pg would wait for the server.
			$dbh->{InactiveDestroy} = 1;
			POSIX::close($dbh->{pg_socket});
			undef $dbh;
		}
		elsif (!$dbh || $state !~ /^(?:55|58|22|23|25)/)
		{
			eval { $dbh->disconnect } if $dbh;
			undef $dbh;
		}
		$is_open = 0;
		sleep 0.02;
	}
	return;
}

# Returns the row of a statement, or dies if there is no answer in time.
sub ask
{
	my ($dbh, $sql, @values) = @_;
	my $statement = $dbh->prepare_cached($sql, { pg_async => DBD::Pg::PG_ASYNC(), pg_server_prepare => 0 }, 3);
	$statement->execute(@values);
	my $until = time + $patience;
	until ($dbh->pg_ready)
	{
		my $left = $until - time;
		die "no answer within $patience s\n" if $left <= 0;
		vec(my $bits = '', $dbh->{pg_socket}, 1) = 1;
		select $bits, undef, undef, $left;
	}
	$dbh->pg_result;
	my @row = $statement->fetchrow_array;
	$statement->finish;
	return @row;
}

sub stop_clients
{
	my ($self, $is_end) = @_;
	for my $client (@{ $self->{clients} })
	{
		kill 'KILL', $client->{pid};
		waitpid $client->{pid}, 0;
		$self->read_client($client) if !$is_end;
	}
	$self->{clients} = [];
	return;
}

# Reads what a client has noted since it was last read.
sub read_client
{
	my ($self, $client) = @_;
	open my $in, '<', $client->{file} or die "$client->{file}: $!";
	seek $in, $client->{offset} // 0, 0;
	while (my $line = <$in>)
	{
		last if $line !~ /\n/;
		$client->{offset} = tell $in;
		my ($what, $time, @rest) = split ' ', $line, 4;
		push @{ $client->{events} }, [ $what, $time, @rest ];
		next if $what ne 'I';
		my ($number, $id) = split ' ', "@rest";
		$self->{of_scenario}++;
		$self->found($id, "$client->{writer} $number", 'acknowledged');
	}
	return;
}

# Notes that a row has an ID. A row of a lost primary is found in two places, and counts
# once; two rows with one ID are a duplicate.
sub found
{
	my ($self, $id, $row, $where) = @_;
	my $known = $self->{seen}{$id} //= $row;
	return if $known eq $row;
	push @{ $self->{twice} }, "$id: $known, and $row ($where)";
	return;
}

# Collects the rows of all members that answer.
sub collect_rows
{
	my ($self) = @_;
	for my $name (@names)
	{
		my ($rows) = $self->try_sql($name, q{COPY (SELECT id, writer, number FROM events) TO STDOUT (DELIMITER ' ')});
		next if !defined $rows;
		for (split /\n/, $rows) { my ($id, $row) = split / /, $_, 2; $self->found($id, $row, "a row of $name"); }
	}
	return;
}

# All IDs that were found so far.
sub found_ids { return keys %{ $_[0]{seen} }; }

# Says that from now on, IDs may be issued twice, and a scenario is to find that.
sub expect_duplicates { $_[0]{may_repeat} = 1; return; }

# How many of the IDs that were found so far a member has no row of.
sub lost
{
	my ($self, $name) = @_;
	my %rows = map { $_ => 1 } split /\n/, $self->sql($name, 'SELECT id FROM events');
	return scalar grep { !$rows{$_} } keys %{ $self->{seen} };
}

# The events of a kind that clients of one member have noted so far.
sub noted
{
	my ($self, $name, $kind) = @_;
	my ($client) = grep { $_->{name} eq "only_$name" } @{ $self->{clients} };
	my @events = slurp_file($client->{file}) =~ /^$kind /mg;
	return scalar @events;
}

# Waits until each of these members has issued IDs, from now on.
sub wait_for_ids_of
{
	my ($self, $what, @members) = @_;
	my %before = map { $_ => $self->noted($_, 'I') } @members;
	return wait_until("IDs of @members: $what", sub { !grep { $self->noted($_, 'I') < $before{$_} + 10 } @members });
}

# Waits until each client that can reach a primary has got IDs again, issued from now on.
sub wait_for_ids
{
	my ($self, $what) = @_;
	my %before = map { $_->{writer} => -s $_->{file} } @{ $self->{clients} };
	for my $client (grep { $_->{kind} eq 'insert' } @{ $self->{clients} })
	{
		wait_until("IDs of $client->{name}: $what", sub { substr(slurp_file($client->{file}), $before{ $client->{writer} }) =~ /(?:^|\n)(?:I[^\n]*\n){5}/ });
	}
	return;
}

# Runs a scenario, with clients all the time, and adds a line to the table: IDs,
# duplicates, the longest time of a client without an ID, the same of the client that
# inserts without IDs, and the longest time between "takes writes" and the first ID.
sub scenario
{
	my ($self, $what, $code) = @_;
	note("scenario: $what");
	$self->{of_scenario} = 0;
	my $twice = @{ $self->{twice} };
	$self->start_clients if !@{ $self->{clients} };
	$self->wait_for_ids("before: $what");
	my $from = time;
	$_->{events} = [] for @{ $self->{clients} };
	$code->();
	$self->wait_for_ids("after: $what");
	my $to = time;
	$self->read_client($_) for @{ $self->{clients} };
	$self->collect_rows;
	my (%gap, %errors, @first);
	for my $client (@{ $self->{clients} })
	{
		my @events = grep { $_->[1] >= $from } @{ $client->{events} };
		$errors{ $_->[2] }++ for grep { $_->[0] eq 'E' } @events;
		if ($client->{kind} eq 'probe')
		{
			my $open;
			for (@events)
			{
				if ($_->[0] eq 'O') { $open = $_->[1] if !defined $open; }
				elsif ($_->[0] eq 'I') { push @first, $_->[1] - $open if defined $open; undef $open; }
				# What ends before its first ID is not counted: that member stops again.
				elsif ($_->[0] eq 'E' && $_->[2] !~ /^(?:55|58)/) { undef $open; }
			}
			next;
		}
		my @times = map { $_->[1] } grep { $_->[0] =~ /^[IP]/ } @events;
		my $last = $from;
		for (@times, $to) { $gap{ $client->{kind} } = max($gap{ $client->{kind} } // 0, $_ - $last); $last = $_; }
	}
	my $ours = sum0(map { $errors{$_} } grep { /^(?:55|58)/ } keys %errors);
	my @line = ($what, $self->{of_scenario}, @{ $self->{twice} } - $twice, sprintf('%.1f', $gap{insert}), sprintf('%.1f', $gap{plain}),
		@first ? sprintf('%.2f', max @first) : '-', $ours);
	push @{ $self->{table} }, \@line;
	note(join ' | ', @line);
	note('errors: ' . join ', ', map { "$_: $errors{$_}" } sort keys %errors);
	my @twice = @{ $self->{twice} }[ $twice .. $#{ $self->{twice} } ];
	return cmp_ok(scalar @twice, '>', 0, "$what: IDs are issued twice") if $self->{may_repeat};
	is($errors{23505} // 0, 0, "$what: no insert meets an ID that is there");
	is(scalar @twice, 0, "$what: $self->{of_scenario} IDs, none twice") or diag join "\n", splice @twice, 0, 10;
	return;
}

# Prints the table of all scenarios.
sub print_table
{
	my ($self, $title) = @_;
	diag("$title\n| scenario | IDs | twice | without an ID | without a row | first ID after | errors |\n" . join "\n", map { '| ' . join(' | ', @$_) . ' |' } @{ $self->{table} });
	return;
}

1;
