# licences, known faults and sources of all crates, by cargo-deny, as deny.toml says; needs no PostgreSQL
need_cargo_program cargo-deny 0.20.2
cargo deny --locked --workspace check licenses bans sources
if cargo deny --locked --workspace fetch db > /dev/null 2>&1; then
    cargo deny --locked --workspace check advisories
else
    echo "skipped: known faults of crates, since the list of RustSec could not be had"
fi
