# Tests the page of the demo in a browser, Chromium without a window: light and dark, wide
# and narrow. The demo has run before: PAGE is its page, and OUT what it has printed.
use strict;
use warnings;
use File::Temp;
use Test::More;

my ($page, $out) = map { slurp($ENV{$_} // die "$_ is not set") } qw(PAGE OUT);
my $scratch = File::Temp->newdir('/tmp/snowflake_id.XXXXXX');

sub slurp
{
	open my $file, '<', $_[0] or die "$_[0]: $!";
	local $/;
	return scalar <$file>;
}

# Runs in the page, and writes what it finds to the end of the page.
my $look = <<'END';
<script>
const found = [];
const tell = (name, value) => found.push(name + '=' + value);
const box = e => e.getBoundingClientRect();
tell('width', box(document.body).width);
tell('height', Math.ceil(box(document.body).height));
tell('overflow', document.body.scrollWidth - document.body.clientWidth);
tell('page', getComputedStyle(document.body).backgroundColor);
tell('heading', document.querySelector('h1').textContent);
tell('results', document.querySelector('#results').innerText.replace(/\s+/g, ' '));
for (const card of document.querySelectorAll('.shards .card')) {
	const charts = [...card.querySelectorAll('svg')];
	tell(card.id + '.charts', charts.length);
	tell(card.id + '.drawn', charts.filter(c => box(c).width > 200 && box(c).height > 60).length);
	for (const kind of ['first', 'second']) {
		const rows = card.querySelectorAll('.ids.' + kind);
		tell(card.id + '.' + kind, [...rows].map(r => r.dataset.rows).join(' '));
		tell(card.id + '.' + kind + '.marks', [...rows].map(r => r.getAttribute('d').split('M').length - 1).join(' '));
		// Where the marks are, in parts of the height of the axis.
		tell(card.id + '.' + kind + '.rises', [...rows].map(r => (r.getBBox().height / r.parentNode.viewBox.baseVal.height).toFixed(3)).join(' '));
		if (rows.length) tell(card.id + '.' + kind + '.colour', getComputedStyle(rows[0]).stroke);
	}
	tell(card.id + '.wall', card.querySelectorAll('.wall').length);
	tell(card.id + '.events', charts[0].querySelectorAll('.event').length);
	tell(card.id + '.bars', card.querySelectorAll('.bars').length);
	for (const chart of charts) {
		const texts = [...chart.querySelectorAll('text')];
		for (const text of texts) {
			const a = box(text), c = box(card);
			if (a.left < c.left || a.right > c.right || a.height < 8) tell('text', 'outside or small: ' + text.textContent);
			for (const other of texts) {
				const b = box(other);
				if (other !== text && a.left < b.right && b.left < a.right && a.top + 2 < b.bottom - 2 && b.top + 2 < a.bottom - 2)
					tell('text', card.id + ': ' + text.textContent + ' on ' + other.textContent);
			}
		}
	}
}
document.body.insertAdjacentHTML('beforeend', '<pre id="' + 'found">' + found.join('\n') + '</pre>');
</script>
END

# chromium(FILE, SIZE, DARK): returns the page as the browser has it, and what the browser
# has written to its console.
sub chromium
{
	my ($file, $size, $dark, @more) = @_;
	my @command = ('chromium', qw(--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
		--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr), "--user-data-dir=$scratch/profile",
		"--window-size=$size", '--blink-settings=preferredColorScheme=' . ($dark ? 0 : 1), @more, "file://$file");
	my $dom = do
	{
		open my $errors, '>&', \*STDERR;
		open STDERR, '>', "$scratch/errors";
		open my $in, '-|', @command or die "chromium: $!";
		local $/;
		my $all = <$in>;
		close $in;
		open STDERR, '>&', $errors;
		$all;
	};
	return ($dom // '', join '', grep { /CONSOLE/ } split /^/, slurp("$scratch/errors"));
}

unlike($page, qr/(?:src|href)\s*=\s*["'](?!data:)|url\(|\@import|<script/i, 'the page needs no other file, and no script');

my ($orders, $messages) = $out =~ /^ *rows *\| *duplicates *\n[-+]+\n *(\d+) \| +0\n.*^ *rows *\| *duplicates *\n[-+]+\n *(\d+) \| +0\n/ms;
ok($orders && $messages, 'the demo counts its rows, without duplicates') or BAIL_OUT($out);
my $all = $orders + $messages;

my %colours;
for my $case ([ 'wide, light', 1280, 0 ], [ 'wide, dark', 1280, 1 ], [ 'narrow, light', 390, 0 ], [ 'narrow, dark', 390, 1 ])
{
	my ($name, $width, $dark) = @$case;
	# A window without a screen has at least 500 pixels, so the page gets the width.
	open my $copy, '>', "$scratch/page.html" or die $!;
	print $copy $page =~ s{</body>}{<style>body { width: ${width}px }</style>$look</body>}r;
	close $copy;
	my ($dom, $console) = chromium("$scratch/page.html", '1280,1600', $dark, '--dump-dom');
	is($console, '', "$name: nothing on the console");
	my ($lines) = $dom =~ m{<pre id="found">(.*?)</pre>}s;
	ok(defined $lines, "$name: the page is drawn") or next;
	my (%found, @texts);
	for (split /\n/, $lines)
	{
		my ($key, $value) = /^([^=]+)=(.*)$/ or next;
		if ($key eq 'text') { push @texts, $value; } else { $found{$key} = $value; }
	}
	is($found{width}, $width, "$name: the width");
	cmp_ok($found{overflow}, '<=', 0, "$name: nothing is wider than the page");
	is("@texts", '', "$name: no text is on another, too small, or outside of its card");
	is($found{heading} =~ s/,//gr, "$all IDs from four servers 0 duplicates", "$name: the heading");
	like($found{results}, qr/\b0 duplicates among the [\d,]+ IDs.* 0 failed calls on shard 2/, "$name: the results");
	my $drawn = 0;
	for my $shard (1 .. 3)
	{
		is($found{"shard$shard.$_"}, 3, "$name, shard $shard: 3 charts, $_") for 'charts', 'drawn';
		for my $kind ($shard == 3 ? ('first', 'second') : 'first')
		{
			my ($in_time, $in_lead) = split / /, $found{"shard$shard.$kind"};
			is($in_time, $in_lead, "$name, shard $shard, $kind worker ID: both charts have the same rows");
			cmp_ok($_, '>', 10, "$name, shard $shard, $kind worker ID: marks") for split / /, $found{"shard$shard.$kind.marks"};
			cmp_ok((split / /, $found{"shard$shard.$kind.rises"})[0], '>', 0.1, "$name, shard $shard, $kind worker ID: IDs rise");
			$drawn += $in_time;
		}
		my $leads = (split / /, $found{"shard$shard.first.rises"})[1];
		if ($shard == 2) { cmp_ok($leads, '>', 0.5, "$name, shard 2: a lead that goes"); }
		else { cmp_ok($leads, '<', 0.1, "$name, shard $shard: no lead"); }
	}
	cmp_ok($drawn, '<=', $orders, "$name: a mark is a row");
	# A client of shard 3 may have had no answer.
	cmp_ok($drawn, '>=', $orders - 4, "$name: all rows are drawn");
	is(join(' ', map { $found{"shard$_.wall"} } 1 .. 3), '1 2 1', "$name: the wall clock of shard 2 goes back");
	is(join(' ', map { $found{"shard$_.events"} } 1 .. 3), '0 1 2', "$name: a rollback, a loss and a promotion");
	is(join(' ', map { $found{"shard$_.bars"} } 1 .. 3), '1 1 2', "$name: rows per second");
	isnt($found{'shard3.first.colour'}, $found{'shard3.second.colour'}, "$name: two worker IDs, two colours");
	push @{ $colours{ join ' ', @found{qw(page shard1.first.colour)} } }, $dark;
	if ($ENV{PICTURES})
	{
		chromium($ENV{PAGE}, "$width,$found{height}", $dark, "--screenshot=$ENV{PICTURES}/" . ($name =~ s/, /-/r) . '.png');
	}
}
is(join(' / ', sort map { "@$_" } values %colours), '0 0 / 1 1', 'other colours in the dark than in the light');

done_testing();
