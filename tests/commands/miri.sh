# the core's tests on Miri, with a nightly compiler; needs no PostgreSQL
# Miri is an interpreter that finds undefined behaviour, races, and what atomics may do on other
# machines than this one. It is slow, so long tests and tests of texts are left out.
cargo +nightly miri --version >/dev/null 2>&1 ||
    die "Miri is needed: rustup toolchain install nightly --component miri --component rust-src"
skipped=$(printf -- '--skip %s ' tests::{walks,policy_walks,behaviour,evenness,presets} label_tests explain)
# Proptest reads the name of the folder, which Miri would not allow.
MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" PROPTEST_CASES=${PROPTEST_CASES:-4} \
    cargo +nightly miri test --locked --target-dir "$CARGO_TARGET_DIR/miri" -- $skipped "$@"
