-- Schemas are seldom like this one: cycles, NOT VALID, keys of several columns, domains
-- elsewhere in a table, names that need quotes, foreign tables.
CREATE SCHEMA odds; GRANT USAGE ON SCHEMA odds TO viewer, clerk;
SET search_path = odds;
CREATE DOMAIN label AS text CHECK (VALUE <> '');
CREATE SEQUENCE shared AS smallint;
-- A cycle, and a table that refers to itself in two ways.
CREATE TABLE chicken (id serial PRIMARY KEY, egg_id int, mother int REFERENCES chicken ON DELETE SET NULL, father int REFERENCES chicken ON UPDATE CASCADE, name label, hatched timestamptz DEFAULT '2025-06-01Z');
CREATE TABLE egg (id smallint PRIMARY KEY DEFAULT 7 + nextval('shared'), chicken_id int NOT NULL REFERENCES chicken DEFERRABLE INITIALLY DEFERRED, laid timestamptz DEFAULT '2025-06-01Z');
ALTER TABLE chicken ADD CONSTRAINT "has an egg" FOREIGN KEY (egg_id) REFERENCES egg MATCH FULL ON DELETE SET NULL (egg_id) DEFERRABLE NOT VALID;
COMMENT ON CONSTRAINT "has an egg" ON chicken IS 'not valid';
-- Several columns that count; sequences that tables share; explicit defaults.
CREATE TABLE counts (id serial PRIMARY KEY, line serial NOT NULL UNIQUE, other serial, made timestamptz DEFAULT '2025-06-01Z');
CREATE TABLE one (id int PRIMARY KEY DEFAULT nextval('shared'), made timestamptz DEFAULT '2025-06-01Z');
CREATE TABLE two (id int PRIMARY KEY DEFAULT nextval('shared') + 100, one_id int DEFAULT 1 REFERENCES one ON DELETE SET DEFAULT, made timestamptz DEFAULT '2025-06-01Z');
-- A key of two columns, referred to as a whole; a unique constraint that can be deferred.
CREATE TABLE line (one_id int REFERENCES one, number smallint, id serial, PRIMARY KEY (one_id, number));
CREATE TABLE line_note (one_id int, number smallint, note text, FOREIGN KEY (one_id, number) REFERENCES line ON UPDATE CASCADE, UNIQUE (one_id, note) DEFERRABLE INITIALLY DEFERRED);
-- Names.
CREATE TABLE "Order ""of"" 100%" ("Id" serial PRIMARY KEY, "select" int REFERENCES one, "it's" int REFERENCES "Order ""of"" 100%", made timestamptz DEFAULT '2025-06-01Z');
CREATE INDEX "an ""index""" ON "Order ""of"" 100%" ("it's" DESC NULLS LAST, (lower("Id"::text))) WITH (fillfactor = 50) WHERE "select" IS NOT NULL;
CREATE TABLE a_name_of_sixty_three_characters_which_is_as_long_as_names_can_ (a_column_of_sixty_three_characters_which_is_as_long_as_they_go_ serial PRIMARY KEY,
    b_column_of_sixty_three_characters_which_is_as_long_as_they_go_ int REFERENCES one, made timestamptz DEFAULT '2025-06-01Z');
-- Options, privileges, policies, triggers, statistics.
ALTER TABLE chicken ALTER mother SET (n_distinct = -0.2, n_distinct_inherited = 5), ALTER father SET STATISTICS 33;
ALTER TABLE chicken SET (fillfactor = 60, autovacuum_enabled = off);
GRANT SELECT (id, mother), REFERENCES (id) ON chicken TO viewer WITH GRANT OPTION;
SET ROLE viewer; GRANT SELECT (mother) ON odds.chicken TO clerk; RESET ROLE;
ALTER TABLE egg ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON egg FOR SELECT TO clerk USING (chicken_id = id);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER sees BEFORE UPDATE OF mother, name ON chicken FOR EACH ROW WHEN (OLD.father IS DISTINCT FROM NEW.father) EXECUTE FUNCTION see();
CREATE TRIGGER sees_all AFTER INSERT ON chicken REFERENCING NEW TABLE AS news FOR EACH STATEMENT EXECUTE FUNCTION see();
CREATE STATISTICS parents (dependencies, mcv) ON mother, father FROM chicken;
CREATE STATISTICS half ON (mother / 2), name FROM chicken;
ALTER STATISTICS parents SET STATISTICS 50;
CREATE INDEX half_mother ON chicken ((mother / 2), father);
ALTER INDEX half_mother ALTER COLUMN 1 SET STATISTICS 44;
CREATE VIEW hens WITH (check_option = cascaded) AS SELECT * FROM chicken WHERE mother IS NOT NULL;
CREATE VIEW hen_names WITH (security_barrier) AS SELECT name, id FROM hens;
CREATE FUNCTION mothers() RETURNS TABLE (id bigint, n bigint) LANGUAGE sql BEGIN ATOMIC SELECT mother, count(*) FROM hens GROUP BY 1; END;
CREATE VIEW of_function AS SELECT * FROM mothers();
-- A table of another role, and one that keeps no log.
CREATE TABLE theirs (id serial PRIMARY KEY, chicken_id int REFERENCES chicken, made timestamptz DEFAULT '2025-06-01Z');
ALTER TABLE theirs OWNER TO clerk;
GRANT REFERENCES ON chicken TO clerk;
CREATE UNLOGGED TABLE scratch (id serial PRIMARY KEY, chicken_id int REFERENCES chicken ON DELETE CASCADE, made timestamptz DEFAULT '2025-06-01Z');
INSERT INTO chicken (name, mother, father) SELECT 'c' || n, nullif(n / 2, 0), nullif(n / 3, 0) FROM generate_series(1, 60) AS n;
INSERT INTO egg (id, chicken_id) SELECT n, n FROM generate_series(1, 20) AS n;
UPDATE chicken SET egg_id = id WHERE id <= 20;
INSERT INTO counts DEFAULT VALUES; INSERT INTO counts DEFAULT VALUES;
INSERT INTO one DEFAULT VALUES; INSERT INTO two DEFAULT VALUES; INSERT INTO two DEFAULT VALUES;
INSERT INTO line VALUES (1, 1), (1, 2); INSERT INTO line_note VALUES (1, 1, 'a'), (1, 2, 'b');
INSERT INTO "Order ""of"" 100%" ("select", "it's") VALUES (1, 1), (1, 1);
INSERT INTO a_name_of_sixty_three_characters_which_is_as_long_as_names_can_ (b_column_of_sixty_three_characters_which_is_as_long_as_they_go_) VALUES (1);
INSERT INTO theirs (chicken_id) VALUES (1), (2); INSERT INTO scratch (chicken_id) VALUES (3);
-- A key whose index has other columns beside it, and what is unique with a value left out.
CREATE TABLE beside (code text, one_id int REFERENCES one, made timestamptz DEFAULT '2025-06-01Z', CONSTRAINT "beside key" PRIMARY KEY (code) INCLUDE (one_id),
    UNIQUE NULLS NOT DISTINCT (one_id, made));
COMMENT ON CONSTRAINT "beside key" ON beside IS 'beside';
INSERT INTO beside VALUES ('a', 1), ('b', NULL);
