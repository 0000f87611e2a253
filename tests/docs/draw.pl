# Draws what record.pl printed as an SVG: per policy, the time in the IDs over real
# time, beside the wall clock. It brings its own background, in two colours, as the
# picture of make bench does.
use strict;
use warnings;
use List::Util qw(max min);

# Of a call: when it began and ended; then its ID, the time and the clock in it, or
# the SQLSTATE of its error.
my %calls;
while (<STDIN>)
{
	chomp;
	my ($who, @call) = split /\t/;
	push @{ $calls{$who} }, \@call;
}

# The wall clock, and where it went back.
my @wall = map { [ ($_->[0] + $_->[1]) / 2, $_->[2] ] } @{ delete $calls{wall} };
my ($step) = grep { $wall[$_][1] < $wall[ $_ - 1 ][1] } 1 .. $#wall;
die "the clock was not set back\n" if !defined $step;
my ($before, $after) = @wall[ $step - 1, $step ];
my $set_back_at = ($before->[0] + $after->[0]) / 2;
my $by = $before->[1] - $before->[0] - $after->[1] + $after->[0];

sub wall_at { return $_[0] + $wall[0][1] - $wall[0][0] - ($_[0] < $set_back_at ? 0 : $by); }

my ($width, $plot_width, $plot_height) = (760, 304, 200);
my ($top, $row_height, $left, $column_width) = (66, 286, 44, 368);
my ($earliest, $latest) = (min(map { $_->[1] } @wall), max(map { $_->[1] } @wall));
my $end = max(map { $_->[0] } @wall);

# Of the panel that is being drawn: its upper left corner.
my ($x0, $y0);
sub across { return sprintf '%.1f', $x0 + $plot_width * $_[0] / $end; }
sub up { return sprintf '%.1f', $y0 + $plot_height * ($latest - $_[0]) / ($latest - $earliest); }

my $body = '';
sub text
{
	my ($class, $x, $y, $text) = @_;
	$body .= qq{<text class="$class" x="$x" y="$y">$text</text>\n};
	return;
}
sub beside
{
	my ($dot, $text) = @_;
	return text('note end', across($dot->[0]) - 8, up($dot->[1]) - 4, $text);
}
sub path { $body .= qq{<path class="$_[0]" d="$_[1]"/>\n}; return; }

sub panel
{
	my ($who, $row, $column) = @_;
	my @issued = grep { @$_ > 3 } @{ $calls{$who} };
	my @refused = grep { @$_ == 3 } @{ $calls{$who} };
	my ($slowest) = sort { $b->[1] - $b->[0] <=> $a->[1] - $a->[0] } @issued;
	my $slow = $slowest->[1] - $slowest->[0];
	my $sorted = !grep { $issued[$_][2] <= $issued[ $_ - 1 ][2] } 1 .. $#issued;
	($x0, $y0) = ($left + $column * $column_width, $top + $row * $row_height);

	text('title', $x0 - 28, $y0 - 32, "on_rollback=$who");
	text('note', $x0 - 28, $y0 - 14, join '; ',
		@refused ? scalar(@refused) . " calls end in error $refused[0][2]"
		: $slow > 0.5 ? sprintf('one call waits %.1f s', $slow)
		: 'no call waits',
		$sorted ? 'each ID is above the last' : 'IDs go back with the clock');

	# While this session got no ID.
	my @none = @refused ? ($refused[0][0], $refused[-1][1]) : $slow > 0.5 ? @$slowest[ 0, 1 ] : ();
	if (@none)
	{
		my ($from, $to) = map { across($_) } @none;
		$body .= sprintf qq{<rect class="none" x="%s" y="%d" width="%.1f" height="%d"/>\n},
			$from, $y0, $to - $from, $plot_height;
		text('note middle', ($from + $to) / 2, $y0 + 16, @refused ? 'refused' : 'waits');
		path('refused', join '', map { sprintf 'M%s %dv6', across($_->[1]), $y0 + $plot_height - 6 } @refused);
	}
	path('axis', sprintf 'M%d %dv%dh%d', $x0, $y0, $plot_height, $plot_width);
	text('note middle', across($_), $y0 + $plot_height + 16, $_) for 0 .. int($end + 0.1);
	text('note end', $x0 - 6, up($_) + 4, $_) for 0 .. int($latest + 0.1);
	path('step', sprintf 'M%s %dv%d', across($set_back_at), $y0, $plot_height);
	# From its first to its last reading: it is straight in between.
	path('wall', sprintf 'M%s %sL%s %s', map { (across($_->[0]), up($_->[1])) } @wall[@$_])
		for [ 0, $step - 1 ], [ $step, $#wall ];

	my %in;
	push @{ $in{ $_->[4] } }, $_ for @issued;
	for my $clock (sort keys %in)
	{
		my @dots = map { [ $_->[1], $_->[3] ] } @{ $in{$clock} };
		path("clock$clock", join '', map { 'M' . across($_->[0]) . ' ' . up($_->[1]) . 'h0' } @dots);
		beside($dots[ @dots * 4 / 5 ], "clock $clock") if keys %in > 1;
	}
	# How fast the time in IDs goes while it is well ahead of the wall clock.
	my @ahead = grep { $_->[3] > wall_at($_->[1]) + 0.1 * $by && $_->[1] > $set_back_at + 0.3 * $by } @issued;
	if (@ahead > 1)
	{
		my ($first, $later, $last) = map { [ @$_[ 1, 3 ] ] } @ahead[ 0, @ahead * 3 / 4, -1 ];
		my $speed = ($last->[1] - $first->[1]) / ($last->[0] - $first->[0]);
		beside($later, sprintf '%.2f s in a second', $speed);
	}
	return;
}

my $n = 0;
for my $who (qw(continue wait error next_clock))
{
	panel($who, int($n / 2), $n % 2);
	$n++;
}
my $height = $top + $row_height + $plot_height + 74;
my $seconds = sprintf '%.0f', $by;
text('note', 16, $height - 28, 'Upward the time in an ID, to the right real time, in seconds. Each session asks for an ID every 20 ms.');
text('note', 16, $height - 12, "The thin line is the wall clock, set back by $seconds s at the dotted one. Drawn by make docs from what a server issued.");

print <<"END";
<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$height" viewBox="0 0 $width $height" role="img" aria-label="The time in IDs when the clock is set back, under each policy">
<style>
text { font: 13px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .note { font-size: 12px; fill: #59636e } .middle { text-anchor: middle } .end { text-anchor: end }
path { fill: none } .page { fill: #ffffff; stroke: #d1d9e0 } .axis { stroke: #d1d9e0 } .wall { stroke: #59636e }
.step { stroke: #59636e; stroke-dasharray: 2 3 } .none { fill: #eff2f5 } .refused { stroke: #cf222e; stroke-width: 0.8 }
.clock0, .clock1 { stroke-width: 3; stroke-linecap: round } .clock0 { stroke: #0969da } .clock1 { stroke: #bc4c00 }
\@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .note { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d } .axis { stroke: #3d444d } .wall { stroke: #9198a1 }
.step { stroke: #9198a1 } .none { fill: #212830 } .refused { stroke: #f85149 }
.clock0 { stroke: #4493f8 } .clock1 { stroke: #db6d28 }
}
</style>
<rect class="page" x="0.5" y="0.5" width="@{[ $width - 1 ]}" height="@{[ $height - 1 ]}" rx="6"/>
$body</svg>
END
