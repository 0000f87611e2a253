-- References without foreign keys: the columns that argument also names, and what refuses to guess.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE SCHEMA ca;
CREATE SCHEMA ca_other;
SET search_path = ca, public;
CREATE FUNCTION obstacles(also text[] DEFAULT NULL, backfill boolean DEFAULT false) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT note FROM snowflake_convert_plan(schemas => '{ca, ca_other}', backfill => backfill, worker_id => CASE WHEN backfill THEN 1022 END, also => also)
    WHERE action = 'obstacle' $$;
CREATE FUNCTION types() RETURNS TABLE (t text) LANGUAGE sql AS $$
    SELECT format('%s.%s %s', attrelid::regclass, attname, format_type(atttypid, NULL)) FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
    WHERE relnamespace IN ('ca'::regnamespace, 'ca_other'::regnamespace) AND relkind = 'r' AND attnum > 0 AND NOT attisdropped AND atttypid IN (21, 23) ORDER BY 1 $$;

-- A schema with one foreign key: others are told by names, or not at all.
CREATE TABLE users (id serial PRIMARY KEY, name text, created_at timestamptz DEFAULT '2025-06-01Z');
CREATE TABLE categories (id serial PRIMARY KEY, parent_id int, created_at timestamptz DEFAULT '2025-06-02Z');
CREATE TABLE posts (id serial PRIMARY KEY, user_id int NOT NULL, "editor userId" int, category_id int REFERENCES categories, remote_id int, superuser_id int,
    created_at timestamptz DEFAULT '2025-06-03Z', UNIQUE (user_id, remote_id));
CREATE INDEX by_user ON posts (user_id) WHERE user_id > 0;
CREATE TABLE tags (id serial PRIMARY KEY, owner_id int, owner_type text, post_ids int[]);
CREATE TABLE ca_other.users (id serial PRIMARY KEY);
CREATE TABLE ca_other.visits (id serial PRIMARY KEY, last_user_id int, post_id int);
INSERT INTO users (name) VALUES ('Ada'), ('Bob');
INSERT INTO categories (parent_id) VALUES (NULL), (1);
INSERT INTO posts (user_id, category_id, remote_id, superuser_id) VALUES (1, 1, 1, 1), (2, 2, 2, 2);
INSERT INTO tags (owner_id, owner_type) VALUES (1, 'User'), (1, 'Post');
INSERT INTO ca_other.users DEFAULT VALUES;
INSERT INTO ca_other.visits (last_user_id, post_id) VALUES (1, 2);
SELECT * FROM snowflake_convert_candidates(schemas => '{ca, ca_other}');
SELECT also FROM snowflake_convert_candidates('{users}');
-- Two tables have the name that the column tells; and a foreign key says that a column has other keys.
CREATE SCHEMA ca_third;
CREATE TABLE ca_third.fixed (code int PRIMARY KEY);
CREATE TABLE ca_third.logs (user_id int, post_id int REFERENCES ca_third.fixed);
SELECT also FROM snowflake_convert_candidates(schemas => '{ca, ca_other}') WHERE also LIKE 'ca_third%';
DROP SCHEMA ca_third CASCADE;
SELECT count(*) FROM snowflake_convert_candidates('{users}', '{ca}');
SELECT note FROM snowflake_convert_plan(schemas => '{ca, ca_other}') WHERE note LIKE '%named like%';
SELECT array_agg(also) AS also FROM snowflake_convert_candidates(schemas => '{ca, ca_other}') \gset
SELECT note FROM snowflake_convert_plan(schemas => '{ca, ca_other}', also => :'also') WHERE note LIKE '%named like%';

