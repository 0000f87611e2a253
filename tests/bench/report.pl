# Reads what the benchmark recorded (measure, contestant, round, value) and prints one
# section: medians, and ratios as medians of the rounds' ratios.
use strict;
use warnings;

my %of;
while (<STDIN>) {
    chomp;
    my ($measure, $who, $round, $value) = split /\t/;
    $of{$measure}{$who}[$round] = $value;
}

my %name = (
    ours => 'snowflake_nextval()', named => "snowflake_nextval('named')", each => 'a generator for each client', batch => 'snowflake_nextval_batch(1000)',
    cache1 => 'nextval() CACHE 1', cache1000 => 'nextval() CACHE 1000',
    uuid4 => 'gen_random_uuid()', uuid7 => 'uuidv7()', floor => 'floor: clock + swap',
    continue => 'on_rollback=continue', wait => 'on_rollback=wait', error => 'on_rollback=error',
    next_clock => 'on_rollback=next_clock', next_clocks => 'and on_exhausted=next_clock',
    random => 'sequence_start=random', identity => 'identity', no_borrow => 'max_borrow=0',
    empty => '(pg_backend_pid() itself)', series => '(generate_series() itself)',
);
my @tables = qw(ours named cache1 uuid7 uuid4);

sub median { my @x = sort { $a <=> $b } grep { defined } @_; return ($x[ @x / 2 ] + $x[ $#x / 2 ]) / 2; }
sub most { return (sort { $b <=> $a } grep { defined } @_)[0]; }
sub of { my ($measure, $who) = @_; return $of{$measure}{$who}; }

# These subtract and divide two contestants round by round.
sub less {
    my ($these, $those) = @_;
    return [ map { defined $these->[$_] ? $these->[$_] - $those->[$_] : undef } 0 .. $#$these ];
}
sub through {
    my ($these, $those) = @_;
    return median(map { defined $these->[$_] ? $these->[$_] / $those->[$_] : undef } 0 .. $#$these);
}
sub line {
    my ($who, $format, @values) = @_;
    printf "  %-32s$format\n", $name{$who} // $who, @values;
}
sub setup { return median(@{ $of{setup}{ $_[0] } }); }

sub by_clients {
    my ($measure, @who) = @_;
    my @clients = (1, 2, 8, 32);
    line('ns of processor time per ID, net', ' %7d' x @clients, @clients);
    for my $who (@who) {
        line($who, ' %7.1f' x @clients, map { median(@{ less(of("$measure $_", $who), of("$measure $_", 'empty')) }) } @clients);
    }
    line('empty', ' %7.1f' x @clients, map { median(@{ of("$measure $_", 'empty') }) } @clients);
    for my $who (grep { $_ ne 'ours' } @who) {
        line("ours through $who", ' %7.2f' x @clients, map {
            my $empty = of("$measure $_", 'empty');
            through(less(of("$measure $_", 'ours'), $empty), less(of("$measure $_", $who), $empty))
        } @clients);
    }
    line("million per second, $_", ' %7.2f' x @clients, do { my $of = $_; map { median(@{ of("$measure rate $_", $of) }) } @clients }) for @who;
    return;
}

my %section = (
    cost => sub {
        my %net = map { $_ => less(of('cost', $_), of('cost', 'empty')) }
            grep { of('cost', $_) } qw(ours named cache1 cache1000 uuid4 uuid7);
        $net{floor} = of('cost', 'floor');
        $net{batch} = less(of('cost', 'batch'), of('cost', 'series'));
        print "Cost per ID, one backend, net of a call that does nothing (median, ns; times ours)\n";
        for (grep { $net{$_} } qw(floor ours named batch cache1000 cache1 uuid7 uuid4)) {
            line($_, '%8.1f %8.2f', median(@{ $net{$_} }), through($net{$_}, $net{ours}));
        }
        line($_, '%8.1f', median(@{ of('cost', $_) })) for qw(empty series);
        printf "  ours: %.2f of nextval() CACHE 1 (bar 0.30), %.2f of the floor (bar 1.60); batch: %.2f of ours (bar 0.50)\n",
            through($net{ours}, $net{cache1}), through($net{ours}, $net{floor}), through($net{batch}, $net{ours});
        printf "  a named generator: %+.1f ns (bar 10)\n", median(@{ less($net{named}, $net{ours}) });
    },
    rows => sub {
        print "Single-row INSERT, one backend, unlogged table without an index (median, ns per row)\n";
        for my $kind (qw(together apart)) {
            my ($ours, $named) = map { of("rows $kind", $_) } qw(ours named);
            printf "  %-32s%8.0f ours, %8.0f named: %+.1f (bar 10)\n",
                $kind eq 'apart' ? 'each in a transaction' : 'all in one transaction',
                median(@$ours), median(@$named), median(@{ less($named, $ours) });
        }
    },
    clients => sub {
        printf "%d IDs at once by 1 to 32 clients together\n", setup('ids');
        by_clients('clients', qw(ours each cache1000 cache1));
    },
    limit => sub {
        print "4 million IDs at once by 1 to 32 clients together: more than the layout holds in the time\n";
        by_clients('limit', qw(ours cache1000));
    },
    insert => sub {
        printf "INSERT of %d rows in one statement (median, s; times ours; index of the primary key, MB)\n", setup('rows');
        for (grep { of('insert', $_) } @tables) {
            line($_, '%8.2f %8.2f %8.1f', median(@{ of('insert', $_) }) / 1000,
                through(of('insert', $_), of('insert', 'ours')), median(@{ of('index', $_) }));
        }
    },
    gains => sub {
        my %what = (ours => 'snowflake key', column => 'bigint, created_at with an index', uuid7 => 'uuidv7() key');
        printf "%d rows that tell when they were made (median: insert in s; table and indexes in MB;\n", setup('rows');
        print "a query of a hundredth of the time, ms per 1000 rows found; each also times ours)\n";
        my $per_row = sub { my ($who) = @_; my ($ms, $found) = (of('gains-query', $who), of('gains-found', $who));
            return [ map { defined $ms->[$_] ? $ms->[$_] / 20 / $found->[$_] * 1000 : undef } 0 .. $#$ms ]; };
        for (grep { of('gains-insert', $_) } qw(ours column uuid7)) {
            line($what{$_}, '%8.2f %6.2f %9.1f %6.2f %9.3f %6.2f',
                median(@{ of('gains-insert', $_) }) / 1000, through(of('gains-insert', $_), of('gains-insert', 'ours')),
                median(@{ of('gains-size', $_) }), through(of('gains-size', $_), of('gains-size', 'ours')),
                median(@{ $per_row->($_) }), through($per_row->($_), $per_row->('ours')));
        }
    },
    single => sub {
        for my $single (map { "single $_" } 1, 8, 32) {
            printf "Single-row INSERT, %s clients, fsync on (median, transactions per second; times ours)\n", $single =~ s/\D//gr;
            for (grep { of($single, $_) } qw(ours cache1 identity uuid7 uuid4)) {
                line($_, '%8.0f %8.2f', median(@{ of($single, $_) }), through(of($single, $_), of($single, 'ours')));
            }
        }
    },
    many => sub {
        print "100,000 rows in a transaction (median, ns per row; times ours)\n";
        my %what = (batch => 'INSERT ... SELECT, a batch', copy => 'COPY', values => 'INSERT of 1,000 rows of VALUES');
        for my $kind (qw(batch copy values)) {
            print "  $what{$kind}\n";
            for (grep { of("many $kind", $_) } qw(ours cache1 uuid7 uuid4)) {
                line($_, '%8.0f %8.2f', median(@{ of("many $kind", $_) }), through(of("many $kind", $_), of("many $kind", 'ours')));
            }
        }
    },
    saturated => sub {
        print "Saturated, 8 clients, 10 s\n";
        printf "  %.2f million IDs per second (bar 4.0; the layout holds 4.096)\n", median(@{ of('saturated', 'rate') });
        printf "  at most %d ms ahead of the clock (bar 101)\n", most(@{ of('saturated', 'ahead') });
    },
    policies => sub {
        my @policies = qw(ours continue wait error next_clock next_clocks random no_borrow);
        my %net = map { $_ => less(of('policy', $_), of('policy', 'empty')) } @policies;
        print "Policies, of generators with a name: cost per ID, one backend, net of an empty call (median, ns; times\n";
        print "the default generator's); 8 clients, as fast as they can (median, million IDs per second; times its)\n";
        for (@policies) {
            line($_, '%8.1f %8.2f %12.2f %8.2f', median(@{ $net{$_} }), through($net{$_}, $net{ours}),
                median(@{ of('policy rate', $_) }), through(of('policy rate', $_), of('policy rate', 'ours')));
        }
    },
    wal => sub {
        print "WAL bytes, transaction IDs (median of 3)\n";
        line('', '%18s %18s %18s', '10^6 in a SELECT', setup('selects') . ' SELECTs', '100, 20 per s');
        for my $who (qw(ours cache1000 cache1)) {
            line($who, '%12d %5d' . ' %12d %5d' x 2,
                map { (median(@{ of("wal $_", $who) }), median(@{ of("xid $_", $who) })) } qw(statement selects slow));
        }
        printf "  ours, 100 at 20 per second: at most %d transaction IDs (bar 2)\n", most(@{ of('xid slow', 'ours') });
    },
);
$section{ $ARGV[0] }->();
print "\n";
