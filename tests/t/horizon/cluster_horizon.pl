# Tests the horizon of a cluster: a consumer that reads the rows of all servers up to it
# misses none, while writers commit in another order than they took IDs, and servers join,
# are lost, and stop with prepared transactions. SECONDS says how long writers write; 8
# unless told.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Leases;
use Snowflake;

my $seconds = $ENV{SECONDS} || 8;
my $registry = new_registry('registry', "'main', '[0,16)', lease => '3 s', hold => '1 s', max_ahead => '1 s'");
my $conninfo = conninfo($registry);
my $template = template_of('template');

sub leasing
{
	my ($name, @more) = @_;
	my $node = member($template, $name, "snowflake_id.registry = '$conninfo'", "snowflake_id.pool = 'main'",
		'max_prepared_transactions = 4', @more);
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), what text)');
	return $node;
}

my $reports = q{snowflake_id.horizon_databases = 'postgres'};
my ($one, $two, $three) = map { leasing($_) } qw(one two three);
first_id($_, 'a new server') for $one, $two, $three;

# Whom to ask: the registry, or a server whose setting names etcd.
my $asked = in_etcd() ? $one : $registry;
my $more = in_etcd() ? ", '$conninfo'" : '';
sub horizon { return $asked->safe_psql('postgres', 'SELECT snowflake_cluster_horizon()'); }
sub shows { my ($node, $columns) = @_; return $asked->safe_psql('postgres', "SELECT $columns FROM snowflake_cluster_servers WHERE data_directory = '" . $node->data_dir . "'"); }

# No horizon before all have reported.
my ($code, $text) = error_of($asked, 'SELECT snowflake_cluster_horizon()');
is($code, '55000', 'no server has reported: there is no horizon yet');
set_by_reload($_, 'snowflake_id.horizon_databases' => 'none_such, postgres') for $one, $three;
wait_until('a name that no database has: the log says so', sub { in_log($one, qr{no horizon is reported: database "none_such"}) });
is(shows($one, 'state'), 'not reported', 'then nothing is reported, since a name may be spelled wrong');
set_by_reload($_, 'snowflake_id.horizon_databases' => 'postgres') for $one, $three;
wait_until('one and three report', sub { shows($one, 'state') eq 'reports' && shows($three, 'state') eq 'reports' });
($code, $text) = error_of($asked, 'SELECT snowflake_cluster_horizon()');
is($code, '55000', 'one server has not: there is no horizon yet');
my $directory = $two->data_dir;
like($text, qr/the cluster has no horizon yet.*data directory "\Q$directory\E".*has reported no horizon/s, 'the error names it');
is(shows($two, 'state, horizon, reported'), 'not reported||', 'so does the view');
set_by_reload($two, 'snowflake_id.horizon_databases' => 'postgres');
wait_until('two reports', sub { shows($two, 'state') eq 'reports' });
like(horizon(), qr/^\d+$/, 'then there is one');
is(shows($two, q{horizon > now() - interval '1 min' AND lag < interval '1 min' AND reported > since}), 't', 'the view shows what is reported');

