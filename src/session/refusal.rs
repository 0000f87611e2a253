//! Why a call gets no ID, or a mark is not raised: errors about clocks, marks and
//! layouts that do not go together.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use crate::error::{Code, Error, bad_clock, not_ready, not_supported};
use crate::postgres::time::display;
use crate::session::layout_error::because_of;
use snowflake_core::id::{Millis, UnixMillis};
use snowflake_core::label::duration::{as_set, exact};
use snowflake_core::label::generator::{Descent, Generator};
use snowflake_core::label::on_rollback_text;
use snowflake_core::label::policy::Policy;
use snowflake_core::protocol::host::IssueError;
use snowflake_core::protocol::plan::{MarkError, ReserveError};

/// Whether a generator is refused since the server has no worker ID, though its IDs carry none.
pub fn no_worker_yet(why: IssueError) -> bool {
    matches!(
        why,
        IssueError::Reservation(ReserveError::PastBound { bound, .. }) if bound == UnixMillis::new(i64::MIN)
    )
}

/// What a message about a refusal tells of the server.
pub struct ServerFacts {
    /// What the wall clock shows.
    pub now: UnixMillis,
    /// What is in the way of a later bound of the server's worker ID: a sentence, or several.
    pub obstacle: Option<String>,
}

/// The generator of this name refuses what was asked. A server without a worker ID
/// ([`no_worker_yet`]) has an error of its own.
pub fn refused(name: &str, generator: &Generator, why: IssueError, server: &ServerFacts) -> Error {
    match why {
        IssueError::Reservation(refusal) => not_reserved(name, generator, refusal, server),
        IssueError::Behind {
            by,
            latest,
            since,
            no_clock,
        } => {
            let since = display(since);
            if let Some((free_from, clocks)) = no_clock {
                let since = format!(" IDs are refused since {since}.");
                return no_clock_free(name, by, clocks, free_from, &since);
            }
            let rule = refusing_rule(&generator.policy, by);
            let (by, latest) = (exact(by), display(latest));
            bad_clock(format!("clock moved backwards by {by}"))
                .detail(format!(
                    "Generator {name} has issued IDs at {latest}, and issues none before the clock \
                     is there again ({rule}). IDs are refused since {since}."
                ))
                .hint(format!("{CHECK}{AHEAD}"))
        }
        IssueError::StandsStill { at, lasts } => {
            let (at, lasts) = (display(at), exact(lasts));
            bad_clock("the clock of this server stands still")
                .detail(format!(
                    "Generator {name} waits for the next tick, and for {lasts} the clock has \
                     shown {at}."
                ))
                .hint("Check the clock of this server, and what virtualizes or fakes it.")
        }
        IssueError::TickUsedUp { wait } => {
            let tick = as_set(generator.layout.tick());
            let count = 1u64 << generator.layout.within_bits();
            let max_borrow = as_set(generator.max_borrow());
            let wait = exact(wait);
            ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
                .error(format!(
                    "generator {name} has used up the sequence numbers of this tick"
                ))
                .detail(format!(
                    "A tick of {tick} holds {count}, and max_borrow is {max_borrow}."
                ))
                .hint(format!(
                    "Try again in {wait}; if the call was for a batch, ask for fewer IDs. With \
                     on_exhausted=wait, calls would wait; max_borrow lets bursts run \
                     ahead of the clock; more bits of sequence hold more IDs."
                ))
        }
        IssueError::Interleaved { count } => ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
            .error(format!(
                "generator {name} could not issue {count} consecutive IDs"
            ))
            .detail("Other sessions took IDs in between, again and again.")
            .hint("Try again, or ask for fewer IDs."),
        IssueError::TooFarAhead { by, limit } => too_far_ahead(name, generator, by, limit),
        IssueError::Descends(descent) => descends(name, generator, descent),
    }
}

fn too_far_ahead(name: &str, generator: &Generator, by: Millis, limit: Millis) -> Error {
    let of_label = generator.within(generator.policy.max_observe).max_borrow();
    let (rule, way) = if limit == generator.max_borrow() {
        (
            "max_borrow of the generator",
            "A generator whose label has a longer max_borrow accepts such an ID.",
        )
    } else if limit == of_label {
        (
            "max_observe of the generator",
            "A generator whose label has a longer max_observe accepts such an ID.",
        )
    } else {
        (
            "max_ahead of the pool from which this server leases its worker ID",
            "A pool with a longer max_ahead lets the generator accept such an ID.",
        )
    };
    let (by, limit) = (exact(by), as_set(limit));
    ERRCODE_DATETIME_FIELD_OVERFLOW
        .error(format!(
            "cannot observe an ID that is {by} ahead of the clock of generator {name}"
        ))
        .detail(format!("It may be {limit} ahead, by {rule}."))
        .hint(format!(
            "Check the time synchronization of this server and of the one that issued the ID. {way}"
        ))
}

