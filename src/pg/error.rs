//! What users read when something is wrong.

pub mod column;
mod generator;
mod label;
mod layout;
mod refused;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

pub use generator::*;
pub use label::*;
pub use layout::*;
pub use refused::refused;

/// SQLSTATEs, the frequent ones with what they mean here.
pub mod code {
    pub use pgrx::PgSqlErrorCode::*;
    pub use pgrx::PgSqlErrorCode::{
        ERRCODE_FEATURE_NOT_SUPPORTED as NOT_SUPPORTED, ERRCODE_INVALID_PARAMETER_VALUE as INVALID,
        ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE as OUT_OF_RANGE,
        ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as NOT_READY,
        ERRCODE_SUCCESSFUL_COMPLETION as NOTICE, ERRCODE_SYSTEM_ERROR as BAD_CLOCK,
        ERRCODE_WRONG_OBJECT_TYPE as WRONG_KIND,
    };
}

/// An [`Error`] of a SQLSTATE in [`code`]; the message is a format.
macro_rules! error {
    ($code:ident, $message:literal) => {
        $crate::pg::error::Error::new($crate::pg::error::code::$code, format!($message))
    };
}

/// Functions that make errors: name and arguments, in brackets how arguments are shown
/// that are not shown as they are, SQLSTATE, message, `detail` and `hint`.
macro_rules! errors {
    ($(
        $name:ident($($arg:ident: $type:ty),*) $([$($shown:ident = $as:expr),*])?
        $code:ident $message:literal $($part:ident $text:literal)*;
    )*) => { $(
        pub fn $name($($arg: $type),*) -> $crate::pg::error::Error {
            $($(let $shown = $as;)*)?
            $crate::pg::error::error!($code, $message)$(.$part(format!($text)))*
        }
    )* };
}
pub(super) use {error, errors};

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
    /// With neither detail nor hint.
    #[cold]
    pub fn new(code: PgSqlErrorCode, message: String) -> Self {
        Self {
            code,
            message,
            detail: String::new(),
            hint: String::new(),
        }
    }

    /// With this detail.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// With this hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// In one line, for a view.
    pub fn in_a_line(&self) -> String {
        match joined(&self.detail, &self.hint).as_str() {
            "" => self.message.clone(),
            more => format!("{}. {more}", self.message),
        }
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

/// Both, or the one that is not empty.
fn joined(one: &str, other: &str) -> String {
    let both = [one, other];
    let there: Vec<_> = both.into_iter().filter(|text| !text.is_empty()).collect();
    there.join(" ")
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
