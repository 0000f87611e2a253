# Tests a clock that is set back under on_rollback=error and on_rollback=wait, and by
# more than max_rollback under each policy.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time sleep);

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '1 s'");
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
create_generator($node, 'refusing', 'preset=default on_rollback=error');
create_generator($node, 'waiting', q{preset=default on_rollback=wait max_wait='3 s'});
create_generator($node, 'going', 'preset=default');
my ($session, $other) = map { session($node) } 1 .. 2;

sub next_of { return "SELECT snowflake_nextval('$_[0]')"; }
sub stat_of { return shown($node, 'pg_stat_snowflake', @_); }
sub view_of { return shown($node, 'snowflake_generators', @_); }

# Returns the state that a refused call must leave as it was.
sub state_of
{
	my ($name) = @_;
	return join ' ', $session->query_safe("SELECT snowflake_currval('$name')"),
	  $node->safe_psql('postgres', "SELECT last_value FROM $name"),
	  stat_of($name, 'issued'), view_of($name, 'last_id_at');
}

# Under on_rollback=error the clock goes five seconds back.
for (1 .. 3) { draw($session, $_) for 'refusing', 'going'; }
my $state = state_of('refusing');
set_clock($node, -5);
my ($code, $text) = error_in($session, next_of('refusing'));
is($code, '58000', 'refused');
between(behind($text), 1, 5, 'the message says by how much');
like($text, qr/DETAIL:  Generator refusing has issued IDs at (\S+ \S+), and issues none before the clock is there again \(on_rollback=error\)\. IDs are refused since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+00\./,
	'the detail says since when and until when');
my ($until, $since) = $text =~ /IDs at (\S+ \S+), .* since (\S+ \S+)\./;
is($session->query_safe("SELECT snowflake_timestamp(snowflake_currval('refusing'), 'refusing') = '$until'"), 't',
	'until the instant of the last ID');
is($session->query_safe("SELECT clock_timestamp() - '$since' BETWEEN '0 s' AND '1 min'"), 't', 'since now');
like($text, qr/HINT:  Check the time synchronization of this server\..*snowflake_accept_clock\(\).*on_rollback=continue/,
	'the hint says what helps');
is((error_in($session, q{SELECT count(*) FROM snowflake_nextval_batch(10, 'refusing')}))[0], '58000', 'so is a batch');
is((error_in($other, next_of('refusing')))[0], '58000', 'and another session');
is(state_of('refusing'), $state, 'what is refused changes nothing');
draw($session, 'going');
is((error_in($session, 'SELECT snowflake_nextval()'))[0], '', 'other generators go on');
is(view_of('refusing', "refused_since = '$since'"), 't', 'the view says since when');
is(view_of('going', 'refused_since'), '', 'not of others');
is(stat_of('refusing', 'clock_rollbacks'), '1', 'one rollback');
is(stat_of('refusing', 'refusals'), '3', 'three refusals');
between(stat_of('refusing', 'extract(epoch FROM largest_rollback)'), 1, 5, 'the largest rollback');
is(stat_of('refusing', 'waits'), '0', 'nobody waited');
is(in_log($node, 'snowflake_id: clock moved backwards by .*\n.*DETAIL:  Generator refusing has issued IDs'), 1, 'logged once');
is(in_log($node, 'generator refusing issues IDs again'), 0, 'and not over yet');

# Calls are refused until the clock has passed the last ID.
set_clock($node, -2);
wait_until('the clock has passed', sub { (error_in($other, next_of('refusing')))[0] eq '' });
is($session->query_safe("SELECT clock_timestamp() >= '$until'"), 't', 'IDs again when the clock is where it was');
draw($session, 'refusing') for 1 .. 3;
is(view_of('refusing', 'refused_since'), '', 'refused no more');
is(in_log($node, "generator refusing issues IDs again\\n.*IDs were refused since \Q$since\E\\."), 1, 'logged once');
is(stat_of('refusing', 'clock_rollbacks'), '1', 'still one rollback');
set_clock($node, -7);
is((error_in($session, next_of('refusing')))[0], '58000', 'again');
is(stat_of('refusing', 'clock_rollbacks'), '2', 'two rollbacks');
set_clock($node, -2);
draw($session, 'refusing');

