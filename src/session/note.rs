//! What the log says of generators.

use pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;

use crate::error::{Code, Error};
use crate::postgres::time::display;
use snowflake_core::id::{Millis, WorkerId};
use snowflake_core::label::duration::{exact, rounded};
use snowflake_core::protocol::host::{IssueError, Note};
use snowflake_core::protocol::plan::Author;

/// The history file of the server's timeline is missing, so that a mark of an earlier one cannot
/// be placed.
pub fn no_timeline_history(timeline: u32) {
    notice(format!(
        "the history of timeline {timeline} does not have that of a mark"
    ))
    .detail(format!(
        "File pg_wal/{timeline:08X}.history is missing, or is another server's. The generator \
         leaves one gap."
    ))
    .log("");
}

/// Writes a note of the protocol about the generator of this name to the server's log;
/// `refusal` makes the error that users are told.
#[cold]
pub fn log(name: &str, note: Note, refusal: impl FnOnce(IssueError) -> Error) {
    let (message, detail) = match note {
        Note::Stepped { by } if by < Millis::ZERO => {
            let by = exact(by.abs());
            (
                format!("clock moved backwards by {by}"),
                format!(
                    "Generators with on_rollback=continue issue IDs up to {by} ahead of the clock, and \
                     run at half speed until the clock has caught up."
                ),
            )
        }
        Note::Stepped { by } => (
            format!("clock moved forward by {}", exact(by)),
            "Generators follow the clock.".to_string(),
        ),
        Note::Refused { why, reserved } => {
            let lasts = match (why, reserved) {
                (IssueError::Reservation(_), Some(at)) => format!(
                    "Generator {name} issues IDs up to {}, and then none until this is solved.",
                    display(at)
                ),
                (IssueError::Reservation(_), None) => {
                    format!("Generator {name} issues no IDs until this is solved.")
                }
                // The message says everything.
                _ => String::new(),
            };
            return refusal(why).log(&lasts);
        }
        Note::IssuesAgain { since } => (
            format!("generator {name} issues IDs again"),
            format!("IDs were refused since {}.", display(since)),
        ),
        Note::Switched {
            rollback,
            clock,
            clocks,
            free,
        } => (
            match rollback {
                Some(by) => format!("clock moved backwards by {}", exact(by)),
                None => format!("generator {name} starts before its mark"),
            },
            format!(
                "Generator {name} continues with clock sequence {clock} of 0 to {}; {free} more are free.",
                clocks - 1
            ),
        ),
        Note::NextWorker { rollback, worker } => (
            match rollback {
                Some(by) => format!("clock moved backwards by {}", exact(by)),
                None => format!("generator {name} goes back to the time of the clock"),
            },
            format!(
                "Generator {name} continues with worker ID {}.",
                worker.map_or(0, WorkerId::get)
            ),
        ),
        Note::LeftGap {
            author,
            gap,
            start,
            lead,
        } => (
            match author {
                Author::Earlier { .. } => format!(
                    "generator {name} was promoted with this server and skips {} ms",
                    gap.get()
                ),
                _ => format!(
                    "generator {name} skips {} ms, since this server did not write its mark",
                    gap.get()
                ),
            },
            format!(
                "IDs start at {}, {} ahead of the clock.",
                display(start),
                exact(lead)
            ),
        ),
        Note::PutBack { restarted } => (
            format!(
                "somebody {} the sequence of generator {name}, which writes its mark back",
                if restarted { "has restarted" } else { "sets" }
            ),
            "The value of a generator's sequence is no counter. Exclude the sequence from what \
             copies or resets sequences. snowflake_generators.mark_put_back_at shows when it \
             happened last."
                .to_string(),
        ),
        Note::StartsAhead { lead } => {
            let lead = exact(lead);
            (
                format!("generator {name} starts {lead} ahead of the clock, as was accepted"),
                String::new(),
            )
        }
        Note::EndsSoon { left, end } => (
            format!(
                "generator {name} will have used up the time of its layout in {}",
                rounded(left)
            ),
            format!("The time ends at {}.", display(end)),
        ),
    };
    notice(message).detail(detail).log("");
}

fn notice(message: String) -> Error {
    ERRCODE_SUCCESSFUL_COMPLETION.error(message)
}
