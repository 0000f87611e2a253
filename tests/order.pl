# Prints the tests that are named on the standard input in the order in which they start: those that the file LONG
# names come first, so that none of them runs alone at the end. With a second argument, LONG may name no others.
use strict;
use warnings;
my ($long, $all) = @ARGV;
my ($count, %rank, %seen) = 0;
if (-e $long)
{
	open my $names, '<', $long or die "$long: $!";
	while (<$names>) { chomp; $rank{$_} = ++$count if !/^#/ }
}
chomp(my @files = <STDIN>);
sub name { return $_[0] =~ s{.*/}{}r =~ s{\.pl\z}{}r; }
sub rank { return $rank{ name($_[0]) } // $count + 1; }
# A test has its folders by its name alone.
$seen{ name($_) }++ and die 'two tests are called ', name($_), "\n" for @files;
my ($gone) = grep { !$seen{$_} } keys %rank;
die "$long names $gone, and there is no such test\n" if defined $gone && $all;
print map { "$_\n" } sort { rank($a) <=> rank($b) || $a cmp $b } @files;
