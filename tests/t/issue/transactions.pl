# Tests transactions and DDL while sessions issue IDs: a generator does what
# users of sequences expect, and no ID is issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\nlock_timeout = '60 s'");
# A RESTART prints a notice that the mark is kept.
$node->append_conf('postgresql.conf', 'client_min_messages = warning');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');

# These are all IDs that one session gets, in order, during the whole test.
my @ids;
my $s = $node->background_psql('postgres', on_error_stop => 0);
sub next_id { my $id = $s->query_safe('SELECT snowflake_nextval()'); push @ids, $id; return $id; }
sub run { return $s->query_safe($_[0]); }

next_id();
run('BEGIN'); next_id(); run('ROLLBACK');
next_id();

# ALTER SEQUENCE RESTART keeps the mark; IDs resume whether the command is rolled back
# or not.
for my $end ('ROLLBACK', 'COMMIT')
{
	run('BEGIN; ALTER SEQUENCE snowflake_default RESTART');
	next_id();
	run($end);
	next_id();
	run('BEGIN; SAVEPOINT a; ALTER SEQUENCE snowflake_default RESTART');
	next_id();
	run('ROLLBACK TO a');
	next_id();
	run($end);
	next_id();
}
run(q{BEGIN; ALTER SEQUENCE snowflake_default RESTART});
next_id();
run(q{PREPARE TRANSACTION 'p'});
run(q{ROLLBACK PREPARED 'p'});
next_id();

# A bound that was published for a mark must not outlive that mark. IDs run an hour
# ahead, their mark is rolled back, one more ID is issued, and the server crashes.
run(q{BEGIN; ALTER SEQUENCE snowflake_default RESTART;
	SELECT snowflake_advance('snowflake_default', now() + interval '1 hour')});
next_id();
run('ROLLBACK');
next_id();
$s->quit;
$node->stop('immediate');
$node->start;
$s = $node->background_psql('postgres', on_error_stop => 0);
next_id();

# A rollback to a savepoint does the same.
run(q{BEGIN; SAVEPOINT a; ALTER SEQUENCE snowflake_default RESTART;
	SELECT snowflake_advance('snowflake_default', now() + interval '2 hours')});
next_id();
run('ROLLBACK TO a');
next_id();
run('COMMIT');
$s->quit;
$node->stop('immediate');
$node->start;
$s = $node->background_psql('postgres', on_error_stop => 0);
next_id();

# A user lowers the mark by setval(): the next reservation heals the mark, and after a
# crash no ID is issued twice.
run(q{SELECT setval('snowflake_default', 5)});
next_id();
run(q{SELECT snowflake_advance('snowflake_default', now())});
is(run('SELECT to_timestamp(last_value / 1000.0) > now() FROM snowflake_default'), 't',
	'a lowered mark is healed');
run(q{BEGIN; ALTER SEQUENCE snowflake_default RESTART; ROLLBACK});
my ($second) = ids($node, 1);
cmp_ok($second, '>', $ids[-1], 'another session goes on');
next_id();
$s->quit;
$node->stop('immediate');
$node->start;
$s = $node->background_psql('postgres', on_error_stop => 0);
next_id();
check_ids('one session and DDL', \@ids);

# The mark of a restarted sequence is made durable before an ID is out.
is($node->safe_psql('postgres', q{
	BEGIN;
	ALTER SEQUENCE snowflake_default RESTART;
	SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval())) * 1000 <
		(SELECT last_value FROM snowflake_default);
	COMMIT}), 't', 'reserved in the new file');

# Read-only transactions, also from the middle of a transaction on, and parallel workers
# cannot issue.
is((error_of($node, 'BEGIN READ ONLY; SELECT snowflake_nextval()'))[0], '25006', 'read-only');
is((error_of($node, q{
	PREPARE p AS SELECT snowflake_nextval();
	BEGIN; EXECUTE p; SET TRANSACTION READ ONLY; EXECUTE p}))[0], '25006', 'made read-only half-way');
is((error_of($node, q{
	CREATE FUNCTION lie() RETURNS bigint LANGUAGE sql PARALLEL SAFE AS 'SELECT snowflake_nextval()';
	SET force_parallel_mode = on; SELECT lie()}))[0], '25000', 'not in a parallel worker')
  if $node->pg_version < 16;

