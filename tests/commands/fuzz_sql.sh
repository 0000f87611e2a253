# random queries by sqlsmith, on a server with assertions, PG 18; SEED, QUERIES
# sqlsmith makes queries of the functions, types and tables that it finds. Errors are expected; a server that
# crashes, or an assertion that fails, is a defect.
PG=${given:-18}
need_packages sqlsmith:sqlsmith
install_all
with_perl fuzz perl "$scratch/tests/fuzz/sql.pl"
