//! Keys of type snowflake in Rust: Diesel takes them as `BigInt`; sqlx and tokio-postgres need casts.

#[allow(dead_code)] // What it counts, and its table, are for the recipes.
mod server;

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt};
use server::{books, connect, same, url};
use sqlx::Connection as _;

const ID: i64 = 249722523258744845;

fn with_diesel() -> QueryResult<()> {
    let connection = &mut connect();
    diesel::sql_query(
        "CREATE TABLE books (id snowflake PRIMARY KEY DEFAULT snowflake_nextval(), title text)",
    )
    .execute(connection)?;
    let insert = diesel::insert_into(books::table)
        .values((books::id.eq(ID), books::title.eq("one")))
        .returning(books::id);
    same(insert.get_result(connection)?, ID, "Diesel, INSERT");
    let found = books::table.filter(books::id.eq_any([ID, 5]));
    let ids: Vec<i64> = found.select(books::id).load(connection)?;
    same(ids, vec![ID], "Diesel, eq_any()");
    let array = diesel::dsl::sql::<Array<BigInt>>("ARRAY[id]");
    let ids: Vec<i64> = books::table.select(array).first(connection)?;
    same(ids, vec![ID], "Diesel, an array");
    Ok(())
}

async fn with_sqlx() -> sqlx::Result<()> {
    let mut connection = sqlx::PgConnection::connect(&url()).await?;
    let plain = sqlx::query_scalar::<_, i64>("SELECT id FROM books WHERE id = $1").bind(ID);
    let error = plain
        .fetch_one(&mut connection)
        .await
        .expect_err("an error");
    same(
        error.to_string().contains(
            "Rust type `i64` (as SQL type `INT8`) is not compatible with SQL type `snowflake`",
        ),
        true,
        "sqlx without a cast",
    );
    let cast = sqlx::query_as::<_, (i64, Vec<i64>)>(
        "SELECT id::bigint, ARRAY[id]::bigint[] FROM books WHERE id = ANY($1)",
    );
    let row = cast.bind([ID]).fetch_one(&mut connection).await?;
    same(row, (ID, vec![ID]), "sqlx with casts");
    let insert = "INSERT INTO books VALUES ($1, 'five') RETURNING id::bigint";
    let id: i64 = sqlx::query_scalar(insert)
        .bind(5i64)
        .fetch_one(&mut connection)
        .await?;
    same(id, 5, "sqlx, INSERT");
    Ok(())
}

async fn with_tokio_postgres() -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&url(), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute("CREATE TABLE plain (id bigint, title text)")
        .await?;
    let insert = "INSERT INTO plain VALUES ($1, 'one') RETURNING id";
    let row = client.query_one(insert, &[&ID]).await?;
    same(row.get(0), ID, "tokio-postgres, bigint");
    let uncast = client
        .query_one("SELECT id FROM books WHERE id = $1", &[&ID])
        .await?;
    same(
        uncast.try_get::<_, i64>(0).is_err(),
        true,
        "tokio-postgres without a cast is an error",
    );
    let cast = "SELECT id::bigint, ARRAY[id]::bigint[] FROM books WHERE id = ANY($1)";
    let row = client.query_one(cast, &[&vec![ID]]).await?;
    same(
        (row.get(0), row.get(1)),
        (ID, vec![ID]),
        "tokio-postgres with casts",
    );
    let insert = "INSERT INTO books VALUES ($1, 'seven') RETURNING id::bigint";
    let refused = client.query_one(insert, &[&7i64]).await;
    same(
        refused.is_err(),
        true,
        "tokio-postgres, INSERT of an i64 is an error",
    );
    let insert = insert.replace("$1", "$1::bigint");
    let row = client.query_one(&insert, &[&7i64]).await?;
    same(row.get(0), 7i64, "tokio-postgres, INSERT with a cast");
    Ok(())
}

fn main() {
    with_diesel().expect("Diesel");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(with_sqlx()).expect("sqlx");
    runtime
        .block_on(with_tokio_postgres())
        .expect("tokio-postgres");
}
