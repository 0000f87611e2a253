# every policy, through longer series of events, by DEEPER events more; needs no PostgreSQL
need_rust
WALK_DEEPER=${DEEPER:-2} cargo test --locked --profile walks policy_walk -- --nocapture
