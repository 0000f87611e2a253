# Tests that servers older than ten minutes do not notice that the registry is away for nine:
# default terms, five servers under load, and no call fails. The minutes pass by the clocks of
# servers and registry, which the test sets. LONG=1 waits for them, which takes 20 minutes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Leases;
use Snowflake;

my $registry = new_registry('registry', q{'main', '[0,16)'});
my $conninfo = conninfo($registry);
my $template = template_of('template');
my @five = map { member($template, "n$_", "snowflake_id.registry = '$conninfo'", q{snowflake_id.pool = 'main'}) } 1 .. 5;
start_with_clock($_, 0) for @five;
first_id($_, 'a new server') for @five;

# Lets seconds pass at these nodes, and at all of them a third of a lease that is young at most
# at once, so that each renews in between.
my $now = 0;
sub let_pass
{
	my ($seconds, @nodes) = @_;
	return sleep $seconds if $ENV{LONG};
	my $to = $now + $seconds;
	while ($now < $to)
	{
		$now = $now + 60 < $to ? $now + 60 : $to;
		set_clock($_, $now) for @nodes;
		sleep 0.5;
	}
	return;
}

# How far the bound of a server lies ahead, in seconds.
sub left { my ($node) = @_; return worker($node, 'round(extract(epoch FROM bound - clock_timestamp()))'); }
sub refused { my ($node) = @_; return (error_of($node, 'SELECT snowflake_nextval()'))[0]; }

let_pass(620, $registry, @five);
for my $node (@five) { wait_until('a renewal', sub { left($node) > 580 }) or die 'no long lease'; }
between(left($_), 580, 600, $_->name . ': the bound lies ten minutes ahead') for @five;
start_load($_, 0.2) for @five;
wait_for_ids($_, 'before the outage') for @five;

$registry->stop;
my %before = map { $_->name => loaded($_) } @five;
let_pass(540, @five);
wait_for_ids($_, 'nine minutes later') for @five;
my ($code, $text) = (refused($five[0]), worker($five[0], 'last_error'));
is($code, '', 'IDs are issued');
like($text, qr/^Could not connect/, 'and the view says that the registry is not there');
for my $node (@five)
{
	my ($count, $errors) = stop_load($node);
	cmp_ok($count, '>', $before{ $node->name }, $node->name . ' issued IDs while the registry was away');
	is($errors, '', $node->name . ': no call failed');
}

# Two minutes later, the leases have ended; the registry comes back.
let_pass(90, @five);
for my $node (@five) { wait_until('IDs stop at the bound', sub { refused($node) eq '55000' }); }
if ($ENV{LONG}) { $registry->start; }
else { start_with_clock($registry, $now); }
for my $node (@five) { wait_until('IDs resume by themselves', sub { refused($node) eq '' }); }
is(join(' ', sort map { take($_) } @five), '0 1 2 3 4', 'with the same worker IDs');
cmp_ok(lead($_), '<', 12, $_->name . ' leads its clock by the own mark at most') for @five;
check_all('all servers', $registry);
done_testing();
