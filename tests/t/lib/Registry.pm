# Functions of the TAP tests that ask a registry of worker IDs as servers do, with
# requests made by the test.
package Registry;

use strict;
use warnings;
use Exporter 'import';
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(server incarnation request ask acquire renew release granted refusal kind witnesses);

my $nonces = 0;

# A server that leases worker IDs: its number makes its identity. Options replace parts
# of the holder, or the clock's offset in seconds.
sub server
{
	my ($number, %options) = @_;
	my $offset = delete $options{offset} // 0;
	return incarnation({
		offset => $offset, memory => undef,
		holder => {
			identity => { system => 7000000000000000000 + $number, boot => 'b' x 32, device => 64769, inode => $number },
			started => 0, host => "host$number", address => "10.0.0.$number", port => 5432,
			data_directory => "/srv/$number", %options } });
}

# The next incarnation of a server: the same identity, started later. What was known
# of the registry and of grants is kept in memory only, so it is lost.
sub incarnation
{
	my ($server) = @_;
	my %holder = (%{ $server->{holder} }, started => $server->{holder}{started} + 1000);
	return { offset => $server->{offset}, holder => \%holder, nonce => sprintf('%032x', ++$nonces), number => 0 };
}

# Makes the next request of a server, as JSON.
sub request
{
	my ($server, $ask) = @_;
	$server->{clock} = int((time + $server->{offset}) * 1000);
	return JSON::PP->new->utf8->canonical->encode({
		format => 1, asker => $server->{holder}, nonce => $server->{nonce}, number => ++$server->{number},
		clock => $server->{clock}, memory => $server->{memory}, ask => $ask });
}

# Takes in a reply. Returns what was answered.
sub take_in
{
	my ($server, $text) = @_;
	my $reply = decode_json($text);
	die "a reply to another request: $text" if $reply->{number} != $server->{number} || $reply->{nonce} ne $server->{nonce};
	$server->{memory} = $reply->{memory};
	my $answer = $reply->{answer};
	$server->{grant} = $answer->{granted} if ref $answer && $answer->{granted};
	if (ref $answer && $answer->{renewed}) { $server->{grant}{$_} = $answer->{renewed}{$_} for qw(bound until); }
	return $answer;
}

# Asks the registry at a database of a node. `how` may have a database, a pool, and a role.
sub ask
{
	my ($node, $server, $ask, %how) = @_;
	my $pool = $how{pool} // 'main';
	my $request = request($server, $ask);
	my @role = $how{role} ? (extra_params => [ '-U', $how{role} ]) : ();
	my $text = $node->safe_psql($how{database} // 'postgres', "SELECT _snowflake.lease('$pool', \$json\$$request\$json\$)", @role);
	return take_in($server, $text);
}

sub acquire
{
	my ($node, $server, %how) = @_;
	my %ask;
	for my $key (qw(fixed last)) { $ask{$key} = delete $how{$key} if exists $how{$key}; }
	return ask($node, $server, { acquire => \%ask }, %how);
}

# Renews the grant of a server, which has used its worker ID until now.
sub renew
{
	my ($node, $server, %how) = @_;
	my $grant = $server->{grant};
	my $furthest = delete $how{furthest} // int((time + $server->{offset}) * 1000);
	$furthest = $grant->{floor} if $furthest < $grant->{floor};
	return ask($node, $server,
		{ renew => { worker => $grant->{worker}, counter => $grant->{counter}, bound => $grant->{bound}, furthest => $furthest } }, %how);
}

sub release
{
	my ($node, $server, %how) = @_;
	my $grant = $server->{grant};
	my $end = delete $how{end} // int((time + $server->{offset}) * 1000);
	return ask($node, $server,
		{ release => { worker => $grant->{worker}, counter => $grant->{counter}, bound => $grant->{bound}, end => $end } }, %how);
}

# The files in memory by which registries of a node know after a crash that nothing was lost.
sub witnesses
{
	my ($node) = @_;
	my ($text) = run_command([ 'pg_controldata', $node->data_dir ]);
	my ($system) = $text =~ /^Database system identifier: +(\d+)$/m or die $text;
	return glob sprintf('/dev/shm/snowflake_id.%x-*', $system);
}

# Returns the worker ID that was granted; dies if none was.
sub granted
{
	my ($answer) = @_;
	die 'no worker ID: ' . JSON::PP->new->canonical->encode([$answer]) if kind($answer) ne 'granted';
	return $answer->{granted}{worker};
}

# Returns the name of an answer, and of a refusal with its cause: 'refused grace recovery'.
sub kind
{
	my ($answer) = @_;
	return $answer if !ref $answer;
	my ($kind) = keys %$answer;
	return $kind if $kind ne 'refused';
	return "refused $answer->{refused}" if !ref $answer->{refused};
	my ($why) = keys %{ $answer->{refused} };
	my $more = $answer->{refused}{$why};
	return join ' ', 'refused', $why, grep { defined } @$more{qw(cause why)};
}

# Returns the particulars of a refusal.
sub refusal
{
	my ($answer) = @_;
	my ($particulars) = values %{ $answer->{refused} };
	return $particulars;
}

1;