# A start is no rollback: IDs resume at the mark, at once.
set_clock($node, -7);
is((error_in($session, next_of('refusing')))[0], '58000', 'and again');
$node->stop('immediate');
start_with_clock($node, -7);
($session, $other) = map { session($node) } 1 .. 2;
draw($session, 'refusing');
is(stat_of('refusing', 'waits'), '0', 'a start is no rollback');
between(view_of('refusing', 'extract(epoch FROM ahead_by)'), 0.5, 7, 'it begins at the mark');

# A superuser accepts the clock: IDs resume ahead of the clock, and calls are refused
# again only when the clock is set back anew.
set_clock($node, -67);
($code, $text) = error_in($session, next_of('refusing'));
between(behind($text), 50, 70, 'a minute back');
$session->query_safe('SELECT snowflake_accept_clock()');
draw($session, 'refusing') for 1 .. 3;
is((error_in($session, q{SELECT count(*) FROM snowflake_nextval_batch(1000, 'refusing')}))[0], '', 'accepted');
between(view_of('refusing', 'extract(epoch FROM ahead_by)'), 50, 70, 'on ahead of the clock');
is(view_of('refusing', 'refused_since'), '', 'refused no more');
is(in_log($node, 'clock accepted, after a jump of -\d+ (?:min|s).*; generators may be \d+ (?:min|s).* ahead of the clock'), 1, 'logged');
set_clock($node, -77);
is((error_in($session, next_of('refusing')))[0], '58000', 'set back again, refused again');
set_clock($node, -67);
draw($session, 'refusing');
$node->stop('immediate');
start_with_clock($node, -67);
($session, $other) = map { session($node) } 1 .. 2;
draw($session, 'refusing') for 1 .. 3;
set_clock($node, 0);
draw($session, 'refusing');
wait_until('with the clock again', sub {
	draw($session, 'refusing');
	return view_of('refusing', q{ahead_by < '1 s'}) eq 't' });
check_ids('on_rollback=error', drawn('refusing'));

# Draws an ID at the present instant, which is later each time, and then sets the clock
# back by some seconds.
my $now = 0;
sub step_back
{
	my ($name, $by) = @_;
	$now += 20;
	set_clock($node, $now);
	draw($session, $name);
	set_clock($node, $now - $by);
	return;
}

# Under on_rollback=wait a call waits for up to max_wait.
step_back('waiting', 2);
cmp_ok(draw_timed($session, 'waiting'), '>', 1, 'the ID comes when the clock is where it was');
draw($session, 'waiting');
is(stat_of('waiting', 'waits'), '1', 'one call waited');
cmp_ok(stat_of('waiting', 'wait_time'), '>', 1000, 'for so many milliseconds');
is(stat_of('waiting', 'clock_rollbacks'), '1', 'one rollback');
between(stat_of('waiting', 'extract(epoch FROM largest_rollback)'), 1, 2, 'the largest rollback');
is(stat_of('waiting', 'refusals'), '0', 'nothing refused');
is(in_log($node, 'generator waiting issues IDs again'), 0, 'and nothing to be logged as over');

# A timeout and a user can end the wait.
step_back('waiting', 2.9);
my $from = time;
is((error_in($session, q{SET statement_timeout = '300 ms'; } . next_of('waiting')))[0], '57014', 'statement_timeout ends the wait');
cmp_ok(time - $from, '<', 2.7, 'in time');
$session->query_safe('RESET statement_timeout');
step_back('waiting', 2.9);
send_to($session, next_of('waiting'));
wait_for_clock($node, '%waiting%');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Extension'});
($code, $text) = answer_in($session);
is($code, '57014', 'so does pg_cancel_backend()');
is(stat_of('waiting', 'clock_rollbacks'), '3', 'three rollbacks');

