# Tests the promotion of an asynchronous standby that lagged, with its clock 6 s behind:
# no ID that the lost primary acknowledged is issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(sleep);

my $primary = new_node('primary', 3, allows_streaming => 1);
# Marks are only a second ahead. So the standby's last mark is behind what the primary
# issues later, and only the gap prevents IDs that are issued twice.
$primary->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '1 s'");
start_with_clock($primary, 0);
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE TABLE t (id bigint)');
for my $database (map { "db$_" } 1 .. 3)
{
	$primary->safe_psql('postgres', "CREATE DATABASE $database");
	$primary->safe_psql($database, 'CREATE EXTENSION snowflake_id');
	ids($primary, 10, $database);
}
ids($primary, 100);
$primary->backup('base');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
start_with_clock($standby, -6);
$primary->safe_psql('postgres', 'INSERT INTO t SELECT snowflake_nextval() FROM generate_series(1, 1000)');
$primary->wait_for_catchup($standby);

# A standby issues no IDs, but decodes them.
my ($code) = error_of($standby, 'SELECT snowflake_nextval()');
is($code, '25006', 'in recovery, as nextval');
is($standby->safe_psql('postgres', 'SELECT (snowflake_decode(max(id))).worker_id FROM t'), '3', 'a standby decodes');

# The standby loses its connection. The primary goes on, reserves anew and acknowledges.
$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
$standby->reload;
wait_until('the walreceiver is gone', sub {
	$standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') eq '0' });
my @acknowledged;
my $session = $primary->background_psql('postgres');
# The primary reaches marks that the standby never sees.
for (1 .. 20)
{
	push @acknowledged, split /\n/, $session->query_safe(
		'INSERT INTO t SELECT snowflake_nextval_batch(1000) RETURNING id');
	sleep 0.1;
}
is(scalar @acknowledged, 20_000, '20,000 acknowledged IDs');
my $past = $primary->safe_psql('postgres', "SELECT extract(epoch FROM snowflake_timestamp($acknowledged[-1])) * 1000")
  - $standby->safe_psql('postgres', 'SELECT last_value FROM snowflake_default');
cmp_ok($past, '>', 0, "the last lies $past ms past the mark that the standby has");
$primary->stop('immediate');

$standby->promote;
# A sequence is restarted before its first ID: its mark is gone, but the gap is not.
$standby->safe_psql('db3', 'ALTER SEQUENCE snowflake_default RESTART');
my $gap = $standby->safe_psql('db3', 'SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp())');
# A busy machine has used some of the gap by now. Without a gap it would be 0.1 s.
cmp_ok($gap, '>', 1, "a restarted sequence leaves the gap: $gap s");
my $first = first_id_within($standby, 5, 'after promotion');
cmp_ok($first, '>', $acknowledged[-1], 'above all acknowledged IDs');
my @new = ids($standby, 20_000);
check_ids('across a promotion', \@acknowledged, [ $first, @new ]);
my $log = slurp_file($standby->logfile);
like($log, qr/LOG: .*generator snowflake_default was promoted.*skips 10100 ms/, 'the gap is logged, and what may be borrowed on top');
my $lead = $standby->safe_psql('postgres',
	'SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp())');
cmp_ok($lead, '<', 26, "the gap is the lead: $lead s");

# The gap is also skipped after a user has set the sequence: nobody knows then how old the mark is.
$standby->safe_psql('db1', "SELECT setval('snowflake_default', last_value + 1) FROM snowflake_default");

# The default generator of each database skips a gap of its own. A gap that another
# generator has skipped neither replaces this gap nor adds to it.
my %of;
sub lead_in
{
	my ($database) = @_;
	push @{ $of{$database} }, ids($standby, 10, $database);
	return $standby->safe_psql($database, "SELECT extract(epoch FROM snowflake_timestamp($of{$database}[-1]) - clock_timestamp())");
}
between(lead_in($_), 1, 26, "$_: the gap is the lead") for map { "db$_" } 1 .. 3;

# The gap is also not added again when a generator starts again in the life of this
# server because its sequence was rewritten.
for my $database ('postgres', map { "db$_" } 1 .. 3, 1 .. 3)
{
	push @{ $of{$database} }, split /\n/, $standby->safe_psql($database,
		'BEGIN; ALTER SEQUENCE snowflake_default RESTART; SELECT snowflake_nextval(); ROLLBACK; SELECT snowflake_nextval()');
}
for my $database (sort keys %of)
{
	my $lead = lead_in($database);
	cmp_ok($lead, '<', 26, "$database, however often it starts: $lead s");
	check_ids("$database: across its starts", $of{$database});
}
cmp_ok($of{postgres}[0], '>', $new[-1], 'still increasing');

# A generator skips the gap once: after a crash the promoted server starts at its mark.
$standby->stop('immediate');
start_with_clock($standby, -6);
my ($after) = ids($standby, 1);
cmp_ok($after, '>', $of{postgres}[-1], 'still increasing');
($after) = ids($standby, 1, 'db3');
cmp_ok($after, '>', $of{db3}[-1], 'also where the sequence was restarted');
is(in_log($standby, 'was promoted') . in_log($standby, 'did not write its mark'), '31', 'one gap for each database, and none later');

# After point-in-time recovery the same rule applies.
my $origin = new_node('origin', 4, has_archiving => 1, allows_streaming => 1);
$origin->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '100 ms'");
$origin->start;
$origin->safe_psql('postgres', "CREATE EXTENSION snowflake_id; SELECT snowflake_create_generator('late', 'preset=default')");
$origin->safe_psql('postgres', "SELECT snowflake_nextval('late')");
ids($origin, 10);
$origin->backup('pitr');
$origin->safe_psql('postgres', q{SELECT pg_create_restore_point('here'); SELECT pg_switch_wal()});
my $known = $origin->safe_psql('postgres', 'SELECT last_value FROM snowflake_default');
sleep 0.5;
my @lost = ids($origin, 5000);
cmp_ok($origin->safe_psql('postgres', "SELECT extract(epoch FROM snowflake_timestamp($lost[0])) * 1000"),
	'>', $known, 'IDs past the mark that is restored');
$origin->stop('immediate');
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($origin, 'pitr', has_restoring => 1, standby => 0);
$restored->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_action = 'promote'");
$restored->start;
wait_until('recovery ends', sub { $restored->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f' });
my @regained = ids($restored, 5000);
check_ids('across a point-in-time recovery', \@lost, \@regained);
cmp_ok($regained[0], '>', $lost[-1], 'above all that came after the target');

# A timeline whose history file is lost counts as a gap, once, where the mark is older.
$restored->stop;
my $pgdata = $restored->data_dir;
is(scalar(unlink glob "$pgdata/pg_wal/*.history"), 1, 'history file removed');
$restored->append_conf('postgresql.conf', "archive_mode = off\nrestore_command = ''");
for my $skipped (1, 0)
{
	my $logged = -s $restored->logfile;
	$restored->start;
	push @regained, ids($restored, 1);
	$restored->safe_psql('postgres', "SELECT snowflake_nextval('late')");
	$restored->stop;
	my $log = slurp_file($restored->logfile, $logged);
	unlike($log, qr/snowflake_default.*skips/, 'a mark of this timeline needs no history');
	is(scalar(() = $log =~ /generator late was promoted with this server and skips/g), $skipped, "an older one: $skipped gap");
	is(scalar(() = $log =~ m{File pg_wal/00000002\.history is missing}g), $skipped, 'and the log names the file');
}
check_ids('without a history file', \@regained);

done_testing();
