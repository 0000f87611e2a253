//! SeaORM: the entity and its migration, many rows with one INSERT, a narrow ID, and what makes
//! the database like the entities.

mod seaorm_recipe;
#[allow(dead_code)]
mod server;

use sea_orm::{
    ActiveModelTrait, ConnectionTrait, Database, DatabaseConnection, DbErr, EntityTrait, NotSet,
    Set, Statement,
};
use sea_orm_migration::prelude::{MigrationTrait, MigratorTrait, SchemaManager, Table};
use sea_orm_migration::schema::pk_auto;
use seaorm_recipe as books;
use server::{check_rows, inserts, same, titles, url};

mod narrow {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, DeriveEntityModel)]
    #[sea_orm(table_name = "books")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub title: String,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

mod counted {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, DeriveEntityModel)]
    #[sea_orm(table_name = "counted")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(books::Migration)]
    }
}

async fn default_of(database: &DatabaseConnection, table: &str) -> String {
    let query = format!(
        "SELECT format('%s %s%s', atttypid::regtype, attidentity, pg_get_expr(adbin, adrelid))
         FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
         WHERE attrelid = '{table}'::regclass AND attname = 'id'"
    );
    let query = Statement::from_string(database.get_database_backend(), query);
    let row = database.query_one_raw(query).await.expect("an answer");
    row.expect("a row").try_get_by_index(0).expect("a text")
}

fn book(title: String) -> books::ActiveModel {
    books::ActiveModel {
        id: NotSet,
        title: Set(title),
    }
}

async fn sync(database: &DatabaseConnection) {
    let builder = database.get_schema_builder();
    let builder = builder.register(books::Entity).register(counted::Entity);
    builder.sync(database).await.expect("tables");
}

async fn one_by_one(database: &DatabaseConnection) -> Result<(), DbErr> {
    let one = book("one".to_owned()).insert(database).await?;
    let found = books::Entity::find_by_id(one.id).one(database).await?;
    same(found, Some(one), "insert(), and a search by the ID");
    let insert = books::Entity::insert(book("two".to_owned()));
    let id = insert.exec(database).await?.last_insert_id;
    let found = books::Entity::find_by_id(id).one(database).await?;
    same(
        found.map(|book| book.title),
        Some("two".to_owned()),
        "last_insert_id",
    );

    let narrow = narrow::ActiveModel {
        id: NotSet,
        title: Set("narrow".to_owned()),
    };
    let error = narrow.insert(database).await.expect_err("an error");
    same(
        error.to_string().contains("mismatched types"),
        true,
        "an i32 is an error",
    );
    let all = books::Entity::find().all(database).await?;
    let narrow = all.iter().filter(|book| book.title == "narrow").count();
    same(narrow, 1, "its row is in the table");
    Ok(())
}

async fn make_like_the_entities(database: &DatabaseConnection) -> Result<(), DbErr> {
    sync(database).await;
    same(
        default_of(database, "counted").await,
        "bigint d".to_owned(),
        "sync() makes an identity",
    );
    let again = "DROP TABLE counted; SET snowflake_id.new_keys = on";
    database.execute_unprepared(again).await?;
    for what in ["sync() with new_keys", "a second sync()"] {
        sync(database).await;
        same(
            default_of(database, "counted").await,
            "bigint snowflake_nextval()".to_owned(),
            what,
        );
    }
    same(
        default_of(database, "books").await,
        "bigint snowflake_nextval()".to_owned(),
        "the other key after it",
    );

    let small = Table::create().table("small").col(pk_auto("id")).take();
    SchemaManager::new(database).create_table(small).await?;
    same(
        default_of(database, "small").await,
        "integer d".to_owned(),
        "pk_auto() with new_keys",
    );

    let error = Migrator::fresh(database).await.expect_err("an error");
    same(
        error.to_string().contains("cannot drop type snowflake_"),
        true,
        "fresh() with the extension in public",
    );
    let moved = "DROP TABLE books, counted, small; DROP EXTENSION snowflake_id; DROP EXTENSION pg_stat_statements;
        CREATE SCHEMA snowflake; CREATE EXTENSION snowflake_id SCHEMA snowflake; SET search_path = public, snowflake";
    database.execute_unprepared(moved).await?;
    for what in ["fresh() with a schema of its own", "a second fresh()"] {
        Migrator::fresh(database).await?;
        same(
            default_of(database, "books").await,
            "bigint snowflake_nextval()".to_owned(),
            what,
        );
    }
    Ok(())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut options = sea_orm::ConnectOptions::new(url());
    options.max_connections(1);
    let database = runtime
        .block_on(Database::connect(options))
        .expect("a connection");
    runtime
        .block_on(Migrator::up(&database, None))
        .expect("a table");
    same(
        runtime.block_on(default_of(&database, "books")),
        "bigint snowflake_nextval()".to_owned(),
        "the key",
    );

    let insert = books::Entity::insert_many(titles(1000).into_iter().map(book));
    let (added, calls) = inserts(|| {
        runtime
            .block_on(insert.exec_with_returning(&database))
            .expect("rows")
    });
    same(calls, 1, "INSERTs");
    let rows: Vec<_> = added
        .into_iter()
        .map(|book| (book.id, book.title))
        .collect();
    check_rows(&rows);
    runtime.block_on(one_by_one(&database)).expect("rows");
    runtime
        .block_on(make_like_the_entities(&database))
        .expect("tables");
}