-- Bad input changes nothing.
CREATE VIEW of_users AS SELECT id FROM users;
CREATE TABLE odd (id serial PRIMARY KEY, t text, g int GENERATED ALWAYS AS (1) STORED);
\set VERBOSITY default
CALL snowflake_convert('{users}', also => '{user_id}');
CALL snowflake_convert('{users}', also => '{nothing.user_id}');
CALL snowflake_convert('{users}', also => '{posts.nothing=none}');
CALL snowflake_convert('{users}', also => '{posts.user_id=users}');
CALL snowflake_convert('{users}', also => '{posts.user_id=users.nothing}');
CALL snowflake_convert(schemas => '{ca, ca_other}', also => '{posts.user_id=users.id}');
CALL snowflake_convert('{users}', also => '{of_users.id}');
CALL snowflake_convert('{users}', also => '{odd.t}');
CALL snowflake_convert('{users}', also => '{odd.g}');
CALL snowflake_convert('{users}', also => '{posts.user_id=users.name}');
CALL snowflake_convert('{users}', also => '{posts..user_id}');
CALL snowflake_convert('{users}', also => '{NULL}');
CALL snowflake_convert('{users}', also => '{{posts.user_id}}');
DROP TABLE odd;
SELECT * FROM types();

-- Types alone, at once; what is no key stays.
BEGIN;
CALL snowflake_convert(schemas => '{ca, ca_other}', also => ARRAY['posts.user_id', 'posts."editor userId"=ca.users.id', 'posts.remote_id=none', 'tags.owner_id']);
SELECT * FROM types();
INSERT INTO users (name) VALUES ('Cem');
INSERT INTO posts (user_id) SELECT max(id) FROM users;
INSERT INTO tags (owner_id) SELECT max(id) FROM posts;
SELECT count(*) FROM posts JOIN users ON users.id = user_id;
ROLLBACK;

-- Old rows get IDs: nothing is guessed.
SELECT obstacles(NULL, true);
SELECT obstacles('{tags.owner_id, categories.parent_id}', true) INTERSECT VALUES
    ('column ca.tags.owner_id has keys, but of which table? Name it, as in also => ''{ca.tags.owner_id=schema.table.column}''');
SELECT also FROM snowflake_convert_candidates(schemas => '{ca, ca_other}', backfill => true) WHERE also LIKE 'ca.tags%';
SELECT array_agg(also) AS also FROM snowflake_convert_candidates(schemas => '{ca, ca_other}', backfill => true) WHERE also LIKE '%=%' \gset
SELECT obstacles(:'also'::text[] || '{"ca.posts.\"editor userId\"=none", ca.posts.remote_id=none, ca.posts.superuser_id=none, ca.tags.post_ids=none, ca.tags.owner_id=none, categories.parent_id=categories.id}', true);
-- One old value with two new ones.
SELECT obstacles(:'also'::text[] || '{ca.posts.user_id=categories.id}', true) INTERSECT VALUES ('ca.posts.user_id refers to keys of several tables, which get different new values');
CREATE TEMP TABLE joined AS SELECT u.name, p.remote_id, p.superuser_id, v.id, c.created_at FROM posts AS p JOIN users AS u ON u.id = p.user_id
    LEFT JOIN ca_other.visits AS v ON v.post_id = p.id LEFT JOIN categories AS c ON c.parent_id = p.category_id;
CALL snowflake_convert(schemas => '{ca, ca_other}', backfill => true, worker_id => 1022,
    also => :'also'::text[] || '{"ca.posts.\"editor userId\"=none", ca.posts.remote_id=none, ca.posts.superuser_id=none, ca.tags.post_ids=none, ca.tags.owner_id=none, categories.parent_id=categories.id}');
SELECT count(*) FROM users WHERE id > 1000000;
SELECT count(*) FROM (TABLE joined EXCEPT SELECT u.name, p.remote_id, p.superuser_id, v.id, c.created_at FROM posts AS p JOIN users AS u ON u.id = p.user_id
    LEFT JOIN ca_other.visits AS v ON v.post_id = p.id LEFT JOIN categories AS c ON c.parent_id = p.category_id) AS e;
