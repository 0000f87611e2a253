# Tests blocks of consecutive IDs that many sessions take beside single IDs: no ID
# belongs to two of them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 5);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $epoch = 'epoch=1735689600000';
my %generator = (
	snowflake_default => undef,
	small => "layout='time:41 worker:10 sequence:6' $epoch",
	waiting => "layout='time:41 clock:4 worker:8 sequence:8' $epoch on_rollback=next_clock max_borrow=0",
	bursting => "layout='time:41 clock:4 worker:8 sequence:6' $epoch on_rollback=next_clock on_exhausted=next_clock");
for my $name (sort keys %generator)
{
	create_generator($node, $name, $generator{$name}) if $generator{$name};
	my $largest = { snowflake_default => 4033 }->{$name};
	if (!defined $largest)
	{
		my (undef, $text) = error_of($node, "SELECT snowflake_nextval_block(100000, '$name')");
		($largest) = $text =~ /has 1 to (\d+) IDs/ or die $text;
	}
	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS taken; CREATE TABLE taken (first bigint, number int)');
	my @scripts;
	for my $number (1, 7, $largest)
	{
		my $script = $node->basedir . "/$name.$number.sql";
		append_to_file($script, "INSERT INTO taken SELECT snowflake_nextval_block($number, '$name'), $number FROM generate_series(1, 50);\n");
		push @scripts, '-f', $script;
	}
	my $single = $node->basedir . "/$name.sql";
	append_to_file($single, "INSERT INTO taken SELECT snowflake_nextval('$name'), 1 FROM generate_series(1, 50);\n");
	$node->command_ok([ 'pgbench', '-n', '-c', 6, '-j', 2, '-t', 20, '-f', $single, @scripts, 'postgres' ],
		"$name: sessions at once");
	is($node->safe_psql('postgres', q{
		SELECT count(*), count(*) FILTER (WHERE next < first + number) FROM (
			SELECT first, number, lead(first) OVER (ORDER BY first) AS next FROM taken) AS s}),
		'6000|0', "$name: no ID is of two of them");
	is($node->safe_psql('postgres', qq{
		SELECT count(*) FROM taken, snowflake_decode(first, '$name') AS f, snowflake_decode(first + number - 1, '$name') AS l
		WHERE f.fields - 'sequence' <> l.fields - 'sequence'}), '0', "$name: each is of one tick");
}

# A crash takes no block back.
my $before = $node->safe_psql('postgres', 'SELECT snowflake_nextval_block(1000) FROM generate_series(1, 200)');
$node->stop('immediate');
$node->start;
my $last = (split /\n/, $before)[-1];
cmp_ok($node->safe_psql('postgres', 'SELECT snowflake_nextval()'), '>=', $last + 1000, 'after a crash, above the last block');

# Beside a batch that is being fetched, the IDs of a session ascend.
is($node->safe_psql('postgres', q{
	SELECT count(*), bool_and(first > id AND id > before) FROM (
		SELECT id, first, lag(first + 9, 1, 0::bigint) OVER (ORDER BY n) AS before FROM (
			SELECT snowflake_nextval_batch(100) AS id, snowflake_nextval_block(10) AS first, generate_series(1, 100) AS n) AS s) AS t}),
	'100|t', 'a batch and blocks');

done_testing();
