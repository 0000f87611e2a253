# Measures how many requests a registry of worker IDs in PostgreSQL answers in a second: pgbench
# plays the keepers of 1,000 servers of each of several roles. Prints the table of
# docs/performance.md. tests/run bench_registry starts it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Registry;
use Snowflake;
use Time::HiRes qw(time);

# A role can have 1,024 servers.
my $of_role = 1_000;
my ($seconds, $roles) = $ENV{QUICK} ? (2, 1) : (10, 4);
my $node = new_node('registry', 7);
# The settings of a test are those of no server in use.
$node->append_conf('postgresql.conf', join "\n", "shared_buffers = '256MB'", "max_wal_size = '4GB'", 'fsync = on',
	'log_statement = none', 'log_connections = off', 'log_disconnections = off', 'max_connections = 100', 'commit_siblings = 0', '');
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	SELECT snowflake_create_pool('main', '[0,20000)');
	CREATE SEQUENCE servers;
	CREATE TABLE grants (n int PRIMARY KEY, reply jsonb, request jsonb);
	GRANT ALL ON servers, grants TO PUBLIC});

my $folder = PostgreSQL::Test::Utils::tempdir();
# What replaces the parts of a request that differ.
my $template = request(server(0), { acquire => {} });
$template =~ s/"nonce":"\w+"/"nonce":"%2\$s"/ or die $template;
$template =~ s/"inode":\d+/"inode":%1\$s/ or die $template;
append_to_file("$folder/acquire.sql", qq{
SELECT nextval('servers') AS server \\gset
INSERT INTO grants SELECT :server::bigint, _snowflake.lease('main', format('$template', :server::bigint, lpad(:server::bigint::text, 32, 'a'))::jsonb)
});
# Clients renew for different servers. A number of a request is greater than those before. Whoever
# gets no renewal divides by zero, which ends the run.
append_to_file("$folder/renew.sql", q{
\set n :first + :client_id + :clients * random(0, 1000 / :clients - 1)
SELECT 1 / (_snowflake.lease('main', request || jsonb_build_object('number', (t.at * 1000)::bigint, 'clock', t.at::bigint)) #> '{answer,renewed}' IS NOT NULL)::int
FROM grants CROSS JOIN (SELECT extract(epoch FROM clock_timestamp()) * 1000) AS t (at) WHERE n = :n::integer
});

# Runs pgbench as a role. Returns the transactions of a second.
sub per_second
{
	my ($role, @options) = @_;
	my ($out, $err) = run_command([ 'pgbench', '-n', '-U', $role, '-j', 2, @options, $node->connstr('postgres') ]);
	my ($rate) = $out =~ /^tps = ([\d.]+) \(without/m or die "$out$err";
	die "$out$err" if $err =~ /error/;
	return sprintf '%.0f', $rate;
}

sub renewals
{
	my ($role, $first) = @_;
	return map { per_second($role, '-M', 'prepared', '-c', $_, '-T', $seconds, '-D', "first=$first", '-D', "clients=$_", '-f', "$folder/renew.sql") } 1, 8, 32;
}

my @lines;
for my $number (1 .. $roles)
{
	my $role = "node$number";
	$node->safe_psql('postgres', "CREATE ROLE $role LOGIN; SELECT snowflake_create_registry('$role')");
	my @acquire = ($role, '-c', 4, '-f', "$folder/acquire.sql");
	per_second(@acquire, '-t', $of_role / 4 - 50);
	my $grants = per_second(@acquire, '-t', 50);
	next if $number != 1 && $number != $roles;
	my $first = $of_role * ($number - 1) + 1;
	# A request to renew, but for its number and the server's clock.
	$node->safe_psql('postgres', qq{
		UPDATE grants SET request = (format('$template', n, lpad(n::text, 32, 'a'))::jsonb
			|| jsonb_build_object('memory', reply -> 'memory', 'ask', jsonb_build_object('renew', (reply #> '{answer,granted}')
				|| jsonb_build_object('furthest', reply #> '{answer,granted,floor}'))))
		WHERE n >= $first;
		VACUUM ANALYZE});
	my $servers = $of_role * $number;
	push @lines, "| $servers servers | " . join(' | ', renewals($role, $first), $grants) . " |\n";
	# A disk that needs longer for a flush.
	$node->safe_psql('postgres', q{ALTER SYSTEM SET commit_delay = 2000});
	$node->reload;
	push @lines, "| $servers servers, a flush takes 2 ms longer | " . join(' | ', renewals($role, $first), '') . " |\n";
	$node->safe_psql('postgres', q{ALTER SYSTEM RESET commit_delay});
	$node->reload;
}
$node->stop;

open my $report, '>', "$ENV{TESTDIR}/report" or die $!;
print {$report} "| renewals a second; number of clients: | 1 | 8 | 32 | grants a second, 4 clients |\n|---|---|---|---|---|\n", @lines;
close $report or die $!;
