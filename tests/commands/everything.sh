# what `make test` runs: loom, schema, regress, tap, pg and the rest of core
# The core's tests and pg compute and compile, and most tests of servers wait: they run side by side, and the former
# leave the processor to the others. Their output comes at the end. Root continues as an ordinary user, as
# cargo-pgrx must, so that nothing is built twice.
run needs
if is_root; then
    nice -n 10 tests/run cargo_pgrx &
    ordinary everything
    return
fi
logs=$CARGO_TARGET_DIR failed=()
mkdir -p "$logs"
nice -n 10 tests/run loom > "$logs/loom.log" 2>&1 &
loom=$!
nice -n 10 tests/run cargo_pgrx &
beside=("$loom" $!)
trap 'kill "${beside[@]}" 2>/dev/null || true' EXIT
for part in server schema regress; do run "$part" || failed+=("$part"); done
nice -n 10 tests/run pg '' > "$logs/pg.log" 2>&1 &
pgrx=$!
beside+=("$pgrx")
run tap || failed+=(tap)
wait "$loom" || failed+=(loom)
wait "$pgrx" || failed+=(pg)
cat "$logs/loom.log" "$logs/pg.log"
[ ${#failed[@]} = 0 ] || die "these failed: ${failed[*]}; tests/run runs each of them alone"
echo "all tests passed"
