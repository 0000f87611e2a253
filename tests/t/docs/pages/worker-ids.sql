-- The page about several servers has made the role.
SELECT snowflake_create_registry(role => 'snowflake_node');
