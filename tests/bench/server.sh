# The benchmarks source this file: it starts a server of their own, and runs SQL on it.

. "$(dirname "${BASH_SOURCE[0]}")/../../tools/env.sh"
port=${PORT:-54331}

finish() {
    if [ -n "${scratch:-}" ]; then
        as_run_user "$bindir/pg_ctl" -D "$scratch/data" -m immediate stop >/dev/null 2>&1 || true
        rm -rf "$scratch"
    fi
}
trap finish EXIT

# Builds the extension, installs it into a private copy of PostgreSQL, and makes a data
# directory without starting a server. Changes into the scratch folder.
make_cluster() {
    build
    make_scratch
    copy_installation "$scratch/pg"
    install_into "$pkglibdir" "$sharedir"
    cd "$scratch"
    as_run_user "$bindir/initdb" -D "$scratch/data" -U bench -A trust >/dev/null
    as_run_user tee -a "$scratch/data/postgresql.conf" >/dev/null <<END_OF_SETTINGS
shared_preload_libraries = 'snowflake_id'
snowflake_id.worker_id = 1
port = $port
unix_socket_directories = '$scratch'
listen_addresses = ''
max_connections = 60
shared_buffers = '512MB'
max_wal_size = '4GB'
work_mem = '64MB'
autovacuum = off
END_OF_SETTINGS
}

# Starts the server with these settings in its environment.
start_server() { as_run_user env "$@" "$bindir/pg_ctl" -D "$scratch/data" -l "$scratch/log" -w start >/dev/null; }
sql() { "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 -h "$scratch" -p "$port" -U bench postgres "$@"; }
bench() { "$bindir/pgbench" -n -h "$scratch" -p "$port" -U bench "$@" postgres; }
