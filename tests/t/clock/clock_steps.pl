# Tests steps of the wall clock while the server runs.
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
my $lead_sql = 'SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp())';
sub lead { return $node->safe_psql('postgres', $lead_sql); }
sub abs_lt { my ($value, $limit, $what) = @_; return cmp_ok(abs $value, '<', $limit, "$what: $value s"); }

abs_lt(lead(), 0.5, 'in step with the clock');

# The test library moves the wall clock of a running server and leaves the boot clock
# alone. Otherwise this test would prove nothing.
my $shown = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())');
abs_lt($shown - time, 2, 'the faked clock starts out right');
set_clock($node, -3600);
$shown = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())');
abs_lt($shown - time + 3600, 2, 'the clock of the running server is an hour back');

# The clock goes back an hour while the server runs: IDs increase, without waits and
# errors.
set_clock($node, 0);
my $session = $node->background_psql('postgres');
my @ids;
for my $round (1 .. 60)
{
	set_clock($node, -3600) if $round == 20;
	push @ids, $session->query_safe('SELECT snowflake_nextval()');
	sleep 0.1;
}
check_ids('an hour back', \@ids);
is(shown($node, 'pg_stat_snowflake', 'snowflake_default', 'waits'), '0', 'nobody waited');
my $lead = lead();
cmp_ok($lead, '<', 3600, "an hour ahead at first: $lead s");
cmp_ok($lead, '>', 3500, 'but no step back');
my @leads;
for my $pause (4, 0)
{
	push @leads, [ split /\|/, $node->safe_psql('postgres', "$lead_sql, extract(epoch FROM clock_timestamp())") ];
	sleep $pause;
}
my ($shrunk, $passed) = ($leads[0][0] - $leads[1][0], $leads[1][1] - $leads[0][1]);
cmp_ok(abs($shrunk - $passed / 2), '<', 0.7, sprintf('the lead shrinks at half speed: by %.3f s in %.3f s', $shrunk, $passed));

# The clock is corrected: IDs go forward at once, and are in step after the next
# reservation.
set_clock($node, 0);
wait_until('in step again', sub { abs(lead()) < 0.5 });
abs_lt(lead(), 0.5, 'the lead is gone after the correction');

# The clock goes a year forward: calls are refused once the window is used up, and the
# mark does not move.
set_clock($node, 365 * 86400);
my ($code, $text) = ('', '');
wait_until('a year forward is refused', sub {
	($code, $text) = error_of($node, 'SELECT snowflake_nextval()');
	return $code ne '' });
is($code, '58000', 'a jump of a year is refused');
like($text, qr/clock jumped forward by 36\d d/, 'the error says by how much');
like($text, qr/HINT:.*snowflake_accept_clock/, 'the hint names the way out');
like(slurp_file($node->logfile), qr/LOG:  snowflake_id: clock jumped forward by 36\d d/,
	'the log has said so before, when half of the reserved time was used up');
my $mark = $node->safe_psql('postgres', 'SELECT last_value / 1000 - extract(epoch FROM now()) + 365 * 86400 FROM snowflake_default');
cmp_ok($mark, '<', 60, 'the mark stayed where it was');
set_clock($node, 0);
abs_lt(lead(), 1.5, 'corrected: as if nothing had been');

# A generator that takes its slot while the clock is wrong refuses a forward and a
# backward step too, although it has no earlier reading to compare with.
for my $days (3, -3)
{
	set_clock($node, $days * 86400);
	$node->safe_psql('postgres', "SELECT snowflake_create_generator('fresh$days', 'preset=discord')" =~ s/-/_/r);
	(my $nextval = "SELECT snowflake_nextval('fresh$days')") =~ s/-/_/;
	is((error_of($node, $nextval))[0], '58000', "$days days: refused by a generator that is new");
	set_clock($node, 0);
	is((error_of($node, $nextval))[0], '', 'corrected: it gives IDs');
	is((error_of($node, 'SELECT snowflake_nextval()'))[0], '', 'and so does the default generator');
}
abs_lt(lead(), 1.5, 'in step with the right clock');

