# collector.pl QUERIES: prints docs/monitoring/snowflake_id.collector.yml, which has what
# docs/monitoring/queries.yaml has, for sql_exporter. There each value is a metric of its own.
use strict;
use warnings;

my (@metrics, @queries);
my $text = do { local $/; <> };
while ($text =~ /^(\w+):\n  query: >-\n((?:    .*\n)+)  metrics:\n((?: {4,}.*\n)+)/mg)
{
	my ($name, $query, $columns) = ($1, $2, $3);
	my (@labels, @values);
	while ($columns =~ /- (\w+):\n +usage: "(\w+)"\n +description: (".*")\n/g)
	{
		if ($2 eq 'LABEL') { push @labels, $1 }
		else { push @values, [ $1, lc $2, $3 ] }
	}
	push @metrics, map { <<"END" } @values;
  - metric_name: ${name}_$_->[0]
    type: $_->[1]
    help: $_->[2]
    key_labels: [${\join ', ', @labels}]
    values: [$_->[0]]
    query_ref: $name
END
	push @queries, "  - query_name: $name\n    query: >-\n" . $query =~ s/^    /      /mgr;
}
print <<'END', "metrics:\n", @metrics, "queries:\n", @queries;
# Collector for sql_exporter (collector_files), made of queries.yaml by
# tests/monitoring/collector.pl. See docs/monitoring.md.
collector_name: snowflake_id
END
