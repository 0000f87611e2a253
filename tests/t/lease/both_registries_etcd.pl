# Runs both_registries.pl, which tests what a server may expect of a registry, with one in an etcd of three members.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Test::More;
use Etcd;

plan skip_all => Etcd::missing() if Etcd::missing();
$ENV{REGISTRY} = 'etcd';
require "$FindBin::RealBin/both_registries.pl";
