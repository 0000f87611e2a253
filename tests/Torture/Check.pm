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
#   - per start at the mark, what a mark is ahead of the clock: the window, what
#     may be borrowed, two ticks. Starts are restarts and crashes, and every time
#     a client may have rewritten the sequence or changed the label, counted when
#     its session began,
#   - with few slots, where generators start again in any transaction, what may
#     be borrowed and four ticks for each, and the time that has passed: a window
#     grows no faster,
#   - per promotion, failover_gap for each switch of timelines until then,
# and the ID by what may be borrowed. That leads shrink at half speed is left out:
# an episode lasts seconds.
#
# How far behind (lower bound): a step forward is followed at the next
# reservation, and the window in force is used up after twice its length at half
# speed. So an ID is not before the lowest setting within that time.
#
# What label an ID was made by is told by its time: the epochs of one generator
# are 40 days apart, and the clocks never are.
package Torture::Check;

use strict;
use warnings;
use List::Util qw(max min sum0 uniqnum);
use POSIX ();

my %default = (
	name => '',
	fields => [ [ 'time', 41, 'time' ], [ 'worker', 10, 'worker' ], [ 'sequence', 12, 'sequence' ] ],
	tick => 1,
	increases => 1,
	labels => [ { epoch => 1735689600000, wider => 0, borrow => 100 } ]);

