# Tests that every SQL block of README.md and docs/*.md does what the page shows, and
# that every link leads somewhere.
#
# The blocks of a page (```sql) run in order, each in a psql of its own, in a fresh
# database with the extension. 032_docs/PAGE.sql first makes what the page takes for
# granted, such as a table.
#
# A plain block (```) that follows a SQL block is all that psql prints, without notices
# and row counts. In a plain block
# - spaces, blank lines and the length of rules do not matter;
# - a number of 15 and more digits stands for any other one, if the block takes IDs
#   (it says nextval or INSERT);
# - `...` stands for anything in a line, and on a line of its own for further lines.
# A page must show an error. A SQL block without a plain one may print anything else.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $top = "$FindBin::RealBin/../..";
my @pages = ('README.md', map { "docs/$_" } qw(reference.md operations.md guarantees.md performance.md clocks.md presets.md));
is_deeply([ sort @pages ], [ sort 'README.md', map { s{^\Q$top\E/}{}r } glob "$top/docs/*.md" ], 'all pages are tested');

my $node = new_node('main', 7);
$node->start;

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
	my ($database, $sql) = @_;
	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
	my $out = '';
	IPC::Run::run([ 'psql', '-X', '-q', '-P', 'footer=off', '-d', $node->connstr($database) ], '<', \$sql, '>', \$out, '2>&1');
	return $out;
}

for my $page (@pages)
{
	my $name = $page =~ s{.*/|\.md$}{}gr;
	my $database = lc $name;
	my $before = "$FindBin::RealBin/032_docs/$name.sql";
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION snowflake_id');
	$node->safe_psql($database, slurp_file($before)) if -e $before;
	my @blocks = blocks(slurp_file("$top/$page"));
	for my $n (0 .. $#blocks)
	{
		my $block = $blocks[$n];
		next if $block->{language} ne 'sql';
		my $next = $blocks[ $n + 1 ];
		my $shows = $next && $next->{follows} && $next->{language} eq '';
		my $out = join '', map { "$_\n" } lines(output_of($database, $block->{text}));
		my $what = "$page, line $block->{line}";
		my $shown = $shows ? $next->{text} : '';
		unlike($out, $failed, "$what: no error") if $shown !~ $failed;
		like($out, pattern($shown, $block->{text} =~ /nextval|INSERT/), "$what: as shown") if $shows;
	}
}

# These are the anchors of a page, made from its headings.
my %anchors;
sub anchors
{
	my ($file) = @_;
	return $anchors{$file} //= { map { (lc(s/`//gr) =~ s/[^\w\- ]//gr =~ s/ /-/gr) => 1 }
		  slurp_file($file) =~ /^#+ (.*?)\s*$/mg };
}
for my $page (@pages, 'CONTRIBUTING.md')
{
	my $folder = "$top/$page" =~ s{/[^/]*$}{}r;
	my @lost;
	for my $link (slurp_file("$top/$page") =~ /\]\(([^)\s]+)\)/g)
	{
		next if $link =~ /^https?:/;
		my ($path, $anchor) = split /#/, $link;
		my $file = $path eq '' ? "$top/$page" : "$folder/$path";
		push @lost, $link if !-e $file || defined $anchor && !anchors($file)->{$anchor};
	}
	is("@lost", '', "$page: all links lead somewhere");
}

done_testing();