# The sequence is altered so that it cannot hold a mark.
for my $change ('INCREMENT 1', 'CYCLE', 'MAXVALUE 1000 START 1 INCREMENT 1 RESTART', 'AS integer MAXVALUE 1000 START 1 INCREMENT 1 RESTART')
{
	my ($code, $text) = error_of($node, "BEGIN; ALTER SEQUENCE snowflake_default $change; SELECT snowflake_nextval()");
	is($code, '55000', "refused after ALTER SEQUENCE $change");
	like($text, qr/DETAIL:/, 'with the reason');
}
# Another session alters the sequence; a session that has used the generator notices
# that.
$node->safe_psql('postgres', 'ALTER SEQUENCE snowflake_default CYCLE');
is($s->query('SELECT snowflake_nextval()'), '', 'refused in a session that had used it');
like($s->{stderr}, qr/cannot hold the mark/, 'with the reason');
$s->{stderr} = '';
$node->safe_psql('postgres', 'ALTER SEQUENCE snowflake_default NO CYCLE');
next_id();
push @ids, next_id();

# DDL waits for transactions that issue IDs, and issuers wait for DDL.
run('BEGIN'); next_id();
is((error_of($node, q{SET lock_timeout = '100 ms'; ALTER SEQUENCE snowflake_default RESTART}))[0],
	'55P03', 'ALTER SEQUENCE waits for a transaction that issued');
is((error_of($node, q{SET lock_timeout = '100 ms'; DROP EXTENSION snowflake_id}))[0],
	'55P03', 'so does DROP EXTENSION');
run('COMMIT');
# An open transaction with a COMMENT stops nobody, not even at the next reservation.
my $other = $node->background_psql('postgres');
$other->query_safe(q{BEGIN; COMMENT ON SEQUENCE snowflake_default IS 'idle'});
is((error_of($node, q{SET statement_timeout = '5 s';
	SELECT snowflake_advance('snowflake_default', now()); SELECT snowflake_nextval()}))[0], '',
	'an idle COMMENT stops nobody');
$other->query_safe('ROLLBACK');
$other->quit;

# The extension is dropped and created again while a session keeps its plans. The
# default generator of a database has one slot while the server runs: no ID of the
# former generator is issued twice, however far ahead it was.
run('PREPARE p AS SELECT snowflake_nextval()');
run(q{SELECT snowflake_advance('snowflake_default', now() + interval '3 hours')});
my ($former) = run('EXECUTE p');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id');
my @fresh = ($s->query_safe('SELECT snowflake_nextval()'), ids($node, 10));
check_ids('after DROP and CREATE EXTENSION', [ $former, @fresh ]);
cmp_ok($fresh[0], '>', $former, 'a session survives DROP and CREATE EXTENSION');
# The same holds when the drop and the creation are rolled back.
my ($undone) = split /\n/, $node->safe_psql('postgres',
	'BEGIN; DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id; SELECT snowflake_nextval(); ROLLBACK');
cmp_ok((ids($node, 1))[0], '>', $undone, 'also where that was rolled back');
$s->quit;

# snowflake_advance() raises the mark.
my $advanced = $node->safe_psql('postgres', q{
	SELECT snowflake_max_id(now() + interval '4 hours') AS id \\gset
	SELECT snowflake_advance('snowflake_default', :id);
	SELECT snowflake_nextval() > :id});
like($advanced, qr/\nt$/, 'all IDs after an ID');
is($node->safe_psql('postgres', q{
	SELECT date_trunc('second', now()) + interval '5 hours' AS at \\gset
	SELECT snowflake_advance('snowflake_default', :'at'::timestamptz) = :'at';
	SELECT snowflake_timestamp(snowflake_nextval()) >= :'at'}),
	"t\nt", 'all IDs from an instant');
my ($before) = ids($node, 1);
$node->stop('immediate');
$node->start;
my ($after) = ids($node, 1);
cmp_ok($after, '>', $before, 'durable');

is((error_of($node, q{SELECT snowflake_advance('snowflake_default', now() + interval '13 hours')}))[0],
	'22008', 'half as far as a rollback may be: room for one on top');

