# Checks what clients received in an episode of the torture test against the promises of
# the README, and against no more than these.
#
# The history of settings turns clock readings of the server into instants of the
# machine. Where two settings could have given one reading, the more lenient one counts.
#
# The first checks depend on the policy. An ID's line has a hash of the label that made
# the ID; the ID's own time confirms the label, since epochs of one generator are 40
# days apart and clocks never are.
#   - No ID is issued twice, whatever the policy.
#   - The IDs of one session are in the order of their positions; under
#     sequence_start=random in the order of their ticks; under
#     on_rollback=next_clock within each clock sequence. A later call, in any session,
#     gets no ID of an earlier tick. A start is on a fresh tick, above all earlier
#     IDs; under next_clock, above those of its clock sequence.
#   - A label of the generator must ask for each refusal, by no more than the clock
#     was set back in this life of the server: a start is no rollback. Where clock
#     sequences are known to be free, no refusal is for want of one; under
#     on_rollback=wait, none comes before max_wait.
#   - A call takes no longer than max_wait and a generous time on top.
#
# Upper bound, how far an ID may be ahead: the generator's clock may have led the
# machine's by at most the sum of
#   - the largest setting of either server's clock so far, without refused ones,
#   - the largest snowflake_advance() so far,
#   - for each start at the mark, what a mark is ahead of the clock: the window,
#     max_borrow, two ticks. Starts are restarts and crashes, and every time a client
#     may have rewritten the sequence or changed the label, counted from the beginning
#     of its session,
#   - with few slots, one more start of a generator other than the default one: once the
#     clock has passed all of its IDs, another generator may get its slot, and the next
#     ID is at the mark. Such starts do not add up, since a generator that is ahead of
#     the clock keeps its slot,
#   - for generators that come and go: max_borrow and four ticks for each start, and the
#     time that has passed, since a window grows no faster,
#   - for each promotion, failover_gap and max_borrow for each switch of timelines
#     until then, and once each time that marks lose their stamps,
# and the ID may have led the generator's clock by max_borrow. Nothing done to one
# generator moves another one; that includes the default generators of two databases.
# The bound ignores that leads shrink at half speed, since an episode lasts seconds. A
# generator that watches the wall clock does not lead by a rollback: once it has met the
# clock, it is ahead by at most max_borrow until it starts again.
#
# Lower bound, how far an ID may be behind: a generator follows a step forward at the
# next reservation, and uses up the window in force after twice its length at half
# speed. So an ID is not before the lowest setting within that time. A generator that
# watches the wall clock follows at once.
package torture::Check;

use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use List::Util qw(first max min sum0 uniqnum);
use POSIX ();
use torture::Errors qw(errors refusal is_usual);

my %default = (
	name => '',
	fields => [ [ 'time', 41, 'time' ], [ 'worker', 10, 'worker' ], [ 'sequence', 12, 'sequence' ] ],
	tick => 1,
	increases => 1,
	clock => 0,
	labels => [
		{
			text => '', epoch => 1735689600000, wider => 0, rollback => 'continue', max_rollback => 86_400_000,
			max_wait => 0, borrow => 100, exhausted => 'wait', start => 'vibrate 63'
		}
	]);

# A time further from now belongs to another epoch.
use constant EPOCH_RANGE_MS => 20 * 86_400_000;

# The bits of a mark's instant.
use constant INSTANT => 2**46 - 1;

# Readings are rounded to milliseconds, and the machine's clock is adjusted.
use constant ROUNDING_MS => 20;

# A call of a single ID that has nothing to wait for takes no longer, even on a very
# busy machine, in seconds. Without the generator's lock, each lock may take as long.
use constant GENEROUS => 4;
use constant LOCK_TIMEOUT => 3;

# This is how often a rewrite of the sequence and its end may restart a generator.
use constant STARTS_PER_REWRITE => 4;

