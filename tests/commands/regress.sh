# tests/pg_regress: SQL and what it prints
install_all
new_server "$scratch/regress" "listen_addresses = ''" "unix_socket_directories = '$scratch'" "snowflake_id.worker_id = 7" "fsync = off"
if ! as_run_user env PGHOST="$scratch" CARGO_TARGET_DIR="$scratch" tests/packages/installcheck "$bindir/pg_config" "$@"; then
    if [ -n "${KEEP_RESULTS:-}" ]; then cp "$scratch"/installcheck/results/*.out "$KEEP_RESULTS/"; fi
    return 1
fi
