# Makes the schedule of an episode of the torture test: settings, client scripts, faults
# with the pauses before them, and settings of the clock. All of it follows from a seed;
# no other code draws random numbers while a schedule is made.
package torture::Schedule;

use strict;
use warnings;
use Exporter 'import';
use POSIX ();

our @EXPORT_OK = qw(schedule describe literal mood_of moods);
our (@targets, $target, $tag, %rewrites, %relabels, %advances, $stage);

use constant HOUR => 3600;

# Steps of the clock stay within this distance of its start, so that no two settings are
# a day apart; the refusals go beyond a day.
use constant RANGE => 11 * HOUR;

sub between { my ($low, $high) = @_; return $low + int(rand($high - $low + 1)); }
sub chance { return rand() < $_[0]; }
sub pick { return $_[ int(rand(@_)) ]; }
sub seconds { my ($low, $high) = @_; return sprintf('%.2f', $low + rand($high - $low)); }

# weighted(a => 3, b => 1) returns a three times as often as b.
sub weighted
{
	my @pairs = @_;
	my $sum   = 0;
	for (my $i = 1; $i < @pairs; $i += 2) { $sum += $pairs[$i]; }
	my $at = rand($sum);
	while (@pairs > 2 && $at >= $pairs[1]) { $at -= $pairs[1]; splice @pairs, 0, 2; }
	return $pairs[0];
}

my @moods = (mixed => 5, relabel => 4, failover => 3, eviction => 2, refusal => 2, burst => 2, policy => 7, leases => 6);

sub moods { my %weight = @moods; return sort keys %weight; }

# Returns the mood of the schedule that follows from a seed.
sub mood_of
{
	my ($seed) = @_;
	srand($seed);
	return weighted(@moods);
}

# Returns a schedule. Each mood stresses one part.
sub schedule
{
	my ($seed) = @_;
	my $mood = mood_of($seed);
	return leases($seed) if $mood eq 'leases';
	my %s = (
		seed => $seed,
		mood => $mood,
		# Where labels change, clients should meet on the same generators.
		databases => $mood eq 'relabel' ? ['a'] : [ 'a', 'b', chance(0.3) ? 'c' : () ],
		reserve_ms => pick(100, 100, 300, 1000, 2000),
		debug_slots => $mood eq 'eviction' ? 1 : pick(1024, 1024, 2),
		fsync => $mood eq 'mixed' && chance(0.2) ? 'on' : 'off',
		checkpoint_timeout => pick('30 s', '1 h'),
		# The default generator of the second database is dropped and made again.
		recreates => $mood eq 'mixed' && chance(0.2) ? 'b' : '',
		worker => 3,
		standby_worker => chance(0.6) ? 3 : 5,
		# How far the clock of the second server is from that of the first.
		standby_clock => pick(-6, -3, -3, 0, 2),
		clock => 0);
	$s{reserve_ms} = pick(100, 300) if $mood eq 'refusal' || $mood eq 'burst';
	$s{debug_slots} = 1024 if $mood eq 'policy';
	generators(\%s);

	my $clients = $mood eq 'burst' ? between(4, 6) : between(4, 12);
	for my $client (1 .. $clients)
	{
		my $database = pick(@{ $s{databases} });
		my @named = grep { $_->{database} eq $database } @{ $s{generators} };
		my $use = @named ? weighted(both => 4, named => $mood eq 'policy' ? 12 : 4, default => 2) : 'default';
		local @targets = ((undef) x ($use ne 'named'), $use eq 'default' ? () : @named);
		# Few clients rewrite the sequence: each rewrite may put the generator ahead of
		# its clock by a window, and the bound on that should stay tight.
		my $rewrites = $mood ne 'burst' && $client <= ($mood eq 'relabel' ? 4 : 2);
		push @{ $s{clients} },
		  {
			database => $database,
			scripts => [ map { script(\%s, $database, $rewrites, $_) } 1 .. 4 ]
		  };
	}
	$s{faults} = [ faults(\%s) ];
	return \%s;
}

# Distance between the epochs that one generator may have: more than clocks ever differ
# in an episode, so that an ID fits one epoch only; and no whole number of ticks.
use constant EPOCH_STEP => 40 * 86_400_000 + 137;

# Returns generators beside the default one, each with the labels that it may get in an
# episode, in this order. The labels agree in what a generator must keep.
sub generators
{
	my ($s) = @_;
	$s->{generators} = [];
	$s->{extras} = [];
	for my $database (@{ $s->{databases} })
	{
		next if $database eq $s->{recreates};
		my $count = $s->{mood} =~ /eviction|policy/ ? between(1, 3) : $s->{mood} eq 'relabel' ? between(1, 2) : pick(0, 1, 1, 2, 2);
		push @{ $s->{generators} }, map { generator($s, "g$_", $database) } 1 .. $count;
	}
	push @{ $s->{extras} }, map { generator($s, "extra $_", '') } 0 .. 3;
	return;
}

