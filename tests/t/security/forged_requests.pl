# Tests who may ask a registry: an application's role, a monitor and whoever reads or writes all
# data may not. Then what a server does that has gone wrong: with its clock, with texts that other
# servers would write into their logs, and with what it remembers of another registry.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Registry;
use Snowflake;

my $day = 86_400;
my $node = new_node('registry', 7);
$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION snowflake_id;
	CREATE ROLE honest LOGIN;
	CREATE ROLE mallory LOGIN;
	CREATE ROLE application LOGIN;
	GRANT ALL ON SCHEMA public TO application;
	CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
	CREATE ROLE clerk LOGIN IN ROLE pg_read_all_data, pg_write_all_data;
	GRANT EXECUTE ON FUNCTION _snowflake.lease(text, jsonb) TO honest, mallory;
	SELECT snowflake_create_pool('main', '[0,100)', lease => '3 s', hold => '1 s', max_ahead => '0')});
sub sql { return $node->safe_psql('postgres', $_[0]); }
# The bound that is furthest ahead of the registry's clock, in seconds.
sub furthest { return sql(q{SELECT ceil(extract(epoch FROM max(bound) - clock_timestamp())) FROM snowflake_workers}); }
sub registry { return sql(q{SELECT era, grace_until IS NULL, stopped_since IS NULL FROM snowflake_pools}); }
sub kinds { my %kinds; $kinds{$_}++ for @_; return join ', ', map { "$kinds{$_} $_" } sort keys %kinds; }
my @mallory = (role => 'mallory');

my $honest = server(1);
my $id = granted(acquire($node, $honest, role => 'honest'));
# A new registry may be told by anybody, once, that it has replaced another one.
ok(wait_until('the registry is no new one any more', sub {
	sql(q{SELECT clock_timestamp() > made + 2 * (lease + hold) FROM snowflake_pools}) eq 't' }), 'the registry has been there for a while');
sub stays { my ($what) = @_;
	is(registry(), '1|t|t', "$what: the registry is neither in a grace period nor stopped");
	is(kind(renew($node, $honest, role => 'honest')), 'renewed', "$what: others are renewed"); return; }
# The lease has ended, and nobody else has got it.
stays('at first');

# Who may not ask.
my $stranger = server(3);
my $request = request($stranger, { acquire => {} });
for my $role (qw(application monitor clerk))
{
	for my $call ("_snowflake.lease('main', '$request')", "_snowflake.lease('main', '{}')", "snowflake_revoke_worker('main', $id)",
		'snowflake_declare_registry()', "snowflake_create_pool('more', '[100,200)')", "snowflake_drop_pool('main')")
	{
		is((error_of($node, "SET SESSION AUTHORIZATION $role; SELECT $call"))[0], '42501', "$role: $call");
	}
	# PostgreSQL's own role may write all tables, the registry's too.
	is((error_of($node, "SET SESSION AUTHORIZATION $role; UPDATE _snowflake.leases SET lease = NULL"))[0],
		$role eq 'clerk' ? '23502' : '42501', "$role: the tables");
}
stays('strangers');

# Clocks: of servers that do not exist, which are refused or hold worker IDs.
is(kinds(map { kind(acquire($node, server(100 + $_, offset => 60 * 365 * $day), @mallory)) } 1 .. 20),
	'20 refused too_far_ahead', 'clocks of 60 years ahead');
my @made_up = map { server(200 + $_, offset => $day - 60) } 1 .. 20;
granted(acquire($node, $_, @mallory)) for @made_up[ 0 .. 2 ];
is(kinds(map { kind(acquire($node, server(300 + $_, offset => $day + 60), @mallory)) } 1 .. 17),
	'17 refused too_far_ahead', 'no server vouches that holds nothing');
cmp_ok(furthest(), '<=', $day, 'no bound is more than a day ahead');
# Each of three renews with the latest clock that is accepted, again and again.
my @renewed;
for my $round (1 .. 7)
{
	for my $server (@made_up[ 0 .. 2 ])
	{
		for my $days (reverse 1 .. 9)
		{
			$server->{offset} = $days * $day - 60;
			my $kind = kind(renew($node, $server, @mallory));
			push @renewed, "$round: $days" if $kind eq 'renewed';
			last if $kind eq 'renewed';
		}
	}
}
is(scalar @renewed, 21, 'three servers renew their leases');
cmp_ok(furthest(), '<=', 7 * $day, 'and vouch for each other up to a limit');
stays('clocks');
my $new = server(2);
granted(acquire($node, $new, role => 'honest'));
cmp_ok($new->{grant}{floor}, '<', (time + 10) * 1000, 'a new server is not ahead of its clock');

