# Tests on_rollback=next_clock: after a rollback IDs resume in another clock sequence, and
# the server knows which clock sequences were used, also after restarts and crashes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time sleep);

my $multi_clock = q{preset=multi_clock epoch='2025-01-01 00:00:00+00'};
my $node = new_node('main', 3, allows_streaming => 1);
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $session = session($node);
my ($code, $text);

sub next_of { return "SELECT snowflake_nextval('$_[0]')"; }

sub restart
{
	my ($how, $instant) = @_;
	$session->quit;
	$node->stop($how);
	start_with_clock($node, $instant - time);
	$session = session($node);
	return;
}

# The clock goes two seconds back: IDs resume at once, at the time of the clock, in the
# next clock sequence.
create_generator($node, 'g', $multi_clock);
my ($clock, $ahead) = draw_clock($session, 'g');
is($clock, 0, 'clock 0 at first');
set_clock($node, -2);
($clock, $ahead) = draw_clock($session, 'g');
is($clock, 1, 'the next clock');
between($ahead, -1, 0, 'at the time of the clock');
is((draw_clock($session, 'g'))[0], 1, 'which stays in force');
is(in_log($node, 'clock moved backwards by [12] s.*\n.*DETAIL:  Generator g continues with clock sequence 1 of 0 to 15; 14 more are free'), 1, 'logged');
is(shown($node, 'pg_stat_snowflake', 'g', 'clock_rollbacks || \' \' || refusals || \' \' || waits'), '1 0 0', 'counted: a rollback waits for nothing');
between(shown($node, 'pg_stat_snowflake', 'g', 'extract(epoch FROM largest_rollback)'), 1, 2, 'the largest rollback');
is(shown($node, 'snowflake_generators', 'g', 'refused_since'), '', 'nothing is refused');
set_clock($node, 0);
is((draw_clock($session, 'g'))[0], 1, 'forward is no reason for another one');
check_unique('g');

# The clock goes back seventeen times to one instant, while the server runs and while it
# is down. Fifteen times there is another clock sequence; then a rollback is refused, and
# a start is at the mark.
create_generator($node, 'again', $multi_clock);
# IDs are drawn in the same two ticks each time: a clock sequence used twice issues IDs
# twice.
draw($session, 'again');
sleep 0.01;
my $instant = stop_clock($node);
draw_batch($session, 'again', 500);
my (@clocks, @expected);
for my $round (1 .. 15)
{
	stop_clock($node, $instant + 0.02);
	draw_batch($session, 'again', 500);
	my $how = ('running', 'fast', 'running', 'immediate')[ $round % 4 ];
	restart($how, $instant) if $how ne 'running';
	stop_clock($node, $instant);
	($clock, $ahead) = draw_clock($session, 'again');
	push @clocks, $clock;
	push @expected, $round;
	between($ahead, -0.001, 0, "round $round, $how: at the time of the clock");
	draw_batch($session, 'again', 500);
}
is("@clocks", "@expected", 'one clock after the other');
is(in_log($node, 'generator again starts before its mark\n.*DETAIL:  Generator again continues with clock sequence 1 of 0 to 15; 14 more are free'), 1, 'a start in another clock is logged');
stop_clock($node, $instant + 0.02);
my $last = draw($session, 'again');
my $state = $node->safe_psql('postgres', 'SELECT last_value FROM again');
stop_clock($node, $instant);
($code, $text) = error_in($session, next_of('again'));
is($code, '58000', 'round 16: refused');
draw_batch($session, 'again', 500) if $code eq '';
check_unique('again');
like($text, qr/ERROR:  58000: clock moved backwards by \d+ ms, and generator again has no clock sequence left for that time\nDETAIL:  Each of its 16 clock sequences may have been used at that time\. One is free from (\S+ \S+) on\. IDs are refused since \S+ \S+\.\nHINT:.*snowflake_accept_clock\(\)/,
	'and the text says why and until when');
my ($free_from) = $text =~ /free from (\S+ \S+) on/;
is($session->query_safe("SELECT '$free_from' - snowflake_timestamp($last, 'again') BETWEEN '0 s' AND '1 ms'"), 't',
	'until what was issued last');
