# The scripts in tools/ and tests/ source this file. Its functions find PostgreSQL, build the
# extension, and install it: tests and the demo take a private copy of PostgreSQL, so that
# nothing outside the copy changes. Missing packages are listed, or installed if root runs
# the script on Debian.
#
#   PG          major version wanted (15 to 19); the demo takes any
#   PG_CONFIG   a pg_config to use instead of looking for one
#   BUILD_PROFILE  the profile with which the extension is built: release, or, which is what
#               most tests take, servers
#   CITUS       a folder into which Citus was installed, for the tests that need Citus
#   SERVER_CFLAGS  the C compiler's options for a PostgreSQL that has to be built from source
#
# A version that has to be built from source is built with PostgreSQL's assertions
# where the caller has set assertions=1, as the tests do and the benchmarks do not.

# With pipefail, no command here may read a pipe only in part: the writer would fail,
# now and then.
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

die() { printf 'error: %s\n' "$1" >&2; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }

# Servers do not run as root, but as this user.
if is_root; then
    run_user=nobody
    if id postgres >/dev/null 2>&1; then run_user=postgres; fi
    as_run_user() { runuser -u "$run_user" -- "$@"; }
else
    run_user=$(id -un)
    as_run_user() { "$@"; }
fi

# Prints the pg_config of a major version that is installed with server headers.
pg_config_of() {
    local candidate
    for candidate in "${PG_CONFIG:-}" "/usr/lib/postgresql/$1/bin/pg_config" \
        "/usr/pgsql-$1/bin/pg_config" "/usr/local/pgsql/bin/pg_config" \
        "$(built_from_source "$1")/bin/pg_config" \
        "$(command -v pg_config || true)"; do
        if [ -x "$candidate" ] &&
            [[ $("$candidate" --version) =~ ^PostgreSQL\ $1[^0-9] ]] &&
            [ -e "$("$candidate" --includedir-server)/postgres.h" ] &&
            [ -x "$("$candidate" --bindir)/postgres" ]; then
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

# Whether cargo and a Rust that is new enough come first on the PATH.
has_rust() {
    command -v cargo >/dev/null && is_new_enough "$(rustc --version 2>/dev/null | cut -d ' ' -f 2)"
}

# is_new_enough VERSION
is_new_enough() {
    [[ $1 = [0-9]* ]] && printf '%s\n' "$(rust_wanted)" "$1" | sort -C -V
}

rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml"; }

# Puts a Rust that is new enough first on the PATH, and installs it if need be. Programs of
# rustup, which come first, may be older than those of the distribution.
need_rust() {
    local wanted=() names older ubuntus
    if has_rust; then return; fi
    older=$(rustc --version 2>/dev/null) || older="not there"
    if ! find_rust; then
        update_packages
        ubuntus=$(apt-cache search --names-only '^rustc-1[.][0-9]+$' 2>/dev/null | sed 's/^rustc-//; s/ .*//' | sort -V | tail -n 1) || true
        # Debian 12 and 13 have a Rust that is older, and one for their browsers, which is new. Ubuntu
        # has packages for each version.
        for names in "rustc cargo rustfmt rust-clippy" "rustc-web cargo-web rustfmt-web rust-web-clippy" \
            "rustc-$ubuntus cargo-$ubuntus rustfmt-$ubuntus rust-$ubuntus-clippy"; do
            if is_new_enough "$(LC_ALL=C apt-cache policy "${names%% *}" 2>/dev/null | sed -n 's/^ *Candidate: //p')"; then
                read -ra wanted <<< "$names"
                break
            fi
        done
        [ ${#wanted[@]} != 0 ] || die "Rust $(rust_wanted) or later is needed, and the one on the PATH is $older (with rustup: rustup update)"
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

# Installs $wanted, if it can.
install_wanted() {
    if [ ${#wanted[@]} = 0 ]; then return; fi
    if ! is_root || ! command -v apt-get >/dev/null; then
        die "these packages are needed (their Debian names), please install them: ${wanted[*]}"
    fi
    install_packages "${wanted[@]}"
}

# need_cargo_program NAME VERSION: puts a program that cargo installs first on the PATH. Who may write to the cache
# builds it there, once; others wait for that.
need_cargo_program() {
    local folder building
    need_rust
    folder=$(cache)/$1
    mkdir -p "$folder"
    if [ -w "$folder" ]; then touch "$folder/lock"; fi
    (
        exec {building}< "$folder/lock"
        flock "$building"
        if [ -x "$folder/$2/bin/$1" ]; then exit; fi
        if [ "$(cargo "${1#cargo-}" --version 2>/dev/null)" = "$1 $2" ]; then
            install -D "$(command -v "$1")" "$folder/$2/bin/$1"
            exit
        fi
        echo "building $1 $2 (once, about 4 minutes)"
        # It runs for seconds: to optimize it would take twice as long.
        env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --root "$folder/$2" "$1@$2"
    )
    export PATH=$folder/$2/bin:$PATH
}

# In the version that Cargo.toml gives pgrx.
need_cargo_pgrx() { need_cargo_program cargo-pgrx "$(sed -n 's/^pgrx = { version = "=\([^"]*\)".*/\1/p' "$top/Cargo.toml")"; }

# need_packages COMMAND:PACKAGE ... : finds or installs what a build needs, and these.
# Sets pg (major version) and pg_config.
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
        if is_packaged "$pg"; then
            wanted+=("postgresql-$pg" "postgresql-server-dev-$pg" libicu-dev)
        else
            from_source=1
            # The test modules, which the build installs, need the last package.
            set -- "$@" make:make gcc:gcc bison:bison flex:flex perl:perl bzip2:bzip2 xz:xz-utils \
                /usr/share/perl5/IPC/Run.pm:libipc-run-perl
            # This one names the mirror that has 16.
            if [ "$pg" = 16 ]; then set -- "$@" "$ubuntu:python-apt-common"; fi
        fi
    fi
    want_compilers
    want "$@"
    install_wanted
    if [ -n "$from_source" ]; then build_from_source "$pg"; fi
    pg_config=$(pg_config_of "$pg") || die "PostgreSQL $pg could not be installed"
}

# Prints the version of the distribution's PostgreSQL, or 15 if the distribution does
# not say.
distribution_version() {
    local version
    version=$(LC_ALL=C apt-cache depends postgresql 2>/dev/null |
        perl -ne 'print $1 if !$n && /Depends: postgresql-(\d+)$/ && ++$n')
    printf '%s\n' "${version:-15}"
}

update_packages() {
    if is_root && [ -z "${apt_updated:-}" ]; then apt-get update -qq >/dev/null 2>&1 || true; apt_updated=1; fi
}

is_packaged() {
    update_packages
    [[ $(LC_ALL=C apt-cache policy "postgresql-server-dev-$1" 2>/dev/null) =~ Candidate:\ [0-9] ]]
}

# Prints where what takes minutes to build is kept between runs: outside the checkout, and where the
# run user can read it.
cache() {
    local cache=/var/cache
    is_root || cache=${XDG_CACHE_HOME:-$HOME/.cache}
    printf '%s/snowflake_id\n' "$cache"
}

# Prints where a version that is built from source is kept.
built_from_source() { printf '%s/postgresql-%s%s\n' "$(cache)" "$1" "${assertions:+-assertions}"; }

# What python-apt knows of the archive of Ubuntu.
ubuntu=/usr/share/python-apt/templates/Ubuntu.info

# Prints the mirror of Debian that this machine's apt uses.
debian_mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        perl -ne 'chomp; print if m{/debian/$} && !$n++'
}

# Prints Ubuntu's own mirror.
ubuntu_mirror() { perl -00 -ne 'print $1 if !$n && /^RepositoryType: deb-src$/m && /^BaseURI: (\S+\/)$/m && ++$n' "$ubuntu"; }

# Builds a version from the source tarball in the distribution's archive, on the mirror
# that this machine's apt uses; the suite's checksum is checked. The development suite
# has the newest major version, stable suites have those before. PostgreSQL 16 was in no
# stable release of Debian, but is in one of Ubuntu.
build_from_source() (
    file=
    prefix=$(built_from_source "$1")
    if [ "$1" = 16 ]; then
        suites="noble-updates noble"
        mirror=$(ubuntu_mirror) || true
    else
        suites="sid trixie bookworm"
        mirror=$(debian_mirror) || true
    fi
    [ -n "$mirror" ] || die "PostgreSQL $1 is no package here, and no mirror is known to take its source from"
    printf 'building PostgreSQL %s from source (once, about 5 minutes)\n' "$1"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    for suite in $suites; do
        /usr/lib/apt/apt-helper download-file "${mirror}dists/$suite/main/source/Sources.xz" \
            "$work/$suite.xz" >/dev/null 2>&1 || die "could not read the list of source packages"
        read -r folder sum file < <(xz -dc "$work/$suite.xz" | perl -00 -ne '
            next unless /^Package: postgresql-'"$1"'$/m;
            ($dir) = /^Directory: (\S+)/m;
            ($list) = /^Checksums-Sha256:\n((?: .*\n?)+)/m;
            ($sum, $file) = $list =~ /(\w{64}) \d+ (\S+\.orig\.tar\.\w+)$/m;
            print "$dir $sum $file\n"') && break
    done
    [ -n "$file" ] || die "PostgreSQL $1 is neither a package here nor in the archive of a distribution"
    /usr/lib/apt/apt-helper download-file "$mirror$folder/$file" "$work/$file" "SHA256:$sum" \
        >/dev/null 2>&1 || die "could not download $file"
    mkdir "$work/source"
    tar -xf "$work/$file" -C "$work/source" --strip-components=1
    # PostgreSQL's own tests are kept beside the build, with the library that they load.
    # What was cut off leaves nothing behind that looks like an installation.
    if ! (cd "$work/source" && ./configure --prefix="$prefix" --enable-tap-tests \
        ${assertions:+--enable-cassert} ${SERVER_CFLAGS:+CFLAGS="$SERVER_CFLAGS"} --without-icu --without-readline --without-zlib &&
        make -s -j"$(nproc)" install DESTDIR="$work/root" &&
        make -s -C contrib/postgres_fdw install DESTDIR="$work/root" &&
        make -s -C contrib/pg_stat_statements install DESTDIR="$work/root" &&
        make -s -C contrib/spi install DESTDIR="$work/root" &&
        make -s -C src/test/regress all && mkdir "$work/root$prefix/tests" &&
        cp -R src/test/regress src/test/isolation "$work/root$prefix/tests/" &&
        rm -rf "$prefix" && mkdir -p "${prefix%/*}" &&
        mv "$work/root$prefix" "$prefix") > "$work/log" 2>&1; then
        tail -n 20 "$work/log" >&2
        die "could not build PostgreSQL $1"
    fi
    chmod -R go+rX "$prefix"
)

# In a subshell, so that the lock ends with it.
install_packages() (
    # Installing PostgreSQL on Debian would start a cluster of its own.
    conf=/etc/postgresql-common/createcluster.d/no-main-cluster.conf
    # Another run may be installing. In a folder that only root can write to: elsewhere,
    # the file could be somebody's link to another one.
    mkdir -p /var/cache/snowflake_id
    exec {packages}> /var/cache/snowflake_id/packages.lock
    flock "$packages"
    log=$(mktemp)
    # Installing etcd, Prometheus or its exporter would start it now and at each boot, and PgBouncer now.
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=; fi
    trap 'rm -f "$conf" "$log" $policy' EXIT
    mkdir -p "${conf%/*}"
    printf 'create_main_cluster = false\n' > "$conf"
    if [ -n "$policy" ]; then install -m 755 /dev/stdin "$policy" <<< $'#!/bin/sh\nexit 101'; fi
    printf 'installing %s\n' "$*"
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@"; } > "$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "could not install: $*"
    fi
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

# The data directories of the servers that new_server has started.
started=()

# new_server DATA SETTING ... : starts a server of the private copy with the library, and these settings.
new_server() {
    local data=$1
    shift
    as_run_user "$bindir/initdb" --no-locale --encoding=UTF8 --auth=trust --no-sync -D "$data" > /dev/null
    printf '%s\n' "shared_preload_libraries = 'snowflake_id'" "$@" | as_run_user tee -a "$data/postgresql.conf" > /dev/null
    started+=("$data")
    as_run_user "$bindir/pg_ctl" -s -w -D "$data" -l "$data.log" start
}

stop_servers() {
    local data
    for data in "${started[@]}"; do as_run_user "$bindir/pg_ctl" -D "$data" -m immediate stop > /dev/null 2>&1 || true; done
}

# offline COMMAND: runs it without a network, so that it cannot fetch what it should have. Only root can.
offline() { if is_root && unshare --net true 2>/dev/null; then unshare --net -- "$@"; else "$@"; fi; }

# build [FEATURE]: builds the extension for $pg.
build() {
    (cd "$top" && PGRX_PG_CONFIG_PATH=$pg_config \
        cargo build --profile "$profile" --locked --quiet --package snowflake_id --no-default-features --features "pg$pg ${1:-}")
    # make install, which does not build, reads this file: root may have no cargo.
    printf '%s\n' "$pg" > "$CARGO_TARGET_DIR/$profile/snowflake_id.pg"
}

# install_into PKGLIBDIR SHAREDIR: installs the library and both extensions.
install_into() {
    # The server reads them, whatever the umask of who installs them.
    (umask 022 && mkdir -p "$1" "$2/extension")
    install -m 755 "$CARGO_TARGET_DIR/$profile/libsnowflake_id.so" "$1/snowflake_id.so"
    install_extension snowflake_id.control sql "$2/extension"
    install_extension convert/snowflake_id_convert.control convert "$2/extension"
}

# whole_script FOLDER NAME [TAG]: prints the script that CREATE EXTENSION NAME runs, here or as the tag
# has it. It is made of the parts in FOLDER: those in sql/ in the order of src/lib.rs, where cargo-pgrx
# finds them, and those in convert/ in that of its file `order`.
whole_script() {
    local tag=${3:-} part
    (
        cd "$top/$1"
        show() { if [ -n "$tag" ]; then git show "$tag:./$1"; else cat "$1"; fi; }
        for part in $(if [ "$1" = sql ]; then show ../src/lib.rs | sed -n 's,^pgrx::extension_sql_file!("../sql/\(.*\).sql".*,\1,p'; else show order; fi); do
            show "$part.sql"
        done
    ) | sed "s/extension constant name := 'snowflake_id'/extension constant name := '$2'/"
}

# released_script NAME TAG: names the file that keeps the whole script of a released version.
released_script() { local version=${2#v}; printf 'sql/released/%s--%s.sql\n' "$1" "${version%.*}"; }

# other_scripts FOLDER NAME: prints the scripts that lead from one version to the next, and the whole
# ones of released versions.
other_scripts() { compgen -G "$top/$1/$2--*.sql" || true; compgen -G "$top/sql/released/$2--*.sql" || true; }

# install_extension CONTROL FOLDER TO: installs the whole script, and the others: Citus makes the
# extension on a new node in the version that the others have.
install_extension() {
    local name=${1##*/}
    name=${name%.control}
    install -m 644 "$top/$1" "$3/"
    other_scripts "$2" "$name" | xargs -r -d '\n' install -m 644 -t "$3"
    whole_script "$2" "$name" | install -m 644 /dev/stdin "$3/$name--$(sql_version).sql"
}

# image_into FOLDER: makes the file tree of an image that CloudNativePG mounts as an
# extension volume, on PostgreSQL 18 or later.
image_into() {
    rm -rf "$1"
    install_into "$1/lib" "$1/share"
    (umask 022 && mkdir -p "$1/licenses/snowflake_id")
    install -m 644 "$top/LICENSE" "$1/licenses/snowflake_id/"
}

# copy_installation FOLDER: copies PostgreSQL into FOLDER. Its programs find their files
# relative to themselves. Sets bindir, pkglibdir, sharedir.
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
    # In PostgreSQL's official image, this one is a link out of the folder.
    cp -L --remove-destination "$from_share/postgresql.conf.sample" "$sharedir/"
    # Builds against the copy need this link.
    mkdir -p "$(dirname "$1${from_include#"$prefix"}")"
    ln -s "$from_include" "$1${from_include#"$prefix"}"
    [ "$("$bindir/pg_config" --sharedir)" = "$sharedir" ] ||
        die "PostgreSQL in $prefix does not work from a copy"
}

# copy_sources FOLDER: copies what the repository holds, or what was unpacked from an
# archive, with the crates in vendor/, if they are there.
copy_sources() {
    if [ -e "$top/.git" ]; then
        (cd "$top" && git ls-files --cached --others --exclude-standard -z | tar -c --null --files-from=- ) |
            tar -x -C "$1"
    else
        tar -c -C "$top" --exclude=./target . | tar -x -C "$1"
    fi
    if [ -d "$top/vendor" ] && [ ! -d "$1/vendor" ]; then
        cp -R "$top/vendor" "$top/.cargo" "$1/"
    fi
}

# Brings all crates to vendor/ of the present folder, and prints the settings by which cargo
# takes them from there.
vendor_crates() {
    # With --quiet, it would not print the settings.
    cargo vendor --locked
}

# Takes the code of all crates that a build of the library for Linux does not need out of vendor/
# of the present folder: what is for Windows, which has libraries without their source, and what
# only tests need. Cargo wants the names of these crates, to choose versions.
prune_crates() {
    local target crate name version needed=()
    for target in {x86_64,aarch64,powerpc64le,s390x,riscv64gc}-unknown-linux-gnu; do
        while read -r name version; do
            version=${version#v}
            if [ -d "vendor/$name-$version" ]; then needed+=("vendor/$name-$version"); else needed+=("vendor/$name"); fi
        done < <(cargo tree --offline --locked --package snowflake_id --no-default-features --features pg18 --target "$target" \
            --edges normal,build --prefix none --no-dedupe --format '{p}' | sed 's/ (.*//' | sort -u)
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
version() {
    sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$top/Cargo.toml"
}

# Prints it as Debian and RPM do. To both, a tilde is before everything: 1.0.0 comes after 1.0.0~dev.
debian_version() { version | sed 's/-/~/'; }

# Prints the version of the SQL objects of both extensions, MAJOR.MINOR: a release that changes only the library
# leaves it as it is.
sql_version() {
    sed -n "s/^default_version = '\(.*\)'/\1/p" "$top/snowflake_id.control"
}

# Fails if a file names another version than Cargo.toml does, or another Rust, or if
# debian/control is not made from debian/control.in.
check_versions() {
    local version
    version=$(version)
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-dev)?$ ]] ||
        die "the version in Cargo.toml is $version, and not MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-dev"
    [[ $version = "$(sql_version)."* ]] ||
        die "snowflake_id.control has version $(sql_version), which is not the beginning of $version"
    grep -qx "default_version = '$(sql_version)'" "$top/convert/snowflake_id_convert.control" ||
        die "convert/snowflake_id_convert.control has another version than snowflake_id.control"
    [ "$(sed -n '/meta-spec/!s/.*"version": "\(.*\)".*/\1/p' "$top/META.json" | sort -u)" = "$version" ] ||
        die "META.json has another version than $version"
    [[ $(head -n 1 "$top/debian/changelog") = "snowflake-id ($(debian_version)-"* ]] ||
        die "debian/changelog begins with another version than $version"
    [ "$(sed -n 's/^Version: *//p' "$top/rpm/snowflake_id.spec")" = "$(debian_version)" ] ||
        die "rpm/snowflake_id.spec has another version than $version"
    local status=stable
    if [[ $version = *-dev ]]; then status=testing; fi
    grep -q "^ *\"release_status\": \"$status\",$" "$top/META.json" || die "META.json does not say that $version is $status"
    local heading="## ${version%-dev}"
    if [ "$heading" != "## $version" ]; then heading+=" (unreleased)"; fi
    [ "$(grep -m 1 '^## ' "$top/CHANGELOG.md")" = "$heading" ] ||
        die "CHANGELOG.md begins with another section than $heading"
    # What a tag installs stays. An archive has no tags.
    local folder tag name released
    for folder in $([ ! -e "$top/.git" ] || echo sql convert); do
        name=snowflake_id
        if [ "$folder" = convert ]; then name=snowflake_id_convert; fi
        for tag in $(git -C "$top" tag --merged HEAD --list 'v[0-9]*.[0-9]*.[0-9]*'); do
            if [[ $tag = "v$(sql_version)."* ]]; then
                cmp -s <(whole_script "$folder" "$name" "$tag") <(whole_script "$folder" "$name") ||
                    die "$folder/ makes another script than $tag: begin the next version by tools/version"
            else
                released=$(released_script "$name" "$tag")
                cmp -s <(whole_script "$folder" "$name" "$tag") "$top/$released" || die "$released is not what $tag installs"
            fi
        done
    done
    # Files in packages get its date, but only if they are later.
    local date
    date=$(sed -n '/^ -- /{s/.*>  //;p;q}' "$top/debian/changelog")
    [ "$(date -d "$date" +%s)" -le "$(date +%s)" ] ||
        die "debian/changelog is of the future: two builds would give different files"
    local rust
    rust=$(rust_wanted)
    grep -qx "channel = \"$rust\"" "$top/rust-toolchain.toml" || die "rust-toolchain.toml has another Rust than $rust"
    [ "$(grep -cE "^BuildRequires: +(cargo|rust) >= $rust$" "$top/rpm/snowflake_id.spec")" = 2 ] ||
        die "rpm/snowflake_id.spec has another Rust than $rust"
    diff -u "$top/debian/control" <(control_of $(cat "$top/debian/pgversions")) ||
        die "debian/control is not what debian/control.in says"
}

# Prints the time of the last commit, in seconds since 1970, or of an archive's files.
commit_date() {
    git -C "$top" log -1 --format=%ct 2>/dev/null || stat -c %Y "$top/snowflake_id.control"
}
