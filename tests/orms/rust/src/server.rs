//! What the tests of the Rust recipes share: the server, and how many statements it got.

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::collections::HashMap;
use std::fmt::Debug;

diesel::table! {
    books (id) {
        id -> BigInt,
        title -> Text,
    }
}

pub fn url() -> String {
    let of = |name| std::env::var(name).expect(name);
    format!(
        "postgres://{}@{}:{}/{}",
        of("PGUSER"),
        of("PGHOST"),
        of("PGPORT"),
        of("PGDATABASE")
    )
}

pub fn connect() -> PgConnection {
    PgConnection::establish(&url()).expect("a connection")
}

pub fn create_books() {
    run(
        &mut connect(),
        "CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text NOT NULL)",
    );
}

fn run(connection: &mut PgConnection, statement: &str) {
    diesel::sql_query(statement)
        .execute(connection)
        .expect(statement);
}

/// Runs a function, and returns its result and how many INSERTs the server got meanwhile.
pub fn inserts<T>(function: impl FnOnce() -> T) -> (T, i64) {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = BigInt)]
        count: i64,
    }
    let mut server = connect();
    run(&mut server, "SELECT pg_stat_statements_reset()");
    let result = function();
    let counts = "SELECT coalesce(sum(calls), 0)::bigint AS count FROM pg_stat_statements WHERE query LIKE 'INSERT%'";
    let count: Count = diesel::sql_query(counts)
        .get_result(&mut server)
        .expect(counts);
    (result, count.count)
}

/// Checks that rows of ID and title are 1,000, and are in the table.
pub fn check_rows(rows: &[(i64, String)]) {
    let stored: HashMap<i64, String> = books::table
        .load::<(i64, String)>(&mut connect())
        .expect("the rows")
        .into_iter()
        .collect();
    same(rows.len(), 1000, "rows");
    same(
        rows.iter().all(|(id, title)| stored.get(id) == Some(title)),
        true,
        "right IDs",
    );
}

pub fn same<T: PartialEq + Debug>(got: T, expected: T, what: &str) {
    assert_eq!(got, expected, "{what}");
    println!("  {what}: {got:?}");
}

pub fn titles(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}
