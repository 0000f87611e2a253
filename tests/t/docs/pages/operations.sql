SELECT snowflake_create_generator('orders_ids', 'preset=default');
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval('orders_ids'), item text);
INSERT INTO orders (item) VALUES ('a book');
