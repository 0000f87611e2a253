# Tests snowflake_partition(): a week with silences, a job that fails for days and a wrong clock;
# partitions that exist already; what it refuses; and who runs what.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::Local qw(timegm);
use Snowflake;

my $node = new_node('node', 7);
# The clocks change on 28 March 2027.
$node->append_conf('postgresql.conf', "timezone = 'Europe/Berlin'");
# Half past midnight, in UTC.
my $start = timegm(0, 30, 0, 24, 2, 2027);
start_with_clock($node, $start - time);

sub one { return $node->safe_psql('postgres', $_[0]); }
sub refused { my ($code, $sql, $what) = @_; my ($is, $text) = error_of($node, $sql); is($is, $code, $what) or diag $text; return $text; }

# The partitions of a table, with bounds as instants of a generator.
sub parts
{
	my ($table, $generator) = @_;
	$generator //= 'snowflake_default';
	return one(qq{SELECT string_agg(format('%s %s %s', c.relname, b[1], b[2]), E'\n' ORDER BY b[3]::bigint)
		FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid CROSS JOIN LATERAL (
			SELECT array_agg(coalesce(to_char(snowflake_timestamp(m[1]::bigint, '$generator') AT TIME ZONE 'UTC', 'MM-DD HH24:MI'), m[2]) ORDER BY n)
				|| max(m[1]) FILTER (WHERE n = 2)
			FROM regexp_matches(pg_get_expr(relpartbound, c.oid), '''(\\d+)''|(M..VALUE)', 'g') WITH ORDINALITY AS m (m, n)) AS x (b)
		WHERE inhparent = '$table'::regclass AND pg_get_expr(relpartbound, c.oid) <> 'DEFAULT'});
}

# A minute of work: the generator follows a clock that was set only when it next reserves, or here.
sub at { my ($hours) = @_; set_clock_to($node, $start + 3600 * $hours); one('SELECT snowflake_horizon()'); return; }

one(q{CREATE EXTENSION snowflake_id;
	CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), kind text) PARTITION BY RANGE (id);
	CREATE TABLE events_default PARTITION OF events DEFAULT});

# 1. Nine days. Rows come on five of them; the call is made at half past midnight, before these
# rows on most days and after them on one, and on two days not at all.
my $call = q{CALL snowflake_partition('events', every => '1 day', ahead => 2, keep => '4 days')};
my (@rows, $kept, $placed);
for my $day (0 .. 8)
{
	for my $hour (0, 12)
	{
		at(24 * $day + $hour);
		my $late = $day == 7;
		one($call) if $hour == 0 && !$late && $day != 3 && $day != 4;
		if ($day < 2 || $day > 5)
		{
			my $date = one(q{SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')});
			my $place = one('INSERT INTO events DEFAULT VALUES RETURNING tableoid::regclass');
			$placed .= " $place" if $place ne "events_$date";
			push @rows, 24 * $day + $hour;
		}
		one($call) if $hour == 0 && $late;
		# Rows of less than four days ago are there, and none of a day that ended earlier.
		my $now = 24 * $day + $hour;
		my $young = grep { $_ > $now - 96 } @rows;
		my $not_old = grep { 24 * int($_ / 24) + 23.5 > $now - 96 } @rows;
		my $there = one('SELECT count(*) FROM events');
		my $is_due = $day != 3 && $day != 4;
		$kept .= " day $day: $there" if $there < $young || $is_due && $hour == 0 && $there != $not_old;
	}
}
is($placed, undef, 'a week with silences: each row is in the partition of its day');
is(one('SELECT count(*) FROM events_default'), 0, '... and none in the default partition');
is($kept, undef, '... and no row was dropped early, or late');
is(one('SELECT count(*) FROM events'), 6, '... as many rows as six half days hold are left');
is(parts('events'), join("\n", map { sprintf 'events_2027%02d%02d %02d-%02d 00:00 %02d-%02d 00:00', @$_ }
	[ 3, 28, 3, 28, 3, 29 ], [ 3, 29, 3, 29, 3, 30 ], [ 3, 30, 3, 30, 3, 31 ], [ 3, 31, 3, 31, 4, 1 ], [ 4, 1, 4, 1, 4, 2 ], [ 4, 2, 4, 2, 4, 3 ], [ 4, 3, 4, 3, 4, 4 ]),
	'... in days of UTC, also where a day of the time zone has 23 hours');

# 2. A clock that jumps by a hundred days, and is set right again.
my $before = parts('events');
set_clock_to($node, $start + 3600 * 24 * 108);
my ($code) = error_of($node, $call);
ok($code eq '' || $code eq '58000', "a wrong clock: $code");
ok(wait_until('the clock is refused', sub { (error_of($node, $call))[0] eq '58000' }), 'a wrong clock is refused');
is(parts('events'), $before, '... and nothing is dropped');
at(24 * 8 + 13);
is((error_of($node, $call))[0], '', 'the clock is right again');
is(parts('events'), $before, '... and there is nothing to do');
one('DROP TABLE events_default');

# 3. What exists already: gaps are filled, bounds are kept, and periods can change.
one(q{CREATE TABLE taken (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
	CREATE TABLE taken_before PARTITION OF taken FOR VALUES FROM (MINVALUE) TO (snowflake_min_id('2027-04-02 06:00Z'));
	CREATE TABLE taken_a PARTITION OF taken FOR VALUES FROM (snowflake_min_id('2027-04-02 18:00Z')) TO (snowflake_min_id('2027-04-03 12:00Z'));
	CALL snowflake_partition('taken', ahead => 3)});
is(parts('taken'), "taken_before MINVALUE 04-02 06:00
taken_20270402_060000 04-02 06:00 04-02 18:00
taken_a 04-02 18:00 04-03 12:00
taken_20270403_120000 04-03 12:00 04-04 00:00
taken_20270404 04-04 00:00 04-05 00:00", 'gaps between partitions are filled');
one(q{CALL snowflake_partition('taken', every => '1 month', ahead => 1)});
like(parts('taken'), qr/\ntaken_20270405 04-05 00:00 05-01 00:00\ntaken_20270501 05-01 00:00 06-01 00:00$/, 'from days to months');
one(q{CALL snowflake_partition('taken', every => '7 days', ahead => 10)});
like(parts('taken'), qr/\ntaken_20270601 06-01 00:00 06-07 00:00\ntaken_20270607 06-07 00:00 06-14 00:00$/, 'from months to weeks, which begin on Mondays');
one(q{CREATE TABLE hours (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
	CALL snowflake_partition('hours', every => '6 hours', ahead => 1, keep => '1 year');
	CREATE TABLE quarters (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
	CALL snowflake_partition('quarters', every => '3 months', ahead => 1);
	CREATE TABLE top PARTITION OF quarters FOR VALUES FROM (snowflake_min_id('2027-10-01Z')) TO (MAXVALUE);
	CALL snowflake_partition('quarters', every => '3 months', ahead => 3, keep => '1 minute')});
is(parts('hours'), "hours_20270401_120000 04-01 12:00 04-01 18:00\nhours_20270401_180000 04-01 18:00 04-02 00:00", 'hours');
like(parts('quarters'), qr/^quarters_20270401 04-01 00:00 07-01 00:00\nquarters_20270701 07-01 00:00 10-01 00:00$/m, 'quarters, below a partition without an end');

# 4. Other tables: a domain, a long name, an epoch in this month, a key without a default.
one(q{CREATE DOMAIN key AS bigint CHECK (VALUE > 0);
	CREATE TABLE of_domain (id key PRIMARY KEY DEFAULT snowflake_nextval(), n integer GENERATED ALWAYS AS IDENTITY) PARTITION BY RANGE (id);
	SELECT snowflake_create_generator('young_ids', epoch => '2027-03-31Z');
	CREATE TABLE young (id bigint PRIMARY KEY DEFAULT snowflake_nextval('young_ids')) PARTITION BY RANGE (id);
	CREATE TABLE "ääääääääääääääääääääääääääääääx" (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
	CREATE TABLE bare (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	CALL snowflake_partition('of_domain', ahead => 1);
	CALL snowflake_partition('young', every => '10 years', ahead => 1, keep => '50 years');
	CALL snowflake_partition('ääääääääääääääääääääääääääääääx', every => '1 hour', ahead => 1);
	CALL snowflake_partition('bare', ahead => 1, generator => 'young_ids')});
is(one('INSERT INTO of_domain DEFAULT VALUES RETURNING tableoid::regclass, n'), 'of_domain_20270401|1', 'a key of a domain');
like(parts('young', 'young_ids'), qr/^young_20270331 03-31 00:00 01-01 00:00\n/, 'the first period begins with the epoch');
is(parts('ääääääääääääääääääääääääääääääx'), "äääääääääääääääääääääää_20270401_130000 04-01 13:00 04-01 14:00
äääääääääääääääääääääää_20270401_140000 04-01 14:00 04-01 15:00", 'the time in a name is not cut off');
like(parts('bare', 'young_ids'), qr/^bare_20270401 04-01 00:00 04-02 00:00\n/, 'a generator that was named');

# 5. What it refuses.
refused('42809', q{CALL snowflake_partition('young_20270331')}, 'a table without partitions');
refused('42809', q{CREATE TABLE lists (id bigint PRIMARY KEY) PARTITION BY LIST (id); CALL snowflake_partition('lists')}, 'partitions by list');
refused('42809', q{CREATE TABLE two (id bigint, a int, PRIMARY KEY (id, a)) PARTITION BY RANGE (id, a); CALL snowflake_partition('two')}, 'a key of two columns');
refused('42809', q{CREATE TABLE days (id date PRIMARY KEY) PARTITION BY RANGE (id); CALL snowflake_partition('days')}, 'a key that is no number');
refused('42809', q{CREATE TABLE turned (id bigint) PARTITION BY RANGE ((-id)); CALL snowflake_partition('turned')}, 'an expression');
refused('42809', 'CALL snowflake_partition(NULL)', 'no table');
like(refused('55000', q{CALL snowflake_partition('bare')}, 'no generator'), qr/no IDs of a generator.*HINT:  .*snowflake_set_default/s, '... and what to do');
refused('42809', q{CALL snowflake_partition('bare', generator => 'events')}, 'a generator that is none');
one(q{SELECT snowflake_create_generator('unsorted', 'preset=uniqueid_spread')});
refused('0A000', q{CALL snowflake_partition('bare', generator => 'unsorted')}, 'IDs that do not sort by time');
refused('22023', "CALL snowflake_partition('events', every => $_)", "every => $_") for 'NULL', q{'0'}, q{'59 seconds'}, q{'-1 day'}, q{'1 month 1 day'}, q{'2 months -1 day'};
refused('22023', "CALL snowflake_partition('events', ahead => $_)", "ahead => $_") for 'NULL', 0, 101;
refused('22023', "CALL snowflake_partition('events', keep => '$_')", "keep => '$_'") for '0', '-1 day';
refused('2D000', q{BEGIN; CALL snowflake_partition('events')}, 'a transaction block');
$node->command_fails_like([ 'psql', '-X', '-c', q{SET lock_timeout = '5s'; CALL snowflake_partition('events')}, 'postgres' ],
	qr/snowflake_partition\(\) cannot run inside a transaction block.*Send CALL alone/s, 'statements in one string are a transaction block, too');
is(parts('events'), $before, '... and nothing was changed');

# 6. What would be lost stays, and new partitions are there all the same.
one(q{CREATE TABLE olds (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), kind text) PARTITION BY RANGE (id);
	CREATE TABLE olds_1 PARTITION OF olds FOR VALUES FROM (0) TO (snowflake_min_id('2027-03-01Z'));
	CREATE TABLE olds_2 PARTITION OF olds FOR VALUES FROM (snowflake_min_id('2027-03-01Z')) TO (snowflake_min_id('2027-03-02Z'));
	CREATE TABLE olds_3 PARTITION OF olds FOR VALUES FROM (snowflake_min_id('2027-03-22Z')) TO (snowflake_min_id('2027-03-22 13:45Z'));
	CREATE TABLE olds_4 PARTITION OF olds FOR VALUES FROM (snowflake_min_id('2027-03-22 13:45Z')) TO (snowflake_min_id('2027-03-23Z'));
	INSERT INTO olds VALUES (snowflake_min_id('2027-03-01 12:00Z'));
	CREATE TABLE refers (id bigint REFERENCES olds); INSERT INTO refers SELECT id FROM olds});
my $drop = q{CALL snowflake_partition('olds', ahead => 1, keep => '10 days')};
refused('23503', $drop, 'rows to which others refer');
like(parts('olds'), qr/^olds_2 .*\nolds_3 .*\nolds_4 .*\nolds_20270401 .*\nolds_20270402 [^\n]*$/, '... with older partitions dropped, and new ones made');
one('DELETE FROM refers');

# A reader keeps the partition; a second call gets it.
my $reader = session($node);
$reader->query_safe('BEGIN; SELECT count(*) FROM olds');
refused('55P03', "SET lock_timeout = '100ms'; $drop", 'a table that is read');
refused('55P03', $drop, '... and without a lock_timeout, after two seconds');
one(q{CALL snowflake_partition('olds', ahead => 2)});
like(parts('olds'), qr/\nolds_20270403 /, '... while new partitions are made beside the reader');
$reader->query_safe('COMMIT');
one("SET lock_timeout = '1min'; $drop; SELECT set_config('x.timeout', current_setting('lock_timeout') || current_setting('search_path'), false)");
is(parts('olds'), "olds_4 03-22 13:45 03-23 00:00\nolds_20270401 04-01 00:00 04-02 00:00\nolds_20270402 04-02 00:00 04-03 00:00\nolds_20270403 04-03 00:00 04-04 00:00",
	'partitions are dropped of which each instant is older than that, to the minute');
is(one("SET lock_timeout = '1min'; $drop; SELECT current_setting('lock_timeout'), current_setting('search_path')"), '1min|"$user", public', 'the settings of the session are as before');

one(q{CREATE TABLE olds_default PARTITION OF olds DEFAULT; INSERT INTO olds VALUES (snowflake_min_id('2027-04-04 12:00Z'))});
refused('23514', q{CALL snowflake_partition('olds', ahead => 3)}, 'rows in the default partition');
is(one('SELECT count(*) FROM olds_default'), 1, '... which stay there');

# 7. Calls at the same time.
one(q{CREATE TABLE busy (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id)});
my @sessions = map { session($node) } 1 .. 4;
# They wait for each other, on a busy machine for longer than the two seconds that are usual.
$_->query_safe(q{SET lock_timeout = '3min'}) for @sessions;
send_to($_, q{CALL snowflake_partition('busy', every => '1 hour', ahead => 40)}) for @sessions;
is_deeply([map { [(answer_in($_))[0, 1]] } @sessions], [map { ['', ''] } 1 .. 4], 'four calls at the same time');
is(one(q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'busy'::regclass}), 41, '... make each partition once');
$_->quit for @sessions, $reader;

# 8. Who runs what. The owner's functions, which PostgreSQL calls while it makes an index, see the owner.
one(q{CREATE ROLE boss; CREATE ROLE other; CREATE SCHEMA lair AUTHORIZATION boss; CREATE TABLE seen (who text);
	GRANT INSERT ON seen TO PUBLIC; GRANT USAGE ON SCHEMA lair TO PUBLIC; SET ROLE boss;
	CREATE FUNCTION lair.note(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
		IF current_user <> 'boss' THEN RAISE EXCEPTION 'run as %', current_user; END IF; RETURN 1; END$$;
	CREATE FUNCTION lair.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'caught'; END$$;
	CREATE FUNCTION lair.same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'caught'; END$$;
	CREATE OPERATOR lair.= (LEFTARG = text, RIGHTARG = text, FUNCTION = lair.same);
	CREATE TABLE lair."it's %s ""x""" (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), "%1$s" text) PARTITION BY RANGE (id);
	CREATE INDEX ON lair."it's %s ""x""" (lair.note(3::bigint), id) WHERE lair.note(4) = 1;
	CREATE FUNCTION lair.caught() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'caught'; END$$;
	CREATE DOMAIN lair.text AS pg_catalog.text CHECK (lair.caught())});
my $lair = q{'lair."it''s %s ""x"""'};
one("SET search_path = lair, public, pg_catalog; CALL public.snowflake_partition($lair, ahead => 1)");
is(one("SELECT string_agg(relname || ' ' || relowner::regrole, ' ' ORDER BY relname) FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid WHERE inhparent = ${lair}::regclass"),
	q{it's %s "x"_20270401 boss it's %s "x"_20270402 boss}, 'a superuser calls it: partitions belong to the owner of the table');
like(refused('42501', "SET ROLE other; CALL public.snowflake_partition($lair)", 'another role'), qr/must be owner/, '... is told why');
is((error_of($node, "SET ROLE boss; CALL public.snowflake_partition($lair, ahead => 2)"))[0], '', 'the owner');
is((error_of($node, "SET snowflake_id.new_keys = on; CALL snowflake_partition($lair, ahead => 3)"))[0], '', 'with new keys');

# Somebody has the name of a partition.
one(q{CREATE TABLE named (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id)});
one(q{CREATE TABLE named_20270402 (a int); CREATE TYPE named_20270402_1 AS (a int)});
one(q{CALL snowflake_partition('named', ahead => 2)});
is(one("SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'named'::regclass"),
	'named_20270401 named_20270402_2 named_20270403', 'names that are taken');

# 9. Where the table is.
my $uses = one(q{SELECT current_setting('server_version_num')::int >= 170000}) eq 't';
one('CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler; SET allow_in_place_tablespaces = on; CREATE TABLESPACE "a place" LOCATION \'\'');
one('CREATE TABLE placed (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id)' . ($uses ? ' USING heap2' : '') . q{ TABLESPACE "a place"; CALL snowflake_partition('placed', ahead => 1)});
is(one(q{SELECT spcname, amname FROM pg_class AS c JOIN pg_am AS a ON a.oid = relam JOIN pg_tablespace AS t ON t.oid = reltablespace WHERE relname = 'placed_20270401'}),
	'a place|' . ($uses ? 'heap2' : 'heap'), 'tablespace and access method');

done_testing();
