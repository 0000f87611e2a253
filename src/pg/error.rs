//! What users read when something is wrong: one enum, one match to SQLSTATE,
//! message, detail and hint.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use super::time::display;
use crate::snowflake::layout::{LayoutError, UnixMillis};

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
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

/// "1 day 02:03:04.005": days and milliseconds only where there are some.
pub fn duration(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    let millis = millis.unsigned_abs();
    let (seconds, rest) = (millis / 1000, millis % 1000);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let days = match days {
        0 => String::new(),
        1 => "1 day ".to_string(),
        n => format!("{n} days "),
    };
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let rest = if rest == 0 {
        String::new()
    } else {
        format!(".{rest:03}")
    };
    format!("{sign}{days}{hours:02}:{minutes:02}:{seconds:02}{rest}")
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

impl Error {
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
            .hint("Call snowflake_nextval() without an argument for the default generator."),
            Self::UnfitSequence { name, reason } => Text::new(
                C::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("sequence {name} cannot hold the mark of a generator"),
            )
            .detail(reason.clone())
            .hint("Undo the ALTER SEQUENCE that changed it."),
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
            .hint("Check the time synchronization of this server."),
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
            Self::Layout(LayoutError::NotAnId { id, max }) => Text::new(
                C::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("{id} is not an ID of this layout"),
            )
            .hint(format!("Its IDs are 0 to {max}.")),
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
        }
    }

    /// Tells the server log, not the client.
    #[cold]
    pub fn log(self) {
        ErrorReport::from(self).report(PgLogLevel::LOG);
    }

    /// Ends the statement with this error.
    #[cold]
    pub fn raise(self) -> ! {
        ErrorReport::from(self).report(PgLogLevel::ERROR);
        unreachable!("an error report does not return");
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> Self {
        let text = error.text();
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
