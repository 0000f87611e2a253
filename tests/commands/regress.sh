# tests/pg_regress: SQL and what it prints
prepare
install_all
names=("$@") expected=()
if [ ${#names[@]} = 0 ]; then mapfile -t names < <(cd "$top/tests/pg_regress/sql" && compgen -G '*.sql' | sed 's/\.sql$//' | sort); fi
if [ "$pg" -ge 16 ]; then expected=(--expecteddir="$scratch/tests/pg_regress"); fi
printf '%s\n' "shared_preload_libraries = 'snowflake_id'" "snowflake_id.worker_id = 7" \
    "timezone = 'UTC'" > "$scratch/regress.conf"
as_run_user mkdir "$scratch/regress"
if ! as_run_user "$pgxs/regress/pg_regress" --bindir="$bindir" \
    --load-extension=snowflake_id --load-extension=snowflake_id_convert --no-locale --encoding=UTF8 \
    --temp-instance="$scratch/regress/instance" --temp-config="$scratch/regress.conf" \
    --inputdir="$scratch/tests/pg_regress" "${expected[@]}" \
    --outputdir="$scratch/regress" "${names[@]}"; then
    cat "$scratch/regress/regression.diffs" || tail "$scratch"/regress/log/*.log
    if [ -n "${KEEP_RESULTS:-}" ]; then cp "$scratch"/regress/results/*.out "$KEEP_RESULTS/"; fi
    return 1
fi
