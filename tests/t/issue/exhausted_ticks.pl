# Tests exhausted ticks, the start of the sequence numbers in a tick, and how far
# generators run ahead of the clock.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time sleep);

my $epoch = q{epoch='2025-01-01 00:00:00+00'};
my $node = new_node('main', 3);
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $session = session($node);
my ($code, $text);

sub next_of { return "SELECT snowflake_nextval('$_[0]')"; }
sub stat_of { return shown($node, 'pg_stat_snowflake', @_); }
sub ahead_of { return shown($node, 'snowflake_generators', $_[0], 'extract(epoch FROM ahead_by)'); }

sub restart
{
	my ($how) = @_;
	$session->quit;
	$node->stop($how);
	start_with_clock($node, wall_clock($node) - time);
	$session = session($node);
	return;
}

# Returns for each tick the number of IDs, the least and the greatest sequence number,
# and the number of clock sequences.
sub ticks_of
{
	my ($name, @ids) = @_;
	my $list = join ',', @ids;
	return map { [ split /\|/ ] } split /\n/, $node->safe_psql('postgres', <<"END");
SELECT count(*), min(sequence), max(sequence), count(DISTINCT clock)
FROM unnest('{$list}'::bigint[]) AS id, snowflake_decode(id, '$name')
GROUP BY created_at ORDER BY created_at
END
}

# Under on_exhausted=error this layout has eight IDs a second.
my $second = "layout='time:31 worker:10 sequence:3' $epoch tick='1 s' max_borrow=0 on_rollback=error on_exhausted=error";
create_generator($node, 'few', "$second sequence_start=zero");
my $instant = stop_clock($node);
draw($session, 'few') for 1 .. 8;
my $state = $node->safe_psql('postgres', 'SELECT last_value FROM few') . stat_of('few', 'issued');
($code, $text) = error_in($session, next_of('few'));
is($code, '53400', 'a tick that is used up is refused');
like($text, qr/ERROR:  53400: generator few has used up the sequence numbers of this tick\nDETAIL:  A tick of 1 s holds 8, and max_borrow is 0\.\nHINT:  Try again in (\d+ ms|1 s); /, 'the text says how much it holds and when to try again');
is($session->query_safe(q{SELECT snowflake_currval('few')}), drawn('few')->[-1], 'what is refused changes nothing');
is($node->safe_psql('postgres', 'SELECT last_value FROM few') . stat_of('few', 'issued'), $state, 'nor the mark');
is(stat_of('few', q{refusals || ' ' || waits || ' ' || clock_rollbacks}), '1 0 0', 'counted');
is(shown($node, 'snowflake_generators', 'few', 'refused_since'), '', 'the clock is not to blame');
stop_clock($node, $instant + 1);
draw($session, 'few');
is(join(' ', map { "$_->[0]:$_->[1]-$_->[2]" } ticks_of('few', @{ drawn('few') })), '8:0-7 1:0-0', 'it works again in the next tick');
check_ids('on_exhausted=error', drawn('few'));
set_clock($node, 1);

# Under on_exhausted=next_clock a millisecond has sixteen clock sequences of 1024 IDs
# each.
create_generator($node, 'burst', "preset=multi_clock $epoch on_exhausted=next_clock on_rollback=continue");
draw_batch($session, 'burst', 100_000);
my ($fullest) = sort { $b->[0] <=> $a->[0] } ticks_of('burst', @{ drawn('burst') });
is("@$fullest", '16384 0 1023 16', 'a tick holds 16,384 IDs: 1024 in each of 16 clocks');
check_ids('burst', drawn('burst'));
# Together with on_rollback=next_clock a tick takes as many clock sequences as it needs; a
# tick that lasts takes all.
create_generator($node, 'sharing', "preset=multi_clock $epoch on_exhausted=next_clock");
draw($session, 'sharing');
is((ticks_of('sharing', draw_batch($session, 'sharing', 1000)))[0][3], 1, 'one clock as long as it holds the IDs');
sleep 0.01;
$instant = stop_clock($node);
my @ids = draw_batch($session, 'sharing', 16_384);
is(join(' ', map { @$_ } ticks_of('sharing', @ids)), '16384 0 1023 16', 'then all');
($code, $text) = error_in($session, next_of('sharing'));
is($code, '58000', 'there is no seventeenth');
like($text, qr/stands still/, 'and no next tick');
check_ids('sharing', drawn('sharing'));
# Exhausted ticks and rollbacks share the clock sequences: none is free after a burst, but
# some are once the mark has been raised.
set_clock_to($node, $instant - 1);
($code, $text) = error_in($session, next_of('sharing'));
is($code, '58000', 'a rollback onto a burst finds no clock');
like($text, qr/generator sharing has no clock sequence left for that time\nDETAIL:  Each of its 16 clock sequences may have been used at that time\. One is free from/, 'and the text says so');
my $mark = shown($node, 'snowflake_generators', 'sharing', 'reserved_until');
set_clock($node, 9);
draw($session, 'sharing') for 1 .. 2;
is(shown($node, 'snowflake_generators', 'sharing', "reserved_until > '$mark'"), 't', 'the mark was raised');
set_clock($node, 11);
draw($session, 'sharing');
set_back($node, 1);
my ($clock, $ahead) = draw_clock($session, 'sharing');
cmp_ok($clock, '>', 0, 'there is another clock again');
between($ahead, -1, 0.01, 'at the time of the clock');
draw_batch($session, 'sharing', 20_000);
check_unique('sharing');
# After a crash right after a burst, IDs resume at the mark.
$mark = shown($node, 'snowflake_generators', 'sharing', 'reserved_until');
restart('immediate');
my $first = draw($session, 'sharing');
is($session->query_safe("SELECT snowflake_timestamp($first, 'sharing') >= '$mark'"), 't', 'after a burst it starts at the mark');
draw_batch($session, 'sharing', 20_000);
check_unique('sharing');
# With max_wait a call waits.
create_generator($node, 'patient', "preset=multi_clock $epoch on_exhausted=next_clock max_wait='5 s'");
draw($session, 'patient');
sleep 0.01;
$instant = stop_clock($node);
draw_batch($session, 'patient', 16_384);
set_clock_to($node, $instant - 1);
cmp_ok(draw_timed($session, 'patient'), '>', 0.8, 'with max_wait it waits');
draw_batch($session, 'patient', 20_000);
check_unique('patient');

