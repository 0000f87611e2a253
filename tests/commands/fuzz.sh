# random texts as labels; MINUTES; needs no PostgreSQL
# It is libFuzzer, with the coverage that the stable compiler gives. New inputs of interest go to the
# build folder; tests/corpus/labels, which the core's tests replay, is only read.
need_rust
command -v c++ >/dev/null || die "a C++ compiler is needed (Debian: g++)"
folder=$CARGO_TARGET_DIR/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
coverage=$(printf -- '-Cllvm-args=-sanitizer-coverage-%s ' level=4 inline-8bit-counters pc-table trace-compares)
mkdir -p "$folder/corpus"
cat tests/fuzz/labels.dict <(sed -nE 's/^    ("\w+") is .*/\1/p' crates/core/src/label/presets.rs) > "$folder/labels.dict"
# With --target, cargo builds build scripts without the flags.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Clink-dead-code $coverage" \
    cargo build --locked --package snowflake_fuzz --profile fuzz --target "$host" --target-dir "$folder"
"$folder/$host/fuzz/labels" "$folder/corpus" "$top/tests/corpus/labels" \
    -dict="$folder/labels.dict" -max_len=400 -max_total_time=$((${MINUTES:-5} * 60)) -artifact_prefix="$folder/"
