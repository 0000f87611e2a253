# Tests that a mark says by itself who wrote it: through a promotion and a recovery to a point in
# time that is followed by each command that rewrites the sequence, through a backup that is
# started as it is, and through what tools and servers without the library do to sequences.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(sleep time);

my $fit = 'INCREMENT BY 9223372036854775807';
# What rewrites a sequence, or resets it, between a promotion and the first ID. %s is the generator;
# its table is t_%s.
my %commands = (
	nothing => 'SELECT 1',
	truncated => 'TRUNCATE t_%s RESTART IDENTITY',
	restarted => 'ALTER SEQUENCE %s RESTART',
	cached => 'ALTER SEQUENCE %s CACHE 20',
	moved => 'ALTER SEQUENCE %s START 5',
	bounded => 'ALTER SEQUENCE %s MINVALUE -5',
	stepped => "ALTER SEQUENCE %s INCREMENT 7; ALTER SEQUENCE %s $fit",
	unlogged => 'SELECT 1', # SET UNLOGGED, which is refused
	set => 'SELECT setval(%s, last_value) FROM %1$s',
);
my @generators = map { ($_, "ahead_$_") } sort keys %commands;

sub stamp { my ($node, $name) = @_; return $node->safe_psql('postgres', "SELECT log_cnt FROM $name"); }
sub mark { my ($node, $name) = @_; return $node->safe_psql('postgres', "SELECT last_value FROM $name"); }
sub take { my ($node, $name, $count) = @_; return split /\n/, $node->safe_psql('postgres', "SELECT snowflake_nextval_batch($count, '$name')"); }
sub lead { my ($node, $id, $name) = @_; return $node->safe_psql('postgres', "SELECT extract(epoch FROM snowflake_timestamp($id, '$name') - clock_timestamp())"); }

