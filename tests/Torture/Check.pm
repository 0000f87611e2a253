# Holds what clients received in an episode of the torture test against what
# the README promises, and no more than that.
#
# Clock readings of the server become instants of the machine again by way of
# the history of settings; where two settings could have given one reading, the
# more lenient one counts.
#
# How far an ID may be ahead (upper bound). The generator's clock may have led
# the machine's by at most the sum of
#   - the largest setting of either server's clock so far, refused ones left out,
#   - the largest snowflake_advance() so far,
#   - per start at the mark, what a mark is ahead of the clock: the window, the
#     100 ms borrowed, a tick. Starts are restarts and crashes, and every time a
#     client may have rewritten the sequence, counted when its session began,
#   - per promotion, failover_gap for each switch of timelines until then,
# and the ID by another 100 ms borrowed. That leads shrink at half speed is left
# out: an episode lasts seconds.
#
# How far behind (lower bound): a step forward is followed at the next
# reservation, and the window in force is used up after twice its length at half
# speed. So an ID is not before the lowest setting within that time.
package Torture::Check;

use strict;
use warnings;
use List::Util qw(max min sum0);

use constant EPOCH_MS  => 1735689600000;
use constant BORROW_MS => 100;
use constant TICK_MS   => 1;

# The value of a sequence that holds no mark.
use constant NO_MARK => 9223372036854775807;

# Readings are rounded to milliseconds, and the machine's clock is disciplined.
use constant ROUNDING_MS => 20;

# How often a rewrite of the sequence and its end may unsettle a generator.
use constant STARTS_PER_REWRITE => 4;

# What clients may meet when servers are killed under them.
my %allowed = map { $_ => 1 } qw(
  00000 22012 25006 25P01 25P02 26000 34000 3B001 40P01 55P03 57014 57P01 57P02 57P03);
my $lost = qr/
	  connection\ to\ server\ (was\ lost|on\ socket)
	| server\ closed\ the\ connection\ unexpectedly
	| could\ not\ (receive|send)\ data
	| the\ database\ system\ is
	| terminating\ connection
	| no\ connection\ to\ the\ server/x;
my $more = qr/^(?:DETAIL|HINT|CONTEXT|LOCATION|STATEMENT|QUERY|LINE \d+|Process \d+|PL\/pgSQL|SQL |\s|$)/;

