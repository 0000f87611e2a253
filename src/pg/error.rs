//! What users read when something is wrong.

/// An [`Error`]: SQLSTATE, message and, if there are such, detail (which can be empty)
/// and hint, as format strings; then what else these name.
macro_rules! text {
    ($code:ident $(, $text:literal)+ $(, $name:ident = $value:expr)* $(,)?) => {{
        $(let $name = $value;)*
        $crate::pg::error::Error::new($code, [$(format!($text)),+])
    }};
}

/// Functions that make one of these each.
macro_rules! texts {
    ($(
        $(#[$about:meta])* $what:ident($($argument:ident: $of:ty),*) => $code:ident
        $(, $text:literal)+ $(, $name:ident = $value:expr)*;
    )*) => {$(
        $(#[$about])*
        #[cold]
        pub fn $what($($argument: $of),*) -> $crate::pg::error::Error {
            $crate::pg::error::text!($code $(, $text)+ $(, $name = $value)*)
        }
    )*};
}

pub(super) use {text, texts};

pub mod column;
mod refused;

use pgrx::PgSqlErrorCode::*;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

pub use refused::refused;

use super::time::display;
use crate::snowflake::id::UnixMillis;
use crate::snowflake::label::{EncodeError, LabelError, on_rollback_text};
use crate::snowflake::layout::{Change, Disorder, LayoutError};
use crate::snowflake::policy::OnRollback;

/// SQLSTATE 55000: not now, or not in this order.
const NOT_READY: PgSqlErrorCode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
/// SQLSTATE 22023: an argument or a setting is wrong.
const INVALID: PgSqlErrorCode = ERRCODE_INVALID_PARAMETER_VALUE;
/// SQLSTATE 58000: the clock cannot be trusted.
const SYSTEM: PgSqlErrorCode = ERRCODE_SYSTEM_ERROR;
/// SQLSTATE 42809: the object is of another kind.
const WRONG_TYPE: PgSqlErrorCode = ERRCODE_WRONG_OBJECT_TYPE;
/// SQLSTATE 0A000: there is no such thing, or not yet.
const UNSUPPORTED: PgSqlErrorCode = ERRCODE_FEATURE_NOT_SUPPORTED;
/// SQLSTATE 22003: a number is too large or too small.
const OUT_OF_RANGE: PgSqlErrorCode = ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE;

/// What a client, or the log, is told. Detail and hint are empty if there are none.
#[derive(Debug)]
#[must_use]
pub struct Error {
    code: PgSqlErrorCode,
    message: String,
    detail: String,
    hint: String,
}

impl Error {
    /// From message, detail and hint, or the first of these.
    #[cold]
    pub fn new(code: PgSqlErrorCode, texts: impl IntoIterator<Item = String>) -> Self {
        let mut texts = texts.into_iter();
        let mut next = || texts.next().unwrap_or_default();
        Self {
            code,
            message: next(),
            detail: next(),
            hint: next(),
        }
    }

    /// In one line, for a view.
    pub fn in_a_line(&self) -> String {
        let more = joined(&self.detail, &self.hint);
        let stop = if more.is_empty() { "" } else { ". " };
        format!("{}{stop}{more}", self.message)
    }

    /// Tells the client, and goes on.
    pub fn notice(self) {
        self.report(PgLogLevel::NOTICE);
    }

    /// Warns the client, and goes on.
    pub fn warning(self) {
        self.report(PgLogLevel::WARNING);
    }

    /// Tells the server log, not the client; `more` goes before the detail.
    pub fn log(mut self, more: &str) {
        self.message = format!("snowflake_id: {}", self.message);
        self.detail = joined(more, &self.detail);
        self.report(PgLogLevel::LOG_SERVER_ONLY);
    }

    /// Ends the statement with this error.
    pub fn raise(self) -> ! {
        self.report(PgLogLevel::ERROR);
        unreachable!("an error report does not return");
    }

    #[cold]
    fn report(self, level: PgLogLevel) {
        ErrorReport::from(self).report(level);
    }
}

/// Both, with a space between them if neither is empty.
fn joined(one: &str, other: &str) -> String {
    let space = if one.is_empty() || other.is_empty() {
        ""
    } else {
        " "
    };
    format!("{one}{space}{other}")
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> Self {
        let mut report = Self::new(error.code, error.message, "snowflake_id");
        if !error.detail.is_empty() {
            report = report.set_detail(error.detail);
        }
        if !error.hint.is_empty() {
            report = report.set_hint(error.hint);
        }
        report
    }
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::NotAnId { id, bits } => text!(
                OUT_OF_RANGE,
                "{id} is not an ID of this layout",
                "",
                "Its IDs are 0 to {max}.",
                max = i64::MAX >> 63_u32.saturating_sub(bits).min(62)
            ),
            LayoutError::Fixed {
                id,
                field,
                value,
                fixed,
            } => text!(
                OUT_OF_RANGE,
                "{id} is not an ID of this layout",
                "Its field \"{field}\" is {value}; in IDs of this layout it is {fixed}."
            ),
            LayoutError::Unordered(Disorder::Reversed) => no_range(
                "The bits of its time are reversed: IDs do not sort by time.",
                "",
            ),
            LayoutError::Unordered(Disorder::TimeBelow) => no_range(
                "Other fields are above its time: IDs do not sort by time.",
                "If such a field is the same in all IDs of a generator, give it its value in the \
                 label.",
            ),
            LayoutError::Unordered(Disorder::NegativeFrom(at)) => no_range(
                &format!(
                    "They are negative from {} on, and sort before all others.",
                    display(at)
                ),
                "Before that instant, ranges are as expected.",
            ),
            LayoutError::FieldRange { field, value, max } => text!(
                OUT_OF_RANGE,
                "{field} {value} is out of range",
                "",
                "The layout holds 0 to {max}."
            ),
            LayoutError::InstantRange { at, first, last } => text!(
                ERRCODE_DATETIME_FIELD_OVERFLOW,
                "instant {at} is out of range",
                "",
                "The layout holds {first} to {last}.",
                at = display(at),
                first = display(first),
                last = display(last)
            ),
        }
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::Layout(error) => error.into(),
            EncodeError::Unknown(field) => no_such_field(&field),
            EncodeError::Missing(field) => no_value(&field),
            EncodeError::Fixed {
                field,
                value,
                fixed,
            } => fixed_field(&field, value, fixed),
        }
    }
}

