# Tests where a worker ID may come from under Patroni and where not, and the check before a
# promotion: it finds a number that another member has, none, a wrong one, and one that a
# copy has brought along; Patroni then promotes another member.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t/lib";
use IPC::Run;
use Test::More;
use Patroni;
use Recipe;
use Snowflake;

my $cluster = Patroni->new;
set_up_numbers($cluster);
sub workers { return join ' ', map { $cluster->sql($_, 'SELECT worker_id FROM snowflake_worker') } $cluster->names; }
is(workers(), '1 2 3', 'each has its own');
$cluster->switchover;
my $leader = $cluster->wait_until_whole;

# The check, as Patroni would run it on a standby.
my ($standby) = $cluster->others($leader);
my $own = $standby =~ s/pg//r;
my $number = $leader =~ s/pg//r;
sub check
{
	my ($name) = @_;
	my @all = map { $cluster->conninfo($_) } $name, $cluster->others($name);
	my $error = '';
	my $went_well = IPC::Run::run([ install_check($cluster), $name =~ s/pg//r, @all ], '<', \'', '>', \my $out, '2>', \$error);
	return $went_well ? 'promotion' : $error;
}
sub configure_member
{
	my ($name, $number) = @_;
	set_local_number($cluster, $name, $number);
	$cluster->ctl("reload shop $name --force");
	restart($name);
	return;
}
# A member restarts with what it has read: it must have read it first.
sub restart
{
	my (@names) = @_;
	wait_until("@names wait for a restart", sub { my (undef, $out) = $cluster->ctl('list shop'); return !grep { $out !~ /\| $_ [^\n]*\| \*/ } @names });
	$cluster->ctl("restart shop @names --force");
	return $cluster->wait_until_whole;
}
is(check($standby), 'promotion', 'the check lets a standby be promoted');
like($cluster->log_of($leader), qr/pre_promote script .* exited with 0/, 'as it did for the primary');

# A copy of another member's file, with its number in the parameters and the check.
configure_member($standby, $number);
like(check($standby), qr/^no promotion: the worker ID is $number, and the file says $own\nstandby shares a worker ID: Both servers have worker ID $number/,
	'the number of another member');
# No number.
configure_member($standby, '');
like(check($standby), qr/^no promotion: the worker ID is not set, and the file says $own\nno worker ID/, 'no number');
# A number in the configuration that all members share: it shows where there is no other.
$cluster->ctl('edit-config shop --force -p snowflake_id.worker_id=7');
restart($standby);
is(join(' ', map { $cluster->sql($_, 'SHOW snowflake_id.worker_id') } $leader, $standby), "$number 7", 'what the file of a member says wins');
like(check($standby), qr/^no promotion: the worker ID is 7, and the file says $own\n$/, 'a number of all members');
$cluster->ctl('edit-config shop --force -p snowflake_id.worker_id=null');

# Each member has its number from its environment, and the configuration of all says so.
set_local_number($cluster, $_, '') for $cluster->names;
$cluster->ctl('reload shop --force');
$cluster->ctl(q{edit-config shop --force -p "snowflake_id.worker_id='env WORKER_ID'"});
restart($cluster->names);
is(workers(), '1 2 3', 'numbers from the environment');
is(check($standby), 'promotion', 'the check knows them');
$cluster->ctl('edit-config shop --force -p snowflake_id.worker_id=null');
set_local_number($cluster, $_, s/pg//r) for $cluster->names;
$cluster->ctl('reload shop --force');
$leader = restart($cluster->names);
($standby) = $cluster->others($leader);
($own, $number) = map { s/pg//r } $standby, $leader;

# ALTER SYSTEM on the primary, and a copy of it: Patroni does not promote the copy.
$cluster->sql($leader, "ALTER SYSTEM SET snowflake_id.worker_id = $number");
$cluster->ctl("reinit shop $standby --force --wait");
$cluster->wait_until_whole;
is($cluster->sql($standby, 'SHOW snowflake_id.worker_id'), $number, 'the copy has the number of the primary');
my $before = length $cluster->log_of($standby);
$cluster->ctl("switchover shop --leader $leader --candidate $standby --force");
my $refused = qr/no promotion: the worker ID is $number, and the file says $own\n.*pre_promote script .* exited with 1/s;
wait_until('the check refuses it', sub { substr($cluster->log_of($standby), $before) =~ $refused });
$cluster->wait_for_primary($standby);
isnt($cluster->wait_until_whole, $standby, 'another member is primary, and stays so');
$cluster->sql($_, 'ALTER SYSTEM RESET snowflake_id.worker_id') for $cluster->names;
$cluster->ctl("restart shop $standby --force");
$cluster->wait_until_whole;
is($cluster->sql($standby, 'SHOW snowflake_id.worker_id'), $own, 'it has its own number again');

is(check($standby), 'promotion', 'and may be promoted');
done_testing();
