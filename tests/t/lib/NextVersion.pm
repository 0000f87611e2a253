# Makes a version that comes after the present one, for tests of ALTER EXTENSION UPDATE: a
# copy of the installation gets its scripts and its library. The version adds two functions,
# of which one is in its library, and replaces a function and a view, as a real one would.
package NextVersion;

use strict;
use warnings;
use Exporter 'import';
use File::Basename;
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
CREATE FUNCTION snowflake_library_marker() RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'snowflake_next_marker';
COMMENT ON FUNCTION snowflake_library_marker() IS 'says that the library of the next version is here';
REVOKE ALL ON FUNCTION snowflake_library_marker() FROM PUBLIC;
END

# Two statements of the present script, each with a pattern and what the next version has in
# place of the end of the match.
my @changed = (
	[ qr/^CREATE FUNCTION \S*snowflake_set_defaults\(.*?^AS \$\$\nDECLARE\n.*?^END\n\$\$;\n/ms, sub { $_[0] =~ s/^DECLARE\n\K/    -- This line is of the next version.\n/mr } ],
	[ qr/^CREATE VIEW \S*snowflake_worker AS\s+SELECT \* FROM _snowflake\.own_worker\(\);\n/m, sub { $_[0] =~ s/;\n\z/ AS w WHERE w.source IS NOT NULL;\n/r } ]);

# Copies an installation (by default, that of pg_config) to a folder of this test. Returns the folder as
# PostgreSQL::Test::Cluster wants it, the present version, and the next one, which is the
# default there, with its library.
sub next_version
{
	my ($from) = @_;
	my $pg_config = $from ? "$from/bin/pg_config" : 'pg_config';
	my %path;
	for my $what (qw(bindir pkglibdir sharedir))
	{
		chomp($path{$what} = `$pg_config --$what`);
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
	my $next = $this =~ s/\.\K(\d+)\z/$1 + 1/er;
	die "what comes after $this?" if $next eq $this;
	my $script = my $next_script = slurp_file("$extension/snowflake_id--$this.sql");
	my ($there, $back) = ($added, "DROP FUNCTION snowflake_marker();\nDROP FUNCTION snowflake_library_marker();\n");
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
	# Of the extension that converts, only the number changes.
	my %convert = ("$next" => slurp_file("$extension/snowflake_id_convert--$this.sql"), map { $_ => "-- Nothing changes.\n" } "$this--$next", "$next--$this");
	append_to_file("$extension/snowflake_id_convert--$_.sql", $convert{$_}) for keys %convert;
	for my $file (map { "$extension/$_.control" } 'snowflake_id', 'snowflake_id_convert')
	{
		my $changed = slurp_file($file) =~ s/^default_version = \K.*$/'$next'/mr;
		unlink $file or die "$file: $!";
		append_to_file($file, $changed);
	}
	my $installation = $bin =~ s{/bin\z}{}r;
	replace_library($installation, 'next');
	return ($installation, $this, $next);
}

# Puts the library of the `present` version or of the `next` one in its place, as an installation
# does: servers that have loaded the library keep the file that they have loaded. Returns the
# file. That of the next version needs the present one by the name that Rust gives to a library.
sub replace_library
{
	my ($installation, $version) = @_;
	chomp(my $folder = `$installation/bin/pg_config --pkglibdir`);
	my ($library, $present) = ("$folder/snowflake_id.so", "$folder/libsnowflake_id.so");
	system_or_bail('cp', $library, $present) if !-e $present;
	if ($version eq 'next')
	{
		system_or_bail('cc', '-shared', '-fPIC', '-Wall', '-o', "$library.new", dirname(__FILE__) . '/next_library.c', '-Wl,--no-as-needed', "-Wl,-rpath,$folder", $present);
	}
	else
	{
		system_or_bail('cp', $present, "$library.new");
	}
	rename "$library.new", $library or die "$library: $!";
	return $library;
}

1;
