# A value that a user sets the sequence of a generator to: one that is too low
# repeats nothing, and one that is no mark at all is healed by a generator that
# runs, and told from a clock that is wrong by one that starts.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Time::HiRes qw(time sleep);

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', "snowflake_id.max_generators = 1\nsnowflake_id.reserve = '100 ms'");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE ROLE alice LOGIN;
	CREATE SCHEMA hers AUTHORIZATION alice;
	SELECT snowflake_create_generator(name, 'preset=default') FROM unnest('{a,b,c}'::text[]) AS name});
sub sql { return $node->safe_psql('postgres', $_[0]); }

# A mark that is lowered between two uses of a generator, which gives its place to
# others meanwhile. Far enough ahead that the clock is not there in time.
sql(q{SELECT snowflake_advance('a', now() + interval '10 s')});
my $most = sql(q{SELECT max(snowflake_nextval('a')) FROM generate_series(1, 200000)});
sql(q{SELECT setval('a', (extract(epoch FROM clock_timestamp()) * 1000)::bigint)});
sql("SELECT snowflake_nextval('$_')") for 'b', 'c';
my $least = sql(q{SELECT min(snowflake_nextval('a')) FROM generate_series(1, 1000)});
cmp_ok($least, '>', $most, 'a mark was lowered, others were used: IDs go on above the former ones');

# Generators that a column owns: the default one's layout, and another one.
my %table = (plain => 'preset=default', chat => 'preset=discord');
for my $name (sort keys %table)
{
	sql(qq{SET ROLE alice;
		SELECT snowflake_create_generator('hers.${name}_ids', '$table{$name}');
		CREATE TABLE hers.$name (id bigint PRIMARY KEY DEFAULT snowflake_nextval('hers.${name}_ids'));
		ALTER SEQUENCE hers.${name}_ids OWNED BY hers.$name.id;
		INSERT INTO hers.$name SELECT FROM generate_series(1, 10)});
}

# What people set the sequence of a serial column to.
sub set_to
{
	my ($name, $what) = @_;
	my $value = $what eq 'ID' ? 'max(id)' : '1234';
	return sql("SET ROLE alice; SELECT setval(pg_get_serial_sequence('hers.$name', 'id'), $value) FROM hers.$name");
}

# An earlier case leaves nothing behind, however it went.
sub afresh
{
	my ($name) = @_;
	sql("SELECT setval('hers.${name}_ids', (extract(epoch FROM clock_timestamp()) * 1000)::bigint)");
	$node->restart;
	sql("SET ROLE alice; INSERT INTO hers.$name DEFAULT VALUES");
	return sql("SELECT max(id) FROM hers.$name");
}

# What a case is called in messages.
sub case_of { my ($name, $what) = @_; return $name . ($what eq 'ID' ? ', an ID' : ', a count'); }

# How many seconds what the sequence holds is ahead of the clock, taken for a mark.
sub mark_ahead
{
	my ($name) = @_;
	return sql("SELECT last_value / 1000.0 - extract(epoch FROM clock_timestamp()) FROM hers.${name}_ids");
}

# It runs: it knows how far it is, and its next reservation puts that back.
for my $name (sort keys %table)
{
	for my $what ('ID', 'count')
	{
		my $of = case_of($name, $what);
		$most = afresh($name);
		my $session = session($node, 'alice');
		my $set = set_to($name, $what);
		is((error_of($node, 'SELECT count(*) FROM snowflake_generators'))[0], '', "$of: the view can be read");
		my ($code, $text) = ('', '');
		# Past several reservations; nobody else uses a generator meanwhile, so that it
		# keeps its place.
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

# It does not: then nothing tells how far it was. It says what the sequence holds and
# what to do, and does not blame the clock.
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
		unlike(sql("SELECT problem FROM snowflake_generators WHERE generator = 'hers.${name}_ids'::regclass"),
			qr/clock/i, "$of: nor does the view");
		my ($statement) = $text =~ /HINT:.*?(SELECT setval\('[^']+', \d{13}\))/s;
		ok(defined $statement, "$of: the hint has the statement that helps") or diag $text;
		next if !defined $statement;
		# By either of those who may.
		$superuser = !$superuser;
		is((error_of($node, ($superuser ? '' : 'SET ROLE alice; ') . $statement))[0], '', "$of: $statement");
		is((error_of($node, "SET ROLE alice; INSERT INTO hers.$name SELECT FROM generate_series(1, 5)"))[0], '', "$of: it issues again");
		is(sql("SELECT count(*) FROM hers.$name WHERE id > $most"), '5', "$of: above all former IDs");
		between(mark_ahead($name), -5, 60, "$of: its mark is an instant near the clock again");
	}
}

$node->stop;
done_testing();
