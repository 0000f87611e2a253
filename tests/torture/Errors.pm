# Reads the errors that clients of the torture test have met.
package torture::Errors;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(errors refusal is_usual);

# Clients may meet these errors when servers are killed under them.
my %allowed = map { $_ => 1 } qw(
  00000 22012 25006 25P01 25P02 26000 34000 3B001 40P01 55P03 57014 57P01 57P02 57P03);
my $lost = qr/
	  connection\ to\ server\ (was\ lost|on\ socket)
	| server\ closed\ the\ connection\ unexpectedly
	| could\ not\ (receive|send)\ data
	| the\ database\ system\ is
	| terminating\ connection
	| no\ connection\ to\ the\ server/x;
my $more = qr/^(?:DETAIL|HINT|LOCATION|STATEMENT|LINE \d+|Process \d+|\s|$)/;
# The context and the query of an error have lines of any text, up to one of these.
my $after_text = qr/(?:ERROR|FATAL|PANIC|WARNING|NOTICE):|^(?:DETAIL|HINT|CONTEXT|LOCATION|STATEMENT):|$lost/;

# Returns whether a client may meet this error whenever servers are killed.
sub is_usual
{
	my ($error) = @_;
	return $error->{line} =~ $lost if !$error->{code};
	return $allowed{ $error->{code} } && $error->{severity} ne 'PANIC';
}

# Returns the errors that clients read: { line, severity, code, text, detail }, or just
# a line.
sub errors
{
	my ($output) = @_;
	my @errors;
	my $in_text = 0;
	# A client that is killed while it writes leaves a part of a line.
	$output =~ s/[^\n]+\z//;
	for my $line (split /\n/, $output)
	{
		$in_text = 0 if $line =~ $after_text;
		next if $in_text;
		if ($line =~ /(ERROR|FATAL|PANIC|WARNING|NOTICE):\s+([0-9A-Z]{5}):\s+(.*)/)
		{
			push @errors, { line => $line, severity => $1, code => $2, text => $3, detail => '' };
		}
		elsif ($line =~ /^(?:CONTEXT|QUERY):/) { $in_text = 1; }
		elsif ($line =~ /^DETAIL:\s+(.*)/) { $errors[-1]{detail} = $1 if @errors; }
		elsif ($line !~ $more) { push @errors, { line => $line }; }
	}
	return @errors;
}

# Returns the milliseconds of a duration such as "1 d 2 h 5 ms".
sub millis
{
	my ($text) = @_;
	my %unit = (d => 86_400_000, h => 3_600_000, min => 60_000, s => 1000, ms => 1);
	return 0 if $text eq '0';
	return -1 if $text !~ /^\d+ (?:d|h|min|s|ms)(?: \d+ (?:h|min|s|ms))*$/;
	my $millis = 0;
	$millis += $1 * $unit{$2} while $text =~ /(\d+) (\w+)/g;
	return $millis;
}

# Returns a refusal that a policy may ask for: kind, generator, milliseconds, and the
# limit in the message.
sub refusal
{
	my ($error) = @_;
	my ($code, $text, $detail) = map { $_ // '' } @$error{qw(code text detail)};
	if ($code eq '53400')
	{
		return ('on_exhausted=error', $1) if $text =~ /^generator (\S+) has used up the sequence numbers of this tick$/;
	}
	return if $code ne '58000';
	return ('no clock free', $2, millis($1)) if $text =~ /^clock moved backwards by (.+), and generator (\S+) has no clock sequence left for that time$/;
	if ($text =~ /^generator (\S+) would start (.+) ahead of the clock$/)
	{
		my ($name, $by) = ($1, $2);
		return ('start beyond max_rollback', $name, millis($by), millis($1)) if $detail =~ /its limit is (.+) ahead of the clock\.$/;
	}
	if ($text =~ /^clock moved backwards by (.+)$/)
	{
		my $by = millis($1);
		return ('lead beyond max_rollback', $1, $by, millis($2))
		  if $detail =~ /^Generator (\S+) would stay that far ahead of the clock; its limit is (.+)\.$/;
		return ('rollback beyond max_rollback', $1, $by, millis($2)) if $detail =~ /^Generator (\S+) has issued .*\(max_rollback is (.+)\)/;
		return ("on_rollback=$2", $1, $by, defined $3 ? millis($3) : 0)
		  if $detail =~ /^Generator (\S+) has issued .*\(on_rollback=(\w+)(?:, max_wait is (.+))?\)/;
	}
	return;
}

1;
