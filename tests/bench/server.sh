# The benchmarks source this file: it starts a server of their own, and runs SQL on it.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
assertions= profile=${BUILD_PROFILE:-release}
need_packages perl:perl
trap cleanup EXIT

# Builds the extension, and installs it into a private copy of PostgreSQL. Changes into the scratch folder.
make_cluster() {
    build
    make_scratch
    copy_installation "$scratch/pg"
    install_into "$pkglibdir" "$sharedir"
    cd "$scratch"
}

# start_server [SETTINGS]: these come after, and count before, the ones that all benchmarks have.
start_server() {
    export PGHOST=$scratch PGUSER=$run_user PGDATABASE=postgres
    new_server "$scratch/data" "snowflake_id.worker_id = 1" "unix_socket_directories = '$scratch'" "listen_addresses = ''" \
        "max_connections = 60" "shared_buffers = '512MB'" "max_wal_size = '4GB'" "work_mem = '64MB'" "autovacuum = off" "$@"
}

sql() { "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 "$@"; }
bench() { "$bindir/pgbench" -n "$@"; }
# Transactions per second.
tps() { bench "$@" 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'; }
# timed [FACTOR]: how many milliseconds the statements on stdin take together, times the factor.
timed() { { echo '\timing on'; cat; } | sql | perl -ne '$sum += $1 if /^Time: ([\d.]+) ms/; END { print $sum * '"${1:-1}"' }'; }
