export async function up(knex) {
  await knex.schema.createTable("authors", (table) => {
    table.bigIncrements();
    table.text("name").notNullable();
  });
  await knex.schema.createTable("tags", (table) => {
    table.bigIncrements("id");
    table.text("name").notNullable().unique();
  });
  await knex.schema.createTable("books", (table) => {
    table.bigIncrements("id");
    table.text("title").notNullable();
    table.bigInteger("author_id").notNullable().references("authors.id");
  });
  await knex.schema.createTable("book_tags", (table) => {
    table.bigInteger("book_id").references("books.id");
    table.bigInteger("tag_id").references("tags.id");
    table.primary(["book_id", "tag_id"]);
  });
}

export async function down(knex) {
  for (const table of ["book_tags", "books", "tags", "authors"]) await knex.schema.dropTable(table);
}
