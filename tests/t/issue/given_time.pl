# Tests the import of docs/reference.md, which gives rows IDs of their time: a million rows of
# ten years in one statement, beside rows of the generator, again, at the same time, after a
# crash, and where it would repeat an ID.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Pages;
use Snowflake;

my $node = new_node('main', 7);
$node->start;
sub sql { return $node->safe_psql('postgres', $_[0]); }
sub rows { return sql("SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE snowflake_timestamp(id, 'event_ids') = date_trunc('milliseconds', happened_at)) FROM events"); }

my ($page) = slurp_file("$FindBin::RealBin/../../../docs/reference.md") =~ /\n### IDs of a given time\n(.*?)\n## /s;
my ($tables, $import) = map { $_->{text} } grep { $_->{language} eq 'sql' } blocks($page);
$import =~ s/;.*//s;
like($import, qr/^WITH import AS .*old_events/s, 'the page has the import');
sql("CREATE EXTENSION snowflake_id; $tables");

# 4,096 rows of one millisecond, which are all that it has; the others are anywhere, with
# microseconds, and many share a millisecond.
sql(q{SELECT setseed(0.5);
	CREATE TABLE old_events AS
	SELECT CASE WHEN n <= 4096 THEN timestamptz '2020-02-29 12:00Z'
		WHEN n <= 100000 THEN timestamptz '2021-01-01Z' + floor(random() * 100000) * interval '1 us'
		ELSE timestamptz '2016-01-01Z' + random() * interval '10 years' END AS happened_at
	FROM generate_series(1, 1000000) AS n});
sql($import);
is(rows(), '1000000|1000000|1000000', 'a million rows of ten years have IDs of their time');
is(sql("SELECT min(worker_id), max(worker_id) FROM events, snowflake_decode(id, 'event_ids')"), '960|960', 'of one worker ID');
is(sql(q{SELECT max(happened_at) - min(happened_at) > interval '9 years 360 days' FROM events}), 't', 'of ten years');

# Rows of the generator, and then an import of the very same milliseconds.
sql(q{INSERT INTO events (happened_at) SELECT clock_timestamp() FROM generate_series(1, 1000)});
sql(q{TRUNCATE old_events;
	INSERT INTO old_events SELECT snowflake_timestamp(id, 'event_ids') FROM events WHERE happened_at > now() - interval '1 h' OR happened_at < '2020-03-01Z'});
my $more = sql('SELECT count(*) FROM old_events');
cmp_ok($more, '>', 300_000, 'many rows are imported again');
sql($import);
is(sql('SELECT count(*) = count(DISTINCT id) FROM events'), 't', 'no ID of another import or of the server is repeated');
is(sql('SELECT count(*) FROM events'), 1_001_000 + $more, 'and all are there');

# What could repeat an ID fails, and leaves nothing behind.
my $state = 'SELECT (SELECT count(*) FROM events), (SELECT max(worker_id) FROM imports)';
my $before = sql($state);
sql(q{TRUNCATE old_events; INSERT INTO old_events SELECT '2020-02-29 12:00Z' FROM generate_series(1, 4097)});
is((error_of($node, $import))[0], '22003', 'more rows in a tick than numbers');
sql(q{TRUNCATE old_events; INSERT INTO old_events VALUES ('2014-12-31 23:59:59.999Z')});
is((error_of($node, $import))[0], '22008', 'a time before the epoch');
sql(q{TRUNCATE old_events; INSERT INTO old_events VALUES ('2020-02-29 12:00Z')});
my $other = session($node);
$other->query_safe("BEGIN; $import");
my $waiter = session($node);
send_to($waiter, $import);
wait_for_lock($node, 'WITH import%');
$other->query_safe('COMMIT');
is(scalar error_in($waiter, ''), '23505', 'a second import at the same time');
$_->quit for $other, $waiter;
is(sql($state), sql("SELECT " . join ', ', map { $_ + 1 } split /\|/, $before), 'only one import was committed');

# An import that was not committed gives its worker ID back, with its rows.
$before = sql($state);
$other = session($node);
$other->query_safe("BEGIN; $import");
$node->stop('immediate');
$node->start;
is(sql($state), $before, 'after a crash, neither rows nor worker ID are there');
sql($import);
is(sql('SELECT max(worker_id) FROM imports'), (split /\|/, $before)[1] + 1, 'the next import takes it');
sql(q{INSERT INTO imports VALUES (1021)});
is((error_of($node, $import))[0], '23514', 'no worker ID is left');
done_testing();
