-- The tables of each shard of the demo.
CREATE TABLE orders (
    id   bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    item text NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
SET client_min_messages = warning;
SELECT snowflake_create_generator('message_ids', preset => 'discord') \g /dev/null
CREATE TABLE messages (
    id   bigint PRIMARY KEY DEFAULT snowflake_nextval('message_ids'),
    text text NOT NULL
);
