//! A message in PostgreSQL's parts.

use pgrx::PgSqlErrorCode::*;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

/// What a client, or the log, is told.
pub struct Text {
    code: PgSqlErrorCode,
    pub(super) message: String,
    pub(super) detail: Option<String>,
    pub(super) hint: Option<String>,
}

impl Text {
    pub fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// SQLSTATE 55000: not now, or not in this order.
    pub fn not_ready(message: impl Into<String>) -> Self {
        Self::new(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    }

    /// SQLSTATE 22023: an argument or a setting is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ERRCODE_INVALID_PARAMETER_VALUE, message)
    }

    /// SQLSTATE 58000: the clock cannot be trusted.
    pub fn system(message: impl Into<String>) -> Self {
        Self::new(ERRCODE_SYSTEM_ERROR, message)
    }

    /// SQLSTATE 42809: the object is of another kind.
    pub fn wrong_type(message: impl Into<String>) -> Self {
        Self::new(ERRCODE_WRONG_OBJECT_TYPE, message)
    }

    /// SQLSTATE 0A000: there is no such thing, or not yet.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ERRCODE_FEATURE_NOT_SUPPORTED, message)
    }

    /// SQLSTATE 22003: a number is too large or too small.
    pub fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE, message)
    }

    /// SQLSTATE 00000: this is no error.
    pub fn notice(message: impl Into<String>) -> Self {
        Self::new(ERRCODE_SUCCESSFUL_COMPLETION, message)
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn report(self, level: PgLogLevel) {
        ErrorReport::from(self).report(level);
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
