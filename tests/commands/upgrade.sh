# tests/upgrade.pl: pg_upgrade from version FROM (default 15) to PG (18)
# The new version comes first: cargo keeps one library only, and other tests have often built this one.
PG=${given:-18}
install_all
new=${bindir%/bin}
PG=${FROM:-15}
need_packages
prepare_copy
build
install_into "$pkglibdir" "$sharedir"
export OLD_INSTALLATION=${bindir%/bin} NEW_INSTALLATION=$new
bindir=$new/bin
with_perl upgrade prove --timer "$scratch/tests/upgrade.pl"
