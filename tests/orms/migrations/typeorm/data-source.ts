import "reflect-metadata";
import { DataSource } from "typeorm";
import { Author, Book, Tag } from "./entities.mjs";

const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;

export const source = new DataSource({
  type: "postgres",
  host: PGHOST,
  port: Number(PGPORT),
  username: PGUSER,
  database: PGDATABASE,
  entities: [Author, Book, Tag],
  migrations: ["migrations/*.mjs"],
});
