# Tests snowflake_status(): each state on a server that is really in it, for a superuser and
# for a role without rights.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

# The first table of the page about operations, which has more about each row.
my ($table) = slurp_file("$FindBin::RealBin/../../../docs/operations.md") =~ /^## What you see and what to do\n(.*?)^## /ms;

# The rows: the states in order, and "state|detail|hint" by item.
sub status
{
	my ($node, $role) = @_;
	my $rows = $node->safe_psql('postgres', 'SELECT item, state, detail, hint, see FROM snowflake_status()',
		$role ? (extra_params => [ '-U', $role ]) : ());
	my @rows = map { [ split /\|/, $_, 2 ] } split /\n/, $rows;
	# What is wrong names the row of the page that has more about it, and nothing else does.
	for my $row (@rows)
	{
		my ($anchor) = $row->[1] =~ s{\|(?:docs/operations\.md#(\S+))?\z}{} && $1;
		my $has_more = defined $anchor && index($table, "<a id=\"$anchor\"></a>") >= 0;
		($row->[1] =~ /^ok/ ? !defined $anchor : $has_more) or fail("the page of '@$row'");
	}
	return (join(' ', map { $_->[1] =~ /^(\w+)/ } @rows), map { @$_ } @rows);
}

# The states, and what one row says. What is wrong is on the page: the first words of the
# text, as far as there is no value among them. A problem is the text of an error.
sub says
{
	my ($node, $what, $states, $item, $row, $role) = @_;
	my ($found, %row) = status($node, $role);
	for my $detail (map { /^(?:critical|warning)\|(.*)\|/ } $row{$item} // '')
	{
		next if $item =~ /generator/ && $detail !~ /^It|^The/;
		my ($part) = grep { length >= 15 }
		  map { s/^ ?(?:(?:day|hour|minute|second)s?)? | (?:of|on|in|by|for|has|version)? ?$//gr } split /[^A-Za-z ]+/, $detail;
		ok(index($table, $part) >= 0, "$what: the page says more about '$part'");
	}
	is($found, $states, "$what: what is wrong comes first");
	like($row{$item} // '(none)', $row, "$what: row $item");
	return %row;
}

my $apart = new_node('apart', '');
$apart->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$apart->start;
$apart->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
says($apart, 'not preloaded', 'critical', 'library', qr/^critical\|The library was not loaded .*\|Append snowflake_id to shared_preload_libraries/);
$apart->stop;

# One server whose worker ID is set.
my $node = new_node('node', 7, allows_streaming => 1);
$node->append_conf('postgresql.conf', "snowflake_id.reserve_ahead = '100 ms'");
start_with_clock($node, 0);
$node->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; CREATE ROLE nobody LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
	SELECT snowflake_create_generator('order_ids', 'preset=twitter'); SELECT snowflake_nextval(), snowflake_nextval('order_ids')});
my %row = says($node, 'all is well', 'ok ok ok ok', 'generators', qr/^ok\|2 without trouble\.\|$/);
like($row{'worker ID'}, qr/^ok\|7, set on this server\.\|$/, 'the worker ID');
like($row{library}, qr/^ok\|Version \S+ is loaded\.\|$/, 'the library');
like($row{clock}, qr/^ok\|The wall clock runs without a jump\.\|$/, 'the clock');
says($node, 'a role without rights', 'ok ok ok ok', 'generators', qr/^ok\|1 without trouble\. 1 more: what they do is shown to roles/, 'nobody');
says($node, 'a monitor', 'ok ok ok ok', 'generators', qr/^ok\|2 without trouble\.\|$/, 'monitor');

my $version = $node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'});
for ([ '0.9', qr/^warning\|Version \Q$version\E is loaded, and this database has version 0\.9 .*\|Run ALTER EXTENSION/ ],
	[ '99.0', qr/^warning\|.* version 99\.0 .*\|Restart the server/ ])
{
	my ($other, $row) = @$_;
	$node->safe_psql('postgres', "UPDATE pg_extension SET extversion = '$other' WHERE extname = 'snowflake_id'");
	says($node, "scripts of version $other", 'warning ok ok ok', 'library', $row);
}
$node->safe_psql('postgres', "UPDATE pg_extension SET extversion = '$version' WHERE extname = 'snowflake_id'");

# Keys with numbers of sequences: where new_keys is on for the session, the database, or the owner of the table.
sub sql { return $node->safe_psql('postgres', $_[0]); }
sql(q{CREATE TABLE own_sequence (id bigint PRIMARY KEY DEFAULT 0); CREATE SEQUENCE own; ALTER TABLE own_sequence ALTER id SET DEFAULT nextval('own');
	CREATE TABLE serial_key (id bigserial PRIMARY KEY); CREATE TABLE identity_key (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
	CREATE TABLE unique_key (id bigserial UNIQUE); CREATE TABLE small_key (id serial PRIMARY KEY, serial_id integer REFERENCES serial_key);
	CREATE TABLE two_columns (tenant bigint, id bigserial, PRIMARY KEY (tenant, id)); CREATE TABLE "By name" (id bigint PRIMARY KEY); CREATE SEQUENCE "By name_seq";
	CREATE TABLE by_text (id bigint PRIMARY KEY DEFAULT nextval('own'::text)); CREATE TABLE has_parts (id bigserial PRIMARY KEY) PARTITION BY HASH (id);
	CREATE TABLE part PARTITION OF has_parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);
	CREATE TABLE has_ids (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), number bigserial UNIQUE); CREATE TABLE refers (serial_id bigint REFERENCES serial_key, natural_id bigint PRIMARY KEY);
	CREATE TEMPORARY TABLE temporary (id bigserial PRIMARY KEY)});
is(sql(q{SELECT string_agg(relation::regclass::text || '.' || name || ' ' || coalesce(sequence::regclass::text, '?'), ', ' ORDER BY relation) FROM _snowflake.counted_keys}),
	'own_sequence.id own, serial_key.id serial_key_id_seq, identity_key.id identity_key_id_seq, unique_key.id unique_key_id_seq, small_key.id small_key_id_seq, '
	. 'two_columns.id two_columns_id_seq, "By name".id "By name_seq", by_text.id ?, has_parts.id has_parts_id_seq', 'keys that count');
says($node, 'keys that count, while new_keys is off', 'ok ok ok ok', 'generators', qr/^ok/, $_) for undef, 'nobody';
my $keys = qr/^warning\|Keys get numbers from sequences, as they do on other servers, 9 in all: public\."By name"\.id, public\.by_text\.id, public\.has_parts\.id, public\.identity_key\.id, public\.own_sequence\.id, \.\.\.\.\|SELECT \* FROM snowflake_set_defaults\('public'\); Declare integer keys as bigint, or call snowflake_convert\(\)$/;
for my $value ('on', 'public.order_ids')
{
	sql("ALTER DATABASE postgres SET snowflake_id.new_keys = '$value'");
	%row = says($node, "with new_keys = $value", 'warning warning ok ok ok ok', 'keys', $keys, $_) for undef, 'nobody';
	like($row{references}, qr/^warning\|Columns cannot hold IDs of the keys to which they refer, 1 in all: public\.small_key\.serial_id\.\|ALTER TABLE public\.small_key ALTER COLUMN serial_id TYPE bigint$/, 'a reference');
}
sql('ALTER DATABASE postgres SET snowflake_id.new_keys = off; ALTER ROLE nobody SET snowflake_id.new_keys = on');
says($node, 'off in the database', 'ok ok ok ok', 'generators', qr/^ok/);
says($node, 'on for the session', 'warning warning ok ok ok ok', 'keys', $keys, 'nobody');
sql('ALTER TABLE unique_key OWNER TO nobody');
says($node, 'on for the owner', 'warning ok ok ok ok', 'keys', qr/^warning\|Keys get .*, 1 in all: public\.unique_key\.id\.\|/);
sql('ALTER DATABASE postgres RESET snowflake_id.new_keys; ALTER ROLE nobody RESET snowflake_id.new_keys');

# A sequence that a tool has set to an ID. Nobody waits for one that a transaction changes.
my $id = sql(q{SELECT setval('serial_key_id_seq', snowflake_nextval())});
my $continued = qr/^warning\|Sequences of keys continue from an ID, in numbers that other servers issue, 1 in all: public\.serial_key\.id\.\|SELECT snowflake_set_default\('public\.serial_key', 'id'\)$/;
says($node, 'a sequence that was set to an ID', 'warning ok ok ok ok', 'sequences', $continued);
says($node, 'to a role without rights', 'ok ok ok ok', 'generators', qr/^ok/, 'nobody');
my $check = q{SELECT greatest_id, detail, hint FROM snowflake_check('serial_key', generator => 'snowflake_default') WHERE finding = 'IDs of a sequence'};
is(sql($check), "$id|Its sequence public.serial_key_id_seq continues from an ID, in numbers that other servers issue.|SELECT snowflake_set_default('public.serial_key', 'id')", 'and to snowflake_check()');
my $changer = session($node);
$changer->query_safe('BEGIN; ALTER SEQUENCE serial_key_id_seq CACHE 2; DROP TABLE identity_key');
says($node, 'a transaction changes it', 'ok ok ok ok', 'generators', qr/^ok/);
$changer->query_safe('ROLLBACK');
sql(q{SELECT setval('serial_key_id_seq', 1::bigint << 40)});
says($node, 'a number that may be counted', 'ok ok ok ok', 'generators', qr/^ok/);
is(sql($check), '', 'also to snowflake_check()');
sql(q{DROP TABLE small_key; SELECT snowflake_set_default('serial_key'); SELECT setval('serial_key_id_seq', snowflake_nextval())});
says($node, 'a key that does not use its sequence', 'ok ok ok ok', 'generators', qr/^ok/);
sql('DROP TABLE own_sequence, serial_key, identity_key, unique_key, two_columns, "By name", by_text, has_parts, has_ids, refers CASCADE; DROP SEQUENCE own, "By name_seq"');

# Defaults whose sequences were made without their labels, as tools copy schemas.
sql(q{CREATE SCHEMA clone; CREATE SEQUENCE clone.order_ids INCREMENT BY 9223372036854775807 MINVALUE 1 START WITH 9223372036854775807;
	CREATE TABLE clone.orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('clone.order_ids'))});
like((error_of($node, 'INSERT INTO clone.orders DEFAULT VALUES'))[1], qr/clone\.order_ids is not a generator: it has no label.*SECURITY LABEL FOR snowflake_id ON SEQUENCE clone\.order_ids IS 'preset=default'/s, 'a copy of a generator');
%row = says($node, 'a default without a generator', 'critical ok ok ok ok', 'defaults',
	qr/^critical\|Defaults name sequences that are no generators, so INSERTs fail, 1 in all: clone\.orders\.id\.\|SECURITY LABEL FOR snowflake_id ON SEQUENCE clone\.order_ids IS 'preset=twitter'$/, $_) for undef, 'nobody';
sql($row{defaults} =~ s/.*\|//r);
sql('INSERT INTO clone.orders DEFAULT VALUES; CREATE SEQUENCE plain; CREATE TABLE planned (id bigint PRIMARY KEY DEFAULT snowflake_nextval($$plain$$))');
%row = says($node, 'a plain sequence', 'critical ok ok ok ok', 'defaults', qr/public\.planned\.id\.\|SECURITY LABEL FOR snowflake_id ON SEQUENCE public\.plain IS 'preset=default'$/);
sql($row{defaults} =~ s/.*\|//r);
sql('INSERT INTO planned DEFAULT VALUES; DROP TABLE planned, clone.orders; DROP SEQUENCE plain, clone.order_ids');

# Transactions that hold back the horizon, one of them prepared.
my $holder = session($node);
$holder->query_safe('BEGIN; SELECT snowflake_nextval()');
set_clock($node, 400);
says($node, 'a long transaction', 'warning ok ok ok ok', 'horizon',
	qr/^warning\|A transaction holds back a horizon, that of public\.snowflake_default, for 6 minutes \(since .*\): process \d+ of role \S+, idle in transaction\.\|End its transaction, if need be by SELECT pg_terminate_backend/);
says($node, 'as a role without rights', 'warning ok ok ok ok', 'horizon', qr/^warning\|A transaction .* of role \S+\.\|End/, 'nobody');
$holder->query_safe('COMMIT');
says($node, 'it has ended', 'ok ok ok ok', 'generators', qr/^ok/);

# The clock is set back: one generator leads, another one refuses.
$node->safe_psql('postgres', q{SELECT snowflake_nextval(); SELECT snowflake_create_generator('strict_ids', 'preset=twitter on_rollback=error');
	SELECT snowflake_nextval('strict_ids')});
set_clock($node, 100);
$node->psql('postgres', 'SELECT snowflake_nextval()');
error_of($node, q{SELECT snowflake_nextval('strict_ids')});
%row = says($node, 'the clock is set back', 'critical warning ok ok ok ok', 'generator public.strict_ids',
	qr/^critical\|It issues no IDs because of the clock, .* for \d+ seconds? \(since .*\|Call snowflake_nextval\('public\.strict_ids'\)/);
like($row{'generator public.snowflake_default'}, qr/^warning\|Its IDs are [45] minutes ahead of the clock, since the clock was set back\. .*\|$/, 'nothing is to be done about a lead');
like($row{clock}, qr/^ok\|The wall clock was set back by up to [45] minutes since .*\|$/, 'how far');
%row = says($node, 'as a role without rights', 'warning ok ok ok ok', 'generators', qr/^ok\|0 without trouble\. 2 more/, 'nobody');
$node->safe_psql('postgres', 'DROP SEQUENCE strict_ids');
set_clock($node, 400);

# Three days forward: nothing follows.
set_clock($node, 400 + 3 * 86400);
my ($states, %forward);
wait_until('the clock is refused', sub {
	error_of($node, 'SELECT snowflake_nextval()');
	($states, %forward) = status($node);
	return $states =~ /^critical critical/; });
like($forward{clock}, qr/^critical\|The wall clock has jumped forward by [23] days\. .*\|Set the clock right/, 'a jump of the clock');
like($forward{'generator public.snowflake_default'}, qr/^critical\|It issues no IDs because of the clock/, 'and the generator that refuses it');
set_clock($node, 400);
$node->safe_psql('postgres', 'SELECT snowflake_nextval()');

# A sequence that somebody has set, and a layout whose time ends.
$node->safe_psql('postgres', q{SELECT snowflake_create_generator('old_ids', format('layout=''time:40 worker:10 sequence:12'' epoch=%s',
		(extract(epoch FROM now() + interval '200 days') * 1000)::bigint - (1::bigint << 40)));
	SELECT snowflake_create_generator('set_ids', 'preset=twitter'); SELECT setval('set_ids', 1234567)});
%row = says($node, 'a mark and a layout', 'critical warning ok ok ok ok', 'generator public.set_ids',
	qr/^critical\|sequence public.set_ids holds 1234567, which is .* no mark\. .*\|Do what the end of the detail says\.$/);
like($row{'generator public.old_ids'}, qr/^warning\|The time of its layout ends on .*, in (199|200) days\.\|Give the time more bits/, 'the end of a layout');
$node->safe_psql('postgres', 'DROP SEQUENCE old_ids, set_ids');

# A standby, with and without a worker ID to have.
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
start_with_clock($standby, 400);
says($standby, 'a standby', 'ok ok ok', 'standby', qr/^ok\|The server is in recovery, and issues no IDs\. Once promoted, it has worker ID 7\.\|$/, $_) for undef, 'nobody';
$standby->stop;
$standby->adjust_conf('postgresql.conf', 'snowflake_id.worker_id', undef);
start_with_clock($standby, 400);
says($standby, 'without a worker ID', 'warning ok ok', 'standby', qr/^warning\|.* If it were promoted, it would have no worker ID\.\|Set snowflake_id\.worker_id/);
$standby->promote;
says($standby, 'promoted', 'critical critical ok ok', 'worker ID', qr/^critical\|This server issues no IDs: it has no worker ID\.\|Set snowflake_id\.worker_id .* restart/);
%row = says($standby, 'and so none', 'critical critical ok ok', '2 generators, such as public.order_ids', qr/^critical\|this server has no worker ID/);
$_->stop for $standby, $node;

# A server with a lease.
my $registry = new_node('registry', 900);
start_with_clock($registry, 0);
$registry->safe_psql('postgres', q{CREATE EXTENSION snowflake_id;
	SELECT snowflake_create_pool('default', int8range(5, 6), lease => '6 s', hold => '1 s', max_ahead => '1 s')});
my $leasing = new_node('leasing', '', allows_streaming => 1);
my $conninfo = 'host=' . $registry->host . ' port=' . $registry->port . ' dbname=postgres';
$leasing->append_conf('postgresql.conf', "snowflake_id.registry = '$conninfo'");
$leasing->start;
$leasing->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE ROLE nobody LOGIN; SELECT snowflake_nextval()');
%row = says($leasing, 'a lease', 'ok ok ok ok ok ok', 'worker ID', qr/^ok\|5, leased from pool "default" of the registry\.\|$/);
# A young lease that leads reaches not far.
wait_until('until when', sub { my ($all, %now) = status($leasing);
	return $now{lease} =~ /^ok\|If the registry does not answer, IDs are issued until .*, which is in \d seconds?\.\|$/ });
like($row{registry}, qr/^ok\|The registry answered \d seconds? ago\.\|$/, 'and the registry');
set_clock($registry, 30);
wait_until('the clocks differ', sub { my ($all, %now) = status($leasing); return $now{clocks} });
says($leasing, 'the clocks differ', 'warning ok ok ok ok ok ok', 'clocks', qr/^warning\|The clock of this server is (?:29|30|31) seconds behind that of the registry\.\|Set the wrong clock right\.$/, 'nobody');
set_clock($registry, 0);
wait_until('the clocks agree', sub { my ($all, %now) = status($leasing); return !$now{clocks} });
$leasing->backup('copy');
my $spare = PostgreSQL::Test::Cluster->new('spare');
$spare->init_from_backup($leasing, 'copy', has_streaming => 1);
$spare->start;
is($spare->safe_psql('postgres', 'SELECT count(*) FROM snowflake_generators WHERE problem ~ $$The server is a standby. It asks the registry$$'), 1,
	'its generators say that it is a standby');
says($spare, 'a standby of it', 'ok ok ok', 'standby', qr/^ok\|.* Once promoted, it asks the registry for a worker ID of pool "default"\.\|$/);
# The pool has no second worker ID.
$spare->promote;
wait_until('no worker ID is free', sub { my ($all, %now) = status($spare); return $now{registry} =~ /All worker IDs of the pool/; });
%row = says($spare, 'no worker ID is free', 'critical critical critical ok ok', 'registry',
	qr/^critical\|The registry has granted nothing for .* \(since .*\): All worker IDs of the pool belong to other servers\.\|View snowflake_workers of the registry shows .* IDs resume by themselves\.$/, 'nobody');
like($row{'worker ID'}, qr/^critical\|This server issues no IDs: the registry has given it no worker ID of pool "default"\.\|Do what the row "registry" says\.$/, 'so no IDs');
$spare->stop;

$registry->stop('immediate');
wait_until('the registry is missed', sub { my ($all, %now) = status($leasing); return $now{registry} !~ /^ok/; });
%row = says($leasing, 'the registry is stopped', 'critical critical ok ok ok ok', 'registry',
	qr/^critical\|The registry has been unreachable for \d seconds? \(since .*\): Could not connect: .*\|Check that the registry runs .* IDs resume by themselves\.$/);
like($row{lease}, qr/^critical\|(?:The registry has been unreachable for .*\. IDs continue until .*, which is in \d seconds?|If the registry does not answer, no more IDs are issued).*\|Do what the row "registry" says\.$/,
	'IDs are issued still, for less than a minute');
wait_until('the lease has expired', sub { my ($all, %now) = status($leasing); return $now{lease} =~ /no IDs are issued/; });
%row = says($leasing, 'the lease has expired', 'critical critical ok ok ok', 'registry', qr/^critical\|.*: The registry cannot be asked; members of pg_monitor/, 'nobody');
like($row{lease}, qr/^critical\|The lease could not be renewed, and no IDs are issued for \d seconds? \(since .*\|Do what the row "registry" says/, 'no IDs');
start_with_clock($registry, 0);
wait_until('all is well again', sub { (status($leasing))[0] eq 'ok ok ok ok ok ok' });
$leasing->stop;
$leasing->append_conf('postgresql.conf', 'max_worker_processes = 0');
$leasing->start;
says($leasing, 'no keeper', 'critical critical critical ok ok', 'registry', qr/^critical\|The keeper does not run, .*\|.* raise max_worker_processes/);
is($leasing->safe_psql('postgres', q{SELECT see FROM snowflake_status() WHERE item = 'registry'}), 'docs/operations.md#keeper', 'the page has a row for that');
$leasing->stop;

# A lease that lasts for longer: there is time. A young one is short, by the registry's clock.
my $fresh = new_node('fresh', '');
start_with_clock($fresh, 0);
$fresh->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; SELECT snowflake_create_pool('long', '[8,9)', lease => '10 min', hold => '1 s', max_ahead => '0')});
my $long = new_node('long', 3);
$long->start;
$long->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; SELECT snowflake_nextval()');
$long->append_conf('postgresql.conf', sprintf "snowflake_id.registry = 'host=%s port=%d dbname=postgres'\nsnowflake_id.pool = 'long'", $fresh->host, $fresh->port);
$long->reload;
wait_until('the number is refused', sub { my ($all, %now) = status($long); return ($now{registry} // '') =~ /not in the pool/ });
%row = says($long, 'a number that the pool lacks', 'warning warning ok ok ok', 'worker ID',
	qr/^warning\|3, set on this server, and not granted by the registry from pool "long"\. From its next restart on, the server issues no IDs before it is\.\|Do what the row "registry" says\.$/);
like($row{registry}, qr/^warning\|The registry has granted nothing for .*: Worker ID 3 is not in the pool\.\|Set a "snowflake_id\.worker_id" of the pool, or none/, 'what to do');
like(slurp_file($long->logfile), qr/IDs are issued under worker ID 3 as without a registry; from the next restart on, none are issued until that is solved\./, 'the log says so too');
$long->append_conf('postgresql.conf', "snowflake_id.worker_id = ''");
$long->restart;
wait_until('a worker ID', sub { $long->safe_psql('postgres', 'SELECT worker_id FROM snowflake_worker') eq '8' });
set_clock($fresh, 600);
wait_until('a lease of minutes', sub { $long->safe_psql('postgres', q{SELECT bound > clock_timestamp() + interval '5 minutes' FROM snowflake_worker}) eq 't' });
$fresh->stop('immediate');
# Another keeper asks at once.
$long->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'snowflake_id keeper'});
wait_until('the registry is missed', sub { my ($all, %now) = status($long); return $now{registry} =~ /unreachable/; });
# The registry's clock was set on, so the two differ as well.
%row = says($long, 'the registry is stopped, and there is time', 'warning warning warning ok ok ok ok', 'lease',
	qr/^warning\|The registry has been unreachable for \d+ seconds? \(since .*\)\. IDs continue until .*, which is in \d minutes\.\|Do what the row "registry" says\.$/);
like($row{registry}, qr/^warning\|The registry has been unreachable for \d+ seconds? \(since .*\): Could not connect: /, 'why');
like(slurp_file($long->logfile), qr/WARNING:  snowflake_id: could not renew worker ID 8\n.*DETAIL:  The registry is .* IDs continue until .*, which is in \d+ min/, 'the log says at once how long');
$long->stop;

# IDs that are ahead of the clock reach the end of the lease before the clock does.
$registry->safe_psql('postgres', q{SELECT snowflake_create_pool('ahead', '[6,7)', lease => '1 min', hold => '1 s', max_ahead => '10 s')});
my $leading = new_node('leading', '');
$leading->append_conf('postgresql.conf', "snowflake_id.registry = '$conninfo'\nsnowflake_id.pool = 'ahead'");
$leading->start;
$leading->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
wait_until('IDs that are ahead', sub { !(error_of($leading, 'SELECT snowflake_nextval()'))[0] });
$registry->stop('immediate');
wait_until('no more IDs', sub { (error_of($leading, 'SELECT snowflake_nextval()'))[0] });
my ($all, %now) = status($leading);
like($now{lease}, qr/^critical\|No IDs are issued: the lease covers IDs of times before/, 'the row says so at once');
is($leading->safe_psql('postgres', 'SELECT bound > clock_timestamp() FROM snowflake_worker'), 't', 'while the lease has not ended by the clock');
$leading->stop;

# A server that only is the registry of others.
my $alone = new_node('alone', '');
start_with_clock($alone, 0);
$alone->safe_psql('postgres', q{CREATE EXTENSION snowflake_id; CREATE ROLE nobody LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor});
says($alone, 'before it has a pool', 'critical critical ok ok', 'worker ID', qr/^critical\|This server issues no IDs: it has no worker ID\./);
$alone->safe_psql('postgres', q{SELECT snowflake_create_pool('default', '[0,8)')});
says($alone, 'a registry', 'ok ok ok', 'registry', qr/^ok\|This server is a registry of worker IDs: servers have 0, and can get 8 more\. Its era is 1\.\|$/, 'monitor');
says($alone, 'a registry, for a role without rights', 'ok ok ok', 'registry', qr/^ok\|This server is a registry of worker IDs, whose state is shown to members of pg_monitor\.\|$/, 'nobody');
set_clock($alone, 86_400);
$alone->safe_psql('postgres', 'SELECT snowflake_declare_registry()');
says($alone, 'a registry that waits', 'warning ok ok', 'registry', qr/^warning\|This server is a registry of worker IDs, and gives no worker ID until .*, since it may have lost leases \(declared\)\. Its era is 2\.\|Wait/);
set_clock($alone, 0);
says($alone, 'a registry whose clock was wrong', 'warning ok ok', 'registry', qr/^warning\|.* Its clock was at .* once: a new pool begins there\./, 'monitor');
$alone->stop;

# Settings that give no number.
for my $registry_setting ("'$conninfo'", "''")
{
	$leading->append_conf('postgresql.conf', "snowflake_id.registry = $registry_setting\nsnowflake_id.worker_id = 'env NOTHING'");
	$leading->start;
	says($leading, 'no number', $registry_setting eq "''" ? 'critical critical ok ok' : 'critical critical critical ok ok', 'worker ID',
		qr/^critical\|.* Setting snowflake_id\.worker_id is "env NOTHING", which gives no number\.\|The log of the server's start says why/);
	$leading->stop;
}

done_testing();
