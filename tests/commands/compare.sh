# what keys cost and when they repeat, beside other extensions, on PG 18; PEERS, SECTIONS, QUICK
PG=${given:-18} assertions= profile=${BUILD_PROFILE:-release}
prepare
install_all
report_of compare
