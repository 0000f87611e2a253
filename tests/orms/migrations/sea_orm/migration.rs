use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .create_table(
                Table::create()
                    .table("authors")
                    .if_not_exists()
                    .col(big_pk_auto("id"))
                    .col(string("name"))
                    .to_owned(),
            )
            .await?;
        manager
            .create_table(
                Table::create()
                    .table("books")
                    .col(big_pk_auto("id"))
                    .col(string("title"))
                    .col(big_integer("author_id"))
                    .foreign_key(
                        ForeignKey::create()
                            .from("books", "author_id")
                            .to("authors", "id"),
                    )
                    .to_owned(),
            )
            .await?;
        manager
            .create_table(
                Table::create()
                    .table("copies")
                    .col(big_pk_auto("id"))
                    .col(big_integer("book_id"))
                    .foreign_key(
                        ForeignKey::create()
                            .from("copies", "book_id")
                            .to("books", "id"),
                    )
                    .to_owned(),
            )
            .await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["copies", "books", "authors"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        Ok(())
    }
}
