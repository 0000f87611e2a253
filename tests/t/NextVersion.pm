# Makes a version that comes after the present one, for tests of ALTER EXTENSION UPDATE: a
# copy of the installation gets its scripts, and the present library. The version adds a
# function and replaces a function and a view, as a real one would.
package NextVersion;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Utils;

our @EXPORT = qw(next_version replace_library);

# What the next version adds: CREATE fails if another role has made a function of that name,
# while CREATE OR REPLACE would take that function and leave it to its owner.
my $added = <<'END';
CREATE FUNCTION snowflake_marker() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'next'::pg_catalog.text;
COMMENT ON FUNCTION snowflake_marker() IS 'says that the next version is here';
REVOKE ALL ON FUNCTION snowflake_marker() FROM PUBLIC;
END

# Two statements of the present script, each with a pattern and what the next version has in
# place of the end of the match.
my @changed = (
	[ qr/^CREATE FUNCTION \S*snowflake_set_defaults\(.*?^AS \$\$\nDECLARE\n.*?^END\n\$\$;\n/ms, sub { $_[0] =~ s/^DECLARE\n\K/    -- This line is of the next version.\n/mr } ],
	[ qr/^CREATE VIEW \S*snowflake_worker AS\s+SELECT \* FROM \S*snowflake_worker\(\);\n/m, sub { $_[0] =~ s/;\n\z/ AS w WHERE w.source IS NOT NULL;\n/r } ]);

# Copies the installation to a folder of this test. Returns the folder as
# PostgreSQL::Test::Cluster wants it, the present version, and the next one, which is the
# default there.
sub next_version
{
	my %path;
	for my $what (qw(bindir pkglibdir sharedir))
	{
		chomp($path{$what} = `pg_config --$what`);
	}
	# Programs find their files relative to themselves.
	(my $top = $path{bindir}) =~ s{/[^/]+\z}{};
	$top =~ s{/[^/]+\z}{} while grep { index($path{$_}, "$top/") != 0 } keys %path;
	my $copy = PostgreSQL::Test::Utils::tempdir() . '/installation';
	system_or_bail('cp', '-R', $top, $copy);
	my $bin = $copy . substr $path{bindir}, length $top;
	my $extension = $copy . substr("$path{sharedir}/extension", length $top);

	my $control = slurp_file("$extension/snowflake_id.control");
	my ($this) = $control =~ /^default_version = '(.*)'$/m or die 'the control file names no version';
	my $next = 'next';
	my $script = my $next_script = slurp_file("$extension/snowflake_id--$this.sql");
	my ($there, $back) = ($added, "DROP FUNCTION snowflake_marker();\n");
	for my $change (@changed)
	{
		my ($pattern, $changes) = @$change;
		my ($old) = $script =~ /($pattern)/ or die "the script of $this has no statement like $pattern";
		my $new = $changes->($old);
		die "not changed: $old" if $new eq $old;
		$next_script =~ s/\Q$old\E/$new/;
		$there .= $new =~ s/^CREATE /CREATE OR REPLACE /r;
		$back .= $old =~ s/^CREATE /CREATE OR REPLACE /r;
	}
	my %files = ("$next" => $next_script . $added, "$this--$next" => $there, "$next--$this" => $back);
	append_to_file("$extension/snowflake_id--$_.sql", $files{$_}) for keys %files;
	$control =~ s/^default_version = \K.*$/'$next'/m;
	unlink "$extension/snowflake_id.control" or die "$extension/snowflake_id.control: $!";
	append_to_file("$extension/snowflake_id.control", $control);
	return ($bin =~ s{/bin\z}{}r, $this, $next);
}

# Puts a copy of the library in its place, as an installation does: servers that have loaded
# the library keep the file that they have loaded. Returns the file.
sub replace_library
{
	my ($installation) = @_;
	chomp(my $folder = `$installation/bin/pg_config --pkglibdir`);
	my $library = "$folder/snowflake_id.so";
	system_or_bail('cp', $library, "$library.new");
	rename "$library.new", $library or die "$library: $!";
	return $library;
}

1;
