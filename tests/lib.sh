# What the commands in tests/commands share; tests/run sources it, and then one of them.
assertions=1
profile=servers
. "$(dirname "${BASH_SOURCE[0]}")/../tools/env.sh"
# The databases of tests hold all characters, also where the caller has no locale. PostgreSQL's test modules drop LC_ALL.
if [ "$(env -u LC_ALL locale charmap 2>/dev/null)" != UTF-8 ]; then
    unset LC_ALL LC_CTYPE
    export LANG=C.UTF-8
fi
# The version that the caller has given. Some commands have another default.
given=${PG:-}
PG=${PG:-15}

run() { "$top/tests/run" "$@"; }

# What prepare() and schema need, all at once.
need_for_tests() { need_packages prove:perl /usr/share/perl5/IPC/Run.pm:libipc-run-perl nm:binutils; }

# try_packages COMMAND:PACKAGE ... : without these, some tests say so and are skipped, and the others run.
try_packages() { (need_packages "$@") || true; }
want_etcd() { try_packages etcd:etcd-server etcdctl:etcd-client openssl:openssl; }
want_chromium() {
    try_packages chromium:chromium
    command -v chromium >/dev/null
}
want_for_tap() {
    want_etcd
    # JavaScript on the pages of the documentation, and what docs/partitions.md says of pg_partman.
    if [[ "${*:-docs}" = *docs* ]]; then
        try_packages node:nodejs
        [ "$PG" != 15 ] || try_packages /usr/share/postgresql/15/extension/pg_partman.control:postgresql-15-partman
    fi
    # Only one test needs this package. A user who is not root does not find it by its name.
    if [[ "${*:-pgbouncer}" = *pgbouncer* ]]; then try_packages /usr/sbin/pgbouncer:pgbouncer; fi
}

