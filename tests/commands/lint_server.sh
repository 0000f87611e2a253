# the same of what needs a server's headers
need_packages
# With the tests that run inside a server. All of it has one profile and one set of features, so that
# cargo looks at the crates below once.
what=(--locked --profile "$profile" --package snowflake_id --package snowflake_registry_client --features "snowflake_id/pg$pg,snowflake_id/pg_test")
export PGRX_PG_CONFIG_PATH=$pg_config
cargo clippy "${what[@]}" --all-targets -- -D warnings
# Later versions of Rust, which the newest PostgreSQL's distribution has, warn of more.
[ "$pg" != 15 ] || RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
    cargo doc "${what[@]}" --quiet --no-deps --document-private-items
