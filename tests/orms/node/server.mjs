// What the tests of the JavaScript recipes share: the server, and how many statements it
// got. The driver finds the server by PGHOST, PGPORT, PGUSER and PGDATABASE.
import assert from "node:assert/strict";
import pg from "pg";

const client = new pg.Client();
await client.connect();

export async function sql(statement, parameters = []) {
  return (await client.query({ text: statement, values: parameters, rowMode: "array" })).rows;
}

// Runs a function, and returns its result and a function that counts the statements that
// the server got meanwhile, by how they begin.
export async function counted(run) {
  await sql("SELECT pg_stat_statements_reset()");
  const result = await run();
  const got = await sql("SELECT query, calls::int FROM pg_stat_statements");
  const calls = (beginning) =>
    got.filter(([query]) => query.toLowerCase().startsWith(beginning.toLowerCase())).reduce((sum, [, n]) => sum + n, 0);
  return { result, calls };
}

export function same(got, expected, what) {
  assert.deepEqual(got, expected, what);
  console.log(`  ${what}:`, got);
}

export const titles = Array.from({ length: 1000 }, (_, n) => String(n));

// Checks that rows of id and title are those of the table, with their IDs as text.
export async function checkRows(rows) {
  const stored = new Map((await sql("SELECT title, id::text FROM books")));
  same(rows.length, 1000, "rows");
  same(rows.every(({ id, title }) => typeof id === "string" && stored.get(title) === id), true, "right IDs, as text");
}

export const defaultOf = async (table) =>
  (await sql(
    `SELECT format_type(atttypid, NULL), pg_get_expr(adbin, adrelid) FROM pg_attribute
     LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
     WHERE attrelid = $1::regclass AND attname = 'id'`, [table]))[0];

// What the program of a test gets for an ID in a column, and in a JSON value. ask() runs a
// query, and returns its first row.
export async function sameJson(ask) {
  same((await ask("SELECT 250322705411239997 AS it")).it, "250322705411239997", "a bigint");
  same((await ask("SELECT jsonb_build_object('id', 250322705411239997) AS it")).it, JSON.parse('{"id": 250322705411240000}'), "in jsonb");
}

export const end = () => client.end();
