# What the tests of packages share.
. "$(dirname "$0")/../../tools/env.sh"

passed=0
# check NAME COMMAND: fails the test if the command fails.
check() {
    local name=$1
    shift
    "$@" || die "not ok: $name"
    passed=$((passed + 1))
    printf 'ok: %s\n' "$name"
}
equal() { [ "$1" = "$2" ] || { printf 'got      %s\nexpected %s\n' "$1" "$2" >&2; return 1; }; }

# Makes a chroot, $root, of this machine's distribution: it has what the base has, and reads the
# lists of the same mirror.
make_chroot() {
    local mirror wanted=()
    command -v mmdebstrap >/dev/null || wanted+=(mmdebstrap)
    install_wanted
    root=$(mktemp -d "${TMPDIR:-/var/tmp}/snowflake_id.XXXXXX")
    chmod 755 "$root"
    trap 'rm -rf --one-file-system "$root"' EXIT
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || die "apt names no Debian mirror to make a chroot from"
    echo "making a chroot"
    # The lists of packages stay, so that apt answers which PostgreSQL is its own.
    mmdebstrap --quiet --mode=root --variant=minbase --skip=cleanup/apt/lists "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" "$mirror" \
        > "$packages/chroot.log" 2>&1 || { tail -n 20 "$packages/chroot.log" >&2; die "could not make a chroot"; }
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    mkdir "$root/packages"
    # No server starts when its package is installed.
    printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
}

# in_chroot COMMAND: runs it in the chroot; NET= leaves it no network. Servers of the chroot end
# with their process namespace.
in_chroot() {
    local variable isolated=() keep=()
    [ "${NET-1}" ] || isolated=(--net)
    # By these, a build may be shorter.
    for variable in $(compgen -e CARGO_PROFILE_); do keep+=("$variable=${!variable}"); done
    unshare --mount --pid --fork --kill-child "${isolated[@]}" bash -c '
        set -e
        mount -t proc proc "$0/proc"
        mkdir -p "$0/dev/shm"
        mount -t tmpfs tmpfs "$0/dev/shm"
        ip link set lo up 2>/dev/null || true
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$0" "$@"' "$root" \
        env "${keep[@]}" "$@"
}
