# tests/patroni: clusters of Patroni, with etcd
# Patroni restarts servers and waits for its locks: that takes minutes, so these tests are not part of
# the others. Its drivers for etcd and PostgreSQL are those that its package depends on.
(need patroni:patroni etcd:etcd-server etcdctl:etcd-client openssl:openssl) || {
    echo "skipped: Patroni or etcd is not here, and could not be installed"
    return 0
}
need ps:procps
perl -MDBD::Pg -e 1 2>/dev/null || need /usr/share/doc/libdbd-pg-perl:libdbd-pg-perl
prepare
install_all
patroni --version
JOBS=${JOBS:-1} prove_files "$scratch/tests/patroni" "$@"
