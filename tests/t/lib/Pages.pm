# Functions of the tests that run what a page of the documentation shows.
#
# A plain block (```) that follows a SQL block is all that psql prints, without notices
# and row counts. In a plain block
# - spaces, blank lines and the length of rules do not matter;
# - a number of 15 and more digits stands for any other one, if the block takes IDs
#   (it says nextval or INSERT);
# - `...` stands for anything in a line, and on a line of its own for further lines.
# A page must show an error. A SQL block without a plain one may print anything else.
package Pages;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(blocks check_block output_of);

# Returns the blocks: language, line number, text, and whether only blank lines are
# between a block and the one before.
sub blocks
{
	my ($text) = @_;
	my (@blocks, $open, $line, $follows);
	for (split /\n/, $text)
	{
		$line++;
		if (/^```(\w*)\s*$/ && !$open)
		{
			$open = { language => $1, line => $line, text => '', follows => $follows };
			push @blocks, $open;
		}
		elsif (/^```\s*$/) { $open = undef; $follows = 1; }
		elsif ($open) { $open->{text} .= "$_\n"; }
		elsif (/\S/) { $follows = 0; }
	}
	die "a block is not closed" if $open;
	return @blocks;
}

# Removes from lines what does not matter.
sub lines { return grep { $_ ne '' } map { s/\s+/ /gr =~ s/^ | $//gr =~ s/-{2,}/--/gr } split /\n/, $_[0]; }

# Turns the lines that a page shows into a pattern.
sub pattern
{
	my ($shown, $takes_ids) = @_;
	my @patterns;
	for (lines($shown))
	{
		if ($_ eq '...') { push @patterns, '(?:[^\n]*\n)*'; next; }
		my $pattern = join '[^\n]*', map { quotemeta } split /\Q...\E/, $_, -1;
		$pattern =~ s/\d{15,}/\\d{15,}/g if $takes_ids;
		push @patterns, "$pattern\n";
	}
	my $pattern = join '', @patterns;
	return qr/^$pattern$/;
}

my $failed = qr/^(?:ERROR|FATAL|PANIC|WARNING|psql|invalid|unrecognized|\\)/m;

sub output_of
{
	my ($server, $database, $sql) = @_;
	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
	my $out = '';
	IPC::Run::run([ 'psql', '-X', '-q', '-P', 'footer=off', '-d', $server->connstr($database) ], '<', \$sql, '>', \$out, '2>&1');
	return $out;
}

# Runs a SQL block in a psql of its own, and checks that it does what the block after it
# shows.
sub check_block
{
	my ($server, $database, $page, $block, $next) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $shows = $next && $next->{follows} && $next->{language} eq '';
	my $out = join '', map { "$_\n" } lines(output_of($server, $database, $block->{text}));
	my $what = "$page, line $block->{line}";
	my $shown = $shows ? $next->{text} : '';
	unlike($out, $failed, "$what: no error") if $shown !~ $failed;
	like($out, pattern($shown, $block->{text} =~ /nextval|INSERT/), "$what: as shown") if $shows;
	return;
}

1;