texts! {
    no_range(detail: &str, hint: &str) => UNSUPPORTED,
        "IDs of this layout have no range for an instant",
        "{detail}",
        "{hint}";
    no_such_field(field: &str) => INVALID,
        "the layout has no field \"{field}\"",
        "",
        "Name the fields as the layout does; the time is the first argument.";
    no_value(field: &str) => INVALID,
        "field \"{field}\" has no value",
        "",
        "All fields need one, but for fixed ones and a clock.";
    fixed_field(field: &str, value: u64, fixed: u64) => OUT_OF_RANGE,
        "field \"{field}\" cannot be {value}",
        "In IDs of this layout it is {fixed}.";
    not_preloaded() => NOT_READY,
        "snowflake_id must be loaded at server start to generate IDs",
        "",
        "Add snowflake_id to what \"shared_preload_libraries\" lists in postgresql.conf, as in: \
         shared_preload_libraries = 'snowflake_id', and restart the server.";
    no_worker_id(max: u64) => NOT_READY,
        "this server has no worker ID",
        "Two servers that generate IDs with the same worker ID generate the same IDs, so there is \
         no default.",
        "{hint}",
        hint = worker_hint(max);
    worker_id_range(worker: u32, max: u64, generator: &str, layout: &str) => INVALID,
        "worker ID {worker} is out of range for generator {generator}",
        "Layout \"{layout}\" holds worker IDs from 0 to {max}.",
        "{hint}",
        hint = worker_hint(max);
    no_such_relation(oid: pg_sys::Oid) => ERRCODE_UNDEFINED_TABLE,
        "relation with OID {oid} does not exist";
    no_default_generator() => ERRCODE_UNDEFINED_OBJECT,
        "the default generator does not exist",
        "Extension snowflake_id has no sequence \"snowflake_default\" in its schema.",
        "If it was renamed or moved, undo that.";
    not_a_generator(name: &str) => WRONG_TYPE,
        "{name} is not a generator",
        "",
        "View snowflake_generators lists the generators of this database; \
         snowflake_create_generator() makes one.";
    unlabelled(name: &str) => WRONG_TYPE,
        "{name} is not a generator: it has no label",
        "",
        "If a dump was restored without security labels, its mark may be there all the same: do \
         not drop it, but put the label back: SECURITY LABEL FOR snowflake_id ON SEQUENCE {name} \
         IS ...";
    unfit_sequence(name: &str, reason: &str) => NOT_READY,
        "sequence {name} cannot hold the mark of a generator",
        "{reason}",
        "It needs to be a logged bigint sequence with INCREMENT, START and MAXVALUE \
         9223372036854775807, MINVALUE 1 and NO CYCLE, as snowflake_create_generator() makes it.";
    unsupported(name: &str) => UNSUPPORTED,
        "generator {name} has a policy that is not supported yet",
        "Its label says on_rollback={rule}, and worker IDs cannot be leased. It can decode, but \
         issues no IDs.",
        "Set its label with another on_rollback, which can follow a preset: wait, error or \
         continue.",
        rule = on_rollback_text(OnRollback::NextWorker);
    bad_label(text: &str, error: &LabelError) => INVALID,
        "invalid label: {problem}",
        "{place}",
        "{allowed}",
        problem = &error.problem,
        place = place(text, error.at),
        allowed = &error.allowed;
    stored_label(name: &str, text: &str, error: &LabelError) => INVALID,
        "generator {name} has an invalid label: {problem}",
        "{place}",
        "It may be of a later version of snowflake_id, or have been set without it.",
        problem = &error.problem,
        place = place(text, error.at);
    label_only_decodes(problem: &str, help: &str) => INVALID,
        "invalid label for a generator: {problem}",
        "",
        "{help}";
    label_not_on_sequence() => WRONG_TYPE,
        "a label of provider snowflake_id can be set on sequences only",
        "",
        "snowflake_create_generator() makes a sequence with its label.";
    label_on_default() => UNSUPPORTED,
        "cannot set a label on the default generator",
        "Its layout is fixed: indexes and partitions may rely on it.",
        "Make a generator of your own with snowflake_create_generator().";
    label_removed(name: &str) => NOT_READY,
        "cannot remove the label of generator {name}: it has issued IDs",
        "With another label afterwards, it could issue them again.",
        "Drop the sequence if it is not needed any more.";
    label_not_committed(name: &str) => NOT_READY,
        "generator {name} was given another layout in this transaction",
        "If that is rolled back, the earlier layout could repeat IDs that are taken now.",
        "Commit first.";
    layout_changed(name: &str, change: Change, before: &str, after: &str) => NOT_READY,
        "cannot change the layout of generator {name}: it has issued IDs",
        "{reason}",
        "An earlier epoch, a wider time that is on top, and other policies are allowed. For \
         anything else make a new generator.",
        reason = change_text(change, before, after);
    layout_too_short(name: &str, reached: UnixMillis, last: UnixMillis) => NOT_READY,
        "cannot change the layout of generator {name}: it has issued IDs",
        "Its IDs have reached {reached}, and the time of the new layout ends at {last}.",
        "Give the time more bits, or a later epoch.",
        reached = display(reached),
        last = display(last);
    layout_is_over(layout: &str, last: UnixMillis) => ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
        "the time of this layout is used up",
        "Layout \"{layout}\" lasted until {last}.",
        "It can decode. To generate, give it a later epoch or a wider time; tables that have IDs \
         already then need a column that tells old IDs from new ones.",
        last = display(last);
    mark_does_not_fit(name: &str, mark: UnixMillis) => NOT_READY,
        "cannot restart generator {name} with these bounds",
        "Its mark, {mark} in Unix milliseconds, has to be kept and does not lie between them.",
        "Drop the sequence if it is not needed as a generator any more.",
        mark = mark.get();
    impossible_mark(name: &str, value: i64) => ERRCODE_DATA_CORRUPTED,
        "sequence {name} holds {value}, which is no mark of a generator";
    damaged_sequence(name: &str) => ERRCODE_DATA_CORRUPTED,
        "sequence {name} has a damaged page";
    fields_not_object() => INVALID,
        "fields are not a JSON object",
        "",
        "{FIELDS_HINT}";
    fields_not_read() => INVALID,
        "a value of fields is not a whole number of bigint",
        "",
        "{FIELDS_HINT}";
    field_not_number(field: &str) => INVALID,
        "value of field \"{field}\" is not a whole number of bigint";
    time_mismatch(time: i64, tick: i64) => INVALID,
        "field \"time\" is {time}, but the instant is tick {tick}",
        "",
        "Leave it out: the instant says it.";
    no_privilege(privilege: &str, name: &str, owner: &str) => ERRCODE_INSUFFICIENT_PRIVILEGE,
        "permission denied for generator {name}",
        "",
        "Its owner, role {owner}, can run: GRANT {privilege} ON SEQUENCE {name} TO ...";
    slots_exhausted(max: usize) => ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        "there is no shared memory for another generator",
        "Up to {max} generators have a place there, and those that are in use or ahead of the \
         clock keep theirs.",
        "Increase \"snowflake_id.max_generators\" and restart the server.";
    batch_count(count: i32, max: i32) => OUT_OF_RANGE,
        "count {count} is out of range",
        "",
        "A batch has 1 to {max} IDs.";
    no_currval(name: &str) => NOT_READY,
        "snowflake_currval of generator {name} is not yet defined in this session",
        "",
        "Call snowflake_nextval() first.";
    infinite_instant() => ERRCODE_DATETIME_FIELD_OVERFLOW,
        "an ID cannot have an infinite instant";
    spi(status: i32) => ERRCODE_INTERNAL_ERROR,
        "could not run a statement: SPI status {status}";
}

fn worker_hint(max: u64) -> String {
    format!(
        "Set \"snowflake_id.worker_id\" in postgresql.conf to a number from 0 to {max} that no \
         other server of the cluster has, and restart the server."
    )
}

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

fn change_text(change: Change, before: &str, after: &str) -> String {
    match change {
        Change::Tick => {
            "The tick would change: new IDs could repeat existing ones, or sort before \
                         them."
                .to_string()
        }
        Change::LaterEpoch => "The epoch would be later: new IDs would repeat existing ones, or \
                               sort before them."
            .to_string(),
        Change::NarrowerTime => {
            "The time would have fewer bits: new IDs could repeat existing ones.".to_string()
        }
        Change::Fields => format!(
            "Layout \"{before}\" cannot become \"{after}\": new IDs could repeat existing ones, or \
             sort before them."
        ),
    }
}

const FIELDS_HINT: &str = "Give the values by field, as in '{\"worker\": 7, \"sequence\": 0}'.";
