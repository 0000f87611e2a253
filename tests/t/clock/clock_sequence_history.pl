# Tests that the history of clock sequences goes wherever marks go: into dumps, to
# standbys, through changes of the label, and through starts.
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

sub reconnect { $session = session($node, undef, @_); return; }

# A dump carries the clock history, but nobody knows what has happened since: after a restore a
# gap is left, in the same clock sequence.
create_generator($node, 'dumped', $multi_clock);
draw_batch($session, 'dumped', 2000);
set_back($node, 2);
draw_batch($session, 'dumped', 2000);
# By more than a busy machine takes until the next ID.
set_back($node, 2);
my ($before) = draw_clock($session, 'dumped');
is($before, 2, 'clock 2 before the dump');
$session->quit;
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE template0');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('copy') ], 'restored');
reconnect('copy');
set_back($node, 1);
my ($clock, $ahead) = draw_clock($session, 'dumped');
is($clock, 2, 'restored: in the same clock');
between($ahead, 10, 30, 'a gap ahead of the clock');
draw_batch($session, 'dumped', 2000);
check_unique('dumped');
$session->quit;

# Labels change: of the policy alone, by sessions that know nothing of the generator
# yet, and in parts with which the mark is compared.
sub relabel
{
	my ($name, $label) = @_;
	my $fresh = session($node);
	my ($code, $text) = error_in($fresh, "SECURITY LABEL FOR snowflake_id ON SEQUENCE $name IS \$\$$label\$\$");
	$fresh->quit;
	is($code, '', "$name: $label") or diag $text;
	return;
}

reconnect();
create_generator($node, 'relabelled', $multi_clock);
my $earlier = $multi_clock =~ s/2025-/2024-/r;
my $label = $multi_clock;
for my $next ("$multi_clock on_rollback=continue", $multi_clock, "$multi_clock on_rollback=wait", $multi_clock,
	"$multi_clock on_exhausted=next_clock", $multi_clock, "$multi_clock sequence_start=random", $multi_clock,
	"$multi_clock on_rollback=continue on_exhausted=next_clock", "$multi_clock on_rollback=error", $multi_clock,
	$earlier, "$earlier on_rollback=error", $earlier)
{
	draw_batch($session, 'relabelled', 2000);
	if ($label !~ /error|wait/)
	{
		set_back($node, 0.2);
		draw_batch($session, 'relabelled', 2000);
	}
	relabel('relabelled', $next);
	draw_batch($session, 'relabelled', 2000);
	$label = $next;
}
check_unique('relabelled');

# The clock history lies above the instant in the mark. Such a mark is not read as an instant
# far ahead: not by a session that knows no label, and not by code that keeps or
# compares the mark.
create_generator($node, 'moved', $multi_clock);
draw($session, 'moved');
set_back($node, 1);
is((draw_clock($session, 'moved'))[0], 1, 'clock 1');
cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM moved'), '>', 2**46, 'the mark has an account');
relabel('moved', $earlier);
draw($session, 'moved');
between(shown($node, 'snowflake_generators', 'moved', 'extract(epoch FROM reserved_until - clock_timestamp())'), 1, 30, 'the view shows the instant');
$node->safe_psql('postgres', 'CREATE TABLE t (id bigint PRIMARY KEY, item text)');
like($node->safe_psql('postgres', q{SELECT snowflake_set_default('t', generator => 'moved')}), qr/no values so far/, 'a column takes it');
check_unique('moved');