fn descends(name: &str, generator: &Generator, descent: Descent) -> Error {
    let error = not_supported(format!("generator {name} cannot observe IDs"));
    match descent {
        Descent::Rollback => {
            let rule = on_rollback_text(generator.policy.on_rollback);
            error
                .detail(format!(
                    "It has on_rollback={rule}: when the clock was set back, its IDs \
                     resume at an earlier time, and sort before those that it has observed."
                ))
                .hint("Another on_rollback, such as continue, keeps its IDs ascending.")
        }
        Descent::Layout(disorder) => because_of(error, disorder),
    }
}

fn not_reserved(
    name: &str,
    generator: &Generator,
    refusal: ReserveError,
    server: &ServerFacts,
) -> Error {
    match refusal {
        ReserveError::ClockJumped { by, limit } => {
            let (by, limit) = (exact(by), as_set(limit));
            bad_clock(format!("clock jumped forward by {by}"))
                .detail(format!(
                    "The wall clock is that far ahead of the time since boot; \
                     \"snowflake_id.max_clock_jump\" is {limit}. IDs of a wrong time could not be \
                     taken back."
                ))
                .hint(format!("{CHECK}."))
        }
        ReserveError::ClockRolledBack { by, limit } => {
            let (by, limit) = (exact(by), exact(limit));
            bad_clock(format!("clock moved backwards by {by}"))
                .detail(format!(
                    "Generator {name} would stay that far ahead of the clock; its limit is \
                     {limit}."
                ))
                .hint(format!("{CHECK}."))
        }
        ReserveError::MarkAhead { by, limit, start } => {
            let (by, limit, start) = (exact(by), exact(limit), display(start));
            bad_clock(format!(
                "generator {name} would start {by} ahead of the clock"
            ))
            .detail(format!(
                "IDs may have been issued up to {start}, so the generator cannot start before; its \
                 limit is {limit} ahead of the clock."
            ))
            .hint(format!(
                "{CHECK}: IDs then resume ahead of the clock. If no such IDs exist, set the mark \
                 back: compare max(id) of the tables, then setval() the sequence to an instant \
                 after it, in Unix milliseconds."
            ))
        }
        ReserveError::Raised { by, limit, mark } => {
            let quoted = quote_literal(name);
            let back = server.now.get();
            let (by, limit, mark) = (exact(by), as_set(limit), display(mark));
            not_ready(format!(
                "the sequence of generator {name} was set to an instant {by} ahead of the clock"
            ))
            .detail(format!(
                "Its mark is {mark}, and not this server wrote it, but a person or a tool that sets \
                 sequences. \"snowflake_id.max_clock_jump\" is {limit}."
            ))
            .hint(format!(
                "If none of its IDs is later than now, its owner can run: SELECT setval({quoted}, \
                 {back}). If there are such IDs, a superuser can call snowflake_accept_clock() in \
                 this database: the generator then starts after them."
            ))
        }
        ReserveError::MarkPastPool { by, limit, mark } => {
            let quoted = quote_literal(name);
            let back = server.now.get();
            let (by, limit, mark) = (exact(by), exact(limit), display(mark));
            bad_clock(format!(
                "generator {name} would start {by} ahead of the clock"
            ))
            .detail(format!(
                "Its mark is {mark}, which this server has not written since it started. The \
                 worker ID of this server is from a registry, and such a server starts no \
                 generator at such a mark more than {limit} ahead of the clock, since its other \
                 generators would follow."
            ))
            .hint(format!(
                "Check the time synchronization of this server. IDs resume by themselves when the \
                 clock has come near the mark. If none of the generator's IDs is later than now, \
                 its owner can run: SELECT setval({quoted}, {back}). If there are such IDs and \
                 they cannot wait, a superuser can call snowflake_accept_clock() in this database: \
                 the generator then resumes after them, and at the next restart the others do, too."
            ))
        }
        ReserveError::AdvanceTooFar { by, limit } => {
            let (by, limit) = (exact(by), exact(limit));
            ERRCODE_DATETIME_FIELD_OVERFLOW
                .error(format!(
                    "cannot advance a generator to {by} ahead of the clock"
                ))
                .hint(format!("At most {limit} ahead of the clock is allowed."))
        }
        ReserveError::AdvancePastPool { by, limit } => {
            let (by, limit) = (exact(by), exact(limit));
            ERRCODE_DATETIME_FIELD_OVERFLOW
                .error(format!(
                    "cannot advance a generator to {by} ahead of the clock"
                ))
                .detail(format!(
                    "The worker ID of this server is from a registry, whose pool lets a generator \
                     lead the clock by {limit}."
                ))
                .hint(
                    "Use a pool with a longer max_ahead, or wait until the clock is that near to \
                     the instant.",
                )
        }
        ReserveError::PastBound { needed, bound, .. } => {
            let (needed, bound) = (display(needed), display(bound));
            let why = server.obstacle.as_ref();
            let why = why.map_or_else(String::new, |why| format!(" {why}"));
            not_ready(format!(
                "generator {name} issues no IDs, because the registry has not renewed the lease \
                 of this server"
            ))
            .detail(format!(
                "The lease is for IDs of times before {bound}, and the next ID would be of \
                 {needed}.{why}"
            ))
            .hint("snowflake_status() says what helps. IDs resume by themselves.")
        }
        ReserveError::BeforeEpoch { epoch } => {
            let epoch = display(epoch);
            bad_clock(format!("the clock is before the epoch of generator {name}"))
                .detail(format!("Its IDs count from {epoch}."))
                .hint(
                    "Check the time synchronization of this server, and the epoch of the \
                     generator.",
                )
        }
        ReserveError::TimeUsedUp { last } => {
            let last = display(last);
            ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED
                .error(format!(
                    "generator {name} has used up the time of its layout"
                ))
                .detail(format!("Its time field ends at {last}."))
                .hint(
                    "If the clock is right, give the time more bits, if the fields have fewer than \
                     63. Otherwise new rows need a generator with a later epoch and a column that \
                     tells which generator made an ID.",
                )
        }
        ReserveError::NoClockFree {
            by,
            clocks,
            free_from,
        } => no_clock_free(name, by, clocks, free_from, ""),
        // A caller that waits gets another error.
        ReserveError::WorkerUsed { by } => {
            let by = exact(by);
            bad_clock(format!("clock moved backwards by {by}")).hint(format!("{CHECK}{AHEAD}"))
        }
        ReserveError::NoMark(no_mark) => {
            let now = server.now;
            match no_mark {
                MarkError::Id { value, ends } => {
                    not_a_mark(name, generator, value, "an ID", ends.max(now))
                }
                MarkError::Number { value } => not_a_mark(name, generator, value, "a count", now),
                MarkError::Restart => {
                    let quoted = quote_literal(name);
                    not_ready(format!("generator {name} has lost its mark"))
                        .detail(
                            "Its sequence was restarted while the server ran without library \
                             snowflake_id, or a subscription has truncated its table. Nobody knows \
                             how far its IDs have come.",
                        )
                        .hint(format!(
                            "Look for the latest of its IDs, max(id) of the tables that have \
                             them. Then its owner can run, with that ID: SELECT \
                             snowflake_advance({quoted}, ID). If there are none: SELECT \
                             snowflake_advance({quoted}, now())"
                        ))
                }
            }
        }
    }
}

