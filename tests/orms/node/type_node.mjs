// Keys of type snowflake in JavaScript: what drivers and mappers give, and JSON that the database makes.
import "reflect-metadata";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eq, inArray, relations, sql as drizzleSql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";
import Knex from "knex";
import pg from "pg";
import postgres from "postgres";
import { DataTypes, Sequelize } from "sequelize";
import { DataSource, EntitySchema, In } from "typeorm";
import * as recipe from "./the_type_snowflake_recipe.mjs";
import { defaultOf, end, same, sql } from "./server.mjs";

const id = "249722523258744845", exact = BigInt(id), rounded = 249722523258744830;
const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
const plain = (value) => JSON.parse(JSON.stringify(value));
const tables = (type) => sql(`
  DROP TABLE IF EXISTS copies, books;
  CREATE TABLE books (id ${type} PRIMARY KEY DEFAULT snowflake_nextval(), title text);
  CREATE TABLE copies (id ${type} PRIMARY KEY DEFAULT snowflake_nextval(), book ${type} REFERENCES books);
  INSERT INTO books VALUES (${id}, 'one');
  INSERT INTO copies (book) VALUES (${id})`);

// The queries of two servers that make JSON of tables: PostgREST for reads, embedded rows and inserts, Hasura.
const postgrest = (source) => `WITH pgrst_source AS (${source})
  SELECT pg_catalog.count(_postgrest_t) AS page_total, coalesce(json_agg(_postgrest_t), '[]') AS body
  FROM (SELECT * FROM pgrst_source) _postgrest_t`;
const embedded = postgrest(`SELECT "public"."copies"."book", row_to_json("copies_books_1".*)::jsonb AS "books"
  FROM "public"."copies" LEFT JOIN LATERAL (SELECT "books_1"."id" FROM "public"."books" AS "books_1"
    WHERE "books_1"."id" = "public"."copies"."book") AS "copies_books_1" ON TRUE
  WHERE "public"."copies"."book" = $1 AND "public"."copies"."book" = ANY ($2) ORDER BY "public"."copies"."id"`);
const inserted = (type) => postgrest(`INSERT INTO "public"."books"("id", "title")
  SELECT "pgrst_body"."id", "pgrst_body"."title" FROM (SELECT $1::json AS json_data) pgrst_payload,
    LATERAL (SELECT "id", "title" FROM json_to_recordset(pgrst_payload.json_data) AS _("id" ${type}, "title" text)) pgrst_body
  RETURNING "public"."books".*`);
const hasura = `SELECT coalesce(json_agg("root"), '[]') AS body FROM (
  SELECT row_to_json((SELECT "_e" FROM (SELECT "_root.base"."id" AS "id", "_root.ar"."copies" AS "copies") AS "_e")) AS "root"
  FROM (SELECT * FROM "public"."books" WHERE "public"."books"."id" = ($1)::bigint) AS "_root.base"
  LEFT OUTER JOIN LATERAL (SELECT coalesce(json_agg(json_build_object('book', "_copies"."book")), '[]') AS "copies"
    FROM "public"."copies" AS "_copies" WHERE "_root.base"."id" = "_copies"."book") AS "_root.ar" ON ('true')) AS "_root"`;
const client = new pg.Client();
await client.connect();
const query = async (text, values) => (await client.query(text, values)).rows;
for (const [type, it] of [["bigint", rounded], ["snowflake", id]]) {
  await tables(type);
  const body = async (text, values) => (await query(text, values))[0].body;
  same(await body(postgrest('SELECT "public"."books".* FROM "public"."books"')), [{ id: it, title: "one" }], `${type}, PostgREST: a table`);
  same(await body(embedded, [id, `{${id}}`]), [{ book: it, books: { id: it } }], `${type}, PostgREST: embedded rows`);
  same(await body(inserted(type), ['[{"id": "249722523258744899", "title": "new"}]']),
    [{ id: it === id ? "249722523258744899" : 249722523258744900, title: "new" }], `${type}, PostgREST: an INSERT`);
  same(await body(hasura, [id]), [{ id: it, copies: [{ book: it }] }], `${type}, Hasura`);
}

