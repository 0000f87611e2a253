CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
CREATE ROLE app;
CREATE TABLE invoices (id bigserial PRIMARY KEY, total numeric);
INSERT INTO invoices VALUES (4711, 9.99);
CREATE TABLE statuses (id bigint PRIMARY KEY, body text);
-- Another system's clock was two minutes ahead.
INSERT INTO statuses VALUES (snowflake_encode_as(now() + interval '2 minutes', 33, 0, 'preset=twitter'), 'the last one there');
