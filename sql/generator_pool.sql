-- A right is granted on an object. For a pool from which generators lease worker IDs of their
-- own, this is a foreign server of the pool's name with this wrapper, which connects nowhere;
-- src/own_workers.rs says who may lease. Nobody but a superuser has USAGE on the wrapper, so
-- nobody else makes such a server.
CREATE FOREIGN DATA WRAPPER snowflake_pool;
COMMENT ON FOREIGN DATA WRAPPER snowflake_pool IS
    'for foreign servers with the names of pools: a role with USAGE on one may own generators that lease worker IDs from the pool';
