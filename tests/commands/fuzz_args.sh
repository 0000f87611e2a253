# all functions with odd arguments, as several roles, on PG 18; SEED, MINUTES, BATCH
# The script says what may not happen.
PG=${given:-18}
install_all
with_perl fuzz perl "$scratch/tests/fuzz/args.pl"
