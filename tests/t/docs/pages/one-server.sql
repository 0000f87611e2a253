CREATE SCHEMA shop;
CREATE TABLE shop.invoices (id bigserial PRIMARY KEY, total numeric);
