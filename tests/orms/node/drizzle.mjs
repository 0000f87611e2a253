// Drizzle: many rows with one INSERT, what rounds IDs, and what drizzle-kit does.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eq, relations } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";
import * as recipe from "./drizzle_recipe.mjs";
import { checkRows, counted, defaultOf, end, same, sql, titles } from "./server.mjs";

const url = `postgres://${process.env.PGUSER}@127.0.0.1:${process.env.PGPORT}/${process.env.PGDATABASE}`;
const folder = mkdtempSync(join(tmpdir(), "drizzle-"));
// Runs drizzle-kit, and returns what it prints. It ends with 0 even if the database refuses.
function kit(command, ...options) {
  const { stdout, stderr } = spawnSync("node_modules/.bin/drizzle-kit", [command, "--dialect=postgresql", ...options], { encoding: "utf8" });
  return stdout + stderr;
}
const schema = "--schema=./drizzle_recipe.mjs";

kit("generate", schema, `--out=${folder}/out`);
const [migration] = readdirSync(`${folder}/out`).filter((name) => name.endsWith(".sql"));
await sql(readFileSync(`${folder}/out/${migration}`, "utf8"));
same(await defaultOf("books"), ["bigint", "snowflake_nextval()"], "the key");

const copies = pgTable("copies", {
  id: bigint({ mode: "bigint" }).primaryKey(),
  book: bigint({ mode: "bigint" }).references(() => recipe.books.id),
});
await sql("CREATE TABLE copies (id bigint PRIMARY KEY, book bigint REFERENCES books)");
const pool = new pg.Pool();
const db = drizzle(pool, {
  schema: {
    books: recipe.books,
    copies,
    ofBooks: relations(recipe.books, ({ many }) => ({ copies: many(copies) })),
    ofCopies: relations(copies, ({ one }) => ({ book: one(recipe.books, { fields: [copies.book], references: [recipe.books.id] }) })),
  },
});
const { result, calls } = await counted(() => recipe.addBooks(db, titles));
same(calls("INSERT"), 1, "INSERTs");
same(typeof result[0].id, "bigint", "the type of an ID");
await checkRows(result.map(({ id, title }) => ({ id: String(id), title })));
const without = await db.insert(copies).values({ id: 250322705411239997n, book: result[5].id });
same(without.rows, [], "IDs without returning()");

const numbers = pgTable("books", { id: bigint({ mode: "number" }).primaryKey(), title: text() });
const exact = await db.select().from(recipe.books).where(eq(recipe.books.id, result[5].id));
same(exact, [result[5]], "a search by the ID");
const [rounded] = await db.select().from(numbers).where(eq(numbers.title, "5"));
same(rounded.id, Number(result[5].id), "mode: number rounds");
const ids = new Set(result.map(({ id }) => id));
const wrong = result.filter(({ id }) => BigInt(Number(id)) !== id);
same(wrong.length > 500, true, "most IDs change when they are rounded");
same(wrong.some(({ id }) => ids.has(BigInt(Number(id)))), true, "and some become the ID of another row");

const query = { where: eq(recipe.books.id, result[5].id), with: { copies: true } };
same((await db.query.books.findFirst(query)).copies[0].id, 250322705411240000n, "a relational query rounds");
const [joined] = await db.select().from(recipe.books).leftJoin(copies, eq(copies.book, recipe.books.id)).where(eq(copies.book, result[5].id));
same(joined.copies.id, 250322705411239997n, "leftJoin() does not");

kit("pull", `--url=${url}`, `--out=${folder}/pull`);
const pulled = readFileSync(`${folder}/pull/schema.ts`, "utf8");
same(/id: bigint\(\{ mode: "number" \}\)\.default\(sql`snowflake_nextval\(\)`\)/.test(pulled), true, "drizzle-kit pull writes mode: number");

const push = () => kit("push", schema, `--url=${url}`, "--force");
same(push().includes("because extension snowflake_id requires it"), true, "push with the extension in public is refused");
await sql("DROP TABLE copies, books");
await sql("DROP EXTENSION snowflake_id; DROP EXTENSION pg_stat_statements; CREATE SCHEMA snowflake; CREATE EXTENSION snowflake_id SCHEMA snowflake");
await sql(`ALTER DATABASE ${process.env.PGDATABASE} SET search_path = public, snowflake; SET search_path = public, snowflake`);
await sql("SELECT snowflake_create_generator('public.lost_ids', 'preset=default'), snowflake_create_generator('snowflake.kept_ids', 'preset=default')");
same(push().includes("Changes applied"), true, "push with the extension in a schema of its own");
same(await sql("SELECT to_regclass('public.lost_ids'), to_regclass('snowflake.kept_ids')::text"), [[null, "kept_ids"]], "the generators that are left");
same(await defaultOf("books"), ["bigint", "snowflake_nextval()"], "the key that push makes");
await pool.end();
rmSync(folder, { recursive: true });
await end();
