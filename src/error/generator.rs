//! Servers, sequences and calls that lack what a generator needs.

use pgrx::PgSqlErrorCode::*;
use pgrx::pg_sys;
use pgrx::spi::quote_literal;

use super::{Code, Error, invalid, not_ready, not_supported, out_of_range, wrong_kind};
use snowflake_core::id::UnixMillis;
use snowflake_core::label::generator::Generator;

pub fn not_preloaded() -> Error {
    not_ready("snowflake_id must be loaded at server start to issue IDs").hint(
        "Add snowflake_id to what \"shared_preload_libraries\" lists in postgresql.conf, as in: \
         shared_preload_libraries = 'snowflake_id', and restart the server.",
    )
}

/// The SQL function is that of a different version than the library.
pub fn other_columns(declared: i32, given: usize) -> Error {
    not_ready("the library of snowflake_id is of a different version than this function")
        .detail(format!(
            "The function is declared with {declared} columns, and the library gives {given}."
        ))
        .hint(
            "If a later version was installed, restart the server. If an earlier one was, install \
             the later one again.",
        )
}

pub fn no_worker_id(max: u64) -> Error {
    not_ready("this server has no worker ID")
        .detail("Two servers with the same worker ID issue the same IDs, so there is no default.")
        .hint(worker_hint(max))
}

/// About the whole server, before anybody asks it for IDs.
pub fn started_without_worker_id() -> Error {
    not_ready("snowflake_id: this server has no worker ID and will issue no IDs").hint(
        "Set \"snowflake_id.worker_id\" in postgresql.conf to a number that no other server has, \
         and restart the server. A server that only decodes IDs needs no worker ID.",
    )
}

/// `is_leased` says that the worker ID is not in the settings.
pub fn worker_id_range(
    worker: u32,
    max: u64,
    is_leased: bool,
    generator: &str,
    layout: &str,
) -> Error {
    let message = format!("worker ID {worker} is out of range for generator {generator}");
    let hint = if is_leased {
        format!(
            "Set \"snowflake_id.pool\" to a pool whose worker IDs are from 0 to {max}, or make the \
             generator with more worker bits."
        )
    } else {
        worker_hint(max) + " Or make the generator with more worker bits."
    };
    invalid(message)
        .detail(format!(
            "Layout \"{layout}\" holds worker IDs from 0 to {max}."
        ))
        .hint(hint)
}

pub fn no_such_relation(oid: pg_sys::Oid) -> Error {
    ERRCODE_UNDEFINED_TABLE.error(format!("relation with OID {oid} does not exist"))
}

pub fn no_default_generator() -> Error {
    ERRCODE_UNDEFINED_OBJECT
        .error("the default generator does not exist")
        .detail("Extension snowflake_id has no sequence \"snowflake_default\" in its schema.")
        .hint("If the sequence was renamed or moved, undo that.")
}

pub fn not_a_generator(name: &str) -> Error {
    wrong_kind(format!("{name} is not a generator")).hint(
        "View snowflake_generators lists the generators of this database; \
         snowflake_create_generator() makes one.",
    )
}

pub fn unlabelled(name: &str, has_citus: bool) -> Error {
    let hint = if has_citus {
        format!(
            "Citus makes sequences on its nodes without their labels. On the coordinator, run: \
             SELECT * FROM snowflake_distribute_generator({})",
            quote_literal(name)
        )
    } else {
        format!(
            "If it is to be one, do not drop it, since its mark may be there. Its owner can give it the \
             label that it had, or that of the generator of which it is a copy (pg_seclabels), as in: \
             SECURITY LABEL FOR snowflake_id ON SEQUENCE {name} IS 'preset=default'"
        )
    };
    wrong_kind(format!("{name} is not a generator: it has no label")).hint(hint)
}

/// `fit` has the options of ALTER SEQUENCE that make the sequence fit.
pub fn unfit_sequence(name: &str, reason: &str, fit: &str) -> Error {
    cannot_hold_mark(name)
        .detail(reason)
        .hint(format!("Its owner can run: ALTER SEQUENCE {name} {fit}"))
}

pub fn unlogged_sequence(name: &str) -> Error {
    cannot_hold_mark(name)
        .detail("It is unlogged: its mark would not survive a crash.")
        .hint(format!(
            "Its owner can run: ALTER SEQUENCE {name} SET LOGGED"
        ))
}

