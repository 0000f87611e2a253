//! Commands that a generator refuses.

use pgrx::spi::quote_literal;

pub use crate::session::error::*;

pub fn stays_logged(name: &str) -> Error {
    not_supported(format!("generator {name} cannot be unlogged"))
        .detail(
            "A crash resets an unlogged sequence, and a standby has none of its marks: its IDs \
             would be issued twice.",
        )
        .hint("If the table is to be unlogged, take the sequence from it first: ALTER SEQUENCE ... OWNED BY NONE.")
}

/// The sequence is at `value`, which is no mark. `label` is the label that was to be
/// set, and `beside` a name for a generator in place of the sequence. A column that
/// owns the sequence is given with its table.
pub fn used_sequence(
    name: &str,
    value: i64,
    label: &str,
    beside: &str,
    column: Option<(String, String)>,
) -> Error {
    let quoted = quote_literal(beside);
    let make = format!(
        "SELECT snowflake_create_generator({quoted}, {})",
        quote_literal(label)
    );
    let hint = match column {
        Some((table, column)) => format!(
            "Make a generator beside it, and the default of the column that owns it: {make}; \
             SELECT snowflake_set_default({}, {}, {quoted})",
            quote_literal(table),
            quote_literal(column)
        ),
        None => format!(
            "Make a generator beside it: {make}; or, if nobody needs its values, set the label \
             after: ALTER SEQUENCE {name} RESTART"
        ),
    };
    let message = format!("cannot make a generator of sequence {name}, which is in use");
    not_ready(message)
        .detail(format!(
            "Its last value is {value}. A generator keeps an instant there, its mark: that value \
         would be lost, and nextval() would fail."
        ))
        .hint(hint)
}
