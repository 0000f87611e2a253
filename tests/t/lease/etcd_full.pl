# Tests that an etcd whose database is full is seen: the log, snowflake_status() and
# snowflake_check_registry() say so, and no longer once there is room again.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use MIME::Base64;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Etcd;
use Leases;
use Snowflake;

plan skip_all => Etcd::missing() if Etcd::missing();

my $etcd = Etcd->new('small', 1, '--quota-backend-bytes' => 8 << 20);
my $url = $etcd->url;
my $node = member(template_of('template'), 'node', "snowflake_id.registry = '$url'", q{snowflake_id.pool = 'some'});
$node->start;
$node->safe_psql('postgres', q{SELECT snowflake_create_pool('some', '[0,16)', lease => '2 s', hold => '1 s', max_ahead => '1 s')});
is(first_id($node, 'a lease'), 0, 'there is room');
sub rows_of { my ($function, $columns) = @_; return $node->safe_psql('postgres', "SELECT concat_ws('|', $columns) FROM $function() WHERE hint LIKE 'Compact%'"); }
sub status { return rows_of('snowflake_status', 'state, item, detail, hint, see'); }
sub check { return rows_of('snowflake_check_registry', 'state, item, detail, hint'); }
is(status() . check(), '', 'nothing is said of it');

my $key = encode_base64('/other', '');
my $value = encode_base64('x' x (1 << 20), '');
my $puts = 0;
$puts++ while $puts < 20 && $etcd->call('/v3/kv/put', { key => $key, value => $value });
cmp_ok($puts, '<', 20, 'others have filled etcd');
my $full = 'Etcd has set alarm NOSPACE, and takes no writes.';
my $hint = 'Compact and defragment etcd, and then disarm its alarm. Start its members with --auto-compaction-retention=1h.';
wait_until('the status says so', \&status);
is(status(), "warning|etcd|$full|$hint|docs/operations.md#etcd-grown", 'what it says');
is(check(), 'warning|registry|' . $url . ": $full|$hint", 'and so does the check of the registry');
my $log = qr/WARNING:  snowflake_id: the etcd of the registry takes no writes, or soon will not\n.*DETAIL:  \Q$full\E\n.*HINT:  \Q$hint\E\n/;
is(in_log($node, $log), 1, 'and the log');
wait_until('renewals fail', sub { worker($node, 'last_error') =~ /database space exceeded/ });

# What the hint says.
my $revision = $etcd->call('/v3/kv/range', { key => $key })->{header}{revision};
$etcd->etcdctl(@$_) for [ 'compact', $revision ], ['defrag'], [ 'alarm', 'disarm' ];
wait_until('there is room again', sub { status() eq '' });
wait_until('renewals', sub { worker($node, 'last_error') eq '' });
is(first_id($node, 'room'), 0, 'IDs resume');
is(check(), '', 'nothing is said of it any more');
is(in_log($node, $log), 1, 'the log has told once');
$node->stop;
done_testing();
