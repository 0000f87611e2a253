//! Why a call gets no ID, or a mark is not raised: what clocks, marks and layouts
//! that do not go together read like.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use super::super::os_clock;
use super::super::time::display;
use super::Text;
use crate::snowflake::duration::{duration_text, measured_text};
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{Millis, UnixMillis};
use crate::snowflake::label::on_rollback_text;
use crate::snowflake::policy::Policy;
use crate::snowflake::reservation::{NoMark, Refusal};
use crate::snowflake::server::Refused;

pub(super) fn text(name: &str, generator: &Generator, why: Refused) -> Text {
    let layout = generator.layout;
    match why {
        Refused::Reservation(refusal) => refusal_text(name, generator, refusal),
        Refused::Behind { by, latest, since } => moved_back(by)
            .detail(format!(
                "Generator {name} has issued IDs at {}, and issues none before that is reached \
                 again ({}). They are refused since {}.",
                display(latest),
                refusing_rule(&generator.policy, by),
                display(since)
            ))
            .hint(clock_hint(AHEAD)),
        Refused::NoClockFree {
            by,
            clocks,
            free_from,
            since,
        } => no_clock_free(name, by, clocks, free_from, Some(since)),
        Refused::StandsStill { at, lasts } => Text::system("the clock of this server stands still")
            .detail(format!(
                "Generator {name} waits for the next tick, and for {} the clock has shown {}.",
                measured_text(lasts.get()),
                display(at)
            ))
            .hint("Check the clock of this server, and what virtualizes or fakes it."),
        Refused::TickUsedUp { wait } => Text::new(
            ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            format!("generator {name} has used up the sequence numbers of this tick"),
        )
        .detail(format!(
            "A tick of {} holds {}, and max_borrow is {}.",
            duration_text(layout.tick_millis()),
            1u64 << layout.within_bits(),
            duration_text(generator.max_borrow().get())
        ))
        .hint(format!(
            "Try again in {}, and for fewer if it was a batch. With on_exhausted=wait in its \
             label calls would wait; max_borrow lets bursts run ahead of the clock; more bits of \
             sequence hold more.",
            measured_text(wait.get())
        )),
    }
}

fn refusal_text(name: &str, generator: &Generator, refusal: Refusal) -> Text {
    match refusal {
        Refusal::ClockJumped { by, limit } => Text::system(format!(
            "clock jumped forward by {}",
            measured_text(by.get())
        ))
        .detail(format!(
            "The wall clock is that far ahead of the time since boot; \
             \"snowflake_id.max_clock_jump\" is {}. IDs of a wrong time could not be taken back.",
            duration_text(limit.get())
        ))
        .hint(clock_hint(".")),
        Refusal::ClockRolledBack { by, limit } => moved_back(by)
            .detail(format!(
                "Generator {name} would stay that far ahead of the clock; its limit is {}.",
                measured_text(limit.get())
            ))
            .hint(clock_hint(".")),
        Refusal::MarkAhead { by, limit, start } => Text::system(format!(
            "generator {name} would start {} ahead of the clock",
            measured_text(by.get())
        ))
        .detail(format!(
            "IDs may have been issued up to {}, so it cannot start before; its limit is {} ahead \
             of the clock.",
            display(start),
            measured_text(limit.get())
        ))
        .hint(clock_hint(
            ": IDs then go on ahead of the clock. If no such IDs exist, set the mark back: \
             compare max(id) of the tables, then setval() the sequence to an instant after it, in \
             Unix milliseconds.",
        )),
        Refusal::AdvanceTooFar { by, limit } => Text::new(
            ERRCODE_DATETIME_FIELD_OVERFLOW,
            format!(
                "cannot advance a generator to {} ahead of the clock",
                measured_text(by.get())
            ),
        )
        .hint(format!(
            "It can be advanced by up to {}.",
            measured_text(limit.get())
        )),
        Refusal::BeforeEpoch { epoch } => Text::system(format!(
            "the clock is before the epoch of generator {name}"
        ))
        .detail(format!("Its IDs count from {}.", display(epoch)))
        .hint("Check the time synchronization of this server, and the epoch of the generator."),
        Refusal::TimeUsedUp { last } => Text::new(
            ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
            format!("generator {name} has used up the time of its layout"),
        )
        .detail(format!("Its time field ends at {}.", display(last)))
        .hint(
            "If the clock is right, new rows need a generator with a later epoch and a column \
             that tells which generator made an ID.",
        ),
        Refusal::NoClockFree {
            by,
            clocks,
            free_from,
        } => no_clock_free(name, by, clocks, free_from, None),
        Refusal::NoMark(no_mark) => no_mark_text(name, generator, no_mark),
    }
}

fn no_mark_text(name: &str, generator: &Generator, no_mark: NoMark) -> Text {
    let now = os_clock::wall().millis();
    let (value, what, mark) = match no_mark {
        NoMark::Id { value, ends } => (value, "an ID", ends.max(now)),
        NoMark::Number { value } => (value, "a count", now),
    };
    let layout = generator.layout;
    Text::not_ready(format!(
        "sequence {name} holds {value}, which is {what} and no mark"
    ))
    .detail(format!(
        "The value of a generator's sequence is its mark: an instant in Unix milliseconds, from \
         which on it has issued no ID. setval() has taken that away, as scripts do that set \
         sequences to max(id). Its IDs are of {} to {}.",
        display(layout.epoch()),
        display(layout.instant_of(layout.last_tick()))
    ))
    .hint(format!(
        "If none of its IDs is later than {}, its owner can run: SELECT setval({}, {})",
        display(mark),
        quote_literal(name),
        mark.get()
    ))
}

fn no_clock_free(
    name: &str,
    by: Millis,
    clocks: u64,
    free_from: UnixMillis,
    since: Option<UnixMillis>,
) -> Text {
    let since = since.map_or_else(String::new, |since| {
        format!(" IDs are refused since {}.", display(since))
    });
    let by = measured_text(by.get());
    Text::system(format!(
        "clock moved backwards by {by}, and generator {name} has no clock left for that time"
    ))
    .detail(format!(
        "Each of its {clocks} clocks may have issued IDs there. One is free from {} on.{since}",
        display(free_from)
    ))
    .hint(clock_hint(AHEAD))
}

fn moved_back(by: Millis) -> Text {
    Text::system(format!(
        "clock moved backwards by {}",
        measured_text(by.get())
    ))
}

const AHEAD: &str = ": the generator then goes on ahead of the clock, as it always would with \
                     on_rollback=continue in its label.";

fn clock_hint(then: &str) -> String {
    format!(
        "Check the time synchronization of this server. If its clock is right now, a superuser can \
         say so with snowflake_accept_clock() in this database{then}"
    )
}

/// What in a label lets a generator refuse IDs after a rollback.
fn refusing_rule(policy: &Policy, by: Millis) -> String {
    if by.get() > policy.max_rollback_millis {
        return format!(
            "max_rollback is {}",
            duration_text(policy.max_rollback_millis)
        );
    }
    let rule = format!("on_rollback={}", on_rollback_text(policy.on_rollback));
    if policy.on_rollback.waits() {
        format!(
            "{rule}, max_wait is {}",
            duration_text(policy.max_wait_millis)
        )
    } else {
        rule
    }
}
