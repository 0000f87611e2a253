//! The errors that users read.

pub mod cluster;
mod generator;
pub mod keeper;
mod label;
mod layout;
mod refused;
mod registry;

use pgrx::PgSqlErrorCode::*;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use super::report::{self, Report};

pub use generator::*;
pub use label::*;
pub use layout::*;
pub use refused::refused;
pub use registry::*;

/// What a client, or the log, is told. Detail and hint are empty if there are none.
#[derive(Debug)]
#[must_use]
pub struct Error {
    code: PgSqlErrorCode,
    message: String,
    detail: String,
    hint: String,
}

/// A SQLSTATE.
pub trait Code {
    /// An error with this SQLSTATE, and with neither detail nor hint.
    fn error(self, message: impl Into<String>) -> Error;
}

impl Code for PgSqlErrorCode {
    #[cold]
    fn error(self, message: impl Into<String>) -> Error {
        Error {
            code: self,
            message: message.into(),
            detail: String::new(),
            hint: String::new(),
        }
    }
}

impl Error {
    /// Adds this detail.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds this hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The error in one line, for a view.
    pub fn in_a_line(&self) -> String {
        let more = joined(&self.detail, &self.hint);
        let stop = if more.is_empty() { "" } else { ". " };
        format!("{}{stop}{more}", self.message)
    }

    /// Sends the client a notice. The statement goes on.
    pub fn notice(self) {
        self.report(PgLogLevel::NOTICE);
    }

    /// Sends the client a warning. The statement goes on.
    pub fn warning(self) {
        self.report(PgLogLevel::WARNING);
    }

    /// Writes to the server log, not to the client; `more` goes before the detail.
    pub fn log(mut self, more: &str) {
        self.message = format!("snowflake_id: {}", self.message);
        self.detail = joined(more, &self.detail);
        self.report(PgLogLevel::LOG_SERVER_ONLY);
    }

    /// Ends the statement with this error, as `report::guard` sends it.
    pub fn raise(self) -> ! {
        ErrorReport::from(self).report(PgLogLevel::ERROR);
        unreachable!("an error report does not return");
    }

    #[cold]
    fn report(self, level: PgLogLevel) {
        report::emit(Report {
            level,
            code: self.code,
            message: &self.message,
            detail: &self.detail,
            hint: &self.hint,
        });
    }
}

/// Joins two texts, with a space between them if neither is empty.
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

/// SQLSTATE 55000: not now, or not in this order.
fn not_ready(message: impl Into<String>) -> Error {
    ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE.error(message)
}

/// SQLSTATE 22023: an argument or a setting is wrong.
fn invalid(message: impl Into<String>) -> Error {
    ERRCODE_INVALID_PARAMETER_VALUE.error(message)
}

/// SQLSTATE 58000: the clock cannot be trusted.
fn bad_clock(message: impl Into<String>) -> Error {
    ERRCODE_SYSTEM_ERROR.error(message)
}

/// SQLSTATE 42809: the object is of another kind.
fn wrong_kind(message: impl Into<String>) -> Error {
    ERRCODE_WRONG_OBJECT_TYPE.error(message)
}

/// SQLSTATE 0A000: this does not exist, or does not exist yet.
fn not_supported(message: impl Into<String>) -> Error {
    ERRCODE_FEATURE_NOT_SUPPORTED.error(message)
}

/// SQLSTATE 22003: a number is too large or too small.
fn out_of_range(message: impl Into<String>) -> Error {
    ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE.error(message)
}
