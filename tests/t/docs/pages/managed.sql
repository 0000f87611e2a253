BEGIN;
\i managed/snowflake_sql.sql
COMMIT;
ALTER DATABASE managed SET search_path = "$user", public, snowflake_sql;
CREATE ROLE shop_app;
CREATE TABLE invoices (id bigserial PRIMARY KEY, total numeric);
INSERT INTO invoices VALUES (4711, 9.99);
