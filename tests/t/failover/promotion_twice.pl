# Tests promotions: a generator whose max_rollback is less than the skipped time issues
# IDs, and two standbys that are promoted from one mark issue different IDs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time sleep);

# Starts a server with two standbys that have all its data, all with one worker ID.
sub cluster
{
	my ($name, $reserve, $sql) = @_;
	my $primary = new_node("${name}_a", 3, allows_streaming => 1);
	$primary->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '$reserve'");
	$primary->start;
	$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	$primary->backup('base');
	my @standbys = map { PostgreSQL::Test::Cluster->new("${name}_$_") } 'b', 'c';
	for my $standby (@standbys)
	{
		$standby->init_from_backup($primary, 'base', has_streaming => 1);
		$standby->start;
	}
	$primary->safe_psql('postgres', $sql);
	$primary->wait_for_catchup($_) for @standbys;
	return ($primary, @standbys);
}

# Two standbys are promoted from one mark, which is ahead of the clock: the second knows
# nothing of what the first has done.
my ($a, $b, $c) = cluster('twice', '60 s', q{
	SELECT snowflake_create_generator('named', 'preset=discord');
	SELECT snowflake_nextval(), snowflake_nextval('named') FROM generate_series(1, 100)});
my @names = ('snowflake_default', 'named');
sub take
{
	my ($node, $name, $count) = @_;
	return split /\n/, $node->safe_psql('postgres', "SELECT snowflake_nextval('$name') FROM generate_series(1, $count)");
}
my %before = map { $_ => [ take($a, $_, 100) ] } @names;
$a->wait_for_catchup($_) for $b, $c;
my $ahead = $a->safe_psql('postgres', 'SELECT last_value / 1000.0 - extract(epoch FROM clock_timestamp()) FROM snowflake_default');
between($ahead, 30, 61, 'the mark is ahead of the clock, in seconds');
$a->stop('immediate');
$b->promote;
my %first = map { $_ => [ take($b, $_, 200) ] } @names;
sleep 3;
push @{ $first{$_} }, take($b, $_, 200) for @names;
$b->stop('immediate');
$c->promote;
my %second = map { $_ => [ take($c, $_, 200) ] } @names;
for my $name (@names)
{
	my %issued = map { $_ => 1 } @{ $first{$name} }, @{ $before{$name} };
	is((grep { $issued{$_} } @{ $second{$name} }), 0, "$name: what the second one issues, neither of the others has");
	check_ids("$name: of the first one", [ @{ $before{$name} }, @{ $first{$name} } ]);
	check_ids("$name: of the second one", [ @{ $before{$name} }, @{ $second{$name} } ]);
}
$c->stop;

# The skipped time is longer than max_rollback.
my %label = (
	going => q{preset=default max_rollback='1 s'},
	refusing => q{preset=default max_rollback='1 s' on_rollback=error},
	waiting => q{preset=default max_rollback='1 s' on_rollback=wait max_wait='10 ms'});
my ($primary, $standby, $other) = cluster('short', '100 ms', join ';', map {
	"SELECT snowflake_create_generator('$_', \$\$$label{$_}\$\$);
	SELECT snowflake_nextval('$_') FROM generate_series(1, 100)" } sort keys %label);
$primary->stop('immediate');
$other->stop;
$standby->promote;
for my $name (sort keys %label)
{
	my ($lead, $err) = ('', '');
	$standby->psql('postgres', "SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval('$name'), '$name') - clock_timestamp())",
		stdout => \$lead, stderr => \$err);
	between($lead, 5, 11, "$name: leaves out the gap, and is ahead of the clock by as many seconds") or diag $err;
	my $issued = 0;
	my ($code, $text);
	wait_until("$name: further reservations", sub {
		($code, $text) = error_of($standby, "SELECT snowflake_nextval('$name')");
		return 1 if $code ne '';
		$issued++;
		return $standby->safe_psql('postgres',
			"SELECT reservations > 5 FROM pg_stat_snowflake WHERE generator = '$name'::regclass") eq 't';
	});
	is($code, '', "$name: issues after a promotion, and after further reservations ($issued IDs)") or diag $text;
}
$standby->stop;

done_testing();
