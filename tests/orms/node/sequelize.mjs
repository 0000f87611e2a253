// Sequelize: the model, many rows with one INSERT, and models without the key.
import { DataTypes, QueryTypes, Sequelize } from "sequelize";
import { defineBook, snowflakeId } from "./sequelize_recipe.mjs";
import { checkRows, counted, defaultOf, end, same, sameJson, sql, titles } from "./server.mjs";

const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
const sequelize = new Sequelize(PGDATABASE, PGUSER, "", { dialect: "postgres", host: PGHOST, port: PGPORT, logging: false });
const Book = defineBook(sequelize);
await sequelize.sync();
same(await defaultOf("books"), ["bigint", "snowflake_nextval()"], "the key");
await sequelize.sync({ alter: true });
same(await defaultOf("books"), ["bigint", "snowflake_nextval()"], "the key after sync() with alter");

const { result, calls } = await counted(() => Book.bulkCreate(titles.map((title) => ({ title }))));
same(calls("INSERT"), 1, "INSERTs");
await checkRows(result);
const one = await Book.create({ title: "one" });
same((await Book.findByPk(one.id)).title, "one", "create(), and a search by the ID");

// Models that lack something of the recipe.
async function outcome(run) {
  try { return await run(); } catch (error) { return error.message; }
}
const options = { timestamps: false };
const Copy = sequelize.define("copy", {}, options);
Copy.belongsTo(Book);
await Copy.sync();
same(await defaultOf("copies"), ["integer", "nextval('copies_id_seq'::regclass)"], "a model without the key");
same(await sql("SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'copies'::regclass AND attname = 'bookId'"),
  [["bigint"]], "a column that refers to the key");
const Both = sequelize.define("both", { id: { ...snowflakeId, autoIncrement: true } }, options);
same(await outcome(() => Both.sync()), 'multiple default values specified for column "id" of table "boths"', "autoIncrement and the default");
const Serial = sequelize.define("serial", { id: { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true } }, options);
await Serial.sync();
same((await defaultOf("serials"))[1], "nextval('serials_id_seq'::regclass)", "autoIncrement alone");
const Bare = sequelize.define("bare", { id: { type: DataTypes.BIGINT, primaryKey: true }, title: DataTypes.TEXT }, { ...options, tableName: "books" });
same(await outcome(() => Bare.bulkCreate([{ title: "two" }])),
  'null value in column "id" of relation "books" violates not-null constraint', "bulkCreate() with neither");
await sameJson(async (query) => (await sequelize.query(query, { type: QueryTypes.SELECT }))[0]);
await sequelize.close();
await end();
