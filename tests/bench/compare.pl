# Compares ways to make keys, in one run: what each costs, what it writes, and whether it
# repeats a key after a crash, a failover, a clock that is set back, and a restart of two
# servers. Prints what the tables of docs/compare.md say. tests/run compare starts it.
#
# Extensions take part that are installed beside this one, which is what the folders in
# PEERS are for. What is not here is named at the end, and has no column. SECTIONS are some of:
# cost wal repeated.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Snowflake;
use Test::More;
use Time::HiRes qw(sleep);

my $quick = $ENV{QUICK};
sub wanted { my ($section) = @_; return !$ENV{SECTIONS} || " $ENV{SECTIONS} " =~ / $section /; }
my ($rounds, $ids, $rows, $seconds) = $quick ? (3, 50_000, 50_000, 1) : (9, 200_000, 500_000, 3);

# How each makes a key: the expression, and what a database and a server need for it. The number
# of a server is in its settings (`config`), or is given by SQL (`number`), once or again; `burst`
# is a set of many keys, for those that may run ahead of the clock.
my @all = (
	{ key => 'ours', name => '`snowflake_nextval()`', type => 'bigint', call => 'snowflake_nextval()', config => sub { "snowflake_id.worker_id = $_[0]" },
		burst => 'snowflake_nextval_batch(1000)' },
	{ key => 'sequence', name => '`nextval()`', type => 'bigint', call => q{nextval('s_plain')}, setup => 'CREATE SEQUENCE s_plain' },
	{ key => 'offset', name => '`nextval()`, `INCREMENT BY 16`', type => 'bigint', call => q{nextval('s_offset')}, setup => 'CREATE SEQUENCE s_offset INCREMENT BY 16',
		number => sub { "SELECT setval('s_offset', last_value - last_value % 16 + $_[0]) FROM s_offset" } },
	{ key => 'uuid4', name => '`gen_random_uuid()`', type => 'uuid', call => 'gen_random_uuid()' },
	{ key => 'uuid7', name => '`uuidv7()`', type => 'uuid', call => 'uuidv7()', since => 18 },
	{ key => 'pgedge', name => 'pgEdge snowflake', type => 'bigint', call => q{snowflake.nextval('s_pgedge')}, extension => 'snowflake',
		setup => 'CREATE EXTENSION snowflake; CREATE SEQUENCE s_pgedge', config => sub { "snowflake.node = $_[0]" } },
	{ key => 'pg_snowid', name => 'pg_snowid', type => 'bigint', call => 'snowid_generate(1::oid)', extension => 'pg_snowid', preload => 1,
		setup => 'CREATE EXTENSION pg_snowid', number => sub { "SELECT snowid_set_node($_[0]::smallint)" },
		burst => 'unnest(snowid_generate_batch(1::oid, 1000))' },
	{ key => 'pgactive', name => 'pgactive', type => 'bigint', call => q{pgactive.pgactive_snowflake_id_nextval('s_pgactive')}, extension => 'pgactive', preload => 1,
		setup => 'CREATE EXTENSION pgactive; CREATE SEQUENCE s_pgactive', number => \&pgactive,
		config => sub { "wal_level = logical\nmax_wal_senders = 10\ntrack_commit_timestamp = on" } },
	{ key => 'instagram', name => "Instagram's function", type => 'bigint', call => 'instagram_next_id()', setup => 'CREATE SEQUENCE s_instagram', number => \&instagram },
);

# A group of one node, which has this number: in a group of two, the second node has number 2.
sub pgactive
{
	my ($number, $node) = @_;
	my $dsn = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres';
	return <<"END";
SELECT pgactive.pgactive_create_group('node', '$dsn') WHERE NOT EXISTS (SELECT FROM pgactive.pgactive_nodes);
SELECT pgactive.pgactive_wait_for_node_ready();
UPDATE pgactive.pgactive_nodes SET node_seq_id = $number;
END
}

