# Tests databases that are not UTF-8: names beyond ASCII in results, messages and the
# log.
use strict;
use warnings;
use Encode qw(encode decode);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Snowflake;

my $node = new_node('node', 7);
# The log names SQLSTATEs, which are looked for at the end.
$node->append_conf('postgresql.conf', 'log_error_verbosity = verbose');
start_with_clock($node, 0);

# Runs a script, and returns its error or notice or its rows, as the bytes that arrive.
sub run_in
{
	my ($database, $client, $sql) = @_;
	my ($out, $err) = ('', '');
	$node->psql($database, "\\set VERBOSITY verbose\nSET client_encoding = '$client';\n$sql",
		stdout => \$out, stderr => \$err);
	return ($out, $err);
}

sub result_in { return (run_in(@_))[0]; }
sub message_in { return (run_in(@_))[1]; }

sub create_database
{
	my ($name, $encoding) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE template0 ENCODING '$encoding' LOCALE 'C'");
	$node->safe_psql($name, 'CREATE EXTENSION snowflake_id');
	return;
}

# In LATIN1, the bytes of one of the names are UTF-8 for another name. In UTF8, a name has
# a private character, U+10FFE9, as which the library itself would read the byte 0xe9.
my %encodings = (
	eucjp => [ 'EUC_JP', 'euc-jp', '発番' ],
	latin1 => [ 'LATIN1', 'iso-8859-1', 'numéro' ],
	latin1_as_utf8 => [ 'LATIN1', 'iso-8859-1', 'numÃ©ro' ],
	win1251 => [ 'WIN1251', 'cp1251', 'ключ' ],
	utf8 => [ 'UTF8', 'UTF-8', "発番éключ\xf4\x8f\xbf\xa9" ]);
