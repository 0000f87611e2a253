# The scripts in tools/ and tests/ source this file. Its functions find PostgreSQL, build the extension, and
# install it: tests and the demo take a private copy of PostgreSQL, so that nothing outside the copy changes.
# Missing packages are listed, or installed if root runs the script on Debian.
#
#   PG             major version wanted (15 to 19); the demo takes any
#   PG_CONFIG      a pg_config to use instead of looking for one
#   BUILD_PROFILE  the profile with which the extension is built: release, or, which is what most tests take, servers
#   CITUS          a folder into which Citus was installed, for the tests that need Citus
#   SERVER_CFLAGS  the C compiler's options for a PostgreSQL that has to be built from source; it has
#                  PostgreSQL's assertions where the caller has set assertions=1, as tests do and benchmarks do not

# With pipefail, no command here may read a pipe only in part: the writer would fail, now and then.
set -euo pipefail
# PostgreSQL's own Makefiles build less when another Makefile calls them.
unset MAKEFLAGS MFLAGS MAKELEVEL
# No setting of the caller's psql reaches a test.
for variable in $(compgen -e PG); do
    case $variable in PG | PG_CONFIG) ;; *) unset "$variable" ;; esac
done
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$top/target}"
profile=${BUILD_PROFILE:-${profile:-release}}
packages=$(realpath -m "$CARGO_TARGET_DIR")/packages

die() { printf 'error: %s\n' "$1" >&2; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }

# quiet COMMAND: prints its output only if it fails, and of that only the end.
quiet() {
    local log
    log=$(mktemp)
    "$@" > "$log" 2>&1 || { tail -n 40 "$log" >&2; rm "$log"; return 1; }
    rm "$log"
}

# keep NAME ... : makes an array, kept, of NAME=VALUE for these variables, those that are set.
keep() {
    local variable
    kept=()
    for variable; do [ -z "${!variable-}" ] || kept+=("$variable=${!variable}"); done
}

# deliver FILE ... : moves files to the folder `packages` of the build folder, and prints their names there.
deliver() {
    local file
    mkdir -p "$packages"
    mv -t "$packages" "$@"
    for file; do printf '%s\n' "$packages/${file##*/}"; done
}

# Servers do not run as root, but as this user. What takes minutes to build is kept between runs in the
# folder cache: outside the checkout, and where the run user can read it.
if is_root; then
    run_user=nobody
    if id postgres >/dev/null 2>&1; then run_user=postgres; fi
    as_run_user() { runuser -u "$run_user" -- "$@"; }
    cache=/var/cache/snowflake_id
else
    run_user=$(id -un)
    as_run_user() { "$@"; }
    cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/snowflake_id
fi