# As Instagram has published it.
sub instagram
{
	my ($number) = @_;
	return <<"END";
CREATE OR REPLACE FUNCTION instagram_next_id(OUT result bigint) LANGUAGE plpgsql AS \$\$
DECLARE
	our_epoch bigint := 1314220021721;
	seq_id bigint;
	now_millis bigint;
	shard_id int := $number;
BEGIN
	SELECT nextval('s_instagram') % 1024 INTO seq_id;
	SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) INTO now_millis;
	result := (now_millis - our_epoch) << 23;
	result := result | (shard_id << 10);
	result := result | (seq_id);
END \$\$
END
}

my @preloaded = ('snowflake_id');
my (@who, @skipped);

sub server
{
	my ($name, $number, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%options);
	my $libraries = join ',', @preloaded;
	$node->append_conf('postgresql.conf', join "\n", "shared_preload_libraries = '$libraries'",
		q{autovacuum = off}, q{max_wal_size = '4GB'}, q{shared_buffers = '256MB'}, q{fsync = on}, settings($number));
	return $node;
}

# The settings that give a server its number; and the same by SQL.
sub settings { my ($number) = @_; return map({ $_->{config} ? $_->{config}->($number) : () } @who), ''; }
sub give_number { my ($node, $number) = @_; $node->safe_psql('postgres', $_->{number}->($number, $node)) for grep { $_->{number} } @who; return; }

sub set_up
{
	my ($node, $number) = @_;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
	$node->safe_psql('postgres', $_->{setup}) for grep { $_->{setup} } @who;
	give_number($node, $number);
	return;
}

# What is there to compare: asked from a server that runs.
my $probe = PostgreSQL::Test::Cluster->new('probe');
$probe->init;
$probe->start;
my ($version) = $probe->safe_psql('postgres', 'SHOW server_version') =~ /^(\d+)/;
for my $one (@all)
{
	my $has = $one->{extension}
	  ? $probe->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = '$one->{extension}'")
	  : $version >= ($one->{since} // 0);
	if (!$has) { push @skipped, $one; next; }
	push @who, $one;
	$one->{version} = $has if $one->{extension};
	push @preloaded, $one->{extension} if $one->{preload};
}
my $server_version = $probe->safe_psql('postgres', 'SHOW server_version');
my $own_version = $probe->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'snowflake_id'});
$probe->stop;

