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
#
# The page about worker IDs has a server of its own, which is restarted with each of the
# page's blocks of settings (```conf) in turn. The registry is the page's database there.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $top = "$FindBin::RealBin/../..";
my @pages = ('README.md', map { "docs/$_" } qw(reference.md operations.md guarantees.md worker-ids.md clusters.md performance.md clocks.md presets.md));
is_deeply([ sort @pages ], [ sort 'README.md', map { s{^\Q$top\E/}{}r } glob "$top/docs/*.md" ], 'all pages are tested');

my $node = new_node('main', 7);
$node->start;

my $leasing = new_node('leasing', -1);
$leasing->append_conf('postgresql.conf', "include_if_exists = 'page.conf'");
$leasing->start;

# Starts the page's server with these settings, and waits for the registry's answer, if
# they name one.
sub configure
{
	my ($database, $settings) = @_;
	my ($host, $port) = ($leasing->host, $leasing->port);
	my $has_registry = $settings =~ s/host=\S+ dbname=\S+/host=$host port=$port dbname=$database/;
	my $file = $leasing->data_dir . '/page.conf';
	unlink $file;
	append_to_file($file, $settings);
	$leasing->restart;
	ok($leasing->poll_query_until($database, "SELECT bound IS NOT NULL FROM snowflake_worker"), 'the registry answers') if $has_registry;
	return;
}

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

for my $page (@pages)
{
	my $name = $page =~ s{.*/|\.md$}{}gr;
	my $database = lc $name =~ s/-/_/gr;
	my $is_about_leases = $name eq 'worker-ids';
	my $server = $is_about_leases ? $leasing : $node;
	my $before = "$FindBin::RealBin/032_docs/$name.sql";
	$server->safe_psql('postgres', "CREATE DATABASE $database");
	$server->safe_psql($database, 'CREATE EXTENSION snowflake_id');
	$server->safe_psql($database, slurp_file($before)) if -e $before;
	my @blocks = blocks(slurp_file("$top/$page"));
	for my $n (0 .. $#blocks)
	{
		my $block = $blocks[$n];
		configure($database, $block->{text}) if $is_about_leases && $block->{language} eq 'conf';
		next if $block->{language} ne 'sql';
		my $next = $blocks[ $n + 1 ];
		my $shows = $next && $next->{follows} && $next->{language} eq '';
		my $out = join '', map { "$_\n" } lines(output_of($server, $database, $block->{text}));
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
