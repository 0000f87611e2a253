# Tests labels of plain sequences, beside other sessions, and in the orders in which
# dumps restore label and value.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('main', 3);
$node->start;
sub sql { my ($sql, $database) = @_; return $node->safe_psql($database // 'postgres', $sql); }
sub code { my ($sql, $database) = @_; return (error_of($node, $sql))[0]; }
sub relabel { return "SECURITY LABEL FOR snowflake_id ON SEQUENCE $_[0] IS '" . ($_[1] // 'preset=discord') . "'"; }
sql('CREATE EXTENSION snowflake_id; CREATE ROLE keeper LOGIN; GRANT CREATE ON SCHEMA public TO keeper');

# Another session has taken a value in an open transaction when the label is set.
sql('CREATE SEQUENCE busy');
my $other = $node->background_psql('postgres', on_error_stop => 0);
my $admin = $node->background_psql('postgres', on_error_stop => 0);
$admin->query_safe("SET client_min_messages = warning");
$other->query_safe(q{BEGIN; SELECT nextval('busy')});
$admin->query_until(qr/go/, "\\echo go\n" . relabel('busy') . ";\n");
wait_until('the label waits', sub {
	sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'busy'::regclass}) eq '1' });
$other->query_safe('ROLLBACK');
$admin->query("SELECT 1");
like($admin->{stderr}, qr/Its last value is 1/, 'a value of a transaction that was rolled back counts');
$admin->{stderr} = '';
is($other->query_safe(q{SELECT nextval('busy')}), '2', 'and it goes on');
# Another session asks for a value while the label is being set.
sql('CREATE SEQUENCE calm');
$admin->query_safe('BEGIN; ' . relabel('calm'));
$other->query_until(qr/go/, "\\echo go\nSELECT nextval('calm');\n");
wait_until('nextval() waits', sub {
	sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'calm'::regclass}) eq '1' });
$admin->query_safe('ROLLBACK');
like($other->query_safe(q{SELECT currval('calm')}), qr/^1$/m, 'what is undone leaves it plain');
$_->quit for $other, $admin;

# The owner needs no further privilege, and event triggers see the command.
sql(q{CREATE TABLE seen (tag text);
	GRANT INSERT ON seen TO PUBLIC;
	CREATE FUNCTION see() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.seen VALUES (tg_tag); END$$;
	CREATE EVENT TRIGGER see ON ddl_command_end EXECUTE FUNCTION see()});
sql(q{SET ROLE keeper; CREATE SEQUENCE kept; REVOKE ALL ON SEQUENCE kept FROM keeper; } . relabel('kept'));
is(sql('SELECT string_agg(tag, $$,$$) FROM seen WHERE tag ~ $$SEQUENCE|LABEL$$'), 'CREATE SEQUENCE,ALTER SEQUENCE,SECURITY LABEL', 'as its owner');
sql('DROP EVENT TRIGGER see');
is(code('SET ROLE keeper; ' . relabel('calm')), '42501', 'and nobody else');
is(code('SET ROLE keeper; GRANT USAGE ON SEQUENCE kept TO keeper; SELECT snowflake_nextval($$kept$$)'), '', 'it issues');

# After a crash the sequence is what it was.
sql('CREATE SEQUENCE crashed AS integer; ' . relabel('crashed'));
crash($node);
isnt(sql(q{SELECT snowflake_nextval('crashed')}), '', 'fit after a crash');
crash($node);
my $id = sql(q{SELECT snowflake_nextval('crashed')});
crash($node);
cmp_ok(sql(q{SELECT snowflake_nextval('crashed')}), '>', $id, 'with its mark');

# A dump restores the label before the value, after the value, or without a value.
sql('CREATE DATABASE shop');
sql('CREATE EXTENSION snowflake_id; CREATE SEQUENCE made AS smallint CYCLE; ' . relabel('made') . ';
	CREATE TABLE orders (id bigserial PRIMARY KEY); ' . relabel('orders_id_seq') . ';
	SELECT snowflake_set_default($$orders$$, generator => $$orders_id_seq$$);
	CREATE SEQUENCE never; ' . relabel('never'), 'shop');
my $last = sql('INSERT INTO orders SELECT FROM generate_series(1, 10); SELECT max(id) FROM orders', 'shop');
my $made = sql(q{SELECT snowflake_nextval('made')}, 'shop');
my $folder = $node->basedir;
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$folder/shop.dump", 'shop' ], 'pg_dump');
my %restore = (
	whole => [ [] ],
	jobs => [ [ '-j', '3' ] ],
	sections => [ ['--section=pre-data'], ['--section=data'], ['--section=post-data'] ],
	labels_last => [ ['--no-security-labels'], 'labels' ],
	labels_first => [ ['--schema-only'], ['--data-only'] ]);
$node->command_ok([ 'sh', '-c', "pg_restore -l $folder/shop.dump | grep ' SECURITY LABEL ' > $folder/labels" ], 'the labels of the dump');
for my $way (sort keys %restore)
{
	sql("CREATE DATABASE $way");
	for my $step (@{ $restore{$way} })
	{
		my @options = $step eq 'labels' ? ('-L', "$folder/labels") : @$step;
		$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $way, @options, "$folder/shop.dump" ], "$way: pg_restore @options");
	}
	is(sql(q{SELECT objname FROM pg_seclabels WHERE provider = 'snowflake_id' ORDER BY 1}, $way), "made\nnever\norders_id_seq", "$way: labels");
	cmp_ok(sql('INSERT INTO orders DEFAULT VALUES; SELECT max(id) FROM orders', $way), '>', $last, "$way: goes on above");
	cmp_ok(sql(q{SELECT snowflake_nextval('made')}, $way), '>', $made, "$way: goes on above, by hand");
	isnt(sql(q{SELECT snowflake_nextval('never')}, $way), '', "$way: the first ID");
}

done_testing();
