//! Diesel: many rows with one INSERT, an ID that is left out, and a `table!` with a
//! narrow ID.

mod diesel_recipe;
mod server;

use diesel::prelude::*;
use diesel_recipe::{NewBook, add_books, books};
use server::{check_rows, connect, create_books, inserts, same, titles};

#[derive(Insertable)]
#[diesel(table_name = books)]
struct Optional {
    id: Option<i64>,
    title: String,
}

mod narrow {
    diesel::table! {
        books (id) {
            id -> Integer,
            title -> Text,
        }
    }
}

fn main() {
    create_books();
    let mut connection = connect();
    let new = |count| {
        titles(count)
            .into_iter()
            .map(|title| NewBook { title })
            .collect::<Vec<_>>()
    };
    let (added, calls) = inserts(|| add_books(&mut connection, &new(1000)).expect("rows"));
    same(calls, 1, "INSERTs");
    check_rows(
        &added
            .into_iter()
            .map(|book| (book.id, book.title))
            .collect::<Vec<_>>(),
    );

    let optional: Vec<_> = titles(1000)
        .into_iter()
        .map(|title| Optional { id: None, title })
        .collect();
    let insert = diesel::insert_into(books::table)
        .values(&optional)
        .returning((books::id, books::title));
    let (added, calls) = inserts(|| insert.get_results(&mut connection).expect("rows"));
    same(calls, 1, "INSERTs with None as the ID");
    check_rows(&added);

    same(
        add_books(&mut connection, &new(65_535))
            .expect("rows")
            .len(),
        65_535,
        "rows of 65,535 parameters",
    );
    let outcome = add_books(&mut connection, &new(65_536))
        .map(|_| ())
        .map_err(|error| error.to_string());
    same(
        outcome,
        Err("number of parameters must be between 0 and 65535\n".to_owned()),
        "one more",
    );

    let insert = diesel::insert_into(narrow::books::table)
        .values(narrow::books::title.eq("narrow"))
        .returning(narrow::books::id);
    let error = insert
        .get_result::<i32>(&mut connection)
        .expect_err("an error");
    same(
        format!("{error:?}").contains("Received more than 4 bytes"),
        true,
        "a narrow ID is an error",
    );
    let count = books::table.filter(books::title.eq("narrow")).count();
    same(
        count.get_result::<i64>(&mut connection).expect("a count"),
        1,
        "its rows are in the table",
    );
}
