# managed/snowflake_sql.sql: IDS (10,000,000; 0 for none) under load, PGlite, and what IDs cost; QUICK
# This takes too long for each day. Prints the tables of docs/managed.md. PGlite comes from npm.
assertions= profile=${BUILD_PROFILE:-release}
install_all
[ "${IDS:-}" = 0 ] || IDS=${IDS:-10000000} JOBS=1 prove_files "$scratch/tests/t/managed/sql_moves.pl"
pglite=$CARGO_TARGET_DIR/pglite
if npm_into "$pglite" "$top/tests/managed" PGlite; then node "$pglite/pglite.mjs" "$top/managed/snowflake_sql.sql"; fi
report_of managed
