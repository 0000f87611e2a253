CREATE TABLE orders (id bigserial PRIMARY KEY, item text);
INSERT INTO orders VALUES (4711, 'a book');
CREATE TABLE order_items (order_id bigint, id bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (order_id, id));
CREATE FOREIGN DATA WRAPPER any_wrapper;
CREATE SERVER shard_2 FOREIGN DATA WRAPPER any_wrapper OPTIONS (host '127.0.0.1', port '1');
