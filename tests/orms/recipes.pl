# recipes.pl PAGE FOLDER: writes the blocks below each heading of a page into a file, so
# that a test runs the very text that the page shows. The Python blocks below the heading
# "SQLAlchemy 2.0" become sqlalchemy_20_recipe.py.
use strict;
use warnings;

my %suffix = (python => 'py', js => 'mjs', ts => 'ts', java => 'java', rust => 'rs', ruby => 'rb', php => 'php', prisma => 'prisma', sql => 'sql');
my ($page, $folder) = @ARGV;
open my $in, '<', $page or die "$page: $!\n";
my ($name, $language, %text);
while (<$in>)
{
	if (/^```\s*$/ && defined $language) { $language = undef; }
	elsif (/^```(\w*)\s*$/) { $language = $1; }
	elsif (defined $language) { $text{"$name.$suffix{$language}"} .= $_ if defined $name && $suffix{$language}; }
	elsif (/^## (.*?)\s*$/) { $name = lc($1) =~ s/[ -]/_/gr =~ s/\W//gr . '_recipe'; }
}
die "$page has no recipes\n" if !%text;
for my $file (sort keys %text)
{
	open my $out, '>', "$folder/$file" or die "$folder/$file: $!\n";
	print $out $text{$file};
	close $out or die "$folder/$file: $!\n";
}