pub fn stays_logged(name: &str) -> Error {
    not_supported(format!("generator {name} cannot be unlogged"))
        .detail(
            "A crash resets an unlogged sequence, and a standby has none of its marks: its IDs \
             would be issued twice.",
        )
        .hint("If the table is to be unlogged, take the sequence from it first: ALTER SEQUENCE ... OWNED BY NONE.")
}

pub fn temporary_sequence(name: &str) -> Error {
    cannot_hold_mark(name)
        .detail("It is temporary: its mark would not survive the session.")
        .hint("Make a generator in a schema that is not temporary, with snowflake_create_generator().")
}

fn cannot_hold_mark(name: &str) -> Error {
    not_ready(format!(
        "sequence {name} cannot hold the mark of a generator"
    ))
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

pub fn mark_does_not_fit(name: &str, mark: UnixMillis) -> Error {
    let mark = mark.get();
    not_ready(format!("cannot restart generator {name} with these bounds"))
        .detail(format!(
            "Its mark, {mark} in Unix milliseconds, has to be kept and does not lie between them."
        ))
        .hint("Drop the sequence if it is not needed as a generator any more.")
}

pub fn impossible_mark(name: &str, value: i64) -> Error {
    ERRCODE_DATA_CORRUPTED.error(format!(
        "sequence {name} holds {value}, which is no mark of a generator"
    ))
}

pub fn damaged_sequence(name: &str) -> Error {
    ERRCODE_DATA_CORRUPTED.error(format!("sequence {name} has a damaged page"))
}

pub fn no_privilege(privilege: &str, name: &str, owner: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!("permission denied for generator {name}"))
        .hint(format!(
            "Its owner, role {owner}, can run: GRANT {privilege} ON SEQUENCE {name} TO ..."
        ))
}

pub fn locked(name: &str) -> Error {
    ERRCODE_LOCK_NOT_AVAILABLE
        .error(format!("generator {name} is locked"))
        .detail(
            "Another transaction changes the generator, or waits to change it. Calls wait until \
             that transaction ends, and what the sequence holds is not shown.",
        )
        .hint("View pg_locks shows which transaction that is.")
}

pub fn slots_exhausted(max: usize) -> Error {
    ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
        .error("there is no shared memory for another generator")
        .detail(format!(
            "Up to {max} generators have a place, and generators that are in use or ahead of the \
             clock keep their places."
        ))
        .hint("Drop generators that are not needed, and restart the server.")
}

pub fn batch_count(count: i32, max: i32) -> Error {
    out_of_range(format!("count {count} is out of range"))
        .hint(format!("A batch has 1 to {max} IDs."))
}

pub fn block_count(count: i32, max: u64, name: &str) -> Error {
    out_of_range(format!("count {count} is out of range")).hint(format!(
        "A block of generator {name} has 1 to {max} IDs, as many as every tick holds."
    ))
}

pub fn no_blocks(name: &str, generator: &Generator) -> Error {
    let why = if generator.is_random() {
        "Its label says sequence_start=random: the numbers of a tick have no order."
    } else {
        "The lowest field of its layout is not the sequence: the next number is not the next \
         integer."
    };
    invalid(format!("generator {name} has no consecutive IDs"))
        .detail(why)
        .hint("Call snowflake_nextval_batch(): it returns many IDs, which need not be consecutive.")
}

pub fn no_currval(name: &str) -> Error {
    not_ready(format!(
        "snowflake_currval of generator {name} is not yet defined in this session"
    ))
    .hint("Call snowflake_nextval() first.")
}

pub fn spi(status: i32) -> Error {
    ERRCODE_INTERNAL_ERROR.error(format!("could not run a statement: SPI status {status}"))
}

pub fn untranslatable() -> Error {
    ERRCODE_UNTRANSLATABLE_CHARACTER.error(
        "could not run a statement: a name has characters that the database's encoding lacks",
    )
}

pub fn no_query() -> Error {
    invalid("only a query that returns a row can be read")
}

pub fn no_statement() -> Error {
    invalid("only a statement that can run within a transaction can run as the owner of a table")
}

pub fn no_pairs() -> Error {
    invalid("only a query that returns rows of a bigint and a timestamptz can be read")
}

pub fn not_the_owner(relation: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE.error(format!("must be owner of relation {relation}"))
}

fn worker_hint(max: u64) -> String {
    format!(
        "Set \"snowflake_id.worker_id\" in postgresql.conf to a number from 0 to {max} that no \
         other server has, and restart the server."
    )
}