# Prints the pg_config of a major version that is installed with server headers.
pg_config_of() {
    local candidate
    for candidate in "${PG_CONFIG:-}" "/usr/lib/postgresql/$1/bin/pg_config" "/usr/pgsql-$1/bin/pg_config" \
        /usr/local/pgsql/bin/pg_config "$(built_from_source "$1")/bin/pg_config" "$(command -v pg_config || true)"; do
        if [ -x "$candidate" ] && [[ $("$candidate" --version) =~ ^PostgreSQL\ $1[^0-9] ]] &&
            [ -e "$("$candidate" --includedir-server)/postgres.h" ] && [ -x "$("$candidate" --bindir)/postgres" ]; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# in_root_if_needed COMMAND: PostgreSQL 19 is a package of coming releases only, and its source
# is not served yet: where it is not installed, the calling script continues in tools/in_root.
in_root_if_needed() {
    if [ "${PG:-}" = 19 ] && ! pg_config_of 19 >/dev/null; then exec "$top/tools/in_root" "$@"; fi
}

# Adds to $wanted what any build of the extension needs and this machine lacks.
want_compilers() {
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || compgen -G '/usr/lib*/libclang.so*' >/dev/null || wanted+=(libclang-dev)
    # Debian's headers of a server include ICU's, and no dependency of their package brings those everywhere.
    if [[ ${pg_config:-} = /usr/lib/postgresql/* ]]; then want /usr/include/unicode/ucol.h:libicu-dev; fi
    command -v cc >/dev/null || wanted+=(gcc libc6-dev)
    need_rust
    # pgrx formats the declarations that it makes, and fails if there is no formatter.
    command -v rustfmt >/dev/null || export RUSTFMT=true
}

rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml"; }
is_new_enough() { [[ $1 = [0-9]* ]] && printf '%s\n' "$(rust_wanted)" "$1" | sort -C -V; }

# Whether cargo and a Rust that is new enough come first on the PATH.
has_rust() { command -v cargo >/dev/null && is_new_enough "$(rustc --version 2>/dev/null | cut -d ' ' -f 2)"; }

# Puts a Rust that is new enough first on the PATH, and installs it if need be. That of rustup may be older.
need_rust() {
    local wanted=() suffix older ubuntus
    if has_rust; then return; fi
    older=$(rustc --version 2>/dev/null) || older="not there"
    if ! find_rust; then
        update_packages
        ubuntus=$(apt-cache search --names-only '^rustc-1[.][0-9]+$' 2>/dev/null | sed 's/^rustc//; s/ .*//' | sort -V | tail -n 1) || true
        # Debian 12 and 13 have an older Rust, and a new one for their browsers. Ubuntu has packages for each version.
        for suffix in "" -web $ubuntus; do
            if is_new_enough "$(LC_ALL=C apt-cache policy "rustc$suffix" 2>/dev/null | sed -n 's/^ *Candidate: //p')"; then
                wanted=("rustc$suffix" "cargo$suffix" "rustfmt$suffix" "rust$suffix-clippy")
                break
            fi
        done
        [ ${#wanted[@]} != 0 ] ||
            die "Rust $(rust_wanted) or later is needed, and the one on the PATH is $older (with rustup: rustup update)"
        install_wanted
        find_rust || die "the packages ${wanted[*]} have no Rust $(rust_wanted)"
    fi
    printf 'uses %s in %s, since the first one on the PATH is %s\n' "$(rustc --version)" "$(dirname "$(command -v rustc)")" "$older" >&2
}

# Puts the distribution's Rust first on the PATH, if it is new enough. Ubuntu has a folder for each version.
find_rust() {
    local before=$PATH folder
    for folder in /usr/bin $(compgen -G '/usr/lib/rust-*/bin' | sort -rV); do
        export PATH=$folder:$before
        if has_rust; then return; fi
    done
    export PATH=$before
    return 1
}

# want COMMAND:PACKAGE ... : adds to $wanted the packages whose command, or file, is not here.
want() {
    local item
    for item; do command -v "${item%%:*}" >/dev/null || [ -e "${item%%:*}" ] || wanted+=("${item#*:}"); done
}

# need COMMAND:PACKAGE ... : the same, and installs them.
need() {
    local wanted=()
    want "$@"
    install_wanted
}
install_wanted() {
    if [ ${#wanted[@]} = 0 ]; then return; fi
    is_root && command -v apt-get >/dev/null || die "these packages are needed (their Debian names), please install them: ${wanted[*]}"
    install_packages "${wanted[@]}"
}

# need_cargo_program NAME VERSION: puts a program first on the PATH, which cargo builds once, into the cache.
need_cargo_program() {
    local folder building
    need_rust
    folder=$cache/$1
    mkdir -p "$folder"
    if [ -w "$folder" ]; then touch "$folder/lock"; fi
    (
        exec {building}< "$folder/lock"
        flock "$building"
        if [ -x "$folder/$2/bin/$1" ]; then exit; fi
        if [ "$(cargo "${1#cargo-}" --version 2>/dev/null)" = "$1 $2" ]; then
            install -D "$(command -v "$1")" "$folder/$2/bin/$1"
        else
            echo "building $1 $2 (once, about 4 minutes)"
            # It runs for seconds: to optimize it would take twice as long.
            env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --root "$folder/$2" "$1@$2"
        fi
    )
    export PATH=$folder/$2/bin:$PATH
}
need_cargo_pgrx() { need_cargo_program cargo-pgrx "$(sed -n 's/^pgrx = { version = "=\([^"]*\)".*/\1/p' "$top/Cargo.toml")"; }

# need_packages COMMAND:PACKAGE ... : finds or installs what a build needs, and these. Sets pg and pg_config.
need_packages() {
    local wanted=() version from_source=
    [[ ${PG:-15} =~ ^1[5-9]$ ]] || die "PG is $PG, but 15, 16, 17, 18 and 19 are supported"
    pg=
    for version in ${PG:-15 16 17 18 19}; do
        if pg_config=$(pg_config_of "$version"); then pg=$version; break; fi
    done
    if [ -z "$pg" ]; then
        # By default this is the distribution's own version, which apt may not know before it has lists.
        update_packages
        pg=${PG:-$(distribution_version)}
        if [[ $(LC_ALL=C apt-cache policy "postgresql-server-dev-$pg" 2>/dev/null) =~ Candidate:\ [0-9] ]]; then
            wanted+=("postgresql-$pg" "postgresql-server-dev-$pg" libicu-dev)
        else
            from_source=1
            # The test modules, which the build installs, need the last package.
            set -- "$@" make:make gcc:gcc bison:bison flex:flex perl:perl bzip2:bzip2 /usr/share/perl5/IPC/Run.pm:libipc-run-perl
        fi
    fi
    want_compilers
    want "$@"
    install_wanted
    if [ -n "$from_source" ]; then build_from_source "$pg"; fi
    pg_config=$(pg_config_of "$pg") || die "PostgreSQL $pg could not be installed"
}

# Prints the version of the distribution's PostgreSQL, or 15 if the distribution does not say.
distribution_version() {
    local version
    version=$(LC_ALL=C apt-cache depends postgresql 2>/dev/null | sed -n '0,/.*Depends: postgresql-\([0-9]*\)$/s//\1/p')
    printf '%s\n' "${version:-15}"
}

update_packages() {
    if is_root && [ -z "${apt_updated:-}" ]; then apt-get update -qq >/dev/null 2>&1 || true; apt_updated=1; fi
}
built_from_source() { printf '%s/postgresql-%s%s\n' "$cache" "$1" "${assertions:+-assertions}"; }

# The mirror of Debian is that which this machine's apt uses, and Ubuntu's own the one that python-apt knows.
debian_mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n '0,/\/debian\/$/{//p}' | grep . ||
        die "no mirror of Debian is known to take PostgreSQL from"
}
ubuntu_mirror() {
    local known=/usr/share/python-apt/templates/Ubuntu.info
    need "$known:python-apt-common" >&2
    perl -00 -ne 'print $1 if !$n && /^RepositoryType: deb-src$/m && /^BaseURI: (\S+\/)$/m && ++$n' "$known"
}

# Builds a version from its source in an archive: Debian's development suite has the newest major version, its stable
# suites have those before. PostgreSQL 16 was in none of them, but is in one of Ubuntu, of which Debian has no key.
build_from_source() (
    prefix=$(built_from_source "$1")
    if [ "$1" = 16 ]; then
        from="[trusted=yes] $(ubuntu_mirror)" suites="noble-updates noble"
    else
        from="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(debian_mirror)" suites="sid trixie bookworm"
    fi
    printf 'building PostgreSQL %s from source (once, about 5 minutes)\n' "$1"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    mkdir lists source
    for suite in $suites; do echo "deb-src $from $suite main"; done > sources.list
    apt=(apt-get -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists"
        -o Dir::Cache="$work" -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root)
    quiet "${apt[@]}" update || die "could not read the list of source packages"
    quiet "${apt[@]}" source --tar-only --download-only "postgresql-$1" ||
        die "PostgreSQL $1 is neither a package here nor in the archive of a distribution"
    tar -xf postgresql-*.orig.tar.* -C source --strip-components=1
    # PostgreSQL's own tests are kept beside the build. What was cut off leaves nothing that looks like an installation.
    make_all() {
        cd source && ./configure --prefix="$prefix" --enable-tap-tests ${assertions:+--enable-cassert} \
            ${SERVER_CFLAGS:+CFLAGS="$SERVER_CFLAGS"} --without-icu --without-readline --without-zlib &&
            make -s -j"$(nproc)" install DESTDIR="$work/root" &&
            printf '%s\n' contrib/{postgres_fdw,pg_stat_statements,spi} | xargs -I '{}' make -s -C '{}' install DESTDIR="$work/root" &&
            make -s -C src/test/regress all && mkdir "$work/root$prefix/tests" &&
            cp -R src/test/regress src/test/isolation "$work/root$prefix/tests/" &&
            rm -rf "$prefix" && mkdir -p "${prefix%/*}" && mv "$work/root$prefix" "$prefix"
    }
    quiet make_all || die "could not build PostgreSQL $1"
    chmod -R go+rX "$prefix"
)

# In a subshell, so that the lock ends with it, for which other runs wait.
install_packages() (
    mkdir -p "$cache"
    exec {packages}> "$cache/packages.lock"
    flock "$packages"
    # Installing PostgreSQL on Debian would start a cluster of its own; etcd, Prometheus or its exporter would
    # start now and at each boot, and PgBouncer now.
    conf=/etc/postgresql-common/createcluster.d/no-main-cluster.conf
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=; fi
    trap 'rm -f "$conf" $policy' EXIT
    install -D -m 644 /dev/stdin "$conf" <<< 'create_main_cluster = false'
    if [ -n "$policy" ]; then install -m 755 /dev/stdin "$policy" <<< $'#!/bin/sh\nexit 101'; fi
    printf 'installing %s\n' "$*"
    export DEBIAN_FRONTEND=noninteractive
    quiet apt-get update && quiet apt-get install -y --no-install-recommends "$@" || die "could not install: $*"
    for package; do
        case $package in etcd-server | prometheus*) update-rc.d "${package%-server}" disable >/dev/null 2>&1 || true ;; esac
    done
)

# Makes the folder in which servers run: the run user owns it and can reach it.
make_scratch() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/snowflake_id.XXXXXX")
    chmod 755 "$scratch"
    if is_root; then chown "$run_user" "$scratch"; fi
    as_run_user test -w "$scratch" || die "$run_user cannot write to $scratch; set TMPDIR"
}

# new_server DATA SETTING ... : starts a server of the private copy with the library, and these settings.
started=()
new_server() {
    as_run_user "$bindir/initdb" --no-locale --encoding=UTF8 --auth=trust --no-sync -D "$1" > /dev/null
    printf '%s\n' "shared_preload_libraries = 'snowflake_id'" "${@:2}" | as_run_user tee -a "$1/postgresql.conf" > /dev/null
    started+=("$1")
    as_run_user "$bindir/pg_ctl" -s -w -D "$1" -l "$1.log" start
}
stop_servers() {
    local data
    for data in "${started[@]}"; do as_run_user "$bindir/pg_ctl" -D "$data" -m immediate stop > /dev/null 2>&1 || true; done
}

# offline COMMAND: runs it without a network, so that it cannot fetch what it should have. Only root can.
offline() { if is_root && unshare --net true 2>/dev/null; then unshare --net -- "$@"; else "$@"; fi; }

# Builds the extension for $pg.
build() {
    (cd "$top" && PGRX_PG_CONFIG_PATH=$pg_config \
        cargo build --profile "$profile" --locked --quiet --package snowflake_id --no-default-features --features "pg$pg")
    # make install, which does not build, reads this file: root may have no cargo.
    printf '%s\n' "$pg" > "$CARGO_TARGET_DIR/$profile/snowflake_id.pg"
}

# The extensions, by the folders that make their scripts.
declare -A extensions=([sql]=snowflake_id [convert]=snowflake_id_convert)

# install_into PKGLIBDIR SHAREDIR: installs the library and both extensions, with all scripts: on a new node, Citus makes
# the version that the others have.
install_into() {
    local folder
    # The server reads them, whatever the umask of who installs them.
    (umask 022 && mkdir -p "$1" "$2/extension")
    install -m 755 "$CARGO_TARGET_DIR/$profile/libsnowflake_id.so" "$1/snowflake_id.so"
    install -m 644 "$top"/{snowflake_id,convert/snowflake_id_convert}.control "$2/extension/"
    for folder in "${!extensions[@]}"; do
        other_scripts "$folder" | xargs -r -d '\n' install -m 644 -t "$2/extension"
        whole_script "$folder" | install -m 644 /dev/stdin "$2/extension/${extensions[$folder]}--$(sql_version).sql"
    done
}

# whole_script FOLDER [TAG]: prints the script that CREATE EXTENSION runs, here or as the tag has it. It is made of
# the parts in FOLDER: those in sql/ in the order of src/lib.rs, where cargo-pgrx finds them, and those in convert/
# in that of its file `order`.
whole_script() (
    tag=${2:-}
    cd "$top/$1"
    show() { if [ -n "$tag" ]; then git show "$tag:./$1"; else cat "$1"; fi; }
    if [ "$1" = sql ]; then
        parts=$(show ../src/lib.rs | sed -n 's,^pgrx::extension_sql_file!("../sql/\(.*\).sql".*,\1,p')
    else
        parts=$(show order)
    fi
    for part in $parts; do show "$part.sql"; done |
        sed "s/extension constant name := 'snowflake_id'/extension constant name := '${extensions[$1]}'/"
)

# released_script FOLDER TAG: names the file that keeps the whole script of a released version.
released_script() { local version=${2#v}; printf 'sql/released/%s--%s.sql\n' "${extensions[$1]}" "${version%.*}"; }
# other_scripts FOLDER: prints the scripts that lead from one version to the next, and the whole ones of released versions.
other_scripts() { compgen -G "$top/$1/${extensions[$1]}--*.sql" || true; compgen -G "$top/sql/released/${extensions[$1]}--*.sql" || true; }

# image_into FOLDER: makes the file tree of an image that CloudNativePG mounts as an extension volume.
image_into() {
    rm -rf "$1"
    install_into "$1/lib" "$1/share"
    (umask 022 && install -D -m 644 "$top/LICENSE" "$1/licenses/snowflake_id/LICENSE")
}

# copy_installation FOLDER: copies PostgreSQL, which finds its files from there, and sets bindir, pkglibdir and sharedir.
copy_installation() {
    local prefix folder include
    bindir=$("$pg_config" --bindir)
    pkglibdir=$("$pg_config" --pkglibdir)
    sharedir=$("$pg_config" --sharedir)
    include=$("$pg_config" --includedir)
    prefix=$bindir
    while [[ $pkglibdir/ != "$prefix"/* || $sharedir/ != "$prefix"/* ]]; do prefix=${prefix%/*}; done
    rm -rf "$1"
    for folder in "$bindir" "$pkglibdir" "$sharedir"; do
        mkdir -p "$1${folder#"$prefix"}"
        cp -a "$folder/." "$1${folder#"$prefix"}/"
    done
    # In PostgreSQL's official image, this one is a link out of the folder.
    cp -L --remove-destination "$sharedir/postgresql.conf.sample" "$1${sharedir#"$prefix"}/"
    # Builds against the copy need this link.
    mkdir -p "$(dirname "$1${include#"$prefix"}")"
    ln -s "$include" "$1${include#"$prefix"}"
    bindir=$1${bindir#"$prefix"} pkglibdir=$1${pkglibdir#"$prefix"} sharedir=$1${sharedir#"$prefix"}
    [ "$("$bindir/pg_config" --sharedir)" = "$sharedir" ] || die "PostgreSQL in $prefix does not work from a copy"
}

# read_pg_config [PG_CONFIG]: sets pg_config, and pg to its major version.
read_pg_config() {
    pg_config=$(command -v "${1:-pg_config}") || die "${1:-pg_config} is not there: set PG_CONFIG"
    pg=$("$pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
}

# copy_sources FOLDER: copies what the repository or an unpacked archive holds, with vendor/ if it is there.
copy_sources() {
    if [ -e "$top/.git" ]; then
        (cd "$top" && git ls-files --cached --others --exclude-standard -z | tar -c --null --files-from=- ) | tar -x -C "$1"
    else
        tar -c -C "$top" --exclude=./target . | tar -x -C "$1"
    fi
    if [ -d "$top/vendor" ] && [ ! -d "$1/vendor" ]; then cp -R "$top/vendor" "$top/.cargo" "$1/"; fi
}

# Takes out of vendor/ the code of crates that no build for Linux needs: what is for Windows, which has libraries without
# their source, and what only tests need. Cargo wants the names of these crates, to choose versions.
prune_crates() {
    local target crate name version needed=()
    for target in {x86_64,aarch64,powerpc64le,s390x,riscv64gc}-unknown-linux-gnu; do
        while read -r name version; do
            if [ -d "vendor/$name-$version" ]; then needed+=("vendor/$name-$version"); else needed+=("vendor/$name"); fi
        done < <(cargo tree --offline --locked --package snowflake_id --no-default-features --features pg18 --target "$target" \
            --edges normal,build --prefix none --no-dedupe --format '{p}' | sed 's/ (.*//; s/ v/ /' | sort -u)
    done
    [ ${#needed[@]} -gt 100 ] || die "cargo lists no crates"
    for crate in vendor/*; do
        if [[ " ${needed[*]} " = *" $crate "* ]]; then continue; fi
        find "$crate" -mindepth 1 ! -path "$crate/Cargo.toml" ! -path "$crate/.cargo-checksum.json" -delete
        mkdir -p "$crate/src"
        : > "$crate/src/lib.rs"
        sed -i 's/"files":{[^}]*}/"files":{}/' "$crate/.cargo-checksum.json"
    done
    # Tests of needed crates have libraries, too.
    find vendor -type f \( -name '*.a' -o -name '*.lib' -o -name '*.dll' -o -name '*.so' -o -name '*.exe' \) | while read -r file; do
        crate=${file#vendor/} crate=vendor/${crate%%/*}
        rm "$file"
        FILE=${file#"$crate/"} perl -pi -e 's/"\Q$ENV{FILE}\E":"\w+",?//; s/,\}/}/' "$crate/.cargo-checksum.json"
    done
}

# control_of VERSIONS: prints the control file of packages for these versions.
control_of() {
    VERSIONS=$* RUST=$(rust_wanted) perl -00 -ne 's/RUSTVERSION/$ENV{RUST}/g; if (!/^Package: .*PGVERSION/m) { print; next }
        for my $version (split / /, $ENV{VERSIONS}) { print s/PGVERSION/$version/gr =~ s/\n*$/\n\n/r }' "$top/debian/control.in" |
        perl -0pe 's/\n+$/\n/'
}

# Prints the version of a release, MAJOR.MINOR.PATCH, which the library and the archives have.
version() { sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$top/Cargo.toml"; }
# Prints it as Debian and RPM do. To both, a tilde is before everything: 1.0.0 comes after 1.0.0~dev.
debian_version() { version | sed 's/-/~/'; }
# Prints the version of the SQL objects of both extensions, MAJOR.MINOR: a release that changes only the library
# leaves it as it is.
sql_version() { sed -n "s/^default_version = '\(.*\)'/\1/p" "$top/snowflake_id.control"; }

# agree FILE FOUND EXPECTED: fails if the file names another version than it has to.
agree() { [ "$2" = "$3" ] || die "$1 has $2, and not $3"; }

# Fails if a file names another version than Cargo.toml does, or another Rust, or if debian/control is not made from
# debian/control.in.
check_versions() (
    cd "$top"
    version=$(version) rust=$(rust_wanted)
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-dev)?$ ]] ||
        die "the version in Cargo.toml is $version, and not MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-dev"
    status=stable heading="## $version"
    if [[ $version = *-dev ]]; then status=testing heading="## ${version%-dev} (unreleased)"; fi
    agree snowflake_id.control "$(sql_version)" "${version%.*}"
    agree convert/snowflake_id_convert.control "$(sed -n "s/^default_version = '\(.*\)'/\1/p" convert/*.control)" "$(sql_version)"
    agree META.json "$(sed -n '/meta-spec/!s/.*"version": "\(.*\)".*/\1/p' META.json | sort -u)" "$version"
    agree META.json "$(sed -n 's/^ *"release_status": "\(.*\)",$/\1/p' META.json)" "$status"
    agree debian/changelog "$(sed -n '1s/^snowflake-id (\(.*\)-.*/\1/p' debian/changelog)" "$(debian_version)"
    agree rpm/snowflake_id.spec "$(sed -n 's/^Version: *//p' rpm/snowflake_id.spec)" "$(debian_version)"
    agree CHANGELOG.md "$(grep -m 1 '^## ' CHANGELOG.md)" "$heading"
    agree rust-toolchain.toml "$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)" "$rust"
    agree rpm/snowflake_id.spec "$(sed -nE 's/^BuildRequires: +(cargo|rust) >= //p' rpm/snowflake_id.spec | xargs)" "$rust $rust"
    # What a tag installs stays. An archive has no tags.
    for tag in $([ ! -e .git ] || git tag --merged HEAD --list 'v[0-9]*.[0-9]*.[0-9]*'); do
        for folder in "${!extensions[@]}"; do
            if [[ $tag = "v$(sql_version)."* ]]; then
                cmp -s <(whole_script "$folder" "$tag") <(whole_script "$folder") ||
                    die "$folder/ makes another script than $tag: begin the next version by tools/version"
            else
                released=$(released_script "$folder" "$tag")
                cmp -s <(whole_script "$folder" "$tag") "$released" || die "$released is not what $tag installs"
            fi
        done
    done
    # Files in packages get its date, but only if they are later.
    [ "$(date -d "$(sed -n '/^ -- /{s/.*>  //;p;q}' debian/changelog)" +%s)" -le "$(date +%s)" ] ||
        die "debian/changelog is of the future: two builds would give different files"
    diff -u debian/control <(control_of $(cat debian/pgversions)) || die "debian/control is not what debian/control.in says"
)
