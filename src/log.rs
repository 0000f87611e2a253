//! Messages about generators in the server's log.

use pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;

use super::error::Code;
use super::lease_wait;
use super::time::display;
use snowflake_core::duration::{exact, rounded};
use snowflake_core::generator::Generator;
use snowflake_core::host::{Note, Refused};
use snowflake_core::id::{Millis, WorkerId};

/// Writes a note of the protocol about the generator of this name.
#[cold]
pub fn note(name: &str, generator: &Generator, note: Note) {
    let (message, detail) = match note {
        Note::Stepped { by } if by < Millis::ZERO => {
            let by = exact(by.abs());
            (
                format!("clock moved backwards by {by}"),
                format!(
                    "Generators with on_rollback=continue go on, up to {by} ahead of the clock, and \
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
                (Refused::Reservation(_), Some(at)) => format!(
                    "Generator {name} issues IDs up to {}, and then none until this is solved.",
                    display(at)
                ),
                (Refused::Reservation(_), None) => {
                    format!("Generator {name} issues no IDs until this is solved.")
                }
                // The message says everything.
                _ => String::new(),
            };
            return lease_wait::refused(name, generator, why).log(&lasts);
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
                "Generator {name} goes on with clock number {clock} of 0 to {}; {free} more are free.",
                clocks - 1
            ),
        ),
        Note::NextWorker { rollback, worker } => (
            match rollback {
                Some(by) => format!("clock moved backwards by {}", exact(by)),
                None => format!("generator {name} goes back to the time of the clock"),
            },
            format!(
                "Generator {name} goes on with worker ID {}.",
                worker.map_or(0, WorkerId::get)
            ),
        ),
        Note::LeftGap { gap, start, lead } => (
            format!(
                "generator {name} was promoted with this server and skips {} ms",
                gap.get()
            ),
            format!(
                "IDs start at {}, {} ahead of the clock.",
                display(start),
                exact(lead)
            ),
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
    ERRCODE_SUCCESSFUL_COMPLETION
        .error(message)
        .detail(detail)
        .log("");
}
