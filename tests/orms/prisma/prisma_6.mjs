// Prisma: what its tool makes of the models, and many rows with one INSERT.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rmSync, readFileSync, writeFileSync } from "node:fs";
import { PrismaPg } from "@prisma/adapter-pg";

const prisma = (...args) => execFileSync("node_modules/.bin/prisma", args, { encoding: "utf8" });
function same(got, expected, what) {
  assert.deepEqual(got, expected, what);
  console.log(`  ${what}:`, got);
}

rmSync("client", { recursive: true, force: true });
prisma("generate");
const ddl = prisma("migrate", "diff", "--from-empty", "--to-schema-datamodel", "schema.prisma", "--script");
same(ddl.match(/"id" BIGINT NOT NULL DEFAULT snowflake_nextval\(\),/g).length, 2, "keys with the default");
writeFileSync("serial.prisma", readFileSync("schema.prisma", "utf8").replaceAll('dbgenerated("snowflake_nextval()")', "autoincrement()"));
const serial = prisma("migrate", "diff", "--from-empty", "--to-schema-datamodel", "serial.prisma", "--script");
same(serial.match(/"id" BIGSERIAL NOT NULL,/g).length, 2, "keys with autoincrement()");

const { PrismaClient } = await import("./client/index.js");
const queries = [];
const client = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }), log: [{ emit: "event", level: "query" }] });
client.$on("query", ({ query }) => queries.push(query));
const inserts = async (run) => {
  queries.length = 0;
  const result = await run();
  return { result, sent: queries.filter((query) => query.startsWith("INSERT")).length };
};
for (const statement of ddl.split(";").filter((text) => text.trim())) await client.$executeRawUnsafe(statement);

const data = Array.from({ length: 1000 }, (_, n) => ({ title: String(n) }));
const many = await inserts(() => client.book.createManyAndReturn({ data }));
same(many.sent, 1, "createManyAndReturn(): INSERTs");
const stored = new Map((await client.$queryRaw`SELECT id::text, title FROM "Book"`).map(({ id, title }) => [title, id]));
same(many.result.length, 1000, "rows");
same(many.result.every(({ id, title }) => typeof id === "bigint" && stored.get(title) === String(id)), true, "right IDs, as BigInt");
same(await inserts(() => client.book.createMany({ data })), { result: { count: 1000 }, sent: 1 }, "createMany()");
const book = await client.book.create({ data: { title: "one", copies: { create: [{}, {}] } }, include: { copies: true } });
same(book.copies.map(({ bookId }) => bookId === book.id), [true, true], "related rows");
same((await client.book.findUnique({ where: { id: book.id }, include: { copies: true } })), book, "a search by the ID");
assert.throws(() => JSON.stringify(book), /BigInt/);
await client.$disconnect();
