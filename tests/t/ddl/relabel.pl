# Tests changes of labels: which changes are allowed, that they apply to all sessions
# from the commit on and to none after a rollback, and that no ID is issued twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->append_conf('postgresql.conf', q{
max_prepared_transactions = 5
snowflake_id.reserve_ahead = '100 ms'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; GRANT CREATE ON SCHEMA public TO alice');

my ($admin, $other, $third) = map { session($node) } 1 .. 3;

sub reconnect
{
	for my $session ($admin, $other, $third)
	{
		eval { $session->quit };
		$session = session($node);
	}
	return;
}

sub relabel
{
	my ($name, $label) = @_;
	my $text = defined $label ? q{'} . ($label =~ s/'/''/gr) . q{'} : 'NULL';
	return "SECURITY LABEL FOR snowflake_id ON SEQUENCE $name IS $text";
}

sub label_of
{
	my ($name) = @_;
	return $node->safe_psql('postgres', "SELECT label FROM pg_seclabels WHERE objoid = '$name'::regclass AND provider = 'snowflake_id'");
}

# Checks the worker ID of an ID, and that its time under the current label is near the
# clock.
sub fits
{
	my ($id, $name, $what) = @_;
	my ($off, $worker) = split /\|/, $other->query_safe(
		"SELECT extract(epoch FROM snowflake_timestamp($id, '$name') - clock_timestamp()), (snowflake_decode($id, '$name')).worker_id");
	ok(abs($off) < 120 && $worker == 3, $what) or diag "worker ID $worker, $off s from the clock";
	return;
}

my $fields = 'worker:10 sequence:12';
sub label { my ($time, $epoch, $rest) = @_; return "layout='time:$time $fields' epoch='$epoch' max_borrow=0 sequence_start=zero" . (defined $rest ? " $rest" : ''); }
my $base = label(40, '2021-01-01 00:00:00+00');

# Before the first ID all changes are allowed, also after a failed call.
create_generator($node, 'young', $base);
for my $label (label(40, '2022-01-01 00:00:00+00'), label(39, '2021-01-01 00:00:00+00'), "$base tick='2 ms'",
	q{preset=discord}, q{layout='sequence:4 time:40 shard:8=7 worker:8' epoch=0}, q{preset=worker_queue epoch=1735689600000}, undef, $base)
{
	is(error_in($admin, relabel('young', $label)), '', 'before any ID: ' . ($label // 'no label'));
	my $code = error_in($other, q{SELECT snowflake_nextval('young'::regclass)}) if !defined $label || $label =~ /worker_queue/;
	is($code, '42809', 'without a label it is no generator') if !defined $label;
	is($code, '0A000', 'the next worker ID of a server that has a number') if defined $label && $label =~ /worker_queue/;
}
fits(draw($other, 'young'), 'young', 'the last label is in force');
is(error_in($admin, relabel('young', 'preset=sonyflake')), '55000', 'after an ID no longer');
# They are not after an ID in a transaction that was rolled back.
create_generator($node, 'tried', $base);
$admin->query_safe(q{BEGIN; SELECT snowflake_nextval('tried'); ROLLBACK});
is(error_in($other, relabel('tried', 'preset=sonyflake')), '55000', 'nor after an ID in a transaction that was rolled back');
# They are not after a crash either, before the first call in the server's new life.
crash($node);
reconnect();
is(error_in($other, relabel('tried', 'preset=sonyflake')), '55000', 'nor after a crash');
draw($other, 'tried');

# After the first ID a change is allowed only if no ID can be issued twice or out of
# order. A session with plans for issuing and decoding resumes, in order.
create_generator($node, 'g', $base);
$other->query_safe(q{PREPARE next AS SELECT snowflake_nextval('g')});
$other->query_safe(q{PREPARE at(bigint) AS SELECT abs(extract(epoch FROM snowflake_timestamp($1, 'g') - clock_timestamp())) < 120, (snowflake_decode($1, 'g')).worker_id});
$other->query_safe('SET plan_cache_mode = force_generic_plan');

sub next_by_plan
{
	my ($what) = @_;
	my $id = $other->query_safe('EXECUTE next');
	push @{ drawn('g') }, $id;
	is($other->query_safe("EXECUTE at($id)"), 't|3', "$what: a plan that was there before decodes by the label in force");
	return $id;
}

draw($other, 'g');
next_by_plan('at first');
my @refused = (
	[ 'a later epoch', label(40, '2021-01-01 00:00:00.001+00') ],
	[ 'a narrower time', label(39, '2021-01-01 00:00:00+00') ],
	[ 'a narrower time with an earlier epoch', label(39, '2020-01-01 00:00:00+00') ],
	[ 'another tick', "$base tick='2 ms'" ],
	[ 'a shorter sequence', "layout='time:40 worker:11 sequence:11' epoch='2021-01-01 00:00:00+00'" ],
	[ 'other places', "layout='time:40 sequence:12 worker:10' epoch='2021-01-01 00:00:00+00'" ],
	[ 'time below', "layout='worker:10 time:40 sequence:12' epoch='2021-01-01 00:00:00+00'" ],
	[ 'reversed time', "layout='time_reversed:40 $fields' epoch='2021-01-01 00:00:00+00'" ],
	[ 'a fixed worker ID', "layout='time:40 worker:10=3 sequence:12' epoch='2021-01-01 00:00:00+00'" ],
	[ 'one more field', "layout='time:40 kind:1=0 $fields' epoch='2021-01-01 00:00:00+00'" ],
	[ 'a field less', "layout='time:40 sequence:12 kind:10=3' epoch='2021-01-01 00:00:00+00'" ],
	[ 'a preset', 'preset=sonyflake' ],
	[ 'no label', undef ]);
for my $case (@refused)
{
	my ($what, $label) = @$case;
	my ($code, $text) = error_in($admin, relabel('g', $label));
	is($code, '55000', "refused: $what");
	like($text, qr/DETAIL:/, 'with the reason');
	is(label_of('g'), $base, 'nothing changed');
	next_by_plan("refused: $what");
}
# A change is refused in a transaction that resumes behind a savepoint; an invalid label
# is refused too.
$admin->query_safe('BEGIN');
draw($admin, 'g');
is(error_in($admin, 'SAVEPOINT a; ' . relabel('g', 'preset=sonyflake') . '; ROLLBACK TO a'), '55000', 'refused in a savepoint');
draw($admin, 'g');
is(error_in($admin, 'SAVEPOINT a; ' . relabel('g', 'preset=discrod') . '; ROLLBACK TO a'), '22023', 'wrong in a savepoint');
draw($admin, 'g');
$admin->query_safe('COMMIT');
next_by_plan('refused in a savepoint');

my @allowed = (
	[ 'the same', $base ],
	[ 'the same in other words', "epoch=1609459200000 layout='time:40  worker:10 sequence:12' tick='1 ms' max_borrow='0 ms' sequence_start=zero" ],
	[ 'another start of the sequence', "layout='time:40 $fields' epoch='2021-01-01 00:00:00+00' sequence_start='vibrate 99'" ],
	[ 'another max_borrow', "$base max_rollback='2 d'" =~ s/max_borrow=0/max_borrow='1 s'/r ],
	[ 'a wider time', label(41, '2021-01-01 00:00:00+00') ],
	[ 'an epoch that is 1 ms earlier', label(41, '2020-12-31 23:59:59.999+00') ],
	[ 'an epoch that is a year earlier', label(41, '2020-01-01 00:00:00+00') ],
	[ 'twice', label(41, '2019-01-01 00:00:00+00', q{max_rollback='3 d'}) ]);
for my $case (@allowed)
{
	my ($what, $label) = @$case;
	is(error_in($admin, relabel('g', $label)), '', "allowed: $what");
	is(label_of('g'), $label, 'in force');
	next_by_plan("allowed: $what");
	next_by_plan("allowed: $what");
	draw($admin, 'g');
}
# The label stays, also in a new life of the server, where only the mark is left.
is(error_in($admin, relabel('g', $base)), '55000', 'not back again');
crash($node);
is($node->safe_psql('postgres', q{SELECT count(*) FROM snowflake_generators WHERE generator = 'g'::regclass AND epoch = '2019-01-01 00:00:00+00'}), '1', 'the view shows it');
reconnect();
is(error_in($admin, relabel('g', $base)), '55000', 'not back again after a crash');
fits(draw($other, 'g'), 'g', 'after a crash');
# The label changes, and no ID is issued before the crash.
$admin->query_safe(relabel('g', label(41, '2018-01-01 00:00:00+00')));
crash($node);
reconnect();
fits(draw($other, 'g'), 'g', 'relabelled, then a crash');
check_ids('allowed changes and crashes', drawn('g'));

# A label that cannot be used yet can be taken back.
$admin->query_safe(relabel('g', label(41, '2018-01-01 00:00:00+00', 'on_rollback=next_worker')));
is(error_in($other, q{SELECT snowflake_nextval('g')}), '0A000', 'a policy that needs a registry, in force for all');
is(error_in($admin, relabel('g', undef)), '55000', 'still it has issued IDs');
$admin->query_safe(relabel('g', label(41, '2018-01-01 00:00:00+00')));
draw($other, 'g');

# Only the owner may change the label.
$node->safe_psql('postgres', qq{SET ROLE alice; SELECT snowflake_create_generator('hers', 'preset=discord'); SELECT snowflake_nextval('hers'); GRANT ALL ON SEQUENCE hers TO bob});
is((error_of($node, 'SET ROLE bob; ' . relabel('hers', q{preset=discord max_borrow=0})))[0], '42501', 'not a role that may only use it');
is((error_of($node, 'SET ROLE alice; ' . relabel('hers', q{preset=discord max_borrow=0})))[0], '', 'but its owner');
# These objects cannot have a label.
$node->safe_psql('postgres', 'CREATE TABLE tab (id bigint)');
for my $object ('TABLE tab', 'COLUMN tab.id', 'SCHEMA public', 'SEQUENCE snowflake_default', 'ROLE alice')
{
	isnt((error_of($node, "SECURITY LABEL FOR snowflake_id ON $object IS 'preset=discord'"))[0], '', "no label on $object");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_seclabels WHERE provider = 'snowflake_id' AND objtype <> 'sequence'}), '0', 'and none is there');

# A sequence that is unfit for a while still counts the IDs that it has issued.
create_generator($node, 'unfit', $base);
draw($other, 'unfit');
for my $change ([ 'CYCLE', 'NO CYCLE' ], [ 'START 1', 'START 9223372036854775807' ])
{
	$admin->query_safe("ALTER SEQUENCE unfit $change->[0]");
	is(error_in($admin, relabel('unfit', label(40, '2022-01-01 00:00:00+00'))), '55000', "$change->[0]: a later epoch");
	is(error_in($admin, relabel('unfit', undef)), '55000', "$change->[0]: no label");
	$admin->query_safe("ALTER SEQUENCE unfit $change->[1]");
	draw($other, 'unfit');
}
check_ids('unfit for a while', drawn('unfit'));
is(error_in($admin, 'ALTER SEQUENCE unfit RESTART'), '', 'restarted,');
is(error_in($admin, relabel('unfit', label(40, '2022-01-01 00:00:00+00'))), '55000', 'and its IDs are not forgotten');

# The clock is right from here on.
sub restart
{
	$node->stop;
	$node->start;
	reconnect();
	return;
}

# A change waits for transactions that took IDs, and these wait for the change.
restart();
create_generator($node, 'held', $base);
$other->query_safe('BEGIN');
draw($other, 'held');
is(error_in($admin, q{SET lock_timeout = '100 ms'; } . relabel('held', $base)), '55P03', 'a change of the label waits for those who took IDs');
$admin->query_safe('RESET lock_timeout');
send_to($admin, relabel('held', label(40, '2020-01-01 00:00:00+00')));
wait_for_lock($node, 'SECURITY LABEL%');
draw($other, 'held');
$other->query_safe('COMMIT');
$admin->query('');
fits(draw($other, 'held'), 'held', 'in force once they are through');
$admin->query_safe('BEGIN; ' . relabel('held', label(40, '2019-01-01 00:00:00+00')));
is(error_in($other, q{SET lock_timeout = '100 ms'; SELECT snowflake_nextval('held')}), '55P03', 'and they wait for it');
$other->query_safe('RESET lock_timeout');
send_to($other, q{SELECT snowflake_nextval('held')});
wait_for_lock($node, 'SELECT snowflake_nextval%');
$admin->query_safe('COMMIT');
push @{ drawn('held') }, scalar $other->query('');
fits(drawn('held')->[-1], 'held', 'the session that waited issues by the new label');

# Two changes at once: the second is checked against the result of the first.
$admin->query_safe('BEGIN; ' . relabel('held', label(40, '2018-01-01 00:00:00+00')));
send_to($third, relabel('held', label(40, '2018-07-01 00:00:00+00')));
wait_for_lock($node, 'SECURITY LABEL%2018-07%');
$admin->query_safe('COMMIT');
$third->query('');
like($third->{stderr}, qr/ERROR:\s+55000:/, 'the second of two changes is checked against the first');
$third->{stderr} = '';
is(label_of('held'), label(40, '2018-01-01 00:00:00+00'), 'and the first is in force');
draw($other, 'held');
$admin->query_safe('BEGIN; ' . relabel('held', label(40, '2017-01-01 00:00:00+00')));
send_to($third, relabel('held', label(40, '2017-07-01 00:00:00+00')));
wait_for_lock($node, 'SECURITY LABEL%2017-07%');
$admin->query_safe('ROLLBACK');
is($third->query(''), '', 'the second after a rollback of the first');
is(label_of('held'), label(40, '2017-07-01 00:00:00+00'), 'is in force');
fits(draw($_, 'held'), 'held', 'for all') for $admin, $other, $third;

# Arguments of two sessions at once: the second changes the label that the first has made.
create_generator($node, 'twice', 'preset=default');
$admin->query_safe(q{BEGIN; COMMENT ON SEQUENCE twice IS 'locked'});
is((error_of($node, q{SET lock_timeout = '9 s'; SET ROLE bob; SELECT snowflake_alter_generator('twice', max_rollback => '3 d')}))[0],
	'42501', 'who is not the owner waits for no lock');
send_to($third, q{SELECT snowflake_alter_generator('twice', max_rollback => '2 d')});
wait_for_lock($node, 'SELECT snowflake_alter%2 d%');
$admin->query_safe(q{SELECT snowflake_alter_generator('twice', on_exhausted => 'error'); COMMIT});
is($third->query(''), '', 'the second of two alterations');
is(label_of('twice'), q{preset=default max_rollback='2 d' on_exhausted=error}, 'keeps what the first has changed');

# A change is prepared, and committed in another life of the server.
$admin->query_safe('BEGIN; ' . relabel('held', label(40, '2016-01-01 00:00:00+00')) . q{; PREPARE TRANSACTION 'p'});
crash($node);
reconnect();
is(error_in($other, q{SET lock_timeout = '100 ms'; SELECT snowflake_nextval('held')}), '55P03', 'a prepared change is waited for');
$admin->query_safe(q{COMMIT PREPARED 'p'});
fits(draw($other, 'held'), 'held', 'a prepared change, after a crash');
check_ids('changes in the way of each other', drawn('held'));

# A change that may still be rolled back gives no IDs, since the former layout could
# issue these IDs again. A change to a label of the same meaning does give IDs.
create_generator($node, 'undone', $base);
draw($other, 'undone');
for my $end ('ROLLBACK', 'ROLLBACK TO a; COMMIT')
{
	$admin->query_safe('BEGIN');
	draw($admin, 'undone');
	$admin->query_safe('SAVEPOINT a; ' . relabel('undone', label(41, '2021-01-01 00:00:00+00', q{max_rollback='2 d'})));
	draw($admin, 'undone');
	$admin->query_safe('SAVEPOINT b; ' . relabel('undone', label(41, '2020-12-31 23:00:00+00')));
	my ($code, $text) = error_in($admin, q{SAVEPOINT c; SELECT snowflake_nextval('undone'); ROLLBACK TO c});
	is($code, '55000', 'no IDs by an epoch that may be rolled back');
	like($text, qr/HINT:.*Commit/, 'the hint says what to do');
	isnt(error_in($admin, q{SELECT snowflake_advance('undone', now()); ROLLBACK TO c}), '', 'nor is it advanced');
	$admin->query_safe('ROLLBACK TO b');
	draw($admin, 'undone');
	$admin->query_safe($end);
	is(label_of('undone'), $base, "$end: the old label is in force");
	fits(draw($_, 'undone'), 'undone', "after $end") for $admin, $other;
	crash($node);
	reconnect();
	fits(draw($other, 'undone'), 'undone', "after $end and a crash");
}
check_ids('changes that were rolled back', drawn('undone'));
# No IDs are given either if the generator has issued none, in the same transaction or
# in one with two changes.
for my $changes ([ 'preset=sonyflake' ], [ undef, 'preset=sonyflake' ], [ $base, 'preset=sonyflake' ])
{
	$node->safe_psql('postgres', 'DROP SEQUENCE IF EXISTS early');
	create_generator($node, 'early', $base);
	$admin->query_safe('BEGIN');
	$admin->query_safe(relabel('early', $_)) for @$changes;
	is(error_in($admin, q{SELECT snowflake_nextval('early')}), '55000', 'no IDs by a layout that may be rolled back');
	$admin->query_safe('ROLLBACK');
	fits(draw($_, 'early'), 'early', 'none was issued') for $admin, $other;
}
# IDs are given in the transaction, or the subtransaction, that has made the sequence.
$admin->query_safe("BEGIN; SAVEPOINT a; SELECT snowflake_create_generator('made', 'preset=sonyflake'); " . relabel('made', $base));
draw($admin, 'made');
$admin->query_safe('RELEASE a; COMMIT');
fits(draw($other, 'made'), 'made', 'made and changed in one transaction');
check_ids('made and changed', drawn('made'));

# A change to an epoch that is an hour earlier is rolled back: an hour later, the old
# label reaches the ticks of the new one. Ticks of 10 s that start at 0 leave nothing to
# chance.
my $slow = q{layout='time:31 worker:10 sequence:12' epoch='2021-01-01 00:00:00+00' tick='10 s' max_borrow=0 sequence_start=zero};
create_generator($node, 'slow', $slow);
my @slow = $other->query_safe(q{SELECT snowflake_nextval('slow')});
$admin->query_safe('BEGIN; ' . relabel('slow', $slow =~ s/2021-01-01 00/2020-12-31 23/r));
push @slow, split /\n/, scalar $admin->query(q{SELECT snowflake_nextval('slow') FROM generate_series(1, 10)});
$admin->{stderr} = '';
$admin->query_safe('ROLLBACK');
push @slow, $other->query_safe(q{SELECT snowflake_nextval('slow')});
$node->stop;
start_with_clock($node, clock_of($node) + 3600 - 60);
reconnect();
for (1 .. 16)
{
	push @slow, split /\n/, $other->query_safe(q{SELECT snowflake_nextval('slow') FROM generate_series(1, 20)});
	# The generator goes to the next tick, without waiting for it.
	$other->query_safe(q{SELECT snowflake_advance('slow', snowflake_timestamp(snowflake_currval('slow'), 'slow') + interval '10 s')});
}
my %slow;
is(scalar(grep { $slow{$_}++ } @slow), 0, 'an hour after a rolled back change by an hour: no ID twice, of ' . @slow);

# Clients issue IDs all the time while the label changes again and again: each ID fits
# the label in force, no ID is issued twice, and the IDs of each session increase.
restart();
create_generator($node, 'busy', $base);
$node->safe_psql('postgres', 'CREATE TABLE seen (n bigserial, client int, id bigint, at timestamptz, clock timestamptz, worker bigint, label text)');
my $script = $node->basedir . '/busy.sql';
append_to_file($script, q{
BEGIN;
SELECT snowflake_nextval('busy') AS a \gset
SELECT snowflake_nextval('busy') AS b \gset
INSERT INTO seen (client, id, at, clock, worker, label)
SELECT :client_id, id, d.created_at, clock_timestamp(), d.worker_id, l.label
FROM unnest(ARRAY[:a, :b]) AS id, snowflake_decode(id, 'busy') AS d, pg_seclabel AS l
WHERE l.objoid = 'busy'::regclass;
COMMIT;
});
my ($bench_out, $bench_err) = ('', '');
my $bench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', '4', '-j', '2', '-T', '5', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$bench_out, '2>', \$bench_err);
wait_until('it runs', sub { $node->safe_psql('postgres', 'SELECT count(*) FROM seen') > 20 });
my ($rounds, $back, $refused) = (0, 0, 0);
my @inside;
while ($bench->pumpable)
{
	$bench->pump_nb;
	# Each epoch is a quarter of a second earlier: less than the time that passes before
	# the next change, if it were undone.
	my $new = 1609459200000 - 250 * ($back + 1);
	my $label = label($rounds % 2 ? 41 : 40, '2021-01-01 00:00:00+00') =~ s/epoch='[^']*'/epoch=$new/r;
	$label =~ s/time:40/time:41/ if $rounds > 3;
	if ($rounds % 4 == 3)
	{
		my $now = 1609459200000 - 250 * $back;
		$label =~ s/epoch=\d+/epoch=$now/;
		$label =~ s/sequence_start=zero/sequence_start='vibrate 99'/;
		$admin->query_safe('BEGIN; SAVEPOINT a; ' . relabel('busy', $label));
		push @inside, split /\n/, $admin->query_safe(q{SELECT snowflake_nextval('busy') FROM generate_series(1, 20)});
		$admin->query_safe($rounds % 8 == 3 ? 'ROLLBACK' : 'ROLLBACK TO a; COMMIT');
	}
	elsif ($rounds % 4 == 1)
	{
		my $later = 1609459200000 + 86400000;
		my ($code) = error_in($admin, relabel('busy', $label =~ s/epoch=\d+/epoch=$later/r));
		$refused++ if $code eq '55000';
	}
	else
	{
		# Only a narrower time is refused, in the first rounds.
		my ($code) = error_in($admin, relabel('busy', $label));
		$back++ if $code eq '';
		isnt($code, $rounds > 3 ? '55000' : '40P01', 'no other error') if $code ne '';
	}
	$rounds++;
}
ok($bench->finish, "clients took IDs during $rounds changes, $back to an earlier epoch, $refused refused") or diag $bench_err;
cmp_ok($back, '>', 3, 'the label was changed');
cmp_ok(scalar(@inside), '>', 0, 'and changed back');
cmp_ok($refused, '>', 0, 'a later epoch was refused');
is($node->safe_psql('postgres', 'SELECT count(*) > 100, count(*) = count(DISTINCT id) FROM seen'), 't|t', 'while it changes: no ID twice');
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen WHERE id = ANY (ARRAY[' . join(',', @inside, -1) . ']::bigint[])'), '0',
	'nor any of the ' . @inside . ' that were issued inside what was rolled back');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT id < lag(id) OVER (PARTITION BY client ORDER BY n) AS back FROM seen) AS s WHERE back}), '0',
	q{while it changes: each session's IDs increase});
is($node->safe_psql('postgres', q{SELECT count(*), max(clock - at), max(at - clock) FROM seen WHERE worker <> 3 OR at NOT BETWEEN clock - interval '60 s' AND clock + interval '60 s'}), '0||',
	'while it changes: each ID is one of the label in force');
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT label) FROM seen'), '>', 2, 'and clients have seen labels change');
my $highest = $node->safe_psql('postgres', 'SELECT max(id) FROM seen');
crash($node);
reconnect();
my $id = draw($other, 'busy');
cmp_ok($id, '>', $highest, 'above all after a crash');
fits($id, 'busy', 'by the label in force');
$_->quit for $admin, $other, $third;

done_testing();
