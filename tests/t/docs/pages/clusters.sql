CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), node text);