SELECT * FROM types();
-- Keys that are bigint already: the same.
CREATE TABLE big (id bigserial PRIMARY KEY, created_at timestamptz DEFAULT '2025-06-01Z');
CREATE TABLE of_big (id bigserial PRIMARY KEY, big_id bigint, created_at timestamptz DEFAULT '2025-06-01Z');
INSERT INTO big DEFAULT VALUES;
INSERT INTO of_big (big_id) SELECT id FROM big;
CALL snowflake_convert('{big, of_big}', backfill => true, worker_id => 1021);
BEGIN;
DROP TABLE ca.snowflake_old_ids, posts, tags, users, categories CASCADE;
CALL snowflake_convert('{big}', backfill => true, worker_id => 1021, also => '{of_big.big_id=none}');
SELECT count(*) FROM big JOIN of_big ON big.id = big_id;
ROLLBACK;
DROP TABLE ca.snowflake_old_ids, posts, tags, users, categories CASCADE;
-- A name that tells the key is enough.
SELECT array_agg(also) || '{of_big.big_id}' AS also FROM snowflake_convert_candidates('{big, of_big}', backfill => true) WHERE also ~ '=' AND also !~ '^ca.of_big.big_id' \gset
CALL snowflake_convert('{big, of_big}', backfill => true, worker_id => 1021, also => :'also');
SELECT count(*) FROM big JOIN of_big ON big.id = big_id WHERE big_id > 1000000;

-- While the tables are in use: the columns are swapped together with the keys that they have.
CREATE SCHEMA ca_busy;
SET search_path = ca_busy, public;
CREATE TABLE users (id serial PRIMARY KEY, v int);
CREATE TABLE posts (id serial PRIMARY KEY, user_id int NOT NULL, other_id int);
CREATE INDEX ON posts (user_id);
SELECT also, count(*) AS groups FROM (VALUES ('{posts.user_id}'::text[]), ('{posts.other_id}')) AS v (also)
CROSS JOIN _snowflake_convert.groups(_snowflake_convert.work_of(_snowflake_convert.request('{users}', NULL, also, NULL, true), NULL, NULL, true)) GROUP BY 1 ORDER BY 1;
CREATE VIEW names AS SELECT v FROM posts JOIN users ON users.id = user_id;
INSERT INTO users (v) SELECT generate_series(1, 100);
INSERT INTO posts (user_id) SELECT id FROM users;
SELECT note FROM snowflake_convert_plan('{users}', online => true, also => '{posts.user_id}') WHERE note LIKE 'the swap %';
SELECT count(*) FROM snowflake_convert_plan('{users}', online => true) WHERE note LIKE 'the swap %';
SELECT count(*), min(statement) FROM snowflake_convert_steps('{users}', also => '{posts.user_id}') WHERE statement LIKE '%swap%';
\set ECHO none
SELECT statement FROM snowflake_convert_steps('{users}', also => '{posts.user_id}') \gexec
\set ECHO all
SELECT attrelid::regclass, attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid IN ('users'::regclass, 'posts'::regclass) AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2;
SELECT count(*) FROM names;
SELECT indexdef FROM pg_indexes WHERE schemaname = 'ca_busy' ORDER BY 1;
SELECT count(*) FROM snowflake_convert_steps('{users}', also => '{posts.user_id}');
-- Undone, its table is named.
SELECT count(*) FROM snowflake_convert_steps('{users}', also => '{posts.other_id}');
SELECT statement FROM snowflake_convert_steps('{users}', also => '{posts.other_id}') WHERE step < 4 \gexec
SELECT count(*) FROM pg_attribute WHERE attrelid = 'posts'::regclass AND attname = 'other_id__bigint';
SELECT statement FROM snowflake_convert_undo('{users, posts}') \gexec
SELECT count(*) FROM pg_attribute WHERE attrelid = 'posts'::regclass AND attname = 'other_id__bigint';

