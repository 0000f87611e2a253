# Prints what tests/bench/instructions has counted, and fails if an ID takes more than it may. The files in the
# present folder are what callgrind_annotate has printed.
use strict;
use warnings;
my ($calls, $firsts, $ids_max, $first_max) = @ARGV;

# Returns instructions by function, with the file's total as ''.
sub profile {
	local $_;
	my %of;
	open my $file, '<', $_[0] or die "$_[0]: $!";
	while (<$file>) {
		s/,//g;
		next unless s/^\s*(\d+)\s*(?:\(\s*[\d.]+%\))?\s+//;
		my $count = $1;
		if (/^PROGRAM TOTALS/) { $of{''} = $count; next; }
		s/\s+$//; s/\s*\[[^\]]*\]$//; s/^[^:]*://; s/'\d+$//;
		$of{$_} += $count;
	}
	return \%of;
}
sub per_call {
	my ($name, $kind) = @_;
	my $calls = $name =~ /^first_/ ? $firsts : $calls;
	my ($once, $twice) = (profile("$name.$calls$kind"), profile("$name." . 2 * $calls . $kind));
	return { map { $_ => ($twice->{$_} - ($once->{$_} // 0)) / $calls } keys %$twice };
}

my %name = (empty => 'pg_backend_pid()', ours => 'snowflake_nextval()', named => "snowflake_nextval('named')",
	wait => 'on_rollback=wait', next_clock => 'on_rollback=next_clock', random => 'sequence_start=random', cache1000 => 'nextval() CACHE 1000', cache32 => 'nextval() CACHE 32', cache1 => 'nextval() CACHE 1');
my %self = map { $_ => per_call($_, '') } grep { $_ ne 'cache32' } keys %name;
printf "  %-28s %8s %8s\n", '', 'all', 'net';
printf "  %-28s %8.0f %8.0f\n", $name{$_}, $self{$_}{''}, $self{$_}{''} - $self{empty}{''} for qw(empty ours named wait next_clock random cache1000 cache1);

print "\n  sets, per row: all, and less generate_series()\n";
for my $where ('', '_from') {
	my ($batch, $series) = map { per_call("$_$where", '')->{''} } qw(batch series);
	printf "  %-28s %8.0f %8.0f\n", 'snowflake_nextval_batch()' . ($where ? ', FROM' : ''), $batch, $batch - $series;
}

# Without the C library's allocator: how far it searches depends on the sizes that were asked for
# and freed before, and the same code differs by 200 instructions from build to build.
my $allocator = qr/^(?:malloc|calloc|realloc|free|_int_malloc|_int_free|_int_realloc|malloc_consolidate|unlink_chunk\b.*)$/;
my %first;
for my $what (qw(empty ours cache32 cache1))
{
	my $all = per_call("first_$what", '');
	$first{$what} = $all->{''};
	$first{$what} -= $all->{$_} for grep { /$allocator/ } keys %$all;
}
print "\n  a transaction with one of them, but for malloc() and free()\n";
printf "  %-28s %8.0f %8.0f\n", $name{$_}, $first{$_}, $first{$_} - $first{empty} for qw(empty ours cache32 cache1);

my $inclusive = per_call('ours', '.inclusive');
printf "\n  snowflake_nextval() with all that it calls: %.0f\n", $inclusive->{snowflake_nextval} // 0;
for my $who (qw(ours named cache1)) {
	my %net = map { $_ => $self{$who}{$_} - ($self{empty}{$_} // 0) } keys %{ $self{$who} };
	delete $net{''};
	print "\n  $name{$who}, by function, net of what the empty call spends there\n";
	my @most = grep { abs $net{$_} >= 0.5 } sort { $net{$b} <=> $net{$a} } keys %net;
	splice @most, 16 if @most > 16;
	printf "  %8.1f  %s\n", $net{$_}, $_ for @most;
}

my $ids = $self{ours}{''} - $self{empty}{''};
my $its_first = $first{ours} - $first{empty};
die sprintf "%.0f instructions per ID, and %s are allowed\n", $ids, $ids_max if $ids > $ids_max;
die sprintf "%.0f instructions for the first ID of a transaction, and %s are allowed\n",
	$its_first, $first_max
	if $its_first > $first_max;
