# tests/citus: clusters of Citus, which is installed, or in the folder CITUS
# It is no package of the distribution, so these tests are not part of the others.
need_packages
find_citus || return 0
install_all
JOBS=${JOBS:-1} prove_files "$scratch/tests/citus" "$@"
