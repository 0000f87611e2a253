# Runs lease_failover.pl, which tests servers that are frozen, copied, promoted and rewound, with a registry in an etcd of three members.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Test::More;
use Etcd;

plan skip_all => Etcd::missing() if Etcd::missing();
$ENV{REGISTRY} = 'etcd';
require "$FindBin::RealBin/lease_failover.pl";