# The server starts while the clock is before the mark: IDs resume fifteen times in
# another clock sequence, then at the mark; in between the clock is set back. With one
# slot, and where no time freed another clock sequence, no generator gives up its slot:
# the server makes room.
$session->quit;
reconnect();
create_generator($node, $_, $multi_clock) for 'one', 'two';
$node->append_conf('postgresql.conf', 'snowflake_id.debug_slots = 1');
my %clocks;
my $starts = 20;
my $offset = 0;
sub draw_both
{
	for my $name ('one', 'two')
	{
		my ($clock) = draw_clock($session, $name);
		$clocks{$name}{$clock} = 1;
		draw_batch($session, $name, 1500);
	}
	return;
}
draw_both();
$session->quit;
for my $round (1 .. $starts)
{
	$node->stop('immediate');
	$offset -= 0.1 if $round % 7 == 0;
	start_with_clock($node, $offset);
	reconnect();
	draw_both();
	$session->quit;
}
is(in_log($node, 'made room'), $starts, 'room is made in each life of the server');
reconnect();
for my $round (1 .. 40)
{
	draw_both();
	set_back($node, 0.1) if $round % 7 == 0;
}
is(in_log($node, 'made room'), $starts, 'and once in each');
for my $name ('one', 'two')
{
	check_unique($name);
	my $last = drawn($name)->[-1];
	is(scalar keys %{ $clocks{$name} }, 16, "$name: all clocks were used");
	between($node->safe_psql('postgres', "SELECT extract(epoch FROM snowflake_timestamp($last, '$name') - clock_timestamp())"), -60, 30, "$name: not far ahead of the clock");
}
$session->quit;
$node->stop;

# A standby that lagged takes over, its clock 6 s behind. It knows none of the clock
# sequences that the primary used meanwhile, and skips the time in which they can have
# been used, and max_borrow on top.
my $primary = new_node('primary', 3, allows_streaming => 1);
$primary->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '1 s'");
start_with_clock($primary, 0);
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
create_generator($primary, 'promoted', $multi_clock);
create_generator($primary, 'bursting', "$multi_clock on_exhausted=next_clock");
create_generator($primary, 'borrowing', q{preset=baidu epoch='2025-01-01 00:00:00+00' max_borrow='1 h'});
my @names = ('promoted', 'bursting', 'borrowing');
$session = session($primary);
draw($session, $_) for @names;
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
start_with_clock($standby, -6);
draw_batch($session, 'borrowing', 1000);
# The step is shorter than the pauses that follow, since this generator refuses longer
# ones.
set_back($primary, 0.2);
draw_batch($session, $_, 1000) for 'promoted', 'bursting';
$primary->wait_for_catchup($standby);
$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
$standby->reload;
wait_until('the walreceiver is gone', sub {
	$standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') eq '0' });
for my $round (1 .. 3)
{
	sleep 0.6;
	draw_batch($session, 'promoted', 1000);
	draw_batch($session, 'bursting', 1000);
	draw_batch($session, 'borrowing', $round == 1 ? 90_000 : 20_000);
	set_back($primary, 0.2);
}
draw_batch($session, 'promoted', 1000);
$session->quit;
$primary->stop('immediate');
$standby->promote;
$session = session($standby);
for my $name (@names)
{
	my $last = (sort { $b <=> $a } @{ drawn($name) })[0];
	cmp_ok(draw($session, $name), '>', $last, "$name: above all that was acknowledged");
	draw_batch($session, $name, 1000);
}
between(shown($standby, 'snowflake_generators', 'promoted', 'extract(epoch FROM ahead_by)'), 5, 30, 'the gap');
between(shown($standby, 'snowflake_generators', 'borrowing', 'extract(epoch FROM ahead_by)'), 3600, 3700, 'the gap of what borrows an hour');
is(in_log($standby, 'generator borrowing was promoted with this server and skips 3610000 ms'), 1, 'logged');
for my $round (1 .. 2)
{
	set_back($standby, 1);
	draw_batch($session, $_, 1000) for 'promoted', 'bursting';
}
set_clock($standby, 60);
draw_batch($session, $_, 1000) for 'promoted', 'bursting';
set_back($standby, 1);
is((draw_clock($session, 'promoted'))[0] > 0, 1, 'on with the clock: another one after a rollback');
draw_batch($session, 'promoted', 1000);
check_unique($_) for @names;
$session->quit;
$standby->stop;

done_testing();