fn not_a_mark(
    name: &str,
    generator: &Generator,
    value: i64,
    what: &str,
    mark: UnixMillis,
) -> Error {
    let layout = generator.layout;
    let first = display(layout.epoch());
    let last = display(layout.end());
    let at = display(mark);
    let quoted = quote_literal(name);
    let mark = mark.get();
    not_ready(format!(
        "sequence {name} holds {value}, which is {what} and no mark"
    ))
    .detail(format!(
        "The value of a generator's sequence is the mark: an instant in Unix milliseconds, from \
         which on the generator has issued no ID. setval() has overwritten the mark, as scripts do \
         that set sequences to max(id). The generator's IDs are of {first} to {last}."
    ))
    .hint(format!(
        "If none of its IDs is later than {at}, its owner can run: SELECT setval({quoted}, {mark})"
    ))
}

fn no_clock_free(name: &str, by: Millis, clocks: u64, free_from: UnixMillis, since: &str) -> Error {
    let (by, free_from) = (exact(by), display(free_from));
    bad_clock(format!(
        "clock moved backwards by {by}, and generator {name} has no clock sequence left for that time"
    ))
    .detail(format!(
        "Each of its {clocks} clock sequences may have been used at that time. One is free from \
         {free_from} on.{since}"
    ))
    .hint(format!("{CHECK}{AHEAD}"))
}

const CHECK: &str = "Check the time synchronization of this server. If its clock is right now, a \
                     superuser can say so with snowflake_accept_clock() in this database";

const AHEAD: &str = ": the generator then resumes ahead of the clock, as it always would with \
                     on_rollback=continue.";

/// The part of a label by which a generator refuses IDs after a rollback.
fn refusing_rule(policy: &Policy, by: Millis) -> String {
    if by > policy.max_rollback {
        return format!("max_rollback is {}", as_set(policy.max_rollback));
    }
    let rule = format!("on_rollback={}", on_rollback_text(policy.on_rollback));
    if policy.on_rollback.waits() {
        format!("{rule}, max_wait is {}", as_set(policy.max_wait))
    } else {
        rule
    }
}
