# Tests that servers need one line for leases from an etcd, `snowflake_id.registry`: the first
# one that asks makes the registry, two at once make one, and a prefix that somebody has
# deleted begins with a grace period, and only a server that remembers no registry there makes it.
# Under another prefix, and in another pool, nothing is made.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Etcd;
use Leases;
use Snowflake;

plan skip_all => Etcd::missing() if Etcd::missing();

my $etcd = Etcd->new('single', 1, prefix => '/snowflake_id');
my $url = $etcd->url;
my $template = template_of('template');
my ($a, $b, $c, $d) = map { member($template, $_, "snowflake_id.registry = '$url'") } qw(a b c d);
sub pools { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT pool, worker_ids, era, grace_because FROM snowflake_pools'); }
sub waits_for_grace { my ($node) = @_; return worker($node, 'last_error') =~ /^The registry was just made by the first server that asked\./; }

# Two servers at once.
is($etcd->entries('pools'), 0, 'there is nothing yet');
is(parallel(sub { 'pg_ctl -w -D ' . $_[0]->data_dir . ' -l ' . $_[0]->logfile . ' start' }, $a, $b), 0, 'two servers start');
for my $node ($a, $b)
{
	wait_until('the registry is new', sub { waits_for_grace($node) });
	is(pools($node), 'default|[0,1024)|2|new', 'there is one pool, and it begins as a loss');
	unlike(slurp_file($node->logfile), qr/remembers of it/, 'both have asked one registry');
}
$a->safe_psql('postgres', 'SELECT snowflake_end_grace_period()');
first_id($_, 'the grace period is ended, at the registry of the setting') for $a, $b;
is(join(' ', sort(map { worker($_, 'worker_id') } $a, $b)), '0 1', 'two worker IDs');
is($b->safe_psql('postgres', 'SELECT string_agg(DISTINCT state, $$ $$), count(*) FROM snowflake_workers'), 'leased|2', 'each server sees both leases');
is((error_of($a, 'SELECT snowflake_create_pool()'))[0], '42710', 'an administrator makes the pool of the setting, which exists');
$a->safe_psql('postgres', q{SELECT snowflake_create_pool('more', '[2000,2010)'); SELECT snowflake_drop_pool('more')});

# A generator that cannot hold the worker IDs of the pool.
my ($code, $text) = error_of($a, q{SELECT snowflake_create_generator('narrow', $$layout='time:41 worker:5 sequence:12' epoch=1735689600000$$)});
is($code, '22023', 'refused, though the worker ID of now fits');
like($text, qr/generator narrow cannot hold all worker IDs of pool "default".*HINT:.* made with worker_ids => '\[0,32\)'/s, 'with the way out');
my (undef, $warning);
$a->psql('postgres', q{CREATE SEQUENCE narrow; SECURITY LABEL FOR snowflake_id ON SEQUENCE narrow IS $$layout='time:41 worker:5 sequence:12' epoch=1735689600000$$}, stderr => \$warning);
like($warning, qr/WARNING:  generator narrow cannot hold all worker IDs of pool "default"/, 'a label, as a dump has it, is warned of');
like($a->safe_psql('postgres', q{SELECT problem FROM snowflake_generators WHERE generator = 'narrow'::regclass}), qr/cannot hold all worker IDs/, 'the view says it afterwards');
is((error_of($a, q{SELECT snowflake_create_generator('wide', $$layout='time:41 worker:10 sequence:12' epoch=1735689600000$$)}))[0], '', 'a field that holds them');

# The prefix is deleted under load. The holders remember their registry, and make none.
$c->start;
first_id($c, 'a third server');
my @holders = ($a, $b, $c);
start_load($_) for @holders;
wait_for_ids($_, 'all is well') for @holders;
is($etcd->delete_keys, 3, 'what was stored is gone');
for my $node (@holders)
{
	wait_until('a holder is told', sub { worker($node, 'last_error') =~ /^Nothing is stored in etcd under this prefix, though this server has asked a registry there before\./ });
}
is($etcd->entries('pools'), 0, 'they make no registry');
# One that starts does.
$d->start;
wait_until('the registry is new again', sub { waits_for_grace($d) });
like(pools($d), qr/^default\|\[0,1024\)\|(?:2\|new|3\|foreign)$/, 'it begins as a loss');
for my $node (@holders)
{
	wait_until('the holder is told', sub { in_log($node, qr/The registry does not know what this server remembers of it/) > 0 });
}
is(pools($d), 'default|[0,1024)|3|foreign', 'they have shown that there was another registry');
$d->safe_psql('postgres', 'SELECT snowflake_end_grace_period()');
first_id($d, 'the prefix was deleted');
wait_for_ids($_, 'the prefix was deleted') for @holders;
take($d);
stop_load($_) for @holders;
check_all('the prefix was deleted', $etcd);

# An administrator makes it anew by hand, on a server that has a lease of before.
is($etcd->delete_keys, 4, 'the prefix is deleted again');
$a->safe_psql('postgres', 'SELECT snowflake_create_pool()');
# lease + hold + max_ahead; a minute and more once a holder has shown what it remembers.
like($a->safe_psql('postgres', q{SELECT begins - made FROM snowflake_pools}), qr/^00:(?:11:30|12:3\d(?:\.\d+)?)$/, 'new leases begin above what may be in force');

# What only an administrator makes.
my $other = member($template, 'other', "snowflake_id.registry = '$url/snowflake_other'");
my $mine = member($template, 'mine', "snowflake_id.registry = '$url'", q{snowflake_id.pool = 'mine'});
for my $case ([ $other, 'default' ], [ $mine, 'mine' ])
{
	my ($node, $pool) = @$case;
	$node->start;
	wait_until("pool $pool", sub { worker($node, 'last_error') eq "Pool \"$pool\" does not exist in etcd under this prefix; snowflake_create_pool() makes it." });
	$node->stop;
}
is(join(' ', keys %{ { $etcd->entries('pools') } }), 'default', 'no other pool was made');
like(pools($d), qr/^default\|\[0,1024\)\|[12]\|/, 'and no other registry');
$_->stop for $a, $b, $c, $d;
# Nor where there is any other key: somebody has deleted a part.
$etcd->delete_keys;
$etcd->etcdctl('put', '/snowflake_id/servers/left', '{}');
$c->start;
wait_until('a part is left', sub { worker($c, 'last_error') =~ /^Pool "default" does not exist in etcd/ });
is($etcd->entries('pools'), 0, 'and no pool was made');
$c->stop;
done_testing();
