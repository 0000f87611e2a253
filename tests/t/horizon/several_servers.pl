# Tests the program of docs/ordered.md that reads new rows of several servers: it prints each
# committed row once, while writers on three servers commit in any order, a transaction stays open,
# and one of the servers crashes. The same program with one position for all servers misses rows.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Pages;
use Snowflake;

my $page = slurp_file("$FindBin::RealBin/../../../docs/ordered.md");
my ($section) = $page =~ /^## Several servers\n(.*?)^##/ms or die 'no such section';
my ($program, @more) = map { $_->{text} } grep { $_->{language} eq 'sh' } blocks($section);
ok(defined $program && !@more, 'the section has one program');
my ($made) = map { $_->{text} } grep { $_->{language} eq 'sql' && $_->{text} =~ /CREATE TABLE outbox/ } blocks($page);
my ($tables) = $made =~ /(CREATE TABLE outbox.*?\);\nCREATE TABLE cursors .*?\n)/s or die $made;

# The servers of the program.
my %nodes;
my $services = '';
for my $worker (1 .. 3)
{
	my $node = $nodes{"db$worker"} = new_node("db$worker", $worker);
	$node->append_conf('postgresql.conf', 'log_min_messages = fatal');
	$node->start;
	$node->safe_psql('postgres', "CREATE EXTENSION snowflake_id; $tables INSERT INTO cursors VALUES ('mailer', 0), ('one', 0)");
	$services .= sprintf "[db%d]\nhost=%s\nport=%s\ndbname=postgres\n", $worker, $node->host, $node->port;
}
my $folder = PostgreSQL::Test::Utils::tempdir();
append_to_file("$folder/services", $services);
append_to_file("$folder/one", "0\n");
local $ENV{PGSERVICEFILE} = "$folder/services";

# One position for all servers: that which the last one has come to.
my $one = $program =~ s/^SELECT upto AS last .*$/\\set last `cat $folder\/one`/mr
  =~ s/^UPDATE cursors .*$/\\o $folder\/next\n\\qecho :horizon\n\\o/mr . "\nmv $folder/next $folder/one\n";
is(scalar(() = $one =~ /$folder/g), 4, 'the program with one position');

# The IDs that a run of a program prints; it need not reach all servers.
sub run_program
{
	my ($text) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'bash', '-c', $text ], '>', \$out, '2>', \$err);
	my @ids = $out =~ /^(\d+)\|/mg;
	return @ids;
}

# Writers: pgbench, whose transactions take different times.
append_to_file("$folder/short.sql", "INSERT INTO outbox (payload) VALUES ('{}');\n\\sleep 2 ms\n");
append_to_file("$folder/long.sql", "\\set wait random(1, 300)\nBEGIN;\nINSERT INTO outbox (payload) VALUES ('{}');\n\\sleep :wait ms\n"
	. "INSERT INTO outbox (payload) VALUES ('{}');\nCOMMIT;\n");
my $end = time + 12;
my %writers;
sub write_to
{
	my ($node) = @_;
	my $lasts = int($end - time) || 1;
	my ($out, $err) = ('', '');
	$writers{ $node->name } = IPC::Run::start([ 'pgbench', '-n', '-c', 4, '-T', $lasts, '-f', "$folder/short.sql", '-f', "$folder/long.sql\@3", $node->connstr('postgres') ],
		'>', \$out, '2>', \$err);
	return;
}
write_to($_) for values %nodes;

# A transaction that stays open for most of the time, on one server.
my $open = session($nodes{db1});
$open->query_safe(q{BEGIN; INSERT INTO outbox (payload) VALUES ('{"open": true}')});

my (%seen, %seen_by_one);
my ($runs, $twice, $disorder) = (0, 0, 0);
sub consume
{
	my @ids = run_program($program);
	$runs++;
	$twice += $seen{$_}++ ? 1 : 0 for @ids;
	$disorder++ if "@ids" ne join ' ', sort { $a <=> $b } @ids;
	$seen_by_one{$_}++ for run_program($one);
	return;
}
my $is_down = 0;
while (time < $end)
{
	consume();
	if ($end - time < 7 && !$is_down++)
	{
		# Without this server, rows of the others come.
		$nodes{db2}->stop('immediate');
		my $before = keys %seen;
		consume() for 1 .. 3;
		cmp_ok(scalar keys %seen, '>', $before, 'rows of the other servers come while one is down');
		$nodes{db2}->start;
		eval { $writers{db2}->finish };
		write_to($nodes{db2});
	}
	if ($open && $end - time < 3)
	{
		$open->query_safe('COMMIT');
		$open->quit;
		undef $open;
	}
}
eval { $_->finish } for values %writers;
sleep 0.1;
consume();

my (%rows, $missed, $missed_by_one);
for my $name (sort keys %nodes)
{
	my @ids = split /\n/, $nodes{$name}->safe_psql('postgres', 'SELECT id FROM outbox');
	cmp_ok(scalar @ids, '>', 100, "rows of $name");
	$rows{$_} = $name for @ids;
}
$missed = grep { !$seen{$_} } keys %rows;
$missed_by_one = grep { !$seen_by_one{$_} } keys %rows;
note(scalar(keys %rows), " rows, $runs runs; with one position, $missed_by_one rows are missed");
is($missed, 0, 'no row is missed');
is($twice, 0, 'none comes twice');
is(scalar(grep { !$rows{$_} } keys %seen), 0, 'none that was not committed');
is($disorder, 0, 'the rows of a run are in the order of their IDs');
cmp_ok($missed_by_one, '>', 0, 'with one position for all servers, rows are missed');
done_testing();
