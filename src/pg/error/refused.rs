//! Why a call gets no ID, or a mark is not raised: what clocks, marks and layouts
//! that do not go together read like.

use pgrx::spi::quote_literal;

use super::super::os_clock;
use super::super::time::display;
use super::{Error, errors};
use crate::snowflake::duration::{duration_text, measured_text};
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{Millis, UnixMillis};
use crate::snowflake::label::on_rollback_text;
use crate::snowflake::policy::Policy;
use crate::snowflake::reservation::{NoMark, Refusal};
use crate::snowflake::server::Refused;

/// The generator of this name does not do what was asked of it.
pub fn refused(name: &str, generator: &Generator, why: Refused) -> Error {
    match why {
        Refused::Reservation(refusal) => not_reserved(name, generator, refusal),
        Refused::Behind { by, latest, since } => {
            let rule = refusing_rule(&generator.policy, by);
            behind(name, by, latest, &rule, since)
        }
        Refused::NoClockFree {
            by,
            clocks,
            free_from,
            since,
        } => {
            let since = format!(" IDs are refused since {}.", display(since));
            no_clock_free(name, by, clocks, free_from, &since)
        }
        Refused::StandsStill { at, lasts } => stands_still(name, at, lasts),
        Refused::TickUsedUp { wait } => tick_used_up(name, generator, wait),
    }
}

fn not_reserved(name: &str, generator: &Generator, refusal: Refusal) -> Error {
    match refusal {
        Refusal::ClockJumped { by, limit } => clock_jumped(by, limit),
        Refusal::ClockRolledBack { by, limit } => clock_rolled_back(name, by, limit),
        Refusal::MarkAhead { by, limit, start } => mark_ahead(name, by, limit, start),
        Refusal::AdvanceTooFar { by, limit } => advance_too_far(by, limit),
        Refusal::BeforeEpoch { epoch } => before_epoch(name, epoch),
        Refusal::TimeUsedUp { last } => time_used_up(name, last),
        Refusal::NoClockFree {
            by,
            clocks,
            free_from,
        } => no_clock_free(name, by, clocks, free_from, ""),
        Refusal::NoMark(no_mark) => {
            let now = os_clock::wall().millis();
            let (value, what, mark) = match no_mark {
                NoMark::Id { value, ends } => (value, "an ID", ends.max(now)),
                NoMark::Number { value } => (value, "a count", now),
            };
            not_a_mark(name, generator, value, what, mark)
        }
    }
}

