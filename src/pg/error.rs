//! What users read when something is wrong: one enum, one match to SQLSTATE,
//! message, detail and hint.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::spi::quote_literal;
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use super::time::display;
use crate::snowflake::id::UnixMillis;
use crate::snowflake::label::{self, EncodeError, LabelError};
use crate::snowflake::layout::{Change, Disorder, LayoutError};
use crate::snowflake::policy::{OnRollback, Policy};

/// Durations are in milliseconds.
#[derive(Debug)]
pub enum Error {
    NotPreloaded,
    NoWorkerId {
        max: u64,
    },
    WorkerIdRange {
        worker: u32,
        max: u64,
        generator: String,
        layout: String,
    },
    NoSuchRelation {
        oid: pg_sys::Oid,
    },
    NoDefaultGenerator,
    NotAGenerator {
        name: String,
    },
    UnfitSequence {
        name: String,
        reason: String,
    },
    Unsupported {
        name: String,
    },
    BadLabel {
        text: String,
        error: LabelError,
    },
    StoredLabel {
        name: String,
        text: String,
        error: LabelError,
    },
    LabelOnlyDecodes {
        problem: String,
        help: String,
    },
    LabelNotOnSequence,
    LabelOnDefault,
    LabelRemoved {
        name: String,
    },
    LayoutChanged {
        name: String,
        change: Change,
        before: String,
        after: String,
    },
    LayoutTooShort {
        name: String,
        reached: UnixMillis,
        last: UnixMillis,
    },
    LayoutIsOver {
        layout: String,
        last: UnixMillis,
    },
    CanBeNegative {
        from: Option<UnixMillis>,
    },
    MarkKept {
        name: String,
    },
    MarkDoesNotFit {
        name: String,
        mark: UnixMillis,
    },
    EpochMoved {
        name: String,
        by: i64,
    },
    Unlabelled {
        name: String,
    },
    LabelNotCommitted {
        name: String,
    },
    Encode(EncodeError),
    FieldsNotObject,
    FieldNotNumber {
        field: String,
    },
    FieldsNotRead,
    TimeMismatch {
        time: i64,
        tick: i64,
    },
    NoPrivilege {
        name: String,
        owner: String,
        update: bool,
    },
    SlotsExhausted {
        max: usize,
    },
    ImpossibleMark {
        name: String,
        value: i64,
    },
    ClockJumped {
        by: i64,
        limit: i64,
    },
    ClockRolledBack {
        name: String,
        by: i64,
        limit: i64,
    },
    ClockBehind {
        name: String,
        by: i64,
        policy: Policy,
        latest: UnixMillis,
        since: UnixMillis,
    },
    NoClockFree {
        name: String,
        by: i64,
        clocks: u64,
        free_from: UnixMillis,
        since: Option<UnixMillis>,
    },
    ClockStandsStill {
        name: String,
        at: UnixMillis,
        millis: i64,
    },
    TickUsedUp {
        name: String,
        ids: u64,
        tick_millis: i64,
        borrowed: i64,
        wait_millis: i64,
    },
    MarkAhead {
        name: String,
        by: i64,
        limit: i64,
        start: UnixMillis,
    },
    ClockBeforeEpoch {
        name: String,
        epoch: UnixMillis,
    },
    AdvanceTooFar {
        by: i64,
        limit: i64,
    },
    TimeUsedUp {
        name: String,
        last: UnixMillis,
    },
    BatchCount {
        count: i32,
        max: i32,
    },
    DamagedSequence {
        name: String,
    },
    NoCurrval {
        name: String,
    },
    Layout(LayoutError),
    InfiniteInstant,
    Spi {
        status: i32,
    },
    NullTable,
    NoNextvalFunction,
    Table {
        table: String,
        reason: TableError,
    },
    Column {
        table: String,
        column: String,
        reason: ColumnError,
    },
    DefaultNotSet {
        column: String,
    },
    IsForeignKey {
        column: String,
        constraint: String,
    },
    NarrowForeignKey {
        column: String,
        declared: String,
        constraint: String,
    },
    ValuesNotCompared {
        column: String,
        generator: String,
    },
    OwnerLacksUsage {
        table: String,
        owner: String,
        generator: String,
    },
}

