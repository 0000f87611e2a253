# tests/torture.pl: random faults, on PG 18; SEED, MINUTES, EPISODE, MOOD
# It tests what users get.
PG=${given:-18} profile=${BUILD_PROFILE:-release}
install_all
with_perl torture env -u RUST_BACKTRACE perl "$scratch/tests/torture.pl"
