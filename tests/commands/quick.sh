# the core's tests but loom's, and the rules; needs no PostgreSQL
need_rust
run rules
cargo test --locked --quiet
