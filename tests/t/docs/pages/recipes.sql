CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
CREATE ROLE app;
CREATE TABLE invoices (id bigserial PRIMARY KEY, total numeric);
INSERT INTO invoices VALUES (4711, 9.99);