is($session->query_safe(q{SELECT snowflake_currval('again')}), $last, 'what is refused changes nothing');
is($node->safe_psql('postgres', 'SELECT last_value FROM again'), $state, 'nor the mark');
is(shown($node, 'snowflake_generators', 'again', 'refused_since IS NOT NULL'), 't', 'the view says so');
is(in_log($node, 'snowflake_id: clock moved backwards by .*, and generator again has no clock sequence left'), 1, 'and the log');
restart('immediate', $instant);
stop_clock($node, $instant);
($clock, $ahead) = draw_clock($session, 'again');
is($clock, 15, 'round 17: a start in the same clock');
between($ahead, 5, 15, 'at the mark');
check_unique('again');
draw_batch($session, 'again', 500);
# From there the generator is ahead of any such rollback.
stop_clock($node, $instant + 0.02);
draw_batch($session, 'again', 500);
stop_clock($node, $instant);
is((draw_clock($session, 'again'))[0], 15, 'a rollback of a generator that is ahead needs no other clock');
draw_batch($session, 'again', 500);
# With time, all clock sequences become free.
set_clock_to($node, $instant + 60);
is((draw_clock($session, 'again'))[0], 15, 'a minute later: still the same clock');
sleep 0.02;
draw($session, 'again');
set_clock_to($node, $instant + 60);
($clock, $ahead) = draw_clock($session, 'again');
is($clock, 0, 'then around to clock 0');
cmp_ok($ahead, '<', 0.05, 'at the time of the clock');
check_unique('again');

# With two clock sequences and max_wait, a call waits until one is free.
create_generator($node, 'patient', q{layout='time:41 clock:1 worker:10 sequence:11' epoch='2025-01-01 00:00:00+00' on_rollback=next_clock max_wait='5 s' max_borrow=0});
set_clock($node, 0);
draw($session, 'patient');
set_clock($node, -1);
is((draw_clock($session, 'patient'))[0], 1, 'the other clock');
my $from = time;
set_clock($node, -3);
($clock, $ahead) = draw_clock($session, 'patient');
cmp_ok(time - $from, '>', 1, 'no third clock: it waits');
between($ahead, -1, 0.01, 'for the time of the clock');
is(shown($node, 'pg_stat_snowflake', 'patient', q{clock_rollbacks || ' ' || refusals || ' ' || waits}), '2 0 1', 'counted');
is(shown($node, 'snowflake_generators', 'patient', 'refused_since'), '', 'a wait is no refusal');
set_clock($node, -30);
($code, $text) = error_in($session, next_of('patient'));
is($code, '58000', 'longer than max_wait: refused');
is(shown($node, 'pg_stat_snowflake', 'patient', 'waits'), '1', 'at once');
like($text, qr/has no clock sequence left for that time\nDETAIL:  Each of its 2 clock sequences/, 'with the text');
# The clock is accepted: IDs resume ahead of the clock, above the former ones.
my $before = drawn('patient')->[-1];
$session->query_safe('SELECT snowflake_accept_clock()');
($clock, $ahead) = draw_clock($session, 'patient');
cmp_ok(drawn('patient')->[-1], '>', $before, 'accepted: on from where it was');
between($ahead, 25, 30, 'ahead of the clock');
is(shown($node, 'snowflake_generators', 'patient', 'refused_since'), '', 'refused no more');
check_unique('patient');

# The mark keeps the history of clock sequences: a start uses another clock sequence while
# the mark is ahead, and the same one after it.
set_clock($node, 0);
create_generator($node, 'kept', $multi_clock);
my $shift = 0;
for my $how ('fast', 'immediate')
{
	my ($before) = draw_clock($session, 'kept');
	restart($how, time + $shift);
	($clock, $ahead) = draw_clock($session, 'kept');
	is($clock, $before + 1, "after a $how stop in another clock");
	between($ahead, -1, 0.01, 'at the time of the clock');
	$shift += 20;
	restart($how, time + $shift);
	is((draw_clock($session, 'kept'))[0], $clock, 'after the mark in the same one');
}
check_unique('kept');

# Commands that keep the mark keep the history of clock sequences, as a restart does: IDs resume in
# the next one.
set_clock($node, 0);
create_generator($node, 'altered', $multi_clock);
draw($session, 'altered');
set_clock($node, -2);
is((draw_clock($session, 'altered'))[0], 1, 'in clock 1');
$session->query_safe(q{ALTER SEQUENCE altered RESTART});
($clock, $ahead) = draw_clock($session, 'altered');
is($clock, 2, 'restarted: in the next one');
between($ahead, -1, 0.01, 'at the time of the clock');
$session->query_safe(q{ALTER SEQUENCE altered CACHE 10});
draw_batch($session, 'altered', 100);
check_unique('altered');

# A transaction that rewrote the sequence is rolled back, and with it the clock sequences
# that the mark had recorded.
create_generator($node, 'undone', $multi_clock);
set_clock($node, 0);
draw($session, 'undone');
set_clock($node, -20);
stop_clock($node);
$session->query_safe('BEGIN');
$session->query_safe('ALTER SEQUENCE undone CACHE 10');
draw_batch($session, 'undone', 10);
my $frozen = $session->query_safe('SELECT extract(epoch FROM clock_timestamp())');
set_clock($node, -25);
stop_clock($node);
draw_batch($session, 'undone', 10);
$session->query_safe('ROLLBACK');
set_clock_to($node, $frozen);
draw_batch($session, 'undone', 2000) for 1 .. 20;
check_unique('undone');

$session->quit;
$node->stop;
done_testing();
