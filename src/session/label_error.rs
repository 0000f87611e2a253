//! Labels and layouts that a generator cannot have, or can no longer have.

use pgrx::PgSqlErrorCode::*;

use crate::error::{Code, Error, invalid, not_ready, not_supported, wrong_kind};
use crate::postgres::time::display;
use snowflake_core::id::UnixMillis;
use snowflake_core::id::layout::LayoutChange;
use snowflake_core::label::LabelError;
use snowflake_core::label::excerpt::{cut, excerpt};

pub fn bad_label(text: &str, error: &LabelError) -> Error {
    invalid(format!("invalid label: {}", error.problem))
        .detail(place(text, error.at))
        .hint(&error.allowed)
}

/// An argument that gives a key of the label a value that it cannot have.
pub fn bad_argument(argument: &str, value: &str, error: &LabelError) -> Error {
    invalid(format!("invalid argument {argument}: {}", error.problem))
        .detail(format!("Its value is \"{}\".", excerpt(value)))
        .hint(&error.allowed)
}

/// Arguments that make no label together, which would be `text`.
pub fn bad_arguments(text: &str, error: &LabelError) -> Error {
    invalid(format!("invalid arguments: {}", error.problem))
        .detail(format!(
            "The generator would have the label: {}",
            cut(text, 200)
        ))
        .hint(&error.allowed)
}

pub fn stored_label(name: &str, text: &str, error: &LabelError) -> Error {
    let problem = &error.problem;
    invalid(format!("generator {name} has an invalid label: {problem}"))
        .detail(place(text, error.at))
        .hint(
            "The label may be of a later version of snowflake_id, or was set without snowflake_id.",
        )
}

pub fn label_only_decodes(error: &LabelError) -> Error {
    let problem = &error.problem;
    invalid(format!("invalid label for a generator: {problem}")).hint(&error.allowed)
}

pub fn label_not_on_sequence() -> Error {
    wrong_kind("a label of provider snowflake_id can be set on sequences only")
        .hint("snowflake_create_generator() makes a sequence with its label.")
}

pub fn label_on_default() -> Error {
    not_supported("cannot set a label on the default generator")
        .detail("Its layout is fixed: indexes and partitions may rely on it.")
        .hint("Make a generator of your own with snowflake_create_generator().")
}

#[cfg(feature = "pg19")]
pub fn to_be_synchronized(sequence: &str, subscription: &str) -> Error {
    let message = format!("cannot make a generator of sequence {sequence}");
    not_ready(message)
        .detail(format!(
            "Subscription \"{subscription}\" is still to give it the value of the publisher, which \
             would replace the mark of the generator."
        ))
        .hint(
            "Wait until the subscription has synchronized its sequences, which it does while it \
             is enabled. If it cannot, drop the sequence from the publication, and refresh the \
             subscription.",
        )
}

pub fn label_removed(name: &str) -> Error {
    let message = format!("cannot remove the label of generator {name}: it has issued IDs");
    not_ready(message)
        .detail("With a different label afterwards, the generator could issue these IDs again.")
        .hint("Drop the sequence if it is not needed any more.")
}

pub fn label_not_committed(name: &str) -> Error {
    let message = format!("generator {name} was given a different layout in this transaction");
    not_ready(message)
        .detail(
            "If the transaction is rolled back, the earlier layout could repeat IDs that are \
             taken now.",
        )
        .hint("Commit first.")
}

pub fn layout_changed(name: &str, change: LayoutChange, before: &str, after: &str) -> Error {
    let message = format!("cannot change the layout of generator {name}: it has issued IDs");
    let detail = match change {
        LayoutChange::Tick => {
            "The tick would change: new IDs could repeat existing ones, or sort before them."
                .to_string()
        }
        LayoutChange::LaterEpoch => {
            "The epoch would be later: new IDs would repeat existing ones, or \
                               sort before them."
                .to_string()
        }
        LayoutChange::NarrowerTime => {
            "The time would have fewer bits: new IDs could repeat existing ones.".to_string()
        }
        LayoutChange::Fields => format!(
            "Layout \"{before}\" cannot become \"{after}\": new IDs could repeat existing ones, \
             or sort before them."
        ),
    };
    not_ready(message).detail(detail).hint(
        "Another policy, an earlier epoch, and more bits for a time that is the highest field are \
         allowed. For any other change, make a new generator.",
    )
}

pub fn layout_too_short(name: &str, reached: UnixMillis, last: UnixMillis) -> Error {
    let (reached, last) = (display(reached), display(last));
    let message = format!("cannot change the layout of generator {name}: it has issued IDs");
    not_ready(message)
        .detail(format!(
            "Its IDs have reached {reached}, and the time of the new layout ends at {last}."
        ))
        .hint("Give the time more bits, or a later epoch.")
}

pub fn layout_is_over(layout: &str, last: UnixMillis) -> Error {
    let last = display(last);
    ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED
        .error("the time of this layout is used up")
        .detail(format!("Layout \"{layout}\" lasted until {last}."))
        .hint(
            "The layout still decodes IDs. To issue IDs, give a later epoch or more bits of time; \
             tables that have IDs already then need a column that tells old IDs from new ones.",
        )
}

/// The place of an error in a label, in words.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let rest = text.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return "At the end of the label.".to_string();
    }
    let number = before.chars().count() + 1;
    format!("At character {number}: {}", excerpt(rest))
}