/// Why `snowflake_set_default()` refuses a table.
#[derive(Debug)]
pub enum TableError {
    View,
    Foreign,
    Other,
    System,
    NotOwner {
        owner: String,
    },
    OtherSession,
    Partition {
        root: String,
        column: Option<String>,
    },
    NoPrimaryKey,
    CompositeKey {
        columns: String,
        example: String,
    },
}

/// Why `snowflake_set_default()` refuses a column. Identifiers are quoted where
/// they need it.
#[derive(Debug)]
pub enum ColumnError {
    Missing,
    System,
    Generated {
        identifier: String,
        is_stored: bool,
    },
    Type {
        identifier: String,
        declared: String,
        widens: bool,
    },
    ValueAbove {
        value: i64,
        least: i64,
        generator: String,
        /// When the generator's IDs come to it; never, if no layout's ID is it.
        reached: Option<UnixMillis>,
        can_advance: bool,
    },
    NoPartition {
        id: i64,
        generator: String,
    },
    Domain {
        domain: String,
        id: i64,
        generator: String,
    },
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

/// "1 day 02:03:04.005": days and milliseconds only where there are some. As an
/// interval, in which each part has a sign of its own.
pub fn duration(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    let millis = millis.unsigned_abs();
    let (seconds, rest) = (millis / 1000, millis % 1000);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let days = match days {
        0 => String::new(),
        1 => format!("{sign}1 day "),
        n => format!("{sign}{n} days "),
    };
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let rest = if rest == 0 {
        String::new()
    } else {
        format!(".{rest:03}")
    };
    format!("{days}{sign}{hours:02}:{minutes:02}:{seconds:02}{rest}")
}

struct Text {
    code: PgSqlErrorCode,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl Text {
    fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

const CLOCK_HINT: &str = "Check the time synchronization of this server. If its clock is right now, a superuser can say so with snowflake_accept_clock() in this database.";

const BEHIND_HINT: &str = "Check the time synchronization of this server. If its clock is right now, a superuser can say so with snowflake_accept_clock() in this database: the generator then goes on ahead of the clock, as it always would with on_rollback=continue in its label.";

/// Where in a label something is.
fn place(text: &str, at: usize) -> String {
    const MOST: usize = 40;
    let before = text.get(..at).unwrap_or(text);
    let rest = text.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return "At the end of the label.".to_string();
    }
    let number = before.chars().count() + 1;
    let mut shown: String = rest.chars().take(MOST).collect();
    if shown.len() < rest.len() {
        shown.push_str("...");
    }
    format!("At character {number}: {shown}")
}

impl Error {
    /// In one line, for a view.
    pub fn in_a_line(&self) -> String {
        let Text {
            message,
            detail,
            hint,
            ..
        } = self.text();
        let more: Vec<_> = detail.into_iter().chain(hint).collect();
        if more.is_empty() {
            message
        } else {
            format!("{message}. {}", more.join(" "))
        }
    }

