# Tests the protocol of leases for programs of other languages: the sequences of
# tests/vectors/lease.json, answered by a registry in a database whose clock the test sets; and
# the client in examples, beside two servers of the same pool, which is killed, stopped, left
# without the registry, and given wrong clocks.
#
# The client needs Python 3 with psycopg2 (Debian: python3-psycopg2), and is not run without it.
use strict;
use warnings;
use Fcntl qw(O_CREAT O_WRONLY);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Leases;
use Registry;
use Snowflake;

my $top = "$FindBin::RealBin/../../..";
my $vectors = decode_json(slurp_file("$top/tests/vectors/lease.json"));

my $registry = new_node('registry', 900);
$registry->append_conf('postgresql.conf', "max_connections = 50\nlog_statement = none");
start_with_clock($registry, 0);
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake_id');

# Moves all instants of a value.
my %is_instant = map { $_ => 1 } qw(asked bound end floor furthest latest limit now reached since until);
sub shifted
{
	my ($value, $by) = @_;
	return $value if ref $value ne 'HASH';
	return { map { my $inner = $value->{$_};
		$_ => $_ eq 'ids' ? $inner : $is_instant{$_} && defined $inner ? $inner + $by : shifted($inner, $by) } keys %$value };
}

my $answered = 0;
for my $n (0 .. $#{ $vectors->{sequences} })
{
	my $sequence = $vectors->{sequences}[$n];
	my $pool = $sequence->{pool};
	$registry->safe_psql('postgres', "CREATE DATABASE sequence$n TEMPLATE postgres");
	# The middle of a millisecond, since floating-point numbers are on the way.
	my $made = int(time) * 1000;
	stop_clock($registry, ($made + 0.5) / 1000);
	$registry->safe_psql("sequence$n", "SELECT snowflake_create_pool(worker_ids => '[0,$pool->{worker_ids})',
		lease => '$pool->{lease} ms', hold => '$pool->{hold} ms', max_ahead => '$pool->{max_ahead} ms')");
	my (%known, @answers);
	for my $step (@{ $sequence->{steps} })
	{
		my ($who, $incarnation) = ($step->{who}, $step->{incarnation} // 1);
		my $holder = $known{"$who$incarnation"} //= { number => 0 };
		$holder->{memory} = $step->{memory} if exists $step->{memory};
		my $number = $step->{number} // $holder->{number} + 1;
		stop_clock($registry, ($made + $step->{at} + 0.5) / 1000);
		my $answer = 'again';
		for (my $tries = 0; $answer eq 'again' && $tries < 2; $tries++)
		{
			my $ask = shifted($step->{ask}, $made);
			for my $kind (grep { $ask->{$_} } qw(renew release)) { $ask->{$kind}{bound} = $holder->{bound} // 0; }
			my $request = $step->{repeat} ? $holder->{latest} : {
				format => 1, asker => { %{ $vectors->{holders}{$who} }, started => $incarnation * 1000 },
				nonce => "$who$incarnation" x 16, number => $number + $tries, clock => $made + $step->{at} + ($step->{ahead} // 0),
				memory => $holder->{memory}, ask => $ask };
			my $text = JSON::PP->new->canonical->encode($request);
			my $reply = decode_json($registry->safe_psql("sequence$n", "SELECT _snowflake.lease('default', \$json\$$text\$json\$)"));
			$answer = $reply->{answer};
			$holder->{latest} = $request;
			$holder->{number} = $request->{number} if $request->{number} > $holder->{number};
			next if $step->{lost};
			$holder->{memory} = $reply->{memory};
			for my $kind (qw(granted renewed)) { $holder->{bound} = $answer->{$kind}{bound} if ref $answer && $answer->{$kind}; }
		}
		push @answers, shifted($answer, -$made);
		$answered++;
	}
	is_deeply(\@answers, [ map { $_->{answer} } @{ $sequence->{steps} } ], "a registry in a database: $sequence->{name}")
	  or diag(JSON::PP->new->canonical->pretty->encode(\@answers));
}
cmp_ok($answered, '>', 30, "$answered answers of the registry are those of the core");
set_clock($registry, 0);

# The client.
my ($python) = grep { system("$_ -c 'import psycopg2' 2>/dev/null") == 0 } 'python3', '/usr/bin/python3';
if (!$python)
{
	diag 'Python 3 with psycopg2 is not installed, so the client was not run';
	done_testing();
	exit;
}

# Three worker IDs for two servers and the client. Lease, hold and lead in seconds.
my ($lease, $hold) = (3, 2);
$registry->safe_psql('postgres', qq{
	CREATE ROLE producer LOGIN;
	SELECT snowflake_create_pool(worker_ids => '[10,13)', lease => '$lease s', hold => '$hold s', max_ahead => '1 s');
	SELECT snowflake_create_registry('producer')});
my $place = conninfo($registry);
my $template = template_of('template');
my ($a, $b) = map { member($template, $_, "snowflake_id.registry = '$place user=producer'") } qw(a b);
$_->start for $a, $b;
start_load($_) for $a, $b;
wait_for_ids($_, 'two servers') for $a, $b;

my $folder = PostgreSQL::Test::Utils::tempdir();
my ($state, $clock) = ("$folder/state", "$folder/clock");

# Sets the client's clock, in seconds before or after the machine's.
sub set_clients_clock
{
	my ($offset) = @_;
	sysopen my $file, $clock, O_WRONLY | O_CREAT or die "$clock: $!";
	syswrite $file, pack('q2', $offset * 1e9, 0);
	return close $file;
}

# Starts the client, which prints an ID each 2 ms, into a file of its own.
my (@outputs, $pid);
sub start_client
{
	push @outputs, "$folder/client" . @outputs;
	defined($pid = fork) or die "fork: $!";
	if ($pid == 0)
	{
		open STDOUT, '>', $outputs[-1] or die "$outputs[-1]: $!";
		open STDERR, '>', "$outputs[-1].err" or die "$outputs[-1].err: $!";
		@ENV{qw(LD_PRELOAD TORTURE_CLOCK)} = ($ENV{CLOCK_LIBRARY}, $clock);
		exec $python, "$top/examples/lease_client.py", "$place user=producer", '--state', $state, '--count', 0, '--interval', 0.002
		  or die "exec: $!";
	}
	return;
}
END
{
	my $status = $?;
	kill 'KILL', $pid if $pid;
	$? = $status;
}
sub stop_client { my ($signal) = @_; kill $signal, $pid; waitpid $pid, 0; my $code = $?; $pid = undef; return $code; }
sub of_client { return -e $outputs[-1] ? slurp_file($outputs[-1]) =~ /^(\d+)\n/mg : (); }
sub complaints { return slurp_file("$outputs[-1].err"); }
sub wait_for_client
{
	my ($what) = @_;
	my $before = () = of_client();
	return wait_until("the client issues IDs: $what", sub { my @ids = of_client(); @ids > $before + 20 });
}
# What the registry has stored of a worker ID.
sub stored { my ($id) = @_; return decode_json($registry->safe_psql('postgres', "SELECT lease FROM _snowflake.leases WHERE worker_id = $id")); }
sub clients_worker { my @ids = of_client(); return (Leases::decoded($ids[-1]))[0]; }

set_clients_clock(0);
start_client();
wait_for_client('first start');
my $worker = clients_worker();
is(join(' ', sort $worker, map { worker($_, 'worker_id') } $a, $b), '10 11 12', 'two servers and the client have the three worker IDs');
is(stored($worker)->{holder}{data_directory}, $state, 'the registry knows who the client is');
my ($code) = stop_client('TERM');
is($code, 0, 'a stop without an error');
my $row = stored($worker);
ok($row->{released}, 'returns the worker ID');
my @ids = of_client();
my $last = (Leases::decoded($ids[-1]))[1];
between($row->{bound} - $last, 1, 1000, 'and the next holder may begin where its IDs have ended: ms');

# Killed: the next process with the same identity need not wait.
start_client();
wait_for_client('after a stop');
my $nonce = stored($worker)->{nonce};
stop_client('KILL');
start_client();
my $from = time;
wait_for_client('after SIGKILL');
cmp_ok(time - $from, '<', $lease + $hold, 'at once');
isnt(stored($worker)->{nonce}, $nonce, 'it is a new incarnation');
is(system("$python '$top/examples/lease_client.py' '$place user=producer' --state '$state' >/dev/null 2>'$folder/second.err'") >> 8, 1, 'a second process of this identity ends');
like(slurp_file("$folder/second.err"), qr/a different process uses/, 'and says why');

# Stopped for so long that a third server gets the worker ID.
$worker = clients_worker();
kill 'STOP', $pid;
my $bound = stored($worker)->{bound};
my $c = member($template, 'c', "snowflake_id.registry = '$place user=producer'");
$c->start;
is(first_id($c, 'it takes over from the client that is stopped', 60), $worker, 'a third server gets the worker ID of the stopped client');
cmp_ok(stored($worker)->{floor}, '>=', $bound, 'from the bound of the client on');
start_load($c);
kill 'CONT', $pid;
wait_until('the client is told', sub { complaints() =~ /none_free/ });
@ids = of_client();
cmp_ok((Leases::decoded($ids[-1]))[1], '<', $bound, 'the client has issued nothing past its bound');
stop_load($c);
$c->stop;
wait_for_client('the third server has gone');

# The registry is unreachable for longer than a lease.
$bound = stored(clients_worker())->{bound};
my @frozen = freeze($registry);
# Its clock is set back too, so that the wall clock is before the bound all the time.
set_clients_clock(-20);
sleep 2 * $lease + 2;
@ids = of_client();
my $silent = @ids;
cmp_ok((Leases::decoded($ids[-1]))[1], '<', $bound + 2000, 'no ID past the bound while the registry is frozen, but for a renewal before that');
sleep 1;
@ids = of_client();
is(scalar @ids, $silent, 'the client issues none');
set_clients_clock(0);
thaw(@frozen);
wait_for_client('the registry answers again');

# The clock of the client is set on and back.
for my $offset (20, 0, -20, 0)
{
	set_clients_clock($offset);
	wait_for_client("its clock is off by $offset s");
}
# A start with a clock that is behind what was issued.
stop_client('KILL');
set_clients_clock(-30);
start_client();
wait_for_client('killed, with a clock that was set back');
@ids = of_client();
cmp_ok((Leases::decoded($ids[0]))[1], '>=', stored(clients_worker())->{floor}, 'its IDs begin at the floor');
cmp_ok((Leases::decoded($ids[0]))[1], '>', (time - 20) * 1000, 'which its clock has not reached');
set_clients_clock(0);
wait_for_client('with the right clock');
stop_client('TERM');

# What others than the command line use, and what a process must notice of its copies.
$registry->safe_psql('postgres', qq{SELECT snowflake_create_pool('two', '[20,22)', lease => '1 day', max_ahead => '1 s');
	SELECT snowflake_create_pool('wide', '[1000,2000)')});
push @outputs, "$folder/library";
my $program = <<'END';
import os, sys, time
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from lease_client import LeasedIds, LeaseError, Registry
place, folder, out = sys.argv[2], sys.argv[3], open(sys.argv[4], "w")

def take(ids):
    new = ids.next_id()
    print(new, file=out, flush=True)
    return new

def fails(ids, text):
    try:
        take(ids)
    except LeaseError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"an ID, in spite of: {text}")

# A child of a fork issues nothing, and returns nothing.
ids = LeasedIds(place, "two", state=folder + "/two")
take(ids)
child = os.fork()
if child == 0:
    fails(ids, "a different process")
    ids.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
take(ids)
assert ids.holds

def hurry(ids, check):
    deadline = time.monotonic() + 60
    while not check() and time.monotonic() < deadline:
        with ids.lock:
            ids.needed = True
            ids.lock.notify_all()
        time.sleep(0.05)

# A copy of the process asks with the same nonce and number.
worker, nonce = ids.right["worker"], ids.nonce
with ids.lock:
    request = ids._next_request()
    ids.number -= 1
    assert "renewed" in Registry(place, "two").ask(request)["answer"]
    time.sleep(0.01)
hurry(ids, lambda: ids.nonce != nonce and ids.right)
assert ids.nonce != nonce, "it goes on as the copy does"
take(ids)
assert ids.right["worker"] != worker, "the copy may issue what follows"

ids.close()
fails(ids, "")

wide = LeasedIds(place, "wide")
fails(wide, "cannot hold")
wide.close()
END
is(system($python, '-c', $program, "$top/examples", "$place user=producer", $folder, $outputs[-1]), 0,
	'a program does not issue what a copy or a child may issue');
is($registry->safe_psql('postgres', q{SELECT count(*), bool_and(released) FROM _snowflake.leases WHERE worker_id >= 1000}), '1|t', 'a worker ID that does not fit is returned');

# All together.
my ($total, $disorder) = (0, 0);
for my $file (@outputs)
{
	my $before = -1;
	my @all = slurp_file($file) =~ /^(\d+)\n/mg;
	for my $id (@all)
	{
		$disorder++ if $id <= $before;
		$before = $id;
	}
	$total += @all;
	# In parts, as large as a pattern can take.
	while (my @part = splice @all, 0, 1000) { Leases::receive('client', '{' . join(',', @part) . '}|'); }
}
cmp_ok($total, '>', 500, "$total IDs of the client");
is($disorder, 0, 'those of each process increase');
stop_load($_) for $a, $b;
my $of_worker = check_all('the client and three servers', $registry);
is(join(' ', sort keys %$of_worker), '10 11 12 20 21', 'each ID has a worker ID of the pool');
$_->stop for $a, $b;

done_testing();
