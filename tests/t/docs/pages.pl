# Tests that every SQL block of README.md and docs/*.md does what the page shows, and
# that every link leads somewhere.
#
# The blocks of a page (```sql) run in order, each in a psql of its own, in a fresh
# database with the extension. pages/PAGE.sql first makes what the page takes for
# granted, such as a table.
#
# Pages.pm says what a plain block that follows a SQL block shows.
#
# The JavaScript blocks of a page (```js), each with a plain block behind it, are one
# program for Node.js, which is not run where there is no Node.js; a message says so.
#
# docs/partitions.pl runs the page about partitions, and `make test-orms` the page about
# object-relational mappers. This test only follows the links of both.
#
# The pages about several servers and about worker IDs have a server of their own, which is
# restarted with each of the page's blocks of settings (```conf) in turn. The registry is the
# page's database there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Pages;
use Snowflake;

my $top = "$FindBin::RealBin/../../..";
my @pages = ('README.md', map { s{^\Q$top\E/}{}r } sort glob "$top/docs/*.md");
cmp_ok(scalar @pages, '>', 20, 'there are pages');

my $node = new_node('main', 7);
# A page makes publications.
$node->append_conf('postgresql.conf', 'wal_level = logical');
$node->start;

my $leasing = new_node('leasing', '');
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

for my $page (grep { $_ ne 'docs/partitions.md' } @pages)
{
	my $name = $page =~ s{.*/|\.md$}{}gr;
	# This page gives a setting to its database.
	my $database = $name eq 'new-keys' ? 'shop' : lc $name =~ s/-/_/gr;
	my $is_about_leases = $name =~ /^(?:several-servers|worker-ids)$/;
	my $server = $is_about_leases ? $leasing : $node;
	my $before = "$FindBin::RealBin/pages/$name.sql";
	$server->safe_psql('postgres', "CREATE DATABASE $database");
	# The page about plain SQL creates the extension where its tables move there.
	$server->safe_psql($database, 'CREATE EXTENSION snowflake_id') if $name ne 'managed';
	$server->safe_psql($database, slurp_file($before)) if -e $before;
	my @blocks = blocks(slurp_file("$top/$page"));
	for my $n (0 .. $#blocks)
	{
		my $block = $blocks[$n];
		configure($database, $block->{text}) if $is_about_leases && $block->{language} eq 'conf';
		next if $block->{language} ne 'sql';
		check_block($server, $database, $page, @blocks[ $n, $n + 1 ]);
	}
}

# The import of rows of the past on the reference page, by two sessions at once, and with more rows than a millisecond has IDs.
my ($import) = map { $_->{text} } grep { $_->{text} =~ /pg_advisory/ } blocks(slurp_file("$top/docs/reference.md"));
my ($first, $second) = map { $node->background_psql('reference') } 1 .. 2;
$first->query_safe($import =~ s/COMMIT;//r);
$second->query_until(qr/^waits/m, "\\echo waits\n$import");
wait_for_lock($node, 'SELECT pg_advisory%');
$first->query_safe('COMMIT');
$second->query_safe('SELECT 1');
$_->quit for $first, $second;
my $numbers = q{SELECT string_agg((id & 4095)::text, ' ' ORDER BY id) FROM events};
is($node->safe_psql('reference', $numbers), '0 1 2 3 4 5', 'a second import of the same rows begins after the first');
$node->safe_psql('reference', 'TRUNCATE events; INSERT INTO old_events SELECT o.* FROM old_events AS o, generate_series(1, 2047) WHERE true');
$node->safe_psql('reference', $import);
is($node->safe_psql('reference', 'SELECT count(*), max(id) - min(id) FROM events'), '4096|4095', 'a whole millisecond');
is((error_of($node, $import, 'reference'))[0], '22003', 'one row more is refused');

for my $page (@pages)
{
	my @blocks = blocks(slurp_file("$top/$page"));
	my @programs = grep { $blocks[$_]{language} eq 'js' } 0 .. $#blocks;
	next if !@programs || $page eq 'docs/orms.md';
  SKIP:
	{
		if (system('node --version >/dev/null 2>&1') != 0)
		{
			diag "$page: Node.js is not installed, so its JavaScript was not run";
			skip 'Node.js is not installed', 1;
		}
		my $program = join '', map { $blocks[$_]{text} } @programs;
		my $shown = join '', map { $blocks[ $_ + 1 ]{text} } @programs;
		my $out = '';
		IPC::Run::run([ 'node', '-' ], '<', \$program, '>', \$out, '2>&1');
		is($out, $shown, "$page: the JavaScript prints what is shown");
	}
}

# Whatever a user can set, name or call is on a page.
sub is_on_pages
{
	my ($what, $query, $text) = @_;
	my @names = split /\n/, $node->safe_psql('reference', $query);
	cmp_ok(scalar @names, '>', 0, "there are ${what}s");
	is_deeply([ grep { $text !~ /\b\Q$_\E\b/ } @names ], [], "each $what is on a page");
	return;
}
is_on_pages('setting', "SELECT name FROM pg_settings WHERE name LIKE 'snowflake\\_id.%'", slurp_file("$top/docs/reference.md"));
is_on_pages('preset', 'SELECT preset FROM snowflake_presets', slurp_file("$top/docs/presets.md"));
$node->safe_psql('reference', 'CREATE EXTENSION snowflake_id_convert');
is_on_pages('function', q{
	SELECT DISTINCT p.proname FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid JOIN pg_proc AS p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		AND e.extname IN ('snowflake_id', 'snowflake_id_convert') AND p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'snowflake\_%'},
	join '', map { slurp_file("$top/$_") } @pages);

# These are the anchors of a page, made from its headings, or named.
my %anchors;
sub anchors
{
	my ($file) = @_;
	my $text = slurp_file($file);
	return $anchors{$file} //= { (map { (lc(s/`//gr) =~ s/[^\w\- ]//gr =~ s/ /-/gr) => 1 } $text =~ /^#+ (.*?)\s*$/mg),
		map { $_ => 1 } $text =~ /<a id="([\w-]+)">/g };
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

# What to do has one home: the first table of operations.md, to whose rows the alerts lead.
my ($table) = slurp_file("$top/docs/operations.md") =~ /^## What you see and what to do\n(.*?)^## /ms;
my @alerts = slurp_file("$top/docs/monitoring.md") =~ /^### (SnowflakeId.*?)(?=^##)/msg;
ok(@alerts >= 15, 'the page about monitoring has alerts');
for my $alert (@alerts)
{
	my ($name, $to) = $alert =~ /^(\w+).*?\*\*\[Do this\]\(operations\.md#([\w-]+)\)/s or die "no link: $alert";
	ok($table =~ /^\| <a id="$to">.*\b$name\b/m, "$name leads to its row");
}

done_testing();