    fn text(&self) -> Text {
        use PgSqlErrorCode as C;
        match self {
            Self::NotPreloaded => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "snowflake_id must be loaded at server start to generate IDs",
            )
            .hint("Add snowflake_id to what \"shared_preload_libraries\" lists in postgresql.conf, as in: shared_preload_libraries = 'snowflake_id', and restart the server."),
            Self::NoWorkerId { max } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "this server has no worker ID",
            )
            .detail("Two servers that generate IDs with the same worker ID generate the same IDs, so there is no default.")
            .hint(format!("Set \"snowflake_id.worker_id\" in postgresql.conf to a number from 0 to {max} that no other server of the cluster has, and restart the server.")),
            Self::WorkerIdRange { worker, max, generator, layout } => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("worker ID {worker} is out of range for generator {generator}"),
            )
            .detail(format!("Layout \"{layout}\" holds worker IDs from 0 to {max}."))
            .hint(format!("Set \"snowflake_id.worker_id\" in postgresql.conf to a number from 0 to {max} that no other server of the cluster has, and restart the server.")),
            Self::NoSuchRelation { oid } => Text::new(
                C::ERRCODE_UNDEFINED_TABLE,
                format!("relation with OID {oid} does not exist", oid = oid.to_u32()),
            ),
            Self::NoDefaultGenerator => Text::new(
                C::ERRCODE_UNDEFINED_OBJECT,
                "the default generator does not exist",
            )
            .detail("Extension snowflake_id has no sequence \"snowflake_default\" in its schema.")
            .hint("If it was renamed or moved, undo that."),
            Self::NotAGenerator { name } => Text::new(
                C::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{name} is not a generator"),
            )
            .hint("View snowflake_generators lists the generators of this database; snowflake_create_generator() makes one."),
            Self::Unsupported { name } => Text::new(
                C::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("generator {name} has a policy that is not supported yet"),
            )
            .detail(format!(
                "Its label says on_rollback={}, and worker IDs cannot be leased. It can decode, but issues no IDs.",
                label::on_rollback_text(OnRollback::NextWorker)
            ))
            .hint("Set its label with another on_rollback, which can follow a preset: wait, error or continue."),
            Self::BadLabel { text, error } => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("invalid label: {}", error.problem),
            )
            .detail(place(text, error.at))
            .hint(error.allowed.clone()),
            Self::StoredLabel { name, text, error } => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("generator {name} has an invalid label: {}", error.problem),
            )
            .detail(place(text, error.at))
            .hint("It may be of a later version of snowflake_id, or have been set without it."),
            Self::LabelOnlyDecodes { problem, help } => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("invalid label for a generator: {problem}"),
            )
            .hint(help.clone()),
            Self::LabelNotOnSequence => Text::new(
                C::ERRCODE_WRONG_OBJECT_TYPE,
                "a label of provider snowflake_id can be set on sequences only",
            )
            .hint("snowflake_create_generator() makes a sequence with its label."),
            Self::LabelOnDefault => Text::new(
                C::ERRCODE_FEATURE_NOT_SUPPORTED,
                "cannot set a label on the default generator",
            )
            .detail("Its layout is fixed: indexes and partitions may rely on it.")
            .hint("Make a generator of your own with snowflake_create_generator()."),
            Self::LabelRemoved { name } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot remove the label of generator {name}: it has issued IDs"),
            )
            .detail("With another label afterwards, it could issue them again.")
            .hint("Drop the sequence if it is not needed any more."),
            Self::LayoutChanged { name, change, before, after } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot change the layout of generator {name}: it has issued IDs"),
            )
            .detail(match change {
                Change::Tick => "The tick is another: new IDs could repeat existing ones, or sort before them.".to_string(),
                Change::LaterEpoch => "The epoch is later: new IDs would repeat existing ones, or sort before them.".to_string(),
                Change::NarrowerTime => "The time has fewer bits: new IDs could repeat existing ones.".to_string(),
                Change::Fields => format!("Layout \"{before}\" cannot become \"{after}\": new IDs could repeat existing ones, or sort before them."),
            })
            .hint("An earlier epoch, a wider time that is on top, and other policies are allowed. For anything else make a new generator."),
            Self::LayoutTooShort { name, reached, last } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot change the layout of generator {name}: it has issued IDs"),
            )
            .detail(format!("Its IDs have reached {}, and the time of the new layout ends at {}.", display(*reached), display(*last)))
            .hint("Give the time more bits, or a later epoch."),
            Self::LayoutIsOver { layout, last } => Text::new(
                C::ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                "the time of this layout is used up",
            )
            .detail(format!("Layout \"{layout}\" lasted until {}.", display(*last)))
            .hint("It can decode. To generate, give it a later epoch or a wider time; IDs that exist then need a column that tells them from new ones."),
            Self::CanBeNegative { from } => Text::new(
                C::ERRCODE_SUCCESSFUL_COMPLETION,
                match from {
                    Some(at) => format!("IDs of this layout are negative from {} on", display(*at)),
                    None => "IDs of this layout can be negative".to_string(),
                },
            )
            .detail("Its fields have 64 bits. Negative IDs sort before all others."),
            Self::MarkKept { name } => Text::new(
                C::ERRCODE_SUCCESSFUL_COMPLETION,
                format!("generator {name} keeps its mark"),
            )
            .detail("IDs go by time: to restart it would only forget how far they are."),
            Self::MarkDoesNotFit { name, mark } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot restart generator {name} with these bounds"),
            )
            .detail(format!("Its mark, {} in Unix milliseconds, has to be kept and does not lie between them.", mark.get()))
            .hint("Drop the sequence if it is not needed as a generator any more."),
            Self::EpochMoved { name, by } => Text::new(
                C::ERRCODE_SUCCESSFUL_COMPLETION,
                format!("IDs that generator {name} has issued decode to {} earlier from now on", duration(*by)),
            )
            .detail("Once this is committed, there is no way back to a later epoch."),
            Self::Unlabelled { name } => Text::new(
                C::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{name} is not a generator: it has no label"),
            )
            .hint(format!("If a dump was restored without security labels, its mark may be there all the same: do not drop it, but put the label back: SECURITY LABEL FOR snowflake_id ON SEQUENCE {name} IS ...")),
            Self::LabelNotCommitted { name } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("generator {name} was given another layout in this transaction"),
            )
            .detail("Should that be rolled back, the layout before could repeat IDs that are taken now.")
            .hint("Commit first."),
            Self::UnfitSequence { name, reason } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("sequence {name} cannot hold the mark of a generator"),
            )
            .detail(reason.clone())
            .hint("It needs to be a logged bigint sequence with INCREMENT, START and MAXVALUE 9223372036854775807, MINVALUE 1 and NO CYCLE, as snowflake_create_generator() makes it."),
            Self::NoPrivilege { name, owner, update } => {
                let privilege = if *update { "UPDATE" } else { "USAGE" };
                Text::new(
                    C::ERRCODE_INSUFFICIENT_PRIVILEGE,
                    format!("permission denied for generator {name}"),
                )
                .hint(format!(
                    "Its owner, role {owner}, can run: GRANT {privilege} ON SEQUENCE {name} TO ..."
                ))
            }
            Self::SlotsExhausted { max } => Text::new(
                C::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                format!("all {max} generator slots are in use by running transactions"),
            )
            .hint("Increase \"snowflake_id.max_generators\" and restart the server."),
            Self::ImpossibleMark { name, value } => Text::new(
                C::ERRCODE_DATA_CORRUPTED,
                format!("sequence {name} holds {value}, which is no mark of a generator"),
            ),
            Self::DamagedSequence { name } => Text::new(
                C::ERRCODE_DATA_CORRUPTED,
                format!("sequence {name} has a damaged page"),
            ),
            Self::ClockJumped { by, limit } => Text::new(
                C::ERRCODE_SYSTEM_ERROR,
                format!("clock jumped forward by {}", duration(*by)),
            )
            .detail(format!("The wall clock is that far ahead of the time since boot; \"snowflake_id.max_clock_jump\" is {}. IDs of a wrong time could not be taken back.", duration(*limit)))
            .hint(CLOCK_HINT),
            Self::ClockRolledBack { name, by, limit } => Text::new(
                C::ERRCODE_SYSTEM_ERROR,
                format!("clock moved backwards by {}", duration(*by)),
            )
            .detail(format!("Generator {name} would stay that far ahead of the clock; its limit is {}.", duration(*limit)))
            .hint(CLOCK_HINT),
            Self::ClockBehind { name, by, policy, latest, since } => {
                let does = match policy.on_rollback {
                    _ if *by > policy.max_rollback_millis => {
                        format!("max_rollback is {}", duration(policy.max_rollback_millis))
                    }
                    it if it.waits() => format!(
                        "on_rollback={}, max_wait is {}",
                        label::on_rollback_text(it),
                        duration(policy.max_wait_millis)
                    ),
                    it => format!("on_rollback={}", label::on_rollback_text(it)),
                };
                Text::new(
                    C::ERRCODE_SYSTEM_ERROR,
                    format!("clock moved backwards by {}", duration(*by)),
                )
                .detail(format!("Generator {name} has issued IDs at {}, and issues none before that is reached again ({does}). They are refused since {}.", display(*latest), display(*since)))
                .hint(BEHIND_HINT)
            }
            Self::NoClockFree { name, by, clocks, free_from, since } => {
                let since = since.map_or_else(String::new, |since| {
                    format!(" IDs are refused since {}.", display(since))
                });
                Text::new(
                    C::ERRCODE_SYSTEM_ERROR,
                    format!("clock moved backwards by {}, and generator {name} has no clock left for that time", duration(*by)),
                )
                .detail(format!("Each of its {clocks} clocks may have issued IDs there. One is free from {} on.{since}", display(*free_from)))
                .hint(BEHIND_HINT)
            }
            Self::ClockStandsStill { name, at, millis } => Text::new(
                C::ERRCODE_SYSTEM_ERROR,
                "the clock of this server stands still",
            )
            .detail(format!("Generator {name} waits for the next tick, and for {} the clock has shown {}.", duration(*millis), display(*at)))
            .hint("Check the clock of this server, and what virtualizes or fakes it."),
            Self::TickUsedUp { name, ids, tick_millis, borrowed, wait_millis } => Text::new(
                C::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                format!("generator {name} has used up the sequence numbers of this tick"),
            )
            .detail(format!("A tick of {} holds {ids}, and max_borrow is {}.", label::duration_text(*tick_millis), label::duration_text(*borrowed)))
            .hint(format!("Try again in {}, and for fewer if it was a batch. With on_exhausted=wait in its label calls would wait; max_borrow lets bursts run ahead of the clock; more bits of sequence hold more.", label::duration_text(*wait_millis))),
            Self::MarkAhead { name, by, limit, start } => Text::new(
                C::ERRCODE_SYSTEM_ERROR,
                format!("generator {name} would start {} ahead of the clock", duration(*by)),
            )
            .detail(format!("IDs may have been issued up to {}, so it cannot start before; its limit is {} ahead of the clock.", display(*start), duration(*limit)))
            .hint("Check the time synchronization of this server. If its clock is right now, a superuser can say so with snowflake_accept_clock() in this database: IDs then go on ahead of the clock. If no such IDs exist, set the mark back: compare max(id) of the tables, then setval() the sequence to an instant after it, in Unix milliseconds."),
            Self::ClockBeforeEpoch { name, epoch } => Text::new(
                C::ERRCODE_SYSTEM_ERROR,
                format!("the clock is before the epoch of generator {name}"),
            )
            .detail(format!("Its IDs count from {}.", display(*epoch)))
            .hint("Check the time synchronization of this server, and the epoch of the generator."),
            Self::AdvanceTooFar { by, limit } => Text::new(
                C::ERRCODE_DATETIME_FIELD_OVERFLOW,
                format!("cannot advance a generator to {} ahead of the clock", duration(*by)),
            )
            .hint(format!("It can be advanced by up to {}.", duration(*limit))),
            Self::TimeUsedUp { name, last } => Text::new(
                C::ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                format!("generator {name} has used up the time of its layout"),
            )
            .detail(format!("Its time field ends at {}.", display(*last)))
            .hint("If the clock is right, new rows need a generator with a later epoch and a column that tells which generator made an ID."),
            Self::BatchCount { count, max } => Text::new(
                C::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("count {count} is out of range"),
            )
            .hint(format!("A batch has 1 to {max} IDs.")),
            Self::NoCurrval { name } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("snowflake_currval of generator {name} is not yet defined in this session"),
            )
            .hint("Call snowflake_nextval() first."),
            Self::Layout(LayoutError::NotAnId { id, bits }) => Text::new(
                C::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("{id} is not an ID of this layout"),
            )
            .hint(format!("Its IDs are 0 to {}.", i64::MAX >> 63_u32.saturating_sub(*bits).min(62))),
            Self::Layout(LayoutError::Fixed { id, field, value, fixed }) => Text::new(
                C::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("{id} is not an ID of this layout"),
            )
            .detail(format!("Its field \"{field}\" is {value}; in IDs of this layout it is {fixed}.")),
            Self::Layout(LayoutError::Unordered(disorder)) => {
                let text = Text::new(
                    C::ERRCODE_FEATURE_NOT_SUPPORTED,
                    "IDs of this layout have no range for an instant",
                );
                match disorder {
                    Disorder::Reversed => text.detail("The bits of its time are reversed: IDs do not sort by time."),
                    Disorder::TimeBelow => text.detail("Other fields are above its time: IDs do not sort by time.").hint("If such a field is the same in all IDs of a generator, give it its value in the label."),
                    Disorder::NegativeFrom(at) => text.detail(format!("They are negative from {} on, and sort before all others.", display(*at))).hint("Before that instant, ranges are as expected."),
                }
            }
            Self::Encode(EncodeError::Layout(error)) => Self::Layout(error.clone()).text(),
            Self::Encode(EncodeError::Unknown(field)) => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("the layout has no field \"{field}\""),
            )
            .hint("Name the fields as the layout does; the time is the first argument."),
            Self::Encode(EncodeError::Missing(field)) => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("field \"{field}\" has no value"),
            )
            .hint("All fields need one, but for fixed ones and a clock."),
            Self::Encode(EncodeError::Fixed { field, value, fixed }) => Text::new(
                C::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("field \"{field}\" cannot be {value}"),
            )
            .detail(format!("In IDs of this layout it is {fixed}.")),
            Self::FieldsNotObject => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                "fields are not a JSON object",
            )
            .hint("Give the values by field, as in '{\"worker\": 7, \"sequence\": 0}'."),
            Self::FieldNotNumber { field } => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("value of field \"{field}\" is not a whole number of bigint"),
            ),
            Self::FieldsNotRead => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                "a value of fields is not a whole number of bigint",
            )
            .hint("Give the values by field, as in '{\"worker\": 7, \"sequence\": 0}'."),
            Self::TimeMismatch { time, tick } => Text::new(
                C::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("field \"time\" is {time}, but the instant is tick {tick}"),
            )
            .hint("Leave it out: the instant says it."),
            Self::Layout(LayoutError::FieldRange { field, value, max }) => Text::new(
                C::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("{field} {value} is out of range"),
            )
            .hint(format!("The layout holds 0 to {max}.")),
            Self::Layout(LayoutError::InstantRange { at, first, last }) => Text::new(
                C::ERRCODE_DATETIME_FIELD_OVERFLOW,
                format!("instant {} is out of range", display(*at)),
            )
            .hint(format!("The layout holds {} to {}.", display(*first), display(*last))),
            Self::InfiniteInstant => Text::new(
                C::ERRCODE_DATETIME_FIELD_OVERFLOW,
                "an ID cannot have an infinite instant",
            ),
            Self::Spi { status } => Text::new(
                C::ERRCODE_INTERNAL_ERROR,
                format!("could not run a statement: SPI status {status}"),
            ),
            Self::NullTable => {
                Text::new(C::ERRCODE_NULL_VALUE_NOT_ALLOWED, "table must not be null")
            }
            Self::NoNextvalFunction => Text::new(
                C::ERRCODE_UNDEFINED_FUNCTION,
                "extension snowflake_id has no function snowflake_nextval",
            ),
            Self::Table { table, reason } => reason.text(table),
            Self::Column { table, column, reason } => reason.text(table, column),
            Self::DefaultNotSet { column } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("could not set the default of {column}"),
            )
            .detail("Another session has renamed its schema meanwhile.")
            .hint("Try again."),
            Self::IsForeignKey { column, constraint } => Text::new(
                C::ERRCODE_SUCCESSFUL_COMPLETION,
                format!("{column} is a foreign key, constraint {constraint}"),
            )
            .hint("An ID of its own is in no other table: rows that get it by default will violate the constraint."),
            Self::NarrowForeignKey { column, declared, constraint } => Text::new(
                C::ERRCODE_SUCCESSFUL_COMPLETION,
                format!("{column} refers to the column, constraint {constraint}, and is of type {declared}, which holds no IDs"),
            )
            .hint("Change its type to bigint."),
            Self::ValuesNotCompared { column, generator } => Text::new(
                C::ERRCODE_SUCCESSFUL_COMPLETION,
                format!("values of {column} were not compared with IDs to come"),
            )
            .detail(format!("IDs of generator {generator} do not sort by time, so that any value may come again."))
            .hint("A unique constraint refuses a row whose ID is there already."),
            Self::OwnerLacksUsage { table, owner, generator } => Text::new(
                C::ERRCODE_SUCCESSFUL_COMPLETION,
                format!("role {owner}, which owns table {table}, cannot get IDs of generator {generator}"),
            )
            .hint(format!("Whoever inserts needs: GRANT USAGE ON SEQUENCE {generator} TO ...")),
        }
    }

    /// Warns the client, and goes on.
    #[cold]
    pub fn warning(self) {
        ErrorReport::from(self).report(PgLogLevel::WARNING);
    }

    /// Tells the client, and goes on.
    #[cold]
    pub fn notice(self) {
        ErrorReport::from(self).report(PgLogLevel::NOTICE);
    }

    /// Tells the server log, not the client; `more` goes before the detail.
    #[cold]
    pub fn log(self, more: Option<String>) {
        let mut text = self.text();
        text.message = format!("snowflake_id: {}", text.message);
        let detail: Vec<_> = more.into_iter().chain(text.detail).collect();
        text.detail = (!detail.is_empty()).then(|| detail.join(" "));
        ErrorReport::from(text).report(PgLogLevel::LOG_SERVER_ONLY);
    }

    /// Ends the statement with this error.
    #[cold]
    pub fn raise(self) -> ! {
        ErrorReport::from(self).report(PgLogLevel::ERROR);
        unreachable!("an error report does not return");
    }
}