$node->safe_psql('postgres', 'CREATE ROLE plain');
for my $database (sort keys %encodings)
{
	my ($encoding, $perls, $name) = @{ $encodings{$database} };
	create_database($database, $encoding);
	my @in = ($database, 'UTF8');
	is(message_in(@in, qq{SELECT snowflake_create_generator('"$name"', 'preset=twitter')}), '', "$encoding: made");
	my ($id) = result_in(@in, qq{SELECT snowflake_nextval('"$name"')}) =~ /(\d+)/;
	cmp_ok($id, '>', 0, "$encoding: an ID");

	like(message_in(@in, qq{ALTER SEQUENCE "$name" RESTART}),
		qr/NOTICE: .*generator "$name" keeps its mark/, "$encoding: a restart, and its notice");
	is(message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "$name" IS 'preset=twitter max_borrow=0'}),
		'', "$encoding: another label");
	like(message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "$name" IS NULL}),
		qr/ERROR:  55000: cannot remove the label of generator "$name"/, "$encoding: a refused one");
	like(message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "$name" IS 'preset=$name'}),
		qr/ERROR:  22023: .*\nDETAIL:  At character 8: $name\n/s, "$encoding: a wrong one");

	# The text is stored, and read in the encoding of the database.
	message_in(@in, qq{CREATE TABLE kept AS SELECT snowflake_explain($id, '"$name"') AS it});
	like(result_in(@in, 'SELECT it FROM kept'), qr/^ID $id of generator "$name"\n/m, "$encoding: explained");
	my $bytes = encode($perls, decode('UTF-8', $name));
	like(result_in($database, $encoding, 'SELECT it FROM kept'), qr/of generator "\Q$bytes\E"\n/, "$encoding: and stored");

	# The caller gives the text.
	my $text = message_in(@in, "SELECT snowflake_decode_as(1, 'preset=$name')");
	like($text, qr/ERROR:  22023: invalid label/, "$encoding: a text that is no label");
	like($text, qr/: $name/, "$encoding: and where");
	like(message_in(@in, qq{SELECT snowflake_encode_as(now(), '{"$name": "x"}', 'preset=twitter')}),
		qr/ERROR:  22\w+: .*"?$name/, "$encoding: a field");

	# Names of tables, columns and roles are converted.
	message_in(@in, qq{CREATE TABLE "t$name" ("$name" bigserial PRIMARY KEY)});
	like(result_in(@in, qq{SELECT snowflake_set_default('"t$name"', '$name', '"$name"', true)}),
		qr/^public\."t$name"\."$name": default nextval\(.*snowflake_nextval\('.*"$name".*sequence public\."t${name}_\S*" dropped/m,
		"$encoding: a default");
	message_in(@in, qq{CREATE ROLE "$name"; ALTER SEQUENCE "$name" OWNED BY NONE; ALTER SEQUENCE "$name" OWNER TO "$name"});
	for my $call ('snowflake_nextval', 'snowflake_nextval_batch')
	{
		my $count = $call eq 'snowflake_nextval' ? '' : '2, ';
		like(message_in(@in, qq{SET ROLE plain; SELECT $call($count'"$name"')}),
			qr/ERROR:  42501: permission denied for generator "$name"\nHINT:  Its owner, role $name, can run/,
			"$encoding: $call without a privilege");
	}
	# PostgreSQL's own errors are converted.
	$text = message_in(@in, qq{SELECT snowflake_create_generator('"$name"', 'preset=twitter')});
	like($text, qr/ERROR:  42P07: relation "$name" already exists/, "$encoding: PostgreSQL's errors");
	like($text, qr/CONTEXT: .*CREATE SEQUENCE .*"$name"/s, "$encoding: and their context");
	like(message_in(@in, qq{SELECT snowflake_create_generator('"$name".x', 'preset=twitter')}),
		qr/ERROR:  3F000: schema "$name" does not exist/, "$encoding: of a schema");

	like(message_in(@in, qq{SET ROLE plain; ALTER SEQUENCE "$name" RESTART}),
		qr/ERROR:  42501: must be owner of sequence "?\Q$name\E/, "$encoding: of a restart");

	# A plain sequence that is in use is refused with the statements to run instead.
	message_in(@in, qq{CREATE TABLE "u$name" ("$name" bigserial); INSERT INTO "u$name" DEFAULT VALUES});
	like(message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "u${name}_${name}_seq" IS 'preset=twitter'}),
		qr/ERROR:  55000: .*"u\Q$name\E_ids".*'"u\Q$name\E"', '\Q$name\E'/s, "$encoding: a used sequence");

	# The views show converted names.
	message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "$name" IS 'preset=twitter on_rollback=next_worker'});
	message_in(@in, 'CREATE TABLE shown AS SELECT * FROM snowflake_generators');
	like(result_in(@in, 'SELECT generator, problem FROM shown ORDER BY problem'),
		qr/^"$name"\|generator "$name" needs a server that leases/m, "$encoding: a problem");
	message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "$name" IS 'preset=twitter'});

	# A label that was set without the provider can have such a text.
	message_in(@in, qq{UPDATE pg_seclabel SET label = 'preset=$name' WHERE objoid = '"$name"'::regclass});
	like(message_in(@in, qq{SELECT snowflake_nextval('"$name"')}), qr/ERROR:  .*unknown preset "\Q$name\E"/s, "$encoding: a stored label");
	message_in(@in, qq{UPDATE pg_seclabel SET label = 'preset=twitter' WHERE objoid = '"$name"'::regclass});
}

# The log contains the bytes of the database.
set_clock($node, 3 * 86400);
for my $database (sort keys %encodings)
{
	my ($encoding, $perls, $name) = @{ $encodings{$database} };
	like(message_in($database, 'UTF8', qq{SELECT snowflake_nextval('"$name"')}), qr/ERROR:  58000/, "$encoding: refused");
	my $bytes = encode($perls, decode('UTF-8', $name));
	cmp_ok(in_log($node, qr/LOG:  .*snowflake_id: .*\n.*DETAIL:  [^\n]*[Gg]enerator "\Q$bytes\E"/), '>', 0, "$encoding: logged");
}
set_clock($node, 0);

