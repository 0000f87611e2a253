-- A table with keys of pgEdge's extension, and with a function in its place.
CREATE SCHEMA snowflake;
CREATE FUNCTION snowflake.nextval(regclass) RETURNS bigint LANGUAGE sql RETURN 0;
CREATE SEQUENCE orders_id_seq;
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake.nextval('orders_id_seq'));
INSERT INTO orders VALUES (135824181823537153), (136169504773242881);
