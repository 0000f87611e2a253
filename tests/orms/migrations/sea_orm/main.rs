use sea_orm::{Database, DbErr, EntityTrait, NotSet, Set, TransactionTrait};
use sea_orm_migration::prelude::*;

mod migration;

mod authors {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "authors")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub name: String,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

mod books {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "books")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub title: String,
        pub author_id: i64,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

mod copies {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "copies")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub book_id: i64,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(migration::Migration)]
    }
}

async fn run(command: &str) -> Result<(), DbErr> {
    let database = Database::connect(std::env::var("DATABASE_URL").expect("a URL")).await?;
    match command {
        "up" => return Migrator::up(&database, None).await,
        "refresh" => return Migrator::refresh(&database).await,
        side => {
            let changes = database.begin().await?;
            let names = (0..200).map(|n| authors::ActiveModel {
                id: NotSet,
                name: Set(format!("{side}{n}")),
            });
            for author in authors::Entity::insert_many(names)
                .exec_with_returning(&changes)
                .await?
            {
                for n in 0..2 {
                    let book = books::ActiveModel {
                        id: NotSet,
                        title: Set(format!("{} {n}", author.name)),
                        author_id: Set(author.id),
                    };
                    let book_id = books::Entity::insert(book)
                        .exec(&changes)
                        .await?
                        .last_insert_id;
                    copies::Entity::insert(copies::ActiveModel {
                        id: NotSet,
                        book_id: Set(book_id),
                    })
                    .exec(&changes)
                    .await?;
                }
            }
            changes.commit().await
        }
    }
}

fn main() -> Result<(), DbErr> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(&std::env::args().nth(1).expect("a command")))
}
