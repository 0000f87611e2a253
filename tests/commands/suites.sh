# PostgreSQL's own regression and isolation tests, with the library preloaded, on PG 18
# Both suites run with the library loaded into every server process, and with no extension in their
# databases: nothing may differ from a server without the library. The one exception is SECURITY LABEL
# without FOR, which finds a provider that looks at the object.
PG=${given:-18}
prepare
source=$(built_from_source "$pg")/tests
[ -d "$source" ] || die "PostgreSQL $pg is here without its own tests: it is not built by these scripts"
install_all
cp -R "$source" "$scratch/suites"
perl -0pi -e 's/(?<=\n)(SECURITY LABEL ON (\w+) (\w+) .*\n)ERROR:  no security label providers have been loaded\n/
    my ($command, $kind, $name) = ($1, lc $2, $3);
    $kind =~ s,table,relation,;
    $command . ($name =~ m,3$, ? "ERROR:  $kind \"$name\" does not exist\n"
        : "ERROR:  a label of provider snowflake_id can be set on sequences only\n" .
          "HINT:  snowflake_create_generator() makes a sequence with its label.\n")/ge' \
    "$scratch/suites/regress/expected/security_label.out"
if is_root; then chown -R "$run_user" "$scratch/suites"; fi
printf '%s\n' "shared_preload_libraries = 'snowflake_id'" "snowflake_id.worker_id = 7" \
    "max_prepared_transactions = 8" > "$scratch/suites/preload.conf"

# suite FOLDER PROGRAM SCHEDULE [OPTIONS]
suite() {
    local folder=$scratch/suites/$1
    (cd "$folder" && as_run_user "$pgxs/$2" --bindir="$bindir" --inputdir="$folder" \
        --outputdir="$folder" --temp-instance="$folder/instance" \
        --temp-config="$scratch/suites/preload.conf" --schedule="$folder/$3" "${@:4}") ||
        { cat "$folder/regression.diffs" 2>/dev/null; return 1; }
}
failed=0
suite regress regress/pg_regress parallel_schedule --dlpath="$scratch/suites/regress" --max-concurrent-tests=20 || failed=1
suite isolation isolation/pg_isolation_regress isolation_schedule || failed=1
return $failed
