import { bigint, bigserial, pgTable, text } from "drizzle-orm/pg-core";

export const authors = pgTable("authors", {
  id: bigserial({ mode: "bigint" }).primaryKey(),
  name: text().notNull(),
});
export const books = pgTable("books", {
  id: bigint({ mode: "bigint" }).primaryKey().generatedAlwaysAsIdentity(),
  title: text().notNull(),
  author: bigint({ mode: "bigint" }).notNull().references(() => authors.id),
});
export const copies = pgTable("copies", {
  id: bigint({ mode: "bigint" }).primaryKey().generatedByDefaultAsIdentity(),
  book: bigint({ mode: "bigint" }).notNull().references(() => books.id),
});
