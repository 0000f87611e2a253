CREATE TABLE orders (id bigserial PRIMARY KEY, item text);
INSERT INTO orders VALUES (4711, 'a book');
CREATE TABLE order_items (order_id bigint, id bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (order_id, id));
