// 1,000,000 IDs through JSON to JavaScript and back, as bigint and as type snowflake: how many are rounded.
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, integer, pgTable } from "drizzle-orm/pg-core";
import pg from "pg";
import { snowflake } from "./the_type_snowflake_recipe.mjs";
import { end, same, sql } from "./server.mjs";

const count = 1_000_000, part = 20_000;
await sql(`CREATE TABLE made AS SELECT n::int, id FROM generate_series(0, ${count / 100_000 - 1}) AS block,
  ROWS FROM (snowflake_nextval_batch(100000)) WITH ORDINALITY AS batch(id, place), LATERAL (SELECT block * 100000 + place) AS number(n)`);
const client = new pg.Client();
await client.connect();
const pool = new pg.Pool();
const db = drizzle(pool);
const ways = {
  "node-postgres": (type, rows) => client.query("INSERT INTO returned SELECT * FROM unnest($1::int[], $2::bigint[])",
    [rows.map(({ n }) => n), rows.map(({ id }) => id)]),
  Drizzle: (type, rows) => {
    const id = type === "snowflake" ? snowflake() : bigint({ mode: "number" });
    return db.insert(pgTable("returned", { n: integer(), id })).values(rows);
  },
};
for (const type of ["bigint", "snowflake"]) {
  await sql(`ALTER TABLE made ALTER id TYPE ${type}`);
  const { rows: [{ json }] } = await client.query("SELECT json_agg(made)::text AS json FROM made");
  const rows = JSON.parse(json);
  same([rows.length, typeof rows[0].id], [count, type === "bigint" ? "number" : "string"], `${type}: what JSON.parse() gives`);
  for (const [way, insert] of Object.entries(ways)) {
    await sql(`DROP TABLE IF EXISTS returned; CREATE TABLE returned (n int, id ${type})`);
    for (let first = 0; first < count; first += part) await insert(type, rows.slice(first, first + part));
    const [[joined, rounded]] = await sql(
      "SELECT count(*)::int, count(*) FILTER (WHERE made.id <> returned.id)::int FROM made JOIN returned USING (n)");
    console.log(`  ${type}, ${way}: ${rounded} of ${joined} IDs are rounded`);
    same([joined, type === "bigint" ? rounded > count / 2 : rounded], [count, type === "bigint" ? true : 0], `${type}, ${way}`);
  }
}
await client.end();
await pool.end();
await end();
