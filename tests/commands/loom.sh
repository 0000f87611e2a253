# the core's tests by loom; needs no PostgreSQL
# The flag would make cargo rebuild everything, so this build has a target folder of its own.
need_rust
RUSTFLAGS="--cfg loom -D warnings" cargo test --locked --profile walks --target-dir "$CARGO_TARGET_DIR/loom"
