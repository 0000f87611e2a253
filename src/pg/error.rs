//! What users read when something is wrong. [`texts`] has the words.

mod column;
mod refused;
mod text;
mod texts;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, pg_sys};

pub use column::{ColumnError, TableError};
pub use text::Text;

use crate::snowflake::generator::Generator;
use crate::snowflake::id::UnixMillis;
use crate::snowflake::label::{EncodeError, LabelError};
use crate::snowflake::layout::{Change, LayoutError};
use crate::snowflake::server::Refused;

/// An error that a user gets.
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
    MarkDoesNotFit {
        name: String,
        mark: UnixMillis,
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
    /// A call gets no ID, or a mark is not raised.
    Refused {
        name: String,
        generator: Generator,
        why: Refused,
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

impl Error {
    /// In one line, for a view.
    pub fn in_a_line(&self) -> String {
        let text = self.text();
        let more: Vec<_> = text.detail.into_iter().chain(text.hint).collect();
        if more.is_empty() {
            text.message
        } else {
            format!("{}. {}", text.message, more.join(" "))
        }
    }

    /// Warns the client, and goes on.
    #[cold]
    pub fn warning(self) {
        self.text().report(PgLogLevel::WARNING);
    }

    /// Tells the server log, not the client; `more` goes before the detail.
    #[cold]
    pub fn log(self, more: Option<String>) {
        let mut text = self.text();
        text.message = format!("snowflake_id: {}", text.message);
        let detail: Vec<_> = more.into_iter().chain(text.detail).collect();
        text.detail = (!detail.is_empty()).then(|| detail.join(" "));
        text.report(PgLogLevel::LOG_SERVER_ONLY);
    }

    /// Ends the statement with this error.
    #[cold]
    pub fn raise(self) -> ! {
        self.text().report(PgLogLevel::ERROR);
        unreachable!("an error report does not return");
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> Self {
        error.text().into()
    }
}
