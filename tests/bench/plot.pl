# Draws what the benchmark recorded (measure, contestant, round, value) as an SVG. The
# SVG has a background of its own, in two colours, for light pages and for dark ones.
use strict;
use warnings;

my %of;
while (<STDIN>) {
    chomp;
    my ($measure, $who, $round, $value) = split /\t/;
    $of{$measure}{$who}[$round] = $value;
}
sub median { my @x = sort { $a <=> $b } grep { defined } @_; return ($x[ @x / 2 ] + $x[ $#x / 2 ]) / 2; }
sub net {
    my ($these, $those) = @{ $of{cost} }{@_};
    return $these && median(map { defined $these->[$_] ? $these->[$_] - $those->[$_] : undef } 0 .. $#$these);
}
sub of {
    my ($measure, $who, $unit) = @_;
    return $of{$measure}{$who} && median(@{ $of{$measure}{$who} }) / $unit;
}
sub setup { return median(@{ $of{setup}{ $_[0] } }); }

my %name = (
    ours => 'snowflake_nextval()', batch => 'snowflake_nextval_batch(1000)',
    cache1 => 'nextval() CACHE 1', cache1000 => 'nextval() CACHE 1000',
    uuid4 => 'gen_random_uuid()', uuid7 => 'uuidv7()', floor => 'clock + compare-and-swap, alone',
);
my @tables = qw(ours cache1 uuid7 uuid4);
my @panels = (
    [ 'Cost per ID, one backend, net of an empty call: ns', '%.0f',
        [ floor => of('cost', 'floor', 1) ],
        [ batch => net('batch', 'series') ],
        map { [ $_ => net($_, 'empty') ] } qw(ours cache1000 cache1 uuid7 uuid4) ],
    [ sprintf('INSERT of %.1f million rows: s', setup('rows') / 1e6), '%.1f',
        map { [ $_ => of('insert', $_, 1000) ] } @tables ],
    [ 'Index of their primary key: MB', '%.0f', map { [ $_ => of('index', $_, 1) ] } @tables ],
);

my ($width, $left, $bar, $gap) = (760, 250, 18, 8);
my ($y, $body) = (16, '');
for (@panels) {
    my ($title, $format, @bars) = @$_;
    @bars = grep { defined $_->[1] } @bars;
    my ($most) = sort { $b <=> $a } map { $_->[1] } @bars;
    $body .= sprintf qq{<text class="title" x="16" y="%d">%s</text>\n}, $y + 14, $title;
    $y += 26;
    for (@bars) {
        my ($who, $value) = @$_;
        my $class = $who =~ /^(?:ours|batch)$/ ? 'ours' : $who eq 'floor' ? 'floor' : 'other';
        my $long = ($width - $left - 70) * $value / $most;
        $body .= sprintf qq{<text x="%d" y="%d" text-anchor="end">%s</text>}
            . qq{<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>}
            . qq{<text x="%.1f" y="%d">$format</text>\n},
            $left - 8, $y + 13, $name{$who}, $class, $left, $y, $long < 1 ? 1 : $long, $bar, $left + $long + 6, $y + 13, $value;
        $y += $bar + $gap;
    }
    $y += 12;
}
$body .= sprintf qq{<text class="note" x="16" y="%d">PostgreSQL %s on %s cores; medians of one alternating run of make bench</text>\n},
    $y + 8, setup('pg'), setup('cores');
$y += 24;

print <<"END";
<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$y" viewBox="0 0 $width $y" role="img" aria-label="What an ID costs, beside its alternatives">
<style>
text { font: 13px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .note { font-size: 12px; fill: #59636e }
.page { fill: #ffffff; stroke: #d1d9e0 } .ours { fill: #0969da } .other { fill: #9198a1 } .floor { fill: #d1d9e0 }
\@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .note { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d } .ours { fill: #4493f8 } .other { fill: #656c76 } .floor { fill: #3d444d }
}
</style>
<rect class="page" x="0.5" y="0.5" width="@{[ $width - 1 ]}" height="@{[ $y - 1 ]}" rx="6"/>
$body</svg>
END
