# tests/patroni: clusters of Patroni, with etcd
# Patroni restarts servers and waits for its locks: that takes minutes, so these tests are not part of
# the others. Its drivers for etcd and PostgreSQL are those that its package depends on.
(need_packages patroni:patroni) || true
want_etcd
if ! command -v patroni >/dev/null || ! command -v etcd >/dev/null; then
    echo "skipped: Patroni or etcd is not here, and could not be installed"
    return 0
fi
need_packages ps:procps
perl -MDBD::Pg -e 1 2>/dev/null || need_packages /usr/share/doc/libdbd-pg-perl:libdbd-pg-perl
prepare
install_all
patroni --version
JOBS=${JOBS:-1} prove_files "$scratch/tests/patroni" "$@"
