# What the tests of packages share, also in a chroot.
. "$(dirname "$0")/../../tools/env.sh"

passed=0
# check NAME COMMAND: fails the test if the command fails.
check() {
    "${@:2}" || die "not ok: $1"
    passed=$((passed + 1))
    printf 'ok: %s\n' "$1"
}
equal() { [ "$1" = "$2" ] || { printf 'got      %s\nexpected %s\n' "$1" "$2" >&2; return 1; }; }
more() { [ "$1" -gt "$2" ] || { printf '%s is not above %s\n' "$1" "$2" >&2; return 1; }; }

# make_chroot [OPTION ...]: makes a chroot, $root, of this machine's distribution, or of one that has PostgreSQL OF. It
# has what the base has, or what mmdebstrap's options say. UPDATES=1 also takes this distribution's security updates:
# Rust 1.96 is one.
make_chroot() {
    local mirror suite lines=()
    need mmdebstrap:mmdebstrap
    root=$(mktemp -d "${TMPDIR:-/var/tmp}/snowflake_id.XXXXXX")
    chmod 755 "$root"
    trap 'rm -rf --one-file-system "$root"' EXIT
    mirror=$(debian_mirror)
    case ${OF:-$(distribution_version)} in
        "$(distribution_version)")
            suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
            lines=("deb $mirror $suite main")
            if [ "${UPDATES:-}" ]; then
                readarray -t -O 1 lines < <(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
                    grep -- '-security ' | sort -u)
                [ ${#lines[@]} != 1 ] || die "apt knows no security updates"
            fi ;;
        # Debian has no key of Ubuntu. What is made here is thrown away.
        16) suite=noble lines=("deb [trusted=yes] $(ubuntu_mirror) noble"{,-updates}" main universe")
            set -- --include=apt "$@" ;;
        17) suite=trixie lines=("deb $mirror trixie main") ;;
        18) suite=sid lines=("deb $mirror sid main") ;;
        19) suite=sid lines=("deb $mirror "{sid,experimental}" main") ;;
        *) die "PostgreSQL $OF is not that of this distribution, and not of one that is known here" ;;
    esac
    printf 'making a chroot of %s\n' "$suite"
    # The lists of packages stay, so that apt answers which PostgreSQL is its own. A mirror may be older than the time up
    # to which its lists are valid.
    quiet mmdebstrap --mode=root --variant=minbase --skip=cleanup/apt/lists --aptopt='Acquire::Check-Valid-Until "false"' \
        "$@" "$suite" "$root" "${lines[@]}" || die "could not make a chroot"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    mkdir "$root/packages"
    (cd "$top" && cp -R --parents tools/env.sh tests/packages "$root/packages/")
    # No server starts when its package is installed.
    install -m 755 /dev/stdin "$root/usr/sbin/policy-rc.d" <<< $'#!/bin/sh\nexit 101'
}

# in_chroot COMMAND: runs it in the chroot; NET= leaves it no network. Servers of the chroot end with their process
# namespace.
in_chroot() {
    local isolated=()
    [ "${NET-1}" ] || isolated=(--net)
    # By these, a build may be shorter.
    keep $(compgen -e CARGO_PROFILE_)
    unshare --mount --pid --fork --kill-child "${isolated[@]}" bash -c '
        set -e
        mount -t proc proc "$0/proc"
        mkdir -p "$0/dev/shm"
        mount -t tmpfs tmpfs "$0/dev/shm"
        ip link set lo up 2>/dev/null || true
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$0" "$@"' "$root" \
        env "${kept[@]}" "$@"
}

# run_in_chroot SCRIPT ARGUMENTS: runs this test of tests/packages in the chroot, and counts its checks.
run_in_chroot() {
    in_chroot bash "/packages/tests/packages/$1" "${@:2}" | tee "$root/packages/log"
    passed=$((passed + $(grep -c '^ok: ' "$root/packages/log")))
}

# Prints the names of all files that a server has of both extensions, but the library.
extension_files() {
    printf '%s\n' snowflake_id{,_convert}.control snowflake_id{,_convert}--"$(sql_version)".sql \
        $({ other_scripts sql; other_scripts convert; } | sed 's,.*/,,') | sort -u
}
