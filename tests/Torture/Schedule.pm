# What happens in an episode of the torture test: settings, what each client
# runs, which faults strike and after how long a pause, where the clock is set.
# All of it follows from a seed; nothing else draws random numbers while a
# schedule is made.
package Torture::Schedule;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(schedule describe);

use constant HOUR => 3600;

# Steps of the clock stay within this of its start, so that no two settings are
# a day apart: what lies beyond a day is the business of the refusals.
use constant RANGE => 11 * HOUR;

sub between { my ($low, $high) = @_; return $low + int(rand($high - $low + 1)); }
sub chance { return rand() < $_[0]; }
sub pick { return $_[ int(rand(@_)) ]; }
sub seconds { my ($low, $high) = @_; return sprintf('%.2f', $low + rand($high - $low)); }

# weighted(a => 3, b => 1): a three times as often as b.
sub weighted
{
	my @pairs = @_;
	my $sum   = 0;
	for (my $i = 1; $i < @pairs; $i += 2) { $sum += $pairs[$i]; }
	my $at = rand($sum);
	while (@pairs > 2 && $at >= $pairs[1]) { $at -= $pairs[1]; splice @pairs, 0, 2; }
	return $pairs[0];
}

# An episode of each mood makes much of one thing.
sub schedule
{
	my ($seed) = @_;
	srand($seed);
	my $mood = weighted(mixed => 5, failover => 3, eviction => 2, refusal => 2, burst => 2);
	my %s = (
		seed => $seed,
		mood => $mood,
		databases => [ 'a', 'b', chance(0.3) ? 'c' : () ],
		reserve_ms => pick(100, 100, 300, 1000, 2000),
		max_generators => $mood eq 'eviction' ? 1 : pick(1024, 1024, 2),
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
	$s{max_generators} = 1024 if $s{databases}[2];

	# With room for one generator, two databases keep each other out.
	my $clients = $mood eq 'burst' ? between(4, 6) : $mood eq 'eviction' ? between(2, 5) : between(4, 12);
	for my $client (1 .. $clients)
	{
		my $database = pick(@{ $s{databases} });
		# Few rewrite the sequence: each time may put the generator ahead of its
		# clock by a window, and the bound on that should stay tight.
		my $rewrites = $mood ne 'burst' && $client <= 2;
		push @{ $s{clients} },
		  {
			database => $database,
			scripts => [ map { script(\%s, $database, $rewrites) } 1 .. 4 ]
		  };
	}
	$s{faults} = [ faults(\%s) ];
	return \%s;
}

# Offsets of the clock are from that of the machine, in seconds.
sub next_clock
{
	my ($s) = @_;
	my $delta = weighted(
		between(1, 30) => 4,
		between(60, 1800) => 2,
		between(HOUR, 2 * RANGE) => 3);
	$delta = -$delta if chance(0.5);
	my $to = $s->{clock} + $delta;
	$to = $s->{clock} - $delta if abs($to) > RANGE;
	$to = between(-RANGE(), RANGE) if abs($to) > RANGE;
	return $s->{clock} = $to;
}

sub faults
{
	my ($s) = @_;
	my $mood = $s->{mood};
	my $still = $mood eq 'burst';
	my @faults;
	my $promotions = $mood eq 'failover' ? between(1, 2) : 0;
	my $refusals = $mood eq 'refusal' ? between(1, 2) : 0;
	my $count = $still ? between(1, 2) : between(4, 7);
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
			$still ? () : (step => 6, reload => 1));
		push @faults, fault($s, $kind);
	}
	# At any place among the others, but their clocks are drawn in this order.
	splice @faults, between(0, scalar @faults), 0, promotion($s) for 1 .. $promotions;
	splice @faults, between(0, scalar @faults), 0, refusal($s) for 1 .. $refusals;
	return @faults;
}

sub fault
{
	my ($s, $kind) = @_;
	# A burst needs time to run away.
	my %f = (kind => $kind, after => $s->{mood} eq 'burst' ? seconds(1, 3) : seconds(0.1, 1.2), victim => rand(), probe => chance(0.5));
	$f{clock} = next_clock($s) if $kind eq 'step';
	if ($kind =~ /^(kill_postmaster|immediate|restart)$/)
	{
		$f{clock} = next_clock($s) if $s->{mood} ne 'burst' && chance(0.4);
		$f{down} = seconds(0, 0.5);
	}
	# Orphans of a killed postmaster find out by themselves, or are killed too.
	$f{orphans} = pick('waited for', 'killed') if $kind eq 'kill_postmaster';
	$f{reserve_ms} = pick(100, 300, $s->{reserve_ms}) if $kind eq 'reload';
	return \%f;
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
		# After a start far back: a restart, or the word of a superuser.
		way_out => pick('correct', 'accept'),
		probe => 1
	};
}

