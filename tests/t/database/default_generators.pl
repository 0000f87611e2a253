# Tests that a database's owner moves no other database: the default generator of each
# database has a clock of its own, and one that is ahead does not affect the others.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '1 s'");
start_with_clock($node, 0);
$node->safe_psql('postgres', 'CREATE ROLE alice LOGIN; CREATE DATABASE a OWNER alice; CREATE DATABASE b');
my @as_alice = (extra_params => [ '-U', 'alice' ]);
$node->safe_psql('a', 'CREATE EXTENSION snowflake_id', @as_alice);
$node->safe_psql('b', 'CREATE EXTENSION snowflake_id');

my %ids;

# Returns how many seconds the next ID of a database is ahead of the clock, or the
# error's code.
sub lead
{
	my ($database) = @_;
	my ($out, $err) = ('', '');
	my $status = $node->psql($database, <<'END', stdout => \$out, stderr => \$err, on_error_stop => 1);
\set VERBOSITY verbose
SELECT id, extract(epoch FROM snowflake_timestamp(id) - clock_timestamp()) FROM (SELECT snowflake_nextval() AS id) AS i
END
	return $err =~ /ERROR:\s+(\w{5})/ ? "error $1" : "error $err" if $status != 0;
	my ($id, $lead) = split /\|/, $out;
	push @{ $ids{$database} }, $id;
	return $lead;
}

sub near
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $lead = lead('b');
	ok($lead !~ /error/ && abs $lead < 60, "$what: the other database's IDs are near the clock: $lead s");
	my $ahead = $node->safe_psql('b', 'SELECT extract(epoch FROM ahead_by) FROM snowflake_generators');
	ok($ahead ne '' && $ahead < 60, "$what: and shown to be: $ahead s");
	return;
}

# Sets the mark of the default generator of database a, as the owner of the database.
sub set_mark
{
	my ($seconds) = @_;
	$node->safe_psql('a', "SELECT setval('snowflake_default', (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $seconds * 1000)",
		@as_alice);
	$node->stop;
	start_with_clock($node, 0);
	return;
}

near('in the beginning');
$node->safe_psql('a', q{SELECT snowflake_advance('snowflake_default', now() + interval '10 hours')}, @as_alice);
between(lead('a'), 35900, 36100, 'the owner of a database may take its own generator ahead');
near('after snowflake_advance()');
ok(abs($node->safe_psql('b', q{SELECT extract(epoch FROM snowflake_advance('snowflake_default', now() + interval '1 s') - now())})) < 60,
	'nor is it in the way of an advance by less');

# The mark is set by setval() before a start, and this generator is the first to start.
set_mark(20 * 3600);
between(lead('a'), 71910, 72110, 'a mark that is 20 hours ahead, and a gap');
near('after setval() before a start');
# This generator is the second to start.
$node->stop;
start_with_clock($node, 0);
near('before it starts');
between(lead('a'), 71900, 72200, 'the one that is ahead starts');
near('after it has started');

# The mark is as far ahead as possible: then a small step back of the clock is too much
# for that generator, and for no other.
set_mark(86400 - 60);
lead('a');
near('after a mark that is almost a day ahead');
set_clock($node, -120);
# The generator first uses up what is reserved.
wait_until('a reservation', sub {
	my $lead = lead('b');
	return 1 if $lead =~ /error/;
	return $node->safe_psql('b', 'SELECT clock_rollbacks FROM pg_stat_snowflake') > 0;
});
my $lead = lead('b');
unlike($lead, qr/error/, "the clock is set back by two minutes: the other database still issues: $lead");
between($lead =~ /error/ ? '' : $lead, 0, 180, 'and is ahead by no more than that');

check_ids("$_", $ids{$_}) for sort keys %ids;
$node->stop;
done_testing();