# A batch that runs beside other calls of its session still increases, row by row.
is($node->safe_psql('postgres', q{
	SELECT bool_and(b > before AND a > b) FROM (
		SELECT a, b, lag(a, 1, 0::bigint) OVER (ORDER BY n) AS before
		FROM (SELECT row_number() OVER () AS n, b, a FROM (
			SELECT snowflake_nextval_batch(1000) AS b, snowflake_nextval() AS a OFFSET 0) AS s) AS t) AS u}),
	't', 'batch and single call in one select list');
my ($mixed) = $node->safe_psql('postgres', q{
	BEGIN;
	DECLARE c CURSOR FOR SELECT snowflake_nextval_batch(3);
	FETCH c;
	SELECT snowflake_nextval();
	FETCH c;
	SELECT snowflake_currval();
	COMMIT});
my @mixed = split /\n/, $mixed;
check_ids('a cursor over a batch', [ @mixed[ 0 .. 2 ] ]);
is($mixed[3], $mixed[2], 'currval is the last that came out');
# The rest of a batch is void when the mark that allowed the batch is rolled back.
my @void = split /\n/, $node->safe_psql('postgres', q{
	BEGIN;
	DECLARE c CURSOR FOR SELECT snowflake_nextval_batch(3);
	SAVEPOINT a;
	ALTER SEQUENCE snowflake_default RESTART;
	SELECT snowflake_advance('snowflake_default', now() + interval '6 hours') IS NULL;
	FETCH c;
	ROLLBACK TO a;
	FETCH c;
	SELECT snowflake_timestamp(snowflake_currval()) < to_timestamp(last_value / 1000.0) FROM snowflake_default;
	COMMIT});
is($void[-1], 't', 'a chunk does not outlive its mark');

# A dump carries the mark, also for a database owner.
$node->safe_psql('postgres', q{CREATE ROLE keeper LOGIN; CREATE DATABASE kept OWNER keeper; CREATE DATABASE copy OWNER keeper; CREATE DATABASE bare OWNER keeper});
$node->safe_psql('kept', 'CREATE EXTENSION snowflake_id', extra_params => [ '-U', 'keeper' ]);
my ($high) = ids($node, 1, 'kept');
my $mark = $node->safe_psql('kept', 'SELECT last_value FROM snowflake_default');
my $dump = $node->basedir . '/kept.sql';
$node->command_ok([ 'pg_dump', '-U', 'keeper', '-h', $node->host, '-p', $node->port, '-f', $dump, 'kept' ], 'pg_dump as owner');
$node->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-U', 'keeper', '-h', $node->host, '-p', $node->port, '-f', $dump, 'copy' ], 'restore as owner');
is($node->safe_psql('copy', 'SELECT last_value FROM snowflake_default'), $mark, 'the mark travels');
$node->command_ok([ 'pg_dump', '-s', '-U', 'keeper', '-h', $node->host, '-p', $node->port, '-f', $dump, 'kept' ], 'schema only');
$node->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-U', 'keeper', '-h', $node->host, '-p', $node->port, '-f', $dump, 'bare' ], 'restored');
# A dump also carries the mark when the role that created the extension is gone.
$node->safe_psql('kept', 'REASSIGN OWNED BY keeper TO CURRENT_USER; DROP OWNED BY keeper');
for my $database ('copy', 'bare') { $node->safe_psql($database, 'REASSIGN OWNED BY keeper TO CURRENT_USER; DROP OWNED BY keeper'); }
$node->safe_psql('postgres', 'DROP ROLE keeper; CREATE DATABASE orphan');
$node->command_ok([ 'pg_dump', '-h', $node->host, '-p', $node->port, '-f', $dump, 'kept' ], 'pg_dump without its creator');
$node->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-h', $node->host, '-p', $node->port, '-f', $dump, 'orphan' ], 'restored');

is((error_of($node, q{SELECT nextval('snowflake_default')}, 'bare'))[0], '2200H', 'no mark, and nextval() still fails');
is(scalar(ids($node, 1, 'bare')), 1, 'IDs from the clock');

done_testing();