# Client scripts. Lines that psql prints, fields separated by '|':
#   S  server's life, worker ID                 once, at the start of a session
#   I  ID, not made before, received at         an ID
#   R  the same                                 in a transaction that has restarted the sequence
#   X  the same                                 of a generator that is rolled back
#   M  mark                                     read after the ID before it, in its transaction
#   V  ID                                       snowflake_currval(), right after an ID
#   A                                           anything else
# Instants are milliseconds of the server's wall clock.
my $received = 'ms(clock_timestamp())';
my $began    = 'ms(statement_timestamp())';

sub ids { my ($expression, $from, $tag) = @_; $tag //= 'I'; return "SELECT '$tag', $expression, $began, $received" . ($from ? " FROM $from" : '') . ";\n"; }
sub one { return ids('snowflake_nextval()', '', $_[0]); }

# In the client: pg_sleep() goes by the clock that is stepped.
sub sleeps { my ($low, $high) = @_; return '\! sleep ' . seconds($low, $high) . "\n"; }

# A statement that gives IDs.
sub statement
{
	my $what = weighted(one => 5, many => 3, batch => 3, rows => 1, insert => 3, risky => 2, copy => 1);
	return one() if $what eq 'one';
	return ids('snowflake_nextval()', 'generate_series(1, ' . between(2, 200) . ')') if $what eq 'many';
	return ids('id', 'snowflake_nextval_batch(' . pick(1, between(2, 20), between(2, 300), between(2, 300), between(300, 9000)) . ') AS id')
	  if $what eq 'batch';
	return ids('snowflake_nextval_batch(' . between(1, 200) . ')') if $what eq 'rows';
	return "INSERT INTO t (s) SELECT 'x' FROM generate_series(1, " . between(1, 100)
	  . ") RETURNING 'I', id, $began, $received;\n"
	  if $what eq 'insert';
	return ids('id', 'risky(' . between(1, 30) . ') AS id') if $what eq 'risky';
	return "COPY (SELECT 'I', snowflake_nextval(), $began, $received FROM generate_series(1, "
	  . between(1, 300) . ")) TO STDOUT (DELIMITER '|');\n";
}

sub end { return pick("COMMIT;\n", "ROLLBACK;\n", "COMMIT;\n"); }

my %step = (
	single => sub { return join '', map { one() } 1 .. between(1, 20); },
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
		  . ids('max(snowflake_nextval())', 'generate_series(1, 500000)')
		  . statement() . "RESET statement_timeout;\n" . one();
	},
	burst => sub {
		return ids('max(snowflake_nextval())', 'generate_series(1, ' . between(100_000, 400_000) . ')');
	},
	# Faster than the layout holds: what is ahead of its clock must wait.
	flood => sub {
		return join '', map {
			ids('max(id)', '(SELECT snowflake_nextval_batch(100000) AS id FROM generate_series(1, 10)) AS s')
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
		# What a cursor gives may have been issued with the first row of its batch.
		my $sql = "BEGIN;\nDECLARE c CURSOR FOR SELECT 'I', snowflake_nextval_batch(" . between(5, 500)
		  . "), ms(now()), $received;\nFETCH " . between(1, 20) . " FROM c;\n";
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
		my $rows = between(1, 50);
		return "BEGIN;\nCOPY t (s) FROM STDIN;\n" . join('', map { "$_\n" } 1 .. $rows) . "\\.\n"
		  . "SELECT 'I', id, ms(now()), $received FROM t WHERE xmin = pg_current_xact_id()::xid ORDER BY id;\n" . end();
	},
	mark => sub {
		return "BEGIN;\n" . statement() . "SELECT 'M', last_value FROM snowflake_default;\n" . end();
	},
	currval => sub {
		return "BEGIN;\n" . one() . "SELECT 'V', snowflake_currval();\n" . end();
	},
	advance => sub {
		return chance(0.5)
		  ? "SELECT 'A', snowflake_advance('snowflake_default', now() + interval '" . between(0, 5) . " s');\n" . one()
		  : "SELECT 'A', snowflake_advance('snowflake_default', snowflake_nextval());\n" . one();
	},
	comment => sub {
		return "BEGIN;\nCOMMENT ON SEQUENCE snowflake_default IS 'x';\n" . (chance(0.5) ? sleeps(0, 0.3) . one() : '') . end();
	},
	grant => sub {
		return pick(
			"GRANT UPDATE ON SEQUENCE snowflake_default TO mortal;\n" . one(),
			"REVOKE UPDATE ON SEQUENCE snowflake_default FROM mortal;\n" . one(),
			"BEGIN;\nREVOKE USAGE ON SEQUENCE snowflake_default FROM PUBLIC;\n" . one() . "ROLLBACK;\n" . one());
	},
	alter => sub {
		return pick(
			"ALTER SEQUENCE snowflake_default OWNED BY NONE;\n",
			"BEGIN;\nALTER SEQUENCE snowflake_default CYCLE;\nROLLBACK;\n",
			"BEGIN;\nALTER SEQUENCE snowflake_default RENAME TO other;\n"
			  . "ALTER SEQUENCE other RENAME TO snowflake_default;\n" . one() . end(),
			"BEGIN;\nALTER SEQUENCE snowflake_default RENAME TO other;\nROLLBACK;\n") . one();
	});

# These put the generator back to its mark. An ID is taken before a restart: a
# sequence that is restarted when its generator has not started in this life of
# the server forgets its mark, as after setval(). And one after it: committed
# without one, there would be no mark for the next life.
my %rewrite = (
	restart => sub {
		return "BEGIN;\n" . one()
		  . "ALTER SEQUENCE snowflake_default RESTART;\n" . one('R') . (chance(0.3) ? one('R') : '')
		  . end() . one();
	},
	restart_untouched => sub {
		return "BEGIN;\nALTER SEQUENCE snowflake_default RESTART;\nROLLBACK;\n" . (chance(0.5) ? one() : '');
	},
	restart_savepoint => sub {
		return "BEGIN;\n" . one()
		  . "SAVEPOINT a;\nALTER SEQUENCE snowflake_default RESTART;\n" . one('R')
		  . (chance(0.3) ? "SELECT 'A', snowflake_advance('snowflake_default', now() + interval '4 s');\n" . one('R') : '')
		  . "ROLLBACK TO a;\n" . one() . statement() . end() . one();
	},
	restart_two_phase => sub {
		return "\\set gid g :n _" . between(1, 1_000_000) . "\nBEGIN;\n" . one()
		  . "ALTER SEQUENCE snowflake_default RESTART;\n" . one('R')
		  . "PREPARE TRANSACTION :'gid';\n" . pick('COMMIT', 'ROLLBACK') . " PREPARED :'gid';\n" . one();
	},
	recreate_undone => sub {
		return "BEGIN;\n" . (chance(0.5) ? one() : '')
		  . "DROP EXTENSION snowflake_id CASCADE;\nCREATE EXTENSION snowflake_id;\n" . one('X')
		  . "ROLLBACK;\n" . one();
	});

my $recreate = "BEGIN;\nDROP EXTENSION snowflake_id CASCADE;\nCREATE EXTENSION snowflake_id;\n"
  . "ALTER TABLE t ALTER id SET DEFAULT snowflake_nextval();\nCOMMIT;\n";

sub script
{
	my ($s, $database, $may_rewrite) = @_;
	my $sql = <<'END';
SET lock_timeout = '3 s';
SET client_min_messages = warning;
SELECT 'S', (SELECT pid || '.' || ms(backend_start) FROM pg_stat_activity WHERE backend_type = 'checkpointer'),
	current_setting('snowflake_id.worker_id'), ms(clock_timestamp());
END
	my $rewrite_at = $may_rewrite && chance(0.6) ? between(1, 10) : 0;
	my %made = (sql => '', rewrites => 0);
	for my $n (1 .. between(5, 15))
	{
		my $name =
		  $s->{mood} eq 'burst'
		  ? weighted(flood => 4, burst => 2, single => 3, statement => 3, idle => 1)
		  : weighted(
			single => 4, statement => 8, transaction => 5, savepoints => 3, two_phase => 2,
			timeout => 1, burst => 0.5, idle => 9, long => 1, read_only => 1, cursor => 3,
			role => 2, copy_in => 1, mark => 3, currval => 1, advance => 0.3,
			comment => 1, grant => 0.7, alter => 0.7);
		$sql .= $step{$name}->();
		if ($n == $rewrite_at)
		{
			$sql .= $rewrite{ pick(sort keys %rewrite) }->();
			$made{rewrites}++;
		}
	}
	$sql .= $recreate . one() if $may_rewrite && $s->{recreates} eq $database && chance(0.7);
	$made{sql} = $sql;
	return \%made;
}

# For people.
sub describe
{
	my ($s) = @_;
	my $text = sprintf("mood %s, databases %s, clients in %s\n",
		$s->{mood}, join(' ', @{ $s->{databases} }), join(' ', map { $_->{database} } @{ $s->{clients} }));
	for my $key (qw(reserve_ms max_generators fsync checkpoint_timeout recreates worker standby_worker standby_clock))
	{
		$text .= "$key = $s->{$key}\n";
	}
	for my $f (@{ $s->{faults} })
	{
		$text .= join(', ', "after $f->{after} s: $f->{kind}",
			map { "$_ $f->{$_}" } grep { !/^(kind|after)$/ } sort keys %$f) . "\n";
	}
	return $text;
}

1;