impl TableError {
    fn text(&self, table: &str) -> Text {
        use PgSqlErrorCode as C;
        match self {
            Self::View => Text::new(
                C::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{table} is not a table"),
            )
            .detail("A view keeps no rows.")
            .hint("Name the table that keeps its rows."),
            Self::Foreign => Text::new(
                C::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{table} is a foreign table"),
            )
            .detail("Others who insert where its rows are kept would not use a default that is set here.")
            .hint("Set the default where its rows are kept."),
            Self::Other => Text::new(
                C::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{table} is not a table"),
            )
            .hint("Name a table, partitioned or not."),
            Self::System => Text::new(
                C::ERRCODE_INSUFFICIENT_PRIVILEGE,
                format!("permission denied: {table} is a system catalog"),
            ),
            Self::NotOwner { owner } => Text::new(
                C::ERRCODE_INSUFFICIENT_PRIVILEGE,
                format!("must be owner of table {table}"),
            )
            .hint(format!("Role {owner} owns it: that role and its members can do this.")),
            Self::OtherSession => Text::new(
                C::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("{table} is a temporary table of another session"),
            ),
            Self::Partition { root, column } => Text::new(
                C::ERRCODE_WRONG_OBJECT_TYPE,
                format!("cannot set the default of partition {table} apart from table {root}"),
            )
            .detail("Rows that are inserted through a partitioned table get the default of that table, not of the partition.")
            .hint(format!(
                "Set it on table {root}, which reaches all partitions: snowflake_set_default({}{})",
                quote_literal(root),
                column.as_ref().map_or_else(String::new, |column| format!(", {}", quote_literal(column)))
            )),
            Self::NoPrimaryKey => Text::new(
                C::ERRCODE_UNDEFINED_OBJECT,
                format!("table {table} has no primary key"),
            )
            .hint(format!(
                "Name the column, as in snowflake_set_default({}, 'id')",
                quote_literal(table)
            )),
            Self::CompositeKey { columns, example } => Text::new(
                C::ERRCODE_AMBIGUOUS_COLUMN,
                format!("primary key of table {table} has more than one column"),
            )
            .detail(format!("Its columns are: {columns}."))
            .hint(format!(
                "Name the column, as in snowflake_set_default({}, {})",
                quote_literal(table),
                quote_literal(example)
            )),
        }
    }
}