# history: settings of the clock, in order: since and until (in force at least
# from until on), offset, refused. starts: when servers were about to start
# anew. gaps: { at, ms }. refusals: { from, until }.
sub new
{
	my ($class, %episode) = @_;
	my $self = bless { %episode, ids => 0, bad => {}, text => [] }, $class;
	my $s = $self->{schedule};
	$self->{window} = max($s->{reserve_ms}, map { $_->{reserve_ms} // 0 } @{ $s->{faults} });
	$self->{follow} = (2 * ($self->{window} + BORROW_MS + TICK_MS) + ROUNDING_MS) / 1000;
	return $self;
}

sub violation
{
	my ($self, $kind, $text) = @_;
	push @{ $self->{text} }, "$kind: $text" if $self->{bad}{$kind}++ < 5;
	return;
}

sub run
{
	my ($self) = @_;
	$self->read_session($_) for @{ $self->{sessions} };
	$self->unique;
	$self->above_earlier_lives;
	return;
}

# Instants of the machine at which a clock can have shown a reading.
sub machine_times
{
	my ($self, $session, $ms) = @_;
	return $session->{times}{$ms} //= do
	{
		my @times;
		my $history = $self->{history};
		for my $n (0 .. $#$history)
		{
			my $at = $ms / 1000 - $history->[$n]{offset} - $session->{clock};
			my $until = $n < $#$history ? $history->[ $n + 1 ]{until} : 9e9;
			push @times, $at
			  if $at > max($history->[$n]{since}, $session->{launched}) - 0.1
			  && $at < min($until, $session->{ended}) + 0.1;
		}
		\@times;
	};
}

sub lowest
{
	my ($self, $session, $from, $until) = @_;
	my $history = $self->{history};
	return $session->{clock} + min(map { $history->[$_]{offset} } grep {
		$history->[$_]{since} <= $until
		  && ($_ == $#$history || $history->[ $_ + 1 ]{until} >= $from)
	} 0 .. $#$history);
}

sub largest_lead_ms
{
	my ($self, $at) = @_;
	my $s = $self->{schedule};
	my $start = $self->{window} + BORROW_MS + TICK_MS;
	my @sessions = grep { $_->{launched} <= $at } @{ $self->{sessions} };
	my $starts = (grep { $_ <= $at } @{ $self->{starts} })
	  + STARTS_PER_REWRITE * sum0(map { $_->{rewrites} } @sessions);
	return 1000 * (
		max(map { $_->{offset} } grep { !$_->{refused} && $_->{since} <= $at } @{ $self->{history} })
		+ max(0, $s->{standby_clock})
		+ max(0, map { $_->{advance} } @sessions))
	  + $start * $starts
	  + sum0(map { $_->{ms} } grep { $_->{at} <= $at } @{ $self->{gaps} })
	  + BORROW_MS + TICK_MS + ROUNDING_MS;
}

sub read_session
{
	my ($self, $session) = @_;
	$self->read_errors($session);
	my $text = $session->{out};
	# A line without an end was not received.
	$text =~ s/[^\n]*\z//;
	my (@restarted, $last, $latest);
	my %bounds;
	for my $line (split /\n/, $text)
	{
		my ($tag, @field) = split /\|/, $line;
		$tag //= '';
		if ($tag eq 'S')
		{
			@$session{qw(life worker)} = @field[ 0, 1 ];
			$session->{began} = $self->machine_times($session, $field[2]);
			next;
		}
		next if $tag eq 'A';
		if ($tag eq 'M')
		{
			$self->violation('mark', "$session->{name}: ID $last at or past the mark $field[0]")
			  if time_of($last) >= $field[0] || $field[0] == NO_MARK;
			next;
		}
		if ($tag eq 'V')
		{
			$self->violation('currval', "$session->{name}: $field[0] after $last") if $field[0] != $last;
			next;
		}
		if ($tag !~ /^[IRX]$/ || @field != 3 || $line !~ /^.\|\d+\|\d+\|\d+$/)
		{
			$self->violation('output', "$session->{name}: $line");
			next;
		}
		my ($id, $from, $to) = @field;
		$self->{ids}++;
		my $bounds = $bounds{"$from $to"} //= $self->bounds($session, $from, $to);
		my $at = time_of($id);
		if (!$bounds->[0])
		{
			$self->violation('reading', "$session->{name}: $line is no reading of the clock");
		}
		elsif ($at < $bounds->[0])
		{
			$self->violation('early', "$session->{name}: $line is " . int($bounds->[0] - $at) . ' ms before its time');
		}
		elsif ($at > $bounds->[1])
		{
			$self->violation('ahead', "$session->{name}: $line is " . int($at - $bounds->[1])
				  . ' ms further ahead of its time than anything explains');
		}
		# Unknown where the session was cancelled before it could tell.
		$self->violation('worker', "$session->{name}: $line has worker ID " . ($id >> 12 & 1023))
		  if $session->{worker} >= 0 && ($id >> 12 & 1023) != $session->{worker};
		if ($tag ne 'X')
		{
			$self->violation('order', "$session->{name}: $id after $latest") if defined $latest && $id <= $latest;
			$latest = $id;
		}
		$last = $id;
		if ($tag eq 'R') { push @restarted, $id; next; }
		if ($tag eq 'X') { push @{ $session->{undone} }, $id; next; }
		# Somebody has taken an ID since the restart of the sequence.
		push @{ $session->{ids} }, splice(@restarted), $id;
	}
	return;
}

sub bounds
{
	my ($self, $session, $from, $to) = @_;
	my @from = @{ $self->machine_times($session, $from) };
	my @to   = @{ $self->machine_times($session, $to) };
	# A cursor's transaction may have begun before its session was noticed.
	return [ 0, 0 ] if !@from || !@to;
	my $until = max(@to);
	return [
		min(map { 1000 * ($_ + $self->lowest($session, $_ - $self->{follow}, $until)) } @from) - ROUNDING_MS,
		max(map { 1000 * $_ + $self->largest_lead_ms($_ + 0.1) } @to)
	];
}

sub time_of { return ($_[0] >> 22) + EPOCH_MS; }

# What is known to happen is counted, all else is a violation.
sub read_errors
{
	my ($self, $session) = @_;
	my $s = $self->{schedule};
	my $refused = grep { $_->{from} <= $session->{ended} && $_->{until} >= $session->{launched} } @{ $self->{refusals} };
	# One that is made and rolled back needs room too.
	my $crowded = $s->{max_generators} <= @{ $s->{databases} };
	my $recreated = $s->{recreates} eq $session->{database};
	for my $line (split /\n/, $session->{err})
	{
		next if $line =~ $more;
		if ($line =~ /(ERROR|FATAL|PANIC|WARNING|NOTICE):\s+([0-9A-Z]{5}):\s+(.*)/)
		{
			my ($code, $text) = ($2, $3);
			$self->{codes}{$code}++;
			next if $allowed{$code} && $1 ne 'PANIC';
			next if $code eq '58000' && $refused;
			next if $code eq '53400' && $crowded;
			# The clock was stepped between the call's instant and the call.
			next if $code eq '22008' && $text =~ /^cannot advance/;
			next if $code =~ /^(42704|55000)$/ && $text =~ /^prepared transaction with identifier/;
			# Opened before the savepoint, failed after it.
			next if $code eq '55000' && $text =~ /^portal "c" cannot be run/;
			# PostgreSQL does not lock what GRANT changes.
			next if $code eq 'XX000' && $text =~ /^tuple concurrently (updated|deleted)/;
			next if $recreated && ($code =~ /^(42883|42704|42P01)$/
				|| $code eq 'XX000' && $text =~ /^(cache lookup failed|could not open relation)/);
		}
		elsif ($line =~ $lost) { $self->{codes}{'connection lost'}++; next; }
		$self->violation('error', "$session->{name}: $line");
	}
	return;
}

# A generator's IDs through everything; those of two databases, and of a
# generator that came or went, while the server runs.
sub unique
{
	my ($self) = @_;
	my (%generator, %life);
	for my $session (@{ $self->{sessions} })
	{
		my $lasting = $session->{database} ne $self->{schedule}{recreates};
		my $life = $session->{life} ? ($life{ $session->{life} } //= {}) : undef;
		for my $id (@{ $session->{ids} })
		{
			if ($lasting && defined(my $other = $generator{ $session->{database} }{$id}))
			{
				$self->violation('duplicate', "$id in $session->{name} and $other");
			}
			$generator{ $session->{database} }{$id} = $session->{name} if $lasting;
		}
		next if !$life;
		for my $id (@{ $session->{ids} }, @{ $session->{undone} })
		{
			$self->violation('duplicate', "$id in $session->{name} and $life->{$id}, in one life of the server")
			  if exists $life->{$id};
			$life->{$id} = $session->{name};
		}
	}
	return;
}

# A generator starts at its mark, and all its IDs lie before the mark: what it
# gives later is above what it gave before a restart.
sub above_earlier_lives
{
	my ($self) = @_;
	my %lives;
	for my $session (grep { $_->{life} && @{ $_->{ids} // [] } && @{ $_->{began} } } @{ $self->{sessions} })
	{
		next if $session->{database} eq $self->{schedule}{recreates};
		my $life = $lives{"$session->{database} $session->{worker}"}{ $session->{life} } //=
		  { first => 9e18, last => 0, from => 9e18, until => 0 };
		$life->{first} = min($life->{first}, $session->{ids}[0]);
		$life->{last}  = max($life->{last}, $session->{ids}[-1]);
		$life->{from}  = min($life->{from}, @{ $session->{began} });
		$life->{until} = max($life->{until}, @{ $session->{began} });
	}
	for my $generator (sort keys %lives)
	{
		my @lives = sort { $a->{from} <=> $b->{from} } values %{ $lives{$generator} };
		for my $later (1 .. $#lives)
		{
			for my $earlier (grep { $_->{until} < $lives[$later]{from} } @lives[ 0 .. $later - 1 ])
			{
				$self->violation('overlap',
					"$generator: $lives[$later]{first} after a restart, $earlier->{last} before")
				  if $lives[$later]{first} <= $earlier->{last};
			}
		}
	}
	return;
}

1;