# A time further from now is of another epoch.
use constant EPOCH_RANGE_MS => 20 * 86_400_000;

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
	my $self = bless { %episode, bad => {}, seen => { map { $_ => 0 } 'IDs', 'of named generators', 'of extra generators', 'confirmed by a commit', 'epochs left behind' }, text => [] }, $class;
	my $s = $self->{schedule};
	$self->{window} = max($s->{reserve_ms}, map { $_->{reserve_ms} // 0 } @{ $s->{faults} });
	$self->{crowded} = $s->{max_generators} < 100;
	$self->{generator}{''} = $self->generator(\%default);
	$self->{generator}{"$_->{database} $_->{name}"} = $self->generator($_) for @{ $s->{generators} };
	$self->{extra} = [ map { $self->generator($_) } @{ $s->{extras} } ];
	return $self;
}

# What there is to know of a generator: where its fields lie, how far it may be
# ahead and behind.
sub generator
{
	my ($self, $spec) = @_;
	my $tick = $spec->{tick};
	my $borrow = max(map { $_->{borrow} } @{ $spec->{labels} });
	my $window = $tick * POSIX::ceil($self->{window} / $tick);
	my %g = (
		name => $spec->{name},
		tick => $tick,
		increases => $spec->{increases},
		epochs => [ reverse uniqnum(sort { $a <=> $b } map { $_->{epoch} } @{ $spec->{labels} }) ],
		borrow => $borrow,
		start => $window + $borrow + 2 * $tick,
		follow => (2 * ($window + $borrow + 2 * $tick) + ROUNDING_MS) / 1000,
		reversed => 0,
		worker => [],
		fixed_mask => 0,
		fixed => 0);
	my $shift = 0;
	for my $field (reverse @{ $spec->{fields} })
	{
		my ($bits, $role, $value) = @$field[ 1 .. 3 ];
		# What is above a time on top is 0 until it is wider.
		$bits += max(map { $_->{wider} } @{ $spec->{labels} }) if $role eq 'time';
		my $mask = $bits == 64 ? ~0 : (1 << $bits) - 1;
		@g{qw(time_shift time_mask time_bits)} = ($shift, $mask, $bits) if $role =~ /^(time|reversed)$/;
		$g{reversed} = 1 if $role eq 'reversed';
		@g{qw(sequence_shift sequence_mask sequence_bits)} = ($shift, $mask, $bits) if $role eq 'sequence';
		push @{ $g{worker} }, [ $shift, $mask, $bits ] if $role eq 'worker';
		if ($role eq 'fixed') { $g{fixed_mask} |= $mask << $shift; $g{fixed} |= $value << $shift; }
		$shift += $bits;
	}
	$g{above} = $shift < 64 ? ~((1 << $shift) - 1) : 0;
	return \%g;
}

# The generator that a line names, and what its IDs are told apart by from those
# of others: extra ones are made and dropped under names that tell their label.
sub named
{
	my ($self, $session, $name) = @_;
	return $session->{named}{$name} //= do
	{
		my $lineage = $session->{lineage};
		my $g = $name eq '' ? $self->{generator}{''} : $self->{generator}{"$session->{database} $name"};
		$g ? [ $g, "$session->{database} $name" ]
		  : $name =~ /^x\d+_\d+_(\d+)$/ ? [ $self->{extra}[$1], "$session->{database} $name" ]
		  : $name =~ /^shared\.\d+$/ ? [ $self->{extra}[0], "$session->{database} $name $lineage" ]
		  : [];
	};
}

# Time in milliseconds, by which of its epochs, worker ID, sequence number; or
# what is wrong with the ID, which was received at about $now.
sub decode
{
	my ($g, $id, $now) = @_;
	return 'has bits that no label sets' if ($id & $g->{above}) || ($id & $g->{fixed_mask}) != $g->{fixed};
	my $tick = $id >> $g->{time_shift} & $g->{time_mask};
	$tick = oct('0b' . reverse sprintf("%0$g->{time_bits}b", $tick)) if $g->{reversed};
	my $worker = 0;
	my $bits = 0;
	for my $part (@{ $g->{worker} })
	{
		$worker |= ($id >> $part->[0] & $part->[1]) << $bits;
		$bits += $part->[2];
	}
	for my $rank (0 .. $#{ $g->{epochs} })
	{
		my $at = $g->{epochs}[$rank] + $tick * $g->{tick};
		return ($at, $rank, $worker, $id >> $g->{sequence_shift} & $g->{sequence_mask})
		  if abs($at - $now) < EPOCH_RANGE_MS;
	}
	return 'is of no time that a label could give';
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
	$self->one_label_at_a_time;
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
	my ($self, $at, $g) = @_;
	# Many IDs ask for about the same instant.
	$at = POSIX::ceil($at * 20) / 20;
	return $self->{lead}{ $g->{name} }{$at} //= do
	{
		my $s = $self->{schedule};
		my @sessions = grep { $_->{launched} <= $at } @{ $self->{sessions} };
		my $starts = (grep { $_ <= $at } @{ $self->{starts} })
		  + STARTS_PER_REWRITE * sum0(map { $_->{rewrites}{ $g->{name} } // 0 } @sessions);
		1000 * (
			max(map { $_->{offset} } grep { !$_->{refused} && $_->{since} <= $at } @{ $self->{history} })
			+ max(0, $s->{standby_clock})
			+ max(0, map { $_->{advance} } @sessions))
		  + $g->{start} * $starts
		  + ($self->{crowded} && $g->{name}
			? ($g->{borrow} + 4 * $g->{tick}) * sum0(map { $_->{transactions} } @sessions)
			+ 1000 * ($at - $self->{history}[0]{since})
			: 0)
		  + sum0(map { $_->{ms} } grep { $_->{at} <= $at } @{ $self->{gaps} })
		  + $g->{borrow} + $g->{tick} + ROUNDING_MS;
	};
}

sub read_session
{
	my ($self, $session) = @_;
	$self->read_errors($session);
	my $text = $session->{out};
	# A line without an end was not received.
	$text =~ s/[^\n]*\z//;
	# Of each generator: IDs that wait for word of a commit, and the last ones.
	my (%pending, %last, %latest);
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
		my ($count) = $tag =~ /^[IRX]$/ ? 3 : $tag eq 'D' ? 4 : $tag =~ /^[MV]$/ ? 1 : $tag =~ /^[BC]$/ ? 0 : -1;
		my $name = @field == $count + 1 ? pop @field : '';
		my ($g, $key) = @{ $self->named($session, $name) };
		if (@field != $count || !$g || grep { !/^-?\d+$/ } @field)
		{
			$self->violation('output', "$session->{name}: $line");
			next;
		}
		my $known = $session->{known}{$key} //= { generator => $g, name => $name, ids => [], ranks => [] };
		if ($tag eq 'B') { delete $pending{$key}; next; }
		if ($tag eq 'C')
		{
			my @waiting = @{ delete $pending{$key} // [] };
			$self->{seen}{'confirmed by a commit'} += @waiting;
			$self->confirm($known, @waiting);
			next;
		}
		if ($tag eq 'M')
		{
			my ($id, $at) = @{ $last{$key} };
			$self->violation('mark', "$session->{name}: ID $id at or past the mark $field[0]")
			  if $at >= $field[0] || $field[0] == NO_MARK;
			next;
		}
		if ($tag eq 'V')
		{
			$self->violation('currval', "$session->{name}: $field[0] after $last{$key}[0]") if $field[0] != $last{$key}[0];
			next;
		}
		my ($id, $from, $to) = @field;
		$self->{seen}{'IDs'}++;
		$self->{seen}{ $g->{name} =~ /^extra/ ? 'of extra generators' : 'of named generators' }++ if $name ne '';
		$to = $from if $tag eq 'D';
		my ($at, $rank, $worker, $sequence) = decode($g, $id, $to);
		if (!defined $rank)
		{
			$self->violation('label', "$session->{name}: $line $at");
			next;
		}
		if ($tag eq 'D')
		{
			$self->violation('decode', "$session->{name}: $line, which is $at, $worker, $sequence")
			  if $at != $from || $worker != $field[2] || $sequence != $field[3];
			next;
		}
		my $bounds = $bounds{"$from $to $name"} //= $self->bounds($session, $from, $to, $g);
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
		$self->violation('worker', "$session->{name}: $line has worker ID $worker")
		  if $session->{worker} >= 0 && $worker != $session->{worker};
		$last{$key} = [ $id, $at ];
		if ($tag eq 'X') { push @{ $session->{undone} }, $id; next; }
		# In the order of their positions, and where the layout says so of their
		# own.
		my $it = [ $id, $at, $sequence, $rank, $bounds ];
		if (my $before = $latest{$key})
		{
			# With another epoch the word is another one, and starts at the mark.
			my $is_later = $at > $before->[1] || $at == $before->[1] && $rank == $before->[3] && $sequence > $before->[2];
			$is_later &&= $id > $before->[0] if $g->{increases};
			$self->violation('order', "$session->{name}: $line after $before->[0]") if !$is_later;
		}
		$latest{$key} = $it;
		if ($tag eq 'R') { push @{ $pending{$key} }, $it; next; }
		# Somebody has taken an ID since the restart of the sequence.
		$self->confirm($known, @{ delete $pending{$key} // [] }, $it);
	}
	return;
}

# These IDs are as good as any.
sub confirm
{
	my ($self, $known, @its) = @_;
	for my $it (@its)
	{
		push @{ $known->{ids} }, $it->[0];
		my $position = [ @$it[ 1, 2 ] ];
		$known->{first} //= $position;
		$known->{last} = $position;
		my $seen = $known->{ranks}[ $it->[3] ] //= { received => 9e18, asked => 0 };
		my $bounds = $it->[4];
		$seen->{received} = min($seen->{received}, $bounds->[3]) if $bounds->[0];
		$seen->{asked} = max($seen->{asked}, $bounds->[2]) if $bounds->[0];
	}
	return;
}

# From the earliest to the latest that an ID's time can be; machine times between
# which it was made.
sub bounds
{
	my ($self, $session, $from, $to, $g) = @_;
	my @from = @{ $self->machine_times($session, $from) };
	my @to   = @{ $self->machine_times($session, $to) };
	# A cursor's transaction may have begun before its session was noticed.
	return [ 0, 0 ] if !@from || !@to;
	my $until = max(@to);
	return [
		min(map { 1000 * ($_ + $self->lowest($session, $_ - $g->{follow}, $until)) } @from) - ROUNDING_MS - $g->{tick},
		max(map { 1000 * $_ + $self->largest_lead_ms($_ + 0.1, $g) } @to),
		min(@from), max(@to)
	];
}

# What is known to happen is counted, all else is a violation.
sub read_errors
{
	my ($self, $session) = @_;
	my $s = $self->{schedule};
	my $refused = grep { $_->{from} <= $session->{ended} && $_->{until} >= $session->{launched} } @{ $self->{refusals} };
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
			next if $code eq '53400' && $self->{crowded};
			# The clock was stepped between the call's instant and the call.
			next if $code eq '22008' && $text =~ /^cannot advance/;
			next if $code =~ /^(42704|55000)$/ && $text =~ /^prepared transaction with identifier/;
			# Opened before the savepoint, failed after it.
			next if $code eq '55000' && $text =~ /^portal "c" cannot be run/;
			# PostgreSQL does not lock what GRANT changes.
			next if $code eq 'XX000' && $text =~ /^tuple concurrently (updated|deleted)/;
			# A label that this generator cannot get any more; one that gives no IDs
			# before it is committed.
			next if $code eq '55000' && $text =~ /^(cannot change the (layout|label) of generator g\d|generator g\d was given another layout)/;
			# Made and dropped by everybody.
			next if $code =~ /^(42P07|42P01)$/ && $text =~ /"shared"/;
			next if $code eq '23505' && $text =~ /"pg_(class_relname_nsp|type_typname_nsp)_index"/;
			next if $code eq '42P01' && $text =~ /^(sequence|relation) "x\d+_\d+_\d+" does not exist/;
			next if $code =~ /^(42704|42P01|XX000)$/ && $text =~ /^(cache lookup failed|could not open relation|relation with OID)/;
			next if $recreated && ($code =~ /^(42883|42704|42P01)$/
				|| $code eq 'XX000' && $text =~ /^(cache lookup failed|could not open relation)/);
		}
		elsif ($line =~ $lost) { $self->{codes}{'connection lost'}++; next; }
		$self->violation('error', "$session->{name}: $line");
	}
	return;
}

# A generator's IDs through everything; those that the default generators of two
# databases gave, and one that came or went, while the server runs.
sub unique
{
	my ($self) = @_;
	my (%generator, %life);
	for my $session (@{ $self->{sessions} })
	{
		my $lasting = $session->{database} ne $self->{schedule}{recreates};
		for my $key (sort keys %{ $session->{known} })
		{
			next if !$lasting;
			my $of = $generator{$key} //= {};
			for my $id (@{ $session->{known}{$key}{ids} })
			{
				$self->violation('duplicate', "$id of $key in $session->{name} and $of->{$id}") if exists $of->{$id};
				$of->{$id} = $session->{name};
			}
		}
		next if !$session->{life};
		my $life = $life{ $session->{life} } //= {};
		my $default = $session->{known}{"$session->{database} "};
		for my $id ($default ? @{ $default->{ids} } : (), @{ $session->{undone} })
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
	for my $session (grep { $_->{life} && @{ $_->{began} } } @{ $self->{sessions} })
	{
		next if $session->{database} eq $self->{schedule}{recreates};
		for my $key (sort keys %{ $session->{known} })
		{
			my $known = $session->{known}{$key};
			next if !$known->{first};
			my $life = $lives{"$key $session->{worker}"}{ $session->{life} } //=
			  { first => $known->{first}, last => $known->{last}, from => 9e18, until => 0 };
			$life->{first} = $known->{first} if later($life->{first}, $known->{first});
			$life->{last}  = $known->{last}  if later($known->{last}, $life->{last});
			$life->{from}  = min($life->{from}, @{ $session->{began} });
			$life->{until} = max($life->{until}, @{ $session->{began} });
		}
	}
	for my $generator (sort keys %lives)
	{
		my @lives = sort { $a->{from} <=> $b->{from} } values %{ $lives{$generator} };
		for my $later (1 .. $#lives)
		{
			for my $earlier (grep { $_->{until} < $lives[$later]{from} } @lives[ 0 .. $later - 1 ])
			{
				$self->violation('overlap',
					"$generator: @{ $lives[$later]{first} } after a restart, @{ $earlier->{last} } before")
				  if !later($lives[$later]{first}, $earlier->{last});
			}
		}
	}
	return;
}

sub later { my ($a, $b) = @_; return $a->[0] > $b->[0] || $a->[0] == $b->[0] && $a->[1] > $b->[1]; }

# Once there is an ID of an earlier epoch, nobody asks for one and gets one of a
# later epoch. Except that a promotion may have lost the label.
sub one_label_at_a_time
{
	my ($self) = @_;
	my %ranks;
	for my $session (@{ $self->{sessions} })
	{
		for my $key (sort keys %{ $session->{known} })
		{
			my $ranks = $session->{known}{$key}{ranks};
			for my $rank (grep { $ranks->[$_] } 0 .. $#$ranks)
			{
				my $seen = $ranks{"$key in lineage $session->{lineage}"}[$rank] //= { received => 9e18, asked => 0 };
				$seen->{received} = min($seen->{received}, $ranks->[$rank]{received});
				$seen->{asked} = max($seen->{asked}, $ranks->[$rank]{asked});
			}
		}
	}
	for my $key (sort keys %ranks)
	{
		my $ranks = $ranks{$key};
		$self->{seen}{'epochs left behind'} += grep({ $_ } @$ranks) - 1;
		for my $rank (grep { $ranks->[$_] } 1 .. $#$ranks)
		{
			for my $before (grep { $ranks->[$_] && $ranks->[$_]{asked} > $ranks->[$rank]{received} + ROUNDING_MS / 1000 } 0 .. $rank - 1)
			{
				$self->violation('label', sprintf('%s: an ID of a label %.3f s after one of the next label',
					$key, $ranks->[$before]{asked} - $ranks->[$rank]{received}));
			}
		}
	}
	return;
}

1;
