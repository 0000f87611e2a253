// node-postgres: what it makes of an ID, and many rows with one INSERT.
import pg from "pg";
import { addBooks } from "./node_postgres_recipe.mjs";
import { checkRows, counted, end, same, sql, titles } from "./server.mjs";

const client = new pg.Client();
await client.connect();
const id = "250322705411239997";
const one = async (expression) => (await client.query(`SELECT ${expression} AS it`)).rows[0].it;
same(String(JSON.parse(`{"id": ${id}}`).id), "250322705411240000", "JSON.parse()");
same(await one(`${id}::bigint`), id, "bigint");
same(String((await one(`(SELECT row_to_json(r) FROM (SELECT ${id}::bigint AS id) AS r)`)).id), "250322705411240000", "row_to_json()");
same(String((await one(`jsonb_build_object('id', ${id}::bigint)`)).id), "250322705411240000", "jsonb");
same((await one(`jsonb_build_object('id', ${id}::bigint::text)`)).id, id, "jsonb of text");

await sql("CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text)");
const { result, calls } = await counted(() => addBooks(client, titles));
same(calls("INSERT"), 1, "INSERTs");
await checkRows(result);
const [first] = result;
same((await client.query("SELECT title FROM books WHERE id = $1", [first.id])).rows[0].title, first.title, "text as a parameter");

pg.types.setTypeParser(20, BigInt);
same(await one(`${id}::bigint`), BigInt(id), "setTypeParser");
let refused = false;
try { JSON.stringify({ id: BigInt(id) }); } catch (error) { refused = error instanceof TypeError; }
same(refused, true, "JSON.stringify() refuses a BigInt");
await client.end();
await end();
