//! Passes errors and messages to PostgreSQL.
//!
//! pgrx reports both in UTF-8, whatever the database's encoding is. So [`emit`] and
//! [`guard`] report in the database's encoding: `guard` takes the place of `#[pg_guard]`
//! where an error can contain a name.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel, pgrx_extern_c_guard};
use pgrx::{PgLogLevel, pg_sys};

use crate::postgres::error::{Error, joined};
use crate::postgres::{compat, encoding::to_server};

/// An error as a report in PostgreSQL's memory.
fn data(error: &Error, level: PgLogLevel) -> *mut pg_sys::ErrorData {
    let optional = |text: &str| match text {
        "" => std::ptr::null_mut(),
        text => to_server(text),
    };
    let data = pg_sys::ErrorData {
        elevel: level as i32,
        sqlerrcode: error.code as i32,
        message: to_server(&error.message),
        detail: optional(&error.detail),
        hint: optional(&error.hint),
        // SAFETY: a variable of this process.
        assoc_context: unsafe { pg_sys::CurrentMemoryContext },
        ..pg_sys::ErrorData::default()
    };
    // SAFETY: room for one report.
    unsafe {
        let room = pg_sys::palloc(size_of_val(&data)).cast::<pg_sys::ErrorData>();
        room.write(data);
        room
    }
}

/// Sends a report that does not end the statement.
#[cold]
fn emit(error: &Error, level: PgLogLevel) {
    // SAFETY: a level that returns; all texts are copied.
    unsafe { pg_sys::ThrowErrorData(data(error, level)) };
}

impl Error {
    /// Sends the client a notice. The statement continues.
    pub fn notice(self) {
        emit(&self, PgLogLevel::NOTICE);
    }

    /// Sends the client a warning. The statement continues.
    pub fn warning(self) {
        emit(&self, PgLogLevel::WARNING);
    }

    /// Writes to the server log, not to the client; `more` goes before the detail.
    pub fn log(mut self, more: &str) {
        self.message = format!("snowflake_id: {}", self.message);
        self.detail = joined(more, &self.detail);
        emit(&self, PgLogLevel::LOG_SERVER_ONLY);
    }
}

/// Runs `f`, the whole of a function that PostgreSQL calls. The error that `f` returns,
/// or with which it panics, is reported after all values of Rust's are dropped.
///
/// # Safety
/// The caller has nothing that must be dropped.
#[inline]
pub unsafe fn guard<R>(f: impl FnOnce() -> Result<R, Error>) -> R {
    let payload = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(result)) => return result,
        Ok(Err(error)) => Box::new(error),
        Err(payload) => payload,
    };
    // SAFETY: as the caller guarantees.
    unsafe { raise(payload) }
}

/// # Safety
/// As for [`guard`].
#[cold]
#[inline(never)]
unsafe fn raise(payload: Box<dyn Any + Send>) -> ! {
    // SAFETY: as the caller guarantees. Making the report may itself fail, or leave a
    // panic to pgrx.
    unsafe {
        let data = pgrx_extern_c_guard(move || data_of(payload));
        compat::throw(data)
    }
}

/// The report that a panic carries, if it carries one.
fn data_of(payload: Box<dyn Any + Send>) -> *mut pg_sys::ErrorData {
    let (error, level) = error_of(payload);
    data(&error, level)
}

/// The error that a panic carries, and its level. pgrx raises PostgreSQL's own errors again, as
/// they were.
fn error_of(payload: Box<dyn Any + Send>) -> (Error, PgLogLevel) {
    let payload = match payload.downcast::<Error>() {
        Ok(error) => return (*error, PgLogLevel::ERROR),
        Err(payload) => payload,
    };
    let report = match payload.downcast::<ErrorReportWithLevel>() {
        Ok(report) => *report,
        Err(payload) => match payload.downcast::<CaughtError>() {
            Ok(caught) => match *caught {
                CaughtError::ErrorReport(report) => report,
                other => other.rethrow(),
            },
            Err(payload) => resume_unwind(payload),
        },
    };
    let error = Error {
        code: report.sql_error_code(),
        message: report.message().to_string(),
        detail: report.detail().unwrap_or_default().to_string(),
        hint: report.hint().unwrap_or_default().to_string(),
    };
    (error, report.level())
}