# A superuser accepts a real jump by one call.
$node->safe_psql('postgres', 'CREATE ROLE mortal LOGIN');
is((error_of($node, 'SET ROLE mortal; SELECT snowflake_accept_clock()'))[0], '42501',
	'not for everybody');
set_clock($node, 2 * 86400);
wait_until('two days forward are refused', sub {
	return (error_of($node, 'SELECT snowflake_nextval()'))[0] eq '58000' });
like($node->safe_psql('postgres', 'SELECT snowflake_accept_clock()'),
	qr/^(2 days |48:00:|47:59:)/, 'accepted, and it says what');
abs_lt(lead(), 0.5, 'in step with the new clock');
my ($before) = ids($node, 1);

# The clock goes two days back, more than max_rollback: calls are refused until the
# clock is accepted.
set_clock($node, 0);
wait_until('two days back are refused', sub {
	($code, $text) = error_of($node, 'SELECT snowflake_nextval()');
	return $code ne '' });
is($code, '58000', 'a rollback of two days is refused');
like($text, qr/clock moved backwards by (2 d|1 d 23 h 59 min)/, 'by how much');
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
my ($after) = ids($node, 1);
cmp_ok($after, '>', $before, 'accepted: goes on above what was issued');
like(slurp_file($node->logfile), qr/clock accepted.*(2 d|1 d 23 h 59 min)/, 'logged');
is((error_of($node, 'SELECT count(snowflake_nextval()) FROM generate_series(1, 10000)'))[0], '',
	'and stays accepted');

# After a restart the mark is two days ahead: calls are refused, and the clock is never
# adopted unasked.
$node->stop;
start_with_clock($node, 0);
($code, $text) = error_of($node, 'SELECT snowflake_nextval()');
is($code, '58000', 'a mark two days ahead is refused');
like($text, qr/would start (2 d|1 d 23 h 5\d min).* ahead of the clock/, 'by how much');
# A call accepts only what was refused in its own database.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION snowflake_id; SELECT snowflake_accept_clock()');
is((error_of($node, 'SELECT snowflake_nextval()'))[0], '58000', 'accepted in another database: still refused');
$node->safe_psql('other', "SELECT setval('snowflake_default', 3786912000000)");
is((error_of($node, 'SELECT snowflake_nextval()', 'other'))[0], '55000',
	'an acceptance before the refusal does not count');
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
is((error_of($node, 'SELECT snowflake_nextval()', 'other'))[0], '55000', 'nor one in another database');
my ($again) = ids($node, 1);
like(slurp_file($node->logfile), qr/starts (2 d|1 d 23 h 5\d min).* ahead of the clock, as was accepted/, 'logged');
cmp_ok($again, '>', $after, 'accepted after a restart too');

# The administrator sets the mark back by hand.
$node->restart;
# restart() keeps the environment of this script, so the clock is right from here on.
$node->safe_psql('postgres', q{SELECT setval('snowflake_default', (extract(epoch FROM now()) * 1000)::bigint)});
abs_lt(lead() - 10.1, 0.5, 'set back by hand: a gap ahead of the clock');

# The clock is past the end of the layout's time.
$node->stop;
my $end = 1735689600 + 2**41 / 1000;
start_with_clock($node, int($end - time) + 100);
$node->safe_psql('postgres', 'SELECT 1');
($code, $text) = error_of($node, 'SELECT snowflake_nextval()');
is($code, '2200H', "the layout's time is used up");
like($text, qr/2094-09-07/, 'the error says when it ended');
$node->stop;

# The clock is before the epoch.
start_with_clock($node, 1735689600 - int(time) - 100);
$node->safe_psql('postgres', q{SELECT setval('snowflake_default', 1)});
($code, $text) = error_of($node, 'SELECT snowflake_nextval()');
is($code, '58000', 'the clock is before the epoch');
$node->stop;

done_testing();