# The next start of a server.
my $next = incarnation($honest);
is(granted(acquire($node, $next, fixed => $id, role => 'honest')), $id, 'the same server has its worker ID at once');
$honest = $next;

# Texts that others print.
for my $case ([ host => "db\x{1b}[2J" ], [ host => "db\nLOG:  all is well" ], [ data_directory => "/srv/\x{9b}31m" ], [ address => "\x{7f}" ],
	[ host => 'x' x 256 ], [ address => 'x' x 256 ], [ data_directory => 'x' x 1024 ])
{
	my ($field, $text) = @$case;
	my $request = JSON::PP->new->ascii->decode(request(server(800), { acquire => {} }));
	$request->{asker}{$field} = $text;
	my $json = JSON::PP->new->ascii->encode($request);
	my ($code, $error) = error_of($node, "SELECT _snowflake.lease('main', \$json\$$json\$json\$)");
	is($code, '22023', "a text that is not fit: $field");
	like($error, qr/ERROR:  22023: "$field" of a request to a registry of worker IDs (?:has control characters|is longer than \d+ bytes)\n.*^HINT:  Other servers write it into their logs\. /ms, 'and why');
	unlike($error, qr/\e|\x{9b}|\x{7f}|all is well|xxxx/, 'it is not shown');
}
is(kind(acquire($node, server(801, host => 'x' x 255, data_directory => '/' . 'x' x 1022))), 'granted', 'long texts that are fit');

# The address is that of the connection.
my $local = server(900, address => '192.0.2.1');
granted(acquire($node, $local, @mallory));
is(sql("SELECT coalesce(nullif(address, ''), 'none') FROM snowflake_workers WHERE worker_id = $local->{grant}{worker}"), 'none', 'of a socket: none');
my $remote = server(901, address => '192.0.2.1');
$request = request($remote, { acquire => {} });
my $reply = $node->safe_psql('postgres', "SELECT _snowflake.lease('main', '$request')",
	connstr => 'host=127.0.0.1 port=' . $node->port . ' dbname=postgres user=mallory');
my $far = granted(Registry::take_in($remote, $reply));
is(sql("SELECT address FROM snowflake_workers WHERE worker_id = $far"), '127.0.0.1', 'of a network connection: its own');

# A registry that is made anew, with the same worker IDs: the first server of the old one makes
# it wait, and nobody has to do anything.
$node->safe_psql('postgres', q{
	DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id;
	GRANT EXECUTE ON FUNCTION _snowflake.lease(text, jsonb) TO honest;
	SELECT snowflake_create_pool('main', '[0,100)', lease => '3 s', hold => '1 s', max_ahead => '0')});
my $bound = $next->{grant}{bound};
is(kind(renew($node, $next, role => 'honest')), 'refused foreign', 'another registry: refused');
is(sql('SELECT era, grace_because FROM snowflake_pools'), '2|foreign', 'another registry: it has a grace period');
is(kind(acquire($node, $next, role => 'honest')), 'refused grace foreign', 'another registry: its server waits as all do');
ok(wait_until('the end of the grace period', sub { kind(acquire($node, $next, role => 'honest')) eq 'granted' }), 'another registry: it serves');
cmp_ok($next->{grant}{floor}, '>', $bound, 'another registry: above all that the old one had granted');

# A crash whose witness is gone, and a clean stop before anybody has asked: the crash is known.
$node->stop('immediate');
unlink witnesses($node);
$node->start;
$node->restart;
is(kind(acquire($node, server(960), role => 'honest')), 'refused grace recovery', 'a clean restart does not hide a crash');
is(sql('SELECT era FROM snowflake_pools'), '3', 'an era has begun');
ok(wait_until('the end of the grace period', sub { kind(acquire($node, $next, role => 'honest')) eq 'granted' }), 'which ends');
$node->restart;
is(kind(renew($node, $next, role => 'honest')), 'renewed', 'after clean restarts alone, leases go on');
is(sql('SELECT era FROM snowflake_pools'), '3', 'in the same era');
done_testing();
