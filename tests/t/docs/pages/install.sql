-- Keys of all kinds, converted, with IDs.
CREATE EXTENSION snowflake_id_convert;
CREATE SCHEMA shop;
CREATE TABLE shop.people (id serial PRIMARY KEY, name text);
CREATE TABLE shop."Letters" (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, person_id int REFERENCES shop.people);
CREATE TABLE shop.visits (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE shop.visits_all PARTITION OF shop.visits FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE notes (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
CREATE TABLE counted (id bigserial PRIMARY KEY);
INSERT INTO shop.people (name) VALUES ('Ada'), ('Bob');
CALL snowflake_convert(schemas => '{shop}');
INSERT INTO shop.people (name) VALUES ('Cy');
INSERT INTO shop."Letters" (person_id) SELECT id FROM shop.people;
INSERT INTO shop.visits (at) VALUES ('2026-01-01');
DROP EXTENSION snowflake_id_convert;
