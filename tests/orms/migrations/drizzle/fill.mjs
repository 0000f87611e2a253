import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { authors, books, copies } from "./schema.mjs";

const side = process.argv[2];
const pool = new pg.Pool();
await drizzle(pool).transaction(async (tx) => {
  const names = Array.from({ length: 200 }, (_, n) => ({ name: `${side}${n}` }));
  const writers = await tx.insert(authors).values(names).returning();
  const titles = writers.flatMap(({ id, name }) => [0, 1].map((n) => ({ title: `${name} ${n}`, author: id })));
  const written = await tx.insert(books).values(titles).returning();
  await tx.insert(copies).values(written.map(({ id }) => ({ book: id })));
});
await pool.end();
