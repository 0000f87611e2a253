# Tests who may let generators lease worker IDs of their own: a right to use a pool is USAGE on
# the foreign server of its name, and only a superuser makes one. The owner of a database tries
# all that he may: wrappers and servers of his own, owners, the extension made anew, a dump.
# The registry is not there: what a generator lacks is told before any registry is asked.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 7);
$node->append_conf('postgresql.conf', "snowflake_id.registry = 'host=/nowhere'\nsnowflake_id.pool = 'servers'");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE boss LOGIN CREATEDB; CREATE ROLE shop LOGIN; CREATE ROLE former SUPERUSER LOGIN; CREATE DATABASE shop OWNER boss');
sub sql { my ($sql, $role, $database) = @_; return $node->safe_psql($database // 'shop', $sql, extra_params => [ '-U', $role // (getpwuid $>)[0] ]); }
sub cannot
{
	my ($code, $sql, $database) = @_;
	return is((error_of($node, "SET SESSION AUTHORIZATION boss; $sql", $database // 'shop'))[0], $code, "the owner of the database cannot: $sql");
}

# Tells what a generator lacks: nothing, if only the registry is missing.
sub lacks { my ($name, $database) = @_; return sql("SELECT coalesce(problem, '') FROM snowflake_generators WHERE generator = '$name'::regclass", undef, $database); }

my $label = q{preset=worker_queue epoch='2025-01-01 00:00:00+00'};
sql('CREATE EXTENSION snowflake_id; CREATE SCHEMA ids', 'boss');
sql("SELECT snowflake_create_generator('ids.g', \$\$$label\$\$)", 'boss');
my $no_server = qr/this database has no foreign server for pool "generators".* CREATE SERVER generators FOREIGN DATA WRAPPER snowflake_pool$/;
like(lacks('ids.g'), $no_server, 'no server');

# What the owner of the database may not.
cannot('42501', 'CREATE SERVER generators FOREIGN DATA WRAPPER snowflake_pool');
cannot('42501', 'GRANT USAGE ON FOREIGN DATA WRAPPER snowflake_pool TO boss');
cannot('42501', 'ALTER FOREIGN DATA WRAPPER snowflake_pool OWNER TO boss');
cannot('42501', 'CREATE FOREIGN DATA WRAPPER mine');
cannot('42501', 'ALTER EXTENSION snowflake_id DROP FOREIGN DATA WRAPPER snowflake_pool');
cannot('42501', 'UPDATE pg_foreign_server SET srvowner = 10');

# A wrapper of another extension or without one, with which he may make servers. He owns the
# extension, and the wrapper is not his.
sql('CREATE FOREIGN DATA WRAPPER other; GRANT USAGE ON FOREIGN DATA WRAPPER other TO boss');
sql('CREATE SERVER generators FOREIGN DATA WRAPPER other', 'boss');
like(lacks('ids.g'), $no_server, 'a server with another wrapper');
cannot('42501', 'ALTER EXTENSION snowflake_id ADD FOREIGN DATA WRAPPER other');
# A role that was a superuser still owns what it has made, and may make it a member.
sql('GRANT boss TO former; CREATE FOREIGN DATA WRAPPER former', 'former');
sql('GRANT USAGE ON FOREIGN DATA WRAPPER former TO boss', 'former');
sql('ALTER ROLE former NOSUPERUSER');
sql('ALTER EXTENSION snowflake_id ADD FOREIGN DATA WRAPPER former', 'former');
sql('DROP SERVER generators; CREATE SERVER generators FOREIGN DATA WRAPPER former', 'boss');
like(lacks('ids.g'), qr/the foreign server for pool "generators" belongs to no superuser.* ALTER SERVER generators OWNER TO CURRENT_USER$/, 'a member, and a server, of no superuser');
sql('ALTER SERVER generators OWNER TO CURRENT_USER');
like(lacks('ids.g'), qr/belongs to no superuser/, 'nor if a superuser owns only the server');
sql('DROP SERVER generators; ALTER EXTENSION snowflake_id DROP FOREIGN DATA WRAPPER former; DROP FOREIGN DATA WRAPPER former');

# A server that a role with USAGE on the wrapper has made.
sql('GRANT USAGE ON FOREIGN DATA WRAPPER snowflake_pool TO boss');
sql('CREATE SERVER generators FOREIGN DATA WRAPPER snowflake_pool', 'boss');
like(lacks('ids.g'), qr/belongs to no superuser/, 'a server of no superuser');
sql('DROP SERVER generators; REVOKE USAGE ON FOREIGN DATA WRAPPER snowflake_pool FROM boss');

# A superuser makes the server, and grants its use.
sql('CREATE SERVER generators FOREIGN DATA WRAPPER snowflake_pool');
like(lacks('ids.g'), qr/owner "boss" of generator ids.g may not lease worker IDs of pool "generators".*GRANT USAGE ON FOREIGN SERVER generators TO boss/, 'no grant');
cannot('42501', 'ALTER SERVER generators OWNER TO boss');
cannot('42501', 'DROP SERVER generators');
sql('GRANT USAGE ON FOREIGN SERVER generators TO shop');
like(lacks('ids.g'), qr/may not lease/, 'a grant to others');
cannot('42501', 'ALTER SEQUENCE ids.g OWNER TO shop');
sql('GRANT CREATE, USAGE ON SCHEMA ids TO shop', 'boss');
sql("SELECT snowflake_create_generator('ids.s', \$\$$label\$\$)", 'shop');
is(lacks('ids.s'), '', 'a generator of a role with the grant');
sql("SELECT snowflake_create_generator('ids.\"The \"\"pool\"', \$\$$label pool='The \"it''s\" pool'\$\$)", 'shop');
like(lacks('ids."The ""pool"'), qr/no foreign server for pool "The "it's" pool".* CREATE SERVER "The ""it's"" pool" FOREIGN/, 'a pool with an odd name');
sql("SELECT snowflake_create_generator('ids.own', \$\$$label pool=servers\$\$)");
like(lacks('ids.own'), qr/pool "servers" is the one of this server/, 'the pool of the server, even for a superuser');

# A role with the grant uses up its share of the places, and no more: a call takes one, and waits for a registry in vain, and a generator
# that is dropped keeps its place.
sub call { my ($name, $role) = @_; return (error_of($node, "SET SESSION AUTHORIZATION $role; SET statement_timeout = '500ms'; SELECT snowflake_nextval('ids.$name')", 'shop'))[0]; }
sql('GRANT USAGE ON FOREIGN SERVER generators TO boss');
for my $n (1 .. 16)
{
	sql("SELECT snowflake_create_generator('ids.n$n', \$\$$label\$\$)", 'shop');
	is(call("n$n", 'shop'), '57014', "place $n of a role");
	sql("DROP SEQUENCE ids.n$n", 'shop');
}
is(call('s', 'shop'), '53400', 'no further one');
is(call('g', 'boss'), '57014', 'the place of another role');
sql("SELECT snowflake_create_generator('ids.n$_', \$\$$label\$\$)") for 1 .. 17;
is(call("n$_", (getpwuid $>)[0]), '57014', "place $_ of a superuser") for 1 .. 17;
sql("DROP SEQUENCE ids.n$_") for 1 .. 17;
sql('REVOKE USAGE ON FOREIGN SERVER generators FROM boss');

# A dump has the server and its grants. The owner of a database cannot restore them.
my $dump = PostgreSQL::Test::Utils::tempdir() . '/shop.sql';
command_ok([ 'pg_dump', '-d', $node->connstr('shop'), '-f', $dump ], 'a dump');
my $text = slurp_file($dump);
like($text, qr/^CREATE SERVER generators FOREIGN DATA WRAPPER snowflake_pool;$/m, 'has the server');
unlike($text, qr/^CREATE FOREIGN DATA WRAPPER snowflake_pool|^(GRANT|REVOKE).* FOREIGN DATA WRAPPER snowflake_pool/m, 'and not the wrapper');
$node->safe_psql('postgres', "CREATE DATABASE $_ OWNER boss") for 'copy', 'his';
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('copy'), '-f', $dump ], 'a superuser restores it');
is(lacks('ids.s', 'copy'), '', 'the grant is there');
like(lacks('ids.g', 'copy'), qr/may not lease/, 'and no other');
IPC::Run::run([ 'psql', '-X', '-q', '-U', 'boss', '-d', $node->connstr('his'), '-f', $dump ], '>', \my $out, '2>', \my $err);
like(lacks('ids.g', 'his'), $no_server, 'the owner of a database restores no server');

# The extension made anew has no servers.
cannot('2BP01', 'DROP EXTENSION snowflake_id');
sql('DROP EXTENSION snowflake_id CASCADE; CREATE EXTENSION snowflake_id', 'boss');
like(lacks('ids.s'), $no_server, 'nor has an extension that was made anew');
cannot('42501', 'CREATE SERVER generators FOREIGN DATA WRAPPER snowflake_pool');

$node->stop;
done_testing();
