# tests/orms/migrations: unchanged migrations on two servers, PG 18, or 16 or later; ORMS
# Only younger versions than 15 tell rows that a server has got from rows that it has made.
PG=${given:-18}
[ "$PG" -ge 16 ] || die "PG is $PG, but subscriptions with origin = none need 16 or later"
prepare
install_all
. "$top/tests/orms/languages.sh"
. "$top/tests/orms/migrations.sh"
side=0
for name in north south; do
    side=$((side + 1))
    start_for_clients "$scratch/$name" $side 'wal_level = logical' 'max_worker_processes = 40' \
        'max_logical_replication_workers = 20' 'max_replication_slots = 20' 'max_wal_senders = 20'
    export "${name^^}=$PGPORT"
done
run_migrations
end_of_clients
