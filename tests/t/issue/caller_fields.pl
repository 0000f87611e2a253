# Tests fields that the caller gives: whatever their values, no position is issued
# twice, by sessions at once, after a crash, and after a change of the label.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');
my $label = q{layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=2025-01-01Z};
create_generator($node, 'ticket_ids', $label);

# Returns the IDs of one session without their tenant, in the order in which the session
# got them: a position and the worker ID are left.
my $call = q{snowflake_nextval('ticket_ids', jsonb_build_object('tenant', (random() * 1023)::int))};
my $bare = q{& ~(1023::bigint << 12)};

sub issuer
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $sql ], '>', \$out, '2>', \$err);
	return sub {
		ok($run->finish, 'session ended well') or diag $err;
		return [ split /\n/, $out ];
	};
}

sub at_once
{
	my ($count) = @_;
	my @sessions = map {
		issuer($_ % 2
			? "SELECT $call $bare FROM generate_series(1, $count)"
			: "SELECT snowflake_nextval('ticket_ids', '{\"tenant\": $_}') $bare FROM generate_series(1, $count)")
	} 1 .. 6;
	return map { $_->() } @sessions;
}

my @lists = at_once(20_000);
check_ids('six sessions', @lists);

# Single statements run as transactions of their own, beside calls that are refused.
my $session = session($node);
my @singles;
for my $n (1 .. 50)
{
	push @singles, $session->query_safe("SELECT snowflake_nextval('ticket_ids', '{\"tenant\": $n}') $bare");
	error_in($session, $_) or fail('it is not refused')
	  for "SELECT snowflake_nextval('ticket_ids')", "SELECT snowflake_nextval('ticket_ids', '{\"tenant\": 1024}')";
}
check_ids('after refused calls', \@singles);
$session->quit;
my ($code, $text) = error_of($node, "SELECT snowflake_nextval('ticket_ids', '{\"tenant\": 1}'); SELECT snowflake_nextval('ticket_ids')");
is($code, '22023', 'plain calls are refused');
($code, $text) = error_of($node, "BEGIN; SELECT snowflake_nextval('ticket_ids', '{\"tenant\": 1}'); SELECT snowflake_nextval('ticket_ids')");
is($code, '22023', 'also where the transaction has issued IDs');
like($text, qr/\QSELECT snowflake_nextval('ticket_ids', '{"tenant": 0}')\E/, 'the error says the call to make');

$node->stop('immediate');
$node->start;
push @lists, \@singles, at_once(5_000);
check_ids('after a crash', @lists);

# The label gets another policy with the same fields; other fields are refused.
$node->safe_psql('postgres', "SECURITY LABEL FOR snowflake_id ON SEQUENCE ticket_ids IS \$\$$label on_rollback=wait max_borrow='1 s'\$\$");
push @lists, at_once(5_000);
check_ids('by another policy', @lists);
for my $other ('tenant:10=5', 'tenant:10', 'tenant:4=caller rack:6=caller shelf:1=0', 'tenant:10=caller shelf:1=0')
{
	my $layout = $label =~ s/tenant:10=caller/$other/r;
	($code) = error_of($node, "SECURITY LABEL FOR snowflake_id ON SEQUENCE ticket_ids IS \$\$$layout\$\$");
	is($code, '55000', "the caller's field does not become $other");
}

# A dump carries the label, as for all generators.
my ($dump) = run_command([ 'pg_dump', '-d', $node->connstr('postgres') ]);
like($dump, qr/tenant:10=caller/, 'pg_dump has the label');

done_testing();
