CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
CREATE ROLE app;
CREATE TABLE invoices (id bigserial PRIMARY KEY, total numeric);
INSERT INTO invoices VALUES (4711, 9.99);
CREATE TABLE old_events AS SELECT timestamptz '2016-01-01 14:00Z' AS happened_at FROM generate_series(1, 2);