# Under sequence_start=random a tick issues all its sequence numbers, each once, in an
# order that is unpredictable and differs between generators.
create_generator($node, $_, ($second =~ s/sequence:3/sequence:8/r) . ' sequence_start=random') for 'shuffled', 'other';
draw($session, $_) for 'shuffled', 'other';
$instant = stop_clock($node, wall_clock($node) + 1);
my %order;
for my $name ('shuffled', 'other')
{
	my @ids = (draw($session, $name), draw_batch($session, $name, 255));
	is((error_in($session, next_of($name)))[0], '53400', "$name: after 256 IDs the tick is used up");
	is(join(' ', map { @$_[0 .. 2] } ticks_of($name, @ids)), '256 0 255', "$name: all numbers of the tick");
	check_unique($name);
	$order{$name} = [ map { $_ % 256 } @ids ];
}
isnt("@{ $order{shuffled} }", "@{ $order{other} }", 'another generator has another order');
my $descents = grep { $order{shuffled}[$_] < $order{shuffled}[ $_ - 1 ] } 1 .. 255;
cmp_ok($descents, '>', 0, 'not ascending');
stop_clock($node, $instant + 1);
@ids = draw_batch($session, 'shuffled', 256);
isnt("@{ $order{shuffled} }", join(' ', map { $_ % 256 } @ids), 'nor the same in the next tick');
for my $how ('fast', 'immediate')
{
	restart($how);
	draw_batch($session, 'shuffled', 200);
}
check_unique('shuffled');

# Under max_borrow='1 h' the generator stays ahead of the clock by what it borrowed,
# over a restart, a crash and a refusal.
create_generator($node, 'borrowing', "preset=baidu $epoch max_borrow='1 h'");
@ids = draw_batch($session, 'borrowing', 50_000);
my @full = grep { $_->[0] == 8192 } ticks_of('borrowing', @ids);
cmp_ok(scalar @full, '>=', 5, 'ticks of 8192 IDs, all used');
$session->query_safe(q{SELECT count(*) FROM snowflake_nextval_batch(100000, 'borrowing')}) for 1 .. 2;
between(ahead_of('borrowing'), 1, 32, 'the view shows how far it is ahead');
cmp_ok(stat_of('borrowing', 'borrowed'), '>', 10_000, 'and how much was borrowed');
for my $how ('fast', 'immediate')
{
	restart($how);
	draw($session, 'borrowing');
	# The IDs take 31 seconds, and each start at a mark adds a window.
	between(ahead_of('borrowing'), 1, 60, "after a $how stop it is still");
	draw_batch($session, 'borrowing', 20_000);
}
set_back($node, 10);
($code) = error_in($session, next_of('borrowing'));
is($code, '58000', 'its policy sees a rollback all the same');
set_back($node, -10);
draw($session, 'borrowing');
check_ids('borrowing', drawn('borrowing'));

# The clock stands still: a generator that would wait for the next tick fails, and one
# that follows the boot clock resumes.
create_generator($node, 'stuck', "preset=twitter");
create_generator($node, 'going', 'preset=default');
draw($session, $_) for 'stuck', 'going';
stop_clock($node);
draw_batch($session, 'stuck', 100);
my $from = time;
($code, $text) = error_in($session, q{SELECT count(snowflake_nextval('stuck')) FROM generate_series(1, 5000)});
is($code, '58000', 'a clock that stands still is no reason to wait for ever');
cmp_ok(time - $from, '>', 0.9, 'after a second');
like($text, qr/ERROR:  58000: the clock of this server stands still\nDETAIL:  Generator stuck waits for the next tick, and for 1 s the clock has shown \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*\.\nHINT:  Check the clock of this server/, 'and the text says so');
is((error_in($session, q{SELECT count(snowflake_nextval('going')) FROM generate_series(1, 5000)}))[0], '', 'on_rollback=continue goes on');
set_back($node, 0);
draw_batch($session, 'stuck', 5000);
check_ids('stuck', drawn('stuck'));

$session->quit;
$node->stop;
done_testing();