-- History tables, which a trigger fills with whole rows.
CREATE TABLE people (id serial PRIMARY KEY, name text);
CREATE TABLE people_history (at timestamptz, op text, id int, name text);
CREATE TABLE "People Log" (id int, name text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO people_history SELECT now(), TG_OP, NEW.*; INSERT INTO ca_busy."People Log" VALUES (NEW.*); RETURN NULL; END $$;
CREATE TRIGGER audit AFTER INSERT ON people FOR EACH ROW EXECUTE FUNCTION audit();
SELECT note FROM snowflake_convert_plan('{people}') WHERE action = 'obstacle';
SELECT note FROM snowflake_convert_plan('{people}', online => true) WHERE action = 'obstacle';
SELECT also FROM snowflake_convert_candidates('{people}');
SELECT count(*) FROM snowflake_convert_plan('{people}', also => '{people_history.id=none, "\"People Log\".id=none"}') WHERE action = 'obstacle';
SELECT array_agg(also) AS also FROM snowflake_convert_candidates('{people}') \gset
CALL snowflake_convert('{people}', also => :'also');
INSERT INTO people (name) VALUES ('new');
SELECT count(*) FROM people_history JOIN people USING (id) JOIN "People Log" USING (id);
-- Bigint keys fill them too.
CREATE TABLE bigs (id bigserial PRIMARY KEY);
CREATE TRIGGER audit AFTER INSERT ON bigs FOR EACH ROW EXECUTE FUNCTION audit();
ALTER TABLE people_history ALTER id TYPE int USING 1;
SELECT note FROM snowflake_convert_plan('{bigs}') WHERE action = 'obstacle';
-- Tables of others, and those of PostgreSQL. What is found is what the schema has, whatever the path has.
CREATE ROLE regress_ca_other;
CREATE ROLE regress_ca_reader;
GRANT ALL ON SCHEMA ca_busy TO regress_ca_other, regress_ca_reader;
SET ROLE regress_ca_reader;
CREATE TABLE mine (id serial PRIMARY KEY);
RESET ROLE;
CREATE TABLE theirs (id serial PRIMARY KEY, mine_id int);
ALTER TABLE theirs OWNER TO regress_ca_other;
SET ROLE regress_ca_reader;
SELECT note FROM snowflake_convert_plan('{mine}', also => '{theirs.mine_id}') WHERE action = 'obstacle';
SELECT note FROM snowflake_convert_plan('{mine}', also => '{theirs.mine_id}', online => true) WHERE action = 'obstacle';
CALL snowflake_convert('{mine}', also => '{theirs.mine_id}');
CREATE TEMP TABLE theirs (id int, mine_id text);
SELECT note FROM snowflake_convert_plan('{mine}', also => '{theirs.mine_id}') WHERE action = 'obstacle';
RESET ROLE;
SELECT count(*) FROM snowflake_convert_plan('{mine}', also => '{pg_catalog.pg_class.relnatts}');
-- The owner's code runs as the owner, also where a key that has its type is read.
SET ROLE regress_ca_other;
CREATE FUNCTION who(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN IF current_user <> ''regress_ca_other'' THEN RAISE EXCEPTION ''run by %'', current_user; END IF; RETURN $1; END';
CREATE TABLE watched (id bigserial PRIMARY KEY, v int, mine_id int, CHECK (ca_busy.who(v) > 0));
CREATE INDEX ON watched (v) WHERE ca_busy.who(5) = 5;
CREATE INDEX ON watched (ca_busy.who(v));
INSERT INTO watched (v) VALUES (1);
RESET ROLE;
SELECT note FROM snowflake_convert_plan('{watched, mine}', also => '{watched.mine_id=mine.id}') WHERE action = 'obstacle';
CALL snowflake_convert('{watched, mine}', also => '{watched.mine_id=mine.id}');
DROP OWNED BY regress_ca_other, regress_ca_reader CASCADE;
DROP ROLE regress_ca_other, regress_ca_reader;
DROP SCHEMA ca, ca_other, ca_busy CASCADE;
