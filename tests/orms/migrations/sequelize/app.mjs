import { DataTypes, Sequelize } from "sequelize";

const side = process.argv[2];
const sequelize = new Sequelize(process.env.DATABASE_URL, { logging: false });
const id = { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true };
const Author = sequelize.define("Author", { id, name: DataTypes.TEXT });
const Book = sequelize.define("Book", { id, title: DataTypes.TEXT });
const Copy = sequelize.define("Copy", { id });
Author.hasMany(Book);
Book.belongsTo(Author);
Book.hasMany(Copy);
Copy.belongsTo(Book);

if (side === "alter") sequelize.define("Small", {});
if (side === "sync" || side === "alter") {
  await sequelize.sync({ alter: side === "alter" });
} else {
  await sequelize.transaction(async (transaction) => {
    const names = Array.from({ length: 200 }, (_, n) => ({ name: `${side}${n}` }));
    const authors = await Author.bulkCreate(names, { transaction });
    const titles = authors.flatMap((author) => [0, 1].map((n) => ({ title: `${author.name} ${n}`, AuthorId: author.id })));
    const books = await Book.bulkCreate(titles, { transaction });
    for (const book of books) await book.createCopy({}, { transaction });
  });
}
await sequelize.close();
