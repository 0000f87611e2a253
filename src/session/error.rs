//! Servers, sequences and calls that lack what a generator needs.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

pub use super::label_error::*;
pub use super::layout_error::*;
pub use super::refusal::{ServerFacts, no_worker_yet, refused};
pub use crate::server::error::*;
use snowflake_core::id::UnixMillis;

pub fn no_worker_id(max: u64) -> Error {
    not_ready("this server has no worker ID")
        .detail("Two servers with the same worker ID issue the same IDs, so there is no default.")
        .hint(worker_hint(max))
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

fn worker_hint(max: u64) -> String {
    format!(
        "Set \"snowflake_id.worker_id\" in postgresql.conf to a number from 0 to {max} that no \
         other server has, and restart the server."
    )
}