errors! {
    behind(name: &str, by: Millis, latest: UnixMillis, rule: &str, since: UnixMillis)
        [by = measured(by), latest = display(latest), since = display(since)]
        BAD_CLOCK "clock moved backwards by {by}"
        detail "Generator {name} has issued IDs at {latest}, and issues none before that is \
                reached again ({rule}). They are refused since {since}."
        hint "{CHECK}{AHEAD}";

    // `since` is a sentence of its own, or nothing.
    no_clock_free(name: &str, by: Millis, clocks: u64, free_from: UnixMillis, since: &str)
        [by = measured(by), free_from = display(free_from)]
        BAD_CLOCK "clock moved backwards by {by}, and generator {name} has no clock left for that \
                   time"
        detail "Each of its {clocks} clocks may have issued IDs there. One is free from \
                {free_from} on.{since}"
        hint "{CHECK}{AHEAD}";

    stands_still(name: &str, at: UnixMillis, lasts: Millis)
        [at = display(at), lasts = measured(lasts)]
        BAD_CLOCK "the clock of this server stands still"
        detail "Generator {name} waits for the next tick, and for {lasts} the clock has shown {at}."
        hint "Check the clock of this server, and what virtualizes or fakes it.";

    tick_used_up(name: &str, generator: &Generator, wait: Millis)
        [tick = duration_text(generator.layout.tick_millis()),
         count = 1u64 << generator.layout.within_bits(),
         max_borrow = duration_text(generator.max_borrow().get()),
         wait = measured(wait)]
        ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
        "generator {name} has used up the sequence numbers of this tick"
        detail "A tick of {tick} holds {count}, and max_borrow is {max_borrow}."
        hint "Try again in {wait}, and for fewer if it was a batch. With on_exhausted=wait in its \
              label calls would wait; max_borrow lets bursts run ahead of the clock; more bits of \
              sequence hold more.";

    clock_jumped(by: Millis, limit: Millis) [by = measured(by), limit = duration_text(limit.get())]
        BAD_CLOCK "clock jumped forward by {by}"
        detail "The wall clock is that far ahead of the time since boot; \
                \"snowflake_id.max_clock_jump\" is {limit}. IDs of a wrong time could not be taken \
                back."
        hint "{CHECK}.";

    clock_rolled_back(name: &str, by: Millis, limit: Millis)
        [by = measured(by), limit = measured(limit)]
        BAD_CLOCK "clock moved backwards by {by}"
        detail "Generator {name} would stay that far ahead of the clock; its limit is {limit}."
        hint "{CHECK}.";

    mark_ahead(name: &str, by: Millis, limit: Millis, start: UnixMillis)
        [by = measured(by), limit = measured(limit), start = display(start)]
        BAD_CLOCK "generator {name} would start {by} ahead of the clock"
        detail "IDs may have been issued up to {start}, so it cannot start before; its limit is \
                {limit} ahead of the clock."
        hint "{CHECK}: IDs then go on ahead of the clock. If no such IDs exist, set the mark back: \
              compare max(id) of the tables, then setval() the sequence to an instant after it, \
              in Unix milliseconds.";

    advance_too_far(by: Millis, limit: Millis) [by = measured(by), limit = measured(limit)]
        ERRCODE_DATETIME_FIELD_OVERFLOW "cannot advance a generator to {by} ahead of the clock"
        hint "It can be advanced by up to {limit}.";

    before_epoch(name: &str, epoch: UnixMillis) [epoch = display(epoch)]
        BAD_CLOCK "the clock is before the epoch of generator {name}"
        detail "Its IDs count from {epoch}."
        hint "Check the time synchronization of this server, and the epoch of the generator.";

    time_used_up(name: &str, last: UnixMillis) [last = display(last)]
        ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED
        "generator {name} has used up the time of its layout"
        detail "Its time field ends at {last}."
        hint "If the clock is right, new rows need a generator with a later epoch and a column \
              that tells which generator made an ID.";

    not_a_mark(name: &str, generator: &Generator, value: i64, what: &str, mark: UnixMillis)
        [first = display(generator.layout.epoch()),
         last = display(generator.layout.instant_of(generator.layout.last_tick())),
         at = display(mark), mark = mark.get(), quoted = quote_literal(name)]
        NOT_READY "sequence {name} holds {value}, which is {what} and no mark"
        detail "The value of a generator's sequence is its mark: an instant in Unix milliseconds, \
                from which on it has issued no ID. setval() has taken that away, as scripts do \
                that set sequences to max(id). Its IDs are of {first} to {last}."
        hint "If none of its IDs is later than {at}, its owner can run: \
              SELECT setval({quoted}, {mark})";
}

const CHECK: &str = "Check the time synchronization of this server. If its clock is right now, a \
                     superuser can say so with snowflake_accept_clock() in this database";

const AHEAD: &str = ": the generator then goes on ahead of the clock, as it always would with \
                     on_rollback=continue in its label.";

fn measured(millis: Millis) -> String {
    measured_text(millis.get())
}

/// What in a label lets a generator refuse IDs after a rollback.
fn refusing_rule(policy: &Policy, by: Millis) -> String {
    let max_rollback = policy.max_rollback_millis;
    if by.get() > max_rollback {
        return format!("max_rollback is {}", duration_text(max_rollback));
    }
    let rule = format!("on_rollback={}", on_rollback_text(policy.on_rollback));
    let max_wait = duration_text(policy.max_wait_millis);
    match policy.on_rollback.waits() {
        true => format!("{rule}, max_wait is {max_wait}"),
        false => rule,
    }
}
