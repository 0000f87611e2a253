# Functions of the tests of a conversion while the tables are in use: a shop in a database,
# its inventory, and the statements that convert it.
package Convert;

use strict;
use warnings;
use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(make_shop inventory_of steps_of undo_of run_in);

# Makes a database with the shop. Role clerk owns it. With the last argument, the keys are
# bigint.
sub make_shop
{
	my ($node, $database, $is_bigint) = @_;
	my $shop = slurp_file("$FindBin::RealBin/online/shop.sql");
	$shop =~ s/\bserial\b/bigserial/g, $shop =~ s/\b(id|order_id|item_id|gift|visit_id) int\b/$1 bigint/g if $is_bigint;
	$node->safe_psql('postgres', "CREATE DATABASE $database") if $database ne 'postgres';
	$node->safe_psql($database, "CREATE EXTENSION snowflake_id_convert CASCADE; $shop");
	return;
}

# The foreign keys to single partitions, which PostgreSQL makes for the one to the whole
# table, are not marked as valid by VALIDATE CONSTRAINT before PostgreSQL 18.
sub inventory_of
{
	my ($node, $database) = @_;
	my $inventory = slurp_file("$FindBin::RealBin/offline/inventory.sql") =~ s/'hr'::regnamespace/'public'::regnamespace/gr;
	$inventory =~ s/'public'::regnamespace/'shop'::regnamespace/g;
	return join "\n", grep { !/^constraint\|shop\.stops\|.*REFERENCES shop\.visits_\d/ } split /\n/, $node->safe_psql($database, $inventory);
}

sub statements
{
	my ($node, $database, $function) = @_;
	return split /\x01/, $node->safe_psql($database,
		qq{SELECT coalesce(string_agg(statement, chr(1) ORDER BY step), '') FROM $function(schemas => '{shop}')});
}
sub steps_of { my ($node, $database) = @_; return statements($node, $database, 'snowflake_convert_steps'); }
sub undo_of { my ($node, $database) = @_; return statements($node, $database, 'snowflake_convert_undo'); }

# Runs statements as the owner of the shop, each in a transaction of its own, as \gexec does.
sub run_in
{
	my ($node, $database, @statements) = @_;
	return $node->psql($database, join(";\n", @statements, ''), on_error_stop => 1, extra_params => [ '-U', 'clerk' ], stderr => \my $ignored);
}

1;
