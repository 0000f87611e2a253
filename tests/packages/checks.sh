# What the tests of packages check with, also in a chroot. The caller has die.

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
more() { [ "$1" -gt "$2" ] || { printf '%s is not above %s\n' "$1" "$2" >&2; return 1; }; }
