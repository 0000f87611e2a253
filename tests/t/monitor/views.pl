# Tests the views in parallel plans, and while generators are locked.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Snowflake;

my $node = new_node('node', 7);
$node->append_conf('postgresql.conf', "deadlock_timeout = '100 ms'");
start_with_clock($node, 0);
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE ROLE owning LOGIN;
	GRANT CREATE ON SCHEMA public TO owning;
	CREATE TABLE big AS SELECT n FROM generate_series(1, 100000) AS n;
	ANALYZE big});
$node->safe_psql('postgres', "SELECT snowflake_create_generator('$_', 'preset=twitter')", extra_params => [ '-U', 'owning' ])
  for qw(quiet busy issuing);
# One has a mark from before a restart, and no state in memory.
$node->safe_psql('postgres', q{SELECT snowflake_nextval('quiet')});
$node->stop;
start_with_clock($node, 0);
$node->safe_psql('postgres', 'SELECT snowflake_nextval(), snowflake_nextval(\'busy\'), snowflake_nextval(\'issuing\')');

# The plans are parallel: the session leads workers while it reads the view.
my $parallel = q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SET max_parallel_workers_per_gather = 2};
for my $view (qw(snowflake_generators pg_stat_snowflake))
{
	my $query = "SELECT (SELECT count(*) FROM $view), count(*) FROM big";
	like($node->safe_psql('postgres', "$parallel; EXPLAIN (COSTS off) $query"), qr/Gather/, "$view: a parallel plan");
	my ($out, $err) = ('', '');
	$node->psql('postgres', "$parallel; $query", stdout => \$out, stderr => \$err);
	is("$out$err", ($view eq 'pg_stat_snowflake' ? 3 : 4) . '|100000', "$view: in a parallel plan");
}

# The owner changes a generator and leaves the transaction open.
my $watch = q{SELECT generator, ids_per_second, layout IS NOT NULL, label, ahead_by IS NOT NULL,
	reserved_until IS NOT NULL, problem FROM snowflake_generators ORDER BY generator::text};
my $told = 'Another transaction changes the generator, or waits to change it. Calls wait until'
  . ' that transaction ends, and what the sequence holds is not shown. View pg_locks shows which transaction that is.';
my $session = session($node, 'owning');
for my $lock (q{SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS 'preset=twitter max_borrow=0'},
	'ALTER SEQUENCE %1$s RENAME TO other_%1$s', 'DROP SEQUENCE %s')
{
	my ($what) = $lock =~ /^(\w+ \w+)/;
	$session->query_safe('BEGIN');
	$session->query(sprintf $lock, $_) for qw(quiet busy);
	my $from = time;
	my ($out, $err) = ('', '');
	$node->psql('postgres', "SET statement_timeout = '10 s'; $watch",
		stdout => \$out, stderr => \$err, extra_params => [ '-U', 'watcher' ]);
	cmp_ok(time - $from, '<', 5, "$what: the view answers");
	is($out, join("\n",
		"busy|4096000|t|preset=twitter|t|t|generator busy is locked. $told",
		'issuing|4096000|t|preset=twitter|t|t|',
		"quiet|4096000|t|preset=twitter|f|f|generator quiet is locked. $told",
		'snowflake_default|4096000|t|preset=default|t|t|'), "$what: with what is known");
	is($err, '', "$what: without an error");
	($out, $err) = ('', '');
	$node->psql('postgres', "SET statement_timeout = '10 s'; SELECT generator, issued FROM pg_stat_snowflake ORDER BY generator::text",
		stdout => \$out, stderr => \$err, extra_params => [ '-U', 'watcher' ]);
	is("$out$err", "busy|1\nissuing|1\nsnowflake_default|1", "$what: so does pg_stat_snowflake");
	# The session's own lock does not count.
	is($session->query_safe(q{SELECT count(*) FROM snowflake_generators WHERE problem LIKE '%locked%'}), '0',
		"$what: not locked for the session that has");
	$session->query_safe('ROLLBACK');
}

# A drop locks the generator too.
$session->query_safe('BEGIN');
$session->query_safe('DROP SEQUENCE busy');
like($node->safe_psql('postgres', $watch), qr/^busy\|.*is locked/m, 'locked for a drop');
$session->query_safe('COMMIT');
unlike($node->safe_psql('postgres', $watch), qr/busy/, 'and gone');
$session->quit;
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake_generators WHERE problem IS NOT NULL'), '0', 'all is well again');
$node->stop;
done_testing();
