# Runs an episode of the torture test in which servers lease their worker IDs from a
# registry. Servers, their keepers and the registry are killed, frozen, copied, promoted
# and kept apart, with clocks that differ. torture/Schedule.pm draws the faults,
# torture/Grants.pm checks every ID. Here it is checked that
#   - the first ID after a start or a promotion comes soon, if the registry is there and
#     has a worker ID for the server,
#   - in the end each pool serves as many servers as it has worker IDs, without help.
package torture::Leases;

use strict;
use warnings;
use Fcntl qw(O_CREAT O_WRONLY);
use List::Util qw(min);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time sleep);
use Leases ();
use torture::Grants;

# A server that can have a worker ID issues IDs again within this time, in seconds. It
# is no measure of speed: grace periods, holds and waits add up to less.
use constant PATIENCE => 60;

# The first ID after a start comes within this time, in seconds. On top of it comes ten
# times what another ID takes by the same way, since a busy machine is slow there too.
use constant SOON => 2;
use constant EXCUSE => 10;

# So many copies of servers are made in an episode.
use constant COPIES => 3;

# Servers are made once, for their ports; the data directories are those of an episode.
my %made;
sub node { my ($name) = @_; return $made{$name} //= PostgreSQL::Test::Cluster->new($name); }

# Arguments: schedule, dir (for files), template (a data directory), temp (for clocks).
sub new
{
	my ($class, %episode) = @_;
	return bless {
		%episode, away => 0, era => 1, stepped => 0, launched => 0, copies => 0, servers => [], clients => {}, clock => {},
		grants => torture::Grants->new, failures => [], logs => [], faults => {}, firsts => []
	}, $class;
}

sub failed { my ($self, $text) = @_; push @{ $self->{failures} }, $text; return 0; }

sub run
{
	my ($self) = @_;
	my $began = $self->{began} = time;
	my $s = $self->{schedule};
	eval {
		$self->begin;
		for my $f (@{ $s->{faults} })
		{
			sleep $f->{after};
			printf "## %.3f %s\n", time - $began, $f->{kind};
			$self->strike($f);
			printf "## %.3f %s done\n", time - $began, $f->{kind};
		}
		sleep 0.5;
		$self->resume;
		1;
	} or $self->failed("the episode ended early: $@");
	printf "## %.3f end\n", time - $began;
	eval { $self->end; 1; } or $self->failed("the episode did not end well: $@");
	$self->{grants}->check;
	printf "## %.3f checked\n", time - $began;
	return;
}

# ---- Servers

sub conf { my ($node, @lines) = @_; return $node->append_conf('postgresql.conf', join "\n", @lines); }

# Takes the data directory of the template.
sub copy_template
{
	my ($self, $name, @settings) = @_;
	my $node = node($name);
	push @{ $self->{logs} }, $node->rotate_logfile;
	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', $self->{template}, $node->data_dir);
	conf($node, 'port = ' . $node->port, "fsync = $self->{schedule}{fsync}", 'autovacuum = off', @settings);
	return $node;
}

# Takes a base backup of a server that runs.
sub back_up
{
	my ($self, $from, $name, @settings) = @_;
	my $node = node($name);
	push @{ $self->{logs} }, $node->rotate_logfile;
	my @command = ('pg_basebackup', '-D', $node->data_dir, '-h', $from->host, '-p', $from->port, '-c', 'fast', '--no-sync');
	PostgreSQL::Test::Utils::system_log(@command) == 0 or die "no base backup of " . $from->name;
	conf($node, 'port = ' . $node->port, @settings);
	return $node;
}

# Sets the clock of a server, by its distance from the machine's clock in seconds. The
# file is written in place, since servers have it mapped.
sub set_clock
{
	my ($self, $node, $offset) = @_;
	$self->{clock}{ $node->name } = $offset;
	my $name = $self->{temp} . '/' . $node->name . '.clock';
	sysopen my $file, $name, O_WRONLY | O_CREAT or die "$name: $!";
	syswrite $file, pack('q2', $offset * 1e9, 0);
	close $file or die "$name: $!";
	return;
}

sub start
{
	my ($self, $node) = @_;
	local $ENV{LD_PRELOAD} = $ENV{CLOCK_LIBRARY};
	local $ENV{TORTURE_CLOCK} = $self->{temp} . '/' . $node->name . '.clock';
	my $until = time + PATIENCE;
	while (!$node->start(fail_ok => 1))
	{
		die $node->name . ' does not start' if time > $until;
		sleep 0.2;
	}
	return;
}

sub stop
{
	my ($node, $how) = @_;
	return Leases::kill_all($node) if $how eq 'kill';
	local $ENV{PGCTLTIMEOUT} = PATIENCE / 2;
	$node->stop($how, fail_ok => $how eq 'fast') or $node->stop('immediate');
	return;
}

# Returns the process IDs of a server's children of one kind.
sub children
{
	my ($node, $kind) = @_;
	my @found;
	for my $line (split /\n/, `ps -o pid=,args= --ppid $node->{_pid}`)
	{
		push @found, $1 if $line =~ /^\s*(\d+) postgres: (?:\w+: )?$kind/;
	}
	return @found;
}

# Waits, and returns whether the condition came true.
sub await
{
	my ($check) = @_;
	my $until = time + PATIENCE;
	while (!$check->())
	{
		return 0 if time > $until;
		sleep 0.05;
	}
	return 1;
}

# Returns the answer of a server, without the last end of line; undef if there is none.
sub ask
{
	my ($node, $sql) = @_;
	my ($out, $error, $late) = ('', '', 0);
	my $status = eval { $node->psql('a', $sql, stdout => \$out, stderr => \$error, timeout => PATIENCE, timed_out => \$late) };
	# A psql that gets no connection may end before it is given the statement.
	die $@ if $@ && $@ !~ /Broken pipe/;
	return !$late && defined $status && $status == 0 ? $out : undef;
}

# The registry has noticed that leases may be lost when its era is greater than before.
sub era { my ($node) = @_; return ask($node, 'SELECT DISTINCT era FROM snowflake_pools') // die 'no era at ' . $node->name; }
sub term { my ($self) = @_; my $s = $self->{schedule}; return ($s->{patience_ms} + $s->{hold_ms}) / 1000; }

sub begin
{
	my ($self) = @_;
	my $s = $self->{schedule};
	my @clocks = @{ $s->{clocks} };
	my $registry = $self->{registry} = $self->copy_template('registry', q{snowflake_id.worker_id = ''});
	$self->{registries} = [$registry];
	$self->set_clock($registry, shift @clocks);
	$self->start($registry);
	my $terms = join ', ', map { "$_ => '$s->{\"${_}_ms\"} ms'" } qw(lease hold max_ahead);
	my $end = 100 + $s->{pool_size};
	defined ask($registry, <<"END") or die 'no registry';
SELECT snowflake_create_pool('main', '[100,$end)', $terms);
SELECT snowflake_create_pool('claimed', '[40,41)', $terms);
SELECT snowflake_create_pool('other', '[200,220)', $terms);
-- What the registry has stored, in the transactions that store it.
CREATE TABLE stored (LIKE _snowflake.leases, n bigint GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION note_stored() RETURNS trigger LANGUAGE plpgsql AS \$\$
BEGIN
	INSERT INTO public.stored SELECT NEW.*;
	RETURN NULL;
END \$\$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON _snowflake.leases
	FOR EACH ROW EXECUTE FUNCTION note_stored();
END
	if ($s->{fails_over})
	{
		my $heir = $self->{heir} = $self->back_up($registry, 'heir', q{primary_conninfo = '} . $registry->connstr . q{'});
		$heir->append_conf('standby.signal', '');
		$self->set_clock($heir, $self->{clock}{registry});
		$self->start($heir);
		push @{ $self->{registries} }, $heir;
	}
	my @hosts = @{ $self->{registries} };
	$self->{conninfo} = join ' ', 'host=' . join(',', map { $_->host } @hosts), 'port=' . join(',', map { $_->port } @hosts), 'dbname=a';
	for my $n (1 .. $s->{leasing} + $s->{claimants})
	{
		my ($pool, $fixed) = $n > $s->{leasing} ? ('claimed', '40') : ('main', '');
		my $node = $self->copy_template("n$n", "snowflake_id.worker_id = '$fixed'", "snowflake_id.registry = '$self->{conninfo}'",
			"snowflake_id.pool = '$pool'", "snowflake_id.reserve_ahead = '$s->{reserve_ms} ms'");
		$self->set_clock($node, shift @clocks);
		my $server = { node => $node, name => "n$n", pool => $pool };
		push @{ $self->{servers} }, $server;
		$self->start($node);
		# It goes back with the clock, and the server takes its next worker ID. One with a number of its own cannot.
		defined ask($node, q{SELECT snowflake_create_generator('queued', 'preset=default on_rollback=next_worker')})
		  or die 'no generator';
		$self->launch($server);
	}
	return;
}

# ---- Clients

my %groups;

# Starts the clients of a server, which take IDs all the time and connect again when they
# must: one of the default generator, and one of the generator that goes back with the clock.
sub launch
{
	my ($self, $server) = @_;
	my $scripts = $self->{schedule}{clients};
	$self->launch_client($server, $server->{name}, $scripts->[ $self->{launched} % @$scripts ]);
	$self->launch_client($server, "q$server->{name}", $self->{schedule}{queue_client}) if $server->{pool} ne 'claimed';
	return;
}

sub launch_client
{
	my ($self, $server, $name, $script) = @_;
	my $file = "$self->{dir}/$name." . ++$self->{launched};
	append_to_file("$file.sql", "\\set VERBOSITY verbose\n$script");
	append_to_file($_, '') for "$file.out", "$file.err";
	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		setpgrp 0, 0;
		open STDIN,  '<', '/dev/null';
		open STDOUT, '>>', "$file.out";
		open STDERR, '>>', "$file.err";
		$ENV{PGCONNECT_TIMEOUT} = 5;
		exec 'sh', '-c', 'while kill -0 "$3"; do psql -XAtq -f "$1" "$2"; sleep 0.1; done', 'client', "$file.sql",
		  $server->{node}->connstr('a'), getppid
		  or POSIX::_exit(127);
	}
	$groups{$pid} = 1;
	$self->{clients}{$name} = { pid => $pid, file => $file };
	return;
}

sub end_client
{
	my ($self, $server) = @_;
	for my $name ($server->{name}, "q$server->{name}")
	{
		my $client = delete $self->{clients}{$name} or next;
		kill 'KILL', -$client->{pid};
		waitpid $client->{pid}, 0;
		delete $groups{ $client->{pid} };
		$self->{grants}->read_client($server->{node}->data_dir, $client->{file});
	}
	return;
}

END
{
	my $status = $?;
	kill 'KILL', map { -$_ } keys %groups;
	$? = $status;
}

# Returns how many answers the client of a server has got.
sub answers
{
	my ($self, $server) = @_;
	my @lines = slurp_file("$self->{clients}{ $server->{name} }{file}.out") =~ /^I/mg;
	return scalar @lines;
}

my $draw = q{SELECT 'I', array_agg(snowflake_nextval()) FROM generate_series(1, 5)};

# Draws IDs; returns whether there were any.
sub draw
{
	my ($self, $server) = @_;
	my $out = ask($server->{node}, $draw) // return 0;
	$self->{grants}->receive($server->{node}->data_dir, "draw.$server->{name}." . ++$self->{launched}, $out);
	return 1;
}

# Returns whether the registry serves, and has a worker ID for this server: its own, or
# more free ones than there are servers without one.
sub is_servable
{
	my ($self, $server) = @_;
	# A registry whose clock was set may show a worker ID as free that its server renews.
	return 0 if $self->{away} || time - $self->{stepped} < $self->term + 1;
	my $pool = $server->{pool};
	my @there = map { $_->{node}->data_dir } grep { $_->{pool} eq $pool } @{ $self->{servers} };
	my $all = join ', ', map { "'$_'" } @there;
	my $own = $server->{node}->data_dir;
	my $has = q{w.pool = p.pool AND w.state IN ('leased', 'expired') AND w.data_directory};
	my $answer = ask($self->{registry}, <<"END") // '';
SELECT grace_until IS NULL AND era >= $self->{era}, free, (SELECT count(*) FROM snowflake_workers AS w WHERE $has = '$own'),
	(SELECT count(DISTINCT w.data_directory) FROM snowflake_workers AS w WHERE $has IN ($all))
FROM snowflake_pools AS p WHERE p.pool = '$pool'
END
	my ($serves, $free, $is_own, $served) = split /\|/, $answer;
	return ($serves // '') eq 't' && ($is_own > 0 || $free > @there - $served - 1);
}

# Takes the first ID of a server that has come up, if it must come soon.
sub first_id
{
	my ($self, $server, $what) = @_;
	my $node = $server->{node};
	await(sub { (ask($node, 'SELECT NOT pg_is_in_recovery()') // '') eq 't' })
	  or return $self->failed("$server->{name} accepts no connections after $what");
	my $from = time;
	return if !$self->is_servable($server);
	my $asked = time;
	await(sub { $self->draw($server) }) or return $self->failed("no ID of $server->{name} within " . PATIENCE . " s after $what");
	my $took = time - $from;
	my $again = time;
	$self->draw($server);
	$again = time - $again;
	push @{ $self->{firsts} }, { took => $took, what => $what };
	printf "## first ID of %s after %.2f s, another one in %.2f s\n", $server->{name}, $took, $again;
	$self->failed(sprintf 'the first ID of %s came %.2f s after %s; another one took %.2f s', $server->{name}, $took, $what, $again)
	  if $took > SOON + EXCUSE * $again;
	return;
}

# ---- Faults

sub victim
{
	my ($f, @from) = @_;
	return @from ? $from[ int($f->{victim} * @from) ] : undef;
}

# Servers that are neither stopped nor frozen.
sub running { my ($self) = @_; return grep { !$_->{frozen} } @{ $self->{servers} }; }

my %fault;

sub strike
{
	my ($self, $f) = @_;
	# Only servers of this pool move to the other one.
	my $server = victim($f, grep { $f->{kind} ne 'reload' || $_->{pool} eq 'main' } $self->running);
	return if !$server || $f->{kind} =~ /^(copy|promote)$/ && $self->{copies} == COPIES;
	printf "## %s of %s\n", $f->{kind}, $server->{name};
	$fault{ $f->{kind} }->($self, $f, $server);
	$self->{faults}{ $f->{kind} . ($f->{how} ? " ($f->{how})" : '') }++;
	return;
}

sub within
{
	my ($self, $f) = @_;
	my $until = time + $f->{for};
	if ($f->{within}) { sleep $f->{within}{after}; $self->strike($f->{within}); }
	my $left = $until - time;
	sleep $left if $left > 0;
	return;
}

sub down
{
	my ($self, $f, $server, $how) = @_;
	stop($server->{node}, $how);
	sleep $f->{for};
	$self->start($server->{node});
	return $self->first_id($server, $f->{kind});
}

# Kills a process of a server, and waits until the server has begun its crash restart.
sub crash
{
	my ($self, $f, $server, $kind) = @_;
	my $node = $server->{node};
	my ($checkpointer) = children($node, 'checkpointer');
	my ($pid) = children($node, $kind) or return;
	kill 'KILL', $pid;
	await(sub { my ($other) = children($node, 'checkpointer'); $other && $other != $checkpointer })
	  or return $self->failed("$server->{name} makes no crash restart");
	return $self->first_id($server, $f->{kind});
}

# Adds a server beside the one it is a copy of.
sub add
{
	my ($self, $from, $node) = @_;
	$self->set_clock($node, $self->{clock}{ $from->{name} });
	my $server = { node => $node, name => $node->name, pool => $from->{pool} };
	push @{ $self->{servers} }, $server;
	return $server;
}

sub remove
{
	my ($self, $server, $how) = @_;
	@{ $self->{servers} } = grep { $_ != $server } @{ $self->{servers} };
	stop($server->{node}, $how);
	$self->end_client($server);
	return;
}

# Returns the name of the next copy of a server.
sub copy_name
{
	my ($self) = @_;
	return 'n' . ($self->{schedule}{leasing} + $self->{schedule}{claimants} + ++$self->{copies});
}

sub keep
{
	my ($self, $f, $original, $copy) = @_;
	$self->launch($copy);
	sleep 0.5;
	$self->remove($original, $f->{ends}) if $f->{stays} eq 'copy';
	$self->remove($copy, $f->{ends}) if $f->{stays} eq 'original';
	return;
}

%fault = (
	kill_server => sub { down(@_, 'kill'); },
	immediate => sub { down(@_, 'immediate'); },
	restart => sub { down(@_, 'fast'); },
	kill_keeper => sub { crash(@_, 'snowflake_id keeper'); },
	kill_backend => sub { crash(@_, '.*\[local\]'); },
	terminate_keeper => sub { kill 'TERM', children($_[2]{node}, 'snowflake_id keeper'); },
	# A server crashes every second.
	crash_loop => sub {
		my ($self, $f, $server) = @_;
		for (1 .. $f->{rounds})
		{
			my $next = time + 1;
			stop($server->{node}, 'immediate');
			$self->start($server->{node});
			$self->first_id($server, 'crash_loop');
			my $left = $next - time;
			sleep $left if $left > 0;
		}
	},
	registry_away => sub {
		my ($self, $f) = @_;
		my $registry = $self->{registry};
		$self->{away} = 1;
		if ($f->{how} eq 'freeze')
		{
			my @frozen = Leases::freeze($registry);
			$self->within($f);
			Leases::thaw(@frozen);
		}
		else
		{
			stop($registry, $f->{how});
			$self->within($f);
			$self->start($registry);
		}
		$self->{away} = 0;
	},
	# The standby of the registry, which has received nothing for a while, is promoted.
	registry_fails_over => sub {
		my ($self, $f) = @_;
		my ($registry, $heir) = ($self->{registry}, $self->{heir});
		await(sub { children($heir, 'walreceiver') }) or return $self->failed('the standby of the registry does not follow');
		conf($heir, q{primary_conninfo = ''});
		$heir->reload;
		await(sub { !children($heir, 'walreceiver') }) or return $self->failed('the standby of the registry still follows');
		$self->within($f);
		$self->{away} = 1;
		$self->{era} = era($heir) + 1;
		stop($registry, $f->{how});
		$heir->promote;
		$self->{registry} = $heir;
		$self->{away} = 0;
	},
	# A whole server stands still, as a machine that is suspended.
	freeze => sub {
		my ($self, $f, $server) = @_;
		my @frozen = Leases::freeze($server->{node});
		$server->{frozen} = 1;
		$self->within($f);
		Leases::thaw(@frozen);
		$server->{frozen} = 0;
	},
	copy => sub {
		my ($self, $f, $server) = @_;
		my $name = $self->copy_name;
		if ($f->{how} eq 'runs')
		{
			my $copy = $self->add($server, $self->back_up($server->{node}, $name));
			$self->start($copy->{node});
			$self->first_id($copy, 'a copy of a server that runs');
			return $self->keep($f, $server, $copy);
		}
		stop($server->{node}, $f->{how});
		my $node = node($name);
		push @{ $self->{logs} }, $node->rotate_logfile;
		PostgreSQL::Test::Utils::system_or_bail('cp', '-a', $server->{node}->data_dir, $node->data_dir);
		unlink $node->data_dir . '/postmaster.pid';
		conf($node, 'port = ' . $node->port);
		my $copy = $self->add($server, $node);
		for my $next ($f->{first} eq 'copy' ? ($copy, $server) : ($server, $copy))
		{
			$self->start($next->{node});
			$self->first_id($next, $next == $copy ? 'a copy of a server that was stopped' : 'the original of a copy');
		}
		$self->keep($f, $server, $copy);
	},
	# A standby is promoted while its primary goes on.
	promote => sub {
		my ($self, $f, $server) = @_;
		my $name = $self->copy_name;
		my $node = $self->back_up($server->{node}, $name, q{primary_conninfo = '} . $server->{node}->connstr . q{'});
		$node->append_conf('standby.signal', '');
		my $copy = $self->add($server, $node);
		$self->start($node);
		$node->promote;
		$self->first_id($copy, 'promotion');
		$self->keep($f, $server, $copy);
	},
	reload => sub {
		my ($self, $f, $server) = @_;
		for my $pool ('other', 'main')
		{
			conf($server->{node}, "snowflake_id.pool = '$pool'");
			$server->{node}->reload;
			$server->{pool} = $pool;
			sleep $f->{for} if $pool eq 'other';
		}
	},
	step => sub {
		my ($self, $f, $server) = @_;
		my $node = $f->{at_registry} ? $self->{registry} : $server->{node};
		my $widest = $self->{schedule}{widest_ms} / 1000;
		my $now = $self->{clock}{ $node->name };
		my $to = $now + $f->{by};
		$to = $now - $f->{by} if abs($to) > $widest;
		$self->set_clock($node, $to);
		# Leases may end at once.
		$self->{stepped} = time if $f->{at_registry};
	});

# ---- The end

# Waits until as many servers of each pool have new IDs as the pool has worker IDs.
# Returns the servers that have them.
sub resumed
{
	my ($self, $what) = @_;
	my %size = (main => $self->{schedule}{pool_size}, claimed => 1, other => 20);
	my %before = map { $_->{name} => $self->answers($_) } @{ $self->{servers} };
	my (@has, $missing);
	my $from = time;
	my $enough = await(sub {
		@has = grep { $self->answers($_) > $before{ $_->{name} } + 5 } @{ $self->{servers} };
		$missing = '';
		for my $pool (sort keys %size)
		{
			my $of = sub { return scalar grep { $_->{pool} eq $pool } @_; };
			my ($are, $should) = ($of->(@has), min($size{$pool}, $of->(@{ $self->{servers} })));
			$missing .= " pool $pool: $are of $should;" if $are < $should;
		}
		return $missing eq ''; });
	printf "## IDs have resumed after %.2f s, %s\n", time - $from, $what;
	return @has if $enough;
	$self->failed('not all servers that can have IDs had them within ' . PATIENCE . " s, $what:$missing");
	for my $server (@{ $self->{servers} })
	{
		my $why = ask($server->{node}, 'SELECT worker_id, source, pool, bound, leased_until, last_contact, last_error, clock_timestamp() FROM snowflake_worker');
		$self->failed("$server->{name}: " . ($why // 'no answer') . ', ' . $self->answers($server) . ' answers');
	}
	$self->failed('the registry: ' . (ask($self->{registry}, 'SELECT pool, worker_id, state, data_directory, leased_until, bound FROM snowflake_workers; '
		. 'SELECT pool, free, grace_until, grace_because, stopped_since, clock_timestamp() FROM snowflake_pools') // 'no answer'));
	return @has;
}

sub resume
{
	my ($self) = @_;
	my @has = grep { $_->{pool} eq 'main' } $self->resumed('when the faults were over');
	my @all = grep { $_->{pool} eq 'main' } @{ $self->{servers} };
	return if @all == @has || !@has;
	# A server that waits gets the worker ID of one that stops.
	$self->remove($has[0], 'fast');
	$self->resumed('when a server of a small pool was stopped');
	return;
}

# Stops all servers, half of them by a crash, and reads what the registries have stored.
sub end
{
	my ($self) = @_;
	$self->end_client($_) for @{ $self->{servers} };
	my $n = 0;
	stop($_->{node}, $n++ % 2 ? 'fast' : 'immediate') for @{ $self->{servers} };
	printf "## %.3f servers stopped\n", time - $self->{began};
	for my $registry (@{ $self->{registries} // [] })
	{
		$self->start($registry) if !defined $registry->{_pid};
		my $rows = ask($registry, <<'END') // die 'no answer from ' . $registry->name;
SELECT worker_id, lease ->> 'counter', lease ->> 'nonce', lease #>> '{holder,data_directory}', lease ->> 'floor', lease ->> 'bound', (lease ->> 'released')::boolean::int
FROM stored ORDER BY n
END
		$self->{grants}->stored($_) for split /\n/, $rows;
		$registry->stop('immediate');
	}
	for my $node (values %made)
	{
		$node->stop('immediate') if defined $node->{_pid};
		PostgreSQL::Test::Utils::system_log('rm', '-rf', $node->data_dir);
	}
	return;
}

1;
