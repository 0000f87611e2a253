// What JavaScript and the drivers node-postgres and postgres.js make of an ID: the tables in docs/text.md.
import assert from "node:assert/strict";
import pg from "pg";
import postgres from "postgres";
import { end, same } from "./server.mjs";

const id = "249722523258744845", exact = BigInt(id), rounded = Number(id);
same(String(rounded), "249722523258744830", "Number()");
same((await (await fetch(`data:application/json,{"id":${id}}`)).json()).id, rounded, "fetch().json()");

// A page of a list, and the cursor of the next: made of numbers, it stays where it is.
const list = [exact, exact + 1n, exact + 2n];
const page = (cursor) => list.find((each) => cursor === undefined || each > BigInt(JSON.parse(atob(cursor))));
const [first, again] = [Number, String].map((kind) => page(btoa(JSON.stringify(kind(list[0])))));
same([first, again], [exact, exact + 1n], "the page after a cursor of a number, and of a text");

// The parsers of a driver see the types of columns: int8, int8[], json, jsonb.
const columns = `${id}::bigint AS plain, ARRAY[${id}::bigint] AS list,
  (SELECT row_to_json(r) FROM (SELECT ${id}::bigint AS id) AS r) AS json,
  jsonb_build_object('id', ${id}::bigint) AS jsonb, jsonb_build_object('id', ${id}::bigint::text) AS text`;

async function nodePostgres(name, plain, list, inJson = rounded) {
  const client = new pg.Client();
  await client.connect();
  const query = async (text, values) => (await client.query(text, values)).rows[0];
  same(await query(`SELECT ${columns}`), { plain, list: [list], json: { id: inJson }, jsonb: { id: inJson }, text: { id } }, name);
  for (const [kind, value, got] of [["text", id, id], ["BigInt", exact, id], ["number", rounded, String(rounded)]])
    same((await query("SELECT $1::bigint::text AS it", [value])).it, got, `${name}, parameter, ${kind}`);
  await client.end();
}

const INT8 = 20, INT8_ARRAY = 1016;
const [plainParser, arrayParser] = [INT8, INT8_ARRAY].map((type) => pg.types.getTypeParser(type));
await nodePostgres("node-postgres", id, id);
pg.types.setTypeParser(INT8, Number);
await nodePostgres("setTypeParser(20, Number)", rounded, id);
pg.types.setTypeParser(INT8, (text) => parseInt(text, 10));
await nodePostgres("setTypeParser(20, parseInt)", rounded, id);
pg.types.setTypeParser(INT8, BigInt);
await nodePostgres("setTypeParser(20, BigInt)", exact, id);
pg.types.setTypeParser(INT8_ARRAY, (text) => arrayParser(text).map(BigInt));
await nodePostgres("setTypeParser(1016, ...) too", exact, exact);
pg.types.setTypeParser(INT8, plainParser);
pg.types.setTypeParser(INT8_ARRAY, arrayParser);
pg.defaults.parseInt8 = true;
await nodePostgres("pg.defaults.parseInt8 = true", rounded, rounded);
pg.defaults.parseInt8 = false;
await nodePostgres("pg.defaults.parseInt8 = false", id, id);

async function postgresJs(name, options, plain, inJson = rounded) {
  const sql = postgres({ ...options, max: 1, onnotice() {} });
  const [row] = await sql.unsafe(`SELECT ${columns}`);
  same({ ...row }, { plain, list: [plain], json: { id: inJson }, jsonb: { id: inJson }, text: { id } }, name);
  for (const [kind, value, got] of [["text", id, id], ["BigInt", exact, id], ["number", rounded, String(rounded)]])
    same((await sql`SELECT ${value}::bigint::text AS it`)[0].it, got, `${name}, parameter, ${kind}`);
  await sql.end();
}

await postgresJs("postgres.js", {}, id);
await postgresJs("postgres.js, types: { bigint: postgres.BigInt }", { types: { bigint: postgres.BigInt } }, exact);

// The parsers of JSON that the page shows. JSON.parse() tells the text of a number since Node.js 21.
const keepIds = (key, value, { source }) => /^-?\d+$/.test(source) && !Number.isSafeInteger(value) ? source : value;
const parse = (text) => JSON.parse(text, keepIds);
if (Number.parseInt(process.versions.node, 10) < 21) {
  assert.throws(() => parse(`{"id": ${id}}`), TypeError);
  console.log("  Node.js is older than 21, so JSON was not read exactly");
} else {
  same(parse(`{"id": ${id}, "price": 1.5, "small": 7, "text": "${id}", "list": [${id}]}`),
    { id, price: 1.5, small: 7, text: id, list: [id] }, "JSON.parse(text, keepIds)");
  for (const type of [pg.types.builtins.JSON, pg.types.builtins.JSONB]) pg.types.setTypeParser(type, parse);
  await nodePostgres("setTypeParser(114, ...) and 3802", id, id, id);
  const json = { to: 114, from: [114, 3802], serialize: JSON.stringify, parse };
  await postgresJs("postgres.js, types: { json: ... }", { types: { json } }, id, id);
}
await end();
