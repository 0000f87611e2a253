CREATE TABLE orders (id bigserial PRIMARY KEY, item text);
INSERT INTO orders VALUES (4711, 'a book');
CREATE TABLE order_items (order_id bigint, id bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (order_id, id));
CREATE FOREIGN DATA WRAPPER any_wrapper;
CREATE SERVER shard_2 FOREIGN DATA WRAPPER any_wrapper OPTIONS (host '127.0.0.1', port '1');
CREATE TABLE deliveries (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
INSERT INTO deliveries SELECT snowflake_encode(timestamptz '2025-03-01 18:00Z' + n / 2 * interval '1 h', n % 2 + 1, n) FROM generate_series(0, 23) AS n;
INSERT INTO deliveries VALUES (snowflake_encode('2025-03-02 07:00Z', 9, 0));
INSERT INTO deliveries SELECT generate_series(1, 100);
