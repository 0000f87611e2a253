# the rules, and clippy and rustdoc with warnings denied; needs no PostgreSQL
need_rust
run rules
# The benchmark runs seldom, and uses the core's internals.
cargo check --locked --package snowflake_bench
cargo clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --quiet --no-deps --document-private-items \
    --package snowflake_core
