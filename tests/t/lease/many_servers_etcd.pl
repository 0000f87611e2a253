# Runs many_servers.pl, which tests many servers, with a registry in an etcd of three members.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Test::More;
use Etcd;

plan skip_all => Etcd::missing() if Etcd::missing();
$ENV{REGISTRY} = 'etcd';
require "$FindBin::RealBin/many_servers.pl";
