# Tests what docs/monitoring has: the queries by an exporter, the alerts by promtool and by a
# Prometheus, the dashboard's expressions by that Prometheus. Servers with a rollback, a
# refusal, a failover and a registry that is away are measured.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use Snowflake;

my $top = "$FindBin::RealBin/../..";
my $from = "$top/docs/monitoring";
my $scratch = PostgreSQL::Test::Utils::tempdir();
my $http = HTTP::Tiny->new(timeout => 60, keep_alive => 0);

# --- the alerts by themselves ---

sub succeeds
{
	my ($name, @command) = @_;
	my $out = '';
	my $ok = IPC::Run::run(\@command, '>', \$out, '2>&1');
	ok($ok, $name) or diag($out);
	return;
}

my $alerts = slurp_file("$from/alerts.yml");
my $cases = slurp_file("$FindBin::RealBin/alerts_test.yml");
append_to_file("$scratch/alerts.yml", $alerts);
append_to_file("$scratch/alerts_test.yml", $cases);
succeeds('the rules are valid', 'promtool', 'check', 'rules', "$scratch/alerts.yml");
succeeds('each alert fires when it should', 'promtool', 'test', 'rules', "$scratch/alerts_test.yml");
my @alerts = $alerts =~ /- alert: (\w+)/g;
my $page = slurp_file("$top/docs/monitoring.md");
my $operations = slurp_file("$top/docs/operations.md");
for my $alert (@alerts)
{
	my @of = grep { /alertname: $alert\n/ } split /^  - name: /m, $cases;
	ok(scalar(grep { /exp_labels/ } @of), "$alert: a case in which it fires");
	ok(scalar(grep { /exp_alerts: \[\]/ } @of), "$alert: a case in which it does not");
	like($page, qr/^### $alert$/m, "$alert: what to do is on the page");
	my ($rule) = grep { /^$alert\n/ } split /- alert: /, $alerts;
	like($rule, qr/^ {8}for: \d+[smh]$/m, "$alert: for how long it must be so");
	my ($anchor) = $rule =~ m{runbook_url: "docs/operations\.md#([\w-]+)"};
	ok(defined $anchor && $operations =~ /<a id="$anchor"><\/a>/, "$alert: its link leads to a row of symptoms");
	like($page, qr/^### $alert\n(?:(?!^### ).*\n)*?.*\(operations\.md#$anchor\)/m, "$alert: the page has the same link") if defined $anchor;
}
is(join(' ', $page =~ /^### (SnowflakeId\w+)$/mg), "@alerts", 'the page has the alerts, in their order');

# --- servers ---

my $registry = new_node('registry', 9, allows_streaming => 1);
$registry->start;
$registry->safe_psql('postgres', q{CREATE EXTENSION snowflake_id;
	SELECT snowflake_create_pool('main', '[1,6)', max_ahead => '1 s')});
my $conninfo = 'host=' . $registry->host . ' port=' . $registry->port . ' dbname=postgres';

# The extension is in a schema of its own, which the exporter's role has in its search_path.
my $shop = new_node('shop', '', allows_streaming => 1);
$shop->append_conf('postgresql.conf', "snowflake_id.registry = '$conninfo'\nsnowflake_id.pool = 'main'\nsnowflake_id.reserve_ahead = '1 s'");
start_with_clock($shop, 0);
$shop->safe_psql('postgres', 'CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids');
$shop->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = public, ids');
wait_until('the server has a worker ID', sub { $shop->safe_psql('postgres', 'SELECT worker_id IS NOT NULL FROM snowflake_worker') eq 't' });
# 39 bits of milliseconds last 17.4 years: those of the second generator end within a year.
$shop->safe_psql('postgres', q{SELECT snowflake_create_generator('orders_ids', 'preset=default');
	SELECT snowflake_create_generator('old_ids', format($$layout='time:39 worker:10 sequence:12' epoch=%L$$, date_trunc('day', now()) - interval '17 years'));
	CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'))});
$shop->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($shop, 'copy', has_streaming => 1);
$standby->start;

# The exporter's role, by the statements of the page.
my ($grants) = $page =~ /^```sql\n(CREATE ROLE exporter.*?)^```/ms or die 'the page makes no role';
my $in_schema = $grants =~ s/^(ALTER ROLE exporter SET search_path = ).*$/$1public, ids;/mr;
$registry->safe_psql('postgres', $grants);
$shop->safe_psql('postgres', "$in_schema; GRANT USAGE ON SCHEMA ids TO exporter");
$shop->wait_for_catchup($standby);

# --- the exporter ---

my @running;
END { local $?; $_->kill_kill for grep { defined } @running; }

sub start
{
	my ($log, $environment, @command) = @_;
	local @ENV{ keys %$environment } = values %$environment;
	my $process = IPC::Run::start(\@command, '<', \undef, '>', $log, '2>&1');
	push @running, $process;
	return $process;
}

# The addresses of the three servers. Sockets make no label that tells databases apart.
my %node = (registry => $registry, shop => $shop, standby => $standby);
my %port;
for my $name (sort keys %node)
{
	my $port = $port{$name} = PostgreSQL::Test::Cluster::get_free_port();
	my $node = $node{$name};
	start("$scratch/exporter_$name.log",
		{ DATA_SOURCE_NAME => 'host=' . $node->host . ' port=' . $node->port . ' user=exporter dbname=postgres sslmode=disable' },
		'prometheus-postgres-exporter', "--extend.query-path=$from/queries.yaml", '--disable-default-metrics', '--disable-settings-metrics',
		'--no-collector.database', '--no-collector.bgwriter', "--web.listen-address=127.0.0.1:$port");
}

sub get
{
	my ($url) = @_;
	my $reply = $http->get($url);
	return $reply->{success} ? $reply->{content} : undef;
}

# Returns the metrics of an exporter: name, labels without that of the address, value.
sub metrics_of
{
	my ($name) = @_;
	my %metric;
	my $text = get("http://127.0.0.1:$port{$name}/metrics") // return {};
	for (split /\n/, $text)
	{
		my ($metric, $labels, $value) = /^(snowflake_\w+)\{(.*)\} (\S+)$/ or next;
		my %label = $labels =~ /(\w+)="((?:[^"\\]|\\.)*)"/g;
		delete $label{server};
		$metric{$metric}{ join ' ', map { "$_=$label{$_}" } sort keys %label } = $value;
	}
	return \%metric;
}

for my $name (sort keys %node)
{
	wait_until("the exporter of $name answers", sub { %{ metrics_of($name) } });
}

sub rows { my ($node, $sql) = @_; return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', $sql); }

# Every column of every view: those that stand still are equal, those that move lie
# between two looks.
my @still = (
	[ 'snowflake_id_server_in_recovery', 'SELECT pg_is_in_recovery()::int', sub { '' } ],
	[ 'snowflake_id_worker_id', q{SELECT coalesce(worker_id, -1), source, pool FROM snowflake_worker} ],
	[ 'snowflake_id_worker_failing', q{SELECT (last_error IS NOT NULL)::int, source, pool FROM snowflake_worker} ],
	(map { [ "snowflake_id_generator_$_->[0]", "SELECT $_->[1], generator FROM snowflake_generators" ] }
		[ refused => '(refused_since IS NOT NULL)::int' ], [ problem => '(problem IS NOT NULL AND NOT (SELECT is_registry FROM _snowflake.role_of_server))::int' ],
		[ end_timestamp_seconds => 'extract(epoch FROM ends_at)' ], [ capacity_ids_per_second => 'ids_per_second' ]),
	(map { [ "snowflake_id_stat_$_->[0]", "SELECT $_->[1], generator FROM pg_stat_snowflake" ] }
		[ issued_total => 'issued' ], [ batches_total => 'batches' ], [ borrowed_total => 'borrowed' ], [ waits_total => 'waits' ],
		[ wait_seconds_total => 'wait_time / 1000' ], [ refusals_total => 'refusals' ], [ clock_rollbacks_total => 'clock_rollbacks' ],
		[ largest_rollback_seconds => 'coalesce(extract(epoch FROM largest_rollback), 0)' ],
		[ reservations_total => 'reservations' ], [ reservation_seconds_total => 'reservation_time / 1000' ]),
	(map { [ "snowflake_id_pool_$_->[0]", "SELECT $_->[1], pool FROM snowflake_pools WHERE EXISTS (SELECT FROM _snowflake.leased WHERE worker_ids IS NOT NULL)" ] }
		[ leased => 'leased' ], [ free => 'free' ], [ stopped => '(stopped_since IS NOT NULL)::int' ], [ grace => '(grace_until IS NOT NULL)::int' ]));
my @moving = (
	[ 'snowflake_id_server_clock_timestamp_seconds', 'SELECT extract(epoch FROM clock_timestamp())' ],
	[ 'snowflake_id_worker_lease_left_seconds', 'SELECT extract(epoch FROM bound - clock_timestamp()), source, pool FROM snowflake_worker' ],
	[ 'snowflake_id_worker_last_contact_age_seconds', 'SELECT extract(epoch FROM clock_timestamp() - last_contact), source, pool FROM snowflake_worker' ],
	[ 'snowflake_id_worker_clock_ahead_seconds', 'SELECT extract(epoch FROM clock_ahead_by), source, pool FROM snowflake_worker' ],
	[ 'snowflake_id_generator_ahead_seconds', 'SELECT extract(epoch FROM ahead_by), generator FROM snowflake_generators' ],
	[ 'snowflake_id_horizon_lag_seconds', 'SELECT horizon_lag / 1000, generator FROM pg_stat_snowflake' ]);
my %known = map { $_->[0] => 1 } @still, @moving;

# The values of a query by their labels, as the exporter labels them.
sub by_labels
{
	my ($node, $metric, $sql) = @_;
	my %value;
	for (rows($node, $sql))
	{
		my ($value, @labels) = @$_;
		my $labels = $metric =~ /^snowflake_id_worker/ ? "datname=postgres pool=$labels[1] source=$labels[0]"
			: $metric =~ /^snowflake_id_server/ ? 'datname=postgres'
			: $metric =~ /^snowflake_id_pool/ ? "datname=postgres pool=$labels[0]" : "datname=postgres generator=$labels[0]";
		$value{$labels} = $value;
	}
	return \%value;
}

sub same { my ($left, $right) = @_; return "@$left" eq "@$right"; }
# As numbers, since the exporter writes 1e+06; a column that is null has none.
sub number { my ($text) = @_; return $text eq '' ? 'NaN' : $text =~ /inf/i ? '+Inf' : 0 + sprintf '%.12g', $text; }

# Compares all metrics of a server with its views, without a line for each.
sub compare
{
	my ($name, $state) = @_;
	my $node = $node{$name};
	my @wrong;
	# After a restart of its server, an exporter has to connect again.
	wait_until("the exporter of $name answers", sub { %{ metrics_of($name) } });
	my $before = { map { $_->[0] => by_labels($node, @$_) } @moving };
	my $metrics = metrics_of($name);
	my $after = { map { $_->[0] => by_labels($node, @$_) } @moving };
	for (@still)
	{
		my $view = by_labels($node, @$_);
		my $of = $metrics->{ $_->[0] } // {};
		push @wrong, "$_->[0]: other rows" if !same([ sort keys %$view ], [ sort keys %$of ]);
		for my $labels (keys %$view)
		{
			my ($expected, $got) = map { number($_ // '') } $view->{$labels}, $of->{$labels};
			push @wrong, "$_->[0]\{$labels}: $got, not $expected" if $expected ne $got;
		}
	}
	for my $metric (map { $_->[0] } @moving)
	{
		my ($first, $last) = ($before->{$metric}, $after->{$metric});
		my $of = $metrics->{$metric} // {};
		push @wrong, "$metric: other rows" if !same([ sort keys %$first ], [ sort keys %$of ]);
		for my $labels (keys %$first)
		{
			my ($low, $high) = sort { $a <=> $b } map { $_->{$labels} eq '' ? 0 : $_->{$labels} } $first, $last;
			my $got = $of->{$labels} // 'missing';
			if ($first->{$labels} eq '') { push @wrong, "$metric: $got, not NaN" if $got ne 'NaN'; next; }
			# The lease may be renewed, and the registry answer, between the looks.
			next if $metric =~ /lease_left|last_contact/ && $last->{$labels} ne '' && ($metric =~ /left/ ? $last->{$labels} > $first->{$labels} : $last->{$labels} < $first->{$labels});
			push @wrong, "$metric\{$labels}: $got, not from $low to $high" if $got < $low - 0.001 || $got > $high + 0.001;
		}
	}
	push @wrong, "$_ is exported, and not tested" for grep { !$known{$_} } keys %$metrics;
	is(join("\n", @wrong), '', "$name, $state: all metrics are as in the views");
	return $metrics;
}

$shop->safe_psql('postgres', q{INSERT INTO orders SELECT FROM generate_series(1, 1000); SELECT count(*) FROM snowflake_nextval_batch(100); SELECT snowflake_nextval('old_ids')});
$shop->wait_for_catchup($standby);
compare($_, 'all is well') for sort keys %node;
is($node{standby}->safe_psql('postgres', 'SELECT worker_id FROM snowflake_worker'), '', 'a standby has no worker ID');

# --- the role ---

for my $sql (q{SELECT snowflake_nextval('orders_ids')}, 'SELECT * FROM orders', q{SELECT snowflake_accept_clock()}, q{SELECT snowflake_advance('orders_ids', now())})
{
	my $error = '';
	$shop->psql('postgres', "SET ROLE exporter; SET search_path = public, ids; $sql", stderr => \$error);
	like($error, qr/permission denied|42501/, "the role of the exporter may not: $sql");
}

# --- the files for sql_exporter and CloudNativePG, which are not here ---

sub parsed
{
	my ($file) = @_;
	my $json = '';
	my $ok = IPC::Run::run([ '/usr/bin/python3', '-c', 'import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))', $file ], '>', \$json);
	ok($ok, "$file is YAML");
	return decode_json($json || '{}');
}
sub other_keys { my ($of, @known) = @_; return grep { my $key = $_; !grep { $key eq $_ } @known } sort keys %$of; }

my $queries = parsed("$from/queries.yaml");
my $made = '';
IPC::Run::run([ $^X, "$FindBin::RealBin/collector", "$from/queries.yaml" ], '>', \$made);
is(slurp_file("$from/snowflake_id.collector.yml"), $made, 'the collector of sql_exporter is made of queries.yaml');
my $collector = parsed("$from/snowflake_id.collector.yml");
is(join(' ', other_keys($collector, qw(collector_name metrics queries)), map { other_keys($_, qw(metric_name type help key_labels values query_ref)) } @{ $collector->{metrics} }), '',
	'the collector has what sql_exporter knows');
is(join(' ', sort map { $_->{metric_name} } @{ $collector->{metrics} }), join(' ', sort keys %known), 'the collector has all metrics');
is(join(' ', map { "$_->{metric_name}=$_->{type}" } grep { ($_->{metric_name} =~ /_total$/) != ($_->{type} eq 'counter') } @{ $collector->{metrics} }), '', 'counters are those that end in _total');

# What the role reads is what each metric names. CloudNativePG sets this path.
my %of_query = map { $_->{query_name} => $_->{query} } @{ $collector->{queries} };
for my $name (sort keys %of_query)
{
	is($of_query{$name}, $queries->{$name}{query}, "$name: the same query in both files");
	my @columns = split /\|/, (split /\n/, $registry->safe_psql('postgres',
		"BEGIN READ ONLY; SET LOCAL ROLE exporter; SET LOCAL search_path = pg_catalog, public, pg_temp; $of_query{$name}",
		extra_params => [ '--pset=tuples_only=off', '--pset=footer=off' ]))[0];
	my %named = map { $_ => 1 } map { (@{ $_->{key_labels} }, @{ $_->{values} }) } grep { $_->{query_ref} eq $name } @{ $collector->{metrics} };
	is(join(' ', sort keys %named), join(' ', sort @columns), "$name: the metrics have all its columns, and no other");
	is(join(' ', other_keys($queries->{$name}, qw(query metrics)), map { map { other_keys($_, qw(usage description)) } values %$_ } @{ $queries->{$name}{metrics} }), '',
		"$name: as CloudNativePG knows it");
}
my $monitor = parsed("$from/cloudnative-pg.yaml");
my ($relabel) = @{ $monitor->{spec}{podMetricsEndpoints}[0]{metricRelabelings} };
is("$relabel->{sourceLabels}[0] $relabel->{targetLabel}", '__name__ __name__', 'names of CloudNativePG are changed');
is(join(' ', sort map { "cnpg_$_" =~ /^(?:$relabel->{regex})$/ ? $1 : "cnpg_$_" } keys %known), join(' ', sort keys %known), '... to those that the alerts know');

# --- Prometheus, with the alerts ---

# With the picture of the dashboard in view, more often and for longer.
my $every = $ENV{PICTURE} ? 2 : 3;
my $port = PostgreSQL::Test::Cluster::get_free_port();
# Names in place of addresses are easier to tell apart.
my $targets = join ', ', map { "{ targets: [ '127.0.0.1:$port{$_}' ], labels: { instance: $_ } }" } sort keys %port;
# On a busy machine, an exporter may take a second.
append_to_file("$scratch/prometheus.yml", <<"END");
global: { scrape_interval: ${every}s, scrape_timeout: ${every}s, evaluation_interval: 1s }
rule_files: [ '$from/alerts.yml' ]
scrape_configs:
  - job_name: postgres
    static_configs: [ $targets ]
END
start("$scratch/prometheus.log", {}, 'prometheus', "--config.file=$scratch/prometheus.yml", "--storage.tsdb.path=$scratch/tsdb",
	"--web.listen-address=127.0.0.1:$port");
my $base = "http://127.0.0.1:$port";
wait_until('Prometheus is ready', sub { get("$base/-/ready") });

sub ask
{
	my ($path, %parameters) = @_;
	my $reply;
	# An answer of HTTP::Tiny itself, which is no JSON, says that there was none.
	wait_until('Prometheus answers', sub {
		$reply = $http->get("$base/api/v1/$path?" . $http->www_form_urlencode(\%parameters));
		return $reply->{status} != 599;
	});
	return decode_json($reply->{content});
}

# The alerts that fire, or wait for their time, with what they are about.
sub alerts
{
	my %on;
	for my $alert (@{ ask('alerts')->{data}{alerts} })
	{
		my $of = $alert->{labels};
		$on{ $of->{alertname} }{ $of->{generator} // $of->{pool} // $of->{worker_id} // '' } = $alert->{state};
	}
	return \%on;
}
sub wait_for_alert { my ($alert, $of) = @_; return wait_until("$alert is on for $of", sub { alerts()->{$alert}{$of} }); }

wait_until('all servers are measured', sub { @{ ask('query', query => 'snowflake_id_server_in_recovery')->{data}{result} } == 3 });
wait_for_alert('SnowflakeIdLayoutEnds', 'old_ids');
is(join(' ', sort grep { $_ ne 'SnowflakeIdLayoutEnds' } keys %{ alerts() }), '', 'no other alert, on a standby neither');

# Every expression of the dashboard, by this Prometheus, whatever the variables are.
my $dashboard = decode_json(slurp_file("$from/dashboard.json"));
sub query_of { my ($target, $seconds) = @_; return $target->{expr} =~ s/\$__rate_interval/${seconds}s/gr =~ s/\$(?:job|server)\b/.*/gr; }
sub check_dashboard
{
	my ($state, @empty) = @_;
	my @wrong;
	for my $panel (@{ $dashboard->{panels} })
	{
		for my $target (@{ $panel->{targets} })
		{
			my $query = query_of($target, 10);
			my $reply = ask('query', query => $query);
			push @wrong, "$panel->{title}: $reply->{error}" if $reply->{status} ne 'success';
			push @wrong, "$panel->{title}: no value of $query"
				if $reply->{status} eq 'success' && !@{ $reply->{data}{result} } && !grep { $panel->{title} eq $_ || $target->{legendFormat} =~ /^\Q$_\E/ } @empty;
		}
	}
	is(join("\n", @wrong), '', "the dashboard's expressions have values, $state");
	return;
}
my $text = join ' ', map { get("http://127.0.0.1:$port{$_}/metrics") } sort keys %port;
my %exported = map { $_ => 1 } $text =~ /^(snowflake_\w+)\{/mg;
my $named = join ' ', map { map { $_->{expr} } @{ $_->{targets} } } @{ $dashboard->{panels} };
$named .= ' ' . join ' ', map { $_->{query}{query} // '' } grep { ref $_->{query} } @{ $dashboard->{templating}{list} };
my ($rules) = join ' ', $alerts =~ /expr: (.*?)(?=\n {8}\w)/sg;
# What stands in quotes is the value of a label.
$rules =~ s/"[^"]*"//g;
my %unnamed = %known;
for my $text ([ dashboard => $named ], [ alerts => $rules ])
{
	my %of = map { $_ => 1 } $text->[1] =~ /\b(snowflake_\w+)/g;
	cmp_ok(scalar keys %of, '>', 9, "the $text->[0] name " . keys(%of) . ' metrics');
	is(join(' ', grep { !$exported{$_} } sort keys %of), '', "the $text->[0] name no metric that is not exported");
	delete $unnamed{$_} for keys %of;
}
is(join(' ', sort keys %unnamed), '', 'each metric is in the dashboard or in an alert');
is(join(' ', sort map { @{ [ ($_->{description} // '') =~ /Alert (\w+)/g ] } } @{ $dashboard->{panels} }),
	join(' ', grep { my $alert = $_; grep { ($_->{description} // '') =~ /Alert $alert\b/ } @{ $dashboard->{panels} } } sort @alerts),
	'the dashboard names alerts that exist');
my %place;
for my $panel (@{ $dashboard->{panels} })
{
	my $at = $panel->{gridPos};
	for my $x ($at->{x} .. $at->{x} + $at->{w} - 1) { $place{"$x,$_"}++ for $at->{y} .. $at->{y} + $at->{h} - 1; }
	cmp_ok($at->{x} + $at->{w}, '<=', 24, "$panel->{title}: within the dashboard");
}
is(scalar(grep { $_ > 1 } values %place), 0, 'no panel lies on another');

# --- an exporter that cannot read the views ---

# Without its search_path, the role finds no view. One view can fail alone, as with an earlier library.
my ($not_measured) = $alerts =~ /- alert: SnowflakeIdNotMeasured\n(?: +#.*\n)* +expr: (.*)/ or die 'no rule';
sub not_measured { return join ' ', map { $_->{metric}{instance} } @{ ask('query', query => $not_measured)->{data}{result} }; }
is(not_measured(), '', 'all exporters are measured');
for (
	[ 'a search_path without the extension', 'ALTER ROLE exporter SET search_path = public', 'ALTER ROLE exporter SET search_path = public, ids' ],
	[ 'a view that fails', 'REVOKE SELECT ON ids.pg_stat_snowflake FROM PUBLIC', 'GRANT SELECT ON ids.pg_stat_snowflake TO PUBLIC' ])
{
	my ($state, $break, $repair) = @$_;
	my $reconnect = q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'exporter'};
	$shop->safe_psql('postgres', "$break; $reconnect");
	# The standby has the same role and functions.
	wait_until("SnowflakeIdNotMeasured would fire: $state", sub { not_measured() =~ /\bshop\b/ });
	$shop->safe_psql('postgres', "$repair; $reconnect");
	wait_until("and not after that: $state", sub { not_measured() eq '' });
}

# --- an exporter of two databases, by the command of the page ---

my ($command) = $page =~ /^( *prometheus-postgres-exporter .*?--web\.listen-address)=/ms or die 'no command for several databases';
my @options = $command =~ /(--(?:disable|no)[\w.-]+)/g;
$shop->safe_psql('postgres', 'CREATE DATABASE stock');
$shop->safe_psql('stock', 'CREATE EXTENSION snowflake_id');
$port{both} = PostgreSQL::Test::Cluster::get_free_port();
start("$scratch/exporter_both.log",
	{ DATA_SOURCE_NAME => join(',', map { 'host=' . $shop->host . ' port=' . $shop->port . " user=exporter dbname=$_ sslmode=disable" } qw(postgres stock)) },
	'prometheus-postgres-exporter', "--extend.query-path=$from/queries.yaml", @options, "--web.listen-address=127.0.0.1:$port{both}");
my $of_both;
wait_until('an exporter of two databases answers', sub { %{ $of_both = metrics_of('both') } });
is(join(' ', sort keys %{ $of_both->{snowflake_id_server_in_recovery} // {} }), 'datname=postgres datname=stock', 'with the metrics of both');
delete $port{both};
(pop @running)->kill_kill;

# --- a transaction that holds the horizon back ---

# Here the picture begins.
my $begin = time;

my $orders = 'datname=postgres generator=orders_ids';
my $writer = $shop->background_psql('postgres');
$writer->query_safe('BEGIN; INSERT INTO orders DEFAULT VALUES');
wait_until('the lag grows', sub { (metrics_of('shop')->{snowflake_id_horizon_lag_seconds}{$orders} // 0) > 1 });
my $metrics = compare('shop', 'while a transaction holds the horizon back');
$writer->query_safe('COMMIT');
$writer->quit;
wait_until('the lag ends', sub { (metrics_of('shop')->{snowflake_id_horizon_lag_seconds}{$orders} // 9) < 1 });

# --- a rollback ---

sub load
{
	my ($node, $seconds) = @_;
	my $until = time + $seconds;
	while (time < $until)
	{
		$node->safe_psql('postgres', 'INSERT INTO orders SELECT FROM generate_series(1, 20); SELECT count(*) FROM snowflake_nextval_batch(10)');
		sleep 0.1;
	}
	return;
}
# A picture needs more to look at.
sub linger { my ($node) = @_; load($node, 45) if $ENV{PICTURE}; return; }
load($shop, 5);
linger($shop);
set_back($shop, 100);
load($shop, 5);
wait_for_alert('SnowflakeIdClockSetBack', 'orders_ids');
wait_for_alert('SnowflakeIdFarAhead', 'orders_ids');
wait_for_alert('SnowflakeIdClockBehind', '');
$metrics = compare('shop', 'after a rollback');
is($metrics->{snowflake_id_stat_clock_rollbacks_total}{$orders}, 1, 'a rollback');
cmp_ok($metrics->{snowflake_id_generator_ahead_seconds}{$orders}, '>', 60, 'a lead');
linger($shop);

# --- a failover ---

$shop->stop('immediate');
$standby->promote;
wait_until('the promoted standby has a worker ID', sub { $standby->safe_psql('postgres', 'SELECT worker_id IS NOT NULL FROM snowflake_worker') eq 't' });
load($standby, 5);
linger($standby);
$metrics = compare('standby', 'after its promotion');
is((values %{ $metrics->{snowflake_id_worker_id} })[0], 2, 'the promoted standby has a worker ID of its own');
check_dashboard('after a rollback and a failover', 'Calls that got no ID, per second', 'stopped:', 'grace:', 'ahead:', 'greatest:');

# --- the picture ---

# PICTURE is the program that draws the dashboard, PICTURES the folder for what it draws.
if ($ENV{PICTURE})
{
	my $to = int time;
	# As Grafana chooses it.
	my $rate = 4 * $every;
	my $panels = $dashboard->{panels};
	my %answers;
	for my $panel (@$panels)
	{
		for my $target (@{ $panel->{targets} })
		{
			my $query = query_of($target, $rate);
			my $reply = $target->{instant} ? ask('query', query => $query, time => $to) : ask('query_range', query => $query, start => $begin, end => $to, step => $every);
			$answers{ $panel->{id} }{ $target->{refId} } = $reply->{data}{result};
		}
	}
	my $note = "Drawn by the React components of Grafana, not by Grafana. A Prometheus that asks every $every s gave the data; \$__rate_interval is $rate s.";
	my $width = 1600;
	my $picture = JSON::PP->new->ascii->canonical->encode(
		{ dashboard => $dashboard, answers => \%answers, from => int $begin, to => $to, step => $every, width => $width, note => $note });
	append_to_file("$scratch/picture.html", qq{<!DOCTYPE html><meta charset="utf-8"><link rel="stylesheet" href="$ENV{PICTURE}.css">\n}
		. '<body><script>const picture = ' . $picture =~ s{</}{<\\/}gr . qq{;</script>\n<script src="$ENV{PICTURE}.js"></script>});
	my @chromium = ('chromium', qw(--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update
		--disable-sync --hide-scrollbars --virtual-time-budget=10000), "--user-data-dir=$scratch/profile");
	my %part = ('dashboard' => [ 0, 28 ], 'dashboard-more' => [ 28, 999 ]);
	for my $part (sort keys %part)
	{
		my ($first, $last) = @{ $part{$part} };
		my $url = "file://$scratch/picture.html#$first-$last";
		my ($dom, $log) = ('', '');
		IPC::Run::run([ @chromium, '--dump-dom', $url ], '>', \$dom, '2>', \$log);
		my ($height) = $dom =~ /data-height="(\d+)"/;
		ok($height, "$part: a page") or diag($log);
		my %drawn = $dom =~ /data-panel="([^"]+)"(.*?)(?=data-panel=|\z)/sg;
		for my $panel (grep { $_->{gridPos}{y} >= $first && $_->{gridPos}{y} < $last } @$panels)
		{
			my $series = map { @$_ } values %{ $answers{ $panel->{id} } };
			my $of = $drawn{ $panel->{title} } // '';
			if ($panel->{type} eq 'stat') { like($of, qr/>(?:none|-?\d[^<>]*)</, "$panel->{title}: a value is drawn"); }
			elsif ($series) { like($of, qr/<canvas/, "$panel->{title}: $series series are drawn"); }
			else { like($of, qr/>No data</, "$panel->{title}: no data"); }
		}
		my $file = "$ENV{PICTURES}/$part.png";
		unlink $file;
		system(@chromium, "--window-size=$width," . ($height // 100), "--screenshot=$file", $url);
		ok(-s $file, "$part: a picture");
	}
}

# --- a clock that is refused, and a registry that is away ---

start_with_clock($shop, 0);
wait_until('the server has a worker ID again', sub { $shop->safe_psql('postgres', 'SELECT worker_id IS NOT NULL FROM snowflake_worker') eq 't' });
$shop->safe_psql('postgres', 'INSERT INTO orders DEFAULT VALUES');
set_back($shop, 2 * 86400);
wait_until('calls are refused', sub { my ($code) = error_of($shop, q{SELECT snowflake_nextval('orders_ids')}); $code eq '58000' });
wait_for_alert($_, 'orders_ids') for qw(SnowflakeIdRefused SnowflakeIdCallsRefused);
$metrics = compare('shop', 'while the clock is refused');
is($metrics->{snowflake_id_generator_refused}{$orders}, 1, 'refused');
$registry->stop('fast');
wait_for_alert('SnowflakeIdRegistryFails', 'main');
wait_for_alert('SnowflakeIdLeaseEnding', 'main');
compare('standby', 'while the registry is away');
wait_until('the time of the lease is over', sub { (values %{ metrics_of('standby')->{snowflake_id_worker_lease_left_seconds} })[0] < 0 });
is((error_of($standby, q{SELECT snowflake_nextval('orders_ids')}))[0], '55000', 'then it issues no IDs');
compare('standby', 'when its lease has ended');
ok(alerts()->{SnowflakeIdLeaseEnding}{main}, 'the alert stays on');

# A transaction that locks a generator.
my $session = $standby->background_psql('postgres');
$session->query_safe('BEGIN; DROP SEQUENCE old_ids');
wait_for_alert('SnowflakeIdProblem', 'old_ids');
compare('standby', 'while a generator is locked');
$session->query_safe('ROLLBACK');
$session->quit;

done_testing();
