import { Author, Book, Tag } from "./entities.mjs";
import { source } from "./data-source.mjs";

const side = process.argv[2];
await source.initialize();
await source.transaction(async (manager) => {
  const tags = await manager.save(Array.from({ length: 10 }, (_, n) => manager.create(Tag, { name: `${side}${n}` })));
  const authors = Array.from({ length: 200 }, (_, n) =>
    manager.create(Author, {
      name: `${side}${n}`,
      books: [0, 1].map((i) => manager.create(Book, { title: `${side}${n} ${i}`, tags: tags.slice(i, i + 2) })),
    }),
  );
  await manager.save(authors);
});
await source.destroy();
