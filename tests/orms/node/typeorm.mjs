// TypeORM: the entity, many rows with one INSERT, and what synchronize and
// migration:generate would do, which both take their statements from the schema builder.
import "reflect-metadata";
import { DataSource, EntitySchema } from "typeorm";
import { Book } from "./typeorm_recipe.mjs";
import { checkRows, counted, defaultOf, end, same, sameJson, sql, titles } from "./server.mjs";

const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
const source = (entity) =>
  new DataSource({ type: "postgres", host: PGHOST, port: Number(PGPORT), username: PGUSER, database: PGDATABASE, entities: [entity] }).initialize();
const pending = async (of) => (await of.driver.createSchemaBuilder().log()).upQueries.map(({ query }) => query);

const books = await source(Book);
await books.synchronize();
same(await defaultOf("books"), ["bigint", "snowflake_nextval()"], "the key");
same(await pending(books), [], "nothing is left to migrate");
const repository = books.getRepository(Book);
const objects = titles.map((title) => repository.create({ title }));
const { calls } = await counted(() => repository.save(objects));
same(calls("INSERT"), 1, "save(): INSERTs");
await checkRows(objects);
same(await repository.findOneBy({ id: objects[5].id }), objects[5], "a search by the ID");
await sql("TRUNCATE books");
const plain = titles.map((title) => ({ title }));
const inserted = await counted(() => repository.insert(plain));
same(inserted.calls("INSERT"), 1, "insert(): INSERTs");
await checkRows(plain);

// A generated column, on a table that has the default, and on a new one.
const Counter = new EntitySchema({
  name: "Counter", tableName: "books",
  columns: { id: { type: "bigint", primary: true, generated: "increment" }, title: { type: "text" } },
});
const counters = await source(Counter);
same((await pending(counters)).some((query) => query.includes(`SET DEFAULT nextval('"books_id_seq"')`)), true,
  "a generated column replaces the default");
await sql("DROP TABLE books");
await counters.synchronize();
same((await defaultOf("books"))[1], "nextval('books_id_seq'::regclass)", "a generated column makes a serial");
same((await pending(books)).some((query) => query.endsWith("SET DEFAULT snowflake_nextval()")), true, "what migration:generate would write");
await sql("SELECT snowflake_set_default('books')");
same(await pending(books), [], "nothing is left to migrate after snowflake_set_default()");

// The two ways to name a generator.
await sql("SELECT snowflake_create_generator('message_ids', 'preset=default')");
for (const [name, left] of [["'message_ids'", 0], ["'message_ids'::regclass", 1]]) {
  const Message = new EntitySchema({
    name: "Message", tableName: "messages",
    columns: { id: { type: "bigint", primary: true, default: () => `snowflake_nextval(${name})` } },
  });
  const messages = await source(Message);
  await messages.synchronize();
  same((await pending(messages)).length, left, `${name}: statements that are left to migrate`);
  await messages.destroy();
}
await sameJson(async (query) => (await books.query(query))[0]);
await counters.destroy();
await books.destroy();
await end();
