# what the functions and keys cost on a cluster of Citus; CITUS, QUICK
assertions= profile=release
need_packages
find_citus || return 0
install_all
report_of citus
