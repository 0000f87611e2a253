// Knex: the migration, and many rows with one INSERT.
import Knex from "knex";
import { addBooks, up } from "./knex_recipe.mjs";
import { checkRows, counted, defaultOf, end, same, sameJson, titles } from "./server.mjs";

const knex = Knex({ client: "pg", connection: {} });
await up(knex);
same(await defaultOf("books"), ["bigint", "snowflake_nextval()"], "the key");
const { result, calls } = await counted(() => addBooks(knex, titles));
same(calls("INSERT"), 1, "INSERTs");
await checkRows(result);
await knex.schema.createTable("counted", (table) => table.bigIncrements("id"));
same((await defaultOf("counted"))[1], "nextval('counted_id_seq'::regclass)", "bigIncrements()");
const without = await knex("books").insert([{ title: "one" }]);
same(Array.isArray(without), false, "insert() without a second argument returns IDs");
await sameJson(async (query) => (await knex.raw(query)).rows[0]);
await knex.destroy();
await end();
