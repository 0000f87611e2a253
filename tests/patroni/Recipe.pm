# Runs the lines of docs/patroni.md on a cluster of a test: hosts and folders are put into
# them, and nothing else is changed.
package Recipe;

use strict;
use warnings;
use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;
use Leases;
use Snowflake;

our @EXPORT = qw(registry set_up_leases set_up_numbers set_local_number install_check);

# Returns the block of the page below a heading, the first that matches a pattern.
sub block
{
	my ($heading, $pattern) = @_;
	my ($section) = slurp_file("$FindBin::RealBin/../../docs/patroni.md") =~ /^## \Q$heading\E\n(.*?)(?=^## |\z)/ms or die "no section $heading";
	for ($section =~ /^```\w*\n(.*?)^```$/msg) { return $_ if /$pattern/; }
	die "no block $pattern in $heading";
}

# The registry of the servers that lease: Patroni's etcd, or with REGISTRY=postgresql a server of
# its own.
my $own;
sub registry
{
	my ($cluster) = @_;
	return $cluster->etcd if ($ENV{REGISTRY} // '') ne 'postgresql';
	return $own //= new_registry('registry', q{'default', '[0,1024)'});
}

# Puts the URL of the test's etcd, or the conninfo of its registry, into lines of the page.
sub at_hosts
{
	my ($cluster, $lines, $quote) = @_;
	my $url = conninfo(registry($cluster));
	die 'no such address' if $lines =~ /etcd:/ && $lines !~ s{etcd://e1,e2,e3}{$quote$url$quote};
	return $lines;
}

# Runs lines of the page that call patronictl, with the configuration of a member.
sub run_shell
{
	my ($cluster, $lines) = @_;
	return $cluster->shell(at_hosts($cluster, $lines, q{'}));
}

# Runs the lines of a section that change the configuration, and then its restart.
sub configure
{
	my ($cluster, $heading) = @_;
	run_shell($cluster, block($heading, 'edit-config'));
	wait_until('all wait for a restart', sub { my (undef, $out) = $cluster->ctl('list shop'); return 3 == (() = $out =~ /\| \*/g) });
	run_shell($cluster, block($heading, '^patronictl restart'));
	return $cluster->wait_until_whole;
}

# Writes the command of the page to a file, and returns its path.
sub install_check
{
	my ($cluster) = @_;
	my $file = "$cluster->{folder}/check_worker_id";
	if (!-e $file)
	{
		append_to_file($file, block('A check before each promotion', '^#!/bin/sh'));
		chmod 0755, $file or die "$file: $!";
	}
	return $file;
}

# Gives a member the lines of the page, with this number in the parameters, or none, and
# its own number in the check.
sub set_local_number
{
	my ($cluster, $name, $number) = @_;
	my $own = $name =~ s/pg//r;
	my $file = install_check($cluster);
	my $lines = block('A number for each member', 'pre_promote:') =~ s/^postgresql:\n//r =~ s/^  //gmr;
	my ($this, @others) = map { $cluster->conninfo($_) } $name, $cluster->others($name);
	my $list = join ' ', map { "'$_'" } $this, @others;
	$lines =~ s{/etc/patroni/check_worker_id 1 .*}{$file $own $list} or die 'no check';
	$number ne '' ? $lines =~ s/worker_id: 1$/worker_id: $number/m : $lines =~ s/^  snowflake_id.worker_id: 1\n//m or die 'no number';
	$cluster->set_local($name, $lines);
	return;
}

# A table with IDs, and one without.
sub create_tables
{
	my ($cluster, $leader) = @_;
	return $cluster->sql($leader, 'CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), writer text, number bigint,
		port int DEFAULT inet_server_port()); CREATE TABLE plain (writer text)');
}

sub set_up_leases
{
	my ($cluster) = @_;
	my $heading = 'Leases from the etcd of Patroni';
	my $leader = configure($cluster, $heading);
	# A registry in a database has its pool already.
	for my $line (split /\n/, block($heading, 'CREATE EXTENSION'))
	{
		$cluster->sql($leader, at_hosts($cluster, $line, '')) if $line =~ /CREATE EXTENSION/ || !$own;
	}
	run_shell($cluster, block($heading, 'snowflake_id.registry'));
	create_tables($cluster, $leader);
	wait_until('the leader has its worker ID', sub { return $cluster->sql($leader, 'SELECT worker_id IS NOT NULL FROM snowflake_worker') eq 't' });
	return;
}

# Gives each member the lines of the page, which are those of pg1, with its number.
sub set_up_numbers
{
	my ($cluster) = @_;
	my $heading = 'A number for each member';
	install_check($cluster);
	set_local_number($cluster, $_, s/pg//r) for $cluster->names;
	my $leader = configure($cluster, $heading);
	my $sql = block($heading, 'CREATE EXTENSION');
	$cluster->sql($leader, $sql);
	create_tables($cluster, $leader);
	return;
}

1;
