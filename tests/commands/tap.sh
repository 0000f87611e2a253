# tests/t: restarts, crashes, promotions, clocks, concurrency; FILES may be folders; PEERS; WITHOUT leaves out names with this word
want_for_tap "$@"
install_all
prove_files "$scratch/tests/t" "$@"
