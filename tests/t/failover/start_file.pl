# Tests the start file: a copy of a data directory that starts with the worker ID of its
# original warns once; so does a server that was moved. A restart, a crash and another
# worker ID do not, and no fault of the file stops a start.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $warning = qr/WARNING:  .*this server may be a copy of another one, with the same worker ID/;

# Returns how often the server has warned since its log was last looked at.
my %seen;
sub warnings_of
{
	my ($node) = @_;
	my $all = in_log($node, $warning);
	my $new = $all - ($seen{ $node->name } // 0);
	$seen{ $node->name } = $all;
	return $new;
}

sub file_of { return $_[0]->data_dir . '/snowflake_id.start'; }
sub text_of { return slurp_file(file_of($_[0])); }

# Returns a copy of the last backup, under the name of a new server.
sub restored
{
	my ($name, $original, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($original, 'copy', %options);
	return $node;
}

my $node = new_node('main', 7, allows_streaming => 1);
# pg_rewind reads WAL from before the last checkpoint.
$node->append_conf('postgresql.conf', "wal_keep_size = '512MB'");
$node->start;
is(warnings_of($node), 0, 'the first start');
my $first = text_of($node);
like($first, qr/^# Where this server last started.*^worker_id = 7$/ms, 'the file says what it is for');
my ($system, $inode) = ($node->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'),
	(stat $node->data_dir)[1]);
like($first, qr/^system_identifier = $system$/m, 'system identifier');
like($first, qr/^inode = $inode$/m, 'inode of the data directory');
is((stat file_of($node))[2] & 0777, (stat $node->data_dir . '/PG_VERSION')[2] & 0777, 'permissions as those of other files');
$node->restart;
is(warnings_of($node), 0, 'a restart');
isnt(text_of($node), $first, 'the file is written at each start');
$node->stop('immediate');
$node->start;
is(warnings_of($node), 0, 'a start after a crash of the whole server');
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->reload;
my $session = session($node);
my $pid = $session->query_safe('SELECT pg_backend_pid()');
my $before = text_of($node);
kill 'KILL', $pid;
wait_until('restart after the crash of a session', sub { text_of($node) ne $before && $node->poll_query_until('postgres', 'SELECT true') });
is(warnings_of($node), 0, 'a restart after the crash of a session');

# A base backup.
$node->backup('copy');
my $clone = restored('clone', $node);
$clone->start;
is(warnings_of($clone), 1, 'a copy with the worker ID of its original');
my ($said) = slurp_file($clone->logfile) =~ /($warning.*?HINT:[^\n]*)/s;
my ($there, $here) = ($node->data_dir, $clone->data_dir);
like($said, qr/DETAIL:  The data directory was last started at \d{4}-.*, in "\Q$there\E" on host .*; now it is started in "\Q$here\E"/, 'from where');
like($said, qr/What differs: path, inode of the directory/, 'what differs');
like($said, qr/HINT:  .*stop it, or set "snowflake_id\.worker_id".*If this server was moved, all is well\..*call snowflake_advance\(\)/, 'what to do');
$clone->restart;
is(warnings_of($clone), 0, 'the warning comes once');
my $standby = restored('standby', $node, has_streaming => 1);
$standby->start;
is(warnings_of($standby), 1, 'a standby with the worker ID of its primary');
my $other = restored('other', $node);
$other->append_conf('postgresql.conf', 'snowflake_id.worker_id = 8');
$other->start;
is(warnings_of($other), 0, 'a copy with a worker ID of its own');
like(text_of($other), qr/^worker_id = 8$/m, 'which it remembers');
my $decoding = restored('decoding', $node);
$decoding->append_conf('postgresql.conf', q{snowflake_id.worker_id = ''});
$decoding->start;
is(warnings_of($decoding), 0, 'a copy without a worker ID');

# pg_rewind brings the file of the other server, as it brings its configuration.
$clone->append_conf('postgresql.conf', 'wal_log_hints = on');
$clone->restart;
$clone->safe_psql('postgres', 'CREATE EXTENSION snowflake_id; CHECKPOINT');
$clone->backup('copy');
my $former = restored('former', $clone, has_streaming => 1);
$former->append_conf('postgresql.conf', 'snowflake_id.worker_id = 9');
$former->start;
$clone->wait_for_catchup($former);
$former->promote;
$former->safe_psql('postgres', 'CHECKPOINT');
is(warnings_of($former), 0, 'a standby with a worker ID of its own, which is promoted');
warnings_of($clone);
$clone->safe_psql('postgres', 'SELECT snowflake_nextval()');
$clone->stop;
command_ok([ 'pg_rewind', '-D', $clone->data_dir, '--source-server', $former->connstr('postgres') ], 'pg_rewind');
like(text_of($clone), qr/^worker_id = 9$/m, 'the file came along');
$clone->append_conf('postgresql.conf', 'port = ' . $clone->port);
$clone->start;
is($clone->safe_psql('postgres', 'SHOW snowflake_id.worker_id'), '9', 'and so did the worker ID');
is(warnings_of($clone), 1, 'a former primary that was rewound');
$clone->stop;

# A copy at the same path, after the original was moved away: only the inode tells.
$other->stop;
my $path = $other->data_dir;
rename $path, "$path.away" or die "rename: $!";
PostgreSQL::Test::RecursiveCopy::copypath("$path.away", $path);
chmod 0700, $path or die "chmod: $!";
$other->start;
is(warnings_of($other), 1, 'a copy at the same path');
like(slurp_file($other->logfile), qr/What differs: inode of the directory\. /, 'only its inode tells');

# A move to another machine, as the file shows it.
$other->stop;
my $text = text_of($other);
append_to_file(file_of($other), "machine_id = 0\nhost_name = elsewhere\n");
$other->start;
is(warnings_of($other), 1, 'a server that was moved to another machine');
like(slurp_file($other->logfile), qr/on host "elsewhere".*What differs: .*host name/, 'from which machine');

# A file that cannot be read or written stops no start.
$other->stop;
unlink file_of($other) or die "unlink: $!";
$other->start;
is(warnings_of($other), 0, 'without the file');
$other->stop;
append_to_file(file_of($other), "\x00\xff\n" x 1000);
$other->start;
is(warnings_of($other), 0, 'bytes that are no text');
$other->stop;
unlink file_of($other) or die "unlink: $!";
mkdir file_of($other) or die "mkdir: $!";
mkdir file_of($other) . '.tmp' or die "mkdir: $!";
$other->start;
is(warnings_of($other), 0, 'a file that cannot be written');
like(slurp_file($other->logfile), qr/LOG:  snowflake_id: could not write file "snowflake_id\.start": .*directory/, 'the log says why');
is($other->safe_psql('postgres', 'SELECT 1'), '1', 'the server runs');

done_testing();
