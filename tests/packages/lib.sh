# What the tests of packages share.
. "$(dirname "$0")/../../tools/env.sh"
. "$(dirname "$0")/checks.sh"

# make_chroot [OPTION ...]: makes a chroot, $root, of this machine's distribution. It has what the base
# has, or what mmdebstrap's options say, and reads the lists of the same mirror. UPDATES=1 also takes
# the distribution's security updates: Rust 1.96 is one.
make_chroot() {
    local mirror suite updates=() wanted=()
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    command -v mmdebstrap >/dev/null || wanted+=(mmdebstrap)
    install_wanted
    root=$(mktemp -d "${TMPDIR:-/var/tmp}/snowflake_id.XXXXXX")
    chmod 755 "$root"
    trap 'rm -rf --one-file-system "$root"' EXIT
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || die "apt names no Debian mirror to make a chroot from"
    if [ "${UPDATES:-}" ]; then
        readarray -t updates < <(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
            grep -- '-security ' | sort -u)
        [ ${#updates[@]} != 0 ] || die "apt knows no security updates"
    fi
    echo "making a chroot"
    # The lists of packages stay, so that apt answers which PostgreSQL is its own.
    mmdebstrap --quiet --mode=root --variant=minbase --skip=cleanup/apt/lists "$@" "$suite" "$root" \
        "deb $mirror $suite main" "${updates[@]}" \
        > "$packages/chroot.log" 2>&1 || { tail -n 20 "$packages/chroot.log" >&2; die "could not make a chroot"; }
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    mkdir "$root/packages"
    cp "$(dirname "$0")/checks.sh" "$root/packages/"
    # No server starts when its package is installed.
    printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
}

# quiet COMMAND: prints its output only if it fails.
quiet() { "$@" > "$packages/chroot.log" 2>&1 || { tail -n 40 "$packages/chroot.log" >&2; return 1; }; }

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
