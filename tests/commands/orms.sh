# the recipes of docs/orms.md, with the packages that they are for; ORMS
# The packages come from the registries of their languages. The clients run as the caller, since their tools may be
# where no other user can read.
# The tools are in the copy of the installation.
if [ "$PG" = 15 ]; then (need_packages /usr/sbin/pgpool:pgpool2 /usr/lib/postgresql/15/lib/pglogical.so:postgresql-15-pglogical \
    slon:slony1-2-bin /usr/lib/postgresql/15/lib/slony1_funcs.2.2.11.so:postgresql-15-slony1-2 bucardo:bucardo \
    /usr/lib/postgresql/15/lib/plperl.so:postgresql-plperl-15) || true; fi
prepare
install_all
recipes=$scratch/orms/recipes
mkdir -p "$recipes"
perl "$top/tests/orms/recipes.pl" "$top/docs/orms.md" "$recipes"
. "$top/tests/orms/languages.sh"
start_for_clients "$scratch/data" 7 "shared_preload_libraries = 'pg_stat_statements, snowflake_id'" 'wal_level = logical'
for tests in python.py node.mjs prisma.mjs java.java ruby.rb rust.rs php.php go.go; do run_tests "$tests"; done
run_tools
end_of_clients
