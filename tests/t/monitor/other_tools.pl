# Tests the rows of docs/orms.md about tools that copy and watch: foreign tables of postgres_fdw, and check_postgres,
# where that is installed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my ($near, $far) = map { new_node($_->[0], $_->[1]) } [ 'near', 1 ], [ 'far', 2 ];
$_->start, $_->safe_psql('postgres', 'CREATE EXTENSION snowflake_id') for $near, $far;
sub sql { return $near->safe_psql('postgres', $_[0]); }

# Foreign tables: whose IDs rows get, and which conditions are sent.
$far->safe_psql('postgres', 'CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text)');
sql("CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '@{[ $far->host ]}', port '@{[ $far->port ]}', dbname 'postgres');
	CREATE USER MAPPING FOR CURRENT_USER SERVER far; IMPORT FOREIGN SCHEMA public LIMIT TO (orders) FROM SERVER far INTO public OPTIONS (import_default 'true')");
is(sql(q{INSERT INTO orders (item) VALUES ('pen') RETURNING (snowflake_decode(id)).worker_id}), '1', 'with import_default, IDs of the server that inserts');
is($far->safe_psql('postgres', 'SELECT count(*) FROM orders'), '1', 'in the other one');
sub sent { return sql("EXPLAIN (VERBOSE, COSTS OFF) SELECT item FROM orders WHERE id >= $_[0]") =~ /Remote SQL: (.*)/; }
like((sent(q{snowflake_min_id('2026-01-01Z')}))[0], qr/WHERE \(\(id >= \d+/, 'the ID of a literal time is sent');
like((sent(sql('SELECT snowflake_min_id(now())')))[0], qr/WHERE \(\(id >= \d+/, 'as is a literal ID');
unlike((sent('snowflake_min_id(now())'))[0], qr/WHERE/, 'but not that of a time to be computed');

# A dump, restored with the stand-ins of the page where there is no such extension.
my ($stand_ins) = slurp_file("$FindBin::RealBin/../../../docs/orms.md") =~ /^## A dump without the library\n.*?^```text\n(.*?)^```/ms;
$far->safe_psql('postgres', q{SELECT snowflake_create_generator('own_ids', 'preset=twitter'); SELECT snowflake_nextval('own_ids');
	CREATE TABLE with_own (id bigint PRIMARY KEY DEFAULT snowflake_nextval('own_ids')); INSERT INTO with_own DEFAULT VALUES});
my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init;
$plain->start;
$plain->safe_psql('postgres', $stand_ins);
IPC::Run::run([ 'pg_dump', '-d', $far->connstr('postgres') ], '>', \my $dump);
my (undef, undef, $errors) = $plain->psql('postgres', $dump =~ s/EXTENSION (IF NOT EXISTS )?snowflake_id/EXTENSION $1not_installed/gr, on_error_stop => 0);
is(join(' ', sort map { /ERROR:  (.*?)"/ } split /\n/, $errors), 'extension  extension  security label provider ', 'the extension and its labels are missing') or diag($errors);
my @old = map { $_->safe_psql('postgres', 'SELECT id FROM orders UNION SELECT id FROM with_own ORDER BY 1') } $far, $plain;
is($old[1], $old[0], 'all rows are there');
is($plain->safe_psql('postgres', q{INSERT INTO orders (item) VALUES ('new'); INSERT INTO with_own DEFAULT VALUES; SELECT string_agg(item, ' ' ORDER BY id) FROM orders}), 'pen new', 'and new ones come after them');

# A monitor of sequences.
SKIP:
{
	skip 'check_postgres is not installed', 3 if system('check_postgres --version >/dev/null 2>&1') != 0;
	my @check = ('check_postgres', '--action=sequence', '--host=' . $near->host, '--port=' . $near->port, '--dbuser=' . scalar(getpwuid $<), '--dbname=postgres');
	sql('CREATE TABLE counted (id bigserial PRIMARY KEY); SELECT snowflake_nextval()');
	for my $option ('', '--exclude=public.snowflake_default')
	{
		my $out = '';
		IPC::Run::run([ @check, $option || () ], '>', \$out, '2>&1');
		like($out, qr/CRITICAL: .*snowflake_default=100%/, "a generator seems to be used up, $option");
	}
	is(sql(q{SELECT string_agg(sequencename, ' ') FROM pg_sequences WHERE increment_by <> 9223372036854775807}), 'counted_id_seq', 'the condition of the page leaves it out');
}

done_testing();