# npm_into FOLDER SOURCE WHAT [OPTIONS]: copies the files of SOURCE into the folder, with the packages that its
# package.json names. A lock file would name the registry of the machine that wrote it.
npm_into() {
    local folder=$1 source=$2 what=$3
    shift 3
    mkdir -p "$folder"
    cp "$source"/* "$folder/"
    if ! cmp -s "$source/package.json" "$folder/installed"; then
        (cd "$folder" && npm install --no-package-lock --ignore-scripts --no-audit --no-fund "$@") > "$folder/install.log" 2>&1 ||
            { echo "skipped: no $what, which npm could not install, see $folder/install.log"; return 1; }
        cp "$source/package.json" "$folder/installed"
    fi
}

# Makes a copy that the run user can reach, in the build folder if possible: pgNN, or pgNN and what an argument adds, for
# tests that run beside others.
prepare_copy() {
    local name=pg$pg${1:-} folder=$CARGO_TARGET_DIR/pg$pg${1:-}
    mkdir -p "$CARGO_TARGET_DIR"
    # Another run would replace the library of this one's servers, which die of that. The servers inherit the lock, and the
    # last ones of a run before may still be stopping.
    if [ -z "${lock:-}" ]; then
        exec {lock}> "$CARGO_TARGET_DIR/$name.lock"
        flock --wait 60 "$lock" || die "other tests or their servers use $folder; set CARGO_TARGET_DIR"
    fi
    as_run_user test -x "$CARGO_TARGET_DIR" 2>/dev/null || folder=$scratch/$name
    copy_installation "$folder"
}

prepare() {
    need_for_tests
    make_scratch
    trap cleanup EXIT
    prepare_copy "$@"
    pgxs=$pkglibdir/pgxs/src/test
    [ -x "$pgxs/regress/pg_regress" ] || die "PostgreSQL $pg comes without pg_regress"
}

# Also if the script is killed.
cleanup() {
    local status=$? data
    stop_servers
    if [ $status != 0 ]; then
        printf 'logs are in %s\n' "$scratch" >&2
        return
    fi
    # Registries have files in memory, which name the device and the inode of a data directory.
    find "$scratch" -name pg_wal -printf '%h\n' 2>/dev/null | while read -r data; do
        rm -f /dev/shm/snowflake_id.*-"$(stat -c '%D' "$data")-$(printf '%x' "$(stat -c '%i' "$data")")"
    done
    rm -rf "$scratch"
}

symbols() { nm -D --defined-only "$1" | awk '{ print $3 }' | sort; }

# Continues as an ordinary user, in a folder that is kept.
ordinary() {
    local folder=$CARGO_TARGET_DIR/ordinary
    mkdir -p "$folder"
    as_run_user test -x "$folder" 2>/dev/null || folder=
    FOLDER=$folder "$top/tools/as_ordinary_user" tests/run "$@"
}

# Installs all that tests need into a private copy of PostgreSQL, which it prepares unless the command has done so.
install_all() {
    local peer library
    [ -n "${pgxs:-}" ] || prepare ""
    build
    install_into "$pkglibdir" "$sharedir"
    # Other extensions: each folder was the DESTDIR of an installation for this PostgreSQL.
    for peer in ${PEERS:-}; do
        [ -d "$peer$("$pg_config" --pkglibdir)" ] || die "PEERS names $peer, which has no $("$pg_config" --pkglibdir)"
        cp -R "$peer$("$pg_config" --pkglibdir)/." "$pkglibdir/"
        cp -R "$peer$("$pg_config" --sharedir)/extension/." "$sharedir/extension/"
    done
    # By these libraries, servers have a wall clock that tests can set, and a host name.
    for library in clock hostname; do
        cc -shared -fPIC -O2 -Wall -o "$scratch/$library.so" "$top/tests/t/lib/$library.c" -ldl
        export "${library^^}_LIBRARY=$scratch/$library.so"
    done
    if [ "$pg" -ge 18 ]; then
        export IMAGE="$scratch/image"
        image_into "$IMAGE"
    fi
    make -s -C "$top/managed" install SHAREDIR="$sharedir"
    # The pages are copied too, since their SQL is a test.
    cp -R "$top/tests" "$top/docs" "$top/managed" "$top"/*.md "$top/LICENSE" "$top/Containerfile.volume" "$scratch/"
    if is_root; then chown -R "$run_user" "$scratch/tests"; fi
    cd "$scratch"
}

# Says so and fails if Citus is neither in the folder CITUS, from which install_all takes it then, nor installed.
find_citus() {
    local control
    control=$("$pg_config" --sharedir)/extension/citus.control
    if [ -n "${CITUS:-}" ]; then
        [ -e "$CITUS$control" ] || die "CITUS is $CITUS, which has no $control"
        CITUS=$(cd "$CITUS" && pwd)
        PEERS+=" $CITUS"
    elif [ ! -e "$control" ]; then
        echo "skipped: Citus is not here; install it in PostgreSQL $pg, or set CITUS to the folder that has it" >&2
        return 1
    fi
    sed -n "s/^default_version = '\(.*\)'/Citus \1/p" "${CITUS:-}$control"
}

# with_perl FOLDER COMMAND: runs a command as the user of servers, with what the modules of PostgreSQL's tests want; their
# files are in this folder of the scratch folder.
with_perl() {
    local folder=$scratch/$1
    shift
    as_run_user mkdir "$folder"
    as_run_user env PATH="$bindir:$PATH" PG_REGRESS="$pgxs/regress/pg_regress" \
        PERL5LIB="$pgxs/perl:$scratch/tests/t/lib${lib:+:$lib}" TESTDIR="$folder" TESTDATADIR="$folder/tmp_check" \
        TESTLOGDIR="$folder/log" PG_TEST_TIMEOUT_DEFAULT="${TIMEOUT:-180}" "$@"
}

report_of() {
    TIMEOUT=600 with_perl bench perl "$scratch/tests/bench/$1.pl" > "$scratch/bench.log"
    cat "$scratch/bench/report"
}

# prove_files FOLDER [FILES]: all tests of the folder and its subfolders, or these files and folders. Most of them wait
# more than they compute, for leases above all: so more of them run at once than there are processors.
prove_files() {
    local folder=$1 files all=
    if [ $# = 1 ]; then set -- "$@" "$folder"; [ -n "${WITHOUT:-}" ] || all=1; fi
    files=$(find "${@:2}" -name '*.pl' ${WITHOUT:+! -name "*$WITHOUT*"} | perl "$top/tests/order.pl" "$folder/lib/long" $all) ||
        die "cannot run: ${*:2}"
    mapfile -t files <<< "$files"
    # See tests/t/lib/Snowflake.pm.
    export DATA_TEMPLATE=$scratch/template
    as_run_user env -u LC_ALL -u LANGUAGE LC_MESSAGES=C "$bindir/initdb" -D "$DATA_TEMPLATE" -A trust -N > "$scratch/initdb.log"
    lib=$folder with_perl tap prove --timer --jobs "${JOBS:-$((3 * $(nproc) + 1))}" "${files[@]}"
}

# start_for_clients DATA WORKER [SETTINGS]: starts a server, which is PGHOST, PGPORT and PGUSER then.
start_for_clients() {
    export PGHOST=127.0.0.1 PGUSER=$run_user PGPORT
    PGPORT=$(free_port)
    new_server "$1" "listen_addresses = '127.0.0.1'" "port = $PGPORT" "unix_socket_directories = '$scratch'" \
        "snowflake_id.worker_id = $2" "timezone = 'UTC'" "fsync = off" "${@:3}"
}
free_port() { perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport'; }

end_of_clients() {
    printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
    [ "$failed" = 0 ]
}