sub generator
{
	my ($s, $name, $database) = @_;
	# A start at the mark skips a tick or two. With few slots generators start so
	# often that those of long ticks run far ahead of the clock.
	my $tick = $s->{debug_slots} < 100 ? 1 : weighted(1 => 5, 10 => 2, 1000 => 2);
	my $clock = chance(0.6) ? pick(1, 1, 2, 2, 2, 3, 4) : 0;
	my $sequence = ($tick == 1 ? between(7, 12) : $tick == 10 ? between(10, 14) : between(16, 18)) - $clock;
	# A tick has so few sequence numbers that it is exhausted again and again.
	my $is_small = chance(0.35);
	$sequence = $tick == 1 ? between(1, 5) : $tick == 10 ? between(3, 7) : between(9, 12) if $is_small;
	my $time = $tick == 1 ? 41 : $tick == 10 ? 38 : 32;
	my $worker = chance(0.2) ? 64 - $time - $clock - $sequence : between(3, 8);
	my $kind = between(1, 4);
	my $value = between(0, 2**$kind - 1);
	my $order = weighted(
		plain => 3, middle => 2, split => 2, worker_top => 1, fixed_inside => 2,
		fixed_top => 1, negative => 2, sequence_top => 1, reversed => 1);
	$worker = between(3, 7) if $order =~ /fixed|negative/;
	if ($order eq 'negative') { $kind = 64 - $time - $clock - $worker - $sequence; $value = 2**($kind - 1); }
	my @time = ([ 'time', $time, 'time' ]);
	my @worker = ([ 'node', $worker, 'worker' ]);
	my @sequence = ([ 'sequence', $sequence, 'sequence' ]);
	my @kind = ([ 'kind', $kind, 'fixed', $value ]);
	my @fields =
		$order eq 'plain' ? (@time, @worker, @sequence)
	  : $order eq 'middle' ? (@time, @sequence, @worker)
	  : $order eq 'split' ? (@time, [ 'region', $worker - 2, 'worker' ], @sequence, [ 'machine', 2, 'worker' ])
	  : $order eq 'worker_top' ? (@worker, @time, @sequence)
	  : $order eq 'fixed_inside' ? (@time, @kind, @worker, @sequence)
	  : $order =~ /^(fixed_top|negative)$/ ? (@kind, @time, @worker, @sequence)
	  : $order eq 'sequence_top' ? (@sequence, @time, @worker)
	  : ([ 'time_reversed', $time, 'reversed' ], @worker, @sequence);
	# The clock field is most often where it belongs, below the time.
	my $below = 1 + (grep { $fields[$_][2] =~ /time|reversed/ } 0 .. $#fields)[0];
	my $place = chance(0.6) ? $below : between($order =~ /^(fixed_top|negative)$/ ? 1 : 0, scalar @fields);
	splice @fields, $place, 0, [ 'clock', $clock, 'clock' ] if $clock;
	my $width = 0;
	$width += $_->[1] for @fields;
	my $wider = $fields[0][2] eq 'time' && $width < 64;
	$wider = $wider ? (64 - $width < 2 ? 64 - $width : 2) : 0;
	my %place = map { $fields[$_][2] => $_ } 0 .. $#fields;
	my %g = (
		name => $name,
		database => $database,
		fields => \@fields,
		tick => $tick,
		clock => $clock,
		sequence => $sequence,
		# IDs of one session increase, as long as the policy says nothing else.
		increases => $order !~ /sequence_top|reversed/
		  && (!$clock || $place{time} < $place{clock} && $place{clock} < $place{sequence}),
		owned => chance(0.7),
		by_hand => chance(0.3),
		labels => []);
	# The rate is relative to the default generator's 4096 IDs in a millisecond.
	my $scale = 2**$sequence / $tick / 4096;
	$g{scale} = $scale < 1 ? $scale : 1;

	my $epoch = pick(1735689600000, 1700000000123, 1477958400000);
	my $labels = between(6, 9);
	my $later = 0;
	# For some generators only policies change, back and forth, while the layout stays.
	my $moves = chance(0.5);
	my $varies = chance(0.8);
	# A generator that has borrowed minutes must not get a policy without borrowing.
	my $far = $s->{mood} !~ /failover|eviction/ && chance(0.1);
	my $policy = policy($s, \%g, $far);
	for my $n (1 .. $labels)
	{
		# Most labels can follow the one before.
		$later += pick(0, 1, 1) if $n > 1 && $moves;
		my $at = $n > 1 && $moves && chance(0.2) ? between(0, $later) : $later;
		$policy = policy($s, \%g, $far) if $varies;
		push @{ $g{labels} },
		  {
			%$policy,
			epoch => $epoch - EPOCH_STEP * $at,
			wider => !$moves ? 0 : chance(0.2) ? between(0, $wider) : int($wider * ($n - 1) / $labels),
		  };
		$g{labels}[-1]{text} = label(\%g, $g{labels}[-1]);
	}
	return \%g;
}

# A day in milliseconds.
use constant DAY => 86_400_000;

sub policy
{
	my ($s, $g, $far) = @_;
	my $tick = $g->{tick};
	# A policy that refuses leaves little room for other faults.
	my $rollback = weighted(continue => 3, wait => 2, error => 1, next_clock => $g->{clock} ? 6 : 0);
	# After a promotion some generators are further ahead than that.
	my $max_rollback = $far ? DAY : pick((DAY) x 7, 10_000, 60_000, 3_600_000);
	# A max_borrow of less than a tick is refused, and so is more than half of
	# max_rollback.
	my $least = $max_rollback / 2;
	my @borrow = $far ? (60_000, 180_000) : (0, 10, 100, $s->{debug_slots} < 100 ? () : (1000, 3000));
	@borrow = grep { !$_ || $_ >= $tick && $_ <= $least } @borrow;
	my $borrow = @borrow ? pick(@borrow) : 0;
	my $is_default = !$far && chance(0.2);
	$borrow = $tick <= 100 ? 100 : 0 if $is_default;
	return {
		rollback => $rollback,
		max_rollback => $max_rollback,
		max_wait => $rollback =~ /wait|next_clock/ ? pick(0, 5, 50, 500, 3000) : 0,
		borrow => $borrow,
		default_borrow => $is_default,
		exhausted => weighted(wait => 4, error => 1, next_clock => $g->{clock} ? 3 : 0),
		start => pick('zero', 'random', map { "vibrate $_" } grep { $_ < 2**$g->{sequence} } 1, 7, 63, 99),
	};
}

sub label
{
	my ($g, $label) = @_;
	my @fields = map { "$_->[0]:" . ($_->[1] + ($_->[2] eq 'time' ? $label->{wider} : 0)) . (defined $_->[3] ? "=$_->[3]" : '') } @{ $g->{fields} };
	return "layout='@fields' epoch=$label->{epoch} tick='$g->{tick} ms' on_rollback=$label->{rollback}"
	  . ($label->{max_rollback} == DAY ? '' : " max_rollback='$label->{max_rollback} ms'")
	  . ($label->{rollback} =~ /wait|next_clock/ ? " max_wait='$label->{max_wait} ms'" : '')
	  . ($label->{default_borrow} ? '' : " max_borrow='$label->{borrow} ms'")
	  . " on_exhausted=$label->{exhausted} sequence_start='$label->{start}'";
}

# Returns a setting of the clock as its offset from the machine's clock, in seconds.
sub next_clock
{
	my ($s) = @_;
	my $delta = weighted(
		seconds(0.002, 0.1) => 2,
		seconds(0.1, 3) => 3,
		between(1, 30) => 4,
		between(60, 1800) => 2,
		between(HOUR, 2 * RANGE) => 3);
	# A call can wait for some of these steps.
	$delta = -$delta if chance($delta < 4 ? 0.7 : 0.5);
	my $to = $s->{clock} + $delta;
	$to = $s->{clock} - $delta if abs($to) > RANGE;
	$to = between(-RANGE(), RANGE) if abs($to) > RANGE;
	return $s->{clock} = sprintf('%.3f', $to);
}

sub faults
{
	my ($s) = @_;
	my $mood = $s->{mood};
	my $still = $mood eq 'burst';
	my @faults;
	my $promotions = $mood eq 'failover' ? between(1, 2) : 0;
	my $refusals = $mood eq 'refusal' ? between(1, 2) : 0;
	my $count = $still ? between(1, 2) : $mood eq 'policy' ? between(5, 9) : between(4, 7);
	for my $n (1 .. $count)
	{
		my $kind = weighted(
			kill_backend => 4,
			kill_backends => 2,
			kill_auxiliary => 1,
			kill_postmaster => 3,
			immediate => 3,
			restart => 2,
			terminate => 2,
			cancel => 2,
			kill_client => 1,
			checkpoint => 1,
			$still ? () : (set_marks => 2, without_library => 1),
			$still ? () : $mood eq 'policy' ? (step => 15, swing => 15, reload => 1) : (step => 6, swing => 1, reload => 1));
		push @faults, fault($s, $kind);
	}
	# Promotions and refusals come at any place among the other faults; their clocks are
	# drawn in this order.
	splice @faults, between(0, scalar @faults), 0, promotion($s) for 1 .. $promotions;
	splice @faults, between(0, scalar @faults), 0, refusal($s) for 1 .. $refusals;
	return @faults;
}

sub fault
{
	my ($s, $kind) = @_;
	# A burst needs time to run ahead of the clock.
	my %f = (kind => $kind, after => $s->{mood} eq 'burst' ? seconds(1, 3) : seconds(0.1, 1.2), victim => rand(), probe => chance(0.5));
	$f{clock} = next_clock($s) if $kind eq 'step';
	$f{swings} = [ swings($s) ] if $kind eq 'swing';
	if ($kind =~ /^(kill_postmaster|immediate|restart)$/)
	{
		$f{clock} = next_clock($s) if $s->{mood} ne 'burst' && chance(0.4);
		$f{down} = seconds(0, 0.5);
		# The next fault strikes before the first ID: now only the mark knows the former
		# IDs.
		$f{first} = first($s) if chance(0.4);
	}
	# Orphans of a killed postmaster notice its death by themselves, or are killed too.
	$f{orphans} = pick('waited for', 'killed') if $kind eq 'kill_postmaster';
	$f{rewrite} = pick('RESTART', 'CACHE 20') if $kind eq 'without_library';
	$f{reserve_ms} = pick(100, 300, $s->{reserve_ms}) if $kind eq 'reload';
	return \%f;
}

# Returns steps back and forth around the present clock, with pauses, so that generators
# use all their clock sequences and come to the first one again.
sub swings
{
	my ($s) = @_;
	my $width = pick(0.05, 0.3, 2);
	my @swings = map { [ $s->{clock} + seconds(-$width, $width), seconds(0.02, 0.4) ] } 1 .. between(3, 12);
	$s->{clock} = sprintf('%.3f', $swings[-1][0]);
	return @swings;
}

sub promotion
{
	my ($s) = @_;
	return {
		kind => 'promote',
		after => seconds(0.2, 1.5),
		lag => seconds(0, 3),
		end => pick('immediate', 'kill_postmaster', 'fast'),
		orphans => 'killed',
		probe => 1
	};
}

sub refusal
{
	my ($s) = @_;
	return {
		kind => pick('leap_forward', 'leap_back', 'start_far_back'),
		after => seconds(0.2, 1),
		by => between(86400 + 2000, 3 * 86400),
		# After a start far back, the clock is corrected by a restart, or a superuser
		# accepts it.
		way_out => pick('correct', 'accept'),
		probe => 1
	};
}

# ---- Leases

# Returns the schedule of servers that lease their worker IDs from a registry. The pool
# `main` may be smaller than the number of its servers. Two servers may claim one worker
# ID of the pool `claimed`, and servers move to the pool `other` and back.
sub leases
{
	my ($seed) = @_;
	my $claimants = chance(0.35) ? 2 : 0;
	my $leasing = between(3, 4) - $claimants;
	# The registry fails over, and loses its last seconds.
	my $fails_over = chance(0.3);
	# A long lease outlives the registry, and a worker ID is free half a minute after its server is
	# gone. What is lost with the registry rests for such a lease, which is too long for an episode.
	my $is_long = !$fails_over && chance(0.3);
	my %s = (
		seed => $seed,
		mood => 'leases',
		lease_ms => $is_long ? pick(45_000, 600_000) : pick(1000, 1500, 2000),
		hold_ms => pick(1000, 1500),
		max_ahead_ms => pick(500, 1000),
		reserve_ms => pick(100, 1000, 10_000),
		fsync => chance(0.1) ? 'on' : 'off',
		leasing => $leasing,
		claimants => $claimants,
		pool_size => $leasing > 1 && chance(0.35) ? between(1, $leasing - 1) : $leasing + between(1, 5),
		fails_over => $fails_over);
	$s{patience_ms} = $is_long ? 30_000 : $s{lease_ms};
	# Where leases may be lost, the promise holds for clocks that differ by less than the
	# hold.
	$s{widest_ms} = $s{fails_over} ? int(0.4 * $s{hold_ms}) : 300_000;
	$s{clocks} = [ map { chance(0.5) ? seconds(-$s{widest_ms} / 1000, $s{widest_ms} / 1000) : 0 } 0 .. $leasing + $claimants ];
	$s{clients} = [ map { lease_script() } 1 .. 6 ];
	$s{queue_client} = "SELECT 'S';\nSELECT 'Q', array_agg(snowflake_nextval('queued')) FROM generate_series(1, " . pick(1, 5) . ") \\watch " . pick(0.02, 0.05) . "\n";
	my @faults = map { lease_fault(\%s, 0) } 1 .. ($is_long ? between(3, 4) : between(4, 7));
	splice @faults, between(0, scalar @faults), 0, lease_fault(\%s, 0, 'registry_fails_over') if $s{fails_over};
	$s{faults} = \@faults;
	return \%s;
}

# Returns a script of a client that takes IDs again and again. What it prints is
# explained below.
sub lease_script
{
	my $count = pick(1, 5, 5, some(2, 20));
	my $sql = weighted(
		"SELECT 'I', array_agg(snowflake_nextval()) FROM generate_series(1, $count)" => 3,
		"SELECT 'I', array_agg(id) FROM snowflake_nextval_batch(" . some(2, 100) . ') AS id' => 1,
		"WITH taken AS (INSERT INTO t (s) SELECT 'x' FROM generate_series(1, $count) RETURNING id)\nSELECT 'I', array_agg(id) FROM taken" => 1);
	return "SELECT 'S';\n$sql \\watch " . pick(0.02, 0.05) . "\n";
}

# Returns a fault; one that lasts may have another one within.
sub lease_fault
{
	my ($s, $is_within, $kind) = @_;
	my $term = ($s->{patience_ms} + $s->{hold_ms}) / 1000;
	$kind //= weighted(
		kill_server => 4, immediate => 2, restart => 2, kill_keeper => 2, kill_backend => 1, terminate_keeper => 1, copy => 3,
		$s->{fails_over} ? () : (step => 4),
		$is_within ? () : (crash_loop => 1.5, registry_away => 5, freeze => 3, promote => 2, reload => 2));
	my %f = (
		kind => $kind,
		after => $is_within ? seconds(0, 0.5) : seconds(0.2, 1.5),
		victim => rand(),
		for => chance(0.5) ? seconds(0, 0.8) : seconds($term + 0.3, $term + 1.5));
	$f{for} = seconds($term + 0.3, $term + 1.5) if $kind eq 'freeze' && chance(0.8);
	$f{for} = seconds(0.3, 3) if $kind =~ /^(registry_fails_over|reload)$/;
	$f{how} = pick('kill', 'immediate', 'fast', 'freeze', 'freeze') if $kind eq 'registry_away';
	$f{how} = pick('kill', 'immediate', 'fast') if $kind eq 'registry_fails_over';
	# A copy of a server that runs, is stopped or has crashed.
	$f{how} = pick('runs', 'fast', 'immediate') if $kind eq 'copy';
	$f{first} = pick('original', 'copy') if $kind eq 'copy';
	@f{qw(stays ends)} = (pick('both', 'both', 'original', 'copy'), pick('fast', 'immediate', 'kill')) if $kind =~ /^(copy|promote)$/;
	$f{rounds} = between(3, 6) if $kind eq 'crash_loop';
	if ($kind eq 'step')
	{
		my $by = weighted(seconds(0.002, 0.5) => 2, seconds(0.5, 5) => 3, between(5, 60) => 2, between(60, $s->{widest_ms} / 1000) => 2);
		$f{by} = chance(0.5) ? $by : -$by;
		$f{at_registry} = chance(0.15) ? 1 : 0;
	}
	$f{within} = lease_fault($s, 1) if $kind =~ /^(registry_away|freeze|registry_fails_over)$/ && chance(0.6);
	return \%f;
}