# Beyond max_wait a call does not begin to wait.
my $waits = stat_of('waiting', 'waits');
step_back('waiting', 10);
($code, $text) = error_in($session, next_of('waiting'));
is($code, '58000', 'beyond max_wait refused');
is(stat_of('waiting', 'waits'), $waits, 'at once');
between(behind($text), 5, 10, 'by how much');
like($text, qr/issues none before the clock is there again \(on_rollback=wait, max_wait is 3 s\)/, 'and by which limit');
is(view_of('waiting', 'refused_since IS NOT NULL'), 't', 'the view says so');
is(in_log($node, 'snowflake_id: clock moved backwards by .*\n.*DETAIL:  Generator waiting has issued IDs'), 1, 'and the log');
# Less than max_wait is left now: a call waits, and its ID ends the rollback.
set_clock($node, $now - 1);
draw($session, 'waiting');
is(view_of('waiting', 'refused_since'), '', 'over');
is(in_log($node, 'generator waiting issues IDs again'), 1, 'logged once');

# The clock is set during a wait: further back within max_wait, beyond max_wait, and
# forward.
for my $case ([ 1.5, 2.5, '' ], [ 2.9, 100, '58000' ], [ 2.9, 0, '' ])
{
	my ($first, $then, $expected) = @$case;
	step_back('waiting', $first);
	send_to($session, next_of('waiting'));
	wait_for_clock($node, '%waiting%');
	$from = time;
	set_clock($node, $now - $then);
	my ($code, $text, $id) = answer_in($session);
	is($code, $expected, "$first s back, then $then");
	push @{ drawn('waiting') }, $id if $code eq '';
	cmp_ok(time - $from, '<', 2.4, 'at once') if $then == 0 || $expected ne '';
}
# The time already waited counts: a call has waited 1.5 s, and less than max_wait is
# left.
step_back('waiting', 2.9);
send_to($session, next_of('waiting'));
wait_for_clock($node, '%waiting%');
sleep 1.5;
set_clock($node, $now - 4);
is((answer_in($session))[0], '58000', 'set back too far for what is left');

# Several sessions wait for the same instant.
step_back('waiting', 1);
send_to($_, next_of('waiting')) for $session, $other;
my @both = map { (answer_in($_))[2] } $session, $other;
push @{ drawn('waiting') }, sort { $a <=> $b } @both;
draw($other, 'waiting');
check_ids('on_rollback=wait', drawn('waiting'));

# A rollback of more than max_rollback is refused under each policy, whatever max_wait
# is.
set_clock($node, $now);
my %label = (
	refusing_short => 'preset=default on_rollback=error',
	waiting_short => q{preset=default on_rollback=wait max_wait='30 s'},
	switching_short => q{preset=multi_clock epoch='2025-01-01 00:00:00+00' max_wait='30 s'},
	going_short => 'preset=default');
for my $name (sort keys %label)
{
	create_generator($node, $name, "$label{$name} max_rollback='1 s'");
	draw($session, $name);
}
set_clock($node, $now - 20);
for my $name (grep { $_ ne 'going_short' } sort keys %label)
{
	($code, $text) = error_in($session, next_of($name));
	is($code, '58000', "$name: refused");
	between(behind($text), 10, 20, "$name: by how much");
	like($text, qr/before the clock is there again \(max_rollback is 1 s\)/, "$name: and by which limit");
}
# This generator notices the rollback when it raises its mark.
wait_until('going_short: refused', sub {
	($code, $text) = error_in($session, next_of('going_short'));
	return $code ne '' });
is($code, '58000', 'going_short: refused');
like($text, qr/would stay that far ahead of the clock; its limit is 1 s\./, 'going_short: and by which limit');
set_clock($node, $now);
draw($session, $_) for sort keys %label;
check_ids($_, drawn($_)) for sort keys %label;

$_->quit for $session, $other;
$node->stop;
done_testing();