// node-postgres; the tables have keys of type snowflake from here on.
for (const [kind, value] of [["text", id], ["BigInt", exact]]) {
  same(await query("SELECT id FROM books WHERE id = $1", [value]), [{ id }], `node-postgres, parameter: ${kind}`);
  same(await query("SELECT id FROM books WHERE id = ANY($1)", [[value, 5]]), [{ id }], `node-postgres, array: ${kind}`);
}
same(await query("INSERT INTO books (id) VALUES ($1), ($2) RETURNING id", [5, 7n]), [{ id: "5" }, { id: "7" }], "node-postgres, INSERT");
same(await query("SELECT array_agg(id) AS ids FROM books WHERE id IN (5, 7)"), [{ ids: "{5,7}" }], "node-postgres, an array is a text");
await recipe.readArrays(client);
same(await query("SELECT array_agg(id) AS ids FROM books WHERE id IN (5, 7)"), [{ ids: ["5", "7"] }], "node-postgres, an array with the recipe");
await client.end();

// postgres.js
for (const types of [{}, { bigint: postgres.BigInt }]) {
  const js = postgres({ types, max: 1 });
  same(plain(await js`SELECT id, ARRAY[id] AS ids FROM books WHERE id = ${id}`), [{ id, ids: [id] }], "postgres.js");
  for (const value of [exact, id]) same(plain(await js`SELECT title FROM books WHERE id = ${value}`), [{ title: "one" }], `postgres.js, ${typeof value}`);
  same(plain(await js`SELECT title FROM books WHERE id = ANY(${[id]})`), [{ title: "one" }], "postgres.js, array");
  same(plain(await js`DELETE FROM books WHERE id = ${7} RETURNING id`).length, 1, "postgres.js, number");
  same(plain(await js`INSERT INTO books ${js({ id: 7n, title: "seven" })} ON CONFLICT (id) DO UPDATE SET title = 'seven' RETURNING id`), [{ id: "7" }], "postgres.js, INSERT");
  await js.end();
}

// Knex
const knex = Knex({ client: "pg", connection: {} });
same(await knex("books").where({ id: exact }).orWhereIn("id", [id]).select("id"), [{ id }], "Knex");
same(typeof (await knex("books").insert([{ title: "new" }], ["id"]))[0].id, "string", "Knex, INSERT");
await knex.schema.createTable("shelves", (table) => table.specificType("id", "snowflake").primary().defaultTo(knex.raw("snowflake_nextval()")));
same(await defaultOf("shelves"), ["snowflake", "snowflake_nextval()"], "Knex, specificType()");
await knex.destroy();

// Drizzle: the recipe's type, in queries, in relations, and in a migration; and mode: "bigint".
const folder = mkdtempSync(join(tmpdir(), "drizzle-"));
const books = pgTable("books", { id: recipe.snowflake().primaryKey().default(drizzleSql`snowflake_nextval()`), title: text() });
const copies = pgTable("copies", { id: recipe.snowflake().primaryKey(), book: recipe.snowflake().references(() => books.id) });
const pool = new pg.Pool();
const db = drizzle(pool, { schema: { books, copies,
  ofBooks: relations(books, ({ many }) => ({ copies: many(copies) })),
  ofCopies: relations(copies, ({ one }) => ({ of: one(books, { fields: [copies.book], references: [books.id] }) })) } });
same(await db.select({ id: books.id }).from(books).where(inArray(books.id, [id])), [{ id }], "Drizzle");
same(typeof (await db.insert(books).values({ title: "new" }).returning())[0].id, "string", "Drizzle, INSERT");
same((await db.query.books.findFirst({ where: eq(books.id, id), with: { copies: { columns: { book: true } } } })),
  { id, title: "one", copies: [{ book: id }] }, "Drizzle, a relational query");
