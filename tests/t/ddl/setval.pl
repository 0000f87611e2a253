# Tests values that a user sets a generator's sequence to. After a value that is too
# low, no ID is issued twice. A value that is no mark is healed by a running generator;
# a generator that starts tells such a value from a wrong clock.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time sleep);

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "snowflake_id.debug_slots = 1\nsnowflake_id.reserve_ahead = '100 ms'\n"
	  # The IDs of a generator whose mark was set stay near the clock.
	  . "snowflake_id.failover_gap = 0");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob;
	CREATE SCHEMA hers AUTHORIZATION alice;
	SELECT snowflake_create_generator(name, 'preset=default') FROM unnest('{a,b,c}'::text[]) AS name});
sub sql { return $node->safe_psql('postgres', $_[0]); }

# The mark is lowered between two uses of a generator that gives its slot to others
# meanwhile. The mark is so far ahead that the clock does not reach it in time.
sql(q{SELECT snowflake_advance('a', now() + interval '10 s')});
my $most = sql(q{SELECT max(snowflake_nextval('a')) FROM generate_series(1, 200000)});
sql(q{SELECT setval('a', (extract(epoch FROM clock_timestamp()) * 1000)::bigint)});
sql("SELECT snowflake_nextval('$_')") for 'b', 'c';
my $least = sql(q{SELECT min(snowflake_nextval('a')) FROM generate_series(1, 1000)});
cmp_ok($least, '>', $most, 'a mark was lowered, others were used: IDs go on above the former ones');

# A column owns each generator: one has the default generator's layout, one has another.
my %table = (plain => 'preset=default', chat => 'preset=discord');
for my $name (sort keys %table)
{
	sql(qq{SET ROLE alice;
		SELECT snowflake_create_generator('hers.${name}_ids', '$table{$name}');
		CREATE TABLE hers.$name (id bigint PRIMARY KEY DEFAULT snowflake_nextval('hers.${name}_ids'));
		ALTER SEQUENCE hers.${name}_ids OWNED BY hers.$name.id;
		INSERT INTO hers.$name SELECT FROM generate_series(1, 10)});
}

# Sets the sequence as people set that of a serial column.
sub set_to
{
	my ($name, $what) = @_;
	my $value = $what eq 'ID' ? 'max(id)' : '1234';
	return sql("SET ROLE alice; SELECT setval(pg_get_serial_sequence('hers.$name', 'id'), $value) FROM hers.$name");
}

# Resets the generator, whatever an earlier case has left.
sub afresh
{
	my ($name) = @_;
	sql("SELECT setval('hers.${name}_ids', (extract(epoch FROM clock_timestamp()) * 1000)::bigint)");
	$node->restart;
	sql("SET ROLE alice; INSERT INTO hers.$name DEFAULT VALUES");
	return sql("SELECT max(id) FROM hers.$name");
}

# Returns the name of a case in messages.
sub case_of { my ($name, $what) = @_; return $name . ($what eq 'ID' ? ', an ID' : ', a count'); }

# Returns how many seconds the value of the sequence, taken for a mark, is ahead of the
# clock.
sub mark_ahead
{
	my ($name) = @_;
	return sql("SELECT last_value / 1000.0 - extract(epoch FROM clock_timestamp()) FROM hers.${name}_ids");
}

# A running generator knows its last ID, and its next reservation heals the mark.
for my $name (sort keys %table)
{
	for my $what ('ID', 'count')
	{
		my $of = case_of($name, $what);
		$most = afresh($name);
		my $session = session($node, 'alice');
		my $set = set_to($name, $what);
		is(sql("SELECT problem FROM snowflake_generators WHERE generator = 'hers.${name}_ids'::regclass"), '',
			"$of: no problem, since it will be healed");
		my ($code, $text) = ('', '');
		# This waits for several reservations; no other generator is used meanwhile, so
		# that this one keeps its slot.
		my $until = time + 0.5;
		wait_until("$of: healed", sub {
			($code, $text) = error_in($session, "INSERT INTO hers.$name DEFAULT VALUES");
			return $code ne '' || time > $until && sql("SELECT last_value FROM hers.${name}_ids") ne $set });
		is($code, '', "$of: a generator that runs goes on") or diag $text;
		between(mark_ahead($name), -5, 10, "$of: its mark is an instant near the clock again");
		my $lead = sql("SELECT extract(epoch FROM snowflake_timestamp(max(id), 'hers.${name}_ids') - clock_timestamp()) FROM hers.$name");
		between($lead, -5, 10, "$of: its IDs are near the clock");
		cmp_ok(sql("SELECT min(id) FROM (SELECT id FROM hers.$name ORDER BY id DESC LIMIT 3) AS t"), '>', $most, "$of: above the former ones");
		is(sql("SELECT problem FROM snowflake_generators WHERE generator = 'hers.${name}_ids'::regclass"), '', "$of: no problem");
		$session->quit;
	}
}

# After a start the server does not know the last ID. The error says what the sequence
# holds and what to do, and does not blame the clock.
my $superuser = 0;
for my $name (sort keys %table)
{
	for my $what ('ID', 'count')
	{
		my $of = case_of($name, $what);
		$most = afresh($name);
		set_to($name, $what);
		$node->stop($what eq 'ID' ? 'fast' : 'immediate');
		$node->start;
		my ($code, $text) = error_of($node, "SET ROLE alice; INSERT INTO hers.$name DEFAULT VALUES");
		is($code, '55000', "$of: a start is refused") or diag $text;
		my $said = $what eq 'ID' ? qr/\ban ID\b.*\bno mark\b/ : qr/\ba count\b.*\bno mark\b/;
		like($text, qr/ERROR:.*$said/, "$of: it says what the sequence holds");
		unlike($text, qr/clock/i, "$of: it does not talk of clocks");
		my $problem = sql("SELECT problem FROM snowflake_generators WHERE generator = 'hers.${name}_ids'::regclass");
		like($problem, $said, "$of: the view says so too");
		unlike($problem, qr/clock/i, "$of: nor does it talk of clocks");
		is(sql("SET ROLE bob; SELECT problem FROM snowflake_generators WHERE generator::text = 'hers.${name}_ids'"),
			'', "$of: it does not tell a role without privileges what the sequence holds");
		my ($statement) = $text =~ /HINT:.*?(SELECT setval\('[^']+', \d{13}\))/s;
		ok(defined $statement, "$of: the hint has the statement that helps") or diag $text;
		next if !defined $statement;
		# Either the superuser or the owner runs the statement.
		$superuser = !$superuser;
		is((error_of($node, ($superuser ? '' : 'SET ROLE alice; ') . $statement))[0], '', "$of: $statement");
		is((error_of($node, "SET ROLE alice; INSERT INTO hers.$name SELECT FROM generate_series(1, 5)"))[0], '', "$of: it issues again");
		is(sql("SELECT count(*) FROM hers.$name WHERE id > $most"), '5', "$of: above all former IDs");
		between(mark_ahead($name), -5, 60, "$of: its mark is an instant near the clock again");
	}
}

$node->stop;
done_testing();
