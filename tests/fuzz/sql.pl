# Random queries, made by sqlsmith from the catalogs, on a server with tables and
# generators of every kind. A query may fail; the server may not.
#
#   SEED      of the queries; another each time if not given, and printed
#   QUERIES   how many; default 20000
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake qw(new_node create_generator);

my $seed    = $ENV{SEED}    || int(rand(2**31));
my $queries = $ENV{QUERIES} || 20_000;
/^\d+$/ or die "SEED and QUERIES are whole numbers\n" for $seed, $queries;
note("SEED=$seed QUERIES=$queries");

my $node = new_node('fuzzed', 7);
# A query of sqlsmith can be without end.
$node->append_conf('postgresql.conf', "statement_timeout = '2 s'\nrestart_after_crash = off\nlog_line_prefix = '%p %e '");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
create_generator($node, $_->[0], $_->[1])
  for [ 'discord', 'preset=discord' ], [ 'random', 'preset=default sequence_start=random' ],
  [ 'clocks', "layout='time:41 clock:2 worker:8 sequence:12' epoch=1735689600000 on_rollback=next_clock" ];
$node->safe_psql('postgres', q{
	CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), made timestamptz, label text);
	INSERT INTO t (made, label) SELECT snowflake_timestamp(snowflake_nextval()), 'preset=discord' FROM generate_series(1, 100)});
# PostgreSQL has a hundred functions for each of ours: so many copies make them as
# frequent.
$node->safe_psql('postgres', q{
	CREATE SCHEMA copies;
	DO $$
	DECLARE definition text; copy int;
	BEGIN
		FOR definition IN
			SELECT pg_get_functiondef(p.oid) FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
			JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
			WHERE e.extname = 'snowflake_id' AND d.deptype = 'e'
		LOOP
			FOR copy IN 1 .. 50 LOOP
				EXECUTE regexp_replace(definition, 'FUNCTION public\.', format('FUNCTION copies.copy_%s_', copy));
			END LOOP;
		END LOOP;
	END$$});

my ($out, $err);
my $ran = run_log([ 'sqlsmith', '--target=' . $node->connstr('postgres'), "--seed=$seed", "--max-queries=$queries" ],
	'>', \$out, '2>', \$err);
ok($ran, "$queries queries were made") or diag($err);
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM t'), 't', 'the server has not crashed');
my $log = slurp_file($node->logfile);
unlike($log, qr/TRAP: |was terminated by signal/, 'no assertion failed');
my $calls = scalar(() = $log =~ /copies\.copy_/g);
cmp_ok($calls, '>', $queries / 100, "functions of the extension were called $calls times");
# PostgreSQL's functions have internal errors when they are called with anything.
# Errors of ours have a SQLSTATE of their own.
my @internal = grep { /^\d+ XX000 ERROR: .*(?:snowflake|panicked|Rust|unwrap)/ } split /\n/, $log;
is("@internal", '', 'no internal error');
done_testing();
