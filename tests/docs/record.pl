# record.pl CLOCK PSQL ... : asks a generator of each policy for an ID every 20 ms,
# each in a session of its own, while the server's clock, which a file moves, is
# set back once. Prints a line per call: policy, when it began and when it ended, and
# the ID with its time and its clock, or the SQLSTATE of the error; and what the wall
# clock showed. In seconds from the beginning: of real time for calls, of what the
# server's clock showed then for IDs and the wall clock.
use strict;
use warnings;
use IO::Handle;
use IPC::Open2;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);

my ($clock, @psql) = @ARGV;
my ($set_back_at, $by, $until, $pause) = (1.5, 2, 7, 0.02);
my %label = (
	continue => 'preset=default',
	wait => "preset=default on_rollback=wait max_wait='5 s'",
	error => 'preset=default on_rollback=error',
	next_clock => "preset=multi_clock epoch='2025-01-01 00:00:00+00'",
);

# A session that answers each statement with one line.
sub session
{
	my @merged = ('sh', '-c', 'exec "$@" 2>&1', 'sh', @psql);
	open2(my $out, my $in, @merged) or die "psql: $!";
	print $in "\\set VERBOSITY sqlstate\n";
	return sub {
		print $in "$_[0];\n";
		$in->flush;
		my $line = <$out> // die 'psql has ended';
		chomp $line;
		return $line;
	};
}

# By so many seconds. In place: the server has the file mapped.
sub move_clock
{
	open my $file, '+<', $clock or die "$clock: $!";
	syswrite $file, pack('q', $_[0] * 1e9);
	close $file or die "$clock: $!";
	return;
}

my %statement = map {
	$_ => "SELECT 'ID', id, extract(epoch FROM created_at), coalesce(clock, 0)
		FROM (SELECT snowflake_nextval('by_$_') AS id OFFSET 0) AS s, snowflake_decode(id, 'by_$_')"
} keys %label;
$statement{wall} = "SELECT 'wall', extract(epoch FROM clock_timestamp())";

my $first = session();
$first->("SELECT snowflake_create_generator('by_$_', \$\$$label{$_}\$\$)") for sort keys %label;
my $wall_then = (split /\|/, $first->($statement{wall}))[1];
my $then = clock_gettime(CLOCK_MONOTONIC);
# After all have connected and had their first ID.
my $begin = $then + 1;

my @sessions;
for my $who (sort keys %statement)
{
	my $pid = open(my $lines, '-|') // die "fork: $!";
	push @sessions, $lines;
	next if $pid;
	my $ask = session();
	my (%seen, @lines);
	$ask->($statement{$who});
	for (my $next = $begin; $next < $begin + $until; $next += $pause)
	{
		my $from = clock_gettime(CLOCK_MONOTONIC);
		next if $from > $next + $pause;
		sleep($next - $from) if $next > $from;
		$from = clock_gettime(CLOCK_MONOTONIC);
		my ($kind, @parts) = split /\|/, $ask->($statement{$who});
		my $to = clock_gettime(CLOCK_MONOTONIC);
		my $line = sprintf "%s\t%.4f\t%.4f", $who, $from - $begin, $to - $begin;
		if ($kind eq 'ID')
		{
			my ($id, $at, $number) = @parts;
			die "$who: $id twice\n" if $seen{$id}++;
			push @lines, sprintf("$line\t$id\t%.4f\t$number", $at - $wall_then - 1);
		}
		elsif ($kind eq 'wall') { push @lines, sprintf("$line\t%.4f", $parts[0] - $wall_then - 1); }
		elsif ($kind =~ /^ERROR: +(58000)$/) { push @lines, "$line\t$1"; }
		else { die "$who: $kind\n"; }
	}
	print "$_\n" for @lines;
	exit 0;
}
sleep($begin + $set_back_at - clock_gettime(CLOCK_MONOTONIC));
move_clock(-$by);
for my $lines (@sessions)
{
	print while <$lines>;
	close $lines or die "a session failed\n";
}
