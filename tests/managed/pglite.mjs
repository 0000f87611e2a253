// Runs managed/snowflake_sql.sql in PGlite, for what has no concurrency. Arguments: the file.
import { PGlite } from '@electric-sql/pglite';
import { readFileSync } from 'node:fs';

const db = new PGlite();
const value = async (sql) => Object.values((await db.query(sql)).rows[0]);
const checks = [];
const check = (what, is, wanted) => checks.push({ what, is: String(is), wanted: String(wanted) });

// The role of PGlite is the owner of its database, and a superuser.
await db.transaction((tx) => tx.exec(readFileSync(process.argv[2], 'utf8')));
await db.exec(`SET search_path = public, snowflake_sql;
  SELECT snowflake_create_generator('g', 5);
  CREATE TABLE t (id bigint PRIMARY KEY DEFAULT nextval('g'), n int)`);
await db.exec('INSERT INTO t (n) SELECT n FROM generate_series(1, 100000) AS n');
check('100,000 IDs', await value('SELECT count(DISTINCT id) FROM t'), 100000);
check('they ascend', await value('SELECT count(*) FROM (SELECT id < lag(id) OVER (ORDER BY n) AS is_less FROM t) AS s WHERE is_less'), 0);
check('decoded', await value(`SELECT count(*) FROM t, snowflake_decode(id, 'g') WHERE worker_id = 5 AND created_at BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'`), 100000);
await new Promise((done) => setTimeout(done, 1500));
check('moved', await value('SELECT snowflake_advance_all()'), 0);
check('the time is of now', await value(`SELECT clock_timestamp() - snowflake_timestamp(nextval('g')) < interval '1 s'`), true);
await new Promise((done) => setTimeout(done, 2500));
check('moved by snowflake_nextval()', await value(`SELECT clock_timestamp() - snowflake_timestamp(snowflake_nextval('g')) < interval '1 s'`), true);
check('another worker ID', (await value(`SELECT snowflake_set_worker('g', 6) > now() - interval '1 minute' AS is_now, nextval('g') & 1023 AS worker`)).join(), 'true,6');
check('the view', (await value(`SELECT worker_id, problem FROM snowflake_generators`)).join(), '6,');
const [version] = await value('SHOW server_version');
for (const { what, is, wanted } of checks) console.log(`${is === wanted ? 'ok' : 'not ok'} - ${what}: ${is}`);
console.log(`# PGlite with PostgreSQL ${version}`);
process.exit(checks.every(({ is, wanted }) => is === wanted) ? 0 : 1);
