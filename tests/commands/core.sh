# the core's unit and property tests and loom's; needs no PostgreSQL
need_rust
cargo test --locked
run loom