sub rotated { my ($round) = @_; my $first = $round % @who; return @who[$first .. $#who], @who[0 .. $first - 1]; }
sub median { my @x = sort { $a <=> $b } @_; return ($x[ @x / 2 ] + $x[ $#x / 2 ]) / 2; }
my (%measured, @tables, @lines);
# The measurements of a row, by contestant, each with a value for each round.
sub measured { my ($row, $who, $value) = @_; push @{ $measured{$row}{ $who->{key} } }, $value; return; }
sub line { my ($title, $of, $section) = @_; return if $section && !wanted($section); push @lines, join ' | ', "| $title", map({ $of->($_) } @who), ''; return; }
sub table
{
	my ($title) = @_;
	return if !@lines;
	push @tables, join("\n", join(' | ', "| $title", map({ $_->{name} } @who), ''), '|' . '---|' x (@who + 1), splice @lines) =~ s/ +$//gmr . "\n";
	return;
}

# --- What a key costs -------------------------------------------------------------------
my $node = server('cost', 1);
$node->start;
set_up($node, 1);
$node->safe_psql('postgres', q{
	CREATE FUNCTION took(query text) RETURNS float8 LANGUAGE plpgsql AS $$
	DECLARE began timestamptz := clock_timestamp();
	BEGIN EXECUTE query; RETURN extract(epoch FROM clock_timestamp() - began) * 1e9; END $$});
$node->safe_psql('postgres', "CREATE TABLE t_$_->{key} (id $_->{type} PRIMARY KEY DEFAULT $_->{call}, x int)") for @who;
sub per_id
{
	my ($call) = @_;
	# The pause restores what may be borrowed from the future.
	my $out = $node->safe_psql('postgres', "SELECT pg_sleep(0.15); SELECT took(\$\$SELECT count(x) FROM (SELECT $call AS x FROM generate_series(1, $ids) OFFSET 0) AS s\$\$)");
	return (split /\n/, $out)[-1] / $ids;
}
for my $round (1 .. (wanted('cost') ? $rounds : 0))
{
	my $empty = per_id('pg_backend_pid()');
	measured('cost', $_, per_id($_->{call}) - $empty) for rotated($round);
}
# Ratios are medians of the rounds' ratios.
sub ratio
{
	my ($row, $who) = @_;
	my ($these, $ours) = ($measured{$row}{ $who->{key} }, $measured{$row}{ours});
	return median(map { $these->[$_] / $ours->[$_] } 0 .. $#$these);
}
sub value_and_ratio
{
	my ($row, $format, $scale) = @_;
	return sub {
		my ($who) = @_;
		my $value = sprintf $format, median(@{ $measured{$row}{ $who->{key} } }) * ($scale // 1);
		return $who->{key} eq 'ours' ? $value : sprintf '%s (%.2g)', $value, ratio($row, $who);
	};
}
line('one client, ns per key, without the call itself', value_and_ratio('cost', '%.0f'), 'cost');

for my $round (1 .. (wanted('cost') ? max(2, $rounds / 3) : 0))
{
	for my $who (rotated($round))
	{
		my $file = PostgreSQL::Test::Utils::tempdir() . "/$who->{key}.sql";
		PostgreSQL::Test::Utils::append_to_file($file, "SELECT count($who->{call}) FROM generate_series(1, 1000);\n") if !-e $file;
		my ($out) = run_command([ 'pgbench', '-n', '-c', 8, '-j', 2, '-T', $seconds, '-f', $file, '-h', $node->host, '-p', $node->port, 'postgres' ]);
		my ($tps) = $out =~ /^tps = ([\d.]+)/m or die "pgbench: $out";
		measured('clients', $who, $tps / 1e3);
	}
}
line('8 clients, million keys per second', value_and_ratio('clients', '%.2f'), 'cost');

for my $round (1 .. (wanted('cost') ? max(2, $rounds / 3) : 0))
{
	for my $who (rotated($round))
	{
		$node->safe_psql('postgres', "TRUNCATE t_$who->{key}; CHECKPOINT");
		measured('insert', $who, $node->safe_psql('postgres', "SELECT took('INSERT INTO t_$who->{key} (x) SELECT g FROM generate_series(1, $rows) AS g')") / 1e9);
		measured('index', $who, $node->safe_psql('postgres', "SELECT pg_relation_size('t_$who->{key}_pkey') / 1e6"));
		measured('heap', $who, $node->safe_psql('postgres', "SELECT pg_relation_size('t_$who->{key}') / 1e6"));
		$node->safe_psql('postgres', "TRUNCATE t_$who->{key}");
	}
}
my $million = sprintf '%.1f', $rows / 1e6;
line("INSERT of $million million rows in a statement, s", value_and_ratio('insert', '%.1f'), 'cost');
line('their primary key, MB', value_and_ratio('index', '%.1f'), 'cost');
line('their table, MB', value_and_ratio('heap', '%.1f'), 'cost');

# Single keys, each in a transaction, as a service with few writers takes them. The first
# change of a page after a checkpoint would log the page.
my $transactions = $quick ? 50 : 200;
for my $round (1 .. (wanted('wal') ? max(2, $rounds / 3) : 0))
{
	for my $who (rotated($round))
	{
		$node->safe_psql('postgres', "CHECKPOINT; SELECT $who->{call}");
		my ($wal, $xid) = split /\|/, $node->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())});
		$node->safe_psql('postgres', "SELECT $who->{call};\nSELECT pg_sleep(0.02);\n" x $transactions);
		my ($bytes, $xids) = split /\|/, $node->safe_psql('postgres', "SELECT pg_current_wal_insert_lsn() - '$wal', pg_snapshot_xmax(pg_current_snapshot())::text::bigint - $xid");
		measured('wal', $who, $bytes / $transactions);
		measured('xid', $who, $xids / $transactions);
	}
}
my $plain = sub { my ($row, $format) = @_; return sub { sprintf $format, median(@{ $measured{$row}{ $_[0]->{key} } }) } };
line('one key per transaction, every 20 ms: bytes of WAL per key', $plain->('wal', '%.0f'), 'wal');
line('one key per transaction, every 20 ms: transaction IDs per key', $plain->('xid', '%.2f'), 'wal');
$node->stop;
table('what a key costs');

# The test framework has another use for the standard output.
sub report
{
	my $report = sprintf "PostgreSQL %s, snowflake_id %s%s\n\n", $server_version, $own_version, join '', map { ", $_->{name} $_->{version}" } grep { $_->{version} } @who;
	$report .= join "\n", @tables;
	$report .= "\nskipped, since it is not here: " . join(', ', map { $_->{name} } @skipped) . "\n" if @skipped;
	PostgreSQL::Test::Utils::append_to_file("$ENV{TESTDIR}/report", $report);
	return;
}
if (!wanted('repeated')) { report(); exit; }

# --- What is repeated -------------------------------------------------------------------
# Takes keys in one statement, within an open transaction that never ends if that is asked
# for. Returns them, or the first line of the error.
sub take
{
	my ($server, $who, $count) = @_;
	return query($server, "SELECT $who->{call} FROM generate_series(1, $count)");
}
sub query
{
	my ($server, $query) = @_;
	my ($out, $error) = ('', '');
	my $code = $server->psql('postgres', $query, stdout => \$out, stderr => \$error, timeout => 60);
	return $code == 0 ? { ids => [ split /\n/, $out ] } : { ids => [], error => $error =~ s/^psql:.*?ERROR: *//r =~ s/\n.*//sr };
}

# What a run of two times of keys shows: how many of the later ones had been issued, and
# whether any sorts before one of the earlier ones.
sub verdict
{
	my ($earlier, $later) = @_;
	return "refuses: $later->{error}" if $later->{error};
	my %seen = map { $_ => 1 } @{ $earlier->{ids} };
	my $again = grep { $seen{$_} } @{ $later->{ids} };
	return $again ? "**$again of " . @{ $later->{ids} } . '**' : 'none';
}
sub goes_back
{
	my ($who, $earlier, $later) = @_;
	return '' if $who->{type} ne 'bigint' || $later->{error} || !@{ $earlier->{ids} };
	my $greatest = max(@{ $earlier->{ids} });
	return (grep { $_ < $greatest } @{ $later->{ids} }) ? '; goes back' : '';
}
sub outcome { my ($who, $earlier, $later) = @_; return verdict($earlier, $later) . goes_back($who, $earlier, $later); }

my $keys = 2000;
my %outcome;
sub joined { my ($row) = @_; return sub { my @of = @{ $outcome{$row}{ $_[0]->{key} } }; my %n; $n{$_}++ for @of; return join ', then ', sort keys %n; }; }
sub record { my ($row, $who, $text) = @_; push @{ $outcome{$row}{ $who->{key} } }, $text; return; }

# A crash, right after keys were given out, to transactions that ended and to one that did
# not end.
$node = server('crashing', 1);
start_with_clock($node, 0);
set_up($node, 1);
my $crashes = $quick ? 1 : 5;
for my $round (1 .. $crashes)
{
	my (%ended, %open);
	$ended{ $_->{key} } = take($node, $_, $keys) for @who;
	for my $who (@who)
	{
		my $session = session($node);
		error_in($session, 'BEGIN');
		my $ids = answer_in($session, "SELECT string_agg(i::text, ' ') FROM (SELECT $who->{call} AS i FROM generate_series(1, $keys) OFFSET 0) AS s");
		$open{ $who->{key} } = { ids => [ split ' ', $ids ] };
	}
	$node->stop('immediate');
	start_with_clock($node, 0);
	for my $who (@who)
	{
		my $after = take($node, $who, 2 * $keys);
		record('crash', $who, outcome($who, $ended{ $who->{key} }, $after));
		record('crash open', $who, outcome($who, $open{ $who->{key} }, $after));
	}
}
line("crash, keys of transactions that had ended ($crashes times)", joined('crash'));
line('crash, keys of a transaction that was open', joined('crash open'));

# The clock is set back, while the server runs, and while it is down.
my $back = 5;
my $offset = 0;
for my $restarted (0, 1)
{
	for my $who (@who)
	{
		set_clock($node, $offset);
		my $before = take($node, $who, $keys);
		if ($restarted)
		{
			$node->stop;
			start_with_clock($node, $offset - $back);
		}
		else { set_clock($node, $offset - $back); }
		record("clock $restarted", $who, outcome($who, $before, take($node, $who, $keys)));
		# Past all that was issued.
		$offset += 60;
	}
	$node->stop;
	start_with_clock($node, $offset);
	line($restarted ? "restart with a clock $back s behind" : "clock set back by $back s", joined("clock $restarted"));
}

# As many keys at once as the clock may not keep up with, then a restart. Of the burst, every
# 256th key is remembered.
my $burst = $quick ? 2_000 : 20_000;
for my $who (@who)
{
	my $before = $who->{burst}
	  ? query($node, "SELECT x FROM (SELECT $who->{burst} AS x FROM generate_series(1, $burst) OFFSET 0) AS s WHERE x % 256 = 0")
	  : take($node, $who, 50 * $keys);
	$node->stop;
	start_with_clock($node, $offset);
	record('burst', $who, outcome($who, $before, take($node, $who, 50 * $keys)) =~ s/\d+ of \d+/repeated/r);
}
line('restart after a burst', joined('burst'));
$node->stop('immediate');

# A failover to a standby that has not received the end of the WAL. Then the same to one
# whose clock is behind by as long as the failover takes: when it issues its first keys, its
# clock shows what the primary's clock showed when that one issued its last keys. Both with the
# primary's number, and with a number of the standby's own.
for my $kind ([ 0, 0 ], [ 0, 1 ], [ 1, 0 ], [ 1, 1 ])
{
	my ($own, $behind) = @$kind;
	my $primary = server("primary$own$behind", 1, allows_streaming => 1);
	start_with_clock($primary, 0);
	set_up($primary, 1);
	take($primary, $_, 1) for @who;
	$primary->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new("standby$own$behind");
	$standby->init_from_backup($primary, 'copy', has_streaming => 1);
	$standby->append_conf('postgresql.conf', join "\n", settings(2)) if $own;
	start_with_clock($standby, 0);
	take($primary, $_, $keys) for @who;
	$primary->wait_for_catchup($standby);
	$standby->stop('immediate');
	sleep 1;
	my $instant = $behind && stop_clock($primary);
	my %lost = map { $_->{key} => take($primary, $_, $keys) } @who;
	$primary->stop('immediate');
	start_with_clock($standby, $behind ? -5 : 0);
	$standby->promote;
	# The numbers that are in the database were replicated until here.
	give_number($standby, 2) if $own;
	stop_clock($standby, $instant) if $behind;
	my $row = "failover $own$behind";
	record($row, $_, outcome($_, $lost{ $_->{key} }, take($standby, $_, 2 * $keys))) for @who;
	$standby->stop('immediate');
	my $title = $own ? 'failover to a lagging standby with its own number' : "failover to a lagging standby with the primary's number";
	line($behind ? 'the same, with a clock behind by the time since the last keys' : $title, joined($row));
}

# Two servers with a number each are restarted, and take keys at one instant.
my @two = map { server("shard$_", $_) } 1, 2;
for my $i (0, 1) { start_with_clock($two[$i], 0); set_up($two[$i], $i + 1); take($two[$i], $_, 1) for @who; $two[$i]->stop; start_with_clock($two[$i], 0); take($two[$i], $_, 1) for @who; }
my $instant = 2 + wall_clock($two[0]);
stop_clock($_, $instant) for @two;
for my $who (@who)
{
	my @of = map { take($_, $who, 500) } @two;
	record('two', $who, verdict(@of));
}
$_->stop('immediate') for @two;
line('two servers with numbers 1 and 2, after a restart, at one instant', joined('two'));
table('keys that are issued again');

report();
