# Tests the clock sequences that a generator writes into its mark: sessions that know
# nothing of the generator read them, but not where they were rolled back. Tests also
# what a rollback leaves behind once it is over, and what it costs.
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
sub sql { return $node->safe_psql('postgres', $_[0]); }

my $layout = q{layout='time:41 clock:3 worker:9 sequence:10'};
sub label { return qq{$layout epoch='$_[0]-01-01 00:00:00+00' on_rollback=$_[1]}; }
sub relabel { return "SECURITY LABEL FOR snowflake_id ON SEQUENCE $_[0] IS \$\$$_[1]\$\$"; }

# This session has not read the generator's label.
create_generator($node, 'earlier', label(2025, 'next_clock'));
my ($before) = sql(q{SELECT snowflake_nextval('earlier')});
is((error_of($node, relabel('earlier', label(2024, 'next_clock'))))[0], '',
	'an earlier epoch, by a session that has taken no IDs');
cmp_ok(sql(q{SELECT snowflake_nextval('earlier')}), '>', $before, 'IDs go on');

# A rewrite that is rolled back also removes the record of the clock sequences used, even
# where the mark stays at the same instant.
create_generator($node, 'undone', label(2025, 'next_clock'));
my $session = session($node);
my @given;
my $given = sub {
	my $row = $session->query_safe(q{SELECT clock, extract(epoch FROM created_at)
		FROM snowflake_decode(snowflake_nextval('undone'), 'undone')});
	push @given, [ split /\|/, $row ];
	return $given[-1][0];
};
is($given->(), 0, 'in the first clock');
set_clock($node, -100);
is($given->(), 1, 'in the next one');
$session->query_safe('BEGIN; SAVEPOINT a; ALTER SEQUENCE undone CACHE 1');
is($given->(), 2, 'in another one after a rewrite');
set_clock($node, -110);
is($given->(), 3, 'and another one');
$session->query_safe('ROLLBACK TO a; COMMIT');
my @used = @given;
$given->();
my ($clock, $at) = @{ $given[-1] };
is((grep { $_->[0] == $clock && $_->[1] >= $at } @used), 0,
	"after it is undone: in no clock that was used later on ($clock at $at)")
  or diag join "\n", map { "@$_" } @used;
$session->quit;

# After a rollback is over, nothing of it is left under another policy.
set_clock($node, 20);
ok(wait_until('the default generator believes the clock',
	sub { return sql('SELECT snowflake_timestamp(snowflake_nextval()) > clock_timestamp() - interval \'5 s\'') eq 't' }), 'the clock is 20 s ahead');
create_generator($node, 'over', label(2025, 'error'));
my $lead = q{SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval('over'), 'over') - clock_timestamp())};
cmp_ok(abs(sql($lead)), '<', 0.5, 'in step');
set_clock($node, 15);
is((error_of($node, $lead))[0], '58000', 'set back by 5 s: refused');
wait_until('IDs again', sub { return (error_of($node, $lead))[0] eq '' });
sql(relabel('over', label(2025, 'continue')));
cmp_ok(sql($lead), '<', 2, 'with on_rollback=continue: at the mark');

# Many sessions meet one rollback.
$node->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '60 s'");
$node->reload;
create_generator($node, 'herd', label(2025, 'next_clock'));
my $script = PostgreSQL::Test::Utils::tempdir() . '/herd.sql';
append_to_file($script, q{SELECT snowflake_nextval('herd');});
my $stats = q{SELECT reservations, clock_rollbacks, refusals FROM pg_stat_snowflake WHERE generator = 'herd'::regclass};
my ($out, $err) = ('', '');
my $bench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', 30, '-T', 4, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$out, '2>', \$err);
sleep 2;
my @before = split /\|/, sql($stats);
set_clock($node, 5);
ok($bench->finish, 'nobody was refused') or diag $err;
my @after = split /\|/, sql($stats);
is($after[1] - $before[1], 1, 'one rollback');
is($after[2], 0, 'no refusal');
is($after[0] - $before[0], 1, 'one of them has dealt with it');
is(sql(q{SELECT clock FROM snowflake_decode(snowflake_nextval('herd'), 'herd')}), 1, 'once');

# When a generator gives back the clock sequences of a burst, the rest of a long tick
# stays usable.
$node->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '8 s'");
$node->reload;
create_generator($node, 'long', q{layout='time:31 clock:4 worker:9 sequence:4' tick='2 s'
	epoch='2025-01-01 00:00:00+00' on_rollback=next_clock on_exhausted=next_clock});
is(sql(q{SELECT max((snowflake_decode(snowflake_nextval('long'), 'long')).clock) FROM generate_series(1, 40)}), 2,
	'a burst in three clocks');
my $waits = q{SELECT waits FROM pg_stat_snowflake WHERE generator = 'long'::regclass};
my $waited = sql($waits);
for (1 .. 40)
{
	sql(q{SELECT snowflake_nextval('long')});
	sleep 0.2;
}
is(sql($waits), $waited, 'nobody waits later');
is(sql(q{SELECT reservations > 1 FROM pg_stat_snowflake WHERE generator = 'long'::regclass}), 't',
	'it was given back meanwhile');

done_testing();
