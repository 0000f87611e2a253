# Checks the IDs of servers that lease their worker IDs against what their registries
# have stored.
#
# A grant is a worker ID, the holder, a floor and a limit: the greatest bound that was
# ever stored for it, or the end that its release has stored. By the clock of its holder.
#   - No ID of a generator is issued twice, by whatever servers.
#   - Each ID is of a grant that its server had, from the floor, and before the limit. So
#     a server without a lease issues nothing.
#   - The grants of one worker ID do not overlap, also where a registry has lost some.
#   - The IDs of a session increase, whatever worker IDs its server has; those of a
#     generator that goes back with the clock, under one of these.
#   - Clients meet no other errors than those of servers that stop, or have no lease.
package torture::Grants;

use strict;
use warnings;
use List::Util qw(max min);
use PostgreSQL::Test::Utils;
use torture::Errors qw(errors is_usual);

# The default layout: the instant of tick 0 in Unix ms, and the place of its fields.
use constant EPOCH => 1735689600000;
use constant TIME_SHIFT => 22;
use constant WORKER_SHIFT => 12;
use constant WORKER_MASK => 1023;

sub new
{
	my ($class) = @_;
	return bless { ids => {}, last => {}, grant => {}, bad => {}, codes => {}, text => [], seen => { IDs => 0, 'IDs of generators that go back' => 0, 'grants of worker IDs' => 0, 'sessions of servers that lease' => 0 } }, $class;
}

sub violation
{
	my ($self, $kind, $text) = @_;
	push @{ $self->{text} }, "$kind: $text" if $self->{bad}{$kind}++ < 5;
	return;
}

# Takes in a line that a server, known by its data directory, has given to a session.
sub receive
{
	my ($self, $server, $session, $line) = @_;
	my ($kind, $list) = $line =~ /^([IQ])\|\{(\d+(?:,\d+)*)\}$/;
	return $self->violation('output', "$server: $line") if !defined $list;
	for my $id (split /,/, $list)
	{
		$self->{seen}{IDs}++;
		my $before = $self->{ids}{"$kind$id"};
		$self->violation('duplicate', "$id of $server and of $before") if defined $before;
		$self->{ids}{"$kind$id"} = $server;
		$self->{seen}{'IDs of generators that go back'}++ if $kind eq 'Q';
		# Where such a generator changes its worker ID, its IDs may go back.
		my $worker = $kind eq 'Q' ? $id >> WORKER_SHIFT & WORKER_MASK : '';
		my $last = \$self->{last}{"$session $worker"};
		$self->violation('order', "$id of $server after $$last") if defined $$last && $id <= $$last;
		$$last = $id;
	}
	return;
}

# Takes in what a client of a server got in all its sessions.
sub read_client
{
	my ($self, $server, $file) = @_;
	my $session = 0;
	for my $line (slurp_file("$file.out") =~ /([^\n]*)\n/g)
	{
		if ($line eq 'S') { $session++; $self->{seen}{'sessions of servers that lease'}++; }
		elsif ($line ne '') { $self->receive($server, "$file.$session", $line); }
	}
	for my $error (errors(slurp_file("$file.err")))
	{
		my ($code, $text) = ($error->{code} // 'connection lost', $error->{text} // '');
		$self->{codes}{$code}++;
		next if is_usual($error);
		next if $code eq '55000' && $text =~ /^(this server has no worker ID|generator \S+ issues no IDs, because the registry has not renewed the lease of this \w+)$/;
		next if $code eq '58000' && $text =~ /^clock moved backwards by / && ($error->{detail} // '') =~ /This server has got no worker ID from pool "\w+" that was not used at this time/;
		next if $code eq '55006' && $text =~ /^worker ID 40 belongs to another server$/;
		$self->violation('error', "$server: $error->{line} ($error->{detail})");
	}
	return;
}

# Takes in what a registry has stored of a worker ID, in the order of time.
sub stored
{
	my ($self, $line) = @_;
	my ($worker, $counter, $nonce, $server, $floor, $bound, $released) = split /\|/, $line;
	my $grant = $self->{grant}{$worker}{"$counter $nonce"} //= { server => $server, floor => $floor, bound => $bound, name => "$counter $nonce" };
	if ($released) { $grant->{end} = min($bound, $grant->{end} // $bound); }
	else { $grant->{bound} = max($bound, $grant->{bound}); }
	return;
}

sub limit { my ($grant) = @_; return $grant->{end} // $grant->{bound}; }

# Returns the violations.
sub check
{
	my ($self) = @_;
	my %of;
	for my $worker (sort keys %{ $self->{grant} })
	{
		my @grants = sort { $a->{floor} <=> $b->{floor} } values %{ $self->{grant}{$worker} };
		$self->{seen}{'grants of worker IDs'} += @grants;
		for my $n (0 .. $#grants)
		{
			my ($before, $grant) = @grants[ $n - 1, $n ];
			push @{ $of{"$worker $grant->{server}"} }, $grant;
			$self->violation('overlap', "worker ID $worker: $grant->{name} of $grant->{server} from $grant->{floor}, "
				. "$before->{name} of $before->{server} until " . limit($before))
			  if $n && $grant->{floor} < limit($before);
		}
	}
	for my $key (sort keys %{ $self->{ids} })
	{
		my ($id, $server) = (substr($key, 1), $self->{ids}{$key});
		my ($worker, $at) = ($id >> WORKER_SHIFT & WORKER_MASK, ($id >> TIME_SHIFT) + EPOCH);
		my $grants = $of{"$worker $server"};
		if (!$grants) { $self->violation('unleased', "$id of $server, under worker ID $worker"); next; }
		next if grep { $_->{floor} <= $at && $at < limit($_) } @$grants;
		$self->violation('bound', "$id of $server, under worker ID $worker, at $at; granted: "
			. join ', ', map { "$_->{floor} to " . limit($_) } @$grants);
	}
	return @{ $self->{text} };
}

1;
