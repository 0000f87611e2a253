//! What has no horizon, and where it cannot be asked for.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use crate::error::{Code, Error, invalid, not_ready, not_supported};
use crate::postgres::time::display;
use snowflake_core::id::layout::{Layout, OrderError};
use snowflake_core::id::{Millis, UnixMillis};
use snowflake_core::label::duration::{as_set, exact};
use snowflake_core::label::excerpt::excerpt;
use snowflake_core::label::generator::Descent;

pub fn old_snapshot() -> Error {
    ERRCODE_ACTIVE_SQL_TRANSACTION
        .error("snowflake_horizon() needs isolation level read committed")
        .detail(
            "At this transaction's level all statements read the rows of one moment, which may \
             lie before the horizon. Rows that commit between the two would be missed.",
        )
        .hint("Run the reader's transaction with: BEGIN ISOLATION LEVEL READ COMMITTED.")
}

pub fn in_recovery() -> Error {
    ERRCODE_READ_ONLY_SQL_TRANSACTION
        .error("snowflake_horizon() cannot be called during recovery")
        .detail("A standby does not know which transactions of the primary hold IDs.")
        .hint(
            "Call it on the primary, read pg_current_wal_insert_lsn() there after that, wait until \
             the standby has replayed this position, then read rows on the standby.",
        )
}

pub fn beside_tables() -> Error {
    not_supported("snowflake_horizon() cannot be called in a query that reads tables")
        .detail(
            "The query reads the rows of the moment at which it began, before the horizon. Rows \
             that commit between the two would be missed.",
        )
        .hint(
            "Run SELECT snowflake_horizon() as a statement of its own first, then give its result \
             to the query.",
        )
}

pub fn outside_of_query() -> Error {
    not_supported("snowflake_horizon() cannot be called outside of a query")
        .detail(
            "Parameters of EXECUTE and CALL, among others, may be computed after the moment whose \
             rows are read. Rows that commit between the two would be missed.",
        )
        .hint(
            "Run SELECT snowflake_horizon() as a statement of its own first, keep its result in a \
             variable of the client or of PL/pgSQL, and give that as the parameter.",
        )
}

pub fn descends(name: &str, descent: Descent) -> Error {
    let error = not_supported(format!("generator {name} has no horizon"));
    match descent {
        Descent::Rollback => error.detail(
            "After a clock rollback its IDs resume at an earlier time: a later ID can be less \
             than any that was read.",
        ),
        Descent::Layout(OrderError::Reversed) => {
            error.detail("The bits of its time are reversed: a later ID can be less.")
        }
        Descent::Layout(_) => {
            error.detail("The layout has fields above the time that vary: a later ID can be less.")
        }
    }
    .hint("Use a generator whose IDs ascend, such as the default one, for tables that are polled.")
}

pub fn past(name: &str, id: i64, announced: UnixMillis, layout: Layout) -> Error {
    let horizon = layout.range_of(layout.tick_from(announced).min(layout.last_tick()));
    let horizon = horizon.map_or_else(|_| String::new(), |(least, _)| format!(", {}", least.get()));
    invalid(format!(
        "ID {id} lies before the horizon of generator {name}"
    ))
    .detail(format!(
        "Readers may have read all rows up to the horizon{horizon}, which is of {}, and would \
             miss this row.",
        display(announced)
    ))
    .hint(
        "Take a new ID for the row, in the transaction that inserts it. For a row that exists, \
         use UPDATE before INSERT ... ON CONFLICT, and do not move it to another partition.",
    )
}

pub fn future(name: &str, id: i64, by: Millis, limit: Millis) -> Error {
    let (by, limit) = (exact(by), as_set(limit));
    ERRCODE_DATETIME_FIELD_OVERFLOW
        .error(format!(
            "ID {id} is {by} ahead of the clock of generator {name}"
        ))
        .detail(format!(
            "It may be {limit} ahead, by max_observe of the generator. Readers would not get the row before."
        ))
        .hint("Check the clocks of this server and of the one that issued the ID, or take a new ID.")
}

pub fn no_place() -> Error {
    not_ready("this process has no place in shared memory for what it holds back")
}

pub fn not_a_trigger() -> Error {
    ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED
        .error("snowflake_check_horizon() was not called as a trigger FOR EACH ROW of INSERT or UPDATE")
        .hint(
            "Make a trigger: CREATE TRIGGER ... BEFORE INSERT OR UPDATE OF id ON ... FOR EACH ROW \
             EXECUTE FUNCTION snowflake_check_horizon()",
        )
}

pub fn no_ordered_column(table: &str) -> Error {
    invalid(format!(
        "table {table} has no primary key of a single column"
    ))
    .hint("Name the column: EXECUTE FUNCTION snowflake_check_horizon('id')")
}

pub fn unfit_column(table: &str, column: &str) -> Error {
    invalid(format!(
        "table {table} has no column \"{column}\" of type bigint"
    ))
    .hint("Name the column of the IDs: EXECUTE FUNCTION snowflake_check_horizon('id')")
}

pub fn no_default_to_follow(table: &str, column: &str) -> Error {
    let quoted = quote_literal(column);
    invalid(format!(
        "the default of column \"{column}\" of table {table} names no generator"
    ))
    .hint(format!(
        "Name the generator: EXECUTE FUNCTION snowflake_check_horizon({quoted}, 'snowflake_default')"
    ))
}

pub fn owner_lacks_usage(generator: &str, owner: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!("permission denied for generator {generator}"))
        .detail(format!(
            "Rows of the table can hold back the generator's readers, and role {owner}, which owns \
             the table, may not use the generator."
        ))
        .hint(format!(
            "The generator's owner can run: GRANT USAGE ON SEQUENCE {generator} TO {owner}"
        ))
}

pub fn unknown_generator(name: &str) -> Error {
    ERRCODE_UNDEFINED_OBJECT
        .error(format!("generator \"{}\" does not exist", excerpt(name)))
        .hint(
            "Trigger snowflake_check_horizon() looks for a name without a schema in the schema of the \
             table, then in that of the extension. Give it with its schema.",
        )
}
