# the tests of crates/registry-client, and #[pg_test] functions in a server; with an empty argument, the core's as well
# cargo-pgrx builds those anyway. The server is the private copy of PostgreSQL. What a developer of pgrx gets is
# compared with what `make install` makes. Neither cargo-pgrx nor a server runs as root.
if is_root; then
    need_packages
    (need_cargo_pgrx)
    ordinary pg "$@"
    return
fi

# The script in a folder, without empty lines and comments of whole lines, which are pgrx's or ours.
statements() { grep -vE '^ *(--.*)?$' "$1/extension/snowflake_id--$(sql_version).sql" | perl -0pe 's,^/\*.*?\*/\n,,gms'; }

prepare -pgrx
need_cargo_pgrx
# Its build script asks pg_config for libpq.
PGRX_PG_CONFIG_PATH=$pg_config cargo test --locked --profile "$profile" --package snowflake_registry_client {lock}>&-
build
install_into "$scratch/made" "$scratch/made"
# cargo-pgrx builds for the pg_config of the copy, and cargo would build anew what depends on it whenever the other
# builds, which name the real one, take turns with it in one build folder. What depends on neither is copied.
copy=$CARGO_TARGET_DIR/pgrx
if [ ! -d "$copy/$profile" ]; then
    mkdir -p "$copy"
    rm -rf "$copy/new"
    cp -a --reflink=auto "$CARGO_TARGET_DIR/$profile" "$copy/new"
    mv "$copy/new" "$copy/$profile"
fi
export CARGO_TARGET_DIR=$copy PGRX_HOME=$scratch/pgrx
mkdir "$PGRX_HOME"
printf '[configs]\npg%s = "%s/pg_config"\n' "$pg" "$bindir" > "$PGRX_HOME/config.toml"
cargo pgrx package --pg-config "$bindir/pg_config" --profile "$profile" --features "pg$pg" --out-dir "$scratch/package" \
    --cargo=--locked > "$scratch/package.log" 2>&1 {lock}>&- || { tail -n 20 "$scratch/package.log" >&2; die "cargo pgrx package failed"; }
diff <(symbols "$scratch/made/snowflake_id.so") <(symbols "$scratch/package$pkglibdir/snowflake_id.so")
diff "$scratch/made/extension/snowflake_id.control" "$scratch/package$sharedir/extension/"
diff <(statements "$scratch/made") <(statements "$scratch/package$sharedir")
echo "cargo pgrx package makes what make install makes"
printf '%s\n' 'CREATE EXTENSION snowflake_id;' "SELECT 'psql runs: ' || extversion FROM pg_extension WHERE extname = 'snowflake_id';" |
    cargo pgrx run "pg$pg" --profile "$profile" --cargo=--locked > "$scratch/run.log" 2>&1 {lock}>&- || true
cargo pgrx stop "pg$pg" > "$scratch/stop.log" 2>&1 || true
grep 'psql runs: ' "$scratch/run.log" || { tail -n 20 "$scratch/run.log" >&2; die "cargo pgrx run opened no psql with the extension"; }
# At last, since what it installs is built with other settings.
cargo pgrx test "pg$pg" "${1-tests::pg_}" --profile "$profile" --cargo=--locked {lock}>&- | tee "$scratch/test.log"
grep -q '^test .*tests::pg_.* ok$' "$scratch/test.log" || die "cargo pgrx test ran no test inside a server"
