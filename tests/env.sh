# Sourced by the test and demo scripts: finds PostgreSQL, builds the extension,
# and puts both into a private copy of the installation, so that nothing outside
# it changes. Says which packages are missing; as root on Debian installs them.
#
#   PG          major version wanted (15 to 18); the demo takes any
#   PG_CONFIG   a pg_config to use instead of looking for one

set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$top/target}"

die() { printf 'error: %s\n' "$1" >&2; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }

# Servers do not run as root: as this user then.
if is_root; then
    run_user=nobody
    if id postgres >/dev/null 2>&1; then run_user=postgres; fi
    as_run_user() { runuser -u "$run_user" -- "$@"; }
else
    run_user=$(id -un)
    as_run_user() { "$@"; }
fi

# Prints the pg_config of a major version, if it is there with server headers.
pg_config_of() {
    local candidate
    for candidate in "${PG_CONFIG:-}" "/usr/lib/postgresql/$1/bin/pg_config" \
        "/usr/pgsql-$1/bin/pg_config" "/usr/local/pgsql/bin/pg_config" \
        "$(command -v pg_config || true)"; do
        if [ -x "$candidate" ] &&
            "$candidate" --version | grep -q "^PostgreSQL $1[^0-9]" &&
            [ -e "$("$candidate" --includedir-server)/postgres.h" ] &&
            [ -x "$("$candidate" --bindir)/postgres" ]; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

has_libclang() {
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null ||
        compgen -G '/usr/lib*/libclang.so*' >/dev/null
}

# need_packages COMMAND:PACKAGE ... : what a build needs, and these.
# Sets pg (major version) and pg_config.
need_packages() {
    local wanted=() version item
    pg=
    for version in ${PG:-15 16 17 18}; do
        if pg_config=$(pg_config_of "$version"); then pg=$version; break; fi
    done
    if [ -z "$pg" ]; then
        # The distribution's own version, unless one was asked for.
        pg=${PG:-15}
        wanted+=("postgresql-$pg" "postgresql-server-dev-$pg")
    fi
    has_libclang || wanted+=(libclang-dev)
    command -v cc >/dev/null || wanted+=(gcc libc6-dev)
    for item in "$@"; do
        command -v "${item%%:*}" >/dev/null || [ -e "${item%%:*}" ] || wanted+=("${item#*:}")
    done
    command -v cargo >/dev/null || die "Rust is needed: cargo is not on the PATH"
    if [ ${#wanted[@]} -gt 0 ]; then
        if ! is_root || ! command -v apt-get >/dev/null; then
            die "these packages are needed (their Debian names), please install them: ${wanted[*]}"
        fi
        install_packages "${wanted[@]}"
        pg_config=$(pg_config_of "$pg") || die "PostgreSQL $pg could not be installed"
    fi
}

install_packages() {
    # Installing PostgreSQL on Debian would start a cluster of its own.
    local conf=/etc/postgresql-common/createcluster.d/no-main-cluster.conf log
    log=$(mktemp)
    mkdir -p "${conf%/*}"
    printf 'create_main_cluster = false\n' > "$conf"
    printf 'installing %s\n' "$*"
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@"; } > "$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$conf" "$log"
        die "could not install: $*"
    fi
    rm -f "$conf" "$log"
}

# The folder in which servers may run: the run user's, and reachable for it.
make_scratch() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/snowflake_id.XXXXXX")
    chmod 755 "$scratch"
    if is_root; then chown "$run_user" "$scratch"; fi
    as_run_user test -w "$scratch" || die "$run_user cannot write to $scratch; set TMPDIR"
}

# build [FEATURES]: the extension for $pg.
build() {
    (cd "$top" && PGRX_PG_CONFIG_PATH=$pg_config \
        cargo build --release --locked --quiet --no-default-features --features "pg$pg")
    # For make install, which does not build: root may have no cargo.
    printf '%s\n' "$pg" > "$CARGO_TARGET_DIR/release/snowflake_id.pg"
}

# install_into PKGLIBDIR SHAREDIR
install_into() {
    mkdir -p "$1" "$2/extension"
    install -m 755 "$CARGO_TARGET_DIR/release/libsnowflake_id.so" "$1/snowflake_id.so"
    install -m 644 "$top/snowflake_id.control" "$top"/sql/snowflake_id--*.sql "$2/extension/"
}

# copy_installation FOLDER: PostgreSQL in a folder of ours. Its programs find
# their files relative to themselves. Sets bindir, pkglibdir, sharedir.
copy_installation() {
    local from_bin from_lib from_share from_include prefix
    from_bin=$("$pg_config" --bindir)
    from_lib=$("$pg_config" --pkglibdir)
    from_share=$("$pg_config" --sharedir)
    from_include=$("$pg_config" --includedir)
    prefix=$from_bin
    while [[ $from_lib/ != "$prefix"/* || $from_share/ != "$prefix"/* ]]; do
        prefix=${prefix%/*}
    done
    bindir=$1${from_bin#"$prefix"}
    pkglibdir=$1${from_lib#"$prefix"}
    sharedir=$1${from_share#"$prefix"}
    rm -rf "$1"
    mkdir -p "$bindir" "$pkglibdir" "$sharedir"
    cp -a "$from_bin/." "$bindir/"
    cp -a "$from_lib/." "$pkglibdir/"
    cp -a "$from_share/." "$sharedir/"
    # For building against the copy.
    mkdir -p "$(dirname "$1${from_include#"$prefix"}")"
    ln -s "$from_include" "$1${from_include#"$prefix"}"
    [ "$("$bindir/pg_config" --sharedir)" = "$sharedir" ] ||
        die "PostgreSQL in $prefix does not work from a copy"
}
