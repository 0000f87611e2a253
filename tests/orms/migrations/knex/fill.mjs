import Knex from "knex";
import config from "./knexfile.mjs";

const side = process.argv[2];
const knex = Knex(config);
await knex.transaction(async (trx) => {
  const names = Array.from({ length: 200 }, (_, n) => ({ name: `${side}${n}` }));
  const tags = await trx("tags").insert(names.slice(0, 10), "id");
  const authors = await trx("authors").insert(names, ["id", "name"]);
  const titles = authors.flatMap(({ id, name }) => [0, 1].map((n) => ({ title: `${name} ${n}`, author_id: id })));
  const books = await trx("books").insert(titles, "id");
  await trx("book_tags").insert(books.flatMap(({ id }, n) => [n % 10, (n + 3) % 10].map((t) => ({ book_id: id, tag_id: tags[t].id }))));
});
await knex.destroy();
