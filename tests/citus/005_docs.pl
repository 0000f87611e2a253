# Tests that the statements in docs/citus.md run as they are, in their order, and do what
# the page says.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;
use Citus;

my ($coordinator, @workers) = citus_cluster(2);
$coordinator->safe_psql('postgres', 'DROP EXTENSION snowflake_id');
my $page = slurp_file("$FindBin::RealBin/../../docs/citus.md");
my @blocks = $page =~ /^```text\n(.*?)^```$/msg;
is(@blocks, 6, 'blocks of statements');
my $late;
for my $block (@blocks)
{
	if ($block =~ /FROM snowflake_generators/)
	{
		$late = citus_node('late', 4);
		add_worker($coordinator, $late);
		$coordinator->safe_psql('postgres', "SELECT snowflake_create_generator('free_ids', 'preset=sonyflake')");
	}
	my ($out, $err);
	my $status = $coordinator->psql('postgres', $block, stdout => \$out, stderr => \$err, on_error_stop => 1);
	is($status, 0, $block) or diag $err;
	nothing_is_found($coordinator, 'after the first table') if $block =~ /check_cluster/;
	is(() = $out =~ /\brelabelled$/mg, 3, 'relabelled on all nodes') if $block =~ /max_rollback/;
	like($err, qr/NOTICE:  table public\.invoices is undistributed/, 'said') if $block =~ /set_default/;
	like($out, qr/^free_ids\|\S+\|created$/m, 'brought to the worker') if $late;
}
for my $node ($coordinator, @workers, $late)
{
	for my $insert ("customers (name) VALUES ('a')", 'orders (customer) VALUES (1)', 'orders (customer) SELECT customer FROM orders', 'invoices (amount) VALUES (1)')
	{
		my ($code, $text) = error_of($node, "INSERT INTO $insert");
		is($code, '', $node->name . " inserts into $insert") or diag $text;
	}
	my ($code, $text) = error_of($node, "SELECT snowflake_nextval('free_ids')");
	is($code, '', $node->name . ' issues') or diag $text;
}
nothing_is_found($coordinator, 'at the end');

done_testing();
