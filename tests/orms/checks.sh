# tools.sh and migrations/both.sh source this file.
set -euo pipefail

fail() { printf '%s\n' "$1"; exit 1; }

# same WHAT GOT EXPECTED
same() {
    printf '  %s: %s\n' "$1" "$2"
    [ "$2" = "$3" ] || fail "$1: got $2, expected $3"
}

# until_true WHAT COMMAND [ARGUMENTS]
until_true() {
    for _ in $(seq 300); do
        if "${@:2}"; then return; fi
        sleep 0.1
    done
    fail "not within 300 tries: $1"
}
