# Functions of the tests of managed/snowflake_sql.sql: servers without the library, in which
# role dbo, who is no superuser, owns database shop and installs the file.
package Managed;

use strict;
use warnings;
use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use Snowflake;

our @EXPORT = qw(stock_node install_file sql value_of refused load poll);

# The file is where the tests have been copied to, beside their folder.
my ($file) = grep { -e } map { "$FindBin::RealBin/$_/managed/snowflake_sql.sql" } qw(../../.. ../..);

# Makes and starts a server with a clock that the test can set. Options are those of init().
sub stock_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%options);
	$node->append_conf('postgresql.conf', "timezone = 'UTC'\nmax_connections = 60\nmax_prepared_transactions = 5\nlog_statement = none\nrestart_after_crash = on");
	start_with_clock($node, 0);
	die 'the library is loaded' if $node->safe_psql('postgres', 'SHOW shared_preload_libraries') ne '';
	$node->safe_psql('postgres', 'CREATE ROLE dbo LOGIN; CREATE ROLE app LOGIN; CREATE DATABASE shop OWNER dbo');
	return $node;
}

# Installs the file as a page says.
sub install_file
{
	my ($node, $database) = @_;
	my ($host, $port) = ($node->host, $node->port);
	my $error;
	return IPC::Run::run([ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-h', $host, '-p', $port, '-U', 'dbo', '-d', $database // 'shop', '-f', $file ],
		'>', \my $out, '2>', \$error) || die $error;
}

# Runs SQL as a role, with the schema in the path. Returns what psql prints.
sub sql
{
	my ($node, $sql, %options) = @_;
	my ($out, $error);
	my $code = $node->psql($options{database} // 'shop', "\\set VERBOSITY verbose\nSET search_path = " . ($options{path} // 'public, snowflake_sql') . ";\n$sql",
		stdout => \$out, stderr => \$error, on_error_stop => 1, extra_params => [ '-U', $options{role} // 'dbo' ]);
	die $error if $code != 0 && !$options{may_fail};
	return $options{may_fail} ? ($code, $error) : $out;
}

# Checks the SQLSTATE of an error, and what it says.
sub refused
{
	my ($node, $sql, $state, $like, %options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($code, $error) = sql($node, $sql =~ /^BEGIN/ ? $sql : "BEGIN; $sql", %options, may_fail => 1);
	like($error, qr/(?:ERROR|FATAL):  $state: .*$like/s, "$state: $sql");
	return;
}

# A column of the view for a generator.
sub value_of { my ($node, $name, $column, %options) = @_; return sql($node, "SELECT $column FROM snowflake_generators WHERE generator = '$name'::regclass", %options); }

# Starts pgbench as dbo with scripts, which are pairs of text and weight.
sub load
{
	my ($node, $arguments, @scripts) = @_;
	my ($count, @files) = (0);
	while (my ($text, $weight) = splice @scripts, 0, 2)
	{
		our $number;
		my $name = PostgreSQL::Test::Utils::tempdir() . '/script' . ++$number . '.sql';
		append_to_file($name, $text);
		push @files, '-f', "$name\@$weight";
	}
	my %where = (-h => $node->host, -p => $node->port, %{ ref $arguments->[0] ? shift @$arguments : {} });
	my ($out, $error) = ('', '');
	my $run = IPC::Run::start([ 'pgbench', '-n', '-U', 'dbo', %where, @$arguments, @files, 'shop' ], '<', \'', '>', \$out, '2>', \$error);
	return { run => $run, out => \$out, error => \$error };
}

# Calls a function until the load has ended; returns whether it ended well.
sub poll
{
	my ($load, $function) = @_;
	while ($load->{run}->pumpable) { $load->{run}->pump_nb; $function->(); }
	return $load->{run}->finish;
}

1;
