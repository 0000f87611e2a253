# An etcd of one or several members for the TAP tests: the distribution's program, with
# its data in the test's own folder. Members can be killed, frozen and started again.
package Etcd;

use strict;
use warnings;
use File::Path qw(rmtree);
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use MIME::Base64;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use Snowflake;

sub is_there { my ($program) = @_; return grep { -x "$_/$program" } split /:/, $ENV{PATH}; }

# Says why there can be no etcd here; '' if there can be one.
sub missing
{
	for my $program (qw(etcd etcdctl openssl)) { return "$program is not installed" if !is_there($program); }
	return '';
}

# Makes an etcd of this many members, and starts them. Options are `tls`, the options of
# etcdctl that name certificates, `folder`, the data of an only member, `prefix`, the prefix of
# the registry if it is the default one, and arguments of etcd.
sub new
{
	my ($class, $name, $count, %options) = @_;
	my $tls = delete $options{tls};
	my $folder = delete $options{folder};
	my $prefix = delete $options{prefix};
	my $self = bless { name => $name, scheme => $tls ? 'https' : 'http', tls => $tls // [], arguments => [ map { $options{$_} eq '' ? $_ : ($_, $options{$_}) } sort keys %options ],
		members => [], lost => '', in_url => $prefix ? '' : '/test', prefix => $prefix // '/test' }, $class;
	for my $number (1 .. $count)
	{
		push @{ $self->{members} }, {
			name => "$name$number", folder => $folder // PostgreSQL::Test::Utils::tempdir() . "/$name$number",
			client => PostgreSQL::Test::Cluster::get_free_port(), peer => PostgreSQL::Test::Cluster::get_free_port() };
	}
	$self->start_member($_) for 0 .. $count - 1;
	$self->wait_until_up;
	return $self;
}

sub members { my ($self) = @_; return 0 .. $#{ $self->{members} }; }

sub peers { my ($self) = @_; return join ',', map { "$_->{name}=http://127.0.0.1:$_->{peer}" } @{ $self->{members} }; }

sub start_member
{
	my ($self, $number) = @_;
	my $member = $self->{members}[$number];
	my $client = "$self->{scheme}://127.0.0.1:$member->{client}";
	my @command = ('etcd', '--name', $member->{name}, '--data-dir', $member->{folder},
		'--listen-client-urls', $client, '--advertise-client-urls', $client,
		'--listen-peer-urls', "http://127.0.0.1:$member->{peer}", '--initial-advertise-peer-urls', "http://127.0.0.1:$member->{peer}",
		'--initial-cluster', $self->peers, '--initial-cluster-token', $self->{name}, @{ $self->{arguments} });
	defined(my $pid = fork) or die "fork: $!";
	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', "$PostgreSQL::Test::Utils::log_path/$member->{name}.log";
		open STDERR, '>&', \*STDOUT;
		delete local @ENV{ grep { /^ETCD/ } keys %ENV };
		exec @command or die "etcd: $!";
	}
	$member->{pid} = $pid;
	return;
}

sub signal { my ($self, $signal, @numbers) = @_; kill $signal, $self->{members}[$_]{pid} for @numbers; return; }
sub freeze { my ($self, @numbers) = @_; return $self->signal('STOP', @numbers); }
sub thaw { my ($self, @numbers) = @_; return $self->signal('CONT', @numbers); }

sub kill_members
{
	my ($self, @numbers) = @_;
	@numbers = grep { $self->{members}[$_]{pid} } @numbers;
	$self->signal('KILL', @numbers);
	for (@numbers) { waitpid $self->{members}[$_]{pid}, 0; delete $self->{members}[$_]{pid}; }
	return;
}

END
{
	my $status = $?;
	for (our @all) { for (grep { $_->{pid} } @{ $_->{members} }) { kill 'KILL', $_->{pid}; waitpid $_->{pid}, 0; } }
	$? = $status;
}

# Calls a member, by default the first one that answers.
sub call
{
	my ($self, $path, $body, @numbers) = @_;
	@numbers = $self->members if !@numbers;
	my $answer;
	for (@numbers)
	{
		my $member = $self->{members}[$_];
		$answer = HTTP::Tiny->new(timeout => 3)->post("http://127.0.0.1:$member->{client}$path", { content => encode_json($body) });
		return decode_json($answer->{content}) if $answer->{success};
	}
	return;
}

sub wait_until_up
{
	my ($self) = @_;
	our @all;
	push @all, $self if !grep { $_ == $self } @all;
	return wait_until("$self->{name} answers", sub { $self->try_etcdctl('endpoint', 'health') });
}

# The number of the member that leads. Waits for an election that is under way.
sub leader
{
	my ($self) = @_;
	my $leader;
	wait_until("a leader of $self->{name}", sub {
		for my $number ($self->members)
		{
			my $status = $self->call('/v3/maintenance/status', {}, $number) or next;
			$leader = $number if ($status->{leader} // '') eq $status->{header}{member_id};
		}
		return defined $leader; });
	return $leader // die 'there is no leader';
}

# The keys below a part of the prefix: name and value.
sub entries
{
	my ($self, $part) = @_;
	my $key = "$self->{prefix}/$part/";
	my $read = $self->call('/v3/kv/range', { key => encode_base64($key, ''), range_end => encode_base64($key =~ s{/$}{0}r, '') });
	return map { my ($name, $value) = map { decode_base64($_) } @$_{qw(key value)}; substr($name, length $key) => $value } @{ $read->{kvs} // [] };
}

# The row of a worker ID, as a hash.
sub row { my ($self, $id) = @_; my %rows = $self->entries('workers/default'); return decode_json($rows{ sprintf '%010d', $id } // '{}'); }

# Worker IDs of all namespaces and their bounds, as Leases::check_all wants them, with
# those of data that was lost. The tests have no worker ID in two namespaces.
sub bounds
{
	my ($self) = @_;
	return join "\n", $self->{lost} || (), bounds_of($self->entries('workers'));
}

# The bounds of rows.
sub bounds_of { my (%entries) = @_; return map { sprintf '%d|%d', m{/(\d+)$}, decode_json($entries{$_})->{bound} } sort keys %entries; }

# The URL of the registry.
sub url
{
	my ($self) = @_;
	return sprintf 'etcd://%s%s', join(',', map { "127.0.0.1:$_->{client}" } @{ $self->{members} }), $self->{in_url};
}

# Runs etcdctl at the first member. The first function says whether it went well.
sub try_etcdctl
{
	my ($self, @arguments) = @_;
	local $ENV{ETCDCTL_API} = 3;
	my @command = ('etcdctl', '--endpoints', "$self->{scheme}://127.0.0.1:$self->{members}[0]{client}", @{ $self->{tls} }, @arguments);
	return IPC::Run::run(\@command, '<', \'', '>', \my $out, '2>', \my $error);
}

sub etcdctl { my ($self, @arguments) = @_; return $self->try_etcdctl(@arguments) || die "etcdctl @arguments failed"; }

# Kills the only member, and takes its data away. What it has stored until then counts on:
# another one reads it from the data.
sub lose_data
{
	my ($self) = @_;
	my $member = $self->{members}[0];
	$self->kill_members(0);
	my $read = Etcd->new("$member->{name}_lost", 1, folder => $member->{folder}, prefix => $self->{in_url} eq '' ? $self->{prefix} : undef);
	$self->{lost} = join "\n", $self->{lost} || (), $read->bounds;
	$read->kill_members(0);
	rmtree($member->{folder});
	return;
}

# Deletes all keys under the prefix. What they had stored until then counts on.
sub delete_keys
{
	my ($self) = @_;
	my $deleted = $self->call('/v3/kv/deleterange', { key => encode_base64("$self->{prefix}/", ''), range_end => encode_base64("$self->{prefix}0", ''),
		prev_kv => JSON::PP::true });
	my %entries = map { decode_base64($_->{key}) => decode_base64($_->{value}) } @{ $deleted->{prev_kvs} // [] };
	my @rows = grep { m{/workers/} } sort keys %entries;
	$self->{lost} = join "\n", $self->{lost} || (), bounds_of(map { $_ => $entries{$_} } @rows);
	return scalar @rows;
}

# Puts a snapshot in the place of the only member's data, under the same names.
sub restore
{
	my ($self, $snapshot) = @_;
	my $member = $self->{members}[0];
	$self->lose_data;
	local $ENV{ETCDCTL_API} = 3;
	# Later versions have a program of its own for that.
	PostgreSQL::Test::Utils::system_or_bail(is_there('etcdutl') ? 'etcdutl' : 'etcdctl', 'snapshot', 'restore', $snapshot, '--data-dir', $member->{folder}, '--name', $member->{name},
		'--initial-cluster', $self->peers, '--initial-cluster-token', $self->{name}, '--initial-advertise-peer-urls', "http://127.0.0.1:$member->{peer}");
	$self->start_member(0);
	return $self->wait_until_up;
}

1;
