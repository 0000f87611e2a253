//! What users read: an error, a notice, or a line of the server's log. The texts of a room stand in
//! its `error` and in files beside it; by its `error` a room sees also those of the rooms that it uses.

use std::panic::resume_unwind;

use pgrx::PgSqlErrorCode;
use pgrx::PgSqlErrorCode::*;

/// What a client, or the log, is told. Detail and hint are empty if there are none.
#[derive(Debug)]
#[must_use]
pub struct Error {
    pub code: PgSqlErrorCode,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

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
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

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

    /// Ends the statement with this error, where there is no way to return it.
    pub fn raise(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

/// Joins two texts, with a space between them if neither is empty.
pub fn joined(one: &str, other: &str) -> String {
    let texts = [one, other].into_iter().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join(" ")
}

/// SQLSTATE 55000: not now, or not in this order.
pub fn not_ready(message: impl Into<String>) -> Error {
    ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE.error(message)
}

/// SQLSTATE 22023: an argument or a setting is wrong.
pub fn invalid(message: impl Into<String>) -> Error {
    ERRCODE_INVALID_PARAMETER_VALUE.error(message)
}

/// SQLSTATE 58000: the clock cannot be trusted.
pub fn bad_clock(message: impl Into<String>) -> Error {
    ERRCODE_SYSTEM_ERROR.error(message)
}

/// SQLSTATE 42809: the object is of another kind.
pub fn wrong_kind(message: impl Into<String>) -> Error {
    ERRCODE_WRONG_OBJECT_TYPE.error(message)
}

/// SQLSTATE 0A000: this does not exist, or does not exist yet.
pub fn not_supported(message: impl Into<String>) -> Error {
    ERRCODE_FEATURE_NOT_SUPPORTED.error(message)
}

/// SQLSTATE 22003: a number is too large or too small.
pub fn out_of_range(message: impl Into<String>) -> Error {
    ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE.error(message)
}