# What is refused.
($code, $text) = error_of($asked, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT snowflake_cluster_horizon()');
is($code, '25001', 'not in a snapshot of before');
($code, $text) = error_of($asked, 'SELECT count(*) FROM pg_class WHERE oid < snowflake_cluster_horizon()');
is($code, '0A000', 'not beside tables');
like($text, qr/snowflake_cluster_horizon\(\) cannot be called in a query that reads tables/, 'the error names the function');
$asked->safe_psql('postgres', 'CREATE ROLE reader; CREATE ROLE stranger; GRANT EXECUTE ON FUNCTION snowflake_cluster_horizon() TO reader');
like($asked->safe_psql('postgres', 'SET ROLE reader; SELECT snowflake_cluster_horizon()'), qr/^\d+$/, 'a role that may call it needs nothing else');
for my $call ('snowflake_cluster_horizon()', "snowflake_drop_server('0'$more)")
{
	($code) = error_of($asked, "SET ROLE stranger; SELECT $call");
	is($code, '42501', "$call is not for everybody");
}
($code) = error_of($asked, "SELECT snowflake_drop_server('0123456789abcdef'$more)");
is($code, '42704', 'a server that is not there cannot be dropped');
my $name = shows($two, 'server');
($code, $text) = error_of($asked, "SELECT snowflake_drop_server('$name'$more)");
is($code, '55006', 'nor one that may run');
like($text, qr/data directory "\Q$directory\E"/, 'the error says where it is');

# What consumers have seen. One reads up to the horizon, the other what is greater than
# the greatest ID that it has seen.
my (%seen, %seen_by_other);
my ($last, $greatest) = (0, 0);
sub rows { my ($node, $where) = @_; return split /\n/, $node->safe_psql('postgres', "SELECT id FROM events WHERE $where"); }

sub consume
{
	my @nodes = @_;
	my $horizon = horizon();
	if ($horizon > $last)
	{
		for my $node (@nodes) { $seen{$_}++ for rows($node, "id >= $last AND id < $horizon"); }
		$last = $horizon;
	}
	my @new = map { rows($_, "id > $greatest") } @nodes;
	$seen_by_other{$_}++ for @new;
	for (@new) { $greatest = $_ if $_ > $greatest; }
	return;
}

my $folder = PostgreSQL::Test::Utils::tempdir();
my %script = (
	short => "INSERT INTO events DEFAULT VALUES;\n\\sleep 10 ms\n",
	long => "BEGIN;\nINSERT INTO events DEFAULT VALUES;\n\\sleep 900 ms\nCOMMIT;\n",
	parts => "BEGIN;\nINSERT INTO events DEFAULT VALUES;\nSAVEPOINT s;\nINSERT INTO events DEFAULT VALUES;\nROLLBACK TO s;\n"
	  . "\\sleep 200 ms\nINSERT INTO events DEFAULT VALUES;\nEND;\n",
	undone => "BEGIN;\nINSERT INTO events DEFAULT VALUES;\n\\sleep 100 ms\nROLLBACK;\n");
append_to_file("$folder/$_.sql", $script{$_}) for keys %script;

sub write_at
{
	my ($node) = @_;
	my @command = ('pgbench', '-n', '-c', 6, '-T', $seconds, (map { ('-f', "$folder/$_.sql") } sort keys %script), $node->connstr('postgres'));
	my ($out, $error) = ('', '');
	return IPC::Run::start(\@command, '>', \$out, '2>', \$error);
}

my @nodes = ($one, $two, $three);
my @writers = map { write_at($_) } @nodes;
my $end = time + $seconds;
consume(@nodes) while time < $end;
$_->finish or die 'a writer has failed' for @writers;

# Consumes until all that is there has been read; compares.
sub check_consumed
{
	my ($what, @nodes) = @_;
	my ($top) = sort { $b <=> $a } map { $_->safe_psql('postgres', 'SELECT max(id) FROM events') } @nodes;
	wait_until("the horizon has passed all rows: $what", sub { consume(@nodes); $last > $top });
	my @all = map { rows($_, 'true') } @nodes;
	my @missed = grep { !$seen{$_} } @all;
	my @twice = grep { $seen{$_} > 1 } keys %seen;
	diag("$what: missed @missed[0 .. ($#missed > 4 ? 4 : $#missed)]") if @missed;
	is(scalar(@missed) . ' ' . scalar(@twice), '0 0', "$what: nothing missed and nothing twice, of " . @all);
	return \@all;
}
my $all = check_consumed('three servers', @nodes);
my $missed = grep { !$seen_by_other{$_} } @$all;
cmp_ok($missed, '>', 0, "a consumer of greater IDs has missed $missed");

# A transaction that is open on one server holds back readers of all.
my $open = session($two);
my $held = $open->query_safe('BEGIN; INSERT INTO events DEFAULT VALUES RETURNING id');
($held) = $held =~ /(\d+)/;
sleep 4;
$one->safe_psql('postgres', 'INSERT INTO events DEFAULT VALUES');
cmp_ok(horizon(), '<=', $held, 'an open transaction holds it back');
$open->query_safe('COMMIT');
$open->quit;
$all = check_consumed('an open transaction', @nodes);

# A server is lost. It counts until it is dropped, whichever server has its worker ID.
my $lost = session($three);
$lost->query_safe('BEGIN; INSERT INTO events DEFAULT VALUES');
kill_all($three);
$lost->{run}->kill_kill;
wait_until('three is lost', sub { shows($three, 'state') eq 'lost' });
my $before = horizon();
$one->safe_psql('postgres', 'INSERT INTO events DEFAULT VALUES');
my $reported = shows($one, 'horizon');
wait_until('one has reported since', sub { shows($one, 'horizon') gt $reported });
is(horizon(), $before, 'a lost server holds it back');
$name = shows($three, 'server');
$asked->safe_psql('postgres', "SELECT snowflake_drop_server('$name'$more)");
is(shows($three, 'count(*)'), '0', 'it is dropped');
wait_until('the horizon goes on', sub { horizon() > $before });
check_consumed('a server is dropped', $one, $two);

# A server joins, with a slow clock: its IDs begin above the horizon.
my $horizon = horizon();
my $four = leasing('four', $reports);
first_id($four, 'a server joins');
my $first = $four->safe_psql('postgres', 'INSERT INTO events DEFAULT VALUES RETURNING id');
($first) = $first =~ /(\d+)/;
cmp_ok($first, '>=', $horizon, 'a new server begins above it');
# The lost one comes back, and counts again.
$three->start;
first_id($three, 'the lost server is back');
wait_until('it reports', sub { shows($three, 'state') eq 'reports' });
@nodes = ($one, $two, $three, $four);
consume(@nodes);

# A transaction that is prepared holds it back over a clean stop and a crash.
$four->safe_psql('postgres', q{BEGIN; INSERT INTO events (what) VALUES ('prepared'); PREPARE TRANSACTION 'p'});
$held = decimal_of_prepared();
$four->stop;
is(shows($four, 'state'), 'stopped', 'a server with a prepared transaction counts after its stop');
my $top = $one->safe_psql('postgres', 'INSERT INTO events DEFAULT VALUES RETURNING id');
sleep 3;
cmp_ok(horizon(), '<=', $held, 'the prepared transaction holds it back');
$four->start;
first_id($four, 'it starts again');
wait_until('it reports', sub { shows($four, 'state') eq 'reports' });
$four->stop('immediate');
$four->start;
first_id($four, 'it has crashed');
my $contact = shows($four, 'reported');
wait_until('it reports', sub { shows($four, 'reported') gt $contact });
cmp_ok(horizon(), '<=', $held, 'and after a crash');
$four->safe_psql('postgres', q{COMMIT PREPARED 'p'});
$all = check_consumed('a prepared transaction', @nodes);
ok(scalar(rows($four, q{what = 'prepared'})), 'its row is one of them');
$four->stop;
is(shows($four, 'count(*)'), '0', 'a server counts no more after a clean stop');
$_->stop for $three, $two, $one;
done_testing();

# The instant of the prepared transaction's ID, as the least ID of it.
sub decimal_of_prepared
{
	return $four->safe_psql('postgres', q{SELECT snowflake_min_id(to_timestamp((objsubid::bigint * 4294967296 + objid::bigint) / 1000.0))
		FROM pg_locks WHERE locktype = 'userlock'});
}
