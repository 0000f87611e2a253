# Tests that tests/VERSIONS.md has the versions that files of the tests pin, and all of them that
# docs/orms.md names.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../../..";
my @rows = map { [ split / \| / ] } slurp_file("$top/tests/VERSIONS.md") =~ /^\| (.* \| \d{4}-\d\d-\d\d \| .*) \|$/mg;
cmp_ok(scalar @rows, '>', 30, 'the page has rows');
my %pinned;
for my $row (@rows)
{
	my ($what, $version, undef, $from) = @$row;
	like($version, qr/\d/, "$what has a version");
	my ($file) = $from =~ m{^`(tests/.*)`$} or next;
	$pinned{$file}++;
	ok(slurp_file("$top/$file") =~ /(?<![\d.])\Q$version\E(?![\d.])/, "$what: $file has version $version");
}
is(join(' ', sort keys %pinned), join(' ', map { "tests/$_" } qw(managed/package.json monitoring/picture/package.json
	orms/node/package.json orms/prisma/package.json orms/python/requirements.txt orms/rust/Cargo.lock)), 'files that pin versions have rows');

# The table of docs/orms.md has the beginning of the same versions.
my %version_of = map { $_->[0] =~ s/ ?[,(].*//r => $_->[1] } reverse @rows;
my @named = slurp_file("$top/docs/orms.md") =~ /^\| ([A-Za-z][\w. -]*?) (\d+\.\d+)[ ,].*\|$/mg;
cmp_ok(scalar @named, '>', 20, 'docs/orms.md names versions');
while (my ($name, $version) = splice @named, 0, 2)
{
	my $known = $version_of{$name} // $version_of{"$name "} // '';
	like($known, qr/^\Q$version\E(\.|$)/, "$name has the version of docs/orms.md");
}
done_testing();
