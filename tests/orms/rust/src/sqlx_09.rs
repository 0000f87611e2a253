//! sqlx: many rows with one INSERT, and IDs that are read as a narrow type.

mod server;
mod sqlx_recipe;

use server::{check_rows, create_books, inserts, same, titles, url};
use sqlx::{Connection, PgConnection, Postgres, QueryBuilder, Result};
use sqlx_recipe::add_books;

async fn push_values(
    connection: &mut PgConnection,
    titles: &[String],
) -> Result<Vec<(i64, String)>> {
    let mut query = QueryBuilder::<Postgres>::new("INSERT INTO books (title) ");
    query.push_values(titles, |mut row, title| {
        row.push_bind(title);
    });
    query
        .push(" RETURNING id, title")
        .build_query_as()
        .fetch_all(connection)
        .await
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    create_books();
    let mut connection = runtime
        .block_on(PgConnection::connect(&url()))
        .expect("a connection");

    let (added, calls) = inserts(|| {
        runtime
            .block_on(add_books(&mut connection, &titles(1000)))
            .expect("rows")
    });
    same(calls, 1, "INSERTs");
    check_rows(&added);
    let (added, calls) = inserts(|| {
        runtime
            .block_on(push_values(&mut connection, &titles(1000)))
            .expect("rows")
    });
    same(calls, 1, "INSERTs of push_values()");
    check_rows(&added);

    let many = titles(65_536);
    same(
        runtime
            .block_on(add_books(&mut connection, &many))
            .expect("rows")
            .len(),
        65_536,
        "rows from arrays",
    );
    let refused = runtime
        .block_on(push_values(&mut connection, &many))
        .is_err();
    same(refused, true, "push_values() refuses as many");

    let mut connection = runtime
        .block_on(PgConnection::connect(&url()))
        .expect("a connection");
    let narrow =
        sqlx::query_as::<_, (i32,)>("SELECT id FROM books LIMIT 1").fetch_one(&mut connection);
    let error = runtime.block_on(narrow).expect_err("an error").to_string();
    same(
        error.contains("mismatched types"),
        true,
        "an i32 is an error",
    );
}