# A role's name is in another database's encoding: its bytes are no text here.
my ($oid) = $node->safe_psql('latin1', q{SELECT oid FROM pg_roles WHERE length(rolname) = 6 AND rolname ~ '^num.ro$'});
for my $database (qw(eucjp utf8))
{
	message_in($database, 'UTF8', q{SELECT snowflake_create_generator('foreigns', 'preset=twitter')});
	$node->safe_psql($database, qq{SET allow_system_table_mods = on;
		UPDATE pg_class SET relowner = $oid WHERE relname = 'foreigns'});
	like(message_in($database, 'UTF8', q{SET ROLE plain; SELECT snowflake_nextval('foreigns')}),
		qr/ERROR:  42501: permission denied for generator foreigns\nHINT:  Its owner, role num\\xe9ro, can run/,
		"$database: a name that is no text here is shown all the same");
}

# SQL_ASCII and MULE_INTERNAL pass bytes through as they are. In MULE_INTERNAL, the first
# byte of a character says of which character set the others are. PostgreSQL 19 has no
# MULE_INTERNAL.
for my $case ([ 'SQL_ASCII', "num\xe9ro", "\xff\xfe", '発番' ], [ 'MULE_INTERNAL', "num\x81\xe9ro", "\x92\xc8\xaf\x92\xc8\xd6" ])
{
	my ($encoding, @names) = @$case;
	next if $encoding eq 'MULE_INTERNAL' && $node->pg_version->major >= 19;
	create_database(lc $encoding, $encoding);
	passes_through($encoding, $_) for @names;
}

sub passes_through
{
	my ($encoding, $name) = @_;
	my @in = (lc $encoding, $encoding);
	my $shown = "$encoding " . join('', map { sprintf ord > 126 ? '%02x' : '%c', ord } split //, $name);
	is(message_in(@in, qq{SELECT snowflake_create_generator('"$name"', 'preset=twitter')}), '', "$shown: made");
	my ($id) = result_in(@in, qq{SELECT snowflake_nextval('"$name"')}) =~ /(\d+)/;
	cmp_ok($id, '>', 0, "$shown: an ID");
	like(message_in(@in, qq{ALTER SEQUENCE "$name" RESTART}),
		qr/NOTICE: .*generator "\Q$name\E" keeps its mark/, "$shown: a restart");
	is(message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "$name" IS 'preset=twitter max_borrow=0'}),
		'', "$shown: another label");
	like(result_in(@in, qq{SELECT snowflake_explain($id, '"$name"')}),
		qr/^ID $id of generator "\Q$name\E"\n/m, "$shown: explained");
	like(message_in(@in, "SELECT snowflake_decode_as(1, 'preset=$name')"),
		qr/ERROR:  22023: .*: \Q$name\E/s, "$shown: a text that is no label");
	message_in(@in, qq{CREATE TABLE "t$name" ("$name" bigserial PRIMARY KEY)});
	like(result_in(@in, qq{SELECT snowflake_set_default('"t$name"', generator => '"$name"')}),
		qr/^public\."t\Q$name\E"\."\Q$name\E": default nextval\(.*"\Q$name\E"/m, "$shown: a default");
	like(message_in(@in, qq{SELECT snowflake_create_generator('"$name"', 'preset=twitter')}),
		qr/ERROR:  42P07: relation "\Q$name\E" already exists/, "$shown: PostgreSQL's errors");
	message_in(@in, qq{SECURITY LABEL FOR snowflake_id ON SEQUENCE "$name" IS 'preset=twitter on_rollback=next_worker'});
	like(result_in(@in, 'SELECT problem FROM snowflake_generators'),
		qr/^generator "\Q$name\E" needs a server that leases/m, "$shown: a problem");
	return;
}

is(in_log($node, qr/[A-Z]:  (?:22021|XX000): |panicked/), 0, 'no internal errors, no bad bytes');
$node->stop;
done_testing();