for (const [mode, it] of [["bigint", exact], ["number", rounded]])
  same(await db.select().from(pgTable("books", { id: bigint({ mode }) })).where(drizzleSql`title = 'one'`), [{ id: it }], `Drizzle, mode: ${mode}`);
const kit = spawnSync("node_modules/.bin/drizzle-kit", ["generate", "--dialect=postgresql", "--schema=./the_type_snowflake_recipe.mjs", `--out=${folder}`], { encoding: "utf8" });
const migration = readdirSync(folder).filter((name) => name.endsWith(".sql")).map((name) => readFileSync(join(folder, name), "utf8")).join();
same(/"id" "?snowflake"? PRIMARY KEY DEFAULT snowflake_nextval\(\)/.test(migration), true, `drizzle-kit generate: ${migration || kit.stdout + kit.stderr}`);
rmSync(folder, { recursive: true });
await pool.end();

// Sequelize
const sequelize = new Sequelize(PGDATABASE, PGUSER, "", { dialect: "postgres", host: PGHOST, port: PGPORT, logging: false });
for (const type of [DataTypes.BIGINT, "snowflake"]) {
  const key = { type, primaryKey: true, defaultValue: Sequelize.literal("snowflake_nextval()") };
  const Book = sequelize.define("book", { id: key, title: DataTypes.TEXT }, { timestamps: false });
  same((await Book.findAll({ where: { id: [id] }, raw: true })), [{ id, title: "one" }], `Sequelize, ${type}`);
  same(typeof (await Book.create({ title: "new" })).id, "string", "Sequelize, INSERT");
  const Shelf = sequelize.define("shelf", { id: key }, { timestamps: false, tableName: "shelves" });
  await Shelf.sync({ alter: true });
  same((await defaultOf("shelves"))[0], "snowflake", "Sequelize, sync({ alter: true }) leaves the type");
  if (type === "snowflake") await Shelf.sync({ force: true });
  same((await defaultOf("shelves")), ["snowflake", "snowflake_nextval()"], "Sequelize, the key");
}
await sequelize.close();

// TypeORM: without the recipe it refuses the type; with bigint, synchronize drops the column.
await sql("DROP TABLE copies");
async function typeorm(type, prepare, run) {
  const Book = new EntitySchema({ name: "Book", tableName: "books",
    columns: { id: { type, primary: true, default: () => "snowflake_nextval()" }, title: { type: "text", nullable: true } } });
  const source = new DataSource({ type: "postgres", host: PGHOST, port: Number(PGPORT), username: PGUSER, database: PGDATABASE, entities: [Book] });
  prepare(source);
  if (!run) return source.initialize().catch((error) => error.message);
  await source.initialize();
  const result = await run(source.getRepository(Book), async () => (await source.driver.createSchemaBuilder().log()).upQueries.map(({ query }) => query));
  await source.destroy();
  return result;
}
same(await typeorm("snowflake", () => {}), 'Data type "snowflake" in "Book.id" is not supported by "postgres" database.', "TypeORM, snowflake");
await typeorm("bigint", () => {}, async (repository, pending) => {
  same(await repository.findOneBy({ id }), { id, title: "one" }, "TypeORM, bigint");
  same((await pending()).includes('ALTER TABLE "books" DROP COLUMN "id"'), true, "TypeORM, bigint: synchronize drops the column");
});
await typeorm("snowflake", recipe.knowSnowflake, async (repository, pending) => {
  same(await repository.findBy({ id: In([id]) }), [{ id, title: "one" }], "TypeORM, snowflake with the recipe");
  same(typeof (await repository.save({ title: "new" })).id, "string", "TypeORM, INSERT");
  same(await pending(), [], "TypeORM, nothing is left to migrate");
});
await end();