# Client scripts. psql prints these lines, with fields separated by '|':
#   S  server's life, worker ID                 once, at the start of a session
#   I  ID, not made before, received at         an ID
#   R  the same                                 an ID of a transaction that restarted the sequence
#   X  the same                                 an ID of a generator that is rolled back
#   B                                           a transaction of R begins
#   C                                           a transaction of R has committed
#   D  ID, time, worker ID, sequence, clock     an ID as the server decodes it
#   M  mark                                     read after the ID before it, in its transaction
#   V  ID                                       snowflake_currval(), right after an ID
#   W  1 if its lock is held                    a call follows, and the time it took
#   A                                           anything else
# The generator's name follows; after I, R and X also a hash of its label, unless the
# line before had the same. The default generator has no label; its name contains its
# OID, unless the line before had the same, since the generator may be dropped and made
# again. Name and label are read after the ID, with a lock that keeps them as they are.
# Instants are milliseconds of the server's wall clock.
my $received = 'ms(clock_timestamp())';
my $began    = 'ms(statement_timestamp())';

# Picks the generator from which statements take IDs; undef is the default one.
sub aim { return $target = pick(@targets); }
sub name { return $target ? $target->{variable} // "'$target->{name}'" : ''; }
sub behind { my ($comma) = @_; return $target ? $comma . name() : ''; }
# Reads the label, in the first row only if rows are numbered, since the lookup is slow.
sub labelled
{
	my ($is_numbered) = @_;
	my $found = $target ? 'label_of(' . name() . ')' : 'default_of()';
	$found = "CASE WHEN n = 1 THEN $found END" if $is_numbered;
	return $target ? ', ' . name() . ", $found" : ", $found";
}
sub named { return $target ? behind(', ') : ', default_of()'; }
sub sequence { return $target ? $target->{name} : 'snowflake_default'; }
sub table { return $target ? "t_$target->{name}" : 't'; }
sub scaled { my ($low, $high) = @_; return POSIX::ceil(between($low, $high) * ($target ? $target->{scale} : 1)); }
# Returns a count, no more than a small generator gives in a third of a second.
sub some { my $count = &between; my $most = $target ? POSIX::ceil(1_200_000 * $target->{scale}) : $count; return $count < $most ? $count : $most; }
sub literal { my ($text) = @_; return q{'} . $text =~ s/'/''/gr . q{'}; }

sub ids
{
	my ($expression, $from, $as) = @_;
	$as //= $tag // 'I';
	return "SELECT '$as', $expression, $began, $received" . labelled($from && $from =~ /\bn\)?$/) . ($from ? " FROM $from" : '') . ";\n";
}
sub next_id { return 'snowflake_nextval(' . name() . ')'; }
sub batch { return "snowflake_nextval_batch($_[0]" . behind(', ') . ')'; }
sub one { return ids(next_id(), '', $_[0]); }

# Times a call by the clock of the client, which is never set.
sub timed
{
	my ($is_locked) = @_;
	return one() if $target && $target->{variable};
	return "\\echo W|$is_locked" . ($target ? "|$target->{name}" : '') . "\n\\timing on\n" . one() . "\\timing off\n";
}

# Sleeps in the client, since pg_sleep() goes by the clock that is stepped.
sub sleeps { my ($low, $high) = @_; return '\! sleep ' . seconds($low, $high) . "\n"; }

# Returns a statement that gives IDs.
sub statement
{
	my $what = weighted(one => 5, many => 3, batch => 3, rows => 1, insert => 3, risky => 2, copy => 1);
	return one() if $what eq 'one' || $what eq 'insert' && $target && $target->{variable};
	return ids(next_id(), 'generate_series(1, ' . some(2, 200) . ') AS n') if $what eq 'many';
	return ids('id', batch(pick(1, some(2, 20), some(2, 300), some(2, 300), some(300, 9000))) . ' WITH ORDINALITY AS b (id, n)')
	  if $what eq 'batch';
	return ids(batch(some(1, 200))) if $what eq 'rows';
	my $as = $tag // 'I';
	return 'INSERT INTO ' . table() . " (s) SELECT 'x' FROM generate_series(1, " . some(1, 100)
	  . ") RETURNING '$as', id, $began, $received" . labelled() . ";\n"
	  if $what eq 'insert';
	return ids('id', 'risky(' . some(1, 30) . behind(', ') . ') AS id') if $what eq 'risky';
	return "COPY (SELECT '$as', " . next_id() . ", $began, $received" . labelled() . " FROM generate_series(1, "
	  . some(1, 300) . ")) TO STDOUT (DELIMITER '|');\n";
}

sub end { return pick("COMMIT;\n", "ROLLBACK;\n", "COMMIT;\n"); }

my %step = (
	single => sub { return join '', map { timed(0) } 1 .. between(1, 20); },
	# Only clocks and other issuers of IDs can make these calls wait.
	prompt => sub {
		return "BEGIN;\n" . one() . join('', map { (chance(0.3) ? sleeps(0, 0.3) : '') . timed(1) } 1 .. between(1, 10)) . end();
	},
	statement => sub { return statement(); },
	transaction => sub {
		return "BEGIN;\n" . join('', map { statement() } 1 .. between(1, 4)) . end();
	},
	savepoints => sub {
		my $sql = "BEGIN;\n" . (chance(0.5) ? one() : '');
		for (1 .. between(1, 3))
		{
			$sql .= "SAVEPOINT a;\n" . statement();
			$sql .= "SELECT 1 / 0;\n" if chance(0.3);
			$sql .= "ROLLBACK TO a;\n" if chance(0.6);
			$sql .= statement();
		}
		return $sql . "ROLLBACK TO a;\n" . end();
	},
	two_phase => sub {
		return "\\set gid g :n _" . between(1, 1_000_000) . "\nBEGIN;\n" . statement()
		  . "PREPARE TRANSACTION :'gid';\n" . (chance(0.3) ? one() : '')
		  . pick('COMMIT', 'ROLLBACK') . " PREPARED :'gid';\n";
	},
	timeout => sub {
		return "SET statement_timeout = '" . between(1, 40) . " ms';\n"
		  . ids('max(' . next_id() . ')', 'generate_series(1, 500000)')
		  . statement() . "RESET statement_timeout;\n" . one();
	},
	burst => sub {
		return ids('max(' . next_id() . ')', 'generate_series(1, ' . scaled(100_000, 400_000) . ')');
	},
	# These calls ask for more than the layout holds: a generator ahead of its clock
	# must wait.
	flood => sub {
		return join '', map {
			ids('max(id)', '(SELECT ' . batch(scaled(100_000, 100_000)) . ' AS id FROM generate_series(1, 10)) AS s')
		} 1 .. between(2, 4);
	},
	idle => sub { return sleeps(0.05, 0.5); },
	long => sub {
		return "BEGIN;\n" . one() . sleeps(0.5, 2) . statement() . sleeps(0, 0.5) . one() . end();
	},
	read_only => sub {
		return "BEGIN;\n" . one() . "SET TRANSACTION READ ONLY;\n" . one() . "ROLLBACK;\n";
	},
	cursor => sub {
		# IDs from a cursor may have been issued with the first row of their batch.
		my $sql = "BEGIN;\nDECLARE c CURSOR FOR SELECT 'I', " . batch(some(5, 500)) . ", ms(now()), $received" . labelled()
		  . ";\nFETCH " . between(1, 20) . " FROM c;\n";
		$sql .= one() if chance(0.5);
		$sql .= sleeps(0, 0.3) if chance(0.3);
		$sql .= "SAVEPOINT a;\n" . "FETCH 5 FROM c;\n" . "ROLLBACK TO a;\n" if chance(0.4);
		return $sql . "FETCH " . between(1, 400) . " FROM c;\n" . one() . end();
	},
	role => sub {
		return chance(0.5)
		  ? "SET ROLE mortal;\n" . statement() . "RESET ROLE;\n" . one()
		  : "PREPARE p AS " . one() . "BEGIN;\nEXECUTE p;\nSET LOCAL ROLE mortal;\nEXECUTE p;\n" . statement() . end()
		  . "EXECUTE p;\nDEALLOCATE p;\n";
	},
	copy_in => sub {
		my $rows = some(1, 50);
		my $table = table();
		return "BEGIN;\nCOPY $table (s) FROM STDIN;\n" . join('', map { "$_\n" } 1 .. $rows) . "\\.\n"
		  . "SELECT 'I', id, ms(now()), $received" . labelled() . " FROM $table WHERE xmin = pg_current_xact_id()::xid ORDER BY s::int;\n" . end();
	},
	mark => sub {
		return "BEGIN;\n" . statement() . "SELECT 'M', last_value" . named() . ' FROM ' . sequence() . ";\n" . end();
	},
	currval => sub {
		return "BEGIN;\n" . one() . "SELECT 'V', snowflake_currval(" . name() . ')' . named() . ";\n" . end();
	},
	decode => sub {
		my $arguments = 'id' . behind(', ');
		return "SELECT 'D', id, ms(created_at), worker_id, sequence, coalesce(clock, 0)" . named()
		  . ' FROM ' . next_id() . " AS id, LATERAL snowflake_decode($arguments);\n";
	},
	advance => sub {
		my $sequence = sequence();
		return advance_by(between(0, 5)) . one() if chance(0.5) || $target && $target->{tick} > 1;
		$advances{ $target ? $target->{name} : '' }++;
		return "SELECT 'A', snowflake_advance('$sequence', " . next_id() . ");\n" . one();
	},
	comment => sub {
		return "BEGIN;\nCOMMENT ON SEQUENCE " . sequence() . " IS 'x';\n" . (chance(0.5) ? sleeps(0, 0.3) . one() : '') . end();
	},
	grant => sub {
		my $sequence = sequence();
		my $who = $target ? 'mortal' : 'PUBLIC';
		return pick(
			"GRANT UPDATE ON SEQUENCE $sequence TO mortal;\n" . one(),
			"REVOKE UPDATE ON SEQUENCE $sequence FROM mortal;\n" . one(),
			"BEGIN;\nREVOKE USAGE ON SEQUENCE $sequence FROM $who;\n" . one() . "ROLLBACK;\n" . one());
	},
	alter => sub {
		my $sequence = sequence();
		my $other = "other_$sequence";
		return pick(
			$target ? '' : "ALTER SEQUENCE $sequence OWNED BY NONE;\n",
			"BEGIN;\nALTER SEQUENCE $sequence CYCLE;\nROLLBACK;\n",
			"BEGIN;\nALTER SEQUENCE $sequence RENAME TO $other;\n"
			  . "ALTER SEQUENCE $other RENAME TO $sequence;\n" . one() . end(),
			"BEGIN;\nALTER SEQUENCE $sequence RENAME TO $other;\nROLLBACK;\n") . one();
	},
	# With few slots none may be left: then the server makes room.
	several => sub {
		my $sql = "BEGIN;\n";
		for (1 .. between(2, 5)) { aim(); $sql .= chance(0.3) ? statement() : one(); }
		return $sql . (chance(0.2) ? sleeps(0.1, 1) : '') . end();
	},
	extra => \&extra);

sub advance_by
{
	my ($seconds) = @_;
	$advances{ $target ? $target->{name} : '' }++;
	return "SELECT 'A', snowflake_advance('" . sequence() . "', now() + interval '$seconds s');\n";
}

# Generators that come and go. Names of the first kind are used once; the number at
# their end tells the label.
sub extra
{
	my ($s) = @_;
	my $label = between(0, $#{ $s->{extras} });
	my $text = literal($s->{extras}[$label]{labels}[0]{text});
	if (chance(0.3))
	{
		$text = literal($s->{extras}[0]{labels}[0]{text});
		my $id = "SELECT 'I', snowflake_nextval(g), $began, $received, 'shared.' || g::oid, label_of(g) FROM (SELECT 'shared'::regclass AS g) AS s;\n";
		return pick(
			"SELECT 'A', snowflake_create_generator('shared', $text);\n$id$id",
			"$id$id",
			"DROP SEQUENCE shared;\n$id",
			"BEGIN;\n${id}DROP SEQUENCE shared;\nSELECT 'A', snowflake_create_generator('shared', $text);\n$id" . end() . $id);
	}
	local $target = { %{ $s->{extras}[$label] }, variable => q{:'x'} };
	my $create = "SELECT 'A', snowflake_create_generator(:'x', $text);\n";
	my $drop = "DROP SEQUENCE :x;\n";
	return '\set x x :u _' . between(1, 1_000_000) . "_$label\n" . pick(
		$create . statement() . one() . $drop,
		$create . one() . statement(),
		"BEGIN;\n$create" . statement() . end() . one() . "DROP SEQUENCE IF EXISTS :x;\n",
		"BEGIN;\n$create" . one() . statement() . "ROLLBACK;\n",
		"BEGIN;\nSAVEPOINT a;\n$create" . statement() . "ROLLBACK TO a;\n" . end(),
		"BEGIN;\n$create" . statement() . "SAVEPOINT a;\n$drop" . "ROLLBACK TO a;\n" . one() . end() . $drop);
}

# Returns a transaction that restarts the sequence and then takes IDs: once it has
# committed, these count as all others do.
sub transaction
{
	my ($before, $change, $end) = @_;
	my $sql = "\\set xid 0\nSELECT 'B';\nBEGIN;\n$before" . $change;
	local $tag = 'R';
	$sql .= (chance(0.8) ? one() : '') . (chance(0.3) ? statement() : '')
	  . "SELECT pg_current_xact_id() AS xid \\gset\n";
	if ($end eq 'two_phase')
	{
		$sql = '\set gid g :n _' . between(1, 1_000_000) . "\n$sql"
		  . "PREPARE TRANSACTION :'gid';\n" . pick('COMMIT', 'ROLLBACK') . " PREPARED :'gid';\n";
	}
	else { $sql .= "$end;\n"; }
	return $sql . "SELECT 'C' WHERE pg_xact_status(:'xid'::xid8) = 'committed';\n";
}

sub counted { $rewrites{ $target ? $target->{name} : '' }++; return $_[0]; }

sub restart
{
	return counted('TRUNCATE ' . pick(table(), table(), 't, ' . table()) . ' RESTART IDENTITY' . pick('', ' CASCADE') . ";\n")
	  if $target && $target->{owned} && chance(0.6);
	return counted('ALTER SEQUENCE ' . sequence() . ' RESTART' . pick('', '', ' WITH 17', ' WITH 9223372036854775807') . ";\n");
}

sub relabel
{
	my $labels = $target->{labels};
	my $at = 2 * ($stage - 1) + between(0, 2);
	# Where the layout stays, the former label can always be set again.
	$at = between(0, $#$labels) if $labels->[0]{epoch} == $labels->[-1]{epoch};
	my $label = literal($labels->[ $at > $#$labels ? $#$labels : $at ]{text});
	$relabels{ $target->{name} }++;
	return counted("SECURITY LABEL FOR snowflake_id ON SEQUENCE $target->{name} IS $label;\n");
}

# Returns a fault that may strike between a start of the server and its clients.
sub first
{
	my ($s) = @_;
	my $database = pick(@{ $s->{databases} });
	local @targets = (undef, grep { $_->{database} eq $database } @{ $s->{generators} });
	aim();
	local %rewrites = ();
	my $sql = pick(restart(), restart() . one(), transaction('', restart(), pick('COMMIT', 'ROLLBACK')));
	return { database => $database, sql => $sql, rewrites => {%rewrites} };
}

# These statements put the generator back to its mark, or set another label.
my %rewrite = (
	restart => sub { return restart() . (chance(0.5) ? one() : ''); },
	restart_transaction => sub {
		return transaction(chance(0.5) ? one() : '', restart(), pick('COMMIT', 'ROLLBACK', 'two_phase')) . (chance(0.5) ? one() : '');
	},
	restart_untouched => sub { return "BEGIN;\n" . restart() . "ROLLBACK;\n" . (chance(0.5) ? one() : ''); },
	restart_savepoint => sub {
		my $sequence = sequence();
		return "BEGIN;\n" . (chance(0.5) ? one() : '')
		  . "SAVEPOINT a;\n" . restart() . one('R')
		  . (chance(0.3) ? advance_by(4) . one('R') : '')
		  . "ROLLBACK TO a;\n" . one() . statement() . end() . one();
	},
	recreate_undone => sub {
		local $target = undef;
		$rewrites{''}++;
		return "BEGIN;\n" . (chance(0.5) ? one() : '')
		  . "DROP EXTENSION snowflake_id CASCADE;\nCREATE EXTENSION snowflake_id;\n" . one('X')
		  . "ROLLBACK;\n" . one();
	});

my %relabel = (
	relabel => sub { return relabel() . (chance(0.7) ? one() : ''); },
	relabel_transaction => sub {
		my $sql = "BEGIN;\n" . (chance(0.5) ? one() : '') . relabel() . (chance(0.3) ? statement() : '');
		return $sql . pick("COMMIT;\n", "COMMIT;\n", "ROLLBACK;\n") . one() if chance(0.7);
		return '\set gid g :n _' . between(1, 1_000_000) . "\n$sql"
		  . "PREPARE TRANSACTION :'gid';\n" . pick('COMMIT', 'ROLLBACK') . " PREPARED :'gid';\n" . one();
	},
	relabel_savepoint => sub {
		return "BEGIN;\n" . (chance(0.5) ? one() : '') . "SAVEPOINT a;\n" . relabel() . (chance(0.5) ? statement() : '')
		  . "ROLLBACK TO a;\n" . (chance(0.5) ? sleeps(0, 0.3) : '') . statement() . one() . end() . one();
	},
	relabel_and_restart => sub {
		return "BEGIN;\n" . relabel() . (chance(0.2) ? one() : '') . restart() . (chance(0.2) ? one() : '') . end() . one();
	});

my $recreate = "BEGIN;\nDROP EXTENSION snowflake_id CASCADE;\nCREATE EXTENSION snowflake_id;\n"
  . "ALTER TABLE t ALTER id SET DEFAULT snowflake_nextval();\nCOMMIT;\n";

sub script
{
	my ($s, $database, $may_rewrite, $n) = @_;
	# Later scripts have later labels, which can follow those of earlier ones.
	local $stage = $n;
	my $sql = <<'END';
SET lock_timeout = '3 s';
SET client_min_messages = warning;
SELECT 'S', (SELECT pid || '.' || ms(backend_start) FROM pg_stat_activity WHERE backend_type = 'checkpointer'),
	current_setting('snowflake_id.worker_id'), ms(clock_timestamp());
END
	my $rewrite_at = $may_rewrite && chance(0.6) ? between(1, 10) : 0;
	my $relabels = !$may_rewrite ? 0 : $s->{mood} eq 'relabel' ? 9 : $s->{mood} eq 'policy' ? 2 : 0.7;
	local (%rewrites, %relabels, %advances);
	for my $n (1 .. between(5, 15))
	{
		my $name =
		  $s->{mood} eq 'burst'
		  ? weighted(flood => 4, burst => 2, single => 3, statement => 3, idle => 1)
		  : weighted(
			single => 4, prompt => 2, statement => 8, transaction => 5, savepoints => 3, two_phase => 2,
			timeout => 1, burst => 0.5, idle => 9, long => $s->{mood} eq 'relabel' ? 5 : 1, read_only => 1, cursor => 3,
			role => 2, copy_in => 1, mark => 3, currval => 1, advance => $s->{mood} eq 'failover' ? 0 : 0.3,
			comment => 1, grant => 0.7, alter => 0.7, decode => 1, several => @targets > 1 ? 4 : 0,
			extra => $s->{recreates} eq $database ? 0 : 1, relabel => $relabels);
		aim();
		if ($name eq 'relabel')
		{
			my @named = grep { $_ } @targets;
			$target = pick(@named) if @named;
			$sql .= $relabel{ pick(sort keys %relabel) }->() if $target;
		}
		else { $sql .= $step{$name}->($s); }
		if ($n == $rewrite_at)
		{
			aim();
			$sql .= $rewrite{ pick(sort keys %rewrite) }->();
		}
	}
	local $target = undef;
	if ($may_rewrite && $s->{recreates} eq $database && chance(0.7))
	{
		$rewrites{''}++;
		$sql .= $recreate . one();
	}
	return {
		sql => $sql,
		rewrites => {%rewrites},
		relabels => {%relabels},
		advances => {%advances},
		transactions => $sql =~ tr/;//
	};
}

# Describes a schedule for a reader.
sub describe
{
	my ($s) = @_;
	return describe_leases($s) if $s->{mood} eq 'leases';
	my $text = sprintf("mood %s, databases %s, clients in %s\n",
		$s->{mood}, join(' ', @{ $s->{databases} }), join(' ', map { $_->{database} } @{ $s->{clients} }));
	for my $key (qw(reserve_ms debug_slots fsync checkpoint_timeout recreates worker standby_worker standby_clock))
	{
		$text .= "$key = $s->{$key}\n";
	}
	for my $g (@{ $s->{generators} })
	{
		$text .= "$g->{database}.$g->{name}:\n" . join('', map { "  $_->{text}\n" } @{ $g->{labels} });
	}
	for my $f (@{ $s->{faults} })
	{
		$text .= join(', ', "after $f->{after} s: $f->{kind}",
			map { "$_ $f->{$_}" } grep { !/^(kind|after|first|swings)$/ } sort keys %$f) . "\n";
		$text .= join(', ', map { "$_->[0] for $_->[1] s" } @{ $f->{swings} }) . "\n" if $f->{swings};
		$text .= "first in $f->{first}{database}: $f->{first}{sql}" if $f->{first};
	}
	return $text;
}

sub describe_leases
{
	my ($s) = @_;
	my $text = "mood leases\n";
	$text .= "$_ = $s->{$_}\n" for qw(lease_ms patience_ms hold_ms max_ahead_ms reserve_ms fsync leasing claimants pool_size fails_over);
	$text .= "clocks: @{ $s->{clocks} }\n" . join('', map { "client: $_" } @{ $s->{clients} });
	for my $f (map { ($_, $_->{within} ? { %{ $_->{within} }, within => 1 } : ()) } @{ $s->{faults} })
	{
		$text .= ($f->{within} && !ref $f->{within} ? '  within: ' : '')
		  . join(', ', "after $f->{after} s: $f->{kind}", map { "$_ $f->{$_}" } grep { !/^(kind|after|within)$/ } sort keys %$f) . "\n";
	}
	return $text;
}

1;
