# page.pl FOLDER: prints a page, in one file, that draws what the demo has measured. The
# folder has
#   orders  a line per row: server, ID, its worker ID, the time in the ID, the wall clock of
#           the server when the row was made, the item; times in seconds of the load
#   log     what pgbench logged, a file per run: when each transaction ended
#   facts   a line per fact: its name, and its value
# Nothing in the page is made up: every mark is a row that is in a table, or the number of
# such rows. The page needs no script.
use strict;
use warnings;
use List::Util qw(max min sum0);
use POSIX qw(ceil floor strftime);

my ($folder) = @ARGV;

my %fact = map { chomp; split /\t/, $_, 2 } lines_of('facts');
my $begin = $fact{begin};
# In seconds of the load.
my ($clock_at, $lost_at, $promoted_at) = map { defined $_ ? $_ - $begin : undef } @fact{qw(clock_at lost_at promoted_at)};

sub lines_of
{
	open my $file, '<', "$folder/$_[0]" or die "$folder/$_[0]: $!";
	return <$file>;
}

# When each transaction ended and how long it took, by run, client and number. A client
# that has an error ends, so its transactions are in the order of their numbers.
my (%transaction, %failed, %slowest);
for my $path (glob "$folder/log/*")
{
	my ($run, $suffix) = $path =~ m{/(\d+)\.(\w+)$} or next;
	my $shard = int $run / 1000;
	if ($suffix eq 'out')
	{
		$failed{$shard} += grep { /client \d+ .*aborted/ } lines_of("log/$run.out");
		next;
	}
	my %number;
	for (lines_of("log/$run.$suffix"))
	{
		my ($client, undef, $micros, undef, $seconds, $rest) = split / /;
		my $end = $seconds + $rest / 1e6 - $begin;
		$transaction{$run}{$client}{ ++$number{$client} } = [ $end, $micros / 1e6 ];
		$slowest{$shard} = max($slowest{$shard} // 0, $micros / 1e3);
	}
}

# A row: the server; the ID, its worker ID and its time; the wall clock; and when its client
# had it, or undef if the reply to the client was lost.
my (%rows, %worker_of, $unanswered);
for (lines_of('orders'))
{
	chomp;
	my ($server, $id, $worker, $at, $wall, $item) = split /\t/;
	my ($n, $client, $run) = $item =~ /^order (\d+) of client (\d+) in run (\d+)$/ or die "$item: not a row of the load\n";
	my $transaction = $transaction{$run}{$client}{$n};
	my $shard = int $run / 1000;
	push @{ $rows{$shard} }, {
		server => $server, worker => $worker, at => $at, wall => $wall,
		client => "$run/$client", number => $n, id => $id,
		x => $transaction ? $transaction->[0] - $transaction->[1] / 2 : undef,
	};
	$worker_of{$server}{$worker}++;
}
my @drawn = grep { defined $_->{x} } map { @$_ } values %rows;
die "no rows\n" if !@drawn;
my $end = max(map { $_->{x} } @drawn);

# Of the IDs of each client, in the order in which it got them.
my (%last_of, $descents);
$descents = 0;
for my $row (sort { $a->{client} cmp $b->{client} || $a->{number} <=> $b->{number} } map { @$_ } values %rows)
{
	my $last = $last_of{ $row->{client} };
	$descents++ if defined $last && $row->{id} <= $last;
	$last_of{ $row->{client} } = $row->{id};
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return $sorted[ @sorted / 2 ];
}
sub number { my $n = reverse shift; $n =~ s/(\d{3})(?=\d)/$1,/g; return scalar reverse $n; }
sub millis { return $_[0] < 10 ? sprintf '%.1f ms', $_[0] : $_[0] < 1000 ? sprintf '%.0f ms', $_[0] : sprintf '%.1f s', $_[0] / 1000; }

# Where there is a longer way than this to the next row of a shard, it had no rows.
my $first_again = min(grep { defined $promoted_at && $_ > $lost_at } map { $_->{x} } grep { defined $_->{x} && $_->{server} eq 'standby3' && $_->{worker} == $fact{standby_worker} } @{ $rows{3} });
die "the standby has no rows of its own\n" if !defined $first_again;
my $away = $first_again - $lost_at;

# The lead of the second shard: how far at most, when the last of it was gone, and how fast
# it shrank.
my ($greatest_lead, $gone_after, $speed);
if (defined $clock_at)
{
	my @led = sort { $a->{x} <=> $b->{x} } grep { defined $_->{x} && $_->{x} > $clock_at } @{ $rows{2} };
	$greatest_lead = max(map { $_->{at} - $_->{wall} } @led);
	my @ahead = grep { $_->{at} - $_->{wall} > 0.02 } @led;
	$gone_after = $ahead[-1]{x} - $clock_at if @ahead && $ahead[-1]{x} < $led[-1]{x};
	my @shrinking = grep { my $lead = $_->{at} - $_->{wall}; $lead < 0.9 * $greatest_lead && $lead > 0.1 * $greatest_lead } @led;
	if (@shrinking > 1)
	{
		my ($first, $last) = @shrinking[ 0, -1 ];
		$speed = ($first->{at} - $first->{wall} - $last->{at} + $last->{wall}) / ($last->{x} - $first->{x});
	}
}

# --- drawing ---

my ($width, $left, $right) = (320, 30, 12);
my $x_end = ceil($end);
my ($height, $top, $y_min, $y_max);
my $svg;

sub across { return sprintf '%.1f', $left + ($width - $left - $right) * $_[0] / $x_end; }
sub up { return sprintf '%.1f', $top + $height * ($y_max - $_[0]) / ($y_max - $y_min); }
# To half a pixel, so that marks at the same place are drawn once.
sub near { return sprintf '%g', int($_[0] * 2 + 0.5) / 2; }

sub text
{
	my ($class, $x, $y, $text) = @_;
	$svg .= qq{<text class="$class" x="$x" y="$y">$text</text>};
	return;
}

# begin_chart HEIGHT, LOWEST, GREATEST, STEP, LABEL: for values in this range, with a line at
# each step.
sub begin_chart
{
	my ($step, $label);
	($height, $y_min, $y_max, $step, $label) = @_;
	$top = 8;
	my $all = $top + $height + 22;
	$svg = qq{<svg viewBox="0 0 $width $all" role="img" aria-label="$label">};
	for (my $y = ceil($y_min / $step) * $step; $y <= $y_max + 1e-9; $y += $step)
	{
		$svg .= sprintf '<path class="grid" d="M%d %sH%d"/>', $left, up($y), $width - $right;
		text('tick end', $left - 6, sprintf('%.1f', up($y) + 4), sprintf('%g', $y));
	}
	for (my $x = 0; $x <= $x_end; $x += $x_end > 12 ? 2 : 1)
	{
		text('tick middle', across($x), $top + $height + 15, $x == $x_end ? "$x s" : $x);
	}
	$svg .= sprintf '<path class="axis" d="M%d %dH%d"/>', $left, $top + $height, $width - $right;
	return;
}

sub end_chart { return "$svg</svg>\n"; }

sub dots
{
	my ($class, @points) = @_;
	my (%seen, $path);
	for (@points)
	{
		my $at = near(across($_->[0])) . ' ' . near(up($_->[1]));
		$path .= "M${at}h0" if !$seen{$at}++;
	}
	$svg .= sprintf '<path class="ids %s" data-rows="%d" d="%s"/>', $class, scalar @points, $path // 'M0 0';
	return;
}

sub event
{
	my ($x, $text, $anchor) = @_;
	$svg .= sprintf '<path class="event" d="M%s %dV%d"/>', across($x), $top, $top + $height;
	text("note $anchor", across($x) + ($anchor eq 'end' ? -5 : 5), $top + 10, $text) if defined $text;
	return;
}

# The events of a shard: when, and what.
sub events
{
	my ($shard, $with_text) = @_;
	event($clock_at, $with_text ? 'clock set back' : undef, 'start') if $shard == 2 && defined $clock_at;
	if ($shard == 3)
	{
		event($lost_at, $with_text ? 'lost' : undef, 'end');
		event($promoted_at, $with_text ? 'standby promoted' : undef, 'start');
	}
	return;
}

sub away
{
	return if $_[0] != 3;
	my ($from, $to) = (across($lost_at), across($first_again));
	$svg .= sprintf '<rect class="away" x="%s" y="%d" width="%.1f" height="%d"/>', $from, $top, $to - $from, $height;
	return;
}

# The rows of a shard by who issued their IDs: the first worker ID, and that of the standby.
sub by_worker
{
	my ($shard) = @_;
	my @own = grep { defined $_->{x} } @{ $rows{$shard} };
	return [ 'first', @own ] if $shard != 3;
	return ([ 'first', grep { $_->{worker} != $fact{standby_worker} } @own ],
		[ 'second', grep { $_->{worker} == $fact{standby_worker} } @own ]);
}

# The wall clock goes straight on, except where it was set back.
sub wall_clock
{
	my ($shard) = @_;
	my @own = grep { defined $_->{x} } @{ $rows{$shard} };
	my @parts = defined $clock_at && $shard == 2 ? ([ 0, $clock_at ], [ $clock_at, $end ]) : ([ 0, $end ]);
	for my $part (@parts)
	{
		my ($from, $to) = @$part;
		my $off = median(map { $_->{wall} - $_->{x} } grep { $_->{x} >= $from && $_->{x} <= $to } @own);
		$svg .= sprintf '<path class="wall" d="M%s %sL%s %s"/>', across($from), up($from + $off), across($to), up($to + $off);
	}
	return;
}

my $least_time = min(0, map { $_->{wall} } @drawn);
my $lead_max = 1.15 * max(1, map { $_->{at} - $_->{wall} } @drawn);
my $lead_step = ceil($lead_max / 4);
my $bin = 0.25;
my %rate;
for my $shard (keys %rows)
{
	for my $of (by_worker($shard))
	{
		my ($class, @own) = @$of;
		$rate{$shard}{$class}{ floor($_->{x} / $bin) } += 1 / $bin for @own;
	}
}
my $rate_max = max(map { values %$_ } map { values %$_ } values %rate);
my $rate_step = 10**floor(log($rate_max) / log(10));
$rate_step /= 2 if $rate_max / $rate_step < 4;
$rate_max = ceil($rate_max / $rate_step) * $rate_step;

sub charts
{
	my ($shard) = @_;
	my @of = by_worker($shard);
	my $charts = '<h3>Time in the IDs and on the wall clock, in s</h3>';
	begin_chart(180, floor($least_time), $x_end, 2, "The time in the IDs of shard $shard over real time");
	away($shard);
	wall_clock($shard);
	for (@of) { my ($class, @own) = @$_; dots($class, map { [ $_->{x}, $_->{at} ] } @own); }
	events($shard, 1);
	if ($shard == 2 && defined $clock_at)
	{
		my $then = $clock_at + 0.8 * $fact{clock_by};
		text('note of-wall', across($then) + 8, up($then - $fact{clock_by}) + 8, 'wall clock');
		text('note of-ids end', across($then), up($clock_at + 0.4 * $fact{clock_by}) - 8, 'IDs');
	}
	$charts .= end_chart();

	$charts .= '<h3>Lead of an ID over the wall clock, in s</h3>';
	begin_chart(90, 0, $lead_max, $lead_step, "How far the IDs of shard $shard are ahead of the wall clock");
	away($shard);
	events($shard);
	for (@of) { my ($class, @own) = @$_; dots($class, map { [ $_->{x}, $_->{at} - $_->{wall} ] } @own); }
	$charts .= end_chart();

	$charts .= '<h3>Rows per second in <code>orders</code></h3>';
	begin_chart(80, 0, $rate_max, $rate_step, "Rows per second on shard $shard");
	away($shard);
	my %stacked;
	for my $class ('first', 'second')
	{
		my $bins = $rate{$shard}{$class} or next;
		my $path = '';
		for (sort { $a <=> $b } keys %$bins)
		{
			my $from = $stacked{$_} // 0;
			$stacked{$_} = $from + $bins->{$_};
			$path .= sprintf 'M%.1f %sH%.1fV%sH%.1fz', across($_ * $bin) + 0.5, up($from), across(($_ + 1) * $bin) - 0.5,
				up($stacked{$_}), across($_ * $bin) + 0.5;
		}
		$svg .= qq{<path class="bars $class" d="$path"/>};
	}
	events($shard);
	$charts .= end_chart();
	return $charts;
}

# --- words ---

my $ids = $fact{orders} + $fact{messages};
my $seconds = sprintf '%.0f', $fact{end} - $begin;
my $twice = $fact{duplicates} == 1 ? '1 duplicate' : number($fact{duplicates}) . ' duplicates';
my ($rollbacks, $largest) = split / /, $fact{rollbacks};
my ($version, $extension) = split /\t/, $fact{version};

sub tile
{
	my ($class, $figure, $text) = @_;
	return qq{<li class="$class"><strong>$figure</strong> $text</li>\n};
}

my $tiles = tile($fact{duplicates} ? 'bad' : 'good', $twice,
	'among the ' . number($ids) . ' IDs of both tables, counted over all servers, the lost one included');
if (defined $clock_at)
{
	my $n = $failed{2} // 0;
	$tiles .= tile($n ? 'bad' : 'good', $n == 1 ? '1 failed call' : "$n failed calls",
		"on shard 2, whose clock was set back by $fact{clock_by} s. Its slowest transaction took " . millis($slowest{2}) . ', that of shard 1 ' . millis($slowest{1}));
}
$tiles .= tile('good', sprintf('%.1f s', $away),
	"from the loss of shard 3 to the next row. Its standby leased worker ID $fact{standby_worker} and went on");
$tiles .= tile($descents ? 'bad' : 'good', $descents == 1 ? '1 ID' : "$descents IDs",
	'out of order: the IDs that a client gets one after the other ascend, also when the clock is set back');

my %story = (
	1 => [ 'Shard 1: nothing happens', 'Its clock is right, and its server stays up. It also has the registry, from which all servers lease their worker IDs.' ],
	2 => defined $clock_at
	? [ "Shard 2: its clock is set back by $fact{clock_by} s", join ' ',
		'IDs go on from where they were, and the wall clock catches up.',
		defined $speed ? sprintf('Their lead shrank by %.2f s in a second', $speed) . (defined $gone_after ? sprintf(', and was gone after %.1f s.', $gone_after) : '.') : (),
		"The view <code>pg_stat_snowflake</code> counts $rollbacks rollback" . ($rollbacks == 1 ? '' : 's') . sprintf(', of %.1f s at most.', $largest) ]
	: [ 'Shard 2: nothing happens', 'Its clock was left alone, since this system cannot set the clock of one program.' ],
	3 => [ 'Shard 3: lost, its standby promoted', join ' ',
		"The server was stopped as by a crash. Its standby was promoted at once, with a worker ID of its own.",
		$fact{lost_rows} == 0 ? 'All its rows had reached the standby.'
		: number($fact{lost_rows}) . ($fact{lost_rows} == 1 ? ' row had' : ' rows had') . ' not reached the standby: the IDs of such rows are not issued again either.' ],
);
my $cards = join '', map { qq{<section class="card" id="shard$_"><h2>$story{$_}[0]</h2><p>$story{$_}[1]</p>\n} . charts($_) . "</section>\n" } 1 .. 3;

my %role = (shard1 => 'shard 1, with the registry', shard2 => 'shard 2', shard3 => 'shard 3, lost', standby3 => 'its standby, promoted');
my (%count, %span);
for my $row (map { @$_ } values %rows)
{
	my $server = $row->{server} eq 'standby3' && $row->{worker} != $fact{standby_worker} ? 'shard3' : $row->{server};
	$count{$server}++;
	$span{$server}{first} = min($span{$server}{first} // $row->{id}, $row->{id});
	$span{$server}{last} = max($span{$server}{last} // 0, $row->{id});
}
my $table = join '', map {
	my $worker = $_ eq 'standby3' ? $fact{standby_worker} : $fact{"${_}_worker"};
	"<tr><th scope=\"row\">$role{$_}</th><td>$worker</td><td>" . number($count{$_} // 0) . "</td><td><code>$span{$_}{first}</code></td><td><code>$span{$_}{last}</code></td></tr>\n"
} grep { $count{$_} } qw(shard1 shard2 shard3 standby3);

my ($id, $date, $time, $worker, $sequence, $bits) = split / /, $fact{example};
my @fields = ([ 'unused', 1, '0' ], [ 'time', 41, "$date $time, in milliseconds since the epoch" ], [ 'worker ID', 10, $worker ], [ 'sequence', 12, "$sequence, within the millisecond" ]);
my $at = 0;
my $example = join '', map {
	my ($name, $length, $means) = @$_;
	my $part = substr $bits, $at, $length;
	$at += $length;
	"<tr><th scope=\"row\">$name</th><td><code>$part</code></td><td>$means</td></tr>\n"
} @fields;

my $when = strftime '%Y-%m-%d %H:%M:%S UTC', gmtime $begin;
my $rows_drawn = number(scalar @drawn);
my $unanswered_note = @drawn == $fact{orders} ? ''
	: ' ' . number($fact{orders} - @drawn) . ' rows are counted and not drawn: their client had no answer when the server was lost, so nobody knows when they were made.';
my $clock_note = defined $clock_at ? '<li>The clock of shard 2 is that of the machine plus a number, by a library that the demo preloads into that server (<code>tests/t/lib/clock.c</code>); the machine\'s clock is left alone. '
	. '<code>snowflake_id.reserve_ahead</code> is 1 s on all servers, so that a generator looks at the clock twice a second. With the default of 10 s it looks every 5 s, and the lead begins to shrink that much later.</li>' : '';

print <<"END";
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>snowflake_id: $twice among @{[ number($ids) ]} IDs</title>
<link rel="icon" href="data:,">
<style>
:root {
	--page: #f6f8fa; --card: #ffffff; --line: #d1d9e0; --grid: #e7ebef; --text: #1f2328; --soft: #59636e;
	--first: #0969da; --second: #bc4c00; --away: #eaeef2; --event: #cf222e; --good: #1a7f37; --bad: #cf222e;
}
\@media (prefers-color-scheme: dark) {
	:root {
		--page: #010409; --card: #0d1117; --line: #3d444d; --grid: #21262d; --text: #f0f6fc; --soft: #9198a1;
		--first: #4493f8; --second: #f0883e; --away: #21262d; --event: #f85149; --good: #3fb950; --bad: #f85149;
	}
}
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif }
main { max-width: 1240px; margin: 0 auto; padding: 32px 20px 48px }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.4rem); line-height: 1.15; margin: 0 0 12px; letter-spacing: -0.01em }
h2 { font-size: 1.1rem; margin: 0 0 6px }
h3 { font-size: 0.8rem; font-weight: 600; margin: 16px 0 2px; color: var(--text) }
p { margin: 0 0 8px }
.lead { max-width: 46em; color: var(--soft); margin-bottom: 24px }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 0.88em }
.tiles { list-style: none; display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 14px; margin: 0 0 24px; padding: 0 }
.tiles li, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px }
.tiles li { color: var(--soft); font-size: 0.9rem; line-height: 1.4 }
.tiles strong { display: block; font-size: 1.7rem; line-height: 1.2; margin-bottom: 4px }
.good strong { color: var(--good) } .bad strong { color: var(--bad) }
.legend { display: flex; flex-wrap: wrap; gap: 4px 22px; color: var(--soft); font-size: 0.85rem; margin: 0 0 12px; padding: 0; list-style: none }
.legend svg { display: inline-block; width: 26px; height: 12px; vertical-align: -1px; margin-right: 6px }
.shards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(320px, 100%), 1fr)); gap: 14px; margin-bottom: 14px }
.shards .card { display: grid; grid-template-rows: subgrid; grid-row: span 8; row-gap: 0; align-content: start }
.card > p { color: var(--soft); font-size: 0.9rem; line-height: 1.45 }
.card svg { display: block; width: 100%; height: auto; overflow: visible }
.wide { margin-bottom: 14px }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.9rem; width: 100% }
th, td { text-align: left; padding: 6px clamp(8px, 2vw, 16px) 6px 0; border-top: 1px solid var(--grid); vertical-align: top }
thead th { border-top: 0; color: var(--soft); font-weight: 400 } th { font-weight: 500; white-space: nowrap }
.bits td:nth-child(2) { overflow-wrap: anywhere; min-width: 6.5em }
ul.notes { margin: 0; padding-left: 1.2em; color: var(--soft); font-size: 0.9rem } .notes li { margin-bottom: 6px }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: var(--text) }
svg .tick { font-size: 11px; fill: var(--soft); font-variant-numeric: tabular-nums } svg .note { font-size: 11.5px } .of-wall { fill: var(--soft) } .of-ids { fill: var(--first); font-weight: 600 }
svg .middle { text-anchor: middle } svg .end { text-anchor: end }
svg path { fill: none } .grid { stroke: var(--grid) } .axis { stroke: var(--soft) }
.wall { stroke: var(--soft); stroke-width: 1.2 } .event { stroke: var(--event); stroke-dasharray: 3 3 } .away { fill: var(--away) }
.ids { stroke-width: 3; stroke-linecap: round } .ids.first { stroke: var(--first) } .ids.second { stroke: var(--second) }
svg .bars { stroke: none } svg .bars.first { fill: var(--first) } svg .bars.second { fill: var(--second) }
\@media print { body { background: none } .card, .tiles li { break-inside: avoid } }
</style>
</head>
<body>
<main>
<h1>@{[ number($ids) ]} IDs from four servers, $twice</h1>
<p class="lead">Clients inserted into three shards for $seconds seconds. Meanwhile, @{[ defined $clock_at ? "the clock of shard 2 was set back by $fact{clock_by} s, and " : '' ]}shard 3 was lost and its standby promoted. This page draws what <code>make demo</code> measured on $when.</p>
<ul class="tiles" id="results">
$tiles</ul>
<ul class="legend">
<li><svg viewBox="0 0 26 12"><path class="ids first" d="M3 6h0M9 6h0M15 6h0M21 6h0"/></svg>a row with its ID</li>
<li><svg viewBox="0 0 26 12"><path class="ids second" d="M3 6h0M9 6h0M15 6h0M21 6h0"/></svg>with the worker ID of the promoted standby</li>
<li><svg viewBox="0 0 26 12"><path class="wall" d="M0 6h26"/></svg>wall clock of the server</li>
<li><svg viewBox="0 0 26 12"><path class="event" d="M13 -3v18"/></svg>what the demo did</li>
<li><svg viewBox="0 0 26 12"><rect class="away" width="26" height="12"/></svg>no server takes rows</li>
<li>To the right: real time, in seconds since the load began</li>
</ul>
<div class="shards">
$cards</div>
<section class="card wide"><h2>Who issued what</h2>
<div class="scroll"><table><thead><tr><th>server</th><th>worker ID</th><th>rows in <code>orders</code></th><th>first ID</th><th>last ID</th></tr></thead>
<tbody>
$table</tbody></table></div></section>
<section class="card wide"><h2>One of these IDs, taken apart: <code>$id</code></h2>
<div class="scroll"><table class="bits"><thead><tr><th>field</th><th>bits</th><th>meaning</th></tr></thead>
<tbody>
$example</tbody></table></div></section>
<section class="card wide"><h2>How this was measured</h2>
<ul class="notes">
<li>pgbench ran $fact{clients} clients on each shard. Each transaction inserted a row into <code>orders</code>, whose IDs come from the default generator, and then one into <code>messages</code>, whose generator uses Discord's layout: @{[ number($fact{orders}) ]} and @{[ number($fact{messages}) ]} rows.</li>
<li>Every mark is a row of <code>orders</code>, $rows_drawn in all; where rows fall on the same place, it is drawn once. Real time is the middle of the row's transaction in pgbench's log. The lead compares the ID with <code>clock_timestamp()</code> in the same row.$unanswered_note</li>
<li>After the load, the lost server was started again, read-only, to count the rows that its standby had not received. A row that both have counts once.</li>
$clock_note
<li>The demo promotes the standby by hand, at once. A failover manager first has to notice the loss. Calls that failed on shard 3 because it was lost: @{[ $failed{3} // 0 ]}.</li>
<li>PostgreSQL $version, snowflake_id $extension, $fact{machine}: all servers, and their clients, share them.</li>
</ul></section>
</main>
</body>
</html>
END