sub rewrite_all
{
	my ($node) = @_;
	for my $name (@generators)
	{
		my $sql = $commands{ $name =~ s/^ahead_//r };
		$sql = "SELECT setval('$name', last_value) FROM $name" if $name =~ /set$/;
		$sql =~ s/%(?:1\$)?s/$name/g;
		$node->safe_psql('postgres', $_) for split /; /, $sql;
		next if $name !~ /unlogged/;
		for my $what ("TABLE t_$name", "SEQUENCE $name")
		{
			my ($code, $text) = error_of($node, "ALTER $what SET UNLOGGED");
			is($code, '0A000', "ALTER $what SET UNLOGGED is refused");
			like($text, qr/generator $name cannot be unlogged/, 'by its name');
		}
	}
	return;
}

my $primary = new_node('primary', 3, has_archiving => 1, allows_streaming => 1);
$primary->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '1 s'\nsnowflake_id.failover_gap = '30 s'");
start_with_clock($primary, 0);
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
is($primary->safe_psql('postgres', 'SELECT last_value, is_called, log_cnt >> 56 FROM snowflake_default'), '1|t|83', 'no mark yet: a small value, with a stamp');
for my $name (@generators)
{
	$primary->safe_psql('postgres', "SELECT snowflake_create_generator('$name'); CREATE TABLE t_$name (id bigint DEFAULT snowflake_nextval('$name'));
		ALTER SEQUENCE $name OWNED BY t_$name.id");
	$primary->safe_psql('postgres', "SELECT snowflake_advance('$name', now() + interval '60 s')") if $name =~ /ahead/;
	take($primary, $name, 1);
}
my $first = stamp($primary, 'nothing');
is($first >> 56, 83, 'a mark has a stamp');
is((grep { stamp($primary, $_) != $first } @generators), 0, 'the same for all');
my ($code, $text) = error_of($primary, "SELECT snowflake_nextval('nothing'); SELECT lastval()");
is($code, '55000', 'lastval() knows nothing of a mark');
($code, $text) = error_of($primary, "SELECT snowflake_advance('nothing', now()); SELECT currval('nothing')");
is($code, '55000', 'nor does currval()');
($code, $text) = error_of($primary, "SELECT nextval('nothing')");
is($code, '2200H', 'nextval() fails');

# Each command that rewrites a sequence keeps mark and stamp, also when it is rolled back.
sub keeps
{
	my ($node, $what, @with) = @_;
	for my $name (grep { !/set$/ } @generators)
	{
		my $before = mark($node, $name);
		my $sql = $commands{ $name =~ s/^ahead_//r } =~ s/%s/$name/gr;
		$sql = "BEGIN; $sql; ROLLBACK" if "@with" eq 'rolled back';
		$node->safe_psql('postgres', $sql);
		is(stamp($node, $name), $first, "$what: $name has its stamp");
		cmp_ok(mark($node, $name), '>=', $before, 'and its mark');
	}
	return;
}
keeps($primary, 'committed');
keeps($primary, 'rolled back', 'rolled back');
# A generator that has issued nothing has nothing to lose.
$primary->safe_psql('postgres', q{SELECT snowflake_create_generator('unused'); CREATE TABLE t_unused (id bigint DEFAULT snowflake_nextval('unused'));
	ALTER SEQUENCE unused OWNED BY t_unused.id});
for my $sql ('TRUNCATE t_unused RESTART IDENTITY', 'ALTER SEQUENCE unused RESTART', 'ALTER SEQUENCE unused CACHE 20')
{
	$primary->safe_psql('postgres', $sql);
	is($primary->safe_psql('postgres', 'SELECT last_value, is_called, log_cnt >> 56 FROM unused'), '1|t|83', "$sql: an unused generator stays one");
}
$primary->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE postgres');
is($primary->safe_psql('copied', 'SELECT log_cnt FROM nothing'), $first, 'a database from a template has the stamp');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
start_with_clock($standby, -14);
$primary->wait_for_catchup($standby);
is(stamp($standby, 'nothing'), $first, 'a standby has the stamp');
$primary->safe_psql('postgres', q{SELECT pg_create_restore_point('here'); SELECT pg_switch_wal()});
my @copies = map { PostgreSQL::Test::Cluster->new($_) } 'restored', 'started_as_it_is';

# The standby loses its connection; the primary goes on past the marks that the standby has, and
# is lost.
$standby->safe_psql('postgres', q{ALTER SYSTEM SET primary_conninfo = ''});
$standby->reload;
wait_until('the walreceiver is gone', sub { $standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') eq '0' });
my %lost = map { $_ => [] } @generators;
# Lag and clock difference together stay within the gap: also on a busy machine.
my $until = time + 6;
while (time < $until)
{
	push @{ $lost{$_} }, take($primary, $_, 300) for @generators;
	sleep 0.1;
}
$primary->stop('immediate');

sub check_promoted
{
	my ($node, $what, $restarts) = @_;
	my $file = -s $node->logfile;
	rewrite_all($node);
	if ($restarts)
	{
		$node->stop;
		start_with_clock($node, clock_of($node));
	}
	for my $name (@generators)
	{
		my $mark = mark($node, $name);
		my @ids = take($node, $name, 3000);
		my %is_lost = map { $_ => 1 } @{ $lost{$name} };
		is((grep { $is_lost{$_} } @ids), 0, "$what: $name issues no ID twice");
		cmp_ok($ids[0], '>', $lost{$name}[-1], 'all of them sort after the lost ones');
	}
	my $gaps = () = slurp_file($node->logfile, $file) =~ /skips 30100 ms/g;
	is($gaps, scalar @generators, "$what: one gap for each generator");
	$node->stop('immediate');
	start_with_clock($node, clock_of($node));
	take($node, $_, 10) for @generators;
	$gaps = () = slurp_file($node->logfile, $file) =~ /skips 30100 ms/g;
	is($gaps, scalar @generators, "$what: and none at the next start");
	return;
}

$standby->promote;
check_promoted($standby, 'after a promotion');
isnt(stamp($standby, 'nothing'), $first, 'the stamp is of the new timeline');
$standby->stop;

# A recovery to a point in time, and a restart before the first ID.
my ($restored, $copy) = @copies;
$restored->init_from_backup($primary, 'base', has_restoring => 1, standby => 0);
$restored->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_timeline = 'current'\nrecovery_target_action = 'promote'");
start_with_clock($restored, -14);
wait_until('recovery ends', sub { $restored->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f' });
check_promoted($restored, 'after a recovery to a point in time', 1);
$restored->stop;

# A base backup that is started as it is has the timeline of the primary.
$copy->init_from_backup($primary, 'base');
start_with_clock($copy, 0);
is($copy->safe_psql('postgres', 'SELECT timeline_id FROM pg_control_checkpoint()'), 1, 'no new timeline');
is(stamp($copy, 'nothing'), $first, 'the stamp of the primary');
my %copied = map { $_ => [ take($copy, $_, 3000) ] } 'ahead_nothing', 'nothing';
for my $name (sort keys %copied)
{
	my %is_lost = map { $_ => 1 } @{ $lost{$name} };
	is((grep { $is_lost{$_} } @{ $copied{$name} }), 0, "a backup that is started as it is: $name issues no ID twice");
}
isnt(stamp($copy, 'nothing'), $first, 'it has a stamp of its own from then on');
is(in_log($copy, qr/generator nothing skips 30100 ms, since this server did not write its mark/), 1, 'the log says why');
$copy->stop('immediate');
start_with_clock($copy, 0);
take($copy, 'nothing', 1);
is(in_log($copy, qr/generator nothing skips/), 1, 'one gap, and none at the next start');

# Without the library, a restart removes the mark, and a rewrite the stamp.
$copy->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$copy->restart;
$copy->safe_psql('postgres', 'TRUNCATE t_ahead_truncated RESTART IDENTITY; ALTER SEQUENCE ahead_cached CACHE 30; ALTER SEQUENCE ahead_nothing SET UNLOGGED');
$copy->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'snowflake_id'");
$copy->stop;
start_with_clock($copy, 0);
($code, $text) = error_of($copy, "SELECT snowflake_nextval('ahead_truncated')");
is($code, '55000', 'a restart that nobody saw');
like($text, qr/generator ahead_truncated has lost its mark.*SELECT snowflake_advance\('ahead_truncated', ID\)/s, 'says so, and what to do');
like($copy->safe_psql('postgres', q{SELECT problem FROM snowflake_generators WHERE generator = 'ahead_truncated'::regclass}), qr/has lost its mark/, 'the view shows it');
$copy->safe_psql('postgres', "SELECT snowflake_advance('ahead_truncated', $lost{ahead_truncated}[-1])");
cmp_ok((take($copy, 'ahead_truncated', 1))[0], '>', $lost{ahead_truncated}[-1], 'somebody says how far it was');
my $before = mark($copy, 'ahead_cached');
my ($id) = take($copy, 'ahead_cached', 1);
cmp_ok($copy->safe_psql('postgres', "SELECT extract(epoch FROM snowflake_timestamp($id, 'ahead_cached')) * 1000"), '>=', $before + 30_000, 'a rewrite leaves a gap behind the mark');
is((error_of($copy, "SELECT snowflake_nextval('ahead_nothing')"))[0], '55000', 'an unlogged sequence issues nothing');
$copy->stop('immediate');
start_with_clock($copy, 0);
$copy->safe_psql('postgres', 'ALTER SEQUENCE ahead_nothing SET LOGGED');
cmp_ok((take($copy, 'ahead_nothing', 1))[0], '>', $copied{ahead_nothing}[-1], 'it goes on above its IDs when it is logged again, also after a crash');

# A tool that replicates sequences sets those of generators that run, and of those that do not.
my $seen = 0;
take($copy, 'nothing', 1);
for my $round (1 .. 20)
{
	$copy->safe_psql('postgres', "SELECT setval('nothing', last_value + 86000000) FROM nothing");
	my ($id) = take($copy, 'nothing', 5000);
	$seen = lead($copy, $id, 'nothing');
	sleep 0.1;
}
cmp_ok($seen, '<', 70, "a generator that runs ignores what is set: $seen s ahead");
is(in_log($copy, qr/somebody sets the sequence of generator nothing, which writes its mark back/), 1, 'the log tells it once');
is($copy->safe_psql('postgres', q{SELECT mark_put_back_at > now() - interval '1 minute' FROM snowflake_generators WHERE generator = 'nothing'::regclass}), 't', 'the view shows when');
like($copy->safe_psql('postgres', q{SELECT state || ' ' || detail FROM snowflake_status() WHERE item = 'generator public.nothing' AND see = 'docs/operations.md#setval'}),
	qr/^warning Somebody sets or restarts its sequence/, 'status names it');
ok(wait_until('its mark is its own', sub { take($copy, 'nothing', 1); return mark($copy, 'nothing') < 1000 * (time + 90) }), 'its mark is its own');
$copy->safe_psql('postgres', q{SELECT setval('stepped', (extract(epoch FROM now() + interval '2 days') * 1000)::bigint)});
($code, $text) = error_of($copy, "SELECT snowflake_nextval('stepped')");
is($code, '55000', 'one that starts does not believe a mark that is days ahead');
like($text, qr/the sequence of generator stepped was set to an instant .* ahead of the clock.*SELECT setval\('stepped', \d{13}\)/s, 'and does not blame the clock');
my ($statement) = $text =~ /(SELECT setval\('stepped', \d{13}\))/;
$copy->safe_psql('postgres', $statement);
take($copy, 'stepped', 1);

# Dumps have no stamps. With data, generators start a gap behind the marks; without, at the clock.
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
for my $mode ('', '--schema-only')
{
	my $database = $mode ? 'schema' : 'data';
	$copy->run_log([ 'pg_dump', '-d', $copy->connstr('postgres'), '-f', $dump, $mode || () ]);
	$copy->safe_psql('postgres', "CREATE DATABASE $database");
	$copy->run_log([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $copy->connstr($database), '-f', $dump ]);
	my $lead = $copy->safe_psql($database, "SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval('unlogged'), 'unlogged') - clock_timestamp())");
	if ($mode) { cmp_ok($lead, '<', 5, "a schema without data starts at the clock: $lead s"); }
	else { cmp_ok($lead, '>', 20, "a dump with data leaves a gap: $lead s"); }
}
done_testing();