impl ColumnError {
    fn text(&self, table: &str, column: &str) -> Text {
        use PgSqlErrorCode as C;
        let name = format!("column \"{column}\" of table {table}");
        match self {
            Self::Missing => Text::new(
                C::ERRCODE_UNDEFINED_COLUMN,
                format!("{name} does not exist"),
            )
            .hint("Give the name as it is stored: without quotes, and in lower case unless it was created in quotes."),
            Self::System => Text::new(
                C::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("{name} is a system column"),
            ),
            Self::Generated { identifier, is_stored } => Text::new(
                C::ERRCODE_GENERATED_ALWAYS,
                format!("{name} is a generated column"),
            )
            .detail("Its values are computed from other columns: it has no default.")
            .hint(if *is_stored {
                format!("To make it a plain column that keeps its values: ALTER TABLE {table} ALTER COLUMN {identifier} DROP EXPRESSION")
            } else {
                "Add a bigint column for the IDs.".to_string()
            }),
            Self::Type { identifier, declared, widens } => Text::new(
                C::ERRCODE_DATATYPE_MISMATCH,
                format!("{name} is of type {declared}, not bigint"),
            )
            .detail("IDs have up to 63 bits.")
            .hint(if *widens {
                format!("Change it first, and columns that refer to it too; each change rewrites its table: ALTER TABLE {table} ALTER COLUMN {identifier} TYPE bigint")
            } else {
                "Add a bigint column for the IDs.".to_string()
            }),
            Self::ValueAbove { value, least, generator, reached, can_advance } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("{name} holds {value}, which is not below the IDs to come"),
            )
            .detail(match reached {
                Some(at) => format!(
                    "IDs of generator {generator} are at {least} now, and at that value on {}: it would come again, or sort after newer rows until then.",
                    display(*at)
                ),
                None => format!("IDs of generator {generator} are at {least} now; that value is above all of them, and would sort after newer rows for ever."),
            })
            .hint(if *can_advance {
                format!(
                    "Make all further IDs greater, then call this again: SELECT snowflake_advance({}, {value})",
                    quote_literal(generator)
                )
            } else {
                "It is further ahead than snowflake_advance() goes. Find out where it is from: give those rows other keys, or the IDs a column of their own.".to_string()
            }),
            Self::NoPartition { id, generator } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("no partition of table {table} takes IDs"),
            )
            .detail(format!("It is partitioned by column \"{column}\", and ID {id} of generator {generator} fits none of its partitions."))
            .hint(format!("Make one first, as in: CREATE TABLE ... PARTITION OF {table} FOR VALUES FROM (snowflake_min_id('2026-01-01Z')) TO (snowflake_min_id('2027-01-01Z'))")),
            Self::Domain { domain, id, generator } => Text::new(
                C::ERRCODE_CHECK_VIOLATION,
                format!("{name} is of domain {domain}, which refuses IDs"),
            )
            .detail(format!("ID {id} of generator {generator} violates a constraint of the domain."))
            .hint("Change the constraint, or the column's type to bigint."),
        }
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> Self {
        error.text().into()
    }
}

impl From<Text> for ErrorReport {
    fn from(text: Text) -> Self {
        let mut report = Self::new(text.code, text.message, "snowflake_id");
        if let Some(detail) = text.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = text.hint {
            report = report.set_hint(hint);
        }
        report
    }
}
