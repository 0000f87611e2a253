// Prisma over keys of type snowflake: the same model as for bigint. `prisma generate` gets no schema engine,
// which it does not call.
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { PrismaPg } from "@prisma/adapter-pg";
import { end, same, sql } from "./server.mjs";

mkdirSync("prisma", { recursive: true });
writeFileSync("prisma/schema.prisma", `generator client {
  provider = "prisma-client-js"
  output   = "../prisma/client"
}
datasource db {
  provider = "postgresql"
}
model Book {
  id    BigInt @id @default(dbgenerated("snowflake_nextval()"))
  title String
  @@map("books")
}
`);
execFileSync("node_modules/.bin/prisma", ["generate", "--schema=prisma/schema.prisma"],
  { env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true", CHECKPOINT_DISABLE: "1" }, stdio: "inherit" });
const { PrismaClient } = createRequire(import.meta.url)("./prisma/client/index.js");

const id = 249722523258744845n;
const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
for (const type of ["bigint", "snowflake"]) {
  await sql(`DROP TABLE IF EXISTS books; CREATE TABLE books (id ${type} PRIMARY KEY DEFAULT snowflake_nextval(), title text NOT NULL)`);
  const prisma = new PrismaClient({ adapter: new PrismaPg({ host: PGHOST, port: Number(PGPORT), user: PGUSER, database: PGDATABASE }) });
  same(await prisma.book.create({ data: { id, title: "one" } }), { id, title: "one" }, `${type}: create()`);
  const made = await prisma.book.createManyAndReturn({ data: [{ title: "two" }, { title: "three" }] });
  same(made.map((book) => typeof book.id), ["bigint", "bigint"], `${type}: createManyAndReturn()`);
  same(await prisma.book.findUnique({ where: { id } }), { id, title: "one" }, `${type}: findUnique()`);
  same(await prisma.book.findMany({ where: { id: { in: [id, 5n], gte: id } } }), [{ id, title: "one" }], `${type}: findMany()`);
  same(await prisma.book.update({ where: { id: made[0].id }, data: { title: "2" } }), { id: made[0].id, title: "2" }, `${type}: update()`);
  same((await prisma.book.aggregate({ _max: { id: true } }))._max.id, made[1].id, `${type}: the greatest ID`);
  const [raw] = await prisma.$queryRaw`SELECT id, ARRAY[id] AS ids FROM books WHERE id = ${id}`;
  same(raw, type === "bigint" ? { id, ids: [id] } : { id: String(id), ids: `{${id}}` }, `${type}: $queryRaw`);
  await prisma.$disconnect();
}
await end();