# Arguments: history has the settings of the clock, in order: since, until (in force at
# least from since until then), offset, refused. starts: when servers were about to
# start anew. accepts: when a superuser had accepted the clock. gaps: { at, switches, ms
# }. refusals: { from, until }.
sub new
{
	my ($class, %episode) = @_;
	my $self = bless { %episode, map { $_ => {} } qw(bad codes seen by_policy refused) }, $class;
	$self->{text} = [];
	$self->{seen}{$_} = 0 for 'IDs', 'of named generators', 'of extra generators', 'confirmed by a commit',
	  'epochs left behind', 'calls timed', 'calls that took 20 ms';
	my $s = $self->{schedule};
	$self->{window} = max($s->{reserve_ms}, map { $_->{reserve_ms} // 0 } @{ $s->{faults} });
	$self->{crowded} = $s->{debug_slots} < 100;
	$self->{generator}{"$_->{database} $_->{name}"} = $self->generator($_) for @{ $s->{generators} };
	$self->{extra} = [ map { $self->generator($_) } @{ $s->{extras} } ];
	return $self;
}

# Returns what is known of a generator: the place of its fields, and how far it may be
# ahead and behind.
sub generator
{
	my ($self, $spec) = @_;
	my $tick = $spec->{tick};
	my $borrow = max(map { $_->{borrow} } @{ $spec->{labels} });
	my $window = $tick * POSIX::ceil($self->{window} / $tick);
	my %g = (
		name => $spec->{name},
		database => $spec->{database} // '',
		is_crowded => $self->{crowded} && $spec->{name} ne '',
		# Generators that come and go start anew with each subtransaction that is rolled
		# back.
		is_default => $spec->{name} eq '',
		is_extra => scalar($spec->{name} =~ /^extra/),
		tick => $tick,
		clocks => 2**$spec->{clock},
		increases => $spec->{increases},
		epochs => [ reverse uniqnum(sort { $a <=> $b } map { $_->{epoch} } @{ $spec->{labels} }) ],
		labels => $spec->{labels},
		label => { map { (substr(md5_hex($_->{text}), 0, 8) => $_) } @{ $spec->{labels} } },
		borrow => $borrow,
		start => $window + $borrow + 2 * $tick,
		follow => (2 * ($window + $borrow + 2 * $tick) + ROUNDING_MS) / 1000,
		reversed => 0,
		worker => [],
		fixed_mask => 0,
		fixed => 0);
	for my $label (@{ $g{labels} })
	{
		$label->{watches} = $label->{rollback} ne 'continue';
		$label->{changes} = $label->{rollback} eq 'next_clock';
		$label->{random} = $label->{start} eq 'random';
		# Labels that differ in these values never issue IDs in the same tick.
		$label->{scale} = join ' ', @$label{qw(epoch watches changes random)}, $label->{exhausted} eq 'next_clock';
	}
	my $shift = 0;
	for my $field (reverse @{ $spec->{fields} })
	{
		my ($bits, $role, $value) = @$field[ 1 .. 3 ];
		# Bits above a time field on top are 0 until the field is wider.
		$bits += max(map { $_->{wider} } @{ $spec->{labels} }) if $role eq 'time';
		my $mask = $bits == 64 ? ~0 : (1 << $bits) - 1;
		@g{qw(time_shift time_mask time_bits)} = ($shift, $mask, $bits) if $role =~ /^(time|reversed)$/;
		$g{reversed} = 1 if $role eq 'reversed';
		@g{qw(sequence_shift sequence_mask sequence_bits)} = ($shift, $mask, $bits) if $role eq 'sequence';
		@g{qw(clock_shift clock_mask)} = ($shift, $mask) if $role eq 'clock';
		push @{ $g{worker} }, [ $shift, $mask, $bits ] if $role eq 'worker';
		if ($role eq 'fixed') { $g{fixed_mask} |= $mask << $shift; $g{fixed} |= $value << $shift; }
		$shift += $bits;
	}
	$g{above} = $shift < 64 ? ~((1 << $shift) - 1) : 0;
	return \%g;
}

# Returns the generator that a line names, and a key for its IDs: extra generators are
# made and dropped under names that tell their label.
sub named
{
	my ($self, $session, $name) = @_;
	return $session->{named}{$name} //= do
	{
		my $lineage = $session->{lineage};
		my $default = $name =~ /^(?:default\.\d+)?$/;
		my $key = $default ? $session->{database} : "$session->{database} $name";
		$self->{generator}{$key} //= $self->generator({ %default, database => $session->{database} }) if $default;
		my $g = $self->{generator}{$key};
		$g ? [ $g, "$session->{database} $name" ]
		  : $name =~ /^x\d+_\d+_(\d+)$/ ? [ $self->{extra}[$1], "$session->{database} $name" ]
		  : $name =~ /^shared\.\d+$/ ? [ $self->{extra}[0], "$session->{database} $name $lineage" ]
		  : [];
	};
}

# Returns time in milliseconds, epoch, worker ID, sequence number and clock sequence; or
# the error in the ID, which was received at about $now.
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
		next if abs($at - $now) >= EPOCH_RANGE_MS;
		my $clock = $g->{clocks} > 1 ? $id >> $g->{clock_shift} & $g->{clock_mask} : 0;
		return ($at, $rank, $worker, $id >> $g->{sequence_shift} & $g->{sequence_mask}, $clock);
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
	$self->read_errors($_) for @{ $self->{sessions} };
	$self->unique;
	$self->no_lead_without_a_start;
	$self->above_earlier_calls;
	$self->above_earlier_lives;
	$self->one_label_at_a_time;
	return;
}

# Returns instants of the machine at which a clock can have shown a reading.
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

# Returns sessions in which a generator could be changed.
sub sessions_of
{
	my ($self, $g) = @_;
	return grep { $g->{database} eq '' || $_->{database} eq $g->{database} } @{ $self->{sessions} };
}

# Returns settings of a session's clock that may have been in force between two
# instants.
sub settings
{
	my ($self, $session, $from, $until) = @_;
	my $history = $self->{history};
	return map { $session->{clock} + $history->[$_]{offset} } grep {
		$history->[$_]{since} <= $until
		  && ($_ == $#$history || $history->[ $_ + 1 ]{until} >= $from)
	} 0 .. $#$history;
}

sub largest_lead_ms
{
	my ($self, $at, $g) = @_;
	# Many IDs have about the same instant.
	$at = POSIX::ceil($at * 20) / 20;
	return $self->{lead}{$g}{$at} //= do
	{
		my $s = $self->{schedule};
		my @sessions = grep { $_->{launched} <= $at } $self->sessions_of($g);
		my $starts = (grep { $_ <= $at } @{ $self->{starts} })
		  + STARTS_PER_REWRITE * sum0(map { $_->{rewrites}{ $g->{name} } // 0 } @sessions);
		my @offsets = map { $_->{offset} } grep { $_->{since} <= $at } @{ $self->{history} };
		1000 * (
			max(map { $_->{offset} } grep { !$_->{refused} && $_->{since} <= $at } @{ $self->{history} })
			# A promotion adds the time since the last commit, measured by clocks that
			# may have been set meanwhile.
			+ (grep { $_->{at} <= $at } @{ $self->{gaps} }) * (max(@offsets) - min(@offsets))
			+ max(0, $s->{standby_clock})
			+ max(0, map { $_->{advances}{ $g->{name} } ? 5 : 0 } @sessions))
		  + $g->{start} * ($starts + ($g->{is_crowded} ? 1 : 0) + ($g->{is_extra} ? STARTS_PER_REWRITE : 0))
		  + ($g->{is_extra}
			? ($g->{borrow} + 4 * $g->{tick}) * sum0(map { $_->{transactions} } @sessions)
			+ 1000 * ($at - $self->{history}[0]{since})
			: 0)
		  + sum0(map { $_->{ms} + $_->{switches} * $g->{borrow} } grep { $_->{at} <= $at } @{ $self->{gaps} })
		  + $g->{borrow} + $g->{tick} + ROUNDING_MS;
	};
}

# Number of columns of a line, by its tag, before the generator's name.
my %columns = (I => 3, R => 3, X => 3, D => 5, M => 1, V => 1, W => 1, B => 0, C => 0);

sub read_session
{
	my ($self, $session) = @_;
	my $text = $session->{out};
	# A line without an end was not received.
	$text =~ s/[^\n]*\z//;
	# These hold for each generator the last ID, the label, and the last ID in each
	# clock sequence; also the name of the default one, and IDs that wait for a commit.
	my (%last, %label, %latest);
	my ($default, @pending) = ('');
	my (%bounds, $timed);
	for my $line (split /\n/, $text)
	{
		if ($line =~ /^Time: ([\d.]+) ms/)
		{
			$self->check_wait($session, $1 / 1000, $timed) if $timed;
			undef $timed;
			next;
		}
		my ($tag, @field) = split /\|/, $line, -1;
		$tag //= '';
		if ($tag eq 'S')
		{
			@$session{qw(life worker)} = @field[ 0, 1 ];
			$session->{began} = $self->machine_times($session, $field[2]);
			next;
		}
		next if $tag eq 'A';
		my $count = $columns{$tag} // 99;
		my ($name, $hash) = splice @field, $count < @field ? $count : @field;
		$name //= '';
		$name = $default if $name eq '';
		$default = $name if $name =~ /^default\./;
		my ($g, $key) = @{ $self->named($session, $name) };
		if (@field != $count || !$g || grep { !/^-?\d+$/ } @field)
		{
			$self->violation('output', "$session->{name}: $line");
			next;
		}
		if ($tag eq 'W') { $timed = { g => $g, is_locked => $field[0] }; next; }
		if ($tag eq 'B') { @pending = (); next; }
		if ($tag eq 'C')
		{
			$self->{seen}{'confirmed by a commit'} += @pending;
			$self->confirm(@$_) for splice @pending;
			next;
		}
		my $known = $session->{known}{$key} //= { generator => $g, name => $name, ids => [], ranks => [], calls => [] };
		if ($tag eq 'M')
		{
			my ($id, $at) = @{ $last{$key} };
			my $mark = $g->{clocks} > 1 ? $field[0] & INSTANT : $field[0];
			$self->violation('mark', "$session->{name}: ID $id at or past the mark $field[0]")
			  if $at >= $mark;
			next;
		}
		if ($tag eq 'V')
		{
			$self->violation('currval', "$session->{name}: $field[0] after $last{$key}[0]") if $field[0] != $last{$key}[0];
			next;
		}
		my ($id, $from, $to) = @field;
		$self->{seen}{'IDs'}++;
		$self->{seen}{ $g->{is_extra} ? 'of extra generators' : 'of named generators' }++ if !$g->{is_default};
		$to = $from if $tag eq 'D';
		my ($at, $rank, $worker, $sequence, $clock) = decode($g, $id, $to);
		if (!defined $rank)
		{
			$self->violation('label', "$session->{name}: $line $at");
			next;
		}
		if ($tag eq 'D')
		{
			$self->violation('decode', "$session->{name}: $line, which is $at, $worker, $sequence, $clock")
			  if $at != $from || $worker != $field[2] || $sequence != $field[3] || $clock != $field[4];
			next;
		}
		my $label = $g->{is_default} ? $g->{labels}[0] : ($hash // '') eq '' ? $label{$key} : $g->{label}{$hash};
		if (!$label)
		{
			$self->violation('label', "$session->{name}: $line, a label that it was never given");
			next;
		}
		$label{$key} = $label;
		$timed->{label} = $label if $timed;
		$self->count_policy($label, $clock) if !$g->{is_default};
		$self->violation('label', "$session->{name}: $line is not of its label, $label->{text}")
		  if $g->{epochs}[$rank] != $label->{epoch};
		$self->violation('clock', "$session->{name}: $line is of clock $clock")
		  if $clock && !$label->{changes} && $label->{exhausted} ne 'next_clock';
		my $bounds = $bounds{"$from $to $name $label"} //= $self->bounds($session, $from, $to, $g, $label);
		if (!$bounds->{lower})
		{
			$self->violation('reading', "$session->{name}: $line is no reading of the clock");
		}
		elsif ($at < $bounds->{lower})
		{
			$self->violation('early', "$session->{name}: $line is " . int($bounds->{lower} - $at) . ' ms before its time');
		}
		elsif ($at > $bounds->{upper})
		{
			$self->violation('ahead', "$session->{name}: $line is " . int($at - $bounds->{upper})
				  . ' ms further ahead of its time than anything explains');
		}
		# The worker ID is unknown where the session was cancelled before it could print
		# the worker ID.
		$self->violation('worker', "$session->{name}: $line has worker ID $worker")
		  if $session->{worker} >= 0 && $worker != $session->{worker};
		$last{$key} = [ $id, $at ];
		next if $tag eq 'X';
		my $it = {
			id => $id, at => $at, clock => $clock, sequence => $sequence, rank => $rank,
			label => $label, bounds => $bounds
		};
		if ($label->{watches} && $bounds->{lower})
		{
			push @{ $known->{calls} }, $bounds if !$bounds->{line};
			$bounds->{line} = "$session->{name}: $line" if $at > ($bounds->{latest} // 0);
			$bounds->{latest} = max($at, $bounds->{latest} // 0);
			$bounds->{earliest} = min($at, $bounds->{earliest} // 9e18);
		}
		my $latest = $latest{$key} //= {};
		for my $before ($label->{changes} ? $latest->{$clock} // () : values %$latest)
		{
			$self->violation('order', "$session->{name}: $line after $before->{id}") if !follows($g, $it, $before);
		}
		$latest->{$clock} = $it;
		if ($tag eq 'R') { push @pending, [ $known, $it ]; next; }
		# An ID was taken since the restart of the sequence.
		my @confirmed = grep { $_->[0] == $known } @pending;
		@pending = grep { $_->[0] != $known } @pending;
		$self->confirm(@$_) for @confirmed, [ $known, $it ];
	}
	return;
}

# Returns whether an ID is later than another one, and is greater where the layout says
# so. Under another epoch or policy a generator may have another state word, and starts
# at the mark.
sub follows
{
	my ($g, $it, $before) = @_;
	if ($it->{at} == $before->{at})
	{
		return 0 if $it->{label}{scale} ne $before->{label}{scale};
		return $it->{id} != $before->{id} if $it->{label}{random};
		return 0 if $it->{clock} < $before->{clock};
		return 0 if $it->{clock} == $before->{clock} && $it->{sequence} <= $before->{sequence};
	}
	return $it->{at} >= $before->{at} && (!$g->{increases} || $it->{id} > $before->{id});
}

sub count_policy
{
	my ($self, $label, $clock) = @_;
	my $by_policy = $self->{by_policy};
	$by_policy->{"on_rollback=$label->{rollback}"}++;
	$by_policy->{"on_exhausted=$label->{exhausted}"}++;
	$by_policy->{'sequence_start=' . ($label->{start} =~ s/ .*//r)}++;
	$by_policy->{ 'max_borrow ' . ($label->{borrow} >= 1000 ? '>= 1 s' : $label->{borrow} ? '< 1 s' : '= 0') }++;
	$by_policy->{'both next_clock'}++ if $label->{changes} && $label->{exhausted} eq 'next_clock';
	$by_policy->{'not in clock 0'}++ if $clock;
	return;
}

# Checks how long a call of a single ID took.
sub check_wait
{
	my ($self, $session, $seconds, $timed) = @_;
	my $g = $timed->{g};
	# Where the call got no ID, any label may have been in force.
	my @labels = $timed->{label} // @{ $g->{labels} };
	my @borrow = map { $_->{borrow} } @{ $g->{labels} };
	# A generator that may borrow less waits for what it borrowed before, at half speed;
	# and other sessions may be faster, time and again, where a tick is soon exhausted.
	my $most = GENEROUS + (max(map { $_->{max_wait} } @labels) + 2 * (max(@borrow) - min(@borrow)) + 10 * $g->{tick}) / 1000;
	$most += 2 * LOCK_TIMEOUT if !$timed->{is_locked};
	$self->{seen}{'calls timed'}++;
	$self->{seen}{'calls that took 20 ms'}++ if $seconds >= 0.02;
	$self->violation('wait', "$session->{name}: one ID of $g->{name} took $seconds s") if $seconds > $most;
	return;
}

# From here on these IDs count as all others do.
sub confirm
{
	my ($self, $known, @its) = @_;
	for my $it (@its)
	{
		push @{ $known->{ids} }, $it->{id};
		my @reach = (@$it{qw(clock at at)}, $it->{label}{changes} ? () : $it->{at});
		note_reach($known->{reach} //= {}, @reach);
		push @{ $known->{all_calls} }, $it->{bounds} if !$it->{bounds}{reach};
		note_reach($it->{bounds}{reach} //= {}, @reach);
		my $seen = $known->{ranks}[ $it->{rank} ] //= { received => 9e18, asked => 0 };
		my $bounds = $it->{bounds};
		$seen->{received} = min($seen->{received}, $bounds->{until}) if $bounds->{lower};
		$seen->{asked} = max($seen->{asked}, $bounds->{from}) if $bounds->{lower};
	}
	return;
}

# Notes from when to when a clock sequence was used, and since when it has not changed.
sub note_reach
{
	my ($reach, $clock, $from, $until, $steady) = @_;
	my $its = $reach->{clock}{$clock} //= { from => $from, until => $until };
	$its->{from} = $from if $from < $its->{from};
	$its->{until} = $until if $until > $its->{until};
	$reach->{steady} = $steady if defined $steady && (!defined $reach->{steady} || $steady < $reach->{steady});
	return;
}

# Returns the earliest and latest time that an ID can have, and the machine times
# between which it was made. For a generator that watches the wall clock, also returns
# the latest time without a lead, and the largest lead that shows none; nothing if the
# clock was set meanwhile.
sub bounds
{
	my ($self, $session, $from, $to, $g, $label) = @_;
	my @from = @{ $self->machine_times($session, $from) };
	my @to   = @{ $self->machine_times($session, $to) };
	# A cursor's transaction may have begun before its session was noticed.
	return { lower => 0 } if !@from || !@to;
	my $until = max(@to);
	my $watches = $label->{watches};
	# A reading may be rounded past the end of its setting.
	my $follow = $watches ? ROUNDING_MS / 1000 : $g->{follow};
	my %bounds = (
		lower => min(map { 1000 * ($_ + min($self->settings($session, $_ - $follow, $until))) } @from) - ROUNDING_MS - $g->{tick},
		upper => max(map { 1000 * $_ + $self->largest_lead_ms($_ + 0.1, $g) } @to),
		from => min(@from),
		until => $until,
		session => $session->{name});
	if ($watches)
	{
		my @settings = $self->settings($session, $bounds{from} - 0.1, $until + 0.1);
		$bounds{without_lead} = 1000 * ($until + max(@settings)) + $g->{borrow} + $g->{tick} + ROUNDING_MS;
		$bounds{began} = $from if @from == 1 && @to == 1 && @settings == 1;
	}
	return \%bounds;
}

# Returns why no label asks for a refusal; nothing if one does.
sub unexpected
{
	my ($self, $session, $kind, $name, $by, $limit) = @_;
	$name =~ s/^other_//;
	$name = '' if $name eq 'snowflake_default';
	$name = 'shared.0' if $name eq 'shared';
	my ($g) = @{ $self->named($session, $name) } or return 'there is no such generator';
	my $changed = first { $_->{launched} <= $session->{ended} && $_->{relabels}{ $g->{name} } } $self->sessions_of($g);
	my @labels = $changed ? @{ $g->{labels} } : $g->{labels}[0];

	if ($kind eq 'on_exhausted=error') { @labels = grep { $_->{exhausted} eq 'error' } @labels; }
	elsif ($kind eq 'no clock free') { @labels = grep { $_->{changes} } @labels; }
	elsif ($kind =~ /^on_rollback=(error|wait)$/) { @labels = grep { $_->{rollback} eq $1 && $_->{max_wait} == $limit } @labels; }
	elsif ($kind eq 'rollback beyond max_rollback') { @labels = grep { $_->{watches} && $_->{max_rollback} == $limit } @labels; }
	# The time of an accepted clock comes on top of the limit.
	elsif ($kind =~ /^(start|lead) beyond/) { @labels = grep { $_->{max_rollback} <= $limit } @labels; }
	else { @labels = (); }
	return 'its label says nothing of that' if !@labels;
	return if !defined $by;
	return 'that is not beyond it' if $kind =~ /beyond/ && $by <= $limit;
	if ($kind =~ /^(start|lead) beyond/)
	{
		my $most = $self->largest_lead_ms($session->{ended} + 0.1, $g)
		  - 1000 * min($self->settings($session, $session->{launched}, $session->{ended})) + ROUNDING_MS;
		return $by > $most ? 'it cannot be so far ahead' : undef;
	}
	my $behind = $self->behind($session, $session->{launched}, $session->{ended});
	return sprintf('the clock was set back by %d ms', $behind) if $behind <= 0 || $by > $behind + ROUNDING_MS;
	# These steps came while the session ran: a second step may have come into its wait.
	my @steps = grep { $_->{since} >= $session->{launched} - 0.1 && $_->{since} <= $session->{ended} + 0.1 } @{ $self->{history} };
	$limit = min(map { $_->{max_wait} } @labels);
	return 'it could have waited'
	  if $by + 2 * ROUNDING_MS < $limit
	  && (!@steps || @steps == 1 && $self->behind($session, ($steps[0]{since} - 0.01) x 2) <= 0);
	return 'a clock was free' if $kind eq 'no clock free' && $self->must_find_a_clock($session, $g);
	return;
}

# Returns by how many milliseconds the clock was at most behind its earlier readings in
# this life of the server, between two instants.
sub behind
{
	my ($self, $session, $from, $until) = @_;
	my $history = $self->{history};
	my $born = $self->life_of($session);
	my $most = 0;
	for my $at ($from, grep { $_ > $from && $_ <= $until } map { $_->{since} } @$history)
	{
		my $latest = max(map {
			my $end = $_ == $#$history ? $at : min($at, $history->[ $_ + 1 ]{until});
			$end >= $born && $history->[$_]{since} <= $at && !$history->[$_]{refused} ? $end + $history->[$_]{offset} : ()
		} 0 .. $#$history) // 0;
		my $now = $at + min($self->settings($session, $at, $at)) - $session->{clock};
		$most = max($most, 1000 * ($latest - $now));
	}
	return $most;
}

# Returns when the life of the session's server began: at the start before its first
# session.
sub life_of
{
	my ($self, $session) = @_;
	$self->{born} //= do
	{
		my %born;
		for my $session (grep { $_->{life} } @{ $self->{sessions} })
		{
			$born{ $session->{life} } = min($session->{launched}, $born{ $session->{life} } // 9e18);
		}
		\%born;
	};
	my $first = $session->{life} ? $self->{born}{ $session->{life} } : $session->{launched} - 10;
	return max(0, grep { $_ <= $first } @{ $self->{starts} });
}

# A generator that was never started anew finds a free clock sequence at each rollback, as
# long as it has more clock sequences than rollbacks, unless exhausted ticks use them too.
sub must_find_a_clock
{
	my ($self, $session, $g) = @_;
	my $history = $self->{history};
	my $ended = $session->{ended};
	return 0 if $self->{crowded} || grep { $_ <= $ended } @{ $self->{starts} };
	return 0 if grep { $_->{exhausted} eq 'next_clock' } @{ $g->{labels} };
	return 0 if grep { $_->{launched} <= $ended && ($_->{rewrites}{ $g->{name} } || $_->{advances}{ $g->{name} }) } $self->sessions_of($g);
	my $back = grep { $history->[$_]{since} <= $ended && $history->[$_]{offset} < $history->[ $_ - 1 ]{offset} } 1 .. $#$history;
	return $back < $g->{clocks};
}

# Counts errors that are known to happen; all others are violations.
sub read_errors
{
	my ($self, $session) = @_;
	my $s = $self->{schedule};
	my $refused = grep { $_->{from} <= $session->{ended} && $_->{until} >= $session->{launched} } @{ $self->{refusals} };
	my $recreated = $s->{recreates} eq $session->{database};
	for my $error (errors($session->{err}))
	{
		if (my $code = $error->{code})
		{
			my $text = $error->{text};
			$self->{codes}{$code}++;
			next if is_usual($error);
			next if $code eq '58000' && $refused;
			if (my ($kind, @rest) = refusal($error))
			{
				my $why = $self->unexpected($session, $kind, @rest);
				$self->violation('refusal', "$session->{name}: $error->{line} ($error->{detail}): $why") if $why;
				$self->{refused}{$kind}++;
				next;
			}
			# The clock was stepped between the instant in the call and the call.
			next if $code eq '22008' && $text =~ /^cannot advance/;
			next if $code =~ /^(42704|55000)$/ && $text =~ /^prepared transaction with identifier/;
			# The cursor was opened before the savepoint, and failed after it.
			next if $code eq '55000' && $text =~ /^portal "c" cannot be run/;
			# PostgreSQL does not lock the rows that GRANT changes.
			next if $code eq 'XX000' && $text =~ /^tuple concurrently (updated|deleted)/;
			# This generator can no longer get that label, or a label gives no IDs
			# before its commit.
			next if $code eq '55000' && $text =~ /^(cannot change the (layout|label) of generator g\d|generator g\d was given a different layout)/;
			# All clients make and drop this object.
			next if $code =~ /^(42P07|42P01)$/ && $text =~ /"shared"/;
			next if $code eq '23505' && $text =~ /"pg_(class_relname_nsp|type_typname_nsp)_index"/;
			next if $code eq '42P01' && $text =~ /^(sequence|relation) "x\d+_\d+_\d+" does not exist/;
			next if $code =~ /^(42704|42P01|XX000)$/ && $text =~ /^(cache lookup failed|could not open relation|relation with OID)/;
			next if $recreated && ($code =~ /^(42883|42704|42P01)$/
				|| $code eq 'XX000' && $text =~ /^(cache lookup failed|could not open relation)/);
		}
		elsif (is_usual($error)) { $self->{codes}{'connection lost'}++; next; }
		$self->violation('error', "$session->{name}: $error->{line}");
	}
	return;
}

# Checks that a generator issued no ID twice in the whole episode. IDs of different
# generators may be equal.
sub unique
{
	my ($self) = @_;
	my %generator;
	for my $session (@{ $self->{sessions} })
	{
		for my $key (sort keys %{ $session->{known} })
		{
			my $of = $generator{$key} //= {};
			for my $id (@{ $session->{known}{$key}{ids} })
			{
				$self->violation('duplicate', "$id of $key in $session->{name} and $of->{$id}") if exists $of->{$id};
				$of->{$id} = $session->{name};
			}
		}
	}
	return;
}

# A generator starts at its mark, and all its IDs lie before the mark: IDs after a
# restart are above those before it. In another clock sequence it starts before its mark,
# and above its IDs in that clock sequence.
sub above_earlier_lives
{
	my ($self) = @_;
	my %lives;
	for my $session (grep { $_->{life} && @{ $_->{began} } } @{ $self->{sessions} })
	{
		for my $key (sort keys %{ $session->{known} })
		{
			my $reach = $session->{known}{$key}{reach} or next;
			my $life = $lives{"$key $session->{worker}"}{ $session->{life} } //= { reach => {}, from => 9e18, until => 0 };
			note_reach($life->{reach}, $_, @{ $reach->{clock}{$_} }{qw(from until)}, $reach->{steady}) for keys %{ $reach->{clock} };
			$life->{from}  = min($life->{from}, @{ $session->{began} });
			$life->{until} = max($life->{until}, @{ $session->{began} });
		}
	}
	for my $generator (sort keys %lives)
	{
		my @lives = sort { $a->{from} <=> $b->{from} } values %{ $lives{$generator} };
		for my $later (map { $lives[$_] } 1 .. $#lives)
		{
			for my $earlier (grep { $_->{until} < $later->{from} } @lives)
			{
				my ($before, $after) = ($earlier->{reach}, $later->{reach});
				for my $clock (sort keys %{ $before->{clock} })
				{
					my $until = $before->{clock}{$clock}{until};
					my $from = min($after->{clock}{$clock} ? $after->{clock}{$clock}{from} : (), $after->{steady} // ());
					$self->violation('overlap', "$generator: $from after a restart, $until in clock $clock before")
					  if defined $from && $from <= $until;
				}
			}
		}
	}
	return;
}

# A generator has one state word: a call that begins after another call has ended gets
# no ID of an earlier tick, except in another clock sequence.
sub above_earlier_calls
{
	my ($self) = @_;
	my %calls;
	for my $session (@{ $self->{sessions} })
	{
		for my $key (sort keys %{ $session->{known} })
		{
			push @{ $calls{"$key $session->{worker}"} }, grep { $_->{lower} } @{ $session->{known}{$key}{all_calls} };
		}
	}
	for my $key (sort keys %calls)
	{
		my @received = sort { $a->{until} <=> $b->{until} } @{ $calls{$key} };
		my %reached;
		for my $call (sort { $a->{from} <=> $b->{from} } @received)
		{
			while ($received[0]{until} < $call->{from} - ROUNDING_MS / 1000)
			{
				my $clocks = (shift @received)->{reach}{clock};
				$reached{$_} = max($clocks->{$_}{until}, $reached{$_} // 0) for keys %$clocks;
			}
			my $reach = $call->{reach};
			for my $clock (sort keys %reached)
			{
				my $from = min($reach->{clock}{$clock} ? $reach->{clock}{$clock}{from} : (), $reach->{steady} // ());
				$self->violation('order', "$key: $from in a call of $call->{session}, $reached{$clock} in clock $clock before")
				  if defined $from && $from < $reached{$clock};
			}
		}
	}
	return;
}

# By how many seconds the clock was set back between two instants, in all.
sub set_back
{
	my ($self, $from, $until) = @_;
	my $history = $self->{history};
	return sum0(map { max(0, $history->[ $_ - 1 ]{offset} - $history->[$_]{offset}) }
		grep { $history->[$_]{until} >= $from && $history->[$_]{since} <= $until } 1 .. $#$history);
}

# A generator that watches the wall clock and is not ahead of it gets ahead only by a
# start. With few slots there are too many starts to check.
sub no_lead_without_a_start
{
	my ($self) = @_;
	return if $self->{crowded};
	my %calls;
	for my $session (grep { $_->{life} } @{ $self->{sessions} })
	{
		for my $key (sort keys %{ $session->{known} })
		{
			my $known = $session->{known}{$key};
			my $its = $calls{"$key $session->{life}"} //= { generator => $known->{generator}, calls => [] };
			push @{ $its->{calls} }, @{ $known->{calls} };
		}
	}
	for my $its (grep { !$_->{generator}{is_extra} } map { $calls{$_} } sort keys %calls)
	{
		my $g = $its->{generator};
		my @starts = map { [ @$_{qw(launched ended)} ] }
		  grep { $_->{rewrites}{ $g->{name} } || $_->{advances}{ $g->{name} } } $self->sessions_of($g);
		push @starts, map { [ $_ - 10, $_ ] } @{ $self->{accepts} };
		# These instants tell since when the generator is known to be slow enough to
		# meet the clock, when it met the clock, and when it has issued an ID since.
		my ($since, $met, $settled);
		for my $call (sort { $a->{until} <=> $b->{until} } @{ $its->{calls} })
		{
			my $from = $since // $call->{from};
			if (grep { $_->[0] <= $call->{until} && $_->[1] >= $from } @starts)
			{
				undef $_ for $since, $met, $settled;
				next;
			}
			if ($call->{latest} > $call->{without_lead})
			{
				next if !defined $settled || $call->{from} <= $settled;
				$self->violation('ahead', "$call->{line} is " . int($call->{latest} - $call->{without_lead}) . ' ms ahead without a start');
				next;
			}
			# A clock that is set back meanwhile makes the lead larger by as much.
			$settled //= $call->{until}
			  if defined $met && $call->{from} > $met + 2 * $self->set_back($since, $call->{until});
			next if defined $met || !defined $call->{began};
			$since = $call->{from};
			$met = $call->{until} + 2 * max(0, $call->{earliest} + $g->{tick} - $call->{began}) / 1000;
		}
	}
	return;
}

# Once there is an ID of an earlier epoch, no later call gets an ID of a later epoch,
# unless a promotion has lost the label.
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
