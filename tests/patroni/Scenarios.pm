# What happens to a cluster of Patroni, one after the other, while clients insert.
package Scenarios;

use strict;
use warnings;
use Exporter 'import';
use Test::More;
use Time::HiRes qw(time sleep);
use Patroni;
use Snowflake;

our @EXPORT = qw(run_scenarios far_ahead);

sub run_scenarios
{
	my ($cluster) = @_;
	my $old;

	$cluster->scenario('switchover', sub { $cluster->switchover });

	$old = $cluster->wait_until_whole;
	$cluster->scenario('kill -9 of the postmaster', sub {
		my $pid = $cluster->postmaster($old);
		$cluster->kill_postmaster($old);
		wait_until('a new postmaster', sub { my $leader = $cluster->leader; $leader ne $old || ($cluster->postmaster($old) // $pid) != $pid });
		$cluster->wait_for_primary;
		$cluster->wait_until_whole; });

	# The server goes on without its Patroni, and another one is promoted beside it.
	for my $way ('kill -9 of Patroni', 'SIGSTOP of Patroni, past the TTL')
	{
		$old = $cluster->wait_until_whole;
		$cluster->scenario($way, sub {
			if ($way =~ /^kill/) { $cluster->kill_patroni($old); }
			else { $cluster->signal_patroni('STOP', $old); }
			my $new = $cluster->wait_for_primary($old);
			ok($cluster->takes_writes($old), 'there are two primaries');
			$cluster->wait_for_ids_of($way, $old, $new);
			$cluster->collect_rows;
			if ($way =~ /^kill/) { $cluster->start($old); }
			else { $cluster->signal_patroni('CONT', $old); }
			$cluster->wait_until_whole; });
	}

	$old = $cluster->wait_until_whole;
	$cluster->scenario('kill -9 of both', sub {
		$cluster->kill_patroni($old);
		$cluster->kill_postmaster($old);
		$cluster->wait_for_primary($old);
		$cluster->start($old);
		$cluster->wait_until_whole; });

	$old = $cluster->wait_until_whole;
	$cluster->scenario('SIGSTOP of the server, past the TTL', sub {
		my @frozen = $cluster->freeze($old);
		$cluster->wait_for_primary($old);
		$cluster->wait_for_ids('its former primary is frozen');
		$cluster->thaw(@frozen);
		$cluster->wait_until_whole; });

	$old = $cluster->wait_until_whole;
	my $new;
	$cluster->scenario('kill -9 of all, with a lag of 5 s', sub {
		my $lost = $cluster->lost($old);
		$cluster->stop_sending($old);
		sleep 5;
		$cluster->read_client($_) for @{ $cluster->{clients} };
		$cluster->collect_rows;
		$cluster->kill_patroni($old);
		$cluster->kill_server($old);
		$new = $cluster->wait_for_primary($old);
		cmp_ok($cluster->lost($new), '>', $lost, 'rows are lost, and their IDs are known'); });
	my $rewinds = () = $cluster->log_of($old) =~ /running pg_rewind/g;
	$cluster->scenario('pg_rewind, and the node is primary again', sub {
		$cluster->start($old);
		$cluster->wait_until_whole;
		cmp_ok(scalar(() = $cluster->log_of($old) =~ /running pg_rewind/g), '>', $rewinds, 'it was rewound');
		$cluster->switchover($old); });

	my ($replica) = $cluster->others($cluster->wait_until_whole);
	$cluster->scenario('reinit, and the node is primary', sub {
		$cluster->ctl("reinit shop $replica --force --wait");
		$cluster->wait_until_whole;
		is($cluster->switchover($replica), $replica, 'it is primary'); });

	$cluster->wait_until_whole;
	$cluster->scenario('nine switchovers', sub {
		my $from = time;
		$cluster->switchover_at_once for 1 .. 9;
		note(sprintf 'nine switchovers in %.0f s', time - $from);
		$cluster->wait_until_whole; });

	$old = $cluster->wait_until_whole;
	$cluster->scenario('SIGSTOP of etcd', sub {
		$cluster->etcd->freeze(0);
		wait_until('no primary', sub { !grep { $cluster->takes_writes($_) } $cluster->names });
		$cluster->etcd->thaw(0);
		$cluster->wait_until_whole; });

	# In any order: here etcd comes last, and nobody helps.
	$cluster->wait_until_whole;
	$cluster->scenario('kill -9 of everything, etcd too', sub {
		$cluster->kill_everything;
		$cluster->start($_) for $cluster->names;
		sleep 3;
		$cluster->etcd->start_member(0);
		$cluster->wait_for_primary;
		$cluster->wait_until_whole; });
	$cluster->wait_until_whole;
	return;
}

# A primary is so many seconds ahead of its clock, is lost together with the mark that
# tells so, comes back by pg_rewind, and is soon primary again. Then it is brought to the
# instant that it had lost. Many rows make sure that IDs of the same tick are compared.
sub far_ahead
{
	my ($cluster, $seconds) = @_;
	my $old = $cluster->wait_until_whole;
	my $instant = $cluster->sql($old, "SELECT clock_timestamp() + interval '$seconds s'");
	my $sql = "SELECT snowflake_advance('snowflake_default', timestamptz '$instant');
		INSERT INTO events (writer, number) SELECT 'ahead %s', n FROM generate_series(1, 50000) AS n";
	return $cluster->scenario("pg_rewind of a node whose IDs were $seconds s ahead", sub {
		$cluster->stop_sending($old);
		$cluster->sql($old, sprintf $sql, 'before');
		$cluster->collect_rows;
		$cluster->kill_patroni($old);
		$cluster->kill_server($old);
		$cluster->wait_for_primary($old);
		$cluster->start($old);
		$cluster->switchover($old);
		note('its clock is before that instant by ' . $cluster->sql($old, "SELECT timestamptz '$instant' - clock_timestamp()"));
		is($cluster->sql($old, q{SELECT count(*) FROM events WHERE writer = 'ahead before'}), 0, 'it has lost those rows');
		$cluster->sql($old, sprintf $sql, 'after');
		$cluster->wait_until_whole; });
}

1;
