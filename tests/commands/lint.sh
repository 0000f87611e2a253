# lint_core, lint_server and lint_crates; the first one needs no PostgreSQL
for part in core server crates; do run "lint_$part"; done
