# registries with many servers; SERVERS, KINDS (postgres etcd), CONNECTIONS, QUICK
# Prints the figures of docs/performance.md.
assertions= profile=${BUILD_PROFILE:-release}
want_etcd
install_all
keepers=$(cd "$top" && PGRX_PG_CONFIG_PATH=$pg_config cargo bench --profile "$profile" --locked --quiet --no-run --message-format=json \
    --package snowflake_registry_client --bench keepers | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
install -m 755 "$keepers" "$scratch/keepers"
KEEPERS=$scratch/keepers report_of registry
