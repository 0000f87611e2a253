import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "./client/index.js";

const side = process.argv[2];
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });
const tags = await prisma.tag.createManyAndReturn({ data: Array.from({ length: 10 }, (_, n) => ({ name: `${side}${n}` })) });
for (let n = 0; n < 100; n++) {
  const books = [0, 1].map((i) => ({ title: `${side}${n} ${i}`, tags: { connect: tags.slice(i, i + 2).map(({ id }) => ({ id })) } }));
  await prisma.author.create({ data: { name: `${side}${n}`, books: { create: books } } });
}
const names = Array.from({ length: 100 }, (_, n) => ({ name: `${side}${n + 100}` }));
const authors = await prisma.author.createManyAndReturn({ data: names });
await prisma.book.createMany({ data: authors.flatMap(({ id, name }) => [0, 1].map((n) => ({ title: `${name} ${n}`, authorId: id }))) });
await prisma.$disconnect();
